/* The check mode, SIM=check.  clang++ -fsanitize=thread inserts a call of a function before each load and store of the
   .cu file.  The program is not linked with ThreadSanitizer, but with the functions at the end of this file, which call
   on_access.  It keeps a record, a Cell, of each four bytes of memory: who wrote and read them last, at which block,
   thread and barrier.  So it finds races between threads and between blocks, reads of memory that was never written,
   and accesses outside of an allocation or to the wrong kind of memory. */
#include "internal.h"

#include <algorithm>
#include <cstdlib>
#include <map>

extern "C" {
extern char __executable_start, end; /* of the program's image, by the linker */
extern char __start_cudasim_shared[] __attribute__((weak)), __stop_cudasim_shared[] __attribute__((weak));
}

namespace cudasim
{
const bool checking = true;

namespace
{
/* An access: by which thread of which launch, at which instruction, and how many barriers its block and how many warp
   collectives the thread had passed. */
struct Access {
    uint32_t launch, thread, barrier, collective, pc;
};
enum Readers : uint8_t { one_thread, one_warp, one_block, many_blocks };

/* The record of four bytes.  Masks have a bit per byte: accesses to different bytes are no race. */
struct Cell {
    Access writer, reader; /* the last ones */
    uint32_t block_serial; /* of shared memory: the block it belongs to */
    uint8_t written, read; /* the bytes of those two accesses */
    uint8_t initialised;
    Readers readers; /* whose reads since the last barrier, or collective of a warp, `reader` stands for */
    bool atomic;     /* the last write was atomic */
};

const uint32_t lanes = 32;
struct SharedCells {
    std::vector<Cell> of_static, of_dynamic;
};
SharedCells shared_cells;        /* of the block that runs */
std::vector<SharedCells> parked; /* of the blocks that wait for their turn */

uint32_t block_of(const Access &a) { return a.thread / now.threads; }
bool same_warp(const Access &a, const Access &b)
{
    return block_of(a) == block_of(b) && a.thread % now.threads / lanes == b.thread % now.threads / lanes;
}

/* Blocks of a launch tell each other what they have done by atomic operations on the same word.  A block that executes
   one publishes what its threads did before their last barrier, if each has called __threadfence since it last wrote,
   and what it has learnt itself; it learns what others have published there, and its threads know it after the next
   barrier. */
struct Lesson {
    uint32_t until, since; /* what the other block did before that barrier, what this one does after that barrier */
};
typedef std::map<uint32_t, Lesson> Lessons; /* by the number of the other block */
struct Messages {
    uint32_t launch;
    std::map<uint32_t, Lessons> learnt;      /* by block */
    std::map<uintptr_t, Lessons> published;  /* by the address of the word */
    std::vector<bool> unfenced;              /* by thread: it has written to global memory since its last fence */
    std::vector<uint32_t> unfenced_of;       /* how many such threads a block has */
} messages;

void set_unfenced(uint32_t thread, bool unfenced)
{
    const uint32_t block = thread / now.threads;
    if (messages.unfenced_of.size() <= block) {
        messages.unfenced_of.resize(block + 1);
        messages.unfenced.resize(static_cast<size_t>(block + 1) * now.threads);
    }
    if (messages.unfenced[thread] == unfenced) return;
    messages.unfenced[thread] = unfenced;
    messages.unfenced_of[block] += unfenced ? 1 : -1u;
}

void exchange(uintptr_t address, const Access &access)
{
    const uint32_t block = block_of(access);
    Lessons &own = messages.learnt[block], &there = messages.published[address];
    for (const auto &lesson : there) {
        const Lessons::iterator known = own.find(lesson.first);
        if (known == own.end() || known->second.until < lesson.second.until)
            own[lesson.first] = {lesson.second.until, access.barrier};
    }
    if (block < messages.unfenced_of.size() && messages.unfenced_of[block] > 0) return;
    for (const auto &lesson : own) {
        if (lesson.second.since < access.barrier) there[lesson.first] = lesson.second;
    }
    there[block] = {access.barrier, 0};
}

bool has_learnt(const Access &earlier, const Access &access)
{
    const Lessons &own = messages.learnt[block_of(access)];
    const Lessons::const_iterator lesson = own.find(block_of(earlier));
    return lesson != own.end() && earlier.barrier < lesson->second.until && access.barrier > lesson->second.since;
}

/* Whether an earlier access is certain to happen before this one.  Between blocks nothing is certain but what one has
   learnt.  An earlier launch is certain to have finished: if its stream is not ordered before this one, note_use has
   reported that. */
bool ordered(const Access &earlier, const Access &access)
{
    if (earlier.launch != access.launch || earlier.thread == access.thread) return true;
    if (block_of(earlier) != block_of(access)) return has_learnt(earlier, access);
    return earlier.barrier != access.barrier || (same_warp(earlier, access) && earlier.collective != access.collective);
}

/* The same for a write, after all the reads that the cell has summed up in one. */
bool readers_ordered(const Cell &cell, const Access &access)
{
    const Access &reader = cell.reader;
    if (reader.launch != access.launch) return true;
    if (cell.readers == many_blocks) return false;
    if (!ordered(reader, access)) return false;
    if (reader.barrier != access.barrier || cell.readers == one_thread) return true;
    /* No barrier since: only a collective of the same warp can order the reads of a warp. */
    return cell.readers == one_warp && same_warp(reader, access) && reader.collective != access.collective;
}

void remember_read(Cell &cell, const Access &access, uint8_t bytes)
{
    const Access &reader = cell.reader;
    if (reader.launch != access.launch || !(cell.read & bytes))
        cell.readers = one_thread;
    else if (cell.readers == many_blocks || block_of(reader) != block_of(access))
        cell.readers = many_blocks;
    else if (reader.barrier != access.barrier)
        cell.readers = one_thread;
    else if (cell.readers == one_block || !same_warp(reader, access))
        cell.readers = one_block;
    else if (reader.collective != access.collective) /* which has ordered the reads of the warp before this one */
        cell.readers = one_thread;
    else if (reader.thread != access.thread)
        cell.readers = one_warp;
    cell.reader = access;
    cell.read = bytes;
}

std::string thread_name(const Access &a)
{
    return "block " + std::to_string(block_of(a)) + " thread " + std::to_string(a.thread % now.threads);
}
std::string place(uint32_t pc) { return source_of(reinterpret_cast<uintptr_t>(&__executable_start) + pc); }

void report_race(const char *kind, const char *memory, uintptr_t address, const Access &earlier, const Access &access)
{
    fail("race: %s of %s memory %p: %s at %s, after %s at %s, with nothing between them", kind, memory,
         reinterpret_cast<void *>(address), thread_name(access).c_str(), place(access.pc).c_str(),
         thread_name(earlier).c_str(), place(earlier.pc).c_str());
}

Cell *cells_of(const Allocation &a)
{
    Allocation &owner = const_cast<Allocation &>(a);
    if (!owner.shadow) owner.shadow = calloc((a.bytes + 3) / 4 + 1, sizeof(Cell));
    if (!owner.shadow) fail("no memory for the shadow of an allocation of %zu bytes", a.bytes);
    return static_cast<Cell *>(owner.shadow);
}

/* The allocation that a kernel accesses; reports an error and returns NULL if it must not. */
Allocation *global_target(uintptr_t address, size_t bytes, bool write, uint32_t pc)
{
    static Allocation *recent[8]; /* a kernel has some operands; allocations stay in the list when they are freed */
    static unsigned next;
    Allocation *a = nullptr;
    for (Allocation *r : recent)
        if (r && address - reinterpret_cast<uintptr_t>(r->data) < r->bytes) a = r;
    if (!a) a = recent[next++ % 8] = find_allocation(address);
    const char *p = reinterpret_cast<const char *>(address);
    if (!a) {
        fail("kernel touches unallocated device memory %p at %s", static_cast<const void *>(p), place(pc).c_str());
    } else if (a->state != Allocation::live) {
        fail("kernel touches device memory that is %s: allocation %d of %zu bytes, at %s",
             a->state == Allocation::freed ? "freed" : "not yet allocated (in stream order)", a->id, a->bytes,
             place(pc).c_str());
    } else if (p < a->data || p + bytes > a->data + a->bytes) {
        fail("kernel %s out of bounds at %s: %zu bytes at offset %td of allocation %d, which has %zu",
             write ? "write" : "read", place(pc).c_str(), bytes, p - a->data, a->id, a->bytes);
    } else if (!may_reach(now.device, a->device)) {
        fail("kernel on device %d touches memory of device %d, allocation %d, at %s", now.device, a->device, a->id,
             place(pc).c_str());
    } else {
        note_use(*a, write);
        return a;
    }
    return nullptr;
}

void on_access(uintptr_t address, size_t bytes, bool write, bool atomic, void *caller)
{
    if (!now.kernel || !executing || on_fiber_stack(address)) return; /* or host code of another thread */
    uintptr_t image = reinterpret_cast<uintptr_t>(&__executable_start);
    uint32_t pc = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(caller) - image - 1);
    uintptr_t shared_begin = reinterpret_cast<uintptr_t>(__start_cudasim_shared);
    uintptr_t shared_end = reinterpret_cast<uintptr_t>(__stop_cudasim_shared);

