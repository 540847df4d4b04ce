/* Profiles: which slices there are, how they are nested, and their sums in the table and in the trace, read here
 * by a small parser of JSON. */
#include "tensorgrad.h"
#include "semantics.h"
#include "helpers.h"

/* ---- the trace, read back ---- */

enum { MOST_SLICES = 4000 };
typedef struct {
    char name[80], category[16];
    double from, took; /* microseconds */
    int lane;
    double bytes, flop; /* 0: not in the trace */
} slice;
static slice slices[MOST_SLICES];
static int slice_count;
static char lanes[64][40]; /* the names of the lanes, by number */

static const char *at; /* in the text */
static bool broken;    /* the text is no JSON of this form */

static bool token(const char *wanted)
{
    while (*at == ' ' || *at == '\n') ++at;
    if (strncmp(at, wanted, strlen(wanted)) != 0) return false;
    at += strlen(wanted);
    return true;
}

static void need(const char *wanted)
{
    if (!token(wanted)) broken = true;
}

static void text(char *to, size_t size)
{
    size_t n = 0;
    need("\"");
    for (; *at && *at != '"'; ++at) {
        char c = *at;
        if ((unsigned char)c < 0x20) broken = true;
        if (c == '\\') {
            c = *++at;
            if (c == 'u') c = (char)strtol((at += 4) - 3, NULL, 16);
            else if (strchr("nt", c)) c = c == 'n' ? '\n' : '\t';
            else if (!strchr("\"\\", c)) broken = true;
        }
        if (n + 1 < size) to[n++] = c;
    }
    to[n] = 0;
    need("\"");
}

static double number(void)
{
    char *end;
    double x;
    while (*at == ' ') ++at;
    if (!strchr("-0123456789", *at)) broken = true;
    x = harness_number(at, &end);
    if (*end == ',' && strchr("0123456789", end[1]) && end[1]) broken = true; /* a comma as the point */
    at = end;
    return x;
}

/* An object: of what it has, that which belongs to a slice. */
static void object(slice *s, char *args_name, char *phase)
{
    char key[40], other[80];
    need("{");
    if (token("}")) return;
    do {
        text(key, sizeof key);
        need(":");
        if (strcmp(key, "name") == 0) text(args_name ? args_name : s->name, args_name ? 40 : sizeof s->name);
        else if (strcmp(key, "cat") == 0) text(s->category, sizeof s->category);
        else if (strcmp(key, "ph") == 0) text(phase, 4);
        else if (strcmp(key, "ts") == 0) s->from = number();
        else if (strcmp(key, "dur") == 0) s->took = number();
        else if (strcmp(key, "tid") == 0) s->lane = (int)number();
        else if (strcmp(key, "bytes") == 0) s->bytes = number();
        else if (strcmp(key, "flop") == 0) s->flop = number();
        else if (strcmp(key, "args") == 0) object(s, other, phase), memcpy(lanes[63], other, 40);
        else if (*at == '"') text(other, sizeof other);
        else number();
    } while (!broken && token(","));
    need("}");
}

/* Reads the file into slices; false if it is no trace. */
static bool read_trace(const char *path)
{
    static char all[1 << 20];
    FILE *file = fopen(path, "rb");
    size_t n = file ? fread(all, 1, sizeof all - 1, file) : 0;
    if (file) fclose(file);
    all[n] = 0, at = all, broken = !n, slice_count = 0;
    memset(lanes, 0, sizeof lanes);
    need("{"), need("\"displayTimeUnit\""), need(":"), need("\"ms\""), need(","), need("\"traceEvents\""), need(":");
    need("[");
    do {
        slice s;
        char phase[4] = "";
        memset(&s, 0, sizeof s);
        object(&s, NULL, phase);
        if (strcmp(phase, "X") == 0 && slice_count < MOST_SLICES) slices[slice_count++] = s;
        else if (strcmp(s.name, "thread_name") == 0 && s.lane < 63) memcpy(lanes[s.lane], lanes[63], 40);
        else if (strcmp(phase, "M") != 0) broken = true;
    } while (!broken && token(","));
    need("]"), need("}");
    while (*at == '\n') ++at;
    return !broken && !*at;
}

