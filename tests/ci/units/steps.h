/* What tests/ci/example_loops.sh puts into the examples: each tg_step looks at what exists.  From step 100 on no step
 * may find more tensors, nodes, modules or bytes than one of the first hundred did, and the last one not more memory of
 * the process than the last whose number is a power of two (an example may evaluate its network after an epoch).  An
 * example prints one line of this at its end. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct {
    int64_t count, resident, grown;
    tg_stats_info most, later; /* of the first hundred steps; of those after them */
} steps_seen;

static int64_t steps_resident(void)
{
    long long all = 0, in_memory = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) return 0;
    if (fscanf(file, "%lld %lld", &all, &in_memory) != 2) in_memory = 0;
    fclose(file);
    return (int64_t)in_memory * sysconf(_SC_PAGESIZE);
}

static void steps_most(int64_t *most, int64_t now)
{
    if (now > *most) *most = now;
}

static void steps_report(void)
{
    const tg_stats_info *a = &steps_seen.most, *b = &steps_seen.later;
    const bool same = b->tensors <= a->tensors && b->nodes <= a->nodes && b->modules <= a->modules &&
                      b->bytes <= a->bytes && b->saved <= a->saved && steps_seen.grown < 1 << 20;
    fprintf(stderr, "steps: %lld; most tensors %lld, then %lld; bytes %lld, then %lld; resident %lld KB more: %s\n",
            (long long)steps_seen.count, (long long)a->tensors, (long long)b->tensors, (long long)a->bytes,
            (long long)b->bytes, (long long)steps_seen.grown / 1024,
            steps_seen.count < 150 ? "too few steps" : same ? "even" : "GROWS");
}

static tg_status steps_look(tg_optim *opt)
{
    const tg_status status = tg_step(opt);
    const tg_stats_info now = tg_stats();
    tg_stats_info *most = steps_seen.count < 100 ? &steps_seen.most : &steps_seen.later;
    if (steps_seen.count == 0) atexit(steps_report);
    steps_most(&most->tensors, now.tensors), steps_most(&most->nodes, now.nodes);
    steps_most(&most->modules, now.modules), steps_most(&most->bytes, now.bytes);
    steps_most(&most->saved, now.saved);
    steps_seen.count++;
    if ((steps_seen.count & (steps_seen.count - 1)) == 0) steps_seen.resident = steps_resident();
    steps_seen.grown = steps_resident() - steps_seen.resident;
    return status;
}
#define tg_step(opt) steps_look(opt)
