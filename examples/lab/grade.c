/* grade.c: grades tasks.c or another file with the functions of lab.h.

   ./grade      all tasks;  ./grade 3  task 3 alone

   Writes TAP, a line per task with its points and, where they are 0, why; then lines that begin with # say more.
   Exit code 0: all tasks that ran are right; 1: not all; 2: there is no such task.  Each task runs in a process of
   its own, so that a crash or an endless loop costs its points alone, and what it prints goes to stderr; on
   Windows, or with LAB_NO_FORK defined, they run in this process.  Keeps no secrets from a program that means harm:
   see LECTURER.md. */
#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700 /* of processes, with -std=c99, too */
#endif
#define TENSORGRAD_IMPLEMENTATION
#include "lab.h"
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#if !defined(_WIN32) && !defined(LAB_NO_FORK)
#define LAB_FORKS
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

enum { SECONDS = 2, ELEMENTS = 24, STEPS = 50 }; /* processor time of a task; the most elements of a result */

typedef struct {
    const char *name;
    int points;
    tg_custom_forward forward; /* NULL: task 7 */
    tg_custom_backward backward;
    tg_tensor *(*reference)(tg_tensor *const *in); /* what forward must compute */
    double factor; /* forward must also be right for in[0] times this */
    int inputs;
    const char *names[2];
    int shapes[2][2]; /* 0: no such dim */
} lab_task;

typedef struct {
    bool passed;
    char why[160], more[3600]; /* one line; some lines, each ends with '\n' */
} lab_verdict;

/* ---- what is graded ---- */

static tg_tensor *tanh_reference(tg_tensor *const *in) { return tg_tanh(in[0]); }
static tg_tensor *mul_reference(tg_tensor *const *in) { return tg_mul(in[0], in[1]); }
static tg_tensor *matmul_reference(tg_tensor *const *in) { return tg_matmul(in[0], in[1]); }
static tg_tensor *softmax_reference(tg_tensor *const *in) { return tg_softmax(in[0], -1); }
static tg_tensor *cross_entropy_reference(tg_tensor *const *in) { return tg_cross_entropy(in[0], in[1]); }
static tg_tensor *layer_norm_reference(tg_tensor *const *in) { return tg_layer_norm(in[0], 1, NULL, NULL, 1e-5); }

#define FUNCTIONS(name) name##_forward, name##_backward, name##_reference
static const lab_task tasks[] = {
    {"tanh", 10, FUNCTIONS(tanh), 1, 1, {"x", ""}, {{4, 5}, {0, 0}}},
    {"mul", 15, FUNCTIONS(mul), 1, 2, {"x", "b"}, {{4, 5}, {5, 0}}},
    {"matmul", 15, FUNCTIONS(matmul), 1, 2, {"a", "b"}, {{4, 5}, {5, 3}}},
    {"softmax", 15, FUNCTIONS(softmax), 5000, 1, {"x", ""}, {{4, 5}, {0, 0}}},
    {"cross_entropy", 15, FUNCTIONS(cross_entropy), 5000, 2, {"x", "t"}, {{4, 5}, {4, 0}}},
    {"layer_norm", 15, FUNCTIONS(layer_norm), 1, 1, {"x", ""}, {{4, 6}, {0, 0}}},
    {"descend", 15, NULL, NULL, NULL, 1, 0, {"", ""}, {{0, 0}, {0, 0}}},
};
enum { TASKS = (int)(sizeof tasks / sizeof tasks[0]) };

static bool make_inputs(const lab_task *task, tg_tensor **in)
{
    static const int64_t classes[4] = {2, 0, 4, 2};
    tg_seed(11);
    for (int i = 0; i < task->inputs; ++i) {
        const int *size = task->shapes[i];
        const tg_shape shape = size[1] ? TG_SHAPE(size[0], size[1]) : TG_SHAPE(size[0]);
        const bool targets = task->forward == cross_entropy_forward && i == 1;
        in[i] = targets ? tg_from_i64(classes, shape) : tg_set_requires_grad(tg_randn(shape), true);
        tg_set_name(in[i], task->names[i]);
    }
    return tg_ok();
}

/* ---- verdicts ---- */

static void add(lab_verdict *v, const char *text)
{
    const size_t used = strlen(v->more);
    snprintf(v->more + used, sizeof v->more - used, "%s", text);
}

/* Sets why a task is wrong, with what the library has to say; returns false. */
static bool wrong(lab_verdict *v, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(v->why, sizeof v->why, format, args);
    va_end(args);
    if (tg_ok()) return false;
    add(v, tg_error_message());
    add(v, "\n");
    return false;
}

/* ---- tasks 1 to 6 ---- */

static bool missing; /* a function has returned without setting any result */

static tg_status call_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    const tg_status status = ((const lab_task *)tg_ctx_user(ctx))->forward(ctx, in, out);
    missing = status == TG_OK && tg_ok() && !out[0];
    return missing ? TG_ERR_ARGUMENT : status;
}