static int count_of(const char *category, const char *name)
{
    int n = 0;
    for (int k = 0; k < slice_count; ++k) {
        n += strcmp(slices[k].category, category) == 0 && (!name || strcmp(slices[k].name, name) == 0);
    }
    return n;
}

/* The last slice of this name; one of nothing if there is none. */
static const slice *find(const char *name)
{
    static const slice none = {"", "", -1, -1, 0, -1, -1};
    for (int k = 0; k < slice_count; ++k) {
        if (strcmp(slices[k].name, name) == 0) return &slices[k];
    }
    return &none;
}
static bool there_is(const char *name) { return *find(name)->name != 0; }

static bool contains(const slice *outer, const slice *inner)
{
    const double hair = 0.0005; /* times are thousandths of a microsecond in decimals */
    return inner->from >= outer->from - hair && inner->from + inner->took <= outer->from + outer->took + hair;
}

/* Whether each two slices are one inside of the other, or one after the other. */
static bool nested_rightly(void)
{
    for (int i = 0; i < slice_count; ++i) {
        for (int k = i + 1; k < slice_count; ++k) {
            const slice *a = &slices[i], *b = &slices[k];
            const bool apart = a->from + a->took <= b->from + 0.0005 || b->from + b->took <= a->from + 0.0005;
            if (!apart && !contains(a, b) && !contains(b, a)) return false;
        }
    }
    return true;
}

/* The trace of what has run since tg_profile_begin, which ends. */
static bool ends(void)
{
    const char *path = beside("trace.json");
    const bool ok = tg_profile_end(path) == TG_OK && read_trace(path);
    remove(path);
    return ok;
}

/* ---- the table, read back ---- */

typedef struct { long long calls; double total, self, share; char rate[2][20]; } line;

static const char *table(void)
{
    FILE *file = tmpfile();
    return file && CHECK(tg_profile_print(file) == TG_OK) ? text_of(file) : "";
}

/* A number behind spaces, in every locale. */
static double number_of(const char *text) { return harness_number(text + strspn(text, " "), NULL); }

/* The row of this name in the text; all 0 if there is none. */
static line row_of(const char *all, const char *name)
{
    line l;
    memset(&l, 0, sizeof l);
    for (const char *p = all; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL) {
        if (strncmp(p, name, strlen(name)) != 0 || strncmp(p + strlen(name), "  ", 2) != 0) continue;
        char total[20] = "", self[20] = "", share[20] = "";
        sscanf(p + strlen(name), "%lld %19s %19s %19s %19s %19s", &l.calls, total, self, share, l.rate[0], l.rate[1]);
        l.total = number_of(total);
        l.self = number_of(self);
        l.share = number_of(share);
    }
    return l;
}

static tg_tensor *leaf_of_ones(int64_t rows, int64_t columns)
{
    return tg_set_requires_grad(tg_ones_on(TG_SHAPE(rows, columns), TG_F32, HERE), true);
}

/* ---- what there is ---- */

TEST(ops_and_backward)
{
    tg_tensor *a = leaf_of_ones(3, 4), *b = leaf_of_ones(4, 5), *y;
    CHECK(tg_profile_begin() == TG_OK);
    y = tg_matmul(a, b);
    y = tg_mul(y, y);
    y = tg_mul(tg_add_scalar(y, 1), y);
    y = tg_sum(y);
    CHECK(tg_backward(y) == TG_OK);
    if (!CHECK(ends())) return;
    /* y + 1, whose gradient is g itself, is recorded all the same */
    CHECK(count_of("backward", NULL) == 5);
    CHECK(count_of("backward", "mul backward") == 2 && count_of("backward", "matmul backward") == 1);
    CHECK(count_of("backward", "sum backward") == 1 && count_of("backward", "add_scalar backward") == 1);
    /* of forward, and the two that each of the others needs in backward */
    CHECK(count_of("op", "matmul") == 3 && count_of("op", "add_scalar") == 1 && count_of("op", "sum") == 1);
    CHECK(nested_rightly());
    int products = 0;
    for (int k = 0; k < slice_count; ++k) {
        products += strcmp(slices[k].name, "matmul") == 0 && contains(find("matmul backward"), &slices[k]);
        CHECK(slices[k].from >= 0 && slices[k].took >= 0);
        CHECK(strcmp(lanes[slices[k].lane], tg_device_str(HERE)) == 0);
    }
    CHECK(products == 2);
}

