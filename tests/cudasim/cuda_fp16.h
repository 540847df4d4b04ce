/* Replaces <cuda_fp16.h>: IEEE binary16, rounded to nearest even. */
#ifndef CUDASIM_CUDA_FP16_H
#define CUDASIM_CUDA_FP16_H

#include "cuda_runtime.h"

struct __half_raw {
    unsigned short x;
};
struct __half;
inline __half __float2half_rn(float value);
inline float __half2float(__half value);

struct __attribute__((aligned(2))) __half {
  protected:
    unsigned short __x; /* protected, as in the real class */

  public:
    __half() = default;
    __half(const __half_raw &raw) : __x(raw.x) {}
    __half(float value) { *this = __float2half_rn(value); }
    __half(double value) { *this = __float2half_rn(static_cast<float>(value)); }
    operator float() const { return __half2float(*this); }
    operator __half_raw() const { return {__x}; }
};
typedef __half half;

struct __attribute__((aligned(4))) __half2 {
    __half x, y;
};
typedef __half2 half2;

inline unsigned short __half_as_ushort(__half value) { return static_cast<__half_raw>(value).x; }
inline __half __ushort_as_half(unsigned short bits) { return __half(__half_raw{bits}); }

inline __half __float2half_rn(float value)
{
    uint32_t bits = ::cudasim::bit_cast<uint32_t>(value);
    uint32_t sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff, half;
    if (rest > 0x7f800000) {
        return __ushort_as_half(0x7fff); /* the NaN that CUDA gives */
    } else if (rest >= 0x477ff000) {
        half = 0x7c00; /* 65520 and above round to infinity */
    } else if (rest < 0x38800000) {
        /* Subnormal: adding 0.5 rounds to a multiple of 2^-24, the last bit of a float near 0.5 and of a subnormal
           half. */
        half = ::cudasim::bit_cast<uint32_t>(::cudasim::bit_cast<float>(rest) + 0.5f) - 0x3f000000;
    } else {
        half = (rest + 0xfff + (rest >> 13 & 1) - 0x38000000) >> 13;
    }
    return __ushort_as_half(static_cast<unsigned short>(sign | half));
}

inline float __half2float(__half value)
{
    uint32_t bits = __half_as_ushort(value), sign = bits >> 15 << 31, exponent = bits >> 10 & 31,
             fraction = bits & 1023;
    if (exponent == 31) return ::cudasim::bit_cast<float>(sign | 0x7f800000 | fraction << 13);
    if (exponent) return ::cudasim::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
    float small = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -small : small;
}

inline __half __float2half(float value) { return __float2half_rn(value); }
inline __half __double2half(double value)
{
    /* Rounds to odd first: an inexact float gets an odd last bit, so that the second rounding does not see a false
       tie. */
    float f = static_cast<float>(value);
    uint32_t bits = ::cudasim::bit_cast<uint32_t>(f);
    if (static_cast<double>(f) != value && value == value && !(bits & 1))
        f = ::cudasim::bit_cast<float>(fabs(static_cast<double>(f)) > fabs(value) ? bits - 1 : bits + 1);
    return __float2half_rn(f);
}
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half2 __floats2half2_rn(float x, float y) { return {__float2half_rn(x), __float2half_rn(y)}; }
inline __half2 __float22half2_rn(float2 v) { return __floats2half2_rn(v.x, v.y); }
inline float2 __half22float2(__half2 v) { return {__half2float(v.x), __half2float(v.y)}; }
inline float __low2float(__half2 v) { return __half2float(v.x); }
inline float __high2float(__half2 v) { return __half2float(v.y); }

#endif
