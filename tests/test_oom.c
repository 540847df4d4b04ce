/* Out of memory, at every allocation: each scenario is a row of calls that runs again and again, and in run n the n-th
 * allocation fails; once in one pass over all n, it and all after it in another, until a run ends untouched.  The call
 * that met the failure must say so and must have changed nothing: inputs, gradients, random numbers, what is alive.
 * Repeated with memory back it must succeed, and the scenario must end in the same bits as without failure, with
 * nothing left alive.
 *     test_oom [--part k/n]        every n-th scenario, from the k-th (0 to n-1)
 * On a device of the simulator (TG_TEST_DEVICE=cuda:0) allocations of device memory fail with the others. */
#if !defined(__cplusplus) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include "tensorgrad.h"
#include "harness.h"
#include "other_rank.h"
#include <stdlib.h>
#ifdef CUDASIM
#include "cudasim_test.h"
#endif

/* ---- the allocator: fails on demand, poisons, and knows what is out ---- */

static struct {
    int64_t calls, fail_at;               /* since armed; 0: never */
    bool persistent, fired, armed, again; /* the device's allocation is tried once more after a failure */
    bool capturing;                       /* not there: a step is being captured */
    int64_t live, wrong_sizes, injected, on_device;
    int64_t kept; /* of what is live, what a device keeps until the thread ends: its plans of products and workspace */
} memory;

enum { BLOCK_HEADER = 16 }; /* keeps malloc's alignment */

static bool next_allocation_fails(void)
{
    if (!memory.armed || !memory.fail_at) return false;
    ++memory.calls;
    if (memory.calls != memory.fail_at && !(memory.persistent && memory.calls > memory.fail_at)) return false;
    memory.injected += !memory.fired;
    return memory.fired = true;
}

#ifdef CUDASIM
static int device_memory_is_left(void)
{
    bool refused = memory.again || next_allocation_fails();
    memory.on_device += refused && !memory.again;
    memory.again = refused && !memory.again && !memory.capturing;
    return !refused;
}
#endif

static void *failing_alloc(size_t bytes, void *user)
{
    char *block;
    (void)user;
    if (next_allocation_fails()) return NULL;
    block = (char *)malloc(bytes + BLOCK_HEADER);
    if (!block) return NULL;
    memcpy(block, &bytes, sizeof bytes);
    memset(block + BLOCK_HEADER, 0xcd, bytes);
    ++memory.live;
    return block + BLOCK_HEADER;
}

static void failing_free(void *p, size_t bytes, void *user)
{
    char *block = (char *)p - BLOCK_HEADER;
    size_t size;
    (void)user;
    if (!p) return;
    memcpy(&size, block, sizeof size);
    memory.wrong_sizes += size != bytes;
    memset(p, 0xdd, size);
    --memory.live;
    free(block);
}

/* ---- scenarios ---- */

enum { INPUTS = 7, RESULTS = 12, CALLS = 16 };

typedef struct state state;
typedef tg_tensor *(*operation)(tg_tensor *const *in);
struct state {
    tg_tensor *t[INPUTS];  /* a, b [5, 16], v [16], q [16, 16], i and c [5] (indices), m (mask): tracked */
    tg_tensor *y[RESULTS]; /* what the calls made */
    tg_tensor *w;          /* a tensor with history that calls write to: tracked */
    tg_optim *opt;
    tg_backward_run *run;
    tg_loader *loader;
    bool profiled; /* the profile is kept until the thread ends */
    tg_tensor *large;
    operation op;
    tg_module *net; /* of a, b, v and q */
    tg_capture *capture;
    tg_grad_scaler scaler;
    tg_dtype low;    /* what the captured steps compute products in */
    int calls, runs; /* of its step, and of itself without an error */
};

/* A call: true if it succeeded.  It may be made again after it failed. */
typedef bool (*call)(state *s);
enum {
    UNREPEATABLE = 1, /* a backward without retain: when it failed half-way its error says that it cannot be repeated */
    PREPARES = 2,     /* what it made before it failed stays, for the next time */
    SEVERAL = 4,      /* made of several calls: what the first ones made stays in the scope when a later one fails */
    DOES_WITHOUT = 8, /* may succeed: page-locked memory that cannot be kept for reuse is freed, and a step that cannot
                         be captured is called */
    WHOLE_STEP = 16   /* a forward and its backward: it can be repeated although the backward alone cannot */
};
typedef struct {
    call run;
    int flags;
} step;
typedef struct {
    const char *name;
    operation op;
    void (*finish)(state *s); /* what a scope's end does not end */
    step steps[CALLS];
} scenario;

static tg_tensor *ramp(double from, double to, tg_shape shape, bool leaf)
{
    tg_tensor *t = tg_reshape(tg_linspace(from, to, 1 + (shape.ndim > 1 ? shape.dim[0] * shape.dim[1] : shape.dim[0])),
                              TG_SHAPE(-1));
    t = tg_clone(tg_reshape(tg_narrow(t, 0, 0, tg_numel(t) - 1), shape));
    return leaf ? tg_set_requires_grad(t, true) : t;
}

static void set_up(state *s, operation op)
{
    int64_t index[80];
    uint8_t mask[80];
    int k;
    memset(s, 0, sizeof *s);
    s->op = op;
    for (k = 0; k < 80; ++k) index[k] = (7 * k) % 5, mask[k] = (uint8_t)(k % 3 == 0);
    tg_set_default_dtype(TG_F64);
    s->t[0] = ramp(0.1, 0.9, TG_SHAPE(5, 16), true);
    s->t[1] = ramp(1.5, 0.2, TG_SHAPE(5, 16), true);
    s->t[2] = ramp(0.3, 2.1, TG_SHAPE(16), true);
    s->t[3] = ramp(-0.4, 0.6, TG_SHAPE(16, 16), true);
    s->t[4] = tg_from_i64(index, TG_SHAPE(5, 16));
    s->t[5] = tg_from_i64(index, TG_SHAPE(5));
    s->t[6] = tg_from(mask, TG_SHAPE(5, 16), TG_BOOL);
    tg_seed(3);
}

/* ---- what must not change, and what must come out ---- */

/* As harness_mix_tensor, without an allocation of the library. */
static uint64_t mix_tensor(uint64_t hash, tg_tensor *t)
{
    static unsigned char bytes[1 << 16];
    size_t n = t ? (size_t)tg_numel(t) * tg_dtype_size(tg_dtype_of(t)) : 0;
    if (!t) return harness_mix(hash, "none", 4);
    CHECK(n <= sizeof bytes && tg_copy_out(t, bytes, n) == TG_OK);
    return harness_mix(hash, bytes, n);
}

typedef struct {
    uint64_t tracked;
    tg_rng rng;
    tg_stats_info stats;
    bool grad_mode;
} snapshot;

/* Versions count only without a capture, since a capture that is undone has counted writes. */
static uint64_t mix_tracked(const state *s, bool with_gradients)
{
    uint64_t hash = HARNESS_HASH;
    tg_device device;
    int64_t version;
    int k;
    for (k = 0; k <= INPUTS; ++k) {
        tg_tensor *t = k < INPUTS ? s->t[k] : s->w;
        if (!t) continue;
        version = s->capture ? 0 : tg_version_of(t);
        device = tg_device_of(t);
        hash = harness_mix(hash, &device, sizeof device);
        hash = harness_mix(mix_tensor(hash, t), &version, sizeof version);
        if (t != s->w && with_gradients) hash = mix_tensor(hash, tg_grad(t));
    }
    return hash;
}

/* A replay with a scaler that fails may have got as far as its gradients. */
static snapshot take_snapshot(const state *s)
{
    snapshot now;
    memory.armed = false;
    now.tracked = mix_tracked(s, !s->capture || !s->scaler.enabled);
    now.rng = tg_rng_state();
    now.stats = tg_stats();
    now.grad_mode = tg_is_grad_enabled();
    memory.armed = true;
    return now;
}

static uint64_t outcome(state *s)
{
    uint64_t hash;
    int k;
    memory.armed = false;
    hash = mix_tracked(s, true);
    for (k = 0; k < RESULTS; ++k) hash = mix_tensor(hash, s->y[k]);
    return hash;
}

/* ---- one run ---- */

