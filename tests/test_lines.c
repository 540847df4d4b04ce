/* TG_LINES: messages that end with the place of the call, and nodes that remember it.  A call that spans lines has the
 * first of them or the last, as the compiler counts; the tests take any of its lines. */
#if !defined(__cplusplus) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#define TG_LINES
#include "tensorgrad.h"
#include "helpers.h"
#if (defined(__unix__) || defined(__APPLE__)) && !defined(__TINYC__) /* tcc has no thread-local variables */
#define HAS_THREADS
#include <pthread.h>
#endif

/* The number of the place at the end of a message, if that is in this file and the only one that begins a line; else 0 */
static int line_of(const char *message)
{
    const char *place = strstr(message, "\n  at "), *file = __FILE__ ":";
    char *end;
    long line;
    if (!place || strstr(place + 1, "\n  at ")) return 0;
    place += strlen("\n  at ");
    if (strncmp(place, file, strlen(file))) return 0;
    line = strtol(place + strlen(file), &end, 10);
    return *end ? 0 : (int)line;
}

/* What stands behind a part of a text; "" if the text has no such part. */
static const char *behind(const char *text, const char *part)
{
    const char *at = strstr(text, part);
    return at ? at + strlen(part) : "";
}

/* The number of a place that stands in the middle of a message, behind this text; 0 if there is none. */
static int line_behind(const char *message, const char *text)
{
    const char *place = behind(message, text), *file = __FILE__ ":";
    return strncmp(place, file, strlen(file)) ? 0 : (int)strtol(place + strlen(file), NULL, 10);
}

/* Whether an error was recorded that ends with one of these lines; it is cleared. */
static bool failed_in(int first, int last)
{
    const int line = line_of(tg_error_message());
    const bool holds = !tg_ok() && line >= first && line <= last;
    if (!holds) printf("wanted lines %d to %d: %s\n", first, last, tg_error_message());
    tg_clear_error();
    return holds;
}

static tg_tensor *two(void) { return tg_full_on(TG_SHAPE(2), 4, TG_F64, HERE); }
static tg_tensor *three(void) { return tg_full_on(TG_SHAPE(3), 4, TG_F64, HERE); }
static tg_tensor *two_leaf(void) { return tg_set_requires_grad(two(), true); }

/* ---- the place of a call ---- */

TEST(calls)
{
    tg_tensor *a = two(), *b = three(), *y;
    y = tg_add(a, b);
    CHECK(failed_in(__LINE__ - 1, __LINE__ - 1));
    y = tg_add(tg_add(a, b), a); /* the outer call gets NULL and says nothing */
    CHECK(failed_in(__LINE__ - 1, __LINE__ - 1));
    CHECK(y == NULL);
    CHECK(tg_backward(a) != TG_OK && failed_in(__LINE__, __LINE__));
    CHECK(isnan(tg_item(a)) && failed_in(__LINE__, __LINE__));
    tg_set_num_threads(1); /* a function without a result */
    tg_release_all(NULL, 1);
    CHECK(failed_in(__LINE__ - 1, __LINE__ - 1));
    CHECK(tg_device_str(tg_device_of(NULL)) != NULL && failed_in(__LINE__, __LINE__));
    CHECK(tg_cat(TG_LIST(a, NULL), 0) == NULL && failed_in(__LINE__, __LINE__));
    CHECK(tg_reshape(a, TG_SHAPE(3)) == NULL && failed_in(__LINE__, __LINE__));
    CHECK(tg_ok());
}

TEST(calls_over_lines)
{
    tg_tensor *a = two(), *b = three(), *y;
    int first = __LINE__ + 1;
    y = tg_add(tg_mul(a,
                      a),
               tg_neg(
                   b));
    CHECK(failed_in(first, __LINE__ - 1));
    first = __LINE__ + 3;
    y = tg_add(
        tg_exp(a),
        tg_mul(tg_neg(a),
               b));
    CHECK(failed_in(first, __LINE__ - 1)); /* not the lines of the outer call, nor of tg_exp */
    CHECK(y == NULL);
}

/* Makes calls of its own in these lines, and returns a tensor that does not fit. */
static tg_tensor *made_elsewhere(void)
{
    tg_tensor *t = three();
    return tg_exp(t);
}

