/* Plans of products by time (TG_CUDA_PLANS): the fastest is chosen, once; the file is written and read again, and all
 * later runs give the same bits; files that are damaged, of another GPU, not to be written; captures, threads, devices;
 * memory that runs out.  Built by `make sim MAIN=tests/cuda/test_plans.c OUT=prog` for the simulator, where events
 * measure a pretended clock; a part runs on GPUs, too. */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include "tensorgrad.h"
#include "../helpers.h"
#include "../inside.h"
#include <pthread.h>
#include <sys/stat.h>
#ifdef CUDASIM
#include "cudasim_test.h"
#endif

/* ---- runs: a thread with its own plans, as a process of its own has them ---- */

typedef struct {
    void (*body)(void *with);
    void *with;
} one_run;

static void *run_thread(void *p)
{
    const one_run *run = (const one_run *)p;
    tg_set_error_handler(keep_warning, NULL);
    run->body(run->with);
    CHECK(tg_thread_end() == TG_OK);
    return NULL;
}

/* plans: TG_CUDA_PLANS; NULL: it is not set */
static void run(const char *plans, void (*body)(void *), void *with)
{
    one_run what;
    pthread_t thread;
    what.body = body, what.with = with;
    if (plans) setenv("TG_CUDA_PLANS", plans, 1);
    else unsetenv("TG_CUDA_PLANS");
    warnings = 0;
    CHECK(pthread_create(&thread, NULL, run_thread, &what) == 0 && pthread_join(thread, NULL) == 0);
}

static tg_tensor *drawn(tg_shape shape, tg_dtype dtype)
{
    return tg_to_dtype(tg_sub_scalar(tg_rand_on(shape, TG_F32, HERE), 0.5), dtype);
}

/* ---- two layers with gelu, and their gradients: products with each of the epilogues, and without one ---- */

enum { ROWS = 12, IN = 72, HIDDEN = 40, OUT = 24, INPUTS = 5, MOST = ROWS * IN + 2 * ROWS * OUT + HIDDEN * (IN + 1 + OUT) + OUT };
typedef struct {
    tg_dtype dtype;
    bool composes; /* by separate ops */
    bool ok;
    int n;
    double number[MOST]; /* y, and the gradients of the inputs */
} network;

static void append(network *net, tg_tensor *t)
{
    const int count = t ? (int)tg_numel(t) : 0;
    net->ok = net->ok && t && net->n + count <= MOST;
    if (!net->ok) return;
    tg_copy_out(tg_to_dtype(tg_detach(t), TG_F64), net->number + net->n, (size_t)count * sizeof(double));
    net->n += count;
}

static void solve(void *p)
{
    TG_SCOPE;
    network *const net = (network *)p;
    const tg_shape shape[INPUTS] = {TG_SHAPE(ROWS, IN), TG_SHAPE(HIDDEN, IN), TG_SHAPE(HIDDEN), TG_SHAPE(OUT, HIDDEN),
                                    TG_SHAPE(OUT)};
    tg_tensor *in[INPUTS], *g;
    tg_seed(7);
    net->n = 0;
    for (int i = 0; i < INPUTS; ++i) in[i] = tg_set_requires_grad(drawn(shape[i], net->dtype), true);
    g = drawn(TG_SHAPE(ROWS, OUT), net->dtype);
    inside_compose(net->composes);
    tg_tensor *y = tg_linear(tg_linear_gelu(in[0], in[1], in[2], true), in[3], in[4]);
    net->ok = y && tg_backward_ex(&y, 1, &g, 0) == TG_OK;
    append(net, y);
    for (int i = 0; i < INPUTS && net->ok; ++i) append(net, tg_grad(in[i]));
    inside_compose(false);
    net->ok = net->ok && tg_ok();
}

static bool same_bits(const network *a, const network *b)
{
    return a->ok && b->ok && a->n == b->n && memcmp(a->number, b->number, (size_t)a->n * sizeof(double)) == 0;
}

