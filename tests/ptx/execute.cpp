/* Runs a launch: blocks, warps, instructions. */
#include "instructions.h"
#include "ptx.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

namespace ptx
{
Totals totals;

/* ---- what the rules of the table use ---- */

template <class To, class From> static inline To bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
static inline f32 flush(f32 x) { return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0, x) : x; }
static inline f64 upper_half(f64 x)
{
    if (__builtin_fabs(x) < 0x1p-1022) return __builtin_copysign(0, x);
    return bits<f64>(bits<u64>(x) >> 32 << 32);
}
/* The smaller one; of a number and NaN the number; -0 is below 0. */
template <class T> static inline T least(T a, T b)
{
    if (a != a) return b;
    if (b != b) return a;
    if (a == b) return std::signbit(a) ? a : b;
    return a < b ? a : b;
}
/* product + c, rounded once, down or towards zero.  The product is exact, and so is the error of the sum. */
static f32 sum_towards(bool zero, f64 product, f64 c)
{
    const f64 sum = product + c, part = sum - product, error = (product - (sum - part)) + (c - part);
    f32 near = static_cast<f32>(sum);
    if (!std::isfinite(sum)) return near;
    const f64 over = (static_cast<f64>(near) - sum) - error; /* of what was rounded above the exact sum */
    if (zero && sum < 0) return over < 0 ? std::nextafterf(near, INFINITY) : near;
    return over > 0 ? std::nextafterf(near, -INFINITY) : near;
}
static inline f32 float_of_half(u16 h)
{
    const u32 exponent = h >> 10 & 31, fraction = h & 1023;
    const f32 size = exponent == 31 ? (fraction ? NAN : INFINITY)
                     : exponent     ? bits<f32>((exponent + 112) << 23 | fraction << 13)
                                    : static_cast<f32>(fraction) * 0x1p-24f;
    return h >> 15 ? -size : size;
}
static inline f32 float_of_bfloat(u16 b) { return bits<f32>(u32(b) << 16); }
template <class T> static u16 half_of(T x)
{
    if (x != x) return 0x7fff;
    const u16 sign = std::signbit(x) ? 0x8000 : 0;
    const f64 size = std::fabs(static_cast<f64>(x));
    if (size >= 65520) return sign | 0x7c00;
    if (size < 0x1p-14) return static_cast<u16>(sign | static_cast<u16>(std::nearbyint(size * 0x1p24)));
    const int exponent = std::ilogb(size);
    const f64 fraction = std::nearbyint(std::ldexp(size, 10 - exponent)); /* 1024..2048 */
    return static_cast<u16>(sign | ((exponent + 14) * 1024 + static_cast<int>(fraction)));
}
static inline u16 bfloat_of(f32 x)
{
    if (x != x) return 0x7fff;
    const u32 b = bits<u32>(x), below = b & 0xffff, even = b >> 16 & 1;
    return static_cast<u16>((b >> 16) + (below > 0x8000 || (below == 0x8000 && even)));
}
template <class To, class From> static inline To whole(From x)
{
    if (x != x) return 0;
    const From limit = std::ldexp(From(1), sizeof(To) * 8 - (std::is_signed<To>::value ? 1 : 0));
    if (x >= limit) return std::numeric_limits<To>::max();
    if (x < (std::is_signed<To>::value ? -limit : 0)) return std::numeric_limits<To>::min();
    return static_cast<To>(x);
}
static u32 reversed(u32 a)
{
    u32 r = 0;
    for (int i = 0; i < 32; ++i) r |= (a >> i & 1) << (31 - i);
    return r;
}
/* Four bytes of the eight of b and a, which the digits of c choose; digit 8 and above: the sign of that byte. */
static u32 permuted(u32 a, u32 b, u32 c)
{
    const u64 both = u64(b) << 32 | a;
    u32 r = 0;
    for (int i = 0; i < 4; ++i) {
        const u32 digit = c >> 4 * i & 15;
        u32 byte = static_cast<u32>(both >> 8 * (digit & 7)) & 255;
        if (digit & 8) byte = byte & 128 ? 255 : 0;
        r |= byte << 8 * i;
    }
    return r;
}

/* ---- the state of a launch ---- */

/* An asynchronous copy that a lane has begun. */
struct Copy {
    u32 lane, group, to, bytes, filled; /* `bytes` are read, up to `filled` are zero */
    u64 from;
};

/* What wgmma has not yet written to a register, of 32 lanes; and what it reads from shared memory until it is done. */
struct Sums {
    u32 group;
    f32 of[lanes];
};
struct Read {
    u32 group, address;
    char bytes[16];
};

struct Warp {
    std::vector<char> memory; /* of the registers */
    char *registers;
    std::vector<char> local, local_written;
    u32 alive, waiting, held; /* masks: not returned; at a barrier; at a warp instruction */
    u32 carry;
    u32 epoch; /* how many times bar.warp.sync has ordered its lanes */
    u32 pc[lanes], groups[lanes];
    std::vector<Copy> copies;
    const Instruction *reduction; /* the barrier that gives its lanes a number */
    u32 number;
    /* wgmma: registers that it will write, those that it reads and in which group, those that have been accessed since
       wgmma.fence, by operand; what it reads; the number of the group; a hash of all of them, for the four warps must
       execute the same */
    std::map<Operand, Sums> sums;
    std::map<Operand, u32> inputs;
    std::vector<u8> accessed;
    std::vector<Read> reads;
    u32 group;
    u64 products;
    u32 fences[lanes]; /* of the asynchronous proxy */
};

/* Who has accessed some bytes of shared memory: a thread, several of the warp w (1024 + w) or several warps. */
struct Access {
    u32 barrier = 0, epoch = 0, thread = 0;
};
struct Cell {
    Access writer, reader;
    u32 fences = 0;      /* which the writer had executed when it wrote */
    bool atomic = false; /* the write */
};
static const u32 several = 1024, several_warps = 2047;

class Machine
{
  public:
    Machine(const Module &m, const Kernel &k, const Launch &l) : module(m), kernel(k), launch(l)
    {
        threads = l.block[0] * l.block[1] * l.block[2];
        if (warps.size() < (threads + lanes - 1) / lanes) warps.resize((threads + lanes - 1) / lanes);
        count = (threads + lanes - 1) / lanes;
        shared.resize(k.shared_bytes + l.dynamic_bytes + 64);
        cells.resize((k.shared_bytes + l.dynamic_bytes) / k.granule + 1);
        ranges.resize(k.code.size() + 1);
        random_state = l.seed * 0x9e3779b97f4a7c15u + 1;
        for (u32 i = 0; i < count; ++i) {
            Warp &w = warps[i];
            if (w.memory.size() < k.register_bytes + 128) w.memory.resize(k.register_bytes + 128);
            w.registers = w.memory.data() + (64 - reinterpret_cast<uintptr_t>(w.memory.data()) % 64) % 64;
            memset(w.registers, 0xff, k.register_bytes); /* NaN */
            w.local.resize(size_t(k.local_bytes) * lanes);
            w.local_written.resize(size_t(k.local_bytes) * lanes);
        }
    }
    void run();

