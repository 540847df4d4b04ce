/* Loaders: which rows come in which batch, on every device; what a batch is and who owns it; resuming; what a GPU does
 * while the next batch is fetched (the simulator counts kernels, and runs the work in streams only when it is waited
 * for). */
#if !defined(__cplusplus) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include "tensorgrad.h"
#include "helpers.h"
#include "inside.h"
#include <pthread.h>
#ifdef CUDASIM
#include "cudasim_test.h"
#endif

/* The next batch of a loader of one tensor, or NULL. */
static tg_tensor *next(tg_loader *loader)
{
    tg_tensor *batch[1] = {NULL};
    return tg_loader_next(loader, batch) ? batch[0] : NULL;
}

/* Whether the next call says that the epoch is over, which is no error. */
static bool is_over(tg_loader *loader)
{
    tg_tensor *batch[1];
    return !tg_loader_next(loader, batch) && !batch[0] && tg_ok();
}

static tg_loader *loader_of(tg_tensor *t, int64_t batch_size, int flags)
{
    return tg_loader_new(&t, 1, batch_size, flags, HERE);
}

/* All rows of an epoch of a loader of one tensor, in one tensor on the CPU. */
static tg_tensor *epoch_of(tg_loader *loader)
{
    tg_tensor *batch[16];
    int n = 0;
    while (n < 16 && (batch[n] = next(loader)) != NULL) batch[n] = tg_cpu(batch[n]), ++n;
    return tg_cat(batch, n, 0);
}

static tg_tensor *count_to(int n) { return tg_arange_on(0, n, 1, TG_I64, TG_CPU); }

TEST(rows_in_order)
{
    tg_tensor *data[2], *got[2];
    tg_loader *loader;
    int epoch;
    data[0] = count_to(5);
    data[1] = tg_cpu(f32("[[0, 10], [1, 11], [2, 12], [3, 13], [4, 14]]"));
    loader = tg_loader_new(data, 2, 2, 0, HERE);
    CHECK(tg_loader_batches(loader) == 3);
    for (epoch = 0; epoch < 2; ++epoch) {
        CHECK(tg_loader_next(loader, got));
        HAS(got[0], "[0, 1]");
        HAS(got[1], "[[0, 10], [1, 11]]");
        CHECK(tg_device_equal(tg_device_of(got[0]), HERE) && tg_dtype_of(got[0]) == TG_I64);
        CHECK(tg_loader_next(loader, got));
        HAS(got[1], "[[2, 12], [3, 13]]");
        CHECK(tg_loader_next(loader, got));
        HAS(got[0], "[4]");
        HAS(got[1], "[[4, 14]]");
        CHECK(!tg_loader_next(loader, got) && tg_ok() && !got[0] && !got[1]);
    }
    tg_loader_free(loader);
    tg_loader_free(NULL);
}

TEST(sizes_of_batches)
{
    static const struct { int rows, batch_size, flags, batches, last; } sizes[] = {
        {6, 3, 0, 2, 3},  {6, 3, TG_DROP_LAST, 2, 3}, {7, 3, 0, 3, 1},            {7, 3, TG_DROP_LAST, 2, 3},
        {2, 9, 0, 1, 2},  {2, 9, TG_DROP_LAST, 0, 0}, {0, 4, 0, 0, 0},            {0, 4, TG_SHUFFLE, 0, 0},
        {1, 1, 0, 1, 1},  {7, 3, TG_SHUFFLE, 3, 1},   {7, 3, TG_SHUFFLE | TG_DROP_LAST, 2, 3}};
    size_t k;
    for (k = 0; k < sizeof sizes / sizeof sizes[0]; ++k) {
        tg_loader *loader = loader_of(count_to(sizes[k].rows), sizes[k].batch_size, sizes[k].flags);
        int i, epoch;
        CHECK(tg_loader_batches(loader) == sizes[k].batches);
        for (epoch = 0; epoch < 2; ++epoch) {
            for (i = 1; i <= sizes[k].batches; ++i)
                CHECK(tg_dim(next(loader), 0) == (i < sizes[k].batches ? sizes[k].batch_size : sizes[k].last));
            CHECK(is_over(loader));
        }
        tg_loader_free(loader);
    }
    { /* the largest number there is */
        tg_loader *loader = loader_of(count_to(3), INT64_MAX, 0);
        CHECK(tg_loader_batches(loader) == 1 && tg_numel(next(loader)) == 3 && is_over(loader));
        tg_loader_free(loader);
    }
}

