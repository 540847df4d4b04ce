/* The simulated NCCL: ranks are threads of one process, each with a device of its own.  A collective is two operations
   in the stream of each rank: one sends, that is copies the rank's data; the other one waits for all ranks to have sent
   and writes the result.  So a rank that has not called it yet keeps the streams of the others waiting, as on GPUs.
   All ranks must ask for the same collectives in the same order, with memory of their own device, and not before the
   call in front has been accepted: communicators are those that do not block. */
#include "nccl.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "internal.h"

#include <memory>

using namespace cudasim;

namespace
{
/* One collective of all ranks; the lists are [size]. */
struct Round {
    cudasim_collective asked; /* by the rank that came first */
    int arrived;
    std::vector<cudaStream_t> stream; /* of the operation that sends, */
    std::vector<uint64_t> number;     /* and its number there */
    std::vector<std::vector<char>> data;
    std::vector<bool> sent;
};
struct Group {
    int size, joined, ended; /* ranks that were there, and that have finalised or aborted */
    std::vector<bool> there;
    std::vector<std::shared_ptr<Round>> list;
};
std::map<std::string, std::shared_ptr<Group>> &groups = *new std::map<std::string, std::shared_ptr<Group>>;
std::vector<cudasim_collective> &asked = *new std::vector<cudasim_collective>;
int ids, broken; /* broken: cudasim_fail_collectives */
} // namespace

struct ncclComm {
    std::shared_ptr<Group> group;
    int rank, device;
    size_t calls;
    bool in_progress; /* the last call was not accepted yet */
    bool finalised;
    std::shared_ptr<bool> aborted;
    cudaStream_t stream; /* of the last collective, and the number of its last operation */
    uint64_t number;
};
static std::map<ncclComm_t, bool> &alive = *new std::map<ncclComm_t, bool>;

static bool known(ncclComm_t comm)
{
    if (alive.count(comm)) return true;
    fail("use of a communicator that does not exist (any more)");
    return false;
}

static size_t size_of(ncclDataType_t type)
{
    return type == ncclUint8 ? 1 : type == ncclFloat16 || type == ncclBfloat16 ? 2 : type == ncclFloat32 ? 4 : 8;
}

/* y [n] += x [n], rounded as the type is */
template <class T> static void add_as(char *y, const char *x, size_t n)
{
    for (size_t i = 0; i < n; ++i) {
        T a, b;
        memcpy(&a, y + i * sizeof(T), sizeof(T));
        memcpy(&b, x + i * sizeof(T), sizeof(T));
        a = static_cast<T>(a + b);
        memcpy(y + i * sizeof(T), &a, sizeof(T));
    }
}
static void add(ncclDataType_t type, std::vector<char> &y, const std::vector<char> &x, size_t n)
{
    switch (type) {
    case ncclFloat32: add_as<float>(y.data(), x.data(), n); break;
    case ncclFloat64: add_as<double>(y.data(), x.data(), n); break;
    case ncclInt64: add_as<int64_t>(y.data(), x.data(), n); break;
    case ncclFloat16:
    case ncclBfloat16:
        for (size_t i = 0; i < n; ++i) {
            unsigned short a, b;
            memcpy(&a, &y[2 * i], 2);
            memcpy(&b, &x[2 * i], 2);
            if (type == ncclFloat16)
                a = __half_as_ushort(__float2half_rn(__half2float(__ushort_as_half(a)) +
                                                     __half2float(__ushort_as_half(b))));
            else
                a = __bfloat16_as_ushort(__float2bfloat16_rn(__bfloat162float(__ushort_as_bfloat16(a)) +
                                                             __bfloat162float(__ushort_as_bfloat16(b))));
            memcpy(&y[2 * i], &a, 2);
        }
        break;
    default: fail("ncclAllReduce of type %d is not simulated", static_cast<int>(type));
    }
}

static void write_result(const Round &c, const char *call, void *to)
{
    std::vector<char> result;
    if (c.asked.root >= 0) {
        result = c.data[static_cast<size_t>(c.asked.root)];
    } else if (!strcmp(call, "ncclAllGather")) {
        for (const auto &part : c.data) result.insert(result.end(), part.begin(), part.end());
    } else {
        result = c.data[0];
        for (size_t r = 1; r < c.data.size(); ++r)
            add(static_cast<ncclDataType_t>(c.asked.type), result, c.data[r], c.asked.count);
    }
    Allocation *a = use_range(to, result.size(), now.device, true, call);
    if (!a) return;
    add_to_total(CUDASIM_LIBRARY_CALLS, 1);
    memcpy(to, result.data(), result.size());
    check_written(*a, to, result.size());
}

/* What the ranks must agree on. */
static bool same(const cudasim_collective &a, const cudasim_collective &b)
{
    return !strcmp(a.call, b.call) && a.count == b.count && a.type == b.type && a.root == b.root;
}

