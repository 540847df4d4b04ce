/* The instructions that the interpreter executes: one row each, with the name in the manual (an underscore for each
   dot), the types of the result and of the operands a, b, c, and the rule.

       UNARY(name, R, A, rule)          R d = rule(a)
       BINARY(name, R, A, B, rule)      R d = rule(a, b)
       TERNARY(name, R, A, B, C, rule)  R d = rule(a, b, c)
       CONVERT(name, R, A, rule)        the same of one operand, whose registers may be wider than its type
       COMPARE(name, A, rule)           predicate d = rule(a, b)
       LOGIC(name, rule)                predicate d = rule(a, b), words of 32 lanes
       CHOOSE(name, T)                  T d = predicate c ? a : b
       CARRY(name, T, inputs, rule)     whole numbers that are longer than a register: `carry` is the bit between them,
                                        rule(a, b, c, carry in) is a wider number whose upper bit is the carry out
       OTHER(name)                      moves, memory, branches, warps and barriers: written out in execute.cpp

   Whole numbers wrap around.  Floating point rounds to nearest even, but where the name says otherwise: rm down, rz
   towards zero.  ftz reads and writes numbers below the normal ones as zero.  An approximation (approx) is rounded from
   the exact value: a GPU may differ in the last bits. */
#ifndef PTX_INSTRUCTIONS_H
#define PTX_INSTRUCTIONS_H

#include <cstdint>

/* One row for each type: signed, unsigned, both, bits, floats. */
#define PTX_S(KIND, name, rule) KIND(name##_s16, s16, rule) KIND(name##_s32, s32, rule) KIND(name##_s64, s64, rule)
#define PTX_U(KIND, name, rule) KIND(name##_u16, u16, rule) KIND(name##_u32, u32, rule) KIND(name##_u64, u64, rule)
#define PTX_B(KIND, name, rule) KIND(name##_b16, u16, rule) KIND(name##_b32, u32, rule) KIND(name##_b64, u64, rule)
#define PTX_F(KIND, name, rule) KIND(name##_f32, f32, rule) KIND(name##_f64, f64, rule)
#define PTX_SU(KIND, name, rule) PTX_S(KIND, name, rule) PTX_U(KIND, name, rule)
#define PTX_SUF(KIND, name, rule) PTX_SU(KIND, name, rule) PTX_F(KIND, name, rule)

#define PTX_TABLE(UNARY, BINARY, TERNARY, CONVERT, COMPARE, LOGIC, CHOOSE, CARRY, OTHER)                              \
    PTX_WHOLE(UNARY, BINARY, TERNARY, CARRY)                                                                          \
    PTX_FLOATS(UNARY, BINARY, TERNARY)                                                                                \
    PTX_CONVERSIONS(CONVERT, BINARY)                                                                                  \
    PTX_CHOICES(COMPARE, LOGIC, CHOOSE)                                                                               \
    PTX_OTHERS(OTHER)

