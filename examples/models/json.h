/* json.h: reads JSON, as far as the files of Hugging Face need it: config.json, tokenizer.json, vocab.json.

   A document is one array of nodes in the order of the text: the first child of an object or an array is the node after
   it, and `next` leads from child to child.  Texts are cut out of the bytes of the file, where they are decoded. */
#ifndef JSON_H
#define JSON_H
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_TEXT, JSON_ARRAY, JSON_OBJECT } json_kind;

typedef struct {
    json_kind kind;
    int count;        /* children of an array or an object */
    int64_t next;     /* nodes from here to the next child of the same parent; 0: there is none */
    const char *key;  /* of a child of an object, else NULL */
    const char *text; /* ends in a zero, and may have zeros inside: bytes says how long it is */
    size_t bytes;
    double number; /* of a bool: 0 or 1 */
} json;

typedef struct {
    char *file, *at; /* at: what is read next */
    json *node;
    int64_t n, room;
    bool failed;
} json_document;

static inline void json_free(json_document *d)
{
    free(d->file);
    free(d->node);
    memset(d, 0, sizeof *d);
}

/* The bytes of a file, with a zero behind them; NULL if it cannot be read. */
static inline char *read_whole(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    const long size = f && !fseek(f, 0, SEEK_END) ? ftell(f) : -1;
    char *data = size >= 0 ? (char *)malloc((size_t)size + 1) : NULL;
    if (data) {
        rewind(f);
        *bytes = fread(data, 1, (size_t)size, f);
        data[*bytes] = 0;
        if (*bytes != (size_t)size) {
            free(data);
            data = NULL;
        }
    }
    if (f) fclose(f);
    return data;
}

/* Appends the UTF-8 of a code point at `to`; returns the place behind it. */
static inline char *utf8_put(char *to, uint32_t c)
{
    if (c < 0x80) {
        *to++ = (char)c;
        return to;
    }
    if (c >= 0x10000) {
        *to++ = (char)(0xF0 | c >> 18);
        *to++ = (char)(0x80 | (c >> 12 & 63));
    } else if (c >= 0x800) *to++ = (char)(0xE0 | c >> 12);
    if (c >= 0x800) *to++ = (char)(0x80 | (c >> 6 & 63));
    else *to++ = (char)(0xC0 | c >> 6);
    *to++ = (char)(0x80 | (c & 63));
    return to;
}

static inline void json_space(json_document *d)
{
    while (*d->at == ' ' || *d->at == '\n' || *d->at == '\r' || *d->at == '\t') ++d->at;
}

static inline bool json_expect(json_document *d, char c)
{
    json_space(d);
    if (*d->at != c) return false;
    ++d->at;
    return true;
}

static inline uint32_t json_hex(json_document *d)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i) {
        const char *const digits = "0123456789abcdef", c = *d->at;
        const char *digit = c ? strchr(digits, c >= 'A' && c <= 'F' ? c + 32 : c) : NULL;
        if (!digit) {
            d->failed = true;
            return 0;
        }
        value = value << 4 | (uint32_t)(digit - digits);
        ++d->at;
    }
    return value;
}

/* A text from behind its first quote on, decoded where it is. */
static inline const char *json_string(json_document *d, size_t *bytes)
{
    static const char name[] = "\"\\/bfnrt", code[] = "\"\\/\b\f\n\r\t";
    char *const begin = d->at, *to = begin;
    while (*d->at && *d->at != '"') {
        if (*d->at != '\\') {
            *to++ = *d->at++;
            continue;
        }
        const char c = *++d->at, *escape = c ? strchr(name, c) : NULL;
        if (c) ++d->at;
        if (c == 'u') {
            uint32_t point = json_hex(d);
            if (point >= 0xD800 && point < 0xDC00 && d->at[0] == '\\' && d->at[1] == 'u') { /* half of a pair */
                d->at += 2;
                point = 0x10000 + ((point - 0xD800) << 10) + ((json_hex(d) - 0xDC00) & 0x3FF);
            }
            to = utf8_put(to, point);
        } else if (escape) {
            *to++ = code[escape - name];
        } else {
            d->failed = true;
        }
    }
    if (*d->at != '"') d->failed = true;
    else ++d->at;
    *bytes = (size_t)(to - begin);
    *to = 0;
    return begin;
}

