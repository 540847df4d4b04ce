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

enum { MOST_PARTS = 2, MOST_GIVEN = 8 };

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
