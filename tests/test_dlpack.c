/* DLPack: tensors for other libraries, and tensors of theirs, on the same memory: layouts and dtypes; how long the memory
 * lives, whoever ends first and in which thread; memory that is only read; what is wrong in a struct. */
#if !defined(__cplusplus) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include "tensorgrad.h"
#include "helpers.h"
#include "dlpack.h"
#include <pthread.h>

static void end(DLManagedTensorVersioned *m) { m->deleter(m); }

static float numbers[12];
static DLManagedTensorVersioned *lent_2_3(lent_tensor *f)
{
    static const int64_t shape[] = {2, 3};
    int i;
    for (i = 0; i < 12; ++i) numbers[i] = (float)i;
    return lent_of(f, numbers, 2, shape, NULL);
}

/* ---- out ---- */

/* Whether the struct describes t where it is, and a tensor made of it is t's equal on t's memory. */
static void goes_round(tg_tensor *t)
{
    const tg_device device = tg_device_of(t);
    DLManagedTensorVersioned *m = tg_to_dlpack(t);
    tg_tensor *other;
    int i;
    CHECK(m && m->version.major == 1 && m->version.minor == 0 && m->flags == 0 && m->deleter);
    if (!m) return;
    CHECK(m->dl_tensor.data == tg_data(t) && m->dl_tensor.byte_offset == 0 && m->dl_tensor.ndim == tg_ndim(t));
    CHECK(m->dl_tensor.device.device_type == (tg_is_cuda(t) ? kDLCUDA : kDLCPU));
    CHECK(m->dl_tensor.device.device_id == device.index && m->dl_tensor.dtype.lanes == 1);
    CHECK(m->dl_tensor.dtype.bits == 8 * tg_dtype_size(tg_dtype_of(t)) && m->dl_tensor.strides != NULL);
    for (i = 0; i < tg_ndim(t); ++i) {
        CHECK(m->dl_tensor.shape[i] == tg_dim(t, i) && m->dl_tensor.strides[i] == tg_stride(t, i));
    }
    other = tg_from_dlpack(m);
    CHECK(other && tg_data(other) == tg_data(t) && tg_equal(other, t) && tg_dtype_of(other) == tg_dtype_of(t));
    CHECK(tg_device_equal(tg_device_of(other), device) && tg_is_contiguous(other) == tg_is_contiguous(t));
    for (i = 0; other && i < tg_ndim(t); ++i) CHECK(tg_dim(t, i) < 2 || tg_stride(other, i) == tg_stride(t, i));
    CHECK(tg_equal(tg_add(other, other), tg_add(t, t)));
}

TEST(layouts_go_round)
{
    tg_tensor *t = tg_arange_on(0, 24, 1, TG_F32, HERE), *m = tg_view(t, TG_SHAPE(2, 3, 4));
    goes_round(m);
    goes_round(tg_permute(m, TG_DIMS(2, 0, 1)));
    goes_round(tg_narrow(tg_narrow(m, 2, 1, 2), 1, 1, 2));
    goes_round(tg_slice(t, 0, 3, 20, 5));
    goes_round(tg_select(m, 1, 2));
    goes_round(tg_expand(tg_narrow(t, 0, 5, 1), TG_SHAPE(4, 1)));
    goes_round(tg_select(t, 0, 7)); /* 0-dim */
    goes_round(tg_narrow(m, 1, 3, 0));
    goes_round(tg_zeros(TG_SHAPE(0)));
    goes_round(tg_ones(TG_SHAPE(1, 1, 1, 1, 1, 1, 1, 2)));
    goes_round(tg_rand(TG_SHAPE(300, 7))); /* memory of its own, not in the block of the storage */
}

TEST(dtypes_go_round)
{
    static const struct { tg_dtype dtype; int code, bits; } rows[] = {
        {TG_F32, kDLFloat, 32}, {TG_F64, kDLFloat, 64}, {TG_BF16, kDLBfloat, 16}, {TG_F16, kDLFloat, 16},
        {TG_I32, kDLInt, 32}, {TG_I64, kDLInt, 64}, {TG_U8, kDLUInt, 8}, {TG_I8, kDLInt, 8},
        {TG_I16, kDLInt, 16}, {TG_BOOL, kDLBool, 8}};
    size_t i;
    for (i = 0; i < sizeof rows / sizeof *rows; ++i) {
        tg_tensor *t = of(rows[i].dtype, "[[0, 1, 1], [1, 0, 1]]");
        DLManagedTensorVersioned *m = tg_to_dlpack(t);
        CHECK(m && m->dl_tensor.dtype.code == rows[i].code && m->dl_tensor.dtype.bits == rows[i].bits);
        if (m) end(m);
        goes_round(t);
    }
}

