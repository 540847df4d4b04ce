/* What the tests share beyond the harness: tensors written as text, comparisons with such text, gradients, warnings and
 * hooks.  Include it after tensorgrad.h.  C99 and C++11.
 *
 *     tg_tensor *x = leaf("[[1, 2], [3, 4]]");            f64, requires grad; f64("2") is a tensor without dims
 *     CHECK(backward_sum(tg_mul(x, x)) == TG_OK);
 *     HAS(tg_grad(x), "[[2, 4], [6, 8]]");                a check of shape and elements */
#ifndef HELPERS_H
#define HELPERS_H

#include "harness.h"
#include "inside.h"
#include <locale.h>
#include <time.h>

/* ---- tensors from text ---- */

enum { MAX_LITERAL = 512 };
typedef struct {
    tg_shape shape;
    int n;
    bool whole; /* every element is written as an integer */
    double value[MAX_LITERAL];
    int64_t integer[MAX_LITERAL];
} literal;

/* Nested lists of numbers, "[[1, 2], [nan, -0.]]"; without brackets a 0-dim tensor. */
static inline literal read_literal(const char *text)
{
    literal l;
    int64_t count[TG_MAX_DIMS + 1] = {0};
    int depth = 0, deepest = 0, product = 1;
    memset(&l, 0, sizeof l);
    l.whole = true;
    while (*text) {
        if (*text == '[') {
            count[++depth] = 0;
            if (depth > deepest) deepest = depth;
            ++text;
        } else if (*text == ']') {
            l.shape.dim[depth - 1] = count[depth];
            count[--depth]++;
            ++text;
        } else if (*text == ',' || *text == ' ') {
            ++text;
        } else {
            char *end, *integer_end;
            l.value[l.n] = harness_number(text, &end);
            l.integer[l.n] = strtoll(text, &integer_end, 10);
            if (integer_end != end) l.whole = false;
            if (end == text || ++l.n == MAX_LITERAL) abort(); /* a mistake in the text of a test */
            count[depth]++;
            text = end;
        }
    }
    l.shape.ndim = deepest;
    for (int i = 0; i < deepest; ++i) product *= (int)l.shape.dim[i];
    if (depth || product != l.n) abort();
    return l;
}

/* On HERE.  Integers are read exactly; "3.7" and "nan" become an integer as tg_to_dtype converts an f64. */
static inline tg_tensor *of(tg_dtype dtype, const char *text)
{
    const literal l = read_literal(text);
    const bool integers = l.whole && !tg_is_floating_point(dtype);
    const tg_dtype written = integers ? TG_I64 : TG_F64;
    tg_tensor *t = tg_from_on(integers ? (const void *)l.integer : (const void *)l.value, l.shape, written, HERE);
    return dtype == written ? t : tg_to_dtype(t, dtype);
}

static inline tg_tensor *leaf_of(tg_dtype dtype, const char *text)
{
    return tg_set_requires_grad(of(dtype, text), true);
}
static inline tg_tensor *f64(const char *text) { return of(TG_F64, text); }
static inline tg_tensor *f32(const char *text) { return of(TG_F32, text); }
static inline tg_tensor *i64(const char *text) { return of(TG_I64, text); }
static inline tg_tensor *boolean(const char *text) { return of(TG_BOOL, text); }
static inline tg_tensor *leaf(const char *text) { return leaf_of(TG_F64, text); }
static inline tg_tensor *scalar(double value) { return tg_full_on(TG_SCALAR, value, TG_F64, HERE); }
static inline tg_tensor *scalar_leaf(double value) { return tg_set_requires_grad(scalar(value), true); }

/* ---- comparing ---- */

static inline const char *shape_text(tg_shape s)
{
    static char text[2][160];
    static int turn;
    char *p = text[turn ^= 1];
    int used = snprintf(p, 160, "[");
    for (int i = 0; i < s.ndim; ++i) used += snprintf(p + used, 20, i ? ", %lld" : "%lld", (long long)s.dim[i]);
    snprintf(p + used, 3, "]");
    return p;
}