TEST(calls_with_a_function_as_argument)
{
    tg_tensor *y = tg_add(two(), made_elsewhere());
    CHECK(y == NULL && failed_in(__LINE__ - 1, __LINE__ - 1));
    y = tg_add(made_elsewhere(), tg_mul(two(), made_elsewhere()));
    CHECK(y == NULL && failed_in(__LINE__ - 1, __LINE__ - 1));
}

TEST(functions_by_their_name)
{
    tg_tensor *(*call)(tg_tensor *, tg_tensor *) = tg_add;
    tg_tensor *y = call(two(), three());
    CHECK(y == NULL && !tg_ok() && !strstr(tg_error_message(), "\n  at "));
    tg_clear_error();
    y = (tg_add)(two(), three());
    CHECK(y == NULL && !tg_ok() && !strstr(tg_error_message(), "\n  at "));
    tg_clear_error();
    CHECK(tg_numel((tg_exp)(two())) == 2);
}

static void in_blocks(void)
{
    TG_SCOPE;
    TG_NO_GRAD;
    tg_tensor *y = tg_add(two(), three());
    CHECK(y == NULL && failed_in(__LINE__ - 1, __LINE__ - 1));
    TG_AUTOCAST(TG_BF16);
    CHECK(tg_backward(two()) != TG_OK && failed_in(__LINE__, __LINE__));
}

TEST(blocks) { in_blocks(); }

/* ---- callbacks ---- */

static int inner_line;

static void forward_that_fails(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int n_out)
{
    (void)m, (void)n, (void)n_out;
    out[0] = tg_add(in[0], three()), inner_line = __LINE__;
}

static void forward_without_output(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int n_out)
{
    (void)m, (void)n, (void)out, (void)n_out;
    CHECK(tg_exp(in[0]) != NULL);
}

static void forward_of_three(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int n_out)
{
    (void)m, (void)n, (void)n_out;
    out[0] = tg_cat(TG_LIST(in[0], tg_exp(tg_narrow(in[0], 0, 0, 1))), 0);
}

TEST(modules)
{
    tg_module *list[2], *m = tg_module_new("Fails", forward_that_fails, 0);
    CHECK(tg_forward(m, two()) == NULL && failed_in(inner_line, inner_line));
    tg_module_free(m);
    m = tg_module_new("Empty", forward_without_output, 0);
    CHECK(tg_forward(m, two()) == NULL && failed_in(__LINE__, __LINE__));
    tg_module_free(m);
    /* the second module is one of the library's: it fails after calls of this file, in the call outside */
    list[0] = tg_module_new("Three", forward_of_three, 0), list[1] = tg_nn_linear(2, 2, true);
    m = tg_nn_sequential(list, 2);
    CHECK(tg_forward(m, tg_to_dtype(two(), TG_F32)) == NULL && failed_in(__LINE__, __LINE__));
    tg_module_free(m);
}

static tg_status custom_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    (void)ctx;
    out[0] = tg_exp(in[0]);
    return TG_OK;
}

static tg_status custom_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    (void)ctx;
    grad_in[0] = tg_add(grad_out[0], three()), inner_line = __LINE__;
    return grad_in[0] ? TG_OK : TG_ERR_SHAPE;
}

static tg_tensor *checkpointed(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    return tg_mul(in[0], tg_exp(in[0]));
}

static tg_tensor *hook_that_fails(tg_tensor *g, void *user)
{
    (void)user;
    g = tg_add(g, three()), inner_line = __LINE__;
    return g;
}

TEST(callbacks_of_the_graph)
{
    tg_tensor *x = two_leaf(), *y = NULL;
    CHECK(tg_custom("Own", custom_forward, custom_backward, NULL, &x, 1, &y, 1) == TG_OK);
    CHECK(tg_backward(tg_sum(y)) != TG_OK && failed_in(inner_line, inner_line));
    y = tg_checkpoint(checkpointed, &x, 1, NULL);
    y = tg_sum(y);
    CHECK(tg_backward(y) == TG_OK);
    CHECK(tg_backward(y) != TG_OK && failed_in(__LINE__, __LINE__)); /* not in checkpointed, which has run since */
    y = tg_mul(x, x);
    CHECK(tg_hook(y, hook_that_fails, NULL) > 0);
    CHECK(tg_backward(tg_sum(y)) != TG_OK && failed_in(inner_line, inner_line));
}

/* A thread that fails, from within a hook of the other one. */
#ifdef HAS_THREADS
static int thread_line;
static void *thread_that_fails(void *found)
{
    tg_set_default_device(HERE);
    thread_line = __LINE__ + 1;
    if (!tg_add(two(), three())) *(int *)found = line_of(tg_error_message());
    tg_thread_end();
    return found;
}