TEST(what_cannot_go_out)
{
    tg_tensor *w = tg_param(tg_ones(TG_SHAPE(2)));
    DLManagedTensorVersioned *m;
    CHECK_FAILS(tg_to_dlpack(w), "tg_to_dlpack: Can't export tensors that require gradient\n  hint: export tg_detach(t)");
    CHECK_FAILS(tg_to_dlpack_unversioned(tg_mul(w, w)), "tg_to_dlpack_unversioned: Can't export tensors that require");
    CHECK_FAILS(tg_to_dlpack(NULL), "argument t is NULL");
    m = tg_to_dlpack(tg_detach(w)); /* shares the parameter's memory */
    CHECK(m && m->dl_tensor.data == tg_data(w));
    tg_release(w);
    if (m) end(m);
}

/* The memory lives as long as one side uses it, whichever ends first. */
TEST(who_ends_first)
{
    const tg_stats_info before = tg_stats();
    DLManagedTensorVersioned *m;
    tg_tensor *t;
    {
        TG_SCOPE;
        m = tg_to_dlpack(tg_full(TG_SHAPE(1000), 3));
    }
    CHECK(tg_stats().bytes == before.bytes + 4000 && tg_stats().tensors == before.tensors + 1);
    {
        TG_SCOPE;
        t = tg_from_dlpack(m); /* the struct goes to the library that made it */
        CHECK_NEAR(tg_item(tg_sum(t)), 3000, 0);
        CHECK(tg_stats().bytes == before.bytes + 4000 + 4);
    }
    CHECK(tg_stats().bytes == before.bytes && tg_stats().tensors == before.tensors);
    {
        TG_SCOPE;
        t = tg_full(TG_SHAPE(1000), 4);
        end(tg_to_dlpack(t));
        CHECK_NEAR(tg_item(tg_sum(t)), 4000, 0);
        m = tg_to_dlpack(t);
        end(tg_to_dlpack(t)); /* one of two */
        tg_drop(t);
        CHECK(tg_stats().bytes >= before.bytes + 4000);
        end(m);
    }
    CHECK(tg_stats().bytes == before.bytes && tg_stats().tensors == before.tensors);
}

TEST(writes_are_seen)
{
    tg_tensor *x = tg_param(tg_ones(TG_SHAPE(3))), *t = tg_zeros(TG_SHAPE(3)), *y = tg_mul(x, t), *other;
    DLManagedTensorVersioned *m = tg_to_dlpack(t);
    other = tg_from_dlpack(m);
    tg_fill_(other, 5);
    CHECK_NEAR(tg_get(t, TG_INDEX(1)), 5, 0);
    tg_add_scalar_(t, 2);
    CHECK_NEAR(tg_get(other, TG_INDEX(2)), 7, 0);
    if (!tg_is_cuda(t)) {
        m = tg_to_dlpack(t);
        ((float *)m->dl_tensor.data)[0] = -1;
        CHECK_NEAR(tg_get(t, TG_INDEX(0)), -1, 0);
        end(m);
    }
    tg_touch_(t);
    CHECK_FAILS(tg_backward(tg_sum(y)), "modified by an inplace operation");
    tg_release(x);
}

/* ---- threads ---- */

static void *ends_it(void *m)
{
    end((DLManagedTensorVersioned *)m);
    return NULL;
}

static void *works_and_ends_it(void *m)
{
    const tg_mark mark = tg_scope_begin();
    tg_tensor *t = tg_from_dlpack((DLManagedTensorVersioned *)m);
    tg_fill_(t, 2); /* the owner of the memory does not use it now */
    tg_scope_end(mark);
    tg_thread_end();
    return NULL;
}

static void in_a_thread(void *(*work)(void *), void *m)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, work, m) == 0 && pthread_join(thread, NULL) == 0);
}

