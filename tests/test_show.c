/* tg_print of tensors, which prints what PyTorch prints but for the names of dtypes; the tape and the steps of backward
 * as text, for graphviz and as drawings. */
#include "tensorgrad.h"
#include "semantics.h"
#include "helpers.h"

static bool prints_tensor(tg_tensor *t, const char *wanted)
{
    FILE *file = tmpfile();
    return CHECK(tg_fprint(file, t) == TG_OK) && prints(file, wanted);
}

/* ---- prints: what PyTorch 2.15 prints, but for the names of dtypes ---- */

/* 0, 1, 2, ... in a shape. */
static tg_tensor *counted(tg_dtype dtype, tg_shape shape)
{
    double n = 1;
    int i;
    for (i = 0; i < shape.ndim; ++i) n *= (double)shape.dim[i];
    return tg_reshape(tg_arange_on(0, n, 1, dtype, HERE), shape);
}

TEST(print_numbers)
{
    CHECK(prints_tensor(f32("[[1, 2], [3, 4]]"), "tensor([[1., 2.],\n        [3., 4.]])\n"));
    CHECK(prints_tensor(f32("[[1, 2.5], [3, 4]]"),
                        "tensor([[1.0000, 2.5000],\n        [3.0000, 4.0000]])\n"));
    CHECK(prints_tensor(tg_scalar(3.5), "tensor(3.5000)\n"));
    CHECK(prints_tensor(f32("[-1.25, 2, 1000]"), "tensor([  -1.2500,    2.0000, 1000.0000])\n"));
    CHECK(prints_tensor(f32("[1e-5, 1, -2000]"), "tensor([ 1.0000e-05,  1.0000e+00, -2.0000e+03])\n"));
    CHECK(prints_tensor(f32("[1e9, 1]"), "tensor([1.0000e+09, 1.0000e+00])\n"));
    CHECK(prints_tensor(f32("[1, inf, -inf, nan]"),
                        "tensor([1., inf, -inf, nan])\n"));
    CHECK(prints_tensor(f32("[0.5, inf, -inf, nan]"),
                        "tensor([0.5000,    inf,   -inf,    nan])\n"));
    CHECK(prints_tensor(tg_zeros(TG_SHAPE(3)), "tensor([0., 0., 0.])\n"));
    CHECK(prints_tensor(f32("[nan, -inf]"), "tensor([nan, -inf])\n"));
    CHECK(prints_tensor(f32("[-0.0, 0]"), "tensor([-0., 0.])\n"));
}

TEST(print_dtypes)
{
    const int64_t whole[4] = {1, -20, 300, 4}, big[1] = {9007199254740993};
    CHECK(prints_tensor(tg_from_i64(whole, TG_SHAPE(2, 2)), "tensor([[  1, -20],\n        [300,   4]])\n"));
    CHECK(prints_tensor(tg_from_i64(big, TG_SHAPE(1)), "tensor([9007199254740993])\n"));
    CHECK(prints_tensor(counted(TG_I32, TG_SHAPE(2)), "tensor([0, 1], dtype=i32)\n"));
    CHECK(prints_tensor(tg_full_on(TG_SHAPE(1), 255, TG_U8, HERE), "tensor([255], dtype=u8)\n"));
    CHECK(prints_tensor(tg_gt_scalar(f32("[1, -1]"), 0), "tensor([ True, False])\n"));
    CHECK(prints_tensor(tg_gt_scalar(tg_scalar(1), 0), "tensor(True)\n"));
    CHECK(prints_tensor(tg_full_on(TG_SHAPE(1), 1.5, TG_F64, HERE), "tensor([1.5000], dtype=f64)\n"));
    CHECK(prints_tensor(tg_to_dtype(f32("[1.5, 2]"), TG_BF16), "tensor([1.5000, 2.0000], dtype=bf16)\n"));
    CHECK(prints_tensor(tg_zeros(TG_SHAPE(0, 5)), "tensor([], size=(0, 5))\n"));
    CHECK(prints_tensor(tg_zeros(TG_SHAPE(0)), "tensor([])\n"));
    CHECK(prints_tensor(tg_zeros_on(TG_SHAPE(0), TG_I64, HERE), "tensor([], dtype=i64)\n"));
    CHECK(prints_tensor(tg_zeros_on(TG_SHAPE(2, 0, 3), TG_F64, HERE), "tensor([], size=(2, 0, 3), dtype=f64)\n"));
    tg_set_default_dtype(TG_F64);
    CHECK(prints_tensor(tg_scalar(1.5), "tensor(1.5000)\n"));
    tg_set_default_dtype(TG_F32);
    CHECK(prints_tensor(tg_full_on(TG_SCALAR, 1.5, TG_F64, HERE), "tensor(1.5000, dtype=f64)\n"));
}

