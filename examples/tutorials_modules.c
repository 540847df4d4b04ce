/* tutorials_modules.c: three tutorials about the .to(device) of PyTorch's modules as a C program, with what is true
   of what they say: "pytorch tensor.to", "Why aren't all tensors being moved ..." and "Why isn't a PyTorch layer ...".

   READ    in quotes stands what a tutorial says; the lines under it print what happens.
   CHANGE  take a tg_module_child, a tg_module_buffer or the move of an input away, and read the error.
   PRINTS  numbers, the same on every device; where tensors are; after ! what a forgotten move gives if there is a GPU.
           Without one: make sim MAIN=examples/tutorials_modules.c OUT=tutorials; TG_SIM_DEVICES=1 ./tutorials */
#define TENSORGRAD_IMPLEMENTATION
#include "../tensorgrad.h"
#include <stdio.h>

static tg_device gpu; /* the CPU when there is none */
static const char *place(const tg_tensor *t) { return tg_device_str(tg_device_of(t)); }

/* Prints the error of a call that mixes devices, and clears it. */
static void refused(const tg_tensor *result)
{
    printf("! %s\n", result ? "one device: nothing is refused" : tg_error_message());
    tg_clear_error();
}

/* ---- "pytorch tensor.to": m = model.to(device) ---- */

enum { TOKENS = 10, PAIRS = 60, BATCH = 16, EPOCHS = 8 };

/* ids of tokens [N] -> scores of the tokens that may follow [N, TOKENS] */
static tg_tensor *bigram_forward(tg_module *m, tg_tensor *ids)
{
    return tg_forward(tg_module_get_child(m, "table"), ids);
}

/* "It returns a reference to the same model."  So the optimizer may be made before the move as well as after it. */
static void train(bool optimizer_first)
{
    TG_SCOPE;
    tg_seed(1);
    tg_module *model = tg_nn_module("BigramLanguageModel", bigram_forward, 0), *m = model;
    tg_module_child(model, "table", tg_nn_embedding(TOKENS, TOKENS));
    if (!optimizer_first) m = tg_module_to(model, gpu);
    tg_optim *optimizer = tg_adam(tg_module_params(model), tg_module_count(model), 0.1);
    if (optimizer_first) m = tg_module_to(model, gpu);
    tg_tensor *tokens = tg_randint(0, TOKENS, TG_SHAPE(PAIRS)), *next = tg_rsub_scalar(tokens, TOKENS - 1), *batch[2];
    tg_loader *loader = tg_loader_new(TG_LIST(tokens, next), BATCH, TG_SHUFFLE, gpu); /* moves inputs and targets */
    double last_loss = 0;
    for (int epoch = 0; epoch < EPOCHS; ++epoch) {
        TG_SCOPE;
        while (tg_loader_next(loader, batch)) {
            tg_tensor *loss = tg_cross_entropy(tg_forward(model, batch[0]), batch[1]);
            tg_optim_zero_grad(optimizer);
            tg_backward(loss);
            tg_step(optimizer);
            last_loss = tg_item(loss);
        }
    }
    printf("m is %s, on %s; optimizer made %s the move: loss %.6f\n", m == model ? "model" : "a copy",
           place(tg_module_get(m, "table.weight")), optimizer_first ? "before" : "after", last_loss);
    tg_optim_free(optimizer);
    tg_loader_free(loader);
    tg_module_free(model);
}

/* ---- "Why aren't all tensors being moved to the desired device" ---- */

static tg_tensor *custom_linear_forward(tg_module *m, tg_tensor *x)
{
    return tg_add(tg_matmul(x, tg_t(tg_module_get(m, "weight"))), tg_module_get(m, "bias"));
}

static void example_model_forward(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int n_out)
{
    (void)n; /* one input, but three outputs */
    tg_split(tg_relu(tg_forward(tg_module_get_child(m, "linear"), in[0])), 2, 1, out, n_out);
}