static bool agree(const network *a, const network *b)
{
    static const double tolerance[] = {1e-5, 1e-13, 3e-2, 4e-3}; /* in the order of tg_dtype */
    double largest = 0, off = 0;
    for (int i = 0; i < a->n; ++i) {
        largest = fmax(largest, fabs(b->number[i]));
        off = fmax(off, fabs(a->number[i] - b->number[i]));
    }
    return a->ok && b->ok && a->n == b->n && off <= tolerance[a->dtype] * largest;
}

static int lines_of(const char *path)
{
    FILE *file = fopen(path, "r");
    int lines = 0;
    if (!file) return -1;
    for (int c; (c = getc(file)) != EOF;) lines += c == '\n';
    fclose(file);
    return lines;
}

/* On a GPU, too: what one run has timed, later ones keep. */
TEST(later_runs_give_the_same_bits)
{
    static const tg_dtype dtypes[] = {TG_F32, TG_BF16, TG_F16};
    static network timed, again, only_read, by_ops;
    const char *path = beside("kept");
    char reads[1100];
    snprintf(reads, sizeof reads, "read:%s", path);
    remove(path);
    for (int k = 0; k < 3; ++k) {
        timed.dtype = again.dtype = only_read.dtype = by_ops.dtype = dtypes[k];
        by_ops.composes = true;
        run(path, solve, &timed);
        const int lines = lines_of(path);
        CHECK(lines >= 5 * (k + 1));
        run(path, solve, &again);
        run(reads, solve, &only_read);
        run(NULL, solve, &by_ops);
        CHECK(lines_of(path) == lines && warnings == 0);
        CHECK(same_bits(&timed, &again) && same_bits(&timed, &only_read) && agree(&timed, &by_ops));
    }
    remove(path);
}

#ifdef CUDASIM
/* path [1000] = the name of a file beside the program, of which there is none; it stays, for a function that a run is
   given with its path. */
static void name_no_file(char *path, const char *name)
{
    snprintf(path, 1000, "%s", beside(name));
    remove(path);
}

static long kernels(void) { return (long)cudasim_total(CUDASIM_KERNELS); }
static long library_calls(void) { return (long)cudasim_total(CUDASIM_LIBRARY_CALLS); }

/* Of all algorithms this one is the fastest; of cuBLAS, an epilogue, a kernel: in milliseconds. */
static void pretend(int fastest, double cublas, double epilogue, double kernel)
{
    double times[CUDASIM_TIMES] = {0};
    for (int i = 0; i < CUDASIM_ALGORITHMS; ++i) times[CUDASIM_TIME_OF_ALGORITHM + i] = i == fastest ? 1 : 3;
    times[CUDASIM_TIME_OF_CUBLAS] = cublas;
    times[CUDASIM_TIME_OF_EPILOGUE] = epilogue;
    times[CUDASIM_TIME_OF_KERNEL] = kernel;
    cudasim_pretend_times(times);
}

/* ---- one product ---- */

enum { PLAIN, BATCHED, BIAS, GELU, PRODUCTS };
typedef struct {
    int kind, device;
    int64_t rows;
    bool ok, timed; /* timed: the first time took more than one call */
    int algorithm;  /* of the product */
    long launches;  /* of kernels, the second time */
    const char *call; /* that fails in the first time, for the nth time; NULL: none */
    long nth;
    bool fired;
    double off;     /* from the sums by the CPU */
} product;

static tg_tensor *result_of(const product *p, tg_tensor *const *in)
{
    const tg_shape two = TG_SHAPE(2, IN, OUT);
    if (p->kind == BIAS) return tg_linear(in[0], in[1], in[2]);
    if (p->kind == GELU) return tg_linear_gelu(in[0], in[1], in[2], true);
    if (p->kind == PLAIN) return tg_matmul(in[0], tg_t(in[1]));
    return tg_matmul(tg_view(in[0], TG_SHAPE(2, p->rows / 2, IN)), tg_expand(tg_t(in[1]), two));
}

