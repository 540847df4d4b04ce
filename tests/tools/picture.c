/* Writes the picture of README.md: the drawing of a neuron's tape (tg_tape_svg) with what each step of backward adds, as
 * an animation.  `make picture` writes it into examples/player.svg.
 *
 * Each step k of the run gives its line below the drawing, a gradient on each wire into its node, and the sums in the
 * boxes of its inputs.  These elements get the class "step<k>", whose animation shows them from the time of that step
 * on.  A reader who wants no motion, or prints the page, sees all of them at once. */
#include "tensorgrad.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 8, ROOM = 1 << 16, LINE = 24 };

static void die(const char *what)
{
    fprintf(stderr, "picture: %s\n", what);
    exit(1);
}

/* Replaces the first `old` behind the first `where` in text [ROOM] by `with`. */
static void replace(char *text, const char *where, const char *old, const char *with)
{
    char *place = strstr(text, where), *at = place ? strstr(place, old) : NULL;
    if (!at) die(where);
    const size_t tail = strlen(at + strlen(old)) + 1;
    if ((size_t)(at - text) + strlen(with) + tail > ROOM) die("the drawing is too long");
    memmove(at + strlen(with), at + strlen(old), tail);
    memcpy(at, with, strlen(with));
}

/* What `write` writes to a file, as a text [ROOM]. */
static void read_back(char *text, FILE *file)
{
    rewind(file);
    text[fread(text, 1, ROOM - 1, file)] = 0;
    if (fclose(file) != 0 || !tg_ok()) die("writing failed");
}

/* The neuron of README.md's first program. */
static tg_tensor *neuron(void)
{
    tg_tensor *x = tg_param(tg_scalar(2)), *w = tg_param(tg_scalar(-3)), *b = tg_param(tg_scalar(6.8813736));
    tg_tensor *xw = tg_mul(x, w), *n = tg_add(xw, b), *y = tg_tanh(n);
    TG_NAME(x); TG_NAME(w); TG_NAME(b); TG_NAME(xw); TG_NAME(n); TG_NAME(y);
    return y;
}

/* What a step did, as far as the picture shows it. */
typedef struct {
    int64_t node, from[2]; /* rows */
    double sent[2];
    int inputs;
    char line[256];
} step;

/* Runs backward; returns how many steps it took. */
static int run_backward(tg_tensor *y, step *steps)
{
    static char text[ROOM];
    tg_backward_run *run = tg_backward_begin(TG_LIST(y), NULL, TG_RETAIN_GRAPH | TG_RETAIN_GRADS);
    tg_step_info info;
    int n = 0;
    while (tg_backward_step(run, &info)) {
        step *s = &steps[n++];
        if (n > STEPS || info.inputs > 2) die("more steps or inputs than there is room for");
        s->node = info.node;
        s->inputs = info.inputs;
        for (int i = 0; i < info.inputs; ++i) {
            tg_step_input_info input;
            tg_step_input(run, i, &input);
            s->from[i] = input.node;
            s->sent[i] = tg_item(input.sent);
        }
        FILE *file = tmpfile();
        if (!file) die("no temporary file");
        tg_step_print(file, run);
        read_back(text, file);
        text[strcspn(text, "\n")] = 0;
        snprintf(s->line, sizeof s->line, "%.255s", text);
    }
    tg_backward_end(run);
    return n;
}

/* What appears in the drawing at step k, counted from 1. */
static void show_step(char *svg, const step *s, int k)
{
    char where[64], with[64];
    for (int i = 0; i < s->inputs; ++i) {
        snprintf(where, sizeof where, "id=\"t%d-%d\"", (int)s->node, i);
        snprintf(with, sizeof with, "\"sent step step%d\"", k);
        replace(svg, where, "\"sent\"", with);
        snprintf(with, sizeof with, ">%.4g</text>", s->sent[i]);
        replace(svg, where, "></text>", with);
        snprintf(where, sizeof where, "id=\"g%d\"", (int)s->from[i]);
        snprintf(with, sizeof with, "\"grad step step%d\"", k);
        replace(svg, where, "\"grad\"", with);
    }
    snprintf(where, sizeof where, "id=\"n%d\"", (int)s->node);
    snprintf(with, sizeof with, "\"runs%d node ", k);
    replace(svg, where, "\"node ", with);
}

/* The rules of CSS by which step k of n appears at its share of the first three quarters of the time, and its box is
 * marked until the next step; and the line of the step, k lines below the drawing. */
static void write_step(char *svg, const step *s, int k, int n, int height)
{
    char with[1024];
    const int from = 75 * k / (n + 1), to = 75 * (k + 1) / (n + 1);
    snprintf(with, sizeof with,
             ".step%d{animation:step%d 12s infinite}.runs%d .box{animation:runs%d 12s infinite}\n"
             "@keyframes step%d{0%%,%d%%{opacity:0}%d%%,100%%{opacity:1}}\n"
             "@keyframes runs%d{0%%,%d%%,%d%%,100%%{stroke:var(--line);stroke-width:1}"
             "%d%%,%d%%{stroke:var(--mark);stroke-width:3}}\n</style>",
             k, k, k, k, k, from - 1, from, k, from - 1, to, from, to - 1);
    replace(svg, "</style>", "</style>", with);
    snprintf(with, sizeof with, "<text class=\"step step%d\" x=\"24\" y=\"%d\" xml:space=\"preserve\">%s</text>\n</svg>", k,
             height + LINE * (k - 1), s->line);
    replace(svg, "</svg>", "</svg>", with);
}

/* Makes the drawing higher by `more`; returns its height before. */
static int heighten(char *svg, int more)
{
    const char *size = strstr(svg, "viewBox=\"0 0 ");
    int width = 0, height = 0;
    char old[64], with[64];
    if (!size || sscanf(size, "viewBox=\"0 0 %d %d\"", &width, &height) != 2) die("the drawing has no size");
    snprintf(old, sizeof old, "height=\"%d\"", height);
    snprintf(with, sizeof with, "height=\"%d\"", height + more);
    replace(svg, "<svg ", old, with);
    replace(svg, "<rect class=\"paper\"", old, with);
    snprintf(old, sizeof old, " %d\"", height);
    snprintf(with, sizeof with, " %d\"", height + more);
    replace(svg, "viewBox", old, with);
    return height;
}

int main(void)
{
    static char svg[ROOM];
    static step steps[STEPS];
    tg_tensor *y = neuron();
    const int n = run_backward(y, steps);
    FILE *file = tmpfile();
    if (!file) die("no temporary file");
    tg_tape_svg(file, y);
    read_back(svg, file);
    const int height = heighten(svg, LINE * n);
    replace(svg, "</style>", "</style>",
            "@media (prefers-reduced-motion:reduce),print{.tape .step,.tape .node .box{animation:none}}\n</style>");
    for (int k = 1; k <= n; ++k) {
        show_step(svg, &steps[k - 1], k);
        write_step(svg, &steps[k - 1], k, n, height);
    }
    fputs(svg, stdout);
    tg_shutdown();
    return tg_ok() ? 0 : 1;
}