#ifndef __TINYC__ /* for which the library is one for a single thread */
/* A deleter that runs in a thread which knows nothing of the library leaves nothing of it there: else tg_set_allocator
   (and tg_shutdown) would be refused. */
TEST(a_deleter_in_another_thread)
{
    const tg_stats_info before = tg_stats();
    DLManagedTensorVersioned *m;
    tg_tensor *t;
    {
        TG_SCOPE;
        m = tg_to_dlpack(tg_ones(TG_SHAPE(1000)));
    }
    in_a_thread(ends_it, m);
    CHECK(tg_stats().bytes == before.bytes && tg_stats().tensors == before.tensors);
    t = tg_ones(TG_SHAPE(20));
    in_a_thread(ends_it, tg_to_dlpack(t));
    CHECK_NEAR(tg_item(tg_sum(t)), 20, 0);
    in_a_thread(works_and_ends_it, tg_to_dlpack(t));
    CHECK_NEAR(tg_item(tg_sum(t)), 40, 0);
}

enum { ENDING_THREADS = 4, ENDED_BY_EACH = 200 };
static void *ends_many(void *list)
{
    int i;
    for (i = 0; i < ENDED_BY_EACH; ++i) end(((DLManagedTensorVersioned **)list)[i]);
    return NULL;
}

/* The count of one storage, from several threads at a time, while its tensor is used. */
TEST(many_deleters_at_a_time)
{
    static DLManagedTensorVersioned *list[ENDING_THREADS][ENDED_BY_EACH];
    pthread_t thread[ENDING_THREADS];
    tg_tensor *t = tg_ones(TG_SHAPE(8));
    int i, k;
    for (i = 0; i < ENDING_THREADS; ++i) {
        for (k = 0; k < ENDED_BY_EACH; ++k) list[i][k] = tg_to_dlpack(t);
    }
    for (i = 0; i < ENDING_THREADS; ++i) CHECK(pthread_create(&thread[i], NULL, ends_many, list[i]) == 0);
    for (i = 0; i < 100; ++i) tg_drop(tg_mul(tg_detach(t), t));
    for (i = 0; i < ENDING_THREADS; ++i) CHECK(pthread_join(thread[i], NULL) == 0);
    CHECK_NEAR(tg_item(tg_sum(t)), 8, 0);
}
#endif

/* For main, outside of every scope: the memory outlives the state of all threads. */
static void after_shutdown(void)
{
    const tg_allocator plain = {alloc_some, free_some, NULL};
    DLManagedTensorVersioned *m[2];
    int i;
    harness.test = "after_shutdown";
    tg_set_default_device(HERE);
    for (i = 0; i < 2; ++i) {
        tg_tensor *t = tg_full(TG_SHAPE(100), 6);
        m[i] = tg_to_dlpack(t);
        tg_release(t);
    }
    CHECK(tg_shutdown() == TG_OK && tg_stats().tensors == 2);
    CHECK_FAILS(tg_set_allocator(&plain), "2 tensors");
    CHECK(HERE.type != TG_DEV_CPU || ((float *)m[1]->dl_tensor.data)[99] == 6);
    CHECK(tg_shutdown() == TG_OK);
    end(m[0]);
    in_a_thread(ends_it, m[1]);
    CHECK(tg_stats().tensors == 0 && tg_stats().bytes == 0 && tg_set_allocator(NULL) == TG_OK);
    tg_set_error_handler(NULL, NULL);
}

/* ---- in ---- */

