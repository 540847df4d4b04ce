/* Random calls of every public function, which may fail but must not crash, leak or lie.
 *
 *     fuzz_api [--seed N] [--seconds S | --calls N] [--only NAME] [--skip NAME]... [--epoch N] [--trace] [--ended 0|1]
 *
 * build/api_calls.h (see tests/api/declarations.c) has a call for every declaration of tensorgrad.h; this file draws
 * the arguments: tensors of all kinds from a pool, NULL, tensors of another thread, handles that ended, hostile
 * numbers, shapes, dtypes, devices and texts, and callbacks that misbehave.  In half of the calls they fit each other, as
 * recipes.h says, in sizes, dtypes, layouts and files that vary.  Functions that take or end what the pool must know of
 * are called by hand (table by_hand_calls).  Memory comes from an allocator that is small and at times fails.
 *
 * An epoch is a run of calls between two tg_shutdown(), and depends on the seed and its number alone: a failure is
 * repeated by the --seed, --epoch and --calls that are printed with it; --trace prints each call before it is made.
 *
 * After each call (struct call, functions check_...):
 * (1) a call that failed has recorded an error, with a message that begins with "tg_";
 * (2) a call that did not fail has recorded none;
 * (3) a failed call has left NULL in every place for a result, and its first operand as it was;
 * (4) a tensor of the pool is well formed, and so is its gradient.
 * At the end of an epoch nothing is left alive, every byte has gone back to the allocator, and every deleter ran once.
 * After some epochs, a process of its own leaves callbacks by longjmp and goes on; it must not crash.
 * At the end of a run of 10 seconds of the processor and more every function has succeeded once (but for those in
 * may_never_succeed).
 *
 * Needs POSIX for a second thread and a second process, and to send what tg_print prints to /dev/null. */
#if !defined(__cplusplus) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include "tensorgrad.h"
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    POOL = 48,            /* tensors at hand */
    LIST = 12,            /* room in a list of tensors */
    MOST_FRAMES = 40,     /* scopes and grad modes that are open at a time */
    MOST_ELEMENTS = 5000, /* of a tensor that stays in the pool */
    CALLS_PER_EPOCH = 1000,
    MOST_NESTED = 3, /* calls within callbacks within calls */
    LEFT = 100       /* and the number of jumps: what a process that has survived them returns */
};

/* ---- random numbers ---- */

static uint64_t random_state;

static uint64_t random_bits(void) /* splitmix64 */
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int pick(int n) { return (int)(random_bits() % (uint64_t)n); }
static bool percent(int p) { return pick(100) < p; }

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))
#define ANY(array) ((array)[pick(COUNT(array))])

/* ---- the program ---- */

static struct {
    FILE *report;     /* what was stdout: tg_print prints to /dev/null */
    FILE *good, *bad; /* files that can and cannot be written */
    bool trace, ended;
    uint64_t seed;
    int64_t epoch, calls, passed, failed;
    int nested;
    bool jumps; /* callbacks are left by longjmp to `out`, */
    jmp_buf out;
    int64_t left; /* which so many were */
} fuzz;

/* ---- the allocator: at most 16 MB a block and 256 MB in all, and failing as the epoch wants it ---- */

static struct {
    size_t bytes;
    bool paused;             /* while the fuzzer itself makes calls: callbacks do nothing wrong */
    int every;               /* one in so many fails; 0: none */
    int64_t count, from, to; /* allocations from `from` to `to` fail */
} memory;

static void *memory_alloc(size_t bytes, void *user)
{
    void *p;
    (void)user;
    if (bytes > (size_t)16 << 20 || memory.bytes > (size_t)256 << 20) return NULL;
    if (!memory.paused) {
        int64_t k = memory.count++;
        if ((memory.every && pick(memory.every) == 0) || (k >= memory.from && k < memory.to)) return NULL;
    }
    p = malloc(bytes ? bytes : 1);
    if (p) memory.bytes += bytes;
    return p;
}

static void memory_free(void *p, size_t bytes, void *user)
{
    (void)user;
    if (p) memory.bytes -= bytes;
    free(p);
}

static const tg_allocator memory_allocator = {memory_alloc, memory_free, NULL};

static void memory_of_epoch(void)
{
    memory.paused = false;
    memory.count = memory.from = memory.to = 0;
    memory.every = 0;
    if (percent(25)) memory.every = 5 + pick(200);
    if (percent(25)) memory.from = pick(4000), memory.to = memory.from + pick(300);
}

/* ---- calls ---- */

typedef struct call call;
static call *now; /* the innermost call that is being made */

#include "../dlpack.h"
#include "draw.h"
#include "recipes.h"
#include "api_calls.h"

struct call {
    const api_function *f;
    call *outer;
    char text[1500]; /* the arguments so far */
    int n, lists, count;
    tg_tensor *tensor[8]; /* that were drawn */
    tg_tensor *list[4][LIST], *out[LIST], *index;
    bool has_out, has_index;
    int64_t errors;   /* recorded before it, or by callbacks within it */
    uint64_t before;  /* a hash of its first operand */
    bool has_deleted; /* it ran a deleter of tg_wrap */
    bool succeeded;   /* it recorded no error */
    bool disturbed;   /* a callback has made calls of its own, so the error record is not checked */
    bool failed;
    bool fits; /* the arguments are those of the recipes: */
    tg_dtype dtype;   /* tensors of f32 have this one instead, */
    tg_device device; /* are here, */
    int size[10];     /* and have size[2] where a recipe has the size 2 */
    tg_module *module; /* the last that was drawn, or NULL */
};

static void say(call *c, const char *format, ...)
{
    size_t used = strlen(c->text);
    va_list args;
    va_start(args, format);
    vsnprintf(c->text + used, sizeof c->text - used, format, args);
    va_end(args);
}

static void print_call(const call *c)
{
    int depth = 0;
    const call *outer;
    for (outer = c->outer; outer; outer = outer->outer) ++depth;
    fprintf(fuzz.report, "%lld:%*s %s(%s)\n", (long long)fuzz.calls, 2 * depth, "", c->f->name, c->text);
    fflush(fuzz.report);
}

static void fail(const char *format, ...)
{
    va_list args;
    if (fuzz.jumps) return; /* the fuzzer's book is of what is lost */
    fuzz.failed++;
    fprintf(fuzz.report, "--seed %llu --epoch %lld --calls %lld: ", (unsigned long long)fuzz.seed,
            (long long)fuzz.epoch, (long long)fuzz.calls);
    va_start(args, format);
    vfprintf(fuzz.report, format, args);
    va_end(args);
    fprintf(fuzz.report, "\n");
    if (!tg_ok()) fprintf(fuzz.report, "    error: %.600s\n", tg_error_message());
    if (now) print_call(now);
    fflush(fuzz.report);
    if (now) now->failed = true;
}

static bool is(const char *name) { return strcmp(now->f->name, name) == 0; }
static void made_by_hand(void) {}

static bool is_in(const char *name, const char *const *names, int n)
{
    int i;
    for (i = 0; i < n; ++i)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}
#define IS_ONE_OF(names) is_in(now->f->name, names, COUNT(names))

static void disturb(void)
{
    call *c;
    for (c = now; c; c = c->outer) c->disturbed = true;
}

/* ---- what is open and who owns what: the fuzzer's own book ---- */

/* Frames that are open: scopes, grad modes and, for a callback, whatever the library opened around it.  Closing one
   closes all with larger serials. */
static struct {
    uint64_t serial;
    bool owns, keeps; /* keeps: tg_keep does not take a tensor out of it */
    bool callback;    /* what the library has open around a callback, which cannot close it nor what is below */
} frames[MOST_FRAMES];
static int frame_count;
static uint64_t first_serial; /* of the epoch: serials are never used again */

/* A tensor of the pool lives while a frame owns it or the fuzzer retains it. */
enum { NOWHERE = -1, UNSCOPED = 0 };
typedef struct {
    tg_tensor *t;
    int home; /* frames[home - 1] owns it, UNSCOPED or NOWHERE */
    int retains;
    const tg_loader *loader; /* of a batch that is not kept: the next one for its home ends it; or NULL */
} entry;
static entry pool[POOL];
static struct {
    tg_stats_info stats;
    size_t bytes;
    int64_t wraps;
} left; /* what earlier epochs left alive */
static int pool_count;

static tg_tensor *ended[64], *foreign[6];
static tg_module *foreign_module; /* of the other thread, or NULL */
static int ended_count, foreign_count;
static tg_optim *optims[4];
static int optim_count;
static tg_dict *dicts[4]; /* none is inside another */
static int dict_count;
static struct {
    tg_loader *loader;
    int count; /* of its tensors */
} loaders[4];
/* The last of each that were freed; with --ended every use of them is an error. */
static struct { tg_optim *optim; tg_dict *dict; tg_loader *loader; tg_module *module; } freed;
static int loader_count;
static tg_module *modules[4]; /* none is a child of another */
static int module_count;
static tg_module *shared_module; /* of tg_module_share, or NULL; not in modules */
static tg_backward_run *runs[2];
static int run_count;
static tgi_scope_guard holds[8];
static tg_ctx *context;        /* of the custom function that runs, */
static tg_tensor *context_out; /* and its first output */

static entry *entry_of(const tg_tensor *t)
{
    int i;
    for (i = 0; i < pool_count; ++i)
        if (pool[i].t == t) return &pool[i];
    return NULL;
}

static bool is_foreign(const tg_tensor *t)
{
    int i;
    for (i = 0; i < foreign_count; ++i)
        if (foreign[i] == t) return true;
    return false;
}

static void pool_remove(entry *e, bool has_ended)
{
    if (has_ended && fuzz.ended) ended[ended_count++ % COUNT(ended)] = e->t;
    *e = pool[--pool_count];
}

/* For a tensor whose owner has released it. */
static void pool_unowned(entry *e)
{
    e->home = NOWHERE;
    if (e->retains == 0) pool_remove(e, true);
}

static void frames_close(int keep)
{
    int i;
    for (i = pool_count - 1; i >= 0; --i)
        if (pool[i].home > keep) pool_unowned(&pool[i]);
    frame_count = keep;
}

static void frames_close_from(uint64_t serial)
{
    int i = 0;
    while (i < frame_count && frames[i].serial < serial) ++i;
    frames_close(i);
}

static void frame_push(uint64_t serial, bool owns)
{
    if (!serial) return;
    frames[frame_count].serial = serial;
    frames[frame_count].keeps = frames[frame_count].callback = false;
    frames[frame_count++].owns = owns;
}

/* The serial of a block that got no scope of its own, for want of memory. */
static const uint64_t missing = UINT64_MAX;

/* Whether such a block is open.  Frames here are in the order of their serials, so nothing is opened in it, and it is
   left open only by a callback, which is told. */
static bool has_missing(void)
{
    return frame_count > 0 && frames[frame_count - 1].serial == missing && !frames[frame_count - 1].callback;
}

static int home_now(void)
{
    int i = frame_count;
    while (i > 0 && !frames[i - 1].owns) --i;
    return i;
}

/* After the end of the thread's state: retained tensors stay. */
static void all_ended(void)
{
    int i;
    for (i = pool_count - 1; i >= 0; --i)
        if (pool[i].home != NOWHERE) pool_unowned(&pool[i]);
    frame_count = 0;
}

/* Releases the fuzzer's references to the tensor. */
static void pool_evict(entry *e)
{
    tg_tensor *t = e->t;
    int retains = e->retains, home = e->home;
    pool_remove(e, retains > 0 || home != NOWHERE);
    while (retains-- > 0) tg_release(t);
    if (home == UNSCOPED)
        tg_release(t);
    else if (home != NOWHERE)
        tg_drop(t);
}

static bool is_too_large(tg_tensor *t)
{
    double n = 1;
    int i;
    for (i = 0; i < tg_ndim(t); ++i) {
        if (tg_dim(t, i) > 0) n *= (double)tg_dim(t, i);
    }
    return n > (double)MOST_ELEMENTS;
}

/* A tensor that the innermost frame owns, or that is not ours and has to be retained, joins the pool. */
static void pool_add(tg_tensor *t, bool is_borrowed)
{
    bool paused = memory.paused;
    int i;
    if (!t || entry_of(t) || is_foreign(t)) return;
    for (i = 0; i < ended_count && i < COUNT(ended); ++i)
        if (ended[i] == t) return; /* a view refers to it, no frame owns it */
    for (i = 0; now && now->disturbed && i < now->n; ++i)
        if (now->tensor[i] == t) return; /* it may have ended */
    memory.paused = true;
    if (is_borrowed) {
        if (!tg_retain(t)) return;
    }
    if (pool_count == POOL) pool_evict(&pool[pick(POOL)]);
    pool[pool_count].t = t;
    pool[pool_count].home = is_borrowed ? NOWHERE : home_now();
    pool[pool_count].loader = NULL;
    pool[pool_count++].retains = is_borrowed ? 1 : 0;
    if (is_too_large(t)) pool_evict(&pool[pool_count - 1]);
    memory.paused = paused;
}

/* ---- the other thread, which makes a few tensors and sleeps ---- */

static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool runs, is_ready, may_end;
} other;

static void *other_thread(void *user)
{
    tg_tensor *leaf = tg_set_requires_grad(tg_ones(TG_SHAPE(2, 3)), true);
    (void)user;
    pthread_mutex_lock(&other.lock);
    foreign[0] = leaf;
    foreign[1] = tg_mul(leaf, leaf);
    foreign[2] = tg_transpose(leaf, 0, 1);
    foreign[3] = tg_zeros_on(TG_SHAPE(3), TG_I64, TG_CPU);
    foreign[4] = tg_share(tg_ones(TG_SHAPE(2, 3)));
    foreign[5] = tg_share(tg_param(tg_ones(TG_SHAPE(3))));
    foreign_module = tg_nn_linear(3, 2, true);
    other.is_ready = true;
    pthread_cond_broadcast(&other.changed);
    while (!other.may_end) pthread_cond_wait(&other.changed, &other.lock);
    tg_release(foreign[4]), tg_release(foreign[5]);
    tg_module_free(foreign_module);
    tg_thread_end();
    pthread_mutex_unlock(&other.lock);
    return NULL;
}

static void other_begin(void)
{
    other.is_ready = other.may_end = false;
    other.runs = pthread_create(&other.thread, NULL, other_thread, NULL) == 0;
    if (!other.runs) return;
    pthread_mutex_lock(&other.lock);
    while (!other.is_ready) pthread_cond_wait(&other.changed, &other.lock);
    pthread_mutex_unlock(&other.lock);
    foreign_count = COUNT(foreign);
}

static void other_end(void)
{
    if (!other.runs) return;
    pthread_mutex_lock(&other.lock);
    other.may_end = true;
    pthread_cond_broadcast(&other.changed);
    pthread_mutex_unlock(&other.lock);
    pthread_join(other.thread, NULL);
    other.runs = false;
    foreign_count = 0;
    foreign_module = NULL;
}

