/* train.c: one model that several processes train, each with its part of each batch: mpirun -np 4 out/mpi_train

   READ    main(): the engine (comm.h), tg_parallel_new, tg_loader_shard; the rest is the loop of one process.
   CHANGE  the number of ranks, 1, 2, 4, 8: the losses are the same, but for rounding.  --shard shares the state of
           the optimizer out; --norm has batch norms over all ranks; --bf16 trains a network in bf16; --save FILE
           writes a checkpoint every 20 steps, and --load FILE goes on from it, with any number of ranks; --steps 300
           goes on longer; --trouble kill, stop or fail shows what becomes of the others when that happens to the last
           rank; --measure what backward hides.
   PRINTS  from rank 0 the loss of the whole batch, every 10 steps. */
#define TENSORGRAD_IMPLEMENTATION
#if !defined(__cplusplus) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include "../../tensorgrad.h"
#include "comm.h"
#include <signal.h>
#include <stdlib.h>

enum { ROWS = 512, BATCH = 64, INPUTS = 16, HIDDEN = 64, CLASSES = 4, TROUBLE = 50 };

typedef struct {
    int64_t steps;
    double patience; /* seconds for which a rank may be silent */
    const char *save, *load, *trouble;
    bool shard, norm, bf16, measure;
} options;

static options read_options(int argc, char **argv)
{
    options o = {100, 60, NULL, NULL, "", false, false, false, false};
    for (int i = 1; i < argc; ++i) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--shard") == 0) o.shard = true;
        else if (strcmp(argv[i], "--norm") == 0) o.norm = true;
        else if (strcmp(argv[i], "--bf16") == 0) o.bf16 = true;
        else if (strcmp(argv[i], "--measure") == 0) o.measure = true;
        else if (strcmp(argv[i], "--steps") == 0) o.steps = atoll(value), ++i;
        else if (strcmp(argv[i], "--patience") == 0) o.patience = atoi(value), ++i;
        else if (strcmp(argv[i], "--save") == 0) o.save = value, ++i;
        else if (strcmp(argv[i], "--load") == 0) o.load = value, ++i;
        else if (strcmp(argv[i], "--trouble") == 0) o.trouble = value, ++i;
        else fprintf(stderr, "train: there is no option %s\n", argv[i]);
    }
    return o;
}

static tg_module *make_net(bool norm, int layers, int width)
{
    tg_module *net = tg_nn_sequential(NULL, 0);
    for (int i = 0; i < layers; ++i) {
        char name[3][16];
        snprintf(name[0], sizeof name[0], "fc%d", i);
        snprintf(name[1], sizeof name[1], "norm%d", i);
        snprintf(name[2], sizeof name[2], "tanh%d", i);
        tg_module_child(net, name[0], tg_nn_linear(i ? width : INPUTS, width, true));
        if (norm) tg_module_child(net, name[1], tg_nn_batch_norm(width, 1e-5, 0.1));
        tg_module_child(net, name[2], tg_nn_tanh());
    }
    tg_module_child(net, "out", tg_nn_linear(width, CLASSES, true));
    return net;
}

/* data[0]: points [ROWS, INPUTS]; data[1] [ROWS]: in which quarter the first two numbers of each lie */
static void make_data(tg_tensor **data)
{
    int64_t quarter[ROWS];
    data[0] = tg_randn(TG_SHAPE(ROWS, INPUTS));
    const float *x = tg_data_f32(data[0]);
    for (int i = 0; i < ROWS; ++i) quarter[i] = (x[i * INPUTS] > 0) + 2 * (x[i * INPUTS + 1] > 0);
    data[1] = tg_from_i64(quarter, TG_SHAPE(ROWS));
}

/* What may happen to a rank: it is gone, it does nothing any more, or it has an error of its own. */
static void meet_trouble(const char *trouble)
{
    if (strcmp(trouble, "kill") == 0) raise(SIGKILL);
    if (strcmp(trouble, "stop") == 0) raise(SIGSTOP);
    if (strcmp(trouble, "fail") == 0) (void)!tg_add(tg_ones(TG_SHAPE(2)), tg_ones(TG_SHAPE(3)));
}

/* One step; the loss of the whole batch where it is asked for, else 0. */
static double train_step(tg_module *net, tg_parallel *parallel, tg_optim *opt, tg_tensor **batch, int ranks, bool asked)
{
    TG_SCOPE;
    tg_optim_zero_grad(opt);
    tg_tensor *x = tg_to_dtype(batch[0], tg_dtype_of(tg_module_params(net)[0]));
    tg_tensor *loss = tg_cross_entropy(tg_to_dtype(tg_forward(net, x), TG_F32), batch[1]);
    if (!tg_ok() || tg_backward(loss) != TG_OK || tg_step(opt) != TG_OK || !asked) return 0;
    return tg_item(tg_parallel_sum(parallel, tg_div_scalar(tg_detach(loss), ranks)));
}

