/* What is measured on the CPU: the rows of the benchmark, and the programs that run them.  The workloads are in ops.c,
 * networks.c, programs.c and generation.c.
 *
 *     workloads worker THREADS    answers lines of stdin, one line each; bench.py asks this and other libraries
 *     workloads quick             the rows that need a minute, each with its part of what the processor could do
 *     workloads tiny              the same rows, each for less than a millisecond, if it can: do they run?
 *
 * A workload has a name of three parts, KIND-SIZES-OPTIONS, as "sgemm-64x512x784-NT" or "softmax-24576x256-backward";
 * any sizes can be asked for.  The lines of a worker:
 *
 *     rows                 the names of the benchmark's rows, one a line, then an empty line
 *     time NAME MS         seconds per call, measured for that many milliseconds; at first it sets up and warms up
 *     cost NAME            floating point operations and bytes of memory of a call, at least
 *     losses NAME STEPS    the losses of the first steps of training
 *     allocations NAME     how often a text that is generated asks for memory after its second token
 *     memory NAME          bytes of memory that three steps take at most beyond what the idle process had
 *     drop                 frees the workload that is set up
 *     version              one line
 */
#include "bits.h"
#include "roof.h"
#include "workloads.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

workload now;

/* The rows of the benchmark; quick: those of `make bench-quick`, too. */
static const struct { const char *name; bool quick; } rows[] = {
    {"sgemm-64x64x64-NN", true},
    {"sgemm-128x128x128-NN", false},
    {"sgemm-256x256x256-NN", true},
    {"sgemm-512x512x512-NN", false},
    {"sgemm-1024x1024x1024-NN", true},
    {"sgemm-2048x2048x2048-NN", false},
    {"sgemm-64x512x784-NT", true},
    {"sgemm-784x512x64-TN", true},
    {"sgemm-64x512x512-NN", false},
    {"sgemm-64x512x512-NT", false},
    {"sgemm-4096x1152x384-NT", false},
    {"sgemm-4096x1536x384-NT", false},
    {"sgemm-4096x384x1536-NT", false},
    {"sgemm-384x1536x4096-TN", false},
    {"sgemm-256x50304x768-NT", false},
    {"sgemm-1x4096x4096-NN", true},
    {"conv2d-16x64x32x32", false},
    {"sgemm-2000x64x2000-NN", false},
    {"sgemm-100x100x100-NN", false},
    {"sgemm-333x777x555-NT", false},
    {"mlp-64x784x512x512x10-sgd", true},
    {"mlp-128x784x512x512x10-sgd", false},
    {"mlp-64x784x512x512x10-adamw", false},
    {"mlp-128x784x512x512x10-adamw", false},
    {"mlp-32x2x16x16x1-sgd-tanh", true},
    {"gpt-32x64x4x128x4x65-adamw", false},
    {"gpt-16x256x6x384x6x65-adamw", false},
    {"gpt-4x64x12x768x12x50257-adamw-tied", false},
    {"conv_net-64x28x16x32x128x10-sgd", false},
    {"lstm-32x64x64x128x10-sgd", false},
    {"gru-32x64x64x128x10-sgd", false},
    {"op-1", true},
    {"op-1-grad", true},
    {"chain-1-grad", false},
    {"chain-1-backward", true},
    {"scalar_graph-100", false},
    {"exp-1048576", true},
    {"tanh-1048576", true},
    {"gelu-1048576", true},
    {"gelu_tanh-1048576", false},
    {"sigmoid-1048576", false},
    {"silu-1048576", false},
    {"add-1048576", true},
    {"mul-1048576", false},
    {"relu-1048576", true},
    {"sum-1048576", true},
    {"add_in_place-1048576", false},
    {"relu_in_place-1048576", false},
    {"mul-1048576-denormal", false},
    {"exp-1024", false},
    {"tanh-1024", false},
    {"gelu-1024", false},
    {"sigmoid-1024", false},
    {"add-1024", true},
    {"mul-1024", false},
    {"relu-1024", false},
    {"exp-16384", false},
    {"tanh-16384", false},
    {"gelu-16384", false},
    {"sigmoid-16384", false},
    {"add-16384", false},
    {"mul-16384", false},
    {"relu-16384", false},
    {"exp-16777216", false},
    {"tanh-16777216", false},
    {"gelu-16777216", false},
    {"sigmoid-16777216", false},
    {"add-16777216", true},
    {"add_in_place-16777216", true},
    {"mul-16777216", false},
    {"relu-16777216", false},
    {"softmax-24576x256", true},
    {"softmax-24576x256-backward", false},
    {"log_softmax-24576x256", false},
    {"log_softmax-24576x256-backward", false},
    {"layer_norm-4096x384", true},
    {"layer_norm-4096x384-backward", true},
    {"sum_dim0-4096x4096", true},
    {"sum_dim1-4096x4096", false},
    {"cross_entropy-4096x50304", false},
    {"cross_entropy-4096x50304-both", false},
    {"bias_add-4096x384", false},
    {"transposed_copy-2048x2048", false},
    {"cat-2048x2048", false},
    {"embedding-8192x384x4096", false},
    {"embedding-8192x384x4096-backward", false},
    {"randn-1048576", false},
    {"index_select-1024x1024", false},
    {"topk-1024x4096x10", false},
    {"inv-8192x4", false},
    {"inv-1024x16", false},
    {"inv-64x64", false},
    {"solve-8192x4", false},
    {"solve-1024x16", false},
    {"solve-64x64", false},
    {"det-8192x4", false},
    {"det-1024x16", false},
    {"det-64x64", false},
    {"cholesky-8192x4", false},
    {"cholesky-1024x16", false},
    {"cholesky-64x64", false},
    {"eigh-16x64", false},
    {"eigh-1x256", false},
    {"svd-16x64", false},
    {"svd-1x256", false},
    {"f32_to_f16-1048576", false},
    {"matmul_i64-256x256x256-NN", false},
    {"matmul_bf16-512x512x512-NN", false},
    {"program-4x32-resnet18", false},
    {"program-8x64-mobilenet", false},
    {"program-16x32-vit", false},
    {"program-4x64-unet", false},
    {"program-8x32-ddpm", false},
    {"program-32x32-vae", false},
    {"program-16x32-dcgan", false},
    {"program-16x32-wgan_gp", false},
    {"program-16x32-simclr", false},
    {"program-8x64-deeplab", false},
    {"program-2x64-style", false},
    {"program-16x32-transfer", false},
    {"program-16x32-vgg", false},
    {"program-16x32-siamese", false},
    {"program-8x32-densenet", false},
    {"program-8x32-super_resolution", false},
    {"program-16x32-lstm_lm", false},
    {"program-16x16-seq2seq", false},
    {"program-8x64-bert", false},
    {"program-4x64-llama", false},
    {"program-16x128-tcn", false},
    {"program-8x64-mamba", false},
    {"program-2000x16000-gcn", false},
    {"program-2000x16000-gat", false},
    {"program-20000x32-kmeans", false},
    {"program-1024x20000-word2vec", false},
    {"program-4096x20000-factorisation", false},
    {"program-256x8-dqn", false},
    {"program-1024x8-ppo", false},
    {"program-512x16-tabular", false},
    {"program-1024x8-flow", false},
    {"program-1024x8-diffusion_mlp", false},
    {"program-128x784-autoencoder", false},
    {"program-32x40-maml", false},
    {"program-64x32-hypernetwork", false},
    {"program-1024x64-pinn", false},
    {"generate-64x16-gpt2-f32", false},
    {"generate-64x16-gpt2-bf16", false},
    {"generate-64x16-llama-f32", false},
    {"generate-64x16-llama-bf16", false},
    {"prefill-512-gpt2-f32", false},
    {"prefill-512-gpt2-bf16", false},
    {"prefill-512-llama-f32", false},
    {"prefill-512-llama-bf16", false},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* ---- numbers that every worker makes alike --------------------------------------------------------------------- */

tg_tensor *fill(tg_tensor *t, uint32_t seed, float scale)
{
    float *data = tg_data_f32(t);
    const int64_t n = data ? tg_numel(t) : 0;
    for (int64_t i = 0; i < n; ++i) data[i] = ((float)random_bits((uint32_t)i, seed) * 0x1p-23f - 1) * scale;
    return tg_touch_(t);
}

tg_tensor *numbers(tg_shape shape, uint32_t seed) { return tg_retain(fill(tg_empty(shape), seed, 1)); }

tg_tensor *labels(tg_shape shape, uint32_t seed, int64_t classes)
{
    tg_tensor *t = tg_retain(tg_empty_on(shape, TG_I64, TG_CPU));
    int64_t *data = tg_data_i64(t);
    const int64_t n = data ? tg_numel(t) : 0;
    for (int64_t i = 0; i < n; ++i) data[i] = random_bits((uint32_t)i, seed) % classes;
    return tg_touch_(t);
}

bool option(const char *text) { return strstr(now.options, text) != NULL; }

tg_tensor *input(tg_shape shape)
{
    tg_tensor *t = numbers(shape, (uint32_t)now.inputs + 1);
    if (option("denormal")) fill(t, (uint32_t)now.inputs + 1, 1e-40f);
    if (now.grad) tg_set_requires_grad(t, true);
    return now.input[now.inputs++] = t;
}

/* Backward does twice the work, and reads the gradient, too. */
void cost(double flops, double floats)
{
    static const double works[] = {1, 2, 3, 1}, moves[] = {1, 1.5, 2.5, 1};
    now.flops = flops * works[now.mode];
    now.bytes = 4 * floats * moves[now.mode];
}

/* ---- setting up, and measuring --------------------------------------------------------------------------------- */

static void end_workload(void)
{
    const int threads = now.threads;
    end_op();
    end_network();
    end_program();
    end_generation();
    tg_release_all(now.input, now.inputs);
    tg_release(now.index);
    tg_release(now.output);
    tg_release(now.gradient);
    tg_empty_cache(TG_CPU);
    memset(&now, 0, sizeof now);
    now.threads = threads;
}

static const kind *kind_of(const char *name)
{
    const kind *tables[] = {op_kinds, network_kinds, program_kinds, generation_kinds};
    for (int i = 0; i < 4; ++i)
        for (const kind *k = tables[i]; k->name; ++k)
            if (!strcmp(k->name, name)) return k;
    return NULL;
}

/* Makes the tensors of a workload, unless it is the one that is there.  False: there is none of that name. */
static bool begin_workload(const char *name)
{
    char text[sizeof now.name];
    char *sizes, *options, *number;
    if (!strcmp(name, now.name)) return true;
    end_workload();
    if (strlen(name) >= sizeof text) return false;
    strcpy(text, name);
    sizes = strchr(text, '-');
    if (sizes) *sizes++ = '\0';
    options = sizes ? strchr(sizes, '-') : NULL;
    if (options) *options++ = '\0';
    if (options && strlen(options) < sizeof now.options) strcpy(now.options, options);
    now.kind = kind_of(text);
    for (number = sizes; number && *number && now.sizes < MOST_SIZES; ++now.sizes) {
        now.size[now.sizes] = strtoll(number, &number, 10);
        if (now.size[now.sizes] < 1 || (*number && *number++ != 'x')) return false;
    }
    if (!now.kind || !now.sizes) return false;
    now.mode = option("backward") ? BACKWARD : option("both") ? BOTH : FORWARD;
    now.grad = now.mode != FORWARD;
    now.calls = 1;
    tg_set_flush_denormal(!option("denormal")); /* as the peers do */
    TG_SCOPE;
    now.kind->setup();
    if (now.mode != TRAIN && !now.kind->forward) return false; /* there is no such program */
    if (now.mode == BACKWARD || now.mode == BOTH) {
        tg_tensor *y = now.kind->forward();
        if (now.mode == BACKWARD) now.output = tg_retain(y);
        now.gradient = numbers(tg_shape_of(y), 99);
    }
    strcpy(now.name, name);
    return tg_ok();
}

/* The work that is measured, once. */
static void turn(void)
{
    TG_SCOPE;
    tg_tensor *y, *results[MOST_INPUTS], *leaves[MOST_INPUTS];
    int n = 0;
    if (now.mode == TRAIN) {
        now.train();
        return;
    }
    y = now.mode == BACKWARD ? now.output : now.kind->forward();
    if (now.mode == FORWARD) return;
    for (int i = 0; i < now.inputs; ++i)
        if (tg_requires_grad(now.input[i])) leaves[n++] = now.input[i];
    tg_gradients(&y, 1, &now.gradient, leaves, n, results, now.mode == BACKWARD ? TG_RETAIN_GRAPH : 0);
}

static double seconds_of(int64_t turns)
{
    const double begun = seconds_now();
    for (int64_t i = 0; i < turns; ++i) turn();
    return (seconds_now() - begun) / (double)turns;
}

static double smaller(double a, double b) { return a < b ? a : b; }
static double larger(double a, double b) { return a > b ? a : b; }

/* Until three samples in a row agree within 5 %, after ten turns; not for longer than 1.5 s. */
static void warm_up(double sample)
{
    double last[3] = {0, 0, 0}, least;
    int64_t turns = 1, done = 0;
    const double begun = seconds_now();
    for (int i = 0;; ++i) {
        const double seconds = seconds_of(turns);
        last[i % 3] = seconds;
        least = smaller(last[0], smaller(last[1], last[2]));
        done += turns;
        now.seconds = i < 3 ? seconds : least;
        if (seconds_now() - begun > smaller(1.5, 75 * sample)) break;
        if (done >= 10 && i >= 3 && larger(last[0], larger(last[1], last[2])) < 1.05 * least) break;
        turns = (int64_t)(sample / 4 / seconds) + 1;
    }
}

/* Seconds per call, over about `sample` seconds. */
static double measure(double sample)
{
    double seconds;
    int64_t turns;
    if (now.seconds == 0) warm_up(sample);
    turns = (int64_t)(sample / now.seconds);
    seconds = seconds_of(turns > 1 ? turns : 1);
    now.seconds = smaller(now.seconds, seconds);
    return seconds / now.calls;
}

/* ---- the worker ------------------------------------------------------------------------------------------------ */

/* A line "NAME:  1234 kB" of the kernel's account of this process, in bytes; 0 where there is none. */
static double memory_status(const char *name)
{
    char line[256];
    double kilobytes = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name))) kilobytes = strtod(line + strlen(name) + 1, NULL);
    if (file) fclose(file);
    return 1024 * kilobytes;
}

