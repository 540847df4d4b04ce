/* tutorials_tensors.c: two tutorials about PyTorch's .to(device), "PyTorch tensor .to(device) is differentiable" and
   "GPU tensors (to, cuda) in PyTorch", as a C program, with what is true of what they say.

   READ    in quotes stands what a tutorial says; the lines under it print what happens.
   CHANGE  the devices; print tg_grad of a moved tensor; take a move away and read the error.
   PRINTS  numbers, the same on every device; where tensors are; after ! what a forgotten move gives if there is a GPU.
           Without one: make sim MAIN=examples/tutorials_tensors.c OUT=tutorials; TG_SIM_DEVICES=2 ./tutorials */
#define TENSORGRAD_IMPLEMENTATION
#include "../tensorgrad.h"
#include <stdio.h>

static tg_device first, last; /* of the GPUs; the CPU when there is none */

static const char *place(const tg_tensor *t) { return tg_device_str(tg_device_of(t)); }

/* Prints the error of a call that mixes devices, and clears it. */
static void refused(const tg_tensor *result)
{
    printf("! %s\n", result ? "one device: nothing is refused" : tg_error_message());
    tg_clear_error();
}

/* ---- "PyTorch tensor .to(device) is differentiable" ---- */

/* "The move introduces another tensor in the same computation graph."  So it does. */
static void one_graph(void)
{
    TG_SCOPE;
    tg_tensor *x = tg_set_requires_grad(tg_rand(TG_SHAPE(4)), true), *y = tg_to(x, first);
    printf("x on %s, y = x.to on %s\n", place(x), place(y));
    tg_backward(tg_sum(tg_to(tg_mul(y, y), last))); /* on from there to a further device */
    printf("gradient of x: %.6f, on %s; x twice: %.6f\n", tg_get(tg_grad(x), TG_INDEX(0)), place(tg_grad(x)),
           2 * tg_get(x, TG_INDEX(0)));
}

/* "Only the original tensor can collect the gradients."  Every leaf does, each on its device; so does what lies between
   if it is asked to by tg_retain_grad. */
static void layers_on_two_devices(void)
{
    TG_SCOPE;
    tg_tensor *x = tg_set_requires_grad(tg_randn(TG_SHAPE(1, 1)), true);
    tg_module *lin_on_cpu = tg_nn_linear(1, 1, true), *lin_on_gpu = tg_nn_linear(1, 1, true);
    tg_module_to(lin_on_gpu, first); /* .cuda() of a module: tg_module_to(m, TG_CUDA(-1)) */
    tg_tensor *out_on_cpu = tg_forward(lin_on_cpu, x), *out_on_gpu = tg_retain_grad(tg_to(out_on_cpu, first));
    tg_backward(tg_mean(tg_forward(lin_on_gpu, out_on_gpu)));
    tg_tensor *w_on_cpu = tg_module_get(lin_on_cpu, "weight"), *w_on_gpu = tg_module_get(lin_on_gpu, "weight");
    printf("gradient of x: %.6f, on %s; product of the weights: %.6f\n", tg_item(tg_grad(x)), place(tg_grad(x)),
           tg_item(w_on_cpu) * tg_item(w_on_gpu));
    printf("of the weights: %.6f on %s, %.6f on %s\n", tg_item(tg_grad(w_on_cpu)), place(tg_grad(w_on_cpu)),
           tg_item(tg_grad(w_on_gpu)), place(tg_grad(w_on_gpu)));
    printf("of what was moved: %.6f on %s\n", tg_item(tg_grad(out_on_gpu)), place(tg_grad(out_on_gpu)));
    tg_module_free(lin_on_cpu);
    tg_module_free(lin_on_gpu);
}

/* ---- "GPU tensors (to, cuda) in PyTorch" ---- */

static tg_tensor *integers(int64_t a, int64_t b, int64_t c)
{
    const int64_t values[] = {a, b, c};
    return tg_from_i64(values, TG_SHAPE(3));
}

