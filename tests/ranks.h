/* What the tests of several ranks share, whose engines differ (test_parallel.c, cuda/test_nccl.c): what a rank hands to the test,
 * and the network that it trains.  To be included behind struct rank, which has number [NUMBERS], numbers, code and message, and
 * the array ranks. */

static void store(rank *r, double x)
{
    if (r->numbers < NUMBERS) r->number[r->numbers++] = x;
}

static void store_tensor(rank *r, tg_tensor *t)
{
    float value[NUMBERS];
    int64_t i;
    if (tg_copy_out(tg_to_dtype(tg_detach(t), TG_F32), value, sizeof *value * (size_t)tg_numel(t)) != TG_OK) return;
    for (i = 0; i < tg_numel(t); ++i) store(r, value[i]);
}

/* The error of this thread becomes that of the rank. */
static void store_error(rank *r)
{
    r->code = tg_error_code();
    snprintf(r->message, sizeof r->message, "%s", tg_error_message());
    tg_clear_error();
}

/* Whether no rank had an error. */
static bool all_ok(int size)
{
    int i;
    bool ok = true;
    for (i = 0; i < size; ++i) {
        if (ranks[i].code) printf("    rank %d: %s\n", i, ranks[i].message);
        ok = ok && ranks[i].code == TG_OK;
    }
    return ok;
}

enum { ROWS = 8, INPUTS = 3, HIDDEN = 5, PARAMETERS = HIDDEN * INPUTS + HIDDEN + 2 * HIDDEN + 2 };

static tg_module *small_net(void)
{
    tg_module *m = tg_nn_sequential(NULL, 0);
    tg_module_child(m, "0", tg_nn_linear(INPUTS, HIDDEN, true));
    tg_module_child(m, "1", tg_nn_tanh());
    tg_module_child(m, "2", tg_nn_linear(HIDDEN, 2, true));
    return m;
}

/* The model that rank 0 begins with. */
static void first_values(tg_module *m)
{
    const tg_rng before = tg_rng_state();
    int i;
    tg_seed(7);
    for (i = 0; i < tg_module_count(m); ++i) tg_uniform_(tg_module_params(m)[i], -0.5, 0.5);
    tg_rng_set_state(before);
}

/* The loss of rows [first, first + n) of batch number `step`, on the device. */
static tg_tensor *loss_of(tg_module *m, tg_device device, int step, int first, int n)
{
    const tg_rng before = tg_rng_state();
    tg_tensor *x, *y;
    tg_seed((uint64_t)(1000 + step));
    x = tg_to(tg_rand_on(TG_SHAPE(ROWS, INPUTS), TG_F32, TG_CPU), device);
    y = tg_sum_dim(tg_mul(x, x), 1, true);
    tg_rng_set_state(before);
    x = tg_narrow(x, 0, first, n);
    y = tg_expand(tg_narrow(y, 0, first, n), TG_SHAPE(n, 2));
    return tg_mse_loss(tg_forward(m, x), y, TG_MEAN);
}