static tg_tensor *one(tg_tensor *t)
{
    t = tg_relu(t);
    return CHECK(ends()) && CHECK(slice_count == 1) ? t : NULL;
}

static double flop_of_ops(void)
{
    double flop = 0;
    for (int k = 0; k < slice_count; ++k) flop += strcmp(slices[k].category, "op") == 0 ? slices[k].flop : 0;
    return flop;
}

/* Of products in other ops, and in backward: for x and for the weight as many as in forward. */
TEST(flop_of_attention_and_convolutions)
{
    tg_tensor *q = tg_ones_on(TG_SHAPE(2, 5, 8), TG_F32, HERE), *k = tg_ones_on(TG_SHAPE(2, 6, 8), TG_F32, HERE), *y;
    tg_tensor *x = tg_ones_on(TG_SHAPE(2, 3, 5, 5), TG_F32, HERE), *w = tg_ones_on(TG_SHAPE(3, 4, 2, 2), TG_F32, HERE);
    const double attention = 2.0 * 2 * 5 * 6 * (8 + 8), places = 2 * 3 * 5 * 5;
    tg_profile_begin(), y = tg_scaled_dot_product_attention(q, k, k, NULL, 0, false, 0);
    CHECK(y && ends());
    CHECK_NEAR(flop_of_ops(), attention, 0);
    tg_profile_begin();
    y = tg_conv_transpose2d(x, w, NULL, TG_SHAPE(1, 1), TG_SHAPE(0, 0), TG_SHAPE(0, 0), 1, TG_SHAPE(1, 1));
    CHECK(y && ends());
    CHECK_NEAR(flop_of_ops(), 2 * places * 4 * 2 * 2, 0);
    w = tg_ones_on(TG_SHAPE(4, 3, 3, 3), TG_F32, HERE);
    tg_set_requires_grad(w, true), tg_set_requires_grad(x, true);
    y = tg_sum(tg_conv2d(x, w, NULL, TG_SHAPE(1, 1), TG_SHAPE(1, 1), TG_SHAPE(1, 1), 1));
    tg_profile_begin();
    CHECK(tg_backward(y) == TG_OK && ends());
    CHECK_NEAR(flop_of_ops(), 2 * 2.0 * 2 * 4 * 5 * 5 * 27, 0);
}

TEST(bytes_and_flop)
{
    tg_tensor *a = tg_ones_on(TG_SHAPE(3, 4), TG_F32, HERE), *b = tg_ones_on(TG_SHAPE(4, 5), TG_F32, HERE);
    tg_tensor *row = tg_ones_on(TG_SHAPE(4), TG_F32, HERE), *x = tg_ones_on(TG_SHAPE(2, 3, 8, 8), TG_F32, HERE);
    tg_tensor *w = tg_ones_on(TG_SHAPE(5, 3, 3, 3), TG_F32, HERE), *y;
    tg_profile_begin(), y = tg_matmul(a, b);
    CHECK(ends() && find("matmul")->bytes == (12 + 20 + 15) * 4 && find("matmul")->flop == 2 * 3 * 4 * 5);
    tg_profile_begin(), y = tg_add(a, row);
    CHECK(ends() && find("add")->bytes == (12 + 4 + 12) * 4 && find("add")->flop == 0);
    tg_profile_begin(), y = tg_add(a, tg_expand(tg_reshape(row, TG_SHAPE(1, 4)), TG_SHAPE(3, 4)));
    CHECK(ends() && find("add")->bytes == (12 + 4 + 12) * 4); /* what is expanded is read once */
    CHECK(find("expand")->bytes == 0);                         /* a view */
    tg_profile_begin(), y = tg_add_(a, row);
    CHECK(ends() && find("add_")->bytes == (12 + 4 + 12) * 4);
    tg_profile_begin(), y = tg_copy_(a, row);
    CHECK(ends() && there_is("copy_") && !there_is("copy__")); /* the op inside has the name of the function */
    tg_profile_begin(), y = tg_conv2d(x, w, NULL, TG_SHAPE(1, 1), TG_SHAPE(1, 1), TG_SHAPE(1, 1), 1);
    CHECK(y && ends() && there_is("conv2d"));
    CHECK(flop_of_ops() == 2.0 * 2 * 5 * 8 * 8 * 27);
    tg_profile_begin(), y = tg_linear(a, tg_ones_on(TG_SHAPE(7, 4), TG_F32, HERE), NULL);
    CHECK(y && ends());
    double flop = 0;
    for (int k = 0; k < slice_count; ++k) flop += slices[k].flop;
    CHECK(flop == 2 * 3 * 4 * 7);
    tg_profile_begin();
    CHECK(one(a) != NULL);
}

