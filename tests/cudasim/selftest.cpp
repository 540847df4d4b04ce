/* Tests the simulator.  Correct programs must run without an error in each order of threads and streams.  Each of the
   mistakes in the table `mistakes` runs in a process of its own, and must be reported in the builds that can find it.
   A row of the table has the words of the report in the check, the asan and the plain build, "wrong result" where only
   the numbers show the mistake.  The fma build finds what the plain one does, and in it blocks take turns. */
#include "selftest.h"

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>
#include "cudasim_test.h"

#if defined(SELFTEST_CHECK)
static const int build = 0;
#elif defined(SELFTEST_ASAN)
static const int build = 1;
#else
static const int build = 2;
#endif
#if defined(SELFTEST_FMA)
static const bool in_turns = true;
#else
static const bool in_turns = false;
#endif

/* ---- tools ---- */

static bool all_right = true;
static void expect(bool right, const char *what)
{
    if (right) return;
    all_right = false;
    printf("wrong result: %s\n", what);
}
#define EXPECT(condition) expect(condition, #condition)
#define OK(call) expect((call) == cudaSuccess, #call)

static std::vector<float> numbers(size_t n)
{
    static unsigned state = 1;
    std::vector<float> v(n);
    for (float &x : v) {
        state = state * 1664525u + 1013904223u;
        x = static_cast<float>(state >> 8) / (1 << 24) - 0.5f;
    }
    return v;
}
template <class T> static T *upload(const std::vector<T> &v)
{
    T *p;
    OK(cudaMalloc(&p, v.size() * sizeof(T)));
    OK(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
    return p;
}
static float *fresh(size_t n)
{
    float *p;
    OK(cudaMalloc(&p, n * sizeof(float)));
    return p;
}
template <class T> static std::vector<T> download(const T *p, size_t n)
{
    std::vector<T> v(n);
    OK(cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
    return v;
}
static void expect_close(const char *what, const std::vector<float> &got, const std::vector<float> &wanted,
                         double tolerance)
{
    bool right = got.size() == wanted.size();
    for (size_t i = 0; right && i < got.size(); ++i)
        right = std::fabs(double(got[i]) - wanted[i]) <= tolerance; /* no NaN */
    expect(right, what);
}
static cudaStream_t new_stream()
{
    cudaStream_t s;
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    return s;
}
static float *pinned(size_t n)
{
    float *p;
    OK(cudaMallocHost(&p, n * sizeof(float)));
    return p;
}

/* ---- programs that are correct, except for the bug they are given ---- */

static void try_add(size_t n, Bug bug = Bug::none)
{
    std::vector<float> a = numbers(n), b = numbers(n), sum(n);
    for (size_t i = 0; i < n; ++i) sum[i] = a[i] + b[i];
    float *da = upload(a), *db = upload(b), *out = fresh(n);
    OK(add(out, da, db, n, nullptr, bug));
    expect_close("add", download(out, n), sum, 0);
    OK(cudaFree(da));
    OK(cudaFree(db));
    OK(cudaFree(out));
}
static void try_add_vectors(Bug bug = Bug::none)
{
    std::vector<float> a = numbers(256);
    float *da = upload(a), *out = upload(a);
    OK(add_vectors(out, da, da, 256, bug));
    for (float &x : a) x *= 2;
    if (bug == Bug::none) expect_close("add_vectors", download(out, 256), a, 0);
    OK(cudaFree(da));
    OK(cudaFree(out));
}
static void try_mean_variance(Bug bug = Bug::none)
{
    const size_t rows = 5, columns = 300;
    std::vector<float> x = numbers(rows * columns), wanted;
    for (size_t r = 0; r < rows; ++r) {
        double mean = 0, variance = 0;
        for (size_t i = 0; i < columns; ++i) mean += x[r * columns + i] / columns;
        for (size_t i = 0; i < columns; ++i) variance += std::pow(x[r * columns + i] - mean, 2) / columns;
        wanted.push_back(static_cast<float>(mean));
        wanted.push_back(static_cast<float>(variance));
    }
    float *dx = upload(x), *out = fresh(2 * rows);
    OK(row_mean_variance(out, dx, rows, columns, bug));
    expect_close("row_mean_variance", download(out, 2 * rows), wanted, 1e-5);
    OK(cudaFree(dx));
    OK(cudaFree(out));
}
static void try_multiply(Bug bug = Bug::none)
{
    const int m = 20, n = 24, k = 40;
    std::vector<float> a = numbers(m * k), b = numbers(k * n), wanted(m * n);
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) {
            double sum = 0;
            for (int l = 0; l < k; ++l) sum += a[i * k + l] * b[l * n + j];
            wanted[i * n + j] = static_cast<float>(sum);
        }
    float *da = upload(a), *db = upload(b), *c = fresh(m * n);
    OK(multiply_tiled(c, da, db, m, n, k, bug));
    expect_close("multiply_tiled", download(c, m * n), wanted, 1e-4);
    for (float *p : {da, db, c}) OK(cudaFree(p));
}
static void try_neighbours(Bug bug = Bug::none)
{
    std::vector<float> x = numbers(256), wanted(256);
    for (int i = 0; i < 256; ++i) wanted[i] = x[i] + (x[(i & ~31) + ((i + 31) & 31)] + x[(i & ~31) + ((i + 1) & 31)]);
    float *dx = upload(x), *out = fresh(256);
    OK(neighbours(out, dx, 2, bug));
    expect_close("neighbours", download(out, 256), wanted, 0);
    OK(cudaFree(dx));
    OK(cudaFree(out));
}
static void try_histogram(Bug bug = Bug::none)
{
    std::vector<unsigned char> x(3000);
    std::vector<unsigned> wanted(100);
    unsigned state = 7;
    for (unsigned char &value : x)
        ++wanted[value = static_cast<unsigned char>((state = state * 48271u % 0x7fffffffu) % 100)];
    unsigned char *dx = upload(x);
    unsigned *out;
    OK(cudaMalloc(&out, 400));
    OK(cudaMemset(out, 0, 400));
    OK(histogram(out, dx, 3000, 100, bug));
    EXPECT(download(out, 100) == wanted);
    OK(cudaFree(dx));
    OK(cudaFree(out));
}
static void try_total(Bug bug = Bug::none)
{
    std::vector<float> x = numbers(1000);
    double sum = 0;
    for (float v : x) sum += v;
    float *dx = upload(x), *out = fresh(1);
    OK(cudaMemset(out, 0, 4));
    OK(total(out, dx, 1000, bug));
    expect_close("total", download(out, 1), {static_cast<float>(sum)}, 1e-4);
    OK(cudaFree(dx));
    OK(cudaFree(out));
}
static void try_total_by_last(Bug bug = Bug::none)
{
    std::vector<float> x = numbers(1000);
    double sum = 0;
    for (float v : x) sum += v;
    float *dx = upload(x), *out = fresh(1), *scratch = fresh(1000), *counter = fresh(1);
    OK(cudaMemset(counter, 0, 4));
    for (int k = 0; k < 2; ++k) {
        OK(total_by_last(out, scratch, reinterpret_cast<unsigned *>(counter), dx, 1000, bug));
        expect_close("total_by_last", download(out, 1), {static_cast<float>(sum)}, 1e-4);
    }
    for (float *p : {dx, out, scratch, counter}) OK(cudaFree(p));
}
static void try_row_sum(Bug bug = Bug::none)
{
    std::vector<float> x = numbers(7 * 20), wanted(7);
    for (int i = 0; i < 140; ++i) wanted[i / 20] += x[i];
    float *dx = upload(x), *out = fresh(7);
    OK(row_sum(out, dx, 7, 20, bug));
    expect_close("row_sum", download(out, 7), wanted, 1e-5);
    OK(cudaFree(dx));
    OK(cudaFree(out));
}
static void try_reverse(Bug bug = Bug::none)
{
    const int blocks = 5, n = 64;
    std::vector<float> x = numbers(blocks * n), wanted;
    for (int b = 0; b < blocks; ++b)
        for (int i = n - 1; i >= 0; --i) wanted.push_back(x[static_cast<size_t>(b * n + i)]);
    float *dx = upload(x), *scratch = fresh(x.size()), *out = fresh(x.size());
    OK(reverse(out, scratch, dx, blocks, bug));
    expect_close("reverse", download(out, x.size()), wanted, 0);
    OK(cudaFree(dx));
    OK(cudaFree(scratch));
    OK(cudaFree(out));
}
static void try_bf16()
{
    std::vector<unsigned short> x(333);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<unsigned short>(i);
    unsigned short *dx = upload(x), *out = upload(x);
    OK(increment_bf16(out, dx, 333));
    std::vector<unsigned short> got = download(out, 333);
    for (size_t i = 0; i < x.size(); ++i) EXPECT(got[i] == i + 1);
    OK(cudaFree(dx));
    OK(cudaFree(out));
}
static void try_conversions()
{
    for (unsigned i = 0; i < 65536; ++i) { /* to float and back: all bit patterns but NaN */
        __half h = __ushort_as_half(static_cast<unsigned short>(i));
        __nv_bfloat16 b = __ushort_as_bfloat16(static_cast<unsigned short>(i));
        if ((i & 0x7fff) <= 0x7c00) EXPECT(__half_as_ushort(__float2half(__half2float(h))) == i);
        if ((i & 0x7fff) <= 0x7f80) EXPECT(__bfloat16_as_ushort(__float2bfloat16(__bfloat162float(b))) == i);
    }
    EXPECT(__half_as_ushort(__float2half(65519.996f)) == 0x7bff && __half_as_ushort(__float2half(65520.0f)) == 0x7c00);
    EXPECT(__half_as_ushort(__float2half(0x1p-25f)) == 0 && __half_as_ushort(__float2half(0x1.8p-24f)) == 2);
    EXPECT(__half_as_ushort(__double2half(1 + 0x1p-11 + 0x1p-40)) == 0x3c01);
    EXPECT(__bfloat16_as_ushort(__float2bfloat16(1 + 0x1p-8f)) == 0x3f80);
}

/* c = alpha op(a) op(b) + beta c, against a loop; all transposes, strided batches */
static void try_cublas()
{
    const int m = 5, n = 7, k = 3, batch = 2, ldc = 6;
    cublasHandle_t handle;
    cudaStream_t s = new_stream();
    EXPECT(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS && cublasSetStream(handle, s) == CUBLAS_STATUS_SUCCESS);
    std::vector<float> a = numbers(batch * m * k), b = numbers(batch * k * n), c = numbers(batch * ldc * n);
    float *da = upload(a), *db = upload(b), *dc = upload(c);
    for (int kind = 0; kind < 8; ++kind) {
        bool ta = kind & 1, tb = kind & 2;
        float alpha = 1.5f, beta = kind & 4 ? 0.5f : 0.0f;
        std::vector<float> wanted = c;
        for (int e = 0; e < batch; ++e)
            for (int i = 0; i < m; ++i)
                for (int j = 0; j < n; ++j) {
                    float sum = 0;
                    for (int l = 0; l < k; ++l)
                        sum +=
                            a[e * m * k + (ta ? i * k + l : l * m + i)] * b[e * k * n + (tb ? l * n + j : j * k + l)];
                    float &to = wanted[e * ldc * n + j * ldc + i];
                    to = alpha * sum + (beta != 0 ? beta * to : 0);
                }
        OK(cudaMemcpy(dc, c.data(), c.size() * 4, cudaMemcpyHostToDevice));
        EXPECT(cublasGemmStridedBatchedEx(handle, ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb ? CUBLAS_OP_T : CUBLAS_OP_N, m, n,
                                          k, &alpha, da, CUDA_R_32F, ta ? k : m, m * k, db, CUDA_R_32F, tb ? n : k,
                                          k * n, &beta, dc, CUDA_R_32F, ldc, ldc * n, batch, CUBLAS_COMPUTE_32F,
                                          CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS);
        OK(cudaStreamSynchronize(s));
        expect_close("cublasGemmStridedBatchedEx", download(dc, c.size()), wanted, 1e-6);
    }
    float one = 1, zero = 0;
    auto sgemm = [&](int lda) {
        return cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &one, da, lda, db, k, &zero, dc, m);
    };
    EXPECT(sgemm(m - 1) == CUBLAS_STATUS_INVALID_VALUE && sgemm(m) == CUBLAS_STATUS_SUCCESS);
    EXPECT(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, da, CUDA_R_32F, 1, db, CUDA_R_16F, 1, &zero,
                        dc, CUDA_R_32F, 1, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_NOT_SUPPORTED);
    std::vector<double> two(1, 2.0);
    double *dd = upload(two), alpha = 3, beta = 0, *out;
    OK(cudaMalloc(&out, 8));
    EXPECT(cublasDgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, 1, 1, 1, &alpha, dd, 1, dd, 1, &beta, out, 1) ==
           CUBLAS_STATUS_SUCCESS);
    OK(cudaStreamSynchronize(s));
    EXPECT(download(out, 1)[0] == 12);
    for (void *p : {(void *)da, (void *)db, (void *)dc, (void *)dd, (void *)out}) OK(cudaFree(p));
    EXPECT(cublasDestroy(handle) == CUBLAS_STATUS_SUCCESS);
    OK(cudaStreamDestroy(s));
}

