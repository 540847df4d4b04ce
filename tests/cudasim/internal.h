/* What the source files of the simulator share.  cudasim_test.h says what the simulator does. */
#ifndef CUDASIM_INTERNAL_H
#define CUDASIM_INTERNAL_H

#include <functional>
#include <map>
#include <string>
#include <vector>
#include "cuda_runtime.h"
#include "cudasim_test.h"

namespace cudasim
{
/* A vector clock: for each stream, by its number, how many of its operations are known to have finished. */
typedef std::vector<uint64_t> Clock;

/* An operation that used an allocation. */
struct Use {
    int stream = -1;
    uint64_t number = 0;
    const void *kernel = nullptr; /* or, of an operation that is none, what it is */
    std::string what;
};

struct Allocation {
    enum State { pending, live, freed }; /* pending: its cudaMallocAsync has not run yet in its stream */
    char *base, *data;                   /* the first page; the first byte of the user */
    size_t span, bytes;                  /* of the pages, without the guard page after them; of the user */
    int device, id;
    State state;
    bool open;                    /* the pages may be accessed now */
    void *shadow;                 /* used by check.cpp: a Cell for each four bytes */
    Use writer;                   /* the last write */
    std::map<int, Use> readers;   /* the reads since then, by stream */
    uint64_t read_by, written_by; /* serial numbers of the last operations that did, so that each is noted once */
};

/* What runs now: operation and kernel say whether one does. */
struct Now {
    bool operation, kernel;
    int device;
    const void *kernel_address;
    unsigned thread, threads; /* the thread's number in its block; the size of the block */
    size_t block;
    uint32_t launch, barrier_epoch, block_serial;
    std::vector<uint32_t> warp_epoch; /* per thread: how many warp collectives it has passed */
    uintptr_t dynamic_begin, dynamic_end;
    uint64_t serial; /* of the operation */
};
extern Now now;
extern thread_local bool executing; /* this host thread runs the operation that `now` describes */

void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void add_to_total(cudasim_total_of what, uint64_t n);
void pass_time(int what); /* a CUDASIM_TIME_OF_..; see cudasim_pretend_times */
std::string source_of(uintptr_t pc);
std::string symbol_name(const void *kernel);   /* mangled */
std::string function_name(const void *kernel); /* without parameters */
/* Runs a kernel in another way, if set: tests/ptx, which may call run_simulated to compare. */
extern void (*run_instead)(dim3 grid, dim3 block, size_t dynamic_bytes, const Body &body);
void run_simulated(dim3 grid, dim3 block, size_t dynamic_bytes, const Body &body);
extern std::vector<Allocation *> &opened; /* since the last call of close_allocations */
void close_allocations();
Allocation *find_allocation(uintptr_t address);
int arena_of(uintptr_t address); /* the device, or -1 */
bool is_pinned(const void *p, size_t bytes);
bool on_fiber_stack(uintptr_t address);
bool may_reach(int device, int owner);
/* The allocation that holds these bytes, opened for the running operation; reports an error and returns NULL if the
   operation must not use them. */
Allocation *use_range(const void *p, size_t bytes, int device, bool write, const char *what);
void note_use(Allocation &a, bool write);

cudaError_t enqueue(cudaStream_t stream, const char *what, std::function<void()> run);
/* What nccl.cpp needs, with a Locked around it.  An operation that waits in its stream until ready(), which is asked
   again and again, and may call run_stream. */
struct Locked {
    Locked();
    ~Locked();
    Locked(const Locked &) = delete;
};
cudaError_t enqueue_when(cudaStream_t stream, const char *what, std::function<bool()> ready,
                         std::function<void()> run);
bool run_stream(cudaStream_t stream, uint64_t number); /* up to this operation; false: one of them must wait */
uint64_t issued(cudaStream_t stream);                  /* the number of the last operation */
bool owns_stream(cudaStream_t stream, int device);     /* one of the device, that is not captured */
int stream_number(cudaStream_t stream);
void count_communicator(int change);
int current_device();
void count_cublas_handle(int change);
bool must_fail(const char *call); /* whether this is the call that cudasim_fail_call chose */
int planned_error();              /* that it is to return, or 0 */
bool strict();                    /* TG_SIM_STRICT */

/* The check mode: check.cpp, or nocheck.cpp, where these functions do nothing. */
void check_launch();       /* memory for shared memory's records, of one block that begins */
void check_turn(size_t i); /* the block that runs and the parked block number i change places */
void check_written(const Allocation &a, const void *p, size_t bytes);
void check_copied(const void *to, const void *from, size_t bytes);
bool check_initialised(const Allocation &a, const void *p, size_t bytes);
void check_freed(Allocation &a);
extern const bool checking;

/* The report of the check mode: report.cpp. */
void report_launch();
void report_pack(const void *p, size_t bytes, uint32_t pc);
void report_access(uintptr_t address, size_t bytes, bool write, bool shared, uint32_t pc);
void report_block();
void report_other(const std::string &name, uint64_t read, uint64_t written); /* a product, a copy, a fill */
void report_end(const char *path);
extern bool reporting; /* TG_SIM_REPORT */
extern bool wanted;    /* what runs now belongs into a report: cudasim_report */
} // namespace cudasim

#endif