  private:
    u64 random()
    {
        random_state ^= random_state << 13;
        random_state ^= random_state >> 7;
        random_state ^= random_state << 17;
        return random_state;
    }
    void begin_block(u64 number);
    void end_barrier();
    void run_warp(Warp &w, u64 steps);
    [[noreturn]] void fault(const std::string &what, u32 lane = lanes);
    [[noreturn]] void stuck();

    char *at(Operand o) { return o >= 0 ? warp->registers + o : const_cast<char *>(kernel.constants.data()) + ~o; }
    template <class T> T *values(Operand o) { return reinterpret_cast<T *>(at(o)); }
    u32 predicate(Operand o) { return *values<u32>(o); }
    void set_predicate(Operand o, u32 mask, u32 value)
    {
        u32 *p = values<u32>(o);
        *p = (*p & ~mask) | (value & mask);
    }
    u64 address(const Instruction &x, u32 lane)
    {
        const u64 base = x.from_bytes == 8 ? values<u64>(x.a)[lane] : values<u32>(x.a)[lane];
        return base + static_cast<u64>(x.number);
    }

    char *place(Space space, u64 address, u32 bytes, bool write, u32 lane, bool atomic = false);
    char *quick_place(const Instruction &x, u64 address, u32 bytes, bool write, u32 lane);
    char *shared_place(u64 address, u32 bytes, bool write, u32 lane, bool atomic);
    char *local_place(u64 address, u32 bytes, bool write, u32 lane);
    char *global_place(const Range &r, u64 address, u32 bytes, bool write, u32 lane);
    void load(const Instruction &x, u32 mask);
    void store(const Instruction &x, u32 mask);
    void atomic(const Instruction &x, u32 mask);
    void move(const Instruction &x, u32 mask);
    void insert_bits(const Instruction &x, u32 mask);
    void copy_locals(const Instruction &x, u32 mask);
    void shuffle(const Instruction &x, u32 mask);
    void load_matrices(const Instruction &x, u32 mask);
    void multiply(const Instruction &x);
    void multiply_group(const Instruction &x);
    void read_tile(const Instruction &x, Operand descriptor, bool transposed, u32 first, u32 rows, f32 *tile);
    void end_products(u32 left);
    void access_registers(const Instruction &x);
    void compare_warpgroups();
    void begin_copies(const Instruction &x, u32 mask);
    void end_copies(u32 mask, u32 left);
    bool gather(const Instruction &x, u32 pc, u32 *mask);
    void collective(const Instruction &x, u32 mask);
    void compute(const Instruction &x, u32 mask);
    bool control(const Instruction &x, u32 mask, u32 group, u32 pc, u32 *next);
    bool together(const Instruction &x, u32 mask, u32 group, u32 pc);
    bool ordered(const Access &earlier, u32 thread) const;

    const Module &module;
    const Kernel &kernel;
    const Launch &launch;
    u32 threads;
    static std::vector<Warp> warps; /* at least `count`; kept, because their memory is large */
    u32 count;
    Warp *warp = nullptr; /* the one that runs */
    const Instruction *now = nullptr;
    std::vector<char> shared;
    std::vector<Cell> cells;
    std::vector<Range> ranges; /* for each instruction: the allocation that it accessed last */
    u32 block[3] = {0, 0, 0};
    u32 barrier = 0, first_barrier = 0; /* numbers of intervals between barriers, in all blocks */
    u32 sum = 0;                        /* of a barrier that counts */
    u64 random_state;
};

std::vector<Warp> Machine::warps;

void Machine::fault(const std::string &what, u32 lane)
{
    std::string text = what + "\n  in " + kernel.name + ", block (" + std::to_string(block[0]) + "," +
                       std::to_string(block[1]) + "," + std::to_string(block[2]) + ")";
    if (warp && lane < lanes) text += ", thread " + std::to_string((warp - warps.data()) * lanes + lane);
    if (warp && lane >= lanes) text += ", warp " + std::to_string(warp - warps.data());
    if (now) {
        size_t begin = 0;
        for (u32 line = 1; line < now->line && begin != std::string::npos; ++line)
            begin = module.text().find('\n', begin) + 1;
        std::string statement = module.text().substr(begin, module.text().find('\n', begin) - begin);
        std::replace(statement.begin(), statement.end(), '\t', ' ');
        text += "\n  line " + std::to_string(now->line) + ":" + statement;
    }
    throw Fault{text};
}

/* ---- memory ---- */

bool Machine::ordered(const Access &earlier, u32 thread) const
{
    if (earlier.barrier != barrier || earlier.thread == thread) return true;
    const u32 its_warp = earlier.thread < several ? earlier.thread / lanes : earlier.thread - several;
    return its_warp == thread / lanes && earlier.epoch != warp->epoch;
}

static std::string hex(u64 x)
{
    char text[32];
    snprintf(text, sizeof text, "%#llx", static_cast<unsigned long long>(x));
    return text;
}

char *Machine::shared_place(u64 address, u32 bytes, bool write, u32 lane, bool atomic)
{
    const u64 offset = address - shared_begin;
    bool inside = false;
    for (const SharedVariable &v : kernel.shared) {
        const u32 size = v.bytes ? v.bytes : launch.dynamic_bytes;
        inside = inside || (offset >= v.at && offset + bytes <= u64(v.at) + size);
    }
    if (!inside) fault("shared memory out of bounds: " + std::to_string(bytes) + " bytes at " + hex(address), lane);
    const u32 thread = static_cast<u32>(warp - warps.data()) * lanes + lane;
    const Access access = {barrier, warp->epoch, thread};
    for (u64 c = offset / kernel.granule; c <= (offset + bytes - 1) / kernel.granule; ++c) {
        Cell &cell = cells[c];
        Access &reader = cell.reader;
        if ((!write || atomic) && cell.writer.barrier < first_barrier)
            fault("shared memory is read before it was written, at " + hex(address), lane);
        if (!(atomic && cell.atomic) && !ordered(cell.writer, thread))
            fault("race: shared memory at " + hex(address) + " was written by thread " +
                      std::to_string(cell.writer.thread) + ", with nothing between the two",
                  lane);
        if (write) {
            if (!atomic && !ordered(reader, thread))
                fault("race: shared memory at " + hex(address) + " was read by thread " +
                          std::to_string(reader.thread) +
                          " (1024 and above: several of a warp), with nothing between the two",
                      lane);
            cell.writer = access;
            cell.fences = warp->fences[lane];
            cell.atomic = atomic;
        } else if (reader.barrier != barrier) {
            reader = access;
        } else if (reader.thread != thread) {
            const u32 its_warp = reader.thread < several ? reader.thread / lanes : reader.thread - several;
            reader.thread = its_warp == thread / lanes ? several + its_warp : several_warps;
            reader.epoch = access.epoch;
        } else {
            reader.epoch = access.epoch;
        }
    }
    return shared.data() + offset;
}

