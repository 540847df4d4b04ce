/* 12_chargpt.c: a small GPT learns to write, one byte at a time, on one CPU core in about a minute (`make demo`), or on
   a GPU (`make demo DEVICE=cuda`).

   READ    gpt.h (the model is a page of modules), then train(): one step of training is the ten lines after TG_SCOPE.
   CHANGE  LAYERS, WIDTH, BATCH of gpt.h; --text FILE for another text; leave out the position embedding, or the causal
           mask (the `true` in attention), and see what the validation loss says.
   PRINTS  the losses while it learns (validation: of 128 windows), three samples, the loss of the model loaded back
           from its file, and a last line that compares the model with counting bytes and pairs of bytes, in nats per
           byte of all the text that it was not trained on:
           validation 1.9123 bigram 2.4567 unigram 3.3100 nats/char
   WRITES  out/loss.svg, log.csv, sample.txt and model.safetensors, and at every point of the curve
           checkpoint.safetensors, from which --resume 1 (`make demo RESUME=1`) goes on to the same bits, whenever the
           run was stopped.  --sample TEXT (`make demo SAMPLE="text"`) only continues a text with the saved model.
           The same seed gives the same numbers, on any number of threads; a GPU begins with the same weights, sees the
           same batches, and rounds differently. */
#if !defined(_WIN32) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L /* isatty, mkdir, chdir */
#endif
#define TENSORGRAD_IMPLEMENTATION
#include "../tensorgrad.h"
#include "chargpt.h"
#include "gpt.h"
#include <sys/time.h>

enum { WARMUP = 100 };

/* Trains from step `done`; returns the number of points of the curve. */
static int train(tg_module *m, tg_optim *opt, const corpus *c, int done, int steps, FILE *log, point *curve, int points)
{
    const bool terminal = isatty(1) != 0;
    const int every = (steps + CURVE - 1) / CURVE;
    struct timeval begun, here;
    double sum = 0;
    int last = done;
    gettimeofday(&begun, NULL);
    fprintf(log, "step,training,validation\n");
    for (int i = 0; i < points; ++i) write_point(log, &curve[i]);
    for (int step = done + 1; step <= steps && tg_ok(); ++step) {
        TG_SCOPE; /* one step: its temporaries and its tape end at the brace */
        tg_tensor *start = tg_randint(0, c->n_train - CONTEXT, TG_SHAPE(BATCH));
        tg_tensor *loss = loss_at(m, c, tg_data_i64(start), BATCH);
        opt->lr = tg_lr_cosine(step - 1, WARMUP, steps, 4e-3, 1e-4);
        tg_optim_zero_grad(opt);
        tg_backward(loss);
        tg_clip_grad_norm(tg_module_params(m), tg_module_count(m), 1.0);
        tg_step(opt);
        sum += tg_item(loss);
        if (step % every && step != steps) continue;
        const point now = {(double)step, sum / (step - last), validate(m, c, 128)};
        if (!tg_ok()) break;
        gettimeofday(&here, NULL);
        const double elapsed = (double)(here.tv_sec - begun.tv_sec) + 1e-6 * (double)(here.tv_usec - begun.tv_usec);
        sum = 0;
        last = step;
        curve[points++] = now;
        write_point(log, &now);
        tg_checkpoint_save("checkpoint.safetensors", m, opt, step);
        printf("%sstep %4d/%d  training %.4f  validation %.4f  %5.0f tokens/s  elapsed %.0f s  ETA %.0f s%s",
               terminal ? "\r" : "", step, steps, now.training, now.validation,
               (step - done) * (BATCH * CONTEXT) / elapsed, elapsed, elapsed / (step - done) * (steps - step),
               !terminal || step == steps ? "\n" : "   "); /* a terminal gets one line, written over and over */
        fflush(stdout);
    }
    return points;
}

/* The loss of a new model that has loaded the file, on all of the validation part. */
static double validate_saved(const char *path, const corpus *c, tg_device device)
{
    tg_module *m = make_model(c->byte_of, c->vocab, device);
    const double loss = m && tg_module_load(m, path) == TG_OK ? validate(m, c, 0) : NAN;
    tg_module_free(m);
    return loss;
}

int main(int argc, char **argv)
{
    options o;
    corpus c;
    tg_device device;
    point curve[CURVE];
    double unigram = 0, bigram = 0;
    int64_t done = 0;
    if (read_options(&o, argc, argv)) return 1;
    tg_set_error_handler(NULL, NULL); /* the first error is kept; it is looked for, and printed, below */
    tg_seed((uint64_t)o.seed);
    tg_set_num_threads((int)o.threads);
    if (tg_device_parse(o.device, &device) != TG_OK) return fail(o.device, tg_error_message());
    if (o.sample) return chdir(o.dir) ? fail(o.dir, strerror(errno)) : only_sample(o.sample, device);
    if (read_corpus(&c, o.text) || count_entropies(&c, &unigram, &bigram)) return 1;
    tg_module *m = make_model(c.byte_of, c.vocab, device);
    if (!m) return fail(o.device, tg_error_message());
    if (enter(o.dir)) return 1;
    tg_optim *opt = tg_adamw(tg_module_params(m), tg_module_count(m), 4e-3);
    if (!opt) return fail("tensorgrad", tg_error_message());
    opt->beta2 = 0.99;
    opt->weight_decay = 0.1;
    if (o.resume && tg_checkpoint_load("checkpoint.safetensors", m, opt, &done) != TG_OK)
        return fail("nothing to go on from", tg_error_message());
    int points = read_log("log.csv.part", curve, done);
    if (points == 0) points = read_log("log.csv", curve, done); /* the run was complete */
    files written;
    if (open_files(&written, o.dir)) return 1;
    printf("%s: %.0f bytes, %d different; a transformer of %d layers and %.0f parameters on %s; %ld steps of %d x %d "
           "bytes\n", o.text, (double)c.n, c.vocab, (int)LAYERS, (double)tg_module_numel(m),
           tg_device_str(tg_device_of(tg_module_get(m, "position"))), o.steps, (int)BATCH, (int)CONTEXT);
    if (done) printf("going on from step %.0f\n", (double)done);
    points = train(m, opt, &c, (int)done, (int)o.steps, written.log, curve, points);
    for (int i = 1; i <= 3 && tg_ok(); ++i) {
        printf("---- sample %d ----\n", i);
        fprintf(written.samples, "---- sample %d ----\n", i);
        sample(m, c.byte_of, c.ids + c.n_train, 1, 300, written.samples);
        putchar('\n');
        putc('\n', written.samples);
    }
    const double validation = validate(m, &c, 0);
    tg_module_save(m, "model.safetensors");
    const double loaded = validate_saved("model.safetensors", &c, device);
    if (!tg_ok()) return fail("tensorgrad", tg_error_message());
    draw(written.picture, curve, points, bigram, unigram);
    if (complete_files(&written, o.dir)) return 1;
    printf("model.safetensors, loaded into a new model: validation %.4f\n", loaded);
    if (loaded != validation) return fail("model.safetensors", "the loaded model is not the one that was saved");
    printf("validation %.4f bigram %.4f unigram %.4f nats/char\n", validation, bigram, unigram);
    tg_optim_free(opt);
    tg_module_free(m);
    free(c.ids);
    if (fflush(stdout) || ferror(stdout)) return fail("what was printed", "could not be written");
    return tg_shutdown() == TG_OK ? 0 : fail("tensorgrad", tg_error_message());
}
