// Initialisation, devices, contexts and the counters that leak tests read.
#include <cstdio>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "state.hpp"

namespace hwemu {

State& state() {
    // Never destroyed: other threads may still call when the process ends.
    static State* state = new State;
    return *state;
}

std::atomic<unsigned long long>& driver_calls() {
    static std::atomic<unsigned long long> calls{0};
    return calls;
}

unsigned sm_count() { return static_cast<unsigned>(setting("HWEMU_SMS", 16)); }

unsigned long long setting(const char* name, unsigned long long otherwise) {
    const char* text = std::getenv(name);
    return text && *text ? std::strtoull(text, nullptr, 0) : otherwise;
}

Device*& current_device() {
    static thread_local Device* device = nullptr;
    return device;
}

int Call::needs_context() const {
    if (!state().initialised) return not_initialized;
    if (!current_device()) return invalid_context;
    if (!current_device()->retained) return context_is_destroyed;
    return state().failed;
}

double now_ms() {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

namespace {

Device* find_device(int number) {
    auto& devices = state().devices;
    return number >= 0 && number < static_cast<int>(devices.size()) ? devices[static_cast<std::size_t>(number)].get() : nullptr;
}

Device* find_context(const void* handle) {
    for (auto& device : state().devices)
        if (device.get() == handle) return device.get();
    return nullptr;
}

int check_device(int number) {
    if (!state().initialised) return not_initialized;
    return find_device(number) ? success : invalid_device;
}

// An H200 but for its L2, by the driver's attribute numbers. Anything else is 0.
int attribute_value(int attribute, int device) {
    switch (attribute) {
        case 1: return 1024;                 // threads a block
        case 2: case 3: return 1024;         // block x, y
        case 4: return 64;                   // block z
        case 5: return 2147483647;           // grid x
        case 6: case 7: return 65535;        // grid y, z
        case 8: return 49152;                // shared memory a block
        case 9: return 65536;                // constant memory
        case 10: return 32;                  // warp
        case 11: return 2147483647;          // pitch
        case 12: return 65536;               // registers a block
        case 13: return 1980000;             // clock, kHz
        case 14: return 512;                 // texture alignment
        case 15: return 1;                   // copies overlap kernels
        case 16: return static_cast<int>(sm_count());
        case 19: return 1;                   // maps host memory
        case 31: return 1;                   // concurrent kernels
        case 32: return 1;                   // ECC
        case 33: return 0x10 + device;       // PCI bus
        case 36: return 3201000;             // memory clock, kHz
        case 37: return 6144;                // memory bus, bits
        case 38: return 1024 * 1024;         // L2: small, so that what is measured beyond it is soon measured
        case 39: return 2048;                // threads an SM
        case 40: return 3;                   // copy engines
        case 41: return 1;                   // unified addressing
        case 75: return static_cast<int>(setting("HWEMU_CAPABILITY", 90) / 10);  // compute capability
        case 76: return static_cast<int>(setting("HWEMU_CAPABILITY", 90) % 10);
        case 78: case 79: case 80: return 1; // priorities, L1
        case 81: return 233472;              // shared memory an SM
        case 82: return 65536;               // registers an SM
        case 83: return 1;                   // managed memory
        case 87: return 2;                   // single to double
        case 89: return 1;                   // concurrent managed access
        case 90: case 91: return 1;          // preemption, host pointers of registered memory
        case 95: return 1;                   // cooperative launch
        case 97: return 232448;              // opt-in shared memory a block
        case 98: case 99: return 1;          // remote writes, host registration
        case 106: return 32;                 // blocks an SM
        case 111: return 1024;               // reserved shared memory a block
        case 113: return 1;                  // read-only registration
        case 115: return 1;                  // memory pools
        default: return 0;
    }
}

unsigned long long count_allocations(std::initializer_list<Memory> kinds, bool bytes) {
    unsigned long long sum = 0;
    for (const auto& [base, allocation] : state().allocations)
        for (Memory kind : kinds)
            if (allocation.kind == kind && !allocation.is_leaving) sum += bytes ? allocation.bytes : 1;
    return sum;
}

}  // namespace
}  // namespace hwemu

using namespace hwemu;

HWEMU_EXPORT int cuInit(unsigned flags) {
    Call call;
    if (flags) return invalid_value;
    const auto count = setting("HWEMU_DEVICES", 1);
    if (!count) return no_device;
    while (state().devices.size() < count) {
        auto device = std::make_unique<Device>();
        device->number = static_cast<int>(state().devices.size());
        state().devices.push_back(std::move(device));
    }
    state().initialised = true;
    return success;
}

HWEMU_EXPORT int cuDriverGetVersion(int* version) {
    Call call;
    if (!version) return invalid_value;
    *version = static_cast<int>(setting("HWEMU_DRIVER_VERSION", 12080));
    return success;
}

HWEMU_EXPORT int cuDeviceGetCount(int* count) {
    Call call;
    if (!state().initialised) return not_initialized;
    if (!count) return invalid_value;
    *count = static_cast<int>(state().devices.size());
    return success;
}

HWEMU_EXPORT int cuDeviceGet(int* device, int ordinal) {
    Call call;
    if (!state().initialised) return not_initialized;
    if (!device) return invalid_value;
    if (!find_device(ordinal)) return invalid_device;
    *device = ordinal;
    return success;
}

HWEMU_EXPORT int cuDeviceGetName(char* name, int bytes, int device) {
    Call call;
    if (int error = check_device(device)) return error;
    if (!name || bytes <= 0) return invalid_value;
    std::snprintf(name, static_cast<std::size_t>(bytes), "Headwater emulated device");
    return success;
}

HWEMU_EXPORT int cuDeviceTotalMem_v2(std::size_t* bytes, int device) {
    Call call;
    if (int error = check_device(device)) return error;
    if (!bytes) return invalid_value;
    *bytes = setting("HWEMU_DEVICE_BYTES", 1ull << 30);
    return success;
}

HWEMU_EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device) {
    Call call;
    if (int error = check_device(device)) return error;
    if (!value || attribute < 1 || attribute > 160) return invalid_value;
    *value = attribute_value(attribute, device);
    return success;
}

