/* What one training step asks of a GPU, counted on the simulator (`make sim-counts`): the third step of each model,
 * when nothing is new any more.
 *
 *     NAME launches N allocations N waits N megabytes N
 *
 * launches: kernels, products by cuBLAS, copies and fills.  allocations: of device memory, from the driver.  waits: of
 * the host for the device.  megabytes: what all but the products read and write in device memory; without
 * TG_SIM_REPORT, which needs the build SIM=check, only copies and fills.  A figure above its limit is a failure; limits
 * come down with the figures.
 *
 * With the argument "predict": the same for GPT-2 124M, 16 sequences of 1024 tokens, from six smaller steps. */
#include "tensorgrad.h"
#include "models.h"
#include "../cudasim/cudasim_test.h"
#include <stdio.h>
#include <string.h>

typedef struct { long long launches, allocations, waits, bytes; } counts;

static counts so_far(void)
{
    counts c;
    c.waits = cudasim_total(CUDASIM_WAITS); /* before the wait that this makes */
    tg_synchronize(TG_CUDA(0));
    c.launches = cudasim_total(CUDASIM_KERNELS) + cudasim_total(CUDASIM_LIBRARY_CALLS) + cudasim_total(CUDASIM_COPIES);
    c.allocations = cudasim_total(CUDASIM_DRIVER_ALLOCATIONS);
    c.bytes = cudasim_total(CUDASIM_BYTES);
    return c;
}

static tg_tensor *mlp_step(void *net, int step)
{
    tg_tensor *x = tg_to(tg_full_on(TG_SHAPE(64, 784), 0.01 * step, TG_F32, TG_CPU), TG_CUDA(0));
    return tg_cross_entropy(tg_forward((tg_module *)net, x), counted(TG_SHAPE(64), step, 10));
}

static tg_tensor *gpt_step(void *model, int step)
{
    const gpt *g = (const gpt *)model;
    tg_tensor *ids = counted(TG_SHAPE(g->size.batch, g->size.length), step, g->size.vocabulary);
    return gpt_loss(g, ids, counted(TG_SHAPE(g->size.batch * g->size.length), step + 1, g->size.vocabulary));
}

/* ---- counting ---- */

/* The counts of the third step.  Frees net. */
static counts third_step(tg_module *net, tg_tensor *(*loss_of)(void *model, int step), void *model, double max_norm)
{
    const int n = tg_module_count(net);
    tg_optim *optim = tg_adamw(tg_module_params(net), n, 1e-3);
    counts before = {0, 0, 0, 0}, after = before;
    for (int step = 1; step <= 3; ++step) {
        TG_SCOPE;
        before = so_far();
        before.waits = cudasim_total(CUDASIM_WAITS);
        cudasim_report(step == 3);
        tg_optim_zero_grad(optim);
        tg_tensor *loss = loss_of(model, step);
        tg_backward(loss);
        if (max_norm > 0) tg_clip_grad_norm(tg_module_params(net), n, max_norm);
        tg_step(optim);
        tg_item(loss);
        after = so_far();
    }
    tg_optim_free(optim);
    tg_module_free(net);
    after.launches -= before.launches;
    after.allocations -= before.allocations;
    after.waits -= before.waits;
    after.bytes -= before.bytes;
    return after;
}

static counts count_gpt(gpt_sizes size, tg_dtype dtype)
{
    gpt g;
    g.size = size;
    make_gpt(&g, dtype);
    const counts c = third_step(g.net, gpt_step, &g, 1);
    tg_release(g.position);
    return c;
}

static int failures;

static void report(const char *name, counts c, counts limit)
{
    const double megabytes = (double)c.bytes / 1e6;
    printf("%s launches %lld allocations %lld waits %lld megabytes %.1f\n", name, c.launches, c.allocations, c.waits,
           megabytes);
    if (c.launches > limit.launches || c.allocations > limit.allocations || c.waits > limit.waits ||
        c.bytes > limit.bytes) {
        printf("FAILED: at most launches %lld allocations %lld waits %lld megabytes %.1f\n", limit.launches,
               limit.allocations, limit.waits, (double)limit.bytes / 1e6);
        ++failures;
    }
}

