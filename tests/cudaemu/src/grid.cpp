// A whole kernel: its blocks are shared among OS threads, in the order that was asked for.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <thread>

#include "block.h"
#include "checker.h"
#include "memory.h"

static constexpr unsigned long kWorthThreads = 4096;  // CUDA threads of a kernel
static constexpr unsigned long kMostReordered = 1ul << 20;
// Stacks that blocks which ran together keep. Each is two mappings of memory, of which a process may have 65530: those of
// 132 blocks of some hundred threads, beside all the modules of a test run, were so many that no thread could be started.
static constexpr unsigned long kKeptTogether = 2048;

static struct Progress {
    std::atomic<unsigned long> next;
    unsigned long blocks;
    std::atomic<bool> stop;
    std::vector<unsigned> order;  // empty: forward
    Order thread_order;
    uint64_t seed;
} progress;

static void on_signal(int signal_number, siginfo_t *info, void *) {
    BlockRunner *runner = BlockRunner::current();
    if (!runner || !runner->in_kernel) {
        signal(signal_number, SIG_DFL);  // not ours: it happens again, and ends the process
        return;
    }
    if (signal_number == SIGFPE) runner->abandon(719, "integer division by zero");
    uintptr_t address = (uintptr_t)info->si_addr;
    uintptr_t guard = (uintptr_t)runner->fiber->stack - 4096;
    char text[120];
    snprintf(text, sizeof text, "illegal address %p%s", info->si_addr,
             in_device_range(info->si_addr) ? " (of device memory: out of bounds or freed)"
             : address - guard < 4096       ? " (the thread's stack overflowed)"
                                            : "");
    runner->abandon(700, text);
}

// Takes blocks until none is left; what every OS thread of a launch does.
static KernelError work(const Launch *launch) {
    static thread_local BlockRunner runner;
    static thread_local std::vector<char> signal_stack(64 << 10);
    runner.prepare(launch, progress.thread_order, progress.seed);
    stack_t ours{}, before{};
    ours.ss_sp = signal_stack.data();
    ours.ss_size = signal_stack.size();
    sigaltstack(&ours, &before);
    sigjmp_buf jump;
    runner.jump = &jump;
    if (sigsetjmp(jump, 1) == 0) {
        runner.in_kernel = true;
        for (unsigned long i; !progress.stop && (i = progress.next.fetch_add(1)) < progress.blocks;) {
            runner.run(progress.order.empty() ? i : progress.order[i]);
            if (runner.error.code) progress.stop = true;
        }
    } else {
        progress.stop = true;
    }
    runner.in_kernel = false;
    if (runner.error.code) runner.recover();
    sigaltstack(&before, nullptr);
    return runner.error;
}

// Runs all blocks of a launch at once on this OS thread: in turn, each until its threads wait for other blocks. One is
// kept back until nothing comes of the others' turns, then the next one: so others run past a barrier that does not wait
// for all blocks, and a counter that is set back too early is read by a block that still waits for it.
static KernelError work_together(const Launch *launch) {
    static auto &crowd = *new std::vector<std::unique_ptr<BlockRunner>>;
    static std::vector<char> signal_stack(64 << 10);
    while (crowd.size() < progress.blocks) crowd.push_back(std::make_unique<BlockRunner>());
    stack_t ours{}, before{};
    ours.ss_sp = signal_stack.data();
    ours.ss_size = signal_stack.size();
    sigaltstack(&ours, &before);
    sigjmp_buf jump;
    volatile bool broken = true;
    auto runner_of = [&](unsigned long i) { return crowd[progress.order.empty() ? i : progress.order[i]].get(); };
    if (sigsetjmp(jump, 1) == 0) {
        for (unsigned long i = 0; i < progress.blocks; ++i) {
            crowd[i]->prepare(launch, progress.thread_order, progress.seed);
            crowd[i]->jump = &jump;
            crowd[i]->in_kernel = true;
            crowd[i]->begin(i);
        }
        bool alive = true;
        unsigned long late = 0;
        auto turn = [&](unsigned long i) {
            alive |= runner_of(i)->step();
            if (runner_of(i)->is_stuck()) runner_of(i)->report_deadlock();
        };
        while (alive && !BlockRunner::current()->error.code) {
            const unsigned long before = BlockRunner::progress();
            alive = false;
            for (unsigned long i = 0; i < progress.blocks && !BlockRunner::current()->error.code; ++i)
                if (i != late) turn(i);
            if (BlockRunner::progress() != before || BlockRunner::current()->error.code) {
                alive = true;
                continue;
            }
            turn(late);
            late = (late + 1) % progress.blocks;
        }
        broken = alive;
    }
    KernelError error = BlockRunner::current()->error;
    for (unsigned long i = 0; i < progress.blocks; ++i) {
        crowd[i]->in_kernel = false;
        if (broken) crowd[i]->recover();
        crowd[i]->keep_stacks(kKeptTogether / progress.blocks);
    }
    sigaltstack(&before, nullptr);
    return error;
}