TEST(tensors_of_others)
{
    static const int64_t turned[] = {3, 2}, steps[] = {1, 3}, rows[] = {2, 2}, apart[] = {6, 2}, wide[] = {4, 3},
                         still[] = {0, 1}, one[] = {1, 3}, odd[] = {-77, 1}, none[] = {0, 4};
    lent_tensor f[7];
    tg_tensor *t;
    int i;
    {
        TG_SCOPE;
        t = tg_from_dlpack(lent_2_3(&f[0]));
        CHECK(tg_data_f32(t) == numbers && has(t, "[[0, 1, 2], [3, 4, 5]]") && tg_is_contiguous(t));
        tg_mul_scalar_(tg_select(t, 0, 1), 10);
        CHECK(numbers[3] == 30 && numbers[5] == 50 && numbers[6] == 6);
        CHECK(tg_get(t, TG_INDEX(0, 2)) == 2 && !tg_requires_grad(t));
        lent_2_3(&f[1]);
        t = tg_from_dlpack(lent_of(&f[1], numbers, 2, turned, steps));
        CHECK(has(t, "[[0, 3], [1, 4], [2, 5]]") && !tg_is_contiguous(t) && tg_stride(t, 1) == 3);
        CHECK_NEAR(tg_item(tg_sum(tg_mul(t, t))), 55, 0);
        lent_of(&f[2], numbers, 2, rows, apart)->dl_tensor.byte_offset = 3 * sizeof(float);
        t = tg_from_dlpack(&f[2].managed);
        CHECK(has(t, "[[3, 5], [9, 11]]") && tg_data(t) == (void *)(numbers + 3));
        t = tg_from_dlpack(lent_of(&f[3], numbers, 2, wide, still));
        CHECK(has(t, "[[0, 1, 2], [0, 1, 2], [0, 1, 2], [0, 1, 2]]"));
        CHECK_FAILS(tg_add_scalar_(t, 1), "more than one element of the written-to tensor");
        t = tg_from_dlpack(lent_of(&f[4], numbers, 2, one, odd)); /* nothing is reached by that stride */
        CHECK(has(t, "[[0, 1, 2]]") && tg_is_contiguous(t));
        t = tg_from_dlpack(lent_of(&f[5], numbers + 4, 0, NULL, NULL));
        CHECK(tg_ndim(t) == 0 && tg_item(t) == 4);
        f[5].managed.dl_tensor.shape = NULL;
        t = tg_from_dlpack(lent_of(&f[6], NULL, 2, none, NULL));
        CHECK(tg_numel(t) == 0 && tg_dim(t, 1) == 4 && tg_equal(t, tg_zeros_on(TG_SHAPE(0, 4), TG_F32, TG_CPU)));
        for (i = 0; i < 7; ++i) CHECK(f[i].deleted == 0);
    }
    for (i = 0; i < 7; ++i) CHECK(f[i].deleted == 1);
}

/* The struct is deleted once, when the last that needs the memory has ended: here what backward saved. */
TEST(the_deleter_comes_last)
{
    lent_tensor f;
    tg_tensor *x = tg_param(tg_ones_on(TG_SHAPE(2, 3), TG_F32, TG_CPU)), *y;
    {
        TG_SCOPE;
        tg_tensor *t = tg_from_dlpack(lent_2_3(&f));
        y = tg_keep(tg_sum(tg_mul(tg_set_requires_grad(t, true), x)));
        CHECK(tg_is_leaf(t));
    }
    CHECK(f.deleted == 0);
    tg_backward(y);
    CHECK(has(tg_grad(x), "[[0, 1, 2], [3, 4, 5]]"));
    tg_release(x);
    tg_drop(y);
    CHECK(f.deleted == 1);
    lent_2_3(&f)->deleter = NULL; /* memory that nobody has to free */
    { TG_SCOPE; (void)tg_sum(tg_from_dlpack(&f.managed)); }
    CHECK(f.deleted == 0);
}

static tg_tensor *made;
static void delete_badly(DLManagedTensorVersioned *self)
{
    ((lent_tensor *)self->manager_ctx)->deleted++;
    made = tg_ones(TG_SHAPE(2)); /* it may call the library, */
    (void)tg_scope_begin();      /* but has to end its scopes */
}

TEST(a_deleter_that_misbehaves)
{
    lent_tensor f;
    const tg_mark mark = tg_scope_begin();
    lent_2_3(&f)->deleter = delete_badly;
    tg_from_dlpack(&f.managed);
    CHECK_FAILS(tg_scope_end(mark), "the deleter of tg_from_dlpack left a scope open");
    CHECK(f.deleted == 1);
}

