/* What the test programs share: checks that are counted and name their line, tests that must leave nothing behind, and
 * the summary that `make test` reads.  Include it after tensorgrad.h.  C99 and C++11.
 *
 *     TEST(addition)
 *     {
 *         CHECK(tg_ndim(tg_ones(TG_SHAPE(2))) == 1);
 *         CHECK_NEAR(tg_item(tg_scalar(0.5)), 0.5, 0);
 *         CHECK_FAILS(tg_add(tg_ones(TG_SHAPE(2)), tg_ones(TG_SHAPE(3))), "broadcast");
 *         ROW(2.14) { CHECK(tg_ok()); }                         a row of the semantics list that this block holds
 *     }
 *     int main(int argc, char **argv)
 *     {
 *         harness_begin(argc, argv);                            an argument runs only the tests whose name contains it
 *         RUN(addition);
 *         return harness_end();                                 "3 passed, 0 failed"
 *     }
 *
 *     test_ops --part 1/4                  every fourth test, from the second: what takes long takes turns
 *     TG_PLAIN=1 test_ops                  runs them on the plain backend, but what harness_skips_plain skips
 *     TG_TEST_DEVICE=cuda:1 test_ops       runs the tests there, in programs that ask by harness_take_device(): it is
 *                                          the default device, and HERE in calls that name one */
#ifndef HARNESS_H
#define HARNESS_H

#include "tensorgrad.h"
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HARNESS_ROWS = 512 };
/* Under a memory checker freed blocks go back at once, so that it sees every use after free. */
#if defined(__SANITIZE_ADDRESS__)
#define HARNESS_MEMORY_CHECKER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
#define HARNESS_MEMORY_CHECKER 1
#endif
#endif
#ifndef HARNESS_MEMORY_CHECKER
#define HARNESS_MEMORY_CHECKER 0
#endif

static struct {
    int passed, failed, part, parts, turn;
    bool uses_ended; /* tests use tensors that have ended, on purpose: their handles must stay in memory */
    tg_device device;
    const char *program, *only, *test, *row, *sample; /* sample: what a table-driven test is at, or NULL */
    int row_count;
    struct { const char *row, *test; } rows[HARNESS_ROWS]; /* the rows that ran, each with its test */
} harness;

#define HERE harness.device
#define TEST(name) static void test_##name(void)
#define RUN(name) harness_run(#name, test_##name)
/* A loop of one pass: at the end of its block the row is over, and later failures are not reported as failures of
 * it. */
#define ROW_NAMED(name) for (harness_row_begins(name); harness.row; harness.row = NULL)
#define ROW(number) ROW_NAMED(#number)

/* Each is an expression: true if it held.  A comparison takes NaN as equal to NaN. */
#define CHECK(condition) harness_check((condition) ? true : false, #condition, __FILE__, __LINE__)
#define CHECK_NEAR(value, wanted, tolerance) harness_near(value, wanted, tolerance, #value, __FILE__, __LINE__)
#define CHECK_FAILS(call, text) (tg_clear_error(), (void)(call), harness_fails(text, #call, __FILE__, __LINE__))

static inline bool harness_check(bool holds, const char *text, const char *file, int line)
{
    if (holds) {
        harness.passed++;
        return true;
    }
    harness.failed++;
    printf("%s:%d: %s", file, line, harness.test);
    if (harness.row) printf(" [row %s]", harness.row);
    if (harness.sample) printf(" [%s]", harness.sample);
    printf(": %s\n", text);
    if (!tg_ok()) printf("    error: %s\n", tg_error_message());
    tg_clear_error();
    return false;
}

static inline bool harness_close(double value, double wanted, double tolerance)
{
    if (value == wanted || (isnan(value) && isnan(wanted))) return true;
    return fabs(value - wanted) <= tolerance * (1 + fabs(wanted)) && !isinf(value) && !isinf(wanted);
}

static inline bool harness_near(double value, double wanted, double tolerance, const char *text, const char *file,
                                int line)
{
    char message[400];
    snprintf(message, sizeof message, "%s is %.17g, wanted %.17g within %g", text, value, wanted, tolerance);
    return harness_check(harness_close(value, wanted, tolerance), message, file, line);
}

/* After a call that must fail: the error must contain the text, and is cleared.  A device reports a bad index only when
 * its kernel has run. */
static inline bool harness_fails(const char *wanted, const char *call, const char *file, int line)
{
    char message[800];
    bool late = tg_ok() && tg_synchronize(HERE) != TG_OK;
    bool holds = !tg_ok() && strstr(tg_error_message(), wanted) != NULL &&
                 (!late || strstr(tg_error_message(), "(detected later)") != NULL);
    snprintf(message, sizeof message, "%s: wanted the error \"%s\"%s", call, wanted, tg_ok() ? ", there was none" : "");
    harness_check(holds, message, file, line);
    tg_clear_error();
    return holds;
}

/* Ends a child of fork without what exit does for the parent as well; coverage counts what the child has run. */
#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#ifdef HARNESS_COVERAGE
#ifdef __cplusplus
extern "C"
#endif
void __gcov_dump(void);
#endif
static inline void harness_leave_child(int code)
{
#ifdef HARNESS_COVERAGE
    __gcov_dump();
#endif
    _exit(code);
}
#endif