static inline bool same_shape(tg_shape a, tg_shape b)
{
    return a.ndim == b.ndim && (a.ndim == 0 || memcmp(a.dim, b.dim, (size_t)a.ndim * sizeof a.dim[0]) == 0);
}

/* Rounding of exact numbers to a dtype, and with `computed` what a few steps of computing may add. */
static inline double tolerance_of(tg_dtype dtype, bool computed)
{
    switch (dtype) {
    case TG_F64: return computed ? 1e-9 : 1e-12;
    case TG_F32: return computed ? 1e-5 : 1e-6;
    case TG_F16: return computed ? 4e-3 : 1e-3;
    case TG_BF16: return computed ? 3e-2 : 1e-2;
    default: return 0;
    }
}

/* Whether t has the shape and elements of the literal, in which "-0." is a negative zero.  If not, why is a message. */
static inline bool like_literal(tg_tensor *t, const char *wanted, bool computed, char *why, size_t size)
{
    double value[MAX_LITERAL];
    int64_t integer[MAX_LITERAL];
    const literal l = read_literal(wanted);
    if (!t) return snprintf(why, size, " is NULL"), false;
    const tg_dtype dtype = tg_dtype_of(t);
    const bool floats = tg_is_floating_point(dtype);
    if (!same_shape(tg_shape_of(t), l.shape)) {
        snprintf(why, size, " has shape %s, wanted %s", shape_text(tg_shape_of(t)), shape_text(l.shape));
        return false;
    }
    TG_SCOPE;
    TG_NO_GRAD;
    if (floats)
        tg_copy_out(tg_to_dtype(t, TG_F64), value, (size_t)l.n * sizeof value[0]);
    else
        tg_copy_out(tg_to_dtype(t, TG_I64), integer, (size_t)l.n * sizeof integer[0]);
    for (int i = 0; i < l.n; ++i) {
        bool close = floats ? harness_close(value[i], l.value[i], tolerance_of(dtype, computed))
                            : integer[i] == l.integer[i];
        if (floats && l.value[i] == 0 && signbit(l.value[i]) && !signbit(value[i])) close = false;
        if (close) continue;
        if (floats)
            snprintf(why, size, ": element %d is %.17g, wanted %s", i, value[i], wanted);
        else
            snprintf(why, size, ": element %d is %lld, wanted %s", i, (long long)integer[i], wanted);
        return false;
    }
    return tg_ok();
}

/* One check: the tensor that the call gives is the literal. */
static inline bool match(tg_tensor *t, const char *wanted, bool computed, const char *call, const char *file, int line)
{
    char why[400] = "", message[900];
    const bool same = like_literal(t, wanted, computed, why, sizeof why);
    snprintf(message, sizeof message, "%s%s", call, why);
    return harness_check(same, message, file, line);
}
#define HAS(t, text) match(t, text, false, #t, __FILE__, __LINE__)

/* The same as a condition, for functions that a CHECK calls. */
static inline bool has(tg_tensor *t, const char *wanted)
{
    char why[400] = "";
    const bool same = like_literal(t, wanted, false, why, sizeof why);
    if (!same) printf("    the tensor%s\n", why);
    return same;
}

/* ---- the oracle: what the plain backend computes ---- */

/* Between the two calls HERE is the CPU, and what is made there is of the plain backend.  A tensor takes part in the ops
   of the backend that made it, and in those of the other by a copy. */
static tg_device oracle_for;
static inline void oracle_begin(void)
{
    oracle_for = HERE, HERE = TG_CPU;
    tg_set_default_device(HERE);
    inside_plain(true);
}

static inline void oracle_end(void)
{
    inside_plain(false);
    HERE = oracle_for;
    tg_set_default_device(HERE);
}

/* The elements of t on the CPU, contiguous, without a history; NULL for NULL. */
static inline tg_tensor *copy_here(tg_tensor *t)
{
    const size_t bytes = t ? (size_t)tg_numel(t) * tg_dtype_size(tg_dtype_of(t)) : 0;
    void *data = t ? malloc(bytes + 1) : NULL;
    tg_tensor *copy = NULL;
    if (data && tg_copy_out(tg_detach(t), data, bytes) == TG_OK)
        copy = tg_from_on(data, tg_shape_of(t), tg_dtype_of(t), TG_CPU);
    free(data);
    return copy;
}

