// The device side: what kernel text is compiled with, force-included before its first line.
// It maps CUDA's keywords, built-in variables and intrinsics onto plain C++ and the engine's `Machine`.
// The NVRTC stand-in wraps the kernel text in an unnamed namespace, so everything in it has internal
// linkage: a __shared__ variable inside an inline function or a template is then no COMDAT and can live in
// the one section that the engine fills with garbage before every block.
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "runtime.hpp"

#define HEADWATER_EMULATED 1

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __shared__ static __attribute__((section("hwemu_shared")))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

static hwemu::Machine* hwemu_machine;

#define threadIdx (hwemu_machine->current->index)
#define blockIdx (hwemu_machine->block_index)
#define blockDim (hwemu_machine->block_dim)
#define gridDim (hwemu_machine->grid_dim)
#define warpSize 32

#include "device/vector.hpp"
#include "device/bits.hpp"
#include "device/math.hpp"
#include "device/atomic.hpp"
#include "device/warp.hpp"

// Records one load for request counting; the prelude calls it beside the load itself.
static inline void hw_count_load(const void* address, unsigned bytes) { hwemu_machine->count_load(address, bytes); }

// NVRTC has no <assert.h>: assert is a built-in there, and fails the launch with 710.
#undef assert
#define assert(x) ((x) ? (void)0 : hwemu_machine->fail(710, "assertion failed: " #x, __FILE__, __LINE__))

[[noreturn]] static inline void __trap(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
    hwemu_machine->fail(719, "trap", file, line);
}

static inline void __nanosleep(unsigned) { hwemu_machine->give_way(); }

static inline long long clock64() { return (long long)__builtin_ia32_rdtsc(); }
static inline unsigned long long globaltimer() { return __builtin_ia32_rdtsc(); }

// Cache hints are plain accesses.
#define HWEMU_LOAD(name) \
    template <class T>   \
    static inline T name(const T* address) { return *address; }
#define HWEMU_STORE(name) \
    template <class T>    \
    static inline void name(T* address, T value) { *address = value; }
HWEMU_LOAD(__ldg)
HWEMU_LOAD(__ldca)
HWEMU_LOAD(__ldcg)
HWEMU_LOAD(__ldcs)
HWEMU_LOAD(__ldlu)
HWEMU_LOAD(__ldcv)
HWEMU_STORE(__stwb)
HWEMU_STORE(__stcg)
HWEMU_STORE(__stcs)
HWEMU_STORE(__stwt)

namespace hwemu {

// How the shims call a kernel: parameter types come from the function's own type.
template <class T>
struct Plain {
    using type = T;
};
template <class T>
struct Plain<T&> {
    using type = T;
};

template <auto Function>
struct Shim;

template <class... P, void (*Function)(P...)>
struct Shim<Function> {
    static constexpr unsigned count = sizeof...(P);
    static constexpr unsigned bytes[sizeof...(P) + 1] = {sizeof(P)..., 0};

    template <unsigned... I>
    struct Order {};
    template <unsigned N, unsigned... I>
    struct Upto : Upto<N - 1, N - 1, I...> {};
    template <unsigned... I>
    struct Upto<0, I...> {
        using type = Order<I...>;
    };

    template <unsigned... I>
    static void call(void** arguments, Order<I...>) {
        Function(*static_cast<typename Plain<P>::type*>(arguments[I])...);
    }
    static void run(void** arguments) { call(arguments, typename Upto<sizeof...(P)>::type{}); }
};

constexpr unsigned first_bound(unsigned threads = 1024, unsigned = 0, unsigned = 0) { return threads; }

}  // namespace hwemu
