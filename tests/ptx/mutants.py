"""Plants one mistake at a time in nvcc's PTX of the kernels, and runs a test on it, which must fail.
   usage: mutants.py FILE.ptx FOLDER [words]    FOLDER has the programs of `make ptx`; only mutants with these words
   Of a file for sm_90a the mistakes are in the products of warpgroups, which have the programs of make ptx-hopper."""
import os
import re
import subprocess
import sys

# where the mistake is: the test program, its test, the beginning of the kernels' names; what it is: a pattern, what
# stands there instead, and which of its places in each of the kernels
FLASH, ROWS, SORTS = ("test_flash", "masks_and_layouts"), ("test_rows", "rows_in_registers"), ("test_along", "sorts")
CHUNKS, TILES = ("test_rows", "rows_in_chunks"), ("test_flash", "tiles")
FORMULAS, LINES = ("test_kernels", "rows_in_f32"), ("test_kernels", "rows_and_columns")
STEPS = ("test_kernels", "randomness_and_steps")
FORWARD, BACKWARD, NORM = "tgi_flash_forwardI", "tgi_flash_backwardI", "tgi_norm_rowsI"
MUTANTS = [
    ("mma: registers 1 and 2 of a exchanged", FLASH, FORWARD,
     r"(mma\.sync\S+ \{[^}]*\},\{%r\d+),(%r\d+),(%r\d+)", r"\1,\3,\2", 0),
    ("mma: registers of b exchanged", FLASH, FORWARD,
     r"(mma\.sync\S+ \{[^}]*\},\{[^}]*\},)\{(%r\d+),(%r\d+)\}", r"\1{\3,\2}", 5),
    ("mma: registers of c exchanged", FLASH, BACKWARD, r"(mma\.sync\S+ \{)(%f\d+),(%f\d+)", r"\1\3,\2", 3),
    ("mma: bf16 taken for f16", FLASH, FORWARD, r"f32\.bf16\.bf16\.f32", "f32.f16.f16.f32", 0),
    ("ldmatrix: .trans dropped", FLASH, FORWARD, r"x4\.trans\.shared", "x4.shared", 0),
    ("ldmatrix: .trans dropped, backward", FLASH, BACKWARD, r"x4\.trans\.shared", "x4.shared", 2),
    ("ldmatrix: .trans added", FLASH, FORWARD, r"x4\.shared", "x4.trans.shared", 1),
    ("ldmatrix: registers exchanged", FLASH, BACKWARD, r"(ldmatrix\S+ \{)(%r\d+),(%r\d+)", r"\1\3,\2", 1),
    ("cp.async: one group more may be left", FLASH, FORWARD, r"wait_group 1", "wait_group 2", 0),
    ("cp.async: a group is left", TILES, BACKWARD, r"wait_group 0", "wait_group 1", 0),
    ("cp.async: not waited for", FLASH, BACKWARD, r"cp\.async\.wait_group \d;", "", 0),
    ("cp.async: no group ended", FLASH, FORWARD, r"cp\.async\.commit_group;", "", 0),
    ("cvt: the halves exchanged", FLASH, FORWARD, r"(cvt\.rn\.b?f16x2\.f32 %r\d+),(%f\d+),(%f\d+)", r"\1,\3,\2", 0),
    ("the first barrier of a tile dropped", FLASH, FORWARD, r"bar\.sync \t0;", "", 0),
    ("the second barrier of a tile dropped", FLASH, FORWARD, r"bar\.sync \t0;", "", 1),
    ("a barrier of the backward pass dropped", FLASH, BACKWARD, r"bar\.sync \t0;", "", 1),
    ("a parameter from the next place", FLASH, FORWARD, r"(ld\.param\.u32 \t%r\d+, \[\w+)\+44\]", r"\1+48]", 0),
    ("a pointer 8 bytes further", FLASH, FORWARD,
     r"(ld\.param\.u64 \t%rd\d+, \[%?\w+\+)(\d+)\]", lambda m: "%s%d]" % (m[1], int(m[2]) + 8), 0),
    ("shuffles of another distance", ROWS, NORM, r"shfl\.sync\.bfly", "shfl.sync.down", 0),
    ("a barrier of the norm dropped", CHUNKS, NORM, r"bar\.sync \t0;", "", 1),
    ("a sum is a difference", ROWS, NORM, r"add\.f32", "sub.f32", 0),
    ("factors fused with another sign", ROWS, NORM,
     r"fma\.rn\.f32 \t(%f\d+), (%f\d+), (%f\d+), (%f\d+)", r"sub.f32 \1, \2, \4", 0),
    ("the norm's parameters 8 bytes further", ROWS, NORM,
     r"(ld\.param\.u64 \t%rd\d+, \[%?\w+\+)(\d+)\]", lambda m: "%s%d]" % (m[1], int(m[2]) + 8), 0),
    ("registers of a vector exchanged", ROWS, NORM,
     r"(st\.global\.v4\.[uf]32 \t\[[^]]*\], \{)(%\w+), (%\w+)", r"\1\3, \2", 0),
    ("sorts: a barrier dropped", SORTS, "tgi_sort_runsI", r"bar\.sync \t0;", "", 0),
    ("sorts: another barrier dropped", SORTS, "tgi_sort_runsI", r"bar\.sync \t0;", "", 1),
    ("radix: a barrier dropped", SORTS, "tgi_radix_moveI", r"bar\.sync \t0;", "", 0),
    ("radix: lanes of a warp not ordered", SORTS, "tgi_radix_moveI", r"bar\.warp\.sync[^;]*;", "", 0),
    ("radix: a vote of others", SORTS, "tgi_radix_moveI",
     r"vote\.sync\.ballot\.b32 \t(%r\d+), (%p\d+)", r"mov.b32 \1, 0; //", 3),
    # what only the comparison with the simulator sees: the last bit
    ("rounded: steps of optimizers towards 0", STEPS, "tgi_optim_piecesI", r"fma\.rn\.f32", "fma.rz.f32", 0),
    ("rounded: a square, times the number after 1", FORMULAS, "tgi_map_packsI11tgi_formulaILi3E",
     r"mul\.f32 \t(%f\d+), (%f\d+), (%f\d+)", r"\g<0>;\n\tmul.f32 \t\1, \1, 0f3F800001", 0),
    # global memory that another kernel reads
    ("unwritten: counts of digits", LINES, "tgi_radix_countI", r"st\.global\.[^;]*;", "", 0),
    ("unwritten: sums of the rows of a block", LINES, "tgi_norm_backward_rowsI", r"st\.global\.[^;]*;", "", 0),
]

