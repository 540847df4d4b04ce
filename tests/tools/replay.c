/* Replays PyTorch's own op tests: reads what opinfo_fixtures.py recorded (cases.txt, tensors.safetensors), makes the
   same calls here and compares outputs and input gradients in f64; calls that PyTorch refuses have to fail here, too.

       replay DIR [ops] [--device cpu|cudasim|cuda] [-v]
       replay --names: those of the ops that it can call, as PyTorch has them, one a line
           ops: only these (softmax,cross_entropy,...); -v: every case that was left out

   Every value case runs three times: on contiguous inputs; on inputs with NaN between their elements and a backward that
   is recorded itself; and with all inputs in f32, compared with what PyTorch computed in f64.  A case is left out only
   because it cannot be written in C, never because it fails: an argument of a type that the compiler refuses (a number
   where a tensor stands), out=, which no function has, random numbers, which are others than PyTorch's, and dtypes that
   the library does not have.  Each is counted under its op and reason.  See tests/tools/replay.sh.

   A line that begins with W, as tests/tools/points.py writes them, is a value case with two more lists: a cotangent for
   each gradient that was recorded, and the gradients of these gradients, which are compared, too.  It runs once.  Its
   inputs are at zeros, kinks, ties, poles and infinities, and what is asked for is that derivatives are PyTorch's where
   those are finite; where PyTorch's are not, the derivatives here may be others, and -v lists them. */
#include "tensorgrad.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* f64 against f64: another order of summation or another exp costs some of the 16 digits, a wrong formula all */
static const double value_tolerance = 1e-9, gradient_tolerance = 1e-8;
/* f32 against f64, of the largest number of the tensor */
static const double single_tolerance = 1e-4;

static tg_device device; /* that the tensors are on */
static bool singles;     /* whether the inputs are in f32 */
static bool verbose;
static bool points;      /* whether the line begins with W */
static int freer;        /* derivatives that are not PyTorch's, where that has NaN or an infinity */
static bool has_f64, has_narrow; /* whether an input was recorded in f64; in another floating dtype */

/* ---- the recorded tensors ---------------------------------------------------------------------------------------- */

typedef struct {
    tg_dtype dtype;
    bool known; /* whether the library has the dtype */
    tg_shape shape;
    const unsigned char *data;
    size_t bytes;
} recorded;
static recorded *tensors;
static int tensor_count;

static void stop(const char *what, const char *where)
{
    fprintf(stderr, "replay: %s: %.60s\n", what, where);
    exit(2);
}

/* The whole file with a 0 after it. */
static char *read_file(const char *folder, const char *name, size_t *bytes)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) stop("path too long", name);
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) stop("cannot read", path);
    long size = ftell(file);
    char *text = size < 0 ? NULL : (char *)malloc((size_t)size + 1);
    if (!text || fseek(file, 0, SEEK_SET) || fread(text, 1, (size_t)size, file) != (size_t)size)
        stop("cannot read", path);
    fclose(file);
    text[size] = 0;
    *bytes = (size_t)size;
    return text;
}

static void expect(const char **at, const char *text)
{
    size_t n = strlen(text);
    if (strncmp(*at, text, n)) stop("the header of tensors.safetensors is not what the tool writes", *at);
    *at += n;
}

static int64_t expect_number(const char **at)
{
    char *end;
    if (**at < '0' || **at > '9') stop("a number is missing in tensors.safetensors", *at);
    long long n = strtoll(*at, &end, 10);
    *at = end;
    return (int64_t)n;
}

/* {"t0":{"dtype":"F64","shape":[2,3],"data_offsets":[0,48]},"t1":...}: t0, t1, ... in order, without gaps, no more */
static void read_tensors(const char *folder)
{
    static const struct {
        const char *name;
        tg_dtype dtype;
        bool known;
        size_t bytes;
    } types[] = {{"F64", TG_F64, true, 8},   {"F32", TG_F32, true, 4}, {"F16", TG_F16, true, 2},
                 {"BF16", TG_BF16, true, 2}, {"I64", TG_I64, true, 8}, {"I32", TG_I32, true, 4},
                 {"I16", TG_I16, true, 2},   {"I8", TG_I8, true, 1},   {"U8", TG_U8, true, 1},
                 {"BOOL", TG_BOOL, true, 1}};
    size_t bytes, header = 0, end = 0;
    const char *file = read_file(folder, "tensors.safetensors", &bytes), *at = file + 8;
    int room = 0;
    for (int k = 7; k >= 0 && bytes >= 8; --k) header = header << 8 | (unsigned char)file[k];
    if (bytes < 8 || header > bytes - 8) stop("the header is longer than the file", folder);
    expect(&at, "{");
    while (*at == '"') {
        char name[32];
        recorded t;
        memset(&t, 0, sizeof t);
        snprintf(name, sizeof name, "\"t%d\":{\"dtype\":\"", tensor_count);
        expect(&at, name);
        size_t type = 0, count = sizeof types / sizeof *types, item;
        while (type < count &&
               (strncmp(at, types[type].name, strlen(types[type].name)) || at[strlen(types[type].name)] != '"'))
            ++type;
        if (type == count) stop("unknown dtype", at);
        at += strlen(types[type].name);
        t.dtype = types[type].dtype, t.known = types[type].known, item = types[type].bytes;
        expect(&at, "\",\"shape\":[");
        while (*at != ']') {
            if (t.shape.ndim == TG_MAX_DIMS) stop("too many dims", at);
            if (t.shape.ndim) expect(&at, ",");
            t.shape.dim[t.shape.ndim] = expect_number(&at);
            item *= (size_t)t.shape.dim[t.shape.ndim++];
        }
        expect(&at, "],\"data_offsets\":[");
        if ((size_t)expect_number(&at) != end) stop("tensors do not follow each other", at);
        expect(&at, ",");
        end = (size_t)expect_number(&at);
        expect(&at, "]}");
        if (*at == ',') ++at;
        t.data = (const unsigned char *)file + 8 + header + end - item, t.bytes = item;
        if (end < item || end > bytes - 8 - header) stop("a tensor reaches past the end", name);
        if (tensor_count == room &&
            !(tensors = (recorded *)realloc(tensors, (size_t)(room = 2 * room + 64) * sizeof t)))
            stop("no memory", "");
        tensors[tensor_count++] = t;
    }
    expect(&at, "}");
    while (at < file + 8 + header) expect(&at, " ");
    if (end != bytes - 8 - header) stop("bytes after the last tensor", folder);
}

/* ---- one call: its arguments, and what came of it ---------------------------------------------------------------- */

enum { MAX_ARGUMENTS = 24, MAX_TENSORS = 64, MAX_SIZES = 16 };
typedef struct {
    const char *key, *text; /* "" for a positional argument; what follows the kind */
    char kind;              /* t and [: tensors, i f b s n d: one value, I: sizes, F: numbers */
    int n;                  /* tensors from `first` on, or sizes */
    int first;
    int64_t sizes[MAX_SIZES];
    double number;
    bool used;
} argument;

typedef struct row row;
typedef struct {
    const row *row; /* the adapter that calls the library; NULL when there is none */
    const char *op;
    argument args[MAX_ARGUMENTS];
    int n_args, n_leaves, n_out;
    int leaf_id[MAX_TENSORS];
    tg_tensor *leaf[MAX_TENSORS], *out[MAX_TENSORS];
    int n_want, want[MAX_TENSORS]; /* the recorded outputs of a value case */
    const char *left_out; /* why the C API cannot run this case; NULL when it can */
} call;

static void leave_out(call *c, const char *why)
{
    if (!c->left_out) c->left_out = why;
}
static const char *const wrong_type = "an argument of a type that the C signature does not take";

/* Whether an argument begins here: a text after s: may have spaces in it. */
static bool is_argument(const char *text)
{
    size_t key = strspn(text, "abcdefghijklmnopqrstuvwxyz_0123456789UPLON");
    if (key && text[key] == '=') text += key + 1;
    if (*text == '[') ++text;
    return (*text == 't' && text[1] >= '0' && text[1] <= '9') || (*text && strchr("ifbsnIFd", *text) && text[1] == ':');
}

/* Cuts "tN", "[tN,tM]", "i:3", "s:mean" ... apart; the text is written over. */
static void parse_argument(call *c, char *text)
{
    if (c->n_args == MAX_ARGUMENTS) stop("too many arguments", text);
    argument *a = &c->args[c->n_args++];
    memset(a, 0, sizeof *a);
    a->key = "", a->first = c->n_leaves;
    char *equals = strchr(text, '='), *colon = strchr(text, ':');
    if (equals && (!colon || equals < colon)) *equals = 0, a->key = text, text = equals + 1;
    a->kind = *text, a->text = text[0] && text[1] == ':' ? text + 2 : text;
    if (*text == 't' || *text == '[') {
        for (char *at = strchr(text, 't'); at; at = strchr(at, 't')) {
            long id = strtol(at + 1, &at, 10);
            if (id < 0 || id >= tensor_count || c->n_leaves == MAX_TENSORS) stop("bad tensor", text);
            c->leaf_id[c->n_leaves++] = (int)id, a->n++;
        }
    } else if (*text == 'I') {
        for (const char *at = a->text; *at;) {
            char *end;
            if (a->n == MAX_SIZES) stop("too many sizes", text);
            a->sizes[a->n++] = strtoll(at, &end, 10);
            if (end == at) stop("bad sizes", text);
            at = *end == ',' ? end + 1 : end;
        }
    } else if (*text == 'i' || *text == 'b') {
        a->sizes[0] = strtoll(a->text, NULL, 10), a->number = (double)a->sizes[0], a->n = 1;
    } else if (*text == 'f') {
        a->number = strtod(a->text, NULL);
    } else if (!strchr("sndF", *text)) {
        stop("unknown kind of argument", text);
    }
}

/* The argument at a position or under its name; NULL when it is absent or None. */
static argument *find(call *c, int position, const char *key)
{
    for (int k = 0; k < c->n_args; ++k) {
        argument *a = &c->args[k];
        if (*a->key ? !strcmp(a->key, key) : k == position) return a->used = true, a->kind == 'n' ? NULL : a;
    }
    return NULL;
}

static bool given(call *c, int position, const char *key) { return find(c, position, key) != NULL; }
static bool is_kind(call *c, int position, const char *key, const char *kinds)
{
    argument *a = find(c, position, key);
    return a && strchr(kinds, a->kind);
}

static tg_tensor *maybe_tensor(call *c, int position, const char *key)
{
    argument *a = find(c, position, key);
    if (!a) return NULL;
    if (a->kind != 't') return leave_out(c, wrong_type), NULL;
    return c->leaf[a->first];
}

static tg_tensor *tensor(call *c, int position, const char *key)
{
    if (!given(c, position, key)) leave_out(c, wrong_type);
    return maybe_tensor(c, position, key);
}

static tg_tensor **tensor_list(call *c, int position, const char *key, int *n)
{
    argument *a = find(c, position, key);
    if (!a || (a->kind != '[' && (a->kind != 'I' || a->n))) return leave_out(c, wrong_type), *n = 0, c->leaf;
    return *n = a->n, c->leaf + a->first;
}

static double number(call *c, int position, const char *key, double otherwise)
{
    argument *a = find(c, position, key);
    if (!a) return otherwise;
    if (!strchr("ifb", a->kind)) return leave_out(c, wrong_type), otherwise;
    return a->number;
}

static int64_t integer(call *c, int position, const char *key, int64_t otherwise)
{
    argument *a = find(c, position, key);
    if (!a) return otherwise;
    if (!strchr("ib", a->kind)) return leave_out(c, wrong_type), otherwise;
    return a->sizes[0];
}

static int whole(call *c, int position, const char *key, int otherwise)
{
    return (int)integer(c, position, key, otherwise);
}
static bool flag(call *c, int position, const char *key, bool otherwise)
{
    return integer(c, position, key, otherwise) != 0;
}

static const char *word(call *c, int position, const char *key, const char *otherwise)
{
    argument *a = find(c, position, key);
    if (!a) return otherwise;
    if (a->kind != 's') return leave_out(c, wrong_type), otherwise;
    return a->text;
}

/* A list of sizes, or one integer. */
static tg_shape sizes(call *c, int position, const char *key)
{
    argument *a = find(c, position, key);
    if (!a || !strchr("iI", a->kind)) return leave_out(c, wrong_type), TG_SCALAR;
    if (a->n > TG_MAX_DIMS) return leave_out(c, "more than 8 dims"), TG_SCALAR;
    return tg_make_shape(a->n, a->sizes);
}

static int reduction(call *c, int position)
{
    const char *name = word(c, position, "reduction", "mean");
    return !strcmp(name, "none") ? TG_NONE : !strcmp(name, "mean") ? TG_MEAN : !strcmp(name, "sum") ? TG_SUM : 99;
}

static void give(call *c, tg_tensor *t)
{
    if (c->n_out == MAX_TENSORS) stop("too many outputs", c->op);
    c->out[c->n_out++] = t;
}

/* For adapters that are one expression. */
static void need(call *c, bool offered, const char *otherwise)
{
    if (!offered) leave_out(c, otherwise);
}

static tg_tensor *first(call *c) { return tensor(c, 0, "input"); }
static tg_tensor *second(call *c) { return tensor(c, 1, "other"); }

/* ---- the mapping: one row per op of PyTorch, its adapter above --------------------------------------------------- */

/* How an op is called: the adapter, and the function that it calls, in the field of its type. */
struct row {
    const char *op;
    void (*run)(call *c);
    tg_tensor *(*one)(tg_tensor *);
    tg_tensor *(*two)(tg_tensor *, tg_tensor *);
    tg_tensor *(*dim)(tg_tensor *, int, bool);
    tg_tensor *(*dims)(tg_tensor *, tg_shape, bool);
    tg_tensor *(*indices)(tg_tensor *, int, bool, tg_tensor **);
    tg_tensor *(*at)(tg_tensor *, int);
    tg_tensor *(*running)(tg_tensor *, int, tg_tensor **);
    tg_tensor *(*shuffle)(tg_tensor *, int64_t);
    tg_tensor *(*addmul)(tg_tensor *, tg_tensor *, tg_tensor *, double, double);
    tg_tensor *(*stack)(tg_tensor *const *, int);
    tg_tensor *(*sized)(tg_tensor *, tg_shape);
    tg_tensor *(*loss)(tg_tensor *, tg_tensor *, int);
    tg_tensor *(*spread)(tg_tensor *, tg_shape, double, bool);
    tg_tensor *(*fourier)(tg_tensor *, int64_t, int, const char *);
    tg_tensor *(*fourier_dims)(tg_tensor *, tg_shape, tg_shape, const char *);
    bool real; /* the input of that */
    tg_tensor *(*triangle)(tg_tensor *, int64_t);
    tg_tensor *(*join)(tg_tensor *const *, int, int);
    tg_tensor *(*scatter)(tg_tensor *, int, tg_tensor *, tg_tensor *);
    tg_tensor *(*max_pool)(tg_tensor *, tg_shape, tg_shape, tg_shape, tg_shape, bool, tg_tensor **);
    tg_tensor *(*conv)(tg_tensor *, tg_tensor *, tg_tensor *, tg_shape, tg_shape, tg_shape, int64_t);
    tg_tensor *(*conv_transpose)(tg_tensor *, tg_tensor *, tg_tensor *, tg_shape, tg_shape, tg_shape, int64_t,
                                 tg_shape);
    tg_tensor *(*avg_pool)(tg_tensor *, tg_shape, tg_shape, tg_shape, bool, bool, int64_t);
    tg_tensor *(*adaptive_max)(tg_tensor *, tg_shape, tg_tensor **);
    tg_tensor *(*drop)(tg_tensor *, double, bool);
    tg_tensor *(*unpool)(tg_tensor *, tg_tensor *, tg_shape, tg_shape, tg_shape, tg_shape);
};

