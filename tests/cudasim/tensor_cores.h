/* What tensorgrad_cuda.cu writes in PTX, as C++: products by tensor cores, and copies to shared memory that run beside
   the thread.  A warp of the simulator computes a product together: each lane shows its registers to the others, as in
   a shuffle.  The comments of tensorgrad_cuda.cu have the pictures of who holds what; selftest.cpp holds these
   functions to the tables of NVIDIA's manual, "Parallel Thread Execution ISA". */
#ifndef CUDASIM_TENSOR_CORES_H
#define CUDASIM_TENSOR_CORES_H

#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace cudasim
{
/* What each lane of a warp has passed. */
template <class T> struct Lanes {
    T of[32];
};
template <class T> CUDASIM_UNCHECKED Lanes<T> exchange(const T &mine, Collective what, const char *file, int line)
{
    static_assert(sizeof(T) % 8 == 0, "a collective moves 8 bytes");
    Lanes<T> all;
    for (size_t at = 0; at < sizeof(T); at += 8) {
        uint64_t part;
        memcpy(&part, reinterpret_cast<const char *>(&mine) + at, 8);
        const uint64_t *got = warp_collective(~0u, part, what, file, line);
        for (int l = 0; l < 32; ++l) memcpy(reinterpret_cast<char *>(&all.of[l]) + at, &got[l], 8);
    }
    return all;
}

/* The number in half `which` of a register. */
template <bool bf16> CUDASIM_UNCHECKED inline float float_of(uint32_t x, int which)
{
    const unsigned short bits = static_cast<unsigned short>(x >> (16 * which));
    return bf16 ? __bfloat162float(__ushort_as_bfloat16(bits)) : __half2float(__ushort_as_half(bits));
}

struct Fragments {
    uint32_t a[4], b[2];
};

/* 16 bytes, loaded and stored in two parts: of a memcpy the check mode would see nothing. */
typedef uint64_t Part __attribute__((may_alias));
struct Bytes16 {
    uint64_t part[2];
};
inline Bytes16 load_16(const void *from, const char *file, int line)
{
    check_aligned(from, 16, file, line);
    const Part *parts = static_cast<const Part *>(from);
    return {{parts[0], parts[1]}};
}
inline void store_16(void *to, const Bytes16 &bytes, const char *file, int line)
{
    check_aligned(to, 16, file, line);
    Part *parts = static_cast<Part *>(to);
    parts[0] = bytes.part[0];
    parts[1] = bytes.part[1];
}

/* A copy of 16 bytes that a thread has begun; from NULL: zeros. */
struct AsyncCopy {
    void *to;
    const void *from;
    unsigned group;
};
void async_begin(const AsyncCopy &copy);
void async_commit();
bool async_next(unsigned groups_left, AsyncCopy *copy);
} // namespace cudasim

/* c [16, 8] += a [16, 16] times b [16, 8] */
template <bool bf16>
CUDASIM_UNCHECKED inline void tgi_mma_16816(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                            CUDASIM_SITE)
{
    const ::cudasim::Fragments mine = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
    const ::cudasim::Lanes<::cudasim::Fragments> all =
        ::cudasim::exchange(mine, ::cudasim::Collective::mma, file, line);
    const int group = static_cast<int>(::cudasim::lane()) / 4, in_group = static_cast<int>(::cudasim::lane()) % 4;
    for (int i = 0; i < 4; ++i) {
        const int row = group + 8 * (i / 2), column = 2 * in_group + i % 2;
        for (int k = 0; k < 16; ++k) {
            const uint32_t in_a = all.of[row % 8 * 4 + k % 8 / 2].a[row / 8 + k / 8 * 2];
            const uint32_t in_b = all.of[column * 4 + k % 8 / 2].b[k / 8];
            c[i] += ::cudasim::float_of<bf16>(in_a, k % 2) * ::cudasim::float_of<bf16>(in_b, k % 2);
        }
    }
}

/* Loads four matrices [8, 8] of 16 bits; lane 8 m + r passes the address of row r of matrix m.  The check mode sees the
   loads: this function and tgi_copy_async are compiled with the kernels. */
inline ::cudasim::Lanes<::cudasim::Bytes16> cudasim_load_rows(const void *row, const char *file, int line)
{
    return ::cudasim::exchange(::cudasim::load_16(row, file, line), ::cudasim::Collective::ldmatrix, file, line);
}
/* Element [row, column] of matrix m. */
CUDASIM_UNCHECKED inline uint32_t cudasim_element(const ::cudasim::Lanes<::cudasim::Bytes16> &rows, int m, int row,
                                                  int column)
{
    return static_cast<unsigned short>(rows.of[8 * m + row].part[column / 4] >> (column % 4 * 16));
}
inline void tgi_load_matrices(uint32_t (&x)[4], const void *row, CUDASIM_SITE)
{
    const ::cudasim::Lanes<::cudasim::Bytes16> rows = cudasim_load_rows(row, file, line);
    const int group = static_cast<int>(::cudasim::lane()) / 4, in_group = static_cast<int>(::cudasim::lane()) % 4;
    for (int m = 0; m < 4; ++m)
        x[m] = cudasim_element(rows, m, group, 2 * in_group) | cudasim_element(rows, m, group, 2 * in_group + 1) << 16;
}
inline void tgi_load_matrices_transposed(uint32_t (&x)[4], const void *row, CUDASIM_SITE)
{
    const ::cudasim::Lanes<::cudasim::Bytes16> rows = cudasim_load_rows(row, file, line);
    const int group = static_cast<int>(::cudasim::lane()) / 4, in_group = static_cast<int>(::cudasim::lane()) % 4;
    for (int m = 0; m < 4; ++m)
        x[m] = cudasim_element(rows, m, 2 * in_group, group) | cudasim_element(rows, m, 2 * in_group + 1, group) << 16;
}