/* How long a step of a larger network waits for the other ranks: when each bucket is sent as soon as it is complete,
   and when all are sent at the end of backward.  Of several turns of both, the least. */
static void measure(const tg_comm *comm, mpi_engine *engine)
{
    enum { TURNS = 12, STEPS = 5, LAYERS = 8, WIDTH = 512 };
    double waited[2] = {1e9, 1e9}, all[2] = {1e9, 1e9};
    tg_module *net = make_net(false, LAYERS, WIDTH);
    tg_optim *opt = tg_sgd(tg_module_params(net), tg_module_count(net), 1e-3);
    tg_tensor *batch[] = {tg_randn(TG_SHAPE(BATCH, INPUTS)), tg_randint(0, CLASSES, TG_SHAPE(BATCH))};
    for (int turn = 0; turn < TURNS; ++turn) {
        tg_parallel_options o = {turn % 2 ? INT64_MAX : 1 << 20, false};
        tg_parallel *parallel = tg_parallel_new(net, comm, &o);
        train_step(net, parallel, opt, batch, comm->size, false);
        engine->waited = 0;
        const double start = MPI_Wtime();
        for (int step = 0; step < STEPS; ++step) train_step(net, parallel, opt, batch, comm->size, false);
        const double ms = 1e3 * (MPI_Wtime() - start) / (int)STEPS, waiting = 1e3 * engine->waited / (int)STEPS;
        if (ms < all[turn % 2]) all[turn % 2] = ms;
        if (waiting < waited[turn % 2]) waited[turn % 2] = waiting;
        tg_parallel_free(parallel);
    }
    if (comm->rank == 0 && waited[1] > 0) {
        printf("all sent at the end of backward: %.2f ms of a step of %.2f wait for other ranks\n", waited[1], all[1]);
        printf("each bucket when it is complete: %.2f ms of %.2f: %.0f%% of the communication is hidden\n", waited[0],
               all[0], 100 * (1 - waited[0] / waited[1]));
    }
    tg_optim_free(opt);
    tg_module_free(net);
}

int main(int argc, char **argv)
{
    mpi_engine engine;
    tg_tensor *data[2], *batch[2];
    int64_t step = 0;
    MPI_Init(&argc, &argv);
    const options o = read_options(argc, argv);
    const tg_comm comm = mpi_comm(&engine, MPI_COMM_WORLD, o.patience);

    tg_seed(1); /* the same on all ranks: the same data, and the same order of its rows */
    make_data(data);
    tg_loader *loader = tg_loader_new(data, 2, BATCH / comm.size, TG_SHUFFLE | TG_DROP_LAST, TG_CPU);
    tg_loader_shard(loader, comm.rank, comm.size);

    tg_module *net = make_net(o.norm, 2, HIDDEN);
    if (o.bf16) tg_module_to_dtype(net, TG_BF16);
    tg_parallel *parallel = tg_parallel_new(net, &comm, NULL);
    tg_optim *opt = tg_adamw(tg_module_params(net), tg_module_count(net), 1e-2);
    if (o.norm) tg_parallel_sync_batch_norm(parallel);
    if (o.shard) tg_parallel_shard(parallel, opt);
    if (o.load) tg_checkpoint_load(o.load, net, opt, &step);
    tg_loader_seek(loader, step);

    for (; step < o.steps && tg_ok(); ++step) {
        if (!tg_loader_next(loader, batch)) tg_loader_next(loader, batch); /* the next epoch */
        if (step == TROUBLE && comm.rank == comm.size - 1) meet_trouble(o.trouble);
        const double loss = train_step(net, parallel, opt, batch, comm.size, step % 10 == 0);
        if (step % 10 == 0 && comm.rank == 0 && tg_ok()) {
            printf("step %3d  loss %.5f\n", (int)step, loss);
            fflush(stdout);
        }
        if (!o.save || (step + 1) % 20 != 0) continue;
        tg_parallel_gather(parallel, opt); /* all ranks; then one of them saves */
        if (comm.rank == 0) tg_checkpoint_save(o.save, net, opt, step + 1);
    }
    if (!tg_ok()) comm.abort(comm.context); /* the others would wait for this rank */
    if (o.measure) measure(&comm, &engine);

    tg_optim_free(opt);
    tg_parallel_free(parallel);
    tg_loader_free(loader);
    tg_module_free(net);
    tg_release_all(data, 2);
    mpi_close(&engine);
    MPI_Finalize();
    return tg_ok() ? 0 : 1;
}