static const recorded *wanted(const call *c, int output) { return &tensors[c->want[output]]; }

/* An adapter that is one expression: what it gives is the op's output. */
#define CALL(name, ...) \
    static void name(call *c) { give(c, __VA_ARGS__); }

CALL(unary, c->row->one(first(c)))
CALL(binary, c->row->two(first(c), second(c)))
CALL(dim_op, c->row->at(first(c), whole(c, 1, "dim", 0)))
CALL(sized_op, c->row->sized(first(c), sizes(c, 1, "dims")))
CALL(sized_like, c->row->sized(first(c), tg_shape_of(second(c))))
CALL(loss_op, c->row->loss(first(c), tensor(c, 1, "target"), reduction(c, 2)))

/* alpha scales the second operand (of rsub: the first) */
static void scaled(call *c)
{
    tg_tensor *a = first(c), *b = second(c);
    double alpha = number(c, 2, "alpha", 1);
    if (!strcmp(c->row->op, "rsub")) {
        tg_tensor *swap = a;
        a = b, b = swap;
    }
    if (!strcmp(c->row->op, "add")) give(c, tg_add_alpha(a, b, alpha));
    else give(c, c->row->two(a, alpha == 1 ? b : tg_mul_scalar(b, alpha)));
}

CALL(quotient, given(c, 2, "rounding_mode") ? tg_div_rounded(first(c), second(c), word(c, 2, "rounding_mode", ""))
                                           : tg_div(first(c), second(c)))

/* sum(a), sum(a, 1), sum(a, (0, 1), keepdim=True) */
static void reduce(call *c)
{
    tg_tensor *a = first(c);
    bool keepdim = flag(c, 2, "keepdim", false), some = given(c, 1, "dim");
    if (!some && !keepdim)
        give(c, c->row->one(a));
    else if (is_kind(c, 1, "dim", "i"))
        give(c, c->row->dim(a, whole(c, 1, "dim", 0), keepdim));
    else
        give(c, c->row->dims(a, some ? sizes(c, 1, "dim") : TG_SCALAR, keepdim)); /* no dims: all */
}

/* max and min: of all, of two tensors, along a dim with indices */
static void extreme(call *c)
{
    tg_tensor *index = NULL;
    if (!given(c, 1, "dim"))
        give(c, c->row->one(first(c)));
    else if (is_kind(c, 1, "dim", "t"))
        give(c, c->row->two(first(c), second(c)));
    else {
        give(c, c->row->indices(first(c), whole(c, 1, "dim", 0), flag(c, 2, "keepdim", false), &index));
        give(c, index);
    }
}

CALL(arg_extreme, given(c, 1, "dim") ? c->row->dim(first(c), whole(c, 1, "dim", 0), flag(c, 2, "keepdim", false))
                                     : c->row->dim(tg_flatten(first(c), 0, -1), 0, false))

/* var(a, unbiased), var(a, dim, correction=, keepdim=); without dim over all elements */
static void spread(call *c)
{
    tg_tensor *a = first(c);
    bool by_flag = is_kind(c, 1, "", "b"), keepdim = flag(c, 3, "keepdim", false);
    double correction = flag(c, by_flag ? 1 : 2, "unbiased", true) ? 1 : 0;
    correction = number(c, -1, "correction", correction);
    tg_shape dims = !by_flag && given(c, 1, "dim") ? sizes(c, 1, "dim") : TG_SCALAR;
    give(c, !dims.ndim && !keepdim && correction == 1 ? c->row->one(a)
                                                      : c->row->spread(a, dims, correction, keepdim));
}

/* norm(a, p, dim, keepdim) and linalg.vector_norm(a, ord, dim, keepdim) */
static void norm(call *c)
{
    const char *p_name = strcmp(c->row->op, "norm") ? "ord" : "p";
    tg_tensor *a = first(c);
    bool named = is_kind(c, 1, p_name, "s"), keepdim = flag(c, 3, "keepdim", false);
    double p = named ? 2 : number(c, 1, p_name, 2);
    tg_shape dims = given(c, 2, "dim") ? sizes(c, 2, "dim") : TG_SCALAR;
    if (named && strcmp(word(c, 1, p_name, ""), "fro"))
        give(c, tg_linalg_matrix_norm(a, word(c, 1, p_name, ""), dims.ndim ? dims : TG_DIMS(-2, -1), keepdim));
    else if (!dims.ndim && !keepdim && p == 2)
        give(c, tg_norm(a));
    else if (is_kind(c, 2, "dim", "i"))
        give(c, tg_norm_dim(a, p, (int)dims.dim[0], keepdim));
    else
        give(c, tg_norm_dims(a, p, dims, keepdim));
}

CALL(cumsum, tg_cumsum(first(c), whole(c, 1, "dim", 0)))

/* Tensors as bounds are the maximum and the minimum with them. */
static tg_tensor *above(call *c, tg_tensor *x, int position)
{
    if (is_kind(c, position, "min", "t")) return tg_maximum(x, tensor(c, position, "min"));
    return given(c, position, "min") ? tg_clamp_min(x, number(c, position, "min", 0)) : x;
}
static tg_tensor *below(call *c, tg_tensor *x, int position)
{
    if (is_kind(c, position, "max", "t")) return tg_minimum(x, tensor(c, position, "max"));
    return given(c, position, "max") ? tg_clamp_max(x, number(c, position, "max", 0)) : x;
}
CALL(clamp_min, above(c, first(c), 1))
CALL(clamp_max, below(c, first(c), 1))
CALL(clamp, below(c, above(c, first(c), 1), 2))

CALL(where, tg_where(tensor(c, 1, "condition"), first(c), tensor(c, 2, "other")))

static void masked_fill(call *c)
{
    tg_tensor *a = first(c), *mask = tensor(c, 1, "mask");
    bool number_given = !is_kind(c, 2, "value", "t");
    need(c, number_given || tg_ndim(tensor(c, 2, "value")) == 0, wrong_type);
    give(c,
         number_given ? tg_masked_fill(a, mask, number(c, 2, "value", 0)) : tg_where(mask, tensor(c, 2, "value"), a));
}

CALL(lerp, is_kind(c, 2, "weight", "t") ? tg_lerp(first(c), second(c), tensor(c, 2, "weight"))
                                        : tg_lerp_scalar(first(c), second(c), number(c, 2, "weight", 0)))

CALL(addcmul, tg_addcmul(first(c), tensor(c, 1, "tensor1"), tensor(c, 2, "tensor2"), number(c, 3, "value", 1)))
CALL(addcdiv, tg_addcdiv(first(c), tensor(c, 1, "tensor1"), tensor(c, 2, "tensor2"), number(c, 3, "value", 1)))

CALL(celu, tg_celu(first(c), number(c, 1, "alpha", 1)))
CALL(hardtanh, tg_hardtanh(first(c), number(c, 1, "min_val", -1), number(c, 2, "max_val", 1)))
CALL(prelu, tg_prelu(first(c), tensor(c, 1, "weight")))
CALL(glu, tg_glu(first(c), whole(c, 1, "dim", -1)))
CALL(leaky_relu, tg_leaky_relu(first(c), number(c, 1, "negative_slope", 0.01)))
CALL(elu, tg_elu(first(c), number(c, 1, "alpha", 1)))
CALL(softplus, tg_softplus(first(c), number(c, 1, "beta", 1), number(c, 2, "threshold", 20)))

static void gelu(call *c)
{
    const char *how = word(c, 1, "approximate", "none");
    if (strcmp(how, "none") && strcmp(how, "tanh")) leave_out(c, wrong_type);
    give(c, tg_gelu(first(c), !strcmp(how, "tanh")));
}

/* Numbers, one for all dims or one for each; `otherwise` where there are none. */
static tg_shape some_sizes(call *c, int position, const char *key, int64_t otherwise)
{
    return given(c, position, key) ? sizes(c, position, key) : TG_SHAPE(otherwise);
}

static void conv(call *c)
{
    const bool named = is_kind(c, 4, "padding", "s");
    tg_shape padding = !named ? some_sizes(c, 4, "padding", 0)
                              : !strcmp(word(c, 4, "padding", ""), "same") ? TG_SAME : TG_VALID;
    tg_tensor *x = first(c), *weight = tensor(c, 1, "weight"), *bias = maybe_tensor(c, 2, "bias");
    tg_shape stride = some_sizes(c, 3, "stride", 1), dilation = some_sizes(c, 5, "dilation", 1);
    give(c, c->row->conv(x, weight, bias, stride, padding, dilation, integer(c, 6, "groups", 1)));
}

static void conv_transpose(call *c)
{
    tg_tensor *x = first(c), *weight = tensor(c, 1, "weight"), *bias = maybe_tensor(c, 2, "bias");
    tg_shape stride = some_sizes(c, 3, "stride", 1), dilation = some_sizes(c, 7, "dilation", 1);
    tg_shape padding = some_sizes(c, 4, "padding", 0), extra = some_sizes(c, 5, "output_padding", 0);
    give(c, c->row->conv_transpose(x, weight, bias, stride, padding, extra, integer(c, 6, "groups", 1), dilation));
}

CALL(linear, tg_linear(first(c), tensor(c, 1, "weight"), maybe_tensor(c, 2, "bias")))

CALL(addmm, tg_addmm(first(c), tensor(c, 1, "mat1"), tensor(c, 2, "mat2"), number(c, -1, "beta", 1),
                     number(c, -1, "alpha", 1)))

static void einsum(call *c)
{
    int n;
    tg_tensor **list = tensor_list(c, 0, "operands", &n);
    const char *equation = word(c, 1, "equation", "");
    give(c, tg_einsum(equation, list, n));
}

CALL(transpose, tg_transpose(first(c), whole(c, 1, "dim0", 0), whole(c, 2, "dim1", 0)))

CALL(squeeze, is_kind(c, 1, "dim", "i") ? tg_squeeze(first(c), whole(c, 1, "dim", 0))
              : given(c, 1, "dim") && sizes(c, 1, "dim").ndim == 0 ? tg_view(first(c), tg_shape_of(first(c)))
              : tg_squeeze_dims(first(c), given(c, 1, "dim") ? sizes(c, 1, "dim") : TG_SCALAR))

CALL(flatten, tg_flatten(first(c), whole(c, 1, "start_dim", 0), whole(c, 2, "end_dim", -1)))
/* PyTorch also takes a 0-dim tensor as start, and a negative number from the end: C takes the number */
static void narrow(call *c)
{
    tg_tensor *a = first(c);
    int dim = whole(c, 1, "dim", 0);
    tg_tensor *at = is_kind(c, 2, "start", "t") ? tensor(c, 2, "start") : NULL;
    if (at && (tg_ndim(at) || (tg_dtype_of(at) != TG_I64 && tg_dtype_of(at) != TG_I32)))
        leave_out(c, "a tensor where C takes a number");
    int64_t start = !at ? integer(c, 2, "start", 0) : c->left_out ? 0 : tg_item_i64(at);
    if (start < 0 && a && -start <= tg_dim(a, dim)) start += tg_dim(a, dim);
    give(c, tg_narrow(a, dim, start, integer(c, 3, "length", 0)));
}
CALL(select_one, tg_select(first(c), whole(c, 1, "dim", 0), integer(c, 2, "index", 0)))
CALL(unfold, tg_unfold(first(c), whole(c, 1, "dimension", 0), integer(c, 2, "size", 0), integer(c, 3, "step", 0)))
CALL(diagonal, tg_diagonal(first(c), integer(c, 1, "offset", 0), whole(c, 2, "dim1", 0), whole(c, 3, "dim2", 1)))

CALL(movedim, is_kind(c, 1, "source", "i")
                  ? tg_movedim(first(c), whole(c, 1, "source", 0), whole(c, 2, "destination", 0))
                  : tg_movedim_dims(first(c), sizes(c, 1, "source"), sizes(c, 2, "destination")))

static void parts(call *c)
{
    tg_tensor *a = first(c), *out[MAX_TENSORS];
    int n = 0;
    if (!strncmp(c->row->op, "unbind", 6))
        n = tg_unbind(a, whole(c, 1, "dim", 0), out, MAX_TENSORS);
    else if (strstr(c->row->op, "chunk"))
        n = tg_chunk(a, integer(c, 1, "chunks", 0), whole(c, 2, "dim", 0), out, MAX_TENSORS);
    else if (is_kind(c, 1, "split_sizes", "I"))
        n = tg_split_sizes(a, sizes(c, 1, "split_sizes"), whole(c, 2, "dim", 0), out, MAX_TENSORS);
    else
        n = tg_split(a, integer(c, 1, "split_size", 0), whole(c, 2, "dim", 0), out, MAX_TENSORS);
    for (int k = 0; k < n; ++k) give(c, out[k]);
}

static void joined(call *c)
{
    int n;
    tg_tensor **list = tensor_list(c, 0, "tensors", &n);
    give(c, c->row->join(list, n, whole(c, 1, "dim", 0)));
}

/* without dims the elements are rolled in row-major order */
static void roll(call *c)
{
    tg_tensor *a = first(c);
    if (given(c, 2, "dims"))
        give(c, tg_roll(a, sizes(c, 1, "shifts"), sizes(c, 2, "dims")));
    else
        give(c, tg_reshape(tg_roll(tg_flatten(a, 0, -1), sizes(c, 1, "shifts"), TG_DIMS(0)), tg_shape_of(a)));
}

CALL(triangle, c->row->triangle(first(c), integer(c, 1, "diagonal", 0)))

static void pad(call *c)
{
    const bool mode = strcmp(c->row->op, "constant_pad_nd") != 0;
    const char *how = mode ? word(c, 2, "mode", "constant") : "constant";
    if (strcmp(how, "constant")) give(c, tg_pad_mode(first(c), sizes(c, 1, "pad"), how));
    else give(c, tg_pad(first(c), sizes(c, 1, "pad"), number(c, mode ? 3 : 2, "value", 0)));
}

CALL(index_select, tg_index_select(first(c), whole(c, 1, "dim", 0), tensor(c, 2, "index")))
CALL(gather, tg_gather(first(c), whole(c, 1, "dim", 0), tensor(c, 2, "index")))

/* a number as source is a tensor of it */
static void scatter(call *c)
{
    tg_tensor *a = first(c), *index = tensor(c, 2, "index"), *src = NULL;
    if (is_kind(c, 3, "value", "fi"))
        src = tg_full_on(tg_shape_of(index), number(c, 3, "value", 0), tg_dtype_of(a), device);
    else src = tensor(c, 3, "src");
    give(c, c->row->scatter(a, whole(c, 1, "dim", 0), index, src));
}

static void index_add(call *c)
{
    tg_tensor *source = tensor(c, 3, "source");
    double alpha = number(c, 4, "alpha", 1);
    give(c, c->row->scatter(first(c), whole(c, 1, "dim", 0), tensor(c, 2, "index"),
                            alpha == 1 ? source : tg_mul_scalar(source, alpha)));
}

