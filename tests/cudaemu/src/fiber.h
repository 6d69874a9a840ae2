// Fibers: stacks that one OS thread switches between, each running one CUDA thread of a block.
#pragma once
#include <cstddef>
#include <vector>

constexpr size_t kStackBytes = 128 << 10;

struct Fiber {
    void *stack_pointer = nullptr;
    char *stack = nullptr;  // lowest address; a guard page lies below
    int thread = -1;        // linear index of the CUDA thread it runs
};

// Saves the running stack pointer to *save and continues on another stack. Defined in assembly.
extern "C" __attribute__((visibility("hidden"))) void cuemu_switch(void **save, void *to);

// The fibers of one OS thread. They are kept: the next block runs on the same stacks.
class FiberPool {
  public:
    explicit FiberPool(void (*entry)()) : entry_(entry) {}
    Fiber *take();
    void give_back(Fiber *fiber) { free_.push_back(fiber); }
    // After a kernel was abandoned: every stack starts from its beginning again.
    void restart_all();
    // Give the memory of all but this many back, once no thread runs.
    void keep(size_t most);

  private:
    void restart(Fiber *fiber);

    void (*entry_)();
    std::vector<Fiber *> all_, free_;
};