char *Machine::local_place(u64 address, u32 bytes, bool write, u32 lane)
{
    const u64 offset = address - local_begin;
    if (offset + bytes > kernel.local_bytes) fault("local memory out of bounds: " + hex(address), lane);
    const size_t at = size_t(kernel.local_bytes) * lane + offset;
    for (u32 i = 0; i < bytes; ++i) {
        if (write) warp->local_written[at + i] = 1;
        else if (!warp->local_written[at + i]) fault("local memory is read before it was written", lane);
    }
    return &warp->local[at];
}

/* The bytes, which lie in r, are read or written. */
inline char *Machine::global_place(const Range &r, u64 address, u32 bytes, bool write, u32 lane)
{
    uint8_t *written = r.written ? r.written + (address - r.begin) : nullptr;
    if (written && write) memset(written, 1, bytes);
    if (written && !write && memchr(written, 0, bytes))
        fault("global memory is read before it was written, at " + hex(address), lane);
    return reinterpret_cast<char *>(static_cast<uintptr_t>(address));
}

/* Where the bytes are, after all checks. */
char *Machine::place(Space space, u64 address, u32 bytes, bool write, u32 lane, bool atomic)
{
    if (address % bytes) fault("misaligned access of " + std::to_string(bytes) + " bytes to " + hex(address), lane);
    if (space == Space::generic) {
        if (address >= parameter_begin) space = Space::param;
        else if (address >= local_begin) space = Space::local;
        else if (address >= generic_shared) space = Space::shared, address -= generic_shared;
        else space = Space::global;
    }
    if (space == Space::shared) return shared_place(address, bytes, write, lane, atomic);
    if (space == Space::local) return local_place(address, bytes, write, lane);
    if (space == Space::param) {
        const u64 offset = address - parameter_begin;
        if (write || offset + bytes > kernel.parameter_bytes) fault("parameters out of bounds", lane);
        return const_cast<char *>(static_cast<const char *>(launch.parameters)) + offset;
    }
    Range &r = ranges[static_cast<size_t>(now - kernel.code.data())];
    if (address - r.begin >= r.end - r.begin || r.end - address < bytes) {
        r = Range();
        for (const auto &t : module.tables()) {
            const u64 begin = reinterpret_cast<uintptr_t>(t->bytes.data());
            if (!write && address >= begin && address + bytes <= begin + t->bytes.size())
                r = {begin, begin + t->bytes.size(), nullptr};
        }
        if (!r.end && space == Space::constant) fault("constant memory out of bounds: " + hex(address), lane);
        try {
            if (!r.end) r = launch.memory->reach(address, bytes, write);
        } catch (const Fault &f) {
            fault(f.text, lane);
        }
    }
    if (atomic) global_place(r, address, bytes, false, lane);
    return global_place(r, address, bytes, write, lane);
}

#define EACH_LANE(lane, mask)                                 \
    for (u32 left_ = (mask), lane; left_; left_ &= left_ - 1) \
        if ((lane = static_cast<u32>(__builtin_ctz(left_))), true)

template <class T> static inline void put(char *to, u32 width, u32 lane, T value)
{
    if (width == 4) reinterpret_cast<u32 *>(to)[lane] = static_cast<u32>(value);
    else if (width == 8) reinterpret_cast<u64 *>(to)[lane] = static_cast<u64>(value);
    else reinterpret_cast<u16 *>(to)[lane] = static_cast<u16>(value);
}
static inline u64 get(const char *from, u32 width, u32 lane)
{
    if (width == 4) return reinterpret_cast<const u32 *>(from)[lane];
    if (width == 8) return reinterpret_cast<const u64 *>(from)[lane];
    return reinterpret_cast<const u16 *>(from)[lane];
}

/* A number of so many bytes in memory, with its sign if it is to be extended. */
static inline u64 fetch(const char *from, u32 bytes, bool sign)
{
    switch (bytes) {
    case 1: return sign ? static_cast<u64>(s64(bits<s8>(*from))) : static_cast<u8>(*from);
    case 2: {
        u16 v;
        memcpy(&v, from, 2);
        return sign ? static_cast<u64>(s64(static_cast<s16>(v))) : v;
    }
    case 4: {
        u32 v;
        memcpy(&v, from, 4);
        return sign ? static_cast<u64>(s64(static_cast<s32>(v))) : v;
    }
    default: {
        u64 v;
        memcpy(&v, from, 8);
        return v;
    }
    }
}
static inline void keep(char *to, u32 bytes, u64 v)
{
    switch (bytes) {
    case 1: memcpy(to, &v, 1); break;
    case 2: memcpy(to, &v, 2); break;
    case 4: memcpy(to, &v, 4); break;
    default: memcpy(to, &v, 8);
    }
}

/* As place; most accesses are to the allocation that the instruction accessed before. */
inline char *Machine::quick_place(const Instruction &x, u64 address, u32 bytes, bool write, u32 lane)
{
    const Range &r = ranges[static_cast<size_t>(&x - kernel.code.data())];
    if (x.space == Space::global && address >= r.begin && address + bytes <= r.end && !(address & (bytes - 1)))
        return global_place(r, address, bytes, write, lane);
    if (x.space == Space::param && address - parameter_begin + bytes <= kernel.parameter_bytes &&
        !(address & (bytes - 1)) && !write)
        return const_cast<char *>(static_cast<const char *>(launch.parameters)) + (address - parameter_begin);
    return place(x.space, address, bytes, write, lane);
}

void Machine::load(const Instruction &x, u32 mask)
{
    const u32 bytes = x.bytes, count = x.count, width = static_cast<u32>(x.b);
    const Operand *list = &kernel.lists[x.list];
    if (x.space == Space::param && x.a < 0) { /* all lanes read the same */
        const u32 first = static_cast<u32>(__builtin_ctz(mask));
        const char *from = place(x.space, address(x, first), bytes * count, false, first);
        for (u32 i = 0; i < count; ++i, from += bytes) {
            const u64 v = fetch(from, bytes, x.kind);
            char *d = at(list[i]);
            EACH_LANE (l, mask) put(d, width, l, v);
        }
        return;
    }
    EACH_LANE (l, mask) {
        const char *from = quick_place(x, address(x, l), bytes * count, false, l);
        for (u32 i = 0; i < count; ++i, from += bytes) put(at(list[i]), width, l, fetch(from, bytes, x.kind));
    }
}

void Machine::store(const Instruction &x, u32 mask)
{
    const u32 bytes = x.bytes, count = x.count, width = static_cast<u32>(x.b);
    const Operand *list = &kernel.lists[x.list];
    EACH_LANE (l, mask) {
        char *to = quick_place(x, address(x, l), bytes * count, true, l);
        for (u32 i = 0; i < count; ++i, to += bytes) keep(to, bytes, get(at(list[i]), width, l));
    }
}