/* What cublasLtMatmul is told of d [m, n] = a b^T + beta d, with a [m, k] and b [n, k] in memory, in f32. */
struct LtProduct {
    int m, n, k;
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t a, b, d;
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t best;
    LtProduct(int m, int n, int k, cublasLtEpilogue_t epilogue, void *vector) : m(m), n(n), k(k)
    {
        const int32_t transposed = CUBLAS_OP_T;
        const uint32_t chosen = epilogue, scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
        EXPECT(cublasLtMatmulDescInit(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
        set(CUBLASLT_MATMUL_DESC_TRANSB, &transposed, sizeof transposed);
        set(CUBLASLT_MATMUL_DESC_EPILOGUE, &chosen, sizeof chosen);
        set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, sizeof vector);
        cublasLtMatrixLayoutInit(&a, CUDA_R_32F, static_cast<uint64_t>(m), static_cast<uint64_t>(k), m);
        cublasLtMatrixLayoutInit(&b, CUDA_R_32F, static_cast<uint64_t>(n), static_cast<uint64_t>(k), n);
        cublasLtMatrixLayoutInit(&d, CUDA_R_32F, static_cast<uint64_t>(m), static_cast<uint64_t>(n), m);
        cublasLtMatmulPreferenceInit(&preference);
        cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme,
                                             sizeof scheme);
    }
    void set(cublasLtMatmulDescAttributes_t attribute, const void *value, size_t bytes)
    {
        EXPECT(cublasLtMatmulDescSetAttribute(&desc, attribute, value, bytes) == CUBLAS_STATUS_SUCCESS);
    }
    cublasStatus_t choose(cublasHandle_t handle)
    {
        int found = 0;
        return choose(handle, 1, &best, &found);
    }
    cublasStatus_t choose(cublasHandle_t handle, int wanted, cublasLtMatmulHeuristicResult_t *answers, int *found)
    {
        return cublasLtMatmulAlgoGetHeuristic(reinterpret_cast<cublasLtHandle_t>(handle), &desc, &a, &b, &d, &d,
                                              &preference, wanted, answers, found);
    }
    cublasStatus_t check(cublasHandle_t handle, const cublasLtMatmulAlgo_t *algorithm)
    {
        cublasLtMatmulHeuristicResult_t about;
        return cublasLtMatmulAlgoCheck(reinterpret_cast<cublasLtHandle_t>(handle), &desc, &a, &b, &d, &d, algorithm,
                                       &about);
    }
    cublasStatus_t multiply(cublasHandle_t handle, const float *at_a, const float *at_b, float beta, float *at_d)
    {
        const float one = 1;
        return cublasLtMatmul(reinterpret_cast<cublasLtHandle_t>(handle), &desc, &one, at_a, &a, at_b, &b, &beta, at_d,
                              &d, at_d, &d, &best.algo, nullptr, 0, nullptr);
    }
};

