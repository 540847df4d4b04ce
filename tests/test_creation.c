/* Creation and access: what makes tensors of host memory, says what they are, and hands their bytes back. */
static int aborted;
#define TG_ABORT() (aborted++)
#define TENSORGRAD_IMPLEMENTATION
#include "../tensorgrad.h"
#include "harness.h"

static int deleted;
static void count_deletion(void *user) { *(int *)user += 1; }

TEST(what_the_build_is)
{
    CHECK(strcmp(tg_version(), TG_VERSION_STRING) == 0);
    CHECK(strncmp(tg_build_info(), "tensorgrad " TG_VERSION_STRING, strlen("tensorgrad " TG_VERSION_STRING)) == 0);
    CHECK(!tg_cuda_is_available() && tg_cuda_device_count() == 0 && tg_cuda_current_device() == 0);
    CHECK_FAILS(tg_cuda_set_device(0), "not compiled with CUDA");
}

TEST(empty_tensors_have_shape_dtype_and_device)
{
    tg_tensor *a = tg_empty(TG_SHAPE(2, 3)), *b = tg_empty_on(TG_SHAPE(4), TG_BF16, TG_CPU), *c = tg_empty_like(b);
    CHECK(tg_ndim(a) == 2 && tg_numel(a) == 6 && tg_dtype_of(a) == TG_F32 && tg_is_contiguous(a));
    CHECK(tg_dtype_of(b) == TG_BF16 && tg_dtype_of(c) == TG_BF16 && tg_dim(c, 0) == 4 && c != b);
    CHECK(!tg_is_cuda(a) && tg_device_equal(tg_device_of(c), TG_CPU));
    CHECK_FAILS(tg_empty(TG_SHAPE(-1)), "negative dimension -1");
    CHECK_FAILS(tg_empty_on(TG_SHAPE(1), TG_F32, TG_CUDA(0)), "CUDA");
    CHECK_FAILS(tg_empty_like(NULL), "argument t is NULL");
    CHECK(tg_is_cuda(NULL) == false && !tg_ok());
    tg_clear_error();
}

TEST(host_memory_is_copied)
{
    float f[4] = {1.5f, -2, 0, 3};
    uint8_t u[3] = {0, 200, 255};
    tg_tensor *a = tg_from_f32(f, TG_SHAPE(2, 2)), *b = tg_from_on(u, TG_SHAPE(3), TG_U8, TG_CPU);
    f[0] = 9;
    CHECK_NEAR(tg_get(a, TG_INDEX(0, 0)), 1.5, 0);
    CHECK_NEAR(tg_get(b, TG_INDEX(-1)), 255, 0);
    CHECK(tg_numel(tg_from_f32(NULL, TG_SHAPE(0, 3))) == 0 && tg_ok());
    CHECK_FAILS(tg_from_f32(NULL, TG_SHAPE(1)), "argument data is NULL");
}

TEST(wrapped_memory_is_borrowed)
{
    static double d[4] = {1, 2, 3, 4};
    {
        TG_SCOPE;
        tg_tensor *t = tg_wrap(d, TG_SHAPE(2, 2), TG_F64, count_deletion, &deleted), *row = tg_select(t, 0, 1);
        CHECK(tg_data_f64(t) == d && tg_data(row) == (void *)(d + 2) && tg_data_f64(row) == d + 2);
        CHECK(tg_mul_scalar_(row, 10) == row);
        CHECK_NEAR(d[3], 40, 0);
        CHECK(tg_stats().bytes == 0 && deleted == 0); /* its bytes are not the library's */
    }
    CHECK(deleted == 1);
    CHECK_FAILS(tg_wrap(NULL, TG_SHAPE(1), TG_F64, count_deletion, &deleted), "argument data is NULL");
    CHECK_FAILS(tg_wrap(d, TG_SHAPE(-1), TG_F64, count_deletion, &deleted), "negative dimension");
    CHECK(deleted == 1); /* a call that fails leaves the memory to the caller */
}

TEST(typed_pointers)
{
    tg_tensor *a = tg_ones(TG_SHAPE(2, 3));
    CHECK(tg_data_f32(a) != NULL && tg_data_f32(a) == (float *)tg_data(a));
    CHECK_FAILS(tg_data_f32(tg_t(a)), "non-contiguous");
    CHECK_FAILS(tg_data_f32(tg_eq_scalar(a, 1)), "bool");
    CHECK_FAILS(tg_data_i64(a), "f32");
    CHECK_FAILS(tg_data(NULL), "argument t is NULL");
}

TEST(names)
{
    tg_tensor *a = tg_ones(TG_SHAPE(2));
    char name[] = "weight";
    CHECK(strcmp(tg_name(a), "") == 0);
    CHECK(tg_set_name(a, name) == TG_OK);
    name[0] = 'W';
    CHECK(strcmp(tg_name(a), "weight") == 0); /* copied */
    CHECK(tg_set_name(a, NULL) == TG_OK && strcmp(tg_name(a), "") == 0);
    CHECK(strcmp(tg_name(NULL), "") == 0 && !tg_ok());
    tg_clear_error();
}

TEST(aborting_is_the_users_choice)
{
    tg_set_error_handler(tg_abort_on_error, NULL);
    CHECK(tg_add(tg_ones(TG_SHAPE(2)), tg_ones(TG_SHAPE(3))) == NULL && aborted == 1);
    CHECK(tg_relu(NULL) == NULL && aborted == 1); /* what only passes through is not raised again */
    tg_clear_error();
    tg_set_error_handler(NULL, NULL);
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    RUN(what_the_build_is);
    RUN(empty_tensors_have_shape_dtype_and_device);
    RUN(host_memory_is_copied);
    RUN(wrapped_memory_is_borrowed);
    RUN(typed_pointers);
    RUN(names);
    RUN(aborting_is_the_users_choice);
    return harness_end();
}