template <class T> static T changed(u32 operation, T old, T b, T c)
{
    switch (operation) {
    case 0: return old + b;
    case 1: return b < old ? b : old;
    case 2: return b > old ? b : old;
    case 3: return b;
    case 7: return old == b ? c : old;
    default: return old;
    }
}
static u64 changed_bits(u32 operation, u64 old, u64 b)
{
    return operation == 4 ? old & b : operation == 5 ? old | b : old ^ b;
}

/* The lanes come one after another, in a random order. */
void Machine::atomic(const Instruction &x, u32 mask)
{
    u32 order[lanes], n = 0;
    EACH_LANE (l, mask) order[n++] = l;
    for (u32 i = n; i > 1; --i) std::swap(order[i - 1], order[random() % i]);
    for (u32 i = 0; i < n; ++i) {
        const u32 l = order[i];
        char *to = place(x.space, address(x, l), x.bytes, true, l, true);
        u64 old = 0, c = x.c == no_operand ? 0 : get(at(x.c), x.bytes, l), next;
        const u64 b = get(at(x.b), x.bytes, l);
        memcpy(&old, to, x.bytes);
        const char type = static_cast<char>(x.count);
        if (x.kind >= 4 && x.kind <= 6) next = changed_bits(x.kind, old, b);
        else if (type == 'f' && x.bytes == 4)
            next = bits<u32>(changed(x.kind, bits<f32>(u32(old)), bits<f32>(u32(b)), bits<f32>(u32(c))));
        else if (type == 'f') next = bits<u64>(changed(x.kind, bits<f64>(old), bits<f64>(b), bits<f64>(c)));
        else if (type == 's' && x.bytes == 4) next = static_cast<u32>(changed(x.kind, s32(old), s32(b), s32(c)));
        else if (type == 's') next = static_cast<u64>(changed(x.kind, s64(old), s64(b), s64(c)));
        else next = changed(x.kind, old, b, c);
        memcpy(to, &next, x.bytes);
        put(at(x.d), x.bytes, l, old);
    }
}

void Machine::move(const Instruction &x, u32 mask)
{
    if (!x.kind) {
        const char *from = at(x.a);
        char *to = at(x.d);
        if (mask == ~0u) memmove(to, from, x.bytes * lanes);
        else
            EACH_LANE (l, mask) put(to, x.bytes, l, get(from, x.bytes, l));
        return;
    }
    const u32 part = x.bytes / x.count;
    EACH_LANE (l, mask) {
        u64 v = 0;
        if (x.kind == 2) {
            for (u32 i = 0; i < x.count; ++i) v |= get(at(kernel.lists[x.list + i]), part, l) << 8 * part * i;
            put(at(x.d), x.bytes, l, v);
        } else {
            v = get(at(x.a), x.bytes, l);
            for (u32 i = 0; i < x.count; ++i) put(at(kernel.lists[x.list + i]), part, l, v >> 8 * part * i);
        }
    }
}

void Machine::insert_bits(const Instruction &x, u32 mask)
{
    EACH_LANE (l, mask) {
        const u32 begin = values<u32>(kernel.lists[x.list])[l] & 255, n = values<u32>(x.c)[l] & 255;
        const u64 field = begin >= 64 ? 0 : (n >= 64 ? ~u64(0) : (u64(1) << n) - 1) << begin;
        const u64 a = begin >= 64 ? 0 : get(at(x.a), x.bytes, l) << begin, b = get(at(x.b), x.bytes, l);
        put(at(x.d), x.bytes, l, (b & ~field) | (a & field));
    }
}

/* The arguments of a call, or its result: from, to and number of bytes in local memory. */
void Machine::copy_locals(const Instruction &x, u32 mask)
{
    EACH_LANE (l, mask)
        for (u32 i = 0; i < x.count; ++i) {
            const Operand *three = &kernel.lists[x.list + 3 * i];
            const u32 bytes = static_cast<u32>(three[2]);
            const char *from = local_place(local_begin + static_cast<u64>(three[0]), bytes, false, l);
            memcpy(local_place(local_begin + static_cast<u64>(three[1]), bytes, true, l), from, bytes);
        }
}

/* ---- warps ---- */

/* b: the lane, or the distance; c: bits 0 to 4 the last lane, 8 to 12 the bits that lanes of a segment have in common
 */
void Machine::shuffle(const Instruction &x, u32 mask)
{
    const u32 *a = values<u32>(x.a), *b = values<u32>(x.b), *c = values<u32>(x.c);
    u32 result[lanes], inside = 0;
    EACH_LANE (l, mask) {
        const u32 clamp = c[l] & 31, segment = c[l] >> 8 & 31, last = (l & segment) | (clamp & ~segment);
        const u32 first = l & segment;
        u32 from;
        bool in;
        switch (x.kind) {
        case 0: from = l ^ (b[l] & 31), in = from <= last; break;
        case 1: from = l - (b[l] & 31), in = static_cast<s32>(from) >= static_cast<s32>(last); break;
        case 2: from = l + (b[l] & 31), in = from <= last; break;
        default: from = first | (b[l] & ~segment & 31), in = from <= last; break;
        }
        if (!in) from = l;
        if (!(mask >> (from & 31) & 1))
            fault("a shuffle reads lane " + std::to_string(from) + ", which takes no part", l);
        result[l] = a[from & 31];
        if (in) inside |= 1u << l;
    }
    EACH_LANE (l, mask) values<u32>(x.d)[l] = result[l];
    if (kernel.lists[x.list] != no_operand) set_predicate(kernel.lists[x.list], mask, inside);
}

/* Lane 8 m + r gives the address of row r of the matrix m, of 8 numbers of 16 bits; lane 4 g + t gets the numbers 2t
   and 2t + 1 of row g or, transposed, of column g. */
void Machine::load_matrices(const Instruction &x, u32 mask)
{
    if (mask != ~0u) fault("ldmatrix needs all lanes");
    u16 rows[4][8][8];
    for (u32 l = 0; l < lanes; ++l) memcpy(rows[l / 8][l % 8], place(Space::shared, address(x, l), 16, false, l), 16);
    for (u32 m = 0; m < 4; ++m) {
        u32 *d = values<u32>(kernel.lists[x.list + m]);
        for (u32 l = 0; l < lanes; ++l) {
            const u32 g = l / 4, t = l % 4;
            d[l] = x.kind ? rows[m][2 * t][g] | u32(rows[m][2 * t + 1][g]) << 16
                          : rows[m][g][2 * t] | u32(rows[m][g][2 * t + 1]) << 16;
        }
    }
}

/* d [16, 8] = a [16, 16] b [16, 8] + c.  Lane 4 g + t holds, of a, rows g and g + 8 and columns 2t, 2t + 1, 2t + 8, 2t
   + 9; of b, column g and rows 2t, 2t + 1, 2t + 8, 2t + 9; of c and d, rows g and g + 8 and columns 2t, 2t + 1. */
