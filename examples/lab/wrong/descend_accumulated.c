/* descend_accumulated.c: the gradients of all steps are added up.  What it gets:

   not ok 7 - descend: 0 of 15 points, descend is wrong: w[0] is 5.17576 after 50 steps and not 2.99996 */
#include "../lab.h"

#define descend right_descend
#include "../answers.c"
#undef descend

double descend(tg_tensor *w, int steps)
{
    double sum = 0;
    for (int step = 0; step < steps; ++step) {
        TG_SCOPE;
        tg_tensor *loss = lab_loss(w);
        tg_backward(loss);
        sum += tg_item(loss);
        TG_NO_GRAD;
        tg_sub_(w, tg_mul_scalar(tg_grad(w), 0.1));
    }
    return sum / steps;
}
