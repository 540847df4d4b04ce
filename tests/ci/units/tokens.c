/* tokens.c FOLDER FILE [special]: the tokenizer of a folder on texts, which end in zeros.  For each a line of numbers,
   then what their tokens say and a zero. */
#include "../../../examples/models/bpe.h"

int main(int argc, char **argv)
{
    size_t bytes = 0;
    bpe *b = argc > 2 ? bpe_load(argv[1]) : NULL;
    char *texts = argc > 2 ? read_whole(argv[2], &bytes) : NULL;
    for (char *text = texts; b && text && text < texts + bytes; text += strlen(text) + 1) {
        const bpe_ids ids = bpe_encode(b, text, strlen(text), argc > 3);
        bool first = true;
        for (int64_t i = 0; i < ids.n; ++i) printf("%lld ", (long long)ids.id[i]);
        puts("");
        for (int64_t i = 0; i < ids.n; ++i) {
            if (bpe_write(b, ids.id[i], first, stdout)) first = false;
        }
        putchar(0);
        free(ids.id);
    }
    const bool ok = b && texts;
    bpe_free(b);
    free(texts);
    return ok ? 0 : 1;
}
