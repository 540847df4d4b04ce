/* page.c FOLDER: writes the pages of some graphs by tg_tape_html, NAME.html, and beside each NAME.json, what a run of
   backward says that the page has to show: of each step the line of tg_step_print, what went over each wire, the sums
   so far; then .grad.  page.sh compares. */
#define TENSORGRAD_IMPLEMENTATION
#include "tensorgrad.h"
#include <stdio.h>
#include <string.h>

enum { ROWS = 1024 };
static char folder[400];
static tg_tensor *sum[ROWS]; /* of the run so far, by row; each retained */

static FILE *create(const char *name, const char *end)
{
    char path[500];
    snprintf(path, sizeof path, "%s/%s.%s", folder, name, end);
    return fopen(path, "wb");
}

/* A text as JSON that may stand in XML. */
static void write_text(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text && *text != '\n'; ++text) {
        if (strchr("<>&\"\\", *text)) fprintf(file, "\\u%04x", *text);
        else fputc(*text, file);
    }
    fputc('"', file);
}

/* All numbers of t in order; of many, its shape. */
static void write_values(FILE *file, tg_tensor *t)
{
    int64_t i, n = tg_numel(t);
    TG_SCOPE;
    TG_NO_GRAD;
    tg_tensor *flat = tg_reshape(tg_contiguous(t), TG_SHAPE(-1));
    if (n > 6) {
        fprintf(file, "\"shape [");
        for (i = 0; i < tg_ndim(t); ++i) fprintf(file, i ? ", %lld" : "%lld", (long long)tg_dim(t, (int)i));
        fprintf(file, "]\"");
        return;
    }
    for (i = 0; i < n; ++i) fprintf(file, "%c%.9g", i ? ',' : '[', tg_get(flat, TG_INDEX(i)));
    fputc(']', file);
}

/* The line of the last step without the spaces before it. */
static void write_line(FILE *file, tg_backward_run *run)
{
    static char line[20000];
    FILE *lines = tmpfile();
    if (!lines || tg_step_print(lines, run) != TG_OK) return;
    rewind(lines);
    if (fgets(line, sizeof line, lines)) write_text(file, line + strspn(line, " "));
    fclose(lines);
}

static void remember(int64_t row, tg_tensor *t)
{
    if (row < 0 || row >= ROWS) return;
    tg_retain(t);
    if (sum[row]) tg_release(sum[row]);
    sum[row] = t;
}

static void write_step(FILE *file, tg_backward_run *run, const tg_step_info *step)
{
    const char *between = "";
    int i;
    fprintf(file, "{\"row\":%lld,\"line\":", (long long)step->node);
    write_line(file, run);
    fprintf(file, ",\"wires\":{");
    for (i = 0; i < step->inputs; ++i) {
        tg_step_input_info input;
        if (!tg_step_input(run, i, &input) || !input.sent) continue;
        fprintf(file, "%s\"%d\":", between, i);
        write_values(file, input.sent);
        remember(input.node, input.sum);
        between = ",";
    }
    fprintf(file, "},\"sums\":{");
    for (i = 0, between = ""; i < ROWS; ++i) {
        if (!sum[i]) continue;
        fprintf(file, "%s\"%d\":", between, i);
        write_values(file, sum[i]);
        between = ",";
    }
    fprintf(file, "}}");
}

/* The page of y, and what the run says: of at most `limit` steps, where the others are not drawn. */
static void page(const char *name, tg_tensor *y, tg_tensor *const *leaf, int leaves, int limit)
{
    FILE *html = create(name, "html"), *json = create(name, "json");
    tg_step_info step;
    int i, steps;
    if (!html || !json || tg_tape_html(html, y) != TG_OK) return;
    fclose(html);
    tg_backward_run *run = tg_backward_begin(&y, 1, NULL, TG_RETAIN_GRAPH);
    fprintf(json, "{\"name\":\"%s\",\"steps\":[", name);
    for (steps = 0; tg_backward_step(run, &step); ++steps) {
        if (steps == 0) {
            tg_tensor *one = tg_ones_like(y);
            remember(step.node, one);
        }
        if (steps >= limit) continue;
        if (steps) fprintf(json, ",\n");
        write_step(json, run, &step);
    }
    tg_backward_end(run);
    fprintf(json, "],\"all\":%s,\"leaves\":{", steps > limit ? "false" : "true");
    for (i = 0; i < leaves; ++i) {
        if (i) fprintf(json, ",");
        write_text(json, tg_name(leaf[i]));
        fprintf(json, ":");
        write_values(json, tg_grad(leaf[i]));
    }
    fprintf(json, "}}\n");
    fclose(json);
    for (i = 0; i < ROWS; ++i) {
        if (sum[i]) tg_release(sum[i]);
        sum[i] = NULL;
    }
}

static tg_tensor *named(const char *name, tg_tensor *t)
{
    tg_set_name(t, name);
    return tg_set_requires_grad(t, true);
}

int main(int argc, char **argv)
{
    TG_SCOPE;
    int i;
    snprintf(folder, sizeof folder, "%s", argc > 1 ? argv[1] : ".");
    tg_set_default_dtype(TG_F64);
    tg_tensor *x1 = named("x1", tg_scalar(2)), *w1 = named("w1", tg_scalar(-3)), *x2 = named("x2", tg_scalar(0.5));
    tg_tensor *w2 = named("w2", tg_scalar(1)), *b = named("b<&>", tg_scalar(6.7)), *neuron[5] = {x1, w1, x2, w2, b};
    tg_tensor *n = tg_add(tg_add(tg_mul(x1, w1), tg_mul(x2, w2)), b), *y = tg_tanh(n);
    tg_set_name(n, "n");
    page("neuron", y, neuron, 5, ROWS);

    tg_seed(7);
    tg_tensor *x = named("x", tg_randn(TG_SHAPE(2, 3))), *w = named("w", tg_randn(TG_SHAPE(3)));
    tg_tensor *c = named("c", tg_randn(TG_SHAPE(2, 1))), *big = named("big", tg_randn(TG_SHAPE(4, 2, 3)));
    tg_tensor *tensors[4] = {x, w, c, big};
    page("broadcast", tg_mean(tg_exp(tg_mul(tg_mul(tg_add(tg_mul(x, w), c), big), tg_scalar(0.25)))), tensors, 4, ROWS);

    tg_tensor *a = named("a", tg_scalar(1.5)), *shared[1] = {a}, *square = tg_mul(a, a), *d = tg_exp(square);
    page("shared", tg_add(tg_mul(d, square), tg_mul(d, d)), shared, 1, ROWS);

    tg_tensor *u = named("u", tg_scalar(1.01)), *v = named("v", tg_scalar(0.99)), *deep = u;
    for (i = 0; i < 300; ++i) deep = tg_mul(deep, v);
    page("folded", deep, &u, 0, 199);
    return tg_ok() ? 0 : 1;
}