static void index_put(call *c)
{
    int n;
    tg_tensor **indices = tensor_list(c, 1, "indices", &n);
    give(c, tg_index_put(first(c), indices, n, tensor(c, 2, "values"), flag(c, 3, "accumulate", false)));
}

CALL(masked_select, tg_masked_select(first(c), tensor(c, 1, "mask")))
CALL(embedding, tg_embedding(first(c), tensor(c, 1, "indices")))
CALL(one_hot, tg_one_hot(first(c), integer(c, 1, "num_classes", -1)))

CALL(take_along_dim,
     given(c, 2, "dim") ? tg_take_along_dim(first(c), tensor(c, 1, "indices"), whole(c, 2, "dim", 0))
                        : tg_take_along_dim(tg_flatten(first(c), 0, -1), tg_flatten(tensor(c, 1, "indices"), 0, -1), 0))
/* as a tuple: one tensor of indices for each dim */
static void nonzero(call *c)
{
    const bool tuple = flag(c, 1, "as_tuple", false);
    tg_tensor *a = first(c), *index = tg_nonzero(tuple ? tg_atleast_1d(a) : a), *out[TG_MAX_DIMS];
    if (!tuple) {
        give(c, index);
        return;
    }
    int n = tg_unbind(index, 1, out, TG_MAX_DIMS);
    for (int k = 0; k < n; ++k) give(c, out[k]);
}

static void sort(call *c)
{
    tg_tensor *index = NULL;
    (void)flag(c, -1, "stable", true); /* the sort is stable always */
    give(c, tg_sort(first(c), whole(c, 1, "dim", -1), flag(c, 2, "descending", false), &index));
    give(c, index);
}

static void topk(call *c)
{
    tg_tensor *index = NULL;
    (void)flag(c, 4, "sorted", true);
    give(c, tg_topk(first(c), integer(c, 1, "k", 1), whole(c, 2, "dim", -1), flag(c, 3, "largest", true), &index));
    give(c, index);
}

/* How many dims are normalised; the C call takes their sizes from x. */
static int normalized(call *c, tg_tensor *x)
{
    tg_shape shape = sizes(c, 1, "normalized_shape");
    for (int k = 0; k < shape.ndim; ++k)
        if (shape.ndim > tg_ndim(x) || shape.dim[k] != tg_dim(x, k - shape.ndim))
            leave_out(c, "sizes of normalized_shape");
    return shape.ndim;
}

CALL(layer_norm, tg_layer_norm(first(c), normalized(c, first(c)), maybe_tensor(c, 2, "weight"),
                               maybe_tensor(c, 3, "bias"), number(c, 4, "eps", 1e-5)))

CALL(rms_norm, tg_rms_norm(first(c), normalized(c, first(c)), maybe_tensor(c, 2, "weight"),
                           number(c, 3, "eps", 2.220446049250313e-16)))

CALL(group_norm, tg_group_norm(first(c), integer(c, 1, "num_groups", 1), maybe_tensor(c, 2, "weight"),
                               maybe_tensor(c, 3, "bias"), number(c, 4, "eps", 1e-5)))

/* batch_norm and instance_norm; these write the running statistics, which are copied for it */
static void norm_of_channels(call *c)
{
    const bool batch = strstr(c->row->op, "batch_norm") != NULL;
    tg_tensor *mean = maybe_tensor(c, 1, "running_mean"), *var = maybe_tensor(c, 2, "running_var");
    const bool training = flag(c, 5, batch ? "training" : "use_input_stats", !batch);
    need(c, tg_is_floating_point(tg_dtype_of(first(c))), "integers, which PyTorch takes where there are none");
    give(c, (batch ? tg_batch_norm : tg_instance_norm)(first(c), mean ? tg_clone(tg_detach(mean)) : NULL,
                                                      var ? tg_clone(tg_detach(var)) : NULL,
                                                      maybe_tensor(c, 3, "weight"), maybe_tensor(c, 4, "bias"), training,
                                                      number(c, 6, "momentum", 0.1), number(c, 7, "eps", 1e-5)));
}

CALL(normalize, tg_normalize(first(c), number(c, 1, "p", 2), whole(c, 2, "dim", 1), number(c, 3, "eps", 1e-12)))
CALL(cosine_similarity, tg_cosine_similarity(tensor(c, 0, "x1"), tensor(c, 1, "x2"), whole(c, 2, "dim", 1),
                                             number(c, 3, "eps", 1e-8)))
CALL(cdist, (find(c, 3, "compute_mode"), tg_cdist(tensor(c, 0, "x1"), tensor(c, 1, "x2"), number(c, 2, "p", 2))))

/* Sizes, or none. */
static tg_shape maybe_sizes(call *c, int position, const char *key)
{
    return given(c, position, key) ? sizes(c, position, key) : TG_SCALAR;
}

static void max_pool(call *c)
{
    tg_tensor *indices = NULL;
    bool with_indices = flag(c, 6, "return_indices", false);
    give(c, c->row->max_pool(first(c), sizes(c, 1, "kernel_size"), maybe_sizes(c, 2, "stride"),
                             maybe_sizes(c, 3, "padding"), maybe_sizes(c, 4, "dilation"), flag(c, 5, "ceil_mode", false),
                             with_indices ? &indices : NULL));
    if (with_indices) give(c, indices);
}

static tg_tensor *avg_pool1d_ex(tg_tensor *x, tg_shape kernel, tg_shape stride, tg_shape padding, bool ceil_mode,
                                bool count_padding, int64_t divisor)
{
    (void)divisor;
    return tg_avg_pool1d_ex(x, kernel, stride, padding, ceil_mode, count_padding);
}
static void avg_pool(call *c)
{
    const int64_t divisor = integer(c, 6, "divisor_override", 0);
    need(c, divisor || !given(c, 6, "divisor_override"), "a divisor of 0, which stands for none in C");
    give(c, c->row->avg_pool(first(c), sizes(c, 1, "kernel_size"), maybe_sizes(c, 2, "stride"),
                             maybe_sizes(c, 3, "padding"), flag(c, 4, "ceil_mode", false),
                             flag(c, 5, "count_include_pad", true), divisor));
}

CALL(adaptive_pool, c->row->sized(first(c), sizes(c, 1, "output_size")))

static void adaptive_max_pool(call *c)
{
    tg_tensor *indices = NULL;
    bool with_indices = flag(c, 2, "return_indices", false);
    give(c, c->row->adaptive_max(first(c), sizes(c, 1, "output_size"), with_indices ? &indices : NULL));
    if (with_indices) give(c, indices);
}

CALL(unpool, c->row->unpool(first(c), tensor(c, 1, "indices"), sizes(c, 2, "kernel_size"), maybe_sizes(c, 3, "stride"),
                            maybe_sizes(c, 4, "padding"), maybe_sizes(c, 5, "output_size")))

/* scale_factor that is computed again from the sizes gives those alone */
static void interpolate(call *c)
{
    const bool linear = strstr(c->op, "upsample_bilinear") != NULL;
    const char *mode = word(c, 3, "mode", linear ? "bilinear" : "nearest");
    tg_tensor *x = first(c);
    tg_shape size = maybe_sizes(c, 1, "size");
    double scale = number(c, 2, "scale_factor", 0);
    bool corners = flag(c, 4, "align_corners", linear);
    if (flag(c, 5, "recompute_scale_factor", false) && x && !size.ndim) {
        for (int k = 2; k < tg_ndim(x); ++k) size.dim[size.ndim++] = (int64_t)floor((double)tg_dim(x, k) * scale);
        scale = 0;
    }
    if (size.ndim && !corners && tg_ndim(x) < 5 && (!strcmp(mode, "nearest") || strstr(mode, "linear")))
        give(c, tg_interpolate(x, size, mode));
    else
        give(c, tg_interpolate_ex(x, size, scale, mode, corners));
}

CALL(grid_sample, tg_grid_sample(first(c), tensor(c, 1, "grid"), word(c, 2, "mode", "bilinear"),
                                 word(c, 3, "padding_mode", "zeros"), flag(c, 4, "align_corners", false)))
/* the modes by number */
static void grid_sampler(call *c)
{
    static const char *const modes[] = {"bilinear", "nearest", "bicubic"};
    static const char *const paddings[] = {"zeros", "border", "reflection"};
    give(c, tg_grid_sample(first(c), tensor(c, 1, "grid"), modes[integer(c, 2, "interpolation_mode", 0) % 3],
                           paddings[integer(c, 3, "padding_mode", 0) % 3], flag(c, 4, "align_corners", false)));
}

/* A tensor, or a list of integers as one. */
static tg_tensor *whole_numbers(call *c, int position, const char *key)
{
    argument *a = find(c, position, key);
    if (a && a->kind == 'I') return tg_from_on(a->sizes, TG_SHAPE(a->n), TG_I64, device);
    return tensor(c, position, key);
}
CALL(ctc_loss, tg_ctc_loss(first(c), tensor(c, 1, "targets"), whole_numbers(c, 2, "input_lengths"),
                           whole_numbers(c, 3, "target_lengths"), integer(c, 4, "blank", 0), reduction(c, 5),
                           flag(c, 6, "zero_infinity", false)))

static void scaled_dot_product_attention(call *c)
{
    tg_tensor *q = first(c), *k = tensor(c, 1, "key"), *v = tensor(c, 2, "value"),
              *mask = maybe_tensor(c, 3, "attn_mask");
    double dropout = number(c, 4, "dropout_p", 0), scale = number(c, 6, "scale", 0);
    const bool is_causal = flag(c, 5, "is_causal", false), few = flag(c, 7, "enable_gqa", false);
    if (dropout != 0) leave_out(c, "random numbers");
    if (few && !(is_causal && mask))
        give(c, tg_scaled_dot_product_attention_ex(q, k, v, mask, 0, is_causal, scale, true, 0, 0));
    else
        give(c, tg_scaled_dot_product_attention(q, k, v, mask, 0, is_causal, scale));
}

CALL(cross_entropy,
     tg_cross_entropy_ex(first(c), tensor(c, 1, "target"), maybe_tensor(c, 2, "weight"),
                         integer(c, -1, "ignore_index", -100), number(c, -1, "label_smoothing", 0), reduction(c, -1)))

CALL(nll_loss, tg_nll_loss(first(c), tensor(c, 1, "target"), maybe_tensor(c, 2, "weight"),
                           integer(c, -1, "ignore_index", -100), reduction(c, -1)))

CALL(smooth_l1_loss, tg_smooth_l1_loss(first(c), tensor(c, 1, "target"), reduction(c, -1), number(c, -1, "beta", 1)))

CALL(huber_loss, tg_huber_loss(first(c), tensor(c, 1, "target"), reduction(c, -1), number(c, -1, "delta", 1)))

CALL(binary_cross_entropy,
     tg_binary_cross_entropy(first(c), tensor(c, 1, "target"), maybe_tensor(c, 2, "weight"), reduction(c, -1)))

CALL(binary_cross_entropy_with_logits,
     tg_binary_cross_entropy_with_logits(first(c), tensor(c, 1, "target"), maybe_tensor(c, 2, "weight"),
                                         reduction(c, -1), maybe_tensor(c, -1, "pos_weight")))

static void kl_div(call *c)
{
    bool batchmean = !strcmp(word(c, -1, "reduction", "mean"), "batchmean");
    give(c, tg_kl_div(first(c), tensor(c, 1, "target"), batchmean ? TG_BATCHMEAN : reduction(c, -1),
                      flag(c, -1, "log_target", false)));
}

/* of integers without a dtype PyTorch makes integers */
static void arange(call *c)
{
    bool one = !given(c, 1, "end"), integers = !find(c, -1, "dtype");
    for (int k = 0; k < c->n_args; ++k) integers = integers && !strchr("fd", c->args[k].kind);
    double start = one ? 0 : number(c, 0, "start", 0), end = number(c, one ? 0 : 1, "end", 0);
    give(c, tg_arange_on(start, end, number(c, 2, "step", 1), integers ? TG_I64 : tg_default_dtype(), device));
}

/* without a dim of all elements; the size of the output follows from the repeats */
static void repeat_interleave(call *c)
{
    tg_tensor *a = given(c, 2, "dim") ? first(c) : tg_flatten(first(c), 0, -1), *y;
    const int dim = whole(c, 2, "dim", 0);
    int64_t size = integer(c, 3, "output_size", -1);
    if (is_kind(c, 1, "repeats", "i")) y = tg_repeat_interleave(a, integer(c, 1, "repeats", 1), dim);
    else y = tg_repeat_interleave_tensor(a, tensor(c, 1, "repeats"), dim);
    if (y && size >= 0) need(c, tg_dim(y, dim) == size, "another output_size");
    give(c, y);
}

static void meshgrid(call *c)
{
    tg_tensor *grid[TG_MAX_DIMS], *one_by_one[TG_MAX_DIMS], **list = one_by_one;
    int n = 0;
    if (is_kind(c, 0, "tensors", "t")) {
        for (; n < TG_MAX_DIMS && is_kind(c, n, "tensors", "t"); ++n) one_by_one[n] = tensor(c, n, "tensors");
    } else {
        list = tensor_list(c, 0, "tensors", &n);
    }
    const char *indexing = word(c, -1, "indexing", "ij");
    if ((strcmp(indexing, "xy") ? tg_meshgrid : tg_meshgrid_xy)(list, n, grid) != TG_OK) return;
    for (int i = 0; i < n; ++i) give(c, grid[i]);
}

/* An end of linspace, which PyTorch also takes as a 0-dim tensor: of it C takes the number. */
static double end_of(call *c, int position, const char *key)
{
    if (!is_kind(c, position, key, "t")) return number(c, position, key, 0);
    if (tg_ndim(tensor(c, position, key))) leave_out(c, "a tensor where C takes a number");
    return tg_item(tensor(c, position, key));
}

/* without a dtype PyTorch takes its own default, f32 */
static void linspace(call *c)
{
    double start = end_of(c, 0, "start"), end = end_of(c, 1, "end");
    bool named = given(c, -1, "dtype");
    if (c->left_out) return;
    tg_tensor *y = tg_linspace(start, end, integer(c, 2, "steps", 0));
    give(c, named || !y ? y : tg_to_dtype(y, TG_F32));
}
CALL(eye, (find(c, -1, "dtype"), given(c, 1, "m") ? tg_eye_on(integer(c, 0, "n", 0), integer(c, 1, "m", 0),
                                                              tg_default_dtype(), device)
                                                  : tg_eye(integer(c, 0, "n", 0))))
CALL(full_like, tg_full_like(first(c), number(c, 1, "fill_value", 0)))

CALL(logit, tg_logit(first(c), number(c, 1, "eps", -1)))
CALL(nan_to_num, tg_nan_to_num(first(c), number(c, 1, "nan", 0), number(c, 2, "posinf", INFINITY),
                               number(c, 3, "neginf", -INFINITY)))
CALL(hardshrink, tg_hardshrink(first(c), number(c, 1, "lambd", 0.5)))
CALL(softshrink, tg_softshrink(first(c), number(c, 1, "lambd", 0.5)))
CALL(threshold, tg_threshold(first(c), number(c, 1, "threshold", 0), number(c, 2, "value", 0)))
CALL(rounded, given(c, -1, "decimals") ? tg_round_decimals(first(c), whole(c, -1, "decimals", 0)) : tg_round(first(c)))

