/* The simulated cuBLAS and cuBLASLt: checks its arguments, then multiplies with plain loops.  Most of the time goes
   here, so it is compiled with optimisation and without sanitizers in every build; it checks the memory of its operands
   itself. */
#include "cublasLt.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "internal.h"

#include <algorithm>
#include <cmath>

using namespace cudasim;

struct cublasContext {
    cudaStream_t stream;
    int device;
    cublasMath_t math;
    char *workspace; /* set by the user, or NULL: then results may depend on what other streams do */
    size_t workspace_bytes;
    cublasAtomicsMode_t atomics;
};

namespace
{
/* One operand: `batch` matrices [rows, columns] in column-major order, with leading dimension `leading`. */
struct Matrix {
    const void *data;
    cudaDataType type;
    int rows, columns, leading;
    long long stride;
    bool transposed;
    const char *name;
};
struct Product {
    Matrix a, b, c; /* as they are in memory, not transposed */
    int m, n, k, batch;
    double alpha, beta;
    cublasComputeType_t compute;
    uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    Matrix vector = {}; /* of the epilogue, one column: a bias [m], or the sums of A's rows [m], of B's columns [n] */
    Matrix z = {};      /* the argument of gelu, like C: written by GELU_AUX, read by DGELU */
    int algorithm = -1; /* of cuBLASLt; those with odd numbers add up from the end */
};
int last_algorithm = -1;

size_t size_of(cudaDataType type) { return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2; }

const char *column_of(const Matrix &x, int batch, int column)
{
    long long element = batch * x.stride + static_cast<long long>(column) * x.leading;
    return static_cast<const char *>(x.data) + element * static_cast<long long>(size_of(x.type));
}

template <class T> T load(const char *p, cudaDataType type)
{
    float f;
    double d;
    unsigned short h;
    switch (type) {
    case CUDA_R_64F: memcpy(&d, p, sizeof d); return static_cast<T>(d);
    case CUDA_R_16F: memcpy(&h, p, sizeof h); return __half2float(__ushort_as_half(h));
    case CUDA_R_16BF: memcpy(&h, p, sizeof h); return __bfloat162float(__ushort_as_bfloat16(h));
    default: memcpy(&f, p, sizeof f); return static_cast<T>(f);
    }
}
template <class T> void store(char *p, cudaDataType type, T value)
{
    float f = static_cast<float>(value);
    double d = value;
    unsigned short h;
    switch (type) {
    case CUDA_R_64F: memcpy(p, &d, sizeof d); break;
    case CUDA_R_16F:
        h = __half_as_ushort(__float2half_rn(f));
        memcpy(p, &h, sizeof h);
        break;
    case CUDA_R_16BF:
        h = __bfloat16_as_ushort(__float2bfloat16_rn(f));
        memcpy(p, &h, sizeof h);
        break;
    default: memcpy(p, &f, sizeof f);
    }
}

/* Rounds to TF32, with a fraction of 10 bits, if this is what a tensor core would compute with. */
template <class T> T round_input(T value, cublasComputeType_t compute)
{
    if (compute != CUBLAS_COMPUTE_32F_FAST_TF32) return value;
    float f = static_cast<float>(value);
    if (!(fabsf(f) <= 3e38f)) return value;
    uint32_t bits = bit_cast<uint32_t>(f);
    return static_cast<T>(bit_cast<float>((bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu));
}

/* Whether each column lies in one live allocation that the device can access.  Memory that is read must have been
   written. */
bool usable(const Matrix &x, int batches, bool write, const char *call)
{
    if (!x.rows || !x.columns) return true;
    size_t bytes = static_cast<size_t>(x.rows) * size_of(x.type);
    for (int batch = 0; batch < batches; ++batch)
        for (int column = 0; column < x.columns; ++column) {
            const char *p = column_of(x, batch, column);
            Allocation *a = use_range(p, bytes, now.device, write, call);
            if (!a) return false;
            if (write)
                check_written(*a, p, bytes);
            else if (!check_initialised(*a, p, bytes))
                fail("%s reads uninitialised device memory: operand %s, column %d, in allocation %d", call, x.name,
                     column, a->id);
        }
    return true;
}

/* Parts of an epilogue; the combinations that exist are in cublasLt.h. */
enum : uint32_t { HAS_BIAS = CUBLASLT_EPILOGUE_BIAS, HAS_GELU = CUBLASLT_EPILOGUE_GELU, HAS_AUX = 128, HAS_DGELU = 64 };
bool has(uint32_t epilogue, uint32_t part) { return (epilogue & part) != 0; }

/* gelu by tanh, and its derivative, written as in the documentation. */
template <class T> T gelu_tanh_of(T z) { return T(0.7978845608028654) * (z + T(0.044715) * z * z * z); }
template <class T> T gelu(T z) { return T(0.5) * z * (1 + std::tanh(gelu_tanh_of(z))); }
template <class T> T gelu_slope(T z)
{
    const T t = std::tanh(gelu_tanh_of(z));
    return T(0.5) * (1 + t) +
           T(0.5) * z * (1 - t * t) * T(0.7978845608028654) * (1 + 3 * T(0.044715) * z * z);
}

/* Stores the sums over k of the rows of a [m, k] or of the columns of b [k, n]. */
template <class T> void store_sums(const Product &p, const std::vector<T> &a, const std::vector<T> &b)
{
    const bool of_a = p.epilogue == CUBLASLT_EPILOGUE_BGRADA;
    size_t count = static_cast<size_t>(of_a ? p.m : p.n), k = static_cast<size_t>(p.k), m = static_cast<size_t>(p.m);
    char *to = const_cast<char *>(column_of(p.vector, 0, 0));
    for (size_t i = 0; i < count; ++i, to += size_of(p.vector.type)) {
        T sum = 0;
        for (size_t l = 0; l < k; ++l) sum += of_a ? a[l * m + i] : b[i * k + l];
        store<T>(to, p.vector.type, sum);
    }
}

template <class T> void multiply(const Product &p)
{
    size_t m = static_cast<size_t>(p.m), n = static_cast<size_t>(p.n), k = static_cast<size_t>(p.k);
    std::vector<T> a(m * k), b(k * n), sum(m); /* a [m, k], b [k, n], column-major, no longer transposed */
    for (int batch = 0; batch < p.batch; ++batch) {
        for (int column = 0; column < p.a.columns; ++column) {
            const char *from = column_of(p.a, batch, column);
            for (int row = 0; row < p.a.rows; ++row, from += size_of(p.a.type)) {
                size_t i = static_cast<size_t>(p.a.transposed ? column : row),
                       j = static_cast<size_t>(p.a.transposed ? row : column);
                a[j * m + i] = round_input(load<T>(from, p.a.type), p.compute);
            }
        }
        for (int column = 0; column < p.b.columns; ++column) {
            const char *from = column_of(p.b, batch, column);
            for (int row = 0; row < p.b.rows; ++row, from += size_of(p.b.type)) {
                size_t i = static_cast<size_t>(p.b.transposed ? column : row),
                       j = static_cast<size_t>(p.b.transposed ? row : column);
                b[j * k + i] = round_input(load<T>(from, p.b.type), p.compute);
            }
        }
        for (size_t j = 0; j < n; ++j) {
            std::fill(sum.begin(), sum.end(), T(0));
            for (size_t turn = 0; turn < k; ++turn) {
                const size_t l = p.algorithm > 0 && p.algorithm % 2 ? k - 1 - turn : turn;
                T factor = b[j * k + l];
                const T *column = &a[l * m];
                for (size_t i = 0; i < m; ++i) sum[i] += column[i] * factor;
            }
            char *to = const_cast<char *>(column_of(p.c, batch, static_cast<int>(j)));
            T alpha = static_cast<T>(p.alpha), beta = static_cast<T>(p.beta);
            const char *bias = static_cast<const char *>(p.vector.data);
            for (size_t i = 0; i < m; ++i, to += size_of(p.c.type)) { /* beta 0: c is not read, it may be NaN */
                T value = beta == 0 ? alpha * sum[i] : alpha * sum[i] + beta * load<T>(to, p.c.type);
                if (has(p.epilogue, HAS_BIAS)) value += load<T>(bias + i * size_of(p.vector.type), p.vector.type);
                char *z = p.z.data ? const_cast<char *>(column_of(p.z, 0, static_cast<int>(j))) + i * size_of(p.z.type)
                                   : nullptr;
                if (has(p.epilogue, HAS_DGELU)) value *= gelu_slope(load<T>(z, p.z.type));
                if (has(p.epilogue, HAS_GELU)) {
                    if (z) store<T>(z, p.z.type, value);
                    value = gelu(value);
                }
                store<T>(to, p.c.type, value);
            }
        }
        if (p.epilogue & (CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB)) store_sums(p, a, b);
    }
}

/* The combinations of types that cublasGemmEx documents and the project uses. */
bool supported(const Product &p)
{
    cudaDataType a = p.a.type, c = p.c.type;
    if (a != p.b.type) return false;
    switch (p.compute) {
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
        return (a == CUDA_R_32F && c == a) || ((a == CUDA_R_16F || a == CUDA_R_16BF) && (c == a || c == CUDA_R_32F));
    case CUBLAS_COMPUTE_32F_FAST_TF32:
    case CUBLAS_COMPUTE_32F_FAST_16F:
    case CUBLAS_COMPUTE_32F_FAST_16BF: return a == CUDA_R_32F && c == a;
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC: return a == CUDA_R_64F && c == a;
    default: return false;
    }
}

/* For the report: c^T, which is row-major, gets [m, n] from sums over k; what is an operand of the epilogue counts. */
void report_product(const Product &p)
{
    const uint64_t size = size_of(p.c.type), batch = static_cast<uint64_t>(p.batch);
    const uint64_t m = static_cast<uint64_t>(p.n), n = static_cast<uint64_t>(p.m), k = static_cast<uint64_t>(p.k);
    const uint64_t vector = static_cast<uint64_t>(p.vector.rows) * size_of(p.vector.type);
    const uint64_t z = p.z.data ? m * n * size : 0;
    const bool adds = p.beta != 0, sums = p.epilogue & (CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB);
    const bool writes_z = has(p.epilogue, HAS_GELU);
    std::string name = "product " + std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k);
    if (p.batch > 1) name += " of " + std::to_string(p.batch);
    if (adds) name += ", added";
    if (has(p.epilogue, HAS_BIAS)) name += ", bias";
    if (has(p.epilogue, HAS_GELU)) name += ", gelu";
    if (has(p.epilogue, HAS_DGELU)) name += ", gradient of gelu";
    if (sums) name += ", sums";
    report_other(name, batch * (m * k + k * n + adds * m * n) * size + (sums ? 0 : vector) + (writes_z ? 0 : z),
                 batch * m * n * size + (sums ? vector : 0) + (writes_z ? z : 0));
}

/* Multiplies when the stream comes to it.  The bytes of an epilogue's operands count: they are not the product's. */
cublasStatus_t enqueue_product(const Product &p, const char *call, bool wide, char *workspace, size_t workspace_bytes,
                               cudaStream_t stream)
{
    cudaError_t error = enqueue(stream, call, [p, call, wide, workspace, workspace_bytes] {
        add_to_total(CUDASIM_LIBRARY_CALLS, 1);
        last_algorithm = p.algorithm;
        pass_time(p.algorithm < 0 ? CUDASIM_TIME_OF_CUBLAS : CUDASIM_TIME_OF_ALGORITHM + p.algorithm);
        if (p.epilogue != CUBLASLT_EPILOGUE_DEFAULT) pass_time(CUDASIM_TIME_OF_EPILOGUE);
        if (workspace && !use_range(workspace, workspace_bytes, now.device, true, call)) return;
        if (p.alpha != 0 && p.k)
            if (!usable(p.a, p.batch, false, call) || !usable(p.b, p.batch, false, call)) return;
        if (p.beta != 0 && !usable(p.c, p.batch, false, call)) return;
        if (!usable(p.c, p.batch, true, call)) return;
        if (p.vector.data && !usable(p.vector, 1, !has(p.epilogue, HAS_BIAS), call)) return;
        if (p.z.data && !usable(p.z, 1, has(p.epilogue, HAS_GELU), call)) return;
        add_to_total(CUDASIM_BYTES, static_cast<uint64_t>(p.vector.rows) * size_of(p.vector.type));
        add_to_total(CUDASIM_BYTES,
                     static_cast<uint64_t>(p.z.rows) * static_cast<uint64_t>(p.z.columns) * size_of(p.z.type));
        if (reporting) report_product(p);
        Product q = p;
        if (p.alpha == 0) q.k = q.a.columns = q.a.rows = q.b.columns = q.b.rows = 0;
        wide ? multiply<double>(q) : multiply<float>(q);
    });
    return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

bool valid_operation(cublasOperation_t op) { return op == CUBLAS_OP_N || op == CUBLAS_OP_T || op == CUBLAS_OP_C; }

cublasStatus_t gemm(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
                    const void *alpha, const void *a, cudaDataType atype, int lda, long long stridea, const void *b,
                    cudaDataType btype, int ldb, long long strideb, const void *beta, void *c, cudaDataType ctype,
                    int ldc, long long stridec, int batch, cublasComputeType_t compute, const char *call)
{
    if (must_fail(call)) return CUBLAS_STATUS_EXECUTION_FAILED;
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!valid_operation(transa) || !valid_operation(transb) || m < 0 || n < 0 || k < 0 || batch < 0 || !alpha || !beta)
        return CUBLAS_STATUS_INVALID_VALUE;
    Product p;
    bool ta = transa != CUBLAS_OP_N, tb = transb != CUBLAS_OP_N;
    p.a = Matrix{a, atype, ta ? k : m, ta ? m : k, lda, stridea, ta, "A"};
    p.b = Matrix{b, btype, tb ? n : k, tb ? k : n, ldb, strideb, tb, "B"};
    p.c = Matrix{c, ctype, m, n, ldc, stridec, false, "C"};
    if (lda < std::max(1, p.a.rows) || ldb < std::max(1, p.b.rows) || ldc < std::max(1, m))
        return CUBLAS_STATUS_INVALID_VALUE;
    p.m = m;
    p.n = n;
    p.k = k;
    p.batch = batch;
    p.compute = compute;
    if (compute == CUBLAS_COMPUTE_32F && atype == CUDA_R_32F && handle->math == CUBLAS_TF32_TENSOR_OP_MATH)
        p.compute = CUBLAS_COMPUTE_32F_FAST_TF32;
    if (!supported(p)) return CUBLAS_STATUS_NOT_SUPPORTED;
    bool wide = compute == CUBLAS_COMPUTE_64F || compute == CUBLAS_COMPUTE_64F_PEDANTIC;
    /* alpha and beta are in host memory and are read before this returns. */
    p.alpha = load<double>(static_cast<const char *>(alpha), wide ? CUDA_R_64F : CUDA_R_32F);
    p.beta = load<double>(static_cast<const char *>(beta), wide ? CUDA_R_64F : CUDA_R_32F);
    if (current_device() != handle->device)
        fail("%s: the cuBLAS handle belongs to device %d, device %d is current", call, handle->device,
             current_device());
    for (const Matrix *x : {&p.a, &p.b, &p.c})
        if (reinterpret_cast<uintptr_t>(x->data) % size_of(x->type))
            fail("%s: operand %s is not aligned to its element type", call, x->name);
    if (!m || !n || !batch) return CUBLAS_STATUS_SUCCESS;
    if (strict() && (!handle->workspace || handle->atomics == CUBLAS_ATOMICS_ALLOWED))
        fail("%s may give other bits at another run: %s", call,
             handle->workspace ? "atomics are allowed" : "the handle has no workspace of its own");
    if (batch > 1 && stridec < static_cast<long long>(ldc) * (n - 1) + m &&
        stridec > -(static_cast<long long>(ldc) * (n - 1) + m))
        fail("%s: the matrices of C overlap: stride %lld, %d columns of leading dimension %d", call, stridec, n, ldc);
    return enqueue_product(p, call, wide, handle->workspace, handle->workspace_bytes, handle->stream);
}
} // namespace

