// CUDA's short vector types with their alignment: whole ones are loaded and stored at once, which a GPU does at multiples of their size.
#pragma once

#define HWEMU_VECTOR(type, name, align1, align2, align3, align4)                                           \
    struct alignas(align1) name##1 { type x; };                                                            \
    struct alignas(align2) name##2 { type x, y; };                                                         \
    struct alignas(align3) name##3 { type x, y, z; };                                                      \
    struct alignas(align4) name##4 { type x, y, z, w; };                                                   \
    static inline name##1 make_##name##1(type x) { return {x}; }                                           \
    static inline name##2 make_##name##2(type x, type y) { return {x, y}; }                                \
    static inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }                     \
    static inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

HWEMU_VECTOR(signed char, char, 1, 2, 1, 4)
HWEMU_VECTOR(unsigned char, uchar, 1, 2, 1, 4)
HWEMU_VECTOR(short, short, 2, 4, 2, 8)
HWEMU_VECTOR(unsigned short, ushort, 2, 4, 2, 8)
HWEMU_VECTOR(int, int, 4, 8, 4, 16)
HWEMU_VECTOR(unsigned, uint, 4, 8, 4, 16)
HWEMU_VECTOR(long, long, 8, 16, 8, 16)
HWEMU_VECTOR(unsigned long, ulong, 8, 16, 8, 16)
HWEMU_VECTOR(long long, longlong, 8, 16, 8, 16)
HWEMU_VECTOR(unsigned long long, ulonglong, 8, 16, 8, 16)
HWEMU_VECTOR(float, float, 4, 8, 4, 16)
HWEMU_VECTOR(double, double, 8, 16, 8, 16)
#undef HWEMU_VECTOR

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(hwemu::Index i) : x(i.x), y(i.y), z(i.z) {}
};
