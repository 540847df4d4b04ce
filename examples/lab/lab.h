/* lab.h: what the student's file and the grader share: the functions of the seven tasks, and what task 7 is given. */
#ifndef LAB_H
#define LAB_H
#include "../../tensorgrad.h"

/* Tasks 1 to 6 are functions for tg_custom.  forward computes out[0] from in[0], in[1], and saves what backward
   needs by tg_save(ctx, t); backward computes grad_in[0], grad_in[1] from grad_out[0] and from tg_saved(ctx, 0),
   tg_saved(ctx, 1), in the order of the tg_save.  A gradient has the shape of its input.  All return TG_OK. */
#define LAB_TASK(name)                                                                        \
    tg_status name##_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out);             \
    tg_status name##_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)

LAB_TASK(tanh);
LAB_TASK(mul);
LAB_TASK(matmul);
LAB_TASK(softmax);
LAB_TASK(cross_entropy);
LAB_TASK(layer_norm);

/* What a function that is not filled in does with its arguments. */
#define LAB_UNUSED(a, b, c) ((void)(a), (void)(b), (void)(c))

/* Task 7: `steps` steps of gradient descent on w; returns the mean of the losses. */
double descend(tg_tensor *w, int steps);

/* The loss of task 7, which the grader defines: a scalar, differentiable with respect to w. */
tg_tensor *lab_loss(tg_tensor *w);

#endif
