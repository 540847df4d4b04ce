/* Tensors from text and back, and the gradients that tests ask for.  Include it after harness.h.  C99 and C++11. */
#ifndef VALUES_H
#define VALUES_H

#include "harness.h"
#include <stdlib.h>

/* "1 2 3" is a vector, "1 2; 3 4" a matrix, "" an empty vector; inf and nan are numbers. */
static inline tg_tensor *of(tg_dtype dtype, const char *text)
{
    double values[64];
    int64_t rows = 1, n = 0;
    while (n < 64) {
        char *end;
        double value = strtod(text, &end);
        if (end == text) {
            while (*text == ' ') ++text;
            if (*text++ != ';') break;
            ++rows;
            continue;
        }
        values[n++] = value;
        text = end;
    }
    {
        tg_tensor *t = tg_from_f64(values, rows > 1 ? TG_SHAPE(rows, n / rows) : TG_SHAPE(n));
        return dtype == TG_F64 ? t : tg_to_dtype(t, dtype);
    }
}

static inline tg_tensor *f64(const char *text) { return of(TG_F64, text); }
static inline tg_tensor *leaf(const char *text) { return tg_set_requires_grad(f64(text), true); }
static inline tg_tensor *leaf_of(tg_dtype dtype, const char *text) { return tg_set_requires_grad(of(dtype, text), true); }
static inline tg_tensor *number(double value) { return tg_full_on(TG_SCALAR, value, TG_F64, HERE); }
static inline tg_tensor *number_leaf(double value) { return tg_set_requires_grad(number(value), true); }

/* Whether t has these elements, row-major, whatever its shape. */
static inline bool has(tg_tensor *t, const char *text)
{
    double values[64];
    const char *p = text;
    int64_t n = t ? tg_numel(t) : 0, i;
    double tolerance;
    bool same = t != NULL && n <= 64;
    if (same) {
        TG_NO_GRAD;
        tg_tensor *wide = tg_to_dtype(t, TG_F64);
        same = wide && tg_copy_out(wide, values, sizeof(double) * (size_t)n) == TG_OK;
        tolerance = tg_dtype_of(t) == TG_F64 ? 1e-12 : tg_dtype_of(t) == TG_F32 ? 1e-6 : 1e-2;
        for (i = 0; same && i <= n; ++i) {
            char *end;
            double wanted = strtod(p, &end);
            if (end == p) break;
            same = i < n && harness_close(values[i], wanted, tolerance);
            p = end;
        }
        same = same && i == n;
    }
    if (!same) {
        printf("    has");
        for (i = 0; i < n && i < 64; ++i) printf(" %.17g", values[i]);
        printf(t ? "\n" : " no tensor\n");
    }
    return same;
}
#define HAS(t, text) CHECK(has(t, text))

/* The gradient of sum(y) with respect to x. */
static inline tg_tensor *gradient(tg_tensor *y, tg_tensor *x, int flags)
{
    tg_tensor *sum = tg_sum(y), *g = NULL;
    tg_gradients(&sum, 1, NULL, &x, 1, &g, flags);
    return g;
}

static inline tg_status backward_sum(tg_tensor *y) { return tg_backward(tg_sum(y)); }

static inline tg_status backward_flags(tg_tensor *y, int flags)
{
    tg_tensor *sum = tg_sum(y);
    return tg_backward_ex(&sum, 1, NULL, flags);
}

static inline tg_status backward_with(tg_tensor *y, tg_tensor *g, int flags) { return tg_backward_ex(&y, 1, &g, flags); }

/* What the handler was told that is no error, after tg_set_error_handler(keep_warning, NULL). */
static char warned[1024];
static int warnings;
static inline void keep_warning(tg_status code, const char *message, void *user)
{
    (void)user;
    if (code != TG_OK) return;
    ++warnings;
    strncpy(warned, message, sizeof warned - 1);
}

#endif
