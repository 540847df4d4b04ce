/* Images that are not flattened, and one whose channels stand last. */
#include "tensorgrad.h"

int main(void)
{
    tg_module *layer = tg_nn_linear(784, 10, true);
    tg_tensor *y = tg_forward(layer, tg_zeros(TG_SHAPE(32, 28, 28)));
    y = tg_forward(layer, tg_zeros(TG_SHAPE(32, 1, 28, 28)));
    y = tg_forward(layer, tg_zeros(TG_SHAPE(784, 32)));
    y = tg_linear(tg_zeros(TG_SHAPE(32, 28, 28)), tg_zeros(TG_SHAPE(10, 784)), NULL);
    tg_module_free(layer);
    return y != NULL;
}
