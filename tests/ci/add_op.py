#!/usr/bin/env python3
"""add_op.py FOLDER [cpu]: adds two ops to a copy of the library in FOLDER, in as many places as @@TABLE says that it takes, and
holds that the copy passes its tests; ends in "N passed, N failed".

tanhshrink is elementwise: 5 places.  rcumsum, the running sum from the end, has kernels of its own: 8 places in three files.
tests/test_ops.c then checks values, gradients, gradients of gradients, layouts, dtypes and leaks
of both, on the CPU and, without "cpu" and where there is a C++ compiler, with the CUDA kernels on a pretend device."""
import sys

from checks import check, summary
from copies import CUDA, DEVICE, HEADER, SAMPLES, add, build, build_on_device, copy, test

TANHSHRINK = [
    (HEADER, "    OP(logsigmoid, FLOATS, (x < 0",
     "    OP(tanhshrink, FLOATS, x - tgi_tanh(x), x, A, tg_mul(g, tg_square(tg_tanh(x))), \"g * tanh(x)^2\") \\\n"),
    (HEADER, "TG_API tg_tensor *tg_logsigmoid(",
     "TG_API tg_tensor *tg_tanhshrink(tg_tensor *x); /* x - tanh(x) */\n"),
    (HEADER, "TG_API tg_tensor *tg_logsigmoid_(",
     "TG_API tg_tensor *tg_tanhshrink_(tg_tensor *x); /* x = tg_tanhshrink(x) */\n"),
    (SAMPLES, "    TWIN(logsigmoid, ",
     "    TWIN(tanhshrink, tg_tanhshrink(a), POINTWISE, tg_tanhshrink_(a)) \\\n"),
    (SAMPLES, "    OP(expm1, -2, 2, LINE,",
     "    OP(tanhshrink, -2, 2, LINE, \"[-0.594851746355, -0.005081337596, 0.03788284274, 1.035972419924]\", \\\n"
     "       \"[0.819293361076, 0.059985151194, 0.213552267034, 0.929349175147]\", \"[0, 0, inf, -inf, nan]\", \\\n"
     "       \"[0, 0, 1, 1, nan]\") \\\n"),
]

RCUMSUM = [
    (HEADER, "    OP(cumsum, \"t\", CAST_F32 | DIM,",
     "    OP(rcumsum, \"t\", CAST_F32 | DIM, \"running sum of g\") \\\n"),
    (HEADER, "TG_API tg_tensor *tg_cumsum(",
     "TG_API tg_tensor *tg_rcumsum(tg_tensor *t, int dim); /* y[i] = t[i] + ... + t[n - 1] */\n"),
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
    (HEADER, "/* y, x [rows, n]: y[i] = x[0] + .. + x[i] */\nstatic bool tgi_plain_cumsum(", """\
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


def main():
    folder = copy(sys.argv[1])
    check(len({name for name, _, _ in RCUMSUM}) <= 3, "an op with kernels takes more than 3 files")
    if not (add(folder, "an elementwise op", TANHSHRINK, 5) and add(folder, "an op with kernels", RCUMSUM, 8)):
        return summary()
    programs = [(build(folder, "test_ops"), {})]
    if "cpu" in sys.argv:
        print("skipped: the pretend device, which takes turns by commit")
    else:
        programs.append((build_on_device(folder, "test_ops"), DEVICE))
    for program, environment in programs:
        for op in ("tanhshrink", "rcumsum"):
            if program:
                test(folder, program, 101, op, **environment)
    return summary()


if __name__ == "__main__":
    sys.exit(main())
