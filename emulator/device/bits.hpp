// Integer intrinsics and bit casts.
#pragma once

namespace hwemu {
template <class To, class From>
static inline To cast_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}
}  // namespace hwemu

static inline unsigned __float_as_uint(float x) { return hwemu::cast_bits<unsigned>(x); }
static inline int __float_as_int(float x) { return hwemu::cast_bits<int>(x); }
static inline float __uint_as_float(unsigned x) { return hwemu::cast_bits<float>(x); }
static inline float __int_as_float(int x) { return hwemu::cast_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return hwemu::cast_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return hwemu::cast_bits<double>(x); }
static inline int __double2hiint(double x) { return (int)(hwemu::cast_bits<unsigned long long>(x) >> 32); }
static inline int __double2loint(double x) { return (int)hwemu::cast_bits<unsigned long long>(x); }
static inline double __hiloint2double(int hi, int lo) {
    return hwemu::cast_bits<double>((unsigned long long)(unsigned)hi << 32 | (unsigned)lo);
}

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }

static inline unsigned __brev(unsigned x) {
    unsigned out = 0;
    for (int i = 0; i < 32; ++i) out |= (x >> i & 1u) << (31 - i);
    return out;
}
static inline unsigned long long __brevll(unsigned long long x) {
    return (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32));
}

static inline int __mulhi(int a, int b) { return (int)(((long long)a * b) >> 32); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a * b) >> 32); }
static inline long long __mul64hi(long long a, long long b) { return (long long)(((__int128)a * b) >> 64); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
static inline unsigned __usad(unsigned a, unsigned b, unsigned c) { return (a > b ? a - b : b - a) + c; }

static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned n) {
    return (unsigned)((((unsigned long long)hi << 32 | lo) << (n & 31)) >> 32);
}
static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned n) {
    return (unsigned)(((unsigned long long)hi << 32 | lo) >> (n & 31));
}
static inline unsigned __funnelshift_lc(unsigned lo, unsigned hi, unsigned n) {
    return n >= 32 ? lo : __funnelshift_l(lo, hi, n);
}
static inline unsigned __funnelshift_rc(unsigned lo, unsigned hi, unsigned n) {
    return n >= 32 ? hi : __funnelshift_r(lo, hi, n);
}

static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    const unsigned long long bytes = (unsigned long long)b << 32 | a;
    unsigned out = 0;
    for (int i = 0; i < 4; ++i) {
        const unsigned s = selector >> (4 * i) & 15;
        unsigned byte = (unsigned)(bytes >> (8 * (s & 7))) & 255;
        if (s & 8) byte = byte & 128 ? 255 : 0;
        out |= byte << (8 * i);
    }
    return out;
}
