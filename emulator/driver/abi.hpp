// The few CUDA driver types that the stand-in needs, by the driver's documented binary interface.
// Written by hand: names follow ours, sizes and values follow the driver.
#pragma once

#include <cstddef>
#include <cstdint>

#define HWEMU_EXPORT extern "C" __attribute__((visibility("default")))

namespace hwemu {

using DevicePointer = std::uint64_t;
using DeviceNumber = int;

enum Result : int {
    success = 0,
    invalid_value = 1,
    out_of_memory = 2,
    not_initialized = 3,
    no_device = 100,
    invalid_device = 101,
    invalid_image = 200,
    invalid_context = 201,
    map_failed = 205,
    peer_access_unsupported = 217,
    invalid_handle = 400,
    illegal_state = 401,
    not_found = 500,
    not_ready = 600,
    illegal_address = 700,
    launch_out_of_resources = 701,
    launch_timeout = 702,
    peer_access_already_enabled = 704,
    context_is_destroyed = 709,
    assert_failed = 710,
    host_memory_already_registered = 712,
    host_memory_not_registered = 713,
    misaligned_address = 716,
    launch_failed = 719,
    not_permitted = 800,
    not_supported = 801,
    stream_capture_unsupported = 900,
    stream_capture_invalidated = 901,
    stream_capture_merge = 902,
    stream_capture_unmatched = 903,
    stream_capture_unjoined = 904,
    stream_capture_isolation = 905,
    stream_capture_implicit = 906,
    captured_event = 907,
    stream_capture_wrong_thread = 908,
    invalid_resource_type = 914,
    invalid_resource_configuration = 915,
    unknown = 999,
};

struct Uuid {
    unsigned char bytes[16];
};

struct IpcMemHandle {
    unsigned char bytes[64];
};

struct DevResource {
    int type;
    unsigned char padding[92];
    unsigned sm_count;
    unsigned char rest[44];
};
static_assert(sizeof(DevResource) == 144, "the driver's CUdevResource has 144 bytes");

}  // namespace hwemu