TEST(composites)
{
    tg_tensor *x = leaf_of_ones(4, 6), *y;
    line l;
    tg_profile_begin();
    y = tg_layer_norm(x, 1, NULL, NULL, 1e-5);
    l = row_of(table(), "layer_norm");
    CHECK(l.calls == 1 && l.total >= l.self); /* the op inside of the function of its name is part of it */
    y = tg_std_dims(x, TG_DIMS(1), 1, false);
    CHECK(row_of(table(), "std").calls == 1);
    CHECK(y && ends() && nested_rightly());
    CHECK(there_is("layer_norm") && find("std")->took > 0);
}

TEST(the_table)
{
    tg_tensor *a = tg_ones_on(TG_SHAPE(64, 64), TG_F32, HERE), *y = a;
    const char *all;
    double shares = 0;
    tg_profile_begin();
    for (int k = 0; k < 7; ++k) y = tg_matmul(y, a);
    for (int k = 0; k < 3; ++k) y = tg_tanh(y);
    y = tg_t(y);
    all = table(); /* while it runs */
    CHECK(row_of(all, "matmul").calls == 7 && row_of(all, "tanh").calls == 3 && row_of(all, "all").calls >= 11);
    CHECK(strcmp(row_of(all, "matmul").rate[1], "-") != 0 && strcmp(row_of(all, "matmul").rate[0], "-") != 0);
    CHECK(strcmp(row_of(all, "tanh").rate[1], "-") == 0 && strcmp(row_of(all, "tanh").rate[0], "-") != 0);
    const line product = row_of(all, "matmul");
    CHECK(product.total > 0);
    /* 7 products of 64 x 64 by the time that the table says */
    CHECK_NEAR(number_of(product.rate[1]) * product.total / (7 * 2 * 64.0 * 64 * 64 / 1e6), 1, 0.05);
    CHECK(strstr(all, "GFLOP/s\n") && strstr(all, "\nin "));
    for (const char *p = strchr(all, '%'); p; p = strchr(p + 1, '%')) shares += number_of(p - 6);
    CHECK_NEAR(shares, 200, 1); /* with the last row, of all */
    CHECK(tg_profile_end(NULL) == TG_OK);
    y = tg_exp(a);
    all = table(); /* of the last profile */
    CHECK(y && row_of(all, "matmul").calls == 7 && row_of(all, "exp").calls == 0);
    tg_profile_begin();
    CHECK(row_of(table(), "all").calls == 0);
    CHECK(tg_profile_end(NULL) == TG_OK);
}

TEST(nothing_when_off)
{
    tg_tensor *a = leaf_of_ones(2, 2), *y;
    y = tg_exp(a);
    tg_profile_begin();
    CHECK(ends() && slice_count == 0);
    CHECK(tg_backward(tg_sum(y)) == TG_OK);
    CHECK(row_of(table(), "all").calls == 0);
    /* a call that fails, in which nothing was nested */
    tg_profile_begin();
    CHECK_FAILS(tg_matmul(a, tg_ones_on(TG_SHAPE(3, 3), TG_F32, HERE)), "shapes cannot be multiplied");
    tg_clear_error();
    CHECK(ends() && count_of("op", "matmul") == 0);
}

static tg_status no_gradient(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    return (void)ctx, (void)grad_out, grad_in[0] = NULL, TG_OK;
}
static tg_status begin_inside(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    (void)ctx;
    CHECK(tg_profile_begin() == TG_OK);
    return (out[0] = tg_exp(in[0])) ? TG_OK : TG_ERR_ARGUMENT;
}
static tg_status end_inside(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    (void)ctx;
    CHECK(tg_profile_end(NULL) == TG_OK);
    return (out[0] = tg_exp(in[0])) ? TG_OK : TG_ERR_ARGUMENT;
}
static tg_tensor *begins(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    CHECK(tg_profile_begin() == TG_OK);
    return tg_exp(in[0]);
}

