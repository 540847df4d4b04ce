/* bpe.h: byte-pair encoding as in Hugging Face's tokenizers: a text becomes the numbers of tokens, and these a text.

   bpe_load reads tokenizer.json of a folder, or, where there is none, GPT-2's vocab.json and merges.txt.
     GPT-2, Llama 3, Qwen2     bytes: a text is cut into words by a regular expression, a word is bytes, and the pair of
                               neighbours of the lowest rank becomes one token, until no pair has a rank
     Llama 2, Mistral          characters: spaces become "\u2581", the text is one word, and a character without a token
                               becomes the tokens <0x00> to <0xFF> of its bytes
   Tokens that were added are looked for before the text is normalized.  Left out: the normal form NFC, which Qwen2 asks
   for (a text is taken to be in it); other normalizers, regular expressions and models than those are refused with a
   message.  transformers.AutoTokenizer */
#ifndef BPE_H
#define BPE_H
#include "json.h"

enum { BPE_SPLITS = 4, BPE_PARTS = 8, BPE_ITEMS = 80 };

/* ---- characters ---- */

/* The letters and the numbers of Unicode 14: distance to the next range, its length, ... */
static const uint16_t bpe_letters[] = {
    65, 26, 6, 26, 47, 1, 10, 1, 4, 1, 5, 23, 1, 31, 1, 458, 4, 12, 14, 5, 7, 1, 1, 1, 129, 5, 1, 2, 2, 4, 1, 1, 6, 1,
    1, 3, 1, 1, 1, 20, 1, 83, 1, 139, 8, 166, 1, 38, 2, 1, 6, 41, 71, 27, 4, 4, 45, 43, 35, 2, 1, 99, 1, 1, 15, 2, 7, 2,
    10, 3, 2, 1, 16, 1, 1, 30, 29, 89, 11, 1, 24, 33, 9, 2, 4, 1, 5, 22, 4, 1, 9, 1, 3, 1, 23, 25, 7, 11, 5, 24, 1, 6,
    17, 42, 58, 54, 3, 1, 18, 1, 7, 10, 15, 16, 4, 8, 2, 2, 2, 22, 1, 7, 1, 1, 3, 4, 3, 1, 16, 1, 13, 2, 1, 3, 14, 2,
    10, 1, 8, 6, 4, 2, 2, 22, 1, 7, 1, 2, 1, 2, 1, 2, 31, 4, 1, 1, 19, 3, 16, 9, 1, 3, 1, 22, 1, 7, 1, 2, 1, 5, 3, 1,
    18, 1, 15, 2, 23, 1, 11, 8, 2, 2, 2, 22, 1, 7, 1, 2, 1, 5, 3, 1, 30, 2, 1, 3, 15, 1, 17, 1, 1, 6, 3, 3, 1, 4, 3, 2,
    1, 1, 1, 2, 3, 2, 3, 3, 3, 12, 22, 1, 52, 8, 1, 3, 1, 23, 1, 16, 3, 1, 26, 3, 2, 1, 2, 2, 30, 1, 4, 8, 1, 3, 1, 23,
    1, 10, 1, 5, 3, 1, 31, 2, 1, 2, 15, 2, 17, 9, 1, 3, 1, 41, 2, 1, 16, 1, 5, 3, 8, 3, 24, 6, 5, 18, 3, 24, 1, 9, 1, 1,
    2, 7, 58, 48, 1, 2, 12, 7, 58, 2, 1, 1, 1, 5, 1, 24, 1, 1, 1, 10, 1, 2, 9, 1, 2, 5, 1, 1, 21, 4, 32, 1, 63, 8, 1,
    36, 27, 5, 115, 43, 20, 1, 16, 6, 4, 4, 3, 1, 3, 2, 7, 3, 4, 13, 12, 1, 17, 38, 1, 1, 5, 1, 2, 43, 1, 333, 1, 4, 2,
    7, 1, 1, 1, 4, 2, 41, 1, 4, 2, 33, 1, 4, 2, 7, 1, 1, 1, 4, 2, 15, 1, 57, 1, 4, 2, 67, 37, 16, 16, 86, 2, 6, 3, 620,
    2, 17, 1, 26, 5, 75, 6, 8, 7, 18, 13, 19, 14, 18, 14, 13, 1, 3, 15, 52, 35, 1, 4, 1, 67, 89, 7, 5, 2, 34, 1, 1, 5,
    70, 10, 31, 49, 30, 2, 5, 11, 44, 4, 26, 54, 23, 9, 53, 82, 1, 93, 47, 17, 8, 54, 30, 13, 2, 10, 44, 26, 36, 41, 3,
    10, 36, 2, 9, 7, 43, 2, 3, 41, 4, 1, 6, 1, 2, 3, 1, 5, 192, 64, 278, 2, 6, 2, 38, 2, 6, 2, 8, 1, 1, 1, 1, 1, 1, 1,
    31, 2, 53, 1, 7, 1, 1, 3, 3, 1, 7, 3, 4, 2, 6, 4, 13, 5, 3, 1, 7, 116, 1, 13, 1, 16, 13, 101, 1, 4, 1, 2, 10, 1, 1,
    3, 5, 6, 1, 1, 1, 1, 1, 1, 4, 1, 11, 2, 4, 5, 5, 4, 1, 52, 2, 2683, 229, 6, 4, 3, 2, 12, 38, 1, 1, 5, 1, 2, 56, 7,
    1, 16, 23, 9, 7, 1, 7, 1, 7, 1, 7, 1, 7, 1, 7, 1, 7, 1, 7, 80, 1, 469, 2, 42, 5, 5, 2, 4, 86, 6, 3, 1, 90, 1, 4, 5,
    43, 1, 94, 17, 32, 48, 16, 512, 6592, 64, 22157, 67, 46, 2, 269, 3, 16, 10, 2, 20, 47, 16, 31, 2, 70, 49, 9, 2, 103,
    2, 64, 5, 2, 1, 1, 1, 5, 24, 16, 1, 3, 1, 4, 1, 23, 29, 52, 14, 50, 62, 6, 3, 1, 1, 2, 11, 28, 10, 23, 25, 29, 7,
    47, 28, 1, 16, 5, 1, 10, 10, 5, 1, 41, 23, 3, 1, 8, 20, 23, 3, 1, 3, 50, 1, 1, 3, 2, 2, 5, 2, 1, 1, 1, 24, 3, 2, 11,
    7, 3, 12, 6, 2, 6, 2, 6, 9, 7, 1, 7, 1, 43, 1, 14, 6, 115, 29, 11172, 12, 23, 4, 49, 8452, 366, 2, 106, 38, 7, 12,
    5, 5, 1, 1, 10, 1, 13, 1, 5, 1, 1, 1, 2, 1, 2, 1, 108, 33, 363, 18, 64, 2, 54, 40, 12, 116, 5, 1, 135, 36, 26, 6,
    26, 11, 89, 3, 6, 2, 6, 2, 6, 2, 3, 35, 12, 1, 26, 1, 19, 1, 2, 1, 15, 2, 14, 34, 123, 389, 29, 3, 49, 47, 32, 13,
    20, 1, 8, 6, 38, 10, 30, 2, 36, 4, 8, 48, 158, 18, 36, 4, 36, 4, 40, 8, 52, 12, 11, 1, 15, 1, 7, 1, 2, 1, 11, 1, 15,
    1, 7, 1, 2, 67, 311, 9, 22, 10, 8, 24, 6, 1, 42, 1, 9, 69, 6, 2, 1, 1, 44, 1, 2, 3, 1, 2, 23, 10, 23, 9, 31, 65, 19,
    1, 2, 10, 22, 10, 26, 70, 56, 6, 2, 64, 1, 15, 4, 1, 3, 1, 29, 42, 29, 3, 29, 35, 8, 1, 28, 27, 54, 10, 22, 10, 19,
    13, 18, 110, 73, 55, 51, 13, 51, 13, 36, 348, 42, 6, 2, 78, 29, 10, 1, 8, 22, 42, 18, 46, 21, 27, 23, 12, 53, 57, 2,
    2, 1, 13, 45, 32, 25, 26, 36, 29, 1, 2, 1, 8, 35, 3, 1, 12, 48, 14, 4, 21, 1, 1, 1, 35, 18, 1, 25, 84, 7, 1, 1, 1,
    4, 1, 15, 1, 10, 7, 47, 38, 8, 2, 2, 2, 22, 1, 7, 1, 2, 1, 5, 3, 1, 18, 1, 12, 5, 158, 53, 18, 4, 20, 3, 30, 48, 20,
    2, 1, 1, 184, 47, 41, 4, 36, 48, 20, 1, 59, 43, 13, 1, 71, 27, 37, 7, 185, 44, 116, 64, 31, 8, 2, 1, 2, 8, 1, 2, 1,
    24, 15, 1, 1, 1, 94, 8, 2, 39, 16, 1, 1, 1, 28, 1, 10, 40, 7, 1, 21, 1, 11, 46, 19, 1, 18, 73, 263, 9, 1, 37, 17, 1,
    49, 30, 112, 7, 1, 2, 1, 38, 21, 1, 25, 6, 1, 2, 1, 32, 14, 1, 327, 19, 189, 1, 79, 922, 230, 196, 2636, 97, 15,
    1071, 4049, 583, 8633, 569, 7, 31, 17, 79, 17, 30, 18, 48, 16, 4, 31, 21, 5, 19, 688, 64, 128, 75, 5, 1, 66, 13, 64,
    2, 1, 1, 28, 6136, 8, 1238, 42, 9, 8935, 4, 1, 7, 1, 2, 1, 291, 45, 3, 17, 4, 8, 396, 2308, 107, 5, 13, 3, 9, 7, 10,
    5990, 85, 1, 71, 1, 2, 2, 1, 2, 2, 2, 4, 1, 12, 1, 1, 1, 7, 1, 65, 1, 4, 2, 8, 1, 7, 1, 28, 1, 4, 1, 5, 1, 1, 3, 7,
    1, 340, 2, 25, 1, 25, 1, 31, 1, 25, 1, 31, 1, 25, 1, 31, 1, 25, 1, 31, 1, 25, 1, 8, 1844, 31, 481, 45, 10, 7, 16, 1,
    321, 30, 18, 44, 1268, 7, 1, 4, 1, 2, 1, 15, 1, 197, 59, 68, 7, 1, 1204, 4, 1, 27, 1, 2, 1, 1, 2, 1, 1, 10, 1, 4, 1,
    1, 1, 1, 6, 1, 4, 1, 1, 1, 1, 1, 1, 3, 1, 2, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 2, 4, 1, 7, 1, 4, 1, 4,
    1, 1, 1, 10, 1, 17, 5, 3, 1, 5, 1, 17, 4420, 42720, 32, 4153, 7, 222, 2, 5762, 14, 7473, 3103, 542, 1506, 4939,
};
static const uint16_t bpe_numbers[] = {
    48, 10, 120, 2, 5, 1, 2, 3, 1441, 10, 134, 10, 198, 10, 412, 10, 118, 10, 4, 6, 108, 10, 118, 10, 118, 10, 2, 6,
    110, 13, 115, 10, 8, 7, 103, 10, 104, 7, 7, 19, 109, 10, 96, 10, 118, 10, 70, 20, 268, 10, 70, 10, 719, 20, 881, 3,
    239, 10, 6, 10, 22, 10, 300, 10, 128, 11, 165, 10, 6, 10, 182, 10, 86, 10, 134, 10, 6, 10, 1046, 1, 3, 6, 6, 10,
    198, 51, 2, 5, 726, 60, 78, 22, 630, 30, 1385, 1, 777, 1, 25, 9, 14, 3, 343, 4, 138, 10, 30, 8, 1, 15, 32, 10, 39,
    15, 29536, 10, 188, 10, 320, 6, 154, 10, 38, 10, 198, 10, 22, 10, 86, 10, 406, 10, 21270, 10, 493, 45, 12, 57, 17,
    2, 341, 27, 36, 4, 29, 1, 8, 1, 134, 5, 202, 10, 942, 8, 25, 7, 39, 9, 75, 5, 22, 6, 160, 2, 2, 16, 2, 46, 64, 9,
    52, 2, 30, 3, 75, 5, 104, 8, 24, 8, 41, 7, 330, 6, 48, 10, 294, 31, 158, 10, 42, 4, 112, 7, 134, 30, 128, 10, 60,
    10, 144, 10, 7, 20, 251, 10, 342, 10, 118, 10, 374, 10, 102, 10, 102, 12, 420, 19, 93, 10, 758, 29, 227, 10, 70, 10,
    534, 21, 1067, 111, 17905, 10, 86, 10, 134, 10, 1, 7, 798, 23, 25673, 20, 108, 25, 1109, 50, 2368, 10, 422, 10,
    1485, 9, 128, 10, 791, 59, 1, 3, 1, 4, 76, 45, 1, 15, 962, 13, 2787, 10,
};