/* The call met a failure: it must have said so and changed nothing. */
static void check_failed_call(const state *s, const step *made, bool ok, const snapshot *before)
{
    snapshot after = take_snapshot(s);
    memory.armed = false;
    if (ok && (made->flags & DOES_WITHOUT)) {
        CHECK(tg_ok());
        return;
    }
    CHECK(!ok && !tg_ok() && tg_error_code() == TG_ERR_MEMORY);
    CHECK(tg_ok() || strstr(tg_error_message(), "memory") != NULL);
    CHECK(after.tracked == before->tracked && after.grad_mode == before->grad_mode);
    if (made->flags & SEVERAL) return;
    CHECK(after.rng.seed == before->rng.seed && after.rng.offset == before->rng.offset);
    if (made->flags & UNREPEATABLE) { /* it may have freed */
        CHECK(after.stats.tensors <= before->stats.tensors && after.stats.saved <= before->stats.saved);
        return;
    }
    if (!(made->flags & PREPARES)) {
        CHECK(after.stats.tensors == before->stats.tensors && after.stats.bytes == before->stats.bytes);
    }
    CHECK(after.stats.nodes == before->stats.nodes && after.stats.saved == before->stats.saved);
}

static void end_thread(void)
{
    CHECK(tg_shutdown() == TG_OK && tg_set_default_device(HERE) == TG_OK);
    tg_set_cache_limit(0);
}

/* Whether the device keeps freed blocks and uses them again: only then steps can be captured.  The device asks for the
 * setting when it is first used. */
static bool keeps_blocks;
static void keep_blocks(bool keep)
{
#ifdef CUDASIM
    if (HERE.type == TG_DEV_CPU || keep == keeps_blocks) return;
    end_thread();
    setenv("TG_CUDA_PASS_THROUGH", keep ? "0" : "1", 1);
    keeps_blocks = keep;
#else
    (void)keep;
#endif
}

/* Runs the scenario with its n-th allocation failing (0: none); false when there was no such allocation. */
static bool run_once(const scenario *what, int64_t n, bool persistent, uint64_t *hash)
{
    state s;
    tg_mark mark;
    bool handled = false, ended = false;
    int k;
    memory.fired = memory.armed = false;
    memory.calls = 0, memory.fail_at = n, memory.persistent = persistent;
    mark = tg_scope_begin();
    set_up(&s, what->op);
    CHECK(tg_ok());
    for (k = 0; k < CALLS && what->steps[k].run && !ended; ++k) {
        const step *made = &what->steps[k];
        snapshot before = take_snapshot(&s);
        bool ok = made->run(&s);
        if (memory.fired && !handled) {
            bool lost = !(made->flags & WHOLE_STEP) && strstr(tg_error_message(), "cannot be repeated") != NULL;
            handled = true;
            check_failed_call(&s, made, ok, &before);
            memory.fail_at = 0; /* from here on no allocation fails */
            tg_clear_error();
            if (lost) CHECK((made->flags & UNREPEATABLE) != 0);
            ended = lost;
            if (!ok && !ended) ok = made->run(&s);
        }
        CHECK((ok || ended) && tg_ok());
    }
    memory.armed = false;
    if (!ended) *hash = outcome(&s);
    if (what->finish) what->finish(&s);
    tg_scope_end(mark);
    if (s.loader || s.profiled) end_thread(); /* until then page-locked memory is kept */
    if (keeps_blocks) CHECK(tg_empty_cache(HERE) == TG_OK);
    if (memory.kept < 0) memory.kept = memory.live;
    CHECK(tg_stats().tensors == 0 && tg_stats().nodes == 0 && tg_stats().bytes == 0 && tg_stats().saved == 0);
    CHECK(tg_stats().modules == 0);
    CHECK(memory.live == memory.kept && memory.wrong_sizes == 0 && tg_ok());
    memory.wrong_sizes = 0;
    return memory.fired;
}

static void free_capture(state *s);

static void run_scenario(const scenario *what)
{
    uint64_t reference = 0, hash = 0;
    int failed = harness.failed, persistent;
    int64_t n = 0, live = memory.live;
    char text[96];
    harness.test = what->name;
    harness.sample = "untouched";
    keep_blocks(what->finish == free_capture);
    if (HERE.type == TG_DEV_CUDA) memory.kept = -1; /* the first run shows how much it is */
    run_once(what, 0, false, &reference);
    run_once(what, 0, false, &hash);
    CHECK(hash == reference && live == 0);
    for (persistent = 0; persistent < 2; ++persistent) {
        bool fired = true;
        for (n = 1; fired && harness.failed < failed + 10; ++n) {
            snprintf(text, sizeof text, "allocation %d fails %s", (int)n, persistent ? "and all after it" : "once");
            harness.sample = text;
            hash = reference; /* a run that cannot be repeated has no outcome */
            fired = run_once(what, n, persistent != 0, &hash);
            CHECK(hash == reference);
        }
    }
    CHECK(n > 1);
    if (memory.kept > 0) end_thread();
    CHECK(memory.live == 0);
    memory.kept = 0;
    harness.sample = NULL;
}

/* ---- calls that scenarios share ---- */

static bool apply(state *s)
{
    s->y[0] = s->op(s->t);
    return s->y[0] != NULL;
}
static bool sum_up(state *s)
{
    tg_tensor *y = s->w ? s->w : s->y[0];
    s->y[1] = tg_sum(y && tg_requires_grad(y) ? y : s->t[0]);
    return s->y[1] != NULL;
}
static bool backward(state *s) { return tg_backward(s->y[1]) == TG_OK; }
static bool backward_retain(state *s) { return tg_backward_ex(&s->y[1], 1, NULL, TG_RETAIN_GRAPH) == TG_OK; }
static bool backward_create(state *s) { return tg_backward_ex(&s->y[1], 1, NULL, TG_CREATE_GRAPH) == TG_OK; }
static bool first_gradient(state *s)
{
    return tg_gradients(&s->y[1], 1, NULL, s->t, 1, &s->y[2], TG_CREATE_GRAPH | TG_MATERIALIZE_GRADS) == TG_OK;
}
static bool all_gradients(state *s)
{
    return tg_gradients(&s->y[1], 1, NULL, s->t, 4, &s->y[4], TG_RETAIN_GRAPH | TG_ALLOW_UNUSED) == TG_OK;
}
static bool sum_gradient(state *s) { return (s->y[3] = tg_sum(s->y[2])) != NULL; }
static bool backward_gradient(state *s)
{
    if (!tg_requires_grad(s->y[3])) return true;
    return tg_backward_ex(&s->y[3], 1, NULL, TG_RETAIN_GRAPH) == TG_OK;
}
static bool make_target(state *s) { return (s->w = tg_mul(s->t[0], s->t[1])) != NULL; }
static bool write_target(state *s)
{
    tg_tensor *in[INPUTS];
    memcpy(in, s->t, sizeof in);
    in[0] = s->w;
    return s->op(in) == s->w;
}

/* ---- operations: each forward, backward, gradient of the gradient ---- */

