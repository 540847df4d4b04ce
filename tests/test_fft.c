/* Fourier transforms of sizes that take each way through the kernels: all small ones, primes, powers of 2, products; along each
 * dim, of one row and of many, in strided memory; and what is made of them: transforms of windows, and back. */
#include "tensorgrad.h"
#include "helpers.h"
#include <limits.h>

enum { COMPLEX, TO_HALF, FROM_HALF };

/* The definition, as products with matrices of cosines and sines on the CPU: y [rows, to, 2] or [rows, to] from x in f64 of
 * such shapes. */
static tg_tensor *defined(tg_tensor *x, int kind, int64_t n, int sign)
{
    int64_t from = kind == FROM_HALF ? n / 2 + 1 : n, to = kind == TO_HALF ? n / 2 + 1 : n;
    tg_tensor *product = tg_mul(tg_reshape(tg_arange_on(0, (double)from, 1, TG_I64, TG_CPU), TG_SHAPE(from, 1)),
                                tg_arange_on(0, (double)to, 1, TG_I64, TG_CPU));
    tg_tensor *angle, *c, *s, *re, *im = NULL;
    product = tg_remainder(product, tg_full_on(TG_SCALAR, (double)n, TG_I64, TG_CPU));
    angle = tg_mul_scalar(tg_to_dtype(product, TG_F64), sign * 6.283185307179586 / (double)n);
    c = tg_cos(angle), s = tg_sin(angle);
    if (kind == TO_HALF) {
        tg_tensor *parts[2];
        parts[0] = tg_matmul(x, c), parts[1] = tg_matmul(x, s);
        return tg_stack(parts, 2, -1);
    }
    re = tg_real(x), im = tg_imag(x);
    if (kind == FROM_HALF) { /* the middle ones stand for two, and the ends are real */
        int64_t k;
        tg_tensor *weight = tg_full_on(TG_SHAPE(from), 2, TG_F64, TG_CPU);
        for (k = 0; k < from; ++k)
            if (k == 0 || 2 * k == n) tg_set(weight, TG_INDEX(k), 1);
        return tg_sub(tg_matmul(tg_mul(re, weight), c), tg_matmul(tg_mul(im, weight), s));
    }
    {
        tg_tensor *parts[2];
        parts[0] = tg_sub(tg_matmul(re, c), tg_matmul(im, s));
        parts[1] = tg_add(tg_matmul(im, c), tg_matmul(re, s));
        return tg_stack(parts, 2, -1);
    }
}

/* Whether y is within a tolerance of the wanted tensor, beside its largest number. */
static bool is_close(tg_tensor *y, tg_tensor *wanted, double tolerance)
{
    tg_tensor *apart = tg_amax(tg_abs(tg_sub(tg_to_dtype(tg_cpu(y), TG_F64), wanted)));
    double most = tg_item(tg_amax(tg_abs(wanted))) + 1e-30;
    double error = apart ? tg_item(apart) / most : 1;
    if (!(error <= tolerance)) printf("an error of %g\n", error);
    return error <= tolerance;
}

static bool is_near(tg_tensor *t, const char *wanted, double tolerance)
{
    return is_nearly(t, f64(wanted), tolerance, tolerance);
}

/* Whether the definition, number by number, is what computes, at least in f64: tcc has no loops for that. */
static bool is_plain(void)
{
#ifdef __TINYC__
    return true;
#else
    return strcmp(tg_cpu_capability(), "plain") == 0;
#endif
}

static tg_tensor *transform(tg_tensor *x, int way, int64_t n, int dim)
{
    switch (way) {
    case 0: return tg_fft_fft(x, n, dim, NULL);
    case 1: return tg_fft_ifft(x, n, dim, "forward");
    case 2: return tg_fft_rfft(x, n, dim, "backward");
    case 3: return tg_fft_ihfft(x, n, dim, "forward");
    case 4: return tg_fft_irfft(x, n, dim, "forward");
    default: return tg_fft_hfft(x, n, dim, NULL);
    }
}

