/* The kernels of selftest.h.  nvcc compiles this file, too, but only the simulator runs it. */
#include "selftest.h"

#ifdef CUDASIM
#define DYNAMIC_SHARED(T, name) CUDASIM_DYN_SHARED(T, name)
#else
#define DYNAMIC_SHARED(T, name)                                   \
    extern __shared__ __align__(16) unsigned char name##_bytes[]; \
    T *name = reinterpret_cast<T *>(name##_bytes)
#endif

static const unsigned full = 0xffffffffu;
__device__ static int global_counter;

template <class... Parameters, class... Arguments>
static cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t dynamic_bytes,
                          cudaStream_t stream, Arguments &&...arguments)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = dynamic_bytes;
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
}
static unsigned blocks_for(size_t n, size_t each) { return static_cast<unsigned>((n + each - 1) / each); }

__global__ void k_add(float *out, const float *a, const float *b, size_t n, Bug bug)
{
    size_t step = size_t(gridDim.x) * blockDim.x;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n + (bug == Bug::one_past_the_end); i += step)
        out[i] = a[i] + (i == n ? 1 : b[bug == Bug::one_before_the_start ? i - 65 : i]);
}
cudaError_t add(float *out, const float *a, const float *b, size_t n, cudaStream_t stream, Bug bug)
{
    return launch(k_add, blocks_for(n, 256), 128, 0, stream, out, a, b, n, bug);
}

/* One load or store of a whole float4. */
#ifndef CUDASIM_CHECK_ALIGNED
#define CUDASIM_CHECK_ALIGNED(p, alignment) ((void)0)
#endif
__device__ static float4 load_vector(const float *p)
{
    CUDASIM_CHECK_ALIGNED(p, 16);
    return *reinterpret_cast<const float4 *>(p);
}
__device__ static void store_vector(float *p, float4 x)
{
    CUDASIM_CHECK_ALIGNED(p, 16);
    *reinterpret_cast<float4 *>(p) = x;
}

__global__ void k_add_vectors(float *out, const float *a, const float *b, size_t n)
{
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float4 x = load_vector(a + 4 * i), y = load_vector(b + 4 * i);
    store_vector(out + 4 * i, make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w));
}
cudaError_t add_vectors(float *out, const float *a, const float *b, size_t n, Bug bug)
{
    size_t shift = bug == Bug::misaligned_vector;
    return launch(k_add_vectors, blocks_for(n / 4, 128), 128, 0, nullptr, out + shift, a + shift, b + shift,
                  n / 4 - shift);
}

template <class T> __device__ T block_sum(T value, Bug bug)
{
    __shared__ T part[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    for (int d = 16; d; d >>= 1) value += __shfl_xor_sync(full, value, d);
    if (bug != Bug::no_barrier_before_reuse) __syncthreads(); /* other warps may still read the sums */
    if (lane == 0) part[warp] = value;
    if (bug != Bug::no_barrier_before_read) __syncthreads();
    value = lane < warps ? part[lane] : T(0);
    for (int d = 16; d; d >>= 1) value += __shfl_xor_sync(full, value, d);
    return value;
}
__global__ void k_row_mean_variance(float *out, const float *x, int columns, Bug bug)
{
    const float *row = x + size_t(blockIdx.x) * columns;
    float sum = 0, squares = 0;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += row[i];
    float mean = block_sum(sum, bug) / columns;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) squares += (row[i] - mean) * (row[i] - mean);
    squares = block_sum(squares, bug) / columns;
    if (threadIdx.x) return;
    out[2 * blockIdx.x] = mean;
    out[2 * blockIdx.x + 1] = squares;
}
cudaError_t row_mean_variance(float *out, const float *x, int rows, int columns, Bug bug)
{
    return launch(k_row_mean_variance, rows, 128, 0, nullptr, out, x, columns, bug);
}

