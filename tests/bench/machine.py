#!/usr/bin/env python3
"""machine.py PTX ARCH OUT: how many instructions of the GPU's own ptxas makes of each line of a file of PTX.

Writes "LINE INSTRUCTIONS" for each line of which there are any, for the interpreter (TG_SIM_PTX_MACHINE).  Each statement of a
kernel is told to come from its line, and the table of lines that ptxas keeps for debuggers then says it of the instructions.
What ptxas has moved out of a loop still counts as often as the loop turns.  NOP, which only fills up, does not count.
Needs ptxas and nvdisasm (sass.sh knows where)."""
import collections
import os
import re
import subprocess
import sys

STATEMENT = re.compile(r"\s*(@!?%p\d+\s|\{ \.reg |[a-z])")
LINE = re.compile(r'//## File "ptx", line (\d+)')
INSTRUCTION = re.compile(r"\s+/\*[0-9a-f]{4,}\*/\s+(?!.*\bNOP\b)\S")


def with_lines(path):
    """The text, with the place of each statement of a function."""
    text, inside, ended = [], False, True
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            inside = line.startswith("{\n") or inside and not line.startswith("}")
            if inside and ended and STATEMENT.match(line): text.append("\t.loc 1 %d 0\n" % number)
            ended = line.startswith("//") or line.rstrip().endswith((";", ":", "{", "}")) or line.isspace()
            text.append(line)
    return "".join(text) + '.file 1 "ptx"\n'


def main():
    ptx, arch, out = sys.argv[1:]
    disassembler = subprocess.run(["bash", "tests/ci/sass.sh", "--path"], check=True, capture_output=True, text=True).stdout
    with open(out + ".ptx", "w", encoding="utf-8") as file: file.write(with_lines(ptx))
    subprocess.run(["ptxas", "-arch=sm_" + arch, "-lineinfo", out + ".ptx", "-o", out + ".cubin"], check=True)
    listing = subprocess.Popen([os.path.join(os.path.dirname(disassembler), "nvdisasm"), "-g", "-c", out + ".cubin"],
                               stdout=subprocess.PIPE, text=True)
    counts, line = collections.Counter(), None
    for text in listing.stdout:
        found = LINE.search(text)
        if found: line = int(found[1])
        elif ".section" in text: line = None
        elif line and INSTRUCTION.match(text): counts[line] += 1
    if listing.wait() or not counts: sys.exit("machine.py: nvdisasm failed")
    with open(out, "w", encoding="utf-8") as file:
        file.writelines("%d %d\n" % item for item in sorted(counts.items()))
    os.remove(out + ".ptx")
    os.remove(out + ".cubin")


main()
