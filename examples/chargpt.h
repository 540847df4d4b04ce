/* chargpt.h: what is around the model of 12_chargpt.c: its options, the log of its losses, and their picture. */
#ifndef CHARGPT_H
#define CHARGPT_H
#include "text.h"
#include <sys/stat.h>
#include <unistd.h>
#ifdef _WIN32
#define mkdir(path, mode) mkdir(path)
#endif

enum { STEPS = 2500, CURVE = 50 }; /* CURVE: points of the curve, at most */

typedef struct {
    const char *text, *dir, *device, *sample;
    long steps, seed, threads, resume;
} options;

static inline int read_options(options *o, int argc, char **argv)
{
    const options defaults = {"tensorgrad.h", "out", "cpu", NULL, STEPS, 1, 1, 0}; /* threads wait on a busy machine */
    *o = defaults;
    for (int i = 1; i < argc; i += 2) {
        const struct { const char *name, **text; long *number; } known[] = {
            {"--text", &o->text, NULL},     {"--out", &o->dir, NULL},         {"--device", &o->device, NULL},
            {"--sample", &o->sample, NULL}, {"--steps", NULL, &o->steps},     {"--seed", NULL, &o->seed},
            {"--threads", NULL, &o->threads}, {"--resume", NULL, &o->resume}};
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        size_t k = 0, count = sizeof known / sizeof known[0];
        char rest;
        while (k < count && strcmp(argv[i], known[k].name)) ++k;
        if (k < count && known[k].text && *value) *known[k].text = value;
        else if (k == count || known[k].text || sscanf(value, "%9ld%c", known[k].number, &rest) != 1 ||
                 *known[k].number < (known[k].number == &o->steps || known[k].number == &o->threads))
            return fail(argv[i], "usage: chargpt [--text FILE] [--steps N] [--seed N] [--threads N] [--out DIR] "
                                 "[--device cpu|cuda|cuda:1] [--resume 1] [--sample TEXT]");
    }
    return 0;
}

/* ---- the log ----------------------------------------------------------------------------------------------------- */

typedef struct { double step, training, validation; } point;

/* The points of an earlier run up to a step, from its log; how many there are. */
static inline int read_log(const char *path, point *curve, int64_t last)
{
    int n = 0;
    FILE *f = fopen(path, "rb");
    point p;
    if (!f) return 0;
    for (int c = 0; c != EOF && c != '\n';) c = getc(f); /* the titles */
    while (n < CURVE && fscanf(f, "%lf,%lf,%lf", &p.step, &p.training, &p.validation) == 3 && p.step <= (double)last)
        curve[n++] = p;
    fclose(f);
    return n;
}

static inline void write_point(FILE *log, const point *p)
{
    fprintf(log, "%.0f,%.9g,%.9g\n", p->step, p->training, p->validation);
    fflush(log); /* before the checkpoint: a run that goes on from there finds it */
}

/* ---- the picture ------------------------------------------------------------------------------------------------- */

/* The curves as an image.  The y of a loss is (loss - bottom) * sy, downwards. */
static inline void draw(FILE *f, const point *p, int n, double bigram, double unigram)
{
    double low = bigram, high = unigram;
    for (int i = 0; i < n; ++i) {
        low = fmin(low, fmin(p[i].training, p[i].validation));
        high = fmax(high, p[i].training);
    }
    const double bottom = floor(2 * low) / 2, sx = 640 / p[n - 1].step, sy = -360 / (ceil(2 * high) / 2 - bottom);
    fprintf(f, "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 740 460' font-family='sans-serif' font-size='12'>"
               "\n<rect width='740' height='460' fill='white'/>\n<text x='390' y='26' text-anchor='middle'>"
               "loss, nats per byte</text>\n<text x='390' y='445' text-anchor='middle'>step</text>\n"
               "<g transform='translate(70 400)'>\n<path d='M0 0 h640 v-360 h-640 z' fill='none' stroke='black'/>\n");
    for (int i = 0; i <= 10; ++i)
        fprintf(f, "<path d='M%d 0 v5' stroke='black'/><text x='%d' y='18' text-anchor='middle'>%g</text>\n", 64 * i,
                64 * i, p[n - 1].step * i / 10);
    for (double y = 0; y < 20 && y * sy > -361; y += 0.5)
        fprintf(f, "<path d='M0 %.1f h-5' stroke='black'/><text x='-8' y='%.1f' text-anchor='end'>%.1f</text>\n",
                y * sy, y * sy + 4, bottom + y);
    for (int k = 0; k < 2; ++k) { /* what counting achieves, dashed, and the two curves */
        const char *colour = k ? "#d04010" : "#2060c0";
        const double level = ((k ? unigram : bigram) - bottom) * sy;
        fprintf(f, "<path d='M0 %.1f h640' stroke='gray' stroke-dasharray='6 4'/><text x='630' y='%.1f' "
                   "text-anchor='end'>%s</text>\n", level, level - 4, k ? "unigram" : "bigram");
        fprintf(f, "<text x='%d' y='45' fill='%s'>%s</text>\n", 80 * k, colour, k ? "validation" : "training");
        fprintf(f, "<polyline fill='none' stroke='%s' stroke-width='2' points='", colour);
        for (int i = 0; i < n; ++i)
            fprintf(f, "%.1f,%.1f ", p[i].step * sx, ((k ? p[i].validation : p[i].training) - bottom) * sy);
        fprintf(f, "'/>\n");
    }
    fprintf(f, "</g>\n</svg>\n");
}

/* ---- the files --------------------------------------------------------------------------------------------------- */

typedef struct { FILE *log, *picture, *samples; } files; /* under names that end in .part, until they are complete */

/* Goes to the folder, which is made if there is none; opened files are then in it. */
static inline int enter(const char *dir)
{
    return (mkdir(dir, 0777) && errno != EEXIST) || chdir(dir) ? fail(dir, strerror(errno)) : 0;
}

static inline int open_files(files *f, const char *dir)
{
    f->log = fopen("log.csv.part", "wb");
    f->picture = fopen("loss.svg.part", "wb");
    f->samples = fopen("sample.txt.part", "wb");
    return f->log && f->picture && f->samples ? 0 : fail(dir, strerror(errno));
}

/* A second try for systems that rename to no file that there is. */
static inline int complete(const char *part, const char *name)
{
    return rename(part, name) && (remove(name) || rename(part, name));
}

static inline int complete_files(files *f, const char *dir)
{
    const int failed = fclose(f->log) | fclose(f->picture) | fclose(f->samples) | complete("log.csv.part", "log.csv") |
                       complete("loss.svg.part", "loss.svg") | complete("sample.txt.part", "sample.txt");
    return failed ? fail(dir, "a file could not be written") : 0;
}
#endif
