/* The simulated CUDA runtime, which cudasim_test.h describes.  In order: settings and error reports; fibers; the
   threads of a block and their scheduler; device memory; streams; the functions of the API; the functions for tests.
   All of it runs under one lock.  An operation runs on the host thread that waits for it. */
#include "internal.h"
#include "tensor_cores.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define CUDASIM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CUDASIM_ASAN 1
#endif
#endif
#ifdef CUDASIM_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace cudasim
{
Now now;

static const size_t page = 4096;

/* ---- settings, errors, names ---- */

enum class Order { fwd, rev, random, greedy };
enum class Policy { lazy, others, eager };

static struct {
    int devices = 2;
    Order order = Order::fwd;
    Policy policy = Policy::lazy;
    size_t memory = size_t(1) << 30, blocks = 1;
    bool peer = true, strict = false, stream_check = true, keep_going = false, leaks = false, reuse = false;
    int arch = 80;
    int capability = 86; /* of the devices, as two digits */
    const char *report = nullptr;
} settings;
bool reporting, wanted = true;

static uint64_t random_state = 88172645463325252u;
static uint64_t random_bits() /* xorshift64, Marsaglia (2003) */
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}
template <class T> static void shuffle_order(std::vector<T> &v)
{
    if (settings.order == Order::rev) std::reverse(v.begin(), v.end());
    if (settings.order == Order::random || settings.order == Order::greedy)
        for (size_t i = v.size(); i > 1; --i) std::swap(v[i - 1], v[random_bits() % i]);
}

static long long totals[CUDASIM_ACCESSES + 1];
void add_to_total(cudasim_total_of what, uint64_t n) { totals[what] += static_cast<long long>(n); }

static int errors;
static const int most_reports = 20; /* with TG_SIM_KEEP_GOING, further errors are only counted */
static std::string last_error;
thread_local bool executing;

static uintptr_t load_address()
{
    static uintptr_t base = 0;
    static bool known = false;
    if (!known) /* the first object is the program */
        dl_iterate_phdr(
            [](dl_phdr_info *info, size_t, void *out) {
                *static_cast<uintptr_t *>(out) = info->dlpi_addr;
                return 1;
            },
            &base);
    known = true;
    return base;
}

/* file:line of a machine address, from addr2line; its offset in the program if addr2line is not installed. */
std::string source_of(uintptr_t pc)
{
    char command[160], line[512] = "", plain[32];
    uintptr_t offset = pc - load_address();
    if (errors < most_reports) { /* starting a process each time is slow */
        snprintf(command, sizeof command, "addr2line -s -e /proc/%d/exe 0x%zx 2>/dev/null", static_cast<int>(getpid()),
                 offset);
        if (FILE *f = popen(command, "r")) {
            if (!fgets(line, sizeof line, f)) line[0] = 0;
            pclose(f);
        }
    }
    std::string s(line);
    s = s.substr(0, s.find_first_of("\n "));
    if (!s.empty() && s[0] != '?') return s;
    snprintf(plain, sizeof plain, "+0x%zx", offset);
    return plain;
}

/* The mangled name of a kernel, from the program's symbol table; dladdr does not find static functions. */
std::string symbol_name(const void *address)
{
    std::string name = "?";
    int fd = ::open("/proc/self/exe", O_RDONLY);
    struct stat info;
    if (fd < 0 || fstat(fd, &info)) return name;
    size_t size = static_cast<size_t>(info.st_size);
    void *map = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (map == MAP_FAILED) return name;
    const char *file = static_cast<const char *>(map);
    const ElfW(Ehdr) *header = reinterpret_cast<const ElfW(Ehdr) *>(file);
    const ElfW(Shdr) *sections = reinterpret_cast<const ElfW(Shdr) *>(file + header->e_shoff);
    for (unsigned i = 0; i < header->e_shnum; ++i) {
        if (sections[i].sh_type != SHT_SYMTAB) continue;
        const ElfW(Sym) *symbols = reinterpret_cast<const ElfW(Sym) *>(file + sections[i].sh_offset);
        const char *strings = file + sections[sections[i].sh_link].sh_offset;
        for (size_t k = 0; k < sections[i].sh_size / sizeof *symbols; ++k)
            if (load_address() + symbols[k].st_value == reinterpret_cast<uintptr_t>(address) &&
                (symbols[k].st_info & 15) == STT_FUNC)
                name = strings + symbols[k].st_name;
    }
    munmap(map, size);
    return name;
}

std::string function_name(const void *address)
{
    std::string name = symbol_name(address);
    int status;
    if (char *plain = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status)) {
        name = plain;
        free(plain);
    }
    return name.substr(0, name.find('('));
}

static void print_context(FILE *to)
{
    if (now.kernel)
        fprintf(to, "cudasim:   in kernel %s, launch %u on device %d, block (%u,%u,%u) thread (%u,%u,%u)\n",
                function_name(now.kernel_address).c_str(), now.launch, now.device, blockIdx.x, blockIdx.y, blockIdx.z,
                threadIdx.x, threadIdx.y, threadIdx.z);
}

void fail(const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    last_error = text;
    if (++errors > most_reports) return;
    fflush(stdout);
    fprintf(stderr, "cudasim: error: %s\n", text);
    print_context(stderr);
    if (!settings.keep_going) _exit(CUDASIM_EXIT_CODE);
}

/* For errors after which the program cannot continue, even with TG_SIM_KEEP_GOING. */
static void fail_and_exit(const char *text)
{
    fail("%s", text);
    _exit(CUDASIM_EXIT_CODE);
}

#ifdef CUDASIM_ASAN
extern "C" void __asan_on_error(void) { print_context(stderr); }
#endif

/* ---- fibers ---- */

/* A fiber is a stack on which threads of a kernel run, one after another, in a loop.  Where a thread must wait, it
   keeps the fiber's stack, and another fiber continues the loop.  So a kernel that never waits needs one fiber, and a
   call per thread. */
struct Fiber {
    void *sp = nullptr;
    char *stack = nullptr;      /* NULL: the stack of the host thread */
    void *fake_stack = nullptr; /* used by AddressSanitizer */
    ucontext_t context;
};

#ifdef CUDASIM_ASAN
static const size_t stack_bytes = 256 << 10;
#else
static const size_t stack_bytes = 64 << 10;
#endif

#if defined(__x86_64__) && !defined(CUDASIM_UCONTEXT)
#define CUDASIM_OWN_SWITCH 1
/* Saves the registers that a call must preserve and continues on the other stack.  swapcontext does the same, but makes
   a system call. */
extern "C" void cudasim_switch(void **save, void *to);
asm(".text\n"
    ".globl cudasim_switch\n"
    ".type cudasim_switch,@function\n"
    "cudasim_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp,(%rdi)\n"
    "  movq %rsi,%rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n"
    ".size cudasim_switch,.-cudasim_switch\n");
#endif

static Fiber host_fiber, *current_fiber = &host_fiber;
/* Never destroyed, so that leak checkers can reach the fibers until the end. */
static std::vector<Fiber *> &idle_fibers = *new std::vector<Fiber *>, &all_fibers = *new std::vector<Fiber *>;
#ifdef CUDASIM_ASAN
static thread_local const void *host_stack;
static thread_local size_t host_stack_bytes;
#endif

static void run_new_threads();

static void fiber_entry()
{
#ifdef CUDASIM_ASAN
    __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
    for (;;) run_new_threads();
}

static void switch_to(Fiber *to)
{
    Fiber *from = current_fiber;
    current_fiber = to;
#ifdef CUDASIM_ASAN
    __sanitizer_start_switch_fiber(&from->fake_stack, to->stack ? to->stack : host_stack,
                                   to->stack ? stack_bytes : host_stack_bytes);
#endif
#ifdef CUDASIM_OWN_SWITCH
    cudasim_switch(&from->sp, to->sp);
#else
    swapcontext(&from->context, &to->context);
#endif
#ifdef CUDASIM_ASAN
    __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
#endif
}

