/* A backward of one's own that forgets the incoming gradient, and one that loses the factor 2; gradcheck looks. */
#include "tensorgrad.h"

static int mistake;

static tg_status forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    out[0] = tg_mul(in[0], in[0]);
    return tg_save(ctx, in[0]);
}

static tg_status backward(tg_ctx *ctx, tg_tensor *const *g, tg_tensor **grad)
{
    tg_tensor *x = tg_saved(ctx, 0);
    if (mistake == 1) grad[0] = tg_mul_scalar(x, 2);  /* without g */
    if (mistake == 2) grad[0] = tg_mul(g[0], x);      /* without 2 */
    if (mistake == 3) grad[0] = tg_sum(g[0]);         /* [] where x is [2, 2] */
    return TG_OK;                                     /* 4: no gradient at all */
}

static tg_tensor *square(tg_tensor *const *in, int n, void *user)
{
    tg_tensor *y = NULL;
    (void)user;
    tg_custom("square", forward, backward, NULL, in, n, &y, 1);
    return y;
}

int main(void)
{
    const double numbers[] = {1, 2, 3, 4};
    tg_tensor *x = tg_param(tg_from_f64(numbers, TG_SHAPE(2, 2)));
    tg_gradcheck_options options = {0};
    options.report = stdout;
    for (mistake = 1; mistake <= 4; ++mistake) {
        options.name = "square";
        tg_gradcheck_ex(square, TG_LIST(x), NULL, &options);
        tg_clear_error();
    }
    return 0;
}