TEST(begun_and_ended_inside)
{
    tg_tensor *a = leaf_of_ones(2, 2), *y = NULL;
    /* what was under way when the profile began, or goes on when it ends, is not in it */
    CHECK(tg_custom("first", begin_inside, no_gradient, NULL, &a, 1, &y, 1) == TG_OK);
    y = tg_neg(a);
    CHECK(ends() && slice_count == 2 && there_is("exp") && there_is("neg"));
    CHECK(tg_profile_begin() == TG_OK);
    CHECK(tg_custom("second", end_inside, no_gradient, NULL, &a, 1, &y, 1) == TG_OK);
    CHECK(row_of(table(), "all").calls == 0);
    /* a checkpoint sets and restores what each op does beside its work */
    y = tg_checkpoint(begins, &a, 1, NULL);
    y = tg_neg(y);
    CHECK(y && ends() && count_of("op", "exp") == 1 && count_of("op", "neg") == 1);
}

static tg_status doubled(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    (void)ctx;
    return (out[0] = tg_mul_scalar(in[0], 2)) ? TG_OK : TG_ERR_ARGUMENT;
}

TEST(names)
{
    static const char odd[] = "a \"quoted\\ name\"\n\t<\xC3\xA9>";
    char longer[101];
    tg_tensor *a = leaf_of_ones(2, 2), *y = NULL;
    memset(longer, 0, sizeof longer);
    for (int k = 0; k < 100; k += 2) longer[k] = '\xC3', longer[k + 1] = '\xA9';
    tg_profile_begin();
    CHECK(tg_custom(odd, doubled, no_gradient, NULL, &a, 1, &y, 1) == TG_OK);
    CHECK(tg_custom(longer, doubled, no_gradient, NULL, &a, 1, &y, 1) == TG_OK);
    CHECK(tg_custom(longer, doubled, no_gradient, NULL, &a, 1, &y, 1) == TG_OK);
    CHECK(ends() && there_is(odd) && count_of("op", "mul_scalar") == 3 && count_of("op", NULL) == 6);
    CHECK(nested_rightly());
}

TEST(steps_of_optimizers)
{
    tg_tensor *w = tg_param(tg_ones_on(TG_SHAPE(8), TG_F32, HERE));
    tg_optim *o = tg_adam(&w, 1, 0.1);
    tg_profile_begin();
    CHECK(tg_backward(tg_sum(tg_mul(w, w))) == TG_OK && tg_step(o) == TG_OK && tg_step(o) == TG_OK);
    CHECK(ends() && count_of("step", "step") == 2 && count_of("backward", "mul backward") == 1);
    tg_optim_free(o);
    tg_release(w);
}

TEST(moves_and_waits)
{
    tg_tensor *a = tg_ones_on(TG_SHAPE(6, 7), TG_F32, HERE), *y;
    char up[60], down[60];
    tg_profile_begin();
    CHECK(tg_synchronize(HERE) == TG_OK);
    y = tg_to(a, TG_CPU);
    y = y ? tg_to(y, HERE) : NULL;
    CHECK(y && ends());
    CHECK(count_of("wait", "wait in synchronize") == 1);
    if (HERE.type == TG_DEV_CPU) {
        CHECK(count_of("move", NULL) == 0);
        return;
    }
    snprintf(up, sizeof up, "cpu to %s", tg_device_str(HERE));
    snprintf(down, sizeof down, "%s to cpu", tg_device_str(HERE));
    CHECK(count_of("move", NULL) == 2 && count_of("op", "to") == 2);
    CHECK(find(up)->bytes == 42 * 4 && find(down)->bytes == 42 * 4);
    CHECK(strcmp(lanes[find(up)->lane], tg_device_str(HERE)) == 0 && strcmp(lanes[0], "cpu") == 0);
    tg_profile_begin();
    tg_set_sync_checks(true);
    y = tg_exp(a);
    tg_set_sync_checks(false);
    CHECK(y && ends() && count_of("op", "exp") == 1 && slice_count == 1);
}

