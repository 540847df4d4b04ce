/* What a GPU does with the library: the cost of a launch, GB/s of memory, of moves and of the ops that only move numbers,
 * GFLOP/s of products and attention, steps of training.  Each figure is the median of several runs after one that does not
 * count.  Of bytes and operations the least are counted that an op needs: each operand once.
 *
 *     device           on the current GPU, with up to 20 GB of its memory
 *     device tiny      in sizes for the simulator, where the times mean nothing
 *     device names     which figures there are, without a GPU */
#if !defined(_WIN32) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#endif
#define TENSORGRAD_IMPLEMENTATION
#include "tensorgrad.h"
#include "../cuda/models.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RUNS = 7 };

static int repeats = 10;
static int64_t count = (int64_t)64 << 20, side = 4096, launches = 10000;
static gpt_sizes size = {16, 1024, 12, 768, 12, 50304}; /* GPT-2 124M; its vocabulary of 50257 is padded to 64 n */
static int64_t padding = 47;
static tg_device gpu;

/* Each asks the device for work and returns how much, in what its unit counts. */

/* ---- f32 [count] and [side, side] ---- */

static tg_tensor *one, *a, *b, *pageable, *pinned, *square, *square_bf16, *odd_bf16, *weights;
static tg_optim *optim;

static double launch(void)
{
    for (int64_t i = 0; i < launches; ++i) {
        TG_SCOPE;
        (void)tg_add(one, one);
    }
    return (double)launches;
}

static double bytes(int tensors) { return (double)tensors * (double)count * sizeof(float); }
static double add(void) { return (void)tg_add(a, b), bytes(3); }
static double copy(void) { return (void)tg_clone(a), bytes(2); }
static double sum(void) { return (void)tg_sum(a), bytes(1); }
static double transpose(void)
{
    (void)tg_contiguous(tg_t(square));
    return 2.0 * (double)(side * side) * sizeof(float);
}
static double adamw(void) { return tg_step(optim), bytes(7); } /* reads p, g and two of state, writes all but g */
static double there(void) { return (void)tg_to(pageable, gpu), bytes(1); }
static double there_pinned(void) { return (void)tg_to_ex(pinned, gpu, TG_F32, TG_NON_BLOCKING), bytes(1); }
static double back(void) { return (void)tg_cpu(a), bytes(1); }
static double back_pinned(void) { return (void)tg_to_ex(a, TG_CPU, TG_F32, TG_NON_BLOCKING), bytes(1); }

static double flops(int64_t n) { return 2.0 * (double)n * (double)n * (double)n; }
static double matmul(void) { return (void)tg_matmul(square, square), flops(side); }
static double matmul_tf32(void)
{
    tg_set_matmul_precision(TG_PRECISION_TF32);
    (void)tg_matmul(square, square);
    tg_set_matmul_precision(TG_PRECISION_F32);
    return flops(side);
}
static double matmul_bf16(void) { return (void)tg_matmul(square_bf16, square_bf16), flops(side); }
static double matmul_odd(void) { return (void)tg_matmul(odd_bf16, odd_bf16), flops(side - 1); }

/* ---- bf16 in the sizes of GPT-2: x [tokens, width], wide [tokens, 4 width], logits [tokens, vocabulary] ---- */

static tg_tensor *x, *wide, *logits, *odd_logits, *bias, *gain, *shift, *targets, *odd_targets, *query, *key, *value;

static double bytes_of(const tg_tensor *t, int tensors) { return 2.0 * tensors * (double)tg_numel(t); }

/* The gradients of y with respect to n inputs, for a gradient of y that is y itself. */
static void gradients(tg_tensor *y, tg_tensor *const *inputs, int n)
{
    tg_tensor *g = tg_detach(y), *result[3];
    tg_gradients(&y, 1, &g, inputs, n, result, 0);
}

static double softmax(void) { return (void)tg_softmax(tg_detach(wide), -1), bytes_of(wide, 2); }
static double gelu(void) { return (void)tg_gelu(tg_detach(wide), true), bytes_of(wide, 2); }
static double gelu_both(void)
{
    gradients(tg_gelu(wide, true), &wide, 1);
    return bytes_of(wide, 5);
}
static double norm(void) { return (void)tg_layer_norm(tg_detach(x), 1, gain, shift, 1e-5), bytes_of(x, 2); }
static double norm_both(void)
{
    gradients(tg_layer_norm(x, 1, gain, shift, 1e-5), TG_LIST(x, gain, shift));
    return bytes_of(x, 5);
}
static double bias_add(void) { return (void)tg_add(tg_detach(wide), bias), bytes_of(wide, 2); }
static double bias_gradient(void) { return (void)tg_sum_dim(tg_detach(wide), 0, false), bytes_of(wide, 1); }
static double class_loss_of(tg_tensor *from, tg_tensor *classes)
{
    tg_tensor *loss = tg_cross_entropy(from, classes), *result;
    tg_gradients(&loss, 1, NULL, &from, 1, &result, 0);
    return bytes_of(from, 3);
}
static double class_loss_both(void) { return class_loss_of(logits, targets); }
static double class_loss_odd(void) { return class_loss_of(odd_logits, odd_targets); } /* not padded */