/* c [m, n] = a [m, k] times b [k, n], row-major, in tiles of 16 x 16 */
__global__ void __launch_bounds__(256)
    k_multiply_tiled(float *c, const float *a, const float *b, int m, int n, int k, Bug bug)
{
    __shared__ float tile_a[16][17], tile_b[16][17];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
    float sum = 0;
    for (int at = 0; at < k; at += 16) {
        tile_a[y][x] = row < m && at + x < k ? a[size_t(row) * k + at + x] : 0;
        tile_b[y][x] = column < n && at + y < k ? b[size_t(at + y) * n + column] : 0;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 16; ++i) sum += tile_a[y][i] * tile_b[i][x];
        if (bug != Bug::no_barrier_in_loop) __syncthreads();
    }
    if (row < m && column < n) c[size_t(row) * n + column] = sum;
}
cudaError_t multiply_tiled(float *c, const float *a, const float *b, int m, int n, int k, Bug bug)
{
    return launch(k_multiply_tiled, dim3(blocks_for(n, 16), blocks_for(m, 16)), dim3(16, 16), 0, nullptr, c, a, b, m, n,
                  k, bug);
}

/* out[i] = x[i] + (x[i - 1] + x[i + 1]), cyclic in each warp, through shared memory, where the sums replace x; a thread
   works on an element that another has loaded */
__global__ void k_neighbours(float *out, const float *x, Bug bug)
{
    __shared__ float copy[128];
    int thread = threadIdx.x, lane = 31 - (thread & 31), first = thread & ~31;
    copy[thread] = x[blockIdx.x * 128 + thread];
    if (bug != Bug::no_syncwarp) __syncwarp();
    const float sum = copy[first + ((lane + 31) & 31)] + copy[first + ((lane + 1) & 31)];
    if (bug != Bug::no_syncwarp_before_write) __syncwarp();
    const float own = copy[first + lane]; /* others have read it, too, but before the last __syncwarp */
    if (own == own) copy[first + lane] = own + sum; /* a branch: the sanitizer skips reads before a write */
    out[blockIdx.x * 128 + first + lane] = copy[first + lane];
}
cudaError_t neighbours(float *out, const float *x, int blocks, Bug bug)
{
    return launch(k_neighbours, blocks, 128, 0, nullptr, out, x, bug);
}

__global__ void k_histogram(unsigned *out, const unsigned char *x, int n, int bins, Bug bug)
{
    DYNAMIC_SHARED(unsigned, count);
    for (int i = threadIdx.x; i < bins; i += blockDim.x)
        if (bug != Bug::dynamic_shared_unwritten) count[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        if (bug == Bug::no_atomic_in_block)
            count[x[i]] += 1;
        else
            atomicAdd(&count[x[i]], 1u);
    }
    if (bug == Bug::divergent_barrier) {
        if (threadIdx.x < 32) __syncthreads();
    } else if (bug == Bug::barriers_of_two_lines && threadIdx.x < 32) {
        __syncthreads();
    } else {
        __syncthreads();
    }
    for (int i = threadIdx.x; i < bins + (bug == Bug::dynamic_shared_bounds); i += blockDim.x) {
        if (bug == Bug::dynamic_shared_bounds && i == bins) count[i] = 0;
        if (i < bins && count[i]) atomicAdd(&out[i], count[i]);
    }
}
cudaError_t histogram(unsigned *out, const unsigned char *x, int n, int bins, Bug bug)
{
    return launch(k_histogram, 4, 128, bins * sizeof(unsigned), nullptr, out, x, n, bins, bug);
}

__global__ void k_total(float *out, const float *x, int n, Bug bug)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = block_sum(i < n ? x[i] : 0.0f, Bug::none);
    if (threadIdx.x) return;
    if (bug == Bug::no_atomic_between_blocks)
        *out += sum;
    else
        atomicAdd(out, sum);
}
cudaError_t total(float *out, const float *x, int n, Bug bug)
{
    return launch(k_total, blocks_for(n, 128), 128, 0, nullptr, out, x, n, bug);
}