/* ---- the order ---- */

TEST(every_row_once_in_another_order)
{
    tg_tensor *data[2], *got[2], *first, *second, *order;
    tg_loader *loader;
    double sum = 0;
    int n = 0;
    data[0] = count_to(50), data[1] = tg_mul_scalar(tg_cpu(tg_reshape(count_to(50), TG_SHAPE(50, 1))), 2);
    loader = tg_loader_new(data, 2, 8, TG_SHUFFLE, HERE);
    while (tg_loader_next(loader, got)) {
        tg_tensor *twice = tg_mul_scalar(got[0], 2);
        CHECK(tg_equal(tg_reshape(twice, TG_SHAPE(-1, 1)), got[1])); /* the rows stay together */
        n += (int)tg_numel(got[0]), sum += tg_item(tg_sum(got[0]));
    }
    CHECK(tg_ok() && n == 50 && sum == 50 * 49 / 2);
    tg_loader_free(loader);
    loader = loader_of(data[0], 8, TG_SHUFFLE);
    first = epoch_of(loader), second = epoch_of(loader);
    CHECK(tg_sort(first, 0, false, &order) && tg_equal(tg_index_select(first, 0, order), data[0]));
    CHECK(tg_sort(second, 0, false, &order) && tg_equal(tg_index_select(second, 0, order), data[0]));
    CHECK(!tg_equal(first, data[0]) && !tg_equal(first, second));
    tg_loader_free(loader);
}

/* The seed is drawn by tg_loader_new; what is drawn later changes nothing. */
TEST(the_seed_says_the_order)
{
    tg_tensor *t = count_to(9), *first, *second;
    tg_loader *loader, *other;
    tg_rng before, after;
    tg_seed(4);
    before = tg_rng_state();
    loader = loader_of(t, 4, TG_SHUFFLE);
    after = tg_rng_state();
    other = loader_of(t, 4, TG_SHUFFLE);
    CHECK(after.seed == before.seed && after.offset == before.offset + 1);
    first = epoch_of(loader);
    CHECK(tg_rng_state().offset == after.offset + 1);
    HAS(tg_to(first, HERE), "[3, 8, 0, 2, 6, 7, 5, 4, 1]"); /* the same in every version, on every device */
    (void)tg_randn(TG_SHAPE(7));
    second = epoch_of(loader);
    CHECK(!tg_equal(epoch_of(other), first));
    tg_loader_free(loader), tg_loader_free(other);
    tg_seed(4);
    loader = loader_of(t, 2, TG_SHUFFLE); /* the order does not depend on the size of the batches */
    CHECK(tg_equal(epoch_of(loader), first) && tg_equal(epoch_of(loader), second));
    tg_loader_free(loader);
    before = tg_rng_state();
    tg_loader_free(loader_of(t, 4, 0)); /* nothing is drawn without TG_SHUFFLE, */
    CHECK_FAILS(loader_of(t, 0, TG_SHUFFLE), "batch_size"); /* nor by a call that fails */
    CHECK(tg_rng_state().offset == before.offset);
}

TEST(the_same_order_on_every_device)
{
    tg_tensor *t = count_to(30), *there = tg_to(t, HERE);
    tg_loader *loader[4];
    int i;
    for (i = 0; i < 4; ++i) { /* the data on the CPU or not, the batches on the CPU or not */
        tg_tensor *data = i & 1 ? there : t;
        tg_seed(11);
        loader[i] = tg_loader_new(&data, 1, 7, TG_SHUFFLE, i & 2 ? HERE : TG_CPU);
    }
    for (i = 0; i < 10; ++i) {
        tg_tensor *batch[4];
        int k;
        for (k = 0; k < 4; ++k) batch[k] = next(loader[k]);
        for (k = 0; k < 4 && batch[0]; ++k) {
            CHECK(tg_device_equal(tg_device_of(batch[k]), k & 2 ? HERE : TG_CPU));
            CHECK(tg_equal(tg_cpu(batch[k]), batch[0]));
        }
        CHECK((batch[0] == NULL) == (i == 5));
    }
    for (i = 0; i < 4; ++i) tg_loader_free(loader[i]);
}

/* ---- what a batch is ---- */