void Machine::multiply(const Instruction &x)
{
    f32 a[16][16], b[16][8];
    f64 c[16][8];
    const Operand *list = &kernel.lists[x.list];
    auto number = [&](u32 word, u32 half) {
        const u16 h = static_cast<u16>(word >> 16 * half);
        return x.kind ? float_of_bfloat(h) : float_of_half(h);
    };
    for (u32 l = 0; l < lanes; ++l) {
        const u32 g = l / 4, t = l % 4;
        for (u32 i = 0; i < 8; ++i)
            a[g + i / 2 % 2 * 8][2 * t + i % 2 + i / 4 * 8] = number(values<u32>(list[4 + i / 2])[l], i % 2);
        for (u32 i = 0; i < 4; ++i) b[2 * t + i % 2 + i / 2 * 8][g] = number(values<u32>(list[8 + i / 2])[l], i % 2);
        for (u32 i = 0; i < 4; ++i) c[g + i / 2 * 8][2 * t + i % 2] = values<f32>(list[10 + i])[l];
    }
    for (u32 i = 0; i < 16; ++i)
        for (u32 k = 0; k < 16; ++k)
            for (u32 j = 0; j < 8; ++j) c[i][j] += static_cast<f64>(a[i][k]) * b[k][j];
    for (u32 l = 0; l < lanes; ++l)
        for (u32 i = 0; i < 4; ++i)
            values<f32>(list[i])[l] = static_cast<f32>(c[l / 4 + i / 2 * 8][2 * (l % 4) + i % 2]);
}

/* ---- products of a warpgroup ---- */

/* A tile [rows, 16] in shared memory, rows first to first + rows - 1, whose columns are the products' inner dimension.
   The manual's descriptor: bits 0 to 13 the address, 16 to 29 the leading and 32 to 45 the stride offset, all three in
   units of 16 bytes; 49 to 51 a base offset; 62 and 63 the swizzle, where 1 is that of 128 bytes, the one that is known
   here: in each kilobyte, bits 4 to 6 of an address are xored with bits 7 to 9.  A row of 128 bytes has 64 numbers of
   the inner dimension, and eight rows are followed by the next eight at the stride offset.  Or, transposed, a row has
   64 numbers of the outer dimension, the next 64 are at the leading offset, and the next eight rows at the stride. */
void Machine::read_tile(const Instruction &x, Operand descriptor, bool transposed, u32 first, u32 rows, f32 *tile)
{
    const u64 bits = values<u64>(descriptor)[0];
    for (u32 l = 1; l < lanes; ++l)
        if (values<u64>(descriptor)[l] != bits) fault("the descriptors of a warp differ", l);
    const u32 begin = static_cast<u32>(bits & 0x3fff) << 4;
    const u32 leading = static_cast<u32>(bits >> 16 & 0x3fff) << 4, stride = static_cast<u32>(bits >> 32 & 0x3fff) << 4;
    if (bits >> 62 != 1 || (bits >> 49 & 7))
        fault("a descriptor without the swizzle of 128 bytes, or with a base offset");
    for (u32 chunk = 0; chunk < rows * 2; ++chunk) { /* eight numbers */
        const u32 r = first + (transposed ? chunk % (rows / 8) * 8 : chunk / 2);
        const u32 k = transposed ? chunk / (rows / 8) : chunk % 2 * 8;
        u32 address = begin + (transposed ? r / 64 * leading + k / 8 * stride + k % 8 * 128 + r % 64 * 2
                                          : r / 8 * stride + r % 8 * 128 + k * 2);
        address ^= (address >> 7 & 7) << 4;
        Read read = {warp->group, address, {}};
        memcpy(read.bytes, place(Space::shared, address, 16, false, 0), 16);
        for (u64 at = address - shared_begin; at < address - shared_begin + 16; at += kernel.granule) {
            const Cell &cell = cells[at / kernel.granule];
            const Warp &writer = warps[cell.writer.thread / lanes];
            if (writer.fences[cell.writer.thread % lanes] == cell.fences)
                fault("wgmma reads what thread " + std::to_string(cell.writer.thread) +
                      " wrote without a fence.proxy.async after it, at " + hex(address));
        }
        warp->reads.push_back(read);
        for (u32 i = 0; i < 8; ++i) {
            u16 h;
            memcpy(&h, read.bytes + 2 * i, 2);
            const u32 row = r - first + (transposed ? i : 0), column = k + (transposed ? 0 : i);
            tile[16 * row + column] = x.kind & 1 ? float_of_bfloat(h) : float_of_half(h);
        }
    }
}

/* d [64, N] = a [64, 16] b [16, N] + d, of which this warp has 16 rows: its registers of a and d are those of mma, for
   each eight columns.  The result waits in `sums`; the registers are NaN until wgmma.wait_group. */
void Machine::multiply_group(const Instruction &x)
{
    Warp &w = *warp;
    const u32 n = x.count * 2u, number = static_cast<u32>(warp - warps.data());
    const Operand *d = &kernel.lists[x.list], *a = d + x.count;
    std::vector<f32> left(16 * 16), right(16 * n);
    if (count % 4 || threads % (4 * lanes)) fault("wgmma needs four warps");
    for (u32 i = 0; i < x.count + (x.kind & 2 ? 0u : 4u); ++i) {
        if (w.accessed[static_cast<size_t>(d[i]) / 64])
            fault("a register of wgmma was accessed, and no wgmma.fence follows");
        if (i < x.count ? w.inputs.count(d[i]) : w.sums.count(d[i]))
            fault("wgmma takes a register from another one that was not waited for");
    }
    if (x.kind & 2) read_tile(x, x.a, x.kind & 4, number % 4 * 16, 16, left.data());
    for (u32 l = 0; l < lanes && !(x.kind & 2); ++l)
        for (u32 i = 0; i < 8; ++i) {
            const u16 h = static_cast<u16>(values<u32>(a[i / 2])[l] >> 16 * (i % 2));
            left[16 * (l / 4 + i / 2 % 2 * 8) + 2 * (l % 4) + i % 2 + i / 4 * 8] =
                x.kind & 1 ? float_of_bfloat(h) : float_of_half(h);
        }
    read_tile(x, x.b, x.kind & 8, 0, n, right.data());
    for (u32 i = 0; i < x.count; ++i) {
        auto before = w.sums.find(d[i]);
        Sums sums = {w.group, {}};
        for (u32 l = 0; l < lanes; ++l) {
            const f32 *row = &left[16 * (l / 4 + i % 4 / 2 * 8)];
            const f32 *column = &right[16 * (i / 4 * 8 + 2 * (l % 4) + i % 2)];
            f64 sum = 0;
            if (predicate(x.c) >> l & 1) sum = before == w.sums.end() ? values<f32>(d[i])[l] : before->second.of[l];
            for (u32 k = 0; k < 16; ++k) sum += static_cast<f64>(row[k]) * column[k];
            sums.of[l] = static_cast<f32>(sum);
        }
        w.sums[d[i]] = sums;
        memset(values<f32>(d[i]), 0xff, lanes * sizeof(f32));
    }
    for (u32 i = 0; i < 4 && !(x.kind & 2); ++i) w.inputs[a[i]] = w.group;
    for (u64 part : {u64(x.line), x.kind & 2 ? *values<u64>(x.a) : 0, *values<u64>(x.b)})
        w.products = (w.products ^ part) * 0x100000001b3u;
}