#define PTX_WHOLE(UNARY, BINARY, TERNARY, CARRY)                                                                      \
    /* sums, products */                                                                                              \
    BINARY(add_s16, s16, s16, s16, a + b)                                                                             \
    BINARY(add_u16, u16, u16, u16, a + b)                                                                             \
    BINARY(add_s32, s32, s32, s32, a + b)                                                                             \
    BINARY(add_u32, u32, u32, u32, a + b)                                                                             \
    BINARY(add_s64, s64, s64, s64, a + b)                                                                             \
    BINARY(add_u64, u64, u64, u64, a + b)                                                                             \
    BINARY(sub_s16, s16, s16, s16, a - b)                                                                             \
    BINARY(sub_u16, u16, u16, u16, a - b)                                                                             \
    BINARY(sub_s32, s32, s32, s32, a - b)                                                                             \
    BINARY(sub_u32, u32, u32, u32, a - b)                                                                             \
    BINARY(sub_s64, s64, s64, s64, a - b)                                                                             \
    BINARY(sub_u64, u64, u64, u64, a - b)                                                                             \
    BINARY(mul_lo_s16, s16, s16, s16, a * b)                                                                          \
    BINARY(mul_lo_u16, u16, u16, u16, u32(a) * b)                                                                     \
    BINARY(mul_lo_s32, s32, s32, s32, a * b)                                                                          \
    BINARY(mul_lo_u32, u32, u32, u32, a * b)                                                                          \
    BINARY(mul_lo_s64, s64, s64, s64, a * b)                                                                          \
    BINARY(mul_lo_u64, u64, u64, u64, a * b)                                                                          \
    BINARY(mul_hi_s32, s32, s32, s32, s64(a) * b >> 32)                                                               \
    BINARY(mul_hi_u32, u32, u32, u32, u64(a) * b >> 32)                                                               \
    BINARY(mul_hi_s64, s64, s64, s64, s128(a) * b >> 64)                                                              \
    BINARY(mul_hi_u64, u64, u64, u64, u128(a) * b >> 64)                                                              \
    BINARY(mul_wide_s16, s32, s16, s16, s32(a) * b)                                                                   \
    BINARY(mul_wide_u16, u32, u16, u16, u32(a) * b)                                                                   \
    BINARY(mul_wide_s32, s64, s32, s32, s64(a) * b)                                                                   \
    BINARY(mul_wide_u32, u64, u32, u32, u64(a) * b)                                                                   \
    TERNARY(mad_lo_s16, s16, s16, s16, s16, a * b + c)                                                                \
    TERNARY(mad_lo_u16, u16, u16, u16, u16, u32(a) * b + c)                                                           \
    TERNARY(mad_lo_s32, s32, s32, s32, s32, a * b + c)                                                                \
    TERNARY(mad_lo_u32, u32, u32, u32, u32, a * b + c)                                                                \
    TERNARY(mad_lo_s64, s64, s64, s64, s64, a * b + c)                                                                \
    TERNARY(mad_lo_u64, u64, u64, u64, u64, a * b + c)                                                                \
    TERNARY(mad_wide_s32, s64, s32, s32, s64, s64(a) * b + c)                                                         \
    TERNARY(mad_wide_u32, u64, u32, u32, u64, u64(a) * b + c)                                                         \
    /* a division by zero gives all ones, as GPUs do; the manual leaves it open */                                    \
    BINARY(div_s16, s16, s16, s16, b == 0 ? s16(-1) : s16(s32(a) / b))                                                \
    BINARY(div_u16, u16, u16, u16, b == 0 ? u16(-1) : u16(a / b))                                                     \
    BINARY(div_s32, s32, s32, s32, b == 0 ? -1 : b == -1 ? s32(0u - u32(a)) : a / b)                                  \
    BINARY(div_u32, u32, u32, u32, b == 0 ? u32(-1) : a / b)                                                          \
    BINARY(div_s64, s64, s64, s64, b == 0 ? -1 : b == -1 ? s64(u64(0) - u64(a)) : a / b)                              \
    BINARY(div_u64, u64, u64, u64, b == 0 ? u64(-1) : a / b)                                                          \
    BINARY(rem_s32, s32, s32, s32, b == 0 ? a : b == -1 ? 0 : a % b)                                                  \
    BINARY(rem_u32, u32, u32, u32, b == 0 ? a : a % b)                                                                \
    BINARY(rem_s64, s64, s64, s64, b == 0 ? a : b == -1 ? 0 : a % b)                                                  \
    BINARY(rem_u64, u64, u64, u64, b == 0 ? a : a % b)                                                                \
    BINARY(min_s32, s32, s32, s32, b < a ? b : a)                                                                     \
    BINARY(min_u32, u32, u32, u32, b < a ? b : a)                                                                     \
    BINARY(min_s64, s64, s64, s64, b < a ? b : a)                                                                     \
    BINARY(min_u64, u64, u64, u64, b < a ? b : a)                                                                     \
    BINARY(max_s32, s32, s32, s32, b > a ? b : a)                                                                     \
    BINARY(max_u32, u32, u32, u32, b > a ? b : a)                                                                     \
    BINARY(max_s64, s64, s64, s64, b > a ? b : a)                                                                     \
    BINARY(max_u64, u64, u64, u64, b > a ? b : a)                                                                     \
    UNARY(abs_s32, s32, s32, a < 0 ? s32(0u - u32(a)) : a)                                                            \
    UNARY(abs_s64, s64, s64, a < 0 ? s64(u64(0) - u64(a)) : a)                                                        \
    UNARY(neg_s16, s16, s16, -a)                                                                                      \
    UNARY(neg_s32, s32, s32, s32(0u - u32(a)))                                                                        \
    UNARY(neg_s64, s64, s64, s64(u64(0) - u64(a)))                                                                    \
    /* bits: a shift by the width or more leaves nothing, or only the sign */                                         \
    BINARY(and_b16, u16, u16, u16, a & b)                                                                             \
    BINARY(and_b32, u32, u32, u32, a & b)                                                                             \
    BINARY(and_b64, u64, u64, u64, a & b)                                                                             \
    BINARY(or_b16, u16, u16, u16, a | b)                                                                              \
    BINARY(or_b32, u32, u32, u32, a | b)                                                                              \
    BINARY(or_b64, u64, u64, u64, a | b)                                                                              \
    BINARY(xor_b16, u16, u16, u16, a ^ b)                                                                             \
    BINARY(xor_b32, u32, u32, u32, a ^ b)                                                                             \
    BINARY(xor_b64, u64, u64, u64, a ^ b)                                                                             \
    UNARY(not_b16, u16, u16, ~a)                                                                                      \
    UNARY(not_b32, u32, u32, ~a)                                                                                      \
    UNARY(not_b64, u64, u64, ~a)                                                                                      \
    BINARY(shl_b16, u16, u16, u32, b < 16 ? u32(a) << b : 0)                                                          \
    BINARY(shl_b32, u32, u32, u32, b < 32 ? a << b : 0)                                                               \
    BINARY(shl_b64, u64, u64, u32, b < 64 ? a << b : 0)                                                               \
    BINARY(shr_u16, u16, u16, u32, b < 16 ? a >> b : 0)                                                               \
    BINARY(shr_u32, u32, u32, u32, b < 32 ? a >> b : 0)                                                               \
    BINARY(shr_u64, u64, u64, u32, b < 64 ? a >> b : 0)                                                               \
    BINARY(shr_s16, s16, s16, u32, a >> (b < 15 ? b : 15))                                                            \
    BINARY(shr_s32, s32, s32, u32, a >> (b < 31 ? b : 31))                                                            \
    BINARY(shr_s64, s64, s64, u32, a >> (b < 63 ? b : 63))                                                            \
    TERNARY(shf_l_wrap_b32, u32, u32, u32, u32, u32((u64(b) << 32 | a) << (c & 31) >> 32))                            \
    TERNARY(shf_r_wrap_b32, u32, u32, u32, u32, u32((u64(b) << 32 | a) >> (c & 31)))                                  \
    UNARY(popc_b32, u32, u32, u32(__builtin_popcount(a)))                                                             \
    UNARY(popc_b64, u32, u64, u32(__builtin_popcountll(a)))                                                           \
    UNARY(clz_b32, u32, u32, a ? u32(__builtin_clz(a)) : 32)                                                          \
    UNARY(clz_b64, u32, u64, a ? u32(__builtin_clzll(a)) : 64)                                                        \
    UNARY(brev_b32, u32, u32, reversed(a))                                                                            \
    TERNARY(prmt_b32, u32, u32, u32, u32, permuted(a, b, c))                                                          \
    CARRY(add_cc_u32, u32, 2, u64(a) + b)                                                                             \
    CARRY(addc_cc_u32, u32, 2, u64(a) + b + carry)                                                                    \
    CARRY(addc_u32, u32, 2, u64(a) + b + carry)                                                                       \
    CARRY(sub_cc_u32, u32, 2, u64(a) - b)                                                                             \
    CARRY(subc_cc_u32, u32, 2, u64(a) - b - carry)                                                                    \
    CARRY(subc_u32, u32, 2, u64(a) - b - carry)                                                                       \
    CARRY(mad_lo_cc_u32, u32, 3, u64(u32(a * b)) + c)                                                                 \
    CARRY(madc_lo_cc_u32, u32, 3, u64(u32(a * b)) + c + carry)                                                        \
    CARRY(madc_hi_cc_u32, u32, 3, (u64(a) * b >> 32) + c + carry)                                                     \
    CARRY(madc_hi_u32, u32, 3, (u64(a) * b >> 32) + c + carry)

