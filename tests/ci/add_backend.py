#!/usr/bin/env python3
"""add_backend.py FOLDER: adds a third kind of device to a copy of the library in FOLDER as @@BACKEND says, a copy of @@PLAIN in a
file of its own and MOST places elsewhere in the header, and holds that programs run on it; ends in "N passed, N failed".

The kind is called "third" and has two devices.  Its addresses are not those of the host's memory, so that code which
takes its elements for the host's crashes, and so does the copied room where it takes the host's for its own."""
import os
import re
import shutil
import sys

from copies import add, run
from checks import check, summary

HEADER, ROOM = "tensorgrad.h", "tensorgrad_third.h"
MOST = 5

# (file, text in front of which the insertion goes, insertion)
PLACES = [
    (HEADER, "    TG_DEV_CUDA = 1", "    TG_DEV_THIRD = 2,\n"),
    (HEADER, ", TGI_MAX_DEVICES = 16", " + 1"),
    (HEADER, "/* In the order of TG_DEV_... */", "static const tgi_backend *tgi_row_of_third(tgi_thread *S);\n"),
    (HEADER, "};\n\n/* ---- devices of any kind ---- */",
     ",\n    {TGI_NUMBERED(\"third\"), \"TG_THIRD\", \"\", false, 14, tgi_row_of_third}"),
    (HEADER, "/* ======== @@OBJECT =================================================================================="
     "==============\n\n   Promise", "#include \"tensorgrad_third.h\"\n\n"),
]