TEST(dtypes)
{
    int dtype, flags;
    for (dtype = TG_F32; dtype <= TG_BOOL; ++dtype) {
        for (flags = 0; flags <= TG_SHUFFLE; flags += TG_SHUFFLE) {
            tg_tensor *data[2], *got[2], *wanted;
            tg_loader *loader;
            data[0] = tg_to_dtype(tg_cpu(f64("[[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 0, 1]]")), (tg_dtype)dtype);
            data[1] = count_to(4);
            loader = tg_loader_new(data, 2, 3, flags, HERE);
            while (tg_loader_next(loader, got)) {
                wanted = tg_index_select(tg_to(data[0], HERE), 0, got[1]);
                CHECK(tg_dtype_of(got[0]) == (tg_dtype)dtype && tg_equal(got[0], wanted));
            }
            CHECK(tg_ok());
            tg_loader_free(loader);
        }
    }
}

TEST(layouts)
{
    tg_tensor *t = tg_reshape(tg_arange_on(0, 60, 1, TG_F32, TG_CPU), TG_SHAPE(5, 4, 3));
    tg_tensor *data[7], *got[7];
    tg_loader *loader;
    int flags, on_device, k;
    for (on_device = 0; on_device < 2; ++on_device) {
        tg_tensor *x = on_device ? tg_to(t, HERE) : t;
        data[0] = tg_transpose(tg_transpose(x, 0, 2), 0, 2);
        data[1] = tg_permute(x, TG_DIMS(0, 2, 1));
        data[2] = tg_slice(tg_transpose(tg_narrow(x, 0, 0, 4), 0, 1), 1, 0, 4, 1);
        data[2] = tg_cat(TG_LIST(data[2], tg_narrow(data[2], 0, 0, 1)), 0);
        data[3] = tg_expand(tg_select(tg_select(x, 1, 0), 0, 1), TG_SHAPE(5, 3));
        data[4] = tg_flip(x, TG_DIMS(0, 1));
        data[5] = tg_select(tg_transpose(x, 0, 1), 0, 2); /* its first element is not that of the storage */
        data[6] = tg_slice(tg_narrow(x, 1, 0, 0), 2, 0, 3, 2); /* no elements */
        for (flags = 0; flags <= TG_SHUFFLE; flags += TG_SHUFFLE) {
            tg_seed(2);
            loader = tg_loader_new(data, 7, 2, flags, HERE);
            while (tg_loader_next(loader, got)) {
                tg_tensor *row = tg_to_dtype(tg_div_scalar(tg_select(tg_select(got[0], 1, 0), 1, 0), 12), TG_I64);
                for (k = 0; k < 7; ++k) {
                    tg_tensor *wanted = tg_index_select(tg_to(data[k], HERE), 0, row);
                    CHECK(tg_equal(got[k], wanted) && tg_device_equal(tg_device_of(got[k]), HERE));
                    CHECK(tg_is_contiguous(got[k]));
                }
            }
            CHECK(tg_ok());
            tg_loader_free(loader);
        }
    }
}

/* A batch has no history and no part of the data: it may be written. */
TEST(a_batch_is_a_copy)
{
    int flags;
    for (flags = 0; flags <= TG_SHUFFLE; flags += TG_SHUFFLE) {
        tg_tensor *x = leaf("[1, 2, 3, 4]"), *y = tg_mul_scalar(x, 2), *batch;
        tg_loader *loader = loader_of(y, 4, flags);
        batch = next(loader);
        CHECK(!tg_requires_grad(batch) && tg_is_leaf(batch) && tg_is_grad_enabled());
        tg_fill_(batch, 9);
        HAS(y, "[2, 4, 6, 8]");
        tg_set_requires_grad(batch, true);
        CHECK(backward_sum(tg_mul(batch, y)) == TG_OK);
        HAS(tg_grad(x), "[18, 18, 18, 18]");
        tg_loader_free(loader);
    }
}

/* A write to the data is seen at once where nothing has to move, else from the next batch but one. */
TEST(data_that_changes)
{
    tg_tensor *t = tg_zeros_on(TG_SHAPE(3), TG_F64, TG_CPU);
    tg_loader *loader = loader_of(t, 1, 0);
    int ahead = tg_device_equal(HERE, TG_CPU) ? 0 : 1;
    HAS(next(loader), "[0]");
    tg_fill_(t, 1);
    HAS(next(loader), ahead ? "[0]" : "[1]");
    tg_fill_(t, 2);
    HAS(next(loader), ahead ? "[1]" : "[2]");
    CHECK(is_over(loader));
    tg_fill_(t, 3); /* the next epoch begins with the call that asks for it */
    HAS(next(loader), "[3]");
    tg_loader_free(loader);
}