static inline bool bpe_in_ranges(const uint16_t *table, size_t n, uint32_t c)
{
    uint32_t at = 0;
    for (size_t i = 0; i + 1 < n; i += 2) {
        at += table[i];
        if (c < at) return false;
        at += table[i + 1];
        if (c < at) return true;
    }
    return false;
}

static inline bool bpe_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == 32 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
           c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

/* The bytes of the character at s, of which `left` > 0 are there; *c is what it is.  A byte that is no UTF-8 is one. */
static inline size_t bpe_char(const char *s, size_t left, uint32_t *c)
{
    const unsigned char *b = (const unsigned char *)s;
    const size_t n = b[0] < 0xC0 ? 1 : b[0] < 0xE0 ? 2 : b[0] < 0xF0 ? 3 : b[0] < 0xF8 ? 4 : 1;
    *c = b[0] < 0x80 ? b[0] : 0xFFFD;
    if (n == 1 || n > left) return 1;
    uint32_t value = b[0] & (0x7Fu >> n);
    for (size_t i = 1; i < n; ++i) {
        if ((b[i] & 0xC0) != 0x80) return 1;
        value = value << 6 | (b[i] & 0x3F);
    }
    *c = value;
    return n;
}

/* ---- the regular expressions that cut a text into words ---- */

