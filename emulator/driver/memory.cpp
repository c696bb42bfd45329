// Memory: allocation, registration, queries, copies and fills.
// Pool memory comes from malloc, so that AddressSanitizer surrounds it with red zones. cuMemAlloc memory
// lies in a memory file that another process can map (ipc.cpp). Fresh memory holds a garbage byte.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "ipc.hpp"
#include "races.hpp"
#include "state.hpp"

namespace hwemu {

Allocation* find_allocation(std::uint64_t address) {
    auto& all = state().allocations;
    auto next = all.upper_bound(address);
    if (next == all.begin()) return nullptr;
    Allocation& candidate = std::prev(next)->second;
    return address - candidate.base < candidate.bytes ? &candidate : nullptr;
}

namespace {

Allocation* add(Memory kind, void* base, std::size_t bytes, int device) {
    const auto address = reinterpret_cast<std::uint64_t>(base);
    Allocation allocation{};
    allocation.kind = kind;
    allocation.base = address;
    allocation.bytes = bytes;
    allocation.device = device;
    allocation.id = state().next_id++;
    return &(state().allocations[address] = allocation);
}

bool on_device(Memory kind) { return kind == Memory::device || kind == Memory::pool || kind == Memory::managed; }

bool fits(const Device* device, std::size_t bytes) {
    const auto limit = setting("HWEMU_DEVICE_BYTES", 1ull << 30);
    return bytes <= limit && device->used_bytes <= limit - bytes;
}

int allocate(Memory kind, DevicePointer* out, std::size_t bytes, Device* device) {
    if (!out || !bytes) return invalid_value;
    if (on_device(kind) && !fits(device, bytes)) return out_of_memory;
    const auto pinned_limit = setting("HWEMU_PINNED_BYTES", ~0ull);
    const bool is_host = kind == Memory::host;
    if (is_host && (bytes > pinned_limit || state().pinned_bytes > pinned_limit - bytes)) return out_of_memory;
    void* base = nullptr;
    if (posix_memalign(&base, is_host ? 4096 : 512, bytes)) return out_of_memory;
    fill_unchecked(base, bytes);
    add(kind, base, bytes, device->number);
    if (on_device(kind)) device->used_bytes += bytes;
    if (is_host) state().pinned_bytes += bytes;
    *out = reinterpret_cast<std::uint64_t>(base);
    return success;
}

// Nobody counts it any more.
void uncount(const Allocation& allocation) {
    if (on_device(allocation.kind))
        state().devices[static_cast<std::size_t>(allocation.device)]->used_bytes -= allocation.bytes;
    if (allocation.kind == Memory::host) state().pinned_bytes -= allocation.bytes;
}

// Gives an allocation of any kind back. The caller has checked that it may, and is named if it is the host.
void release(Allocation* allocation, const char* call = nullptr) {
    if (!allocation->is_leaving) uncount(*allocation);
    const Allocation gone = *allocation;
    auto* memory = reinterpret_cast<void*>(gone.base);
    state().allocations.erase(gone.base);
    if (call) check_given_back(gone, call);
    if (gone.mapping)
        unmap_file(gone);
    else if (gone.kind == Memory::pool && !call && holds())
        bury(gone, memory);
    else if (gone.kind != Memory::registered)
        std::free(memory);
}

Allocation* find_base(std::uint64_t address) {
    Allocation* allocation = find_allocation(address);
    return allocation && allocation->base == address && !allocation->is_leaving ? allocation : nullptr;
}

// A range that begins in a known allocation must end in it. Unknown memory is the host's own.
bool range_is_valid(std::uint64_t address, std::size_t bytes) {
    if (!address) return false;
    const Allocation* allocation = find_allocation(address);
    return !allocation || bytes <= allocation->bytes - (address - allocation->base);
}

bool known_range(std::uint64_t address, std::size_t bytes) {
    return find_allocation(address) && range_is_valid(address, bytes);
}

// The first allocation that has bytes of a range.
const Allocation* overlapping(std::uint64_t address, std::size_t bytes) {
    if (const Allocation* around = find_allocation(address)) return around;
    auto next = state().allocations.lower_bound(address);
    return next != state().allocations.end() && next->first < address + bytes ? &next->second : nullptr;
}

bool is_mapped(std::uint64_t address, std::size_t bytes) {
    const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    const std::uint64_t begin = address / page * page, end = (address + bytes + page - 1) / page * page;
    std::vector<unsigned char> resident((end - begin) / page);
    return mincore(reinterpret_cast<void*>(begin), end - begin, resident.data()) == 0;
}

Capture* capture_owning(DevicePointer address) {
    for (Capture* capture : state().captures)
        for (DevicePointer owned : capture->graph->owned)
            if (owned == address) return capture;
    return nullptr;
}

}  // namespace

void release_pool(DevicePointer base) {
    if (Allocation* allocation = find_base(base)) release(allocation);
}

Graph::~Graph() {
    if (!owned.empty() || !objects.empty()) finish_all();
    for (DevicePointer address : owned) release_pool(address);
}

}  // namespace hwemu