/* ---- who owns what ---- */

TEST(owners)
{
    tg_stats_info before = tg_stats(), now;
    tg_loader *loader;
    tg_tensor *kept = NULL;
    {
        TG_SCOPE;
        loader = loader_of(count_to(6), 2, TG_SHUFFLE);
    } /* the loader keeps the data */
    CHECK(tg_stats().modules == before.modules + 1 && tg_stats().tensors == before.tensors + 1);
    for (;;) {
        TG_SCOPE;
        tg_tensor *batch = next(loader);
        if (!batch) break;
        kept = tg_keep(batch); /* as with every tensor */
    }
    now = tg_stats();
    CHECK(tg_ok() && now.tensors == before.tensors + 4); /* three batches, and the data; no order, nothing ahead */
    next(loader);
    tg_loader_free(loader); /* with what was fetched ahead */
    now = tg_stats();
    CHECK(now.modules == before.modules && now.tensors == before.tensors + 4); /* four batches */
    CHECK(tg_numel(kept) == 2);
}

TEST(without_a_scope)
{
    tg_loader *loader = loader_of(count_to(4), 2, 0);
    tg_tensor *batch = tg_retain(next(loader));
    tg_loader_free(loader);
    HAS(batch, "[0, 1]");
    tg_release(batch);
}

/* ---- resuming ---- */

TEST(seek)
{
    tg_tensor *t = count_to(10), *batch[12];
    tg_loader *loader;
    int flags, i, k, n;
    for (flags = 0; flags < 4; ++flags) {
        tg_seed(6);
        loader = loader_of(t, 3, flags);
        n = (int)tg_loader_batches(loader);
        for (i = 0; i < 3 * n; ++i) {
            if (i > 0 && i % n == 0) CHECK(is_over(loader));
            batch[i] = next(loader);
        }
        tg_loader_free(loader);
        tg_seed(6);
        loader = loader_of(t, 3, flags);
        for (k = 3 * n; k > 0; --k) {
            CHECK(tg_loader_seek(loader, k - 1) == TG_OK);
            for (i = k - 1; i < k + 1 && i < 3 * n; ++i) {
                if (i > k - 1 && i % n == 0) CHECK(is_over(loader));
                CHECK(tg_equal(next(loader), batch[i]));
            }
        }
        CHECK(tg_loader_seek(loader, 0) == TG_OK && tg_equal(next(loader), batch[0]));
        CHECK_FAILS(tg_loader_seek(loader, -1), "-1");
        CHECK(tg_equal(next(loader), batch[1])); /* a call that fails changes nothing */
        CHECK(tg_loader_seek(loader, INT64_MAX) == TG_OK && tg_numel(next(loader)) > 0);
        tg_loader_free(loader);
    }
    loader = loader_of(count_to(0), 3, 0);
    CHECK(tg_loader_seek(loader, 5) == TG_OK && is_over(loader));
    tg_loader_free(loader);
    loader = loader_of(count_to(3), 3, 0); /* the epoch after the last that can be counted is the first */
    CHECK(tg_loader_seek(loader, INT64_MAX) == TG_OK && tg_numel(next(loader)) == 3);
    CHECK(is_over(loader) && tg_numel(next(loader)) == 3 && is_over(loader));
    tg_loader_free(loader);
}

/* ---- errors ---- */