static Fiber *idle_fiber()
{
    if (!idle_fibers.empty()) {
        Fiber *fiber = idle_fibers.back();
        idle_fibers.pop_back();
        return fiber;
    }
    Fiber *fiber = new Fiber;
    char *map = static_cast<char *>(
        mmap(nullptr, stack_bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (map == MAP_FAILED || mprotect(map, page, PROT_NONE))
        fail_and_exit("no memory for the stacks of a block's threads");
    fiber->stack = map + page;
#ifdef CUDASIM_OWN_SWITCH
    /* The stacks begin at different offsets in their pages: with the same offset, they would compete for a few sets of
       the cache. */
    void **sp = reinterpret_cast<void **>(fiber->stack + stack_bytes - 64 - all_fibers.size() % 29 * 192);
    *--sp = nullptr; /* the return address of fiber_entry, which never returns */
    *--sp = reinterpret_cast<void *>(fiber_entry);
    for (int i = 0; i < 6; ++i) *--sp = nullptr;
    fiber->sp = sp;
#else
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = stack_bytes;
    fiber->context.uc_link = nullptr;
    makecontext(&fiber->context, fiber_entry, 0);
#endif
    all_fibers.push_back(fiber);
    return fiber;
}

bool on_fiber_stack(uintptr_t address)
{
    return current_fiber->stack && address - reinterpret_cast<uintptr_t>(current_fiber->stack) < stack_bytes;
}

/* ---- the threads of a block ---- */

enum class State { fresh, running, at_barrier, in_warp, ready, done };
struct Thread {
    State state;
    Fiber *fiber;
    const char *file;
    int line;
    Collective what;
    unsigned mask;
    std::vector<AsyncCopy> copies; /* that it has begun and not waited for */
    unsigned groups;               /* of copies that it has ended */
};
struct Warp {
    uint64_t values[32], results[32]; /* of the collective that is running, of the last one that has finished */
    unsigned arrived, done;           /* masks of lanes: those that wait in a collective, those that have returned */
};

struct Block {
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    std::vector<uint3> index; /* threadIdx of each */
    std::vector<unsigned> order;
    std::deque<unsigned> ready;
    unsigned started, done, at_barrier, current;
    int sum, sum_result; /* of __syncthreads_count: so far, of the last barrier */
    void (*run)(void *);
    void *data;
    std::vector<char> dynamic_buffer;
    char *dynamic;
};
static Block block; /* the one that runs */

void *dynamic_shared() { return block.dynamic; }
unsigned lane() { return block.current & 31; }

static void set_current_thread(unsigned thread)
{
    block.current = now.thread = thread;
    threadIdx = block.index[thread];
}

/* Runs new threads one after another.  A thread that must wait switches to another fiber in wait_as, and this function
   continues there. */
static void run_new_threads()
{
    Fiber *self = current_fiber;
    while (block.started < now.threads) {
        unsigned thread = block.order[block.started++];
        block.threads[thread].state = State::running;
        block.threads[thread].fiber = self;
        set_current_thread(thread);
        block.run(block.data);
        block.threads[thread].state = State::done;
        if (!block.threads[thread].copies.empty())
            fail("a thread returns before it has waited for %zu of its asynchronous copies",
                 block.threads[thread].copies.size());
        ++block.done;
        block.warps[thread >> 5].done |= 1u << (thread & 31);
        if (!block.ready.empty()) break; /* threads that can continue come before new ones */
    }
    idle_fibers.push_back(self);
    switch_to(&host_fiber);
}

static unsigned next_ready()
{
    std::deque<unsigned> &ready = block.ready;
    if (settings.order == Order::greedy) { /* the last released comes first: its warp runs as far as it can */
        unsigned last = ready.back();
        ready.pop_back();
        return last;
    }
    if (settings.order == Order::random) std::swap(ready.front(), ready[random_bits() % ready.size()]);
    unsigned thread = ready.front();
    ready.pop_front();
    return thread;
}

/* The current thread waits; switches directly to a thread that can run, or else to the scheduler, run_block. */
static void wait_as(State state)
{
    unsigned self = block.current;
    block.threads[self].state = state;
    Fiber *to = &host_fiber;
    if (!block.ready.empty())
        to = block.threads[next_ready()].fiber;
    else if (block.started < now.threads)
        to = idle_fiber();
    if (to != current_fiber) switch_to(to);
    set_current_thread(self);
    block.threads[self].state = State::running;
}

static void release_barrier()
{
    const Thread *first = nullptr;
    std::vector<unsigned> released;
    for (unsigned t = 0; t < now.threads; ++t) {
        Thread &thread = block.threads[t];
        if (thread.state != State::at_barrier) continue;
        if (!first) first = &thread;
        if (thread.line != first->line || strcmp(thread.file, first->file))
            fail("divergent barrier: some threads wait in __syncthreads at %s:%d, others at %s:%d", first->file,
                 first->line, thread.file, thread.line);
        thread.state = State::ready;
        released.push_back(t);
    }
    if (block.done)
        fail("divergent barrier: %u of %u threads have returned while the others wait in __syncthreads at %s:%d",
             block.done, now.threads, first->file, first->line);
    shuffle_order(released);
    block.ready.assign(released.begin(), released.end());
    block.at_barrier = 0;
    block.sum_result = block.sum;
    block.sum = 0;
    ++now.barrier_epoch;
}

static void report_deadlock()
{
    for (unsigned t = 0; t < now.threads; ++t) {
        const Thread &thread = block.threads[t];
        unsigned gone = block.warps[t >> 5].done & thread.mask;
        if (thread.state == State::in_warp && gone) {
            fail("warp collective at %s:%d: mask %08x names lanes %08x, which have returned", thread.file, thread.line,
                 thread.mask, gone);
            _exit(CUDASIM_EXIT_CODE);
        }
    }
    std::string who;
    int shown = 0;
    for (unsigned t = 0; t < now.threads && shown < 4; ++t) {
        const Thread &thread = block.threads[t];
        if (thread.state != State::at_barrier && thread.state != State::in_warp) continue;
        char text[200];
        snprintf(text, sizeof text, "%s thread %u in %s at %s:%d", shown++ ? "," : "", t,
                 thread.state == State::at_barrier ? "__syncthreads" : "a warp collective", thread.file, thread.line);
        who += text;
    }
    fail("deadlock: %u threads of %u have returned, %u wait at a barrier, the rest in warp collectives that not all "
         "lanes of "
         "their mask reach:%s ...",
         block.done, now.threads, block.at_barrier, who.c_str());
    _exit(CUDASIM_EXIT_CODE);
}

static void start_block()
{
    block.started = block.done = block.at_barrier = 0;
    block.sum = 0;
    block.ready.clear();
    ++now.barrier_epoch;
    ++now.block_serial;
    const Thread fresh = {State::fresh, nullptr, nullptr, 0, Collective::syncwarp, 0, {}, 0};
    for (Thread &thread : block.threads) thread = fresh;
    for (Warp &warp : block.warps) warp.arrived = warp.done = 0;
    for (unsigned t = 0; t < now.threads; ++t) block.order[t] = t;
    shuffle_order(block.order);
}

/* Runs the block until all its threads have reached a barrier, where another may have its turn, or have returned. */
static void continue_block(bool to_the_end)
{
    while (block.done < now.threads) {
        if (!block.ready.empty())
            switch_to(block.threads[next_ready()].fiber);
        else if (block.started < now.threads)
            switch_to(idle_fiber());
        else if (!block.at_barrier || block.at_barrier + block.done != now.threads)
            report_deadlock();
        else {
            release_barrier();
            if (!to_the_end) return;
        }
    }
}

void syncthreads(const char *file, int line)
{
    if (!now.kernel) fail_and_exit("__syncthreads outside a kernel");
    block.threads[block.current].file = file;
    block.threads[block.current].line = line;
    ++block.at_barrier;
    wait_as(State::at_barrier);
}

int syncthreads_sum(int value, const char *file, int line)
{
    block.sum += value;
    syncthreads(file, line);
    return block.sum_result;
}

const uint64_t *warp_collective(unsigned mask, uint64_t value, Collective what, const char *file, int line)
{
    unsigned self = block.current, self_lane = self & 31, first = self & ~31u;
    Warp &warp = block.warps[self >> 5];
    unsigned lanes = std::min(32u, now.threads - first), exist = lanes == 32 ? ~0u : (1u << lanes) - 1;
    if (!(mask >> self_lane & 1))
        fail("warp collective at %s:%d: mask %08x does not name the calling lane %u", file, line, mask, self_lane);
    if (mask & ~exist)
        fail("warp collective at %s:%d: mask %08x names lanes beyond the block (this warp has %u)", file, line, mask,
             lanes);
    if (warp.done & mask)
        fail("warp collective at %s:%d: mask %08x names lanes %08x, which have returned", file, line, mask,
             warp.done & mask);
    mask &= exist & ~warp.done;
    Thread &me = block.threads[self];
    me.mask = mask;
    me.what = what;
    me.file = file;
    me.line = line;
    warp.values[self_lane] = value;
    warp.arrived |= 1u << self_lane;
    if ((warp.arrived & mask) != mask) {
        wait_as(State::in_warp);
        return warp.results;
    }
    for (unsigned i = 0; i < lanes; ++i) { /* the last lane to arrive checks that all made the same call */
        const Thread &other = block.threads[first + i];
        if (mask >> i & 1 && (other.mask != mask || other.what != what || other.line != line))
            fail("warp collectives do not match: lane %u at %s:%d with mask %08x, lane %u at %s:%d with mask %08x",
                 self_lane, file, line, mask, i, other.file, other.line, other.mask);
    }
    warp.arrived &= ~mask;
    memcpy(warp.results, warp.values, sizeof warp.results);
    for (unsigned i = 0; i < 32; ++i) {
        if (!(mask >> i & 1)) continue;
        ++now.warp_epoch[first + i];
        if (i == self_lane) continue;
        block.threads[first + i].state = State::ready;
        block.ready.push_back(first + i);
    }
    if (settings.order != Order::fwd) { /* the last lane to arrive need not be the first to continue */
        block.ready.push_back(self);
        wait_as(State::ready);
    }
    return warp.results;
}

void async_begin(const AsyncCopy &copy)
{
    Thread &me = block.threads[block.current];
    me.copies.push_back(copy);
    me.copies.back().group = me.groups;
}

void async_commit() { ++block.threads[block.current].groups; }

/* Takes the first copy that the thread waits for from its list. */
bool async_next(unsigned groups_left, AsyncCopy *copy)
{
    Thread &me = block.threads[block.current];
    if (me.copies.empty() || me.copies.front().group + groups_left >= me.groups) return false;
    *copy = me.copies.front();
    me.copies.erase(me.copies.begin());
    return true;
}

void check_aligned(const void *p, size_t alignment, const char *file, int line)
{
    if (reinterpret_cast<uintptr_t>(p) % alignment) fail("misaligned vector access to %p at %s:%d", p, file, line);
    if (reporting && now.kernel)
        report_pack(p, alignment, static_cast<uint32_t>(reinterpret_cast<uintptr_t>(__builtin_return_address(0))));
}

/* Defined by the linker if clang compiled a kernel with shared memory. */
extern "C" {
extern char __start_cudasim_shared[] __attribute__((weak)), __stop_cudasim_shared[] __attribute__((weak));
}

static void poison_shared(size_t dynamic_bytes)
{
    if (dynamic_bytes) memset(block.dynamic, 0xff, dynamic_bytes);
#ifndef CUDASIM_ASAN /* AddressSanitizer has red zones in this section */
    char *begin = __start_cudasim_shared, *end = __stop_cudasim_shared;
    if (begin) memset(begin, 0xff, static_cast<size_t>(end - begin));
#endif
}

/* Around each block's dynamic shared memory lie bytes that no kernel may write. */
static const char slack_byte = static_cast<char>(0xa5);
static size_t slack_of(size_t dynamic_bytes)
{
    return static_cast<size_t>(block.dynamic_buffer.data() + block.dynamic_buffer.size() - block.dynamic) - dynamic_bytes;
}

/* Makes the memory of a block of this size, whose threads are all to come. */
static void make_block(size_t threads, size_t dynamic_bytes, const Body &body)
{
    block.run = body.run;
    block.data = body.data;
    block.threads.resize(threads);
    block.warps.resize((threads + 31) / 32);
    block.order.resize(threads);
    block.index.resize(threads);
    for (unsigned t = 0; t < threads; ++t)
        block.index[t] = uint3{t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y)};
    now.warp_epoch.assign(threads, 0);

    block.dynamic_buffer.assign(dynamic_bytes + 512, slack_byte);
    uintptr_t aligned = (reinterpret_cast<uintptr_t>(block.dynamic_buffer.data()) + 255) & ~uintptr_t(255);
    block.dynamic = reinterpret_cast<char *>(aligned);
    now.dynamic_begin = aligned;
    now.dynamic_end = aligned + dynamic_bytes;
#ifdef CUDASIM_ASAN
    __asan_poison_memory_region(block.dynamic + dynamic_bytes, slack_of(dynamic_bytes));
#endif
    check_launch();
}

static void end_block(size_t dynamic_bytes)
{
    const size_t slack = slack_of(dynamic_bytes);
#ifdef CUDASIM_ASAN
    __asan_unpoison_memory_region(block.dynamic + dynamic_bytes, slack);
#else
    for (size_t i = 0; i < slack; ++i)
        if (block.dynamic[dynamic_bytes + i] != slack_byte) {
            fail("dynamic shared memory: %zu bytes past its %zu were written", i + 1, dynamic_bytes);
            break;
        }
#endif
}

/* The block `number` of the grid begins in the memory of `block`. */
static void begin_block(size_t number, size_t dynamic_bytes)
{
    now.block = number;
    blockIdx.x = static_cast<unsigned>(number % gridDim.x);
    blockIdx.y = static_cast<unsigned>(number / gridDim.x % gridDim.y);
    blockIdx.z = static_cast<unsigned>(number / (size_t(gridDim.x) * gridDim.y));
    poison_shared(dynamic_bytes);
    start_block();
}

/* With TG_SIM_BLOCKS: a block that waits for its turn, and what else there is one of while a block runs. */
struct Parked {
    Block block;
    std::vector<char> shared; /* the bytes of its static shared memory */
    std::vector<uint32_t> warp_epoch;
    uint3 index;
    size_t number;
    uint32_t barrier_epoch, serial;
    uintptr_t dynamic_begin, dynamic_end;
    bool begun;
};

/* The parked block number i becomes the one that runs; or, called again, is parked again. */
static void change_turns(Parked &parked, size_t i)
{
    char *begin = __start_cudasim_shared, *end = __stop_cudasim_shared;
    if (begin) {
        parked.shared.resize(static_cast<size_t>(end - begin));
        std::swap_ranges(begin, end, parked.shared.begin());
    }
    std::swap(blockIdx, parked.index);
    std::swap(block, parked.block);
    std::swap(now.warp_epoch, parked.warp_epoch);
    std::swap(now.block, parked.number);
    std::swap(now.barrier_epoch, parked.barrier_epoch);
    std::swap(now.block_serial, parked.serial);
    std::swap(now.dynamic_begin, parked.dynamic_begin);
    std::swap(now.dynamic_end, parked.dynamic_end);
    check_turn(i);
}

/* Runs the blocks, of which several have begun at a time and take turns at each barrier. */
static void run_in_turns(const std::vector<size_t> &order, size_t dynamic_bytes, const Body &body)
{
    std::vector<Parked> parked(std::min(settings.blocks, order.size()));
    std::vector<size_t> turns(parked.size());
    for (size_t i = 0; i < turns.size(); ++i) turns[i] = i;
    uint32_t serial = now.block_serial;
    size_t begun = 0;
    for (size_t done = 0; done < order.size();) {
        shuffle_order(turns);
        for (size_t i : turns) {
            if (!parked[i].begun && begun == order.size()) continue;
            change_turns(parked[i], i);
            if (!parked[i].begun) {
                parked[i].begun = true;
                make_block(now.threads, dynamic_bytes, body);
                now.block_serial = serial++;
                begin_block(order[begun++], dynamic_bytes);
            }
            continue_block(false);
            if (block.done == now.threads) {
                end_block(dynamic_bytes);
                parked[i].begun = false;
                ++done;
            }
            change_turns(parked[i], i);
        }
    }
    now.block_serial = serial;
}

void (*run_instead)(dim3 grid, dim3 block, size_t dynamic_bytes, const Body &body);
Arguments *new_arguments() { return run_instead ? static_cast<Arguments *>(calloc(1, sizeof(Arguments))) : nullptr; }

/* The pretended clock, in milliseconds.  An operation begins when the one before it in its stream has ended, and what it is
   behind, and what the host had waited for when it asked for it: so those of two streams may pass the same time. */
static bool pretends;
static double pretended_time[CUDASIM_TIMES];
static double pretended;         /* now, for the operation that runs */
static double pretended_at_host; /* when the last of what the host has waited for had ended */
void pass_time(int what) { pretended += pretended_time[what]; }

static bool kernel_faults();
static void run_kernel(dim3 grid, dim3 dimensions, size_t dynamic_bytes, const Body &body)
{
    if (kernel_faults()) return;
    add_to_total(CUDASIM_KERNELS, 1);
    pass_time(CUDASIM_TIME_OF_KERNEL);
    ++now.launch;
    now.kernel_address = body.kernel;
    (run_instead ? run_instead : run_simulated)(grid, dimensions, dynamic_bytes, body);
}

void run_simulated(dim3 grid, dim3 dimensions, size_t dynamic_bytes, const Body &body)
{
    size_t threads = size_t(dimensions.x) * dimensions.y * dimensions.z, blocks = size_t(grid.x) * grid.y * grid.z;
    now.threads = static_cast<unsigned>(threads);
    gridDim = grid;
    blockDim = dimensions;
#ifdef CUDASIM_ASAN
    if (!host_stack) { /* AddressSanitizer needs its bounds when a fiber switches back to it */
        pthread_attr_t attributes;
        void *low;
        pthread_getattr_np(pthread_self(), &attributes);
        pthread_attr_getstack(&attributes, &low, &host_stack_bytes);
        pthread_attr_destroy(&attributes);
        host_stack = low;
    }
#endif

    std::vector<size_t> order(blocks);
    for (size_t i = 0; i < blocks; ++i) order[i] = i;
    shuffle_order(order);
    now.kernel = true;
    if (reporting) report_launch();
    if (settings.blocks > 1) {
        run_in_turns(order, dynamic_bytes, body);
    } else {
        make_block(threads, dynamic_bytes, body);
        for (size_t i : order) {
            begin_block(i, dynamic_bytes);
            continue_block(true);
            if (reporting) report_block();
        }
        end_block(dynamic_bytes);
    }
    now.kernel = false;
}

/* ---- device memory ---- */

/* Each device has an arena: a range of addresses without access.  An allocation gets pages of it that no other
   allocation has had or will have, so that any use after the free faults.  The pages are closed (no access) while host
   code runs.  An operation of the right device opens them: copies and cuBLAS before they start, because they say what
   they use; a kernel by its first access, which faults and is handled by on_fault. */
static const int max_devices = 8;
static const size_t arena_bytes = size_t(256) << 30, poison_bytes = size_t(64) << 20;
static const unsigned char canary = 0xa5;

static struct {
    char *base, *top;
    size_t used, limit;
    bool peer[max_devices];
} arenas[max_devices];
static std::map<uintptr_t, Allocation> &allocations = *new std::map<uintptr_t, Allocation>;
std::vector<Allocation *> &opened = *new std::vector<Allocation *>;
static long allocation_countdown = -1, live_allocations;
static int (*may_allocate)(void);
static int allocations_made;

struct Pinned {
    size_t bytes, span;   /* span 0: registered memory of the user, whose pages are not closed */
    int writers, readers; /* pending copies into it and out of it */
    uintptr_t begin, end; /* the pages that they touch */
};
static std::map<uintptr_t, Pinned> &pinned = *new std::map<uintptr_t, Pinned>;

Allocation *find_allocation(uintptr_t address)
{
    auto next = allocations.upper_bound(address);
    if (next == allocations.begin()) return nullptr;
    Allocation &a = std::prev(next)->second;
    return address < reinterpret_cast<uintptr_t>(a.base) + a.span + page ? &a : nullptr;
}
int arena_of(uintptr_t address)
{
    for (int d = 0; d < settings.devices; ++d)
        if (address - reinterpret_cast<uintptr_t>(arenas[d].base) < arena_bytes && arenas[d].base) return d;
    return -1;
}
static int arena_of(const void *p) { return arena_of(reinterpret_cast<uintptr_t>(p)); }

static std::pair<const uintptr_t, Pinned> *find_pinned(uintptr_t address)
{
    auto next = pinned.upper_bound(address);
    if (next == pinned.begin()) return nullptr;
    auto found = std::prev(next);
    return address < found->first + found->second.bytes ? &*found : nullptr;
}
bool is_pinned(const void *p, size_t bytes)
{
    uintptr_t address = reinterpret_cast<uintptr_t>(p);
    auto *found = find_pinned(address);
    return found && address + bytes <= found->first + found->second.bytes;
}
bool may_reach(int device, int owner)
{
    return device == owner || (arenas[device].peer[owner] && !settings.strict);
}

static void protect_pinned(const std::pair<const uintptr_t, Pinned> &p, bool for_operation)
{
    if (!p.second.span) return;
    int access = for_operation || !(p.second.writers || p.second.readers) ? PROT_READ | PROT_WRITE
                 : p.second.writers                                       ? PROT_NONE
                                                                          : PROT_READ;
    mprotect(reinterpret_cast<void *>(p.second.begin), p.second.end - p.second.begin, access);
}
/* The host must not access pages that a pending copy writes, nor write pages that a pending copy reads. */
static void mark_pinned(const void *place, size_t bytes, int Pinned::*copies, int change)
{
    uintptr_t address = reinterpret_cast<uintptr_t>(place), begin = address & ~(page - 1);
    auto *p = find_pinned(address);
    if (!p) return;
    Pinned &buffer = p->second;
    bool idle = !buffer.writers && !buffer.readers;
    uintptr_t end = (address + bytes + page - 1) & ~(page - 1);
    buffer.begin = idle ? begin : std::min(buffer.begin, begin);
    buffer.end = idle ? end : std::max(buffer.end, end);
    buffer.*copies += change;
    protect_pinned(*p, false);
}

static void open_allocation(Allocation &a)
{
    if (a.open) return;
    mprotect(a.base, a.span, PROT_READ | PROT_WRITE);
    a.open = true;
    opened.push_back(&a);
}
void close_allocations()
{
    for (Allocation *a : opened) {
        if (a->open) mprotect(a->base, a->span, PROT_NONE);
        a->open = false;
    }
    opened.clear();
}

static const char *state_of(const Allocation &a)
{
    return a.state == Allocation::live    ? "live"
           : a.state == Allocation::freed ? "freed"
                                          : "not yet allocated (in stream order)";
}

static void explain_fault(uintptr_t address, const std::string &place)
{
    int device = arena_of(address);
    const void *p = reinterpret_cast<const void *>(address);
    if (auto *buffer = find_pinned(address))
        fail("host code touched pinned buffer %p at %s while an asynchronous copy %s it is pending: it must "
             "synchronise first",
             p, place.c_str(), buffer->second.writers ? "into" : "out of");
    if (device < 0) return;
    const Allocation *a = find_allocation(address);
    if (!executing)
        fail("host code touched device memory %p (device %d) at %s", p, device, place.c_str());
    else if (!a)
        fail("kernel touched unallocated device memory %p at %s", p, place.c_str());
    else if (a->state != Allocation::live)
        fail("kernel touched device memory that is %s: allocation %d of %zu bytes, at %s", state_of(*a), a->id,
             a->bytes, place.c_str());
    else if (!may_reach(now.device, a->device))
        fail("kernel on device %d touched memory of device %d, allocation %d, at %s", now.device, a->device, a->id,
             place.c_str());
    else
        fail("kernel access out of bounds at %s: offset %td of allocation %d, which has %zu bytes", place.c_str(),
             reinterpret_cast<const char *>(p) - a->data, a->id, a->bytes);
}

static void on_fault(int signal_number, siginfo_t *info, void *context)
{
    uintptr_t address = reinterpret_cast<uintptr_t>(info->si_addr), pc = 0;
    Allocation *a = find_allocation(address);
    if (executing && a && a->state == Allocation::live && !a->open && may_reach(now.device, a->device) &&
        address < reinterpret_cast<uintptr_t>(a->base) + a->span) {
        open_allocation(*a);
        return;
    }
#ifdef __x86_64__
    pc = static_cast<uintptr_t>(static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_RIP]);
#else
    (void)context;
#endif
    std::string place = source_of(pc);
    int before = errors;
    if (signal_number == SIGILL) {
        if (now.kernel)
            fail("kernel used an index outside of its array at %s", place.c_str()); /* -fsanitize-trap=bounds */
    } else {
        explain_fault(address, place);
    }
    if (now.kernel && executing && errors == before) {
        uintptr_t stack = reinterpret_cast<uintptr_t>(current_fiber->stack);
        if (info->si_code == SI_KERNEL)
            fail("kernel faulted at %s: a misaligned vector access, or a wild pointer", place.c_str());
        else if (address - (stack - page) < page)
            fail("kernel overran its stack of %zu KB at %s", stack_bytes >> 10, place.c_str());
        else
            fail("kernel touched %p, which is no memory, at %s", info->si_addr, place.c_str());
    }
    if (errors > before) _exit(CUDASIM_EXIT_CODE);
    signal(signal_number, SIG_DFL); /* a fault of the program itself */
}

