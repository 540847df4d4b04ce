/* What a program that has the library inside can count on: the first result is there after microseconds; after the first
 * calls a forward asks nobody for memory, makes no system call, and needs a few kilobytes.  It prints how long a start and a
 * forward take and what they need. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* syscall */
#endif
#include "tensorgrad.h"
#include "helpers.h"
#include <time.h>
#if defined(__linux__)
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

/* An allocator whose memory is an array, and whose free does nothing. */
static union {
    double aligned[1 << 17];
    unsigned char byte[1 << 20];
} arena;
static size_t arena_used;
static int arena_calls;

static void *arena_alloc(size_t bytes, void *user)
{
    (void)user;
    bytes = (bytes + 15) / 16 * 16;
    if (bytes > sizeof arena.byte - arena_used) return NULL;
    arena_used += bytes, ++arena_calls;
    return arena.byte + arena_used - bytes;
}

static void arena_free(void *p, size_t bytes, void *user) { (void)p, (void)bytes, (void)user; }

static const tg_allocator arena_allocator = {arena_alloc, arena_free, NULL};

/* So many forwards have made, and ended, the 128 tensors whose handles rest before they are used again. */
enum { WARM_UP = 40 };

#ifdef TG_HANDLE_STOCK /* .ci/run compiles this file as a whole program with 0 */
enum { MOST_BYTES = 4096 };
#else
enum { MOST_BYTES = 65536 };
#endif

/* A tensor of the caller's numbers, without a copy. */
static tg_tensor *wrap(float *numbers, tg_shape shape) { return tg_wrap(numbers, shape, TG_F32, NULL, NULL); }

/* A controller: 64 numbers in, three layers, one number out. */
static tg_module *controller(void)
{
    tg_module *layers[5];
    layers[0] = tg_nn_linear(64, 64, true);
    layers[1] = tg_nn_relu();
    layers[2] = tg_nn_linear(64, 64, true);
    layers[3] = tg_nn_relu();
    layers[4] = tg_nn_linear(64, 1, true);
    return tg_nn_sequential(layers, 5);
}

/* y = net(x) for numbers of the caller's, as a program asks for it. */
static float controlled(tg_module *net, float *x)
{
    TG_NO_GRAD;
    TG_SCOPE;
    return (float)tg_item(tg_forward(net, wrap(x, TG_SHAPE(1, 64))));
}

static double microseconds(tg_module *net, float *x)
{
    enum { RUNS = 51, CALLS = 200 };
    double took[RUNS], least;
    for (int r = 0; r < RUNS; ++r) {
        const clock_t begun = clock();
        for (int i = 0; i < CALLS; ++i) controlled(net, x);
        took[r] = (double)(clock() - begun) / CLOCKS_PER_SEC * (1e6 / (double)CALLS);
    }
    for (int k = 0; k <= RUNS / 2; ++k) { /* the median: the smallest of those that are left, again and again */
        int at = k;
        for (int r = k; r < RUNS; ++r) {
            if (took[r] < took[at]) at = r;
        }
        least = took[at], took[at] = took[k], took[k] = least;
    }
    return took[RUNS / 2];
}

TEST(a_forward_needs_no_memory)
{
    static float x[64] = {1, 2, 3};
    tg_module *net = controller();
    const float first = controlled(net, x);
    for (int i = 1; i < WARM_UP; ++i) controlled(net, x);
    const int calls = arena_calls;
    const size_t used = arena_used;
    bool same = true;
    for (int i = 0; i < 1000; ++i) same = same && controlled(net, x) == first;
    CHECK(same && tg_ok());
    CHECK(arena_calls == calls && arena_used == used);
    printf("forward of 64-64-64-1: %.2f us, %d calls of the allocator in 1000\n", microseconds(net, x), arena_calls - calls);
    tg_module_free(net);
}

#if defined(__linux__) && defined(SECCOMP_MODE_STRICT)
enum { NOTHING, A_CALL, FORWARDS };

/* Runs `what` in a child that the kernel kills at its first system call, but for read, write and the end of a thread.
 * Returns whether it lived to its end. */
static bool lives_without_system_calls(int what, tg_module *net, float *x)
{
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < WARM_UP; ++i) controlled(net, x);
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) _exit(1);
        if (what == A_CALL) syscall(SYS_getppid);
        for (int i = 0; i < 1000 && what == FORWARDS; ++i) controlled(net, x);
        syscall(SYS_exit, 0);
    }
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(a_forward_makes_no_system_call)
{
    static float x[64] = {1, 2, 3};
    tg_module *net = controller();
    controlled(net, x);
    if (!lives_without_system_calls(NOTHING, net, x)) {
        printf("skipped: a_forward_makes_no_system_call: nobody here counts them\n");
    } else {
        CHECK(!lives_without_system_calls(A_CALL, net, x));
        CHECK(lives_without_system_calls(FORWARDS, net, x));
        printf("forward of 64-64-64-1: 0 system calls in 1000\n");
    }
    tg_module_free(net);
}
#else
TEST(a_forward_makes_no_system_call)
{
    printf("skipped: a_forward_makes_no_system_call: nobody here counts them\n");
}
#endif

