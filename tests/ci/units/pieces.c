/* pieces.c FOLDER FILE [special]: BERT's tokenizer of a folder on texts, which end in zeros.  For each a line of
   numbers. */
#include "../../../examples/models/wordpiece.h"

int main(int argc, char **argv)
{
    size_t bytes = 0;
    wordpiece *w = argc > 2 ? wordpiece_load(argv[1]) : NULL;
    char *texts = argc > 2 ? read_whole(argv[2], &bytes) : NULL;
    for (char *text = texts; w && text && text < texts + bytes; text += strlen(text) + 1) {
        const bpe_ids ids = wordpiece_encode(w, text, strlen(text), argc > 3);
        for (int64_t i = 0; i < ids.n; ++i) printf("%lld ", (long long)ids.id[i]);
        puts("");
        free(ids.id);
    }
    const bool ok = w && texts;
    wordpiece_free(w);
    free(texts);
    return ok ? 0 : 1;
}