// OS threads that wait for launches; they live as long as the process.
class Helpers {
  public:
    void begin(const Launch *launch, int count) {
        std::lock_guard<std::mutex> lock(mutex_);
        while ((int)threads_.size() < count) {
            threads_.emplace_back([this, seen = generation_] { loop(seen); });
            threads_.back().detach();
        }
        launch_ = launch;
        error_ = KernelError();
        busy_ = (int)threads_.size();
        ++generation_;
        wake_.notify_all();
    }
    KernelError finish() {
        std::unique_lock<std::mutex> lock(mutex_);
        done_.wait(lock, [this] { return busy_ == 0; });
        return error_;
    }

  private:
    void loop(unsigned seen) {
        sigset_t blocked;  // Python's signals are for the main thread
        sigfillset(&blocked);
        for (int ours : {SIGSEGV, SIGBUS, SIGFPE}) sigdelset(&blocked, ours);
        pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
        for (;;) {
            std::unique_lock<std::mutex> lock(mutex_);
            wake_.wait(lock, [&] { return generation_ != seen; });
            seen = generation_;
            const Launch *launch = launch_;
            lock.unlock();
            KernelError error = work(launch);
            lock.lock();
            if (error.code) error_ = error;
            if (--busy_ == 0) done_.notify_all();
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_, done_;
    std::vector<std::thread> threads_;
    const Launch *launch_ = nullptr;
    unsigned generation_ = 0;
    int busy_ = 0;
    KernelError error_;
};

static std::vector<unsigned> block_order(unsigned long blocks, Order order, uint64_t seed) {
    std::vector<unsigned> result;
    if (order == Order::forward || blocks > kMostReordered) return result;
    for (unsigned i = 0; i < blocks; ++i) result.push_back(order == Order::reverse ? blocks - 1 - i : i);
    if (order != Order::random) return result;
    uint64_t state = seed;
    for (unsigned i = blocks; i > 1; --i) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        std::swap(result[i - 1], result[(state >> 33) % i]);
    }
    return result;
}

KernelError run_kernel(const Launch &launch) {
    static std::mutex one_at_a_time;
    static uint64_t launches = 0;
    static Helpers &helpers = *new Helpers;
    std::lock_guard<std::mutex> guard(one_at_a_time);
    static const int cores = std::max(1u, std::thread::hardware_concurrency());
    const dim3 &grid = launch.grid, &block = launch.block;
    progress.next = 0;
    progress.stop = false;
    progress.blocks = (unsigned long)grid.x * grid.y * grid.z;
    progress.thread_order = order_option();
    progress.seed = (uint64_t)option("CUEMU_SEED", 1) + 1000003 * launches++;
    progress.order = block_order(progress.blocks, progress.thread_order, progress.seed);
    if (launch.checked) start_checked_launch();

    struct sigaction ours{}, segv, bus, fpe;
    ours.sa_sigaction = on_signal;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigfillset(&ours.sa_mask);
    sigaction(SIGSEGV, &ours, &segv);
    sigaction(SIGBUS, &ours, &bus);
    sigaction(SIGFPE, &ours, &fpe);

    int threads = option("CUEMU_THREADS", cores);
    unsigned long cuda_threads = progress.blocks * block.x * block.y * block.z;
    KernelError error;
    if (launch.cooperative) {
        error = work_together(&launch);
    } else if (launch.checked || threads <= 1 || progress.blocks == 1 || cuda_threads < kWorthThreads) {
        error = work(&launch);
    } else {
        helpers.begin(&launch, threads - 1);
        error = work(&launch);
        KernelError other = helpers.finish();
        if (!error.code) error = other;
    }
    sigaction(SIGSEGV, &segv, nullptr);
    sigaction(SIGBUS, &bus, nullptr);
    sigaction(SIGFPE, &fpe, nullptr);
    return error;
}