/* The same for 12 layers: each adds what the second did. */
static counts of_12(counts one, counts two)
{
    two.launches += 10 * (two.launches - one.launches);
    two.allocations += 10 * (two.allocations - one.allocations);
    two.waits += 10 * (two.waits - one.waits);
    two.bytes += 10 * (two.bytes - one.bytes);
    return two;
}

/* ---- a step that is too large for the simulator ---- */

/* The bytes of a step, which are so many for the parameters and so many for each token. */
typedef struct { double fixed, per_token; } cost;

static cost cost_of(int64_t layers, int64_t vocabulary)
{
    const gpt_sizes one = {1, 64, layers, 768, 12, vocabulary}, two = {2, 64, layers, 768, 12, vocabulary};
    const double bytes = (double)count_gpt(one, TG_BF16).bytes;
    cost c;
    c.per_token = ((double)count_gpt(two, TG_BF16).bytes - bytes) / 64;
    c.fixed = bytes - 64 * c.per_token;
    return c;
}

/* What attention reads in one head of one long sequence beyond a row of k and of v for each query, as in sequences of
   64.  A block owns 128 queries and reads the keys that its last one sees, rows of 64 numbers of 16 bits, forward and
   for dq; for dk and dv it owns keys and reads q, g and 8 bytes of sums (see test_flash.c). */
static double read_again(int64_t length)
{
    double rows = 0;
    for (int64_t first = 0; first < length; first += 128) rows += (double)(first + 128 < length ? first + 128 : length);
    return (rows - (double)length) * (3 * 2 * 64 * 2 + 8);
}

/* Both parts grow by the same with each layer, and with each word of the vocabulary. */
static void predict(int64_t layers, int64_t vocabulary, int64_t sequences, int64_t length)
{
    const int64_t tokens = sequences * length, heads = 12;
    const cost base = cost_of(1, 256), layer = cost_of(2, 256), words = cost_of(1, 512);
    const double more_layers = (double)(layers - 1), more_words = (double)(vocabulary - 256) / 256;
    const double fixed =
        base.fixed + more_layers * (layer.fixed - base.fixed) + more_words * (words.fixed - base.fixed);
    const double per_token = base.per_token + more_layers * (layer.per_token - base.per_token) +
                             more_words * (words.per_token - base.per_token);
    const double again = read_again(length) * (double)(layers * sequences * heads);
    printf("%d layers, %d words, %d tokens: %.1f gigabytes, %.1f of them for the parameters, %.1f that attention reads "
           "again\n",
           (int)layers, (int)vocabulary, (int)tokens, (fixed + per_token * (double)tokens + again) / 1e9, fixed / 1e9,
           again / 1e9);
}

int main(int argc, char **argv)
{
    const counts limits[] = {{23, 0, 1, 20400000}, {132, 0, 1, 47100000}, {308, 0, 1, 3142400000}};
    const gpt_sizes small = {2, 64, 4, 128, 4, 65}, one_layer = {1, 64, 1, 768, 12, 256};
    const gpt_sizes two_layers = {1, 64, 2, 768, 12, 256};
    tg_set_default_device(TG_CUDA(0));
    cudasim_report(0);
    if (argc > 1 && !strcmp(argv[1], "predict")) {
        predict(12, 50304, 16, 1024);
        return !tg_ok();
    }
    tg_module *mlp = make_mlp();
    report("mlp_784_512_512_10", third_step(mlp, mlp_step, mlp, 0), limits[0]);
    report("gpt_4x128", count_gpt(small, TG_F32), limits[1]);
    report("gpt2_12x768", of_12(count_gpt(one_layer, TG_BF16), count_gpt(two_layers, TG_BF16)), limits[2]);
    failures += !tg_ok();
    if (!tg_ok()) printf("FAILED: %s\n", tg_error_message());
    printf("%d passed, %d failed\n", 3 - failures, failures);
    return failures != 0;
}
