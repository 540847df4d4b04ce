/* web.c: the library behind page.html, compiled to WebAssembly by `make web`: an expression that a student writes
   becomes a tape whose backward the page plays, and the two moons of ../05_moons.c are learnt a few steps at a time.

   READ    sum(), product(), unary(), power(), atom(): a parser by recursive descent, which calls the library.
   CHANGE  a row of functions[] is a function more.
   PRINTS  compiled for this machine: what the page gets.  web "x = 2; tanh(x)" plays an expression, web moons 20
           trains.

   All answers go to stdout, where the page collects them: a line of JSON, and behind an expression's line the page of
   tg_tape_html, from which page.html takes the drawing, the table and the steps. */
#define main moons_main /* the network, its data and its loss are those of that program */
#include "../05_moons.c"
#undef main
#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#ifdef __wasm__
#define EXPORT(name) __attribute__((__export_name__(#name), __used__))
#else
#define EXPORT(name)
#endif

enum { TEXT_BYTES = 4000, MAX_NAMES = 64, MAX_DEPTH = 50, MAP_CELLS = 160 * 120 };

/* ---- expressions ----

   text      = line {(";" | line end) line}         the last line is what backward begins with
   line      = [name "="] sum                       name = number is a leaf; its number can be dragged
   sum       = product {("+" | "-") product}
   product   = unary {("*" | "/") unary}
   unary     = "-" unary | power
   power     = atom ["^" unary]
   atom      = number | name | function "(" sum ")" | "(" sum ")" */

/* A value on the way: a tensor, or where t is NULL a number that no name holds. */
typedef struct { tg_tensor *t; double number; } operand;

/* A name: what it holds, and for a leaf where its number stands in the text. */
typedef struct { char name[24]; tg_tensor *t; bool leaf; size_t at, length; double number; } binding;

static struct {
    const char *at; /* what has not been read yet */
    char error[200];
    size_t error_at;
    int depth, names;
    binding name[MAX_NAMES];
} parser;
static char text[TEXT_BYTES];

static const struct { const char *name; tg_tensor *(*f)(tg_tensor *x); double (*of_number)(double x); } functions[] = {
    {"exp", tg_exp, exp}, {"tanh", tg_tanh, tanh}, {"relu", tg_relu, NULL}, {"log", tg_log, log},
    {"sin", tg_sin, sin}, {"cos", tg_cos, cos},    {"sqrt", tg_sqrt, sqrt}, {"sigmoid", tg_sigmoid, NULL}};
enum { FUNCTIONS = sizeof functions / sizeof functions[0] };

static operand sum(void);

/* Records the first mistake, at this place of the text. */
static operand mistake(const char *at, const char *format, ...)
{
    const operand nothing = {NULL, 0};
    if (parser.error[0]) return nothing;
    int line = 1;
    for (const char *c = text; c < at; ++c) line += *c == '\n';
    int used = snprintf(parser.error, sizeof parser.error, "line %d: ", line);
    va_list args;
    va_start(args, format);
    vsnprintf(parser.error + used, sizeof parser.error - (size_t)used, format, args);
    va_end(args);
    parser.error_at = (size_t)(at - text);
    return nothing;
}

static char next(void)
{
    while (*parser.at == ' ' || *parser.at == '\t' || *parser.at == '\r') parser.at++;
    return parser.error[0] ? 0 : *parser.at;
}

static bool ends_line(char c) { return c == 0 || c == ';' || c == '\n'; }

static bool take(char c)
{
    if (next() != c) return false;
    parser.at++;
    return true;
}

static size_t word_length(const char *at)
{
    size_t n = 0;
    if (isalpha((unsigned char)*at) || *at == '_')
        while (isalnum((unsigned char)at[n]) || at[n] == '_') n++;
    return n;
}

static bool is_word(const char *known, const char *at, size_t length)
{
    return strlen(known) == length && memcmp(known, at, length) == 0;
}

/* The newest binding of a name; NULL if it has none. */
static binding *find(const char *name, size_t length)
{
    for (int i = parser.names - 1; i >= 0; --i) {
        if (is_word(parser.name[i].name, name, length)) return &parser.name[i];
    }
    return NULL;
}

static tg_tensor *tensor_of(operand x) { return x.t ? x.t : tg_scalar(x.number); }

