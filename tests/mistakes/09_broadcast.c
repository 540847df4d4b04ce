/* The model answers [8, 1], the target is [8]: their difference is [8, 8]. */
#include "tensorgrad.h"

int main(void)
{
    tg_tensor *target = tg_linspace(0, 1, 8), *answer = tg_reshape(target, TG_SHAPE(8, 1));
    printf("loss %.4f\n", tg_item(tg_mse_loss(answer, target, TG_MEAN)));
    printf("loss %.4f\n", tg_item(tg_l1_loss(answer, target, TG_MEAN)));
    printf("loss %.4f\n", tg_item(tg_smooth_l1_loss(answer, target, TG_MEAN, 1)));
    printf("loss %.4f\n", tg_item(tg_huber_loss(answer, target, TG_MEAN, 1)));
    return 0;
}
