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
#include <thread>
#include <vector>

#include "block.h"
#include "memory.h"
#include "options.h"

#define EXPORT extern "C" __attribute__((visibility("default")))
#define API EXPORT CUresult

struct Stream;

struct Context {
    int device = 0;
    int references = 1;
    CUresult lost = CUDA_SUCCESS;  // what every call answers after the context broke
    std::set<Stream *> streams;
    size_t stack_limit = 1024, heap_limit = 8 << 20, print_limit = 1 << 20;
};

// What a stream recorded instead of doing it; see api_graph.cpp.
struct Graph {
    struct Node {
        std::function<CUresult()> work;
        std::vector<int> after;  // the nodes that must have run
    };
    std::vector<Node> nodes;
};

// A recording that is under way: of the stream it began on, and of those that wait for events of it.
struct Capture {
    Graph graph;
    struct Stream *origin = nullptr;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    std::thread::id thread;
    bool broken = false, ended = false;
    std::set<struct Stream *> streams;
};

// Work on a stream is done at once, or (CUEMU_ASYNC=1) kept until something waits for it.
struct Stream {
    unsigned flags = 0;
    uint64_t submitted = 0, completed = 0;  // pieces of work
    std::deque<std::function<CUresult()>> queue;
    CUresult error = CUDA_SUCCESS;  // of work that nobody has waited for
    std::shared_ptr<Capture> capture;
    std::vector<int> last;  // nodes of the capture that the next one comes after
};

typedef std::lock_guard<std::recursive_mutex> Lock;
std::recursive_mutex &driver_lock();

// Remembers the message for cuGetErrorString and returns the code.
CUresult fail(CUresult code, const std::string &message);
const std::string &last_message();

Context *current_context();
Context *make_context(int device);
// The code of a device that there is not.
CUresult check_device(CUdevice device);
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
void count_synchronisation();
// The streams of the current context, in a random interleaving; returns an error of theirs if `report`.
CUresult finish_all(bool report);
bool is_null_stream(CUstream stream);

// Adds work to what a stream records.
CUresult record_node(Stream *stream, std::function<CUresult()> work);
// What a stream that records cannot do fails, and spoils the recording.
CUresult refuse_while_recording(Stream *stream, const char *function);
// The null stream may not be used while a stream that waits for it records, nor all be waited for while `any` does.
CUresult refuse_beside_recording(Context *context, const char *function, bool any = false);
// Nor calls that may wait for the device, unless the recording is relaxed, or of another thread.
CUresult refuse_unsafe(Context *context, const char *function);

// CUDA_SUCCESS if the bytes lie inside one allocation, or in a module's data; marks them initialised if written.
CUresult check_range(CUdeviceptr address, size_t bytes, bool written, const char *function);
bool in_module_data(CUdeviceptr address, size_t bytes);
void free_memory_of(Context *context);
bool is_sm90();
int compute_capability();
constexpr int kDefaultSharedLimit = 48 << 10;
inline int shared_limit() { return (is_sm90() ? 227 : 163) << 10; }
