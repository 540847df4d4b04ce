/* endless.c: a loop that does not end.  What it gets:

   not ok 7 - descend: 0 of 15 points, stopped after 2 seconds: does a loop not end? */
#include "../lab.h"

#define descend right_descend
#include "../answers.c"
#undef descend

double descend(tg_tensor *w, int steps)
{
    volatile int step = 0;
    while (step < steps) step *= 2;
    return tg_item(lab_loss(w));
}
