/* descend_recorded.c: the update of w is recorded, as if it were a part of the loss.  What it gets:

   not ok 7 - descend: 0 of 15 points, descend fails
   # tg_sub_: a leaf Variable that requires grad is being used in an in-place operation. (shape [4])
   #   hint: write to it inside TG_NO_GRAD; or write to a copy */
#include "../lab.h"

#define descend right_descend
#include "../answers.c"
#undef descend

double descend(tg_tensor *w, int steps)
{
    double sum = 0;
    for (int step = 0; step < steps; ++step) {
        TG_SCOPE;
        tg_zero_grad(&w, 1);
        tg_tensor *loss = lab_loss(w);
        tg_backward(loss);
        sum += tg_item(loss);
        tg_sub_(w, tg_mul_scalar(tg_grad(w), 0.1));
    }
    return sum / steps;
}
