#include "fiber.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

// The six registers that a called function must preserve, and the stack pointer. (ucontext makes a system call at
// each switch, which costs a hundred times as much.)
asm(R"(
.text
.globl cuemu_switch
.type cuemu_switch,@function
cuemu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cuemu_switch,.-cuemu_switch
)");

static constexpr size_t kGuardBytes = 4096;

void FiberPool::restart(Fiber *fiber) {
    void **top = (void **)(fiber->stack + kStackBytes);
    *--top = nullptr;  // the ABI wants rsp % 16 == 8 at a function's first instruction
    *--top = (void *)entry_;
    for (int preserved = 0; preserved < 6; ++preserved) *--top = nullptr;
    fiber->stack_pointer = top;
}

Fiber *FiberPool::take() {
    if (!free_.empty()) {
        Fiber *fiber = free_.back();
        free_.pop_back();
        return fiber;
    }
    char *memory = (char *)mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        fprintf(stderr, "cuemu: no memory for the stack of a CUDA thread; launch smaller blocks\n");
        abort();
    }
    mprotect(memory, kGuardBytes, PROT_NONE);
    Fiber *fiber = new Fiber;
    fiber->stack = memory + kGuardBytes;
    restart(fiber);
    all_.push_back(fiber);
    return fiber;
}

void FiberPool::restart_all() {
    free_ = all_;
    for (Fiber *fiber : all_) restart(fiber);
}

void FiberPool::keep(size_t most) {
    if (all_.size() <= most) return;
    for (size_t i = most; i < all_.size(); ++i) {
        munmap(all_[i]->stack - kGuardBytes, kGuardBytes + kStackBytes);
        delete all_[i];
    }
    all_.resize(most);
    restart_all();
}
