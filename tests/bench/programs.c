/* The workloads that are whole programs, as people write them in PyTorch: networks of vision first, then sequences,
 * graphs, tables and the rest.  Each is a function that computes its loss, and a line of the table at the end.
 * peers/pytorch_programs.py has the same programs in the same order.
 *
 * A layer is made where it is first used, and used again in each later step: the first run of the function registers
 * it, and a later run meets the layers in the same order.  Inputs are made in the same way. */
#include "workloads.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_PARTS = 2, MOST_GIVEN = 12 };

typedef enum { NOTHING, SGD, ADAM, ADAMW, RMSPROP } optimizer;

/* A program: the losses of its parts.  A part is a network with an optimizer of its own, as the critic and the
   generator of a GAN; one without a loss is frozen, and in evaluation mode.  NOTHING: the loss is computed, not
   trained. */
typedef struct {
    const char *name;
    tg_tensor *(*loss[MOST_PARTS])(void);
    optimizer optimizer;
} row;

static struct {
    const row *row;
    tg_module *net, *part[MOST_PARTS]; /* net owns the parts */
    tg_optim *optim[MOST_PARTS];
    tg_tensor *given[MOST_GIVEN]; /* inputs and targets, the same in each step */
    int current, layer, input;    /* part, layer and input that are used next */
} program;

/* ---- inputs and layers ----------------------------------------------------------------------------------------- */

/* Numbers in [-1, 1), or labels where classes is not 0 */
static tg_tensor *given_labels(tg_shape shape, int64_t classes)
{
    const int i = program.input++;
    const uint32_t seed = 1000 + (uint32_t)i;
    if (!program.given[i]) program.given[i] = classes ? labels(shape, seed, classes) : numbers(shape, seed);
    return program.given[i];
}
static tg_tensor *given(tg_shape shape) { return given_labels(shape, 0); }

/* Layers are those of this part from now on, beginning with its first. */
static void begin(int part) { program.current = part, program.layer = 0; }

/* The next layer; NULL: it must be made */
static tg_module *known(void)
{
    tg_module *part = program.part[program.current];
    return program.layer < tg_module_child_count(part) ? tg_module_child_at(part, program.layer++) : NULL;
}

static tg_module *made(tg_module *layer)
{
    char name[16];
    const bool trained = program.row->loss[program.current] != NULL;
    snprintf(name, sizeof name, "%d", program.layer++);
    layer = tg_module_child(program.part[program.current], name, layer);
    return tg_module_train(tg_module_requires_grad_(layer, trained), trained);
}

/* A layer that is a parameter */
static tg_tensor *parameter(tg_shape shape)
{
    tg_module *layer = known();
    if (!layer) {
        layer = made(tg_module_new("Parameter", NULL, 0));
        tg_module_param(layer, "weight", tg_empty(shape));
    }
    return tg_module_get(layer, "weight");
}

static tg_tensor *linear(tg_tensor *x, int64_t out)
{
    tg_module *layer = known();
    return tg_forward(layer ? layer : made(tg_nn_linear(tg_dim(x, -1), out, true)), x);
}

static tg_tensor *embedding(tg_tensor *ids, int64_t count, int64_t width)
{
    tg_module *layer = known();
    return tg_forward(layer ? layer : made(tg_nn_embedding(count, width)), ids);
}

static tg_tensor *batch_norm(tg_tensor *x)
{
    tg_module *layer = known();
    return tg_forward(layer ? layer : made(tg_nn_batch_norm(tg_dim(x, 1), 1e-5, 0.1)), x);
}

static tg_tensor *group_norm(tg_tensor *x)
{
    tg_module *layer = known();
    return tg_forward(layer ? layer : made(tg_nn_group_norm(8, tg_dim(x, 1), 1e-5)), x);
}

static tg_tensor *layer_norm(tg_tensor *x)
{
    tg_module *layer = known();
    return tg_forward(layer ? layer : made(tg_nn_layer_norm(TG_SHAPE(tg_dim(x, -1)), 1e-5, true)), x);
}

/* With stride 1 the result has the size of x. */
static tg_tensor *conv_ex(tg_tensor *x, int64_t out, int64_t kernel, int64_t stride, int64_t dilation, int64_t groups,
                          bool bias)
{
    const int64_t padding = dilation * (kernel - 1) / 2;
    tg_module *layer = known();
    if (!layer)
        layer = made(tg_nn_conv2d(tg_dim(x, 1), out, TG_SHAPE(kernel), TG_SHAPE(stride), TG_SHAPE(padding),
                                  TG_SHAPE(dilation), groups, bias));
    return tg_forward(layer, x);
}
static tg_tensor *conv(tg_tensor *x, int64_t out, int64_t kernel, int64_t stride)
{
    return conv_ex(x, out, kernel, stride, 1, 1, true);
}
static tg_tensor *conv_norm(tg_tensor *x, int64_t out, int64_t kernel, int64_t stride)
{
    return batch_norm(conv_ex(x, out, kernel, stride, 1, 1, false));
}

/* Twice as high and wide */
static tg_tensor *up(tg_tensor *x, int64_t out, int64_t kernel)
{
    tg_module *layer = known();
    if (!layer)
        layer = made(tg_nn_conv_transpose2d(tg_dim(x, 1), out, TG_SHAPE(kernel), TG_SHAPE(2), TG_SHAPE(kernel / 2 - 1),
                                            TG_SHAPE(0), 1, true, TG_SHAPE(1)));
    return tg_forward(layer, x);
}

static tg_tensor *pooled(tg_tensor *x) { return tg_mean_dims(x, TG_DIMS(2, 3), false); }
static tg_tensor *half(tg_tensor *x) { return tg_max_pool2d(x, TG_SHAPE(2), TG_SHAPE(2), TG_SHAPE(0)); }
static tg_tensor *images(void) { return given(TG_SHAPE(now.size[0], 3, now.size[1], now.size[1])); }
static tg_tensor *noise(void) { return given(TG_SHAPE(now.size[0], 64)); }