static tg_tensor *hook_with_thread(tg_tensor *g, void *found)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, thread_that_fails, found) == 0 && pthread_join(thread, NULL) == 0);
    return (tg_add)(g, three()); /* without a place of its own */
}

TEST(threads)
{
    tg_tensor *x = two_leaf();
    int found = 0;
    CHECK(tg_hook(x, hook_with_thread, &found) > 0);
    CHECK(tg_backward(tg_sum(x)) != TG_OK && failed_in(__LINE__, __LINE__));
    CHECK(found > 0 && found == thread_line);
}
#endif

static char handled[2][1024];
static void handler_with_calls(tg_status code, const char *message, void *user)
{
    int *count = (int *)user;
    (void)code;
    snprintf(handled[*count], sizeof handled[0], "%s", message);
    CHECK(tg_numel(tg_exp(two())) == 2);
    if (++*count == 2) return;
    CHECK(tg_add(two(), three()) == NULL);
}

TEST(error_handlers)
{
    int count = 0;
    tg_tensor *y;
    tg_set_error_handler(handler_with_calls, &count);
    y = tg_add(two(), three());
    CHECK(y == NULL && count == 1 && line_of(handled[0]) == __LINE__ - 1);
    tg_set_error_handler(NULL, NULL);
    CHECK(failed_in(__LINE__ - 3, __LINE__ - 3));
    y = tg_add(two(), three());
    CHECK(y == NULL && failed_in(__LINE__ - 1, __LINE__ - 1));
}

TEST(warnings)
{
    tg_tensor *x[1];
    const int before = warnings;
    x[0] = tg_set_requires_grad(tg_to_dtype(two(), TG_F32), true);
    tg_set_error_handler(keep_warning, NULL);
    CHECK(tg_gradcheck(checkpointed, x, 1, NULL) || true);
    CHECK(warnings == before + 1 && line_of(warned) == __LINE__ - 1);
    tg_set_error_handler(NULL, NULL);
    tg_clear_error();
}

static char name[98];
static void forward_of_child(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int n_out)
{
    (void)n, (void)n_out;
    out[0] = tg_forward(tg_module_get_child(m, name), in[0]);
}

/* A call in a file whose name is longer than a message takes, and one whose text leaves no room. */
TEST(long_places)
{
    static char place[2000];
    tg_module *m;
    const char *before, *message = tg_error_message();
    tg_tensor *x = two(), *y;
    memset(place, 'd', sizeof place - 1);
    memcpy(place + sizeof place - 12, "/long.c:123", 11);
    before = tgi_enter(place);
    y = (tg_add)(x, three()); /* without the macro, which would set another place */
    tgi_enter(before);
    CHECK(y == NULL && strlen(message) < 600 && strstr(message, "\n  at ddd"));
    CHECK(strcmp(message + strlen(message) - 12, "d/long.c:123") == 0);
    tg_clear_error();
    for (size_t i = 0; i + 2 < sizeof name; i += 2) memcpy(name + i, "\xc3\xa4", 2); /* a letter of two bytes */
    for (int length = 1; length <= 2; ++length) { /* of the first name of the path: one of the two is cut in a letter */
        m = tg_module_new("Fails", forward_that_fails, 0);
        for (int outer = 0; outer < 12; ++outer) {
            tg_module *child = m;
            m = tg_module_new(length == 1 ? "A" : "AB", forward_of_child, 0);
            CHECK(tg_module_child(m, name, child) == child);
        }
        CHECK(tg_forward(m, x) == NULL && line_of(message) == inner_line);
        CHECK(strlen(message) > 1000);
        for (const char *p = message; *p; ++p) {
            if (*p == '\xc3') CHECK(p[1] == '\xa4');
        }
        tg_clear_error();
        tg_module_free(m);
    }
}

/* ---- nodes ---- */

TEST(backward_names_the_node)
{
    tg_tensor *x = two_leaf(), *y, *loss;
    const char *message = tg_error_message();
    y = tg_mul(x, x);
    const int made = __LINE__ - 1;
    loss = tg_sum(y);
    CHECK(tg_backward(loss) == TG_OK);
    CHECK(tg_backward(loss) != TG_OK && line_behind(message, "(at mul, at ") == made && line_of(message) == __LINE__);
    tg_clear_error();
    y = tg_exp(x), loss = tg_sum(tg_mul(y, y));
    const int used = __LINE__ - 1;
    CHECK(tg_add_scalar_(y, 1) == y);
    CHECK(tg_backward(loss) != TG_OK && line_of(message) == __LINE__);
    CHECK(line_behind(message, "which is output 0 of ExpBackward0 at ") == used);
    CHECK(line_behind(message, "needed by the backward of mul at ") == used);
    tg_clear_error();
}