TEST(print_shapes)
{
    tg_tensor *line = tg_div_scalar(counted(TG_F32, TG_SHAPE(30)), 4);
    CHECK(prints_tensor(counted(TG_F32, TG_SHAPE(2, 2, 2)), "tensor([[[0., 1.],\n"
                                                            "         [2., 3.]],\n"
                                                            "\n"
                                                            "        [[4., 5.],\n"
                                                            "         [6., 7.]]])\n"));
    CHECK(prints_tensor(tg_transpose(counted(TG_F32, TG_SHAPE(2, 2, 2)), 0, 2), "tensor([[[0., 4.],\n"
                                                                                "         [2., 6.]],\n"
                                                                                "\n"
                                                                                "        [[1., 5.],\n"
                                                                                "         [3., 7.]]])\n"));
    CHECK(prints_tensor(counted(TG_F32, TG_SHAPE(2, 1, 2, 1)), "tensor([[[[0.],\n"
                                                               "          [1.]]],\n"
                                                               "\n"
                                                               "\n"
                                                               "        [[[2.],\n"
                                                               "          [3.]]]])\n"));
    CHECK(prints_tensor(tg_to_dtype(line, TG_F64),
                        "tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000, 1.2500, 1.5000, 1.7500, 2.0000,\n"
                        "        2.2500, 2.5000, 2.7500, 3.0000, 3.2500, 3.5000, 3.7500, 4.0000, 4.2500,\n"
                        "        4.5000, 4.7500, 5.0000, 5.2500, 5.5000, 5.7500, 6.0000, 6.2500, 6.5000,\n"
                        "        6.7500, 7.0000, 7.2500], dtype=f64)\n"));
    CHECK(prints_tensor(counted(TG_F32, TG_SHAPE(1001)), "tensor([   0.,    1.,    2.,  ...,  998.,  999., 1000.])\n"));
    CHECK(prints_tensor(counted(TG_I64, TG_SHAPE(7, 200)), "tensor([[   0,    1,    2,  ...,  197,  198,  199],\n"
                                                           "        [ 200,  201,  202,  ...,  397,  398,  399],\n"
                                                           "        [ 400,  401,  402,  ...,  597,  598,  599],\n"
                                                           "        ...,\n"
                                                           "        [ 800,  801,  802,  ...,  997,  998,  999],\n"
                                                           "        [1000, 1001, 1002,  ..., 1197, 1198, 1199],\n"
                                                           "        [1200, 1201, 1202,  ..., 1397, 1398, 1399]])\n"));
    CHECK(prints_tensor(counted(TG_F32, TG_SHAPE(3, 400)),
                        "tensor([[0.0000e+00, 1.0000e+00, 2.0000e+00,  ..., 3.9700e+02, 3.9800e+02,\n"
                        "         3.9900e+02],\n"
                        "        [4.0000e+02, 4.0100e+02, 4.0200e+02,  ..., 7.9700e+02, 7.9800e+02,\n"
                        "         7.9900e+02],\n"
                        "        [8.0000e+02, 8.0100e+02, 8.0200e+02,  ..., 1.1970e+03, 1.1980e+03,\n"
                        "         1.1990e+03]])\n"));
    CHECK(prints_tensor(tg_sub_scalar(counted(TG_I64, TG_SHAPE(8, 1, 200)), 10),
                        "tensor([[[ -10,   -9,   -8,  ...,  187,  188,  189]],\n"
                        "\n"
                        "        [[ 190,  191,  192,  ...,  387,  388,  389]],\n"
                        "\n"
                        "        [[ 390,  391,  392,  ...,  587,  588,  589]],\n"
                        "\n"
                        "        ...,\n"
                        "\n"
                        "        [[ 990,  991,  992,  ..., 1187, 1188, 1189]],\n"
                        "\n"
                        "        [[1190, 1191, 1192,  ..., 1387, 1388, 1389]],\n"
                        "\n"
                        "        [[1390, 1391, 1392,  ..., 1587, 1588, 1589]]])\n"));
}

static tg_status copy_forward(tg_ctx *c, tg_tensor *const *in, tg_tensor **out)
{
    (void)c;
    out[0] = tg_clone(in[0]);
    return out[0] ? TG_OK : tg_error_code();
}

static tg_status copy_backward(tg_ctx *c, tg_tensor *const *g, tg_tensor **gin)
{
    (void)c;
    gin[0] = g[0];
    return TG_OK;
}

static void fails_on_a_full_disk(tg_status (*draw)(FILE *, tg_tensor *), tg_tensor *root)
{
    FILE *file = fopen("/dev/full", "w");
    if (!file) return;
    setvbuf(file, NULL, _IONBF, 0);
    CHECK_FAILS(draw(file, root), "could not be written");
    fclose(file);
}

