/* Two layers are never called: tg_step tells which parameters no gradient reaches, group by group. */
#include "tensorgrad.h"

int main(void)
{
    tg_module *first = tg_nn_linear(2, 3, true), *second = tg_nn_linear(3, 3, true), *third = tg_nn_linear(3, 1, true);
    tg_optim *opt = tg_adam(tg_module_params(first), tg_module_count(first), 0.01);
    tg_optim_group *group = tg_optim_add_group(opt, tg_module_params(second), tg_module_count(second));
    if (group) group->lr_scale = 0.1;
    tg_optim_add_group(opt, tg_module_params(third), tg_module_count(third));
    for (int i = 0; i < 20; ++i) {
        TG_SCOPE;
        tg_optim_zero_grad(opt);
        tg_backward(tg_sum(tg_forward(first, tg_ones(TG_SHAPE(4, 2)))));
        tg_step(opt);
    }
    tg_optim_free(opt);
    tg_module_free(first), tg_module_free(second), tg_module_free(third);
    return 0;
}