#define PTX_FLOATS(UNARY, BINARY, TERNARY)                                                                            \
    BINARY(add_f32, f32, f32, f32, a + b)                                                                             \
    BINARY(add_f64, f64, f64, f64, a + b)                                                                             \
    BINARY(add_rn_f32, f32, f32, f32, a + b)                                                                          \
    BINARY(add_rn_f64, f64, f64, f64, a + b)                                                                          \
    BINARY(add_rz_f32, f32, f32, f32, sum_towards(true, a, b))                                                        \
    BINARY(sub_f32, f32, f32, f32, a - b)                                                                             \
    BINARY(sub_f64, f64, f64, f64, a - b)                                                                             \
    BINARY(sub_rn_f32, f32, f32, f32, a - b)                                                                          \
    BINARY(mul_f32, f32, f32, f32, a *b)                                                                              \
    BINARY(mul_f64, f64, f64, f64, a *b)                                                                              \
    BINARY(mul_rn_f32, f32, f32, f32, a *b)                                                                           \
    BINARY(mul_rn_f64, f64, f64, f64, a *b)                                                                           \
    TERNARY(fma_rn_f32, f32, f32, f32, f32, __builtin_fmaf(a, b, c))                                                  \
    TERNARY(fma_rn_f64, f64, f64, f64, f64, __builtin_fma(a, b, c))                                                   \
    TERNARY(fma_rm_f32, f32, f32, f32, f32, sum_towards(false, f64(a) * b, c))                                        \
    TERNARY(fma_rz_f32, f32, f32, f32, f32, sum_towards(true, f64(a) * b, c))                                         \
    BINARY(div_rn_f32, f32, f32, f32, a / b)                                                                          \
    BINARY(div_rn_f64, f64, f64, f64, a / b)                                                                          \
    BINARY(div_approx_f32, f32, f32, f32, a / b)                                                                      \
    BINARY(div_approx_ftz_f32, f32, f32, f32, flush(flush(a) / flush(b)))                                             \
    UNARY(rcp_rn_f32, f32, f32, 1 / a)                                                                                \
    UNARY(rcp_rn_f64, f64, f64, 1 / a)                                                                                \
    UNARY(rcp_approx_ftz_f32, f32, f32, flush(1 / flush(a)))                                                          \
    /* of double precision: from the upper half of the operand to the upper half of the result */                    \
    UNARY(rcp_approx_ftz_f64, f64, f64, upper_half(1 / upper_half(a)))                                                \
    UNARY(rsqrt_approx_f32, f32, f32, f32(1 / __builtin_sqrt(f64(a))))                                                \
    UNARY(rsqrt_approx_ftz_f32, f32, f32, flush(f32(1 / __builtin_sqrt(f64(flush(a))))))                              \
    UNARY(rsqrt_approx_ftz_f64, f64, f64, upper_half(1 / __builtin_sqrt(upper_half(a))))                              \
    UNARY(sqrt_rn_f32, f32, f32, __builtin_sqrtf(a))                                                                  \
    UNARY(sqrt_rn_f64, f64, f64, __builtin_sqrt(a))                                                                   \
    UNARY(ex2_approx_f32, f32, f32, f32(exp2(f64(a))))                                                                \
    UNARY(ex2_approx_ftz_f32, f32, f32, flush(f32(exp2(f64(flush(a))))))                                              \
    UNARY(lg2_approx_f32, f32, f32, f32(log2(f64(a))))                                                                \
    UNARY(lg2_approx_ftz_f32, f32, f32, f32(log2(f64(flush(a)))))                                                     \
    UNARY(neg_f32, f32, f32, -a)                                                                                      \
    UNARY(neg_f64, f64, f64, -a)                                                                                      \
    UNARY(abs_f32, f32, f32, __builtin_fabsf(a))                                                                      \
    UNARY(abs_f64, f64, f64, __builtin_fabs(a))                                                                       \
    BINARY(min_f32, f32, f32, f32, least(a, b))                                                                       \
    BINARY(min_f64, f64, f64, f64, least(a, b))                                                                       \
    BINARY(max_f32, f32, f32, f32, -least(-a, -b))                                                                    \
    BINARY(max_f64, f64, f64, f64, -least(-a, -b))                                                                    \
    BINARY(copysign_f32, f32, f32, f32, __builtin_copysignf(b, a))                                                    \
    BINARY(copysign_f64, f64, f64, f64, __builtin_copysign(b, a))