TEST(print_history)
{
    tg_tensor *x = tg_set_requires_grad(tg_ones(TG_SHAPE(2)), true), *y = NULL, *many;
    FILE *file = tmpfile();
    ROW(1.119)
    {
        CHECK(prints_tensor(x, "tensor([1., 1.], requires_grad=True)\n"));
        CHECK(prints_tensor(tg_exp(x), "tensor([2.7183, 2.7183], grad_fn=<ExpBackward0>)\n"));
        CHECK(prints_tensor(tg_detach(x), "tensor([1., 1.])\n"));
    }
    CHECK(tg_custom("Copy", copy_forward, copy_backward, NULL, &x, 1, &y, 1) == TG_OK);
    CHECK(prints_tensor(y, "tensor([1., 1.], grad_fn=<CopyBackward>)\n"));
    many = tg_set_requires_grad(tg_div_scalar(counted(TG_F32, TG_SHAPE(12)), 8), true);
    CHECK(prints_tensor(tg_exp(many),
                        "tensor([1.0000, 1.1331, 1.2840, 1.4550, 1.6487, 1.8682, 2.1170, 2.3989, 2.7183,\n"
                        "        3.0802, 3.4903, 3.9551], grad_fn=<ExpBackward0>)\n"));
    many = tg_set_requires_grad(tg_to_dtype(tg_detach(many), TG_F64), true);
    CHECK(prints_tensor(tg_exp(tg_cat(&many, 1, 0)),
                        "tensor([1.0000, 1.1331, 1.2840, 1.4550, 1.6487, 1.8682, 2.1170, 2.3989, 2.7183,\n"
                        "        3.0802, 3.4903, 3.9551], dtype=f64, grad_fn=<ExpBackward0>)\n"));
    CHECK(prints_tensor(tg_gt_scalar(tg_exp(many), 2),
                        "tensor([False, False, False, False, False, False,  True,  True,  True,  True,\n"
                        "         True,  True])\n"));
    many = tg_narrow(many, 0, 0, 7);
    CHECK(prints_tensor(tg_logsigmoid(many), "tensor([-0.6931, -0.6326, -0.5759, -0.5231, -0.4741, -0.4287, -0.3869],\n"
                                             "       dtype=f64, grad_fn=<LogsigmoidBackward0>)\n"));
    CHECK_FAILS(tg_fprint(file, NULL), "argument t is NULL");
    CHECK_FAILS(tg_fprint(NULL, x), "argument file is NULL");
    CHECK_FAILS(tg_print(NULL), "argument t is NULL");
    fclose(file);
    fails_on_a_full_disk(tg_fprint, x);
    fails_on_a_full_disk(tg_tape_print, x);
    fails_on_a_full_disk(tg_tape_dot, x);
}

/* ---- the tape: on the CPU, which is in the text ---- */

static tg_tensor *named_leaf(const char *name, double value)
{
    tg_tensor *t = tg_set_requires_grad(tg_full_on(TG_SCALAR, value, TG_F64, TG_CPU), true);
    tg_set_name(t, name);
    return t;
}

/* L = (a*b + c) * f, of the lecture. */
TEST(tape_print)
{
    tg_tensor *a = named_leaf("a", 2), *b = named_leaf("b", -3), *c = named_leaf("c", 10), *f = named_leaf("f", -2);
    tg_tensor *e = tg_mul(a, b), *d = tg_add(e, c), *L = tg_mul(d, f), *m, *loss, *all[40];
    FILE *file = tmpfile();
    int i;
    tg_set_name(e, "e"), tg_set_name(d, "d"), tg_set_name(L, "L");
    tg_retain_grad(e), tg_retain_grad(d), tg_retain_grad(L);
    tg_backward_ex(&L, 1, NULL, TG_RETAIN_GRAPH);
    CHECK(tg_tape_print(file, L) == TG_OK);
    CHECK(prints(file, "tape: 4 leaves, 3 ops, 32 bytes saved for backward\n"
                       "  id  op     name  shape  dtype dev   in        data      grad   saved\n"
                       "   0  leaf   a     []     f64   cpu   -       2.0000    6.0000   -\n"
                       "   1  leaf   b     []     f64   cpu   -      -3.0000   -4.0000   -\n"
                       "   2  leaf   c     []     f64   cpu   -      10.0000   -2.0000   -\n"
                       "   3  leaf   f     []     f64   cpu   -      -2.0000    4.0000   -\n"
                       "   4  mul    e     []     f64   cpu   0 1    -6.0000   -2.0000   a b\n"
                       "   5  add    d     []     f64   cpu   4 2     4.0000   -2.0000   -\n"
                       "   6  mul    L     []     f64   cpu   5 3    -8.0000    1.0000   d f\n"));
    tg_set_default_device(TG_CPU);
    m = tg_set_requires_grad(tg_ones(TG_SHAPE(2, 3)), true);
    for (i = 0; i < 40; ++i) all[i] = m;
    file = tmpfile();
    CHECK(tg_tape_print(file, tg_cat(all, 40, 0)) == TG_OK); /* a long list is cut */
    CHECK(strstr(text_of(file), "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 .."));
    loss = tg_sum(tg_exp(tg_mul(m, tg_full(TG_SHAPE(3), 2))));
    file = tmpfile();
    CHECK(tg_tape_print(file, loss) == TG_OK);
    CHECK(prints(file, "tape: 1 leaf, 3 ops, 36 bytes saved for backward\n"
                       "  id  op     name  shape   dtype dev   in        data      grad   saved\n"
                       "   0  leaf   -     [2, 3]  f32   cpu   -          ...         -   -\n"
                       "   1  mul    -     [2, 3]  f32   cpu   0 .        ...         -   .\n"
                       "   2  exp    -     [2, 3]  f32   cpu   1          ...         -   2\n"
                       "   3  sum    -     []      f32   cpu   2      44.3343         -   -\n"));
    tg_backward(loss);
    file = tmpfile();
    CHECK(tg_tape_print(file, loss) == TG_OK);
    CHECK(strstr(text_of(file), "   2  exp    -     [2, 3]  f32   cpu   1          ...         -   freed\n"));
    file = tmpfile();
    CHECK(tg_tape_print(file, a) == TG_OK); /* the tape of a leaf is the leaf */
    CHECK(prints(file, "tape: 1 leaf, 0 ops, 0 bytes saved for backward\n"
                       "  id  op     name  shape  dtype dev   in        data      grad   saved\n"
                       "   0  leaf   a     []     f64   cpu   -       2.0000    6.0000   -\n"));
    file = tmpfile();
    CHECK(tg_tape_print(file, tg_to(a, HERE)) == TG_OK);
    CHECK(strstr(text_of(file), tg_device_str(HERE)) && strstr(printed, "2.0000    6.0000   -"));
}

