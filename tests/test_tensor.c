/* Creation and access: tensors made of host memory, their properties, and copies of their bytes; the allocator, the
 * default error handler and random numbers. */
#if !defined(__cplusplus) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L /* dup, fileno */
#endif
#include "../tensorgrad.h"
#include "harness.h"
#include "inside.h"
#include <limits.h>
#include <unistd.h>

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
        CHECK(tg_stats().bytes == 0 && deleted == 0); /* its bytes do not belong to the library */
    }
    CHECK(deleted == 1);
    CHECK_FAILS(tg_wrap(NULL, TG_SHAPE(1), TG_F64, count_deletion, &deleted), "argument data is NULL");
    CHECK_FAILS(tg_wrap(d, TG_SHAPE(-1), TG_F64, count_deletion, &deleted), "negative dimension");
    CHECK(deleted == 1); /* a call that fails leaves the memory to the caller */
}

/* Memory that is only read: a write of any kind is an error, and the array stays as it is. */
static const float read_only[4] = {1, -2, 3, 4};

#define REFUSED(call) CHECK_FAILS(call, "is read-only\n  hint: write to a copy of its own: tg_clone(t)")

TEST(memory_that_is_read_only)
{
    deleted = 0;
    {
        TG_SCOPE;
        tg_tensor *t = tg_wrap_const(read_only, TG_SHAPE(2, 2), TG_F32, count_deletion, &deleted), *row = tg_select(t, 0, 1);
        tg_tensor *flat = tg_view(t, TG_SHAPE(4)), *list[1];
        CHECK(tg_data_f32(t) == read_only && tg_data(row) == (const void *)(read_only + 2) && tg_version_of(t) == 0);
        CHECK(tg_stats().bytes == 0);
        CHECK_NEAR(tg_item(tg_sum(t)), 6, 0);
        CHECK_FAILS(tg_add_(t, t), "tg_add_: the memory of the tensor, of shape [2, 2], is read-only\n"
                                   "  hint: write to a copy of its own: tg_clone(t)");
        REFUSED(tg_mul_scalar_(row, 10));
        REFUSED(tg_relu_(tg_transpose(t, 0, 1)));
        REFUSED(tg_fill_(flat, 0));
        REFUSED(tg_zero_(tg_detach(t)));
        REFUSED(tg_copy_(row, tg_zeros(TG_SHAPE(2))));
        REFUSED(tg_set(t, TG_INDEX(0, 0), 7));
        REFUSED(tg_touch_(t));
        REFUSED(tg_scatter_(flat, 0, tg_full_on(TG_SHAPE(1), 0, TG_I64, TG_CPU), tg_zeros(TG_SHAPE(1))));
        list[0] = tg_full_on(TG_SHAPE(1), 0, TG_I64, TG_CPU);
        REFUSED(tg_index_put_(flat, list, 1, tg_zeros(TG_SHAPE(1)), false));
        REFUSED(tg_uniform_(t, 0, 1));
        REFUSED(tg_kaiming_uniform_(t, 0, "fan_in", "relu"));
        REFUSED(tg_orthogonal_(t, 1));
        REFUSED(tg_batch_norm(tg_ones(TG_SHAPE(3, 4)), tg_zeros(TG_SHAPE(4)), flat, NULL, NULL, true, 0.1, 1e-5));
        REFUSED(tg_batch_norm(tg_ones(TG_SHAPE(3, 4)), flat, tg_ones(TG_SHAPE(4)), NULL, NULL, true, 0.1, 1e-5));
        CHECK(tg_batch_norm(tg_ones(TG_SHAPE(3, 4)), flat, flat, NULL, NULL, false, 0.1, 1e-5) != NULL && tg_ok());
        tg_set_name(t, "table");
        CHECK_FAILS(tg_neg_(row), "the memory of the tensor 'table', of shape [2], is read-only");
        CHECK(tg_mul_scalar_(tg_clone(t), 2) != NULL && tg_add_(tg_zeros_like(t), t) != NULL && tg_ok());
        CHECK(tg_contiguous(t) == t && tg_to(t, TG_CPU) == t);
        CHECK(deleted == 0);
    }
    CHECK(deleted == 1);
    CHECK(read_only[0] == 1 && read_only[1] == -2 && read_only[2] == 3 && read_only[3] == 4);
    CHECK_FAILS(tg_wrap_const(NULL, TG_SHAPE(1), TG_F32, count_deletion, &deleted), "tg_wrap_const: argument data is NULL");
    CHECK_FAILS(tg_wrap_const(read_only, TG_SHAPE(-1), TG_F32, NULL, NULL), "negative dimension");
    CHECK(deleted == 1);
    tg_tensor *none = tg_wrap_const(NULL, TG_SHAPE(0, 3), TG_F32, NULL, NULL);
    CHECK(none && tg_numel(none) == 0);
}