/* What a character may be, and how often.  kinds: letters of "LNsS", for \p{L}, \p{N}, \s and \S. */
typedef struct {
    char kinds[BPE_PARTS];
    uint32_t one[BPE_PARTS]; /* characters themselves */
    int n_kinds, n_one, least, most;
    bool negated, ignores_case, looks; /* looks: (?!..), which must not follow, and takes nothing */
} bpe_item;

/* Alternatives, each a sequence of items: begin[i] to begin[i + 1]. */
typedef struct {
    bpe_item item[BPE_ITEMS];
    int begin[BPE_ITEMS + 1], alternatives;
} bpe_regex;

static inline bool bpe_is_kind(char kind, uint32_t c)
{
    switch (kind) {
    case 'L': return bpe_in_ranges(bpe_letters, sizeof bpe_letters / sizeof *bpe_letters, c);
    case 'N': return bpe_in_ranges(bpe_numbers, sizeof bpe_numbers / sizeof *bpe_numbers, c);
    case 's': return bpe_is_space(c);
    default: return !bpe_is_space(c);
    }
}

static inline bool bpe_takes(const bpe_item *item, uint32_t c)
{
    bool in = false;
    for (int i = 0; i < item->n_kinds && !in; ++i) in = bpe_is_kind(item->kinds[i], c);
    for (int i = 0; i < item->n_one && !in; ++i)
        in = item->one[i] == c || (item->ignores_case && c >= 'A' && c <= 'Z' && item->one[i] == c + 32);
    return in != item->negated;
}