static void answer(char *line, double idle_bytes)
{
    const char *word = strtok(line, " \n"), *name = strtok(NULL, " \n"), *number = strtok(NULL, " \n");
    const double value = number ? strtod(number, NULL) : 0;
    if (word && (!strcmp(word, "losses") || !strcmp(word, "allocations"))) end_workload(); /* from the first step on */
    if (word && !strcmp(word, "version")) {
        puts(tg_build_info());
    } else if (word && !strcmp(word, "rows")) {
        for (int i = 0; i < ROWS; ++i) puts(rows[i].name);
        putchar('\n');
    } else if (word && !strcmp(word, "drop")) {
        end_workload();
        puts("ok");
    } else if (!word || !name) {
        puts("error: not a line of this worker");
    } else if (!begin_workload(name)) {
        printf("error: %s\n", tg_ok() ? "no such workload" : tg_error_message());
    } else if (!strcmp(word, "cost")) {
        if (!strcmp(now.kind->name, "fma_peak")) turn(); /* says how much it does */
        printf("%.9g %.9g\n", now.flops / now.calls, now.bytes / now.calls);
    } else if (!strcmp(word, "time")) {
        const double seconds = measure(1e-3 * value);
        if (tg_ok()) printf("%.9g\n", seconds);
        else printf("error: %s\n", tg_error_message());
    } else if (!strcmp(word, "losses") && now.mode == TRAIN) {
        for (int i = 0; i < (int)value; ++i) printf("%.9g ", now.train());
        putchar('\n');
        end_workload();
    } else if (!strcmp(word, "allocations") && now.mode == TRAIN) {
        turn();
        printf("%lld\n", (long long)now.allocations);
    } else if (!strcmp(word, "memory")) {
        for (int i = 0; i < 3; ++i) turn();
        printf("%.0f\n", memory_status("VmHWM") - idle_bytes);
    } else {
        puts("error: not a line of this worker");
    }
    tg_clear_error();
}

