/* From the text of PTX to the decoded form of ptx.h. */
#include "instructions.h"
#include "ptx.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <set>

namespace ptx
{
typedef std::vector<std::string> Words;

static Words split(const std::string &text, char at)
{
    Words words;
    std::string word;
    int depth = 0;
    for (char c : text) {
        if (c == '{' || c == '[' || c == '(') ++depth;
        if (c == '}' || c == ']' || c == ')') --depth;
        if (c == at && !depth) {
            words.push_back(word);
            word.clear();
        } else if (!isspace(static_cast<unsigned char>(c))) {
            word += c;
        }
    }
    if (!word.empty()) words.push_back(word);
    return words;
}

static bool name_char(char c) { return isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%'; }
static uint32_t round_up(uint32_t x, uint32_t to) { return to ? (x + to - 1) / to * to : x; }
static uint32_t bytes_of_type(const std::string &type) /* "u32", ".b8" */
{
    if (type == "pred") return 0;
    int bits = 0;
    if (type.size() < 2 || sscanf(type.c_str() + 1, "%d", &bits) != 1) throw Fault{"no type: " + type};
    return static_cast<uint32_t>(bits) / 8;
}

/* ---- a file ---- */

/* `.align 8 .b8 name[16]`, `.u64 name`: what stands behind .param, .shared, .const, .local or .global */
struct Variable {
    std::string name;
    uint32_t alignment = 1, bytes = 0;
    bool array = false;
};
static Variable variable(const std::string &text)
{
    Variable v;
    char type[16] = "", name[2048] = "";
    const char *at = text.c_str();
    int used = 0;
    while (isspace(static_cast<unsigned char>(*at))) ++at;
    if (sscanf(at, ".align %u %n", &v.alignment, &used) == 1) at += used;
    if (sscanf(at, ".%15[a-z0-9] %2047[^[ \t\n=,;)]%n", type, name, &used) != 2) throw Fault{"no declaration: " + text};
    at += used;
    v.name = name;
    v.bytes = bytes_of_type(type);
    if (v.alignment < v.bytes) v.alignment = v.bytes;
    if (*at == '[') {
        v.array = true;
        v.bytes *= static_cast<uint32_t>(strtoul(at + 1, nullptr, 10));
    }
    return v;
}

static std::string without_comments(std::string text)
{
    for (size_t at = 0; (at = text.find("//", at)) != std::string::npos;)
        while (at < text.size() && text[at] != '\n') text[at++] = ' ';
    return text;
}

Module::Module(std::string text) : text_(without_comments(std::move(text)))
{
    size_t line_number = 1, counted = 0;
    auto line_of = [&](size_t place) {
        for (; counted < place; ++counted) line_number += text_[counted] == '\n';
        return line_number;
    };
    for (size_t at = 0, end; at < text_.size(); at = end + 1) {
        end = text_.find_first_of("\n", at);
        if (end == std::string::npos) end = text_.size();
        if (text_[at] != '.') continue;
        const std::string line = text_.substr(at, end - at);
        const bool entry = line.find(".entry ") != std::string::npos;
        if (entry || line.compare(0, 5, ".func") == 0 || line.find(" .func ") != std::string::npos) {
            size_t brace = text_.find_first_of("{;", at);
            if (brace == std::string::npos || text_[brace] == ';') continue; /* declared only */
            size_t name = text_.find(entry ? ".entry" : ".func", at) + 6, result = std::string::npos;
            while (isspace(static_cast<unsigned char>(text_[name]))) ++name;
            if (text_[name] == '(') {
                result = name;
                name = text_.find(')', name) + 1;
            }
            while (isspace(static_cast<unsigned char>(text_[name]))) ++name;
            size_t stop = name;
            while (name_char(text_[stop])) ++stop;
            functions_[text_.substr(name, stop - name)] = {result == std::string::npos ? stop : result, brace + 1,
                                                           line_of(brace), entry, result != std::string::npos};
        }
        for (const char *space : {".const ", ".global ", ".shared "}) {
            size_t found = line.find(space);
            if (found == std::string::npos || entry || found > 16) continue;
            Variable v = variable(line.substr(found + strlen(space)));
            if (space[1] == 's') {
                shared_[v.name] = {v.alignment, v.bytes};
                continue;
            }
            tables_.emplace_back(new Table{v.name, std::vector<char>(v.bytes)});
            size_t list = text_.find_first_of("{;", at);
            if (text_[list] != '{') continue;
            size_t count = 0;
            for (const std::string &number : split(text_.substr(list + 1, text_.find('}', list) - list - 1), ','))
                if (count < v.bytes)
                    tables_.back()->bytes[count++] = static_cast<char>(strtol(number.c_str(), nullptr, 0));
        }
    }
}

Module *Module::read(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) throw Fault{std::string("cannot read ") + path};
    std::string text;
    char part[65536];
    for (size_t n; (n = fread(part, 1, sizeof part, file)) > 0;) text.append(part, n);
    fclose(file);
    return new Module(std::move(text));
}

void Module::read_machine(const char *path)
{
    FILE *file = fopen(path, "r");
    unsigned line, instructions;
    while (file && fscanf(file, "%u %u", &line, &instructions) == 2) machine_[line] = instructions;
    if (file) fclose(file);
    if (machine_.empty()) throw Fault{std::string("no numbers of instructions in ") + path};
}

std::vector<std::string> Module::names() const
{
    std::vector<std::string> result;
    for (const auto &f : functions_)
        if (f.second.entry) result.push_back(f.first);
    return result;
}

/* ---- a kernel, and the functions that it calls ---- */

struct Register {
    Operand at;
    uint32_t bytes; /* 0: a predicate */
};

struct Decoder {
    Module &module;
    Kernel &kernel;
    std::map<std::string, Register> names;                         /* of single registers */
    std::map<std::string, std::pair<Register, uint32_t>> families; /* %r<17>: the first one, and how many */
    std::map<std::string, uint64_t> locals;                        /* variables and parameters of the function */
    std::map<std::string, uint32_t> local_sizes;
    std::map<std::pair<uint64_t, uint32_t>, Operand> constants;
    std::map<std::string, size_t> labels;
    std::vector<std::pair<size_t, std::string>> branches;
    std::vector<Operand> named; /* registers of the statement */

