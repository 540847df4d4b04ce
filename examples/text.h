/* text.h: the text that 12_chargpt.c learns, and what counting says of it. */
#ifndef TEXT_H
#define TEXT_H
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT = 32 }; /* how many bytes the model sees */

static inline int fail(const char *what, const char *why)
{
    fprintf(stderr, "chargpt: %s: %s\n", what, why);
    return 1;
}

/* Bytes become numbers 0 .. vocab-1; the last tenth is kept for validation. */
typedef struct {
    int64_t *ids, n, n_train, byte_of[256]; /* validation is ids[n_train .. n) */
    int vocab;
} corpus;

static inline int read_corpus(corpus *c, const char *path)
{
    int64_t id_of[256];
    FILE *f = fopen(path, "rb");
    if (!f) return fail(path, strerror(errno));
    const long size = fseek(f, 0, SEEK_END) ? -1 : ftell(f);
    unsigned char *bytes = (unsigned char *)malloc(size > 0 ? (size_t)size : 1);
    c->ids = (int64_t *)calloc(size > 0 ? (size_t)size : 1, sizeof *c->ids);
    rewind(f);
    const bool is_read = size >= 0 && bytes && c->ids && fread(bytes, 1, (size_t)size, f) == (size_t)size;
    fclose(f);
    if (!is_read) {
        free(bytes);
        free(c->ids);
        return fail(path, "cannot be read, or is too large for this memory");
    }
    c->n = size;
    c->n_train = c->n / 10 * 9;
    c->vocab = 0;
    for (int byte = 0; byte < 256; ++byte) {
        if (!memchr(bytes, byte, (size_t)size)) continue;
        id_of[byte] = c->vocab;
        c->byte_of[c->vocab++] = byte;
    }
    for (int64_t i = 0; i < c->n; ++i) c->ids[i] = id_of[bytes[i]];
    free(bytes);
    if (c->n - c->n_train > CONTEXT) return 0;
    free(c->ids);
    return fail(path, "too short: 400 bytes are the least");
}

/* What counting achieves: p(byte) and p(byte | the byte before) from the training part with `smooth` added to every
   count, measured in nats on exactly the validation bytes that the model is asked for. */
static inline int count_entropies(const corpus *c, double *unigram, double *bigram)
{
    const int64_t *id = c->ids + c->n_train, V = c->vocab, asked = (c->n - c->n_train - 1) / CONTEXT * CONTEXT;
    const double smooth = 0.1, total = (double)(c->n_train - 1);
    double *one = (double *)calloc((size_t)(V + V * V), sizeof *one), *two = one ? one + V : NULL;
    if (!one) return fail("counting", "out of memory");
    for (const int64_t *p = c->ids; p < id - 1; ++p) {
        one[p[0]] += 1;
        two[p[0] * V + p[1]] += 1;
    }
    *unigram = *bigram = 0;
    for (int64_t i = 1; i <= asked; ++i) {
        *unigram -= log((one[id[i]] + smooth) / (total + smooth * c->vocab)) / (double)asked;
        *bigram -= log((two[id[i - 1] * V + id[i]] + smooth) / (one[id[i - 1]] + smooth * c->vocab)) / (double)asked;
    }
    free(one);
    return 0;
}
#endif
