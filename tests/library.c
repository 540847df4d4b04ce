/* The library, compiled once for all programs of tests/, and the windows of inside.h. */
#define TG_ABORT inside_abort
static void inside_abort(void);
#define TENSORGRAD_IMPLEMENTATION
#include "tensorgrad.h"
#include "inside.h"

static int *aborts; /* counts, where a test asks; NULL: the program ends */

static void inside_abort(void)
{
    if (!aborts) abort();
    ++*aborts;
}

void inside_count_aborts(int *count) { aborts = count; }

void inside_print_first_errors(void) { tgi_handler.set = false; }

void inside_compose(bool on) { tgi_self()->composes = on; }

void inside_plain(bool on) { tgi_self()->cpu = on ? &tgi_plain : NULL; /* chosen where it is asked for */ }

#if defined(TG_PLAIN) || defined(TG_KERNELS_ELSEWHERE)
bool inside_bf16_way(int way) { return way < 0; }
#else
bool inside_bf16_way(int way)
{
    static tgi_kernels copy;
    tgi_thread *self = tgi_self();
    self->kernels = NULL;
    self->tiles = 0;
    if (way < 0) return true;
    copy = *tgi_kernels_of(self);
    if (way != INSIDE_BF16_PAIRS) copy.gemm_tile_bf16 = NULL;
    if (way != INSIDE_BF16_TILES) copy.tiles = NULL;
    self->kernels = &copy;
    return way == INSIDE_BF16_TILES ? tgi_tiles_of(self) != NULL : tgi_has_gemm_tile_bf16(&copy);
}
#endif

const char *inside_op(int i, bool *has_rule, const char **formula)
{
    if (i >= TGI_OP_COUNT) return NULL;
    *has_rule = tgi_op_row(i)->rule != NULL, *formula = tgi_op_row(i)->formula;
    return tgi_op_row(i)->name;
}

int inside_op_flags(int i)
{
    const int flags = tgi_op_row(i)->flags;
    return (flags & TGI_FLAG_FLOAT_INPUT ? INSIDE_FLOAT_INPUT : 0) | (flags & TGI_FLAG_DIM ? INSIDE_DIM : 0) |
           (flags & TGI_FLAG_DIMS ? INSIDE_DIMS : 0) | (flags & TGI_FLAG_CAST_LOW ? INSIDE_LOW : 0) |
           (flags & TGI_FLAG_CAST_F32 ? INSIDE_F32 : 0) | (flags & TGI_FLAG_CAST_WIDEST ? INSIDE_WIDEST : 0);
}

int inside_inputs(int op, int *kind)
{
    const tgi_op *row = tgi_op_row(op);
#define INSIDE_ONE(name, ...) case TGI_OP_##name:
    *kind = (row->kind == TGI_KIND_TEST ? INSIDE_TEST : 0) | (row->kind == TGI_KIND_WHOLE ? INSIDE_WHOLE : 0) |
            (row->flags & TGI_FLAG_LAST_IS_MASK ? INSIDE_MASK : 0) | (tgi_gradient_of(op) >= 0 ? INSIDE_GRADIENT : 0);
    switch (op) {
        TGI_UNARY_OPS(INSIDE_ONE) TGI_SCALAR_OPS(INSIDE_ONE) return 1;
        TGI_BINARY_OPS(INSIDE_ONE) TGI_BINARY_SCALAR_OPS(INSIDE_ONE) return 2;
        TGI_TERNARY_OPS(INSIDE_ONE) return 3;
    default: return 0;
    }
#undef INSIDE_ONE
}

tg_tensor *inside_map(int op, tg_tensor *const *x, double s, double t)
{
    int kind;
    return tgi_elementwise(NULL, op, false, x, inside_inputs(op, &kind), s, t);
}

const char *inside_size_text(double bytes)
{
    static char text[64];
    snprintf(text, sizeof text, "%s", tgi_text_of_size(bytes).text);
    return text;
}

int inside_size_class(size_t bytes, size_t *rounded) { return tgi_size_class(bytes, rounded); }

size_t inside_largest_class(int *number)
{
    *number = TGI_CLASSES - 1;
    return (size_t)16 << TGI_LAST_STEP;
}

bool inside_wait(const tg_tensor *t)
{
    const tgi_storage *s = t->storage;
    return s->pending && s->backend->event_sync(tgi_self(), s->index, s->pending->event);
}

const tg_tensor *inside_loader_ahead(const tg_loader *loader) { return loader->ahead[0]; }

const char *inside_member(tg_module *m, int i, tg_module **child, tg_tensor **t)
{
    const tgi_member *e = tgi_member_at(m, i);
    if (!e) return NULL;
    *child = e->child, *t = e->t;
    return e->name;
}

int64_t inside_optim_steps(const tg_optim *o, int parameter) { return (int64_t)o->param[parameter].steps; }

bool inside_optim_save(tg_optim *o, bool (*put)(void *user, const char *name, tg_tensor *t))
{
    return tgi_optim_save(tgi_self(), "test", o, put, NULL);
}

bool inside_optim_load(tg_optim *o, tg_tensor *(*get)(void *user, const char *name))
{
    tg_optim *draft = tgi_optim_load(tgi_self(), "test", o, get, NULL);
    if (draft) tgi_optim_adopt(o, draft);
    return draft != NULL;
}

tg_tensor *inside_conv_weight(tg_tensor *x, tg_tensor *g, int64_t groups, int64_t stride, int64_t padding, tg_shape dims)
{
    tgi_conv_geometry geometry = {groups, {1, 1, stride}, {1, 1, 1}, {0, 0, padding}};
    tg_tensor *t[3];
    t[TGI_CONV_X] = x, t[TGI_CONV_W] = NULL, t[TGI_CONV_Y] = g;
    return tgi_conv_op(TGI_CONV_W, t, NULL, &geometry, dims);
}

tg_tensor *inside_lstm_step(tg_tensor *from_x, tg_tensor *from_h, tg_tensor **c) { return tgi_lstm_step(from_x, from_h, c); }