/* The product twice; what is recorded is of the second time, but for `timed`. */
static void multiply(void *with)
{
    TG_SCOPE;
    product *const p = (product *)with;
    const tg_device there = TG_CUDA(p->device);
    tg_tensor *in[3], *on_cpu[3], *y = NULL;
    tg_seed(9);
    on_cpu[0] = tg_rand_on(TG_SHAPE(p->rows, IN), TG_F32, TG_CPU);
    on_cpu[1] = tg_rand_on(TG_SHAPE(OUT, IN), TG_F32, TG_CPU);
    on_cpu[2] = tg_rand_on(TG_SHAPE(OUT), TG_F32, TG_CPU);
    for (int i = 0; i < 3; ++i) in[i] = tg_to(on_cpu[i], there);
    for (int time = 0; time < 2; ++time) {
        tg_synchronize(there);
        const long calls = library_calls(), launches = kernels();
        if (time == 0 && p->call) cudasim_fail_call(p->call, p->nth, strcmp(p->call, "cudaMallocAsync") ? 1 : 2);
        y = result_of(p, in);
        if (time == 0 && p->call) p->fired = cudasim_failure_left() < 0;
        if (time == 0 && p->call) cudasim_fail_call("", -1, 0);
        if (!y) return;
        tg_synchronize(there);
        if (time == 0) p->timed = library_calls() - calls > 1;
        p->launches = kernels() - launches;
    }
    p->algorithm = cudasim_last_algorithm();
    p->ok = y && tg_ok();
    p->off = p->ok ? tg_item(tg_max(tg_abs(tg_sub(tg_cpu(y), result_of(p, on_cpu))))) : INFINITY;
}

static product product_of(int kind, int64_t rows)
{
    product p;
    memset(&p, 0, sizeof p);
    p.kind = kind, p.rows = rows;
    return p;
}

static product multiplied(const char *plans, int kind, int64_t rows)
{
    product p = product_of(kind, rows);
    run(plans, multiply, &p);
    CHECK(p.ok && p.off < 1e-4);
    return p;
}

/* ---- lines of the file ---- */

/* The numbers of a line, as tensorgrad_cuda.cu writes them: the format, the version of cuBLASLt, the key, who computes
   it, the algorithm in 8 words, which for the simulator are the product that it is for, its workspace, and so on. */
enum { VERSION = 1, EPILOGUE = 4, BY = 22, WORKSPACE = 24, NUMBERS = 31, LINE = 2000 };
enum { BY_NOBODY, BY_ALGORITHM, BY_CUBLAS, BY_KERNELS };

/* Line number i, without its end; "" after the last. */
static const char *line_of(const char *path, int i)
{
    static char text[LINE];
    FILE *file = fopen(path, "r");
    bool found = file != NULL;
    for (; found && i >= 0; --i) found = fgets(text, LINE, file) != NULL;
    if (file) fclose(file);
    text[found ? strcspn(text, "\n") : 0] = 0;
    return text;
}

/* Who computes products with this epilogue, by the first line that says it; -1: none does. */
static int who_computes(const char *path, long long epilogue)
{
    for (int i = 0; *line_of(path, i); ++i) {
        const char *text = line_of(path, i);
        long long number[NUMBERS];
        char *at = NULL;
        for (int k = 0; k < NUMBERS; ++k, text = at) number[k] = strtoll(text, &at, 10);
        if (number[EPILOGUE] == epilogue) return (int)number[BY];
    }
    return -1;
}

static unsigned hash_of(const char *text, size_t bytes)
{
    unsigned hash = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < bytes; ++i) hash = (hash ^ (unsigned char)text[i]) * 16777619u;
    return hash;
}

/* Line 0 with number `at` changed, and of another GPU unless that is NULL; its hash is right. */
static const char *forged(const char *path, int at, long long value, const char *gpu)
{
    static char made[LINE];
    const char *text = line_of(path, 0);
    size_t length = 0;
    for (int k = 0; k < NUMBERS; ++k) {
        char *end;
        const long long number = strtoll(text, &end, 10);
        length += (size_t)snprintf(made + length, LINE - length, k ? " %lld" : "%lld", k == at ? value : number);
        text = end;
    }
    if (!gpu) gpu = text + 10; /* behind " xxxxxxxx " */
    snprintf(made + length, LINE - length, " %08x %s", hash_of(made, length) ^ hash_of(gpu, strlen(gpu)), gpu);
    return made;
}

static void write_file(const char *path, const char *text, size_t bytes)
{
    FILE *file = fopen(path, "w");
    CHECK(file && fwrite(text, 1, bytes, file) == bytes && fclose(file) == 0);
}

