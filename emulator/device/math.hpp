// Floating point. <math.h> gives the ordinary functions; here are CUDA's own. The fast variants (__expf)
// compute the accurate value, which lies within their error bound. Objects are compiled without
// contraction: a kernel that must match to the bit on a GPU says fmaf or __fmul_rn.
#pragma once

// The C library has some of these names for itself, so they are macros.
#define __expf(x) (::expf(x))
#define __exp10f(x) (::powf(10.0f, (x)))
#define exp10f(x) (::powf(10.0f, (x)))
#define __logf(x) (::logf(x))
#define __log2f(x) (::log2f(x))
#define __log10f(x) (::log10f(x))
#define __sinf(x) (::sinf(x))
#define __cosf(x) (::cosf(x))
#define __tanf(x) (::tanf(x))
#define __powf(x, y) (::powf((x), (y)))

static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
static inline float __frsqrt_rn(float x) { return (float)(1.0 / sqrt((double)x)); }
static inline float fdividef(float x, float y) { return x / y; }
static inline float __fdividef(float x, float y) { return x / y; }
static inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __frcp_rn(float a) { return 1.0f / a; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dsub_rn(double a, double b) { return a - b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline double __dsqrt_rn(double a) { return sqrt(a); }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }

namespace hwemu {
// CUDA conversions clamp to the range and send NaN to zero (64-bit: to the lowest value); C++ leaves both undefined.
template <class To>
static inline To clamp_to(double x) {
    const bool is_signed = (To)-1 < (To)0;
    const unsigned bits = sizeof(To) * 8;
    const double above = ldexp(1.0, (int)(is_signed ? bits - 1 : bits));
    const To most = is_signed ? (To)(((To)1 << (bits - 2)) - 1 + ((To)1 << (bits - 2))) : (To)-1;
    const To least = is_signed ? (To)(-most - 1) : (To)0;
    if (x != x) return sizeof(To) == 8 ? (is_signed ? least : (To)1 << (bits - 1)) : (To)0;
    if (x >= above) return most;
    if (x <= (is_signed ? -above : 0.0)) return least;
    return (To)x;
}
}  // namespace hwemu

#define HWEMU_TO_INTEGER(from, type, to, name)                                                        \
    static inline to __##from##2##name##_rn(type x) { return hwemu::clamp_to<to>(rint((double)x)); }  \
    static inline to __##from##2##name##_rz(type x) { return hwemu::clamp_to<to>(trunc((double)x)); } \
    static inline to __##from##2##name##_rd(type x) { return hwemu::clamp_to<to>(floor((double)x)); } \
    static inline to __##from##2##name##_ru(type x) { return hwemu::clamp_to<to>(ceil((double)x)); }
HWEMU_TO_INTEGER(float, float, int, int)
HWEMU_TO_INTEGER(float, float, unsigned, uint)
HWEMU_TO_INTEGER(float, float, long long, ll)
HWEMU_TO_INTEGER(float, float, unsigned long long, ull)
HWEMU_TO_INTEGER(double, double, int, int)
HWEMU_TO_INTEGER(double, double, unsigned, uint)
HWEMU_TO_INTEGER(double, double, long long, ll)
HWEMU_TO_INTEGER(double, double, unsigned long long, ull)
#undef HWEMU_TO_INTEGER

static inline float __int2float_rn(int x) { return (float)x; }
static inline float __uint2float_rn(unsigned x) { return (float)x; }
static inline float __ll2float_rn(long long x) { return (float)x; }
static inline float __ull2float_rn(unsigned long long x) { return (float)x; }
static inline float __double2float_rn(double x) { return (float)x; }
static inline double __int2double_rn(int x) { return x; }
static inline double __ull2double_rn(unsigned long long x) { return (double)x; }

// The overloads of min and max, with CUDA's rule for mixed signedness: unsigned wins.
#define HWEMU_MINMAX(type, a_type, b_type)                                               \
    static inline type min(a_type a, b_type b) { return (type)b < (type)a ? (type)b : (type)a; } \
    static inline type max(a_type a, b_type b) { return (type)a < (type)b ? (type)b : (type)a; }
HWEMU_MINMAX(int, int, int)
HWEMU_MINMAX(unsigned, unsigned, unsigned)
HWEMU_MINMAX(unsigned, int, unsigned)
HWEMU_MINMAX(unsigned, unsigned, int)
HWEMU_MINMAX(long, long, long)
HWEMU_MINMAX(unsigned long, unsigned long, unsigned long)
HWEMU_MINMAX(unsigned long, long, unsigned long)
HWEMU_MINMAX(unsigned long, unsigned long, long)
HWEMU_MINMAX(long long, long long, long long)
HWEMU_MINMAX(unsigned long long, unsigned long long, unsigned long long)
HWEMU_MINMAX(unsigned long long, long long, unsigned long long)
HWEMU_MINMAX(unsigned long long, unsigned long long, long long)
#undef HWEMU_MINMAX
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }
static inline double min(float a, double b) { return fmin(a, b); }
static inline double max(float a, double b) { return fmax(a, b); }
static inline double min(double a, float b) { return fmin(a, b); }
static inline double max(double a, float b) { return fmax(a, b); }
static inline unsigned umin(unsigned a, unsigned b) { return min(a, b); }
static inline unsigned umax(unsigned a, unsigned b) { return max(a, b); }
static inline unsigned long long ullmin(unsigned long long a, unsigned long long b) { return min(a, b); }
static inline unsigned long long ullmax(unsigned long long a, unsigned long long b) { return max(a, b); }
