/* Hands the launches of the simulator over to the interpreter, if TG_SIM_PTX is set: to the file of PTX, or to 1 for
   the one that `make ptx` has made.  Kernels are found by their mangled names, in the program's symbol table and in the
   file; their arguments are compared with the .param declarations.  With TG_SIM_PTX_COMPARE set the simulator runs
   each launch, too, and both must have written the same.  With TG_SIM_PTX_LOG=file each process adds the names of the
   kernels that it has executed to this file, and by how much they differed.  With TG_SIM_PTX_COUNTS=file it writes a
   line for each kernel, while cudasim_report says so: its launches, the instructions of its warps, its name.  These are
   those of PTX or, with TG_SIM_PTX_MACHINE=file, those that ptxas makes of them: the file has a line "LINE INSTRUCTIONS"
   for each line of PTX of which there are some. */
#include "ptx.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "internal.h"

namespace cudasim
{
/* ---- which bytes of global memory have been written: of each allocation a byte for each of its bytes ---- */

static uint8_t *written_bytes(const Allocation &a)
{
    Allocation &owner = const_cast<Allocation &>(a);
    if (!owner.shadow) owner.shadow = calloc(a.bytes + 1, 1);
    if (!owner.shadow) fail("no memory for the shadow of an allocation of %zu bytes", a.bytes);
    return static_cast<uint8_t *>(owner.shadow);
}
static size_t offset_in(const Allocation &a, const void *p)
{
    return static_cast<size_t>(static_cast<const char *>(p) - a.data);
}

void check_written(const Allocation &a, const void *p, size_t bytes)
{
    memset(written_bytes(a) + offset_in(a, p), 1, bytes);
}

/* A copy of memory that was never written counts as not written; memory of the host counts as written. */
void check_copied(const void *to, const void *from, size_t bytes)
{
    const Allocation *a = find_allocation(reinterpret_cast<uintptr_t>(to)),
                     *source = find_allocation(reinterpret_cast<uintptr_t>(from));
    if (a && source)
        memmove(written_bytes(*a) + offset_in(*a, to), written_bytes(*source) + offset_in(*source, from), bytes);
    else if (a) check_written(*a, to, bytes);
}

bool check_initialised(const Allocation &a, const void *p, size_t bytes)
{
    return !memchr(written_bytes(a) + offset_in(a, p), 0, bytes);
}

void check_freed(Allocation &a)
{
    free(a.shadow);
    a.shadow = nullptr;
}

/* ---- launches ---- */

typedef std::map<const Allocation *, std::vector<char>> Contents;
static std::vector<char> bytes_of(const Allocation &a) { return std::vector<char>(a.data, a.data + a.bytes); }

struct Device : ptx::Memory {
    Contents *before = nullptr; /* what the launch reaches, as it was before */
    ptx::Range reach(uint64_t address, size_t bytes, bool write) override
    {
        const Allocation *a = find_allocation(static_cast<uintptr_t>(address));
        const uint64_t begin = a ? reinterpret_cast<uintptr_t>(a->data) : 0;
        char text[160];
        if (!a || a->state != Allocation::live)
            snprintf(text, sizeof text, "%#llx is no live device memory", static_cast<unsigned long long>(address));
        else if (address < begin || bytes > a->bytes || address - begin > a->bytes - bytes)
            snprintf(text, sizeof text, "%zu bytes at offset %lld leave allocation %d, which has %zu bytes", bytes,
                     static_cast<long long>(address - begin), a->id, a->bytes);
        else if (use_range(reinterpret_cast<void *>(static_cast<uintptr_t>(address)), bytes, now.device, write,
                           "kernel")) {
            if (before) before->emplace(a, bytes_of(*a));
            return {begin, begin + a->bytes, written_bytes(*a)};
        }
        else snprintf(text, sizeof text, "memory of another device");
        throw ptx::Fault{text};
    }
};

static std::map<std::string, double> &executed = *new std::map<std::string, double>;
static void write_log()
{
    FILE *file = fopen(getenv("TG_SIM_PTX_LOG"), "a");
    if (!file) return;
    for (const auto &each : executed) fprintf(file, "%s %g\n", each.first.c_str(), each.second);
    fclose(file);
}

struct Counts {
    uint64_t launches, instructions;
};
static std::map<std::string, Counts> &counts = *new std::map<std::string, Counts>;
static void write_counts()
{
    FILE *file = fopen(getenv("TG_SIM_PTX_COUNTS"), "w");
    if (!file) return;
    for (const auto &each : counts)
        fprintf(file, "%llu %llu %s\n", static_cast<unsigned long long>(each.second.launches),
                static_cast<unsigned long long>(each.second.instructions), each.first.c_str());
    fclose(file);
}

/* The kernel of this address.  nvcc gives functions of the file itself the names of global ones. */
static const ptx::Kernel *kernel_of(ptx::Module &module, const void *address)
{
    static std::map<const void *, const ptx::Kernel *> known;
    auto found = known.find(address);
    if (found != known.end()) return found->second;
    std::string name = symbol_name(address);
    const ptx::Kernel *kernel = module.kernel(name);
    if (!kernel && name.compare(0, 3, "_ZL") == 0) kernel = module.kernel("_Z" + name.substr(3));
    if (!kernel) throw ptx::Fault{"no kernel " + name + " in the file of PTX"};
    return known[address] = kernel;
}

static void check_arguments(const ptx::Kernel &kernel, const Arguments &arguments)
{
    if (kernel.parameters.size() != arguments.count)
        throw ptx::Fault{kernel.name + " has " + std::to_string(kernel.parameters.size()) + " parameters in PTX, " +
                         std::to_string(arguments.count) + " in C++"};
    for (size_t i = 0; i < arguments.count; ++i)
        if (kernel.parameters[i].at != arguments.at[i] || kernel.parameters[i].bytes != arguments.bytes[i])
            throw ptx::Fault{kernel.name + ": parameter " + std::to_string(i) + " lies at " +
                             std::to_string(kernel.parameters[i].at) + " with " +
                             std::to_string(kernel.parameters[i].bytes) + " bytes in PTX, at " +
                             std::to_string(arguments.at[i]) + " with " + std::to_string(arguments.bytes[i]) +
                             " in C++"};
}

/* ---- equality with the simulator, with TG_SIM_PTX_COMPARE ----

   Each launch runs twice, on copies of the memory that it reaches.  nvcc makes one instruction of a product and a sum,
   fma, which rounds once, where the simulator rounds twice; so these kernels may differ if they have an fma: by so many
   units in the last place of an element or, where terms may cancel, of the largest element of the allocation.  All
   others have the same bits, but for those of NaN. */
struct Rounding {
    const char *kernel; /* the beginning of its name */
    char dtype;         /* it is its first (f) or last (l) template argument */
    bool of_largest;
    double units;
};
static const Rounding roundings[] = {
    {"tgi_map_packs<", 'l', false, 16}, /* as lgamma near its zeros; of most formulas 2 */
    {"tgi_map_strided<", ' ', false, 2},
    {"tgi_window_sums<", 'f', true, 2},
    {"tgi_softmax_", 'f', true, 8},
    {"tgi_class_loss_", 'f', true, 2},
    {"tgi_norm_", 'f', true, 2},
    {"tgi_flash_", 'f', true, 24},
    {"tgi_hopper_", 'f', true, 24},
    {"tgi_fourier_", ' ', true, 2},
    {"tgi_lstm_", ' ', true, 4},
    {"tgi_sample_", ' ', true, 32},
    {"tgi_add_segments<tgi_places_taps<", ' ', true, 2}, /* of weights times gradients */
    {"tgi_ctc_", ' ', true, 16},
};

/* What the two have written to an allocation. */
struct Elements {
    const char *a, *b;
    size_t bytes;
};

/* The largest difference in units, if the elements are of this type. */
template <class T> static double difference(const Elements &e, double epsilon, bool of_largest, double (*value)(T))
{
    double largest = 0, worst = 0;
    T a, b;
    for (size_t i = 0; of_largest && i + sizeof(T) <= e.bytes; i += sizeof(T)) {
        memcpy(&a, e.a + i, sizeof a);
        if (std::isfinite(value(a))) largest = std::max(largest, std::fabs(value(a)));
    }
    for (size_t i = 0; i + sizeof(T) <= e.bytes; i += sizeof(T)) {
        memcpy(&a, e.a + i, sizeof a), memcpy(&b, e.b + i, sizeof b);
        const double x = value(a), y = value(b);
        if (a == b || (x != x && y != y)) continue;
        const double size = std::max(std::max(std::fabs(x), std::fabs(y)), largest);
        worst = std::max(worst, size > 0 && size < HUGE_VAL ? std::fabs(x - y) / (size * epsilon) : HUGE_VAL);
    }
    return worst;
}
static double of_f32(uint32_t x)
{
    float y;
    memcpy(&y, &x, sizeof y);
    return y;
}
static double of_f64(uint64_t x)
{
    double y;
    memcpy(&y, &x, sizeof y);
    return y;
}
static double of_bf16(uint16_t x) { return of_f32(uint32_t(x) << 16); }
static double of_f16(uint16_t x)
{
    const int exponent = x >> 10 & 31, fraction = x & 1023;
    const double size = exponent == 31 ? (fraction ? NAN : HUGE_VAL)
                        : exponent     ? std::ldexp(1024 + fraction, exponent - 25)
                                       : std::ldexp(fraction, -24);
    return x >> 15 ? -size : size;
}

/* The type of the elements comes from the template arguments: double; a dtype that comes first, or last as that of the
   output; else f32, or 16 bits with a difference of one unit at most. */
static double difference_of(const Elements &e, const std::string &name, const Rounding *r)
{
    if (!memcmp(e.a, e.b, e.bytes)) return 0;
    const bool of_largest = r && r->of_largest;
    const size_t last = name.rfind(", "), first = name.find('<');
    const std::string dtype = r && r->dtype == 'f' && first != std::string::npos  ? name.substr(first + 1, 1)
                              : r && r->dtype == 'l' && last != std::string::npos ? name.substr(last + 2, 1)
                                                                                  : "";
    if (name.find("double") != std::string::npos || dtype == "1")
        return difference<uint64_t>(e, 0x1p-52, of_largest, of_f64);
    const double wide = difference<uint32_t>(e, 0x1p-23, of_largest, of_f32);
    if (dtype == "0" || (r && wide <= r->units)) return wide;
    const double brain = difference<uint16_t>(e, 0x1p-7, false, of_bf16);
    const double half = difference<uint16_t>(e, 0x1p-10, false, of_f16);
    const double narrow = dtype == "2" ? brain : dtype == "3" ? half : std::min(brain, half);
    return narrow <= 1 ? narrow : wide;
}

static bool rounds_once(const ptx::Kernel &kernel)
{
    const ptx::Opcode single = ptx::rows().at("fma_rn_f32").op, wide = ptx::rows().at("fma_rn_f64").op;
    return std::any_of(kernel.code.begin(), kernel.code.end(),
                       [=](const ptx::Instruction &x) { return x.op == single || x.op == wide; });
}

/* Runs the launch once more, by the simulator, on memory as it was before, and compares what both have written. */
static double compare(dim3 grid, dim3 block, size_t dynamic_bytes, const Body &body, const ptx::Kernel &kernel,
                      const Contents &before)
{
    std::string name = function_name(body.kernel);
    if (name.compare(0, 5, "void ") == 0) name = name.substr(5);
    const auto *rounding = std::find_if(std::begin(roundings), std::end(roundings), [&](const Rounding &r) {
        return name.compare(0, strlen(r.kernel), r.kernel) == 0;
    });
    if (rounding == std::end(roundings)) rounding = nullptr;
    const double most = rounding && rounds_once(kernel) ? rounding->units : 0;
    Contents after;
    for (const auto &each : before) {
        after[each.first] = bytes_of(*each.first);
        memcpy(each.first->data, each.second.data(), each.second.size());
    }
    close_allocations();
    run_simulated(grid, block, dynamic_bytes, body);
    for (const Allocation *a : opened)
        if (!after.count(a)) fail("PTX: %s does not reach allocation %d, as the simulator does", name.c_str(), a->id);
    double worst = 0;
    for (const auto &each : after) {
        const Allocation &a = *each.first;
        const double units = difference_of({each.second.data(), a.data, a.bytes}, name, rounding);
        if (units > most)
            fail("PTX: %s differs from the simulator by %g units, in allocation %d of %zu bytes", name.c_str(), units,
                 a.id, a.bytes);
        worst = std::max(worst, units);
        memcpy(a.data, each.second.data(), a.bytes);
    }
    return worst;
}

static void run_ptx(dim3 grid, dim3 block, size_t dynamic_bytes, const Body &body)
{
    static ptx::Module *module;
    static Device memory;
    static const bool compares = getenv("TG_SIM_PTX_COMPARE") != nullptr;
    static uint64_t seed = getenv("TG_SIM_PTX_SEED") ? strtoull(getenv("TG_SIM_PTX_SEED"), nullptr, 10) : 1;
    try {
        if (!module) {
            const char *path = getenv("TG_SIM_PTX");
            module = ptx::Module::read(strcmp(path, "1") ? path : PTX_FILE);
            if (getenv("TG_SIM_PTX_MACHINE")) module->read_machine(getenv("TG_SIM_PTX_MACHINE"));
            if (getenv("TG_SIM_PTX_LOG")) atexit(write_log);
            if (getenv("TG_SIM_PTX_COUNTS")) atexit(write_counts);
        }
        const ptx::Kernel *kernel = kernel_of(*module, body.kernel);
        check_arguments(*kernel, *body.arguments);
        ptx::Launch launch;
        const uint32_t sizes[6] = {grid.x, grid.y, grid.z, block.x, block.y, block.z};
        memcpy(launch.grid, sizes, sizeof launch.grid);
        memcpy(launch.block, sizes + 3, sizeof launch.block);
        launch.dynamic_bytes = static_cast<uint32_t>(dynamic_bytes);
        launch.parameters = body.arguments->data;
        launch.memory = &memory;
        launch.seed = seed++;
        Contents before;
        memory.before = compares ? &before : nullptr;
        const uint64_t instructions = ptx::totals.machine_instructions;
        ptx::run(*module, *kernel, launch);
        if (wanted && getenv("TG_SIM_PTX_COUNTS")) {
            Counts &c = counts[function_name(body.kernel)];
            ++c.launches, c.instructions += ptx::totals.machine_instructions - instructions;
        }
        double &units = executed[kernel->name];
        if (compares) units = std::max(units, compare(grid, block, dynamic_bytes, body, *kernel, before));
    } catch (const ptx::Fault &fault) {
        now.kernel = false; /* the text says where */
        fail("PTX: %s", fault.text.c_str());
    }
}

static const bool installed = [] {
    if (getenv("TG_SIM_PTX")) run_instead = run_ptx;
    return true;
}();
} // namespace cudasim
