/* resnet.c: a ResNet by the names of torchvision (resnet18 to resnet152, and wide ones and ResNeXts, which differ in
   their shapes alone) or of Hugging Face (ResNetForImageClassification), with the weights where they are in the file,
   names what is in an image.

       cc -O2 -fopenmp resnet.c -o resnet -lm
       python3 -c 'import torchvision.models as m, safetensors.torch as s
       s.save_file(m.resnet50(weights="DEFAULT").state_dict(), "FOLDER/model.safetensors")'
       ./resnet FOLDER --classes imagenet.txt cat.ppm

   A file of torchvision's has no config.json: its names say which blocks there are, and of how many convolutions.
   READ    forward(), the model in ten lines, and residual(), its block; then image.h, how an image becomes its pixels.
   CHANGE  use the batch's own mean and variance, training = true, and see what one image alone then gives. */
#define TENSORGRAD_IMPLEMENTATION
#include "image.h"

enum { STAGES = 4, BLOCKS = 128 };

typedef struct {
    tg_tensor *weight;                          /* of the convolution [out, in / groups, n, n], without a bias */
    tg_tensor *scale, *shift, *mean, *variance; /* of the batch norm behind it [out] */
    int64_t stride;
} layer;

typedef struct {
    layer part[3], shortcut; /* shortcut.weight is NULL where the input is added as it is */
    int parts;
} block;

typedef struct {
    layer stem;
    block blocks[BLOCKS];
    int n_blocks;
    tg_tensor *head_weight, *head_bias;
    weights w;
} resnet;

static tg_tensor *convolve(const layer *l, tg_tensor *x)
{
    const int64_t half = tg_dim(l->weight, 2) / 2, groups = tg_dim(x, 1) / tg_dim(l->weight, 1);
    const tg_shape stride = TG_SHAPE(l->stride, l->stride);
    x = tg_conv2d(x, l->weight, NULL, stride, TG_SHAPE(half, half), TG_SHAPE(1, 1), groups);
    return tg_batch_norm(x, l->mean, l->variance, l->scale, l->shift, false, 0.1, 1e-5);
}

static tg_tensor *residual(const block *b, tg_tensor *x)
{
    tg_tensor *y = x;
    for (int i = 0; i < b->parts; ++i) y = convolve(&b->part[i], i ? tg_relu(y) : y);
    return tg_relu(tg_add(y, b->shortcut.weight ? convolve(&b->shortcut, x) : x));
}

static tg_tensor *forward(void *self, tg_tensor *pixels)
{
    const resnet *r = (const resnet *)self;
    tg_tensor *x = tg_relu(convolve(&r->stem, pixels));
    x = tg_max_pool2d(x, TG_SHAPE(3, 3), TG_SHAPE(2, 2), TG_SHAPE(1, 1));
    for (int i = 0; i < r->n_blocks && x; ++i) x = residual(&r->blocks[i], x);
    x = tg_mean_dims(x, TG_DIMS(2, 3), false);
    return tg_linear(x, r->head_weight, r->head_bias);
}

/* ---- the file ---- */

/* Hugging Face's names become torchvision's: first the stages, then what is in a block. */
static const tg_rename stages[] = {
    {"*.num_batches_tracked", NULL, false},
    {"resnet.embedder.embedder.convolution.*", "conv1.*", false},
    {"resnet.embedder.embedder.normalization.*", "bn1.*", false},
    {"resnet.encoder.stages.0.layers.*", "layer1.*", false},
    {"resnet.encoder.stages.1.layers.*", "layer2.*", false},
    {"resnet.encoder.stages.2.layers.*", "layer3.*", false},
    {"resnet.encoder.stages.3.layers.*", "layer4.*", false},
    {"classifier.1.*", "fc.*", false},
};
static const tg_rename parts[] = {
    {"*.layer.0.convolution.*", "*.conv1.*", false}, {"*.layer.0.normalization.*", "*.bn1.*", false},
    {"*.layer.1.convolution.*", "*.conv2.*", false}, {"*.layer.1.normalization.*", "*.bn2.*", false},
    {"*.layer.2.convolution.*", "*.conv3.*", false}, {"*.layer.2.normalization.*", "*.bn3.*", false},
    {"*.shortcut.convolution.*", "*.downsample.0.*", false}, {"*.shortcut.normalization.*", "*.downsample.1.*", false},
};

/* PREFIXCONVOLUTION.weight and the four of PREFIXNORM */
static layer read_layer(resnet *r, const char *prefix, const char *convolution, const char *norm, int64_t stride)
{
    static const char *const of_norm[] = {"weight", "bias", "running_mean", "running_var"};
    tg_tensor *t[4];
    char name[256];
    for (int i = 0; i < 4; ++i) {
        snprintf(name, sizeof name, "%s%s.%s", prefix, norm, of_norm[i]);
        t[i] = required(&r->w, name, 0);
    }
    snprintf(name, sizeof name, "%s%s.weight", prefix, convolution);
    const layer l = {required(&r->w, name, 0), t[0], t[1], t[2], t[3], stride};
    if (l.weight && (tg_ndim(l.weight) != 4 || tg_dim(l.weight, 1) < 1)) {
        fprintf(stderr, "not of a convolution: %s\n", name);
        ++r->w.missing;
    }
    return l;
}

