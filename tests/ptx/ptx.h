/* An interpreter of PTX, the assembly language that nvcc compiles kernels to, after NVIDIA's "PTX ISA" manual.  It runs
   what nvcc made of tensorgrad_cuda.cu on a machine without a GPU.

       instructions.h  the table: a row for each instruction, with its types and its rule
       parse.cpp       text to the decoded form that this header declares
       execute.cpp     runs the blocks of a launch
       launch.cpp      hands the launches of the simulator (tests/cudasim) over, if TG_SIM_PTX is set
       selftest.cpp    each row of the table against plain C++, and mistakes in PTX that must be found

   How threads run.  Each lane has its own pc.  A warp runs those of its lanes that are at the least pc, so that lanes
   which took different ways meet again where these join; warps take turns at random, for a random number of
   instructions; blocks come in random order.  A seed makes a run repeatable.

   What is checked.  Addresses lie inside of an allocation, of a shared variable or of the kernel's parameters, and are
   aligned; memory of every kind was written before it is read; two threads do not access the same shared memory with
   nothing between them that orders it, if one of them writes; all threads of a block reach a barrier, all lanes of a
   mask a warp instruction; an asynchronous copy lands when it is waited for and no sooner, and so does the result of an
   asynchronous product (wgmma), whose registers nobody accesses before; a block has no more threads than its kernel is
   compiled for. */
