/* tensorgrad.h - v0.1.0 - tensors, reverse-mode autograd and differentiable device moves for C.  MIT-0 or Unlicense.

   One header that needs only libc.  Semantics follow PyTorch, and the names are PyTorch's with tg_ in front: what you
   know of PyTorch, its documentation and its error messages apply here.

   DO THIS once, in one C or C++ file of your project, before the include:

       #define TENSORGRAD_IMPLEMENTATION
       #include "tensorgrad.h"

   and include it without the define everywhere else.  Give the library a file of its own (tg.c, just these two lines),
   and it is compiled once, not again after each edit of main.c.  A complete program:

       #define TENSORGRAD_IMPLEMENTATION
       #include "tensorgrad.h"
       #include <stdio.h>

       int main(void)
       {
           tg_tensor *w = tg_param(tg_zeros(TG_SHAPE(1))), *b = tg_param(tg_zeros(TG_SHAPE(1)));
           tg_optim *opt = tg_sgd(TG_LIST(w, b), 0.1);
           for (int step = 0; step < 200; ++step) {
               TG_SCOPE;                                         // what this step makes is freed at the brace
               tg_tensor *x = tg_randn(TG_SHAPE(32, 1));         // data: y = 3 x + 2
               tg_tensor *y = tg_add_scalar(tg_mul_scalar(x, 3), 2);
               tg_tensor *loss = tg_mse_loss(tg_add(tg_mul(x, w), b), y, TG_MEAN);
               tg_optim_zero_grad(opt);
               tg_backward(loss);
               tg_step(opt);
           }
           printf("w %.4f  b %.4f\n", tg_item(w), tg_item(b));   // w 3.0000  b 2.0000
           tg_optim_free(opt), tg_release(w), tg_release(b), tg_shutdown();
           return tg_ok() ? 0 : 1;                               // one check is enough: the first error is kept
       }

   BUILD      cc -O2 main.c -lm
   OpenMP     cc -O2 -fopenmp main.c -lm        the same results to the last bit, on any number of threads
   CUDA       nvcc -c tensorgrad_cuda.cu; cc -O2 -DTG_ENABLE_CUDA main.c tensorgrad_cuda.o -lcudart -lcublas -lm
   SIMULATOR  make sim MAIN=main.c OUT=prog; TG_SIM_DEVICES=2 ./prog     runs the CUDA kernels without a GPU

   CONFIGURE by defining, in the file that has TENSORGRAD_IMPLEMENTATION, before the include:

       TG_ENABLE_CUDA       use the CUDA backend in tensorgrad_cuda.o
       TG_STATIC            make every function static: the library is private to this file
       TG_API               linkage of the public functions (default: extern, or static under TG_STATIC)
       TG_THREAD_LOCAL      the compiler's thread-local keyword; define it empty for a program with one thread
       TG_ABORT             the function that tg_abort_on_error calls (default: abort)
       TG_DEBUG             find every use of an ended tensor, as TG_DEBUG=1 in the environment does: see OWNERSHIP
       TG_ALLOW_FAST_MATH   allow -ffast-math and -ffinite-math-only, which break NaN and infinity; without this macro
                            they are a compile error

   Files that only include the header need none of these: no macro changes a public struct.

   OWNERSHIP  A new tensor belongs to the innermost open scope of its thread, as a local variable belongs to its block.
   TG_SCOPE; opens a scope; at the closing brace its tensors end, except for these:

       tg_keep(t)      moves t to the scope outside, if there is one: for the result of a function
       tg_retain(t)    adds a reference of yours; t then lives at least until tg_release(t)
       tg_param(t)     makes t a parameter (a leaf that requires grad) that belongs to you until tg_release(t)

   A tensor made outside of every scope lives until tg_release, tg_thread_end or tg_shutdown.  The graph keeps alive
   what backward needs, and lives as long as a tensor that was computed by it.

   A tensor that lives from one turn of a loop to the next is retained when it is made, and released when the next one
   replaces it: `old = h; h = tg_retain(tg_detach(next)); tg_release(old);`.  (tg_keep in every turn would leave one
   tensor per turn in the scope outside.)

   Do not use a tensor after its end.  The library reports such a use as an error until a new tensor gets the memory of
   the handle; from then on it is not noticed.  To find every such use, run with TG_DEBUG=1 in the environment, or
   compile with TG_DEBUG defined: then the memory of an ended tensor's handle is never used again, its elements are
   overwritten, and each use is an error that names the op that made the tensor, its name and what ended it.  A pointer
   of tg_data that is used too late is found by the compiler's address sanitizer, after tg_set_cache_limit(0).

   DEVICES  tg_to(t, TG_CUDA(0)) returns a new tensor there (t itself if it is there already) and leaves t alone.  It is
   a differentiable op: gradients come back through it to t, on t's device.  An op runs on the device of its operands,
   and nothing moves by itself: operands on different devices are an error.  GPU calls queue their work and return;
   those that wait are listed under BACKEND.  Without CUDA the same calls exist and fail; work on the CPU goes on.

   ERRORS  Nothing aborts.  A failing call changes nothing, prints its error to stderr (tg_set_error_handler changes
   that), records it if it is the first of its thread, and returns NULL, a status other than TG_OK, or, where it returns
   a value, 0, NaN or false.  Every op accepts NULL after an error and returns NULL, so one check at the end of a chain
   is enough: `if (!tg_ok()) puts(tg_error_message());`.  Unless its comment says otherwise, a function fails on a NULL
   argument, when an allocation fails, and on operands whose shapes, dtypes or devices do not fit.  To stop where an
   error is raised, set a breakpoint on tgi_fail, or on a handler of yours.  tg_set_name gives a tensor a name that the
   messages show.

   THREADS  Each thread has its own errors, scopes, graph, modes, defaults, random numbers and cache.  A tensor can be
   used by the thread that made it; by others only after tg_share.  A thread calls tg_thread_end before it ends, the
   last one tg_shutdown.  The threads that OpenMP uses inside an op need no such call.

   CONTENTS (search for a tag: it stands here, above the declarations, and above the implementation; those marked *
   have no declarations)

       @@BASE          configuration, errors, allocator, statistics
       @@DTYPE         element types, promotion and conversion
       @@RANDOM        the seed and state of the random numbers (Philox4x32-10)
       @@BACKEND       devices: what each kind must be able to do, the loops and formulas that all use, names and counts
       @@CPU         * the CPU's kernels
       @@TENSOR        shapes, scopes, threads, creation, access
       @@TAPE          gradients: backward, hooks, no_grad, custom functions, checkpoints, anomaly mode
       @@CALL        * the recording of a call: operands, outputs, saved tensors, writes in place
       @@MOVE          moves between devices and dtypes
       @@OPS           the rules of all ops: shapes, dtypes, scalars, devices, in place; then every op, by kind:
       @@ELEMENTWISE   arithmetic, comparison, functions, activations, choices
       @@VIEWS         reshape, transpose, slice, expand: other views of the same elements
       @@WRITE         fill_, zero_, copy_, set: writing in place
       @@JOIN          cat and stack, split and unbind; repeat, flip, pad: copies in another order
       @@REDUCE        sum, mean, prod, max, min, amax, any, var, norm, logsumexp
       @@INDEX         gather, scatter, embedding, indexing by tensors
       @@SORT          along one dim: max_dim, argmax, cumsum, sort, topk
       @@NORM          softmax, layer_norm, rms_norm
       @@MATMUL        products of matrices, linear, einsum
       @@SAMPLE        random tensors, dropout
       @@ATTENTION     scaled_dot_product_attention
       @@LOSS          mse_loss, cross_entropy and the other losses
       @@COMPARE       equal, allclose
       @@TABLE       * the op table: every op with its formula, what it saves and its gradient
       @@CHECK         gradcheck and gradgradcheck
       @@OPTIM         optimizers, clipping, schedules
       @@SHOW          printing tensors and the tape
*/
#ifndef TENSORGRAD_H
#define TENSORGRAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ======== @@BASE ================================================================================================== */

/* The version of this header, TG_VERSION_MAJOR.TG_VERSION_MINOR.TG_VERSION_PATCH, and TG_VERSION_STRING, the same as
   text.  tg_version returns that of the linked implementation. */
#define TG_VERSION_MAJOR 0
#define TG_VERSION_MINOR 1
#define TG_VERSION_PATCH 0
#define TG_VERSION_STRING "0.1.0"

#ifndef TG_API
#ifdef TG_STATIC
#if defined(__GNUC__) || defined(__clang__)
#define TG_API __attribute__((__unused__)) static
#else
#define TG_API static
#endif
#else
#define TG_API extern
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Status codes.  Many functions return one; tg_error_code returns that of the recorded error. */
typedef enum {
    TG_OK = 0,          /* no error */
    TG_ERR_SHAPE,       /* sizes or dims do not fit */
    TG_ERR_DTYPE,       /* element types do not fit */
    TG_ERR_DEVICE,      /* operands on different devices, or a device that does not exist */
    TG_ERR_MEMORY,      /* allocation failed */
    TG_ERR_ARGUMENT,    /* NULL, or a value out of range */
    TG_ERR_GRAPH,       /* autograd: no graph, freed graph, a saved tensor modified in place, ... */
    TG_ERR_IO,          /* a file could not be read or written */
    TG_ERR_FORMAT,      /* a file or text is not in the expected format */
    TG_ERR_CUDA,        /* a call of CUDA or cuBLAS failed */
    TG_ERR_UNSUPPORTED  /* not supported by this build, device or dtype */
} tg_status;

TG_API const char *tg_version(void);    /* version of the linked implementation, "0.1.0" */
TG_API const char *tg_build_info(void); /* one line: version, compiler, C++ and OpenMP if they were used */

/* The error record of this thread.  It keeps the first error since the last tg_clear_error; later errors are only
   counted.  The message says what was wrong, with shapes, dtypes and devices, then perhaps a line "  hint: ...".  The
   text stays until tg_clear_error, also after tg_shutdown. */
TG_API bool tg_ok(void);                   /* true when no error is recorded */
TG_API const char *tg_error_message(void); /* message of the first error; "" when there is none */
TG_API tg_status tg_error_code(void);      /* its status; TG_OK when there is none */
TG_API int64_t tg_error_count(void);       /* errors since the last tg_clear_error */
TG_API void tg_clear_error(void);          /* empties the record */

/* An error handler is called for each error when it is raised, not when a later call merely receives the resulting
   NULL; and for warnings, with code TG_OK.  It may call the library.  An error inside it is recorded, but the handler
   is not called for that one, and tensors that it makes end when it returns, unless retained. */
typedef void (*tg_error_handler)(tg_status code, const char *message, void *user);
/* Sets the handler of the whole process.  The default handler prints to stderr, and the same text only once in a row;
   NULL is silent.  user is passed on to the handler. */
TG_API void tg_set_error_handler(tg_error_handler handler, void *user);
/* A handler to pass to tg_set_error_handler: prints the message and aborts, also for a warning.  For prototypes. */
TG_API void tg_abort_on_error(tg_status code, const char *message, void *user);

/* Host memory allocator: see tg_set_allocator. */
typedef struct {
    void *(*alloc)(size_t bytes, void *user);           /* memory aligned as by malloc, or NULL */
    void (*free)(void *p, size_t bytes, void *user);    /* frees p, for which alloc was called with these bytes */
    void *user;                                         /* passed to both */
} tg_allocator;
/* Sets where host memory comes from, for the whole process; NULL stands for malloc and free.  The struct is copied.
   Errors: tensors, nodes or scopes exist, or another thread has state: call it first, or after tg_shutdown. */
TG_API tg_status tg_set_allocator(const tg_allocator *allocator);

/* Freed blocks are kept for reuse, per thread, up to this many bytes (default: no limit).  0 frees each block at once,
   so that a memory checker sees every use after free.  The memory of a handle is only reused for handles: until that
   happens, using the ended tensor is an error. */
TG_API void tg_set_cache_limit(size_t bytes);

/* Counts of what exists: see tg_stats. */
typedef struct {
    int64_t tensors;      /* tensors that exist now, of the whole process */
    int64_t nodes;        /* nodes of the tape, of the whole process */
    int64_t bytes;        /* bytes of tensor data, of the whole process */
    int64_t saved;        /* tensors that nodes have saved for backward, of the whole process */
    int64_t peak_tensors; /* peak_*: the most there were at one time, of this thread, since tg_reset_peak */
    int64_t peak_nodes;   /* the same for nodes */
    int64_t peak_bytes;   /* the same for bytes of tensor data */
    int64_t cached_bytes; /* freed blocks that this thread keeps for reuse */
    int64_t unscoped;     /* tensors of this thread that belong to no scope */
    int64_t allocations;  /* calls of the allocator by this thread, since its start */
} tg_stats_info;
/* The counts as of now.  Those of the whole process include other threads as of their last tg_stats or end. */
TG_API tg_stats_info tg_stats(void);
TG_API void tg_reset_peak(void); /* sets the peaks of this thread, those of tg_stats_on too, to the current values */

/* Threads that one op may use when the library is compiled with OpenMP.  0 or less: OpenMP's own choice, the default.
   At most four per processor (64 if there are fewer than 16 processors) and at most OMP_THREAD_LIMIT are used; a larger
   number counts as that limit.  Results do not depend on it.  torch.set_num_threads */
TG_API void tg_set_num_threads(int threads);

/* ======== @@DTYPE ================================================================================================= */

/* Element types.  bf16 and f16 are computed in f32 and rounded to nearest even.  Floats that are converted to integers
   are truncated and limited to the integer's range; NaN becomes 0. */
typedef enum {
    TG_F32,  /* float; the default dtype */
    TG_F64,  /* double */
    TG_BF16, /* bfloat16: the upper half of a float */
    TG_F16,  /* IEEE half precision */
    TG_I32,  /* int32_t */
    TG_I64,  /* int64_t */
    TG_U8,   /* uint8_t */
    TG_BOOL  /* one byte, 0 or 1 */
} tg_dtype;

TG_API const char *tg_dtype_name(tg_dtype dtype);   /* "f32", "bool", ...: static text */
TG_API size_t tg_dtype_size(tg_dtype dtype);        /* bytes of one element; 0 for an unknown dtype (no error) */
TG_API bool tg_is_floating_point(tg_dtype dtype);   /* true for f32, f64, bf16 and f16 */

/* Result dtype of two operands that both have at least one dim.  If their kinds differ (bool < integer < float), it is
   the dtype of the higher kind, whatever its size: i64 with f16 gives f16.  Else it is the larger dtype; bf16 with f16
   gives f32.  0-dim operands: see OPS.  torch.promote_types */
TG_API tg_dtype tg_promote_types(tg_dtype a, tg_dtype b);

/* tg_set_default_dtype sets the dtype for functions that are given none (tg_zeros, tg_randn, ...) and for
   floating-point results of integers.  Per thread; TG_F32 at first.  Errors: not f32, f64, bf16 or f16.
   torch.set_default_dtype */
TG_API tg_status tg_set_default_dtype(tg_dtype dtype);
TG_API tg_dtype tg_default_dtype(void); /* the default dtype of this thread.  torch.get_default_dtype */

/* ======== @@RANDOM ================================================================================================ */

/* tg_rng is the state of the random number generator, Philox4x32-10.  The k-th random number is a function of seed and
   k alone, the same on every device and for every number of threads.  Each thread has its own state.

   C does not say in which order arguments are evaluated, so make each random tensor in a statement of its own:
   tg_sub(tg_randn(s), tg_randn(s)) gives different results with different compilers. */
typedef struct {
    uint64_t seed;   /* as set by tg_seed; 0 at first */
    uint64_t offset; /* random counters used since: each call uses as many as its elements need */
} tg_rng;
TG_API void tg_seed(uint64_t seed);           /* restarts from a seed, at offset 0.  torch.manual_seed */
TG_API tg_rng tg_rng_state(void);             /* the state, to save.  torch.get_rng_state */
TG_API void tg_rng_set_state(tg_rng state);   /* restores a saved state.  torch.set_rng_state */

/* ======== @@BACKEND =============================================================================================== */

/* A device, to be compared by tg_device_equal.  torch.device */
typedef struct {
    int type;  /* TG_DEV_CPU or TG_DEV_CUDA */
    int index; /* which GPU; -1: the current one (tg_cuda_set_device).  0 for the CPU */
} tg_device;
/* Values of tg_device.type. */
enum {
    TG_DEV_CPU = 0, /* the host */
    TG_DEV_CUDA = 1 /* an NVIDIA GPU, or a device of the simulator */
};

/* TG_CPU and TG_CUDA(i) are the devices as expressions; TG_CPU_INIT initialises a static tg_device. */
#define TG_CPU_INIT {TG_DEV_CPU, 0}
#ifdef __cplusplus
#define TG_CPU (tg_device TG_CPU_INIT)
#define TG_CUDA(i) (tg_device{TG_DEV_CUDA, static_cast<int>(i)})
#else
#define TG_CPU ((tg_device)TG_CPU_INIT)
#define TG_CUDA(i) ((tg_device){TG_DEV_CUDA, (int)(i)})
#endif

/* tg_device_parse reads "cpu", "cuda" or "cuda:1" into *device.  "cuda" becomes TG_CUDA(-1), the current device when it
   is used.  The device need not exist.  Errors: torch.device's, such as "Invalid device string: 'cuda:'". */
TG_API tg_status tg_device_parse(const char *text, tg_device *device);
TG_API const char *tg_device_str(tg_device device);       /* the inverse of tg_device_parse: static text */
TG_API bool tg_device_equal(tg_device a, tg_device b);    /* same type and index */

/* CUDA devices of this build and machine.  The first two never fail: without CUDA they return false and 0. */
TG_API bool tg_cuda_is_available(void);           /* whether there is one.  torch.cuda.is_available */
TG_API int tg_cuda_device_count(void);            /* how many there are.  torch.cuda.device_count */
TG_API tg_status tg_cuda_set_device(int index);   /* what TG_CUDA(-1) means in this thread.  torch.cuda.set_device */
TG_API int tg_cuda_current_device(void);          /* its index, 0 without CUDA.  torch.cuda.current_device */

/* Waits until everything that this thread has queued on the device is done, copies included.  No wait on the CPU.
   torch.cuda.synchronize */
TG_API tg_status tg_synchronize(tg_device device);

/* GPU calls are asynchronous: they queue their work and return.  These wait, because the host needs a value: tg_item,
   tg_item_i64, tg_get, tg_copy_out, tg_print and tg_fprint, tg_tape_print and tg_tape_dot, tg_equal, tg_allclose,
   tg_nonzero, tg_masked_select, tg_index and tg_index_put with a mask, tg_one_hot without a class count, tg_gradcheck,
   tg_gradgradcheck, tg_clip_grad_norm_ex with error_if_nonfinite, and moves and tg_copy_ to the CPU, in backward too
   (without TG_NON_BLOCKING; with it, the first use of the result waits).  A copy of ordinary host memory to a GPU goes
   through a staging buffer, and may wait until a part of that is free.  An error
   that a kernel finds (an index out of range) is reported by the next call that waits; its message names the op that
   caused it. */
TG_API bool tg_op_waits(const char *op);    /* whether a function may wait; op is its name without tg_, as "item" */
TG_API void tg_set_sync_checks(bool on);    /* on: every op waits and reports its own errors.  Per thread */

/* Counts of one device: see tg_stats_on. */
typedef struct {
    int64_t bytes;        /* bytes of tensors there now, of the whole process */
    int64_t peak_bytes;   /* the most there were of this thread, since tg_reset_peak */
    int64_t cached_bytes; /* freed memory there that is kept for reuse */
    int64_t received;     /* bytes that moves of this thread brought to the device */
    int64_t sent;         /* bytes that moves of this thread took from it */
    int64_t waits;        /* how often this thread waited for it */
} tg_device_stats;
/* The counts as of now.  Errors: the device does not exist; all counts are then 0.  torch.cuda.memory_stats */
TG_API tg_device_stats tg_stats_on(tg_device device);

/* ======== @@TENSOR ================================================================================================ */

#define TG_MAX_DIMS 8 /* the most dims that a tensor can have */
/* A tensor: a handle to a storage, with shape, strides and dtype, and perhaps a gradient and a place on the tape. */
typedef struct tg_tensor tg_tensor;

/* Sizes of a tensor, a list of dims, or an index: see TG_SHAPE. */
typedef struct {
    int ndim;                 /* how many numbers */
    int64_t dim[TG_MAX_DIMS]; /* the numbers; beyond ndim they have no meaning */
} tg_shape;
/* tg_shape from an array of ndim sizes.  The function that receives a shape checks it; this one never fails. */
TG_API tg_shape tg_make_shape(int ndim, const int64_t *dims);

/* TG_SHAPE(2, 3) is the tg_shape of one to eight numbers of any integer type.  TG_DIMS(0, -1), for a list of dims, and
   TG_INDEX(i, j), for an index, are the same under names that tell the reader what is meant.  TG_SCALAR is the tg_shape
   without numbers: the shape of a 0-dim tensor, or an empty list of dims.

   TG_LIST(a, b) is a list of tensors as functions take it: two arguments, an array and its length, as in
   tg_cat(TG_LIST(a, tg_neg(b)), 1).  Each element is evaluated once.  The array exists until the end of the full
   expression (in C, of the block). */
#define TG_SCALAR tg_make_shape(0, NULL)
#ifdef __cplusplus
} /* the template has C++ linkage */
template <class... Size> inline tg_shape tgi_shape_of_list(Size... size)
{
    static_assert(sizeof...(size) <= TG_MAX_DIMS, "a shape has at most 8 dims");
    const int64_t dims[] = {static_cast<int64_t>(size)...};
    return tg_make_shape(static_cast<int>(sizeof...(size)), dims);
}
/* The array of TG_LIST: a temporary, so it lives to the end of the full expression. */
template <size_t n> struct tgi_list {
    tg_tensor *t[n];
    tg_tensor **array() { return t; }
};
template <class... T> tgi_list<sizeof...(T)> tgi_list_type(T...);
template <size_t n> constexpr int tgi_list_count(const tgi_list<n> *) { return static_cast<int>(n); }
extern "C" {
#define TG_SHAPE(...) tgi_shape_of_list(__VA_ARGS__)
#define TG_LIST(...)                                                                                                   \
    (decltype(tgi_list_type(__VA_ARGS__)){{__VA_ARGS__}}.array()),                                                     \
        tgi_list_count(static_cast<decltype(tgi_list_type(__VA_ARGS__)) *>(nullptr))
#else
#define TGI_I64_1(a) (int64_t)(a)
#define TGI_I64_2(a, ...) (int64_t)(a), TGI_I64_1(__VA_ARGS__)
#define TGI_I64_3(a, ...) (int64_t)(a), TGI_I64_2(__VA_ARGS__)
#define TGI_I64_4(a, ...) (int64_t)(a), TGI_I64_3(__VA_ARGS__)
#define TGI_I64_5(a, ...) (int64_t)(a), TGI_I64_4(__VA_ARGS__)
#define TGI_I64_6(a, ...) (int64_t)(a), TGI_I64_5(__VA_ARGS__)
#define TGI_I64_7(a, ...) (int64_t)(a), TGI_I64_6(__VA_ARGS__)
#define TGI_I64_8(a, ...) (int64_t)(a), TGI_I64_7(__VA_ARGS__)
#define TGI_I64_9(...) sizeof(char[-1]) /* a shape has at most 8 dims */
#define TGI_PICK(a, b, c, d, e, f, g, h, i, j, k, l, name, ...) name
#define TGI_SHAPE_LIST(...)                                                                                            \
    TGI_PICK(__VA_ARGS__, TGI_I64_9, TGI_I64_9, TGI_I64_9, TGI_I64_9, TGI_I64_8, TGI_I64_7, TGI_I64_6, TGI_I64_5,      \
             TGI_I64_4, TGI_I64_3, TGI_I64_2, TGI_I64_1, )(__VA_ARGS__)
#define TG_SHAPE(...)                                                                                                  \
    tg_make_shape((int)(sizeof((const int64_t[]){TGI_SHAPE_LIST(__VA_ARGS__)}) / sizeof(int64_t)),                     \
                  (const int64_t[]){TGI_SHAPE_LIST(__VA_ARGS__)})
#define TG_LIST(...) ((tg_tensor *[]){__VA_ARGS__}), (int)(sizeof((tg_tensor *[]){__VA_ARGS__}) / sizeof(tg_tensor *))
#endif
#define TG_DIMS(...) TG_SHAPE(__VA_ARGS__)
#define TG_INDEX(...) TG_SHAPE(__VA_ARGS__)

/* TG_SCOPE; opens a scope that ends where the enclosing block ends, however control leaves it: at the brace, or by
   break, continue, return or goto (not longjmp).  Tensors made meanwhile then end, except those that tg_keep, tg_retain
   or tg_param took out.  A function that returns a tensor: { TG_SCOPE; ... return tg_keep(y); }.  It needs C++, gcc or
   clang.  TG_SCOPE is defined below.

   The plain form works with every compiler: tg_mark m = tg_scope_begin(); ... tg_scope_end(m); */
typedef struct { uint64_t serial; } tg_mark; /* which scope tg_scope_begin has opened; 0: it failed */
TG_API tg_mark tg_scope_begin(void);         /* opens a scope */
TG_API void tg_scope_end(tg_mark mark);      /* ends it, and scopes inside it that are open.  Errors: it has ended */
/* How TG_SCOPE, TG_NO_GRAD and TG_ENABLE_GRAD work: a variable is initialised by tgi_scope_guard_open, and at the
   end of the block its cleanup, tgi_scope_guard_close, ends the scope or restores the mode. */
typedef struct { const void *self; uint64_t serial; } tgi_scope_guard;
TG_API tgi_scope_guard tgi_scope_guard_open(void *self, int kind, int value);
TG_API void tgi_scope_guard_close(tgi_scope_guard *guard);
enum { TGI_GUARD_SCOPE, TGI_GUARD_GRAD };
#define TGI_PASTE_(a, b) a##b
#define TGI_PASTE(a, b) TGI_PASTE_(a, b)
#ifdef __COUNTER__
#define TGI_UNIQUE(name) TGI_PASTE(name, __COUNTER__)
#else
#define TGI_UNIQUE(name) TGI_PASTE(name, __LINE__)
#endif
#ifdef __cplusplus
}
struct tgi_block {
    tgi_scope_guard guard;
    tgi_block(int kind, int value) : guard(tgi_scope_guard_open(&guard, kind, value)) {}
    ~tgi_block() { tgi_scope_guard_close(&guard); }

  private:
    tgi_block(const tgi_block &);
    tgi_block &operator=(const tgi_block &);
};
extern "C" {
#define TGI_SCOPE_GUARD_(name, kind, value) tgi_block name(kind, value)
#elif defined(__GNUC__) || defined(__clang__)
#define TGI_SCOPE_GUARD_(name, kind, value)                                                \
    __attribute__((__cleanup__(tgi_scope_guard_close), __unused__)) tgi_scope_guard name = \
        tgi_scope_guard_open(&name, kind, value)
#else
#define TGI_SCOPE_GUARD_(name, kind, value) \
    char this_compiler_has_no_cleanup_attribute_use_tg_scope_begin_and_tg_scope_end_instead[-1]
#endif
#define TGI_SCOPE_GUARD(name, kind, value) TGI_SCOPE_GUARD_(name, kind, value)
#define TG_SCOPE TGI_SCOPE_GUARD(TGI_UNIQUE(tgi_scope_), TGI_GUARD_SCOPE, 0) /* opens a scope: see above */

/* Lifetime of one tensor.  These return t, but for tg_release and tg_drop, which accept NULL and do nothing then.
     tg_keep     moves t from the innermost scope to the one outside it: for the result of a function.  If there is
                 none outside, t lives until tg_release.  A tensor of another scope, or of none, stays where it is.
     tg_retain   adds a reference of yours: t lives at least until you give it up by tg_release.
     tg_release  gives up one reference of tg_retain, tg_param or tg_share.  A tensor made outside of every scope has
                 one such reference from the start.  The tensor ends with its last reference.  Errors: t has none.
     tg_drop     ends a temporary of the innermost scope early.  It does nothing to other tensors, so tg_drop(tg_to(x,
                 device)) is right even where tg_to has returned x itself.
     tg_share    allows other threads to use t (weights, data); called by the thread that made t.  t is then the
                 caller's until tg_release, as after tg_param, which it may follow without a further tg_release.  No
                 thread may write t while another uses it; a backward that adds to t's .grad writes .grad, so threads
                 that share weights call tg_gradients.  Errors: a view, or a computed tensor that requires grad. */
TG_API tg_tensor *tg_keep(tg_tensor *t);
TG_API tg_tensor *tg_retain(tg_tensor *t);
TG_API void tg_release(tg_tensor *t);
TG_API void tg_drop(tg_tensor *t);
TG_API tg_tensor *tg_share(tg_tensor *t);

/* Ends the scopes of the calling thread and its tensors in no scope, and frees its cache.  Call it before a worker
   thread ends.  What you own (tg_param, tg_retain, tg_share, optimizers) it does not free: release it before.  The
   thread may use the library again after.  Errors: called from a hook or another callback. */
TG_API tg_status tg_thread_end(void);
/* tg_thread_end for the last thread, at the end of the program.  Errors: other threads still have state. */
TG_API tg_status tg_shutdown(void);

/* New tensors, filled.  Without a suffix they have the default dtype and are on the default device; _on takes both, and
   _like has shape, dtype and device of t (neither its history nor requires_grad).  Errors: a negative size; a value
   that an integer dtype cannot hold, here and wherever a number is written into a tensor (TG_BOOL takes any: true
   unless 0). */
TG_API tg_tensor *tg_zeros(tg_shape shape);                                           /* zeros.  torch.zeros */
TG_API tg_tensor *tg_ones(tg_shape shape);                                            /* ones.  torch.ones */
TG_API tg_tensor *tg_full(tg_shape shape, double value);                              /* value.  torch.full */
TG_API tg_tensor *tg_empty(tg_shape shape);                                           /* undefined.  torch.empty */
TG_API tg_tensor *tg_scalar(double value);                                            /* 0-dim.  torch.tensor(value) */
TG_API tg_tensor *tg_zeros_on(tg_shape shape, tg_dtype dtype, tg_device device);      /* zeros */
TG_API tg_tensor *tg_ones_on(tg_shape shape, tg_dtype dtype, tg_device device);       /* ones */
TG_API tg_tensor *tg_full_on(tg_shape shape, double value, tg_dtype dtype, tg_device device); /* value */
TG_API tg_tensor *tg_empty_on(tg_shape shape, tg_dtype dtype, tg_device device);      /* undefined elements */
TG_API tg_tensor *tg_zeros_like(tg_tensor *t);                                        /* zeros.  torch.zeros_like */
TG_API tg_tensor *tg_ones_like(tg_tensor *t);                                         /* ones.  torch.ones_like */
TG_API tg_tensor *tg_full_like(tg_tensor *t, double value);                           /* value.  torch.full_like */
TG_API tg_tensor *tg_empty_like(tg_tensor *t);                                        /* undefined.  torch.empty_like */

/* New 1-dim tensors of numbers at equal steps, and the identity.  All but tg_arange_on have the default dtype, also for
   whole numbers, where PyTorch's arange makes i64. */
TG_API tg_tensor *tg_arange(double start, double end, double step); /* start, start + step, ... < end.  torch.arange */
/* tg_arange_on is tg_arange in a dtype, on a device.  Errors of both: step is 0, or leads away from end. */
TG_API tg_tensor *tg_arange_on(double start, double end, double step, tg_dtype dtype, tg_device device);
TG_API tg_tensor *tg_linspace(double a, double b, int64_t n);       /* n numbers from a to b.  torch.linspace */
TG_API tg_tensor *tg_eye(int64_t n);                                /* identity [n, n].  torch.eye */

/* New tensors with a copy of host memory: the elements of `shape` in row-major order.  torch.tensor */
TG_API tg_tensor *tg_from(const void *data, tg_shape shape, tg_dtype dtype); /* elements of dtype, default device */
TG_API tg_tensor *tg_from_on(const void *data, tg_shape shape, tg_dtype dtype, tg_device device); /* on a device */
TG_API tg_tensor *tg_from_f32(const float *data, tg_shape shape);            /* tg_from with TG_F32 */
TG_API tg_tensor *tg_from_f64(const double *data, tg_shape shape);           /* tg_from with TG_F64 */
TG_API tg_tensor *tg_from_i64(const int64_t *data, tg_shape shape);          /* tg_from with TG_I64 */

/* A CPU tensor that uses host memory of yours, row-major, without a copy.  data must stay valid while the tensor or a
   view of it exists; then deleter(user) is called once, if not NULL.  A call that fails does not call it.
   torch.from_numpy */
TG_API tg_tensor *tg_wrap(void *data, tg_shape shape, tg_dtype dtype, void (*deleter)(void *user), void *user);

/* Sets the device for functions that are given none.  Per thread; the CPU at first.  torch.set_default_device */
TG_API tg_status tg_set_default_device(tg_device device);

/* What a tensor is.  dim counts from the end when negative. */
TG_API int tg_ndim(const tg_tensor *t);                   /* number of dims; 0 on error.  torch.Tensor.dim */
TG_API int64_t tg_dim(const tg_tensor *t, int dim);       /* size of one dim; 0 on error.  torch.Tensor.size */
TG_API int64_t tg_stride(const tg_tensor *t, int dim);    /* its stride in elements; 0 on error.  torch.Tensor.stride */
TG_API int64_t tg_numel(const tg_tensor *t);              /* number of elements; 0 on error.  torch.numel */
TG_API tg_shape tg_shape_of(const tg_tensor *t);          /* all sizes; ndim 0 on error.  torch.Tensor.shape */
TG_API tg_dtype tg_dtype_of(const tg_tensor *t);          /* dtype; TG_F32 on error.  torch.Tensor.dtype */
TG_API tg_device tg_device_of(const tg_tensor *t);        /* device; the CPU on error.  torch.Tensor.device */
TG_API bool tg_is_cuda(const tg_tensor *t);               /* on a GPU.  torch.Tensor.is_cuda */
TG_API bool tg_is_contiguous(const tg_tensor *t);         /* row-major without gaps.  torch.Tensor.is_contiguous */

TG_API tg_status tg_set_name(tg_tensor *t, const char *name); /* a name for messages and prints; copied; NULL: none */
TG_API const char *tg_name(const tg_tensor *t);               /* that name, owned by t; "" when there is none */

/* Elements one by one, from any device; they wait for the device.  An index has one number per dim, negative ones
   counting from the end.  tg_set, under WRITE, sets one. */
TG_API double tg_item(tg_tensor *t);                 /* the only element of t; NaN on error.  torch.Tensor.item */
TG_API int64_t tg_item_i64(tg_tensor *t);            /* the same as int64_t, exactly; 0 on error */
TG_API double tg_get(tg_tensor *t, tg_shape index);  /* t[index]: tg_get(t, TG_INDEX(i, j)); NaN on error */

/* Pointers to the first element; elements lie at the strides of tg_stride.  Valid as long as t.  The typed forms return
   NULL, with an error, unless t is a contiguous CPU tensor of that dtype.  After writing through a pointer call
   tg_touch_(t), or backward may silently use the changed values. */
TG_API void *tg_data(tg_tensor *t);          /* any dtype; on a GPU a device pointer, not for the host */
TG_API float *tg_data_f32(tg_tensor *t);     /* of f32 */
TG_API double *tg_data_f64(tg_tensor *t);    /* of f64 */
TG_API int64_t *tg_data_i64(tg_tensor *t);   /* of i64 */
TG_API tg_tensor *tg_touch_(tg_tensor *t);   /* counts a write through a pointer; of any tensor; returns t */

/* Copies the elements, row-major, to host memory at dst, from any device and layout; waits for the device.  Errors:
   bytes is not exactly tg_numel(t) * tg_dtype_size(tg_dtype_of(t)). */
TG_API tg_status tg_copy_out(tg_tensor *t, void *dst, size_t bytes);

/* ======== @@TAPE ================================================================================================== */

/* Makes t a parameter and returns it: a leaf that requires grad and belongs to you, not to a scope, until you call
   tg_release(t) once.  Errors: t is not a leaf, or not floating point.  torch.nn.Parameter */
TG_API tg_tensor *tg_param(tg_tensor *t);

/* requires_grad says whether ops on t are recorded.  A leaf is a tensor that no recorded op has made.
   tg_set_requires_grad switches it on or off and returns t, which stays in its scope.  Errors: on for integers, off for
   a non-leaf.  torch.Tensor.requires_grad_ */
TG_API tg_tensor *tg_set_requires_grad(tg_tensor *t, bool on);
TG_API bool tg_requires_grad(const tg_tensor *t); /* whether t requires grad.  torch.Tensor.requires_grad */
TG_API bool tg_is_leaf(const tg_tensor *t);       /* whether t is a leaf.  torch.Tensor.is_leaf */

/* Grad mode: whether ops are recorded at all, per thread; on at first.  TG_NO_GRAD; switches it off until the end of
   the enclosing block, TG_ENABLE_GRAD; on.  torch.no_grad, torch.enable_grad */
#define TG_NO_GRAD TGI_SCOPE_GUARD(TGI_UNIQUE(tgi_no_grad_), TGI_GUARD_GRAD, 0)
#define TG_ENABLE_GRAD TGI_SCOPE_GUARD(TGI_UNIQUE(tgi_enable_grad_), TGI_GUARD_GRAD, 1)
TG_API bool tg_is_grad_enabled(void);     /* grad mode now.  torch.is_grad_enabled */
/* Sets grad mode until the innermost TG_SCOPE, TG_NO_GRAD or TG_ENABLE_GRAD ends, for good if none is open; returns
   what it was.  torch.set_grad_enabled */
TG_API bool tg_set_grad_enabled(bool on);

/* Flags for tg_backward_ex, tg_backward_begin and tg_gradients, to be combined by |. */
enum {
    TG_RETAIN_GRAPH = 1,     /* do not free what the graph has saved, so that backward can run through it again */
    TG_CREATE_GRAPH = 2,     /* record backward itself, for gradients of gradients; implies TG_RETAIN_GRAPH */
    TG_ALLOW_UNUSED = 4,     /* tg_gradients: NULL for an input that no output depends on, instead of an error */
    TG_MATERIALIZE_GRADS = 8 /* tg_gradients: zeros for such an input */
};

/* Backward adds d roots / d leaf to the .grad of every leaf that requires grad and that the roots depend on.  It frees
   what the graph has saved: a second backward through the same graph is an error, unless the first one had
   TG_RETAIN_GRAPH or nothing was saved.  Errors: a root does not require grad; it has several elements and no gradient
   is given; a saved tensor was modified in place.  If it fails, every .grad is as it was before, and the graph may be
   freed in part, which the message says.  (A post-accumulate hook is called after that: its error changes no .grad.) */
TG_API tg_status tg_backward(tg_tensor *root); /* root has one element, as a loss.  torch.Tensor.backward */
/* Several roots.  grads: one per root, of its shape; NULL, or a NULL entry, stands for 1 for a root with one element.
   torch.autograd.backward */
TG_API tg_status tg_backward_ex(tg_tensor *const *roots, int n, tg_tensor *const *grads, int flags);

/* results[0..m) = d outputs / d inputs, without a change of any .grad.  inputs may be any tensors of the graph that
   require grad; grad_outputs is as grads above.  The results are new tensors of the calling scope.  All results are
   NULL on error.  torch.autograd.grad */
TG_API tg_status tg_gradients(tg_tensor *const *outputs, int n, tg_tensor *const *grad_outputs,
                              tg_tensor *const *inputs, int m, tg_tensor **results, int flags);

/* The accumulated gradient of a leaf, of t's shape, dtype and device; NULL when there is none (no error).  It belongs
   to t: do not release it, and tg_retain it if you need it after the next tg_optim_zero_grad or tg_set_grad, or after
   t.  A later backward may add to it in place.  Of a non-leaf it is NULL, with a warning, unless tg_retain_grad was
   called.  torch.Tensor.grad */
TG_API tg_tensor *tg_grad(tg_tensor *t);
/* Replaces .grad; NULL removes it.  t adds a reference to g, which stays yours as well.  Errors: g has not t's shape,
   dtype and device. */
TG_API tg_status tg_set_grad(tg_tensor *t, tg_tensor *g);

/* A new tensor without history that does not require grad, and shares storage and version with t: a write to one is a
   write to the other.  torch.Tensor.detach */
TG_API tg_tensor *tg_detach(tg_tensor *t);

/* Stores .grad for a non-leaf too, when backward comes to it; call it before backward.  No effect on a leaf.  Returns
   t.  Errors: t does not require grad.  torch.Tensor.retain_grad */
TG_API tg_tensor *tg_retain_grad(tg_tensor *t);

/* A hook is called in backward with the complete gradient of t, before it is used.  It returns the tensor to use
   instead, of the same shape, dtype and device; NULL, or grad itself, keeps grad; an error inside fails backward.  What
   it makes ends when it returns, except its result and what it retains; it must not write to grad.  Hooks of one tensor
   run in the order of their registration, and .grad of tg_retain_grad is stored after them.

   A hook, like every function that is passed to the library (tg_custom, tg_checkpoint, tg_gradcheck), may call the
   library, but must end only scopes that it has opened, all of those, and not call tg_thread_end or tg_shutdown; else
   the call around it fails. */
typedef tg_tensor *(*tg_hook_fn)(tg_tensor *grad, void *user);
/* A post-accumulate hook: called after backward has updated leaf's .grad, which stays even if it raises an error. */
typedef void (*tg_post_hook_fn)(tg_tensor *leaf, void *user);
/* Registers a hook for t; returns its number, for tg_unhook, or 0 on error.  Errors: t does not require grad.
   torch.Tensor.register_hook */
TG_API int tg_hook(tg_tensor *t, tg_hook_fn hook, void *user);
/* Registers a post-accumulate hook; returns its number, or 0 on error.  Errors: t is not a leaf that requires grad.
   torch.Tensor.register_post_accumulate_grad_hook */
TG_API int tg_hook_post_accumulate(tg_tensor *t, tg_post_hook_fn hook, void *user);
/* Removes the hook of t with this number, of either kind. */
TG_API tg_status tg_unhook(tg_tensor *t, int hook);

/* How often t's storage was written in place so far: by ops, and as counted by tg_touch_.  Views and tg_detach share
   it.  Backward compares it with the count when a tensor was saved.  torch.Tensor._version */
TG_API int64_t tg_version_of(const tg_tensor *t);

/* A backward run that is executed node by node: see tg_backward_begin. */
typedef struct tg_backward_run tg_backward_run;
/* What tg_backward_step has done. */
typedef struct {
    int64_t node;        /* number of the node on the tape */
    const char *op;      /* its op: "mul" */
    const char *name;    /* name of the tensor that it made, or "" */
    const char *formula; /* its rule: "a: g * b, b: g * a" */
    tg_tensor *grad;     /* gradient of its output 0; valid until the next step */
    int inputs;          /* how many inputs the node has */
} tg_step_info;

/* Backward one node at a time, for lectures and debuggers.  tg_backward_ex is tg_backward_begin, tg_backward_step until
   it returns false, tg_backward_end. */

/* Starts a run; arguments as of tg_backward_ex.  NULL on error; otherwise tg_backward_end must be called. */
TG_API tg_backward_run *tg_backward_begin(tg_tensor *const *roots, int n, tg_tensor *const *grads, int flags);
/* Runs the next node and fills *info (may be NULL).  False when no node is left, or on error. */
TG_API bool tg_backward_step(tg_backward_run *run, tg_step_info *info);
/* Adds the gradients to the leaves if all nodes have run; if nodes are left, abandons the run, which is no error.
   Frees run in any case. */
TG_API tg_status tg_backward_end(tg_backward_run *run);

/* Context of one call of a custom function: what it saves for backward. */
typedef struct tg_ctx tg_ctx;
/* forward: computes out[0..n_out) from in[0..n_in).  Returns TG_OK, or the status of a failure. */
typedef tg_status (*tg_custom_forward)(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out);
/* backward: computes grad_in[0..n_in), each of its input's shape or NULL for no gradient, from grad_out[0..n_out). */
typedef tg_status (*tg_custom_backward)(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in);

/* Calls your own differentiable function.  forward is run at once, unrecorded, and saves what backward needs by
   tg_save; backward is run when a backward comes to it, and gets zeros for an output that has no gradient.  A backward
   that consists of ops can be differentiated again.  What the two store in out and grad_in may be any tensors, new ones
   of theirs or not; the library takes a copy where it must.  The n_out results in out[] are new tensors of the calling
   scope, NULL on error.  user is what tg_ctx_user returns; it must stay valid while the graph exists.  name is for
   messages.  torch.autograd.Function */
TG_API tg_status tg_custom(const char *name, tg_custom_forward forward, tg_custom_backward backward, void *user,
                           tg_tensor *const *in, int n_in, tg_tensor **out, int n_out);
/* tg_custom that calls free_user(user) when the graph no longer needs it; not if the call fails. */
TG_API tg_status tg_custom_ex(const char *name, tg_custom_forward forward, tg_custom_backward backward, void *user,
                              void (*free_user)(void *user), tg_tensor *const *in, int n_in, tg_tensor **out,
                              int n_out);

/* For use inside forward and backward of tg_custom. */
TG_API tg_status tg_save(tg_ctx *ctx, tg_tensor *t);           /* forward: saves t, as number 0, 1, ... */
TG_API tg_tensor *tg_saved(tg_ctx *ctx, int k);                /* saved tensor number k; it belongs to ctx */
TG_API void *tg_ctx_user(tg_ctx *ctx);                         /* the argument user of tg_custom */
TG_API void *tg_ctx_alloc(tg_ctx *ctx, size_t bytes);          /* memory that is freed with ctx; uninitialised */
/* forward: says that out, one of its outputs, has no gradient */
TG_API tg_status tg_mark_non_differentiable(tg_ctx *ctx, tg_tensor *out);

/* A function of n tensors, for tg_checkpoint and tg_gradcheck: returns a tensor of its scope, NULL after an error. */
typedef tg_tensor *(*tg_function)(tg_tensor *const *in, int n, void *user);
/* fn(in, n, user), computed without storing activations: backward runs fn again, with the same random numbers, and then
   goes through its graph.  fn must compute the same again, and user must stay valid while the graph exists.  Tensors
   that fn reaches through user (weights) get their gradients as those of in do.  What callbacks must not do:
   tg_hook_fn.  torch.utils.checkpoint.checkpoint */
TG_API tg_tensor *tg_checkpoint(tg_function fn, tg_tensor *const *in, int n, void *user);

/* Anomaly mode, per thread: backward fails at the first NaN and names the op whose gradient it is.
   torch.autograd.set_detect_anomaly */
TG_API void tg_set_anomaly(bool on);

/* ======== @@MOVE ================================================================================================== */

/* Flags for tg_to_ex, to be combined by |. */
enum {
    TG_NON_BLOCKING = 1, /* return before the bytes have arrived, where that is possible: see below */
    TG_COPY = 2          /* a new tensor even if nothing changes */
};
/* t on another device, in another dtype, or both: a new tensor, made by a differentiable op.  t itself is returned if
   nothing would change (without TG_COPY); t is never changed.  The strides stay if the elements fill their memory
   without gaps and overlaps, as a transposed matrix does; else the result is row-major.  A move to an integer dtype has
   no gradient.  torch.Tensor.to

   Moving a leaf that requires grad gives a non-leaf, and the gradient goes to the original.  For a parameter that is on
   the device itself, make the leaf there: tg_param(tg_to(tg_detach(t), device)).

   TG_NON_BLOCKING: a move from page-locked memory (tg_pin_memory), contiguous and of the same dtype, to a GPU returns
   at once; do not write t through a pointer before tg_synchronize.  A move from a GPU to the CPU returns at once, too,
   with a result in page-locked memory; the first call that uses it waits for it.  Other moves ignore the flag. */
TG_API tg_tensor *tg_to(tg_tensor *t, tg_device device);         /* to a device; the dtype stays */
TG_API tg_tensor *tg_to_dtype(tg_tensor *t, tg_dtype dtype);     /* to a dtype; the device stays */
TG_API tg_tensor *tg_to_like(tg_tensor *t, tg_tensor *other);    /* to device and dtype of other */
TG_API tg_tensor *tg_to_ex(tg_tensor *t, tg_device device, tg_dtype dtype, int flags); /* to both, with flags */
TG_API tg_tensor *tg_cuda(tg_tensor *t);                         /* to the current GPU.  torch.Tensor.cuda */
TG_API tg_tensor *tg_cpu(tg_tensor *t);                          /* to the CPU.  torch.Tensor.cpu */

/* Replaces each list[i] by tg_to(list[i], device); on error all are unchanged.  The new ones belong to the calling
   scope, the old ones stay with their owners.  A new one whose old one requires grad is a non-leaf, and its gradient
   goes to the old one. */
TG_API tg_status tg_to_all(tg_tensor **list, int n, tg_device device);

/* tg_pin_memory returns a copy of a CPU tensor in page-locked memory, from which a GPU can copy asynchronously; t
   itself if it is there already.  A differentiable op.  Such memory is kept for reuse until the thread ends.  Errors: t
   is not on the CPU, or there is no GPU.  torch.Tensor.pin_memory */
TG_API tg_tensor *tg_pin_memory(tg_tensor *t);
TG_API bool tg_is_pinned(const tg_tensor *t); /* in page-locked memory.  torch.Tensor.is_pinned */

/* ======== @@OPS ===================================================================================================

   Every op returns a new tensor of the calling scope and is differentiable, unless its comment says otherwise.

   Shapes   Operands broadcast as in NumPy and PyTorch: dims are aligned at the last one, and a dim of size 1, or one
            that is missing, is repeated.  A dim argument counts from the end when negative.  0-dim tensors and tensors
            without elements are ordinary operands; where an op has no value for zero elements, its comment says so.
   Dtypes   Operands that have dims are promoted by tg_promote_types.  A 0-dim operand changes the dtype only if it is
            of a higher kind (bool < integer < float): f16 [2] with f64 [] gives f16, i32 [2] with f32 [] gives f32.
   Scalars  A number beside an integer tensor must be integral, in comparisons, tg_clamp and tg_masked_fill too, and the
            dtype stays (bool becomes i64).  In tg_div_scalar and tg_pow_scalar it may have a fraction, which gives the
            default dtype.
   Devices  An op runs on the device of its operands.  Operands on different devices are an error that says which tg_to
            is missing.  The exceptions are PyTorch's: elementwise ops take one 0-dim CPU tensor beside tensors of
            another device (tg_where any number of them), and tg_index takes indices from the CPU.
   In place A name that ends in _ writes to its first operand and returns it.  If backward needs the old value, the
            write succeeds and backward fails.  Errors:
              the operand is a leaf that requires grad, or a view of one, in grad mode: use TG_NO_GRAD;
              several of its elements share memory (tg_expand);
              the result has a larger shape, or a dtype of a higher kind;
              it is a view of a tensor that requires grad, and was made by tg_split, tg_chunk or tg_unbind, or under
              TG_NO_GRAD.

   F. stands for torch.nn.functional.  Where a comment names no PyTorch function, the counterpart is torch's function of
   the same name without tg_. */

/* -------- @@ELEMENTWISE ------------------------------------------------------------------------------------------- */

/* Two operands, elementwise. */
TG_API tg_tensor *tg_add(tg_tensor *a, tg_tensor *b);     /* a + b.  torch.add */
TG_API tg_tensor *tg_sub(tg_tensor *a, tg_tensor *b);     /* a - b; not of two bools.  torch.sub */
TG_API tg_tensor *tg_mul(tg_tensor *a, tg_tensor *b);     /* a * b.  torch.mul */
TG_API tg_tensor *tg_div(tg_tensor *a, tg_tensor *b);     /* a / b; the default dtype for integers.  torch.div */
TG_API tg_tensor *tg_pow(tg_tensor *a, tg_tensor *b);     /* a to the power b.  torch.pow */
TG_API tg_tensor *tg_maximum(tg_tensor *a, tg_tensor *b); /* the larger; NaN if one is; equal: half the gradient each */
TG_API tg_tensor *tg_minimum(tg_tensor *a, tg_tensor *b); /* the smaller; otherwise as tg_maximum.  torch.minimum */
TG_API tg_tensor *tg_atan2(tg_tensor *a, tg_tensor *b);   /* the angle of the point (x, y) = (b, a).  torch.atan2 */
TG_API tg_tensor *tg_add_(tg_tensor *a, tg_tensor *b);    /* a = a + b.  torch.Tensor.add_ */
TG_API tg_tensor *tg_sub_(tg_tensor *a, tg_tensor *b);    /* a = a - b.  torch.Tensor.sub_ */
TG_API tg_tensor *tg_mul_(tg_tensor *a, tg_tensor *b);    /* a = a * b.  torch.Tensor.mul_ */
TG_API tg_tensor *tg_div_(tg_tensor *a, tg_tensor *b);    /* a = a / b; a must be floating point.  torch.Tensor.div_ */
TG_API tg_tensor *tg_pow_(tg_tensor *a, tg_tensor *b);    /* a = a to the power b.  torch.Tensor.pow_ */

/* A tensor and a number, elementwise: PyTorch's functions of the names without _scalar. */
TG_API tg_tensor *tg_add_scalar(tg_tensor *x, double s);  /* x + s.  torch.add */
TG_API tg_tensor *tg_sub_scalar(tg_tensor *x, double s);  /* x - s.  torch.sub */
TG_API tg_tensor *tg_rsub_scalar(tg_tensor *x, double s); /* s - x.  torch.rsub */
TG_API tg_tensor *tg_mul_scalar(tg_tensor *x, double s);  /* x * s.  torch.mul */
TG_API tg_tensor *tg_div_scalar(tg_tensor *x, double s);  /* x / s; the default dtype for integers.  torch.div */
TG_API tg_tensor *tg_pow_scalar(tg_tensor *x, double s);  /* to the power s.  Errors: s < 0 for integers.  torch.pow */
TG_API tg_tensor *tg_add_scalar_(tg_tensor *x, double s); /* x = x + s */
TG_API tg_tensor *tg_sub_scalar_(tg_tensor *x, double s); /* x = x - s */
TG_API tg_tensor *tg_mul_scalar_(tg_tensor *x, double s); /* x = x * s */
TG_API tg_tensor *tg_div_scalar_(tg_tensor *x, double s); /* x = x / s; x must be floating point */
TG_API tg_tensor *tg_pow_scalar_(tg_tensor *x, double s); /* x = x to the power s */

/* Comparison and logic, elementwise.  The result is bool and has no gradient.  Comparison with NaN is false, except by
   tg_ne.  In the logical functions every number but 0 is true. */
TG_API tg_tensor *tg_eq(tg_tensor *a, tg_tensor *b);          /* a == b.  torch.eq */
TG_API tg_tensor *tg_ne(tg_tensor *a, tg_tensor *b);          /* a != b.  torch.ne */
TG_API tg_tensor *tg_lt(tg_tensor *a, tg_tensor *b);          /* a < b.  torch.lt */
TG_API tg_tensor *tg_le(tg_tensor *a, tg_tensor *b);          /* a <= b.  torch.le */
TG_API tg_tensor *tg_gt(tg_tensor *a, tg_tensor *b);          /* a > b.  torch.gt */
TG_API tg_tensor *tg_ge(tg_tensor *a, tg_tensor *b);          /* a >= b.  torch.ge */
TG_API tg_tensor *tg_eq_scalar(tg_tensor *x, double s);       /* x == s */
TG_API tg_tensor *tg_ne_scalar(tg_tensor *x, double s);       /* x != s */
TG_API tg_tensor *tg_lt_scalar(tg_tensor *x, double s);       /* x < s */
TG_API tg_tensor *tg_le_scalar(tg_tensor *x, double s);       /* x <= s */
TG_API tg_tensor *tg_gt_scalar(tg_tensor *x, double s);       /* x > s */
TG_API tg_tensor *tg_ge_scalar(tg_tensor *x, double s);       /* x >= s */
TG_API tg_tensor *tg_logical_and(tg_tensor *a, tg_tensor *b); /* both true.  torch.logical_and */
TG_API tg_tensor *tg_logical_or(tg_tensor *a, tg_tensor *b);  /* one or both true.  torch.logical_or */
TG_API tg_tensor *tg_logical_xor(tg_tensor *a, tg_tensor *b); /* just one true.  torch.logical_xor */
TG_API tg_tensor *tg_logical_not(tg_tensor *x);               /* x is false.  torch.logical_not */
TG_API tg_tensor *tg_isnan(tg_tensor *x);                     /* x is NaN.  torch.isnan */
TG_API tg_tensor *tg_isinf(tg_tensor *x);                     /* x is infinite.  torch.isinf */
TG_API tg_tensor *tg_isfinite(tg_tensor *x);                  /* x is neither.  torch.isfinite */

/* Functions of one tensor, elementwise: torch's of the same name.  Integers give the default dtype, except with tg_neg,
   tg_abs, tg_sign, tg_square, tg_floor, tg_ceil, tg_round and tg_trunc, which keep it. */
TG_API tg_tensor *tg_neg(tg_tensor *x);        /* -x; not of bool */
TG_API tg_tensor *tg_abs(tg_tensor *x);        /* |x|; gradient 0 at 0 */
TG_API tg_tensor *tg_sign(tg_tensor *x);       /* -1, 0 or 1; 0 for NaN; gradient 0 */
TG_API tg_tensor *tg_square(tg_tensor *x);     /* x * x */
TG_API tg_tensor *tg_exp(tg_tensor *x);        /* e to the power x */
TG_API tg_tensor *tg_expm1(tg_tensor *x);      /* exp(x) - 1, exact near 0 */
TG_API tg_tensor *tg_log(tg_tensor *x);        /* natural logarithm */
TG_API tg_tensor *tg_log2(tg_tensor *x);       /* logarithm to base 2 */
TG_API tg_tensor *tg_log10(tg_tensor *x);      /* logarithm to base 10 */
TG_API tg_tensor *tg_log1p(tg_tensor *x);      /* log(1 + x), exact near 0 */
TG_API tg_tensor *tg_sqrt(tg_tensor *x);       /* square root */
TG_API tg_tensor *tg_rsqrt(tg_tensor *x);      /* 1 / sqrt(x) */
TG_API tg_tensor *tg_reciprocal(tg_tensor *x); /* 1 / x */
TG_API tg_tensor *tg_sin(tg_tensor *x);        /* sine */
TG_API tg_tensor *tg_cos(tg_tensor *x);        /* cosine */
TG_API tg_tensor *tg_tan(tg_tensor *x);        /* tangent */
TG_API tg_tensor *tg_asin(tg_tensor *x);       /* inverse sine */
TG_API tg_tensor *tg_acos(tg_tensor *x);       /* inverse cosine */
TG_API tg_tensor *tg_atan(tg_tensor *x);       /* inverse tangent */
TG_API tg_tensor *tg_sinh(tg_tensor *x);       /* hyperbolic sine */
TG_API tg_tensor *tg_cosh(tg_tensor *x);       /* hyperbolic cosine */
TG_API tg_tensor *tg_tanh(tg_tensor *x);       /* hyperbolic tangent */
TG_API tg_tensor *tg_erf(tg_tensor *x);        /* error function */
TG_API tg_tensor *tg_floor(tg_tensor *x);      /* rounded down; gradient 0 */
TG_API tg_tensor *tg_ceil(tg_tensor *x);       /* rounded up; gradient 0 */
TG_API tg_tensor *tg_round(tg_tensor *x);      /* to the nearest integer, half to even; gradient 0 */
TG_API tg_tensor *tg_trunc(tg_tensor *x);      /* rounded towards 0; gradient 0 */

/* The same in place, x = f(x).  x must be floating point where integers would give the default dtype. */
TG_API tg_tensor *tg_neg_(tg_tensor *x);        /* x = tg_neg(x).  torch.Tensor.neg_ */
TG_API tg_tensor *tg_abs_(tg_tensor *x);        /* x = tg_abs(x).  torch.Tensor.abs_ */
TG_API tg_tensor *tg_sign_(tg_tensor *x);       /* x = tg_sign(x).  torch.Tensor.sign_ */
TG_API tg_tensor *tg_square_(tg_tensor *x);     /* x = tg_square(x).  torch.Tensor.square_ */
TG_API tg_tensor *tg_exp_(tg_tensor *x);        /* x = tg_exp(x).  torch.Tensor.exp_ */
TG_API tg_tensor *tg_expm1_(tg_tensor *x);      /* x = tg_expm1(x).  torch.Tensor.expm1_ */
TG_API tg_tensor *tg_log_(tg_tensor *x);        /* x = tg_log(x).  torch.Tensor.log_ */
TG_API tg_tensor *tg_log2_(tg_tensor *x);       /* x = tg_log2(x).  torch.Tensor.log2_ */
TG_API tg_tensor *tg_log10_(tg_tensor *x);      /* x = tg_log10(x).  torch.Tensor.log10_ */
TG_API tg_tensor *tg_log1p_(tg_tensor *x);      /* x = tg_log1p(x).  torch.Tensor.log1p_ */
TG_API tg_tensor *tg_sqrt_(tg_tensor *x);       /* x = tg_sqrt(x).  torch.Tensor.sqrt_ */
TG_API tg_tensor *tg_rsqrt_(tg_tensor *x);      /* x = tg_rsqrt(x).  torch.Tensor.rsqrt_ */
TG_API tg_tensor *tg_reciprocal_(tg_tensor *x); /* x = tg_reciprocal(x).  torch.Tensor.reciprocal_ */
TG_API tg_tensor *tg_sin_(tg_tensor *x);        /* x = tg_sin(x).  torch.Tensor.sin_ */
TG_API tg_tensor *tg_cos_(tg_tensor *x);        /* x = tg_cos(x).  torch.Tensor.cos_ */
TG_API tg_tensor *tg_tan_(tg_tensor *x);        /* x = tg_tan(x).  torch.Tensor.tan_ */
TG_API tg_tensor *tg_asin_(tg_tensor *x);       /* x = tg_asin(x).  torch.Tensor.asin_ */
TG_API tg_tensor *tg_acos_(tg_tensor *x);       /* x = tg_acos(x).  torch.Tensor.acos_ */
TG_API tg_tensor *tg_atan_(tg_tensor *x);       /* x = tg_atan(x).  torch.Tensor.atan_ */
TG_API tg_tensor *tg_sinh_(tg_tensor *x);       /* x = tg_sinh(x).  torch.Tensor.sinh_ */
TG_API tg_tensor *tg_cosh_(tg_tensor *x);       /* x = tg_cosh(x).  torch.Tensor.cosh_ */
TG_API tg_tensor *tg_tanh_(tg_tensor *x);       /* x = tg_tanh(x).  torch.Tensor.tanh_ */
TG_API tg_tensor *tg_erf_(tg_tensor *x);        /* x = tg_erf(x).  torch.Tensor.erf_ */
TG_API tg_tensor *tg_floor_(tg_tensor *x);      /* x = tg_floor(x).  torch.Tensor.floor_ */
TG_API tg_tensor *tg_ceil_(tg_tensor *x);       /* x = tg_ceil(x).  torch.Tensor.ceil_ */
TG_API tg_tensor *tg_round_(tg_tensor *x);      /* x = tg_round(x).  torch.Tensor.round_ */
TG_API tg_tensor *tg_trunc_(tg_tensor *x);      /* x = tg_trunc(x).  torch.Tensor.trunc_ */
TG_API tg_tensor *tg_relu_(tg_tensor *x);       /* x = tg_relu(x).  torch.relu_ */
TG_API tg_tensor *tg_sigmoid_(tg_tensor *x);    /* x = tg_sigmoid(x).  torch.Tensor.sigmoid_ */
TG_API tg_tensor *tg_silu_(tg_tensor *x);       /* x = tg_silu(x).  F.silu(x, inplace=True) */
TG_API tg_tensor *tg_logsigmoid_(tg_tensor *x); /* x = tg_logsigmoid(x).  F.logsigmoid, in place */

/* Activations, elementwise: torch.nn.functional's of the same name.  Integers give the default dtype (not tg_relu). */
TG_API tg_tensor *tg_relu(tg_tensor *x);                                /* max(x, 0); gradient 0 at 0 */
TG_API tg_tensor *tg_leaky_relu(tg_tensor *x, double negative_slope);   /* x if x > 0, else negative_slope * x */
TG_API tg_tensor *tg_elu(tg_tensor *x, double alpha);                   /* x if x > 0, else alpha * (exp(x) - 1) */
TG_API tg_tensor *tg_gelu(tg_tensor *x, bool tanh_approx);              /* x * Phi(x); true: the tanh approximation */
TG_API tg_tensor *tg_silu(tg_tensor *x);                                /* x * sigmoid(x) */
TG_API tg_tensor *tg_sigmoid(tg_tensor *x);                             /* 1 / (1 + exp(-x)) */
/* tg_softplus is log(1 + exp(beta * x)) / beta, and x where beta * x > threshold.  PyTorch's defaults are 1 and 20. */
TG_API tg_tensor *tg_softplus(tg_tensor *x, double beta, double threshold);
TG_API tg_tensor *tg_logsigmoid(tg_tensor *x);                          /* log(sigmoid(x)) */

/* Selection, elementwise. */
TG_API tg_tensor *tg_where(tg_tensor *cond, tg_tensor *a, tg_tensor *b); /* a where cond (bool), else b.  torch.where */
/* tg_clamp limits x to [lo, hi].  Use -INFINITY or INFINITY for a side without bound.  hi wins if lo > hi; NaN stays
   NaN, and a bound that is NaN gives NaN.  The gradient is 0 outside and at a bound.  torch.clamp */
TG_API tg_tensor *tg_clamp(tg_tensor *x, double lo, double hi);
TG_API tg_tensor *tg_clamp_min(tg_tensor *x, double lo);                 /* to [lo, INFINITY].  torch.clamp_min */
TG_API tg_tensor *tg_clamp_max(tg_tensor *x, double hi);                 /* to [-INFINITY, hi].  torch.clamp_max */
TG_API tg_tensor *tg_clamp_(tg_tensor *x, double lo, double hi);         /* x = tg_clamp(x, lo, hi).  torch.clamp_ */
/* value where mask (bool, broadcast with x) is true, else x.  torch.masked_fill */
TG_API tg_tensor *tg_masked_fill(tg_tensor *x, tg_tensor *mask, double value);
/* The same in place: x[mask] = value.  torch.Tensor.masked_fill_ */
TG_API tg_tensor *tg_masked_fill_(tg_tensor *x, tg_tensor *mask, double value);
/* Linear interpolation, a + weight * (b - a), of floating point: weight is a tensor in tg_lerp, a number in
   tg_lerp_scalar.  torch.lerp */
TG_API tg_tensor *tg_lerp(tg_tensor *a, tg_tensor *b, tg_tensor *weight);
TG_API tg_tensor *tg_lerp_scalar(tg_tensor *a, tg_tensor *b, double weight);

/* -------- @@VIEWS ------------------------------------------------------------------------------------------------- */

/* Views: new tensors that share storage with t, so that a write to one is a write to the other.  They work for any
   layout, except as said.  A view keeps the storage alive after t has ended.  In a shape, one -1 stands for the size
   that is left over. */

/* Another shape with as many elements.  Errors: the strides of t do not allow it without a copy,
   as often after tg_transpose: then use tg_reshape.  torch.Tensor.view */
TG_API tg_tensor *tg_view(tg_tensor *t, tg_shape shape);
/* tg_view, or a copy where the strides do not allow a view.  torch.reshape */
TG_API tg_tensor *tg_reshape(tg_tensor *t, tg_shape shape);
/* Dims start_dim to end_dim as one: [2, 3, 4] from 1 to -1 is [2, 12].  Copies where tg_reshape does.  torch.flatten */
TG_API tg_tensor *tg_flatten(tg_tensor *t, int start_dim, int end_dim);

TG_API tg_tensor *tg_squeeze(tg_tensor *t, int dim);       /* dim removed if its size is 1.  torch.squeeze */
TG_API tg_tensor *tg_unsqueeze(tg_tensor *t, int dim);     /* a dim of size 1 inserted at dim.  torch.unsqueeze */
TG_API tg_tensor *tg_transpose(tg_tensor *t, int dim0, int dim1); /* two dims exchanged.  torch.transpose */
TG_API tg_tensor *tg_t(tg_tensor *t);                      /* [n, m] -> [m, n]; fewer dims: unchanged.  torch.t */
TG_API tg_tensor *tg_permute(tg_tensor *t, tg_shape dims); /* dim i of the result is dim dims[i] of t.  torch.permute */
/* Dim source moved to destination, the others in order: [2, 3, 4] from 0 to 2 is [3, 4, 2].  torch.movedim */
TG_API tg_tensor *tg_movedim(tg_tensor *t, int source, int destination);
/* Dims of size 1 repeated to shape, without a copy; new dims in front; -1: the size stays.  torch.Tensor.expand */
TG_API tg_tensor *tg_expand(tg_tensor *t, tg_shape shape);
/* t[.., start : start + length, ..] along dim.  Errors: outside of t.  torch.narrow */
TG_API tg_tensor *tg_narrow(tg_tensor *t, int dim, int64_t start, int64_t length);
/* t[.., index, ..], without dim; a negative index counts from the end.  Errors: index out of range.  torch.select */
TG_API tg_tensor *tg_select(tg_tensor *t, int dim, int64_t index);
/* t[.., start : end : step, ..] along dim, by Python's rules: negative numbers count from the end, those out of range
   are limited; use INT64_MAX for an open end.  Errors: step <= 0.  torch.Tensor.__getitem__ */
TG_API tg_tensor *tg_slice(tg_tensor *t, int dim, int64_t start, int64_t end, int64_t step);
/* The diagonal of dims dim0 and dim1 as the last dim; offset > 0: above the main one.  torch.diagonal */
TG_API tg_tensor *tg_diagonal(tg_tensor *t, int64_t offset, int dim0, int dim1);
/* Windows of `size` elements, every `step`, as a new last dim: [5] by 3, 2 is [2, 3].  torch.Tensor.unfold */
TG_API tg_tensor *tg_unfold(tg_tensor *t, int dim, int64_t size, int64_t step);

/* Copies with the shape of t. */
TG_API tg_tensor *tg_contiguous(tg_tensor *t); /* t itself if it is row-major, else a row-major copy.
                                                  torch.Tensor.contiguous */
TG_API tg_tensor *tg_clone(tg_tensor *t);      /* always a copy; a dense layout stays.  torch.clone */

/* -------- @@WRITE ------------------------------------------------------------------------------------------------- */

TG_API tg_tensor *tg_fill_(tg_tensor *t, double value); /* t[..] = value, in place.  torch.Tensor.fill_ */
TG_API tg_tensor *tg_zero_(tg_tensor *t);               /* t[..] = 0, in place.  torch.Tensor.zero_ */

/* dst = src in place, broadcast, converted and moved as needed.  The gradient goes to src; dst's former history gets
   zeros.  Returns dst.  Errors: see the in-place ops in OPS.  torch.Tensor.copy_ */
TG_API tg_tensor *tg_copy_(tg_tensor *dst, tg_tensor *src);
/* t[index] = value.  An in-place write: fails where tg_fill_ would (see OPS), and does not wait. */
TG_API tg_status tg_set(tg_tensor *t, tg_shape index, double value);

/* -------- @@JOIN -------------------------------------------------------------------------------------------------- */

/* Pieces of t along dim, as views.  They are stored in out[0..count), belong to the calling scope, and the count is
   returned; 0 on error, or for a dim of size 0 in tg_unbind.  Other entries of out[0..max) become NULL.  Errors: more
   than max pieces.
     tg_split    pieces of `size` elements along dim, the last one perhaps smaller.  torch.split
     tg_chunk    at most `chunks` pieces of equal size, the last one perhaps smaller.  torch.chunk
     tg_unbind   one piece for each index of dim, without that dim.  torch.unbind */
TG_API int tg_split(tg_tensor *t, int64_t size, int dim, tg_tensor **out, int max);
TG_API int tg_chunk(tg_tensor *t, int64_t chunks, int dim, tg_tensor **out, int max);
TG_API int tg_unbind(tg_tensor *t, int dim, tg_tensor **out, int max);

/* n tensors joined, their dtypes promoted: tg_cat along a dim that they have (two [2, 3] along 0 give [4, 3]), tg_stack
   along a new dim (two [3] along 0 give [2, 3]).  torch.cat, torch.stack */
TG_API tg_tensor *tg_cat(tg_tensor *const *tensors, int n, int dim);
TG_API tg_tensor *tg_stack(tg_tensor *const *tensors, int n, int dim);

/* A copy of t repeated counts[i] times along dim i: [2, 3] by (1, 2) is [2, 6].  More counts than dims add dims in
   front.  torch.Tensor.repeat */
TG_API tg_tensor *tg_repeat(tg_tensor *t, tg_shape counts);
/* tg_roll: a copy cyclically shifted by shifts[i] elements along dims[i], towards larger indices.  torch.roll */
TG_API tg_tensor *tg_roll(tg_tensor *t, tg_shape shifts, tg_shape dims);
TG_API tg_tensor *tg_flip(tg_tensor *t, tg_shape dims);    /* a copy reversed along dims.  torch.flip */
TG_API tg_tensor *tg_tril(tg_tensor *t, int64_t diagonal); /* a copy of t [.., n, m] with 0 above a diagonal: 0 is the
                                                              main one, 1 the one above it.  torch.tril */
TG_API tg_tensor *tg_triu(tg_tensor *t, int64_t diagonal); /* the same with 0 below that diagonal.  torch.triu */
/* A copy with value around it.  pads: (before, after) of the last dim, then of the one before it, and so on; dims that
   are not listed stay.  A negative pad crops.  tg_pad(t, TG_SHAPE(1, 2), 0) makes [n, 4] a [n, 7].  F.pad (mode
   constant) */
TG_API tg_tensor *tg_pad(tg_tensor *t, tg_shape pads, double value);

/* -------- @@REDUCE ------------------------------------------------------------------------------------------------ */

/* Reductions.  tg_NAME reduces all dims to a 0-dim tensor, tg_NAME_dim one dim, tg_NAME_dims a list (TG_SCALAR: all).
   The reduced dims disappear, or stay with size 1 if keepdim.

     sum, prod       integers and bool give i64; without elements 0 and 1.  torch.sum, prod
     mean            floating point only; without elements NaN.  torch.mean
     amax, amin      the largest, smallest; NaN if there is one.  Equal ones share the gradient.  Errors: no elements.
                     torch.amax, amin
     any, all        whether an element, or every one, is not 0: bool, no gradient; without elements false, true.
                     torch.any, all
     logsumexp       log(sum(exp(t))), without overflow; integers give the default dtype.  torch.logsumexp
     var, std        sum((t - mean)^2) / max(0, n - correction), and its root.  correction is 1 in the short form, which
                     is NaN for one element.  Floating point only.  torch.var, std
     norm            sum(|t|^p)^(1/p).  p may be INFINITY (largest |t|), -INFINITY (smallest |t|) or 0 (how many are not
                     0), and is 2 in the short form.  Floating point only.  torch.linalg.vector_norm */
TG_API tg_tensor *tg_sum(tg_tensor *t);                                                  /* sum over all dims */
TG_API tg_tensor *tg_sum_dim(tg_tensor *t, int dim, bool keepdim);                       /* sum over dim */
TG_API tg_tensor *tg_sum_dims(tg_tensor *t, tg_shape dims, bool keepdim);                /* sum over dims */
TG_API tg_tensor *tg_mean(tg_tensor *t);                                                 /* mean over all dims */
TG_API tg_tensor *tg_mean_dim(tg_tensor *t, int dim, bool keepdim);                      /* mean over dim */
TG_API tg_tensor *tg_mean_dims(tg_tensor *t, tg_shape dims, bool keepdim);               /* mean over dims */
TG_API tg_tensor *tg_prod(tg_tensor *t);                                                 /* product over all dims */
TG_API tg_tensor *tg_prod_dim(tg_tensor *t, int dim, bool keepdim);                      /* product over dim */
TG_API tg_tensor *tg_prod_dims(tg_tensor *t, tg_shape dims, bool keepdim);               /* product over dims */
TG_API tg_tensor *tg_amax(tg_tensor *t);                                                 /* largest over all dims */
TG_API tg_tensor *tg_amax_dim(tg_tensor *t, int dim, bool keepdim);                      /* largest over dim */
TG_API tg_tensor *tg_amax_dims(tg_tensor *t, tg_shape dims, bool keepdim);               /* largest over dims */
TG_API tg_tensor *tg_amin(tg_tensor *t);                                                 /* smallest over all dims */
TG_API tg_tensor *tg_amin_dim(tg_tensor *t, int dim, bool keepdim);                      /* smallest over dim */
TG_API tg_tensor *tg_amin_dims(tg_tensor *t, tg_shape dims, bool keepdim);               /* smallest over dims */
TG_API tg_tensor *tg_any(tg_tensor *t);                                                  /* any not 0 over all dims */
TG_API tg_tensor *tg_any_dim(tg_tensor *t, int dim, bool keepdim);                       /* any not 0 over dim */
TG_API tg_tensor *tg_any_dims(tg_tensor *t, tg_shape dims, bool keepdim);                /* any not 0 over dims */
TG_API tg_tensor *tg_all(tg_tensor *t);                                                  /* all not 0 over all dims */
TG_API tg_tensor *tg_all_dim(tg_tensor *t, int dim, bool keepdim);                       /* all not 0 over dim */
TG_API tg_tensor *tg_all_dims(tg_tensor *t, tg_shape dims, bool keepdim);                /* all not 0 over dims */
TG_API tg_tensor *tg_logsumexp(tg_tensor *t);                                            /* logsumexp over all dims */
TG_API tg_tensor *tg_logsumexp_dim(tg_tensor *t, int dim, bool keepdim);                 /* logsumexp over dim */
TG_API tg_tensor *tg_logsumexp_dims(tg_tensor *t, tg_shape dims, bool keepdim);          /* logsumexp over dims */
TG_API tg_tensor *tg_var(tg_tensor *t);                                                  /* variance over all dims */
TG_API tg_tensor *tg_var_dim(tg_tensor *t, int dim, int64_t correction, bool keepdim);   /* variance over dim */
TG_API tg_tensor *tg_var_dims(tg_tensor *t, tg_shape dims, int64_t correction, bool keepdim); /* variance over dims */
TG_API tg_tensor *tg_std(tg_tensor *t);                                                  /* std over all dims */
TG_API tg_tensor *tg_std_dim(tg_tensor *t, int dim, int64_t correction, bool keepdim);   /* std over dim */
TG_API tg_tensor *tg_std_dims(tg_tensor *t, tg_shape dims, int64_t correction, bool keepdim); /* std over dims */
TG_API tg_tensor *tg_norm(tg_tensor *t);                                                 /* norm over all dims */
TG_API tg_tensor *tg_norm_dim(tg_tensor *t, double p, int dim, bool keepdim);            /* norm over dim */
TG_API tg_tensor *tg_norm_dims(tg_tensor *t, double p, tg_shape dims, bool keepdim);     /* norm over dims */

/* Of all elements, 0-dim; NaN if there is one.  Equal ones, or the NaNs, get equal parts of the gradient.  Errors: no
   elements. */
TG_API tg_tensor *tg_max(tg_tensor *t); /* the largest.  torch.max */
TG_API tg_tensor *tg_min(tg_tensor *t); /* the smallest.  torch.min */

/* -------- @@INDEX ------------------------------------------------------------------------------------------------- */

/* Indexing along one dim by an integer tensor (i64 or i32) on the device of t.  Errors: an index outside
   [0, size); negative indices are errors, too, except in tg_take_along_dim, where they count from the end. */

/* t[.., index[i], ..] along dim: index [n] gives dim the size n.  torch.index_select */
TG_API tg_tensor *tg_index_select(tg_tensor *t, int dim, tg_tensor *index);
/* y[i][j] = t[index[i][j]][j] along dim 0, t[i][index[i][j]] along dim 1; y has the shape of index, which has as many
   dims as t and is no larger than t in the others.  torch.gather */
TG_API tg_tensor *tg_gather(tg_tensor *t, int dim, tg_tensor *index);
/* tg_gather with t and index broadcast; dim is the last argument, as in PyTorch.  torch.take_along_dim */
TG_API tg_tensor *tg_take_along_dim(tg_tensor *t, tg_tensor *index, int dim);
/* Rows of weight [N, D] at ids [..] -> [.., D].  F.embedding */
TG_API tg_tensor *tg_embedding(tg_tensor *weight, tg_tensor *ids);
/* ids [..] -> i64 [.., classes], 1 at each id and 0 elsewhere; classes < 0: the largest id + 1.  F.one_hot */
TG_API tg_tensor *tg_one_hot(tg_tensor *ids, int64_t classes);
/* A copy y of t with y[index[i][j]][j] = src[i][j] along dim 0: the inverse of tg_gather.  Of several writes to one
   element the last one counts.  index is no larger than src; t and src have the same dtype.  torch.scatter */
TG_API tg_tensor *tg_scatter(tg_tensor *t, int dim, tg_tensor *index, tg_tensor *src);
/* tg_scatter that adds: y[index[i][j]][j] += src[i][j], for every i and j.  torch.scatter_add */
TG_API tg_tensor *tg_scatter_add(tg_tensor *t, int dim, tg_tensor *index, tg_tensor *src);
/* A copy y of t with y[.., index[i], ..] += src[.., i, ..] along dim, index [n].  torch.index_add */
TG_API tg_tensor *tg_index_add(tg_tensor *t, int dim, tg_tensor *index, tg_tensor *src);

/* t[indices[0], indices[1], ...] as in NumPy and PyTorch.  NULL stands for a whole dim (":"), and dims after the last
   index are whole.  With index tensors i and j:

       t[i]           tg_index(t, TG_LIST(i))
       t[:, i]        tg_index(t, TG_LIST(NULL, i))
       t[i, :, j]     tg_index(t, TG_LIST(i, NULL, j))

   An index is i64 or i32, with negative numbers counting from the end; or a mask of bool or u8, which stands for the
   tg_nonzero of as many dims as it has, and makes the call wait for the device.  Indices broadcast with each other; the
   dims of that shape stand where the indexed dims were, or in front if those were not neighbours.  Indices may be on
   the CPU when t is not.  Errors: an index out of range.  torch.Tensor.__getitem__ */
TG_API tg_tensor *tg_index(tg_tensor *t, tg_tensor *const *indices, int n);
/* A copy y of t with y[indices] = values, or += values if accumulate.  values has t's dtype and broadcasts to the shape
   of tg_index; a 0-dim one may be on the CPU.  Of several writes to one element the last counts.  torch.index_put */
TG_API tg_tensor *tg_index_put(tg_tensor *t, tg_tensor *const *indices, int n, tg_tensor *values, bool accumulate);
/* The same in place: t[indices] = values; returns t.  torch.Tensor.index_put_ */
TG_API tg_tensor *tg_index_put_(tg_tensor *t, tg_tensor *const *indices, int n, tg_tensor *values, bool accumulate);
/* The elements of t where mask (bool, broadcast with t) is true, [count]; waits for the device.  torch.masked_select */
TG_API tg_tensor *tg_masked_select(tg_tensor *t, tg_tensor *mask);
/* Indices of the elements that are not 0, i64 [count, ndim], in row-major order; waits; no gradient.  torch.nonzero */
TG_API tg_tensor *tg_nonzero(tg_tensor *t);

/* -------- @@SORT -------------------------------------------------------------------------------------------------- */

/* The largest and smallest along a dim, with indices.  NaN counts as larger than all in tg_max_dim and tg_argmax and as
   smaller than all in tg_min_dim and tg_argmin; of equal elements the first is found.  indices: receives a new i64
   tensor with the index along dim of each result; may be NULL.  Errors: no elements. */
/* tg_max_dim: the largest along dim; the gradient goes to the one found.  torch.max(t, dim) */
TG_API tg_tensor *tg_max_dim(tg_tensor *t, int dim, bool keepdim, tg_tensor **indices);
/* tg_min_dim: the smallest along dim; the gradient goes to the one found.  torch.min(t, dim) */
TG_API tg_tensor *tg_min_dim(tg_tensor *t, int dim, bool keepdim, tg_tensor **indices);
TG_API tg_tensor *tg_argmax(tg_tensor *t, int dim, bool keepdim); /* i64 index of the largest.  torch.argmax */
TG_API tg_tensor *tg_argmin(tg_tensor *t, int dim, bool keepdim); /* i64 index of the smallest.  torch.argmin */

/* Along one dim; indices as above.  Sorting is stable, and NaN is larger than all numbers: last in ascending order,
   first in descending order. */
TG_API tg_tensor *tg_cumsum(tg_tensor *t, int dim); /* y[i] = t[0] + ... + t[i]; integers give i64.  torch.cumsum */
/* The elements in order, ascending or descending.  torch.sort (stable) */
TG_API tg_tensor *tg_sort(tg_tensor *t, int dim, bool descending, tg_tensor **indices);
/* The k largest in descending order, or the k smallest in ascending order: dim has size k then.  torch.topk */
TG_API tg_tensor *tg_topk(tg_tensor *t, int64_t k, int dim, bool largest, tg_tensor **indices);

/* -------- @@NORM -------------------------------------------------------------------------------------------------- */

/* Of floating point, along dim. */
TG_API tg_tensor *tg_softmax(tg_tensor *t, int dim);     /* exp(t) / sum(exp(t)): sums to 1 along dim.  torch.softmax */
TG_API tg_tensor *tg_log_softmax(tg_tensor *t, int dim); /* its logarithm, without overflow.  torch.log_softmax */

/* (x - mean) / sqrt(variance + eps) * weight + bias, with mean and biased variance over the last normalized_ndim dims.
   weight and bias have the shape of those dims, or are NULL.  Floating point only.  F.layer_norm */
TG_API tg_tensor *tg_layer_norm(tg_tensor *x, int normalized_ndim, tg_tensor *weight, tg_tensor *bias, double eps);
/* x / sqrt(mean(x^2) + eps) * weight, dims and weight as in tg_layer_norm.  F.rms_norm */
TG_API tg_tensor *tg_rms_norm(tg_tensor *x, int normalized_ndim, tg_tensor *weight, double eps);

/* -------- @@MATMUL ------------------------------------------------------------------------------------------------ */

/* Products of matrices.  The operands have the same dtype, any but bool: nothing is promoted.

   tg_matmul multiplies vectors, matrices and batches: [.., n, k] x [.., k, m] -> [.., n, m], and the dims in front
   broadcast.  A 1-dim a counts as [1, k], a 1-dim b as [k, 1]; that 1 is removed from the result.  torch.matmul */
TG_API tg_tensor *tg_matmul(tg_tensor *a, tg_tensor *b);
TG_API tg_tensor *tg_mm(tg_tensor *a, tg_tensor *b);    /* [n, k] x [k, m] -> [n, m].  torch.mm */
TG_API tg_tensor *tg_bmm(tg_tensor *a, tg_tensor *b);   /* [b, n, k] x [b, k, m] -> [b, n, m].  torch.bmm */
TG_API tg_tensor *tg_mv(tg_tensor *a, tg_tensor *b);    /* [n, k] x [k] -> [n].  torch.mv */
TG_API tg_tensor *tg_dot(tg_tensor *a, tg_tensor *b);   /* [n] x [n] -> [].  torch.dot */
TG_API tg_tensor *tg_outer(tg_tensor *a, tg_tensor *b); /* [n] x [m] -> [n, m]; dtypes are promoted.  torch.outer */
/* x [.., in] times weight [out, in] transposed, plus bias [out] or NULL -> [.., out].  F.linear */
TG_API tg_tensor *tg_linear(tg_tensor *x, tg_tensor *weight, tg_tensor *bias);
/* beta * c + alpha * (a x b): a [n, k], b [k, m], c broadcast to [n, m]; c is not read if beta is 0.  torch.addmm */
TG_API tg_tensor *tg_addmm(tg_tensor *c, tg_tensor *a, tg_tensor *b, double beta, double alpha);
/* Sum of products by dims with letters, such as "bij,bjk->bik" for tg_bmm.  Without "->" the letters that occur once
   are the result's, in alphabetical order.  Also: a letter repeated in one operand (its diagonal), and "...".
   torch.einsum */
TG_API tg_tensor *tg_einsum(const char *equation, tg_tensor *const *tensors, int n);

/* How CUDA multiplies f32 matrices: see tg_set_matmul_precision. */
typedef enum {
    TG_PRECISION_F32, /* in f32 throughout: the default */
    TG_PRECISION_TF32 /* inputs rounded to 10 bits of fraction, for tensor cores; summed in f32 */
} tg_precision;
/* tg_set_matmul_precision sets it for this thread.  TF32 needs compute capability 8.0.  Other dtypes and the CPU are
   not affected.  torch.set_float32_matmul_precision: "highest", "high" */
TG_API tg_status tg_set_matmul_precision(tg_precision precision);
TG_API tg_precision tg_matmul_precision(void); /* as set.  torch.get_float32_matmul_precision */

/* -------- @@SAMPLE ------------------------------------------------------------------------------------------------ */

/* New tensors of random numbers, by the state of tg_rng_state.  Without a suffix they have the default dtype and are on
   the default device, as with tg_zeros; _on and _like as there. */
TG_API tg_tensor *tg_rand(tg_shape shape);                               /* uniform in [0, 1).  torch.rand */
TG_API tg_tensor *tg_randn(tg_shape shape);                              /* normal, mean 0, variance 1.  torch.randn */
TG_API tg_tensor *tg_randint(int64_t low, int64_t high, tg_shape shape); /* i64 in [low, high).  torch.randint */
TG_API tg_tensor *tg_randperm(int64_t n);                                /* i64 0..n-1, shuffled.  torch.randperm */
TG_API tg_tensor *tg_rand_on(tg_shape shape, tg_dtype dtype, tg_device device);  /* tg_rand; floating point only */
TG_API tg_tensor *tg_randn_on(tg_shape shape, tg_dtype dtype, tg_device device); /* tg_randn; floating point only */
/* tg_randint_on is tg_randint in any dtype. */
TG_API tg_tensor *tg_randint_on(int64_t low, int64_t high, tg_shape shape, tg_dtype dtype, tg_device device);
TG_API tg_tensor *tg_rand_like(tg_tensor *t);  /* tg_rand.  torch.rand_like */
TG_API tg_tensor *tg_randn_like(tg_tensor *t); /* tg_randn.  torch.randn_like */
/* 1 with probability p, else 0, in any dtype.  torch.bernoulli */
TG_API tg_tensor *tg_bernoulli_on(tg_shape shape, double p, tg_dtype dtype, tg_device device);

/* If training, zeroes each element with probability p and scales the others by 1 / (1 - p); else, or if p is 0, x
   itself.  F.dropout */
TG_API tg_tensor *tg_dropout(tg_tensor *x, double p, bool training);

/* -------- @@ATTENTION --------------------------------------------------------------------------------------------- */

/* softmax(q k^T * scale + mask) v: q [.., L, E], k [.., S, E], v [.., S, D] -> [.., L, D]; the dims in front broadcast.
   mask broadcasts to [.., L, S]: bool, true where a position takes part, or numbers that are added; or NULL.
   is_causal: position l sees only s <= l; not together with a mask.  scale 0 stands for 1 / sqrt(E).  dropout_p is
   applied whenever it is > 0.  A fully masked row gives NaN.  F.scaled_dot_product_attention */
TG_API tg_tensor *tg_scaled_dot_product_attention(tg_tensor *q, tg_tensor *k, tg_tensor *v, tg_tensor *mask,
                                                  double dropout_p, bool is_causal, double scale);

/* -------- @@LOSS -------------------------------------------------------------------------------------------------- */

/* Losses.  reduction says what becomes of the losses of the elements. */
enum {
    TG_NONE = 0,     /* they are the result */
    TG_MEAN = 1,     /* their mean, 0-dim: divided by the number of elements, unless the loss says otherwise */
    TG_SUM = 2,      /* their sum, 0-dim */
    TG_BATCHMEAN = 3 /* only tg_kl_div: their sum divided by the size of dim 0 */
};
/* Losses of the difference d = a - b.  Different shapes broadcast, with a warning.  In tg_mse_loss, tg_smooth_l1_loss
   and tg_huber_loss one operand is floating point. */
TG_API tg_tensor *tg_mse_loss(tg_tensor *a, tg_tensor *b, int reduction); /* d^2.  F.mse_loss */
TG_API tg_tensor *tg_l1_loss(tg_tensor *a, tg_tensor *b, int reduction);  /* |d|.  F.l1_loss */
/* d^2 / (2 beta) where |d| < beta, else |d| - beta / 2.  PyTorch's default is 1.  F.smooth_l1_loss */
TG_API tg_tensor *tg_smooth_l1_loss(tg_tensor *a, tg_tensor *b, int reduction, double beta);
/* d^2 / 2 where |d| <= delta, else delta * (|d| - delta / 2).  PyTorch's default is 1.  F.huber_loss */
TG_API tg_tensor *tg_huber_loss(tg_tensor *a, tg_tensor *b, int reduction, double delta);

/* -log(softmax(logits)[target]): logits [N, C, d...] (or [C]) with class indices, i64 or i32 [N, d...] (or 0-dim), or
   with floating-point probabilities of the logits' shape.  The mean over the targets that are not -100.  Errors: a
   target outside [0, C).  F.cross_entropy */
TG_API tg_tensor *tg_cross_entropy(tg_tensor *logits, tg_tensor *targets);
/* The same with options.  weight [C] scales the classes; NULL: all 1.  Targets equal to ignore_index (PyTorch's default
   is -100) count for nothing.  label_smoothing mixes each target with 1 / C.  TG_MEAN divides by the sum of the weights
   of the targets that count (NaN if none does), for probabilities by N times the product of d... */
TG_API tg_tensor *tg_cross_entropy_ex(tg_tensor *logits, tg_tensor *targets, tg_tensor *weight, int64_t ignore_index,
                                      double label_smoothing, int reduction);
/* tg_cross_entropy_ex from log-probabilities instead of logits, with class indices only.  F.nll_loss */
TG_API tg_tensor *tg_nll_loss(tg_tensor *log_probs, tg_tensor *targets, tg_tensor *weight, int64_t ignore_index,
                              int reduction);

/* -(target * log(input) + (1 - target) * log(1 - input)) of probabilities, the logarithms limited to >= -100; target
   has the shape of input, and weight, which scales the elements, is NULL or broadcasts.  Errors: an input outside [0,
   1].  F.binary_cross_entropy */
TG_API tg_tensor *tg_binary_cross_entropy(tg_tensor *input, tg_tensor *target, tg_tensor *weight, int reduction);
/* The same for sigmoid(input), without overflow.  pos_weight, NULL or broadcast, scales the term of target.
   F.binary_cross_entropy_with_logits */
TG_API tg_tensor *tg_binary_cross_entropy_with_logits(tg_tensor *input, tg_tensor *target, tg_tensor *weight,
                                                      int reduction, tg_tensor *pos_weight);
/* target * (log(target) - input), where input holds log-probabilities and target probabilities; if log_target, target
   holds logarithms, too.  Broadcasts.  TG_MEAN divides by all elements; TG_BATCHMEAN is the usual choice.  F.kl_div */
TG_API tg_tensor *tg_kl_div(tg_tensor *input, tg_tensor *target, int reduction, bool log_target);

/* -------- @@COMPARE ----------------------------------------------------------------------------------------------- */

/* Comparison of whole tensors.  They wait for the device; false on error.  NaN is equal to nothing.  Dtypes are
   promoted in tg_equal and taken as f64 in tg_allclose. */
TG_API bool tg_equal(tg_tensor *a, tg_tensor *b); /* same shape and elements.  torch.equal */
/* |a - b| <= atol + rtol * |b| for every element, a and b broadcast.  torch.allclose */
TG_API bool tg_allclose(tg_tensor *a, tg_tensor *b, double rtol, double atol);

/* ======== @@CHECK ================================================================================================= */

/* Compares the gradients of fn(inputs, n, user) by backward with central differences (f(x+h) - f(x-h)) / 2h: the whole
   Jacobian of its output, of any shape, with respect to every input that requires grad.  True if |analytic - numeric|
   <= atol + rtol * |numeric| everywhere, backward gives the same values twice, and zeros for a gradient of zeros, and
   an output that does not require grad does not depend on the inputs.  False otherwise, with an error that names input,
   index, both numbers and a likely cause.

   Use f64 inputs (others give a warning) that do not overlap themselves.  They are changed in place, one element at a
   time, and restored exactly.  fn is called with grad mode on, and with the same random numbers each time; afterwards
   the random state, every .grad and every version are as before.  Costs 2 calls of fn per input element and 2 backwards
   per output element.  torch.autograd.gradcheck */
TG_API bool tg_gradcheck(tg_function fn, tg_tensor *const *inputs, int n, void *user);
/* The same check of the gradient itself, with respect to the inputs and to a random gradient of the output: for rules
   that are to be differentiated again.  torch.autograd.gradgradcheck */
TG_API bool tg_gradgradcheck(tg_function fn, tg_tensor *const *inputs, int n, void *user);

/* Options of tg_gradcheck_ex.  A number that is 0, or NULL, stands for the default. */
typedef struct {
    double eps;       /* h = eps * max(1, |x|); default 1e-6 */
    double atol;      /* absolute tolerance; default 1e-5 */
    double rtol;      /* relative tolerance; default 1e-3 */
    FILE *report;     /* gets a table with a row per input: its worst element, verdict and hint; NULL: no report */
    const char *name; /* name of fn in the report; default "fn" */
    bool quiet;       /* a mismatch only returns false, and raises no error */
} tg_gradcheck_options;
/* tg_gradcheck with options (NULL: the defaults). */
TG_API bool tg_gradcheck_ex(tg_function fn, tg_tensor *const *inputs, int n, void *user,
                            const tg_gradcheck_options *options);
/* tg_gradgradcheck with options (NULL: the defaults). */
TG_API bool tg_gradgradcheck_ex(tg_function fn, tg_tensor *const *inputs, int n, void *user,
                                const tg_gradcheck_options *options);

/* ======== @@OPTIM ================================================================================================= */

struct tgi_optim_param;
/* An optimizer.  The hyperparameters may be changed at any time; meanings and defaults are PyTorch's.  Each field names
   the optimizers that read it.  torch.optim.Optimizer */
typedef struct tg_optim {
    double lr;           /* all: learning rate */
    double weight_decay; /* all: 0, adamw 0.01.  weight_decay * p is added to the gradient; adamw shrinks p itself */
    double momentum;     /* sgd, rmsprop: 0 */
    double dampening;    /* sgd: 0 */
    bool nesterov;       /* sgd: false; needs momentum > 0 and dampening 0 */
    double beta1;        /* adam, adamw: 0.9, decay of the mean of gradients */
    double beta2;        /* adam, adamw: 0.999, decay of the mean of their squares */
    bool amsgrad;        /* adam, adamw: false; true divides by the largest second moment so far */
    double eps;          /* adam, adamw, rmsprop: 1e-8; adagrad: 1e-10.  Added to the denominator */
    double alpha;        /* rmsprop: 0.99, decay of the mean of squares */
    bool centered;       /* rmsprop: false; true divides by the deviation from the mean gradient */
    double lr_decay;     /* adagrad: 0; the rate is lr / (1 + (step - 1) * lr_decay) */
    double initial_accumulator_value; /* adagrad: 0, where its sum of squares starts */
    int kind;                         /* read only: 0 sgd, 1 adam, 2 adamw, 3 rmsprop, 4 adagrad */
    int count;                        /* read only: number of parameters */
    struct tgi_optim_param *param;    /* private: the parameters and their state */
} tg_optim;

/* A new optimizer of n leaf tensors with learning rate lr; change its fields for other hyperparameters.  It keeps its
   parameters alive, so that you may release them before it; only tg_optim_free frees it.  Errors: "optimizer got an
   empty parameter list", "can't optimize a non-leaf Tensor", "Invalid learning rate". */
TG_API tg_optim *tg_sgd(tg_tensor *const *params, int n, double lr);     /* torch.optim.SGD */
TG_API tg_optim *tg_adam(tg_tensor *const *params, int n, double lr);    /* torch.optim.Adam */
TG_API tg_optim *tg_adamw(tg_tensor *const *params, int n, double lr);   /* torch.optim.AdamW */
TG_API tg_optim *tg_rmsprop(tg_tensor *const *params, int n, double lr); /* torch.optim.RMSprop */
TG_API tg_optim *tg_adagrad(tg_tensor *const *params, int n, double lr); /* torch.optim.Adagrad */
TG_API void tg_optim_free(tg_optim *opt); /* frees opt and its state, not your parameters; NULL is allowed */

/* One step: updates every parameter that has a .grad, in place.  State is made at a parameter's first step.  A step
   that fails changes nothing.  torch.optim.Optimizer.step */
TG_API tg_status tg_step(tg_optim *opt);

/* Removes the .grad of every parameter: tg_grad is NULL then.  torch.optim.Optimizer.zero_grad */
TG_API tg_status tg_optim_zero_grad(tg_optim *opt);

/* Clipping of gradients, before tg_step; parameters without .grad are skipped.

   tg_clip_grad_norm multiplies all gradients by min(1, max_norm / (norm + 1e-6)), where norm is the 2-norm of all their
   elements together, and returns norm, a new 0-dim tensor on the device of the first gradient; 0 if there is none.  A
   norm that is NaN or infinite makes gradients NaN or 0.  torch.nn.utils.clip_grad_norm_ */
TG_API tg_tensor *tg_clip_grad_norm(tg_tensor *const *params, int n, double max_norm);
/* The same with the norm_type-norm (INFINITY: the largest).  error_if_nonfinite: a norm that is NaN or infinite is an
   error, and the gradients do not change; this waits for the device. */
TG_API tg_tensor *tg_clip_grad_norm_ex(tg_tensor *const *params, int n, double max_norm, double norm_type,
                                       bool error_if_nonfinite);

/* Limits each element of the gradients to [-value, value].  torch.nn.utils.clip_grad_value_ */
TG_API tg_status tg_clip_grad_value(tg_tensor *const *params, int n, double value);

/* Learning rates for step 0, 1, ...; use: opt->lr = tg_lr_cosine(step, ...).  tg_lr_cosine and tg_lr_linear rise to lr
   in `warmup` steps, then fall to lr_min at step `total`, and stay there:
       step < warmup       lr * (step + 1) / (warmup + 1)
       otherwise           with p = min(1, (step - warmup) / (total - warmup)):
       tg_lr_cosine        lr_min + (lr - lr_min) * (1 + cos(pi * p)) / 2
       tg_lr_linear        lr + (lr_min - lr) * p
   Without warmup:
       tg_lr_step          lr * gamma^floor(step / size)
       tg_lr_exponential   lr * gamma^step
   torch.optim.lr_scheduler */
TG_API double tg_lr_cosine(int64_t step, int64_t warmup, int64_t total, double lr, double lr_min);
TG_API double tg_lr_linear(int64_t step, int64_t warmup, int64_t total, double lr, double lr_min);
TG_API double tg_lr_step(int64_t step, int64_t size, double lr, double gamma);
TG_API double tg_lr_exponential(int64_t step, double lr, double gamma);

/* ======== @@SHOW ================================================================================================== */

/* tg_print prints t to stdout as PyTorch does, with a line end: "tensor([[1., 2.],\n        [3., 4.]])".  Four
   decimals; scientific if the numbers differ by a factor of more than 1000, or are very small or large.  More than 1000
   elements:  "..." in the middle of each long dim.  Then what is not the default: dtype (as dtype=f64), device, grad_fn
   or requires_grad.  Waits for the device.  print(t) */
TG_API tg_status tg_print(tg_tensor *t);
TG_API tg_status tg_fprint(FILE *file, tg_tensor *t); /* tg_print to a file.  Errors: the file cannot be written */

/* Prints the tape that leads to root as a table: leaves, then ops in the order in which they were made.  Columns: id,
   op, name, shape, dtype, device; in (ids of the inputs; "." for one that needs no gradient); data and grad (value of
   one element, "..." of more, "-" if there is none or it has been freed); saved (what is kept for backward). */
TG_API tg_status tg_tape_print(FILE *file, tg_tensor *root);

/* The same as a graph for Graphviz (dot -Tsvg): leaves blue, ops white, views green, moves orange.  Of more than 200
   nodes only the newest are drawn; one more node counts the others. */
TG_API tg_status tg_tape_dot(FILE *file, tg_tensor *root);

#ifdef __cplusplus
}
#endif
#endif /* TENSORGRAD_H */

/* TGI_CUDA_COMPANION: tensorgrad_cuda.cu includes the header for what both sides need to know: the op table, dtypes,
   random words, and the backend's structs and formulas. */
#if defined(TENSORGRAD_IMPLEMENTATION) || defined(TGI_CUDA_COMPANION)
#ifndef TENSORGRAD_IMPLEMENTED
#define TENSORGRAD_IMPLEMENTED

/* THE LAYERS, from the bottom up.  A function calls only what its own room or one before it defines:

   @@BASE, @@DTYPE, @@RANDOM, @@BACKEND, @@CPU, @@TENSOR, @@TAPE, @@CALL, @@MOVE,
   @@OPS (@@ELEMENTWISE, @@VIEWS, @@WRITE, @@JOIN, @@REDUCE, @@INDEX, @@SORT, @@NORM, @@MATMUL, @@SAMPLE, @@ATTENTION,
   @@LOSS, @@COMPARE), @@TABLE, @@CHECK, @@OPTIM, @@SHOW

   The op table stands further up in the text than its layer, for the kernels are made from its rows; but its gradient
   rules call ops. */

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#if !defined(TG_ALLOW_FAST_MATH) && (defined(__FAST_MATH__) || (__FINITE_MATH_ONLY__ + 0))
#error "tensorgrad needs NaN and infinity: no -ffast-math, -Ofast, -ffinite-math-only (or define TG_ALLOW_FAST_MATH)"
#endif

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF /* the same bits at every optimisation level */
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ======== @@BASE ================================================================================================== */

#ifndef TG_THREAD_LOCAL
#if defined(__cplusplus) && __cplusplus >= 201103L
#define TG_THREAD_LOCAL thread_local
#elif defined(_MSC_VER)
#define TG_THREAD_LOCAL __declspec(thread)
#elif defined(__GNUC__) || defined(__clang__)
#define TG_THREAD_LOCAL __thread
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L && !defined(__STDC_NO_THREADS__)
#define TG_THREAD_LOCAL _Thread_local
#else
#define TG_THREAD_LOCAL
#endif
#endif

#ifndef TG_ABORT
#define TG_ABORT abort
#endif

#if defined(__GNUC__) || defined(__clang__)
#define TGI_PRINTF(format, args) __attribute__((__format__(__printf__, format, args)))
#define TGI_UNUSED __attribute__((__unused__))
/* For functions that are called from very many places, errors first of all: copies of them there would take a tenth of
   the time to compile the header. */
#define TGI_NOINLINE __attribute__((__noinline__))
#define TGI_LIKELY(x) __builtin_expect(!!(x), 1)
/* Counts that several threads change (tg_share, process totals).  Those of 64 bits are aligned to 8 bytes, which a
   32-bit system may not do by itself, so that they need no library. */
#define TGI_ALIGN_8 __attribute__((__aligned__(8)))
#define TGI_ATOMIC_ADD(p, n) __atomic_add_fetch(p, n, __ATOMIC_ACQ_REL)
#define TGI_ATOMIC_LOAD(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define TGI_ATOMIC_STORE(p, n) __atomic_store_n(p, n, __ATOMIC_RELEASE)
#define TGI_ATOMIC_SWAP(p, n) __atomic_exchange_n(p, n, __ATOMIC_ACQ_REL) /* the value before */
#else
#define TGI_PRINTF(format, args)
#define TGI_UNUSED
#define TGI_NOINLINE
#define TGI_LIKELY(x) (x)
#define TGI_ALIGN_8
#define TGI_ATOMIC_ADD(p, n) (*(p) += (n))
#define TGI_ATOMIC_LOAD(p) (*(p))
#define TGI_ATOMIC_STORE(p, n) (*(p) = (n))
#define TGI_ATOMIC_SWAP(p, n) ((void)(*(p) = (n)), 0) /* for one thread only: the lock was free, the list empty */
#endif

enum { TGI_DEVICE_TYPES = 2, TGI_MAX_DEVICES = 16, TGI_PLACES = TGI_DEVICE_TYPES * TGI_MAX_DEVICES };

typedef struct tgi_thread tgi_thread;
#ifndef TGI_CUDA_COMPANION
typedef struct tgi_node tgi_node;
typedef struct tgi_frame tgi_frame;

/* A circular doubly linked list of tensors or nodes; the list itself is a link, too, and stands between last and
   first. */
typedef struct tgi_link { struct tgi_link *prev, *next; } tgi_link;

/* What ended a tensor, for the error message where it is used afterwards. */
typedef enum {
    TGI_ALIVE,
    TGI_BY_SCOPE,
    TGI_BY_RELEASE,
    TGI_BY_DROP,
    TGI_BY_GRADIENT, /* it was a .grad: another gradient replaced it, or the tensor whose .grad it was ended */
    TGI_BY_THREAD,   /* tg_shutdown or tg_thread_end */
    TGI_BY_OWNER     /* the last reference was that of an optimizer, a graph or a view of it */
} tgi_cause;

enum { TGI_SMALL_CLASSES = 16, TGI_CLASSES = TGI_SMALL_CLASSES + 4 * 48, TGI_ERROR_TEXT = 1024 };

/* The state of one thread.  A public function gets it with tgi_self() and passes it down. */
struct tgi_thread {
    bool started;

    /* The error record: the first error, and how many there were.  The program may clear it at any time, so the library
       decides by `raised`, which counts all errors ever raised and is never reset. */
    tg_status error;
    int64_t errors;
    char message[TGI_ERROR_TEXT];
    uint64_t raised;
    uint64_t cleared;     /* `raised` when the program last cleared the record, other than in the error handler */
    tg_status last_error; /* code of the last error raised */
    bool in_handler;      /* the error handler runs: an error in it is recorded, but not handed to it again */
    char printed[TGI_ERROR_TEXT]; /* what the default handler printed last */

    /* tg_shutdown does not reset these counters: tensors, graphs and open blocks that outlive it carry their numbers,
       so no number may be used twice. */
    uint64_t id;               /* of this thread */
    uint64_t serials;          /* the last serial of a scope, mode or list of tensors */
    uint64_t node_count, runs; /* the last node and the last backward run */
    int hooks_ever;            /* the last hook */
    tgi_link nodes;            /* live nodes, oldest first */

    const char *composite;   /* the op that the user called, where it calls other ops: messages name it.  Or NULL.  This
                                and all that follows is reset when the state of a thread begins */
    bool debug;              /* TG_DEBUG: the memory of an ended tensor's handle is never reused */
    struct tgi_guard *guard; /* of the innermost callback that is running, or NULL */

    /* memory: freed blocks by size class */
    void *free_blocks[TGI_CLASSES];
    size_t cache_limit;
    tg_stats_info stats;    /* live counts of this thread; negative where it released tensors of other threads */
    tg_stats_info reported; /* the part of stats that the process totals contain */
    tg_device_stats on[TGI_PLACES];  /* counts by device: see tgi_on_device */
    int64_t reported_on[TGI_PLACES]; /* the part of their bytes that the process totals contain */

    /* modes and defaults */
    bool grad_off, anomaly;
    bool sync_checks; /* every op waits for its device and reports what failed there */
    int threads;      /* for OpenMP; 0: OpenMP's own choice */
    tg_dtype default_dtype;
    tg_device default_device;
    tg_precision precision;
    tg_rng rng;

    /* scopes: the innermost frame, the list that new tensors join, and the list of those in no scope */
    tgi_frame *frame;
    tgi_link unscoped, *scope;
    uint64_t scope_serial; /* of the list that `scope` is; 0: unscoped */
    bool warned_unscoped, must_warn_unscoped; /* that 10,000 tensors are in no scope */
    unsigned warned_sizes; /* a bit for each loss that has warned of operands of different shapes */

    /* lifetimes (see the invariants at the top of TENSOR) */
    tgi_cause cause;          /* what ends a tensor whose refs reach 0 now */
    bool releasing_tensors;   /* tgi_release_tensors runs, or has to wait */
    tg_tensor *ended_tensors; /* ended tensors that it has not released yet, linked by next_ended */
    tgi_link *free_handles;   /* memory of freed handles, linked by next; new handles alone reuse it */
    size_t handle_bytes;      /* the size of each */

    /* tape */
    tgi_node *ended_nodes; /* nodes that are to be freed */
    bool releasing_nodes;
    int hooking;                       /* how many hooks run, one inside the other */
    struct tgi_capture_list *captures; /* the tensors that the forward of a checkpoint depends on */
};

static TG_THREAD_LOCAL tgi_thread tgi_this_thread;

/* The state of the process: allocator, error handler, threads that hold state, totals. */
static tg_allocator tgi_allocator;
static struct {
    int lock; /* 1 while a thread reads or changes the rest */
    bool set; /* by the user; the default prints */
    tg_error_handler call;
    void *user;
} tgi_handler;
static TGI_ALIGN_8 int64_t tgi_threads_alive;
static TGI_ALIGN_8 uint64_t tgi_threads_ever;
static TGI_ALIGN_8 struct { int64_t tensors, nodes, bytes, saved; } tgi_totals;
static TGI_ALIGN_8 int64_t tgi_total_bytes_on[TGI_PLACES];

/* Whether TG_DEBUG is set: then the handle of an ended tensor is never reused, and every use of one is an error. */
static bool tgi_debug_requested(void)
{
#ifdef TG_DEBUG
    return true;
#else
    const char *value = getenv("TG_DEBUG");
    return value && *value && strcmp(value, "0") != 0;
#endif
}

TGI_NOINLINE static tgi_thread *tgi_start(tgi_thread *S)
{
    memset((char *)S + offsetof(tgi_thread, composite), 0, sizeof *S - offsetof(tgi_thread, composite));
    S->started = true;
    if (!S->id) { /* a thread keeps its id after tg_shutdown: tensors that the user retained still belong to it */
        S->id = TGI_ATOMIC_ADD(&tgi_threads_ever, 1);
        S->nodes.prev = S->nodes.next = &S->nodes;
    }
    S->debug = tgi_debug_requested();
    S->cause = TGI_BY_OWNER;
    S->cache_limit = SIZE_MAX;
    S->unscoped.prev = S->unscoped.next = S->scope = &S->unscoped;
    TGI_ATOMIC_ADD(&tgi_threads_alive, 1);
    return S;
}

static inline tgi_thread *tgi_self(void)
{
    tgi_thread *S = &tgi_this_thread;
    return TGI_LIKELY(S->started) ? S : tgi_start(S);
}

const char *tg_version(void) { return TG_VERSION_STRING; }

const char *tg_build_info(void)
{
    return "tensorgrad " TG_VERSION_STRING
#if defined(__clang__)
           ", clang " __clang_version__
#elif defined(__GNUC__)
           ", gcc " __VERSION__
#endif
#ifdef __cplusplus
           ", C++"
#endif
#ifdef _OPENMP
           ", OpenMP"
#endif
        ;
}

/* ---- errors ---- */

/* The default handler.  It does not print the same message twice in a row: an error in a loop would fill the screen. */
static void tgi_print_error(const char *message)
{
    tgi_thread *S = &tgi_this_thread;
    if (strncmp(S->printed, message, sizeof S->printed - 1) == 0) return;
    snprintf(S->printed, sizeof S->printed, "%s", message);
    fprintf(stderr, "tensorgrad: %s\n", message);
}

void tg_abort_on_error(tg_status code, const char *message, void *user)
{
    (void)code, (void)user;
    fprintf(stderr, "tensorgrad: %s\n", message);
    TG_ABORT();
}

/* The lock makes one change of both: another thread that raises an error never sees the new handler with the old
   user. */
void tg_set_error_handler(tg_error_handler handler, void *user)
{
    while (TGI_ATOMIC_SWAP(&tgi_handler.lock, 1)) {}
    tgi_handler.set = true;
    tgi_handler.call = handler;
    tgi_handler.user = user;
    TGI_ATOMIC_STORE(&tgi_handler.lock, 0);
}

/* What the library notes before it calls a function of the user's, to restore and check it afterwards.  The invariants
   stand at "guards" in TENSOR. */
typedef struct tgi_guard {
    tgi_thread *S;
    struct tgi_guard *outer;
    const char *what;       /* "the hook", for messages */
    const char *composite;  /* S->composite before the call, as all the following */
    tgi_frame *frame;
    uint64_t frame_limit; /* S->serials: the callback cannot close frames up to this serial */
    uint64_t raised;
    bool grad_off;
    bool misused; /* the callback tried to end a scope that was open before it, or its thread */
    /* of a callback that interrupts other work (see tgi_guard_open_interrupt): its tensors, and the state before */
    bool interrupts, releasing_tensors;
    tgi_link made, *scope;
    uint64_t scope_serial;
} tgi_guard;

/* Errors call the user's handler, so they need guards; but guards need scopes and lifetimes, which stand in TENSOR, a
   higher layer.  This is the one call from here to there. */
static void tgi_guard_open_interrupt(tgi_guard *g, tgi_thread *S, const char *what);
static bool tgi_guard_close(tgi_guard *g);
static const struct {
    void (*open_interrupt)(tgi_guard *g, tgi_thread *S, const char *what);
    bool (*close)(tgi_guard *g);
} tgi_guards = {tgi_guard_open_interrupt, tgi_guard_close};

/* Passes an error or a warning to the handler, which may call any function: clear the record, open scopes, raise
   errors. */
static void tgi_call_handler(tgi_thread *S, tg_status code, const char *text)
{
    if (S->in_handler) return;
    while (TGI_ATOMIC_SWAP(&tgi_handler.lock, 1)) {}
    const bool set = tgi_handler.set;
    const tg_error_handler call = tgi_handler.call;
    void *const user = tgi_handler.user;
    TGI_ATOMIC_STORE(&tgi_handler.lock, 0);
    if (!set) tgi_print_error(text);
    if (!set || !call) return;
    tgi_guard guard;
    S->in_handler = true;
    tgi_guards.open_interrupt(&guard, S, "the error handler");
    call(code, text, user);
    tgi_guards.close(&guard);
    S->in_handler = false;
}

/* Raises an error: "tg_op: message" and, after a newline in the format, the hint.  Returns false, for
   `return tgi_fail(...);`.  The record keeps the thread's first error. */
static bool tgi_fail(tgi_thread *S, tg_status code, const char *op, const char *format, ...) TGI_PRINTF(4, 5)
    TGI_NOINLINE;
static bool tgi_fail(tgi_thread *S, tg_status code, const char *op, const char *format, ...)
{
    char text[TGI_ERROR_TEXT];
    const int used = snprintf(text, sizeof text, "tg_%.100s: ", S->composite ? S->composite : op);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, sizeof text - (size_t)used, format, args);
    va_end(args);
    char *hint = strchr(text, '\n');
    if (hint && strlen(text) + 9 < sizeof text) {
        memmove(hint + 9, hint + 1, strlen(hint)); /* "\n" becomes "\n  hint: " */
        memcpy(hint + 1, "  hint: ", 8);
    }
    S->raised++;
    S->last_error = code;
    if (S->errors++ == 0) {
        S->error = code;
        memcpy(S->message, text, sizeof text);
    }
    tgi_call_handler(S, code, text);
    return false;
}

/* NULL, for a function that returns a tensor: `return tgi_no_tensor(tgi_fail(...));`. */
static inline tg_tensor *tgi_no_tensor(bool failed)
{
    (void)failed;
    return NULL;
}

/* Raises an error of an op that has ended, so that S->composite is not the op that failed. */
static TGI_UNUSED bool tgi_fail_later(tgi_thread *S, tg_status code, const char *op, const char *text)
{
    const char *running = S->composite;
    S->composite = NULL;
    tgi_fail(S, code, op, "%s", text);
    S->composite = running;
    return false;
}

/* Passes a warning to the handler: its code is TG_OK, and nothing is recorded. */
static void tgi_warn(tgi_thread *S, const char *text) { tgi_call_handler(S, TG_OK, text); }

/* These do not begin the state of a thread, so they can be called after tg_thread_end. */
bool tg_ok(void) { return tgi_this_thread.errors == 0; }
const char *tg_error_message(void) { return tgi_this_thread.message; }
tg_status tg_error_code(void) { return tgi_this_thread.error; }
int64_t tg_error_count(void) { return tgi_this_thread.errors; }

void tg_clear_error(void)
{
    tgi_thread *S = &tgi_this_thread;
    S->error = TG_OK;
    S->errors = 0;
    S->message[0] = 0;
    if (!S->in_handler) S->cleared = S->raised;
}

/* The status that a function returns after an error in what it called: that of the record, or of the last error if the
   error handler has cleared the record. */
static tg_status tgi_failed(const tgi_thread *S)
{
    const tg_status code = S->error ? S->error : S->last_error;
    return code ? code : TG_ERR_ARGUMENT;
}

/* Whether an error was raised since S->raised had this value, and the program has not cleared the record after it.
   Clearing it in the error handler does not count. */
static bool tgi_raised_since(const tgi_thread *S, uint64_t raised)
{
    return S->raised > (raised > S->cleared ? raised : S->cleared);
}

/* The error of an argument that is NULL; false, always.  With an error on record the NULL is most likely the result of
   the call that failed, so no other error is raised. */
TGI_NOINLINE static bool tgi_null_argument(tgi_thread *S, const char *op, const char *argument)
{
    if (S->errors) return false;
    return tgi_fail(S, TG_ERR_ARGUMENT, op, "argument %s is NULL", argument);
}

/* ---- numbers ---- */

/* In place of the macros of math.h, which convert a double to float on some systems. */
static bool tgi_is_nan(double x) { return x != x; }
static bool tgi_is_finite(double x) { return x - x == 0; }
static bool tgi_is_infinite(double x) { return !tgi_is_nan(x) && !tgi_is_finite(x); }

/* ---- sizes ---- */

static bool tgi_mul_size(size_t a, size_t b, size_t *product)
{
    if (a && b > SIZE_MAX / a) return false;
    *product = a * b;
    return true;
}

/* ---- memory ---- */

/* Blocks come in size classes: multiples of 64 bytes up to 1 KiB, then four steps to the doubling. */
static int tgi_size_class(size_t bytes, size_t *rounded)
{
    size_t step = 256;
    int k = TGI_SMALL_CLASSES;
    if (bytes <= 64 * TGI_SMALL_CLASSES) {
        k = bytes ? (int)((bytes - 1) / 64) : 0;
        *rounded = 64 * ((size_t)k + 1);
        return k;
    }
    while (bytes > 8 * step && step < SIZE_MAX / 16) step *= 2, k += 4; /* classes 5, 6, 7 and 8 times step */
    if (bytes > 8 * step) return -1;
    *rounded = (bytes + step - 1) / step * step;
    return k + (int)(*rounded / step) - 5;
}

static void tgi_raw_free(tgi_thread *S, void *p, size_t bytes)
{
    (void)S;
    if (tgi_allocator.free) tgi_allocator.free(p, bytes, tgi_allocator.user);
    else free(p);
}

static void *tgi_raw_alloc(tgi_thread *S, size_t bytes)
{
    S->stats.allocations++;
    return tgi_allocator.alloc ? tgi_allocator.alloc(bytes, tgi_allocator.user) : malloc(bytes);
}

/* Returns cached blocks to the allocator until at most `keep` bytes are cached. */
static void tgi_trim(tgi_thread *S, size_t keep)
{
    for (int k = TGI_CLASSES - 1; k >= 0 && (size_t)S->stats.cached_bytes > keep; --k) {
        while (S->free_blocks[k] && (size_t)S->stats.cached_bytes > keep) {
            void **block = (void **)S->free_blocks[k];
            size_t bytes = (size_t)block[1];
            S->free_blocks[k] = block[0];
            S->stats.cached_bytes -= (int64_t)bytes;
            tgi_raw_free(S, block, bytes);
        }
    }
}

/* The same for the memory of handles.  Only for tg_set_cache_limit and the end of a thread: as long as that memory is
   kept, using a tensor that has ended is an error and not undefined behaviour. */
static void tgi_trim_handles(tgi_thread *S, size_t keep)
{
    while (S->free_handles && (size_t)S->stats.cached_bytes > keep) {
        tgi_link *block = S->free_handles;
        S->free_handles = block->next;
        S->stats.cached_bytes -= (int64_t)S->handle_bytes;
        tgi_raw_free(S, block, S->handle_bytes);
    }
}

/* Memory from the allocator.  If it has none, all cached blocks are returned to it before a second attempt. */
static void *tgi_alloc_or_trim(tgi_thread *S, size_t bytes)
{
    void *block = tgi_raw_alloc(S, bytes);
    if (block || S->stats.cached_bytes == 0) return block;
    tgi_trim(S, 0);
    return tgi_raw_alloc(S, bytes);
}

static bool tgi_may_cache(const tgi_thread *S, size_t bytes)
{
    return bytes <= S->cache_limit && (size_t)S->stats.cached_bytes <= S->cache_limit - bytes;
}

/* A block of at least this many bytes, uninitialised; NULL without an error record when there is none. */
static void *tgi_alloc(tgi_thread *S, size_t bytes)
{
    size_t rounded = 0;
    const int k = tgi_size_class(bytes, &rounded);
    if (k < 0 || k >= TGI_CLASSES) return NULL;
    if (S->free_blocks[k]) {
        void *block = S->free_blocks[k];
        S->free_blocks[k] = *(void **)block;
        S->stats.cached_bytes -= (int64_t)rounded;
        return block;
    }
    return tgi_alloc_or_trim(S, rounded);
}

/* Frees a block that tgi_alloc returned for this many bytes; NULL is allowed. */
static void tgi_free(tgi_thread *S, void *block, size_t bytes)
{
    if (!block) return;
    size_t rounded = 0;
    const int k = tgi_size_class(bytes, &rounded);
    if (!tgi_may_cache(S, rounded)) {
        tgi_raw_free(S, block, rounded);
        return;
    }
    ((void **)block)[0] = S->free_blocks[k];
    ((size_t *)block)[1] = rounded;
    S->free_blocks[k] = block;
    S->stats.cached_bytes += (int64_t)rounded;
}

void tg_set_cache_limit(size_t bytes)
{
    tgi_thread *S = tgi_self();
    S->cache_limit = bytes;
    tgi_trim(S, bytes);
    tgi_trim_handles(S, bytes);
}

/* ---- statistics ---- */

/* Adds this thread's changes since the last report to the process totals. */
static void tgi_report_stats(tgi_thread *S)
{
    TGI_ATOMIC_ADD(&tgi_totals.tensors, S->stats.tensors - S->reported.tensors);
    TGI_ATOMIC_ADD(&tgi_totals.nodes, S->stats.nodes - S->reported.nodes);
    TGI_ATOMIC_ADD(&tgi_totals.bytes, S->stats.bytes - S->reported.bytes);
    TGI_ATOMIC_ADD(&tgi_totals.saved, S->stats.saved - S->reported.saved);
    S->reported = S->stats;
    for (int k = 0; k < TGI_PLACES; ++k) {
        if (S->on[k].bytes == S->reported_on[k]) continue;
        TGI_ATOMIC_ADD(&tgi_total_bytes_on[k], S->on[k].bytes - S->reported_on[k]);
        S->reported_on[k] = S->on[k].bytes;
    }
}

tg_stats_info tg_stats(void)
{
    tgi_thread *S = tgi_self();
    tg_stats_info all = S->stats;
    tgi_report_stats(S);
    all.tensors = TGI_ATOMIC_LOAD(&tgi_totals.tensors);
    all.nodes = TGI_ATOMIC_LOAD(&tgi_totals.nodes);
    all.bytes = TGI_ATOMIC_LOAD(&tgi_totals.bytes);
    all.saved = TGI_ATOMIC_LOAD(&tgi_totals.saved);
    return all;
}

void tg_reset_peak(void)
{
    tgi_thread *S = tgi_self();
    S->stats.peak_tensors = S->stats.tensors;
    S->stats.peak_nodes = S->stats.nodes;
    S->stats.peak_bytes = S->stats.bytes;
    for (int k = 0; k < TGI_PLACES; ++k) S->on[k].peak_bytes = S->on[k].bytes;
}

/* This thread's counts for one device. */
static tg_device_stats *tgi_on_device(tgi_thread *S, int type, int index)
{
    return &S->on[type * TGI_MAX_DEVICES + index];
}

static TGI_UNUSED void tgi_count_wait(tgi_thread *S, int type, int index)
{
    tgi_on_device(S, type, index)->waits++;
}

static void tgi_count_bytes(tgi_thread *S, int type, int index, int64_t bytes)
{
    tg_device_stats *on = tgi_on_device(S, type, index);
    S->stats.bytes += bytes;
    if (S->stats.bytes > S->stats.peak_bytes) S->stats.peak_bytes = S->stats.bytes;
    on->bytes += bytes;
    if (on->bytes > on->peak_bytes) on->peak_bytes = on->bytes;
}

/* "512 bytes", "1.20 MiB". */
typedef struct { char text[32]; } tgi_size_text;
static tgi_size_text tgi_text_of_size(double bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    tgi_size_text size;
    int unit = 0;
    while (bytes >= 1024 && unit < 4) bytes /= 1024, ++unit;
    snprintf(size.text, sizeof size.text, unit ? "%.2f %s" : "%.0f %s", bytes, units[unit]);
    return size;
}

/* The error of a device that has no memory for this many bytes, a double because they may be more than SIZE_MAX.
   `cached` bytes are kept for reuse; those in use are counted over all threads. */
TGI_NOINLINE static bool tgi_no_memory_on(tgi_thread *S, const char *op, int type, int index, double bytes,
                                          int64_t cached)
{
    char device[24] = "cpu";
    if (type != TG_DEV_CPU) snprintf(device, sizeof device, "cuda:%d", index);
    tgi_report_stats(S);
    return tgi_fail(S, TG_ERR_MEMORY, op,
                    "%s is out of memory: tried to allocate %s, %s in use, %s kept for reuse", device,
                    tgi_text_of_size(bytes).text,
                    tgi_text_of_size((double)TGI_ATOMIC_LOAD(&tgi_total_bytes_on[type * TGI_MAX_DEVICES + index])).text,
                    tgi_text_of_size((double)cached).text);
}

/* The same for host memory. */
TGI_NOINLINE static bool tgi_no_memory(tgi_thread *S, const char *op, size_t bytes)
{
    return tgi_no_memory_on(S, op, TG_DEV_CPU, 0, (double)bytes, S->stats.cached_bytes);
}

tg_status tg_set_allocator(const tg_allocator *allocator)
{
    static const tg_allocator none = {NULL, NULL, NULL};
    tgi_thread *S = tgi_self();
    tg_stats_info now = tg_stats();
    if (allocator && (!allocator->alloc || !allocator->free)) {
        tgi_fail(S, TG_ERR_ARGUMENT, "set_allocator", "alloc and free must both be given");
        return TG_ERR_ARGUMENT;
    }
    if (now.tensors || now.nodes || S->frame || TGI_ATOMIC_LOAD(&tgi_threads_alive) > 1) {
        tgi_fail(S, TG_ERR_ARGUMENT, "set_allocator",
                 "%lld tensors and %lld nodes are alive, and %lld other threads hold state\n"
                 "change the allocator before anything is made, or after tg_shutdown()",
                 (long long)now.tensors, (long long)now.nodes,
                 (long long)TGI_ATOMIC_LOAD(&tgi_threads_alive) - 1);
        return TG_ERR_ARGUMENT;
    }
    tgi_trim(S, 0);
    tgi_allocator = allocator ? *allocator : none;
    return TG_OK;
}

void tg_set_num_threads(int threads)
{
#ifdef _OPENMP /* the limit is there because OpenMP ends the process when the system can start no more threads */
    const int most = omp_get_num_procs() < 16 ? 64 : 4 * omp_get_num_procs();
    if (threads > most) threads = most;
    if (threads > omp_get_thread_limit()) threads = omp_get_thread_limit();
#endif
    tgi_self()->threads = threads > 0 ? threads : 0;
}

/* The number of threads for a loop of this much work (elements or multiply-adds): one where to start others would take
   longer than the loop. */
static TGI_UNUSED int tgi_threads_for(const tgi_thread *S, double work)
{
#ifdef _OPENMP
    if (work < 262144 || omp_in_parallel()) return 1;
    return S->threads ? S->threads : omp_get_max_threads();
#else
    (void)S, (void)work;
    return 1;
#endif
}

#endif /* !TGI_CUDA_COMPANION */

/* ======== @@DTYPE ================================================================================================= */

typedef struct { const char *name; size_t size; bool floating; int category; /* bool < int < float */ } tgi_dtype_row;
static const tgi_dtype_row tgi_dtypes[] = {
    {"f32", 4, true, 2}, {"f64", 8, true, 2},  {"bf16", 2, true, 2}, {"f16", 2, true, 2},
    {"i32", 4, false, 1}, {"i64", 8, false, 1}, {"u8", 1, false, 1},  {"bool", 1, false, 0},
};
enum { TGI_DTYPES = (int)(sizeof tgi_dtypes / sizeof tgi_dtypes[0]) };

/* The dtype a kernel computes in: f16 and bf16 in f32, integers and bool in i64. */
static TGI_UNUSED tg_dtype tgi_compute_dtype(tg_dtype dtype)
{
    return dtype == TG_F64 ? TG_F64 : tgi_dtypes[dtype].floating ? TG_F32 : TG_I64;
}

/* ---- conversions, the same on every device ---- */

/* Every device uses these functions.  tensorgrad_cuda.cu defines both macros itself: as __device__ functions, and as a
   product and a sum that the compiler may not contract, so that results have the same bits everywhere. */
#ifndef TGI_INLINE
#define TGI_INLINE static inline
#define TGI_MUL_ADD(a, b, c) ((a) * (b) + (c))
#endif

/* f16 and bf16 as bits.  To f32 is exact.  From f32 rounds to the nearest, ties to even: adding half of the last place
   kept, less one bit where that is even, carries into the exponent (and on to infinity) as it should. */
TGI_INLINE float tgi_float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

TGI_INLINE uint32_t tgi_bits_of_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

TGI_INLINE float tgi_bf16_to_f32(uint16_t bits) { return tgi_float_of_bits((uint32_t)bits << 16); }

TGI_INLINE uint16_t tgi_f32_to_bf16(float x)
{
    const uint32_t bits = tgi_bits_of_float(x);
    if (x != x) return (uint16_t)(bits >> 16 | 0x40); /* keep it a NaN */
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

TGI_INLINE float tgi_f16_to_f32(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7FFF;
    if (rest >= 0x7C00) return tgi_float_of_bits(sign | 0x7F800000 | rest << 13);       /* infinity and NaN */
    if (rest >= 0x0400) return tgi_float_of_bits(sign | ((rest << 13) + (112u << 23))); /* the biases: 127 - 15 */
    const float subnormal = (float)rest * (1 / 16777216.0f);                            /* units of 2^-24 */
    return sign ? -subnormal : subnormal;
}

TGI_INLINE uint16_t tgi_f32_to_f16(float x)
{
    const uint32_t bits = tgi_bits_of_float(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7FFFFFFF;
    if (rest > 0x7F800000) return (uint16_t)(sign | 0x7E00 | (rest >> 13 & 0x3FF));
    if (rest >= 0x477FF000) return (uint16_t)(sign | 0x7C00); /* 65520 and above round to infinity */
    if (rest >= 0x38800000) return (uint16_t)(sign | ((rest - (112u << 23) + 0xFFF + (rest >> 13 & 1)) >> 13));
    /* subnormal: adding 1/2 leaves units of 2^-24, rounded by the addition, in the low bits */
    return (uint16_t)(sign | (tgi_bits_of_float(tgi_float_of_bits(rest) + 0.5f) - tgi_bits_of_float(0.5f)));
}

/* A double as the float from which f16 or bf16 is made.  To round twice would be wrong, so the float is cut off, and
   its last bit is set if anything was lost ("round to odd"): the second rounding then sees on which side of a tie the
   number lies. */
TGI_INLINE float tgi_f64_to_odd_f32(double x)
{
    const float f = (float)x;
    uint32_t bits = tgi_bits_of_float(f);
    if ((double)f == x || x != x) return f;
    if (fabs((double)f) > fabs(x)) bits -= 1;
    return tgi_float_of_bits(bits | 1);
}

TGI_INLINE float tgi_i64_to_odd_f32(int64_t x)
{
    const uint64_t size = x < 0 ? 0 - (uint64_t)x : (uint64_t)x;
    const double kept = (double)(size >> 11 << 11 | (uint64_t)((size & 0x7FF) != 0) << 11); /* 53 bits, to odd */
    const float f = tgi_f64_to_odd_f32(size >> 53 ? kept : (double)size);
    return x < 0 ? -f : f;
}

/* Doubles to integers: numbers out of range become the nearest one in range, and NaN becomes 0. */
TGI_INLINE int64_t tgi_f64_to_i64(double x)
{
    if (x != x) return 0;
    return x >= 9223372036854775808.0 ? INT64_MAX : x < -9223372036854775808.0 ? INT64_MIN : (int64_t)x;
}

TGI_INLINE int32_t tgi_f64_to_i32(double x)
{
    if (x != x) return 0;
    return x >= 2147483647.0 ? INT32_MAX : x <= -2147483648.0 ? INT32_MIN : (int32_t)x;
}

TGI_INLINE uint8_t tgi_f64_to_u8(double x) { return (uint8_t)(x >= 255 ? 255 : x > 0 ? x : 0); /* NaN is not > 0 */ }

/* Integers wrap around, as PyTorch's do: the arithmetic is unsigned. */
TGI_INLINE int64_t tgi_wrap_add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
TGI_INLINE int64_t tgi_wrap_sub(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
TGI_INLINE int64_t tgi_wrap_mul(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

/* base^exponent by squaring.  With a negative exponent it is 1 / base^-exponent without its fraction: 0, but 1 or -1
   for the bases 1 and -1. */
TGI_INLINE int64_t tgi_wrap_pow(int64_t base, int64_t exponent)
{
    int64_t y = 1;
    if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
    for (; exponent; exponent >>= 1, base = tgi_wrap_mul(base, base)) {
        if (exponent & 1) y = tgi_wrap_mul(y, base);
    }
    return y;
}

/* OP(name, stored type, value, value as int64_t, from float, from double, from int64_t), in the order of tg_dtype.  In
   the two value columns x is the stored element; in the last three, which make a stored element, x is the number. */
#define TGI_ELEMENTS(OP)                                                                                   \
    OP(f32, float, x, tgi_f64_to_i64((double)x), x, (float)x, (float)x)                                    \
    OP(f64, double, x, tgi_f64_to_i64(x), (double)x, x, (double)x)                                         \
    OP(bf16, uint16_t, tgi_bf16_to_f32(x), tgi_f64_to_i64((double)tgi_bf16_to_f32(x)), tgi_f32_to_bf16(x), \
       tgi_f32_to_bf16(tgi_f64_to_odd_f32(x)), tgi_f32_to_bf16(tgi_i64_to_odd_f32(x)))                     \
    OP(f16, uint16_t, tgi_f16_to_f32(x), tgi_f64_to_i64((double)tgi_f16_to_f32(x)), tgi_f32_to_f16(x),     \
       tgi_f32_to_f16(tgi_f64_to_odd_f32(x)), tgi_f32_to_f16(tgi_i64_to_odd_f32(x)))                       \
    OP(i32, int32_t, x, x, tgi_f64_to_i32((double)x), tgi_f64_to_i32(x), (int32_t)(uint32_t)(uint64_t)x)   \
    OP(i64, int64_t, x, x, tgi_f64_to_i64((double)x), tgi_f64_to_i64(x), x)                                \
    OP(u8, uint8_t, x, x, tgi_f64_to_u8((double)x), tgi_f64_to_u8(x), (uint8_t)(uint64_t)x)                \
    OP(b8, uint8_t, x != 0, x != 0, x != 0, x != 0, x != 0)

#ifndef TGI_CUDA_COMPANION
static bool tgi_dtype_known(tg_dtype dtype) { return (int)dtype >= 0 && (int)dtype < TGI_DTYPES; }
const char *tg_dtype_name(tg_dtype dtype) { return tgi_dtype_known(dtype) ? tgi_dtypes[dtype].name : "unknown dtype"; }
size_t tg_dtype_size(tg_dtype dtype) { return tgi_dtype_known(dtype) ? tgi_dtypes[dtype].size : 0; }
bool tg_is_floating_point(tg_dtype dtype) { return tgi_dtype_known(dtype) && tgi_dtypes[dtype].floating; }

tg_dtype tg_promote_types(tg_dtype a, tg_dtype b)
{
    if (!tgi_dtype_known(a) || !tgi_dtype_known(b)) {
        tgi_fail(tgi_self(), TG_ERR_DTYPE, "promote_types", "unknown dtype %d", (int)(tgi_dtype_known(a) ? b : a));
        return TG_F32;
    }
    if (a == b) return a;
    if (tgi_dtypes[a].category != tgi_dtypes[b].category)
        return tgi_dtypes[a].category > tgi_dtypes[b].category ? a : b;
    if (tgi_dtypes[a].size != tgi_dtypes[b].size) return tgi_dtypes[a].size > tgi_dtypes[b].size ? a : b;
    return TG_F32; /* bf16 with f16: neither can represent all numbers of the other */
}

tg_status tg_set_default_dtype(tg_dtype dtype)
{
    tgi_thread *S = tgi_self();
    if (!tg_is_floating_point(dtype)) {
        tgi_fail(S, TG_ERR_DTYPE, "set_default_dtype",
                 "only floating-point types are supported as the default type, not %s", tg_dtype_name(dtype));
        return TG_ERR_DTYPE;
    }
    S->default_dtype = dtype;
    return TG_OK;
}

tg_dtype tg_default_dtype(void) { return tgi_self()->default_dtype; }
#endif /* !TGI_CUDA_COMPANION */

/* ======== @@RANDOM ================================================================================================ */

#ifndef TGI_CUDA_COMPANION
void tg_seed(uint64_t seed)
{
    tgi_thread *S = tgi_self();
    S->rng.seed = seed;
    S->rng.offset = 0;
}

tg_rng tg_rng_state(void) { return tgi_self()->rng; }
void tg_rng_set_state(tg_rng state) { tgi_self()->rng = state; }
#endif /* !TGI_CUDA_COMPANION */

/* Random kinds; lo and hi are their two numbers. */
typedef enum {
    TGI_UNIFORM /* [lo, hi) */,
    TGI_NORMAL /* mean lo, deviation hi */,
    TGI_RANDINT /* [lo, hi) */,
    TGI_BERNOULLI /* 1 with probability lo */
} tgi_random;

/* How many elements one counter (128 random bits, four words) makes: four from 32 bits each, or two from 64 bits where
   32 are not enough.  So element i of a call comes from its word i, or its words 2 i and 2 i + 1. */
TGI_INLINE int tgi_random_per_counter(tgi_random kind, tg_dtype dtype)
{
    return kind == TGI_RANDINT || (dtype == TG_F64 && kind != TGI_BERNOULLI) ? 2 : 4;
}

/* How many counters n elements use: a call adds this to the offset of the state, on every device. */
TGI_INLINE uint64_t tgi_random_counters(tgi_random kind, tg_dtype dtype, int64_t n)
{
    const uint64_t per = (uint64_t)tgi_random_per_counter(kind, dtype);
    return ((uint64_t)n + per - 1) / per;
}

/* Philox4x32-10: ten rounds that scramble a counter under a key, after Salmon, Moraes, Dror and Shaw, "Parallel random
   numbers: as easy as 1, 2, 3" (2011).  The words of a counter do not depend on those of other counters. */
TGI_INLINE void tgi_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t word[4])
{
    uint32_t a = counter[0], b = counter[1], c = counter[2], d = counter[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; ++round) {
        const uint64_t p = (uint64_t)0xD2511F53u * a, q = (uint64_t)0xCD9E8D57u * c;
        a = (uint32_t)(q >> 32) ^ b ^ k0;
        c = (uint32_t)(p >> 32) ^ d ^ k1;
        b = (uint32_t)q;
        d = (uint32_t)p;
        k0 += 0x9E3779B9u; /* the golden ratio and sqrt(3) - 1, as fractions of 2^32 */
        k1 += 0xBB67AE85u;
    }
    word[0] = a, word[1] = b, word[2] = c, word[3] = d;
}

/* The four words of counter number `block` of a call that began in state rng. */
TGI_INLINE void tgi_random_block(tg_rng rng, uint64_t block, uint32_t word[4])
{
    const uint64_t at = rng.offset + block;
    const uint32_t counter[4] = {(uint32_t)at, (uint32_t)(at >> 32), 0, 0};
    const uint32_t key[2] = {(uint32_t)rng.seed, (uint32_t)(rng.seed >> 32)};
    tgi_philox(counter, key, word);
}

/* log x of a positive normal number, from its bits and the series of atanh, so that it is the same on every machine:
   x = 2^e m with m in [sqrt(1/2), sqrt(2)), log m = 2 atanh(z), z = (m - 1) / (m + 1), |z| < 0.172.  Within 2 ulp. */
TGI_INLINE double tgi_random_log(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint64_t from_sqrt_half = bits - 0x3FE6A09E667F3BCDu; /* sqrt(1/2) as bits */
    const int64_t e = (int64_t)(from_sqrt_half >> 52) - (from_sqrt_half >> 63 ? 4096 : 0);
    bits = (from_sqrt_half & 0xFFFFFFFFFFFFFu) + 0x3FE6A09E667F3BCDu;
    double m, series = 0;
    memcpy(&m, &bits, sizeof m);
    const double z = (m - 1) / (m + 1), square = z * z;
    for (int odd = 23; odd >= 3; odd -= 2) series = (series + 1.0 / odd) * square;
    return TGI_MUL_ADD((double)e, 0.693147180559945309, 2 * z * (1 + series));
}

/* (a[0] + a[1] r + ... + a[7] r^7) / (1 + b[0] r + ... + b[6] r^7) */
TGI_INLINE double tgi_random_ratio(double r, const double *a, const double *b)
{
    double above = a[7], below = b[6];
    for (int i = 6; i >= 0; --i) above = TGI_MUL_ADD(above, r, a[i]);
    for (int i = 5; i >= 0; --i) below = TGI_MUL_ADD(below, r, b[i]);
    return above / TGI_MUL_ADD(below, r, 1);
}

/* The x below which a standard normal number falls with probability p, 0 < p < 1: PPND16 of Wichura, "Algorithm AS
   241: the percentage points of the normal distribution" (1988), good to 1e-16.  A ratio of two polynomials of degree
   7: of q*q near the middle, of sqrt(-log p) in the tails.  It uses only sums, products, quotients and sqrt, which give
   the same bits on every machine. */
TGI_INLINE double tgi_random_inverse_normal(double p)
{
    static const double middle[15] = {3.3871328727963666080e+0, 1.3314166789178437745e+2, 1.9715909503065514427e+3,
                                      1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
                                      3.3430575583588128105e+4, 2.5090809287301226727e+3, 4.2313330701600911252e+1,
                                      6.8718700749205790830e+2, 5.3941960214247511077e+3, 2.1213794301586595867e+4,
                                      3.9307895800092710610e+4, 2.8729085735721942674e+4, 5.2264952788528545610e+3};
    static const double tail[15] = {1.42343711074968357734e+0, 4.63033784615654529590e+0, 5.76949722146069140550e+0,
                                    3.64784832476320460504e+0, 1.27045825245236838258e+0, 2.41780725177450611770e-1,
                                    2.27238449892691845833e-2, 7.74545014278341407640e-4, 2.05319162663775882187e+0,
                                    1.67638483018380384940e+0, 6.89767334985100004550e-1, 1.48103976427480074590e-1,
                                    1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9};
    static const double far_tail[15] = {
        6.65790464350110377720e+0, 5.46378491116411436990e+0, 1.78482653991729133580e+0, 2.96560571828504891230e-1,
        2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7,
        5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2, 7.86869131145613259100e-4,
        1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15};
    const double q = p - 0.5;
    if (q >= -0.425 && q <= 0.425) return q * tgi_random_ratio(TGI_MUL_ADD(-q, q, 0.180625), middle, middle + 8);
    const double r = sqrt(-tgi_random_log(q < 0 ? p : 1 - p));
    const double x =
        r <= 5 ? tgi_random_ratio(r - 1.6, tail, tail + 8) : tgi_random_ratio(r - 5, far_tail, far_tail + 8);
    return q < 0 ? -x : x;
}

/* The upper half of the 128-bit product: a random 64-bit word times a range lands in [0, range) with a bias below
   range / 2^64, without a division (Lemire, "Fast random integer generation in an interval", 2019). */
TGI_INLINE uint64_t tgi_random_below(uint64_t range, uint64_t word)
{
    const uint64_t low = (range & 0xFFFFFFFFu) * (word & 0xFFFFFFFFu);
    const uint64_t left = (range >> 32) * (word & 0xFFFFFFFFu) + (low >> 32);
    const uint64_t right = (range & 0xFFFFFFFFu) * (word >> 32) + (left & 0xFFFFFFFFu);
    return (range >> 32) * (word >> 32) + (left >> 32) + (right >> 32);
}

TGI_INLINE uint64_t tgi_random_two_words(const uint32_t *word) { return (uint64_t)word[1] << 32 | word[0]; }

/* A number in [0, 1) from one word, or two for f64.  It has only as many bits as the dtype: with more of them, the
   largest ones would round to 1. */
TGI_INLINE double tgi_random_fraction(tg_dtype dtype, const uint32_t *word)
{
    switch (dtype) {
    case TG_F64: return (double)(tgi_random_two_words(word) >> 11) * (1 / 9007199254740992.0);
    case TG_BF16: return (double)(*word >> 24) * (1 / 256.0);
    case TG_F16: return (double)(*word >> 21) * (1 / 2048.0);
    default: return (double)(*word >> 8) * (1 / 16777216.0);
    }
}

/* A standard normal number.  p is the middle of an interval of 2^-32 (f64: 2^-52), so it is never 0 or 1. */
TGI_INLINE double tgi_random_normal(tg_dtype dtype, const uint32_t *word)
{
    if (dtype != TG_F64) return tgi_random_inverse_normal((*word + 0.5) * (1 / 4294967296.0));
    return tgi_random_inverse_normal(((double)(tgi_random_two_words(word) >> 12) + 0.5) * (1 / 4503599627370496.0));
}

/* 1 with this probability, else 0; in steps of 2^-32 in every dtype. */
TGI_INLINE double tgi_random_bernoulli(const uint32_t *word, double probability)
{
    return *word * (1 / 4294967296.0) < probability ? 1 : 0;
}

/* ======== @@TABLE =================================================================================================

   The op table: one row per op.  The rows are expanded into op numbers, kernels (here and in tensorgrad_cuda.cu),
   backward rules, public functions, names for messages, and tests.

   To add an elementwise op:
     1. its row, in the table below that fits its inputs;
     2. its declaration in the public part, under @@ELEMENTWISE;
     3. the declaration of its twin in place, if the row makes one;
     4. its row in tests/samples.h (the call, and the call in place), 5. its samples there, beside those of a neighbour.
   To add an op with a kernel of its own, like cumsum:
     1. its row in TGI_OPS, 2. its declaration in the public part;
     3. its screen in OPS, in this order: kernel, which calls the backend; public function; rule (tgi_rule_NAME);
     4. its entry in TGI_BACKEND_ENTRIES (@@BACKEND), 5. the CPU's function tgi_cpu_ENTRY (@@CPU), 6. CUDA's,
        tgi_cuda_ENTRY, in tensorgrad_cuda.cu;
     7. its row and 8. its samples in tests/samples.h.
   An op made of other ops (a composite, like tg_layer_norm) has no row here: a declaration, a function and samples.

   Columns of the elementwise tables, in which x (or a, b, c) are the inputs, y the output, s and t the op's numbers and
   g the gradient of y:
     name      the op is TGI_OP_name, its function tg_name
     kind      FLOATS computes in floating point, where integers become the default dtype; ANY keeps the dtype; TEST
               makes bool
     y, y      the output: the expression for floats, the one for integers (not used where the kind is FLOATS)
     flags     NOTHING, or a sum of the flags below
     rule      the gradient of each input in public ops; NULL where there is none
     formula   the same as text, for the step player
     public    the functions made from the row (see @@ELEMENTWISE): of x and S (a double), S_T (two) or FLAG (a bool),
               of A and B; with _TWIN also its twin in place, whose name ends in _.  Unary ops of kind FLOATS and ANY
               always have a twin
     arguments the names of the inputs, for messages */

/* What the rule of an op needs, and what else is special about the op: its flags, with their bits. */
#define TGI_FLAGS(FLAG)                                                                                                \
    /* the rule needs: input a (or x), b, c; output y; the second output */                                            \
    FLAG(A, 0) FLAG(B, 1) FLAG(C, 2) FLAG(Y, 3) FLAG(Y2, 4)                                                            \
    /* input a, but only if b requires grad; the reverse; s and t (set for all ops that have them) */                  \
    FLAG(A_FOR_B, 5) FLAG(B_FOR_A, 6) FLAG(NUMBERS, 7)                                                                 \
    /* dtypes: bool is an error; bool is computed in i64; integers are an error */                                     \
    FLAG(NO_BOOL, 8) FLAG(BOOL_TO_I64, 9) FLAG(FLOATS_ONLY, 10)                                                        \
    /* the last input must be bool, and has no part in the result's dtype */                                           \
    FLAG(LAST_IS_MASK, 11)                                                                                             \
    /* numbers of an op on integers are integral, but: s may have a fraction, which makes the result floating, and     \
       must not be negative; s and t may be infinite; s is written as an element, so the dtype must hold it */         \
    FLAG(S_EXPONENT, 12) FLAG(S_T_BOUNDS, 13) FLAG(S_ELEMENT, 14)                                                      \
    /* one 0-dim input on the CPU moves to the device of the others, but: any number of them does; none does */        \
    FLAG(ANY_CPU_SCALARS, 15) FLAG(NO_CPU_SCALARS, 16)                                                                 \
    /* what the op is: a view of its input; a move; a function of the program; one that backward computes again */     \
    FLAG(VIEW, 17) FLAG(MOVE, 18) FLAG(CUSTOM, 19) FLAG(RECOMPUTES, 20)

enum {
#define TGI_FLAG(name, bit) TGI_FLAG_##name = 1 << bit,
    TGI_FLAGS(TGI_FLAG) TGI_NO_FLAGS = 0
#undef TGI_FLAG
};

/* One input, x. */
#define TGI_UNARY_OPS(OP)                                                                                              \
    OP(neg, ANY, -x, tgi_wrap_sub(0, x), NO_BOOL, tg_neg(g), "-g")                                                     \
    OP(abs, ANY, tgi_fabs(x), (x < 0 ? tgi_wrap_sub(0, x) : x), A, tg_mul(g, tg_sign(x)), "g * sign(x)")               \
    OP(sign, ANY, (real)((x > 0) - (x < 0)), (x > 0) - (x < 0), NOTHING, tg_zeros_like(g), "0")                        \
    OP(square, ANY, x * x, tgi_wrap_mul(x, x), A | BOOL_TO_I64, tg_mul(g, tg_mul_scalar(x, 2)), "g * 2 * x")           \
    OP(exp, FLOATS, tgi_exp(x), x, Y, tg_mul(g, y), "g * y")                                                           \
    OP(expm1, FLOATS, tgi_expm1(x), x, Y, tg_mul(g, tg_add_scalar(y, 1)), "g * (y + 1)")                               \
    OP(log, FLOATS, tgi_log(x), x, A, tg_div(g, x), "g / x")                                                           \
    OP(log2, FLOATS, tgi_log2(x), x, A, tg_div(g, tg_mul_scalar(x, 0.69314718055994531)), "g / (x * ln 2)")            \
    OP(log10, FLOATS, tgi_log10(x), x, A, tg_div(g, tg_mul_scalar(x, 2.30258509299404568)), "g / (x * ln 10)")         \
    OP(log1p, FLOATS, tgi_log1p(x), x, A, tg_div(g, tg_add_scalar(x, 1)), "g / (x + 1)")                               \
    OP(sqrt, FLOATS, tgi_sqrt(x), x, Y, tg_div(g, tg_mul_scalar(y, 2)), "g / (2 * y)")                                 \
    OP(rsqrt, FLOATS, 1 / tgi_sqrt(x), x, Y, tg_mul(tg_mul_scalar(g, -0.5), tg_pow_scalar(y, 3)), "g * -y^3 / 2")      \
    OP(reciprocal, FLOATS, 1 / x, x, Y, tg_neg(tg_mul(g, tg_mul(y, y))), "-g * y * y")                                 \
    OP(sin, FLOATS, tgi_sin(x), x, A, tg_mul(g, tg_cos(x)), "g * cos(x)")                                              \
    OP(cos, FLOATS, tgi_cos(x), x, A, tg_neg(tg_mul(g, tg_sin(x))), "-g * sin(x)")                                     \
    OP(tan, FLOATS, tgi_tan(x), x, Y, tg_mul(g, tg_add_scalar(tg_mul(y, y), 1)), "g * (1 + y*y)")                      \
    OP(asin, FLOATS, tgi_asin(x), x, A, tg_mul(g, tg_rsqrt(tg_rsub_scalar(tg_mul(x, x), 1))), "g / sqrt(1 - x*x)")     \
    OP(acos, FLOATS, tgi_acos(x), x, A, tg_neg(tg_mul(g, tg_rsqrt(tg_rsub_scalar(tg_mul(x, x), 1)))),                  \
       "-g / sqrt(1 - x*x)")                                                                                           \
    OP(atan, FLOATS, tgi_atan(x), x, A, tg_div(g, tg_add_scalar(tg_mul(x, x), 1)), "g / (1 + x*x)")                    \
    OP(sinh, FLOATS, tgi_sinh(x), x, A, tg_mul(g, tg_cosh(x)), "g * cosh(x)")                                          \
    OP(cosh, FLOATS, tgi_cosh(x), x, A, tg_mul(g, tg_sinh(x)), "g * sinh(x)")                                          \
    OP(tanh, FLOATS, tgi_tanh(x), x, Y, tg_mul(g, tg_rsub_scalar(tg_mul(y, y), 1)), "g * (1 - y*y)")                   \
    OP(sigmoid, FLOATS, 1 / (1 + tgi_exp(-x)), x, Y, tg_mul(g, tg_mul(y, tg_rsub_scalar(y, 1))), "g * y * (1 - y)")    \
    OP(erf, FLOATS, tgi_erf(x), x, A, tg_mul(g, tg_mul_scalar(tg_exp(tg_neg(tg_mul(x, x))), 1.1283791670955126)),      \
       "g * 2/sqrt(pi) * exp(-x*x)")                                                                                   \
    OP(floor, ANY, tgi_floor(x), x, NOTHING, tg_zeros_like(g), "0")                                                    \
    OP(ceil, ANY, tgi_ceil(x), x, NOTHING, tg_zeros_like(g), "0")                                                      \
    OP(round, ANY, tgi_rint(x), x, NOTHING, tg_zeros_like(g), "0")                                                     \
    OP(trunc, ANY, tgi_trunc(x), x, NOTHING, tg_zeros_like(g), "0")                                                    \
    OP(relu, ANY, x < 0 ? 0 : x, x < 0 ? 0 : x, Y, tg_masked_fill(g, tg_le_scalar(y, 0), 0), "g, 0 where y <= 0")      \
    OP(silu, FLOATS, x / (1 + tgi_exp(-x)), x, A, tgi_silu_gradient(g, x), "g * sigmoid(x) * (1 + x - x*sigmoid(x))")  \
    OP(logsigmoid, FLOATS, (x < 0 ? x : 0) - tgi_log1p(tgi_exp(-tgi_fabs(x))), x, A,                                   \
       tg_mul(g, tg_sigmoid(tg_neg(x))), "g * sigmoid(-x)")                                                            \
    OP(isnan, TEST, x != x, ((void)x, 0), NOTHING, NULL, NULL)                                                         \
    OP(isinf, TEST, x - x != 0 && x == x, ((void)x, 0), NOTHING, NULL, NULL)                                           \
    OP(isfinite, TEST, x - x == 0, ((void)x, 1), NOTHING, NULL, NULL)                                                  \
    OP(logical_not, TEST, x == 0, x == 0, NOTHING, NULL, NULL)

/* One input, x, and the numbers s and t. */
#define TGI_SCALAR_OPS(OP)                                                                                             \
    OP(add_scalar, ANY, x + s, tgi_wrap_add(x, s), BOOL_TO_I64, g, "g", S_TWIN)                                        \
    OP(sub_scalar, ANY, x - s, tgi_wrap_sub(x, s), BOOL_TO_I64, g, "g", S_TWIN)                                        \
    OP(rsub_scalar, ANY, s - x, tgi_wrap_sub(s, x), BOOL_TO_I64, tg_neg(g), "-g", S)                                   \
    OP(mul_scalar, ANY, x * s, tgi_wrap_mul(x, s), BOOL_TO_I64, tg_mul_scalar(g, s), "g * s", S_TWIN)                  \
    OP(div_scalar, FLOATS, x / s, x, NOTHING, tg_div_scalar(g, s), "g / s", S_TWIN)                                    \
    OP(pow_scalar, ANY, tgi_pow_number(x, s), tgi_wrap_pow(x, s), A | BOOL_TO_I64 | S_EXPONENT,                        \
       tgi_pow_scalar_gradient(g, x, s), "g * s * x^(s-1)", S_TWIN)                                                    \
    OP(clamp, ANY, tgi_bound_above(tgi_bound_below(x, s), t), (x < s ? s : x) > t ? t : (x < s ? s : x),               \
       A | BOOL_TO_I64 | S_T_BOUNDS, tgi_clamp_gradient(g, x, s, t), "g where s < x < t, else 0", S_T_TWIN)            \
    OP(leaky_relu, FLOATS, x > 0 ? x : x * s, x, A | FLOATS_ONLY,                                                      \
       tg_where(tg_gt_scalar(x, 0), g, tg_mul_scalar(g, s)), "g where x > 0, else g * slope", S)                       \
    OP(elu, FLOATS, x > 0 ? x : s * tgi_expm1(x), x, A,                                                                \
       tg_where(tg_gt_scalar(x, 0), g, tg_mul(g, tg_mul_scalar(tg_exp(x), s))),                                        \
       "g * alpha * exp(x) where x <= 0, else g", S)                                                                   \
    OP(softplus, FLOATS, x * s > t ? x : tgi_log1p(tgi_exp(x * s)) / s, x, A, tgi_softplus_gradient(g, x, s, t),       \
       "g * sigmoid(beta * x)", S_T)                                                                                   \
    OP(gelu, FLOATS, s != 0 ? tgi_gelu_tanh(x) : tgi_gelu_erf(x), x, A, tgi_gelu_gradient(g, x, s != 0),               \
       "g * (Phi(x) + x * phi(x))", FLAG)                                                                              \
    OP(eq_scalar, TEST, x == s, x == s, NOTHING, NULL, NULL, S)                                                        \
    OP(ne_scalar, TEST, x != s, x != s, NOTHING, NULL, NULL, S)                                                        \
    OP(lt_scalar, TEST, x < s, x < s, NOTHING, NULL, NULL, S)                                                          \
    OP(le_scalar, TEST, x <= s, x <= s, NOTHING, NULL, NULL, S)                                                        \
    OP(gt_scalar, TEST, x > s, x > s, NOTHING, NULL, NULL, S)                                                          \
    OP(ge_scalar, TEST, x >= s, x >= s, NOTHING, NULL, NULL, S)

/* Two inputs, a and b, with a rule for each. */
#define TGI_BINARY_OPS(OP)                                                                                             \
    OP(add, ANY, a + b, tgi_wrap_add(a, b), NOTHING, g, g, "a: g, b: g", AB_TWIN)                                      \
    OP(sub, ANY, a - b, tgi_wrap_sub(a, b), NO_BOOL, g, tg_neg(g), "a: g, b: -g", AB_TWIN)                             \
    OP(mul, ANY, a * b, tgi_wrap_mul(a, b), A_FOR_B | B_FOR_A, tg_mul(g, b), tg_mul(g, a), "a: g * b, b: g * a",       \
       AB_TWIN)                                                                                                        \
    OP(div, FLOATS, a / b, a, A_FOR_B | B, tg_div(g, b), tg_neg(tg_mul(g, tg_div(tg_div(a, b), b))),                   \
       "a: g / b, b: -g * a / b^2", AB_TWIN)                                                                           \
    OP(pow, ANY, tgi_pow(a, b), tgi_wrap_pow(a, b), A | B | Y, tgi_pow_base_gradient(g, a, b),                         \
       tgi_pow_exponent_gradient(g, a, b, y), "a: g * b * a^(b-1), b: g * y * log(a)", AB_TWIN)                        \
    OP(maximum, ANY, ((b > a) | (b != b)) ? b : a, a > b ? a : b, A | B, tgi_larger_gradient(g, a, b),                 \
       tgi_larger_gradient(g, b, a), "g to the larger, half to each where equal", AB)                                  \
    OP(minimum, ANY, ((b < a) | (b != b)) ? b : a, a < b ? a : b, A | B, tgi_larger_gradient(g, b, a),                 \
       tgi_larger_gradient(g, a, b), "g to the smaller, half to each where equal", AB)                                 \
    OP(atan2, FLOATS, tgi_atan2(a, b), a, A | B, tgi_atan2_gradient(g, b, a, b),                                       \
       tgi_atan2_gradient(g, tg_neg(a), a, b), "a: g * b / (a^2 + b^2), b: -g * a / (a^2 + b^2)", AB)                  \
    OP(eq, TEST, a == b, a == b, NOTHING, NULL, NULL, NULL, AB)                                                        \
    OP(ne, TEST, a != b, a != b, NOTHING, NULL, NULL, NULL, AB)                                                        \
    OP(lt, TEST, a < b, a < b, NOTHING, NULL, NULL, NULL, AB)                                                          \
    OP(le, TEST, a <= b, a <= b, NOTHING, NULL, NULL, NULL, AB)                                                        \
    OP(gt, TEST, a > b, a > b, NOTHING, NULL, NULL, NULL, AB)                                                          \
    OP(ge, TEST, a >= b, a >= b, NOTHING, NULL, NULL, NULL, AB)                                                        \
    OP(logical_and, TEST, a != 0 && b != 0, a != 0 && b != 0, NOTHING, NULL, NULL, NULL, AB)                           \
    OP(logical_or, TEST, a != 0 || b != 0, a != 0 || b != 0, NOTHING, NULL, NULL, NULL, AB)                            \
    OP(logical_xor, TEST, (a != 0) != (b != 0), (a != 0) != (b != 0), NOTHING, NULL, NULL, NULL, AB)

/* Three inputs: a, b, c.  The condition of where is c. */
#define TGI_TERNARY_OPS(OP)                                                                                            \
    OP(where, ANY, c != 0 ? a : b, c != 0 ? a : b, C | LAST_IS_MASK | ANY_CPU_SCALARS,                                 \
       tg_where(c, g, tg_zeros_like(g)), tg_where(c, tg_zeros_like(g), g), NULL, "a: g where cond, b: g where not",    \
       "a,b,cond")                                                                                                     \
    OP(lerp, FLOATS, c < (real)0.5 ? a + c * (b - a) : b - (b - a) * (1 - c), a, A | B | C | FLOATS_ONLY,              \
       tg_mul(g, tg_rsub_scalar(c, 1)), tg_mul(g, c), tg_mul(g, tg_sub(b, a)),                                         \
       "a: g * (1-w), b: g * w, w: g * (b-a)", "a,b,weight")

/* Two inputs, a and b, and the number s: value, beta or delta. */
#define TGI_BINARY_SCALAR_OPS(OP)                                                                                      \
    OP(masked_fill, ANY, b != 0 ? s : a, b != 0 ? s : a, B | LAST_IS_MASK | S_ELEMENT, tg_masked_fill(g, b, 0), NULL,  \
       "g, 0 where masked", "x,mask")                                                                                  \
    OP(binary_cross_entropy, FLOATS, (b - 1) * tgi_not_below_100(tgi_log1p(-a)) - b * tgi_not_below_100(tgi_log(a)),   \
       a, A | B | NO_CPU_SCALARS, tgi_bce_gradient(g, a, b), tg_mul(g, tg_sub(tg_log1p(tg_neg(a)), tg_log(a))),        \
       "x: g * (x - t) / (x (1 - x)), t: g * log((1 - x) / x)", "input,target")                                        \
    OP(binary_cross_entropy_with_logits, FLOATS, ((1 - b) * a + (a < 0 ? -a : 0)) + tgi_log1p(tgi_exp(-tgi_fabs(a))),  \
       a, A | B, tg_mul(g, tg_sub(tg_sigmoid(a), b)), tg_neg(tg_mul(g, a)), "x: g * (sigmoid(x) - t), t: -g * x",      \
       "input,target")                                                                                                 \
    OP(mse_loss, FLOATS, (a - b) * (a - b), a, A | B | FLOATS_ONLY, tg_mul(tg_mul_scalar(g, 2), tg_sub(a, b)),         \
       tg_mul(tg_mul_scalar(g, 2), tg_sub(b, a)), "a: g * 2 * (a - b), b: g * 2 * (b - a)", "a,b")                     \
    OP(smooth_l1_loss, FLOATS,                                                                                         \
       tgi_fabs(a - b) < s ? (real)0.5 * (a - b) * (a - b) / s : tgi_fabs(a - b) - (real)0.5 * s, a,                   \
       A | B | FLOATS_ONLY, tg_mul(g, tg_clamp(tg_div_scalar(tg_sub(a, b), s), -1, 1)),                                \
       tg_mul(g, tg_clamp(tg_div_scalar(tg_sub(b, a), s), -1, 1)),                                                     \
       "a: g * clamp((a - b) / beta, -1, 1), b: minus that", "a,b")                                                    \
    OP(huber_loss, FLOATS,                                                                                             \
       tgi_fabs(a - b) <= s ? (real)0.5 * (a - b) * (a - b) : s * (tgi_fabs(a - b) - (real)0.5 * s), a,                \
       A | B | FLOATS_ONLY, tg_mul(g, tg_clamp(tg_sub(a, b), -s, s)), tg_mul(g, tg_clamp(tg_sub(b, a), -s, s)),        \
       "a: g * clamp(a - b, -delta, delta), b: minus that", "a,b")

/* All of these. */
#define TGI_ELEMENTWISE_OPS(OP)                                                                                        \
    TGI_UNARY_OPS(OP) TGI_SCALAR_OPS(OP) TGI_BINARY_OPS(OP) TGI_TERNARY_OPS(OP) TGI_BINARY_SCALAR_OPS(OP)

/* Ops with a screen of their own, in the rooms MOVE and OPS.  Columns: name; the names of the inputs, for messages;
   flags (as above); its formula. */
#define TGI_OPS(OP)                                                                                                    \
    OP(to, "t", MOVE, "g moved back")                                                                                  \
    OP(copy_, "dst,src", NOTHING, "dst: 0, src: g")                                                                    \
    OP(fill_, "t", NOTHING, "0")                                                                                       \
    OP(clone, "t", NOTHING, "g")                                                                                       \
    OP(as_strided, "t", VIEW, "g added into zeros at the view")                                                        \
    OP(strided_add, "t", NOTHING, "the view of g")                                                                     \
    OP(scatter_view, "base,src", NOTHING, "base: g with 0 at the view, src: the view of g")                            \
    OP(reshape, "t", VIEW, "g in the shape of t")                                                                      \
    OP(permute, "t", VIEW, "g with the dims back in order")                                                            \
    OP(expand, "t", VIEW, "g summed over the expanded dims")                                                           \
    OP(slice, "t", VIEW, "g in its place among zeros")                                                                 \
    OP(select, "t", VIEW, "g in its place among zeros")                                                                \
    OP(diagonal, "t", VIEW, "g on the diagonal of zeros")                                                              \
    OP(unfold, "t", VIEW, "every window of g added to its place")                                                      \
    OP(split, "t", VIEW, "the pieces of g joined")                                                                     \
    OP(unbind, "t", VIEW, "the pieces of g stacked")                                                                   \
    OP(sum_to, "t", NOTHING, "g expanded")                                                                             \
    OP(sum, "t", NOTHING, "g expanded")                                                                                \
    OP(mean, "t", NOTHING, "g expanded, divided by the count")                                                         \
    OP(prod, "t", A, "g times the product of the others")                                                              \
    OP(amax, "t", A | Y, "g shared among the largest")                                                                 \
    OP(amin, "t", A | Y, "g shared among the smallest")                                                                \
    OP(max, "t", A | Y, "g shared among the largest, or among the NaN")                                                \
    OP(min, "t", A | Y, "g shared among the smallest, or among the NaN")                                               \
    OP(max_dim, "t", Y2, "g to the index found")                                                                       \
    OP(min_dim, "t", Y2, "g to the index found")                                                                       \
    OP(var, "t", A, "g * 2 * (t - mean) / (n - correction)")                                                           \
    OP(std, "t", A | Y, "g * (t - mean) / (y * (n - correction))")                                                     \
    OP(norm, "t", A | Y, "g * sign(t) * |t|^(p-1) / y^(p-1)")                                                          \
    OP(logsumexp, "t", A | Y, "g * exp(t - y)")                                                                        \
    OP(cumsum, "t", NOTHING, "reverse running sum of g")                                                               \
    OP(sort, "t", Y2, "g back in the order of t")                                                                      \
    OP(softmax, "t", Y, "y * (g - sum(g * y))")                                                                        \
    OP(log_softmax, "t", Y, "g - exp(y) * sum(g)")                                                                     \
    OP(normalize, "x", Y | Y2, "rstd * (g - mean(g) - y * mean(g * y))")                                               \
    OP(matmul, "a,b", A_FOR_B | B_FOR_A, "a: g @ b^T, b: a^T @ g")                                                     \
    OP(gather, "t,index", B, "g added at index to zeros")                                                              \
    OP(scatter, "t,index,src", B, "t: g with 0 at index, src: g at index")                                             \
    OP(scatter_add, "t,index,src", B, "t: g, src: g at index")                                                         \
    OP(cat, "tensors", NOTHING, "each its slice of g")                                                                 \
    OP(flip, "t", NOTHING, "g flipped")                                                                                \
    OP(pad, "t", NOTHING, "the part of g inside")                                                                      \
    OP(checkpoint, "inputs", RECOMPUTES, "runs the function again, then through it")                                   \
    OP(custom, "inputs", CUSTOM, "your backward")

/* Ops that are never recorded: name and names of the inputs, for messages. */
#define TGI_PLAIN_OPS(OP) OP(any, "t") OP(all, "t") OP(nonzero, "t")

/* Public functions that wait for a device, because they read a value from it: see tg_op_waits.  Most are not in the
   table of ops. */
#define TGI_WAITING(OP)                                                                                                \
    OP(item) OP(item_i64) OP(get) OP(copy_out) OP(equal) OP(allclose) OP(nonzero) OP(index) OP(index_put)              \
    OP(index_put_) OP(masked_select) OP(one_hot) OP(print) OP(fprint) OP(to) OP(to_ex) OP(to_like) OP(cpu) OP(to_all)  \
    OP(copy_) OP(from) OP(from_on) OP(gradcheck) OP(gradgradcheck) OP(synchronize)

enum {
#define TGI_ENUM(name, ...) TGI_OP_##name,
    TGI_ELEMENTWISE_OPS(TGI_ENUM) TGI_OPS(TGI_ENUM) TGI_PLAIN_OPS(TGI_ENUM) TGI_OP_COUNT
#undef TGI_ENUM
};

/* ======== @@BACKEND =============================================================================================== */

/* A kernel's view of a tensor: the first element, its type, and strides in elements over the kernel's own dims. */
typedef struct {
    void *data;
    tg_dtype dtype;
    int index; /* of the device that data is on */
    int64_t stride[TG_MAX_DIMS];
} tgi_operand;

/* An elementwise loop: arg[0][i] = kernel(arg[1][i], arg[2][i], ...) for every index i of dim.  Output and inputs may
   be the same memory, element for element.  `compute` is F32, F64 or I64: what the inputs are converted to first. */
enum { TGI_MAX_ARGS = 5 };
typedef struct {
    int kernel; /* TGI_OP_... : the row of the elementwise op */
    tg_dtype compute;
    int ndim;
    int64_t dim[TG_MAX_DIMS];
    int nargs; /* output and inputs */
    tgi_operand arg[TGI_MAX_ARGS];
    double scalar[2]; /* the op's numbers, s and t in the rows */
} tgi_loop;

/* A kernel along one dim: for every index over dim (the other dims), a row of `length` elements of each operand, `step`
   elements apart.  The operands' strides are over dim. */
typedef struct {
    int ndim;
    int64_t dim[TG_MAX_DIMS];
    int64_t length;
    int64_t size; /* gather and scatter: of x along the row's dim; what is indexed beyond it is skipped */
    int nargs;
    tgi_operand arg[TGI_MAX_ARGS];
    int64_t step[TGI_MAX_ARGS];
} tgi_rows;

/* A reduction: out[i] = the combination of all in[i, j], i over dim (kept), j over rdim (reduced), in one fixed order.
   The strides of both operands are over dim; rstride are those of `in` over rdim.  Without elements to reduce, out is
   the identity of the kind. */
typedef enum { TGI_SUM, TGI_PROD, TGI_AMAX, TGI_AMIN, TGI_ANY, TGI_ALL } tgi_reduction;
typedef struct {
    tgi_reduction kind;
    int ndim, rndim;
    int64_t dim[TG_MAX_DIMS], rdim[TG_MAX_DIMS], rstride[TG_MAX_DIMS];
    tgi_operand out, in;
} tgi_reduce;

/* out [b.., m, n] = a [b.., m, k] times b [b.., k, n]; batch dims of size dim[0..ndim), strides of stride[0..ndim) in
   each operand (0: broadcast), rows and columns `row` and `col` elements apart.  out is contiguous in its last two
   dims. */
typedef struct {
    tg_precision precision; /* of f32 on CUDA */
    int ndim;
    int64_t dim[TG_MAX_DIMS];
    int64_t m, n, k;
    tgi_operand out, a, b;
    int64_t a_row, a_col, b_row, b_col;
} tgi_gemm;

/* One optimizer step over one parameter, in place: p and its state s[] from g; all contiguous, of one float dtype.
   All bytes before `index` are equal where a step differs in nothing but the memory it works on. */
typedef enum { TGI_SGD, TGI_ADAM, TGI_ADAMW, TGI_RMSPROP, TGI_ADAGRAD } tgi_optimizer;
typedef struct {
    tgi_optimizer kind;
    bool first, nesterov, amsgrad, centered;
    double lr, weight_decay, momentum, dampening, beta1, beta2, eps, alpha, lr_decay; /* adagrad: lr comes decayed */
    double bias1, bias2;                                                              /* 1 - beta^t */
    tg_dtype dtype;
    int index; /* of the device */
    int64_t n;
    void *p;
    const void *g;
    void *s[3]; /* sgd: buffer; adam: m, v, max v; rmsprop: v, g mean, buffer; adagrad: sum; NULL when not used */
} tgi_optim_step;

/* Which message a bad index gives: see tgi_text_of_bad_index.  Two are for numbers that are no indices but are checked
   in the same way: classes, and flags that must be 0. */
typedef enum {
    TGI_INDEX_OUT_OF_BOUNDS,
    TGI_INDEX_FROM_END, /* may be negative, down to -size */
    TGI_INDEX_IN_SELF,
    TGI_INDEX_TARGET,
    TGI_INDEX_CLASS,
    TGI_INDEX_OUTSIDE_0_1
} tgi_index_message;

/* The functions of a backend, one entry a line: which kinds of device have it (ALL, or DEVICE: only those whose memory
   is not the host's; NULL in the others' rows), result, name, arguments.  The struct, the row of each backend and the
   handshake are made from this table: a new entry is a line here, tgi_cpu_NAME below and tgi_cuda_NAME in
   tensorgrad_cuda.cu.

   Functions that return bool return false after recording an error.  `index` is the device's; kernels find it in their
   operands.  Operands are listed in the order of arg[], the output first. */
#define TGI_BACKEND_ENTRIES(OP)                                                                                        \
    /* The number of devices; 0 is no error. */                                                                        \
    OP(ALL, int, device_count, (void))                                                                                 \
    /* Checks that device *index can be used, after replacing -1 by the current one. */                                \
    OP(ALL, bool, resolve, (tgi_thread *S, const char *op, int *index))                                                \
    /* Makes the device the current one of this thread. */                                                             \
    OP(ALL, bool, set_current, (tgi_thread *S, int index))                                                             \
    /* Frees what this thread holds on all devices. */                                                                 \
    OP(ALL, void, thread_end, (tgi_thread *S))                                                                         \
                                                                                                                       \
    /* Allocates; NULL when there is no memory (no error recorded).  A device works in the order in which a thread     \
       asks; what is allocated for the copy stream may be used there at once, elsewhere after an event. */             \
    OP(ALL, void *, alloc, (tgi_thread *S, int index, size_t bytes, bool for_copy_stream))                             \
    OP(ALL, void, release, (tgi_thread *S, int index, void *data, size_t bytes))                                       \
    /* The bytes that are kept for reuse. */                                                                           \
    OP(ALL, int64_t, cached, (tgi_thread *S, int index))                                                               \
                                                                                                                       \
    /* Copies from host memory, which may be changed when this returns. */                                             \
    OP(ALL, bool, upload, (tgi_thread *S, int index, void *dst, const void *host, size_t bytes))                       \
    /* Copies to host memory, which holds the bytes when this returns. */                                              \
    OP(ALL, bool, download, (tgi_thread *S, int index, void *host, const void *src, size_t bytes))                     \
    /* Copies one element from host memory, as an argument of the device's work: does not wait. */                     \
    OP(ALL, bool, put_element, (tgi_thread *S, int index, void *dst, const void *host, size_t bytes))                  \
    /* Copies between two devices of this type. */                                                                     \
    OP(ALL, bool, peer_copy, (tgi_thread *S, int to, void *dst, int from, const void *src, size_t bytes))              \
                                                                                                                       \
    /* Waits for the work of this thread on the device. */                                                             \
    OP(ALL, bool, synchronize, (tgi_thread *S, int index))                                                             \
    /* Waits for the work of all threads on the device. */                                                             \
    OP(ALL, bool, device_sync, (tgi_thread *S, int index))                                                             \
                                                                                                                       \
    /* Allocates page-locked host memory; NULL when there is none. */                                                  \
    OP(DEVICE, void *, alloc_pinned, (tgi_thread *S, size_t bytes))                                                    \
    /* Frees it; the memory is in use until `event` (or NULL), which this destroys. */                                 \
    OP(DEVICE, void, free_pinned, (tgi_thread *S, void *data, size_t bytes, void *event))                              \
    /* Begins a copy from page-locked memory on the device's copy stream, which overtakes other work; dst was          \
       allocated for that stream. */                                                                                   \
    OP(DEVICE, bool, start_upload, (tgi_thread *S, int index, void *dst, const void *host, size_t bytes))              \
    /* Begins a copy to page-locked memory on the copy stream, after the work asked for so far. */                     \
    OP(DEVICE, bool, start_download, (tgi_thread *S, int index, void *host, const void *src, size_t bytes))            \
    /* Makes an event: the end of the work, or of the copies on the copy stream, that was asked for so far. */         \
    OP(DEVICE, bool, event_record, (tgi_thread *S, int index, bool of_copy_stream, void **event))                      \
    /* The device's further work waits for the event. */                                                               \
    OP(DEVICE, bool, event_wait, (tgi_thread *S, int index, void *event))                                              \
    /* The host waits for the event. */                                                                                \
    OP(DEVICE, bool, event_sync, (tgi_thread *S, int index, void *event))                                              \
    OP(DEVICE, void, event_destroy, (tgi_thread *S, void *event))                                                      \
                                                                                                                       \
    /* arg[0] = the elementwise op loop->kernel of arg[1], ... */                                                      \
    OP(ALL, bool, map, (tgi_thread *S, const tgi_loop *loop))                                                          \
    /* arg[0] = arg[1], converted: float to integer saturates, NaN gives 0; anything but 0 is true. */                 \
    OP(ALL, bool, copy, (tgi_thread *S, const tgi_loop *loop))                                                         \
    /* arg[0] = scalar[0] */                                                                                           \
    OP(ALL, bool, fill, (tgi_thread *S, const tgi_loop *loop))                                                         \
    /* arg[0] += arg[1] in the order of the index; several elements of arg[0] may be the same memory. */               \
    OP(ALL, bool, accumulate, (tgi_thread *S, const tgi_loop *loop))                                                   \
    /* out [n] = start + i * step; out is stride[0] apart. */                                                          \
    OP(ALL, bool, arange, (tgi_thread *S, tgi_operand out, int64_t n, double start, double step))                      \
                                                                                                                       \
    OP(ALL, bool, reduce, (tgi_thread *S, const tgi_reduce *reduce))                                                   \
    /* kind AMAX or AMIN.  Operands: values (data may be NULL), indices (i64), in.  The first NaN, or else the first   \
       of equal ones. */                                                                                               \
    OP(ALL, bool, arg_reduce, (tgi_thread *S, tgi_reduction kind, const tgi_rows *rows))                               \
    /* Operands: out, in. */                                                                                           \
    OP(ALL, bool, cumsum, (tgi_thread *S, const tgi_rows *rows))                                                       \
    /* Operands: values, indices (i64), in.  Stable; NaN is the largest. */                                            \
    OP(ALL, bool, sort, (tgi_thread *S, bool descending, const tgi_rows *rows))                                        \
    /* Operands: y, x. */                                                                                              \
    OP(ALL, bool, softmax, (tgi_thread *S, bool log, const tgi_rows *rows))                                            \
    /* Operands: dx, g, y. */                                                                                          \
    OP(ALL, bool, softmax_backward, (tgi_thread *S, bool log, const tgi_rows *rows))                                   \
    /* Operands: y, rstd (one per row), x.  Normalises only: weight and bias are other ops. */                         \
    OP(ALL, bool, layer_norm, (tgi_thread *S, bool rms, double eps, const tgi_rows *rows))                             \
    /* Operands: dx, g, y, rstd (one per row). */                                                                      \
    OP(ALL, bool, layer_norm_backward, (tgi_thread *S, bool rms, const tgi_rows *rows))                                \
                                                                                                                       \
    /* Called before a kernel reads indices: refuses a bad one at once, or, where that would have to wait for the      \
       device and `now` is false, records it for the next call that waits; kernels skip bad indices.  axis: the dim    \
       of x that is indexed, for the message. */                                                                       \
    OP(ALL, bool, index_check,                                                                                         \
       (tgi_thread *S, const char *op, tgi_operand index, int ndim, const int64_t *dim, int64_t size,                  \
        tgi_index_message message, int axis, bool now))                                                                \
    /* out[i] = x[i with index[i] along the row's dim]; rows over index's shape.  Operands: out, x, index. */          \
    OP(ALL, bool, gather, (tgi_thread *S, const tgi_rows *rows))                                                       \
    /* x[i with index[i] along the row's dim] = src[i], or += ; in the order of the rows.  Operands: x, src, index. */ \
    OP(ALL, bool, scatter, (tgi_thread *S, bool add, const tgi_rows *rows))                                            \
    /* The number of elements of in->arg[0] that are not 0, and their indices in out [count, ndim] (NULL: none). */    \
    OP(ALL, bool, nonzero, (tgi_thread *S, const tgi_loop *in, int64_t *count, int64_t *out))                          \
                                                                                                                       \
    OP(ALL, bool, gemm, (tgi_thread *S, const tgi_gemm *gemm))                                                         \
    /* n contiguous elements; uses tgi_random_counters(kind, dtype, n) counters of rng. */                             \
    OP(ALL, bool, random,                                                                                              \
       (tgi_thread *S, tgi_random kind, tgi_operand out, int64_t n, double lo, double hi, tg_rng rng))                 \
    /* n steps, one after the other, on one device. */                                                                 \
    OP(ALL, bool, optim_step, (tgi_thread * S, const tgi_optim_step *steps, int n))

typedef struct tgi_backend {
    const char *name;
    int type;  /* TG_DEV_... */
    bool host; /* its memory is the host's */
#define TGI_BACKEND_POINTER(kinds, result, name, arguments) result(*name) arguments;
    TGI_BACKEND_ENTRIES(TGI_BACKEND_POINTER)
#undef TGI_BACKEND_POINTER
} tgi_backend;

#define TGI_BACKEND_ONE(...) +1
enum { TGI_BACKEND_COUNT = 0 TGI_BACKEND_ENTRIES(TGI_BACKEND_ONE) };

/* ---- shared by all backends: iteration over strided operands ---- */

/* The column of a compute dtype in tables of kernels. */
static inline int tgi_compute_index(tg_dtype compute) { return compute == TG_F32 ? 0 : compute == TG_F64 ? 1 : 2; }

static inline int64_t tgi_at_most(int64_t n, int64_t most) { return n < most ? n : most; }
static inline int64_t tgi_bytes_of(tg_dtype dtype) { return (int64_t)tgi_dtypes[dtype].size; }

/* A loop over strided operands (PyTorch's TensorIterator) in its simplest form: without dims of size 1, and two
   neighbouring dims merged into one wherever every operand allows it; strides in bytes.  There is at least one dim. */
typedef struct {
    int ndim, nargs;
    int64_t dim[TG_MAX_DIMS], numel;
    char *data[TGI_MAX_ARGS];
    tg_dtype dtype[TGI_MAX_ARGS];
    int64_t stride[TGI_MAX_ARGS][TG_MAX_DIMS];
} tgi_iter;

static TGI_UNUSED void tgi_iter_swap(tgi_iter *iter, int d, int e)
{
    const int64_t size = iter->dim[d];
    iter->dim[d] = iter->dim[e];
    iter->dim[e] = size;
    for (int k = 0; k < iter->nargs; ++k) {
        const int64_t stride = iter->stride[k][d];
        iter->stride[k][d] = iter->stride[k][e];
        iter->stride[k][e] = stride;
    }
}

/* Merges dim d + 1 into dim d wherever all operands allow it. */
static TGI_UNUSED void tgi_iter_merge(tgi_iter *iter)
{
    int last = 0;
    for (int d = 1; d < iter->ndim; ++d) {
        bool one = true;
        for (int k = 0; k < iter->nargs; ++k) one = one && iter->stride[k][last] == iter->stride[k][d] * iter->dim[d];
        if (!one) last++;
        iter->dim[last] = one ? iter->dim[last] * iter->dim[d] : iter->dim[d];
        for (int k = 0; k < iter->nargs; ++k) iter->stride[k][last] = iter->stride[k][d];
    }
    iter->ndim = last + 1;
}

/* Whether every operand is contiguous over dim. */
static bool tgi_all_dense(int ndim, const int64_t *dim, int nargs, const tgi_operand *arg)
{
    for (int k = 0; k < nargs; ++k) {
        int64_t stride = 1;
        for (int d = ndim - 1; d >= 0; stride *= dim[d], --d) {
            if (arg[k].stride[d] != stride && dim[d] != 1) return false;
        }
    }
    return true;
}

/* any_order: the kernel may see the elements in any order, so the dims are sorted by the strides of the first operand,
   the smallest innermost. */
static void tgi_iter_init(tgi_iter *iter, int ndim, const int64_t *dim, int nargs, const tgi_operand *arg,
                          bool any_order)
{
    iter->ndim = 0;
    iter->nargs = nargs;
    iter->numel = 1;
    for (int k = 0; k < nargs; ++k) {
        iter->data[k] = (char *)arg[k].data;
        iter->dtype[k] = arg[k].dtype;
    }
    for (int d = 0; d < ndim; ++d) iter->numel *= dim[d];
    const bool dense = tgi_all_dense(ndim, dim, nargs, arg);
    for (int d = 0; d < ndim && !dense; ++d) {
        if (dim[d] == 1) continue;
        iter->dim[iter->ndim] = dim[d];
        for (int k = 0; k < nargs; ++k) iter->stride[k][iter->ndim] = arg[k].stride[d] * tgi_bytes_of(arg[k].dtype);
        iter->ndim++;
    }
    if (iter->ndim == 0) { /* one dim, of all elements or one */
        iter->dim[0] = iter->numel;
        for (int k = 0; k < nargs; ++k) iter->stride[k][0] = tgi_bytes_of(arg[k].dtype);
        iter->ndim = 1;
        return;
    }
    for (int d = 1; any_order && d < iter->ndim; ++d) { /* insertion sort: stable */
        for (int e = d; e > 0 && llabs(iter->stride[0][e - 1]) < llabs(iter->stride[0][e]); --e)
            tgi_iter_swap(iter, e - 1, e);
    }
    tgi_iter_merge(iter);
}

/* Whether operand k is contiguous over the loop. */
static bool tgi_is_flat(const tgi_iter *iter, int k)
{
    int64_t stride = tgi_bytes_of(iter->dtype[k]);
    for (int d = iter->ndim - 1; d >= 0; stride *= iter->dim[d], --d) {
        if (iter->stride[k][d] != stride) return false;
    }
    return true;
}

/* Whether no two indices are the same element of operand 0: each stride is larger than the distance that the smaller
   ones cover together.  May return false for some operands without overlap. */
static bool tgi_no_overlap(const tgi_iter *iter)
{
    bool seen[TG_MAX_DIMS] = {false};
    int64_t reach = tgi_bytes_of(iter->dtype[0]);
    for (int k = 0; k < iter->ndim; ++k) {
        int next = -1;
        for (int d = 0; d < iter->ndim; ++d) {
            if (!seen[d] && (next < 0 || llabs(iter->stride[0][d]) < llabs(iter->stride[0][next]))) next = d;
        }
        seen[next] = true;
        if (llabs(iter->stride[0][next]) < reach) return false;
        reach += (iter->dim[next] - 1) * llabs(iter->stride[0][next]);
    }
    return true;
}

/* The message for index `at` of dim `axis` with this size, element number `place` of the indices. */
typedef struct { char text[160]; } tgi_bad_index_text;
static TGI_UNUSED tgi_bad_index_text tgi_text_of_bad_index(tgi_index_message message, int64_t at, int64_t place,
                                                          int axis, int64_t size, const char *later)
{
    tgi_bad_index_text words;
    const char *fixed = message == TGI_INDEX_OUTSIDE_0_1 ? "all elements of input should be between 0 and 1"
                        : message != TGI_INDEX_CLASS       ? NULL
                        : at < 0                           ? "Class values must be non-negative."
                                                           : "Class values must be smaller than num_classes.";
    if (fixed) snprintf(words.text, sizeof words.text, "%s%s", fixed, later);
    else if (message == TGI_INDEX_IN_SELF)
        snprintf(words.text, sizeof words.text,
                 "index out of range in self%s: index %lld at position %lld is outside [0, %lld)", later, (long long)at,
                 (long long)place, (long long)size);
    else if (message == TGI_INDEX_TARGET)
        snprintf(words.text, sizeof words.text, "Target %lld is out of bounds.%s", (long long)at, later);
    else
        snprintf(words.text, sizeof words.text, "index %lld is out of bounds for dimension %d with size %lld%s",
                 (long long)at, axis, (long long)size, later);
    return words;
}

/* The loop of accumulate as one of the op add, for operands without overlap: arg[0] = arg[0] + arg[1]. */
static tgi_loop tgi_as_addition(const tgi_loop *loop)
{
    tgi_loop add = *loop;
    add.kernel = TGI_OP_add;
    add.compute = tgi_compute_dtype(loop->arg[0].dtype);
    add.nargs = 3;
    add.arg[1] = loop->arg[0];
    add.arg[2] = loop->arg[1];
    return add;
}

/* ---- shared by all backends: formulas ----

   The functions in the expressions of the op table.  `real` is the type that a kernel computes in, float or double;
   tgi_exp(x) is expf for floats and exp for doubles, and so are the others. */

TGI_INLINE double tgi_not_below(double x, double least) { return x < least ? least : x; }

#define TGI_REAL(call, x) ((real)(sizeof(real) == sizeof(float) ? call##f((float)(x)) : call((double)(x))))
#define TGI_REAL2(call, x, y) \
    ((real)(sizeof(real) == sizeof(float) ? call##f((float)(x), (float)(y)) : call((double)(x), (double)(y))))
#define tgi_fabs(x) TGI_REAL(fabs, x)
#define tgi_exp(x) TGI_REAL(exp, x)
#define tgi_expm1(x) TGI_REAL(expm1, x)
#define tgi_log(x) TGI_REAL(log, x)
#define tgi_log2(x) TGI_REAL(log2, x)
#define tgi_log10(x) TGI_REAL(log10, x)
#define tgi_log1p(x) TGI_REAL(log1p, x)
#define tgi_sqrt(x) TGI_REAL(sqrt, x)
#define tgi_sin(x) TGI_REAL(sin, x)
#define tgi_cos(x) TGI_REAL(cos, x)
#define tgi_tan(x) TGI_REAL(tan, x)
#define tgi_asin(x) TGI_REAL(asin, x)
#define tgi_acos(x) TGI_REAL(acos, x)
#define tgi_atan(x) TGI_REAL(atan, x)
#define tgi_sinh(x) TGI_REAL(sinh, x)
#define tgi_cosh(x) TGI_REAL(cosh, x)
#define tgi_tanh(x) TGI_REAL(tanh, x)
#define tgi_erf(x) TGI_REAL(erf, x)
#define tgi_floor(x) TGI_REAL(floor, x)
#define tgi_ceil(x) TGI_REAL(ceil, x)
#define tgi_rint(x) TGI_REAL(rint, x)
#define tgi_trunc(x) TGI_REAL(trunc, x)
#define tgi_pow(x, y) TGI_REAL2(pow, x, y)
#define tgi_pow_number(x, s) /* PyTorch's roots, which know -0 and -infinity */ \
    ((s) == (real)0.5 ? tgi_sqrt(x) : (s) == (real)-0.5 ? 1 / tgi_sqrt(x) : tgi_pow(x, s))
#define tgi_atan2(y, x) TGI_REAL2(atan2, y, x)
#define tgi_not_below_100(x) ((real)tgi_not_below((double)(x), -100))
#define tgi_bound_below(x, s) ((((x) < (s)) | ((s) != (s))) ? (s) : (x)) /* a bound that is NaN gives NaN */
#define tgi_bound_above(x, t) ((((x) > (t)) | ((t) != (t))) ? (t) : (x))
#define tgi_gelu_erf(x) ((real)0.5 * (x) * (1 + tgi_erf((x) * (real)0.70710678118654752)))
#define tgi_gelu_tanh(x) /* x / 2 * (1 + tanh(u)), which is x * sigmoid(2 u) */ \
    ((x) / (1 + tgi_exp((real)-1.5957691216057308 * ((x) + (real)0.044715 * (x) * (x) * (x)))))

/* Reductions: the identity and the combination of an accumulator a with an element x, for floats and for integers.
   Floats accumulate in double, integers and bool in int64_t. */

#define TGI_REDUCTIONS(OP)                                                 \
    OP(sum, 0, a + x, 0, tgi_wrap_add(a, x))                               \
    OP(prod, 1, a *x, 1, tgi_wrap_mul(a, x))                               \
    OP(amax, -HUGE_VAL, a > x || a != a ? a : x, INT64_MIN, a > x ? a : x) \
    OP(amin, HUGE_VAL, a < x || a != a ? a : x, INT64_MAX, a < x ? a : x)  \
    OP(any, 0, a != 0 || x != 0, 0, a != 0 || x != 0)                      \
    OP(all, 1, a != 0 && x != 0, 1, a != 0 && x != 0)

/* Optimizers, PyTorch's formulas for one element: p the parameter, g its gradient, a, b and c its state (see
   tgi_optim_step), in f32 or f64. */

#define TGI_OPTIMIZERS(OP, suffix, type)                                  \
    OP(sgd, suffix, type, {                                               \
        g += decay * p;                                                   \
        if (step->momentum != 0) {                                        \
            a = step->first ? g : momentum * a + one_minus_dampening * g; \
            g = step->nesterov ? g + momentum * a : a;                    \
        }                                                                 \
        p -= lr * g;                                                      \
    })                                                                    \
    OP(adam, suffix, type, {                                              \
        g += decay * p;                                                   \
        TGI_ADAM_STEP                                                     \
    })                                                                    \
    OP(adamw, suffix, type, {                                             \
        p -= lr * decay * p;                                              \
        TGI_ADAM_STEP                                                     \
    })                                                                    \
    OP(rmsprop, suffix, type, {                                           \
        g += decay * p;                                                   \
        a = alpha * a + (1 - alpha) * g * g;                              \
        if (step->centered) b += (1 - alpha) * (g - b);                   \
        g /= tgi_sqrt(step->centered ? a - b * b : a) + eps;              \
        if (step->momentum > 0) g = c = momentum * c + g;                 \
        p -= lr * g;                                                      \
    })                                                                    \
    OP(adagrad, suffix, type, {                                           \
        g += decay * p;                                                   \
        a += g * g;                                                       \
        p -= lr * g / (tgi_sqrt(a) + eps);                                \
    })
#define TGI_ADAM_STEP                        \
    a += one_minus_beta1 * (g - a);          \
    b = beta2 * b + one_minus_beta2 * g * g; \
    if (step->amsgrad) c = b > c ? b : c;    \
    p -= rate * a / (tgi_sqrt(step->amsgrad ? c : b) / sqrt_bias_correction2 + eps);

/* What a sort moves: an element's key, and its index in the row. */
typedef struct {
    uint64_t key;
    int64_t index;
} tgi_sort_pair;

/* The functions of the library that the CUDA companion calls: it is compiled separately and cannot call static
   functions of the header. */
typedef struct {
    bool (*fail)(tgi_thread *S, tg_status code, const char *op, const char *format, ...);
    bool (*no_memory)(tgi_thread *S, const char *op, int type, int index, double bytes, int64_t cached);
    bool (*fail_later)(tgi_thread *S, tg_status code, const char *op, const char *text);
    void (*count_wait)(tgi_thread *S, int type, int index);
    void *(*take)(tgi_thread *S, size_t bytes); /* host memory, and back */
    void (*give_back)(tgi_thread *S, void *block, size_t bytes);
} tgi_host;

/* The handshake: the program and the companion must be compiled from one header.  They compare these; the number is
   raised when a meaning changes that neither the sizes nor the entries show. */
enum { TGI_CUDA_ABI = 6, TGI_CUDA_SIZES = 9 };
typedef struct {
    int abi;
    size_t size[TGI_CUDA_SIZES];
    const char *entry[TGI_BACKEND_COUNT]; /* result, name and arguments of the backend's functions, as text */
} tgi_cuda_version;
#define TGI_BACKEND_TEXT(kinds, result, name, arguments) #result " " #name #arguments,
#define TGI_CUDA_VERSION_INIT                                                                                          \
    {                                                                                                                  \
        TGI_CUDA_ABI,                                                                                                  \
        {sizeof(tgi_operand), sizeof(tgi_loop), sizeof(tgi_rows), sizeof(tgi_reduce), sizeof(tgi_gemm),                \
         sizeof(tgi_optim_step), sizeof(tgi_backend), (size_t)TGI_OP_COUNT, (size_t)TGI_MAX_DEVICES},                  \
        {TGI_BACKEND_ENTRIES(TGI_BACKEND_TEXT)}                                                                        \
    }

/* tensorgrad_cuda.cu: the CUDA row, or NULL after recording an error when the two versions differ. */
extern const tgi_backend *tgi_cuda_backend(tgi_thread *S, const tgi_host *host, const tgi_cuda_version *version);

#ifndef TGI_CUDA_COMPANION

/* ======== @@CPU =================================================================================================== */

/* ---- conversions between memory and tiles ---- */

/* A tile: up to this many elements side by side in a compute dtype (f32, f64 or i64), on the stack. */
enum { TGI_TILE = 256 };
typedef union {
    float f32[TGI_TILE];
    double f64[TGI_TILE];
    int64_t i64[TGI_TILE];
} tgi_tile;

/* tgi_load_bf16_as_f32(tile, at, step, n) loads n elements of bf16, step bytes apart, into a tile of f32;
   tgi_store_f32_as_bf16 stores a tile of f32 as bf16.  There is such a pair for every element type and compute dtype.
   */
#define TGI_LOAD(from, type, to, compute, value)                                               \
    static void tgi_load_##from##_as_##to(void *tile, const char *at, int64_t step, int64_t n) \
    {                                                                                          \
        compute *const y = (compute *)tile;                                                    \
        for (int64_t i = 0; i < n; ++i) {                                                      \
            const type x = *(const type *)(const void *)(at + i * step);                       \
            y[i] = (compute)(value);                                                           \
        }                                                                                      \
    }
#define TGI_STORE(from, compute, to, type, value)                                               \
    static void tgi_store_##from##_as_##to(const void *tile, char *at, int64_t step, int64_t n) \
    {                                                                                           \
        for (int64_t i = 0; i < n; ++i) {                                                       \
            const compute x = ((const compute *)tile)[i];                                       \
            *(type *)(void *)(at + i * step) = (type)(value);                                   \
        }                                                                                       \
    }
#define TGI_LOAD_AND_STORE(name, type, value, whole, from_f32, from_f64, from_i64) \
    TGI_LOAD(name, type, f32, float, value)                                        \
    TGI_LOAD(name, type, f64, double, value)                                       \
    TGI_LOAD(name, type, i64, int64_t, whole)                                      \
    TGI_STORE(f32, float, name, type, from_f32)                                    \
    TGI_STORE(f64, double, name, type, from_f64)                                   \
    TGI_STORE(i64, int64_t, name, type, from_i64)
TGI_ELEMENTS(TGI_LOAD_AND_STORE)

typedef void (*tgi_load_fn)(void *tile, const char *at, int64_t step, int64_t n);
typedef void (*tgi_store_fn)(const void *tile, char *at, int64_t step, int64_t n);
#define TGI_LOADERS(name, ...) {tgi_load_##name##_as_f32, tgi_load_##name##_as_f64, tgi_load_##name##_as_i64},
#define TGI_STORERS(name, ...) {tgi_store_f32_as_##name, tgi_store_f64_as_##name, tgi_store_i64_as_##name},
static const tgi_load_fn tgi_loaders[][3] = {TGI_ELEMENTS(TGI_LOADERS)};
static const tgi_store_fn tgi_storers[][3] = {TGI_ELEMENTS(TGI_STORERS)};

/* Loads n elements of `dtype`, step bytes apart, into a tile of `compute`. */
static inline void tgi_load_elements(tg_dtype compute, void *tile, tg_dtype dtype, const char *at, int64_t step,
                                     int64_t n)
{
    tgi_loaders[dtype][tgi_compute_index(compute)](tile, at, step, n);
}

/* Stores n elements of a tile of `compute` as `dtype`, step bytes apart. */
static inline void tgi_store_elements(tg_dtype compute, const void *tile, tg_dtype dtype, char *at, int64_t step,
                                      int64_t n)
{
    tgi_storers[dtype][tgi_compute_index(compute)](tile, at, step, n);
}

/* Copies n elements of `size` bytes from x to y, steps in bytes, bits unchanged. */
static void tgi_copy_run(char *y, int64_t y_step, const char *x, int64_t x_step, int64_t n, int64_t size)
{
    if (y_step == size && x_step == size) {
        memmove(y, x, (size_t)(n * size));
        return;
    }
    switch (size) { /* a memcpy of constant size is one load and one store */
    case 1:
        for (int64_t i = 0; i < n; ++i) y[i * y_step] = x[i * x_step];
        return;
    case 2:
        for (int64_t i = 0; i < n; ++i) memcpy(y + i * y_step, x + i * x_step, 2);
        return;
    case 4:
        for (int64_t i = 0; i < n; ++i) memcpy(y + i * y_step, x + i * x_step, 4);
        return;
    default:
        for (int64_t i = 0; i < n; ++i) memcpy(y + i * y_step, x + i * x_step, 8);
        return;
    }
}

/* ---- iteration over strided operands, threads, scratch memory ---- */

/* The number of elements if all operands are contiguous and it is small, so that neither an iterator nor threads would
   save time; else -1. */
static int64_t tgi_small_contiguous(const tgi_loop *loop, int nargs)
{
    int64_t n = 1;
    for (int d = 0; d < loop->ndim; ++d) n *= loop->dim[d];
    return n < 4096 && tgi_all_dense(loop->ndim, loop->dim, nargs, loop->arg) ? n : -1;
}

/* A position in an iteration: an index, and the address of that element in each operand. */
typedef struct {
    int64_t index[TG_MAX_DIMS];
    char *at[TGI_MAX_ARGS];
} tgi_cursor;

static tgi_cursor tgi_cursor_at(const tgi_iter *iter, int64_t element)
{
    tgi_cursor cursor;
    for (int k = 0; k < iter->nargs; ++k) cursor.at[k] = iter->data[k];
    for (int d = iter->ndim - 1; d >= 0; --d) {
        cursor.index[d] = 0;
        if (element == 0) continue; /* the usual start, without divisions */
        cursor.index[d] = d ? element % iter->dim[d] : element;
        element /= iter->dim[d];
        for (int k = 0; k < iter->nargs; ++k) cursor.at[k] += cursor.index[d] * iter->stride[k][d];
    }
    return cursor;
}

/* Elements left in the innermost dim, at most `most`. */
static inline int64_t tgi_cursor_run(const tgi_cursor *cursor, const tgi_iter *iter, int64_t most)
{
    const int64_t left = iter->dim[iter->ndim - 1] - cursor->index[iter->ndim - 1];
    return left < most ? left : most;
}

/* Advances by n elements, at most to the end of the innermost dim. */
static void tgi_cursor_advance(tgi_cursor *cursor, const tgi_iter *iter, int64_t n)
{
    int d = iter->ndim - 1;
    cursor->index[d] += n;
    for (int k = 0; k < iter->nargs; ++k) cursor->at[k] += n * iter->stride[k][d];
    for (; d > 0 && cursor->index[d] == iter->dim[d]; --d) {
        cursor->index[d] = 0;
        cursor->index[d - 1]++;
        for (int k = 0; k < iter->nargs; ++k) {
            cursor->at[k] += iter->stride[k][d - 1] - iter->dim[d] * iter->stride[k][d];
        }
    }
}

/* One part of a job: items [first, end); thread counts from 0.  The result of an item must not depend on the part that
   it is in, so that any number of threads gives the same bits. */
typedef void (*tgi_range_fn)(const void *job, int thread, int64_t first, int64_t end);
#ifdef _OPENMP
#define TGI_PRAGMA(text) _Pragma(#text)
#define TGI_PARALLEL_FOR(threads) TGI_PRAGMA(omp parallel for num_threads(threads) schedule(static, 1))
#else
#define TGI_PARALLEL_FOR(threads)
#endif

/* The number of parts for n items that are this much work together. */
static int tgi_parts_for(const tgi_thread *S, double work, int64_t n)
{
    const int threads = tgi_threads_for(S, work);
    return n < threads ? (int)n : threads;
}

/* Calls part for the items [0, n) in so many parts of about equal size, one per thread. */
TGI_NOINLINE static void tgi_parallel_for(int parts, int64_t n, tgi_range_fn part, const void *job)
{
    if (parts <= 1) {
        part(job, 0, 0, n);
        return;
    }
    TGI_PARALLEL_FOR(parts)
    for (int k = 0; k < parts; ++k) {
        const int64_t share = n / parts, rest = n % parts;
        part(job, k, share * k + (k < rest ? k : rest), share * (k + 1) + (k + 1 < rest ? k + 1 : rest));
    }
}

/* Scratch memory for the threads of a job: up to TGI_STACK_SCRATCH bytes are on their stacks, more is allocated before
   they start. */
enum { TGI_STACK_SCRATCH = 8192 };
typedef struct {
    char *each; /* thread k's begins at each + k * bytes; NULL: a part has TGI_STACK_SCRATCH bytes of its own */
    size_t bytes, total; /* per thread; in all */
} tgi_scratch;

static bool tgi_scratch_alloc(tgi_thread *S, const char *op, tgi_scratch *scratch, size_t bytes, int threads)
{
    scratch->each = NULL;
    scratch->bytes = (bytes + 63) / 64 * 64;
    scratch->total = 0;
    if (bytes <= TGI_STACK_SCRATCH) return true;
    if (!tgi_mul_size(scratch->bytes, (size_t)(threads > 1 ? threads : 1), &scratch->total)) scratch->total = SIZE_MAX;
    scratch->each = (char *)tgi_alloc(S, scratch->total);
    return scratch->each || tgi_no_memory(S, op, scratch->total);
}

/* ---- devices, memory, copies: the CPU is always there and never waits ---- */

static int tgi_cpu_device_count(void) { return 1; }
static void tgi_cpu_thread_end(tgi_thread *S) { (void)S; }

static bool tgi_cpu_resolve(tgi_thread *S, const char *op, int *index)
{
    (void)S, (void)op;
    *index = 0;
    return true;
}

static bool tgi_cpu_set_current(tgi_thread *S, int index)
{
    (void)S, (void)index;
    return true;
}

static void *tgi_cpu_alloc(tgi_thread *S, int index, size_t bytes, bool for_copy_stream)
{
    (void)index, (void)for_copy_stream;
    return tgi_alloc(S, bytes);
}

static void tgi_cpu_release(tgi_thread *S, int index, void *data, size_t bytes)
{
    (void)index;
    tgi_free(S, data, bytes);
}

static int64_t tgi_cpu_cached(tgi_thread *S, int index)
{
    (void)index;
    return S->stats.cached_bytes;
}

static bool tgi_cpu_upload(tgi_thread *S, int index, void *dst, const void *host, size_t bytes)
{
    (void)S, (void)index;
    if (bytes) memmove(dst, host, bytes);
    return true;
}

static bool tgi_cpu_download(tgi_thread *S, int index, void *host, const void *src, size_t bytes)
{
    return tgi_cpu_upload(S, index, host, src, bytes);
}

static bool tgi_cpu_put_element(tgi_thread *S, int index, void *dst, const void *host, size_t bytes)
{
    return tgi_cpu_upload(S, index, dst, host, bytes);
}

static bool tgi_cpu_peer_copy(tgi_thread *S, int to, void *dst, int from, const void *src, size_t bytes)
{
    (void)from;
    return tgi_cpu_upload(S, to, dst, src, bytes);
}

static bool tgi_cpu_synchronize(tgi_thread *S, int index)
{
    (void)S, (void)index;
    return true;
}

static bool tgi_cpu_device_sync(tgi_thread *S, int index) { return tgi_cpu_synchronize(S, index); }

/* ---- elementwise ops: the kernel of each row ---- */

/* y [n] = the expression of the op's row in x [n], or in a, b and c [n]; all contiguous; y may be one of the inputs. */
typedef void (*tgi_map_kernel)(int64_t n, const double *scalar, void *y, const void *in0, const void *in1,
                               const void *in2);

/* A number of an op, as the kernels for integers read it. */
TGI_NOINLINE static int64_t tgi_number_i64(double s) { return tgi_f64_to_i64(s); }

#define TGI_KERNEL(name, column, type, result, number, inputs, expression)                                        \
    static void tgi_##name##_##column(int64_t n, const double *scalar, void *y, const void *in0, const void *in1, \
                                      const void *in2)                                                            \
    {                                                                                                             \
        typedef type real;                                                                                        \
        const real s = number(scalar[0]), t = number(scalar[1]);                                                  \
        (void)s, (void)t, (void)in0, (void)in1, (void)in2;                                                        \
        for (int64_t i = 0; i < n; ++i) {                                                                         \
            TGI_IN_##inputs;                                                                                      \
            ((result *)y)[i] = (result)(expression);                                                              \
        }                                                                                                         \
    }
#define TGI_IN_X const real x = ((const real *)in0)[i]
#define TGI_IN_AB const real a = ((const real *)in0)[i], b = ((const real *)in1)[i]
#define TGI_IN_ABC                                                                                 \
    const real a = ((const real *)in0)[i], b = ((const real *)in1)[i], c = ((const real *)in2)[i]; \
    (void)b, (void)c

#define TGI_KERNELS_FLOATS(name, inputs, y, yi)           \
    TGI_KERNEL(name, f32, float, real, (real), inputs, y) \
    TGI_KERNEL(name, f64, double, real, (real), inputs, y)
#define TGI_KERNELS_ANY(name, inputs, y, yi) \
    TGI_KERNELS_FLOATS(name, inputs, y, yi)  \
    TGI_KERNEL(name, i64, int64_t, real, tgi_number_i64, inputs, yi)
#define TGI_KERNELS_TEST(name, inputs, y, yi)                 \
    TGI_KERNEL(name, f32, float, uint8_t, (real), inputs, y)  \
    TGI_KERNEL(name, f64, double, uint8_t, (real), inputs, y) \
    TGI_KERNEL(name, i64, int64_t, uint8_t, tgi_number_i64, inputs, yi)

#define TGI_KERNELS_X(name, kind, y, yi, ...) TGI_KERNELS_##kind(name, X, y, yi)
#define TGI_KERNELS_AB(name, kind, y, yi, ...) TGI_KERNELS_##kind(name, AB, y, yi)
#define TGI_KERNELS_ABC(name, kind, y, yi, ...) TGI_KERNELS_##kind(name, ABC, y, yi)
TGI_UNARY_OPS(TGI_KERNELS_X)
TGI_SCALAR_OPS(TGI_KERNELS_X)
TGI_BINARY_OPS(TGI_KERNELS_AB)
TGI_TERNARY_OPS(TGI_KERNELS_ABC)
TGI_BINARY_SCALAR_OPS(TGI_KERNELS_AB)

/* By op: the kernel in f32, f64 and i64 (NULL: not for integers), and whether it makes bool. */
typedef struct {
    tgi_map_kernel kernel[3];
    bool test;
} tgi_map_row;
#define TGI_MAP_ROW_FLOATS(name) {{tgi_##name##_f32, tgi_##name##_f64, NULL}, false},
#define TGI_MAP_ROW_ANY(name) {{tgi_##name##_f32, tgi_##name##_f64, tgi_##name##_i64}, false},
#define TGI_MAP_ROW_TEST(name) {{tgi_##name##_f32, tgi_##name##_f64, tgi_##name##_i64}, true},
#define TGI_MAP_ROW(name, kind, ...) TGI_MAP_ROW_##kind(name)
static const tgi_map_row tgi_map_rows[] = {TGI_ELEMENTWISE_OPS(TGI_MAP_ROW)};

/* ---- elementwise ops: the loop that calls a kernel, copy, fill, accumulate, arange ---- */

typedef struct {
    tgi_iter iter;
    tgi_map_kernel kernel;
    double scalar[2];
    tg_dtype compute, result; /* of the kernel's inputs and of what it writes */
    bool flat[TGI_MAX_ARGS];  /* contiguous and of the kernel's dtype: needs no tile */
    bool same[TGI_MAX_ARGS];  /* an input that is one number everywhere: its tile is filled once */
    int64_t most;             /* elements per call of the kernel */
} tgi_map_job;

/* Loads n elements of operand k, from the cursor on, into a tile. */
static void tgi_load_tile(const tgi_iter *iter, int k, tgi_cursor cursor, tg_dtype compute, tgi_tile *tile, int64_t n)
{
    const int64_t size = tgi_bytes_of(compute), step = iter->stride[k][iter->ndim - 1];
    for (int64_t done = 0, run; done < n; done += run) {
        run = tgi_cursor_run(&cursor, iter, n - done);
        tgi_load_elements(compute, (char *)tile + done * size, iter->dtype[k], cursor.at[k], step, run);
        tgi_cursor_advance(&cursor, iter, run);
    }
}

/* Stores n elements of a tile to operand 0 (the output), from the cursor on, converting to its dtype.  A tile of bool
   holds bytes 0 and 1. */
static void tgi_store_tile(const tgi_iter *iter, tgi_cursor cursor, tg_dtype result, const tgi_tile *tile, int64_t n)
{
    const int64_t size = tgi_bytes_of(result), step = iter->stride[0][iter->ndim - 1];
    for (int64_t done = 0, run; done < n; done += run) {
        const char *from = (const char *)tile + done * size;
        run = tgi_cursor_run(&cursor, iter, n - done);
        if (iter->dtype[0] == result)
            tgi_copy_run(cursor.at[0], step, from, size, run, size);
        else if (result == TG_BOOL) {
            tgi_tile wide;
            tgi_load_elements(TG_I64, &wide, TG_BOOL, from, 1, run);
            tgi_store_elements(TG_I64, &wide, iter->dtype[0], cursor.at[0], step, run);
        } else {
            tgi_store_elements(result, from, iter->dtype[0], cursor.at[0], step, run);
        }
        tgi_cursor_advance(&cursor, iter, run);
    }
}

/* Calls the kernel on up to `most` elements at a time.  Operands that are not contiguous or have another dtype go
   through tiles: at[k] points to the elements themselves or to the tile. */
static void tgi_map_part(const void *job_, int thread, int64_t first, int64_t end)
{
    const tgi_map_job *job = (const tgi_map_job *)job_;
    const tgi_iter *iter = &job->iter;
    const int inner = iter->ndim - 1;
    const bool long_runs = iter->dim[inner] >= TGI_TILE / 4; /* a tile holds a part of one run; else several runs */
    tgi_cursor cursor = tgi_cursor_at(iter, first);
    tgi_tile tile[4];
    bool filled[4] = {false, false, false, false};
    (void)thread;
    for (int64_t n; first < end; first += n) {
        void *at[4] = {NULL, NULL, NULL, NULL};
        bool in_tile = false;
        n = tgi_at_most(end - first, job->most);
        if (long_runs) n = tgi_cursor_run(&cursor, iter, n);
        for (int k = iter->nargs - 1; k >= 0; --k) {
            const tg_dtype dtype = k ? job->compute : job->result;
            at[k] = cursor.at[k];
            if (job->flat[k]) continue;
            if (long_runs && iter->dtype[k] == dtype && iter->stride[k][inner] == tgi_bytes_of(dtype)) continue;
            at[k] = &tile[k];
            if (k == 0)
                in_tile = true;
            else if (!job->same[k])
                tgi_load_tile(iter, k, cursor, dtype, &tile[k], n);
            else if (!filled[k])
                tgi_load_elements(dtype, &tile[k], iter->dtype[k], cursor.at[k], 0, TGI_TILE);
            filled[k] = job->same[k];
        }
        job->kernel(n, job->scalar, at[0], at[1], at[2], at[3]);
        if (in_tile) tgi_store_tile(iter, cursor, job->result, &tile[0], n);
        for (int64_t done = 0, run; done < n; done += run) {
            run = tgi_cursor_run(&cursor, iter, n - done);
            tgi_cursor_advance(&cursor, iter, run);
        }
    }
}

static bool tgi_cpu_map(tgi_thread *S, const tgi_loop *loop)
{
    const tgi_map_row *row = &tgi_map_rows[loop->kernel];
    const int64_t few = tgi_small_contiguous(loop, loop->nargs);
    tgi_map_job job;
    bool direct = true, all_flat = true;
    job.kernel = row->kernel[tgi_compute_index(loop->compute)];
    job.compute = loop->compute;
    job.result = row->test ? TG_BOOL : loop->compute;
    if (!job.kernel)
        return tgi_fail(S, TG_ERR_UNSUPPORTED, "map", "no kernel of op %d computes in %s", loop->kernel,
                        tg_dtype_name(loop->compute));
    for (int k = 0; k < loop->nargs; ++k) direct = direct && loop->arg[k].dtype == (k ? job.compute : job.result);
    if (direct && few >= 0) {
        const void *in[3] = {NULL, NULL, NULL};
        for (int k = 1; k < loop->nargs; ++k) in[k - 1] = loop->arg[k].data;
        job.kernel(few, loop->scalar, loop->arg[0].data, in[0], in[1], in[2]);
        return true;
    }
    tgi_iter_init(&job.iter, loop->ndim, loop->dim, loop->nargs, loop->arg, true);
    if (job.iter.numel == 0) return true;
    job.scalar[0] = loop->scalar[0];
    job.scalar[1] = loop->scalar[1];
    for (int k = 0; k < job.iter.nargs; ++k) {
        job.flat[k] = job.iter.dtype[k] == (k ? job.compute : job.result) && tgi_is_flat(&job.iter, k);
        job.same[k] = k > 0;
        for (int d = 0; d < job.iter.ndim; ++d) job.same[k] = job.same[k] && job.iter.stride[k][d] == 0;
        all_flat = all_flat && job.flat[k];
    }
    job.most = all_flat ? INT64_MAX : (int64_t)TGI_TILE;
    tgi_parallel_for(tgi_parts_for(S, (double)job.iter.numel, job.iter.numel), job.iter.numel, tgi_map_part, &job);
    return true;
}

/* Copies of one dtype move bits; others convert through tiles of the source's compute dtype, which holds all its
   values. */
static void tgi_copy_part(const void *job, int thread, int64_t first, int64_t end)
{
    const tgi_iter *iter = (const tgi_iter *)job;
    const int inner = iter->ndim - 1;
    const tg_dtype compute = tgi_compute_dtype(iter->dtype[1]);
    const int64_t step0 = iter->stride[0][inner], step1 = iter->stride[1][inner];
    tgi_cursor cursor = tgi_cursor_at(iter, first);
    tgi_tile tile;
    (void)thread;
    for (int64_t run; first < end; first += run) {
        if (iter->dtype[0] == iter->dtype[1]) {
            run = tgi_cursor_run(&cursor, iter, end - first);
            tgi_copy_run(cursor.at[0], step0, cursor.at[1], step1, run, tgi_bytes_of(iter->dtype[0]));
        } else {
            run = tgi_cursor_run(&cursor, iter, tgi_at_most(end - first, TGI_TILE));
            tgi_load_elements(compute, &tile, iter->dtype[1], cursor.at[1], step1, run);
            tgi_store_elements(compute, &tile, iter->dtype[0], cursor.at[0], step0, run);
        }
        tgi_cursor_advance(&cursor, iter, run);
    }
}

/* A transpose goes by squares of 16 x 16 elements: in the memory order of one side, every access to the other would
   miss the cache.  A square spans the innermost dim and the dim in which the source has its smallest stride. */
enum { TGI_SQUARE = 16 };
static void tgi_transpose_part(const void *job, int thread, int64_t first, int64_t end)
{
    const tgi_iter *iter = (const tgi_iter *)job; /* dims: others.., rows, columns */
    const int r = iter->ndim - 2, c = iter->ndim - 1;
    const int64_t size = tgi_bytes_of(iter->dtype[0]), columns = iter->dim[c];
    const int64_t bands = (iter->dim[r] + TGI_SQUARE - 1) / TGI_SQUARE; /* of rows, per index of the others */
    (void)thread;
    for (; first < end; ++first) {
        const int64_t row = first % bands * TGI_SQUARE;
        const int64_t rows = tgi_at_most(iter->dim[r] - row, TGI_SQUARE);
        const tgi_cursor cursor = tgi_cursor_at(iter, (first / bands * iter->dim[r] + row) * columns);
        for (int64_t column = 0; column < columns; column += TGI_SQUARE) {
            const int64_t run = tgi_at_most(columns - column, TGI_SQUARE);
            for (int64_t i = 0; i < rows; ++i) {
                tgi_copy_run(cursor.at[0] + i * iter->stride[0][r] + column * iter->stride[0][c], iter->stride[0][c],
                             cursor.at[1] + i * iter->stride[1][r] + column * iter->stride[1][c], iter->stride[1][c],
                             run, size);
            }
        }
    }
}

static bool tgi_cpu_copy(tgi_thread *S, const tgi_loop *loop)
{
    const int64_t few = tgi_small_contiguous(loop, 2);
    tgi_iter iter;
    if (few >= 0 && loop->arg[0].dtype == loop->arg[1].dtype) {
        if (few > 0) memmove(loop->arg[0].data, loop->arg[1].data, (size_t)few * tgi_dtypes[loop->arg[0].dtype].size);
        return true;
    }
    tgi_iter_init(&iter, loop->ndim, loop->dim, 2, loop->arg, true);
    const int parts = tgi_parts_for(S, (double)iter.numel, iter.numel);
    int closest = iter.ndim - 1;
    if (iter.numel == 0) return true;
    for (int d = 0; d < iter.ndim; ++d) {
        if (llabs(iter.stride[1][d]) < llabs(iter.stride[1][closest])) closest = d;
    }
    if (closest == iter.ndim - 1 || iter.stride[1][closest] == 0 || iter.dtype[0] != iter.dtype[1]) {
        tgi_parallel_for(parts, iter.numel, tgi_copy_part, &iter);
        return true;
    }
    for (; closest < iter.ndim - 2; ++closest) tgi_iter_swap(&iter, closest, closest + 1);
    const int64_t rows = iter.dim[iter.ndim - 2], others = iter.numel / rows / iter.dim[iter.ndim - 1];
    tgi_parallel_for(parts, others * ((rows + TGI_SQUARE - 1) / TGI_SQUARE), tgi_transpose_part, &iter);
    return true;
}

/* fill: a tile is filled with the number in the output's dtype and then copied to all of the output. */
typedef struct {
    tgi_iter iter;
    tgi_tile tile;
} tgi_fill_job;

static void tgi_fill_part(const void *job_, int thread, int64_t first, int64_t end)
{
    const tgi_fill_job *job = (const tgi_fill_job *)job_;
    const int64_t size = tgi_bytes_of(job->iter.dtype[0]), step = job->iter.stride[0][job->iter.ndim - 1];
    tgi_cursor cursor = tgi_cursor_at(&job->iter, first);
    (void)thread;
    for (int64_t run; first < end; first += run) {
        run = tgi_cursor_run(&cursor, &job->iter, tgi_at_most(end - first, TGI_TILE));
        tgi_copy_run(cursor.at[0], step, (const char *)&job->tile, size, run, size);
        tgi_cursor_advance(&cursor, &job->iter, run);
    }
}

static bool tgi_cpu_fill(tgi_thread *S, const tgi_loop *loop)
{
    tgi_fill_job job;
    tgi_tile value;
    const tg_dtype dtype = loop->arg[0].dtype;
    tgi_iter_init(&job.iter, loop->ndim, loop->dim, 1, loop->arg, true);
    const int64_t n = job.iter.numel, copies = tgi_at_most(n, TGI_TILE);
    if (n == 0) return true;
    for (int64_t i = 0; i < copies; ++i) value.f64[i] = loop->scalar[0];
    tgi_store_elements(TG_F64, &value, dtype, (char *)&job.tile, tgi_bytes_of(dtype), copies);
    tgi_parallel_for(tgi_parts_for(S, (double)n, n), n, tgi_fill_part, &job);
    return true;
}

/* y[i] += x[i] for n elements of a dtype, steps in bytes; in order, since all y[i] may be one element (y_step 0). */
static void tgi_add_run(tg_dtype dtype, char *y, int64_t y_step, const char *x, int64_t x_step, int64_t n)
{
    const tg_dtype compute = tgi_compute_dtype(dtype);
    const tgi_map_kernel add = tgi_map_rows[TGI_OP_add].kernel[tgi_compute_index(compute)];
    const double no_scalar[2] = {0, 0};
    const int64_t size = tgi_bytes_of(dtype), most = y_step ? (int64_t)TGI_TILE : 1;
    if (dtype == compute && (n == 1 || (y_step == size && x_step == size))) {
        add(n, no_scalar, y, y, x, NULL);
        return;
    }
    for (int64_t run; n > 0; n -= run, y += run * y_step, x += run * x_step) {
        tgi_tile sum, term;
        run = tgi_at_most(n, most);
        tgi_load_elements(compute, &sum, dtype, y, y_step, run);
        tgi_load_elements(compute, &term, dtype, x, x_step, run);
        add(run, no_scalar, &sum, &sum, &term, NULL);
        tgi_store_elements(compute, &sum, dtype, y, y_step, run);
    }
}

static bool tgi_cpu_accumulate(tgi_thread *S, const tgi_loop *loop)
{
    const int64_t few = tgi_small_contiguous(loop, 2), size = tgi_bytes_of(loop->arg[0].dtype);
    tgi_iter iter;
    if (few >= 0) {
        tgi_add_run(loop->arg[0].dtype, (char *)loop->arg[0].data, size, (const char *)loop->arg[1].data, size, few);
        return true;
    }
    tgi_iter_init(&iter, loop->ndim, loop->dim, 2, loop->arg, false);
    const int inner = iter.ndim - 1;
    if (iter.numel == 0) return true;
    if (tgi_no_overlap(&iter)) {
        const tgi_loop add = tgi_as_addition(loop);
        return tgi_cpu_map(S, &add);
    }
    tgi_cursor cursor = tgi_cursor_at(&iter, 0);
    for (int64_t done = 0; done < iter.numel; done += iter.dim[inner]) {
        tgi_add_run(iter.dtype[0], cursor.at[0], iter.stride[0][inner], cursor.at[1], iter.stride[1][inner],
                    iter.dim[inner]);
        tgi_cursor_advance(&cursor, &iter, iter.dim[inner]);
    }
    return true;
}

static bool tgi_cpu_arange(tgi_thread *S, tgi_operand out, int64_t n, double start, double step)
{
    const tg_dtype compute = tgi_dtypes[out.dtype].floating ? TG_F64 : TG_I64;
    const int64_t first = tgi_f64_to_i64(start), by = tgi_f64_to_i64(step), size = tgi_bytes_of(out.dtype);
    (void)S;
    for (int64_t i = 0, run; i < n; i += run) {
        tgi_tile tile;
        run = tgi_at_most(n - i, TGI_TILE);
        for (int64_t j = 0; j < run; ++j) {
            if (compute == TG_F64)
                tile.f64[j] = start + (double)(i + j) * step;
            else
                tile.i64[j] = tgi_wrap_add(first, tgi_wrap_mul(i + j, by));
        }
        tgi_store_elements(compute, &tile, out.dtype, (char *)out.data + i * out.stride[0] * size, out.stride[0] * size,
                           run);
    }
    return true;
}

/* ---- reductions ---- */

/* fold: *result = the combination of *result and x [n], in eight partial results, so that one addition need not wait
   for the one before.  across: result [n] = the combination of each result[i] with x[i].  two: of a and one x. */
typedef void (*tgi_folder)(void *result, const void *x, int64_t n);
#define TGI_FOLD(name, column, type, sum_type, identity, combination)                                     \
    static sum_type tgi_##name##_two_##column(sum_type a, sum_type x) { return (sum_type)(combination); } \
    static void tgi_##name##_fold_##column(void *result, const void *elements, int64_t n)                 \
    {                                                                                                     \
        const type *const x = (const type *)elements;                                                     \
        sum_type part[8], total = *(sum_type *)result;                                                    \
        int64_t i = 0;                                                                                    \
        for (int k = 0; k < 8; ++k) part[k] = (sum_type)(identity);                                       \
        for (; i + 8 <= n; i += 8) {                                                                      \
            for (int k = 0; k < 8; ++k) part[k] = tgi_##name##_two_##column(part[k], (sum_type)x[i + k]); \
        }                                                                                                 \
        for (; i < n; ++i) part[i & 7] = tgi_##name##_two_##column(part[i & 7], (sum_type)x[i]);          \
        for (int half = 4; half > 0; half /= 2) {                                                         \
            for (int k = 0; k < half; ++k) part[k] = tgi_##name##_two_##column(part[k], part[k + half]);  \
        }                                                                                                 \
        total = tgi_##name##_two_##column(total, part[0]);                                                \
        *(sum_type *)result = total;                                                                      \
    }                                                                                                     \
    static void tgi_##name##_across_##column(void *result, const void *elements, int64_t n)               \
    {                                                                                                     \
        sum_type *const a = (sum_type *)result;                                                           \
        const type *const x = (const type *)elements;                                                     \
        for (int64_t i = 0; i < n; ++i) a[i] = tgi_##name##_two_##column(a[i], (sum_type)x[i]);           \
    }
#define TGI_FOLDS(name, identity, combination, identity_i64, combination_i64) \
    static double tgi_##name##_identity(void) { return identity; }            \
    TGI_FOLD(name, f32, float, double, identity, combination)                 \
    TGI_FOLD(name, f64, double, double, identity, combination)                \
    TGI_FOLD(name, i64, int64_t, int64_t, identity_i64, combination_i64)
TGI_REDUCTIONS(TGI_FOLDS)

typedef struct {
    tgi_folder fold[3], across[3];
    double (*identity)(void); /* infinity is no constant to every compiler */
    int64_t identity_i64;
} tgi_reduction_row;
#define TGI_REDUCTION_ROW(name, identity, combination, identity_i64, combination_i64) \
    {{tgi_##name##_fold_f32, tgi_##name##_fold_f64, tgi_##name##_fold_i64},           \
     {tgi_##name##_across_f32, tgi_##name##_across_f64, tgi_##name##_across_i64},     \
     tgi_##name##_identity,                                                           \
     identity_i64},
static const tgi_reduction_row tgi_reduction_rows[] = {TGI_REDUCTIONS(TGI_REDUCTION_ROW)}; /* as tgi_reduction */

/* An accumulator: eight bytes, a double or an int64_t. */
typedef union {
    double f64;
    int64_t i64;
} tgi_accumulator;

/* The order of a reduction depends on the shapes alone, not on threads.  The reduced elements of an output are cut into
   pieces of a fixed size; each piece is folded, tile by tile (or, across, row by row), into one accumulator, and the
   accumulators are then combined pairwise.  So rounding errors grow with the 256 steps in a piece plus the logarithm of
   the number of pieces, not with the number of elements. */
typedef struct {
    const tgi_reduction_row *row;
    int column;
    tg_dtype compute, sum; /* of elements and of accumulators */
    tgi_iter kept, reduced;
    int64_t piece, pieces;    /* reduced elements in a piece; pieces per output */
    int64_t width, blocks;    /* outputs per item (1: not across); items in the innermost kept dim */
    tgi_accumulator *partial; /* [pieces][outputs], or NULL when there is one piece */
} tgi_reduce_job;

enum { TGI_FOLD_PIECE = 65536, TGI_ACROSS_PIECE = 256, TGI_ACROSS_WIDTH = 128 };

static void tgi_set_identity(const tgi_reduce_job *job, tgi_accumulator *sums, int64_t n)
{
    for (int64_t i = 0; i < n; ++i) {
        if (job->sum == TG_F64)
            sums[i].f64 = job->row->identity();
        else
            sums[i].i64 = job->row->identity_i64;
    }
}

/* Folds elements [first, end) of the reduced dims into *sum; base: the output's offset in bytes. */
static void tgi_fold_piece(const tgi_reduce_job *job, int64_t base, int64_t first, int64_t end, tgi_accumulator *sum)
{
    const tgi_iter *iter = &job->reduced;
    const int inner = iter->ndim - 1;
    const bool direct = iter->dtype[0] == job->compute && iter->stride[0][inner] == tgi_bytes_of(job->compute);
    const bool long_runs = iter->dim[inner] >= TGI_TILE / 4;
    tgi_cursor cursor = tgi_cursor_at(iter, first);
    tgi_tile tile;
    for (int64_t n; first < end; first += n) {
        n = tgi_at_most(end - first, TGI_TILE);
        if (long_runs || iter->ndim == 1) n = tgi_cursor_run(&cursor, iter, n);
        if (direct && (long_runs || iter->ndim == 1)) {
            job->row->fold[job->column](sum, cursor.at[0] + base, n);
            tgi_cursor_advance(&cursor, iter, n);
            continue;
        }
        for (int64_t done = 0, run; done < n; done += run) {
            run = tgi_cursor_run(&cursor, iter, n - done);
            tgi_load_elements(job->compute, (char *)&tile + done * tgi_bytes_of(job->compute), iter->dtype[0],
                              cursor.at[0] + base, iter->stride[0][inner], run);
            tgi_cursor_advance(&cursor, iter, run);
        }
        job->row->fold[job->column](sum, &tile, n);
    }
}

/* Folds elements [first, end) of the reduced dims into sums [width], those of `width` neighbouring outputs, which are
   `step` bytes apart in the input. */
static void tgi_fold_across(const tgi_reduce_job *job, int64_t base, int64_t step, int64_t width, int64_t first,
                            int64_t end, tgi_accumulator *sums)
{
    const tgi_iter *iter = &job->reduced;
    const bool direct = iter->dtype[0] == job->compute && step == tgi_bytes_of(job->compute);
    tgi_cursor cursor = tgi_cursor_at(iter, first);
    tgi_tile tile;
    for (; first < end; ++first) {
        const void *x = cursor.at[0] + base;
        if (!direct) {
            tgi_load_elements(job->compute, &tile, iter->dtype[0], cursor.at[0] + base, step, width);
            x = &tile;
        }
        job->row->across[job->column](sums, x, width);
        tgi_cursor_advance(&cursor, iter, 1);
    }
}

/* Items: for each piece all outputs, one output or a block of neighbouring ones per item. */
static void tgi_reduce_part(const void *job_, int thread, int64_t first, int64_t end)
{
    const tgi_reduce_job *job = (const tgi_reduce_job *)job_;
    const tgi_iter *kept = &job->kept;
    const int inner = kept->ndim - 1;
    const int64_t items = kept->numel / kept->dim[inner] * job->blocks; /* per piece */
    int64_t piece = first / items,
            output = first % items / job->blocks * kept->dim[inner] + first % job->blocks * job->width;
    tgi_cursor cursor = tgi_cursor_at(kept, output);
    (void)thread;
    for (; first < end; ++first) {
        tgi_accumulator sums[TGI_ACROSS_WIDTH];
        const int64_t from = piece * job->piece, to = tgi_at_most(job->reduced.numel, from + job->piece);
        const int64_t width = tgi_cursor_run(&cursor, kept, job->width), base = cursor.at[1] - kept->data[1];
        tgi_set_identity(job, sums, width);
        if (job->width > 1 && from < to)
            tgi_fold_across(job, base, kept->stride[1][inner], width, from, to, sums);
        else if (from < to)
            tgi_fold_piece(job, base, from, to, sums);
        if (job->partial)
            memcpy(job->partial + piece * kept->numel + output, sums, (size_t)width * sizeof *sums);
        else
            tgi_store_elements(job->sum, sums, kept->dtype[0], cursor.at[0], kept->stride[0][inner], width);
        output += width;
        tgi_cursor_advance(&cursor, kept, width);
        if (output == kept->numel) {
            output = 0;
            piece++;
            cursor = tgi_cursor_at(kept, 0);
        }
    }
}

/* partial [pieces, outputs]: combines pieces 0 and 1, 2 and 3, ..; then 0 and 2, 4 and 6, ..; until piece 0 is the
   result, and stores it. */
static void tgi_reduce_pieces(const tgi_reduce_job *job)
{
    const tgi_iter *kept = &job->kept;
    const int inner = kept->ndim - 1;
    const int64_t outputs = kept->numel;
    for (int64_t step = 1; step < job->pieces; step *= 2) {
        for (int64_t p = 0; p + step < job->pieces; p += 2 * step) {
            job->row->across[tgi_compute_index(job->sum)](job->partial + p * outputs,
                                                          job->partial + (p + step) * outputs, outputs);
        }
    }
    tgi_cursor cursor = tgi_cursor_at(kept, 0);
    for (int64_t i = 0; i < outputs; i += kept->dim[inner]) {
        tgi_store_elements(job->sum, job->partial + i, kept->dtype[0], cursor.at[0], kept->stride[0][inner],
                           kept->dim[inner]);
        tgi_cursor_advance(&cursor, kept, kept->dim[inner]);
    }
}

static bool tgi_cpu_reduce(tgi_thread *S, const tgi_reduce *reduce)
{
    tgi_operand arg[2] = {reduce->out, reduce->in}, in = reduce->in;
    tgi_reduce_job job;
    memcpy(in.stride, reduce->rstride, sizeof in.stride);
    job.row = &tgi_reduction_rows[reduce->kind];
    job.compute = tgi_compute_dtype(in.dtype);
    job.column = tgi_compute_index(job.compute);
    job.sum = job.compute == TG_I64 ? TG_I64 : TG_F64;
    tgi_iter_init(&job.kept, reduce->ndim, reduce->dim, 2, arg, true);
    tgi_iter_init(&job.reduced, reduce->rndim, reduce->rdim, 1, &in, true);
    job.partial = NULL;
    if (job.kept.numel == 0) return true;
    const int64_t outputs = job.kept.numel, columns = job.kept.dim[job.kept.ndim - 1];
    const int64_t kept_step = llabs(job.kept.stride[1][job.kept.ndim - 1]);
    const int64_t reduced_step = llabs(job.reduced.stride[0][job.reduced.ndim - 1]);
    const bool across = columns >= 4 && (kept_step < reduced_step || job.reduced.numel <= 16);
    job.width = across ? (int64_t)TGI_ACROSS_WIDTH : 1;
    job.blocks = (columns + job.width - 1) / job.width;
    job.piece = across ? (int64_t)TGI_ACROSS_PIECE : (int64_t)TGI_FOLD_PIECE;
    job.pieces = job.reduced.numel / job.piece + (job.reduced.numel % job.piece != 0);
    if (job.pieces == 0) job.pieces = 1;
    const size_t bytes = (size_t)(job.pieces * outputs) * sizeof *job.partial;
    if (job.pieces > 1) {
        job.partial = (tgi_accumulator *)tgi_alloc(S, bytes);
        if (!job.partial) return tgi_no_memory(S, "sum", bytes);
    }
    const int64_t items = outputs / columns * job.blocks * job.pieces;
    tgi_parallel_for(tgi_parts_for(S, (double)outputs * (double)job.reduced.numel, items), items, tgi_reduce_part,
                     &job);
    if (job.partial) tgi_reduce_pieces(&job);
    tgi_free(S, job.partial, bytes);
    return true;
}

/* ---- kernels along one dim: softmax, layer_norm, cumsum, max, sort ----

   A kernel is called for one row at a time.  It loads the row into scratch memory as doubles (or int64_t), whatever the
   row's dtype and step are, so results are rounded once.  Shapes below are of the whole call: x [rows, n] is `rows`
   rows of n = job->length elements; at[k] points to the current row of operand k. */

typedef struct tgi_row_job tgi_row_job;
typedef void (*tgi_row_fn)(const tgi_row_job *job, char *const *at, char *scratch);
struct tgi_row_job {
    tgi_row_fn row;
    bool flag;  /* log, rms or descending: the kernel's */
    double eps; /* of layer_norm */
    tgi_iter iter;                      /* over the other dims */
    int64_t length, step[TGI_MAX_ARGS]; /* of a row; steps in bytes */
    tgi_scratch scratch;
};

static void tgi_row_part(const void *job_, int thread, int64_t first, int64_t end)
{
    const tgi_row_job *job = (const tgi_row_job *)job_;
    double local[TGI_STACK_SCRATCH / sizeof(double)];
    char *scratch = job->scratch.each ? job->scratch.each + (size_t)thread * job->scratch.bytes : (char *)local;
    tgi_cursor cursor = tgi_cursor_at(&job->iter, first);
    for (; first < end; ++first) {
        job->row(job, cursor.at, scratch);
        tgi_cursor_advance(&cursor, &job->iter, 1);
    }
}

/* Calls the kernel for each row, with `bytes` of scratch memory per element of a row. */
static bool tgi_each_row(tgi_thread *S, const char *op, const tgi_rows *rows, tgi_row_fn row, bool flag, double eps,
                         size_t bytes)
{
    tgi_row_job job;
    size_t scratch;
    job.row = row;
    job.flag = flag;
    job.eps = eps;
    tgi_iter_init(&job.iter, rows->ndim, rows->dim, rows->nargs, rows->arg, true);
    job.length = rows->length;
    for (int k = 0; k < rows->nargs; ++k) job.step[k] = rows->step[k] * tgi_bytes_of(rows->arg[k].dtype);
    if (job.iter.numel == 0) return true;
    const int parts = tgi_parts_for(S, (double)job.iter.numel * (double)rows->length, job.iter.numel);
    if (!tgi_mul_size(bytes, (size_t)rows->length, &scratch)) return tgi_no_memory(S, op, SIZE_MAX);
    if (!tgi_scratch_alloc(S, op, &job.scratch, scratch, parts)) return false;
    tgi_parallel_for(parts, job.iter.numel, tgi_row_part, &job);
    tgi_free(S, job.scratch.each, job.scratch.total);
    return true;
}

static void tgi_load_row(const tgi_row_job *job, int k, char *const *at, double *x)
{
    tgi_load_elements(TG_F64, x, job->iter.dtype[k], at[k], job->step[k], job->length);
}

static void tgi_store_row(const tgi_row_job *job, int k, char *const *at, const double *y)
{
    tgi_store_elements(TG_F64, y, job->iter.dtype[k], at[k], job->step[k], job->length);
}

static double tgi_row_sum(const double *x, int64_t n)
{
    double sum = 0;
    tgi_sum_fold_f64(&sum, x, n);
    return sum;
}

/* y, x [rows, n]: y = exp(x - max) / sum(exp(x - max)), max and sum over the row; log: y = x - max - log(sum).
   Subtracting the maximum keeps exp from overflowing and changes nothing else.  A row of only -inf gives NaN. */
static void tgi_softmax_row(const tgi_row_job *job, char *const *at, char *scratch)
{
    const int64_t n = job->length;
    const bool single = job->iter.dtype[1] != TG_F64; /* expf is exact enough for f32, f16 and bf16, and faster */
    double *x = (double *)(void *)scratch, *power = x + n, largest = -HUGE_VAL;
    tgi_load_row(job, 1, at, x);
    for (int64_t i = 0; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
    for (int64_t i = 0; i < n; ++i) {
        x[i] -= largest;
        power[i] = single ? (double)expf((float)x[i]) : exp(x[i]);
    }
    const double sum = tgi_row_sum(power, n), scale = 1 / sum, log_sum = log(sum);
    for (int64_t i = 0; i < n; ++i) x[i] = job->flag ? x[i] - log_sum : power[i] * scale;
    tgi_store_row(job, 0, at, x);
}

/* dx, g, y [rows, n]: dx = y * (g - sum(g * y)); log: dx = g - exp(y) * sum(g), since exp(y) is the softmax. */
static void tgi_softmax_backward_row(const tgi_row_job *job, char *const *at, char *scratch)
{
    const int64_t n = job->length;
    double *g = (double *)(void *)scratch, *y = g + n, *terms = y + n;
    tgi_load_row(job, 1, at, g);
    tgi_load_row(job, 2, at, y);
    /* the sum over the row first: every element of dx needs it */
    for (int64_t i = 0; i < n; ++i) terms[i] = job->flag ? g[i] : g[i] * y[i];
    const double sum = tgi_row_sum(terms, n);
    for (int64_t i = 0; i < n; ++i) g[i] = job->flag ? g[i] - exp(y[i]) * sum : y[i] * (g[i] - sum);
    tgi_store_row(job, 0, at, g);
}

/* y, x [rows, n]; rstd [rows], kept for backward: y = (x - mean) * rstd, rstd = 1 / sqrt(mean((x - mean)^2) + eps),
   means over the row; rms: with 0 in place of the mean. */
static void tgi_layer_norm_row(const tgi_row_job *job, char *const *at, char *scratch)
{
    const int64_t n = job->length;
    double *x = (double *)(void *)scratch, *squares = x + n;
    tgi_load_row(job, 2, at, x);
    const double mean = job->flag ? 0 : tgi_row_sum(x, n) / (double)n;
    /* the variance in a second pass over x - mean: mean(x^2) - mean^2 would cancel where the mean is large */
    for (int64_t i = 0; i < n; ++i) {
        x[i] -= mean;
        squares[i] = x[i] * x[i];
    }
    const double rstd = 1 / sqrt(tgi_row_sum(squares, n) / (double)n + job->eps);
    for (int64_t i = 0; i < n; ++i) x[i] *= rstd;
    tgi_store_row(job, 0, at, x);
    tgi_store_elements(TG_F64, &rstd, job->iter.dtype[1], at[1], 0, 1);
}

/* dx, g, y [rows, n]; rstd [rows]: dx = rstd * (g - mean(g) - y * mean(g * y)); rms: without mean(g).  The means are
   the gradients that reach x by way of the row's mean and of rstd. */
static void tgi_layer_norm_backward_row(const tgi_row_job *job, char *const *at, char *scratch)
{
    const int64_t n = job->length;
    double *g = (double *)(void *)scratch, *y = g + n, *gy = y + n, rstd = 0;
    tgi_load_row(job, 1, at, g);
    tgi_load_row(job, 2, at, y);
    tgi_load_elements(TG_F64, &rstd, job->iter.dtype[3], at[3], 0, 1);
    for (int64_t i = 0; i < n; ++i) gy[i] = g[i] * y[i];
    const double mean_g = job->flag ? 0 : tgi_row_sum(g, n) / (double)n, mean_gy = tgi_row_sum(gy, n) / (double)n;
    for (int64_t i = 0; i < n; ++i) g[i] = rstd * (g[i] - mean_g - y[i] * mean_gy);
    tgi_store_row(job, 0, at, g);
}

/* y, x [rows, n]: y[i] = x[0] + .. + x[i]; the sum is a double for floats, else an int64_t. */
static void tgi_cumsum_row(const tgi_row_job *job, char *const *at, char *scratch)
{
    const tg_dtype compute = tgi_dtypes[job->iter.dtype[1]].floating ? TG_F64 : TG_I64;
    tgi_tile tile;
    double sum = 0;
    int64_t sum_i64 = 0;
    (void)scratch;
    for (int64_t i = 0, run; i < job->length; i += run) {
        run = tgi_at_most(job->length - i, TGI_TILE);
        tgi_load_elements(compute, &tile, job->iter.dtype[1], at[1] + i * job->step[1], job->step[1], run);
        for (int64_t j = 0; j < run; ++j) {
            if (compute == TG_F64)
                tile.f64[j] = sum += tile.f64[j];
            else
                tile.i64[j] = sum_i64 = tgi_wrap_add(sum_i64, tile.i64[j]);
        }
        tgi_store_elements(compute, &tile, job->iter.dtype[0], at[0] + i * job->step[0], job->step[0], run);
    }
}

/* key [n]: unsigned numbers in the same order as the n elements.  The bits of a float are a sign and a magnitude: all
   bits of a negative number are flipped, the sign bit alone of another.  0 and -0 are equal, every NaN is the largest.
   */
static void tgi_load_keys(uint64_t *key, tg_dtype dtype, const char *at, int64_t step, int64_t n)
{
    const uint64_t sign = (uint64_t)1 << 63;
    tgi_tile tile;
    for (int64_t i = 0, run; i < n; i += run) {
        const bool floating = tgi_dtypes[dtype].floating;
        run = tgi_at_most(n - i, TGI_TILE);
        tgi_load_elements(floating ? TG_F64 : TG_I64, &tile, dtype, at + i * step, step, run);
        for (int64_t j = 0; j < run; ++j) {
            const double x = floating ? tile.f64[j] + 0.0 : 0; /* -0 + 0 is 0 */
            uint64_t bits = floating ? 0 : (uint64_t)tile.i64[j] ^ sign;
            if (floating) {
                memcpy(&bits, &x, sizeof bits);
                bits = x != x ? UINT64_MAX : bits & sign ? ~bits : bits | sign;
            }
            key[i + j] = bits;
        }
    }
}

/* values (may be left out), indices [rows]; in [rows, n]: the largest element, or with flag the smallest, and the index
   of the first one; the first NaN if there is one. */
static void tgi_arg_reduce_row(const tgi_row_job *job, char *const *at, char *scratch)
{
    const int in = job->iter.nargs - 1;
    const tg_dtype dtype = job->iter.dtype[in];
    uint64_t key[TGI_TILE], best = 0;
    int64_t found = 0;
    (void)scratch;
    for (int64_t i = 0, run; i < job->length; i += run) {
        run = tgi_at_most(job->length - i, TGI_TILE);
        tgi_load_keys(key, dtype, at[in] + i * job->step[in], job->step[in], run);
        for (int64_t j = 0; j < run; ++j) {
            const bool nan = tgi_dtypes[dtype].floating && key[j] == UINT64_MAX;
            if (job->flag && !nan) key[j] = ~key[j]; /* the smallest has the largest flipped key; NaN wins either way */
            if (key[j] > best || i + j == 0) {
                best = key[j];
                found = i + j;
            }
        }
    }
    tgi_store_elements(TG_I64, &found, job->iter.dtype[in - 1], at[in - 1], 0, 1);
    if (in == 2) memcpy(at[0], at[in] + found * job->step[in], tgi_dtypes[dtype].size);
}

/* Stable merge sort of (key, index) pairs: runs of up to 8 are sorted by insertion, then merged two by two from one
   half of the scratch memory to the other.  Descending sorts flipped keys, so that equal elements still keep their
   order. */
static void tgi_merge_pairs(tgi_sort_pair *to, const tgi_sort_pair *a, int64_t na, const tgi_sort_pair *b, int64_t nb)
{
    while (na > 0 && nb > 0) {
        if (b->key < a->key)
            *to++ = *b++, nb--;
        else
            *to++ = *a++, na--;
    }
    if (na > 0) memcpy(to, a, (size_t)na * sizeof *a);
    if (nb > 0) memcpy(to, b, (size_t)nb * sizeof *b);
}

/* Returns the half that holds the result: pairs or other. */
static tgi_sort_pair *tgi_sort_pairs(tgi_sort_pair *pairs, tgi_sort_pair *other, int64_t n)
{
    for (int64_t start = 0; start < n; start += 8) {
        for (int64_t i = start + 1; i < n && i < start + 8; ++i) {
            const tgi_sort_pair pair = pairs[i];
            int64_t j = i;
            for (; j > start && pair.key < pairs[j - 1].key; --j) pairs[j] = pairs[j - 1];
            pairs[j] = pair;
        }
    }
    for (int64_t run = 8; run < n; run *= 2) {
        for (int64_t start = 0; start < n; start += 2 * run) {
            const int64_t middle = n - start < run ? n : start + run, end = n - start < 2 * run ? n : start + 2 * run;
            tgi_merge_pairs(other + start, pairs + start, middle - start, pairs + middle, end - middle);
        }
        tgi_sort_pair *const sorted = other;
        other = pairs;
        pairs = sorted;
    }
    return pairs;
}

/* values, indices, in [rows, n] */
static void tgi_sort_row(const tgi_row_job *job, char *const *at, char *scratch)
{
    const int64_t n = job->length, size = tgi_bytes_of(job->iter.dtype[2]);
    tgi_sort_pair *pairs = (tgi_sort_pair *)(void *)scratch;
    for (int64_t i = 0, run; i < n; i += run) {
        uint64_t key[TGI_TILE];
        run = tgi_at_most(n - i, TGI_TILE);
        tgi_load_keys(key, job->iter.dtype[2], at[2] + i * job->step[2], job->step[2], run);
        for (int64_t j = 0; j < run; ++j) {
            pairs[i + j].key = job->flag ? ~key[j] : key[j];
            pairs[i + j].index = i + j;
        }
    }
    pairs = tgi_sort_pairs(pairs, pairs + n, n);
    for (int64_t i = 0; i < n; ++i) {
        tgi_copy_run(at[0] + i * job->step[0], 0, at[2] + pairs[i].index * job->step[2], 0, 1, size);
        tgi_store_elements(TG_I64, &pairs[i].index, job->iter.dtype[1], at[1] + i * job->step[1], 0, 1);
    }
}

static bool tgi_cpu_arg_reduce(tgi_thread *S, tgi_reduction kind, const tgi_rows *rows)
{
    tgi_rows kept = *rows;
    if (!rows->arg[0].data) { /* no values: without that operand */
        kept.nargs = 2;
        for (int k = 0; k < 2; ++k) {
            kept.arg[k] = rows->arg[k + 1];
            kept.step[k] = rows->step[k + 1];
        }
    }
    return tgi_each_row(S, "max", &kept, tgi_arg_reduce_row, kind == TGI_AMIN, 0, 0);
}

static bool tgi_cpu_cumsum(tgi_thread *S, const tgi_rows *rows)
{
    return tgi_each_row(S, "cumsum", rows, tgi_cumsum_row, false, 0, 0);
}

static bool tgi_cpu_sort(tgi_thread *S, bool descending, const tgi_rows *rows)
{
    return tgi_each_row(S, "sort", rows, tgi_sort_row, descending, 0, 2 * sizeof(tgi_sort_pair));
}

static bool tgi_cpu_softmax(tgi_thread *S, bool log, const tgi_rows *rows)
{
    return tgi_each_row(S, "softmax", rows, tgi_softmax_row, log, 0, 2 * sizeof(double));
}

static bool tgi_cpu_softmax_backward(tgi_thread *S, bool log, const tgi_rows *rows)
{
    return tgi_each_row(S, "softmax", rows, tgi_softmax_backward_row, log, 0, 3 * sizeof(double));
}

static bool tgi_cpu_layer_norm(tgi_thread *S, bool rms, double eps, const tgi_rows *rows)
{
    return tgi_each_row(S, "layer_norm", rows, tgi_layer_norm_row, rms, eps, 2 * sizeof(double));
}

static bool tgi_cpu_layer_norm_backward(tgi_thread *S, bool rms, const tgi_rows *rows)
{
    return tgi_each_row(S, "layer_norm", rows, tgi_layer_norm_backward_row, rms, 0, 3 * sizeof(double));
}

/* ---- gather, scatter, nonzero ---- */

static inline int64_t tgi_index_at(const char *at, tg_dtype dtype)
{
    return dtype == TG_I64 ? *(const int64_t *)(const void *)at : *(const int32_t *)(const void *)at;
}

static bool tgi_cpu_index_check(tgi_thread *S, const char *op, tgi_operand index, int ndim, const int64_t *dim,
                                int64_t size, tgi_index_message message, int axis, bool now)
{
    tgi_iter iter;
    tgi_iter_init(&iter, ndim, dim, 1, &index, false);
    const int inner = iter.ndim - 1;
    const int64_t least = message == TGI_INDEX_FROM_END ? -size : 0;
    (void)now;
    if (iter.numel == 0) return true;
    tgi_cursor cursor = tgi_cursor_at(&iter, 0);
    for (int64_t row = 0; row < iter.numel; row += iter.dim[inner]) {
        for (int64_t i = 0; i < iter.dim[inner]; ++i) {
            const int64_t at = tgi_index_at(cursor.at[0] + i * iter.stride[0][inner], index.dtype);
            if (at >= least && at < size) continue;
            return tgi_fail(S, TG_ERR_ARGUMENT, op, "%s",
                            tgi_text_of_bad_index(message, at, row + i, axis, size, "").text);
        }
        tgi_cursor_advance(&cursor, &iter, iter.dim[inner]);
    }
    return true;
}

/* gather and scatter loop over all of index, the row's dim outermost, so that neighbours with the same index (the
   columns of an embedding) are copied or added as one run, and the elements of a row keep their order.  Operands: out
   or src, which have the shape of index; x, with stride 0 along the row's dim, where index gives the position; index.
   */
typedef struct {
    tgi_iter iter;
    int64_t step; /* of x along the row's dim, in bytes */
} tgi_index_job;

static tgi_index_job tgi_index_job_of(const tgi_rows *rows, int like_index, int x)
{
    tgi_index_job job;
    int64_t dim[TG_MAX_DIMS];
    tgi_operand arg[3];
    const int from[3] = {like_index, x, 2};
    dim[0] = rows->length;
    memcpy(dim + 1, rows->dim, sizeof(int64_t) * (size_t)rows->ndim);
    for (int k = 0; k < 3; ++k) {
        arg[k] = rows->arg[from[k]];
        arg[k].stride[0] = k == 1 ? 0 : rows->step[from[k]];
        memcpy(arg[k].stride + 1, rows->arg[from[k]].stride, sizeof(int64_t) * (size_t)rows->ndim);
    }
    tgi_iter_init(&job.iter, rows->ndim + 1, dim, 3, arg, false);
    job.step = rows->step[x] * tgi_bytes_of(rows->arg[x].dtype);
    return job;
}

static void tgi_gather_part(const void *job_, int thread, int64_t first, int64_t end)
{
    const tgi_index_job *job = (const tgi_index_job *)job_;
    const tgi_iter *iter = &job->iter;
    const int inner = iter->ndim - 1;
    const int64_t y_step = iter->stride[0][inner], x_step = iter->stride[1][inner], index_step = iter->stride[2][inner];
    const int64_t size = tgi_bytes_of(iter->dtype[0]);
    tgi_cursor cursor = tgi_cursor_at(iter, first);
    (void)thread;
    for (int64_t run; first < end; first += run) {
        run = tgi_cursor_run(&cursor, iter, end - first);
        const int64_t same = index_step == 0 ? run : 1;
        for (int64_t i = 0; i < run; i += same) {
            const int64_t at = tgi_index_at(cursor.at[2] + i * index_step, iter->dtype[2]);
            tgi_copy_run(cursor.at[0] + i * y_step, y_step, cursor.at[1] + i * x_step + at * job->step, x_step, same,
                         size);
        }
        tgi_cursor_advance(&cursor, iter, run);
    }
}

static bool tgi_cpu_gather(tgi_thread *S, const tgi_rows *rows)
{
    const tgi_index_job job = tgi_index_job_of(rows, 0, 1);
    const int64_t n = job.iter.numel;
    if (n > 0) tgi_parallel_for(tgi_parts_for(S, (double)n, n), n, tgi_gather_part, &job);
    return true;
}

static bool tgi_cpu_scatter(tgi_thread *S, bool add, const tgi_rows *rows)
{
    const tgi_index_job job = tgi_index_job_of(rows, 1, 0);
    const tgi_iter *iter = &job.iter;
    const int inner = iter->ndim - 1;
    const int64_t src_step = iter->stride[0][inner], x_step = iter->stride[1][inner],
                  index_step = iter->stride[2][inner];
    const int64_t run = iter->dim[inner], same = index_step == 0 ? run : 1, size = tgi_bytes_of(iter->dtype[1]);
    (void)S;
    if (iter->numel == 0) return true;
    tgi_cursor cursor = tgi_cursor_at(iter, 0);
    for (int64_t done = 0; done < iter->numel; done += run) {
        for (int64_t i = 0; i < run; i += same) {
            const int64_t at = tgi_index_at(cursor.at[2] + i * index_step, iter->dtype[2]);
            char *x = cursor.at[1] + i * x_step + at * job.step;
            const char *src = cursor.at[0] + i * src_step;
            if (add)
                tgi_add_run(iter->dtype[1], x, x_step, src, src_step, same);
            else
                tgi_copy_run(x, x_step, src, src_step, same, size);
        }
        tgi_cursor_advance(&cursor, iter, run);
    }
    return true;
}

static bool tgi_cpu_nonzero(tgi_thread *S, const tgi_loop *in, int64_t *count, int64_t *out)
{
    tgi_iter iter;
    tgi_iter_init(&iter, in->ndim, in->dim, 1, in->arg, false);
    const tg_dtype compute = tgi_dtypes[in->arg[0].dtype].floating ? TG_F64 : TG_I64;
    (void)S;
    *count = 0;
    if (iter.numel == 0) return true;
    tgi_cursor cursor = tgi_cursor_at(&iter, 0);
    for (int64_t i = 0, run; i < iter.numel; i += run) {
        tgi_tile tile;
        run = tgi_cursor_run(&cursor, &iter, TGI_TILE);
        tgi_load_elements(compute, &tile, iter.dtype[0], cursor.at[0], iter.stride[0][iter.ndim - 1], run);
        for (int64_t j = 0; j < run; ++j) {
            int64_t element = i + j;
            if (compute == TG_F64 ? tile.f64[j] == 0 : tile.i64[j] == 0) continue;
            for (int d = in->ndim - 1; out && d >= 0; element /= in->dim[d], --d) out[d] = element % in->dim[d];
            if (out) out += in->ndim;
            ++*count;
        }
        tgi_cursor_advance(&cursor, &iter, run);
    }
    return true;
}

/* ---- matrix products ---- */

/* out [m, n] = a [m, k] times b [k, n], element by element: the reference, and the kernel for integers, which wrap. */
static void tgi_gemm_plain(const tgi_gemm *gemm, char *out, const char *a, const char *b)
{
    const tg_dtype compute = tgi_dtypes[gemm->out.dtype].floating ? TG_F64 : TG_I64;
    const int64_t a_size = tgi_bytes_of(gemm->a.dtype), b_size = tgi_bytes_of(gemm->b.dtype);
    for (int64_t i = 0; i < gemm->m; ++i) {
        for (int64_t j = 0; j < gemm->n; ++j) {
            tgi_accumulator sum = {0};
            for (int64_t k = 0, run; k < gemm->k; k += run) {
                tgi_tile x, y;
                run = tgi_at_most(gemm->k - k, TGI_TILE);
                tgi_load_elements(compute, &x, gemm->a.dtype, a + (i * gemm->a_row + k * gemm->a_col) * a_size,
                                  gemm->a_col * a_size, run);
                tgi_load_elements(compute, &y, gemm->b.dtype, b + (k * gemm->b_row + j * gemm->b_col) * b_size,
                                  gemm->b_row * b_size, run);
                for (int64_t l = 0; l < run; ++l) {
                    if (compute == TG_F64)
                        sum.f64 += x.f64[l] * y.f64[l];
                    else
                        sum.i64 = tgi_wrap_add(sum.i64, tgi_wrap_mul(x.i64[l], y.i64[l]));
                }
            }
            tgi_store_elements(compute, &sum, gemm->out.dtype, out + (i * gemm->n + j) * tgi_bytes_of(gemm->out.dtype),
                               0, 1);
        }
    }
}

/* The same in blocks that stay in the cache, after Goto and van de Geijn, "Anatomy of High-Performance Matrix
   Multiplication" (2008), and BLIS (Van Zee and van de Geijn, 2015):

       for each block of out, of 128 rows and 512 columns                    (the items of a parallel loop)
           for each slice of k, of 256
               pack the block's columns of b into panels [k, 2 vectors], its rows of a into panels [k, 4 rows]
               for each panel of b
                   for each panel of a: the micro-kernel adds their product to a tile of 4 rows by 2 vectors of out

   The micro-kernel reads both panels from end to end and keeps the sums of its tile in registers.  A matrix that can be
   read as fast without packing is not packed: see tgi_gemm_plan. */
enum { TGI_MR = 4, TGI_GEMM_M = 128, TGI_GEMM_N = 512, TGI_GEMM_K = 256 };

/* A tile for the micro-kernel: c [rows, cols] = a [rows, k] times b [k, cols], added to c if `add`; rows <= 4, cols <=
   2 vectors.  Steps in elements; b's columns are neighbours.  The micro-kernel always computes 4 rows by 2 vectors:
   those beyond `rows` repeat the last row, those beyond `cols` read b's panel to its full width, and neither is stored.
   */
typedef struct {
    int64_t k;
    const void *a;
    int64_t a_row, a_col;
    const void *b;
    int64_t b_row;
    void *c;
    int64_t c_row, c_col, rows, cols;
    bool add; /* to what c holds */
} tgi_gemm_tile;

/* Vectors of 16 bytes, not necessarily aligned, which the compiler maps to SSE2, NEON or plain code.  Compilers without
   vectors, and those that compute floats in a wider type (x87), where results would differ, use vectors of one number.
   */
#ifdef __FLT_EVAL_METHOD__
#define TGI_WIDER_FLOATS (__FLT_EVAL_METHOD__ != 0)
#else
#define TGI_WIDER_FLOATS 0
#endif
#if (defined(__GNUC__) || defined(__clang__)) && !defined(__TINYC__) && !TGI_WIDER_FLOATS
typedef float tgi_vector_f32 __attribute__((__vector_size__(16), __aligned__(4), __may_alias__));
typedef double tgi_vector_f64 __attribute__((__vector_size__(16), __aligned__(8), __may_alias__));
#else
typedef float tgi_vector_f32;
typedef double tgi_vector_f64;
#endif
enum {
    TGI_LANES_F32 = (int)(sizeof(tgi_vector_f32) / sizeof(float)),
    TGI_LANES_F64 = (int)(sizeof(tgi_vector_f64) / sizeof(double))
};

/* Stores the rows and columns of a tile that exist. */
#define TGI_GEMM_STORE(name, real, lanes)                                                 \
    static void name(const tgi_gemm_tile *t, const void *sums)                            \
    {                                                                                     \
        real tile[TGI_MR * 2 * (lanes)];                                                  \
        memcpy(tile, sums, sizeof tile);                                                  \
        for (int64_t i = 0; i < t->rows; ++i) {                                           \
            for (int64_t j = 0; j < t->cols; ++j) {                                       \
                real *const c = (real *)t->c + i * t->c_row + j * t->c_col;               \
                *c = t->add ? *c + tile[i * 2 * (lanes) + j] : tile[i * 2 * (lanes) + j]; \
            }                                                                             \
        }                                                                                 \
    }
TGI_GEMM_STORE(tgi_gemm_store_f32, float, TGI_LANES_F32)
TGI_GEMM_STORE(tgi_gemm_store_f64, double, TGI_LANES_F64)

/* The micro-kernel.  The sums have names, not indices, so that compilers keep them in registers. */
#define TGI_GEMM_ROW(i)          \
    sum##i##0 += x[row##i] * b0; \
    sum##i##1 += x[row##i] * b1;
#define TGI_GEMM_KERNEL(name, store, real, vector, lanes)                                    \
    static void name(const tgi_gemm_tile *t)                                                 \
    {                                                                                        \
        const int64_t last = t->rows - 1, row0 = 0, row1 = t->a_row * (last < 1 ? last : 1); \
        const int64_t row2 = t->a_row * (last < 2 ? last : 2), row3 = t->a_row * last;       \
        const real *x = (const real *)t->a, *y = (const real *)t->b;                         \
        vector sum00 = {0}, sum01 = {0}, sum10 = {0}, sum11 = {0};                           \
        vector sum20 = {0}, sum21 = {0}, sum30 = {0}, sum31 = {0};                           \
        for (int64_t k = t->k; k > 0; --k, x += t->a_col, y += t->b_row) {                   \
            const vector b0 = *(const vector *)y, b1 = *(const vector *)(y + (lanes));       \
            TGI_GEMM_ROW(0)                                                                  \
            TGI_GEMM_ROW(1)                                                                  \
            TGI_GEMM_ROW(2)                                                                  \
            TGI_GEMM_ROW(3)                                                                  \
        }                                                                                    \
        vector sums[2 * TGI_MR];                                                             \
        sums[0] = sum00, sums[1] = sum01, sums[2] = sum10, sums[3] = sum11;                  \
        sums[4] = sum20, sums[5] = sum21, sums[6] = sum30, sums[7] = sum31;                  \
        if (t->rows < TGI_MR || t->cols < 2 * (lanes) || t->c_col != 1) {                    \
            store(t, sums);                                                                  \
            return;                                                                          \
        }                                                                                    \
        for (int i = 0; i < TGI_MR; ++i) {                                                   \
            vector *const c0 = (vector *)((real *)t->c + i * t->c_row);                      \
            vector *const c1 = (vector *)((real *)t->c + i * t->c_row + (lanes));            \
            if (t->add) sums[2 * i] += *c0, sums[2 * i + 1] += *c1;                          \
            *c0 = sums[2 * i], *c1 = sums[2 * i + 1];                                        \
        }                                                                                    \
    }
TGI_GEMM_KERNEL(tgi_gemm_kernel_f32, tgi_gemm_store_f32, float, tgi_vector_f32, TGI_LANES_F32)
TGI_GEMM_KERNEL(tgi_gemm_kernel_f64, tgi_gemm_store_f64, double, tgi_vector_f64, TGI_LANES_F64)

/* panel [n, width] = x [lanes, n] transposed, with zeros in the columns from `lanes` to `width`; a lane is a row of a
   or a column of b.  Steps in elements of dtype: lane_step from lane to lane, step along one. */
#define TGI_GEMM_PACK(name, compute, real)                                                                    \
    static void name(real *panel, int width, tg_dtype dtype, const char *x, int64_t lane_step, int64_t step,  \
                     int lanes, int64_t n)                                                                    \
    {                                                                                                         \
        const int64_t size = tgi_bytes_of(dtype);                                                             \
        if (lanes < width) memset(panel, 0, (size_t)(width * n) * sizeof *panel);                             \
        if (dtype == (compute) && lane_step == 1) { /* neighbours lie side by side already */                 \
            for (int64_t i = 0; i < n; ++i, panel += width, x += step * size) {                               \
                for (int lane = 0; lane < lanes; ++lane) panel[lane] = ((const real *)(const void *)x)[lane]; \
            }                                                                                                 \
            return;                                                                                           \
        }                                                                                                     \
        for (int lane = 0; lane < lanes; ++lane, x += lane_step * size) {                                     \
            for (int64_t i = 0, run; i < n; i += run) {                                                       \
                tgi_tile tile;                                                                                \
                const real *values = (const real *)(const void *)x + i;                                       \
                run = tgi_at_most(n - i, TGI_TILE);                                                           \
                if (dtype != (compute) || step != 1) {                                                        \
                    tgi_load_elements(compute, &tile, dtype, x + i * step * size, step * size, run);          \
                    values = (const real *)(const void *)&tile;                                               \
                }                                                                                             \
                for (int64_t j = 0; j < run; ++j) panel[(i + j) * width + lane] = values[j];                  \
            }                                                                                                 \
        }                                                                                                     \
    }
TGI_GEMM_PACK(tgi_gemm_pack_f32, TG_F32, float)
TGI_GEMM_PACK(tgi_gemm_pack_f64, TG_F64, double)

/* A matrix in memory, steps in elements. */
typedef struct {
    tg_dtype dtype;
    const char *data;
    int64_t row, col;
} tgi_matrix;

static tgi_matrix tgi_transposed(tgi_matrix x)
{
    const int64_t row = x.row;
    x.row = x.col;
    x.col = row;
    return x;
}

typedef struct {
    const tgi_gemm *gemm;
    tg_dtype compute;
    int nr;
    tgi_iter batch;       /* operands out, a, b */
    int64_t m, n, k;      /* after a possible swap of the sides */
    int64_t c_row, c_col; /* steps in out */
    tgi_matrix a, b;
    int a_operand;              /* of the batch; b is the other */
    bool pack_a, pack_b, widen; /* widen: out is 16 bits, sums are kept in scratch */
    int64_t m_blocks, n_blocks;
    size_t a_bytes, b_bytes; /* of scratch */
    tgi_scratch scratch;
} tgi_gemm_job;

static void tgi_gemm_pack(const tgi_gemm_job *job, char *panel, int width, tgi_matrix x, bool columns, int64_t lane,
                          int64_t lanes, int64_t k, int64_t n)
{
    const int64_t lane_step = columns ? x.col : x.row, step = columns ? x.row : x.col;
    const char *from = x.data + (lane * lane_step + k * step) * tgi_bytes_of(x.dtype);
    if (lanes > width) lanes = width;
    if (job->compute == TG_F32) {
        tgi_gemm_pack_f32((float *)(void *)panel, width, x.dtype, from, lane_step, step, (int)lanes, n);
    } else {
        tgi_gemm_pack_f64((double *)(void *)panel, width, x.dtype, from, lane_step, step, (int)lanes, n);
    }
}

/* One block of the output, rows [i0, i1) and columns [j0, j1), of one batch; c points to its first element. */
static void tgi_gemm_block(const tgi_gemm_job *job, tgi_matrix a, tgi_matrix b, char *c, int64_t c_row, int64_t c_col,
                           int64_t i0, int64_t i1, int64_t j0, int64_t j1, char *scratch)
{
    const int64_t size = tgi_bytes_of(job->compute), nr = job->nr;
    char *const a_panels = scratch, *const b_panels = scratch + job->a_bytes;
    tgi_gemm_tile t;
    int64_t k = 0;
    do { /* once at least: a sum over nothing is zero */
        t.k = tgi_at_most(job->k - k, TGI_GEMM_K);
        t.add = k > 0;
        for (int64_t j = j0; j < j1; j += nr) {
            if (job->pack_b || j1 - j < nr) {
                tgi_gemm_pack(job, b_panels + (job->pack_b ? (j - j0) * t.k * size : 0), (int)nr, b, true, j, j1 - j, k,
                              t.k);
            }
        }
        for (int64_t i = i0; i < i1 && job->pack_a; i += TGI_MR) {
            tgi_gemm_pack(job, a_panels + (i - i0) * t.k * size, TGI_MR, a, false, i, i1 - i, k, t.k);
        }
        t.a_row = job->pack_a ? 1 : a.row;
        t.a_col = job->pack_a ? (int64_t)TGI_MR : a.col;
        t.c_row = c_row;
        t.c_col = c_col;
        for (int64_t j = j0; j < j1; j += nr) {
            const bool packed = job->pack_b || j1 - j < nr;
            t.b = packed ? b_panels + (job->pack_b ? (j - j0) * t.k * size : 0) : b.data + (k * b.row + j) * size;
            t.b_row = packed ? nr : b.row;
            t.cols = j1 - j < nr ? j1 - j : nr;
            for (int64_t i = i0; i < i1; i += TGI_MR) {
                t.a = job->pack_a ? a_panels + (i - i0) * t.k * size : a.data + (i * a.row + k * a.col) * size;
                t.rows = tgi_at_most(i1 - i, TGI_MR);
                t.c = c + ((i - i0) * c_row + (j - j0) * c_col) * size;
                if (job->compute == TG_F32)
                    tgi_gemm_kernel_f32(&t);
                else
                    tgi_gemm_kernel_f64(&t);
            }
        }
        k += t.k;
    } while (k < job->k);
}

/* Items: blocks of the output, batch by batch. */
static void tgi_gemm_part(const void *job_, int thread, int64_t first, int64_t end)
{
    const tgi_gemm_job *job = (const tgi_gemm_job *)job_;
    const tg_dtype out = job->gemm->out.dtype;
    double local[TGI_STACK_SCRATCH / sizeof(double)];
    char *scratch = job->scratch.each ? job->scratch.each + (size_t)thread * job->scratch.bytes : (char *)local;
    for (; first < end; ++first) {
        const int64_t block = first % (job->m_blocks * job->n_blocks), batch = first / (job->m_blocks * job->n_blocks);
        const int64_t i0 = block / job->n_blocks * TGI_GEMM_M, j0 = block % job->n_blocks * TGI_GEMM_N;
        const int64_t i1 = tgi_at_most(job->m, i0 + TGI_GEMM_M), j1 = tgi_at_most(job->n, j0 + TGI_GEMM_N);
        const tgi_cursor cursor = tgi_cursor_at(&job->batch, batch);
        tgi_matrix a = job->a, b = job->b;
        a.data = cursor.at[job->a_operand];
        b.data = cursor.at[3 - job->a_operand];
        char *c = cursor.at[0] + (i0 * job->c_row + j0 * job->c_col) * tgi_bytes_of(out);
        if (!job->widen) {
            tgi_gemm_block(job, a, b, c, job->c_row, job->c_col, i0, i1, j0, j1, scratch);
            continue;
        }
        char *const sums = scratch + job->a_bytes + job->b_bytes;
        tgi_gemm_block(job, a, b, sums, j1 - j0, 1, i0, i1, j0, j1, scratch);
        for (int64_t i = i0; i < i1; ++i, c += job->c_row * tgi_bytes_of(out)) {
            tgi_store_elements(job->compute, sums + (i - i0) * (j1 - j0) * tgi_bytes_of(job->compute), out, c,
                               job->c_col * tgi_bytes_of(out), j1 - j0);
        }
    }
}

static void tgi_gemm_plain_part(const void *job_, int thread, int64_t first, int64_t end)
{
    const tgi_gemm_job *job = (const tgi_gemm_job *)job_;
    (void)thread;
    for (; first < end; ++first) {
        const tgi_cursor cursor = tgi_cursor_at(&job->batch, first);
        tgi_gemm_plain(job->gemm, cursor.at[0], cursor.at[1], cursor.at[2]);
    }
}

/* Chooses sides, blocks and packing.  A matrix is read without packing if it has the compute dtype, its elements are
   neighbours in the order in which the micro-kernel reads them, and it is small enough to stay in the cache. */
static void tgi_gemm_plan(tgi_gemm_job *job)
{
    const tgi_gemm *g = job->gemm;
    const int64_t size = tgi_bytes_of(job->compute);
    const int nr = job->compute == TG_F32 ? 2 * TGI_LANES_F32 : 2 * TGI_LANES_F64;
    const tgi_matrix a = {g->a.dtype, (const char *)g->a.data, g->a_row, g->a_col};
    const tgi_matrix b = {g->b.dtype, (const char *)g->b.data, g->b_row, g->b_col};
    const bool swap = g->n < nr && g->m > g->n; /* out^T = b^T a^T: vectors along the long side */
    job->m = swap ? g->n : g->m;
    job->n = swap ? g->m : g->n;
    job->k = g->k;
    job->nr = nr;
    job->c_row = swap ? 1 : g->n;
    job->c_col = swap ? g->n : 1;
    job->a = swap ? tgi_transposed(b) : a;
    job->b = swap ? tgi_transposed(a) : b;
    job->a_operand = swap ? 2 : 1;
    const int64_t rows = tgi_at_most(job->m, TGI_GEMM_M), cols = tgi_at_most(job->n, TGI_GEMM_N);
    const int64_t depth = tgi_at_most(job->k, TGI_GEMM_K);
    job->pack_a = job->a.dtype != job->compute || (job->n > nr && (job->a.col != 1 || job->n > 96));
    job->pack_b =
        job->b.dtype != job->compute || job->b.col != 1 || (job->m > 4 * TGI_MR && depth * job->n * size > 16384);
    job->widen = g->out.dtype != job->compute;
    job->m_blocks = (job->m + TGI_GEMM_M - 1) / TGI_GEMM_M;
    job->n_blocks = (job->n + TGI_GEMM_N - 1) / TGI_GEMM_N;
    job->a_bytes = job->pack_a ? (size_t)((rows + TGI_MR - 1) / TGI_MR * TGI_MR * depth * size) : 0;
    job->b_bytes = (size_t)((job->pack_b ? (cols + nr - 1) / nr * nr : nr) * depth * size);
    job->scratch.bytes = job->a_bytes + job->b_bytes + (size_t)(job->widen ? rows * cols * size : 0);
}

/* out = matrix [outputs, k] times vector [k], all f32 or all f64. */
enum { TGI_GEMV_BLOCK = 512 };
typedef struct {
    tgi_iter batch; /* operands out, a, b */
    int matrix;     /* which of them: a, or b transposed */
    int64_t outputs, row, col, vector_step, k;
} tgi_gemv_job;

/* y [n] = a [n, k] times x [k].  Every element of a is used once, so nothing is packed.  dot: the rows of a are
   contiguous, and each y[i] is a dot product, in four vectors of partial sums.  Otherwise the columns of a are
   contiguous, and y += column of a * x[k], for four columns at a time. */
#define TGI_GEMV(suffix, real, vector, lanes)                                                                          \
    static real tgi_dot_##suffix(const real *x, const real *y, int64_t n)                                              \
    {                                                                                                                  \
        vector sum0 = {0}, sum1 = {0}, sum2 = {0}, sum3 = {0};                                                         \
        real part[lanes], sum = 0;                                                                                     \
        for (; n >= 4 * (lanes); n -= 4 * (lanes), x += 4 * (lanes), y += 4 * (lanes)) {                               \
            const vector *const u = (const vector *)x, *const v = (const vector *)y;                                   \
            sum0 += u[0] * v[0];                                                                                       \
            sum1 += u[1] * v[1];                                                                                       \
            sum2 += u[2] * v[2];                                                                                       \
            sum3 += u[3] * v[3];                                                                                       \
        }                                                                                                              \
        sum0 = (sum0 + sum1) + (sum2 + sum3);                                                                          \
        memcpy(part, &sum0, sizeof part);                                                                              \
        for (int lane = 0; lane < (lanes); ++lane) sum += part[lane];                                                  \
        for (int64_t i = 0; i < n; ++i) sum += x[i] * y[i];                                                            \
        return sum;                                                                                                    \
    }                                                                                                                  \
    static void tgi_gemv_##suffix(const tgi_gemv_job *job, bool dot, real *y, int64_t n, const real *x, const real *a) \
    {                                                                                                                  \
        const int64_t x_step = job->vector_step, a_step = job->col;                                                    \
        int64_t k = job->k;                                                                                            \
        for (int64_t i = 0; i < n; ++i) y[i] = dot ? tgi_dot_##suffix(x, a + i * job->row, k) : 0;                     \
        for (; k >= 4 && !dot; k -= 4, x += 4 * x_step, a += 4 * a_step) {                                             \
            const real x0 = x[0], x1 = x[x_step], x2 = x[2 * x_step], x3 = x[3 * x_step];                              \
            const real *const a1 = a + a_step, *const a2 = a1 + a_step, *const a3 = a2 + a_step;                       \
            int64_t i = 0;                                                                                             \
            for (; i + (lanes) <= n; i += (lanes)) {                                                                   \
                *(vector *)(y + i) += (*(const vector *)(a + i) * x0 + *(const vector *)(a1 + i) * x1) +               \
                                      (*(const vector *)(a2 + i) * x2 + *(const vector *)(a3 + i) * x3);               \
            }                                                                                                          \
            for (; i < n; ++i) y[i] += (a[i] * x0 + a1[i] * x1) + (a2[i] * x2 + a3[i] * x3);                           \
        }                                                                                                              \
        for (; k > 0 && !dot; --k, x += x_step, a += a_step) {                                                         \
            for (int64_t i = 0; i < n; ++i) y[i] += a[i] * x[0];                                                       \
        }                                                                                                              \
    }
TGI_GEMV(f32, float, tgi_vector_f32, TGI_LANES_F32)
TGI_GEMV(f64, double, tgi_vector_f64, TGI_LANES_F64)

/* Whether the product is one of a matrix and a vector, of a layout that the kernels above can read; fills in the job.
   */
static bool tgi_is_gemv(const tgi_gemm *g, tgi_gemv_job *job)
{
    const tg_dtype dtype = g->out.dtype;
    if ((g->n != 1 && g->m != 1) || g->a.dtype != dtype || g->b.dtype != dtype || tgi_compute_dtype(dtype) != dtype)
        return false;
    job->matrix = g->n == 1 ? 1 : 2;
    job->outputs = g->n == 1 ? g->m : g->n;
    job->row = g->n == 1 ? g->a_row : g->b_col;
    job->col = g->n == 1 ? g->a_col : g->b_row;
    job->vector_step = g->n == 1 ? g->b_row : g->a_col;
    job->k = g->k;
    return (job->col == 1 && job->vector_step == 1) || (job->row == 1 && g->k >= 4);
}

/* Items: blocks of outputs, batch by batch. */
static void tgi_gemv_part(const void *job_, int thread, int64_t first, int64_t end)
{
    const tgi_gemv_job *job = (const tgi_gemv_job *)job_;
    const int64_t blocks = (job->outputs + TGI_GEMV_BLOCK - 1) / TGI_GEMV_BLOCK;
    const int64_t size = tgi_bytes_of(job->batch.dtype[0]);
    const bool dot = job->col == 1 && job->vector_step == 1;
    (void)thread;
    for (; first < end; ++first) {
        const tgi_cursor cursor = tgi_cursor_at(&job->batch, first / blocks);
        const int64_t from = first % blocks * TGI_GEMV_BLOCK, n = tgi_at_most(job->outputs - from, TGI_GEMV_BLOCK);
        void *y = cursor.at[0] + from * size;
        const void *x = cursor.at[3 - job->matrix], *a = cursor.at[job->matrix] + from * job->row * size;
        if (job->batch.dtype[0] == TG_F32)
            tgi_gemv_f32(job, dot, (float *)y, n, (const float *)x, (const float *)a);
        else
            tgi_gemv_f64(job, dot, (double *)y, n, (const double *)x, (const double *)a);
    }
}

static bool tgi_cpu_gemm(tgi_thread *S, const tgi_gemm *gemm)
{
    const tgi_operand arg[3] = {gemm->out, gemm->a, gemm->b};
    const double work = (double)gemm->m * (double)gemm->n * (double)gemm->k;
    tgi_gemm_job job;
    tgi_gemv_job gemv;
    job.gemm = gemm;
    job.compute = tgi_compute_dtype(gemm->out.dtype);
    tgi_iter_init(&job.batch, gemm->ndim, gemm->dim, 3, arg, false);
    const int64_t batches = job.batch.numel;
    if (batches == 0 || gemm->m == 0 || gemm->n == 0) return true;
    if (job.compute == TG_I64) {
        tgi_parallel_for(tgi_parts_for(S, work * (double)batches, batches), batches, tgi_gemm_plain_part, &job);
        return true;
    }
    if (tgi_is_gemv(gemm, &gemv)) {
        const int64_t items = batches * ((gemv.outputs + TGI_GEMV_BLOCK - 1) / TGI_GEMV_BLOCK);
        gemv.batch = job.batch;
        tgi_parallel_for(tgi_parts_for(S, work * (double)batches, items), items, tgi_gemv_part, &gemv);
        return true;
    }
    tgi_gemm_plan(&job);
    const int64_t items = batches * job.m_blocks * job.n_blocks;
    const int parts = tgi_parts_for(S, work * (double)batches, items);
    if (!tgi_scratch_alloc(S, "matmul", &job.scratch, job.scratch.bytes, parts)) return false;
    tgi_parallel_for(parts, items, tgi_gemm_part, &job);
    tgi_free(S, job.scratch.each, job.scratch.total);
    return true;
}

/* ---- random numbers ---- */

typedef struct {
    tgi_random kind;
    tgi_operand out;
    int64_t n;
    double lo, hi;
    tg_rng rng;
} tgi_random_job;

/* x [n], uniform in [lo, hi): a number that would be rounded up to hi in the dtype becomes lo. */
static void tgi_random_keep_below(double *x, int64_t n, tg_dtype dtype, double lo, double hi)
{
    const int64_t size = tgi_bytes_of(dtype);
    tgi_tile rounded, again;
    tgi_store_elements(TG_F64, x, dtype, (char *)&rounded, size, n);
    tgi_load_elements(TG_F64, &again, dtype, (const char *)&rounded, size, n);
    for (int64_t i = 0; i < n; ++i) x[i] = again.f64[i] >= hi ? lo : x[i];
}

/* Elements [start, start + n) into a tile; start is the first of a block. */
static void tgi_random_tile(const tgi_random_job *job, tgi_tile *tile, int64_t start, int64_t n)
{
    const tg_dtype dtype = job->out.dtype;
    const int per = tgi_random_per_counter(job->kind, dtype), words = 4 / per;
    const int64_t least = tgi_f64_to_i64(job->lo);
    const uint64_t range = (uint64_t)tgi_f64_to_i64(job->hi) - (uint64_t)least;
    uint32_t word[2 * TGI_TILE];
    for (int64_t i = 0; i < n; i += per) tgi_random_block(job->rng, (uint64_t)((start + i) / per), word + i * words);
    for (int64_t i = 0; i < n; ++i) {
        const uint32_t *const w = word + i * words;
        switch (job->kind) {
        case TGI_UNIFORM: tile->f64[i] = job->lo + (job->hi - job->lo) * tgi_random_fraction(dtype, w); break;
        case TGI_NORMAL: tile->f64[i] = job->lo + job->hi * tgi_random_normal(dtype, w); break;
        case TGI_BERNOULLI: tile->f64[i] = tgi_random_bernoulli(w, job->lo); break;
        case TGI_RANDINT:
            tile->i64[i] = tgi_wrap_add(least, (int64_t)tgi_random_below(range, tgi_random_two_words(w)));
            break;
        }
    }
}

/* Items: tiles. */
static void tgi_random_part(const void *job_, int thread, int64_t first, int64_t end)
{
    const tgi_random_job *job = (const tgi_random_job *)job_;
    const int64_t size = tgi_bytes_of(job->out.dtype);
    (void)thread;
    for (; first < end; ++first) {
        const int64_t start = first * TGI_TILE, n = tgi_at_most(job->n - start, TGI_TILE);
        tgi_tile tile;
        tgi_random_tile(job, &tile, start, n);
        if (job->kind == TGI_UNIFORM) tgi_random_keep_below(tile.f64, n, job->out.dtype, job->lo, job->hi);
        tgi_store_elements(job->kind == TGI_RANDINT ? TG_I64 : TG_F64, &tile, job->out.dtype,
                           (char *)job->out.data + start * size, size, n);
    }
}

static bool tgi_cpu_random(tgi_thread *S, tgi_random kind, tgi_operand out, int64_t n, double lo, double hi, tg_rng rng)
{
    tgi_random_job job;
    const int64_t tiles = (n + TGI_TILE - 1) / TGI_TILE;
    job.kind = kind;
    job.out = out;
    job.n = n;
    job.lo = lo;
    job.hi = hi;
    job.rng = rng;
    tgi_parallel_for(tgi_parts_for(S, (double)n, tiles), tiles, tgi_random_part, &job);
    return true;
}

/* ---- optimizer steps ---- */

/* One step of an optimizer for n elements: parameters P, gradients G, state; `update` is the row's statement in p, g,
   a, b and c (see TGI_OPTIMIZERS). */
#define TGI_OPTIMIZER(name, suffix, type, update)                                                                   \
    static void tgi_##name##_##suffix(const tgi_optim_step *step, int64_t n, void *P, const void *G,                \
                                      void *const *state)                                                           \
    {                                                                                                               \
        typedef type real;                                                                                          \
        real *const A = (real *)state[0], *const B = (real *)state[1], *const C = (real *)state[2];                 \
        const real lr = (real)step->lr, decay = (real)step->weight_decay, eps = (real)step->eps;                    \
        const real momentum = (real)step->momentum, one_minus_dampening = (real)(1 - step->dampening);              \
        const real alpha = (real)step->alpha, beta2 = (real)step->beta2, one_minus_beta1 = (real)(1 - step->beta1); \
        const real one_minus_beta2 = (real)(1 - step->beta2), rate = (real)(step->lr / step->bias1);                \
        const real sqrt_bias_correction2 = (real)sqrt(step->bias2);                                                 \
        (void)lr, (void)eps, (void)momentum, (void)one_minus_dampening, (void)alpha, (void)beta2;                   \
        (void)one_minus_beta1, (void)one_minus_beta2, (void)rate, (void)sqrt_bias_correction2;                      \
        for (int64_t i = 0; i < n; ++i) {                                                                           \
            real p = ((const real *)P)[i], g = ((const real *)G)[i];                                                \
            real a = A[i], b = B[i], c = C[i];                                                                      \
            update;                                                                                                 \
            ((real *)P)[i] = p;                                                                                     \
            A[i] = a, B[i] = b, C[i] = c;                                                                           \
        }                                                                                                           \
    }
TGI_OPTIMIZERS(TGI_OPTIMIZER, f32, float)
TGI_OPTIMIZERS(TGI_OPTIMIZER, f64, double)

typedef void (*tgi_optimizer_kernel)(const tgi_optim_step *step, int64_t n, void *p, const void *g, void *const *state);
static const tgi_optimizer_kernel tgi_optimizer_kernels[][2] = {
    /* in the order of tgi_optimizer */
    {tgi_sgd_f32, tgi_sgd_f64},         {tgi_adam_f32, tgi_adam_f64},       {tgi_adamw_f32, tgi_adamw_f64},
    {tgi_rmsprop_f32, tgi_rmsprop_f64}, {tgi_adagrad_f32, tgi_adagrad_f64},
};

/* Tile by tile: p, g and the state are used in place if they are f32 or f64, else converted to f32 tiles; a state that
   the optimizer does not use is a tile of zeros. */
static void tgi_optim_part(const void *job, int thread, int64_t first, int64_t end)
{
    const tgi_optim_step *step = (const tgi_optim_step *)job;
    const tg_dtype compute = tgi_compute_dtype(step->dtype);
    const tgi_optimizer_kernel kernel = tgi_optimizer_kernels[step->kind][tgi_compute_index(compute)];
    const int64_t size = tgi_bytes_of(step->dtype);
    tgi_tile tile[5];
    memset(tile, 0, sizeof tile);
    (void)thread;
    for (int64_t n; first < end; first += n) {
        char *at[5];
        void *x[5];
        n = tgi_at_most(end - first, TGI_TILE);
        for (int k = 0; k < 5; ++k) {
            at[k] = k == 0 ? (char *)step->p : k == 1 ? (char *)(uintptr_t)step->g : (char *)step->s[k - 2];
            if (at[k]) at[k] += first * size;
            x[k] = at[k] && step->dtype == compute ? (void *)at[k] : (void *)&tile[k];
            if (at[k] && step->dtype != compute) tgi_load_elements(compute, &tile[k], step->dtype, at[k], size, n);
        }
        kernel(step, n, x[0], x[1], x + 2);
        for (int k = 0; k < 5 && step->dtype != compute; ++k) {
            if (k != 1 && at[k]) tgi_store_elements(compute, &tile[k], step->dtype, at[k], size, n);
        }
    }
}

static bool tgi_cpu_optim_step(tgi_thread *S, const tgi_optim_step *steps, int n)
{
    for (const tgi_optim_step *step = steps; step < steps + n; ++step) {
        if (step->n > 0) tgi_parallel_for(tgi_parts_for(S, (double)step->n, step->n), step->n, tgi_optim_part, step);
    }
    return true;
}

/* ---- the CPU's row of the backend table ---- */

#define TGI_CPU_ENTRY_ALL(name) tgi_cpu_##name,
#define TGI_CPU_ENTRY_DEVICE(name) NULL,
#define TGI_CPU_ENTRY(kinds, result, name, arguments) TGI_CPU_ENTRY_##kinds(name)
static const tgi_backend tgi_cpu = {"cpu", TG_DEV_CPU, true, TGI_BACKEND_ENTRIES(TGI_CPU_ENTRY)};

/* ======== @@BACKEND: the devices ================================================================================== */

static const char *const tgi_device_types[TGI_DEVICE_TYPES] = {"cpu", "cuda"};

/* The backend of a device type; NULL if the build has none, or, after recording an error, if the companion was compiled
   from another version. */
static const tgi_backend *tgi_backend_of(tgi_thread *S, int type)
{
#ifdef TG_ENABLE_CUDA
    static const tgi_host host = {tgi_fail, tgi_no_memory_on, tgi_fail_later, tgi_count_wait, tgi_alloc, tgi_free};
    static const tgi_cuda_version version = TGI_CUDA_VERSION_INIT;
    if (type == TG_DEV_CUDA) return tgi_cuda_backend(S, &host, &version);
#endif
    (void)S;
    return type == TG_DEV_CPU ? &tgi_cpu : NULL;
}

/* Called when the state of a thread ends. */
static void tgi_end_devices(tgi_thread *S)
{
    for (int type = 0; type < TGI_DEVICE_TYPES; ++type) {
        const tgi_backend *backend = tgi_backend_of(S, type);
        if (backend) backend->thread_end(S);
    }
}

bool tg_device_equal(tg_device a, tg_device b) { return a.type == b.type && a.index == b.index; }

const char *tg_device_str(tg_device device)
{
    static const char *const cuda[TGI_MAX_DEVICES] = {
        "cuda:0", "cuda:1", "cuda:2",  "cuda:3",  "cuda:4",  "cuda:5",  "cuda:6",  "cuda:7",
        "cuda:8", "cuda:9", "cuda:10", "cuda:11", "cuda:12", "cuda:13", "cuda:14", "cuda:15"};
    if (device.type == TG_DEV_CPU) return "cpu";
    if (device.type != TG_DEV_CUDA) return "unknown device";
    if (device.index < 0) return "cuda";
    return device.index < TGI_MAX_DEVICES ? cuda[device.index] : "cuda:16 or above";
}

/* type(:index)?, the whole string; an index has no leading zero and fits in a byte.  torch.device */
tg_status tg_device_parse(const char *text, tg_device *device)
{
    tgi_thread *S = tgi_self();
    size_t name = 0;
    int type = 0, index = -1;
    if (!text || !device) {
        tgi_fail(S, TG_ERR_ARGUMENT, "device_parse", "argument %s is NULL", text ? "device" : "text");
        return TG_ERR_ARGUMENT;
    }
    if (!*text) return tgi_fail(S, TG_ERR_ARGUMENT, "device_parse", "Device string must not be empty"), TG_ERR_ARGUMENT;
    while ((text[name] >= 'a' && text[name] <= 'z') || (text[name] >= 'A' && text[name] <= 'Z') || text[name] == '_')
        name++;
    const char *p = text + name;
    if (name && *p == ':' && p[1] >= '0' && p[1] <= '9' && !(p[1] == '0' && p[2])) {
        for (index = 0, ++p; *p >= '0' && *p <= '9' && index < 1000; ++p) index = 10 * index + (*p - '0');
        while (*p >= '0' && *p <= '9') ++p;
    }
    if (!name || *p) {
        tgi_fail(S, TG_ERR_ARGUMENT, "device_parse", "Invalid device string: '%s'\nwrite cpu, cuda or cuda:1", text);
        return TG_ERR_ARGUMENT;
    }
    for (; type < TGI_DEVICE_TYPES; ++type) {
        if (strlen(tgi_device_types[type]) == name && memcmp(text, tgi_device_types[type], name) == 0) break;
    }
    if (type == TGI_DEVICE_TYPES) {
        tgi_fail(S, TG_ERR_ARGUMENT, "device_parse",
                 "Expected one of cpu, cuda device type at start of device string: %s", text);
        return TG_ERR_ARGUMENT;
    }
    if (index > 127) {
        tgi_fail(S, TG_ERR_ARGUMENT, "device_parse", "Could not parse device index '%s' in device string '%s'",
                 text + name + 1, text);
        return TG_ERR_ARGUMENT;
    }
    device->type = type;
    device->index = type == TG_DEV_CPU ? 0 : index; /* cpu:0 is cpu */
    return TG_OK;
}

bool tg_cuda_is_available(void) { return tg_cuda_device_count() > 0; }

int tg_cuda_device_count(void)
{
    const tgi_backend *backend = tgi_backend_of(tgi_self(), TG_DEV_CUDA);
    return backend ? backend->device_count() : 0;
}

/* The backend of a device and the device with its index filled in; NULL after recording an error. */
static const tgi_backend *tgi_backend_for(tgi_thread *S, const char *op, tg_device *device)
{
    const uint64_t raised = S->raised;
    if (device->type < 0 || device->type >= TGI_DEVICE_TYPES) {
        tgi_fail(S, TG_ERR_DEVICE, op, "unknown device type %d", device->type);
        return NULL;
    }
    if (device->index < -1) {
        tgi_fail(S, TG_ERR_DEVICE, op, "Device index must not be negative: %d", device->index);
        return NULL;
    }
    const tgi_backend *backend = tgi_backend_of(S, device->type);
    if (backend) return backend->resolve(S, op, &device->index) ? backend : NULL;
    if (S->raised == raised) { /* else: a companion of another version */
        tgi_fail(S, TG_ERR_DEVICE, op,
                 "device %s cannot be used: tensorgrad not compiled with CUDA enabled\n"
                 "build with -DTG_ENABLE_CUDA and link tensorgrad_cuda.o",
                 tg_device_str(*device));
    }
    return NULL;
}

tg_status tg_cuda_set_device(int index)
{
    tgi_thread *S = tgi_self();
    tg_device device = TG_CPU_INIT;
    device.type = TG_DEV_CUDA;
    device.index = index;
    const tgi_backend *backend = tgi_backend_for(S, "cuda_set_device", &device);
    return backend && backend->set_current(S, device.index) ? TG_OK : TG_ERR_DEVICE;
}

int tg_cuda_current_device(void)
{
    tgi_thread *S = tgi_self();
    const tgi_backend *backend = tg_cuda_device_count() > 0 ? tgi_backend_of(S, TG_DEV_CUDA) : NULL;
    int index = -1;
    return backend && backend->resolve(S, "cuda_current_device", &index) ? index : 0;
}

tg_status tg_synchronize(tg_device device)
{
    tgi_thread *S = tgi_self();
    const tgi_backend *backend = tgi_backend_for(S, "synchronize", &device);
    return backend && backend->synchronize(S, device.index) ? TG_OK : tgi_failed(S);
}

void tg_set_sync_checks(bool on) { tgi_self()->sync_checks = on; }

tg_device_stats tg_stats_on(tg_device device)
{
    tgi_thread *S = tgi_self();
    const tgi_backend *backend = tgi_backend_for(S, "stats_on", &device);
    tg_device_stats stats;
    memset(&stats, 0, sizeof stats);
    if (!backend) return stats;
    tgi_report_stats(S);
    stats = *tgi_on_device(S, device.type, device.index);
    stats.bytes = TGI_ATOMIC_LOAD(&tgi_total_bytes_on[device.type * TGI_MAX_DEVICES + device.index]);
    stats.cached_bytes = backend->cached(S, device.index);
    return stats;
}

bool tg_op_waits(const char *op)
{
#define TGI_WAITING_NAME(name) #name,
    static const char *const names[] = {TGI_WAITING(TGI_WAITING_NAME) NULL};
    if (!op) return tgi_null_argument(tgi_self(), "op_waits", "op");
    for (int i = 0; names[i]; ++i) {
        if (strcmp(names[i], op) == 0) return true;
    }
    return false;
}

/* ======== @@TENSOR ================================================================================================

   A tensor is a handle (tg_tensor) on a storage, the bytes.  The invariants of both, and of scopes:

   (1) refs counts the references to a handle; the tensor is alive while refs > 0.  One reference each belongs to: the
       list that the tensor is in; every tg_param, tg_share and tg_retain (`retains` counts them, and tg_release drops
       one); every view of it; the tensor whose .grad it is; an optimizer; a running backward; and the library itself
       while it calls a function of the user's.
   (2) A tensor is in at most one list: that of a scope, of a step of backward, of a guard, or S->unscoped.
       tgi_join_list puts it there, with a reference for the list.  Who takes it out (tgi_leave_list) drops that
       reference or passes it on, as tg_keep and tg_param do.  link.next is NULL exactly if it is in none.  `scope` is
       the serial of the list, 0 for S->unscoped.
   (3) saved_refs counts what needs the handle and its bytes without keeping the tensor alive: nodes that saved it,
       edges of nodes to it (it is a leaf), and its gradient slots in running backwards; plus one while refs > 0, plus
       one while it is in S->ended_tensors.  At 0 tgi_saved_unref drops the reference to the storage and frees the
       handle.
   (4) A tensor has ended when refs has fallen to 0: tgi_release_tensor sets `ended`, so that no public function takes
       it any more (tgi_usable), and puts it into S->ended_tensors.  tgi_release_tensors takes it out and drops its
       references to node, hooks, .grad and base.  Shape, dtype and storage stay as they are until saved_refs is 0.
   (5) A tensor that has ended can live again: tgi_ref takes refs from 0 to 1.  Backward does so with the saved tensors
       that a rule reads (tgi_revive); they join the list of the step and end with it.  known_cause keeps what ended
       them first.
   (6) storage.refs counts the handles that use it, those included that have ended and are still saved.  At 0
       tgi_storage_unref waits for the pending events and frees the bytes; those of tg_wrap go to the deleter.
   (7) A view has a reference to its base, has the same storage, and the base is no view.  Its node is up to date
       exactly if its history is that of the base: an op that writes in place and is recorded adds 1 to the history of
       the base, and tgi_refresh_view gives the view a new node.  Every write in place, recorded or not, adds 1 to
       storage.version (tgi_bump_version).
   (8) A tensor has a reference to the node that made it; a leaf has no node, and hooks of its own.  A node has
       references to older nodes, and counts in saved_refs of tensors, never in refs: so a graph has no cycle, and does
       not keep a tensor alive.
   (9) A tensor belongs to the thread that made it (`owner`), and other threads are refused (tgi_usable) unless it is
       TGI_SHARED.  tg_share makes it that, with its .grad, only while it has no node and no base; from then on refs,
       saved_refs and retains and the refs of its storage are atomic.  A program that writes it must see to it that no
       other thread uses it meanwhile; the library only makes the writer wait for the device (tgi_wait_pending).
  (10) The open scopes and modes of a thread are a stack of frames, S->frame, whose serials rise.  A serial is never
       used again.  Closing a frame closes those above it first; each sets S->scope and S->grad_off to what they were
       when it was opened, and ends its tensors.
  (11) What holds while a function of the user's runs stands at "guards". */

/* The end of work on a storage's bytes that does not run in the order of the device's compute stream: a copy by the
   copy stream, or work that another thread has started. */
typedef struct tgi_pending_event {
    struct tgi_pending_event *next;
    const tgi_backend *backend; /* whose event, on which of its devices */
    int index;
    bool reading; /* the work only reads the bytes, so others may read them, too */
    void *event;  /* the device reaches it when the work is done */
} tgi_pending_event;

/* Bytes on one device; invariant 6.  Small host data stands behind the struct in the same block. */
typedef struct tgi_storage {
    int32_t refs;
    uint32_t version; /* writes in place so far, of any tensor that uses this storage */
    bool shared;      /* with other threads: refs is atomic */
    bool borrowed;    /* data belongs to the user */
    int index;        /* of the device */
    const tgi_backend *backend;
    const tgi_backend *pinned; /* whose page-locked memory it is, or NULL */
    tgi_pending_event *pending; /* or NULL; of a shared storage only a writer removes events */
    const char *writer; /* the op that last wrote in place, for messages */
    size_t block;       /* bytes of this block */
    size_t bytes;       /* of data */
    void *data;
    void (*deleter)(void *user);
    void *user;
} tgi_storage;

typedef struct tgi_hook_entry tgi_hook_entry;
typedef struct tgi_grad_slot tgi_grad_slot;

enum {
    TGI_REQUIRES_GRAD = 1,
    TGI_NO_GRAD_VIEW = 2, /* made under no_grad: must not be written in grad mode */
    TGI_MULTI_VIEW = 4,   /* one of several views made by one call: must not be written */
    TGI_SHARED = 8,       /* other threads may use it: invariant 9 */
    TGI_RETAINS_GRAD = 16,
    TGI_DEBUG_HANDLE = 32, /* with TG_DEBUG: the handle is part of a tgi_debug_handle, which is never freed */
    TGI_RELEASING = 64     /* is in S->ended_tensors */
};

/* The handle: see the invariants above. */
struct tg_tensor {
    tgi_link link;            /* in its list; must come first */
    int32_t refs, saved_refs; /* invariants 1 and 3 */
    int32_t retains;          /* how many of refs are the user's */
    uint32_t history;         /* invariant 7 */
    uint8_t dtype, ndim;
    uint16_t flags;
    int32_t output;      /* which output of node it is */
    uint8_t ended;       /* a tgi_cause: what ended it, or TGI_ALIVE */
    uint8_t known_cause; /* the cause to report when it ends, where that is known before; TGI_ALIVE: S->cause */
    tgi_storage *storage;
    int64_t offset; /* of the first element in the storage, in elements */
    tgi_node *node; /* what made it; NULL for leaves */
    tg_tensor *base, *grad;
    uint64_t scope, owner; /* serial of its list; id of its thread */
    char *name;
    tgi_hook_entry *hooks; /* of a leaf */
    tgi_grad_slot *slot;   /* of a leaf in a running backward */
    tg_tensor *next_ended; /* in S->ended_tensors */
    const char *maker;     /* with TG_DEBUG: the function that made it */
    int64_t dim[TG_MAX_DIMS], stride[TG_MAX_DIMS]; /* strides in elements */
};

/* With TG_DEBUG a handle's memory is never freed, and keeps the tensor's name for messages. */
typedef struct tgi_debug_handle {
    struct tgi_debug_handle *next;
    char name[64];
    tg_tensor t;
} tgi_debug_handle;
static tgi_debug_handle *tgi_debug_handles; /* of all threads; the list keeps leak checkers quiet */

/* Reports no error: the function that gets the shape does, for ndim < 0 and ndim > TG_MAX_DIMS.  Sizes that are missing
   (dims is NULL) make ndim -1. */
TGI_NOINLINE tg_shape tg_make_shape(int ndim, const int64_t *dims)
{
    tg_shape shape;
    shape.ndim = dims || ndim <= 0 ? ndim : -1;
    for (int i = 0; i < TG_MAX_DIMS; ++i) shape.dim[i] = i < shape.ndim ? dims[i] : 0;
    return shape;
}

/* ---- text for messages ---- */

typedef struct { char text[224]; } tgi_text;

/* "[2, 3]" */
static tgi_text tgi_dims_text(int ndim, const int64_t *dims)
{
    tgi_text s;
    size_t used = 1;
    strcpy(s.text, "[");
    for (int i = 0; i < ndim && i < TG_MAX_DIMS; ++i) {
        used += (size_t)snprintf(s.text + used, sizeof s.text - used, i ? ", %lld" : "%lld", (long long)dims[i]);
        if (used > sizeof s.text - 24) break;
    }
    strcpy(s.text + used, "]");
    return s;
}

/* The name of t, or of its base; NULL if there is none. */
static const char *tgi_name_of(const tg_tensor *t) { return t->name || !t->base ? t->name : t->base->name; }

/* "[2, 3]", or "[2, 3] 'weight'" of a tensor with a name */
static tgi_text tgi_shape_text(const tg_tensor *t)
{
    tgi_text s = tgi_dims_text(t->ndim, t->dim);
    const size_t used = strlen(s.text);
    if (tgi_name_of(t)) snprintf(s.text + used, sizeof s.text - used, " '%.40s'", tgi_name_of(t));
    return s;
}

/* ---- lifetimes ---- */

/* Adds `by` to one of t's counts and returns the sum; atomically if t is shared (invariant 9). */
static inline int32_t tgi_count(const tg_tensor *t, int32_t *count, int32_t by)
{
    return t->flags & TGI_SHARED ? TGI_ATOMIC_ADD(count, by) : (*count += by);
}

static inline int32_t tgi_refs(const tg_tensor *t)
{
    return t->flags & TGI_SHARED ? TGI_ATOMIC_LOAD(&t->refs) : t->refs;
}

static void tgi_pending_event_free(tgi_thread *S, tgi_pending_event *e)
{
    e->backend->event_destroy(S, e->event);
    tgi_free(S, e, sizeof *e);
}

/* Called before the bytes are read or written.  If they are the host's, it blocks until the pending events have
   happened; else it makes the device's later work wait for them.  To write a shared storage it blocks until the device
   has done the work of all threads.  False after recording an error. */
static bool tgi_wait_pending(tgi_thread *S, tgi_storage *s, bool writing)
{
    if (writing && s->shared && !s->backend->device_sync(S, s->index)) return false;
    for (tgi_pending_event **at = &s->pending; *at;) {
        tgi_pending_event *e = *at;
        if (e->reading && !writing) {
            at = &e->next;
            continue;
        }
        if (!(s->backend->host ? e->backend->event_sync(S, e->index, e->event)
                               : e->backend->event_wait(S, s->index, e->event))) {
            return false;
        }
        if (s->shared && !writing) { /* it stays: other threads have to wait for it, too */
            at = &e->next;
            continue;
        }
        *at = e->next;
        tgi_pending_event_free(S, e);
    }
    return true;
}

/* Waits until no device still uses these bytes; called before they are freed.  If an event fails, it waits for the
   whole device. */
static void tgi_wait_before_free(tgi_thread *S, tgi_storage *s)
{
    if (tgi_wait_pending(S, s, true)) return;
    if (s->shared) s->backend->device_sync(S, s->index);
    while (s->pending) {
        tgi_pending_event *e = s->pending;
        e->backend->device_sync(S, e->index);
        s->pending = e->next;
        tgi_pending_event_free(S, e);
    }
}

/* Adds the event that the device (or its copy stream) reaches after all work asked of it until now: that work reads the
   bytes, or writes them, too.  It replaces an earlier event of the same kind, because a stream does its work in order.
   False after recording an error.  If op is NULL, a failed allocation returns false without an error: then the caller
   has to wait in another way. */
static bool tgi_add_pending_event(tgi_thread *S, const char *op, tgi_storage *s, const tgi_backend *backend, int index,
                                  bool copy_stream, bool reading)
{
    void *event;
    if (!backend->event_record(S, index, copy_stream, &event)) return false;
    tgi_pending_event *e = s->pending;
    while (e && (e->backend != backend || e->index != index || e->reading != reading)) e = e->next;
    if (e) {
        backend->event_destroy(S, e->event);
        e->event = event;
        return true;
    }
    e = (tgi_pending_event *)tgi_alloc(S, sizeof *e);
    if (!e) {
        backend->event_destroy(S, event);
        return op && tgi_no_memory(S, op, sizeof *e);
    }
    e->backend = backend;
    e->index = index;
    e->reading = reading;
    e->event = event;
    e->next = s->pending;
    s->pending = e;
    return true;
}

/* After a write in place (invariant 7).  Other threads have to wait for a write on a device: by an event, or, where
   that cannot be allocated, this thread waits for the device at once. */
static void tgi_bump_version(tgi_thread *S, tgi_storage *s, const char *writer)
{
    s->version++;
    s->writer = writer;
    if (s->shared && !s->backend->host && !tgi_add_pending_event(S, NULL, s, s->backend, s->index, false, false))
        s->backend->device_sync(S, s->index);
}

/* Frees page-locked memory.  With a single event of its own device pending, the backend gets that event and waits for
   it before it uses the memory again, so that the host does not have to wait here. */
static void tgi_free_pinned_storage(tgi_thread *S, tgi_storage *s)
{
    tgi_pending_event *e = s->pending;
    void *event = e && !e->next && e->backend == s->pinned ? e->event : NULL;
    if (event) tgi_free(S, e, sizeof *e);
    else tgi_wait_before_free(S, s);
    s->pinned->free_pinned(S, s->data, s->bytes, event);
}

/* With TG_DEBUG: sets all bits of the bytes before they are freed (NaN in floats, -1 in signed integers), so that
   reading them through a pointer that is no longer valid gives conspicuous values. */
static void tgi_poison(tgi_thread *S, const tgi_storage *s)
{
    if (s->backend->host) {
        memset(s->data, 0xFF, s->bytes);
        return;
    }
    tgi_loop loop;
    memset(&loop, 0, sizeof loop);
    loop.ndim = loop.nargs = 1;
    loop.dim[0] = (int64_t)s->bytes;
    loop.arg[0].data = s->data;
    loop.arg[0].dtype = TG_U8;
    loop.arg[0].index = s->index;
    loop.arg[0].stride[0] = 1;
    loop.scalar[0] = 0xFF;
    s->backend->fill(S, &loop);
}

/* Invariant 6. */
static void tgi_storage_ref(tgi_storage *s)
{
    if (s->shared) TGI_ATOMIC_ADD(&s->refs, 1);
    else s->refs++;
}

static void tgi_storage_unref(tgi_thread *S, tgi_storage *s)
{
    if ((s->shared ? TGI_ATOMIC_ADD(&s->refs, -1) : --s->refs) != 0) return;
    tgi_count_bytes(S, s->backend->type, s->index, -(int64_t)s->bytes);
    if (s->deleter) {
        tgi_guard guard;
        tgi_guard_open_interrupt(&guard, S, "the deleter of tg_wrap");
        s->deleter(s->user);
        tgi_guard_close(&guard);
    }
    if (s->pinned) {
        tgi_free_pinned_storage(S, s);
    } else {
        if (s->pending || s->shared) tgi_wait_before_free(S, s);
        if (S->debug && !s->borrowed && s->bytes) tgi_poison(S, s);
        if (!s->borrowed && s->data != (void *)(s + 1)) s->backend->release(S, s->index, s->data, s->bytes);
    }
    tgi_free(S, s, s->block);
}

static void tgi_link_last(tgi_link *list, tgi_link *item)
{
    item->prev = list->prev;
    item->next = list;
    list->prev->next = item;
    list->prev = item;
}

static void tgi_unlink(tgi_link *item)
{
    item->prev->next = item->next;
    item->next->prev = item->prev;
    item->prev = item->next = NULL;
}

/* Takes t out of its list, if it is in one (invariant 2). */
static void tgi_leave_list(tgi_thread *S, tg_tensor *t)
{
    if (!t->link.next) return;
    tgi_unlink(&t->link);
    if (t->scope == 0) S->stats.unscoped--;
}

/* Called where a public function begins, and not where the tensor is made: the error handler may release tensors, also
   those that an op is using. */
static void tgi_warn_unscoped(tgi_thread *S)
{
    S->must_warn_unscoped = false;
    tgi_warn(S, "warning: 10000 tensors belong to no scope and stay until tg_shutdown()\n"
             "  hint: open a scope around each step of a loop: { TG_SCOPE; ... }");
}

/* Puts t, which is in no list, into this one; its serial is 0 if it is S->unscoped.  The list takes over a reference
   of the caller's (invariant 2). */
static void tgi_join_list(tgi_thread *S, tg_tensor *t, tgi_link *list, uint64_t serial)
{
    tgi_link_last(list, &t->link);
    t->scope = serial;
    if (serial == 0 && ++S->stats.unscoped >= 10000 && !S->warned_unscoped)
        S->warned_unscoped = S->must_warn_unscoped = true;
}

static void tgi_free_name(tgi_thread *S, char *name)
{
    if (name) tgi_free(S, name, strlen(name) + 1);
}

/* Memory for a handle, or NULL.  Freed handles are reused for handles alone, so that tgi_usable may read `ended` of one
   that was freed; with TG_DEBUG they are not reused at all. */
static tg_tensor *tgi_alloc_handle(tgi_thread *S)
{
    if (!S->debug) {
        tgi_link *block = S->free_handles;
        S->handle_bytes = sizeof(tg_tensor);
        if (!block) return (tg_tensor *)tgi_alloc_or_trim(S, sizeof(tg_tensor));
        S->free_handles = block->next;
        S->stats.cached_bytes -= (int64_t)sizeof(tg_tensor);
        return (tg_tensor *)(void *)block;
    }
    S->stats.allocations++;
    /* from malloc, because it is used longer than any allocator that the program sets */
    tgi_debug_handle *handle = (tgi_debug_handle *)malloc(sizeof *handle);
    if (!handle) return NULL;
    handle->next = (tgi_debug_handle *)(uintptr_t)TGI_ATOMIC_SWAP(&tgi_debug_handles, handle);
    handle->name[0] = 0;
    return &handle->t;
}

static void tgi_free_handle(tgi_thread *S, tg_tensor *t)
{
    t->storage = NULL;
    if ((t->flags & TGI_DEBUG_HANDLE) && t->name) {
        tgi_debug_handle *handle = (tgi_debug_handle *)(void *)((char *)t - offsetof(tgi_debug_handle, t));
        snprintf(handle->name, sizeof handle->name, "%.63s", t->name);
    }
    tgi_free_name(S, t->name);
    t->name = NULL;
    if (t->flags & TGI_DEBUG_HANDLE) return;
    if (!tgi_may_cache(S, sizeof *t)) {
        tgi_raw_free(S, t, sizeof *t);
        return;
    }
    t->link.next = S->free_handles;
    S->free_handles = &t->link;
    S->stats.cached_bytes += (int64_t)sizeof *t;
}

/* Invariant 3.  A tensor that could not be made has no storage. */
static void tgi_saved_ref(tg_tensor *t) { tgi_count(t, &t->saved_refs, 1); }

static void tgi_saved_unref(tgi_thread *S, tg_tensor *t)
{
    if (tgi_count(t, &t->saved_refs, -1) != 0) return;
    if (t->storage) tgi_storage_unref(S, t->storage);
    S->stats.tensors--;
    tgi_free_handle(S, t);
}

/* The two functions of the tape, a higher layer, that tensors need. */
static void tgi_release_history(tgi_thread *S, tg_tensor *t);
static char **tgi_history_name(tg_tensor *t);
static const struct {
    void (*release)(tgi_thread *S, tg_tensor *t); /* drops t's references to its node and hooks */
    char **(*name)(tg_tensor *t);                 /* where t's node keeps the name of its output; NULL for leaves */
} tgi_history = {tgi_release_history, tgi_history_name};

static void tgi_release_tensors(tgi_thread *S);

/* From alive to ended (invariant 4), when the last of refs was dropped.  What refs counted in saved_refs now stands for
   the place in S->ended_tensors. */
static void tgi_release_tensor(tgi_thread *S, tg_tensor *t)
{
    tgi_leave_list(S, t);
    t->ended = t->known_cause ? t->known_cause : (uint8_t)S->cause;
    t->known_cause = TGI_ALIVE;
    if (t->flags & TGI_RELEASING) { /* it is still there from the first time that it ended (invariant 5) */
        tgi_saved_unref(S, t);
        return;
    }
    t->flags |= TGI_RELEASING;
    t->next_ended = S->ended_tensors;
    S->ended_tensors = t;
    if (!S->releasing_tensors) tgi_release_tensors(S);
}

static void tgi_unref(tgi_thread *S, tg_tensor *t)
{
    if (t && tgi_count(t, &t->refs, -1) == 0) tgi_release_tensor(S, t);
}

/* The same, and if this ends the tensor, the cause that messages will give. */
static void tgi_unref_by(tgi_thread *S, tg_tensor *t, tgi_cause cause)
{
    const tgi_cause before = S->cause;
    S->cause = cause;
    tgi_unref(S, t);
    S->cause = before;
}

/* Drops what the ended tensors refer to (invariant 4).  A tensor that ends by this joins S->ended_tensors: a loop, not
   a recursion, frees a chain of gradients of any length. */
static void tgi_release_tensors(tgi_thread *S)
{
    S->releasing_tensors = true;
    while (S->ended_tensors) {
        tg_tensor *t = S->ended_tensors;
        S->ended_tensors = t->next_ended;
        t->flags &= (uint16_t)~TGI_RELEASING;
        if (tgi_refs(t) > 0) { /* it is alive again (invariant 5) */
            tgi_saved_unref(S, t);
            continue;
        }
        if (t->node || t->hooks) tgi_history.release(S, t);
        tg_tensor *grad = t->grad, *base = t->base;
        t->grad = t->base = NULL;
        tgi_unref_by(S, grad, TGI_BY_GRADIENT);
        tgi_unref_by(S, base, TGI_BY_OWNER);
        tgi_saved_unref(S, t);
    }
    S->releasing_tensors = false;
}

/* Invariant 1; a tensor that had ended is alive again (invariant 5). */
static void tgi_ref(tg_tensor *t)
{
    if (tgi_count(t, &t->refs, 1) != 1) return;
    tgi_saved_ref(t);
    if (t->ended) t->known_cause = t->ended;
    t->ended = TGI_ALIVE;
}

/* Around a callback, so that it cannot end a tensor that is used after it. */
static void tgi_ref_all(tg_tensor *const *list, int n)
{
    for (int i = 0; i < n; ++i) tgi_ref(list[i]);
}

static void tgi_unref_all(tgi_thread *S, tg_tensor *const *list, int n)
{
    for (int i = 0; i < n; ++i) tgi_unref(S, list[i]);
}

/* ---- scopes ---- */

/* One open scope or mode (invariant 10). */
struct tgi_frame {
    tgi_frame *below;
    uint64_t serial;
    int kind;      /* TGI_GUARD_SCOPE or TGI_GUARD_GRAD */
    tgi_link list; /* a scope's tensors */
    bool grad_off; /* this and the following: what S had when the frame was opened */
    tgi_link *scope;
    uint64_t scope_serial;
};

/* Ends the tensors of a list, newest first. */
static void tgi_end_list(tgi_thread *S, tgi_link *list, tgi_cause cause)
{
    while (list->prev != list) {
        tg_tensor *t = (tg_tensor *)(void *)list->prev;
        tgi_leave_list(S, t);
        tgi_unref_by(S, t, cause);
    }
}

/* Opens a frame and returns its serial, or 0 after recording an error. */
static uint64_t tgi_frame_open(tgi_thread *S, int kind)
{
    tgi_frame *f = (tgi_frame *)tgi_alloc(S, sizeof *f);
    if (!f) {
        tgi_no_memory(S, "scope_begin", sizeof *f);
        return 0;
    }
    f->below = S->frame;
    f->serial = ++S->serials;
    f->kind = kind;
    f->grad_off = S->grad_off;
    f->scope = S->scope;
    f->scope_serial = S->scope_serial;
    if (kind == TGI_GUARD_SCOPE) {
        f->list.prev = f->list.next = &f->list;
        S->scope = &f->list;
        S->scope_serial = f->serial;
    }
    S->frame = f;
    return f->serial;
}

/* Closes the frames above `innermost`; NULL: all of them. */
static void tgi_frames_close(tgi_thread *S, tgi_frame *innermost)
{
    while (S->frame && S->frame != innermost) {
        tgi_frame *f = S->frame;
        S->frame = f->below;
        S->scope = f->scope;
        S->scope_serial = f->scope_serial;
        S->grad_off = f->grad_off;
        if (f->kind == TGI_GUARD_SCOPE) tgi_end_list(S, &f->list, TGI_BY_SCOPE);
        tgi_free(S, f, sizeof *f);
    }
}

/* Closes the frame with this serial and those above it.  False if it is not open, or was opened before the callback
   that is running was called. */
static bool tgi_frame_close(tgi_thread *S, uint64_t serial)
{
    tgi_frame *f = S->frame;
    if (S->guard && serial <= S->guard->frame_limit) {
        S->guard->misused = true;
        return false;
    }
    while (f && f->serial > serial) f = f->below;
    if (!f || f->serial != serial) return false;
    tgi_frames_close(S, f->below);
    return true;
}

/* ---- guards: what holds while a callback, a function of the user's, runs ----

   (1) The library has a reference of its own to each tensor that it uses afterwards.
   (2) The callback cannot end a scope that was open before it, and cannot call tg_shutdown or tg_thread_end.
   (3) The error handler, deleters and free_user interrupt other work (tgi_guard_open_interrupt).  Tensors that end
       meanwhile stay in S->ended_tensors, and those that the callback makes end when it has returned.
   (4) When it has returned, scopes that it left open are closed and grad mode is restored (tgi_guard_close).  A scope
       left open is an error, and so is an attempt at (2), whatever the callback returned. */

static void tgi_guard_open(tgi_guard *g, tgi_thread *S, const char *what)
{
    g->S = S;
    g->outer = S->guard;
    g->what = what;
    g->composite = S->composite;
    g->frame = S->frame;
    g->frame_limit = S->serials;
    g->raised = S->raised;
    g->grad_off = S->grad_off;
    g->misused = g->interrupts = false;
    S->guard = g;
    S->composite = NULL; /* messages about the callback's calls name those */
}

/* For a callback that interrupts other work (3). */
static void tgi_guard_open_interrupt(tgi_guard *g, tgi_thread *S, const char *what)
{
    tgi_guard_open(g, S, what);
    g->interrupts = true;
    g->releasing_tensors = S->releasing_tensors;
    g->scope = S->scope;
    g->scope_serial = S->scope_serial;
    g->made.prev = g->made.next = &g->made;
    g->frame_limit = ++S->serials;
    S->releasing_tensors = true;
    S->scope = &g->made;
    S->scope_serial = S->serials;
}

/* False, after recording an error, if the callback broke (2) or left a scope open (4). */
static bool tgi_guard_close(tgi_guard *g)
{
    tgi_thread *S = g->S;
    const bool left_open = S->frame != g->frame;
    tgi_frames_close(S, g->frame);
    if (g->interrupts) {
        tgi_end_list(S, &g->made, TGI_BY_SCOPE);
        S->scope = g->scope;
        S->scope_serial = g->scope_serial;
        S->releasing_tensors = g->releasing_tensors;
        if (!S->releasing_tensors) tgi_release_tensors(S);
    }
    S->guard = g->outer;
    S->composite = g->composite;
    S->grad_off = g->grad_off;
    if (left_open) {
        tgi_fail(S, TG_ERR_ARGUMENT, "scope_begin", "%s left a scope open\n"
                 "end it with tg_scope_end, after tg_keep of the result", g->what);
    } else if (g->misused) {
        tgi_fail(S, TG_ERR_ARGUMENT, "scope_end", "%s tried to end a scope that was open before it, or its thread",
                 g->what);
    }
    return !left_open && !g->misused;
}

/* Whether the callback of this guard raised an error and did not clear it. */
static bool tgi_guard_failed(const tgi_guard *g) { return tgi_raised_since(g->S, g->raised); }

tg_mark tg_scope_begin(void)
{
    tg_mark mark;
    mark.serial = tgi_frame_open(tgi_self(), TGI_GUARD_SCOPE);
    return mark;
}

void tg_scope_end(tg_mark mark)
{
    tgi_thread *S = tgi_self();
    if (mark.serial == 0) return; /* tg_scope_begin failed, with an error */
    if (tgi_frame_close(S, mark.serial)) return;
    if (S->guard && mark.serial <= S->guard->frame_limit) {
        tgi_fail(S, TG_ERR_ARGUMENT, "scope_end", "%s cannot end a scope that was opened before it was called",
                 S->guard->what);
        return;
    }
    tgi_fail(S, TG_ERR_ARGUMENT, "scope_end",
             "this scope is not open: it was ended before, by its own mark or an outer one");
}

tgi_scope_guard tgi_scope_guard_open(void *self, int kind, int value)
{
    tgi_thread *S = tgi_self();
    tgi_scope_guard hold;
    hold.self = self;
    hold.serial = tgi_frame_open(S, kind);
    if (kind == TGI_GUARD_GRAD && hold.serial) S->grad_off = !value;
    return hold;
}

/* Does nothing unless hold->self is its own address: a goto past the declaration leaves it uninitialised, but its
   cleanup still runs. */
void tgi_scope_guard_close(tgi_scope_guard *hold)
{
    if (hold->self == (const void *)hold && hold->serial) tgi_frame_close(tgi_self(), hold->serial);
    hold->serial = 0;
}

/* The frame of the innermost scope, or NULL if new tensors join another list (that of a step of backward). */
static tgi_frame *tgi_innermost_scope(tgi_thread *S)
{
    tgi_frame *f = S->frame;
    while (f && f->kind != TGI_GUARD_SCOPE) f = f->below;
    return f && f->serial == S->scope_serial ? f : NULL;
}

/* ---- arguments: every public function checks its tensors by tgi_argument or tgi_arguments ---- */

/* Invariants 4 and 9. */
static inline bool tgi_usable(const tgi_thread *S, const tg_tensor *t)
{
    return t && !t->ended && (t->owner == S->id || (t->flags & TGI_SHARED));
}

/* The error of a tensor that has ended.  With TG_DEBUG it says what the tensor was. */
static bool tgi_ended_argument(tgi_thread *S, const char *op, const char *argument, const tg_tensor *t)
{
    static const char *const why[] = {
        "",
        "ended with its scope: tg_keep hands it out, tg_param owns it",
        "was ended by tg_release, which gave up the last reference to it: tg_retain adds one",
        "was ended by tg_drop",
        "ended as a gradient that another one replaced, or with its tensor: tg_retain holds a gradient",
        "ended with its thread's tensors, by tg_shutdown or tg_thread_end",
        "ended with the optimizer, graph or view that held it last"};
    if (!(t->flags & TGI_DEBUG_HANDLE))
        return tgi_fail(S, TG_ERR_ARGUMENT, op, "argument %s %s", argument, why[t->ended]);
    const tgi_debug_handle *handle =
        (const tgi_debug_handle *)(const void *)((const char *)t - offsetof(tgi_debug_handle, t));
    const char *name = t->name ? t->name : handle->name;
    return tgi_fail(S, TG_ERR_ARGUMENT, op, "argument %s %s (made by tg_%s, %s %s%s%.64s%s)", argument, why[t->ended],
                    t->maker, tg_dtype_name((tg_dtype)t->dtype), tgi_dims_text(t->ndim, t->dim).text,
                    *name ? " '" : "", name, *name ? "'" : "");
}

/* The error that says why t cannot be used; false, always. */
TGI_NOINLINE static bool tgi_bad_argument(tgi_thread *S, const char *op, const char *argument, const tg_tensor *t)
{
    if (!t) return tgi_null_argument(S, op, argument);
    if (t->ended) return tgi_ended_argument(S, op, argument, t);
    return tgi_fail(S, TG_ERR_ARGUMENT, op,
                    "argument %s belongs to another thread\n"
                    "tg_share(t) lets other threads use a leaf",
                    argument);
}

/* Whether t, the argument of that name, is a tensor that this thread may use. */
static inline bool tgi_argument(tgi_thread *S, const char *op, const char *argument, const tg_tensor *t)
{
    return TGI_LIKELY(tgi_usable(S, t)) || tgi_bad_argument(S, op, argument, t);
}

/* The name of argument i of a list: "b" for i = 1 of "a,b"; "tensors[1]" where arguments is the one name "tensors". */
static tgi_text tgi_argument_name(const char *arguments, int i, int count)
{
    tgi_text name;
    const char *p = arguments;
    const bool list = count > 1 && !strchr(p, ',');
    for (int k = 0; k < i && !list; ++k) p = strchr(p, ',') + 1;
    if (list) snprintf(name.text, sizeof name.text, "%s[%d]", p, i);
    else snprintf(name.text, sizeof name.text, "%.*s", (int)strcspn(p, ",?"), p);
    return name;
}

/* The same for a list of tensors with the name "tensors" or the names "a,b,weight".  Those after the first `required`
   may be NULL. */
static bool tgi_argument_list(tgi_thread *S, const char *op, const char *arguments, tg_tensor *const *in, int count,
                              int required)
{
    for (int i = 0; i < count; ++i) {
        if (TGI_LIKELY(tgi_usable(S, in[i])) || (!in[i] && i >= required)) continue;
        return tgi_bad_argument(S, op, tgi_argument_name(arguments, i, count).text, in[i]);
    }
    return true;
}

/* The same for two tensors, neither of which may be NULL. */
static bool tgi_arguments(tgi_thread *S, const char *op, const char *arguments, tg_tensor *a, tg_tensor *b)
{
    tg_tensor *const in[2] = {a, b};
    return tgi_argument_list(S, op, arguments, in, 2, 2);
}

/* Whether the number of dims of a shape, list of dims or index from the user is valid; no other function checks it. */
TGI_NOINLINE static bool tgi_shape_argument(tgi_thread *S, const char *op, const char *argument, const tg_shape *shape)
{
    if (TGI_LIKELY(shape->ndim >= 0 && shape->ndim <= TG_MAX_DIMS)) return true;
    return tgi_fail(S, TG_ERR_SHAPE, op, "argument %s: a tensor has at most %d dims, not %d", argument, TG_MAX_DIMS,
                    shape->ndim);
}

/* Whether t is in this thread's list of that serial.  A tensor that other threads may use can be in a list of its own
   thread (as the .grad of a shared leaf), and the serials of two threads may be the same. */
static bool tgi_in_list(const tgi_thread *S, const tg_tensor *t, uint64_t serial)
{
    return t->link.next && t->scope == serial && t->owner == S->id;
}

tg_tensor *tg_keep(tg_tensor *t)
{
    tgi_thread *S = tgi_self();
    if (!tgi_argument(S, "keep", "t", t)) return NULL;
    const tgi_frame *f = tgi_innermost_scope(S);
    if (f && tgi_in_list(S, t, f->serial)) {
        tgi_leave_list(S, t);
        tgi_join_list(S, t, f->scope, f->scope_serial);
    }
    return t;
}

tg_tensor *tg_retain(tg_tensor *t)
{
    tgi_thread *S = tgi_self();
    if (!tgi_argument(S, "retain", "t", t)) return NULL;
    tgi_ref(t);
    if (tgi_count(t, &t->retains, 1) == 1 && !(t->flags & TGI_SHARED)) t->known_cause = TGI_ALIVE;
    return t;
}

void tg_release(tg_tensor *t)
{
    tgi_thread *S = tgi_self();
    if (!t || !tgi_argument(S, "release", "t", t)) return;
    const int32_t retains = tgi_count(t, &t->retains, -1);
    if (retains == 0 && !t->link.next && !(t->flags & TGI_SHARED)) t->known_cause = TGI_BY_RELEASE;
    if (retains < 0) {
        tgi_count(t, &t->retains, 1);
        if (!tgi_in_list(S, t, 0)) { /* a tensor in no scope may be released without tg_retain */
            tgi_fail(S, TG_ERR_ARGUMENT, "release", "released more often than retained: tensor %s belongs to %s\n"
                     "release what tg_param or tg_retain returned, once each",
                     tgi_shape_text(t).text, t->link.next ? "a scope" : "others");
            return;
        }
        tgi_leave_list(S, t);
    }
    tgi_unref_by(S, t, TGI_BY_RELEASE);
}

/* The reference of t's list becomes one of the user's; a tensor in no list gets one more. */
static void tgi_retain_from_list(tgi_thread *S, tg_tensor *t)
{
    if (t->link.next && t->owner == S->id) tgi_leave_list(S, t);
    else tgi_ref(t);
    tgi_count(t, &t->retains, 1);
}

void tg_drop(tg_tensor *t)
{
    tgi_thread *S = tgi_self();
    if (!t || !tgi_argument(S, "drop", "t", t)) return;
    if (!tgi_in_list(S, t, S->scope_serial)) return;
    tgi_leave_list(S, t);
    tgi_unref_by(S, t, TGI_BY_DROP);
}

/* From here on other threads may use t (invariant 9).  They wait for the work on it that this thread has given to the
   device. */
static bool tgi_make_shared(tgi_thread *S, tg_tensor *t)
{
    tgi_storage *s = t->storage;
    if (t->flags & TGI_SHARED) return true;
    if (s->pending && !tgi_wait_pending(S, s, true)) return false;
    if (!s->backend->host && !tgi_add_pending_event(S, "share", s, s->backend, s->index, false, false)) return false;
    t->flags |= TGI_SHARED;
    s->shared = true;
    return true;
}

tg_tensor *tg_share(tg_tensor *t)
{
    tgi_thread *S = tgi_self();
    if (!tgi_argument(S, "share", "t", t)) return NULL;
    if ((t->flags & TGI_SHARED) && (t->owner != S->id || !t->link.next)) return t;
    if (t->node || t->base) {
        tgi_fail(S, TG_ERR_GRAPH, "share", "only leaves and constants can be shared between threads, not a %s\n"
                 "share tg_clone(tg_detach(t))", t->base ? "view" : "computed tensor that requires grad");
        return NULL;
    }
    if (t->grad && !t->grad->node && !t->grad->base && !tgi_make_shared(S, t->grad)) return NULL;
    if (!tgi_make_shared(S, t)) return NULL;
    if (t->link.next) tgi_retain_from_list(S, t);
    return t;
}

static tg_status tgi_end_thread(tgi_thread *S)
{
    tgi_frames_close(S, NULL);
    tgi_end_list(S, &S->unscoped, TGI_BY_THREAD);
    tgi_end_devices(S);
    tgi_trim(S, 0);
    tgi_trim_handles(S, 0);
    tgi_report_stats(S);
    TGI_ATOMIC_ADD(&tgi_threads_alive, -1);
    S->started = false;
    return TG_OK;
}

/* Not while a callback is running: the library uses the state of the thread when it returns. */
static bool tgi_may_end(tgi_thread *S, const char *op)
{
    if (!S->guard) return true;
    S->guard->misused = true;
    return tgi_fail(S, TG_ERR_ARGUMENT, op, "%s is running, which cannot end its own thread\nreturn from it first",
                    S->guard->what);
}

tg_status tg_thread_end(void)
{
    tgi_thread *S = tgi_self();
    return tgi_may_end(S, "thread_end") ? tgi_end_thread(S) : TG_ERR_ARGUMENT;
}

tg_status tg_shutdown(void)
{
    tgi_thread *S = tgi_self();
    if (!tgi_may_end(S, "shutdown")) return TG_ERR_ARGUMENT;
    const int64_t others = TGI_ATOMIC_LOAD(&tgi_threads_alive) - 1;
    if (others > 0) {
        tgi_fail(S, TG_ERR_ARGUMENT, "shutdown", "%lld other threads hold state\nend each with tg_thread_end() first",
                 (long long)others);
        return TG_ERR_ARGUMENT;
    }
    return tgi_end_thread(S);
}

/* ---- making tensors ---- */

/* Stores the number of elements of a shape; false after recording an error if a size is negative or the number too
   large. */
static bool tgi_check_shape(tgi_thread *S, const char *op, int ndim, const int64_t *dims, int64_t *numel)
{
    if (ndim < 0 || ndim > TG_MAX_DIMS) {
        return tgi_fail(S, TG_ERR_SHAPE, op, "a tensor has at most %d dims, not %d", TG_MAX_DIMS, ndim);
    }
    int64_t n = 1;
    bool empty = false;
    for (int i = 0; i < ndim; ++i) {
        if (dims[i] < 0) {
            return tgi_fail(S, TG_ERR_SHAPE, op, "Trying to create tensor with negative dimension %lld: %s",
                            (long long)dims[i], tgi_dims_text(ndim, dims).text);
        }
        empty = empty || dims[i] == 0;
    }
    for (int i = 0; i < ndim; ++i) { /* of an empty tensor, too: its strides are such products */
        const int64_t size = dims[i] ? dims[i] : 1;
        if (n > INT64_MAX / 16 / size) {
            return tgi_fail(S, TG_ERR_SHAPE, op, "the number of elements of shape %s overflows",
                            tgi_dims_text(ndim, dims).text);
        }
        n *= size;
    }
    *numel = empty ? 0 : n;
    return true;
}

static int64_t tgi_numel(const tg_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->ndim; ++i) n *= t->dim[i];
    return n;
}

/* t if ok; else NULL, and t is released: its list held the only reference. */
static tg_tensor *tgi_or_release(tgi_thread *S, tg_tensor *t, bool ok)
{
    if (t && !ok) tgi_unref(S, t);
    return ok ? t : NULL;
}

/* A handle without shape or storage, in the current scope; NULL after recording an error. */
static tg_tensor *tgi_new_handle(tgi_thread *S, const char *op, tg_dtype dtype)
{
    tg_tensor *t = tgi_alloc_handle(S);
    if (!t) return tgi_no_tensor(tgi_no_memory(S, op, sizeof *t));
    memset(t, 0, offsetof(tg_tensor, dim));
    if (S->debug) {
        t->flags = TGI_DEBUG_HANDLE;
        t->maker = S->composite ? S->composite : op;
    }
    t->refs = t->saved_refs = 1;
    t->dtype = (uint8_t)dtype;
    t->owner = S->id;
    if (++S->stats.tensors > S->stats.peak_tensors) S->stats.peak_tensors = S->stats.tensors;
    tgi_join_list(S, t, S->scope, S->scope_serial);
    return t;
}

/* Which kind of memory: ordinary memory of the device; page-locked memory of the host; memory of the device that the
   copy stream will fill. */
typedef enum { TGI_ORDINARY, TGI_PINNED, TGI_FOR_COPY_STREAM } tgi_memory;

enum { TGI_INLINE_BYTES = 512 };

/* A storage that has no data yet, with this much room behind the struct; NULL after recording an error. */
static tgi_storage *tgi_new_storage_block(tgi_thread *S, const char *op, const tgi_backend *backend, int index,
                                          size_t room)
{
    const size_t block = sizeof(tgi_storage) + room;
    tgi_storage *s = (tgi_storage *)tgi_alloc(S, block);
    if (!s) {
        tgi_no_memory(S, op, block);
        return NULL;
    }
    memset(s, 0, sizeof *s);
    s->refs = 1;
    s->backend = backend;
    s->index = index;
    s->block = block;
    return s;
}

/* A storage of this many bytes on a device, contents undefined; NULL after recording an error.  Page-locked memory
   comes from the backend `pinning`. */
static tgi_storage *tgi_new_storage(tgi_thread *S, const char *op, const tgi_backend *backend, int index, size_t bytes,
                                    tgi_memory memory, const tgi_backend *pinning)
{
    const bool inside = backend->host && bytes <= TGI_INLINE_BYTES && memory == TGI_ORDINARY;
    tgi_storage *s = tgi_new_storage_block(S, op, backend, index, inside ? bytes : 0);
    if (!s) return NULL;
    s->data = inside                 ? (void *)(s + 1)
              : memory == TGI_PINNED ? pinning->alloc_pinned(S, bytes)
                                     : backend->alloc(S, index, bytes, memory == TGI_FOR_COPY_STREAM);
    if (!s->data) {
        tgi_no_memory_on(S, op, backend->type, index, (double)bytes, backend->cached(S, index));
        tgi_free(S, s, s->block);
        return NULL;
    }
    s->pinned = memory == TGI_PINNED ? pinning : NULL;
    s->bytes = bytes;
    tgi_count_bytes(S, backend->type, index, (int64_t)bytes);
    return s;
}

/* strides := row-major ones for dims */
static void tgi_contiguous_strides(int ndim, const int64_t *dims, int64_t *strides)
{
    int64_t stride = 1;
    for (int i = ndim - 1; i >= 0; --i) {
        strides[i] = stride;
        stride *= dims[i] ? dims[i] : 1;
    }
}

static void tgi_set_contiguous(tg_tensor *t, int ndim, const int64_t *dims)
{
    t->ndim = (uint8_t)ndim;
    memcpy(t->dim, dims, sizeof(int64_t) * (size_t)ndim);
    tgi_contiguous_strides(ndim, dims, t->stride);
}

/* A new tensor, row-major, contents undefined; `memory` and `pinning` as in tgi_new_storage. */
static tg_tensor *tgi_new_in(tgi_thread *S, const char *op, int ndim, const int64_t *dims, tg_dtype dtype,
                             const tgi_backend *backend, int index, tgi_memory memory, const tgi_backend *pinning)
{
    int64_t numel = 0;
    if (!tgi_dtype_known(dtype)) return tgi_no_tensor(tgi_fail(S, TG_ERR_DTYPE, op, "unknown dtype %d", (int)dtype));
    if (!tgi_check_shape(S, op, ndim, dims, &numel)) return NULL;
    const size_t size = tgi_dtypes[dtype].size;
    if ((uint64_t)numel > SIZE_MAX / 2 / size) {
        tgi_no_memory_on(S, op, backend->type, index, (double)numel * (double)size, backend->cached(S, index));
        return NULL;
    }
    tg_tensor *t = tgi_new_handle(S, op, dtype);
    if (!t) return NULL;
    t->storage = tgi_new_storage(S, op, backend, index, (size_t)numel * size, memory, pinning);
    if (!t->storage) return tgi_or_release(S, t, false);
    tgi_set_contiguous(t, ndim, dims);
    return t;
}

static tg_tensor *tgi_new(tgi_thread *S, const char *op, int ndim, const int64_t *dims, tg_dtype dtype,
                          const tgi_backend *backend, int index)
{
    return tgi_new_in(S, op, ndim, dims, dtype, backend, index, TGI_ORDINARY, NULL);
}

/* A new handle on t's storage, of t's shape, without node or base.  Views and detach start from it. */
static tg_tensor *tgi_alias(tgi_thread *S, const char *op, tg_tensor *t)
{
    tg_tensor *y = tgi_new_handle(S, op, (tg_dtype)t->dtype);
    if (!y) return NULL;
    y->storage = t->storage;
    tgi_storage_ref(t->storage);
    y->offset = t->offset;
    y->ndim = t->ndim;
    memcpy(y->dim, t->dim, sizeof(int64_t) * t->ndim);
    memcpy(y->stride, t->stride, sizeof(int64_t) * t->ndim);
    return y;
}

/* Called before t is read or written: see tgi_wait_pending.  False after recording an error.  tgi_op_begin does it for
   an op's inputs, tgi_op_begin_in_place for what the op writes. */
static bool tgi_wait_ready(tgi_thread *S, const tg_tensor *t, bool writing)
{
    tgi_storage *s = t->storage;
    return TGI_LIKELY(!s->pending && !(writing && s->shared)) || tgi_wait_pending(S, s, writing);
}

/* The operand of a kernel that loops over t's own dims.  tgi_wait_ready has to come first, and once more for what the
   kernel writes. */
static inline void tgi_operand_init(tgi_operand *o, const tg_tensor *t)
{
    o->dtype = (tg_dtype)t->dtype;
    o->index = t->storage->index;
    o->data = (char *)t->storage->data + t->offset * (int64_t)tgi_dtypes[t->dtype].size;
    for (int i = 0; i < t->ndim; ++i) o->stride[i] = t->stride[i];
}

static tgi_operand tgi_operand_of(const tg_tensor *t)
{
    tgi_operand o;
    tgi_operand_init(&o, t);
    return o;
}

/* A loop over t's elements with t as its first operand. */
static tgi_loop tgi_loop_over(const tg_tensor *t)
{
    tgi_loop loop;
    loop.kernel = 0;
    loop.compute = TG_F64;
    loop.ndim = t->ndim;
    memcpy(loop.dim, t->dim, sizeof(int64_t) * t->ndim);
    loop.nargs = 1;
    tgi_operand_init(&loop.arg[0], t);
    loop.scalar[0] = loop.scalar[1] = 0;
    return loop;
}

/* The address of t's element `at` (in elements from the first), ready to be read or written; NULL after recording an
   error. */
static void *tgi_bytes_at(tgi_thread *S, const tg_tensor *t, int64_t at, bool writing)
{
    if (!tgi_wait_ready(S, t, writing)) return NULL;
    return (char *)t->storage->data + (t->offset + at) * (int64_t)tgi_dtypes[t->dtype].size;
}

/* Counts a copy from one storage to another, where NULL is memory of the host. */
static void tgi_count_moved(tgi_thread *S, const tgi_storage *to, const tgi_storage *from, size_t bytes)
{
    const int to_type = to ? to->backend->type : TG_DEV_CPU, from_type = from ? from->backend->type : TG_DEV_CPU;
    if (to_type == TG_DEV_CPU && from_type == TG_DEV_CPU) return;
    tgi_on_device(S, to_type, to ? to->index : 0)->received += (int64_t)bytes;
    tgi_on_device(S, from_type, from ? from->index : 0)->sent += (int64_t)bytes;
}

/* Copies bytes from host memory to t's elements from `at` on, or back; they lie in one piece. */
static bool tgi_upload(tgi_thread *S, const tg_tensor *t, int64_t at, const void *host, size_t bytes)
{
    const tgi_backend *backend = t->storage->backend;
    void *to = tgi_bytes_at(S, t, at, true);
    if (!to) return false;
    tgi_count_moved(S, t->storage, NULL, bytes);
    if (bytes == tgi_dtypes[t->dtype].size) return backend->put_element(S, t->storage->index, to, host, bytes);
    return backend->upload(S, t->storage->index, to, host, bytes);
}

static bool tgi_download(tgi_thread *S, const tg_tensor *t, int64_t at, void *host, size_t bytes)
{
    void *from = tgi_bytes_at(S, t, at, false);
    if (!from) return false;
    tgi_count_moved(S, NULL, t->storage, bytes);
    return t->storage->backend->download(S, t->storage->index, host, from, bytes);
}

/* y = x, element for element; the same shape, any dtypes and layouts, one device. */
static bool tgi_copy_elements(tgi_thread *S, const tg_tensor *y, const tg_tensor *x)
{
    tgi_loop loop = tgi_loop_over(y);
    if (!tgi_wait_ready(S, y, true) || !tgi_wait_ready(S, x, false)) return false;
    loop.nargs = 2;
    loop.arg[1] = tgi_operand_of(x);
    return y->storage->backend->copy(S, &loop);
}

/* Whether s is a whole number that an int64_t can hold. */
static bool tgi_is_integral(double s)
{
    return floor(s) == s && s >= -9223372036854775808.0 && s < 9223372036854775808.0;
}

static bool tgi_fail_value(tgi_thread *S, const char *op, tg_dtype dtype, double value)
{
    return tgi_fail(S, TG_ERR_DTYPE, op,
                    "%g is no value of a tensor of %s\n"
                    "convert the tensor first: tg_to_dtype(t, TG_F32)",
                    value, tg_dtype_name(dtype));
}

/* Whether a tensor of this dtype can hold the number, else an error: floats hold any number, bool too (true unless 0),
   integers a whole number in their range. */
static bool tgi_check_value(tgi_thread *S, const char *op, tg_dtype dtype, double value)
{
    const double low = dtype == TG_I32 ? INT32_MIN : 0, high = dtype == TG_I32 ? INT32_MAX : UINT8_MAX;
    if (tgi_dtypes[dtype].floating || dtype == TG_BOOL) return true;
    if (tgi_is_integral(value) && (dtype == TG_I64 || (value >= low && value <= high))) return true;
    return tgi_fail_value(S, op, dtype, value);
}

static bool tgi_fill_elements(tgi_thread *S, const tg_tensor *y, double value)
{
    tgi_loop loop = tgi_loop_over(y);
    if (!tgi_wait_ready(S, y, true)) return false;
    loop.scalar[0] = value;
    return y->storage->backend->fill(S, &loop);
}

/* A new contiguous tensor of t's shape, dtype and device. */
static tg_tensor *tgi_new_like(tgi_thread *S, const char *op, const tg_tensor *t)
{
    return tgi_new(S, op, t->ndim, t->dim, (tg_dtype)t->dtype, t->storage->backend, t->storage->index);
}

/* A new row-major tensor for a public function. */
static tg_tensor *tgi_empty(tgi_thread *S, const char *op, tg_shape shape, tg_dtype dtype, tg_device device)
{
    const tgi_backend *backend = tgi_backend_for(S, op, &device);
    if (!TGI_LIKELY(!S->must_warn_unscoped) && S->scope == &S->unscoped) tgi_warn_unscoped(S);
    if (!backend || !tgi_shape_argument(S, op, "shape", &shape)) return NULL;
    return tgi_new(S, op, shape.ndim, shape.dim, dtype, backend, device.index);
}

static tg_tensor *tgi_full(tgi_thread *S, const char *op, tg_shape shape, double value, tg_dtype dtype,
                           tg_device device)
{
    tg_tensor *t = tgi_empty(S, op, shape, dtype, device);
    return t ? tgi_or_release(S, t, tgi_check_value(S, op, dtype, value) && tgi_fill_elements(S, t, value)) : NULL;
}

static tg_tensor *tgi_full_default(const char *op, tg_shape shape, double value)
{
    tgi_thread *S = tgi_self();
    return tgi_full(S, op, shape, value, S->default_dtype, S->default_device);
}

static tg_tensor *tgi_full_like(const char *op, tg_tensor *t, double value)
{
    tgi_thread *S = tgi_self();
    tg_tensor *y = tgi_argument(S, op, "t", t) ? tgi_new_like(S, op, t) : NULL;
    return y ? tgi_or_release(S, y, tgi_check_value(S, op, (tg_dtype)y->dtype, value) && tgi_fill_elements(S, y, value))
             : NULL;
}

tg_tensor *tg_empty(tg_shape shape)
{
    tgi_thread *S = tgi_self();
    return tgi_empty(S, "empty", shape, S->default_dtype, S->default_device);
}

tg_tensor *tg_empty_on(tg_shape shape, tg_dtype dtype, tg_device device)
{
    return tgi_empty(tgi_self(), "empty_on", shape, dtype, device);
}

tg_tensor *tg_full_on(tg_shape shape, double value, tg_dtype dtype, tg_device device)
{
    return tgi_full(tgi_self(), "full_on", shape, value, dtype, device);
}

tg_tensor *tg_zeros_on(tg_shape shape, tg_dtype dtype, tg_device device)
{
    return tgi_full(tgi_self(), "zeros_on", shape, 0, dtype, device);
}

tg_tensor *tg_ones_on(tg_shape shape, tg_dtype dtype, tg_device device)
{
    return tgi_full(tgi_self(), "ones_on", shape, 1, dtype, device);
}

tg_tensor *tg_empty_like(tg_tensor *t)
{
    tgi_thread *S = tgi_self();
    return tgi_argument(S, "empty_like", "t", t) ? tgi_new_like(S, "empty_like", t) : NULL;
}

tg_tensor *tg_full(tg_shape shape, double value) { return tgi_full_default("full", shape, value); }
tg_tensor *tg_zeros(tg_shape shape) { return tgi_full_default("zeros", shape, 0); }
tg_tensor *tg_ones(tg_shape shape) { return tgi_full_default("ones", shape, 1); }
tg_tensor *tg_scalar(double value) { return tgi_full_default("scalar", TG_SCALAR, value); }
tg_tensor *tg_full_like(tg_tensor *t, double value) { return tgi_full_like("full_like", t, value); }
tg_tensor *tg_zeros_like(tg_tensor *t) { return tgi_full_like("zeros_like", t, 0); }
tg_tensor *tg_ones_like(tg_tensor *t) { return tgi_full_like("ones_like", t, 1); }

static tg_tensor *tgi_arange(tgi_thread *S, const char *op, double start, double end, double step, tg_dtype dtype,
                             tg_device device)
{
    const tgi_backend *backend = tgi_backend_for(S, op, &device);
    if (!backend) return NULL;
    if (!(step > 0 || step < 0)) return tgi_no_tensor(tgi_fail(S, TG_ERR_ARGUMENT, op, "step must be nonzero"));
    if (!tgi_is_finite(start) || !tgi_is_finite(end))
        return tgi_no_tensor(tgi_fail(S, TG_ERR_ARGUMENT, op, "unsupported range: %g -> %g", start, end));
    if ((end - start) * step < 0) {
        return tgi_no_tensor(
            tgi_fail(S, TG_ERR_ARGUMENT, op, "upper bound and lower bound inconsistent with step sign"));
    }
    const double count = ceil((end - start) / step);
    if (count > 1e15) return tgi_no_tensor(tgi_fail(S, TG_ERR_SHAPE, op, "%g elements are too many", count));
    const int64_t n = (int64_t)count;
    tg_tensor *t = tgi_new(S, op, 1, &n, dtype, backend, device.index);
    return t ? tgi_or_release(S, t, backend->arange(S, tgi_operand_of(t), n, start, step)) : NULL;
}

tg_tensor *tg_arange_on(double start, double end, double step, tg_dtype dtype, tg_device device)
{
    return tgi_arange(tgi_self(), "arange_on", start, end, step, dtype, device);
}

tg_tensor *tg_arange(double start, double end, double step)
{
    tgi_thread *S = tgi_self();
    return tgi_arange(S, "arange", start, end, step, S->default_dtype, S->default_device);
}

tg_tensor *tg_linspace(double a, double b, int64_t n)
{
    tgi_thread *S = tgi_self();
    tg_device device = S->default_device;
    const tgi_backend *backend = tgi_backend_for(S, "linspace", &device);
    if (!backend) return NULL;
    if (n < 0) return tgi_no_tensor(tgi_fail(S, TG_ERR_ARGUMENT, "linspace", "number of steps must be non-negative"));
    tg_tensor *t = tgi_new(S, "linspace", 1, &n, S->default_dtype, backend, device.index);
    if (!t) return NULL;
    if (n <= 1) return tgi_or_release(S, t, tgi_fill_elements(S, t, a));
    /* The first half from a, the rest backwards from b, so that the last element is exactly b. */
    const double step = (b - a) / (double)(n - 1);
    tgi_operand out = tgi_operand_of(t);
    if (!backend->arange(S, out, n / 2, a, step)) return tgi_or_release(S, t, false);
    out.data = (char *)out.data + (n - 1) * (int64_t)tgi_dtypes[t->dtype].size;
    out.stride[0] = -1;
    return tgi_or_release(S, t, backend->arange(S, out, n - n / 2, b, -step));
}

tg_tensor *tg_eye(int64_t n)
{
    tgi_thread *S = tgi_self();
    if (n < 0) {
        return tgi_no_tensor(
            tgi_fail(S, TG_ERR_ARGUMENT, "eye", "n must be greater or equal to 0, got %lld", (long long)n));
    }
    tg_tensor *t = tgi_full_default("eye", TG_SHAPE(n, n), 0);
    if (!t) return NULL;
    tgi_loop loop = tgi_loop_over(t); /* its diagonal, as a 1-dim operand */
    loop.ndim = 1;
    loop.arg[0].stride[0] = n + 1;
    loop.scalar[0] = 1;
    return tgi_or_release(S, t, t->storage->backend->fill(S, &loop));
}

static tg_tensor *tgi_from(tgi_thread *S, const char *op, const void *data, tg_shape shape, tg_dtype dtype,
                           tg_device device)
{
    tg_tensor *t = tgi_empty(S, op, shape, dtype, device);
    if (!t) return NULL;
    if (!data && t->storage->bytes) return tgi_or_release(S, t, tgi_null_argument(S, op, "data"));
    return tgi_or_release(S, t, t->storage->bytes == 0 || tgi_upload(S, t, 0, data, t->storage->bytes));
}

tg_tensor *tg_from_on(const void *data, tg_shape shape, tg_dtype dtype, tg_device device)
{
    return tgi_from(tgi_self(), "from_on", data, shape, dtype, device);
}

static tg_tensor *tgi_from_default(const char *op, const void *data, tg_shape shape, tg_dtype dtype)
{
    tgi_thread *S = tgi_self();
    return tgi_from(S, op, data, shape, dtype, S->default_device);
}

tg_tensor *tg_from(const void *data, tg_shape shape, tg_dtype dtype)
{
    return tgi_from_default("from", data, shape, dtype);
}

tg_tensor *tg_from_f32(const float *data, tg_shape shape) { return tgi_from_default("from_f32", data, shape, TG_F32); }
tg_tensor *tg_from_f64(const double *data, tg_shape shape) { return tgi_from_default("from_f64", data, shape, TG_F64); }
tg_tensor *tg_from_i64(const int64_t *data, tg_shape shape)
{
    return tgi_from_default("from_i64", data, shape, TG_I64);
}

tg_tensor *tg_wrap(void *data, tg_shape shape, tg_dtype dtype, void (*deleter)(void *user), void *user)
{
    tgi_thread *S = tgi_self();
    int64_t numel;
    if (!tgi_dtype_known(dtype))
        return tgi_no_tensor(tgi_fail(S, TG_ERR_DTYPE, "wrap", "unknown dtype %d", (int)dtype));
    if (!tgi_shape_argument(S, "wrap", "shape", &shape)) return NULL;
    if (!tgi_check_shape(S, "wrap", shape.ndim, shape.dim, &numel)) return NULL;
    if (!data && numel) return tgi_no_tensor(tgi_null_argument(S, "wrap", "data"));
    tg_tensor *t = tgi_new_handle(S, "wrap", dtype);
    if (!t) return NULL;
    t->storage = tgi_new_storage_block(S, "wrap", &tgi_cpu, 0, 0);
    if (!t->storage) return tgi_or_release(S, t, false);
    t->storage->data = data;
    t->storage->deleter = deleter;
    t->storage->user = user;
    t->storage->borrowed = true;
    tgi_set_contiguous(t, shape.ndim, shape.dim);
    return t;
}

tg_status tg_set_default_device(tg_device device)
{
    tgi_thread *S = tgi_self();
    if (!tgi_backend_for(S, "set_default_device", &device)) return TG_ERR_DEVICE;
    S->default_device = device;
    return TG_OK;
}

/* ---- what a tensor is ---- */

static bool tgi_same_place(const tg_tensor *a, const tg_tensor *b)
{
    return a->storage->backend == b->storage->backend && a->storage->index == b->storage->index;
}

/* The dims of t whose size is not 1, smallest stride first; returns how many. */
static int tgi_dims_by_stride(const tg_tensor *t, int order[TG_MAX_DIMS])
{
    int n = 0;
    for (int i = 0; i < t->ndim; ++i) {
        if (t->dim[i] == 1) continue;
        int k = n++;
        for (; k > 0 && t->stride[order[k - 1]] > t->stride[i]; --k) order[k] = order[k - 1];
        order[k] = i;
    }
    return n;
}

/* Whether two elements of t are the same memory. */
static bool tgi_overlaps_itself(const tg_tensor *t)
{
    int order[TG_MAX_DIMS];
    const int n = tgi_dims_by_stride(t, order);
    int64_t last = 0; /* the offset of the last element along the dims so far */
    if (tgi_numel(t) == 0) return false;
    for (int i = 0; i < n; ++i) {
        const int64_t stride = t->stride[order[i]];
        if (stride <= last) return true;
        last += (t->dim[order[i]] - 1) * stride;
    }
    return false;
}

/* Whether t's elements lie one after the other in some order of the dims, without gap or overlap. */
static bool tgi_is_dense(const tg_tensor *t)
{
    int order[TG_MAX_DIMS];
    const int n = tgi_dims_by_stride(t, order);
    int64_t count = 1; /* elements along the dims so far */
    for (int i = 0; i < n; ++i) {
        if (t->stride[order[i]] != count) return false;
        count *= t->dim[order[i]];
    }
    return count != 0;
}

/* Makes *dim, which counts from the end if it is negative, an index in [0, ndim); false after recording PyTorch's
   error. */
static bool tgi_wrap_dim(tgi_thread *S, const char *op, int ndim, int *dim)
{
    const int n = ndim ? ndim : 1; /* a 0-dim tensor takes -1 and 0 */
    if (*dim < -n || *dim >= n) {
        return tgi_fail(S, TG_ERR_SHAPE, op, "Dimension out of range (expected to be in range of [%d, %d], but got %d)",
                        -n, n - 1, *dim);
    }
    if (*dim < 0) *dim += n;
    return true;
}

/* Whether t, the argument of a getter, can be used.  Does not begin the state of the thread. */
TGI_NOINLINE static bool tgi_check_tensor(const tg_tensor *t, const char *op)
{
    return tgi_argument(&tgi_this_thread, op, "t", t);
}

int tg_ndim(const tg_tensor *t)
{
    if (!tgi_check_tensor(t, "ndim")) return 0;
    return t->ndim;
}

TGI_NOINLINE static int64_t tgi_size_at(const tg_tensor *t, const char *op, int dim, const int64_t *list)
{
    tgi_thread *S = tgi_self();
    if (!tgi_check_tensor(t, op)) return 0;
    if (t->ndim == 0) {
        return tgi_fail(S, TG_ERR_SHAPE, op, "Dimension specified as %d but tensor has no dimensions", dim), 0;
    }
    return tgi_wrap_dim(S, op, t->ndim, &dim) ? list[dim] : 0;
}

int64_t tg_dim(const tg_tensor *t, int dim) { return tgi_size_at(t, "dim", dim, t ? t->dim : NULL); }
int64_t tg_stride(const tg_tensor *t, int dim) { return tgi_size_at(t, "stride", dim, t ? t->stride : NULL); }

int64_t tg_numel(const tg_tensor *t)
{
    if (!tgi_check_tensor(t, "numel")) return 0;
    return tgi_numel(t);
}

static tg_shape tgi_shape_of(const tg_tensor *t) { return tg_make_shape(t->ndim, t->dim); }

tg_shape tg_shape_of(const tg_tensor *t)
{
    if (!tgi_check_tensor(t, "shape_of")) return TG_SCALAR;
    return tgi_shape_of(t);
}

tg_dtype tg_dtype_of(const tg_tensor *t)
{
    if (!tgi_check_tensor(t, "dtype_of")) return TG_F32;
    return (tg_dtype)t->dtype;
}

static tg_device tgi_device_of(const tg_tensor *t)
{
    tg_device device;
    device.type = t->storage->backend->type;
    device.index = t->storage->index;
    return device;
}

tg_device tg_device_of(const tg_tensor *t)
{
    static const tg_device cpu = TG_CPU_INIT;
    if (!tgi_check_tensor(t, "device_of")) return cpu;
    return tgi_device_of(t);
}

bool tg_is_cuda(const tg_tensor *t)
{
    if (!tgi_check_tensor(t, "is_cuda")) return false;
    return t->storage->backend->type == TG_DEV_CUDA;
}

static bool tgi_is_contiguous(const tg_tensor *t)
{
    int64_t n = 1;
    for (int i = t->ndim - 1; i >= 0; --i) {
        if (t->dim[i] == 0) return true;
        if (t->dim[i] != 1 && t->stride[i] != n) return tgi_numel(t) == 0;
        n *= t->dim[i];
    }
    return true;
}

bool tg_is_contiguous(const tg_tensor *t)
{
    if (!tgi_check_tensor(t, "is_contiguous")) return false;
    return tgi_is_contiguous(t);
}

static bool tgi_copy_name(tgi_thread *S, const char *name, char **copy)
{
    *copy = NULL;
    if (!name || !*name) return true;
    *copy = (char *)tgi_alloc(S, strlen(name) + 1);
    if (!*copy) return tgi_no_memory(S, "set_name", strlen(name) + 1);
    strcpy(*copy, name);
    return true;
}

tg_status tg_set_name(tg_tensor *t, const char *name)
{
    tgi_thread *S = tgi_self();
    char *copy;
    if (!tgi_argument(S, "set_name", "t", t)) return tgi_failed(S);
    if (!tgi_copy_name(S, name, &copy)) return TG_ERR_MEMORY;
    char **node_name = tgi_history.name(t);
    if (node_name) { /* a copy: the node may outlive the tensor, and tg_backward_step shows the name */
        char *second;
        if (!tgi_copy_name(S, name, &second)) return tgi_free_name(S, copy), TG_ERR_MEMORY;
        tgi_free_name(S, *node_name);
        *node_name = second;
    }
    tgi_free_name(S, t->name);
    t->name = copy;
    return TG_OK;
}

const char *tg_name(const tg_tensor *t)
{
    if (!tgi_check_tensor(t, "name")) return "";
    return t->name ? t->name : "";
}

/* ---- elements ---- */

/* Copies the bytes of one element from any device. */
static bool tgi_read_element(tgi_thread *S, const tg_tensor *t, int64_t at, void *element)
{
    return tgi_download(S, t, at, element, tgi_dtypes[t->dtype].size);
}

/* Converts one element in host memory. */
static bool tgi_convert_element(tgi_thread *S, void *to, tg_dtype to_dtype, const void *from, tg_dtype from_dtype)
{
    tgi_loop loop;
    memset(&loop, 0, sizeof loop);
    loop.nargs = 2;
    loop.arg[0].data = to;
    loop.arg[0].dtype = to_dtype;
    loop.arg[1].data = (void *)(uintptr_t)from;
    loop.arg[1].dtype = from_dtype;
    return tgi_cpu.copy(S, &loop);
}

/* The only element of t, as dtype. */
static bool tgi_item(tgi_thread *S, const char *op, tg_tensor *t, void *value, tg_dtype dtype)
{
    int64_t element[1];
    if (!tgi_argument(S, op, "t", t)) return false;
    if (tgi_numel(t) != 1) {
        return tgi_fail(S, TG_ERR_SHAPE, op,
                        "a Tensor with %lld elements cannot be converted to Scalar (shape %s)\n"
                        "tg_get(t, TG_INDEX(...)) reads one element of many",
                        (long long)tgi_numel(t), tgi_shape_text(t).text);
    }
    return tgi_read_element(S, t, 0, element) && tgi_convert_element(S, value, dtype, element, (tg_dtype)t->dtype);
}

double tg_item(tg_tensor *t)
{
    double value;
    return tgi_item(tgi_self(), "item", t, &value, TG_F64) ? value : (double)NAN;
}

int64_t tg_item_i64(tg_tensor *t)
{
    int64_t value;
    return tgi_item(tgi_self(), "item_i64", t, &value, TG_I64) ? value : 0;
}

/* Stores the distance of the element at `index` from the first one, in elements. */
static bool tgi_locate(tgi_thread *S, const char *op, const tg_tensor *t, tg_shape index, int64_t *at)
{
    if (!tgi_argument(S, op, "t", t) || !tgi_shape_argument(S, op, "index", &index)) return false;
    if (index.ndim != t->ndim) {
        return tgi_fail(S, TG_ERR_SHAPE, op, "an index of %d numbers for a tensor of %d dims, shape %s", index.ndim,
                        t->ndim, tgi_shape_text(t).text);
    }
    *at = 0;
    for (int i = 0; i < t->ndim; ++i) {
        const int64_t k = index.dim[i];
        if (k < -t->dim[i] || k >= t->dim[i]) {
            return tgi_fail(S, TG_ERR_ARGUMENT, op, "index %lld is out of bounds for dimension %d with size %lld",
                            (long long)k, i, (long long)t->dim[i]);
        }
        *at += (k < 0 ? k + t->dim[i] : k) * t->stride[i];
    }
    return true;
}

double tg_get(tg_tensor *t, tg_shape index)
{
    tgi_thread *S = tgi_self();
    int64_t at = 0, element[1];
    double value;
    if (!tgi_locate(S, "get", t, index, &at) || !tgi_read_element(S, t, at, element)) return (double)NAN;
    return tgi_convert_element(S, &value, TG_F64, element, (tg_dtype)t->dtype) ? value : (double)NAN;
}

void *tg_data(tg_tensor *t)
{
    if (!tgi_check_tensor(t, "data")) return NULL;
    return tgi_bytes_at(tgi_self(), t, 0, true); /* the caller may write through the pointer */
}

static void *tgi_host_data(tg_tensor *t, const char *op, tg_dtype dtype)
{
    tgi_thread *S = tgi_self();
    if (!tgi_check_tensor(t, op)) return NULL;
    const bool other = t->dtype != (uint8_t)dtype, far = !t->storage->backend->host, gaps = !tgi_is_contiguous(t);
    if (other || far || gaps) {
        char dtypes[40] = "";
        if (other) {
            snprintf(dtypes, sizeof dtypes, "%s, not %s", tg_dtype_name((tg_dtype)t->dtype), tg_dtype_name(dtype));
        }
        tgi_fail(S, other ? TG_ERR_DTYPE : TG_ERR_ARGUMENT, op,
                 "the tensor is %s%s%s%s%s%s\n"
                 "%s%s%s%s%s makes one that fits; tg_copy_out copies from any layout and device", dtypes,
                 other && (far || gaps) ? ", and " : "", far ? "on " : "",
                 far ? tg_device_str(tgi_device_of(t)) : "", far && gaps ? ", and " : "", gaps ? "non-contiguous" : "",
                 other ? "tg_to_dtype" : "", other && (far || gaps) ? " with " : "", far ? "tg_cpu" : "",
                 far && gaps ? " with " : "", gaps ? "tg_contiguous" : "");
        return NULL;
    }
    return tgi_bytes_at(S, t, 0, true);
}

float *tg_data_f32(tg_tensor *t) { return (float *)tgi_host_data(t, "data_f32", TG_F32); }
double *tg_data_f64(tg_tensor *t) { return (double *)tgi_host_data(t, "data_f64", TG_F64); }
int64_t *tg_data_i64(tg_tensor *t) { return (int64_t *)tgi_host_data(t, "data_i64", TG_I64); }

tg_tensor *tg_touch_(tg_tensor *t)
{
    if (!tgi_check_tensor(t, "touch_")) return NULL;
    if (!tgi_wait_ready(tgi_self(), t, true)) return NULL;
    tgi_bump_version(tgi_self(), t->storage, "touch_");
    return t;
}

tg_status tg_copy_out(tg_tensor *t, void *dst, size_t bytes)
{
    tgi_thread *S = tgi_self();
    if (!tgi_argument(S, "copy_out", "t", t)) return tgi_failed(S);
    const size_t need = (size_t)tgi_numel(t) * tgi_dtypes[t->dtype].size;
    if (need != bytes) {
        tgi_fail(S, TG_ERR_ARGUMENT, "copy_out", "%s of shape %s has %llu bytes, but %llu were asked for",
                 tg_dtype_name((tg_dtype)t->dtype), tgi_shape_text(t).text, (unsigned long long)need,
                 (unsigned long long)bytes);
        return TG_ERR_ARGUMENT;
    }
    if (need == 0) return TG_OK;
    if (!dst) return tgi_null_argument(S, "copy_out", "dst"), tgi_failed(S);
    tg_tensor *source = t;
    if (!tgi_is_contiguous(t)) {
        source = tgi_new_like(S, "copy_out", t);
        if (!source) return TG_ERR_MEMORY;
    }
    const bool ok = (source == t || tgi_copy_elements(S, source, t)) && tgi_download(S, source, 0, dst, need);
    if (source != t) tgi_unref(S, source);
    return ok ? TG_OK : tgi_failed(S);
}

/* ======== @@TAPE ==================================================================================================

   Every recorded op makes a node.  The node has an edge for each input of the op, which points to where the gradient of
   that input goes: to the node that made the input or, if the input is a leaf, to the input itself.

   Who owns what
   (1) A tensor owns the node that made it (t->node); a node owns the nodes that its edges point to.  Both are counted
       in node->refs; besides, a running backward holds a reference to each node that has a grad slot in it.
   (2) A node never holds a handle (refs) of a tensor.  It holds saved references (saved_refs) to the tensors that its
       rule needs and to the leaves that its edges point to.
   (3) A saved reference keeps a tensor's bytes and nothing else: a tensor whose last handle is released gives up its
       node, its base, its .grad and its hooks, even if saved references to it remain (tgi_release_tensor).
   (4) A node is numbered by tgi_node_link, after its edges were set.  So every edge points to a node with a smaller
       number, and an edge never changes afterwards.
   Hence no cycle can form: by (4) there is none among nodes, and by (2) and (3) no node keeps alive what a tensor owns,
   not even a node that saves its own output.

   Writes in place
   (5) storage->version counts the writes in place to its bytes, whether they were recorded or not.  A saved tensor is
       saved together with the version of that time.  If the two differ when the rule is about to run, the values are
       not those that the rule needs, and backward fails (tgi_check_saved).
   (6) A recorded write gives the tensor that it writes a new node (tgi_op_end_in_place).  The node before stays as it
       is, for the newer nodes whose edges point to it.
   (7) base->history counts the recorded writes to a base, directly or through one of its views; view->history is what
       that number was when the view's node was made.  Where they differ, the node of the view is out of date, and
       tgi_refresh_view replaces it by a node that takes the view from the base as it is now.  Ops and the functions
       that begin a backward or change a tensor's gradient settings call it for each tensor they get.

   What backward frees
   (8) Unless the graph is to be kept (TG_RETAIN_GRAPH, TG_CREATE_GRAPH), a node drops its saved tensors as soon as its
       rule has run.  It keeps its edges.  TGI_FREED then tells a second backward that they were there. */

/* The numbers of a call that the rule of its op needs.  What a field means is up to the op: its public function sets
   it, its rule reads it. */
enum { TGI_NUMBERS = 2 * TG_MAX_DIMS };
typedef struct {
    double s, t;         /* scalar operands, an eps, the p of a norm */
    int64_t i, j;        /* a start, a step, a number of elements */
    int dim, flag;       /* flag: a second dim, or which of two formulas */
    int listed;          /* how many numbers `list` has */
    const int64_t *list; /* [listed]: pads, dims, sizes */
} tgi_op_params;

/* Where a view lies in its base: both relative to the base's first element. */
typedef struct {
    int base_ndim, ndim;
    int64_t base_dim[TG_MAX_DIMS], base_stride[TG_MAX_DIMS];
    int64_t dim[TG_MAX_DIMS], stride[TG_MAX_DIMS], offset;
} tgi_view_info;

/* Where a gradient is sent: to output number `output` of a node, or to a leaf.  Both NULL: that input needs none. */
typedef struct { tgi_node *node; tg_tensor *leaf; int output; } tgi_edge;

/* A saved tensor, and the version of its storage when it was saved.  which: i >= 0 is input i, -1 - k is output k,
   TGI_SAVED_OTHER is neither. */
enum { TGI_SAVED_OTHER = INT_MIN };
typedef struct { tg_tensor *t; uint32_t version; int which; } tgi_saved;

/* Place, dtype and shape of an output: a gradient for it must have the same. */
typedef struct {
    const tgi_backend *backend;
    int index; /* of the device */
    uint8_t dtype, ndim;
    const int64_t *dim; /* [ndim] */
} tgi_output_info;

enum {
    TGI_FREED = 1,     /* a backward has dropped the saved tensors */
    TGI_WROTE_VIEW = 2 /* the op wrote to its base through a view: see tgi_run_rule */
};

struct tgi_node {
    tgi_link link;       /* first: live nodes, oldest first; of an ended node, next links the list S->ended_nodes */
    int32_t refs;        /* see (1) */
    int32_t inputs, saves, outputs;
    uint16_t flags;
    const struct tgi_op *op;
    uint64_t number;     /* see (4) */
    tgi_grad_slot *slot; /* its gradients in the innermost running backward that has reached it; others by ->outer */
    tgi_hook_entry *hooks;
    tgi_view_info *view; /* of TGI_WROTE_VIEW and of the ops on views (as_strided, scatter_view ...), else NULL */
    tg_ctx *ctx;         /* of a custom function or a checkpoint, or NULL; owned */
    size_t bytes;        /* of this block: the struct and the arrays behind it */
    char *name;          /* of output 0, or NULL; kept here, so that it outlives that tensor */
    /* in the same block: */
    tgi_edge *edge;               /* [inputs] */
    tgi_saved *saved;             /* [saves] */
    tgi_output_info *output_info; /* [outputs] */
    tgi_op_params *params;        /* NULL if the op has none */
};

/* What a running backward has for a node or a leaf: the gradients that have arrived so far. */
struct tgi_grad_slot {
    tgi_grad_slot *outer;           /* the slot of the same node or leaf in an outer run (a hook may call backward) */
    tgi_grad_slot *child, *sibling; /* links in the queue */
    tgi_grad_slot *all;             /* next in run->leaves or run->discovered */
    uint64_t run, number;           /* id of the run; number of the node, by which the queue is ordered */
    tgi_node *node;                 /* owned; or */
    tg_tensor *leaf;                /* a saved reference to a leaf or to a tensor of tg_retain_grad */
    bool queued;                    /* it is in the queue; while tgi_discover runs: it has been there */
    bool returned;                  /* tg_gradients returns a gradient of this node's outputs */
    bool needed;                    /* the rule must run; false only in tg_gradients, if no input lies behind it */
    bool retained;                  /* leaf is not a leaf: tg_retain_grad asked for its .grad */
    bool listed;                    /* it is in run->discovered, which frees it */
    uint64_t received;              /* a bit for each of the first 64 outputs that has received a gradient */
    tg_tensor **grad;               /* [outputs], each a handle or NULL; &first if there is one output */
    tg_tensor *first;
};

/* A hook or a request for .grad, of a leaf or of an output of a node.  An entry with none of hook, post and retain was
   removed while hooks were running, and is freed afterwards. */
struct tgi_hook_entry {
    tgi_hook_entry *next;
    int id, output;
    tg_hook_fn hook;
    tg_post_hook_fn post;
    void *user;
    tg_tensor *retain; /* the tensor whose .grad tg_retain_grad asked for; not counted, for its end removes the entry */
};

/* The call of a custom function or of a checkpoint: first of the function that is running, then of its node. */
struct tg_ctx {
    tgi_thread *S;
    void *user;
    void (*free_user)(void *user);
    tg_custom_backward backward; /* of a custom function */
    tg_function function;        /* of a checkpoint */
    tg_rng rng;                  /* the thread's random numbers when the call began */
    const char *name;
    bool forward;                /* forward is running: tg_save is allowed */
    uint64_t scope;              /* serial of the scope in which the function runs */
    int n_in, n_out;
    tg_tensor *const *in;        /* [n_in], valid during the call, as out is */
    tg_tensor **out;             /* [n_out] */
    uint64_t non_differentiable; /* a bit for each of the first 64 outputs */
    int saves, room;
    tg_tensor **save;             /* [saves], handles, until the node has saved them; memory for `room` */
    struct tgi_ctx_block *blocks; /* memory of tg_ctx_alloc, and the name */
    tgi_node *node;               /* which owns this; NULL before it exists */
};
typedef struct tgi_ctx_block { struct tgi_ctx_block *next; size_t bytes; } tgi_ctx_block;

/* What a rule gets, and where it puts the gradients of the inputs. */
typedef struct {
    tgi_thread *S;
    tg_backward_run *run;
    tgi_node *node;
    const tgi_op_params *params;
    tg_tensor **grad;   /* [outputs]: their gradients */
    uint64_t received;  /* a bit for each of the first 64 outputs that has one, not only zeros in place of none */
    tg_tensor **result; /* [inputs]: the gradients that the rule computes; NULL: none */
} tgi_step;

/* A row of the op table.  The rules stand with the ops. */
typedef bool (*tgi_rule)(tgi_step *step, tg_tensor *g);
typedef enum { TGI_KIND_NOT_ELEMENTWISE, TGI_KIND_FLOATS, TGI_KIND_ANY, TGI_KIND_TEST } tgi_kind;
typedef struct tgi_op {
    const char *name, *in_place, *arguments; /* "mul", its twin "mul_", "a,b" */
    tgi_kind kind;
    int flags; /* TGI_FLAG_... */
    tgi_rule rule;
    const char *formula;
} tgi_op;
/* The declarations of the rules; ops of kind TEST have none. */
#define TGI_DECLARE(name, ...) static bool tgi_rule_##name(tgi_step *step, tg_tensor *g);
#define TGI_DECLARE_ELEMENTWISE(name, kind, ...) TGI_DECLARE_##kind(name)
#define TGI_DECLARE_ANY(name) TGI_DECLARE(name, 0)
#define TGI_DECLARE_FLOATS(name) TGI_DECLARE(name, 0)
#define TGI_DECLARE_TEST(name)
TGI_ELEMENTWISE_OPS(TGI_DECLARE_ELEMENTWISE)
TGI_OPS(TGI_DECLARE)

static const tgi_op *tgi_op_row(int op)
{
#define TGI_FLAG(name, bit) name = TGI_FLAG_##name,
    enum { TGI_FLAGS(TGI_FLAG) NOTHING = 0 }; /* as the rows write them */
#undef TGI_FLAG
#define TGI_RULE_ANY(name) tgi_rule_##name
#define TGI_RULE_FLOATS(name) tgi_rule_##name
#define TGI_RULE_TEST(name) NULL
#define TGI_ELEMENTWISE_ROW(name, kind, arguments, flags, formula)                                                     \
    {#name, #name "_", arguments, TGI_KIND_##kind, flags, TGI_RULE_##kind(name), formula},
#define TGI_UNARY_ROW(name, kind, y, yi, flags, rule, formula) TGI_ELEMENTWISE_ROW(name, kind, "x", flags, formula)
#define TGI_SCALAR_ROW(name, kind, y, yi, flags, rule, formula, public)                                                \
    TGI_ELEMENTWISE_ROW(name, kind, "x", (flags) | TGI_FLAG_NUMBERS, formula)
#define TGI_BINARY_ROW(name, kind, y, yi, flags, rule_a, rule_b, formula, public)                                      \
    TGI_ELEMENTWISE_ROW(name, kind, "a,b", flags, formula)
#define TGI_TERNARY_ROW(name, kind, y, yi, flags, rule_a, rule_b, rule_c, formula, arguments)                          \
    TGI_ELEMENTWISE_ROW(name, kind, arguments, flags, formula)
#define TGI_BINARY_SCALAR_ROW(name, kind, y, yi, flags, rule_a, rule_b, formula, arguments)                            \
    TGI_ELEMENTWISE_ROW(name, kind, arguments, (flags) | TGI_FLAG_NUMBERS, formula)
#define TGI_ROW(name, arguments, flags, formula)                                                                       \
    {#name, #name "_", arguments, TGI_KIND_NOT_ELEMENTWISE, flags, tgi_rule_##name, formula},
#define TGI_PLAIN_ROW(name, arguments) {#name, #name "_", arguments, TGI_KIND_NOT_ELEMENTWISE, NOTHING, NULL, NULL},
    static const tgi_op rows[] = {
        TGI_UNARY_OPS(TGI_UNARY_ROW) TGI_SCALAR_OPS(TGI_SCALAR_ROW) TGI_BINARY_OPS(TGI_BINARY_ROW)
        TGI_TERNARY_OPS(TGI_TERNARY_ROW) TGI_BINARY_SCALAR_OPS(TGI_BINARY_SCALAR_ROW)
        TGI_OPS(TGI_ROW) TGI_PLAIN_OPS(TGI_PLAIN_ROW)
    };
    return &rows[op];
}

/* Backward itself calls these ops, which stand in later layers.  It calls them by pointers with names of their own, so
   that this list shows every call from the tape up to the ops; rules, which belong to the ops, need none. */
static tg_tensor *tgi_sum_to(tg_tensor *t, int ndim, const int64_t *dims);
static tg_tensor *tgi_as_strided(tg_tensor *t, const tgi_view_info *view);
static tg_tensor *tgi_scatter_view(tg_tensor *base, tg_tensor *src, const tgi_view_info *view);
static tg_tensor *(*const tgi_later_add)(tg_tensor *a, tg_tensor *b) = tg_add;
static tg_tensor *(*const tgi_later_add_)(tg_tensor *a, tg_tensor *b) = tg_add_;
static tg_tensor *(*const tgi_later_clone)(tg_tensor *t) = tg_clone;
static tg_tensor *(*const tgi_later_isnan)(tg_tensor *t) = tg_isnan;
static tg_tensor *(*const tgi_later_any)(tg_tensor *t) = tg_any;
static tg_tensor *(*const tgi_later_to)(tg_tensor *t, tg_device device, tg_dtype dtype, int flags) = tg_to_ex;
static tg_tensor *(*const tgi_later_sum_to)(tg_tensor *t, int ndim, const int64_t *dims) = tgi_sum_to;
static tg_tensor *(*const tgi_later_as_strided)(tg_tensor *t, const tgi_view_info *view) = tgi_as_strided;
static tg_tensor *(*const tgi_later_scatter_view)(tg_tensor *base, tg_tensor *src, const tgi_view_info *view) =
    tgi_scatter_view;

/* ---- nodes ---- */

static inline tgi_output_info tgi_output_info_of(const tg_tensor *t)
{
    tgi_output_info info;
    info.backend = t->storage->backend;
    info.index = t->storage->index;
    info.dtype = t->dtype;
    info.ndim = t->ndim;
    info.dim = t->dim;
    return info;
}

static tg_device tgi_output_device(const tgi_output_info *info)
{
    tg_device device;
    device.type = info->backend->type;
    device.index = info->index;
    return device;
}

/* A node that is not on the tape, with its arrays in the same block: edges empty, params copied, outputs described,
   saved tensors still to come.  The caller owns the one reference.  NULL after recording an error. */
static tgi_node *tgi_node_new(tgi_thread *S, const tgi_op *op, int inputs, int saves, int outputs,
                              tg_tensor *const *out, const tgi_op_params *params, const tgi_view_info *view)
{
    const size_t edge_bytes = sizeof(tgi_edge) * (size_t)inputs, saved_bytes = sizeof(tgi_saved) * (size_t)saves;
    const size_t info_bytes = sizeof(tgi_output_info) * (size_t)outputs;
    const size_t list_bytes = params ? sizeof(int64_t) * (size_t)params->listed : 0;
    size_t bytes = sizeof(tgi_node) + edge_bytes + saved_bytes + info_bytes;
    if (params) bytes += sizeof *params + list_bytes;
    for (int i = 0; i < outputs; ++i) bytes += sizeof(int64_t) * out[i]->ndim;
    tgi_node *n = (tgi_node *)tgi_alloc(S, bytes);
    if (!n) return tgi_no_memory(S, op->name, bytes), n;
    memset(n, 0, sizeof *n + edge_bytes);
    n->refs = 1;
    n->op = op;
    n->inputs = inputs;
    n->outputs = outputs;
    n->bytes = bytes;
    char *rest = (char *)(n + 1);
    n->edge = (tgi_edge *)(void *)rest, rest += edge_bytes;
    n->saved = (tgi_saved *)(void *)rest, rest += saved_bytes;
    n->output_info = (tgi_output_info *)(void *)rest, rest += info_bytes;
    if (params) {
        n->params = (tgi_op_params *)(void *)rest, rest += sizeof *params;
        *n->params = *params;
        n->params->list = (const int64_t *)(void *)rest;
        if (list_bytes) memcpy(rest, params->list, list_bytes);
        rest += list_bytes;
    }
    for (int i = 0; i < outputs; ++i) {
        n->output_info[i] = tgi_output_info_of(out[i]);
        n->output_info[i].dim = (const int64_t *)(void *)rest;
        memcpy(rest, out[i]->dim, sizeof(int64_t) * out[i]->ndim);
        rest += sizeof(int64_t) * out[i]->ndim;
    }
    if (!view) return n;
    n->view = (tgi_view_info *)tgi_alloc(S, sizeof *view);
    if (!n->view) {
        tgi_free(S, n, bytes);
        tgi_no_memory(S, op->name, sizeof *view);
        return NULL;
    }
    *n->view = *view;
    return n;
}

/* Puts a node, whose edges are set, on the tape: invariant (4). */
static void tgi_node_link(tgi_thread *S, tgi_node *n)
{
    n->number = ++S->node_count;
    tgi_link_last(&S->nodes, &n->link);
    if (++S->stats.nodes > S->stats.peak_nodes) S->stats.peak_nodes = S->stats.nodes;
}

static void tgi_drop_saved(tgi_thread *S, tgi_node *n)
{
    for (int i = 0; i < n->saves; ++i) tgi_saved_unref(S, n->saved[i].t);
    S->stats.saved -= n->saves;
    n->saves = 0;
}

static void tgi_ctx_free(tgi_thread *S, tg_ctx *ctx);
static void tgi_hooks_free(tgi_thread *S, tgi_hook_entry **hooks);
static void tgi_node_unref(tgi_thread *S, tgi_node *n);

static void tgi_node_free(tgi_thread *S, tgi_node *n)
{
    tgi_drop_saved(S, n);
    for (int i = 0; i < n->inputs; ++i) {
        if (n->edge[i].node) tgi_node_unref(S, n->edge[i].node);
        if (n->edge[i].leaf) tgi_saved_unref(S, n->edge[i].leaf);
    }
    if (n->hooks) tgi_hooks_free(S, &n->hooks);
    if (n->ctx) tgi_ctx_free(S, n->ctx);
    tgi_free_name(S, n->name);
    tgi_free(S, n->view, sizeof *n->view);
    tgi_free(S, n, n->bytes);
}

/* Drops a reference.  To free a node is to drop its references to older nodes: those that end, too, wait in the list
   S->ended_nodes, which the outermost call empties.  So a chain of any length is freed without recursion. */
static void tgi_node_unref(tgi_thread *S, tgi_node *n)
{
    if (--n->refs) return;
    if (n->link.next) { /* it was on the tape */
        tgi_unlink(&n->link);
        S->stats.nodes--;
    }
    n->link.next = (tgi_link *)(void *)S->ended_nodes;
    S->ended_nodes = n;
    if (S->releasing_nodes) return;
    S->releasing_nodes = true;
    while ((n = S->ended_nodes) != NULL) {
        S->ended_nodes = (tgi_node *)(void *)n->link.next;
        tgi_node_free(S, n);
    }
    S->releasing_nodes = false;
}

/* Where gradients of t go. */
static inline tgi_edge tgi_edge_to(tg_tensor *t)
{
    tgi_edge e;
    e.node = t->node;
    e.leaf = t->node ? NULL : t;
    e.output = t->output;
    return e;
}

/* Makes *edge, an edge of a node, a copy of e with references of its own: invariants (1) and (2). */
static inline void tgi_set_edge(tgi_edge *edge, tgi_edge e)
{
    *edge = e;
    if (e.node) e.node->refs++;
    if (e.leaf) tgi_saved_ref(e.leaf);
}

/* Saves t, which is what `which` of tgi_saved says, as of this version of its storage. */
static void tgi_save_tensor(tgi_thread *S, tgi_node *n, tg_tensor *t, int which, uint32_t version)
{
    tgi_saved *s = &n->saved[n->saves++];
    s->t = t;
    s->which = which;
    s->version = version;
    tgi_saved_ref(t);
    S->stats.saved++;
}

static tgi_hook_entry **tgi_hooks_of(tg_tensor *t) { return t->node ? &t->node->hooks : &t->hooks; }

/* Takes the entry of tg_retain_grad for t out of a list and returns it, or NULL if there is none. */
static tgi_hook_entry *tgi_unlink_retain(tgi_hook_entry **at, const tg_tensor *t)
{
    while (*at && (*at)->retain != t) at = &(*at)->next;
    tgi_hook_entry *e = *at;
    if (e) *at = e->next;
    return e;
}

/* Makes t output number `output` of node n, and takes over a reference to n.  A request for t's .grad (tg_retain_grad)
   moves from the node before to n; hooks stay there, as they do in PyTorch. */
static void tgi_set_node(tgi_thread *S, tg_tensor *t, tgi_node *n, int output)
{
    tgi_node *before = t->node;
    tgi_hook_entry *retain = before && (t->flags & TGI_RETAINS_GRAD) ? tgi_unlink_retain(&before->hooks, t) : NULL;
    if (retain) {
        retain->next = n->hooks;
        retain->output = output;
        n->hooks = retain;
    }
    t->node = n;
    t->output = output;
    t->flags |= TGI_REQUIRES_GRAD;
    if (before) tgi_node_unref(S, before);
}

static void tgi_view_info_of(tgi_view_info *info, const tg_tensor *base, const tg_tensor *view)
{
    info->base_ndim = base->ndim;
    info->ndim = view->ndim;
    memcpy(info->base_dim, base->dim, sizeof(int64_t) * base->ndim);
    memcpy(info->base_stride, base->stride, sizeof(int64_t) * base->ndim);
    memcpy(info->dim, view->dim, sizeof(int64_t) * view->ndim);
    memcpy(info->stride, view->stride, sizeof(int64_t) * view->ndim);
    info->offset = view->offset - base->offset;
}

/* A node, not yet on the tape, that takes t from its base as the view says. */
static tgi_node *tgi_view_node_new(tgi_thread *S, tg_tensor *t, const tgi_view_info *view)
{
    return tgi_node_new(S, tgi_op_row(TGI_OP_as_strided), 1, 0, 1, &t, NULL, view);
}

/* Brings the node of a view up to date: invariant (7).  False after recording an error. */
static bool tgi_refresh_view(tgi_thread *S, tg_tensor *t)
{
    tg_tensor *base = t->base;
    if (TGI_LIKELY(!base || t->history == base->history)) return true;
    if (base->flags & TGI_REQUIRES_GRAD) {
        tgi_view_info view;
        tgi_view_info_of(&view, base, t);
        tgi_node *n = tgi_view_node_new(S, t, &view);
        if (!n) return false;
        tgi_set_edge(&n->edge[0], tgi_edge_to(base));
        tgi_node_link(S, n);
        tgi_set_node(S, t, n, 0);
    }
    t->history = base->history;
    return true;
}

/* ---- modes and leaves ---- */

bool tg_is_grad_enabled(void) { return !tgi_self()->grad_off; }

bool tg_set_grad_enabled(bool on)
{
    tgi_thread *S = tgi_self();
    bool was = !S->grad_off;
    S->grad_off = !on;
    return was;
}

void tg_set_anomaly(bool on) { tgi_self()->anomaly = on; }

/* Whether t can be used, with its node brought up to date.  The getters take it const, but a view may need a new node
   before they can answer. */
static bool tgi_check_refreshed(const tg_tensor *t, const char *op)
{
    tgi_thread *S = tgi_self();
    return tgi_argument(S, op, "t", t) && tgi_refresh_view(S, (tg_tensor *)(uintptr_t)t);
}

bool tg_requires_grad(const tg_tensor *t)
{
    return tgi_check_refreshed(t, "requires_grad") && (t->flags & TGI_REQUIRES_GRAD);
}
bool tg_is_leaf(const tg_tensor *t) { return tgi_check_refreshed(t, "is_leaf") && !t->node; }

tg_tensor *tg_set_requires_grad(tg_tensor *t, bool on)
{
    tgi_thread *S = tgi_self();
    if (!tgi_check_refreshed(t, "set_requires_grad")) return NULL;
    if (on && !tgi_dtypes[t->dtype].floating) {
        return tgi_no_tensor(tgi_fail(S, TG_ERR_DTYPE, "set_requires_grad",
                                      "only Tensors of floating point dtype can require gradients, not %s",
                                      tg_dtype_name((tg_dtype)t->dtype)));
    }
    if (!on && t->node) {
        return tgi_no_tensor(tgi_fail(S, TG_ERR_GRAPH, "set_requires_grad",
                                      "you can only change requires_grad flags of leaf variables.\n"
                                      "to use a computed tensor without its history use tg_detach(t)"));
    }
    if (on) t->flags |= TGI_REQUIRES_GRAD;
    else t->flags &= (uint16_t)~TGI_REQUIRES_GRAD;
    return t;
}

tg_tensor *tg_param(tg_tensor *t)
{
    tgi_thread *S = tgi_self();
    if (!tgi_check_refreshed(t, "param")) return NULL;
    if (t->node) {
        return tgi_no_tensor(
            tgi_fail(S, TG_ERR_GRAPH, "param",
                     "a parameter is a leaf, but this tensor was computed from others that require grad\n"
                     "tg_param(tg_detach(t)) makes a leaf of its values"));
    }
    if (!tg_set_requires_grad(t, true)) return NULL;
    tgi_retain_from_list(S, t);
    return t;
}

tg_tensor *tg_detach(tg_tensor *t)
{
    tgi_thread *S = tgi_self();
    return tgi_argument(S, "detach", "t", t) ? tgi_alias(S, "detach", t) : NULL;
}

/* A non-leaf has no .grad unless tg_retain_grad was called.  The copy that a move makes is often taken for a leaf: the
   warning then says how to make it one. */
static void tgi_warn_of_no_grad(const tg_tensor *t)
{
    char text[TGI_ERROR_TEXT];
    const bool moved = (t->node->op->flags & TGI_FLAG_MOVE) != 0;
    snprintf(text, sizeof text,
             "warning: tg_grad: The .grad attribute of a Tensor that is not a leaf Tensor is being accessed; it is "
             "never filled\n  hint: %s, or call tg_retain_grad(t) before backward",
             moved ? "t was made by a move (tg_to): read the gradient of its original x, make the leaf there with "
                     "tg_set_requires_grad(tg_to(tg_detach(x), TG_CUDA(0)), true)"
                   : "read the leaf's");
    tgi_warn(tgi_self(), text);
}

tg_tensor *tg_grad(tg_tensor *t)
{
    if (!tgi_check_tensor(t, "grad")) return NULL;
    if (t->grad || !t->node || (t->flags & TGI_RETAINS_GRAD)) return t->grad;
    tgi_warn_of_no_grad(t);
    return NULL;
}

TGI_NOINLINE static bool tgi_same_shape(const tg_tensor *t, int ndim, const int64_t *dim)
{
    return t->ndim == ndim && memcmp(t->dim, dim, sizeof(int64_t) * (size_t)ndim) == 0;
}

/* Whether g may become the .grad of t by assignment; the sentences are those of PyTorch's x.grad = g. */
static bool tgi_check_assigned_grad(tgi_thread *S, const char *op, const tg_tensor *t, const tg_tensor *g)
{
    if (!tgi_argument(S, op, "g", g)) return false;
    if (g == t) return tgi_fail(S, TG_ERR_ARGUMENT, op, "can't assign Variable as its own grad");
    if (g->storage->backend != t->storage->backend) {
        return tgi_fail(S, TG_ERR_DEVICE, op,
                        "attempting to assign a gradient with device type '%s' to a tensor with device type '%s'. "
                        "Please ensure that the gradient and the tensor are on the same device",
                        g->storage->backend->name, t->storage->backend->name);
    }
    if (g->storage->index != t->storage->index) {
        return tgi_fail(S, TG_ERR_DEVICE, op,
                        "attempting to assign a gradient located on device with index '%d' to a tensor located on "
                        "device with index '%d'. Please ensure that the gradient and the tensor are on the same device",
                        g->storage->index, t->storage->index);
    }
    if (g->dtype != t->dtype) {
        return tgi_fail(S, TG_ERR_DTYPE, op,
                        "attempting to assign a gradient with dtype '%s' to a tensor with dtype '%s'. Please ensure "
                        "that the gradient and the tensor have the same dtype",
                        tg_dtype_name((tg_dtype)g->dtype), tg_dtype_name((tg_dtype)t->dtype));
    }
    if (tgi_same_shape(g, t->ndim, t->dim)) return true;
    return tgi_fail(S, TG_ERR_SHAPE, op,
                    "attempting to assign a gradient of size '%s' to a tensor of size '%s'. Please ensure that the "
                    "gradient and the tensor are the same size",
                    tgi_shape_text(g).text, tgi_shape_text(t).text);
}

tg_status tg_set_grad(tg_tensor *t, tg_tensor *g)
{
    tgi_thread *S = tgi_self();
    if (!tgi_argument(S, "set_grad", "t", t)) return tgi_failed(S);
    if (g && !tgi_check_assigned_grad(S, "set_grad", t, g)) return tgi_failed(S);
    if (g && (t->flags & TGI_SHARED) && !g->node && !g->base && !tgi_make_shared(S, g)) return tgi_failed(S);
    tg_tensor *before = t->grad;
    if (g) tgi_ref(g);
    t->grad = g;
    tgi_unref_by(S, before, TGI_BY_GRADIENT);
    return TG_OK;
}

int64_t tg_version_of(const tg_tensor *t)
{
    if (!tgi_check_tensor(t, "version_of")) return 0;
    return t->storage->version;
}

/* ---- hooks: they stand in a list on the leaf, or on the node that made the tensor ---- */

static void tgi_hooks_free(tgi_thread *S, tgi_hook_entry **hooks)
{
    while (*hooks) {
        tgi_hook_entry *e = *hooks;
        *hooks = e->next;
        if (e->retain) e->retain->flags &= (uint16_t)~TGI_RETAINS_GRAD;
        tgi_free(S, e, sizeof *e);
    }
}

/* Where the name of t is kept if that is not t itself: on the node, which a backward step reports, for output 0. */
static char **tgi_history_name(tg_tensor *t) { return t->node && t->output == 0 ? &t->node->name : NULL; }

/* The last handle of t was released: t gives up its node and its hooks.  Invariant (3). */
static void tgi_release_history(tgi_thread *S, tg_tensor *t)
{
    if (t->flags & TGI_RETAINS_GRAD) {
        tgi_hook_entry *e = tgi_unlink_retain(tgi_hooks_of(t), t);
        t->flags &= (uint16_t)~TGI_RETAINS_GRAD;
        if (e) tgi_free(S, e, sizeof *e);
    }
    if (t->hooks) tgi_hooks_free(S, &t->hooks);
    tgi_node *n = t->node;
    t->node = NULL;
    if (n) tgi_node_unref(S, n);
}

/* Frees the entries that tg_unhook has emptied; not while a hook is running, whose caller stands in the list. */
static void tgi_sweep_hooks(tgi_thread *S, tgi_hook_entry **at)
{
    while (*at) {
        tgi_hook_entry *e = *at;
        if (e->hook || e->post || e->retain) {
            at = &e->next;
        } else {
            *at = e->next;
            tgi_free(S, e, sizeof *e);
        }
    }
}

/* Appends an empty entry to the hooks of t; NULL after recording an error. */
static tgi_hook_entry *tgi_add_hook(const char *op, tg_tensor *t)
{
    tgi_thread *S = tgi_self();
    if (!tgi_check_refreshed(t, op)) return NULL;
    if (!(t->flags & TGI_REQUIRES_GRAD)) {
        tgi_fail(S, TG_ERR_GRAPH, op,
                 strcmp(op, "retain_grad") ? "cannot register a hook on a tensor that doesn't require gradient"
                                           : "can't retain_grad on Tensor that has requires_grad=False");
        return NULL;
    }
    tgi_hook_entry *e = (tgi_hook_entry *)tgi_alloc(S, sizeof *e);
    if (!e) return tgi_no_memory(S, op, sizeof *e), e;
    memset(e, 0, sizeof *e);
    tgi_hook_entry **at = tgi_hooks_of(t);
    while (*at) at = &(*at)->next;
    *at = e;
    e->id = ++S->hooks_ever;
    e->output = t->output;
    return e;
}

int tg_hook(tg_tensor *t, tg_hook_fn hook, void *user)
{
    if (!hook && t) return tgi_null_argument(tgi_self(), "hook", "hook"), 0;
    tgi_hook_entry *e = tgi_add_hook("hook", t);
    if (!e) return 0;
    e->hook = hook;
    e->user = user;
    return e->id;
}

int tg_hook_post_accumulate(tg_tensor *t, tg_post_hook_fn hook, void *user)
{
    tgi_thread *S = tgi_self();
    if (!tgi_check_refreshed(t, "hook_post_accumulate")) return 0;
    if (!hook) return tgi_null_argument(S, "hook_post_accumulate", "hook"), 0;
    if (t->node) {
        tgi_fail(S, TG_ERR_GRAPH, "hook_post_accumulate",
                 "post accumulate grad hooks cannot be registered on non-leaf tensors");
        return 0;
    }
    tgi_hook_entry *e = tgi_add_hook("hook_post_accumulate", t);
    if (!e) return 0;
    e->post = hook;
    e->user = user;
    return e->id;
}

tg_tensor *tg_retain_grad(tg_tensor *t)
{
    if (!tgi_check_refreshed(t, "retain_grad")) return NULL;
    if ((t->flags & TGI_RETAINS_GRAD) || (!t->node && (t->flags & TGI_REQUIRES_GRAD))) return t;
    tgi_hook_entry *e = tgi_add_hook("retain_grad", t);
    if (!e) return NULL;
    e->retain = t;
    t->flags |= TGI_RETAINS_GRAD;
    return t;
}

/* Removes the hook of this number if the list has it.  The entry is only emptied while hooks are running. */
static bool tgi_remove_hook(tgi_thread *S, tgi_hook_entry **hooks, int hook)
{
    tgi_hook_entry *e = *hooks;
    while (e && (e->id != hook || !(e->hook || e->post))) e = e->next;
    if (!e) return false;
    e->hook = NULL;
    e->post = NULL;
    if (!S->hooking) tgi_sweep_hooks(S, hooks);
    return true;
}

tg_status tg_unhook(tg_tensor *t, int hook)
{
    tgi_thread *S = tgi_self();
    if (!tgi_argument(S, "unhook", "t", t)) return tgi_failed(S);
    if (tgi_remove_hook(S, tgi_hooks_of(t), hook)) return TG_OK;
    for (tgi_link *at = S->nodes.next; at != &S->nodes; at = at->next) { /* t may have another node since: (6) */
        if (tgi_remove_hook(S, &((tgi_node *)(void *)at)->hooks, hook)) return TG_OK;
    }
    tgi_fail(S, TG_ERR_ARGUMENT, "unhook", "this tensor has no hook %d", hook);
    return TG_ERR_ARGUMENT;
}

/* ---- a backward run ----

   The loop that it implements (micrograd: for v in reversed(topo): v._backward()):

       for each root: add its gradient to the slot of the node that made it           tgi_begin_run
       while a node has a gradient: take n, the newest of them                        tg_backward_step
           for each gradient that the rule of n computes, one per input of n:
               add it to the slot of the node or leaf to which n's edge points        tgi_send_grad
       for each leaf that has a slot: .grad += its gradient                           tgi_end_run

   A run is in one of these states:
       STEPPING   nodes are queued
       DONE       no node is queued; the leaves' gradients are in run->leaves
       COMMITTED  every .grad has its gradient (tg_gradients: the results are filled in, and no .grad changes)
       FAILED     run->failed: no further node runs
   tgi_begin_run makes a run that is STEPPING (or DONE, if all roots are leaves).  tg_backward_step runs one node, the
   last one makes the run DONE.  tgi_end_run makes a DONE run COMMITTED (tgi_commit) and frees the run in any state; one
   that is STEPPING is thus abandoned.  Each of them makes it FAILED after an error (tgi_run_fail).

   (9)  Once the roots have their gradients, a node is queued exactly if its slot has a gradient and it has not run.
   (10) A node that is taken from the queue has received all its gradients, for they come from newer nodes only, and
        none of these is left.  The rule of a checkpoint is the one that sends to a newer node: it records its function
        again, and the new nodes, being newer than all that are queued, run next.
   (11) No .grad changes before everything that can fail has been done (tgi_commit), so that a run that fails leaves
        every .grad as it was.  But nodes that have run may have dropped their saved tensors (8): the message says so.
   (12) A gradient in a slot is a handle of that slot.  Everything else that a step makes ends with the step. */

struct tg_backward_run {
    tgi_thread *S;
    uint64_t id; /* tells this run's slots from those of others */
    int flags;
    const char *op;                    /* the public function that was called, for messages */
    uint64_t raised;                   /* S->raised when the run began */
    bool failed;                       /* the state is FAILED */
    bool partial;                      /* some nodes have dropped their saved tensors */
    tgi_grad_slot *head, *tail, *heap; /* the queue: see tgi_enqueue */
    tgi_grad_slot *leaves;             /* of leaves and of tensors with tg_retain_grad */
    tgi_grad_slot *discovered;         /* tg_gradients: of every node that the outputs depend on, oldest first */
    tg_tensor *const *inputs;          /* tg_gradients: [n_inputs], what the results are the gradients of */
    tg_tensor **results;               /* [n_inputs] */
    int n_inputs;                      /* 0 in other runs */
    tg_tensor *shown;                  /* the gradient in the last tg_step_info, which is valid until the next step */
};

/* The queue gives the slot with the largest number.  A chain or a tree of ops sends gradients in the order of falling
   numbers, for which a list (head, tail) does; only what arrives out of this order goes into a pairing heap (Fredman,
   Sedgewick, Sleator and Tarjan, 1986).  tgi_meld joins two heaps, either of which may be empty. */
static tgi_grad_slot *tgi_meld(tgi_grad_slot *a, tgi_grad_slot *b)
{
    if (!a) return b;
    if (!b) return a;
    if (a->number < b->number) {
        tgi_grad_slot *swap = a;
        a = b;
        b = swap;
    }
    b->sibling = a->child;
    a->child = b;
    return a;
}

/* The heap without its first slot: its children are melded in pairs, then the pairs from last to first. */
static tgi_grad_slot *tgi_heap_rest(tgi_grad_slot *top)
{
    tgi_grad_slot *list = top->child, *pairs = NULL, *heap = NULL;
    while (list) {
        tgi_grad_slot *a = list, *b = a->sibling;
        list = b ? b->sibling : NULL;
        a->sibling = NULL;
        if (b) b->sibling = NULL;
        a = tgi_meld(a, b);
        a->sibling = pairs;
        pairs = a;
    }
    while (pairs) {
        tgi_grad_slot *next = pairs->sibling;
        pairs->sibling = NULL;
        heap = tgi_meld(heap, pairs);
        pairs = next;
    }
    return heap;
}

static void tgi_enqueue(tg_backward_run *run, tgi_grad_slot *slot)
{
    slot->queued = true;
    slot->child = slot->sibling = NULL;
    if (!run->tail) {
        run->head = run->tail = slot;
    } else if (slot->number < run->tail->number) {
        run->tail->sibling = slot;
        run->tail = slot;
    } else {
        run->heap = tgi_meld(run->heap, slot);
    }
}

/* Takes the newest node's slot from the queue; NULL if the queue is empty. */
static tgi_grad_slot *tgi_dequeue(tg_backward_run *run)
{
    tgi_grad_slot *slot = run->head;
    if (run->heap && (!slot || run->heap->number > slot->number)) {
        slot = run->heap;
        run->heap = tgi_heap_rest(slot);
    } else if (slot) {
        run->head = slot->sibling;
        if (!run->head) run->tail = NULL;
    }
    if (slot) slot->queued = false;
    return slot;
}

/* ---- slots ---- */

/* Bytes behind a slot for the gradients of more than one output. */
static size_t tgi_grad_slot_extra(int outputs) { return outputs > 1 ? sizeof(tg_tensor *) * (size_t)outputs : 0; }

static tgi_grad_slot *tgi_grad_slot_new(tg_backward_run *run, const char *op, int outputs)
{
    tgi_thread *S = run->S;
    const size_t extra = tgi_grad_slot_extra(outputs);
    tgi_grad_slot *slot = (tgi_grad_slot *)tgi_alloc(S, sizeof *slot + extra);
    if (!slot) return tgi_no_memory(S, op, sizeof *slot + extra), slot;
    memset(slot, 0, sizeof *slot + extra);
    slot->grad = extra ? (tg_tensor **)(void *)(slot + 1) : &slot->first;
    slot->run = run->id;
    slot->needed = true;
    return slot;
}

/* The slot of this run in the list node->slot or leaf->slot, or NULL. */
static tgi_grad_slot *tgi_find_grad_slot(tgi_grad_slot *slot, uint64_t run)
{
    while (slot && slot->run != run) slot = slot->outer;
    return slot;
}

static void tgi_unlink_grad_slot(tgi_grad_slot **at, const tgi_grad_slot *slot)
{
    while (*at != slot) at = &(*at)->outer;
    *at = slot->outer;
}

/* The run's slot of a node, made if there is none; NULL after recording an error. */
static tgi_grad_slot *tgi_node_grad_slot(tg_backward_run *run, tgi_node *n)
{
    tgi_grad_slot *slot = tgi_find_grad_slot(n->slot, run->id);
    if (slot) return slot;
    slot = tgi_grad_slot_new(run, n->op->name, n->outputs);
    if (!slot) return NULL;
    slot->node = n;
    slot->number = n->number;
    slot->outer = n->slot;
    n->slot = slot;
    n->refs++;
    return slot;
}

/* The run's slot of a leaf (or of a tensor with tg_retain_grad), or NULL.  A run writes nothing into a leaf that other
   threads can reach, not even where its slot is: that slot is found by a search. */
static tgi_grad_slot *tgi_find_leaf(const tg_backward_run *run, const tg_tensor *t)
{
    if (!(t->flags & TGI_SHARED)) return tgi_find_grad_slot(t->slot, run->id);
    tgi_grad_slot *slot = run->leaves;
    while (slot && slot->leaf != t) slot = slot->all;
    return slot;
}

/* The same, made if there is none; NULL after recording an error. */
static tgi_grad_slot *tgi_leaf_grad_slot(tg_backward_run *run, tg_tensor *t, bool retained)
{
    tgi_grad_slot *slot = tgi_find_leaf(run, t);
    if (slot) return slot;
    slot = tgi_grad_slot_new(run, "backward", 1);
    if (!slot) return NULL;
    slot->leaf = t;
    slot->retained = retained;
    tgi_saved_ref(t);
    if (!(t->flags & TGI_SHARED)) {
        slot->outer = t->slot;
        t->slot = slot;
    }
    slot->all = run->leaves;
    run->leaves = slot;
    return slot;
}

static void tgi_grad_slot_free(tgi_thread *S, tgi_grad_slot *slot)
{
    tgi_node *n = slot->node;
    const int outputs = n ? n->outputs : 1;
    for (int i = 0; i < outputs; ++i) tgi_unref(S, slot->grad[i]);
    if (n) tgi_unlink_grad_slot(&n->slot, slot);
    else if (!(slot->leaf->flags & TGI_SHARED)) tgi_unlink_grad_slot(&slot->leaf->slot, slot);
    if (slot->leaf) tgi_saved_unref(S, slot->leaf);
    tgi_free(S, slot, sizeof *slot + tgi_grad_slot_extra(outputs));
    if (n) tgi_node_unref(S, n);
}

/* Whether g belongs to the run alone, so that the run may write it or make it a .grad as it is. */
static bool tgi_is_exclusive(const tg_tensor *g)
{
    return !(g->flags & TGI_SHARED) && !g->storage->shared && g->refs == 1 && g->saved_refs == 1 && !g->base &&
           g->storage->refs == 1;
}

/* *grad, the gradient of a slot or NULL, becomes a handle of t in place of the tensor before. */
static void tgi_replace(tgi_thread *S, tg_tensor **grad, tg_tensor *t)
{
    tgi_ref(t);
    tgi_unref(S, *grad);
    *grad = t;
}

/* *grad += g, where *grad is the gradient of a slot, or NULL for none yet.  False after recording an error. */
static bool tgi_accumulate(tg_backward_run *run, tg_tensor **grad, tg_tensor *g)
{
    if (*grad && !(run->flags & TG_CREATE_GRAPH) && tgi_is_exclusive(*grad) && tgi_is_contiguous(*grad))
        return tgi_later_add_(*grad, g) != NULL;
    tg_tensor *sum = *grad ? tgi_later_add(*grad, g) : g;
    if (sum) tgi_replace(run->S, grad, sum);
    return sum != NULL;
}

/* Adds g to the slot to which e points, and queues its node: invariant (9).  False after recording an error. */
static bool tgi_send_grad(tg_backward_run *run, const tgi_edge *e, tg_tensor *g)
{
    if (e->leaf) {
        if (tgi_refs(e->leaf) == 0) return true; /* its handles are gone: nobody can read its .grad */
        if (run->n_inputs && !tgi_find_leaf(run, e->leaf)) return true; /* not an input: its hooks must not run */
        tgi_grad_slot *slot = tgi_leaf_grad_slot(run, e->leaf, false);
        return slot && tgi_accumulate(run, &slot->grad[0], g);
    }
    tgi_grad_slot *slot = tgi_node_grad_slot(run, e->node);
    if (!slot) return false;
    if (!slot->needed && !slot->returned) return true;
    if (!tgi_accumulate(run, &slot->grad[e->output], g)) return false;
    if (!slot->queued) tgi_enqueue(run, slot);
    return true;
}

/* ---- one step ---- */

static const char *tgi_node_name(const tgi_node *n) { return n->ctx && n->ctx->name ? n->ctx->name : n->op->name; }

/* "ExpBackward0", as PyTorch would call the node of op exp; a custom one is "NameBackward". */
static tgi_text tgi_backward_name(const tgi_node *node)
{
    tgi_text s;
    size_t n = 0;
    bool upper = true;
    if (node->op->flags & TGI_FLAG_CUSTOM) {
        snprintf(s.text, sizeof s.text, "%.100sBackward", tgi_node_name(node));
        return s;
    }
    for (const char *p = node->op->name; *p && n < 100; ++p) {
        if (*p == '_') {
            upper = true;
            continue;
        }
        s.text[n++] = upper && *p >= 'a' && *p <= 'z' ? (char)(*p - 'a' + 'A') : *p;
        upper = false;
    }
    memcpy(s.text + n, "Backward0", 10);
    return s;
}

/* Whether the saved tensors of n are still there (8) and have not been written since (5). */
static bool tgi_check_saved(tgi_thread *S, const tgi_node *n)
{
    if (n->flags & TGI_FREED) {
        return tgi_fail(
            S, TG_ERR_GRAPH, "backward",
            "Trying to backward through the graph a second time (or directly access saved tensors after they have "
            "already been freed). Saved intermediate values of the graph are freed by tg_backward and tg_gradients. "
            "(at node %lld, %s)\n"
            "pass TG_RETAIN_GRAPH to the first backward: tg_backward_ex(&loss, 1, NULL, TG_RETAIN_GRAPH)",
            (long long)n->number, tgi_node_name(n));
    }
    for (int i = 0; i < n->saves; ++i) {
        const tgi_saved *s = &n->saved[i];
        const tg_tensor *t = s->t;
        if (t->storage->version == s->version) continue;
        const tgi_node *maker = s->which == TGI_SAVED_OTHER ? NULL : s->which < 0 ? n : n->edge[s->which].node;
        return tgi_fail(
            S, TG_ERR_GRAPH, "backward",
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            "[%s %s], which is output %d of %s, is at version %u; expected version %u instead. It is needed by the "
            "backward of %s and was last written by %s.\n"
            "write to a copy (tg_clone), or use the op without the underscore",
            tg_dtype_name((tg_dtype)t->dtype), tgi_shape_text(t).text, (int)t->output,
            maker ? tgi_backward_name(maker).text : "a leaf", (unsigned)t->storage->version, (unsigned)s->version,
            tgi_node_name(n), t->storage->writer ? t->storage->writer : "the program");
    }
    return true;
}

/* A node on the tape that takes t from what `base` points to, as the view says.  NULL after recording an error. */
static tgi_node *tgi_view_node(tgi_thread *S, tg_tensor *t, const tgi_edge *base, const tgi_view_info *view)
{
    tgi_node *n = tgi_view_node_new(S, t, view);
    if (!n) return NULL;
    tgi_set_edge(&n->edge[0], *base);
    tgi_node_link(S, n);
    return n;
}

/* Gives a saved tensor of n whose last handle was released, and with it its node (3), that node again.  If n wrote
   through a view, what it saved of input 0 and of its output is the view, while its edges and outputs are the base's:
   such a tensor gets a node that takes the view from the base. */
static bool tgi_restore_node(tgi_thread *S, tgi_node *n, const tgi_saved *s)
{
    tg_tensor *t = s->t;
    if (t->node || s->which == TGI_SAVED_OTHER) return true; /* one that waits to be freed still has its node */
    tgi_edge maker;
    if (s->which >= 0) {
        maker = n->edge[s->which];
    } else {
        maker.node = n;
        maker.leaf = NULL;
        maker.output = -1 - s->which;
    }
    if (!maker.node) return true;
    if ((n->flags & TGI_WROTE_VIEW) && s->which <= 0) {
        t->node = tgi_view_node(S, t, &maker, n->view);
        if (!t->node) return false;
        t->output = 0;
    } else {
        t->node = maker.node;
        t->output = maker.output;
        maker.node->refs++;
    }
    t->flags |= TGI_REQUIRES_GRAD;
    return true;
}

/* Makes the saved tensors of n whose last handle was released temporaries of the step, so that the rule can use them
   like any other; with_history: with their nodes, too, for a rule whose ops are recorded. */
static bool tgi_revive(tgi_thread *S, tgi_node *n, bool with_history)
{
    for (int i = 0; i < n->saves; ++i) {
        const tgi_saved *s = &n->saved[i];
        if (tgi_refs(s->t) != 0) continue;
        tgi_ref(s->t);
        tgi_join_list(S, s->t, S->scope, S->scope_serial);
        if (with_history && !tgi_restore_node(S, n, s)) return false;
    }
    return true;
}

/* Whether the shape dim [ndim] could be expanded to that of t: then t can be summed to it. */
static bool tgi_expandable_to(const tg_tensor *t, int ndim, const int64_t *dim)
{
    if (ndim > t->ndim) return false;
    for (int i = 1; i <= ndim; ++i) {
        if (dim[ndim - i] != 1 && dim[ndim - i] != t->dim[t->ndim - i]) return false;
    }
    return true;
}

/* g in the dtype and on the device of what it is the gradient of; only a 0-dim g may be elsewhere.  It is gradient
   number i that node's rule returned, or of root i if node is NULL. */
static tg_tensor *tgi_convert_grad(tgi_thread *S, const char *op, const tgi_node *node, int i, tg_tensor *g,
                                   const tgi_output_info *info)
{
    const bool elsewhere = g->storage->backend != info->backend || g->storage->index != info->index;
    if (!elsewhere && g->dtype == info->dtype) return g;
    const tg_device device = tgi_output_device(info);
    if (elsewhere && g->ndim > 0) {
        return tgi_no_tensor(
            tgi_fail(S, TG_ERR_DEVICE, op, "%s%s%sinvalid gradient at index %d - expected device %s but got %s",
                     node ? "Function " : "", node ? tgi_backward_name(node).text : "", node ? " returned an " : "", i,
                     tg_device_str(device), tg_device_str(tgi_device_of(g))));
    }
    return tgi_later_to(g, device, (tg_dtype)info->dtype, 0);
}

/* Gradient i that a rule returned, made like the input that it is the gradient of: summed over the dims that the op
   broadcast, and converted.  NULL after recording an error. */
static tg_tensor *tgi_validate_grad(tgi_thread *S, const tgi_node *node, int i, tg_tensor *g,
                                    const tgi_output_info *info)
{
    if (!tgi_same_shape(g, info->ndim, info->dim)) {
        if (!tgi_expandable_to(g, info->ndim, info->dim)) {
            return tgi_no_tensor(tgi_fail(
                S, TG_ERR_SHAPE, "backward",
                "Function %s returned an invalid gradient at index %d - got %s but expected shape compatible with %s",
                tgi_backward_name(node).text, i, tgi_shape_text(g).text, tgi_dims_text(info->ndim, info->dim).text));
        }
        g = tgi_later_sum_to(g, info->ndim, info->dim);
        if (!g) return NULL;
    }
    return tgi_convert_grad(S, "backward", node, i, g, info);
}

/* Place, dtype and shape of input i of a node, which needs a gradient. */
static tgi_output_info tgi_input_info(const tgi_node *n, int i)
{
    const tgi_edge *e = &n->edge[i];
    return e->node ? e->node->output_info[e->output] : tgi_output_info_of(e->leaf);
}

static bool tgi_has_edge(const tgi_node *n, int i) { return n->edge[i].node || n->edge[i].leaf; }

/* Whether what a hook returned in place of g is like g. */
static bool tgi_check_hook_result(tgi_thread *S, const tgi_hook_entry *e, const tg_tensor *g, const tg_tensor *result)
{
    const bool size = !tgi_same_shape(result, g->ndim, g->dim), type = result->dtype != g->dtype;
    if (!size && !type && tgi_same_place(result, g)) return true;
    return tgi_fail(S, size ? TG_ERR_SHAPE : type ? TG_ERR_DTYPE : TG_ERR_DEVICE, "backward",
                    "hook %d has changed the %s of value (was %s %s on %s got %s %s on %s)", e->id,
                    size ? "size" : type ? "type" : "device", tg_dtype_name((tg_dtype)g->dtype), tgi_shape_text(g).text,
                    tg_device_str(tgi_device_of(g)), tg_dtype_name((tg_dtype)result->dtype),
                    tgi_shape_text(result).text, tg_device_str(tgi_device_of(result)));
}

/* Calls a hook with *grad, the gradient of a slot, in a scope of its own; what it returns replaces *grad. */
static bool tgi_call_hook(tgi_thread *S, const tgi_hook_entry *e, tg_tensor **grad)
{
    const uint64_t scope = tgi_frame_open(S, TGI_GUARD_SCOPE);
    if (!scope) return false;
    tgi_guard guard;
    tgi_guard_open(&guard, S, "the hook");
    tg_tensor *g = e->hook(*grad, e->user);
    bool ok = tgi_guard_close(&guard) && !tgi_guard_failed(&guard);
    if (ok && g) ok = tgi_argument(S, "backward", "of the hook's result", g) && tgi_check_hook_result(S, e, *grad, g);
    if (ok && g && g != *grad) tgi_replace(S, grad, g);
    tgi_frame_close(S, scope);
    return ok;
}

/* Calls the hooks of an output with *grad, its gradient.  Entries that a hook removes meanwhile are freed when no hook
   is running any more. */
static bool tgi_run_hooks(tgi_thread *S, tgi_hook_entry **hooks, int output, tg_tensor **grad)
{
    bool ok = true;
    S->hooking++;
    for (const tgi_hook_entry *e = *hooks; ok && e; e = e->next) {
        if (e->hook && e->output == output) ok = tgi_call_hook(S, e, grad);
    }
    if (--S->hooking == 0) tgi_sweep_hooks(S, hooks);
    return ok;
}

/* Calls all post-accumulate hooks of a leaf, in the scope of tgi_end_run, which is emptied after each.  False if one
   raised an error. */
static bool tgi_run_post_hooks(tgi_thread *S, tg_tensor *leaf)
{
    bool ok = true;
    S->hooking++;
    for (const tgi_hook_entry *e = leaf->hooks; e; e = e->next) {
        tgi_guard guard;
        if (!e->post) continue;
        tgi_guard_open(&guard, S, "the hook");
        e->post(leaf, e->user);
        ok = tgi_guard_close(&guard) && !tgi_guard_failed(&guard) && ok;
        tgi_end_list(S, S->scope, TGI_BY_SCOPE);
    }
    if (--S->hooking == 0) tgi_sweep_hooks(S, &leaf->hooks);
    return ok;
}

/* Anomaly mode: no NaN may come out of a rule. */
static bool tgi_check_anomaly(tgi_thread *S, const tgi_step *step)
{
    const tgi_node *n = step->node;
    for (int i = 0; i < n->inputs; ++i) {
        if (!step->result[i]) continue;
        tg_tensor *any = tgi_later_any(tgi_later_isnan(step->result[i]));
        if (!any) return false;
        if (tg_item(any) == 0) continue;
        return tgi_fail(S, TG_ERR_GRAPH, "backward",
                        "Function '%s' returned nan values in its %dth output.\n"
                        "the op was %s%s%s (node %lld): look at its inputs",
                        tgi_backward_name(n).text, i, tgi_node_name(n), n->name ? ", which made " : "",
                        n->name ? n->name : "", (long long)n->number);
    }
    return true;
}

/* Adds the gradients of n's outputs to the slots of the tensors for which tg_retain_grad was called. */
static bool tgi_retain_grads(tg_backward_run *run, const tgi_grad_slot *slot)
{
    for (const tgi_hook_entry *e = slot->node->hooks; e; e = e->next) {
        if (!e->retain || !slot->grad[e->output]) continue;
        tgi_grad_slot *retained = tgi_leaf_grad_slot(run, e->retain, true);
        if (!retained || !tgi_accumulate(run, &retained->grad[0], slot->grad[e->output])) return false;
    }
    return true;
}

/* tg_gradients: n's outputs that are inputs of the run have their final gradients, which are results. */
static void tgi_return_grads(tg_backward_run *run, const tgi_grad_slot *slot)
{
    for (int i = 0; i < run->n_inputs; ++i) {
        const tg_tensor *t = run->inputs[i];
        if (t->node == slot->node && slot->grad[t->output] && !run->results[i])
            tgi_replace(run->S, &run->results[i], slot->grad[t->output]);
    }
}

/* Makes the gradients in a slot ready for the rule: calls the hooks with them, keeps those that were asked for, and
   puts zeros where an output has none.  False after recording an error. */
static bool tgi_prepare(tg_backward_run *run, tgi_grad_slot *slot)
{
    tgi_thread *S = run->S;
    tgi_node *n = slot->node;
    for (int i = 0; i < n->outputs; ++i) {
        if (slot->grad[i] && i < 64) slot->received |= (uint64_t)1 << i;
        if (slot->grad[i] && n->hooks && !tgi_run_hooks(S, &n->hooks, i, &slot->grad[i])) return false;
    }
    if (!tgi_retain_grads(run, slot)) return false;
    if (slot->returned) tgi_return_grads(run, slot);
    for (int i = 0; i < n->outputs && slot->needed; ++i) {
        const tgi_output_info *info = &n->output_info[i];
        if (slot->grad[i] || (!tgi_dtypes[info->dtype].floating && !n->ctx)) continue;
        tg_tensor *zeros =
            tg_zeros_on(tg_make_shape(info->ndim, info->dim), (tg_dtype)info->dtype, tgi_output_device(info));
        if (!zeros) return false;
        tgi_replace(S, &slot->grad[i], zeros);
    }
    return true;
}

/* Runs the rule of a node.  The output of a TGI_WROTE_VIEW node is the whole base after the op wrote the view: the rule
   gets the view of g, and the gradient of the base before is g with the rule's result for input 0 in the view. */
static bool tgi_run_rule(tgi_step *step)
{
    tgi_node *n = step->node;
    tg_tensor *g = step->grad[0];
    if (!(n->flags & TGI_WROTE_VIEW)) return n->op->rule(step, g);
    tg_tensor *part = tgi_later_as_strided(g, n->view);
    if (!part || !n->op->rule(step, part)) return false;
    if (!tgi_has_edge(n, 0)) return true;
    part = step->result[0];
    if (!part) part = tg_zeros_on(tg_make_shape(n->view->ndim, n->view->dim), (tg_dtype)g->dtype, tgi_device_of(g));
    if (part && !tgi_same_shape(part, n->view->ndim, n->view->dim))
        part = tgi_later_sum_to(part, n->view->ndim, n->view->dim);
    step->result[0] = part ? tgi_later_scatter_view(g, part, n->view) : NULL;
    return step->result[0] != NULL;
}

enum { TGI_STEP_RESULTS = 8 }; /* results of a rule that need no allocation */

/* Runs the rule of the slot's node and sends its results on, last input first: later inputs are mostly newer, so the
   numbers that arrive in the queue fall.  False after recording an error. */
static bool tgi_run_node(tg_backward_run *run, tgi_grad_slot *slot)
{
    tgi_thread *S = run->S;
    tgi_node *n = slot->node;
    if (!tgi_check_saved(S, n)) return false;
    tg_tensor *few[TGI_STEP_RESULTS], **result = few;
    const size_t bytes = sizeof(tg_tensor *) * (size_t)n->inputs;
    if (n->inputs > TGI_STEP_RESULTS) {
        result = (tg_tensor **)tgi_alloc(S, bytes);
        if (!result) return tgi_no_memory(S, n->op->name, bytes);
    }
    for (int i = 0; i < n->inputs; ++i) result[i] = NULL;
    tgi_step step = {S, run, n, n->params, slot->grad, slot->received, result};
    const bool with_history = (run->flags & TG_CREATE_GRAPH) || (n->op->flags & TGI_FLAG_RECOMPUTES);
    bool ok = tgi_revive(S, n, with_history) && tgi_run_rule(&step) && (!S->anomaly || tgi_check_anomaly(S, &step));
    for (int i = n->inputs - 1; ok && i >= 0; --i) {
        if (!result[i] || !tgi_has_edge(n, i)) continue;
        const tgi_output_info info = tgi_input_info(n, i);
        result[i] = tgi_validate_grad(S, n, i, result[i], &info);
        ok = result[i] && tgi_send_grad(run, &n->edge[i], result[i]);
    }
    if (result != few) tgi_free(S, result, bytes);
    return ok;
}

/* The run is FAILED from here on.  The message says so if saved tensors were dropped before: invariant (11). */
static void tgi_run_fail(tg_backward_run *run)
{
    tgi_thread *S = run->S;
    static const char note[] = "\n  note: this backward has freed part of its graph: it cannot be repeated";
    const size_t used = strlen(S->message);
    /* the error on record is this run's if it was the first one raised after its beginning */
    if (run->partial && !run->failed && S->errors && S->raised - (uint64_t)S->errors >= run->raised &&
        used + sizeof note <= sizeof S->message)
        memcpy(S->message + used, note, sizeof note);
    run->failed = true;
}

/* A scope for one step, which needs no memory and so cannot fail to open, and the mode of its ops: invariant (12). */
typedef struct { tgi_frame *frame; tgi_link list, *outer; uint64_t outer_serial; bool grad_off; } tgi_step_scope;

static void tgi_step_scope_open(tgi_thread *S, tgi_step_scope *scope, bool grad_off)
{
    scope->frame = S->frame;
    scope->outer = S->scope;
    scope->outer_serial = S->scope_serial;
    scope->grad_off = S->grad_off;
    scope->list.prev = scope->list.next = &scope->list;
    S->scope = &scope->list;
    S->scope_serial = ++S->serials;
    S->grad_off = grad_off;
}

static void tgi_step_scope_close(tgi_thread *S, tgi_step_scope *scope)
{
    tgi_frames_close(S, scope->frame);
    tgi_end_list(S, &scope->list, TGI_BY_SCOPE);
    S->scope = scope->outer;
    S->scope_serial = scope->outer_serial;
    S->grad_off = scope->grad_off;
}

/* Fills in *info for the step that runs the slot's node; the run keeps the gradient in it until the next step. */
static void tgi_describe_step(tg_backward_run *run, const tgi_grad_slot *slot, tg_step_info *info)
{
    const tgi_node *n = slot->node;
    info->node = (int64_t)n->number;
    info->op = tgi_node_name(n);
    info->name = n->name ? n->name : "";
    info->formula = n->op->formula;
    info->inputs = n->inputs;
    info->grad = slot->grad[0];
    tgi_unref(run->S, run->shown);
    run->shown = slot->grad[0];
    if (run->shown) tgi_ref(run->shown);
}

/* STEPPING to STEPPING, DONE or FAILED. */
bool tg_backward_step(tg_backward_run *run, tg_step_info *info)
{
    if (!run || run->failed) return false;
    tgi_grad_slot *slot = tgi_dequeue(run);
    if (!slot) return false;
    tgi_thread *S = run->S;
    tgi_step_scope scope;
    tgi_step_scope_open(S, &scope, !(run->flags & TG_CREATE_GRAPH));
    bool ok = tgi_prepare(run, slot);
    if (ok && info) tgi_describe_step(run, slot, info);
    if (ok && slot->needed) {
        ok = tgi_run_node(run, slot);
        if (ok && !(run->flags & (TG_RETAIN_GRAPH | TG_CREATE_GRAPH))) { /* invariant (8) */
            if (slot->node->saves) slot->node->flags |= TGI_FREED;
            tgi_drop_saved(S, slot->node);
            run->partial = true;
        }
    }
    tgi_step_scope_close(S, &scope);
    if (!slot->listed) tgi_grad_slot_free(S, slot);
    if (!ok) tgi_run_fail(run);
    return ok;
}

/* ---- begin: the roots' gradients, and for tg_gradients the nodes that lead to an input ---- */

/* The gradient that root i starts with: g, or 1 if that is NULL.  NULL after recording an error. */
static tg_tensor *tgi_root_grad(tgi_thread *S, const char *op, int i, tg_tensor *root, tg_tensor *g)
{
    if (!(root->flags & TGI_REQUIRES_GRAD)) {
        return tgi_no_tensor(tgi_fail(S, TG_ERR_GRAPH, op,
                                      "element %d of tensors does not require grad and does not have a grad_fn\n"
                                      "no input of it requires grad, or it was computed under TG_NO_GRAD",
                                      i));
    }
    if (!g && tgi_numel(root) == 1) return tg_ones_like(root);
    if (!g) {
        return tgi_no_tensor(tgi_fail(S, TG_ERR_SHAPE, op,
                                      "grad can be implicitly created only for scalar outputs, not for shape %s\n"
                                      "reduce it (tg_sum), or pass its gradient to tg_backward_ex",
                                      tgi_shape_text(root).text));
    }
    if (!tgi_argument(S, op, "grads", g)) return NULL;
    if (!tgi_same_shape(g, root->ndim, root->dim)) {
        return tgi_no_tensor(
            tgi_fail(S, TG_ERR_SHAPE, op,
                     "Mismatch in shape: grad_output[%d] has a shape of %s and output[%d] has a shape of %s.", i,
                     tgi_shape_text(g).text, i, tgi_shape_text(root).text));
    }
    const tgi_output_info info = tgi_output_info_of(root);
    return tgi_convert_grad(S, op, NULL, i, g, &info);
}

/* tg_gradients: which nodes must run?  First every node that the outputs depend on gets a slot, visited newest first
   through the queue.  Then, oldest first, a node is needed if one of its edges points to an input, or to a node that is
   needed.  (An input that is a leaf has a slot already.)  False after recording an error. */
static bool tgi_discover(tg_backward_run *run, tg_tensor *const *outputs, int n)
{
    for (int i = 0; i < n; ++i) {
        tgi_grad_slot *slot = outputs[i]->node ? tgi_node_grad_slot(run, outputs[i]->node) : NULL;
        if (outputs[i]->node && !slot) return false;
        if (slot && !slot->queued) tgi_enqueue(run, slot);
    }
    for (tgi_grad_slot *slot; (slot = tgi_dequeue(run)) != NULL;) {
        slot->all = run->discovered;
        run->discovered = slot;
        slot->queued = slot->listed = true; /* it has been in the queue */
        for (int k = slot->node->inputs - 1; k >= 0; --k) {
            tgi_node *to = slot->node->edge[k].node;
            tgi_grad_slot *next = to ? tgi_node_grad_slot(run, to) : NULL;
            if (to && !next) return false;
            if (next && !next->queued) tgi_enqueue(run, next);
        }
    }
    for (int i = 0; i < run->n_inputs; ++i) {
        tgi_node *maker = run->inputs[i]->node;
        tgi_grad_slot *slot = maker ? tgi_find_grad_slot(maker->slot, run->id) : NULL;
        if (slot) slot->returned = true;
    }
    for (tgi_grad_slot *slot = run->discovered; slot; slot = slot->all) {
        slot->queued = slot->needed = false;
        for (int k = 0; k < slot->node->inputs && !slot->needed; ++k) {
            const tgi_edge *e = &slot->node->edge[k];
            const tgi_grad_slot *to = e->node ? tgi_find_grad_slot(e->node->slot, run->id) : NULL;
            slot->needed = to ? to->needed || to->returned : e->leaf && tgi_find_leaf(run, e->leaf);
        }
    }
    return true;
}

/* Sends the roots' gradients, which makes the run STEPPING.  False after recording an error. */
static bool tgi_send_root_grads(tg_backward_run *run, tg_tensor *const *roots, int n, tg_tensor *const *grads)
{
    const uint64_t scope = tgi_frame_open(run->S, TGI_GUARD_SCOPE);
    bool ok = scope != 0;
    for (int i = 0; ok && i < n; ++i) {
        tg_tensor *g = tgi_root_grad(run->S, run->op, i, roots[i], grads ? grads[i] : NULL);
        const tgi_edge e = tgi_edge_to(roots[i]);
        ok = g && tgi_send_grad(run, &e, g);
    }
    if (scope) tgi_frame_close(run->S, scope);
    return ok;
}

/* A run whose roots have their gradients.  It may be FAILED; NULL if there is not even that, after recording an error.
   list: the name of the argument `roots`.  inputs [n_inputs] and results: those of tg_gradients, or NULL, 0, NULL. */
static tg_backward_run *tgi_begin_run(const char *op, const char *list, tg_tensor *const *roots, int n,
                                      tg_tensor *const *grads, int flags, tg_tensor *const *inputs, int n_inputs,
                                      tg_tensor **results)
{
    tgi_thread *S = tgi_self();
    if (!roots && n > 0) return tgi_null_argument(S, op, list), (tg_backward_run *)NULL;
    if (!tgi_argument_list(S, op, list, roots, n, n)) return NULL;
    for (int i = 0; i < n; ++i) {
        if (!tgi_refresh_view(S, roots[i])) return NULL;
    }
    tg_backward_run *run = (tg_backward_run *)tgi_alloc(S, sizeof *run);
    if (!run) return tgi_no_memory(S, op, sizeof *run), run;
    memset(run, 0, sizeof *run);
    run->S = S;
    run->id = ++S->runs;
    run->op = op;
    run->raised = S->raised;
    run->flags = flags;
    run->inputs = inputs;
    run->n_inputs = n_inputs;
    run->results = results;
    bool ok = true;
    for (int i = 0; ok && i < n_inputs; ++i) ok = inputs[i]->node || tgi_leaf_grad_slot(run, inputs[i], false);
    ok = ok && (!n_inputs || tgi_discover(run, roots, n)) && tgi_send_root_grads(run, roots, n, grads);
    if (!ok) tgi_run_fail(run);
    return run;
}

static tg_status tgi_backward_end(tg_backward_run *run);

static tg_backward_run *tgi_begin_backward(const char *op, const char *list, tg_tensor *const *roots, int n,
                                           tg_tensor *const *grads, int flags)
{
    tg_backward_run *run = tgi_begin_run(op, list, roots, n, grads, flags, NULL, 0, NULL);
    if (!run || !run->failed) return run;
    tgi_backward_end(run);
    return NULL;
}

tg_backward_run *tg_backward_begin(tg_tensor *const *roots, int n, tg_tensor *const *grads, int flags)
{
    return tgi_begin_backward("backward_begin", "roots", roots, n, grads, flags);
}

/* ---- end: leaves get their gradients, or nothing does ---- */

static bool tgi_same_layout(const tg_tensor *a, const tg_tensor *b)
{
    for (int i = 0; i < a->ndim; ++i) {
        if (a->dim[i] > 1 && a->stride[i] != b->stride[i]) return false;
    }
    return true;
}

/* Whether the leaf's .grad is added to in place.  It is not if it has a graph, or gets one now: ops that have saved it
   would find it changed. */
static bool tgi_adds_in_place(const tg_backward_run *run, const tg_tensor *leaf)
{
    return leaf->grad && !(run->flags & TG_CREATE_GRAPH) && !(leaf->grad->flags & TGI_REQUIRES_GRAD) &&
           !tgi_overlaps_itself(leaf->grad);
}

/* The tensor that will be the leaf's .grad: a sum if it has one that is not added to in place; else the gradient
   itself, if it is the run's alone and laid out like the leaf; else a copy that is.  NULL after recording an error. */
static tg_tensor *tgi_commit_value(tg_backward_run *run, tgi_grad_slot *slot)
{
    tg_tensor *leaf = slot->leaf, *g = slot->grad[0];
    if (leaf->grad) return tgi_later_add(leaf->grad, g);
    const bool exclusive = tgi_is_exclusive(g), dense = tgi_is_dense(leaf);
    if (exclusive && (dense ? tgi_same_layout(g, leaf) : tgi_is_contiguous(g))) return g;
    if (run->flags & TG_CREATE_GRAPH) return exclusive ? g : tgi_later_clone(g);
    tg_tensor *copy = tgi_new_like(run->S, "backward", leaf);
    if (copy && dense) memcpy(copy->stride, leaf->stride, sizeof(int64_t) * leaf->ndim);
    return copy && tgi_copy_elements(run->S, copy, g) ? copy : NULL;
}

/* Calls the hooks of the leaves with their gradients.  False if one failed. */
static bool tgi_run_leaf_hooks(tg_backward_run *run)
{
    for (tgi_grad_slot *slot = run->leaves; slot; slot = slot->all) {
        tg_tensor *leaf = slot->leaf;
        if (slot->retained || !slot->grad[0] || !leaf->hooks) continue;
        tgi_ref(leaf); /* a hook may release it */
        const bool ok = tgi_run_hooks(run->S, &leaf->hooks, leaf->output, &slot->grad[0]);
        tgi_unref(run->S, leaf);
        if (!ok) return false;
    }
    return true;
}

/* tg_gradients: the gradients of the inputs that are leaves are results, as tgi_return_grads does for the others. */
static void tgi_return_leaf_grads(tg_backward_run *run)
{
    for (int i = 0; i < run->n_inputs; ++i) {
        if (run->inputs[i]->node || run->results[i]) continue;
        tgi_grad_slot *slot = tgi_find_leaf(run, run->inputs[i]);
        if (slot && slot->grad[0]) tgi_replace(run->S, &run->results[i], slot->grad[0]);
    }
}

/* Makes the new .grad of every leaf, in its slot, unless it is added to in place.  False after recording an error. */
static bool tgi_make_commit_values(tg_backward_run *run)
{
    tgi_thread *S = run->S;
    for (tgi_grad_slot *slot = run->leaves; slot; slot = slot->all) {
        tg_tensor *leaf = slot->leaf;
        if (tgi_refs(leaf) == 0) continue;
        if (leaf->grad && !tgi_argument(S, run->op, "grad", leaf->grad)) return false;
        if (tgi_adds_in_place(run, leaf)) continue;
        tg_tensor *value = tgi_commit_value(run, slot);
        if (!value || ((leaf->flags & TGI_SHARED) && !value->node && !tgi_make_shared(S, value))) return false;
        if (value != slot->grad[0]) tgi_replace(S, &slot->grad[0], value);
    }
    return true;
}

/* Gives every leaf its .grad.  False after an error, which only a device that fails can cause. */
static bool tgi_assign_grads(tg_backward_run *run)
{
    for (tgi_grad_slot *slot = run->leaves; slot; slot = slot->all) {
        tg_tensor *leaf = slot->leaf, *before = leaf->grad;
        if (tgi_refs(leaf) == 0) continue;
        if (tgi_adds_in_place(run, leaf)) {
            if (!tgi_later_add_(leaf->grad, slot->grad[0])) return false;
        } else {
            leaf->grad = slot->grad[0];
            slot->grad[0] = NULL;
            tgi_unref_by(run->S, before, TGI_BY_GRADIENT);
        }
    }
    return true;
}

/* DONE to COMMITTED; false after recording an error.  For (11), the last function alone changes a .grad. */
static bool tgi_commit(tg_backward_run *run)
{
    if (!tgi_run_leaf_hooks(run)) return false;
    if (run->n_inputs) return tgi_return_leaf_grads(run), true;
    return tgi_make_commit_values(run) && tgi_assign_grads(run);
}

/* COMMITTED: calls the post-accumulate hooks of all leaves.  False if one raised an error. */
static bool tgi_run_all_post_hooks(tg_backward_run *run)
{
    bool ok = true;
    for (tgi_grad_slot *slot = run->n_inputs ? NULL : run->leaves; slot; slot = slot->all) {
        tg_tensor *leaf = slot->leaf;
        if (tgi_refs(leaf) == 0 || !leaf->hooks) continue;
        tgi_ref(leaf); /* a hook may release it */
        ok = tgi_run_post_hooks(run->S, leaf) && ok;
        tgi_unref(run->S, leaf);
    }
    return ok;
}

/* Makes a DONE run COMMITTED, and frees it in any state.  False if it was not DONE, or after an error. */
static bool tgi_end_run(tg_backward_run *run)
{
    tgi_thread *S = run->S;
    bool ok = !run->failed && !run->head && !run->heap;
    const bool was_off = S->grad_off;
    const uint64_t scope = ok ? tgi_frame_open(S, TGI_GUARD_SCOPE) : 0;
    S->grad_off = !(run->flags & TG_CREATE_GRAPH);
    if (ok && !(scope && tgi_commit(run))) {
        ok = false;
        tgi_run_fail(run);
    }
    if (ok) ok = tgi_run_all_post_hooks(run); /* after an error in one, every .grad stays as committed */
    S->grad_off = was_off;
    for (tgi_grad_slot *slot; (slot = tgi_dequeue(run)) != NULL;) {
        if (!slot->listed) tgi_grad_slot_free(S, slot);
    }
    for (tgi_grad_slot *slot; (slot = run->discovered) != NULL;) {
        run->discovered = slot->all;
        tgi_grad_slot_free(S, slot);
    }
    for (tgi_grad_slot *slot; (slot = run->leaves) != NULL;) {
        run->leaves = slot->all;
        tgi_grad_slot_free(S, slot);
    }
    tgi_unref(S, run->shown);
    if (scope) tgi_frame_close(S, scope);
    tgi_free(S, run, sizeof *run);
    return ok;
}

/* Ends a run; to abandon one is no error. */
static tg_status tgi_backward_end(tg_backward_run *run)
{
    tgi_thread *S = run->S;
    const bool abandoned = !run->failed && (run->head || run->heap);
    return tgi_end_run(run) || abandoned ? TG_OK : tgi_failed(S);
}

tg_status tg_backward_end(tg_backward_run *run)
{
    tgi_thread *S = tgi_self();
    const bool failed = run && run->failed;
    if (!run) return tgi_null_argument(S, "backward_end", "run"), tgi_failed(S);
    tg_status status = tgi_backward_end(run);
    if (failed && !S->errors) tgi_fail(S, status, "backward_end", "this run has failed in a step before");
    return status;
}

/* The loop above, made of the functions that the public has for it. */
static tg_status tgi_backward(const char *op, const char *list, tg_tensor *const *roots, int n,
                              tg_tensor *const *grads, int flags)
{
    tg_backward_run *run = tgi_begin_backward(op, list, roots, n, grads, flags);
    if (!run) return tgi_failed(tgi_self());
    while (tg_backward_step(run, NULL)) {}
    return tgi_backward_end(run);
}

tg_status tg_backward_ex(tg_tensor *const *roots, int n, tg_tensor *const *grads, int flags)
{
    return tgi_backward("backward_ex", "roots", roots, n, grads, flags);
}

tg_status tg_backward(tg_tensor *root) { return tgi_backward("backward", "root", &root, 1, NULL, 0); }

/* ---- gradients of chosen inputs ---- */

static bool tgi_check_gradient_inputs(tgi_thread *S, tg_tensor *const *inputs, int m)
{
    if (m <= 0) return tgi_fail(S, TG_ERR_ARGUMENT, "gradients", "grad requires non-empty inputs.");
    if (!inputs) return tgi_null_argument(S, "gradients", "inputs");
    if (!tgi_argument_list(S, "gradients", "inputs", inputs, m, m)) return false;
    for (int i = 0; i < m; ++i) {
        if (!tgi_refresh_view(S, inputs[i])) return false;
        if (!(inputs[i]->flags & TGI_REQUIRES_GRAD)) {
            return tgi_fail(S, TG_ERR_GRAPH, "gradients",
                            "One of the differentiated Tensors does not require grad (input %d)", i);
        }
    }
    return true;
}

/* Makes *result, a handle that the run had or NULL, what the caller gets for input i: a tensor of the caller's scope
   that nothing else refers to.  False after recording an error. */
static bool tgi_finish_result(tgi_thread *S, int i, tg_tensor *input, tg_tensor **result, int flags)
{
    tg_tensor *g = *result;
    if (!g) {
        if (flags & TG_MATERIALIZE_GRADS) return (*result = tg_zeros_like(input)) != NULL;
        if (flags & TG_ALLOW_UNUSED) return true;
        return tgi_fail(S, TG_ERR_GRAPH, "gradients",
                        "One of the differentiated Tensors appears to not have been used in the graph. (input %d)\n"
                        "pass TG_ALLOW_UNUSED for NULL, or TG_MATERIALIZE_GRADS for zeros",
                        i);
    }
    if (tgi_is_exclusive(g) && !g->link.next) { /* the run's reference becomes the scope's */
        tgi_join_list(S, g, S->scope, S->scope_serial);
        return true;
    }
    *result = tgi_later_clone(g);
    tgi_unref(S, g);
    return *result != NULL;
}

tg_status tg_gradients(tg_tensor *const *outputs, int n, tg_tensor *const *grad_outputs, tg_tensor *const *inputs,
                       int m, tg_tensor **results, int flags)
{
    tgi_thread *S = tgi_self();
    const bool was_off = S->grad_off;
    if (!results) return tgi_null_argument(S, "gradients", "results"), tgi_failed(S);
    for (int i = 0; i < m; ++i) results[i] = NULL;
    if (!tgi_check_gradient_inputs(S, inputs, m)) return tgi_failed(S);
    tg_backward_run *run = tgi_begin_run("gradients", "outputs", outputs, n, grad_outputs, flags, inputs, m, results);
    if (!run) return tgi_failed(S);
    while (tg_backward_step(run, NULL)) {}
    bool ok = tgi_end_run(run);
    S->grad_off = !(flags & TG_CREATE_GRAPH);
    for (int i = 0; i < m; ++i) {
        if (ok) {
            ok = tgi_finish_result(S, i, inputs[i], &results[i], flags);
        } else {
            tgi_unref(S, results[i]);
            results[i] = NULL;
        }
    }
    S->grad_off = was_off;
    if (ok) return TG_OK;
    for (int i = 0; i < m; ++i) { /* those that were finished before the error */
        tg_drop(results[i]);
        results[i] = NULL;
    }
    return tgi_failed(S);
}

/* ---- functions of the user's that are one node: custom functions and checkpoints ----

   Both run a function unrecorded (tgi_unrecorded_begin, _end) and then make one node for what it did, with a tg_ctx
   that the node owns.  The rule of a custom function calls the user's backward; that of a checkpoint calls the function
   again, recorded, and sends the gradient into the nodes that it makes. */

/* Appends a handle of t to *list [*n], which has room for *room.  False after recording an error. */
static bool tgi_append(tgi_thread *S, const char *op, tg_tensor ***list, int *n, int *room, tg_tensor *t)
{
    if (*n == *room) {
        const int more = *room ? 2 * *room : 4;
        const size_t bytes = sizeof(tg_tensor *) * (size_t)more;
        tg_tensor **longer = (tg_tensor **)tgi_alloc(S, bytes);
        if (!longer) return tgi_no_memory(S, op, bytes);
        if (*n) memcpy(longer, *list, sizeof(tg_tensor *) * (size_t)*n);
        tgi_free(S, *list, sizeof(tg_tensor *) * (size_t)*room);
        *list = longer;
        *room = more;
    }
    tgi_ref(t);
    (*list)[(*n)++] = t;
    return true;
}

/* The tensors that require grad and that ops meet while a checkpoint's function runs unrecorded: what its result
   depends on. */
typedef struct tgi_capture_list {
    tg_tensor **list;
    int n, room;
} tgi_capture_list;

/* Adds t to the list of the innermost checkpoint, once. */
static bool tgi_capture(tgi_thread *S, tg_tensor *t)
{
    tgi_capture_list *captures = S->captures;
    for (int i = 0; i < captures->n; ++i) {
        if (captures->list[i] == t) return true;
    }
    return tgi_append(S, "checkpoint", &captures->list, &captures->n, &captures->room, t);
}

/* Memory that lives as long as ctx. */

static void *tgi_ctx_block_new(tg_ctx *ctx, size_t bytes)
{
    size_t all = sizeof(tgi_ctx_block) + bytes;
    tgi_ctx_block *b = bytes <= SIZE_MAX - sizeof *b ? (tgi_ctx_block *)tgi_alloc(ctx->S, all) : NULL;
    if (!b) return tgi_no_memory(ctx->S, "custom", bytes), (void *)NULL;
    b->next = ctx->blocks;
    b->bytes = all;
    ctx->blocks = b;
    return b + 1;
}

static void tgi_ctx_free(tgi_thread *S, tg_ctx *ctx)
{
    while (ctx->blocks) {
        tgi_ctx_block *b = ctx->blocks;
        ctx->blocks = b->next;
        tgi_free(S, b, b->bytes);
    }
    while (ctx->saves > 0) tgi_unref(S, ctx->save[--ctx->saves]);
    tgi_free(S, ctx->save, sizeof(tg_tensor *) * (size_t)ctx->room);
    if (ctx->free_user) {
        tgi_guard guard;
        tgi_guard_open_interrupt(&guard, S, "free_user of a custom function");
        ctx->free_user(ctx->user);
        tgi_guard_close(&guard);
    }
    tgi_free(S, ctx, sizeof *ctx);
}

static tg_ctx *tgi_ctx_new(tgi_thread *S, const char *name)
{
    tg_ctx *ctx = (tg_ctx *)tgi_alloc(S, sizeof *ctx);
    if (!ctx) return tgi_no_memory(S, "custom", sizeof *ctx), ctx;
    memset(ctx, 0, sizeof *ctx);
    ctx->S = S;
    char *copy = (char *)tgi_ctx_block_new(ctx, strlen(name) + 1);
    if (!copy) return tgi_ctx_free(S, ctx), (tg_ctx *)NULL;
    strcpy(copy, name);
    ctx->name = copy;
    return ctx;
}

tg_status tg_save(tg_ctx *ctx, tg_tensor *t)
{
    tgi_thread *S = tgi_self();
    if (!ctx) return tgi_null_argument(S, "save", "ctx"), tgi_failed(S);
    if (!tgi_argument(S, "save", "t", t)) return tgi_failed(S);
    if (!ctx->forward) return tgi_fail(S, TG_ERR_ARGUMENT, "save", "only forward saves tensors"), TG_ERR_ARGUMENT;
    return tgi_append(S, "save", &ctx->save, &ctx->saves, &ctx->room, t) ? TG_OK : TG_ERR_MEMORY;
}

tg_tensor *tg_saved(tg_ctx *ctx, int k)
{
    tgi_thread *S = tgi_self();
    if (!ctx) return tgi_no_tensor(tgi_null_argument(S, "saved", "ctx"));
    const int n = ctx->node ? ctx->node->saves : ctx->saves;
    if (k < 0 || k >= n) {
        return tgi_no_tensor(
            tgi_fail(S, TG_ERR_ARGUMENT, "saved", "%d tensors were saved, there is no number %d", n, k));
    }
    return ctx->node ? ctx->node->saved[k].t : ctx->save[k];
}

void *tg_ctx_user(tg_ctx *ctx)
{
    if (!ctx) return tgi_null_argument(tgi_self(), "ctx_user", "ctx"), (void *)NULL;
    return ctx->user;
}

void *tg_ctx_alloc(tg_ctx *ctx, size_t bytes)
{
    if (!ctx) return tgi_null_argument(tgi_self(), "ctx_alloc", "ctx"), (void *)NULL;
    return tgi_ctx_block_new(ctx, bytes);
}

tg_status tg_mark_non_differentiable(tg_ctx *ctx, tg_tensor *out)
{
    tgi_thread *S = tgi_self();
    if (!ctx) return tgi_null_argument(S, "mark_non_differentiable", "ctx"), tgi_failed(S);
    if (!tgi_argument(S, "mark_non_differentiable", "out", out)) return tgi_failed(S);
    for (int i = 0; ctx->forward && i < ctx->n_out && i < 64; ++i) {
        if (ctx->out[i] == out) return ctx->non_differentiable |= (uint64_t)1 << i, TG_OK;
    }
    tgi_fail(S, TG_ERR_ARGUMENT, "mark_non_differentiable", "only an output that forward has filled in can be marked");
    return TG_ERR_ARGUMENT;
}

/* Which input or output of the call t is, as `which` of tgi_saved says it. */
static int tgi_which(const tg_ctx *ctx, const tg_tensor *t)
{
    for (int i = 0; i < ctx->n_in; ++i) {
        if (ctx->in[i] == t) return i;
    }
    for (int i = 0; i < ctx->n_out; ++i) {
        if (ctx->out[i] == t) return -1 - i;
    }
    return TGI_SAVED_OTHER;
}

static bool tgi_differentiable_output(const tg_ctx *ctx, int i)
{
    return !(i < 64 && (ctx->non_differentiable >> i & 1)) && tgi_dtypes[ctx->out[i]->dtype].floating;
}

/* If an output is differentiable, puts a node for the call on the tape, which then owns ctx.  It has an edge for each
   of ctx->in that requires grad, and saves ctx->save.  False after recording an error. */
static bool tgi_custom_node(tgi_thread *S, int op, tg_ctx *ctx)
{
    int outputs = 0;
    for (int i = 0; i < ctx->n_out; ++i) outputs += tgi_differentiable_output(ctx, i);
    if (!outputs) return true;
    tgi_node *n = tgi_node_new(S, tgi_op_row(op), ctx->n_in, ctx->saves, ctx->n_out, ctx->out, NULL, NULL);
    if (!n) return false;
    for (int i = 0; i < ctx->n_in; ++i) {
        if (ctx->in[i]->flags & TGI_REQUIRES_GRAD) tgi_set_edge(&n->edge[i], tgi_edge_to(ctx->in[i]));
    }
    for (int i = 0; i < ctx->saves; ++i) {
        tg_tensor *t = ctx->save[i];
        tgi_save_tensor(S, n, t, tgi_which(ctx, t), t->storage->version);
        tgi_unref(S, t);
    }
    ctx->saves = 0;
    for (int i = 0; i < ctx->n_out; ++i) {
        if (!tgi_differentiable_output(ctx, i)) continue;
        n->refs++;
        tgi_set_node(S, ctx->out[i], n, i);
    }
    ctx->node = n;
    n->ctx = ctx;
    tgi_node_link(S, n);
    tgi_node_unref(S, n); /* the outputs own it now: (1) */
    return true;
}

/* Replaces by a copy each output that is an input, another output, a view, recorded, or from outside of the call; also
   among the saved tensors, unless it is an input, which was meant there.  So each output can get the new node. */
static bool tgi_own_outputs(tgi_thread *S, tg_ctx *ctx)
{
    for (int i = 0; i < ctx->n_out; ++i) {
        tg_tensor *was = ctx->out[i];
        bool input = false, alias = false;
        if (!was) {
            return tgi_fail(S, TG_ERR_ARGUMENT, "custom", "forward of %.100s did not fill in output %d", ctx->name, i);
        }
        if (!tgi_argument(S, "custom", "out", was)) return false;
        for (int k = 0; k < ctx->n_in; ++k) input = input || was == ctx->in[k];
        for (int k = 0; k < i; ++k) alias = alias || was == ctx->out[k];
        alias = alias || input || !was->link.next || was->scope != ctx->scope; /* or not made in the call's scope */
        if (!alias && !was->base && !was->node && !(was->flags & TGI_REQUIRES_GRAD)) continue;
        ctx->out[i] = tgi_later_clone(was);
        if (!ctx->out[i]) return false;
        for (int k = 0; k < ctx->saves; ++k) {
            if (input || ctx->save[k] != was) continue;
            tgi_replace(S, &ctx->save[k], ctx->out[i]);
        }
    }
    return true;
}

/* Whether the tensors that a function of the user's gets can be used; brings their nodes up to date, and adds those
   that require grad to the list of a checkpoint around it. */
static bool tgi_check_inputs_of(tgi_thread *S, const char *op, tg_tensor *const *in, int n)
{
    if (!in && n > 0) return tgi_null_argument(S, op, "in");
    if (!tgi_argument_list(S, op, "in", in, n, n)) return false;
    for (int i = 0; i < n; ++i) {
        if (!tgi_refresh_view(S, in[i])) return false;
        if ((in[i]->flags & TGI_REQUIRES_GRAD) && S->captures && !tgi_capture(S, in[i])) return false;
    }
    return true;
}

/* Begins a call that is not recorded: a scope of its own, grad mode off, a handle of the library's on each input.  The
   call fills in out [n_out].  NULL after recording an error. */
static tg_ctx *tgi_unrecorded_begin(tgi_thread *S, const char *name, void *user, tg_tensor *const *in, int n_in,
                                    tg_tensor **out, int n_out)
{
    tg_ctx *ctx = tgi_ctx_new(S, name);
    if (!ctx) return NULL;
    ctx->scope = tgi_frame_open(S, TGI_GUARD_SCOPE);
    if (!ctx->scope) return tgi_ctx_free(S, ctx), (tg_ctx *)NULL;
    S->grad_off = true; /* until the frame is closed */
    ctx->user = user;
    ctx->rng = S->rng;
    ctx->in = in, ctx->n_in = n_in;
    ctx->out = out, ctx->n_out = n_out;
    tgi_ref_all(in, n_in);
    return ctx;
}

/* Ends it: if ok, the outputs go to the caller's scope; if not, they become NULL, and the random numbers are as they
   were.  in, n_in: as in begin.  Frees ctx unless a node owns it. */
static void tgi_unrecorded_end(tg_ctx *ctx, bool ok, tg_tensor *const *in, int n_in)
{
    tgi_thread *S = ctx->S;
    const uint64_t scope = ctx->scope;
    tgi_unref_all(S, in, n_in);
    for (int i = 0; i < ctx->n_out; ++i) {
        if (ok) tg_keep(ctx->out[i]);
        else ctx->out[i] = NULL;
    }
    if (!ok) S->rng = ctx->rng;
    if (!ctx->node) tgi_ctx_free(S, ctx);
    tgi_frame_close(S, scope);
}

/* Calls forward, and makes outputs and node of what it did. */
static bool tgi_custom_run(tgi_thread *S, tg_custom_forward forward, tg_ctx *ctx, bool records)
{
    tgi_guard guard;
    ctx->forward = true;
    tgi_guard_open(&guard, S, "forward of a custom function");
    const tg_status status = forward(ctx, ctx->in, ctx->out);
    bool ok = tgi_guard_close(&guard);
    if (ok && status != TG_OK) {
        if (!tgi_guard_failed(&guard)) tgi_fail(S, status, "custom", "forward of %.100s failed", ctx->name);
        ok = false;
    }
    ok = ok && tgi_own_outputs(S, ctx);
    ctx->forward = false;
    return ok && (!records || tgi_custom_node(S, TGI_OP_custom, ctx));
}

static tg_status tgi_custom(const char *op, const char *name, tg_custom_forward forward, tg_custom_backward backward,
                            void *user, void (*free_user)(void *user), tg_tensor *const *in, int n_in, tg_tensor **out,
                            int n_out)
{
    tgi_thread *S = tgi_self();
    for (int i = 0; out && n_out <= UINT16_MAX && i < n_out; ++i) out[i] = NULL;
    if (n_in < 0 || n_out < 0 || n_out > UINT16_MAX) {
        tgi_fail(S, TG_ERR_ARGUMENT, op, n_out > 0 && n_in >= 0 ? "%d inputs, but %d outputs are too many"
                                                                : "%d inputs and %d outputs cannot be", n_in, n_out);
        return TG_ERR_ARGUMENT;
    }
    if (!name || !forward || !backward || (!out && n_out > 0)) {
        tgi_null_argument(S, op, !name ? "name" : !forward ? "forward" : !backward ? "backward" : "out");
        return tgi_failed(S);
    }
    if (!tgi_check_inputs_of(S, op, in, n_in)) return tgi_failed(S);
    bool records = false;
    for (int i = 0; i < n_in; ++i) records = records || (!S->grad_off && (in[i]->flags & TGI_REQUIRES_GRAD));
    tg_ctx *ctx = tgi_unrecorded_begin(S, name, user, in, n_in, out, n_out);
    if (!ctx) return tgi_failed(S);
    ctx->backward = backward;
    const bool ok = tgi_custom_run(S, forward, ctx, records);
    if (ok) ctx->free_user = free_user; /* if the call fails, user is still the caller's */
    tgi_unrecorded_end(ctx, ok, in, n_in);
    return ok ? TG_OK : tgi_failed(S);
}

tg_status tg_custom_ex(const char *name, tg_custom_forward forward, tg_custom_backward backward, void *user,
                       void (*free_user)(void *user), tg_tensor *const *in, int n_in, tg_tensor **out, int n_out)
{
    return tgi_custom("custom_ex", name, forward, backward, user, free_user, in, n_in, out, n_out);
}

tg_status tg_custom(const char *name, tg_custom_forward forward, tg_custom_backward backward, void *user,
                    tg_tensor *const *in, int n_in, tg_tensor **out, int n_out)
{
    return tgi_custom("custom", name, forward, backward, user, NULL, in, n_in, out, n_out);
}

static bool tgi_rule_custom(tgi_step *step, tg_tensor *g)
{
    tgi_thread *S = step->S;
    tg_ctx *ctx = step->node->ctx;
    tgi_guard guard;
    (void)g;
    tgi_guard_open(&guard, S, "backward of a custom function");
    tg_status status = ctx->backward(ctx, step->grad, step->result);
    if (!tgi_guard_close(&guard)) return false;
    if (status != TG_OK && !tgi_guard_failed(&guard))
        tgi_fail(S, status, "custom", "backward of %.100s failed", ctx->name);
    if (status != TG_OK) return false;
    for (int i = 0; i < step->node->inputs; ++i) {
        if (step->result[i] && !tgi_argument(S, "custom", "grad_in", step->result[i])) return false;
    }
    return true;
}

/* ---- checkpoints ---- */

/* fn(in, n, user), with its node up to date.  NULL after recording an error. */
static tg_tensor *tgi_checkpoint_call(tgi_thread *S, tg_function fn, tg_tensor *const *in, int n, void *user)
{
    tgi_guard guard;
    tgi_guard_open(&guard, S, "the checkpointed function");
    tg_tensor *y = fn(in, n, user);
    if (!tgi_guard_close(&guard)) return NULL;
    if (y) return tgi_argument(S, "checkpoint", "of the function's result", y) && tgi_refresh_view(S, y) ? y : NULL;
    if (!tgi_guard_failed(&guard)) tgi_fail(S, TG_ERR_ARGUMENT, "checkpoint", "the function returned NULL");
    return NULL;
}

/* Calls the function of ctx for the one output, and makes a node that saves the inputs given to the function.  The node
   has an edge to every tensor that the ops in the function met, not only to those inputs: a weight that the function
   finds by itself is known from the capture list alone. */
static bool tgi_checkpoint_run(tgi_thread *S, tg_ctx *ctx)
{
    tgi_capture_list captures = {NULL, 0, 0}, *outer = S->captures;
    S->captures = &captures;
    ctx->out[0] = tgi_checkpoint_call(S, ctx->function, ctx->in, ctx->n_in, ctx->user);
    bool ok = ctx->out[0] && tgi_own_outputs(S, ctx); /* captures a result that is an input or from outside, too */
    S->captures = outer;
    ctx->forward = true;
    for (int i = 0; ok && i < ctx->n_in; ++i) ok = tg_save(ctx, ctx->in[i]) == TG_OK;
    ctx->forward = false;
    if (ok && captures.n) {
        ctx->in = captures.list, ctx->n_in = captures.n;
        ok = tgi_custom_node(S, TGI_OP_checkpoint, ctx);
        for (int i = 0; ok && outer && i < captures.n; ++i) ok = tgi_capture(S, captures.list[i]);
    }
    tgi_unref_all(S, captures.list, captures.n);
    tgi_free(S, captures.list, sizeof(tg_tensor *) * (size_t)captures.room);
    return ok;
}

/* fn(in, n, user) in a scope of its own, for a checkpoint where nothing is recorded: no node needs the inputs. */
static tg_tensor *tgi_checkpoint_plain(tgi_thread *S, tg_function fn, tg_tensor *const *in, int n, void *user)
{
    const tg_rng rng = S->rng;
    const uint64_t scope = tgi_frame_open(S, TGI_GUARD_SCOPE);
    if (!scope) return NULL;
    tg_tensor *y = tgi_checkpoint_call(S, fn, in, n, user);
    if (y) tg_keep(y);
    else S->rng = rng;
    tgi_frame_close(S, scope);
    return y;
}

tg_tensor *tg_checkpoint(tg_function fn, tg_tensor *const *in, int n, void *user)
{
    tgi_thread *S = tgi_self();
    if (!fn) return tgi_no_tensor(tgi_null_argument(S, "checkpoint", "fn"));
    if (n < 0) return tgi_no_tensor(tgi_fail(S, TG_ERR_ARGUMENT, "checkpoint", "%d inputs cannot be", n));
    if (!tgi_check_inputs_of(S, "checkpoint", in, n)) return NULL;
    if (S->grad_off) return tgi_checkpoint_plain(S, fn, in, n, user);
    tg_tensor *y = NULL;
    tg_ctx *ctx = tgi_unrecorded_begin(S, "checkpoint", user, in, n, &y, 1);
    if (!ctx) return NULL;
    ctx->function = fn;
    tgi_unrecorded_end(ctx, tgi_checkpoint_run(S, ctx), in, n);
    return y;
}

/* Calls the function again, with the random numbers that it had, recorded, and sends g to its result: the nodes that it
   has made are the newest, so the run goes on in them.  See (10). */
static bool tgi_rule_checkpoint(tgi_step *step, tg_tensor *g)
{
    tgi_thread *S = step->S;
    const tg_ctx *ctx = step->node->ctx;
    const int n = step->node->saves;
    const size_t bytes = sizeof(tg_tensor *) * (size_t)n;
    tg_tensor *few[TGI_STEP_RESULTS], **in = few;
    if (n > TGI_STEP_RESULTS) {
        in = (tg_tensor **)tgi_alloc(S, bytes);
        if (!in) return tgi_no_memory(S, "checkpoint", bytes);
    }
    for (int i = 0; i < n; ++i) in[i] = step->node->saved[i].t;
    const bool was_off = S->grad_off;
    const tg_rng rng = S->rng;
    S->rng = ctx->rng;
    S->grad_off = false;
    tg_tensor *y = tgi_checkpoint_call(S, ctx->function, in, n, ctx->user);
    S->grad_off = was_off;
    S->rng = rng;
    if (in != few) tgi_free(S, in, bytes);
    if (!y) return false;
    if (!tgi_same_shape(y, g->ndim, g->dim)) {
        return tgi_fail(S, TG_ERR_GRAPH, "checkpoint", "the function made shape %s when run again, but %s before",
                        tgi_shape_text(y).text, tgi_shape_text(g).text);
    }
    if (!(y->flags & TGI_REQUIRES_GRAD)) return true;
    const tgi_edge e = tgi_edge_to(y);
    return tgi_send_grad(step->run, &e, g);
}

/* ======== @@CALL ================================================================================================== */

/* ---- the call of an op ----

   A public function that is an op consists of these steps; if one fails, the function returns NULL, and nothing has
   changed:
       tgi_op_begin     checks the inputs: usable, their nodes up to date, all on one device
       tgi_output       makes an output; and the function runs a kernel of the backend
       tgi_op_end       makes the node, if the call is recorded, and returns the output
   An op that writes its first input calls tgi_op_begin_in_place and tgi_op_end_in_place in place of the last two. */

typedef struct {
    tgi_thread *S;
    const tgi_op *op;
    const char *name;           /* of the public function that was called, for messages */
    const tgi_backend *backend; /* where the inputs are and the op runs */
    int index;                  /* of the device */
    bool records;               /* an input requires grad, and grad mode is on */
    bool mixed;                 /* tgi_op_begin of an elementwise op failed because the inputs are on several devices */
    int nin, nout;
    tg_tensor *const *in; /* [nin]: in_storage, or a list of the user's */
    tg_tensor **out;      /* [nout]: out_storage, or a list of the user's */
    tg_tensor *in_storage[3], *out_storage[2];
    bool has_params;              /* the rule reads params: see tgi_params */
    tgi_op_params params;
    int64_t numbers[TGI_NUMBERS]; /* memory for params.list */
    const tgi_view_info *view;    /* for the node, or NULL */
    /* in place */
    tg_tensor *target;         /* what is written: in[0] */
    tg_tensor *before;         /* a copy of its values before, if the rule needs them */
    tgi_node *node;            /* made before the kernel runs, when it can still fail without harm */
    tgi_node *view_node;       /* of the target, if that is a view */
    tgi_view_info target_view; /* then: where it lies in its base */
} tgi_call;

/* Argument i with the name of the tensor, if it has one: "weight 'fc1.weight'". */
static tgi_text tgi_named_argument(const char *arguments, int i, int nin, const tg_tensor *t)
{
    tgi_text name = tgi_argument_name(arguments, i, nin);
    size_t used = strlen(name.text);
    if (tgi_name_of(t)) snprintf(name.text + used, sizeof name.text - used, " '%.100s'", tgi_name_of(t));
    return name;
}

/* How much better it is that an input stays where it is and the other moves.  3: it is written in place, so it must
   stay.  2: it is a weight, which would move again at every step.  1: it is on a GPU. */
static int tgi_stay_rank(const char *argument, const tg_tensor *t, bool written)
{
    const bool weight = strcmp(argument, "weight") == 0 || strcmp(argument, "bias") == 0 ||
                        (!t->node && (t->flags & TGI_REQUIRES_GRAD));
    return written ? 3 : weight ? 2 : !t->storage->backend->host;
}

/* The call that puts inputs i and k in one place: "move b: tg_to(b, TG_CUDA(0))". */
static tgi_text tgi_move_hint(const char *arguments, int i, int k, tg_tensor *const *in, int nin, bool in_place)
{
    const tgi_text name[2] = {tgi_argument_name(arguments, i, nin), tgi_argument_name(arguments, k, nin)};
    const bool k_moves = tgi_stay_rank(name[1].text, in[k], in_place && k == 0) <
                         tgi_stay_rank(name[0].text, in[i], in_place && i == 0);
    const tg_device device = tgi_device_of(in[k_moves ? i : k]);
    tgi_text hint, to;
    if (device.type == TG_DEV_CPU) snprintf(to.text, sizeof to.text, "TG_CPU");
    else snprintf(to.text, sizeof to.text, "TG_CUDA(%d)", device.index);
    snprintf(hint.text, sizeof hint.text, "move %.60s: tg_to(%.60s, %.20s)", name[k_moves].text, name[k_moves].text,
             to.text);
    return hint;
}

/* Raises the error that input i is not where input k is: PyTorch's sentence, and what to do. */
static bool tgi_other_device(tgi_thread *S, const char *op, const char *arguments, int i, int k, tg_tensor *const *in,
                             int nin, bool in_place)
{
    return tgi_fail(S, TG_ERR_DEVICE, op,
                    "Expected all tensors to be on the same device, but got %s is on %s, different from other tensors "
                    "on %s\n%s",
                    tgi_named_argument(arguments, i, nin, in[i]).text, tg_device_str(tgi_device_of(in[i])),
                    tg_device_str(tgi_device_of(in[k])), tgi_move_hint(arguments, i, k, in, nin, in_place).text);
}

/* Whether all inputs that are not NULL are in one place.  For composites: the ops that they are made of would speak of
   tensors that the caller does not know. */
static bool tgi_one_device(tgi_thread *S, const char *op, const char *arguments, tg_tensor *const *in, int nin)
{
    int first = -1;
    for (int i = 0; i < nin; ++i) {
        if (!in[i]) continue;
        if (first < 0) first = i;
        else if (!tgi_same_place(in[i], in[first])) return tgi_other_device(S, op, arguments, i, first, in, nin, false);
    }
    return true;
}

/* Begins a call of an op by the public function `name` (NULL: the op's own name).  False after recording an error, and
   for an elementwise op whose inputs are on several devices: c->mixed, no error yet. */
static bool tgi_op_begin_as(tgi_call *c, const char *name, int op, tg_tensor *const *in, int nin)
{
    tgi_thread *S = tgi_self();
    if (!TGI_LIKELY(!S->must_warn_unscoped) && S->scope == &S->unscoped) tgi_warn_unscoped(S);
    c->S = S;
    c->op = tgi_op_row(op);
    c->name = name ? name : c->op->name;
    c->in = in;
    c->nin = nin;
    c->nout = 0;
    c->out = c->out_storage;
    c->records = c->has_params = c->mixed = false;
    memset(&c->params, 0, sizeof c->params);
    c->params.list = c->numbers;
    c->view = NULL;
    c->target = c->before = NULL;
    c->node = c->view_node = NULL;
    int elsewhere = 0; /* an input that is not where the first is */
    for (int i = 0; i < nin; ++i) {
        tg_tensor *t = in[i];
        if (!TGI_LIKELY(tgi_usable(S, t)))
            return tgi_bad_argument(S, c->name, tgi_argument_name(c->op->arguments, i, nin).text, t);
        if (!tgi_refresh_view(S, t)) return false;
        if (!TGI_LIKELY(!t->storage->pending) && !tgi_wait_pending(S, t->storage, false)) return false;
        if (t->flags & TGI_REQUIRES_GRAD) {
            if (!S->grad_off) c->records = true;
            if (S->captures && !tgi_capture(S, t)) return false;
        }
        if (!TGI_LIKELY(tgi_same_place(t, in[0])) && !elsewhere) elsewhere = i;
    }
    c->mixed = elsewhere && c->op->kind != TGI_KIND_NOT_ELEMENTWISE; /* see tgi_across_devices */
    if (elsewhere) return !c->mixed && tgi_other_device(S, c->name, c->op->arguments, elsewhere, 0, in, nin, false);
    c->backend = in[0]->storage->backend;
    c->index = in[0]->storage->index;
    return true;
}

/* The same by the op's own name, for a list of inputs (which must stay valid during the call), or for one to three. */
static bool tgi_op_begin(tgi_call *c, int op, tg_tensor *const *in, int nin)
{
    return tgi_op_begin_as(c, NULL, op, in, nin);
}

static bool tgi_op_begin1_as(tgi_call *c, const char *name, int op, tg_tensor *a)
{
    c->in_storage[0] = a;
    return tgi_op_begin_as(c, name, op, c->in_storage, 1);
}

static bool tgi_op_begin1(tgi_call *c, int op, tg_tensor *a) { return tgi_op_begin1_as(c, NULL, op, a); }

static bool tgi_op_begin2(tgi_call *c, int op, tg_tensor *a, tg_tensor *b)
{
    c->in_storage[0] = a;
    c->in_storage[1] = b;
    return tgi_op_begin(c, op, c->in_storage, 2);
}

static bool tgi_op_begin3(tgi_call *c, int op, tg_tensor *a, tg_tensor *b, tg_tensor *d)
{
    c->in_storage[0] = a;
    c->in_storage[1] = b;
    c->in_storage[2] = d;
    return tgi_op_begin(c, op, c->in_storage, 3);
}

/* Adds an output: a new tensor where the inputs are.  NULL after recording an error. */
static tg_tensor *tgi_output(tgi_call *c, int ndim, const int64_t *dims, tg_dtype dtype)
{
    tg_tensor *y = tgi_new(c->S, c->name, ndim, dims, dtype, c->backend, c->index);
    if (y) c->out[c->nout++] = y;
    return y;
}

static tg_tensor *tgi_output_like(tgi_call *c, const tg_tensor *t, tg_dtype dtype)
{
    return tgi_output(c, t->ndim, t->dim, dtype);
}

static bool tgi_requires_grad(const tgi_call *c, int i) { return i < c->nin && (c->in[i]->flags & TGI_REQUIRES_GRAD); }

/* Whether input i is saved for the rule; the row of the op says of the first three when. */
static bool tgi_saves_input(const tgi_call *c, int i)
{
    const int flags = c->op->flags;
    if (i >= 3) return false;
    return (flags & (TGI_FLAG_A << i)) || (i == 0 && (flags & TGI_FLAG_A_FOR_B) && tgi_requires_grad(c, 1)) ||
           (i == 1 && (flags & TGI_FLAG_B_FOR_A) && tgi_requires_grad(c, 0));
}

/* A node for the call, with these outputs; not yet on the tape, and without edges and saved tensors.  If the target is
   a view, out is its base, and the node keeps where the target lies in it (TGI_WROTE_VIEW). */
static tgi_node *tgi_call_node(tgi_call *c, tg_tensor *const *out, int nout)
{
    int saves = (c->op->flags & TGI_FLAG_Y) != 0;
    for (int i = 0; i < c->nin; ++i) saves += tgi_saves_input(c, i);
    if (nout > 1) saves += (c->op->flags & TGI_FLAG_Y2) != 0;
    return tgi_node_new(c->S, c->op, c->nin, saves, nout, out, c->has_params ? &c->params : NULL,
                        c->target ? (c->target->base ? &c->target_view : NULL) : c->view);
}

/* The end of a call whose outputs have been computed, if ok: records the op if an input requires grad, and returns the
   first output.  NULL if the kernel failed or the node could not be made; then there are no outputs. */
static tg_tensor *tgi_op_end(tgi_call *c, bool ok)
{
    tgi_thread *S = c->S;
    tgi_node *n = NULL;
    ok = ok && c->nout > 0 && (!S->sync_checks || c->backend->synchronize(S, c->index));
    if (ok && c->records && tgi_dtypes[c->out[0]->dtype].floating) {
        n = tgi_call_node(c, c->out, c->nout);
        ok = n != NULL;
    }
    if (!ok) {
        while (c->nout > 0) {
            tgi_unref(S, c->out[--c->nout]);
            c->out[c->nout] = NULL;
        }
        return NULL;
    }
    if (!n) return c->out[0];
    for (int i = 0; i < c->nin; ++i) {
        if (tgi_requires_grad(c, i)) tgi_set_edge(&n->edge[i], tgi_edge_to(c->in[i]));
        if (tgi_saves_input(c, i)) tgi_save_tensor(S, n, c->in[i], i, c->in[i]->storage->version);
    }
    for (int i = 0; i < c->nout; ++i) {
        tg_tensor *y = c->out[i];
        if (c->op->flags & (i ? TGI_FLAG_Y2 : TGI_FLAG_Y)) tgi_save_tensor(S, n, y, -1 - i, y->storage->version);
        if (!tgi_dtypes[y->dtype].floating) continue;
        y->node = n;
        y->output = i;
        y->flags |= TGI_REQUIRES_GRAD;
        if (i > 0) n->refs++;
    }
    tgi_node_link(S, n);
    return c->out[0];
}

/* The op's numbers, to be set by its public function.  After this call the node keeps a copy of them for the rule. */
static inline tgi_op_params *tgi_params(tgi_call *c)
{
    c->has_params = true;
    return &c->params;
}

/* Computes output y, of this call, from c->in and c->params; false after recording an error. */
typedef bool (*tgi_kernel)(tgi_call *c, tg_tensor *y);

/* The last step of an op with one output: allocates it, runs the kernel and records the op. */
static tg_tensor *tgi_run(tgi_call *c, tg_shape shape, tg_dtype dtype, tgi_kernel kernel)
{
    tg_tensor *y = tgi_output(c, shape.ndim, shape.dim, dtype);
    return tgi_op_end(c, y && kernel(c, y));
}

/* ---- in place ---- */

/* Whether this call may write t: the rules of PyTorch's check_inplace. */
static bool tgi_may_write(tgi_call *c, tg_tensor *t)
{
    tgi_thread *S = c->S;
    const char *op = c->name;
    tg_tensor *base = t->base ? t->base : t;
    bool tracked; /* a view whose base has a history, or would get one */
    if (tgi_overlaps_itself(t)) {
        return tgi_fail(
            S, TG_ERR_ARGUMENT, op,
            "unsupported operation: more than one element of the written-to tensor refers to a single memory "
            "location.\nwrite to a copy of its own: tg_clone(t)");
    }
    if (S->grad_off) return true;
    tracked = t->base && (c->records || (base->flags & TGI_REQUIRES_GRAD));
    if (tracked && (t->flags & TGI_MULTI_VIEW)) {
        return tgi_fail(
            S, TG_ERR_GRAPH, op,
            "Output %d of %s is a view and is being modified inplace. This view is the output of a function that "
            "returns multiple views. Such functions do not allow the output views to be modified inplace. You "
            "should replace the inplace operation by an out-of-place one.",
            (int)t->output, t->node ? t->node->op->name : "split");
    }
    if (tracked && (t->flags & TGI_NO_GRAD_VIEW)) {
        return tgi_fail(
            S, TG_ERR_GRAPH, op,
            "A view was created in no_grad mode and is being modified inplace with grad mode enabled. Given that "
            "this use case is ambiguous and error-prone, it is forbidden.\nmake the view in grad mode");
    }
    if (((base->flags & TGI_REQUIRES_GRAD) && !base->node) || ((t->flags & TGI_REQUIRES_GRAD) && !t->node)) {
        return tgi_fail(S, TG_ERR_GRAPH, op,
                        "a %sleaf Variable that requires grad is being used in an in-place operation. (shape %s)\n"
                        "write to it inside TG_NO_GRAD; or write to a copy",
                        t->base ? "view of a " : "", tgi_shape_text(t).text);
    }
    return true;
}

/* Drops what tgi_op_begin_in_place has made, after an error. */
static void tgi_op_abandon_in_place(tgi_call *c)
{
    if (c->node) tgi_node_unref(c->S, c->node);
    if (c->view_node) tgi_node_unref(c->S, c->view_node);
    tgi_unref(c->S, c->before);
    c->node = c->view_node = NULL;
    c->before = NULL;
}

/* Makes what a recorded write needs: nodes for the target (6) and, if that is a view, for its base, and a copy of the
   values before. */
static bool tgi_op_prepare_write(tgi_call *c)
{
    tgi_thread *S = c->S;
    tg_tensor *t = c->target;
    if (t->base) {
        tgi_view_info_of(&c->target_view, t->base, t);
        c->view_node = tgi_view_node_new(S, t, &c->target_view);
        if (!c->view_node) return false;
    }
    c->node = tgi_call_node(c, t->base ? &t->base : &t, 1);
    if (!c->node) return false;
    if (!tgi_saves_input(c, 0)) return true;
    c->before = tgi_new(S, c->name, t->ndim, t->dim, (tg_dtype)t->dtype, c->backend, c->index);
    return c->before && tgi_copy_elements(S, c->before, t);
}

/* After tgi_op_begin: the call writes input 0.  Does everything that can fail before a byte is written. */
static bool tgi_op_begin_in_place(tgi_call *c)
{
    tg_tensor *t = c->in[0];
    if (!tgi_may_write(c, t) || !tgi_wait_ready(c->S, t, true)) return false;
    c->target = t;
    if (!c->records || !tgi_dtypes[t->dtype].floating || tgi_op_prepare_write(c)) return true;
    tgi_op_abandon_in_place(c);
    return false;
}

/* After the kernel: counts the write (5) and gives target and base their new nodes (6, 7).  Returns the target; NULL if
   the kernel failed (not ok). */
static tg_tensor *tgi_op_end_in_place(tgi_call *c, bool ok)
{
    tgi_thread *S = c->S;
    if (!ok || (S->sync_checks && !c->backend->synchronize(S, c->index))) {
        tgi_op_abandon_in_place(c);
        return NULL;
    }
    tg_tensor *t = c->target, *base = t->base ? t->base : t;
    tgi_node *n = c->node;
    const uint32_t before = t->storage->version;
    tgi_bump_version(S, t->storage, c->name);
    if (!n) return t;
    if (base->flags & TGI_REQUIRES_GRAD) tgi_set_edge(&n->edge[0], tgi_edge_to(base));
    if (c->before) {
        tgi_save_tensor(S, n, c->before, 0, c->before->storage->version);
        tgi_unref(S, c->before);
    }
    for (int i = 1; i < c->nin; ++i) {
        tg_tensor *x = c->in[i];
        if (tgi_requires_grad(c, i)) tgi_set_edge(&n->edge[i], tgi_edge_to(x));
        if (!tgi_saves_input(c, i)) continue;
        /* one in the same storage has just been overwritten: the version before lets backward say so (5) */
        tgi_save_tensor(S, n, x, i, x->storage == t->storage ? before : x->storage->version);
    }
    if (c->op->flags & TGI_FLAG_Y) tgi_save_tensor(S, n, t, -1, t->storage->version);
    tgi_node_link(S, n);
    if (base != t) {
        n->flags |= TGI_WROTE_VIEW;
        tgi_set_node(S, base, n, 0);
        base->history++;
        tgi_set_edge(&c->view_node->edge[0], tgi_edge_to(base));
        tgi_node_link(S, c->view_node);
        tgi_set_node(S, t, c->view_node, 0);
        t->history = base->history;
    } else {
        tgi_set_node(S, t, n, 0);
        t->history++;
    }
    return t;
}

/* The last step of an op in place: y is input 0. */
static tg_tensor *tgi_run_in_place(tgi_call *c, tgi_kernel kernel)
{
    return tgi_op_begin_in_place(c) ? tgi_op_end_in_place(c, kernel(c, c->target)) : NULL;
}

/* ---- composites: ops made of other ops.  Their temporaries belong to a scope that ends with the call; only the result
   moves to the caller's scope:
       tgi_composite c;
       if (!tgi_composite_begin_with(&c, "layer_norm", "x,weight?,bias?", x, weight, bias)) return NULL;
       if (!tgi_check_...(c.S, ...)) return tgi_composite_end(&c, NULL);
       ...
       return tgi_composite_end(&c, y);
   ---- */

typedef struct { tgi_thread *S; uint64_t scope; const char *outer; tg_rng rng; } tgi_composite;

/* Opens the scope.  Until the end, error messages name op instead of the ops that it calls. */
static bool tgi_composite_begin(tgi_composite *c, const char *op)
{
    c->S = tgi_self();
    c->scope = tgi_frame_open(c->S, TGI_GUARD_SCOPE);
    c->outer = c->S->composite;
    c->rng = c->S->rng;
    if (!c->scope) return false;
    if (!c->outer) c->S->composite = op; /* the outermost one is what the user called */
    return true;
}

/* The same after checking the tensors that the user passed.  `arguments` names them, with a ? after those that may be
   NULL, and as many variables of type tg_tensor * follow.  Each must be usable, and all must be on one device.  False
   after recording an error; then the scope is not open. */
static bool tgi_composite_begin_with(tgi_composite *c, const char *op, const char *arguments, ...)
{
    tgi_thread *S = tgi_self();
    tg_tensor *in[4];
    bool ok = true;
    int n = 0;
    va_list list;
    va_start(list, arguments);
    for (const char *p = arguments; ok; ++p) {
        while (*p && *p != ',') ++p; /* the end of a name */
        tg_tensor *t = in[n] = va_arg(list, tg_tensor *);
        const bool optional = p[-1] == '?';
        ok = TGI_LIKELY(tgi_usable(S, t)) || (!t && optional) ||
             tgi_bad_argument(S, op, tgi_argument_name(arguments, n, n + 1).text, t);
        n++;
        if (!*p) break;
    }
    va_end(list);
    return ok && tgi_one_device(S, op, arguments, in, n) && tgi_composite_begin(c, op);
}

/* If y is a view whose base belongs to the composite, nobody else has seen the base: y becomes a tensor of its own.
   False if the history of the view could not be brought up to date first. */
static bool tgi_own_base(tgi_composite *c, tg_tensor *y)
{
    tg_tensor *base = y->base;
    if (!base || !base->link.next || base->scope != c->scope) return true;
    if (!tgi_refresh_view(c->S, y)) return false;
    y->base = NULL;
    y->flags &= (uint16_t)~TGI_NO_GRAD_VIEW;
    tgi_unref(c->S, base);
    return true;
}

/* Closes the scope and returns y, which moves to the caller's scope; NULL if y is NULL: the call has failed. */
TGI_NOINLINE static tg_tensor *tgi_composite_end(tgi_composite *c, tg_tensor *y)
{
    if (y && !tgi_own_base(c, y)) y = NULL;
    if (y && y->link.next) tg_keep(y);
    if (!y) c->S->rng = c->rng; /* a call that fails consumes no random numbers */
    c->S->composite = c->outer;
    tgi_frame_close(c->S, c->scope);
    return y;
}

/* ---- what a rule reads and returns ---- */

/* The saved tensor that is input `which`, or output -1 - which; NULL if that was not saved. */
TGI_NOINLINE static tg_tensor *tgi_saved_tensor(const tgi_step *step, int which)
{
    for (int i = 0; i < step->node->saves; ++i) {
        if (step->node->saved[i].which == which) return step->node->saved[i].t;
    }
    return NULL;
}

/* Sets the gradient of input i; false if that is NULL, because it could not be computed. */
static bool tgi_set_input_grad(tgi_step *step, int i, tg_tensor *g)
{
    step->result[i] = g;
    return g != NULL;
}

TGI_NOINLINE static bool tgi_input_needs_grad(const tgi_step *step, int i) { return tgi_has_edge(step->node, i); }

static tg_shape tgi_input_shape(const tgi_step *step, int i)
{
    tgi_output_info m = tgi_input_info(step->node, i);
    return tg_make_shape(m.ndim, m.dim);
}

/* ======== @@MOVE ================================================================================================== */

/* Sets the strides of y, a copy of t: t's own if t is dense, else dense ones in the order of t's.
   torch.preserve_format */
static void tgi_preserve_strides(tg_tensor *y, const tg_tensor *t)
{
    int order[TG_MAX_DIMS]; /* the dims, outermost first; one with stride 0 (expanded) stays where it is */
    if (tgi_is_contiguous(t)) return;
    for (int i = 0; i < t->ndim; ++i) {
        int k = i;
        for (; k > 0 && t->stride[i] > t->stride[order[k - 1]] && t->stride[order[k - 1]] != 0; --k)
            order[k] = order[k - 1];
        order[k] = i;
    }
    int64_t stride = 1;
    for (int i = t->ndim - 1; i >= 0; --i) {
        y->stride[order[i]] = stride;
        stride *= t->dim[order[i]] ? t->dim[order[i]] : 1;
    }
}

/* Copies the bytes of x to y on another device, and waits for the end.  Both are dense, with the same strides and
   dtype.  False after recording an error. */
static bool tgi_transfer(tgi_thread *S, const tg_tensor *y, const tg_tensor *x)
{
    const tgi_backend *to = y->storage->backend, *from = x->storage->backend;
    const size_t bytes = (size_t)tgi_numel(x) * tgi_dtypes[x->dtype].size;
    if (bytes == 0) return true;
    void *target = tgi_bytes_at(S, y, 0, true);
    void *source = tgi_bytes_at(S, x, 0, false);
    if (!target || !source) return false;
    if (from->host) return tgi_upload(S, y, 0, source, bytes);
    if (to->host) return tgi_download(S, x, 0, target, bytes);
    if (to == from) {
        tgi_count_moved(S, y->storage, x->storage, bytes);
        return to->peer_copy(S, y->storage->index, target, x->storage->index, source, bytes);
    }
    void *host = tgi_alloc(S, bytes); /* between devices of two kinds, by way of the host */
    if (!host) return tgi_no_memory(S, "to", bytes);
    const bool ok = tgi_download(S, x, 0, host, bytes) && tgi_upload(S, y, 0, host, bytes);
    tgi_free(S, host, bytes);
    return ok;
}

/* Begins the same copy between page-locked memory and a device, on the device's copy stream.  Both storages get a
   pending event, for which their next use waits. */
static bool tgi_start_transfer(tgi_thread *S, const tg_tensor *y, const tg_tensor *x)
{
    const bool up = x->storage->backend->host;
    const tgi_storage *device = up ? y->storage : x->storage;
    const size_t bytes = (size_t)tgi_numel(x) * tgi_dtypes[x->dtype].size;
    void *to = tgi_bytes_at(S, y, 0, true), *from = tgi_bytes_at(S, x, 0, false);
    if (bytes == 0) return true;
    if (!to || !from) return false;
    tgi_count_moved(S, y->storage, x->storage, bytes);
    if ((up ? device->backend->start_upload(S, device->index, to, from, bytes)
            : device->backend->start_download(S, device->index, to, from, bytes)) &&
        tgi_add_pending_event(S, "to", y->storage, device->backend, device->index, true, false) &&
        tgi_add_pending_event(S, "to", x->storage, device->backend, device->index, true, true)) {
        return true;
    }
    /* without its pending event the copy must be over before the memory is freed */
    device->backend->device_sync(S, device->index);
    return false;
}

/* y = x across devices: x is made dense in y's dtype where it is, then the bytes are copied. */
static bool tgi_move_elements(tgi_thread *S, tg_tensor *y, tg_tensor *x, bool non_blocking)
{
    tg_tensor *dense = x;
    bool ok = true;
    if (x->dtype != y->dtype || !tgi_is_dense(x)) {
        dense = tgi_new(S, "to", x->ndim, x->dim, (tg_dtype)y->dtype, x->storage->backend, x->storage->index);
        if (!dense) return false;
        tgi_preserve_strides(dense, x);
        ok = tgi_copy_elements(S, dense, x);
    }
    ok = ok && (non_blocking ? tgi_start_transfer(S, y, dense) : tgi_transfer(S, y, dense));
    if (dense != x) tgi_unref(S, dense);
    return ok;
}

/* Whether a move of t may go on while the host continues: from a device to the host, whose copy is then page-locked,
   and from page-locked memory to its device if no byte has to be converted or rearranged first. */
static bool tgi_may_be_non_blocking(const tg_tensor *t, const tgi_backend *to, tg_dtype dtype)
{
    if (t->storage->shared || t->storage->backend->host == to->host) return false;
    return to->host || (t->storage->pinned == to && t->dtype == (uint8_t)dtype && tgi_is_dense(t));
}

/* A copy of t on device `index` of backend `to`: the op behind every move.  pinning: the backend for which the copy is
   put into page-locked memory, or NULL. */
static tg_tensor *tgi_moved(const char *name, tg_tensor *t, const tgi_backend *to, int index, tg_dtype dtype,
                            const tgi_backend *pinning, bool non_blocking)
{
    tgi_call c;
    if (!tgi_op_begin1_as(&c, name, TGI_OP_to, t)) return NULL;
    const bool same_place = t->storage->backend == to && t->storage->index == index;
    tgi_memory memory = pinning ? TGI_PINNED : TGI_ORDINARY;
    non_blocking = non_blocking && tgi_may_be_non_blocking(t, to, dtype);
    if (non_blocking) {
        memory = to->host ? TGI_PINNED : TGI_FOR_COPY_STREAM;
        pinning = t->storage->backend;
    }
    c.backend = to;
    c.index = index;
    tg_tensor *y = tgi_new_in(c.S, name, t->ndim, t->dim, dtype, to, index, memory, pinning);
    if (!y) return NULL;
    c.out[c.nout++] = y;
    tgi_preserve_strides(y, t);
    return tgi_op_end(&c, same_place ? tgi_copy_elements(c.S, y, t) : tgi_move_elements(c.S, y, t, non_blocking));
}

/* t, which can be used, on a device and in a dtype: t itself if nothing would change, unless TG_COPY. */
static tg_tensor *tgi_to(const char *name, tg_tensor *t, tg_device device, tg_dtype dtype, int flags)
{
    tgi_thread *S = tgi_self();
    const tgi_backend *backend = tgi_backend_for(S, name, &device);
    if (!backend) return NULL;
    if (!tgi_dtype_known(dtype)) return tgi_no_tensor(tgi_fail(S, TG_ERR_DTYPE, name, "unknown dtype %d", (int)dtype));
    const bool same_place = t->storage->backend == backend && t->storage->index == device.index;
    if (same_place && t->dtype == (uint8_t)dtype && !(flags & TG_COPY)) return t;
    return tgi_moved(name, t, backend, device.index, dtype, NULL, (flags & TG_NON_BLOCKING) != 0);
}

tg_tensor *tg_to_ex(tg_tensor *t, tg_device device, tg_dtype dtype, int flags)
{
    return tgi_argument(tgi_self(), "to_ex", "t", t) ? tgi_to("to_ex", t, device, dtype, flags) : NULL;
}

static bool tgi_rule_to(tgi_step *step, tg_tensor *g)
{
    const tgi_output_info info = tgi_input_info(step->node, 0);
    return tgi_set_input_grad(step, 0, tg_to_ex(g, tgi_output_device(&info), (tg_dtype)info.dtype, 0));
}

static tg_tensor *tgi_to_device(const char *name, tg_tensor *t, int type, int index)
{
    if (!tgi_argument(tgi_self(), name, "t", t)) return NULL;
    tg_device device;
    device.type = type;
    device.index = index;
    return tgi_to(name, t, device, (tg_dtype)t->dtype, 0);
}

tg_tensor *tg_to(tg_tensor *t, tg_device device) { return tgi_to_device("to", t, device.type, device.index); }
tg_tensor *tg_cuda(tg_tensor *t) { return tgi_to_device("cuda", t, TG_DEV_CUDA, -1); }
tg_tensor *tg_cpu(tg_tensor *t) { return tgi_to_device("cpu", t, TG_DEV_CPU, 0); }

tg_tensor *tg_to_dtype(tg_tensor *t, tg_dtype dtype)
{
    if (!tgi_argument(tgi_self(), "to_dtype", "t", t)) return NULL;
    return tgi_to("to_dtype", t, tgi_device_of(t), dtype, 0);
}

tg_tensor *tg_to_like(tg_tensor *t, tg_tensor *other)
{
    if (!tgi_arguments(tgi_self(), "to_like", "t,other", t, other)) return NULL;
    return tgi_to("to_like", t, tgi_device_of(other), (tg_dtype)other->dtype, 0);
}

tg_status tg_to_all(tg_tensor **list, int n, tg_device device)
{
    tgi_thread *S = tgi_self();
    if (!list && n > 0) return tgi_null_argument(S, "to_all", "list"), tgi_failed(S);
    if (!tgi_argument_list(S, "to_all", "list", list, n, n)) return tgi_failed(S);
    tgi_composite c;
    if (!tgi_composite_begin(&c, "to_all")) return tgi_failed(S);
    const size_t bytes = sizeof(tg_tensor *) * (size_t)(n > 0 ? n : 0);
    tg_tensor **moved = (tg_tensor **)tgi_alloc(S, bytes);
    if (!moved) tgi_no_memory(S, "to_all", bytes);
    int done = 0;
    while (moved && done < n && (moved[done] = tg_to(list[done], device)) != NULL) done++;
    const bool ok = moved && done >= n;
    for (int i = 0; ok && i < n; ++i) list[i] = tg_keep(moved[i]);
    tgi_free(S, moved, bytes);
    tgi_composite_end(&c, NULL);
    return ok ? TG_OK : tgi_failed(S);
}

tg_tensor *tg_pin_memory(tg_tensor *t)
{
    tgi_thread *S = tgi_self();
    if (!tgi_argument(S, "pin_memory", "t", t)) return NULL;
    if (!t->storage->backend->host) {
        return tgi_no_tensor(tgi_fail(S, TG_ERR_DEVICE, "pin_memory",
                                      "cannot pin a tensor on %s: only dense CPU tensors can be pinned",
                                      tg_device_str(tgi_device_of(t))));
    }
    if (t->storage->pinned) return t;
    tg_device gpu;
    gpu.type = TG_DEV_CUDA;
    gpu.index = -1; /* the current one */
    const tgi_backend *pinning = tgi_backend_for(S, "pin_memory", &gpu);
    tgi_composite c;
    if (!pinning || !tgi_composite_begin(&c, "pin_memory")) return NULL;
    t = tgi_moved("pin_memory", t, t->storage->backend, t->storage->index, (tg_dtype)t->dtype, pinning, false);
    return tgi_composite_end(&c, t);
}

bool tg_is_pinned(const tg_tensor *t)
{
    if (!tgi_check_tensor(t, "is_pinned")) return false;
    return t->storage->pinned != NULL;
}

/* ======== @@OPS =================================================================================================== */

/* -------- @@ELEMENTWISE ------------------------------------------------------------------------------------------- */

/* ---- the elementwise ops: one screen for all rows of the table ---- */

/* The dtype in which n tensors are combined.  A 0-dim tensor counts only if its category (bool, integer, float) is
   higher than that of the tensors with dims.  torch.result_type */
static tg_dtype tgi_result_dtype(tg_tensor *const *in, int n)
{
    tg_dtype with_dims = TG_BOOL, scalars = TG_BOOL;
    bool any_dims = false, any_scalars = false;
    for (int i = 0; i < n; ++i) {
        tg_dtype d = (tg_dtype)in[i]->dtype;
        if (in[i]->ndim) with_dims = any_dims ? tg_promote_types(with_dims, d) : d, any_dims = true;
        else scalars = any_scalars ? tg_promote_types(scalars, d) : d, any_scalars = true;
    }
    if (!any_dims) return scalars;
    if (!any_scalars || tgi_dtypes[scalars].category <= tgi_dtypes[with_dims].category) return with_dims;
    return scalars;
}

/* dims [TG_MAX_DIMS] := the shape to which dims and t broadcast; false after recording PyTorch's error.  in [n]: all
   tensors of the call, for the message. */
static bool tgi_broadcast(tgi_thread *S, const char *op, int *ndim, int64_t *dims, const tg_tensor *t,
                          tg_tensor *const *in, int n)
{
    int64_t wide[TG_MAX_DIMS];
    const int wide_ndim = *ndim > t->ndim ? *ndim : t->ndim;
    for (int i = 1; i <= wide_ndim; ++i) {
        const int64_t a = i <= *ndim ? dims[*ndim - i] : 1, b = i <= t->ndim ? t->dim[t->ndim - i] : 1;
        if (a != b && a != 1 && b != 1) {
            return tgi_fail(
                S, TG_ERR_SHAPE, op,
                "The size of tensor a (%lld) must match the size of tensor b (%lld) at non-singleton dimension %d\n"
                "shapes %s and %s do not broadcast",
                (long long)a, (long long)b, wide_ndim - i,
                n == 2 ? tgi_shape_text(in[0]).text : tgi_dims_text(*ndim, dims).text, tgi_shape_text(t).text);
        }
        wide[wide_ndim - i] = a == 1 ? b : a;
    }
    *ndim = wide_ndim;
    memcpy(dims, wide, sizeof(int64_t) * (size_t)wide_ndim);
    return true;
}

/* shape := the one to which all inputs of the call broadcast */
static bool tgi_broadcast_inputs(tgi_call *c, tg_shape *shape)
{
    shape->ndim = c->in[0]->ndim;
    memcpy(shape->dim, c->in[0]->dim, sizeof(int64_t) * c->in[0]->ndim);
    for (int i = 1; i < c->nin; ++i) {
        if (tgi_same_shape(c->in[i], shape->ndim, shape->dim)) continue;
        if (!tgi_broadcast(c->S, c->name, &shape->ndim, shape->dim, c->in[i], c->in, c->nin)) return false;
    }
    return true;
}

/* t as an operand over ndim dims, to which it broadcasts. */
static inline void tgi_operand_broadcast(tgi_operand *o, const tg_tensor *t, int ndim)
{
    const int lead = ndim - t->ndim;
    tgi_operand_init(o, t);
    for (int i = ndim - 1; i >= 0; --i) o->stride[i] = i < lead || t->dim[i - lead] == 1 ? 0 : t->stride[i - lead];
}

/* Whether writing t element by element could change elements of x before they are read. */
static bool tgi_overlaps(const tg_tensor *t, const tg_tensor *x)
{
    int64_t t_last = t->offset, x_last = x->offset;
    if (t->storage != x->storage) return false;
    for (int i = 0; i < t->ndim; ++i) t_last += (t->dim[i] - 1) * t->stride[i];
    for (int i = 0; i < x->ndim; ++i) x_last += (x->dim[i] - 1) * x->stride[i];
    if (t_last < x->offset || x_last < t->offset) return false;
    return !(t->offset == x->offset && tgi_same_shape(t, x->ndim, x->dim) && tgi_same_layout(t, x));
}

/* The op's numbers s and t on tensors of an integer dtype: they must be values of it.  s may change to make it so. */
static bool tgi_check_numbers(tgi_call *c, tg_dtype dtype)
{
    const int flags = c->op->flags;
    double s = c->params.s, t = c->params.t;
    if (tgi_dtypes[dtype].floating || c->op->kind == TGI_KIND_FLOATS) return true;
    if ((flags & TGI_FLAG_S_EXPONENT) && s < 0)
        return tgi_fail(c->S, TG_ERR_ARGUMENT, c->name, "Integers to negative integer powers are not allowed.");
    if (flags & TGI_FLAG_S_ELEMENT) {
        if (!tgi_check_value(c->S, c->name, dtype, s)) return false;
        if (dtype == TG_BOOL) c->params.s = s != 0;
        return true;
    }
    if ((flags & TGI_FLAG_S_T_BOUNDS) && tgi_is_infinite(s)) s = 0; /* no bound */
    if ((flags & TGI_FLAG_S_T_BOUNDS) && tgi_is_infinite(t)) t = 0;
    if (tgi_is_integral(s) && tgi_is_integral(t)) return true;
    return tgi_fail_value(c->S, c->name, dtype, tgi_is_integral(s) ? t : s);
}

/* Some ops refuse integers: PyTorch has no kernels of them. */
static bool tgi_check_floats_only(tgi_thread *S, const char *name, const tgi_op *op, tg_dtype dtype)
{
    if (tgi_dtypes[dtype].floating || !(op->flags & TGI_FLAG_FLOATS_ONLY)) return true;
    return tgi_fail(S, TG_ERR_DTYPE, name, "\"%s\" not " "implemented for '%s'", name, tg_dtype_name(dtype));
}

/* The dtype that the call computes in, which is also the output's unless the op is a test; by the columns kind and
   flags. */
static bool tgi_elementwise_dtype(tgi_call *c, tg_dtype *dtype)
{
    const int flags = c->op->flags, values = c->nin - ((flags & TGI_FLAG_LAST_IS_MASK) != 0);
    if (values < c->nin && c->in[values]->dtype != TG_BOOL) {
        return tgi_fail(c->S, TG_ERR_DTYPE, c->name, "expected a condition of dtype bool, but got %s",
                        tg_dtype_name((tg_dtype)c->in[values]->dtype));
    }
    *dtype = tgi_result_dtype(c->in, values);
    if (!tgi_check_floats_only(c->S, c->name, c->op, *dtype)) return false;
    if (*dtype == TG_BOOL && (flags & TGI_FLAG_NO_BOOL)) {
        return tgi_fail(c->S, TG_ERR_DTYPE, c->name, "%s\ntg_logical_not inverts a mask",
                        c->nin == 2
                            ? "Subtraction, the `-` operator, with two bool tensors is not supported."
                            : "Negation, the `-` operator, on a bool tensor is not supported.");
    }
    if (*dtype == TG_BOOL && (flags & TGI_FLAG_BOOL_TO_I64)) *dtype = TG_I64;
    if (!tgi_dtypes[*dtype].floating && (c->op->kind == TGI_KIND_FLOATS ||
                                         ((flags & TGI_FLAG_S_EXPONENT) && !tgi_is_integral(c->params.s)))) {
        *dtype = c->S->default_dtype;
    }
    return tgi_check_numbers(c, *dtype);
}

/* In place: the inputs must broadcast to the target's shape... */
static bool tgi_check_target_shape(tgi_call *c, const tg_tensor *target, const tg_shape *shape)
{
    if (tgi_same_shape(target, shape->ndim, shape->dim)) return true;
    return tgi_fail(c->S, TG_ERR_SHAPE, c->name, "output with shape %s doesn't match the broadcast shape %s",
                    tgi_shape_text(target).text, tgi_dims_text(shape->ndim, shape->dim).text);
}

/* ... and the target's dtype must be able to hold the result. */
static bool tgi_check_target_dtype(tgi_call *c, const tg_tensor *target, tg_dtype dtype)
{
    if (tgi_dtypes[dtype].category <= tgi_dtypes[target->dtype].category) return true;
    return tgi_fail(c->S, TG_ERR_DTYPE, c->name, "result type %s can't be cast to the desired output type %s",
                    tg_dtype_name(dtype), tg_dtype_name((tg_dtype)target->dtype));
}

/* Runs the kernel of an elementwise op into y.  In place, inputs that the writing would change before they are read are
   copied first. */
static bool tgi_map_elements(tgi_call *c, int op, tg_tensor *y, tg_dtype compute)
{
    tgi_thread *S = c->S;
    tgi_loop loop = tgi_loop_over(y);
    tg_tensor *copies[3];
    int copied = 0;
    bool ok = true;
    loop.kernel = op;
    loop.compute = compute;
    loop.scalar[0] = c->params.s;
    loop.scalar[1] = c->params.t;
    loop.nargs = c->nin + 1;
    for (int i = 0; i < c->nin && ok; ++i) {
        tg_tensor *x = c->in[i];
        if (c->target && x != c->target && tgi_overlaps(c->target, x)) {
            x = tgi_new_like(S, c->name, x);
            ok = x && tgi_copy_elements(S, x, c->in[i]);
            if (x) copies[copied++] = x;
        }
        if (ok) tgi_operand_broadcast(&loop.arg[i + 1], x, y->ndim);
    }
    ok = ok && c->backend->map(S, &loop);
    while (copied > 0) tgi_unref(S, copies[--copied]);
    return ok;
}

static tg_tensor *tgi_elementwise(const char *name, int op, bool in_place, tg_tensor *const *in, int n, double s,
                                  double t);

/* An elementwise op of inputs on different devices.  0-dim CPU tensors are moved to the device of the others, and the
   moves are recorded, so that their gradients come back to the CPU; anything else is an error. */
static tg_tensor *tgi_across_devices(const char *name, int op, bool in_place, tg_tensor *const *in, int n, double s,
                                     double t)
{
    const tgi_op *row = tgi_op_row(op);
    int i, k = 0, scalars = row->flags & TGI_FLAG_ANY_CPU_SCALARS ? n : row->flags & TGI_FLAG_NO_CPU_SCALARS ? 0 : 1;
    tg_tensor *moved[3], *y = NULL;
    tgi_composite c;
    while (in[k]->storage->backend->host) k++; /* the op runs on the device of the first input that is not on the CPU */
    for (i = 0; i < n; ++i) {
        const bool scalar = in[i]->storage->backend->host && in[i]->ndim == 0 && !(in_place && i == 0);
        if (tgi_same_place(in[i], in[k]) || (scalar && scalars-- > 0)) continue;
        return tgi_no_tensor(tgi_fail(
            tgi_self(), TG_ERR_DEVICE, name,
            "Expected all tensors to be on the same device, but found at least two devices, %s and %s! (%s is on "
            "%s, %s is on %s)\n%s",
            tg_device_str(tgi_device_of(in[k])), tg_device_str(tgi_device_of(in[i])),
            tgi_named_argument(row->arguments, k, n, in[k]).text, tg_device_str(tgi_device_of(in[k])),
            tgi_named_argument(row->arguments, i, n, in[i]).text, tg_device_str(tgi_device_of(in[i])),
            tgi_move_hint(row->arguments, i, k, in, n, in_place).text));
    }
    if (!tgi_composite_begin(&c, name)) return NULL;
    for (i = 0; i < n && (moved[i] = tg_to(in[i], tgi_device_of(in[k]))) != NULL; ++i) {}
    if (i == n) y = tgi_elementwise(name, op, in_place, moved, n, s, t);
    return tgi_composite_end(&c, y);
}

/* Calls an elementwise op on n inputs with its numbers s and t.  name: of the public function, for messages; NULL for
   the op's own, or that of its twin in place. */
static tg_tensor *tgi_elementwise(const char *name, int op, bool in_place, tg_tensor *const *in, int n, double s,
                                  double t)
{
    const tgi_op *row = tgi_op_row(op);
    tgi_call c;
    if (!tgi_op_begin_as(&c, !name && in_place ? row->in_place : name, op, in, n))
        return c.mixed ? tgi_across_devices(c.name, op, in_place, in, n, s, t) : NULL;
    c.params.s = s;
    c.params.t = t;
    c.has_params = (row->flags & TGI_FLAG_NUMBERS) != 0;
    tg_dtype dtype = TG_F32;
    if (!tgi_elementwise_dtype(&c, &dtype)) return NULL;
    tg_shape shape;
    if (!tgi_broadcast_inputs(&c, &shape)) return NULL;
    const tg_dtype compute = tgi_compute_dtype(dtype);
    if (in_place) {
        if (!tgi_check_target_shape(&c, in[0], &shape) || !tgi_check_target_dtype(&c, in[0], dtype) ||
            !tgi_op_begin_in_place(&c)) {
            return NULL;
        }
        return tgi_op_end_in_place(&c, tgi_map_elements(&c, op, in[0], compute));
    }
    tg_tensor *y = tgi_output(&c, shape.ndim, shape.dim, row->kind == TGI_KIND_TEST ? TG_BOOL : dtype);
    return tgi_op_end(&c, y && tgi_map_elements(&c, op, y, compute));
}

TGI_NOINLINE static tg_tensor *tgi_map1(int op, bool in_place, tg_tensor *x, double s, double t)
{
    return tgi_elementwise(NULL, op, in_place, &x, 1, s, t);
}

TGI_NOINLINE static tg_tensor *tgi_map2(int op, bool in_place, tg_tensor *a, tg_tensor *b, double s)
{
    tg_tensor *in[] = {a, b};
    return tgi_elementwise(NULL, op, in_place, in, 2, s, 0);
}

TGI_NOINLINE static tg_tensor *tgi_map3(int op, tg_tensor *a, tg_tensor *b, tg_tensor *c)
{
    tg_tensor *in[] = {a, b, c};
    return tgi_elementwise(NULL, op, false, in, 3, 0, 0);
}

/* ---- the rules of the elementwise rows ---- */

/* d/dx of x * sigmoid(x) */
static tg_tensor *tgi_silu_gradient(tg_tensor *g, tg_tensor *x)
{
    tg_tensor *s = tg_sigmoid(x);
    return tg_mul(g, tg_mul(s, tg_add_scalar(tg_mul(x, tg_rsub_scalar(s, 1)), 1)));
}

static tg_tensor *tgi_pow_scalar_gradient(tg_tensor *g, tg_tensor *x, double s)
{
    return s == 0 ? tg_zeros_like(g) : tg_mul(g, tg_mul_scalar(tg_pow_scalar(x, s - 1), s));
}

/* g where x is between the bounds; 0 at them, outside and for NaN.  An infinite bound excludes no x. */
static tg_tensor *tgi_clamp_gradient(tg_tensor *g, tg_tensor *x, double lo, double hi)
{
    tg_tensor *above = lo == -(double)INFINITY ? tg_ge_scalar(x, lo) : tg_gt_scalar(x, lo),
              *below = hi == (double)INFINITY ? tg_le_scalar(x, hi) : tg_lt_scalar(x, hi);
    return tg_masked_fill(g, tg_logical_not(tg_logical_and(above, below)), 0);
}

static tg_tensor *tgi_softplus_gradient(tg_tensor *g, tg_tensor *x, double beta, double threshold)
{
    tg_tensor *z = tg_mul_scalar(x, beta);
    return tg_where(tg_gt_scalar(z, threshold), g, tg_mul(g, tg_sigmoid(z)));
}

/* f16 and bf16 are computed in f32, and the result is rounded once. */
static bool tgi_is_half(const tg_tensor *t) { return t->dtype == TG_BF16 || t->dtype == TG_F16; }

/* t for the inner steps of a composite: in f32 if it is a half. */
static tg_tensor *tgi_upcast(tg_tensor *t) { return t && tgi_is_half(t) ? tg_to_dtype(t, TG_F32) : t; }

/* Phi(x) + x phi(x), of the normal distribution; with tanh_approx the derivative of x/2 (1 + tanh(k (x + c x^3))) */
static tg_tensor *tgi_gelu_gradient(tg_tensor *g, tg_tensor *x, bool tanh_approx)
{
    const double c = 0.044715, k = 0.79788456080286536; /* sqrt(2 / pi) */
    tg_tensor *cdf, *slope;
    if (tanh_approx && tgi_is_half(x)) /* in f16 x^2 would be infinite from 256 on */
        return tg_to_dtype(tgi_gelu_gradient(tgi_upcast(g), tgi_upcast(x), true), (tg_dtype)x->dtype);
    tg_tensor *x2 = tg_mul(x, x);
    if (tanh_approx) {
        tg_tensor *u = tg_tanh(tg_mul_scalar(tg_mul(x, tg_add_scalar(tg_mul_scalar(x2, c), 1)), k));
        cdf = tg_mul_scalar(tg_add_scalar(u, 1), 0.5);
        slope =
            tg_mul(tg_rsub_scalar(tg_mul(u, u), 1), tg_mul_scalar(tg_add_scalar(tg_mul_scalar(x2, 3 * c), 1), k / 2));
    } else {
        cdf = tg_mul_scalar(tg_add_scalar(tg_erf(tg_mul_scalar(x, 0.70710678118654752)), 1), 0.5);
        slope = tg_mul_scalar(tg_exp(tg_mul_scalar(x2, -0.5)), 0.3989422804014327);
    }
    return tg_mul(g, tg_add(cdf, tg_mul(x, slope)));
}

/* b a^(b-1), 0 where b is 0 */
static tg_tensor *tgi_pow_base_gradient(tg_tensor *g, tg_tensor *a, tg_tensor *b)
{
    tg_tensor *d = tg_mul(g, tg_mul(b, tg_pow(a, tg_sub_scalar(b, 1))));
    return d ? tg_masked_fill(d, tg_eq_scalar(b, 0), 0) : NULL;
}

/* a^b log a, 0 where a is 0 and b is not negative */
static tg_tensor *tgi_pow_exponent_gradient(tg_tensor *g, tg_tensor *a, tg_tensor *b, tg_tensor *y)
{
    tg_tensor *d = tg_mul(g, tg_mul(y, tg_log(a)));
    return d ? tg_masked_fill(d, tg_logical_and(tg_eq_scalar(a, 0), tg_ge_scalar(b, 0)), 0) : NULL;
}

/* g where a is larger than b (or one is NaN), half of it where they are equal */
static tg_tensor *tgi_larger_gradient(tg_tensor *g, tg_tensor *a, tg_tensor *b)
{
    return tg_masked_fill(tg_where(tg_eq(a, b), tg_mul_scalar(g, 0.5), g), tg_lt(a, b), 0);
}

/* numerator / (a^2 + b^2), 0 where that is 0 */
static tg_tensor *tgi_atan2_gradient(tg_tensor *g, tg_tensor *numerator, tg_tensor *a, tg_tensor *b)
{
    tg_tensor *square = tg_add(tg_mul(a, a), tg_mul(b, b));
    return tg_mul(g, tg_div(numerator, tg_masked_fill(square, tg_eq_scalar(square, 0), (double)INFINITY)));
}

/* (a - b) / (a (1 - a)), the denominator at least 1e-12 */
static tg_tensor *tgi_bce_gradient(tg_tensor *g, tg_tensor *a, tg_tensor *b)
{
    return tg_mul(g, tg_div(tg_sub(a, b), tg_clamp_min(tg_mul(a, tg_rsub_scalar(a, 1)), 1e-12)));
}

/* The rules of the rows with one input. */
#define TGI_RULE1(name, kind, y, yi, flags, rule, ...) TGI_RULE1_##kind(name, rule)
#define TGI_RULE1_TEST(name, rule)
#define TGI_RULE1_ANY(name, rule) TGI_RULE1_FLOATS(name, rule)
#define TGI_RULE1_FLOATS(name, rule)                                                                                   \
    static bool tgi_rule_##name(tgi_step *step, tg_tensor *g)                                                          \
    {                                                                                                                  \
        tg_tensor *x = tgi_saved_tensor(step, 0), *y = tgi_saved_tensor(step, -1);                                     \
        const double s = step->params ? step->params->s : 0, t = step->params ? step->params->t : 0;                   \
        (void)x, (void)y, (void)s, (void)t;                                                                            \
        return tgi_set_input_grad(step, 0, rule);                                                                      \
    }
TGI_UNARY_OPS(TGI_RULE1)
TGI_SCALAR_OPS(TGI_RULE1)

/* With two or three inputs: a rule is computed only for an input that requires grad. */
#define TGI_RULE2(name, kind, y, yi, flags, rule_a, rule_b, ...) TGI_RULE3_##kind(name, rule_a, rule_b, NULL)
#define TGI_RULE3(name, kind, y, yi, flags, rule_a, rule_b, rule_c, ...) TGI_RULE3_##kind(name, rule_a, rule_b, rule_c)
#define TGI_RULE3_TEST(name, rule_a, rule_b, rule_c)
#define TGI_RULE3_ANY(name, rule_a, rule_b, rule_c) TGI_RULE3_FLOATS(name, rule_a, rule_b, rule_c)
#define TGI_RULE3_FLOATS(name, rule_a, rule_b, rule_c)                                                                 \
    static bool tgi_rule_##name(tgi_step *step, tg_tensor *g)                                                          \
    {                                                                                                                  \
        tg_tensor *a = tgi_saved_tensor(step, 0), *b = tgi_saved_tensor(step, 1), *c = tgi_saved_tensor(step, 2);      \
        tg_tensor *y = tgi_saved_tensor(step, -1);                                                                     \
        const double s = step->params ? step->params->s : 0;                                                           \
        const bool has_c = step->node->inputs > 2;                                                                     \
        (void)a, (void)b, (void)c, (void)y, (void)s;                                                                   \
        return (!tgi_input_needs_grad(step, 0) || tgi_set_input_grad(step, 0, rule_a)) &&                              \
               (!tgi_input_needs_grad(step, 1) || tgi_set_input_grad(step, 1, rule_b)) &&                              \
               (!has_c || !tgi_input_needs_grad(step, 2) || tgi_set_input_grad(step, 2, rule_c));                      \
    }
TGI_BINARY_OPS(TGI_RULE2)
TGI_TERNARY_OPS(TGI_RULE3)
TGI_BINARY_SCALAR_OPS(TGI_RULE2)

/* ---- their public functions, by the column public ---- */

#define TGI_PUBLIC1(name, kind, ...)                                                                                   \
    tg_tensor *tg_##name(tg_tensor *x) { return tgi_map1(TGI_OP_##name, false, x, 0, 0); }                             \
    TGI_PUBLIC1_##kind(name)
#define TGI_PUBLIC1_TEST(name)
#define TGI_PUBLIC1_ANY(name)                                                                                          \
    tg_tensor *tg_##name##_(tg_tensor *x) { return tgi_map1(TGI_OP_##name, true, x, 0, 0); }
#define TGI_PUBLIC1_FLOATS(name) TGI_PUBLIC1_ANY(name)
TGI_UNARY_OPS(TGI_PUBLIC1)

#define TGI_PUBLIC_FLAG(name)                                                                                          \
    tg_tensor *tg_##name(tg_tensor *x, bool s) { return tgi_map1(TGI_OP_##name, false, x, s, 0); }
#define TGI_PUBLIC_S(name)                                                                                             \
    tg_tensor *tg_##name(tg_tensor *x, double s) { return tgi_map1(TGI_OP_##name, false, x, s, 0); }
#define TGI_PUBLIC_S_TWIN(name)                                                                                        \
    TGI_PUBLIC_S(name)                                                                                                 \
    tg_tensor *tg_##name##_(tg_tensor *x, double s) { return tgi_map1(TGI_OP_##name, true, x, s, 0); }
#define TGI_PUBLIC_S_T(name)                                                                                           \
    tg_tensor *tg_##name(tg_tensor *x, double s, double t) { return tgi_map1(TGI_OP_##name, false, x, s, t); }
#define TGI_PUBLIC_S_T_TWIN(name)                                                                                      \
    TGI_PUBLIC_S_T(name)                                                                                               \
    tg_tensor *tg_##name##_(tg_tensor *x, double s, double t) { return tgi_map1(TGI_OP_##name, true, x, s, t); }
#define TGI_PUBLIC_SCALAR(name, kind, y, yi, flags, rule, formula, public) TGI_PUBLIC_##public(name)
TGI_SCALAR_OPS(TGI_PUBLIC_SCALAR)

tg_tensor *tg_clamp_min(tg_tensor *x, double lo)
{
    return tgi_elementwise("clamp_min", TGI_OP_clamp, false, &x, 1, lo, (double)INFINITY);
}
tg_tensor *tg_clamp_max(tg_tensor *x, double hi)
{
    return tgi_elementwise("clamp_max", TGI_OP_clamp, false, &x, 1, -(double)INFINITY, hi);
}

#define TGI_PUBLIC_AB(name)                                                                                            \
    tg_tensor *tg_##name(tg_tensor *a, tg_tensor *b) { return tgi_map2(TGI_OP_##name, false, a, b, 0); }
#define TGI_PUBLIC_AB_TWIN(name)                                                                                       \
    TGI_PUBLIC_AB(name)                                                                                                \
    tg_tensor *tg_##name##_(tg_tensor *a, tg_tensor *b) { return tgi_map2(TGI_OP_##name, true, a, b, 0); }
#define TGI_PUBLIC_BINARY(name, kind, y, yi, flags, rule_a, rule_b, formula, public) TGI_PUBLIC_##public(name)
TGI_BINARY_OPS(TGI_PUBLIC_BINARY)

tg_tensor *tg_where(tg_tensor *cond, tg_tensor *a, tg_tensor *b) { return tgi_map3(TGI_OP_where, a, b, cond); }
tg_tensor *tg_lerp(tg_tensor *a, tg_tensor *b, tg_tensor *weight) { return tgi_map3(TGI_OP_lerp, a, b, weight); }

tg_tensor *tg_lerp_scalar(tg_tensor *a, tg_tensor *b, double weight)
{
    tgi_thread *S = tgi_self();
    tgi_composite c;
    tg_tensor *in[] = {a, b};
    if (!tgi_argument_list(S, "lerp_scalar", "a,b", in, 2, 2)) return NULL;
    const tg_dtype dtype = tgi_result_dtype(in, 2);
    if (!tgi_check_floats_only(S, "lerp_scalar", tgi_op_row(TGI_OP_lerp), dtype)) return NULL;
    if (!tgi_composite_begin(&c, "lerp_scalar")) return NULL;
    const tg_device device = tgi_device_of(a->storage->backend->host ? b : a);
    return tgi_composite_end(&c, tg_lerp(a, b, tg_full_on(TG_SCALAR, weight, dtype, device)));
}

tg_tensor *tg_masked_fill(tg_tensor *x, tg_tensor *mask, double value)
{
    return tgi_map2(TGI_OP_masked_fill, false, x, mask, value);
}

tg_tensor *tg_masked_fill_(tg_tensor *x, tg_tensor *mask, double value)
{
    return tgi_map2(TGI_OP_masked_fill, true, x, mask, value);
}

/* -------- @@VIEWS ------------------------------------------------------------------------------------------------- */

/* ---- strided views as ops: as_strided, its adjoint strided_add, and scatter_view.  The rule of each is made of the
   other two, so that they can be differentiated any number of times ---- */

static void tgi_set_layout(tg_tensor *t, int ndim, const int64_t *dims, const int64_t *strides)
{
    t->ndim = (uint8_t)ndim;
    memcpy(t->dim, dims, sizeof(int64_t) * (size_t)ndim);
    memcpy(t->stride, strides, sizeof(int64_t) * (size_t)ndim);
}

/* One more output of the call: a new tensor with the shape and strides of the view's base, to which the view's strides
   and offset refer. */
static tg_tensor *tgi_output_like_base(tgi_call *c, const tgi_view_info *v, tg_dtype dtype)
{
    int64_t extent = 1; /* from the first element to the last */
    for (int i = 0; i < v->base_ndim; ++i) {
        if (v->base_dim[i] == 0) extent = 0;
        else if (extent) extent += (v->base_dim[i] - 1) * v->base_stride[i];
    }
    tg_tensor *y = tgi_new(c->S, c->name, 1, &extent, dtype, c->backend, c->index);
    if (!y) return NULL;
    tgi_set_layout(y, v->base_ndim, v->base_dim, v->base_stride);
    c->out[c->nout++] = y;
    return y;
}

/* The elements of `base` at the view, as an operand over the view's dims; base has the view's base strides. */
static tgi_operand tgi_view_operand(const tg_tensor *base, const tgi_view_info *v)
{
    tgi_operand o = tgi_operand_of(base);
    o.data = (char *)o.data + v->offset * (int64_t)tgi_dtypes[base->dtype].size;
    memcpy(o.stride, v->stride, sizeof(int64_t) * (size_t)v->ndim);
    return o;
}

/* A view of t: dims, strides and offset in t's storage; one more output of the call. */
static tg_tensor *tgi_view_of(tgi_call *c, tg_tensor *t, int ndim, const int64_t *dims, const int64_t *strides,
                              int64_t offset)
{
    tg_tensor *y = tgi_alias(c->S, c->name, t);
    if (!y) return NULL;
    tgi_set_layout(y, ndim, dims, strides);
    y->offset = offset;
    y->base = t->base ? t->base : t;
    tgi_ref(y->base);
    y->history = y->base->history;
    if (c->S->grad_off) y->flags |= TGI_NO_GRAD_VIEW;
    c->out[c->nout++] = y;
    return y;
}

/* The last step of an op whose output is a view of its input. */
static tg_tensor *tgi_run_view(tgi_call *c, int ndim, const int64_t *dims, const int64_t *strides, int64_t offset)
{
    return tgi_op_end(c, tgi_view_of(c, c->in[0], ndim, dims, strides, offset) != NULL);
}

/* A loop over t's dims that reads `in` and writes `out`. */
static tgi_loop tgi_loop_from_to(const tg_tensor *t, tgi_operand in, tgi_operand out)
{
    tgi_loop loop = tgi_loop_over(t);
    loop.nargs = 2;
    loop.arg[0] = out;
    loop.arg[1] = in;
    return loop;
}

/* The operand without its first n elements along dim. */
static void tgi_operand_skip(tgi_operand *o, int dim, int64_t n)
{
    o->data = (char *)o->data + n * o->stride[dim] * (int64_t)tgi_dtypes[o->dtype].size;
}

/* t with the strides of the view's base: itself, or a copy. */
static tg_tensor *tgi_with_base_strides(tg_tensor *t, const tgi_view_info *v)
{
    tgi_call c;
    bool same = t != NULL;
    for (int i = 0; same && i < t->ndim; ++i) same = t->dim[i] == 1 || t->stride[i] == v->base_stride[i];
    if (same || !tgi_op_begin1(&c, TGI_OP_clone, t)) return t;
    tg_tensor *y = tgi_output_like_base(&c, v, (tg_dtype)t->dtype);
    return tgi_op_end(&c, y && tgi_copy_elements(c.S, y, t));
}

/* t [base dims] -> its elements at the view [view dims].  torch.as_strided */
static tg_tensor *tgi_as_strided(tg_tensor *t, const tgi_view_info *v)
{
    tgi_call c;
    t = tgi_with_base_strides(t, v);
    if (!tgi_op_begin1(&c, TGI_OP_as_strided, t)) return NULL;
    c.view = v;
    return tgi_run_view(&c, v->ndim, v->dim, v->stride, t->offset + v->offset);
}

/* t [view dims] -> zeros [base dims] with t added at the view.  Where the view has an element several times, all of
   them are added to it. */
static tg_tensor *tgi_strided_add(tg_tensor *t, const tgi_view_info *v)
{
    tgi_call c;
    if (!tgi_op_begin1(&c, TGI_OP_strided_add, t)) return NULL;
    c.view = v;
    tg_tensor *y = tgi_output_like_base(&c, v, (tg_dtype)t->dtype);
    if (!y) return NULL;
    const tgi_loop loop = tgi_loop_from_to(t, tgi_operand_of(t), tgi_view_operand(y, v));
    return tgi_op_end(&c, tgi_fill_elements(c.S, y, 0) && c.backend->accumulate(c.S, &loop));
}

static bool tgi_rule_as_strided(tgi_step *step, tg_tensor *g)
{
    return tgi_set_input_grad(step, 0, tgi_strided_add(g, step->node->view));
}
static bool tgi_rule_strided_add(tgi_step *step, tg_tensor *g)
{
    return tgi_set_input_grad(step, 0, tgi_as_strided(g, step->node->view));
}

/* base [base dims], src [view dims] -> a copy of base in which the elements at the view are src. */
static tg_tensor *tgi_scatter_view(tg_tensor *base, tg_tensor *src, const tgi_view_info *v)
{
    tgi_call c;
    if (!tgi_op_begin2(&c, TGI_OP_scatter_view, base, src)) return NULL;
    c.view = v;
    tg_tensor *y = tgi_output_like_base(&c, v, (tg_dtype)base->dtype);
    if (!y) return NULL;
    const tgi_loop loop = tgi_loop_from_to(src, tgi_operand_of(src), tgi_view_operand(y, v));
    return tgi_op_end(&c, tgi_copy_elements(c.S, y, base) && c.backend->copy(c.S, &loop));
}

static bool tgi_rule_scatter_view(tgi_step *step, tg_tensor *g)
{
    tg_tensor *part = tgi_as_strided(g, step->node->view);
    return part &&
           (!tgi_input_needs_grad(step, 0) ||
            tgi_set_input_grad(step, 0, tgi_scatter_view(g, tg_zeros_like(part), step->node->view))) &&
           (!tgi_input_needs_grad(step, 1) || tgi_set_input_grad(step, 1, part));
}

/* ---- views that keep every element: reshape, permute ---- */

/* strides := those of a view of t with shape dims, of as many elements; false if only a copy can have that shape.
   Both shapes are cut into groups, from the last dim on: some new dims and some dims of t with the same product, where
   each of t's dims continues the next one without a gap.  The algorithm is numpy's attempt_nocopy_reshape. */
static bool tgi_view_strides(const tg_tensor *t, int ndim, const int64_t *dims, int64_t *strides)
{
    int old = t->ndim - 1, i = ndim - 1;
    if (tgi_numel(t) == 0 || tgi_is_contiguous(t)) {
        tgi_contiguous_strides(ndim, dims, strides);
        return true;
    }
    while (i >= 0) {
        while (old >= 0 && t->dim[old] == 1) old--;
        int64_t group = old >= 0 ? t->dim[old] : 1; /* elements of t's dims of this group */
        int64_t stride = old >= 0 ? t->stride[old] : 1, filled = 1;
        while (old > 0 && (t->dim[old - 1] == 1 || t->stride[old - 1] == t->stride[old] * t->dim[old])) {
            if (t->dim[old - 1] == 1) { /* a dim of size 1 may have any stride: the one outside it counts */
                int k = old - 1;
                while (k > 0 && t->dim[k - 1] == 1) k--;
                if (k == 0 || t->stride[k - 1] != t->stride[old] * t->dim[old]) break;
                old = k;
            }
            old--;
            group *= t->dim[old];
        }
        for (; i >= 0 && (filled < group || dims[i] == 1); --i) {
            strides[i] = stride;
            stride *= dims[i];
            filled *= dims[i];
        }
        if (filled != group) return false;
        old--;
    }
    return true;
}

/* Checks that t can have this shape, in which one -1 may stand for what the other dims leave; replaces it. */
static bool tgi_infer_shape(tgi_thread *S, const char *op, const tg_tensor *t, tg_shape *shape)
{
    int64_t known = 1, numel = tgi_numel(t);
    tg_shape asked = *shape;
    int hole = -1;
    if (!tgi_shape_argument(S, op, "shape", shape)) return false;
    for (int i = 0; i < shape->ndim; ++i) {
        if (shape->dim[i] == -1) {
            if (hole >= 0) return tgi_fail(S, TG_ERR_SHAPE, op, "only one dimension can be inferred");
            hole = i;
            shape->dim[i] = 1;
        } else if (shape->dim[i] < 0) {
            return tgi_fail(S, TG_ERR_SHAPE, op, "invalid shape dimension %lld", (long long)shape->dim[i]);
        }
    }
    if (!tgi_check_shape(S, op, shape->ndim, shape->dim, &known)) return false;
    if (hole >= 0 && known == 0 && numel == 0) {
        return tgi_fail(S, TG_ERR_SHAPE, op,
                        "cannot reshape tensor of 0 elements into shape %s because the unspecified dimension "
                        "size -1 can be any value and is ambiguous",
                        tgi_dims_text(asked.ndim, asked.dim).text);
    }
    const bool fits = hole >= 0 && known ? numel % known == 0 : numel == known;
    if (hole >= 0 && known) shape->dim[hole] = numel / known;
    if (fits) return true;
    return tgi_fail(S, TG_ERR_SHAPE, op, "shape '%s' is invalid for input of size %lld",
                    tgi_dims_text(asked.ndim, asked.dim).text, (long long)numel);
}

static tg_tensor *tgi_reshape_view(const char *name, tg_tensor *t, int ndim, const int64_t *dims,
                                   const int64_t *strides)
{
    tgi_call c;
    if (!tgi_op_begin1_as(&c, name, TGI_OP_reshape, t)) return NULL;
    return tgi_run_view(&c, ndim, dims, strides, t->offset);
}

static bool tgi_rule_reshape(tgi_step *step, tg_tensor *g)
{
    return tgi_set_input_grad(step, 0, tg_reshape(g, tgi_input_shape(step, 0)));
}

tg_tensor *tg_view(tg_tensor *t, tg_shape shape)
{
    tgi_thread *S = tgi_self();
    int64_t strides[TG_MAX_DIMS];
    if (!tgi_argument(S, "view", "t", t)) return NULL;
    if (!tgi_infer_shape(S, "view", t, &shape)) return NULL;
    if (tgi_view_strides(t, shape.ndim, shape.dim, strides))
        return tgi_reshape_view("view", t, shape.ndim, shape.dim, strides);
    return tgi_no_tensor(
        tgi_fail(S, TG_ERR_SHAPE, "view",
                 "view size is not compatible with input tensor's size and stride (at least one dimension "
                 "spans across two contiguous subspaces).\nuse tg_reshape, which copies where it must"));
}

static tg_tensor *tgi_reshape(const char *name, tg_tensor *t, tg_shape shape)
{
    tgi_thread *S = tgi_self();
    tgi_composite c;
    int64_t strides[TG_MAX_DIMS];
    if (!tgi_argument(S, name, "t", t)) return NULL;
    if (!tgi_infer_shape(S, name, t, &shape)) return NULL;
    if (tgi_view_strides(t, shape.ndim, shape.dim, strides))
        return tgi_reshape_view(name, t, shape.ndim, shape.dim, strides);
    if (!tgi_composite_begin(&c, name)) return NULL;
    return tgi_composite_end(&c, tg_view(tg_contiguous(t), shape));
}

tg_tensor *tg_reshape(tg_tensor *t, tg_shape shape) { return tgi_reshape("reshape", t, shape); }

tg_tensor *tg_flatten(tg_tensor *t, int start_dim, int end_dim)
{
    tgi_thread *S = tgi_self();
    if (!tgi_argument(S, "flatten", "t", t)) return NULL;
    if (t->ndim == 0) return tgi_reshape("flatten", t, TG_SHAPE(1));
    if (!tgi_wrap_dim(S, "flatten", t->ndim, &start_dim) || !tgi_wrap_dim(S, "flatten", t->ndim, &end_dim)) return NULL;
    if (start_dim > end_dim) {
        return tgi_no_tensor(
            tgi_fail(S, TG_ERR_SHAPE, "flatten", "flatten() has invalid args: start_dim cannot come after end_dim"));
    }
    tg_shape shape = tg_make_shape(start_dim + 1, t->dim);
    for (int i = start_dim + 1; i <= end_dim; ++i) shape.dim[start_dim] *= t->dim[i];
    for (int i = end_dim + 1; i < t->ndim; ++i) shape.dim[shape.ndim++] = t->dim[i];
    return tgi_reshape("flatten", t, shape);
}

tg_tensor *tg_squeeze(tg_tensor *t, int dim)
{
    tgi_thread *S = tgi_self();
    int64_t dims[TG_MAX_DIMS], strides[TG_MAX_DIMS];
    int n = 0;
    if (!tgi_argument(S, "squeeze", "t", t)) return NULL;
    if (!tgi_wrap_dim(S, "squeeze", t->ndim, &dim)) return NULL;
    for (int i = 0; i < t->ndim; ++i) {
        if (i == dim && t->dim[i] == 1) continue;
        dims[n] = t->dim[i];
        strides[n++] = t->stride[i];
    }
    return tgi_reshape_view("squeeze", t, n, dims, strides);
}

tg_tensor *tg_unsqueeze(tg_tensor *t, int dim)
{
    tgi_thread *S = tgi_self();
    int64_t dims[TG_MAX_DIMS + 1], strides[TG_MAX_DIMS + 1];
    if (!tgi_argument(S, "unsqueeze", "t", t)) return NULL;
    if (!tgi_wrap_dim(S, "unsqueeze", t->ndim + 1, &dim)) return NULL;
    if (t->ndim == TG_MAX_DIMS) {
        return tgi_no_tensor(tgi_fail(S, TG_ERR_SHAPE, "unsqueeze", "a tensor has at most %d dims", TG_MAX_DIMS));
    }
    for (int i = 0; i < t->ndim; ++i) {
        dims[i + (i >= dim)] = t->dim[i];
        strides[i + (i >= dim)] = t->stride[i];
    }
    dims[dim] = 1;
    strides[dim] = dim < t->ndim ? t->stride[dim] * (t->dim[dim] ? t->dim[dim] : 1) : 1;
    return tgi_reshape_view("unsqueeze", t, t->ndim + 1, dims, strides);
}

/* order[i] is the dim of t that becomes dim i. */
static tg_tensor *tgi_permute(tg_tensor *t, const int *order)
{
    tgi_call c;
    int64_t dims[TG_MAX_DIMS], strides[TG_MAX_DIMS];
    if (!tgi_op_begin1(&c, TGI_OP_permute, t)) return NULL;
    tgi_params(&c)->listed = t->ndim;
    for (int i = 0; i < t->ndim; ++i) {
        dims[i] = t->dim[order[i]];
        strides[i] = t->stride[order[i]];
        c.numbers[i] = order[i];
    }
    return tgi_run_view(&c, t->ndim, dims, strides, t->offset);
}

static bool tgi_rule_permute(tgi_step *step, tg_tensor *g)
{
    int back[TG_MAX_DIMS];
    for (int i = 0; i < step->params->listed; ++i) back[step->params->list[i]] = i;
    return tgi_set_input_grad(step, 0, tgi_permute(g, back));
}

/* A dim that the user gave as int64_t.  One that does not fit becomes INT_MAX, which is out of range, too. */
static int tgi_int_dim(int64_t dim) { return dim < INT_MIN || dim > INT_MAX ? INT_MAX : (int)dim; }

/* Checks a list of dims of t, none of them twice, and makes them non-negative. */
static bool tgi_wrap_dims(tgi_thread *S, const char *op, const tg_tensor *t, tg_shape *dims)
{
    int seen = 0;
    if (!tgi_shape_argument(S, op, "dims", dims)) return false;
    for (int i = 0; i < dims->ndim; ++i) {
        int dim = tgi_int_dim(dims->dim[i]);
        if (!tgi_wrap_dim(S, op, t->ndim, &dim)) return false;
        if (seen >> dim & 1) {
            return tgi_fail(S, TG_ERR_SHAPE, op, "dim %d appears multiple times in the list of dims", dim);
        }
        seen |= 1 << dim;
        dims->dim[i] = dim;
    }
    return true;
}

tg_tensor *tg_permute(tg_tensor *t, tg_shape dims)
{
    tgi_thread *S = tgi_self();
    int order[TG_MAX_DIMS];
    if (!tgi_argument(S, "permute", "t", t) || !tgi_shape_argument(S, "permute", "dims", &dims)) return NULL;
    if (dims.ndim != t->ndim) {
        return tgi_no_tensor(
            tgi_fail(S, TG_ERR_SHAPE, "permute",
                     "number of dimensions in the tensor input does not match the length of the desired "
                     "ordering of dimensions i.e. input.dim() = %d is not equal to len(dims) = %d",
                     t->ndim, dims.ndim));
    }
    if (!tgi_wrap_dims(S, "permute", t, &dims)) return NULL;
    for (int i = 0; i < t->ndim; ++i) order[i] = (int)dims.dim[i];
    return tgi_permute(t, order);
}

/* t with dim `from` moved to `to`, the others in order. */
static tg_tensor *tgi_move_dim(tg_tensor *t, int from, int to)
{
    int order[TG_MAX_DIMS], k = 0;
    for (int i = 0; i < t->ndim; ++i) {
        if (k == from) k++;
        order[i] = i == to ? from : k++;
    }
    return tgi_permute(t, order);
}

tg_tensor *tg_movedim(tg_tensor *t, int source, int destination)
{
    tgi_thread *S = tgi_self();
    if (!tgi_argument(S, "movedim", "t", t)) return NULL;
    if (!tgi_wrap_dim(S, "movedim", t->ndim, &source) || !tgi_wrap_dim(S, "movedim", t->ndim, &destination))
        return NULL;
    return tgi_move_dim(t, source, destination);
}

tg_tensor *tg_transpose(tg_tensor *t, int dim0, int dim1)
{
    tgi_thread *S = tgi_self();
    int order[TG_MAX_DIMS];
    if (!tgi_argument(S, "transpose", "t", t)) return NULL;
    if (!tgi_wrap_dim(S, "transpose", t->ndim, &dim0) || !tgi_wrap_dim(S, "transpose", t->ndim, &dim1)) return NULL;
    for (int i = 0; i < t->ndim; ++i) order[i] = i == dim0 ? dim1 : i == dim1 ? dim0 : i;
    return tgi_permute(t, order);
}

tg_tensor *tg_t(tg_tensor *t)
{
    tgi_thread *S = tgi_self();
    if (!tgi_argument(S, "t", "t", t)) return NULL;
    if (t->ndim > 2) {
        return tgi_no_tensor(
            tgi_fail(S, TG_ERR_SHAPE, "t", "t() expects a tensor with <= 2 dimensions, but self is %dD", t->ndim));
    }
    return t->ndim < 2 ? tg_transpose(t, 0, 0) : tg_transpose(t, 0, 1);
}

/* ---- expand, and its adjoint sum_to ---- */

tg_tensor *tg_expand(tg_tensor *t, tg_shape shape)
{
    tgi_call c;
    int64_t strides[TG_MAX_DIMS], numel;
    if (!tgi_op_begin1(&c, TGI_OP_expand, t) || !tgi_shape_argument(c.S, "expand", "shape", &shape)) return NULL;
    const int lead = shape.ndim - t->ndim;
    if (lead < 0) {
        return tgi_no_tensor(
            tgi_fail(c.S, TG_ERR_SHAPE, "expand",
                     "the number of sizes provided (%d) must be greater or equal to the number of dimensions "
                     "in the tensor (%d)",
                     shape.ndim, t->ndim));
    }
    for (int i = shape.ndim - 1; i >= 0; --i) {
        int64_t have = i >= lead ? t->dim[i - lead] : 1;
        if (shape.dim[i] == -1 && i < lead) {
            return tgi_no_tensor(tgi_fail(
                c.S, TG_ERR_SHAPE, "expand",
                "The expanded size of the tensor (-1) isn't allowed in a leading, non-existing dimension %d", i));
        }
        if (shape.dim[i] == -1) shape.dim[i] = have;
        if (shape.dim[i] < 0 || (have != shape.dim[i] && have != 1)) {
            return tgi_no_tensor(
                tgi_fail(c.S, TG_ERR_SHAPE, "expand",
                         "The expanded size of the tensor (%lld) must match the existing size (%lld) at "
                         "non-singleton dimension %d.  Target sizes: %s.  Tensor sizes: %s",
                         (long long)shape.dim[i], (long long)have, i, tgi_dims_text(shape.ndim, shape.dim).text,
                         tgi_shape_text(t).text));
        }
        strides[i] = i < lead || (have == 1 && shape.dim[i] != 1) ? 0 : t->stride[i - lead];
    }
    if (!tgi_check_shape(c.S, "expand", shape.ndim, shape.dim, &numel)) return NULL;
    return tgi_run_view(&c, shape.ndim, shape.dim, strides, t->offset);
}

static bool tgi_rule_expand(tgi_step *step, tg_tensor *g)
{
    tg_shape shape = tgi_input_shape(step, 0);
    return tgi_set_input_grad(step, 0, tgi_sum_to(g, shape.ndim, shape.dim));
}

/* The reduction of t over the dims whose bit is set in mask, into y, which is contiguous. */
static tgi_reduce tgi_reduce_over(tgi_reduction kind, const tg_tensor *y, const tg_tensor *t, int mask)
{
    tgi_reduce r;
    r.kind = kind;
    r.ndim = r.rndim = 0;
    r.out = tgi_operand_of(y);
    r.in = tgi_operand_of(t);
    for (int i = 0; i < t->ndim; ++i) {
        if (mask >> i & 1) {
            r.rdim[r.rndim] = t->dim[i];
            r.rstride[r.rndim++] = t->stride[i];
        } else {
            r.dim[r.ndim] = t->dim[i];
            r.in.stride[r.ndim++] = t->stride[i];
        }
    }
    tgi_contiguous_strides(r.ndim, r.dim, r.out.stride);
    return r;
}

/* y := t summed over the dims that y lacks or has with size 1 */
static bool tgi_sum_to_kernel(tgi_call *c, tg_tensor *y)
{
    const tg_tensor *t = c->in[0];
    const int lead = t->ndim - y->ndim;
    int mask = 0;
    for (int i = 0; i < t->ndim; ++i) {
        if (i < lead || (y->dim[i - lead] == 1 && t->dim[i] != 1)) mask |= 1 << i;
    }
    const tgi_reduce r = tgi_reduce_over(TGI_SUM, y, t, mask);
    return c->backend->reduce(c->S, &r);
}

/* The adjoint of expand: t summed to the shape dims, which broadcasts to t's. */
static tg_tensor *tgi_sum_to(tg_tensor *t, int ndim, const int64_t *dims)
{
    tgi_call c;
    if (!t || tgi_same_shape(t, ndim, dims)) return t;
    if (!tgi_op_begin1(&c, TGI_OP_sum_to, t)) return NULL;
    return tgi_run(&c, tg_make_shape(ndim, dims), (tg_dtype)t->dtype, tgi_sum_to_kernel);
}

static bool tgi_rule_sum_to(tgi_step *step, tg_tensor *g)
{
    return tgi_set_input_grad(step, 0, tg_expand(g, tgi_input_shape(step, 0)));
}

static bool tgi_clone_kernel(tgi_call *c, tg_tensor *y)
{
    tgi_preserve_strides(y, c->in[0]);
    return tgi_copy_elements(c->S, y, c->in[0]);
}

tg_tensor *tg_clone(tg_tensor *t)
{
    tgi_call c;
    if (!tgi_op_begin1(&c, TGI_OP_clone, t)) return NULL;
    return tgi_run(&c, tgi_shape_of(t), (tg_dtype)t->dtype, tgi_clone_kernel);
}

static bool tgi_rule_clone(tgi_step *step, tg_tensor *g) { return tgi_set_input_grad(step, 0, g); }

static bool tgi_copy_kernel(tgi_call *c, tg_tensor *y) { return tgi_copy_elements(c->S, y, c->in[0]); }

tg_tensor *tg_contiguous(tg_tensor *t)
{
    tgi_call c;
    if (!tgi_argument(tgi_self(), "contiguous", "t", t)) return NULL;
    if (tgi_is_contiguous(t)) return t;
    if (!tgi_op_begin1_as(&c, "contiguous", TGI_OP_clone, t)) return NULL;
    return tgi_run(&c, tgi_shape_of(t), (tg_dtype)t->dtype, tgi_copy_kernel);
}

/* ---- views of a part: slice, select, diagonal, unfold.  params: dim, i start, j step; diagonal: dim, flag (the second
   dim), i offset ---- */

/* out := the strides of the view of a tensor whose strides are `in`; returns the offset of its first element. */
static int64_t tgi_part_strides(int op, const tgi_op_params *a, int ndim, const int64_t *in, int64_t *out)
{
    int n = 0;
    for (int i = 0; i < ndim; ++i) {
        if (op == TGI_OP_select && i == a->dim) continue;
        if (op == TGI_OP_diagonal && (i == a->dim || i == a->flag)) continue;
        out[n++] = in[i] * (i == a->dim && (op == TGI_OP_slice || op == TGI_OP_unfold) ? a->j : 1);
    }
    if (op == TGI_OP_unfold) out[n] = in[a->dim];
    if (op == TGI_OP_diagonal) {
        out[n] = in[a->dim] + in[a->flag];
        return a->i >= 0 ? a->i * in[a->flag] : -a->i * in[a->dim];
    }
    return op == TGI_OP_unfold ? 0 : a->i * in[a->dim];
}

static tg_tensor *tgi_part_view(tgi_call *c, int op, tg_tensor *t, int ndim, const int64_t *dims)
{
    int64_t strides[TG_MAX_DIMS], offset = tgi_part_strides(op, &c->params, t->ndim, t->stride, strides);
    c->has_params = true;
    return tgi_run_view(c, ndim, dims, strides, t->offset + offset);
}

/* The gradient of t is g at the view, 0 elsewhere. */
static bool tgi_part_rule(tgi_step *step, tg_tensor *g, int op)
{
    tg_shape in = tgi_input_shape(step, 0);
    tgi_view_info v;
    v.base_ndim = in.ndim;
    memcpy(v.base_dim, in.dim, sizeof in.dim);
    tgi_contiguous_strides(in.ndim, in.dim, v.base_stride);
    v.ndim = g->ndim;
    memcpy(v.dim, g->dim, sizeof(int64_t) * g->ndim);
    memset(v.stride, 0, sizeof v.stride); /* if g has no elements, the strides and the offset are 0 */
    v.offset = tgi_numel(g) ? tgi_part_strides(op, step->params, in.ndim, v.base_stride, v.stride) : 0;
    return tgi_set_input_grad(step, 0, tgi_strided_add(g, &v));
}

static bool tgi_rule_slice(tgi_step *step, tg_tensor *g) { return tgi_part_rule(step, g, TGI_OP_slice); }
static bool tgi_rule_select(tgi_step *step, tg_tensor *g) { return tgi_part_rule(step, g, TGI_OP_select); }
static bool tgi_rule_diagonal(tgi_step *step, tg_tensor *g) { return tgi_part_rule(step, g, TGI_OP_diagonal); }
static bool tgi_rule_unfold(tgi_step *step, tg_tensor *g) { return tgi_part_rule(step, g, TGI_OP_unfold); }

/* Makes dim non-negative; it must be one of t's, which must have some. */
static bool tgi_check_dim(tgi_call *c, const tg_tensor *t, int *dim)
{
    if (t->ndim == 0)
        return tgi_fail(c->S, TG_ERR_SHAPE, c->name, "this function cannot be applied to a 0-dim tensor.");
    return tgi_wrap_dim(c->S, c->name, t->ndim, dim);
}

/* `size` elements of input 0 along dim, from start on, `step` apart. */
static tg_tensor *tgi_slice_view(tgi_call *c, int dim, int64_t start, int64_t size, int64_t step)
{
    tg_tensor *t = c->in[0];
    tg_shape shape = tgi_shape_of(t);
    shape.dim[dim] = size;
    c->params.dim = dim;
    c->params.i = start;
    c->params.j = size > 1 ? step : 1;
    return tgi_part_view(c, TGI_OP_slice, t, shape.ndim, shape.dim);
}

tg_tensor *tg_slice(tg_tensor *t, int dim, int64_t start, int64_t end, int64_t step)
{
    tgi_call c;
    if (!tgi_op_begin1(&c, TGI_OP_slice, t) || !tgi_check_dim(&c, t, &dim)) return NULL;
    if (step <= 0) return tgi_no_tensor(tgi_fail(c.S, TG_ERR_ARGUMENT, "slice", "slice step must be positive"));
    const int64_t size = t->dim[dim];
    start = start < 0 ? start + size : start;
    end = end < 0 ? end + size : end;
    start = start < 0 ? 0 : start > size ? size : start;
    end = end < start ? start : end > size ? size : end;
    return tgi_slice_view(&c, dim, start, (end - start) / step + ((end - start) % step != 0), step);
}

tg_tensor *tg_narrow(tg_tensor *t, int dim, int64_t start, int64_t length)
{
    tgi_call c;
    if (!tgi_op_begin1_as(&c, "narrow", TGI_OP_slice, t)) return NULL;
    if (t->ndim == 0) {
        return tgi_no_tensor(tgi_fail(c.S, TG_ERR_SHAPE, "narrow", "narrow() cannot be applied to a 0-dim tensor."));
    }
    if (!tgi_wrap_dim(c.S, "narrow", t->ndim, &dim)) return NULL;
    if (length < 0)
        return tgi_no_tensor(tgi_fail(c.S, TG_ERR_ARGUMENT, "narrow", "narrow(): length must be non-negative."));
    if (start < -t->dim[dim] || start > t->dim[dim]) {
        return tgi_no_tensor(tgi_fail(c.S, TG_ERR_ARGUMENT, "narrow",
                                      "start out of range (expected to be in range of [%lld, %lld], but got %lld)",
                                      -(long long)t->dim[dim], (long long)t->dim[dim], (long long)start));
    }
    if (start < 0) start += t->dim[dim];
    if (length > t->dim[dim] - start) {
        return tgi_no_tensor(tgi_fail(c.S, TG_ERR_ARGUMENT, "narrow",
                                      "start (%lld) + length (%lld) exceeds dimension size (%lld).", (long long)start,
                                      (long long)length, (long long)t->dim[dim]));
    }
    return tgi_slice_view(&c, dim, start, length, 1);
}

tg_tensor *tg_select(tg_tensor *t, int dim, int64_t index)
{
    tgi_call c;
    int64_t dims[TG_MAX_DIMS];
    int n = 0;
    if (!tgi_op_begin1(&c, TGI_OP_select, t)) return NULL;
    if (t->ndim == 0) {
        return tgi_no_tensor(tgi_fail(c.S, TG_ERR_SHAPE, "select", "select() cannot be applied to a 0-dim tensor."));
    }
    if (!tgi_wrap_dim(c.S, "select", t->ndim, &dim)) return NULL;
    if (index < -t->dim[dim] || index >= t->dim[dim]) {
        return tgi_no_tensor(tgi_fail(c.S, TG_ERR_ARGUMENT, "select",
                                      "index %lld out of range for tensor of size %s at dimension %d", (long long)index,
                                      tgi_shape_text(t).text, dim));
    }
    for (int i = 0; i < t->ndim; ++i) {
        if (i != dim) dims[n++] = t->dim[i];
    }
    c.params.dim = dim;
    c.params.i = index < 0 ? index + t->dim[dim] : index;
    return tgi_part_view(&c, TGI_OP_select, t, n, dims);
}

tg_tensor *tg_diagonal(tg_tensor *t, int64_t offset, int dim0, int dim1)
{
    tgi_call c;
    int64_t dims[TG_MAX_DIMS];
    int n = 0;
    if (!tgi_op_begin1(&c, TGI_OP_diagonal, t) || !tgi_wrap_dim(c.S, "diagonal", t->ndim, &dim0) ||
        !tgi_wrap_dim(c.S, "diagonal", t->ndim, &dim1)) {
        return NULL;
    }
    if (dim0 == dim1 || t->ndim < 2) {
        return tgi_no_tensor(
            tgi_fail(c.S, TG_ERR_SHAPE, "diagonal", "diagonal dimensions cannot be identical %d, %d", dim0, dim1));
    }
    const int64_t rows = t->dim[dim0] + (offset < 0 ? (offset < -t->dim[dim0] ? -t->dim[dim0] : offset) : 0);
    const int64_t cols = t->dim[dim1] - (offset > 0 ? (offset > t->dim[dim1] ? t->dim[dim1] : offset) : 0);
    const int64_t length = rows < cols ? rows : cols;
    for (int i = 0; i < t->ndim; ++i) {
        if (i != dim0 && i != dim1) dims[n++] = t->dim[i];
    }
    dims[n++] = length;
    c.params.dim = dim0;
    c.params.flag = dim1;
    c.params.i = length ? offset : 0;
    return tgi_part_view(&c, TGI_OP_diagonal, t, n, dims);
}

tg_tensor *tg_unfold(tg_tensor *t, int dim, int64_t size, int64_t step)
{
    tgi_call c;
    tgi_composite inner;
    int64_t dims[TG_MAX_DIMS + 1], numel;
    if (tgi_usable(tgi_self(), t) && t->ndim == 0 && dim >= -1 && dim <= 0) { /* as one of size 1: its only window */
        if (!tgi_composite_begin(&inner, "unfold")) return NULL;
        t = tg_unfold(tg_unsqueeze(t, 0), 0, size, step);
        return tgi_composite_end(&inner, t ? tg_select(t, 0, 0) : NULL);
    }
    if (!tgi_op_begin1(&c, TGI_OP_unfold, t) || !tgi_check_dim(&c, t, &dim)) return NULL;
    if (t->ndim == TG_MAX_DIMS)
        return tgi_no_tensor(tgi_fail(c.S, TG_ERR_SHAPE, "unfold", "a tensor has at most 8 dims"));
    if (size < 0)
        return tgi_no_tensor(
            tgi_fail(c.S, TG_ERR_ARGUMENT, "unfold", "size is %lld but must be >= 0", (long long)size));
    if (size > t->dim[dim]) {
        return tgi_no_tensor(tgi_fail(c.S, TG_ERR_ARGUMENT, "unfold",
                                      "maximum size for tensor at dimension %d is %lld but size is %lld", dim,
                                      (long long)t->dim[dim], (long long)size));
    }
    if (step <= 0)
        return tgi_no_tensor(tgi_fail(c.S, TG_ERR_ARGUMENT, "unfold", "step is %lld but must be > 0", (long long)step));
    memcpy(dims, t->dim, sizeof(int64_t) * t->ndim);
    dims[dim] = (t->dim[dim] - size) / step + 1;
    dims[t->ndim] = size;
    if (!tgi_check_shape(c.S, "unfold", t->ndim + 1, dims, &numel)) return NULL;
    c.params.dim = dim;
    c.params.j = dims[dim] > 1 ? step : 1;
    c.params.i = 0;
    return tgi_part_view(&c, TGI_OP_unfold, t, t->ndim + 1, dims);
}

/* -------- @@WRITE ------------------------------------------------------------------------------------------------- */

/* ---- writing: fill_, zero_, copy_, set ---- */

static bool tgi_fill_kernel(tgi_call *c, tg_tensor *t) { return tgi_fill_elements(c->S, t, c->params.s); }

static tg_tensor *tgi_fill(const char *name, tg_tensor *t, double value)
{
    tgi_call c;
    if (!tgi_op_begin1_as(&c, name, TGI_OP_fill_, t)) return NULL;
    if (!tgi_check_value(c.S, name, (tg_dtype)t->dtype, value)) return NULL;
    c.params.s = value;
    return tgi_run_in_place(&c, tgi_fill_kernel);
}

static bool tgi_rule_fill_(tgi_step *step, tg_tensor *g) { return tgi_set_input_grad(step, 0, tg_zeros_like(g)); }

tg_tensor *tg_fill_(tg_tensor *t, double value) { return tgi_fill("fill_", t, value); }
tg_tensor *tg_zero_(tg_tensor *t) { return tgi_fill("zero_", t, 0); }

static bool tgi_broadcast_copy_kernel(tgi_call *c, tg_tensor *dst)
{
    tgi_loop loop = tgi_loop_over(dst);
    loop.nargs = 2;
    tgi_operand_broadcast(&loop.arg[1], c->in[1], dst->ndim);
    return c->backend->copy(c->S, &loop);
}

/* dst := src, which is on the same device and does not overlap it. */
static tg_tensor *tgi_copy_from(tg_tensor *dst, tg_tensor *src)
{
    tgi_call c;
    tg_shape shape;
    if (!src || !tgi_op_begin2(&c, TGI_OP_copy_, dst, src)) return NULL;
    if (!tgi_broadcast_inputs(&c, &shape) || !tgi_check_target_shape(&c, dst, &shape)) return NULL;
    return tgi_run_in_place(&c, tgi_broadcast_copy_kernel);
}

tg_tensor *tg_copy_(tg_tensor *dst, tg_tensor *src)
{
    tgi_composite c;
    tg_tensor *from = src;
    if (!tgi_arguments(tgi_self(), "copy_", "dst,src", dst, src)) return NULL;
    if (dst == src || (dst->storage == src->storage && dst->offset == src->offset && dst->dtype == src->dtype &&
                       tgi_same_shape(dst, src->ndim, src->dim) && tgi_same_layout(dst, src))) {
        return dst;
    }
    if (!tgi_composite_begin(&c, "copy_")) return NULL;
    if (!tgi_same_place(src, dst)) from = tg_to(src, tgi_device_of(dst));
    else if (tgi_overlaps(dst, src)) from = tg_clone(src);
    dst = tgi_copy_from(dst, from);
    tgi_composite_end(&c, NULL);
    return dst;
}

static bool tgi_rule_copy_(tgi_step *step, tg_tensor *g)
{
    return (!tgi_input_needs_grad(step, 0) || tgi_set_input_grad(step, 0, tg_zeros_like(g))) &&
           (!tgi_input_needs_grad(step, 1) || tgi_set_input_grad(step, 1, g));
}

tg_status tg_set(tg_tensor *t, tg_shape index, double value)
{
    tgi_thread *S = tgi_self();
    tgi_composite c;
    int64_t at;
    if (!tgi_locate(S, "set", t, index, &at) || !tgi_composite_begin(&c, "set")) return tgi_failed(S);
    for (int i = 0; t && i < index.ndim; ++i) t = tg_select(t, 0, index.dim[i]);
    t = tg_fill_(t, value);
    tgi_composite_end(&c, NULL);
    return t ? TG_OK : tgi_failed(S);
}

/* -------- @@JOIN -------------------------------------------------------------------------------------------------- */

/* ---- cat and stack ---- */

/* cat skips tensors of shape [0] whatever the other shapes are, as PyTorch does for old programs. */
static bool tgi_is_legacy_empty(const tg_tensor *t) { return t->ndim == 1 && t->dim[0] == 0; }

/* shape := that of the tensors joined along dim, which is made non-negative; checks that they fit. */
static bool tgi_cat_shape(tgi_thread *S, tg_tensor *const *in, int n, int *dim, tg_shape *shape)
{
    int first = 0;
    int64_t total = 0;
    while (first < n - 1 && tgi_is_legacy_empty(in[first])) first++;
    *shape = tg_make_shape(in[first]->ndim, in[first]->dim);
    for (int i = 0; i < n; ++i) {
        if (in[i]->ndim == 0) {
            return tgi_fail(S, TG_ERR_SHAPE, "cat", "zero-dimensional tensor (at position %d) cannot be concatenated",
                            i);
        }
    }
    if (!tgi_wrap_dim(S, "cat", shape->ndim, dim)) return false;
    for (int i = 0; i < n; ++i) {
        if (tgi_is_legacy_empty(in[i])) continue;
        if (in[i]->ndim != shape->ndim) {
            return tgi_fail(S, TG_ERR_SHAPE, "cat", "Tensors must have same number of dimensions: got %d and %d",
                            shape->ndim, in[i]->ndim);
        }
        for (int k = 0; k < shape->ndim; ++k) {
            if (k == *dim || in[i]->dim[k] == shape->dim[k]) continue;
            return tgi_fail(S, TG_ERR_SHAPE, "cat",
                            "Sizes of tensors must match except in dimension %d. Expected size %lld but got size "
                            "%lld for tensor number %d in the list.",
                            *dim, (long long)shape->dim[k], (long long)in[i]->dim[k], i);
        }
        if (total > INT64_MAX - in[i]->dim[*dim]) return tgi_fail(S, TG_ERR_SHAPE, "cat", "the joined size overflows");
        total += in[i]->dim[*dim];
    }
    shape->dim[*dim] = total;
    return true;
}

/* Copies each input into its slice of y.  params: dim, list (the size of each slice, -1 for a skipped input) */
static bool tgi_cat_kernel(tgi_call *c, tg_tensor *y)
{
    int64_t start = 0;
    for (int i = 0; i < c->nin; ++i) {
        if (c->params.list[i] < 0) continue;
        tgi_operand slice = tgi_operand_of(y);
        tgi_operand_skip(&slice, c->params.dim, start);
        const tgi_loop loop = tgi_loop_from_to(c->in[i], tgi_operand_of(c->in[i]), slice);
        if (!c->backend->copy(c->S, &loop)) return false;
        start += c->params.list[i];
    }
    return true;
}

tg_tensor *tg_cat(tg_tensor *const *tensors, int n, int dim)
{
    tgi_call c;
    tg_shape shape;
    if (!tensors && n > 0) return tgi_no_tensor(tgi_null_argument(tgi_self(), "cat", "tensors"));
    if (n <= 0)
        return tgi_no_tensor(tgi_fail(tgi_self(), TG_ERR_ARGUMENT, "cat", "expected a non-empty list of Tensors"));
    if (!tgi_op_begin(&c, TGI_OP_cat, tensors, n) || !tgi_cat_shape(c.S, tensors, n, &dim, &shape)) return NULL;
    const size_t bytes = sizeof(int64_t) * (size_t)n;
    int64_t *sizes = (int64_t *)tgi_alloc(c.S, bytes);
    if (!sizes) return tgi_no_tensor(tgi_no_memory(c.S, "cat", bytes));
    for (int i = 0; i < n; ++i) sizes[i] = tgi_is_legacy_empty(tensors[i]) ? -1 : tensors[i]->dim[dim];
    tgi_params(&c)->dim = dim;
    c.params.list = sizes;
    c.params.listed = n;
    tg_tensor *y = tgi_run(&c, shape, tgi_result_dtype(tensors, n), tgi_cat_kernel);
    tgi_free(c.S, sizes, bytes);
    return y;
}

static bool tgi_rule_cat(tgi_step *step, tg_tensor *g)
{
    const tgi_op_params *a = step->params;
    int64_t start = 0;
    for (int i = 0; i < a->listed; ++i) {
        int64_t size = a->list[i];
        if (tgi_input_needs_grad(step, i)) {
            tg_tensor *part = size < 0 ? tg_slice(tg_flatten(g, 0, -1), 0, 0, 0, 1) : tg_narrow(g, a->dim, start, size);
            if (!tgi_set_input_grad(step, i, part)) return false;
        }
        start += size < 0 ? 0 : size;
    }
    return true;
}

tg_tensor *tg_stack(tg_tensor *const *tensors, int n, int dim)
{
    tgi_thread *S = tgi_self();
    tgi_composite c;
    tg_tensor **in;
    size_t bytes = SIZE_MAX;
    int i;
    if (!tensors && n > 0) return tgi_no_tensor(tgi_null_argument(S, "stack", "tensors"));
    if (n <= 0) return tgi_no_tensor(tgi_fail(S, TG_ERR_ARGUMENT, "stack", "stack expects a non-empty TensorList"));
    if (!tgi_argument_list(S, "stack", "tensors", tensors, n, n)) return NULL;
    for (i = 0; i < n; ++i) {
        if (!tgi_same_shape(tensors[i], tensors[0]->ndim, tensors[0]->dim)) {
            return tgi_no_tensor(
                tgi_fail(S, TG_ERR_SHAPE, "stack",
                         "stack expects each tensor to be equal size, but got %s at entry 0 and %s at entry %d",
                         tgi_shape_text(tensors[0]).text, tgi_shape_text(tensors[i]).text, i));
        }
    }
    if (!tgi_wrap_dim(S, "stack", tensors[0]->ndim + 1, &dim)) return NULL;
    if (!tgi_mul_size(sizeof *in, (size_t)n, &bytes) || !(in = (tg_tensor **)tgi_alloc(S, bytes))) {
        return tgi_no_tensor(tgi_no_memory(S, "stack", bytes));
    }
    tg_tensor *y = NULL;
    if (tgi_composite_begin(&c, "stack")) {
        for (i = 0; i < n && (in[i] = tg_unsqueeze(tensors[i], dim)) != NULL; ++i) {}
        y = tgi_composite_end(&c, i == n ? tg_cat(in, n, dim) : NULL);
    }
    tgi_free(S, in, bytes);
    return y;
}

/* ---- split, chunk, unbind: one call makes several views, the outputs of one node.  Writing to one of them in place is
   an error, as in PyTorch ---- */

/* Sets all entries of out to NULL, begins the op and checks its arguments. */
static bool tgi_begin_pieces(tgi_call *c, const char *name, int op, tg_tensor *t, int *dim, tg_tensor **out, int max)
{
    for (int i = 0; out && i < max; ++i) out[i] = NULL;
    if (!tgi_op_begin1_as(c, name, op, t)) return false;
    if (!out) return tgi_null_argument(c->S, name, "out");
    if (t->ndim == 0) {
        return tgi_fail(c->S, TG_ERR_SHAPE, name,
                        op == TGI_OP_unbind ? "Dimension specified as %.0s%d but tensor has no dimensions"
                                            : "%s expects at least a 1-dimensional tensor, which has a dim %d",
                        name, *dim);
    }
    return tgi_wrap_dim(c->S, name, t->ndim, dim);
}

/* Makes `count` views of t in out: of `size` elements along dim each (the last may have fewer), or, for unbind, without
   the dim.  Returns count, or 0 after recording an error. */
static int tgi_pieces(tgi_call *c, tg_tensor *t, int dim, int64_t size, int64_t count, tg_tensor **out, int max)
{
    const bool drops_dim = c->op == tgi_op_row(TGI_OP_unbind);
    int64_t dims[TG_MAX_DIMS], strides[TG_MAX_DIMS], start = 0, k;
    bool ok = true;
    int n = 0;
    if (count > max) {
        return tgi_fail(c->S, TG_ERR_ARGUMENT, c->name, "%lld pieces, but out has room for %d", (long long)count, max),
               0;
    }
    for (int i = 0; i < t->ndim; ++i) {
        if (drops_dim && i == dim) continue;
        dims[n] = t->dim[i];
        strides[n++] = t->stride[i];
    }
    tgi_params(c)->dim = dim;
    c->out = out;
    for (k = 0; ok && k < count; ++k, start += size) {
        const int64_t rest = t->dim[dim] - start;
        tg_tensor *piece;
        if (!drops_dim) dims[dim] = rest < size ? rest : size;
        piece = tgi_view_of(c, t, n, dims, strides, t->offset + start * t->stride[dim]);
        if (piece) piece->flags |= TGI_MULTI_VIEW;
        ok = piece != NULL;
    }
    if (count == 0) return 0;
    return tgi_op_end(c, ok) ? (int)count : 0;
}

/* The gradients of the pieces, joined; step->grad has zeros for those without one. */
static bool tgi_rule_split(tgi_step *step, tg_tensor *g)
{
    (void)g;
    return tgi_set_input_grad(step, 0, tg_cat(step->grad, step->node->outputs, step->params->dim));
}

static bool tgi_rule_unbind(tgi_step *step, tg_tensor *g)
{
    (void)g;
    return tgi_set_input_grad(step, 0, tg_stack(step->grad, step->node->outputs, step->params->dim));
}

int tg_split(tg_tensor *t, int64_t size, int dim, tg_tensor **out, int max)
{
    tgi_call c;
    if (!tgi_begin_pieces(&c, "split", TGI_OP_split, t, &dim, out, max)) return 0;
    const int64_t total = t->dim[dim];
    if (size < 0 || (size == 0 && total != 0)) {
        tgi_fail(c.S, TG_ERR_ARGUMENT, "split",
                 size < 0 ? "split expects split_size be non-negative, but got split_size=%lld"
                          : "split_size can only be 0 if dimension size is 0, but got dimension size of %lld",
                 (long long)(size < 0 ? size : total));
        return 0;
    }
    const int64_t count = total ? total / size + (total % size != 0) : 1;
    return tgi_pieces(&c, t, dim, size, count, out, max);
}

int tg_chunk(tg_tensor *t, int64_t chunks, int dim, tg_tensor **out, int max)
{
    tgi_call c;
    if (!tgi_begin_pieces(&c, "chunk", TGI_OP_split, t, &dim, out, max)) return 0;
    if (chunks <= 0) {
        return tgi_fail(c.S, TG_ERR_ARGUMENT, "chunk", "chunk expects `chunks` to be greater than 0, got: %lld",
                        (long long)chunks),
               0;
    }
    const int64_t total = t->dim[dim];
    const int64_t size = total / chunks + (total % chunks != 0);
    return tgi_pieces(&c, t, dim, size, total ? total / size + (total % size != 0) : chunks, out, max);
}

int tg_unbind(tg_tensor *t, int dim, tg_tensor **out, int max)
{
    tgi_call c;
    if (!tgi_begin_pieces(&c, "unbind", TGI_OP_unbind, t, &dim, out, max)) return 0;
    return tgi_pieces(&c, t, dim, 1, t->dim[dim], out, max);
}

/* ---- copies in another order: flip, pad, repeat, roll, tril ---- */

/* y := t read backwards, from the last element on, along the dims of params.list */
static bool tgi_flip_kernel(tgi_call *c, tg_tensor *y)
{
    const tg_tensor *t = c->in[0];
    tgi_operand from = tgi_operand_of(t);
    for (int i = 0; i < c->params.listed; ++i) {
        const int dim = (int)c->params.list[i];
        if (t->ndim == 0 || t->dim[dim] == 0) continue;
        tgi_operand_skip(&from, dim, t->dim[dim] - 1);
        from.stride[dim] = -t->stride[dim];
    }
    const tgi_loop loop = tgi_loop_from_to(y, from, tgi_operand_of(y));
    return c->backend->copy(c->S, &loop);
}

tg_tensor *tg_flip(tg_tensor *t, tg_shape dims)
{
    tgi_call c;
    if (!tgi_op_begin1(&c, TGI_OP_flip, t) || !tgi_wrap_dims(c.S, "flip", t, &dims)) return NULL;
    tgi_params(&c)->listed = dims.ndim;
    memcpy(c.numbers, dims.dim, sizeof(int64_t) * (size_t)dims.ndim);
    return tgi_run(&c, tgi_shape_of(t), (tg_dtype)t->dtype, tgi_flip_kernel);
}

static bool tgi_rule_flip(tgi_step *step, tg_tensor *g)
{
    return tgi_set_input_grad(step, 0, tg_flip(g, tg_make_shape(step->params->listed, step->params->list)));
}

/* Where t is in the padded tensor y: along a dim, elements [to, to + size) of y are [from, from + size) of t. */
typedef struct { int64_t to, from, size; } tgi_pad_span;

static bool tgi_pad_spans(tgi_call *c, const tg_tensor *t, tg_shape pads, int64_t *dims, tgi_pad_span *span)
{
    if (pads.ndim % 2 || pads.ndim / 2 > t->ndim) {
        return tgi_fail(c->S, TG_ERR_SHAPE, "pad",
                        pads.ndim % 2
                            ? "Padding length must be divisible by 2, got %d"
                            : "Padding length should be less than or equal to two times the input dimension, got %d",
                        pads.ndim);
    }
    for (int i = 0; i < t->ndim; ++i) {
        int k = 2 * (t->ndim - 1 - i);
        int64_t before = k < pads.ndim ? pads.dim[k] : 0, after = k < pads.ndim ? pads.dim[k + 1] : 0, n = t->dim[i];
        int64_t limit = INT64_MAX / 8;
        if (before > limit || before < -limit || after > limit || after < -limit || n + before + after < 0) {
            return tgi_fail(c->S, TG_ERR_SHAPE, "pad",
                            "The input size %lld, plus negative padding %lld and %lld, resulted in a "
                            "negative output size",
                            (long long)n, (long long)before, (long long)after);
        }
        dims[i] = n + before + after;
        span[i].to = before > 0 ? before : 0;
        span[i].from = before < 0 ? -before : 0;
        span[i].size = n + (before < 0 ? before : 0) + (after < 0 ? after : 0);
        if (span[i].size < 0) {
            return tgi_fail(c->S, TG_ERR_SHAPE, "pad",
                            "narrow(): length must be non-negative.\n"
                            "negative padding %lld and %lld takes more than the %lld there are",
                            (long long)before, (long long)after, (long long)n);
        }
    }
    return true;
}

tg_tensor *tg_pad(tg_tensor *t, tg_shape pads, double value)
{
    tgi_call c;
    tgi_pad_span span[TG_MAX_DIMS];
    int64_t dims[TG_MAX_DIMS];
    if (!tgi_op_begin1(&c, TGI_OP_pad, t) || !tgi_shape_argument(c.S, "pad", "pads", &pads) ||
        !tgi_pad_spans(&c, t, pads, dims, span) || !tgi_check_value(c.S, "pad", (tg_dtype)t->dtype, value)) {
        return NULL;
    }
    tgi_params(&c)->listed = pads.ndim;
    memcpy(c.numbers, pads.dim, sizeof(int64_t) * (size_t)pads.ndim);
    tg_tensor *y = tgi_output(&c, t->ndim, dims, (tg_dtype)t->dtype);
    if (!y) return NULL;
    tgi_loop loop = tgi_loop_from_to(y, tgi_operand_of(t), tgi_operand_of(y));
    for (int i = 0; i < t->ndim; ++i) {
        loop.dim[i] = span[i].size;
        tgi_operand_skip(&loop.arg[0], i, span[i].to);
        tgi_operand_skip(&loop.arg[1], i, span[i].from);
    }
    return tgi_op_end(&c, tgi_fill_elements(c.S, y, value) && c.backend->copy(c.S, &loop));
}

/* The gradient is cropped where t was padded, and padded where it was cropped. */
static bool tgi_rule_pad(tgi_step *step, tg_tensor *g)
{
    tg_shape back = tg_make_shape(step->params->listed, step->params->list);
    for (int i = 0; i < back.ndim; ++i) back.dim[i] = -back.dim[i];
    return tgi_set_input_grad(step, 0, tg_pad(g, back, 0));
}

static bool tgi_check_repeat(tgi_thread *S, const tg_tensor *t, const tg_shape *counts)
{
    tg_shape shape = *counts; /* of the result */
    int64_t numel;
    if (!tgi_shape_argument(S, "repeat", "counts", counts)) return false;
    const int lead = counts->ndim - t->ndim;
    if (lead < 0) {
        return tgi_fail(S, TG_ERR_SHAPE, "repeat",
                        "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor");
    }
    if (!tgi_check_shape(S, "repeat", counts->ndim, counts->dim, &numel)) return false;
    for (int i = 0; i < counts->ndim; ++i) {
        const int64_t size = i < lead ? 1 : t->dim[i - lead];
        shape.dim[i] = size && counts->dim[i] > INT64_MAX / size ? INT64_MAX : size * counts->dim[i];
    }
    return tgi_check_shape(S, "repeat", shape.ndim, shape.dim, &numel);
}

tg_tensor *tg_repeat(tg_tensor *t, tg_shape counts)
{
    tgi_composite c;
    if (!tgi_composite_begin_with(&c, "repeat", "t", t)) return NULL;
    if (!tgi_check_repeat(c.S, t, &counts)) return tgi_composite_end(&c, NULL);
    const int lead = counts.ndim - t->ndim;
    tg_shape shape = counts;
    for (int i = 0; i < counts.ndim; ++i) shape.dim[i] = i < lead ? 1 : t->dim[i - lead];
    tg_tensor *y = tg_reshape(t, shape);
    for (int i = 0; y && i < counts.ndim; ++i) { /* dim i: [outer, 1, inner] is expanded to [outer, count, inner] */
        int64_t outer = 1, inner = 1;
        if (counts.dim[i] == 1) continue;
        for (int k = 0; k < counts.ndim; ++k) {
            if (k < i) outer *= shape.dim[k];
            else inner *= shape.dim[k];
        }
        y = tg_expand(tg_reshape(y, TG_SHAPE(outer, 1, inner)), TG_SHAPE(outer, counts.dim[i], inner));
        shape.dim[i] *= counts.dim[i];
        y = tg_reshape(y, shape);
    }
    if (y && (y == t || y->storage == t->storage)) y = tg_clone(y);
    return tgi_composite_end(&c, y);
}

/* t with its elements moved by `shift` along one dim; t itself if none moves. */
static tg_tensor *tgi_roll_dim(tgi_thread *S, tg_tensor *t, int dim, int64_t shift)
{
    if (t->ndim == 0) {
        return tgi_no_tensor(
            tgi_fail(S, TG_ERR_SHAPE, "roll", "Dimension specified as %d but tensor has no dimensions", dim));
    }
    if (!tgi_wrap_dim(S, "roll", t->ndim, &dim)) return NULL;
    const int64_t n = t->dim[dim];
    if (n == 0 || shift % n == 0) return t;
    shift = shift % n + (shift < 0 ? n : 0);
    tg_tensor *last = tg_narrow(t, dim, n - shift, shift), *first = tg_narrow(t, dim, 0, n - shift);
    tg_tensor *parts[] = {last, first};
    return tg_cat(parts, 2, dim);
}

tg_tensor *tg_roll(tg_tensor *t, tg_shape shifts, tg_shape dims)
{
    tgi_composite c;
    if (!tgi_composite_begin_with(&c, "roll", "t", t)) return NULL;
    if (!tgi_shape_argument(c.S, "roll", "shifts", &shifts) || !tgi_shape_argument(c.S, "roll", "dims", &dims))
        return tgi_composite_end(&c, NULL);
    if (shifts.ndim != dims.ndim || shifts.ndim == 0) {
        tgi_fail(c.S, TG_ERR_ARGUMENT, "roll", "shifts and dimensions must align. shifts: %d, dims:%d", shifts.ndim,
                 dims.ndim);
        return tgi_composite_end(&c, NULL);
    }
    tg_tensor *y = t;
    for (int i = 0; y && i < dims.ndim; ++i) y = tgi_roll_dim(c.S, y, tgi_int_dim(dims.dim[i]), shifts.dim[i]);
    return tgi_composite_end(&c, y == t ? tg_clone(t) : y);
}

/* t [.., rows, cols] with 0 to the right (or left) of the diagonal */
static tg_tensor *tgi_triangle(const char *op, tg_tensor *t, int64_t diagonal, bool lower)
{
    tgi_composite c;
    if (!tgi_composite_begin_with(&c, op, "t", t)) return NULL;
    if (t->ndim < 2) {
        tgi_fail(c.S, TG_ERR_SHAPE, op, "input tensor must have at least 2 dimensions");
        return tgi_composite_end(&c, NULL);
    }
    const int64_t rows = t->dim[t->ndim - 2], cols = t->dim[t->ndim - 1];
    const tg_device device = tgi_device_of(t);
    diagonal = diagonal > cols ? cols : diagonal < -rows - 1 ? -rows - 1 : diagonal; /* f64 holds it exactly */
    tg_tensor *row = tg_unsqueeze(tg_arange_on(0, (double)rows, 1, TG_I64, device), 1); /* [rows, 1] */
    tg_tensor *right = tg_sub(tg_arange_on(0, (double)cols, 1, TG_I64, device), row);    /* [rows, cols]: col - row */
    tg_tensor *zero = lower ? tg_gt_scalar(right, (double)diagonal) : tg_lt_scalar(right, (double)diagonal);
    return tgi_composite_end(&c, tg_masked_fill(t, zero, 0));
}

tg_tensor *tg_tril(tg_tensor *t, int64_t diagonal) { return tgi_triangle("tril", t, diagonal, true); }
tg_tensor *tg_triu(tg_tensor *t, int64_t diagonal) { return tgi_triangle("triu", t, diagonal, false); }

/* -------- @@REDUCE ------------------------------------------------------------------------------------------------ */

/* ---- reductions.  params: dim is the mask of the dims reduced over ---- */

/* The dims of a list as a mask; an empty list is all of them. */
static bool tgi_dims_mask(tgi_call *c, const tg_tensor *t, tg_shape dims, int *mask)
{
    *mask = dims.ndim ? 0 : (1 << t->ndim) - 1;
    if (!tgi_wrap_dims(c->S, c->name, t, &dims)) return false;
    for (int i = 0; i < dims.ndim && t->ndim; ++i) *mask |= 1 << dims.dim[i];
    return true;
}

/* The shape of t reduced over the dims of mask. */
static tg_shape tgi_reduced_shape(const tg_tensor *t, int mask, bool keepdim)
{
    tg_shape shape = TG_SCALAR;
    for (int i = 0; i < t->ndim; ++i) {
        if (!(mask >> i & 1)) shape.dim[shape.ndim++] = t->dim[i];
        else if (keepdim) shape.dim[shape.ndim++] = 1;
    }
    return shape;
}

/* How many elements become one. */
static int64_t tgi_reduced_count(const int64_t *dim, int ndim, int mask)
{
    int64_t n = 1;
    for (int i = 0; i < ndim; ++i) n *= mask >> i & 1 ? dim[i] : 1;
    return n;
}

/* A tensor reduced over mask, from shape `in`, with size 1 for the reduced dims, so that it broadcasts to `in`. */
static tg_tensor *tgi_with_dims(tg_tensor *t, tg_shape in, int mask)
{
    for (int i = 0; i < in.ndim; ++i) {
        if (mask >> i & 1) in.dim[i] = 1;
    }
    return tg_reshape(t, in);
}

/* The same in the rule of a reduction. */
TGI_NOINLINE static tg_tensor *tgi_step_dims(const tgi_step *step, tg_tensor *t)
{
    return tgi_with_dims(t, tgi_input_shape(step, 0), step->params->dim);
}

static tg_dtype tgi_sum_dtype(const tg_tensor *t)
{
    return tgi_dtypes[t->dtype].floating ? (tg_dtype)t->dtype : TG_I64;
}

/* params: dim (the mask), flag (the kind of reduction) */
static bool tgi_reduction_kernel(tgi_call *c, tg_tensor *y)
{
    const tgi_reduce r = tgi_reduce_over((tgi_reduction)c->params.flag, y, c->in[0], c->params.dim);
    return c->backend->reduce(c->S, &r);
}

/* A reduction by one kernel: sum, prod, amax, amin, any, all. */
static tg_tensor *tgi_reduction_op(const char *name, int op, tgi_reduction kind, tg_tensor *t, tg_shape dims,
                                   bool keepdim)
{
    tgi_call c;
    int mask;
    if (!tgi_op_begin1_as(&c, name, op, t) || !tgi_dims_mask(&c, t, dims, &mask)) return NULL;
    if ((kind == TGI_AMAX || kind == TGI_AMIN) && tgi_reduced_count(t->dim, t->ndim, mask) == 0) {
        return tgi_no_tensor(
            tgi_fail(c.S, TG_ERR_SHAPE, c.name,
                     dims.ndim ? "%s(): Expected reduction dim %d to have non-zero size."
                               : "%s(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
                                 "reduction dim with the 'dim' argument.",
                     c.op->name, dims.ndim ? (int)dims.dim[0] : 0));
    }
    tgi_params(&c)->dim = mask;
    c.params.flag = (int)kind;
    const tg_dtype dtype = kind == TGI_ANY || kind == TGI_ALL    ? TG_BOOL
                           : kind == TGI_SUM || kind == TGI_PROD ? tgi_sum_dtype(t)
                                                                 : (tg_dtype)t->dtype;
    return tgi_run(&c, tgi_reduced_shape(t, mask, keepdim), dtype, tgi_reduction_kernel);
}

/* The three public functions of a reduction: over all dims, one or several. */
#define TGI_REDUCTION(name, function, ...)                                                                             \
    tg_tensor *tg_##name(tg_tensor *t) { return function(#name, __VA_ARGS__, t, TG_SCALAR, false); }                   \
    tg_tensor *tg_##name##_dim(tg_tensor *t, int dim, bool keepdim)                                                    \
    {                                                                                                                  \
        return function(#name "_dim", __VA_ARGS__, t, TG_SHAPE(dim), keepdim);                                         \
    }                                                                                                                  \
    tg_tensor *tg_##name##_dims(tg_tensor *t, tg_shape dims, bool keepdim)                                             \
    {                                                                                                                  \
        return function(#name "_dims", __VA_ARGS__, t, dims, keepdim);                                                 \
    }
TGI_REDUCTION(sum, tgi_reduction_op, TGI_OP_sum, TGI_SUM)
TGI_REDUCTION(prod, tgi_reduction_op, TGI_OP_prod, TGI_PROD)
TGI_REDUCTION(amax, tgi_reduction_op, TGI_OP_amax, TGI_AMAX)
TGI_REDUCTION(amin, tgi_reduction_op, TGI_OP_amin, TGI_AMIN)
TGI_REDUCTION(any, tgi_reduction_op, TGI_OP_any, TGI_ANY)
TGI_REDUCTION(all, tgi_reduction_op, TGI_OP_all, TGI_ALL)

static bool tgi_rule_sum(tgi_step *step, tg_tensor *g)
{
    return tgi_set_input_grad(step, 0, tg_expand(tgi_step_dims(step, g), tgi_input_shape(step, 0)));
}

/* order := the dims that are not in mask, then those that are. */
static void tgi_mask_last(int ndim, int mask, int *order)
{
    int n = 0;
    for (int reduced = 0; reduced < 2; ++reduced) {
        for (int i = 0; i < ndim; ++i) {
            if ((mask >> i & 1) == reduced) order[n++] = i;
        }
    }
}

/* t with the dims of mask as one, the last: [other dims, count] */
static tg_tensor *tgi_rows_last(tg_tensor *t, int mask)
{
    int order[TG_MAX_DIMS];
    tg_shape shape = tgi_reduced_shape(t, mask, false);
    shape.dim[shape.ndim++] = tgi_reduced_count(t->dim, t->ndim, mask);
    tgi_mask_last(t->ndim, mask, order);
    t = tgi_permute(t, order);
    return tg_reshape(t, shape);
}

/* The inverse of tgi_rows_last: rows as a tensor of shape `in` */
static tg_tensor *tgi_rows_back(tg_tensor *rows, tg_shape in, int mask)
{
    int order[TG_MAX_DIMS], back[TG_MAX_DIMS];
    tg_shape shape = in;
    tgi_mask_last(in.ndim, mask, order);
    for (int i = 0; i < in.ndim; ++i) {
        shape.dim[i] = in.dim[order[i]];
        back[order[i]] = i;
    }
    rows = tg_reshape(rows, shape);
    return rows ? tgi_permute(rows, back) : NULL;
}

/* The product of x over the dims of mask, which stay with size 1; NULL for NULL. */
static tg_tensor *tgi_product_of(tg_tensor *x, int mask)
{
    if (!x) return NULL;
    return tgi_with_dims(tg_prod_dims(tgi_rows_last(x, mask), TG_DIMS(-1), false), tg_shape_of(x), mask);
}

/* g y / x; where x is 0, g times the product of the others, which is 0 if another one is 0.  It reads no value, so that
   a GPU need not be waited for; but where two are 0 its own derivative is not that of the product. */
static tg_tensor *tgi_prod_gradient(tg_tensor *g, tg_tensor *x, int mask)
{
    tg_tensor *zero = tg_eq_scalar(x, 0), *others;
    tg_tensor *zeros = zero ? tg_sum_dims(tgi_rows_last(zero, mask), TG_DIMS(-1), false) : NULL;
    if (!zeros) return NULL;
    zeros = tgi_with_dims(zeros, tg_shape_of(x), mask);
    others = tg_mul(tgi_product_of(tg_masked_fill(x, zero, 1), mask), tg_eq_scalar(zeros, 1));
    return tg_where(zero, tg_mul(g, others), tg_div(tg_mul(g, tgi_product_of(x, mask)), x));
}

/* With a graph of the gradient the result must be right when it is differentiated again: g y / x if x has no zeros;
   else g times the product of each row with its own element replaced by 1, which takes n times the memory. */
static bool tgi_rule_prod(tgi_step *step, tg_tensor *g)
{
    tg_tensor *x = tgi_saved_tensor(step, 0), *zero, *rows, *number, *others;
    tg_shape in = tgi_input_shape(step, 0);
    int mask = step->params->dim;
    int64_t n = tgi_reduced_count(in.dim, in.ndim, mask);
    g = tgi_step_dims(step, g);
    if (!tg_is_grad_enabled()) return tgi_set_input_grad(step, 0, tgi_prod_gradient(g, x, mask));
    zero = tg_any(tg_eq_scalar(x, 0));
    if (!zero || !g) return false;
    if (tg_item(zero) == 0) return tgi_set_input_grad(step, 0, tg_div(tg_mul(g, tgi_product_of(x, mask)), x));
    rows = tg_unsqueeze(tgi_rows_last(x, mask), -2); /* [.., 1, n] */
    number = tg_arange_on(0, (double)n, 1, TG_I64, tgi_device_of(x));
    others = tg_masked_fill(rows, tg_eq(number, tg_unsqueeze(number, 1)), 1); /* [.., n, n] */
    others = tgi_rows_back(tg_prod_dim(others, -1, false), in, mask);
    return tgi_set_input_grad(step, 0, tg_mul(g, others));
}

/* g divided among the elements that are equal to y, the extreme one.  If y is NaN: all get NaN, or (nan_shares) the NaN
   elements share g. */
static bool tgi_extreme_rule(tgi_step *step, tg_tensor *g, bool nan_shares)
{
    tg_tensor *x = tgi_saved_tensor(step, 0), *y = tgi_step_dims(step, tgi_saved_tensor(step, -1)), *hit, *count;
    hit = tg_eq(x, y);
    if (nan_shares) hit = tg_logical_or(hit, tg_logical_and(tg_isnan(x), tg_isnan(y)));
    hit = hit ? tg_to_dtype(hit, (tg_dtype)g->dtype) : NULL;
    count = hit ? tgi_step_dims(step, tg_sum_dims(tgi_rows_last(hit, step->params->dim), TG_DIMS(-1), false)) : NULL;
    return tgi_set_input_grad(step, 0, tg_mul(hit, tg_div(tgi_step_dims(step, g), count)));
}

static bool tgi_rule_amax(tgi_step *step, tg_tensor *g) { return tgi_extreme_rule(step, g, false); }
static bool tgi_rule_amin(tgi_step *step, tg_tensor *g) { return tgi_extreme_rule(step, g, false); }
static bool tgi_rule_max(tgi_step *step, tg_tensor *g) { return tgi_extreme_rule(step, g, true); }
static bool tgi_rule_min(tgi_step *step, tg_tensor *g) { return tgi_extreme_rule(step, g, true); }

tg_tensor *tg_max(tg_tensor *t) { return tgi_reduction_op("max", TGI_OP_max, TGI_AMAX, t, TG_SCALAR, false); }
tg_tensor *tg_min(tg_tensor *t) { return tgi_reduction_op("min", TGI_OP_min, TGI_AMIN, t, TG_SCALAR, false); }

static bool tgi_need_floating(tgi_thread *S, const char *op, const tg_tensor *t)
{
    if (tgi_dtypes[t->dtype].floating) return true;
    return tgi_fail(S, TG_ERR_DTYPE, op,
                    "could not infer output dtype. Input dtype must be either a floating point or complex dtype. "
                    "Got: %s\nconvert first: tg_to_dtype(t, TG_F32)",
                    tg_dtype_name((tg_dtype)t->dtype));
}

/* Begins an op that reduces floating point over dims; params.dim is their mask from here on. */
static bool tgi_begin_floating_reduction(tgi_call *c, const char *name, int op, tg_tensor *t, tg_shape dims)
{
    if (!tgi_op_begin1_as(c, name, op, t) || !tgi_need_floating(c->S, name, t)) return false;
    c->has_params = true;
    return tgi_dims_mask(c, t, dims, &c->params.dim);
}

/* y := t summed over the mask params.dim, divided by the count params.i; in f32 if t is a half. */
static bool tgi_mean_kernel(tgi_call *c, tg_tensor *y)
{
    const tg_tensor *t = c->in[0];
    tg_tensor *sum = tgi_is_half(t) ? tgi_new(c->S, c->name, y->ndim, y->dim, TG_F32, c->backend, c->index) : y;
    if (!sum) return false;
    const tgi_reduce r = tgi_reduce_over(TGI_SUM, sum, t, c->params.dim);
    tgi_loop divide = tgi_loop_from_to(y, tgi_operand_of(sum), tgi_operand_of(y));
    divide.kernel = TGI_OP_div_scalar;
    divide.compute = tgi_compute_dtype((tg_dtype)t->dtype);
    divide.scalar[0] = (double)c->params.i;
    const bool ok = c->backend->reduce(c->S, &r) && c->backend->map(c->S, &divide);
    if (sum != y) tgi_unref(c->S, sum);
    return ok;
}

static tg_tensor *tgi_mean(const char *name, int op, tg_tensor *t, tg_shape dims, bool keepdim)
{
    tgi_call c;
    if (!tgi_begin_floating_reduction(&c, name, op, t, dims)) return NULL;
    c.params.i = tgi_reduced_count(t->dim, t->ndim, c.params.dim);
    return tgi_run(&c, tgi_reduced_shape(t, c.params.dim, keepdim), (tg_dtype)t->dtype, tgi_mean_kernel);
}

static bool tgi_rule_mean(tgi_step *step, tg_tensor *g)
{
    tg_tensor *part = tg_div_scalar(tgi_step_dims(step, g), (double)step->params->i);
    return tgi_set_input_grad(step, 0, tg_expand(part, tgi_input_shape(step, 0)));
}

TGI_REDUCTION(mean, tgi_mean, TGI_OP_mean)

/* The variance: the mean first, then the squares of the differences, which loses no digits.  Divided by `degrees` (of
   freedom). */
static tg_tensor *tgi_variance(tg_tensor *t, tg_shape dims, double degrees, bool keepdim)
{
    tg_tensor *x = tg_to_dtype(t, tgi_compute_dtype((tg_dtype)t->dtype)), *y;
    y = tg_sum_dims(tg_square(tg_sub(x, tg_mean_dims(x, dims, true))), dims, keepdim);
    return tg_to_dtype(tg_div_scalar(y, degrees > 0 ? degrees : 0), (tg_dtype)t->dtype);
}

/* Ends a call whose output y was computed by other ops, not recorded, in the scope of the composite `inner`. */
static tg_tensor *tgi_op_end_with(tgi_call *c, tgi_composite *inner, tg_tensor *y)
{
    y = tgi_composite_end(inner, y); /* which puts grad mode back */
    if (!y) return NULL;
    c->out[c->nout++] = y;
    return tgi_op_end(c, true);
}

/* var, and std, its root. */
static tg_tensor *tgi_spread(const char *name, int op, tg_tensor *t, tg_shape dims, int64_t correction, bool keepdim)
{
    tgi_call c;
    tgi_composite inner;
    if (!tgi_begin_floating_reduction(&c, name, op, t, dims)) return NULL;
    c.params.s = (double)tgi_reduced_count(t->dim, t->ndim, c.params.dim) - (double)correction;
    if (!tgi_composite_begin(&inner, name)) return NULL;
    c.S->grad_off = true;
    tg_tensor *y = tgi_variance(t, dims, c.params.s, keepdim);
    return tgi_op_end_with(&c, &inner, op == TGI_OP_std ? tg_sqrt(y) : y);
}

/* g * 2 (x - mean) / (n - correction) */
static bool tgi_rule_var(tgi_step *step, tg_tensor *g)
{
    tg_tensor *x = tgi_upcast(tgi_saved_tensor(step, 0)), *mean;
    tg_dtype dtype = (tg_dtype)g->dtype;
    g = tg_div_scalar(tg_mul_scalar(tgi_step_dims(step, tgi_upcast(g)), 2), step->params->s);
    mean = tgi_step_dims(step, tg_mean_dim(tgi_rows_last(x, step->params->dim), -1, false));
    g = tg_mul(g, tg_sub(x, mean));
    return tgi_set_input_grad(step, 0, g ? tg_to_dtype(g, dtype) : NULL);
}

/* g (x - mean) / (y (n - correction)); 0 where y is 0: y is replaced by infinity there, so that the derivative of this
   is 0, too */
static bool tgi_rule_std(tgi_step *step, tg_tensor *g)
{
    tg_tensor *x = tgi_saved_tensor(step, 0), *y = tgi_step_dims(step, tgi_saved_tensor(step, -1)), *mean, *slope;
    mean = tgi_step_dims(step, tg_mean_dim(tgi_rows_last(x, step->params->dim), -1, false));
    y = tg_masked_fill(y, tg_eq_scalar(y, 0), (double)INFINITY);
    slope = tg_div(tg_sub(x, mean), tg_mul_scalar(y, step->params->s));
    return tgi_set_input_grad(step, 0, tg_mul(tgi_step_dims(step, g), slope));
}

#define TGI_SPREAD(name)                                                                                               \
    tg_tensor *tg_##name(tg_tensor *t) { return tgi_spread(#name, TGI_OP_##name, t, TG_SCALAR, 1, false); }            \
    tg_tensor *tg_##name##_dim(tg_tensor *t, int dim, int64_t correction, bool keepdim)                                \
    {                                                                                                                  \
        return tgi_spread(#name "_dim", TGI_OP_##name, t, TG_SHAPE(dim), correction, keepdim);                         \
    }                                                                                                                  \
    tg_tensor *tg_##name##_dims(tg_tensor *t, tg_shape dims, int64_t correction, bool keepdim)                         \
    {                                                                                                                  \
        return tgi_spread(#name "_dims", TGI_OP_##name, t, dims, correction, keepdim);                                 \
    }
TGI_SPREAD(var)
TGI_SPREAD(std)

static tg_tensor *tgi_norm(const char *name, tg_tensor *t, double p, tg_shape dims, bool keepdim)
{
    tgi_call c;
    tgi_composite inner;
    tg_tensor *y;
    if (!tgi_begin_floating_reduction(&c, name, TGI_OP_norm, t, dims)) return NULL;
    if ((tgi_is_infinite(p) || p < 0) && tgi_reduced_count(t->dim, t->ndim, c.params.dim) == 0) {
        return tgi_no_tensor(tgi_fail(
            c.S, TG_ERR_SHAPE, name,
            "linalg.vector_norm cannot compute the %g norm on an empty tensor because the operation does not have "
            "an identity (shape %s)",
            p, tgi_shape_text(t).text));
    }
    c.params.s = p;
    if (!tgi_composite_begin(&inner, name)) return NULL;
    c.S->grad_off = true;
    tg_tensor *a = tg_abs(tg_to_dtype(t, tgi_compute_dtype((tg_dtype)t->dtype)));
    if (p == 0) y = tg_sum_dims(a ? tg_to_dtype(tg_ne_scalar(a, 0), (tg_dtype)a->dtype) : a, dims, keepdim);
    else if (p == 1) y = tg_sum_dims(a, dims, keepdim);
    else if (p == 2) y = tg_sqrt(tg_sum_dims(tg_square(a), dims, keepdim));
    else if (tgi_is_infinite(p)) y = p > 0 ? tg_amax_dims(a, dims, keepdim) : tg_amin_dims(a, dims, keepdim);
    else y = tg_pow_scalar(tg_sum_dims(tg_pow_scalar(a, p), dims, keepdim), 1 / p);
    return tgi_op_end_with(&c, &inner, tg_to_dtype(y, (tg_dtype)t->dtype));
}

/* g times
     0                                                 if p is 0
     sign(x)                                           if p is 1
     x / y                                             if p is 2
     sign(x), divided among the x with |x| = y         if p is infinite
     sign(x) |x|^(p-1) / y^(p-1), 0 where x is 0       else
   and 0 where y is 0. */
static bool tgi_rule_norm(tgi_step *step, tg_tensor *g)
{
    tg_tensor *x = tgi_saved_tensor(step, 0), *y = tgi_step_dims(step, tgi_saved_tensor(step, -1)), *slope, *power;
    double p = step->params->s;
    g = tgi_step_dims(step, g);
    if (p == 0) return tgi_set_input_grad(step, 0, tg_zeros_like(x));
    if (p == 1) return tgi_set_input_grad(step, 0, tg_mul(g, tg_sign(x)));
    if (tgi_is_infinite(p)) {
        tg_tensor *hit = tg_eq(tg_abs(x), y), *count;
        hit = hit ? tg_to_dtype(hit, (tg_dtype)x->dtype) : NULL;
        count = hit ? tgi_step_dims(step, tg_sum_dim(tgi_rows_last(hit, step->params->dim), -1, false)) : NULL;
        count = tg_clamp_min(count, 1); /* none where y is NaN */
        return tgi_set_input_grad(step, 0, tg_mul(tg_mul(tg_sign(x), hit), tg_div(g, count)));
    }
    if (p == 2) {
        slope = tg_div(x, y);
    } else {
        power = tg_masked_fill(tg_pow_scalar(tg_abs(x), p - 1), tg_eq_scalar(x, 0), 0);
        slope = tg_div(tg_mul(tg_sign(x), power), tg_pow_scalar(y, p - 1));
    }
    return tgi_set_input_grad(step, 0, tg_mul(g, tg_masked_fill(slope, tg_eq_scalar(y, 0), 0)));
}

tg_tensor *tg_norm(tg_tensor *t) { return tgi_norm("norm", t, 2, TG_SCALAR, false); }
tg_tensor *tg_norm_dim(tg_tensor *t, double p, int dim, bool keepdim)
{
    return tgi_norm("norm_dim", t, p, TG_SHAPE(dim), keepdim);
}
tg_tensor *tg_norm_dims(tg_tensor *t, double p, tg_shape dims, bool keepdim)
{
    return tgi_norm("norm_dims", t, p, dims, keepdim);
}

static tg_tensor *tgi_logsumexp(const char *name, int op, tg_tensor *t, tg_shape dims, bool keepdim)
{
    tgi_call c;
    tgi_composite inner;
    tg_tensor *shift, *y;
    int mask;
    if (tgi_usable(tgi_self(), t) && !tgi_dtypes[t->dtype].floating) { /* integers become the default dtype */
        if (!tgi_composite_begin(&inner, name)) return NULL;
        t = tg_to_dtype(t, inner.S->default_dtype);
        return tgi_composite_end(&inner, tgi_logsumexp(name, op, t, dims, keepdim));
    }
    if (!tgi_op_begin1_as(&c, name, op, t) || !tgi_dims_mask(&c, t, dims, &mask)) return NULL;
    tgi_params(&c)->dim = mask;
    if (!tgi_composite_begin(&inner, name)) return NULL;
    c.S->grad_off = true;
    tg_tensor *x = tg_to_dtype(t, tgi_compute_dtype((tg_dtype)t->dtype));
    if (tgi_reduced_count(t->dim, t->ndim, mask) == 0) {
        y = tg_log(tg_sum_dims(x, dims, keepdim)); /* log 0 */
    } else { /* shifted by the largest, where that is finite */
        shift = tg_amax_dims(x, dims, true);
        shift = tg_masked_fill(shift, tg_isinf(shift), 0);
        y = tg_log(tg_sum_dims(tg_exp(tg_sub(x, shift)), dims, keepdim));
        y = y ? tg_add(y, tg_reshape(shift, tgi_shape_of(y))) : NULL;
    }
    return tgi_op_end_with(&c, &inner, tg_to_dtype(y, (tg_dtype)t->dtype));
}

static bool tgi_rule_logsumexp(tgi_step *step, tg_tensor *g)
{
    tg_tensor *x = tgi_saved_tensor(step, 0), *y = tgi_step_dims(step, tgi_saved_tensor(step, -1));
    return tgi_set_input_grad(step, 0, tg_mul(tgi_step_dims(step, g), tg_exp(tg_sub(x, y))));
}

TGI_REDUCTION(logsumexp, tgi_logsumexp, TGI_OP_logsumexp)

/* -------- @@INDEX ------------------------------------------------------------------------------------------------- */

/* ---- gather, scatter and what is made of them: an index tensor of i64 or i32, one number for each element ---- */

/* Rows along dim of the n tensors a, b, d.  The last of them says how many rows there are and how long they are; the
   others have its sizes outside dim. */
static tgi_rows tgi_rows_along(int dim, int n, const tg_tensor *a, const tg_tensor *b, const tg_tensor *d)
{
    const tg_tensor *const arg[3] = {a, b, d}, *last = arg[n - 1];
    tgi_rows r;
    r.ndim = 0;
    r.size = 0;
    r.nargs = n;
    r.length = last->ndim ? last->dim[dim] : 1;
    for (int k = 0; k < n; ++k) {
        r.arg[k] = tgi_operand_of(arg[k]);
        r.step[k] = arg[k]->ndim ? arg[k]->stride[dim] : 1;
    }
    for (int i = 0; i < last->ndim; ++i) {
        if (i == dim) continue;
        for (int k = 0; k < n; ++k) r.arg[k].stride[r.ndim] = arg[k]->stride[i];
        r.dim[r.ndim++] = last->dim[i];
    }
    if (r.length == 0) r.ndim = 1, r.dim[0] = 0; /* empty rows: there is nothing to do */
    return r;
}

static int64_t tgi_size_along(const tg_tensor *t, int dim) { return t->ndim ? t->dim[dim] : 1; }

static bool tgi_check_index_dtype(tgi_thread *S, const char *op, const tg_tensor *index)
{
    if (index->dtype == TG_I64 || index->dtype == TG_I32) return true;
    return tgi_fail(S, TG_ERR_DTYPE, op, "%s(): Expected dtype int32/int64 for index, but got %s\n"
                    "indices are i64 or i32: tg_to_dtype(index, TG_I64)", op, tg_dtype_name((tg_dtype)index->dtype));
}

/* index must have as many dims as t (and src), and be no larger than t outside dim and than src (which may be NULL). */
static bool tgi_check_index_shape(tgi_call *c, const tg_tensor *t, const tg_tensor *index, const tg_tensor *src,
                                  int dim)
{
    if (index->ndim != t->ndim || (src && src->ndim != t->ndim)) {
        return tgi_fail(c->S, TG_ERR_SHAPE, c->name,
                        "Index tensor must have the same number of dimensions as %s tensor",
                        index->ndim != t->ndim ? (src ? "self" : "input") : "src");
    }
    for (int i = 0; i < t->ndim; ++i) {
        const bool over_t = i != dim && index->dim[i] > t->dim[i], over_src = src && index->dim[i] > src->dim[i];
        if (!over_t && !over_src) continue;
        if (tgi_numel(index) == 0) return true;
        return tgi_fail(c->S, TG_ERR_SHAPE, c->name,
                        "Expected index %s to be no larger than %s %s apart from dimension %d%s%s",
                        tgi_shape_text(index).text, src ? "self" : "input", tgi_shape_text(t).text, dim,
                        src ? " and to be no larger size than src " : "", src ? tgi_shape_text(src).text : "");
    }
    return true;
}

/* Checks that the values of index are in range for dim of a tensor, which has this size.  On CUDA the check is a
   kernel, and a bad index is reported by the next call that waits, unless tg_set_sync_checks asks for it at once. */
static bool tgi_check_index_values(tgi_thread *S, const char *op, const tg_tensor *index, int dim, int64_t size,
                                   tgi_index_message message)
{
    int64_t dims[TG_MAX_DIMS]; /* a broadcast dim is checked once: the position in the message does not count it */
    for (int i = 0; i < index->ndim; ++i) dims[i] = index->stride[i] == 0 && index->dim[i] > 1 ? 1 : index->dim[i];
    if (S->composite) op = S->composite; /* the composite may be over when the error is reported */
    return index->storage->backend->index_check(S, op, tgi_operand_of(index), index->ndim, dims, size, message,
                                                dim, S->sync_checks);
}

/* y [index's shape]: y[.., i, ..] = t[.., index[.., i, ..], ..], at dim */
static bool tgi_gather_kernel(tgi_call *c, tg_tensor *y)
{
    const tg_tensor *t = c->in[0], *index = c->in[1];
    tgi_rows r = tgi_rows_along(c->params.dim, 3, y, t, index);
    r.size = tgi_size_along(t, c->params.dim);
    return c->backend->gather(c->S, &r);
}

/* message: what an index out of range is called, which depends on the public function. */
static tg_tensor *tgi_gather_op(tg_tensor *t, int dim, tg_tensor *index, tgi_index_message message)
{
    tgi_call c;
    if (!tgi_op_begin2(&c, TGI_OP_gather, t, index) || !tgi_wrap_dim(c.S, "gather", t->ndim, &dim) ||
        !tgi_check_index_dtype(c.S, "gather", index) || !tgi_check_index_shape(&c, t, index, NULL, dim) ||
        !tgi_check_index_values(c.S, "gather", index, dim, tgi_size_along(t, dim), message)) {
        return NULL;
    }
    tgi_params(&c)->dim = dim;
    return tgi_run(&c, tgi_shape_of(index), (tg_dtype)t->dtype, tgi_gather_kernel);
}

tg_tensor *tg_gather(tg_tensor *t, int dim, tg_tensor *index)
{
    if (!t || !index || t->ndim + index->ndim != 1) return tgi_gather_op(t, dim, index, TGI_INDEX_OUT_OF_BOUNDS);
    tgi_composite c; /* one has no dims, the other has one: a 0-dim tensor counts as one of shape [1] */
    if (!tgi_composite_begin(&c, "gather")) return NULL;
    tg_tensor *y =
        tgi_gather_op(tg_reshape(t, TG_SHAPE(-1)), dim, tg_reshape(index, TG_SHAPE(-1)), TGI_INDEX_OUT_OF_BOUNDS);
    return tgi_composite_end(&c, y ? tg_reshape(y, tgi_shape_of(index)) : NULL);
}

static bool tgi_rule_gather(tgi_step *step, tg_tensor *g)
{
    tg_tensor *zeros = tg_zeros_on(tgi_input_shape(step, 0), (tg_dtype)g->dtype, tgi_device_of(g));
    return tgi_set_input_grad(step, 0, tg_scatter_add(zeros, step->params->dim, tgi_saved_tensor(step, 1), g));
}

/* y [t's shape], a copy of t or t itself: y[.., index[.., i, ..], ..] = (or +=) src[.., i, ..], at dim */
static bool tgi_scatter_kernel(tgi_call *c, tg_tensor *y)
{
    const tg_tensor *t = c->in[0], *index = c->in[1], *src = c->in[2];
    tgi_rows r = tgi_rows_along(c->params.dim, 3, y, src, index);
    r.size = tgi_size_along(t, c->params.dim);
    return (y == t || tgi_copy_elements(c->S, y, t)) && c->backend->scatter(c->S, c->params.flag != 0, &r);
}

static tg_tensor *tgi_scatter_op(int op, bool in_place, tg_tensor *t, int dim, tg_tensor *index, tg_tensor *src)
{
    tgi_call c;
    if (!tgi_op_begin3(&c, op, t, index, src) || !tgi_wrap_dim(c.S, c.name, t->ndim, &dim) ||
        !tgi_check_index_dtype(c.S, c.name, index)) {
        return NULL;
    }
    if (t->dtype != src->dtype) {
        return tgi_no_tensor(
            tgi_fail(c.S, TG_ERR_DTYPE, c.name, "%s(): Expected self.dtype to be equal to src.dtype", c.name));
    }
    if (!tgi_check_index_shape(&c, t, index, src, dim) ||
        !tgi_check_index_values(c.S, c.name, index, dim, tgi_size_along(t, dim), TGI_INDEX_OUT_OF_BOUNDS)) {
        return NULL;
    }
    tgi_params(&c)->dim = dim;
    c.params.flag = op == TGI_OP_scatter_add;
    return in_place ? tgi_run_in_place(&c, tgi_scatter_kernel)
                    : tgi_run(&c, tgi_shape_of(t), (tg_dtype)t->dtype, tgi_scatter_kernel);
}

tg_tensor *tg_scatter(tg_tensor *t, int dim, tg_tensor *index, tg_tensor *src)
{
    return tgi_scatter_op(TGI_OP_scatter, false, t, dim, index, src);
}

tg_tensor *tg_scatter_add(tg_tensor *t, int dim, tg_tensor *index, tg_tensor *src)
{
    return tgi_scatter_op(TGI_OP_scatter_add, false, t, dim, index, src);
}

/* The gradient of src: g gathered, and 0 for the elements beyond index, which may be smaller than src. */
static tg_tensor *tgi_scatter_src_grad(tgi_step *step, tg_tensor *g)
{
    tg_tensor *part = tg_gather(g, step->params->dim, tgi_saved_tensor(step, 1));
    const tg_shape src = tgi_input_shape(step, 2);
    if (!part || tgi_same_shape(part, src.ndim, src.dim)) return part;
    if (src.ndim <= TG_MAX_DIMS / 2) {
        tg_shape pads;
        pads.ndim = 2 * src.ndim;
        for (int i = 0; i < src.ndim; ++i) {
            pads.dim[2 * (src.ndim - 1 - i)] = 0;
            pads.dim[2 * (src.ndim - 1 - i) + 1] = src.dim[i] - part->dim[i];
        }
        return tg_pad(part, pads, 0);
    }
    for (int i = 0; i < src.ndim && part; ++i) { /* tg_pad takes at most TG_MAX_DIMS / 2 dims: here it is one by one */
        tg_shape rest = tg_shape_of(part);
        rest.dim[i] = src.dim[i] - part->dim[i];
        tg_tensor *const both[2] = {part, tg_zeros_on(rest, (tg_dtype)part->dtype, tgi_device_of(part))};
        part = tg_cat(both, 2, i);
    }
    return part;
}

static bool tgi_rule_scatter(tgi_step *step, tg_tensor *g)
{
    tg_tensor *index = tgi_saved_tensor(step, 1);
    if (tgi_input_needs_grad(step, 0)) {
        tg_tensor *zeros = tg_zeros_on(tgi_shape_of(index), (tg_dtype)g->dtype, tgi_device_of(g));
        if (!tgi_set_input_grad(step, 0, tg_scatter(g, step->params->dim, index, zeros))) return false;
    }
    return !tgi_input_needs_grad(step, 2) || tgi_set_input_grad(step, 2, tgi_scatter_src_grad(step, g));
}

static bool tgi_rule_scatter_add(tgi_step *step, tg_tensor *g)
{
    return (!tgi_input_needs_grad(step, 0) || tgi_set_input_grad(step, 0, g)) &&
           (!tgi_input_needs_grad(step, 2) || tgi_set_input_grad(step, 2, tgi_scatter_src_grad(step, g)));
}

/* index [n] expanded to `shape` with size n at dim: along dim it is index, everywhere the same. */
static tg_tensor *tgi_expand_index(tg_tensor *index, tg_shape shape, int dim)
{
    tg_shape one = shape;
    for (int i = 0; i < one.ndim; ++i) one.dim[i] = 1;
    if (one.ndim) one.dim[dim] = shape.dim[dim] = tgi_numel(index);
    index = tg_reshape(index, one);
    return index ? tg_expand(index, shape) : NULL;
}

static bool tgi_check_index_vector(tgi_thread *S, const char *op, const tg_tensor *index)
{
    if (index->ndim <= 1) return tgi_check_index_dtype(S, op, index);
    return tgi_fail(S, TG_ERR_SHAPE, op, "%s(): Index is supposed to be a vector", op);
}

tg_tensor *tg_index_select(tg_tensor *t, int dim, tg_tensor *index)
{
    tgi_composite c;
    if (!tgi_composite_begin_with(&c, "index_select", "t,index", t, index)) return NULL;
    if (!tgi_wrap_dim(c.S, "index_select", t->ndim, &dim) || !tgi_check_index_vector(c.S, "index_select", index))
        return tgi_composite_end(&c, NULL);
    if (t->ndim == 0 && tgi_numel(index) != 1) {
        tgi_fail(c.S, TG_ERR_SHAPE, "index_select", "Index to scalar can have only 1 value, got %lld value(s)",
                 (long long)tgi_numel(index));
        return tgi_composite_end(&c, NULL);
    }
    index = tgi_expand_index(index, tgi_shape_of(t), dim);
    return tgi_composite_end(&c, tgi_gather_op(t, dim, index, TGI_INDEX_IN_SELF));
}

tg_tensor *tg_take_along_dim(tg_tensor *t, tg_tensor *index, int dim)
{
    tgi_composite c;
    if (!tgi_composite_begin_with(&c, "take_along_dim", "t,index", t, index)) return NULL;
    if (!tgi_wrap_dim(c.S, "take_along_dim", t->ndim, &dim)) return tgi_composite_end(&c, NULL);
    if (t->ndim != index->ndim) {
        tgi_fail(c.S, TG_ERR_SHAPE, "take_along_dim",
                 "torch.take_along_dim(): input and indices should have the same number of dimensions, "
                 "but got %d dimensions for input, and %d dimensions for indices",
                 t->ndim, index->ndim);
        return tgi_composite_end(&c, NULL);
    }
    tg_shape a = tg_shape_of(t), b = tg_shape_of(index); /* both broadcast, except at dim */
    for (int i = 0; i < a.ndim; ++i) {
        if (i != dim) a.dim[i] = b.dim[i] = a.dim[i] == 1 ? b.dim[i] : a.dim[i];
    }
    t = tg_expand(t, a);
    index = tg_expand(index, b);
    if (index && t && t->ndim) { /* negative indices count from the end */
        index = tg_where(tg_lt_scalar(index, 0), tg_add_scalar(index, (double)t->dim[dim]), index);
    }
    return tgi_composite_end(&c, tg_gather(t, dim, index));
}

/* weight [rows, width], ids [..] -> [.., width] */
tg_tensor *tg_embedding(tg_tensor *weight, tg_tensor *ids)
{
    tgi_composite c;
    if (!tgi_composite_begin_with(&c, "embedding", "weight,ids", weight, ids)) return NULL;
    if (weight->ndim != 2) {
        tgi_fail(c.S, TG_ERR_SHAPE, "embedding", "'weight' must be 2-D");
        return tgi_composite_end(&c, NULL);
    }
    if (!tgi_check_index_dtype(c.S, "embedding", ids)) return tgi_composite_end(&c, NULL);
    tg_shape shape = tg_shape_of(ids);
    if (shape.ndim == TG_MAX_DIMS) {
        tgi_fail(c.S, TG_ERR_SHAPE, "embedding", "ids has too many dims");
        return tgi_composite_end(&c, NULL);
    }
    shape.dim[shape.ndim++] = weight->dim[1];
    tg_tensor *rows = tg_index_select(weight, 0, tg_flatten(ids, 0, -1));
    return tgi_composite_end(&c, rows ? tg_reshape(rows, shape) : NULL);
}

/* src must have the shape of t with the size of index at dim. */
static bool tgi_check_index_add(tgi_thread *S, const tg_tensor *t, int dim, const tg_tensor *index,
                                const tg_tensor *src)
{
    for (int i = 0; i < t->ndim; ++i) {
        const int64_t size = i == dim ? tgi_numel(index) : t->dim[i];
        if (src->ndim == t->ndim && src->dim[i] == size) continue;
        if (i == dim && src->ndim == t->ndim) {
            return tgi_fail(S, TG_ERR_SHAPE, "index_add",
                            "index_add_(): Number of indices (%lld) should be equal to source.size(dim): (%lld), for "
                            "dim: %d",
                            (long long)size, (long long)src->dim[i], dim);
        }
        return tgi_fail(S, TG_ERR_SHAPE, "index_add",
                        "source tensor shape must match self tensor shape, excluding the specified dimension: size "
                        "%lld at dim %d of %d dims",
                        (long long)size, i, src->ndim);
    }
    return true;
}

tg_tensor *tg_index_add(tg_tensor *t, int dim, tg_tensor *index, tg_tensor *src)
{
    tgi_composite c;
    if (!tgi_composite_begin_with(&c, "index_add", "t,index,src", t, index, src)) return NULL;
    if (!tgi_wrap_dim(c.S, "index_add", t->ndim, &dim) || !tgi_check_index_vector(c.S, "index_add", index) ||
        !tgi_check_index_add(c.S, t, dim, index, src)) {
        return tgi_composite_end(&c, NULL);
    }
    return tgi_composite_end(&c, tg_scatter_add(t, dim, tgi_expand_index(index, tgi_shape_of(t), dim), src));
}

/* ---- indexing by tensors: t[i, :, j] as one gather or scatter.  The indexed dims of t are taken as one dim, and the
   index tensors become one index into it. ---- */

typedef struct {
    tg_tensor *t;           /* the user's, permuted so that the indexed dims come first if they are not adjacent */
    int order[TG_MAX_DIMS]; /* dim i of t is dim order[i] of the user's tensor */
    int first, indexed;     /* the indexed dims of t: first .. first + indexed - 1 */
    int64_t size;           /* the product of their sizes */
    tg_shape shape;         /* of the index tensors, broadcast */
    tg_tensor *places;      /* [numel of shape]: row-major positions in the indexed dims taken as one */
} tgi_indexing;

/* Checks the user's list of indices, in which NULL stands for a whole dim. */
static bool tgi_check_indices(tgi_thread *S, const char *op, tg_tensor *const *indices, int n)
{
    if (!indices) return tgi_null_argument(S, op, "indices");
    return tgi_argument_list(S, op, "indices", indices, n, 0);
}

static bool tgi_is_mask(const tg_tensor *index) { return index->dtype == TG_BOOL || index->dtype == TG_U8; }

/* The number of dims that index stands for: a mask has its own, an index tensor or NULL one. */
static int tgi_dims_of_index(const tg_tensor *index) { return index && tgi_is_mask(index) ? index->ndim : 1; }

/* Whether indices[i] may index t at dim. */
static bool tgi_check_index(tgi_thread *S, const char *op, const tg_tensor *t, const tg_tensor *index, int i, int dim)
{
    if (!index->storage->backend->host && !tgi_same_place(index, t)) {
        return tgi_fail(S, TG_ERR_DEVICE, op,
                        "indices should be either on cpu or on the same device as the indexed tensor (%s)\n"
                        "indices[%d] is on %s: tg_cpu(indices[%d])",
                        tg_device_str(tgi_device_of(t)), i, tg_device_str(tgi_device_of(index)), i);
    }
    if (index->dtype == TG_I64 || index->dtype == TG_I32) return true;
    if (!tgi_is_mask(index)) {
        return tgi_fail(S, TG_ERR_DTYPE, op, "tensors used as indices must be long, int, byte or bool tensors, but "
                        "indices[%d] is %s", i, tg_dtype_name((tg_dtype)index->dtype));
    }
    if (index->ndim == 0) return tgi_fail(S, TG_ERR_SHAPE, op, "indices[%d] is a mask without dims", i);
    for (int k = 0; k < index->ndim; ++k) {
        if (index->dim[k] == t->dim[dim + k]) continue;
        return tgi_fail(S, TG_ERR_SHAPE, op,
                        "The shape of the mask %s at index %d does not match the shape of the indexed tensor %s at "
                        "index %d",
                        tgi_shape_text(index).text, k, tgi_shape_text(t).text, dim + k);
    }
    return true;
}

/* at [t's dims]: the index tensor of each dim, i64, not negative, on t's device; NULL for a whole dim.  A mask becomes
   one index tensor for each of its dims. */
static bool tgi_index_each_dim(tgi_thread *S, const char *op, tg_tensor *t, tg_tensor *const *indices, int n,
                               tg_tensor **at)
{
    int dim = 0;
    for (int i = 0; i < n; dim += tgi_dims_of_index(indices[i++])) {
        tg_tensor *index = indices[i];
        if (!index) continue;
        if (!tgi_check_index(S, op, t, index, i, dim)) return false;
        if (tgi_is_mask(index)) {
            tg_tensor *found = tg_nonzero(index);
            if (found) found = tg_to(found, tgi_device_of(t));
            for (int k = 0; k < index->ndim; ++k) {
                if (!found || !(at[dim + k] = tg_select(found, 1, k))) return false;
            }
            continue;
        }
        index = tg_to_dtype(index, TG_I64);
        at[dim] = tg_where(tg_lt_scalar(index, 0), tg_add_scalar(index, (double)t->dim[dim]), index);
        if (!at[dim] || !tgi_check_index_values(S, op, index, dim, t->dim[dim], TGI_INDEX_FROM_END) ||
            !(at[dim] = tg_to(at[dim], tgi_device_of(t)))) {
            return false;
        }
    }
    return true;
}

/* The shape to which the index tensors at[dims[0..n)] broadcast. */
static bool tgi_index_shape(tgi_thread *S, const char *op, tg_tensor *const *at, const int *dims, int n,
                            tg_shape *shape)
{
    char text[TGI_ERROR_TEXT] = "";
    size_t used = 0;
    bool fits = true;
    *shape = TG_SCALAR;
    for (int i = 0; i < n; ++i) {
        const tg_tensor *index = at[dims[i]];
        while (shape->ndim < index->ndim) { /* prepends a dim of size 1 */
            for (int k = shape->ndim++; k > 0; --k) shape->dim[k] = shape->dim[k - 1];
            shape->dim[0] = 1;
        }
        for (int k = 1; k <= index->ndim; ++k) {
            int64_t *wide = &shape->dim[shape->ndim - k], size = index->dim[index->ndim - k];
            if (*wide == 1) *wide = size;
            else if (size != 1 && size != *wide) fits = false;
        }
    }
    if (fits) return true;
    for (int i = 0; i < n && used < sizeof text; ++i) {
        used += (size_t)snprintf(text + used, sizeof text - used, i ? ", %s" : "%s", tgi_shape_text(at[dims[i]]).text);
    }
    return tgi_fail(S, TG_ERR_SHAPE, op,
                    "shape mismatch: indexing tensors could not be broadcast together with shapes %s", text);
}

/* Fills in x.  Called inside a composite. */
static bool tgi_indexing_of(tgi_thread *S, const char *op, tg_tensor *t, tg_tensor *const *indices, int n,
                            tgi_indexing *x)
{
    tg_tensor *at[TG_MAX_DIMS] = {NULL};
    int dims = 0;
    for (int i = 0; i < n; ++i) dims += tgi_dims_of_index(indices[i]);
    if (dims > t->ndim) {
        return tgi_fail(S, TG_ERR_SHAPE, op, "too many indices for tensor of dimension %d (got %d)", t->ndim, dims);
    }
    if (!tgi_index_each_dim(S, op, t, indices, n, at)) return false;
    x->indexed = 0;
    for (int i = 0; i < t->ndim; ++i) {
        if (at[i]) x->order[x->indexed++] = i;
    }
    if (x->indexed == 0) return tgi_fail(S, TG_ERR_ARGUMENT, op, "at least one index must be provided");
    if (!tgi_index_shape(S, op, at, x->order, x->indexed, &x->shape)) return false;
    if (x->shape.ndim + t->ndim - x->indexed > TG_MAX_DIMS) {
        return tgi_fail(S, TG_ERR_SHAPE, op, "the result would have %d dims, and a tensor has at most %d",
                        x->shape.ndim + t->ndim - x->indexed, TG_MAX_DIMS);
    }
    x->places = at[x->order[0]];
    x->size = t->dim[x->order[0]];
    for (int i = 1; i < x->indexed; ++i) {
        x->size *= t->dim[x->order[i]];
        x->places = tg_add(tg_mul_scalar(x->places, (double)t->dim[x->order[i]]), at[x->order[i]]);
    }
    x->places = tg_reshape(tg_expand(x->places, x->shape), TG_SHAPE(-1));
    const bool adjacent = x->order[x->indexed - 1] - x->order[0] + 1 == x->indexed;
    x->first = adjacent ? x->order[0] : 0;
    for (int i = 0, rest = x->indexed; i < t->ndim; ++i) {
        if (adjacent)
            x->order[i] = i;
        else if (!at[i]) x->order[rest++] = i;
    }
    x->t = tgi_permute(t, x->order);
    return x->places && x->t;
}

/* The shape of x->t with the indexed dims replaced by those of `middle`: [size], or the shape of the indices. */
static tg_shape tgi_indexed_shape(const tgi_indexing *x, tg_shape middle)
{
    tg_shape shape = tg_make_shape(x->first, x->t->dim);
    for (int i = 0; i < middle.ndim; ++i) shape.dim[shape.ndim++] = middle.dim[i];
    for (int i = x->first + x->indexed; i < x->t->ndim; ++i) shape.dim[shape.ndim++] = x->t->dim[i];
    return shape;
}

tg_tensor *tg_index(tg_tensor *t, tg_tensor *const *indices, int n)
{
    tgi_composite c;
    tgi_indexing x;
    if (!tgi_composite_begin_with(&c, "index", "t", t)) return NULL;
    if (!tgi_check_indices(c.S, "index", indices, n) || !tgi_indexing_of(c.S, "index", t, indices, n, &x))
        return tgi_composite_end(&c, NULL);
    const tg_shape flat = tgi_indexed_shape(&x, TG_SHAPE(x.size));
    tg_tensor *places = tgi_expand_index(x.places, flat, x.first);
    tg_tensor *y = tgi_gather_op(tg_reshape(x.t, flat), x.first, places, TGI_INDEX_OUT_OF_BOUNDS);
    return tgi_composite_end(&c, tg_reshape(y, tgi_indexed_shape(&x, x.shape)));
}

/* values must have t's dtype and broadcast to shape, that of the elements to write. */
static bool tgi_check_values(tgi_thread *S, const tg_tensor *t, const tg_tensor *values, tg_shape shape)
{
    int lead = shape.ndim - values->ndim;
    bool fits = lead >= 0;
    if (values->dtype != t->dtype) {
        return tgi_fail(S, TG_ERR_DTYPE, "index_put",
                        "Index put requires the source and destination dtypes match, got %s for the destination and %s "
                        "for the source.",
                        tg_dtype_name((tg_dtype)t->dtype), tg_dtype_name((tg_dtype)values->dtype));
    }
    for (int i = 0; fits && i < values->ndim; ++i) fits = values->dim[i] == 1 || values->dim[i] == shape.dim[lead + i];
    return fits || tgi_fail(S, TG_ERR_SHAPE, "index_put",
                            "shape mismatch: value tensor of shape %s cannot be broadcast to indexing result of shape "
                            "%s",
                            tgi_shape_text(values).text, tgi_dims_text(shape.ndim, shape.dim).text);
}

/* Writes or adds values to a copy of t or, in place, to t, whose indexing is x.  In place it writes through a view of t
   with the indexed dims as one dim; if t's layout has no such view, it writes to a copy and copies that back. */
static tg_tensor *tgi_index_write(tgi_thread *S, const tgi_indexing *x, bool in_place, tg_tensor *t, tg_tensor *values,
                                  bool accumulate)
{
    const int op = accumulate ? TGI_OP_scatter_add : TGI_OP_scatter;
    tg_shape shape = tgi_indexed_shape(x, TG_SHAPE(x->size)), picked = tgi_indexed_shape(x, x->shape), like = shape;
    tg_tensor *flat = tg_reshape(x->t, shape), *index = tgi_expand_index(x->places, shape, x->first);
    if (!flat || !tgi_check_values(S, t, values, picked)) return NULL;
    like.dim[x->first] = tgi_numel(x->places);
    values = tg_reshape(tg_expand(values, picked), like);
    if (in_place && flat->storage == t->storage) {
        if (values && tgi_overlaps(flat, values)) values = tg_clone(values);
        return tgi_scatter_op(op, true, flat, x->first, index, values) ? t : NULL;
    }
    tg_tensor *y = tgi_scatter_op(op, false, flat, x->first, index, values);
    y = tg_reshape(y, tg_make_shape(t->ndim, x->t->dim));
    int back[TG_MAX_DIMS];
    for (int i = 0; i < t->ndim; ++i) back[x->order[i]] = i;
    y = y ? tgi_permute(y, back) : NULL;
    return !y ? NULL : in_place ? tg_copy_(t, y) : tg_contiguous(y);
}

static tg_tensor *tgi_index_put(const char *op, bool in_place, tg_tensor *t, tg_tensor *const *indices, int n,
                                tg_tensor *values, bool accumulate)
{
    tgi_thread *S = tgi_self();
    tgi_composite c;
    if (!tgi_arguments(S, op, "t,values", t, values) || !tgi_check_indices(S, op, indices, n) ||
        !tgi_composite_begin(&c, op)) {
        return NULL;
    }
    if (values->ndim == 0 && values->storage->backend->host) values = tg_to(values, tgi_device_of(t));
    tg_tensor *y = NULL;
    tgi_call write; /* only to check that t may be written */
    tgi_indexing x;
    tg_tensor *const both[2] = {t, values};
    if (values && tgi_one_device(S, op, "t,values", both, 2) &&
        (!in_place || (tgi_op_begin1(&write, TGI_OP_scatter, t) && tgi_may_write(&write, t))) &&
        tgi_indexing_of(S, op, t, indices, n, &x)) {
        y = tgi_index_write(S, &x, in_place, t, values, accumulate);
    }
    return tgi_composite_end(&c, y);
}

tg_tensor *tg_index_put(tg_tensor *t, tg_tensor *const *indices, int n, tg_tensor *values, bool accumulate)
{
    return tgi_index_put("index_put", false, t, indices, n, values, accumulate);
}

tg_tensor *tg_index_put_(tg_tensor *t, tg_tensor *const *indices, int n, tg_tensor *values, bool accumulate)
{
    return tgi_index_put("index_put_", true, t, indices, n, values, accumulate);
}

tg_tensor *tg_masked_select(tg_tensor *t, tg_tensor *mask)
{
    tgi_composite c;
    if (!tgi_composite_begin_with(&c, "masked_select", "t,mask", t, mask)) return NULL;
    if (mask->dtype != TG_BOOL) {
        tgi_fail(c.S, TG_ERR_DTYPE, "masked_select", "masked_select: expected BoolTensor for mask");
        return tgi_composite_end(&c, NULL);
    }
    tg_tensor *const in[2] = {t, mask};
    tg_shape shape = tg_shape_of(t);
    if (!tgi_broadcast(c.S, "masked_select", &shape.ndim, shape.dim, mask, in, 2)) return tgi_composite_end(&c, NULL);
    t = tg_expand(t, shape), mask = tg_expand(mask, shape);
    if (shape.ndim == 0) t = tg_reshape(t, TG_SHAPE(1)), mask = tg_reshape(mask, TG_SHAPE(1));
    return tgi_composite_end(&c, mask ? tg_index(t, &mask, 1) : NULL);
}

tg_tensor *tg_one_hot(tg_tensor *ids, int64_t classes)
{
    tgi_composite c;
    if (!tgi_composite_begin_with(&c, "one_hot", "ids", ids)) return NULL;
    if (!tgi_check_index_dtype(c.S, "one_hot", ids)) return tgi_composite_end(&c, NULL);
    if (classes < 0 && tgi_numel(ids) > 0) { /* the largest id + 1: this waits for the device */
        tg_tensor *most = tg_max(ids);
        if (!most) return tgi_composite_end(&c, NULL);
        classes = tgi_wrap_add(tg_item_i64(most), 1);
    } else if (classes <= 0 && tgi_numel(ids) == 0) {
        tgi_fail(c.S, TG_ERR_ARGUMENT, "one_hot", "Can not infer total number of classes from empty tensor.");
        return tgi_composite_end(&c, NULL);
    }
    if (!tgi_check_index_values(c.S, "one_hot", ids, 0, classes, TGI_INDEX_CLASS)) return tgi_composite_end(&c, NULL);
    tg_tensor *range = tg_arange_on(0, (double)classes, 1, TG_I64, tgi_device_of(ids));
    tg_tensor *y = tg_eq(tg_unsqueeze(ids, -1), range);
    return tgi_composite_end(&c, y ? tg_to_dtype(y, TG_I64) : NULL);
}

/* -> [count, t's dims] i64: the kernel runs twice, first to count. */
tg_tensor *tg_nonzero(tg_tensor *t)
{
    tgi_call c;
    int64_t count = 0;
    if (!tgi_op_begin1(&c, TGI_OP_nonzero, t)) return NULL;
    tgi_loop loop = tgi_loop_over(t);
    if (!c.backend->nonzero(c.S, &loop, &count, NULL)) return NULL;
    const int64_t dims[2] = {count, t->ndim};
    tg_tensor *y = tgi_output(&c, 2, dims, TG_I64);
    return tgi_op_end(&c, y && c.backend->nonzero(c.S, &loop, &count, (int64_t *)tgi_operand_of(y).data));
}

/* -------- @@SORT -------------------------------------------------------------------------------------------------- */

/* ---- max, argmax, cumsum, sort, topk: kernels that run over rows along dim ---- */

/* An output with t's shape, but size 1 at dim. */
static tg_tensor *tgi_output_keepdim(tgi_call *c, const tg_tensor *t, int dim, tg_dtype dtype)
{
    int64_t dims[TG_MAX_DIMS] = {0};
    memcpy(dims, t->dim, sizeof(int64_t) * t->ndim);
    if (t->ndim) dims[dim] = 1;
    return tgi_output(c, t->ndim, dims, dtype);
}

/* Removes dim, of size 1, from a new output. */
static void tgi_drop_dim(tg_tensor *t, int dim)
{
    if (t->ndim == 0) return;
    for (int i = dim; i + 1 < t->ndim; ++i) {
        t->dim[i] = t->dim[i + 1];
        t->stride[i] = t->stride[i + 1];
    }
    t->ndim--;
}

/* The largest or smallest elements along dim, and where they are.  Returns the values, and in *indices (if it is not
   NULL) the indices; or, without `values`, the indices alone. */
static tg_tensor *tgi_extreme_dim(const char *name, int op, tgi_reduction kind, tg_tensor *t, int dim, bool keepdim,
                                  bool values, tg_tensor **indices)
{
    if (indices) *indices = NULL;
    tgi_call c;
    if (!tgi_op_begin1_as(&c, name, op, t) || !tgi_wrap_dim(c.S, name, t->ndim, &dim)) return NULL;
    if (t->ndim && t->dim[dim] == 0) {
        return tgi_no_tensor(tgi_fail(c.S, TG_ERR_SHAPE, name, "%s(): Expected reduction dim %d to have non-zero size.",
                                      kind == TGI_AMAX ? (values ? "max" : "argmax")
                                      : values         ? "min"
                                                       : "argmin",
                                      dim));
    }
    tgi_params(&c)->dim = dim;
    tg_tensor *y = values ? tgi_output_keepdim(&c, t, dim, (tg_dtype)t->dtype) : NULL;
    tg_tensor *at = !values || y ? tgi_output_keepdim(&c, t, dim, TG_I64) : NULL;
    if (!at) return tgi_op_end(&c, false);
    tgi_rows r = tgi_rows_along(dim, 3, values ? y : at, at, t);
    if (!values) r.arg[0].data = NULL;
    if (!c.backend->arg_reduce(c.S, kind, &r)) return tgi_op_end(&c, false);
    if (!keepdim) {
        if (y) tgi_drop_dim(y, dim);
        tgi_drop_dim(at, dim);
    }
    y = tgi_op_end(&c, true);
    if (!values || !y) return y;
    if (indices) *indices = at;
    else tg_drop(at);
    return y;
}

/* The rule of max_dim, min_dim and sort, whose output 1 is the index: g at index, 0 elsewhere. */
static bool tgi_index_rule(tgi_step *step, tg_tensor *g)
{
    tg_tensor *index = tgi_saved_tensor(step, -2);
    tg_shape in = tgi_input_shape(step, 0);
    tg_tensor *zeros = tg_zeros_on(in, (tg_dtype)g->dtype, tgi_device_of(g));
    int dim = step->params->dim;
    if (index->ndim < in.ndim) index = tg_unsqueeze(index, dim);
    if (g->ndim < in.ndim) g = tg_unsqueeze(g, dim);
    return tgi_set_input_grad(step, 0, tg_scatter_add(zeros, dim, index, g));
}

static bool tgi_rule_max_dim(tgi_step *step, tg_tensor *g) { return tgi_index_rule(step, g); }
static bool tgi_rule_min_dim(tgi_step *step, tg_tensor *g) { return tgi_index_rule(step, g); }

tg_tensor *tg_max_dim(tg_tensor *t, int dim, bool keepdim, tg_tensor **indices)
{
    return tgi_extreme_dim("max_dim", TGI_OP_max_dim, TGI_AMAX, t, dim, keepdim, true, indices);
}

tg_tensor *tg_min_dim(tg_tensor *t, int dim, bool keepdim, tg_tensor **indices)
{
    return tgi_extreme_dim("min_dim", TGI_OP_min_dim, TGI_AMIN, t, dim, keepdim, true, indices);
}

tg_tensor *tg_argmax(tg_tensor *t, int dim, bool keepdim)
{
    return tgi_extreme_dim("argmax", TGI_OP_max_dim, TGI_AMAX, t, dim, keepdim, false, NULL);
}

tg_tensor *tg_argmin(tg_tensor *t, int dim, bool keepdim)
{
    return tgi_extreme_dim("argmin", TGI_OP_min_dim, TGI_AMIN, t, dim, keepdim, false, NULL);
}

static bool tgi_cumsum_kernel(tgi_call *c, tg_tensor *y)
{
    const tgi_rows r = tgi_rows_along(c->params.dim, 2, y, c->in[0], NULL);
    return c->backend->cumsum(c->S, &r);
}

tg_tensor *tg_cumsum(tg_tensor *t, int dim)
{
    tgi_call c;
    if (!tgi_op_begin1(&c, TGI_OP_cumsum, t) || !tgi_wrap_dim(c.S, "cumsum", t->ndim, &dim)) return NULL;
    tgi_params(&c)->dim = dim;
    return tgi_run(&c, tgi_shape_of(t), tgi_sum_dtype(t), tgi_cumsum_kernel);
}

/* The reverse running sum of g. */
static bool tgi_rule_cumsum(tgi_step *step, tg_tensor *g)
{
    int dim = step->params->dim;
    return tgi_set_input_grad(step, 0, tg_flip(tg_cumsum(tg_flip(g, TG_DIMS(dim)), dim), TG_DIMS(dim)));
}

tg_tensor *tg_sort(tg_tensor *t, int dim, bool descending, tg_tensor **indices)
{
    if (indices) *indices = NULL;
    tgi_call c;
    if (!tgi_op_begin1(&c, TGI_OP_sort, t) || !tgi_wrap_dim(c.S, "sort", t->ndim, &dim)) return NULL;
    tgi_params(&c)->dim = dim;
    tg_tensor *y = tgi_output_like(&c, t, (tg_dtype)t->dtype);
    tg_tensor *at = y ? tgi_output_like(&c, t, TG_I64) : NULL;
    if (!at) return tgi_op_end(&c, false);
    tgi_rows r = tgi_rows_along(dim, 3, y, at, t);
    y = tgi_op_end(&c, c.backend->sort(c.S, descending, &r));
    if (!y) return NULL;
    if (indices) *indices = at;
    else tg_drop(at);
    return y;
}

static bool tgi_rule_sort(tgi_step *step, tg_tensor *g) { return tgi_index_rule(step, g); }

tg_tensor *tg_topk(tg_tensor *t, int64_t k, int dim, bool largest, tg_tensor **indices)
{
    if (indices) *indices = NULL;
    tgi_composite c;
    if (!tgi_composite_begin_with(&c, "topk", "t", t)) return NULL;
    if (!tgi_wrap_dim(c.S, "topk", t->ndim, &dim)) return tgi_composite_end(&c, NULL);
    if (k < 0 || k > tgi_size_along(t, dim)) {
        tgi_fail(c.S, TG_ERR_ARGUMENT, "topk", "selected index k out of range");
        return tgi_composite_end(&c, NULL);
    }
    tg_tensor *at = NULL;
    tg_tensor *y = tg_sort(t, dim, largest, &at);
    if (t->ndim) { /* clones, so that the other elements are freed */
        y = tg_clone(tg_narrow(y, dim, 0, k));
        at = tg_clone(tg_narrow(at, dim, 0, k));
    }
    if (y && at && indices) *indices = tg_keep(at);
    return tgi_composite_end(&c, at ? y : NULL);
}

/* -------- @@NORM -------------------------------------------------------------------------------------------------- */

/* ---- softmax: y = exp(x) / sum(exp(x)) along dim, and its logarithm ---- */

static bool tgi_softmax_kernel(tgi_call *c, tg_tensor *y)
{
    const tgi_rows r = tgi_rows_along(c->params.dim, 2, y, c->in[0], NULL);
    return c->backend->softmax(c->S, c->params.flag != 0, &r);
}

static tg_tensor *tgi_softmax_op(int op, tg_tensor *t, int dim)
{
    tgi_call c;
    if (!tgi_op_begin1(&c, op, t) || !tgi_need_floating(c.S, c.name, t) || !tgi_wrap_dim(c.S, c.name, t->ndim, &dim))
        return NULL;
    tgi_params(&c)->dim = dim;
    c.params.flag = op == TGI_OP_log_softmax;
    return tgi_run(&c, tgi_shape_of(t), (tg_dtype)t->dtype, tgi_softmax_kernel);
}

tg_tensor *tg_softmax(tg_tensor *t, int dim) { return tgi_softmax_op(TGI_OP_softmax, t, dim); }
tg_tensor *tg_log_softmax(tg_tensor *t, int dim) { return tgi_softmax_op(TGI_OP_log_softmax, t, dim); }

/* The rules below in one kernel instead of four, for a backward that records no graph (create_graph off).  Tests hold
   both equal. */
static bool tgi_softmax_fused(tgi_step *step, tg_tensor *g, bool log)
{
    tg_tensor *y = tgi_saved_tensor(step, -1), *dx = tgi_new_like(step->S, step->node->op->name, y);
    if (!dx) return false;
    tgi_rows r = tgi_rows_along(step->params->dim, 3, dx, g, y);
    return y->storage->backend->softmax_backward(step->S, log, &r) && tgi_set_input_grad(step, 0, dx);
}

/* y (g - sum(g y)) */
static bool tgi_rule_softmax(tgi_step *step, tg_tensor *g)
{
    tg_tensor *y = tgi_saved_tensor(step, -1);
    if (step->S->grad_off) return tgi_softmax_fused(step, g, false);
    tg_tensor *gy = tg_sum_dim(tg_mul(g, y), step->params->dim, true);
    return tgi_set_input_grad(step, 0, tg_mul(y, tg_sub(g, gy)));
}

/* g - exp(y) sum(g) */
static bool tgi_rule_log_softmax(tgi_step *step, tg_tensor *g)
{
    tg_tensor *y = tgi_saved_tensor(step, -1);
    if (step->S->grad_off) return tgi_softmax_fused(step, g, true);
    return tgi_set_input_grad(step, 0, tg_sub(g, tg_mul(tg_exp(y), tg_sum_dim(g, step->params->dim, true))));
}

/* ---- layer_norm and rms_norm: the op normalize computes y = (x - mean) rstd; weight and bias are other ops ---- */

/* One row for each element of the outer dims of x [outer.., inner..], over n contiguous tensors: like x, or with one
   number for each row, like rstd. */
static tgi_rows tgi_rows_inner(const tg_tensor *x, int inner, int n, const tg_tensor *const *arg)
{
    tgi_rows r;
    r.ndim = x->ndim - inner;
    r.length = tgi_reduced_count(x->dim + r.ndim, inner, (1 << inner) - 1);
    r.nargs = n;
    for (int i = 0; i < n; ++i) {
        r.arg[i] = tgi_operand_of(arg[i]);
        r.step[i] = 1;
    }
    memcpy(r.dim, x->dim, sizeof(int64_t) * (size_t)r.ndim);
    return r;
}

/* x [outer.., inner..], contiguous -> y like x, and rstd [outer.., 1..] = 1 / sqrt(variance + eps), which is saved for
   backward.  For rms: y = x rstd with rstd = 1 / sqrt(mean(x^2) + eps).  params: i inner dims, flag rms, s eps */
static tg_tensor *tgi_normalize(tg_tensor *x, int inner, bool rms, double eps)
{
    tgi_call c;
    if (!tgi_op_begin1(&c, TGI_OP_normalize, x)) return NULL;
    tgi_params(&c)->i = inner;
    c.params.flag = rms;
    c.params.s = eps;
    tg_shape kept = tg_shape_of(x);
    for (int i = x->ndim - inner; i < x->ndim; ++i) kept.dim[i] = 1;
    tg_tensor *y = tgi_output_like(&c, x, (tg_dtype)x->dtype);
    tg_tensor *rstd = y ? tgi_output(&c, x->ndim, kept.dim, tgi_compute_dtype((tg_dtype)x->dtype)) : NULL;
    if (!rstd) return tgi_op_end(&c, false);
    const tg_tensor *const arg[3] = {y, rstd, x};
    const tgi_rows r = tgi_rows_inner(x, inner, 3, arg);
    if (!tgi_op_end(&c, c.backend->layer_norm(c.S, rms, eps, &r))) return NULL;
    tg_drop(rstd);
    return y;
}

/* dx of the rule below from g of y alone, in one kernel. */
static tg_tensor *tgi_normalize_fused(tgi_step *step, tg_tensor *g, tg_tensor *y, tg_tensor *rstd)
{
    tg_tensor *dx = tgi_new_like(step->S, "layer_norm", y);
    g = tg_contiguous(g);
    if (!dx || !g) return NULL;
    const tg_tensor *const arg[4] = {dx, g, y, rstd};
    const tgi_rows r = tgi_rows_inner(y, (int)step->params->i, 4, arg);
    return y->storage->backend->layer_norm_backward(step->S, step->params->flag != 0, &r) ? dx : NULL;
}

/* From g of y: rstd (g - mean(g) - y mean(g y)), without mean(g) for rms.  From g of rstd, which gradients of gradients
   use: g (-rstd^2 y / n).  Means over the n inner elements. */
static bool tgi_rule_normalize(tgi_step *step, tg_tensor *g)
{
    tg_tensor *y = tgi_saved_tensor(step, -1), *rstd = tgi_saved_tensor(step, -2), *dx;
    if (step->S->grad_off) {
        dx = tgi_normalize_fused(step, g, y, rstd);
    } else {
        tg_shape dims = TG_SCALAR;
        for (int i = y->ndim - (int)step->params->i; i < y->ndim; ++i) dims.dim[dims.ndim++] = i;
        dx = tg_sub(g, tg_mul(y, tg_mean_dims(tg_mul(g, y), dims, true)));
        if (!step->params->flag) dx = tg_sub(dx, tg_mean_dims(g, dims, true));
        dx = tg_mul(rstd, dx);
    }
    if (step->received & 2) { /* output 1, rstd, has a gradient */
        const int inner = (int)step->params->i;
        const int64_t n = tgi_reduced_count(y->dim + y->ndim - inner, inner, (1 << inner) - 1);
        tg_tensor *more = tg_mul(step->grad[1], tg_div_scalar(tg_neg(tg_mul(tg_mul(rstd, rstd), y)), (double)n));
        dx = tg_add(dx, more);
    }
    return tgi_set_input_grad(step, 0, dx);
}

/* w (weight or bias, or NULL) must have the shape of x's inner dims. */
static bool tgi_check_normalized(tgi_thread *S, const char *op, const tg_tensor *x, int inner, const tg_tensor *w,
                                 const char *name)
{
    if (inner < 1 || inner > x->ndim) {
        return tgi_fail(S, TG_ERR_ARGUMENT, op, "normalized_ndim is %d, but must be between 1 and the %d dims of x",
                        inner, x->ndim);
    }
    if (!tgi_need_floating(S, op, x)) return false;
    if (!w || (w->ndim == inner && memcmp(w->dim, x->dim + x->ndim - inner, sizeof(int64_t) * (size_t)inner) == 0))
        return true;
    return tgi_fail(S, TG_ERR_SHAPE, op,
                    "Expected %s to be of same shape as normalized_shape, but got %s of shape %s and "
                    "normalized_shape = %s",
                    name, name, tgi_shape_text(w).text, tgi_dims_text(inner, x->dim + x->ndim - inner).text);
}

tg_tensor *tg_layer_norm(tg_tensor *x, int normalized_ndim, tg_tensor *weight, tg_tensor *bias, double eps)
{
    tgi_composite c;
    if (!tgi_composite_begin_with(&c, "layer_norm", "x,weight?,bias?", x, weight, bias)) return NULL;
    if (!tgi_check_normalized(c.S, "layer_norm", x, normalized_ndim, weight, "weight") ||
        !tgi_check_normalized(c.S, "layer_norm", x, normalized_ndim, bias, "bias")) {
        return tgi_composite_end(&c, NULL);
    }
    tg_tensor *y = tgi_normalize(tg_contiguous(x), normalized_ndim, false, eps);
    if (weight) y = tg_mul(y, weight);
    if (bias) y = tg_add(y, bias);
    return tgi_composite_end(&c, y);
}

tg_tensor *tg_rms_norm(tg_tensor *x, int normalized_ndim, tg_tensor *weight, double eps)
{
    tgi_composite c;
    if (!tgi_composite_begin_with(&c, "rms_norm", "x,weight?", x, weight)) return NULL;
    if (!tgi_check_normalized(c.S, "rms_norm", x, normalized_ndim, weight, "weight"))
        return tgi_composite_end(&c, NULL);
    tg_tensor *y = tgi_normalize(tg_contiguous(x), normalized_ndim, true, eps);
    if (weight) y = tg_mul(y, weight);
    return tgi_composite_end(&c, y);
}

/* -------- @@MATMUL ------------------------------------------------------------------------------------------------ */

/* ---- matmul ---- */

tg_status tg_set_matmul_precision(tg_precision precision)
{
    tgi_thread *S = tgi_self();
    if (precision != TG_PRECISION_F32 && precision != TG_PRECISION_TF32) {
        tgi_fail(S, TG_ERR_ARGUMENT, "set_matmul_precision",
                 "precision %d is neither TG_PRECISION_F32 nor TG_PRECISION_TF32", (int)precision);
        return TG_ERR_ARGUMENT;
    }
    S->precision = precision;
    return TG_OK;
}

tg_precision tg_matmul_precision(void) { return tgi_self()->precision; }

/* The operands of a product must have the same dtype, which must not be bool. */
static bool tgi_check_product_dtypes(tgi_thread *S, const char *op, const char *a_name, const tg_tensor *a,
                                     const char *b_name, const tg_tensor *b)
{
    if (a->dtype == b->dtype && a->dtype == TG_BOOL)
        return tgi_fail(S, TG_ERR_DTYPE, op, "bool tensors cannot be multiplied\ntg_to_dtype makes numbers of them");
    if (a->dtype == b->dtype) return true;
    return tgi_fail(S, TG_ERR_DTYPE, op,
                    "expected m1 and m2 to have the same dtype, but got: %s != %s\n"
                    "%s%s%s %s is %s and %s%s%s %s is %s: tg_to_dtype(%s, tg_dtype_of(%s))",
                    tg_dtype_name((tg_dtype)a->dtype), tg_dtype_name((tg_dtype)b->dtype), a_name, a->name ? " " : "",
                    a->name ? a->name : "", tgi_shape_text(a).text, tg_dtype_name((tg_dtype)a->dtype), b_name,
                    b->name ? " " : "", b->name ? b->name : "", tgi_shape_text(b).text,
                    tg_dtype_name((tg_dtype)b->dtype), b_name, a_name);
}

/* t [batch.., rows, cols] as an operand of a product with ndim batch dims; those that broadcast have stride 0 */
static tgi_operand tgi_batch_operand(const tg_tensor *t, int ndim)
{
    const int lead = ndim - (t->ndim - 2);
    tgi_operand o = tgi_operand_of(t);
    for (int i = 0; i < ndim; ++i) o.stride[i] = i < lead || t->dim[i - lead] == 1 ? 0 : t->stride[i - lead];
    return o;
}

/* y [batch.., m, n] = a [batch.., m, k] times b [batch.., k, n] */
static bool tgi_matmul_kernel(tgi_call *c, tg_tensor *y)
{
    const tg_tensor *a = c->in[0], *b = c->in[1];
    tgi_gemm gemm;
    gemm.precision = c->S->precision;
    gemm.ndim = y->ndim - 2;
    memcpy(gemm.dim, y->dim, sizeof(int64_t) * (size_t)gemm.ndim);
    gemm.m = y->dim[gemm.ndim], gemm.n = y->dim[gemm.ndim + 1], gemm.k = a->dim[a->ndim - 1];
    gemm.out = tgi_operand_of(y);
    gemm.a = tgi_batch_operand(a, gemm.ndim);
    gemm.b = tgi_batch_operand(b, gemm.ndim);
    gemm.a_row = a->stride[a->ndim - 2], gemm.a_col = a->stride[a->ndim - 1];
    gemm.b_row = b->stride[b->ndim - 2], gemm.b_col = b->stride[b->ndim - 1];
    return c->backend->gemm(c->S, &gemm);
}

/* a [batch.., m, k] x b [batch.., k, n] -> [batch.., m, n], batch dims broadcast */
static tg_tensor *tgi_batched_matmul(tg_tensor *a, tg_tensor *b)
{
    tgi_call c;
    if (!tgi_op_begin2(&c, TGI_OP_matmul, a, b)) return NULL;
    if (!tgi_check_product_dtypes(c.S, "matmul", "a", a, "b", b)) return NULL;
    const int64_t m = a->dim[a->ndim - 2], k = a->dim[a->ndim - 1], n = b->dim[b->ndim - 1];
    if (k != b->dim[b->ndim - 2]) {
        return tgi_no_tensor(
            tgi_fail(c.S, TG_ERR_SHAPE, "matmul",
                     "mat1 and mat2 shapes cannot be multiplied (%lldx%lld and %lldx%lld)\nthe shapes are %s and %s",
                     (long long)m, (long long)k, (long long)b->dim[b->ndim - 2], (long long)n, tgi_shape_text(a).text,
                     tgi_shape_text(b).text));
    }
    tg_shape shape = tg_make_shape(a->ndim - 2, a->dim);
    tg_tensor batch; /* b without its last two dims: no more than tgi_broadcast reads */
    memset(&batch, 0, sizeof batch);
    batch.ndim = (uint8_t)(b->ndim - 2);
    memcpy(batch.dim, b->dim, sizeof(int64_t) * batch.ndim);
    if (!tgi_broadcast(c.S, "matmul", &shape.ndim, shape.dim, &batch, c.in, 2)) return NULL;
    shape.dim[shape.ndim++] = m;
    shape.dim[shape.ndim++] = n;
    return tgi_run(&c, shape, (tg_dtype)a->dtype, tgi_matmul_kernel);
}

/* a: g b^T, b: a^T g; backward sums them over the batch dims that were broadcast */
static bool tgi_rule_matmul(tgi_step *step, tg_tensor *g)
{
    tg_tensor *a = tgi_saved_tensor(step, 0), *b = tgi_saved_tensor(step, 1);
    return (!tgi_input_needs_grad(step, 0) || tgi_set_input_grad(step, 0, tg_matmul(g, tg_transpose(b, -2, -1)))) &&
           (!tgi_input_needs_grad(step, 1) || tgi_set_input_grad(step, 1, tg_matmul(tg_transpose(a, -2, -1), g)));
}

/* x [.., m, k] times matrix [k, n]: one product with all rows of x, not one for each of its matrices */
static tg_tensor *tgi_folded_matmul(tg_tensor *x, tg_tensor *matrix)
{
    tg_shape shape = tg_shape_of(x);
    if (!matrix) return NULL;
    shape.dim[shape.ndim - 1] = matrix->dim[1];
    if (x->dim[x->ndim - 1] != matrix->dim[0])
        return tgi_batched_matmul(tg_flatten(x, 0, -2), matrix); /* records the error */
    return tg_reshape(tgi_batched_matmul(tg_flatten(x, 0, -2), matrix), shape);
}

tg_tensor *tg_matmul(tg_tensor *a, tg_tensor *b)
{
    tgi_thread *S = tgi_self();
    tg_tensor *const both[2] = {a, b};
    if (!tgi_arguments(S, "matmul", "a,b", a, b) || !tgi_one_device(S, "matmul", "a,b", both, 2)) return NULL;
    if (a->ndim == 0 || b->ndim == 0) {
        return tgi_no_tensor(tgi_fail(S, TG_ERR_SHAPE, "matmul",
                                      "both arguments to matmul need to be at least 1D, but they are %dD and %dD",
                                      a->ndim, b->ndim));
    }
    const bool row = a->ndim == 1, column = b->ndim == 1;
    if (!row && !column && !(a->ndim > 2 && b->ndim == 2)) return tgi_batched_matmul(a, b);
    tgi_composite c;
    if (!tgi_check_product_dtypes(S, "matmul", "a", a, "b", b) || !tgi_composite_begin(&c, "matmul")) return NULL;
    if (row) a = tg_unsqueeze(a, 0);
    if (column) b = tg_unsqueeze(b, 1);
    tg_tensor *y = a && b && a->ndim > 2 && b->ndim == 2 ? tgi_folded_matmul(a, b) : tgi_batched_matmul(a, b);
    if (column) y = y ? tg_squeeze(y, -1) : NULL;
    if (row) y = y ? tg_squeeze(y, column ? -1 : -2) : NULL;
    return tgi_composite_end(&c, y);
}

/* The operands of mm, bmm, mv and dot must have these numbers of dims. */
static bool tgi_check_product_shapes(tgi_thread *S, const char *op, const tg_tensor *a, const tg_tensor *b, int a_ndim,
                                     int b_ndim)
{
    if (a->ndim != a_ndim || b->ndim != b_ndim) {
        return tgi_fail(S, TG_ERR_SHAPE, op,
                        a_ndim == b_ndim ? "%dD tensors expected, but got %dD and %dD tensors"
                                         : "a %dD tensor and a vector expected, but got %dD and %dD tensors",
                        a_ndim, a->ndim, b->ndim);
    }
    if (a_ndim == 1 && a->dim[0] != b->dim[0]) {
        return tgi_fail(
            S, TG_ERR_SHAPE, op,
            "inconsistent tensor size, expected tensor [%lld] and src [%lld] to have the same number of elements, "
            "but got %lld and %lld elements respectively",
            (long long)a->dim[0], (long long)b->dim[0], (long long)a->dim[0], (long long)b->dim[0]);
    }
    if (a_ndim == 3 && (a->dim[0] != b->dim[0] || a->dim[2] != b->dim[1])) {
        return tgi_fail(
            S, TG_ERR_SHAPE, op,
            "Expected size for first two dimensions of batch2 tensor to be: [%lld, %lld] but got: [%lld, %lld].",
            (long long)a->dim[0], (long long)a->dim[2], (long long)b->dim[0], (long long)b->dim[1]);
    }
    return true;
}

static tg_tensor *tgi_strict_matmul(const char *op, tg_tensor *a, tg_tensor *b, int a_ndim, int b_ndim)
{
    tgi_composite c;
    if (!tgi_composite_begin_with(&c, op, "a,b", a, b)) return NULL;
    const bool ok = tgi_check_product_shapes(c.S, op, a, b, a_ndim, b_ndim);
    return tgi_composite_end(&c, ok ? tg_matmul(a, b) : NULL);
}

tg_tensor *tg_mm(tg_tensor *a, tg_tensor *b) { return tgi_strict_matmul("mm", a, b, 2, 2); }
tg_tensor *tg_bmm(tg_tensor *a, tg_tensor *b) { return tgi_strict_matmul("bmm", a, b, 3, 3); }
tg_tensor *tg_mv(tg_tensor *a, tg_tensor *b) { return tgi_strict_matmul("mv", a, b, 2, 1); }
tg_tensor *tg_dot(tg_tensor *a, tg_tensor *b) { return tgi_strict_matmul("dot", a, b, 1, 1); }

tg_tensor *tg_outer(tg_tensor *a, tg_tensor *b)
{
    tgi_composite c;
    if (!tgi_composite_begin_with(&c, "outer", "a,b", a, b)) return NULL;
    if (a->ndim != 1 || b->ndim != 1) {
        tgi_fail(c.S, TG_ERR_SHAPE, "outer", "outer: Expected 1-D argument, but got %dD and %dD", a->ndim, b->ndim);
        return tgi_composite_end(&c, NULL);
    }
    return tgi_composite_end(&c, tg_mul(tg_unsqueeze(a, 1), b));
}

/* x [.., in], weight [out, in], bias [out] or NULL -> [.., out]; weight [in] -> [..] */
tg_tensor *tg_linear(tg_tensor *x, tg_tensor *weight, tg_tensor *bias)
{
    tgi_composite c;
    if (!tgi_composite_begin_with(&c, "linear", "x,weight,bias?", x, weight, bias)) return NULL;
    if (weight->ndim < 1 || weight->ndim > 2 || x->ndim == 0 || (weight->ndim == 1 && bias && bias->ndim)) {
        tgi_fail(c.S, TG_ERR_SHAPE, "linear",
                 "x [.., in] and weight [out, in] (or [in]) are needed, but their shapes are %s and %s",
                 tgi_shape_text(x).text, tgi_shape_text(weight).text);
        return tgi_composite_end(&c, NULL);
    }
    if (!tgi_check_product_dtypes(c.S, "linear", "x", x, "weight", weight)) return tgi_composite_end(&c, NULL);
    tg_tensor *y = tg_matmul(x, weight->ndim == 1 ? weight : tg_t(weight));
    if (bias) y = tg_add(y, bias);
    return tgi_composite_end(&c, y);
}

/* beta c + alpha a b, with a [m, k], b [k, n] and c broadcast to [m, n] */
tg_tensor *tg_addmm(tg_tensor *c, tg_tensor *a, tg_tensor *b, double beta, double alpha)
{
    tgi_composite inner;
    if (!tgi_composite_begin_with(&inner, "addmm", "c,a,b", c, a, b)) return NULL;
    tg_tensor *y = tg_mm(a, b);
    if (alpha != 1) y = tg_mul_scalar(y, alpha);
    if (y && beta == 0) c = tg_zeros_like(c); /* NaN in c must not reach the result */
    if (y && beta != 1 && beta != 0) c = tg_mul_scalar(c, beta);
    if (y && c) c = tg_expand(c, tgi_shape_of(y));
    return tgi_composite_end(&inner, tg_add(c, y));
}

/* ---- einsum: the operands are contracted from left to right, two at a time, each time as one batched product.  Every
   dim has a label: 0-25 for a-z, 26-51 for A-Z, 52-59 for the dims of "...", which are aligned to the right. ---- */

enum { TGI_NAMED_LABELS = 52, TGI_LABELS = TGI_NAMED_LABELS + TG_MAX_DIMS };

static const char tgi_subscripts[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ........"; /* by label */

typedef struct { int n, label[TG_MAX_DIMS]; } tgi_labels;
typedef struct { tg_tensor *t; tgi_labels dims; } tgi_einsum_operand;

static int tgi_label_of(char subscript)
{
    const char *p = subscript && subscript != '.' ? strchr(tgi_subscripts, subscript) : NULL;
    return p ? (int)(p - tgi_subscripts) : -1;
}

static bool tgi_is_ellipsis(const char *p, const char *end) { return end - p >= 3 && memcmp(p, "...", 3) == 0; }

/* Where a label is in the list; -1 if it is not. */
static int tgi_find_label(const tgi_labels *list, int label)
{
    for (int i = 0; i < list->n; ++i) {
        if (list->label[i] == label) return i;
    }
    return -1;
}

static void tgi_remove_label(tgi_labels *list, int i)
{
    for (list->n--; i < list->n; ++i) list->label[i] = list->label[i + 1];
}

/* Reads the subscripts of operand `number`: x->dims gets a label for each dim of t. */
static bool tgi_einsum_parse(tgi_thread *S, const char *text, size_t length, int number, tg_tensor *t,
                             tgi_einsum_operand *x)
{
    int named = 0, n = 0;
    bool ellipsis = false;
    for (size_t p = 0; p < length; ++p) named += tgi_label_of(text[p]) >= 0;
    for (size_t p = 0; p < length; ++p) {
        const int label = tgi_label_of(text[p]);
        if (text[p] == ' ') continue;
        if (text[p] == '.' && (ellipsis || !tgi_is_ellipsis(text + p, text + length))) {
            return tgi_fail(S, TG_ERR_ARGUMENT, "einsum", "einsum(): found '.' for operand %d %s", number,
                            ellipsis ? "for which an ellipsis was already found" : "that is not part of any ellipsis");
        }
        if (text[p] == '.') { /* stands for every dim that has no subscript of its own */
            ellipsis = true;
            for (int k = t->ndim - named; k > 0 && n < TG_MAX_DIMS; --k) x->dims.label[n++] = TGI_LABELS - k;
            p += 2;
            continue;
        }
        if (label < 0) {
            return tgi_fail(S, TG_ERR_ARGUMENT, "einsum",
                            "einsum(): invalid subscript given at index %d in the equation string, "
                            "subscripts must be in [a-zA-Z]",
                            (int)p);
        }
        if (n < TG_MAX_DIMS) x->dims.label[n] = label;
        n++;
    }
    x->t = t;
    x->dims.n = n;
    if (n == t->ndim) return true;
    return tgi_fail(S, TG_ERR_SHAPE, "einsum",
                    "einsum(): the number of subscripts in the equation (%d) does not match the number "
                    "of dimensions (%d) for operand %d",
                    n, t->ndim, number);
}

/* Adds the sizes of operand `number` to size [TGI_LABELS], which has -1 for labels that have not occurred, and checks
   that they agree.  A size of 1 broadcasts to that of another operand, but not within one. */
static bool tgi_einsum_sizes(tgi_thread *S, const tgi_einsum_operand *x, int number, int64_t *size)
{
    const int *label = x->dims.label;
    for (int i = 0; i < x->dims.n; ++i) {
        const int64_t n = x->t->dim[i];
        int64_t *known = &size[label[i]];
        for (int k = 0; k < i; ++k) {
            if (label[k] != label[i] || x->t->dim[k] == n) continue;
            return tgi_fail(S, TG_ERR_SHAPE, "einsum",
                            "einsum(): subscript %c is repeated for operand %d but the sizes don't match, %lld != %lld",
                            tgi_subscripts[label[i]], number, (long long)n, (long long)x->t->dim[k]);
        }
        if (*known >= 0 && *known != 1 && n != 1 && n != *known) {
            return tgi_fail(S, TG_ERR_SHAPE, "einsum",
                            "einsum(): subscript %c has size %lld for operand %d which does not broadcast "
                            "with previously seen size %lld",
                            tgi_subscripts[label[i]], (long long)n, number, (long long)*known);
        }
        if (*known < 0 || *known == 1) *known = n;
    }
    return true;
}

/* Replaces dims that have the same label by their diagonal. */
static bool tgi_einsum_diagonals(tgi_einsum_operand *x)
{
    for (int i = 0; i < x->dims.n; ++i) {
        const int label = x->dims.label[i];
        int k = i + 1;
        while (k < x->dims.n && x->dims.label[k] != label) ++k;
        if (k == x->dims.n) continue;
        x->t = tg_diagonal(x->t, 0, i, k); /* without dims i and k; the diagonal is the last dim */
        if (!x->t) return false;
        tgi_remove_label(&x->dims, k);
        tgi_remove_label(&x->dims, i);
        x->dims.label[x->dims.n++] = label;
        i = -1; /* the dims have moved: start again */
    }
    return true;
}

/* Sums over the dims whose label is neither kept nor in other (which may be NULL). */
static bool tgi_einsum_sum(tgi_einsum_operand *x, const bool *kept, const tgi_einsum_operand *other)
{
    for (int i = x->dims.n - 1; i >= 0; --i) {
        const int label = x->dims.label[i];
        if (kept[label] || (other && tgi_find_label(&other->dims, label) >= 0)) continue;
        x->t = tg_sum_dim(x->t, i, false);
        tgi_remove_label(&x->dims, i);
        if (!x->t) return false;
    }
    return true;
}

/* x as [batch, rows, columns]: the dims of each group of labels taken as one, after sizes of 1 are broadcast. */
static tg_tensor *tgi_einsum_group(const tgi_einsum_operand *x, const tgi_labels *batch, const tgi_labels *rows,
                                   const tgi_labels *columns, const int64_t *size)
{
    const tgi_labels *const group[3] = {batch, rows, columns};
    int order[TG_MAX_DIMS];
    tg_shape wide = TG_SCALAR;
    for (int k = 0; k < 3; ++k) {
        for (int i = 0; i < group[k]->n; ++i) {
            order[wide.ndim] = tgi_find_label(&x->dims, group[k]->label[i]);
            wide.dim[wide.ndim++] = size[group[k]->label[i]];
        }
    }
    tg_tensor *t = tgi_permute(x->t, order);
    t = t ? tg_expand(t, wide) : NULL;
    if (!t) return NULL;
    int64_t dims[3] = {1, 1, 1}; /* these products cannot overflow, since t has them */
    for (int k = 0; k < 3; ++k) {
        for (int i = 0; i < group[k]->n; ++i) dims[k] *= size[group[k]->label[i]];
    }
    return tg_reshape(t, tg_make_shape(3, dims));
}

/* a := a times b, summed over the labels that both have and that are not kept:
   [batch, left, both] x [batch, both, right] -> [batch, left, right] */
static bool tgi_einsum_contract(tgi_einsum_operand *a, const tgi_einsum_operand *b, const bool *kept,
                                const int64_t *size)
{
    tgi_labels batch, left, both, right;
    batch.n = left.n = both.n = right.n = 0;
    for (int i = 0; i < a->dims.n; ++i) {
        const int label = a->dims.label[i];
        tgi_labels *group = tgi_find_label(&b->dims, label) < 0 ? &left : kept[label] ? &batch : &both;
        group->label[group->n++] = label;
    }
    for (int i = 0; i < b->dims.n; ++i) {
        if (tgi_find_label(&a->dims, b->dims.label[i]) < 0) right.label[right.n++] = b->dims.label[i];
    }
    if (batch.n + left.n + right.n > TG_MAX_DIMS)
        return tgi_fail(tgi_self(), TG_ERR_SHAPE, "einsum", "a product has more than 8 dims");
    tg_tensor *columns = tgi_einsum_group(b, &batch, &both, &right, size);
    a->t = tgi_batched_matmul(tgi_einsum_group(a, &batch, &left, &both, size), columns);
    a->dims = batch;
    for (int i = 0; i < left.n; ++i) a->dims.label[a->dims.n++] = left.label[i];
    for (int i = 0; i < right.n; ++i) a->dims.label[a->dims.n++] = right.label[i];
    tg_shape shape;
    shape.ndim = a->dims.n;
    for (int i = 0; i < a->dims.n; ++i) shape.dim[i] = size[a->dims.label[i]];
    a->t = a->t ? tg_reshape(a->t, shape) : NULL;
    return a->t != NULL;
}

static bool tgi_einsum_add_output(tgi_thread *S, int label, tgi_labels *output)
{
    if (output->n == TG_MAX_DIMS) return tgi_fail(S, TG_ERR_SHAPE, "einsum", "the output has more than 8 dims");
    output->label[output->n++] = label;
    return true;
}

/* Appends the labels of "...", outermost first. */
static bool tgi_einsum_add_ellipsis(tgi_thread *S, tgi_labels *output, const int64_t *size)
{
    for (int i = TGI_NAMED_LABELS; i < TGI_LABELS; ++i) {
        if (size[i] >= 0 && !tgi_einsum_add_output(S, i, output)) return false;
    }
    return true;
}

/* The output's labels from the text after "->". */
static bool tgi_einsum_parse_output(tgi_thread *S, const char *text, tgi_labels *output, const int64_t *size)
{
    bool ellipsis = false;
    for (const char *p = text; *p; ++p) {
        const int label = tgi_label_of(*p);
        if (*p == ' ') continue;
        if (*p == '.' && (ellipsis || !tgi_is_ellipsis(p, p + strlen(p)))) {
            return tgi_fail(S, TG_ERR_ARGUMENT, "einsum", "einsum(): found '.' for output %s",
                            ellipsis ? "but an ellipsis (...) was already found"
                                     : "that is not part of any ellipsis (...)");
        }
        if (*p == '.') {
            ellipsis = true;
            if (!tgi_einsum_add_ellipsis(S, output, size)) return false;
            p += 2;
            continue;
        }
        const bool repeated = label >= 0 && tgi_find_label(output, label) >= 0;
        if (label < 0 || size[label] < 0 || repeated) {
            return tgi_fail(S, TG_ERR_ARGUMENT, "einsum",
                            repeated
                                ? "einsum(): output subscript %c appears more than once in the output"
                                : "einsum(): output subscript %c does not appear in the equation for any input operand",
                            *p);
        }
        if (!tgi_einsum_add_output(S, label, output)) return false;
    }
    return true;
}

/* The output's labels without "->": those of "...", then the subscripts that occur once, A-Z before a-z. */
static bool tgi_einsum_implicit_output(tgi_thread *S, const char *equation, tgi_labels *output, const int64_t *size)
{
    int times[TGI_NAMED_LABELS] = {0};
    for (const char *p = equation; *p; ++p) {
        if (tgi_label_of(*p) >= 0) times[tgi_label_of(*p)]++;
    }
    if (!tgi_einsum_add_ellipsis(S, output, size)) return false;
    for (int i = 0; i < TGI_NAMED_LABELS; ++i) {
        const int label = (i + 26) % TGI_NAMED_LABELS;
        if (times[label] == 1 && !tgi_einsum_add_output(S, label, output)) return false;
    }
    return true;
}

/* kept [TGI_LABELS]: whether the output or an operand in the text from p to end has the label. */
static void tgi_einsum_kept(const tgi_labels *output, const char *p, const char *end, bool *kept)
{
    memset(kept, 0, TGI_LABELS * sizeof *kept);
    for (int i = 0; i < output->n; ++i) kept[output->label[i]] = true;
    for (; p < end; ++p) {
        if (tgi_label_of(*p) >= 0) kept[tgi_label_of(*p)] = true;
        for (int i = TGI_NAMED_LABELS; *p == '.' && i < TGI_LABELS; ++i) kept[i] = true;
    }
}

static tg_tensor *tgi_einsum(tgi_thread *S, const char *equation, tg_tensor *const *tensors, int n)
{
    const char *arrow = strstr(equation, "->"), *p = equation, *end = arrow ? arrow : equation + strlen(equation);
    int64_t size[TGI_LABELS];
    for (int i = 0; i < TGI_LABELS; ++i) size[i] = -1;
    tgi_einsum_operand next;
    for (int i = 0; i < n; ++i) { /* all sizes first: an operand of size 1 broadcasts to a later one */
        const size_t length = strcspn(p, ",") < (size_t)(end - p) ? strcspn(p, ",") : (size_t)(end - p);
        if (!tgi_einsum_parse(S, p, length, i, tensors[i], &next) || !tgi_einsum_sizes(S, &next, i, size)) return NULL;
        p += length;
        if ((i < n - 1) != (*p == ',' && p < end)) {
            return tgi_no_tensor(tgi_fail(S, TG_ERR_ARGUMENT, "einsum",
                                          "einsum(): %s operands were provided than specified in the equation",
                                          i < n - 1 ? "more" : "fewer"));
        }
        p++;
    }
    tgi_labels output;
    output.n = 0;
    if (arrow ? !tgi_einsum_parse_output(S, arrow + 2, &output, size)
              : !tgi_einsum_implicit_output(S, equation, &output, size)) {
        return NULL;
    }
    p = equation;
    tgi_einsum_operand x; /* the product so far */
    memset(&x, 0, sizeof x);
    for (int i = 0; i < n; ++i) {
        bool kept[TGI_LABELS];
        const size_t length = strcspn(p, ",") < (size_t)(end - p) ? strcspn(p, ",") : (size_t)(end - p);
        if (!tgi_einsum_parse(S, p, length, i, tensors[i], &next) || !tgi_einsum_diagonals(&next)) return NULL;
        p += length + 1;
        tgi_einsum_kept(&output, p, end, kept);
        if (!tgi_einsum_sum(&next, kept, i ? &x : NULL)) return NULL;
        if (i == 0) x = next;
        else if (!tgi_einsum_sum(&x, kept, &next) || !tgi_einsum_contract(&x, &next, kept, size))
            return NULL;
    }
    int order[TG_MAX_DIMS];
    for (int i = 0; i < output.n; ++i) order[i] = tgi_find_label(&x.dims, output.label[i]);
    return tgi_permute(x.t, order);
}

tg_tensor *tg_einsum(const char *equation, tg_tensor *const *tensors, int n)
{
    tgi_thread *S = tgi_self();
    if (!equation || !tensors) return tgi_no_tensor(tgi_null_argument(S, "einsum", equation ? "tensors" : "equation"));
    if (n <= 0)
        return tgi_no_tensor(tgi_fail(S, TG_ERR_ARGUMENT, "einsum", "einsum(): must provide at least one operand"));
    if (!tgi_argument_list(S, "einsum", "tensors", tensors, n, n)) return NULL;
    if (!tgi_one_device(S, "einsum", "tensors", tensors, n)) return NULL;
    tgi_composite c;
    if (!tgi_composite_begin(&c, "einsum")) return NULL;
    tg_tensor *y = tgi_einsum(S, equation, tensors, n);
    if (y && !(y->link.next && y->scope == c.scope)) y = tg_clone(y); /* y is a tensor of the user */
    return tgi_composite_end(&c, y);
}

/* -------- @@SAMPLE ------------------------------------------------------------------------------------------------ */

/* ---- random numbers ---- */

/* lo, hi: the bounds of randint; lo: the p of bernoulli */
static tg_tensor *tgi_random_tensor(const char *op, tgi_random kind, double lo, double hi, tg_shape shape,
                                    tg_dtype dtype, tg_device device)
{
    tgi_thread *S = tgi_self();
    const tgi_backend *backend = tgi_backend_for(S, op, &device);
    if (!backend) return NULL;
    if ((kind == TGI_UNIFORM || kind == TGI_NORMAL) && !tg_is_floating_point(dtype)) {
        return tgi_no_tensor(
            tgi_fail(S, TG_ERR_DTYPE, op, "a floating point dtype is needed, not %s", tg_dtype_name(dtype)));
    }
    tg_tensor *t = tgi_empty(S, op, shape, dtype, device);
    if (!t) return NULL;
    int64_t n = tgi_numel(t);
    if (!backend->random(S, kind, tgi_operand_of(t), n, lo, hi, S->rng)) return tgi_or_release(S, t, false);
    S->rng.offset += tgi_random_counters(kind, dtype, n);
    return t;
}

tg_tensor *tg_rand_on(tg_shape shape, tg_dtype dtype, tg_device device)
{
    return tgi_random_tensor("rand_on", TGI_UNIFORM, 0, 1, shape, dtype, device);
}
tg_tensor *tg_randn_on(tg_shape shape, tg_dtype dtype, tg_device device)
{
    return tgi_random_tensor("randn_on", TGI_NORMAL, 0, 1, shape, dtype, device);
}

static tg_tensor *tgi_random_default(const char *op, tgi_random kind, tg_shape shape)
{
    const tgi_thread *S = tgi_self();
    return tgi_random_tensor(op, kind, 0, 1, shape, S->default_dtype, S->default_device);
}

tg_tensor *tg_rand(tg_shape shape) { return tgi_random_default("rand", TGI_UNIFORM, shape); }
tg_tensor *tg_randn(tg_shape shape) { return tgi_random_default("randn", TGI_NORMAL, shape); }

static tg_tensor *tgi_random_like(const char *op, tgi_random kind, tg_tensor *t)
{
    if (!tgi_argument(tgi_self(), op, "t", t)) return NULL;
    return tgi_random_tensor(op, kind, 0, 1, tgi_shape_of(t), (tg_dtype)t->dtype, tgi_device_of(t));
}

tg_tensor *tg_rand_like(tg_tensor *t) { return tgi_random_like("rand_like", TGI_UNIFORM, t); }
tg_tensor *tg_randn_like(tg_tensor *t) { return tgi_random_like("randn_like", TGI_NORMAL, t); }

static tg_tensor *tgi_randint(const char *op, int64_t low, int64_t high, tg_shape shape, tg_dtype dtype,
                              tg_device device)
{
    tgi_thread *S = tgi_self();
    const int64_t exact = (int64_t)1 << 53;
    if (low >= high) {
        return tgi_no_tensor(tgi_fail(S, TG_ERR_ARGUMENT, op,
                                      "random_ expects 'from' to be less than 'to', but got from=%lld >= to=%lld",
                                      (long long)low, (long long)high));
    }
    if (low < -exact || high > exact)
        return tgi_no_tensor(tgi_fail(S, TG_ERR_ARGUMENT, op, "bounds must lie within 2^53"));
    return tgi_random_tensor(op, TGI_RANDINT, (double)low, (double)high, shape, dtype, device);
}

tg_tensor *tg_randint_on(int64_t low, int64_t high, tg_shape shape, tg_dtype dtype, tg_device device)
{
    return tgi_randint("randint_on", low, high, shape, dtype, device);
}

tg_tensor *tg_randint(int64_t low, int64_t high, tg_shape shape)
{
    return tgi_randint("randint", low, high, shape, TG_I64, tgi_self()->default_device);
}

/* The order in which n random numbers sort; equal ones, of 2^53 possible values, keep their order. */
tg_tensor *tg_randperm(int64_t n)
{
    tgi_composite c;
    if (!tgi_composite_begin(&c, "randperm")) return NULL;
    tg_tensor *order = NULL;
    if (n < 0)
        tgi_fail(c.S, TG_ERR_ARGUMENT, "randperm", "n must be non-negative, got %lld", (long long)n);
    else if (!tg_sort(tg_rand_on(TG_SHAPE(n), TG_F64, c.S->default_device), 0, false, &order))
        order = NULL;
    return tgi_composite_end(&c, order);
}

tg_tensor *tg_bernoulli_on(tg_shape shape, double p, tg_dtype dtype, tg_device device)
{
    tgi_thread *S = tgi_self();
    if (!(p >= 0 && p <= 1)) {
        return tgi_no_tensor(
            tgi_fail(S, TG_ERR_ARGUMENT, "bernoulli_on", "bernoulli_ expects p to be in [0, 1], but got p=%g", p));
    }
    return tgi_random_tensor("bernoulli_on", TGI_BERNOULLI, p, 0, shape, dtype, device);
}

/* x with each element 0 with probability p, else x / (1 - p) */
tg_tensor *tg_dropout(tg_tensor *x, double p, bool training)
{
    tgi_thread *S = tgi_self();
    if (!tgi_argument(S, "dropout", "x", x)) return NULL;
    if (!(p >= 0 && p <= 1)) {
        return tgi_no_tensor(
            tgi_fail(S, TG_ERR_ARGUMENT, "dropout", "dropout probability has to be between 0 and 1, but got %g", p));
    }
    if (!training || p == 0) return x;
    tgi_composite c;
    if (!tgi_need_floating(S, "dropout", x) || !tgi_composite_begin(&c, "dropout")) return NULL;
    tg_tensor *mask = tg_bernoulli_on(tgi_shape_of(x), 1 - p, (tg_dtype)x->dtype, tgi_device_of(x));
    if (p < 1) mask = tg_div_scalar(mask, 1 - p);
    return tgi_composite_end(&c, tg_mul(x, mask));
}

/* -------- @@ATTENTION --------------------------------------------------------------------------------------------- */

static bool tgi_check_attention(tgi_thread *S, const char *op, const tg_tensor *q, const tg_tensor *k,
                                const tg_tensor *v, const tg_tensor *mask, bool is_causal)
{
    const tg_tensor *const all[3] = {q, k, v};
    if (q->ndim < 2 || k->ndim < 2 || v->ndim < 2) {
        return tgi_fail(S, TG_ERR_SHAPE, op,
                        "Expected query, key, and value to all be at least 2 dimensional, but got %d, %d and %d dims",
                        q->ndim, k->ndim, v->ndim);
    }
    if (mask && is_causal)
        return tgi_fail(S, TG_ERR_ARGUMENT, op, "Explicit attn_mask should not be set when is_causal is true");
    bool fits = q->dim[q->ndim - 1] == k->dim[k->ndim - 1] && k->dim[k->ndim - 2] == v->dim[v->ndim - 2];
    for (int back = 3; back <= TG_MAX_DIMS; ++back) { /* the batch dims must broadcast */
        int64_t size = 1;
        for (int i = 0; i < 3; ++i) {
            const int64_t own = all[i]->ndim < back ? 1 : all[i]->dim[all[i]->ndim - back];
            fits = fits && (own == 1 || size == 1 || own == size);
            if (own != 1) size = own;
        }
    }
    return fits || tgi_fail(S, TG_ERR_SHAPE, op,
                            "q %s, k %s and v %s do not fit\n"
                            "q [.., L, E], k [.., S, E] and v [.., S, D] are needed, the dims in front broadcast",
                            tgi_shape_text(q).text, tgi_shape_text(k).text, tgi_shape_text(v).text);
}

/* softmax(scale q k^T + mask) v: q [.., L, E], k [.., S, E], v [.., S, D], mask broadcast to [.., L, S] -> [.., L, D].
   Where a bool mask is false, or is_causal hides the key, the score is -inf. */
tg_tensor *tg_scaled_dot_product_attention(tg_tensor *q, tg_tensor *k, tg_tensor *v, tg_tensor *mask, double dropout_p,
                                           bool is_causal, double scale)
{
    const char *op = "scaled_dot_product_attention";
    const double none = -(double)INFINITY;
    tgi_composite c;
    if (!tgi_composite_begin_with(&c, op, "q,k,v,mask?", q, k, v, mask)) return NULL;
    if (!tgi_check_attention(c.S, op, q, k, v, mask, is_causal)) return tgi_composite_end(&c, NULL);
    const tg_dtype dtype = (tg_dtype)q->dtype;
    if (scale == 0) scale = 1 / sqrt((double)q->dim[q->ndim - 1]);
    q = tgi_upcast(q), k = tgi_upcast(k), v = tgi_upcast(v);
    tg_tensor *scores = tg_matmul(tg_mul_scalar(q, scale), tg_transpose(k, -2, -1)); /* [.., L, S] */
    if (scores && is_causal) {
        const tg_shape last = TG_SHAPE(scores->dim[scores->ndim - 2], scores->dim[scores->ndim - 1]);
        tg_tensor *hidden = tg_triu(tg_ones_on(last, TG_BOOL, tgi_device_of(q)), 1);
        scores = tg_masked_fill(scores, hidden, none);
    }
    if (scores && mask)
        scores = mask->dtype == TG_BOOL ? tg_masked_fill(scores, tg_logical_not(mask), none) : tg_add(scores, mask);
    scores = tg_softmax(scores, -1);
    if (scores && dropout_p > 0) scores = tg_dropout(scores, dropout_p, true);
    scores = tg_matmul(scores, v);
    return tgi_composite_end(&c, scores ? tg_to_dtype(scores, dtype) : NULL);
}

/* -------- @@LOSS -------------------------------------------------------------------------------------------------- */

static tg_tensor *tgi_reduce_loss(tgi_thread *S, tg_tensor *loss, int reduction)
{
    if (reduction == TG_NONE || !loss) return loss;
    if (reduction == TG_MEAN) return tg_mean(loss);
    if (reduction == TG_SUM) return tg_sum(loss);
    return tgi_no_tensor(tgi_fail(S, TG_ERR_ARGUMENT, "loss",
                                  "%d is not a valid value for reduction\nTG_NONE, TG_MEAN or TG_SUM", reduction));
}

/* The losses that are functions of d = a - b, elementwise, then reduced:
       mse_loss        d^2
       l1_loss         |d|                                                        (op: TGI_OP_sub)
       smooth_l1_loss  |d| < width ? d^2 / (2 width) : |d| - width / 2            (width: beta)
       huber_loss      |d| < width ? d^2 / 2         : width (|d| - width / 2)    (width: delta) */
static tg_tensor *tgi_difference_loss(const char *name, int op, tg_tensor *a, tg_tensor *b, int reduction, double width)
{
    tgi_composite c;
    if (!tgi_composite_begin_with(&c, name, "a,b", a, b)) return NULL;
    if (!(width >= 0) || (op == TGI_OP_huber_loss && width == 0)) {
        tgi_fail(c.S, TG_ERR_ARGUMENT, name,
                 op == TGI_OP_huber_loss ? "huber_loss does not support non-positive values for delta."
                                         : "smooth_l1_loss does not support negative values for beta.");
        return tgi_composite_end(&c, NULL);
    }
    /* each loss warns once */
    const unsigned bit = op == TGI_OP_sub ? 1u : op == TGI_OP_mse_loss ? 2u : op == TGI_OP_huber_loss ? 4u : 8u;
    const bool warns = !tgi_same_shape(a, b->ndim, b->dim) && !(c.S->warned_sizes & bit);
    tg_tensor *loss = tgi_map2(op, false, a, b, width);
    if (op == TGI_OP_sub) loss = tg_abs(loss);
    loss = tgi_composite_end(&c, tgi_reduce_loss(c.S, loss, reduction));
    if (warns) { /* last, since the handler may release a and b */
        c.S->warned_sizes |= bit;
        tgi_warn(c.S, "warning: Using a target size that is different to the input size. This will likely lead to "
                      "incorrect results due to broadcasting. Please ensure they have the same size.");
    }
    return loss;
}

tg_tensor *tg_mse_loss(tg_tensor *a, tg_tensor *b, int reduction)
{
    return tgi_difference_loss("mse_loss", TGI_OP_mse_loss, a, b, reduction, 0);
}
tg_tensor *tg_l1_loss(tg_tensor *a, tg_tensor *b, int reduction)
{
    return tgi_difference_loss("l1_loss", TGI_OP_sub, a, b, reduction, 0);
}

tg_tensor *tg_smooth_l1_loss(tg_tensor *a, tg_tensor *b, int reduction, double beta)
{
    return tgi_difference_loss("smooth_l1_loss", beta == 0 ? TGI_OP_sub : TGI_OP_smooth_l1_loss, a, b, reduction, beta);
}

tg_tensor *tg_huber_loss(tg_tensor *a, tg_tensor *b, int reduction, double delta)
{
    return tgi_difference_loss("huber_loss", TGI_OP_huber_loss, a, b, reduction, delta);
}

/* weight [C] reshaped to [1, C, 1..], to broadcast with x [N, C, d..]; for x [C] it stays [C] */
static tg_tensor *tgi_class_weights(tgi_thread *S, const char *op, tg_tensor *weight, const tg_tensor *x)
{
    tg_shape shape = TG_SCALAR;
    int dim = x->ndim > 1 ? 1 : 0;
    if (weight->ndim != 1 || weight->dim[0] != x->dim[dim]) {
        return tgi_no_tensor(tgi_fail(
            S, TG_ERR_SHAPE, op,
            "weight tensor should be defined either for all %lld classes or no classes but got weight tensor of "
            "shape: %s",
            (long long)x->dim[dim], tgi_shape_text(weight).text));
    }
    shape.ndim = x->ndim;
    for (int i = 0; i < x->ndim; ++i) shape.dim[i] = i == dim ? x->dim[dim] : 1;
    return tg_reshape(weight, shape);
}

/* targets [N, d..] of class indices must fit x [N, C, d..]; without a batch: targets of no dims, x [C] */
static bool tgi_check_targets(tgi_thread *S, const char *op, const tg_tensor *x, const tg_tensor *targets)
{
    if (x->ndim == 0) return tgi_fail(S, TG_ERR_SHAPE, op, "input must have at least one dim, the classes");
    if (targets->dtype != TG_I64 && targets->dtype != TG_I32) {
        return tgi_fail(S, TG_ERR_DTYPE, op, "Expected dtype int32/int64 for class indices, but got %s\n"
                        "class indices must be i64: tg_to_dtype(targets, TG_I64)",
                        tg_dtype_name((tg_dtype)targets->dtype));
    }
    if (targets->ndim != x->ndim - 1) {
        return tgi_fail(S, TG_ERR_SHAPE, op, "input of shape %s needs targets of %d dims, but got shape %s",
                        tgi_shape_text(x).text, x->ndim - 1, tgi_shape_text(targets).text);
    }
    if (x->ndim > 1 && x->dim[0] != targets->dim[0]) {
        return tgi_fail(S, TG_ERR_SHAPE, op, "Expected input batch_size (%lld) to match target batch_size (%lld).",
                        (long long)x->dim[0], (long long)targets->dim[0]);
    }
    for (int i = 1; i < targets->ndim; ++i) {
        if (x->dim[i + 1] == targets->dim[i]) continue;
        return tgi_fail(S, TG_ERR_SHAPE, op, "size mismatch (got input: %s, target: %s)", tgi_shape_text(x).text,
                        tgi_shape_text(targets).text);
    }
    return true;
}

/* The loss of class indices: logp [N, C, d..], targets [N, d..], weight [C] or NULL.  For each element with target t:
       w_t = weight[t], 0 if t is ignore_index
       loss = -(1 - smoothing) w_t logp[t] - smoothing / C sum_c weight[c] logp[c], 0 if t is ignore_index
   TG_MEAN: sum(loss) / sum(w_t) */
static tg_tensor *tgi_nll(tgi_thread *S, const char *op, tg_tensor *logp, tg_tensor *targets, tg_tensor *weight,
                          int64_t ignore_index, double smoothing, int reduction)
{
    const int dim = logp->ndim > 1 ? 1 : 0;
    const double classes = (double)logp->dim[dim];
    tg_tensor *ignored = tg_eq_scalar(targets, (double)ignore_index);                 /* [N, d..], bool */
    tg_tensor *safe = tg_unsqueeze(tg_masked_fill(targets, ignored, 0), dim);         /* [N, 1, d..], a valid index */
    tg_tensor *loss = safe ? tgi_gather_op(logp, dim, safe, TGI_INDEX_TARGET) : NULL; /* [N, 1, d..] */
    if (!loss) return NULL;
    tg_tensor *each = weight ? tgi_class_weights(S, op, weight, logp) : NULL; /* [1, C, 1..] */
    if (weight && !each) return NULL;
    tg_tensor *w = NULL; /* w_t [N, d..]; without weights it is needed for the mean alone */
    if (each) {
        w = tg_squeeze(tg_gather(tg_expand(each, tgi_shape_of(logp)), dim, safe), dim);
        w = w ? tg_masked_fill(w, ignored, 0) : NULL;
    } else if (reduction == TG_MEAN) {
        w = tg_to_dtype(tg_logical_not(ignored), (tg_dtype)logp->dtype);
    }
    loss = tg_neg(tg_squeeze(loss, dim));
    if (each) loss = tg_mul(loss, w);
    loss = tg_masked_fill(loss, ignored, 0);
    if (smoothing > 0) {
        tg_tensor *uniform = tg_neg(tg_sum_dim(each ? tg_mul(logp, each) : logp, dim, false));
        uniform = tg_masked_fill(uniform, ignored, 0);
        loss = tg_add(tg_mul_scalar(loss, 1 - smoothing), tg_mul_scalar(uniform, smoothing / classes));
    }
    if (reduction != TG_MEAN) return tgi_reduce_loss(S, loss, reduction);
    return tg_div(tg_sum(loss), tg_sum(w));
}

tg_tensor *tg_nll_loss(tg_tensor *log_probs, tg_tensor *targets, tg_tensor *weight, int64_t ignore_index, int reduction)
{
    const char *op = "nll_loss";
    tgi_composite c;
    if (!tgi_composite_begin_with(&c, op, "log_probs,targets,weight?", log_probs, targets, weight)) return NULL;
    if (!tgi_need_floating(c.S, op, log_probs) || !tgi_check_targets(c.S, op, log_probs, targets))
        return tgi_composite_end(&c, NULL);
    return tgi_composite_end(&c, tgi_nll(c.S, op, log_probs, targets, weight, ignore_index, 0, reduction));
}

/* The loss of probabilities, targets [N, C, d..] like logp: -sum_c weight[c] target'[c] logp[c], where target' is
   (1 - smoothing) target + smoothing / C.  TG_MEAN: the sum over everything / (N times d..) */
static tg_tensor *tgi_soft_cross_entropy(tgi_thread *S, tg_tensor *logp, tg_tensor *targets, tg_tensor *weight,
                                         double smoothing, int reduction)
{
    const int dim = logp->ndim > 1 ? 1 : 0;
    if (!tgi_same_shape(targets, logp->ndim, logp->dim)) {
        return tgi_no_tensor(tgi_fail(
            S, TG_ERR_SHAPE, "cross_entropy", "probabilities of shape %s for logits of shape %s%s",
            tgi_shape_text(targets).text, tgi_shape_text(logp).text,
            targets->ndim == logp->ndim - 1 ? "\nclass indices must be i64: tg_to_dtype(targets, TG_I64)" : ""));
    }
    if (smoothing > 0)
        targets = tg_add_scalar(tg_mul_scalar(targets, 1 - smoothing), smoothing / (double)logp->dim[dim]);
    tg_tensor *loss = tg_mul(logp, targets);
    if (weight) {
        tg_tensor *each = tgi_class_weights(S, "cross_entropy", weight, logp);
        if (!each) return NULL;
        loss = tg_mul(loss, each);
    }
    if (reduction == TG_MEAN)
        return tg_div_scalar(tg_neg(tg_sum(loss)),
                             dim ? (double)(tgi_numel(logp) / (logp->dim[1] ? logp->dim[1] : 1)) : 1);
    return tgi_reduce_loss(S, tg_neg(tg_sum_dim(loss, dim, false)), reduction);
}

static tg_tensor *tgi_cross_entropy(const char *op, tg_tensor *logits, tg_tensor *targets, tg_tensor *weight,
                                    int64_t ignore_index, double label_smoothing, int reduction)
{
    tgi_composite c;
    if (!tgi_composite_begin_with(&c, op, "logits,targets,weight?", logits, targets, weight)) return NULL;
    if (!(label_smoothing >= 0 && label_smoothing <= 1)) {
        tgi_fail(c.S, TG_ERR_ARGUMENT, op, "label_smoothing must be between 0.0 and 1.0. Got: %g", label_smoothing);
        return tgi_composite_end(&c, NULL);
    }
    if (!tgi_need_floating(c.S, op, logits)) return tgi_composite_end(&c, NULL);
    if (logits->ndim == 0) {
        tgi_fail(c.S, TG_ERR_SHAPE, op, "logits must have at least one dim, the classes");
        return tgi_composite_end(&c, NULL);
    }
    const bool probabilities = tgi_dtypes[targets->dtype].floating;
    if (!probabilities && !tgi_check_targets(c.S, op, logits, targets)) return tgi_composite_end(&c, NULL);
    tg_tensor *logp = tg_log_softmax(logits, logits->ndim > 1 ? 1 : 0);
    if (!logp) return tgi_composite_end(&c, NULL);
    return tgi_composite_end(
        &c, probabilities ? tgi_soft_cross_entropy(c.S, logp, targets, weight, label_smoothing, reduction)
                          : tgi_nll(c.S, op, logp, targets, weight, ignore_index, label_smoothing, reduction));
}

tg_tensor *tg_cross_entropy_ex(tg_tensor *logits, tg_tensor *targets, tg_tensor *weight, int64_t ignore_index,
                               double label_smoothing, int reduction)
{
    return tgi_cross_entropy("cross_entropy_ex", logits, targets, weight, ignore_index, label_smoothing, reduction);
}

tg_tensor *tg_cross_entropy(tg_tensor *logits, tg_tensor *targets)
{
    return tgi_cross_entropy("cross_entropy", logits, targets, NULL, -100, 0, TG_MEAN);
}

/* -weight (target log(input) + (1 - target) log(1 - input)), logarithms clamped to >= -100; input in [0, 1] */
tg_tensor *tg_binary_cross_entropy(tg_tensor *input, tg_tensor *target, tg_tensor *weight, int reduction)
{
    const char *op = "binary_cross_entropy";
    tgi_composite c;
    if (!tgi_composite_begin_with(&c, op, "input,target", input, target)) return NULL;
    if (!tgi_same_shape(target, input->ndim, input->dim)) {
        tgi_fail(c.S, TG_ERR_SHAPE, op,
                 "Using a target size (%s) that is different to the input size (%s) is deprecated. Please ensure they "
                 "have the same size.",
                 tgi_shape_text(target).text, tgi_shape_text(input).text);
        return tgi_composite_end(&c, NULL);
    }
    tg_tensor *outside = tg_to_dtype(tg_logical_or(tg_lt_scalar(input, 0), tg_gt_scalar(input, 1)), TG_I32);
    if (outside && !tgi_check_index_values(c.S, op, outside, 0, 1, TGI_INDEX_OUTSIDE_0_1)) outside = NULL;
    tg_tensor *loss = outside ? tgi_map2(TGI_OP_binary_cross_entropy, false, input, target, 0) : NULL;
    if (weight) loss = tg_mul(loss, weight);
    return tgi_composite_end(&c, tgi_reduce_loss(c.S, loss, reduction));
}

/* weight ((1 - t) x - l log sigmoid(x)) for input x and target t, with l = 1 + (pos_weight - 1) t */
tg_tensor *tg_binary_cross_entropy_with_logits(tg_tensor *input, tg_tensor *target, tg_tensor *weight, int reduction,
                                               tg_tensor *pos_weight)
{
    const char *op = "binary_cross_entropy_with_logits";
    tgi_composite c;
    if (!tgi_composite_begin_with(&c, op, "input,target", input, target)) return NULL;
    if (!tgi_same_shape(target, input->ndim, input->dim)) {
        tgi_fail(c.S, TG_ERR_SHAPE, op, "Target size (%s) must be the same as input size (%s)",
                 tgi_shape_text(target).text, tgi_shape_text(input).text);
        return tgi_composite_end(&c, NULL);
    }
    const tg_dtype dtype = tg_promote_types((tg_dtype)input->dtype, (tg_dtype)target->dtype);
    input = tgi_upcast(input), target = tgi_upcast(target);
    tg_tensor *loss = tgi_map2(TGI_OP_binary_cross_entropy_with_logits, false, input, target, 0);
    if (pos_weight)
        loss = tg_add(loss, tg_mul(tg_mul(tg_rsub_scalar(pos_weight, 1), target), tg_logsigmoid(input)));
    if (weight) loss = tg_mul(loss, weight);
    loss = tgi_reduce_loss(c.S, loss, reduction);
    return tgi_composite_end(&c, loss ? tg_to_dtype(loss, dtype) : NULL);
}

/* target (log(target) - input), 0 where target is 0; log_target: exp(target) (target - input) */
tg_tensor *tg_kl_div(tg_tensor *input, tg_tensor *target, int reduction, bool log_target)
{
    tgi_composite c;
    if (!tgi_composite_begin_with(&c, "kl_div", "input,target", input, target)) return NULL;
    tg_tensor *loss;
    if (log_target) {
        loss = tg_mul(tg_exp(target), tg_sub(target, input));
    } else {
        tg_tensor *log = tg_log(tg_masked_fill(target, tg_eq_scalar(target, 0), 1));
        loss = tg_sub(tg_mul(target, log), tg_mul(target, input));
    }
    if (reduction != TG_BATCHMEAN) return tgi_composite_end(&c, tgi_reduce_loss(c.S, loss, reduction));
    return tgi_composite_end(&c, tg_div_scalar(tg_sum(loss), input->ndim ? (double)input->dim[0] : 1));
}

/* -------- @@COMPARE ----------------------------------------------------------------------------------------------- */

bool tg_equal(tg_tensor *a, tg_tensor *b)
{
    tgi_composite c;
    if (!tgi_composite_begin_with(&c, "equal", "a,b", a, b)) return false;
    tg_tensor *all = tgi_same_shape(a, b->ndim, b->dim) ? tg_all(tg_eq(a, b)) : NULL;
    const bool same = all && tg_item(all) != 0;
    tgi_composite_end(&c, NULL);
    return same;
}

/* |a - b| <= atol + rtol |b| for every element; infinities are close to equal ones alone */
bool tg_allclose(tg_tensor *a, tg_tensor *b, double rtol, double atol)
{
    tgi_composite c;
    if (!tgi_composite_begin_with(&c, "allclose", "a,b", a, b)) return false;
    c.S->grad_off = true; /* closing the composite's scope restores it */
    tg_tensor *x = tg_to_dtype(a, TG_F64);
    tg_tensor *y = tg_to_dtype(b, TG_F64);
    tg_tensor *near = tg_le(tg_abs(tg_sub(x, y)), tg_add_scalar(tg_mul_scalar(tg_abs(y), rtol), atol));
    near = tg_logical_and(near, tg_isfinite(y));
    tg_tensor *all = tg_all(tg_logical_or(tg_eq(x, y), near));
    const bool close = all && tg_item(all) != 0;
    tgi_composite_end(&c, NULL);
    return close;
}

/* ======== @@CHECK ================================================================================================= */

/* One check of y = fn(inputs).  The Jacobian [m, columns] is dy / dx: a row for each element of y, a column for each
   element of each checked input x, one input after the other. */
typedef struct {
    tgi_thread *S;
    const char *op; /* "gradcheck", for messages */
    tg_function fn;
    void *user;
    tg_tensor *const *in;
    int n;
    tg_gradcheck_options options;
    tg_rng rng;   /* the thread's at the start: every call of fn gets the same random numbers */
    tg_tensor *y; /* of the first call, with its graph */
    int64_t m, columns;
    tg_tensor **checked, **grad; /* [checked_count]: the inputs that require grad; gradients of them */
    int checked_count;
    double *analytic, *numeric;   /* [m, columns]: the Jacobian from backward, and from differences */
    double *value, *plus, *minus; /* [m]: y, and y with one element of an input moved up and down */
    double *again;                /* [columns]: a row of the Jacobian from a second backward */
} tgi_check;

/* The index of element number `at` of a shape, as text: "[1,7]". */
static tgi_text tgi_index_text(int ndim, const int64_t *dims, int64_t at)
{
    int64_t index[TG_MAX_DIMS];
    for (int i = ndim - 1; i >= 0; --i) {
        index[i] = at % dims[i];
        at /= dims[i];
    }
    tgi_text s;
    size_t used = 1;
    strcpy(s.text, "[");
    for (int i = 0; i < ndim && used < sizeof s.text - 24; ++i) {
        used += (size_t)snprintf(s.text + used, sizeof s.text - used, i ? ",%lld" : "%lld", (long long)index[i]);
    }
    strcpy(s.text + used, "]");
    return s;
}

/* ---- what is checked ---- */

static bool tgi_check_options(tgi_check *c, const tg_gradcheck_options *options)
{
    static const tg_gradcheck_options defaults = {0, 0, 0, NULL, NULL, false};
    c->options = options ? *options : defaults;
    if (c->options.eps == 0) c->options.eps = 1e-6;
    if (c->options.atol == 0) c->options.atol = 1e-5;
    if (c->options.rtol == 0) c->options.rtol = 1e-3;
    if (c->options.eps > 0 && c->options.atol >= 0 && c->options.rtol >= 0) return true;
    return tgi_fail(c->S, TG_ERR_ARGUMENT, c->op, "eps %g, atol %g and rtol %g must be positive", c->options.eps,
                    c->options.atol, c->options.rtol);
}

/* Checks the inputs, and counts those that require grad and their elements. */
static bool tgi_check_inputs(tgi_check *c)
{
    tgi_thread *S = c->S;
    if (!c->fn) return tgi_null_argument(S, c->op, "fn");
    if (!c->in && c->n > 0) return tgi_null_argument(S, c->op, "inputs");
    if (!tgi_argument_list(S, c->op, "inputs", c->in, c->n, c->n)) return false;
    for (int i = 0; i < c->n; ++i) {
        tg_tensor *t = c->in[i];
        if (!tgi_refresh_view(S, t)) return false;
        if (!(t->flags & TGI_REQUIRES_GRAD)) continue;
        if (tgi_overlaps_itself(t)) {
            return tgi_fail(S, TG_ERR_ARGUMENT, c->op,
                            "The %dth input has a dimension with stride 0. gradcheck only supports inputs that are "
                            "non-overlapping to be able to compute the numerical gradients correctly.\n"
                            "expand inside the function, or pass tg_contiguous(t)", i);
        }
        c->checked_count++;
        c->columns += tgi_numel(t);
    }
    if (c->checked_count) return true;
    return tgi_fail(S, TG_ERR_ARGUMENT, c->op,
                    "gradcheck expects at least one input tensor to require gradient, but none of the them have "
                    "requires_grad=True.\ntg_set_requires_grad(t, true)");
}

/* fn(inputs), with grad mode on and the random numbers of the first call; NULL after recording an error. */
static tg_tensor *tgi_check_call(tgi_check *c)
{
    tgi_thread *S = c->S;
    S->rng = c->rng;
    S->grad_off = false;
    tgi_guard guard;
    tgi_guard_open(&guard, S, "the function");
    tg_tensor *y = c->fn(c->in, c->n, c->user);
    if (!tgi_guard_close(&guard) || tgi_guard_failed(&guard)) return NULL;
    if (!y) return tgi_no_tensor(tgi_fail(S, TG_ERR_ARGUMENT, c->op, "the function returned NULL"));
    if (!tgi_argument(S, c->op, "of the function's result", y)) return NULL;
    if (c->y && !tgi_same_shape(y, c->y->ndim, c->y->dim)) {
        return tgi_no_tensor(tgi_fail(S, TG_ERR_SHAPE, c->op, "the function returned shape %s, and then %s",
                                      tgi_shape_text(c->y).text, tgi_shape_text(y).text));
    }
    return tgi_refresh_view(S, y) ? y : NULL;
}

/* The first call of fn: sets c->y. */
static bool tgi_check_first_call(tgi_check *c)
{
    tg_tensor *y = tgi_check_call(c);
    if (!y) return false;
    if (!tgi_dtypes[y->dtype].floating) {
        return tgi_fail(c->S, TG_ERR_DTYPE, c->op, "the function returned %s: only floating point has gradients",
                        tg_dtype_name((tg_dtype)y->dtype));
    }
    c->y = y;
    return true;
}

/* Copies the elements of t, row-major, to f64 values [count]; zeros when t is NULL. */
static bool tgi_check_read(tgi_check *c, tg_tensor *t, double *values, int64_t count)
{
    if (!t) {
        memset(values, 0, sizeof *values * (size_t)count);
        return true;
    }
    c->S->grad_off = true;
    t = tg_to_dtype(t, TG_F64);
    const bool ok = t && tg_copy_out(t, values, sizeof *values * (size_t)count) == TG_OK;
    c->S->grad_off = false;
    return ok;
}

/* Memory for f64 values [rows, columns]; the check's scope releases it. */
static double *tgi_check_buffer(int64_t rows, int64_t columns)
{
    static const tg_device cpu = TG_CPU_INIT;
    tg_tensor *t = tg_empty_on(TG_SHAPE(rows, columns), TG_F64, cpu);
    return t ? (double *)t->storage->data : NULL;
}

/* Calls fn once, warns of inputs that are not f64, and allocates what the check needs. */
static bool tgi_check_prepare(tgi_check *c)
{
    if (!tgi_check_first_call(c)) return false;
    c->m = tgi_numel(c->y);
    for (int i = 0; i < c->n; ++i) {
        if (!(c->in[i]->flags & TGI_REQUIRES_GRAD) || c->in[i]->dtype == TG_F64) continue;
        char warning[256];
        snprintf(warning, sizeof warning,
                 "warning: tg_%s: Input #%d requires gradient and is not a double precision floating point. This "
                 "check will likely fail.\n  hint: pass tg_to_dtype(t, TG_F64), or a larger eps and tolerances",
                 c->op, i);
        tgi_warn(c->S, warning);
    }
    c->analytic = tgi_check_buffer(c->m, c->columns);
    c->numeric = c->analytic ? tgi_check_buffer(c->m, c->columns) : NULL;
    c->again = c->numeric ? tgi_check_buffer(1, c->columns) : NULL;
    c->value = c->again ? tgi_check_buffer(3, c->m) : NULL;
    if (!c->value) return false;
    c->plus = c->value + c->m;
    c->minus = c->plus + c->m;
    return tgi_check_read(c, c->y, c->value, c->m);
}

/* ---- the Jacobian from backward ---- */

/* Where element `number` of t, counted row-major, lies: elements from the first one. */
static int64_t tgi_element_place(const tg_tensor *t, int64_t number)
{
    int64_t at = 0;
    for (int i = t->ndim - 1; i >= 0; --i) {
        at += number % t->dim[i] * t->stride[i];
        number /= t->dim[i];
    }
    return at;
}

static bool tgi_write_element(tgi_thread *S, const tg_tensor *t, int64_t at, const void *element)
{
    return tgi_upload(S, t, at, element, tgi_dtypes[t->dtype].size);
}

/* row [columns]: the gradients of the checked inputs when the gradient of y is g. */
static bool tgi_check_backward(tgi_check *c, tg_tensor *g, double *row)
{
    if (tg_gradients(&c->y, 1, &g, c->checked, c->checked_count, c->grad, TG_RETAIN_GRAPH | TG_ALLOW_UNUSED) != TG_OK)
        return false;
    for (int i = 0; i < c->checked_count; ++i) {
        const int64_t count = tgi_numel(c->checked[i]);
        if (!tgi_check_read(c, c->grad[i], row, count)) return false;
        row += count;
    }
    return true;
}

/* A zero gradient of y must give zero gradients of the inputs.  NaN passes here: the comparison reports it. */
static bool tgi_check_zero_gradient(tgi_check *c)
{
    tg_tensor *g = tg_zeros_like(c->y);
    if (!g || !tgi_check_backward(c, g, c->again)) return false;
    for (int64_t i = 0; i < c->columns; ++i) {
        if (!(c->again[i] > 0 || c->again[i] < 0)) continue;
        return tgi_fail(c->S, TG_ERR_GRAPH, c->op,
                        "backward not multiplied by grad_output\n"
                        "a gradient of zeros must give zeros: every term of a rule has g as a factor");
    }
    return true;
}

/* Row k of the Jacobian: backward from a gradient of y that is 1 at element k and 0 elsewhere.  A second backward must
   give the same bits. */
static bool tgi_check_row(tgi_check *c, int64_t k)
{
    tgi_thread *S = c->S;
    const double one = 1;
    double element[1], *row = c->analytic + k * c->columns;
    tg_tensor *g = tg_zeros_like(c->y);
    if (!g || !tgi_convert_element(S, element, (tg_dtype)g->dtype, &one, TG_F64) ||
        !tgi_write_element(S, g, k, element)) {
        return false;
    }
    if (!tgi_check_backward(c, g, row) || !tgi_check_backward(c, g, c->again)) return false;
    if (memcmp(row, c->again, sizeof *row * (size_t)c->columns) == 0) return true;
    return tgi_fail(
        S, TG_ERR_GRAPH, c->op,
        "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times gives "
        "different values, although analytical gradient matches numerical gradient. The tolerance for "
        "nondeterminism was 0.\na rule must not write into what it is given or saved");
}

static bool tgi_check_analytic(tgi_check *c)
{
    tgi_thread *S = c->S;
    if (!(c->y->flags & TGI_REQUIRES_GRAD)) {
        memset(c->analytic, 0, sizeof *c->analytic * (size_t)(c->m * c->columns));
        return true;
    }
    for (int64_t k = -1; k < c->m; ++k) {
        const uint64_t scope = tgi_frame_open(S, TGI_GUARD_SCOPE);
        const bool ok = scope && (k < 0 ? tgi_check_zero_gradient(c) : tgi_check_row(c, k));
        if (scope) tgi_frame_close(S, scope);
        if (!ok) return false;
    }
    return true;
}

/* ---- the Jacobian from differences ---- */

/* Calls fn with element `number` of input t moved up to x + h, then down to x - h: sets plus and minus [m], and
   *distance to 2 h as the dtype rounds it.  The element's bytes are restored in every case. */
static bool tgi_check_perturb(tgi_check *c, tg_tensor *t, int64_t number, double *distance)
{
    tgi_thread *S = c->S;
    const tg_dtype dtype = (tg_dtype)t->dtype;
    const int64_t at = tgi_element_place(t, number);
    int64_t original[1], moved[1]; /* room for one element of any dtype */
    double x, place[2];
    if (!tgi_read_element(S, t, at, original) || !tgi_convert_element(S, &x, TG_F64, original, dtype)) return false;
    const double h = c->options.eps * (fabs(x) > 1 ? fabs(x) : 1);
    bool ok = true;
    for (int side = 0; ok && side < 2; ++side) {
        const uint64_t scope = tgi_frame_open(S, TGI_GUARD_SCOPE);
        const double target = side ? x - h : x + h;
        ok = scope && tgi_convert_element(S, moved, dtype, &target, TG_F64) &&
             tgi_convert_element(S, &place[side], TG_F64, moved, dtype) && tgi_write_element(S, t, at, moved);
        tg_tensor *y = ok ? tgi_check_call(c) : NULL;
        ok = y && tgi_check_read(c, y, side ? c->minus : c->plus, c->m);
        if (scope) tgi_frame_close(S, scope);
    }
    *distance = ok ? place[0] - place[1] : 0;
    return tgi_write_element(S, t, at, original) && ok;
}

static bool tgi_check_numeric(tgi_check *c)
{
    double *column = c->numeric, distance;
    for (int i = 0; i < c->checked_count; ++i) {
        for (int64_t j = 0; j < tgi_numel(c->checked[i]); ++j, ++column) {
            if (!tgi_check_perturb(c, c->checked[i], j, &distance)) return false;
            for (int64_t k = 0; k < c->m; ++k) { /* the distance is 0 where the dtype rounds x + h and x - h to x */
                column[k * c->columns] = distance != 0 ? (c->plus[k] - c->minus[k]) / distance : 0;
            }
        }
    }
    return true;
}

/* ---- the comparison ---- */

/* The comparison for one input t, of `count` elements. */
typedef struct {
    tg_tensor *t;
    const double *analytic, *numeric; /* its columns of the Jacobian: element j of t, k of y at [k * c->columns + j] */
    int64_t count, mismatches;
    int64_t worst, worst_out; /* where the difference is largest relative to the tolerance: elements of t and of y */
    double a, n;              /* analytic and numeric there; 0 if the Jacobian is empty */
} tgi_comparison;

static double tgi_check_tolerance(const tgi_check *c, double numeric)
{
    if (!(c->y->flags & TGI_REQUIRES_GRAD)) return 0;
    return c->options.atol + c->options.rtol * fabs(numeric);
}

static bool tgi_check_agrees(const tgi_check *c, double analytic, double numeric)
{
    return fabs(analytic - numeric) <= tgi_check_tolerance(c, numeric); /* false for NaN */
}

/* Compares the columns of t, which start at column `first`. */
static tgi_comparison tgi_check_compare(const tgi_check *c, tg_tensor *t, int64_t first)
{
    tgi_comparison v = {t, c->analytic + first, c->numeric + first, tgi_numel(t), 0, 0, 0, 0, 0};
    double largest = -1;
    for (int64_t k = 0; k < c->m; ++k) {
        for (int64_t j = 0; j < v.count; ++j) {
            const double a = v.analytic[k * c->columns + j], n = v.numeric[k * c->columns + j];
            const double difference = fabs(a - n) / (tgi_check_tolerance(c, n) + DBL_MIN);
            if (!tgi_check_agrees(c, a, n)) v.mismatches++;
            if (difference <= largest) continue;
            largest = tgi_is_nan(difference) ? (double)INFINITY : difference; /* NaN counts as infinite */
            v.worst = j;
            v.worst_out = k;
            v.a = a;
            v.n = n;
        }
    }
    return v;
}

/* The number r if analytic = r * numeric for every element that is not small; 0 if there is none.  When only one
   element is not small, r must be a whole number or 1 / a whole number. */
static double tgi_check_ratio(const tgi_check *c, const tgi_comparison *v)
{
    double ratio = 0;
    const double small = 1e-3 * fabs(v->n);
    int64_t found = 0;
    for (int64_t k = 0; k < c->m; ++k) {
        for (int64_t j = 0; j < v->count; ++j) {
            const double a = v->analytic[k * c->columns + j], n = v->numeric[k * c->columns + j];
            if (!(fabs(n) > small) && fabs(a) <= small) continue;
            if (found++ == 0) ratio = a / n;
            if (!(fabs(a - ratio * n) <= 1e-4 * (fabs(a) + c->options.atol))) return 0;
        }
    }
    const double larger = fabs(ratio) < 1 ? 1 / ratio : ratio;
    return found > 1 || fabs(larger - floor(larger + 0.5)) < 1e-4 ? ratio : 0;
}

/* Whether the analytic gradient [.., columns, rows] is the numeric one [.., rows, columns] transposed. */
static bool tgi_check_transposed(const tgi_check *c, const tgi_comparison *v)
{
    if (v->t->ndim < 2) return false;
    const int64_t rows = v->t->dim[v->t->ndim - 2], columns = v->t->dim[v->t->ndim - 1];
    for (int64_t k = 0; k < c->m; ++k) {
        for (int64_t j = 0; j < v->count; ++j) {
            const int64_t matrix = j / (rows * columns) * (rows * columns), row = j % (rows * columns) / columns;
            const int64_t other = matrix + j % columns * rows + row;
            if (!tgi_check_agrees(c, v->analytic[k * c->columns + other], v->numeric[k * c->columns + j])) return false;
        }
    }
    return true;
}

/* Whether the slopes to the left and right of the worst element differ, and the analytic one lies between them. */
static bool tgi_check_kink(tgi_check *c, const tgi_comparison *v)
{
    double distance;
    if (!tgi_check_perturb(c, v->t, v->worst, &distance) || distance == 0) return false;
    const double right = (c->plus[v->worst_out] - c->value[v->worst_out]) / (distance / 2);
    const double left = (c->value[v->worst_out] - c->minus[v->worst_out]) / (distance / 2);
    const double tolerance = 1e-3 * (fabs(left) + fabs(right)) + c->options.atol;
    return fabs(left - right) > 10 * tolerance && v->a >= fmin(left, right) - tolerance &&
           v->a <= fmax(left, right) + tolerance;
}

/* Whether rounding to f32, f16 or bf16 explains the difference. */
static bool tgi_check_noise(const tgi_check *c, const tgi_comparison *v)
{
    const tg_dtype in = (tg_dtype)v->t->dtype, out = (tg_dtype)c->y->dtype;
    const bool half = in == TG_F16 || in == TG_BF16 || out == TG_F16 || out == TG_BF16;
    if (in == TG_F64 && out == TG_F64) return false;
    return v->n == 0 ||
           fabs(v->a - v->n) <= 8 * (half ? 1e-2 : 1.2e-7) * (fabs(c->value[v->worst_out]) + 1) / c->options.eps;
}

static bool tgi_check_all_zero(const tgi_check *c, const tgi_comparison *v)
{
    for (int64_t k = 0; k < c->m; ++k) {
        for (int64_t j = 0; j < v->count; ++j) {
            if (v->analytic[k * c->columns + j] != 0) return false;
        }
    }
    return true;
}

/* Whether an input or the output has a dim, or a number of elements, of this size. */
static bool tgi_check_has_size(const tgi_check *c, double size)
{
    for (int i = 0; i <= c->n; ++i) {
        const tg_tensor *t = i < c->n ? c->in[i] : c->y;
        if ((double)tgi_numel(t) == size) return true;
        for (int d = 0; d < t->ndim; ++d) {
            if ((double)t->dim[d] == size) return true;
        }
    }
    return false;
}

/* The likely cause when analytic = ratio * numeric. */
static tgi_text tgi_check_ratio_hint(const tgi_check *c, double ratio)
{
    const double divisor = floor(1 / ratio + 0.5);
    tgi_text s;
    if (fabs(ratio + 1) < 1e-4) {
        snprintf(s.text, sizeof s.text, "wrong sign");
    } else if (divisor >= 2 && fabs(divisor * ratio - 1) < 1e-4 && tgi_check_has_size(c, divisor)) {
        snprintf(s.text, sizeof s.text, "1/%.0f of the numeric: not reduced over broadcast axes, or averaged twice",
                 divisor);
    } else {
        snprintf(s.text, sizeof s.text, "constant ratio: analytic is %.4g times numeric", ratio);
    }
    return s;
}

/* The likely cause of a mismatch. */
static tgi_text tgi_check_hint(tgi_check *c, const tgi_comparison *v)
{
    double ratio;
    tgi_text s;
    s.text[0] = 0;
    if (!(c->y->flags & TGI_REQUIRES_GRAD)) {
        snprintf(s.text, sizeof s.text, "the output does not require grad: tg_detach or TG_NO_GRAD on the way?");
    } else if (!tgi_is_finite(v->a)) {
        snprintf(s.text, sizeof s.text, "the gradient is not finite here");
    } else if (tgi_check_noise(c, v)) {
        snprintf(s.text, sizeof s.text, "float32 noise: check in f64, tg_to_dtype(t, TG_F64)");
    } else if (tgi_check_kink(c, v)) {
        snprintf(s.text, sizeof s.text, "kink suspected: the slope jumps here, try other values");
    } else if (tgi_check_all_zero(c, v)) {
        snprintf(s.text, sizeof s.text, "gradient never written");
    } else if ((ratio = tgi_check_ratio(c, v)) != 0) {
        s = tgi_check_ratio_hint(c, ratio);
    } else if (tgi_check_transposed(c, v)) {
        snprintf(s.text, sizeof s.text, "transposed, or read in the wrong order");
    } else {
        snprintf(s.text, sizeof s.text, "%lld of %lld elements differ: a term is missing or wrong",
                 (long long)v->mismatches, (long long)(v->count * c->m));
    }
    return s;
}

/* ---- the report ---- */

static int tgi_check_input_number(const tgi_check *c, const tg_tensor *t)
{
    int i = 0;
    while (i < c->n && c->in[i] != t) ++i;
    return i;
}

static tgi_text tgi_check_name(const tgi_check *c, const tg_tensor *t)
{
    tgi_text s;
    if (t->name) snprintf(s.text, sizeof s.text, "%.60s", t->name);
    else
        snprintf(s.text, sizeof s.text, "input %d", tgi_check_input_number(c, t));
    return s;
}

/* The widths of the report's columns: each as wide as its longest entry. */
typedef struct { int name, count, index, out; } tgi_check_widths;

static int tgi_wider(int width, const char *text)
{
    const int length = (int)strlen(text);
    return length > width ? length : width;
}

static tgi_check_widths tgi_check_measure(const tgi_check *c)
{
    tgi_check_widths w = {5, 3, 9, 7}; /* those of the titles */
    for (int i = 0; i < c->checked_count; ++i) {
        const tg_tensor *t = c->checked[i];
        char count[24];
        snprintf(count, sizeof count, "%lld", (long long)tgi_numel(t));
        w.name = tgi_wider(w.name, tgi_check_name(c, t).text);
        w.count = tgi_wider(w.count, count);
        if (tgi_numel(t)) w.index = tgi_wider(w.index, tgi_index_text(t->ndim, t->dim, tgi_numel(t) - 1).text);
    }
    if (c->m > 0) w.out = tgi_wider(w.out, tgi_index_text(c->y->ndim, c->y->dim, c->m - 1).text);
    return w;
}

static void tgi_check_header(const tgi_check *c, const tgi_check_widths *w)
{
    FILE *f = c->options.report;
    fprintf(f, "%.*s %s  %s  h=%.0e  centred\n", (int)strcspn(c->op, "_"), c->op,
            c->options.name ? c->options.name : "fn", tg_dtype_name((tg_dtype)c->y->dtype), c->options.eps);
    fprintf(f, "  %-*s  %-*s  %-*s  ", w->name, "param", w->count, "n", w->index, "worst idx");
    if (c->m != 1) fprintf(f, "%-*s  ", w->out, "out idx");
    fprintf(f, "%-12s  %-12s  %-8s  %-8s verdict\n", "analytic", "numeric", "abs", "rel");
}

static tgi_text tgi_check_number(double x)
{
    tgi_text s;
    const bool plain = x == 0 || (fabs(x) >= 1e-4 && fabs(x) < 1e5);
    snprintf(s.text, sizeof s.text, plain ? "%.7f" : "%.5e", x);
    return s;
}

static void tgi_check_print(const tgi_check *c, const tgi_check_widths *w, const tgi_comparison *v, const char *hint)
{
    FILE *f = c->options.report;
    const bool empty = v->count == 0 || c->m == 0;
    const double difference = fabs(v->a - v->n);
    fprintf(f, "  %-*s  %-*lld  ", w->name, tgi_check_name(c, v->t).text, w->count, (long long)v->count);
    fprintf(f, "%-*s  ", w->index, empty ? "-" : tgi_index_text(v->t->ndim, v->t->dim, v->worst).text);
    if (c->m != 1) fprintf(f, "%-*s  ", w->out, empty ? "-" : tgi_index_text(c->y->ndim, c->y->dim, v->worst_out).text);
    if (empty)
        fprintf(f, "%-12s  %-12s  %-8s  %-8s ", "-", "-", "-", "-");
    else
        fprintf(f, "%-12s  %-12s  %-8.1e  %-8.1e ", tgi_check_number(v->a).text, tgi_check_number(v->n).text,
                difference, difference == 0 ? 0 : difference / fmax(fabs(v->a), fabs(v->n)));
    fprintf(f, v->mismatches ? "FAIL  hint: %s\n" : "ok\n", hint);
}

/* Records the error of a mismatch. */
static void tgi_check_mismatch(const tgi_check *c, const tgi_comparison *v, const char *hint)
{
    if (!(c->y->flags & TGI_REQUIRES_GRAD)) {
        tgi_fail(c->S, TG_ERR_GRAPH, c->op, "Numerical gradient for function expected to be zero\n%s", hint);
        return;
    }
    const bool scalar = c->m == 1;
    tgi_fail(c->S, TG_ERR_GRAPH, c->op,
             "Jacobian mismatch for output 0 with respect to input %d: at %s%s%s numerical %g, analytical %g\n%s",
             tgi_check_input_number(c, v->t), tgi_index_text(v->t->ndim, v->t->dim, v->worst).text,
             scalar ? "" : ", output ", scalar ? "" : tgi_index_text(c->y->ndim, c->y->dim, v->worst_out).text, v->n,
             v->a, hint);
}

/* Compares one input after the other and prints the report; records the error of the first that does not agree. */
static bool tgi_check_report(tgi_check *c)
{
    const tgi_check_widths w = tgi_check_measure(c);
    int64_t first = 0;
    bool agrees = true;
    if (c->options.report) tgi_check_header(c, &w);
    for (int i = 0; i < c->checked_count; ++i) {
        const tgi_comparison v = tgi_check_compare(c, c->checked[i], first);
        tgi_text hint;
        hint.text[0] = 0;
        if (v.mismatches) hint = tgi_check_hint(c, &v);
        if (c->options.report) tgi_check_print(c, &w, &v, hint.text);
        if (v.mismatches && agrees && !c->options.quiet) tgi_check_mismatch(c, &v, hint.text);
        agrees = agrees && v.mismatches == 0;
        first += v.count;
    }
    return agrees;
}

/* ---- gradcheck, and gradgradcheck: the same check of a function that returns the gradients of fn ---- */

/* Runs check(&c, list) in a scope and with the inputs retained, and restores the thread's random state.  list has room
   for n + 1 tensors. */
static bool tgi_check_run(bool (*check)(tgi_check *c, tg_tensor **list), const char *op, tg_function fn,
                          tg_tensor *const *in, int n, void *user, const tg_gradcheck_options *options)
{
    tgi_thread *S = tgi_self();
    tgi_check c;
    memset(&c, 0, sizeof c);
    c.S = S;
    c.op = op;
    c.fn = fn;
    c.user = user;
    c.in = in;
    c.n = n;
    c.rng = S->rng;
    if (!tgi_check_options(&c, options) || !tgi_check_inputs(&c)) return false;
    const size_t bytes = sizeof(tg_tensor *) * ((size_t)n + 1 + 2 * (size_t)c.checked_count);
    tg_tensor **list = (tg_tensor **)tgi_alloc(S, bytes);
    if (!list) return tgi_no_memory(S, op, bytes);
    c.checked = list + n + 1;
    c.grad = c.checked + c.checked_count;
    for (int i = 0, k = 0; i < n; ++i) {
        if (in[i]->flags & TGI_REQUIRES_GRAD) c.checked[k++] = in[i];
    }
    tgi_ref_all(in, n);
    const uint64_t scope = tgi_frame_open(S, TGI_GUARD_SCOPE);
    const bool ok = scope && check(&c, list);
    if (scope) tgi_frame_close(S, scope); /* restores grad mode, too */
    tgi_unref_all(S, in, n);
    tgi_free(S, list, bytes);
    S->rng = c.rng;
    return ok;
}

static bool tgi_gradcheck(tgi_check *c, tg_tensor **list)
{
    (void)list;
    return tgi_check_prepare(c) && tgi_check_analytic(c) && tgi_check_numeric(c) && tgi_check_report(c);
}

bool tg_gradcheck_ex(tg_function fn, tg_tensor *const *inputs, int n, void *user, const tg_gradcheck_options *options)
{
    return tgi_check_run(tgi_gradcheck, "gradcheck_ex", fn, inputs, n, user, options);
}

bool tg_gradcheck(tg_function fn, tg_tensor *const *inputs, int n, void *user)
{
    return tgi_check_run(tgi_gradcheck, "gradcheck", fn, inputs, n, user, NULL);
}

/* in: the inputs of fn, then g, the gradient of its output.  Returns the gradients of the checked inputs, flattened,
   one after the other: a 1-dim tensor that depends on the inputs and on g.  user: the tgi_check of fn. */
static tg_tensor *tgi_check_gradients(tg_tensor *const *in, int n, void *user)
{
    const tgi_check *c = (const tgi_check *)user;
    tg_tensor *g = in[n - 1];
    tgi_guard guard;
    tgi_guard_open(&guard, c->S, "the function");
    tg_tensor *y = c->fn(in, n - 1, c->user);
    if (!tgi_guard_close(&guard) || !y) return NULL;
    if (tg_gradients(&y, 1, &g, c->checked, c->checked_count, c->grad, TG_CREATE_GRAPH | TG_ALLOW_UNUSED) != TG_OK)
        return NULL;
    int found = 0;
    for (int i = 0; i < c->checked_count; ++i) {
        if (!c->grad[i]) continue;
        c->grad[found] = tg_flatten(c->grad[i], 0, -1);
        if (!c->grad[found++]) return NULL;
    }
    return found ? tg_cat(c->grad, found, 0) : tg_zeros_like(g);
}

/* A random gradient of y from a fixed seed; the thread's random state stays as it is. */
static tg_tensor *tgi_check_random_gradient(tgi_thread *S, tg_tensor *y)
{
    const tg_rng rng = S->rng;
    tg_seed(20130411);
    tg_tensor *g = tg_randn_on(tg_shape_of(y), (tg_dtype)y->dtype, tgi_device_of(y));
    S->rng = rng;
    if (!g || tg_set_name(g, "grad_output") != TG_OK) return NULL;
    return tg_set_requires_grad(g, true);
}

static bool tgi_gradgradcheck(tgi_check *c, tg_tensor **list)
{
    if (!tgi_check_first_call(c)) return false;
    if (!(c->y->flags & TGI_REQUIRES_GRAD)) {
        return tgi_fail(c->S, TG_ERR_GRAPH, c->op, "the output does not require grad: it has no gradient to check\n"
                        "tg_detach or TG_NO_GRAD on the way?");
    }
    tg_tensor *g = tgi_check_random_gradient(c->S, c->y);
    if (!g) return false;
    for (int i = 0; i < c->n; ++i) list[i] = c->in[i];
    list[c->n] = g;
    return tgi_check_run(tgi_gradcheck, c->op, tgi_check_gradients, list, c->n + 1, c, &c->options);
}

bool tg_gradgradcheck_ex(tg_function fn, tg_tensor *const *inputs, int n, void *user,
                         const tg_gradcheck_options *options)
{
    return tgi_check_run(tgi_gradgradcheck, "gradgradcheck_ex", fn, inputs, n, user, options);
}

bool tg_gradgradcheck(tg_function fn, tg_tensor *const *inputs, int n, void *user)
{
    return tgi_check_run(tgi_gradgradcheck, "gradgradcheck", fn, inputs, n, user, NULL);
}

/* ======== @@OPTIM ================================================================================================= */

enum { TGI_STATES = 3 };

typedef struct tgi_optim_param {
    tg_tensor *t, *state[TGI_STATES]; /* the parameter, and its state like t: s[] of tgi_optim_step */
    int64_t steps;                    /* done */
    bool has_momentum;                /* sgd: the momentum buffer has been set */
    tg_tensor *p, *g;                 /* during tg_step: the parameter and its gradient, contiguous */
} tgi_optim_param;

static const char *const tgi_optim_names[] = {"sgd", "adam", "adamw", "rmsprop", "adagrad"};

/* Called before every step, since the fields of tg_optim are public. */
static bool tgi_check_hyperparameters(tgi_thread *S, const char *op, const tg_optim *o)
{
    const bool adam = o->kind == TGI_ADAM || o->kind == TGI_ADAMW;
    const tg_status code = TG_ERR_ARGUMENT;
    if (!(o->lr >= 0)) return tgi_fail(S, code, op, "Invalid learning rate: %g", o->lr);
    if (!(o->weight_decay >= 0)) return tgi_fail(S, code, op, "Invalid weight_decay value: %g", o->weight_decay);
    if (o->kind != TGI_SGD && !(o->eps >= 0)) return tgi_fail(S, code, op, "Invalid epsilon value: %g", o->eps);
    if ((o->kind == TGI_SGD || o->kind == TGI_RMSPROP) && !(o->momentum >= 0)) {
        return tgi_fail(S, code, op, "Invalid momentum value: %g", o->momentum);
    }
    if (o->kind == TGI_SGD && o->nesterov && (!(o->momentum > 0) || o->dampening != 0)) {
        return tgi_fail(S, code, op, "Nesterov momentum requires a momentum and zero dampening");
    }
    if (adam && !(o->beta1 >= 0 && o->beta1 < 1))
        return tgi_fail(S, code, op, "Invalid beta parameter at index 0: %g", o->beta1);
    if (adam && !(o->beta2 >= 0 && o->beta2 < 1))
        return tgi_fail(S, code, op, "Invalid beta parameter at index 1: %g", o->beta2);
    if (o->kind == TGI_RMSPROP && !(o->alpha >= 0)) return tgi_fail(S, code, op, "Invalid alpha value: %g", o->alpha);
    if (o->kind == TGI_ADAGRAD && !(o->lr_decay >= 0))
        return tgi_fail(S, code, op, "Invalid lr_decay value: %g", o->lr_decay);
    if (o->kind == TGI_ADAGRAD && !(o->initial_accumulator_value >= 0)) {
        return tgi_fail(S, code, op, "Invalid initial_accumulator_value value: %g", o->initial_accumulator_value);
    }
    return true;
}

static bool tgi_check_parameters(tgi_thread *S, const char *op, tg_tensor *const *params, int n)
{
    if (n <= 0) return tgi_fail(S, TG_ERR_ARGUMENT, op, "optimizer got an empty parameter list");
    if (!params) return tgi_null_argument(S, op, "params");
    if (!tgi_argument_list(S, op, "params", params, n, n)) return false;
    for (int i = 0; i < n; ++i) {
        if (!tgi_refresh_view(S, params[i])) return false;
        if (params[i]->node) {
            return tgi_fail(S, TG_ERR_GRAPH, op, "can't optimize a non-leaf Tensor (parameter %d)\n"
                            "tg_param(tg_detach(t)) makes a leaf of its values", i);
        }
    }
    return true;
}

/* A hash table from addresses to numbers: linear probing, at most half full. */
typedef struct { const void *key; int64_t value; } tgi_map_slot; /* key NULL: empty */
typedef struct { tgi_map_slot *slot; size_t size; } tgi_map;         /* slot [size], a power of 2 */

static size_t tgi_map_size(int64_t entries)
{
    size_t size = 8;
    while (size < 2 * (size_t)entries) size *= 2;
    return size;
}

/* The slot of a key, or the empty one where it belongs. */
TGI_NOINLINE static tgi_map_slot *tgi_map_find(const tgi_map *m, const void *key)
{
    size_t i = (size_t)(((uint64_t)(uintptr_t)key >> 4) * 0x9E3779B97F4A7C15u >> 20) & (m->size - 1);
    while (m->slot[i].key && m->slot[i].key != key) i = (i + 1) & (m->size - 1);
    return &m->slot[i];
}

/* Whether a tensor is in the list twice.  memory: at least tgi_map_size(n) slots.  A flag in the tensors would not do,
   since they may be shared with other threads. */
static bool tgi_has_duplicate(tg_tensor *const *list, int n, void *memory)
{
    tgi_map seen;
    seen.slot = (tgi_map_slot *)memory;
    seen.size = tgi_map_size(n);
    memset(memory, 0, seen.size * sizeof *seen.slot);
    for (int i = 0; i < n; ++i) {
        tgi_map_slot *slot = tgi_map_find(&seen, list[i]);
        if (slot->key) return true;
        slot->key = list[i];
    }
    return false;
}

/* One allocation: the optimizer, its n parameters, and the n steps that tg_step gives to the kernel. */
static size_t tgi_optim_bytes(int n)
{
    return sizeof(tg_optim) + (sizeof(tgi_optim_param) + sizeof(tgi_optim_step)) * (size_t)n;
}

static tg_optim *tgi_optim_new(int kind, tg_tensor *const *params, int n, double lr)
{
    tgi_thread *S = tgi_self();
    const char *op = tgi_optim_names[kind];
    if (!tgi_check_parameters(S, op, params, n)) return NULL;
    tg_optim *o = (tg_optim *)tgi_alloc(S, tgi_optim_bytes(n));
    if (!o) {
        tgi_no_memory(S, op, tgi_optim_bytes(n));
        return NULL;
    }
    const bool duplicate = tgi_has_duplicate(params, n, o); /* o is large enough, and not in use yet */
    memset(o, 0, tgi_optim_bytes(n));
    o->kind = kind;
    o->count = n;
    o->param = (tgi_optim_param *)(void *)(o + 1);
    o->lr = lr;
    o->weight_decay = kind == TGI_ADAMW ? 0.01 : 0;
    o->beta1 = 0.9;
    o->beta2 = 0.999;
    o->eps = kind == TGI_ADAGRAD ? 1e-10 : 1e-8;
    o->alpha = 0.99;
    if (!tgi_check_hyperparameters(S, op, o)) {
        tgi_free(S, o, tgi_optim_bytes(n));
        return NULL;
    }
    for (int i = 0; i < n; ++i) {
        o->param[i].t = params[i];
        tgi_ref(params[i]);
    }
    if (duplicate) { /* last, since the handler may release them */
        tgi_warn(S, "warning: optimizer contains a parameter group with duplicate parameters\n"
                 "  hint: each is moved once for every time it is listed");
    }
    return o;
}

tg_optim *tg_sgd(tg_tensor *const *params, int n, double lr) { return tgi_optim_new(TGI_SGD, params, n, lr); }
tg_optim *tg_adam(tg_tensor *const *params, int n, double lr) { return tgi_optim_new(TGI_ADAM, params, n, lr); }
tg_optim *tg_adamw(tg_tensor *const *params, int n, double lr) { return tgi_optim_new(TGI_ADAMW, params, n, lr); }
tg_optim *tg_rmsprop(tg_tensor *const *params, int n, double lr) { return tgi_optim_new(TGI_RMSPROP, params, n, lr); }
tg_optim *tg_adagrad(tg_tensor *const *params, int n, double lr) { return tgi_optim_new(TGI_ADAGRAD, params, n, lr); }

void tg_optim_free(tg_optim *opt)
{
    tgi_thread *S = tgi_self();
    if (!opt) return;
    for (int i = 0; i < opt->count; ++i) {
        for (int k = 0; k < TGI_STATES; ++k) tgi_unref(S, opt->param[i].state[k]);
        tgi_unref(S, opt->param[i].t);
    }
    tgi_free(S, opt, tgi_optim_bytes(opt->count));
}

tg_status tg_optim_zero_grad(tg_optim *opt)
{
    tgi_thread *S = tgi_self();
    if (!opt) return tgi_null_argument(S, "optim_zero_grad", "opt"), tgi_failed(S);
    for (int i = 0; i < opt->count; ++i) {
        if (tg_set_grad(opt->param[i].t, NULL) != TG_OK) return tgi_failed(S);
    }
    return TG_OK;
}

/* ---- a step: all checks and allocations come before the first parameter changes ----

   for each parameter:  tgi_optim_prepare (checks, then its state, contiguous p and g)
   for each device:     tgi_optim_update (one kernel call for all parameters there) */

/* Whether state k is used; s[] of tgi_optim_step says what each is. */
static bool tgi_optim_has(const tg_optim *o, int k)
{
    switch (o->kind) {
    case TGI_SGD: return k == 0 && o->momentum != 0;
    case TGI_ADAM:
    case TGI_ADAMW: return k < 2 || o->amsgrad;
    case TGI_RMSPROP: return k == 0 || (k == 1 && o->centered) || (k == 2 && o->momentum > 0);
    default: return k == 0;
    }
}

/* Creates state k of a parameter, or moves it to the parameter's device and dtype.  The optimizer owns the state: it is
   in no scope. */
static bool tgi_optim_state(tgi_thread *S, const tg_optim *o, tgi_optim_param *e, int k)
{
    tg_tensor *old = e->state[k], *s;
    if (!old) {
        s = tgi_new_like(S, "step", e->t);
        if (!s || !tgi_fill_elements(S, s, o->kind == TGI_ADAGRAD ? o->initial_accumulator_value : 0)) return false;
    } else if (!tgi_same_place(old, e->t) || old->dtype != e->t->dtype) {
        s = tg_to_ex(old, tgi_device_of(e->t), (tg_dtype)e->t->dtype, 0);
        if (!s) return false;
    } else {
        return true;
    }
    tgi_leave_list(S, s);
    tgi_unref(S, old);
    e->state[k] = s;
    return true;
}

/* t itself if it is contiguous, else a contiguous copy in the step's scope. */
static tg_tensor *tgi_optim_contiguous(tgi_thread *S, tg_tensor *t)
{
    if (tgi_is_contiguous(t)) return t;
    tg_tensor *y = tgi_new_like(S, "step", t);
    return y && tgi_copy_elements(S, y, t) ? y : NULL;
}

/* Checks a parameter t and its gradient g. */
static bool tgi_optim_check(tgi_thread *S, const tg_optim *o, const tgi_optim_param *e)
{
    const tg_tensor *t = e->t, *g = t->grad;
    if (!tgi_argument(S, "step", "params", t) || !tgi_argument(S, "step", "grad", g)) return false;
    if (!tgi_same_place(t, g) || t->dtype != g->dtype) {
        return tgi_fail(
            S, tgi_same_place(t, g) ? TG_ERR_DTYPE : TG_ERR_DEVICE, "step",
            "parameter %d%s%s is %s on %s, but its gradient is %s on %s\nmove the gradient along, or clear it",
            (int)(e - o->param), t->name ? " " : "", t->name ? t->name : "", tg_dtype_name((tg_dtype)t->dtype),
            tg_device_str(tgi_device_of(t)), tg_dtype_name((tg_dtype)g->dtype), tg_device_str(tgi_device_of(g)));
    }
    if (!tgi_dtypes[t->dtype].floating) {
        return tgi_fail(S, TG_ERR_DTYPE, "step", "parameter %d%s%s is %s: only floating point can be optimized",
                        (int)(e - o->param), t->name ? " " : "", t->name ? t->name : "",
                        tg_dtype_name((tg_dtype)t->dtype));
    }
    if (tgi_overlaps_itself(t)) {
        return tgi_fail(
            S, TG_ERR_ARGUMENT, "step",
            "unsupported operation: more than one element of the written-to tensor refers to a single memory "
            "location. (parameter %d)\nmake it of a copy of its own: tg_param(tg_clone(t))",
            (int)(e - o->param));
    }
    return true;
}

/* Creates the state of a parameter that has a gradient, and sets p and g; both are NULL if it has none. */
static bool tgi_optim_prepare(tgi_thread *S, const tg_optim *o, tgi_optim_param *e)
{
    tg_tensor *t = e->t, *g = t->grad;
    e->p = e->g = NULL;
    if (!g) return true;
    if (!tgi_optim_check(S, o, e)) return false;
    for (int k = 0; k < TGI_STATES; ++k) {
        if (tgi_optim_has(o, k) && !tgi_optim_state(S, o, e, k)) return false;
    }
    for (int k = 0; k < TGI_STATES; ++k) {
        if (tgi_optim_has(o, k) && !tgi_wait_ready(S, e->state[k], true)) return false;
    }
    e->p = tgi_wait_ready(S, t, false) ? tgi_optim_contiguous(S, t) : NULL;
    e->g = e->p && tgi_wait_ready(S, g, false) ? tgi_optim_contiguous(S, g) : NULL;
    return e->g != NULL;
}

/* Fills in what the kernel needs for one parameter. */
static void tgi_optim_describe(const tg_optim *o, const tgi_optim_param *e, tgi_optim_step *step)
{
    const double t = (double)(e->steps + 1);
    memset(step, 0, sizeof *step);
    step->kind = (tgi_optimizer)o->kind;
    step->first = !e->has_momentum;
    step->nesterov = o->nesterov;
    step->amsgrad = o->amsgrad;
    step->centered = o->centered;
    step->lr = o->kind == TGI_ADAGRAD ? o->lr / (1 + (t - 1) * o->lr_decay) : o->lr;
    step->weight_decay = o->weight_decay;
    step->momentum = o->momentum;
    step->dampening = o->dampening;
    step->beta1 = o->beta1;
    step->beta2 = o->beta2;
    step->eps = o->eps;
    step->alpha = o->alpha;
    step->lr_decay = o->lr_decay;
    step->bias1 = 1 - pow(o->beta1, t);
    step->bias2 = 1 - pow(o->beta2, t);
    step->dtype = (tg_dtype)e->t->dtype;
    step->index = e->t->storage->index;
    step->n = tgi_numel(e->t);
    step->p = tgi_operand_of(e->p).data;
    step->g = tgi_operand_of(e->g).data;
    for (int k = 0; k < TGI_STATES; ++k) {
        if (tgi_optim_has(o, k)) step->s[k] = tgi_operand_of(e->state[k]).data;
    }
}

/* After the kernel has run on p. */
static bool tgi_optim_updated(tgi_thread *S, const tg_optim *o, tgi_optim_param *e)
{
    if (e->p != e->t && !tgi_copy_elements(S, e->t, e->p)) return false;
    if (o->kind == TGI_SGD && o->momentum != 0) e->has_momentum = true;
    e->steps++;
    tgi_bump_version(S, e->t->storage, "step");
    e->p = NULL; /* this parameter is done */
    return true;
}

/* One kernel call for parameter i and all after it on the same device. */
static bool tgi_optim_update(tgi_thread *S, const tg_optim *o, int i)
{
    tgi_optim_param *const first = o->param + i, *const end = o->param + o->count;
    tgi_optim_step *const steps = (tgi_optim_step *)(void *)end;
    int n = 0;
    for (tgi_optim_param *e = first; e < end; ++e) {
        if (!e->p || !tgi_same_place(e->t, first->t)) continue;
        if (!tgi_wait_ready(S, e->t, true)) return false;
        tgi_optim_describe(o, e, &steps[n++]);
    }
    if (!first->t->storage->backend->optim_step(S, steps, n)) return false;
    for (tgi_optim_param *e = first; e < end; ++e) {
        if (e->p && tgi_same_place(e->t, first->t) && !tgi_optim_updated(S, o, e)) return false;
    }
    return true;
}

tg_status tg_step(tg_optim *opt)
{
    tgi_thread *S = tgi_self();
    bool ok = true;
    if (!opt) return tgi_null_argument(S, "step", "opt"), tgi_failed(S);
    if (!tgi_check_hyperparameters(S, "step", opt)) return tgi_failed(S);
    uint64_t scope = tgi_frame_open(S, TGI_GUARD_SCOPE);
    if (!scope) return tgi_failed(S);
    S->grad_off = true; /* closing the scope restores it */
    for (int i = 0; ok && i < opt->count; ++i) ok = tgi_optim_prepare(S, opt, &opt->param[i]);
    for (int i = 0; ok && i < opt->count; ++i) {
        if (opt->param[i].p) ok = tgi_optim_update(S, opt, i);
    }
    tgi_frame_close(S, scope);
    return ok ? TG_OK : tgi_failed(S);
}

/* ---- clipping ---- */

/* Checks that every gradient can be written, before the first is. */
static bool tgi_clip_check(tgi_thread *S, const char *op, tg_tensor *const *params, int n)
{
    if (!params && n > 0) return tgi_null_argument(S, op, "params");
    if (!tgi_argument_list(S, op, "params", params, n, n)) return false;
    for (int i = 0; i < n; ++i) {
        const tg_tensor *g = params[i]->grad;
        if (!g) continue;
        if (!tgi_argument(S, op, "grad", g) || !tgi_need_floating(S, op, g)) return false;
        if (tgi_overlaps_itself(g)) {
            return tgi_fail(S, TG_ERR_ARGUMENT, op, "the gradient of parameter %d has several elements in one place\n"
                            "tg_set_grad(t, tg_contiguous(tg_grad(t)))", i);
        }
    }
    return true;
}

/* The norm over all gradients: the norm of their norms, 0-dim.  norms [n]: for the norm of each. */
static tg_tensor *tgi_clip_total(tg_tensor *const *params, int n, double norm_type, tg_tensor **norms)
{
    int found = 0;
    for (int i = 0; i < n; ++i) {
        if (!params[i]->grad || tgi_numel(params[i]->grad) == 0) continue;
        tg_tensor *norm = tg_norm_dims(params[i]->grad, norm_type, TG_SCALAR, false);
        norms[found] = norm && found ? tg_to(norm, tgi_device_of(norms[0])) : norm;
        if (!norms[found++]) return NULL;
    }
    if (found == 0) return tg_zeros(TG_SCALAR);
    return tg_norm_dims(tg_stack(norms, found, 0), norm_type, TG_SCALAR, false);
}

/* Multiplies all gradients by min(1, max_norm / (total + 1e-6)).  scales [n]: the factor on each gradient's device, all
   computed before the first gradient changes. */
static bool tgi_clip_scale(tg_tensor *const *params, int n, double max_norm, tg_tensor *total, tg_tensor **scales)
{
    tg_tensor *scale = tg_mul_scalar(tg_reciprocal(tg_add_scalar(total, 1e-6)), max_norm);
    scale = tg_clamp_max(scale, 1); /* always multiplied, so that the host need not wait for the value */
    for (int i = 0; scale && i < n; ++i) {
        if (params[i]->grad) scales[i] = scale = tg_to(scale, tgi_device_of(params[i]->grad));
    }
    if (!scale) return false;
    for (int i = 0; i < n; ++i) {
        if (params[i]->grad && !tg_mul_(params[i]->grad, scales[i])) return false;
    }
    return true;
}

static tg_tensor *tgi_clip_grad_norm(const char *op, tg_tensor *const *params, int n, double max_norm,
                                     double norm_type, bool error_if_nonfinite)
{
    tgi_thread *S = tgi_self();
    size_t bytes = sizeof(tg_tensor *) * (size_t)(n > 0 ? n : 1);
    tg_tensor *total = NULL;
    if (!tgi_clip_check(S, op, params, n)) return NULL;
    tg_tensor **norms = (tg_tensor **)tgi_alloc(S, bytes);
    if (!norms) return tgi_no_tensor(tgi_no_memory(S, op, bytes));
    uint64_t scope = tgi_frame_open(S, TGI_GUARD_SCOPE);
    if (scope) {
        S->grad_off = true;
        total = tgi_clip_total(params, n, norm_type, norms);
        bool ok = total != NULL;
        if (ok && error_if_nonfinite && !tgi_is_finite(tg_item(total))) {
            ok = tgi_fail(
                S, TG_ERR_ARGUMENT, op,
                "The total norm of order %g for gradients from `parameters` is non-finite, so it cannot be clipped.\n"
                "with error_if_nonfinite false all gradients are scaled by it anyway",
                norm_type);
        }
        total = ok && tgi_clip_scale(params, n, max_norm, total, norms) ? tg_keep(total) : NULL;
        tgi_frame_close(S, scope);
    }
    tgi_free(S, norms, bytes);
    return total;
}

tg_tensor *tg_clip_grad_norm(tg_tensor *const *params, int n, double max_norm)
{
    return tgi_clip_grad_norm("clip_grad_norm", params, n, max_norm, 2, false);
}

tg_tensor *tg_clip_grad_norm_ex(tg_tensor *const *params, int n, double max_norm, double norm_type,
                                bool error_if_nonfinite)
{
    return tgi_clip_grad_norm("clip_grad_norm_ex", params, n, max_norm, norm_type, error_if_nonfinite);
}

tg_status tg_clip_grad_value(tg_tensor *const *params, int n, double value)
{
    tgi_thread *S = tgi_self();
    bool was_off = S->grad_off, ok = true;
    if (!tgi_clip_check(S, "clip_grad_value", params, n)) return tgi_failed(S);
    if (!(value >= 0)) {
        tgi_fail(S, TG_ERR_ARGUMENT, "clip_grad_value", "the largest value allowed, %g, must not be negative", value);
        return TG_ERR_ARGUMENT;
    }
    S->grad_off = true;
    for (int i = 0; ok && i < n; ++i) ok = !params[i]->grad || tg_clamp_(params[i]->grad, -value, value);
    S->grad_off = was_off;
    return ok ? TG_OK : tgi_failed(S);
}

/* ---- schedules ---- */

/* The part of the steps from warmup to total that is done, 0 to 1; -1 during the warmup. */
static double tgi_lr_progress(int64_t step, int64_t warmup, int64_t total)
{
    if (step < warmup) return -1;
    return step >= total ? 1 : ((double)step - (double)warmup) / ((double)total - (double)warmup);
}

static double tgi_lr_warmup(int64_t step, int64_t warmup, double lr)
{
    return lr * ((double)(step > 0 ? step : 0) + 1) / ((double)warmup + 1);
}

double tg_lr_cosine(int64_t step, int64_t warmup, int64_t total, double lr, double lr_min)
{
    const double at = tgi_lr_progress(step, warmup, total);
    return at < 0 ? tgi_lr_warmup(step, warmup, lr)
                  : lr_min + (lr - lr_min) * 0.5 * (1 + cos(at * 3.14159265358979324));
}

double tg_lr_linear(int64_t step, int64_t warmup, int64_t total, double lr, double lr_min)
{
    const double at = tgi_lr_progress(step, warmup, total);
    return at < 0 ? tgi_lr_warmup(step, warmup, lr) : lr + (lr_min - lr) * at;
}

double tg_lr_step(int64_t step, int64_t size, double lr, double gamma)
{
    return lr * pow(gamma, size > 0 ? (double)(step / size) : 0);
}

double tg_lr_exponential(int64_t step, double lr, double gamma) { return lr * pow(gamma, (double)step); }

/* ======== @@SHOW ================================================================================================== */

/* Flushes the file; an error if anything could not be written.  A full disk may show only when the buffer is
   flushed. */
static bool tgi_flush(tgi_thread *S, const char *op, FILE *file)
{
    if (!ferror(file) && fflush(file) == 0) return true;
    return tgi_fail(S, TG_ERR_IO, op, "the file could not be written");
}

/* ---- tensors, as PyTorch prints them (torch/_tensor_str.py) ---- */

enum { TGI_LINE = 80, TGI_EDGE = 3, TGI_SUMMARY = 1000, TGI_PRECISION = 4 };

/* Large tensors are shortened: each dim shows its first and last TGI_EDGE elements, with "..." between them.  What is
   printed along a dim are its slots 0, 1, ...: one for each element that is shown, and one for the dots. */
typedef struct {
    tgi_thread *S;
    FILE *file;
    int column;         /* in the line that is being written */
    const tg_tensor *t; /* in host memory */
    bool floating, shortened;
    bool whole, scientific;    /* floats: printed as "1." or as "1.0000e+00" */
    int width;                 /* of each element */
    int64_t slot[TG_MAX_DIMS]; /* the current slot of each dim */
} tgi_printer;

TGI_NOINLINE static void tgi_print_text(tgi_printer *p, const char *text)
{
    const char *line = strrchr(text, '\n');
    p->column = (line ? 0 : p->column) + (int)strlen(line ? line + 1 : text);
    fputs(text, p->file);
}

static void tgi_print_spaces(tgi_printer *p, int n)
{
    while (n-- > 0) tgi_print_text(p, " ");
}

static int64_t tgi_slots(const tgi_printer *p, int dim)
{
    return p->shortened && p->t->dim[dim] > 2 * TGI_EDGE ? 2 * TGI_EDGE + 1 : p->t->dim[dim];
}

static bool tgi_is_dots(const tgi_printer *p, int dim)
{
    return p->shortened && p->slot[dim] == TGI_EDGE && p->t->dim[dim] > 2 * TGI_EDGE;
}

/* Where the element of the current slots lies: elements from the first one. */
static int64_t tgi_slot_place(const tgi_printer *p)
{
    int64_t at = 0;
    for (int i = 0; i < p->t->ndim; ++i) {
        int64_t hidden = p->slot[i] > TGI_EDGE ? p->t->dim[i] - tgi_slots(p, i) : 0;
        at += (p->slot[i] + hidden) * p->t->stride[i];
    }
    return at;
}

/* Moves to the next element that is shown, row-major; false after the last. */
static bool tgi_next_slot(tgi_printer *p)
{
    for (int i = p->t->ndim - 1; i >= 0; --i) {
        p->slot[i]++;
        if (tgi_is_dots(p, i)) p->slot[i]++;
        if (p->slot[i] < tgi_slots(p, i)) return true;
        p->slot[i] = 0;
    }
    return false;
}

static double tgi_slot_value(const tgi_printer *p)
{
    int64_t element[1];
    double value = 0;
    if (tgi_read_element(p->S, p->t, tgi_slot_place(p), element)) {
        tgi_convert_element(p->S, &value, TG_F64, element, (tg_dtype)p->t->dtype);
    }
    return value;
}

static tgi_text tgi_slot_text(const tgi_printer *p)
{
    int64_t whole = 0;
    tgi_text s;
    if (p->floating) {
        double x = tgi_slot_value(p);
        if (tgi_is_nan(x)) strcpy(s.text, "nan");
        else if (tgi_is_infinite(x)) strcpy(s.text, x > 0 ? "inf" : "-inf");
        else if (p->scientific) snprintf(s.text, sizeof s.text, "%.*e", TGI_PRECISION, x);
        else if (p->whole) snprintf(s.text, sizeof s.text, "%.0f.", x);
        else snprintf(s.text, sizeof s.text, "%.*f", TGI_PRECISION, x);
        return s;
    }
    int64_t element[1];
    if (tgi_read_element(p->S, p->t, tgi_slot_place(p), element)) {
        tgi_convert_element(p->S, &whole, TG_I64, element, (tg_dtype)p->t->dtype);
    }
    if (p->t->dtype == TG_BOOL) strcpy(s.text, whole ? "True" : "False");
    else snprintf(s.text, sizeof s.text, "%lld", (long long)whole);
    return s;
}

/* Chooses one format and one width for all elements that are shown. */
static void tgi_choose_format(tgi_printer *p)
{
    double least = INFINITY, most = 0;
    bool whole = true;
    memset(p->slot, 0, sizeof p->slot);
    p->whole = true;
    p->scientific = false;
    p->width = 1;
    do {
        double x = p->floating ? fabs(tgi_slot_value(p)) : 0;
        if (x == 0 || !tgi_is_finite(x)) continue;
        whole = whole && x == ceil(x);
        least = fmin(least, x);
        most = fmax(most, x);
    } while (tgi_next_slot(p));
    if (p->floating && most == 0) return; /* zeros, infinities and NaN do not count */
    p->whole = whole;
    p->scientific = p->floating && (most / least > 1000 || most > 1e8 || least < 1e-4);
    do {
        double x = p->floating ? tgi_slot_value(p) : 1;
        int width = x == 0 || !tgi_is_finite(x) ? 0 : (int)strlen(tgi_slot_text(p).text);
        if (width > p->width) p->width = width;
    } while (tgi_next_slot(p));
}

/* Prints the last dim, as many elements to a line as fit. */
static void tgi_print_vector(tgi_printer *p)
{
    const int last = p->t->ndim - 1, indent = 7 + last; /* 7: "tensor(" */
    const int64_t room = (TGI_LINE - indent) / (p->width + 2), shown = tgi_slots(p, last);
    tgi_print_text(p, "[");
    for (p->slot[last] = 0; p->slot[last] < shown; p->slot[last]++) {
        if (p->slot[last] > 0 && p->slot[last] % (room > 1 ? room : 1) == 0) {
            tgi_print_text(p, ",\n");
            tgi_print_spaces(p, indent + 1);
        } else if (p->slot[last] > 0) {
            tgi_print_text(p, ", ");
        }
        if (tgi_is_dots(p, last)) {
            tgi_print_text(p, " ...");
        } else {
            tgi_text s = tgi_slot_text(p);
            tgi_print_spaces(p, p->width - (int)strlen(s.text));
            tgi_print_text(p, s.text);
        }
    }
    p->slot[last] = 0;
    tgi_print_text(p, "]");
}

/* Prints the elements in brackets: one vector for every combination of slots of the dims before the last. */
static void tgi_print_elements(tgi_printer *p)
{
    const int last = p->t->ndim - 1;
    int dim = 0;
    memset(p->slot, 0, sizeof p->slot);
    if (last < 0) {
        tgi_print_text(p, tgi_slot_text(p).text);
        return;
    }
    for (int i = 0; i < last; ++i) tgi_print_text(p, "[");
    for (;;) {
        if (dim < last && tgi_is_dots(p, dim)) {
            tgi_print_text(p, "...");
        } else {
            tgi_print_vector(p);
            dim = last - 1;
        }
        while (dim >= 0 && ++p->slot[dim] == tgi_slots(p, dim)) {
            p->slot[dim--] = 0;
            tgi_print_text(p, "]");
        }
        if (dim < 0) return;
        tgi_print_text(p, ",");
        for (int i = dim; i < last; ++i) tgi_print_text(p, "\n");
        tgi_print_spaces(p, 8 + dim);
        for (int i = dim + 1; i < last && !tgi_is_dots(p, dim); ++i) tgi_print_text(p, "[");
    }
}

/* Prints ", dtype=f64", on a new line where this one is full.  *length: of the line, as PyTorch counts it. */
static void tgi_print_suffix(tgi_printer *p, int *length, const char *suffix)
{
    const int more = (int)strlen(suffix);
    if (*length + more + 2 > TGI_LINE) {
        tgi_print_text(p, ",\n       ");
        *length = 7 + more;
    } else {
        tgi_print_text(p, ", ");
        *length += more + 2;
    }
    tgi_print_text(p, suffix);
}

static void tgi_print_suffixes(tgi_printer *p, const tg_tensor *t)
{
    const tgi_thread *S = p->S;
    const tg_device device = tgi_device_of(t);
    const bool empty = tgi_numel(t) == 0;
    int length = p->column + 2;
    tgi_text s;
    if (device.type != S->default_device.type ||
        (device.type == TG_DEV_CUDA && device.index != tg_cuda_current_device())) {
        snprintf(s.text, sizeof s.text, "device='%s'", tg_device_str(device));
        tgi_print_suffix(p, &length, s.text);
    }
    if (empty && t->ndim != 1) {
        size_t used = (size_t)snprintf(s.text, sizeof s.text, "size=(");
        for (int i = 0; i < t->ndim && used < sizeof s.text - 24; ++i) {
            used += (size_t)snprintf(s.text + used, sizeof s.text - used, i ? ", %lld" : "%lld", (long long)t->dim[i]);
        }
        strcpy(s.text + used, ")");
        tgi_print_suffix(p, &length, s.text);
    }
    if (t->dtype != S->default_dtype && (empty || (t->dtype != TG_I64 && t->dtype != TG_BOOL))) {
        snprintf(s.text, sizeof s.text, "dtype=%s", tg_dtype_name((tg_dtype)t->dtype));
        tgi_print_suffix(p, &length, s.text);
    }
    if (t->node) {
        snprintf(s.text, sizeof s.text, "grad_fn=<%.120s>", tgi_backward_name(t->node).text);
        tgi_print_suffix(p, &length, s.text);
    } else if (t->flags & TGI_REQUIRES_GRAD) {
        tgi_print_suffix(p, &length, "requires_grad=True");
    }
}

static tg_status tgi_fprint(const char *op, FILE *file, tg_tensor *t)
{
    static const tg_device cpu = TG_CPU_INIT;
    tgi_thread *S = tgi_self();
    uint64_t scope = 0;
    bool ok = true;
    if (!tgi_argument(S, op, "t", t) || !tgi_refresh_view(S, t)) return tgi_failed(S);
    if (!file) return tgi_null_argument(S, op, "file"), tgi_failed(S);
    tgi_printer p;
    memset(&p, 0, sizeof p);
    p.S = S;
    p.file = file;
    p.t = t;
    if (!t->storage->backend->host) {
        scope = tgi_frame_open(S, TGI_GUARD_SCOPE);
        if (!scope) return tgi_failed(S);
        S->grad_off = true;
        p.t = tg_to_ex(t, cpu, (tg_dtype)t->dtype, 0);
        ok = p.t != NULL;
    }
    if (ok) {
        p.floating = tgi_dtypes[t->dtype].floating;
        p.shortened = tgi_numel(t) > TGI_SUMMARY;
        tgi_print_text(&p, "tensor(");
        if (tgi_numel(t) == 0) {
            tgi_print_text(&p, "[]");
        } else {
            tgi_choose_format(&p);
            tgi_print_elements(&p);
        }
        tgi_print_suffixes(&p, t);
        tgi_print_text(&p, ")\n");
    }
    if (scope) tgi_frame_close(S, scope);
    if (ok && !tgi_flush(S, op, file)) return TG_ERR_IO;
    return ok ? TG_OK : tgi_failed(S);
}

tg_status tg_fprint(FILE *file, tg_tensor *t) { return tgi_fprint("fprint", file, t); }
tg_status tg_print(tg_tensor *t) { return tgi_fprint("print", stdout, t); }

/* ---- the tape: what root reaches, as rows ---- */

/* A leaf t; or a node, with its output t if that is still found (else NULL). */
typedef struct { tgi_node *node; tg_tensor *t; bool shown; } tgi_tape_row;

typedef struct {
    tgi_thread *S;
    const char *op;
    tgi_tape_row *row; /* leaves in the order of their first use, then nodes, oldest first */
    size_t row_bytes;
    int64_t leaves, ops, saved_bytes;
    tgi_map ids;   /* from a node or leaf to its row */
    tgi_map saved; /* the saved tensors that saved_bytes counts */
} tgi_tape;

enum { TGI_ON_TAPE = 0x8000 }; /* a flag of the nodes that root reaches, while a tape is collected */

static bool tgi_map_open(tgi_thread *S, tgi_map *m, int64_t entries)
{
    m->size = tgi_map_size(entries);
    m->slot = (tgi_map_slot *)tgi_alloc(S, m->size * sizeof *m->slot);
    if (m->slot) memset(m->slot, 0, m->size * sizeof *m->slot);
    return m->slot != NULL;
}

static void tgi_map_close(tgi_thread *S, tgi_map *m) { tgi_free(S, m->slot, m->size * sizeof *m->slot); }

/* The row of a node or leaf; -1 if it has none. */
static int64_t tgi_tape_id(const tgi_tape *tape, const void *key)
{
    const tgi_map_slot *slot = tgi_map_find(&tape->ids, key);
    return slot->key ? slot->value : -1;
}

/* Fills row `id` for a node, or for a leaf when node is NULL. */
static void tgi_tape_add(tgi_tape *tape, int64_t id, tgi_node *node, tg_tensor *leaf)
{
    const void *key = node ? (const void *)node : (const void *)leaf;
    tgi_map_slot *slot = tgi_map_find(&tape->ids, key);
    slot->key = key;
    slot->value = id;
    tape->row[id].node = node;
    tape->row[id].t = leaf;
    tape->row[id].shown = false;
}

/* Sets TGI_ON_TAPE in the nodes that root reaches, and counts them, their leaf edges and their saved tensors.  Edges go
   from newer nodes to older ones, so one pass over the list of nodes, newest first, is enough. */
static void tgi_tape_reach(tgi_thread *S, tgi_node *root, int64_t *ops, int64_t *leaf_edges, int64_t *saves)
{
    root->flags |= TGI_ON_TAPE;
    for (tgi_link *l = &root->link; l != &S->nodes; l = l->prev) {
        tgi_node *n = (tgi_node *)(void *)l;
        if (!(n->flags & TGI_ON_TAPE)) continue;
        ++*ops;
        *saves += n->saves;
        for (int i = 0; i < n->inputs; ++i) {
            if (n->edge[i].node) n->edge[i].node->flags |= TGI_ON_TAPE;
            if (n->edge[i].leaf) ++*leaf_edges;
        }
    }
}

static void tgi_tape_clear_flags(tgi_thread *S, tgi_node *root)
{
    for (tgi_link *l = &root->link; l != &S->nodes; l = l->prev) {
        tgi_node *n = (tgi_node *)(void *)l;
        n->flags &= (uint16_t)~TGI_ON_TAPE;
    }
}

/* Adds a row for every leaf and every node that root reaches. */
static void tgi_tape_rows(tgi_tape *tape, tgi_node *root)
{
    tgi_link *end = root->link.next;
    for (tgi_link *l = tape->S->nodes.next; l != end; l = l->next) {
        tgi_node *n = (tgi_node *)(void *)l;
        for (int i = 0; (n->flags & TGI_ON_TAPE) && i < n->inputs; ++i) {
            tg_tensor *leaf = n->edge[i].leaf;
            if (leaf && tgi_tape_id(tape, leaf) < 0) tgi_tape_add(tape, tape->leaves++, NULL, leaf);
        }
    }
    for (tgi_link *l = tape->S->nodes.next; l != end; l = l->next) {
        tgi_node *n = (tgi_node *)(void *)l;
        if (n->flags & TGI_ON_TAPE) tgi_tape_add(tape, tape->leaves + tape->ops++, n, NULL);
    }
}

/* Sets t in the row of the node that made it. */
static void tgi_tape_set_output(const tgi_tape *tape, tg_tensor *t)
{
    int64_t id = t->node && t->output == 0 ? tgi_tape_id(tape, t->node) : -1;
    if (id >= 0) tape->row[id].t = t;
}

static void tgi_tape_set_outputs(const tgi_tape *tape, const tgi_link *list)
{
    for (const tgi_link *l = list->next; l != list; l = l->next) tgi_tape_set_output(tape, (tg_tensor *)(uintptr_t)l);
}

/* Adds up the bytes of the tensors that node n saved, each tensor once, and sets those that are the output of a node in
   the row of that node, if they have not been written since. */
static void tgi_tape_add_saved(tgi_tape *tape, const tgi_node *n)
{
    for (int k = 0; k < n->saves; ++k) {
        const tgi_saved *s = &n->saved[k];
        tgi_map_slot *slot = tgi_map_find(&tape->saved, s->t);
        if (!slot->key) tape->saved_bytes += tgi_numel(s->t) * (int64_t)tgi_dtypes[s->t->dtype].size;
        slot->key = s->t;
        if (s->which == TGI_SAVED_OTHER || (n->flags & TGI_WROTE_VIEW)) continue;
        const tgi_node *maker = s->which < 0 ? n : n->edge[s->which].node;
        const int output = s->which < 0 ? -1 - s->which : n->edge[s->which].output;
        if (!maker || output != 0 || s->t->storage->version != s->version) continue;
        tape->row[tgi_tape_id(tape, maker)].t = s->t;
    }
}

/* A node has no reference to its output: this looks for the outputs among the saved tensors and in all scopes. */
static void tgi_tape_find_outputs(tgi_tape *tape, tg_tensor *root)
{
    for (int64_t id = tape->leaves; id < tape->leaves + tape->ops; ++id) tgi_tape_add_saved(tape, tape->row[id].node);
    tgi_tape_set_outputs(tape, &tape->S->unscoped);
    for (const tgi_frame *f = tape->S->frame; f; f = f->below) {
        if (f->kind == TGI_GUARD_SCOPE) tgi_tape_set_outputs(tape, &f->list);
    }
    tgi_tape_set_output(tape, root);
}

static void tgi_tape_free(tgi_tape *tape)
{
    tgi_map_close(tape->S, &tape->ids);
    tgi_map_close(tape->S, &tape->saved);
    tgi_free(tape->S, tape->row, tape->row_bytes);
}

/* Collects the tape under root; false after recording an error. */
static bool tgi_tape_open(tgi_tape *tape, const char *op, FILE *file, tg_tensor *root)
{
    tgi_thread *S = tgi_self();
    int64_t ops = 0, leaf_edges = 1, saves = 0;
    if (!tgi_argument(S, op, "root", root) || !tgi_refresh_view(S, root)) return false;
    if (!file) return tgi_null_argument(S, op, "file");
    memset(tape, 0, sizeof *tape);
    tape->S = S;
    tape->op = op;
    if (root->node) tgi_tape_reach(S, root->node, &ops, &leaf_edges, &saves);
    tape->row_bytes = sizeof *tape->row * (size_t)(ops + leaf_edges);
    tape->row = (tgi_tape_row *)tgi_alloc(S, tape->row_bytes);
    bool ok = tape->row && tgi_map_open(S, &tape->ids, ops + leaf_edges) && tgi_map_open(S, &tape->saved, saves);
    if (ok && root->node) tgi_tape_rows(tape, root->node);
    if (root->node) tgi_tape_clear_flags(S, root->node);
    if (!ok) {
        tgi_tape_free(tape);
        return tgi_no_memory(S, op, tape->row_bytes);
    }
    if (root->node) tgi_tape_find_outputs(tape, root);
    else tgi_tape_add(tape, tape->leaves++, NULL, root);
    return true;
}

static tg_status tgi_tape_finish(tgi_tape *tape, FILE *file)
{
    tgi_tape_free(tape);
    return tgi_flush(tape->S, tape->op, file) ? TG_OK : TG_ERR_IO;
}

/* ---- the text of a row ---- */

enum {
    TGI_CELL_OP,
    TGI_CELL_NAME,
    TGI_CELL_SHAPE,
    TGI_CELL_DTYPE,
    TGI_CELL_DEVICE,
    TGI_CELL_IN,
    TGI_CELL_DATA,
    TGI_CELL_GRAD,
    TGI_CELL_SAVED,
    TGI_CELLS
};

static const char *tgi_row_name(const tgi_tape_row *row)
{
    if (row->node && row->node->name) return row->node->name;
    return row->t && row->t->name ? row->t->name : "";
}

/* The value of a tensor with one element: "2.0000".  "..." for more elements, "-" for none or no tensor. */
static void tgi_value_text(tgi_thread *S, tgi_text *s, const tg_tensor *t)
{
    strcpy(s->text, t && tgi_numel(t) > 1 ? "..." : "-");
    int64_t element[1];
    if (!t || tgi_numel(t) != 1 || !tgi_read_element(S, t, 0, element)) return;
    double x;
    if (!tgi_convert_element(S, &x, TG_F64, element, (tg_dtype)t->dtype)) return;
    if (tgi_is_nan(x)) strcpy(s->text, "nan");
    else snprintf(s->text, sizeof s->text, tgi_is_finite(x) && fabs(x) >= 1e5 ? "%.3e" : "%.4f", x);
}

/* Appends a word to a list; a list that grows too long ends in "..". */
static void tgi_list_word(tgi_text *s, const char *word)
{
    const size_t used = strlen(s->text), most = 40;
    if (used >= 2 && strcmp(s->text + used - 2, "..") == 0) return;
    if (used + strlen(word) + 1 > most - 3) word = "..";
    snprintf(s->text + used, sizeof s->text - used, used ? " %s" : "%s", word);
}

/* Appends the number of row `id`, or its name if it has one and by_name. */
static void tgi_list_row(const tgi_tape *tape, tgi_text *s, int64_t id, bool by_name)
{
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)id);
    tgi_list_word(s, by_name && tgi_row_name(&tape->row[id])[0] ? tgi_row_name(&tape->row[id]) : number);
}

static int64_t tgi_edge_id(const tgi_tape *tape, const tgi_edge *e)
{
    return e->node || e->leaf ? tgi_tape_id(tape, e->node ? (const void *)e->node : (const void *)e->leaf) : -1;
}

/* The lists of a node's inputs, by number, and of the tensors that it saved, by name where they have one. */
static void tgi_tape_lists(const tgi_tape *tape, int64_t id, tgi_text *in, tgi_text *saved)
{
    const tgi_node *n = tape->row[id].node;
    in->text[0] = saved->text[0] = 0;
    for (int i = 0; n && i < n->inputs; ++i) {
        int64_t from = tgi_edge_id(tape, &n->edge[i]);
        if (from >= 0) tgi_list_row(tape, in, from, false);
        else tgi_list_word(in, ".");
    }
    for (int i = 0; n && i < n->saves; ++i) {
        const tgi_saved *s = &n->saved[i];
        int64_t from = s->which < 0 ? id : tgi_edge_id(tape, &n->edge[s->which]);
        if (s->which == TGI_SAVED_OTHER || from < 0)
            tgi_list_word(saved, s->t->name ? s->t->name : ".");
        else tgi_list_row(tape, saved, from, true);
    }
    if (!in->text[0]) strcpy(in->text, "-");
    if (!saved->text[0]) strcpy(saved->text, n && (n->flags & TGI_FREED) ? "freed" : "-");
}

static void tgi_tape_cells(const tgi_tape *tape, int64_t id, tgi_text cell[TGI_CELLS])
{
    const tgi_tape_row *row = &tape->row[id];
    const tgi_output_info m = row->node ? row->node->output_info[0] : tgi_output_info_of(row->t);
    tg_device device;
    device.type = m.backend->type;
    device.index = m.index;
    snprintf(cell[TGI_CELL_OP].text, sizeof cell->text, "%.40s", row->node ? tgi_node_name(row->node) : "leaf");
    snprintf(cell[TGI_CELL_NAME].text, sizeof cell->text, "%.40s", tgi_row_name(row)[0] ? tgi_row_name(row) : "-");
    cell[TGI_CELL_SHAPE] = tgi_dims_text(m.ndim, m.dim);
    snprintf(cell[TGI_CELL_DTYPE].text, sizeof cell->text, "%s", tg_dtype_name((tg_dtype)m.dtype));
    snprintf(cell[TGI_CELL_DEVICE].text, sizeof cell->text, "%s", tg_device_str(device));
    tgi_tape_lists(tape, id, &cell[TGI_CELL_IN], &cell[TGI_CELL_SAVED]);
    tgi_value_text(tape->S, &cell[TGI_CELL_DATA], row->t);
    tgi_value_text(tape->S, &cell[TGI_CELL_GRAD], row->t ? row->t->grad : NULL);
}

/* ---- as a table ---- */

static void tgi_tape_print_row(FILE *file, int id_width, const char *id, const int *width, const tgi_text *cell)
{
    fprintf(file, "%*s", id_width, id);
    for (int k = 0; k < TGI_CELL_IN; ++k)
        fprintf(file, k == TGI_CELL_DEVICE ? " %-*s" : "  %-*s", width[k], cell[k].text);
    fprintf(file, "  %-*s", width[TGI_CELL_IN], cell[TGI_CELL_IN].text);
    for (int k = TGI_CELL_DATA; k <= TGI_CELL_GRAD; ++k) fprintf(file, "  %*s", width[k], cell[k].text);
    fprintf(file, "   %s\n", cell[TGI_CELL_SAVED].text);
}

tg_status tg_tape_print(FILE *file, tg_tensor *root)
{
    static const char *const title[TGI_CELLS] = {"op", "name", "shape", "dtype", "dev", "in", "data", "grad", "saved"};
    int width[TGI_CELLS] = {5, 4, 5, 5, 4, 4, 8, 8, 0}; /* as wide as the longest text, and at least this */
    tgi_tape tape;
    tgi_text cell[TGI_CELLS];
    if (!tgi_tape_open(&tape, "tape_print", file, root)) return tgi_failed(tgi_self());
    const int64_t rows = tape.leaves + tape.ops;
    for (int64_t id = 0; id < rows; ++id) {
        tgi_tape_cells(&tape, id, cell);
        for (int k = 0; k < TGI_CELLS; ++k) width[k] = tgi_wider(width[k], cell[k].text);
    }
    int id_width = 4;
    for (int64_t id = rows; id >= 10000; id /= 10) id_width++;
    fprintf(file, "tape: %lld %s, %lld op%s, %lld bytes saved for backward\n", (long long)tape.leaves,
            tape.leaves == 1 ? "leaf" : "leaves", (long long)tape.ops, tape.ops == 1 ? "" : "s",
            (long long)tape.saved_bytes);
    for (int k = 0; k < TGI_CELLS; ++k) strcpy(cell[k].text, title[k]);
    tgi_tape_print_row(file, id_width, "id", width, cell);
    for (int64_t id = 0; id < rows; ++id) {
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)id);
        tgi_tape_cells(&tape, id, cell);
        tgi_tape_print_row(file, id_width, number, width, cell);
    }
    return tgi_tape_finish(&tape, file);
}

/* ---- as a graph ---- */

enum { TGI_DOT_ROWS = 200 }; /* at most so many are shown */

/* Writes text for the label of a record, in which some characters need a backslash. */
static void tgi_dot_text(FILE *file, const char *text)
{
    for (; *text; ++text) {
        if (strchr("{}|<>\"\\", *text)) fputc('\\', file);
        fputc((unsigned char)*text < ' ' ? ' ' : *text, file);
    }
}

static const char *tgi_dot_colour(const tgi_node *n)
{
    if (!n) return "lightblue";
    return n->op->flags & TGI_FLAG_MOVE ? "orange" : n->op->flags & TGI_FLAG_VIEW ? "palegreen" : "white";
}

static void tgi_dot_row(FILE *file, const tgi_tape *tape, int64_t id)
{
    const tgi_node *n = tape->row[id].node;
    tgi_text cell[TGI_CELLS];
    tgi_tape_cells(tape, id, cell);
    fprintf(file, "    n%lld [fillcolor=%s, label=\"{ ", (long long)id, tgi_dot_colour(n));
    tgi_dot_text(file, cell[TGI_CELL_OP].text);
    if (strcmp(cell[TGI_CELL_NAME].text, "-")) {
        fputc(' ', file);
        tgi_dot_text(file, cell[TGI_CELL_NAME].text);
    }
    fprintf(file, " | %s %s %s | data %s | grad %s }\"];\n", cell[TGI_CELL_SHAPE].text, cell[TGI_CELL_DTYPE].text,
            cell[TGI_CELL_DEVICE].text, cell[TGI_CELL_DATA].text, cell[TGI_CELL_GRAD].text);
}

/* Chooses the newest nodes and their leaves; returns the number of rows that are not shown. */
static int64_t tgi_dot_choose(tgi_tape *tape)
{
    int64_t chosen = 0;
    for (int64_t id = tape->leaves + tape->ops - 1; id >= 0 && chosen < TGI_DOT_ROWS; --id) {
        const tgi_node *n = tape->row[id].node;
        if (tape->row[id].shown) continue;
        tape->row[id].shown = true;
        chosen++;
        for (int i = 0; n && i < n->inputs && chosen < TGI_DOT_ROWS; ++i) {
            int64_t from = n->edge[i].leaf ? tgi_edge_id(tape, &n->edge[i]) : -1;
            if (from < 0 || tape->row[from].shown) continue;
            tape->row[from].shown = true;
            chosen++;
        }
    }
    return tape->leaves + tape->ops - chosen;
}

static void tgi_dot_edges(FILE *file, const tgi_tape *tape, int64_t id)
{
    const tgi_node *n = tape->row[id].node;
    bool from_hidden = false;
    for (int i = 0; n && i < n->inputs; ++i) {
        int64_t from = tgi_edge_id(tape, &n->edge[i]);
        if (from < 0) continue;
        if (tape->row[from].shown) fprintf(file, "    n%lld -> n%lld;\n", (long long)from, (long long)id);
        else if (!from_hidden) fprintf(file, "    hidden -> n%lld [style=dashed];\n", (long long)id);
        from_hidden = from_hidden || !tape->row[from].shown;
    }
}

tg_status tg_tape_dot(FILE *file, tg_tensor *root)
{
    tgi_tape tape;
    if (!tgi_tape_open(&tape, "tape_dot", file, root)) return tgi_failed(tgi_self());
    int64_t hidden = tgi_dot_choose(&tape);
    fprintf(file, "digraph tape {\n    rankdir=LR;\n    node [shape=record, style=filled, fillcolor=white];\n");
    if (hidden)
        fprintf(file, "    hidden [shape=box, style=dashed, label=\"... %lld nodes hidden\"];\n", (long long)hidden);
    for (int64_t id = 0; id < tape.leaves + tape.ops; ++id) {
        if (tape.row[id].shown) tgi_dot_row(file, &tape, id);
    }
    for (int64_t id = 0; id < tape.leaves + tape.ops; ++id) {
        if (tape.row[id].shown) tgi_dot_edges(file, &tape, id);
    }
    fprintf(file, "}\n");
    return tgi_tape_finish(&tape, file);
}

#endif /* !TGI_CUDA_COMPANION */

#ifdef __cplusplus
}
#endif
#endif /* TENSORGRAD_IMPLEMENTED */
#endif /* TENSORGRAD_IMPLEMENTATION */

/*
tensorgrad is available under either of two licences, at your choice.

------------------------------------------------------------------------------
ALTERNATIVE A - MIT No Attribution (SPDX: MIT-0)

Copyright (c) 2026 the tensorgrad authors

Permission is hereby granted, free of charge, to any person obtaining a copy of
this software and associated documentation files (the "Software"), to deal in
the Software without restriction, including without limitation the rights to
use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of
the Software, and to permit persons to whom the Software is furnished to do so.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS
FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER
IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.

------------------------------------------------------------------------------
ALTERNATIVE B - Public Domain (SPDX: Unlicense)

This is free and unencumbered software released into the public domain.

Anyone is free to copy, modify, publish, use, compile, sell, or distribute this
software, either in source code form or as a compiled binary, for any purpose,
commercial or non-commercial, and by any means.

In jurisdictions that recognize copyright laws, the author or authors of this
software dedicate any and all copyright interest in the software to the public
domain. We make this dedication for the benefit of the public at large and to
the detriment of our heirs and successors. We intend this dedication to be an
overt act of relinquishment in perpetuity of all present and future rights to
this software under copyright law.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS
FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS BE
LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF
CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE
SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.

For more information, please refer to <https://unlicense.org/>
*/
