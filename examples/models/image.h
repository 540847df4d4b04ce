/* image.h: what vit.c and resnet.c share: images in PPM, made the pixels that a model takes as the processors of
   transformers and torchvision make them, and the names of the likeliest classes.

   An image is resized as bytes, first its rows, then its columns, by a filter that is stretched where the image becomes
   smaller, so that each pixel counts (antialiasing; F.interpolate and tg_interpolate look at the nearest ones alone).
   The weights of the filter are integers, of 22 bits behind the point in Pillow, and of as many as let the largest stay
   below 2^15 in torchvision's tensors, which the processors of transformers are.  Each byte is equal to theirs. */
#ifndef IMAGE_H
#define IMAGE_H
#include "weights.h"
#include <ctype.h>

enum { IMAGES = 64 };

typedef struct {
    const char *folder, *classes, *save, *path[IMAGES];
    int images;
    int64_t best;
} options;

/* What preprocessor_config.json says. */
typedef struct {
    int64_t height, width;           /* of the whole image; width 0: the shorter edge becomes height; 0, 0: as it is */
    int64_t crop_height, crop_width; /* of what is kept of its middle; 0, 0: all */
    bool bicubic, pillow;            /* pillow: as torchvision does with an image of Pillow's, not with a tensor */
    double scale, mean[3], std[3];   /* a pixel is (byte * scale - mean) / std */
} processor;

typedef struct {
    void *self;
    tg_tensor *(*forward)(void *self, tg_tensor *pixels); /* [N, 3, H, W] -> logits [N, classes] */
    tg_dtype dtype;
    processor otherwise; /* where the folder has no preprocessor_config.json */
} model;

typedef struct {
    uint8_t *rgb; /* [height, width, 3], from malloc */
    int64_t height, width;
} image;

/* ---- images ---- */

/* A number of a PPM's head, behind white space and comments; -1 if there is none. */
static inline int64_t ppm_number(FILE *f)
{
    int c = fgetc(f);
    for (; c == '#' || isspace(c); c = fgetc(f)) {
        const bool comment = c == '#';
        while (comment && c != '\n' && c != EOF) c = fgetc(f);
    }
    int64_t number = isdigit(c) ? 0 : -1;
    for (; isdigit(c) && number < 1 << 20; c = fgetc(f)) number = 10 * number + (c - '0');
    return number;
}

/* rgb is NULL, after saying why, if the file is no PPM of bytes (P6, maximum 255). */
static inline image read_ppm(const char *path)
{
    image m = {NULL, 0, 0};
    FILE *f = fopen(path, "rb");
    if (f && fgetc(f) == 'P' && fgetc(f) == '6') {
        m.width = ppm_number(f);
        m.height = ppm_number(f);
        const bool bytes = ppm_number(f) == 255 && m.width > 0 && m.height > 0 && m.width * m.height < 1 << 30;
        const size_t size = bytes ? (size_t)(3 * m.width * m.height) : 0;
        if (size && (m.rgb = (uint8_t *)malloc(size)) != NULL && fread(m.rgb, 1, size, f) != size) {
            free(m.rgb);
            m.rgb = NULL;
        }
    }
    if (f) fclose(f);
    if (!m.rgb) fprintf(stderr, "%s is not there, or is no whole PPM (P6) of 8 bits\n", path);
    return m;
}

/* Triangle of bilinear, and Keys' cubic with a = -1/2, of bicubic */
static inline double filter(double x, bool bicubic)
{
    x = fabs(x);
    if (!bicubic) return x < 1 ? 1 - x : 0;
    return x < 1 ? (1.5 * x - 2.5) * x * x + 1 : x < 2 ? (((x - 5) * x + 8) * x - 4) * -0.5 : 0;
}

/* The weights of the elements *first to *first + the result, of `in`, that make element o of `out` */
static inline int64_t taps(int64_t in, int64_t out, int64_t o, bool bicubic, int64_t *first, double *weight)
{
    const double scale = (double)in / (double)out, stretch = scale > 1 ? scale : 1;
    const double center = ((double)o + 0.5) * scale, radius = (bicubic ? 2 : 1) * stretch;
    const int64_t begin = (int64_t)(center - radius + 0.5), end = (int64_t)(center + radius + 0.5);
    double sum = 0;
    *first = begin > 0 ? begin : 0;
    const int64_t n = (end < in ? end : in) - *first;
    for (int64_t i = 0; i < n; ++i) {
        weight[i] = filter(((double)(i + *first) - center + 0.5) * (1 / stretch), bicubic);
        sum += weight[i];
    }
    for (int64_t i = 0; i < n; ++i) weight[i] /= sum;
    return n;
}