    Cell *cell;
    const char *memory = "shared";
    bool shared = true;
    if (address >= shared_begin && address < shared_end) {
        cell = &shared_cells.of_static[address / 4 - shared_begin / 4];
    } else if (address >= now.dynamic_begin && address < now.dynamic_end + 256) {
        if (address + bytes > now.dynamic_end) {
            fail("dynamic shared memory out of bounds at %s: offset %zu of %zu bytes", place(pc).c_str(),
                 static_cast<size_t>(address - now.dynamic_begin),
                 static_cast<size_t>(now.dynamic_end - now.dynamic_begin));
            return;
        }
        cell = &shared_cells.of_dynamic[(address - now.dynamic_begin) / 4];
    } else if (arena_of(address) >= 0) {
        Allocation *a = global_target(address, bytes, write, pc);
        if (!a) return;
        shared = false;
        memory = "global";
        cell = cells_of(*a) + (address - reinterpret_cast<uintptr_t>(a->data)) / 4;
    } else if (address >= image && address < reinterpret_cast<uintptr_t>(&end)) {
        if (write) fail("kernel writes a global variable at %s", place(pc).c_str());
        return; /* reading is correct: __constant__ tables */
    } else {
        if (!is_pinned(reinterpret_cast<const void *>(address), bytes))
            fail("kernel touches host memory %p at %s", reinterpret_cast<void *>(address), place(pc).c_str());
        return;
    }