/* Weights that are in the program, as constants, and one number in and out. */
static float hidden_weight[32], hidden_bias[32], out_weight[32], out_bias[1] = {0.5F};

static void set_weights(void)
{
    for (int i = 0; i < 32; ++i) hidden_weight[i] = 0.1F * (float)i, hidden_bias[i] = -0.05F * (float)i, out_weight[i] = 0.03F;
}

static float small_forward(void)
{
    TG_NO_GRAD;
    TG_SCOPE;
    float number = 1.5F;
    tg_tensor *x = wrap(&number, TG_SHAPE(1, 1));
    tg_tensor *h = tg_linear(x, wrap(hidden_weight, TG_SHAPE(32, 1)), wrap(hidden_bias, TG_SHAPE(32)));
    return (float)tg_item(tg_linear(tg_tanh(h), wrap(out_weight, TG_SHAPE(1, 32)), wrap(out_bias, TG_SHAPE(1))));
}

/* What the first result of a process costs: main measures it before anything else. */
static struct {
    float result;
    double took;     /* microseconds of the processor, from main to the first result */
    int allocations; /* calls of the allocator */
    long calls;      /* system calls; -1: nobody here counts them */
    bool counted;    /* three more calls are noticed */
} start;

#if defined(__linux__) && defined(PT_SYSCALL)
/* System calls that a child makes between two stops, its own signals among them: `more` of its own, and those of a first
 * result, if it is to have one. */
static long system_calls(int more, bool forward)
{
    int status = 0;
    long stops = 0;
    const pid_t child = fork();
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(1);
        raise(SIGSTOP);
        for (int i = 0; i < more; ++i) syscall(SYS_getppid);
        if (forward) start.result = small_forward();
        raise(SIGSTOP);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) return -1;
    do {
        if (ptrace(PTRACE_SYSCALL, child, NULL, NULL) != 0 || waitpid(child, &status, 0) != child) return -1;
        stops += WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP;
    } while (WIFSTOPPED(status) && WSTOPSIG(status) != SIGSTOP);
    const bool stopped = WIFSTOPPED(status);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return stopped ? stops / 2 : -1; /* one stop before and one after each call */
}
#else
static long system_calls(int more, bool forward) { return more || forward ? -1 : 0; }
#endif

static void measure_the_start(void)
{
    set_weights();
    const long none = system_calls(0, false), with = system_calls(0, true);
    start.calls = none < 0 || with < 0 ? -1 : with - none;
    start.counted = system_calls(3, false) == none + 3;
    const clock_t begun = clock();
    start.result = small_forward();
    start.took = (double)(clock() - begun) / CLOCKS_PER_SEC * 1e6;
    start.allocations = arena_calls;
}

enum { MOST_ALLOCATIONS = 24, MOST_SYSTEM_CALLS = 8 };

TEST(a_start_is_short)
{
    CHECK(tg_ok() && start.result == small_forward());
    CHECK(start.allocations > 0 && start.allocations < MOST_ALLOCATIONS);
    CHECK(start.calls < MOST_SYSTEM_CALLS && (start.counted || start.calls < 0));
    if (start.calls < 0) printf("skipped: the system calls of a_start_is_short: nobody here counts them\n");
    printf("start of 1-32-1: %.0f us from main to the first result, %d calls of the allocator, %ld system calls\n", start.took,
           start.allocations, start.calls);
}

TEST(an_arena_of_kilobytes_is_enough)
{
    tg_shutdown();
    arena_used = 0;
    CHECK(tg_set_allocator(&arena_allocator) == TG_OK);
    size_t warm = 0;
    float first = 0, y = 0;
    for (int i = 0; i < 100000; ++i) {
        y = small_forward();
        if (i == WARM_UP) warm = arena_used, first = y;
    }
    CHECK(y == first && tg_ok());
    CHECK(arena_used == warm && warm < MOST_BYTES);
    printf("forward of 1-32-1, weights in the program: %d bytes of memory after 40 and after 100000\n", (int)arena_used);
}

int main(int argc, char **argv)
{
    const bool counts = !HARNESS_MEMORY_CHECKER && tg_set_allocator(&arena_allocator) == TG_OK;
    if (counts) measure_the_start();
    harness_begin(argc, argv);
    tg_set_num_threads(1);
    if (HARNESS_MEMORY_CHECKER) { /* freed blocks go back at once, so that each forward allocates */
        printf("skipped: all of test_embed, which counts the memory that a checker changes\n");
        CHECK(tg_ok());
        return harness_end();
    }
    CHECK(counts);
    RUN(a_start_is_short);
    RUN(a_forward_needs_no_memory);
    RUN(a_forward_makes_no_system_call);
    RUN(an_arena_of_kilobytes_is_enough);
    return harness_end();
}