HOPPER, HOPPER_BACKWARD = "tgi_hopper_forwardI", "tgi_hopper_backwardI"
DESCRIPTOR = 1 << 62 | 64 << 32 | 1 << 16  # without the address
WAIT = r"(wgmma\.wait_group\.sync\.aligned )"
PRODUCT = r"(wgmma\.mma_async\S+ \{[^}]*\},\{[^}]*\},%rd\d+,adds,1,1,)"
MUTANTS_90A = [
    ("descriptor: offsets exchanged", FLASH, HOPPER, str(DESCRIPTOR), str(1 << 62 | 1 << 32 | 64 << 16), 0),
    ("descriptor: half the stride", FLASH, HOPPER, str(DESCRIPTOR), str(DESCRIPTOR - (32 << 32)), 0),
    ("descriptor: no swizzle", FLASH, HOPPER, str(DESCRIPTOR), str(DESCRIPTOR - (1 << 62)), 0),
    ("descriptor: the address in units of 32 bytes", FLASH, HOPPER,
     r"(shr\.u\w+ \t%rd?\d+, %rd?\d+, )4(;(?:[^;]*;){1,3}\s*shfl\.sync\.idx)", r"\g<1>5\2", 0),
    ("scores: b not transposed", FLASH, HOPPER, PRODUCT + "0;", r"\g<1>1;", 1),
    ("values: b transposed", FLASH, HOPPER, PRODUCT + "1;", r"\g<1>0;", 1),
    ("registers of a exchanged", FLASH, HOPPER, r"(wgmma\.mma_async\S+ \{[^}]*\},\{)(%r\d+),(%r\d+)", r"\1\3,\2", 2),
    ("registers of d exchanged", FLASH, HOPPER, r"(wgmma\.mma_async\S+ \{)(%f\d+),(%f\d+)", r"\1\3,\2", 2),
    ("bf16 taken for f16", FLASH, HOPPER, r"f32\.bf16\.bf16", "f32.f16.f16", 0),
    ("a product does not add", FLASH, HOPPER, r"setp\.ne\.b32 adds, 1, 0", "setp.ne.b32 adds, 0, 0", 1),
    ("scores: a group may be left", FLASH, HOPPER, WAIT + "0", r"\g<1>1", 0),
    ("values: a group may be left", FLASH, HOPPER, WAIT + "0", r"\g<1>1", 1),
    ("not waited for", FLASH, HOPPER, WAIT + "0;", "", 1),
    ("no group ended", FLASH, HOPPER, r"wgmma\.commit_group\.sync\.aligned;", "", 0),
    ("values: wgmma.fence dropped", FLASH, HOPPER, r"wgmma\.fence\.sync\.aligned;", "", 1),
    ("scores: wgmma.fence dropped", FLASH, HOPPER, r"wgmma\.fence\.sync\.aligned;", "", 0),
    ("the fence of shared memory dropped", FLASH, HOPPER, r"fence\.proxy\.async\.shared::cta;", "", 0),
    ("the fence of shared memory before the wait", FLASH, HOPPER,
     r"(cp\.async\.wait_group 1;)([^;]*)(fence\.proxy\.async\.shared::cta;)", r"\3\2\1", 0),
    ("the barrier before q is used dropped", FLASH, HOPPER, r"bar\.sync \t0;", "", 0),
    ("the first barrier of a tile dropped", FLASH, HOPPER, r"bar\.sync \t0;", "", 1),
    ("the second barrier of a tile dropped", TILES, HOPPER, r"bar\.sync \t0;", "", 2),
    ("cp.async: one group more may be left", FLASH, HOPPER, r"cp\.async\.wait_group 1", "cp.async.wait_group 2", 1),
    ("backward: a group more may be left", FLASH, HOPPER_BACKWARD, WAIT + "1", r"\g<1>2", 0),
    ("backward: a group may be left", FLASH, HOPPER_BACKWARD, WAIT + "0", r"\g<1>1", 0),
    ("backward: the last sums not waited for", FLASH, HOPPER_BACKWARD, WAIT + "0;", "", 1),
    ("backward: no group of the second scores", FLASH, HOPPER_BACKWARD, r"wgmma\.commit_group\.sync\.aligned;", "", 1),
    ("backward: wgmma.fence of the last sums dropped", FLASH, HOPPER_BACKWARD, r"wgmma\.fence\.sync\.aligned;", "", 2),
    ("backward: a transposed", FLASH, HOPPER_BACKWARD, r"(,%rd\d+,%rd\d+,adds,1,1,)0,0;", r"\g<1>1,0;", 1),
    ("backward: a and b exchanged", FLASH, HOPPER_BACKWARD, r",(%rd\d+),(%rd\d+),adds", r",\2,\1,adds", 0),
    ("backward: the fence of shared memory dropped", FLASH, HOPPER_BACKWARD,
     r"fence\.proxy\.async\.shared::cta;", "", 0),
    ("backward: the barrier of a tile dropped", FLASH, HOPPER_BACKWARD, r"bar\.sync \t0;", "", 0),
    ("shared memory at a multiple of 16", FLASH, "", r"\.align 1024", ".align 16", 0),
]