namespace cudasim
{
template <bool bf16> inline uint32_t bits_of(float x)
{
    return bf16 ? __bfloat16_as_ushort(__float2bfloat16_rn(x)) : __half_as_ushort(__float2half_rn(x));
}
} // namespace cudasim
template <bool bf16> inline uint32_t tgi_two_halves(float low, float high)
{
    return ::cudasim::bits_of<bf16>(low) | ::cudasim::bits_of<bf16>(high) << 16;
}

/* Products of a warpgroup: d [64, 64] += a [64, 16] times rows [16 k, 16 k + 16) of the tile b [64, 64] or, with
   transposed, times the same columns of b transposed; each of the four warps has 16 rows of a and d.  In b the parts of
   eight numbers have changed places by the row's number.  Here each warp computes its rows at once; that nobody uses
   the registers before the wait is what tests/ptx finds. */
inline uint32_t cudasim_in_tile(const uint16_t *b, int row, int column)
{
    return b[64 * row + 8 * (column / 8 ^ row % 8) + column % 8];
}
struct tgi_wgmma_tile { /* a descriptor counts parts of eight numbers */
    const uint16_t *at;
    tgi_wgmma_tile operator+(int parts) const { return {at + 8 * parts}; }
};
inline tgi_wgmma_tile tgi_wgmma_tile_of(const uint16_t *tile) { return {tile}; }
template <bool bf16, bool transposed, bool adds>
inline void tgi_wgmma(float (&d)[8][4], const uint32_t (&a)[4], tgi_wgmma_tile b, int k, CUDASIM_SITE)
{
    const ::cudasim::Lanes<::cudasim::Fragments> all = ::cudasim::exchange(
        ::cudasim::Fragments{{a[0], a[1], a[2], a[3]}, {0, 0}}, ::cudasim::Collective::mma, file, line);
    const int group = static_cast<int>(::cudasim::lane()) / 4, in_group = static_cast<int>(::cudasim::lane()) % 4;
    for (int n = 0; n < 16; ++n) {
        float *const c[2] = {&d[n / 2][n % 2], &d[n / 2][2 + n % 2]};
        const int column = n / 2 * 8 + 2 * in_group + n % 2;
        if (!adds) *c[0] = *c[1] = 0;
        for (int i = 0; i < 16; ++i) {
            const int inner = 16 * k + i;
            const uint32_t bits = transposed ? cudasim_in_tile(b.at, column, inner) : cudasim_in_tile(b.at, inner, column);
            const uint32_t *const fragment = all.of[group * 4 + i % 8 / 2].a;
            for (int r = 0; r < 2; ++r)
                *c[r] += ::cudasim::float_of<bf16>(fragment[r + i / 8 * 2], i % 2) * ::cudasim::float_of<bf16>(bits, 0);
        }
    }
}
/* The same with the columns [16 k, 16 k + 16) of a, which is a tile, too, and of b transposed. */
template <bool bf16, bool adds>
inline void tgi_wgmma_tiles(float (&d)[8][4], tgi_wgmma_tile a, tgi_wgmma_tile b, int k)
{
    const int lane = static_cast<int>(::cudasim::lane()), in_group = lane % 4;
    const int first = static_cast<int>(threadIdx.x) / 32 % 4 * 16 + lane / 4;
    for (int n = 0; n < 32; ++n) {
        float &c = d[n / 4][n % 4];
        const int row = first + n % 4 / 2 * 8, column = n / 4 * 8 + 2 * in_group + n % 2;
        if (!adds) c = 0;
        for (int i = 16 * k; i < 16 * k + 16; ++i)
            c += ::cudasim::float_of<bf16>(cudasim_in_tile(a.at, row, i), 0) *
                 ::cudasim::float_of<bf16>(cudasim_in_tile(b.at, column, i), 0);
    }
}
template <class T> inline void tgi_wgmma_pin(const T &) {}
inline void tgi_wgmma_fence() {}
inline void tgi_wgmma_commit() {}
template <int left> inline void tgi_wgmma_wait() {}
inline void tgi_wgmma_shared_fence() {}

/* Begins to copy 16 bytes to shared memory, or to fill them with zeros.  Until the wait they are NaN: both moments are
   writes for the check mode. */
inline void tgi_copy_async(void *to, const void *from, bool copies, CUDASIM_SITE)
{
    if (copies) ::cudasim::check_aligned(from, 16, file, line);
    const uint64_t nan = 0x7fff7fff7fff7fff; /* in all dtypes */
    ::cudasim::store_16(to, {{nan, nan}}, file, line);
    ::cudasim::async_begin({to, copies ? from : nullptr, 0});
}
/* Ends a group of copies. */
inline void tgi_copy_async_commit() { ::cudasim::async_commit(); }
/* Waits until the copies of all groups but the last `left` of this thread are done. */
template <int left> inline void tgi_copy_async_wait(CUDASIM_SITE)
{
    ::cudasim::AsyncCopy copy;
    while (::cudasim::async_next(left, &copy)) {
        ::cudasim::Bytes16 bytes = {{0, 0}};
        if (copy.from) bytes = ::cudasim::load_16(copy.from, file, line);
        ::cudasim::store_16(copy.to, bytes, file, line);
    }
}

#endif
