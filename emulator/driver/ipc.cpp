// Memory files and the IPC handles that name them.
// An anonymous memory file vanishes with the last process that holds it, however that one ends, where a
// named object in /dev/shm would stay behind. A handle names the owner's process and file descriptor; the
// other side opens it through /proc and checks the inode, so that a number used again is noticed.
#include "ipc.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

extern "C" void __asan_poison_memory_region(const volatile void* address, std::size_t bytes) __attribute__((weak));
extern "C" void __asan_unpoison_memory_region(const volatile void* address, std::size_t bytes) __attribute__((weak));

namespace hwemu {

namespace {

struct Named {
    char magic[8];
    std::int32_t process, file;
    std::uint64_t bytes, inode;
    std::int32_t device;
};
static_assert(sizeof(Named) <= sizeof(IpcMemHandle), "a handle holds 64 bytes");

std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

// Maps the file between two guard pages; with AddressSanitizer the rest of the last page is out of bounds too.
bool map_between_guards(Allocation& allocation, int file, std::size_t bytes) {
    const std::size_t page = page_bytes(), inner = (bytes + page - 1) / page * page;
    void* outer = mmap(nullptr, inner + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (outer == MAP_FAILED) return false;
    auto* base = static_cast<unsigned char*>(outer) + page;
    if (mmap(base, inner, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
        munmap(outer, inner + 2 * page);
        return false;
    }
    if (__asan_poison_memory_region) __asan_poison_memory_region(base + bytes, inner - bytes);
    allocation.base = reinterpret_cast<std::uint64_t>(base);
    allocation.file = file;
    allocation.bytes = bytes;
    allocation.mapping = outer;
    allocation.mapping_bytes = inner + 2 * page;
    return true;
}

std::uint64_t inode_of(int file) {
    struct stat info {};
    return fstat(file, &info) == 0 ? info.st_ino : 0;
}

Allocation* already_open(const IpcMemHandle& handle) {
    for (auto& [base, allocation] : state().allocations)
        if (allocation.kind == Memory::ipc && std::memcmp(&allocation.handle, &handle, sizeof handle) == 0) return &allocation;
    return nullptr;
}

int open_named(const Named& named) {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/fd/%d", named.process, named.file);
    const int file = open(path, O_RDWR | O_CLOEXEC);
    if (file >= 0 && inode_of(file) != named.inode) {
        close(file);
        return -1;
    }
    return file;
}

}  // namespace

bool map_new_file(Allocation& allocation, std::size_t bytes) {
    const int file = memfd_create("hwemu", MFD_CLOEXEC);
    if (file < 0) return false;
    const std::size_t page = page_bytes();
    if (ftruncate(file, static_cast<off_t>((bytes + page - 1) / page * page)) == 0 && map_between_guards(allocation, file, bytes))
        return true;
    close(file);
    return false;
}

void unmap_file(const Allocation& allocation) {
    if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(allocation.mapping, allocation.mapping_bytes);
    munmap(allocation.mapping, allocation.mapping_bytes);
    close(allocation.file);
}

}  // namespace hwemu

using namespace hwemu;

HWEMU_EXPORT int cuIpcGetMemHandle(IpcMemHandle* handle, DevicePointer address) {
    Call call;
    if (int error = call.needs_context()) return error;
    const Allocation* allocation = find_allocation(address);
    // Pool and managed memory cannot be shared this way, nor can memory of another process be passed on.
    if (!handle || !allocation || allocation->kind != Memory::device) return invalid_value;
    Named named{};
    std::memcpy(named.magic, "HWEMUIPC", 8);
    named.process = getpid();
    named.file = allocation->file;
    named.bytes = allocation->bytes;
    named.inode = inode_of(allocation->file);
    named.device = allocation->device;
    std::memset(handle, 0, sizeof *handle);
    std::memcpy(handle, &named, sizeof named);
    return success;
}

HWEMU_EXPORT int cuIpcOpenMemHandle_v2(DevicePointer* out, IpcMemHandle handle, unsigned flags) {
    Call call;
    if (int error = call.needs_context()) return error;
    Named named;
    std::memcpy(&named, &handle, sizeof named);
    if (!out || flags != 1 || std::memcmp(named.magic, "HWEMUIPC", 8) != 0) return invalid_value;
    // The driver refuses a handle in the process that made it.
    if (named.process == getpid()) return invalid_context;
    if (Allocation* open = already_open(handle)) {
        ++open->opened;
        *out = open->base;
        return success;
    }
    const int file = open_named(named);
    if (file < 0) return map_failed;
    Allocation allocation{};
    if (!map_between_guards(allocation, file, named.bytes)) {
        close(file);
        return map_failed;
    }
    allocation.kind = Memory::ipc;
    allocation.device = current_device()->number;
    allocation.id = state().next_id++;
    allocation.opened = 1;
    allocation.handle = handle;
    state().allocations[allocation.base] = allocation;
    *out = allocation.base;
    return success;
}

HWEMU_EXPORT int cuIpcCloseMemHandle(DevicePointer address) {
    Call call;
    if (int error = call.needs_context()) return error;
    Allocation* allocation = find_allocation(address);
    if (!allocation || allocation->kind != Memory::ipc || allocation->base != address) return invalid_value;
    if (--allocation->opened) return success;
    unmap_file(*allocation);
    state().allocations.erase(address);
    return success;
}