# What the copy has in place of the entries of kind MEMORY that differ.
MEMORY = """\
enum { TGI_THIRDS = 2 };
static TG_THREAD_LOCAL int tgi_third_now;
static int tgi_third_device_count(void) { return TGI_THIRDS; }

/* An address of the device as one of the host, and back. */
static void *tgi_third_home(const void *p) { return p ? (void *)((uintptr_t)p ^ ((uintptr_t)1 << 62)) : NULL; }

static bool tgi_third_resolve(tgi_thread *S, const char *op, int *index)
{
    if (*index < 0) *index = tgi_third_now;
    if (*index < TGI_THIRDS) return true;
    return tgi_fail(S, TG_ERR_DEVICE, op, "there is no device third:%d", *index);
}

static bool tgi_third_set_current(tgi_thread *S, int index)
{
    (void)S;
    tgi_third_now = index;
    return true;
}

static void tgi_third_thread_end(tgi_thread *S) { (void)S; }

static void *tgi_third_alloc(tgi_thread *S, int index, size_t bytes, bool for_copy_stream)
{
    (void)S, (void)index, (void)for_copy_stream;
    return tgi_third_home(malloc(bytes ? bytes : 1));
}

static void tgi_third_release(tgi_thread *S, int index, void *data, size_t bytes)
{
    (void)S, (void)index, (void)bytes;
    free(tgi_third_home(data));
}

static int64_t tgi_third_cached(tgi_thread *S, int index) { return (void)S, (void)index, 0; }
static bool tgi_third_trim(tgi_thread *S, int index) { return (void)S, (void)index, true; }

static bool tgi_third_upload(tgi_thread *S, int index, void *dst, const void *host, size_t bytes)
{
    (void)S, (void)index;
    if (bytes) memmove(tgi_third_home(dst), host, bytes);
    return true;
}

static bool tgi_third_download(tgi_thread *S, int index, void *host, const void *src, size_t bytes)
{
    (void)S, (void)index;
    if (bytes) memmove(host, tgi_third_home(src), bytes);
    return true;
}

static bool tgi_third_put_element(tgi_thread *S, int index, void *dst, const void *host, size_t bytes)
{
    return tgi_third_upload(S, index, dst, host, bytes);
}

static bool tgi_third_peer_copy(tgi_thread *S, int to, void *dst, int from, const void *src, size_t bytes)
{
    (void)from;
    return tgi_third_upload(S, to, dst, tgi_third_home(src), bytes);
}

static bool tgi_third_synchronize(tgi_thread *S, int index) { return (void)S, (void)index, true; }
static bool tgi_third_device_sync(tgi_thread *S, int index) { return (void)S, (void)index, true; }

/* ---- entries of kind DEVICE: all work is done when it was asked for, and nothing can be captured ---- */

static void *tgi_third_alloc_pinned(tgi_thread *S, size_t bytes) { return tgi_alloc(S, bytes); }
static void tgi_third_free_pinned(tgi_thread *S, void *data, size_t bytes, void *event)
{
    (void)event;
    tgi_free(S, data, bytes);
}
static bool tgi_third_start_upload(tgi_thread *S, int index, void *dst, const void *host, size_t bytes)
{
    return tgi_third_upload(S, index, dst, host, bytes);
}
static bool tgi_third_start_download(tgi_thread *S, int index, void *host, const void *src, size_t bytes)
{
    return tgi_third_download(S, index, host, src, bytes);
}
static bool tgi_third_event_record(tgi_thread *S, int index, tgi_stream_of stream, void **event)
{
    static char done;
    (void)S, (void)index, (void)stream;
    *event = &done;
    return true;
}
static bool tgi_third_event_wait(tgi_thread *S, int index, void *event) { return (void)S, (void)index, (void)event, true; }
static bool tgi_third_event_sync(tgi_thread *S, int index, void *event) { return (void)S, (void)index, (void)event, true; }
static void tgi_third_event_destroy(tgi_thread *S, void *event) { (void)S, (void)event; }
static const char *tgi_third_capture_watch(tgi_thread *S, int index)
{
    return (void)S, index < 0 ? NULL : "this device captures nothing";
}
static tgi_answer tgi_third_gather_checked(tgi_thread *S, const char *op, const tgi_rows *rows,
                                           tgi_index_message message, int axis)
{
    return (void)S, (void)op, (void)rows, (void)message, (void)axis, TGI_COMPOSE;
}
static tgi_answer tgi_third_weight_gradient(tgi_thread *S, const tgi_gemm *gemm, void *dbias)
{
    return (void)S, (void)gemm, (void)dbias, TGI_COMPOSE;
}
static tgi_answer tgi_third_multi(tgi_thread *S, const tgi_multi *multi) { return (void)S, (void)multi, TGI_COMPOSE; }
static tgi_answer tgi_third_linear_gelu(tgi_thread *S, const tgi_gemm *gemm, const void *bias, void *z)
{
    return (void)S, (void)gemm, (void)bias, (void)z, TGI_COMPOSE;
}
static tgi_answer tgi_third_linear_gelu_backward(tgi_thread *S, const tgi_gemm *gemm, const void *z)
{
    return (void)S, (void)gemm, (void)z, TGI_COMPOSE;
}
static void *tgi_third_capture_begin(tgi_thread *S, int index, tg_rng rng) { return (void)S, (void)index, (void)rng, NULL; }
static tgi_answer tgi_third_capture_end(tgi_thread *S, int index, void *capture)
{
    return (void)S, (void)index, (void)capture, TGI_FAILED;
}
static void tgi_third_capture_renumber(tgi_thread *S, int index, void *capture) { (void)S, (void)index, (void)capture; }
static bool tgi_third_capture_launch(tgi_thread *S, int index, void *capture, bool ok, tg_rng rng)
{
    return (void)S, (void)index, (void)capture, (void)ok, (void)rng, false;
}
static void tgi_third_capture_free(tgi_thread *S, int index, void *capture) { (void)S, (void)index, (void)capture; }
static bool tgi_third_comm_id(tgi_thread *S, tg_nccl_id *id)
{
    return (void)id, tgi_fail(S, TG_ERR_COMM, "nccl_new_id", "third has no engine");
}
static bool tgi_third_comm_open(tgi_thread *S, int index, const tg_nccl_id *id, double seconds, tg_comm *comm)
{
    return (void)index, (void)id, (void)seconds, (void)comm, tgi_fail(S, TG_ERR_COMM, "nccl_comm", "third has no engine");
}
static bool tgi_third_comm_close(tgi_thread *S, tg_comm *comm) { return (void)S, (void)comm, false; }

"""

