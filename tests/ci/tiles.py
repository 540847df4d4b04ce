"""tiles.py LISTING: what a warp executes for a tile, in the kernels of a listing by cuobjdump -sass.

Prints GPU, kernel and a number for each kernel with a loop that has products by tensor cores: the instructions on the
shortest way once round that loop which passes all of its products and copies to shared memory.  So what only other
tiles need is not counted, such as a mask or the end of a matrix; a loop inside of the loop counts as one turn of it."""
import heapq
import re
import sys

PRODUCT = re.compile(r"\b[HI]G?MMA\b")
NEEDED = re.compile(r"\b([HI]G?MMA|LDGSTS)\b")
TARGET = re.compile(r"\bBRA\b.* 0x([0-9a-f]+)|\bBRA\b.*`\(0x([0-9a-f]+)\)")
END = re.compile(r"\b(BRA|EXIT|RET|BRX|JMX)\b")


def kernels(path):
    """(GPU, name, [(address, instruction)]) of each kernel"""
    gpu, name, code = "", "", []
    for line in open(path, encoding="utf-8"):
        found = re.match(r"arch = (\S+)|\s*Function : (\S+)|\s+/\*([0-9a-f]{4,})\*/\s+(.*?);", line)
        if not found: continue
        if found[3]: code.append((int(found[3], 16), found[4]))
        elif found[2]:
            if code: yield gpu, name, code
            name, code = found[2], []
        else:
            if code: yield gpu, name, code
            gpu, code = found[1], []
    if code: yield gpu, name, code


def target_of(instruction):
    found = TARGET.search(instruction)
    return int(found[1] or found[2], 16) if found else None


def blocks_of(code):
    """{first address: (instructions, first addresses of the blocks that may follow)}"""
    starts = {code[0][0]} | {target_of(text) for _, text in code} - {None}
    starts |= {after for (_, text), (after, _) in zip(code, code[1:]) if END.search(text)}
    instructions = {}
    for address, text in code:
        if address in starts: block = instructions.setdefault(address, [])
        block.append(text)
    order, blocks = sorted(instructions), {}
    for start, following in zip(order, order[1:] + [None]):
        last = instructions[start][-1]
        target = target_of(last)
        conditional = last.startswith("@") or re.search(r"\bBRA\S* !?U?P\d", last)
        next_ones = [] if target is None else [target]
        if following and (conditional or not END.search(last)): next_ones.append(following)
        blocks[start] = instructions[start], next_ones
    return blocks


def tile_of(code):
    """the number that is printed, or None"""
    blocks, largest = blocks_of(code), (0, 0, 0)
    for end, (_, next_ones) in blocks.items():
        for begin in next_ones:
            if begin > end: continue
            products = sum(bool(PRODUCT.search(text)) for at in blocks if begin <= at <= end for text in blocks[at][0])
            if products: largest = max(largest, (products, end - begin, begin))
    products, length, begin = largest
    if not products: return None
    inside = {at for at in blocks if begin <= at <= begin + length}
    needed = {at for at in inside if any(NEEDED.search(text) for text in blocks[at][0])}
    first = begin, frozenset(needed & {begin})
    least, heap, turn = {first: len(blocks[begin][0])}, [(len(blocks[begin][0]), 0, first)], 0
    while heap:
        instructions, _, (at, passed) = heapq.heappop(heap)
        if instructions > least[at, passed]: continue
        for after in blocks[at][1]:
            if after == begin and passed == needed: return instructions
            if after not in inside or after == begin: continue
            state = after, passed | needed & {after}
            length = instructions + len(blocks[after][0])
            if length < least.get(state, length + 1):
                least[state], turn = length, turn + 1
                heapq.heappush(heap, (length, turn, state))
    return None


for gpu, name, code in kernels(sys.argv[1]):
    number = tile_of(code)
    if number: print(gpu, name, number, sep="\t")