TEST(errors)
{
    tg_tensor *data[65], *got[1];
    tg_loader *loader;
    int i;
    data[0] = tg_set_requires_grad(tg_ones_on(TG_SHAPE(10), TG_F32, TG_CPU), true);
    data[1] = tg_ones_on(TG_SHAPE(9, 2), TG_F32, TG_CPU);
    tg_set_name(data[1], "labels");
    CHECK_FAILS(tg_loader_new(data, 2, 4, 0, HERE),
                "Size mismatch between tensors: data[0] [10] has 10 rows, data[1] [9, 2] 'labels' has 9");
    CHECK_FAILS(loader_of(data[0], 0, 0), "batch_size should be a positive integer value, but got batch_size=0");
    CHECK_FAILS(loader_of(data[0], INT64_MIN, 0), "but got batch_size=-9223372036854775808");
    data[1] = tg_scalar(1);
    CHECK_FAILS(tg_loader_new(data, 2, 4, 0, HERE), "data[1] is 0-dim: it has no rows");
    CHECK_FAILS(tg_loader_new(data, 0, 4, 0, HERE), "a loader has 1 to 64 tensors, not 0");
    for (i = 0; i < 65; ++i) data[i] = data[0];
    CHECK_FAILS(tg_loader_new(data, 65, 4, 0, HERE), "a loader has 1 to 64 tensors, not 65");
    CHECK_FAILS(tg_loader_new(data, 1, 4, 0, TG_CUDA(99)), "tg_loader_new: ");
    loader = tg_loader_new(data, 64, 4, 0, HERE);
    CHECK(loader && tg_loader_batches(loader) == 3);
    CHECK_FAILS(tg_loader_next(loader, NULL), "tg_loader_next: argument out is NULL");
    CHECK_FAILS(tg_loader_next(NULL, got), "tg_loader_next: argument loader is NULL");
    CHECK_FAILS(tg_loader_batches(NULL), "tg_loader_batches: argument loader is NULL");
    CHECK_FAILS(tg_loader_seek(NULL, 0), "tg_loader_seek: argument loader is NULL");
    tg_loader_free(loader);
}

/* ---- threads ---- */

static tg_tensor *shared;

static void *use_shared(void *ok)
{
    tg_mark mark = tg_scope_begin();
    tg_loader *loader = loader_of(shared, 4, TG_SHUFFLE);
    double sum = 0;
    tg_tensor *batch;
    while ((batch = next(loader)) != NULL) sum += tg_item(tg_sum(batch));
    next(loader); /* and has one ahead */
    *(bool *)ok = tg_ok() && sum == 45;
    tg_loader_free(loader);
    tg_scope_end(mark);
    *(bool *)ok = tg_thread_end() == TG_OK && *(bool *)ok;
    return NULL;
}

static tg_loader *left_behind;

static void *leave_a_loader(void *ok)
{
    tg_mark mark = tg_scope_begin();
    left_behind = loader_of(shared, 4, TG_SHUFFLE);
    *(bool *)ok = next(left_behind) != NULL;
    tg_scope_end(mark);
    tg_thread_end();
    return NULL;
}

/* While its thread uses it: its batches are in that thread's scopes. */
static void *free_of_another(void *loader)
{
    tg_loader_free((tg_loader *)loader);
    CHECK(strstr(tg_error_message(), "tg_loader_free: argument loader belongs to another thread") != NULL);
    CHECK(tg_thread_end() == TG_OK);
    return NULL;
}

TEST(threads)
{
    pthread_t thread[2];
    bool ok[2] = {false, false};
    tg_tensor *got[1];
    int k;
    shared = tg_share(count_to(10));
    for (k = 0; k < 2; ++k) pthread_create(&thread[k], NULL, use_shared, &ok[k]);
    for (k = 0; k < 2; ++k) pthread_join(thread[k], NULL);
    CHECK(ok[0] && ok[1]);
    pthread_create(&thread[0], NULL, leave_a_loader, &ok[0]);
    pthread_join(thread[0], NULL);
    CHECK(ok[0]);
    CHECK_FAILS(tg_loader_next(left_behind, got), "tg_loader_next: argument loader belongs to another thread");
    CHECK_FAILS(tg_loader_seek(left_behind, 1), "tg_loader_seek: argument loader belongs to another thread");
    CHECK(tg_loader_batches(left_behind) == 3);
    tg_loader_free(left_behind); /* whose thread is over */
    left_behind = loader_of(shared, 4, 0);
    CHECK(next(left_behind) != NULL && pthread_create(&thread[0], NULL, free_of_another, left_behind) == 0);
    CHECK(pthread_join(thread[0], NULL) == 0 && next(left_behind) != NULL);
    tg_loader_free(left_behind);
    tg_release(shared);
}

/* The scope of a step is opened after the call: a batch belongs to the scope around the loop, which keeps two at most,
 * and only the last when the loop is over. */