/* wgmma.wait_group: what the groups but the last `left` have computed is in the registers now. */
void Machine::end_products(u32 left)
{
    Warp &w = *warp;
    const auto done = [&](u32 group) { return group + left < w.group; };
    for (auto at = w.sums.begin(); at != w.sums.end();) {
        if (!done(at->second.group)) {
            ++at;
            continue;
        }
        memcpy(values<f32>(at->first), at->second.of, sizeof at->second.of);
        at = w.sums.erase(at);
    }
    for (auto at = w.inputs.begin(); at != w.inputs.end();) at = done(at->second) ? w.inputs.erase(at) : std::next(at);
    std::vector<Read> remain;
    for (const Read &read : w.reads) {
        if (!done(read.group)) remain.push_back(read);
        else if (memcmp(read.bytes, place(Space::shared, read.address, 16, false, 0), 16))
            fault("shared memory that wgmma reads was written before the wait, at " + hex(read.address));
    }
    w.reads.swap(remain);
}

/* Registers of wgmma that another instruction names.  A mov only gives a register another name, for ptxas; nvcc puts
   them between wgmma.fence and wgmma, and between two wgmma: the new name is in the state of the old one. */
void Machine::access_registers(const Instruction &x)
{
    Warp &w = *warp;
    for (Operand o : kernel.touched[static_cast<size_t>(&x - kernel.code.data())]) {
        if (x.op == I_wgmma) continue;
        const bool renames = x.op == I_mov && !x.kind;
        if ((!renames || o == x.d) && (w.sums.count(o) || w.inputs.count(o)))
            fault("a register of wgmma is accessed before wgmma.wait_group");
        w.accessed[static_cast<size_t>(o) / 64] = renames ? x.a >= 0 && w.accessed[static_cast<size_t>(x.a) / 64] : 1;
        if (renames && o == x.d && x.a >= 0 && w.sums.count(x.a)) w.sums[o] = w.sums[x.a];
    }
}

/* At a barrier and at the end. */
void Machine::compare_warpgroups()
{
    for (u32 i = 0; i < count; ++i)
        if (warps[i].products != warps[i / 4 * 4].products)
            fault("the four warps of a warpgroup do not execute the same wgmma");
}

/* The bytes land when the copy is waited for; until then the target counts as never written. */
void Machine::begin_copies(const Instruction &x, u32 mask)
{
    EACH_LANE (l, mask) {
        const u64 to = address(x, l);
        const u64 from = values<u64>(x.b)[l] + static_cast<u64>(static_cast<s64>(kernel.lists[x.list]));
        const u32 bytes = values<u32>(x.c)[l];
        if (bytes > x.count) fault("cp.async copies more bytes than it fills", l);
        place(Space::shared, to, x.count, true, l);
        if (bytes) place(Space::global, from, x.count, false, l);
        else if (from % x.count) fault("misaligned cp.async", l);
        for (u64 c = 0; c < x.count; c += kernel.granule)
            cells[(to - shared_begin + c) / kernel.granule].writer.barrier = 0;
        warp->copies.push_back({l, warp->groups[l], static_cast<u32>(to), bytes, x.count, from});
    }
}

void Machine::end_copies(u32 mask, u32 left)
{
    std::vector<Copy> remain;
    for (const Copy &c : warp->copies) {
        if (!(mask >> c.lane & 1) || c.group + left >= warp->groups[c.lane]) {
            remain.push_back(c);
            continue;
        }
        char *to = place(Space::shared, c.to, c.filled, true, c.lane);
        memset(to, 0, c.filled);
        if (c.bytes) memcpy(to, reinterpret_cast<const char *>(static_cast<uintptr_t>(c.from)), c.bytes);
    }
    warp->copies.swap(remain);
}

/* A warp instruction runs when all lanes of its mask are there.  False: those that are wait for the others. */
bool Machine::gather(const Instruction &x, u32 pc, u32 *mask)
{
    const u32 first = static_cast<u32>(__builtin_ctz(*mask));
    u32 need = warp->alive;
    if (x.op == I_bar_warp) need = values<u32>(x.a)[first];
    if (x.op == I_vote) need = values<u32>(x.b)[first];
    if (x.op == I_shfl) need = values<u32>(kernel.lists[x.list + 1])[first];
    u32 there = 0;
    for (u32 l = 0; l < lanes; ++l)
        if ((warp->held | *mask) >> l & 1 && (warp->pc[l] == pc || *mask >> l & 1)) there |= 1u << l;
    if (!(need >> first & 1)) fault("the mask of a warp instruction lacks a lane that executes it", first);
    if (need & ~warp->alive)
        fault("the mask of a warp instruction names a lane that has returned, or that does not exist", first);
    if ((there & need) != need) return false;
    *mask = need;
    return true;
}

/* A warp instruction, when its lanes have come. */
void Machine::collective(const Instruction &x, u32 mask)
{
    const u32 votes = x.op == I_vote ? predicate(x.a) & mask : 0;
    switch (x.op) {
    case I_bar_warp: ++warp->epoch; break;
    case I_shfl: shuffle(x, mask); break;
    case I_ldmatrix: load_matrices(x, mask); break;
    case I_mma: multiply(x); break;
    case I_wgmma: multiply_group(x); break;
    case I_wgmma_fence: std::fill(warp->accessed.begin(), warp->accessed.end(), 0); break;
    case I_wgmma_commit: ++warp->group; break;
    case I_wgmma_wait: end_products(static_cast<u32>(x.number)); break;
    default: /* vote: ballot, any, all */
        if (x.kind) set_predicate(x.d, mask, (x.kind == 1 ? votes != 0 : votes == mask) ? ~0u : 0);
        else
            EACH_LANE (l, mask) values<u32>(x.d)[l] = votes;
    }
}

/* ---- a block ---- */