/* ---- what is chosen ---- */

/* Number 2 wants all of the workspace, and writes to all of it. */
TEST(the_fastest_is_chosen)
{
    const char *path = beside("fastest");
    for (int fastest = 0; fastest < CUDASIM_ALGORITHMS; ++fastest) {
        for (int kind = 0; kind < PRODUCTS; ++kind) {
            for (int cublas = 0; cublas < 2; ++cublas) { /* the library's own choice is slower, or faster */
                const bool own = kind <= BATCHED;
                pretend(fastest, cublas ? 0.5 : 2, 0.125, 9);
                remove(path);
                const product p = multiplied(path, kind, 8);
                CHECK(p.timed && p.algorithm == (own && cublas ? -1 : fastest) && p.launches == 0);
                CHECK(lines_of(path) == (kind == BIAS || kind == GELU ? 3 - (kind == BIAS) : 1));
            }
        }
    }
    CHECK(who_computes(path, 36) == BY_ALGORITHM && warnings == 0);
    remove(path);
}

/* The times of later runs do not count, nor does the file without the variable. */
TEST(the_choice_is_kept)
{
    static network first, later, without, empty;
    const char *path = beside("choice");
    remove(path);
    pretend(1, 2, 0.125, 9);
    run(path, solve, &first);
    const int lines = lines_of(path);
    const product p = multiplied(path, BIAS, 6);
    CHECK(p.algorithm == 1 && p.timed);
    pretend(3, 0.5, 9, 0.125);
    const long before = library_calls();
    run(path, solve, &later);
    CHECK(library_calls() - before == 6 && same_bits(&first, &later) && lines > 5);
    const product q = multiplied(path, BIAS, 6), r = multiplied(NULL, BIAS, 6);
    CHECK(q.algorithm == 1 && !q.timed && r.algorithm == 0 && !r.timed);
    run(NULL, solve, &without);
    run("", solve, &empty);
    CHECK(same_bits(&without, &empty) && !same_bits(&first, &without) && agree(&first, &without));
    CHECK(library_calls() - before == 6 + 4 + 12);
    remove(path);
}

/* Each epilogue in the product where that is faster, and by kernels behind it where they are; the same numbers. */
TEST(fused_or_apart)
{
    enum { DEFAULT = 1, WITH_BIAS = 4, WITH_GELU = 164, WITH_GRADIENT = 192, WITH_SUMS = 512 };
    static const int epilogues[] = {WITH_BIAS, WITH_GELU, WITH_GRADIENT, WITH_SUMS};
    static network net, by_ops;
    const char *path = beside("apart");
    for (int k = 0; k < 3; ++k) {
        for (int apart = 0; apart < 2; ++apart) {
            net.dtype = by_ops.dtype = k == 0 ? TG_F32 : k == 1 ? TG_BF16 : TG_F16;
            by_ops.composes = true;
            remove(path);
            pretend(0, 2, apart ? 9 : 0.125, apart ? 0.125 : 9);
            run(path, solve, &net);
            for (int i = 0; i < 4; ++i) CHECK(who_computes(path, epilogues[i]) == (apart ? BY_KERNELS : BY_ALGORITHM));
            CHECK(who_computes(path, DEFAULT) == BY_ALGORITHM);
            run(NULL, solve, &by_ops);
            CHECK(agree(&net, &by_ops));
            const product p = multiplied(path, GELU, 16), q = multiplied(path, BIAS, 16);
            CHECK(p.launches == 2 * apart && q.launches == apart && p.algorithm == 0);
        }
    }
    remove(path);
}

/* The gradients of a layer that is used twice: the second product adds. */
static void add_gradients(void *with)
{
    TG_SCOPE;
    network *const net = (network *)with;
    tg_seed(5);
    tg_tensor *w = tg_set_requires_grad(drawn(TG_SHAPE(OUT, IN), TG_F32), true);
    tg_tensor *b = tg_set_requires_grad(drawn(TG_SHAPE(OUT), TG_F32), true), *y[2], *g[2];
    for (int i = 0; i < 2; ++i) {
        y[i] = tg_linear(drawn(TG_SHAPE(ROWS, IN), TG_F32), w, b);
        g[i] = drawn(TG_SHAPE(ROWS, OUT), TG_F32);
    }
    inside_compose(net->composes);
    net->n = 0;
    net->ok = tg_backward_ex(y, 2, g, 0) == TG_OK;
    append(net, tg_grad(w)), append(net, tg_grad(b));
    inside_compose(false);
}