/* One op, by numbers as long as no name has come in, so that 2*3*x is one node. */
static operand combine(char op, operand a, operand b)
{
    operand y = {NULL, 0};
    if (!a.t && !b.t) {
        y.number = op == '+'   ? a.number + b.number
                   : op == '-' ? a.number - b.number
                   : op == '*' ? a.number * b.number
                   : op == '/' ? a.number / b.number
                               : pow(a.number, b.number);
        return y;
    }
    switch (op) {
    case '+': y.t = !b.t ? tg_add_scalar(a.t, b.number) : !a.t ? tg_add_scalar(b.t, a.number) : tg_add(a.t, b.t); break;
    case '-': y.t = !b.t ? tg_sub_scalar(a.t, b.number) : !a.t ? tg_rsub_scalar(b.t, a.number) : tg_sub(a.t, b.t);
        break;
    case '*': y.t = !b.t ? tg_mul_scalar(a.t, b.number) : !a.t ? tg_mul_scalar(b.t, a.number) : tg_mul(a.t, b.t); break;
    case '/': y.t = !b.t ? tg_div_scalar(a.t, b.number) : tg_div(tensor_of(a), b.t); break;
    default: y.t = !b.t ? tg_pow_scalar(a.t, b.number) : tg_pow(tensor_of(a), b.t); break;
    }
    return y;
}

static operand call(const char *name, size_t length)
{
    char known[200] = "";
    for (int i = 0; i < FUNCTIONS; ++i) {
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, i ? ", %s" : "%s", functions[i].name);
        if (!is_word(functions[i].name, name, length)) continue;
        const char *open = parser.at++;
        operand x = sum(), y = {NULL, 0};
        if (!take(')')) return mistake(open, "this ( is never closed");
        if (x.t) y.t = functions[i].f(x.t);
        else if (functions[i].of_number) y.number = functions[i].of_number(x.number);
        else y.number = tg_item(functions[i].f(tensor_of(x)));
        return y;
    }
    return mistake(name, "there is no function %.*s; there are %s", (int)length, name, known);
}

static operand atom(void)
{
    const char c = next(), *const at = parser.at;
    const size_t length = word_length(at);
    operand x = {NULL, 0};
    if (isdigit((unsigned char)c) || (c == '.' && isdigit((unsigned char)at[1]))) {
        char *end;
        x.number = strtod(at, &end);
        parser.at = end;
    } else if (length) {
        parser.at += length;
        if (next() == '(') return call(at, length);
        const binding *found = find(at, length);
        if (!found)
            return mistake(at, "%.*s has no value yet: write %.*s = 1 above", (int)length, at, (int)length, at);
        x.t = found->t;
        x.number = found->number;
    } else if (take('(')) {
        x = sum();
        if (!take(')')) return mistake(at, "this ( is never closed");
    } else if (ends_line(c)) {
        return mistake(at, "a number or a name is missing at the end of the line");
    } else {
        return mistake(at, "a number or a name is missing here");
    }
    return x;
}

static operand unary(void);

static operand power(void)
{
    const operand x = atom();
    return take('^') ? combine('^', x, unary()) : x;
}

/* All that nests passes here, so here the depth is counted. */
static operand unary(void)
{
    const char *const at = parser.at;
    if (parser.depth >= MAX_DEPTH) return mistake(at, "this nests more than %d deep", MAX_DEPTH);
    parser.depth++;
    operand x;
    if (take('-')) {
        x = unary();
        if (x.t) x.t = tg_neg(x.t);
        x.number = -x.number;
    } else {
        x = power();
    }
    parser.depth--;
    return x;
}

static operand product(void)
{
    operand x = unary();
    for (char op; (op = next()) == '*' || op == '/';) {
        parser.at++;
        x = combine(op, x, unary());
    }
    return x;
}

static operand sum(void)
{
    operand x = product();
    for (char op; (op = next()) == '+' || op == '-';) {
        parser.at++;
        x = combine(op, x, product());
    }
    return x;
}

/* NULL, for a function that returns a binding: `return no_binding(mistake(...));`. */
static binding *no_binding(operand failed)
{
    (void)failed;
    return NULL;
}

