/* A small network.  As it is, this program prints its weights as C to the file that is named, and what its forward gives to
   stdout, in hexadecimal digits.  With -DWEIGHTS='"net.h"' it begins with other weights, has those of that file in itself and
   loads them, so that the forward must give the same; and reads them where they are. */
#include "tensorgrad.h"
#ifdef WEIGHTS
#include WEIGHTS
#endif

static tg_module *network(void)
{
    tg_module *list[5];
    list[0] = tg_nn_linear(7, 16, true);
    list[1] = tg_nn_batch_norm(16, 1e-5, 0.1);
    list[2] = tg_nn_tanh();
    list[3] = tg_nn_linear(16, 3, false);
    list[4] = tg_nn_softmax(-1);
    return tg_nn_sequential(list, 5);
}

static void print_bits(tg_tensor *y)
{
    unsigned bits[6];
    if (tg_copy_out(y, bits, sizeof bits) != TG_OK) return;
    for (int i = 0; i < 6; ++i) printf("%08x\n", bits[i]);
}

#ifdef WEIGHTS
static int uses_the_array(void)
{
    const char *first = (const char *)net.bytes;
    tg_dict *d = tg_safetensors_parse(net.bytes, sizeof net.bytes);
    const char *at = (const char *)tg_data(tg_dict_get(d, "3.weight"));
    const int one = 1, within = at >= first && at < first + sizeof net.bytes;
    tg_dict_free(d);
    return within == (*(const char *)&one == 1);
}
#endif

int main(int argc, char **argv)
{
    tg_tensor *x = tg_div_scalar(tg_reshape(tg_arange(0, 14, 1), TG_SHAPE(2, 7)), 3);
    bool ok = argc == 2;
#ifdef WEIGHTS
    tg_seed(2);
    tg_module *m = network();
    ok = tg_module_load_from(m, net.bytes, sizeof net.bytes) == TG_OK && uses_the_array();
    (void)argv;
#else
    tg_seed(1);
    tg_module *m = network();
    ok = ok && tg_forward(m, x) != NULL; /* which changes the statistics of batch_norm */
    FILE *file = ok ? fopen(argv[1], "w") : NULL;
    ok = file && tg_module_export_c(file, m, "net") == TG_OK;
    if (file) fclose(file);
#endif
    tg_module_train(m, false);
    print_bits(tg_forward(m, x));
    tg_module_free(m);
    return ok && tg_ok() ? 0 : 1;
}