static ncclResult_t collective(const char *call, const void *from, void *to, size_t count, ncclDataType_t type,
                               int root, ncclComm_t comm, cudaStream_t stream)
{
    Locked lock;
    if (must_fail(call)) return static_cast<ncclResult_t>(planned_error());
    if (!known(comm)) return ncclInvalidArgument;
    const int own = comm->device;
    const size_t rank = static_cast<size_t>(comm->rank), bytes = count * size_of(type);
    if (comm->in_progress) fail("%s while the call before it is in progress", call);
    if (comm->finalised) fail("%s after ncclCommFinalize", call);
    if (current_device() != own)
        fail("%s: device %d is current, and not that of the rank, %d", call, current_device(), own);
    if (!owns_stream(stream, own)) fail("%s: the stream is not one of device %d, or is captured", call, own);
    for (const void *p : {from, static_cast<const void *>(to)})
        if (count && arena_of(reinterpret_cast<uintptr_t>(p)) != own)
            fail("%s: %p is not in memory of device %d", call, p, own);
    const cudasim_collective mine = {call, comm->rank, type, root, own, stream_number(stream), count};
    asked.push_back(mine);
    comm->in_progress = true;
    Group &g = *comm->group;
    const size_t k = comm->calls++, size = static_cast<size_t>(g.size);
    if (k == g.list.size()) {
        g.list.push_back(std::make_shared<Round>());
        Round &c = *g.list.back();
        c.asked = mine;
        c.stream.resize(size);
        c.number.resize(size);
        c.data.resize(size);
        c.sent.resize(size);
    }
    std::shared_ptr<Round> c = g.list[k];
    std::shared_ptr<bool> aborted = comm->aborted;
    if (!same(c->asked, mine))
        fail("collective %zu is %s of %zu on rank %d, and %s of %zu on rank %d", k, c->asked.call, c->asked.count,
             c->asked.rank, call, count, comm->rank);
    enqueue(stream, call, [=] {
        if (*aborted) return;
        c->data[rank].resize(bytes);
        if (bytes && (root < 0 || root == static_cast<int>(rank))) {
            Allocation *a = use_range(from, bytes, now.device, false, call);
            if (a && !check_initialised(*a, from, bytes)) fail("%s sends memory that was never written", call);
            if (a) memcpy(c->data[rank].data(), from, bytes);
        }
        c->sent[rank] = true;
    });
    c->stream[rank] = stream;
    c->number[rank] = issued(stream);
    c->arrived++;
    enqueue_when(
        stream, call,
        [=] {
            if (*aborted) return true;
            if (c->arrived < static_cast<int>(size)) return false;
            bool all = true;
            for (size_t r = 0; r < size; ++r) {
                if (!c->sent[r]) run_stream(c->stream[r], c->number[r]);
                all = all && c->sent[r];
            }
            return all;
        },
        [=] {
            if (!*aborted && bytes) write_result(*c, call, to);
        });
    comm->stream = stream;
    comm->number = issued(stream);
    return ncclInProgress;
}

static ncclResult_t end(ncclComm_t comm, bool abort)
{
    if (!known(comm)) return ncclInvalidArgument;
    if (!abort && !comm->finalised) fail("ncclCommDestroy without ncclCommFinalize would wait for the other ranks");
    if (!comm->finalised) comm->group->ended++;
    if (abort) *comm->aborted = true;
    alive.erase(comm);
    delete comm;
    count_communicator(-1);
    return ncclSuccess;
}

extern "C" {
const char *ncclGetErrorString(ncclResult_t result)
{
    switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError: return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError: return "remote process exited or there was a network error";
    default: return "NCCL operation in progress";
    }
}
ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    Locked lock;
    if (must_fail("ncclGetUniqueId")) return static_cast<ncclResult_t>(planned_error());
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "simulated %d", ++ids);
    return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    Locked lock;
    if (must_fail("ncclCommInitRankConfig")) return static_cast<ncclResult_t>(planned_error());
    if (config->blocking != 0) fail("a communicator that blocks is not simulated");
    if (size < 1 || rank < 0 || rank >= size) return ncclInvalidArgument;
    std::shared_ptr<Group> &g = groups[std::string(id.internal, sizeof id.internal)];
    if (!g) {
        g = std::make_shared<Group>();
        g->size = size;
        g->there.resize(static_cast<size_t>(size));
    }
    if (g->size != size || g->there[static_cast<size_t>(rank)]) return ncclInvalidUsage;
    g->there[static_cast<size_t>(rank)] = true;
    g->joined++;
    *comm = new ncclComm{g, rank, current_device(), 0, false, false, std::make_shared<bool>(false), nullptr, 0};
    alive[*comm] = true;
    count_communicator(1);
    return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *status)
{
    Locked lock;
    if (must_fail("ncclCommGetAsyncError")) return static_cast<ncclResult_t>(planned_error());
    if (!known(comm)) return ncclInvalidArgument;
    const Group &g = *comm->group;
    const bool done = !comm->finalised || !comm->stream || run_stream(comm->stream, comm->number);
    const bool waits = !done || g.joined < g.size || (comm->finalised && g.ended < g.size);
    comm->in_progress = false;
    *status = broken ? static_cast<ncclResult_t>(broken) : waits ? ncclInProgress : ncclSuccess;
    return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    Locked lock;
    if (must_fail("ncclCommFinalize")) return static_cast<ncclResult_t>(planned_error());
    if (!known(comm)) return ncclInvalidArgument;
    if (broken) return static_cast<ncclResult_t>(broken);
    comm->finalised = true;
    comm->group->ended++;
    return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    Locked lock;
    return end(comm, false);
}
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    Locked lock;
    return end(comm, true);
}
ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream)
{
    if (op != ncclSum) fail("ncclAllReduce: only ncclSum is simulated");
    return collective("ncclAllReduce", from, to, count, type, -1, comm, stream);
}
ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream)
{
    return collective("ncclBroadcast", from, to, count, type, root, comm, stream);
}
ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    return collective("ncclAllGather", from, to, count, type, -1, comm, stream);
}

size_t cudasim_collectives(void)
{
    Locked lock;
    return asked.size();
}
cudasim_collective cudasim_collective_at(size_t at)
{
    Locked lock;
    return at < asked.size() ? asked[at] : cudasim_collective();
}
void cudasim_fail_collectives(int error)
{
    Locked lock;
    broken = error;
}
}