/* ---- tensors to start from ---- */

static const int64_t small_sizes[] = {0, 1, 1, 2, 2, 3, 3, 3, 4, 5};

static tg_shape small_shape(void)
{
    tg_shape shape;
    int i, ndim = percent(5) ? pick(TG_MAX_DIMS + 1) : pick(5);
    memset(&shape, 0, sizeof shape);
    shape.ndim = ndim;
    for (i = 0; i < ndim; ++i) shape.dim[i] = ndim > 4 ? 1 + pick(2) : ANY(small_sizes);
    return shape;
}

static tg_device usable_device(void)
{
    int n = tg_cuda_device_count();
    return n > 0 && percent(30) ? TG_CUDA(pick(n)) : TG_CPU;
}

static tg_tensor *varied(tg_tensor *t)
{
    int n = tg_ndim(t);
    switch (pick(12)) {
    case 0: return n > 0 ? tg_transpose(t, 0, n - 1) : t;
    case 1: return n > 0 ? tg_narrow(t, 0, 0, tg_dim(t, 0) / 2) : t;
    case 2: return n > 0 && n < 5 ? tg_expand(tg_unsqueeze(t, 0), TG_SHAPE(2, -1, -1, -1, -1)) : t;
    case 3: return n > 0 ? tg_slice(t, -1, 0, INT64_MAX, 2) : t;
    case 4: return tg_detach(t);
    case 5: return tg_mul_scalar(tg_set_requires_grad(t, true), 2);
    case 6:
    case 7: return tg_set_requires_grad(t, true);
    case 8: return tg_set_name(t, "named") == TG_OK ? t : NULL;
    default: return t;
    }
}

static void make_tensor(void)
{
    tg_dtype dtype = (tg_dtype)pick(percent(50) ? 2 : 8);
    tg_device device = usable_device();
    tg_tensor *t, *base;
    memory.paused = true;
    base = tg_arange_on(-1, 3, percent(50) ? 0.25 : 1, dtype, device);
    if (percent(70)) base = tg_full_on(small_shape(), percent(50) ? 1 : 0.5 * pick(6), dtype, device);
    t = varied(base);
    if (t != base && percent(50)) pool_add(base, false);
    pool_add(t, false);
    tg_clear_error();
    memory.paused = false;
}

/* ---- drawing ---- */

static const int hostile_ints[] = {-1, -2, -8, -9, 7, 8, 9, 64, 1000000, 40000, INT32_MAX, INT32_MIN};
static const int64_t hostile_int64s[] = {
    -1,        -100,          1000000,       INT32_MAX,        INT32_MIN,        INT64_MAX,
    INT64_MIN, INT64_MAX - 1, INT64_MIN + 1, (int64_t)1 << 31, (int64_t)1 << 32, (int64_t)1 << 62};
static const double doubles[] = {0,     1,      -1,           0.5,    2,    3,   0.1, 1e-8,
                                 1e300, -1e300, 4294967296.0, 1e-310, -0.0, 100, 255, 256};

static void say_tensor(call *c, const tg_tensor *t)
{
    const entry *e = entry_of(t);
    int i;
    if (!t)
        say(c, "NULL");
    else if (is_foreign(t))
        say(c, "foreign");
    else if (!e)
        say(c, "ended");
    else {
        say(c, "#%d %s%s[", (int)(e - pool), tg_dtype_name(tg_dtype_of(t)),
            !tg_requires_grad(t) ? ""
            : tg_is_leaf(t)      ? " leaf"
                                 : " node");
        for (i = 0; i < tg_ndim(t); ++i) say(c, "%s%lld", i ? "," : "", (long long)tg_dim(t, i));
        say(c, "]");
    }
}

/* Whether a tensor suits a parameter of this name. */
static bool suits(const tg_tensor *t, const char *name)
{
    static const char *const of_integers[] = {"index", "indices", "ids", "targets"}, *const of_bool[] = {"mask",
                                                                                                         "cond"};
    tg_dtype dtype = tg_dtype_of(t);
    if (is_in(name, of_integers, COUNT(of_integers))) return dtype == TG_I64 || dtype == TG_I32;
    if (is_in(name, of_bool, COUNT(of_bool))) return dtype == TG_BOOL;
    if (now->n > 0 && entry_of(now->tensor[0])) {
        const tg_tensor *first = now->tensor[0];
        bool same_shape = tg_ndim(t) == tg_ndim(first) && tg_numel(t) == tg_numel(first);
        return dtype == tg_dtype_of(first) && tg_device_equal(tg_device_of(t), tg_device_of(first)) &&
               (same_shape || percent(20));
    }
    return tg_is_floating_point(dtype);
}

static tg_tensor *any_tensor(const char *name)
{
    tg_tensor *t = NULL;
    int tries = percent(75) ? 40 : 1, chance = pick(100);
    if (chance < 3) return NULL;
    if (chance < 6 && foreign_count) return ANY(foreign);
    if (chance < 9 && ended_count) return ended[pick(ended_count < COUNT(ended) ? ended_count : COUNT(ended))];
    while (pool_count && tries-- > 0) {
        t = pool[pick(pool_count)].t;
        if (suits(t, name)) break;
    }
    return t;
}

/* ---- arguments that fit each other ---- */

/* What a recipe says of a parameter of the function that is called, if this call keeps to it; else NULL. */
static const char *fitting(const char *name, const char *otherwise)
{
    return now->fits && !percent(3) ? recipe_of(now->f->name, name, otherwise) : NULL;
}

static tg_shape fitting_shape(const char *text)
{
    tg_shape shape = read_shape(text);
    int i;
    for (i = 0; i < shape.ndim; ++i) {
        if (shape.dim[i] > 1 && shape.dim[i] < COUNT(now->size)) shape.dim[i] = now->size[shape.dim[i]];
    }
    return shape;
}

/* A new tensor of the pool, by a recipe as "f32:2,3": contiguous, transposed, part of a larger one, or expanded. */
static tg_tensor *fitting_tensor(const char *recipe)
{
    static const char *const names[] = {"f32:", "f64:", "bf16:", "f16:", "i32:", "i64:", "u8:", "i8:", "i16:", "bool:"};
    const bool leaf = *recipe == '!', paused = memory.paused;
    const char *text = leaf ? recipe + 1 : recipe;
    tg_shape shape = fitting_shape(strchr(text, ':') + 1), large = shape;
    int dtype = 0, last = shape.ndim - 1, layout = pick(6);
    int64_t size;
    tg_tensor *t;
    while (strncmp(text, names[dtype], strlen(names[dtype])) != 0) ++dtype;
    if (dtype == TG_F32) dtype = now->dtype;
    if (layout == 1 && last > 0) size = large.dim[0], large.dim[0] = large.dim[last], large.dim[last] = size;
    if (layout == 2 && last >= 0) large.dim[last] *= 2;
    if (layout == 3 && last >= 0) large.dim[0] = 1;
    memory.paused = true;
    t = tg_to_dtype(tg_rand_on(large, TG_F64, now->device), (tg_dtype)dtype);
    if (dtype == TG_BOOL) t = tg_gt_scalar(tg_rand_on(large, TG_F64, now->device), 0.5);
    if (layout == 1 && last > 0) t = tg_transpose(t, 0, last);
    if (layout == 2 && last >= 0) t = tg_slice(t, last, 0, INT64_MAX, 2);
    if (layout == 3 && last >= 0) t = tg_expand(t, shape);
    if (leaf || (dtype <= TG_F16 && percent(30))) t = tg_set_requires_grad(tg_detach(t), true);
    pool_add(t, false);
    tg_clear_error();
    memory.paused = paused;
    return t;
}

/* What a call that fits keeps to.  There is room in the pool for its tensors, so that none of them is evicted. */
static void fit(call *c)
{
    int i;
    c->dtype = percent(60) ? TG_F32 : (tg_dtype)pick(TG_I32);
    c->device = usable_device();
    for (i = 0; i < COUNT(c->size); ++i) c->size[i] = i > 1 && percent(30) ? 1 + pick(5) : i;
    while (pool_count > POOL / 2) pool_evict(&pool[pick(pool_count)]);
}

static tg_tensor *draw_tensor(const char *name)
{
    const char *recipe = fitting(name, "f32:2,3");
    tg_tensor *t = strcmp(name, "out") == 0 && context && percent(80) ? context_out
                   : recipe                                           ? fitting_tensor(recipe)
                                                                      : any_tensor(name);
    say(now, "%s=", name);
    say_tensor(now, t);
    say(now, " ");
    if (now->n < COUNT(now->tensor)) now->tensor[now->n++] = t;
    return t;
}

static tg_tensor *const *draw_tensors(const char *name)
{
    tg_tensor **list = now->list[now->lists++];
    int i;
    const char *recipe = fitting(name, "f32:2,3");
    say(now, "%s=", name);
    if (!recipe && percent(4)) return say(now, "NULL "), (tg_tensor *const *)NULL;
    for (i = 0; i < LIST; ++i) {
        list[i] = i > 0 && (i > 3 || percent(20)) && (recipe || i <= 3 || percent(20)) ? list[i - 1]
                  : recipe                                                           ? fitting_tensor(recipe)
                                                                                     : any_tensor(name);
        if (i < 4) say(now, "%c", i ? ',' : '{'), say_tensor(now, list[i]);
        if (i == 0 && now->n < COUNT(now->tensor)) now->tensor[now->n++] = list[i];
    }
    say(now, "..} ");
    return list;
}

static int draw_count(const char *name)
{
    static const int hostile[] = {-1, 0, 0, INT32_MIN, LIST};
    const char *recipe = fitting(name, "2");
    now->count = recipe ? atoi(recipe) : percent(10) ? ANY(hostile) : 1 + pick(percent(80) ? 3 : LIST);
    say(now, "%s=%d ", name, now->count);
    return now->count;
}

static char no_tensor; /* what stands in a place for a result before the call */

static tg_tensor **draw_out_tensor(const char *name)
{
    now->index = (tg_tensor *)(void *)&no_tensor;
    now->has_index = percent(70);
    say(now, "%s=%s ", name, now->has_index ? "&y" : "NULL");
    return now->has_index ? &now->index : NULL;
}

static tg_tensor **draw_out_tensors(const char *name)
{
    int i;
    for (i = 0; i < LIST; ++i) now->out[i] = (tg_tensor *)(void *)&no_tensor;
    now->has_out = !percent(4);
    say(now, "%s=%s ", name, now->has_out ? "y" : "NULL");
    return now->has_out ? now->out : NULL;
}

static int draw_int(const char *name)
{
    const char *recipe = strcmp(name, "hook") == 0 ? NULL : fitting(name, strcmp(now->f->name, "tg_saved") == 0 ? "0" : "1");
    int value = pick(5) - 2;
    if (recipe) return say(now, "%s=%s ", name, recipe), atoi(recipe);
    if (strcmp(name, "flags") == 0) value = pick(16);
    if (strcmp(name, "reduction") == 0) value = pick(4);
    if (strcmp(name, "hook") == 0) value = pick(12);
    if (percent(10)) value = ANY(hostile_ints);
    say(now, "%s=%d ", name, value);
    return value;
}

static int64_t any_int64(void) { return percent(80) ? pick(8) - 2 : ANY(hostile_int64s); }

static int64_t draw_int64(const char *name)
{
    const char *recipe = fitting(name, "1");
    int64_t value = recipe ? strtoll(recipe, NULL, 10) : any_int64();
    say(now, "%s=%lld ", name, (long long)value);
    return value;
}

static uint64_t draw_uint64(const char *name) { return (uint64_t)draw_int64(name); }
static size_t draw_size(const char *name) { return (size_t)draw_int64(name); }

static double draw_double(const char *name)
{
    const char *recipe = fitting(name, "1");
    double value = percent(5) ? NAN : percent(5) ? (percent(50) ? INFINITY : -INFINITY) : ANY(doubles);
    if (recipe) value = strtod(recipe, NULL);
    say(now, "%s=%g ", name, value);
    return value;
}

static bool draw_bool(const char *name)
{
    const char *recipe = percent(50) ? fitting(name, "0") : NULL;
    bool value = recipe ? *recipe == '1' : percent(50);
    say(now, "%s=%d ", name, value);
    return value;
}

static const char *any_string(void)
{
    static const char *const texts[] = {"",
                                        "x",
                                        "%s%n%d",
                                        "cpu",
                                        "cuda",
                                        "cuda:0",
                                        "cuda:1",
                                        "cuda:",
                                        "cuda:99999999999",
                                        "matmul",
                                        "item",
                                        "to",
                                        "ij,jk->ik",
                                        "ij,jk",
                                        "i,i->",
                                        "ii->i",
                                        "ii",
                                        "...ij->...ji",
                                        "bij,bjk->bik",
                                        "...,...->...",
                                        "i...->i",
                                        "abcdefghijk->a",
                                        "ij->ijij",
                                        "->",
                                        ",",
                                        "i j , j k -> i k",
                                        "......->......",
                                        "ij,",
                                        "...",
                                        "i->z"};
    static char drawn[2001];
    static const char letters[] = "ijkab,->.... I";
    int i, n = percent(20) ? 2000 : pick(16);
    if (percent(3)) return NULL;
    if (percent(60)) return ANY(texts);
    for (i = 0; i < n; ++i) drawn[i] = n == 2000 ? 'n' : letters[pick(COUNT(letters) - 1)];
    drawn[n] = 0;
    return drawn;
}

static const char *any_path(void)
{
    static const char *const paths[] = {"x", "y", "0", "list", "list.0", "list.1", "list.list", "list.list.x", "list."};
    return percent(90) ? ANY(paths) : any_string();
}

/* Files are written and read in a folder of the fuzzer's own. */
static char folder[] = "/tmp/fuzz_api.XXXXXX";
static const char *const file_names[] = {"a", "b", "c", "d"};