/* Half of the scores are hidden; backward computes the scores again and has four more products. */
static double attention_flops(double products)
{
    return products * (double)(size.batch * size.width) * (double)size.length * (double)size.length;
}
static double attend(void)
{
    (void)tg_scaled_dot_product_attention(tg_detach(query), tg_detach(key), tg_detach(value), NULL, 0, true, 0);
    return attention_flops(2);
}
static double attend_both(void)
{
    gradients(tg_scaled_dot_product_attention(query, key, value, NULL, 0, true, 0), TG_LIST(query, key, value));
    return attention_flops(7);
}

/* ---- steps of training ---- */

typedef struct {
    gpt g;
    tg_tensor *in, *targets;
    tg_optim *optim;
    tg_capture *capture;
} training;
static training mlp, gpt2;

static bool update(training *t, tg_tensor *loss)
{
    return tg_backward(loss) == TG_OK && tg_step(t->optim) == TG_OK && tg_optim_zero_grad(t->optim) == TG_OK;
}
static bool mlp_step(void *t_)
{
    training *t = (training *)t_;
    return update(t, tg_cross_entropy(tg_forward(t->g.net, t->in), t->targets));
}
static bool gpt2_step(void *t_)
{
    training *t = (training *)t_;
    return update(t, gpt_loss(&t->g, t->in, t->targets));
}
static double mlp_called(void) { return mlp_step(&mlp), 1; }
static double mlp_captured(void) { return tg_capture_run(mlp.capture), 1; }
static double gpt2_called(void) { return gpt2_step(&gpt2), 1; }
static double gpt2_captured(void) { return tg_capture_run(gpt2.capture), 1; }

static const struct { const char *name, *unit; double (*work)(void); } figures[] = {
    {"an op of one element, queued", "ns", launch},
    {"add, 64 Mi f32", "GB/s", add},
    {"copy, 64 Mi f32", "GB/s", copy},
    {"sum, 64 Mi f32", "GB/s", sum},
    {"transposed copy 4096, f32", "GB/s", transpose},
    {"AdamW, 64 Mi f32", "GB/s", adamw},
    {"matmul 4096, f32", "GFLOP/s", matmul},
    {"matmul 4096, f32 as TF32", "GFLOP/s", matmul_tf32},
    {"matmul 4096, bf16", "GFLOP/s", matmul_bf16},
    {"matmul 4095, bf16", "GFLOP/s", matmul_odd},
    {"CPU to GPU, 256 MiB, pageable", "GB/s", there},
    {"CPU to GPU, 256 MiB, pinned", "GB/s", there_pinned},
    {"GPU to CPU, 256 MiB, pageable", "GB/s", back},
    {"GPU to CPU, 256 MiB, pinned", "GB/s", back_pinned},
    {"softmax 16384x3072, bf16", "GB/s", softmax},
    {"gelu 16384x3072, bf16", "GB/s", gelu},
    {"gelu with its gradient", "GB/s", gelu_both},
    {"layer_norm 16384x768, bf16", "GB/s", norm},
    {"layer_norm with its gradients", "GB/s", norm_both},
    {"add of a bias 16384x3072, bf16", "GB/s", bias_add},
    {"gradient of that bias", "GB/s", bias_gradient},
    {"cross_entropy 16384x50304, both", "GB/s", class_loss_both},
    {"cross_entropy 16384x50257, both", "GB/s", class_loss_odd},
    {"attention 16x12x1024x64, bf16", "GFLOP/s", attend},
    {"attention with its gradients", "GFLOP/s", attend_both},
    {"a step of MLP 784-512-512-10", "us", mlp_called},
    {"the same, captured", "us", mlp_captured},
    {"a step of GPT-2 124M, B 16, bf16", "us", gpt2_called},
    {"GPT-2 124M, captured", "us", gpt2_captured},
};
enum { FIGURES = sizeof figures / sizeof *figures };

