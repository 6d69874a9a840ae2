#include "block.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "checker.h"

__thread cuemu_thread_t cuemu_thread __attribute__((tls_model("initial-exec")));

static constexpr unsigned char kFill = 0xFF;  // a nan in every floating-point type
static constexpr int kGap = 64;               // bytes between shared variables that nobody may touch

static constexpr unsigned long kMostPauses = 1000000;  // of a kernel in which nothing else happens

static thread_local BlockRunner *running;
thread_local unsigned long BlockRunner::pauses_ = 0, BlockRunner::progress_ = 0;
BlockRunner *BlockRunner::current() { return running; }

static void *anonymous(size_t bytes) {
    return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

BlockRunner::BlockRunner() : pool_(fiber_main) {
    arena = (char *)anonymous(kArena + 8192);
    mprotect(arena + kArena, 8192, PROT_NONE);
}

void BlockRunner::prepare(const Launch *next, Order order, uint64_t seed) {
    running = this;
    if (next->checked && !shared_initialised) {
        shared_initialised = (unsigned char *)anonymous(kArena);
        shared_history = (AccessHistory *)anonymous(history_bytes(kArena));
    }
    launch = next;
    error = KernelError();
    thread_order_ = order;
    random_state_ = (seed + 1) * 0x9E3779B97F4A7C15ull;
    const dim3 &block = launch->block;
    count_ = block.x * block.y * block.z;
    threads.assign(count_, ThreadState());
    ready_.resize(count_);
    order_.resize(count_);
    positions_.clear();
    warps_.resize((count_ + 31) / 32);
    for (unsigned z = 0; z < block.z; ++z)
        for (unsigned y = 0; y < block.y; ++y)
            for (unsigned x = 0; x < block.x; ++x) positions_.push_back(uint3{x, y, z});
    for (int i = 0; i < count_; ++i) order_[i] = order == Order::reverse ? count_ - 1 - i : i;
    cuemu_thread.block_dim = uint3{block.x, block.y, block.z};
    cuemu_thread.grid_dim = uint3{launch->grid.x, launch->grid.y, launch->grid.z};
    cuemu_thread.static_shared = arena;
    cuemu_thread.dynamic_shared = arena + kStaticShared;
}

unsigned BlockRunner::random() {
    random_state_ ^= random_state_ << 13;
    random_state_ ^= random_state_ >> 7;
    random_state_ ^= random_state_ << 17;
    return (unsigned)(random_state_ >> 11);
}

void BlockRunner::start_block() {
    if (thread_order_ == Order::random)
        for (int i = count_ - 1; i > 0; --i) std::swap(order_[i], order_[random() % (i + 1)]);
    for (ThreadState &thread : threads) thread = ThreadState();
    for (size_t i = 0; i < warps_.size(); ++i) {
        int lanes = std::min(32, count_ - 32 * (int)i);
        warps_[i].alive = lanes == 32 ? ~0u : (1u << lanes) - 1;
        warps_[i].meetings.clear();
    }
    std::copy(order_.begin(), order_.end(), ready_.begin());
    ready_begin_ = 0;
    ready_count_ = alive_ = count_;
    waiting_ = predicates_ = 0;
    barrier_epoch = 0;
    copies_.clear();
    pauses_ = 0;
    int end = launch->shared_layout->end;
    if (option("CUEMU_FILL", 1)) {
        memset(arena, kFill, end);
        memset(arena + kStaticShared, kFill, launch->dynamic_shared);
    }
    if (launch->checked) {
        memset(shared_initialised, 0, end);
        memset(shared_initialised + kStaticShared, 0, launch->dynamic_shared);
        start_checked_block(this);
    }
}

void BlockRunner::set_position(unsigned long index) {
    const dim3 &grid = launch->grid;
    cuemu_thread.block = uint3{(unsigned)(index % grid.x), (unsigned)(index / grid.x % grid.y),
                               (unsigned)(index / ((unsigned long)grid.x * grid.y))};
}

void BlockRunner::run(unsigned long index) {
    start_block();
    set_position(index);
    resume_next(&main_stack_);
    if (alive_) report_deadlock();
}

void BlockRunner::begin(unsigned long index) {
    start_block();
    set_position(index);
    saved_ = cuemu_thread;
}

bool BlockRunner::step() {
    running = this;
    cuemu_thread = saved_;
    if (ready_count_) resume_next(&main_stack_);
    saved_ = cuemu_thread;
    return alive_;
}

AsyncCopies &BlockRunner::copies_of_thread() {
    if (copies_.empty()) copies_.resize(count_);
    return copies_[cuemu_thread.linear];
}

void BlockRunner::pause() {
    if (++pauses_ > kMostPauses) {
        pauses_ = 0;
        cuemu_fail(702, "a thread waits for what no other does%s",
                   launch->cooperative ? "" : "; blocks of a plain launch need not run at the same time");
    }
    if (!in_kernel) return;
    ThreadState &thread = threads[cuemu_thread.linear];
    make_ready(cuemu_thread.linear);
    if (launch->cooperative)
        cuemu_switch(&thread.fiber->stack_pointer, main_stack_);
    else
        resume_next(&thread.fiber->stack_pointer);
}

void BlockRunner::make_ready(int thread) {
    ready_[(ready_begin_ + ready_count_++) % count_] = thread;
    if (threads[thread].state != State::fresh) threads[thread].state = State::ready;
}

int BlockRunner::pop_ready() {
    int thread = ready_[ready_begin_];
    ready_begin_ = ready_begin_ + 1 == (size_t)count_ ? 0 : ready_begin_ + 1;
    --ready_count_;
    return thread;
}

// Leaves the current stack, whose pointer goes to *save, for whatever can run; for the caller of `run` if nothing can.
void BlockRunner::resume_next(void **save) {
    if (!ready_count_) {
        cuemu_switch(save, main_stack_);
        return;
    }
    int next = pop_ready();
    ThreadState &thread = threads[next];
    if (!thread.fiber) {
        thread.fiber = pool_.take();
        thread.fiber->thread = next;
    }
    thread.state = State::running;
    cuemu_thread.thread = positions_[next];
    cuemu_thread.linear = next;
    fiber = thread.fiber;
    if (save != &fiber->stack_pointer) cuemu_switch(save, fiber->stack_pointer);
}

void BlockRunner::finish(int thread) {
    threads[thread].state = State::done;
    threads[thread].fiber = nullptr;
    --alive_;
    progressed();
    Warp &warp = warps_[thread >> 5];
    warp.alive &= ~(1u << (thread & 31));
    for (Meeting &meeting : warp.meetings)
        if (meeting.arrived) release_meeting(thread >> 5, meeting);
    if (alive_ && waiting_ == alive_) release_barrier();
}

void BlockRunner::fiber_main() {
    for (;;) {
        BlockRunner *self = running;
        Fiber *fiber = self->fiber;
        self->launch->kernel->call(self->launch->arguments.data());
        self = running;
        self->finish(fiber->thread);
        if (self->ready_count_ && !self->threads[self->ready_[self->ready_begin_]].fiber) {
            // The next thread has not begun: it runs on this stack, without a switch. Most kernels need no other.
            int next = self->pop_ready();
            self->threads[next].fiber = fiber;
            self->threads[next].state = State::running;
            fiber->thread = next;
            cuemu_thread.thread = self->positions_[next];
            cuemu_thread.linear = next;
            continue;
        }
        self->pool_.give_back(fiber);
        self->resume_next(&fiber->stack_pointer);
    }
}

int BlockRunner::barrier(int line, int predicate, int *set) {
    ThreadState &thread = threads[cuemu_thread.linear];
    if (launch->checked && waiting_ && barrier_line_ != line)
        cuemu_fail(719, "divergent barrier: threads of one block wait at __syncthreads() on lines %d and %d",
                   barrier_line_, line);
    barrier_line_ = line;
    ++waiting_;
    predicates_ += predicate;
    thread.state = State::at_barrier;
    thread.line = line;
    if (waiting_ == alive_) release_barrier();
    resume_next(&thread.fiber->stack_pointer);
    *set = predicates_result_;
    return alive_;
}

void BlockRunner::release_barrier() {
    progressed();
    ++barrier_epoch;
    waiting_ = 0;
    predicates_result_ = predicates_;
    predicates_ = 0;
    for (int thread : order_)
        if (threads[thread].state == State::at_barrier) make_ready(thread);
}

Meeting &BlockRunner::meeting_of(Warp &warp, unsigned mask) {
    for (Meeting &meeting : warp.meetings)
        if (meeting.mask == mask) return meeting;
    warp.meetings.emplace_back();
    warp.meetings.back().mask = mask;
    return warp.meetings.back();
}

const uint64_t *BlockRunner::warp(unsigned mask, int operation, uint64_t value, int line, unsigned *lanes) {
    int linear = cuemu_thread.linear, lane = linear & 31, index = linear >> 5;
    ThreadState &thread = threads[linear];
    if (!(mask >> lane & 1))
        cuemu_fail(719, "warp operation on line %d: lane %d calls it and is not in the mask 0x%08x", line, lane, mask);
    Meeting *meeting = &meeting_of(warps_[index], mask);
    if (meeting->arrived && meeting->operation != operation)
        cuemu_fail(719, "lanes of one warp are at different warp operations, on lines %d and %d", meeting->line, line);
    meeting->operation = operation;
    meeting->line = line;
    unsigned generation = meeting->generation & 1;
    meeting->values[generation][lane] = value;
    meeting->arrived |= 1u << lane;
    thread.state = State::at_warp;
    thread.line = line;
    release_meeting(index, *meeting);
    resume_next(&thread.fiber->stack_pointer);
    meeting = &meeting_of(warps_[index], mask);  // other masks may have made the list grow
    *lanes = meeting->lanes;
    return meeting->values[generation];
}

// Once every living lane of the mask has come.
void BlockRunner::release_meeting(int warp, Meeting &meeting) {
    unsigned wanted = meeting.mask & warps_[warp].alive;
    if (!meeting.arrived || (meeting.arrived & wanted) != wanted) return;
    meeting.lanes = meeting.arrived;
    meeting.arrived = 0;
    ++meeting.generation;
    for (int lane = 0; lane < 32; ++lane) {
        if (!(meeting.lanes >> lane & 1)) continue;
        int thread = warp * 32 + lane;
        if (meeting.operation % 16 == CUEMU_SYNCWARP) ++threads[thread].warp_epoch;  // no other orders memory
        if (threads[thread].state == State::at_warp) make_ready(thread);
    }
}

void BlockRunner::yield_lane() {
    ThreadState &thread = threads[cuemu_thread.linear];
    ++thread.warp_epoch;
    make_ready(cuemu_thread.linear);
    resume_next(&thread.fiber->stack_pointer);
}

void BlockRunner::place(cuemu_shared_site *site) {
    SharedLayout &layout = *launch->shared_layout;
    int declared = 0;
    {
        std::lock_guard<std::mutex> guard(layout.mutex);
        if (site->offset >= 0) return;
        // At a multiple of its own alignment, and of no more: an access that is wider than its elements may not rely on it.
        int alignment = std::max(4u, site->alignment);
        int begin = (layout.end + kGap + 2 * alignment - 1) / (2 * alignment) * (2 * alignment) + alignment;
        int end = begin + (int)site->bytes;
        if (end <= (int)kStaticShared) {
            layout.end = (end + 3) / 4 * 4;
            layout.variables.push_back({begin, end, site});
            memset(arena + begin, kFill, site->bytes);
            if (shared_initialised) memset(shared_initialised + begin, 0, site->bytes);
            declared = layout.declared += (int)site->bytes;
            __atomic_store_n(&site->offset, begin, __ATOMIC_RELEASE);
        }
    }  // which a failure would leave locked
    if (!declared)
        cuemu_fail(701, "the shared variables of this module need more than %zu KiB, the emulator's limit",
                   kStaticShared >> 10);
    if (launch->dynamic_shared && (int)launch->dynamic_shared + declared > launch->shared_allowed)
        cuemu_fail(1, kTooMuchShared, launch->dynamic_shared, declared, launch->shared_allowed);
}

static std::string position(const cuemu_kernel *kernel) {
    char text[200];
    uint3 thread = cuemu_thread.thread, block = cuemu_thread.block;
    snprintf(text, sizeof text, " [kernel %s, block (%u,%u,%u), thread (%u,%u,%u)]", kernel->name, block.x, block.y,
             block.z, thread.x, thread.y, thread.z);
    return text;
}

void BlockRunner::abandon(int code, const std::string &message) {
    error.code = code;
    error.message = message + position(launch->kernel);
    siglongjmp(*jump, 1);
}

void BlockRunner::recover() { pool_.restart_all(); }

void BlockRunner::report_deadlock() {
    int at_barrier = 0, at_warp = 0, barrier_line = 0, warp_line = 0;
    for (const ThreadState &thread : threads) {
        if (thread.state == State::at_barrier) ++at_barrier, barrier_line = thread.line;
        if (thread.state == State::at_warp) ++at_warp, warp_line = thread.line;
    }
    char text[300];
    snprintf(text, sizeof text,
             "deadlock: of %d threads %d wait at __syncthreads() (line %d), %d at a warp operation (line %d), %d have "
             "returned",
             count_, at_barrier, barrier_line, at_warp, warp_line, count_ - alive_);
    error.code = 702;
    error.message = text + position(launch->kernel);
}

// ---- the ABI ----

extern "C" {
void cuemu_place_shared(cuemu_shared_site *site) { running->place(site); }
int cuemu_barrier(int line, int predicate, int *set) { return running->barrier(line, predicate, set); }
const uint64_t *cuemu_warp(unsigned mask, int operation, uint64_t value, int line, unsigned *lanes) {
    return running->warp(mask, operation, value, line, lanes);
}
void cuemu_fail(int code, const char *format, ...) {
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    running->abandon(code, text);
}
}
