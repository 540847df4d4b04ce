/* finetune.c: GPT-2 and Llama as Hugging Face has them on disk, trained further on a text: all weights, or LoRA alone.

       cc -O2 -fopenmp finetune.c -o finetune -lm
       ./finetune FOLDER text.txt --lora 8 --steps 200 --lr 1e-4 --out lora.safetensors

   READ    train(): a step is what it is for any module; modules.h, the two models.
   CHANGE  --target, which layers LoRA wraps; the schedule in train(). */
#define TENSORGRAD_IMPLEMENTATION
#include "modules.h"
#include "bpe.h"

typedef struct {
    const char *folder, *text, *target, *out, *merged, *adapter;
    bool are_ids;
    int64_t steps, rows, length, lora, seed;
    double lr, alpha, dropout, weight_decay, clip;
} options;

static int usage(const char *program)
{
    fprintf(stderr,
            "%s FOLDER TEXT [options]: trains the model of FOLDER on the file TEXT.  FOLDER is one of Hugging Face's\n"
            "  --steps 100         steps of AdamW; the learning rate falls to 0 along a line\n"
            "  --lr 1e-4 --weight-decay 0.01 --clip 1   clip: the largest norm of all gradients; 0: any\n"
            "  --rows 4 --length 128                    a batch: windows of so many tokens\n"
            "  --lora 0            the rank of LoRA, which then alone is trained; 0: all weights are\n"
            "  --target \"*attn*\"   which linear layers LoRA wraps, by their paths\n"
            "  --alpha 16 --dropout 0                   of LoRA\n"
            "  --adapter FILE      begin with this LoRA\n"
            "  --out FILE          saves what was trained: all weights, or lora_A and lora_B alone\n"
            "  --merged FILE       saves all weights, those of LoRA added to them, as model.safetensors is\n"
            "  --seed 0            of the first values of LoRA, and of dropout\n"
            "  --threads 0         how many threads compute; 0: as many as there are processors\n"
            "  --ids               TEXT has numbers of tokens\n", program);
    return 2;
}

/* Sets the option of a number with this name; false if there is none. */
static bool set_number(options *o, const char *name, const char *value)
{
    const struct { const char *name; double *real; int64_t *whole; } table[] = {
        {"--lr", &o->lr, NULL}, {"--alpha", &o->alpha, NULL}, {"--dropout", &o->dropout, NULL},
        {"--weight-decay", &o->weight_decay, NULL}, {"--clip", &o->clip, NULL}, {"--steps", NULL, &o->steps},
        {"--rows", NULL, &o->rows}, {"--length", NULL, &o->length}, {"--lora", NULL, &o->lora},
        {"--seed", NULL, &o->seed}};
    for (size_t i = 0; i < sizeof table / sizeof *table; ++i) {
        if (strcmp(name, table[i].name) != 0) continue;
        if (table[i].real) *table[i].real = atof(value);
        else *table[i].whole = atoll(value);
        return true;
    }
    return false;
}

static bool read_options(options *o, int argc, char **argv)
{
    const options usual = {NULL, NULL, "*attn*", NULL, NULL, NULL, false, 100, 4, 128, 0, 0, 1e-4, 16, 0, 0.01, 1};
    *o = usual;
    for (int i = 1; i < argc; ++i) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strncmp(name, "--", 2) != 0) {
            if (o->folder && o->text) return false;
            if (o->folder) o->text = name;
            else o->folder = name;
            continue;
        }
        if (!strcmp(name, "--ids")) {
            o->are_ids = true;
            continue;
        }
        if (!value) return false;
        if (!strcmp(name, "--target")) o->target = value;
        else if (!strcmp(name, "--out")) o->out = value;
        else if (!strcmp(name, "--merged")) o->merged = value;
        else if (!strcmp(name, "--adapter")) o->adapter = value;
        else if (!strcmp(name, "--threads")) tg_set_num_threads(atoi(value));
        else if (!set_number(o, name, value)) return false;
        ++i;
    }
    return o->folder && o->text && o->rows > 0 && o->length > 0;
}

/* The tokens of the text, to be freed by free(ids.id). */
static bpe_ids read_text(const options *o)
{
    bpe_ids ids;
    size_t bytes = 0;
    char *text = read_whole(o->text, &bytes), *end;
    bpe *tokenizer = text && !o->are_ids ? bpe_load(o->folder) : NULL;
    memset(&ids, 0, sizeof ids);
    if (!text) fprintf(stderr, "%s cannot be read\n", o->text);
    if (tokenizer) ids = bpe_encode(tokenizer, text, bytes, false);
    for (char *p = text; text && o->are_ids; p = end) {
        const int64_t id = strtoll(p, &end, 10);
        if (end == p) break;
        bpe_push(&ids, id);
    }
    bpe_free(tokenizer);
    free(text);
    return ids;
}

