/* The state of a recurrent network still belongs to the graph of the step before. */
#include "tensorgrad.h"

int main(void)
{
    tg_tensor *w = tg_param(tg_ones(TG_SHAPE(1))), *state = tg_ones(TG_SHAPE(1));
    for (int i = 0; i < 2; ++i) {
        state = tg_tanh(tg_mul(state, w));
        tg_backward(tg_sum(state));
    }
    return 0;
}
