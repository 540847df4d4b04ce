/* Hands the launches of the simulator over to the interpreter, if TG_SIM_PTX is set: to the file of PTX, or to 1 for
   the one that `make ptx` has made.  Kernels are found by their mangled names, in the program's symbol table and in the
   file; their arguments are compared with the .param declarations.  With TG_SIM_PTX_LOG=file each process adds the
   names of the kernels that it has executed to this file. */
#include "ptx.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

#include "internal.h"

namespace cudasim
{
struct Device : ptx::Memory {
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
                           "kernel"))
            return {begin, begin + a->bytes};
        else snprintf(text, sizeof text, "memory of another device");
        throw ptx::Fault{text};
    }
};

static std::set<std::string> &executed = *new std::set<std::string>;
static void write_log()
{
    FILE *file = fopen(getenv("TG_SIM_PTX_LOG"), "a");
    if (!file) return;
    for (const std::string &name : executed) fprintf(file, "%s\n", name.c_str());
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

static void run_ptx(dim3 grid, dim3 block, size_t dynamic_bytes, const Body &body)
{
    static ptx::Module *module;
    static Device memory;
    static uint64_t seed = getenv("TG_SIM_PTX_SEED") ? strtoull(getenv("TG_SIM_PTX_SEED"), nullptr, 10) : 1;
    try {
        if (!module) {
            const char *path = getenv("TG_SIM_PTX");
            module = ptx::Module::read(strcmp(path, "1") ? path : PTX_FILE);
            if (getenv("TG_SIM_PTX_LOG")) atexit(write_log);
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
        ptx::run(*module, *kernel, launch);
        executed.insert(kernel->name);
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
