/* weights.h: what all models share: config.json, and the tensors of a folder's files by their names, where they are in
   the file.  A model takes what it needs; what then is left over, or was not there, is printed. */
#ifndef WEIGHTS_H
#define WEIGHTS_H
#include "../../tensorgrad.h"
#include "json.h"
#include <stdarg.h>

enum { LAYERS = 256, TAKEN = LAYERS * 16 + 32 };

/* The config.json of a folder, to be freed by json_free; node is NULL, after saying why, if it cannot be read. */
static inline json_document read_config(const char *folder)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/config.json", folder);
    const json_document config = json_read(path);
    if (!config.node) fprintf(stderr, "%s is not there, or is no JSON\n", path);
    return config;
}

/* ---- weights, mapped from the file ---- */

typedef struct {
    tg_dict *file;
    tg_tensor *taken[TAKEN];
    int n, missing;
} weights;

static inline bool open_weights(weights *w, const char *folder)
{
    char path[1024];
    memset(w, 0, sizeof *w);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    FILE *whole = fopen(path, "rb");
    if (whole) fclose(whole);
    else snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    w->file = tg_safetensors_open(path);
    return w->file != NULL;
}

static inline tg_tensor *own(weights *w, tg_tensor *t)
{
    if (t && w->n < TAKEN) w->taken[w->n++] = tg_retain(t);
    return t;
}

/* The tensor of this name, a printf format, which leaves the file; NULL if there is none. */
static inline tg_tensor *optional(weights *w, const char *format, ...)
{
    char name[256];
    va_list list;
    va_start(list, format);
    vsnprintf(name, sizeof name, format, list);
    va_end(list);
    tg_tensor *t = own(w, tg_dict_get(w->file, name));
    if (t) tg_dict_remove(w->file, name);
    return t;
}

static inline tg_tensor *required(weights *w, const char *format, int64_t layer)
{
    char name[256];
    snprintf(name, sizeof name, format, (int)layer);
    tg_tensor *t = optional(w, "%s", name);
    if (t) return t;
    fprintf(stderr, "missing: %s\n", name);
    ++w->missing;
    return NULL;
}

typedef struct { tg_tensor *weight, *bias; } affine; /* a linear layer, or a norm */

static inline affine read_affine(weights *w, bool needed, const char *name)
{
    char path[2][256];
    affine a;
    snprintf(path[0], sizeof path[0], "%s.weight", name);
    snprintf(path[1], sizeof path[1], "%s.bias", name);
    a.weight = needed ? required(w, path[0], 0) : optional(w, "%s", path[0]);
    a.bias = needed ? required(w, path[1], 0) : optional(w, "%s", path[1]);
    return a;
}

/* What is left in the file is not of this model. */
static inline bool all_taken(weights *w)
{
    for (int i = 0; i < tg_dict_count(w->file); ++i) fprintf(stderr, "unexpected: %s\n", tg_dict_name(w->file, i));
    tg_dict_free(w->file);
    w->file = NULL;
    return w->missing == 0;
}

static inline void close_weights(weights *w)
{
    for (int i = 0; i < w->n; ++i) tg_release(w->taken[i]);
    tg_dict_free(w->file);
}

/* A file with this tensor alone; false if there is an error, an older one, too. */
static inline bool save_one(const char *path, const char *name, tg_tensor *t)
{
    tg_dict *out = tg_dict_new();
    tg_dict_set(out, name, t);
    const bool ok = tg_safetensors_save(path, out) == TG_OK && tg_ok();
    tg_dict_free(out);
    return ok;
}

/* ---- heads of attention ---- */

/* x [N, L, width] -> [N, heads, L, width / heads] */
static inline tg_tensor *split_heads(tg_tensor *x, int64_t heads)
{
    return tg_transpose(tg_unflatten(x, -1, TG_SHAPE(heads, -1)), 1, 2);
}

static inline tg_tensor *join_heads(tg_tensor *x) { return tg_flatten(tg_transpose(x, 1, 2), 2, 3); }
#endif