extern "C" {
cublasStatus_t cublasCreate_v2(cublasHandle_t *handle)
{
    if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
    *handle = nullptr;
    if (must_fail("cublasCreate")) return CUBLAS_STATUS_ALLOC_FAILED;
    *handle = new cublasContext{nullptr, current_device(), CUBLAS_DEFAULT_MATH, nullptr, 0, CUBLAS_ATOMICS_NOT_ALLOWED};
    count_cublas_handle(1);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle)
{
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    count_cublas_handle(-1);
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream)
{
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (must_fail("cublasSetStream")) return CUBLAS_STATUS_EXECUTION_FAILED;
    handle->stream = stream;
    handle->workspace = nullptr; /* as documented */
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t *stream)
{
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    *stream = handle->stream;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode)
{
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    return mode == CUBLAS_POINTER_MODE_HOST ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED; /* not simulated */
}
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (must_fail("cublasSetMathMode")) return CUBLAS_STATUS_EXECUTION_FAILED;
    handle->math = static_cast<cublasMath_t>(mode & 15);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t *mode)
{
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    *mode = handle->math;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t mode)
{
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (must_fail("cublasSetAtomicsMode")) return CUBLAS_STATUS_EXECUTION_FAILED;
    if (mode != CUBLAS_ATOMICS_NOT_ALLOWED && mode != CUBLAS_ATOMICS_ALLOWED) return CUBLAS_STATUS_INVALID_VALUE;
    handle->atomics = mode;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t bytes)
{
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (must_fail("cublasSetWorkspace")) return CUBLAS_STATUS_EXECUTION_FAILED;
    if (reinterpret_cast<uintptr_t>(workspace) % 256) return CUBLAS_STATUS_INVALID_VALUE;
    handle->workspace = static_cast<char *>(workspace);
    handle->workspace_bytes = bytes;
    return CUBLAS_STATUS_SUCCESS;
}
const char *cublasGetStatusName(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    default: return "CUBLAS_STATUS_INTERNAL_ERROR";
    }
}
const char *cublasGetStatusString(cublasStatus_t status) { return cublasGetStatusName(status); }

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                                          int m, int n, int k, const void *alpha, const void *a, cudaDataType atype,
                                          int lda, long long stridea, const void *b, cudaDataType btype, int ldb,
                                          long long strideb, const void *beta, void *c, cudaDataType ctype, int ldc,
                                          long long stridec, int batch, cublasComputeType_t compute, cublasGemmAlgo_t)
{
    return gemm(handle, transa, transb, m, n, k, alpha, a, atype, lda, stridea, b, btype, ldb, strideb, beta, c, ctype,
                ldc, stridec, batch, compute, "cublasGemmStridedBatchedEx");
}
cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,
                            int k, const void *alpha, const void *a, cudaDataType atype, int lda, const void *b,
                            cudaDataType btype, int ldb, const void *beta, void *c, cudaDataType ctype, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t)
{
    return gemm(handle, transa, transb, m, n, k, alpha, a, atype, lda, 0, b, btype, ldb, 0, beta, c, ctype, ldc, 0, 1,
                compute, "cublasGemmEx");
}
cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,
                              int k, const float *alpha, const float *a, int lda, const float *b, int ldb,
                              const float *beta, float *c, int ldc)
{
    return gemm(handle, transa, transb, m, n, k, alpha, a, CUDA_R_32F, lda, 0, b, CUDA_R_32F, ldb, 0, beta, c,
                CUDA_R_32F, ldc, 0, 1, CUBLAS_COMPUTE_32F, "cublasSgemm");
}
cublasStatus_t cublasDgemm_v2(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,
                              int k, const double *alpha, const double *a, int lda, const double *b, int ldb,
                              const double *beta, double *c, int ldc)
{
    return gemm(handle, transa, transb, m, n, k, alpha, a, CUDA_R_64F, lda, 0, b, CUDA_R_64F, ldb, 0, beta, c,
                CUDA_R_64F, ldc, 0, 1, CUBLAS_COMPUTE_64F, "cublasDgemm");
}
cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                                         int m, int n, int k, const float *alpha, const float *a, int lda,
                                         long long stridea, const float *b, int ldb, long long strideb,
                                         const float *beta, float *c, int ldc, long long stridec, int batch)
{
    return gemm(handle, transa, transb, m, n, k, alpha, a, CUDA_R_32F, lda, stridea, b, CUDA_R_32F, ldb, strideb, beta,
                c, CUDA_R_32F, ldc, stridec, batch, CUBLAS_COMPUTE_32F, "cublasSgemmStridedBatched");
}
cublasStatus_t cublasDgemmStridedBatched(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                                         int m, int n, int k, const double *alpha, const double *a, int lda,
                                         long long stridea, const double *b, int ldb, long long strideb,
                                         const double *beta, double *c, int ldc, long long stridec, int batch)
{
    return gemm(handle, transa, transb, m, n, k, alpha, a, CUDA_R_64F, lda, stridea, b, CUDA_R_64F, ldb, strideb, beta,
                c, CUDA_R_64F, ldc, stridec, batch, CUBLAS_COMPUTE_64F, "cublasDgemmStridedBatched");
}
}