static const char *file_of(const char *name)
{
    static char path[100];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void remove_files(void)
{
    int i;
    for (i = 0; i < COUNT(file_names); ++i) remove(file_of(file_names[i]));
}

/* Files as others write them; all can be read. */
static const struct { const char *bytes, *array; } npy_files[] = {
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", "123456781234567812345678"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,3,), }", "123456781234567812345678"},
    {"{'shape': (2,), 'fortran_order': True, 'descr': '>f8'}  ", "1234567812345678"},
    {"{'descr': '|u1', 'fortran_order': False, 'shape': (), }", "1"},
    {"{'descr': '<i8', 'fortran_order': False, 'shape': (0, 5), }", ""},
    {"{'descr': u'=i2', 'fortran_order': False, 'shape': (3L,), }", "123456"},
    {"{'descr': 'float32', 'fortran_order': False, 'shape': (2, 1, ), }\n\n", "12345678"},
};
static const struct { const char *header, *data; } safetensors_files[] = {
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]}}", "12345678"},
    {" { \"x\" : { \"data_offsets\" : [ 0 , 4 ] ,\n\t\"shape\" : [ 2 ] , \"dtype\" : \"I16\" } }  ", "1234"},
    {"{\"__metadata__\":null,\"\\ud83d\\ude00\":{\"more\":[{\"a\":-1.5e3},[],true],\"dtype\":\"U8\",\"shape\":[],"
     "\"data_offsets\":[0,1]}}", "1"},
    {"{\"b\\u0000\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]},\"f\":{\"dtype\":\"F8_E4M3\",\"shape\":[2],"
     "\"data_offsets\":[0,2]},\"\":{\"dtype\":\"U64\",\"shape\":[0],\"data_offsets\":[3,3]}}", "123"},
    {"{\"a\":{\"dtype\":\"BF16\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,4]},\"c\":{\"dtype\":\"F64\",\"shape\":[1],"
     "\"data_offsets\":[4,12]},\"__metadata__\":{\"k\":\"\\u00e9\\n\",\"z\":\"\\u0000\"}}", "123412345678"},
};
static const char *const index_files[] = {"{\"metadata\":{\"total_size\":48},\"weight_map\":{\"x\":\"a\",\"y.z\":\"b\"}}\n",
    "{ \"weight_map\" : { \"y.z\" : \".\\/b\" , \"\\u0078\" : \"a\" } }", "{\"weight_map\":{\"x\":\"a\"}}"};
static const char *const csv_files[] = {"1,2,3\n4,5,6\n", "1.5;2\n-3;4e2\n", "\"1\",2\r\n3,4\r\n", "7\n8\n9",
    "# a b\n1 2\n3 4\n", "x;y\n1,5;2\n", "1,,NA\n,,\n", "id,2019,2020\n1,2,3,\n", "1,#N/A,\t3\t\n4,5,6,\r\n",
    "\xEF\xBB\xBF\"a,b\";c\n\"1\" ;-,5 # d\n"};

static void write_file(const char *path, const char *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    if (!file) return;
    fwrite(bytes, 1, n, file);
    fclose(file);
}

/* A file that the function which is called can read: of another writer, or of the library's own. */
static const char *fitting_file(void)
{
    const char *path = file_of(ANY(file_names)), *name = now->f->name;
    char text[400];
    const bool paused = memory.paused;
    tg_dict *dict = NULL;
    memory.paused = true;
    if ((strstr(name, "safetensors_") || strstr(name, "module_load")) && !strstr(name, "_parse") && percent(20)) {
        const char *index = ANY(index_files);
        tg_tensor *x = tg_ones(TG_SHAPE(2, 3));
        dict = tg_dict_new();
        tg_dict_set(dict, "x", x);
        tg_safetensors_save(file_of("a"), dict);
        tg_dict_remove(dict, "x"), tg_dict_set(dict, "y.z", x);
        tg_safetensors_save(file_of("b"), dict);
        tg_dict_free(dict);
        path = file_of("c"); /* the index of these two */
        write_file(path, index, strlen(index));
    } else if (strstr(name, "_load") && now->module && percent(90)) {
        if (strstr(name, "checkpoint")) tg_checkpoint_save(path, now->module, NULL, 3);
        else tg_module_save(now->module, path);
    } else if (strstr(name, "csv")) {
        const char *csv = ANY(csv_files);
        write_file(path, csv, strlen(csv));
    } else if (strstr(name, "idx")) {
        write_file(path, "\0\0\10\1\0\0\0\4\1\2\3\4", 12);
    } else if (strstr(name, "safetensors_") && percent(70)) {
        const int k = pick(COUNT(safetensors_files));
        const size_t header = strlen(safetensors_files[k].header);
        memset(text, 0, 8);
        text[0] = (char)(header % 256), text[1] = (char)(header / 256);
        snprintf(text + 8, sizeof text - 8, "%s%s", safetensors_files[k].header, safetensors_files[k].data);
        write_file(path, text, 8 + header + strlen(safetensors_files[k].data));
    } else if (strstr(name, "npy_load") || strstr(name, "npy_parse")) {
        const int k = pick(COUNT(npy_files));
        const size_t header = strlen(npy_files[k].bytes) + 1, data = strlen(npy_files[k].array);
        memcpy(text, "\x93NUMPY\1\0", 8);
        text[8] = (char)header, text[9] = 0;
        snprintf(text + 10, sizeof text - 10, "%s\n%s", npy_files[k].bytes, npy_files[k].array);
        write_file(path, text, 10 + header + data);
    } else if (strstr(name, "_load") || strstr(name, "_list") || strstr(name, "_parse")) {
        dict = tg_dict_new();
        tg_dict_set(dict, "x", tg_ones(TG_SHAPE(2, 3)));
        tg_dict_set(dict, "y.z", tg_zeros(TG_SHAPE(0)));
        if (strstr(name, "npz")) tg_npz_save(path, dict);
        else tg_safetensors_save(path, dict);
        tg_dict_free(dict);
    }
    tg_clear_error();
    memory.paused = paused;
    return path;
}

/* Changes a file in a few places: other bytes, some less, some twice, words of the formats between them.  The size of a
   safetensors header mostly stays right, so that what follows is read, too. */
static void damage_file(const char *path)
{
    static const char *const words[] = {"{", "}", "[", "]", "(", ")", "\"", "'", ",", ":", ";", "\t", "\n", "#", "\\", "\\u0000", "\\ud83d",
        "null", "-1", "0", "1e9", "9223372036854775807", "99999999999999999999", "L", "NA", "#N/A", "F8_E4M3", "\"dtype\":\"U8\","};
    static char bytes[5000];
    FILE *file = fopen(path, "rb");
    size_t n = file ? fread(bytes, 1, 4000, file) : 0;
    const bool sized = n > 8 && memchr(" {", bytes[8], 2) && !memcmp(bytes + 2, "\0\0\0\0\0", 6) && percent(80);
    size_t header = sized ? (unsigned char)bytes[0] + 256u * (unsigned char)bytes[1] : 0;
    int i;
    if (file) fclose(file);
    for (i = 1 + pick(3); i > 0 && n > 0; --i) {
        const char *word = ANY(words);
        const size_t at = percent(90) ? (size_t)pick((int)n) : n - 1, some = (size_t)pick((int)(n - at) < 20 ? (int)(n - at) + 1 : 20);
        const size_t more = percent(50) ? strlen(word) : some, kind = (size_t)pick(4);
        if (kind == 0) bytes[at] = (char)pick(256);
        if (kind == 1) memmove(bytes + at, bytes + at + some, n - at - some), n -= some;
        if (kind == 1 && at >= 8 && at + some <= header) header -= some;
        if (kind == 2 && percent(20)) n = at;
        if (kind != 3 || n + more > sizeof bytes) continue;
        memmove(bytes + at + more, bytes + at, n - at);
        if (more == strlen(word)) memcpy(bytes + at, word, more);
        n += more;
        if (at >= 8 && at <= header) header += more;
    }
    if (header && n > 8) bytes[0] = (char)(header % 256), bytes[1] = (char)(header / 256);
    write_file(path, bytes, n);
}

/* A file, which may be missing, of another format or damaged. */
static const char *any_file(void)
{
    const char *path;
    if (percent(5)) return percent(50) ? NULL : file_of(percent(50) ? "" : "no/such/folder");
    if (percent(30)) return file_of(ANY(file_names));
    path = fitting_file();
    if (percent(80)) damage_file(path);
    return path;
}

/* A text that a parameter of this name may well accept, or NULL. */
static const char *fitting_string(const char *name)
{
    static const char *const modes[] = {"fan_in", "fan_out", "nearest", "linear", "bilinear"};
    static const char *const nonlinearities[] = {"relu", "tanh", "leaky_relu", "selu"};
    const bool is_path = strcmp(name, "path") == 0 && strncmp(now->f->name, "tg_dict_", 8) != 0;
    const char *recipe = fitting(name, strcmp(name, "equation") == 0 ? "ij,ij->ij" : NULL);
    static char text[40];
    if (now->fits && is_path) return fitting_file();
    if (recipe) return snprintf(text, sizeof text, "%.*s", (int)strcspn(recipe, " "), recipe), text;
    if (percent(30)) return NULL;
    return strcmp(name, "mode") == 0 ? ANY(modes) : strcmp(name, "nonlinearity") == 0 ? ANY(nonlinearities) : NULL;
}

static const char *draw_string(const char *name)
{
    const bool is_path = strcmp(name, "path") == 0, in_dict = strncmp(now->f->name, "tg_dict_", 8) == 0;
    const char *text = fitting_string(name);
    if (!text) text = !is_path ? any_string() : in_dict ? any_path() : any_file();
    if (text)
        say(now, "%s=\"%.24s%s\" ", name, text, strlen(text) > 24 ? "\"..." : "");
    else
        say(now, "%s=NULL ", name);
    return text;
}

static tg_shape draw_shape(const char *name)
{
    static const int hostile_ndims[] = {-1, -2, 9, 10, 100, 1000000, INT32_MAX, INT32_MIN};
    const char *recipe = fitting(name, strcmp(name, "index") == 0 ? "0,0" : "");
    tg_shape shape = small_shape();
    bool is_shape = strstr(name, "shape") != NULL;
    int i, chance = pick(100);
    if (recipe) {
        shape = is_shape ? fitting_shape(recipe) : read_shape(recipe);
        say(now, "%s=%.12s ", name, recipe);
        return shape;
    }
    for (i = 0; i < shape.ndim && !is_shape; ++i) shape.dim[i] = pick(5) - 2;
    if (chance < 85 && strstr(" kernel stride padding dilation output ", name)) { /* of windows */
        shape.ndim = 1 + pick(2);
        for (i = 0; i < 2; ++i) shape.dim[i] = strcmp(name, "padding") == 0 ? pick(2) : 1 + pick(3);
    } else if (chance < 35 && now->n > 0 && entry_of(now->tensor[0]))
        shape = tg_shape_of(now->tensor[0]);
    else if (chance < 50 && pool_count)
        shape = tg_shape_of(pool[pick(pool_count)].t);
    if (shape.ndim > 0 && percent(10)) shape.dim[pick(shape.ndim)] = -1;
    if (shape.ndim > 0 && percent(6)) shape.dim[pick(shape.ndim)] = ANY(hostile_int64s);
    if (percent(6)) shape.ndim = ANY(hostile_ndims);
    say(now, "%s=%d[", name, shape.ndim);
    for (i = 0; i < shape.ndim && i < TG_MAX_DIMS; ++i) say(now, "%s%lld", i ? "," : "", (long long)shape.dim[i]);
    say(now, "] ");
    return shape;
}

static tg_dtype draw_dtype(const char *name)
{
    static const int hostile[] = {8, -1, 99, INT32_MAX};
    int dtype = percent(6) ? ANY(hostile) : percent(50) ? pick(2) : pick(8);
    if (fitting(name, "")) dtype = (int)now->dtype;
    say(now, "%s=%d ", name, dtype);
    return (tg_dtype)dtype;
}

static tg_device draw_device(const char *name)
{
    static const int types[] = {-1, 0, 1, 2, INT32_MAX}, indices[] = {-2, -1, 0, 1, 2, 63, 64, INT32_MAX, INT32_MIN};
    tg_device device = usable_device();
    if (fitting(name, "")) device = now->device;
    else if (percent(20)) device.type = ANY(types), device.index = ANY(indices);
    say(now, "%s=%d:%d ", name, device.type, device.index);
    return device;
}

static tg_precision draw_precision(const char *name) { return (tg_precision)draw_int(name); }
static tg_status draw_status(const char *name) { return (tg_status)draw_int(name); }

static tg_rng draw_rng(const char *name)
{
    tg_rng rng;
    rng.seed = draw_uint64(name);
    rng.offset = draw_uint64(name);
    return rng;
}

/* An open frame, mostly the innermost; or one that is not open. */
static tg_mark draw_mark(const char *name)
{
    tg_mark mark;
    mark.serial = percent(20) ? 0 : first_serial + (uint64_t)any_int64();
    if (frame_count && percent(85)) mark.serial = frames[percent(70) ? frame_count - 1 : pick(frame_count)].serial;
    if (!mark.serial)
        say(now, "%s=0 ", name);
    else
        say(now, "%s=first+%lld ", name, (long long)(mark.serial - first_serial));
    return mark;
}

/* Whether to use one that was freed. */
static bool uses_freed(const void *one, const char *name)
{
    if (!one || !fuzz.ended || !percent(3)) return false;
    say(now, "%s=ended ", name);
    return true;
}

static tg_optim *draw_optim(const char *name)
{
    if (uses_freed(freed.optim, name)) return freed.optim;
    tg_optim *opt = optim_count && !percent(5) ? optims[pick(optim_count)] : NULL;
    say(now, "%s=%s ", name, opt ? "opt" : "NULL");
    if (opt && percent(20)) {
        double *number[] = {
            &opt->lr,    &opt->weight_decay, &opt->momentum, &opt->dampening, &opt->beta1,
            &opt->beta2, &opt->eps,          &opt->alpha,    &opt->lr_decay,  &opt->initial_accumulator_value,
            &opt->rho};
        bool *flag[] = {&opt->nesterov, &opt->amsgrad, &opt->centered, &opt->strong_wolfe};
        opt->max_iter = pick(5), opt->max_eval = pick(6) - 1, opt->history_size = pick(4);
        if (opt->group && percent(50)) number[0] = &opt->group->lr_scale, number[1] = &opt->group->weight_decay;
        *ANY(number) = draw_double("field");
        *ANY(flag) = draw_bool("flag");
    }
    return opt;
}

/* Gives the leaves of the pool gradients, which a step needs. */
static void give_gradients(void)
{
    const bool paused = memory.paused;
    const tg_mark mark = tg_scope_begin();
    int i;
    memory.paused = true;
    for (i = 0; i < pool_count; ++i) {
        tg_tensor *t = pool[i].t;
        if (tg_is_leaf(t) && tg_requires_grad(t) && !tg_grad(t)) tg_set_grad(t, tg_ones_like(t));
    }
    tg_scope_end(mark);
    tg_clear_error();
    memory.paused = paused;
}

static tg_grad_scaler *draw_scaler(const char *name)
{
    static const tg_grad_scaler first = TG_GRAD_SCALER;
    static tg_grad_scaler scaler = TG_GRAD_SCALER;
    const bool given = !percent(5);
    say(now, "%s=%s ", name, given ? "scaler" : "NULL");
    if (now->fits || percent(20)) scaler = first;
    if (now->fits) scaler.steps = 1; /* an update comes after a step */
    if (now->fits && strstr(now->f->name, "_step")) give_gradients();
    if (percent(10)) scaler.scale = draw_double("scale");
    if (percent(10)) scaler.growth_interval = draw_int("growth_interval");
    return given ? &scaler : NULL;
}