/* The loss of logits [B, classes], or [B, classes, ..] of pixels */
static tg_tensor *classified(tg_tensor *logits)
{
    tg_shape shape = tg_shape_of(logits);
    const int64_t classes = shape.dim[1];
    for (int i = 1; i < shape.ndim - 1; ++i) shape.dim[i] = shape.dim[i + 1];
    --shape.ndim;
    return tg_cross_entropy(logits, given_labels(shape, classes));
}

/* ---- vision ---------------------------------------------------------------------------------------------------- */

static tg_tensor *residual(tg_tensor *x, int64_t out, int64_t stride)
{
    tg_tensor *y = conv_norm(tg_relu(conv_norm(x, out, 3, stride)), out, 3, 1);
    if (stride > 1 || tg_dim(x, 1) != out) x = conv_norm(x, out, 1, stride);
    return tg_relu(tg_add(y, x));
}

static tg_tensor *resnet18(void)
{
    tg_tensor *x = tg_relu(conv_norm(images(), 64, 3, 1));
    for (int i = 0; i < 8; ++i) x = residual(x, 64 << i / 2, i > 0 && i % 2 == 0 ? 2 : 1);
    return classified(linear(pooled(x), 10));
}

/* A block of MobileNetV3: wider by 4, depthwise convolution, channels weighted by their means, narrow again */
static tg_tensor *inverted_residual(tg_tensor *x, int64_t out, int64_t kernel, int64_t stride)
{
    const int64_t wide = 4 * tg_dim(x, 1);
    tg_tensor *means, *y = tg_hardswish(conv_norm(x, wide, 1, 1));
    y = tg_hardswish(batch_norm(conv_ex(y, wide, kernel, stride, 1, wide, false)));
    means = tg_mean_dims(y, TG_DIMS(2, 3), true);
    y = tg_mul(y, tg_hardsigmoid(conv(tg_relu(conv(means, wide / 4, 1, 1)), wide, 1, 1)));
    y = conv_norm(y, out, 1, 1);
    return stride == 1 && tg_dim(x, 1) == out ? tg_add(x, y) : y;
}

static tg_tensor *mobilenet(void)
{
    static const int64_t blocks[7][3] = {{24, 3, 2}, {24, 3, 1}, {40, 5, 2}, {40, 5, 1},
                                         {80, 3, 2}, {80, 3, 1}, {96, 5, 1}}; /* out, kernel, stride */
    tg_tensor *x = tg_hardswish(conv_norm(images(), 16, 3, 2));
    for (int i = 0; i < 7; ++i) x = inverted_residual(x, blocks[i][0], blocks[i][1], blocks[i][2]);
    x = linear(pooled(tg_hardswish(conv_norm(x, 384, 1, 1))), 100);
    return tg_cross_entropy_ex(x, given_labels(TG_SHAPE(now.size[0]), 100), NULL, -100, 0.1, TG_MEAN);
}

/* Self-attention, x [B, T, C] */
static tg_tensor *attention(tg_tensor *x, int64_t heads, bool causal)
{
    const int64_t B = tg_dim(x, 0), T = tg_dim(x, 1), C = tg_dim(x, 2);
    tg_tensor *y, *part[3];
    tg_unbind(tg_view(linear(x, 3 * C), TG_SHAPE(B, T, 3, heads, C / heads)), 2, part, 3);
    for (int i = 0; i < 3; ++i) part[i] = tg_transpose(part[i], 1, 2);
    y = tg_scaled_dot_product_attention(part[0], part[1], part[2], NULL, 0, causal, 0);
    return linear(tg_reshape(tg_transpose(y, 1, 2), TG_SHAPE(B, T, C)), C);
}

static tg_tensor *transformer_block(tg_tensor *x, int64_t heads, bool causal)
{
    const int64_t C = tg_dim(x, 2);
    x = tg_add(x, attention(layer_norm(x), heads, causal));
    return tg_add(x, linear(tg_gelu(linear(layer_norm(x), 4 * C), false), C));
}

static tg_tensor *vit(void)
{
    const int64_t B = now.size[0], patches = now.size[1] / 4;
    tg_tensor *x = tg_view(images(), TG_SHAPE(B, 3, patches, 4, patches, 4));
    x = tg_reshape(tg_permute(x, TG_DIMS(0, 2, 4, 1, 3, 5)), TG_SHAPE(B, patches * patches, 48));
    x = linear(x, 192);
    x = tg_add(x, parameter(TG_SHAPE(1, patches * patches, 192)));
    for (int i = 0; i < 4; ++i) x = transformer_block(x, 3, false);
    return classified(linear(tg_mean_dim(layer_norm(x), 1, false), 10));
}

static tg_tensor *two_convs(tg_tensor *x, int64_t out)
{
    return tg_relu(conv_norm(tg_relu(conv_norm(x, out, 3, 1)), out, 3, 1));
}

/* Binary cross-entropy and the dice loss of one mask */
static tg_tensor *unet(void)
{
    tg_tensor *x = images(), *skip[3], *mask, *p, *overlap;
    for (int i = 0; i < 3; ++i) x = half(skip[i] = two_convs(x, 16 << i));
    x = two_convs(x, 128);
    for (int i = 2; i >= 0; --i) x = two_convs(tg_cat(TG_LIST(up(x, 16 << i, 2), skip[i]), 1), 16 << i);
    x = conv(x, 1, 1, 1);
    mask = tg_to_dtype(given_labels(tg_shape_of(x), 2), TG_F32);
    p = tg_sigmoid(x);
    overlap = tg_div(tg_add_scalar(tg_mul_scalar(tg_sum(tg_mul(p, mask)), 2), 1),
                     tg_add_scalar(tg_add(tg_sum(p), tg_sum(mask)), 1));
    return tg_sub(tg_binary_cross_entropy_with_logits(x, mask, NULL, TG_MEAN, NULL), tg_add_scalar(overlap, -1));
}

/* A block of a diffusion model; time [B, 64] shifts the channels */
static tg_tensor *time_block(tg_tensor *x, tg_tensor *time, int64_t out)
{
    tg_tensor *y = conv(tg_silu(group_norm(x)), out, 3, 1);
    y = tg_add(y, tg_view(linear(tg_silu(time), out), TG_SHAPE(now.size[0], out, 1, 1)));
    y = conv(tg_silu(group_norm(y)), out, 3, 1);
    return tg_add(y, tg_dim(x, 1) == out ? x : conv(x, out, 1, 1));
}