/* Reads one of \s, \p{L}, [..] and a character itself; the place behind it, or NULL if it is something else. */
static inline const char *bpe_read_class(const char *p, bpe_item *item, bool in_brackets)
{
    uint32_t c;
    if (item->n_kinds == BPE_PARTS || item->n_one == BPE_PARTS) return NULL;
    if (*p == '[' && !in_brackets) {
        item->negated = *++p == '^';
        if (item->negated) ++p;
        while (p && *p && *p != ']') p = bpe_read_class(p, item, true);
        return p && *p ? p + 1 : NULL;
    }
    if (*p == '\\' && p[1] == 'p') {
        if (p[2] != '{' || (p[3] != 'L' && p[3] != 'N') || p[4] != '}') return NULL;
        item->kinds[item->n_kinds++] = p[3];
        return p + 5;
    }
    if (*p == '\\') {
        const char *name = "rnt", *at = p[1] ? strchr(name, p[1]) : NULL;
        if (p[1] == 's' || p[1] == 'S') item->kinds[item->n_kinds++] = p[1];
        else if (at) item->one[item->n_one++] = (uint32_t)"\r\n\t"[at - name];
        else return NULL;
        return p + 2;
    }
    if (strchr(in_brackets ? "-&" : "().*+?{}^$", *p)) return NULL;
    p += bpe_char(p, strlen(p), &c);
    item->one[item->n_one++] = c;
    return p;
}

/* + * ? {n} {n,m}, and a second + that only makes it faster */
static inline const char *bpe_read_count(const char *p, bpe_item *item)
{
    const int endless = 1 << 30;
    const char c = *p;
    char *end;
    item->least = c == '*' || c == '?' ? 0 : 1;
    item->most = c == '*' || c == '+' ? endless : 1;
    if (c == '{') {
        item->least = item->most = (int)strtol(p + 1, &end, 10);
        if (*end == ',') item->most = end[1] == '}' ? endless : (int)strtol(end + 1, &end, 10);
        if (*end == ',') ++end;
        return *end == '}' ? end + 1 : NULL;
    }
    if (c != '*' && c != '+' && c != '?') return p;
    return p[1] == '+' ? p + 2 : p[1] == '?' ? NULL : p + 1;
}

/* False if the pattern has something that is not known here. */
static inline bool bpe_read_regex(bpe_regex *r, const char *p)
{
    int n = 0;
    bool in_group = false;
    memset(r, 0, sizeof *r);
    while (p && *p && n < BPE_ITEMS) {
        bpe_item *item = &r->item[n];
        if (*p == '|') {
            r->begin[++r->alternatives] = n;
            ++p;
        } else if (strncmp(p, "(?i:", 4) == 0 && n == r->begin[r->alternatives]) {
            in_group = true; /* its alternatives are those of the whole */
            p += 4;
        } else if (*p == ')' && in_group && (p[1] == '|' || !p[1])) {
            in_group = false;
            ++p;
        } else {
            const bool looks = strncmp(p, "(?!", 3) == 0;
            item->looks = looks;
            item->ignores_case = in_group;
            p = bpe_read_class(looks ? p + 3 : p, item, false);
            if (looks) p = p && *p == ')' ? p + 1 : NULL;
            else if (p) p = bpe_read_count(p, item);
            ++n;
        }
    }
    r->begin[++r->alternatives] = n;
    return p && !*p && !in_group;
}

/* How far items [i, end) match from s on, as much as they can; -1 if they do not. */
static inline int64_t bpe_match(const bpe_regex *r, int i, int end, const char *s, size_t left)
{
    uint32_t c;
    size_t taken = 0;
    int count = 0;
    if (i == end) return 0;
    const bpe_item *item = &r->item[i];
    if (item->looks) {
        if (left > 0 && bpe_char(s, left, &c) > 0 && bpe_takes(item, c)) return -1;
        return bpe_match(r, i + 1, end, s, left);
    }
    while (count < item->most && taken < left) {
        const size_t bytes = bpe_char(s + taken, left - taken, &c);
        if (!bpe_takes(item, c)) break;
        taken += bytes;
        ++count;
    }
    for (; count >= item->least; --count) {
        const int64_t rest = bpe_match(r, i + 1, end, s + taken, left - taken);
        if (rest >= 0) return (int64_t)taken + rest;
        if (count == 0) break;
        do --taken;
        while (taken > 0 && (s[taken] & 0xC0) == 0x80);
    }
    return -1;
}

/* The bytes of the first word of s: what matches there, or all up to the next match. */
static inline size_t bpe_word(const bpe_regex *r, const char *s, size_t left)
{
    uint32_t c;
    for (size_t at = 0; at < left; at += bpe_char(s + at, left - at, &c)) {
        for (int i = 0; i < r->alternatives; ++i) {
            const int64_t bytes = bpe_match(r, r->begin[i], r->begin[i + 1], s + at, left - at);
            if (bytes > 0) return at > 0 ? at : (size_t)bytes;
        }
    }
    return left;
}

/* ---- tables ---- */

typedef struct {
    const char *text;
    size_t bytes;
    int byte; /* of <0x00> to <0xFF>, else -1 */
    bool is_added, is_special;
} bpe_entry;
typedef struct { uint64_t pair; int32_t rank, made; } bpe_merge; /* pair: left << 32 | right, + 1; 0: empty */

typedef struct {
    bpe_entry *entry; /* by number; text NULL: there is no such token */
    int64_t n;
    int32_t *slot; /* hash table of numbers + 1 by text; 0: empty */
    size_t slots;
    bpe_merge *merge; /* hash table */
    size_t merges;
    bool by_bytes, falls_back, whole_words, adds_space, prepends_first_alone;
    const char *prepend, *replace, *with; /* of the normalizer; "" for none */
    int64_t unknown, byte_token[256]; /* -1: none */
    int64_t before[4], after[4];      /* what the template adds to a text */
    int64_t first_added;
    bool has_first[256]; /* an added token begins with this byte */
    bpe_regex split[BPE_SPLITS];
    int splits, n_before, n_after;
    char *space; /* all texts */
    size_t space_used, space_size;
} bpe;

