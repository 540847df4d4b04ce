/* vit.c: a Vision Transformer as Hugging Face has it on disk (ViTForImageClassification), with the weights where they
   are in the file, names what is in an image.

       cc -O2 -fopenmp vit.c -o vit -lm
       ./vit FOLDER cat.ppm

   READ    forward(), the model in twenty lines; then image.h, how an image becomes its pixels.
   CHANGE  leave out the positions, and see that a ViT hardly knows where things are. */
#define TENSORGRAD_IMPLEMENTATION
#include "image.h"

typedef struct { affine norm1, norm2, q, k, v, o, up, down; } layer;

typedef struct {
    tg_tensor *token, *position; /* [1, 1, width] and [1, 1 + patches, width] */
    affine patch, norm, head;
    layer layers[LAYERS];
    int64_t n_layers, heads, rows, columns; /* the last two: of the patches of an image */
    double eps;
    bool tanh_gelu;
    weights w;
} vit;

static tg_tensor *linear(const affine *l, tg_tensor *x) { return tg_linear(x, l->weight, l->bias); }

static tg_tensor *norm(const vit *v, const affine *l, tg_tensor *x)
{
    return tg_layer_norm(x, 1, l->weight, l->bias, v->eps);
}

static tg_tensor *attention(const vit *v, const layer *l, tg_tensor *x)
{
    tg_tensor *q = split_heads(linear(&l->q, x), v->heads), *k = split_heads(linear(&l->k, x), v->heads);
    tg_tensor *values = split_heads(linear(&l->v, x), v->heads);
    return linear(&l->o, join_heads(tg_scaled_dot_product_attention(q, k, values, NULL, 0, false, 0)));
}

/* x [N, patches, width] -> [N, width, rows, columns] */
static tg_tensor *as_image(tg_tensor *x, int64_t rows, int64_t columns)
{
    return tg_unflatten(tg_transpose(x, 1, 2), 2, TG_SHAPE(rows, columns));
}

static tg_tensor *as_patches(tg_tensor *x) { return tg_transpose(tg_flatten(x, 2, 3), 1, 2); }

/* The positions of an image of this size in patches: where the model has learned another one, between those of the file
   (interpolate_pos_encoding of transformers). */
static tg_tensor *positions(const vit *v, int64_t rows, int64_t columns)
{
    if (rows == v->rows && columns == v->columns) return v->position;
    tg_tensor *token = tg_narrow(v->position, 1, 0, 1), *rest = tg_narrow(v->position, 1, 1, v->rows * v->columns);
    rest = tg_interpolate_ex(as_image(rest, v->rows, v->columns), TG_SHAPE(rows, columns), 0, "bicubic", false);
    return tg_cat(TG_LIST(token, as_patches(rest)), 1);
}

/* The image is cut into patches, each a token; one more token, in front, gathers what the classes are read from. */
static tg_tensor *forward(void *self, tg_tensor *pixels)
{
    const vit *v = (const vit *)self;
    const tg_shape patch = TG_SHAPE(tg_dim(v->patch.weight, 2), tg_dim(v->patch.weight, 3));
    tg_tensor *x = tg_conv2d(pixels, v->patch.weight, v->patch.bias, patch, TG_SHAPE(0, 0), TG_SHAPE(1, 1), 1);
    tg_tensor *position = positions(v, tg_dim(x, 2), tg_dim(x, 3));
    x = as_patches(x);
    tg_tensor *token = tg_expand(v->token, TG_SHAPE(tg_dim(x, 0), 1, tg_dim(x, 2)));
    x = tg_add(tg_cat(TG_LIST(token, x), 1), position);
    for (int64_t i = 0; i < v->n_layers && x; ++i) {
        const layer *l = &v->layers[i];
        x = tg_add(x, attention(v, l, norm(v, &l->norm1, x)));
        tg_tensor *h = norm(v, &l->norm2, x);
        x = tg_add(x, linear(&l->down, tg_linear_gelu(h, l->up.weight, l->up.bias, v->tanh_gelu)));
    }
    return linear(&v->head, norm(v, &v->norm, tg_select(x, 1, 0)));
}

/* ---- the file ---- */

static affine read_part(vit *v, const char *format, int64_t i, bool has_bias)
{
    affine l = {NULL, NULL};
    char name[256];
    snprintf(name, sizeof name, "%s.weight", format);
    l.weight = required(&v->w, name, i);
    snprintf(name, sizeof name, "%s.bias", format);
    if (has_bias) l.bias = required(&v->w, name, i);
    return l;
}

