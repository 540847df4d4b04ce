/* Graphs a million nodes deep and a hundred thousand wide, in a stack of 256 KB: nothing in the library recurses over a
 * graph, forward, backward, freeing or printing.  The program gives itself that stack and starts itself again; where it
 * cannot, it runs in the stack that it has and says so.  `ulimit -s 256; test_deep` is the same from outside. */
#if !defined(__cplusplus) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include "tensorgrad.h"
#include "helpers.h"
#if defined(__unix__) || defined(__APPLE__)
#include <sys/resource.h>
#include <unistd.h>
#define CAN_LIMIT_STACK 1
#else
#define CAN_LIMIT_STACK 0
#endif

/* A memory checker keeps freed memory, so under one the graphs have a tenth of the size. */
enum { DEEP = HARNESS_MEMORY_CHECKER ? 100000 : 1000000, WIDE = 100000 };

TEST(chain_forward_backward_and_freed)
{
    tg_tensor *x = scalar_leaf(1), *y = x;
    int64_t nodes = tg_stats().nodes;
    int i;
    for (i = 0; i < DEEP; ++i) y = i % 2 ? tg_add_scalar(y, 1e-6) : tg_mul_scalar(y, 1);
    CHECK(tg_stats().nodes == nodes + DEEP);
    CHECK(tg_backward(y) == TG_OK);
    CHECK_NEAR(tg_item(tg_grad(x)), 1, 0);
}

/* Only the last handle holds the chain: its release frees all of it. */
TEST(chain_behind_one_handle)
{
    tg_stats_info before = tg_stats();
    tg_tensor *x = scalar_leaf(0.5), *y = tg_retain(x), *z;
    int i;
    for (i = 0; i < DEEP; ++i) {
        TG_SCOPE;
        z = tg_retain(i % 2 ? tg_mul_scalar(y, 1) : tg_sin(y));
        tg_release(y);
        y = z;
    }
    CHECK(tg_stats().nodes == before.nodes + DEEP && tg_stats().saved == before.saved + DEEP / 2);
    tg_release(y);
    CHECK(tg_stats().nodes == before.nodes && tg_stats().saved == before.saved);
    CHECK(tg_stats().tensors == before.tensors + 1);
}

TEST(chain_behind_one_handle_differentiated)
{
    tg_tensor *x = scalar_leaf(1), *y = tg_retain(x), *z, *g = NULL;
    int i;
    for (i = 0; i < DEEP; ++i) {
        TG_SCOPE;
        z = tg_retain(tg_mul_scalar(y, i % 2 ? 2 : 0.5));
        tg_release(y);
        y = z;
    }
    CHECK(tg_gradients(&y, 1, NULL, &x, 1, &g, 0) == TG_OK);
    CHECK_NEAR(tg_item(g), 1, 0);
    CHECK(tg_backward(y) == TG_OK);
    CHECK_NEAR(tg_item(tg_grad(x)), 1, 0);
    tg_release(y);
}

/* The gradient's own graph is as deep, and so is the second backward. */
TEST(chain_differentiated_twice)
{
    tg_tensor *x = scalar_leaf(1), *y = x, *g = NULL;
    int i;
    for (i = 0; i < DEEP / 10; ++i) y = i % 2 ? tg_sqrt(y) : tg_mul(y, y);
    CHECK(tg_gradients(&y, 1, NULL, &x, 1, &g, TG_CREATE_GRAPH) == TG_OK);
    CHECK_NEAR(tg_item(g), 1, 1e-9);
    CHECK(tg_backward(g) == TG_OK);
    CHECK_NEAR(tg_item(tg_grad(x)), 0, 1e-3);
}

TEST(chain_written_in_place)
{
    tg_tensor *x = tg_set_requires_grad(tg_ones(TG_SHAPE(2)), true), *y = tg_mul_scalar(x, 1),
              *view = tg_select(y, 0, 0);
    int i;
    for (i = 0; i < DEEP / 10; ++i) {
        tg_add_scalar_(y, 1);
        tg_mul_scalar_(view, 1);
    }
    CHECK(tg_backward(tg_sum(y)) == TG_OK);
    CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(0)), 1, 0);
}

TEST(chain_of_views)
{
    tg_tensor *x = tg_set_requires_grad(tg_ones(TG_SHAPE(2, 3)), true), *y = tg_mul_scalar(x, 2);
    int i;
    for (i = 0; i < DEEP / 10; ++i) y = tg_t(y);
    CHECK(tg_backward(tg_sum(y)) == TG_OK);
    CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(1, 2)), 2, 0);
}

static tg_tensor *half_sine(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    return tg_mul_scalar(tg_sin(in[0]), 0.5);
}

TEST(chain_of_checkpoints)
{
    tg_tensor *x = scalar_leaf(0), *y = x;
    int i;
    for (i = 0; i < DEEP / 100; ++i) y = tg_mul_scalar(tg_checkpoint(half_sine, &y, 1, NULL), 2);
    CHECK(tg_backward(y) == TG_OK);
    CHECK_NEAR(tg_item(tg_grad(x)), 1, 0);
}

/* x.grad has a .grad, which has a .grad, ... */
TEST(chain_of_gradients)
{
    tg_stats_info before = tg_stats();
    {
        TG_SCOPE;
        tg_tensor *first = scalar_leaf(0), *t = first;
        int i;
        for (i = 0; i < DEEP; ++i) {
            tg_tensor *g = scalar_leaf(i);
            if (tg_set_grad(t, g) != TG_OK) break;
            tg_drop(g); /* t holds it now */
            t = g;
        }
        CHECK(i == DEEP && tg_stats().tensors == before.tensors + DEEP + 1);
    }
    CHECK(!alive_changed(&before));
}