static inline void bpe_free(bpe *b)
{
    if (!b) return;
    free(b->entry);
    free(b->slot);
    free(b->merge);
    free(b->space);
    free(b);
}

static inline size_t bpe_hash(const char *s, size_t n)
{
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < n; ++i) h = (h ^ (unsigned char)s[i]) * 1099511628211u;
    return (size_t)(h ^ h >> 29);
}

/* The number of the token with this text, or -1. */
static inline int64_t bpe_find(const bpe *b, const char *s, size_t n)
{
    for (size_t i = bpe_hash(s, n) & (b->slots - 1); b->slot[i]; i = (i + 1) & (b->slots - 1)) {
        const bpe_entry *e = &b->entry[b->slot[i] - 1];
        if (e->bytes == n && memcmp(e->text, s, n) == 0) return b->slot[i] - 1;
    }
    return -1;
}

static inline const char *bpe_keep(bpe *b, const char *s, size_t n)
{
    char *const at = b->space + b->space_used;
    memcpy(at, s, n);
    at[n] = 0;
    b->space_used += n + 1;
    return at;
}

static inline void bpe_add(bpe *b, int64_t id, const char *s, size_t n)
{
    if (id < 0 || id >= b->n || b->entry[id].text) return;
    b->entry[id].text = bpe_keep(b, s, n);
    b->entry[id].bytes = n;
    size_t i = bpe_hash(s, n) & (b->slots - 1);
    while (b->slot[i]) i = (i + 1) & (b->slots - 1);
    b->slot[i] = (int32_t)id + 1;
}

/* A token that was added: bpe_added_at finds it in a text, where it is not cut. */
static inline void bpe_add_whole(bpe *b, int64_t id, const char *text, bool is_special)
{
    bpe_add(b, id, text, strlen(text));
    if (id < 0 || id >= b->n || !*text) return;
    b->entry[id].is_added = b->has_first[(unsigned char)*text] = true;
    b->entry[id].is_special = is_special;
    if (id < b->first_added) b->first_added = id;
}

static inline bpe_merge *bpe_merge_of(const bpe *b, int64_t left, int64_t right)
{
    const uint64_t pair = ((uint64_t)left << 32 | (uint64_t)right) + 1;
    size_t i = (size_t)(pair * 0x9E3779B97F4A7C15u >> 20) & (b->merges - 1);
    while (b->merge[i].pair && b->merge[i].pair != pair) i = (i + 1) & (b->merges - 1);
    return &b->merge[i];
}

/* Texts of tokens by bytes are written in letters that stand for bytes: 33..126, 161..172 and 174..255 for themselves,
   the 68 others as 256, 257, ...  s becomes the bytes, in place; returns their number, or n if it has other letters. */
static inline size_t bpe_to_bytes(char *s, size_t n)
{
    char *to = s;
    for (size_t i = 0; i < n;) {
        uint32_t c, other = 256;
        i += bpe_char(s + i, n - i, &c);
        int byte = -1;
        for (int k = 0; k < 256 && byte < 0; ++k) {
            const bool itself = (k >= 33 && k <= 126) || (k >= 161 && k != 173);
            if (itself ? c == (uint32_t)k : c == other++) byte = k;
        }
        if (byte < 0) return n; /* only tokens that no text becomes */
        *to++ = (char)byte;
    }
    return (size_t)(to - s);
}

/* ---- reading the files ---- */

static const char bpe_gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static inline bool bpe_refuse(const char *what, const char *which)
{
    fprintf(stderr, "bpe: %s '%s' is not known here\n", what, which);
    return false;
}

static inline bool bpe_read_normalizer(bpe *b, const json *n)
{
    const char *type = json_text(n, "type", "");
    if (!n || strcmp(type, "NFC") == 0) return true;
    if (strcmp(type, "Sequence") == 0) {
        for (const json *child = json_first(json_get(n, "normalizers")); child; child = json_next(child)) {
            if (!bpe_read_normalizer(b, child)) return false;
        }
        return true;
    }
    if (strcmp(type, "Prepend") == 0) {
        const char *text = json_text(n, "prepend", "");
        b->prepend = bpe_keep(b, text, strlen(text));
        return true;
    }
    const char *from = json_text(json_get(n, "pattern"), "String", "");
    if (strcmp(type, "Replace") != 0 || !*from || *b->replace) return bpe_refuse("normalizer", type);
    b->replace = bpe_keep(b, from, strlen(from));
    b->with = bpe_keep(b, json_text(n, "content", ""), strlen(json_text(n, "content", "")));
    return true;
}

static inline bool bpe_add_split(bpe *b, const char *pattern)
{
    if (b->splits == BPE_SPLITS || !bpe_read_regex(&b->split[b->splits], pattern))
        return bpe_refuse("regular expression", pattern);
    ++b->splits;
    return true;
}

