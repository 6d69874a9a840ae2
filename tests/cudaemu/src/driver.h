// What the files of the driver API (api_*.cpp) share: contexts, streams, events, and how calls fail.
#pragma once
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include <cuda.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "block.h"
#include "memory.h"
#include "options.h"

#define EXPORT extern "C" __attribute__((visibility("default")))
#define API EXPORT CUresult

struct Stream;

struct Context {
    int references = 1;
    CUresult lost = CUDA_SUCCESS;  // what every call answers after the context broke
    std::set<Stream *> streams;
    size_t stack_limit = 1024, heap_limit = 8 << 20, print_limit = 1 << 20;
};

// Work on a stream is done at once, or (CUEMU_ASYNC=1) kept until something waits for it.
struct Stream {
    unsigned flags = 0;
    uint64_t submitted = 0, completed = 0;  // pieces of work
    std::deque<std::function<CUresult()>> queue;
    CUresult error = CUDA_SUCCESS;  // of work that nobody has waited for
};

typedef std::lock_guard<std::recursive_mutex> Lock;
std::recursive_mutex &driver_lock();

// Remembers the message for cuGetErrorString and returns the code.
CUresult fail(CUresult code, const std::string &message);
const std::string &last_message();

Context *current_context();
Context *make_context();
CUresult check_context(const char *function, Context **context);
// A kernel's fault ends its context where CUEMU_STICKY=1, as it does on a GPU.
void context_fault(CUresult code);

// Opens most functions: takes the lock and names the current context.
#define IN_CONTEXT                                                          \
    Lock lock(driver_lock());                                               \
    Context *context = nullptr;                                             \
    if (CUresult failed = check_context(__func__, &context)) return failed; \
    (void)context

// Runs work on a stream: now or later, see Stream.
CUresult submit(CUstream stream, std::function<CUresult()> work);
CUresult finish_stream(Stream *stream, uint64_t up_to = ~0ull);
// What the null stream waits for.
void finish_blocking_streams();
// The streams of the current context, in a random interleaving; returns an error of theirs if `report`.
CUresult finish_all(bool report);
bool is_null_stream(CUstream stream);

// CUDA_SUCCESS if the bytes lie inside one allocation, or in a module's data; marks them initialised if written.
CUresult check_range(CUdeviceptr address, size_t bytes, bool written, const char *function);
bool in_module_data(CUdeviceptr address, size_t bytes);
void free_memory_of(Context *context);
bool is_sm90();
int compute_capability();
constexpr int kDefaultSharedLimit = 48 << 10;
inline int shared_limit() { return (is_sm90() ? 227 : 163) << 10; }