    if (reporting) report_access(address, bytes, write, shared, pc);
    uint32_t thread = static_cast<uint32_t>(now.block * now.threads + now.thread);
    Access access = {now.launch, thread, now.barrier_epoch, now.warp_epoch[now.thread], pc};
    if (messages.launch != now.launch) messages = Messages(), messages.launch = now.launch;
    if (write && !shared && !atomic) set_unfenced(thread, true);
    if (atomic && !shared) exchange(address, access);
    for (size_t done = 0; done < bytes; ++cell) {
        size_t first = (address + done) & 3, count = std::min<size_t>(4 - first, bytes - done);
        uint8_t mask = static_cast<uint8_t>(((1u << count) - 1) << first);
        uintptr_t here = address + done;
        done += count;
        if (shared && cell->block_serial != now.block_serial) { /* shared memory is new for each block */
            *cell = Cell();
            cell->block_serial = now.block_serial;
        }
        if ((!write || atomic) && (cell->initialised & mask) != mask)
            fail("kernel reads uninitialised %s memory %p at %s", memory, reinterpret_cast<void *>(here),
                 place(pc).c_str());
        if ((cell->written & mask) && !(atomic && cell->atomic) && !ordered(cell->writer, access))
            report_race(write ? "write after write" : "read after write", memory, here, cell->writer, access);
        if (!write) {
            remember_read(*cell, access, mask);
            continue;
        }
        if ((cell->read & mask) && !readers_ordered(*cell, access))
            report_race("write after read", memory, here, cell->reader, access);
        cell->writer = access;
        cell->written = mask;
        cell->atomic = atomic;
        cell->initialised |= mask;
    }
}
} // namespace

void check_launch()
{
    size_t shared_bytes = static_cast<size_t>(__stop_cudasim_shared - __start_cudasim_shared);
    shared_cells.of_static.resize(__start_cudasim_shared ? shared_bytes / 4 + 2 : 0);
    shared_cells.of_dynamic.resize((now.dynamic_end - now.dynamic_begin) / 4 + 1);
}

void check_turn(size_t i)
{
    if (i >= parked.size()) parked.resize(i + 1);
    std::swap(shared_cells, parked[i]);
}

/* Sets the bit of each byte of a range: as in the source of a copy, or, without one, to 1.  The range may begin and end
   inside of a cell. */
