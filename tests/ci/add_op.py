#!/usr/bin/env python3
"""add_op.py FOLDER [cpu]: adds three ops to a copy of the library in FOLDER, in as many places as the head of @@TABLE says that
it takes, and holds that the copy passes its tests; ends in "N passed, N failed".

tanhrest is elementwise: 5 places.  rcumsum, the running sum from the end, has kernels of its own: 8 places in three files.
locally_connected1d, a convolution whose kernel is another one in each window, has a weight, options and refusals, and kernels
for the gradients of both inputs: 11 places in four files.  A declaration and its name in TGI_RESULTS are one place.
tests/test_ops.c then checks values, gradients, gradients of gradients, layouts, dtypes and leaks of all three on the CPU, of
the last one on the plain backend, too, and, without "cpu" and where there is a C++ compiler, of all with the CUDA kernels on a
pretend device; test_api.c calls all with wrong arguments."""
import sys

from checks import check, summary
from copies import CUDA, DEVICE, HEADER, SAMPLES, add, build, build_on_device, copy, insert, run, test

ARGUMENTS = "tests/api/recipes.h"

TANHREST = [
    (HEADER, "    OP(logsigmoid, FLOATS, (x < 0",
     "    OP(tanhrest, FLOATS, x - tgi_tanh(x), x, A, tg_mul(g, tg_square(tg_tanh(x))), \"g * tanh(x)^2\") \\\n"),
    (HEADER, "/* log(sigmoid(x)).  F.logsigmoid */",
     "/* x - tanh(x) */\nTG_API tg_tensor *tg_tanhrest(tg_tensor *x);\n"),
    (HEADER, "/* x = tg_logsigmoid(x). ",
     "/* x = tg_tanhrest(x) */\nTG_API tg_tensor *tg_tanhrest_(tg_tensor *x);\n"),
    (SAMPLES, "    TWIN(logsigmoid, ",
     "    TWIN(tanhrest, tg_tanhrest(a), POINTWISE, tg_tanhrest_(a)) \\\n"),
    (SAMPLES, "    OP(expm1, -2, 2, LINE,",
     "    OP(tanhrest, -2, 2, LINE, \"[-0.594851746355, -0.005081337596, 0.03788284274, 1.035972419924]\", \\\n"
     "       \"[0.819293361076, 0.059985151194, 0.213552267034, 0.929349175147]\", \"[0, 0, inf, -inf, nan]\", \\\n"
     "       \"[0, 0, 1, 1, nan]\") \\\n"),
]