/* Predicts the noise in an image. */
static tg_tensor *ddpm(void)
{
    tg_tensor *x = images(), *target = images(), *time = noise(), *skip, *y;
    const int64_t low = now.size[1] / 2;
    x = conv(tg_add(tg_mul_scalar(x, 0.8), tg_mul_scalar(target, 0.6)), 32, 3, 1);
    time = linear(tg_silu(linear(time, 64)), 64);
    skip = x = time_block(x, time, 32);
    x = time_block(conv(x, 64, 3, 2), time, 64);
    y = tg_transpose(tg_flatten(group_norm(x), 2, -1), 1, 2);
    x = tg_add(x, tg_view(tg_transpose(attention(y, 4, false), 1, 2), TG_SHAPE(now.size[0], 64, low, low)));
    x = time_block(x, time, 64);
    x = conv(tg_interpolate(x, TG_SHAPE(2 * low, 2 * low), "nearest"), 32, 3, 1);
    x = time_block(tg_cat(TG_LIST(x, skip), 1), time, 32);
    return tg_mse_loss(conv(tg_silu(group_norm(x)), 3, 3, 1), target, TG_MEAN);
}

static tg_tensor *vae(void)
{
    const int64_t B = now.size[0], low = now.size[1] / 4;
    tg_tensor *x = images(), *mean, *log_variance, *z, *y, *divergence;
    y = tg_flatten(tg_relu(conv(tg_relu(conv(x, 32, 3, 2)), 64, 3, 2)), 1, -1);
    mean = linear(y, 64);
    log_variance = linear(y, 64);
    z = tg_add(mean, tg_mul(tg_exp(tg_mul_scalar(log_variance, 0.5)), noise()));
    y = tg_view(tg_relu(linear(z, 64 * low * low)), TG_SHAPE(B, 64, low, low));
    y = up(tg_relu(up(y, 32, 4)), 3, 4);
    divergence = tg_sub(tg_add(tg_square(mean), tg_exp(log_variance)), tg_add_scalar(log_variance, 1));
    return tg_add(tg_mse_loss(y, x, TG_MEAN), tg_mul_scalar(tg_mean(divergence), 0.005));
}

/* The generator of both GANs */
static tg_tensor *generated(void)
{
    const int64_t low = now.size[1] / 4;
    tg_tensor *x = noise();
    begin(1);
    x = tg_view(linear(x, 128 * low * low), TG_SHAPE(now.size[0], 128, low, low));
    x = tg_relu(batch_norm(up(tg_relu(batch_norm(x)), 64, 4)));
    return tg_tanh(up(x, 3, 4));
}

/* Whether an image is real [B, 1] */
static tg_tensor *judged(tg_tensor *x, bool norm)
{
    begin(0);
    x = tg_leaky_relu(conv(x, 64, 3, 2), 0.2);
    x = conv(x, 128, 3, 2);
    x = tg_leaky_relu(norm ? batch_norm(x) : x, 0.2);
    return linear(tg_flatten(x, 1, -1), 1);
}

static tg_tensor *fakes(void)
{
    TG_NO_GRAD;
    return generated();
}

static tg_tensor *dcgan_is(tg_tensor *x, double real)
{
    x = judged(x, true);
    return tg_binary_cross_entropy_with_logits(x, tg_full_like(x, real), NULL, TG_MEAN, NULL);
}
static tg_tensor *dcgan_critic(void)
{
    tg_tensor *fake = fakes();
    return tg_add(dcgan_is(images(), 1), dcgan_is(fake, 0));
}
static tg_tensor *dcgan_generator(void) { return dcgan_is(generated(), 1); }

/* The penalty is on the length of the gradient at images between the real and the generated ones: backward goes through
   a gradient. */
static tg_tensor *wgan_gp_critic(void)
{
    tg_tensor *fake = fakes(), *real = images(), *mixed, *y, *gradient, *length;
    tg_tensor *part = tg_abs(given(TG_SHAPE(now.size[0], 1, 1, 1)));
    mixed = tg_set_requires_grad(tg_detach(tg_lerp(fake, real, part)), true);
    y = tg_sum(judged(mixed, false));
    tg_gradients(&y, 1, NULL, &mixed, 1, &gradient, TG_CREATE_GRAPH);
    length = tg_norm_dim(tg_flatten(gradient, 1, -1), 2, 1, false);
    y = tg_sub(tg_mean(judged(fake, false)), tg_mean(judged(real, false)));
    return tg_add(y, tg_mul_scalar(tg_mean(tg_square(tg_add_scalar(length, -1))), 10));
}
static tg_tensor *wgan_gp_generator(void) { return tg_neg(tg_mean(judged(generated(), false))); }

/* Features [B, 128] of images */
static tg_tensor *small_resnet(tg_tensor *x)
{
    x = tg_relu(conv_norm(x, 32, 3, 1));
    for (int i = 0; i < 3; ++i) x = residual(x, 32 << i, i ? 2 : 1);
    return pooled(x);
}

/* Each of 2 B views is to find the other view of its image among all others. */
static tg_tensor *simclr(void)
{
    const int64_t B = now.size[0];
    tg_tensor *x = images(), *z, *scores, *first = tg_arange_on(0, (double)B, 1, TG_I64, TG_CPU);
    x = small_resnet(tg_cat(TG_LIST(x, tg_flip(x, TG_DIMS(3))), 0));
    z = tg_normalize(linear(tg_relu(linear(x, 128)), 64), 2, 1, 1e-12);
    scores = tg_div_scalar(tg_matmul(z, tg_t(z)), 0.5);
    scores = tg_masked_fill(scores, tg_eq_scalar(tg_eye(2 * B), 1), -1e9);
    return tg_cross_entropy(scores, tg_cat(TG_LIST(tg_add_scalar(first, (double)B), first), 0));
}