CALL(nansum, tg_nansum(first(c), given(c, 1, "dim") ? sizes(c, 1, "dim") : TG_SCALAR, flag(c, 2, "keepdim", false)))
CALL(count_nonzero, tg_count_nonzero(first(c), given(c, 1, "dim") ? sizes(c, 1, "dim") : TG_SCALAR))
CALL(dist, tg_dist(first(c), second(c), number(c, 2, "p", 2)))
CALL(pairwise_distance, tg_pairwise_distance(first(c), second(c), number(c, 2, "p", 2), number(c, 3, "eps", 1e-6),
                                             flag(c, 4, "keepdim", false)))

static void argsort(call *c)
{
    (void)flag(c, -1, "stable", true); /* the sort is stable always */
    give(c, tg_argsort(first(c), whole(c, 1, "dim", -1), flag(c, 2, "descending", false)));
}

/* One median of all elements, or one of each row. */
static void median_of(call *c, tg_tensor *(*of_all)(tg_tensor *),
                      tg_tensor *(*of_rows)(tg_tensor *, int, bool, tg_tensor **))
{
    tg_tensor *index = NULL;
    if (!given(c, 1, "dim")) {
        give(c, of_all(first(c)));
        return;
    }
    give(c, of_rows(first(c), whole(c, 1, "dim", 0), flag(c, 2, "keepdim", false), &index));
    give(c, index);
}

static void median(call *c) { median_of(c, tg_median, tg_median_dim); }
static void nanmedian(call *c) { median_of(c, tg_nanmedian, tg_nanmedian_dim); }

static void running(call *c)
{
    tg_tensor *index = NULL;
    give(c, c->row->running(first(c), whole(c, 1, "dim", 0), &index));
    give(c, index);
}

/* Two calls in C: the smallest and the largest; the variance or its root, and the mean. */
static void aminmax(call *c)
{
    tg_shape dims = given(c, 1, "dim") ? sizes(c, 1, "dim") : TG_SCALAR;
    bool keepdim = flag(c, 2, "keepdim", false);
    give(c, tg_amin_dims(first(c), dims, keepdim));
    give(c, tg_amax_dims(first(c), dims, keepdim));
}
static void spread_mean(call *c)
{
    bool by_flag = is_kind(c, 1, "", "b");
    tg_shape dims = !by_flag && given(c, 1, "dim") ? sizes(c, 1, "dim") : TG_SCALAR;
    bool keepdim = flag(c, 3, "keepdim", false);
    spread(c);
    give(c, tg_mean_dims(first(c), dims, keepdim));
}

CALL(local_response_norm, tg_local_response_norm(first(c), integer(c, 1, "size", 0), number(c, 2, "alpha", 1e-4),
                                                 number(c, 3, "beta", 0.75), number(c, 4, "k", 1)))
CALL(gaussian_nll_loss, tg_gaussian_nll_loss(first(c), tensor(c, 1, "target"), tensor(c, 2, "var"),
                                             flag(c, 3, "full", false), number(c, 4, "eps", 1e-6), reduction(c, 5)))
CALL(poisson_nll_loss, tg_poisson_nll_loss(first(c), tensor(c, 1, "target"), flag(c, 2, "log_input", true),
                                           flag(c, 3, "full", false), number(c, -1, "eps", 1e-8), reduction(c, -1)))
CALL(margin_ranking_loss, tg_margin_ranking_loss(tensor(c, 0, "input1"), tensor(c, 1, "input2"),
                                                 tensor(c, 2, "target"), number(c, 3, "margin", 0), reduction(c, -1)))
CALL(hinge_embedding_loss, tg_hinge_embedding_loss(first(c), tensor(c, 1, "target"), number(c, 2, "margin", 1),
                                                   reduction(c, -1)))
CALL(cosine_embedding_loss, tg_cosine_embedding_loss(first(c), tensor(c, 1, "input2"), tensor(c, 2, "target"),
                                                     number(c, 3, "margin", 0), reduction(c, -1)))
CALL(triplet_margin_loss, tg_triplet_margin_loss(first(c), tensor(c, 1, "positive"), tensor(c, 2, "negative"),
                                                 number(c, 3, "margin", 1), number(c, 4, "p", 2),
                                                 number(c, 5, "eps", 1e-6), flag(c, 6, "swap", false),
                                                 reduction(c, -1)))
CALL(multi_margin_loss, tg_multi_margin_loss(first(c), tensor(c, 1, "target"), number(c, 2, "p", 1),
                                             number(c, 3, "margin", 1), maybe_tensor(c, 4, "weight"), reduction(c, -1)))
CALL(multilabel_soft_margin_loss, tg_multilabel_soft_margin_loss(first(c), tensor(c, 1, "target"),
                                                                 maybe_tensor(c, 2, "weight"), reduction(c, -1)))
CALL(triplet_margin_with_distance_loss,
     tg_triplet_margin_with_distance_loss(first(c), tensor(c, 1, "positive"), tensor(c, 2, "negative"), NULL, NULL,
                                          number(c, -1, "margin", 1), flag(c, -1, "swap", false), reduction(c, -1)))

/* what is not random: with p 0 or 1, or in evaluation */
static void some_dropout(call *c)
{
    const double p = number(c, 1, "p", 0.5);
    const bool training = flag(c, 2, "training", strstr(c->op, "alpha") == NULL);
    (void)flag(c, 3, "inplace", false);
    need(c, p == 0 || p == 1 || !training, "random numbers");
    give(c, c->row->drop(first(c), p, training));
}
static void rrelu(call *c)
{
    const bool training = flag(c, 3, "training", false);
    (void)flag(c, 4, "inplace", false);
    need(c, !training, "random numbers");
    give(c, tg_rrelu(first(c), number(c, 1, "lower", 1.0 / 8), number(c, 2, "upper", 1.0 / 3), training));
}

CALL(unflatten, tg_unflatten(first(c), whole(c, 1, "dim", 0), sizes(c, 2, "sizes")))
CALL(rot90, tg_rot90(first(c), integer(c, 1, "k", 1), given(c, 2, "dims") ? sizes(c, 2, "dims") : TG_DIMS(0, 1)))
CALL(diag, tg_diag(first(c), integer(c, 1, "diagonal", 0)))
CALL(diagonal_copy, tg_clone(tg_diagonal(first(c), integer(c, 1, "offset", 0), whole(c, 2, "dim1", 0),
                                         whole(c, 3, "dim2", 1))))
CALL(shuffle, c->row->shuffle(first(c), integer(c, 1, strstr(c->op, "unshuffle") ? "downscale_factor" : "upscale_factor", 1)))
CALL(tril_indices, (find(c, -1, "dtype"), tg_tril_indices(integer(c, 0, "row", 0), integer(c, 1, "col", 0), integer(c, 2, "offset", 0))))
CALL(triu_indices, (find(c, -1, "dtype"), tg_triu_indices(integer(c, 0, "row", 0), integer(c, 1, "col", 0), integer(c, 2, "offset", 0))))

/* of one tensor, or of each of a list */
static void atleast(call *c, tg_tensor *(*function)(tg_tensor *))
{
    int n = 1;
    tg_tensor *one = is_kind(c, 0, "tensors", "t") ? first(c) : NULL, **list = &one;
    if (!one) list = tensor_list(c, 0, "tensors", &n);
    for (int k = 0; k < n; ++k) give(c, function(list[k]));
    for (int k = 1; one && is_kind(c, k, "", "t"); ++k) give(c, function(tensor(c, k, "")));
}
static void atleast_1d(call *c) { atleast(c, tg_atleast_1d); }
static void atleast_2d(call *c) { atleast(c, tg_atleast_2d); }
static void atleast_3d(call *c) { atleast(c, tg_atleast_3d); }

static void stacked(call *c)
{
    int n;
    tg_tensor **list = tensor_list(c, 0, "tensors", &n);
    give(c, c->row->stack(list, n));
}

static int64_t padding_row(call *c)
{
    tg_tensor *weight = first(c);
    int64_t at = integer(c, -1, "padding_idx", INT64_MIN);
    return at == INT64_MIN ? -1 : at < 0 && weight ? at + tg_dim(weight, 0) : at;
}
CALL(addmul, c->row->addmul(first(c), tensor(c, 1, "batch1"), tensor(c, 2, "batch2"), number(c, -1, "beta", 1),
                            number(c, -1, "alpha", 1)))
CALL(bilinear, tg_bilinear(first(c), second(c), tensor(c, 2, "weight"), maybe_tensor(c, 3, "bias")))
CALL(index_copy, tg_index_copy(first(c), whole(c, 1, "dim", 0), tensor(c, 2, "index"), tensor(c, 3, "source")))
CALL(masked_scatter, tg_masked_scatter(first(c), tensor(c, 1, "mask"), tensor(c, 2, "source")))
CALL(embedding_bag, (find(c, -1, "sparse"), find(c, -1, "scale_grad_by_freq"),
                     tg_embedding_bag(first(c), second(c), maybe_tensor(c, 2, "offsets"), word(c, -1, "mode", "mean"),
                                      maybe_tensor(c, -1, "per_sample_weights"), flag(c, -1, "include_last_offset", false),
                                      padding_row(c))))

/* a number of dims, the last ones of one and the first ones of the other; or a list for each */
static void tensordot(call *c)
{
    tg_tensor *a = first(c), *b = second(c);
    tg_shape of_a = TG_SCALAR, of_b = TG_SCALAR;
    for (int n = whole(c, 2, "dims", 2), k = 0; k < n; ++k)
        of_a.dim[of_a.ndim++] = tg_ndim(a) - n + k, of_b.dim[of_b.ndim++] = k;
    give(c, tg_tensordot(a, b, of_a, of_b));
}

/* without a dim: the first one of size 3 */
static void cross(call *c)
{
    tg_tensor *a = first(c), *b = second(c);
    int dim = 0;
    while (!given(c, 2, "dim") && dim + 1 < tg_ndim(a) && tg_dim(a, dim) != 3) dim++;
    give(c, tg_cross(a, b, whole(c, 2, "dim", dim)));
}

/* a value that is a tensor is chosen by a mask, in C as in PyTorch */
static void index_fill(call *c)
{
    tg_tensor *a = first(c), *index = tensor(c, 2, "index");
    int dim = whole(c, 1, "dim", 0);
    if (!is_kind(c, 3, "value", "t")) {
        give(c, tg_index_fill(a, dim, index, number(c, 3, "value", 0)));
        return;
    }
    tg_tensor *mask = tg_index_fill(tg_full_on(tg_shape_of(a), 0, TG_BOOL, device), dim, index, 1);
    give(c, tg_where(mask, tensor(c, 3, "value"), a));
}

CALL(columns, tg_im2col(first(c), sizes(c, 1, "kernel_size"), some_sizes(c, 2, "dilation", 1),
                        some_sizes(c, 3, "padding", 0), some_sizes(c, 4, "stride", 1)))

/* tensor_split by a number or indices, which may be in a tensor; hsplit, vsplit, dsplit */
static void other_parts(call *c)
{
    tg_tensor *a = first(c), *out[MAX_TENSORS];
    const char *op = c->row->op, *key = "indices_or_sections";
    const bool tensors_of = is_kind(c, 1, key, "t");
    int dim = *op == 'h' ? a && tg_ndim(a) > 1 : *op == 'v' ? 0 : *op == 'd' ? 2 : whole(c, 2, "dim", 0), n;
    if (tensors_of) {
        tg_tensor *at = tensor(c, 1, key);
        tg_shape indices = TG_SCALAR;
        for (int64_t k = 0; tg_ndim(at) && k < tg_numel(at); ++k) {
            if (indices.ndim == TG_MAX_DIMS) stop("too many indices", op);
            indices.dim[indices.ndim++] = (int64_t)tg_get(at, TG_SHAPE(k));
        }
        n = tg_ndim(at) ? tg_tensor_split_at(a, indices, dim, out, MAX_TENSORS)
                        : tg_tensor_split(a, tg_item_i64(at), dim, out, MAX_TENSORS);
    } else if (is_kind(c, 1, key, "I")) n = tg_tensor_split_at(a, sizes(c, 1, key), dim, out, MAX_TENSORS);
    else if (*op == 'h') n = tg_hsplit(a, integer(c, 1, key, 0), out, MAX_TENSORS);
    else if (*op == 'v') n = tg_vsplit(a, integer(c, 1, key, 0), out, MAX_TENSORS);
    else if (*op == 'd') n = tg_dsplit(a, integer(c, 1, key, 0), out, MAX_TENSORS);
    else n = tg_tensor_split(a, integer(c, 1, key, 0), dim, out, MAX_TENSORS);
    for (int k = 0; k < n; ++k) give(c, out[k]);
}

/* tensors as arguments, not in a list */
static void of_tensors(call *c)
{
    tg_tensor *list[MAX_TENSORS];
    int n = 0;
    for (; is_kind(c, n, "", "t"); ++n) list[n] = tensor(c, n, "");
    give(c, c->row->stack(list, n));
}
static void broadcast_tensors(call *c)
{
    tg_tensor *sum = first(c);
    int n = 1;
    for (; is_kind(c, n, "", "t"); ++n) sum = tg_add(sum, tensor(c, n, ""));
    for (int k = 0; k < n; ++k) give(c, tg_expand(tensor(c, k, ""), tg_shape_of(sum)));
}
CALL(combinations, tg_combinations(first(c), integer(c, 1, "r", 2), flag(c, 2, "with_replacement", false)))
CALL(cov, tg_cov(first(c), integer(c, -1, "correction", 1), maybe_tensor(c, -1, "fweights"),
                 maybe_tensor(c, -1, "aweights")))
CALL(pdist, tg_pdist(first(c), number(c, 1, "p", 2)))
CALL(renorm, tg_renorm(first(c), number(c, 1, "p", 2), whole(c, 2, "dim", 0), number(c, 3, "maxnorm", 1)))
CALL(diff, tg_diff(first(c), integer(c, 1, "n", 1), whole(c, 2, "dim", -1), maybe_tensor(c, 3, "prepend"),
                   maybe_tensor(c, 4, "append")))
CALL(diag_embed, tg_diag_embed(first(c), integer(c, 1, "offset", 0), whole(c, 2, "dim1", -2), whole(c, 3, "dim2", -1)))
CALL(diagflat, tg_diagflat(first(c), integer(c, 1, "offset", 0)))
CALL(diagonal_scatter, tg_diagonal_scatter(first(c), tensor(c, 1, "src"), integer(c, 2, "offset", 0),
                                           whole(c, 3, "dim1", 0), whole(c, 4, "dim2", 1)))
CALL(select_scatter, tg_select_scatter(first(c), tensor(c, 1, "src"), whole(c, 2, "dim", 0), integer(c, 3, "index", 0)))
CALL(slice_scatter, tg_slice_scatter(first(c), tensor(c, 1, "src"), whole(c, 2, "dim", 0), integer(c, 3, "start", 0),
                                     integer(c, 4, "end", INT64_MAX), integer(c, 5, "step", 1)))