static void read_layer(vit *v, int64_t i, bool qkv_bias)
{
    layer *const l = &v->layers[i];
    l->norm1 = read_part(v, "vit.layers.%d.layernorm_before", i, true);
    l->norm2 = read_part(v, "vit.layers.%d.layernorm_after", i, true);
    l->q = read_part(v, "vit.layers.%d.attention.q_proj", i, qkv_bias);
    l->k = read_part(v, "vit.layers.%d.attention.k_proj", i, qkv_bias);
    l->v = read_part(v, "vit.layers.%d.attention.v_proj", i, qkv_bias);
    l->o = read_part(v, "vit.layers.%d.attention.o_proj", i, true);
    l->up = read_part(v, "vit.layers.%d.mlp.fc1", i, true);
    l->down = read_part(v, "vit.layers.%d.mlp.fc2", i, true);
}

/* What the files on the hub call a layer's weights, and what the modules of transformers do; a file may have either. */
static const tg_rename names[] = {
    {"vit.encoder.layer.*.attention.attention.query.*", "vit.layers.*.attention.q_proj.*", false},
    {"vit.encoder.layer.*.attention.attention.key.*", "vit.layers.*.attention.k_proj.*", false},
    {"vit.encoder.layer.*.attention.attention.value.*", "vit.layers.*.attention.v_proj.*", false},
    {"vit.encoder.layer.*.attention.output.dense.*", "vit.layers.*.attention.o_proj.*", false},
    {"vit.encoder.layer.*.intermediate.dense.*", "vit.layers.*.mlp.fc1.*", false},
    {"vit.encoder.layer.*.output.dense.*", "vit.layers.*.mlp.fc2.*", false},
    {"vit.encoder.layer.*", "vit.layers.*", false},
    {"vit.pooler.*", NULL, false}, /* of the model without classes */
};

static bool read_sizes(vit *v, const json *config)
{
    const char *activation = json_text(config, "hidden_act", "gelu");
    v->n_layers = (int64_t)json_number(config, "num_hidden_layers", 12);
    v->heads = (int64_t)json_number(config, "num_attention_heads", 12);
    v->eps = json_number(config, "layer_norm_eps", 1e-12);
    v->tanh_gelu = !strcmp(activation, "gelu_new") || !strcmp(activation, "gelu_pytorch_tanh");
    const bool ok = json_is(config, "model_type", "vit") && v->n_layers >= 1 && v->n_layers <= LAYERS &&
                    v->heads >= 1 && (v->tanh_gelu || !strcmp(activation, "gelu"));
    if (!ok) fprintf(stderr, "config.json is not that of a ViT\n");
    return ok;
}

static vit network;

static bool read_network(model *m, const char *folder, const json *config)
{
    vit *const v = &network;
    const bool qkv_bias = json_number(config, "qkv_bias", 1) != 0;
    if (!read_sizes(v, config) || !open_weights(&v->w, folder)) return false;
    if (tg_dict_rename(v->w.file, names, (int)(sizeof names / sizeof *names)) != TG_OK) return false;
    v->token = required(&v->w, "vit.embeddings.cls_token", 0);
    v->position = required(&v->w, "vit.embeddings.position_embeddings", 0);
    v->patch = read_part(v, "vit.embeddings.patch_embeddings.projection", 0, true);
    for (int64_t i = 0; i < v->n_layers; ++i) read_layer(v, i, qkv_bias);
    v->norm = read_part(v, "vit.layernorm", 0, true);
    v->head = read_part(v, "classifier", 0, true);
    if (!all_taken(&v->w)) return false;
    if (tg_ndim(v->patch.weight) != 4 || tg_dim(v->patch.weight, 2) < 1 || tg_dim(v->patch.weight, 3) < 1) {
        fprintf(stderr, "not of patches: vit.embeddings.patch_embeddings.projection.weight\n");
        return false;
    }
    const json *height = json_first(json_get(config, "image_size")), *width = json_next(height); /* or one number */
    const double side = json_number(config, "image_size", 224);
    const int64_t high = (int64_t)(width ? height->number : side), wide = (int64_t)(width ? width->number : side);
    v->rows = high / tg_dim(v->patch.weight, 2);
    v->columns = wide / tg_dim(v->patch.weight, 3);
    const processor pixels = {high, wide, 0, 0, false, false, 1.0 / 255, {0.5, 0.5, 0.5}, {0.5, 0.5, 0.5}};
    const model described = {v, forward, tg_dtype_of(v->token), pixels};
    *m = described;
    return true;
}

int main(int argc, char **argv) { return run_model(argc, argv, &network.w, read_network); }