#define OPERATIONS(OP)                                                                  \
    OP(add, tg_add(a, b))                                                               \
    OP(sub_broadcast, tg_sub(a, v))                                                     \
    OP(mul, tg_mul(a, b))                                                               \
    OP(mul_broadcast, tg_mul(v, a))                                                     \
    OP(div, tg_div(a, b))                                                               \
    OP(pow, tg_pow(a, b))                                                               \
    OP(maximum, tg_maximum(a, b))                                                       \
    OP(atan2, tg_atan2(a, b))                                                           \
    OP(add_scalar, tg_add_scalar(a, 2))                                                 \
    OP(pow_scalar, tg_pow_scalar(a, 1.5))                                               \
    OP(less, tg_lt(a, b))                                                               \
    OP(exp, tg_exp(a))                                                                  \
    OP(log, tg_log(a))                                                                  \
    OP(sqrt, tg_sqrt(a))                                                                \
    OP(sin, tg_sin(a))                                                                  \
    OP(tanh, tg_tanh(a))                                                                \
    OP(sigmoid, tg_sigmoid(a))                                                          \
    OP(relu, tg_relu(a))                                                                \
    OP(gelu, tg_gelu(a, false))                                                         \
    OP(gelu_tanh, tg_gelu(a, true))                                                     \
    OP(silu, tg_silu(a))                                                                \
    OP(softplus, tg_softplus(a, 1, 20))                                                 \
    OP(leaky_relu, tg_leaky_relu(a, 0.1))                                               \
    OP(elu, tg_elu(a, 1))                                                               \
    OP(where, tg_where(m, a, b))                                                        \
    OP(clamp, tg_clamp(a, 0.2, 0.7))                                                    \
    OP(masked_fill, tg_masked_fill(a, m, 0.5))                                          \
    OP(lerp, tg_lerp(a, b, v))                                                          \
    OP(addcmul, tg_addcmul(a, b, v, 0.5))                                               \
    OP(to_dtype, tg_to_dtype(a, TG_BF16))                                               \
    OP(copy, tg_to_ex(a, TG_CPU, TG_F64, TG_COPY))                                      \
    OP(clone, tg_clone(a))                                                              \
    OP(view, tg_view(a, TG_SHAPE(16, 5)))                                               \
    OP(transpose, tg_t(a))                                                              \
    OP(permute, tg_permute(a, TG_DIMS(1, 0)))                                           \
    OP(expand, tg_expand(v, TG_SHAPE(3, 16)))                                           \
    OP(narrow, tg_narrow(a, 1, 2, 5))                                                   \
    OP(slice, tg_slice(a, 1, 1, 15, 3))                                                 \
    OP(select, tg_select(a, 0, 3))                                                      \
    OP(diagonal, tg_diagonal(q, 1, 0, 1))                                               \
    OP(unfold, tg_unfold(v, 0, 4, 2))                                                   \
    OP(repeat, tg_repeat(a, TG_SHAPE(2, 1)))                                            \
    OP(roll, tg_roll(a, TG_SHAPE(1, 2), TG_DIMS(0, 1)))                                 \
    OP(flip, tg_flip(a, TG_DIMS(1)))                                                    \
    OP(tril, tg_tril(q, 0))                                                             \
    OP(pad, tg_pad(a, TG_DIMS(1, 2, 0, 1), 0.5))                                        \
    OP(sum_dim, tg_sum_dim(a, 0, false))                                                \
    OP(mean_dims, tg_mean_dims(a, TG_DIMS(0, 1), true))                                 \
    OP(prod, tg_prod_dim(a, 1, false))                                                  \
    OP(amax, tg_amax_dim(a, 1, false))                                                  \
    OP(max_dim, tg_max_dim(a, 1, false, NULL))                                          \
    OP(argmax, tg_argmax(a, 1, false))                                                  \
    OP(any, tg_any_dim(m, 1, false))                                                    \
    OP(logsumexp, tg_logsumexp_dim(a, 1, false))                                        \
    OP(var, tg_var_dim(a, 1, 1, false))                                                 \
    OP(std, tg_std_dim(a, 1, 1, false))                                                 \
    OP(norm, tg_norm(a))                                                                \
    OP(norm_3, tg_norm_dim(a, 3, 1, true))                                              \
    OP(cumsum, tg_cumsum(a, 1))                                                         \
    OP(sort, tg_sort(a, 1, true, NULL))                                                 \
    OP(topk, tg_topk(a, 3, 1, true, NULL))                                              \
    OP(matmul, tg_matmul(a, q))                                                         \
    OP(matmul_vector, tg_matmul(a, v))                                                  \
    OP(mv, tg_mv(q, v))                                                                 \
    OP(outer, tg_outer(v, v))                                                           \
    OP(dot, tg_dot(v, v))                                                               \
    OP(linear, tg_linear(a, q, v))                                                      \
    OP(linear_gelu, tg_linear_gelu(a, q, v, true))                                      \
    OP(addmm, tg_addmm(b, a, q, 0.5, 2))                                                \
    OP(conv1d, convolved(q, a, NULL, false))                                            \
    OP(conv_transpose1d, convolved(q, a, NULL, true))                                   \
    OP(conv1d_in_parts, convolved(q, a, v, false))                                      \
    OP(gather, tg_gather(a, 0, i))                                                      \
    OP(index_select, tg_index_select(a, 0, c))                                          \
    OP(scatter_add, tg_scatter_add(a, 0, i, b))                                         \
    OP(scatter, tg_scatter(a, 1, i, b))                                                 \
    OP(embedding, tg_embedding(a, i))                                                   \
    OP(one_hot, tg_one_hot(i, 5))                                                       \
    OP(index, tg_index(a, &i, 1))                                                       \
    OP(index_mask, tg_index(a, &m, 1))                                                  \
    OP(index_put, tg_index_put(a, &i, 1, v, true))                                      \
    OP(masked_select, tg_masked_select(a, m))                                           \
    OP(nonzero, tg_nonzero(m))                                                          \
    OP(softmax, tg_softmax(a, 1))                                                       \
    OP(log_softmax, tg_log_softmax(a, 0))                                               \
    OP(layer_norm, tg_layer_norm(a, 1, v, v, 1e-5))                                     \
    OP(layer_norm_of_two_dtypes, normed_in_bf16(a, v))                                  \
    OP(rms_norm, tg_rms_norm(a, 1, v, 1e-5))                                            \
    OP(add_layer_norm, tg_add_layer_norm(a, b, 1, v, v, 1e-5, NULL))                    \
    OP(batch_norm, normed(a, v, true))                                                  \
    OP(batch_norm_by_running, normed(a, v, false))                                      \
    OP(group_norm, tg_group_norm(a, 4, v, v, 1e-5))                                     \
    OP(cosine_similarity, tg_cosine_similarity(a, b, 1, 1e-8))                          \
    OP(cdist, tg_cdist(a, b, 2))                                                        \
    OP(linalg_det, tg_linalg_det(q))                                                    \
    OP(linalg_solve, tg_linalg_solve_triangular(q, q, false, true, true))               \
    OP(linalg_qr, tg_linalg_qr(a, NULL, NULL))                                          \
    OP(linalg_svdvals, tg_linalg_svdvals(a))                                            \
    OP(linalg_lstsq, tg_linalg_lstsq(a, b, -1, NULL, NULL))                             \
    OP(linalg_matrix_exp, tg_linalg_matrix_exp(q))                                      \
    OP(prelu, tg_prelu(a, v))                                                           \
    OP(glu, tg_glu(a, 1))                                                               \
    OP(complex_mul, turned(a, b))                                                       \
    OP(multinomial, tg_multinomial(a, 3, false))                                        \
    OP(multinomial_again, tg_multinomial(a, 3, true))                                   \
    OP(bincount, tg_bincount(c, NULL, 0))                                               \
    OP(repeat_interleave, tg_repeat_interleave(a, 2, 0))                                \
    OP(meshgrid, grid_of(v))                                                            \
    OP(trace, tg_trace(q))                                                              \
    OP(max_pool, tg_max_pool1d(a, TG_SHAPE(3), TG_SHAPE(2), TG_SHAPE(1)))               \
    OP(avg_pool, tg_avg_pool1d(a, TG_SHAPE(3), TG_SHAPE(2), TG_SHAPE(1)))               \
    OP(adaptive_avg_pool, tg_adaptive_avg_pool1d(a, TG_SHAPE(1100)))                    \
    OP(adaptive_max_pool, tg_adaptive_max_pool1d(a, TG_SHAPE(600)))                     \
    OP(dropout, tg_dropout(a, 0.5, true))                                               \
    OP(attention, tg_scaled_dot_product_attention(a, b, b, NULL, 0, false, 0))          \
    OP(attention_causal, tg_scaled_dot_product_attention(a, a, b, NULL, 0.25, true, 0)) \
    OP(attention_ex, tg_scaled_dot_product_attention_ex(a, b, b, NULL, 0, true, 0, false, 3, 5)) \
    OP(rope, rotated(a, v, false))                                                      \
    OP(rope_pairs, rotated(a, v, true))                                                 \
    OP(filter_logits, tg_filter_logits(a, 0, 0.5))                                      \
    OP(repetition_penalty, tg_repetition_penalty(a, i, 2))                              \
    OP(sample_logits, tg_sample_logits(a, 1, 3, 0.9))                                   \
    OP(mse_loss, tg_mse_loss(a, b, TG_MEAN))                                            \
    OP(smooth_l1_loss, tg_smooth_l1_loss(a, b, TG_SUM, 0.5))                            \
    OP(cross_entropy, tg_cross_entropy(a, c))                                           \
    OP(cross_entropy_soft, tg_cross_entropy_ex(a, b, v, -100, 0.1, TG_MEAN))            \
    OP(binary_cross_entropy, tg_binary_cross_entropy(a, a, NULL, TG_MEAN))              \
    OP(bce_with_logits, tg_binary_cross_entropy_with_logits(a, b, NULL, TG_SUM, v))     \
    OP(kl_div, tg_kl_div(a, b, TG_BATCHMEAN, false))                                    \
    OP(rand, tg_rand_like(a))                                                           \
    OP(randn, tg_randn(TG_SHAPE(9, 9)))                                                 \
    OP(randint, tg_randint(0, 9, TG_SHAPE(90)))                                         \
    OP(randperm, tg_randperm(90))                                                       \
    OP(bernoulli, tg_bernoulli_on(TG_SHAPE(9, 9), 0.5, TG_F32, TG_CPU))                 \
    OP(arange, tg_arange(0, 90, 1))                                                     \
    OP(eye, tg_eye(9))                                                                  \
    OP(detach, tg_detach(a))                                                            \
    OP(checkpoint, checkpointed(a, b))                                                  \
    OP(checkpoint_unrecorded, without_grad(a, b))                                       \
    OP(split, last_piece(a, false))                                                     \
    OP(unbind, last_piece(a, true))                                                     \
    OP(huber_loss, tg_huber_loss(a, b, TG_MEAN, 0.5))                                   \
    OP(custom, custom_product(a, b))                                                    \
    OP(cat, joined(a, b, false))                                                        \
    OP(stack, joined(a, b, true))                                                       \
    OP(cat_ten, of_ten(a, b, false))                                                    \
    OP(checkpoint_ten, of_ten(a, b, true))                                              \
    OP(einsum, contracted(a, q))