#ifndef PTX_H
#define PTX_H

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace ptx
{
/* The types of PTX; in a namespace of their own for those who want no more of this one. */
inline namespace types
{
typedef uint8_t u8;
typedef int8_t s8;
typedef uint16_t u16;
typedef int16_t s16;
typedef uint32_t u32;
typedef int32_t s32;
typedef uint64_t u64;
typedef int64_t s64;
typedef float f32;
typedef double f64;
__extension__ typedef unsigned __int128 u128;
__extension__ typedef __int128 s128;
} // namespace types

enum { lanes = 32, all_lanes = -1 };

/* What was wrong; thrown by the parser and by run. */
struct Fault {
    std::string text;
};

enum Opcode : uint16_t; /* named in instructions.h */
enum class Space : uint8_t { generic, global, shared, local, param, constant };

/* The addresses of the spaces do not overlap, so that a generic address tells its space.  A shared address has 32 bits;
   the generic one of the same place has generic_shared added. */
static const uint64_t shared_begin = 1024, local_begin = uint64_t(1) << 60, parameter_begin = uint64_t(1) << 61,
                      generic_shared = uint64_t(1) << 59;

/* An operand is where its 32 values begin, one for each lane: an offset in the registers of the warp; or ~offset in the
   constants of the kernel.  A predicate is one word, a bit for each lane. */
typedef int32_t Operand;
enum : Operand { no_operand = INT32_MAX };

struct Instruction {
    Opcode op;
    Space space = Space::generic;
    bool unless = false; /* the guard is negated: @!p */
    uint8_t bytes = 0,
            from_bytes = 0; /* of the result and of a register: memory and conversions have others than their types */
    uint8_t count = 0;      /* of registers in `list`: of a vector, of a fragment */
    uint8_t kind = 0;       /* of a shuffle, an atomic operation, a load that extends the sign */
    Operand guard = no_operand; /* a predicate: only the lanes where it is set execute */
    Operand d = no_operand, a = no_operand, b = no_operand, c = no_operand;
    uint32_t list = 0;  /* where further operands begin in Kernel::lists */
    int64_t number = 0; /* a displacement, a target of a branch, a count */
    uint32_t line = 0;  /* in the file */
    uint32_t machine = 1; /* instructions of the GPU's own that ptxas makes of it */
};

struct Parameter {
    std::string name;
    uint32_t at, bytes;
};

struct SharedVariable {
    std::string name;
    uint32_t at, bytes;
};

struct SpecialRegister {
    enum Name : uint8_t { tid, ntid, ctaid, nctaid, laneid } name;
    uint8_t axis; /* 0 x, 1 y, 2 z */
    Operand at;
};

struct Kernel {
    std::string name;
    std::vector<Parameter> parameters;
    uint32_t parameter_bytes = 0;
    std::vector<Instruction> code;
    std::vector<Operand> lists;
    std::vector<char> constants;
    std::vector<SpecialRegister> specials;
    std::vector<SharedVariable> shared; /* the last one, if it has no bytes, is the dynamic memory */
    uint32_t register_bytes = 0, local_bytes = 0;
    uint32_t shared_bytes = 0; /* of the static variables, with gaps between them that nobody may touch */
    uint32_t most_threads = 0; /* of a block: .maxntid, of __launch_bounds__; 0: none */
    uint32_t granule = 8;      /* the least number of bytes that it loads or stores in shared memory at a time */
    bool has_dynamic = false;
    uint32_t dynamic_alignment = 16;
    std::string unknown; /* instructions that the table lacks, and their lines */
    /* With wgmma: of each instruction, the registers that it names and some wgmma, too; else empty. */
    std::vector<std::vector<Operand>> touched;
};

/* Numbers in device memory that the file defines: tables of the mathematical functions. */
struct Table {
    std::string name;
    std::vector<char> bytes;
};

/* A file of PTX.  Its kernels are decoded when they are first asked for. */
class Module
{
  public:
    explicit Module(std::string text);
    static Module *read(const char *path); /* throws Fault */
    const Kernel *kernel(const std::string &name);
    std::vector<std::string> names() const;
    const std::vector<std::unique_ptr<Table>> &tables() const { return tables_; }
    const std::string &text() const { return text_; }
    void read_machine(const char *path); /* before kernels are asked for; throws Fault */

  private:
    friend struct Decoder;
    struct Place {
        size_t header, body; /* where the parameters and where the statements begin */
        size_t line;         /* of the statements */
        bool entry, result;  /* a kernel; a function that has a result, which the header begins with */
    };
    std::string text_;
    std::map<std::string, Place> functions_;
    std::vector<std::unique_ptr<Table>> tables_;
    std::map<std::string, std::pair<uint32_t, uint32_t>> shared_; /* of the file: alignment, bytes; 0 bytes: dynamic */
    std::map<std::string, std::unique_ptr<Kernel>> kernels_;
    std::map<uint32_t, uint32_t> machine_; /* of a line: instructions of the GPU's own; empty: they are not known */
};

/* Global memory.  reach throws Fault, or gives the allocation that holds these bytes; `written` has a byte for each of
   its bytes, 1 where something has been written; NULL: all of them. */
struct Range {
    uint64_t begin = 0, end = 0;
    uint8_t *written = nullptr;
};
struct Memory {
    virtual ~Memory() {}
    virtual Range reach(uint64_t address, size_t bytes, bool write) = 0;
};

struct Launch {
    uint32_t grid[3] = {1, 1, 1}, block[3] = {32, 1, 1};
    uint32_t dynamic_bytes = 0;
    const void *parameters = nullptr;
    Memory *memory = nullptr;
    uint64_t seed = 1;
};

struct Totals {
    uint64_t warp_instructions = 0, lane_instructions = 0, machine_instructions = 0;
};
extern Totals totals;

/* A multiprocessor has 65536 registers.  A thread takes 255 at most, in units of 8, so that blocks of so many threads
   always fit; for larger ones __launch_bounds__ must tell the compiler. */
static const uint32_t threads_of_any_registers = 65536 / 256;

/* Runs a launch to its end; throws Fault. */
void run(const Module &module, const Kernel &kernel, const Launch &launch);

/* The signature of a row, for the parser and for the self-test. */
struct Row {
    const char *name; /* with underscores for dots */
    Opcode op;
    uint8_t inputs;    /* 0: it is decoded by its own code */
    uint8_t widths[4]; /* bytes of the result and of the inputs; 0: a predicate */
    bool strided;      /* a conversion: its registers may be wider than its types */
};
const std::unordered_map<std::string, Row> &rows();
} // namespace ptx

#endif
