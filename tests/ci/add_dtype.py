#!/usr/bin/env python3
"""add_dtype.py FOLDER [cpu]: adds the dtype u16 to a copy of the library in FOLDER, in as many places as the head of @@DTYPE says,
and tests it; ends in "N passed, N failed".

The test creates, converts, adds, promotes, prints, saves and loads it, on the CPU, on the plain backend and, without "cpu" and
where there is a C++ compiler, with the CUDA kernels on a pretend device."""
import os
import sys

from checks import summary
from copies import DEVICE, HEADER, add, build, build_on_device, copy, test

U16 = [
    (HEADER, "    TG_BOOL             /* one byte,", "    TG_U16,             /* uint16_t */\n"),
    (HEADER, '    {"bool", 1, false, 0, 0, 1, 6},', '    {"u16", 2, false, 1, 0, UINT16_MAX, 1},\n'),
    (HEADER, "    OP(b8, uint8_t, x != 0, x != 0,",
     "    OP(u16, uint16_t, x, x, (uint16_t)tgi_f32_between(x, 0, 65535), (uint16_t)tgi_f64_between(x, 0, 65535), (uint16_t)(uint64_t)x) \\\n"),
    (HEADER, '                       {"BOOL", "b1 ? bool bool_"', '                       {"U16", "u2 H uint16 ushort", 8, TG_U16, 2, false},\n'),
    (HEADER, "    OP(b8, TG_BOOL, uint8_t, int64_t,", "    OP(u16, TG_U16, uint16_t, int64_t, stored, (uint16_t)value) \\\n"),
]

TEST = r'''
#include "tensorgrad.h"
#include "helpers.h"

TEST(u16)
{
    const char *path = "build/u16.npy";
    tg_tensor *t = tg_to(tg_to_dtype(f64("[-1, 0, 20000, 40000, 70000]"), TG_U16), HERE), *index = i64("[0, 0, 4, 4, 0]");
    CHECK(tg_dtype_of(t) == TG_U16 && tg_dtype_size(TG_U16) == 2 && strcmp(tg_dtype_name(TG_U16), "u16") == 0);
    HAS(t, "[0, 0, 20000, 40000, 65535]");
    HAS(tg_add(t, t), "[0, 0, 40000, 14464, 65534]");
    CHECK(tg_dtype_of(tg_add(t, t)) == TG_U16 && tg_promote_types(TG_U16, TG_U8) == TG_U16);
    CHECK(tg_promote_types(TG_U16, TG_I32) == TG_I32 && tg_promote_types(TG_F16, TG_U16) == TG_F16);
    HAS(tg_to_dtype(t, TG_I64), "[0, 0, 20000, 40000, 65535]");
    HAS(tg_to_dtype(f64("[1.9, -1.9, 1e9, 65535]"), TG_U16), "[1, 0, 65535, 65535]");
    HAS(tg_to_dtype(tg_to_dtype(f64("[65537, -65535]"), TG_I64), TG_U16), "[1, 1]");
    HAS(tg_lt(tg_flip(t, TG_DIMS(0)), t), "[0, 0, 0, 1, 1]");
    HAS(tg_sum(t), "125535");
    HAS(tg_amax(t), "65535");
    HAS(tg_sort(t, 0, true, NULL), "[65535, 40000, 20000, 0, 0]");
    HAS(tg_scatter_add(t, 0, index, t), "[65535, 0, 20000, 40000, 59999]");
    HAS(tg_searchsorted(t, t, true, NULL), "[2, 2, 3, 4, 5]");
    CHECK_FAILS(tg_full_like(t, 65536), "65536 is no value of a tensor of u16");
    CHECK(tg_npy_save(path, t) == TG_OK && tg_dtype_of(tg_npy_load(path)) == TG_U16);
    CHECK(tg_equal(tg_to(tg_npy_load(path), HERE), t));
    remove(path);
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    RUN(u16);
    return harness_end();
}
'''


def main():
    folder = copy(sys.argv[1])
    if not add(folder, "a dtype", U16, 5):
        return summary()
    with open(os.path.join(folder, "tests/test_u16.c"), "w", encoding="utf-8") as file:
        file.write(TEST)
    program = build(folder, "test_u16")
    test(folder, program, 22)
    test(folder, program, 22, TG_PLAIN="1")
    if "cpu" in sys.argv:
        print("skipped: the pretend device, which takes turns by commit")
    else:
        device = build_on_device(folder, "test_u16")
        if device:
            test(folder, device, 22, **DEVICE)
    return summary()


if __name__ == "__main__":
    sys.exit(main())