/* Writes to w, which has the history a * b. */
#define WRITES(OP)                                   \
    OP(add_, tg_add_(w, b))                          \
    OP(mul_broadcast_, tg_mul_(w, v))                \
    OP(add_self_, tg_add_(w, w))                     \
    OP(pow_, tg_pow_(w, b))                          \
    OP(mul_scalar_, tg_mul_scalar_(w, 2))            \
    OP(exp_, tg_exp_(w))                             \
    OP(sin_, tg_sin_(w))                             \
    OP(relu_, tg_relu_(w))                           \
    OP(silu_, tg_silu_(w))                           \
    OP(clamp_, tg_clamp_(w, 0.1, 0.3))               \
    OP(masked_fill_, tg_masked_fill_(w, m, 0))       \
    OP(fill_, tg_fill_(w, 3))                        \
    OP(zero_, tg_zero_(w))                           \
    OP(index_put_, tg_index_put_(w, &i, 1, v, true)) \
    OP(scatter_, tg_scatter_(w, 1, i, b))            \
    OP(index_add_, tg_index_add_(w, 0, c, b))        \
    OP(addcmul_, tg_addcmul_(w, b, v, 0.5))          \
    OP(lerp_scalar_, tg_lerp_scalar_(w, b, 0.5))     \
    OP(copy_, tg_copy_(w, b))                        \
    OP(copy_broadcast_, tg_copy_(w, v))              \
    OP(set, tg_set(w, TG_INDEX(1, 2), 5) == TG_OK ? w : NULL)

static tg_tensor *joined(tg_tensor *a, tg_tensor *b, bool stack)
{
    tg_tensor *pair[2];
    pair[0] = a, pair[1] = b;
    return stack ? tg_stack(pair, 2, 1) : tg_cat(pair, 2, 0);
}

/* The first 8 elements of the rows of a turned by numbers from v. */
static tg_tensor *rotated(tg_tensor *a, tg_tensor *v, bool interleaved)
{
    const tg_mark mark = tg_scope_begin();
    if (!mark.serial) return NULL;
    tg_tensor *y = tg_rope(a, tg_narrow(v, 0, 0, 4), tg_narrow(v, 0, 4, 4), interleaved);
    if (y) tg_keep(y);
    tg_scope_end(mark);
    return y;
}

/* Complex numbers in a times those in b. */
static tg_tensor *turned(tg_tensor *a, tg_tensor *b)
{
    const tg_mark mark = tg_scope_begin();
    if (!mark.serial) return NULL;
    tg_tensor *y = tg_complex_mul(tg_narrow(a, 1, 0, 2), tg_narrow(b, 1, 1, 2));
    if (y) tg_keep(y);
    tg_scope_end(mark);
    return y;
}

/* One image of 16 channels with the weight a [5, 16] or its transpose, of 1 tap; or, with v, two images that are too
   large for their columns to be made at once. */
static tg_tensor *convolved(tg_tensor *q, tg_tensor *a, tg_tensor *v, bool transposed)
{
    const tg_shape zero = TG_SHAPE(0), one = TG_SHAPE(1);
    const int64_t length = HERE.type == TG_DEV_CPU ? 140000 : 140; /* 1 MB of f64; on devices a part has 256 MB */
    const tg_mark mark = tg_scope_begin();
    tg_tensor *y;
    if (!mark.serial) return NULL;
    if (v) {
        q = tg_expand(tg_reshape(tg_narrow(v, 0, 0, 2), TG_SHAPE(2, 1, 1)), TG_SHAPE(2, 1, length));
        y = tg_sum(tg_conv1d(q, tg_reshape(tg_narrow(v, 0, 2, 3), TG_SHAPE(3, 1, 1)), NULL, one, zero, one, 1));
    } else {
        y = transposed ? tg_conv_transpose1d(q, tg_unsqueeze(tg_t(a), 2), NULL, one, zero, zero, 1, one)
                       : tg_conv1d(q, tg_unsqueeze(a, 2), NULL, one, zero, one, 1);
    }
    if (y) tg_keep(y);
    tg_scope_end(mark);
    return y;
}

/* A batch norm: in training it writes its statistics if and only if it succeeds. */
static tg_tensor *normed(tg_tensor *a, tg_tensor *v, bool training)
{
    const tg_mark mark = tg_scope_begin();
    if (!mark.serial) return NULL;
    tg_tensor *mean = tg_zeros_like(v), *var = tg_ones_like(v);
    tg_tensor *y = mean && var ? tg_batch_norm(a, mean, var, v, v, training, 0.1, 1e-5) : NULL;
    const int64_t writes = y && training;
    if (mean && var) CHECK(tg_version_of(mean) == writes && tg_version_of(var) == writes);
    if (y) tg_keep(y);
    tg_scope_end(mark);
    return y;
}

/* The layer norm of a in bf16, of which the columns are contiguous, with a weight and a bias of v's dtype. */
static tg_tensor *normed_in_bf16(tg_tensor *a, tg_tensor *v)
{
    const tg_mark mark = tg_scope_begin();
    if (!mark.serial) return NULL;
    tg_tensor *x = tg_to_dtype(a, TG_BF16), *y;
    if (x) x = tg_t(x);
    if (x) x = tg_contiguous(x);
    if (x) x = tg_t(x);
    y = x ? tg_layer_norm(x, 1, v, v, 1e-5) : NULL;
    if (y) tg_keep(y);
    tg_scope_end(mark);
    return y;
}

static tg_tensor *grid_of(tg_tensor *v)
{
    tg_tensor *pair[2], *grid[2];
    pair[0] = pair[1] = v;
    return tg_meshgrid(pair, 2, grid) == TG_OK ? grid[1] : NULL;
}

static tg_tensor *contracted(tg_tensor *a, tg_tensor *b)
{
    tg_tensor *pair[2];
    pair[0] = a, pair[1] = b;
    return tg_einsum("ij,jk->ki", pair, 2);
}

static tg_tensor *dropped_product(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    return tg_dropout(tg_tanh(tg_mul(in[0], in[1])), 0.5, true);
}

static tg_tensor *checkpointed(tg_tensor *a, tg_tensor *b)
{
    tg_tensor *pair[2];
    pair[0] = a, pair[1] = b;
    return tg_checkpoint(dropped_product, pair, 2, NULL);
}

static tg_tensor *without_grad(tg_tensor *a, tg_tensor *b)
{
    bool was = tg_set_grad_enabled(false); /* this call cannot fail */
    tg_tensor *y = checkpointed(a, b);
    tg_set_grad_enabled(was);
    return y;
}

static tg_tensor *last_piece(tg_tensor *a, bool unbind)
{
    tg_tensor *pieces[32];
    int n = unbind ? tg_unbind(a, 0, pieces, 32) : tg_split(a, 4, 0, pieces, 32);
    return n ? pieces[n - 1] : NULL;
}

static tg_tensor *of_ten(tg_tensor *a, tg_tensor *b, bool checkpoint)
{
    tg_tensor *ten[10];
    int k;
    for (k = 0; k < 10; ++k) ten[k] = k % 2 ? b : a;
    return checkpoint ? tg_checkpoint(dropped_product, ten, 10, NULL) : tg_cat(ten, 10, 1);
}