/* ---- cuBLASLt: descriptors lie in memory of the caller, and an algorithm is for the descriptors that it was asked
   for.  The checks are those of the real library, and some that it leaves to the caller: an algorithm that is used for
   another product, or for operands that are less aligned than was promised, is an error. ---- */

namespace
{
enum { OPERANDS = 4 };             /* A, B, C, D */
const uint32_t MOST_ALIGNED = 256; /* bytes */
struct LtDesc {
    uint64_t valid;
    cublasComputeType_t compute;
    cudaDataType scale;
    int32_t transa, transb;
    uint32_t epilogue;
    void *vector, *z;
    int64_t z_leading;
};
struct LtLayout {
    uint64_t valid, rows, columns;
    int64_t leading;
    cudaDataType type;
    int32_t batch;
    int64_t stride; /* elements from a matrix of the batch to the next */
};
struct LtPreference {
    uint64_t valid, workspace;
    uint32_t schemes, aligned[OPERANDS];
};
struct LtAlgorithm {
    uint64_t made_for, workspace;
    uint32_t aligned[OPERANDS], vector_aligned, z_aligned, number;
};
const uint64_t VALID = 0x6c74766c;

template <class State, class Opaque> State state_of(const Opaque *opaque)
{
    static_assert(sizeof(State) <= sizeof(Opaque), "");
    State state;
    memcpy(&state, opaque->data, sizeof state);
    return state;
}
template <class State, class Opaque> cublasStatus_t set_state(Opaque *opaque, const State &state)
{
    memset(opaque->data, 0xee, sizeof opaque->data);
    memcpy(opaque->data, &state, sizeof state);
    return CUBLAS_STATUS_SUCCESS;
}
template <class T> bool take_attribute(T &to, const void *value, size_t bytes)
{
    if (!value || bytes != sizeof to) return false;
    memcpy(&to, value, bytes);
    return true;
}

template <class T> cublasStatus_t give_attribute(const T &from, void *value, size_t bytes, size_t *written)
{
    if (!value || bytes != sizeof from) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, &from, bytes);
    if (written) *written = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

uint32_t alignment_of(const void *p)
{
    uintptr_t address = reinterpret_cast<uintptr_t>(p);
    return address % MOST_ALIGNED ? static_cast<uint32_t>(address & -address) : MOST_ALIGNED;
}

/* What an algorithm depends on: everything but the addresses. */
uint64_t made_for(const LtDesc &d, const LtLayout *x)
{
    uint64_t sum = 14695981039346656037u;
    auto add = [&sum](uint64_t n) { sum = (sum ^ n) * 1099511628211u; };
    for (uint64_t n :
         {uint64_t(d.compute), uint64_t(d.scale), uint64_t(d.transa), uint64_t(d.transb), uint64_t(d.epilogue),
          uint64_t(d.z_leading)})
        add(n);
    for (int i = 0; i < OPERANDS; ++i)
        for (uint64_t n : {x[i].rows, x[i].columns, uint64_t(x[i].leading), uint64_t(x[i].type), uint64_t(x[i].batch),
                           uint64_t(x[i].stride)})
            add(n);
    return sum;
}

bool takes_vector(uint32_t epilogue)
{
    return has(epilogue, HAS_BIAS | CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB);
}

/* The product that the descriptors describe, without addresses; false if they contradict each other. */
bool describe(Product &p, const LtDesc &d, const LtLayout *x)
{
    if (d.valid != VALID || !valid_operation(cublasOperation_t(d.transa)) ||
        !valid_operation(cublasOperation_t(d.transb)))
        return false;
    for (int i = 0; i < OPERANDS; ++i) {
        if (x[i].valid != VALID || !x[i].rows || !x[i].columns || x[i].leading < static_cast<int64_t>(x[i].rows) ||
            x[i].leading > INT32_MAX || x[i].columns > INT32_MAX || x[i].batch != x[0].batch || x[i].batch < 1)
            return false;
    }
    const char *names[] = {"A", "B", "C"};
    Matrix *const to[] = {&p.a, &p.b, &p.c};
    for (int i = 0; i < 3; ++i)
        *to[i] = Matrix{nullptr,
                        x[i].type,
                        static_cast<int>(x[i].rows),
                        static_cast<int>(x[i].columns),
                        static_cast<int>(x[i].leading),
                        x[i].stride,
                        i < 2 && (i ? d.transb : d.transa) != CUBLAS_OP_N,
                        names[i]};
    p.m = p.c.rows, p.n = p.c.columns, p.batch = x[0].batch;
    if (p.batch > 1 && d.epilogue != CUBLASLT_EPILOGUE_DEFAULT) return false; /* here; the library has some */
    p.k = p.a.transposed ? p.a.rows : p.a.columns;
    p.compute = d.compute;
    p.epilogue = d.epilogue;
    const int length = d.epilogue == CUBLASLT_EPILOGUE_BGRADB ? p.n : p.m;
    if (takes_vector(d.epilogue)) p.vector = Matrix{nullptr, p.c.type, length, 1, length, 0, false, "bias"};
    if (has(d.epilogue, HAS_AUX)) {
        if (d.z_leading < p.m || d.z_leading % 8 || d.z_leading > INT32_MAX) return false;
        p.z = Matrix{nullptr, p.c.type, p.m, p.n, static_cast<int>(d.z_leading), 0, false, "argument of gelu"};
    }
    return (p.a.transposed ? p.a.columns : p.a.rows) == p.m && (p.b.transposed ? p.b.columns : p.b.rows) == p.k &&
           (p.b.transposed ? p.b.rows : p.b.columns) == p.n && x[3].rows == x[2].rows && x[3].columns == x[2].columns;
}

/* Whether there is an algorithm.  f64 has none here, nor have sums where 16-bit operands are not aligned to pairs, nor
   gelu where its argument is not aligned to 16 bytes: the real library does not say for what it has none, and the
   caller must be able to do without. */
bool has_algorithm(const Product &p, const LtDesc &d, const LtPreference &preference)
{
    const bool sums = d.epilogue == CUBLASLT_EPILOGUE_BGRADA || d.epilogue == CUBLASLT_EPILOGUE_BGRADB;
    if (!supported(p) || d.scale != CUDA_R_32F || p.a.type == CUDA_R_64F || p.c.type != p.a.type) return false;
    for (int i = 0; i < 2; ++i) {
        const Matrix &x = i ? p.b : p.a;
        const uint32_t bytes = static_cast<uint32_t>(size_of(x.type));
        if (preference.aligned[i] < bytes) return false;
        if (sums && bytes == 2 && (x.leading % 2 || preference.aligned[i] < 4)) return false;
    }
    if (has(d.epilogue, HAS_AUX) && alignment_of(d.z) < 16) return false;
    switch (d.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU: return true;
    default: return sums;
    }
}
} // namespace

