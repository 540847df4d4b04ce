/* A checkpoint is given to tg_module_load, the file of a module to tg_checkpoint_load. */
#include "tensorgrad.h"

int main(void)
{
    tg_module *net = tg_nn_linear(3, 2, true);
    tg_optim *opt = tg_adam(tg_module_params(net), tg_module_count(net), 0.01);
    tg_checkpoint_save("mistake.ckpt", net, opt, 7);
    tg_module_load(net, "mistake.ckpt");
    tg_clear_error();
    tg_module_save(net, "mistake.safetensors");
    tg_checkpoint_load("mistake.safetensors", net, opt, NULL);
    remove("mistake.ckpt");
    remove("mistake.safetensors");
    tg_optim_free(opt);
    tg_module_free(net);
    return 0;
}
