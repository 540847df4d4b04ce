/* bugs.h: what finds mistakes in bugs.c: each function returns what it has to say, or NULL. */
#ifndef BUGS_H
#define BUGS_H
#include "engine.h"
#define TENSORGRAD_IMPLEMENTATION
#include "../tensorgrad.h"
#include <string.h>

static int mistake;  /* the one that is looked for, */
static int bug;      /* and which is planted; 0: none */
static bool verbose; /* all that is said is printed */
static int warnings; /* of the library, where no mistake is planted */
static char text[512];

static inline void heard(tg_status code, const char *what, void *user)
{
    (void)user;
    warnings += code == TG_OK && bug == 0;
    if (verbose) printf("%s\n", what);
}

/* The error of the library: its hint, or else its first line; without the number of a node, which changes. */
static inline const char *message(void)
{
    const char *all = tg_error_message(), *hint = strstr(all, "hint: ");
    if (tg_ok()) return NULL;
    snprintf(text, sizeof text, "%s", hint ? hint + strlen("hint: ") : all);
    text[strcspn(text, "\n")] = 0;
    if (strstr(text, " (node")) *strstr(text, " (node") = 0;
    tg_clear_error();
    return text;
}

/* The gradients of f by backward against numeric slopes, with a table of its inputs. */
static inline const char *gradcheck(tg_function f, tg_tensor *const *in, int n)
{
    tg_gradcheck_options options;
    memset(&options, 0, sizeof options);
    if (verbose && bug) options.report = stdout;
    tg_gradcheck_ex(f, in, n, NULL, &options);
    return message();
}

/* How far the stack of calls reaches: note_stack() is called where it may be deep. */
static uintptr_t stack_top, stack_deepest;
static inline void note_stack(void)
{
    volatile char here = 0;
    const uintptr_t at = (uintptr_t)&here + (uintptr_t)here;
    if (stack_top == 0) stack_top = stack_deepest = at;
    if (at < stack_deepest) stack_deepest = at;
}

/* The same for the engine: f of the first n values of the tape.  Then, whether backward took much of the stack. */
static inline const char *slopes(value *(*f)(void), int n, void (*backward)(value *root))
{
    v_forget(0);
    stack_top = 0;
    for (int i = 0; i < n; ++i) (void)v_leaf(0.5 - 0.4 * i);
    for (int i = 0; i < n; ++i) {
        double *x = &tape.values[i].data, here = *x, right, left;
        *x = here + 1e-6;
        right = f()->data;
        *x = here - 1e-6;
        left = f()->data;
        *x = here;
        backward(f());
        const double numeric = (right - left) / 2e-6, analytic = tape.values[i].grad;
        v_forget(n);
        if (fabs(numeric - analytic) > 1e-5 * (1 + fabs(numeric))) {
            snprintf(text, sizeof text, "the slope is %.4f, backward says %.4f", numeric, analytic);
            return text;
        }
    }
    if (stack_top - stack_deepest <= 16384) return NULL;
    return "5000 numbers take more than 16 KB of stack: a million would crash";
}

static inline value *twice(void) /* x and y are used twice */
{
    value *x = v_tanh(&tape.values[0]), *y = v_mul(x, &tape.values[1]);
    return v_add(v_mul(y, x), v_exp(y));
}

static inline value *chain(void)
{
    value *y = v_leaf(0);
    for (int i = 0; i < 5000; ++i) y = v_add(y, &tape.values[0]);
    return y;
}

#endif
