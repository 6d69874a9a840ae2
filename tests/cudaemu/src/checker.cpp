#include "checker.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <vector>

#include "memory.h"
#include "options.h"

static constexpr uint32_t kEpochMask = 0xffffff;

static bool find_races = true, find_uninitialised = true;
static uint64_t last_serial, launch_serial;
static Allocation *last_found;

// What orders blocks: one that changes a word atomically comes after the blocks that did so before it, as far as
// those called __threadfence() first. That is how the last block of a reduction may read what the others wrote.
// Checked blocks run one after another, so that the lists are in the order of serial numbers.
struct Releases {
    std::vector<uint64_t> blocks;
    uint64_t last_acquired_by = 0;
};
static std::map<uintptr_t, Releases> released;  // by address
static std::vector<const Releases *> acquired;  // by the running block
static bool fenced;                             // the running block called __threadfence()

void start_checked_launch() {
    launch_serial = last_serial + 1;
    last_found = nullptr;
    find_races = option("CUEMU_RACE", 1);
    find_uninitialised = option("CUEMU_INIT", 1);
    acquired.clear();
    released.clear();
}

uint64_t start_checked_block() {
    acquired.clear();
    fenced = false;
    return ++last_serial;
}

static void order_blocks(BlockRunner *runner, uintptr_t address) {
    Releases &releases = released[address];
    if (releases.last_acquired_by != runner->serial) acquired.push_back(&releases);
    releases.last_acquired_by = runner->serial;
    if (fenced && (releases.blocks.empty() || releases.blocks.back() != runner->serial))
        releases.blocks.push_back(runner->serial);
}

static bool comes_after(uint64_t block) {
    for (const Releases *releases : acquired)
        if (std::binary_search(releases->blocks.begin(), releases->blocks.end(), block)) return true;
    return false;
}

// ---- reports ----

static std::string line_of(const Launch *launch, void *code) {
    if (!code || launch->library.empty()) return "";
    char command[600], output[512] = "";
    snprintf(command, sizeof command, "LD_PRELOAD= addr2line -e '%s' 0x%lx 2>/dev/null", launch->library.c_str(),
             (unsigned long)((uintptr_t)code - 1 - launch->library_base));
    if (FILE *pipe = popen(command, "r")) {
        if (!fgets(output, sizeof output, pipe)) output[0] = 0;
        pclose(pipe);
    }
    output[strcspn(output, "\n (")] = 0;
    const char *slash = strrchr(output, '/');
    const char *place = slash ? slash + 1 : output;
    return *place && *place != '?' ? " at " + std::string(place) : "";
}

static const char *verb(bool write) { return write ? "write" : "read"; }

static void out_of_bounds(BlockRunner *runner, const char *space, unsigned bytes, bool write, void *code,
                          const std::string &where) {
    runner->abandon(700, std::string("out-of-bounds ") + space + " " + verb(write) + " of " + std::to_string(bytes) +
                             " bytes: " + where + line_of(runner->launch, code));
}

static void report_race(BlockRunner *runner, const char *kind, const char *who, const Access &other, void *code,
                        const char *space) {
    char text[400];
    snprintf(text, sizeof text, "%s race on %s memory between %s (thread %u earlier%s; no barrier in between)", kind,
             space, who, (unsigned)other.thread, line_of(runner->launch, other.code).c_str());
    runner->abandon(719, text + line_of(runner->launch, code));
}

// ---- races ----

struct Accessor {
    uint16_t thread, warp_epoch;
    bool write, atomic, aligned, shared;
    void *code;
};

// Who the accesses race between; null if they do not.
static const char *race_with(BlockRunner *runner, const Access &other, const Accessor &now, unsigned bytes) {
    if (!other.block || other.block < launch_serial || !(other.bytes & bytes)) return nullptr;
    if (other.atomic && now.atomic) return nullptr;
    if (other.block != runner->serial) return now.shared || comes_after(other.block) ? nullptr : "different blocks";
    if (other.barrier_epoch != (runner->barrier_epoch & kEpochMask)) return nullptr;
    if (other.thread == now.thread && !other.several_threads) return nullptr;
    bool same_warp = other.thread >> 5 == now.thread >> 5 && !other.several_warps;
    if (same_warp && other.warp_epoch != now.warp_epoch) return nullptr;
    return same_warp ? "lanes of one warp" : "threads of one block";
}