HWEMU_EXPORT int cuDeviceGetUuid(Uuid* uuid, int device) {
    Call call;
    if (int error = check_device(device)) return error;
    if (!uuid) return invalid_value;
    std::memcpy(uuid->bytes, "headwater-emu-00", 16);
    uuid->bytes[15] = static_cast<unsigned char>('0' + device);
    return success;
}

HWEMU_EXPORT int cuDeviceGetPCIBusId(char* text, int bytes, int device) {
    Call call;
    if (int error = check_device(device)) return error;
    if (!text || bytes < 13) return invalid_value;
    std::snprintf(text, static_cast<std::size_t>(bytes), "0000:%02X:00.0", static_cast<unsigned>(0x10 + device) & 255);
    return success;
}

HWEMU_EXPORT int cuDeviceCanAccessPeer(int* can, int device, int peer) {
    Call call;
    if (int error = check_device(device)) return error;
    if (int error = check_device(peer)) return error;
    if (!can) return invalid_value;
    *can = device != peer;
    return success;
}

HWEMU_EXPORT int cuCtxEnablePeerAccess(void* peer, unsigned flags) {
    Call call;
    if (int error = call.needs_context()) return error;
    Device* other = find_context(peer);
    if (flags) return invalid_value;
    if (!other || !other->retained) return invalid_context;
    if (other == current_device()) return peer_access_unsupported;
    return current_device()->peers.insert(other->number).second ? success : peer_access_already_enabled;
}

HWEMU_EXPORT int cuDevicePrimaryCtxRetain(void** context, int device) {
    Call call;
    if (int error = check_device(device)) return error;
    if (!context) return invalid_value;
    ++find_device(device)->retained;
    *context = find_device(device);
    return success;
}

HWEMU_EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
    Call call;
    if (int error = check_device(device)) return error;
    Device* d = find_device(device);
    if (!d->retained) return invalid_context;
    if (--d->retained == 0) d->peers.clear();
    return success;
}

HWEMU_EXPORT int cuCtxSetCurrent(void* context) {
    Call call;
    if (!state().initialised) return not_initialized;
    Device* device = find_context(context);
    if (context && (!device || !device->retained)) return invalid_context;
    current_device() = device;
    return success;
}

HWEMU_EXPORT int cuCtxGetCurrent(void** context) {
    Call call;
    if (!state().initialised) return not_initialized;
    if (!context) return invalid_value;
    *context = current_device();
    return success;
}

HWEMU_EXPORT int cuCtxSynchronize() {
    Call call;
    if (int error = call.needs_context()) return error;
    if (int error = forbidden_by_capture()) return error;
    Point all = default_stream(current_device())->point;
    for (const auto& [handle, stream] : state().streams.all())
        if (stream->device == current_device()) all.join(stream->point);
    for (const auto& [handle, executable] : state().executables.all()) all.join(executable->last);
    all.join(state().gone);
    const int code = finish(all);
    state().gone.is_reached();
    return code;
}

HWEMU_EXPORT unsigned long long hwemu_live(const char* what) {
    if (!std::strcmp(what, "driver_calls")) return driver_calls();
    State& s = state();
    const std::lock_guard<std::mutex> held(s.lock);
    const std::string name = what;
    const auto on_device = {Memory::device, Memory::pool, Memory::managed};
    if (name == "device_allocations") return count_allocations(on_device, false);
    if (name == "device_bytes") return count_allocations(on_device, true);
    if (name == "host_allocations") return count_allocations({Memory::host}, false);
    if (name == "host_bytes") return count_allocations({Memory::host}, true);
    if (name == "registrations") return count_allocations({Memory::registered}, false);
    if (name == "registered_bytes") return count_allocations({Memory::registered}, true);
    if (name == "ipc_mappings") return count_allocations({Memory::ipc}, false);
    if (name == "streams") return s.streams.size();
    if (name == "events") return s.events.size();
    if (name == "modules") return s.modules.size();
    if (name == "graphs") return s.graphs.size() + s.executables.size();
    if (name == "green_contexts") return s.green.size();
    return ~0ull;
}