/* Segmentation with dilated convolutions; label 0 stands for pixels that do not count. */
static tg_tensor *deeplab(void)
{
    const int64_t B = now.size[0], side = now.size[1];
    tg_tensor *x = images(), *branch[5];
    x = tg_relu(conv_norm(tg_relu(conv_norm(x, 32, 3, 2)), 64, 3, 2));
    x = tg_relu(batch_norm(conv_ex(x, 64, 3, 1, 2, 1, false)));
    branch[0] = tg_relu(conv_norm(x, 32, 1, 1));
    for (int i = 1; i < 4; ++i) branch[i] = tg_relu(batch_norm(conv_ex(x, 32, 3, 1, 1 << i, 1, false)));
    branch[4] = tg_relu(conv(tg_mean_dims(x, TG_DIMS(2, 3), true), 32, 1, 1));
    branch[4] = tg_expand(branch[4], tg_shape_of(branch[0]));
    x = conv(tg_relu(conv_norm(tg_cat(branch, 5, 1), 64, 1, 1)), 21, 1, 1);
    x = tg_interpolate(x, TG_SHAPE(side, side), "bilinear");
    return tg_cross_entropy_ex(x, given_labels(TG_SHAPE(B, side, side), 21), NULL, 0, 0, TG_MEAN);
}

/* Products of the channels of three layers [B, C, C] */
static void style_of(tg_tensor *x, tg_tensor *gram[3])
{
    begin(0);
    for (int i = 0; i < 3; ++i) {
        x = tg_relu(conv(tg_relu(conv(x, 32 << i, 3, 1)), 32 << i, 3, 1));
        tg_tensor *flat = tg_flatten(x, 2, -1);
        gram[i] = tg_div_scalar(tg_matmul(flat, tg_transpose(flat, 1, 2)), (double)tg_dim(flat, 2));
        x = half(x);
    }
}

/* The image is trained, the network is not.  The factor makes pixels of a parameter that begins near 0. */
static tg_tensor *style(void)
{
    tg_tensor *wanted[3], *found[3], *painting = images(), *loss;
    begin(1);
    tg_tensor *image = parameter(tg_shape_of(painting));
    style_of(painting, wanted);
    style_of(tg_mul_scalar(image, 100), found);
    loss = tg_mse_loss(found[0], wanted[0], TG_SUM);
    for (int i = 1; i < 3; ++i) loss = tg_add(loss, tg_mse_loss(found[i], wanted[i], TG_SUM));
    return loss;
}

/* A new head on a network that stays as it is */
static tg_tensor *transfer(void)
{
    tg_tensor *features;
    begin(0);
    features = small_resnet(images());
    begin(1);
    return classified(linear(tg_relu(linear(features, 256)), 10));
}

static tg_tensor *vgg(void)
{
    tg_tensor *x = images();
    for (int i = 0; i < 3; ++i) x = half(tg_relu(conv(tg_relu(conv(x, 32 << i, 3, 1)), 32 << i, 3, 1)));
    return classified(linear(tg_relu(linear(tg_flatten(x, 1, -1), 256)), 10));
}

static tg_tensor *embedded(tg_tensor *x)
{
    begin(0);
    for (int i = 0; i < 3; ++i) x = half(tg_relu(conv(x, 32 << i, 3, 1)));
    return linear(tg_flatten(x, 1, -1), 64);
}

/* An image is to be nearer to one than to another. */
static tg_tensor *siamese(void)
{
    tg_tensor *anchor = embedded(images()), *same = embedded(images()), *other = embedded(images());
    tg_tensor *near = tg_norm_dim(tg_sub(anchor, same), 2, 1, false);
    tg_tensor *far = tg_norm_dim(tg_sub(anchor, other), 2, 1, false);
    return tg_mean(tg_relu(tg_add_scalar(tg_sub(near, far), 1)));
}

/* Each layer sees the results of all layers before it. */
static tg_tensor *densenet(void)
{
    tg_tensor *x = conv(images(), 32, 3, 1);
    for (int i = 0; i < 3; ++i) {
        for (int k = 0; k < 4; ++k)
            x = tg_cat(TG_LIST(x, conv_ex(tg_relu(batch_norm(x)), 16, 3, 1, 1, 1, false)), 1);
        x = conv_ex(tg_relu(batch_norm(x)), tg_dim(x, 1) / 2, 1, 1, 1, 1, false);
        x = tg_avg_pool2d(x, TG_SHAPE(2), TG_SHAPE(2), TG_SHAPE(0));
    }
    return classified(linear(pooled(x), 10));
}

/* An image of twice the height and width: its 4 pixels are channels first. */
static tg_tensor *super_resolution(void)
{
    const int64_t B = now.size[0], side = now.size[1];
    tg_tensor *x = tg_tanh(conv(tg_tanh(conv(images(), 64, 5, 1)), 32, 3, 1));
    x = tg_permute(tg_view(conv(x, 12, 3, 1), TG_SHAPE(B, 3, 2, 2, side, side)), TG_DIMS(0, 1, 4, 2, 5, 3));
    x = tg_reshape(x, TG_SHAPE(B, 3, 2 * side, 2 * side));
    return tg_l1_loss(x, given(tg_shape_of(x)), TG_MEAN);
}

/* ---- sequences ------------------------------------------------------------------------------------------------- */

/* The loss of logits [B, T, V] of the next tokens */
static tg_tensor *predicted(tg_tensor *logits)
{
    const int64_t tokens = tg_dim(logits, 0) * tg_dim(logits, 1), V = tg_dim(logits, 2);
    return tg_cross_entropy(tg_reshape(logits, TG_SHAPE(tokens, V)), given_labels(TG_SHAPE(tokens), V));
}

static tg_tensor *tokens_given(int64_t V) { return given_labels(TG_SHAPE(now.size[0], now.size[1]), V); }

static tg_tensor *lstm_lm(void)
{
    tg_tensor *x = embedding(tokens_given(1000), 1000, 128);
    tg_module *lstm = known();
    x = tg_forward(lstm ? lstm : made(tg_nn_lstm_ex(128, 128, 2, true, true, 0, false)), x);
    return predicted(linear(x, 1000));
}