TEST(products_that_add)
{
    static network net, by_ops;
    const char *path = beside("adds");
    net.dtype = by_ops.dtype = TG_F32;
    by_ops.composes = true;
    for (int apart = 0; apart < 2; ++apart) {
        remove(path);
        pretend(1, 2, apart ? 9 : 0.125, apart ? 0.125 : 9);
        run(path, add_gradients, &net);
        run(NULL, add_gradients, &by_ops);
        CHECK(agree(&net, &by_ops));
    }
    remove(path);
}

/* ---- the file ---- */

TEST(a_file_that_is_only_read)
{
    const char *path = beside("read"), *missing = beside("missing");
    char reads[1100], nothing[1100];
    snprintf(reads, sizeof reads, "read:%s", path);
    snprintf(nothing, sizeof nothing, "read:%s", missing);
    remove(path), remove(missing);
    pretend(3, 2, 0.125, 9);
    CHECK(multiplied(path, BIAS, 4).algorithm == 3);
    const int lines = lines_of(path);
    CHECK(multiplied(reads, BIAS, 4).algorithm == 3 && multiplied(reads, PLAIN, 4).algorithm == 3);
    const product p = multiplied(reads, BIAS, 5), q = multiplied(reads, PLAIN, 5);
    CHECK(p.algorithm == 0 && q.algorithm == -1 && !p.timed && !q.timed && lines_of(path) == lines && warnings == 0);
    CHECK(multiplied(nothing, BIAS, 4).algorithm == 0 && warnings == 1 && strstr(warned, "cannot be read,"));
    CHECK(lines_of(missing) < 0);
    remove(path);
}