static tg_status product_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    double *memory_of_ctx = (double *)tg_ctx_alloc(ctx, 100 * sizeof(double));
    if (!memory_of_ctx) return tg_error_code();
    memory_of_ctx[99] = 1;
    out[0] = tg_mul(in[0], in[1]);
    out[1] = tg_add_scalar(in[0], 1);
    if (!out[0] || !out[1]) return tg_error_code();
    if (tg_save(ctx, in[0]) || tg_save(ctx, in[1]) || tg_save(ctx, out[0]) || tg_save(ctx, out[1]))
        return tg_error_code();
    return tg_save(ctx, tg_exp(in[0]));
}

static tg_status product_backward(tg_ctx *ctx, tg_tensor *const *g, tg_tensor **grad_in)
{
    grad_in[0] = tg_add(tg_mul(g[0], tg_saved(ctx, 1)), g[1]);
    grad_in[1] = tg_mul(g[0], tg_saved(ctx, 0));
    return grad_in[0] && grad_in[1] ? TG_OK : tg_error_code();
}

static tg_tensor *custom_product(tg_tensor *a, tg_tensor *b)
{
    tg_tensor *pair[2], *out[2];
    pair[0] = a, pair[1] = b;
    return tg_custom("product", product_forward, product_backward, NULL, pair, 2, out, 2) == TG_OK ? out[0] : NULL;
}

#define OPERATION(name, expression)                                                                   \
    static tg_tensor *do_##name(tg_tensor *const *in)                                                 \
    {                                                                                                 \
        tg_tensor *a = in[0], *b = in[1], *v = in[2], *q = in[3], *i = in[4], *c = in[5], *m = in[6]; \
        (void)a, (void)b, (void)v, (void)q, (void)i, (void)c, (void)m;                                \
        return expression;                                                                            \
    }
OPERATIONS(OPERATION)
#define WRITE(name, expression)                                                                       \
    static tg_tensor *do_##name(tg_tensor *const *in)                                                 \
    {                                                                                                 \
        tg_tensor *w = in[0], *b = in[1], *v = in[2], *q = in[3], *i = in[4], *c = in[5], *m = in[6]; \
        (void)w, (void)b, (void)v, (void)q, (void)i, (void)c, (void)m;                                \
        return expression;                                                                            \
    }
WRITES(WRITE)

/* ---- a training step, for each optimizer ---- */

static bool new_sgd(state *s) { return (s->opt = tg_sgd(s->t, 4, 0.1)) != NULL; }
static bool new_momentum(state *s)
{
    if (!new_sgd(s)) return false;
    s->opt->momentum = 0.9, s->opt->nesterov = true, s->opt->weight_decay = 0.01;
    return true;
}
static bool new_adam(state *s)
{
    if ((s->opt = tg_adam(s->t, 4, 0.1)) == NULL) return false;
    s->opt->amsgrad = true;
    return true;
}
static bool new_adamw(state *s) { return (s->opt = tg_adamw(s->t, 4, 0.1)) != NULL; }
static bool new_rmsprop(state *s)
{
    if ((s->opt = tg_rmsprop(s->t, 4, 0.1)) == NULL) return false;
    s->opt->momentum = 0.9, s->opt->centered = true;
    return true;
}
static bool new_adagrad(state *s) { return (s->opt = tg_adagrad(s->t, 4, 0.1)) != NULL; }
static bool new_adadelta(state *s) { return (s->opt = tg_adadelta(s->t, 4, 0.1)) != NULL; }
static bool new_groups(state *s)
{
    tg_optim_group *group;
    if (!s->opt && (s->opt = tg_adamw(s->t, 2, 0.1)) == NULL) return false;
    group = tg_optim_add_group(s->opt, s->t + 2, 2);
    if (!group) return CHECK(s->opt->count == 2), false;
    group->lr_scale = 0.5, group->weight_decay = 0;
    return true;
}
static void free_optimizer(state *s) { tg_optim_free(s->opt); }

static bool zero_grad(state *s) { return tg_optim_zero_grad(s->opt) == TG_OK; }
static bool layer_1(state *s) { return (s->y[4] = tg_linear(s->t[0], s->t[3], s->t[2])) != NULL; }
static bool layer_2(state *s) { return (s->y[5] = tg_layer_norm(s->y[4], 1, s->t[2], NULL, 1e-5)) != NULL; }
static bool layer_3(state *s) { return (s->y[6] = tg_gelu(s->y[5], true)) != NULL; }
static bool layer_4(state *s) { return (s->y[7] = tg_dropout(s->y[6], 0.25, true)) != NULL; }
static bool layer_5(state *s) { return (s->y[8] = tg_add(s->y[7], s->t[1])) != NULL; }
static bool loss_of_layers(state *s) { return (s->y[1] = tg_cross_entropy(s->y[8], s->t[5])) != NULL; }
static bool clip(state *s) { return (s->y[10] = tg_clip_grad_norm(s->t, 4, 0.01)) != NULL; }
static bool clip_values(state *s) { return tg_clip_grad_value(s->t, 4, 0.001) == TG_OK; }
static bool optimize(state *s) { return tg_step(s->opt) == TG_OK; }

/* ---- a step in mixed precision ---- */

static bool to_f32(state *s) { return tg_to_all_ex_(s->t, 4, HERE, TG_F32, 0) == TG_OK; }

/* The casts end with the block, also when an op in it fails. */
static tg_tensor *small_network(tg_tensor *const *t)
{
    tg_tensor *h;
    TG_AUTOCAST(TG_BF16);
    if (tg_autocast_dtype() != TG_BF16) return NULL; /* the block could not be opened */
    h = tg_linear(tg_linear_gelu(tg_mul(t[0], t[1]), t[3], t[2], true), t[3], NULL);
    h = tg_add(tg_layer_norm(h, 1, t[2], NULL, 1e-5), t[1]);
    h = tg_scaled_dot_product_attention(h, h, t[1], NULL, 0, true, 0);
    return tg_cross_entropy(tg_linear(h, t[3], t[2]), t[5]);
}
static bool mixed_loss(state *s)
{
    tg_mark mark = tg_scope_begin();
    s->y[1] = mark.serial ? small_network(s->t) : NULL;
    if (s->y[1]) tg_keep(s->y[1]);
    tg_scope_end(mark);
    return s->y[1] != NULL;
}

/* ---- steps that a device captures, and calls on the CPU ---- */

static void forward_of_net(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int n_out)
{
    tg_tensor *const *p = tg_module_params(m);
    (void)n, (void)n_out;
    if (!p) return;
    out[0] = tg_linear(tg_linear_gelu(tg_add(tg_dropout(in[0], 0.25, true), p[1]), p[3], p[2], true), p[3], NULL);
}

/* Changes the parameters last: a step that fails has changed gradients, random numbers and the scaler alone. */
static bool step_of_training(state *s)
{
    tg_tensor *loss;
    if (s->scaler.enabled && tg_optim_zero_grad(s->opt) != TG_OK) return false;
    {
        TG_AUTOCAST(s->low);
        if (tg_autocast_dtype() != s->low) return false;
        loss = tg_cross_entropy(tg_forward(s->net, s->t[0]), s->t[5]);
    }
    if (!tg_copy_(s->y[0], tg_detach(loss)) || tg_backward(tg_grad_scaler_scale(&s->scaler, loss)) != TG_OK)
        return false;
    if (tg_grad_scaler_step(&s->scaler, s->opt) != TG_OK || tg_grad_scaler_update(&s->scaler) != TG_OK) return false;
    return s->scaler.enabled || tg_optim_zero_grad(s->opt) == TG_OK;
}

static bool step_of_capture(void *user)
{
    state *s = (state *)user;
    bool ok;
    memory.capturing = ++s->calls == 3 && !tg_capture_obstacle(s->capture);
    ok = step_of_training(s);
    memory.capturing = false;
    return ok;
}

static bool new_net(state *s)
{
    static const char *const names[] = {"a", "b", "v", "q"};
    bool ok = (s->net = tg_module_new("Net", forward_of_net, 0)) != NULL;
    for (int k = 0; ok && k < 4; ++k) ok = tg_module_param(s->net, names[k], s->t[k]) != NULL;
    ok = ok && tg_module_params(s->net) && (s->y[0] = tg_zeros_on(TG_SCALAR, TG_F32, HERE)) != NULL;
    if (!ok) tg_module_free(s->net), s->net = NULL;
    return ok;
}
static bool capture_in_bf16(state *s)
{
    const tg_grad_scaler scaler = TG_GRAD_SCALER;
    s->low = TG_BF16, s->scaler = scaler, s->scaler.enabled = false;
    if ((s->capture = tg_capture_new(HERE, step_of_capture, s)) == NULL) return false;
    for (int k = 0; k < 4; ++k) tg_retain(s->t[k]); /* a net that is freed must not end them */
    return true;
}
static bool capture_in_f16(state *s)
{
    if (!capture_in_bf16(s)) return false;
    s->low = TG_F16, s->scaler.scale = 1024, s->scaler.growth_interval = 2;
    return s->scaler.enabled = true;
}