TEST(fan_out_and_in)
{
    tg_tensor *x = scalar_leaf(1), **list = (tg_tensor **)malloc(WIDE * sizeof *list), *y;
    int i;
    CHECK(list != NULL);
    if (!list) return;
    for (i = 0; i < WIDE; ++i) list[i] = tg_mul_scalar(x, 2);
    y = tg_stack(list, WIDE, 0);
    CHECK(y != NULL && tg_numel(y) == WIDE && tg_backward(tg_sum(y)) == TG_OK);
    CHECK_NEAR(tg_item(tg_grad(x)), 2.0 * (double)WIDE, 0);
    for (i = 0; i < WIDE; ++i) list[i] = scalar_leaf(i); /* the same number of leaves */
    y = tg_stack(list, WIDE, 0);
    CHECK(y != NULL && tg_backward(tg_sum(tg_mul(y, y))) == TG_OK);
    CHECK_NEAR(tg_item(tg_grad(list[WIDE - 1])), 2.0 * (WIDE - 1), 0);
    CHECK(tg_backward_ex(list, WIDE, NULL, 0) == TG_OK); /* the same number of roots */
    CHECK_NEAR(tg_item(tg_grad(list[1])), 3, 0);
    free(list);
}

static tg_status keep_all_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    int i;
    for (i = 0; i < WIDE; ++i) {
        if (tg_save(ctx, in[i]) != TG_OK) return tg_error_code();
    }
    return (out[0] = tg_clone(in[WIDE - 1])) ? TG_OK : tg_error_code();
}
static tg_status keep_all_backward(tg_ctx *ctx, tg_tensor *const *g, tg_tensor **grad_in)
{
    grad_in[WIDE - 1] = tg_mul(g[0], tg_saved(ctx, WIDE - 1));
    return grad_in[WIDE - 1] ? TG_OK : tg_error_code();
}

TEST(custom_function_of_many)
{
    tg_tensor **list = (tg_tensor **)malloc(WIDE * sizeof *list), *y = NULL;
    int i;
    CHECK(list != NULL);
    if (!list) return;
    for (i = 0; i < WIDE; ++i) list[i] = scalar_leaf(3);
    CHECK(tg_custom("many", keep_all_forward, keep_all_backward, NULL, list, WIDE, &y, 1) == TG_OK);
    CHECK(tg_backward(y) == TG_OK && tg_grad(list[0]) == NULL);
    CHECK_NEAR(tg_item(tg_grad(list[WIDE - 1])), 3, 0);
    free(list);
}

TEST(sums_waiting_at_one_node)
{
    tg_tensor *x = scalar_leaf(1), *trunk = tg_mul_scalar(x, 1), *sum = trunk;
    int i;
    for (i = 0; i < WIDE; ++i) sum = tg_add(sum, trunk); /* every sum gives to the trunk and to the sum before */
    CHECK(tg_backward(sum) == TG_OK);
    CHECK_NEAR(tg_item(tg_grad(x)), WIDE + 1, 0);
}

TEST(scopes_a_hundred_thousand_deep)
{
    tg_stats_info before = tg_stats();
    tg_mark outer = tg_scope_begin();
    int i;
    for (i = 0; i < WIDE; ++i) {
        tg_scope_begin();
        tg_set_grad_enabled(i % 2 != 0);
        (void)tg_scalar(i);
    }
    CHECK(tg_stats().tensors == before.tensors + WIDE);
    tg_scope_end(outer);
    CHECK(!alive_changed(&before) && tg_is_grad_enabled());
}

TEST(printed_tape_of_a_long_chain)
{
    tg_tensor *x = scalar_leaf(1), *y = x;
    FILE *file = tmpfile();
    int i;
    for (i = 0; i < DEEP / 50; ++i) y = tg_mul_scalar(y, 1);
    if (!file) return;
    CHECK(tg_tape_print(file, y) == TG_OK && tg_tape_dot(file, y) == TG_OK && ftell(file) > DEEP / 50);
    fclose(file);
}

/* Starts the program again in a stack of this size. */
static void limit_stack(char **argv)
{
#if CAN_LIMIT_STACK
    struct rlimit limit;
    const rlim_t small = 256 * 1024;
    if (getrlimit(RLIMIT_STACK, &limit) != 0) return;
    if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur <= small) {
        printf("stack: %d KB\n", (int)(limit.rlim_cur / 1024));
        return;
    }
    limit.rlim_cur = small;
    if (!getenv("TEST_DEEP_STARTED") && setenv("TEST_DEEP_STARTED", "1", 1) == 0 &&
        setrlimit(RLIMIT_STACK, &limit) == 0) {
        execv("/proc/self/exe", argv);
        execv(argv[0], argv);
    }
#else
    (void)argv;
#endif
    printf("stack: as it is, it could not be made smaller\n");
}

int main(int argc, char **argv)
{
    limit_stack(argv);
    harness_begin(argc, argv);
    RUN(chain_forward_backward_and_freed);
    RUN(chain_behind_one_handle);
    RUN(chain_behind_one_handle_differentiated);
    RUN(chain_differentiated_twice);
    RUN(chain_written_in_place);
    RUN(chain_of_views);
    RUN(chain_of_checkpoints);
    RUN(chain_of_gradients);
    RUN(fan_out_and_in);
    RUN(custom_function_of_many);
    RUN(sums_waiting_at_one_node);
    RUN(scopes_a_hundred_thousand_deep);
    RUN(printed_tape_of_a_long_chain);
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
