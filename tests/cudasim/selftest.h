/* Kernels for selftest.cpp: correct with Bug::none; each other Bug is one mistake that the simulator must find. */
#ifndef CUDASIM_SELFTEST_H
#define CUDASIM_SELFTEST_H

#include <cuda_runtime.h>

enum class Bug {
    none,
    no_barrier_before_read,
    no_barrier_before_reuse,
    no_barrier_in_loop,
    no_syncwarp,
    no_syncwarp_before_write,
    no_atomic_in_block,
    no_atomic_between_blocks,
    no_fence_between_blocks,
    no_barrier_between_blocks,
    scratch_of_all_blocks,
    divergent_barrier,
    barriers_of_two_lines,
    shuffle_after_return,
    mask_without_caller,
    mismatched_collectives,
    barrier_against_shuffle,
    one_past_the_end,
    one_before_the_start,
    static_shared_bounds,
    dynamic_shared_bounds,
    static_shared_unwritten,
    dynamic_shared_unwritten,
    writes_global,
    misaligned_vector,
    deep_stack,
    no_wait_for_copy,
    no_barrier_after_copy,
    misaligned_copy,
    unfinished_copy
};

cudaError_t add(float *out, const float *a, const float *b, size_t n, cudaStream_t stream = nullptr,
                Bug bug = Bug::none);
cudaError_t add_vectors(float *out, const float *a, const float *b, size_t n, Bug bug = Bug::none);
cudaError_t row_mean_variance(float *out, const float *x, int rows, int columns, Bug bug = Bug::none);
cudaError_t multiply_tiled(float *c, const float *a, const float *b, int m, int n, int k, Bug bug = Bug::none);
cudaError_t neighbours(float *out, const float *x, int blocks, Bug bug = Bug::none);
cudaError_t histogram(unsigned *out, const unsigned char *x, int n, int bins, Bug bug = Bug::none);
cudaError_t total(float *out, const float *x, int n, Bug bug = Bug::none);
/* The same sum, by the last block: scratch [n], and a counter that is 0 before and after. */
cudaError_t total_by_last(float *out, float *scratch, unsigned *counter, const float *x, int n, Bug bug = Bug::none);
cudaError_t row_sum(float *out, const float *x, int rows, int columns, Bug bug = Bug::none);
/* out [blocks * 64] = x, reversed in each block, by way of scratch [blocks * 64] */
cudaError_t reverse(float *out, float *scratch, const float *x, int blocks, Bug bug = Bug::none);
cudaError_t increment_bf16(unsigned short *out, const unsigned short *x, int n);
cudaError_t odd(float *out, Bug bug); /* computes nothing; contains the mistakes that fit nowhere else */
/* out [32, 32] = x^T, by way of shared memory whose rows are `pitch` floats apart, 32 or 33. */
cudaError_t transpose(float *out, const float *x, int pitch);
/* out [n] = x[0], x[step], ... */
cudaError_t every(float *out, const float *x, int step, int n);
/* c [32, 4] += a [32, 4] times b [32, 2], the registers of a warp in one product by tensor cores; bf16 or f16. */
cudaError_t multiply_fragments(float *c, const unsigned *a, const unsigned *b, bool bf16);
/* x [32, 4]: what each lane loads of rows [32, 8] of 16 bits. */
cudaError_t load_fragments(unsigned *x, const unsigned short *rows, bool transposed);
/* out [2, 64, 4]: x and then zeros, by way of shared memory; asynchronous copies in two groups. */
cudaError_t copy_async(float *out, const float *x, Bug bug = Bug::none);
cudaError_t launch_empty(dim3 grid, dim3 block, size_t dynamic_bytes, cudaStream_t stream = nullptr);

#endif
