/* Which ops take which dtypes, and how far they are differentiated: a table of the rows of samples.h, as Markdown.

       support > tests/SUPPORT.md

   Each op is called with its samples, their numbers cast to each dtype: the table says how far the best of them came.
   TG_TEST_DEVICE says where, as for the tests. */
#include "tensorgrad.h"
#include "../harness.h"
#include "../samples.h"

static const tg_dtype dtypes[] = {TG_F32, TG_F64, TG_BF16, TG_F16, TG_I64, TG_I32, TG_I16, TG_I8, TG_U8, TG_BOOL};
enum { DTYPES = (int)(sizeof dtypes / sizeof dtypes[0]), FORWARD = 1, BACKWARD, DOUBLE_BACKWARD };
static int level[OP_ROWS][DTYPES];

/* The gradients of y for the inputs that are differentiable; false where there are none. */
static bool gradients(tg_tensor *y, tg_tensor *const *in_, int n, tg_tensor **grads_, int flags)
{
    return y && tg_requires_grad(y) &&
           tg_gradients(&y, 1, NULL, in_, n, grads_, flags | TG_ALLOW_UNUSED | TG_MATERIALIZE_GRADS) == TG_OK;
}

/* How far the sample comes with its numbers in this dtype: 0 is an error. */
static int level_of(tg_dtype dtype)
{
    tg_tensor *in_[MAX_INPUTS], *leaves[MAX_INPUTS], *grads_[MAX_INPUTS], *again[MAX_INPUTS], *y;
    int n = 0, k;
    for (k = 0; k < at.n; ++k) {
        in_[k] = at.in[k];
        if (!at.differentiable[k]) continue;
        in_[k] = tg_detach(tg_to_ex(at.in[k], HERE, dtype, TG_COPY));
        if (tg_is_floating_point(dtype)) leaves[n++] = tg_set_requires_grad(in_[k], true);
    }
    y = at.row->call(in_, at.n, &at.p);
    if (!y) return 0;
    if (n == 0 || (at.row->flags & TESTS)) return FORWARD;
    if (!gradients(tg_sum(y), leaves, n, grads_, TG_CREATE_GRAPH)) return FORWARD;
    y = tg_sum(grads_[0]);
    for (k = 1; k < n; ++k) y = tg_add(y, tg_sum(grads_[k]));
    /* a gradient that is a constant has the gradient 0 */
    return !y ? FORWARD : !tg_requires_grad(y) || gradients(y, leaves, n, again, 0) ? DOUBLE_BACKWARD : BACKWARD;
}

static void drive_sample(void)
{
    const int row = (int)(at.row - op_rows);
    int k;
    for (k = 0; k < DTYPES; ++k) {
        int now;
        if (level[row][k] == DOUBLE_BACKWARD) continue;
        now = level_of(dtypes[k]);
        if (tg_synchronize(HERE) != TG_OK) now = 0;
        tg_clear_error();
        if (now > level[row][k]) level[row][k] = now;
    }
}

static void drive_edge(void) {}

int main(int argc, char **argv)
{
    static const char *const marks[] = {"", "f", "b", "bb"};
    int i, k;
    (void)argc;
    harness_begin(1, argv);
    harness_take_device();
    tg_set_error_handler(NULL, NULL);
    run_samples();
    printf("# What each op takes\n\n"
           "`make support` writes this from the samples of the tests: f forward alone, b with backward, bb with backward of\n"
           "backward too; nothing: an error. CI compares it with what the CPU does and, on a simulated device, CUDA: each letter\n"
           "stands for both. The names are those of samples.h, most of them functions without `tg_`.\n\n"
           "| op |");
    for (k = 0; k < DTYPES; ++k) printf(" %s |", tg_dtype_name(dtypes[k]));
    printf("\n|---|");
    for (k = 0; k < DTYPES; ++k) printf("---|");
    for (i = 0; i < OP_ROWS; ++i) {
        printf("\n| %s |", op_rows[i].name);
        for (k = 0; k < DTYPES; ++k) printf(" %s |", marks[level[i][k]]);
    }
    printf("\n");
    return tg_shutdown() != TG_OK;
}
