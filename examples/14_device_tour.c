/* 14_device_tour.c: what a move to a device is and is not, on whatever devices this machine has.

   READ    every section begins with a belief about .to(device) that tutorials spread, and shows what happens.
   CHANGE  STEPS, BATCH and WIDTH; take TG_NO_GRAD out of move_layer in layer.h and read the error
   PRINTS  devices, gradients and losses (these two are the same everywhere), bytes moved and time spent in moves.
           Without a GPU: make sim MAIN=examples/14_device_tour.c OUT=tour; TG_SIM_DEVICES=2 ./tour */
#if !defined(_WIN32) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L /* gettimeofday */
#endif
#define TENSORGRAD_IMPLEMENTATION
#include "../tensorgrad.h"
#include "layer.h"
#include <stdio.h>
#include <sys/time.h>

enum { STEPS = 20, BATCH = 64, INPUTS = 8, WIDTH = 32 };

static tg_device first, last; /* of the GPUs; the CPU when there is none */

static const char *place(const tg_tensor *t) { return tg_device_str(tg_device_of(t)); }

/* "t.to(device) moves t."  It returns a new tensor, and t stays where it is; t itself when there is nothing to do. */
static void out_of_place(void)
{
    TG_SCOPE;
    tg_tensor *t = tg_ones(TG_SHAPE(3)), *moved = tg_to(t, first);
    printf("1. t on %s, tg_to(t) on %s: %s\n", place(t), place(moved), moved == t ? "t itself" : "a new tensor");
}

/* "A move begins a new graph", "only the CPU has gradients".  A move is one more op on the tape, and
   gradients come back through it as through any other: to the leaf, where the leaf lives. */
static void gradients(void)
{
    TG_SCOPE;
    tg_tensor *x = tg_set_requires_grad(tg_arange(1, 4, 1), true);
    tg_tensor *moved = tg_to(x, first), *squares = tg_to(tg_mul(moved, moved), last), *loss = tg_sum(squares);
    tg_set_name(x, "x");
    tg_set_name(loss, "loss");
    printf("2. x on %s, its square on %s, the loss on %s\n", place(x), place(moved), place(loss));
    tg_tape_print(stdout, loss);
    tg_backward(loss);
    printf("   on %s: gradient %g %g %g\n", place(tg_grad(x)), tg_get(tg_grad(x), TG_INDEX(0)),
           tg_get(tg_grad(x), TG_INDEX(1)), tg_get(tg_grad(x), TG_INDEX(2)));
    printf("   the moved x is %s\n", tg_is_leaf(moved) ? "x, a leaf" : "no leaf: its gradient passes on to x");
}

/* "Operands are brought together", "the result is then on the CPU".  Nothing moves by itself; the error says so. */
static void no_silent_moves(void)
{
    TG_SCOPE;
    tg_tensor *here = tg_ones(TG_SHAPE(3)), *there = tg_to(here, first);
    tg_set_error_handler(NULL, NULL);
    (void)tg_add(here, there);
    printf("3. %s\n", tg_ok() ? "one device: nothing to mix up" : tg_error_message());
    tg_clear_error();
    tg_set_error_handler(tg_abort_on_error, NULL);
}

/* "Moving a layer is shallow: weights follow when used."  All at once; what is made later is on the default device. */
static void layers(void)
{
    layer early = make_layer(2, 2), late;
    move_layer(&early, first);
    late = make_layer(2, 2);
    printf("4. moved: weight on %s, bias on %s; made later: weight on %s\n", place(early.weight), place(early.bias),
           place(late.weight));
    free_layer(early);
    free_layer(late);
}

/* ---- what moves cost --------------------------------------------------------------------------------------------- */

/* Seconds, with nothing left to do on the device. */
static double now(tg_device device)
{
    struct timeval time;
    tg_synchronize(device);
    gettimeofday(&time, NULL);
    return (double)time.tv_sec + 1e-6 * (double)time.tv_usec;
}

enum { STAY, MOVE_BATCH, PIN_BATCH, MOVE_ALL, WAYS };
static const char *const way_names[WAYS] = {"everything on the CPU", "weights there, batches moved",
                                            "the same, pinned, non-blocking", "weights moved every step"};

/* "Moves are cheap."  Trains the same network in one of four ways; returns the milliseconds of a step's moves. */
static double train(int way)
{
    TG_SCOPE;
    const tg_device device = way == STAY ? TG_CPU : first;
    tg_seed(14);
    layer hidden = make_layer(INPUTS, WIDTH), out = make_layer(WIDTH, 1);
    tg_tensor *x = tg_randn(TG_SHAPE(STEPS * BATCH, INPUTS)), *y = tg_sin(tg_narrow(x, 1, 0, 1));
    if (way == PIN_BATCH && device.type == TG_DEV_CUDA) {
        x = tg_pin_memory(x);
        y = tg_pin_memory(y);
    }
    if (way != MOVE_ALL) {
        move_layer(&hidden, device);
        move_layer(&out, device);
    }
    tg_optim *opt = tg_sgd(TG_LIST(hidden.weight, hidden.bias, out.weight, out.bias), 0.2);
    const tg_device_stats before = tg_stats_on(device);
    const int flags = way == PIN_BATCH ? TG_NON_BLOCKING : 0;
    double in_moves = 0, last_loss = 0;
    for (int step = 0; step < STEPS; ++step) {
        TG_SCOPE;
        const double begun = now(device);
        tg_tensor *bx = tg_to_ex(tg_narrow(x, 0, step * BATCH, BATCH), device, TG_F64, flags);
        tg_tensor *by = tg_to_ex(tg_narrow(y, 0, step * BATCH, BATCH), device, TG_F64, flags);
        const layer a = layer_to(hidden, device), b = layer_to(out, device); /* itself where it is there already */
        in_moves += now(device) - begun;
        tg_tensor *guess = tg_linear(tg_tanh(tg_linear(bx, a.weight, a.bias)), b.weight, b.bias);
        tg_tensor *loss = tg_mse_loss(guess, by, TG_MEAN);
        tg_optim_zero_grad(opt);
        tg_backward(loss);
        tg_step(opt);
        if (step == STEPS - 1) last_loss = tg_item(loss);
    }
    const tg_device_stats after = tg_stats_on(device);
    printf("   %-31s %6d bytes there and %5d back a step, loss %.6f\n", way_names[way],
           (int)((after.received - before.received) / STEPS), (int)((after.sent - before.sent) / STEPS), last_loss);
    tg_optim_free(opt);
    free_layer(hidden);
    free_layer(out);
    return 1e3 * in_moves / (int)STEPS;
}

int main(void)
{
    double milliseconds[WAYS];
    const int gpus = tg_cuda_device_count();
    tg_set_error_handler(tg_abort_on_error, NULL);
    tg_set_default_dtype(TG_F64);
    first = gpus ? TG_CUDA(0) : TG_CPU;
    last = gpus ? TG_CUDA(gpus - 1) : TG_CPU;
    printf("devices: cpu");
    for (int i = 0; i < gpus; ++i) printf(" %s", tg_device_str(TG_CUDA(i)));
    printf("\n");
    out_of_place();
    gradients();
    no_silent_moves();
    layers();
    printf("5. training on %s\n", tg_device_str(first));
    for (int way = 0; way < WAYS; ++way) milliseconds[way] = train(way);
    for (int way = 0; way < WAYS; ++way) {
        printf("   %-31s %6.3f ms a step in moves\n", way_names[way], milliseconds[way]);
    }
    return tg_shutdown() == TG_OK ? 0 : 1;
}
