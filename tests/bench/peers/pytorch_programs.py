"""The programs of tests/bench/programs.c in PyTorch, in the same order.  A class is a program: its network, made from
the sizes of the workload; given, the shapes of its inputs, with the number of classes where they are labels; and its
losses.  The parameters are registered in the order in which programs.c makes them."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import labels, numbers, weight


def conv(inputs, out, kernel=3, stride=1, dilation=1, groups=1, bias=True):
    return nn.Conv2d(inputs, out, kernel, stride, dilation * (kernel - 1) // 2, dilation, groups, bias)


def conv_norm(inputs, out, kernel=3, stride=1, dilation=1, groups=1):
    return nn.Sequential(conv(inputs, out, kernel, stride, dilation, groups, False), nn.BatchNorm2d(out))


def conv_norm_relu(*sizes):
    return nn.Sequential(conv_norm(*sizes), nn.ReLU())


def up(inputs, out, kernel):
    return nn.ConvTranspose2d(inputs, out, kernel, 2, kernel // 2 - 1)


class Parameter(nn.Module):
    def __init__(self, *shape):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(shape))


class Program(nn.Module):
    """trained: the methods that give the losses, each with the part of the network whose parameters it trains."""

    def __init__(self):
        super().__init__()
        self.trained = [("forward", self)]

    def of_images(self, B, side, *more):
        self.given = [[B, 3, side, side], *more]


# ---- vision --------------------------------------------------------------------------------------------------------


class Residual(nn.Module):
    def __init__(self, inputs, out, stride):
        super().__init__()
        self.body = nn.Sequential(conv_norm_relu(inputs, out, 3, stride), conv_norm(out, out))
        self.shortcut = conv_norm(inputs, out, 1, stride) if stride > 1 or inputs != out else nn.Identity()

    def forward(self, x):
        return F.relu(self.body(x) + self.shortcut(x))


class ResNet18(Program):
    def __init__(self, B, side):
        super().__init__()
        self.of_images(B, side, ([B], 10))
        widths = [64] + [64 << i // 2 for i in range(8)]
        self.stem = conv_norm_relu(3, 64)
        self.blocks = nn.Sequential(*[Residual(widths[i], widths[i + 1], 2 if i in (2, 4, 6) else 1) for i in range(8)])
        self.head = nn.Linear(512, 10)

    def forward(self, x, target):
        return F.cross_entropy(self.head(self.blocks(self.stem(x)).mean((2, 3))), target)


class InvertedResidual(nn.Module):
    def __init__(self, inputs, out, kernel, stride):
        super().__init__()
        wide = 4 * inputs
        self.widen = nn.Sequential(conv_norm(inputs, wide, 1), nn.Hardswish(),
                                   conv_norm(wide, wide, kernel, stride, 1, wide), nn.Hardswish())
        self.scale = nn.Sequential(conv(wide, wide // 4, 1), nn.ReLU(), conv(wide // 4, wide, 1), nn.Hardsigmoid())
        self.narrow = conv_norm(wide, out, 1)
        self.same = stride == 1 and inputs == out

    def forward(self, x):
        y = self.widen(x)
        y = self.narrow(y * self.scale(y.mean((2, 3), keepdim=True)))
        return x + y if self.same else y


class MobileNet(Program):
    def __init__(self, B, side):
        super().__init__()
        self.of_images(B, side, ([B], 100))
        blocks = ((24, 3, 2), (24, 3, 1), (40, 5, 2), (40, 5, 1), (80, 3, 2), (80, 3, 1), (96, 5, 1))
        widths = [16] + [block[0] for block in blocks]
        self.body = nn.Sequential(conv_norm(3, 16, 3, 2), nn.Hardswish(),
                                  *[InvertedResidual(width, *block) for width, block in zip(widths, blocks)],
                                  conv_norm(96, 384, 1), nn.Hardswish())
        self.head = nn.Linear(384, 100)

    def forward(self, x, target):
        return F.cross_entropy(self.head(self.body(x).mean((2, 3))), target, label_smoothing=0.1)


class Attention(nn.Module):
    def __init__(self, width, heads, causal=False):
        super().__init__()
        self.query_key_value, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.causal = heads, causal

    def forward(self, x):
        B, T, C = x.shape
        qkv = self.query_key_value(x).view(B, T, 3, self.heads, C // self.heads)
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(B, T, C))


class TransformerBlock(nn.Module):
    def __init__(self, width, heads, causal=False):
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(width), Attention(width, heads, causal))
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(),
                                 nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(x)
        return x + self.mlp(x)


class ViT(Program):
    def __init__(self, B, side):
        super().__init__()
        self.of_images(B, side, ([B], 10))
        self.embed, self.positions = nn.Linear(48, 192), Parameter(1, (side // 4) ** 2, 192)
        self.blocks = nn.Sequential(*[TransformerBlock(192, 3) for _ in range(4)], nn.LayerNorm(192))
        self.head = nn.Linear(192, 10)

    def forward(self, x, target):
        B, patches = x.shape[0], x.shape[2] // 4
        x = x.reshape(B, 3, patches, 4, patches, 4).permute(0, 2, 4, 1, 3, 5).reshape(B, patches * patches, 48)
        x = self.blocks(self.embed(x) + self.positions.weight)
        return F.cross_entropy(self.head(x.mean(1)), target)


def two_convs(inputs, out):
    return nn.Sequential(conv_norm_relu(inputs, out), conv_norm_relu(out, out))


class UNet(Program):
    def __init__(self, B, side):
        super().__init__()
        self.of_images(B, side, ([B, 1, side, side], 2))
        self.down = nn.ModuleList([two_convs(a, b) for a, b in ((3, 16), (16, 32), (32, 64), (64, 128))])
        self.up = nn.ModuleList([nn.ModuleList([up(2 * a, a, 2), two_convs(2 * a, a)]) for a in (64, 32, 16)])
        self.out = conv(16, 1, 1)

    def forward(self, x, mask):
        skips = []
        for block in self.down[:3]:
            skips.append(block(x))
            x = F.max_pool2d(skips[-1], 2)
        x = self.down[3](x)
        for wider, block in self.up:
            x = block(torch.cat([wider(x), skips.pop()], 1))
        x, mask = self.out(x), mask.float()
        p = torch.sigmoid(x)
        overlap = ((p * mask).sum() * 2 + 1) / (p.sum() + mask.sum() + 1)
        return F.binary_cross_entropy_with_logits(x, mask) - (overlap - 1)


class TimeBlock(nn.Module):
    def __init__(self, inputs, out):
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(8, inputs), nn.SiLU(), conv(inputs, out))
        self.time = nn.Sequential(nn.SiLU(), nn.Linear(64, out))
        self.second = nn.Sequential(nn.GroupNorm(8, out), nn.SiLU(), conv(out, out))
        self.shortcut = conv(inputs, out, 1) if inputs != out else nn.Identity()

    def forward(self, x, time):
        return self.second(self.first(x) + self.time(time)[:, :, None, None]) + self.shortcut(x)


class DDPM(Program):
    def __init__(self, B, side):
        super().__init__()
        self.of_images(B, side, [B, 3, side, side], [B, 64])
        self.stem = conv(3, 32)
        self.time = nn.Sequential(nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 64))
        self.first, self.shrink, self.low = TimeBlock(32, 32), conv(32, 64, 3, 2), TimeBlock(64, 64)
        self.norm, self.attention, self.middle = nn.GroupNorm(8, 64), Attention(64, 4), TimeBlock(64, 64)
        self.grow, self.last = conv(64, 32), TimeBlock(64, 32)
        self.out = nn.Sequential(nn.GroupNorm(8, 32), nn.SiLU(), conv(32, 3))

    def forward(self, x, noise, time):
        x, time = self.stem(0.8 * x + 0.6 * noise), self.time(time)
        skip = x = self.first(x, time)
        x = self.low(self.shrink(x), time)
        y = self.attention(self.norm(x).flatten(2).transpose(1, 2))
        x = self.middle(x + y.transpose(1, 2).reshape(x.shape), time)
        x = self.grow(F.interpolate(x, scale_factor=2, mode="nearest"))
        return F.mse_loss(self.out(self.last(torch.cat([x, skip], 1), time)), noise)


class VAE(Program):
    def __init__(self, B, side):
        super().__init__()
        self.of_images(B, side, [B, 64])
        low = side // 4
        self.encoder = nn.Sequential(conv(3, 32, 3, 2), nn.ReLU(), conv(32, 64, 3, 2), nn.ReLU(), nn.Flatten())
        self.mean, self.log_variance = nn.Linear(64 * low * low, 64), nn.Linear(64 * low * low, 64)
        self.decoder = nn.Sequential(nn.Linear(64, 64 * low * low), nn.ReLU(), nn.Unflatten(1, (64, low, low)),
                                     up(64, 32, 4), nn.ReLU(), up(32, 3, 4))

    def forward(self, x, noise):
        y = self.encoder(x)
        mean, log_variance = self.mean(y), self.log_variance(y)
        y = self.decoder(mean + torch.exp(0.5 * log_variance) * noise)
        return F.mse_loss(y, x) + 0.005 * (mean ** 2 + log_variance.exp() - (log_variance + 1)).mean()


class DCGAN(Program):
    def __init__(self, B, side, norm=True):
        super().__init__()
        self.given = [[B, 64], [B, 3, side, side]]
        low = side // 4
        self.critic = nn.Sequential(conv(3, 64, 3, 2), nn.LeakyReLU(0.2), conv(64, 128, 3, 2),
                                    nn.BatchNorm2d(128) if norm else nn.Identity(), nn.LeakyReLU(0.2), nn.Flatten(),
                                    nn.Linear(128 * low * low, 1))
        self.generator = nn.Sequential(nn.Linear(64, 128 * low * low), nn.Unflatten(1, (128, low, low)),
                                       nn.BatchNorm2d(128), nn.ReLU(), up(128, 64, 4), nn.BatchNorm2d(64), nn.ReLU(),
                                       up(64, 3, 4), nn.Tanh())
        self.trained = [("critic_loss", self.critic), ("generator_loss", self.generator)]

    def judged(self, x, real):
        x = self.critic(x)
        return F.binary_cross_entropy_with_logits(x, torch.full_like(x, real))

    def fakes(self, noise):
        with torch.no_grad():
            return self.generator(noise)

    def critic_loss(self, noise, real):
        fake = self.fakes(noise)
        return self.judged(real, 1.0) + self.judged(fake, 0.0)

    def generator_loss(self, noise, real):
        return self.judged(self.generator(noise), 1.0)


class WGANGP(DCGAN):
    def __init__(self, B, side):
        super().__init__(B, side, False)
        self.given.append([B, 1, 1, 1])

    def critic_loss(self, noise, real, part):
        fake = self.fakes(noise)
        mixed = torch.lerp(fake, real, part.abs()).requires_grad_()
        gradient, = torch.autograd.grad(self.critic(mixed).sum(), mixed, create_graph=True)
        length = gradient.flatten(1).norm(2, 1)
        return self.critic(fake).mean() - self.critic(real).mean() + 10 * ((length - 1) ** 2).mean()

    def generator_loss(self, noise, real, part):
        return -self.critic(self.generator(noise)).mean()


def small_resnet():
    return nn.Sequential(conv_norm_relu(3, 32), Residual(32, 32, 1), Residual(32, 64, 2), Residual(64, 128, 2))


class SimCLR(Program):
    def __init__(self, B, side):
        super().__init__()
        self.of_images(B, side)
        self.body = small_resnet()
        self.head = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 64))

    def forward(self, x):
        B = x.shape[0]
        z = F.normalize(self.head(self.body(torch.cat([x, x.flip(3)])).mean((2, 3))))
        scores = (z @ z.t() / 0.5).masked_fill(torch.eye(2 * B, dtype=torch.bool), -1e9)
        first = torch.arange(B)
        return F.cross_entropy(scores, torch.cat([first + B, first]))


class DeepLab(Program):
    def __init__(self, B, side):
        super().__init__()
        self.of_images(B, side, ([B, side, side], 21))
        self.body = nn.Sequential(conv_norm_relu(3, 32, 3, 2), conv_norm_relu(32, 64, 3, 2),
                                  conv_norm_relu(64, 64, 3, 1, 2))
        self.branches = nn.ModuleList([conv_norm_relu(64, 32, 1)] +
                                      [conv_norm_relu(64, 32, 3, 1, 1 << i) for i in range(1, 4)])
        self.whole = nn.Sequential(conv(64, 32, 1), nn.ReLU())
        self.head = nn.Sequential(conv_norm_relu(160, 64, 1), conv(64, 21, 1))

    def forward(self, x, target):
        y = self.body(x)
        branches = [branch(y) for branch in self.branches]
        branches.append(self.whole(y.mean((2, 3), keepdim=True)).expand_as(branches[0]))
        y = F.interpolate(self.head(torch.cat(branches, 1)), x.shape[2:], mode="bilinear")
        return F.cross_entropy(y, target, ignore_index=0)


def vgg_layers():
    return nn.ModuleList([nn.Sequential(conv(a, b), nn.ReLU(), conv(b, b), nn.ReLU())
                          for a, b in ((3, 32), (32, 64), (64, 128))])


class Style(Program):
    def __init__(self, B, side):
        super().__init__()
        self.of_images(B, side)
        self.layers, self.image = vgg_layers().requires_grad_(False), Parameter(B, 3, side, side)
        self.trained = [("forward", self.image)]

    def style(self, x):
        grams = []
        for layer in self.layers:
            x = layer(x)
            flat = x.flatten(2)
            grams.append(flat @ flat.transpose(1, 2) / flat.shape[2])
            x = F.max_pool2d(x, 2)
        return grams

    def forward(self, painting):
        return sum(F.mse_loss(found, wanted, reduction="sum")
                   for wanted, found in zip(self.style(painting), self.style(100 * self.image.weight)))


class Transfer(Program):
    def __init__(self, B, side):
        super().__init__()
        self.of_images(B, side, ([B], 10))
        self.body = small_resnet().requires_grad_(False).eval()
        self.head = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10))
        self.trained = [("forward", self.head)]

    def forward(self, x, target):
        return F.cross_entropy(self.head(self.body(x).mean((2, 3))), target)


class VGG(Program):
    def __init__(self, B, side):
        super().__init__()
        self.of_images(B, side, ([B], 10))
        self.layers = vgg_layers()
        self.head = nn.Sequential(nn.Linear(128 * (side // 8) ** 2, 256), nn.ReLU(), nn.Linear(256, 10))

    def forward(self, x, target):
        for layer in self.layers:
            x = F.max_pool2d(layer(x), 2)
        return F.cross_entropy(self.head(x.flatten(1)), target)


class Siamese(Program):
    def __init__(self, B, side):
        super().__init__()
        self.given = [[B, 3, side, side]] * 3
        self.body = nn.Sequential(*[layer for a, b in ((3, 32), (32, 64), (64, 128))
                                    for layer in (conv(a, b), nn.ReLU(), nn.MaxPool2d(2))], nn.Flatten())
        self.head = nn.Linear(128 * (side // 8) ** 2, 64)

    def forward(self, *views):
        anchor, same, other = (self.head(self.body(x)) for x in views)
        return F.relu((anchor - same).norm(2, 1) - (anchor - other).norm(2, 1) + 1).mean()


class DenseNet(Program):
    def __init__(self, B, side):
        super().__init__()
        self.of_images(B, side, ([B], 10))
        self.stem, self.layers, width = conv(3, 32), nn.ModuleList(), 32
        for i in range(15):
            out, kernel = (width // 2, 1) if i % 5 == 4 else (16, 3)
            self.layers.append(nn.Sequential(nn.BatchNorm2d(width), nn.ReLU(), conv(width, out, kernel, bias=False)))
            width = out if i % 5 == 4 else width + 16
        self.head = nn.Linear(width, 10)

    def forward(self, x, target):
        x = self.stem(x)
        for i, layer in enumerate(self.layers):
            x = F.avg_pool2d(layer(x), 2) if i % 5 == 4 else torch.cat([x, layer(x)], 1)
        return F.cross_entropy(self.head(x.mean((2, 3))), target)


class SuperResolution(Program):
    def __init__(self, B, side):
        super().__init__()
        self.of_images(B, side, [B, 3, 2 * side, 2 * side])
        self.body = nn.Sequential(conv(3, 64, 5), nn.Tanh(), conv(64, 32), nn.Tanh(), conv(32, 12), nn.PixelShuffle(2))

    def forward(self, x, target):
        return F.l1_loss(self.body(x), target)


# ---- sequences -----------------------------------------------------------------------------------------------------


class Tokens(Program):
    """Reads tokens, and predicts others of the same vocabulary."""

    def of_tokens(self, B, T, V, width, *more):
        self.given = [([B, T], V), *more, ([B * T], V)]
        self.embed = nn.Embedding(V, width)

    @staticmethod
    def loss(logits, target):
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), target)


class LSTMLM(Tokens):
    def __init__(self, B, T):
        super().__init__()
        self.of_tokens(B, T, 1000, 128)
        self.lstm, self.head = nn.LSTM(128, 128, 2, batch_first=True), nn.Linear(128, 1000)

    def forward(self, ids, target):
        return self.loss(self.head(self.lstm(self.embed(ids))[0]), target)


class Seq2Seq(Tokens):
    def __init__(self, B, T):
        super().__init__()
        self.of_tokens(B, T, 500, 128, ([B, T], 500))
        self.read, self.embed_output = nn.GRU(128, 128, batch_first=True), nn.Embedding(500, 128)
        self.write, self.head = nn.GRUCell(128, 128), nn.Linear(256, 500)

    def forward(self, ids, output, target):
        x, _ = self.read(self.embed(ids))
        y, h, written = self.embed_output(output), x[:, -1], []
        for t in range(y.shape[1]):
            h = self.write(y[:, t], h)
            part = torch.softmax(torch.bmm(x, h[:, :, None]), 1)
            written.append(torch.cat([h, torch.bmm(part.transpose(1, 2), x).squeeze(1)], 1))
        return self.loss(self.head(torch.stack(written, 1)), target)


class BERT(Tokens):
    def __init__(self, B, T):
        super().__init__()
        self.of_tokens(B, T, 1000, 128, ([B, T], 4))
        self.positions = Parameter(1, T, 128)
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(128, 4, 512, 0, "gelu", batch_first=True)
                                     for _ in range(2)])
        self.head = nn.Linear(128, 1000)

    def forward(self, ids, kinds, target):
        x = self.embed(ids) + self.positions.weight
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=kinds == 0)
        return self.loss(self.head(x), target)


class LlamaBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.q = nn.RMSNorm(width, 1e-6), nn.Linear(width, width)
        self.k, self.v = nn.Linear(width, width // 4), nn.Linear(width, width // 4)
        self.out, self.mlp_norm = nn.Linear(width, width), nn.RMSNorm(width, 1e-6)
        self.gate, self.up, self.down = nn.Linear(width, 768), nn.Linear(width, 768), nn.Linear(768, width)

    def forward(self, x, angles):
        def turned(heads):
            a, b = heads.chunk(2, 3)
            c, s = angles.cos(), angles.sin()
            return torch.cat([a * c - b * s, b * c + a * s], 3)

        B, T, C = x.shape
        y = self.norm(x)
        q, k, v = (layer(y).view(B, T, -1, 32).transpose(1, 2) for layer in (self.q, self.k, self.v))
        k, v = turned(k).repeat_interleave(4, 1), v.repeat_interleave(4, 1)
        y = F.scaled_dot_product_attention(turned(q), k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, C))
        y = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(Tokens):
    def __init__(self, B, T):
        super().__init__()
        self.of_tokens(B, T, 1000, 256)
        self.blocks = nn.ModuleList([LlamaBlock(256) for _ in range(2)])
        self.head = nn.Sequential(nn.RMSNorm(256, 1e-6), nn.Linear(256, 1000))

    def forward(self, ids, target):
        x = self.embed(ids)
        angles = torch.outer(torch.arange(ids.shape[1]), torch.exp(torch.arange(16) * (-math.log(10000) / 16)))
        for block in self.blocks:
            x = block(x, angles)
        return self.loss(self.head(x), target)


class TCN(Program):
    def __init__(self, B, T):
        super().__init__()
        self.given = [[B, 16, T], ([B], 10)]
        self.layers = nn.ModuleList([nn.Conv1d(64 if i else 16, 64, 3, dilation=1 << i // 2) for i in range(8)])
        self.head = nn.Linear(64, 10)

    def forward(self, x, target):
        for i, layer in enumerate(self.layers):
            y = F.relu(layer(F.pad(x, (2 * layer.dilation[0], 0))))
            x = x + y if i else y
        return F.cross_entropy(self.head(x.mean(2)), target)


class Mamba(Program):
    def __init__(self, B, T):
        super().__init__()
        self.given = [[B, T, 64], [B, T, 64]]
        self.step, self.input, self.output = nn.Linear(64, 64), nn.Linear(64, 16), nn.Linear(64, 16)
        self.rates, self.head = Parameter(64, 16), nn.Linear(64, 64)

    def forward(self, x, target):
        step, out = F.softplus(self.step(x)), self.output(x)
        keep = torch.exp(step[..., None] * -torch.exp(self.rates.weight))
        add = (step * x)[..., None] * self.input(x)[:, :, None, :]
        h, y = torch.zeros(x.shape[0], 64, 16), []
        for t in range(x.shape[1]):
            h = keep[:, t] * h + add[:, t]
            y.append((h * out[:, t, None, :]).sum(2))
        return F.mse_loss(self.head(torch.stack(y, 1)), target)


# ---- graphs, tables, games and equations ---------------------------------------------------------------------------


def arrived(along, target, nodes):
    return torch.zeros(nodes, *along.shape[1:]).index_add(0, target, along)


class GCN(Program):
    def __init__(self, N, E):
        super().__init__()
        self.given = [[N, 64], ([E], N), ([E], N), [E, 1], ([N], 10)]
        self.layers, self.head = nn.ModuleList([nn.Linear(64, 64) for _ in range(2)]), nn.Linear(64, 10)

    def forward(self, x, source, target, edges, classes):
        for layer in self.layers:
            x = F.relu(arrived(layer(x).index_select(0, source) * edges, target, x.shape[0]))
        return F.cross_entropy(self.head(x), classes)


class GAT(Program):
    def __init__(self, N, E):
        super().__init__()
        self.given = [[N, 64], ([E], N), ([E], N), ([N], 10)]
        self.layers = nn.ModuleList([nn.ModuleList([nn.Linear(64, 64), Parameter(1, 4, 16), Parameter(1, 4, 16)])
                                     for _ in range(2)])
        self.head = nn.Linear(64, 10)

    def forward(self, x, source, target, classes):
        N = x.shape[0]
        for layer, start, end in self.layers:
            x = layer(x).view(N, 4, 16)
            part = (x * start.weight).sum(2).index_select(0, source) + (x * end.weight).sum(2).index_select(0, target)
            part = torch.exp(F.leaky_relu(part, 0.2))
            part = part / arrived(part, target, N).index_select(0, target)
            x = F.elu(arrived(x.index_select(0, source) * part[:, :, None], target, N).flatten(1))
        return F.cross_entropy(self.head(x), classes)


class KMeans(Program):
    def __init__(self, points, dims):
        super().__init__()
        self.given = [[points, dims], [64, dims]]
        self.trained = [("forward", None)]

    @torch.no_grad()
    def forward(self, points, centres):
        distance, nearest = torch.cdist(points, centres).min(1)
        sums = torch.zeros_like(centres).index_add(0, nearest, points)
        centres.copy_(sums / torch.bincount(nearest, minlength=64).clamp_min(1)[:, None])
        return distance.mean()


class Word2Vec(Program):
    def __init__(self, B, V):
        super().__init__()
        self.given = [([B], V), ([B, 6], V)]
        self.word, self.others = nn.Embedding(V, 100), nn.Embedding(V, 100)

    def forward(self, word, others):
        scores = torch.bmm(self.others(others), self.word(word)[:, :, None]).squeeze(2)
        return -(F.logsigmoid(scores[:, :1]).mean() + F.logsigmoid(-scores[:, 1:]).sum(1).mean())


class Factorisation(Program):
    def __init__(self, B, count):
        super().__init__()
        self.given = [([B], count), ([B], count), [B, 1]]
        self.user, self.thing = nn.Embedding(count, 32), nn.Embedding(count, 32)
        self.user_bias, self.thing_bias = nn.Embedding(count, 1), nn.Embedding(count, 1)

    def forward(self, user, thing, rating):
        found = (self.user(user) * self.thing(thing)).sum(1, keepdim=True)
        return F.mse_loss(found + self.user_bias(user) + self.thing_bias(thing), rating)


def mlp(inputs, width, hidden, out, activation):
    widths = [inputs] + [width] * hidden
    layers = [layer for a, b in zip(widths, widths[1:]) for layer in (nn.Linear(a, b), activation())]
    return nn.Sequential(*layers, nn.Linear(widths[-1], out))


class DQN(Program):
    def __init__(self, B, inputs):
        super().__init__()
        self.given = [[B, inputs], ([B, 1], 4), [B, 1], [B, inputs]]
        self.net, self.next = mlp(inputs, 128, 2, 4, nn.ReLU), mlp(inputs, 128, 2, 4, nn.ReLU).requires_grad_(False)
        self.trained = [("forward", self.net)]

    def forward(self, x, action, reward, after):
        return F.smooth_l1_loss(self.net(x).gather(1, action), reward + 0.99 * self.next(after).max(1, keepdim=True)[0])


class PPO(Program):
    def __init__(self, B, inputs):
        super().__init__()
        self.given = [[B, inputs], ([B, 1], 4), [B, 1], [B, 1], [B, 1]]
        self.policy, self.value = mlp(inputs, 64, 2, 4, nn.Tanh), mlp(inputs, 64, 2, 1, nn.Tanh)

    def forward(self, x, action, before, advantage, returns):
        log_p = torch.log_softmax(self.policy(x), 1)
        value = F.mse_loss(self.value(x), returns)
        ratio = torch.exp(log_p.gather(1, action) - before)
        gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        return 0.5 * value - gain.mean() + 0.01 * (log_p.exp() * log_p).sum(1).mean()


class Tabular(Program):
    def __init__(self, B, columns):
        super().__init__()
        self.given = [([B], 100)] * 8 + [[B, columns], ([B, 1], 2)]
        self.embed, self.norm = nn.ModuleList([nn.Embedding(100, 8) for _ in range(8)]), nn.BatchNorm1d(columns)
        self.body = nn.Sequential(*[layer for i in range(3) for layer in (
            nn.Linear(256 if i else 64 + columns, 256), nn.ReLU(), nn.BatchNorm1d(256))], nn.Linear(256, 1))

    def forward(self, *given):
        x = torch.cat([embed(ids) for embed, ids in zip(self.embed, given)] + [self.norm(given[8])], 1)
        return F.binary_cross_entropy_with_logits(self.body(x), given[9].float())


class Flow(Program):
    def __init__(self, B, dims):
        super().__init__()
        self.given = [[B, dims]]
        self.layers = nn.ModuleList([mlp(dims // 2, 64, 2, dims, nn.ReLU) for _ in range(6)])

    def forward(self, x):
        volume = 0
        for layer in self.layers:
            a, b = x.chunk(2, 1)
            scale, shift = layer(a).chunk(2, 1)
            scale = torch.tanh(scale)
            x = torch.cat([b * torch.exp(scale) + shift, a], 1)
            volume = volume + scale.sum(1)
        return (0.5 * (x ** 2).sum(1) - volume).mean()


class DiffusionMLP(Program):
    def __init__(self, B, dims):
        super().__init__()
        self.given = [[B, dims], [B, dims], [B, 1]]
        self.embed = nn.Linear(dims + 32, 256)
        self.layers = nn.ModuleList([nn.Sequential(nn.LayerNorm(256), nn.SiLU(), nn.Linear(256, 256))
                                     for _ in range(3)])
        self.head = nn.Linear(256, dims)

    def forward(self, x, noise, time):
        angles = time * torch.exp(torch.arange(16) * 0.25)
        x = self.embed(torch.cat([0.8 * x + 0.6 * noise, angles.sin(), angles.cos()], 1))
        for layer in self.layers:
            x = x + layer(x)
        return F.mse_loss(self.head(x), noise)


class Autoencoder(Program):
    def __init__(self, B, inputs):
        super().__init__()
        self.given = [[B, inputs]]
        self.body = nn.Sequential(mlp(inputs, 256, 1, 32, nn.ReLU), nn.ReLU(), mlp(32, 256, 1, inputs, nn.ReLU))

    def forward(self, x):
        return F.mse_loss(self.body(x), x)


class MAML(Program):
    def __init__(self, B, width):
        super().__init__()
        self.given = [[B, 1]] * 4
        self.first = nn.ModuleList([Parameter(width, 1), Parameter(1, width), Parameter(width, width),
                                    Parameter(1, width)])

    @staticmethod
    def loss(w, x, y):
        h = torch.tanh(F.linear(x, w[0]) + w[1])
        return F.mse_loss(F.linear(torch.tanh(F.linear(h, w[2])), w[3]), y)

    def forward(self, *tasks):
        total = 0
        for number, x in enumerate(tasks):
            y, w = torch.sin(x * (number + 1)), [first.weight for first in self.first]
            for _ in range(3):
                gradients = torch.autograd.grad(self.loss(w, x, y), w, create_graph=True)
                w = [weight - 0.1 * gradient for weight, gradient in zip(w, gradients)]
            total = total + self.loss(w, x, y)
        return total


class Hypernetwork(Program):
    def __init__(self, B, width):
        super().__init__()
        self.given = [[B, 64], [B, 64, 16], [B, 64, 2]]
        self.body, self.width = mlp(64, 64, 1, 18 * width, nn.ReLU), width

    def forward(self, noise, x, target):
        B, width = x.shape[0], self.width
        first, second = self.body(noise).split([16 * width, 2 * width], 1)
        y = torch.tanh(torch.bmm(x, first.reshape(B, 16, width)))
        return F.mse_loss(torch.bmm(y, second.reshape(B, width, 2)), target)


class PINN(Program):
    def __init__(self, B, width):
        super().__init__()
        self.given = [[B, 2], [B, 1]]
        self.body = mlp(2, width, 3, 1, nn.Tanh)

    def forward(self, at, target):
        at = at.detach().requires_grad_()
        u = self.body(at)
        slope, = torch.autograd.grad(u.sum(), at, create_graph=True)
        u_x, u_t = slope[:, :1], slope[:, 1:]
        curve, = torch.autograd.grad(u_x.sum(), at, create_graph=True)
        return ((u_t + u * u_x - 0.01 * curve[:, :1]) ** 2).mean() + F.mse_loss(u, target)


# ---- training, and the table ---------------------------------------------------------------------------------------

OPTIMIZERS = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.01, momentum=0.9, nesterov=True, fused=True),
    "adam": lambda params: torch.optim.Adam(params, lr=3e-4, fused=True),
    "adamw": lambda params: torch.optim.AdamW(params, lr=3e-4, fused=True),
    "rmsprop": lambda params: torch.optim.RMSprop(params, lr=1e-4),
}
PROGRAMS = {
    "resnet18": (ResNet18, "sgd"),
    "mobilenet": (MobileNet, "rmsprop"),
    "vit": (ViT, "adamw"),
    "unet": (UNet, "adam"),
    "ddpm": (DDPM, "adam"),
    "vae": (VAE, "adam"),
    "dcgan": (DCGAN, "adam"),
    "wgan_gp": (WGANGP, "adam"),
    "simclr": (SimCLR, "sgd"),
    "deeplab": (DeepLab, "sgd"),
    "style": (Style, "adam"),
    "transfer": (Transfer, "sgd"),
    "vgg": (VGG, "sgd"),
    "siamese": (Siamese, "adam"),
    "densenet": (DenseNet, "sgd"),
    "super_resolution": (SuperResolution, "adam"),
    "lstm_lm": (LSTMLM, "adam"),
    "seq2seq": (Seq2Seq, "adam"),
    "bert": (BERT, "adamw"),
    "llama": (Llama, "adamw"),
    "tcn": (TCN, "adam"),
    "mamba": (Mamba, "adam"),
    "gcn": (GCN, "adam"),
    "gat": (GAT, "adam"),
    "kmeans": (KMeans, None),
    "word2vec": (Word2Vec, "adam"),
    "factorisation": (Factorisation, "adam"),
    "dqn": (DQN, "adam"),
    "ppo": (PPO, "adam"),
    "tabular": (Tabular, "adam"),
    "flow": (Flow, "adam"),
    "diffusion_mlp": (DiffusionMLP, "adam"),
    "autoencoder": (Autoencoder, "adam"),
    "maml": (MAML, "adam"),
    "hypernetwork": (Hypernetwork, "adam"),
    "pinn": (PINN, "adam"),
}


def program_modes(w):
    """channels_last where there are convolutions"""
    net = PROGRAMS[w.options[0]][0](*w.sizes)
    return ["eager", "channels_last"] if any(isinstance(m, nn.Conv2d) for m in net.modules()) else ["eager"]


def first_weights(net):
    with torch.no_grad():
        for number, (name, param) in enumerate(net.named_parameters()):
            values = weight(list(param.shape), number)
            if values is not None:
                param.copy_(torch.from_numpy(values))
            else:
                param.fill_(1 if name.split(".")[-1] == "weight" else 0)


def program(w, mode):
    """One step of training, which returns the loss."""
    make, optimizer = PROGRAMS[w.options[0]]
    net, given = make(*w.sizes), []
    first_weights(net)
    for i, shape in enumerate(net.given):
        values = labels(*shape[:1], 1000 + i, shape[1]) if isinstance(shape, tuple) else numbers(shape, 1000 + i)
        given.append(torch.from_numpy(values))
    if mode == "channels_last":
        net = net.to(memory_format=torch.channels_last)
        given = [x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in given]
    losses = [(getattr(net, name), OPTIMIZERS[optimizer](part.parameters()) if part else None)
              for name, part in net.trained]
    if mode == "compile":
        losses = [(torch.compile(loss, dynamic=False), optim) for loss, optim in losses]

    def step():
        total = 0
        for loss_of, optim in losses:
            if optim:
                optim.zero_grad(set_to_none=True)
            loss = loss_of(*given)
            if optim:
                loss.backward()
                optim.step()
            total += loss.item()
        return total

    return step