    struct Called { /* a function, decoded once in each kernel that calls it */
        size_t begin = 0;
        bool done = false;
        Operand back; /* where each lane continues */
        std::vector<std::pair<uint64_t, uint32_t>> parameters;
        std::pair<uint64_t, uint32_t> result;
    };
    std::map<std::string, Called> called;
    std::vector<std::pair<size_t, std::string>> calls;
    Called *inside = nullptr;
    size_t position = 0, line = 0, counted = 0;

    Decoder(Module &m, Kernel &k) : module(m), kernel(k) {}

    [[noreturn]] void wrong(const std::string &what)
    {
        throw Fault{"line " + std::to_string(line) + " of the PTX: " + what};
    }

    Operand new_register(uint32_t bytes)
    {
        Operand at = static_cast<Operand>(kernel.register_bytes);
        kernel.register_bytes += bytes ? bytes * lanes : 4;
        if (!bytes) return at;
        at = static_cast<Operand>(round_up(static_cast<uint32_t>(at), 64));
        kernel.register_bytes = static_cast<uint32_t>(at) + bytes * lanes;
        return at;
    }
    uint64_t new_local(uint32_t bytes, uint32_t alignment)
    {
        uint32_t at = round_up(kernel.local_bytes, alignment < 16 ? 16 : alignment);
        kernel.local_bytes = at + bytes;
        return local_begin + at;
    }

    /* `bytes` of the operand, 0 for a predicate: 32 equal values */
    Operand constant(uint64_t value, uint32_t bytes)
    {
        if (bytes && bytes < 8) value &= (uint64_t(1) << 8 * bytes) - 1;
        auto found = constants.find({value, bytes});
        if (found != constants.end()) return found->second;
        size_t at = (kernel.constants.size() + 63) / 64 * 64;
        kernel.constants.resize(at + (bytes ? bytes * lanes : 4));
        if (!bytes) {
            uint32_t word = value ? ~0u : 0;
            memcpy(&kernel.constants[at], &word, 4);
        }
        for (uint32_t l = 0; bytes && l < lanes; ++l) memcpy(&kernel.constants[at + l * bytes], &value, bytes);
        return constants[{value, bytes}] = ~static_cast<Operand>(at);
    }

    bool find_register(const std::string &name, Register *found)
    {
        const bool known = known_register(name, found);
        if (known) named.push_back(found->at);
        return known;
    }
    bool known_register(const std::string &name, Register *found)
    {
        auto single = names.find(name);
        if (single != names.end()) {
            *found = single->second;
            return true;
        }
        size_t digits = name.size();
        while (digits && isdigit(static_cast<unsigned char>(name[digits - 1]))) --digits;
        auto family = families.find(name.substr(0, digits));
        if (digits == name.size() || family == families.end()) return false;
        uint32_t number = static_cast<uint32_t>(strtoul(name.c_str() + digits, nullptr, 10));
        if (number >= family->second.second) return false;
        uint32_t bytes = family->second.first.bytes;
        *found = {family->second.first.at + static_cast<Operand>(number * (bytes ? bytes * lanes : 4)), bytes};
        return true;
    }
    Register register_of(const std::string &name)
    {
        Register r;
        if (!find_register(name, &r)) wrong("no register " + name);
        return r;
    }

