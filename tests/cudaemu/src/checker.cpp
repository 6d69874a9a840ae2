#include "checker.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <unordered_map>
#include <vector>

#include "memory.h"
#include "options.h"

static constexpr uint32_t kEpochMask = 0xffffff;

static bool find_races = true, find_uninitialised = true;
static uint64_t last_serial, launch_serial;
static Allocation *last_found;

// What orders blocks: one that changes a word atomically, or reads it by an acquiring load, comes after the blocks that
// changed it before, as far as those called __threadfence() first. That is how the last block of a reduction may read
// what the others wrote. Blocks that run together get a new serial number as they do so: what they write afterwards is
// not ordered by it.
struct Releases {
    std::unordered_map<uint64_t, size_t> place;  // serial number -> how many came before it
};
static std::map<uintptr_t, Releases> released;  // by address
static std::vector<uint64_t> homes;             // serial number, from launch_serial on -> the block's first one

static uint64_t new_serial(uint64_t home) {
    ++last_serial;
    homes.push_back(home ? home : last_serial);
    return last_serial;
}

static bool is_same_block(uint64_t serial, const BlockRunner *runner) {
    return serial == runner->serial || homes[serial - launch_serial] == homes[runner->serial - launch_serial];
}

void start_checked_launch() {
    launch_serial = last_serial + 1;
    last_found = nullptr;
    find_races = option("CUEMU_RACE", 1);
    find_uninitialised = option("CUEMU_INIT", 1);
    homes.clear();
    released.clear();
}

void start_checked_block(BlockRunner *runner) {
    runner->acquired.clear();
    runner->fenced = false;
    runner->serial = new_serial(0);
}

static void order_blocks(BlockRunner *runner, uintptr_t address, bool releases_too) {
    Releases &releases = released[address];
    auto known = std::find_if(runner->acquired.begin(), runner->acquired.end(),
                              [&](const auto &each) { return each.first == &releases; });
    if (known == runner->acquired.end()) known = runner->acquired.insert(known, {&releases, 0});
    known->second = releases.place.size();
    if (!releases_too || !runner->fenced) return;
    releases.place.emplace(runner->serial, releases.place.size());
    if (runner->launch->cooperative) runner->serial = new_serial(homes[runner->serial - launch_serial]);
}

static bool comes_after(const BlockRunner *runner, uint64_t serial) {
    for (const auto &[releases, count] : runner->acquired) {
        auto found = releases->place.find(serial);
        if (found != releases->place.end() && found->second < count) return true;
    }
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
    bool write, atomic, aligned, coherent, shared;
    void *code;
};

// Who the accesses race between; null if they do not.
static const char *race_with(BlockRunner *runner, const Access &other, const Accessor &now, unsigned bytes) {
    if (!other.block || other.block < launch_serial || !(other.bytes & bytes)) return nullptr;
    if (other.atomic && now.atomic) return nullptr;
    if (!is_same_block(other.block, runner))
        return now.shared || comes_after(runner, other.block) ? nullptr : "different blocks";
    if (other.barrier_epoch != (runner->barrier_epoch & kEpochMask)) return nullptr;
    if (other.thread == now.thread && !other.several_threads) return nullptr;
    bool same_warp = other.thread >> 5 == now.thread >> 5 && !other.several_warps;
    if (same_warp && other.warp_epoch != now.warp_epoch) return nullptr;
    return same_warp ? "lanes of one warp" : "threads of one block";
}

// What another block wrote in this launch may lie in the L1 cache as it was before: ordering alone does not help, and a
// load through `const __restrict__` goes to a cache that no fence empties.
static void refuse_plain_read(BlockRunner *runner, const Access &other, const Accessor &now, unsigned bytes) {
    if (now.write || now.atomic || now.coherent || now.shared) return;
    if (!other.block || other.block < launch_serial || !(other.bytes & bytes) || is_same_block(other.block, runner))
        return;
    runner->abandon(719, "plain read of what another block wrote in this launch" +
                             line_of(runner->launch, other.code) + ": it needs __ldcg or an acquiring load" +
                             line_of(runner->launch, now.code));
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
            refuse_plain_read(runner, word.write, now, bytes);
            remember(runner, now.write ? word.write : word.read, now, bytes);
        }
        done += part;
    }
}

// ---- bounds ----