using namespace hwemu;

HWEMU_EXPORT int cuMemGetInfo_v2(std::size_t* available, std::size_t* total) {
    Call call;
    if (int error = call.needs_context()) return error;
    if (!available || !total) return invalid_value;
    *total = setting("HWEMU_DEVICE_BYTES", 1ull << 30);
    const std::size_t used = current_device()->used_bytes;
    *available = *total > used ? *total - used : 0;
    return success;
}

HWEMU_EXPORT int cuMemAlloc_v2(DevicePointer* out, std::size_t bytes) {
    Call call;
    if (int error = call.needs_context()) return error;
    if (int error = forbidden_by_capture()) return error;
    if (!out || !bytes) return invalid_value;
    if (!fits(current_device(), bytes)) return out_of_memory;
    Allocation made{};
    if (!map_new_file(made, bytes)) return out_of_memory;
    Allocation* allocation = add(Memory::device, reinterpret_cast<void*>(made.base), bytes, current_device()->number);
    allocation->file = made.file;
    allocation->mapping = made.mapping;
    allocation->mapping_bytes = made.mapping_bytes;
    fill_unchecked(reinterpret_cast<void*>(made.base), bytes);
    current_device()->used_bytes += bytes;
    *out = made.base;
    return success;
}

HWEMU_EXPORT int cuMemFree_v2(DevicePointer address) {
    Call call;
    if (int error = call.needs_context()) return error;
    if (int error = forbidden_by_capture()) return error;
    if (!address) return success;
    Allocation* allocation = find_base(address);
    if (!allocation || !on_device(allocation->kind)) return invalid_value;
    release(allocation, "cuMemFree");
    return success;
}

HWEMU_EXPORT int cuMemAllocAsync(DevicePointer* out, std::size_t bytes, void* stream_handle) {
    Call call;
    if (int error = call.needs_context()) return error;
    Stream* stream = find_stream(stream_handle);
    if (!stream) return invalid_handle;
    if (out && !bytes) {
        *out = 0;
        return success;
    }
    if (int error = allocate(Memory::pool, out, bytes, stream->device)) return error;
    Work work{"allocation", nullptr, {{*out, bytes, true}}, {}};
    if (!stream->capture) return holds() ? submit(stream, std::move(work)) : success;
    // The graph owns the memory and finds it full of garbage on every launch.
    stream->capture->graph->owned.push_back(*out);
    work.run = [base = *out, bytes] {
        fill_unchecked(reinterpret_cast<void*>(base), bytes);
        return 0;
    };
    return submit(stream, std::move(work));
}

HWEMU_EXPORT int cuMemFreeAsync(DevicePointer address, void* stream_handle) {
    Call call;
    if (int error = call.needs_context()) return error;
    Stream* stream = find_stream(stream_handle);
    if (!stream) return invalid_handle;
    if (!address) return success;
    Allocation* allocation = find_base(address);
    if (!allocation || (allocation->kind != Memory::pool && allocation->kind != Memory::device)) return invalid_value;
    if (stream->capture) return capture_owning(address) == stream->capture.get() ? success : invalid_value;
    if (!holds()) {
        release(allocation);
        return success;
    }
    uncount(*allocation);
    allocation->is_leaving = true;
    const auto run = [address] {
        release(find_allocation(address));
        return 0;
    };
    return submit(stream, {"free", run, {{address, allocation->bytes, true}}, {}});
}

