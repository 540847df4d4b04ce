/* The functions of the check mode for the builds without it: they do nothing.  The build with tests/ptx has its own of
   those that are weak. */
#include "internal.h"

namespace cudasim
{
const bool checking = false;
void check_launch() {}
void check_turn(size_t) {}
#define WEAK __attribute__((weak))
WEAK void check_written(const Allocation &, const void *, size_t) {}
WEAK void check_copied(const void *, const void *, size_t) {}
WEAK bool check_initialised(const Allocation &, const void *, size_t) { return true; }
WEAK void check_freed(Allocation &) {}
void atomic_access(const void *, size_t, void *) {}
void fence() {}
void report_launch() {}
void report_pack(const void *, size_t, uint32_t) {}
void report_block() {}
void report_other(const std::string &, uint64_t, uint64_t) {}
void report_end(const char *) {}
} // namespace cudasim
