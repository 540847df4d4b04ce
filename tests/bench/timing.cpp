/* timing.h tells what this does; it is C++ because the simulator's headers are. */
#include "timing.h"
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <cxxabi.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <map>
#include <string>
#include <vector>

namespace
{
struct Kind {
    int launches;
    double milliseconds;
    std::string details;
};
struct Launch {
    std::string name, details;
    cudaEvent_t end;
};

bool timed, failed;
volatile bool queued; /* the host has given the stream all that is timed */
cudaEvent_t begin;
std::vector<Launch> launches;

/* Runs in the stream, before the first launch.  In the simulator nothing runs before something waits for it. */
void CUDART_CB wait_until_queued(void *)
{
    timespec from, now;
    clock_gettime(CLOCK_MONOTONIC, &from);
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while (!queued && (now.tv_sec - from.tv_sec) * 1000 + (now.tv_nsec - from.tv_nsec) / 1000000 < 50);
}

void before(cudaStream_t stream)
{
    if (!timed || begin) return;
    failed = failed || cudaLaunchHostFunc(stream, wait_until_queued, nullptr) || cudaEventCreate(&begin) ||
             cudaEventRecord(begin, stream);
}

void after(cudaStream_t stream, const std::string &name, const std::string &details)
{
    if (!timed) return;
    cudaEvent_t end = nullptr;
    failed = failed || cudaEventCreate(&end) || cudaEventRecord(end, stream);
    launches.push_back({name, details, end});
}

/* As the simulator writes names: without the result and the parameters. */
std::string name_of(const void *kernel)
{
    const char *symbol = "?";
    if (cudaFuncGetName(&symbol, kernel)) return "?";
    int status;
    char *plain = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
    std::string name = plain ? plain : symbol;
    free(plain);
    if (name.compare(0, 5, "void ") == 0) name = name.substr(5);
    name = name.substr(0, name.find('('));
    for (size_t at; (at = name.find("> >")) != std::string::npos;) name.erase(at + 1, 1);
    return name;
}

std::string details_of(const cudaLaunchConfig_t &config, const void *kernel)
{
    cudaFuncAttributes a;
    int blocks = 0;
    const int threads = static_cast<int>(config.blockDim.x);
    if (cudaFuncGetAttributes(&a, kernel) ||
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, config.dynamicSmemBytes)) {
        failed = true;
        return "?";
    }
    return std::to_string(config.gridDim.x) + " blocks of " + std::to_string(threads) + ", " + std::to_string(blocks) +
           " on a multiprocessor, " + std::to_string(a.numRegs) + " registers, sm_" + std::to_string(a.binaryVersion);
}

std::string product_name(uint64_t m, uint64_t n, uint64_t k)
{
    return "product " + std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k);
}

/* As the simulator's report names the product.  out^T [n, m] = b^T a^T. */
std::string name_of(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t out, bool adds)
{
    uint64_t n = 0, m = 0, rows = 0, columns = 0;
    int32_t trans = 0;
    uint32_t epilogue = 0;
    size_t bytes;
    if (cublasLtMatrixLayoutGetAttribute(out, CUBLASLT_MATRIX_LAYOUT_ROWS, &n, sizeof n, &bytes) ||
        cublasLtMatrixLayoutGetAttribute(out, CUBLASLT_MATRIX_LAYOUT_COLS, &m, sizeof m, &bytes) ||
        cublasLtMatrixLayoutGetAttribute(b, CUBLASLT_MATRIX_LAYOUT_ROWS, &rows, sizeof rows, &bytes) ||
        cublasLtMatrixLayoutGetAttribute(b, CUBLASLT_MATRIX_LAYOUT_COLS, &columns, sizeof columns, &bytes) ||
        cublasLtMatmulDescGetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &trans, sizeof trans, &bytes) ||
        cublasLtMatmulDescGetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue, &bytes))
        failed = true;
    std::string name = product_name(m, n, trans == CUBLAS_OP_N ? columns : rows);
    if (adds) name += ", added";
    if (epilogue & CUBLASLT_EPILOGUE_BIAS) name += ", bias";
    if ((epilogue & CUBLASLT_EPILOGUE_DGELU) == CUBLASLT_EPILOGUE_DGELU) name += ", gradient of gelu";
    else if (epilogue & CUBLASLT_EPILOGUE_GELU) name += ", gelu";
    if (epilogue & (CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB)) name += ", sums";
    return name;
}