void Machine::begin_block(u64 number)
{
    block[0] = static_cast<u32>(number % launch.grid[0]);
    block[1] = static_cast<u32>(number / launch.grid[0] % launch.grid[1]);
    block[2] = static_cast<u32>(number / (u64(launch.grid[0]) * launch.grid[1]));
    first_barrier = ++barrier;
    sum = 0;
    for (u32 i = 0; i < count; ++i) {
        Warp &w = warps[i];
        const u32 n = std::min<u32>(lanes, threads - i * lanes);
        w.alive = n == lanes ? ~0u : (1u << n) - 1;
        w.waiting = w.held = w.carry = w.epoch = 0;
        w.copies.clear();
        w.sums.clear();
        w.inputs.clear();
        w.reads.clear();
        w.accessed.assign(kernel.touched.empty() ? 0 : kernel.register_bytes / 64 + 1, 1);
        w.group = 1;
        w.products = 0;
        memset(w.fences, 0, sizeof w.fences);
        w.reduction = nullptr;
        memset(w.pc, 0, sizeof w.pc);
        memset(w.groups, 0, sizeof w.groups);
        if (!w.local_written.empty()) memset(w.local_written.data(), 0, w.local_written.size());
        for (const SpecialRegister &s : kernel.specials)
            for (u32 l = 0; l < lanes; ++l) {
                const u32 t = i * lanes + l, *size = launch.block;
                const u32 thread[3] = {t % size[0], t / size[0] % size[1], t / (size[0] * size[1])};
                u32 *value = reinterpret_cast<u32 *>(w.registers + s.at) + l;
                switch (s.name) {
                case SpecialRegister::tid: *value = thread[s.axis]; break;
                case SpecialRegister::ntid: *value = launch.block[s.axis]; break;
                case SpecialRegister::ctaid: *value = block[s.axis]; break;
                case SpecialRegister::nctaid: *value = launch.grid[s.axis]; break;
                case SpecialRegister::laneid: *value = l; break;
                }
            }
    }
}

/* All threads of the block are at a barrier. */
void Machine::end_barrier()
{
    for (u32 i = 0; i < count; ++i) {
        Warp &w = warps[i];
        if (w.reduction)
            for (u32 l = 0; l < lanes; ++l)
                if (w.alive >> l & 1) reinterpret_cast<u32 *>(w.registers + w.reduction->d)[l] = sum;
        w.reduction = nullptr;
        w.waiting = 0;
    }
    sum = 0;
    ++barrier;
    compare_warpgroups();
}

void Machine::stuck()
{
    for (u32 i = 0; i < count; ++i) {
        Warp &w = warps[i];
        warp = &w;
        for (u32 l = 0; l < lanes; ++l) {
            if (!(w.held >> l & 1)) continue;
            now = &kernel.code[w.pc[l]];
            fault("a warp instruction waits for lanes of its mask that do not come", l);
        }
    }
    warp = nullptr;
    now = nullptr;
    fault("a barrier that some threads do not reach: they have returned");
}

void Machine::run()
{
    std::vector<u64> order(u64(launch.grid[0]) * launch.grid[1] * launch.grid[2]);
    for (u64 i = 0; i < order.size(); ++i) order[i] = i;
    for (u64 i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
    std::vector<Warp *> can;
    for (u64 number : order) {
        begin_block(number);
        for (;;) {
            can.clear();
            bool alive = false, returned = false, all_wait = true;
            for (u32 i = 0; i < count; ++i) {
                Warp &w = warps[i];
                if (w.alive & ~(w.waiting | w.held)) can.push_back(&w);
                const u32 n = std::min<u32>(lanes, threads - i * lanes);
                alive = alive || w.alive;
                returned = returned || w.alive != (n == lanes ? ~0u : (1u << n) - 1);
                all_wait = all_wait && !(w.alive & ~w.waiting);
            }
            if (!alive) {
                compare_warpgroups();
                break;
            }
            if (can.empty()) {
                if (!all_wait || returned) stuck();
                end_barrier();
                continue;
            }
            warp = can[random() % can.size()];
            run_warp(*warp, random() % 8 ? 1 + random() % 64 : ~u64(0));
        }
        warp = nullptr;
        now = nullptr;
    }
}

/* ---- instructions ---- */

template <class R, class A, class F> static inline void unary(u32 mask, R *d, const A *a, F rule)
{
    if (mask == ~0u)
        for (u32 l = 0; l < lanes; ++l) d[l] = rule(a[l]);
    else
        EACH_LANE (l, mask) d[l] = rule(a[l]);
}
template <class R, class A, class B, class F> static inline void binary(u32 mask, R *d, const A *a, const B *b, F rule)
{
    if (mask == ~0u)
        for (u32 l = 0; l < lanes; ++l) d[l] = rule(a[l], b[l]);
    else
        EACH_LANE (l, mask) d[l] = rule(a[l], b[l]);
}
template <class R, class A, class B, class C, class F>
static inline void ternary(u32 mask, R *d, const A *a, const B *b, const C *c, F rule)
{
    if (mask == ~0u)
        for (u32 l = 0; l < lanes; ++l) d[l] = rule(a[l], b[l], c[l]);
    else
        EACH_LANE (l, mask) d[l] = rule(a[l], b[l], c[l]);
}
/* A result is widened to its register by its own type: with the sign, if it has one. */
template <class R, class A, class F>
static inline void convert(u32 mask, char *d, u32 width, const char *a, u32 from_width, F rule)
{
    EACH_LANE (l, mask) {
        A value;
        memcpy(&value, a + size_t(from_width) * l, sizeof value);
        const R result = rule(value);
        if (width == sizeof result) memcpy(d + size_t(width) * l, &result, sizeof result);
        else put(d, width, l, static_cast<u64>(static_cast<s64>(result)));
    }
}
template <class A, class F> static inline u32 compare(const A *a, const A *b, F rule)
{
    u32 result = 0;
    for (u32 l = 0; l < lanes; ++l) result |= static_cast<u32>(rule(a[l], b[l])) << l;
    return result;
}

/* What needs no other lanes and changes no pc. */
void Machine::compute(const Instruction &x, u32 mask)
{
    Warp &w = *warp;
    switch (x.op) {
#define PTX_UNARY(name, R, A, rule)                                                                 \
    case I_##name:                                                                                  \
        unary(mask, values<R>(x.d), values<A>(x.a), [](A a) -> R { return static_cast<R>(rule); }); \
        break;
#define PTX_BINARY(name, R, A, B, rule)                              \
    case I_##name:                                                   \
        binary(mask, values<R>(x.d), values<A>(x.a), values<B>(x.b), \
               [](A a, B b) -> R { return static_cast<R>(rule); });  \
        break;
#define PTX_TERNARY(name, R, A, B, C, rule)                                           \
    case I_##name:                                                                    \
        ternary(mask, values<R>(x.d), values<A>(x.a), values<B>(x.b), values<C>(x.c), \
                [](A a, B b, C c) -> R { return static_cast<R>(rule); });             \
        break;
#define PTX_CONVERT(name, R, A, rule)                                                                                \
    case I_##name:                                                                                                   \
        convert<R, A>(mask, at(x.d), x.bytes, at(x.a), x.from_bytes, [](A a) -> R { return static_cast<R>(rule); }); \
        break;
#define PTX_COMPARE(name, A, rule)                                                                                \
    case I_##name:                                                                                                \
        set_predicate(x.d, mask, compare(values<A>(x.a), values<A>(x.b), [](A a, A b) -> bool { return rule; })); \
        break;
#define PTX_LOGIC(name, rule)                             \
    case I_##name: {                                      \
        const u32 a = predicate(x.a), b = predicate(x.b); \
        (void)b;                                          \
        set_predicate(x.d, mask, rule);                   \
        break;                                            \
    }
#define PTX_CHOOSE(name, T)                                       \
    case I_##name: {                                              \
        T *d = values<T>(x.d);                                    \
        const T *a = values<T>(x.a), *b = values<T>(x.b);         \
        const u32 chosen = predicate(x.c);                        \
        EACH_LANE (l, mask) d[l] = chosen >> l & 1 ? a[l] : b[l]; \
        break;                                                    \
    }
#define PTX_CARRY(name, T, inputs, rule)                                               \
    case I_##name:                                                                     \
        EACH_LANE (l, mask) {                                                          \
            const T a = values<T>(x.a)[l], b = values<T>(x.b)[l];                      \
            const T c = inputs == 3 ? values<T>(x.c)[l] : 0, carry = w.carry >> l & 1; \
            (void)c, (void)carry;                                                      \
            const u64 wide = rule;                                                     \
            values<T>(x.d)[l] = static_cast<T>(wide);                                  \
            w.carry = (w.carry & ~(1u << l)) | static_cast<u32>(wide >> 32 & 1) << l;  \
        }                                                                              \
        break;
#define PTX_OTHER(name)
        PTX_TABLE(PTX_UNARY, PTX_BINARY, PTX_TERNARY, PTX_CONVERT, PTX_COMPARE, PTX_LOGIC, PTX_CHOOSE, PTX_CARRY,
                  PTX_OTHER)
    case I_mov: move(x, mask); break;
    case I_cvta: {
        const u64 add = x.space != Space::shared ? 0 : x.kind ? u64(0) - generic_shared : generic_shared;
        unary(mask, values<u64>(x.d), values<u64>(x.a), [add](u64 a) { return a + add; });
        break;
    }
    case I_ld: load(x, mask); break;
    case I_st: store(x, mask); break;
    case I_atom: atomic(x, mask); break;
    case I_bfi: insert_bits(x, mask); break;
    case I_fence: break;
    case I_copy: copy_locals(x, mask); break;
    case I_cp_async: begin_copies(x, mask); break;
    case I_cp_commit:
        EACH_LANE (l, mask) ++w.groups[l];
        break;
    case I_cp_wait: end_copies(mask, static_cast<u32>(x.number)); break;
    case I_fence_proxy:
        EACH_LANE (l, mask) ++w.fences[l];
        break;
    case I_trap: fault("trap: an error that the kernel found, or an instruction that the table lacks");
    default: fault("an instruction without a rule");
    }
}