/* A GRU reads; a cell writes, which looks at all that was read. */
static tg_tensor *seq2seq(void)
{
    enum { MOST_TOKENS = 64 };
    const int64_t T = now.size[1];
    tg_tensor *x = embedding(tokens_given(500), 500, 128), *y, *h, *part, *written[MOST_TOKENS];
    tg_module *gru = known(), *cell;
    x = tg_forward(gru ? gru : made(tg_nn_gru_ex(128, 128, 1, true, true, 0, false)), x);
    y = embedding(tokens_given(500), 500, 128);
    cell = known();
    if (!cell) cell = made(tg_nn_gru_cell(128, 128, true));
    h = tg_select(x, 1, -1);
    for (int64_t t = 0; t < T && t < MOST_TOKENS; ++t) {
        tg_forward_n(cell, TG_LIST(tg_select(y, 1, t), h), &h, 1);
        part = tg_softmax(tg_bmm(x, tg_unsqueeze(h, 2)), 1);
        written[t] = tg_cat(TG_LIST(h, tg_squeeze(tg_bmm(tg_transpose(part, 1, 2), x), 1)), 1);
    }
    return predicted(linear(tg_stack(written, (int)T, 1), 500));
}

/* The layers of nn.TransformerEncoder; one token in four is padding. */
static tg_tensor *bert(void)
{
    const int64_t B = now.size[0], T = now.size[1];
    tg_tensor *x = embedding(tokens_given(1000), 1000, 128), *padding = tg_eq_scalar(tokens_given(4), 0);
    x = tg_add(x, parameter(TG_SHAPE(1, T, 128)));
    for (int i = 0; i < 2; ++i) {
        tg_module *layer = known();
        if (!layer) layer = made(tg_nn_transformer_encoder_layer(128, 4, 512, 0, true, false));
        tg_forward_n(layer, TG_LIST(x, tg_view(padding, TG_SHAPE(B, 1, 1, T))), &x, 1);
    }
    return predicted(linear(x, 1000));
}

static tg_tensor *rms_norm(tg_tensor *x)
{
    tg_module *layer = known();
    return tg_forward(layer ? layer : made(tg_nn_rms_norm(TG_SHAPE(tg_dim(x, -1)), 1e-6, true)), x);
}

/* Turns pairs of x [B, heads, T, D] by angles [T, D / 2]. */
static tg_tensor *turned(tg_tensor *x, tg_tensor *angles)
{
    const int64_t D = tg_dim(x, 3);
    tg_tensor *a = tg_narrow(x, 3, 0, D / 2), *b = tg_narrow(x, 3, D / 2, D / 2);
    tg_tensor *c = tg_cos(angles), *s = tg_sin(angles);
    return tg_cat(TG_LIST(tg_sub(tg_mul(a, c), tg_mul(b, s)), tg_add(tg_mul(b, c), tg_mul(a, s))), 3);
}

/* Heads of 32 that share keys and values by four */
static tg_tensor *llama_attention(tg_tensor *x, tg_tensor *angles)
{
    const int64_t B = tg_dim(x, 0), T = tg_dim(x, 1), C = tg_dim(x, 2);
    tg_tensor *q = tg_transpose(tg_view(linear(x, C), TG_SHAPE(B, T, C / 32, 32)), 1, 2);
    tg_tensor *k = tg_transpose(tg_view(linear(x, C / 4), TG_SHAPE(B, T, C / 128, 32)), 1, 2);
    tg_tensor *v = tg_transpose(tg_view(linear(x, C / 4), TG_SHAPE(B, T, C / 128, 32)), 1, 2);
    k = tg_repeat_interleave(turned(k, angles), 4, 1);
    v = tg_repeat_interleave(v, 4, 1);
    q = tg_scaled_dot_product_attention(turned(q, angles), k, v, NULL, 0, true, 0);
    return linear(tg_reshape(tg_transpose(q, 1, 2), TG_SHAPE(B, T, C)), C);
}

static tg_tensor *llama(void)
{
    tg_tensor *x = embedding(tokens_given(1000), 1000, 256), *y, *gate;
    tg_tensor *rates = tg_exp(tg_mul_scalar(tg_arange(0, 16, 1), -log(10000) / 16));
    tg_tensor *angles = tg_outer(tg_arange(0, (double)now.size[1], 1), rates);
    for (int i = 0; i < 2; ++i) {
        x = tg_add(x, llama_attention(rms_norm(x), angles));
        y = rms_norm(x);
        gate = tg_silu(linear(y, 768));
        x = tg_add(x, linear(tg_mul(gate, linear(y, 768)), 256));
    }
    return predicted(linear(rms_norm(x), 1000));
}

/* Dilated convolutions that see the past alone; x [B, 16, T] */
static tg_tensor *tcn(void)
{
    tg_tensor *x = given(TG_SHAPE(now.size[0], 16, now.size[1])), *y;
    for (int i = 0; i < 8; ++i) {
        const int64_t dilation = 1 << i / 2;
        tg_module *layer = known();
        if (!layer)
            layer = made(tg_nn_conv1d(tg_dim(x, 1), 64, TG_SHAPE(3), TG_SHAPE(1), TG_SHAPE(0), TG_SHAPE(dilation), 1,
                                      true));
        y = tg_relu(tg_forward(layer, tg_pad(x, TG_SHAPE(2 * dilation, 0), 0)));
        x = i ? tg_add(x, y) : y;
    }
    return classified(linear(tg_mean_dim(x, 2, false), 10));
}

/* The scan of Mamba, x [B, T, 64] with a state [B, 64, 16], one step after the other */
static tg_tensor *mamba(void)
{
    enum { MOST_STEPS = 256 };
    const int64_t B = now.size[0], T = now.size[1];
    tg_tensor *x = given(TG_SHAPE(B, T, 64)), *in, *out, *step, *keep, *add, *h, *y[MOST_STEPS];
    step = tg_softplus(linear(x, 64), 1, 20);
    in = linear(x, 16);
    out = linear(x, 16);
    keep = tg_exp(tg_mul(tg_unsqueeze(step, 3), tg_neg(tg_exp(parameter(TG_SHAPE(64, 16))))));
    add = tg_mul(tg_unsqueeze(tg_mul(step, x), 3), tg_unsqueeze(in, 2));
    h = tg_zeros(TG_SHAPE(B, 64, 16));
    for (int64_t t = 0; t < T && t < MOST_STEPS; ++t) {
        h = tg_add(tg_mul(tg_select(keep, 1, t), h), tg_select(add, 1, t));
        y[t] = tg_sum_dim(tg_mul(h, tg_unsqueeze(tg_select(out, 1, t), 1)), 2, false);
    }
    return tg_mse_loss(linear(tg_stack(y, (int)T, 1), 64), given(TG_SHAPE(B, T, 64)), TG_MEAN);
}