    bool special(const std::string &name, Operand *at)
    {
        static const struct {
            const char *name;
            SpecialRegister::Name which;
        } all[] = {{"%tid.", SpecialRegister::tid},
                   {"%ntid.", SpecialRegister::ntid},
                   {"%ctaid.", SpecialRegister::ctaid},
                   {"%nctaid.", SpecialRegister::nctaid},
                   {"%laneid", SpecialRegister::laneid}};
        for (const auto &s : all) {
            if (name.compare(0, strlen(s.name), s.name)) continue;
            uint8_t axis = s.which == SpecialRegister::laneid ? 0 : static_cast<uint8_t>(name.back() - 'x');
            for (const SpecialRegister &known : kernel.specials)
                if (known.name == s.which && known.axis == axis) {
                    *at = known.at;
                    return true;
                }
            *at = new_register(4);
            kernel.specials.push_back({s.which, axis, *at});
            return true;
        }
        return false;
    }

    /* The address of a variable. */
    bool symbol(const std::string &name, uint64_t *address, Space *space)
    {
        auto local = locals.find(name);
        if (local != locals.end()) {
            *address = local->second;
            *space = Space::local;
            return true;
        }
        for (const Parameter &p : kernel.parameters)
            if (p.name == name) {
                *address = parameter_begin + p.at;
                *space = Space::param;
                return true;
            }
        for (const SharedVariable &v : kernel.shared)
            if (v.name == name) {
                *address = shared_begin + v.at;
                *space = Space::shared;
                return true;
            }
        auto of_file = module.shared_.find(name);
        if (of_file != module.shared_.end()) {
            add_shared(name, of_file->second.first, of_file->second.second);
            return symbol(name, address, space);
        }
        for (const auto &t : module.tables_)
            if (t->name == name) {
                *address = reinterpret_cast<uintptr_t>(t->bytes.data());
                *space = Space::constant;
                return true;
            }
        return false;
    }
    /* The dynamic memory begins behind the static variables, whose sizes are known at the end: parse reserves for it
       the place that they leave. */
    void add_shared(const std::string &name, uint32_t alignment, uint32_t bytes)
    {
        const uint32_t gap = 16;
        if (!bytes) {
            kernel.has_dynamic = true;
            if (alignment > kernel.dynamic_alignment) kernel.dynamic_alignment = alignment;
            kernel.shared.push_back({name, dynamic_at, 0});
            return;
        }
        uint32_t at = round_up(kernel.shared_bytes, alignment < 16 ? 16 : alignment);
        kernel.shared.push_back({name, at, bytes});
        kernel.shared_bytes = at + bytes + gap;
    }
    static const uint32_t dynamic_at = 1 << 20;

    /* A register, a number or the address of a variable, as 32 values of so many bytes (0: a predicate). */
    Operand operand(const std::string &text, uint32_t bytes, bool any_width = false)
    {
        Register r;
        Operand at;
        if (find_register(text, &r)) {
            if (r.bytes != bytes && !any_width)
                wrong("the register " + text + " has " + std::to_string(8 * r.bytes) + " bits");
            return r.at;
        }
        if (text[0] == '%') {
            if (bytes == 4 && special(text, &at)) return at;
            wrong("no register " + text);
        }
        return constant(number(text), bytes);
    }
    uint64_t number(const std::string &text)
    {
        if (text.compare(0, 2, "0f") == 0 || text.compare(0, 2, "0F") == 0 || text.compare(0, 2, "0d") == 0 ||
            text.compare(0, 2, "0D") == 0)
            return strtoull(text.c_str() + 2, nullptr, 16);
        if (isdigit(static_cast<unsigned char>(text[0]))) return strtoull(text.c_str(), nullptr, 0);
        if (text[0] == '-') return uint64_t(0) - strtoull(text.c_str() + 1, nullptr, 0);
        uint64_t address;
        Space space;
        if (!symbol(text, &address, &space)) wrong("unknown name " + text);
        return address;
    }

    /* [register + number], [variable + number] */
    void address(const std::string &text, Instruction &x)
    {
        if (text.size() < 3 || text[0] != '[') wrong("no address: " + text);
        std::string inside_brackets = text.substr(1, text.size() - 2);
        size_t plus = inside_brackets.find('+');
        std::string base = inside_brackets.substr(0, plus);
        x.number = plus == std::string::npos ? 0 : strtoll(inside_brackets.c_str() + plus + 1, nullptr, 0);
        Register r;
        if (find_register(base, &r)) {
            x.a = r.at;
            x.from_bytes = static_cast<uint8_t>(r.bytes);
            return;
        }
        uint64_t at;
        Space space = Space::global;
        if (!symbol(base, &at, &space)) at = number(base);
        else if (x.space == Space::param || x.space == Space::generic) x.space = space;
        x.a = constant(at, 8);
        x.from_bytes = 8;
    }

    uint32_t add_list(const std::string &text, uint32_t bytes, Instruction &x, bool any_width = false)
    {
        Words words = text[0] == '{' ? split(text.substr(1, text.size() - 2), ',') : Words{text};
        uint32_t begin = static_cast<uint32_t>(kernel.lists.size());
        for (const std::string &word : words) kernel.lists.push_back(operand(word, bytes, any_width));
        x.count = static_cast<uint8_t>(words.size());
        return begin;
    }

