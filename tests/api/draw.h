/* What api_calls.h, written by declarations.c, asks of the program that includes it: to draw an argument of each type
 * for the parameter of that name, to hear that the call comes now, and to look at its result. */
#include "../other_rank.h"
static tg_tensor *draw_tensor(const char *name);
static tg_tensor *const *draw_tensors(const char *name);
static tg_tensor **draw_out_tensor(const char *name);
static tg_tensor **draw_out_tensors(const char *name);
static int draw_count(const char *name);
static int draw_int(const char *name);
static int64_t draw_int64(const char *name);
static uint64_t draw_uint64(const char *name);
static size_t draw_size(const char *name);
static double draw_double(const char *name);
static bool draw_bool(const char *name);
static const char *draw_string(const char *name);
static tg_shape draw_shape(const char *name);
static tg_dtype draw_dtype(const char *name);
static tg_device draw_device(const char *name);
static tg_precision draw_precision(const char *name);
static tg_rng draw_rng(const char *name);
static tg_status draw_status(const char *name);
static tg_mark draw_mark(const char *name);
static tg_optim *draw_optim(const char *name);
static tg_grad_scaler *draw_scaler(const char *name);
static tg_dict *draw_dict(const char *name);
static tg_loader *draw_loader(const char *name);
static tg_module *draw_module(const char *name);
static tg_forward_fn draw_module_forward(const char *name);
static tg_forward_one_fn draw_forward_one(const char *name);
static tg_module_hook_fn draw_module_hook(const char *name);
static tg_ctx *draw_ctx(const char *name);
static FILE *draw_file(const char *name);
static void *draw_user(const char *name);
static tg_function draw_function(const char *name);
static tg_closure draw_closure(const char *name);
static tg_hook_fn draw_hook(const char *name);
static tg_post_hook_fn draw_post_hook(const char *name);
static tg_custom_forward draw_forward(const char *name);
static tg_custom_backward draw_backward(const char *name);
static tg_error_handler draw_handler(const char *name);
static void call_starts(void);
static void check_void(void);
static void check_tensor(tg_tensor *result);
static void check_status(tg_status result);
static void check_bool(bool result);
static void check_int64(int64_t result);
static void check_size(size_t result);
static void check_double(double result);
static void check_string(const char *result);
static void check_pointer(const void *result);
static void check_optim(tg_optim *result);
static void check_dict(tg_dict *result);
static void check_group(tg_optim_group *result);
static void check_loader(tg_loader *result);
static void check_module(tg_module *result);
static void check_run(tg_backward_run *result);
static void check_dtype(tg_dtype result);
static void check_shape(tg_shape result);
static void check_device(tg_device result);
static void check_mark(tg_mark result);
static void check_dlpack(struct DLManagedTensorVersioned *result);
static void check_dlpack_unversioned(struct DLManagedTensor *result);

/* Whether the function that is called has this name. */
static bool is(const char *name);
/* Stands for the draw of an argument that the caller makes. */
static void made_by_hand(void);

/* Options are structs, each field of which is drawn. */
static tg_conv_options draw_conv_options(const char *name)
{
    tg_conv_options o;
    (void)name;
    o.kernel = draw_int64("kernel"), o.stride = draw_int64("stride"), o.dilation = draw_int64("dilation");
    o.padding = draw_int64("padding"), o.output_padding = draw_int64("output_padding"), o.groups = draw_int64("groups");
    o.same = draw_bool("same"), o.no_bias = draw_bool("no_bias");
    return o;
}

static tg_batch_norm_options draw_batch_norm_options(const char *name)
{
    tg_batch_norm_options o;
    (void)name;
    o.features = draw_int64("features"), o.eps = draw_double("eps"), o.momentum = draw_double("momentum");
    o.no_affine = draw_bool("no_affine"), o.no_running_stats = draw_bool("no_running_stats");
    return o;
}

static tg_instance_norm_options draw_instance_norm_options(const char *name)
{
    tg_instance_norm_options o;
    (void)name;
    o.features = draw_int64("features"), o.eps = draw_double("eps"), o.momentum = draw_double("momentum");
    o.affine = draw_bool("affine"), o.track_running_stats = draw_bool("track_running_stats");
    return o;
}

static tg_norm_options draw_norm_options(const char *name)
{
    tg_norm_options o;
    (void)name;
    o.size = draw_int64("channels"), o.eps = draw_double("eps"), o.no_affine = draw_bool("no_affine");
    return o;
}

static tg_rnn_options draw_rnn_options(const char *name)
{
    tg_rnn_options o;
    (void)name;
    o.hidden = draw_int64("hidden"), o.layers = draw_int("layers"), o.dropout = draw_double("dropout");
    o.nonlinearity = is("tg_nn_rnn_with") ? draw_string("nonlinearity") : NULL;
    o.no_bias = draw_bool("no_bias"), o.batch_first = draw_bool("batch_first");
    o.bidirectional = draw_bool("bidirectional");
    return o;
}

static tg_attention_options draw_attention_options(const char *name)
{
    tg_attention_options o;
    (void)name;
    o.heads = draw_int64("heads"), o.kdim = draw_int64("kdim"), o.vdim = draw_int64("vdim");
    o.dropout = draw_double("dropout"), o.no_bias = draw_bool("no_bias");
    return o;
}