/* From a float to a whole number: rounded (rzi towards zero, rni to nearest even, rmi down, rpi up), and then the
   nearest number that the type has; NaN gives 0. */
#define PTX_CONVERSIONS(CONVERT, BINARY)                                                                              \
    CONVERT(cvt_u16_u32, u16, u32, a)                                                                                 \
    CONVERT(cvt_u16_u64, u16, u64, a)                                                                                 \
    CONVERT(cvt_u16_u8, u16, u8, a)                                                                                   \
    CONVERT(cvt_s16_s8, s16, s8, a)                                                                                   \
    CONVERT(cvt_u32_u8, u32, u8, a)                                                                                   \
    CONVERT(cvt_u32_u16, u32, u16, a)                                                                                 \
    CONVERT(cvt_u32_u64, u32, u64, a)                                                                                 \
    CONVERT(cvt_s32_s8, s32, s8, a)                                                                                   \
    CONVERT(cvt_s32_s16, s32, s16, a)                                                                                 \
    CONVERT(cvt_u64_u8, u64, u8, a)                                                                                   \
    CONVERT(cvt_u64_u16, u64, u16, a)                                                                                 \
    CONVERT(cvt_u64_u32, u64, u32, a)                                                                                 \
    CONVERT(cvt_s64_s8, s64, s8, a)                                                                                   \
    CONVERT(cvt_s64_s16, s64, s16, a)                                                                                 \
    CONVERT(cvt_s64_s32, s64, s32, a)                                                                                 \
    CONVERT(cvt_rn_f32_s8, f32, s8, a)                                                                                \
    CONVERT(cvt_rn_f32_s16, f32, s16, a)                                                                              \
    CONVERT(cvt_rn_f32_s32, f32, s32, f32(a))                                                                         \
    CONVERT(cvt_rn_f32_s64, f32, s64, f32(a))                                                                         \
    CONVERT(cvt_rn_f32_u8, f32, u8, a)                                                                                \
    CONVERT(cvt_rn_f32_u16, f32, u16, a)                                                                              \
    CONVERT(cvt_rn_f32_u32, f32, u32, f32(a))                                                                         \
    CONVERT(cvt_rn_f32_u64, f32, u64, f32(a))                                                                         \
    CONVERT(cvt_rn_f64_s8, f64, s8, a)                                                                                \
    CONVERT(cvt_rn_f64_s16, f64, s16, a)                                                                              \
    CONVERT(cvt_rn_f64_s32, f64, s32, a)                                                                              \
    CONVERT(cvt_rn_f64_s64, f64, s64, f64(a))                                                                         \
    CONVERT(cvt_rn_f64_u8, f64, u8, a)                                                                                \
    CONVERT(cvt_rn_f64_u16, f64, u16, a)                                                                              \
    CONVERT(cvt_rn_f64_u32, f64, u32, a)                                                                              \
    CONVERT(cvt_rn_f64_u64, f64, u64, f64(a))                                                                         \
    CONVERT(cvt_f64_f32, f64, f32, a)                                                                                 \
    CONVERT(cvt_rn_f32_f64, f32, f64, f32(a))                                                                         \
    CONVERT(cvt_f32_f16, f32, u16, float_of_half(a))                                                                  \
    CONVERT(cvt_f32_bf16, f32, u16, float_of_bfloat(a))                                                               \
    CONVERT(cvt_rn_f16_f32, u16, f32, half_of(a))                                                                     \
    CONVERT(cvt_rn_f16_f64, u16, f64, half_of(a))                                                                     \
    CONVERT(cvt_rn_bf16_f32, u16, f32, bfloat_of(a))                                                                  \
    /* two of them in one register: a is the upper half */                                                            \
    BINARY(cvt_rn_f16x2_f32, u32, f32, f32, u32(half_of(a)) << 16 | half_of(b))                                       \
    BINARY(cvt_rn_bf16x2_f32, u32, f32, f32, u32(bfloat_of(a)) << 16 | bfloat_of(b))                                  \
    CONVERT(cvt_sat_f32_f32, f32, f32, a > 0 ? (a < 1 ? a : 1) : 0)                                                   \
    CONVERT(cvt_rni_f32_f32, f32, f32, __builtin_rintf(a))                                                            \
    CONVERT(cvt_rzi_f32_f32, f32, f32, __builtin_truncf(a))                                                           \
    CONVERT(cvt_rmi_f32_f32, f32, f32, __builtin_floorf(a))                                                           \
    CONVERT(cvt_rpi_f32_f32, f32, f32, __builtin_ceilf(a))                                                            \
    CONVERT(cvt_rni_f64_f64, f64, f64, __builtin_rint(a))                                                             \
    CONVERT(cvt_rzi_f64_f64, f64, f64, __builtin_trunc(a))                                                            \
    CONVERT(cvt_rmi_f64_f64, f64, f64, __builtin_floor(a))                                                            \
    CONVERT(cvt_rpi_f64_f64, f64, f64, __builtin_ceil(a))                                                             \
    CONVERT(cvt_rzi_s32_f32, s32, f32, whole<s32>(__builtin_truncf(a)))                                               \
    CONVERT(cvt_rni_s32_f32, s32, f32, whole<s32>(__builtin_rintf(a)))                                                \
    CONVERT(cvt_rzi_u32_f32, u32, f32, whole<u32>(__builtin_truncf(a)))                                               \
    CONVERT(cvt_rzi_s64_f32, s64, f32, whole<s64>(__builtin_truncf(a)))                                               \
    CONVERT(cvt_rzi_u64_f32, u64, f32, whole<u64>(__builtin_truncf(a)))                                               \
    CONVERT(cvt_rzi_s32_f64, s32, f64, whole<s32>(__builtin_trunc(a)))                                                \
    CONVERT(cvt_rni_s32_f64, s32, f64, whole<s32>(__builtin_rint(a)))                                                 \
    CONVERT(cvt_rzi_u32_f64, u32, f64, whole<u32>(__builtin_trunc(a)))                                                \
    CONVERT(cvt_rzi_s64_f64, s64, f64, whole<s64>(__builtin_trunc(a)))                                                \
    CONVERT(cvt_rni_s64_f64, s64, f64, whole<s64>(__builtin_rint(a)))                                                 \
    CONVERT(cvt_rzi_u64_f64, u64, f64, whole<u64>(__builtin_trunc(a)))

