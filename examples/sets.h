/* sets.h: six more sets of points in two classes for 05_moons.c, as those that MiniTorch draws. */
#ifndef SETS_H
#define SETS_H
#include "../tensorgrad.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SIMPLE, DIAGONAL, SPLIT, XOR, CIRCLE, SPIRAL, SETS };
static const char *const set_names[SETS] = {"simple", "diagonal", "split", "xor", "circle", "spiral"};

/* Whether a point of the square from (0, 0) to (1, 1) is in the first class. */
static inline bool is_first(int set, double x, double y)
{
    switch (set) {
    case SIMPLE: return x < 0.5;
    case DIAGONAL: return x + y < 1;
    case SPLIT: return x < 0.25 || x > 0.75;
    case XOR: return (x < 0.5) != (y < 0.5);
    default: return hypot(x - 0.5, y - 0.5) < 0.35; /* CIRCLE */
    }
}

/* Draws n points of the set of this name, points [n, 2] from (-1, -0.75) to (2, 1.25), and their labels [n], 1 and -1;
   false, with the names that there are, if there is none of this name. */
static inline bool make_set(const char *name, int n, tg_tensor **points, tg_tensor **labels)
{
    int set = 0;
    while (set < SETS && strcmp(name, set_names[set]) != 0) ++set;
    if (set == SETS) {
        printf("%s: the sets are", name);
        for (int i = 0; i < SETS; ++i) printf(" %s", set_names[i]);
        printf("\n");
        return false;
    }
    *points = tg_rand_on(TG_SHAPE(n, 2), TG_F64, TG_CPU);
    *labels = tg_full_on(TG_SHAPE(n), 0, TG_F64, TG_CPU);
    double *point = tg_data_f64(*points), *label = tg_data_f64(*labels);
    for (int i = 0; point && label && i < n; ++i) {
        double x = point[2 * i], y = point[2 * i + 1];
        bool first = is_first(set, x, y);
        if (set == SPIRAL) { /* two arms from the middle, each half a turn behind the other */
            const double along = (i / 2 + 1.0) / (n / 2), angle = 6 * along + (i % 2 ? 3.14159265358979324 : 0);
            x = 0.5 + 0.5 * along * cos(angle) + 0.02 * (x - 0.5);
            y = 0.5 + 0.5 * along * sin(angle) + 0.02 * (y - 0.5);
            first = i % 2 != 0;
        }
        point[2 * i] = 3 * x - 1;
        point[2 * i + 1] = 2 * y - 0.75;
        label[i] = first ? 1 : -1;
    }
    return tg_ok();
}
#endif