static void check_size(int64_t n, int64_t rows)
{
    static const int kinds[6] = {COMPLEX, COMPLEX, TO_HALF, TO_HALF, FROM_HALF, FROM_HALF};
    static const int signs[6] = {-1, 1, -1, 1, 1, -1};
    int way;
    for (way = 0; way < 6; ++way) {
        int kind = kinds[way];
        int64_t from = kind == FROM_HALF ? n / 2 + 1 : n;
        tg_mark mark = tg_scope_begin();
        tg_tensor *x = tg_randn_on(kind == TO_HALF ? TG_SHAPE(rows, n) : TG_SHAPE(rows, from, 2), TG_F64, TG_CPU);
        tg_tensor *wanted = defined(x, kind, n, signs[way]), *single = tg_to_dtype(x, TG_F32), *turned;
        CHECK(is_close(transform(tg_to(x, HERE), way, n, 1), wanted, 1e-12));
        CHECK(is_close(transform(tg_to(single, HERE), way, n, 1), wanted, 4e-6));
        /* along dim 0, of memory in that order */
        turned = transform(tg_to(tg_contiguous(tg_transpose(single, 0, 1)), HERE), way, n, 0);
        CHECK(is_close(tg_transpose(turned, 0, 1), wanted, 4e-6));
        tg_scope_end(mark);
    }
}

TEST(small_sizes)
{
    int64_t n;
    for (n = 1; n <= 64; ++n) check_size(n, n % 3 == 0 ? 35 : n % 3);
    for (n = 65; n <= 131; n += 3) check_size(n, 2);
}

TEST(products_and_primes)
{
    static const int sizes[] = {211, 243, 256, 257, 289, 300, 343, 403, 480, 500, 512, 625, 640, 800, 961, 1009, 1024};
    int i;
    for (i = 0; i < (int)(sizeof sizes / sizeof sizes[0]); ++i) {
        if (is_plain() && sizes[i] > 260) continue; /* by the definition there, too */
        check_size(sizes[i], 1);
        check_size(sizes[i], 19);
    }
}

/* Of large sizes: x[j] = exp(2 pi i f j / n) has one number, n, at f; and back. */
TEST(powers_of_2)
{
    int64_t n;
    for (n = 2; n <= (is_plain() ? 512 : 65536); n *= 2) {
        int64_t f = n * 3 / 8;
        tg_mark mark = tg_scope_begin();
        tg_tensor *angle = tg_remainder(tg_mul_scalar(tg_arange_on(0, (double)n, 1, TG_I64, HERE), (double)f),
                                        tg_full_on(TG_SCALAR, (double)n, TG_I64, HERE));
        tg_tensor *x, *y, *one = tg_zeros_on(TG_SHAPE(n, 2), TG_F64, TG_CPU), *noise, *back;
        angle = tg_mul_scalar(tg_to_dtype(angle, TG_F64), 6.283185307179586 / (double)n);
        x = tg_polar(tg_ones_like(angle), angle);
        y = tg_fft_fft(x, -1, 0, NULL);
        tg_set(one, TG_INDEX(f, 0), (double)n);
        CHECK(is_close(y, one, 1e-12));
        noise = tg_randn_on(TG_SHAPE(3, n), TG_F32, HERE);
        back = tg_fft_irfft(tg_fft_rfft(noise, -1, -1, "ortho"), n, -1, "ortho");
        CHECK(is_close(back, tg_to_dtype(tg_cpu(noise), TG_F64), 2e-6));
        back = tg_fft_ifft(tg_fft_fft(tg_complex(noise, NULL), -1, -1, NULL), -1, -1, NULL);
        CHECK(is_close(tg_real(back), tg_to_dtype(tg_cpu(noise), TG_F64), 2e-6));
        tg_scope_end(mark);
    }
}

/* A strided, an expanded and a contiguous x give the same bits; and so do many rows and the first ones of them, where they are
 * transformed side by side. */