/* Several algorithms for one product: each takes its time of the pretended clock; one that is asked for beyond the last
   is none, and one for another product is found out. */
static void try_algorithms(cublasHandle_t handle, const float *a, const float *b, float *d)
{
    enum { ASKED = CUDASIM_ALGORITHMS + 3 };
    LtProduct p(5, 7, 3, CUBLASLT_EPILOGUE_DEFAULT, nullptr), other(5, 7, 2, CUBLASLT_EPILOGUE_DEFAULT, nullptr);
    cublasLtMatmulHeuristicResult_t answers[ASKED];
    cudaEvent_t event[2];
    double times[CUDASIM_TIMES] = {};
    int found = 0;
    for (int i = 0; i < CUDASIM_ALGORITHMS; ++i) times[CUDASIM_TIME_OF_ALGORITHM + i] = 10 - i;
    cudasim_pretend_times(times);
    for (cudaEvent_t &e : event) OK(cudaEventCreate(&e));
    EXPECT(p.choose(handle, ASKED, answers, &found) == CUBLAS_STATUS_SUCCESS && found == CUDASIM_ALGORITHMS + 1);
    EXPECT(answers[CUDASIM_ALGORITHMS].state != CUBLAS_STATUS_SUCCESS);
    for (int i = 0; i < CUDASIM_ALGORITHMS; ++i) {
        float milliseconds = 0;
        p.best = answers[i];
        OK(cudaEventRecord(event[0], nullptr));
        EXPECT(p.check(handle, &p.best.algo) == CUBLAS_STATUS_SUCCESS);
        EXPECT(other.check(handle, &p.best.algo) == CUBLAS_STATUS_INVALID_VALUE);
        EXPECT(p.multiply(handle, a, b, 0, d) == CUBLAS_STATUS_SUCCESS);
        OK(cudaEventRecord(event[1], nullptr));
        OK(cudaEventSynchronize(event[1]));
        OK(cudaEventElapsedTime(&milliseconds, event[0], event[1]));
        EXPECT(milliseconds > 9.99f - static_cast<float>(i) && milliseconds < 10.01f - static_cast<float>(i));
        EXPECT(cudasim_last_algorithm() == i);
    }
    for (cudaEvent_t e : event) OK(cudaEventDestroy(e));
    cudasim_pretend_times(nullptr);
}

