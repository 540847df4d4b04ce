/* Labels that are floats, and one that is no class. */
#include "tensorgrad.h"

int main(void)
{
    const int64_t classes[4] = {0, 1, 2, 3}, pixel[4] = {0, 1, -2, 1};
    tg_tensor *logits = tg_zeros(TG_SHAPE(4, 3)), *loss = tg_cross_entropy(logits, tg_zeros(TG_SHAPE(4)));
    loss = tg_cross_entropy(logits, tg_from_i64(classes, TG_SHAPE(4)));
    loss = tg_nll_loss(tg_log_softmax(logits, 1), tg_from_i64(classes, TG_SHAPE(4)), NULL, -100, TG_MEAN);
    loss = tg_cross_entropy(tg_zeros(TG_SHAPE(1, 3, 2, 2)), tg_from_i64(pixel, TG_SHAPE(1, 2, 2)));
    return loss != NULL;
}