/* A leaf with the elements of t in f64, from which the oracle computes what is exact. */
static inline tg_tensor *exact_leaf(tg_tensor *t)
{
    return tg_set_requires_grad(tg_to_dtype(copy_here(t), TG_F64), true);
}

/* Whether t, of any dtype and on any device, has the elements that the oracle gave: exactly, or nearly. */
static inline bool is_exactly(tg_tensor *t, tg_tensor *wanted)
{
    return t && wanted && tg_equal(tg_to_dtype(copy_here(t), tg_dtype_of(wanted)), copy_here(wanted));
}

static inline bool is_nearly(tg_tensor *t, tg_tensor *wanted, double tolerance, double least)
{
    return t && wanted && tg_allclose(tg_to_dtype(copy_here(t), TG_F64), tg_to_dtype(copy_here(wanted), TG_F64), tolerance, least);
}

/* ---- gradients ---- */

/* The gradient of sum(y) with respect to x. */
static inline tg_tensor *gradient(tg_tensor *y, tg_tensor *x, int flags)
{
    tg_tensor *sum = tg_sum(y), *g = NULL;
    return tg_gradients(&sum, 1, NULL, &x, 1, &g, flags) == TG_OK ? g : NULL;
}

static inline tg_status backward_sum(tg_tensor *y) { return tg_backward(tg_sum(y)); }

static inline tg_status backward_flags(tg_tensor *y, int flags)
{
    tg_tensor *sum = tg_sum(y);
    return tg_backward_ex(&sum, 1, NULL, flags);
}

static inline tg_status backward_with(tg_tensor *y, tg_tensor *g, int flags)
{
    return tg_backward_ex(&y, 1, &g, flags);
}

/* ---- what is alive ---- */

/* Whether tensors, nodes, bytes, saved tensors or modules have become more or fewer. */
static inline bool alive_changed(const tg_stats_info *before)
{
    const tg_stats_info now = tg_stats();
    return now.tensors != before->tensors || now.nodes != before->nodes || now.bytes != before->bytes ||
           now.saved != before->saved || now.modules != before->modules;
}

/* ---- warnings ---- */

/* The last warning and their number, after tg_set_error_handler(keep_warning, NULL). */
static char warned[1024];
static int warnings;
static inline void keep_warning(tg_status code, const char *message, void *user)
{
    (void)user;
    if (code != TG_OK) return;
    ++warnings;
    strncpy(warned, message, sizeof warned - 1);
}

/* ---- what is printed ---- */

/* What was written to a temporary file, which is closed.  The text stays until the next call. */
static char printed[65536];
static inline const char *text_of(FILE *file)
{
    rewind(file);
    printed[fread(printed, 1, sizeof printed - 1, file)] = 0;
    fclose(file);
    return printed;
}

/* Whether the file has this text.  If not, both are printed. */
static inline bool prints(FILE *file, const char *wanted)
{
    const bool same = strcmp(text_of(file), wanted) == 0;
    if (!same) printf("---- wanted ----\n%s---- printed ----\n%s----\n", wanted, printed);
    return same;
}

/* ---- files ---- */

/* The name of a file beside the program: several programs may run at a time in one folder.  The text stays until the
   fourth call from now. */
static inline const char *beside(const char *name)
{
    static char path[4][1000];
    static int turn;
    char *p = path[turn = (turn + 1) % 4];
    snprintf(p, sizeof path[0], "%s.%s", harness.program, name);
    return p;
}

/* ---- allocations that fail ---- */

static int64_t allocations_left; /* until one fails: that one, or all from then on */
static bool fails_once;
static inline void *alloc_some(size_t bytes, void *user)
{
    const int64_t left = allocations_left--;
    (void)user;
    return left > 0 || (left < 0 && fails_once) ? malloc(bytes) : NULL;
}
static inline void free_some(void *p, size_t bytes, void *user)
{
    (void)bytes, (void)user;
    free(p);
}