/* A parameter in such memory gets gradients, and no step; gradients that are such memory are added to elsewhere. */
TEST(gradients_of_read_only_memory)
{
    TG_SCOPE;
    tg_tensor *t = tg_wrap_const(read_only, TG_SHAPE(4), TG_F32, NULL, NULL), *other = tg_ones(TG_SHAPE(2));
    tg_tensor *params[2];
    tg_set_requires_grad(t, true);
    tg_set_requires_grad(other, true);
    params[0] = other, params[1] = t;
    tg_optim *sgd = tg_sgd(params, 2, 0.5);
    CHECK(tg_backward(tg_sum(other)) == TG_OK && tg_step(sgd) == TG_OK); /* without a gradient it is left out */
    CHECK_NEAR(tg_item(tg_sum(other)), 1, 0);
    for (int i = 0; i < 2; ++i) CHECK(tg_backward(tg_sum(tg_mul(t, t))) == TG_OK);
    CHECK_NEAR(tg_get(tg_grad(t), TG_INDEX(1)), -8, 0);
    REFUSED(tg_step(sgd));
    CHECK_NEAR(tg_item(tg_sum(other)), 1, 0); /* nothing has been written */
    tg_optim_free(sgd);
    tg_set_grad(other, tg_select(tg_wrap_const(read_only, TG_SHAPE(2, 2), TG_F32, NULL, NULL), 0, 1));
    params[0] = t, params[1] = other;
    REFUSED(tg_clip_grad_norm(params, 2, 1e-3));
    CHECK_NEAR(tg_get(tg_grad(t), TG_INDEX(1)), -8, 0);
    CHECK(tg_backward(tg_sum(other)) == TG_OK);
    CHECK_NEAR(tg_get(tg_grad(other), TG_INDEX(1)), 5, 0);
    CHECK(read_only[2] == 3 && read_only[3] == 4);
}

static const double read_only_wide[2] = {1, 2};
static tg_tensor *square(tg_tensor *const *in, int n, void *user) { (void)n, (void)user; return tg_mul(in[0], in[0]); }

TEST(gradcheck_writes_no_read_only_memory)
{
    TG_SCOPE;
    tg_tensor *t = tg_wrap_const(read_only_wide, TG_SHAPE(2), TG_F64, NULL, NULL);
    tg_set_requires_grad(t, true);
    CHECK_FAILS(tg_gradcheck(square, &t, 1, NULL), "tg_gradcheck: the memory of the tensor, of shape [2], is read-only");
}

/* The allocator of this program: malloc, but no block of more than 1 GiB. */
static void *small_alloc(size_t bytes, void *user)
{
    (void)user;
    return bytes > (size_t)1 << 30 ? NULL : malloc(bytes);
}
static void small_free(void *p, size_t bytes, void *user)
{
    (void)bytes, (void)user;
    free(p);
}

TEST(out_of_memory_names_device_and_figures)
{
    TG_SCOPE;
    tg_tensor *kept = tg_empty(TG_SHAPE(300000)), *dropped = tg_empty(TG_SHAPE(65536)), *row;
    /* its memory is kept for reuse, and freed when an allocation fails, except the memory of handles */
    tg_drop(dropped);
    CHECK(!tg_empty(TG_SHAPE((int64_t)1 << 42)));
    CHECK(strstr(tg_error_message(), "tg_empty: cpu is out of memory: tried to allocate 16.00 TiB, 1.14 MiB in use, "));
    if (sizeof(size_t) == 8) { /* with 32 bits the size is refused before the cache is emptied */
        CHECK(strstr(tg_error_message(), " kept for reuse") && tg_stats().cached_bytes < 65536);
    }
    tg_clear_error();
    CHECK(tg_error_code() == TG_OK && tg_numel(kept) == 300000);
    dropped = tg_empty(TG_SHAPE(65536));
    tg_drop(dropped);
    CHECK(tg_empty_cache(TG_CPU) == TG_OK && tg_stats().cached_bytes < 65536);
    CHECK_FAILS(tg_empty_on(TG_SHAPE((int64_t)1 << 58), TG_F64, TG_CPU), /* the allocator is not called */
                "tried to allocate 2097152.00 TiB, 1.14 MiB in use, ");
    CHECK(strstr(inside_size_text(1023), "1023 bytes") && strstr(inside_size_text(1536), "1.50 KiB"));
    CHECK(strstr(inside_size_text(3e9), "2.79 GiB"));
    row = tg_zeros(TG_SHAPE(1)); /* a host block that is no tensor's: a sort's scratch */
    CHECK_FAILS(tg_cumsum(tg_expand(row, TG_SHAPE((int64_t)1 << 40)), 0), "cpu is out of memory");
}