RCUMSUM = [
    (HEADER, "    OP(cumsum, \"t\", CAST_F32 | DIM,",
     "    OP(rcumsum, \"t\", CAST_F32 | DIM, \"running sum of g\") \\\n"),
    (HEADER, "/* y[i] = t[0] + ... + t[i]; integers give i64. ",
     "/* y[i] = t[i] + ... + t[n - 1] */\nTG_API tg_tensor *tg_rcumsum(tg_tensor *t, int dim);\n"),
    (HEADER, "tg_tensor *tg_sort(tg_tensor *t, int dim, bool descending, tg_tensor **indices)\n{", """\
static bool tgi_rcumsum_kernel(tgi_call *c, tg_tensor *y)
{
    const tgi_rows r = tgi_rows_along(c->params.dim, 2, y, c->in[0], NULL);
    return c->backend->rcumsum(c->S, &r);
}

tg_tensor *tg_rcumsum(tg_tensor *t, int dim)
{
    tgi_call c;
    if (!tgi_op_begin_dim(&c, NULL, TGI_OP_rcumsum, &t, dim)) return NULL;
    return tgi_run(&c, tgi_shape_of(t), tgi_sum_dtype(t), tgi_rcumsum_kernel);
}

static bool tgi_rule_rcumsum(tgi_step *step, tg_tensor *g)
{
    return tgi_set_input_grad(step, 0, tg_cumsum(g, step->params->dim));
}

"""),
    (HEADER, "    OP(ALL, bool, cumsum, (",
     "    OP(PLAIN, bool, rcumsum, (tgi_thread *S, const tgi_rows *rows)) \\\n"),
    (HEADER, "static bool tgi_plain_cumsum(", """\
static bool tgi_plain_rcumsum(TGI_UNUSED tgi_thread *S, const tgi_rows *rows)
{
    for (int64_t row = 0; row < tgi_plain_count(rows->ndim, rows->dim); ++row) {
        const tgi_plain_line y = tgi_plain_row(rows, 0, row), x = tgi_plain_row(rows, 1, row);
        tgi_plain_number sum = tgi_plain_zero(x.dtype);
        for (int64_t i = rows->length - 1; i >= 0; --i) {
            sum = tgi_plain_sum(sum, tgi_plain_get(x, i));
            tgi_plain_put(y, i, sum);
        }
    }
    return true;
}

"""),
    (CUDA, "static bool tgi_cuda_cumsum(", """\
template <class T> __global__ void tgi_rcumsum_rows(tgi_row_job job)
{
    for (int64_t row = blockIdx.x; row < job.iter.numel; row += gridDim.x) {
        tgi_row arg[2];
        tgi_row_init(job, row, arg);
        T sum = 0;
        for (int64_t i = job.length - 1; i >= 0 && threadIdx.x == 0; --i) {
            sum = tgi_combine_sum::two(sum, tgi_row_load<T>(arg[1], i));
            tgi_row_set(arg[0], i, sum);
        }
    }
}

static bool tgi_cuda_rcumsum(tgi_thread *S, const tgi_rows *rows)
{
    if (tgi_is_floating(rows->arg[1].dtype)) return tgi_each_row(S, tgi_rcumsum_rows<double>, rows);
    return tgi_each_row(S, tgi_rcumsum_rows<int64_t>, rows);
}

"""),
    (SAMPLES, "    OP(cumsum, tg_cumsum(a, p->dim), 0)",
     "    OP(rcumsum, tg_rcumsum(a, p->dim), 0) \\\n"),
    (SAMPLES, "SAMPLES(cumsum)\n{", """\
SAMPLES(rcumsum)
{
    sample(S(4), dim(0));
    sample(S(2, 3, 4), dim(-2));
    sample(S(0, 3), dim(1));
    sample(S0, dim(0));
    edge(in("[[1, 2, 3], [4, 5, 6]]"), dim(1), gives("[[6, 5, 3], [15, 11, 6]]"), grads("[[1, 2, 3], [1, 2, 3]]"));
    refuse(tg_rcumsum(ones(2, 3), 5), "Dimension out of range");
}
"""),
]