static tg_status call_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    const lab_task *task = (const lab_task *)tg_ctx_user(ctx);
    const tg_status status = task->backward(ctx, grad_out, grad_in);
    missing = status == TG_OK && tg_ok() && !grad_in[0] && (task->inputs == 1 || !grad_in[1]);
    return status;
}

static tg_tensor *call(tg_tensor *const *in, int n, void *user)
{
    tg_tensor *y = NULL;
    tg_custom(((const lab_task *)user)->name, call_forward, call_backward, user, in, n, &y, 1);
    return y;
}

static bool same_shape(tg_shape a, tg_shape b)
{
    bool same = a.ndim == b.ndim;
    for (int d = 0; same && d < a.ndim; ++d) same = a.dim[d] == b.dim[d];
    return same;
}

static bool check_forward(const lab_task *task, tg_tensor *const *in, double factor, lab_verdict *v)
{
    double got[ELEMENTS], wanted[ELEMENTS];
    tg_tensor *x[2] = {tg_mul_scalar(tg_detach(in[0]), factor), in[1]};
    tg_tensor *y = call(x, task->inputs, (void *)task), *reference;
    if (missing) {
        tg_clear_error();
        return wrong(v, "not filled in: %s_forward sets no out[0]", task->name);
    }
    if (!y) return wrong(v, "%s_forward fails", task->name);
    reference = task->reference(x);
    const tg_shape shape = tg_shape_of(reference);
    const size_t bytes = sizeof(double) * (size_t)tg_numel(reference);
    if (!same_shape(tg_shape_of(y), shape) || tg_dtype_of(y) != TG_F64)
        return wrong(v, "%s_forward is wrong: y has another shape or dtype than that of the formula", task->name);
    if (tg_copy_out(y, got, bytes) != TG_OK || tg_copy_out(reference, wanted, bytes) != TG_OK)
        return wrong(v, "%s_forward fails", task->name);
    for (int i = 0; i < (int)tg_numel(reference); ++i) {
        const int columns = shape.ndim ? (int)shape.dim[shape.ndim - 1] : 1;
        if (fabs(got[i] - wanted[i]) <= 1e-9 * (1 + fabs(wanted[i]))) continue;
        return wrong(v, "%s_forward is wrong%s: y[%d,%d] is %g and not %g", task->name,
                     factor == 1 ? "" : " for large x", i / columns, i % columns, isnan(got[i]) ? fabs(got[i]) : got[i],
                     wanted[i]);
    }
    return true;
}

static bool check_backward(const lab_task *task, tg_tensor *const *in, lab_verdict *v)
{
    tg_gradcheck_options options;
    char line[256];
    memset(&options, 0, sizeof options);
    options.name = task->name;
    options.report = tmpfile();
    const bool right = tg_gradcheck_ex(call, in, task->inputs, (void *)task, &options);
    if (!right && missing) {
        tg_clear_error();
        wrong(v, "not filled in: %s_backward sets no grad_in[0]", task->name);
    } else if (!right) {
        wrong(v, "%s_backward is wrong", task->name);
        if (options.report) rewind(options.report);
        while (options.report && fgets(line, (int)sizeof line, options.report)) add(v, line);
    }
    if (options.report) fclose(options.report);
    return right;
}

static bool check_function(const lab_task *task, lab_verdict *v)
{
    tg_tensor *in[2] = {NULL, NULL};
    if (!make_inputs(task, in)) return wrong(v, "no inputs");
    if (!check_forward(task, in, 1, v) || !check_forward(task, in, task->factor, v)) return false;
    if (!check_backward(task, in, v)) return false;
    const int64_t before = tg_stats().tensors;
    for (int i = 0; i < 10; ++i) {
        TG_SCOPE;
        tg_backward(tg_sum(call(in, task->inputs, (void *)task)));
    }
    for (int i = 0; i < task->inputs; ++i) tg_set_grad(in[i], NULL);
    const int left = (int)(tg_stats().tensors - before);
    if (left) return wrong(v, "%s leaves %d tensors in 10 calls", task->name, left);
    return tg_ok() || wrong(v, "%s fails", task->name);
}

/* ---- task 7 ---- */

static int losses;             /* calls of lab_loss */
static int64_t second, newest; /* tensors at its second call, and at the last one */

tg_tensor *lab_loss(tg_tensor *w)
{
    losses++;
    newest = tg_stats().tensors;
    if (losses == 2) second = newest;
    return tg_sum(tg_square(tg_add_scalar(w, -3)));
}