TEST(typed_pointers)
{
    tg_tensor *a = tg_ones(TG_SHAPE(2, 3));
    CHECK(tg_data_f32(a) != NULL && tg_data_f32(a) == (float *)tg_data(a));
    CHECK_FAILS(tg_data_f32(tg_t(a)), "tg_data_f32: the tensor is non-contiguous\n  hint: tg_contiguous makes one");
    CHECK_FAILS(tg_data_f32(tg_eq_scalar(a, 1)), "the tensor is bool, not f32\n  hint: tg_to_dtype makes one");
    CHECK_FAILS(tg_data_i64(tg_t(a)),
                "the tensor is f32, not i64, and non-contiguous\n  hint: tg_to_dtype with tg_contiguous makes");
    CHECK_FAILS(tg_data(NULL), "argument t is NULL");
}

static int made;
static tg_tensor *next(void) { return tg_full(TG_SHAPE(1), ++made); }

TEST(a_list_evaluates_each_element_once)
{
    tg_tensor *rows[2] = {next(), next()}, **at = rows, *all, *x = tg_param(tg_ones(TG_SHAPE(2, 2)));
    all = tg_cat(TG_LIST(tg_cat(TG_LIST(next(), tg_cat(TG_LIST(next()), 0)), 0), tg_neg(*at++)), 0);
    CHECK(made == 4 && at == rows + 1 && tg_numel(all) == 3);
    CHECK_NEAR(tg_item(tg_sum(all)), 3 + 4 - 1, 0);
    CHECK_NEAR(tg_get(tg_einsum("ij,jk->ik", TG_LIST(x, tg_mul_scalar(x, 2))), TG_INDEX(1, 0)), 4, 0);
    CHECK_NEAR(tg_item(tg_select(tg_index(all, TG_LIST(tg_arange_on(2, 3, 1, TG_I64, TG_CPU))), 0, 0)), -1, 0);
    CHECK(tg_backward_ex(TG_LIST(tg_sum(x), tg_sum(tg_square(x))), NULL, 0) == TG_OK);
    CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(0, 1)), 3, 0);
    CHECK_FAILS(tg_cat(TG_LIST(all, NULL), 0), "NULL");
    tg_release(x);
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

/* What the default handler prints of a call that is made several times, as text. */
static const char *printed(void (*call)(void), int times)
{
    static char text[4096];
    FILE *file = tmpfile();
    int saved = dup(2);
    size_t n;
    fflush(stderr);
    if (!file || saved < 0 || dup2(fileno(file), 2) < 0) return "no file";
    inside_print_first_errors();
    while (times-- > 0) call();
    tg_set_error_handler(NULL, NULL);
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    rewind(file);
    n = fread(text, 1, sizeof text - 1, file);
    text[n] = 0;
    fclose(file);
    return text;
}
static void mistake(void) { (void)tg_data_i64(tg_ones(TG_SHAPE(2))); }
static void other_mistakes(void)
{
    (void)tg_narrow(tg_ones(TG_SHAPE(2)), 5, 0, 1);
    mistake();
}
static void sixteen_mistakes(void)
{
    for (int dim = 1; dim <= 16; ++dim) (void)tg_narrow(tg_ones(TG_SHAPE(2)), dim, 0, 1);
}
static int times_handled;
static void count_errors(tg_status code, const char *text, void *user)
{
    (void)code, (void)text, (void)user;
    ++times_handled;
}

TEST(the_default_handler_prints_a_text_once)
{
    const char *once = "tensorgrad: tg_data_i64: the tensor is f32, not i64\n", *found, *text;
    text = printed(mistake, 3);
    found = strstr(text, once);
    CHECK(found == text && !strstr(found + 1, "tensorgrad: "));
    text = printed(other_mistakes, 50); /* nor by turns with others */
    CHECK(!strstr(text, once) && strcmp(text, "tensorgrad: tg_narrow: Dimension out of range (expected to be in range of "
                                              "[-1, 0], but got 5)\n") == 0);
    CHECK(*printed(other_mistakes, 1) == 0);
    text = printed(sixteen_mistakes, 1); /* the last of these has pushed the first one out, which is printed again */
    CHECK(strstr(text, "expected to be in range of [-1, 0], but got 15)\n") != NULL);
    text = printed(mistake, 2);
    found = strstr(text, once);
    CHECK(found == text && !strstr(found + 1, "tensorgrad: "));
    tg_set_error_handler(count_errors, NULL);
    mistake(), mistake(), mistake();
    CHECK(times_handled == 3); /* a handler of the program gets every message */
    tg_set_error_handler(NULL, NULL);
    tg_clear_error();
}