def main():
    path, folder, words = sys.argv[1], sys.argv[2], sys.argv[3:]
    hopper = "sm_90a" in os.path.basename(path)
    text = open(path).read()
    places = [(m.group(1), m.start()) for m in re.finditer(r"\.entry (\w+)\(", text)] + [("", len(text))]
    mutated, found, tried = os.path.join(folder, "mutant.ptx"), 0, 0
    for name, (program, test), kernels, pattern, other, number in MUTANTS_90A if hopper else MUTANTS:
        if any(word not in name for word in words):
            continue
        head = text[:places[0][1]]
        parts, planted = [head if kernels else re.sub(pattern, other, head)], 0
        planted += parts[0] != head
        for (kernel, begin), (_, end) in zip(places, places[1:]):
            part = text[begin:end]
            if kernels and re.match(r"_Z\d+" + kernels, kernel):
                at = list(re.finditer(pattern, part))
                if len(at) > number:
                    m = at[number]
                    part = part[:m.start()] + (other(m) if callable(other) else m.expand(other)) + part[m.end():]
                    planted += 1
            parts.append(part)
        open(mutated, "w").write("".join(parts))
        environment = dict(os.environ, SMALL="1", TG_SIM_DEVICES="2", TG_SIM_PTX=mutated)
        environment.pop("TG_SIM_PTX_LOG", None)
        if hopper:
            environment.update(TG_SIM_CAPABILITY="90", TG_SIM_ARCH="90")
        if name.startswith("rounded"):
            environment["TG_SIM_PTX_COMPARE"] = "1"
        try:
            run = subprocess.run([os.path.join(folder, program), test], env=environment, capture_output=True,
                                 text=True, timeout=300)
            failed, last = run.returncode != 0, (run.stderr.strip() or run.stdout.strip()).split("\n")[0]
        except subprocess.TimeoutExpired:
            failed, last = True, "no end"
        tried += 1
        found += failed and planted > 0
        verdict = "found" if failed and planted else "SURVIVED"
        print("%-9s %s, in %d kernels: %s" % (verdict, name, planted, last[:100]), flush=True)
    print("mutants of nvcc's PTX: %d of %d found" % (found, tried))
    return found != tried


sys.exit(main())