Allocation *use_range(const void *p, size_t bytes, int device, bool write, const char *what)
{
    Allocation *a = find_allocation(reinterpret_cast<uintptr_t>(p));
    const char *begin = static_cast<const char *>(p);
    if (!a) {
        fail("%s: %p is not in any device allocation", what, p);
    } else if (a->state != Allocation::live) {
        fail("%s uses device memory that is %s: allocation %d of %zu bytes", what, state_of(*a), a->id, a->bytes);
    } else if (begin < a->data || bytes > a->bytes || static_cast<size_t>(begin - a->data) > a->bytes - bytes) {
        fail("%s: %zu bytes at offset %td leave allocation %d, which has %zu bytes", what, bytes, begin - a->data,
             a->id, a->bytes);
    } else if (!may_reach(device, a->device)) {
        fail("%s on device %d uses memory of device %d, allocation %d", what, device, a->device, a->id);
    } else {
        open_allocation(*a);
        note_use(*a, write);
        return a;
    }
    return nullptr;
}

static void check_canary(const Allocation &a)
{
#ifndef CUDASIM_ASAN
    mprotect(a.base, a.span, PROT_READ | PROT_WRITE);
    for (char *c = a.data + a.bytes; c < a.base + a.span; ++c)
        if (static_cast<unsigned char>(*c) != canary) {
            fail("byte %td past the end of device allocation %d (%zu bytes) was written", c - (a.data + a.bytes), a.id,
                 a.bytes);
            break;
        }
    mprotect(a.base, a.span, PROT_NONE);
#else
    (void)a;
#endif
}

/* With TG_SIM_REUSE memory is filled with these when it is freed, and when it is handed out again: NaN in every float
   type, and no index.  The words differ, so that a wrong number tells which it was. */
static const uint16_t freed_word = 0xffdd, given_word = 0xffaa;

