/* What the parts of the simulator share; nothing outside includes it. */
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
/* For each stream, by its number, how many of its operations are known to be over: a vector clock. */
typedef std::vector<uint64_t> Clock;

struct Use {
    int stream = -1;
    uint64_t number = 0;
    std::string what;
};

struct Allocation {
    enum State { pending, live, freed }; /* pending: its cudaMallocAsync has not been reached in stream order */
    char *base, *data;
    size_t span, bytes; /* span: pages, without the guard page that follows */
    int device, id;
    State state;
    bool open;
    void *shadow; /* the check mode's */
    Use writer;
    std::map<int, Use> readers;   /* by stream */
    uint64_t read_by, written_by; /* serial numbers of the last operations that did: asking twice is cheap */
};

/* What runs now. */
struct Now {
    bool operation, kernel;
    int device;
    const void *kernel_address;
    unsigned thread, threads; /* in the block, of the block */
    size_t block;
    uint32_t launch, barrier_epoch, block_serial;
    std::vector<uint32_t> warp_epoch; /* per thread: collectives it has been through */
    uintptr_t dynamic_begin, dynamic_end;
    uint64_t serial; /* of the operation */
};
extern Now now;
extern thread_local bool executing; /* this host thread runs an operation: `now` is what it does */

void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
std::string source_of(uintptr_t pc);
Allocation *find_allocation(uintptr_t address);
int arena_of(uintptr_t address); /* the device, or -1 */
bool is_pinned(const void *p, size_t bytes);
bool on_fiber_stack(uintptr_t address);
bool may_reach(int device, int owner);
/* Allocation that holds these bytes, opened for the running operation; reports and gives NULL where it must not use
   them. */
Allocation *use_range(const void *p, size_t bytes, int device, bool write, const char *what);
void note_use(Allocation &a, bool write);

cudaError_t enqueue(cudaStream_t stream, const char *what, std::function<void()> run);
int current_device();
void count_cublas_handle(int change);
bool take_planned_failure(const char *call);
bool strict(); /* TG_SIM_STRICT */

/* check.cpp, or nocheck.cpp without it */
void check_launch();
void check_block();
void check_written(const Allocation &a, const void *p, size_t bytes);
void check_copied(const void *to, const void *from, size_t bytes);
bool check_initialised(const Allocation &a, const void *p, size_t bytes);
void check_forget(Allocation &a);
extern const bool checking;
} // namespace cudasim

#endif