/* [outer, in, inner] -> [outer, out, inner], from malloc */
static inline uint8_t *resized(const uint8_t *x, int64_t outer, int64_t in, int64_t inner, int64_t out,
                               const processor *p)
{
    const size_t most = 4 * (size_t)(in > out ? in / out + 1 : 1) + 4;
    double *weight = (double *)malloc(most * sizeof *weight), largest = 0;
    int64_t *fixed = (int64_t *)malloc(most * sizeof *fixed), first;
    uint8_t *y = (uint8_t *)malloc((size_t)(outer * out * inner));
    bool ok = weight && fixed && y;
    for (int64_t o = 0; o < out && ok; ++o) {
        const int64_t n = taps(in, out, o, p->bicubic, &first, weight);
        for (int64_t i = 0; i < n; ++i) largest = weight[i] > largest ? weight[i] : largest;
    }
    int bits = p->pillow ? 22 : 0;
    while (bits < 22 && (int)(0.5 + largest * (double)(1 << (bits + 1))) < 1 << 15) ++bits;
    for (int64_t o = 0; o < out && ok; ++o) {
        const int64_t n = taps(in, out, o, p->bicubic, &first, weight);
        for (int64_t i = 0; i < n; ++i)
            fixed[i] = (int64_t)(weight[i] * (double)(1 << bits) + (weight[i] < 0 ? -0.5 : 0.5));
        for (int64_t k = 0; k < outer * inner; ++k) {
            const uint8_t *from = x + (k / inner * in + first) * inner + k % inner;
            int64_t sum = (int64_t)1 << (bits - 1);
            for (int64_t i = 0; i < n; ++i) sum += fixed[i] * from[i * inner];
            sum = sum < 0 ? 0 : sum >> bits;
            y[(k / inner * out + o) * inner + k % inner] = (uint8_t)(sum < 255 ? sum : 255);
        }
    }
    free(weight);
    free(fixed);
    if (ok) return y;
    free(y);
    return NULL;
}

static inline void resize(image *m, const processor *p)
{
    int64_t height = p->height, width = p->width;
    const bool wide = m->width > m->height;
    if (height && !width) { /* the longer edge by the ratio, rounded down */
        const double longer = (double)(wide ? m->width : m->height), shorter = (double)(wide ? m->height : m->width);
        const int64_t rest = (int64_t)((double)p->height * longer / shorter);
        height = wide ? p->height : rest;
        width = wide ? rest : p->height;
    }
    if (!height) return;
    uint8_t *rows = resized(m->rgb, m->height, m->width, 3, width, p);
    free(m->rgb);
    m->rgb = rows ? resized(rows, 1, m->height, width * 3, height, p) : NULL;
    free(rows);
    m->height = height;
    m->width = width;
}

/* Where the middle begins; negative: as many zeros are in front.  torchvision rounds a half to the even number. */
static inline int64_t middle(int64_t has, int64_t takes, bool pillow)
{
    const int64_t rest = has - takes;
    return rest < 0 ? -(-rest / 2) : rest / 2 + (pillow && rest % 4 == 3);
}

/* Pixels [1, 3, height, width] f32 of a file */
static inline tg_tensor *read_image(const char *path, const processor *p)
{
    image m = read_ppm(path);
    if (m.rgb) resize(&m, p);
    if (!m.rgb) return NULL;
    const int64_t height = p->crop_height ? p->crop_height : m.height, width = p->crop_width ? p->crop_width : m.width;
    const int64_t top = middle(m.height, height, p->pillow), left = middle(m.width, width, p->pillow);
    tg_tensor *pixels = tg_empty(TG_SHAPE(1, 3, height, width));
    float *to = tg_data_f32(pixels);
    for (int64_t i = 0; i < 3 * height * width && to; ++i) {
        const int64_t c = i / (height * width), y = i / width % height + top, x = i % width + left;
        const bool inside = y >= 0 && y < m.height && x >= 0 && x < m.width;
        const double byte = inside ? m.rgb[(y * m.width + x) * 3 + c] : 0;
        to[i] = (float)((byte * p->scale - p->mean[c]) / p->std[c]);
    }
    free(m.rgb);
    return pixels;
}

