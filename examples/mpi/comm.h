/* comm.h: MPI as an engine of tg_parallel, for tensors on the CPU.  Include it after tensorgrad.h; compile with mpicc.

       mpi_engine engine;
       tg_comm comm = mpi_comm(&engine, MPI_COMM_WORLD, 60);      a rank that is silent for 60 seconds is lost

   The calls begin and return; mpi_wait and mpi_progress complete them.  MPI works mostly while it is called: backward
   calls mpi_progress after each node.  The order in which MPI adds depends on the number of ranks, and so do the last
   bits of a sum. */
#ifndef MPI_ENGINE_H
#define MPI_ENGINE_H
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { MPI_PENDING = 64, MPI_PIECE = 1 << 30 }; /* calls at a time; elements of one, which MPI counts by int */
typedef struct {
    MPI_Comm comm;
    MPI_Op add_bf16; /* MPI has no bf16 */
    MPI_Request request[MPI_PENDING];
    int pending;
    double patience; /* seconds without an answer after which a rank is lost */
    double waited;   /* seconds that the program has spent in mpi_wait */
    char text[MPI_MAX_ERROR_STRING + 80];
} mpi_engine;

/* NULL if the call of MPI went well, else its message. */
static inline const char *mpi_text(mpi_engine *e, int code)
{
    int length;
    if (code == MPI_SUCCESS) return NULL;
    MPI_Error_string(code, e->text, &length);
    return e->text;
}

static inline const char *mpi_progress(void *context)
{
    mpi_engine *e = (mpi_engine *)context;
    int done;
    return mpi_text(e, MPI_Testall(e->pending, e->request, &done, MPI_STATUSES_IGNORE));
}

/* MPI_Waitall with an end: a rank that was stopped, or a network that was cut, gives no error of its own. */
static inline const char *mpi_wait(void *context)
{
    mpi_engine *e = (mpi_engine *)context;
    const double start = MPI_Wtime();
    int done = 0;
    while (!done) {
        const int code = MPI_Testall(e->pending, e->request, &done, MPI_STATUSES_IGNORE);
        if (code != MPI_SUCCESS) return mpi_text(e, code);
        if (!done) sched_yield(); /* there may be more ranks than processors */
        if (!done && MPI_Wtime() - start > e->patience) {
            snprintf(e->text, sizeof e->text, "another rank gave no answer for %g seconds", e->patience);
            return e->text;
        }
    }
    e->pending = 0;
    e->waited += MPI_Wtime() - start;
    return NULL;
}

/* y += x, of bf16: rounded to even, as the library does */
static inline void mpi_add_bf16(void *x, void *y, int *n, MPI_Datatype *type)
{
    uint16_t *a = (uint16_t *)x, *b = (uint16_t *)y;
    (void)type;
    for (int i = 0; i < *n; ++i) {
        const uint32_t u = (uint32_t)a[i] << 16, v = (uint32_t)b[i] << 16;
        float f, g;
        uint32_t sum;
        memcpy(&f, &u, sizeof f), memcpy(&g, &v, sizeof g);
        f += g;
        memcpy(&sum, &f, sizeof sum);
        b[i] = f != f ? 0x7fc0 : (uint16_t)((sum + 0x7fff + (sum >> 16 & 1)) >> 16);
    }
}

static inline const char *mpi_all_reduce(void *context, void *data, int64_t count, tg_dtype dtype, tg_device device)
{
    mpi_engine *e = (mpi_engine *)context;
    const MPI_Op op = dtype == TG_BF16 ? e->add_bf16 : MPI_SUM;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    const char *failure = NULL;
    if (dtype == TG_F32) type = MPI_FLOAT;
    if (dtype == TG_F64) type = MPI_DOUBLE;
    if (dtype == TG_BF16) type = MPI_UINT16_T;
    if (dtype == TG_I64) type = MPI_INT64_T;
    if (device.type != TG_DEV_CPU) return "this engine sends tensors on the CPU";
    if (type == MPI_DATATYPE_NULL) return "this engine adds f32, f64, bf16 and i64";
    for (char *p = (char *)data; count > 0 && !failure;) {
        const int n = count < MPI_PIECE ? (int)count : (int)MPI_PIECE;
        if (e->pending == MPI_PENDING) failure = mpi_wait(e);
        if (!failure)
            failure = mpi_text(e, MPI_Iallreduce(MPI_IN_PLACE, p, n, type, op, e->comm, &e->request[e->pending++]));
        p += (size_t)n * tg_dtype_size(dtype), count -= n;
    }
    return failure;
}

static inline const char *mpi_broadcast(void *context, void *data, int64_t bytes, int root, tg_device device)
{
    mpi_engine *e = (mpi_engine *)context;
    const char *failure = NULL;
    if (device.type != TG_DEV_CPU) return "this engine sends tensors on the CPU";
    for (char *p = (char *)data; bytes > 0 && !failure;) {
        const int n = bytes < MPI_PIECE ? (int)bytes : (int)MPI_PIECE;
        if (e->pending == MPI_PENDING) failure = mpi_wait(e);
        if (!failure) failure = mpi_text(e, MPI_Ibcast(p, n, MPI_BYTE, root, e->comm, &e->request[e->pending++]));
        p += n, bytes -= n;
    }
    return failure;
}

static inline const char *mpi_all_gather(void *context, const void *data, void *all, int64_t bytes, tg_device device)
{
    mpi_engine *e = (mpi_engine *)context;
    const char *failure = e->pending == MPI_PENDING ? mpi_wait(e) : NULL;
    if (device.type != TG_DEV_CPU) return "this engine sends tensors on the CPU";
    if (bytes > MPI_PIECE) return "this engine gathers up to 2^30 bytes";
    if (failure) return failure;
    return mpi_text(e, MPI_Iallgather(data, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, e->comm,
                                      &e->request[e->pending++]));
}

/* Ends all ranks: mpirun does so for those that do not answer, too.  The error was printed before. */
static inline void mpi_abort(void *context) { MPI_Abort(((mpi_engine *)context)->comm, 3); }

/* The engine over a communicator, which it has for itself from now on.  MPI_Init comes before. */
static inline tg_comm mpi_comm(mpi_engine *e, MPI_Comm over, double patience)
{
    tg_comm comm = {e, 0, 1, mpi_all_reduce, mpi_broadcast, mpi_all_gather, mpi_wait, mpi_progress, mpi_abort};
    memset((void *)e, 0, sizeof *e);
    e->patience = patience;
    MPI_Comm_dup(over, &e->comm);
    MPI_Comm_set_errhandler(e->comm, MPI_ERRORS_RETURN);
    MPI_Op_create(mpi_add_bf16, 1, &e->add_bf16);
    MPI_Comm_rank(e->comm, &comm.rank);
    MPI_Comm_size(e->comm, &comm.size);
    return comm;
}

/* Before MPI_Finalize. */
static inline void mpi_close(mpi_engine *e)
{
    MPI_Op_free(&e->add_bf16);
    MPI_Comm_free(&e->comm);
}
#endif
