// Atomics and fences. They are real host atomics, because other host threads may share the memory.
// Every atomic also counts towards giving way, so that a spin lock between threads of one block makes progress.
#pragma once

namespace hwemu {

static inline void count_spin() {
    Thread* self = hwemu_machine->current;
    if (++self->spins >= 4096) hwemu_machine->give_way();
}

template <class T, class Step>
static inline T update(T* address, Step step) {
    count_spin();
    T old, wanted;
    __atomic_load(address, &old, __ATOMIC_SEQ_CST);
    do wanted = step(old);
    while (!__atomic_compare_exchange(address, &old, &wanted, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return old;
}

template <class T>
static inline T exchange(T* address, T value) {
    count_spin();
    T old;
    __atomic_exchange(address, &value, &old, __ATOMIC_SEQ_CST);
    return old;
}

template <class T>
static inline T compare_and_swap(T* address, T expected, T value) {
    count_spin();
    __atomic_compare_exchange(address, &expected, &value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}

// Device integer addition wraps; signed overflow in C++ does not.
template <class T>
static inline T wrapping_add(T a, T b) { return a + b; }
static inline int wrapping_add(int a, int b) { return (int)((unsigned)a + (unsigned)b); }
template <class T>
static inline T wrapping_sub(T a, T b) { return a - b; }
static inline int wrapping_sub(int a, int b) { return (int)((unsigned)a - (unsigned)b); }

}  // namespace hwemu

// One operation in its device, block and system scope.
#define HWEMU_ATOMIC(name, type, step)                                                                         \
    static inline type name(type* address, type b) { return hwemu::update(address, [b](type a) { return step; }); } \
    static inline type name##_block(type* address, type b) { return name(address, b); }                        \
    static inline type name##_system(type* address, type b) { return name(address, b); }
#define HWEMU_ATOMIC_BITS(type)                \
    HWEMU_ATOMIC(atomicAnd, type, (type)(a & b)) \
    HWEMU_ATOMIC(atomicOr, type, (type)(a | b))  \
    HWEMU_ATOMIC(atomicXor, type, (type)(a ^ b))
#define HWEMU_ATOMIC_ORDER(type)                 \
    HWEMU_ATOMIC(atomicMin, type, a < b ? a : b) \
    HWEMU_ATOMIC(atomicMax, type, a < b ? b : a)
#define HWEMU_ATOMIC_EXCHANGE(type)                                                              \
    static inline type atomicExch(type* address, type b) { return hwemu::exchange(address, b); } \
    static inline type atomicExch_block(type* address, type b) { return hwemu::exchange(address, b); } \
    static inline type atomicExch_system(type* address, type b) { return hwemu::exchange(address, b); }
#define HWEMU_ATOMIC_CAS(type)                                                                                     \
    static inline type atomicCAS(type* address, type c, type b) { return hwemu::compare_and_swap(address, c, b); } \
    static inline type atomicCAS_block(type* address, type c, type b) { return hwemu::compare_and_swap(address, c, b); } \
    static inline type atomicCAS_system(type* address, type c, type b) { return hwemu::compare_and_swap(address, c, b); }

HWEMU_ATOMIC(atomicAdd, int, hwemu::wrapping_add(a, b))
HWEMU_ATOMIC(atomicAdd, unsigned, a + b)
HWEMU_ATOMIC(atomicAdd, unsigned long long, a + b)
HWEMU_ATOMIC(atomicAdd, float, a + b)
HWEMU_ATOMIC(atomicAdd, double, a + b)
HWEMU_ATOMIC(atomicSub, int, hwemu::wrapping_sub(a, b))
HWEMU_ATOMIC(atomicSub, unsigned, a - b)
HWEMU_ATOMIC(atomicInc, unsigned, a >= b ? 0u : a + 1)
HWEMU_ATOMIC(atomicDec, unsigned, a == 0 || a > b ? b : a - 1)
HWEMU_ATOMIC_ORDER(int)
HWEMU_ATOMIC_ORDER(unsigned)
HWEMU_ATOMIC_ORDER(long long)
HWEMU_ATOMIC_ORDER(unsigned long long)
HWEMU_ATOMIC_BITS(int)
HWEMU_ATOMIC_BITS(unsigned)
HWEMU_ATOMIC_BITS(unsigned long long)
HWEMU_ATOMIC_EXCHANGE(int)
HWEMU_ATOMIC_EXCHANGE(unsigned)
HWEMU_ATOMIC_EXCHANGE(unsigned long long)
HWEMU_ATOMIC_EXCHANGE(float)
HWEMU_ATOMIC_CAS(unsigned short)
HWEMU_ATOMIC_CAS(int)
HWEMU_ATOMIC_CAS(unsigned)
HWEMU_ATOMIC_CAS(unsigned long long)
#undef HWEMU_ATOMIC
#undef HWEMU_ATOMIC_BITS
#undef HWEMU_ATOMIC_ORDER
#undef HWEMU_ATOMIC_EXCHANGE
#undef HWEMU_ATOMIC_CAS

// compute capability 9.0 adds short float vectors element by element.
static inline float2 atomicAdd(float2* address, float2 b) {
    return {atomicAdd(&address->x, b.x), atomicAdd(&address->y, b.y)};
}
static inline float4 atomicAdd(float4* address, float4 b) {
    return {atomicAdd(&address->x, b.x), atomicAdd(&address->y, b.y), atomicAdd(&address->z, b.z),
            atomicAdd(&address->w, b.w)};
}

static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