/* The binding that a name gets: the one that it has, or a new one; NULL after a mistake. */
static binding *bind(const char *name, size_t length)
{
    binding *b = find(name, length);
    if (length >= sizeof b->name)
        return no_binding(mistake(name, "a name has at most %d letters", (int)sizeof b->name - 1));
    for (int i = 0; i < FUNCTIONS; ++i) {
        if (is_word(functions[i].name, name, length))
            return no_binding(mistake(name, "%s is a function, choose another name", functions[i].name));
    }
    if (!b && parser.names == MAX_NAMES) return no_binding(mistake(name, "there are more than %d names", MAX_NAMES));
    if (!b) b = &parser.name[parser.names++];
    memset(b, 0, sizeof *b);
    memcpy(b->name, name, length);
    return b;
}

/* One line, whose value it returns: an assignment, or an expression alone. */
static operand line(void)
{
    next();
    const char *const name = parser.at;
    const size_t length = word_length(name);
    parser.at += length;
    const bool assigns = length && take('=');
    if (!assigns) parser.at = name;
    next();
    const char *const begin = parser.at;
    char *end;
    const double number = strtod(begin + (*begin == '-'), &end);
    const bool has_digit = isdigit((unsigned char)begin[*begin == '-']) || begin[*begin == '-'] == '.';
    operand x = sum();
    if (!ends_line(next())) return mistake(parser.at, "this is not understood after what stands before it");
    binding *b = assigns && !parser.error[0] ? bind(name, length) : NULL;
    if (!b) return x;
    b->leaf = has_digit && end > begin && ends_line(end[strspn(end, " \t\r")]);
    if (b->leaf) {
        b->at = (size_t)(begin - text);
        b->length = (size_t)(end - begin);
        x.number = *begin == '-' ? -number : number;
        x.t = tg_set_requires_grad(tg_scalar(x.number), true);
    }
    const bool has_name = x.t && tg_name(x.t) && tg_name(x.t)[0];
    if (x.t && !has_name) tg_set_name(x.t, b->name);
    b->t = x.t;
    b->number = x.number;
    return x;
}

/* The root of the expression in `text`; NULL after a mistake. */
static tg_tensor *root(void)
{
    operand last = {NULL, 0};
    memset(&parser, 0, sizeof parser);
    parser.at = text;
    while (next() && !parser.error[0]) {
        if (ends_line(*parser.at)) parser.at++;
        else last = line();
    }
    if (!parser.error[0] && (!last.t || tg_is_leaf(last.t)))
        mistake(parser.at, "the last line has to compute something from names, as in x = 2; y = x*x");
    if (!parser.error[0] && !tg_ok()) mistake(parser.at, "%s", tg_error_message());
    return parser.error[0] ? NULL : last.t;
}

static void print_text(const char *s)
{
    putchar('"');
    for (; *s; ++s) {
        if (strchr("\"\\<>&", *s) || (unsigned char)*s < ' ') printf("\\u%04x", (unsigned)(unsigned char)*s);
        else putchar(*s);
    }
    putchar('"');
}

/* Where the page puts its text. */
EXPORT(web_text) char *web_text(void) { return text; }

/* Answers the expression in `text`: {"value": .., "leaves": [..]} and behind that line the page, or {"error": .., "at":
   ..}, the byte at which the mistake is. */
EXPORT(web_play) void web_play(void)
{
    TG_SCOPE;
    const char *between = "";
    tg_set_default_dtype(TG_F64);
    tg_set_error_handler(NULL, NULL);
    tg_clear_error();
    text[TEXT_BYTES - 1] = 0;
    tg_tensor *y = root();
    if (y) {
        const double value = tg_item(y);
        printf(value == value ? "{\"value\":\"%.6g\",\"leaves\":[" : "{\"value\":\"nan\",\"leaves\":[", value);
        for (int i = 0; i < parser.names; ++i) {
            const binding *b = &parser.name[i];
            if (!b->leaf) continue;
            printf("%s{\"name\":\"%s\",\"value\":%.17g,\"at\":%d,\"length\":%d}", between, b->name, b->number,
                   (int)b->at, (int)b->length);
            between = ",";
        }
        printf("]}\n");
        tg_tape_html(stdout, y);
    } else {
        printf("{\"error\":");
        print_text(parser.error);
        printf(",\"at\":%d}\n", (int)parser.error_at);
    }
    fflush(stdout);
}

