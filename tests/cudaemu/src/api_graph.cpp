// Graphs: a stream that records keeps its work as nodes, which run whenever the graph is launched, in any order that
// their dependencies leave.
#include <algorithm>

#include "driver.h"

static uint64_t graph_launches = 0;
EXPORT uint64_t cuemu_graph_launch_count() { return graph_launches; }

CUresult record_node(Stream *stream, std::function<CUresult()> work) {
    Capture &capture = *stream->capture;
    if (capture.broken)
        return fail(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the recording was spoiled by an earlier call");
    capture.graph.nodes.push_back({std::move(work), stream->last});
    stream->last = {(int)capture.graph.nodes.size() - 1};
    return CUDA_SUCCESS;
}

static CUresult refuse(Capture &capture, CUresult code, const char *function, const char *why) {
    capture.broken = true;
    return fail(code, std::string(function) + ": " + why);
}

CUresult refuse_while_recording(Stream *stream, const char *function) {
    if (!stream->capture) return CUDA_SUCCESS;
    return refuse(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, function, "the stream records a graph");
}

CUresult refuse_beside_recording(Context *context, const char *function, bool any) {
    if (!context) return CUDA_SUCCESS;
    for (Stream *stream : context->streams)
        if (stream->capture && (any || !(stream->flags & CU_STREAM_NON_BLOCKING)))
            return refuse(*stream->capture,
                          any ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, function,
                          "a stream that would have to be waited for records a graph");
    return CUDA_SUCCESS;
}

CUresult refuse_unsafe(Context *context, const char *function) {
    for (Stream *stream : context->streams) {
        Capture *capture = stream->capture.get();
        if (!capture || capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
        if (capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL || capture->thread == std::this_thread::get_id())
            return refuse(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, function,
                          "it may wait for the device, and a stream records a graph");
    }
    return CUDA_SUCCESS;
}

API cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
    IN_CONTEXT;
    if (is_null_stream(handle))
        return fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the default stream cannot record");
    Stream *stream = (Stream *)handle;
    if (!context->streams.count(stream)) return fail(CUDA_ERROR_INVALID_HANDLE, "not a stream of this context");
    if (stream->capture) return fail(CUDA_ERROR_ILLEGAL_STATE, "the stream records a graph already");
    stream->capture = std::make_shared<Capture>();
    stream->capture->origin = stream;
    stream->capture->mode = mode;
    stream->capture->thread = std::this_thread::get_id();
    stream->capture->streams = {stream};
    stream->last.clear();
    return CUDA_SUCCESS;
}

API cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status) {
    IN_CONTEXT;
    Stream *stream = is_null_stream(handle) ? nullptr : (Stream *)handle;
    *status = !stream || !stream->capture ? CU_STREAM_CAPTURE_STATUS_NONE
              : stream->capture->broken   ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                          : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}

// Whether all that other streams recorded was waited for by the one that the recording began on.
static bool is_joined(const Capture &capture) {
    std::vector<char> reached(capture.graph.nodes.size(), 0);
    for (int node : capture.origin->last) reached[node] = 1;
    for (int i = (int)reached.size() - 1; i >= 0; --i)
        if (reached[i])
            for (int before : capture.graph.nodes[i].after) reached[before] = 1;
    return std::find(reached.begin(), reached.end(), 0) == reached.end();
}

API cuStreamEndCapture(CUstream handle, CUgraph *graph) {
    IN_CONTEXT;
    Stream *stream = (Stream *)handle;
    *graph = nullptr;
    std::shared_ptr<Capture> capture = is_null_stream(handle) ? nullptr : stream->capture;
    if (!capture || capture->origin != stream)
        return fail(CUDA_ERROR_ILLEGAL_STATE, "cuStreamEndCapture: the stream did not begin to record");
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != std::this_thread::get_id())
        return refuse(*capture, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, __func__, "another thread began to record");
    bool joined = is_joined(*capture);
    for (Stream *each : capture->streams) {
        each->capture.reset();
        each->last.clear();
    }
    capture->ended = true;
    if (capture->broken)
        return fail(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the recording was spoiled by an earlier call");
    if (!joined) return fail(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "cuStreamEndCapture: nothing waits for some work");
    *graph = (CUgraph) new Graph(std::move(capture->graph));
    return CUDA_SUCCESS;
}

API cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
    if (nodes) return fail(CUDA_ERROR_NOT_SUPPORTED, "cuGraphGetNodes: only the number of nodes is emulated");
    *count = ((Graph *)graph)->nodes.size();
    return CUDA_SUCCESS;
}

API cuGraphDestroy(CUgraph graph) {
    delete (Graph *)graph;
    return CUDA_SUCCESS;
}

// What runs a graph: the graph may be destroyed, and this too while it waits in a stream.
typedef std::shared_ptr<const Graph> Executable;

API cuGraphInstantiateWithFlags(CUgraphExec *made, CUgraph graph, unsigned long long) {
    IN_CONTEXT;
    *made = (CUgraphExec) new Executable(std::make_shared<Graph>(*(Graph *)graph));
    return CUDA_SUCCESS;
}

API cuGraphUpload(CUgraphExec, CUstream) { return CUDA_SUCCESS; }

API cuGraphExecDestroy(CUgraphExec executable) {
    Lock lock(driver_lock());
    delete (Executable *)executable;
    return CUDA_SUCCESS;
}

// As recorded; with CUEMU_ASYNC=1 in a random order of those that the dependencies leave.
static CUresult run_graph(const Graph &graph) {
    static uint64_t random = 7;
    size_t count = graph.nodes.size();
    std::vector<int> missing(count), ready;
    std::vector<std::vector<int>> next(count);
    for (size_t i = 0; i < count; ++i) {
        missing[i] = (int)graph.nodes[i].after.size();
        for (int before : graph.nodes[i].after) next[before].push_back((int)i);
        if (!missing[i]) ready.push_back((int)i);
    }
    bool shuffled = option("CUEMU_ASYNC", 0);
    while (!ready.empty()) {
        size_t chosen = 0;
        if (shuffled) {
            random = random * 6364136223846793005ull + 1442695040888963407ull;
            chosen = (random >> 33) % ready.size();
        }
        int node = ready[chosen];
        ready.erase(ready.begin() + (long)chosen);
        if (CUresult failed = graph.nodes[(size_t)node].work()) return failed;
        for (int after : next[(size_t)node])
            if (!--missing[(size_t)after]) ready.push_back(after);
    }
    return CUDA_SUCCESS;
}

API cuGraphLaunch(CUgraphExec executable, CUstream stream) {
    IN_CONTEXT;
    ++graph_launches;
    return submit(stream, [graph = *(Executable *)executable] { return run_graph(*graph); });
}
