/* 0 times the logarithm of 0 makes the loss NaN; a root of 0 makes gradients NaN. */
#include "tensorgrad.h"

int main(void)
{
    const float data[2] = {0, 1};
    tg_tensor *w = tg_param(tg_from_f32(data, TG_SHAPE(2)));
    tg_set_name(w, "w");
    tg_tensor *loss = tg_sum(tg_mul(tg_log(w), w)); /* says nothing */
    printf("the loss is %sa number\n", tg_item(loss) == tg_item(loss) ? "" : "not ");
    tg_set_anomaly(true);
    loss = tg_sum(tg_mul(tg_log(w), w));
    tg_tensor *root = tg_sqrt(tg_sum(tg_mul_scalar(w, 0)));
    tg_set_name(root, "root");
    tg_backward(tg_mul_scalar(root, 0));
    return loss == NULL;
}