HWEMU_EXPORT int cuDeviceGetDefaultMemPool(void** pool, int device) {
    Call call;
    if (!state().initialised) return not_initialized;
    if (!pool) return invalid_value;
    if (device < 0 || device >= static_cast<int>(state().devices.size())) return invalid_device;
    *pool = state().devices[static_cast<std::size_t>(device)].get();
    return success;
}

namespace {
bool is_pool(const void* pool) {
    for (auto& device : state().devices)
        if (device.get() == pool) return true;
    return false;
}
}  // namespace

HWEMU_EXPORT int cuMemPoolSetAttribute(void* pool, int attribute, void* value) {
    Call call;
    if (!state().initialised) return not_initialized;
    return is_pool(pool) && value && attribute >= 1 && attribute <= 8 ? success : invalid_value;
}

HWEMU_EXPORT int cuMemPoolTrimTo(void* pool, std::size_t) {
    Call call;
    if (!state().initialised) return not_initialized;
    return is_pool(pool) ? success : invalid_value;
}

HWEMU_EXPORT int cuMemHostAlloc(void** out, std::size_t bytes, unsigned flags) {
    Call call;
    if (int error = call.needs_context()) return error;
    if (int error = forbidden_by_capture()) return error;
    if (flags & ~7u) return invalid_value;
    return allocate(Memory::host, reinterpret_cast<DevicePointer*>(out), bytes, current_device());
}

HWEMU_EXPORT int cuMemFreeHost(void* address) {
    Call call;
    if (int error = call.needs_context()) return error;
    if (int error = forbidden_by_capture()) return error;
    Allocation* allocation = find_base(reinterpret_cast<std::uint64_t>(address));
    if (!allocation || allocation->kind != Memory::host) return invalid_value;
    release(allocation, "cuMemFreeHost");
    return success;
}

HWEMU_EXPORT int cuMemHostRegister_v2(void* pointer, std::size_t bytes, unsigned flags) {
    Call call;
    if (int error = call.needs_context()) return error;
    if (int error = forbidden_by_capture()) return error;
    const auto address = reinterpret_cast<std::uint64_t>(pointer);
    if (!pointer || !bytes || (flags & ~15u) || address + bytes < address) return invalid_value;
    if (const Allocation* known = overlapping(address, bytes))
        return known->kind == Memory::registered ? host_memory_already_registered : invalid_value;
    if (!is_mapped(address, bytes)) return invalid_value;
    const auto limit = setting("HWEMU_REGISTER_BYTES", ~0ull);
    if (bytes > limit || state().registered_bytes > limit - bytes) return out_of_memory;
    add(Memory::registered, pointer, bytes, current_device()->number);
    state().registered_bytes += bytes;
    return success;
}

HWEMU_EXPORT int cuMemHostUnregister(void* pointer) {
    Call call;
    if (int error = call.needs_context()) return error;
    if (int error = forbidden_by_capture()) return error;
    if (!pointer) return invalid_value;
    Allocation* allocation = find_allocation(reinterpret_cast<std::uint64_t>(pointer));
    if (!allocation || allocation->kind != Memory::registered) return host_memory_not_registered;
    if (allocation->base != reinterpret_cast<std::uint64_t>(pointer)) return invalid_value;
    state().registered_bytes -= allocation->bytes;
    release(allocation, "cuMemHostUnregister");
    return success;
}

HWEMU_EXPORT int cuMemHostGetDevicePointer_v2(DevicePointer* out, void* pointer, unsigned flags) {
    Call call;
    if (int error = call.needs_context()) return error;
    const auto address = reinterpret_cast<std::uint64_t>(pointer);
    const Allocation* allocation = find_allocation(address);
    if (!out || flags || !allocation) return invalid_value;
    if (allocation->kind != Memory::host && allocation->kind != Memory::registered) return invalid_value;
    *out = address;
    return success;
}

HWEMU_EXPORT int cuMemAllocManaged(DevicePointer* out, std::size_t bytes, unsigned flags) {
    Call call;
    if (int error = call.needs_context()) return error;
    if (int error = forbidden_by_capture()) return error;
    if (flags != 1 && flags != 2) return invalid_value;
    return allocate(Memory::managed, out, bytes, current_device());
}

