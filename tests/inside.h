/* What some tests see of the inside of the library: functions of tests/library.c, which contains it.  So the library is
   compiled once for all tests. */
#ifndef INSIDE_H
#define INSIDE_H
#ifndef TENSORGRAD_H
#include "tensorgrad.h"
#endif
#ifdef __cplusplus
extern "C" {
#endif

void inside_count_aborts(int *count);   /* tg_abort_on_error adds to it instead of ending the program; NULL: it ends it */
void inside_print_first_errors(void);   /* the handler of a program that has set none */
void inside_compose(bool on);           /* fused ops of this thread are composed of others */
/* What this thread makes on the CPU is from now on of the plain backend; with false again of the one that is usual. */
void inside_plain(bool on);
/* How this thread computes products of bf16: in f32, by the instruction for pairs of bf16, by tiles; -1: as is usual.
   Whether the processor can, which is not known where act III is in another object; if not, they are computed in f32. */
enum { INSIDE_BF16_IN_F32, INSIDE_BF16_PAIRS, INSIDE_BF16_TILES, INSIDE_BF16_WAYS };
bool inside_bf16_way(int way);
/* Name of the i-th op of the table, whether it has a rule, and its formula; NULL after the last. */
const char *inside_op(int i, bool *has_rule, const char **formula);
/* What the row of the op says of each of its calls, as a sum of these: input 0 is floating point; there is a dim of input
   0; there is a list of its dims; under TG_AUTOCAST the inputs become the block's dtype, f32, or the widest. */
enum { INSIDE_FLOAT_INPUT = 1, INSIDE_DIM = 2, INSIDE_DIMS = 4, INSIDE_LOW = 8, INSIDE_F32 = 16, INSIDE_WIDEST = 32 };
int inside_op_flags(int i);
/* The elementwise row of an op: how many inputs it has, 0 if the op has no such row, and a sum of these: it gives bool;
   it computes integers alone; its last input is a mask; there is a kernel for its gradient.  inside_map calls it. */
enum { INSIDE_TEST = 1, INSIDE_WHOLE = 2, INSIDE_MASK = 4, INSIDE_GRADIENT = 8 };
int inside_inputs(int op, int *kind);
tg_tensor *inside_map(int op, tg_tensor *const *x, double s, double t);
const char *inside_size_text(double bytes);
int inside_size_class(size_t bytes, size_t *rounded); /* -1: too large for the cache */
size_t inside_largest_class(int *number);             /* bytes of a block of the largest class */
bool inside_wait(const tg_tensor *t);                 /* until t has arrived on its device, and for nothing else */
const tg_tensor *inside_loader_ahead(const tg_loader *loader); /* of the batch that is fetched ahead */
/* The i-th member of m: its name, and *child or *t; NULL after the last. */
const char *inside_member(tg_module *m, int i, tg_module **child, tg_tensor **t);
int64_t inside_optim_steps(const tg_optim *o, int parameter); /* that this parameter has made */
/* A checkpoint of o, one tensor at a time. */
bool inside_optim_save(tg_optim *o, bool (*put)(void *user, const char *name, tg_tensor *t));
bool inside_optim_load(tg_optim *o, tg_tensor *(*get)(void *user, const char *name));
/* The op that computes the gradient of a weight [dims] from x and that of the output, in one dim. */
tg_tensor *inside_conv_weight(tg_tensor *x, tg_tensor *g, int64_t groups, int64_t stride, int64_t padding, tg_shape dims);
tg_tensor *inside_lstm_step(tg_tensor *from_x, tg_tensor *from_h, tg_tensor **c);

#ifdef __cplusplus
}
#endif
#endif