/* ---- training ---- */

static bool trains(const char *path, tg_tensor *t, void *user)
{
    (void)path, (void)user;
    return tg_requires_grad(t);
}

/* Windows of length + 1 tokens, one behind the other; at the end of the text it begins again. */
static bool train(tg_module *m, const options *o, const bpe_ids *text)
{
    const int64_t L = o->length, windows = (text->n - 1) / L;
    const int n = tg_module_count(m);
    tg_tensor **params = (tg_tensor **)malloc((size_t)(n + 1) * sizeof *params);
    int64_t *ids = (int64_t *)malloc((size_t)(o->rows * (L + 1)) * sizeof *ids);
    const int trained = params ? tg_module_split_params(m, trains, NULL, params, n) : -1;
    tg_optim *opt = trained > 0 ? tg_adamw(params, trained, o->lr) : NULL;
    if (windows < 1) fprintf(stderr, "the text has %lld tokens, fewer than --length\n", (long long)text->n);
    if (opt) opt->weight_decay = o->weight_decay;
    for (int64_t step = 0; opt && ids && windows > 0 && step < o->steps && tg_ok(); ++step) {
        TG_SCOPE;
        for (int64_t r = 0; r < o->rows; ++r) {
            const int64_t *from = text->id + (step * o->rows + r) % windows * L;
            memcpy(ids + r * (L + 1), from, (size_t)(L + 1) * sizeof *ids);
        }
        tg_tensor *batch = tg_from_i64(ids, TG_SHAPE(o->rows, L + 1));
        tg_tensor *logits = tg_forward(m, tg_narrow(batch, 1, 0, L)), *targets = tg_narrow(batch, 1, 1, L);
        tg_tensor *loss = tg_cross_entropy(tg_flatten(logits, 0, 1), tg_flatten(targets, 0, 1));
        opt->lr = tg_lr_linear(step, 0, o->steps, o->lr, 0);
        tg_optim_zero_grad(opt);
        if (tg_backward(loss) != TG_OK || (o->clip > 0 && !tg_clip_grad_norm(params, trained, o->clip))) break;
        if (tg_step(opt) == TG_OK) printf("step %lld  loss %.10g\n", (long long)step + 1, tg_item(loss));
        fflush(stdout);
    }
    tg_optim_free(opt);
    free(params);
    free(ids);
    return tg_ok() && windows > 0;
}

/* The state of m under the names of the file. */
static bool save(tg_dict *state, bool is_gpt2, const char *path)
{
    if (state && is_gpt2) tg_dict_rename(state, &gpt2_names_back, 1);
    if (state) tg_dict_set_metadata(state, "format", "pt");
    if (state) tg_safetensors_save(path, state);
    tg_dict_free(state);
    return tg_ok();
}

static bool run(tg_module *m, const options *o, const bpe_ids *text, bool is_gpt2)
{
    if (o->lora > 0 && !tg_lora_apply(m, o->target, o->lora, o->alpha, o->dropout)) return false;
    if (o->adapter) {
        tg_dict *adapter = tg_safetensors_load(o->adapter);
        if (adapter) tg_lora_load_state(m, adapter);
        tg_dict_free(adapter);
    }
    if (!tg_ok() || !train(m, o, text)) return false;
    const bool all = o->lora == 0;
    if (o->out && !save(all ? tg_module_state(m) : tg_lora_state(m), is_gpt2 && all, o->out)) return false;
    if (!o->merged) return true;
    if (tg_lora_merge(m, true) != TG_OK || tg_lora_remove(m) != TG_OK) return false;
    return save(tg_module_state(m), is_gpt2, o->merged);
}

int main(int argc, char **argv)
{
    options o;
    bool is_gpt2;
    if (!read_options(&o, argc, argv)) return usage(argv[0]);
    tg_seed((uint64_t)o.seed);
    json_document config = read_config(o.folder);
    bpe_ids text = read_text(&o);
    tg_module *m = config.node && text.n > 0 ? read_model(o.folder, config.node, &is_gpt2) : NULL;
    const bool ok = m && run(m, &o, &text, is_gpt2);
    tg_module_free(m);
    free(text.id);
    json_free(&config);
    tg_shutdown();
    return ok && tg_ok() ? 0 : 1;
}