/* ---- what preprocessor_config.json says ---- */

static inline void read_size(const json *size, int64_t *height, int64_t *width, bool square)
{
    const double edge = size && size->kind == JSON_NUMBER ? size->number : 0;
    const double shortest = json_number(size, "shortest_edge", 0);
    *height = (int64_t)(edge > 0 ? edge : shortest > 0 ? shortest : json_number(size, "height", 0));
    *width = (int64_t)(edge > 0 ? (square ? edge : 0) : shortest > 0 ? 0 : json_number(size, "width", 0));
}

static inline void read_channels(const json *list, double *to)
{
    const json *number = json_first(list);
    for (int c = 0; c < 3 && number; ++c, number = json_next(number)) to[c] = number->number;
}

/* Each kind of processor has defaults of its own; those of ViT and of ConvNext, which ResNets have, are known. */
static inline bool read_processor(processor *p, const char *folder)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/preprocessor_config.json", folder);
    FILE *there = fopen(path, "rb");
    if (!there) return true;
    fclose(there);
    json_document file = json_read(path);
    const json *c = file.node;
    const char *old = json_text(c, "feature_extractor_type", "ViT"), *kind = json_text(c, "image_processor_type", old);
    const bool convnext = !strncmp(kind, "ConvNext", 8);
    const processor vit = {224, 224, 0, 0, false, false, 1.0 / 255, {0.5, 0.5, 0.5}, {0.5, 0.5, 0.5}};
    *p = vit;
    if (convnext) p->height = 384;
    if (json_get(c, "size")) read_size(json_get(c, "size"), &p->height, &p->width, !convnext);
    if (convnext && p->height < 384) { /* a larger one is cut; from 384 on the whole image is pressed into a square */
        p->crop_height = p->crop_width = p->height;
        p->height = (int64_t)((double)p->height / json_number(c, "crop_pct", 0.875));
        p->width = 0;
    } else if (convnext) {
        p->width = p->height;
    }
    if (json_number(c, "do_resize", 1) == 0) p->height = p->width = p->crop_height = p->crop_width = 0;
    const json *crop = json_number(c, "do_center_crop", 0) != 0 ? json_get(c, "crop_size") : NULL;
    if (crop) read_size(crop, &p->crop_height, &p->crop_width, true);
    const double resample = json_number(c, "resample", convnext ? 3 : 2);
    p->bicubic = resample == 3;
    p->scale = json_number(c, "do_rescale", 1) != 0 ? json_number(c, "rescale_factor", p->scale) : 1;
    read_channels(json_get(c, "image_mean"), p->mean);
    read_channels(json_get(c, "image_std"), p->std);
    for (int i = 0; i < 3 && json_number(c, "do_normalize", 1) == 0; ++i) {
        p->mean[i] = 0;
        p->std[i] = 1;
    }
    const bool known = c && c->kind == JSON_OBJECT && (convnext || !strncmp(kind, "ViT", 3)) &&
                       (resample == 2 || p->bicubic);
    json_free(&file);
    if (known && p->height >= 0 && p->width >= 0 && p->crop_height >= 0 && p->crop_width >= 0) return true;
    fprintf(stderr, "%s is not that of a processor that is known here\n", path);
    return false;
}

/* ---- the program around a model ---- */

static inline int usage(const char *program)
{
    fprintf(stderr,
            "%s FOLDER [options] IMAGE.ppm..: names what is in each image.  FOLDER has model.safetensors, or\n"
            "  model.safetensors.index.json, and config.json and preprocessor_config.json, as from Hugging Face\n"
            "  --best 5            how many classes are printed, the likeliest first\n"
            "  --classes FILE      their names, one a line, instead of id2label of config.json\n"
            "  --threads 0         how many threads compute; 0: as many as there are processors\n"
            "  --save FILE         saves pixels [N, 3, H, W] and logits [N, classes] as safetensors\n", program);
    return 2;
}