/* ".to(device) on a parent does not recursively transfer all submodules' parameters."  It does.  "With an input on the
   CPU the output is typically there."  It is an error. */
static void custom_modules(void)
{
    TG_SCOPE;
    tg_module *model = tg_module_new("ExampleModel", example_model_forward, 0);
    tg_module *linear = tg_module_child(model, "linear", tg_nn_module("CustomLinear", custom_linear_forward, 0));
    tg_module_param(linear, "weight", tg_randn(TG_SHAPE(5, 10)));
    tg_module_param(linear, "bias", tg_randn(TG_SHAPE(5)));
    tg_module_to(model, gpu); /* in place: the result need not be used */
    printf("linear.weight on %s\n", place(tg_module_get(model, "linear.weight")));
    tg_tensor *input = tg_randn(TG_SHAPE(1, 10)), *outputs[3];
    refused(tg_forward(linear, input));
    input = tg_to(input, gpu);
    if (tg_forward_n(model, &input, 1, outputs, 3) == TG_OK)
        for (int i = 0; i < 3; ++i) printf("piece of size %d on %s\n", (int)tg_dim(outputs[i], 1), place(outputs[i]));
    tg_module_free(model);
}

/* recursive_to_device(data, device) is tg_dict_to: a new dictionary, and the old one stays. */
static void nested_batches(void)
{
    TG_SCOPE;
    tg_dict *data = tg_dict_new(), *list = tg_dict_new();
    tg_dict_set(list, "0", tg_ones(TG_SHAPE(10, 10)));
    tg_dict_set_dict(data, "list", list);
    tg_dict *moved = tg_dict_to(data, gpu);
    printf("list.0 on %s, moved on %s\n", place(tg_dict_get(data, "list.0")), place(tg_dict_get(moved, "list.0")));
    tg_dict_free(data);
    tg_dict_free(moved);
}

/* ---- "Why isn't a PyTorch layer transferring to the GPU" ---- */

typedef struct { tg_module *linear; tg_tensor *some_tensor; } my_self;

static tg_tensor *my_forward(tg_module *m, tg_tensor *x)
{
    my_self *self = (my_self *)tg_module_self(m);
    if (!self->linear) self->linear = tg_module_child(m, "linear", tg_nn_linear(10, 5, true)); /* too late */
    return tg_add(tg_forward(self->linear, x), self->some_tensor);
}

/* "The layer inherits the device of the input."  It is on the default device until the next move.  "All tensors that
   are members of a class object must be moved."  Only those must that were not registered. */
static void late_and_plain(void)
{
    TG_SCOPE;
    tg_module *model = tg_nn_module("MyModule", my_forward, sizeof(my_self));
    my_self *self = (my_self *)tg_module_self(model);
    self->some_tensor = tg_module_buffer(model, "some_tensor", tg_ones(TG_SHAPE(5, 5)));
    tg_module_to(model, gpu);
    tg_tensor *x = tg_to(tg_ones(TG_SHAPE(1, 10)), gpu);
    refused(tg_forward(model, x));
    tg_module_to(model, gpu); /* "shallow: weights follow when they are used": this moves them, at once */
    printf("linear.weight on %s\n", place(tg_module_get(model, "linear.weight")));
    self->some_tensor = tg_ones(TG_SHAPE(5, 5)); /* a plain tensor now */
    refused(tg_forward(model, x));
    self->some_tensor = tg_to(self->some_tensor, gpu);
    printf("some_tensor on %s, sum %.6f\n", place(self->some_tensor), tg_item(tg_sum(tg_forward(model, x))));
    tg_module_free(model);
}

int main(void)
{
    tg_set_error_handler(NULL, NULL);
    tg_set_default_dtype(TG_F64);
    gpu = tg_cuda_is_available() ? TG_CUDA(0) : TG_CPU;
    train(true);
    train(false);
    custom_modules();
    nested_batches();
    late_and_plain();
    if (!tg_ok()) printf("%s\n", tg_error_message());
    return tg_ok() && tg_shutdown() == TG_OK ? 0 : 1;
}