/* ---- graphs, tables, games and equations ----------------------------------------------------------------------- */

/* Adds to each node [N, ..] what comes along its edges [E, ..]. */
static tg_tensor *arrived(tg_tensor *along, tg_tensor *target)
{
    tg_shape shape = tg_shape_of(along);
    shape.dim[0] = now.size[0];
    return tg_index_add(tg_zeros(shape), 0, target, along);
}

/* sizes: nodes, edges */
static tg_tensor *gcn(void)
{
    const int64_t N = now.size[0], E = now.size[1];
    tg_tensor *x = given(TG_SHAPE(N, 64)), *source = given_labels(TG_SHAPE(E), N);
    tg_tensor *target = given_labels(TG_SHAPE(E), N), *weight = given(TG_SHAPE(E, 1));
    for (int i = 0; i < 2; ++i)
        x = tg_relu(arrived(tg_mul(tg_index_select(linear(x, 64), 0, source), weight), target));
    return classified(linear(x, 10));
}

/* Attention of 4 heads along the edges */
static tg_tensor *gat(void)
{
    const int64_t N = now.size[0], E = now.size[1];
    tg_tensor *x = given(TG_SHAPE(N, 64)), *source = given_labels(TG_SHAPE(E), N);
    tg_tensor *target = given_labels(TG_SHAPE(E), N), *from, *to, *part;
    for (int i = 0; i < 2; ++i) {
        x = tg_view(linear(x, 64), TG_SHAPE(N, 4, 16));
        from = tg_sum_dim(tg_mul(x, parameter(TG_SHAPE(1, 4, 16))), 2, false);
        to = tg_sum_dim(tg_mul(x, parameter(TG_SHAPE(1, 4, 16))), 2, false);
        part = tg_add(tg_index_select(from, 0, source), tg_index_select(to, 0, target));
        part = tg_exp(tg_leaky_relu(part, 0.2));
        part = tg_div(part, tg_index_select(arrived(part, target), 0, target));
        x = tg_elu(tg_flatten(arrived(tg_mul(tg_index_select(x, 0, source), tg_unsqueeze(part, 2)), target), 1, -1), 1);
    }
    return classified(linear(x, 10));
}

/* sizes: points, dims.  One step of Lloyd's algorithm */
static tg_tensor *kmeans(void)
{
    TG_NO_GRAD;
    tg_tensor *points = given(tg_make_shape(2, now.size)), *centres = given(TG_SHAPE(64, now.size[1])), *nearest;
    tg_tensor *distance = tg_min_dim(tg_cdist(points, centres, 2), 1, false, &nearest);
    tg_tensor *sums = tg_index_add(tg_zeros_like(centres), 0, nearest, points);
    tg_tensor *counts = tg_bincount(nearest, NULL, 64);
    tg_copy_(centres, tg_div(sums, tg_unsqueeze(tg_clamp_min(counts, 1), 1)));
    return tg_mean(distance);
}

/* sizes: pairs, words.  Skip-gram with 5 negative samples */
static tg_tensor *word2vec(void)
{
    const int64_t B = now.size[0], V = now.size[1];
    tg_tensor *word = embedding(given_labels(TG_SHAPE(B), V), V, 100);
    tg_tensor *others = embedding(given_labels(TG_SHAPE(B, 6), V), V, 100);
    tg_tensor *scores = tg_squeeze(tg_bmm(others, tg_unsqueeze(word, 2)), 2);
    tg_tensor *near = tg_logsigmoid(tg_narrow(scores, 1, 0, 1));
    tg_tensor *far = tg_logsigmoid(tg_neg(tg_narrow(scores, 1, 1, 5)));
    return tg_neg(tg_add(tg_mean(near), tg_mean(tg_sum_dim(far, 1, false))));
}

/* sizes: ratings, users; as many things are rated */
static tg_tensor *factorisation(void)
{
    const int64_t B = now.size[0], count = now.size[1];
    tg_tensor *user = given_labels(TG_SHAPE(B), count), *thing = given_labels(TG_SHAPE(B), count), *rating;
    tg_tensor *a = embedding(user, count, 32), *b = embedding(thing, count, 32);
    rating = tg_sum_dim(tg_mul(a, b), 1, true);
    rating = tg_add(rating, embedding(user, count, 1));
    rating = tg_add(rating, embedding(thing, count, 1));
    return tg_mse_loss(rating, given(TG_SHAPE(B, 1)), TG_MEAN);
}

/* Linear layers with an activation between them */
static tg_tensor *mlp(tg_tensor *x, int64_t width, int hidden, int64_t out, tg_tensor *(*activation)(tg_tensor *x))
{
    for (int i = 0; i < hidden; ++i) x = activation(linear(x, width));
    return linear(x, out);
}

static tg_tensor *observations(void) { return given(tg_make_shape(2, now.size)); }

/* The second part gives the values of the next state. */
static tg_tensor *dqn(void)
{
    const int64_t B = now.size[0];
    tg_tensor *value = mlp(observations(), 128, 2, 4, tg_relu), *next, *reward;
    value = tg_gather(value, 1, given_labels(TG_SHAPE(B, 1), 4));
    reward = given(TG_SHAPE(B, 1));
    begin(1);
    next = tg_max_dim(mlp(observations(), 128, 2, 4, tg_relu), 1, true, NULL);
    return tg_smooth_l1_loss(value, tg_add(reward, tg_mul_scalar(next, 0.99)), TG_MEAN, 1);
}