static inline void json_value(json_document *d, const char *key, int depth)
{
    static const struct { const char *word; json_kind kind; double number; } words[] = {
        {"null", JSON_NULL, 0}, {"false", JSON_BOOL, 0}, {"true", JSON_BOOL, 1}};
    if (d->n == d->room) {
        d->room = d->room ? 2 * d->room : 64;
        json *more = (json *)realloc(d->node, (size_t)d->room * sizeof *more);
        if (!more) d->failed = true;
        else d->node = more;
    }
    if (d->failed || depth > 64) {
        d->failed = true;
        return;
    }
    const int64_t self = d->n++;
    json made;
    memset(&made, 0, sizeof made);
    made.key = key;
    json_space(d);
    const char c = *d->at;
    if (c == '"') {
        ++d->at;
        made.kind = JSON_TEXT;
        made.text = json_string(d, &made.bytes);
    } else if (c == '[' || c == '{') {
        ++d->at;
        made.kind = c == '[' ? JSON_ARRAY : JSON_OBJECT;
        int64_t last = 0;
        for (bool more = !json_expect(d, c == '[' ? ']' : '}'); more && !d->failed;) {
            const char *name = NULL;
            size_t bytes;
            if (c == '{') {
                if (json_expect(d, '"')) name = json_string(d, &bytes);
                if (!name || !json_expect(d, ':')) d->failed = true;
            }
            if (last) d->node[last].next = d->n - last;
            last = d->n;
            json_value(d, name, depth + 1);
            ++made.count;
            more = json_expect(d, ',');
            if (!more && !json_expect(d, c == '[' ? ']' : '}')) d->failed = true;
        }
    } else {
        char *end = d->at;
        made.kind = JSON_NUMBER;
        made.number = strtod(d->at, &end);
        for (int i = 0; i < 3 && end == d->at; ++i) {
            const size_t length = strlen(words[i].word);
            if (strncmp(d->at, words[i].word, length) != 0) continue;
            made.kind = words[i].kind;
            made.number = words[i].number;
            end = d->at + length;
        }
        if (end == d->at) d->failed = true;
        d->at = end;
    }
    d->node[self] = made;
}

/* The document of a file, to be freed by json_free; node is NULL if the file cannot be read or is no JSON. */
static inline json_document json_read(const char *path)
{
    json_document d;
    size_t bytes = 0;
    memset(&d, 0, sizeof d);
    if (!(d.file = d.at = read_whole(path, &bytes))) return d;
    json_value(&d, NULL, 0);
    json_space(&d);
    if (d.failed || *d.at) json_free(&d);
    return d;
}

/* ---- what a document has; all take NULL for what is not there ---- */

static inline const json *json_first(const json *parent) { return parent && parent->count > 0 ? parent + 1 : NULL; }
static inline const json *json_next(const json *child) { return child && child->next ? child + child->next : NULL; }

static inline const json *json_get(const json *object, const char *key)
{
    const json *child = object && object->kind == JSON_OBJECT ? json_first(object) : NULL;
    while (child && strcmp(child->key, key) != 0) child = json_next(child);
    return child && child->kind != JSON_NULL ? child : NULL;
}

static inline double json_number(const json *object, const char *key, double otherwise)
{
    const json *value = json_get(object, key);
    return value && (value->kind == JSON_NUMBER || value->kind == JSON_BOOL) ? value->number : otherwise;
}

static inline const char *json_text(const json *object, const char *key, const char *otherwise)
{
    const json *value = json_get(object, key);
    return value && value->kind == JSON_TEXT ? value->text : otherwise;
}

static inline bool json_is(const json *object, const char *key, const char *text)
{
    return strcmp(json_text(object, key, ""), text) == 0;
}
#endif
