"""Products of matrices, perceptrons and the convolutional network in JAX, compiled by jax.jit."""
import itertools

import jax
import jax.numpy as jnp

from common import labels, numbers, serve, weight


def product(w):
    M, N, K = w.sizes
    a_transposed, b_transposed = (letter == "T" for letter in (w.options or ["NN"])[0])
    a = jnp.array(numbers([K, M] if a_transposed else [M, K], 1))
    b = jnp.array(numbers([N, K] if b_transposed else [K, N], 2))
    run = jax.jit(lambda a, b: (a.T if a_transposed else a) @ (b.T if b_transposed else b))
    return lambda: run(a, b).block_until_ready()


def cross_entropy(logits, target):
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), target[:, None], 1))


def linear(x, matrix, bias):
    return x @ matrix.T + bias


def mlp(w):
    """Shapes of the parameters, the loss, shapes of a batch and of its target, classes, if any."""
    widths, regression = w.sizes[1:], "tanh" in w.options
    activation = jnp.tanh if regression else jax.nn.relu
    shapes = [shape for a, b in zip(widths, widths[1:]) for shape in ([b, a], [b])]

    def loss(params, x, target):
        for i in range(0, len(params) - 2, 2):
            x = activation(linear(x, params[i], params[i + 1]))
        x = linear(x, params[-2], params[-1])
        return jnp.mean((x - target) ** 2) if regression else cross_entropy(x, target)

    if regression:
        return shapes, loss, w.sizes[:2], [w.sizes[0], widths[-1]], None
    return shapes, loss, w.sizes[:2], w.sizes[:1], widths[-1]


def conv_net(w):
    B, side, c1, c2, width, classes = w.sizes
    flat = c2 * (side // 4) ** 2
    shapes = [[c1, 1, 3, 3], [c1], [c2, c1, 3, 3], [c2], [width, flat], [width], [classes, width], [classes]]

    def loss(params, x, target):
        for i in (0, 2):
            x = jax.lax.conv_general_dilated(x, params[i], (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"))
            x = jax.nn.relu(x + params[i + 1][:, None, None])
            x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        x = jax.nn.relu(linear(x.reshape(B, -1), params[4], params[5]))
        return cross_entropy(linear(x, params[6], params[7]), target)

    return shapes, loss, [B, 1, side, side], [B], classes


def sgd(params, gradients, state):
    return [p - 0.01 * g for p, g in zip(params, gradients)], state


def adamw(params, gradients, state):
    count, means, squares = state
    count = count + 1
    means = [0.9 * m + 0.1 * g for m, g in zip(means, gradients)]
    squares = [0.999 * v + 0.001 * g * g for v, g in zip(squares, gradients)]
    mean_scale, square_scale = 1 / (1 - 0.9 ** count), 1 / (1 - 0.999 ** count)
    params = [p * (1 - 3e-4 * 0.01) - 3e-4 * (m * mean_scale) / (jnp.sqrt(v * square_scale) + 1e-8)
              for p, m, v in zip(params, means, squares)]
    return params, (count, means, squares)


def training(w):
    shapes, loss, shape, target_shape, classes = (mlp if w.kind == "mlp" else conv_net)(w)
    values = [weight(shape, number) for number, shape in enumerate(shapes)]
    params = [jnp.zeros(shape) if value is None else jnp.array(value) for shape, value in zip(shapes, values)]
    update, state = sgd, 0.0
    if "adamw" in w.options:
        update, zeros = adamw, [[jnp.zeros_like(p) for p in params] for _ in range(2)]
        state = (jnp.float32(0), *zeros)
    batches = [(jnp.array(numbers(shape, 1000 + i)),
                jnp.array(labels(target_shape, 2000 + i, classes) if classes else numbers(target_shape, 2000 + i)))
               for i in range(8)]
    cycle = itertools.cycle(batches)

    def advance(params, state, x, target):
        value, gradients = jax.value_and_grad(loss)(params, x, target)
        params, state = update(params, gradients, state)
        return params, state, value

    advance = jax.jit(advance, donate_argnums=(0, 1))
    now = [params, state]

    def step():
        now[0], now[1], value = advance(*now, *next(cycle))
        return float(value)

    return step


serve("JAX " + jax.__version__, lambda w: ["jit"] if w.kind in ("sgemm", "mlp", "conv_net") else [],
      lambda w, mode: product(w) if w.kind == "sgemm" else training(w))