static void work(void)
{
    char line[256];
    const double idle_bytes = memory_status("VmRSS");
    while (fgets(line, sizeof line, stdin)) {
        answer(line, idle_bytes);
        fflush(stdout);
    }
}

/* ---- the quick figures ----------------------------------------------------------------------------------------- */

enum { COPIES = 4 };
static const int64_t copied[COPIES] = {1024, 16384, 1048576, 16777216};

/* Seconds that the processor needs at least for this work: its arithmetic, and its bytes at the speed of a copy of
   about as many. */
static double least_seconds(double flops, double bytes, double peak, const double *copy)
{
    int nearest = 0;
    for (int i = 1; i < COPIES; ++i)
        if (fabs(log(bytes / (8 * (double)copied[i]))) < fabs(log(bytes / (8 * (double)copied[nearest])))) nearest = i;
    return flops / peak + (bytes > 0 ? bytes / copy[nearest] : 0);
}

static void print_name(const char *name)
{
    printf("%-32s %d thread%s", name, now.threads, now.threads > 1 ? "s" : " ");
}

static void print_quick(const char *name, double peak, const double *copy, double sample)
{
    const int samples = sample < 0.001 ? 1 : 5;
    double least = 1e9, roof;
    if (!begin_workload(name)) return;
    for (int i = 0; i < samples; ++i) least = smaller(least, measure(sample));
    roof = least_seconds(now.flops / now.calls, now.bytes / now.calls, peak, copy);
    print_name(name);
    if (least < 1e-5) printf("%12.1f ns", 1e9 * least);
    else printf("%12.1f us", 1e6 * least);
    if (now.flops > 0) printf(" %8.1f GFLOP/s", 1e-9 * now.flops / now.calls / least);
    else if (now.bytes > 0) printf(" %8.1f GB/s   ", 1e-9 * now.bytes / now.calls / least);
    if (roof > 0) printf(" %5.0f %% of the roof", 100 * roof / least);
    putchar('\n');
}