std::string details_of(const cublasLtMatmulAlgo_t *algorithm)
{
    const cublasLtMatmulAlgoConfigAttributes_t asked[] = {CUBLASLT_ALGO_CONFIG_ID, CUBLASLT_ALGO_CONFIG_TILE_ID,
                                                          CUBLASLT_ALGO_CONFIG_STAGES_ID,
                                                          CUBLASLT_ALGO_CONFIG_SPLITK_NUM};
    const char *const words[] = {"algorithm ", ", tile ", ", stages ", ", parts of sums "};
    std::string said;
    for (int i = 0; i < 4; ++i) {
        uint32_t value = 0;
        size_t bytes;
        if (cublasLtMatmulAlgoConfigGetAttribute(algorithm, asked[i], &value, sizeof value, &bytes)) failed = true;
        said += words[i] + std::to_string(value);
    }
    return said;
}
} // namespace

extern "C" {
cudaError_t __real_cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **arguments);
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **arguments)
{
    before(config->stream);
    const cudaError_t error = __real_cudaLaunchKernelExC(config, kernel, arguments);
    if (timed) after(config->stream, name_of(kernel), details_of(*config, kernel));
    return error;
}

cudaError_t __real_cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream);
cudaError_t __wrap_cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    before(stream);
    const cudaError_t error = __real_cudaMemsetAsync(to, value, bytes, stream);
    after(stream, "a fill", "");
    return error;
}

cudaError_t __real_cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t __wrap_cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream)
{
    before(stream);
    const cudaError_t error = __real_cudaMemcpyAsync(to, from, bytes, kind, stream);
    after(stream, "a copy", "");
    return error;
}

#define LT_PARAMETERS                                                                                                  \
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,                              \
        cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,             \
        const void *c, cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,                      \
        const cublasLtMatmulAlgo_t *chosen, void *workspace, size_t bytes, cudaStream_t stream
cublasStatus_t __real_cublasLtMatmul(LT_PARAMETERS);
cublasStatus_t __wrap_cublasLtMatmul(LT_PARAMETERS)
{
    before(stream);
    const cublasStatus_t status =
        __real_cublasLtMatmul(handle, desc, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout, chosen,
                              workspace, bytes, stream);
    const bool adds = *static_cast<const float *>(beta) != 0;
    if (timed) after(stream, name_of(desc, a_layout, d_layout, adds), details_of(chosen));
    return status;
}

#define GEMM_PARAMETERS                                                                                                \
    cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,                    \
        const void *alpha, const void *a, cudaDataType atype, int lda, long long stridea, const void *b,               \
        cudaDataType btype, int ldb, long long strideb, const void *beta, void *c, cudaDataType ctype, int ldc,        \
        long long stridec, int batch, cublasComputeType_t compute, cublasGemmAlgo_t algorithm
cublasStatus_t __real_cublasGemmStridedBatchedEx(GEMM_PARAMETERS);
cublasStatus_t __wrap_cublasGemmStridedBatchedEx(GEMM_PARAMETERS)
{
    cudaStream_t stream = nullptr;
    failed = failed || cublasGetStream(handle, &stream);
    before(stream);
    const cublasStatus_t status =
        __real_cublasGemmStridedBatchedEx(handle, transa, transb, m, n, k, alpha, a, atype, lda, stridea, b, btype, ldb,
                                          strideb, beta, c, ctype, ldc, stridec, batch, compute, algorithm);
    std::string name = product_name(static_cast<uint64_t>(n), static_cast<uint64_t>(m), static_cast<uint64_t>(k));
    if (batch > 1) name += " of " + std::to_string(batch);
    if (*static_cast<const float *>(beta) != 0) name += ", added";
    after(stream, name, "by cuBLAS's own choice");
    return status;
}

void timing_begin(void)
{
    timed = true;
    queued = failed = false;
}

int timing_end(FILE *file)
{
    std::map<std::string, Kind> kinds;
    timed = false;
    queued = true;
    cudaEvent_t last = begin;
    for (const Launch &launch : launches) {
        float milliseconds = 0;
        failed = failed || cudaEventSynchronize(launch.end) || cudaEventElapsedTime(&milliseconds, last, launch.end);
        Kind &kind = kinds[launch.name];
        ++kind.launches;
        kind.milliseconds += static_cast<double>(milliseconds);
        kind.details = launch.details;
        last = launch.end;
    }
    for (const Launch &launch : launches) cudaEventDestroy(launch.end);
    if (begin) cudaEventDestroy(begin);
    begin = nullptr;
    launches.clear();
    for (const auto &kind : kinds)
        fprintf(file, "%d %.4f %s | %s\n", kind.second.launches, kind.second.milliseconds, kind.first.c_str(),
                kind.second.details.c_str());
    return !failed;
}
}