static bool check_descend(lab_verdict *v)
{
    const double start[4] = {0, 1, 2, 5};
    tg_tensor *w = tg_set_requires_grad(tg_from_f64(start, TG_SHAPE(4)), true);
    double end[4], sum = 0;
    const int64_t before = tg_stats().tensors;
    const double mean = descend(w, STEPS);
    if (!tg_ok()) return wrong(v, "descend fails");
    if (losses == 0) return wrong(v, "not filled in: descend does not call lab_loss");
    if (losses != STEPS) return wrong(v, "descend calls lab_loss %d times in %d steps", losses, STEPS);
    if (tg_copy_out(w, end, sizeof end) != TG_OK) return wrong(v, "descend has lost w");
    for (int i = 0; i < 4; ++i) { /* a step takes 0.2 of the distance to 3, so that 0.8 of it is left */
        const double distance = start[i] - 3, there = 3 + distance * pow(0.8, STEPS);
        sum += distance * distance * (1 - pow(0.64, STEPS)) / (1 - 0.64);
        if (fabs(end[i] - there) <= 1e-9) continue;
        return wrong(v, "descend is wrong: w[%d] is %.5f after %d steps and not %.5f", i, end[i], STEPS, there);
    }
    const double wanted = sum / (double)STEPS;
    if (!(fabs(mean - wanted) <= 1e-9)) return wrong(v, "descend returns %g and not %g", mean, wanted);
    tg_set_grad(w, NULL);
    const int left = (int)(tg_stats().tensors - before), grown = (int)(newest - second) / (STEPS - 2);
    if (grown) return wrong(v, "descend makes %d tensors in each step that outlive it: a TG_SCOPE in the loop", grown);
    if (left) return wrong(v, "descend leaves %d tensors", left);
    return true;
}

/* ---- one task, in this process or in another ---- */

static void grade_here(const lab_task *task, lab_verdict *v)
{
    TG_SCOPE;
    tg_set_default_dtype(TG_F64);
    tg_set_error_handler(NULL, NULL); /* verdicts say what went wrong */
    tg_clear_error();
    missing = false;
    losses = 0;
    v->passed = task->forward ? check_function(task, v) : check_descend(v);
}

#ifdef LAB_FORKS
/* The child: sends its verdict into the pipe, and prints nothing where the grader prints. */
static void grade_child(const lab_task *task, int pipe_end)
{
    const struct rlimit limit = {SECONDS, SECONDS + 1};
    lab_verdict v;
    memset(&v, 0, sizeof v);
    setrlimit(RLIMIT_CPU, &limit);
    alarm(10 * SECONDS); /* ends one that sleeps */
    dup2(2, 1);
    grade_here(task, &v);
    fflush(NULL);
    _exit(write(pipe_end, &v, sizeof v) != (ssize_t)sizeof v);
}

static void grade(const lab_task *task, lab_verdict *v)
{
    int ends[2], status = 0;
    size_t got = 0;
    ssize_t n = 1;
    fflush(NULL);
    const pid_t child = pipe(ends) == 0 ? fork() : -1;
    if (child == 0) grade_child(task, ends[1]);
    if (child < 0) {
        wrong(v, "there is no process for it");
        return;
    }
    close(ends[1]);
    while (n > 0 && got < sizeof *v) {
        n = read(ends[0], (char *)v + got, sizeof *v - got);
        if (n > 0) got += (size_t)n;
    }
    close(ends[0]);
    waitpid(child, &status, 0);
    if (got == sizeof *v && WIFEXITED(status)) return;
    memset(v, 0, sizeof *v);
    if (WIFEXITED(status)) wrong(v, "it ended the program, with exit code %d", WEXITSTATUS(status));
    else if (WTERMSIG(status) == SIGXCPU) wrong(v, "stopped after %d seconds: does a loop not end?", SECONDS);
    else if (WTERMSIG(status) == SIGALRM) wrong(v, "stopped after %d seconds: it waits", 10 * SECONDS);
    else wrong(v, "killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
}
#else
static void grade(const lab_task *task, lab_verdict *v) { grade_here(task, v); }
#endif

int main(int argc, char **argv)
{
    int got = 0, all = 0, number = 0, first = 0, last = TASKS;
    if (argc > 1) {
        const long chosen = strtol(argv[1], NULL, 10);
        if (argc > 2 || chosen < 1 || chosen > TASKS) {
            fprintf(stderr, "usage: %s [TASK], a number from 1 to %d\n", argv[0], TASKS);
            return 2;
        }
        first = (int)chosen - 1;
        last = (int)chosen;
    }
    printf("TAP version 13\n1..%d\n", last - first);
    for (int k = first; k < last; ++k) {
        const lab_task *task = &tasks[k];
        lab_verdict v;
        memset(&v, 0, sizeof v);
        grade(task, &v);
        printf("%sok %d - %s: %d of %d points%s%s\n", v.passed ? "" : "not ", ++number, task->name,
               v.passed ? task->points : 0, task->points, v.passed ? "" : ", ", v.why);
        for (char *line = v.more, *end; (end = strchr(line, '\n')) != NULL; line = end + 1)
            printf("# %.*s\n", (int)(end - line), line);
        all += task->points;
        if (v.passed) got += task->points;
    }
    printf("# %d of %d points\n", got, all);
    return got == all ? 0 : 1;
}
