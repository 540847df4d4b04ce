/* digits.h: draws the digits that 10_mnist.c learns to read when it has no others. */
#ifndef DIGITS_H
#define DIGITS_H
#include "../tensorgrad.h"
#include <math.h>

enum { SIDE = 28, IMAGES = 10000 };

/* The distance of the point (x, y) from the line that joins two others. */
static inline double distance(double x, double y, const double *a, const double *b)
{
    const double dx = b[0] - a[0], dy = b[1] - a[1], length = dx * dx + dy * dy + 1e-9;
    const double part = fmax(0, fmin(1, ((x - a[0]) * dx + (y - a[1]) * dy) / length));
    return hypot(x - a[0] - part * dx, y - a[1] - part * dy);
}

/* Draws a digit: a stroke from point to point of a grid, abc/def/ghi/jkl/mno from the top.  32 random numbers r say how
   far each point is off its place, how the grid is scaled, turned and moved, and how thick the stroke is. */
static inline void draw(uint8_t *pixel, int64_t digit, const double *r)
{
    static const char *const strokes[] = {"bflnjdb", "dbn",     "dbfmo", "dbfhlnj",   "bgihen",
                                          "caghlnm", "bdjnlhg", "acn",   "bdhlnjhfb", "fbdhfn"};
    const char *const stroke = strokes[digit];
    const double c = cos(0.6 * (r[0] - 0.5)), s = sin(0.6 * (r[0] - 0.5));
    double point[12][2];
    for (int i = 0; stroke[i]; ++i) {
        const double x = (4 + 3 * r[1]) * ((stroke[i] - 'a') % 3 - 1 + 0.5 * (r[8 + 2 * i] - 0.5));
        const double y = (3.2 + 1.8 * r[2]) * ((stroke[i] - 'a') / 3 - 2 + 0.5 * (r[9 + 2 * i] - 0.5));
        point[i][0] = 10.5 + 6 * r[3] + c * x - s * y;
        point[i][1] = 10.5 + 6 * r[4] + s * x + c * y;
    }
    for (int at = 0; at < SIDE * SIDE; ++at) {
        double nearest = SIDE;
        for (int i = 1; stroke[i]; ++i)
            nearest = fmin(nearest, distance(at % SIDE, at / SIDE, point[i - 1], point[i]));
        pixel[at] = (uint8_t)(255 * fmax(0, fmin(1, 1.6 + 1.2 * r[5] - nearest)));
    }
}

/* labels i64 [IMAGES] -> images u8 [IMAGES, SIDE, SIDE] */
static inline tg_tensor *draw_digits(tg_tensor *labels)
{
    tg_tensor *images = tg_full_on(TG_SHAPE(IMAGES, SIDE, SIDE), 0, TG_U8, TG_CPU);
    tg_tensor *random = tg_rand_on(TG_SHAPE(IMAGES, 32), TG_F64, TG_CPU);
    for (int i = 0; i < IMAGES && tg_ok(); ++i)
        draw((uint8_t *)tg_data(images) + SIDE * SIDE * i, tg_data_i64(labels)[i], tg_data_f64(random) + 32 * i);
    return images;
}
#endif