/* Part of an operation.  In the check build the memory counts as never written. */
static void poison(Allocation &a, uint16_t word)
{
    open_allocation(a);
    const size_t bytes = std::min(a.bytes, poison_bytes);
    for (size_t i = 0; i < bytes; ++i) a.data[i] = static_cast<char>(i % 2 ? word >> 8 : word & 0xff);
    check_freed(a);
}

/* Counts an allocation of the driver; false: the device has no memory for it, or a test wants it to fail. */
static bool may_have(int device, size_t bytes)
{
    const auto &arena = arenas[device];
    if (allocation_countdown >= 0 && allocation_countdown-- == 0) return false;
    if (may_allocate && !may_allocate()) return false;
    if (bytes > arena.limit || arena.used > arena.limit - bytes) return false;
    add_to_total(CUDASIM_DRIVER_ALLOCATIONS, 1);
    return true;
}

/* The allocation ends at the guard page, as nearly as its alignment of 256 bytes allows; the gap is filled with
   canaries, which are checked when it is freed.  With AddressSanitizer it begins at a page, and the rest of the page is
   a red zone. */
static Allocation *allocate(int device, size_t bytes, Allocation::State state)
{
    auto &arena = arenas[device];
    if (!may_have(device, bytes)) return nullptr;
    Allocation a = {};
    a.span = (bytes + page - 1) / page * page;
    if (arena.top + a.span + page > arena.base + arena_bytes) return nullptr;
    a.base = arena.top;
    a.bytes = bytes;
    a.device = device;
    a.state = state;
    a.id = ++allocations_made;
    arena.top += a.span + page;
    arena.used += bytes;
    ++live_allocations;
    mprotect(a.base, a.span, PROT_READ | PROT_WRITE);
#ifdef CUDASIM_ASAN
    a.data = a.base;
    memset(a.data, 0xff, std::min(bytes, poison_bytes));
    __asan_poison_memory_region(a.data + bytes, a.span + page - bytes);
#else
    a.data = a.base + ((a.span - bytes) & ~size_t(255));
    memset(a.data, 0xff, std::min(bytes, poison_bytes)); /* NaN in every float type, -1 in integers */
    memset(a.base, canary, static_cast<size_t>(a.data - a.base));
    memset(a.data + bytes, canary, static_cast<size_t>(a.base + a.span - (a.data + bytes)));
#endif
    mprotect(a.base, a.span, PROT_NONE);
    return &(allocations[reinterpret_cast<uintptr_t>(a.base)] = a);
}

/* keeps: the pages may be handed out again, by hand_out_again. */
static void release(Allocation &a, bool keeps = false)
{
    if (keeps) poison(a, freed_word);
    check_canary(a);
    a.state = Allocation::freed;
    a.open = false;
    a.readers.clear();
    arenas[a.device].used -= a.bytes;
    --live_allocations;
    check_freed(a);
    if (!keeps) madvise(a.base, a.span, MADV_DONTNEED);
    mprotect(a.base, a.span, PROT_NONE);
#ifdef CUDASIM_ASAN
    __asan_poison_memory_region(a.base, a.span);
#endif
}

/* Part of an operation: an allocation that was released is live again. */
static void hand_out_again(Allocation &a)
{
    a.state = Allocation::live;
    ++live_allocations;
#ifdef CUDASIM_ASAN
    __asan_unpoison_memory_region(a.data, a.bytes);
#endif
    poison(a, given_word);
}

/* The allocation that begins at p; reports an error and returns NULL if there is none. */
static Allocation *allocation_to_free(const void *p, const char *what)
{
    Allocation *a = find_allocation(reinterpret_cast<uintptr_t>(p));
    if (!a || a->data != p)
        fail("%s of %p, where no device allocation begins", what, p);
    else if (a->state == Allocation::freed)
        fail("%s frees device allocation %d (%zu bytes) twice", what, a->id, a->bytes);
    else
        return a;
    return nullptr;
}

/* ---- streams ---- */

} // namespace cudasim
using namespace cudasim;

struct CUgraph_st;

struct Dependency {
    CUstream_st *stream;
    uint64_t number;
};
struct Operation {
    std::function<void()> run;
    std::function<bool()> ready; /* if not empty: whether it may begin, besides what it is behind */
    bool asked;                  /* may_begin is at work on it */
    std::string what;
    uint64_t number;
    double asked_at; /* of the pretended clock */
    std::vector<Dependency> after;
    Clock clock; /* the operations that are ordered before it, and itself */
};
struct CUstream_st {
    int id, device;
    bool nonblocking, alive, over; /* over: not alive, and host_clock has all of it */
    std::deque<Operation> queue;
    uint64_t issued, done;
    std::vector<Dependency> pending; /* events that the next operation waits for */
    Clock clock;                     /* of the last operation and of the events that the next one waits for */
    CUgraph_st *capture;
    std::vector<size_t> capture_after; /* nodes of the graph that the next node depends on */
    std::vector<Allocation *> kept;    /* with TG_SIM_REUSE: freed in this stream, the last one at the end */
    std::map<uint64_t, double> ended;  /* when its operations ended, by the pretended clock */
};
struct CUevent_st {
    CUstream_st *stream;
    uint64_t number;
    int device;
    bool timing;
    Clock clock;
    std::chrono::steady_clock::time_point time;
    CUgraph_st *capture;
    std::vector<size_t> capture_after;
};
struct Node {
    std::function<void()> run;
    std::string what;
    std::vector<size_t> after;
};
struct CUgraph_st {
    std::vector<Node> nodes;
    CUstream_st *origin;
    std::thread::id thread; /* that began the capture, and ends it if it is not relaxed */
    bool invalid, relaxed;
};
struct CUgraphExec_st {
    std::shared_ptr<std::vector<Node>> nodes;
    int device;
};
struct CUmemPoolHandle_st {
    int device;
    uint64_t threshold;
};