/* A long chain beside a small graph: no function recurses over it, and only nodes that the root reaches are shown. */
TEST(tape_deep)
{
    tg_tensor *x = named_leaf("x", 1), *y = x, *z;
    FILE *file = tmpfile();
    int i;
    for (i = 0; i < 200000; ++i) y = tg_neg(y);
    z = tg_exp(x);
    CHECK(tg_tape_print(file, z) == TG_OK);
    CHECK(strncmp(text_of(file), "tape: 1 leaf, 1 op, 8 bytes", 27) == 0);
    file = tmpfile();
    CHECK(tg_tape_print(file, y) == TG_OK);
    CHECK(strncmp(text_of(file), "tape: 1 leaf, 200000 ops, 0 bytes", 33) == 0);
    file = tmpfile();
    CHECK(tg_tape_dot(file, y) == TG_OK);
    CHECK(strstr(text_of(file), "... 199801 nodes hidden") && strstr(printed, "hidden -> n"));
}

TEST(tape_dot)
{
    tg_tensor *a = named_leaf("a|b", 1), *y = tg_exp(tg_reshape(tg_to_dtype(tg_mul(a, a), TG_F32), TG_SHAPE(1)));
    FILE *file = tmpfile();
    CHECK(tg_tape_dot(file, y) == TG_OK);
    CHECK(prints(file, "digraph tape {\n"
                       "    rankdir=LR;\n"
                       "    node [shape=record, style=filled, fillcolor=white];\n"
                       "    n0 [fillcolor=lightblue, label=\"{ leaf a\\|b | [] f64 cpu | data 1.0000 | grad - }\"];\n"
                       "    n1 [fillcolor=white, label=\"{ mul | [] f64 cpu | data 1.0000 | grad - }\"];\n"
                       "    n2 [fillcolor=orange, label=\"{ to | [] f32 cpu | data 1.0000 | grad - }\"];\n"
                       "    n3 [fillcolor=palegreen, label=\"{ reshape | [1] f32 cpu | data 1.0000 | grad - }\"];\n"
                       "    n4 [fillcolor=white, label=\"{ exp | [1] f32 cpu | data 2.7183 | grad - }\"];\n"
                       "    n0 -> n1;\n"
                       "    n0 -> n1;\n"
                       "    n1 -> n2;\n"
                       "    n2 -> n3;\n"
                       "    n3 -> n4;\n"
                       "}\n"));
    file = tmpfile();
    CHECK_FAILS(tg_tape_dot(file, NULL), "argument root is NULL");
    CHECK_FAILS(tg_tape_print(NULL, y), "argument file is NULL");
    fclose(file);
}

