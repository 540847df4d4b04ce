#!/usr/bin/env python3
"""add_dtype.py FOLDER [cpu]: adds the dtype i16 to a copy of the library in FOLDER, in as many places as the head of @@DTYPE says,
and tests it; ends in "N passed, N failed".

The test creates, converts, adds, promotes, prints, saves and loads it, on the CPU, on the plain backend and, without "cpu" and
where there is a C++ compiler, with the CUDA kernels on a pretend device."""
import os
import sys

from checks import summary
from copies import CUDA, DEVICE, HEADER, add, build, build_on_device, copy, test

I16 = [
    (HEADER, "    TG_BOOL             /* one byte,", "    TG_I16,             /* int16_t */\n"),
    (HEADER, '{"bool", 1, false, 0}', '{"i16", 2, false, 1}, '),
    (HEADER, "/* Integers wrap around, as PyTorch's do: the arithmetic is unsigned. */", """\
TGI_INLINE int16_t tgi_f64_to_i16(double x)
{
    if (x != x) return 0;
    return (int16_t)(x >= 32767 ? 32767 : x <= -32768 ? -32768 : x);
}

"""),
    (HEADER, "    OP(b8, uint8_t, x != 0, x != 0,",
     "    OP(i16, int16_t, x, x, tgi_f64_to_i16((double)x), tgi_f64_to_i16(x), (int16_t)(uint16_t)(uint64_t)x) \\\n"),
    (HEADER, '                       {"BOOL", "b1 ? bool bool_"', '                       {"I16", "i2 h int16 short", 4, TG_I16, 2, true},\n'),
    (CUDA, "    TGI_AS_b8 = TG_BOOL\n};", "    TGI_AS_i16 = TG_I16,\n"),
    (CUDA, "    case TG_BF16:\n    case TG_F16: return 2;", "    case TG_I16:\n"),
]

TEST = r'''
#include "tensorgrad.h"
#include "helpers.h"

TEST(i16)
{
    const char *path = "build/i16.npy";
    tg_tensor *t = tg_to(tg_to_dtype(f64("[-40000, -20000, 0, 20000, 40000]"), TG_I16), HERE);
    CHECK(tg_dtype_of(t) == TG_I16 && tg_dtype_size(TG_I16) == 2 && strcmp(tg_dtype_name(TG_I16), "i16") == 0);
    HAS(t, "[-32768, -20000, 0, 20000, 32767]");
    HAS(tg_add(t, t), "[0, 25536, 0, -25536, -2]");
    CHECK(tg_dtype_of(tg_add(t, t)) == TG_I16 && tg_promote_types(TG_I16, TG_U8) == TG_I16);
    CHECK(tg_promote_types(TG_I16, TG_I32) == TG_I32 && tg_promote_types(TG_F16, TG_I16) == TG_F16);
    HAS(tg_to_dtype(t, TG_I64), "[-32768, -20000, 0, 20000, 32767]");
    HAS(tg_to_dtype(f64("[1.9, -1.9, 1e9, 65537]"), TG_I16), "[1, -1, 32767, 32767]");
    HAS(tg_to_dtype(tg_to_dtype(f64("[65537, -65535]"), TG_I64), TG_I16), "[1, 1]");
    HAS(tg_amax(t), "32767");
    CHECK(tg_npy_save(path, t) == TG_OK && tg_dtype_of(tg_npy_load(path)) == TG_I16);
    CHECK(tg_equal(tg_to(tg_npy_load(path), HERE), t));
    remove(path);
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    RUN(i16);
    return harness_end();
}
'''


def main():
    folder = copy(sys.argv[1])
    if not add(folder, "a dtype", I16, 7):
        return summary()
    with open(os.path.join(folder, "tests/test_i16.c"), "w", encoding="utf-8") as file:
        file.write(TEST)
    program = build(folder, "test_i16")
    test(folder, program, 10)
    test(folder, program, 10, TG_PLAIN="1")
    if "cpu" in sys.argv:
        print("skipped: the pretend device, which takes turns by commit")
    else:
        device = build_on_device(folder, "test_i16")
        if device:
            test(folder, device, 10, **DEVICE)
    return summary()


if __name__ == "__main__":
    sys.exit(main())
