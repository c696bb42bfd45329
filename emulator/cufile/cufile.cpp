// cuFile over emulated devices, whose memory the host can reach: reads and writes are pread and pwrite. What a machine has, and which
// faults come next, is set by HWEMU_CUFILE and by hwemu_cufile(name, value).
//
// Like the real library, it goes through host memory ("compatibility mode") where nvidia-fs is missing and nobody forbade that; then it
// counts, so that tests see who relied on it.
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

enum Code { ok = 0, not_open = 5001, unsupported_file = 5008, not_direct = 5020, bad_value = 5022, not_registered = 5024, already_open = 5026 };

struct Status {
    int code, driver_code;
};

struct Descriptor {
    int kind;
    union {
        int fd;
        void* handle;
    };
    const void* operations;
};

struct Properties {
    unsigned major, minor;
    std::size_t poll_threshold, most_direct_io;
    unsigned status_flags, control_flags, features, cache, buffer_cache, pinned, batch, batch_timeout;
};

struct File {
    int fd;
};

struct State {
    std::mutex lock;
    // What the machine has, and what the next calls do.
    std::map<std::string, long> settings{{"nvfs", 0}, {"p2p", 0}, {"parameters", 1}, {"file", 0}, {"most", 0},
                                         {"fail_reads", 0}, {"fail_writes", 0}, {"code", EIO}, {"flip", 0}, {"late_ms", 0}};
    // What was done.
    std::map<std::string, long> counts;
    std::map<std::uintptr_t, std::size_t> memory;
    bool allows_compatibility = true, is_open = false;
};

State& state() {
    static State* one = [] {
        auto* made = new State;
        const char* has = std::getenv("HWEMU_CUFILE");
        if (has != nullptr) made->settings[has] = 1;
        return made;
    }();
    return *one;
}

using Locked = std::lock_guard<std::mutex>;

bool has_direct_way(State& all) { return all.settings["nvfs"] != 0 || all.settings["p2p"] != 0; }

// Whether the part is inside memory that was registered at `base`.
bool is_registered(State& all, std::uintptr_t base, std::size_t end) {
    const auto found = all.memory.find(base);
    return found != all.memory.end() && end <= found->second;
}

ssize_t transfer(void* handle, void* base, std::size_t bytes, off_t offset, off_t at, bool is_read) {
    auto& all = state();
    const auto is_late = [&all, begun = std::chrono::steady_clock::now()] {
        Locked hold(all.lock);
        return std::chrono::steady_clock::now() - begun < std::chrono::milliseconds(all.settings["late_ms"]);
    };
    while (is_late()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    bool is_flipped = false;
    {
        Locked hold(all.lock);
        if (!all.is_open) return -not_open;
        if (at < 0 || !is_registered(all, reinterpret_cast<std::uintptr_t>(base), at + bytes)) return -not_registered;
        const char* const fault = is_read ? "fail_reads" : "fail_writes";
        if (all.settings[fault] > 0) {
            all.settings[fault]--;
            const auto code = all.settings["code"];
            if (code > 5000) return -code;
            errno = static_cast<int>(code);
            return -1;
        }
        if (!has_direct_way(all)) all.counts["through_host"]++;
        all.counts[is_read ? "reads" : "writes"]++;
        const auto most = static_cast<std::size_t>(all.settings["most"]);
        if (most > 0 && bytes > most) bytes = most;
        if (is_read && bytes > 0 && all.settings["flip"] > 0) {
            all.settings["flip"]--;
            is_flipped = true;
        }
    }
    auto* memory = static_cast<char*>(base) + at;
    const int fd = static_cast<File*>(handle)->fd;
    const auto moved = is_read ? pread(fd, memory, bytes, offset) : pwrite(fd, memory, bytes, offset);
    if (is_flipped && moved > 0) memory[moved / 2] ^= 4;
    return moved;
}

}  // namespace