TEST(a_loop_that_opens_its_scope_after_the_call)
{
    tg_tensor *data[2], *batch[2], *last = NULL, *other[2];
    tg_loader *loader, *second;
    tg_stats_info before;
    int epoch, steps = 0;
    data[0] = count_to(20), data[1] = tg_ones_on(TG_SHAPE(20, 30), TG_F32, HERE);
    loader = tg_loader_new(data, 2, 2, TG_SHUFFLE, HERE), second = tg_loader_new(data, 2, 2, 0, HERE);
    before = tg_stats();
    for (epoch = 0; epoch < 3; ++epoch) {
        while (tg_loader_next(loader, batch)) {
            TG_SCOPE;
            CHECK(tg_item(tg_sum(tg_mul(batch[1], batch[1]))) == 60);
            last = batch[0], ++steps;
        }
        CHECK(tg_ok() && tg_numel(last) == 2); /* the last batch of all is there after the loop */
        CHECK(tg_stats().tensors <= before.tensors + 3 && tg_stats().bytes <= before.bytes + 256 + 160);
    }
    CHECK(steps == 30);
    while (tg_loader_next(loader, batch) && tg_loader_next(second, other)) { /* two at a time; the one in the other */
        TG_SCOPE;
        while (tg_loader_next(second, other)) {
            TG_SCOPE;
            CHECK(tg_numel(other[0]) == 2 && tg_numel(batch[1]) == 60);
        }
        CHECK(tg_loader_next(second, other) && tg_numel(batch[0]) == 2);
    }
    CHECK(tg_ok() && tg_stats().tensors <= before.tensors + 7);
    tg_loader_free(loader), tg_loader_free(second);
}

/* What holds a batch longer in such a loop: tg_keep and tg_retain, a module, a graph; and calls that end none. */
TEST(batches_that_such_a_loop_holds)
{
    tg_loader *loader = loader_of(count_to(10), 2, 0);
    tg_tensor *batch[1], *kept[5], *retained[5], *first, *w = leaf("[1, 2]"), *loss = NULL;
    tg_dict *dict = tg_dict_new();
    int i = 0;
    while (tg_loader_next(loader, batch)) {
        tg_mark mark = tg_scope_begin();
        tg_tensor *y = tg_sum(tg_mul(w, tg_to_dtype(batch[0], TG_F64)));
        if (i % 2) kept[i] = tg_keep(batch[0]);
        else retained[i] = tg_retain(batch[0]);
        if (i == 3) CHECK(tg_dict_set(dict, "batch", batch[0]) == TG_OK);
        loss = tg_keep(loss ? tg_add(loss, y) : y); /* whose graph has saved the batches */
        tg_scope_end(mark);
        if (i == 2) CHECK(!tg_loader_next(NULL, batch)), tg_clear_error();
        ++i;
    }
    CHECK(tg_ok() && i == 5 && tg_backward(loss) == TG_OK);
    HAS(tg_grad(w), "[20, 25]");
    HAS(kept[1], "[2, 3]"), HAS(kept[3], "[6, 7]"), HAS(retained[0], "[0, 1]"), HAS(retained[4], "[8, 9]");
    for (i = 0; i < 5; i += 2) tg_release(retained[i]);
    HAS(tg_dict_get(dict, "batch"), "[6, 7]");
    tg_dict_free(dict);
    first = next(loader); /* a loader that is freed or goes elsewhere leaves its batches to the scope */
    { TG_SCOPE; (void)tg_neg(first); }
    CHECK(tg_loader_seek(loader, 3) == TG_OK);
    HAS(first, "[0, 1]");
    { TG_SCOPE; HAS(next(loader), "[6, 7]"); }
    HAS(first, "[0, 1]"); /* the batch after it was of another scope */
    CHECK(next(loader) != NULL);
    if (!HARNESS_MEMORY_CHECKER)
        CHECK_FAILS(tg_neg(first), "argument x was a batch of a loader, which a later tg_loader_next ended: tg_keep or");
    first = batch[0] = NULL;
    CHECK(is_over(loader) && (first = next(loader)) != NULL);
    tg_loader_free(loader);
    HAS(first, "[0, 1]");
}