TEST(a_full_device_is_an_error)
{
    FILE *full = fopen("/dev/full", "w");
    tg_tensor *x = tg_param(tg_ones(TG_SHAPE(2))), *y = tg_sum(x);
    if (full) {
        CHECK(tg_fprint(full, x) == TG_ERR_IO);
        clearerr(full), tg_clear_error();
        CHECK(tg_tape_print(full, y) == TG_ERR_IO);
        clearerr(full), tg_clear_error();
        CHECK(tg_tape_dot(full, y) == TG_ERR_IO);
        fclose(full);
    }
    tg_clear_error();
    tg_release(x);
}

TEST(any_number_of_threads_is_taken)
{
    tg_tensor *x = tg_full(TG_SHAPE(1 << 20), 0.1), *alone, *many;
    tg_set_num_threads(1);
    alone = tg_exp(x);
    tg_set_num_threads(INT_MAX);
    many = tg_exp(x);
    CHECK(tg_equal(alone, many));
    tg_set_num_threads(40000);
    CHECK(tg_equal(tg_sum(alone), tg_sum(tg_exp(x))));
    tg_set_num_threads(0);
}

/* Uniform numbers have as many bits as the dtype, so that none is rounded up to 1. */
TEST(uniform_numbers_of_half_dtypes)
{
    static const struct {
        tg_dtype dtype;
        double steps;
    } halves[] = {{TG_F16, 2048}, {TG_BF16, 256}};
    static double number[20000];
    int i, k;
    tg_seed(1);
    for (k = 0; k < 2; ++k) {
        double low = 1, high = 0;
        bool whole = true;
        tg_tensor *x = tg_to_dtype(tg_rand_on(TG_SHAPE(20000), halves[k].dtype, TG_CPU), TG_F64);
        CHECK(tg_copy_out(x, number, sizeof number) == TG_OK);
        for (i = 0; i < 20000; ++i) {
            const double steps = number[i] * halves[k].steps;
            whole = whole && steps == floor(steps);
            if (number[i] < low) low = number[i];
            if (number[i] > high) high = number[i];
        }
        CHECK(whole && low >= 0 && low < 0.01 && high > 0.99 && high < 1);
        CHECK_NEAR(tg_item(tg_mean(x)), 0.5, 0.01);
    }
}

/* Each class is one size, the sizes grow with the classes without a gap, and a block of a class holds what was asked for:
   a freed block is handed out for any size of its class. */
TEST(size_classes_are_one_size_each)
{
    size_t last = 0, rounded = 0, more;
    int k = -1, wrong = 0, last_class;
    const size_t most = inside_largest_class(&last_class);
    for (size_t bytes = 0; bytes < 300000; ++bytes) {
        const int before = k;
        k = inside_size_class(bytes, &rounded);
        wrong += rounded < bytes || k < 0 || k > last_class;
        wrong += rounded == last ? k != before : k != before + 1 || rounded < last;
        wrong += inside_size_class(rounded, &more) != k || more != rounded;
        last = rounded;
    }
    CHECK(wrong == 0);
    CHECK(inside_size_class(most, &rounded) == last_class && rounded == most);
    CHECK(inside_size_class(most + 1, &rounded) == -1);
}

TEST(aborting_is_the_users_choice)
{
    int aborted = 0;
    inside_count_aborts(&aborted);
    tg_set_error_handler(tg_abort_on_error, NULL);
    CHECK(tg_add(tg_ones(TG_SHAPE(2)), tg_ones(TG_SHAPE(3))) == NULL && aborted == 1);
    CHECK(tg_relu(NULL) == NULL && aborted == 1); /* an error that is passed on is not recorded again */
    tg_clear_error();
    tg_set_error_handler(NULL, NULL);
    inside_count_aborts(NULL);
}

int main(int argc, char **argv)
{
    const tg_allocator allocator = {small_alloc, small_free, NULL};
    harness_begin(argc, argv);
    CHECK(tg_set_allocator(&allocator) == TG_OK);
    RUN(what_the_build_is);
    RUN(empty_tensors_have_shape_dtype_and_device);
    RUN(host_memory_is_copied);
    RUN(wrapped_memory_is_borrowed);
    RUN(memory_that_is_read_only);
    RUN(gradients_of_read_only_memory);
    RUN(gradcheck_writes_no_read_only_memory);
    RUN(out_of_memory_names_device_and_figures);
    RUN(typed_pointers);
    RUN(a_list_evaluates_each_element_once);
    RUN(names);
    RUN(the_default_handler_prints_a_text_once);
    RUN(a_full_device_is_an_error);
    RUN(any_number_of_threads_is_taken);
    RUN(uniform_numbers_of_half_dtypes);
    RUN(size_classes_are_one_size_each);
    RUN(aborting_is_the_users_choice);
    return harness_end();
}
