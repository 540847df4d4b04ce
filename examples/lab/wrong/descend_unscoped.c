/* descend_unscoped.c: no TG_SCOPE in the loop.  What it gets:

   not ok 7 - descend: 0 of 15 points, descend makes 4 tensors in each step that outlive it: a TG_SCOPE in the loop */
#include "../lab.h"

#define descend right_descend
#include "../answers.c"
#undef descend

double descend(tg_tensor *w, int steps)
{
    double sum = 0;
    for (int step = 0; step < steps; ++step) {
        tg_zero_grad(&w, 1);
        tg_tensor *loss = lab_loss(w);
        tg_backward(loss);
        sum += tg_item(loss);
        TG_NO_GRAD;
        tg_sub_(w, tg_mul_scalar(tg_grad(w), 0.1));
    }
    return sum / steps;
}