/* A step that was called and failed leaves what it has done, as without a capture: that is undone here.  One that is
   replayed, or was captured in vain before it is called, leaves nothing. */
enum { IN_A_RUN = PREPARES | DOES_WITHOUT | WHOLE_STEP };
static bool run_capture(state *s)
{
    const int calls = s->calls;
    const tg_rng rng = tg_rng_state();
    const tg_grad_scaler scaler = s->scaler;
    tg_tensor *grad[4];
    bool ok;
    for (int k = 0; k < 4; ++k) grad[k] = tg_grad(s->t[k]) ? tg_retain(tg_grad(s->t[k])) : NULL;
    s->opt->lr = 0.1 / (s->runs + 1);
    ok = tg_capture_run(s->capture) == TG_OK;
    s->runs += ok;
    if (!ok && s->calls > calls) {
        tg_rng_set_state(rng);
        s->scaler = scaler;
        for (int k = 0; k < 4; ++k) tg_set_grad(s->t[k], grad[k]);
    }
    tg_release_all(grad, 4);
    return ok;
}
static bool was_replayed(state *s)
{
    const bool untouched = !memory.fail_at && !memory.fired; /* else the failure may have kept it from being captured */
    const char *obstacle = tg_capture_obstacle(s->capture);
    CHECK(!untouched || (HERE.type == TG_DEV_CUDA ? !obstacle && s->calls == 3 : s->calls == s->runs));
    return true;
}
static void free_capture(state *s)
{
    tg_capture_free(s->capture);
    tg_module_free(s->net);
    tg_release_all(s->t, 4);
    free_optimizer(s);
}

/* ---- hooks, runs, views, scopes, names, files ---- */

static tg_tensor *double_it(tg_tensor *g, void *user)
{
    (void)user;
    return tg_mul_scalar(g, 2);
}
static void look_after(tg_tensor *leaf, void *user)
{
    (void)user;
    (void)tg_numel(tg_grad(leaf));
}
static bool product(state *s) { return (s->y[0] = tg_mul(s->t[0], s->t[1])) != NULL; }
static bool hook_product(state *s) { return tg_hook(s->y[0], double_it, NULL) != 0; }
static bool hook_leaf(state *s) { return tg_hook(s->t[0], double_it, NULL) != 0; }
static bool hook_after(state *s) { return tg_hook_post_accumulate(s->t[0], look_after, NULL) != 0; }
static bool retain_product(state *s) { return tg_retain_grad(s->y[0]) == s->y[0]; }
static bool read_retained(state *s) { return (s->y[11] = tg_grad(s->y[0])) != NULL; }

static bool begin_run(state *s)
{
    return s->run || (s->run = tg_backward_begin(&s->y[1], 1, NULL, TG_RETAIN_GRAPH | TG_RETAIN_GRADS)) != NULL;
}
static bool run_to_end(state *s) /* a run that failed is over: it starts anew */
{
    tg_backward_run *run = s->run ? s->run : tg_backward_begin(&s->y[1], 1, NULL, TG_RETAIN_GRAPH | TG_RETAIN_GRADS);
    tg_step_info info;
    tg_step_input_info input;
    s->run = NULL;
    if (!run) return false;
    while (tg_backward_step(run, &info)) tg_step_input(run, 0, &input);
    return tg_backward_end(run) == TG_OK;
}

static bool view_target(state *s) { return (s->y[2] = tg_select(tg_t(s->w), 0, 1)) != NULL; }
static bool view_target_again(state *s) { return (s->y[3] = tg_narrow(s->w, 1, 0, 3)) != NULL; }
static bool write_view(state *s) { return tg_sin_(s->y[2]) != NULL; }
static bool use_view(state *s) { return (s->y[4] = tg_exp(s->y[3])) != NULL; }
static bool add_uses(state *s) { return (s->y[5] = tg_add(tg_sum(s->w), tg_sum(s->y[4]))) != NULL; }
static bool backward_uses(state *s) { return tg_backward_ex(&s->y[5], 1, NULL, TG_RETAIN_GRAPH) == TG_OK; }

static bool scoped(state *s)
{
    tg_mark outer = tg_scope_begin(), inner;
    if (!outer.serial) return false;
    inner = tg_scope_begin();
    s->y[0] = inner.serial ? tg_keep(tg_mul(s->t[0], s->t[1])) : NULL;
    tg_scope_end(inner);
    if (s->y[0]) tg_keep(s->y[0]);
    tg_scope_end(outer);
    return s->y[0] != NULL;
}
/* In a block whose scope cannot be opened, tensors are those of the scope around it: there they stay, kept or not. */
static bool kept_and_dropped(state *s)
{
    TG_SCOPE;
    s->y[10] = tg_keep(tg_mul(s->t[0], s->t[1]));
    tg_drop(tg_exp(s->y[0]));
    tg_drop(s->y[0]); /* made outside of the block */
    return tg_numel(s->y[0]) > 0 && s->y[10] && tg_ok();
}
static bool unrecorded(state *s)
{
    TG_NO_GRAD;
    if (tg_is_grad_enabled()) return false; /* the mode could not be opened */
    return (s->y[1] = tg_exp(s->t[0])) != NULL;
}
static bool split_up(state *s) { return tg_split(s->t[0], 4, 1, &s->y[2], 4) == 4; }
static bool unbind_all(state *s) { return tg_unbind(s->t[0], 0, &s->y[6], 5) == 5; }
static bool name_it(state *s)
{
    return tg_set_name(s->y[0], "a name that is a little longer than sixty-four bytes, so it takes a block") == TG_OK;
}

static bool make_param(state *s) { return (s->y[0] = tg_param(tg_ones(TG_SHAPE(9, 9)))) != NULL; }
static void release_param(state *s) { tg_release(s->y[0]); }
static int wraps_freed;
static void unwrap(void *user)
{
    (void)user;
    ++wraps_freed;
}
static bool wrap_it(state *s)
{
    static double host[4] = {1, 2, 3, 4};
    int before = wraps_freed;
    s->y[0] = tg_wrap(host, TG_SHAPE(4), TG_F64, unwrap, NULL);
    CHECK(wraps_freed == before); /* a call that fails does not call the deleter */
    return s->y[0] != NULL;
}
static bool assign_grad(state *s)
{
    return (s->y[1] = tg_ones_like(s->t[0])) != NULL && tg_set_grad(s->t[0], s->y[1]) == TG_OK;
}
static bool share_grad(state *s) { return tg_set_grad(s->t[1], tg_grad(s->t[0])) == TG_OK; }
static bool view_leaf(state *s)
{
    TG_NO_GRAD;
    if (tg_is_grad_enabled()) return false;
    return (s->y[2] = tg_select(s->t[0], 0, 1)) != NULL;
}
static bool move_all(state *s) { return tg_to_all_ex_(s->t, 4, TG_CPU, TG_F32, 0) == TG_OK; }
static bool move_back(state *s) { return tg_to_all_(s->t, 6, HERE) == TG_OK; }
static bool move_dtype(state *s) { return tg_to_dtype_(s->t[0], TG_F64) == s->t[0]; }
static bool move_view(state *s) { return tg_to_(s->y[2], TG_CPU) && tg_to_dtype_(s->y[2], TG_F16) == s->y[2]; }
static bool use_old_view(state *s) { return (s->y[4] = tg_exp(s->y[2])) != NULL; }
static bool use_moved(state *s) { return (s->y[3] = tg_mul(s->t[1], s->t[2])) != NULL; }
static bool copy_transposed(state *s)
{
    static double host[80];
    if (!s->y[2] && !(s->y[2] = tg_t(s->t[0]))) return false;
    return tg_copy_out(s->y[2], host, sizeof host) == TG_OK;
}
static bool compare(state *s)
{
    bool same = tg_allclose(s->t[0], s->t[0], 0, 0) && tg_equal(s->t[0], s->t[0]);
    return same && tg_ok();
}
static tg_tensor *cube(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    return tg_mul(in[0], tg_mul(in[0], in[0]));
}
static bool check_cube(state *s)
{
    tg_tensor *small = tg_set_requires_grad(tg_full(TG_SHAPE(2), 0.5), true);
    (void)s;
    return small && tg_gradcheck(cube, &small, 1, NULL) && tg_gradgradcheck(cube, &small, 1, NULL);
}
/* The data moves to HERE, so that a batch is fetched ahead. */
static bool new_loader(state *s)
{
    tg_tensor *data[2];
    if (!s->y[0] && !(s->y[0] = tg_from_on("abcdefghijkl", TG_SHAPE(6, 2), TG_U8, TG_CPU))) return false;
    data[0] = s->y[0], data[1] = tg_from_on("ABCDEF", TG_SHAPE(6), TG_U8, TG_CPU);
    s->loader = data[1] ? tg_loader_new(data, 2, 2, TG_SHUFFLE, HERE) : NULL;
    return s->loader != NULL;
}
static bool first_batch(state *s) { return tg_loader_next(s->loader, &s->y[1]); }
static bool second_batch(state *s) { return tg_loader_next(s->loader, &s->y[3]); }
static bool seek_last(state *s) { return tg_loader_seek(s->loader, 5) == TG_OK; }
static bool last_batch(state *s) { return tg_loader_next(s->loader, &s->y[5]); }
static bool no_batch(state *s) { return !tg_loader_next(s->loader, &s->y[7]) && tg_ok(); }
static void free_loader(state *s) { tg_loader_free(s->loader); }

