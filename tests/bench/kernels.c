/* A step of GPT-2 124M on a GPU, with the time of each launch (timing.h): what gpu.sh puts beside predicted.txt.
 *
 *     kernels          with some 20 GB of the GPU's memory
 *     kernels tiny     in a size for the simulator, where the times mean nothing
 *     kernels least    in the least size, for the simulator that times products, each a hundred times (TG_CUDA_PLANS) */
#include "tensorgrad.h"
#include "../cuda/models.h"
#include "timing.h"
#include <stdio.h>
#include <string.h>

enum { STEPS_BEFORE = 3 }; /* plans of products and blocks of memory are made in these */

int main(int argc, char **argv)
{
    const gpt_sizes whole = {16, 1024, 12, 768, 12, 50304}, tiny = {2, 64, 2, 768, 12, 256}, least = {1, 16, 1, 64, 4, 64};
    const char *const size = argc > 1 ? argv[1] : "";
    gpt g;
    int timed = 0;
    g.size = !strcmp(size, "tiny") ? tiny : !strcmp(size, "least") ? least : whole;
    tg_set_default_device(TG_CUDA(tg_cuda_current_device()));
    make_gpt(&g, TG_BF16);
    tg_optim *optim = tg_adamw(tg_module_params(g.net), tg_module_count(g.net), 1e-3);
    for (int step = 0; step <= STEPS_BEFORE && tg_ok(); ++step) {
        TG_SCOPE;
        tg_tensor *ids = counted(TG_SHAPE(g.size.batch, g.size.length), step, g.size.vocabulary);
        tg_tensor *targets = counted(TG_SHAPE(g.size.batch * g.size.length), step + 1, g.size.vocabulary);
        tg_synchronize(TG_CUDA(-1));
        if (step == STEPS_BEFORE) timing_begin();
        tg_optim_zero_grad(optim);
        tg_backward(gpt_loss(&g, ids, targets));
        tg_step(optim);
        if (step == STEPS_BEFORE) timed = timing_end(stdout);
    }
    tg_optim_free(optim);
    tg_module_free(g.net);
    tg_release(g.position);
    if (!tg_ok()) fprintf(stderr, "%s\n", tg_error_message());
    else if (!timed) fprintf(stderr, "an event of CUDA failed\n");
    return !timed || tg_shutdown() != TG_OK;
}
