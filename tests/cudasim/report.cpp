/* The report of the check mode, TG_SIM_REPORT=file: how each kernel uses memory.  check.cpp hands over each load and
   store of a kernel.  The lanes of a warp run one after the other here, so what a GPU does in one instruction of the
   warp is put together when the block ends: the accesses of one warp, at one place in the program, each lane being
   there for the same time. */
#include "internal.h"

#include <algorithm>
#include <cstdio>
#include <unordered_map>

namespace cudasim
{
namespace
{
struct Event {
    uint32_t warp, pc, turn; /* turn: how many times before this the thread has been there */
    bool write, shared;
    uintptr_t address;
    uint32_t bytes;
};

/* Bytes that several lanes of one instruction share count once. */
struct Kernel {
    std::string name;
    uint64_t launches, read, written; /* bytes of global memory */
    uint64_t sectors;                 /* of 32 bytes, which is what memory transfers at least */
    uint64_t conflicts;               /* turns that instructions wait because lanes want different words of a bank */
    uint32_t longest;                 /* how often one thread was at one place at most: its longest loop */
};

/* What a thread has said that it loads or stores next by one instruction, with CUDASIM_CHECK_ALIGNED: the compiler makes
   several accesses of it here. */
struct Pack {
    uintptr_t address;
    uint32_t bytes, pc;
    bool open[2]; /* for reading, for writing: not accessed yet */
};

std::unordered_map<const void *, Kernel> kernels;
std::unordered_map<std::string, Kernel> others;  /* products, copies and fills, by name */
std::vector<Event> events;                       /* of the block that runs */
std::unordered_map<uint64_t, uint32_t> visits;   /* thread and place -> times */
std::vector<Pack> packs;                         /* [threads of the block]: the last of each */
const uint32_t warp_size = 32, sector = 32, banks = 32, word = 4;

bool same_instruction(const Event &a, const Event &b)
{
    return a.warp == b.warp && a.pc == b.pc && a.turn == b.turn && a.write == b.write && a.shared == b.shared;
}

bool earlier(const Event &a, const Event &b)
{
    if (a.warp != b.warp) return a.warp < b.warp;
    if (a.pc != b.pc) return a.pc < b.pc;
    if (a.turn != b.turn) return a.turn < b.turn;
    if (a.write != b.write) return a.write < b.write;
    return a.address < b.address;
}

/* Global memory: `n` accesses of one instruction, by address. */
void add_global(Kernel &kernel, const Event *e, size_t n)
{
    uintptr_t covered = 0, sectors_end = 0; /* the first byte and the first sector that no access before has asked for */
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; ++i) {
        const uintptr_t end = e[i].address + e[i].bytes, first = e[i].address / sector, last = (end + sector - 1) / sector;
        bytes += end > covered ? end - std::max(e[i].address, covered) : 0;
        covered = std::max(covered, end);
        kernel.sectors += last > sectors_end ? last - std::max(first, sectors_end) : 0;
        sectors_end = std::max(sectors_end, last);
    }
    (e->write ? kernel.written : kernel.read) += bytes;
}

/* Shared memory: a turn serves a word of each bank.  The turns beyond those that as many words need at least are
   conflicts. */
void add_shared(Kernel &kernel, const Event *e, size_t n)
{
    uint32_t in_bank[banks] = {}, words = 0, most = 0;
    uintptr_t next = 0; /* the first word that no access before has asked for */
    for (size_t i = 0; i < n; ++i) {
        uintptr_t w = std::max(e[i].address / word, next);
        for (; w < (e[i].address + e[i].bytes + word - 1) / word; ++w, ++words)
            most = std::max(most, ++in_bank[w % banks]);
        next = std::max(next, w);
    }
    kernel.conflicts += most - std::min(most, (words + banks - 1) / banks);
}
} // namespace

void report_launch()
{
    Kernel &kernel = kernels[now.kernel_address];
    if (kernel.name.empty()) kernel.name = function_name(now.kernel_address);
    ++kernel.launches;
    packs.assign(now.threads, Pack());
}

void report_pack(const void *p, size_t bytes, uint32_t pc)
{
    packs[now.thread] = {reinterpret_cast<uintptr_t>(p), static_cast<uint32_t>(bytes), pc, {true, true}};
}

void report_access(uintptr_t address, size_t bytes, bool write, bool shared, uint32_t pc)
{
    Pack &pack = packs[now.thread];
    if (address >= pack.address && address + bytes <= pack.address + pack.bytes) {
        if (!pack.open[write]) return;
        pack.open[write] = false;
        address = pack.address, bytes = pack.bytes, pc = pack.pc;
    }
    const uint32_t turn = visits[uint64_t(now.thread) << 33 | uint64_t(write) << 32 | pc]++;
    events.push_back({now.thread / warp_size, pc, turn, write, shared, address, static_cast<uint32_t>(bytes)});
}

void report_block()
{
    Kernel &kernel = kernels[now.kernel_address];
    const uint64_t before = kernel.read + kernel.written;
    uint64_t accesses = 0;
    std::sort(events.begin(), events.end(), earlier);
    for (size_t i = 0, n; i < events.size(); i += n) {
        for (n = 1; i + n < events.size() && same_instruction(events[i], events[i + n]);) ++n;
        (events[i].shared ? add_shared : add_global)(kernel, &events[i], n);
        accesses += !events[i].shared;
        kernel.longest = std::max(kernel.longest, events[i].turn + 1);
    }
    add_to_total(CUDASIM_BYTES, kernel.read + kernel.written - before);
    add_to_total(CUDASIM_ACCESSES, accesses);
    events.clear();
    visits.clear();
}

void report_other(const std::string &name, uint64_t read, uint64_t written)
{
    Kernel &other = others[name];
    other.name = name;
    ++other.launches;
    other.read += read, other.written += written;
    other.sectors += (read + written + sector - 1) / sector;
    other.longest = 1;
}

/* sectors is how many are moved, as a part of the least that hold as many bytes: 1 is best. */
void report_end(const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file) return fail("TG_SIM_REPORT: cannot write %s", path);
    std::vector<const Kernel *> sorted;
    for (const auto &entry : kernels) sorted.push_back(&entry.second);
    for (const auto &entry : others) sorted.push_back(&entry.second);
    std::sort(sorted.begin(), sorted.end(), [](const Kernel *a, const Kernel *b) {
        const uint64_t x = a->read + a->written, y = b->read + b->written;
        return x != y ? x > y : a->name < b->name;
    });
    fprintf(file, "launches read written sectors conflicts loop kernel\n");
    for (const Kernel *k : sorted) {
        const double bytes = static_cast<double>(k->read + k->written);
        fprintf(file, "%llu %llu %llu %.3f %llu %u %s\n", static_cast<unsigned long long>(k->launches),
                static_cast<unsigned long long>(k->read), static_cast<unsigned long long>(k->written),
                bytes > 0 ? static_cast<double>(k->sectors) * sector / bytes : 0.0,
                static_cast<unsigned long long>(k->conflicts), k->longest, k->name.c_str());
    }
    fclose(file);
}
} // namespace cudasim