/* Branches and waits: `mask` of the lanes `group`, which are at pc, executes x.  True: all of them go on at *next;
   false: their pcs are set, and each may wait. */
bool Machine::control(const Instruction &x, u32 mask, u32 group, u32 pc, u32 *next)
{
    Warp &w = *warp;
    switch (x.op) {
    case I_call:
        copy_locals(x, mask);
        EACH_LANE (l, mask) values<u32>(x.d)[l] = pc + 1;
        /* fall through */
    case I_bra:
        *next = static_cast<u32>(x.number);
        if (mask == group) return true;
        EACH_LANE (l, group) w.pc[l] = mask >> l & 1 ? *next : pc + 1;
        return false;
    case I_leave:
        EACH_LANE (l, group) w.pc[l] = mask >> l & 1 ? values<u32>(x.d)[l] : pc + 1;
        return false;
    case I_ret:
        for (const Copy &c : w.copies)
            if (mask >> c.lane & 1) fault("a thread returns before it has waited for its asynchronous copies", c.lane);
        if (!w.sums.empty()) fault("a thread returns before it has waited for its wgmma");
        w.alive &= ~mask;
        break;
    case I_bar_red:
        sum += static_cast<u32>(__builtin_popcount(predicate(x.a) & mask));
        w.reduction = &x;
        /* fall through */
    case I_bar_sync: w.waiting |= mask; break;
    default: return together(x, mask, group, pc);
    }
    EACH_LANE (l, group) w.pc[l] = pc + 1;
    return false;
}

/* A warp instruction, likewise.  Lanes with different masks do it one group after another. */
bool Machine::together(const Instruction &x, u32 mask, u32 group, u32 pc)
{
    Warp &w = *warp;
    u32 came = 0; /* lanes that had waited here */
    while (mask) {
        u32 these = mask;
        if (!gather(x, pc, &these)) {
            w.held |= mask;
            break;
        }
        collective(x, these);
        came |= these & ~group;
        mask &= ~these;
    }
    w.held &= ~came;
    if (!came && !mask) return true;
    EACH_LANE (l, group | came) w.pc[l] = mask >> l & 1 ? pc : pc + 1;
    return false;
}

/* Runs the lanes at the least pc, until they have done so many instructions or must wait. */
void Machine::run_warp(Warp &w, u64 steps)
{
    const Instruction *code = kernel.code.data();
    while (steps) {
        const u32 ready = w.alive & ~(w.waiting | w.held);
        if (!ready) return;
        u32 pc = ~0u, other = ~0u, group = 0;
        EACH_LANE (l, ready) pc = std::min(pc, w.pc[l]);
        EACH_LANE (l, ready) {
            if (w.pc[l] == pc) group |= 1u << l;
            else other = std::min(other, w.pc[l]);
        }
        /* these lanes run together until they part, meet others, or wait */
        bool same = true;
        for (; same && steps && pc < other; --steps) {
            const Instruction &x = code[pc];
            u32 mask = group, next = pc + 1;
            now = &x;
            if (x.guard != no_operand) mask &= x.unless ? ~predicate(x.guard) : predicate(x.guard);
            if (mask) {
                if (!kernel.touched.empty()) access_registers(x);
                totals.warp_instructions += 1;
                totals.machine_instructions += x.machine;
                totals.lane_instructions += static_cast<u32>(__builtin_popcount(mask));
                if (x.op < I_bra) compute(x, mask);
                else same = control(x, mask, group, pc, &next);
            }
            pc = next;
        }
        if (same)
            EACH_LANE (l, group) w.pc[l] = pc;
    }
}

void run(const Module &module, const Kernel &kernel, const Launch &launch)
{
    if (!kernel.unknown.empty()) throw Fault{kernel.name + " has instructions that the table lacks:" + kernel.unknown};
    const u32 threads = launch.block[0] * launch.block[1] * launch.block[2];
    const u32 most = kernel.most_threads ? kernel.most_threads : threads_of_any_registers;
    if (threads > most)
        throw Fault{kernel.name + " runs in blocks of " + std::to_string(threads) + " threads, and is compiled for " +
                    std::to_string(most)};
    Machine(module, kernel, launch).run();
}
} // namespace ptx