/* A block that shrinks the image does so in its first convolution of 3x3, or where `early` in its first of all.  Its
   input is added through a convolution where it has other channels than the output, or is larger. */
static void read_block(resnet *r, const char *prefix, int n_parts, int64_t stride, bool early)
{
    static const char *const conv[] = {"conv1", "conv2", "conv3"}, *const bn[] = {"bn1", "bn2", "bn3"};
    block *const b = &r->blocks[r->n_blocks++];
    b->parts = n_parts;
    for (int i = 0; i < n_parts; ++i) {
        const int shrinks = n_parts == 3 && !early ? 1 : 0;
        b->part[i] = read_layer(r, prefix, conv[i], bn[i], i == shrinks ? stride : 1);
    }
    const tg_tensor *const in = b->part[0].weight, *const out = b->part[n_parts - 1].weight;
    if (stride > 1 || (in && out && tg_dim(in, 1) != tg_dim(out, 0)))
        b->shortcut = read_layer(r, prefix, "downsample.0", "downsample.1", stride);
}

/* How many blocks each stage has, and of 2 or 3 convolutions, by the names in the file */
static int find_blocks(tg_dict *file, int64_t *depth)
{
    int n_parts = 2;
    for (int i = 0; i < tg_dict_count(file); ++i) {
        int stage, b;
        const char *name = tg_dict_name(file, i);
        if (sscanf(name, "layer%d.%d.", &stage, &b) != 2 || stage < 1 || stage > STAGES || b < 0) continue;
        if (depth[stage - 1] <= b) depth[stage - 1] = b + 1;
        if (strstr(name, ".conv3.")) n_parts = 3;
    }
    return n_parts;
}

/* config.json, where there is one, says the same as the names, and so finds a block that is missing. */
static bool read_sizes(const json *config, int64_t *depth, int *n_parts)
{
    const json *list = json_get(config, "depths"), *d = json_first(list);
    const char *const kind = json_text(config, "layer_type", "bottleneck");
    const bool basic = !strcmp(kind, "basic"), known = basic || !strcmp(kind, "bottleneck");
    if (config && json_is(config, "model_type", "resnet") && list && list->count <= STAGES && known &&
        !strcmp(json_text(config, "hidden_act", "relu"), "relu")) {
        for (int s = 0; s < STAGES; ++s, d = json_next(d)) depth[s] = d ? (int64_t)d->number : 0;
        *n_parts = basic ? 2 : 3;
    } else if (config) {
        fprintf(stderr, "config.json is not that of a ResNet\n");
        return false;
    }
    if (depth[0] >= 1 && depth[0] + depth[1] + depth[2] + depth[3] <= BLOCKS) return true;
    fprintf(stderr, "there are no blocks layer1.0 and on, or too many\n");
    return false;
}

static resnet network;

static bool read_network(model *m, const char *folder, const json *config)
{
    resnet *const r = &network;
    int64_t depth[STAGES] = {0, 0, 0, 0};
    if (!open_weights(&r->w, folder)) return false;
    if (tg_dict_rename(r->w.file, stages, (int)(sizeof stages / sizeof *stages)) != TG_OK) return false;
    if (tg_dict_rename(r->w.file, parts, (int)(sizeof parts / sizeof *parts)) != TG_OK) return false;
    int n_parts = find_blocks(r->w.file, depth);
    if (!read_sizes(config, depth, &n_parts)) return false;
    const bool early = json_number(config, "downsample_in_bottleneck", 0) != 0;
    const int64_t first = json_number(config, "downsample_in_first_stage", 0) != 0 ? 2 : 1;
    r->stem = read_layer(r, "", "conv1", "bn1", 2);
    for (int s = 0; s < STAGES; ++s) {
        for (int64_t b = 0; b < depth[s]; ++b) {
            char prefix[64];
            snprintf(prefix, sizeof prefix, "layer%d.%d.", s + 1, (int)b);
            read_block(r, prefix, n_parts, b > 0 ? 1 : s > 0 ? 2 : first, early);
        }
    }
    r->head_weight = required(&r->w, "fc.weight", 0);
    r->head_bias = required(&r->w, "fc.bias", 0);
    if (!all_taken(&r->w)) return false;
    const processor imagenet = {256, 0, 224, 224, false, true, 1.0 / 255, {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
    const model described = {r, forward, tg_dtype_of(r->head_weight), imagenet};
    *m = described;
    return true;
}

int main(int argc, char **argv) { return run_model(argc, argv, &network.w, read_network); }