    void shared_access(Space space, uint32_t bytes)
    {
        if ((space == Space::shared || space == Space::generic) && bytes < kernel.granule) kernel.granule = bytes;
    }
    void emit(const Instruction &x)
    {
        kernel.code.push_back(x);
        kernel.touched.push_back(named);
    }
    void unknown(const std::string &text)
    {
        if (kernel.unknown.size() < 400) kernel.unknown += " " + text + " (line " + std::to_string(line) + ")";
    }

    bool memory(const Words &name, const Words &in, Instruction &x);
    bool warp(const Words &name, const Words &in, Instruction &x);
    bool warpgroup(const Words &name, const Words &in, Instruction &x);
    bool flow(const Words &name, const Words &in, Instruction &x);
    bool moves(const Words &name, const Words &in, Instruction &x);
    void instruction(std::string text);
    void directive(const std::string &text);
    void body(const Module::Place &place);
    void all(const Module::Place &place);
};

static bool has(const Words &words, const char *word)
{
    for (const std::string &w : words)
        if (w == word) return true;
    return false;
}

static Space space_of(const Words &name)
{
    if (has(name, "global")) return Space::global;
    if (has(name, "shared") || has(name, "shared::cta")) return Space::shared;
    if (has(name, "local")) return Space::local;
    if (has(name, "param")) return Space::param;
    if (has(name, "const")) return Space::constant;
    return Space::generic;
}

/* ld, st, atom */
bool Decoder::memory(const Words &name, const Words &in, Instruction &x)
{
    const std::string &type = name.back();
    x.space = space_of(name);
    if (name[0] == "ld" || name[0] == "st") {
        bool load = name[0] == "ld";
        x.op = load ? I_ld : I_st;
        x.bytes = static_cast<uint8_t>(bytes_of_type(type));
        x.kind = load && type[0] == 's';
        address(in[load ? 1 : 0], x);
        const std::string &values = in[load ? 0 : 1];
        std::string first = values[0] == '{' ? split(values.substr(1, values.size() - 2), ',')[0] : values;
        Register r;
        uint32_t width = find_register(first, &r) ? r.bytes : bytes_of_type(type);
        x.list = add_list(values, width, x);
        x.b = static_cast<Operand>(width);
        shared_access(x.space, x.bytes * x.count);
        return true;
    }
    static const char *const operations[] = {"add", "min", "max", "exch", "and", "or", "xor", "cas"};
    if (name[0] != "atom") return false;
    for (uint8_t i = 0; i < 8; ++i)
        if (has(name, operations[i])) x.kind = i;
    x.op = I_atom;
    x.bytes = static_cast<uint8_t>(bytes_of_type(type));
    x.count = static_cast<uint8_t>(type[0]); /* s, u, b or f */
    address(in[1], x);
    x.d = operand(in[0], x.bytes);
    x.b = operand(in[2], x.bytes);
    if (in.size() > 3) x.c = operand(in[3], x.bytes);
    shared_access(x.space, x.bytes);
    return true;
}

/* What a warp does together, and asynchronous copies. */
bool Decoder::warp(const Words &name, const Words &in, Instruction &x)
{
    if (name[0] == "shfl") {
        static const char *const kinds[] = {"bfly", "up", "down", "idx"};
        x.op = I_shfl;
        for (uint8_t i = 0; i < 4; ++i)
            if (has(name, kinds[i])) x.kind = i;
        size_t bar = in[0].find('|');
        Operand predicate = bar == std::string::npos ? no_operand : operand(in[0].substr(bar + 1), 0);
        x.d = operand(in[0].substr(0, bar), 4);
        x.a = operand(in[1], 4);
        x.b = operand(in[2], 4);
        x.c = operand(in[3], 4);
        x.list = static_cast<uint32_t>(kernel.lists.size());
        kernel.lists.push_back(predicate);
        kernel.lists.push_back(operand(in[4], 4));
    } else if (name[0] == "vote") {
        static const char *const kinds[] = {"ballot", "any", "all"};
        x.op = I_vote;
        for (uint8_t i = 0; i < 3; ++i)
            if (has(name, kinds[i])) x.kind = i;
        x.d = operand(in[0], x.kind ? 0 : 4);
        x.a = operand(in[1], 0);
        x.b = operand(in[2], 4);
    } else if (name[0] == "ldmatrix") {
        x.op = I_ldmatrix;
        if (!has(name, "m8n8") || !has(name, "x4") || !has(name, "b16")) return false;
        x.kind = has(name, "trans");
        x.space = Space::shared;
        address(in[1], x);
        x.list = add_list(in[0], 4, x);
    } else if (name[0] == "mma") {
        x.op = I_mma;
        if (!has(name, "m16n8k16") || !has(name, "row") || !has(name, "col")) return false;
        x.kind = has(name, "bf16");
        x.list = add_list(in[0], 4, x);
        for (size_t i = 1; i < 4; ++i) add_list(in[i], 4, x);
        if (kernel.lists.size() != x.list + 14) return false;
    } else if (name[0] == "cp" && has(name, "commit_group")) {
        x.op = I_cp_commit;
    } else if (name[0] == "cp" && has(name, "wait_group")) {
        x.op = I_cp_wait;
        x.number = static_cast<int64_t>(number(in[0]));
    } else if (name[0] == "cp" && has(name, "wait_all")) {
        x.op = I_cp_wait;
    } else if (name[0] == "cp" && has(name, "async")) {
        x.op = I_cp_async;
        x.count = static_cast<uint8_t>(number(in[2]));
        address(in[0], x);
        Instruction source;
        address(in[1], source);
        if (source.from_bytes != 8) return false;
        x.b = source.a;
        x.list = static_cast<uint32_t>(kernel.lists.size());
        kernel.lists.push_back(static_cast<Operand>(source.number));
        x.c = in.size() > 3 ? operand(in[3], 4) : constant(x.count, 4);
    } else {
        return false;
    }
    return true;
}

/* wgmma.mma_async.sync.aligned.m64nNk16.f32.bf16.bf16 d, a, b, scale-d, scale-a, scale-b, trans-a, trans-b, where
   trans-a is missing if a is in registers.  kind: 1 bf16, 2 a by a descriptor, 4 a transposed, 8 b transposed. */
bool Decoder::warpgroup(const Words &name, const Words &in, Instruction &x)
{
    if (name[0] != "wgmma" || !has(name, "sync") || !has(name, "aligned")) return false;
    if (has(name, "fence")) return x.op = I_wgmma_fence, true;
    if (has(name, "commit_group")) return x.op = I_wgmma_commit, true;
    if (has(name, "wait_group")) {
        x.op = I_wgmma_wait;
        x.number = static_cast<int64_t>(number(in[0]));
        return true;
    }
    unsigned n = 0;
    const bool registers = in.size() > 1 && in[1][0] == '{', bf16 = has(name, "bf16");
    if (!has(name, "mma_async") || name.size() != 8 || sscanf(name[4].c_str(), "m64n%uk16", &n) != 1) return false;
    if (name[5] != "f32" || name[6] != name[7] || (!bf16 && name[6] != "f16")) return false;
    if (n < 8 || n > 256 || n % 8 || in.size() != (registers ? 7 : 8) || in[4] != "1" || in[5] != "1") return false;
    const auto flag = [&](const std::string &text, int bit) { return text == "1" ? bit : 0; };
    x.op = I_wgmma;
    x.list = add_list(in[0], 4, x);
    if (x.count != n / 2) wrong("wgmma has " + std::to_string(x.count) + " registers of d");
    const uint8_t count = x.count;
    if (registers) add_list(in[1], 4, x);
    else x.a = operand(in[1], 8);
    if (registers && x.count != 4) wrong("wgmma has four registers of a");
    x.count = count;
    x.b = operand(in[2], 8);
    x.c = operand(in[3], 0);
    x.kind = static_cast<uint8_t>(bf16 + (registers ? 0 : 2 + flag(in[6], 4)) + flag(in.back(), 8));
    return true;
}

/* Leaves in Kernel::touched the registers of wgmma, and those that mov connects with them. */
static void find_touched(Kernel &kernel)
{
    std::set<Operand> of_wgmma;
    for (const Instruction &x : kernel.code)
        if (x.op == I_wgmma)
            for (uint32_t i = 0; i < x.count + (x.kind & 2 ? 0u : 4u); ++i) of_wgmma.insert(kernel.lists[x.list + i]);
    if (of_wgmma.empty()) {
        kernel.touched.clear();
        return;
    }
    for (size_t before = 0; before != of_wgmma.size();) {
        before = of_wgmma.size();
        for (const Instruction &x : kernel.code)
            if (x.op == I_mov && !x.kind && x.a >= 0 && (of_wgmma.count(x.a) || of_wgmma.count(x.d)))
                of_wgmma.insert(x.a), of_wgmma.insert(x.d);
    }
    for (auto &named : kernel.touched)
        named.erase(std::remove_if(named.begin(), named.end(), [&](Operand o) { return !of_wgmma.count(o); }),
                    named.end());
}

/* Branches, calls, barriers. */
bool Decoder::flow(const Words &name, const Words &in, Instruction &x)
{
    if (name[0] == "bra") {
        x.op = I_bra;
        branches.push_back({kernel.code.size(), in[0]});
    } else if (name[0] == "call") {
        size_t at = in.size() > 1 && in[0][0] == '(' ? 1 : 0; /* (result), function, (arguments) */
        auto found = module.functions_.find(in[at]);
        if (found == module.functions_.end()) return false;
        Called &to = called[in[at]];
        if (to.parameters.empty()) all(found->second); /* declares its parameters */
        calls.push_back({kernel.code.size(), in[at]});
        x.op = I_call;
        x.d = to.back;
        x.list = static_cast<uint32_t>(kernel.lists.size());
        if (in.size() > at + 1)
            for (const std::string &argument : split(in[at + 1].substr(1, in[at + 1].size() - 2), ',')) {
                if (x.count >= to.parameters.size() || !locals.count(argument)) wrong("arguments of a call");
                const auto &parameter = to.parameters[x.count++];
                kernel.lists.push_back(static_cast<Operand>(locals[argument] - local_begin));
                kernel.lists.push_back(static_cast<Operand>(parameter.first - local_begin));
                kernel.lists.push_back(static_cast<Operand>(parameter.second));
            }
        emit(x);
        if (!at) return x.op = opcodes, true;
        x.op = I_copy;
        x.count = 1;
        x.d = no_operand;
        x.list = static_cast<uint32_t>(kernel.lists.size());
        kernel.lists.push_back(static_cast<Operand>(to.result.first - local_begin));
        kernel.lists.push_back(static_cast<Operand>(locals[in[0].substr(1, in[0].size() - 2)] - local_begin));
        kernel.lists.push_back(static_cast<Operand>(to.result.second));
    } else if (name[0] == "ret" || name[0] == "exit") {
        x.op = I_ret;
        if (inside && name[0] == "ret") {
            x.op = I_leave;
            x.d = inside->back;
        }
    } else if (name[0] == "trap") {
        x.op = I_trap;
    } else if (name[0] == "fence" && has(name, "proxy")) {
        if (!has(name, "async") || !(name.size() == 3 || name[3] == "shared::cta")) return false;
        x.op = I_fence_proxy;
    } else if (name[0] == "membar" || name[0] == "fence") {
        x.op = I_fence;
    } else if (name[0] == "bar" && has(name, "warp")) {
        x.op = I_bar_warp;
        x.a = operand(in[0], 4);
    } else if ((name[0] == "bar" || name[0] == "barrier") && has(name, "sync")) {
        if (in.size() != 1 || in[0] != "0") return false; /* the barrier 0, of all threads */
        x.op = I_bar_sync;
    } else if (name[0] == "bar" && has(name, "red") && has(name, "popc")) {
        if (in.size() != 3 || in[1] != "0") return false;
        x.op = I_bar_red;
        x.d = operand(in[0], 4);
        x.a = operand(in[2], 0);
    } else {
        return false;
    }
    return true;
}

/* mov, cvta, bfi, and selp of any type. */
bool Decoder::moves(const Words &name, const Words &in, Instruction &x)
{
    const std::string &type = name.back();
    if (name[0] == "mov" && type != "pred") {
        x.op = I_mov;
        x.bytes = static_cast<uint8_t>(bytes_of_type(type));
        bool to = in[0][0] == '{', from = in[1][0] == '{';
        if (!to) x.d = operand(in[0], x.bytes);
        if (!from) x.a = operand(in[1], x.bytes);
        if (to || from) {
            const std::string &vector = in[to ? 0 : 1];
            uint32_t count = static_cast<uint32_t>(split(vector.substr(1, vector.size() - 2), ',').size());
            x.list = add_list(vector, x.bytes / count, x);
            x.kind = to ? 1 : 2;
        }
    } else if (name[0] == "cvta") {
        x.op = I_cvta;
        x.space = space_of(name);
        x.kind = name[1] == "to";
        x.d = operand(in[0], 8);
        x.a = operand(in[1], 8);
    } else if (name[0] == "bfi") {
        x.op = I_bfi;
        x.bytes = static_cast<uint8_t>(bytes_of_type(type));
        x.d = operand(in[0], x.bytes);
        x.a = operand(in[1], x.bytes);
        x.b = operand(in[2], x.bytes);
        x.list = static_cast<uint32_t>(kernel.lists.size());
        kernel.lists.push_back(operand(in[3], 4));
        x.c = operand(in[4], 4);
    } else {
        return false;
    }
    return true;
}

void Decoder::instruction(std::string text)
{
    Instruction x;
    named.clear();
    x.line = static_cast<uint32_t>(line);
    x.op = opcodes;
    if (text[0] == '@') {
        size_t end = text.find_first_of(" \t");
        x.unless = text[1] == '!';
        x.guard = register_of(text.substr(x.unless ? 2 : 1, end - (x.unless ? 2 : 1))).at;
        text = text.substr(text.find_first_not_of(" \t", end));
    }
    size_t end = text.find_first_of(" \t\n");
    std::string name = text.substr(0, end);
    Words words = split(name, '.'), in = end == std::string::npos ? Words{} : split(text.substr(end), ',');
    std::string joined;
    for (const std::string &w : words) joined += (joined.empty() ? "" : "_") + w;
    if (words[0] == "selp") joined = "selp_b" + words.back().substr(1);

    auto row = rows().find(joined);
    if (row != rows().end() && row->second.inputs) {
        const Row &r = row->second;
        x.op = r.op;
        if (in.size() != size_t(r.inputs) + 1) wrong("operands of " + text);
        Operand *places[] = {&x.d, &x.a, &x.b, &x.c};
        for (size_t i = 0; i <= r.inputs; ++i) *places[i] = operand(in[i], r.widths[i], r.strided);
        if (x.b == no_operand) x.b = x.a; /* not, mov of a predicate */
        if (r.strided) {
            Register to = register_of(in[0]), from = {0, r.widths[1]};
            find_register(in[1], &from);
            x.bytes = static_cast<uint8_t>(to.bytes);
            x.from_bytes = static_cast<uint8_t>(from.bytes);
        }
        emit(x);
    } else if (memory(words, in, x) || warp(words, in, x) || warpgroup(words, in, x) || flow(words, in, x) ||
               moves(words, in, x)) {
        if (x.op != opcodes) emit(x);
    } else {
        unknown(name);
        x.op = I_trap;
        emit(x);
    }
}

void Decoder::directive(const std::string &text)
{
    char type[16], name[512];
    unsigned count;
    if (sscanf(text.c_str(), ".reg .%15[a-z0-9] %511[^< \t;]", type, name) == 2) {
        uint32_t bytes = bytes_of_type(type);
        size_t less = text.find('<');
        if (less == std::string::npos) {
            for (const std::string &single : split(text.substr(text.find(name)), ','))
                names[single] = {new_register(bytes), bytes};
            return;
        }
        sscanf(text.c_str() + less, "<%u>", &count);
        Register first = {new_register(bytes), bytes};
        families[name] = {first, count};
        for (unsigned i = 1; i < count; ++i) new_register(bytes);
        return;
    }
    for (const char *space : {".local ", ".param ", ".shared "}) {
        if (text.compare(0, strlen(space), space)) continue;
        Variable v = variable(text.substr(strlen(space)));
        if (space[1] == 's') {
            add_shared(v.name, v.alignment, v.bytes);
        } else {
            locals[v.name] = new_local(v.bytes, v.alignment);
            local_sizes[v.name] = v.bytes;
        }
        return;
    }
}

/* The statements of a function, from its first brace to the last. */
void Decoder::body(const Module::Place &place)
{
    const std::string &text = module.text();
    size_t at = place.body;
    line = place.line;
    counted = at;
    for (int depth = 1; depth > 0;) {
        while (isspace(static_cast<unsigned char>(text[at]))) ++at;
        for (; counted < at; ++counted)
            if (text[counted] == '\n') ++line;
        if (text[at] == '{') {
            ++depth, ++at;
            continue;
        }
        if (text[at] == '}') {
            --depth, ++at;
            continue;
        }
        size_t end = at;
        while (name_char(text[end])) ++end;
        if (end > at && text[end] == ':') {
            labels[text.substr(at, end - at)] = kernel.code.size();
            at = end + 1;
            continue;
        }
        end = text.find(';', at);
        if (end == std::string::npos) wrong("the end of the file");
        std::string statement = text.substr(at, end - at);
        if (statement.empty()) wrong("an empty statement");
        if (statement[0] == '.') directive(statement);
        else instruction(statement);
        at = end + 1;
    }
}

/* A whole function: its parameters, its statements.  The kernel comes first; a function that it calls is decoded when
   the call is met, with registers and memory of its own, and put behind it. */
void Decoder::all(const Module::Place &place)
{
    const std::string &text = module.text();
    const std::string header = text.substr(place.header, text.find_first_of("{", place.header) - place.header);
    std::vector<Variable> found;
    Variable result;
    for (size_t at = 0; (at = header.find(".param", at)) != std::string::npos; at += 6) {
        Variable v = variable(header.substr(at + 6));
        if (place.result && at < header.find(')')) result = v;
        else found.push_back(v);
    }
    if (place.entry) {
        for (const Variable &v : found) {
            uint32_t at = round_up(kernel.parameter_bytes, v.alignment);
            kernel.parameters.push_back({v.name, at, v.bytes});
            kernel.parameter_bytes = at + v.bytes;
        }
        body(place);
        return;
    }
    for (auto &c : called) {
        if (&module.functions_[c.first] != &place) continue;
        for (const Variable &v : found) c.second.parameters.push_back({new_local(v.bytes, v.alignment), v.bytes});
        if (result.bytes) c.second.result = {new_local(result.bytes, result.alignment), result.bytes};
        c.second.back = new_register(4);
    }
}

const std::unordered_map<std::string, Row> &rows()
{
    typedef uint8_t u8, s8;
    typedef uint16_t u16, s16;
    typedef uint32_t u32, s32, f32;
    typedef uint64_t u64, s64, f64;
    static std::unordered_map<std::string, Row> table;
    if (!table.empty()) return table;
#define PTX_W(T) static_cast<uint8_t>(sizeof(T))
#define PTX_UNARY(name, R, A, rule) table[#name] = {#name, I_##name, 1, {PTX_W(R), PTX_W(A), 0, 0}, false};
#define PTX_BINARY(name, R, A, B, rule) table[#name] = {#name, I_##name, 2, {PTX_W(R), PTX_W(A), PTX_W(B), 0}, false};
#define PTX_TERNARY(name, R, A, B, C, rule) \
    table[#name] = {#name, I_##name, 3, {PTX_W(R), PTX_W(A), PTX_W(B), PTX_W(C)}, false};
#define PTX_CONVERT(name, R, A, rule) table[#name] = {#name, I_##name, 1, {PTX_W(R), PTX_W(A), 0, 0}, true};
#define PTX_COMPARE(name, A, rule) table[#name] = {#name, I_##name, 2, {0, PTX_W(A), PTX_W(A), 0}, false};
#define PTX_LOGIC(name, rule) table[#name] = {#name, I_##name, 2, {0, 0, 0, 0}, false};
#define PTX_CHOOSE(name, T) table[#name] = {#name, I_##name, 3, {PTX_W(T), PTX_W(T), PTX_W(T), 0}, false};
#define PTX_CARRY(name, T, n, rule) \
    table[#name] = {#name, I_##name, n, {PTX_W(T), PTX_W(T), PTX_W(T), PTX_W(T)}, false};
#define PTX_OTHER(name)
    PTX_TABLE(PTX_UNARY, PTX_BINARY, PTX_TERNARY, PTX_CONVERT, PTX_COMPARE, PTX_LOGIC, PTX_CHOOSE, PTX_CARRY, PTX_OTHER)
    table["not_pred"].inputs = table["mov_pred"].inputs = 1;
    return table;
}

/* Where the dynamic memory begins is known only now: the constants that hold its address are corrected.  It begins at
   an odd multiple of its alignment, so that who needs more than that is found. */
static void place_dynamic(Kernel &kernel, const std::map<std::pair<uint64_t, uint32_t>, Operand> &constants)
{
    if (!kernel.has_dynamic) return;
    const uint32_t alignment = kernel.dynamic_alignment, first = static_cast<uint32_t>(shared_begin);
    uint32_t begin = round_up(first + kernel.shared_bytes, alignment) - first;
    if ((first + begin) / alignment % 2 == 0) begin += alignment;
    for (SharedVariable &v : kernel.shared)
        if (!v.bytes) v.at = begin;
    for (const auto &c : constants) {
        const uint64_t offset = c.first.first - shared_begin - Decoder::dynamic_at;
        if (offset != 0 || c.first.second < 4) continue;
        const uint64_t address = shared_begin + begin;
        for (uint32_t l = 0; l < lanes; ++l)
            memcpy(&kernel.constants[static_cast<size_t>(~c.second) + l * c.first.second], &address, c.first.second);
    }
    kernel.shared_bytes = begin;
}

const Kernel *Module::kernel(const std::string &name)
{
    auto known = kernels_.find(name);
    if (known != kernels_.end()) return known->second.get();
    auto place = functions_.find(name);
    if (place == functions_.end() || !place->second.entry) return nullptr;
    std::unique_ptr<Kernel> kernel(new Kernel);
    kernel->name = name;
    const size_t bound = text_.find(".maxntid ", place->second.header), brace = text_.find('{', place->second.header);
    unsigned x = 1, y = 1, z = 1;
    if (bound < brace && sscanf(&text_[bound], ".maxntid %u, %u, %u", &x, &y, &z) > 0) kernel->most_threads = x * y * z;
    Decoder decoder(*this, *kernel);
    decoder.all(place->second);
    auto link = [&] {
        for (const auto &b : decoder.branches) {
            auto target = decoder.labels.find(b.second);
            if (target == decoder.labels.end()) throw Fault{"no label " + b.second};
            kernel->code[b.first].number = static_cast<int64_t>(target->second);
        }
        decoder.branches.clear();
        decoder.labels.clear();
    };
    link();
    for (bool more = true; more;) {
        more = false;
        for (auto &c : decoder.called) {
            if (c.second.done) continue;
            const Module::Place &function = functions_[c.first];
            more = c.second.done = true;
            c.second.begin = kernel->code.size();
            decoder.inside = &c.second;
            decoder.names.clear();
            decoder.families.clear();
            decoder.locals.clear();
            const std::string header = text_.substr(function.header, function.body - function.header);
            size_t number = 0;
            for (size_t at = 0; (at = header.find(".param", at)) != std::string::npos; at += 6) {
                Variable v = variable(header.substr(at + 6));
                bool result = function.result && at < header.find(')');
                decoder.locals[v.name] = result ? c.second.result.first : c.second.parameters[number++].first;
            }
            decoder.body(function);
            link();
            break; /* the map may have grown */
        }
    }
    for (const auto &c : decoder.calls)
        kernel->code[c.first].number = static_cast<int64_t>(decoder.called[c.second].begin);
    uint32_t before = 0; /* of several instructions in a line the first one counts all of its machine instructions */
    for (Instruction &each : kernel->code) {
        if (!machine_.empty()) each.machine = each.line == before ? 0 : machine_[each.line];
        before = each.line;
    }
    find_touched(*kernel);
    place_dynamic(*kernel, decoder.constants);
    return (kernels_[name] = std::move(kernel)).get();
}
} // namespace ptx