TEST(read_only_memory)
{
    static const float table[3] = {1, 2, 3};
    lent_tensor f;
    DLManagedTensorVersioned *m;
    tg_tensor *t = tg_wrap_const(table, TG_SHAPE(3), TG_F32, NULL, NULL);
    m = tg_to_dlpack(tg_narrow(t, 0, 1, 2));
    CHECK(m && m->flags == READ_ONLY && m->dl_tensor.data == (const void *)(table + 1));
    t = tg_from_dlpack(m);
    CHECK(has(t, "[2, 3]"));
    CHECK_FAILS(tg_zero_(t), "is read-only");
    CHECK_FAILS(tg_to_dlpack_unversioned(t), "tg_to_dlpack_unversioned: the memory of the tensor, of shape [2], is read-only\n"
                                             "  hint: write to a copy of its own: tg_clone(t)");
    lent_2_3(&f)->flags = READ_ONLY | 2; /* 2: it is a copy */
    {
        TG_SCOPE;
        t = tg_from_dlpack(&f.managed);
        CHECK_FAILS(tg_add_scalar_(tg_select(t, 0, 0), 1), "is read-only");
        CHECK_NEAR(tg_get(tg_add_scalar(t, 1), TG_INDEX(1, 2)), 6, 0);
    }
    CHECK(f.deleted == 1);
    lent_2_3(&f)->flags = 2;
    {
        TG_SCOPE;
        CHECK(tg_zero_(tg_from_dlpack(&f.managed)) != NULL && numbers[5] == 0);
    }
    CHECK(f.deleted == 1);
}

/* Each struct is as lent_2_3 makes it but for one member.  What is refused is not taken over. */
#define REFUSED(member, value, text)                                      \
    do {                                                                  \
        lent_2_3(&f)->member = value;                                  \
        CHECK_FAILS(tg_from_dlpack(&f.managed), "tg_from_dlpack: " text); \
        CHECK(f.deleted == 0 && tg_error_code() == TG_OK);                \
    } while (0)

TEST(structs_that_are_refused)
{
    lent_tensor f;
    int64_t strides[2] = {3, 1}, sizes[2] = {2, 3};
    REFUSED(version.major, 2, "the struct has version 2.3 of DLPack, not 1\n  hint: ask the other library for version 1");
    REFUSED(version.major, 0, "the struct has version 0.3");
    REFUSED(dl_tensor.data, NULL, "argument data is NULL");
    REFUSED(dl_tensor.shape, NULL, "argument shape is NULL");
    REFUSED(dl_tensor.ndim, 9, "a tensor has at most 8 dims, not 9");
    REFUSED(dl_tensor.ndim, INT32_MAX, "a tensor has at most 8 dims, not 2147483647");
    REFUSED(dl_tensor.ndim, -1, "a tensor has at most 8 dims, not -1");
    REFUSED(dl_tensor.byte_offset, 2, "the memory is not aligned: its address is no multiple of 4, as f32 needs it");
    sizes[1] = -3;
    REFUSED(dl_tensor.shape, sizes, "Trying to create tensor with negative dimension -3: [2, -3]");
    sizes[1] = INT64_MAX / 2;
    REFUSED(dl_tensor.shape, sizes, "the number of elements of shape [2, 4611686018427387903] overflows");
    strides[0] = -3;
    REFUSED(dl_tensor.strides, strides, "a tensor cannot have negative strides: [-3, 1]\n  hint: make a copy before");
    strides[0] = INT64_MAX;
    REFUSED(dl_tensor.strides, strides, "strides [9223372036854775807, 1] are too large");
    REFUSED(dl_tensor.dtype.lanes, 4, "there is no dtype for vectors of 4 lanes of f32");
    REFUSED(dl_tensor.dtype.lanes, 0, "there is no dtype for vectors of 0 lanes of f32");
    REFUSED(dl_tensor.dtype.bits, 8, "there is no dtype f8\n  hint: convert the tensor before");
    REFUSED(dl_tensor.dtype.bits, 128, "there is no dtype f128");
    REFUSED(dl_tensor.dtype.code, kDLInt + 99, "there is no dtype for DLPack's type code 99 with 32 bits");
    REFUSED(dl_tensor.dtype.code, kDLUInt, "there is no dtype u32");
    REFUSED(dl_tensor.dtype.code, kDLComplex, "there is no dtype complex32");
    REFUSED(dl_tensor.dtype.code, kDLBool, "there is no dtype bool32");
    REFUSED(dl_tensor.dtype.code, kDLBfloat, "there is no dtype bf32");
    REFUSED(dl_tensor.dtype.code, kDLOpaqueHandle, "there is no dtype opaque handle 32");
    REFUSED(dl_tensor.device.device_type, kDLOpenCL, "there is no kind of device for DLPack's device type 4\n"
                                                     "  hint: move the tensor to one of cpu, cuda before");
    lent_2_3(&f)->dl_tensor.dtype.bits = 16;
    f.managed.dl_tensor.dtype.code = kDLUInt;
    CHECK_FAILS(tg_from_dlpack(&f.managed), "there is no dtype u16");
    lent_2_3(&f)->dl_tensor.device.device_type = kDLCUDA;
    f.managed.dl_tensor.device.device_id = -1;
    CHECK_FAILS(tg_from_dlpack(&f.managed), "tg_from_dlpack: Device index must not be negative: -1");
    f.managed.dl_tensor.device.device_id = 99;
    CHECK_FAILS(tg_from_dlpack(&f.managed), "CUDA");
    CHECK_FAILS(tg_from_dlpack(NULL), "tg_from_dlpack: argument managed is NULL");
    CHECK_FAILS(tg_from_dlpack_unversioned(NULL), "tg_from_dlpack_unversioned: argument managed is NULL");
    CHECK(f.deleted == 0);
    lent_2_3(&f)->dl_tensor.device.device_id = 7; /* of a CPU nobody counts */
    {
        TG_SCOPE;
        CHECK(tg_from_dlpack(&f.managed) != NULL);
    }
    CHECK(f.deleted == 1);
}