/* now->count is then how many tensors it stores. */
static tg_loader *draw_loader(const char *name)
{
    if (uses_freed(freed.loader, name)) return now->count = 0, freed.loader;
    const int i = pick(COUNT(loaders));
    tg_loader *loader = i < loader_count ? loaders[i].loader : NULL;
    now->count = loader ? loaders[i].count : 0;
    say(now, "%s=%s ", name, loader ? "loader" : "NULL");
    return loader;
}

static tg_ctx *draw_ctx(const char *name)
{
    tg_ctx *ctx = percent(95) ? context : NULL;
    say(now, "%s=%s ", name, ctx ? "ctx" : "NULL");
    return ctx;
}

static FILE *draw_file(const char *name)
{
    FILE *file = percent(5) ? NULL : percent(5) ? fuzz.bad : fuzz.good;
    say(now, "%s=%s ", name, !file ? "NULL" : file == fuzz.bad ? "read only" : "/dev/null");
    return file;
}

static void *draw_user(const char *name)
{
    (void)name;
    return NULL;
}

/* ---- making one call ---- */

static const api_function *function_named(const char *name)
{
    int i;
    for (i = 0; i < API_FUNCTIONS; ++i)
        if (strcmp(api_functions[i].name, name) == 0) return &api_functions[i];
    return NULL;
}

typedef void (*any_call)(void);
static any_call by_hand_call(const char *name);

/* A hash of the elements of a small tensor on the CPU, and of its version; 0 if that cannot be asked. */
static uint64_t hash_of(tg_tensor *t)
{
    static unsigned char data[8 * MOST_ELEMENTS];
    uint64_t hash = 14695981039346656037u;
    size_t i, bytes;
    if (!entry_of(t) || tg_is_cuda(t)) return 0;
    bytes = (size_t)tg_numel(t) * tg_dtype_size(tg_dtype_of(t));
    if (bytes > sizeof data || tg_copy_out(t, data, bytes) != TG_OK) return 0;
    for (i = 0; i < bytes; ++i) hash = (hash ^ data[i]) * 1099511628211u;
    return hash ^ (uint64_t)tg_version_of(t);
}

static bool writes_in_place(const api_function *f) { return f->name[strlen(f->name) - 1] == '_'; }

static void call_starts(void)
{
    memory.paused = true;
    now->before = writes_in_place(now->f) && tg_ok() ? hash_of(now->tensor[0]) : 0;
    memory.paused = false;
    if (fuzz.trace) print_call(now);
    now->errors = tg_error_count();
}

static int64_t successes[API_FUNCTIONS]; /* calls that recorded no error */

static void run_function(const api_function *f)
{
    const any_call by_hand = by_hand_call(f->name);
    call c;
    clock_t start = clock();
    c.text[0] = 0;
    c.n = c.lists = c.count = 0;
    c.tensor[0] = NULL;
    c.module = NULL;
    c.fits = percent(50);
    if (c.fits) fit(&c);
    c.has_out = c.has_index = c.has_deleted = c.succeeded = c.disturbed = c.failed = false;
    c.f = f;
    c.outer = now;
    now = &c;
    if (!c.outer) fuzz.calls++;
    if (by_hand)
        by_hand();
    else
        f->call();
    const double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    if (seconds > (getenv("TG_SIM_DEVICES") ? 60 : 10)) fail("took %.1f s", seconds); /* simulated kernels are slow */
    if (!c.failed) fuzz.passed++;
    if (c.succeeded) successes[f - api_functions]++;
    now = c.outer;
}

/* ---- checking what came back ---- */

/* Functions that return NULL without an error, that return 0 only with one, and whose result belongs to another. */
static const char *const null_is_no_error[] = {"tg_grad",     "tg_data",          "tg_data_f32",         "tg_data_f64",
                                               "tg_data_i64", "tg_dict_get",      "tg_dict_get_dict",
                                               "tg_dict_metadata", "tg_dict_metadata_key",
                                               "tg_module_get", "tg_module_params", "tgi_enter"};
static const char *const zero_is_an_error[] = {"tg_split", "tg_chunk", "tg_hook", "tg_hook_post_accumulate",
                                               "tg_lora_apply"};
static const char *const borrows[] = {"tg_grad", "tg_saved", "tg_dict_get", "tg_module_get"};
/* Functions that return their module, or one inside it. */
static const char *const returns_module[] = {"tg_module_to",     "tg_module_to_dtype",  "tg_module_requires_grad_",
                                             "tg_module_train",  "tg_module_get_child", "tg_module_child_at",
                                             "tg_module_share"};

/* Contract (1) to (3).  has_failed: the result says that the call failed; may_have_failed: it may say so. */
static void check_record(bool has_failed, bool may_have_failed)
{
    call *c = now;
    int64_t raised = tg_error_count() - c->errors;
    bool late = strstr(tg_error_message(), "(detected later)") != NULL;
    int i;
    c->succeeded = !has_failed && raised <= 0;
    if (!c->disturbed) {
        if (has_failed && tg_ok()) fail("failed, and recorded no error");
        if (!may_have_failed && raised > 0 && !late) fail("did not fail, and recorded an error");
    }
    if (!tg_ok() && strncmp(tg_error_message(), "tg_", 3) != 0) fail("an error whose message does not begin with tg_");
    if (!has_failed) return;
    if (c->has_index && c->index) fail("failed, and left something in %s", "indices");
    for (i = 0; c->has_out && i < c->count && i < LIST; ++i) {
        if (!c->out[i]) continue;
        fail("failed, and left something in place %d of %d", i, c->count);
        break;
    }
    memory.paused = true;
    if (c->before && !c->disturbed && entry_of(c->tensor[0])) {
        uint64_t after;
        tg_clear_error();
        after = hash_of(c->tensor[0]);
        if (after && after != c->before) fail("failed, and changed its first operand or its version");
    }
    memory.paused = false;
}

static void take_results(void)
{
    int i;
    if (now->has_index && now->index == (tg_tensor *)(void *)&no_tensor)
        fail("did not fail, and made no indices");
    else if (now->has_index)
        pool_add(now->index, false);
    for (i = 0; now->has_out && i < now->count && i < LIST; ++i) {
        if (now->out[i] == (tg_tensor *)(void *)&no_tensor) continue; /* fewer pieces than places */
        pool_add(now->out[i], false);
    }
}

static void check_void(void) { check_record(false, true); }

static void check_tensor(tg_tensor *result)
{
    bool failed = !result && !IS_ONE_OF(null_is_no_error);
    check_record(failed, !result);
    if (result) pool_add(result, IS_ONE_OF(borrows));
    if (!failed) take_results();
}

static void check_status(tg_status result)
{
    check_record(result != TG_OK, result != TG_OK);
    if (result == TG_OK) take_results();
}

static void check_bool(bool result) { check_record(false, !result); }

static void check_int64(int64_t result)
{
    bool failed = result <= 0 && IS_ONE_OF(zero_is_an_error);
    check_record(failed, result == 0 || is("tg_error_count"));
    if (!failed) take_results();
}

static void check_size(size_t result) { check_record(false, result == 0); }

static void check_double(double result) { check_record(false, result == 0 || isnan(result)); }

static void check_string(const char *result)
{
    if (!result)
        check_record(!IS_ONE_OF(null_is_no_error), true);
    else
        check_record(false, strlen(result) < 10);
}

static void check_pointer(const void *result)
{
    bool may_be_null = IS_ONE_OF(null_is_no_error);
    check_record(!result && !may_be_null, !result);
}

/* What other libraries have of the pool's tensors, of either kind. */
static struct {
    DLManagedTensorVersioned *versioned;
    DLManagedTensor *unversioned;
} exports[4];

static void export_end(int i)
{
    if (exports[i].versioned) exports[i].versioned->deleter(exports[i].versioned);
    if (exports[i].unversioned) exports[i].unversioned->deleter(exports[i].unversioned);
    exports[i].versioned = NULL, exports[i].unversioned = NULL;
}

static void check_dlpack(DLManagedTensorVersioned *result)
{
    const int i = pick(COUNT(exports));
    check_record(!result, !result);
    export_end(i);
    exports[i].versioned = result;
}

static void check_dlpack_unversioned(DLManagedTensor *result)
{
    const int i = pick(COUNT(exports));
    check_record(!result, !result);
    export_end(i);
    exports[i].unversioned = result;
}

static void check_optim(tg_optim *result)
{
    check_record(!result, !result);
    if (!result) return;
    if (optim_count == COUNT(optims)) tg_optim_free(optims[--optim_count]);
    optims[optim_count++] = result;
}

/* What tg_dict_get_dict returns is inside another. */
static void check_dict(tg_dict *result)
{
    const bool is_inner = is("tg_dict_get_dict");
    check_record(!result && !is_inner, !result);
    if (!result || is_inner) return;
    if (dict_count == COUNT(dicts)) tg_dict_free(dicts[--dict_count]);
    dicts[dict_count++] = result;
}

static void check_group(tg_optim_group *result) { check_record(!result, !result); }

static void check_loader(tg_loader *result)
{
    check_record(!result, !result);
    if (!result) return;
    if (loader_count == COUNT(loaders)) tg_loader_free(loaders[--loader_count].loader);
    loaders[loader_count].loader = result;
    loaders[loader_count++].count = now->count;
}

static void check_module(tg_module *result)
{
    check_record(!result && !is("tg_module_get_child"), !result);
    if (!result || IS_ONE_OF(returns_module)) return;
    if (module_count == COUNT(modules)) tg_module_free(modules[--module_count]);
    modules[module_count++] = result;
}

static void check_run(tg_backward_run *result)
{
    check_record(!result, !result);
    if (!result) return;
    if (run_count == COUNT(runs)) tg_backward_end(runs[--run_count]);
    runs[run_count++] = result;
}

static void check_dtype(tg_dtype result)
{
    if ((int)result < 0 || (int)result > (int)TG_BOOL) fail("returned dtype %d", (int)result);
    check_record(false, true);
}

static void check_shape(tg_shape result)
{
    if (result.ndim < 0 || result.ndim > TG_MAX_DIMS) fail("returned %d dims", result.ndim);
    check_record(false, result.ndim == 0);
}

static void check_device(tg_device result) { check_record(false, result.type == TG_DEV_CPU); }

static void check_mark(tg_mark result)
{
    check_record(result.serial == 0, result.serial == 0);
    if (frame_count < MOST_FRAMES && !has_missing()) frame_push(result.serial, true);
    else tg_scope_end(result);
}

/* Contract (4). */
static void check_entry(int i)
{
    static unsigned char data[8 * MOST_ELEMENTS];
    tg_tensor *t = pool[i].t, *grad;
    int64_t numel = 1, ended_before = pool_count;
    int k, ndim;
    memory.paused = true;
    tg_clear_error();
    ndim = tg_ndim(t);
    if (ndim < 0 || ndim > TG_MAX_DIMS) fail("entry %d of the pool has %d dims", i, ndim);
    for (k = 0; k < ndim && k < TG_MAX_DIMS; ++k) numel *= tg_dim(t, k);
    if (numel != tg_numel(t) || numel < 0) fail("entry %d of the pool has %lld elements", i, (long long)tg_numel(t));
    if (tg_dtype_of(t) > TG_BOOL) fail("entry %d of the pool has dtype %d", i, (int)tg_dtype_of(t));
    if (numel >= 0 && numel <= MOST_ELEMENTS) {
        tg_status status = tg_copy_out(t, data, (size_t)numel * tg_dtype_size(tg_dtype_of(t)));
        if (status != TG_OK && !strstr(tg_error_message(), "(detected later)"))
            fail("entry %d of the pool: copy_out", i);
    }
    grad = tg_grad(t);
    if (grad && (tg_numel(grad) != numel || tg_ndim(grad) != ndim || tg_dtype_of(grad) != tg_dtype_of(t))) {
        fail("entry %d of the pool has a gradient of another shape or dtype", i);
    }
    if (ended_before != pool_count) fail("checking changed the pool");
    tg_clear_error();
    memory.paused = false;
}

/* ---- callbacks that misbehave ---- */

static int calls_within(void)
{
    const call *c;
    int n = 0;
    for (c = now; c; c = c->outer) ++n;
    return n;
}

static const char *only, *skipped[40];
static int skip_count;

static const api_function *any_function_of_table(void)
{
    const api_function *f;
    do f = &api_functions[pick(API_FUNCTIONS)];
    while (is_in(f->name, skipped, skip_count));
    return f;
}

/* One that has not succeeded yet, if there is one. */
static const api_function *any_without_success(void)
{
    int i = pick(API_FUNCTIONS), n = API_FUNCTIONS;
    while (n > 0 && (successes[i] || is_in(api_functions[i].name, skipped, skip_count))) --n, i = (i + 1) % API_FUNCTIONS;
    return n > 0 ? &api_functions[i] : any_function_of_table();
}

/* Whether it did anything: what the callback was given may then have ended. */
static bool misbehave(void)
{
    static const char *const chosen[] = {"tg_scope_begin", "tg_scope_end",   "tg_backward", "tg_shutdown",
                                         "tg_thread_end",  "tg_clear_error", "tg_release",  "tgi_scope_guard_open"};
    int n = pick(3);
    if (memory.paused || calls_within() > MOST_NESTED || percent(60)) return false;
    disturb();
    if (fuzz.jumps && percent(50)) longjmp(fuzz.out, 1);
    if (percent(50)) run_function(function_named(ANY(chosen)));
    while (n-- > 0) run_function(any_function_of_table());
    return true;
}

/* What the library has open around a callback counts as one frame; errors of the callback are not those of the call. */
typedef struct {
    int frames;
    int64_t errors;
} outside;
static outside callback_begins(void)
{
    outside o;
    tg_mark mark;
    o.errors = tg_error_count();
    mark = tg_scope_begin();
    tg_scope_end(mark);
    disturb();
    if (frame_count == MOST_FRAMES) frames_close(frame_count - 1); /* may end tensors that are in use */
    o.frames = frame_count;
    frames[frame_count].serial = mark.serial ? mark.serial : UINT64_MAX;
    frames[frame_count].keeps = false;
    frames[frame_count].callback = true;
    frames[frame_count++].owns = true;
    return o;
}

static void callback_ends(outside o)
{
    if (frame_count > o.frames) frames_close(o.frames);
    if (now) now->errors += tg_error_count() - o.errors; /* the call around it runs within a callback, too */
}

/* A tensor for a callback to return, made of what it was given, or NULL. */
static tg_tensor *any_answer(tg_tensor *given)
{
    switch (pick(12)) {
    case 0: return NULL;
    case 1: return tg_ones(small_shape());
    case 2: return pool_count ? pool[pick(pool_count)].t : NULL;
    case 3: return given;
    case 4: return given ? tg_to_dtype(given, (tg_dtype)pick(8)) : NULL;
    case 5: tg_scope_begin(); return given ? tg_mul_scalar(given, 3) : tg_ones(small_shape());
    case 6: return given ? tg_sum(given) : NULL;
    case 7: return given ? tg_detach(given) : NULL;
    default: return given ? tg_mul(given, given) : NULL;
    }
}