/* Several batches of one scope, with no scope in between: all stay. */
TEST(batches_of_one_scope)
{
    tg_loader *loader = loader_of(count_to(8), 2, 0);
    tg_tensor *list[4], *a[1], *b[1];
    int i, turn;
    for (i = 0; i < 4; ++i) {
        list[i] = next(loader);
        (void)tg_softmax(tg_to_dtype(list[i], TG_F64), 0); /* has scopes inside */
        { TG_NO_GRAD; (void)tg_neg(list[i]); }
    }
    HAS(tg_cat(list, 4, 0), "[0, 1, 2, 3, 4, 5, 6, 7]");
    CHECK(is_over(loader));
    for (turn = 0; turn < 2; ++turn) {
        TG_SCOPE;
        CHECK(tg_loader_next(loader, a) && tg_loader_next(loader, b));
        HAS(a[0], turn ? "[4, 5]" : "[0, 1]"), HAS(b[0], turn ? "[6, 7]" : "[2, 3]");
    }
    CHECK(is_over(loader));
    tg_loader_free(loader);
}

/* Without any scope around: the thread ends while its loader has a batch. */
static void *loop_without_a_scope(void *ok)
{
    tg_loader *loader = loader_of(shared, 2, 0);
    tg_tensor *batch[1];
    int64_t most = 0, n = 0;
    while (tg_loader_next(loader, batch)) {
        TG_SCOPE;
        tg_item(tg_sum(batch[0]));
        most = tg_stats().unscoped > most ? tg_stats().unscoped : most, ++n;
    }
    *(bool *)ok = tg_ok() && most == 1 && n == 5 && tg_loader_next(loader, batch);
    *(bool *)ok = tg_thread_end() == TG_OK && *(bool *)ok;
    tg_loader_free(loader);
    *(bool *)ok = tg_thread_end() == TG_OK && *(bool *)ok;
    return NULL;
}

TEST(a_loop_without_a_scope)
{
    pthread_t thread;
    bool ok = false;
    shared = tg_share(count_to(10));
    pthread_create(&thread, NULL, loop_without_a_scope, &ok);
    pthread_join(thread, NULL);
    CHECK(ok);
    tg_release(shared);
}

/* ---- what a GPU does meanwhile ---- */

static int64_t waits(void) { return tg_stats_on(HERE).waits; }

/* Neither fetching nor taking a batch waits for the device. */
TEST(the_host_does_not_wait)
{
    tg_tensor *data[2], *got[2], *total = tg_zeros_on(TG_SCALAR, TG_I64, HERE);
    int64_t before = waits(), received = tg_stats_on(HERE).received;
    tg_loader *loader;
    int on_device;
    for (on_device = 0; on_device < 2; ++on_device) {
        data[0] = count_to(1000), data[1] = tg_reshape(count_to(3000), TG_SHAPE(1000, 3));
        if (on_device) data[0] = tg_to(data[0], HERE), data[1] = tg_to(data[1], HERE), received += 32000;
        loader = tg_loader_new(data, 2, 64, TG_SHUFFLE, HERE);
        while (tg_loader_next(loader, got)) {
            TG_SCOPE;
            tg_add_(total, tg_add(tg_sum(got[0]), tg_sum(got[1])));
        }
        tg_loader_free(loader);
        CHECK(waits() == before);
        CHECK(tg_stats_on(HERE).received == received + (on_device ? 8000 : 32000)); /* the rows, or their numbers */
        received = tg_stats_on(HERE).received;
    }
    CHECK(tg_item_i64(total) == 2 * (1000 * 999 / 2 + 3000 * 2999 / 2));
}

#ifdef CUDASIM
/* In the simulator's lazy order a stream works when something waits for it, on that and on what that depends on.  Here
 * the host waits for the next batch alone, and not one kernel of the step that uses this batch runs. */
TEST(the_upload_does_not_wait_for_the_step)
{
    tg_tensor *t = tg_ones_on(TG_SHAPE(40, 30), TG_F32, TG_CPU), *w = tg_ones_on(TG_SHAPE(30, 30), TG_F32, HERE);
    tg_loader *loader;
    int step;
    cudasim_schedule(NULL, "lazy");
    loader = loader_of(t, 8, TG_SHUFFLE);
    CHECK(tg_synchronize(HERE) == TG_OK);
    for (step = 0; step < 4; ++step) {
        TG_SCOPE;
        const long long ran = cudasim_total(CUDASIM_KERNELS);
        tg_tensor *batch = next(loader), *y = tg_sum(tg_matmul(tg_exp(tg_mul_scalar(batch, 0)), w));
        CHECK(inside_wait(inside_loader_ahead(loader)) && cudasim_total(CUDASIM_KERNELS) == ran); /* while y is not even begun */
        CHECK_NEAR(tg_item(y), 8 * 30 * 30, 0);
        CHECK(cudasim_total(CUDASIM_KERNELS) > ran);
    }
    tg_loader_free(loader);
}