TEST(anomalies_name_the_node)
{
    tg_tensor *x = tg_set_requires_grad(tg_zeros_on(TG_SHAPE(2), TG_F64, HERE), true), *y;
    const char *message = tg_error_message();
    y = tg_sqrt(x);
    const int made = __LINE__ - 1;
    y = tg_sum(tg_mul_scalar(y, 0));
    tg_set_anomaly(true);
    CHECK(tg_backward(y) != TG_OK && line_of(message) == __LINE__);
    tg_set_anomaly(false);
    CHECK(strstr(message, "SqrtBackward0") && line_behind(behind(message, "the op was sqrt"), "its tape) at ") == made);
    tg_clear_error();
}

static tg_status unshaped_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    (void)ctx, (void)grad_out;
    grad_in[0] = three();
    return TG_OK;
}

static tg_status unsummed_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    (void)ctx;
    grad_in[0] = tg_cat(TG_LIST(tg_unsqueeze(grad_out[0], 0), tg_unsqueeze(tg_zeros_like(grad_out[0]), 0)), 0);
    return TG_OK;
}

static tg_tensor *unsummed(tg_tensor *const *in, int n, void *user)
{
    tg_tensor *y = NULL;
    (void)n, (void)user;
    inner_line = __LINE__ + 1;
    (void)tg_custom("Own", custom_forward, unsummed_backward, NULL, in, 1, &y, 1);
    return y;
}

TEST(rules_that_return_other_shapes)
{
    tg_tensor *x = two_leaf(), *y = NULL;
    const char *message = tg_error_message();
    CHECK(tg_custom("Own", custom_forward, unshaped_backward, NULL, &x, 1, &y, 1) == TG_OK);
    const int made = __LINE__ - 1;
    CHECK(tg_backward(tg_sum(y)) != TG_OK && line_of(message) == __LINE__);
    CHECK(line_behind(message, "Function OwnBackward at ") == made && strstr(message, " returned an invalid gradient"));
    tg_clear_error();
    CHECK(!tg_gradcheck(unsummed, &x, 1, NULL) && line_of(message) == __LINE__);
    CHECK(line_behind(message, "Function OwnBackward at ") == inner_line);
    tg_clear_error();
}

static tg_status halved_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    (void)ctx;
    grad_in[0] = tg_mul_scalar(grad_out[0], 0.5);
    return TG_OK;
}

static tg_tensor *halved(tg_tensor *const *in, int n, void *user)
{
    tg_tensor *y = NULL;
    (void)n, (void)user;
    inner_line = __LINE__ + 1;
    (void)tg_custom("Halved", custom_forward, halved_backward, NULL, in, 1, &y, 1);
    return y;
}

TEST(gradcheck_names_the_node)
{
    tg_tensor *x = two_leaf();
    const char *message = tg_error_message();
    CHECK(!tg_gradcheck(halved, &x, 1, NULL) && line_of(message) == __LINE__);
    CHECK(line_behind(message, "; the output was made by Halved at ") == inner_line);
    tg_clear_error();
}

/* What is written of a tape of one leaf and two ops, of which only the first was made in this file. */
static const char *written(tg_status (*write)(FILE *, tg_tensor *), tg_tensor *y)
{
    FILE *file = tmpfile();
    if (!CHECK(file != NULL)) return "";
    CHECK(write(file, y) == TG_OK);
    return text_of(file);
}