static tg_tensor *ppo(void)
{
    const int64_t B = now.size[0];
    tg_tensor *x = observations(), *action = given_labels(TG_SHAPE(B, 1), 4), *before = given(TG_SHAPE(B, 1));
    tg_tensor *advantage = given(TG_SHAPE(B, 1)), *log_p, *ratio, *gain, *entropy, *value;
    log_p = tg_log_softmax(mlp(x, 64, 2, 4, tg_tanh), 1);
    value = tg_mse_loss(mlp(x, 64, 2, 1, tg_tanh), given(TG_SHAPE(B, 1)), TG_MEAN);
    ratio = tg_exp(tg_sub(tg_gather(log_p, 1, action), before));
    gain = tg_minimum(tg_mul(ratio, advantage), tg_mul(tg_clamp(ratio, 0.8, 1.2), advantage));
    entropy = tg_mean(tg_sum_dim(tg_mul(tg_exp(log_p), log_p), 1, false));
    return tg_add(tg_sub(tg_mul_scalar(value, 0.5), tg_mean(gain)), tg_mul_scalar(entropy, 0.01));
}

/* Eight columns of categories, and size[1] of numbers */
static tg_tensor *tabular(void)
{
    const int64_t B = now.size[0];
    tg_tensor *column[9], *x;
    for (int i = 0; i < 8; ++i) column[i] = embedding(given_labels(TG_SHAPE(B), 100), 100, 8);
    column[8] = batch_norm(given(TG_SHAPE(B, now.size[1])));
    x = tg_cat(column, 9, 1);
    for (int i = 0; i < 3; ++i) x = batch_norm(tg_relu(linear(x, 256)));
    x = linear(x, 1);
    return tg_binary_cross_entropy_with_logits(x, tg_to_dtype(given_labels(TG_SHAPE(B, 1), 2), TG_F32), NULL, TG_MEAN,
                                               NULL);
}

/* A normalizing flow: each layer scales and shifts one half by functions of the other. */
static tg_tensor *flow(void)
{
    const int64_t half_width = now.size[1] / 2;
    tg_tensor *x = observations(), *volume = NULL, *a, *b, *change, *scale, *energy;
    for (int i = 0; i < 6; ++i) {
        a = tg_narrow(x, 1, 0, half_width);
        b = tg_narrow(x, 1, half_width, half_width);
        change = mlp(a, 64, 2, 2 * half_width, tg_relu);
        scale = tg_tanh(tg_narrow(change, 1, 0, half_width));
        b = tg_add(tg_mul(b, tg_exp(scale)), tg_narrow(change, 1, half_width, half_width));
        scale = tg_sum_dim(scale, 1, false);
        volume = volume ? tg_add(volume, scale) : scale;
        x = tg_cat(TG_LIST(b, a), 1);
    }
    energy = tg_mul_scalar(tg_sum_dim(tg_square(x), 1, false), 0.5);
    return tg_mean(tg_sub(energy, volume));
}

/* Predicts the noise in a point. */
static tg_tensor *diffusion_mlp(void)
{
    tg_tensor *x = observations(), *target = observations(), *time = given(TG_SHAPE(now.size[0], 1)), *angles;
    angles = tg_mul(time, tg_exp(tg_mul_scalar(tg_arange(0, 16, 1), 0.25)));
    x = tg_add(tg_mul_scalar(x, 0.8), tg_mul_scalar(target, 0.6));
    x = linear(tg_cat(TG_LIST(x, tg_sin(angles), tg_cos(angles)), 1), 256);
    for (int i = 0; i < 3; ++i) x = tg_add(x, linear(tg_silu(layer_norm(x)), 256));
    return tg_mse_loss(linear(x, now.size[1]), target, TG_MEAN);
}

static tg_tensor *autoencoder(void)
{
    tg_tensor *x = observations(), *y = mlp(x, 256, 1, 32, tg_relu);
    return tg_mse_loss(mlp(tg_relu(y), 256, 1, now.size[1], tg_relu), x, TG_MEAN);
}

/* sizes: examples of a task, width.  The loss after three steps of training; backward goes through these steps. */
static tg_tensor *maml(void)
{
    const int64_t B = now.size[0], width = now.size[1];
    tg_tensor *first[4], *w[4], *gradient[4], *x, *y, *loss = tg_zeros(TG_SCALAR);
    first[0] = parameter(TG_SHAPE(width, 1));
    first[1] = parameter(TG_SHAPE(1, width));
    first[2] = parameter(TG_SHAPE(width, width));
    first[3] = parameter(TG_SHAPE(1, width));
    for (int task = 0; task < 4; ++task) {
        x = given(TG_SHAPE(B, 1));
        y = tg_sin(tg_mul_scalar(x, task + 1));
        memcpy(w, first, sizeof w);
        for (int i = 0;; ++i) {
            tg_tensor *h = tg_tanh(tg_add(tg_linear(x, w[0], NULL), w[1]));
            h = tg_linear(tg_tanh(tg_linear(h, w[2], NULL)), w[3], NULL);
            h = tg_mse_loss(h, y, TG_MEAN);
            if (i == 3) loss = tg_add(loss, h);
            if (i == 3) break;
            tg_gradients(&h, 1, NULL, w, 4, gradient, TG_CREATE_GRAPH);
            for (int k = 0; k < 4; ++k) w[k] = tg_sub(w[k], tg_mul_scalar(gradient[k], 0.1));
        }
    }
    return loss;
}

/* sizes: networks, width.  A network makes the weights of others. */
static tg_tensor *hypernetwork(void)
{
    const int64_t B = now.size[0], width = now.size[1];
    tg_tensor *weights = mlp(noise(), 64, 1, 18 * width, tg_relu), *x = given(TG_SHAPE(B, 64, 16));
    tg_tensor *first = tg_view(tg_narrow(weights, 1, 0, 16 * width), TG_SHAPE(B, 16, width));
    tg_tensor *second = tg_view(tg_narrow(weights, 1, 16 * width, 2 * width), TG_SHAPE(B, width, 2));
    x = tg_bmm(tg_tanh(tg_bmm(x, first)), second);
    return tg_mse_loss(x, given(tg_shape_of(x)), TG_MEAN);
}

