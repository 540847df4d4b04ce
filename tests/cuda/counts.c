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
 * For the reports from which ../bench/predict.py works out a step of GPT-2:
 *     counts step LAYERS SEQUENCES WORDS    the second step alone, with sequences of 64 tokens
 *     counts attention                      one head of 1024 queries and keys, forward and backward
 *     counts embedding                      the gradient of a table of 50304 rows for 16384 indices
 *     counts norms                          layer norms of 16384 rows of 768, with a sum and without, and their gradients
 *     counts loss                           the loss of 256 rows of 50304 classes, and its gradient
 */
#include "tensorgrad.h"
#include "models.h"
#include "../cudasim/cudasim_test.h"
#include <stdio.h>
#include <stdlib.h>
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

/* The counts of this step, which is the last one and alone in the report.  Frees net. */
static counts last_step(int steps, tg_module *net, tg_tensor *(*loss_of)(void *model, int step), void *model,
                        double max_norm)
{
    const int n = tg_module_count(net);
    tg_optim *optim = tg_adamw(tg_module_params(net), n, 1e-3);
    counts before = {0, 0, 0, 0}, after = before;
    for (int step = 1; step <= steps; ++step) {
        TG_SCOPE;
        before = so_far();
        before.waits = cudasim_total(CUDASIM_WAITS);
        cudasim_report(step == steps);
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
    const counts c = last_step(3, g.net, gpt_step, &g, 1);
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

/* Causal attention with its gradients, for queries, keys and values [1, 1, 1024, 64] of a packed tensor. */
static void attend(void)
{
    TG_SCOPE;
    tg_tensor *part[3], *gradient[3];
    tg_tensor *qkv = tg_randn_on(TG_SHAPE(1, 1024, 3, 1, 64), TG_BF16, TG_CUDA(0));
    tg_unbind(qkv, 2, part, 3);
    for (int i = 0; i < 3; ++i) part[i] = tg_set_requires_grad(tg_detach(tg_transpose(part[i], 1, 2)), true);
    tg_tensor *y = tg_scaled_dot_product_attention(part[0], part[1], part[2], NULL, 0, true, 0), *g = tg_ones_like(y);
    so_far();
    cudasim_report(1);
    y = tg_scaled_dot_product_attention(part[0], part[1], part[2], NULL, 0, true, 0);
    tg_gradients(&y, 1, &g, part, 3, gradient, 0);
    so_far();
    cudasim_report(0);
}

/* The table is that of GPT-2's tokens. */
static void look_up(void)
{
    TG_SCOPE;
    tg_tensor *table = tg_set_requires_grad(tg_zeros_on(TG_SHAPE(50304, 768), TG_BF16, TG_CUDA(0)), true), *gradient;
    tg_tensor *y = tg_embedding(table, counted(TG_SHAPE(16, 1024), 0, 50304)), *g = tg_ones_like(y);
    so_far();
    cudasim_report(1);
    tg_gradients(&y, 1, &g, &table, 1, &gradient, 0);
    so_far();
    cudasim_report(0);
}

/* Grids of norms have a fixed size, so that each team has several rows of many. */
static void normalise(void)
{
    TG_SCOPE;
    const tg_shape rows = TG_SHAPE(16384, 768);
    tg_tensor *in[4] = {tg_randn_on(rows, TG_BF16, TG_CUDA(0)), tg_randn_on(rows, TG_BF16, TG_CUDA(0)),
                        tg_ones_on(TG_SHAPE(768), TG_BF16, TG_CUDA(0)), tg_ones_on(TG_SHAPE(768), TG_BF16, TG_CUDA(0))};
    tg_tensor *out[2], *g[2] = {in[0], in[1]}, *gradient[4];
    for (int i = 0; i < 4; ++i) in[i] = tg_set_requires_grad(tg_clone(in[i]), true);
    so_far();
    cudasim_report(1);
    out[0] = tg_add_layer_norm(in[0], in[1], 1, in[2], in[3], 1e-5, &out[1]);
    tg_gradients(out, 2, g, in, 4, gradient, 0);
    out[0] = tg_layer_norm(in[0], 1, in[2], in[3], 1e-5);
    in[1] = in[2], in[2] = in[3];
    tg_gradients(out, 1, g, in, 3, gradient, 0);
    so_far();
    cudasim_report(0);
}

static void lose(void)
{
    TG_SCOPE;
    tg_tensor *logits = tg_randn_on(TG_SHAPE(256, 50304), TG_BF16, TG_CUDA(0)), *gradient;
    tg_tensor *targets = counted(TG_SHAPE(256), 0, 50304);
    tg_set_requires_grad(logits, true);
    so_far();
    cudasim_report(1);
    tg_tensor *loss = tg_cross_entropy(logits, targets);
    tg_gradients(&loss, 1, NULL, &logits, 1, &gradient, 0);
    so_far();
    cudasim_report(0);
}

int main(int argc, char **argv)
{
    const counts limits[] = {{22, 0, 1, 20400000}, {115, 0, 1, 46900000}, {267, 0, 1, 3136500000}};
    const gpt_sizes small = {2, 64, 4, 128, 4, 65}, one_layer = {1, 64, 1, 768, 12, 256};
    const gpt_sizes two_layers = {1, 64, 2, 768, 12, 256};
    tg_set_default_device(TG_CUDA(0));
    cudasim_report(0);
    const char *alone = argc > 1 ? argv[1] : "";
    if (!strcmp(alone, "attention")) return attend(), !tg_ok();
    if (!strcmp(alone, "embedding")) return look_up(), !tg_ok();
    if (!strcmp(alone, "norms")) return normalise(), !tg_ok();
    if (!strcmp(alone, "loss")) return lose(), !tg_ok();
    if (argc > 4 && !strcmp(alone, "step")) {
        gpt g;
        const gpt_sizes size = {atoi(argv[3]), 64, atoi(argv[2]), 768, 12, atoi(argv[4])};
        g.size = size;
        make_gpt(&g, TG_BF16);
        printf("launches %lld\n", last_step(2, g.net, gpt_step, &g, 0).launches);
        tg_release(g.position);
        return !tg_ok();
    }
    tg_module *mlp = make_mlp();
    report("mlp_784_512_512_10", last_step(3, mlp, mlp_step, mlp, 0), limits[0]);
    report("gpt_4x128", count_gpt(small, TG_F32), limits[1]);
    report("gpt2_12x768", of_12(count_gpt(one_layer, TG_BF16), count_gpt(two_layers, TG_BF16)), limits[2]);
    failures += !tg_ok();
    if (!tg_ok()) printf("FAILED: %s\n", tg_error_message());
    printf("%d passed, %d failed\n", 3 - failures, failures);
    return failures != 0;
}