TEST(tapes)
{
    char place[80], wanted[600];
    tg_tensor *x = tg_set_requires_grad(tg_full_on(TG_SHAPE(1), 4, TG_F64, HERE), true), *y, *plain;
    y = tg_mul(x, x);
    snprintf(place, sizeof place, "%s:%d", __FILE__, __LINE__ - 1);
    y = (tg_neg)(y);
    if (HERE.type == TG_CPU.type) {
        snprintf(wanted, sizeof wanted,
                 "tape: 1 leaf, 2 ops, 8 bytes saved for backward\n"
                 "  id  op     name  shape  dtype dev   in        data      grad   saved  at\n"
                 "   0  leaf   -     [1]    f64   cpu   -       4.0000         -   -      -\n"
                 "   1  mul    -     [1]    f64   cpu   0 0    16.0000         -   0 0    %s\n"
                 "   2  neg    -     [1]    f64   cpu   1     -16.0000         -   -      -\n", place);
        CHECK(strcmp(written(tg_tape_print, y), wanted) == 0);
        if (strcmp(printed, wanted)) printf("%s", printed);
    }
    snprintf(wanted, sizeof wanted, " | at %s }", place);
    CHECK(strstr(written(tg_tape_dot, y), wanted) && !strstr(behind(printed, wanted), " | at "));
    snprintf(wanted, sizeof wanted, ", at %s</title>", place);
    CHECK(strstr(written(tg_tape_svg, y), wanted) && strstr(printed, "\">at .."));
    CHECK(!strstr(behind(printed, wanted), ", at ") && strstr(printed, "width=\"150\" height=\"88\""));
    snprintf(wanted, sizeof wanted, "<td>%s</td>", place);
    CHECK(strstr(written(tg_tape_html, y), wanted) && strstr(printed, "<th scope=\"col\">at</th>"));
    plain = (tg_neg)((tg_mul)(x, x));
    CHECK(!strstr(written(tg_tape_print, plain), "  at") && !strstr(written(tg_tape_dot, plain), " at "));
    CHECK(!strstr(written(tg_tape_svg, plain), ">at ") && strstr(printed, "width=\"150\" height=\"72\""));
    CHECK(!strstr(written(tg_tape_html, plain), ">at<"));
}

/* Ops of all kinds of nodes, some with numbers and with views, keep places apart from what else stands in the block. */
TEST(nodes_of_many_kinds)
{
    tg_tensor *x = tg_set_requires_grad(tg_ones_on(TG_SHAPE(2, 3), TG_F64, HERE), true), *y, *z;
    const int first = __LINE__ + 1;
    y = tg_permute(tg_mul_scalar(x, 3), TG_DIMS(1, 0));
    y = tg_sum_dims(tg_leaky_relu(tg_reshape(y, TG_SHAPE(1, 6)), 0.5), TG_DIMS(0), true);
    y = tg_add(y, tg_cumsum(tg_slice(tg_cat(TG_LIST(y, y), 1), 1, 0, 12, 2), 1));
    z = tg_clone(y);
    CHECK(tg_fill_(tg_select(z, 1, 0), 2) != NULL);
    CHECK(tg_mul_(tg_select(z, 1, 1), tg_select(y, 1, 2)) != NULL);
    y = tg_mean(tg_mul(z, z));
    const int last = __LINE__ - 1;
    const char *at = written(tg_tape_print, y);
    for (int rows = 0; rows < 12; ++rows) {
        const char *place = strstr(at, "  " __FILE__ ":");
        if (!CHECK(place != NULL)) return;
        const int line = (int)strtol(strrchr(place, ':') ? place + strlen("  " __FILE__ ":") : "0", NULL, 10);
        CHECK(line >= first && line <= last);
        at = place + 1;
    }
    CHECK(tg_backward(y) == TG_OK && tg_grad(x) != NULL);
}

static bool scenario_lines(void)
{
    tg_tensor *x = two_leaf(), *y;
    FILE *file;
    if (!x) return false;
    y = tg_sum(tg_mul_scalar(tg_mul(x, x), 3));
    if (!y || tg_backward(y) != TG_OK) return false;
    file = tmpfile();
    if (!file) return true;
    const tg_status status = tg_tape_html(file, tg_sum(tg_mul(x, x)));
    fclose(file);
    return status == TG_OK;
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    tg_set_error_handler(NULL, NULL);
    out_of_memory(scenario_lines);
    RUN(calls);
    RUN(calls_over_lines);
    RUN(calls_with_a_function_as_argument);
    RUN(functions_by_their_name);
    RUN(blocks);
    RUN(modules);
    RUN(callbacks_of_the_graph);
#ifdef HAS_THREADS
    RUN(threads);
#endif
    RUN(error_handlers);
    RUN(warnings);
    RUN(long_places);
    RUN(backward_names_the_node);
    RUN(anomalies_name_the_node);
    RUN(rules_that_return_other_shapes);
    RUN(gradcheck_names_the_node);
    RUN(tapes);
    RUN(nodes_of_many_kinds);
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