/* sizes: points, width.  Burgers' equation u_t + u u_x = 0.01 u_xx for u(x, t), and u itself at the points */
static tg_tensor *pinn(void)
{
    const int64_t B = now.size[0];
    tg_tensor *at = tg_set_requires_grad(tg_detach(given(TG_SHAPE(B, 2))), true), *u, *slope, *u_x, *curve, *sum, *rest;
    u = mlp(at, now.size[1], 3, 1, tg_tanh);
    sum = tg_sum(u);
    tg_gradients(&sum, 1, NULL, &at, 1, &slope, TG_CREATE_GRAPH);
    u_x = tg_narrow(slope, 1, 0, 1);
    sum = tg_sum(u_x);
    tg_gradients(&sum, 1, NULL, &at, 1, &curve, TG_CREATE_GRAPH);
    rest = tg_add(tg_narrow(slope, 1, 1, 1), tg_mul(u, u_x));
    rest = tg_sub(rest, tg_mul_scalar(tg_narrow(curve, 1, 0, 1), 0.01));
    return tg_add(tg_mean(tg_square(rest)), tg_mse_loss(u, given(TG_SHAPE(B, 1)), TG_MEAN));
}

/* ---- training, and the table ----------------------------------------------------------------------------------- */

static const row rows[] = {
    {"resnet18", {resnet18, NULL}, SGD},
    {"mobilenet", {mobilenet, NULL}, RMSPROP},
    {"vit", {vit, NULL}, ADAMW},
    {"unet", {unet, NULL}, ADAM},
    {"ddpm", {ddpm, NULL}, ADAM},
    {"vae", {vae, NULL}, ADAM},
    {"dcgan", {dcgan_critic, dcgan_generator}, ADAM},
    {"wgan_gp", {wgan_gp_critic, wgan_gp_generator}, ADAM},
    {"simclr", {simclr, NULL}, SGD},
    {"deeplab", {deeplab, NULL}, SGD},
    {"style", {NULL, style}, ADAM},
    {"transfer", {NULL, transfer}, SGD},
    {"vgg", {vgg, NULL}, SGD},
    {"siamese", {siamese, NULL}, ADAM},
    {"densenet", {densenet, NULL}, SGD},
    {"super_resolution", {super_resolution, NULL}, ADAM},
    {"lstm_lm", {lstm_lm, NULL}, ADAM},
    {"seq2seq", {seq2seq, NULL}, ADAM},
    {"bert", {bert, NULL}, ADAMW},
    {"llama", {llama, NULL}, ADAMW},
    {"tcn", {tcn, NULL}, ADAM},
    {"mamba", {mamba, NULL}, ADAM},
    {"gcn", {gcn, NULL}, ADAM},
    {"gat", {gat, NULL}, ADAM},
    {"kmeans", {kmeans, NULL}, NOTHING},
    {"word2vec", {word2vec, NULL}, ADAM},
    {"factorisation", {factorisation, NULL}, ADAM},
    {"dqn", {dqn, NULL}, ADAM},
    {"ppo", {ppo, NULL}, ADAM},
    {"tabular", {tabular, NULL}, ADAM},
    {"flow", {flow, NULL}, ADAM},
    {"diffusion_mlp", {diffusion_mlp, NULL}, ADAM},
    {"autoencoder", {autoencoder, NULL}, ADAM},
    {"maml", {maml, NULL}, ADAM},
    {"hypernetwork", {hypernetwork, NULL}, ADAM},
    {"pinn", {pinn, NULL}, ADAM},
    {NULL, {NULL, NULL}, NOTHING},
};

/* The loss of a part; its layers are those of this part unless the function says otherwise. */
static tg_tensor *loss_of(int part)
{
    program.input = 0;
    begin(part);
    return program.row->loss[part]();
}

static double train_program(void)
{
    double sum = 0;
    for (int part = 0; part < MOST_PARTS; ++part) {
        TG_SCOPE;
        tg_tensor *loss;
        if (!program.row->loss[part]) continue;
        if (program.optim[part]) tg_optim_zero_grad(program.optim[part]);
        loss = loss_of(part);
        if (program.optim[part]) tg_backward(loss), tg_step(program.optim[part]);
        sum += tg_item(loss);
    }
    return sum;
}

static tg_optim *optimizer_of(tg_module *part)
{
    tg_tensor *const *params = tg_module_params(part);
    const int n = tg_module_count(part);
    tg_optim *optim;
    switch (program.row->optimizer) {
    case ADAM: return tg_adam(params, n, 3e-4);
    case ADAMW: return tg_adamw(params, n, 3e-4);
    case RMSPROP: return tg_rmsprop(params, n, 1e-4);
    default: optim = tg_sgd(params, n, 0.01);
    }
    if (optim) optim->momentum = 0.9, optim->nesterov = true;
    return optim;
}

static void setup_program(void)
{
    program.row = rows;
    while (program.row->name && strcmp(program.row->name, now.options) != 0) ++program.row;
    if (!program.row->name || now.sizes < 2) return;
    program.net = tg_module_new("Program", NULL, 0);
    program.part[0] = tg_module_child(program.net, "0", tg_module_new("Part", NULL, 0));
    program.part[1] = tg_module_child(program.net, "1", tg_module_new("Part", NULL, 0));
    now.mode = TRAIN;
    now.train = train_program;
    if (program.row->optimizer == NOTHING) return;
    for (int part = 0; part < MOST_PARTS; ++part)
        if (program.row->loss[part]) loss_of(part);
    first_weights(program.net);
    for (int part = 0; part < MOST_PARTS; ++part)
        if (program.row->loss[part]) program.optim[part] = optimizer_of(program.part[part]);
}

const kind program_kinds[] = {{"program", setup_program, NULL, NULL, NULL}, {NULL, NULL, NULL, NULL, NULL}};

void end_program(void)
{
    for (int part = 0; part < MOST_PARTS; ++part) tg_optim_free(program.optim[part]);
    tg_module_free(program.net);
    tg_release_all(program.given, MOST_GIVEN);
    memset(&program, 0, sizeof program);
}