LOCALLY_CONNECTED = [
    (HEADER, "    OP(max_pool, \"x\", Y2 | FLOAT_INPUT,",
     "    OP(locally_connected1d, \"x,weight\", A_FOR_B | B_FOR_A | CAST_LOW | FLOAT_INPUT, \\\n"
     "       \"each input: this op for it, of g and the other\") \\\n"),
    (HEADER, "/* Transposed convolutions of x [N, C, ...]", """\
/* x [N, C, L] with weight [O, C, kernel, L'], a kernel for each window -> [N, O, L'].  padding: zeros on both sides.
   Errors: L' that is not (L + 2 * padding - kernel) / stride + 1, rounded down. */
TG_API tg_tensor *tg_locally_connected1d(tg_tensor *x, tg_tensor *weight, int64_t stride, int64_t padding);

"""),
    (HEADER, "/* Pools and interpolation.  x is planes of rows", """\
/* A convolution in one dim with a kernel for each window: the sum of w * (what its tap sees in its window) * y is
   linear in each of x [images, channels, size], w [maps, channels, taps, windows] and y [images, maps, windows].
   `result` says which one is computed: its gradient, from the other two.  All are contiguous and of one float dtype. */
typedef struct {
    int result; /* TGI_CONV_X, TGI_CONV_W or TGI_CONV_Y */
    int64_t images, channels, size, maps, taps, windows, stride, before;
    int64_t numel, terms; /* of the result; products that are added for each of its elements */
    tgi_operand arg[3];   /* x, w, y */
} tgi_local;

/* at [3] := the elements of x, w and y in this term of element i of the result; false where the tap sees padding. */
TGI_INLINE bool tgi_local_term(const tgi_local *m, int64_t i, int64_t term, int64_t *at)
{
    int64_t last = m->result == TGI_CONV_X ? m->size : m->windows;
    int64_t window = i % last, tap = term % m->taps, image = 0, channel = term / m->taps, map = channel, element;
    i /= last;
    if (m->result == TGI_CONV_W) {
        image = term;
        tap = i % m->taps;
        channel = i / m->taps % m->channels;
        map = i / m->taps / m->channels;
    } else {
        const int64_t between = m->result == TGI_CONV_X ? m->channels : m->maps;
        *(m->result == TGI_CONV_X ? &channel : &map) = i % between;
        image = i / between;
    }
    if (m->result == TGI_CONV_X) { /* the window whose tap sees the element */
        element = window;
        window = element + m->before - tap;
        if (window < 0 || window % m->stride != 0 || window / m->stride >= m->windows) return false;
        window /= m->stride;
    } else {
        element = window * m->stride + tap - m->before;
        if (element < 0 || element >= m->size) return false;
    }
    at[TGI_CONV_X] = (image * m->channels + channel) * m->size + element;
    at[TGI_CONV_W] = ((map * m->channels + channel) * m->taps + tap) * m->windows + window;
    at[TGI_CONV_Y] = (image * m->maps + map) * m->windows + window;
    return true;
}

"""),
    (HEADER, "    /* image = for each element the sum of all entries of columns",
     "    OP(ALL, bool, local, (tgi_thread *S, const tgi_local *local)) \\\n"),
    (HEADER, "/* columns [channels, kernel.., images, windows..], image [images, channels, size..]: what the tap", """\
static bool tgi_plain_local(TGI_UNUSED tgi_thread *S, const tgi_local *m)
{
    const int a = (m->result + 1) % 3, b = (m->result + 2) % 3;
    const tgi_plain_line x = tgi_plain_dense(&m->arg[a]), y = tgi_plain_dense(&m->arg[b]);
    for (int64_t i = 0; i < m->numel; ++i) {
        double sum = 0;
        int64_t at[3];
        for (int64_t term = 0; term < m->terms; ++term)
            if (tgi_local_term(m, i, term, at)) sum += tgi_plain_real(x, at[a]) * tgi_plain_real(y, at[b]);
        tgi_plain_put_real(tgi_plain_dense(&m->arg[m->result]), i, sum);
    }
    return true;
}

"""),
    (HEADER, "/* ---- conv1d to conv_transpose3d: the checks,", """\
/* ---- locally_connected1d: x, w or y from the other two, as in conv ---- */

/* params: flag: the result; i, j: stride and padding.  The inputs are those of x, w and y that follow the result, in a
   circle. */
static bool tgi_local_kernel(tgi_call *c, tg_tensor *out)
{
    const int result = c->params.flag;
    const tg_tensor *t[3];
    tgi_local m;
    t[result] = out;
    for (int i = 0; i < 2; ++i) t[(result + 1 + i) % 3] = c->in[i];
    const tg_tensor *x = t[TGI_CONV_X], *w = t[TGI_CONV_W];
    m.result = result;
    m.images = x->dim[0], m.channels = x->dim[1], m.size = x->dim[2];
    m.maps = w->dim[0], m.taps = w->dim[2], m.windows = w->dim[3];
    m.stride = c->params.i, m.before = c->params.j;
    m.numel = tgi_numel(out);
    m.terms = result == TGI_CONV_W ? m.images : (result == TGI_CONV_X ? m.maps : m.channels) * m.taps;
    for (int i = 0; i < 3; ++i) tgi_operand_init(&m.arg[i], t[i]);
    return m.numel == 0 || c->backend->local(c->S, &m);
}

/* t[result], of this shape, from the other two of x, w and y. */
static tg_tensor *tgi_local_op(int result, tg_tensor *const *t, int64_t stride, int64_t padding, tg_shape shape)
{
    tg_tensor *a = tg_contiguous(t[(result + 1) % 3]), *b = tg_contiguous(t[(result + 2) % 3]);
    tgi_call c;
    if (!a || !b || !tgi_op_begin2(&c, TGI_OP_locally_connected1d, a, b)) return NULL;
    tgi_params(&c)->flag = result;
    c.params.i = stride;
    c.params.j = padding;
    return tgi_run(&c, shape, (tg_dtype)a->dtype, tgi_local_kernel);
}

static bool tgi_rule_locally_connected1d(tgi_step *step, tg_tensor *g)
{
    const int result = step->params->flag, of[2] = {(result + 1) % 3, (result + 2) % 3};
    tg_tensor *t[3];
    t[result] = g;
    for (int i = 0; i < 2; ++i) t[of[i]] = tgi_saved_tensor(step, i);
    for (int i = 0; i < 2; ++i) {
        if (!tgi_input_needs_grad(step, i)) continue;
        const tg_shape shape = tgi_input_shape(step, i);
        tg_tensor *gradient = tgi_local_op(of[i], t, step->params->i, step->params->j, shape);
        if (!tgi_set_input_grad(step, i, gradient)) return false;
    }
    return true;
}

/* Whether dtypes, sizes and options fit: see the declaration. */
static bool tgi_local_check(tgi_thread *S, const tg_tensor *x, const tg_tensor *w, int64_t stride, int64_t padding)
{
    const char *op = "locally_connected1d";
    if (x->dtype != w->dtype) {
        return tgi_fail(S, TG_ERR_DTYPE, op, "Input type (%s) and weight type (%s) should be the same",
                        tg_dtype_name((tg_dtype)x->dtype), tg_dtype_name((tg_dtype)w->dtype));
    }
    if (stride < 1 || padding < 0 || stride > INT32_MAX || padding > INT32_MAX) {
        return tgi_fail(S, TG_ERR_ARGUMENT, op, "stride %lld or padding %lld is out of range", (long long)stride,
                        (long long)padding);
    }
    if (x->ndim != 3 || w->ndim != 4 || x->dim[1] != w->dim[1] || w->dim[2] == 0) {
        return tgi_fail(S, TG_ERR_SHAPE, op, "x [N, C, L] and weight [O, C, kernel, L'] are needed, but got %s and %s",
                        tgi_shape_text(x).text, tgi_shape_text(w).text);
    }
    const int64_t room = x->dim[2] + 2 * padding - w->dim[2], windows = room < 0 ? 0 : room / stride + 1;
    return w->dim[3] == windows ||
           tgi_fail(S, TG_ERR_SHAPE, op, "weight %s has kernels for %lld windows, but x has %lld",
                    tgi_shape_text(w).text, (long long)w->dim[3], (long long)windows);
}

tg_tensor *tg_locally_connected1d(tg_tensor *x, tg_tensor *weight, int64_t stride, int64_t padding)
{
    tgi_composite c;
    tg_tensor *none = NULL, *y = NULL;
    if (!tgi_composite_begin_with(&c, TGI_OP_locally_connected1d, NULL, &x, &weight, &none)) return NULL;
    if (tgi_local_check(c.S, x, weight, stride, padding)) {
        tg_tensor *const t[3] = {x, weight, NULL};
        y = tgi_local_op(TGI_CONV_Y, t, stride, padding, TG_SHAPE(x->dim[0], weight->dim[0], weight->dim[3]));
    }
    return tgi_composite_end(&c, y);
}

"""),
    (HEADER, "/* sum [run] := elements [from, from + run) of a row of the image:", """\
/* In f32; items: elements of the result. */
static void tgi_local_range(const void *job, int thread, int64_t first, int64_t end)
{
    const tgi_local *m = (const tgi_local *)job;
    const int a = (m->result + 1) % 3, b = (m->result + 2) % 3;
    const float *x = (const float *)m->arg[a].data, *y = (const float *)m->arg[b].data;
    (void)thread;
    for (; first < end; ++first) {
        float sum = 0;
        int64_t at[3];
        for (int64_t term = 0; term < m->terms; ++term)
            if (tgi_local_term(m, first, term, at)) sum += x[at[a]] * y[at[b]];
        ((float *)m->arg[m->result].data)[first] = sum;
    }
}

static bool tgi_cpu_local(tgi_thread *S, const tgi_local *m)
{
    if (m->arg[0].dtype != TG_F32) return tgi_plain_local(S, m);
    tgi_parallel_for(tgi_parts_for(S, (double)m->numel * (double)m->terms, m->numel), m->numel, tgi_local_range, m);
    return true;
}

"""),
    (CUDA, "/* tgi_window_of, with a division in 32 bits", """\
/* One thread per element of the result. */
template <int dtype> __global__ void tgi_local_elements(tgi_local m)
{
    typedef typename tgi_stored<dtype>::type stored;
    typedef typename tgi_computed<dtype>::type real;
    const int a = (m.result + 1) % 3, b = (m.result + 2) % 3;
    for (int64_t i = tgi_grid_thread(); i < m.numel; i += tgi_grid_size()) {
        real sum = 0;
        int64_t at[3];
        for (int64_t term = 0; term < m.terms; ++term) {
            if (!tgi_local_term(&m, i, term, at)) continue;
            sum += tgi_load_as<real>((tg_dtype)dtype, (const stored *)m.arg[a].data + at[a]) *
                   tgi_load_as<real>((tg_dtype)dtype, (const stored *)m.arg[b].data + at[b]);
        }
        tgi_store_as((tg_dtype)dtype, (stored *)m.arg[m.result].data + i, sum);
    }
}

static bool tgi_cuda_local(tgi_thread *S, const tgi_local *m)
{
    const tgi_cuda_device *d = tgi_device_for(S, m->arg[0].index);
    void (*const kernels[])(tgi_local) = {tgi_local_elements<TG_F32>, tgi_local_elements<TG_F64>,
                                          tgi_local_elements<TG_BF16>, tgi_local_elements<TG_F16>};
    return d && tgi_launch_each(S, d, kernels[m->arg[0].dtype], m->numel, *m);
}

"""),
    (SAMPLES, "    OP(conv_weight, conv_weight_call(a, b, p), 0)",
     "    OP(locally_connected1d, tg_locally_connected1d(a, b, p->count, p->count2), 0) \\\n"),
    (SAMPLES, "SAMPLES(conv_weight)\n{", """\
SAMPLES(locally_connected1d)
{
    sample(S(2, 3, 5), S(4, 3, 2, 4), count(1));
    sample(S(2, 2, 5), S(3, 2, 3, 3), count(2), count2(1));
    sample(S(1, 2, 2), S(2, 2, 1, 4), count(1), count2(1)); /* windows of padding alone */
    sample(S(0, 2, 4), S(3, 2, 2, 3), count(1));
    sample(S(2, 0, 4), S(3, 0, 2, 3), count(1));
    sample(S(1, 2, 2), S(3, 2, 4, 0), count(1));
    edge(in("[[[1, 2, 3]]]"), in("[[[[1, 10], [100, 1000]]]]"), count(1), gives("[[[201, 3020]]]"),
         grads("[[[1, 110, 1000]]]"), grads("[[[[1, 2], [2, 3]]]]"));
    edge(in("[[[1, 2]]]"), in("[[[[3, 4], [5, 6]]]]"), count(2), count2(1), gives("[[[5, 8]]]"), grads("[[[5, 4]]]"),
         grads("[[[[0, 2], [1, 0]]]]"));
    refuse(tg_locally_connected1d(ones(1, 3, 5), ones(2, 3, 2, 5), 1, 0), "has kernels for 5 windows, but x has 4");
    refuse(tg_locally_connected1d(ones(1, 3, 5), ones(2, 4, 2, 4), 1, 0), "but got [1, 3, 5] and [2, 4, 2, 4]");
    refuse(tg_locally_connected1d(ones(1, 3, 5), ones(2, 3, 2, 4), 0, 0), "stride 0 or padding 0 is out of range");
    refuse(tg_locally_connected1d(ones(1, 3, 5), tg_to_dtype(ones(2, 3, 2, 4), TG_F32), 1, 0), "weight type (f32)");
}
"""),
    (ARGUMENTS, "    {\"tg_conv1d\",",
     "    {\"tg_locally_connected1d\", \"x=f32:2,3,4 weight=f32:2,3,2,3 padding=0\"},\n"),
]