/* Misbehaves before or after the answer is made, and does not return what has ended by that. */
static tg_tensor *any_answer_of_callback(tg_tensor *given)
{
    tg_tensor *answer;
    if (misbehave()) given = NULL;
    answer = any_answer(given);
    if (given && misbehave() && (answer == given || !entry_of(answer))) answer = percent(50) ? tg_scalar(1) : NULL;
    return answer;
}

static tg_tensor *any_hook(tg_tensor *grad, void *user)
{
    outside o = callback_begins();
    tg_tensor *answer;
    (void)user;
    if (percent(20)) pool_add(grad, true);
    answer = any_answer_of_callback(grad);
    callback_ends(o);
    return answer;
}

static void any_post_hook(tg_tensor *leaf, void *user)
{
    outside o = callback_begins();
    (void)user;
    if (percent(20)) pool_add(leaf, true);
    misbehave();
    callback_ends(o);
}

static tg_tensor *any_function(tg_tensor *const *in, int n, void *user)
{
    outside o = callback_begins();
    tg_tensor *answer;
    (void)user;
    answer = any_answer_of_callback(n > 0 ? in[pick(n)] : NULL);
    callback_ends(o);
    return answer;
}

static void any_handler(tg_status code, const char *message, void *user)
{
    outside o;
    (void)code, (void)user;
    if (memory.paused) return;
    o = callback_begins();
    frames[frame_count - 1].keeps = true; /* tensors that the handler makes end with it */
    if (!message) fail("the error handler got no message");
    misbehave();
    callback_ends(o);
}

/* At times reads an input that was not given, and stores an output that was not asked for. */
static void exceed(tg_tensor *const *in, int n_in, tg_tensor **out, int n_out)
{
    if (percent(95)) return;
    tg_tensor *behind = in[n_in + pick(32)];
    if (behind) fail("an input that was not given");
    out[n_out + pick(64)] = percent(50) ? tg_ones(small_shape()) : tg_sum(behind);
}

static void any_module_forward(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int n_out)
{
    outside o = callback_begins();
    int i;
    (void)m;
    for (i = 0; i < n_out; ++i) out[i] = any_answer_of_callback(n > 0 ? in[pick(n)] : NULL);
    exceed(in, n, out, n_out);
    callback_ends(o);
}

static tg_tensor *any_forward_one(tg_module *m, tg_tensor *x)
{
    outside o = callback_begins();
    (void)m;
    tg_tensor *y = any_answer_of_callback(x);
    callback_ends(o);
    return y;
}

static void any_module_hook(tg_module *m, tg_tensor **in, int n, tg_tensor **out, int n_out, void *user)
{
    tg_tensor **list = out ? out : in;
    int count = out ? n_out : n;
    outside o = callback_begins();
    (void)m, (void)user;
    if (count > 0 && percent(50)) list[pick(count)] = any_answer_of_callback(n > 0 ? in[pick(n)] : NULL);
    callback_ends(o);
}

/* The user pointer of a custom function: how many inputs and outputs it has, and how often it was freed. */
typedef struct {
    int n_in, n_out, frees, wanted_frees;
} custom_user;
static custom_user custom_users[4000];
static int custom_user_count;

static void free_user(void *user) { ((custom_user *)user)->frees++; }

static tg_status any_custom(tg_ctx *ctx, tg_tensor *const *in, int n_in, tg_tensor **out, int n_out)
{
    static const char *const of_ctx[] = {"tg_save", "tg_saved", "tg_ctx_user", "tg_ctx_alloc",
                                         "tg_mark_non_differentiable"};
    tg_ctx *context_before = context;
    tg_tensor *out_before = context_out;
    outside o = callback_begins();
    int i, n = pick(4);
    bool may_use = !misbehave();
    const bool saves = may_use && n_in > 0 && percent(50) && tg_save(ctx, in[0]) == TG_OK;
    for (i = 0; i < n_out; ++i) out[i] = any_answer(may_use && n_in > 0 ? in[pick(n_in)] : NULL);
    context = ctx;
    context_out = n_out > 0 ? out[0] : NULL;
    if (saves && percent(50)) run_function(function_named("tg_saved"));
    while (n-- > 0) run_function(function_named(ANY(of_ctx)));
    exceed(in, n_in, out, n_out);
    if (may_use && misbehave()) {
        for (i = 0; i < n_out; ++i) out[i] = percent(80) ? tg_ones(small_shape()) : NULL;
    }
    context = context_before;
    context_out = out_before;
    callback_ends(o);
    return percent(90) ? TG_OK : (tg_status)pick(12);
}

static tg_status any_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    const custom_user *user = (const custom_user *)tg_ctx_user(ctx);
    return any_custom(ctx, in, user->n_in, out, user->n_out);
}

static tg_status any_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    const custom_user *user = (const custom_user *)tg_ctx_user(ctx);
    return any_custom(ctx, grad_out, user->n_out, grad_in, user->n_in);
}

/* Mostly a loss of one element, sometimes after a backward. */
static tg_tensor *any_closure(void *user)
{
    outside o = callback_begins();
    tg_tensor *answer;
    (void)user;
    answer = any_answer_of_callback(pool_count > 0 ? pool[pick(pool_count)].t : NULL);
    if (answer && percent(80)) answer = tg_sum(answer);
    if (answer && percent(50)) tg_backward(answer);
    callback_ends(o);
    return answer;
}

static tg_closure draw_closure(const char *name)
{
    (void)name;
    return percent(3) ? (tg_closure)NULL : any_closure;
}

static tg_function draw_function(const char *name)
{
    (void)name;
    return percent(3) ? (tg_function)NULL : any_function;
}

static tg_forward_fn draw_module_forward(const char *name)
{
    (void)name;
    return percent(3) ? (tg_forward_fn)NULL : any_module_forward;
}

static tg_forward_one_fn draw_forward_one(const char *name)
{
    (void)name;
    return percent(3) ? (tg_forward_one_fn)NULL : any_forward_one;
}

static tg_module_hook_fn draw_module_hook(const char *name)
{
    (void)name;
    return percent(3) ? (tg_module_hook_fn)NULL : any_module_hook;
}

static tg_hook_fn draw_hook(const char *name)
{
    (void)name;
    return percent(3) ? (tg_hook_fn)NULL : any_hook;
}

static tg_post_hook_fn draw_post_hook(const char *name)
{
    (void)name;
    return percent(3) ? (tg_post_hook_fn)NULL : any_post_hook;
}

static tg_custom_forward draw_forward(const char *name)
{
    (void)name;
    return percent(3) ? (tg_custom_forward)NULL : any_forward;
}

static tg_custom_backward draw_backward(const char *name)
{
    (void)name;
    return percent(3) ? (tg_custom_backward)NULL : any_backward;
}

static tg_error_handler draw_handler(const char *name)
{
    (void)name;
    return percent(70) ? (tg_error_handler)NULL : any_handler;
}

/* ---- by hand: ownership ---- */

/* Whether a call without a result did what it was asked for: a refused one runs no deleter, and an error beside one is
   that of the deleter. */
static bool was_done(void) { return now->has_deleted || tg_error_count() <= now->errors; }

static bool in_callback(void)
{
    bool is = false;
    for (int i = 0; i < frame_count; ++i) is = is || frames[i].callback;
    return is;
}

/* Whether a frame is open, and no callback runs in it: a callback cannot close what was open before it. */
static bool may_close(uint64_t serial)
{
    bool may = false;
    int i;
    for (i = 0; i < frame_count; ++i) may = !frames[i].callback && (may || frames[i].serial == serial);
    return may;
}

static void hand_scope_end(void)
{
    tg_mark mark = draw_mark("mark");
    bool may = may_close(mark.serial);
    call_starts();
    tg_scope_end(mark);
    check_void();
    if (mark.serial && may && was_done()) frames_close_from(mark.serial);
}

static void hand_hold_open(void)
{
    tgi_scope_guard *hold = &ANY(holds);
    int kind = percent(50) ? TGI_GUARD_SCOPE : TGI_GUARD_GRAD, value = draw_bool("value");
    if (frame_count == MOST_FRAMES || has_missing()) return;
    say(now, "kind=%d hold=%d ", kind, (int)(hold - holds));
    call_starts();
    *hold = tgi_scope_guard_open(hold, kind, value);
    check_void();
    if (hold->serial == missing && !in_callback()) tgi_scope_guard_close(hold);
    frame_push(hold->serial, kind == TGI_GUARD_SCOPE);
}

/* Closing a hold that is not open does nothing, nor closing one from before a callback in it. */
static void hand_hold_close(void)
{
    tgi_scope_guard *hold = &ANY(holds);
    uint64_t serial = hold->serial;
    bool may = may_close(serial);
    say(now, "hold=%d ", (int)(hold - holds));
    call_starts();
    tgi_scope_guard_close(hold);
    check_void();
    if (may && serial) frames_close_from(serial);
}

static void hand_keep(void)
{
    tg_tensor *t = draw_tensor("t"), *kept;
    entry *e;
    call_starts();
    kept = tg_keep(t);
    check_tensor(kept);
    e = kept ? entry_of(kept) : NULL;
    if (e) e->loader = NULL;
    if (e && e->home > UNSCOPED && e->home == home_now() && frames[e->home - 1].callback) {
        e->home = NOWHERE; /* which of the scopes that the library has open has it is not in the book */
        if (e->retains == 0) pool_remove(e, false);
        return;
    }
    if (e && e->home > UNSCOPED && e->home == home_now() && !frames[e->home - 1].keeps) {
        do e->home--;
        while (e->home > UNSCOPED && !frames[e->home - 1].owns);
    }
}

static void hand_retain(void)
{
    tg_tensor *t = draw_tensor("t"), *retained;
    call_starts();
    retained = tg_retain(t);
    check_tensor(retained);
    if (retained && entry_of(t))
        entry_of(t)->retains++;
    else if (retained)
        tg_release(t);
}

/* A tensor that another thread made and shared is released by that thread. */
static void release_in_a_way(bool in_list)
{
    tg_tensor *t = draw_tensor("t"), *list[2];
    entry *e;
    if (is_foreign(t) && t != foreign[0]) return;
    list[0] = NULL, list[1] = t;
    call_starts();
    if (in_list) tg_release_all(list, 2);
    else tg_release(t);
    check_void();
    e = entry_of(t);
    if (!e || !was_done()) return;
    if (e->retains > 0)
        e->retains--;
    else
        e->home = NOWHERE;
    if (e->retains == 0 && e->home == NOWHERE) pool_remove(e, true);
}

static void hand_release(void) { release_in_a_way(false); }
static void hand_release_all(void) { release_in_a_way(true); }

static void hand_drop(void)
{
    tg_tensor *t = draw_tensor("t");
    entry *e;
    call_starts();
    tg_drop(t);
    check_void();
    e = entry_of(t);
    /* tg_drop has no effect on a tensor of another scope */
    if (e && e->home == home_now() && was_done()) pool_unowned(e);
}

/* After tg_param or tg_share: the reference of t's scope is the user's, or, by tg_param, there is one more. */
static void taken_out(tg_tensor *t, bool by_param)
{
    entry *e = entry_of(t);
    if (e && (by_param || e->home != NOWHERE)) {
        e->home = NOWHERE;
        e->retains++;
    } else if (!e && (by_param || !is_foreign(t))) {
        tg_release(t); /* of what is not in the pool: refused if there is nothing to release */
    }
}

static void hand_param(void)
{
    tg_tensor *t = draw_tensor("t"), *result;
    call_starts();
    result = tg_param(t);
    check_tensor(result);
    if (result) taken_out(result, true);
}

static void hand_share(void)
{
    tg_tensor *t = draw_tensor("t"), *result;
    call_starts();
    result = tg_share(t);
    check_tensor(result);
    if (result) taken_out(result, false);
}

static void hand_thread_end(void)
{
    tg_status status;
    if (!now->outer && percent(80)) return; /* else most of an epoch would be starts */
    call_starts();
    status = is("tg_shutdown") ? tg_shutdown() : tg_thread_end();
    check_status(status);
    if (status == TG_OK) all_ended();
}

static void hand_set_allocator(void)
{
    static const tg_allocator half = {memory_alloc, NULL, NULL};
    const tg_allocator *allocator = percent(50) ? &half : &memory_allocator;
    call_starts();
    check_status(tg_set_allocator(allocator));
}

static void hand_nothing(void) {}

/* A place is not copied: it stays until the next one is set. */
static void hand_enter(void)
{
    static const char *const places[] = {NULL, "", "main.c:1", "a longer name of a file in folders/of/it/program.c:123456"};
    const int place = (int)pick(COUNT(places));
    say(now, "place=%d ", place);
    call_starts();
    (void)tgi_enter(places[place]);
    check_void();
}

/* A gradient that the tensor itself is part of is a cycle of references, which nothing ends: it does not stay. */
static void hand_set_grad(void)
{
    tg_tensor *t = draw_tensor("t"), *g = draw_tensor("g"), *fresh = NULL;
    if (percent(50) && entry_of(t))
        g = fresh = tg_ones_like(t);
    else if (percent(20))
        g = NULL;
    call_starts();
    tg_status status = tg_set_grad(t, g);
    check_status(status);
    if (status == TG_OK && g && g != fresh) tg_set_grad(t, NULL);
    pool_add(fresh, false);
}

/* Mostly a hook that exists. */
static void hand_unhook(void)
{
    tg_tensor *t = draw_tensor("t");
    int hook = entry_of(t) && percent(50) ? tg_hook(t, any_hook, NULL) : draw_int("hook");
    call_starts();
    check_status(tg_unhook(t, hook));
}

static void hand_optim_free(void)
{
    int i = pick(COUNT(optims));
    tg_optim *opt = i < optim_count ? optims[i] : NULL;
    if (opt) optims[i] = optims[--optim_count], freed.optim = opt;
    else if (uses_freed(freed.optim, "opt")) opt = freed.optim;
    call_starts();
    tg_optim_free(opt);
    check_void();
}

static tg_dict *draw_dict(const char *name)
{
    if (uses_freed(freed.dict, name)) return freed.dict;
    tg_dict *dict = dict_count && !percent(5) ? dicts[pick(dict_count)] : NULL;
    say(now, "%s=%s ", name, dict ? "dict" : "NULL");
    return dict;
}

/* Not within a callback, which may have been called by a function that uses the dictionary. */
static void hand_dict_free(void)
{
    int i = pick(COUNT(dicts));
    tg_dict *dict = i < dict_count ? dicts[i] : NULL;
    if (now->outer) return;
    if (dict) dicts[i] = dicts[--dict_count], freed.dict = dict;
    else if (uses_freed(freed.dict, "dict")) dict = freed.dict;
    call_starts();
    tg_dict_free(dict);
    check_void();
}