/* Every step of L = (x*w + b) * x, as a line, and the tape between two of them. */
TEST(steps_as_lines)
{
    tg_tensor *x = named_leaf("x", 2), *w = named_leaf("w", -3), *b = named_leaf("b", 7), *m = tg_mul(x, w), *L;
    FILE *file = tmpfile();
    tg_backward_run *run;
    L = tg_mul(tg_tanh(tg_add(m, b)), x);
    tg_set_name(L, "L");
    run = tg_backward_begin(&L, 1, NULL, TG_RETAIN_GRAPH | TG_RETAIN_GRADS);
    CHECK_FAILS(tg_step_print(file, run), "this run has no step to show");
    while (tg_backward_step(run, NULL)) CHECK(tg_step_print(file, run) == TG_OK);
    CHECK(prints(file, "   6  mul #5*x   g = 1   #5.grad += g*x = 1 * 2 = 2   x.grad += g*#5 = 1 * 0.7616 = 0.7616\n"
                       "   5  tanh(#4)   g = 2   #4.grad += g*(1 - y*y) = 2 * (1 - 0.7616*0.7616) = 0.8399\n"
                       "   4  add #3 + b   g = 0.8399   #3.grad += g = 0.8399   b.grad += g = 0.8399\n"
                       "   3  mul x*w   g = 0.8399   x.grad += g*w = 0.8399 * -3 = -2.52, now -1.758"
                       "   w.grad += g*x = 0.8399 * 2 = 1.68\n"));
    CHECK(tg_backward_end(run) == TG_OK);
    CHECK_FAILS(tg_step_print(NULL, run), "argument file is NULL");
    CHECK_FAILS(tg_step_print(stdout, NULL), "argument run is NULL");
    file = tmpfile();
    CHECK(tg_tape_print(file, L) == TG_OK); /* the gradients of all nodes are kept, and those of the leaves are there */
    CHECK(prints(file, "tape: 3 leaves, 4 ops, 24 bytes saved for backward\n"
                       "  id  op     name  shape  dtype dev   in        data      grad   saved\n"
                       "   0  leaf   x     []     f64   cpu   -       2.0000   -1.7583   -\n"
                       "   1  leaf   w     []     f64   cpu   -      -3.0000    1.6799   -\n"
                       "   2  leaf   b     []     f64   cpu   -       7.0000    0.8399   -\n"
                       "   3  mul    -     []     f64   cpu   0 1    -6.0000    0.8399   x w\n"
                       "   4  add    -     []     f64   cpu   3 2     1.0000    0.8399   -\n"
                       "   5  tanh   -     []     f64   cpu   4       0.7616    2.0000   5\n"
                       "   6  mul    L     []     f64   cpu   5 0     1.5232    1.0000   5 x\n"));
    CHECK(tg_grad(m) == NULL); /* kept to be shown: .grad is not for it */
    file = tmpfile();
    run = tg_backward_begin(&L, 1, NULL, TG_RETAIN_GRAPH);
    CHECK(tg_backward_step(run, NULL) && tg_tape_print(file, L) == TG_OK);
    CHECK(strstr(text_of(file), "   0  leaf   x     []     f64   cpu   -       2.0000    0.7616   -\n"));
    CHECK(strstr(printed, "   5  tanh   -     []     f64   cpu   4       0.7616    2.0000   5\n"));
    CHECK(tg_backward_step(run, NULL) && tg_backward_step(run, NULL) && tg_backward_step(run, NULL));
    file = tmpfile();
    CHECK(tg_tape_print(file, L) == TG_OK); /* the sum of this run grows, .grad is as it was */
    CHECK(strstr(text_of(file), "   0  leaf   x     []     f64   cpu   -       2.0000   -1.7583   -\n"));
    CHECK_NEAR(tg_item(tg_grad(x)), -1.7583, 1e-4);
    CHECK(tg_backward_end(run) == TG_OK);
    CHECK_NEAR(tg_item(tg_grad(x)), 2 * -1.7583, 2e-4);
    run = tg_backward_begin(&L, 1, NULL, 0);
    tg_fill_(tg_detach(x), 1);
    CHECK_FAILS(tg_backward_step(run, NULL), "modified");
    CHECK_FAILS(tg_step_print(stdout, run), "this run has no step to show");
    CHECK(tg_backward_end(run) != TG_OK);
    tg_clear_error();
}

/* The lines of all steps of y, from g or 1. */
static const char *lines_of(tg_tensor *y, tg_tensor *g)
{
    FILE *file = tmpfile();
    tg_backward_run *run = tg_backward_begin(&y, 1, g ? &g : NULL, 0);
    while (tg_backward_step(run, NULL)) CHECK(tg_step_print(file, run) == TG_OK);
    CHECK(tg_backward_end(run) == TG_OK);
    return text_of(file);
}

