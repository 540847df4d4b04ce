"""The cells of the sweep in PyTorch: answers the lines that `sweep worker` of tests/bench/sweep.c answers, for the same
cells with the same numbers.  An op that PyTorch has not is in NONE, and answered with "error: no counterpart"."""
import functools
import operator
import sys
import time

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from common import random_bits

THREADS = int(sys.argv[1])
NOW = time.process_time if THREADS == 1 else time.perf_counter  # as in sweep.c
torch.set_num_threads(THREADS)
torch.set_flush_denormal(True)

DTYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16, "i64": torch.int64,
          "u8": torch.uint8, "bool": torch.bool, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32}
REDUCTIONS = ("none", "mean", "sum", "batchmean")


# ---- calls ---------------------------------------------------------------------------------------------------------


def as_strided(x, p):
    copy = x.clone()
    view = copy.transpose(0, 1)
    copy.mul_(p.num)
    return view * view


def strided_add(x, p):
    copy = x * x
    windows = copy.unfold(0, 2, 1)
    copy.mul_(3)
    return windows * windows


def scatter_view(x, y, p):
    copy = x.clone()
    copy.select(0, 1).copy_(y * y)
    return copy


def index_of(given, whole):
    """The indices, with a whole dim before those whose bit of whole is set."""
    index = []
    for i, t in enumerate(given):
        index += [slice(None), t] if whole >> i & 1 else [t]
    return tuple(index)


def index_put(x, values, *rest):
    *given, p = rest
    return x.index_put(index_of(given, p.count), values, accumulate=p.flag != 0)


def index_put_in_place(x, values, *rest):
    *given, p = rest
    return x.clone().index_put_(index_of(given, p.count), values, accumulate=p.flag != 0)


def sliced(x, p):
    return x[(slice(None),) * p.dim + (slice(*p.dims),)]


def convolution(function):
    def call(x, w, bias, p):
        return function(x, w, bias, p.dims or 1, p.dims2 or 0, p.count or 1, p.count2 or 1)
    return call


def transposed_convolution(function):
    def call(x, w, bias, p):
        return function(x, w, bias, p.dims or 1, p.dims2 or 0, p.dim, p.count2 or 1)
    return call


def pool(function, **options):
    return lambda x, p: function(x, p.dims, p.dims2 or None, p.count, **options)


def pool_ex(function):
    return lambda x, p: function(x, p.dims, p.dims2 or None, p.count, p.count2, ceil_mode=p.flag != 0)


def loss(function, **options):
    """options: names of keyword arguments, and which number they are"""
    def call(a, b, p):
        named = {name: getattr(p, number) for name, number in options.items()}
        return function(a, b, reduction=REDUCTIONS[p.flag], **named)
    return call


def with_dim(function):
    return lambda x, p: function(x, p.dim)


def with_dims(function):
    return lambda x, p: function(x, p.dims, keepdim=p.flag != 0)


def with_number(function):
    return lambda x, p: function(x, p.num)


def cross_entropy_ex(x, target, *rest):
    p = rest[-1]
    return F.cross_entropy(x, target, *rest[:-1], ignore_index=p.count, label_smoothing=p.num,
                           reduction=REDUCTIONS[p.flag])


def spaced(a):
    """a / 4 with 1, 4, 9, .. added on the diagonal."""
    n = a.shape[-1]
    return a * 0.25 + torch.eye(a.shape[-2], n, dtype=a.dtype) * torch.arange(1, n + 1, dtype=a.dtype).square()


def mirrored(a):
    return a + a.transpose(-2, -1)


def positive(a):
    a = spaced(a)
    return a @ a.transpose(-2, -1)


def triangle(a, upper):
    return spaced(a).triu() if upper else spaced(a).tril()


def qr(a, p):
    q, r = torch.linalg.qr(spaced(a), p.text)
    return torch.cat([q, r.transpose(-2, -1)], -2)


def eigh(a, p):
    values, vectors = torch.linalg.eigh(mirrored(spaced(a)), p.text)
    return torch.cat([values.unsqueeze(-2), vectors.square()], -2)


def svd(a, p):
    u, s, v = torch.linalg.svd(spaced(a), p.flag != 0)
    return torch.cat([u.square(), s.unsqueeze(-2), v.square().transpose(-2, -1)], -2)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


def norm_of_sum(norm):
    def call(a, b, *rest):
        return norm(a + b, rest[0].shape, *rest[:-1], rest[-1].num)
    return call


scaler = torch.amp.GradScaler("cpu")

def numbered(pieces, dim):
    """The pieces times 1, 2, .., joined again, so that an exchanged piece is noticed."""
    return torch.cat([(i + 1) * t for i, t in enumerate(pieces)], dim)