HWEMU_EXPORT int cuMemAdvise(DevicePointer address, std::size_t bytes, int advice, int device) {
    Call call;
    if (int error = call.needs_context()) return error;
    const Allocation* allocation = find_allocation(address);
    if (!bytes || !allocation || allocation->kind != Memory::managed || !range_is_valid(address, bytes)) return invalid_value;
    if (advice < 1 || advice > 6) return invalid_value;
    const bool names_device = advice == 3 || advice >= 5;
    if (names_device && (device < -1 || device >= static_cast<int>(state().devices.size()))) return invalid_device;
    return success;
}

HWEMU_EXPORT int cuPointerGetAttribute(void* data, int attribute, DevicePointer address) {
    Call call;
    if (int error = call.needs_context()) return error;
    const Allocation* a = find_allocation(address);
    if (!data || !a) return invalid_value;
    const bool host = a->kind == Memory::host || a->kind == Memory::registered;
    const auto put = [data](auto value) {
        std::memcpy(data, &value, sizeof value);
        return success;
    };
    switch (attribute) {
        case 1: return put(static_cast<void*>(state().devices[static_cast<std::size_t>(a->device)].get()));
        case 2: return put(host ? 1u : 2u);
        case 3: return put(address);
        case 4: return host || a->kind == Memory::managed ? put(address) : invalid_value;
        case 7: return put(a->id);
        case 8: return put(a->kind == Memory::managed ? 1u : 0u);
        case 9: return put(a->device);
        case 10: return put(a->kind == Memory::device ? 1u : 0u);
        case 11: return put(a->base);
        case 12: return put(a->bytes);
        case 13: return put(1u);
        default: return invalid_value;
    }
}

HWEMU_EXPORT int cuMemcpyAsync(DevicePointer to, DevicePointer from, std::size_t bytes, void* stream_handle) {
    Call call;
    if (int error = call.needs_context()) return error;
    Stream* stream = find_stream(stream_handle);
    if (!stream) return invalid_handle;
    if (!bytes) return success;
    if (!range_is_valid(to, bytes) || !range_is_valid(from, bytes)) return invalid_value;
    const bool from_pageable = !find_allocation(from), to_pageable = !find_allocation(to);
    const std::string name = "copy of " + std::to_string(bytes) + " bytes";
    Work work{name, nullptr, {{from, bytes, false}, {to, bytes, true}}, {}};
    if (holds() && from_pageable && !stream->capture) {
        // The driver reads pageable memory before it returns.
        const auto* first = reinterpret_cast<const unsigned char*>(from);
        work.run = [to, copy = std::vector<unsigned char>(first, first + bytes)] {
            std::memcpy(reinterpret_cast<void*>(to), copy.data(), copy.size());
            return 0;
        };
    } else {
        work.run = [=] {
            std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
            return 0;
        };
    }
    const int code = submit(stream, std::move(work));
    // It has written pageable memory when it returns.
    return code || !to_pageable || stream->capture ? code : finish(stream->point);
}

HWEMU_EXPORT int cuMemsetD8Async(DevicePointer address, unsigned char value, std::size_t count, void* stream_handle) {
    Call call;
    if (int error = call.needs_context()) return error;
    Stream* stream = find_stream(stream_handle);
    if (!stream) return invalid_handle;
    if (!count) return success;
    if (!known_range(address, count)) return invalid_value;
    const auto run = [=] {
        std::memset(reinterpret_cast<void*>(address), value, count);
        return 0;
    };
    return submit(stream, {"fill of " + std::to_string(count) + " bytes", run, {{address, count, true}}, {}});
}

HWEMU_EXPORT int cuMemsetD32Async(DevicePointer address, unsigned value, std::size_t count, void* stream_handle) {
    Call call;
    if (int error = call.needs_context()) return error;
    Stream* stream = find_stream(stream_handle);
    if (!stream) return invalid_handle;
    if (!count) return success;
    if (address % 4 || count > ~std::size_t{0} / 4 || !known_range(address, count * 4)) return invalid_value;
    const auto run = [=] {
        auto* words = reinterpret_cast<unsigned*>(address);
        for (std::size_t i = 0; i < count; ++i) words[i] = value;
        return 0;
    };
    return submit(stream, {"fill of " + std::to_string(4 * count) + " bytes", run, {{address, 4 * count, true}}, {}});
}