TEST(layouts)
{
    tg_tensor *x = tg_randn_on(TG_SHAPE(30, 40, 2), TG_F32, HERE), *y = tg_fft_fft(tg_transpose(x, 0, 1), -1, -1, NULL);
    tg_tensor *row = tg_randn_on(TG_SHAPE(1, 21), TG_F32, HERE), *wide = tg_expand(row, TG_SHAPE(5, 21));
    CHECK(tg_equal(y, tg_fft_fft(tg_contiguous(tg_transpose(x, 0, 1)), -1, -1, NULL)));
    CHECK(tg_equal(tg_fft_rfft(wide, -1, -1, NULL), tg_fft_rfft(tg_contiguous(wide), -1, -1, NULL)));
    y = tg_fft_fft(x, -1, 1, NULL);
    CHECK(tg_equal(tg_narrow(y, 0, 0, 3), tg_fft_fft(tg_narrow(x, 0, 0, 3), -1, 1, NULL)));
    y = tg_fft_fft(tg_slice(x, 1, 0, 40, 2), -1, 1, NULL);
    CHECK(tg_equal(y, tg_fft_fft(tg_contiguous(tg_slice(x, 1, 0, 40, 2)), -1, 1, NULL)));
}

/* In several dims as one after the other; padded and cut; in 16 bits. */
TEST(several_dims)
{
    tg_tensor *x = tg_randn_on(TG_SHAPE(4, 5, 6, 2), TG_F64, HERE), *y, *z;
    tg_shape bad = TG_SCALAR;
    y = tg_fft_fft(tg_fft_fft(x, 7, 0, NULL), 3, 2, NULL);
    CHECK(tg_allclose(tg_fft_fftn(x, TG_DIMS(7, 3), TG_DIMS(0, 2), NULL), y, 1e-12, 1e-12));
    z = tg_fft_fft2(tg_fft_ifft2(x, TG_SCALAR, TG_SCALAR, NULL), TG_SCALAR, TG_SCALAR, NULL);
    CHECK(tg_allclose(z, x, 1e-12, 1e-12));
    y = tg_real(x);
    z = tg_fft_irfftn(tg_fft_rfftn(y, TG_SCALAR, TG_SCALAR, "ortho"), TG_DIMS(4, 5, 6), TG_SCALAR, "ortho");
    CHECK(tg_allclose(z, y, 1e-12, 1e-12));
    z = tg_fft_ihfft2(tg_fft_hfft2(x, TG_SCALAR, TG_SCALAR, NULL), TG_SCALAR, TG_SCALAR, NULL);
    CHECK(tg_dim(z, 2) == 6 && tg_ndim(z) == 4);
    z = tg_fft_rfft(tg_to_dtype(y, TG_BF16), -1, -1, NULL);
    CHECK(tg_dtype_of(z) == TG_BF16);
    CHECK(tg_dtype_of(tg_fft_rfft(tg_arange_on(0, 4, 1, TG_I64, HERE), -1, -1, NULL)) == TG_F32);
    y = tg_randn_on(TG_SHAPE(1, 1, 1, 1, 1, 1, 3, 2), TG_F64, HERE); /* 8 dims, of which the first is padded */
    CHECK(tg_dim(tg_fft_fft(y, 4, 0, NULL), 0) == 4);
    bad.ndim = INT_MIN;
    CHECK_FAILS(tg_fft_fft2(x, bad, TG_SCALAR, NULL), "at most 8 dims");
    CHECK_FAILS(tg_fft_irfftn(x, TG_SCALAR, bad, NULL), "at most 8 dims");
    CHECK_FAILS(tg_fft_ifftshift(x, bad), "at most 8 dims");
}

TEST(frequencies)
{
    CHECK(is_near(tg_fft_fftfreq(5, 0.5), "[0, 0.4, 0.8, -0.8, -0.4]", 1e-7));
    CHECK(is_near(tg_fft_fftfreq(4, 1), "[0, 0.25, -0.5, -0.25]", 1e-7));
    CHECK(is_near(tg_fft_fftfreq(1, 1), "[0]", 1e-7));
    CHECK(is_near(tg_fft_rfftfreq(5, 0.5), "[0, 0.4, 0.8]", 1e-7));
    CHECK_FAILS(tg_fft_fftfreq(0, 1), "n > 0 and d != 0");
    CHECK_FAILS(tg_fft_rfftfreq(3, 0), "n > 0 and d != 0");
}

