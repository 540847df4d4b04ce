/* The workload that is measured, and what ops.c, networks.c, programs.c and generation.c share with workloads.c. */
#ifndef WORKLOADS_H
#define WORKLOADS_H

#include "tensorgrad.h"
#include <stdbool.h>
#include <stdint.h>

enum { MOST_SIZES = 8, MOST_INPUTS = 3 };

/* What a call does with the tensor of the forward function: nothing; runs backward through a graph that is kept;
   computes both; or trains, where the tensor is a loss. */
typedef enum { FORWARD, BACKWARD, BOTH, TRAIN } mode;

/* A kind of workload: its name; what makes the tensors; what computes, once; and the op that forward calls, where kinds
   differ in nothing else. */
typedef struct {
    const char *name;
    void (*setup)(void);
    tg_tensor *(*forward)(void);
    tg_tensor *(*unary)(tg_tensor *x);
    tg_tensor *(*binary)(tg_tensor *a, tg_tensor *b);
} kind;

/* A kind without a name ends each. */
extern const kind op_kinds[], network_kinds[], program_kinds[], generation_kinds[];

/* The workload that is set up, one at a time. */
typedef struct {
    char name[128], options[64]; /* the whole name, and its last part */
    const kind *kind;
    int64_t size[MOST_SIZES];
    int sizes, threads;
    mode mode;
    double (*train)(void);      /* one step of TRAIN; returns the loss, or the last token of a text */
    bool grad;                  /* the inputs require grad */
    double flops, bytes, calls; /* of one turn of the loop; a turn that repeats a small op counts as several calls */
    double seconds;             /* per turn, as far as known */
    int64_t allocations;        /* of memory, of the last text after its second token */
    tg_tensor *input[MOST_INPUTS], *index; /* of an op; they belong to the workload, as all below */
    int inputs;
    tg_tensor *output, *gradient; /* of a graph that is kept */
} workload;

extern workload now;

bool option(const char *text);          /* whether the options of the name contain a text */
void cost(double flops, double floats); /* says what a call costs at least, forward; the mode makes more of it */
tg_tensor *input(tg_shape shape);       /* a new input of the op; it requires grad where the call needs that */

/* Numbers that every library computes with: the same for an index and a seed in every language. */
tg_tensor *fill(tg_tensor *t, uint32_t seed, float scale);         /* t, in [-scale, scale) */
tg_tensor *numbers(tg_shape shape, uint32_t seed);                 /* f32 in [-1, 1), retained */
tg_tensor *labels(tg_shape shape, uint32_t seed, int64_t classes); /* i64 in [0, classes), retained */

/* The parameters get the same numbers as in the other libraries: matrices and more dims are uniform within
   1 / sqrt(inputs), weights of norms are 1 and biases 0. */
void first_weights(tg_module *net);

void end_network(void);    /* frees what networks.c keeps beside the workload */
void end_program(void);    /* the same of programs.c */
void end_op(void);         /* the same of ops.c */
void end_generation(void); /* the same of generation.c */

#endif