EXPORT Status cuFileSetParameterBool(int parameter, bool value) {
    auto& all = state();
    Locked hold(all.lock);
    if (all.settings["parameters"] == 0) return {bad_value, 0};
    if (all.is_open) return {already_open, 0};
    if (parameter == 1) all.allows_compatibility = value;
    return {ok, 0};
}

EXPORT Status cuFileGetParameterBool(int parameter, bool* value) {
    auto& all = state();
    Locked hold(all.lock);
    if (all.settings["parameters"] == 0) return {bad_value, 0};
    *value = parameter == 1 && all.allows_compatibility;
    return {ok, 0};
}

EXPORT Status cuFileDriverOpen() {
    auto& all = state();
    Locked hold(all.lock);
    if (all.is_open) return {already_open, 0};
    if (!has_direct_way(all) && !all.allows_compatibility) return {not_open, 0};
    all.is_open = true;
    return {ok, 0};
}

EXPORT Status cuFileDriverClose_v2() {
    auto& all = state();
    Locked hold(all.lock);
    all.is_open = false;
    all.allows_compatibility = true;
    return {ok, 0};
}

EXPORT Status cuFileDriverGetProperties(Properties* properties) {
    auto& all = state();
    Locked hold(all.lock);
    if (!all.is_open) return {not_open, 0};
    std::memset(properties, 0, sizeof *properties);
    if (all.settings["nvfs"] != 0) properties->major = 2, properties->minor = 25;
    if (all.settings["p2p"] != 0) properties->status_flags = 1u << 11;
    if (all.allows_compatibility) properties->control_flags = 1u << 1;
    return {ok, 0};
}

EXPORT Status cuFileHandleRegister(void** handle, Descriptor* descriptor) {
    auto& all = state();
    Locked hold(all.lock);
    if (!all.is_open) return {not_open, 0};
    if (all.settings["file"] != 0) return {unsupported_file, 0};
    if ((fcntl(descriptor->fd, F_GETFL) & O_DIRECT) == 0 && !all.allows_compatibility) return {not_direct, 0};
    *handle = new File{descriptor->fd};
    all.counts["files"]++;
    return {ok, 0};
}

EXPORT void cuFileHandleDeregister(void* handle) {
    auto& all = state();
    Locked hold(all.lock);
    all.counts["files"]--;
    delete static_cast<File*>(handle);
}

EXPORT Status cuFileBufRegister(const void* base, std::size_t bytes, int) {
    auto& all = state();
    Locked hold(all.lock);
    if (!all.is_open) return {not_open, 0};
    all.memory[reinterpret_cast<std::uintptr_t>(base)] = bytes;
    all.counts["memory"] = static_cast<long>(all.memory.size());
    return {ok, 0};
}

EXPORT Status cuFileBufDeregister(const void* base) {
    auto& all = state();
    Locked hold(all.lock);
    const bool was_there = all.memory.erase(reinterpret_cast<std::uintptr_t>(base)) != 0;
    all.counts["memory"] = static_cast<long>(all.memory.size());
    return {was_there ? ok : not_registered, 0};
}

EXPORT ssize_t cuFileRead(void* handle, void* base, std::size_t bytes, off_t offset, off_t at) {
    return transfer(handle, base, bytes, offset, at, true);
}

EXPORT ssize_t cuFileWrite(void* handle, const void* base, std::size_t bytes, off_t offset, off_t at) {
    return transfer(handle, const_cast<void*>(base), bytes, offset, at, false);
}

// Sets what the machine has or what comes next: nvfs, p2p, parameters (whether there are any), file (1: refused), most (bytes a call),
// fail_reads and fail_writes (calls that fail) with code (errno, or cuFile's above 5000), flip (reads with a wrong bit), late_ms
// (how long calls take, those that have begun too).
EXPORT void hwemu_cufile(const char* name, long value) {
    auto& all = state();
    Locked hold(all.lock);
    all.settings[name] = value;
}

// What was done, or is registered now: reads, writes, through_host, files, memory.
EXPORT long hwemu_cufile_count(const char* name) {
    auto& all = state();
    Locked hold(all.lock);
    return all.counts[name];
}