CALL(put, tg_put(first(c), tensor(c, 1, "index"), tensor(c, 2, "source"), flag(c, 3, "accumulate", false)))
CALL(nanmean, tg_nanmean(first(c), given(c, 1, "dim") ? sizes(c, 1, "dim") : TG_SCALAR, flag(c, 2, "keepdim", false)))
CALL(addr, tg_add(tg_mul_scalar(first(c), number(c, -1, "beta", 1)),
                  tg_mul_scalar(tg_outer(tensor(c, 1, "vec1"), tensor(c, 2, "vec2")), number(c, -1, "alpha", 1))))

static void trapezoid(call *c)
{
    tg_tensor *x = is_kind(c, 1, "x", "t") ? tensor(c, 1, "x") : NULL;
    double dx = number(c, -1, "dx", 1);
    int dim = whole(c, -1, "dim", -1);
    give(c, strstr(c->op, "cumulative") ? tg_cumulative_trapezoid(first(c), x, dx, dim)
                                        : tg_trapezoid(first(c), x, dx, dim));
}

static void logspace(call *c)
{
    double start = end_of(c, 0, "start"), end = end_of(c, 1, "end"), base = number(c, 3, "base", 10);
    bool named = given(c, -1, "dtype");
    if (c->left_out) return;
    tg_tensor *y = tg_logspace(start, end, integer(c, 2, "steps", 0), base);
    give(c, named || !y ? y : tg_to_dtype(y, TG_F32));
}

static void kthvalue(call *c)
{
    tg_tensor *index = NULL;
    give(c, tg_kthvalue(first(c), integer(c, 1, "k", 1), whole(c, 2, "dim", -1), flag(c, 3, "keepdim", false), &index));
    give(c, index);
}
static void mode(call *c)
{
    tg_tensor *index = NULL;
    give(c, tg_mode(first(c), whole(c, 1, "dim", -1), flag(c, 2, "keepdim", false), &index));
    give(c, index);
}

static void quantile(call *c)
{
    tg_tensor *a = first(c), *q;
    if (is_kind(c, 1, "q", "t")) q = tensor(c, 1, "q");
    else q = tg_full_on(TG_SCALAR, number(c, 1, "q", 0.5), tg_dtype_of(a), device);
    tg_shape dims = given(c, 2, "dim") ? sizes(c, 2, "dim") : TG_SCALAR;
    bool keepdim = flag(c, 3, "keepdim", false);
    give(c, (strstr(c->op, "nan") ? tg_nanquantile : tg_quantile)(a, q, dims, keepdim,
                                                                  word(c, -1, "interpolation", "linear")));
}

/* what a search gives as i32 where that is asked for */
static void search(call *c)
{
    const bool buckets = !strcmp(c->op, "bucketize"), narrow_result = flag(c, -1, "out_int32", false);
    bool right = flag(c, -1, "right", false) || !strcmp(word(c, -1, "side", "left"), "right");
    tg_tensor *a = first(c), *value = NULL, *y;
    if (is_kind(c, 1, "self", "fi")) value = tg_full_on(TG_SCALAR, number(c, 1, "self", 0), tg_dtype_of(a), device);
    if (buckets) y = tg_bucketize(a, tensor(c, 1, "boundaries"), right);
    else y = tg_searchsorted(a, value ? value : tensor(c, 1, "values"), right, maybe_tensor(c, -1, "sorter"));
    give(c, narrow_result ? tg_to_dtype(y, TG_I32) : y);
}

CALL(histc, tg_histc(first(c), integer(c, 1, "bins", 100), number(c, 2, "min", 0), number(c, 3, "max", 0)))
CALL(bincount, tg_bincount(first(c), maybe_tensor(c, 1, "weights"), integer(c, 2, "minlength", 0)))

CALL(scatter_reduce, tg_scatter_reduce(first(c), whole(c, 1, "dim", 0), tensor(c, 2, "index"), tensor(c, 3, "src"),
                                       word(c, 4, "reduce", ""), flag(c, 5, "include_self", true)))
CALL(index_reduce, tg_index_reduce(first(c), whole(c, 1, "dim", 0), tensor(c, 2, "index"), tensor(c, 3, "source"),
                                   word(c, 4, "reduce", ""), flag(c, 5, "include_self", true)))

/* edges of equal bins are those of a linspace */
static void histogram(call *c)
{
    tg_tensor *a = first(c), *edges = is_kind(c, 1, "bins", "t") ? tensor(c, 1, "bins") : NULL;
    if (!edges) {
        const bool empty = tg_numel(a) == 0;
        double least = empty ? 0 : tg_item(tg_amin(a)), most = empty ? 1 : tg_item(tg_amax(a));
        const argument *range = find(c, 2, "range");
        if (range) need(c, range->kind == 'F', "a range of another type");
        if (range && range->kind == 'F') sscanf(range->text, "%lf,%lf", &least, &most);
        if (least == most) least -= 0.5, most += 0.5;
        edges = tg_linspace(least, most, integer(c, 1, "bins", 10) + 1);
    }
    give(c, tg_histogram(a, edges, maybe_tensor(c, 3, "weight"), flag(c, 4, "density", false)));
    give(c, edges);
}

static void unique(call *c)
{
    const bool sorts = !strcmp(c->op, "unique"), dims = given(c, -1, "dim");
    tg_tensor *inverse = NULL, *counts = NULL, *y;
    bool with_inverse = flag(c, -1, "return_inverse", false), with_counts = flag(c, -1, "return_counts", false);
    tg_tensor **i = with_inverse ? &inverse : NULL, **n = with_counts ? &counts : NULL;
    (void)flag(c, -1, "sorted", true);
    if (dims) y = (sorts ? tg_unique_dim : tg_unique_consecutive_dim)(first(c), whole(c, -1, "dim", 0), i, n);
    else y = (sorts ? tg_unique : tg_unique_consecutive)(first(c), i, n);
    give(c, y);
    if (with_inverse) give(c, inverse);
    if (with_counts) give(c, counts);
}

CALL(isclose, tg_isclose(first(c), second(c), number(c, 2, "rtol", 1e-5), number(c, 3, "atol", 1e-8),
                         flag(c, 4, "equal_nan", false)))
CALL(polygamma, tg_polygamma(whole(c, 1, "n", -1), first(c)))
CALL(mvlgamma, tg_mvlgamma(first(c), whole(c, 1, "p", 0)))

/* the result is f64, also of f32 */
static void float_power(call *c)
{
    tg_tensor *y = is_kind(c, 1, "exponent", "if") ? tg_float_power_scalar(first(c), number(c, 1, "exponent", 0))
                                                   : tg_float_power(first(c), tensor(c, 1, "exponent"));
    give(c, singles ? tg_to_dtype(y, TG_F32) : y);
}

/* Real inputs of transforms of complex numbers are pairs here.  Transforms whose result is complex are recorded only where
   PyTorch itself gives pairs: by stft. */
static tg_tensor *fourier_input(call *c) { return c->row->real ? first(c) : tg_complex(first(c), NULL); }
CALL(fourier, c->row->fourier(fourier_input(c), integer(c, 1, "n", -1), whole(c, 2, "dim", -1),
                              word(c, 3, "norm", NULL)))
CALL(fourier_dims, c->row->fourier_dims(fourier_input(c), given(c, 1, "s") ? sizes(c, 1, "s") : TG_SCALAR,
                                        given(c, 2, "dim") ? sizes(c, 2, "dim") : TG_SCALAR, word(c, 3, "norm", NULL)))
CALL(shift, c->row->sized(first(c), given(c, 1, "dim") ? sizes(c, 1, "dim") : TG_SCALAR))

static void stft(call *c)
{
    tg_tensor *x = first(c), *window = given(c, 4, "window") ? tensor(c, 4, "window") : NULL;
    int64_t n = integer(c, 1, "n_fft", 1), length = integer(c, 3, "win_length", n);
    (void)flag(c, 9, "return_complex", false); /* pairs either way */
    if (!window && length != n) window = tg_ones_on(TG_SHAPE(length), tg_dtype_of(x), device);
    give(c, tg_stft(x, n, integer(c, 2, "hop_length", 0), window, flag(c, 5, "center", true),
                    word(c, 6, "pad_mode", "reflect"), flag(c, 7, "normalized", false), flag(c, 8, "onesided", true)));
}

#define OP(name) {.op = #name, .run = name}
#define NN(name) {.op = "nn.functional." #name, .run = name}
/* ---- linear algebra ----

   Vectors of an eigenvalue or of a singular value are such with either sign, and so are two implementations right that
   differ in them.  What is compared is therefore the vectors with the signs that PyTorch's have: they are multiplied by
   these, 1 or -1, in an op, so that the gradient is that for PyTorch's choice, too.  Columns beyond the singular values
   are any basis of the rest of the space: what is compared is PyTorch's basis, projected on that space, and so the space;
   they have no gradient.  A wrong vector, or one of another value, is in no case turned to the right one. */

/* The recorded output as it is in this run. */
static tg_tensor *recorded_here(const call *c, int output)
{
    const recorded *t = wanted(c, output);
    return tg_to_dtype(tg_from_on(t->data, t->shape, t->dtype, device), tg_dtype_of(c->leaf[0]));
}

static int64_t columns_of(tg_tensor *t) { return tg_shape_of(t).dim[tg_ndim(t) - 1]; }

/* 1 or -1 for each column of v and that of w, [.., 1, n] */
static tg_tensor *signs_of(tg_tensor *v, tg_tensor *w)
{
    tg_tensor *same = tg_ge_scalar(tg_sum_dim(tg_mul(tg_detach(v), w), -2, true), 0);
    return tg_sub_scalar(tg_mul_scalar(tg_to_dtype(same, tg_dtype_of(v)), 2), 1);
}

/* v [.., m, n] with these signs on its first columns, the rest as said above. */
static tg_tensor *signed_columns(tg_tensor *v, tg_tensor *w, tg_tensor *signs)
{
    int64_t k = columns_of(signs), rest = columns_of(v) - k;
    tg_tensor *parts[2] = {tg_mul(tg_narrow(v, -1, 0, k), signs), NULL};
    if (!rest) return parts[0];
    tg_tensor *n = tg_detach(tg_narrow(v, -1, k, rest));
    parts[1] = tg_matmul(n, tg_matmul(tg_transpose(n, -2, -1), tg_narrow(w, -1, k, rest)));
    return tg_cat(parts, 2, -1);
}

static void linalg_eigh(call *c)
{
    tg_tensor *v = NULL, *values = tg_linalg_eigh(first(c), word(c, 1, "UPLO", "L"), &v);
    tg_tensor *w = recorded_here(c, 1);
    give(c, values), give(c, v ? signed_columns(v, w, signs_of(v, w)) : NULL);
}
CALL(linalg_eigvalsh, tg_linalg_eigvalsh(first(c), word(c, 1, "UPLO", "L")))

/* linalg.svd gives Vh, svd V */
static void linalg_svd(call *c)
{
    const bool old = !strcmp(c->row->op, "svd");
    const bool full = old ? !flag(c, 1, "some", true) : flag(c, 1, "full_matrices", true);
    tg_tensor *s = NULL, *vh = NULL, *u = tg_linalg_svd(first(c), full, &s, &vh);
    if (!u) return;
    tg_tensor *v = tg_transpose(vh, -2, -1), *u_want = recorded_here(c, 0), *v_want = recorded_here(c, 2);
    if (!old) v_want = tg_transpose(v_want, -2, -1);
    int64_t k = columns_of(s);
    tg_tensor *signs = signs_of(tg_narrow(u, -1, 0, k), tg_narrow(u_want, -1, 0, k));
    v = signed_columns(v, v_want, signs);
    give(c, signed_columns(u, u_want, signs)), give(c, s), give(c, old ? v : tg_transpose(v, -2, -1));
}

CALL(linalg_solve, tg_linalg_solve(first(c), second(c), flag(c, -1, "left", true)))
CALL(linalg_solve_triangular, tg_linalg_solve_triangular(first(c), second(c), flag(c, -1, "upper", false),
                                                         flag(c, -1, "left", true), flag(c, -1, "unitriangular", false)))
CALL(linalg_cholesky, tg_linalg_cholesky(first(c), flag(c, -1, "upper", false)))
CALL(cholesky_solve, tg_cholesky_solve(first(c), second(c), flag(c, 2, "upper", false)))
CALL(cholesky_inverse, tg_cholesky_inverse(first(c), flag(c, 1, "upper", false)))
CALL(linalg_householder_product, tg_linalg_householder_product(first(c), tensor(c, 1, "tau")))
CALL(linalg_lu_solve, tg_linalg_lu_solve(first(c), second(c), tensor(c, 2, "B"), flag(c, -1, "left", true),
                                         flag(c, -1, "adjoint", false)))
CALL(lu_solve, tg_linalg_lu_solve(second(c), tensor(c, 2, "pivots"), first(c), true, false))
CALL(linalg_matrix_power, tg_linalg_matrix_power(first(c), integer(c, 1, "n", 0)))
CALL(logdet, tg_log(tg_linalg_det(first(c))))
CALL(pinverse, tg_linalg_pinv(first(c), -1, number(c, 1, "rcond", 1e-15), false))
/* The samples "singular" are pinv(a b^T). */
static void linalg_pinv(call *c)
{
    tg_tensor *a = first(c);
    if (is_kind(c, 1, "", "t")) a = tg_matmul(a, tg_transpose(tensor(c, 1, ""), -2, -1));
    give(c, tg_linalg_pinv(a, number(c, -1, "atol", -1), number(c, -1, "rtol", -1), flag(c, -1, "hermitian", false)));
}
CALL(linalg_matrix_rank, tg_linalg_matrix_rank(first(c), number(c, -1, "atol", -1),
                                               number(c, -1, "rtol", -1), flag(c, -1, "hermitian", false)))

static void triangular_solve(call *c)
{
    tg_tensor *a = second(c);
    give(c, tg_triangular_solve(first(c), a, flag(c, 2, "upper", true), flag(c, 3, "transpose", false),
                                flag(c, 4, "unitriangular", false)));
    give(c, tg_clone(a)); /* PyTorch's "cloned_coefficient" */
}

static void linalg_lu_factor(call *c)
{
    tg_tensor *pivots = NULL;
    need(c, flag(c, 1, "pivot", true), "pivot=False");
    give(c, tg_linalg_lu_factor(first(c), &pivots)), give(c, pivots);
}

/* The last output of the functions whose name ends in _ex is 0 for each matrix that is factorized, and here there is an
   error for one that is not. */
static void linalg_ex(call *c)
{
    tg_shape batch = tg_shape_of(first(c));
    batch.ndim -= 2;
    const char *op = c->row->op;
    if (!strcmp(op, "linalg.inv_ex")) give(c, tg_linalg_inv(first(c)));
    else if (!strcmp(op, "linalg.cholesky_ex")) linalg_cholesky(c);
    else if (!strcmp(op, "linalg.lu_factor_ex")) linalg_lu_factor(c);
    else linalg_solve(c);
    give(c, tg_zeros_on(batch, TG_I32, device));
}