/* Adds the bits of a tensor, or the word none for NULL, to a hash (FNV-1a), to compare devices or runs. */
#define HARNESS_HASH 14695981039346656037u
static inline uint64_t harness_mix(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *p = (const unsigned char *)data;
    while (bytes-- > 0) hash = (hash ^ *p++) * 1099511628211u;
    return hash;
}

static inline uint64_t harness_mix_tensor(uint64_t hash, tg_tensor *t)
{
    size_t bytes = t ? (size_t)tg_numel(t) * tg_dtype_size(tg_dtype_of(t)) : 0;
    void *data;
    if (!t) return harness_mix(hash, "none", 4);
    data = malloc(bytes + 1);
    CHECK(data && tg_copy_out(tg_detach(t), data, bytes) == TG_OK);
    hash = harness_mix(hash, data, bytes);
    free(data);
    return hash;
}

static inline void harness_row_begins(const char *row)
{
    harness.row = row;
    if (harness.row_count == HARNESS_ROWS) return;
    harness.rows[harness.row_count].row = row;
    harness.rows[harness.row_count++].test = harness.test;
}

/* Whether this test, or group of samples, runs: by its name or by --part. */
static inline bool harness_takes_turn(const char *name)
{
    if (harness.only) return strstr(name, harness.only) != NULL;
    return harness.turn++ % harness.parts == harness.part;
}

/* A test runs in a scope of its own; after it nothing may be pending, here or on the device, and nothing left alive. */
static inline void harness_run(const char *name, void (*test)(void))
{
    tg_stats_info before, after;
    tg_mark mark;
    if (!harness_takes_turn(name)) return;
    harness.test = name, harness.row = harness.sample = NULL;
    if (HARNESS_MEMORY_CHECKER) tg_set_cache_limit(harness.uses_ended ? SIZE_MAX : 0);
    tg_set_default_device(HERE);
    before = tg_stats();
    mark = tg_scope_begin();
    test();
    harness.row = harness.sample = NULL;
    CHECK(tg_ok() && tg_synchronize(HERE) == TG_OK);
    tg_scope_end(mark);
    after = tg_stats();
    CHECK(after.tensors == before.tensors && after.nodes == before.nodes);
    CHECK(after.bytes == before.bytes && after.saved == before.saved);
    CHECK(after.modules == before.modules);
}

/* strtod of a text with a decimal point, in every locale. */
static inline double harness_number(const char *text, char **end)
{
    char copy[64], *at, *stop;
    double value;
    snprintf(copy, sizeof copy, "%.*s", (int)strcspn(text, " ,]"), text);
    if ((at = strchr(copy, '.')) != NULL) *at = *localeconv()->decimal_point;
    value = strtod(copy, &stop);
    if (end) *end = (char *)(uintptr_t)text + (stop - copy);
    return value;
}

static inline void harness_begin(int argc, char **argv)
{
    harness.program = argc > 0 ? argv[0] : "test";
    harness.test = "";
    setlocale(LC_ALL, ""); /* the user's, as most programs with windows do: what is computed, read and printed stays the same */
#ifdef LC_MESSAGES
    setlocale(LC_MESSAGES, "C"); /* what the system says of its errors */
#endif
    setvbuf(stdout, NULL, _IOLBF, 0); /* what was printed before a crash is seen */
    tg_set_error_handler(NULL, NULL); /* tests provoke errors: keep stderr quiet */
    harness.parts = 1;
    if (argc == 3 && strcmp(argv[1], "--part") == 0) {
        CHECK(sscanf(argv[2], "%d/%d", &harness.part, &harness.parts) == 2 && harness.part < harness.parts);
    } else if (argc > 1) {
        harness.only = argv[1];
    }
    HERE = TG_CPU;
}

/* After harness_begin, in a program whose tests can run on a device: HERE is what TG_TEST_DEVICE says. */
static inline void harness_take_device(void)
{
    const char *device = getenv("TG_TEST_DEVICE");
    if (device) CHECK(tg_device_parse(device, &HERE) == TG_OK);
    CHECK(tg_set_default_device(HERE) == TG_OK);
}

/* For programs that test the CUDA backend alone: true, after printing a summary, on a machine without a GPU. */
static inline bool harness_has_no_gpu(void)
{
    if (tg_cuda_is_available()) return false;
    printf("no CUDA device: 0 of the checks ran\n1 passed, 0 failed\n");
    return true;
}

/* Whether the plain backend runs (TG_PLAIN=1), and this check, which it is not for, is skipped and says so: it asks for
 * a fused op, for equal last bits, or takes long. */
static inline bool harness_skips_plain(const char *what)
{
    if (strcmp(tg_cpu_capability(), "plain") != 0) return false;
    printf("skipped: %s (plain backend)\n", what);
    return true;
}

/* tcc has no vectors: there the norms of rows in f64 are those of the plain backend, whose squares overflow. */
#ifdef __TINYC__
#define HARNESS_VECTORS 0
#else
#define HARNESS_VECTORS 1
#endif

static inline int harness_end(void)
{
    printf("%d passed, %d failed\n", harness.passed, harness.failed);
    return harness.failed != 0 || harness.passed == 0;
}

#endif
