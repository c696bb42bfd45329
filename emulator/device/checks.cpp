// What AddressSanitizer's instrumentation of kernels calls at every access, with one more check: that the address is a multiple of the
// access's width, as a GPU demands. UBSan's own check of alignment is half of the code of a kernel, and of the time to compile it.
#include <cstdio>
#include <cstdlib>

extern "C" {

// AddressSanitizer's check of any number of bytes, which reports.
void __asan_loadN(unsigned long address, unsigned long bytes);
void __asan_storeN(unsigned long address, unsigned long bytes);
void __sanitizer_print_stack_trace();

}

namespace {

[[noreturn]] __attribute__((noinline, cold)) void report_misaligned(unsigned long address, unsigned bytes) {
    std::fprintf(stderr, "misaligned address: 0x%lx is no multiple of %u bytes\n", address, bytes);
    __sanitizer_print_stack_trace();
    std::abort();
}

// Each byte at shadow_start + address / 8 says how many of 8 bytes may be used: 0 all of them (on Linux on x86-64).
constexpr unsigned long shadow_start = 0x7fff8000;

template <unsigned bytes>
inline bool is_surely_fine(unsigned long address) {
    if (address % bytes) report_misaligned(address, bytes);
    const unsigned long shadow = shadow_start + address / 8;
    return (bytes == 16 ? *reinterpret_cast<const unsigned short*>(shadow) : *reinterpret_cast<const unsigned char*>(shadow)) == 0;
}

}  // namespace

extern "C" {

#define HWEMU_ACCESS(bytes)                                                \
    void __asan_load##bytes(unsigned long address) {                       \
        if (!is_surely_fine<bytes>(address)) __asan_loadN(address, bytes); \
    }                                                                      \
    void __asan_store##bytes(unsigned long address) {                      \
        if (!is_surely_fine<bytes>(address)) __asan_storeN(address, bytes); \
    }

HWEMU_ACCESS(1)
HWEMU_ACCESS(2)
HWEMU_ACCESS(4)
HWEMU_ACCESS(8)
HWEMU_ACCESS(16)
#undef HWEMU_ACCESS

}