static void check_alignment(BlockRunner *runner, uintptr_t place, unsigned bytes, const Accessor &now, const char *where) {
    if (!now.aligned || !(place & (bytes - 1))) return;
    char text[120];
    snprintf(text, sizeof text, "misaligned %u-byte %s%s at %#lx", bytes, verb(now.write), where, (unsigned long)place);
    runner->abandon(716, text + line_of(runner->launch, now.code));
}

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
    check_alignment(runner, offset, bytes, now, " of shared memory");
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
    check_alignment(runner, address, bytes, now, "");
    if (!found->history)
        found->history = (AccessHistory *)mmap(nullptr, history_bytes(found->bytes), PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (now.atomic && now.coherent) order_blocks(runner, address, now.write);
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
                 kind.coherent,
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

static constexpr AccessKind kRead{false, false, true, false}, kWrite{true, false, true, false};
static constexpr AccessKind kAtomic{true, true, true, true}, kAcquire{false, true, true, true};
static constexpr AccessKind kPastL1{false, false, true, true}, kRelaxed{false, true, true, false};
// Of unknown alignment, as the compiler sees it: a structure's copy that a GPU makes in aligned pieces.
static constexpr AccessKind kLooseRead{false, false, false, false}, kLooseWrite{true, false, false, false};

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
        uint##BITS##_t wanted = expected;                                                                   \
        __atomic_compare_exchange_n((uint##BITS##_t *)address, &expected, desired, false, __ATOMIC_SEQ_CST, \
                                    __ATOMIC_SEQ_CST);                                                      \
        if (wanted != expected)                                                                             \
            cuemu_pause();                                                                                  \
        else if (desired != expected)                                                                       \
            BlockRunner::current()->progressed();                                                           \
        return expected;                                                                                    \
    }
CUEMU_CAS(16)
CUEMU_CAS(32)
CUEMU_CAS(64)

void cuemu_fence() {
    __sync_synchronize();
    BlockRunner::current()->fenced = true;
}

void cuemu_coherent(void *to, const void *from, unsigned bytes, int load) {
    BlockRunner *runner = BlockRunner::current();
    if (load == CUEMU_ACQUIRE) runner->pause();
    if (runner->launch->checked)
        check_access(from, bytes, load == CUEMU_ACQUIRE ? kAcquire : load == CUEMU_RELAXED ? kRelaxed : kPastL1, CALLER);
    memcpy(to, from, bytes);
}

void cuemu_pause() { BlockRunner::current()->pause(); }

void cuemu_copy_async(void *to, const void *from, unsigned bytes, unsigned from_bytes, int line) {
    BlockRunner *runner = BlockRunner::current();
    if ((bytes != 4 && bytes != 8 && bytes != 16) || from_bytes > bytes)
        cuemu_fail(716, "cp.async on line %d: %u of %u bytes; it copies 4, 8 or 16", line, from_bytes, bytes);
    if (((uintptr_t)to | (uintptr_t)from) & (bytes - 1))
        cuemu_fail(716, "cp.async on line %d: %u bytes, and an address that is no multiple of them", line, bytes);
    if ((uintptr_t)to - (uintptr_t)runner->arena >= kArena)
        cuemu_fail(700, "cp.async on line %d: not to shared memory", line);
    if (runner->launch->checked) {
        if (from_bytes) check_access(from, from_bytes, kLooseRead, CALLER);
        check_access(to, bytes, kWrite, CALLER);
        memset(runner->shared_initialised + ((char *)to - runner->arena), 0, bytes);
    }
    memset(to, 0xFF, bytes);  // what is read before it is waited for
    runner->copies_of_thread().open.push_back({(char *)to, (const char *)from, bytes, from_bytes, CALLER});
}

void cuemu_copy_commit() {
    AsyncCopies &copies = BlockRunner::current()->copies_of_thread();
    copies.groups.push_back(std::move(copies.open));
    copies.open.clear();
}

static void land(BlockRunner *runner, const std::vector<AsyncCopies::Copy> &group) {
    for (const AsyncCopies::Copy &copy : group) {
        if (runner->launch->checked) check_access(copy.to, copy.bytes, kWrite, copy.code);
        memcpy(copy.to, copy.from, copy.from_bytes);
        memset(copy.to + copy.from_bytes, 0, copy.bytes - copy.from_bytes);
    }
}

void cuemu_copy_wait(int groups) {
    BlockRunner *runner = BlockRunner::current();
    AsyncCopies &copies = runner->copies_of_thread();
    if (groups < 0) cuemu_copy_commit();
    for (; (int)copies.groups.size() > std::max(groups, 0); copies.groups.pop_front()) land(runner, copies.groups.front());
}
}
#pragma GCC visibility pop