static inline bool bpe_read_splitter(bpe *b, const json *n)
{
    const char *type = json_text(n, "type", "");
    if (!n) return true;
    if (strcmp(type, "Sequence") == 0) {
        for (const json *child = json_first(json_get(n, "pretokenizers")); child; child = json_next(child)) {
            if (!bpe_read_splitter(b, child)) return false;
        }
        return true;
    }
    if (strcmp(type, "ByteLevel") == 0) {
        b->by_bytes = true;
        b->adds_space = json_number(n, "add_prefix_space", 1) != 0;
        return json_number(n, "use_regex", 1) == 0 || bpe_add_split(b, bpe_gpt2);
    }
    if (strcmp(type, "Digits") == 0)
        return bpe_add_split(b, json_number(n, "individual_digits", 0) != 0 ? "\\p{N}" : "\\p{N}+");
    if (strcmp(type, "Split") == 0 && json_is(n, "behavior", "Isolated") && json_number(n, "invert", 0) == 0)
        return bpe_add_split(b, json_text(json_get(n, "pattern"), "Regex", "(no regular expression)"));
    if (strcmp(type, "Metaspace") == 0 && json_number(n, "split", 1) == 0) {
        const char *with = json_text(n, "replacement", ""), *scheme = json_text(n, "prepend_scheme", "always");
        b->replace = bpe_keep(b, " ", 1);
        b->with = bpe_keep(b, with, strlen(with));
        b->prepends_first_alone = strcmp(scheme, "first") == 0;
        if (strcmp(scheme, "never") != 0) b->prepend = b->with;
        return true;
    }
    return bpe_refuse("pre-tokenizer", type);
}

/* What is added before and after a text: <s>, for example. */
static inline void bpe_read_template(bpe *b, const json *n)
{
    if (json_is(n, "type", "Sequence")) {
        for (const json *child = json_first(json_get(n, "processors")); child; child = json_next(child))
            bpe_read_template(b, child);
    }
    if (!json_is(n, "type", "TemplateProcessing")) return;
    bool is_after = false;
    for (const json *part = json_first(json_get(n, "single")); part; part = json_next(part)) {
        const char *name = json_text(json_get(part, "SpecialToken"), "id", NULL);
        const int64_t id = name ? bpe_find(b, name, strlen(name)) : -1;
        if (!name) is_after = true;
        else if (is_after && b->n_after < 4) b->after[b->n_after++] = id;
        else if (!is_after && b->n_before < 4) b->before[b->n_before++] = id;
    }
}

/* The texts of a pair, in place: two texts in a list, or one with a space between them. */
static inline bool bpe_add_merge(bpe *b, char *left, size_t n, char *right, size_t m, int32_t rank)
{
    char both[1024];
    if (b->by_bytes) {
        n = bpe_to_bytes(left, n);
        m = bpe_to_bytes(right, m);
    }
    if (n + m > sizeof both) return false;
    memcpy(both, left, n);
    memcpy(both + n, right, m);
    const int64_t l = bpe_find(b, left, n), r = bpe_find(b, right, m), made = bpe_find(b, both, n + m);
    if (l < 0 || r < 0 || made < 0) return false;
    bpe_merge *place = bpe_merge_of(b, l, r);
    if (place->pair) return true;
    place->pair = ((uint64_t)l << 32 | (uint64_t)r) + 1;
    place->rank = rank;
    place->made = (int32_t)made;
    return true;
}

static inline bool bpe_read_merges(bpe *b, const json *list, char *lines)
{
    int32_t rank = 0;
    for (const json *pair = json_first(list); pair; pair = json_next(pair)) {
        const json *first = json_first(pair), *second = json_next(first);
        const char *gap = pair->kind == JSON_TEXT ? strchr(pair->text, ' ') : NULL;
        if (gap) {
            char *left = (char *)(uintptr_t)pair->text, *right = left + (gap - pair->text) + 1;
            if (!bpe_add_merge(b, left, (size_t)(gap - pair->text), right, strlen(right), rank++)) return false;
        } else if (!first || !second || !first->text || !second->text ||
                   !bpe_add_merge(b, (char *)(uintptr_t)first->text, first->bytes, (char *)(uintptr_t)second->text,
                                  second->bytes, rank++)) {
            return false;
        }
    }
    for (char *line = lines, *end; line && *line; line = end) {
        char *gap = strchr(line, ' ');
        end = line + strcspn(line, "\n");
        const size_t bytes = (size_t)(end - line);
        if (*end) ++end;
        if (bytes == 0 || strncmp(line, "#version", 8) == 0) continue;
        if (!gap || gap > line + bytes || !bpe_add_merge(b, line, (size_t)(gap - line), gap + 1,
                                                         (size_t)(line + bytes - gap - 1), rank++)) {
            return false;
        }
    }
    return true;
}

/* Tables that are large enough for the vocabulary, the added tokens and the merges. */
static inline bpe *bpe_new(const json *vocab, const json *added, size_t merges)
{
    bpe *b = (bpe *)calloc(1, sizeof *b);
    int64_t n = 0;
    if (!b) return NULL;
    b->space_size = 4096; /* texts of the normalizer */
    for (const json *t = json_first(vocab); t; t = json_next(t)) {
        if ((int64_t)t->number >= n) n = (int64_t)t->number + 1;
        b->space_size += strlen(t->key) + 1;
    }
    for (const json *t = json_first(added); t; t = json_next(t)) {
        if ((int64_t)json_number(t, "id", -1) >= n) n = (int64_t)json_number(t, "id", -1) + 1;
        b->space_size += 4 * strlen(json_text(t, "content", "")) + 1; /* a normalizer may make it longer */
    }
    b->n = n < (1 << 28) ? n : 0; /* a vocabulary of 16 times the largest there are */
    for (b->slots = 16; b->slots < 2 * (size_t)b->n; b->slots *= 2) continue;
    for (b->merges = 16; b->merges < 2 * merges; b->merges *= 2) continue;
    b->entry = (bpe_entry *)calloc((size_t)b->n + 1, sizeof *b->entry);
    b->slot = (int32_t *)calloc(b->slots, sizeof *b->slot);
    b->merge = (bpe_merge *)calloc(b->merges, sizeof *b->merge);
    b->space = (char *)malloc(b->space_size);
    b->first_added = b->n;
    for (int64_t i = 0; i < b->n && b->entry; ++i) b->entry[i].byte = -1;
    if (b->n > 0 && b->entry && b->slot && b->merge && b->space) {
        b->prepend = b->replace = b->with = bpe_keep(b, "", 0);
        return b;
    }
    bpe_free(b);
    return NULL;
}