/* "PyTorch does NOT automatically move tensors between CPU and GPU during math."  True, but a tensor without dims and
   the indices of rows may come from the CPU. */
static void pitfall_1(void)
{
    TG_SCOPE;
    tg_tensor *a = integers(1, 2, 3), *b = tg_to(integers(4, 5, 6), first);
    refused(tg_add(a, b));
    tg_tensor *c = tg_add(tg_to(a, first), b), *row = integers(2, 2, 0);
    printf("a + b on %s: %g; c - 1: %g; c[2]: %g\n", place(c), tg_item(tg_sum(c)),
           tg_item(tg_sum(tg_sub(c, tg_scalar(1)))), tg_get(tg_index(c, &row, 1), TG_INDEX(0)));
}

/* "The tensor object then points to this GPU memory."  A new one does, and the old one stays as it was.  In place moves
   tg_to_, which PyTorch has for modules alone. */
static void pitfall_2(void)
{
    TG_SCOPE;
    tg_tensor *tensor = tg_ones(TG_SHAPE(3)), *other = tg_ones(TG_SHAPE(3));
    (void)tg_to(tensor, first); /* the result is lost */
    tg_to_(other, first);
    printf("after tg_to on %s, after tg_to_ on %s", place(tensor), place(other));
    tensor = tg_to(tensor, last);
    printf(", after tensor = tg_to on %s\n", place(tensor));
}

/* ".cuda() is equivalent to .to('cuda:0')", and a wrong index is a "silent error".  It means the current GPU, and a GPU
   that is not there is an error. */
static void which_gpu(void)
{
    TG_SCOPE;
    if (tg_cuda_is_available()) tg_cuda_set_device(last.index);
    tg_tensor *t = tg_ones(TG_SHAPE(3));
    printf("cuda is %s\n", place(tg_cuda_is_available() ? tg_cuda(t) : t));
    if (tg_cuda_is_available()) tg_cuda_set_device(first.index);
    printf("a GPU too many: %s\n", tg_to(t, TG_CUDA(tg_cuda_device_count())) ? "silent" : "an error");
    tg_clear_error();
}

/* "Moving tensors inside a tight training loop": each step pays for it.  Moved once, the batch is there. */
static void pitfall_3(void)
{
    TG_SCOPE;
    tg_tensor *batch = tg_randn(TG_SHAPE(8, 4)), *once = tg_to(batch, first);
    tg_module *model = tg_module_to(tg_nn_linear(4, 1, true), first);
    double sum[2] = {0, 0};
    int64_t moved[3];
    refused(tg_forward(model, tg_cpu(once))); /* what the tutorial calls slow is an error */
    for (int way = 0; way < 2; ++way) {
        moved[way] = tg_stats_on(first).received;
        for (int step = 0; step < 10; ++step) {
            tg_tensor *x = way ? once : tg_to(batch, first);
            sum[way] += tg_item(tg_sum(tg_forward(model, x)));
        }
    }
    moved[2] = tg_stats_on(first).received;
    printf("ten sums: %.6f and %.6f\n", sum[0], sum[1]);
    printf("! bytes moved: %d and %d\n", (int)(moved[1] - moved[0]), (int)(moved[2] - moved[1]));
    tg_module_free(model);
}

int main(void)
{
    const int gpus = tg_cuda_device_count();
    tg_set_error_handler(NULL, NULL);
    tg_set_default_dtype(TG_F64);
    tg_seed(5);
    first = gpus ? TG_CUDA(0) : TG_CPU;
    last = gpus ? TG_CUDA(gpus - 1) : TG_CPU;
    one_graph();
    layers_on_two_devices();
    pitfall_1();
    pitfall_2();
    which_gpu();
    pitfall_3();
    if (!tg_ok()) printf("%s\n", tg_error_message());
    return tg_ok() && tg_shutdown() == TG_OK ? 0 : 1;
}