static void set_initialised(const Allocation &a, const void *p, size_t bytes, const Allocation *source,
                            size_t source_offset)
{
    size_t offset = static_cast<size_t>(static_cast<const char *>(p) - a.data);
    Cell *cells = cells_of(a), *from = source ? cells_of(*source) : nullptr;
    for (size_t i = 0; i < bytes;) {
        size_t to_byte = offset + i, from_byte = source_offset + i;
        if (to_byte % 4 == 0 && bytes - i >= 4 && (!from || from_byte % 4 == 0)) {
            cells[to_byte / 4].initialised = from ? from[from_byte / 4].initialised : 15;
            i += 4;
            continue;
        }
        uint8_t bit = static_cast<uint8_t>(1 << to_byte % 4);
        bool is = !from || (from[from_byte / 4].initialised >> from_byte % 4 & 1);
        uint8_t &initialised = cells[to_byte / 4].initialised;
        initialised = static_cast<uint8_t>(is ? initialised | bit : initialised & ~bit);
        ++i;
    }
}

void check_written(const Allocation &a, const void *p, size_t bytes) { set_initialised(a, p, bytes, nullptr, 0); }

/* A copy of memory that was never written counts as not written; memory of the host counts as written. */
void check_copied(const void *to, const void *from, size_t bytes)
{
    Allocation *a = find_allocation(reinterpret_cast<uintptr_t>(to)),
               *source = find_allocation(reinterpret_cast<uintptr_t>(from));
    size_t offset = source ? static_cast<size_t>(static_cast<const char *>(from) - source->data) : 0;
    if (a) set_initialised(*a, to, bytes, source, offset);
}

bool check_initialised(const Allocation &a, const void *p, size_t bytes)
{
    size_t offset = static_cast<size_t>(static_cast<const char *>(p) - a.data);
    const Cell *cells = cells_of(a);
    for (size_t i = offset; i < offset + bytes; ++i)
        if (!(cells[i / 4].initialised >> i % 4 & 1)) return false;
    return true;
}

void check_freed(Allocation &a)
{
    free(a.shadow);
    a.shadow = nullptr;
}

void fence()
{
    if (messages.launch != now.launch) return; /* nothing is written yet */
    set_unfenced(static_cast<uint32_t>(now.block * now.threads + now.thread), false);
}

void atomic_access(const void *p, size_t bytes, void *caller)
{
    on_access(reinterpret_cast<uintptr_t>(p), bytes, true, true, caller);
}
} // namespace cudasim

/* The functions that the instrumented code calls. */
using cudasim::on_access;
#define ADDRESS(p) reinterpret_cast<uintptr_t>(p)
#define CALLER __builtin_return_address(0)
#define ACCESSES(size)                                                                               \
    void __tsan_read##size(void *p) { on_access(ADDRESS(p), size, false, false, CALLER); }           \
    void __tsan_write##size(void *p) { on_access(ADDRESS(p), size, true, false, CALLER); }           \
    void __tsan_unaligned_read##size(void *p) { on_access(ADDRESS(p), size, false, false, CALLER); } \
    void __tsan_unaligned_write##size(void *p) { on_access(ADDRESS(p), size, true, false, CALLER); } \
    void __tsan_read_write##size(void *p)                                                            \
    {                                                                                                \
        on_access(ADDRESS(p), size, false, false, CALLER);                                           \
        on_access(ADDRESS(p), size, true, false, CALLER);                                            \
    }                                                                                                \
    void __tsan_unaligned_read_write##size(void *p) { __tsan_read_write##size(p); }

extern "C" {
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
void __tsan_init(void) {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit(void) {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}
void __tsan_read_range(void *p, size_t n) { on_access(ADDRESS(p), n, false, false, CALLER); }
void __tsan_write_range(void *p, size_t n) { on_access(ADDRESS(p), n, true, false, CALLER); }
void *__tsan_memcpy(void *to, const void *from, size_t n)
{
    on_access(ADDRESS(from), n, false, false, CALLER);
    on_access(ADDRESS(to), n, true, false, CALLER);
    return memcpy(to, from, n);
}
void *__tsan_memmove(void *to, const void *from, size_t n)
{
    on_access(ADDRESS(from), n, false, false, CALLER);
    on_access(ADDRESS(to), n, true, false, CALLER);
    return memmove(to, from, n);
}
void *__tsan_memset(void *to, int value, size_t n)
{
    on_access(ADDRESS(to), n, true, false, CALLER);
    return memset(to, value, n);
}
}