static double now(void)
{
    struct timespec time;
    tg_synchronize(gpu);
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int ascending(const void *p, const void *q)
{
    const double d = *(const double *)p - *(const double *)q;
    return (d > 0) - (d < 0);
}

/* Median seconds for one unit of work. */
static double measure(double (*work)(void))
{
    double seconds[RUNS + 1];
    for (int run = 0; run <= RUNS; ++run) {
        double done = 0;
        const double begun = now();
        for (int i = 0; i < repeats; ++i) {
            TG_SCOPE;
            done += work();
        }
        seconds[run] = (now() - begun) / done;
    }
    qsort(seconds + 1, RUNS, sizeof *seconds, ascending); /* the first run found cold caches */
    return seconds[1 + RUNS / 2];
}

/* A tensor of normal numbers on the GPU that stays. */
static tg_tensor *normal(tg_shape shape, tg_dtype dtype, bool requires_grad)
{
    return tg_retain(tg_set_requires_grad(tg_randn_on(shape, dtype, gpu), requires_grad));
}

static void begin_training(training *t, bool (*step)(void *), tg_tensor *in, tg_tensor *classes)
{
    t->in = tg_retain(in);
    t->targets = tg_retain(classes);
    t->optim = tg_adamw(tg_module_params(t->g.net), tg_module_count(t->g.net), 1e-3);
    t->capture = tg_capture_new(gpu, step, t);
}

static void end_training(training *t)
{
    tg_capture_free(t->capture);
    tg_optim_free(t->optim);
    tg_module_free(t->g.net);
    tg_release(t->in), tg_release(t->targets), tg_release(t->g.position);
}

static void make_all(void)
{
    TG_SCOPE;
    const int64_t tokens = size.batch * size.length, head = size.width / size.heads;
    const tg_shape heads = TG_SHAPE(size.batch, size.heads, size.length, head);
    one = tg_retain(tg_ones_on(TG_SHAPE(1), TG_F32, gpu));
    a = normal(TG_SHAPE(count), TG_F32, false), b = normal(TG_SHAPE(count), TG_F32, false);
    weights = normal(TG_SHAPE(count), TG_F32, true);
    tg_set_grad(weights, a);
    optim = tg_adamw(&weights, 1, 1e-3);
    pageable = tg_retain(tg_cpu(a)), pinned = tg_retain(tg_pin_memory(pageable));
    square = normal(TG_SHAPE(side, side), TG_F32, false), square_bf16 = tg_retain(tg_to_dtype(square, TG_BF16));
    odd_bf16 = normal(TG_SHAPE(side - 1, side - 1), TG_BF16, false);
    x = normal(TG_SHAPE(tokens, size.width), TG_BF16, true);
    wide = normal(TG_SHAPE(tokens, 4 * size.width), TG_BF16, true);
    logits = normal(TG_SHAPE(tokens, size.vocabulary), TG_BF16, true);
    odd_logits = normal(TG_SHAPE(tokens, size.vocabulary - padding), TG_BF16, true);
    bias = normal(TG_SHAPE(4 * size.width), TG_BF16, false);
    gain = normal(TG_SHAPE(size.width), TG_BF16, true), shift = normal(TG_SHAPE(size.width), TG_BF16, true);
    targets = tg_retain(counted(TG_SHAPE(tokens), 1, size.vocabulary));
    odd_targets = tg_retain(counted(TG_SHAPE(tokens), 1, size.vocabulary - padding));
    query = normal(heads, TG_BF16, true), key = normal(heads, TG_BF16, true), value = normal(heads, TG_BF16, true);
    mlp.g.net = make_mlp();
    begin_training(&mlp, mlp_step, tg_rand_on(TG_SHAPE(64, 784), TG_F32, gpu), counted(TG_SHAPE(64), 0, 10));
    gpt2.g.size = size;
    make_gpt(&gpt2.g, TG_BF16);
    begin_training(&gpt2, gpt2_step, counted(TG_SHAPE(size.batch, size.length), 0, size.vocabulary), targets);
}

static void release_all(void)
{
    tg_tensor *const made[] = {one,  a,      b,          weights, pageable, pinned, square,  square_bf16, odd_bf16, x,
                               wide, logits, odd_logits, bias,    gain,     shift,  targets, odd_targets, query,    key,
                               value};
    end_training(&mlp), end_training(&gpt2);
    tg_optim_free(optim);
    for (size_t i = 0; i < sizeof made / sizeof *made; ++i) tg_release(made[i]);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    const bool runs = strcmp(mode, "names") != 0;
    if (!strcmp(mode, "tiny")) {
        const gpt_sizes tiny = {1, 16, 1, 64, 1, 40};
        count = 5000, side = 48, launches = 20, size = tiny, padding = 7, repeats = 1;
    }
    gpu = TG_CUDA(tg_cuda_current_device());
    if (runs) {
        tg_set_default_device(gpu); /* for the networks */
        make_all();
    }
    for (int i = 0; i < FIGURES && tg_ok(); ++i) {
        const double seconds = runs ? measure(figures[i].work) : 0;
        const double factor = !strcmp(figures[i].unit, "ns") ? 1e9 : 1e6;
        printf("%-32s ", figures[i].name);
        if (seconds == 0) printf("not run\n");
        else printf("%.1f %s\n", strchr(figures[i].unit, '/') ? 1e-9 / seconds : factor * seconds, figures[i].unit);
    }
    const char *obstacle = NULL; /* "captured" would be the time of a step that is called */
    for (int i = 0; runs && tg_ok() && i < 2; ++i) {
        const char *const why = tg_capture_obstacle(i == 0 ? mlp.capture : gpt2.capture);
        if (why) fprintf(stderr, "not captured: %s\n", obstacle = why);
    }
    if (runs) release_all();
    return obstacle || !tg_ok() || tg_shutdown() != TG_OK;
}