/* Lines of tensors, of broadcasts, of formulas with words, numbers and signs, of many inputs. */
TEST(steps_of_many_kinds)
{
    tg_tensor *a = tg_set_requires_grad(f64("[1, 2]"), true), *s = named_leaf("s", 3), *all[7], *y, *g;
    int i;
    g = f64("[1, -1]");
    tg_set_default_device(TG_CPU);
    CHECK(strcmp(lines_of(tg_mul(tg_to(a, TG_CPU), s), tg_to(g, TG_CPU)) + 0, printed) == 0);
    CHECK(strstr(printed, ".grad += g*s = [1, -1] * 3 = [3, -3]   s.grad += sum(g*"));
    CHECK(strstr(printed, ") = sum([1, -1] * [1, 2]) = -1\n"));
    CHECK(strstr(lines_of(tg_relu(s), NULL), "relu(s)   g = 1   s.grad += 1 (g, 0 where y <= 0)\n"));
    CHECK(strstr(lines_of(tg_neg(tg_neg(s)), NULL), "neg(s)   g = -1   s.grad += -g = -(-1) = 1\n"));
    CHECK(strstr(lines_of(tg_pow_scalar(tg_neg(s), 2), NULL), "#1.grad += g*2*#1^(2-1) = 1 * 2 * (-3)^(2-1) = -6\n"));
    CHECK(strstr(lines_of(tg_log(tg_mul_scalar(s, 0)), NULL), "s.grad += g*0 = inf * 0 = nan\n"));
    y = tg_set_requires_grad(tg_ones(TG_SHAPE(3, 4)), true);
    tg_set_name(y, "y0");
    CHECK(strstr(lines_of(tg_sum(y), NULL), "sum(y0)   g = 1   y0.grad += shape [3, 4] (g expanded)\n"));
    CHECK(strstr(lines_of(tg_sum(tg_matmul(y, tg_ones(TG_SHAPE(4, 1)))), NULL),
                 "matmul y0 @ .   g = [[1], [1], [1]]   y0.grad += shape [3, 4] (g@.^T)\n"));
    for (i = 0; i < 7; ++i) all[i] = s;
    CHECK(strstr(lines_of(tg_sum(tg_stack(all, 7, 0)), NULL), ", .. 7 inputs)"));
    y = tg_linear(tg_ones(TG_SHAPE(1, 2)), tg_set_requires_grad(tg_ones(TG_SHAPE(1, 2)), true), NULL);
    CHECK(strstr(lines_of(tg_sum(y), NULL), "linear(., #0)   g = [[1]]   #0.grad += [[1, 1]] (g^T@.)\n"));
    y = tg_set_requires_grad(tg_zeros_on(TG_SHAPE(0), TG_F64, TG_CPU), true);
    CHECK(strstr(lines_of(tg_sum(y), NULL), "#0.grad += shape [0] (g expanded)\n"));
}

/* ---- drawings ---- */

static char page[2000000];

/* What draw has written for root. */
static const char *drawn(tg_status (*draw)(FILE *file, tg_tensor *root), tg_tensor *root)
{
    FILE *file = tmpfile();
    size_t n;
    CHECK(draw(file, root) == TG_OK);
    rewind(file);
    n = fread(page, 1, sizeof page - 1, file);
    page[n] = 0;
    CHECK(n > 0 && n < sizeof page - 1);
    fclose(file);
    return page;
}

/* Whether a text is well-formed XML without comments: elements are closed in order, attributes are quoted, and & begins
   an entity. */
static bool well_formed(const char *s)
{
    static const char *open[100];
    int depth = 0;
    for (; *s; ++s) {
        if (*s == '&' && strncmp(s, "&#", 2) != 0) return false;
        if (*s != '<' || s[1] == '!') continue;
        if (s[1] == '/') {
            size_t n = strcspn(s + 2, ">");
            if (depth == 0 || strncmp(open[--depth], s + 2, n) != 0 || !strchr(" />", open[depth][n])) return false;
            s += 2 + n;
            continue;
        }
        if (depth == 100) return false;
        open[depth++] = s + 1;
        for (s += strcspn(s, " />"); *s && *s != '>'; ++s) {
            if (*s == '"' && (s = strchr(s + 1, '"')) == NULL) return false;
            if (*s == '/' && s[1] == '>') depth--;
            if (*s == '<') return false;
        }
    }
    return depth == 0;
}

static int count_of(const char *text, const char *part)
{
    int n = 0;
    for (; (text = strstr(text, part)) != NULL; text += strlen(part)) n++;
    return n;
}