/* ---- errors ---- */

TEST(refused)
{
    const char *nowhere = beside("no_folder/trace.json");
    tg_tensor *a = leaf_of_ones(2, 2);
    CHECK_FAILS(tg_profile_end(NULL), "no profile is running");
    tg_clear_error();
    CHECK(tg_profile_begin() == TG_OK);
    CHECK_FAILS(tg_profile_begin(), "a profile is running already");
    a = tg_exp(a);
    CHECK_FAILS(tg_profile_end(nowhere), "the file cannot be written");
    CHECK_FAILS(tg_profile_print(NULL), "argument file is NULL");
    tg_clear_error();
    a = tg_neg(a); /* it goes on after each of them */
    CHECK(a && ends() && slice_count == 2 && count_of("op", "exp") == 1);
#ifdef __linux__
    FILE *full = fopen("/dev/full", "w");
    CHECK(tg_profile_begin() == TG_OK);
    CHECK_FAILS(tg_profile_end("/dev/full"), "not a regular file");
    if (full) {
        CHECK_FAILS(tg_profile_print(full), "the file could not be written");
        fclose(full);
    }
    tg_clear_error();
    CHECK(tg_profile_end(NULL) == TG_OK);
#endif
}

TEST(in_a_locale_with_a_comma)
{
    tg_tensor *a = tg_ones_on(TG_SHAPE(64, 64), TG_F32, HERE);
    if (comma_locale()) {
        FILE *file = tmpfile();
        tg_profile_begin();
        a = tg_matmul(a, a);
        CHECK(a && file && tg_profile_print(file) == TG_OK && !strchr(text_of(file), ','));
        const char *path = beside("comma.json");
        CHECK(tg_profile_end(path) == TG_OK);
        setlocale(LC_ALL, "C");
        CHECK(read_trace(path) && slice_count == 1);
        remove(path);
    }
    setlocale(LC_ALL, "C");
}

TEST(many)
{
    tg_tensor *a = tg_ones_on(TG_SHAPE(2), TG_F32, HERE);
    tg_profile_begin();
    for (int k = 0; k < 3000; ++k) {
        TG_SCOPE;
        tg_tensor *y = tg_exp(a);
        CHECK(y != NULL);
    }
    CHECK(row_of(table(), "exp").calls == 3000);
    CHECK(ends() && slice_count == 3000 && nested_rightly());
}

/* ---- out of memory ---- */

/* A profile that runs out of memory stops, and says so at its end; no op fails for it. */
static bool runs_out(void)
{
    const char *path = beside("memory.json");
    if (tg_profile_begin() != TG_OK) return false;
    tg_tensor *a = tg_ones_on(TG_SHAPE(2), TG_F32, HERE);
    bool ok = a != NULL;
    for (int k = 0; ok && k < 600; ++k) {
        TG_SCOPE;
        ok = tg_neg(a) != NULL;
    }
    const bool ran = ok;
    const tg_status status = tg_profile_end(NULL);
    if (status == TG_ERR_MEMORY) CHECK(!ran || strstr(tg_error_message(), "the first "));
    ok = ok && status == TG_OK && tg_profile_begin() == TG_OK;
    if (ok && tg_profile_end(path) != TG_OK) ok = tg_profile_end(NULL) != TG_OK; /* it still runs */
    remove(path);
    return ok;
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    out_of_memory(runs_out);
    RUN(ops_and_backward);
    RUN(flop_of_attention_and_convolutions);
    RUN(bytes_and_flop);
    RUN(composites);
    RUN(the_table);
    RUN(nothing_when_off);
    RUN(begun_and_ended_inside);
    RUN(names);
    RUN(steps_of_optimizers);
    RUN(moves_and_waits);
    RUN(refused);
    RUN(in_a_locale_with_a_comma);
    RUN(many);
    check_rows("test_profile");
    harness.test = "ends_with_the_thread";
    CHECK(tg_profile_begin() == TG_OK);
    CHECK(tg_shutdown() == TG_OK);
    CHECK_FAILS(tg_profile_print(stdout), "there was no profile");
    CHECK_FAILS(tg_profile_end(NULL), "no profile is running");
    tg_clear_error();
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