TEST(a_file_that_cannot_be_written)
{
    static const char *const paths[] = {".", "/no/such/folder/plans", "/dev/full", "/dev/zero"};
    char long_path[3000];
    pretend(3, 2, 0.125, 9);
    for (int i = 0; i < 4; ++i) {
        const product p = multiplied(paths[i], BIAS, 4);
        CHECK(p.algorithm == 0 && !p.timed && warnings == 1 && strstr(warned, "cannot be read and written"));
    }
    memset(long_path, 'x', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = 0;
    CHECK(multiplied(long_path, BIAS, 4).algorithm == 0 && warnings == 1);
}

/* The file goes after the first product. */
static void lose_the_file(void *with)
{
    const char *path = (const char *)with;
    product p = product_of(BIAS, 4), q = product_of(BIAS, 5), again = product_of(BIAS, 4);
    multiply(&p);
    CHECK(p.algorithm == 3 && warnings == 0 && remove(path) == 0 && mkdir(path, 0700) == 0);
    multiply(&q);
    CHECK(q.ok && q.algorithm == 0 && warnings == 1 && strstr(warned, "cannot be written"));
    multiply(&again);
    CHECK(again.ok && again.algorithm == 3 && !again.timed && warnings == 1 && remove(path) == 0);
}

TEST(a_file_that_is_lost)
{
    char path[1000];
    name_no_file(path, "lost");
    pretend(3, 2, 0.125, 9);
    run(path, lose_the_file, path);
}

/* Whatever stands in a file, products are right; what is a line stays one. */
TEST(damaged_files)
{
    static char good[LINE], text[3 * LINE];
    const char *path = beside("damaged");
    remove(path);
    pretend(3, 2, 0.125, 9);
    CHECK(multiplied(path, BIAS, 4).algorithm == 3);
    snprintf(good, LINE, "%s\n", line_of(path, 1)); /* line 0 is of the product without the bias */
    pretend(1, 2, 0.125, 9);
    const size_t length = strlen(good);
    for (size_t at = 0; at < length; at += 13) {
        memcpy(text, good, length);
        text[at] = (char)(text[at] ^ 1);
        write_file(path, text, length);
        const product p = multiplied(path, BIAS, 4);
        CHECK(p.algorithm == 1 && p.timed && warnings == 1 && strstr(warned, "1 line of"));
        CHECK(multiplied(path, BIAS, 4).algorithm == 1 && warnings == 1);
    }
    static const char *const around[] = {"", "\n\n", "words\n", "1 2 3\n", "-1 99999999999999999999999999999\n"};
    for (int i = 0; i < 5; ++i) {
        snprintf(text, sizeof text, "%s%s%s", around[i], good, around[4 - i]);
        write_file(path, text, strlen(text));
        CHECK(multiplied(path, BIAS, 4).algorithm == 3 && warnings == 1);
    }
    memset(text, 0, sizeof text); /* a line of zeros that is too long, and one without an end */
    text[2 * LINE] = '\n';
    memcpy(text + 2 * LINE + 1, good, length);
    write_file(path, text, 2 * LINE + 1 + length + 20);
    CHECK(multiplied(path, BIAS, 4).algorithm == 3 && warnings == 1 && strstr(warned, "2 lines of"));
    CHECK(multiplied(path, BIAS, 5).algorithm == 1 && !multiplied(path, BIAS, 5).timed);
    CHECK(!multiplied(path, PLAIN, 5).timed); /* its line comes right behind the one without an end */
    remove(path);
}

/* Lines of another GPU, of another version and of another product do not count. */
TEST(files_of_other_machines)
{
    static char line[LINE];
    const char *path = beside("others");
    static const struct { int at; long long value; const char *gpu; int algorithm; } lines[] = {
        {0, 1, NULL, 3}, {VERSION, 129999, NULL, 1}, {0, 1, "NVIDIA H100", 1}, {0, 2, NULL, 1}, {EPILOGUE + 3, 7, NULL, 1}};
    for (int i = 0; i < 5; ++i) {
        remove(path);
        pretend(3, 2, 0.125, 9);
        CHECK(multiplied(path, PLAIN, 4).algorithm == 3);
        snprintf(line, LINE, "%s\n", forged(path, lines[i].at, lines[i].value, lines[i].gpu));
        write_file(path, line, strlen(line));
        pretend(1, 2, 0.125, 9);
        CHECK(multiplied(path, PLAIN, 4).algorithm == lines[i].algorithm);
        CHECK(warnings == (i == 3) && lines_of(path) == 1 + (i > 0));
    }
    remove(path);
}

/* A line that cannot be followed, though it is written as it should be: the product is timed anew, once. */
TEST(lines_that_cannot_be_followed)
{
    static char line[LINE];
    const char *path = beside("wrong");
    static const struct { int at; long long value; } lines[] = {
        {WORKSPACE, 1LL << 40}, {WORKSPACE - 1, 5}, {BY, BY_KERNELS}, {BY, BY_NOBODY}, {BY, 4}, {BY, -1}};
    for (int i = 0; i < 6; ++i) {
        remove(path);
        pretend(3, 2, 0.125, 9);
        CHECK(multiplied(path, PLAIN, 4).algorithm == 3);
        snprintf(line, LINE, "%s\n", forged(path, lines[i].at, lines[i].value, NULL));
        write_file(path, line, strlen(line));
        pretend(1, 2, 0.125, 9);
        char reads[1100];
        snprintf(reads, sizeof reads, "read:%s", path);
        CHECK(multiplied(reads, PLAIN, 4).algorithm == -1 && lines_of(path) == 1);
        CHECK(multiplied(path, PLAIN, 4).algorithm == 1 && lines_of(path) == 2);
        pretend(0, 2, 0.125, 9);
        CHECK(multiplied(path, PLAIN, 4).algorithm == 1 && lines_of(path) == 2 && warnings == 0);
    }
    remove(path);
}

/* ---- captures, devices, threads ---- */

typedef struct { int calls; tg_tensor *x, *w, *b, *y; } captured;

/* The third call, which is captured, has a product that is new. */
static bool step(void *user)
{
    captured *const c = (captured *)user;
    const int64_t rows = ++c->calls < 3 ? 4 : 8;
    return tg_copy_(tg_narrow(c->y, 0, 0, rows), tg_linear(tg_narrow(c->x, 0, 0, rows), c->w, c->b)) != NULL;
}

static void capture(void *with)
{
    TG_SCOPE;
    const char *path = (const char *)with;
    captured c;
    memset(&c, 0, sizeof c);
    c.x = drawn(TG_SHAPE(8, IN), TG_F32), c.w = drawn(TG_SHAPE(OUT, IN), TG_F32);
    c.b = drawn(TG_SHAPE(OUT), TG_F32), c.y = drawn(TG_SHAPE(8, OUT), TG_F32);
    tg_capture *made = tg_capture_new(HERE, step, &c);
    CHECK(tg_capture_run(made) == TG_OK);
    const int lines = lines_of(path);
    CHECK(lines == 2 && cudasim_last_algorithm() == 3); /* the calls before the capture are timed */
    CHECK(tg_capture_run(made) == TG_OK && tg_capture_run(made) == TG_OK && tg_capture_run(made) == TG_OK);
    tg_synchronize(HERE);
    CHECK(c.calls == 3 && !tg_capture_obstacle(made) && lines_of(path) == lines && cudasim_last_algorithm() == 0);
    tg_tensor *y = tg_linear(c.x, c.w, c.b);
    CHECK(tg_equal(y, c.y) && cudasim_last_algorithm() == 0); /* this run goes on as it began */
    tg_capture_free(made);
}

TEST(nothing_is_timed_while_a_step_is_captured)
{
    char path[1000];
    name_no_file(path, "captured");
    pretend(3, 2, 0.125, 9);
    run(path, capture, path);
    const product p = multiplied(path, BIAS, 8);
    CHECK(p.timed && p.algorithm == 3);
    remove(path);
}

TEST(each_device_has_lines_of_its_own)
{
    const char *path = beside("devices");
    const int devices = tg_cuda_device_count();
    remove(path);
    for (int turn = 0; turn < 2; ++turn) {
        for (int i = 0; i < devices; ++i) {
            product p = product_of(BIAS, 4);
            p.device = i;
            pretend(turn ? 0 : i + 1, 2, 0.125, 9);
            run(path, multiply, &p);
            CHECK(p.ok && p.off < 1e-4 && p.algorithm == i + 1 && p.timed == !turn && lines_of(path) == 2 * (turn ? devices : i + 1));
        }
    }
    remove(path);
}

/* Another run adds a line while this one goes on, which has read the file before. */
static void meet(void *with)
{
    const char *path = (const char *)with;
    product mine = product_of(BIAS, 4), theirs = product_of(BIAS, 6), same = theirs;
    pretend(1, 2, 0.125, 9);
    multiply(&mine);
    CHECK(mine.algorithm == 1);
    pretend(3, 2, 0.125, 9);
    run(path, multiply, &theirs);
    CHECK(theirs.algorithm == 3);
    pretend(2, 2, 0.125, 9);
    multiply(&same);
    CHECK(same.ok && same.timed && same.algorithm == 3);
}

TEST(runs_beside_one_another_agree)
{
    char path[1000];
    name_no_file(path, "beside");
    run(path, meet, path);
    CHECK(lines_of(path) == 4);
    remove(path);
}

/* ---- failures ---- */

static int no_memory(void) { return 0; }

/* Where there is room for y alone, the first answer of the heuristic is taken, and nothing is written. */
static void without_scratch(void *with)
{
    TG_SCOPE;
    const char *path = (const char *)with;
    product p = product_of(BIAS, 4);
    multiply(&p);
    const int lines = lines_of(path);
    tg_tensor *x = drawn(TG_SHAPE(512, IN), TG_F32), *w = drawn(TG_SHAPE(512, IN), TG_F32), *b = drawn(TG_SHAPE(512), TG_F32);
    tg_tensor *room = tg_empty_on(TG_SHAPE(512, 512), TG_F32, HERE);
    tg_drop(room); /* for y */
    cudasim_ask_allocation(no_memory);
    const long calls = library_calls();
    tg_tensor *y = tg_linear(x, w, b);
    cudasim_ask_allocation(NULL);
    tg_synchronize(HERE);
    CHECK(y && tg_ok() && library_calls() - calls == 1 && cudasim_last_algorithm() == 0 && lines_of(path) == lines);
    y = tg_linear(x, w, b);
    tg_synchronize(HERE);
    CHECK(y && library_calls() - calls == 2 && cudasim_last_algorithm() == 0); /* it stays so in this run */
}

TEST(without_memory_nothing_is_timed)
{
    char path[1000];
    name_no_file(path, "memory");
    pretend(3, 2, 0.125, 9);
    run(path, without_scratch, path);
    remove(path);
}

/* Each call fails once.  A product that is timed does without what fails; what fails beside that is an error. */
TEST(calls_that_fail)
{
    enum { ALONE_IN_TIMING = 5 }; /* so many: no other part of a product calls these */
    static const char *const call[] = {
        "cudaEventCreateWithFlags", "cudaEventRecord",  "cudaEventSynchronize",    "cudaEventElapsedTime",
        "cublasLtMatmulAlgoCheck",  "cudaMallocAsync",  "cublasLtMatmul", "cublasGemmStridedBatchedEx",
        "cudaGetDeviceProperties",  "cudaMemsetAsync",  "cublasLtMatrixLayoutSetAttribute",
        "cublasLtMatmulDescSetAttribute", "cublasLtMatmulAlgoGetHeuristic"};
    const char *path = beside("fails");
    const size_t events = cudasim_live(CUDASIM_EVENTS);
    for (size_t i = 0; i < sizeof call / sizeof *call; ++i) {
        bool fired = true;
        harness.sample = call[i];
        for (int n = 0; fired && n < 400; n += n < 40 ? 1 : 17) {
            product p = product_of(n % PRODUCTS, 4), q = p;
            pretend(3, 2, n % 2 ? 9 : 0.125, n % 2 ? 0.125 : 9);
            remove(path);
            p.call = call[i], p.nth = n;
            run(path, multiply, &p);
            fired = p.fired;
            CHECK(p.ok ? p.off < 1e-4 : fired && i >= ALONE_IN_TIMING);
            tg_clear_error();
            run(path, multiply, &q);
            CHECK(q.ok && q.off < 1e-4);
            CHECK(cudasim_live(CUDASIM_EVENTS) == events);
        }
    }
    harness.sample = NULL;
    remove(path);
}

/* Host memory runs out, also that of the lines, of which there are more than fit at first. */
static bool with_little_memory(void)
{
    TG_SCOPE;
    bool ok = true;
    tg_tensor *w = tg_ones_on(TG_SHAPE(3, 3), TG_F32, HERE), *b = tg_ones_on(TG_SHAPE(3), TG_F32, HERE);
    for (int i = 1; i <= 20 && ok; ++i) ok = tg_linear(tg_ones_on(TG_SHAPE(i, 3), TG_F32, HERE), w, b) != NULL;
    CHECK(ok || tg_error_code() == TG_ERR_MEMORY);
    return ok && tg_ok();
}
#endif

int main(int argc, char **argv)
{
    setenv("TG_CUDA_PASS_THROUGH", "0", 1); /* else nothing is captured */
    harness_begin(argc, argv);
    HERE = TG_CUDA(0);
    tg_set_default_device(HERE);
#ifdef CUDASIM
    char path[1000];
    name_no_file(path, "little");
    setenv("TG_CUDA_PLANS", path, 1);
    pretend(3, 2, 0.125, 9);
    out_of_memory(with_little_memory);
    CHECK(lines_of(path) == 39); /* of 20 products with a bias, and without it, where they have several rows */
    remove(path);
#endif
    RUN(later_runs_give_the_same_bits);
#ifdef CUDASIM
    RUN(the_fastest_is_chosen);
    RUN(the_choice_is_kept);
    RUN(fused_or_apart);
    RUN(products_that_add);
    RUN(a_file_that_is_only_read);
    RUN(a_file_that_cannot_be_written);
    RUN(a_file_that_is_lost);
    RUN(damaged_files);
    RUN(files_of_other_machines);
    RUN(lines_that_cannot_be_followed);
    RUN(nothing_is_timed_while_a_step_is_captured);
    RUN(each_device_has_lines_of_its_own);
    RUN(runs_beside_one_another_agree);
    RUN(without_memory_nothing_is_timed);
    RUN(calls_that_fail);
    cudasim_pretend_times(NULL);
#endif
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