/* Each epilogue against a loop. */
static void try_cublaslt()
{
    const int m = 5, n = 7, k = 3;
    cublasHandle_t handle;
    EXPECT(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
    std::vector<float> a = numbers(m * k), b = numbers(n * k), d = numbers(m * n), bias = numbers(n);
    float *da = upload(a), *db = upload(b), *dd = upload(d), *dv = upload(bias);
    for (cublasLtEpilogue_t epilogue : {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BGRADA,
                                        CUBLASLT_EPILOGUE_BGRADB}) {
        std::vector<float> wanted = d, vector = bias;
        for (int i = 0; i < m; ++i)
            for (int j = 0; j < n; ++j) {
                float sum = 0, sum_a = 0, sum_b = 0;
                for (int l = 0; l < k; ++l) {
                    sum += a[l * m + i] * b[l * n + j];
                    sum_a += a[l * m + i];
                    sum_b += b[l * n + j];
                }
                wanted[j * m + i] = sum + 0.5f * d[j * m + i] + (epilogue == CUBLASLT_EPILOGUE_BIAS ? bias[i] : 0);
                if (epilogue == CUBLASLT_EPILOGUE_BGRADA) vector[i] = sum_a;
                if (epilogue == CUBLASLT_EPILOGUE_BGRADB) vector[j] = sum_b;
            }
        OK(cudaMemcpy(dd, d.data(), d.size() * 4, cudaMemcpyHostToDevice));
        OK(cudaMemcpy(dv, bias.data(), bias.size() * 4, cudaMemcpyHostToDevice));
        LtProduct p(m, n, k, epilogue, dv);
        EXPECT(p.choose(handle) == CUBLAS_STATUS_SUCCESS && p.best.workspaceSize == 0);
        EXPECT(p.multiply(handle, da, db, 0.5f, dd) == CUBLAS_STATUS_SUCCESS);
        OK(cudaDeviceSynchronize());
        expect_close("cublasLtMatmul", download(dd, d.size()), wanted, 1e-6);
        expect_close("its epilogue", download(dv, bias.size()), vector, 1e-6);
    }
    try_algorithms(handle, da, db, dd);
    LtProduct without(m, n, k, CUBLASLT_EPILOGUE_BIAS, nullptr);
    EXPECT(without.choose(handle) == CUBLAS_STATUS_SUCCESS);
    EXPECT(without.multiply(handle, da, db, 0, dd) == CUBLAS_STATUS_INVALID_VALUE);
    LtProduct unlike(m, n, k, CUBLASLT_EPILOGUE_DEFAULT, nullptr);
    cublasLtMatrixLayoutInit(&unlike.b, CUDA_R_32F, n, k + 1, n);
    EXPECT(unlike.choose(handle) == CUBLAS_STATUS_INVALID_VALUE);
    for (void *p : {da, db, dd, dv}) OK(cudaFree(p));
    EXPECT(cublasDestroy(handle) == CUBLAS_STATUS_SUCCESS);
}

/* Fragments as the tables of NVIDIA's manual have them, for mma.m16n8k16: lane T holds in a0 .. a7, b0 .. b3, c0 .. c3

       a    row T / 4 for a0 a1 a4 a5, else T / 4 + 8    column T % 4 * 2 + (i & 1), for a4 .. a7 plus 8
       b    row T % 4 * 2 + (i & 1), for b2 b3 plus 8    column T / 4
       c    row T / 4 for c0 c1, else T / 4 + 8          column T % 4 * 2 + (i & 1)

   two 16-bit numbers in a register, the first one in its lower half.  All numbers are small integers. */
static unsigned short half_bits(bool bf16, int x)
{
    return bf16 ? __bfloat16_as_ushort(__float2bfloat16_rn(static_cast<float>(x)))
                : __half_as_ushort(__float2half_rn(static_cast<float>(x)));
}
static void try_fragments(bool bf16)
{
    int a[16][16], b[16][8], c[16][8];
    for (int i = 0; i < 16; ++i)
        for (int j = 0; j < 16; ++j) a[i][j] = (i * 5 + j * 3 + i * j) % 11 - 5;
    for (int i = 0; i < 16; ++i)
        for (int j = 0; j < 8; ++j) b[i][j] = (i * 7 + j * 2 + i * j) % 13 - 6, c[i][j] = i - 3 * j;
    std::vector<unsigned> in_a(32 * 4), in_b(32 * 2);
    std::vector<float> in_c(32 * 4), wanted(32 * 4);
    for (int T = 0; T < 32; ++T) {
        for (int i = 0; i < 8; ++i) {
            const int row = i < 2 || (4 <= i && i < 6) ? T / 4 : T / 4 + 8;
            const int column = T % 4 * 2 + (i & 1) + (i < 4 ? 0 : 8);
            in_a[T * 4 + i / 2] |= unsigned(half_bits(bf16, a[row][column])) << (i % 2 * 16);
        }
        for (int i = 0; i < 4; ++i) {
            const int row = T % 4 * 2 + (i & 1) + (i < 2 ? 0 : 8);
            in_b[T * 2 + i / 2] |= unsigned(half_bits(bf16, b[row][T / 4])) << (i % 2 * 16);
        }
        for (int i = 0; i < 4; ++i) {
            const int row = i < 2 ? T / 4 : T / 4 + 8, column = T % 4 * 2 + (i & 1);
            int sum = c[row][column];
            for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
            in_c[T * 4 + i] = static_cast<float>(c[row][column]);
            wanted[T * 4 + i] = static_cast<float>(sum);
        }
    }
    unsigned *da = upload(in_a), *db = upload(in_b);
    float *dc = upload(in_c);
    OK(multiply_fragments(dc, da, db, bf16));
    expect_close("product of fragments", download(dc, 128), wanted, 0);
    for (void *p : {(void *)da, (void *)db, (void *)dc}) OK(cudaFree(p));
}
/* ldmatrix.x4: of each of four matrices [8, 8], whose rows lanes 8 m .. 8 m + 7 give, lane T gets the elements T % 4 *
   2 and the next one of row T / 4; with .trans, of the transposed matrix. */
static void try_load_fragments(bool transposed)
{
    std::vector<unsigned short> rows(32 * 8);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<unsigned short>(1000 + i);
    unsigned short *from = upload(rows);
    unsigned *x = upload(std::vector<unsigned>(128));
    OK(load_fragments(x, from, transposed));
    const std::vector<unsigned> got = download(x, 128);
    for (int T = 0; T < 32; ++T)
        for (int m = 0; m < 4; ++m)
            for (int i = 0; i < 2; ++i) {
                const int row = T / 4, column = T % 4 * 2 + i;
                const int at = transposed ? (8 * m + column) * 8 + row : (8 * m + row) * 8 + column;
                expect((got[T * 4 + m] >> (16 * i) & 0xffff) == rows[at], "loaded fragment");
            }
    OK(cudaFree(from));
    OK(cudaFree(x));
}
static void try_copy_async(Bug bug = Bug::none)
{
    std::vector<float> x = numbers(260), wanted(512);
    for (int i = 0; i < 256; ++i) wanted[i] = x[i];
    float *dx = upload(x), *out = fresh(512);
    OK(copy_async(out, dx, bug));
    expect_close("asynchronous copies", download(out, 512), wanted, 0);
    OK(cudaFree(dx));
    OK(cudaFree(out));
}

/* Two streams with an event between them, pinned buffers, cudaMallocAsync, both devices. */
static void try_streams()
{
    const size_t n = 1000, bytes = n * sizeof(float);
    cudaStream_t s = new_stream(), t = new_stream();
    cudaEvent_t ready, done;
    OK(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
    OK(cudaEventCreate(&done));
    float *in = pinned(n), *back = pinned(n), *x, *y;
    std::vector<float> wanted = numbers(n);
    for (size_t i = 0; i < n; ++i) in[i] = wanted[i];
    for (float &v : wanted) v *= 4;
    OK(cudaMallocAsync(&x, bytes, s));
    OK(cudaMallocAsync(&y, bytes, t));
    OK(cudaMemcpyAsync(x, in, bytes, cudaMemcpyHostToDevice, s));
    OK(add(x, x, x, n, s));
    OK(cudaEventRecord(ready, s));
    OK(cudaStreamWaitEvent(t, ready, 0));
    OK(add(y, x, x, n, t));
    OK(cudaMemcpyAsync(back, y, bytes, cudaMemcpyDeviceToHost, t));
    OK(cudaEventRecord(done, t));
    OK(cudaStreamWaitEvent(s, done, 0));
    OK(cudaFreeAsync(x, s));
    OK(cudaFreeAsync(y, t));
    OK(cudaEventSynchronize(done));
    expect_close("streams", std::vector<float>(back, back + n), wanted, 0);
    OK(cudaDeviceSynchronize());

    int can = 0;
    OK(cudaDeviceCanAccessPeer(&can, 0, 1));
    EXPECT(can == 1);
    float *here = upload(wanted);
    OK(cudaSetDevice(1));
    float *there = fresh(n);
    OK(cudaMemcpyPeerAsync(there, 1, here, 0, bytes, nullptr));
    expect_close("peer copy", download(there, n), wanted, 0);
    OK(cudaDeviceEnablePeerAccess(0, 0));
    OK(add(there, here, here, n));
    EXPECT(download(there, n)[3] == 2 * wanted[3]);
    OK(cudaFree(there));
    OK(cudaSetDevice(0));
    OK(cudaFree(here));
    OK(cudaEventDestroy(ready));
    OK(cudaEventDestroy(done));
    OK(cudaFreeHost(in));
    OK(cudaFreeHost(back));
    OK(cudaStreamDestroy(s));
    OK(cudaStreamDestroy(t));
}
static void try_fault()
{
    float *p = fresh(4), *q;
    cudasim_fault(cudaErrorIllegalAddress);
    EXPECT(cudaMalloc(&q, 4) == cudaErrorIllegalAddress && cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    EXPECT(cudaFree(p) == cudaErrorIllegalAddress && cudaSetDevice(0) == cudaErrorIllegalAddress);
    cudasim_fault(0);
    EXPECT(cudaGetLastError() == cudaErrorIllegalAddress && cudaGetLastError() == cudaSuccess);
    OK(cudaFree(p));
    CUDASIM_CHECK_CALL(0);
}
static void try_graph()
{
    const size_t n = 100;
    cudaStream_t s = new_stream();
    std::vector<float> x = numbers(n), wanted = x;
    for (float &v : wanted) v *= 8;
    float *dx = upload(x);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    OK(add(dx, dx, dx, n, s));
    OK(cudaStreamEndCapture(s, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; ++i) OK(cudaGraphLaunch(exec, s));
    OK(cudaStreamSynchronize(s));
    expect_close("graph", download(dx, n), wanted, 0);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));

    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    void *p;
    EXPECT(cudaMalloc(&p, 4) == cudaErrorStreamCaptureUnsupported);
    EXPECT(cudaStreamEndCapture(s, &graph) == cudaErrorStreamCaptureInvalidated);
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    EXPECT(cudaStreamSynchronize(s) == cudaErrorStreamCaptureUnsupported);
    EXPECT(cudaStreamEndCapture(s, &graph) == cudaErrorStreamCaptureInvalidated);
    for (cudaStreamCaptureMode mode : {cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed}) {
        OK(cudaStreamBeginCapture(s, mode)); /* of this thread, and what another one may do meanwhile */
        cudaError_t wait = cudaSuccess, end = cudaSuccess;
        std::thread([&] {
            wait = cudaDeviceSynchronize();
            end = cudaStreamEndCapture(s, &graph);
        }).join();
        EXPECT(wait == cudaErrorStreamCaptureUnsupported);
        const bool relaxed = mode == cudaStreamCaptureModeRelaxed;
        EXPECT(end == (relaxed ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureWrongThread));
        if (!relaxed) EXPECT(cudaStreamEndCapture(s, &graph) == cudaErrorStreamCaptureInvalidated);
        OK(cudaDeviceSynchronize());
    }
    OK(cudaFree(dx));
    OK(cudaStreamDestroy(s));
}
/* Calls that must return the same error code as with NVIDIA's runtime. */
static void try_refusals()
{
    float *p = nullptr;
    EXPECT(launch_empty(1, 2048, 0) == cudaErrorInvalidConfiguration);
    EXPECT(launch_empty(0, 32, 0) == cudaErrorInvalidConfiguration);
    EXPECT(launch_empty(dim3(1, 70000), 32, 0) == cudaErrorInvalidConfiguration);
    EXPECT(launch_empty(1, 32, 49 << 10) == cudaErrorInvalidValue);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue && cudaGetLastError() == cudaSuccess);
    EXPECT(cudaMalloc(&p, size_t(4) << 30) == cudaErrorMemoryAllocation && !p);
    EXPECT(cudaSetDevice(2) == cudaErrorInvalidDevice);
    cudasim_fail_allocation(1);
    float *q;
    EXPECT(cudaMalloc(&p, 4) == cudaSuccess && cudaMalloc(&q, 4) == cudaErrorMemoryAllocation);
    cudasim_fail_call("cudaStreamCreateWithFlags", 0, cudaErrorUnknown);
    cudaStream_t s;
    EXPECT(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaErrorUnknown);
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    OK(cudaSetDevice(1));
    EXPECT(launch_empty(1, 32, 0, s) == cudaErrorInvalidResourceHandle);
    OK(cudaSetDevice(0));
    cudasim_limit_memory(0, 1000);
    EXPECT(cudaMalloc(&q, 1000) == cudaErrorMemoryAllocation);
    OK(cudaFreeAsync(p, s));
    OK(cudaMallocAsync(&q, 1000, s)); /* reuses what was freed in the stream */
    OK(cudaFree(q));
    OK(cudaStreamDestroy(s));
    EXPECT(cudasim_live(CUDASIM_DEVICE_ALLOCATIONS) == 0 && cudasim_live(CUDASIM_STREAMS) == 0);
    cudasim_keep_going(1);
    OK(cudaFree(nullptr));
    cudaFree(&p);
    EXPECT(cudasim_take_errors() == 1 &&
           std::string(cudasim_last_error()).find("no device allocation begins") != std::string::npos);
    cudaGetLastError();
}
static void everything()
{
    for (size_t n : {1, 5, 1000, 1024, 30003}) try_add(n);
    try_add_vectors();
    try_mean_variance();
    try_multiply();
    try_neighbours();
    try_histogram();
    try_total();
    try_total_by_last();
    try_row_sum();
    try_reverse();
    try_bf16();
    try_conversions();
    for (bool bf16 : {false, true}) try_fragments(bf16);
    for (bool transposed : {false, true}) try_load_fragments(transposed);
    try_copy_async();
    try_cublas();
    try_cublaslt();
    try_streams();
    try_fault();
    try_graph();
    try_refusals();
}

/* With TG_SIM_REUSE: memory that is freed is handed out again, and holds the patterns of cudasim_test.h; a program that
   writes what it reads gets right numbers. */
static void try_reuse()
{
    cudaStream_t s = new_stream();
    float *p, *q, *other;
    OK(cudaMallocAsync(&p, 4000, s));
    OK(cudaFreeAsync(p, s));
    OK(cudaMallocAsync(&other, 4004, s)); /* of another size */
    OK(cudaMallocAsync(&q, 4000, s));
    EXPECT(q == p && other != p);
    OK(cudaStreamSynchronize(s));
    EXPECT(download(reinterpret_cast<unsigned *>(q), 1000) == std::vector<unsigned>(1000, 0xffaaffaau));
    EXPECT(cudasim_live(CUDASIM_DEVICE_ALLOCATIONS) == 2);
    CUDASIM_BLOCK_FREED(q, s);
    OK(cudaStreamSynchronize(s));
    EXPECT(download(reinterpret_cast<unsigned *>(q), 1000) == std::vector<unsigned>(1000, 0xffddffddu));
    CUDASIM_BLOCK_GIVEN(q, s);
    std::vector<float> x = numbers(1000), wanted = x;
    float *dx = upload(x);
    for (float &v : wanted) v *= 4;
    OK(add(q, dx, dx, 1000, s));
    OK(add(q, q, q, 1000, s));
    OK(cudaStreamSynchronize(s));
    expect_close("reuse", download(q, 1000), wanted, 0);
    OK(cudaFreeAsync(q, s));
    OK(cudaFreeAsync(other, s));
    OK(cudaStreamSynchronize(s));
    OK(cudaFree(dx));
    OK(cudaStreamDestroy(s));
    EXPECT(cudasim_live(CUDASIM_DEVICE_ALLOCATIONS) == 0 && cudasim_live(CUDASIM_DEVICE_BYTES) == 0);
}

/* ---- mistakes of host code ---- */

static std::vector<float> ones(100, 1.0f);

static void host_reads_device() { printf("%g\n", static_cast<double>(*upload(ones))); }
static void host_writes_device() { *upload(ones) = 1; }
static void kernel_uses_freed()
{
    float *a = upload(ones), *b = upload(ones), *out = fresh(100);
    OK(cudaFree(b));
    OK(add(out, a, b, 100));
    OK(cudaDeviceSynchronize());
}
static void freed_in_another_stream()
{
    cudaStream_t s = new_stream(), t = new_stream();
    float *a = upload(ones), *out = fresh(100);
    OK(cudaFreeAsync(a, s));
    OK(add(out, a, a, 100, t));
    OK(cudaStreamSynchronize(s));
    OK(cudaStreamSynchronize(t));
}
static void used_before_allocated()
{
    cudaStream_t s = new_stream(), t = new_stream();
    float *a = upload(ones), *out;
    OK(cudaMallocAsync(&out, 400, s));
    OK(add(out, a, a, 100, t));
    OK(cudaStreamSynchronize(t));
}
static void freed_twice()
{
    float *a = upload(ones);
    OK(cudaFree(a));
    cudaFree(a);
}
static void freed_inside() { cudaFree(upload(ones) + 4); }
static void copy_too_long()
{
    std::vector<float> host(200);
    cudaMemcpy(host.data(), upload(ones), 800, cudaMemcpyDeviceToHost);
}
static void set_too_long()
{
    cudaMemset(upload(ones), 0, 404);
    cudaDeviceSynchronize();
}
static void wrong_kind()
{
    std::vector<float> host(100);
    cudaMemcpy(host.data(), upload(ones), 400, cudaMemcpyHostToDevice);
}
static void read_before_copied()
{
    cudaStream_t s = new_stream();
    float *a = upload(ones), *back = pinned(100);
    OK(cudaMemcpyAsync(back, a, 400, cudaMemcpyDeviceToHost, s));
    EXPECT(back[5] == 1);
}
static void overwritten_before_copied()
{
    cudaStream_t s = new_stream();
    float *a = fresh(100), *from = pinned(100);
    for (int i = 0; i < 100; ++i) from[i] = 1;
    OK(cudaMemcpyAsync(a, from, 400, cudaMemcpyHostToDevice, s));
    from[5] = 2;
}
static void read_without_event()
{
    cudaStream_t s = new_stream(), t = new_stream();
    float *a = upload(ones), *b = upload(ones), *c = fresh(100);
    OK(add(b, a, a, 100, s));
    OK(add(c, b, b, 100, t));
    OK(cudaStreamSynchronize(t));
    OK(cudaStreamSynchronize(s));
    expect_close("two streams", download(c, 100), std::vector<float>(100, 4.0f), 0);
}
static void overwritten_without_event()
{
    cudaStream_t s = new_stream(), t = new_stream();
    float *a = upload(ones), *b = fresh(100), *c = upload(std::vector<float>(100, 3.0f));
    OK(add(b, a, a, 100, s));
    OK(add(a, c, c, 100, t));
    OK(cudaStreamSynchronize(t));
    OK(cudaStreamSynchronize(s));
    expect_close("two streams", download(b, 100), std::vector<float>(100, 2.0f), 0);
}
static void copied_without_event()
{
    cudaStream_t s = new_stream(), t = new_stream();
    float *a = upload(ones), *back = pinned(100);
    OK(cudaMemsetAsync(a, 0, 400, s));
    OK(cudaMemcpyAsync(back, a, 400, cudaMemcpyDeviceToHost, t));
    OK(cudaStreamSynchronize(t));
    OK(cudaStreamSynchronize(s));
}
static void memory_of_another_device()
{
    float *a = upload(ones);
    OK(cudaSetDevice(1));
    float *out = fresh(100);
    OK(add(out, a, a, 100));
    OK(cudaDeviceSynchronize());
}
static void host_pointer_in_kernel()
{
    float *out = fresh(100);
    OK(add(out, ones.data(), ones.data(), 100));
    OK(cudaDeviceSynchronize());
}
static void uninitialised_input()
{
    float *a = fresh(100), *out = fresh(100);
    OK(add(out, a, a, 100));
    expect_close("uninitialised", download(out, 100), ones, 1e30);
}
/* Mistakes that give the right numbers, as long as nothing else uses the memory. */
static void kept_block_read_before_written()
{
    float *block = upload(ones), *out = fresh(100);
    CUDASIM_BLOCK_FREED(block, nullptr);
    CUDASIM_BLOCK_GIVEN(block, nullptr);
    OK(add(out, block, block, 100));
    expect_close("kept block", download(out, 100), std::vector<float>(100, 2.0f), 0);
}
static void kept_block_read_after_freed()
{
    float *block = upload(ones), *out = fresh(100);
    CUDASIM_BLOCK_FREED(block, nullptr);
    OK(add(out, block, block, 100));
    expect_close("freed block", download(out, 100), std::vector<float>(100, 2.0f), 0);
}
static void freed_and_used_by_another()
{
    cudaStream_t s = new_stream();
    float *x = upload(std::vector<float>(100, 0.5f)), *p, *q, *out = fresh(100);
    OK(cudaMallocAsync(&p, 400, s));
    OK(add(p, x, x, 100, s));
    OK(cudaFreeAsync(p, s));
    OK(cudaMallocAsync(&q, 400, s));
    OK(add(out, p, p, 100, s));
    OK(cudaStreamSynchronize(s));
    expect_close("freed and reused", download(out, 100), std::vector<float>(100, 2.0f), 0);
}
static void block_freed_while_another_stream_reads()
{
    cudaStream_t s = new_stream(), t = new_stream();
    float *block = upload(ones), *out = fresh(100);
    OK(add(out, block, block, 100, t));
    CUDASIM_BLOCK_FREED(block, s);
    OK(cudaStreamSynchronize(t));
    expect_close("read while it is freed", download(out, 100), std::vector<float>(100, 2.0f), 0);
}
static void uninitialised_copy()
{
    float *a = fresh(100), *copy = upload(ones), *out = fresh(100);
    OK(cudaMemcpy(copy, a, 400, cudaMemcpyDeviceToDevice));
    OK(add(out, copy, copy, 100));
    expect_close("uninitialised", download(out, 100), ones, 1e30);
}
static void stale_stream()
{
    cudaStream_t s = new_stream();
    OK(cudaStreamDestroy(s));
    cudaStreamSynchronize(s);
}
static void stale_event()
{
    cudaEvent_t e;
    OK(cudaEventCreate(&e));
    OK(cudaEventDestroy(e));
    cudaEventRecord(e, nullptr);
}
static void wrong_peer()
{
    float *a = upload(ones), *b = upload(ones);
    cudaMemcpyPeerAsync(b, 1, a, 0, 400, nullptr);
}
static void pageable_in_strict()
{
    float *a = fresh(100);
    cudaMemcpyAsync(a, ones.data(), 400, cudaMemcpyHostToDevice, nullptr);
}
static void something_left() { upload(ones); }
static void api_in_callback()
{
    OK(cudaLaunchHostFunc(
        nullptr, [](void *) { cudaDeviceSynchronize(); }, nullptr));
    OK(cudaDeviceSynchronize());
}
static void gemm(const float *a, const float *b, float *c, int device)
{
    float one = 1, zero = 0;
    cublasHandle_t handle;
    EXPECT(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
    OK(cudaSetDevice(device));
    cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 10, 10, 10, &one, a, 10, b, 10, &zero, c, 10);
    OK(cudaDeviceSynchronize());
}
/* A product of cuBLASLt with an algorithm that was chosen for operands like these, but for what the callers change. */
static void lt_product(int shift, int rows, size_t bias, uint32_t schemes)
{
    cublasHandle_t handle;
    EXPECT(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
    LtProduct p(10, 10, 10, CUBLASLT_EPILOGUE_BIAS, upload(std::vector<float>(bias, 1.0f)));
    cublasLtMatmulPreferenceSetAttribute(&p.preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, 4);
    EXPECT(p.choose(handle) == CUBLAS_STATUS_SUCCESS);
    cublasLtMatrixLayoutInit(&p.a, CUDA_R_32F, static_cast<uint64_t>(rows), 10, rows);
    cublasLtMatrixLayoutInit(&p.d, CUDA_R_32F, static_cast<uint64_t>(rows), 10, rows);
    p.multiply(handle, upload(std::vector<float>(200, 1.0f)) + shift, upload(ones), 0, fresh(100));
    OK(cudaDeviceSynchronize());
}
static void lt_less_aligned() { lt_product(1, 10, 10, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE); }
static void lt_of_another_product() { lt_product(0, 9, 10, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE); }
static void lt_bias_too_short() { lt_product(0, 10, 9, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE); }
static void lt_rounds_parts() { lt_product(0, 10, 10, CUBLASLT_REDUCTION_SCHEME_MASK); }

static void gemm_without_workspace() { gemm(upload(ones), upload(ones), fresh(100), 0); }
static void gemm_operand_too_short() { gemm(upload(ones) + 1, upload(ones), fresh(100), 0); }
static void gemm_result_too_short() { gemm(upload(ones), upload(ones), fresh(99), 0); }
static void gemm_uninitialised()
{
    float *c = fresh(100);
    gemm(upload(ones), fresh(100), c, 0);
    expect_close("gemm", download(c, 100), ones, 1e30);
}
static void gemm_handle_of_another_device() { gemm(upload(ones), upload(ones), fresh(100), 1); }
static void gemm_without_event()
{
    cudaStream_t s = new_stream();
    float *a = upload(ones);
    OK(cudaMemsetAsync(a, 0, 400, s));
    gemm(a, a, fresh(100), 0);
}

static void query_that_leaves_an_error()
{
    cudaStream_t s = new_stream();
    float *p = upload(ones);
    for (int k = 0; k < 2; ++k) OK(cudaMemsetAsync(p, 0, 400, s));
    EXPECT(cudaStreamQuery(s) == cudaErrorNotReady);
    CUDASIM_CHECK_CALL(0);
}

/* ---- the table ---- */

struct Mistake {
    const char *name;
    void (*run)();
    const char *words[3]; /* check, asan, plain; NULL: this build cannot find it */
    const char *order, *streams, *setting;
};
#define KERNEL(call) [] { call; }
#define EVERY(words)        \
    {                       \
        words, words, words \
    }
static const char *const wrong = "wrong result", *const race = "error: race:", *const bounds = "out of bounds";
static const char *const unordered = "error: nothing orders";
static const Mistake mistakes[] = {
    {"missing barrier: read after write", KERNEL(try_mean_variance(Bug::no_barrier_before_read)),
     {"uninitialised shared", wrong, wrong}, "fwd", "lazy", nullptr},
    {"missing barrier: reuse by a second call", KERNEL(try_mean_variance(Bug::no_barrier_before_reuse)),
     {race, nullptr, wrong}, "greedy:1", "lazy", nullptr},
    {"missing barrier: reuse in a loop", KERNEL(try_multiply(Bug::no_barrier_in_loop)),
     {race, wrong, wrong}, "fwd", "lazy", nullptr},
    {"missing __syncwarp", KERNEL(try_neighbours(Bug::no_syncwarp)),
     {"uninitialised shared", wrong, wrong}, "fwd", "lazy", nullptr},
    {"missing __syncwarp before a write", KERNEL(try_neighbours(Bug::no_syncwarp_before_write)),
     {race, wrong, wrong}, "fwd", "lazy", nullptr},
    {"no atomic, threads of a block", KERNEL(try_histogram(Bug::no_atomic_in_block)),
     {race, nullptr, nullptr}, "fwd", "lazy", nullptr},
    {"no atomic, between blocks", KERNEL(try_total(Bug::no_atomic_between_blocks)),
     {race, nullptr, nullptr}, "fwd", "lazy", nullptr},
    {"no fence before the block is counted", KERNEL(try_total_by_last(Bug::no_fence_between_blocks)),
     {race, nullptr, nullptr}, "fwd", "lazy", nullptr},
    {"no barrier before the block is counted", KERNEL(try_total_by_last(Bug::no_barrier_between_blocks)),
     {race, nullptr, nullptr}, "fwd", "lazy", nullptr},
    {"scratch that all blocks write", KERNEL(try_reverse(Bug::scratch_of_all_blocks)),
     {race, nullptr, in_turns ? wrong : nullptr}, "fwd", "lazy", nullptr},
    {"divergent barrier", KERNEL(try_histogram(Bug::divergent_barrier)),
     {race, "divergent barrier", "divergent barrier"}, "fwd", "lazy", nullptr},
    {"barriers of two lines", KERNEL(try_histogram(Bug::barriers_of_two_lines)),
     EVERY("divergent barrier"), "fwd", "lazy", nullptr},
    {"shuffle after a return", KERNEL(try_row_sum(Bug::shuffle_after_return)),
     EVERY("which have returned"), "fwd", "lazy", nullptr},
    {"mask without its caller", KERNEL(try_row_sum(Bug::mask_without_caller)),
     EVERY("does not name the calling lane"), "fwd", "lazy", nullptr},
    {"collectives that do not match", KERNEL(try_row_sum(Bug::mismatched_collectives)),
     EVERY("do not match"), "fwd", "lazy", nullptr},
    {"half a warp in a barrier, half in a shuffle", KERNEL(try_row_sum(Bug::barrier_against_shuffle)),
     EVERY("deadlock"), "fwd", "lazy", nullptr},
    {"write one past the end, at the page's end", KERNEL(try_add(1024, Bug::one_past_the_end)),
     {bounds, "AddressSanitizer", bounds}, "fwd", "lazy", nullptr},
    {"write one past the end, inside the page", KERNEL(try_add(1000, Bug::one_past_the_end)),
     {bounds, "AddressSanitizer", "past the end of device allocation"}, "fwd", "lazy", nullptr},
    {"write one past the end, five elements", KERNEL(try_add(5, Bug::one_past_the_end)),
     {bounds, "AddressSanitizer", "past the end of device allocation"}, "fwd", "lazy", nullptr},
    {"read before the start", KERNEL(try_add(1024, Bug::one_before_the_start)),
     {bounds, "AddressSanitizer", bounds}, "fwd", "lazy", nullptr},
    {"shared array out of bounds", KERNEL(OK(odd(fresh(64), Bug::static_shared_bounds)); OK(cudaDeviceSynchronize())),
     {"outside of its array", "runtime error: index", nullptr}, "fwd", "lazy", nullptr},
    {"dynamic shared memory out of bounds", KERNEL(try_histogram(Bug::dynamic_shared_bounds)),
     {"dynamic shared memory", "AddressSanitizer", "dynamic shared memory"}, "fwd", "lazy", nullptr},
    {"shared memory that nothing wrote",
     KERNEL(OK(odd(fresh(64), Bug::static_shared_unwritten)); OK(cudaDeviceSynchronize())),
     {"uninitialised shared", nullptr, nullptr}, "fwd", "lazy", nullptr},
    {"dynamic shared memory that nothing wrote", KERNEL(try_histogram(Bug::dynamic_shared_unwritten)),
     {"uninitialised shared", wrong, wrong}, "fwd", "lazy", nullptr},
    {"kernel writes a global variable", KERNEL(OK(odd(fresh(64), Bug::writes_global)); OK(cudaDeviceSynchronize())),
     {"writes a global variable", nullptr, nullptr}, "fwd", "lazy", nullptr},
    {"misaligned float4", KERNEL(try_add_vectors(Bug::misaligned_vector)), EVERY("misaligned"), "fwd", "lazy", nullptr},
    {"asynchronous copy that is not waited for", KERNEL(try_copy_async(Bug::no_wait_for_copy)),
     {race, wrong, wrong}, "fwd", "lazy", nullptr},
    {"asynchronous copy read by others before a barrier", KERNEL(try_copy_async(Bug::no_barrier_after_copy)),
     {"shared memory", wrong, wrong}, "fwd", "lazy", nullptr},
    {"asynchronous copy from a misaligned address", KERNEL(try_copy_async(Bug::misaligned_copy)),
     EVERY("misaligned"), "fwd", "lazy", nullptr},
    {"asynchronous copy that outlives its thread", KERNEL(try_copy_async(Bug::unfinished_copy)),
     EVERY("of its asynchronous copies"), "fwd", "lazy", nullptr},
    {"kernel overruns its stack", KERNEL(OK(odd(fresh(64), Bug::deep_stack)); OK(cudaDeviceSynchronize())),
     EVERY("overran its stack"), "fwd", "lazy", nullptr},
    {"host reads device memory", host_reads_device, EVERY("host code touched device"), "fwd", "lazy", nullptr},
    {"host writes device memory", host_writes_device, EVERY("host code touched device"), "fwd", "lazy", nullptr},
    {"kernel uses freed memory", kernel_uses_freed,
     {"is freed", "AddressSanitizer", "is freed"}, "fwd", "lazy", nullptr},
    {"freed in another stream", freed_in_another_stream,
     {"is freed", "AddressSanitizer", "is freed"}, "fwd", "lazy", nullptr},
    {"freed in another stream, used first", freed_in_another_stream,
     {unordered, nullptr, nullptr}, "fwd", "others", nullptr},
    {"used before allocated in stream order", used_before_allocated,
     EVERY("not yet allocated"), "fwd", "lazy", nullptr},
    {"freed twice", freed_twice, EVERY("twice"), "fwd", "lazy", nullptr},
    {"freed inside", freed_inside, EVERY("no device allocation begins"), "fwd", "lazy", nullptr},
    {"copy longer than the allocation", copy_too_long, EVERY("leave allocation"), "fwd", "lazy", nullptr},
    {"memset longer than the allocation", set_too_long, EVERY("leave allocation"), "fwd", "lazy", nullptr},
    {"copy of the wrong kind", wrong_kind, EVERY("its kind says otherwise"), "fwd", "lazy", nullptr},
    {"pinned buffer read before the copy", read_before_copied,
     EVERY("copy into it is pending"), "fwd", "lazy", nullptr},
    {"pinned buffer overwritten before the copy", overwritten_before_copied,
     EVERY("copy out of it is pending"), "fwd", "lazy", nullptr},
    {"read without an event", read_without_event, {unordered, wrong, wrong}, "fwd", "lazy", nullptr},
    {"read without an event, in the order that works", read_without_event,
     {unordered, nullptr, nullptr}, "fwd", "others", nullptr},
    {"overwritten without an event", overwritten_without_event, {unordered, wrong, wrong}, "fwd", "lazy", nullptr},
    {"overwritten without an event, in the order that works", overwritten_without_event,
     {unordered, nullptr, nullptr}, "fwd", "others", nullptr},
    {"copied without an event", copied_without_event, EVERY(unordered), "fwd", "lazy", nullptr},
    {"copied without an event, run at once", copied_without_event, EVERY(unordered), "fwd", "eager", nullptr},
    {"memory of another device", memory_of_another_device, EVERY("memory of device 0"), "fwd", "lazy", nullptr},
    {"host pointer in a kernel", host_pointer_in_kernel,
     {"touches host memory", nullptr, nullptr}, "fwd", "lazy", nullptr},
    {"uninitialised input", uninitialised_input, {"uninitialised global", wrong, wrong}, "fwd", "lazy", nullptr},
    {"kept block read before it is written", kept_block_read_before_written,
     {"uninitialised global", wrong, wrong}, "fwd", "lazy", "TG_SIM_REUSE"},
    {"kept block read after it was freed", kept_block_read_after_freed,
     {"uninitialised global", wrong, wrong}, "fwd", "lazy", "TG_SIM_REUSE"},
    {"freed memory that is used again", freed_and_used_by_another,
     {"uninitialised global", wrong, wrong}, "fwd", "lazy", "TG_SIM_REUSE"},
    {"block freed while another stream reads it", block_freed_while_another_stream_reads,
     {unordered, wrong, wrong}, "fwd", "others", "TG_SIM_REUSE"},
    {"copy of uninitialised memory", uninitialised_copy,
     {"uninitialised global", wrong, wrong}, "fwd", "lazy", nullptr},
    {"stream used after its end", stale_stream, EVERY("stream that does not exist"), "fwd", "lazy", nullptr},
    {"event used after its end", stale_event, EVERY("event that does not exist"), "fwd", "lazy", nullptr},
    {"peer copy that names the wrong device", wrong_peer, EVERY("the call says"), "fwd", "lazy", nullptr},
    {"pageable memory, strict", pageable_in_strict, EVERY("pageable"), "fwd", "lazy", "TG_SIM_STRICT"},
    {"leak", something_left, EVERY("1 device allocations"), "fwd", "lazy", "TG_SIM_LEAKS"},
    {"call that leaves an error", KERNEL(cudaSetDevice(99); CUDASIM_CHECK_CALL(0)),
     EVERY("has left the error 'invalid device ordinal'"), "fwd", "lazy", nullptr},
    {"query that leaves 'not ready'", query_that_leaves_an_error,
     EVERY("has left the error 'device not ready'"), "fwd", "lazy", nullptr},
    {"call that changes the device", KERNEL(cudaSetDevice(1); CUDASIM_CHECK_CALL(0)),
     EVERY("has left device 1 as the current one"), "fwd", "lazy", nullptr},
    {"API in a host function", api_in_callback, EVERY("from within an operation"), "fwd", "lazy", nullptr},
    {"cuBLAS: no workspace, strict", gemm_without_workspace, EVERY("other bits"), "fwd", "lazy", "TG_SIM_STRICT"},
    {"cuBLAS: operand too short", gemm_operand_too_short, EVERY("leave allocation"), "fwd", "lazy", nullptr},
    {"cuBLAS: result too short", gemm_result_too_short, EVERY("leave allocation"), "fwd", "lazy", nullptr},
    {"cuBLASLt: operand less aligned", lt_less_aligned, EVERY("was chosen for 256"), "fwd", "lazy", nullptr},
    {"cuBLASLt: another product", lt_of_another_product, EVERY("another product"), "fwd", "lazy", nullptr},
    {"cuBLASLt: bias too short", lt_bias_too_short, EVERY("leave allocation"), "fwd", "lazy", nullptr},
    {"cuBLASLt: rounded parts, strict", lt_rounds_parts, EVERY("partial sums"), "fwd", "lazy", "TG_SIM_STRICT"},
    {"cuBLAS: uninitialised operand", gemm_uninitialised, {"uninitialised", wrong, wrong}, "fwd", "lazy", nullptr},
    {"cuBLAS: handle of another device", gemm_handle_of_another_device,
     EVERY("handle belongs to device 0"), "fwd", "lazy", nullptr},
    {"cuBLAS: no event", gemm_without_event, EVERY(unordered), "fwd", "others", nullptr},
};

/* Runs it in a process of its own; returns what it printed, and its exit code in *code. */
static std::string run_apart(void (*run)(), const char *order, const char *streams, const char *setting, int *code)
{
    int ends[2];
    std::string text;
    fflush(stdout);
    if (pipe(ends)) return text;
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        close(ends[0]);
        setenv("TG_SIM_ORDER", order, 1);
        setenv("TG_SIM_STREAMS", streams, 1);
        if (setting) setenv(setting, "1", 1);
        run();
        fflush(stdout);
        exit(all_right ? 0 : 1);
    }
    close(ends[1]);
    char part[4096];
    for (ssize_t n; (n = read(ends[0], part, sizeof part)) > 0;) text.append(part, static_cast<size_t>(n));
    close(ends[0]);
    waitpid(child, code, 0);
    *code = WIFEXITED(*code) ? WEXITSTATUS(*code) : 128 + WTERMSIG(*code);
    return text;
}

/* ---- the report ---- */

static void try_report()
{
    float *x = upload(numbers(8 * 1024)), *out = fresh(1024);
    OK(add(out, x, x + 1024, 1024));
    OK(every(out, x, 8, 1024));
    OK(every(out, x + 1, 1, 64));
    OK(add_vectors(out, x, x + 1024, 1024));
    OK(transpose(out, x, 32));
    OK(transpose(out, x, 33));
    OK(transpose(out, x, 33));
    OK(cudaDeviceSynchronize());
    EXPECT(cudasim_total(CUDASIM_KERNELS) == 7 && cudasim_total(CUDASIM_DRIVER_ALLOCATIONS) == 2);
    EXPECT(cudasim_total(CUDASIM_COPIES) >= 1 && cudasim_total(CUDASIM_WAITS) >= 1);
    EXPECT(cudasim_total(CUDASIM_LIBRARY_CALLS) == 0);
}

/* What the report must say of these kernels, worked out by hand.  A load of 128 bytes that begins a float
   after a sector moves 5 sectors; a store that begins with one moves 4. */
static int report_is_right()
{
    static const char *const wanted[] = {
        "2 4352 4352 4.301 0 1 k_every", /* (32 + 4) sectors for 256 bytes, 32 times; (5 + 4) for 256, twice */
        "1 8192 4096 1.000 0 2 k_add",   /* 512 floats by each of 2 blocks of 128 threads */
        "1 8192 4096 1.000 0 1 k_add_vectors",
        "3 12288 12288 1.000 992 32 k_transpose",
    };
    const char *const path = "selftest_report.txt";
    int code, wrong = 0;
    setenv("TG_SIM_REPORT", path, 1);
    const std::string text = run_apart(try_report, "fwd", "lazy", nullptr, &code);
    unsetenv("TG_SIM_REPORT");
    std::string report;
    char line[512];
    if (FILE *file = fopen(path, "r")) {
        while (fgets(line, sizeof line, file)) report += line;
        fclose(file);
        remove(path);
    }
    for (const char *w : wanted) wrong += report.find(w) == std::string::npos;
    if (code || wrong) printf("FAILED: the report (exit %d)\n%s%s", code, text.c_str(), report.c_str());
    return code == 0 && !wrong;
}

int main(int argc, char **argv)
{
    int passed = 0, failed = 0, out_of_sight = 0, code;
    for (const char *variable : {"TG_SIM_DEVICES", "TG_SIM_MEMORY", "TG_SIM_FAIL_ALLOC", "TG_SIM_PEER",
                                 "TG_SIM_KEEP_GOING", "TG_SIM_STRICT", "TG_SIM_LEAKS", "TG_SIM_STREAM_CHECK",
                                 "TG_SIM_REPORT", "TG_SIM_BLOCKS", "TG_SIM_REUSE"})
        unsetenv(variable);
    for (const char *order : {"fwd", "rev", "rand:1", "greedy:1"})
        for (const char *streams : {"lazy", "others", "eager"}) {
            if (argc > 1) break;
            if (build == 0 || in_turns) setenv("TG_SIM_BLOCKS", order[0] == 'r' ? "3" : "1", 1);
            std::string text = run_apart(everything, order, streams, nullptr, &code);
            if (code == 0) {
                ++passed;
                continue;
            }
            ++failed;
            printf("FAILED: right programs, order %s, streams %s (exit %d)\n%s\n", order, streams, code, text.c_str());
        }
    setenv("TG_SIM_BLOCKS", in_turns ? "3" : "1", 1);
    int clean = passed, found = 0;
    if (argc == 1) {
        const std::string text = run_apart(try_reuse, "rev", "others", "TG_SIM_REUSE", &code);
        (code == 0 ? passed : failed) += 1;
        if (code) printf("FAILED: memory that is used again (exit %d)\n%s", code, text.c_str());
    }
    if (build == 0 && argc == 1) (report_is_right() ? passed : failed) += 1;
    for (const Mistake &mistake : mistakes) {
        const char *words = mistake.words[build];
        if (argc > 1 && !strstr(mistake.name, argv[1])) continue;
        if (!words) {
            ++out_of_sight;
            continue;
        }
        std::string text = run_apart(mistake.run, mistake.order, mistake.streams, mistake.setting, &code);
        bool ok = code != 0 && text.find(words) != std::string::npos;
        (ok ? passed : failed) += 1;
        found += ok;
        if (!ok)
            printf("FAILED: not found: %s (exit %d, wanted \"%s\")\n%s\n", mistake.name, code, words, text.c_str());
        if (ok && argc > 1) printf("%s\n%s", mistake.name, text.c_str());
    }
    printf("simulator: %d of 12 clean runs, %d mistakes found, %d that this build cannot find\n", clean, found,
           out_of_sight);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