__global__ void k_total_by_last(float *out, float *scratch, unsigned *counter, const float *x, int n, Bug bug)
{
    __shared__ bool last;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) scratch[i] = x[i];
    if (bug != Bug::no_fence_between_blocks) __threadfence();
    if (bug != Bug::no_barrier_between_blocks) __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(counter, 1u) + 1 == gridDim.x;
        if (last) atomicExch(counter, 0u);
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    float sum = 0;
    for (int k = threadIdx.x; k < n; k += blockDim.x) sum += scratch[k];
    sum = block_sum(sum, Bug::none);
    if (threadIdx.x == 0) *out = sum;
}
cudaError_t total_by_last(float *out, float *scratch, unsigned *counter, const float *x, int n, Bug bug)
{
    return launch(k_total_by_last, blocks_for(n, 128), 128, 0, nullptr, out, scratch, counter, x, n, bug);
}

__global__ void k_row_sum(float *out, const float *x, int rows, int columns, Bug bug)
{
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    float sum = 0;
    if (bug == Bug::shuffle_after_return && lane >= columns) return;
    if (row < rows)
        for (int i = lane; i < columns; i += 32) sum += x[size_t(row) * columns + i];
    if (bug == Bug::barrier_against_shuffle && lane >= 16) __syncthreads();
    unsigned mask = bug == Bug::mask_without_caller ? 0x7fffffffu : full;
    if (bug == Bug::mismatched_collectives && lane >= 16)
        sum += __shfl_xor_sync(full, sum, 16);
    else
        sum += __shfl_down_sync(mask, sum, 16);
    for (int d = 8; d; d >>= 1) sum += __shfl_down_sync(full, sum, d);
    if (row < rows && lane == 0) out[row] = sum;
}
cudaError_t row_sum(float *out, const float *x, int rows, int columns, Bug bug)
{
    return launch(k_row_sum, blocks_for(rows, 4), 128, 0, nullptr, out, x, rows, columns, bug);
}

__global__ void k_reverse(float *out, float *scratch, const float *x, Bug bug)
{
    int first = blockIdx.x * blockDim.x, i = threadIdx.x;
    float *mine = bug == Bug::scratch_of_all_blocks ? scratch : scratch + first;
    mine[i] = x[first + i];
    __syncthreads();
    out[first + i] = mine[blockDim.x - 1 - i];
}
cudaError_t reverse(float *out, float *scratch, const float *x, int blocks, Bug bug)
{
    return launch(k_reverse, static_cast<size_t>(blocks), 64, 0, nullptr, out, scratch, x, bug);
}

/* Neighbouring threads write the two halves of a word: no race. */
__global__ void k_increment_bf16(unsigned short *out, const unsigned short *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = static_cast<unsigned short>(x[i] + 1);
}
cudaError_t increment_bf16(unsigned short *out, const unsigned short *x, int n)
{
    return launch(k_increment_bf16, blocks_for(n, 128), 128, 0, nullptr, out, x, n);
}

__device__ static float deep(int levels, float x)
{
    volatile float frame[256];
    for (int i = 0; i < 256; ++i) frame[i] = x;
    return levels ? deep(levels - 1, frame[levels & 255] + 1) + frame[0] : x;
}
__global__ void k_odd(float *out, int index, Bug bug)
{
    __shared__ float few[64];
    int i = threadIdx.x;
    if (bug != Bug::static_shared_unwritten || index > 1000) few[i] = 1;
    __syncthreads();
    if (bug == Bug::writes_global) global_counter += index;
    if (bug == Bug::deep_stack)
        out[i] = deep(1000, 0);
    else
        out[i] = few[bug == Bug::static_shared_bounds ? i + index : i];
}
cudaError_t odd(float *out, Bug bug) { return launch(k_odd, 1, 64, 0, nullptr, out, 40, bug); }