/* The inner dictionary is taken over even when the call fails, except where it contains the outer one. */
static void hand_dict_set_dict(void)
{
    tg_dict *dict = draw_dict("dict");
    const char *path = draw_string("path");
    int i = pick(COUNT(dicts));
    tg_dict *inner = i < dict_count && !now->outer ? dicts[i] : NULL;
    if (inner && inner != dict) dicts[i] = dicts[--dict_count];
    say(now, "inner=%d ", inner ? i : -1);
    call_starts();
    check_status(tg_dict_set_dict(dict, path, inner));
}

static void hand_dict_rename(void)
{
    static const char *const patterns[] = {"*", "x", "*x", "x*", "*.*", "list.*", "*i*", "", "**", "*********", "y.*", "p.*"};
    tg_rename table[3];
    tg_dict *dict = draw_dict("dict");
    int i, n = pick(4);
    for (i = 0; i < 3; ++i) {
        table[i].from = percent(3) ? NULL : ANY(patterns);
        table[i].to = percent(10) ? NULL : percent(50) ? table[i].from : ANY(patterns);
        table[i].transpose = percent(20);
    }
    call_starts();
    check_status(tg_dict_rename(dict, percent(3) ? NULL : table, percent(2) ? -1 : n));
}

/* The two dictionaries that it makes are freed at once. */
static void hand_module_load_state_ex(void)
{
    tg_module *m = draw_module("m");
    tg_dict *dict = draw_dict("dict"), *left_out[2] = {NULL, NULL};
    bool strict = draw_bool("strict");
    call_starts();
    check_status(tg_module_load_state_ex(m, dict, strict, &left_out[0], &left_out[1]));
    tg_dict_free(left_out[0]);
    tg_dict_free(left_out[1]);
}

/* False at the end of an epoch, and after an error. */
static void hand_loader_next(void)
{
    tg_loader *loader = draw_loader("loader");
    tg_tensor **out = draw_out_tensors("out");
    bool result;
    call_starts();
    result = tg_loader_next(loader, out);
    check_record(!result && !tg_ok(), !result);
    if (!result) return;
    const int home = home_now();
    for (int i = pool_count - 1; i >= 0; --i) {
        if (pool[i].loader == loader && pool[i].home == home) pool_unowned(&pool[i]);
    }
    take_results();
    if (home != UNSCOPED && frames[home - 1].callback) return; /* the library's scope ends them */
    for (int i = 0; now->has_out && i < now->count && i < LIST; ++i) {
        entry *e = entry_of(now->out[i]);
        if (e) e->loader = loader;
    }
}

/* Not within a callback: it may have been called by tg_loader_next. */
static void hand_loader_free(void)
{
    tg_loader *loader = NULL;
    if (now->outer) return;
    if (loader_count > 0 && percent(90)) freed.loader = loader = loaders[--loader_count].loader;
    else if (uses_freed(freed.loader, "loader")) loader = freed.loader;
    call_starts();
    tg_loader_free(loader);
    check_void();
}

static tg_module *draw_module(const char *name)
{
    tg_module *m = module_count && !percent(5) ? modules[pick(module_count)] : NULL;
    now->module = m;
    if (shared_module && percent(10)) return say(now, "%s=shared ", name), now->module = shared_module;
    if (foreign_module && percent(3)) return say(now, "%s=foreign ", name), foreign_module;
    if (uses_freed(freed.module, name)) return now->module = NULL, freed.module;
    say(now, "%s=%s ", name, m ? tg_module_name(m) : "NULL");
    return m;
}

/* One that the call takes over. */
static tg_module *draw_given_module(void)
{
    int i = pick(COUNT(modules));
    tg_module *m = i < module_count ? modules[i] : NULL;
    if (m) modules[i] = modules[--module_count];
    return m;
}

/* Not within a callback, which may have been called by a function that uses the module. */
static void hand_module_free(void)
{
    if (now->outer) return;
    tg_module *m = draw_given_module();
    if (m) freed.module = m;
    else if (uses_freed(freed.module, "m")) m = freed.module;
    call_starts();
    tg_module_free(m);
    check_void();
}

/* Mostly a hook that exists. */
static void hand_module_unhook(void)
{
    tg_module *m = draw_module("m");
    int hook = m && percent(50) ? tg_module_hook(m, any_module_hook, NULL) : draw_int("hook");
    call_starts();
    check_status(tg_module_unhook(m, hook));
}

static void hand_module_retain(void)
{
    tg_module *m = draw_module("m");
    call_starts();
    if (tg_module_retain(m)) tg_module_free(m);
    check_record(!m, true);
}

/* The child is taken over even when the call fails. */
static void hand_module_child(void)
{
    tg_module *m = draw_module("m"), *child = now->outer ? NULL : draw_given_module();
    const char *name = draw_string("name");
    call_starts();
    if (m == child && m) tg_module_retain(m), modules[module_count++] = m; /* its own child: refused */
    if (is("tg_module_add")) check_record(!tg_module_add(m, percent(50) ? name : "a.b.0", child), true);
    else check_record(!tg_module_child(m, name, child), true);
}

static void hand_module_replace(void)
{
    tg_module *m = draw_module("m"), *child = now->outer ? NULL : draw_given_module();
    const char *path = percent(70) && tg_module_child_count(m) > 0 ? tg_module_child_name(m, 0) : draw_string("path");
    tg_clear_error();
    call_starts();
    if (m == child && m) tg_module_retain(m), modules[module_count++] = m; /* its own child: refused */
    check_record(!tg_module_replace(m, path, child), true);
}

/* Modules that take over another one, mostly a linear layer. */
static void hand_wrapper(void)
{
    tg_module *base = now->outer || percent(20) ? draw_given_module() : tg_nn_linear(2, 3, true);
    const char *name = percent(80) ? "weight" : draw_string("name");
    const int dim = draw_int("dim"), count = draw_int("n_power_iterations");
    const double number = draw_double("alpha");
    tg_clear_error();
    call_starts();
    if (is("tg_nn_weight_norm")) check_module(tg_nn_weight_norm(base, name, dim));
    else if (is("tg_nn_spectral_norm")) check_module(tg_nn_spectral_norm(base, name, count, number, dim));
    else check_module(tg_nn_lora(base, count, number, percent(50) ? 0 : number));
}

/* Mostly with the module's own state, and as many inputs and outputs as most modules have. */
static void hand_functional_call(void)
{
    tg_module *m = draw_module("m");
    tg_dict *own = m && percent(70) ? tg_module_state(m) : NULL, *params = own ? own : draw_dict("params");
    tg_tensor *x = draw_tensor("x"), *out[1];
    tg_clear_error();
    call_starts();
    if (is("tg_functional_call")) {
        check_tensor(tg_functional_call(m, params, x));
    } else {
        const bool ok = tg_functional_call_n(m, params, &x, percent(90) ? 1 : 0, out, 1) == TG_OK;
        check_record(!ok, !ok);
        if (ok) pool_add(out[0], false);
        else if (out[0]) fail("failed, and left something in out");
    }
    tg_dict_free(own);
}

/* Mostly a buffer that was added before. */
static void hand_module_remove(void)
{
    tg_module *m = draw_module("m");
    const char *path = draw_string("path");
    if (m && percent(60) && tg_module_buffer(m, "gone", tg_scalar(1))) path = "gone";
    tg_clear_error();
    call_starts();
    check_status(tg_module_remove(m, path));
}

static void hand_lora_apply(void)
{
    tg_module *m = draw_module("m"), *linear = percent(60) ? tg_nn_linear(2, 2, true) : NULL;
    tg_module *own = linear ? tg_nn_sequential(&linear, 1) : NULL;
    const char *pattern = percent(80) ? "*" : draw_string("pattern");
    const int rank = draw_int("rank");
    const double alpha = draw_double("alpha");
    tg_clear_error();
    call_starts();
    check_int64(tg_lora_apply(own ? own : m, pattern, percent(70) ? 1 : rank, alpha, percent(70) ? 0 : alpha));
    tg_module_free(own);
}

/* Stacks of layers of a transformer, mostly; any module may be a layer or the norm. */
static void hand_stack(void)
{
    const int n = pick(5) - 1;
    const bool decodes = is("tg_nn_transformer_decoder");
    tg_module *layer, *norm;
    if (now->outer) return;
    if (percent(20)) layer = draw_given_module();
    else if (decodes) layer = tg_nn_transformer_decoder_layer(2, 1, 3, 0, percent(50), percent(50));
    else layer = tg_nn_transformer_encoder_layer(2, 1, 3, 0, percent(50), percent(50));
    norm = percent(50) ? NULL : percent(20) ? draw_given_module() : tg_nn_layer_norm(TG_SHAPE(2), 1e-5, true);
    tg_clear_error();
    call_starts();
    check_module(decodes ? tg_nn_transformer_decoder(layer, n, norm) : tg_nn_transformer_encoder(layer, n, norm));
}

static void hand_averaged_update(void)
{
    tg_module *model = draw_module("model"), *averaged;
    const double decay = draw_double("decay");
    averaged = percent(20) ? model : tg_nn_averaged(model, percent(20) ? decay : 0.5, percent(50));
    tg_clear_error();
    call_starts();
    check_status(tg_averaged_update(averaged, model));
    if (averaged != model) tg_module_free(averaged);
}

static bool any_param_test(const char *path, tg_tensor *t, void *user)
{
    outside o = callback_begins();
    const bool answer = path && t && percent(50);
    (void)user;
    misbehave();
    callback_ends(o);
    return answer;
}

static void hand_split_params(void)
{
    tg_module *m = draw_module("m");
    tg_tensor *out[64];
    const int n = percent(90) ? tg_module_count(m) : draw_int("n_out");
    tg_clear_error();
    if (n > 64) return;
    call_starts();
    const int count = tg_module_split_params(m, percent(4) ? (tg_param_test)NULL : any_param_test, NULL, out, n);
    check_record(count < 0, count <= 0);
}

/* Mostly a module in evaluation mode.  One is shared in an epoch, until its end: no call frees it or takes it over. */
static void hand_module_share(void)
{
    tg_module *m = draw_module("m"), *result;
    int i;
    if (m && m != shared_module && shared_module) return;
    if (m && m != foreign_module && percent(80)) tg_module_train(m, false);
    call_starts();
    result = tg_module_share(m);
    if (result && result != m) fail("another module was returned");
    check_module(result);
    for (i = 0; result && i < module_count; ++i)
        if (modules[i] == result) shared_module = result, modules[i] = modules[--module_count];
}

static void hand_module_tensor(void)
{
    tg_module *m = draw_module("m");
    const char *name = draw_string("name");
    tg_tensor *t = draw_tensor("t"), *result;
    call_starts();
    if (is("tg_module_param")) result = tg_module_param(m, name, t);
    else result = is("tg_module_buffer") ? tg_module_buffer(m, name, t) : tg_module_buffer_ex(m, name, t, percent(50));
    check_tensor(result);
    if (result && !is_foreign(result)) tg_retain(result), taken_out(result, true);
}

static void hand_module_device(void)
{
    tg_module *m = draw_module("m");
    tg_device device;
    call_starts();
    check_status(tg_module_device(m, percent(4) ? (tg_device *)NULL : &device));
}

static void hand_checkpoint_load(void)
{
    tg_module *m = draw_module("m"); /* before the path, which then is mostly a checkpoint of it */
    const char *path = draw_string("path");
    tg_optim *opt = percent(70) ? NULL : draw_optim("opt");
    int64_t step;
    call_starts();
    check_status(tg_checkpoint_load(path, m, opt, percent(30) ? NULL : &step));
}

static void hand_checkpoint_n(void)
{
    static const char *const names[] = {"a", "b", "a.b", ""};
    tg_checkpoint_part parts[3];
    const char *path = draw_string("path");
    const int n = pick(4);
    const bool save = is("tg_checkpoint_save_n");
    int64_t step = 0;
    for (int i = 0; i < n; ++i) {
        parts[i].name = percent(80) ? names[i % 2] : percent(80) ? names[pick(4)] : NULL;
        parts[i].module = percent(30) ? NULL : draw_module("m");
        parts[i].optim = percent(60) ? NULL : draw_optim("opt");
    }
    call_starts();
    if (save) check_status(tg_checkpoint_save_n(path, percent(4) ? NULL : parts, n, 5));
    else check_status(tg_checkpoint_load_n(path, percent(4) ? NULL : parts, percent(4) ? -1 : n, &step));
}

static void hand_container(void)
{
    static const char *const names[] = {"a", "b", "c"};
    tg_module *list[3];
    int i, n = pick(4);
    if (now->outer) return;
    for (i = 0; i < n; ++i) list[i] = percent(80) ? tg_nn_relu() : draw_given_module();
    call_starts();
    if (is("tg_nn_sequential"))
        check_module(tg_nn_sequential(list, n));
    else if (is("tg_nn_list"))
        check_module(tg_nn_list(list, n));
    else
        check_module(tg_nn_dict(names, list, n));
}

/* ---- by hand: memory of the user ---- */

static int64_t elements_of(tg_shape shape)
{
    int64_t n = 1;
    int i;
    if (shape.ndim < 0 || shape.ndim > TG_MAX_DIMS) return 0;
    for (i = 0; i < shape.ndim; ++i) {
        if (shape.dim[i] < 0 || shape.dim[i] > MOST_ELEMENTS) return 0;
        n *= shape.dim[i];
        if (n > MOST_ELEMENTS) return 0;
    }
    return n;
}

/* Host memory, mostly of ones of f64; NULL at times.  A shape that is too large for it becomes one of no elements. */
static double host_memory[MOST_ELEMENTS];
static const void *draw_memory(tg_shape *shape)
{
    int64_t n;
    int i;
    *shape = draw_shape("shape");
    n = elements_of(*shape);
    for (i = 0; n == 0 && i < shape->ndim && i < TG_MAX_DIMS; ++i)
        if (shape->dim[i] > 0) shape->dim[i] = 0;
    for (i = 0; i < 100; ++i) host_memory[i] = pick(4);
    return percent(4) ? (const void *)NULL : host_memory;
}

static void hand_from(void)
{
    tg_shape shape;
    const void *data = draw_memory(&shape);
    tg_dtype dtype = draw_dtype("dtype");
    tg_device device = draw_device("device");
    if (dtype == TG_BOOL) memset(host_memory, 1, sizeof host_memory); /* other bytes are no bool */
    call_starts();
    if (is("tg_from"))
        check_tensor(tg_from(data, shape, dtype));
    else if (is("tg_from_on"))
        check_tensor(tg_from_on(data, shape, dtype, device));
    else if (is("tg_from_f32"))
        check_tensor(tg_from_f32((const float *)data, shape));
    else if (is("tg_from_f64"))
        check_tensor(tg_from_f64((const double *)data, shape));
    else
        check_tensor(tg_from_i64((const int64_t *)data, shape));
}