namespace cudasim
{
static std::recursive_mutex api_lock;
static std::vector<CUstream_st *> &streams =
    *new std::vector<CUstream_st *>; /* never freed, so that the use of a destroyed stream is found */
static CUstream_st *legacy[max_devices];
static CUmemPoolHandle_st pools[max_devices];
static std::set<CUevent_st *> &events = *new std::set<CUevent_st *>;
static std::set<void *> &graphs = *new std::set<void *>;
static std::map<const void *, size_t> &dynamic_limits = *new std::map<const void *, size_t>;
static Clock host_clock; /* the operations that host code has waited for */
static Operation *running;
static CUstream_st *running_on;
static size_t queued;
static int captures, cublas_handles, communicators;
static thread_local int api_depth; /* how often this thread has the lock */
static thread_local int device_of_thread;
static thread_local cudaError_t last_result;
static cudaError_t fault; /* cudasim_fault, or of a kernel */
static struct {
    long countdown = -1;
    cudaError_t error;
} planned_fault;             /* cudasim_fault_in_kernel */
static unsigned contexts;    /* a bit for each device that has one */

static struct {
    std::string name;
    long countdown = -1;
    cudaError_t error;
} planned_failure;
static struct {
    std::string name;
    long countdown = -1;
} planned_skip; /* cudasim_skip_call */

bool strict() { return settings.strict; }

/* Whether the kernel that would run now is the one that cudasim_fault_in_kernel chose. */
static bool kernel_faults()
{
    if (planned_fault.countdown < 0 || planned_fault.countdown-- > 0) return false;
    fault = planned_fault.error;
    return true;
}

bool must_fail(const char *call)
{
    if (fault) return true;
    return planned_failure.countdown >= 0 && planned_failure.name == call && planned_failure.countdown-- == 0;
}

int planned_error() { return planned_failure.error; }

static void join(Clock &into, const Clock &from)
{
    if (into.size() < from.size()) into.resize(from.size());
    for (size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}
static bool covers(const Clock &clock, const Use &use)
{
    size_t stream = static_cast<size_t>(use.stream);
    return use.stream < 0 || (stream < clock.size() && clock[stream] >= use.number);
}

static std::string name_of(const Use &use) { return use.kernel ? "kernel " + function_name(use.kernel) : use.what; }

/* Notes that the running operation uses an allocation, and reports an error if another operation uses it too, one of
   the two writes, and no stream, event or wait orders them.  The order in which they happened to run does not
   matter. */
void note_use(Allocation &a, bool write)
{
    if (!running || !settings.stream_check || (write ? a.written_by : a.read_by) == now.serial) return;
    (write ? a.written_by : a.read_by) = now.serial;
    auto report = [&](const Use &earlier) {
        fail("nothing orders %s in stream %d, which %s allocation %d (%zu bytes, device %d), after %s in stream %d",
             now.kernel ? function_name(now.kernel_address).c_str() : running->what.c_str(), running_on->id,
             write ? "writes" : "reads", a.id, a.bytes, a.device, name_of(earlier).c_str(), earlier.stream);
    };
    Use use;
    use.stream = running_on->id;
    use.number = running->number;
    if (now.kernel) use.kernel = now.kernel_address; /* its name is looked up for a report alone: that takes long */
    else use.what = running->what;
    if (!covers(running->clock, a.writer)) report(a.writer);
    if (!write) {
        a.readers[use.stream] = use;
        return;
    }
    for (const auto &reader : a.readers)
        if (!covers(running->clock, reader.second)) report(reader.second);
    a.readers.clear();
    a.writer = use;
}

static CUstream_st *new_stream(int device, bool nonblocking)
{
    CUstream_st *s = new CUstream_st();
    s->id = static_cast<int>(streams.size());
    s->device = device;
    s->nonblocking = nonblocking;
    s->alive = true;
    streams.push_back(s);
    return s;
}

/* When the operation with this number ended; 0 if that was before the pretended clock ran. */
static double ended(const CUstream_st *stream, uint64_t number)
{
    const auto found = stream->ended.find(number);
    return found == stream->ended.end() ? 0 : found->second;
}
static double begins_at(const CUstream_st *stream, const Operation &operation)
{
    double at = std::max(operation.asked_at, ended(stream, operation.number - 1));
    for (const Dependency &d : operation.after) at = std::max(at, ended(d.stream, d.number));
    return at;
}

static bool may_begin(Operation &operation);
static void run_until(CUstream_st *stream, uint64_t number)
{
    while (stream->done < number && !stream->queue.empty() && may_begin(stream->queue.front())) {
        Operation operation = std::move(stream->queue.front());
        stream->queue.pop_front();
        --queued;
        now.operation = executing = true;
        now.device = stream->device;
        ++now.serial;
        running = &operation;
        running_on = stream;
        pretended = begins_at(stream, operation);
        if (!fault) operation.run();
        if (pretends) stream->ended[operation.number] = pretended;
        running = nullptr;
        now.operation = executing = false;
        stream->done = operation.number;
    }
}
/* Runs what the operation is behind.  False if something of that waits for another host thread. */
static bool may_begin(Operation &operation)
{
    if (operation.asked) return false;
    operation.asked = true;
    bool may = true;
    for (const Dependency &d : operation.after) {
        run_until(d.stream, d.number);
        may = may && d.stream->done >= d.number;
    }
    may = may && (!operation.ready || fault || operation.ready());
    operation.asked = false;
    return may;
}
bool run_stream(cudaStream_t stream, uint64_t number)
{
    run_until(stream, number);
    return stream->done >= number;
}
uint64_t issued(cudaStream_t stream) { return stream->issued; }
static void run_all()
{
    for (CUstream_st *s : streams) run_until(s, s->issued);
}

/* Host code waits for the first `number` operations of the stream. */
static void wait_for(CUstream_st *stream, uint64_t number, const Clock &clock)
{
    if (settings.policy == Policy::others) {
        std::vector<CUstream_st *> all(streams);
        shuffle_order(all);
        for (CUstream_st *other : all)
            if (other != stream) run_until(other, other->issued);
    }
    run_until(stream, number);
    const auto since = std::chrono::steady_clock::now();
    while (stream->done < number) { /* for what another host thread has not asked for yet */
        if (std::chrono::steady_clock::now() - since > std::chrono::seconds(20)) {
            fail("a wait of 20 seconds for %s in stream %d", stream->queue.front().what.c_str(), stream->id);
            break;
        }
        const int depth = api_depth;
        for (int i = 0; i < depth; ++i) api_lock.unlock();
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        for (int i = 0; i < depth; ++i) api_lock.lock();
        run_until(stream, number);
    }
    join(host_clock, clock);
    pretended_at_host = std::max(pretended_at_host, ended(stream, number));
    close_allocations();
}
static void wait_for(CUstream_st *stream) { wait_for(stream, stream->issued, stream->clock); }
/* All streams of the device, or of all of them (-1); those that have ended are waited for once. */
static void wait_for_all(int device)
{
    for (CUstream_st *s : std::vector<CUstream_st *>(streams)) {
        if ((device >= 0 && s->device != device) || s->over) continue;
        wait_for(s);
        s->over = !s->alive;
    }
}

static cudaError_t enqueue_on(CUstream_st *stream, const char *what, std::function<void()> run,
                              std::function<bool()> ready = nullptr)
{
    if (stream->capture) {
        CUgraph_st &graph = *stream->capture;
        graph.nodes.push_back(Node{std::move(run), what, stream->capture_after});
        stream->capture_after = {graph.nodes.size() - 1};
        return cudaSuccess;
    }
    Operation operation;
    operation.run = std::move(run);
    operation.ready = std::move(ready);
    operation.asked = false;
    operation.asked_at = pretended_at_host;
    operation.what = what;
    operation.after = std::move(stream->pending);
    stream->pending.clear();
    /* The legacy default stream and the blocking streams of its device wait for each other. */
    for (CUstream_st *other : streams) {
        bool joins = other->device == stream->device && other != stream && other->issued && !other->nonblocking &&
                     !stream->nonblocking && (stream == legacy[stream->device] || other == legacy[stream->device]);
        if (!joins) continue;
        operation.after.push_back({other, other->issued});
        join(stream->clock, other->clock);
    }
    join(stream->clock, host_clock);
    operation.number = ++stream->issued;
    size_t id = static_cast<size_t>(stream->id);
    if (stream->clock.size() <= id) stream->clock.resize(id + 1);
    stream->clock[id] = operation.number;
    operation.clock = stream->clock;
    stream->queue.push_back(std::move(operation));
    ++queued;
    if (settings.policy == Policy::eager || queued > 8192) { /* or a program that never waits would fill the memory */
        run_all();
        close_allocations();
    }
    return cudaSuccess;
}

/* ---- entering the API ---- */

static int environment_int(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text && *text ? atoi(text) : otherwise;
}

static bool set_schedule(const char *order, const char *policy)
{
    if (order) {
        const char *seed = strchr(order, ':');
        std::string name(order, seed ? static_cast<size_t>(seed - order) : strlen(order));
        if (name == "fwd")
            settings.order = Order::fwd;
        else if (name == "rev")
            settings.order = Order::rev;
        else if (name == "rand")
            settings.order = Order::random;
        else if (name == "greedy")
            settings.order = Order::greedy;
        else
            return false;
        random_state = 88172645463325252u + (seed ? strtoull(seed + 1, nullptr, 10) : 0) * 0x9e3779b97f4a7c15u;
        if (!random_state) random_state = 1;
    }
    if (policy) {
        if (!strcmp(policy, "lazy"))
            settings.policy = Policy::lazy;
        else if (!strcmp(policy, "others"))
            settings.policy = Policy::others;
        else if (!strcmp(policy, "eager"))
            settings.policy = Policy::eager;
        else
            return false;
    }
    return true;
}

static void at_exit()
{
    {
        std::lock_guard<std::recursive_mutex> lock(api_lock);
        run_all();
        close_allocations();
        for (auto &entry : allocations)
            if (entry.second.state == Allocation::live) check_canary(entry.second);
        size_t alive = 0;
        for (CUstream_st *s : streams) alive += s->alive && s != legacy[s->device];
        if (settings.leaks &&
            (live_allocations || !pinned.empty() || alive || !events.empty() || !graphs.empty() || cublas_handles ||
             communicators))
            fail("left at the end: %ld device allocations, %zu pinned buffers, %zu streams, %zu events, %zu graphs, %d "
                 "cuBLAS handles, %d communicators of NCCL",
                 live_allocations, pinned.size(), alive, events.size(), graphs.size(), cublas_handles, communicators);
        if (settings.report) report_end(settings.report);
    }
    if (!errors) return;
    fflush(stdout);
    fprintf(stderr, "cudasim: %d errors\n", errors);
    _exit(CUDASIM_EXIT_CODE);
}

/* Unless the user has chosen.  Before main, since another thread may read the environment when the first call comes. */
__attribute__((constructor)) static void choose_pass_through()
{
    setenv("TG_CUDA_PASS_THROUGH", environment_int("TG_SIM_REUSE", 0) ? "0" : "1", 0);
}

static void initialise()
{
    static bool done;
    if (done) return;
    done = true;
    settings.devices = std::max(0, std::min(max_devices, environment_int("TG_SIM_DEVICES", 2)));
    settings.peer = environment_int("TG_SIM_PEER", 1);
    settings.arch = environment_int("TG_SIM_ARCH", 80);
    settings.capability = environment_int("TG_SIM_CAPABILITY", 86);
    settings.strict = environment_int("TG_SIM_STRICT", 0);
    settings.stream_check = environment_int("TG_SIM_STREAM_CHECK", 1);
    settings.keep_going = settings.keep_going || environment_int("TG_SIM_KEEP_GOING", 0);
    settings.leaks = environment_int("TG_SIM_LEAKS", 0);
    settings.reuse = environment_int("TG_SIM_REUSE", 0);
    settings.report = getenv("TG_SIM_REPORT");
    reporting = settings.report;
    if (reporting && !checking) fail_and_exit("TG_SIM_REPORT needs the build SIM=check");
    allocation_countdown = environment_int("TG_SIM_FAIL_ALLOC", -1);
    settings.blocks = static_cast<size_t>(std::max(1, environment_int("TG_SIM_BLOCKS", 1)));
#ifndef __clang__
    if (settings.blocks > 1) fail_and_exit("TG_SIM_BLOCKS needs a build by clang++: SIM=fma or SIM=check");
#endif
    if (settings.blocks > 1 && reporting) fail_and_exit("TG_SIM_REPORT needs blocks that run one after another");
    if (const char *memory = getenv("TG_SIM_MEMORY")) settings.memory = strtoull(memory, nullptr, 10);
    if (!set_schedule(getenv("TG_SIM_ORDER"), getenv("TG_SIM_STREAMS")))
        fail_and_exit("TG_SIM_ORDER is fwd, rev, rand:seed or greedy:seed; TG_SIM_STREAMS is lazy, others or eager");
    for (int d = 0; d < settings.devices; ++d) {
        void *map = mmap(nullptr, arena_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (map == MAP_FAILED) fail_and_exit("no address space for the memory of the devices");
        arenas[d].base = arenas[d].top = static_cast<char *>(map);
        arenas[d].limit = settings.memory;
        legacy[d] = new_stream(d, false);
        pools[d].device = d;
    }
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, nullptr);
    sigaction(SIGBUS, &action, nullptr);
    sigaction(SIGILL, &action, nullptr);
    atexit(at_exit);
}

/* Faults are handled on a separate stack, because a kernel may have overrun its own. */
struct FaultStack {
    void *memory;
    FaultStack()
    {
        stack_t stack = {};
        stack.ss_size = 256 << 10;
        memory = stack.ss_sp = malloc(stack.ss_size);
        sigaltstack(&stack, nullptr);
    }
    ~FaultStack()
    {
        stack_t off = {};
        off.ss_flags = SS_DISABLE;
        sigaltstack(&off, nullptr);
        free(memory);
    }
};

/* Functions that use no context of the current device, and so make none; nor do those of cudasim_test.h. */
static bool asks_only(const char *name)
{
    static const char *const names[] = {"cudaGetDeviceCount",      "cudaGetDevice",    "cudaSetDevice",
                                        "cudaGetDeviceProperties", "cudaDeviceGetAttribute", "cudaDeviceCanAccessPeer",
                                        "cudaGetDriverEntryPointByVersion"};
    for (const char *n : names)
        if (!strcmp(n, name)) return true;
    return !strncmp(name, "cudasim_", 8);
}

/* Each function of the API begins with one of these.  It holds the lock; `refused` is the error with which the call
   fails before it does anything. */
struct Api {
    Locked lock;
    cudaError_t refused = cudaSuccess;
    bool skipped = false; /* see cudasim_skip_call */
    explicit Api(const char *name)
    {
        static thread_local FaultStack fault_stack;
        (void)fault_stack;
        if (executing) fail("%s was called from within an operation", name);
        if (fault)
            refused = fault;
        else if (must_fail(name))
            refused = planned_failure.error;
        else if (!settings.devices)
            refused = cudaErrorNoDevice;
        else if (!asks_only(name))
            contexts |= 1u << device_of_thread;
        skipped = planned_skip.countdown >= 0 && planned_skip.name == name && planned_skip.countdown-- == 0;
    }
};

static cudaError_t result(cudaError_t error)
{
    if (error != cudaSuccess) last_result = error;
    return error;
}

#define ENTER          \
    Api api(__func__); \
    if (api.refused || api.skipped) return result(api.refused)
/* For functions that wait, or allocate outside of a stream: they are not allowed during a capture, and invalidate
   it. */
#define ENTER_UNCAPTURED \
    ENTER;               \
    if (invalidate_captures(false)) return result(cudaErrorStreamCaptureUnsupported)

/* `unless_relaxed`: captures in relaxed mode allow the call. */
static bool invalidate_captures(bool unless_relaxed)
{
    bool any = false;
    if (!captures) return false;
    for (CUstream_st *s : streams)
        if (s->capture && !(unless_relaxed && s->capture->relaxed)) any = s->capture->invalid = true;
    return any;
}

/* The stream of a handle; reports an error and returns NULL if there is none (any more). */
static CUstream_st *stream_of(cudaStream_t handle)
{
    if (!handle || handle == cudaStreamLegacy) return legacy[device_of_thread];
    if (std::find(streams.begin(), streams.end(), handle) == streams.end() || !handle->alive) {
        fail("use of a stream that does not exist (any more): %p", static_cast<void *>(handle));
        return nullptr;
    }
    return handle;
}
static bool known_event(cudaEvent_t event)
{
    if (events.count(event)) return true;
    fail("use of an event that does not exist (any more): %p", static_cast<void *>(event));
    return false;
}

cudaError_t enqueue(cudaStream_t handle, const char *what, std::function<void()> run)
{
    std::lock_guard<std::recursive_mutex> lock(api_lock); /* cublas.cpp calls this without */
    CUstream_st *stream = stream_of(handle);
    return stream ? enqueue_on(stream, what, std::move(run)) : cudaErrorInvalidResourceHandle;
}
cudaError_t enqueue_when(cudaStream_t handle, const char *what, std::function<bool()> ready, std::function<void()> run)
{
    CUstream_st *stream = stream_of(handle);
    return stream ? enqueue_on(stream, what, std::move(run), std::move(ready)) : cudaErrorInvalidResourceHandle;
}
Locked::Locked()
{
    api_lock.lock();
    ++api_depth;
    initialise();
}
Locked::~Locked()
{
    --api_depth;
    api_lock.unlock();
}
bool owns_stream(cudaStream_t handle, int device)
{
    const CUstream_st *stream = stream_of(handle);
    return stream && stream->device == device && !stream->capture;
}
int stream_number(cudaStream_t handle) { return handle->id; }
void count_communicator(int change) { communicators += change; }
int current_device() { return device_of_thread; }

void check_call(int device)
{
    if (device >= 0 && device != device_of_thread)
        fail("a call has left device %d as the current one, not device %d of its caller", device_of_thread, device);
    if (last_result && !fault) fail("a call has left the error '%s'", cudaGetErrorString(last_result));
}

void check_block(const void *p, cudaStream_t stream, bool given)
{
    std::lock_guard<std::recursive_mutex> lock(api_lock);
    initialise();
    if (!settings.reuse) return;
    const char *const what = given ? "a block that is handed out again" : "a block that is freed";
    enqueue(stream, what, [p, given, what] {
        Allocation *a = use_range(p, 1, now.device, true, what);
        if (a) poison(*a, given ? given_word : freed_word);
    });
}
void count_cublas_handle(int change) { cublas_handles += change; }

static cudaError_t launch(const cudaLaunchConfig_t &config, Body body)
{
    std::shared_ptr<void> data(body.data, body.destroy), arguments(body.arguments, free);
    Api api("cudaLaunchKernelEx");
    if (api.refused) return result(api.refused);
    CUstream_st *stream = stream_of(config.stream);
    if (!stream || stream->device != device_of_thread) return result(cudaErrorInvalidResourceHandle);
    dim3 g = config.gridDim, b = config.blockDim;
    size_t threads = size_t(b.x) * b.y * b.z;
    if (!threads || threads > 1024 || b.z > 64 || !g.x || !g.y || !g.z || g.x > 0x7fffffff || g.y > 65535 ||
        g.z > 65535)
        return result(cudaErrorInvalidConfiguration);
    auto limit = dynamic_limits.find(body.kernel);
    size_t bytes = config.dynamicSmemBytes;
    if (bytes > (limit == dynamic_limits.end() ? 48 * 1024 : limit->second)) return result(cudaErrorInvalidValue);
    return enqueue_on(stream, "a kernel", [g, b, bytes, body, data, arguments] { run_kernel(g, b, bytes, body); });
}

static int most_shared_bytes() { return settings.capability < 90 ? 99 * 1024 : 227 * 1024; } /* of a block */

cudaError_t set_dynamic_limit(const void *kernel, cudaFuncAttribute attribute, int value)
{
    Api api("cudaFuncSetAttribute");
    if (api.refused) return result(api.refused);
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || value > most_shared_bytes())
        return result(cudaErrorInvalidValue);
    dynamic_limits[kernel] = static_cast<size_t>(value);
    return cudaSuccess;
}

static cudaError_t properties_of(cudaDeviceProp *properties, int device)
{
    if (device < 0 || device >= settings.devices) return cudaErrorInvalidDevice;
    cudaDeviceProp p = {};
    snprintf(p.name, sizeof p.name, "simulated device %d", device);
    p.totalGlobalMem = arenas[device].limit;
    p.sharedMemPerBlock = 48 << 10;
    p.sharedMemPerBlockOptin = static_cast<size_t>(most_shared_bytes());
    p.sharedMemPerMultiprocessor = p.sharedMemPerBlockOptin + (1 << 10);
    p.major = settings.capability / 10;
    p.minor = settings.capability % 10;
    p.multiProcessorCount = 4; /* few, so that grid-stride loops take several turns */
    p.maxThreadsPerBlock = 1024;
    p.maxThreadsPerMultiProcessor = 2048;
    p.warpSize = 32;
    p.l2CacheSize = 4 << 20;
    p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
    p.maxThreadsDim[2] = 64;
    p.maxGridSize[0] = 0x7fffffff;
    p.maxGridSize[1] = p.maxGridSize[2] = 65535;
    p.regsPerBlock = 65536;
    p.memoryBusWidth = 256;
    p.asyncEngineCount = 2;
    p.concurrentKernels = p.unifiedAddressing = p.canMapHostMemory = 1;
    *properties = p;
    return cudaSuccess;
}

cudaError_t attributes_of(cudaFuncAttributes *attributes, const void *kernel)
{
    Api api("cudaFuncGetAttributes");
    if (api.refused) return result(api.refused);
    auto limit = dynamic_limits.find(kernel);
    *attributes = cudaFuncAttributes();
    attributes->maxThreadsPerBlock = 1024;
    attributes->numRegs = 32;
    cudaDeviceProp p;
    if (cudaError_t error = properties_of(&p, device_of_thread)) return result(error);
    attributes->ptxVersion = settings.arch;
    attributes->binaryVersion = settings.arch / 10 == p.major ? settings.arch : 10 * p.major + p.minor;
    attributes->maxDynamicSharedSizeBytes =
        limit == dynamic_limits.end() ? 48 * 1024 : static_cast<int>(limit->second);
    return cudaSuccess;
}
} // namespace cudasim