# places, what they add, at most so many places and files, name
OPS = [(TANHREST, "an elementwise op", 5, 2, "tanhrest"), (RCUMSUM, "an op with a kernel of its own", 8, 3, "rcumsum"),
       (LOCALLY_CONNECTED, "an op like convolution", 14, 4, "locally_connected1d")]


def main():
    folder = copy(sys.argv[1])
    for places, what, most, files, name in OPS:
        check(len({path for path, _, _ in places}) <= files, "%s takes more than %d files" % (what, files))
        if not (add(folder, what, places, most) and insert(folder, [(HEADER, "    R(zeros) R(ones)", "    R(%s) \\\n" % name)])):
            return summary()
    run(folder, "bash", "tests/ci/misuse.sh", "cc -std=c99", "-Wall -Wextra -Wconversion -Werror") # has a look at TGI_RESULTS
    test(folder, build(folder, "test_api"), 1000)
    program = build(folder, "test_ops")
    programs = [(program, {}, OPS), (program, {"TG_PLAIN": "1"}, OPS[2:])]
    if "cpu" in sys.argv:
        print("skipped: the pretend device, which takes turns by commit")
    else:
        programs.append((build_on_device(folder, "test_ops"), DEVICE, OPS))
    for program, environment, ops in programs:
        for *_, name in ops:
            if program:
                test(folder, program, 101, name, **environment)
    return summary()


if __name__ == "__main__":
    sys.exit(main())