TEST(windows)
{
    tg_set_default_dtype(TG_F64);
    CHECK(is_near(tg_hann_window(5, true), "[0, 0.345491502813, 0.904508497187, 0.904508497187, 0.345491502813]", 1e-11));
    CHECK(is_near(tg_hann_window(5, false), "[0, 0.5, 1, 0.5, 0]", 1e-11));
    CHECK(is_near(tg_hamming_window(4, true, 0.54, 0.46), "[0.08, 0.54, 1, 0.54]", 1e-11));
    CHECK(is_near(tg_blackman_window(4, true), "[0, 0.34, 1, 0.34]", 1e-11));
    CHECK(is_near(tg_bartlett_window(5, true), "[0, 0.4, 0.8, 0.8, 0.4]", 1e-11));
    CHECK(is_near(tg_kaiser_window(4, true, 12), "[5.27734413201e-05, 0.215672744759, 1, 0.215672744759]", 1e-11));
    CHECK(is_near(tg_kaiser_window(4, false, 3), "[0.204884756401, 0.87124187408, 0.87124187408, 0.204884756401]", 1e-11));
    CHECK(is_near(tg_hann_window(1, true), "[1]", 1e-11));
    CHECK(tg_numel(tg_hann_window(0, true)) == 0);
    tg_set_default_dtype(TG_F32);
    CHECK(tg_dtype_of(tg_bartlett_window(3, false)) == TG_F32);
    CHECK_FAILS(tg_kaiser_window(-1, true, 12), "non-negative window_length");
    CHECK_FAILS(tg_blackman_window(-1, true), "non-negative window_length");
    CHECK_FAILS(tg_hamming_window(-1, true, 0.54, 0.46), "non-negative window_length");
    CHECK_FAILS(tg_bartlett_window(-1, true), "non-negative window_length");
}

TEST(windows_and_back)
{
    tg_tensor *x = tg_randn_on(TG_SHAPE(2, 100), TG_F64, HERE), *window = tg_to(tg_hann_window(16, true), HERE), *y;
    y = tg_stft(x, 20, 5, window, true, "reflect", true, true);
    CHECK(tg_ndim(y) == 4 && tg_dim(y, 1) == 11 && tg_dim(y, 2) == 21);
    CHECK(tg_allclose(tg_istft(y, 20, 5, window, true, true, true, 100), x, 1e-9, 1e-9));
    y = tg_stft(x, 16, 0, NULL, false, NULL, false, false);
    CHECK(tg_dim(y, 1) == 16 && tg_dim(y, 2) == 22);
    CHECK(tg_allclose(tg_istft(y, 16, 0, NULL, false, false, false, -1), x, 1e-9, 1e-9));
    CHECK_FAILS(tg_istft(y, 16, INT64_MAX, NULL, false, false, false, -1), "is too large");
    CHECK_FAILS(tg_istft(y, 16, 0, NULL, true, false, false, INT64_MAX), "is too large");
    CHECK_FAILS(tg_istft(y, 16, 0, tg_zeros_on(TG_SHAPE(16), TG_F64, HERE), false, false, false, -1),
                "window overlap add min");
}

static tg_tensor *spectrum(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    return tg_fft_rfft(in[0], -1, -1, NULL);
}

static tg_tensor *signal_of(tg_tensor *const *in, int n, void *user)
{
    return (void)n, tg_fft_irfft(in[0], *(int64_t *)user, -1, "ortho");
}

/* Gradients through a prime that is a convolution. */
TEST(gradients_of_primes)
{
    tg_tensor *x = tg_set_requires_grad(tg_randn_on(TG_SHAPE(37), TG_F64, HERE), true);
    tg_tensor *z = tg_set_requires_grad(tg_randn_on(TG_SHAPE(20, 2), TG_F64, HERE), true);
    int64_t odd = 39, even = 38;
    CHECK(tg_gradcheck(spectrum, &x, 1, NULL));
    CHECK(tg_gradcheck(signal_of, &z, 1, &odd));
    CHECK(tg_gradgradcheck(signal_of, &z, 1, &even));
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    tg_seed(3);
    RUN(small_sizes);
    RUN(products_and_primes);
    RUN(powers_of_2);
    RUN(layouts);
    RUN(several_dims);
    RUN(frequencies);
    RUN(windows);
    RUN(windows_and_back);
    RUN(gradients_of_primes);
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