extern "C" {
cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t desc, size_t size, cublasComputeType_t compute,
                                               cudaDataType_t scale)
{
    if (must_fail("cublasLtMatmulDescInit")) return CUBLAS_STATUS_INTERNAL_ERROR;
    if (size < sizeof *desc) return CUBLAS_STATUS_ALLOC_FAILED;
    return set_state(desc, LtDesc{VALID, compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr,
                                  nullptr, 0});
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    if (must_fail("cublasLtMatmulDescSetAttribute")) return CUBLAS_STATUS_INTERNAL_ERROR;
    LtDesc d = state_of<LtDesc>(desc);
    bool taken = false;
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: taken = take_attribute(d.transa, value, bytes); break;
    case CUBLASLT_MATMUL_DESC_TRANSB: taken = take_attribute(d.transb, value, bytes); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE: taken = take_attribute(d.epilogue, value, bytes); break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: taken = take_attribute(d.vector, value, bytes); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: taken = take_attribute(d.z, value, bytes); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: taken = take_attribute(d.z_leading, value, bytes); break;
    }
    return taken && d.valid == VALID ? set_state(desc, d) : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              void *value, size_t bytes, size_t *written)
{
    const LtDesc d = state_of<LtDesc>(desc);
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return give_attribute(d.transa, value, bytes, written);
    case CUBLASLT_MATMUL_DESC_TRANSB: return give_attribute(d.transb, value, bytes, written);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return give_attribute(d.epilogue, value, bytes, written);
    default: return CUBLAS_STATUS_INVALID_VALUE;
    }
}
cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, void *value, size_t bytes,
                                                size_t *written)
{
    const LtLayout x = state_of<LtLayout>(layout);
    return give_attribute(attribute == CUBLASLT_MATRIX_LAYOUT_ROWS ? x.rows : x.columns, value, bytes, written);
}
/* The first of the algorithms divides long sums. */
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute, void *value,
                                                    size_t bytes, size_t *written)
{
    const LtAlgorithm state = state_of<LtAlgorithm>(algorithm);
    const uint32_t parts = state.number == 0 && state.workspace ? 2 : 1;
    return give_attribute(attribute == CUBLASLT_ALGO_CONFIG_SPLITK_NUM ? parts
                          : attribute == CUBLASLT_ALGO_CONFIG_ID       ? state.number
                                                                       : 0u,
                          value, bytes, written);
}
cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t size, cudaDataType_t type,
                                                 uint64_t rows, uint64_t columns, int64_t leading)
{
    if (must_fail("cublasLtMatrixLayoutInit")) return CUBLAS_STATUS_INTERNAL_ERROR;
    if (size < sizeof *layout) return CUBLAS_STATUS_ALLOC_FAILED;
    return set_state(layout, LtLayout{VALID, rows, columns, leading, type, 1, 0});
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                                size_t bytes)
{
    if (must_fail("cublasLtMatrixLayoutSetAttribute")) return CUBLAS_STATUS_INTERNAL_ERROR;
    LtLayout x = state_of<LtLayout>(layout);
    bool taken = false;
    if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) taken = take_attribute(x.batch, value, bytes);
    if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) taken = take_attribute(x.stride, value, bytes);
    return taken && x.valid == VALID ? set_state(layout, x) : CUBLAS_STATUS_INVALID_VALUE;
}
size_t cublasLtGetVersion(void) { return 130000; }
cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, size_t size)
{
    if (must_fail("cublasLtMatmulPreferenceInit")) return CUBLAS_STATUS_INTERNAL_ERROR;
    if (size < sizeof *preference) return CUBLAS_STATUS_ALLOC_FAILED;
    return set_state(preference, LtPreference{VALID, 0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}});
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t bytes)
{
    if (must_fail("cublasLtMatmulPreferenceSetAttribute")) return CUBLAS_STATUS_INTERNAL_ERROR;
    LtPreference p = state_of<LtPreference>(preference);
    const int operand = attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    bool taken = p.valid == VALID;
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        taken = taken && take_attribute(p.workspace, value, bytes);
    else if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
        taken = taken && take_attribute(p.schemes, value, bytes);
    else
        taken = taken && operand >= 0 && operand < OPERANDS && take_attribute(p.aligned[operand], value, bytes);
    return taken ? set_state(preference, p) : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int *found)
{
    const char *call = "cublasLtMatmulAlgoGetHeuristic";
    if (must_fail(call)) return static_cast<cublasStatus_t>(planned_error() ? planned_error() : CUBLAS_STATUS_NOT_INITIALIZED);
    if (!handle || wanted < 1 || !found) return CUBLAS_STATUS_INVALID_VALUE;
    *found = 0;
    const LtDesc what = state_of<LtDesc>(desc);
    const LtPreference p = state_of<LtPreference>(preference);
    const LtLayout x[OPERANDS] = {state_of<LtLayout>(a), state_of<LtLayout>(b), state_of<LtLayout>(c),
                                  state_of<LtLayout>(d)};
    Product product;
    if (p.valid != VALID || !describe(product, what, x)) return CUBLAS_STATUS_INVALID_VALUE;
    if (!has_algorithm(product, what, p)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (strict() && p.schemes & (CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE))
        fail("%s may choose an algorithm that rounds partial sums to the type of the result", call);
    /* Algorithm 0 computes a long sum in two parts, the sums of which are kept in the workspace; number 2 wants all of
       the workspace that it may have; what comes after the last algorithm is an answer that is none. */
    const uint64_t parts = 2 * sizeof(float) * static_cast<uint64_t>(product.m) * static_cast<uint64_t>(product.n);
    const bool split = product.k >= 64 && parts <= p.workspace && p.schemes & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    for (int i = 0; i < wanted && i <= CUDASIM_ALGORITHMS; ++i) {
        const uint64_t workspace = i == 0 ? split ? parts : 0 : i == 2 ? p.workspace : 0;
        LtAlgorithm algorithm = {made_for(what, x), workspace, {}, alignment_of(what.vector), alignment_of(what.z),
                                 static_cast<uint32_t>(i)};
        memcpy(algorithm.aligned, p.aligned, sizeof p.aligned);
        memset(&results[i], 0, sizeof results[i]);
        set_state(&results[i].algo, algorithm);
        results[i].workspaceSize = algorithm.workspace;
        results[i].state = i < CUDASIM_ALGORITHMS ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
        results[i].wavesCount = 1;
        *found = i + 1;
    }
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *chosen, cublasLtMatmulHeuristicResult_t *result)
{
    if (must_fail("cublasLtMatmulAlgoCheck")) return CUBLAS_STATUS_NOT_SUPPORTED;
    const LtLayout x[OPERANDS] = {state_of<LtLayout>(a), state_of<LtLayout>(b), state_of<LtLayout>(c),
                                  state_of<LtLayout>(d)};
    const LtAlgorithm algorithm = state_of<LtAlgorithm>(chosen);
    if (!handle || !result || algorithm.made_for != made_for(state_of<LtDesc>(desc), x) ||
        algorithm.number >= CUDASIM_ALGORITHMS)
        return CUBLAS_STATUS_INVALID_VALUE;
    result->workspaceSize = algorithm.workspace;
    result->state = CUBLAS_STATUS_SUCCESS;
    result->wavesCount = 1;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *chosen, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    const char *call = "cublasLtMatmul";
    if (must_fail(call)) return CUBLAS_STATUS_EXECUTION_FAILED;
    if (!handle || !alpha || !beta || !a || !b || !d || !chosen) return CUBLAS_STATUS_INVALID_VALUE;
    const LtDesc what = state_of<LtDesc>(desc);
    const LtLayout x[OPERANDS] = {state_of<LtLayout>(a_layout), state_of<LtLayout>(b_layout),
                                  state_of<LtLayout>(c_layout), state_of<LtLayout>(d_layout)};
    const LtAlgorithm algorithm = state_of<LtAlgorithm>(chosen);
    Product p;
    if (!describe(p, what, x)) return CUBLAS_STATUS_INVALID_VALUE;
    p.algorithm = static_cast<int>(algorithm.number);
    if (algorithm.number >= CUDASIM_ALGORITHMS) fail("%s: an algorithm that cannot be run", call);
    if (algorithm.made_for != made_for(what, x)) fail("%s: the algorithm was chosen for another product", call);
    const bool needs_vector = takes_vector(what.epilogue), needs_z = has(what.epilogue, HAS_AUX);
    if ((needs_vector && !what.vector) || (needs_z && !what.z) || (c && c != d) ||
        workspace_bytes < algorithm.workspace || (algorithm.workspace && !workspace))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (reinterpret_cast<uintptr_t>(workspace) % MOST_ALIGNED) return CUBLAS_STATUS_INVALID_VALUE;
    const void *const at[] = {a, b, d, d};
    for (int i = 0; i < OPERANDS; ++i)
        if (alignment_of(at[i]) < algorithm.aligned[i])
            fail("%s: operand %c is aligned to %u bytes, but the algorithm was chosen for %u", call, "ABCD"[i],
                 alignment_of(at[i]), algorithm.aligned[i]);
    if (needs_vector && alignment_of(what.vector) < algorithm.vector_aligned)
        fail("%s: the bias is aligned to %u bytes, but the algorithm was chosen for %u", call,
             alignment_of(what.vector), algorithm.vector_aligned);
    if (needs_z && alignment_of(what.z) < algorithm.z_aligned)
        fail("%s: the argument of gelu is aligned to %u bytes, but the algorithm was chosen for %u", call,
             alignment_of(what.z), algorithm.z_aligned);
    cublasContext *own = reinterpret_cast<cublasContext *>(handle);
    if (current_device() != own->device)
        fail("%s: the handle belongs to device %d, device %d is current", call, own->device, current_device());
    p.a.data = a, p.b.data = b, p.c.data = d;
    p.vector.data = needs_vector ? what.vector : nullptr;
    p.z.data = needs_z ? what.z : nullptr;
    p.alpha = load<double>(static_cast<const char *>(alpha), CUDA_R_32F);
    p.beta = load<double>(static_cast<const char *>(beta), CUDA_R_32F);
    return enqueue_product(p, call, false, static_cast<char *>(algorithm.workspace ? workspace : nullptr),
                           algorithm.workspace, stream);
}
int cudasim_last_algorithm(void) { return last_algorithm; }
}
