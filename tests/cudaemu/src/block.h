// One block of a kernel: its threads are fibers of one OS thread, resumed in turn until they wait or return.
#pragma once
#include <setjmp.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "../include/cuemu_abi.h"
#include "fiber.h"
#include "options.h"

struct AccessHistory;
struct Releases;

// Copies of one thread to shared memory that have not landed.
struct AsyncCopies {
    struct Copy {
        char *to;
        const char *from;
        unsigned bytes, from_bytes;
        void *code;
    };
    std::vector<Copy> open;  // in no group yet
    std::deque<std::vector<Copy>> groups;
};

constexpr size_t kStaticShared = 256 << 10;  // of a module, with a gap after each variable
constexpr size_t kDynamicShared = 256 << 10;
constexpr size_t kArena = kStaticShared + kDynamicShared;

// The `__shared__` variables of one module. They get their places when their declarations first run.
struct SharedLayout {
    struct Variable {
        int begin, end;
        const cuemu_shared_site *site;
    };
    std::mutex mutex;
    std::vector<Variable> variables;
    int end = 0;
    std::atomic<int> declared{0};  // bytes of all variables
};
constexpr char kTooMuchShared[] =
    "%u bytes of dynamic shared memory beside %d that are declared, %d allowed in all (cuFuncSetAttribute allows more)";

struct Launch {
    const cuemu_kernel *kernel = nullptr;
    std::vector<char> arguments;
    dim3 grid, block;
    unsigned dynamic_shared = 0;
    int shared_allowed = 0;  // bytes, declared or dynamic
    SharedLayout *shared_layout = nullptr;
    const char *data_begin = nullptr, *data_end = nullptr;  // `__constant__` and `__device__` variables
    std::string library;                                    // the module's file, for line numbers
    uintptr_t library_base = 0;
    bool checked = false;
    bool cooperative = false;  // all blocks are there at once, and may wait for each other
};

struct KernelError {
    int code = 0;  // a CUresult
    std::string message;
};

enum class State : unsigned char { fresh, running, ready, at_barrier, at_warp, done };

struct ThreadState {
    Fiber *fiber = nullptr;
    State state = State::fresh;
    int line = 0;             // where it waits
    unsigned warp_epoch = 0;  // warp operations it has passed
};

// Lanes of a warp that meet at an operation; one for each mask in use.
struct Meeting {
    unsigned mask = 0, arrived = 0, lanes = 0;
    int operation = 0, line = 0;
    unsigned generation = 0;
    uint64_t values[2][32];  // of this meeting and the last, which slow lanes still read
};

struct Warp {
    unsigned alive = 0;
    std::vector<Meeting> meetings;
};

// Runs blocks on the calling OS thread, one after another.
class BlockRunner {
  public:
    BlockRunner();
    static BlockRunner *current();

    void prepare(const Launch *launch, Order order, uint64_t seed);
    void run(unsigned long block_index);
    // For blocks that run together: `begin`, then `step` for as long as it returns true, among steps of the others.
    void begin(unsigned long block_index);
    bool step();
    bool is_stuck() const { return alive_ && !ready_count_; }
    void report_deadlock();
    // Ends the running kernel with an error; called on a fiber or in a signal handler.
    void abandon(int code, const std::string &message) __attribute__((noreturn));
    void recover();
    // Between launches: keep the stacks of this many threads at most.
    void keep_stacks(size_t most) { pool_.keep(most); }

    // What kernels call through the ABI.
    int barrier(int line, int predicate, int *set);
    const uint64_t *warp(unsigned mask, int operation, uint64_t value, int line, unsigned *lanes);
    void place(cuemu_shared_site *site);
    // Lets every other lane run as far, as lock step would: for warp-synchronous code on volatile memory.
    void yield_lane();
    // The running thread waits for others: lets them run, and ends the kernel where nothing ever comes of it.
    void pause();
    void progressed() { pauses_ = 0, ++progress_; }
    // How often something came of what a block on this OS thread did.
    static unsigned long progress() { return progress_; }
    AsyncCopies &copies_of_thread();

    const Launch *launch = nullptr;
    KernelError error;
    sigjmp_buf *jump = nullptr;
    volatile bool in_kernel = false;

    // What the checker reads.
    Fiber *fiber = nullptr;  // the running one
    char *arena = nullptr;
    unsigned char *shared_initialised = nullptr;
    AccessHistory *shared_history = nullptr;
    std::vector<ThreadState> threads;
    unsigned barrier_epoch = 0;
    uint64_t serial = 0;  // of the block among all blocks that were ever checked
    bool fenced = false;  // it called __threadfence()
    std::vector<std::pair<const Releases *, size_t>> acquired;  // words by which it comes after others, and after how many

  private:
    static void fiber_main();
    void start_block();
    void resume_next(void **save);
    void make_ready(int thread);
    int pop_ready();
    void finish(int thread);
    void release_barrier();
    void release_meeting(int warp, Meeting &meeting);
    Meeting &meeting_of(Warp &warp, unsigned mask);
    void set_position(unsigned long block_index);
    unsigned random();

    FiberPool pool_;
    void *main_stack_ = nullptr;
    std::vector<uint3> positions_;
    std::vector<int> order_, ready_;  // ready_ is a ring
    size_t ready_begin_ = 0, ready_count_ = 0;
    std::vector<Warp> warps_;
    int count_ = 0, alive_ = 0, waiting_ = 0, barrier_line_ = 0, predicates_ = 0, predicates_result_ = 0;
    Order thread_order_ = Order::forward;
    uint64_t random_state_ = 0;
    std::vector<AsyncCopies> copies_;
    cuemu_thread_t saved_;  // what the running thread saw when the block last stood still
    static thread_local unsigned long pauses_, progress_;  // since anything last came of one; how often anything did
};

// Runs a whole kernel; returns when all of its blocks have ended.
KernelError run_kernel(const Launch &launch);
