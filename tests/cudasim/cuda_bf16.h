/* Replaces <cuda_bf16.h>: bfloat16, the upper half of a float, rounded to nearest even. */
#ifndef CUDASIM_CUDA_BF16_H
#define CUDASIM_CUDA_BF16_H

#include "cuda_runtime.h"

struct __nv_bfloat16_raw {
    unsigned short x;
};
struct __nv_bfloat16;
inline __nv_bfloat16 __float2bfloat16_rn(float value);
inline float __bfloat162float(__nv_bfloat16 value);

struct __attribute__((aligned(2))) __nv_bfloat16 {
  protected:
    unsigned short __x;

  public:
    __nv_bfloat16() = default;
    __nv_bfloat16(const __nv_bfloat16_raw &raw) : __x(raw.x) {}
    __nv_bfloat16(float value) { *this = __float2bfloat16_rn(value); }
    __nv_bfloat16(double value) { *this = __float2bfloat16_rn(static_cast<float>(value)); }
    operator float() const { return __bfloat162float(*this); }
    operator __nv_bfloat16_raw() const { return {__x}; }
};
typedef __nv_bfloat16 nv_bfloat16;

struct __attribute__((aligned(4))) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};
typedef __nv_bfloat162 nv_bfloat162;

inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) { return static_cast<__nv_bfloat16_raw>(value).x; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return __nv_bfloat16(__nv_bfloat16_raw{bits}); }

inline __nv_bfloat16 __float2bfloat16_rn(float value)
{
    uint32_t bits = ::cudasim::bit_cast<uint32_t>(value);
    if (value != value) return __ushort_as_bfloat16(0x7fff);
    return __ushort_as_bfloat16(static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16));
}
inline float __bfloat162float(__nv_bfloat16 value)
{
    return ::cudasim::bit_cast<float>(static_cast<uint32_t>(__bfloat16_as_ushort(value)) << 16);
}
inline __nv_bfloat16 __float2bfloat16(float value) { return __float2bfloat16_rn(value); }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 v) { return __floats2bfloat162_rn(v.x, v.y); }
inline float2 __bfloat1622float2(__nv_bfloat162 v) { return {__bfloat162float(v.x), __bfloat162float(v.y)}; }
inline float __low2float(__nv_bfloat162 v) { return __bfloat162float(v.x); }
inline float __high2float(__nv_bfloat162 v) { return __bfloat162float(v.y); }

#endif