static void quick(double sample)
{
    static double peak, copy[COPIES]; /* with two threads at least what one has reached */
    char name[64];
    if (begin_workload("fma_peak-1")) {
        turn(); /* says how much it does */
        for (int i = 0; i < 5; ++i) peak = larger(peak, now.flops / measure(sample));
    }
    print_name("multiply-adds");
    printf("%12.1f GFLOP/s, %s\n", 1e-9 * peak, roof_instructions());
    for (int i = 0; i < COPIES; ++i) {
        for (int stream = 0; stream < 2; ++stream) {
            snprintf(name, sizeof name, "copy-%lld%s", (long long)copied[i], stream ? "-stream" : "");
            for (int k = 0; k < 3 && begin_workload(name); ++k)
                copy[i] = larger(copy[i], now.bytes / now.calls / measure(sample));
        }
        snprintf(name, sizeof name, "copy of %lld bytes", 4 * (long long)copied[i]);
        print_name(name);
        printf("%12.1f GB/s\n", 1e-9 * copy[i]);
    }
    for (int i = 0; i < ROWS && tg_ok(); ++i)
        if (rows[i].quick) print_quick(rows[i].name, peak, copy, sample);
}

static void use_threads(int threads)
{
    now.threads = threads;
    tg_set_num_threads(threads);
}

int main(int argc, char **argv)
{
    const char *program = argc > 1 ? argv[1] : "quick";
    if (!strcmp(program, "worker")) {
        use_threads(argc > 2 ? atoi(argv[2]) : 1);
        work();
    } else {
        printf("%s; the best of five samples\n", tg_build_info());
        for (int threads = 1; threads <= 2; ++threads) {
            use_threads(threads);
            quick(strcmp(program, "tiny") ? 0.02 : 0.0001);
#ifndef _OPENMP
            break;
#endif
        }
    }
    end_workload();
    return tg_shutdown() != TG_OK || !tg_ok();
}