/* Rows that a kernel needs memory of its own for. */
static bool make_large(state *s) { return (s->large = tg_linspace(1, 0, 8000)) != NULL; }
static bool sum_large(state *s) { return (s->y[2] = tg_sum(s->large)) != NULL; }
static bool deviation_of_large(state *s) { return (s->y[3] = tg_std(s->large)) != NULL; }
static bool sort_large(state *s) { return (s->y[4] = tg_sort(s->large, 0, false, &s->y[5])) != NULL; }
static bool convert_large(state *s) { return (s->y[6] = tg_to_dtype(s->large, TG_F16)) != NULL; }
static bool columns_of_large(state *s) { return (s->y[8] = tg_view(s->large, TG_SHAPE(-1, 4))) != NULL; }
static bool sum_columns(state *s) { return (s->y[9] = tg_sum_dim(s->y[8], 0, false)) != NULL; }
static bool sum_halves(state *s) { return (s->y[7] = tg_sum(s->y[6])) != NULL; }

/* A dict that lacks a tensor of the module, and has one more: both are reported. */
static bool load_another(state *s)
{
    tg_module *m = tg_module_new("One", forward_of_net, 0);
    tg_dict *d = tg_dict_new(), *missing = NULL, *unexpected = NULL;
    tg_tensor *a = tg_zeros_on(TG_SHAPE(2), TG_F64, HERE), *b = tg_ones_on(TG_SHAPE(2), TG_F64, HERE);
    bool ok = m && d && a && b && tg_module_param(m, "a", a) && tg_dict_set(d, "b", b) == TG_OK;
    (void)s;
    ok = ok && tg_module_load_state_ex(m, d, false, &missing, &unexpected) == TG_OK;
    ok = ok && tg_dict_count(missing) == 1 && tg_dict_count(unexpected) == 1;
    tg_dict_free(missing), tg_dict_free(unexpected), tg_dict_free(d), tg_module_free(m);
    return ok;
}

/* Sharing a module fills in what its threads read later. */
static bool share_module(state *s)
{
    tg_module *m = tg_module_new("One", forward_of_net, 0), *child = m ? tg_nn_linear(2, 3, true) : NULL;
    bool ok = child && tg_module_child(m, "child", child) && tg_module_share(tg_module_train(m, false));
    (void)s;
    ok = ok && tg_module_count(m) == 2 && strcmp(tg_module_path(m, 1), "child.bias") == 0;
    tg_module_free(m);
    return ok;
}

/* Sequences of different lengths through a layer that reads both ways. */
static bool lengths_of_a_layer(state *s)
{
    const int64_t lengths[3] = {1, 3, 2};
    tg_module *m = tg_nn_lstm_ex(2, 3, 1, true, false, 0, true);
    tg_tensor *in[2], *out[3] = {NULL, NULL, NULL};
    (void)s;
    in[0] = m && tg_module_to(m, HERE) ? tg_ones_on(TG_SHAPE(3, 3, 2), TG_F64, HERE) : NULL;
    in[1] = in[0] ? tg_from_on(lengths, TG_SHAPE(3), TG_I64, TG_CPU) : NULL;
    bool ok = in[1] && tg_forward_n(m, in, 2, out, 3) == TG_OK;
    ok = ok && tg_backward(tg_add(tg_sum(out[0]), tg_sum(tg_mul(out[1], out[2])))) == TG_OK;
    tg_module_free(m);
    return ok;
}

/* A step of two ranks, from the model to the gathered state; where the engine sees host memory. */
static bool train_in_parallel(bool find_unused)
{
    const tg_parallel_options o = {1, find_unused};
    tg_module *m = tg_nn_sequential(NULL, 0);
    bool ok = m && tg_module_child(m, "fc", tg_nn_linear(2, 3, true)) &&
              tg_module_child(m, "norm", tg_nn_batch_norm(3, 1e-5, 0.1));
    tg_parallel *p = ok ? tg_parallel_new(m, &other_rank, &o) : NULL;
    tg_optim *opt = p ? tg_adam(tg_module_params(m), tg_module_count(m), 0.1) : NULL;
    tg_tensor *y;
    ok = opt && tg_parallel_sync_batch_norm(p) == TG_OK && tg_parallel_shard(p, opt) == TG_OK;
    y = ok ? tg_forward(m, ramp(0.1, 0.8, TG_SHAPE(4, 2), false)) : NULL;
    ok = y && tg_backward(tg_sum(tg_square(y))) == TG_OK && tg_step(opt) == TG_OK;
    ok = ok && tg_parallel_gather(p, opt) == TG_OK && tg_parallel_broadcast(p) == TG_OK;
    tg_optim_free(opt);
    tg_parallel_free(p);
    tg_module_free(m);
    return ok;
}
static bool step_in_parallel(state *s) { return (void)s, HERE.type != TG_DEV_CPU || train_in_parallel(false); }
static bool step_with_unused(state *s) { return (void)s, HERE.type != TG_DEV_CPU || train_in_parallel(true); }

/* Anomaly mode looks at each result, and finds a NaN in that of infinities. */
static bool anomaly_on(state *s) { return (void)s, tg_set_anomaly(true), true; }
static bool anomaly_off(state *s) { return (void)s, tg_set_anomaly(false), true; }
static bool infinities(state *s) { return (s->y[0] = tg_mul_scalar(tg_exp(s->t[0]), INFINITY)) != NULL; }
static bool nan_of_infinities(state *s) { return (s->y[1] = tg_sub(s->y[0], s->y[0])) != NULL; }

/* A profile in which there is no memory for its slices stops, and says so at its end. */
static bool profiled(state *s)
{
    s->profiled = true;
    if (tg_profile_begin() != TG_OK) return false;
    s->y[1] = tg_mul(s->t[0], s->t[0]);
    return (tg_profile_end(NULL) == TG_OK) & (s->y[1] != NULL);
}

static FILE *sink;
static bool show(state *s)
{
    if (!sink && !(sink = tmpfile())) return true;
    rewind(sink);
    return tg_fprint(sink, s->t[0]) == TG_OK && tg_tape_print(sink, s->y[1]) == TG_OK &&
           tg_tape_dot(sink, s->y[1]) == TG_OK;
}

#define OPERATION_ROW(name, expression)                                                                                \
    {#name, do_##name, NULL, {{apply, 0}, {sum_up, 0}, {backward_retain, 0}, {first_gradient, 0}, {sum_gradient, 0},   \
                              {backward_gradient, 0}, {all_gradients, 0}}},