/* What undoes the exchanges of m rows that pivots [.., k] name, [.., m, m]. */
static tg_tensor *matrix_of(tg_tensor *pivots, int64_t m)
{
    const int64_t k = columns_of(pivots);
    tg_shape shape = tg_shape_of(pivots);
    shape.dim[shape.ndim - 1] = shape.dim[shape.ndim] = m, ++shape.ndim;
    tg_tensor *p = tg_expand(tg_eye_on(m, m, TG_F64, device), shape);
    for (int64_t i = k - 1; i >= 0; --i) { /* the last exchange of rows is the first that is undone */
        tg_tensor *with = tg_unsqueeze(tg_sub_scalar(tg_to_dtype(tg_narrow(pivots, -1, i, 1), TG_I64), 1), -1);
        tg_tensor *number = tg_unsqueeze(tg_arange_on(0, (double)m, 1, TG_I64, device), -1);
        tg_tensor *at_i = tg_eq_scalar(number, (double)i), *at_with = tg_eq(number, with);
        tg_tensor *here = tg_narrow(p, -2, i, 1);
        tg_tensor *other = tg_sum_dim(tg_masked_fill(p, tg_logical_not(at_with), 0), -2, true);
        p = tg_where(at_i, other, tg_where(at_with, here, p));
    }
    return p;
}

/* linalg.lu is P, L, U: what lu_factor has, apart */
static void linalg_lu(call *c)
{
    tg_tensor *a = first(c), *pivots = NULL, *lu;
    need(c, flag(c, -1, "pivot", true), "pivot=False");
    lu = tg_linalg_lu_factor(a, &pivots);
    if (!lu) return;
    const int64_t m = tg_dim(a, -2), n = columns_of(a), k = m < n ? m : n;
    give(c, tg_to_dtype(matrix_of(pivots, m), tg_dtype_of(a)));
    give(c, tg_add(tg_tril(tg_narrow(lu, -1, 0, k), -1), tg_eye_on(m, k, tg_dtype_of(a), device)));
    give(c, tg_triu(tg_narrow(lu, -2, 0, k), 0));
}

CALL(linalg_vecdot, tg_sum_dim(tg_mul(first(c), second(c)), whole(c, -1, "dim", -1), false))

/* The first `ind` dims are the rows of a square matrix, the others its columns. */
static void linalg_tensorinv(call *c)
{
    const tg_shape shape = tg_shape_of(first(c));
    const int ind = whole(c, 1, "ind", 2);
    tg_shape turned = shape;
    int64_t rows = 1;
    for (int i = 0; i < ind && i < shape.ndim; ++i) rows *= shape.dim[i];
    for (int i = 0; i < shape.ndim; ++i) turned.dim[i] = shape.dim[(i + ind) % shape.ndim];
    give(c, tg_reshape(tg_linalg_inv(tg_reshape(first(c), TG_SHAPE(rows, -1))), turned));
}

/* The dims of b are the rows; the dims that are named go to the end first. */
static void linalg_tensorsolve(call *c)
{
    tg_tensor *a = first(c), *b = second(c);
    const tg_shape last = given(c, 2, "dims") ? sizes(c, 2, "dims") : TG_SCALAR;
    tg_shape order = tg_shape_of(a);
    int kept = 0;
    for (int i = 0; i < order.ndim; ++i) {
        bool named = false;
        for (int k = 0; k < last.ndim; ++k) named = named || last.dim[k] == i;
        if (!named) order.dim[kept++] = i;
    }
    for (int k = 0; k < last.ndim; ++k) order.dim[kept++] = last.dim[k];
    a = tg_permute(a, order);
    if (!a) return;
    tg_shape x = tg_shape_of(a);
    x.ndim -= tg_ndim(b);
    memmove(x.dim, x.dim + tg_ndim(b), sizeof x.dim[0] * (size_t)x.ndim);
    a = tg_reshape(a, TG_SHAPE(tg_numel(b), -1));
    give(c, tg_reshape(tg_linalg_solve(a, tg_reshape(b, TG_SHAPE(-1)), true), x));
}

static void linalg_slogdet(call *c)
{
    tg_tensor *size = NULL;
    give(c, tg_linalg_slogdet(first(c), &size)), give(c, size);
}

static void linalg_qr(call *c)
{
    tg_tensor *r = NULL;
    give(c, tg_linalg_qr(first(c), word(c, 1, "mode", "reduced"), &r)), give(c, r);
}

/* LAPACK's drivers differ in what they give besides the solution: gels no rank, gelsy neither residuals nor singular
   values, which are no outputs here.  Residuals that are empty are part of PyTorch's graph. */
static void linalg_lstsq(call *c)
{
    const char *driver = word(c, 3, "driver", "gelsy");
    tg_tensor *residuals = NULL, *rank = NULL, *a = first(c), *b = tensor(c, 1, "B");
    tg_tensor *x = tg_linalg_lstsq(a, b, number(c, 2, "rcond", -1), &residuals, &rank);
    tg_tensor *nothing = x ? tg_narrow(tg_flatten(x, 0, -1), 0, 0, 0) : NULL;
    if (!x) return;
    bool none = tg_numel(residuals) == 0 || !strcmp(driver, "gelsy");
    give(c, x), give(c, none ? nothing : residuals);
    if (c->n_want == 2) return; /* the samples "grad_oriented" */
    give(c, strcmp(driver, "gels") ? rank : tg_zeros_on(TG_SHAPE(0), TG_I64, device));
    give(c, !strcmp(driver, "gelsd") || !strcmp(driver, "gelss") ? tg_linalg_svdvals(tg_detach(a)) : tg_detach(nothing));
}

/* An order as text: of PyTorch's numbers and words. */
static const char *order(call *c, int position, const char *key, const char *otherwise)
{
    static char text[24];
    if (!given(c, position, key)) return otherwise;
    if (is_kind(c, position, key, "s")) return word(c, position, key, otherwise);
    snprintf(text, sizeof text, "%g", number(c, position, key, 0));
    return text;
}
CALL(linalg_cond, tg_linalg_cond(first(c), order(c, 1, "p", NULL)))
CALL(linalg_matrix_norm, tg_linalg_matrix_norm(first(c), order(c, 1, "ord", "fro"),
                                               given(c, 2, "dim") ? sizes(c, 2, "dim") : TG_DIMS(-2, -1),
                                               flag(c, 3, "keepdim", false)))

/* linalg.norm is a norm of matrices where an order and two dims are given, else one of vectors. */
static void linalg_norm(call *c)
{
    tg_tensor *a = first(c);
    tg_shape dims = given(c, 2, "dim") ? sizes(c, 2, "dim") : TG_SCALAR;
    bool keepdim = flag(c, 3, "keepdim", false), ordered = given(c, 1, "ord");
    const char *ord = order(c, 1, "ord", "2");
    if (ordered && (dims.ndim ? dims.ndim : tg_ndim(a)) == 2)
        give(c, tg_linalg_matrix_norm(a, ord, dims.ndim ? dims : TG_DIMS(-2, -1), keepdim));
    else
        give(c, tg_norm_dims(a, number(c, 1, "ord", 2), dims, keepdim));
}

static void linalg_multi_dot(call *c)
{
    int n;
    tg_tensor **list = tensor_list(c, 0, "tensors", &n);
    give(c, tg_linalg_multi_dot(list, n));
}

