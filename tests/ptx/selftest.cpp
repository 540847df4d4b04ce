/* Tests the interpreter of PTX: each row of its table against formulas of plain C++ that are written in another way,
   the other instructions by small kernels, and mistakes in kernels, each of which must be found. */
#include "ptx.h"

#include <cfloat>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <set>

#include <unistd.h>

using namespace ptx::types;

static int checked, failed;
static std::set<std::string> tested; /* rows of the table */

static u64 random_state = 42;
static u64 random_bits()
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* ---- running a kernel ---- */

/* One allocation; of its bytes those where `written` is 0 were never written, if it is used. */
struct Buffer : ptx::Memory {
    std::vector<u64> words;
    std::vector<u8> written;
    explicit Buffer(size_t bytes) : words((bytes + 7) / 8) {}
    char *data() { return reinterpret_cast<char *>(words.data()); }
    ptx::Range reach(uint64_t address, size_t bytes, bool) override
    {
        const u64 begin = reinterpret_cast<uintptr_t>(words.data()), end = begin + 8 * words.size();
        if (address < begin || address + bytes > end) throw ptx::Fault{"out of the buffer"};
        return {begin, end, written.empty() ? nullptr : written.data()};
    }
};

/* Runs `body` as a kernel with one parameter, the address of the buffer, which is in %rd1; returns the fault, or "".
   Predicates %p, words %h of 16 bits, %r, %f of 32, %d (f64) and %rd of 64 may be used; %r1 is the number of the thread
   in its block, %r2 in the grid. */
static std::string run(const std::string &body, Buffer &buffer, u32 blocks = 1, u32 threads = 32, u32 dynamic = 0,
                       u64 seed = 1, const std::string &before = "")
{
    const std::string text = ".version 8.0\n.target sm_80\n.address_size 64\n" + before +
                             ".extern .shared .align 1024 .b8 dynamic[];\n"
                             ".visible .entry k(\n.param .u64 k_param_0\n)\n{\n.reg .pred %p<20>;\n.reg .b16 %h<20>;\n"
                             ".reg .b32 %r<60>;\n.reg .f32 %f<140>;\n.reg .f64 %d<20>;\n.reg .b64 %rd<60>;\n"
                             "ld.param.u64 %rd1, [k_param_0];\nmov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\n"
                             "mov.u32 %r3, %ntid.x;\nmad.lo.s32 %r2, %r2, %r3, %r1;\n" +
                             body + "\nret;\n}\n";
    const u64 parameter = reinterpret_cast<uintptr_t>(buffer.data());
    try {
        ptx::Module module(text);
        ptx::Launch launch;
        launch.grid[0] = blocks;
        launch.block[0] = threads;
        launch.dynamic_bytes = dynamic;
        launch.parameters = &parameter;
        launch.memory = &buffer;
        launch.seed = seed;
        ptx::run(module, *module.kernel("k"), launch);
    } catch (const ptx::Fault &fault) {
        return fault.text.empty() ? "?" : fault.text;
    }
    return "";
}

static void expect(bool right, const std::string &what)
{
    ++checked;
    if (right) return;
    ++failed;
    printf("FAILED %s\n", what.c_str());
}

/* ---- one instruction at a time ---- */

template <class T> struct Type;
#define TYPE(T, plain, reg, load)                      \
    template <> struct Type<T> {                       \
        static const char *name() { return plain; }    \
        static const char *registers() { return reg; } \
        static const char *memory() { return load; }   \
    };
TYPE(u8, "u8", "%h", "u8")
TYPE(s8, "s8", "%h", "s8")
TYPE(u16, "u16", "%h", "u16")
TYPE(s16, "s16", "%h", "s16")
TYPE(u32, "u32", "%r", "u32")
TYPE(s32, "s32", "%r", "s32")
TYPE(u64, "u64", "%rd", "u64")
TYPE(s64, "s64", "%rd", "s64")
TYPE(f32, "f32", "%f", "f32")
TYPE(f64, "f64", "%d", "f64")
TYPE(bool, "pred", "%p", "")

/* Values at the edges of the type, and random ones. */
template <class T> static T value()
{
    static const s64 edges[] = {0,     1,     2,      3,      7,         15,        16,        31,
                                32,    33,    63,     64,     127,       128,       255,       256,
                                32767, 32768, 65535,  65536,  INT32_MAX, INT32_MIN, -1,        -2,
                                -128,  -129,  -32768, -32769, INT64_MAX, INT64_MIN, UINT32_MAX};
    const u64 r = random_bits();
    if (r % 2) return static_cast<T>(edges[r / 2 % (sizeof edges / sizeof *edges)]);
    return static_cast<T>(random_bits() >> r / 2 % 64);
}
template <class T> static T real()
{
    static const T edges[] = {0,
                              T(-0.0),
                              1,
                              -1,
                              T(0.5),
                              T(1.5),
                              T(2.5),
                              T(-2.5),
                              T(3.4999),
                              8388608,
                              T(1e9),
                              T(-3e9),
                              T(1e20),
                              T(-1e20),
                              INFINITY,
                              -INFINITY,
                              NAN,
                              std::numeric_limits<T>::max(),
                              std::numeric_limits<T>::min(),
                              std::numeric_limits<T>::denorm_min(),
                              T(-1e-39),
                              T(65504),
                              T(65519.9),
                              T(65520),
                              T(6.1e-5),
                              T(5.9e-8),
                              T(2.9e-8)};
    const u64 r = random_bits();
    if (r % 2) return edges[r / 2 % (sizeof edges / sizeof *edges)];
    T x;
    const u64 any = random_bits();
    if (r % 4)
        return static_cast<T>(static_cast<s64>(any)) *
               std::ldexp(T(1), -static_cast<int>(r / 4 % 80)); /* of common sizes */
    memcpy(&x, &any, sizeof x);
    return x;
}
template <> f32 value<f32>() { return real<f32>(); }
template <> f64 value<f64>() { return real<f64>(); }
template <> bool value<bool>() { return random_bits() & 1; }

template <class T> static bool equal(T a, T b, s64) { return a == b; }
/* ulps: how far apart two numbers may be */
static bool equal(f32 a, f32 b, s64 ulps)
{
    if (a != a || b != b) return a != a && b != b;
    s32 x, y;
    memcpy(&x, &a, 4);
    memcpy(&y, &b, 4);
    return x == y || (ulps && (x < 0) == (y < 0) && std::abs(static_cast<s64>(x) - y) <= ulps);
}
static bool equal(f64 a, f64 b, s64 ulps)
{
    if (a != a || b != b) return a != a && b != b;
    s64 x, y;
    memcpy(&x, &a, 8);
    memcpy(&y, &b, 8);
    return x == y || (ulps && (x < 0) == (y < 0) && std::llabs(x - y) <= ulps);
}

/* The statements that put operand i of a thread's slot of 32 bytes, at %rd2, into a register. */
template <class T> static std::string fetch(int i)
{
    const std::string number = std::to_string(i), at = "[%rd2+" + std::to_string(8 * (i - 1)) + "];\n";
    if (std::is_same<T, bool>::value)
        return "ld.global.u8 %h1" + number + ", " + at + "setp.ne.s16 %p1" + number + ", %h1" + number + ", 0;\n";
    return std::string("ld.global.") + Type<T>::memory() + " " + Type<T>::registers() + "1" + number + ", " + at;
}

/* Compares the instruction `name` of up to three operands with a formula, on 4,096 threads. */
template <class R, class A, class B, class C, class F>
static void instruction(std::string name, int inputs, F formula, s64 ulps)
{
    std::string row = name;
    for (char &c : row)
        if (c == '.') c = '_';
    if (!ptx::rows().count(row)) return;
    tested.insert(row);
    const u32 n = 4096;
    Buffer buffer(32 * n);
    std::vector<A> a(n);
    std::vector<B> b(n);
    std::vector<C> c(n);
    for (u32 i = 0; i < n; ++i) {
        a[i] = value<A>();
        b[i] = i % 8 ? value<B>() : static_cast<B>(a[i]);
        c[i] = value<C>();
        const A x = a[i];
        const B y = b[i];
        const C z = c[i];
        memcpy(buffer.data() + 32 * i, &x, sizeof x);
        memcpy(buffer.data() + 32 * i + 8, &y, sizeof y);
        memcpy(buffer.data() + 32 * i + 16, &z, sizeof z);
    }
    std::string text = "mul.wide.u32 %rd2, %r2, 32;\nadd.s64 %rd2, %rd2, %rd1;\n" + fetch<A>(1);
    if (inputs > 1) text += fetch<B>(2);
    if (inputs > 2) text += fetch<C>(3);
    text += name + " " + Type<R>::registers() + "14, " + Type<A>::registers() + "11";
    if (inputs > 1) text += std::string(", ") + Type<B>::registers() + "12";
    if (inputs > 2) text += std::string(", ") + Type<C>::registers() + "13";
    text += ";\n";
    if (std::is_same<R, bool>::value) text += "selp.u16 %h14, 1, 0, %p14;\nst.global.u8 [%rd2+24], %h14;";
    else text += std::string("st.global.") + Type<R>::memory() + " [%rd2+24], " + Type<R>::registers() + "14;";
    const std::string fault = run(text, buffer, n / 256, 256);
    expect(fault.empty(), name + ": " + fault);
    if (!fault.empty()) return;
    int wrong = 0;
    for (u32 i = 0; i < n; ++i) {
        R got, want = formula(a[i], b[i], c[i]);
        memcpy(&got, buffer.data() + 32 * i + 24, sizeof got);
        if (!equal(got, want, ulps) && !wrong++)
            printf("%s of %.9g, %.9g, %.9g: %.17g, not %.17g\n", name.c_str(), static_cast<f64>(a[i]),
                   static_cast<f64>(b[i]), static_cast<f64>(c[i]), static_cast<f64>(got), static_cast<f64>(want));
    }
    expect(!wrong, name);
}
template <class R, class A, class F> static void one(const std::string &name, F f, s64 ulps = 0)
{
    instruction<R, A, u8, u8>(
        name, 1, [f](A a, u8, u8) -> R { return static_cast<R>(f(a)); }, ulps);
}
template <class R, class A, class B, class F> static void two(const std::string &name, F f, s64 ulps = 0)
{
    instruction<R, A, B, u8>(
        name, 2, [f](A a, B b, u8) -> R { return static_cast<R>(f(a, b)); }, ulps);
}
template <class R, class A, class B, class C, class F> static void three(const std::string &name, F f, s64 ulps = 0)
{
    instruction<R, A, B, C>(
        name, 3, [f](A a, B b, C c) -> R { return static_cast<R>(f(a, b, c)); }, ulps);
}