static void remember(BlockRunner *runner, Access &last, const Accessor &now, unsigned bytes) {
    uint32_t epoch = runner->barrier_epoch & kEpochMask;
    bool same_time = last.block == runner->serial && last.barrier_epoch == epoch && last.warp_epoch == now.warp_epoch;
    if (!now.write && same_time && last.thread != now.thread && (last.bytes & bytes)) {
        last.several_threads = 1;  // readers do not race with each other: remember that there are more
        if (last.thread >> 5 != now.thread >> 5) last.several_warps = 1;
        last.bytes |= bytes;
    } else {
        last.several_threads = last.several_warps = 0;
        last.bytes = bytes;
    }
    last.block = runner->serial;
    last.thread = now.thread;
    last.warp_epoch = now.warp_epoch;
    last.barrier_epoch = epoch;
    last.atomic = now.atomic;
    last.code = now.code;
}

static void touch(BlockRunner *runner, AccessHistory *history, unsigned char *initialised, uintptr_t offset,
                  unsigned count, const Accessor &now) {
    const char *space = now.shared ? "shared" : "global";
    for (unsigned done = 0; done < count;) {
        uintptr_t at = offset + done;
        unsigned first = at & 3, part = std::min(4 - first, count - done), bytes = ((1u << part) - 1) << first;
        AccessHistory &word = history[at >> 2];
        if (find_uninitialised && initialised) {
            if ((!now.write || now.atomic) && memchr(initialised + at, 0, part))
                runner->abandon(
                    719, std::string("read of uninitialised ") + space + " memory" + line_of(runner->launch, now.code));
            if (now.write) memset(initialised + at, 1, part);
        }
        if (find_races) {
            if (const char *who = race_with(runner, word.write, now, bytes))
                report_race(runner, now.write ? "write-write" : "write-read", who, word.write, now.code, space);
            const char *who = now.write ? race_with(runner, word.read, now, bytes) : nullptr;
            if (who) report_race(runner, "read-write", who, word.read, now.code, space);
            remember(runner, now.write ? word.write : word.read, now, bytes);
        }
        done += part;
    }
}

// ---- bounds ----

static void check_shared(BlockRunner *runner, uintptr_t offset, unsigned bytes, const Accessor &now) {
    const Launch *launch = runner->launch;
    if (offset >= kStaticShared) {
        if (offset + bytes > kStaticShared + launch->dynamic_shared)
            out_of_bounds(runner, "shared", bytes, now.write, now.code,
                          "offset " + std::to_string(offset - kStaticShared) + " of " +
                              std::to_string(launch->dynamic_shared) + " bytes of dynamic shared memory");
    } else {
        const SharedLayout::Variable *near = nullptr;
        bool inside = false;
        for (const auto &variable : launch->shared_layout->variables) {
            inside |= (int)offset >= variable.begin && (int)(offset + bytes) <= variable.end;
            if (!near && (int)offset + 64 >= variable.begin && (int)offset < variable.end + 64) near = &variable;
        }
        if (!inside)
            out_of_bounds(runner, "shared", bytes, now.write, now.code,
                          near ? std::to_string((long)offset - near->begin) + " bytes from the start of " +
                                     near->site->name + ", which has " + std::to_string(near->site->bytes)
                               : "far from every shared variable");
    }
    touch(runner, runner->shared_history, runner->shared_initialised, offset, bytes, now);
}