static inline bool bpe_fill(bpe *b, const json *root, const json *vocab, const json *added, const json *list,
                            char *lines)
{
    const json *model = json_get(root, "model");
    if (root && model && !json_is(model, "type", "BPE") && json_get(model, "type"))
        return bpe_refuse("model", json_text(model, "type", ""));
    if (root && (!bpe_read_normalizer(b, json_get(root, "normalizer")) ||
                 !bpe_read_splitter(b, json_get(root, "pre_tokenizer")))) {
        return false;
    }
    if (!root) b->by_bytes = true;
    if (!root && !bpe_add_split(b, bpe_gpt2)) return false;
    for (const json *t = json_first(vocab); t; t = json_next(t)) {
        char *text = (char *)(uintptr_t)t->key;
        const size_t n = strlen(text);
        bpe_add(b, (int64_t)t->number, text, b->by_bytes ? bpe_to_bytes(text, n) : n);
    }
    for (const json *t = json_first(added); t; t = json_next(t)) {
        const bool is_special = json_number(t, "special", 0) != 0;
        bpe_add_whole(b, (int64_t)json_number(t, "id", -1), json_text(t, "content", ""), is_special);
    }
    const char *unknown = json_text(model, "unk_token", NULL);
    b->unknown = unknown ? bpe_find(b, unknown, strlen(unknown)) : -1;
    b->falls_back = json_number(model, "byte_fallback", 0) != 0;
    b->whole_words = json_number(model, "ignore_merges", 0) != 0;
    for (int i = 0; i < 256; ++i) {
        char name[16];
        const char byte = (char)i;
        snprintf(name, sizeof name, "<0x%02X>", i);
        b->byte_token[i] = b->by_bytes ? bpe_find(b, &byte, 1) : b->falls_back ? bpe_find(b, name, 6) : -1;
        if (!b->by_bytes && b->byte_token[i] >= 0) b->entry[b->byte_token[i]].byte = i;
    }
    bpe_read_template(b, json_get(root, "post_processor"));
    return bpe_read_merges(b, list, lines);
}

/* The tokenizer of a folder, to be freed by bpe_free; NULL, after saying why, if there is none that can be read. */
static inline bpe *bpe_load(const char *folder)
{
    char path[1024];
    size_t bytes;
    bpe *b = NULL;
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    json_document d = json_read(path);
    char *lines = NULL;
    const json *root = d.node, *vocab = json_get(json_get(root, "model"), "vocab");
    const json *merges = json_get(json_get(root, "model"), "merges"), *added = json_get(root, "added_tokens");
    if (!root) {
        snprintf(path, sizeof path, "%s/vocab.json", folder);
        d = json_read(path);
        vocab = d.node;
        snprintf(path, sizeof path, "%s/merges.txt", folder);
        lines = read_whole(path, &bytes);
    }
    size_t count = merges ? (size_t)merges->count : 0;
    for (const char *p = lines; p && *p; ++p) count += *p == '\n';
    if (vocab && vocab->kind == JSON_OBJECT && (root || lines)) b = bpe_new(vocab, added, count + 1);
    if (!b || !bpe_fill(b, root, vocab, added, merges, lines)) {
        fprintf(stderr, "bpe: no tokenizer was read from %s\n", folder);
        bpe_free(b);
        b = NULL;
    }
    json_free(&d);
    free(lines);
    return b;
}

/* ---- from text to numbers ---- */

typedef struct {
    int64_t *id, n, room;
    bool failed; /* no memory */
} bpe_ids;

static inline void bpe_push(bpe_ids *to, int64_t id)
{
    if (to->n == to->room) {
        to->room = to->room ? 2 * to->room : 64;
        int64_t *more = (int64_t *)realloc(to->id, (size_t)to->room * sizeof *more);
        if (!more) to->failed = true;
        else to->id = more;
    }
    if (!to->failed) to->id[to->n++] = id;
}

/* Merges the pair of the lowest rank, the first of equal ones, until there is none.  next: the ranks and results of the
   pairs that begin at each place, computed again only where a neighbour changed. */
static inline void bpe_merge_all(const bpe *b, bpe_ids *to, int64_t begin)
{
    int64_t n = to->n - begin, *const id = to->id + begin;
    bpe_merge *next = (bpe_merge *)malloc((size_t)(n + 1) * sizeof *next);
    if (!next) to->failed = true;
    if (!next) return;
    for (int64_t i = 0; i + 1 < n; ++i) next[i] = *bpe_merge_of(b, id[i], id[i + 1]);
    for (;;) {
        int64_t best = -1;
        for (int64_t i = 0; i + 1 < n; ++i) {
            if (next[i].pair && (best < 0 || next[i].rank < next[best].rank)) best = i;
        }
        if (best < 0) break;
        id[best] = next[best].made;
        --n;
        memmove(&id[best + 1], &id[best + 2], (size_t)(n - best - 1) * sizeof *id);
        memmove(&next[best], &next[best + 1], (size_t)(n - best) * sizeof *next);
        if (best + 1 < n) next[best] = *bpe_merge_of(b, id[best], id[best + 1]);
        if (best > 0) next[best - 1] = *bpe_merge_of(b, id[best - 1], id[best]);
    }
    to->n = begin + n;
    free(next);
}