/* What is put in the place is taken out of it again. */
static void hand_assign(void)
{
    tg_tensor *place = NULL, *y;
    made_by_hand();
    y = draw_tensor("y");
    call_starts();
    check_status(tg_assign(&place, y));
    tg_assign(&place, NULL);
}

/* The calls of captured steps, which the table leaves to the program: one of them is checked. */
static bool any_step(void *user)
{
    (void)user;
    return true;
}

static void hand_capture(void)
{
    tg_capture *capture = is("tg_capture_new") ? NULL : tg_capture_new(TG_CPU, any_step, NULL);
    call_starts();
    if (is("tg_capture_new"))
        check_pointer(capture = tg_capture_new(TG_CPU, any_step, NULL));
    else if (is("tg_capture_run"))
        check_status(tg_capture_run(capture));
    else if (is("tg_capture_obstacle"))
        check_string(tg_capture_obstacle(capture));
    tg_capture_free(capture);
    if (is("tg_capture_free")) check_void();
}

/* The calls of data-parallel training, likewise: a step of m with a state that is shared out, which may fail anywhere. */
static void step_in_parallel(tg_module *m, tg_parallel *parallel)
{
    const tg_mark scope = tg_scope_begin();
    tg_optim *opt = scope.serial ? tg_adam(tg_module_params(m), tg_module_count(m), 0.1) : NULL;
    if (opt && tg_parallel_shard(parallel, opt) == TG_OK) {
        tg_backward(tg_sum(tg_forward(m, tg_ones(TG_SHAPE(3, 2)))));
        tg_step(opt);
        tg_parallel_gather(parallel, opt);
    }
    tg_optim_free(opt);
    if (scope.serial) tg_scope_end(scope);
}

static void hand_parallel(void)
{
    const bool news = is("tg_parallel_new");
    tg_module *m = news ? draw_module("m") : tg_nn_linear(2, 1, true);
    tg_parallel *parallel = news ? NULL : tg_parallel_new(m, &other_rank, NULL);
    tg_optim *opt = NULL;
    tg_tensor *t = NULL;
    if (!news) made_by_hand();
    if (is("tg_parallel_shard") || is("tg_parallel_gather")) opt = draw_optim("opt");
    if (is("tg_parallel_sum")) t = draw_tensor("t");
    if (is("tg_parallel_free") && parallel) step_in_parallel(m, parallel);
    call_starts();
    if (news) check_pointer(parallel = tg_parallel_new(m, &other_rank, NULL));
    else if (is("tg_parallel_broadcast")) check_status(tg_parallel_broadcast(parallel));
    else if (is("tg_parallel_set_sync")) check_bool(tg_parallel_set_sync(parallel, false));
    else if (is("tg_parallel_sync_batch_norm")) check_status(tg_parallel_sync_batch_norm(parallel));
    else if (is("tg_parallel_shard")) check_status(tg_parallel_shard(parallel, opt));
    else if (is("tg_parallel_gather")) check_status(tg_parallel_gather(parallel, opt));
    else if (is("tg_parallel_sum")) check_tensor(tg_parallel_sum(parallel, t));
    tg_parallel_free(parallel);
    if (is("tg_parallel_free")) check_void();
    if (!news) tg_module_free(m);
}

/* A step of some rows of a table, which becomes a parameter of the optimizer before. */
static void hand_step_rows(void)
{
    tg_optim *opt = draw_optim("opt");
    tg_tensor *table = draw_tensor("table"), *ids = draw_tensor("ids"), *grad = draw_tensor("grad");
    if (opt && table && !tg_optim_add_group(opt, &table, 1)) tg_clear_error(); /* it is one already, or cannot be one */
    call_starts();
    check_status(tg_step_rows(opt, table, ids, grad));
}

/* The calls for NCCL, of one rank. */
static void hand_nccl(void)
{
    const tg_device device = draw_device("device");
    tg_nccl_id id = {{1}};
    tg_comm comm;
    const bool news = is("tg_nccl_new_id");
    memset(&comm, 0, sizeof comm);
    if (!news && device.type == TG_DEV_CUDA) tg_nccl_new_id(&id);
    call_starts();
    if (news)
        check_status(tg_nccl_new_id(&id));
    else if (is("tg_nccl_comm"))
        check_status(tg_nccl_comm(&comm, &id, 0, 1, device, 0));
    tg_nccl_comm_free(&comm);
    if (is("tg_nccl_comm_free")) check_void();
}

/* The rows for these in the tables of calls that are written by hand. */
#define HANDS_OF_DRAW \
    {"tg_capture_new", hand_capture}, {"tg_capture_run", hand_capture}, {"tg_capture_obstacle", hand_capture},  \
    {"tg_capture_free", hand_capture}, {"tg_parallel_new", hand_parallel}, {"tg_parallel_free", hand_parallel}, \
    {"tg_parallel_broadcast", hand_parallel}, {"tg_parallel_set_sync", hand_parallel},                          \
    {"tg_parallel_sum", hand_parallel}, {"tg_parallel_sync_batch_norm", hand_parallel},                         \
    {"tg_parallel_shard", hand_parallel}, {"tg_parallel_gather", hand_parallel}, {"tg_nccl_new_id", hand_nccl}, \
    {"tg_nccl_comm", hand_nccl}, {"tg_nccl_comm_free", hand_nccl}, {"tg_assign", hand_assign},        \
    {"tg_step_rows", hand_step_rows}