#define WITH(name, adapter, field, function) {.op = name, .run = adapter, .field = function}
#define FOURIER(name, is_real) \
    {.op = "fft." #name, .run = fourier, .fourier = tg_fft_##name, .real = is_real}, \
    {.op = "fft." #name "2", .run = fourier_dims, .fourier_dims = tg_fft_##name##2, .real = is_real}, \
    {.op = "fft." #name "n", .run = fourier_dims, .fourier_dims = tg_fft_##name##n, .real = is_real}
#define UNARY(name) WITH(#name, unary, one, tg_##name)
#define BINARY(name) WITH(#name, binary, two, tg_##name)
#define SIZED(name) WITH(#name, sized_op, sized, tg_##name)
#define REDUCE(name) {.op = #name, .run = reduce, .one = tg_##name, .dim = tg_##name##_dim, .dims = tg_##name##_dims}
#define EXTREME(name) \
    {.op = #name, .run = extreme, .one = tg_##name, .two = tg_##name##imum, .indices = tg_##name##_dim}
#define SPREAD(name) {.op = #name, .run = spread, .one = tg_##name, .spread = tg_##name##_dims}
static const row rows[] = {
    /* Fourier transforms */
    FOURIER(fft, false), FOURIER(ifft, false), FOURIER(rfft, true), FOURIER(irfft, false), FOURIER(hfft, false),
    FOURIER(ihfft, true), OP(stft), WITH("fft.fftshift", shift, sized, tg_fft_fftshift),
    WITH("fft.ifftshift", shift, sized, tg_fft_ifftshift),
    /* elementwise */
    UNARY(neg), UNARY(abs), UNARY(sign), UNARY(square), UNARY(exp), UNARY(expm1), UNARY(log), UNARY(log2),
    UNARY(log10), UNARY(log1p), UNARY(sqrt), UNARY(rsqrt), UNARY(reciprocal), UNARY(sin), UNARY(cos), UNARY(tan),
    UNARY(asin), UNARY(acos), UNARY(atan), UNARY(sinh), UNARY(cosh), UNARY(tanh), UNARY(sigmoid), UNARY(erf),
    UNARY(floor), UNARY(ceil), WITH("round", rounded, one, NULL), UNARY(trunc), UNARY(isnan), UNARY(isinf), UNARY(isfinite),
    UNARY(logical_not), WITH("nn.functional.relu", unary, one, tg_relu),
    WITH("nn.functional.silu", unary, one, tg_silu), WITH("nn.functional.logsigmoid", unary, one, tg_logsigmoid),
    NN(leaky_relu), NN(elu), NN(softplus), NN(gelu), NN(celu), NN(hardtanh), NN(prelu), NN(glu),
    WITH("nn.functional.relu6", unary, one, tg_relu6), WITH("nn.functional.selu", unary, one, tg_selu),
    WITH("nn.functional.mish", unary, one, tg_mish), WITH("nn.functional.hardswish", unary, one, tg_hardswish),
    WITH("nn.functional.hardsigmoid", unary, one, tg_hardsigmoid), OP(addcmul), OP(addcdiv),
    WITH("add", scaled, two, tg_add), WITH("sub", scaled, two, tg_sub), WITH("rsub", scaled, two, tg_sub),
    WITH("div", quotient, two, tg_div), BINARY(mul), BINARY(pow), BINARY(maximum), BINARY(minimum), BINARY(atan2),
    BINARY(eq), BINARY(ne), BINARY(lt), BINARY(le), BINARY(gt), BINARY(ge), BINARY(logical_and), BINARY(logical_or),
    BINARY(logical_xor), OP(clamp), OP(clamp_min), OP(clamp_max), OP(where), OP(masked_fill), OP(lerp),
    /* reductions, and what runs along a dim */
    REDUCE(sum), REDUCE(mean), REDUCE(prod), REDUCE(amax), REDUCE(amin), REDUCE(any), REDUCE(all), REDUCE(logsumexp),
    EXTREME(max), EXTREME(min), WITH("argmax", arg_extreme, dim, tg_argmax),
    WITH("argmin", arg_extreme, dim, tg_argmin),
    SPREAD(var), SPREAD(std), OP(norm), WITH("linalg.vector_norm", norm, one, tg_norm), OP(cumsum), OP(sort), OP(topk),
    WITH("softmax", dim_op, at, tg_softmax), WITH("log_softmax", dim_op, at, tg_log_softmax),
    NN(layer_norm), NN(rms_norm), NN(group_norm), WITH("nn.functional.batch_norm", norm_of_channels, one, NULL),
    WITH("nn.functional.instance_norm", norm_of_channels, one, NULL), NN(normalize), NN(cosine_similarity), OP(cdist),
    UNARY(trace),
    /* products */
    BINARY(matmul), BINARY(mm), BINARY(bmm), BINARY(mv), BINARY(dot), BINARY(outer), OP(addmm), OP(einsum), NN(linear),
    NN(scaled_dot_product_attention),
    WITH("nn.functional.conv1d", conv, conv, tg_conv1d), WITH("nn.functional.conv2d", conv, conv, tg_conv2d),
    WITH("nn.functional.conv3d", conv, conv, tg_conv3d),
    WITH("nn.functional.conv_transpose3d", conv_transpose, conv_transpose, tg_conv_transpose3d),
    WITH("nn.functional.conv_transpose1d", conv_transpose, conv_transpose, tg_conv_transpose1d),
    WITH("nn.functional.conv_transpose2d", conv_transpose, conv_transpose, tg_conv_transpose2d),
    /* pools */
    WITH("nn.functional.max_pool1d", max_pool, max_pool, tg_max_pool1d_ex),
    WITH("nn.functional.max_pool2d", max_pool, max_pool, tg_max_pool2d_ex),
    WITH("nn.functional.max_pool3d", max_pool, max_pool, tg_max_pool3d_ex),
    WITH("nn.functional.avg_pool1d", avg_pool, avg_pool, avg_pool1d_ex),
    WITH("nn.functional.avg_pool3d", avg_pool, avg_pool, tg_avg_pool3d_ex),
    WITH("nn.functional.adaptive_avg_pool3d", adaptive_pool, sized, tg_adaptive_avg_pool3d),
    WITH("nn.functional.adaptive_max_pool1d", adaptive_max_pool, adaptive_max, tg_adaptive_max_pool1d_ex),
    WITH("nn.functional.adaptive_max_pool2d", adaptive_max_pool, adaptive_max, tg_adaptive_max_pool2d_ex),
    WITH("nn.functional.adaptive_max_pool3d", adaptive_max_pool, adaptive_max, tg_adaptive_max_pool3d_ex),
    WITH("nn.functional.max_unpool1d", unpool, unpool, tg_max_unpool1d),
    WITH("nn.functional.max_unpool2d", unpool, unpool, tg_max_unpool2d),
    WITH("nn.functional.max_unpool3d", unpool, unpool, tg_max_unpool3d),
    NN(grid_sample), NN(ctc_loss), WITH("grid_sampler_2d", grid_sampler, one, NULL), WITH("grid_sampler_3d", grid_sampler, one, NULL),
    WITH("nn.functional.avg_pool2d", avg_pool, avg_pool, tg_avg_pool2d_ex),
    WITH("nn.functional.adaptive_avg_pool1d", adaptive_pool, sized, tg_adaptive_avg_pool1d),
    WITH("nn.functional.adaptive_avg_pool2d", adaptive_pool, sized, tg_adaptive_avg_pool2d), NN(interpolate),
    /* views and shapes */
    UNARY(clone), UNARY(contiguous), UNARY(t), SIZED(reshape), SIZED(view), SIZED(permute), SIZED(expand),
    SIZED(repeat), SIZED(flip), WITH("broadcast_to", sized_op, sized, tg_expand),
    WITH("reshape_as", sized_like, sized, tg_reshape), WITH("view_as", sized_like, sized, tg_view),
    WITH("expand_as", sized_like, sized, tg_expand), OP(transpose), OP(squeeze),
    WITH("unsqueeze", dim_op, at, tg_unsqueeze), OP(flatten), OP(narrow), WITH("select", select_one, one, NULL),
    OP(unfold), OP(diagonal), OP(movedim), WITH("split", parts, one, NULL), WITH("chunk", parts, one, NULL),
    WITH("unbind", parts, one, NULL), WITH("cat", joined, join, tg_cat), WITH("stack", joined, join, tg_stack),
    OP(roll), OP(repeat_interleave), OP(meshgrid), WITH("tril", triangle, triangle, tg_tril), WITH("triu", triangle, triangle, tg_triu), NN(pad),
    WITH("constant_pad_nd", pad, one, NULL),
    /* indices */
    OP(index_select), OP(gather), WITH("scatter", scatter, scatter, tg_scatter),
    WITH("scatter_add", scatter, scatter, tg_scatter_add), WITH("index_add", index_add, scatter, tg_index_add),
    OP(index_put), OP(masked_select), NN(embedding), NN(one_hot), OP(take_along_dim), OP(nonzero),
    /* losses */
    NN(cross_entropy), NN(nll_loss), WITH("nn.functional.mse_loss", loss_op, loss, tg_mse_loss),
    WITH("nn.functional.l1_loss", loss_op, loss, tg_l1_loss), NN(smooth_l1_loss), NN(huber_loss),
    NN(binary_cross_entropy), NN(binary_cross_entropy_with_logits), NN(kl_div),
    UNARY(asinh), UNARY(acosh), UNARY(atanh), UNARY(exp2), UNARY(erfc), UNARY(erfinv), UNARY(frac), UNARY(sinc),
    BINARY(fmod), BINARY(remainder), BINARY(floor_divide), BINARY(hypot), BINARY(logaddexp), BINARY(xlogy),
    BINARY(fmax), BINARY(fmin), OP(logit), OP(nan_to_num), NN(hardshrink), NN(softshrink), NN(threshold),
    WITH("nn.functional.tanhshrink", unary, one, tg_tanhshrink), UNARY(deg2rad), UNARY(rad2deg),
    OP(nansum), OP(count_nonzero), OP(dist), NN(pairwise_distance), OP(argsort), UNARY(msort), OP(median),
    WITH("cumprod", dim_op, at, tg_cumprod), WITH("logcumsumexp", dim_op, at, tg_logcumsumexp),
    WITH("cummax", running, running, tg_cummax), WITH("cummin", running, running, tg_cummin), OP(aminmax),
    {.op = "var_mean", .run = spread_mean, .one = tg_var, .spread = tg_var_dims},
    {.op = "std_mean", .run = spread_mean, .one = tg_std, .spread = tg_std_dims},
    WITH("nn.functional.softmin", dim_op, at, tg_softmin), NN(local_response_norm),
    NN(gaussian_nll_loss), NN(poisson_nll_loss), WITH("nn.functional.soft_margin_loss", loss_op, loss, tg_soft_margin_loss),
    NN(margin_ranking_loss), NN(hinge_embedding_loss), NN(cosine_embedding_loss), NN(triplet_margin_loss),
    WITH("nn.functional.multilabel_margin_loss", loss_op, loss, tg_multilabel_margin_loss),
    NN(multi_margin_loss), NN(multilabel_soft_margin_loss), NN(triplet_margin_with_distance_loss),
    WITH("nn.functional.dropout", some_dropout, drop, tg_dropout), NN(rrelu),
    WITH("nn.functional.dropout2d", some_dropout, drop, tg_dropout2d),
    WITH("nn.functional.dropout3d", some_dropout, drop, tg_dropout3d),
    WITH("nn.functional.alpha_dropout", some_dropout, drop, tg_alpha_dropout),
    WITH("nn.functional.feature_alpha_dropout", some_dropout, drop, tg_feature_alpha_dropout),
    WITH("ravel", unary, one, tg_ravel), OP(unflatten), UNARY(fliplr), UNARY(flipud), OP(rot90), OP(diag),
    OP(diagonal_copy), OP(atleast_1d), OP(atleast_2d), OP(atleast_3d), WITH("hstack", stacked, stack, tg_hstack),
    WITH("vstack", stacked, stack, tg_vstack), WITH("tile", sized_op, sized, tg_tile), OP(tril_indices),
    OP(triu_indices), WITH("nn.functional.pixel_shuffle", shuffle, shuffle, tg_pixel_shuffle),
    WITH("nn.functional.pixel_unshuffle", shuffle, shuffle, tg_pixel_unshuffle),
    WITH("nn.functional.channel_shuffle", shuffle, shuffle, tg_channel_shuffle),
    WITH("addmv", addmul, addmul, tg_addmv), WITH("baddbmm", addmul, addmul, tg_baddbmm),
    WITH("addbmm", addmul, addmul, tg_addbmm), BINARY(inner), OP(tensordot), BINARY(kron), OP(cross), NN(bilinear),
    BINARY(take), OP(index_fill), OP(index_copy), OP(masked_scatter), NN(embedding_bag),
    BINARY(bitwise_and), BINARY(bitwise_or), BINARY(bitwise_xor), UNARY(bitwise_not), BINARY(bitwise_left_shift),
    BINARY(bitwise_right_shift), BINARY(gcd), BINARY(lcm), UNARY(positive), UNARY(signbit), UNARY(isposinf),
    UNARY(isneginf), OP(isclose), BINARY(copysign), BINARY(heaviside), BINARY(nextafter), BINARY(ldexp),
    BINARY(logaddexp2), OP(float_power), UNARY(lgamma), UNARY(digamma), OP(polygamma), OP(mvlgamma), UNARY(i0),
    WITH("nn.functional.softsign", unary, one, tg_softsign), WITH("special.i0e", unary, one, tg_i0e), WITH("special.i1", unary, one, tg_i1),
    WITH("special.i1e", unary, one, tg_i1e), WITH("special.erfcx", unary, one, tg_erfcx),
    WITH("special.ndtr", unary, one, tg_ndtr), WITH("special.log_ndtr", unary, one, tg_log_ndtr),
    WITH("special.ndtri", unary, one, tg_ndtri), WITH("special.entr", unary, one, tg_entr),
    WITH("special.xlog1py", binary, two, tg_xlog1py), WITH("true_divide", binary, two, tg_div),
    WITH("nn.functional.unfold", columns, one, NULL), WITH("nn.functional.upsample_nearest", interpolate, one, NULL),
    WITH("nn.functional.upsample_bilinear", interpolate, one, NULL),
    WITH("tensor_split", other_parts, one, NULL), WITH("hsplit", other_parts, one, NULL),
    WITH("vsplit", other_parts, one, NULL), WITH("dsplit", other_parts, one, NULL),
    WITH("split_with_sizes", parts, one, NULL), WITH("unsafe_split", parts, one, NULL),
    WITH("unsafe_chunk", parts, one, NULL), WITH("unbind_copy", parts, one, NULL),
    WITH("column_stack", stacked, stack, tg_column_stack), WITH("dstack", stacked, stack, tg_dstack),
    WITH("block_diag", of_tensors, stack, tg_block_diag), WITH("cartesian_prod", of_tensors, stack, tg_cartesian_prod),
    OP(broadcast_tensors), OP(combinations), OP(cov), UNARY(corrcoef), NN(pdist), OP(renorm), OP(diff), OP(diag_embed),
    OP(diagflat), OP(diagonal_scatter), OP(select_scatter), OP(slice_scatter), OP(put), OP(nanmean), OP(addr),
    OP(trapezoid), WITH("trapz", trapezoid, one, NULL), WITH("cumulative_trapezoid", trapezoid, one, NULL),
    OP(logspace), OP(kthvalue), OP(mode), OP(nanmedian), OP(quantile), WITH("nanquantile", quantile, one, NULL),
    WITH("searchsorted", search, one, NULL), WITH("bucketize", search, one, NULL), OP(histc), OP(histogram),
    OP(bincount), OP(scatter_reduce), OP(index_reduce), OP(unique), WITH("unique_consecutive", unique, one, NULL), BINARY(isin),
    WITH("argwhere", nonzero, one, NULL), WITH("alias_copy", unary, one, tg_clone), WITH("vdot", binary, two, tg_dot),
    WITH("permute_copy", sized_op, sized, tg_permute), WITH("expand_copy", sized_op, sized, tg_expand),
    /* linear algebra */
#define LINALG(name) WITH("linalg." #name, linalg_##name, one, NULL)
    WITH("linalg.inv", unary, one, tg_linalg_inv), WITH("linalg.det", unary, one, tg_linalg_det), LINALG(solve),
    LINALG(solve_triangular), OP(triangular_solve), LINALG(slogdet), OP(logdet), LINALG(lu_factor), LINALG(lu_solve),
    OP(lu_solve), LINALG(cholesky), OP(cholesky_solve), OP(cholesky_inverse), LINALG(qr), LINALG(householder_product),
    LINALG(eigh), LINALG(eigvalsh), LINALG(svd), WITH("svd", linalg_svd, one, NULL),
    WITH("linalg.svdvals", unary, one, tg_linalg_svdvals), LINALG(pinv), OP(pinverse), LINALG(matrix_rank),
    LINALG(lu), LINALG(vecdot), LINALG(tensorinv), LINALG(tensorsolve),
    WITH("linalg.inv_ex", linalg_ex, one, NULL), WITH("linalg.cholesky_ex", linalg_ex, one, NULL),
    WITH("linalg.lu_factor_ex", linalg_ex, one, NULL), WITH("linalg.solve_ex", linalg_ex, one, NULL),
    LINALG(lstsq), LINALG(matrix_norm), LINALG(norm), LINALG(cond), LINALG(matrix_power),
    WITH("matrix_exp", unary, one, tg_linalg_matrix_exp), LINALG(multi_dot),
    /* creation */
    OP(arange), OP(linspace), OP(eye), OP(full_like), UNARY(zeros_like), UNARY(ones_like),
};

/* ---- the report -------------------------------------------------------------------------------------------------- */

typedef struct {
    char *op;
    int passed, failed, left_out;
} tally;
typedef struct {
    int n, *count;
    char **text;
} notes;
static tally *tallies;
static int n_tallies;
static notes reasons, wordings;

/* A new text. */
static char *format(const char *pattern, ...)
{
    char text[2048];
    va_list list;
    va_start(list, pattern);
    vsnprintf(text, sizeof text, pattern, list);
    va_end(list);
    char *copy = (char *)malloc(strlen(text) + 1);
    return copy ? strcpy(copy, text) : (stop("no memory", text), copy);
}

/* The text of a failure; there are two of them at a time. */
static const char *say(const char *pattern, ...)
{
    static char text[2][1000];
    static int turn;
    va_list list;
    va_start(list, pattern);
    vsnprintf(text[turn = !turn], sizeof text[0], pattern, list);
    va_end(list);
    return text[turn];
}

static void *grown(void *list, int n, size_t item)
{
    if (!(list = realloc(list, (size_t)(n + 1) * item))) stop("no memory", "");
    return list;
}

/* Counts the text, and owns it from here on. */
static void note(notes *list, char *text)
{
    for (int k = 0; k < list->n; ++k)
        if (!strcmp(list->text[k], text)) {
            list->count[k]++, free(text);
            return;
        }
    list->text = (char **)grown(list->text, list->n, sizeof *list->text);
    list->count = (int *)grown(list->count, list->n, sizeof *list->count);
    list->text[list->n] = text, list->count[list->n++] = 1;
}

static void print_notes(const char *title, const notes *list)
{
    if (list->n) printf("\n%s\n", title);
    for (int k = 0; k < list->n; ++k) printf("  %4d  %s\n", list->count[k], list->text[k]);
}

static tally *tally_of(const char *op)
{
    for (int k = 0; k < n_tallies; ++k)
        if (!strcmp(tallies[k].op, op)) return &tallies[k];
    tally fresh = {format("%s", op), 0, 0, 0};
    tallies = (tally *)grown(tallies, n_tallies, sizeof *tallies);
    return tallies[n_tallies] = fresh, &tallies[n_tallies++];
}

/* ---- running a case ---------------------------------------------------------------------------------------------- */

static const char *shape_text(tg_dtype dtype, tg_shape shape, char *text, size_t room)
{
    size_t n = (size_t)snprintf(text, room, "%s[", tg_dtype_name(dtype));
    for (int k = 0; k < shape.ndim && n < room; ++k)
        n += (size_t)snprintf(text + n, room - n, "%s%lld", k ? "," : "", (long long)shape.dim[k]);
    if (n < room) snprintf(text + n, room - n, "]");
    return text;
}

/* The recorded tensor; when `strided`, on memory of the reversed dims with a foreign element after each. */
static tg_tensor *made(call *c, int id, bool strided)
{
    const recorded *t = &tensors[id];
    if (!t->known) return leave_out(c, "a dtype that the library does not have"), NULL;
    tg_tensor *plain = tg_from_on(t->data, t->shape, t->dtype, device);
    if (singles && t->dtype == TG_F64) plain = tg_to_dtype(plain, TG_F32);
    if (!strided || !t->shape.ndim) return plain;
    tg_shape turned = t->shape, order = t->shape;
    for (int k = 0; k < turned.ndim; ++k)
        turned.dim[k] = t->shape.dim[turned.ndim - 1 - k], order.dim[k] = turned.ndim - 1 - k;
    int64_t last = turned.dim[turned.ndim - 1];
    turned.dim[turned.ndim - 1] = 2 * last;
    tg_tensor *memory = tg_full_on(turned, tg_is_floating_point(t->dtype) ? NAN : 1, t->dtype, device);
    tg_tensor *view = tg_permute(tg_slice(memory, -1, 0, 2 * last, 2), order);
    tg_copy_(view, plain);
    return tg_detach(view);
}

/* One element as a number, and whether the bytes of two of them are the same. */
static double element(const unsigned char *data, tg_dtype dtype, size_t k)
{
    double f8 = 0;
    float f4 = 0;
    int64_t i8 = 0;
    int32_t i4 = 0;
    int16_t i2 = 0;
    switch (dtype) {
    case TG_F64: return memcpy(&f8, data + 8 * k, 8), f8;
    case TG_F32: return memcpy(&f4, data + 4 * k, 4), (double)f4;
    case TG_I64: return memcpy(&i8, data + 8 * k, 8), (double)i8;
    case TG_I32: return memcpy(&i4, data + 4 * k, 4), (double)i4;
    case TG_I16: return memcpy(&i2, data + 2 * k, 2), (double)i2;
    case TG_I8: return (double)(int8_t)data[k];
    default: return data[tg_dtype_size(dtype) * k];
    }
}

/* The largest finite number of a recorded tensor, without its sign. */
static double magnitude(const recorded *t)
{
    double largest = 0;
    for (size_t k = 0; k < t->bytes / tg_dtype_size(t->dtype); ++k) {
        double x = fabs(element(t->data, t->dtype, k));
        if (x > largest && x - x == 0) largest = x;
    }
    return largest;
}

/* NULL when t holds what was recorded, else a text of what differs. */
static const char *difference(tg_tensor *t, int id, double tolerance, bool derivative)
{
    char a[120], b[120];
    const recorded *want = &tensors[id];
    tg_shape shape = tg_shape_of(t);
    /* of integers alone an op may make f64 in any case, as bincount does */
    const bool always = !has_f64 && tg_dtype_of(t) == TG_F64;
    const tg_dtype dtype = singles && want->dtype == TG_F64 && !always ? TG_F32 : want->dtype;
    bool same = tg_dtype_of(t) == dtype && want->known && shape.ndim == want->shape.ndim;
    for (int k = 0; same && k < shape.ndim; ++k) same = shape.dim[k] == want->shape.dim[k];
    if (!same)
        return say("is %s, PyTorch's %s", shape_text(tg_dtype_of(t), shape, a, sizeof a),
                   shape_text(dtype, want->shape, b, sizeof b));
    size_t item = tg_dtype_size(dtype), count = want->bytes / tg_dtype_size(want->dtype);
    unsigned char *got = (unsigned char *)malloc(item * count + 1);
    if (!got) stop("no memory", "");
    const char *wrong = tg_copy_out(t, got, item * count) == TG_OK ? NULL : say("%s", tg_error_message());
    /* what PyTorch computed from f32 inputs alone, beside f64 ones, has the digits of f32 */
    const bool coarse = singles || (has_f64 && has_narrow && tg_is_floating_point(want->dtype));
    double largest = coarse ? magnitude(want) : 0;
    double allowed = coarse ? single_tolerance : want->dtype == TG_F64 ? tolerance : want->dtype == TG_F32 ? 1e-5 : 0;
    for (size_t k = 0; !wrong && k < count; ++k) {
        double x = element(got, dtype, k), y = element(want->data, want->dtype, k);
        if (x == y || (x != x && y != y)) continue;
        if (singles && x == (double)(float)y) continue;
        if (derivative && points && y - y != 0) {
            freer++;
            if (verbose) printf("another: element %zu is %.17g, PyTorch's %.17g\n", k, x, y);
            continue;
        }
        if (tg_is_floating_point(dtype) && fabs(x - y) <= allowed * (1 + (coarse ? largest : fabs(y)))) continue;
        wrong = say("is %.17g at element %zu of %s, PyTorch's %.17g", x, k, shape_text(dtype, shape, a, sizeof a), y);
    }
    free(got);
    return wrong;
}

/* Leaves the case out if the adapter did not take every argument.  dtype=f64 is what a call computes in anyway. */
static void check_arguments(call *c)
{
    for (int k = 0; k < c->n_args; ++k) {
        const argument *a = &c->args[k];
        if (a->used || a->kind == 'n' || !strcmp(a->key, "device") || !strcmp(a->key, "requires_grad")) continue;
        if (!strcmp(a->key, "dtype") && !strcmp(a->text, "f64")) continue;
        static char why[80];
        if (*a->key)
            snprintf(why, sizeof why, "%s= is not offered", a->key);
        else
            snprintf(why, sizeof why, "positional argument %d is not offered", k);
        leave_out(c, why);
    }
}

/* "t1 - t3" to 1, -1, 3 */
static int parse_ids(const char *text, int *ids)
{
    int n = 0;
    for (const char *at = text; *at; at += strcspn(at, " "), at += *at == ' ') {
        if (n == MAX_TENSORS || (*at != '-' && *at != 't')) stop("bad list of tensors", text);
        ids[n] = *at == '-' ? -1 : atoi(at + 1);
        if (ids[n++] >= tensor_count) stop("no such tensor", at);
    }
    return n;
}

/* Compares the gradients of the gradients `first` of the inputs, which are the leaves `which`.  second: the two lists of a
   line W.  A gradient that does not depend on an input has zeros. */
static const char *second_gradients(call *c, int n, tg_tensor **inputs, tg_tensor **first, const int *which,
                                    char *const *second)
{
    int cotangent[MAX_TENSORS], want[MAX_TENSORS], n_roots = 0;
    tg_tensor *roots[MAX_TENSORS], *grads[MAX_TENSORS], *results[MAX_TENSORS] = {NULL};
    const char *wrong;
    if (parse_ids(second[0], cotangent) != c->n_leaves || parse_ids(second[1], want) != c->n_leaves)
        stop("a line that does not add up", c->op);
    for (int k = 0; k < n; ++k) {
        if (cotangent[which[k]] < 0) return NULL; /* PyTorch has none */
        if (!tg_requires_grad(first[k])) continue;
        roots[n_roots] = first[k], grads[n_roots++] = made(c, cotangent[which[k]], false);
    }
    if (n_roots && tg_gradients(roots, n_roots, grads, inputs, n, results, TG_ALLOW_UNUSED) != TG_OK)
        return say("backward of backward: %s", tg_error_message());
    for (int k = 0; k < n; ++k) {
        if (!results[k]) results[k] = tg_zeros_like(inputs[k]);
        if ((wrong = difference(results[k], want[which[k]], gradient_tolerance, true)))
            return say("second gradient of tensor argument %d %s", which[k], wrong);
    }
    return NULL;
}

/* One run of a value case: NULL when it passed (or is left out), else what went wrong.  field: of its line. */
static const char *run_value(call *c, char *const *field, bool strided)
{
    const char *outs = field[5], *out_grads = field[7], *in_grads = field[9];
    char *const second[2] = {field[11], field[13]};
    int *const want = c->want, cotangent[MAX_TENSORS], gradient[MAX_TENSORS], which[MAX_TENSORS];
    tg_tensor *roots[MAX_TENSORS], *grads[MAX_TENSORS], *inputs[MAX_TENSORS], *results[MAX_TENSORS];
    int n = c->n_want = parse_ids(outs, want), n_roots = 0, n_inputs = 0;
    const char *wrong;
    if (parse_ids(out_grads, cotangent) != n || parse_ids(in_grads, gradient) != c->n_leaves)
        stop("a line that does not add up", c->op);
    has_f64 = has_narrow = false;
    for (int k = 0; k < c->n_leaves; ++k) {
        const tg_dtype dtype = tensors[c->leaf_id[k]].dtype;
        has_f64 = has_f64 || dtype == TG_F64;
        has_narrow = has_narrow || (dtype != TG_F64 && tg_is_floating_point(dtype));
        c->leaf[k] = made(c, c->leaf_id[k], strided);
        if (gradient[k] < 0) continue;
        which[n_inputs] = k, inputs[n_inputs++] = tg_set_requires_grad(c->leaf[k], true);
    }
    if (!c->left_out && !tg_ok()) return say("making the inputs: %s", tg_error_message());
    c->row->run(c);
    check_arguments(c);
    if (c->left_out) return NULL;
    if (!tg_ok()) return say("%s", tg_error_message());
    if (c->n_out != n) return say("%d outputs, PyTorch has %d", c->n_out, n);
    for (int k = 0; k < n; ++k) {
        if (!c->out[k]) return say("output %d is NULL without an error", k);
        if ((wrong = difference(c->out[k], want[k], value_tolerance, false))) return say("output %d %s", k, wrong);
        if (cotangent[k] >= 0) roots[n_roots] = c->out[k], grads[n_roots++] = made(c, cotangent[k], strided);
    }
    if (!n_inputs) return NULL;
    for (int again = 0; again <= (points ? 1 : 0); ++again) { /* at points by fused kernels, then by recorded rules */
        const int flags = strided || again ? TG_CREATE_GRAPH : points ? TG_RETAIN_GRAPH : 0;
        if (tg_gradients(roots, n_roots, grads, inputs, n_inputs, results, flags) != TG_OK)
            return say("backward: %s", tg_error_message());
        for (int k = 0; k < n_inputs; ++k)
            if ((wrong = difference(results[k], gradient[which[k]], gradient_tolerance, true)))
                return say("%sgradient of tensor argument %d %s", again ? "recorded " : "", which[k], wrong);
    }
    return points ? second_gradients(c, n_inputs, inputs, results, which, second) : NULL;
}

/* Whether the message has the plain words of one of the alternatives of the regular expression. */
static bool has_words(const char *message, const char *regex)
{
    char words[256];
    size_t n = 0;
    bool all = true;
    for (const char *at = regex;; ++at) {
        bool plain = *at && !strchr(".*+?()[]{}|^$\\", *at);
        if (*at == '\\' && at[1] && !strchr("dswDSWbB", at[1])) plain = true, ++at;
        if (plain && n + 1 < sizeof words) words[n++] = *at;
        if (plain) continue;
        words[n] = 0;
        if (n > 3 && !strstr(message, words)) all = false;
        n = 0;
        if (*at && *at != '|') continue;
        if (all || !*at) return all;
        all = true;
    }
}

static const char *run_error(call *c, const char *regex)
{
    for (int k = 0; k < c->n_leaves; ++k) c->leaf[k] = made(c, c->leaf_id[k], false);
    c->row->run(c);
    check_arguments(c);
    if (c->left_out) return NULL;
    (void)tg_synchronize(device); /* a device meets a bad index later */
    if (tg_ok() && !*regex)
        return leave_out(c, wrong_type), NULL; /* a TypeError of Python: in C the types prevent it or allow it */
    if (tg_ok()) return say("was accepted; PyTorch: %s", regex);
    if (!has_words(tg_error_message(), regex))
        note(&wordings, format("%s\n      PyTorch: %s\n      here:    %.300s", c->op, regex, tg_error_message()));
    return NULL;
}

/* Whether the op counts elements between bounds, so that an input that is rounded to f32 may be counted elsewhere: then
   the run in f32 has no result to be compared with. */
static bool counts_elements(const char *op)
{
    static const char *const names[] = {"histc", "histogram", "searchsorted", "bucketize"};
    for (size_t k = 0; k < sizeof names / sizeof *names; ++k)
        if (!strcmp(op, names[k])) return true;
    return false;
}

/* The case on one layout of its inputs, in a scope of its own that must leave nothing behind. */
static const char *run_case(call *c, char **field, bool strided)
{
    tg_stats_info before = tg_stats();
    tg_mark mark = tg_scope_begin();
    c->n_out = 0;
    for (int k = 0; k < c->n_args; ++k) c->args[k].used = false;
    const char *wrong = *field[0] != 'E' ? run_value(c, field, strided) : run_error(c, field[5]);
    if (device.type != TG_CPU.type && tg_synchronize(device) != TG_OK && !wrong && *field[0] != 'E')
        wrong = say("later: %s", tg_error_message());
    tg_clear_error();
    tg_scope_end(mark);
    tg_stats_info after = tg_stats();
    if (wrong) return strided ? say("(strided inputs) %s", wrong) : singles ? say("(in f32) %s", wrong) : wrong;
    if (after.tensors == before.tensors && after.nodes == before.nodes && after.bytes == before.bytes &&
        after.saved == before.saved)
        return NULL;
    return say("leaves %+lld tensors, %+lld nodes, %+lld bytes, %+lld saved",
               (long long)(after.tensors - before.tensors), (long long)(after.nodes - before.nodes),
               (long long)(after.bytes - before.bytes), (long long)(after.saved - before.saved));
}

static void run_line(char *text)
{
    char *field[14] = {NULL}, *copy = format("%.1000s", text);
    int n = 0;
    for (char *at = text; at && n < 14; ++n) {
        field[n] = at;
        if ((at = strchr(at, '\t'))) *at++ = 0;
    }
    bool value = n == 10 && !strcmp(field[0], "V");
    points = n == 14 && !strcmp(field[0], "W");
    if (!value && !points && (n != 6 || strcmp(field[0], "E"))) stop("a line that is no case", copy);
    tally *count = tally_of(field[1]);
    call c;
    memset(&c, 0, sizeof c);
    c.op = field[1];
    for (char *at = field[3], *next; at && *at; at = next) {
        for (next = strchr(at, ' '); next && !is_argument(next + 1);) next = strchr(next + 1, ' ');
        if (next) *next++ = 0;
        parse_argument(&c, at);
    }
    for (size_t k = 0; !c.row && k < sizeof rows / sizeof *rows; ++k)
        if (!strcmp(rows[k].op, c.op)) c.row = &rows[k];
    const char *wrong = NULL;
    if (c.row) wrong = run_case(&c, field, false);
    /* tg_view rightly fails for most strided inputs */
    if (c.row && value && !wrong && !c.left_out && strncmp(c.op, "view", 4)) wrong = run_case(&c, field, true);
    if (c.row && value && !wrong && !c.left_out && !counts_elements(c.op)) {
        singles = true;
        tg_set_default_dtype(TG_F32);
        wrong = run_case(&c, field, false);
        tg_set_default_dtype(TG_F64);
        singles = false;
    }
    if (!c.row || c.left_out) {
        count->left_out++;
        note(&reasons, format("%s: %s", c.op, c.row ? c.left_out : "no such op here"));
        if (verbose && c.row) printf("left out: %s\n    %s\n", c.left_out, copy);
    } else if (wrong) {
        count->failed++;
        printf("FAILED %s\n    %s\n    with", copy, wrong);
        for (int k = 0; k < c.n_leaves; ++k) {
            const recorded *t = &tensors[c.leaf_id[k]];
            char shape[120];
            printf(" %s", shape_text(t->dtype, t->shape, shape, sizeof shape));
        }
        printf("\n");
    } else {
        count->passed++;
    }
    free(copy);
}

/* Whether the line is of one of the ops, whose names are between commas, with or without "nn.functional." */
static bool is_op(const char *line, const char *ops)
{
    const char *at = line + 2, *prefix = "nn.functional.";
    const size_t full = strcspn(at, "\t"), skipped = strncmp(at, prefix, strlen(prefix)) ? 0 : strlen(prefix);
    for (const char *op = ops; *op; op += strcspn(op, ","), op += *op == ',') {
        const size_t n = strcspn(op, ",");
        if ((n == full && !strncmp(at, op, n)) || (n == full - skipped && !strncmp(at + skipped, op, n))) return true;
    }
    return false;
}

int main(int argc, char **argv)
{
    const char *folder = NULL, *only = NULL;
    size_t bytes;
    int passed = 0, failed = 0, left_out = 0;
    const char *on = "cpu";
    for (int k = 1; k < argc; ++k) {
        if (!strcmp(argv[k], "-v"))
            verbose = true;
        else if (!strcmp(argv[k], "--names")) {
            for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) puts(rows[i].op);
            return 0;
        }
        else if (!strcmp(argv[k], "--device") && k + 1 < argc)
            on = argv[++k];
        else if (!folder)
            folder = argv[k];
        else
            only = argv[k];
    }
    if (!folder) stop("usage", "replay DIR [ops] [--device cpu|cudasim|cuda] [-v]");
    device = strcmp(on, "cpu") ? TG_CUDA(0) : TG_CPU; /* cudasim: this program is linked with the simulator */
    if (tg_set_default_device(device) != TG_OK) stop("no such device", on);
    read_tensors(folder);
    tg_set_error_handler(NULL, NULL);
    tg_set_default_dtype(TG_F64);
    tg_set_cache_limit(0); /* so that a memory checker sees every use after free */
    char *cases = read_file(folder, "cases.txt", &bytes);
    for (char *at = cases, *next; at && *at; at = next) {
        if ((next = strchr(at, '\n'))) *next++ = 0;
        if (!only || is_op(at, only)) run_line(at);
    }
    free(cases);
    print_notes("Left out: what the C calls do not offer", &reasons);
    print_notes("Refused as PyTorch does, in other words", &wordings);
    printf("\n\n%-56s %7s %7s %8s\n", "op", "passed", "failed", "skipped");
    for (int k = 0; k < n_tallies; ++k) {
        const tally *t = &tallies[k];
        passed += t->passed, failed += t->failed, left_out += t->left_out;
        printf("%-56s %7d %7d %8d\n", t->op, t->passed, t->failed, t->left_out);
    }
    for (int k = 0; k < n_tallies; ++k)
        if (tallies[k].passed + tallies[k].failed == 0) printf("no case of %s ran\n", tallies[k].op);
    if (freer) printf("%d derivatives are not PyTorch's where that has NaN or an infinity\n", freer);
    printf("%d passed, %d failed, %d skipped\n", passed, failed, left_out);
    return failed != 0;
}