CALLS = {
    "add_scalar": with_number(torch.add), "sub_scalar": with_number(torch.sub), "rsub_scalar": lambda x, p: p.num - x,
    "mul_scalar": with_number(torch.mul), "div_scalar": with_number(torch.div), "pow_scalar": with_number(torch.pow),
    "clamp": lambda x, p: torch.clamp(x, p.num, p.num2), "clamp_min": with_number(torch.clamp_min),
    "clamp_max": with_number(torch.clamp_max), "leaky_relu": with_number(F.leaky_relu), "elu": with_number(F.elu),
    "celu": with_number(F.celu), "hardtanh": lambda x, p: F.hardtanh(x, p.num, p.num2),
    "softplus": lambda x, p: F.softplus(x, p.num, p.num2),
    "gelu": lambda x, p: F.gelu(x, approximate="tanh" if p.flag else "none"),
    **{name + "_scalar": with_number(getattr(torch, name)) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "add_alpha": lambda a, b, p: torch.add(a, b, alpha=p.num), "lerp_scalar": lambda a, b, p: torch.lerp(a, b, p.num),
    "addcmul": lambda x, a, b, p: torch.addcmul(x, a, b, value=p.num),
    "addcdiv": lambda x, a, b, p: torch.addcdiv(x, a, b, value=p.num),
    "where": lambda a, b, c, p: torch.where(c, a, b), "masked_fill": lambda x, m, p: x.masked_fill(m, p.num),
    # losses
    "mse_loss": loss(F.mse_loss), "l1_loss": loss(F.l1_loss), "smooth_l1_loss": loss(F.smooth_l1_loss, beta="num"),
    "huber_loss": loss(F.huber_loss, delta="num"), "binary_cross_entropy": loss(F.binary_cross_entropy),
    "binary_cross_entropy_with_logits": loss(F.binary_cross_entropy_with_logits), "kl_div": loss(F.kl_div),
    "cross_entropy": lambda x, t, p: F.cross_entropy(x, t),
    "cross_entropy_ex": cross_entropy_ex,
    "nll_loss": lambda x, t, w, p: F.nll_loss(x, t, w, ignore_index=p.count, reduction=REDUCTIONS[p.flag]),
    # reductions
    "logsumexp": lambda x, p: torch.logsumexp(x, tuple(range(x.dim()))),
    "norm": lambda x, p: torch.linalg.vector_norm(x),
    **{name + "_dim": with_dim(getattr(torch, name)) for name in (
        "sum", "prod", "amax", "amin", "any", "all", "mean", "logsumexp", "max", "min")},
    **{name + "_dims": with_dims(getattr(torch, name)) for name in (
        "sum", "amax", "amin", "any", "all", "mean", "logsumexp")},
    **{name + "_dim": (lambda function: lambda x, p: function(x, p.dim, correction=p.count))(getattr(torch, name))
       for name in ("var", "std")},
    **{name + "_dims": (lambda function: lambda x, p: function(x, p.dims, correction=p.count, keepdim=p.flag != 0))(
        getattr(torch, name)) for name in ("var", "std")},
    "norm_dim": lambda x, p: torch.linalg.vector_norm(x, p.num, p.dim),
    "norm_dims": lambda x, p: torch.linalg.vector_norm(x, p.num, p.dims, p.flag != 0),
    "sum_to": lambda x, b, p: x * (b * b),
    # along a dim
    **{name: with_dim(getattr(torch, name)) for name in ("argmax", "argmin", "cumsum", "softmax", "log_softmax")},
    "glu": with_dim(F.glu), "sort": lambda x, p: torch.sort(x, p.dim, p.flag != 0),
    "topk": lambda x, p: torch.topk(x, p.count, p.dim, p.flag != 0),
    "unit_length": lambda x, p: F.normalize(x, p.num, p.dim, p.num2),
    "cosine_similarity": lambda a, b, p: F.cosine_similarity(a, b, p.dim, p.num),
    "cdist": lambda a, b, p: torch.cdist(a, b, p.num),
    # norms
    "normalize": lambda x, p: F.layer_norm(x, x.shape[-1:], None, None, p.num),
    "layer_norm": lambda x, w, b, p: F.layer_norm(x, w.shape, w, b, p.num),
    "rms_norm": lambda x, w, p: F.rms_norm(x, w.shape, w, p.num),
    "add_layer_norm": norm_of_sum(F.layer_norm), "add_rms_norm": norm_of_sum(F.rms_norm),
    "batch_norm": lambda x, w, b, p: F.batch_norm(x, None, None, w, b, True, 0.1, p.num),
    "batch_norm_by_running": lambda x, m, v, w, b, p: F.batch_norm(x, m, v, w, b, False, 0, p.num),
    "instance_norm": lambda x, w, b, p: F.instance_norm(x, None, None, w, b, True, 0.1, p.num),
    "group_norm": lambda x, w, b, p: F.group_norm(x, p.count, w, b, p.num),
    "channel_norm": lambda x, w, b, p: F.group_norm(x, p.count, w, b, p.num),
    # copies and views
    "to": lambda x, p: x.to(DTYPES.get(p.text, x.dtype), copy=True), "contiguous": lambda x, p: x.contiguous(),
    "copy_": lambda x, y, p: x.clone().copy_(y), "fill_": lambda x, p: x.clone().fill_(p.num),
    "zero_": lambda x, p: x.clone().zero_(), "as_strided": as_strided, "strided_add": strided_add,
    "scatter_view": scatter_view, "view": lambda x, p: x.contiguous().view(p.dims),
    "reshape": lambda x, p: x.reshape(p.dims),
    "flatten": lambda x, p: x.flatten(p.dim, p.dim2), "squeeze": lambda x, p: x.squeeze(p.dim),
    "unsqueeze": lambda x, p: x.unsqueeze(p.dim), "transpose": lambda x, p: x.transpose(p.dim, p.dim2),
    "movedim": lambda x, p: x.movedim(p.dim, p.dim2), "permute": lambda x, p: x.permute(p.dims),
    "expand": lambda x, p: x.expand(p.dims), "narrow": lambda x, p: x.narrow(p.dim, p.count, p.count2),
    "select": lambda x, p: x.select(p.dim, p.count), "slice": sliced,
    "diagonal": lambda x, p: x.diagonal(p.count, p.dim, p.dim2),
    "unfold": lambda x, p: x.unfold(p.dim, p.count, p.count2),
    "split": lambda x, p: x.split(p.count, p.dim)[0], "chunk": lambda x, p: x.chunk(p.count, p.dim)[0],
    "unbind": lambda x, p: x.unbind(p.dim)[0], "cat": lambda *x: torch.cat(x[:-1], x[-1].dim),
    "stack": lambda *x: torch.stack(x[:-1], x[-1].dim), "repeat": lambda x, p: x.repeat(p.dims),
    "roll": lambda x, p: torch.roll(x, p.dims, p.dims2),
    "repeat_interleave": lambda x, p: torch.repeat_interleave(x, p.count, p.dim),
    "meshgrid": lambda *x: torch.stack(torch.meshgrid(*x[:-1], indexing="ij"), 0),
    "flip": lambda x, p: torch.flip(x, p.dims),
    "tril": lambda x, p: torch.tril(x, p.count), "triu": lambda x, p: torch.triu(x, p.count),
    "pad": lambda x, p: F.pad(x, p.dims, value=p.num),
    # indexing
    "index_select": lambda x, i, p: torch.index_select(x, p.dim, i),
    "gather": lambda x, i, p: torch.gather(x, p.dim, i),
    "take_along_dim": lambda x, i, p: torch.take_along_dim(x, i, p.dim), "embedding": lambda w, i, p: F.embedding(i, w),
    "scatter": lambda x, i, src, p: torch.scatter(x, p.dim, i, src),
    "scatter_": lambda x, i, src, p: x.clone().scatter_(p.dim, i, src),
    "scatter_add": lambda x, i, src, p: torch.scatter_add(x, p.dim, i, src),
    "scatter_add_": lambda x, i, src, p: x.clone().scatter_add_(p.dim, i, src),
    "index_add": lambda x, i, src, p: torch.index_add(x, p.dim, i, src),
    "index_add_": lambda x, i, src, p: x.clone().index_add_(p.dim, i, src),
    "index": lambda x, *rest: x[index_of(rest[:-1], rest[-1].count)], "index_put": index_put,
    "index_put_": index_put_in_place, "one_hot": lambda i, p: F.one_hot(i, p.count),
    "bincount": lambda *x: torch.bincount(*x[:-1]),
    # products, convolutions, pools
    "linear_gelu": lambda x, w, b, p: F.gelu(F.linear(x, w, b)),
    "addmm": lambda c, a, b, p: torch.addmm(c, a, b, beta=p.num, alpha=p.num2),
    "einsum": lambda *x: torch.einsum(x[-1].text, *x[:-1]),
    "nn_bilinear": lambda a, b, w, bias, p: F.bilinear(a, b, w, bias),
    "scaled_dot_product_attention": lambda q, k, v, *rest: F.scaled_dot_product_attention(
        q, k, v, *rest[:-1], is_causal=rest[-1].flag != 0),
    **{"conv" + dims: convolution(getattr(F, "conv" + dims)) for dims in ("1d", "2d", "3d")},
    "conv": convolution(F.conv1d), "conv_transpose": transposed_convolution(F.conv_transpose1d),
    **{"conv_transpose" + dims: transposed_convolution(getattr(F, "conv_transpose" + dims))
       for dims in ("1d", "2d", "3d")},
    "conv_weight": lambda x, g, p: torch.nn.grad.conv1d_weight(x, p.dims, g, p.dim, p.dim2, 1, p.count2),
    "max_pool": pool(F.max_pool2d), "max_pool1d": pool(F.max_pool1d), "max_pool2d": pool(F.max_pool2d),
    "max_pool1d_ex": pool_ex(F.max_pool1d), "max_pool2d_ex": pool_ex(F.max_pool2d),
    "window_sum": pool(F.avg_pool2d, count_include_pad=True), "avg_pool1d": pool(F.avg_pool1d),
    "avg_pool2d": pool(F.avg_pool2d),
    "avg_pool1d_ex": lambda x, p: F.avg_pool1d(x, p.dims, p.dims2, p.count, True, p.flag != 0),
    "avg_pool2d_ex": lambda x, p: F.avg_pool2d(x, p.dims, p.dims2, p.count, True, p.flag != 0),
    "max_pool3d": pool(F.max_pool3d), "max_pool3d_ex": pool_ex(F.max_pool3d), "avg_pool3d": pool(F.avg_pool3d),
    "avg_pool3d_ex": lambda x, p: F.avg_pool3d(x, p.dims, p.dims2, p.count, True, p.flag != 0),
    **{name: (lambda function: lambda x, p: function(x, p.num, p.dims[0], p.dims2[0], p.flag != 0))(getattr(F, name))
       for name in ("lp_pool1d", "lp_pool2d")},
    "lp_pool3d": lambda x, p: F.lp_pool3d(x, p.num, p.dims * 3, p.dims2 * 3, p.flag != 0),
    **{name: (lambda function: lambda x, i, p: function(x, i, p.dims[0]))(getattr(F, name))
       for name in ("max_unpool1d", "max_unpool2d", "max_unpool3d")},
    "max_unpool": lambda x, i, p: F.max_unpool2d(x, i, p.dims[0]),
    "grid_sample": lambda x, grid, p: F.grid_sample(x, grid, p.text, ("zeros", "border", "reflection")[p.count],
                                                    p.flag != 0),
    "affine_grid": lambda theta, p: F.affine_grid(theta, p.dims, p.flag != 0),
    "adaptive_max_pool3d_ex": lambda x, p: F.adaptive_max_pool3d(x, p.dims),
    **{name: (lambda function: lambda x, p: function(x, p.dims))(getattr(F, name)) for name in (
        "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "adaptive_avg_pool1d",
        "adaptive_avg_pool2d", "adaptive_avg_pool3d")},
    "adaptive_max_pool1d_ex": lambda x, p: F.adaptive_max_pool1d(x, p.dims),
    "adaptive_max_pool2d_ex": lambda x, p: F.adaptive_max_pool2d(x, p.dims),
    "interpolate": lambda x, p: F.interpolate(x, p.dims, mode=p.text),
    # composites
    "div_rounded": lambda a, b, p: torch.div(a, b, rounding_mode=p.text), "logit": lambda x, p: torch.logit(x),
    "round_decimals": lambda x, p: torch.round(x, decimals=p.count),
    "nan_to_num": lambda x, p: torch.nan_to_num(x, p.num, p.num2, -5), "hardshrink": with_number(F.hardshrink),
    "softshrink": with_number(F.softshrink), "threshold": lambda x, p: F.threshold(x, p.num, p.num2),
    **{name: with_dims(getattr(torch, name)) for name in ("nansum", "nanmean")},
    "count_nonzero": lambda x, p: torch.count_nonzero(x, p.dims), "dist": lambda a, b, p: torch.dist(a, b, p.num),
    "pairwise_distance": lambda a, b, p: F.pairwise_distance(a, b, p.num),
    "argsort": lambda x, p: torch.argsort(x, dim=p.dim, stable=True), "median_dim": lambda x, p: torch.median(x, p.dim),
    **{name: (lambda function: lambda x, p: function(x, p.dim))(getattr(torch, name))
       for name in ("cumprod", "logcumsumexp", "cummax", "cummin")},
    "softmin": lambda x, p: F.softmin(x, p.dim), "kthvalue": lambda x, p: torch.kthvalue(x, p.count, p.dim),
    "local_response_norm": lambda x, p: F.local_response_norm(x, p.count, p.num, 0.75, 1.5),
    "soft_margin_loss": loss(F.soft_margin_loss), "hinge_embedding_loss": loss(F.hinge_embedding_loss, margin="num"),
    "margin_ranking_loss": lambda a, b, t, p: F.margin_ranking_loss(a, b, t, p.num, reduction=REDUCTIONS[p.flag]),
    "gaussian_nll_loss": lambda a, b, v, p: F.gaussian_nll_loss(a, b, v, reduction=REDUCTIONS[p.flag]),
    "poisson_nll_loss": loss(F.poisson_nll_loss),
    "cosine_embedding_loss": lambda a, b, t, p: F.cosine_embedding_loss(a, b, t, p.num, reduction=REDUCTIONS[p.flag]),
    "triplet_margin_loss": lambda a, b, c, p: F.triplet_margin_loss(a, b, c, p.num, reduction=REDUCTIONS[p.flag]),
    "ctc_loss": lambda x, t, p: F.ctc_loss(x.log_softmax(-1), t, p.dims, p.dims2, p.count, REDUCTIONS[p.flag]),
    "multi_margin_loss": lambda x, t, p: F.multi_margin_loss(x, t, p.count, p.num, reduction=REDUCTIONS[p.flag]),
    "multilabel_soft_margin_loss": loss(F.multilabel_soft_margin_loss),
    "triplet_margin_with_distance_loss": lambda a, b, c, p: F.triplet_margin_with_distance_loss(
        a, b, c, margin=p.num, reduction=REDUCTIONS[p.flag]),
    **{name: (lambda function: lambda x, p: function(x, p.num, p.flag != 0))(getattr(F, name))
       for name in ("dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")},
    "feature_dropout": lambda x, p: F.dropout2d(x, p.num, p.flag != 0),
    "rrelu": lambda x, p: F.rrelu(x, p.num, p.num2, p.flag != 0),
    "gumbel_softmax": lambda x, p: F.gumbel_softmax(x, p.num, p.flag != 0, dim=p.dim),
    "multilabel_margin_loss": loss(F.multilabel_margin_loss), "unflatten": lambda x, p: x.unflatten(p.dim, p.dims),
    "squeeze_dims": lambda x, p: x.squeeze(p.dims), "movedim_dims": lambda x, p: x.movedim(p.dims, p.dims2),
    **{name: (lambda function: lambda *x: function(x[:-1]))(getattr(torch, name))
       for name in ("hstack", "vstack", "dstack")},
    "split_sizes": lambda x, p: torch.cat([(i + 1) * t for i, t in enumerate(x.split(list(p.dims), p.dim))], p.dim),
    "meshgrid_xy": lambda *x: torch.stack(torch.meshgrid(*x[:-1], indexing="xy"), 0),
    "tile": lambda x, p: x.tile(p.dims), "rot90": lambda x, p: torch.rot90(x, p.count, p.dims),
    "diag": lambda x, p: torch.diag(x, p.count),
    **{name: (lambda function: lambda x, p: function(x, p.count))(getattr(F, name))
       for name in ("pixel_shuffle", "pixel_unshuffle", "channel_shuffle")},
    **{name: (lambda function: lambda c, a, b, p: function(c, a, b, beta=p.num, alpha=p.num2))(getattr(torch, name))
       for name in ("addmv", "baddbmm", "addbmm")},
    "tensordot": lambda a, b, p: torch.tensordot(a, b, (list(p.dims), list(p.dims2))),
    "cross": lambda a, b, p: torch.linalg.cross(a, b, dim=p.dim),
    "index_fill": lambda x, i, p: torch.index_fill(x, p.dim, i, p.num),
    "index_copy": lambda x, i, src, p: torch.index_copy(x, p.dim, i, src),
    "index_copy_": lambda x, i, src, p: x.clone().index_copy_(p.dim, i, src),
    "scaled_dot_product_attention_ex": lambda q, k, v, p: F.scaled_dot_product_attention(
        q, k, v, is_causal=q.shape[-2] > 1, enable_gqa=True),
    "rope": lambda x, cos, sin, p: rotated(x, cos, sin, p.flag != 0),
    **{name: (lambda function: lambda x, p: pairs(function(torch.view_as_complex(x))))(getattr(torch.fft, of))
       for name, of in [("fft", "fft")] + [("fft_" + of, of) for of in
                                           ("fft", "ifft", "irfft", "hfft", "fft2", "ifft2", "irfft2", "hfft2", "fftn", "ifftn",
                                            "irfftn", "hfftn")]},
    **{"fft_" + of: (lambda function: lambda x, p: pairs(function(x)))(getattr(torch.fft, of))
       for of in ("rfft", "ihfft", "rfft2", "ihfft2", "rfftn", "ihfftn", "fftshift", "ifftshift")},
    "stft": lambda x, w, p: pairs(torch.stft(x, p.count, p.count2, window=w, return_complex=True)),
    "istft": lambda x, w, p: torch.istft(torch.view_as_complex(x), p.count, p.count2, window=w, length=int(p.num)),
    **{name: (lambda function: lambda a, b, p: pairs(function(a, b)))(getattr(torch, name)) for name in ("complex", "polar")},
    **{name: (lambda function: lambda x, p: pairs(function(torch.view_as_complex(x))))(function)
       for name, function in (("real", torch.real), ("imag", torch.imag), ("complex_conj", torch.conj),
                              ("complex_abs", torch.abs), ("complex_angle", torch.angle))},
    "complex_mul": lambda a, b, p: pairs(torch.view_as_complex(a) * torch.view_as_complex(b)),
    "embedding_bag": lambda w, i, p: F.embedding_bag(i, w, mode=p.text),
    "pad_mode": lambda x, p: F.pad(x, p.dims, mode=p.text),
    "im2col": lambda x, p: F.unfold(x, 2, p.dims[0], p.dims2[0], p.count),
    "col2im": lambda x, p: F.fold(x, (3, 4), 2, p.dims[0], p.dims2[0], p.count),
    "interpolate_ex": lambda x, p: F.interpolate(x, p.dims, mode=p.text),
    "tensor_split": lambda x, p: numbered(torch.tensor_split(x, p.count, p.dim), p.dim),
    "tensor_split_at": lambda x, p: numbered(torch.tensor_split(x, list(p.dims), p.dim), p.dim),
    **{name: (lambda function, dim: lambda x, p: numbered(function(x, p.count), dim))(getattr(torch, name), dim)
       for name, dim in (("hsplit", 1), ("vsplit", 0), ("dsplit", 2))},
    **{name: (lambda function: lambda *x: function(x[:-1]))(getattr(torch, name)) for name in ("column_stack",)},
    "combinations": lambda x, p: torch.combinations(x, p.count, p.flag != 0),
    "diag_embed": lambda x, p: torch.diag_embed(x, p.count, *p.dims),
    "diagflat": lambda x, p: torch.diagflat(x, p.count),
    "diagonal_scatter": lambda x, s, p: torch.diagonal_scatter(x, s, p.count, p.dim, p.dim2),
    "select_scatter": lambda x, s, p: torch.select_scatter(x, s, p.dim, p.count),
    "slice_scatter": lambda x, s, p: torch.slice_scatter(x, s, p.dim, *p.dims),
    "vander": lambda x, p: torch.vander(x, p.count), "cov": lambda x, p: torch.cov(x, correction=p.count),
    "pdist": lambda x, p: F.pdist(x, p.num), "renorm": lambda x, p: torch.renorm(x, p.num, p.dim, p.num2),
    "diff": lambda x, p: torch.diff(x, p.count, p.dim), "put": lambda x, i, s, p: torch.put(x, i, s, p.flag != 0),
    **{name: (lambda function: lambda x, p: function(x, dx=p.num, dim=p.dim))(getattr(torch, name))
       for name in ("trapezoid", "cumulative_trapezoid")},
    "nanmedian_dim": lambda x, p: torch.nanmedian(x, p.dim), "mode": lambda x, p: torch.mode(x, p.dim),
    **{name: (lambda function: lambda x, q, p: function(x, q, p.dims[0], interpolation=p.text))(getattr(torch, name))
       for name in ("quantile", "nanquantile")},
    "searchsorted": lambda x, s, p: torch.searchsorted(s, x), "histogram": lambda x, e, w, p: torch.histogram(x, e, weight=w)[0],
    "histc": lambda x, p: torch.histc(x, p.count, p.num, p.num2),
    **{name: (lambda function: lambda x, p: function(x, dim=p.dim))(getattr(torch, name[:-4]))
       for name in ("unique_dim", "unique_consecutive_dim")},
    "repeat_interleave_tensor": lambda x, n, p: torch.repeat_interleave(x, n, p.dim),
    "scatter_reduce": lambda x, i, s, p: torch.scatter_reduce(x, p.dim, i, s, p.text, include_self=p.flag != 0),
    "index_reduce": lambda x, i, s, p: torch.index_reduce(x, p.dim, i, s, p.text, include_self=p.flag != 0),
    # linear algebra, of the same matrices as in samples.h
    **{"linalg_" + name: (lambda function: lambda a, p: function(spaced(a)))(getattr(torch.linalg, name))
       for name in ("inv", "det", "lu_factor", "pinv", "svdvals")},
    "linalg_slogdet": lambda a, p: torch.stack(torch.linalg.slogdet(spaced(a)), -1),
    "linalg_cholesky": lambda a, p: torch.linalg.cholesky(positive(a), upper=p.flag != 0),
    "cholesky_inverse": lambda a, p: torch.cholesky_inverse(triangle(a, p.flag), upper=p.flag != 0),
    "cholesky_solve": lambda a, b, p: torch.cholesky_solve(b, triangle(a, p.flag), upper=p.flag != 0),
    "linalg_qr": qr, "linalg_eigh": eigh, "linalg_svd": svd,
    "linalg_eigvalsh": lambda a, p: torch.linalg.eigvalsh(mirrored(spaced(a)), p.text),
    "linalg_solve": lambda a, b, p: torch.linalg.solve(spaced(a), b),
    "linalg_lu_solve": lambda a, b, p: torch.linalg.lu_solve(*torch.linalg.lu_factor(spaced(a)), b),
    "linalg_lstsq": lambda a, b, p: torch.linalg.lstsq(spaced(a), b).solution,
    "linalg_solve_triangular": lambda a, b, p: torch.linalg.solve_triangular(spaced(a), b, upper=False),
    "triangular_solve": lambda a, b, p: torch.triangular_solve(b, spaced(a), upper=False).solution,
    "linalg_householder_product": lambda a, b, p: torch.linalg.householder_product(a, b),
    "linalg_matrix_rank": lambda a, p: torch.linalg.matrix_rank(a, rtol=p.num),
    "linalg_matrix_norm": lambda a, p: torch.linalg.matrix_norm(spaced(a), p.text),
    "linalg_cond": lambda a, p: torch.linalg.cond(spaced(a), p.text),
    "linalg_matrix_power": lambda a, p: torch.linalg.matrix_power(spaced(a), p.count),
    "linalg_matrix_exp": lambda a, p: torch.linalg.matrix_exp(a * p.num),
    "linalg_multi_dot": lambda *x: torch.linalg.multi_dot(x[:-1]),
    # others
    "dropout": lambda x, p: F.dropout(x, p.num, p.flag != 0),
    "multinomial": lambda x, p: torch.multinomial(x, p.count, p.flag != 0),
    "checkpoint": lambda x, p: checkpoint(lambda t: (t * t).sum(0), x, use_reentrant=False),
    "custom": lambda x, p: Double.apply(x), "equal": lambda a, b, p: a if torch.equal(a, b) else None,
    "allclose": lambda a, b, p: a if torch.allclose(a, b, 1e-5, 1e-8) else None,
    "grad_scaler_scale": lambda x, p: scaler.scale(x),
}


def pairs(y):
    """A complex tensor as pairs, which the results of C are."""
    return torch.view_as_real(y.resolve_conj()) if y.is_complex() else y


def rotated(x, cos, sin, interleaved):
    """The pairs of x turned, as written by hand."""
    a, b = (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    parts = a * cos - b * sin, b * cos + a * sin
    return torch.stack(parts, -1).flatten(-2) if interleaved else torch.cat(parts, -1)


NONE = ("lstm_cell", "prod_dims")  # torch.prod takes no list of dims


def call_of(op):
    """The function of the inputs and the numbers.  Ops that are not in CALLS are called by their names."""
    if op in CALLS:
        return CALLS[op]
    for module in (torch, F):
        if op not in NONE and hasattr(module, op):
            function = getattr(module, op)
            return lambda *x: function(*x[:-1])
    raise LookupError("no counterpart")


# ---- a cell --------------------------------------------------------------------------------------------------------


class Numbers:
    """The numbers of a cell; the names are those of samples.h."""

    def __init__(self):
        self.num = self.num2 = self.dim = self.dim2 = self.flag = self.count = self.count2 = 0
        self.dims = self.dims2 = ()
        self.text = None

    def read(self, name, value):
        if name in ("dims", "dims2"):
            value = tuple(int(size) for size in value.split(","))
        elif name != "text":
            value = float(value)
            value = int(value) if value.is_integer() else value
        setattr(self, name, value)


@functools.lru_cache(maxsize=64)
def bits_of(count, seed):
    return torch.from_numpy(random_bits(count, seed).astype("int32"))


def numbers_of(shape, dtype, seed, classes, positive):
    bits = bits_of(functools.reduce(operator.mul, shape, 1), seed)
    if classes:
        return (bits % classes).reshape(shape).to(dtype)
    x = bits.to(torch.float32) * 2 ** -23 - 1
    if dtype == torch.bool:
        x = (x > 0).to(torch.float32)
    elif positive:
        x = 0.1 + 0.4 * (x + 1)
    if dtype in (torch.int64, torch.uint8):
        x = x * 100
    return (x.abs() if dtype == torch.uint8 else x).reshape(shape).to(dtype)


def arranged(shape, layout, dtype, seed, classes, positive):
    base = list(shape)
    if layout == "t":
        base[-2:] = shape[-1], shape[-2]
    elif layout and layout in "sg":
        base[-1] *= 2
    elif layout == "e":
        base[0] = 1
    x = numbers_of(base, dtype, seed, classes, positive)
    if layout == "t":
        return x.transpose(-2, -1)
    if layout == "s":
        return x.narrow(-1, 0, shape[-1])
    if layout == "g":
        return x[..., ::2]
    if layout == "o":
        return x.sort(-1).values
    return x.expand(shape) if layout == "e" else x


def shared_with(gradient, results):
    """Which results lie in the memory of the gradient or of an earlier result, or repeat elements: those of add and sum
    do.  They are copied, as backward() does for .grad: ours are memory of the caller's own."""
    seen, shared = {gradient.untyped_storage().data_ptr()}, []
    for i, t in enumerate(results):
        if t.untyped_storage().data_ptr() in seen or any(n > 1 and s == 0 for n, s in zip(t.shape, t.stride())):
            shared.append(i)
        seen.add(t.untyped_storage().data_ptr())
    return shared


class Cell:
    def __init__(self, text):
        op, dtype, inputs, *words = text.split(" ")
        self.call, self.inputs, self.leaves = call_of(op), [], []
        self.backward, positive, self.numbers = "backward" in words, "positive" in words, Numbers()
        for word in words:
            if "=" in word:
                self.numbers.read(*word.split("=", 1))
        for i, part in enumerate(inputs.split(",")):
            self.add_input(i, DTYPES[dtype], positive, *part.split(":"))
        self.calls = None
        if self.backward:
            y = self.output()
            self.gradient = numbers_of(list(y.shape), y.dtype, 99, 0, positive)

    def add_input(self, i, dtype, positive, sizes, *kinds):
        shape = [] if sizes == "0d" else [int(size) for size in sizes.split("x")]
        layout, constant, classes, seed = "", False, 0, i + 1
        for kind in kinds:
            if kind[0] == "i":
                dtype, classes = torch.int64, int(kind[1:])
            elif kind == "m":
                dtype = torch.bool
            elif kind == "c":
                constant = True
            elif kind == "a":
                seed = 1
            else:
                layout = kind
        x = arranged(shape, layout, dtype, seed, classes, positive)
        if self.backward and not constant and x.is_floating_point():
            self.leaves.append(x.requires_grad_())
        self.inputs.append(x)

    def output(self):
        y = self.call(*self.inputs, self.numbers)
        return y[0] if isinstance(y, tuple) else y

    def turn(self):
        """The work that is measured: a function without arguments."""
        call = functools.partial(self.call, *self.inputs, self.numbers)
        if not self.backward:
            return call
        leaves, gradient, gradients = self.leaves, self.gradient, torch.autograd.grad
        shared = shared_with(gradient, gradients(self.output(), leaves, gradient))

        def both():
            y = call()
            results = gradients(y[0] if isinstance(y, tuple) else y, leaves, gradient)
            return [results[i].clone(memory_format=torch.contiguous_format) for i in shared] if shared else results
        return both

    def about(self):
        """What sweep.c says about the results."""
        about = [0.0] * 4
        for t in torch.autograd.grad(self.output(), self.leaves, self.gradient) if self.backward else [self.output()]:
            t = t.detach().to(torch.float64).reshape(-1)
            weights = (torch.arange(t.numel()) % 7).to(torch.float64)
            for i, value in enumerate((t.numel(), t.sum(), (t * weights).sum(), t.abs().sum())):
                about[i] += float(value)
        return "%.17g %.17g %.17g %.17g" % tuple(about)

    def seconds_of(self, calls, turn):
        begun = NOW()
        for _ in range(calls):
            turn()
        return (NOW() - begun) / calls

    def measure(self, seconds):
        turn = self.turn()
        if self.calls is None:
            self.seconds_of(1, turn)
            self.calls = max(1, int(seconds / 4 / self.seconds_of(1, turn)))
        begun = NOW()
        least = self.seconds_of(self.calls, turn)
        while NOW() - begun < seconds:
            least = min(least, self.seconds_of(self.calls, turn))
        return least


def main():
    out, cell = sys.stdout, None
    sys.stdout = sys.stderr
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        try:
            if word == "version":
                text = "PyTorch %s, %s" % (torch.__version__, torch.backends.cpu.get_cpu_capability())
            elif word == "cell":
                cell = None
                cell = Cell(rest)
                text = cell.about()
            else:
                text = "%.9g" % cell.measure(float(rest) / 1000)
        except Exception as error:  # the driver goes on without this cell
            text = "error: " + " ".join(str(error).split())[:200]
        print(text, file=out, flush=True)


main()