/* ---- two moons ---- */

static struct {
    network net;
    tg_tensor *points, *labels; /* [POINTS, 2] and [POINTS] */
    tg_optim *opt;              /* NULL before the first start */
    int step;
    double point[POINTS * 4]; /* x, y, label, score: what the page draws */
    float map[MAP_CELLS];     /* the score of each cell, row by row */
} moons;

/* Begins anew, always with the same numbers. */
EXPORT(web_moons_start) void web_moons_start(void)
{
    TG_SCOPE;
    if (moons.opt) {
        tg_optim_free(moons.opt);
        for (int i = 0; i < 2 * LAYERS; ++i) tg_release(moons.net.params[i]);
        tg_release(moons.points);
        tg_release(moons.labels);
    }
    tg_set_default_dtype(TG_F64);
    tg_clear_error();
    tg_seed(1337);
    make_moons(&moons.points, &moons.labels);
    tg_retain(moons.points);
    tg_retain(moons.labels);
    make_network(&moons.net);
    moons.opt = tg_sgd(moons.net.params, 2 * LAYERS, 0.5);
    moons.step = 0;
    for (int i = 0; i < POINTS; ++i) {
        moons.point[4 * i] = tg_get(moons.points, TG_INDEX(i, 0));
        moons.point[4 * i + 1] = tg_get(moons.points, TG_INDEX(i, 1));
        moons.point[4 * i + 2] = tg_get(moons.labels, TG_INDEX(i));
    }
}

/* Makes n steps of training, but not beyond STEPS, and answers how good the network is then. */
EXPORT(web_moons_steps) void web_moons_steps(int n)
{
    for (; n >= 0; --n) {
        TG_SCOPE;
        tg_tensor *scores = score(&moons.net, moons.points), *loss = loss_of(&moons.net, scores, moons.labels);
        if (n == 0 || moons.step == STEPS) {
            printf("{\"step\":%d,\"of\":%d,\"loss\":%.17g,\"accuracy\":%.17g}\n", moons.step, (int)STEPS, tg_item(loss),
                   accuracy(scores, moons.labels));
            for (int i = 0; i < POINTS; ++i) moons.point[4 * i + 3] = tg_get(scores, TG_INDEX(i));
            break;
        }
        moons.opt->lr = 0.5 * (1 - 0.9 * moons.step / (int)STEPS);
        tg_optim_zero_grad(moons.opt);
        tg_backward(loss);
        tg_step(moons.opt);
        moons.step++;
    }
    fflush(stdout);
}

EXPORT(web_moons_points) double *web_moons_points(void) { return moons.point; }

/* The scores of width x height cells of the map from (-1.6, 1.6) at the top left to (2.6, -1.1). */
EXPORT(web_moons_map) float *web_moons_map(int width, int height)
{
    TG_SCOPE;
    TG_NO_GRAD;
    if (width < 1 || height < 1 || width * height > MAP_CELLS) return NULL;
    tg_tensor *cells = tg_zeros(TG_SHAPE(width * height, 2));
    double *xy = tg_data_f64(cells);
    for (int i = 0; xy && i < width * height; ++i) {
        xy[2 * i] = -1.6 + (i % width + 0.5) * (4.2 / width);
        xy[2 * i + 1] = 1.6 - (i / width + 0.5) * (2.7 / height);
    }
    const double *scores = tg_data_f64(score(&moons.net, cells));
    for (int i = 0; scores && i < width * height; ++i) moons.map[i] = (float)scores[i];
    return moons.map;
}

#ifndef __wasm__
int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "moons") == 0) {
        web_moons_start();
        for (int i = 0; i <= atoi(argv[2]); ++i) web_moons_steps(i > 0);
        const float *map = web_moons_map(12, 8);
        for (int i = 0; i < 12 * 8; ++i) printf("%.9g%c", (double)map[i], i % 12 == 11 ? '\n' : ' ');
        return tg_ok() ? 0 : 1;
    }
    for (int i = 1; i < argc; ++i) {
        snprintf(text, sizeof text, "%s", argv[i]);
        web_play();
    }
    return argc > 1 ? 0 : 1;
}
#endif