TEST(the_older_struct)
{
    lent_tensor f;
    tg_tensor *t = tg_view(tg_arange_on(0, 6, 1, TG_F64, HERE), TG_SHAPE(2, 3)), *other;
    DLManagedTensor *m = tg_to_dlpack_unversioned(tg_t(t));
    CHECK(m && m->dl_tensor.data == tg_data(t) && m->dl_tensor.shape[0] == 3 && m->dl_tensor.strides[0] == 1);
    CHECK(m && m->dl_tensor.dtype.code == kDLFloat && m->dl_tensor.dtype.bits == 64);
    other = tg_from_dlpack_unversioned(m);
    CHECK(tg_equal(other, tg_t(t)) && tg_data(other) == tg_data(t));
    m = tg_to_dlpack_unversioned(t);
    if (m) m->deleter(m);
    {
        TG_SCOPE;
        lent_2_3(&f);
        other = tg_from_dlpack_unversioned(&f.unversioned);
        CHECK(has(other, "[[0, 1, 2], [3, 4, 5]]") && tg_zero_(other) && numbers[4] == 0);
    }
    CHECK(f.deleted == 1);
    lent_2_3(&f);
    f.unversioned.deleter = NULL;
    { TG_SCOPE; (void)tg_from_dlpack_unversioned(&f.unversioned); }
    lent_2_3(&f);
    f.unversioned.dl_tensor.dtype.code = kDLComplex;
    CHECK_FAILS(tg_from_dlpack_unversioned(&f.unversioned), "tg_from_dlpack_unversioned: there is no dtype complex32");
    CHECK(f.deleted == 0);
}

static bool a_way_round(void)
{
    lent_tensor f;
    bool ok;
    const tg_mark mark = tg_scope_begin();
    tg_tensor *t, *other;
    DLManagedTensorVersioned *m;
    if (!tg_ok()) return false;
    t = tg_from_dlpack(lent_2_3(&f));
    m = t ? tg_to_dlpack(t) : NULL;
    other = m ? tg_from_dlpack(m) : NULL;
    ok = other && tg_data(other) == (void *)numbers && tg_ok();
    CHECK(ok || !tg_ok());
    if (m && !other) end(m); /* it stays the caller's */
    CHECK(f.deleted == 0);
    tg_scope_end(mark);
    CHECK(f.deleted == (t ? 1 : 0));
    return ok;
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    after_shutdown();
    out_of_memory(a_way_round);
    RUN(layouts_go_round);
    RUN(dtypes_go_round);
    RUN(what_cannot_go_out);
    RUN(who_ends_first);
    RUN(writes_are_seen);
#ifndef __TINYC__
    RUN(a_deleter_in_another_thread);
    RUN(many_deleters_at_a_time);
#endif
    RUN(tensors_of_others);
    RUN(the_deleter_comes_last);
    RUN(a_deleter_that_misbehaves);
    RUN(read_only_memory);
    RUN(structs_that_are_refused);
    RUN(the_older_struct);
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