static int64_t wraps_alive;
static void delete_wrapped(void *user)
{
    outside o = callback_begins();
    --wraps_alive;
    if (now) now->has_deleted = true;
    if (percent(10)) misbehave();
    free(user);
    callback_ends(o);
}

static void hand_wrap(void)
{
    tg_shape shape;
    bool has_data = draw_memory(&shape) != NULL;
    tg_dtype dtype = draw_dtype("dtype");
    size_t bytes = (size_t)elements_of(shape) * sizeof(double);
    void *data = calloc(bytes + 1, 1);
    tg_tensor *t;
    call_starts();
    ++wraps_alive;
    if (is("tg_wrap_const")) t = tg_wrap_const(has_data ? data : NULL, shape, dtype, delete_wrapped, data);
    else t = tg_wrap(has_data ? data : NULL, shape, dtype, delete_wrapped, data);
    if (!t) --wraps_alive, free(data);
    check_tensor(t);
}

/* A struct of another library, in one block with its memory: mostly a good one, at times with something wrong. */
static void end_block(lent_tensor *l)
{
    outside o = callback_begins();
    --wraps_alive;
    if (now) now->has_deleted = true;
    if (percent(10)) misbehave();
    free(l);
    callback_ends(o);
}
static void delete_block(DLManagedTensorVersioned *self) { end_block((lent_tensor *)self->manager_ctx); }
static void delete_block_unversioned(DLManagedTensor *self) { end_block((lent_tensor *)self->manager_ctx); }

static void spoil(DLTensor *d)
{
    switch (pick(8)) {
    case 0: d->data = NULL; break;
    case 1: d->shape = NULL; break;
    case 2: d->ndim = pick(40) - 10; break;
    case 3: d->byte_offset = (uint64_t)pick(8); break;
    case 4: d->dtype.lanes = (uint16_t)pick(3); break;
    case 5: d->dtype.code = (uint8_t)pick(20); break;
    case 6: d->device.device_type = (DLDeviceType)(3 + pick(20)); break;
    case 7: d->strides[0] = percent(50) ? -1 : INT64_MAX; break;
    }
}

static void hand_from_dlpack(void)
{
    static const struct { uint8_t code, bits; } dtypes[] = {{kDLFloat, 32}, {kDLFloat, 64}, {kDLBfloat, 16},
                                                            {kDLFloat, 16}, {kDLInt, 32}, {kDLInt, 64}, {kDLUInt, 8},
                                                            {kDLInt, 8}, {kDLInt, 16}, {kDLBool, 8}};
    const int dtype = pick(COUNT(dtypes));
    tg_shape shape;
    int64_t strides[LENT_DIMS] = {0}, stride = 1;
    draw_memory(&shape);
    const size_t bytes = sizeof(lent_tensor) + sizeof(double) * (size_t)(elements_of(shape) + 1);
    lent_tensor *l = (lent_tensor *)calloc(1, bytes);
    const int ndim = shape.ndim < 0 ? 0 : shape.ndim < TG_MAX_DIMS ? shape.ndim : TG_MAX_DIMS;
    for (int i = ndim - 1; i >= 0; --i) {
        strides[i] = percent(10) ? 0 : stride; /* expanded */
        stride *= shape.dim[i] > 0 ? shape.dim[i] : 1;
    }
    lent_of(l, l + 1, ndim, shape.dim, strides);
    l->managed.manager_ctx = l->unversioned.manager_ctx = l;
    l->managed.deleter = delete_block;
    l->unversioned.deleter = delete_block_unversioned;
    DLTensor *d = &l->managed.dl_tensor;
    d->dtype.code = dtypes[dtype].code, d->dtype.bits = dtypes[dtype].bits, d->ndim = shape.ndim;
    if (percent(10)) spoil(d);
    else if (percent(50)) d->strides = NULL;
    l->unversioned.dl_tensor = *d;
    if (percent(20)) l->managed.flags = 1; /* read-only */
    if (percent(4)) l->managed.version.major = 2;
    call_starts();
    ++wraps_alive;
    tg_tensor *t = is("tg_from_dlpack") ? tg_from_dlpack(&l->managed) : tg_from_dlpack_unversioned(&l->unversioned);
    if (!t) --wraps_alive, free(l);
    check_tensor(t);
}

static void hand_copy_out(void)
{
    tg_tensor *t = draw_tensor("t");
    size_t bytes = entry_of(t) ? (size_t)tg_numel(t) * tg_dtype_size(tg_dtype_of(t)) : 0;
    static unsigned char data[8 * MOST_ELEMENTS];
    if (percent(10)) bytes = draw_size("bytes");
    call_starts();
    check_status(tg_copy_out(t, percent(4) ? NULL : data, bytes));
}

static void hand_device_parse(void)
{
    const char *text = draw_string("text");
    tg_device device;
    call_starts();
    check_status(tg_device_parse(text, percent(4) ? (tg_device *)NULL : &device));
}

static void hand_make_shape(void)
{
    static const int64_t dims[TG_MAX_DIMS] = {1, 2, 3, 4, 5, 6, 7, 8};
    int ndim = draw_int("ndim");
    bool has_dims = percent(95) && ndim <= TG_MAX_DIMS;
    tg_shape shape;
    call_starts();
    shape = tg_make_shape(ndim, has_dims ? dims : NULL);
    if (ndim >= 0 && ndim <= TG_MAX_DIMS && has_dims && shape.ndim != ndim) fail("a shape of %d dims", shape.ndim);
}

/* ---- by hand: gradients ---- */

static void hand_backward_step(void)
{
    tg_backward_run *run = run_count && percent(95) ? runs[pick(run_count)] : NULL;
    tg_step_info info;
    bool more;
    memset(&info, 0, sizeof info);
    call_starts();
    more = tg_backward_step(run, percent(10) ? (tg_step_info *)NULL : &info);
    check_bool(more);
    if (more && !now->disturbed && percent(20)) pool_add(info.grad, true);
}

/* A run; if the arguments fit one of its own, *own, which has done a step. */
static tg_backward_run *draw_run_after_step(tg_backward_run **own)
{
    tg_tensor *x, *y;
    *own = NULL;
    if (now->fits) {
        x = tg_set_requires_grad(tg_ones(TG_SHAPE(2)), true);
        y = tg_sum(tg_mul(x, x));
        *own = tg_backward_begin(&y, 1, NULL, 0);
        if (*own) tg_backward_step(*own, NULL);
    }
    return *own ? *own : run_count && percent(95) ? runs[pick(run_count)] : NULL;
}

static void hand_step_input(void)
{
    tg_backward_run *own, *run = draw_run_after_step(&own);
    tg_step_input_info input;
    int i = percent(80) ? 0 : draw_int("i");
    bool found;
    memset(&input, 0, sizeof input);
    call_starts();
    found = tg_step_input(run, i, percent(5) ? (tg_step_input_info *)NULL : &input);
    check_bool(found);
    if (found && !now->disturbed && percent(20)) {
        if (input.value) pool_add(input.value, true);
        if (input.sent) pool_add(input.sent, true);
        if (input.sum) pool_add(input.sum, true);
    }
    if (own) tg_backward_end(own);
}

static void hand_step_print(void)
{
    tg_backward_run *own, *run = draw_run_after_step(&own);
    FILE *file = draw_file("file");
    call_starts();
    check_status(tg_step_print(file, run));
    if (own) tg_backward_end(own);
}

/* The begin or the end of a profile; if the arguments fit, none runs, or one does. */
static void hand_profile(void)
{
    const bool begins = is("tg_profile_begin"), paused = memory.paused;
    const char *path = begins || percent(30) ? NULL : draw_string("path");
    if (now->fits) {
        memory.paused = true;
        tg_profile_end(NULL);
        if (!begins) tg_profile_begin();
        tg_clear_error();
        memory.paused = paused;
    }
    call_starts();
    check_status(begins ? tg_profile_begin() : tg_profile_end(path));
}

static void hand_backward_end(void)
{
    tg_backward_run *run = run_count && percent(95) ? runs[--run_count] : NULL;
    call_starts();
    check_status(tg_backward_end(run));
}

static void hand_custom(void)
{
    const char *name = draw_string("name");
    tg_custom_forward forward = draw_forward("forward");
    tg_custom_backward backward = draw_backward("backward");
    tg_tensor *const *in = draw_tensors("in");
    int n_in = draw_count("n_in");
    tg_tensor **out = draw_out_tensors("out");
    int n_out = draw_count("n_out");
    custom_user *user;
    tg_status status;
    if (custom_user_count == COUNT(custom_users)) return;
    user = &custom_users[custom_user_count++];
    user->n_in = n_in, user->n_out = n_out, user->frees = user->wanted_frees = 0;
    call_starts();
    if (is("tg_custom")) {
        check_status(tg_custom(name, forward, backward, user, in, n_in, out, n_out));
        return;
    }
    status = tg_custom_ex(name, forward, backward, user, free_user, in, n_in, out, n_out);
    user->wanted_frees = status == TG_OK;
    check_status(status);
}

static void hand_to_all(void)
{
    tg_tensor **list = (tg_tensor **)(size_t)(const void *)draw_tensors("list");
    int i, n = draw_count("n");
    tg_device device = draw_device("device");
    tg_dtype dtype = percent(50) ? TG_SAME_DTYPE : draw_dtype("dtype");
    tg_tensor *before[LIST];
    bool has_changed = false;
    tg_status status;
    int flags = draw_int("flags");
    if (list) memcpy(before, list, sizeof before);
    call_starts();
    status = is("tg_to_all") ? tg_to_all(list, n, device) : tg_to_all_ex(list, n, device, dtype, flags);
    check_status(status);
    for (i = 0; list && i < LIST; ++i) {
        if (list[i] == before[i]) continue;
        has_changed = true;
        if (status == TG_OK) pool_add(list[i], false);
    }
    if (status != TG_OK && has_changed) fail("failed, and changed the list");
}

static void hand_gradcheck_ex(void)
{
    tg_gradcheck_options options;
    const tg_gradcheck_options *given = percent(80) ? &options : NULL;
    tg_function fn = draw_function("fn");
    tg_tensor *const *inputs = draw_tensors("inputs");
    int n = draw_count("n");
    options.eps = percent(50) ? 0 : draw_double("eps");
    options.atol = percent(50) ? 0 : draw_double("atol");
    options.rtol = percent(50) ? 0 : draw_double("rtol");
    options.report = draw_file("report");
    options.name = percent(50) ? NULL : draw_string("name");
    options.quiet = draw_bool("quiet");
    call_starts();
    if (is("tg_gradcheck_ex"))
        check_bool(tg_gradcheck_ex(fn, inputs, n, NULL, given));
    else
        check_bool(tg_gradgradcheck_ex(fn, inputs, n, NULL, given));
}

static void draw_csv_options(tg_csv_options *options)
{
    memset(options, 0, sizeof *options);
    options->classes = percent(70) ? NULL : draw_string("classes");
    options->missing_values = percent(70) ? NULL : draw_string("missing_values");
    options->delimiter = percent(70) ? 0 : ",; \t\"1"[pick(6)];
    options->decimal = percent(70) ? 0 : ",.;"[pick(3)];
    options->comments = percent(70) ? 0 : "#%,1"[pick(4)];
    options->skip_header = percent(80) ? 0 : pick(4) - 1;
    options->header = pick(3) - 1;
}

/* The bytes of a file, which end with their block.  Tensors that use them end before they are freed: the result is a
   copy. */
static void hand_parse(void)
{
    const bool checkpoint = is("tg_checkpoint_load_from");
    tg_module *m = checkpoint || is("tg_module_load_from") ? draw_module("m") : NULL;
    const char *path = draw_string("path");
    tg_optim *opt = !checkpoint || percent(70) ? NULL : draw_optim("opt");
    tg_csv_options options;
    memset(&options, 0, sizeof options);
    if (is("tg_csv_parse")) draw_csv_options(&options);
    if (is("tg_safetensors_open")) { /* the file is written again at the next call */
        call_starts();
        tg_dict *mapped = tg_safetensors_open(path);
        check_record(!mapped, !mapped);
        if (mapped) tg_dict_free(mapped);
        return;
    }
    char *block = (char *)malloc(5000);
    FILE *file = path ? fopen(path, "rb") : NULL;
    const size_t n = file ? fread(block, 1, 5000, file) : 0;
    if (file) fclose(file);
    block = (char *)realloc(block, n + 1);
    const void *data = path ? block + 1 : NULL; /* aligned for nothing */
    if (path) memmove(block + 1, block, n);
    if (path && percent(50)) memmove(block, block + 1, n), data = block;
    call_starts();
    if (checkpoint) {
        int64_t step;
        check_status(tg_checkpoint_load_from(data, n, m, opt, percent(30) ? NULL : &step));
    } else if (m || is("tg_module_load_from")) {
        check_status(tg_module_load_from(m, data, n));
    } else if (is("tg_csv_parse")) {
        check_tensor(tg_csv_parse(data, n, percent(50) ? NULL : &options));
    } else if (is("tg_npy_parse") || is("tg_idx_parse")) {
        tg_tensor *t = (is("tg_npy_parse") ? tg_npy_parse : tg_idx_parse)(data, n);
        tg_tensor *copy = t ? tg_clone(t) : NULL;
        if (t) tg_drop(t);
        check_tensor(copy);
    } else {
        tg_dict *d = (is("tg_npz_parse")               ? tg_npz_parse
                      : is("tg_npz_list_from")         ? tg_npz_list_from
                      : is("tg_safetensors_list_from") ? tg_safetensors_list_from
                                                       : tg_safetensors_parse)(data, n);
        check_record(!d, !d);
        if (d) tg_dict_free(d);
    }
    free(block);
}

static void hand_csv_load_options(void)
{
    tg_csv_options options;
    const char *path = draw_string("path");
    draw_csv_options(&options);
    call_starts();
    check_tensor(tg_csv_load_options(path, percent(90) ? &options : NULL));
}

static void hand_plateau(void)
{
    tg_plateau plateau = TG_PLATEAU;
    double lr = draw_double("lr"), metric = draw_double("metric");
    plateau.patience = draw_int("patience");
    plateau.maximize = draw_bool("maximize");
    call_starts();
    check_double(tg_lr_plateau(percent(5) ? NULL : &plateau, lr, metric));
}