static inline bool read_options(options *o, int argc, char **argv)
{
    memset(o, 0, sizeof *o);
    o->best = 5;
    for (int i = 1; i < argc; ++i) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strncmp(name, "--", 2) != 0) {
            if (!o->folder) o->folder = name;
            else if (o->images < IMAGES) o->path[o->images++] = name;
            else return false;
            continue;
        }
        if (!value) return false;
        if (!strcmp(name, "--best")) o->best = atoll(value);
        else if (!strcmp(name, "--classes")) o->classes = value;
        else if (!strcmp(name, "--threads")) tg_set_num_threads(atoi(value));
        else if (!strcmp(name, "--save")) o->save = value;
        else return false;
        ++i;
    }
    return o->folder && o->images > 0 && o->best > 0;
}

/* The lines of the file of names, which must be as many as there are classes, or "" without such a file; from malloc */
static inline char *read_names(const options *o, int64_t classes)
{
    size_t bytes = 0;
    if (!o->classes) return (char *)calloc(1, 1);
    char *names = read_whole(o->classes, &bytes);
    int64_t lines = 0;
    for (const char *at = names; at && *at; ++lines) {
        at += strcspn(at, "\n");
        at += *at == '\n';
    }
    if (names && lines == classes) return names;
    fprintf(stderr, "%s has %d lines, and the model %d classes\n", o->classes, (int)lines, (int)classes);
    free(names);
    return NULL;
}

static inline void print_class(const char *names, const json *id2label, int64_t i)
{
    char id[32];
    snprintf(id, sizeof id, "%lld", (long long)i);
    const char *label = json_text(id2label, id, NULL);
    for (int64_t line = 0; line < i && *names; ++line) names += strcspn(names, "\n") + 1;
    if (*names) printf("%.*s\n", (int)strcspn(names, "\r\n"), names);
    else printf("%s%s\n", label ? "" : "class ", label ? label : id);
}

static inline bool print_classes(const options *o, tg_tensor *logits, const json *id2label)
{
    tg_tensor *which = NULL, *share = tg_softmax(tg_to_dtype(logits, TG_F64), 1);
    const int64_t classes = tg_dim(logits, 1), k = o->best < classes ? o->best : classes;
    share = tg_topk(share, k, 1, true, &which);
    const double *p = share ? tg_data_f64(share) : NULL;
    const int64_t *i = which ? tg_data_i64(which) : NULL;
    char *names = p && i ? read_names(o, classes) : NULL;
    for (int64_t n = 0; n < o->images && names; ++n) {
        if (o->images > 1) printf("%s\n", o->path[n]);
        for (int64_t row = n * k; row < (n + 1) * k; ++row) {
            printf("%.4f  ", p[row]);
            print_class(names, id2label, i[row]);
        }
    }
    const bool ok = names != NULL;
    free(names);
    return ok;
}

static inline bool classify(const model *m, const options *o, const json *config)
{
    TG_NO_GRAD;
    processor p = m->otherwise;
    tg_tensor *pixels[IMAGES];
    if (!read_processor(&p, o->folder)) return false;
    for (int i = 0; i < o->images; ++i) {
        if (!(pixels[i] = read_image(o->path[i], &p))) return false;
    }
    tg_tensor *x = tg_cat(pixels, o->images, 0);
    tg_tensor *logits = m->forward(m->self, tg_to_dtype(x, m->dtype));
    bool ok = logits && print_classes(o, logits, json_get(config, "id2label"));
    if (ok && o->save) {
        tg_dict *out = tg_dict_new();
        tg_dict_set(out, "pixels", x);
        tg_dict_set(out, "logits", logits);
        ok = tg_safetensors_save(o->save, out) == TG_OK;
        tg_dict_free(out);
    }
    return ok;
}

/* The main of a model with the weights w: `read` reads them as config.json says, which is NULL where there is none, and
   fills in *m. */
static inline int run_model(int argc, char **argv, weights *w,
                            bool (*read)(model *m, const char *folder, const json *config))
{
    model m;
    options o;
    if (!read_options(&o, argc, argv)) return usage(argv[0]);
    char path[1024];
    snprintf(path, sizeof path, "%s/config.json", o.folder);
    json_document config = json_read(path);
    bool ok;
    {
        TG_SCOPE;
        ok = read(&m, o.folder, config.node) && classify(&m, &o, config.node);
        close_weights(w);
    }
    json_free(&config);
    tg_shutdown();
    return ok && tg_ok() ? 0 : 1;
}
#endif
