// Barriers and warp intrinsics. The engine knows one warp primitive, a rendezvous in which every lane sees
// what the others brought; each intrinsic is computed from that, lane by lane. The default arguments take
// the caller's source line, so that a report of divergence can name both places.
#pragma once

#define HWEMU_HERE const char *file = __builtin_FILE(), unsigned line = __builtin_LINE()

static inline void __syncthreads(HWEMU_HERE) { hwemu_machine->sync_block(0, file, line); }
static inline int __syncthreads_count(int predicate, HWEMU_HERE) {
    return (int)hwemu_machine->sync_block(predicate, file, line);
}
static inline int __syncthreads_or(int predicate, HWEMU_HERE) {
    return hwemu_machine->sync_block(predicate, file, line) != 0;
}
static inline int __syncthreads_and(int predicate, HWEMU_HERE) {
    return hwemu_machine->sync_block(!predicate, file, line) == 0;
}

static inline void __syncwarp(unsigned mask = 0xffffffffu, HWEMU_HERE) {
    hwemu_machine->sync_warp(hwemu::WarpOp::sync, mask, 0, file, line);
}

// The tensor cores' mma.m16n8k8 of TF32 and mma.m16n8k16 of bf16, by all lanes of a warp.
static inline void hwemu_mma(float* sums, const unsigned* left, const unsigned* right, bool is_bf16, HWEMU_HERE) {
    const hwemu::Fragments own = {sums, left, right, is_bf16};
    hwemu_machine->multiply(&own, file, line);
}

// No lane is ever known to run together with another, so each is alone: what CUDA permits at the least.
static inline unsigned __activemask() { return 1u << hwemu_machine->current->lane; }

namespace hwemu {

template <class T>
static inline unsigned long long pack(T value) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a warp exchanges 32 or 64 bits");
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    return bits;
}

// What lane `source` brought; a lane outside the mask gives garbage, as on a GPU.
template <class T>
static inline T unpack(const Lanes* lanes, unsigned mask, unsigned source) {
    const unsigned long long bits = mask >> source & 1 ? lanes->value[source] : 0xcbcbcbcbcbcbcbcbull;
    T value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

static inline unsigned votes(WarpOp op, unsigned mask, int predicate, const char* file, unsigned line) {
    const Lanes* lanes = hwemu_machine->sync_warp(op, mask, predicate != 0, file, line);
    unsigned out = 0;
    for (unsigned i = 0; i < 32; ++i)
        if (mask >> i & 1) out |= (unsigned)lanes->value[i] << i;
    return out;
}

template <class T, class Fold>
static inline T reduce(unsigned mask, T value, Fold fold, const char* file, unsigned line) {
    const Lanes* lanes = hwemu_machine->sync_warp(WarpOp::reduce, mask, pack(value), file, line);
    bool first = true;
    T out = value;
    for (unsigned i = 0; i < 32; ++i) {
        if (!(mask >> i & 1)) continue;
        const T other = unpack<T>(lanes, mask, i);
        out = first ? other : fold(out, other);
        first = false;
    }
    return out;
}

}  // namespace hwemu

static inline unsigned __ballot_sync(unsigned mask, int predicate, HWEMU_HERE) {
    return hwemu::votes(hwemu::WarpOp::ballot, mask, predicate, file, line);
}
static inline int __any_sync(unsigned mask, int predicate, HWEMU_HERE) {
    return hwemu::votes(hwemu::WarpOp::any, mask, predicate, file, line) != 0;
}
static inline int __all_sync(unsigned mask, int predicate, HWEMU_HERE) {
    return hwemu::votes(hwemu::WarpOp::all, mask, predicate, file, line) == mask;
}

#define HWEMU_SHUFFLE_BEGIN                                                                                         \
    const hwemu::Lanes* lanes = hwemu_machine->sync_warp(hwemu::WarpOp::shuffle, mask, hwemu::pack(value), file, line); \
    const unsigned lane = hwemu_machine->current->lane, inside = (unsigned)width - 1, segment = lane & ~inside;

template <class T>
static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, HWEMU_HERE) {
    HWEMU_SHUFFLE_BEGIN
    return hwemu::unpack<T>(lanes, mask, segment | ((unsigned)source & inside));
}
template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, HWEMU_HERE) {
    HWEMU_SHUFFLE_BEGIN
    return (lane & inside) < delta ? value : hwemu::unpack<T>(lanes, mask, lane - delta);
}
template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, HWEMU_HERE) {
    HWEMU_SHUFFLE_BEGIN
    return (lane & inside) + delta > inside ? value : hwemu::unpack<T>(lanes, mask, lane + delta);
}
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, HWEMU_HERE) {
    HWEMU_SHUFFLE_BEGIN
    const unsigned source = lane ^ (unsigned)bits;
    return source > (segment | inside) ? value : hwemu::unpack<T>(lanes, mask, source);
}
#undef HWEMU_SHUFFLE_BEGIN

template <class T>
static inline unsigned __match_any_sync(unsigned mask, T value, HWEMU_HERE) {
    const hwemu::Lanes* lanes = hwemu_machine->sync_warp(hwemu::WarpOp::match, mask, hwemu::pack(value), file, line);
    unsigned out = 0;
    for (unsigned i = 0; i < 32; ++i)
        if (mask >> i & 1) out |= (unsigned)(lanes->value[i] == hwemu::pack(value)) << i;
    return out;
}
template <class T>
static inline unsigned __match_all_sync(unsigned mask, T value, int* all, HWEMU_HERE) {
    *all = __match_any_sync(mask, value, file, line) == mask;
    return *all ? mask : 0;
}

#define HWEMU_REDUCE(name, type, step)                                                             \
    static inline type name(unsigned mask, type value, HWEMU_HERE) {                               \
        return hwemu::reduce(mask, value, [](type a, type b) { return (type)(step); }, file, line); \
    }
HWEMU_REDUCE(__reduce_add_sync, unsigned, a + b)
HWEMU_REDUCE(__reduce_add_sync, int, (unsigned)a + (unsigned)b)
HWEMU_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
HWEMU_REDUCE(__reduce_min_sync, int, a < b ? a : b)
HWEMU_REDUCE(__reduce_max_sync, unsigned, a < b ? b : a)
HWEMU_REDUCE(__reduce_max_sync, int, a < b ? b : a)
HWEMU_REDUCE(__reduce_and_sync, unsigned, a & b)
HWEMU_REDUCE(__reduce_or_sync, unsigned, a | b)
HWEMU_REDUCE(__reduce_xor_sync, unsigned, a ^ b)
#undef HWEMU_REDUCE