static const struct {
    const char *name;
    any_call call;
} by_hand_calls[] = {
    HANDS_OF_DRAW,
    {"tg_lr_plateau", hand_plateau},
    {"tg_csv_load_options", hand_csv_load_options},
    {"tg_scope_end", hand_scope_end},
    {"tgi_scope_guard_open", hand_hold_open},
    {"tgi_scope_guard_close", hand_hold_close},
    {"tg_keep", hand_keep},
    {"tg_retain", hand_retain},
    {"tg_release", hand_release},
    {"tg_release_all", hand_release_all},
    {"tg_drop", hand_drop},
    {"tg_param", hand_param},
    {"tg_share", hand_share},
    {"tg_thread_end", hand_thread_end},
    {"tg_shutdown", hand_thread_end},
    {"tg_set_allocator", hand_set_allocator},
    {"tg_abort_on_error", hand_nothing}, /* it would end the program */
    {"tgi_enter", hand_enter},
    {"tg_set_grad", hand_set_grad},
    {"tg_unhook", hand_unhook},
    {"tg_optim_free", hand_optim_free},
    {"tg_dict_free", hand_dict_free},
    {"tg_dict_set_dict", hand_dict_set_dict},
    {"tg_dict_rename", hand_dict_rename},
    {"tg_module_load_state_ex", hand_module_load_state_ex},
    {"tg_loader_next", hand_loader_next},
    {"tg_loader_free", hand_loader_free},
    {"tg_module_free", hand_module_free},
    {"tg_module_unhook", hand_module_unhook},
    {"tg_module_retain", hand_module_retain},
    {"tg_module_share", hand_module_share},
    {"tg_module_child", hand_module_child},
    {"tg_module_add", hand_module_child},
    {"tg_module_param", hand_module_tensor},
    {"tg_module_buffer", hand_module_tensor},
    {"tg_module_buffer_ex", hand_module_tensor},
    {"tg_module_replace", hand_module_replace},
    {"tg_averaged_update", hand_averaged_update},
    {"tg_functional_call", hand_functional_call},
    {"tg_functional_call_n", hand_functional_call},
    {"tg_module_remove", hand_module_remove},
    {"tg_lora_apply", hand_lora_apply},
    {"tg_nn_weight_norm", hand_wrapper},
    {"tg_nn_spectral_norm", hand_wrapper},
    {"tg_nn_lora", hand_wrapper},
    {"tg_nn_transformer_encoder", hand_stack},
    {"tg_nn_transformer_decoder", hand_stack},
    {"tg_module_split_params", hand_split_params},
    {"tg_module_device", hand_module_device},
    {"tg_checkpoint_load", hand_checkpoint_load},
    {"tg_checkpoint_save_n", hand_checkpoint_n},
    {"tg_checkpoint_load_n", hand_checkpoint_n},
    {"tg_idx_parse", hand_parse},
    {"tg_npy_parse", hand_parse},
    {"tg_npz_parse", hand_parse},
    {"tg_npz_list_from", hand_parse},
    {"tg_safetensors_parse", hand_parse},
    {"tg_safetensors_list_from", hand_parse},
    {"tg_csv_parse", hand_parse},
    {"tg_checkpoint_load_from", hand_parse},
    {"tg_safetensors_open", hand_parse},
    {"tg_module_load_from", hand_parse},
    {"tg_nn_sequential", hand_container},
    {"tg_nn_list", hand_container},
    {"tg_nn_dict", hand_container},
    {"tg_from", hand_from},
    {"tg_from_on", hand_from},
    {"tg_from_f32", hand_from},
    {"tg_from_f64", hand_from},
    {"tg_from_i64", hand_from},
    {"tg_wrap", hand_wrap},
    {"tg_wrap_const", hand_wrap},
    {"tg_from_dlpack", hand_from_dlpack},
    {"tg_from_dlpack_unversioned", hand_from_dlpack},
    {"tg_copy_out", hand_copy_out},
    {"tg_device_parse", hand_device_parse},
    {"tg_make_shape", hand_make_shape},
    {"tg_backward_step", hand_backward_step},
    {"tg_step_input", hand_step_input},
    {"tg_step_print", hand_step_print},
    {"tg_backward_end", hand_backward_end},
    {"tg_profile_begin", hand_profile},
    {"tg_profile_end", hand_profile},
    {"tg_custom", hand_custom},
    {"tg_custom_ex", hand_custom},
    {"tg_to_all", hand_to_all},
    {"tg_to_all_ex", hand_to_all},
    {"tg_gradcheck_ex", hand_gradcheck_ex},
    {"tg_gradgradcheck_ex", hand_gradcheck_ex},
};

static any_call by_hand_call(const char *name)
{
    int i;
    for (i = 0; i < COUNT(by_hand_calls); ++i)
        if (strcmp(by_hand_calls[i].name, name) == 0) return by_hand_calls[i].call;
    return NULL;
}

/* Every function has a call, and every call by hand is one of a function. */
static void check_table(void)
{
    int i;
    for (i = 0; i < COUNT(by_hand_calls); ++i) {
        if (!function_named(by_hand_calls[i].name))
            fail("by_hand_calls: there is no function %s", by_hand_calls[i].name);
    }
    for (i = 0; i < API_FUNCTIONS; ++i) {
        if (!api_functions[i].call && !by_hand_call(api_functions[i].name)) {
            fail("by_hand_calls: %s cannot be drawn, and is not here", api_functions[i].name);
        }
    }
}

/* ---- epochs ---- */

static void forget_objects(void)
{
    pool_count = optim_count = dict_count = loader_count = module_count = run_count = 0;
    shared_module = NULL;
}

static void epoch_begins(void)
{
    remove_files();
    random_state = fuzz.seed * 1000003 + (uint64_t)fuzz.epoch;
    random_state = random_bits();
    fuzz.calls = 0;
    forget_objects();
    frame_count = ended_count = custom_user_count = 0;
    memset(&freed, 0, sizeof freed);
    context = NULL;
    memset(holds, 0, sizeof holds);
    memset(host_memory, 0, sizeof host_memory);
    tg_clear_error();
    memory.paused = true;
    if (!left.stats.tensors && tg_set_allocator(&memory_allocator) != TG_OK) fail("tg_set_allocator after tg_shutdown");
    tg_set_error_handler(NULL, NULL);
    tg_set_cache_limit(0); /* a memory checker sees every use after free */
    tg_set_sync_checks(percent(50));
    tg_set_anomaly(false);
    tg_set_num_threads(0);
    tg_set_flush_denormal(false);
    tg_seed(1);
    if (percent(30)) other_begin();
    first_serial = tg_scope_begin().serial;
    frame_push(first_serial, true);
    memory_of_epoch();
}

static void check_all_gone(void)
{
    tg_stats_info s = tg_stats();
    long long tensors = s.tensors - left.stats.tensors, nodes = s.nodes - left.stats.nodes;
    long long bytes = s.bytes - left.stats.bytes, saved = s.saved - left.stats.saved;
    long long live_modules = s.modules - left.stats.modules;
    int i;
    if (tensors || nodes || bytes || saved || live_modules) {
        fail("at the end of the epoch: %lld tensors, %lld nodes, %lld bytes, %lld saved tensors and %lld modules",
             tensors, nodes, bytes, saved, live_modules);
    }
    if (memory.bytes != left.bytes) {
        fail("at the end of the epoch: %zu bytes were not given back to the allocator", memory.bytes - left.bytes);
    }
    if (wraps_alive != left.wraps) {
        fail("at the end of the epoch: %lld deleters have not run", (long long)(wraps_alive - left.wraps));
    }
    left.stats = s, left.bytes = memory.bytes, left.wraps = wraps_alive;
    for (i = 0; i < custom_user_count; ++i) {
        if (custom_users[i].frees == custom_users[i].wanted_frees) continue;
        fail("free_user ran %d times, not %d", custom_users[i].frees, custom_users[i].wanted_frees);
        break;
    }
}

static void epoch_ends(void)
{
    int i;
    memory.paused = true;
    tg_set_error_handler(NULL, NULL);
    while (run_count > 0) tg_backward_end(runs[--run_count]);
    while (optim_count > 0) tg_optim_free(optims[--optim_count]);
    while (dict_count > 0) tg_dict_free(dicts[--dict_count]);
    while (loader_count > 0) tg_loader_free(loaders[--loader_count].loader);
    while (module_count > 0) tg_module_free(modules[--module_count]);
    tg_module_free(shared_module);
    shared_module = NULL;
    for (i = 0; i < pool_count; ++i) tg_set_grad(pool[i].t, NULL);
    while (pool_count > 0) pool_evict(&pool[pool_count - 1]);
    other_end();
    tg_clear_error();
    if (tg_shutdown() != TG_OK) fail("tg_shutdown at the end of the epoch");
    for (i = 0; i < COUNT(exports); ++i) export_end(i); /* they may outlive it */
    check_all_gone();
    if (tg_shutdown() != TG_OK) fail("tg_shutdown of nothing");
}

/* In processor time, so that a busy machine makes as many calls. */
static bool has_time(double seconds, clock_t start)
{
    return (double)(clock() - start) / CLOCKS_PER_SEC < seconds;
}

static void one_call(void)
{
    int i;
    if (percent(90)) tg_clear_error();
    while (pool_count < POOL / 4) make_tensor();
    if (percent(5)) make_tensor();
    if (frame_count == 0) frame_push(tg_scope_begin().serial, true);
    run_function(only && percent(50) ? function_named(only) : percent(10) ? any_without_success() : any_function_of_table());
    if (pool_count) check_entry(pick(pool_count));
    for (i = 0; i < pool_count && fuzz.calls % 50 == 0; ++i) check_entry(i);
}

/* In a process of its own, since what a jump out of a callback leaves is lost: calls with handles that are, too. */
static void jumping_calls(void)
{
    volatile int jumps = 0;
    int status = -1;
    fflush(fuzz.report);
    const pid_t child = fork();
    if (child != 0) {
        if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) < LEFT)
            fail("calls after a jump out of a callback ended with status %d", status);
        else
            fuzz.left += WEXITSTATUS(status) - LEFT;
        return;
    }
    fuzz.jumps = true;
    if (setjmp(fuzz.out)) {
        now = NULL;
        memory.paused = false;
        frame_count = 0;
        context = NULL;
        if (percent(50)) forget_objects();
        jumps++;
    }
    tg_release(NULL); /* finds the jump */
    tg_set_error_handler(NULL, NULL);
    tg_clear_error();
    while (jumps < 20 && fuzz.calls < 2 * CALLS_PER_EPOCH) {
        if (frame_count == 0) frame_push(tg_scope_begin().serial, true);
        if (percent(5)) make_tensor();
        run_function(any_function_of_table());
    }
    _exit(LEFT + jumps);
}

/* Functions that need a GPU or end the program, and what the fuzzer calls only to be refused. */
static const char *const may_never_succeed[] = {"tg_abort_on_error", "tg_set_allocator", "tg_make_shape",
#ifndef TG_USE_NCCL
                                                "tg_nccl_new_id", "tg_nccl_comm",
#endif
};
static const char *const wants_a_gpu[] = {"tg_cuda_set_device", "tg_cuda", "tg_pin_memory"};

/* must: a function without a success is a failure, since only refusals of it were tried. */
static void summary(bool must)
{
    const char *comma = "";
    int i;
    fprintf(fuzz.report, "%lld callbacks were left by a jump\n", (long long)fuzz.left);
    if (must && fuzz.left == 0 && tg_cuda_device_count() == 0) fuzz.failed++;
    fprintf(fuzz.report, "functions of which no call succeeded: ");
    for (i = 0; i < API_FUNCTIONS; ++i) {
        const char *name = api_functions[i].name;
        if (successes[i]) continue;
        fprintf(fuzz.report, "%s%s", comma, name);
        comma = ", ";
        if (is_in(name, may_never_succeed, COUNT(may_never_succeed))) continue;
        if (tg_cuda_device_count() == 0 && is_in(name, wants_a_gpu, COUNT(wants_a_gpu))) continue;
        if (must && !is_in(name, skipped, skip_count)) fuzz.failed++;
    }
    fprintf(fuzz.report, "%s\n%lld passed, %lld failed\n", *comma ? "" : "none", (long long)fuzz.passed,
            (long long)fuzz.failed);
}

static int usage(const char *problem)
{
    fprintf(stderr,
            "fuzz_api: %s\nusage: fuzz_api [--seed N] [--seconds S | --calls N] [--epoch N] [--only NAME] "
            "[--skip NAME]... [--ended 0|1] [--trace]\n",
            problem);
    return 2;
}

int main(int argc, char **argv)
{
    double seconds = 10;
    int64_t calls = 0, total = 0;
    clock_t start;
    int i, null_file;
    fuzz.seed = 1;
    fuzz.ended = true; /* with TG_DEBUG=1, under which using one is always an error */
    for (i = 1; i < argc; ++i) {
        const char *option = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(option, "--trace") == 0) {
            fuzz.trace = true;
            continue;
        }
        if (!value) return usage("an option without a value");
        ++i;
        if (strcmp(option, "--seed") == 0)
            fuzz.seed = strtoull(value, NULL, 10);
        else if (strcmp(option, "--seconds") == 0)
            seconds = strtod(value, NULL);
        else if (strcmp(option, "--calls") == 0)
            calls = strtoll(value, NULL, 10);
        else if (strcmp(option, "--epoch") == 0)
            fuzz.epoch = strtoll(value, NULL, 10);
        else if (strcmp(option, "--only") == 0)
            only = value;
        else if (strcmp(option, "--ended") == 0)
            fuzz.ended = strcmp(value, "0") != 0;
        else if (strcmp(option, "--skip") == 0 && skip_count < COUNT(skipped))
            skipped[skip_count++] = value;
        else
            return usage(option);
    }
    if (only && !function_named(only)) return usage("--only: no such function");
    fuzz.report = fdopen(dup(STDOUT_FILENO), "w");
    null_file = dup2(fileno(fopen("/dev/null", "w")), STDOUT_FILENO);
    fuzz.good = fopen("/dev/null", "w");
    fuzz.bad = fopen("/dev/null", "r");
    if (!fuzz.report || null_file < 0 || !fuzz.good || !fuzz.bad) return usage("no /dev/null");
    if (!mkdtemp(folder)) return usage("no folder in /tmp");
    pthread_mutex_init(&other.lock, NULL);
    pthread_cond_init(&other.changed, NULL);
    if (fuzz.ended) setenv("TG_DEBUG", "1", 1);
    fprintf(fuzz.report, "fuzz_api --seed %llu --epoch %lld%s: %d functions\n", (unsigned long long)fuzz.seed,
            (long long)fuzz.epoch, fuzz.ended ? " --ended 1" : "", API_FUNCTIONS);
    fflush(fuzz.report);
    start = clock();
    check_table();
    tg_set_error_handler(NULL, NULL);
    while (fuzz.failed < 20 && (calls ? total < calls : has_time(seconds, start))) {
        epoch_begins();
        for (; fuzz.calls < CALLS_PER_EPOCH && fuzz.failed < 20 && (!calls || total < calls); ++total) one_call();
        if (percent(20) && tg_cuda_device_count() == 0) jumping_calls(); /* a GPU is for the process that began with it */
        epoch_ends();
        fuzz.epoch++;
    }
    summary(!calls && !only && seconds >= 10 && fuzz.failed == 0);
    remove_files();
    remove(folder);
    fclose(fuzz.report);
    return fuzz.failed != 0 || fuzz.passed == 0;
}