/* Runs a scenario until no allocation of it fails: in run n the n-th one does, in a second pass all from then on; on a
 * device and in small (SMALL=1) every seventh one, since a launch on the simulator takes as long as a test on the CPU.
 * Nothing may stay alive.  For main, before the tests: the allocator changes while nothing is alive. */
static inline void out_of_memory(bool (*scenario)(void))
{
    const tg_allocator some = {alloc_some, free_some, NULL};
    const int64_t enough = 1000000;
    const int every = HERE.type != TG_DEV_CPU && getenv("SMALL") ? 7 : 1;
    harness.test = "out_of_memory";
    for (int pass = 0; pass < 2; ++pass) {
        bool done = false;
        fails_once = pass == 1;
        allocations_left = enough;
        CHECK(tg_set_allocator(&some) == TG_OK);
        tg_set_cache_limit(0);
        for (int n = 0; n < 2000 && !done; n += every) {
            const tg_mark mark = tg_scope_begin();
            allocations_left = n;
            done = scenario() && allocations_left >= 0;
            allocations_left = enough;
            tg_clear_error();
            tg_scope_end(mark);
            const tg_stats_info after = tg_stats();
            CHECK(after.tensors == 0 && after.nodes == 0 && after.bytes == 0 && after.saved == 0 && after.modules == 0);
        }
        CHECK(done);
        tg_clear_error();
        tg_shutdown();
        tg_set_default_device(HERE);
    }
    CHECK(tg_set_allocator(NULL) == TG_OK);
}

/* ---- how the time of something grows ---- */

/* Runs work(n) with 5,000 and with 40,000: eight times as many may take eight times the processor time, with much room
   for a busy machine, but not 64 times, as where each is searched for among all.  Prints the seconds for 40,000. */
static inline void grows_in_proportion(const char *what, void (*work)(int n))
{
    double seconds[2] = {0, 0};
    for (int k = 0; k < 2; ++k) {
        const clock_t start = clock();
        work(k ? 40000 : 5000);
        seconds[k] = (double)(clock() - start) / CLOCKS_PER_SEC;
    }
    printf("40,000 %s: %.2f s\n", what, seconds[1]);
    CHECK(seconds[1] < 24 * seconds[0] + 0.2);
}

/* ---- locales ---- */

/* Sets a locale with a decimal comma, one of the system or one that localedef makes in a folder of the test's own; false
 * after saying that there is none. */
static inline bool comma_locale(void)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE", "German"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
        if (setlocale(LC_ALL, names[i]) && *localeconv()->decimal_point == ',') return true;
    }
#if defined(__unix__) && (!defined(__STRICT_ANSI__) || defined(_POSIX_C_SOURCE)) /* which have setenv */
    char folder[600], command[1500];
    snprintf(folder, sizeof folder, "%.500s", beside("locales"));
    snprintf(command, sizeof command, "mkdir -p '%s' && localedef -i de_DE -f UTF-8 '%s/de_DE.UTF-8' >/dev/null 2>&1", folder,
             folder);
    if (!strchr(folder, '\'') && system(command) == 0) {
        setenv("LOCPATH", folder, 1);
        if (setlocale(LC_ALL, "de_DE.UTF-8") && *localeconv()->decimal_point == ',') return true;
    }
#endif
    puts("skipped: no locale with a decimal comma, and no localedef to make one");
    setlocale(LC_ALL, "C");
    return false;
}

/* ---- hooks ---- */

/* user: double *, the factor */
static inline tg_tensor *hook_times(tg_tensor *g, void *user) { return tg_mul_scalar(g, *(double *)user); }

/* user: int *, incremented by each call */
static inline tg_tensor *hook_count(tg_tensor *g, void *user)
{
    (void)g;
    ++*(int *)user;
    return NULL;
}

/* user: double *, becomes the sum of the gradient */
static inline tg_tensor *hook_see(tg_tensor *g, void *user)
{
    *(double *)user = tg_item(tg_sum(g));
    return NULL;
}

#endif