/* A word: its bytes or characters, merged. */
static inline void bpe_encode_word(const bpe *b, bpe_ids *to, const char *s, size_t n)
{
    const int64_t begin = to->n, whole = b->whole_words ? bpe_find(b, s, n) : -1;
    uint32_t c;
    if (whole >= 0) {
        bpe_push(to, whole);
        return;
    }
    for (size_t i = 0, bytes; i < n; i += bytes) {
        bytes = b->by_bytes ? 1 : bpe_char(s + i, n - i, &c);
        const int64_t id = bpe_find(b, s + i, bytes);
        if (id >= 0) {
            bpe_push(to, id);
            continue;
        }
        bool known = b->falls_back;
        for (size_t k = 0; k < bytes; ++k) known = known && b->byte_token[(unsigned char)s[i + k]] >= 0;
        for (size_t k = 0; k < bytes && known; ++k) bpe_push(to, b->byte_token[(unsigned char)s[i + k]]);
        if (!known && b->unknown >= 0) bpe_push(to, b->unknown);
    }
    if (!to->failed) bpe_merge_all(b, to, begin);
}

/* Cuts a text by one regular expression after the other. */
static inline void bpe_split(const bpe *b, bpe_ids *to, int level, const char *s, size_t n)
{
    if (level == b->splits) {
        bpe_encode_word(b, to, s, n);
        return;
    }
    for (size_t at = 0, bytes; at < n && !to->failed; at += bytes) {
        bytes = bpe_word(&b->split[level], s + at, n - at);
        bpe_split(b, to, level + 1, s + at, bytes);
    }
}

/* A text without added tokens: normalized, then cut.  is_first: the whole text begins with it. */
static inline void bpe_encode_part(const bpe *b, bpe_ids *to, const char *s, size_t n, bool is_first)
{
    const size_t from = strlen(b->replace), with = strlen(b->with), prepend = strlen(b->prepend);
    if (n == 0) return;
    char *text = (char *)malloc(n * (with > from ? with : 1) + prepend + 2), *at = text;
    if (!text) to->failed = true;
    if (!text) return;
    const bool has_it = b->prepends_first_alone && from && n >= from && memcmp(s, b->replace, from) == 0;
    if (prepend && !has_it && (is_first || !b->prepends_first_alone)) {
        memcpy(at, b->prepend, prepend);
        at += prepend;
    }
    if (b->adds_space && *s != ' ') *at++ = ' ';
    for (size_t i = 0; i < n;) {
        if (from && n - i >= from && memcmp(s + i, b->replace, from) == 0) {
            memcpy(at, b->with, with);
            at += with;
            i += from;
        } else {
            *at++ = s[i++];
        }
    }
    bpe_split(b, to, 0, text, (size_t)(at - text));
    free(text);
}

/* The longest added token at s, or -1. */
static inline int64_t bpe_added_at(const bpe *b, const char *s, size_t left)
{
    int64_t best = -1;
    for (int64_t i = b->first_added; i < b->n; ++i) {
        const bpe_entry *e = &b->entry[i];
        if (!e->is_added || e->bytes > left || *e->text != *s || memcmp(e->text, s, e->bytes) != 0) continue;
        if (best < 0 || e->bytes > b->entry[best].bytes) best = i;
    }
    return best;
}

/* The numbers of a text, to be freed by free(ids.id); special: with what the model wants before and after it. */
static inline bpe_ids bpe_encode(const bpe *b, const char *text, size_t bytes, bool special)
{
    bpe_ids to;
    memset(&to, 0, sizeof to);
    for (int i = 0; i < b->n_before && special; ++i) bpe_push(&to, b->before[i]);
    size_t begin = 0;
    for (size_t at = 0; at < bytes && !to.failed;) {
        const int64_t added = b->has_first[(unsigned char)text[at]] ? bpe_added_at(b, text + at, bytes - at) : -1;
        if (added < 0) {
            ++at;
            continue;
        }
        bpe_encode_part(b, &to, text + begin, at - begin, begin == 0);
        bpe_push(&to, added);
        begin = at += b->entry[added].bytes;
    }
    bpe_encode_part(b, &to, text + begin, bytes - begin, begin == 0);
    for (int i = 0; i < b->n_after && special; ++i) bpe_push(&to, b->after[i]);
    if (to.failed) {
        free(to.id);
        memset(&to, 0, sizeof to);
    }
    return to;
}

/* ---- from numbers to text ---- */

/* Writes what a token adds to a text; false if nothing: special tokens are left out.  A text is that of its tokens one
   after the other, but for the space that a tokenizer prepends: is_first, of the first that is not left out. */
static inline bool bpe_write(const bpe *b, int64_t id, bool is_first, FILE *to)
{
    if (id < 0 || id >= b->n || !b->entry[id].text || b->entry[id].is_special) return false;
    const bpe_entry *e = &b->entry[id];
    const size_t from = strlen(b->replace), with = strlen(b->with);
    if (e->byte >= 0 || !with) {
        if (e->byte >= 0) putc(e->byte, to);
        else fwrite(e->text, 1, e->bytes, to);
        return true;
    }
    for (size_t i = 0; i < e->bytes;) {
        if (e->bytes - i < with || memcmp(e->text + i, b->with, with) != 0) {
            putc(e->text[i++], to);
            continue;
        }
        if (i > 0 || !is_first || !*b->prepend) fwrite(b->replace, 1, from, to);
        i += with;
    }
    return true;
}
#endif