/* Whole numbers, by arithmetic of 128 bits. */
template <class T, class Wide, class Double> static void whole_numbers()
{
    const std::string type = std::string(".") + Type<T>::name();
    const int n = sizeof(T) * 8;
    two<T, T, T>("add" + type, [](Wide a, Wide b) { return a + b; });
    two<T, T, T>("sub" + type, [](Wide a, Wide b) { return a - b; });
    two<T, T, T>("mul.lo" + type, [](Wide a, Wide b) { return a * b; });
    two<T, T, T>("mul.hi" + type, [](Wide a, Wide b) { return a * b >> n; });
    if (n < 64) two<Double, T, T>("mul.wide" + type, [](Wide a, Wide b) { return a * b; });
    three<T, T, T, T>("mad.lo" + type, [](Wide a, Wide b, Wide c) { return a * b + c; });
    if (n < 64) three<Double, T, T, Double>("mad.wide" + type, [](Wide a, Wide b, Wide c) { return a * b + c; });
    two<T, T, T>("div" + type, [](Wide a, Wide b) { return b ? a / b : ~Wide(0); });
    two<T, T, T>("rem" + type, [](Wide a, Wide b) { return b ? a % b : a; });
    two<T, T, T>("min" + type, [](Wide a, Wide b) { return a < b ? a : b; });
    two<T, T, T>("max" + type, [](Wide a, Wide b) { return a < b ? b : a; });
    one<T, T>("abs" + type, [](Wide a) { return a > 0 ? a : 0 - a; });
    one<T, T>("neg" + type, [](Wide a) { return 0 - a; });
    two<T, T, u32>("shr" + type, [](T a, u32 b) {
        Wide x = a;
        for (u32 i = 0; i < b && i < 64; ++i) x = x >= 0 ? x / 2 : -((1 - x) / 2);
        return x;
    });
    static const char *const names[] = {"eq", "ne", "lt", "le", "gt", "ge"};
    for (int i = 0; i < 6; ++i)
        two<bool, T, T>(std::string("setp.") + names[i] + type, [i](Wide a, Wide b) {
            const int order = a < b ? -1 : a > b;
            const bool results[] = {order == 0, order != 0, order<0, order <= 0, order> 0, order >= 0};
            return results[i];
        });
}
template <class T> static void bits()
{
    const int n = sizeof(T) * 8;
    const std::string type = ".b" + std::to_string(n);
    auto by_bit = [](T a, T b,
                     int table) { /* bit 2 x + y of the table: the result for the bits x and y */
                                  T r = 0;
                                  for (int i = 0; i < n; ++i)
                                      r = static_cast<T>(
                                          r | static_cast<T>(
                                                  static_cast<T>(table >> (2 * (a >> i & 1) + (b >> i & 1)) & 1) << i));
                                  return r;
    };
    two<T, T, T>("and" + type, [by_bit](T a, T b) { return by_bit(a, b, 8); });
    two<T, T, T>("or" + type, [by_bit](T a, T b) { return by_bit(a, b, 14); });
    two<T, T, T>("xor" + type, [by_bit](T a, T b) { return by_bit(a, b, 6); });
    one<T, T>("not" + type, [by_bit](T a) { return by_bit(a, 0, 1); });
    two<T, T, u32>("shl" + type, [](T a, u32 b) {
        for (u32 i = 0; i < b && i < 64; ++i) a = static_cast<T>(a + a);
        return a;
    });
    three<T, T, T, bool>("selp" + type, [](T a, T b, bool c) { return c ? a : b; });
    two<bool, T, T>("setp.eq" + type, [](T a, T b) { return a == b; });
    two<bool, T, T>("setp.ne" + type, [](T a, T b) { return a != b; });
    one<u32, T>("popc" + type, [](T a) {
        int r = 0;
        for (; a; a = static_cast<T>(a & (a - 1))) ++r;
        return r;
    });
    one<u32, T>("clz" + type, [](T a) {
        int r = n;
        for (; a; a >>= 1) --r;
        return r;
    });
}