PROGRAM = r"""
#define TENSORGRAD_IMPLEMENTATION
#include "tensorgrad.h"

static int failed;
#define HOLDS(x) ((x) ? (void)0 : (void)(failed++, printf("line %d: %s\n%s\n", __LINE__, #x, tg_error_message())))

static tg_tensor *normal(tg_shape shape) { return tg_to_dtype(tg_randn(shape), TG_F64); }

static tg_device third(int index)
{
    tg_device device = TG_CPU_INIT;
    device.type = TG_DEV_THIRD;
    device.index = index;
    return device;
}

/* Trains a small network for some steps; the last loss, and the weights [3, 4] + [1, 3] in `weights`. */
static double train(tg_device device, double *weights)
{
    tg_seed(3);
    tg_tensor *x = tg_to(normal(TG_SHAPE(8, 4)), device), *y = tg_to(normal(TG_SHAPE(8, 1)), device);
    tg_tensor *w[2] = {tg_to(normal(TG_SHAPE(4, 3)), device), tg_to(normal(TG_SHAPE(3, 1)), device)};
    double loss = 0;
    for (int i = 0; i < 2; ++i) w[i] = tg_set_requires_grad(tg_detach(w[i]), true);
    for (int step = 0; step < 20; ++step) {
        tg_tensor *out = tg_matmul(tg_tanh(tg_matmul(x, w[0])), w[1]);
        tg_tensor *l = tg_mean(tg_square(tg_sub(out, y)));
        HOLDS(tg_backward(l) == TG_OK);
        loss = tg_item(l);
        for (int i = 0; i < 2; ++i) {
            tg_tensor *next = tg_sub(tg_detach(w[i]), tg_mul_scalar(tg_grad(w[i]), 0.1));
            w[i] = tg_set_requires_grad(tg_detach(next), true);
        }
    }
    for (int i = 0; i < 4 * 3; ++i) weights[i] = tg_item(tg_select(tg_flatten(tg_detach(w[0]), 0, -1), 0, i));
    return loss;
}

int main(void)
{
    tg_device d = TG_CPU_INIT;
    HOLDS(tg_device_parse("third:1", &d) == TG_OK && d.type == TG_DEV_THIRD && d.index == 1);
    HOLDS(strcmp(tg_device_str(d), "third:1") == 0);
    tg_tensor *x = tg_set_requires_grad(normal(TG_SHAPE(2, 3)), true);
    tg_tensor *y = tg_to(x, third(1));
    HOLDS(y && tg_device_equal(tg_device_of(y), d) && !tg_is_cuda(y));
    HOLDS(tg_backward(tg_sum(tg_to(tg_square(tg_to(y, third(0))), TG_CPU))) == TG_OK);
    HOLDS(tg_grad(x) && tg_equal(tg_grad(x), tg_mul_scalar(tg_detach(x), 2)));
    HOLDS(!tg_add(y, x) && strstr(tg_error_message(), "third:1"));
    tg_clear_error();
    HOLDS(!tg_add(y, tg_to(y, third(0))));
    tg_clear_error();
    HOLDS(!tg_to(x, third(2)) && strstr(tg_error_message(), "third:2"));
    tg_clear_error();
    double a[12], b[12], on_cpu = train(TG_CPU, a), there = train(third(-1), b);
    HOLDS(on_cpu == there && memcmp(a, b, sizeof a) == 0);
    printf("%d failed\n", failed);
    return failed != 0;
}
"""


def room(header):
    """The file of the new kind: a copy of the room PLAIN with other memory."""
    start = [m.start() for m in re.finditer(r"^/\* ======== @@PLAIN", header, re.M)][-1]
    text = header[start:header.index("/* ======== @@OBJECT", start)]
    text = text[text.index("TGI_CALLERS_BEGIN"):]
    text = re.sub(r"/\* ---- entries of kind MEMORY.*?(?=/\* ---- numbers)", lambda m: MEMORY, text, flags=re.S)
    text = re.sub(r"#ifndef TG_KERNELS_ONLY.*", "", text, flags=re.S)
    text = re.sub(r"tgi_(?:plain|host)_", "tgi_third_", text).replace("TGI_PLAIN", "TGI_THIRD")
    text = re.sub(r"(TGI_OPTIMIZER_(?:NAME|LOOP)_|TGI_OPTIMIZER, )plain", r"\1third", text)
    text = text.replace("_DEVICE(name) NULL,", "_DEVICE(name) tgi_third_##name,")
    text = text.replace('tgi_plain = {"cpu", TG_DEV_CPU, true, NULL,', 'tgi_third = {"third", TG_DEV_THIRD, false, NULL,')
    text = re.sub(r"\*\((const )?type \*\)at", r"*(\1type *)tgi_third_home(at)", text)
    return text + "static const tgi_backend *tgi_row_of_third(tgi_thread *S) { return (void)S, &tgi_third; }\n"


def main():
    folder = os.path.abspath(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    with open(HEADER, encoding="utf-8") as file:
        header = file.read()
    shutil.copy(HEADER, folder)
    with open(os.path.join(folder, ROOM), "w", encoding="utf-8") as file:
        file.write(room(header))
    with open(os.path.join(folder, "program.c"), "w", encoding="utf-8") as file:
        file.write(PROGRAM)
    if not add(folder, "a backend", PLACES, MOST):
        return summary()
    run(folder, *"cc -std=c99 -O0 -ffp-contract=off -I. program.c -o program -lm -lpthread".split())
    if os.path.exists(os.path.join(folder, "program")):
        run(folder, "./program", TG_PLAIN="1")
    return summary()


if __name__ == "__main__":
    sys.exit(main())