#define WRITE_ROW(name, expression)                                                                                    \
    {#name, do_##name, NULL, {{make_target, 0}, {write_target, 0}, {sum_up, 0}, {backward_retain, 0}}},
#define TRAINING_ROW(kind)                                                                                             \
    {"training_" #kind, NULL, free_optimizer,                                                                          \
     {{new_##kind, 0}, {zero_grad, 0}, {layer_1, 0}, {layer_2, 0}, {layer_3, 0}, {layer_4, 0}, {layer_5, 0},           \
      {loss_of_layers, 0}, {backward, UNREPEATABLE}, {clip, 0}, {optimize, PREPARES}, {clip_values, 0},                \
      {optimize, PREPARES}}},

#define CAPTURED_STEPS(begin)                                                                                          \
    {{to_f32, 0}, {new_adamw, 0}, {begin, 0}, {new_net, 0}, {run_capture, IN_A_RUN}, {run_capture, IN_A_RUN},              \
     {run_capture, IN_A_RUN}, {run_capture, IN_A_RUN}, {run_capture, IN_A_RUN}, {was_replayed, 0}}

static const scenario scenarios[] = {
    OPERATIONS(OPERATION_ROW)
    WRITES(WRITE_ROW)
    TRAINING_ROW(sgd) TRAINING_ROW(momentum) TRAINING_ROW(adam) TRAINING_ROW(adamw) TRAINING_ROW(rmsprop)
    TRAINING_ROW(adagrad) TRAINING_ROW(adadelta) TRAINING_ROW(groups)
    {"steps_mixed", NULL, free_optimizer,
     {{to_f32, 0}, {new_adamw, 0}, {zero_grad, 0}, {mixed_loss, 0}, {backward, UNREPEATABLE}, {clip, 0},
      {optimize, PREPARES}}},
    {"steps_captured", NULL, free_capture, CAPTURED_STEPS(capture_in_bf16)},
    {"steps_captured_with_a_scaler", NULL, free_capture, CAPTURED_STEPS(capture_in_f16)},
    {"hooks", NULL, NULL,
     {{product, 0}, {hook_product, 0}, {retain_product, 0}, {hook_leaf, 0}, {hook_after, 0}, {sum_up, 0},
      {backward_retain, 0}, {backward_retain, 0}, {read_retained, 0}}},
    {"runs", NULL, NULL, {{product, 0}, {sum_up, 0}, {begin_run, 0}, {run_to_end, SEVERAL}}},
    {"created_graphs", NULL, NULL,
     {{product, 0}, {sum_up, 0}, {backward_create, 0}, {backward_create, 0}, {backward, UNREPEATABLE}}},
    {"reports", NULL, NULL, {{load_another, SEVERAL}, {share_module, SEVERAL}}},
    {"lengths", NULL, NULL, {{lengths_of_a_layer, SEVERAL | WHOLE_STEP}}},
    {"views", NULL, NULL,
     {{make_target, 0}, {view_target, SEVERAL}, {view_target_again, 0}, {write_view, 0}, {use_view, SEVERAL},
      {add_uses, SEVERAL}, {backward_uses, 0}}},
    {"scopes", NULL, NULL,
     {{scoped, 0}, {kept_and_dropped, SEVERAL}, {unrecorded, 0}, {split_up, 0}, {unbind_all, 0}, {name_it, 0}}},
    {"parameters", NULL, release_param,
     {{make_param, SEVERAL}, {assign_grad, SEVERAL}, {copy_transposed, SEVERAL}, {compare, 0}}},
    {"moves_in_place", NULL, free_optimizer,
     {{product, 0}, {sum_up, 0}, {backward_retain, 0}, {new_adam, 0}, {optimize, PREPARES}, {share_grad, 0},
      {view_leaf, 0}, {move_all, 0}, {use_old_view, 0}, {optimize, PREPARES}, {move_back, 0}, {move_dtype, 0},
      {move_view, SEVERAL}, {use_moved, 0}}},
    {"wrap", NULL, NULL, {{wrap_it, 0}}},
    {"large", NULL, NULL,
     {{make_large, 0}, {sum_large, 0}, {deviation_of_large, 0}, {sort_large, 0}, {convert_large, 0}, {sum_halves, 0},
      {columns_of_large, 0}, {sum_columns, 0}}},
    {"loader", NULL, free_loader,
     {{new_loader, SEVERAL}, {first_batch, PREPARES | DOES_WITHOUT}, {second_batch, PREPARES | DOES_WITHOUT},
      {seek_last, 0}, {last_batch, PREPARES | DOES_WITHOUT}, {no_batch, 0}}},
    {"parallel", NULL, NULL,
     {{step_in_parallel, SEVERAL | DOES_WITHOUT | WHOLE_STEP},
      {step_with_unused, SEVERAL | DOES_WITHOUT | WHOLE_STEP}}},
    {"gradcheck", NULL, NULL, {{check_cube, SEVERAL}}},
    {"anomaly", NULL, NULL,
     {{anomaly_on, 0}, {infinities, SEVERAL}, {nan_of_infinities, 0}, {anomaly_off, 0}}},
    {"show", NULL, NULL, {{product, 0}, {sum_up, 0}, {show, 0}}},
    {"profile", NULL, NULL, {{profiled, PREPARES}, {sum_up, 0}, {backward_retain, 0}}},
};

/* ---- a handler that frees the optimizer whose state is being saved: seen by a memory checker ---- */

static void free_what_is_saved(tg_status code, const char *message, void *optimizer)
{
    (void)code, (void)message;
    tg_optim_free(*(tg_optim **)optimizer);
    *(tg_optim **)optimizer = NULL;
}

TEST(handler_frees_what_is_saved)
{
    char path[1000];
    snprintf(path, sizeof path, "%s.checkpoint", harness.program);
    for (int64_t n = 1;; ++n) {
        TG_SCOPE;
        tg_module *net = tg_nn_linear(2, 1, true);
        tg_tensor *param[2];
        tg_status status;
        param[0] = tg_module_get(net, "weight"), param[1] = tg_module_get(net, "bias");
        tg_optim *optimizer = tg_adam(param, 2, 0.1);
        CHECK(tg_backward(tg_sum(tg_forward(net, tg_ones(TG_SHAPE(3, 2))))) == TG_OK);
        CHECK(tg_step(optimizer) == TG_OK);
        tg_set_error_handler(free_what_is_saved, &optimizer);
        memory.calls = 0, memory.fail_at = n, memory.armed = true, memory.fired = false;
        status = tg_checkpoint_save(path, net, optimizer, n);
        memory.armed = false;
        tg_set_error_handler(NULL, NULL);
        CHECK((status == TG_OK) == !memory.fired && !optimizer == memory.fired);
        tg_clear_error();
        tg_optim_free(optimizer);
        tg_module_free(net);
        if (!memory.fired) break;
    }
    remove(path);
}

/* ---- a callback that leaves a block open which had no memory for a scope of its own ---- */

static tg_tensor *leaves_a_block(tg_tensor *const *in, int n, void *block)
{
    (void)in, (void)n;
    memory.calls = 0, memory.fail_at = 1, memory.armed = true;
    *(tgi_scope_guard *)block = tgi_scope_guard_open(block, 0, 1);
    memory.armed = false;
    tg_clear_error();
    return tg_scalar(1);
}

TEST(block_left_open_without_memory)
{
    tg_tensor *x = tg_set_requires_grad(tg_ones(TG_SHAPE(2)), true), *y;
    tgi_scope_guard block;
    CHECK_FAILS(tg_checkpoint(leaves_a_block, &x, 1, &block), "left a scope open");
    { TG_SCOPE; y = tg_keep(tg_scalar(3)); }
    CHECK(tg_item(y) == 3);
}

int main(int argc, char **argv)
{
    tg_allocator allocator;
    const char *pass_through;
    int k, count = (int)(sizeof scenarios / sizeof scenarios[0]), ran = 0;
    harness_begin(argc, argv);
    harness_take_device();
    allocator.alloc = failing_alloc, allocator.free = failing_free, allocator.user = NULL;
    CHECK(tg_set_allocator(&allocator) == TG_OK);
    pass_through = getenv("TG_CUDA_PASS_THROUGH");
    keeps_blocks = HERE.type == TG_DEV_CUDA && (!pass_through || strcmp(pass_through, "0") == 0);
    tg_set_cache_limit(0); /* without a cache every block comes from the failing allocator */
#ifdef CUDASIM
    cudasim_ask_allocation(device_memory_is_left);
#endif
    for (k = 0; k < count; ++k) {
        if (!harness_takes_turn(scenarios[k].name)) continue;
        run_scenario(&scenarios[k]);
        ++ran;
    }
    if (sink) fclose(sink);
    RUN(handler_frees_what_is_saved);
    RUN(block_left_open_without_memory);
    CHECK(tg_shutdown() == TG_OK && memory.live == 0 && ran > 0);
    CHECK(tg_set_allocator(NULL) == TG_OK);
#ifdef CUDASIM
    CHECK((memory.on_device > 0) == (HERE.type == TG_DEV_CUDA));
#endif
    printf("%d of %d scenarios, %lld allocations failed, %lld refusals of device memory\n", ran, count,
           (long long)memory.injected, (long long)memory.on_device);
    return harness_end();
}