static void check_global(BlockRunner *runner, uintptr_t address, unsigned bytes, const Accessor &now) {
    Allocation *found = last_found;
    if (!found || address - (uintptr_t)found->base >= found->bytes) found = last_found = find_allocation(address);
    if (!found || address + bytes > (uintptr_t)found->base + found->bytes) {
        Allocation *near = nearest_allocation(address);
        long past = near ? (long)(address - (uintptr_t)near->base - near->bytes) : 0;
        out_of_bounds(runner, "global", bytes, now.write, now.code,
                      near ? std::to_string(past) + " bytes past the end of the allocation before, which has " +
                                 std::to_string(near->bytes)
                           : "not in any allocation; was it freed?");
    }
    if (now.aligned && (address & (bytes - 1))) {
        char text[120];
        snprintf(text, sizeof text, "misaligned %u-byte %s at %#lx", bytes, verb(now.write), (unsigned long)address);
        runner->abandon(716, text + line_of(runner->launch, now.code));
    }
    if (!found->history)
        found->history = (AccessHistory *)mmap(nullptr, history_bytes(found->bytes), PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (now.atomic) order_blocks(runner, address);
    touch(runner, found->history, found->initialised, address - (uintptr_t)found->base, bytes, now);
}

void check_access(const void *pointer, unsigned bytes, AccessKind kind, void *code) {
    BlockRunner *runner = BlockRunner::current();
    if (!runner || !runner->in_kernel) return;
    const Launch *launch = runner->launch;
    uintptr_t address = (uintptr_t)pointer;
    auto inside = [address](const void *begin, size_t size) { return address - (uintptr_t)begin < size; };
    if (inside(&cuemu_thread, sizeof cuemu_thread) || inside(runner->fiber->stack, kStackBytes)) return;
    unsigned linear = cuemu_thread.linear;
    Accessor now{(uint16_t)linear,
                 (uint16_t)runner->threads[linear].warp_epoch,
                 kind.write,
                 kind.atomic,
                 kind.aligned,
                 false,
                 code};
    if (inside(runner->arena, kArena)) {
        now.shared = true;
        check_shared(runner, address - (uintptr_t)runner->arena, bytes, now);
    } else if (in_device_range(pointer)) {
        check_global(runner, address, bytes, now);
    } else if (!inside(launch->data_begin, launch->data_end - launch->data_begin) &&
               !inside(launch->arguments.data(), launch->arguments.size()) && !find_allocation(address)) {
        char text[120];
        snprintf(text, sizeof text, "%s of %u bytes at %p: not a device address", verb(kind.write), bytes, pointer);
        runner->abandon(700, text + line_of(launch, code));
    }
}

// ---- what compiled kernels call ----

static constexpr AccessKind kRead{false, false, true}, kWrite{true, false, true}, kAtomic{true, true, true};
// Of unknown alignment, as the compiler sees it: a structure's copy that a GPU makes in aligned pieces.
static constexpr AccessKind kLooseRead{false, false, false}, kLooseWrite{true, false, false};

// Old warp-synchronous code keeps its lanes in step through volatile accesses to shared memory: each gives the
// others their turn, and is not looked at for races.
static void check_volatile(void *address, unsigned bytes, AccessKind kind, void *code) {
    BlockRunner *runner = BlockRunner::current();
    if (!runner || !runner->in_kernel) return;
    if ((uintptr_t)address - (uintptr_t)runner->arena < kArena) runner->yield_lane();
    bool races = find_races;
    find_races = false;
    check_access(address, bytes, kind, code);
    find_races = races;
}

#define CALLER __builtin_return_address(0)

#pragma GCC visibility push(default)
extern "C" {
#define CUEMU_HOOKS(N)                                                                       \
    void __tsan_read##N(void *p) { check_access(p, N, kRead, CALLER); }                      \
    void __tsan_write##N(void *p) { check_access(p, N, kWrite, CALLER); }                    \
    void __tsan_unaligned_read##N(void *p) { check_access(p, N, kLooseRead, CALLER); }       \
    void __tsan_unaligned_write##N(void *p) { check_access(p, N, kLooseWrite, CALLER); }     \
    void __tsan_volatile_read##N(void *p) { check_volatile(p, N, kRead, CALLER); }           \
    void __tsan_volatile_write##N(void *p) { check_volatile(p, N, kWrite, CALLER); }         \
    void __tsan_unaligned_volatile_read##N(void *p) { check_volatile(p, N, kRead, CALLER); } \
    void __tsan_unaligned_volatile_write##N(void *p) { check_volatile(p, N, kWrite, CALLER); }
CUEMU_HOOKS(1)
CUEMU_HOOKS(2)
CUEMU_HOOKS(4)
CUEMU_HOOKS(8)
CUEMU_HOOKS(16)
void __tsan_read_range(void *p, size_t n) { check_access(p, n, kLooseRead, CALLER); }
void __tsan_write_range(void *p, size_t n) { check_access(p, n, kLooseWrite, CALLER); }
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void *, void *) {}
void __tsan_vptr_read(void *) {}

#define CUEMU_CAS(BITS)                                                                                     \
    uint##BITS##_t cuemu_cas##BITS(void *address, uint##BITS##_t expected, uint##BITS##_t desired) {        \
        if (BlockRunner::current()->launch->checked) check_access(address, BITS / 8, kAtomic, CALLER);      \
        __atomic_compare_exchange_n((uint##BITS##_t *)address, &expected, desired, false, __ATOMIC_SEQ_CST, \
                                    __ATOMIC_SEQ_CST);                                                      \
        return expected;                                                                                    \
    }
CUEMU_CAS(16)
CUEMU_CAS(32)
CUEMU_CAS(64)

void cuemu_fence() {
    __sync_synchronize();
    fenced = true;
}
}
#pragma GCC visibility pop
