// A driver whose copies are late: stands before another one, NVIDIA's or the emulator's, and lets every copy of a stream wait in that
// stream for SLOW_COPIES_US microseconds first. Whatever relies on a copy being over by now, and has not waited for it, is wrong then.
//
// It has the one function that it changes. All others are found in the driver behind it, because this library is linked with that and is
// searched first. Programs that are not told of it (HEADWATER_LIBCUDA), such as torch, are as fast as ever.
#include <dlfcn.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

// What the library that this is linked with goes under.
constexpr const char* driver_name = "libcuda.so.1";

template <class F>
F found(const char* name) {
    static void* driver = dlopen(driver_name, RTLD_NOW | RTLD_NOLOAD);
    void* function = driver ? dlsym(driver, name) : nullptr;
    if (!function) {
        std::fprintf(stderr, "slow: %s has no %s\n", driver_name, name);
        std::abort();
    }
    return reinterpret_cast<F>(function);
}

unsigned microseconds() {
    static const unsigned asked = [] {
        const char* text = std::getenv("SLOW_COPIES_US");
        return text ? static_cast<unsigned>(std::strtoul(text, nullptr, 10)) : 200u;
    }();
    return asked;
}

void wait(void*) { usleep(microseconds()); }

}  // namespace

extern "C" __attribute__((visibility("default"))) int cuMemcpyAsync(std::uint64_t to, std::uint64_t from, std::size_t bytes, void* stream) {
    static const auto call = found<int (*)(void*, void (*)(void*), void*)>("cuLaunchHostFunc");
    static const auto copy = found<int (*)(std::uint64_t, std::uint64_t, std::size_t, void*)>("cuMemcpyAsync");
    if (const int error = call(stream, wait, nullptr)) return error;
    return copy(to, from, bytes, stream);
}