__global__ void k_transpose(float *out, const float *x, int pitch)
{
    __shared__ float tile[32 * 33];
    for (int i = 0; i < 32; ++i) tile[i * pitch + threadIdx.x] = x[i * 32 + threadIdx.x];
    __syncthreads();
    for (int i = 0; i < 32; ++i) out[i * 32 + threadIdx.x] = tile[threadIdx.x * pitch + i];
}
cudaError_t transpose(float *out, const float *x, int pitch)
{
    return launch(k_transpose, 1, 32, 0, nullptr, out, x, pitch);
}

__global__ void k_every(float *out, const float *x, int step, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i * step];
}
cudaError_t every(float *out, const float *x, int step, int n)
{
    return launch(k_every, blocks_for(static_cast<size_t>(n), 64), 64, 0, nullptr, out, x, step, n);
}

#ifdef CUDASIM
#include <tensor_cores.h>
__global__ void k_multiply_fragments(float *c, const unsigned *a, const unsigned *b, bool bf16)
{
    float sum[4];
    unsigned x[4];
    for (int i = 0; i < 4; ++i) sum[i] = c[4 * threadIdx.x + i], x[i] = a[4 * threadIdx.x + i];
    if (bf16)
        tgi_mma_16816<true>(sum, x, b[2 * threadIdx.x], b[2 * threadIdx.x + 1]);
    else
        tgi_mma_16816<false>(sum, x, b[2 * threadIdx.x], b[2 * threadIdx.x + 1]);
    for (int i = 0; i < 4; ++i) c[4 * threadIdx.x + i] = sum[i];
}
cudaError_t multiply_fragments(float *c, const unsigned *a, const unsigned *b, bool bf16)
{
    return launch(k_multiply_fragments, 1, 32, 0, nullptr, c, a, b, bf16);
}

__global__ void k_load_fragments(unsigned *x, const unsigned short *rows, bool transposed)
{
    __shared__ __align__(16) unsigned short tile[32 * 8];
    unsigned y[4];
    for (int i = 0; i < 8; ++i) tile[8 * threadIdx.x + i] = rows[8 * threadIdx.x + i];
    if (transposed)
        tgi_load_matrices_transposed(y, tile + 8 * threadIdx.x);
    else
        tgi_load_matrices(y, tile + 8 * threadIdx.x);
    for (int i = 0; i < 4; ++i) x[4 * threadIdx.x + i] = y[i];
}
cudaError_t load_fragments(unsigned *x, const unsigned short *rows, bool transposed)
{
    return launch(k_load_fragments, 1, 32, 0, nullptr, x, rows, transposed);
}

__global__ void k_copy_async(float *out, const float *x, Bug bug)
{
    __shared__ __align__(16) float copy[2][64][4];
    const int t = threadIdx.x, other = 63 - t;
    tgi_copy_async(copy[0][t], x + 4 * t + (bug == Bug::misaligned_copy), true);
    tgi_copy_async_commit();
    tgi_copy_async(copy[1][t], x, false);
    tgi_copy_async_commit();
    for (int k = 0; k < 2; ++k) {
        if (k == 0 && bug != Bug::no_wait_for_copy) tgi_copy_async_wait<1>();
        if (k == 1 && bug != Bug::unfinished_copy) tgi_copy_async_wait<0>();
        if (bug != Bug::no_barrier_after_copy) __syncthreads();
        for (int i = 0; i < 4 && bug != Bug::unfinished_copy; ++i) out[(64 * k + other) * 4 + i] = copy[k][other][i];
    }
}
cudaError_t copy_async(float *out, const float *x, Bug bug)
{
    return launch(k_copy_async, 1, 64, 0, nullptr, out, x, bug);
}
#endif

__global__ void k_empty() {}
cudaError_t launch_empty(dim3 grid, dim3 block, size_t dynamic_bytes, cudaStream_t stream)
{
    return launch(k_empty, grid, block, dynamic_bytes, stream);
}