TEST(tape_as_svg)
{
    tg_tensor *a = named_leaf("a<&\">'\\", 2), *b = named_leaf("\xC3\xA4\xFF\xC3\x01", -3), *y, *moved;
    FILE *file = tmpfile();
    int i;
    y = tg_tanh(tg_reshape(tg_to_dtype(tg_mul(tg_mul(a, b), a), TG_F32), TG_SHAPE(1)));
    tg_set_name(y, "L");
    CHECK(well_formed(drawn(tg_tape_svg, y)) && strncmp(page, "<svg xmlns=\"http://www.w3.org/2000/svg\"", 39) == 0);
    CHECK(count_of(page, "<rect class=\"box\"") == 7 && count_of(page, "<path ") == 7 && !strstr(page, "class=\"band\""));
    CHECK(strstr(page, "<title id=\"tape-title\">The tape: 2 leaves, 5 ops</title>") && !strstr(page, "a<&"));
    CHECK(strstr(page, ">0 leaf a&#60;&#38;&#34;&#62;&#39;&#92;</text>"));
    CHECK(strstr(page, ">1 leaf \xC3\xA4?\?\?</text>")); /* what is no UTF-8, and no character of XML */
    CHECK(strstr(page, "<g id=\"n4\" class=\"node move\">") && strstr(page, "<g id=\"n5\" class=\"node view\">"));
    CHECK(strstr(page, ">6 tanh L</text>") && strstr(page, ">[1] f32</text>") && strstr(page, ">data 1.0000</text>") == NULL);
    CHECK(strstr(page, "rule: g * (1 - y*y)</title>") && strstr(page, ">data -1.0000</text>"));
    CHECK(strstr(page, "<path id=\"w3-0\"") && strstr(page, "<path id=\"w3-1\"") && !strstr(page, "<path id=\"w0-0\""));
    moved = tg_exp(tg_to(a, HERE)); /* to another device: its border is crossed */
    drawn(tg_tape_svg, moved);
    CHECK(well_formed(page));
    CHECK(count_of(page, "<rect class=\"band\"") == (tg_is_cuda(moved) ? 2 : 0));
    CHECK(count_of(page, "class=\"wire crosses\"") == (tg_is_cuda(moved) ? 1 : 0));
    CHECK(!tg_is_cuda(moved) || strstr(page, tg_device_str(HERE)));
    CHECK(well_formed(drawn(tg_tape_svg, a)) && count_of(page, "<rect class=\"box\"") == 1); /* a leaf alone */
    for (i = 0, y = a; i < 300; ++i) y = tg_mul(y, b);
    CHECK(well_formed(drawn(tg_tape_svg, y)) && strstr(page, "... 102 nodes hidden"));
    CHECK(count_of(page, "<rect class=\"box\"") == 201 && count_of(page, "class=\"wire hidden\"") == 1);
    for (i = 0, y = a; i < 40; ++i) y = tg_add(y, y); /* wires beside each other, and a tape that is wide */
    CHECK(well_formed(drawn(tg_tape_svg, y)) && count_of(page, "<path ") == 80);
    CHECK_FAILS(tg_tape_svg(file, NULL), "argument root is NULL");
    CHECK_FAILS(tg_tape_svg(NULL, y), "argument file is NULL");
    fclose(file);
    fails_on_a_full_disk(tg_tape_svg, y);
}

static tg_tensor *count_hook(tg_tensor *g, void *calls)
{
    ++*(int *)calls;
    return g;
}

/* The page has every number of the run: each line that tg_step_print writes, what was sent and the sums. */
TEST(tape_as_page)
{
    tg_tensor *x = named_leaf("x<", 2), *w = named_leaf("w", -3), *y, *deep;
    tg_backward_run *run;
    FILE *file = tmpfile();
    int i, calls = 0;
    y = tg_mul(tg_tanh(tg_mul(x, w)), x);
    tg_hook(w, count_hook, &calls);
    CHECK(well_formed(drawn(tg_tape_html, y)) && strncmp(page, "<!DOCTYPE html>", 15) == 0);
    CHECK(tg_grad(x) == NULL && calls == 0 && tg_ok()); /* nothing is committed */
    CHECK(strstr(page, "{\"root\":4,\"start\":\"1\",\"rows\":[0,1,2,3,4],\"steps\":[\n{\"row\":4,"));
    CHECK(count_of(page, "\"line\":") == 3 && count_of(page, "\"wire\":") == 5 && strstr(page, "aria-live=\"polite\""));
    CHECK(strstr(page, "{\"row\":3,\"wire\":0,\"sent\":\"2\",\"sum\":\"2\"},{\"row\":0,\"wire\":1,\"sent\":\"-0.999988\",\"sum\":\"-0.999988\"}]}"));
    CHECK(strstr(page, "<tr id=\"r0\"><th scope=\"row\">0</th><td>leaf</td><td>x&#60;</td>"));
    CHECK(strstr(page, "\"4  mul #3*x\\u003c   g = 1   #3.grad += g*x\\u003c = 1 * 2 = 2   x\\u003c.grad += g*#3 = 1 * -0.999988 = -0.999988\""));
    CHECK(!strstr(page, "http:") || strstr(page, "http://www.w3.org/")); /* names of formats, and no address */
    CHECK(count_of(page, "http") == count_of(page, "http://www.w3.org/"));
    run = tg_backward_begin(&y, 1, NULL, TG_RETAIN_GRAPH);
    while (tg_backward_step(run, NULL)) {
        const char *line, *sends = "   g = ";
        CHECK(tg_step_print(file, run) == TG_OK);
        line = strstr(text_of(file), sends); /* from g on: the names before and after are written in another way */
        CHECK(line && strlen(line) > 9 && strstr(page, "   g = ") != NULL);
        printed[strcspn(printed, "x<\n")] = 0;
        CHECK(strstr(page, printed + strspn(printed, " ")));
        file = tmpfile();
    }
    CHECK(tg_backward_end(run) == TG_OK && calls == 1);
    for (i = 0, deep = x; i < 300; ++i) deep = tg_mul(deep, w);
    CHECK(well_formed(drawn(tg_tape_html, deep)) && count_of(page, "\"line\":") == 199); /* those of the rows drawn */
    CHECK(tg_tape_html(file, x) == TG_OK); /* a leaf has no steps */
    CHECK_FAILS(tg_tape_html(file, tg_detach(x)), "does not require grad");
    CHECK_FAILS(tg_tape_html(file, tg_set_requires_grad(f64("[1, 2]"), true)), "only for scalar outputs");
    CHECK_FAILS(tg_tape_html(file, NULL), "argument root is NULL");
    CHECK_FAILS(tg_tape_html(NULL, y), "argument file is NULL");
    CHECK(tg_backward(y) == TG_OK);
    CHECK_FAILS(tg_tape_html(file, y), "a second time");
    fclose(file);
    fails_on_a_full_disk(tg_tape_html, deep);
}