/* ---- the API ---- */

#define TEXT(error, text) {error, #error, text},
static const struct {
    cudaError_t error;
    const char *name, *text;
} error_texts[] = {
    TEXT(cudaSuccess, "no error")
    TEXT(cudaErrorInvalidValue, "invalid argument")
    TEXT(cudaErrorMemoryAllocation, "out of memory")
    TEXT(cudaErrorInitializationError, "initialization error")
    TEXT(cudaErrorInvalidConfiguration, "invalid configuration argument")
    TEXT(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy")
    TEXT(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version")
    TEXT(cudaErrorNoDevice, "no CUDA-capable device is detected")
    TEXT(cudaErrorInvalidDevice, "invalid device ordinal")
    TEXT(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device")
    TEXT(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered")
    TEXT(cudaErrorPeerAccessUnsupported, "peer access is not supported between these two devices")
    TEXT(cudaErrorInvalidResourceHandle, "invalid resource handle")
    TEXT(cudaErrorNotReady, "device not ready")
    TEXT(cudaErrorIllegalAddress, "an illegal memory access was encountered")
    TEXT(cudaErrorLaunchTimeout, "the launch timed out and was terminated")
    TEXT(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled")
    TEXT(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled")
    TEXT(cudaErrorAssert, "device-side assert triggered")
    TEXT(cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped")
    TEXT(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region")
    TEXT(cudaErrorHardwareStackError, "hardware stack error")
    TEXT(cudaErrorIllegalInstruction, "an illegal instruction was encountered")
    TEXT(cudaErrorMisalignedAddress, "misaligned address")
    TEXT(cudaErrorInvalidAddressSpace, "operation not supported on global/shared address space")
    TEXT(cudaErrorInvalidPc, "invalid program counter")
    TEXT(cudaErrorLaunchFailure, "unspecified launch failure")
    TEXT(cudaErrorNotSupported, "operation not supported")
    TEXT(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing")
    TEXT(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture")
    TEXT(cudaErrorStreamCaptureWrongThread, "attempt to terminate a thread-local capture sequence from another thread")
    TEXT(cudaErrorUnknown, "unknown error")
};

extern "C" {

const char *cudaGetErrorString(cudaError_t error)
{
    for (const auto &row : error_texts)
        if (row.error == error) return row.text;
    return "unrecognized error code";
}
const char *cudaGetErrorName(cudaError_t error)
{
    for (const auto &row : error_texts)
        if (row.error == error) return row.name;
    return "unrecognized error code";
}
cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_result;
    last_result = cudaSuccess;
    return error;
}
cudaError_t cudaPeekAtLastError(void) { return last_result; }
cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 0;
    ENTER;
    *count = settings.devices;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device)
{
    ENTER;
    if (device < 0 || device >= settings.devices) return result(cudaErrorInvalidDevice);
    device_of_thread = device;
    contexts |= 1u << device; /* since CUDA 12 */
    return cudaSuccess;
}

/* The only function of the driver that there is. */
static int primary_context_state(int device, unsigned *flags, int *active)
{
    *flags = 0;
    *active = contexts >> device & 1;
    return 0;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult *)
{
    *function = nullptr;
    ENTER;
    if (strcmp(symbol, "cuDevicePrimaryCtxGetState")) return result(cudaErrorInvalidValue);
    *function = reinterpret_cast<void *>(primary_context_state);
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int *device)
{
    ENTER;
    *device = device_of_thread;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device)
{
    ENTER;
    return result(properties_of(properties, device));
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device)
{
    ENTER;
    cudaDeviceProp p;
    if (cudaError_t error = cudaGetDeviceProperties(&p, device)) return error;
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxGridDimX: *value = p.maxGridSize[0]; break;
    case cudaDevAttrMaxGridDimY: *value = p.maxGridSize[1]; break;
    case cudaDevAttrMaxGridDimZ: *value = p.maxGridSize[2]; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = static_cast<int>(p.sharedMemPerBlock); break;
    case cudaDevAttrWarpSize: *value = p.warpSize; break;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrUnifiedAddressing: *value = 1; break;
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = static_cast<int>(p.sharedMemPerMultiprocessor); break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = static_cast<int>(p.sharedMemPerBlockOptin); break;
    case cudaDevAttrMemoryPoolsSupported: *value = 1; break;
    default: return result(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void)
{
    ENTER_UNCAPTURED;
    add_to_total(CUDASIM_WAITS, 1);
    wait_for_all(device_of_thread);
    return result(fault);
}
cudaError_t cudaDeviceReset(void)
{
    ENTER_UNCAPTURED;
    run_all();
    close_allocations();
    for (auto &entry : allocations)
        if (entry.second.device == device_of_thread && entry.second.state == Allocation::live) release(entry.second);
    return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    ENTER;
    if (device < 0 || device >= settings.devices || peer < 0 || peer >= settings.devices)
        return result(cudaErrorInvalidDevice);
    *can = settings.peer && device != peer;
    return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    ENTER;
    if (flags) return result(cudaErrorInvalidValue);
    if (peer < 0 || peer >= settings.devices || peer == device_of_thread) return result(cudaErrorInvalidDevice);
    if (!settings.peer) return result(cudaErrorPeerAccessUnsupported);
    if (arenas[device_of_thread].peer[peer]) return result(cudaErrorPeerAccessAlreadyEnabled);
    arenas[device_of_thread].peer[peer] = true;
    return cudaSuccess;
}
cudaError_t cudaDeviceDisablePeerAccess(int peer)
{
    ENTER;
    if (peer < 0 || peer >= settings.devices) return result(cudaErrorInvalidDevice);
    if (!arenas[device_of_thread].peer[peer]) return result(cudaErrorPeerAccessNotEnabled);
    arenas[device_of_thread].peer[peer] = false;
    return cudaSuccess;
}

/* memory */

cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    if (!pointer) return result(cudaErrorInvalidValue);
    *pointer = nullptr;
    ENTER;
    if (invalidate_captures(true)) return result(cudaErrorStreamCaptureUnsupported);
    if (!bytes) return cudaSuccess;
    Allocation *a = allocate(device_of_thread, bytes, Allocation::live);
    if (!a) return result(cudaErrorMemoryAllocation);
    *pointer = a->data;
    return cudaSuccess;
}

/* What the stream has freed last of this size; NULL: nothing. */
static Allocation *kept_allocation(const CUstream_st *stream, size_t bytes)
{
    auto found = std::find_if(stream->kept.rbegin(), stream->kept.rend(), [bytes](const Allocation *a) {
        return a->bytes == bytes;
    });
    return found == stream->kept.rend() ? nullptr : *found;
}

static cudaError_t malloc_in_stream(void **pointer, size_t bytes, CUstream_st *stream)
{
    *pointer = nullptr;
    if (!stream) return result(cudaErrorInvalidResourceHandle);
    if (stream->capture) { /* memory nodes of graphs are not simulated */
        stream->capture->invalid = true;
        return result(cudaErrorStreamCaptureUnsupported);
    }
    if (!bytes) return cudaSuccess;
    auto &arena = arenas[stream->device];
    if (bytes <= arena.limit && arena.used > arena.limit - bytes) { /* lets pending frees of all streams run first */
        run_all();
        close_allocations();
    }
    Allocation *a = kept_allocation(stream, bytes);
    if (a) {
        if (!may_have(stream->device, bytes)) return result(cudaErrorMemoryAllocation);
        arena.used += bytes;
        stream->kept.erase(std::find(stream->kept.begin(), stream->kept.end(), a));
        *pointer = a->data;
        return enqueue_on(stream, "cudaMallocAsync", [a] {
            hand_out_again(*a);
            note_use(*a, true);
        });
    }
    a = allocate(stream->device, bytes, Allocation::pending);
    if (!a) return result(cudaErrorMemoryAllocation);
    *pointer = a->data;
    return enqueue_on(stream, "cudaMallocAsync", [a] {
        if (a->state != Allocation::pending) return; /* freed by cudaFree, which waited for everything else */
        a->state = Allocation::live;
        note_use(*a, true);
    });
}
cudaError_t cudaMallocAsync(void **pointer, size_t bytes, cudaStream_t stream)
{
    ENTER;
    return malloc_in_stream(pointer, bytes, stream_of(stream));
}
cudaError_t cudaMallocFromPoolAsync(void **pointer, size_t bytes, cudaMemPool_t pool, cudaStream_t stream)
{
    ENTER;
    CUstream_st *s = stream_of(stream);
    if (!s || !pool || pool->device != s->device) return result(cudaErrorInvalidValue);
    return malloc_in_stream(pointer, bytes, s);
}
cudaError_t cudaFree(void *pointer)
{
    ENTER_UNCAPTURED;
    if (!pointer) return cudaSuccess;
    add_to_total(CUDASIM_WAITS, 1);
    wait_for_all(-1);
    Allocation *a = allocation_to_free(pointer, "cudaFree");
    if (!a) return result(cudaErrorInvalidValue);
    release(*a);
    return cudaSuccess;
}
cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream)
{
    ENTER;
    if (!pointer) return cudaSuccess;
    if (!find_allocation(reinterpret_cast<uintptr_t>(pointer))) {
        allocation_to_free(pointer, "cudaFreeAsync");
        return result(cudaErrorInvalidValue);
    }
    CUstream_st *s = settings.reuse ? stream_of(stream) : nullptr;
    const bool keeps = s && s->device == arena_of(pointer) && !s->capture;
    if (keeps) s->kept.push_back(find_allocation(reinterpret_cast<uintptr_t>(pointer)));
    return result(enqueue(stream, "cudaFreeAsync", [pointer, keeps] {
        Allocation *a = allocation_to_free(pointer, "cudaFreeAsync");
        if (!a) return;
        if (a->state == Allocation::pending)
            fail("cudaFreeAsync of allocation %d is not ordered after its cudaMallocAsync", a->id);
        note_use(*a, true);
        release(*a, keeps);
    }));
}
cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned)
{
    if (!pointer) return result(cudaErrorInvalidValue);
    *pointer = nullptr;
    ENTER_UNCAPTURED;
    if (!bytes) return cudaSuccess;
    size_t span = (bytes + page - 1) / page * page;
    void *map = mmap(nullptr, span + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return result(cudaErrorMemoryAllocation);
    mprotect(static_cast<char *>(map) + span, page, PROT_NONE);
    memset(map, 0xff, std::min(span, poison_bytes));
    pinned[reinterpret_cast<uintptr_t>(map)] = Pinned{bytes, span, 0, 0, 0, 0};
    *pointer = map;
    return cudaSuccess;
}
cudaError_t cudaMallocHost(void **pointer, size_t bytes) { return cudaHostAlloc(pointer, bytes, cudaHostAllocDefault); }
cudaError_t cudaFreeHost(void *pointer)
{
    ENTER_UNCAPTURED;
    if (!pointer) return cudaSuccess;
    wait_for_all(-1);
    auto found = pinned.find(reinterpret_cast<uintptr_t>(pointer));
    if (found == pinned.end() || !found->second.span) {
        fail("cudaFreeHost of %p, where no pinned buffer begins", pointer);
        return result(cudaErrorInvalidValue);
    }
    munmap(pointer, found->second.span + page);
    pinned.erase(found);
    return cudaSuccess;
}
cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned)
{
    ENTER_UNCAPTURED;
    if (!pointer || !bytes || arena_of(pointer) >= 0) return result(cudaErrorInvalidValue);
    if (find_pinned(reinterpret_cast<uintptr_t>(pointer))) return result(cudaErrorHostMemoryAlreadyRegistered);
    pinned[reinterpret_cast<uintptr_t>(pointer)] = Pinned{bytes, 0, 0, 0, 0, 0};
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(void *pointer)
{
    ENTER_UNCAPTURED;
    auto found = pinned.find(reinterpret_cast<uintptr_t>(pointer));
    if (found == pinned.end() || found->second.span) return result(cudaErrorHostMemoryNotRegistered);
    wait_for_all(-1);
    pinned.erase(found);
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    ENTER;
    *total_bytes = arenas[device_of_thread].limit;
    *free_bytes = *total_bytes > arenas[device_of_thread].used ? *total_bytes - arenas[device_of_thread].used : 0;
    return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *pointer)
{
    ENTER;
    cudaPointerAttributes a = {};
    a.device = arena_of(pointer);
    if (a.device >= 0) {
        a.type = cudaMemoryTypeDevice;
        a.devicePointer = const_cast<void *>(pointer);
    } else if (is_pinned(pointer, 1)) {
        a.type = cudaMemoryTypeHost;
        a.device = 0;
        a.devicePointer = a.hostPointer = const_cast<void *>(pointer);
    } else {
        a.device = -2; /* cudaInvalidDeviceId */
        a.hostPointer = const_cast<void *>(pointer);
    }
    *attributes = a;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device)
{
    ENTER;
    if (device < 0 || device >= settings.devices) return result(cudaErrorInvalidDevice);
    *pool = &pools[device];
    return cudaSuccess;
}
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int device) { return cudaDeviceGetDefaultMemPool(pool, device); }
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void *value)
{
    ENTER;
    if (!pool || !value) return result(cudaErrorInvalidValue);
    if (attribute == cudaMemPoolAttrReleaseThreshold) pool->threshold = *static_cast<uint64_t *>(value);
    return cudaSuccess;
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void *value)
{
    ENTER;
    if (!pool || !value) return result(cudaErrorInvalidValue);
    if (attribute >= cudaMemPoolAttrReservedMemCurrent)
        *static_cast<uint64_t *>(value) = arenas[pool->device].used;
    else if (attribute == cudaMemPoolAttrReleaseThreshold)
        *static_cast<uint64_t *>(value) = pool->threshold;
    else
        *static_cast<int *>(value) = 1;
    return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t)
{
    ENTER;
    return pool ? cudaSuccess : result(cudaErrorInvalidValue);
}

/* copies */

struct Copy {
    char *to;
    const char *from;
    size_t to_pitch, from_pitch, width, height;
};

static size_t extent(const Copy &c, size_t pitch) { return (c.height - 1) * pitch + c.width; }

static void mark_copy(const Copy &c, int change)
{
    mark_pinned(c.to, extent(c, c.to_pitch), &Pinned::writers, change);
    mark_pinned(c.from, extent(c, c.from_pitch), &Pinned::readers, change);
}

static void run_copy(const Copy &c, const char *what)
{
    if (!c.width || !c.height) return;
    bool to_device = arena_of(c.to) >= 0, from_device = arena_of(c.from) >= 0;
    size_t to_bytes = extent(c, c.to_pitch), from_bytes = extent(c, c.from_pitch);
    add_to_total(CUDASIM_COPIES, 1);
    add_to_total(CUDASIM_BYTES, c.width * c.height * (static_cast<size_t>(to_device) + from_device));
    pass_time(CUDASIM_TIME_OF_COPY);
    if (reporting) report_other("a copy", from_device * c.width * c.height, to_device * c.width * c.height);
    /* Copies between devices need no peer access. */
    if (from_device && !use_range(c.from, from_bytes, arena_of(c.from), false, what)) return;
    if (to_device && !use_range(c.to, to_bytes, arena_of(c.to), true, what)) return;
    auto *into = find_pinned(reinterpret_cast<uintptr_t>(c.to)),
         *out_of = find_pinned(reinterpret_cast<uintptr_t>(c.from));
    if (into) protect_pinned(*into, true);
    if (out_of) protect_pinned(*out_of, true);
    for (size_t i = 0; i < c.height; ++i) {
        memmove(c.to + i * c.to_pitch, c.from + i * c.from_pitch, c.width);
        if (to_device) check_copied(c.to + i * c.to_pitch, c.from + i * c.from_pitch, c.width);
    }
    if (into) protect_pinned(*into, false);
    if (out_of) protect_pinned(*out_of, false);
}

static cudaError_t copy(const Copy &c, cudaMemcpyKind kind, cudaStream_t handle, bool asynchronous, const char *what)
{
    CUstream_st *stream = stream_of(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    size_t bytes = c.width * c.height;
    if (!bytes) return cudaSuccess;
    if (!c.to || !c.from || c.to_pitch < c.width || c.from_pitch < c.width) return cudaErrorInvalidValue;
    bool to_device = arena_of(c.to) >= 0, from_device = arena_of(c.from) >= 0;
    if (kind != cudaMemcpyDefault &&
        (to_device != (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) ||
         from_device != (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice))) {
        fail("%s: from %s memory to %s memory, but its kind says otherwise", what, from_device ? "device" : "host",
             to_device ? "device" : "host");
        return cudaErrorInvalidMemcpyDirection;
    }
    bool pageable = (!to_device && !is_pinned(c.to, 1)) || (!from_device && !is_pinned(c.from, 1));
    if (asynchronous && pageable && settings.strict) fail("%s uses pageable memory", what);
    if ((pageable || !asynchronous) && stream->capture) {
        stream->capture->invalid = true;
        return cudaErrorStreamCaptureUnsupported;
    }
    if (stream->capture) return enqueue_on(stream, what, [c, what] { run_copy(c, what); });
    mark_copy(c, 1);
    cudaError_t error = enqueue_on(stream, what, [c, what] {
        run_copy(c, what);
        mark_copy(c, -1);
    });
    /* The host waits for a copy of pageable memory, which goes through a buffer of the driver, and for other
       synchronous copies, but not for those between devices. */
    if (pageable || (!asynchronous && !(to_device && from_device))) {
        add_to_total(CUDASIM_WAITS, 1);
        wait_for(stream);
    }
    return error;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    ENTER_UNCAPTURED;
    Copy c = {static_cast<char *>(to), static_cast<const char *>(from), bytes, bytes, bytes, 1};
    return result(copy(c, kind, nullptr, false, "cudaMemcpy"));
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream)
{
    ENTER;
    Copy c = {static_cast<char *>(to), static_cast<const char *>(from), bytes, bytes, bytes, 1};
    return result(copy(c, kind, stream, true, "cudaMemcpyAsync"));
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream)
{
    ENTER;
    Copy c = {static_cast<char *>(to), static_cast<const char *>(from), to_pitch, from_pitch, width, height};
    return result(copy(c, kind, stream, true, "cudaMemcpy2DAsync"));
}
cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                                cudaStream_t stream)
{
    ENTER;
    if (bytes && (arena_of(to) != to_device || arena_of(from) != from_device)) {
        fail("cudaMemcpyPeerAsync: the memory is of devices %d and %d, the call says %d and %d", arena_of(to),
             arena_of(from), to_device, from_device);
        return result(cudaErrorInvalidValue);
    }
    Copy c = {static_cast<char *>(to), static_cast<const char *>(from), bytes, bytes, bytes, 1};
    return result(copy(c, cudaMemcpyDeviceToDevice, stream, true, "cudaMemcpyPeerAsync"));
}
cudaError_t cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t bytes)
{
    return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, nullptr);
}

static cudaError_t set_memory(void *to, int value, size_t bytes, cudaStream_t stream, const char *what)
{
    if (!bytes) return cudaSuccess;
    if (arena_of(to) < 0) {
        fail("%s: %p is not device memory", what, to);
        return cudaErrorInvalidValue;
    }
    return enqueue(stream, what, [=] {
        Allocation *a = use_range(to, bytes, now.device, true, what);
        if (!a) return;
        add_to_total(CUDASIM_COPIES, 1);
        add_to_total(CUDASIM_BYTES, bytes);
        if (reporting) report_other("a fill", 0, bytes);
        memset(to, value, bytes);
        check_written(*a, to, bytes);
    });
}
cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    ENTER_UNCAPTURED;
    return result(set_memory(to, value, bytes, nullptr, "cudaMemset"));
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    ENTER;
    return result(set_memory(to, value, bytes, stream, "cudaMemsetAsync"));
}

/* streams and events */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    ENTER;
    if (!stream || flags > cudaStreamNonBlocking) return result(cudaErrorInvalidValue);
    *stream = new_stream(device_of_thread, flags == cudaStreamNonBlocking);
    return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t *stream) { return cudaStreamCreateWithFlags(stream, cudaStreamDefault); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int)
{
    return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    ENTER;
    CUstream_st *s = stream ? stream_of(stream) : nullptr;
    if (!s) return result(cudaErrorInvalidResourceHandle);
    s->alive = false; /* queued operations still run: when something waits for them, or at the end */
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    ENTER;
    CUstream_st *s = stream_of(stream);
    if (!s) return result(cudaErrorInvalidResourceHandle);
    if (s->capture) {
        s->capture->invalid = true;
        return result(cudaErrorStreamCaptureUnsupported);
    }
    add_to_total(CUDASIM_WAITS, 1);
    wait_for(s);
    return result(fault);
}
/* Each query runs one operation, so that a loop that waits by queries ends. */
static cudaError_t query(CUstream_st *stream, uint64_t number, const Clock &clock)
{
    if (stream->done < number) {
        run_until(stream, stream->done + 1);
        close_allocations();
        if (stream->done < number) return result(cudaErrorNotReady);
    }
    join(host_clock, clock);
    return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    ENTER;
    CUstream_st *s = stream_of(stream);
    if (!s) return result(cudaErrorInvalidResourceHandle);
    if (s->capture) {
        s->capture->invalid = true;
        return result(cudaErrorStreamCaptureUnsupported);
    }
    return query(s, s->issued, s->clock);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    ENTER;
    CUstream_st *s = stream_of(stream);
    if (!s || !known_event(event)) return result(cudaErrorInvalidResourceHandle);
    if (event->capture) { /* the stream joins the capture */
        if (s->capture && s->capture != event->capture) return result(cudaErrorStreamCaptureInvalidated);
        s->capture = event->capture;
        s->capture_after.insert(s->capture_after.end(), event->capture_after.begin(), event->capture_after.end());
        return cudaSuccess;
    }
    if (!event->stream) return cudaSuccess;
    s->pending.push_back({event->stream, event->number});
    join(s->clock, event->clock);
    return cudaSuccess;
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *, void **arguments)
{
    return launch(*config, *static_cast<Body *>(arguments[0]));
}
cudaError_t cudaFuncGetName(const char **name, const void *kernel)
{
    ENTER;
    static std::map<const void *, std::string> &names = *new std::map<const void *, std::string>;
    std::string &found = names[kernel];
    if (found.empty()) found = symbol_name(kernel);
    *name = found.c_str();
    return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *user)
{
    ENTER;
    return result(enqueue(stream, "a host function", [=] { function(user); }));
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    ENTER;
    if (!event) return result(cudaErrorInvalidValue);
    *event = new CUevent_st();
    (*event)->device = device_of_thread;
    (*event)->timing = !(flags & cudaEventDisableTiming);
    events.insert(*event);
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    ENTER;
    if (!known_event(event)) return result(cudaErrorInvalidResourceHandle);
    events.erase(event);
    delete event;
    return cudaSuccess;
}
static std::chrono::steady_clock::time_point clock_of_events()
{
    if (!pretends) return std::chrono::steady_clock::now();
    const std::chrono::duration<double, std::milli> since(pretended);
    return std::chrono::steady_clock::time_point(std::chrono::duration_cast<std::chrono::steady_clock::duration>(since));
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    ENTER;
    CUstream_st *s = stream_of(stream);
    if (!s || !known_event(event) || s->device != event->device) return result(cudaErrorInvalidResourceHandle);
    event->capture = s->capture;
    event->capture_after = s->capture_after;
    if (s->capture) return cudaSuccess;
    /* An operation of its own: it waits for what the stream waits for, and notes the time. */
    cudaError_t error = enqueue_on(s, "cudaEventRecord", [event] {
        if (events.count(event)) event->time = clock_of_events();
    });
    event->stream = s;
    event->number = s->issued;
    event->clock = s->clock;
    return result(error);
}
cudaError_t cudaEventQuery(cudaEvent_t event)
{
    ENTER;
    if (!known_event(event)) return result(cudaErrorInvalidResourceHandle);
    if (event->capture) return result(cudaErrorStreamCaptureUnsupported);
    return event->stream ? query(event->stream, event->number, event->clock) : cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    ENTER;
    if (!known_event(event)) return result(cudaErrorInvalidResourceHandle);
    if (event->capture) return result(cudaErrorStreamCaptureUnsupported);
    add_to_total(CUDASIM_WAITS, 1);
    if (event->stream) wait_for(event->stream, event->number, event->clock);
    return result(fault);
}
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
    ENTER;
    if (!known_event(start) || !known_event(end) || !start->timing || !end->timing || !start->stream || !end->stream)
        return result(cudaErrorInvalidResourceHandle);
    if (start->stream->done < start->number || end->stream->done < end->number) return cudaErrorNotReady;
    *milliseconds = std::chrono::duration<float, std::milli>(end->time - start->time).count();
    return cudaSuccess;
}

/* graphs */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode)
{
    ENTER;
    CUstream_st *s = stream_of(stream);
    if (!s || s == legacy[s->device] || s->capture) return result(cudaErrorStreamCaptureUnsupported);
    s->capture = new CUgraph_st();
    s->capture->origin = s;
    s->capture->thread = std::this_thread::get_id();
    s->capture->relaxed = mode == cudaStreamCaptureModeRelaxed;
    s->capture_after.clear();
    ++captures;
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    ENTER;
    CUstream_st *s = stream_of(stream);
    if (!s || !s->capture || s->capture->origin != s) return result(cudaErrorStreamCaptureUnmatched);
    CUgraph_st *made = s->capture;
    if (!made->relaxed && made->thread != std::this_thread::get_id())
        return result(cudaErrorStreamCaptureWrongThread);
    for (CUstream_st *each : streams)
        if (each->capture == made) each->capture = nullptr;
    for (CUevent_st *event : events)
        if (event->capture == made) event->capture = nullptr;
    --captures;
    *graph = made->invalid ? nullptr : made;
    if (made->invalid) {
        delete made;
        return result(cudaErrorStreamCaptureInvalidated);
    }
    graphs.insert(made);
    return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status)
{
    ENTER;
    CUstream_st *s = stream_of(stream);
    if (!s) return result(cudaErrorInvalidResourceHandle);
    *status = !s->capture           ? cudaStreamCaptureStatusNone
              : s->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                    : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    ENTER;
    if (!exec || !graphs.count(graph)) return result(cudaErrorInvalidValue);
    *exec = new CUgraphExec_st{std::make_shared<std::vector<Node>>(graph->nodes), graph->origin->device};
    graphs.insert(*exec);
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    ENTER;
    if (!graphs.count(exec)) return result(cudaErrorInvalidValue);
    std::shared_ptr<std::vector<Node>> nodes = exec->nodes;
    return result(enqueue(stream, "a graph", [nodes] {
        std::vector<bool> done(nodes->size());
        std::vector<size_t> order(nodes->size());
        for (size_t i = 0; i < order.size(); ++i) order[i] = i;
        shuffle_order(order); /* nodes may run in any order that the edges allow */
        for (size_t left = order.size(); left;)
            for (size_t i : order) {
                bool ready = !done[i];
                for (size_t before : (*nodes)[i].after) ready = ready && done[before];
                if (!ready) continue;
                ++now.serial;
                (*nodes)[i].run();
                done[i] = true;
                --left;
            }
    }));
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    ENTER;
    if (!graphs.erase(graph)) return result(cudaErrorInvalidValue);
    delete graph;
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    ENTER;
    if (!graphs.erase(exec)) return result(cudaErrorInvalidValue);
    delete exec;
    return cudaSuccess;
}