/* Page-locked memory is used again when its batch has arrived. */
TEST(page_locked_memory_is_reused)
{
    tg_loader *loader = loader_of(tg_ones_on(TG_SHAPE(400, 30), TG_F32, TG_CPU), 8, TG_SHUFFLE);
    size_t buffers = 0;
    int step;
    for (step = 0; step < 40; ++step) {
        TG_SCOPE;
        tg_item(tg_sum(next(loader)));
        if (step == 5) buffers = cudasim_live(CUDASIM_PINNED_BUFFERS);
    }
    CHECK(buffers > 0 && cudasim_live(CUDASIM_PINNED_BUFFERS) == buffers);
    tg_loader_free(loader);
}
#endif

/* The data on one GPU, the batches on another. */
TEST(between_devices)
{
    tg_device other = TG_CUDA(HERE.index ? 0 : 1);
    tg_tensor *data = tg_to(count_to(10), other), *t = count_to(10);
    tg_loader *loader, *here;
    int i;
    tg_seed(3);
    loader = loader_of(data, 4, TG_SHUFFLE);
    tg_seed(3);
    here = tg_loader_new(&t, 1, 4, TG_SHUFFLE, TG_CPU);
    for (i = 0; i < 3; ++i) {
        tg_tensor *batch = next(loader);
        CHECK(tg_device_equal(tg_device_of(batch), HERE) && tg_equal(tg_cpu(batch), next(here)));
    }
    CHECK(is_over(loader));
    tg_loader_free(loader), tg_loader_free(here);
}

/* ---- out of memory ---- */

static struct {
    tg_loader *loader;
    int refused;
} within;

/* An error handler that uses the loader whose call it is about. */
static void use_loader(tg_status code, const char *message, void *user)
{
    tg_tensor *got[2];
    (void)user;
    if (code == TG_OK || strncmp(message, "tg_loader_next: ", 16) != 0) return;
    CHECK(!tg_loader_next(within.loader, got) && tg_loader_seek(within.loader, 0) == TG_ERR_MEMORY);
    within.refused += tg_error_count() == 3;
}

/* An epoch; a batch that fails is asked for again, and no row is lost. */
static bool epochs(void)
{
    tg_tensor *data[2], *got[2], *x = tg_arange_on(0, 9, 1, TG_F64, TG_CPU);
    tg_loader *loader;
    double sum = 0;
    int64_t tried;
    data[0] = x, data[1] = tg_mul_scalar(x, 2);
    tg_seed(1);
    loader = within.loader = tg_loader_new(data, 2, 4, TG_SHUFFLE, HERE);
    for (tried = 0; loader && tried < 12; ++tried) {
        TG_SCOPE;
        const bool ok = tg_ok();
        if (tg_loader_next(loader, got)) sum += tg_item(tg_sum(tg_cpu(got[1])));
        else if (tg_ok()) break; /* the end */
        else if (ok) CHECK(!got[0] && !got[1] && tg_error_code() == TG_ERR_MEMORY);
    }
    if (loader && tg_ok()) CHECK(sum == 72);
    tg_loader_free(loader);
    return tg_ok();
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    tg_set_error_handler(use_loader, NULL);
    out_of_memory(epochs);
    CHECK(within.refused > 5);
    tg_set_error_handler(NULL, NULL);
    RUN(rows_in_order);
    RUN(sizes_of_batches);
    RUN(every_row_once_in_another_order);
    RUN(the_seed_says_the_order);
    RUN(the_same_order_on_every_device);
    RUN(dtypes);
    RUN(layouts);
    RUN(a_batch_is_a_copy);
    RUN(data_that_changes);
    RUN(owners);
    RUN(without_a_scope);
    RUN(seek);
    RUN(errors);
    RUN(threads);
    RUN(a_loop_that_opens_its_scope_after_the_call);
    RUN(batches_that_such_a_loop_holds);
    RUN(batches_of_one_scope);
    RUN(a_loop_without_a_scope);
    if (HERE.type == TG_DEV_CUDA) {
        RUN(the_host_does_not_wait);
#ifdef CUDASIM
        RUN(the_upload_does_not_wait_for_the_step);
        RUN(page_locked_memory_is_reused);
#endif
        if (tg_cuda_device_count() > 1) RUN(between_devices);
    }
    tg_shutdown();
    return harness_end();
}