/* A comparison with NaN is false, but for those that end in u and for nan. */
#define PTX_COMPARE_WHOLE(COMPARE, suffix, T)                                                                         \
    COMPARE(setp_eq_##suffix, T, a == b)                                                                              \
    COMPARE(setp_ne_##suffix, T, a != b)                                                                              \
    COMPARE(setp_lt_##suffix, T, a < b)                                                                               \
    COMPARE(setp_le_##suffix, T, a <= b)                                                                              \
    COMPARE(setp_gt_##suffix, T, a > b)                                                                               \
    COMPARE(setp_ge_##suffix, T, a >= b)
#define PTX_COMPARE_FLOAT(COMPARE, suffix, T)                                                                         \
    COMPARE(setp_eq_##suffix, T, a == b)                                                                              \
    COMPARE(setp_ne_##suffix, T, a < b || a > b)                                                                      \
    COMPARE(setp_lt_##suffix, T, a < b)                                                                               \
    COMPARE(setp_le_##suffix, T, a <= b)                                                                              \
    COMPARE(setp_gt_##suffix, T, a > b)                                                                               \
    COMPARE(setp_ge_##suffix, T, a >= b)                                                                              \
    COMPARE(setp_equ_##suffix, T, !(a < b || a > b))                                                                  \
    COMPARE(setp_neu_##suffix, T, !(a == b))                                                                          \
    COMPARE(setp_ltu_##suffix, T, !(a >= b))                                                                          \
    COMPARE(setp_leu_##suffix, T, !(a > b))                                                                           \
    COMPARE(setp_gtu_##suffix, T, !(a <= b))                                                                          \
    COMPARE(setp_geu_##suffix, T, !(a < b))                                                                           \
    COMPARE(setp_num_##suffix, T, a == a && b == b)                                                                   \
    COMPARE(setp_nan_##suffix, T, !(a == a && b == b))

#define PTX_CHOICES(COMPARE, LOGIC, CHOOSE)                                                                           \
    PTX_COMPARE_WHOLE(COMPARE, s16, s16)                                                                              \
    PTX_COMPARE_WHOLE(COMPARE, s32, s32)                                                                              \
    PTX_COMPARE_WHOLE(COMPARE, s64, s64)                                                                              \
    PTX_COMPARE_WHOLE(COMPARE, u16, u16)                                                                              \
    PTX_COMPARE_WHOLE(COMPARE, u32, u32)                                                                              \
    PTX_COMPARE_WHOLE(COMPARE, u64, u64)                                                                              \
    COMPARE(setp_eq_b16, u16, a == b)                                                                                 \
    COMPARE(setp_ne_b16, u16, a != b)                                                                                 \
    COMPARE(setp_eq_b32, u32, a == b)                                                                                 \
    COMPARE(setp_ne_b32, u32, a != b)                                                                                 \
    COMPARE(setp_eq_b64, u64, a == b)                                                                                 \
    COMPARE(setp_ne_b64, u64, a != b)                                                                                 \
    PTX_COMPARE_FLOAT(COMPARE, f32, f32)                                                                              \
    PTX_COMPARE_FLOAT(COMPARE, f64, f64)                                                                              \
    LOGIC(and_pred, a &b)                                                                                             \
    LOGIC(or_pred, a | b)                                                                                             \
    LOGIC(xor_pred, a ^ b)                                                                                            \
    LOGIC(not_pred, ~a)                                                                                               \
    LOGIC(mov_pred, a)                                                                                                \
    CHOOSE(selp_b16, u16)                                                                                             \
    CHOOSE(selp_b32, u32)                                                                                             \
    CHOOSE(selp_b64, u64)

#define PTX_OTHERS(OTHER)                                                                                             \
    OTHER(mov)      /* one register, or several of half or a quarter of its width */                                  \
    OTHER(cvta)     /* between the addresses of a space and generic ones */                                           \
    OTHER(ld)       /* ld.space.vector.type */                                                                        \
    OTHER(st)                                                                                                         \
    OTHER(atom)     /* atom.space.operation.type */                                                                   \
    OTHER(bfi)      /* the lower bits of a, so many, are put into b at a place */                                     \
    OTHER(fence)    /* membar: the interpreter has one order of all accesses */                                       \
    OTHER(copy)     /* the result of a call, to where the caller wants it */                                          \
    OTHER(trap)                                                                                                       \
    OTHER(cp_async)                                                                                                   \
    OTHER(cp_commit)                                                                                                  \
    OTHER(cp_wait)                                                                                                    \
    OTHER(fence_proxy) /* fence.proxy.async: what this thread wrote to shared memory, wgmma may read */               \
    /* from here on: what may change a pc, or make a lane wait */                                                     \
    OTHER(bra)                                                                                                        \
    OTHER(call)                                                                                                       \
    OTHER(leave)    /* ret in a function: to the instruction behind the call */                                       \
    OTHER(ret)      /* ret in a kernel, and exit: the thread is done */                                               \
    OTHER(bar_sync)                                                                                                   \
    OTHER(bar_red)  /* a barrier that counts the threads whose predicate is set */                                    \
    OTHER(bar_warp)                                                                                                   \
    OTHER(shfl)                                                                                                       \
    OTHER(vote)                                                                                                       \
    OTHER(ldmatrix)                                                                                                   \
    OTHER(mma)      /* m16n8k16, bf16 or f16 with sums in f32 */                                                      \
    OTHER(wgmma)    /* wgmma.mma_async: m64nNk16, likewise, by four warps; a from registers or by a descriptor */     \
    OTHER(wgmma_fence)  /* what was in registers before is there for those that follow */                             \
    OTHER(wgmma_commit) /* those since the last one are a group */                                                    \
    OTHER(wgmma_wait)   /* until at most so many groups have not ended */

namespace ptx
{
enum Opcode : uint16_t {
#define PTX_NAME(name, ...) I_##name,
    PTX_TABLE(PTX_NAME, PTX_NAME, PTX_NAME, PTX_NAME, PTX_NAME, PTX_NAME, PTX_NAME, PTX_NAME, PTX_NAME)
#undef PTX_NAME
    opcodes
};
} // namespace ptx

#endif