static bool scenario_show(void)
{
    tg_tensor *x = tg_set_requires_grad(tg_ones(TG_SHAPE(3)), true), *y = x ? tg_sum(tg_exp(x)) : NULL;
    FILE *file = tmpfile();
    bool ok = y && tg_print(NULL) != TG_OK;
    tg_backward_run *run = ok ? tg_backward_begin(&y, 1, NULL, TG_RETAIN_GRAPH | TG_RETAIN_GRADS) : NULL;
    tg_clear_error();
    ok = ok && run && tg_backward_step(run, NULL) && tg_step_print(file, run) == TG_OK && tg_backward_step(run, NULL);
    ok = ok && tg_step_print(file, run) == TG_OK;
    if (run) ok = tg_backward_end(run) == TG_OK && ok;
    ok = ok && tg_fprint(file, y) == TG_OK && tg_tape_print(file, y) == TG_OK && tg_tape_dot(file, y) == TG_OK;
    ok = ok && tg_tape_svg(file, y) == TG_OK && tg_tape_html(file, y) == TG_OK;
    fclose(file);
    return ok;
}

/* x / 2, with a gradient that is not 1 / 2 */
static tg_tensor *half_of(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    return tg_mul_scalar(tg_add(tg_detach(in[0]), in[0]), 0.25);
}

/* Everything that prints a number, in one text. */
static const char *numbers_printed(tg_tensor *x, tg_tensor *y, tg_module *m)
{
    static char text[sizeof printed];
    FILE *file = tmpfile();
    tg_gradcheck_options options;
    tg_backward_run *run;
    memset(&options, 0, sizeof options);
    options.report = file;
    tg_set_grad(x, NULL);
    CHECK(tg_fprint(file, x) == TG_OK && tg_tape_print(file, y) == TG_OK && tg_tape_dot(file, y) == TG_OK);
    CHECK(tg_tape_svg(file, y) == TG_OK && tg_module_print(file, m) == TG_OK);
    run = tg_backward_begin(&y, 1, NULL, TG_RETAIN_GRAPH);
    while (tg_backward_step(run, NULL)) CHECK(tg_step_print(file, run) == TG_OK);
    CHECK(tg_backward_end(run) == TG_OK);
    CHECK(!tg_gradcheck_ex(half_of, &x, 1, NULL, &options));
    fprintf(file, "%s\n", tg_error_message());
    tg_clear_error();
    CHECK(!tg_dropout(x, 1.25, true));
    fprintf(file, "%s\n", tg_error_message());
    tg_clear_error();
    CHECK(!tg_empty_on(TG_SHAPE((int64_t)1 << 58), TG_F64, TG_CPU)); /* the allocator is not called */
    fprintf(file, "%.90s\n", tg_error_message());
    tg_clear_error();
    snprintf(text, sizeof text, "%s", text_of(file));
    return text;
}

/* The library prints a point in every locale. */
TEST(in_a_locale_with_a_comma)
{
    tg_tensor *x = tg_set_requires_grad(f64("[1.5, -2.25, 0.0000001, 123456.75]"), true);
    tg_tensor *y = tg_sum(tg_pow_scalar(tg_mul_scalar(x, 1.5), 2));
    tg_module *list[3], *m;
    static char plain[sizeof printed];
    list[0] = tg_nn_dropout(0.25), list[1] = tg_nn_leaky_relu(0.01), list[2] = tg_nn_layer_norm(TG_SHAPE(2), 1e-5, true);
    m = tg_nn_sequential(list, 3);
    snprintf(plain, sizeof plain, "%s", numbers_printed(x, y, m));
    CHECK(strstr(plain, "p=0.25") && strstr(plain, "g*1.5 = [4.5, -6.75, 3e-07, 3.704e+05] * 1.5") && strstr(plain, "1.5000e+00") && strstr(plain, "got 1.25") && strstr(plain, "2097152.00 TiB"));
    if (comma_locale()) CHECK(strcmp(plain, numbers_printed(x, y, m)) == 0);
    setlocale(LC_ALL, "C");
    tg_module_free(m);
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    out_of_memory(scenario_show);
    RUN(print_numbers);
    RUN(print_dtypes);
    RUN(print_shapes);
    RUN(print_history);
    RUN(tape_print);
    RUN(tape_deep);
    RUN(tape_dot);
    RUN(steps_as_lines);
    RUN(steps_of_many_kinds);
    RUN(tape_as_svg);
    RUN(tape_as_page);
    RUN(in_a_locale_with_a_comma);
    check_rows("test_show");
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