/* ---- hooks for tests ---- */

size_t cudasim_live(cudasim_count what)
{
    Api api("cudasim_live");
    size_t sum = 0;
    switch (what) {
    case CUDASIM_DEVICE_ALLOCATIONS: return static_cast<size_t>(live_allocations);
    case CUDASIM_DEVICE_BYTES:
        for (const auto &arena : arenas) sum += arena.used;
        return sum;
    case CUDASIM_PINNED_BUFFERS: return pinned.size();
    case CUDASIM_STREAMS:
        for (CUstream_st *s : streams) sum += s->alive && s != legacy[s->device];
        return sum;
    case CUDASIM_EVENTS: return events.size();
    case CUDASIM_GRAPHS: return graphs.size();
    case CUDASIM_CUBLAS_HANDLES: return static_cast<size_t>(cublas_handles);
    case CUDASIM_COMMUNICATORS: return static_cast<size_t>(communicators);
    case CUDASIM_PENDING_OPERATIONS: return queued;
    case CUDASIM_CONTEXTS:
        for (int d = 0; d < max_devices; ++d) sum += contexts >> d & 1;
        return sum;
    }
    return 0;
}
long long cudasim_total(cudasim_total_of what) { return totals[what]; }
void cudasim_report(int on)
{
    Api api("cudasim_report");
    wanted = on;
    reporting = on && settings.report;
}
int cudasim_take_errors(void)
{
    int count = errors;
    errors = 0;
    return count;
}
const char *cudasim_last_error(void) { return last_error.c_str(); }
void cudasim_keep_going(int on) { settings.keep_going = on; }
void cudasim_limit_memory(int device, size_t bytes)
{
    Api api("cudasim_limit_memory");
    if (device >= 0 && device < settings.devices) arenas[device].limit = bytes;
}
void cudasim_fail_allocation(long n)
{
    Api api("cudasim_fail_allocation");
    allocation_countdown = n;
}
void cudasim_ask_allocation(int (*may)(void)) { may_allocate = may; }
void cudasim_pretend_times(const double *milliseconds)
{
    Api api("cudasim_pretend_times");
    run_all();
    close_allocations();
    pretends = milliseconds;
    pretended_at_host = 0;
    for (CUstream_st *s : streams) s->ended.clear();
    for (int i = 0; i < CUDASIM_TIMES; ++i) pretended_time[i] = milliseconds ? milliseconds[i] : 0;
}
double cudasim_pretended_time(void) { return pretended_at_host; }
void cudasim_fail_call(const char *name, long n, int error)
{
    Api api("cudasim_fail_call");
    planned_failure.name = name;
    planned_failure.countdown = n;
    planned_failure.error = static_cast<cudaError_t>(error);
}
void cudasim_skip_call(const char *name, long n)
{
    Api api("cudasim_skip_call");
    planned_skip.name = name;
    planned_skip.countdown = n;
}
void cudasim_fault(int error)
{
    Api api("cudasim_fault");
    fault = static_cast<cudaError_t>(error);
}
void cudasim_fault_in_kernel(long n, int error)
{
    Api api("cudasim_fault_in_kernel");
    planned_fault.countdown = n;
    planned_fault.error = static_cast<cudaError_t>(error);
}
long cudasim_failure_left(void) { return planned_failure.countdown; }
int cudasim_schedule(const char *order, const char *policy)
{
    Api api("cudasim_schedule");
    return set_schedule(order, policy);
}
}