/* x + c rounded down to a float, or towards zero. */
__extension__ typedef __float128 f128;
static f32 down(f128 x, f128 c, bool zero)
{
    const f128 sum = x + c, part = sum - x, error = (x - (sum - part)) + (c - part);
    const f32 f = static_cast<f32>(sum);
    if (std::isnan(f) || sum != sum || std::isinf(static_cast<f64>(sum))) return f;
    const f128 over = f - sum - error;
    if (zero && (sum < 0 || (sum == 0 && error < 0))) return over < 0 ? std::nextafterf(f, INFINITY) : f;
    return over > 0 ? std::nextafterf(f, -INFINITY) : f;
}
static f32 flushed(f32 x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

template <class T> static void comparisons()
{
    static const char *const names[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                        "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
    for (int i = 0; i < 14; ++i)
        two<bool, T, T>(std::string("setp.") + names[i] + "." + Type<T>::name(), [i](T a, T b) {
            const bool nan = std::isnan(a) || std::isnan(b), less = std::isless(a, b), more = std::isgreater(a, b);
            const bool same = !nan && !less && !more;
            const bool results[] = {same, less || more, less, less || same, more, more || same};
            return i == 12 ? !nan : i == 13 ? nan : results[i % 6] || (i >= 6 && nan);
        });
}
template <class T, class Long> static void floats()
{
    const std::string type = std::string(".") + Type<T>::name();
    for (const char *rounding : {"", ".rn"}) {
        two<T, T, T>("add" + (rounding + type), [](T a, T b) { return T(Long(a) + Long(b)); });
        two<T, T, T>("sub" + (rounding + type), [](T a, T b) { return T(Long(a) - Long(b)); });
        two<T, T, T>("mul" + (rounding + type), [](T a, T b) { return T(Long(a) * Long(b)); });
    }
    three<T, T, T, T>("fma.rn" + type, [](T a, T b, T c) { return std::fma(a, b, c); });
    two<T, T, T>("div.rn" + type, [](T a, T b) { return T(Long(a) / Long(b)); });
    one<T, T>("rcp.rn" + type, [](T a) { return T(Long(1) / Long(a)); });
    one<T, T>("sqrt.rn" + type, [](T a) { return std::sqrt(a); });
    one<T, T>("neg" + type, [](T a) { return std::copysign(a, std::signbit(a) ? T(1) : T(-1)); });
    one<T, T>("abs" + type, [](T a) { return std::copysign(a, T(1)); });
    two<T, T, T>("copysign" + type, [](T a, T b) { return std::signbit(a) == std::signbit(b) ? b : -b; });
    two<T, T, T>("min" + type, [](T a, T b) {
        return std::isnan(a) ? b : std::isnan(b) ? a : a == b ? (std::signbit(a) ? a : b) : std::fmin(a, b);
    });
    two<T, T, T>("max" + type, [](T a, T b) {
        return std::isnan(a) ? b : std::isnan(b) ? a : a == b ? (std::signbit(a) ? b : a) : std::fmax(a, b);
    });
    one<T, T>("cvt.rni" + (type + type), [](T a) { return std::nearbyint(a); });
    one<T, T>("cvt.rzi" + (type + type), [](T a) { return std::trunc(a); });
    one<T, T>("cvt.rmi" + (type + type), [](T a) { return std::floor(a); });
    one<T, T>("cvt.rpi" + (type + type), [](T a) { return std::ceil(a); });
    comparisons<T>();
}

template <class To, class From> static void between_whole()
{
    one<To, From>(std::string("cvt.") + Type<To>::name() + "." + Type<From>::name(),
                  [](From a) { return static_cast<To>(a); });
}
template <class From> static void from_whole()
{
    between_whole<u16, From>(), between_whole<s16, From>(), between_whole<u32, From>(), between_whole<s32, From>();
    between_whole<u64, From>(), between_whole<s64, From>();
    one<f32, From>(std::string("cvt.rn.f32.") + Type<From>::name(),
                   [](From a) { return static_cast<f32>(static_cast<long double>(a)); });
    one<f64, From>(std::string("cvt.rn.f64.") + Type<From>::name(),
                   [](From a) { return static_cast<f64>(static_cast<long double>(a)); });
}
template <class To, class From> static void to_whole()
{
    const std::string types = std::string(".") + Type<To>::name() + "." + Type<From>::name();
    auto limited = [](long double x) -> To {
        const long double low = std::numeric_limits<To>::min(), high = std::numeric_limits<To>::max();
        return x != x     ? 0
               : x < low  ? std::numeric_limits<To>::min()
               : x > high ? std::numeric_limits<To>::max()
                          : static_cast<To>(x);
    };
    one<To, From>("cvt.rzi" + types, [limited](From a) { return limited(std::trunc(static_cast<long double>(a))); });
    one<To, From>("cvt.rni" + types,
                  [limited](From a) { return limited(std::nearbyint(static_cast<long double>(a))); });
}
/* The 16-bit float nearest to x, found among all of them; of two the even one. */
static u16 nearest(f64 x, bool bf16)
{
    const int most = bf16 ? 0x7f80 : 0x7c00;
    auto number = [bf16](int code) { /* infinity counts as the number that would follow the largest one */
                                     const int digits = bf16 ? 7 : 10, exponent = code >> digits,
                                               fraction = code & ((1 << digits) - 1);
                                     return std::ldexp(exponent ? (1 << digits) + fraction : fraction,
                                                       (exponent ? exponent : 1) - (bf16 ? 127 : 15) - digits);
    };
    if (x != x) return 0x7fff;
    const f64 size = std::fabs(x);
    int low = 0, high = most;
    while (high - low > 1) (number((low + high) / 2) <= size ? low : high) = (low + high) / 2;
    const f64 below = size - number(low), above = number(high) - size;
    int code = size >= number(most) || above < below || (above == below && low % 2) ? high : low;
    return static_cast<u16>(code | (std::signbit(x) ? 0x8000 : 0));
}
static f32 number_of(u16 code, bool bf16)
{
    const int digits = bf16 ? 7 : 10, exponents = bf16 ? 255 : 31, exponent = code >> digits & exponents,
              fraction = code & ((1 << digits) - 1);
    f32 x = exponent == exponents
                ? (fraction ? NAN : INFINITY)
                : static_cast<f32>(std::ldexp(exponent ? (1 << digits) + fraction : fraction,
                                              (exponent ? exponent : 1) - (bf16 ? 127 : 15) - digits));
    return code & 0x8000 ? -x : x;
}

static void conversions()
{
    from_whole<u8>(), from_whole<s8>(), from_whole<u16>(), from_whole<s16>();
    from_whole<u32>(), from_whole<s32>(), from_whole<u64>(), from_whole<s64>();
    to_whole<s32, f32>(), to_whole<u32, f32>(), to_whole<s64, f32>(), to_whole<u64, f32>();
    to_whole<s32, f64>(), to_whole<u32, f64>(), to_whole<s64, f64>(), to_whole<u64, f64>();
    one<f64, f32>("cvt.f64.f32", [](f32 a) { return a; });
    one<f32, f64>("cvt.rn.f32.f64", [](f64 a) { return static_cast<f32>(a); });
    one<f32, f32>("cvt.sat.f32.f32", [](f32 a) { return std::isnan(a) || a <= 0 ? 0.0f : std::fmin(a, 1.0f); });
    one<f32, u16>("cvt.f32.f16", [](u16 a) { return number_of(a, false); });
    one<f32, u16>("cvt.f32.bf16", [](u16 a) { return number_of(a, true); });
    one<u16, f32>("cvt.rn.f16.f32", [](f32 a) { return nearest(a, false); });
    one<u16, f64>("cvt.rn.f16.f64", [](f64 a) { return nearest(a, false); });
    one<u16, f32>("cvt.rn.bf16.f32", [](f32 a) { return nearest(a, true); });
    two<u32, f32, f32>("cvt.rn.f16x2.f32",
                       [](f32 a, f32 b) { return u32(nearest(a, false)) << 16 | nearest(b, false); });
    two<u32, f32, f32>("cvt.rn.bf16x2.f32",
                       [](f32 a, f32 b) { return u32(nearest(a, true)) << 16 | nearest(b, true); });
}

static f64 flushed64(f64 x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0, x) : x; }

static void special_functions()
{
    typedef long double Long;
    two<f32, f32, f32>("add.rz.f32", [](f32 a, f32 b) { return down(a, b, true); });
    three<f32, f32, f32, f32>("fma.rm.f32",
                              [](f32 a, f32 b, f32 c) { return down(static_cast<f128>(a) * b, c, false); });
    three<f32, f32, f32, f32>("fma.rz.f32",
                              [](f32 a, f32 b, f32 c) { return down(static_cast<f128>(a) * b, c, true); });
    two<f32, f32, f32>("div.approx.f32", [](f32 a, f32 b) { return a / b; });
    two<f32, f32, f32>("div.approx.ftz.f32", [](f32 a, f32 b) { return flushed(flushed(a) / flushed(b)); });
    one<f32, f32>("rcp.approx.ftz.f32", [](f32 a) { return flushed(1 / flushed(a)); });
    one<f32, f32>(
        "rsqrt.approx.f32", [](f32 a) { return 1 / std::sqrt(Long(a)); }, 1);
    one<f32, f32>(
        "rsqrt.approx.ftz.f32", [](f32 a) { return flushed(static_cast<f32>(1 / std::sqrt(Long(flushed(a))))); }, 1);
    one<f32, f32>(
        "ex2.approx.f32", [](f32 a) { return std::exp2(Long(a)); }, 1);
    one<f32, f32>(
        "ex2.approx.ftz.f32", [](f32 a) { return flushed(static_cast<f32>(std::exp2(Long(flushed(a))))); }, 1);
    one<f32, f32>(
        "lg2.approx.f32", [](f32 a) { return std::log2(Long(a)); }, 1);
    one<f32, f32>(
        "lg2.approx.ftz.f32", [](f32 a) { return std::log2(Long(flushed(a))); }, 1);
    /* right to 2^-18 at least */
    one<f64, f64>(
        "rcp.approx.ftz.f64", [](f64 a) { return flushed64(1 / flushed64(a)); }, s64(1) << 34);
    one<f64, f64>(
        "rsqrt.approx.ftz.f64", [](f64 a) { return 1 / std::sqrt(flushed64(a)); }, s64(1) << 34);
}

static void other_rows()
{
    two<bool, bool, bool>("and.pred", [](bool a, bool b) { return a && b; });
    two<bool, bool, bool>("or.pred", [](bool a, bool b) { return a || b; });
    two<bool, bool, bool>("xor.pred", [](bool a, bool b) { return a != b; });
    one<bool, bool>("not.pred", [](bool a) { return !a; });
    one<bool, bool>("mov.pred", [](bool a) { return a; });
    three<u32, u32, u32, u32>("shf.l.wrap.b32",
                              [](u32 a, u32 b, u32 c) { return c & 31 ? b << (c & 31) | a >> (32 - (c & 31)) : b; });
    three<u32, u32, u32, u32>("shf.r.wrap.b32",
                              [](u32 a, u32 b, u32 c) { return c & 31 ? a >> (c & 31) | b << (32 - (c & 31)) : a; });
    one<u32, u32>("brev.b32", [](u32 a) {
        u32 r = 0;
        for (int i = 0; i < 32; ++i, a >>= 1) r = r << 1 | (a & 1);
        return r;
    });
    three<u32, u32, u32, u32>("prmt.b32", [](u32 a, u32 b, u32 c) {
        u8 in[8], out[4];
        memcpy(in, &a, 4);
        memcpy(in + 4, &b, 4);
        for (int i = 0; i < 4; ++i, c >>= 4)
            out[i] = c & 8 ? static_cast<u8>(static_cast<s8>(in[c & 7]) < 0 ? 0xff : 0) : in[c & 7];
        memcpy(&c, out, 4);
        return c;
    });
}

/* Sums, differences and products of 64 bits from halves: each instruction that hands a carry on. */
static void carries()
{
    static const struct {
        const char *text;
        u64 (*formula)(u64 a, u64 b);
    } all[] = {
        {"add.cc.u32 %r20, %r10, %r12;\naddc.u32 %r21, %r11, %r13;\n", [](u64 a, u64 b) { return a + b; }},
        {"sub.cc.u32 %r20, %r10, %r12;\nsubc.u32 %r21, %r11, %r13;\n", [](u64 a, u64 b) { return a - b; }},
        {"mov.u32 %r22, 0;\nadd.cc.u32 %r20, %r10, %r12;\naddc.cc.u32 %r21, %r11, %r13;\naddc.u32 %r20, %r22, 0;\n",
         [](u64 a, u64 b) { return (a + b) >> 32 << 32 | (a + b < a); }},
        {"sub.cc.u32 %r20, %r10, %r12;\nsubc.cc.u32 %r21, %r11, %r13;\nsubc.u32 %r20, 0, 0;\n",
         [](u64 a, u64 b) { return (a - b) >> 32 << 32 | (a < b ? 0xffffffffu : 0); }},
        {"mov.u32 %r20, %r13;\nmad.lo.cc.u32 %r20, %r10, %r12, %r20;\nmadc.hi.u32 %r21, %r10, %r12, %r11;\n",
         [](u64 a, u64 b) { return u64(u32(a)) * u32(b) + (a >> 32 << 32) + (b >> 32); }},
        /* the 64 bits in the middle of a product of 128 */
        {"mul.lo.u32 %r20, %r10, %r12;\nmul.hi.u32 %r20, %r10, %r12;\nmad.lo.cc.u32 %r20, %r10, %r13, %r20;\n"
         "madc.hi.cc.u32 %r21, %r10, %r13, 0;\naddc.u32 %r22, 0, 0;\nmad.lo.cc.u32 %r20, %r11, %r12, %r20;\n"
         "madc.hi.cc.u32 %r21, %r11, %r12, %r21;\naddc.u32 %r22, %r22, 0;\nadd.cc.u32 %r20, %r20, 0;\n"
         "madc.lo.cc.u32 %r21, %r11, %r13, %r21;\n",
         [](u64 a, u64 b) { return static_cast<u64>(static_cast<u128>(a) * b >> 32); }},
    };
    for (const char *name : {"add_cc_u32", "addc_u32", "addc_cc_u32", "sub_cc_u32", "subc_cc_u32", "subc_u32",
                             "mad_lo_cc_u32", "madc_hi_u32", "madc_hi_cc_u32", "madc_lo_cc_u32"})
        tested.insert(name);
    for (const auto &test : all) {
        const u32 n = 1024;
        Buffer buffer(24 * n);
        for (u64 &w : buffer.words) w = value<u64>();
        const std::vector<u64> before = buffer.words;
        const std::string fault =
            run("mul.wide.u32 %rd2, %r2, 24;\nadd.s64 %rd2, %rd2, %rd1;\nld.global.u64 %rd3, [%rd2];\n"
                "ld.global.u64 %rd4, [%rd2+8];\nmov.b64 {%r10, %r11}, %rd3;\nmov.b64 {%r12, %r13}, %rd4;\n" +
                    std::string(test.text) + "mov.b64 %rd5, {%r20, %r21};\nst.global.u64 [%rd2+16], %rd5;\n",
                buffer, n / 256, 256);
        expect(fault.empty(), test.text + fault);
        int wrong = 0;
        for (u32 i = 0; i < n; ++i) wrong += buffer.words[3 * i + 2] != test.formula(before[3 * i], before[3 * i + 1]);
        expect(!wrong, test.text);
    }
}

/* ---- memory, branches, warps, barriers ---- */

/* One kernel whose thread i writes the word i of the buffer, which held 3 i, as `formula` says. */
static void words(const char *name, const std::string &body, std::function<u32(u32)> formula, u32 threads = 64,
                  const std::string &before = "", u32 dynamic = 0)
{
    for (u64 seed = 1; seed <= 5; ++seed) {
        Buffer buffer(threads * 4);
        u32 *word = reinterpret_cast<u32 *>(buffer.data());
        for (u32 i = 0; i < threads; ++i) word[i] = 3 * i;
        const std::string fault =
            run("mul.wide.u32 %rd2, %r2, 4;\nadd.s64 %rd2, %rd2, %rd1;\nld.global.u32 %r4, [%rd2];\n" + body +
                    "\nst.global.u32 [%rd2], %r5;",
                buffer, 1, threads, dynamic, seed, before);
        expect(fault.empty(), std::string(name) + ": " + fault);
        u32 wrong = 0, first = 0;
        for (u32 i = threads; i-- > 0;)
            if (word[i] != formula(i)) ++wrong, first = i;
        expect(!wrong, std::string(name) + ": thread " + std::to_string(first) + " has " + std::to_string(word[first]) +
                           ", not " + std::to_string(formula(first)));
    }
}

static void control()
{
    words("branches",
          "setp.lt.u32 %p1, %r1, 20;\n@%p1 bra A;\nadd.u32 %r5, %r4, 1;\nbra.uni B;\nA:\nadd.u32 %r5, %r4, "
          "7;\nB:\n@!%p1 add.u32 %r5, %r5, 2;",
          [](u32 i) { return 3 * i + (i < 20 ? 7 : 3); });
    words("loop",
          "mov.u32 %r5, 0;\nmov.u32 %r6, %r1;\nL:\nsetp.eq.u32 %p1, %r6, 0;\n@%p1 bra E;\nadd.u32 %r5, %r5, "
          "%r6;\nsub.u32 %r6, %r6, 1;\nbra.uni L;\nE:",
          [](u32 i) { return i * (i + 1) / 2; });
    words("code behind the end",
          "setp.gt.u32 %p1, %r1, 9;\nmov.u32 %r5, %r1;\n@%p1 bra F;\nM:\nadd.u32 %r5, %r5, 1;\nbra.uni N;\nF:\nshl.b32 "
          "%r5, %r5, 1;\nbra.uni M;\nN:",
          [](u32 i) { return (i > 9 ? 2 * i : i) + 1; });
    const std::string function =
        ".func (.param .b32 result) f(.param .b32 f_0, .param .b32 f_1)\n{\n.reg .b32 %r<9>;\n.reg .pred %p<9>;\n"
        "ld.param.u32 %r1, [f_0];\nld.param.u32 %r2, [f_1];\nsetp.gt.u32 %p1, %r1, 30;\n@%p1 bra Y;\n"
        "mul.lo.u32 %r3, %r1, %r2;\nst.param.b32 [result+0], %r3;\nret;\nY:\nst.param.b32 [result+0], %r2;\nret;\n}\n";
    words(
        "call",
        "{\n.param .b32 p0;\nst.param.b32 [p0+0], %r1;\n.param .b32 p1;\nst.param.b32 [p1+0], %r4;\n.param .b32 q;\n"
        "call.uni (q), f, (p0, p1);\nld.param.b32 %r5, [q+0];\n}\nadd.u32 %r5, %r5, %r1;",
        [](u32 i) { return (i > 30 ? 3 * i : 3 * i * i) + i; }, 64, function);
    words("exit", "mov.u32 %r5, 1;\nsetp.lt.u32 %p1, %r1, 5;\n@%p1 exit;\nmov.u32 %r5, 2;",
          [](u32 i) { return i < 5 ? 3 * i : 2; });
}

static void moves()
{
    words("mov of halves", "mov.b32 {%h1, %h2}, %r4;\nmov.b32 %r5, {%h2, %h1};", [](u32 i) { return 3 * i << 16; });
    words("mov of quarters",
          "cvt.u64.u32 %rd3, %r4;\nmov.b64 {%h1, %h2, %h3, %h4}, %rd3;\nmov.b64 %rd4, {%h2, %h1, %h3, "
          "%h4};\ncvt.u32.u64 %r5, %rd4;",
          [](u32 i) { return 3 * i << 16; });
    words("bfi", "bfi.b32 %r5, %r4, 0xffffffff, 8, 4;", [](u32 i) { return 0xfffff0ff | (3 * i & 15) << 8; });
    words("bfi past the end", "bfi.b32 %r5, %r4, 0, 28, 9;", [](u32 i) { return 3 * i << 28; });
    words("bfi of 64",
          "cvt.u64.u32 %rd3, %r4;\nbfi.b64 %rd4, %rd3, 0, 32, 32;\nshr.u64 %rd4, %rd4, 30;\ncvt.u32.u64 %r5, %rd4;",
          [](u32 i) { return 12 * i; });
    words("special registers",
          "mov.u32 %r5, %ntid.x;\nmov.u32 %r6, %nctaid.x;\nshl.b32 %r6, %r6, 8;\nadd.u32 %r5, %r5, %r6;\nmov.u32 %r7, "
          "%laneid;\nadd.u32 %r5, %r5, %r7;",
          [](u32 i) { return 64 + 256 + i % 32; });
    words("parameters",
          "ld.param.v2.u32 {%r6, %r7}, [k_param_0];\nmov.b64 %rd3, {%r6, %r7};\nsetp.eq.s64 %p1, %rd3, %rd1;\nmov.b64 "
          "%rd4, k_param_0;\n"
          "ld.param.u32 %r8, [%rd4+4];\nsetp.eq.s32 %p2, %r8, %r7;\nand.pred %p1, %p1, %p2;\nselp.u32 %r5, 1, 0, %p1;",
          [](u32) { return 1; });
}

static void memory()
{
    words(
        "local",
        ".local .align 8 .b8 frame[16];\nmov.u64 %rd3, frame;\nst.local.u32 [frame+4], %r4;\nst.local.u8 [%rd3+8], "
        "%r4;\ncvta.local.u64 %rd4, %rd3;\nld.u32 %r5, [%rd4+4];\n"
        "ld.local.s8 %r6, [frame+8];\nadd.s32 %r5, %r5, %r6;",
        [](u32 i) { return 3 * i + static_cast<u32>(static_cast<s32>(static_cast<s8>(3 * i))); }, 64);
    words(
        "constant",
        "mov.u64 %rd3, numbers;\nand.b32 %r6, %r1, 3;\ncvt.u64.u32 %rd4, %r6;\nadd.s64 %rd3, %rd3, %rd4;\nld.const.u8 "
        "%r5, [%rd3];",
        [](u32 i) { return 10 + i % 4; }, 64, ".const .align 8 .b8 numbers[4] = {10, 11, 12, 13};\n");
    words(
        "shared, reversed",
        "shl.b32 %r6, %r1, 2;\nmov.u32 %r7, s;\nadd.u32 %r6, %r6, %r7;\nst.shared.u32 [%r6], %r4;\nbar.sync "
        "0;\nmov.u32 %r8, 63;\nsub.u32 %r8, %r8, %r1;\nshl.b32 %r8, %r8, 2;\n"
        "add.u32 %r8, %r8, %r7;\nld.shared.u32 %r5, [%r8];",
        [](u32 i) { return 3 * (63 - i); }, 64, ".shared .align 4 .b8 s[256];\n");
    words(
        "dynamic shared, in a warp",
        "shl.b32 %r6, %r1, 2;\nmov.u32 %r7, dynamic;\nadd.u32 %r6, %r6, %r7;\nst.shared.u32 [%r6], %r4;\nbar.warp.sync "
        "-1;\nxor.b32 %r8, %r6, 4;\nld.shared.u32 %r5, [%r8];",
        [](u32 i) { return 3 * (i ^ 1); }, 64, "", 256);
    words(
        "vectors",
        "shl.b32 %r6, %r1, 4;\nmov.u32 %r7, dynamic;\nadd.u32 %r6, %r6, %r7;\nmov.u32 %r8, 5;\nst.shared.v4.u32 [%r6], "
        "{%r4, %r8, %r1, %r8};\nld.shared.v2.u32 {%r9, %r10}, [%r6+8];\nadd.u32 %r5, %r9, %r10;",
        [](u32 i) { return i + 5; }, 64, "", 1024);
    words(
        "atom.shared.add",
        "mov.u32 %r6, 0;\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 st.shared.u32 [dynamic], %r6;\nbar.sync "
        "0;\natom.shared.add.u32 %r7, [dynamic], %r1;\nbar.sync 0;\nld.shared.u32 %r5, [dynamic];",
        [](u32) { return 63 * 32; }, 64, "", 16);
    words("atom.global",
          "cvt.u64.u32 %rd3, %r4;\nadd.s32 %r6, %r1, 100;\natom.global.exch.b32 %r7, [%rd2], %r6;\natom.global.min.u32 "
          "%r8, [%rd2], 120;\natom.global.max.u32 %r9, [%rd2], 110;\natom.global.cas.b32 %r10, [%rd2], 115, "
          "7;\nld.global.u32 %r5, [%rd2];",
          [](u32 i) {
              const u32 x = std::max(110u, std::min(120u, 100 + i));
              return x == 115 ? 7 : x;
          });
}

static void warps()
{
    auto lanes = [](const char *name, const std::string &body, std::function<u32(u32)> f) { words(name, body, f, 64); };
    lanes("shfl.bfly", "shfl.sync.bfly.b32 %r5|%p1, %r4, 5, 31, -1;", [](u32 i) { return 3 * (i ^ 5); });
    lanes("shfl.up", "shfl.sync.up.b32 %r5|%p1, %r4, 3, 0, -1;", [](u32 i) { return 3 * (i % 32 < 3 ? i : i - 3); });
    lanes("shfl.up, predicate", "shfl.sync.up.b32 %r6|%p1, %r4, 3, 0, -1;\nselp.u32 %r5, 1, 0, %p1;",
          [](u32 i) -> u32 { return i % 32 >= 3; });
    lanes("shfl.down of 8", "shfl.sync.down.b32 %r5|%p1, %r4, 2, 0x181f, -1;",
          [](u32 i) { return 3 * (i % 8 > 5 ? i : i + 2); });
    lanes("shfl.idx of 16", "shfl.sync.idx.b32 %r5, %r4, 3, 0x101f, -1;", [](u32 i) { return 3 * (i / 16 * 16 + 3); });
    lanes("shfl of half a warp",
          "setp.lt.u32 %p1, %r1, 16;\nmov.u32 %r5, %r4;\n@!%p1 bra H;\nshfl.sync.bfly.b32 %r5, %r4, 1, 31, 0xffff;\nH:",
          [](u32 i) { return i < 16 ? 3 * (i ^ 1) : 3 * i; });
    lanes("two halves apart",
          "and.b32 %r6, %r1, 16;\nsetp.eq.u32 %p1, %r6, 0;\nselp.b32 %r7, 0xffff, 0xffff0000, %p1;\nshfl.sync.bfly.b32 "
          "%r5, %r4, 8, 31, %r7;",
          [](u32 i) { return 3 * (i ^ 8); });
    lanes("lanes that come later",
          "and.b32 %r6, %r1, 1;\nsetp.eq.u32 %p1, %r6, 0;\n@%p1 bra Q;\nadd.u32 %r4, %r4, 1;\nbra.uni S;\nQ:\nadd.u32 "
          "%r4, %r4, 2;\nS:\nshfl.sync.bfly.b32 %r5, %r4, 1, 31, -1;",
          [](u32 i) { return 3 * (i ^ 1) + (i % 2 ? 2 : 1); });
    lanes("vote", "and.b32 %r6, %r1, 3;\nsetp.eq.u32 %p1, %r6, 1;\nvote.sync.ballot.b32 %r5, %p1, -1;",
          [](u32) { return 0x22222222u; });
    lanes("vote.any", "setp.eq.u32 %p1, %r1, 40;\nvote.sync.any.pred %p2, %p1, -1;\nselp.u32 %r5, 1, 0, %p2;",
          [](u32 i) -> u32 { return i >= 32; });
    lanes("vote.all", "setp.ne.u32 %p1, %r1, 40;\nvote.sync.all.pred %p2, %p1, -1;\nselp.u32 %r5, 1, 0, %p2;",
          [](u32 i) -> u32 { return i < 32; });
    lanes("bar.red.popc", "setp.lt.u32 %p1, %r1, 41;\nbar.red.popc.u32 %r5, 0, %p1;", [](u32) { return 41u; });
}

/* a [16, 16] and b [16, 8] of 16-bit floats lie in the buffer, and go through shared memory by cp.async and ldmatrix (b
   transposed) into mma, as in attention: c [16, 8] = a b + 1. */
static std::string product(bool bf16)
{
    const std::string type = bf16 ? "bf16" : "f16";
    return "mov.u32 %r6, dynamic;\nshl.b32 %r7, %r1, 4;\nadd.u32 %r8, %r6, %r7;\ncvt.u64.u32 %rd3, %r7;\nadd.s64 %rd3, "
           "%rd1, %rd3;\n"
           "cp.async.cg.shared.global [%r8], [%rd3], 16;\nsetp.lt.u32 %p1, %r1, 16;\n"
           "selp.b32 %r20, 16, 0, %p1;\ncp.async.cg.shared.global [%r8+512], [%rd3+512], 16, "
           "%r20;\ncp.async.commit_group;\ncp.async.wait_group 0;\nbar.sync 0;\n"
           /* rows of a: lanes 0 to 15 the rows, left; 16 to 31 right */
           "and.b32 %r9, %r1, 15;\nshl.b32 %r9, %r9, 5;\nshr.u32 %r10, %r1, 4;\nshl.b32 %r10, %r10, 4;\nadd.u32 %r9, "
           "%r9, %r10;\nadd.u32 %r9, %r9, %r6;\n"
           "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r11, %r12, %r13, %r14}, [%r9];\n"
           "and.b32 %r15, %r1, 15;\nshl.b32 %r15, %r15, 4;\nadd.u32 %r15, %r15, %r6;\n"
           "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r16, %r17, %r18, %r19}, [%r15+512];\n"
           "mov.f32 %f1, 0f3F800000;\n"
           "mma.sync.aligned.m16n8k16.row.col.f32." +
           type + "." + type +
           ".f32 {%f2, %f3, %f4, %f5}, {%r11, %r12, %r13, %r14}, {%r16, %r17}, {%f1, %f1, %f1, %f1};\n"
           "shl.b32 %r21, %r1, 3;\ncvt.u64.u32 %rd4, %r21;\nadd.s64 %rd4, %rd1, %rd4;\nst.global.v2.f32 [%rd4+1024], "
           "{%f2, %f3};\nst.global.v2.f32 [%rd4+1280], {%f4, %f5};";
}
static bool right_product(const std::string &text, bool bf16, std::string *fault)
{
    Buffer buffer(1024 + 512);
    u16 a[16][16], b[16][8];
    random_state = 7;
    for (auto &row : a)
        for (u16 &x : row) x = nearest(static_cast<f64>(random_bits() % 33) / 8 - 2, bf16);
    for (auto &row : b)
        for (u16 &x : row) x = nearest(static_cast<f64>(random_bits() % 33) / 8 - 2, bf16);
    memcpy(buffer.data(), a, sizeof a);
    memcpy(buffer.data() + 512, b, sizeof b);
    *fault = run(text, buffer, 1, 32, 1024);
    if (!fault->empty()) return false;
    const f32 *c = reinterpret_cast<const f32 *>(buffer.data() + 1024);
    for (int i = 0; i < 16; ++i)
        for (int j = 0; j < 8; ++j) {
            f64 sum = 1;
            for (int k = 0; k < 16; ++k) sum += static_cast<f64>(number_of(a[i][k], bf16)) * number_of(b[k][j], bf16);
            if (c[8 * i + j] != static_cast<f32>(sum)) return false;
        }
    return true;
}
static void tensor_cores()
{
    std::string fault;
    for (bool bf16 : {false, true})
        expect(right_product(product(bf16), bf16, &fault), "cp.async, ldmatrix, mma: " + fault);
}

/* ---- products of a warpgroup ---- */

/* d [64, n] = 1 + a [64, 32] b [32, n], in two steps of 16: a from registers or from shared memory, where it is
   [64, 64], of which columns 16 to 31 and 48 to 63 are used; b likewise [n, 64], or [32, n] as the manual's
   "MN-major" tile, in blocks of 64 columns. */
struct GroupProduct {
    bool bf16, a_shared, b_rows; /* b_rows: [32, n] */
    u32 n;
    u32 b_at() const { return a_shared ? 64 * 128 : 0; }
    u32 image() const { return b_at() + (b_rows ? 64 * n : 128 * n); } /* bytes of shared memory */
    u32 fragments() const { return image(); }                           /* 32 bytes for each of 128 threads */
    u32 result() const { return fragments() + 128 * 32; }
    /* where the two steps begin in their tiles, in bytes */
    u32 step(bool rows, u32 s) const { return rows ? 2048 * s : 32 + 64 * s; }
};

/* The upper bits of a descriptor, in units of the manual. */
static std::string descriptor(u32 leading, u32 stride, u32 swizzle, u32 base = 0)
{
    return std::to_string(u64(swizzle) << 62 | u64(base) << 49 | u64(stride / 16) << 32 | u64(leading / 16) << 16);
}

static std::string list_of(const char *name, u32 first, u32 count)
{
    std::string text = "{";
    for (u32 i = 0; i < count; ++i) text += (i ? ", " : "") + (name + std::to_string(first + i));
    return text + "}";
}

/* The copy of the image to shared memory, the fragments of a, the products, the store of d. */
static std::string group_text(const GroupProduct &p)
{
    const auto at = [](std::string base, u32 bytes) { return "[" + base + "+" + std::to_string(bytes) + "]"; };
    const auto add = [](const char *to, u32 bytes) {
        return std::string("add.s64 ") + to + ", %rd5, " + std::to_string(bytes / 16) + ";\n";
    };
    const std::string type = p.bf16 ? ".bf16.bf16 " : ".f16.f16 ", d = list_of("%f", 0, p.n / 2);
    std::string text = "mov.u32 %r4, dynamic;\nshl.b32 %r5, %r1, 4;\ncvt.u64.u32 %rd2, %r5;\n"
                       "add.s64 %rd2, %rd1, %rd2;\nadd.u32 %r6, %r4, %r5;\nadd.s64 %rd3, %rd2, " +
                       std::to_string(p.fragments()) + ";\n";
    for (u32 i = 0; i < p.image(); i += 2048)
        text += "ld.global.v4.u32 {%r10, %r11, %r12, %r13}, " + at("%rd2", i) + ";\nst.shared.v4.u32 " + at("%r6", i) +
                ", {%r10, %r11, %r12, %r13};\n";
    text += "fence.proxy.async;\nbar.sync 0;\n";
    for (u32 s = 0; s < 2; ++s)
        text += "ld.global.v4.u32 " + list_of("%r", 20 + 4 * s, 4) + ", " + at("%rd3", 2048 * s) + ";\n";
    for (u32 i = 0; i < p.n / 2; ++i) text += "add.f32 %f" + std::to_string(i) + ", 0f00000000, 0f3F800000;\n";
    text += "wgmma.fence.sync.aligned;\nsetp.ne.b32 %p1, 1, 0;\ncvt.u64.u32 %rd5, %r4;\nshr.u64 %rd5, %rd5, 4;\n"
            "or.b64 %rd5, %rd5, " + descriptor(p.b_rows ? 4096 : 16, 1024, 1) + ";\n";
    for (u32 s = 0; s < 2; ++s) {
        text += add("%rd6", p.step(false, s)) + add("%rd7", p.b_at() + p.step(p.b_rows, s));
        text += "wgmma.mma_async.sync.aligned.m64n" + std::to_string(p.n) + "k16.f32" + type + d + ", " +
                (p.a_shared ? "%rd6" : list_of("%r", 20 + 4 * s, 4)) + ", %rd7, %p1, 1, 1" + (p.a_shared ? ", 0" : "") +
                (p.b_rows ? ", 1;\n" : ", 0;\n");
    }
    text += "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\nmul.wide.u32 %rd4, %r1, " +
            std::to_string(2 * p.n) + ";\nadd.s64 %rd4, %rd1, %rd4;\n";
    for (u32 i = 0; i < p.n / 2; ++i)
        text += "st.global.f32 " + at("%rd4", p.result() + 4 * i) + ", %f" + std::to_string(i) + ";\n";
    return text;
}

/* The manual's picture of the swizzle of 128 bytes: eight rows of eight parts of 16 bytes each, in which row r has its
   parts in the order r, r ^ 1, r ^ 2, ..; these eight rows repeat. */
static u32 swizzled(u32 row, u32 byte) { return 128 * row + 16 * (byte / 16 ^ row % 8) + byte % 16; }

static bool right_group(const std::string &text, const GroupProduct &p, std::string *fault, u32 threads = 128)
{
    Buffer buffer(p.result() + 128 * 2 * p.n);
    std::vector<u16> a(64 * 32), b(32 * p.n);
    random_state = 9;
    for (u16 &x : a) x = nearest(static_cast<f64>(random_bits() % 33) / 8 - 2, p.bf16);
    for (u16 &x : b) x = nearest(static_cast<f64>(random_bits() % 33) / 8 - 2, p.bf16);
    for (u32 row = 0; row < 64; ++row)
        for (u32 k = 0; k < 32; ++k) {
            const u32 column = k + (k < 16 ? 16 : 32), thread = row / 16 * 32 + row % 8 * 4 + k % 8 / 2;
            const u32 number = row % 16 / 8 + k % 16 / 8 * 2; /* of the register: the rows below, then the columns */
            const u32 place = p.fragments() + k / 16 * 2048 + 16 * thread + 4 * number + k % 2 * 2;
            if (p.a_shared) memcpy(buffer.data() + swizzled(row, 2 * column), &a[32 * row + k], 2);
            memcpy(buffer.data() + place, &a[32 * row + k], 2);
        }
    for (u32 k = 0; k < 32; ++k)
        for (u32 j = 0; j < p.n; ++j) {
            const u32 column = k + (k < 16 ? 16 : 32);
            const u32 place = p.b_rows ? j / 64 * 4096 + swizzled(k, j % 64 * 2) : swizzled(j, 2 * column);
            memcpy(buffer.data() + p.b_at() + place, &b[p.n * k + j], 2);
        }
    *fault = run(text, buffer, 1, threads, p.image());
    if (!fault->empty()) return false;
    const f32 *d = reinterpret_cast<const f32 *>(buffer.data() + p.result());
    for (u32 row = 0; row < 64; ++row)
        for (u32 j = 0; j < p.n; ++j) {
            const u32 thread = row / 16 * 32 + row % 8 * 4 + j % 8 / 2, number = j / 8 * 4 + row % 16 / 8 * 2 + j % 2;
            f64 sum = 1;
            for (u32 k = 0; k < 32; ++k)
                sum += static_cast<f64>(number_of(a[32 * row + k], p.bf16)) * number_of(b[p.n * k + j], p.bf16);
            if (d[p.n / 2 * thread + number] != static_cast<f32>(sum)) return false;
        }
    return true;
}

static void warpgroups()
{
    std::string fault;
    for (u32 kind = 0; kind < 8; ++kind)
        for (u32 n : {64u, 128u}) {
            const GroupProduct p = {(kind & 1) != 0, (kind & 2) != 0, (kind & 4) != 0, n};
            expect(right_group(group_text(p), p, &fault), "wgmma, kind " + std::to_string(kind) + ": " + fault);
        }
}

/* ---- mistakes ---- */

static void must_fault(const char *name, const std::string &body, const char *text, u32 threads = 64, u32 dynamic = 256,
                       const std::string &before = "")
{
    std::string fault;
    for (u64 seed = 1; seed <= 20 && fault.empty(); ++seed) { /* each order of the warps is another try */
        Buffer buffer(256);
        fault = run("mul.wide.u32 %rd2, %r2, 4;\nadd.s64 %rd2, %rd2, %rd1;\n" + body, buffer, 1, threads, dynamic, seed,
                    before);
    }
    expect(fault.find(text) != std::string::npos, std::string(name) + ": not found, but: " + fault);
}

static std::string without(std::string text, const std::string &part, const std::string &other = "")
{
    const size_t at = text.find(part);
    expect(at != std::string::npos, "no " + part);
    return at == std::string::npos ? text : text.replace(at, part.size(), other);
}

/* Global memory that was never written: read as a whole, in part, by an atomic operation, by an asynchronous copy. */
static void unwritten()
{
    static const struct {
        const char *body;
        bool found;
    } all[] = {
        {"ld.global.u32 %r5, [%rd1];", true},
        {"st.global.u32 [%rd1], %r1;\nld.global.u32 %r5, [%rd1];", false},
        {"st.global.u32 [%rd1], %r1;\nld.global.u16 %h1, [%rd1+2];", false},
        {"st.global.u32 [%rd1], %r1;\nld.global.v2.u32 {%r5, %r6}, [%rd1];", true},
        {"st.global.u8 [%rd1+3], %h1;\nld.global.u8 %h2, [%rd1+3];", false},
        {"st.global.u8 [%rd1+3], %h1;\nld.global.u32 %r5, [%rd1];", true},
        {"atom.global.add.u32 %r5, [%rd1], %r1;", true},
        {"st.global.u32 [%rd1], %r1;\natom.global.add.u32 %r5, [%rd1], %r1;", false},
        {"ld.u32 %r5, [%rd1];", true},
        {"mov.u32 %r7, dynamic;\ncp.async.cg.shared.global [%r7], [%rd1], 16;\ncp.async.wait_all;", true},
    };
    for (const auto &each : all) {
        Buffer buffer(64);
        buffer.written.assign(64, 0);
        const std::string fault = run(each.body, buffer, 1, 1, 256);
        expect(each.found ? fault.find("global memory is read before") != std::string::npos : fault.empty(),
               std::string("unwritten: ") + each.body + ": " + fault);
    }
}

static void mistakes()
{
    const std::string to_shared =
        "shl.b32 %r6, %r1, 2;\nmov.u32 %r7, dynamic;\nadd.u32 %r6, %r6, %r7;\nst.shared.u32 [%r6], %r1;\n";
    must_fault("beyond the buffer", "ld.global.u32 %r5, [%rd2+4];", "out of the buffer");
    must_fault("before the buffer", "st.global.u32 [%rd2+-4], %r1;", "out of the buffer");
    must_fault("misaligned", "ld.global.u32 %r5, [%rd1+2];", "misaligned");
    must_fault("misaligned vector", "ld.global.v2.u32 {%r5, %r6}, [%rd1+4];", "misaligned");
    must_fault("parameters", "ld.param.u64 %rd3, [k_param_0+8];", "parameters out of bounds");
    must_fault("shared out of bounds", to_shared + "st.shared.u32 [%r6+256], %r1;", "shared memory out of bounds");
    must_fault("between shared variables", "st.shared.u32 [s+8], %r1;", "shared memory out of bounds", 1, 0,
               ".shared .align 4 .b8 s[8];\n.shared .align 4 .b8 t[8];\n");
    must_fault("unwritten shared memory", "ld.shared.u32 %r5, [dynamic];", "before it was written");
    must_fault("unwritten local memory", ".local .align 4 .b8 frame[8];\nld.local.u32 %r5, [frame];",
               "before it was written");
    must_fault("local out of bounds", ".local .align 4 .b8 frame[8];\nld.local.u32 %r5, [frame+8];",
               "local memory out of bounds");
    must_fault("no barrier", to_shared + "xor.b32 %r8, %r6, 128;\nld.shared.u32 %r5, [%r8];", "shared memory");
    must_fault("a barrier of the warp only",
               to_shared + "bar.warp.sync -1;\nxor.b32 %r8, %r6, 128;\nld.shared.u32 %r5, [%r8];", "shared memory");
    must_fault("no bar.warp.sync", to_shared + "xor.b32 %r8, %r6, 4;\nld.shared.u32 %r5, [%r8];", "shared memory");
    must_fault("no barrier before the next write",
               to_shared + "bar.sync 0;\nxor.b32 %r8, %r6, 128;\nld.shared.u32 %r5, [%r8];\nst.shared.u32 [%r6], %r5;",
               "race");
    must_fault("two writers", "st.shared.u32 [dynamic], %r1;", "race");
    must_fault("a barrier that half of the threads skip",
               "setp.lt.u32 %p1, %r1, 32;\n@%p1 bra Z;\nbar.sync 0;\nZ:", "barrier");
    must_fault("a mask without the lane", "shfl.sync.bfly.b32 %r5, %r1, 1, 31, 0xfffffffe;", "lacks a lane");
    must_fault("a mask of lanes that have returned",
               "setp.lt.u32 %p1, %r1, 3;\n@%p1 exit;\nshfl.sync.bfly.b32 %r5, %r1, 1, 31, -1;", "returned");
    must_fault("lanes that do not come",
               "setp.lt.u32 %p1, %r1, 3;\n@%p1 bra Z;\nbar.warp.sync -1;\nbar.sync 0;\nbra.uni E;\nZ:\nbar.sync 0;\nE:",
               "do not come");
    must_fault(
        "a shuffle from outside of its mask",
        "setp.ge.u32 %p1, %r1, 16;\n@%p1 bra Z;\nshfl.sync.bfly.b32 %r5, %r1, 16, 31, 0xffff;\nZ:", "takes no part");
    must_fault("trap", "trap;", "trap");
    must_fault("an unknown instruction", "sin.approx.f32 %f1, %f2;", "table lacks");
    const std::string copy = "setp.lt.u32 %p1, %r1, 8;\nshl.b32 %r6, %r1, 4;\ncvt.u64.u32 %rd3, %r6;\nadd.s64 %rd3, "
                             "%rd1, %rd3;\nmov.u32 %r7, dynamic;\nadd.u32 %r7, %r7, %r6;\n"
                             "@%p1 cp.async.cg.shared.global [%r7], [%rd3], 16;\n@%p1 cp.async.commit_group;\n";
    must_fault("cp.async, not waited for", copy + "@%p1 ld.shared.u32 %r5, [%r7];", "before it was written");
    must_fault("cp.async, waited for the group before",
               copy + "@%p1 cp.async.wait_group 1;\n@%p1 ld.shared.u32 %r5, [%r7];", "before it was written");
    must_fault("cp.async, never waited for", copy, "asynchronous copies");
    must_fault("cp.async of another thread", copy + "cp.async.wait_group 0;\nld.shared.u32 %r5, [dynamic];",
               "shared memory", 64);
}

/* Mistakes in the product of a warpgroup: each must fault, with these words, or be wrong. */
static void mutants_of_warpgroups()
{
    static const GroupProduct rows = {true, false, true, 128}, columns = {true, true, false, 64};
    static const char fence[] = "wgmma.fence.sync.aligned;\n", wait[] = "wgmma.wait_group.sync.aligned 0;\n",
                      proxy[] = "fence.proxy.async;\n", commit[] = "wgmma.commit_group.sync.aligned;\n";
    const std::string of_rows = descriptor(4096, 1024, 1), of_columns = descriptor(16, 1024, 1);
    const struct {
        const GroupProduct &p;
        std::string part, other;
        const char *fault;
    } all[] = {
        {rows, of_rows, descriptor(1024, 4096, 1), ""},
        {columns, of_columns, descriptor(1024, 16, 1), ""},
        {columns, of_columns, descriptor(16, 512, 1), ""},
        {columns, of_columns, descriptor(16, 1024, 2), "swizzle"},
        {columns, of_columns, descriptor(16, 1024, 0), "swizzle"},
        {columns, of_columns, descriptor(16, 1024, 1, 1), "swizzle"},
        {rows, "add.s64 %rd7, %rd5, 128", "add.s64 %rd7, %rd5, 64", ""},
        {columns, "add.s64 %rd6, %rd5, 6", "add.s64 %rd6, %rd5, 4", ""},
        {columns, "shr.u64 %rd5, %rd5, 4", "shr.u64 %rd5, %rd5, 3", ""},
        {rows, ", 1;\nadd", ", 0;\nadd", ""},
        {columns, ", 0, 0;\nadd", ", 0, 1;\nadd", ""},
        {columns, ", 0, 0;\nadd", ", 1, 0;\nadd", ""},
        {rows, "{%r20, %r21", "{%r21, %r20", ""},
        {rows, "{%f0, %f1", "{%f1, %f0", ""},
        {rows, "f32.bf16.bf16", "f32.f16.f16", ""},
        {rows, "setp.ne.b32 %p1, 1, 0", "setp.ne.b32 %p1, 0, 0", ""},
        {rows, wait, "wgmma.wait_group.sync.aligned 1;\n", "before wgmma.wait_group"},
        {rows, wait, "", "before wgmma.wait_group"},
        {rows, wait, "ret;\n", "returns before"},
        {rows, wait, std::string("add.f32 %f9, %f9, %f9;\n") + wait, "before wgmma.wait_group"},
        {rows, wait, std::string("add.u32 %r20, %r20, 1;\n") + wait, "before wgmma.wait_group"},
        {rows, wait, std::string("mov.f32 %f9, %f8;\n") + wait, "before wgmma.wait_group"},
        {rows, commit, "", "before wgmma.wait_group"},
        {rows, fence, "", "no wgmma.fence follows"},
        {rows, fence, std::string(fence) + "add.f32 %f9, %f9, %f9;\n", "no wgmma.fence follows"},
        {rows, fence, std::string(fence) + "add.u32 %r20, %r20, 1;\n", "no wgmma.fence follows"},
        {rows, proxy, "", "without a fence.proxy.async"},
        {rows, std::string(proxy) + "bar.sync 0;\n", std::string("bar.sync 0;\n") + proxy, ""},
        {rows, "bar.sync 0;\n", "", "memory"},
        {rows, wait, std::string("st.shared.u32 [%r6], %r1;\n") + wait, "race"},
        {rows, wait, std::string("bar.sync 0;\nst.shared.u32 [%r6], %r1;\nbar.sync 0;\n") + wait,
         "was written before the wait"},
        {rows, fence, std::string(fence) + "setp.lt.u32 %p2, %r1, 32;\n@%p2 exit;\n", ""},
        {rows, "{%r24, %r25, %r26, %r27}, %rd7", "{%f0, %f1, %f2, %f3}, %rd7", "that was not waited for"},
    };
    u32 found = 0, count = 0;
    for (const auto &m : all) {
        std::string fault;
        bool right = true;
        for (u32 tries = 0; tries < 3 && right; ++tries)
            right = right_group(without(group_text(m.p), m.part, m.other), m.p, &fault);
        ++count;
        found += !right;
        expect(!right && fault.find(m.fault) != std::string::npos,
               std::string("a mutant of wgmma: ") + m.part + " -> " + m.other + ": " + fault);
    }
    std::string fault;
    right_group(group_text(rows), rows, &fault, 96);
    expect(fault.find("four warps") != std::string::npos, "wgmma of three warps: " + fault);
    printf("mutants of wgmma: %u of %u found\n", found, count);
}

/* Blocks of more threads than .maxntid, or without it than have registers for sure. */
static void sizes_of_blocks()
{
    static const struct {
        const char *bound;
        u32 threads;
        bool fits;
    } all[] = {{"", 256, true},
               {"", 257, false},
               {".maxntid 512, 1, 1\n", 512, true},
               {".maxntid 16, 8, 1\n.minnctapersm 2\n", 128, true},
               {".maxntid 16, 8, 1\n.minnctapersm 2\n", 129, false}};
    for (const auto &each : all) {
        const std::string other = "()\n.maxntid 1024, 1, 1\n{\nret;\n}\n";
        ptx::Module module(".visible .entry first" + other + ".visible .entry k()\n" + each.bound +
                           "{\nret;\n}\n.visible .entry last" + other);
        ptx::Launch launch;
        launch.block[0] = each.threads;
        std::string fault;
        try {
            ptx::run(module, *module.kernel("k"), launch);
        } catch (const ptx::Fault &f) {
            fault = f.text;
        }
        expect(each.fits ? fault.empty() : fault.find("is compiled for") != std::string::npos,
               std::string("a block of ") + std::to_string(each.threads) + " threads, " + each.bound + ": " + fault);
    }
}

/* A loop of three turns: what its lines count for; of two instructions in a line the first one counts alone, and a jump
   that no lane takes does not. */
static void machine_instructions()
{
    char path[] = "/tmp/ptx-machine-XXXXXX";
    const int file = mkstemp(path);
    const char numbers[] = "4 7\n6 100\n7 1000\n";
    const bool wrote = file >= 0 && write(file, numbers, sizeof numbers - 1) == sizeof numbers - 1;
    if (file >= 0) close(file);
    ptx::Module module(".visible .entry k()\n{\n.reg .b32 %r<2>; .reg .pred %p<2>;\nmov.u32 %r1, 3;\nL:\n"
                       "sub.u32 %r1, %r1, 1; setp.ne.u32 %p1, %r1, 0;\n@%p1 bra L;\nret;\n}\n");
    std::string fault;
    const u64 before = ptx::totals.machine_instructions, plain = ptx::totals.warp_instructions;
    try {
        module.read_machine(path);
        ptx::run(module, *module.kernel("k"), ptx::Launch());
    } catch (const ptx::Fault &f) {
        fault = f.text;
    }
    const u64 machine = ptx::totals.machine_instructions - before, of_ptx = ptx::totals.warp_instructions - plain;
    expect(wrote && fault.empty() && machine == 7 + 3 * 100 + 2 * 1000 && of_ptx == 1 + 6 + 2 + 1,
           "machine instructions: " + std::to_string(machine) + " for " + std::to_string(of_ptx) + " of PTX " + fault);
    remove(path);
}

/* The product of tensor_cores with one mistake: it must fault or be wrong. */
static void mutants()
{
    static const struct {
        const char *part, *other;
    } all[] = {
        {"{%r11, %r12, %r13, %r14}, {%r16", "{%r12, %r11, %r13, %r14}, {%r16"},
        {"{%r11, %r12, %r13, %r14}, {%r16", "{%r11, %r13, %r12, %r14}, {%r16"},
        {"{%r16, %r17}, {", "{%r17, %r16}, {"},
        {"{%r16, %r17}, {", "{%r17, %r17}, {"},
        {".x4.trans", ".x4"},
        {"x4.shared", "x4.trans.shared"},
        {"wait_group 0", "wait_group 1"},
        {"cp.async.wait_group 0;\n", ""},
        {"cp.async.commit_group;\n", ""},
        {"bar.sync 0;\n", ""},
        {"{%f2, %f3, %f4, %f5}, {%r11", "{%f3, %f2, %f4, %f5}, {%r11"},
        {"[%rd4+1024], {%f2, %f3}", "[%rd4+1024], {%f4, %f3}"},
        {"[%rd4+1280]", "[%rd4+1288]"},
        {"[%rd3+512], 16", "[%rd3+528], 16"},
        {"selp.b32 %r20, 16, 0", "selp.b32 %r20, 0, 16"},
        {"and.b32 %r9, %r1, 15", "and.b32 %r9, %r1, 7"},
        {"shr.u32 %r10, %r1, 4", "shr.u32 %r10, %r1, 3"},
        {"shl.b32 %r9, %r9, 5", "shl.b32 %r9, %r9, 4"},
        {"mov.f32 %f1, 0f3F800000", "mov.f32 %f1, 0f3F800001"},
        {"setp.lt.u32 %p1, %r1, 16", "setp.lt.u32 %p1, %r1, 15"},
        {"cvt.u64.u32 %rd3, %r7", "cvt.u64.u32 %rd3, %r8"},
        {"bf16.bf16", "f16.f16"},
    };
    int found = 0, count = 0;
    for (const auto &m : all) {
        std::string fault;
        const bool right = right_product(without(product(true), m.part, m.other), true, &fault);
        ++count;
        found += !right;
        expect(!right, std::string("a mutant survives: ") + m.part + " -> " + m.other);
    }
    printf("mutants: %d of %d found\n", found, count);
}

int main()
{
    whole_numbers<s16, s128, s32>(), whole_numbers<s32, s128, s64>(), whole_numbers<s64, s128, s64>();
    whole_numbers<u16, u128, u32>(), whole_numbers<u32, u128, u64>(), whole_numbers<u64, u128, u64>();
    bits<u16>(), bits<u32>(), bits<u64>();
    floats<f32, double>(), floats<f64, double>();
    conversions();
    special_functions();
    other_rows();
    carries();
    control();
    moves();
    memory();
    warps();
    tensor_cores();
    warpgroups();
    mistakes();
    unwritten();
    sizes_of_blocks();
    machine_instructions();
    mutants();
    mutants_of_warpgroups();
    size_t rows = 0;
    for (const auto &row : ptx::rows()) {
        if (!row.second.inputs) continue;
        ++rows;
        expect(tested.count(row.first), "no test of the row " + row.first);
    }
    printf("selftest of the interpreter of PTX: %zu rows of the table, %d checks, %d failed\n", rows, checked, failed);
    return failed != 0;
}
