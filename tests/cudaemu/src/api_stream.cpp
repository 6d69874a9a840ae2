// Streams and events. With CUEMU_ASYNC=1 work runs as late as the API allows, streams interleaved at random: what a
// program forgot to wait for has then not happened.
#include <chrono>

#include "driver.h"

struct Event {
    bool recorded = false, done = false, timing = true;
    double milliseconds = 0;
    Stream *stream = nullptr;  // null: the null stream, whose work is never late
    uint64_t position = 0;     // in the stream's work
    std::shared_ptr<Capture> capture;  // recorded while the stream recorded
    std::vector<int> after;            // the nodes it stands for
};

// Calls by which the host waited for a stream or an event.
static uint64_t synchronisations = 0;
EXPORT uint64_t cuemu_synchronisation_count() { return synchronisations; }
void count_synchronisation() { ++synchronisations; }

static bool lazy() { return option("CUEMU_ASYNC", 0); }
bool is_null_stream(CUstream stream) { return (uintptr_t)stream <= 2; }  // 1 and 2 are the legacy and per-thread ones

static double milliseconds() {
    auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double, std::milli>(now).count();
}

static void run_first(Stream *stream) {
    auto work = std::move(stream->queue.front());
    stream->queue.pop_front();
    CUresult result = work();
    ++stream->completed;
    if (result && !stream->error) stream->error = result;
}

static CUresult take_error(Stream *stream) {
    CUresult error = stream->error;
    stream->error = CUDA_SUCCESS;
    return error;
}

CUresult finish_stream(Stream *stream, uint64_t up_to) {
    while (!stream->queue.empty() && stream->completed < up_to) run_first(stream);
    return stream->error;
}

CUresult finish_all(bool report) {
    static uint64_t random = 42;
    Context *context = current_context();
    if (!context) return CUDA_SUCCESS;
    for (;;) {
        std::vector<Stream *> busy;
        for (Stream *stream : context->streams)
            if (!stream->queue.empty()) busy.push_back(stream);
        if (busy.empty()) break;
        random = random * 6364136223846793005ull + 1442695040888963407ull;
        run_first(busy[(random >> 33) % busy.size()]);
    }
    CUresult error = CUDA_SUCCESS;
    if (report)
        for (Stream *stream : context->streams)
            if (CUresult result = take_error(stream)) error = result;
    return error;
}

void finish_blocking_streams() {
    if (Context *context = current_context())
        for (Stream *stream : context->streams)
            if (!(stream->flags & CU_STREAM_NON_BLOCKING)) finish_stream(stream);
}

static CUresult check_stream(CUstream handle) {
    if (is_null_stream(handle) || current_context()->streams.count((Stream *)handle)) return CUDA_SUCCESS;
    return fail(CUDA_ERROR_INVALID_HANDLE, "the stream belongs to another context, or was destroyed");
}

CUresult submit(CUstream handle, std::function<CUresult()> work) {
    if (is_null_stream(handle)) {
        if (CUresult failed = refuse_beside_recording(current_context(), __func__)) return failed;
        finish_blocking_streams();
        return work();
    }
    if (CUresult failed = check_stream(handle)) return failed;
    Stream *stream = (Stream *)handle;
    if (stream->capture) return record_node(stream, std::move(work));
    ++stream->submitted;
    if (lazy() || !stream->queue.empty()) {
        stream->queue.push_back(std::move(work));
        return CUDA_SUCCESS;
    }
    CUresult result = work();
    ++stream->completed;
    return result;
}

API cuStreamCreate(CUstream *handle, unsigned flags) {
    IN_CONTEXT;
    Stream *stream = new Stream;
    stream->flags = flags;
    context->streams.insert(stream);
    *handle = (CUstream)stream;
    return CUDA_SUCCESS;
}

API cuStreamCreateWithPriority(CUstream *handle, unsigned flags, int) { return cuStreamCreate(handle, flags); }

API cuStreamDestroy_v2(CUstream handle) {
    IN_CONTEXT;
    if (CUresult failed = check_stream(handle)) return failed;
    if (CUresult failed = refuse_while_recording((Stream *)handle, __func__)) return failed;
    finish_stream((Stream *)handle);
    context->streams.erase((Stream *)handle);  // not deleted: events may point to it
    return CUDA_SUCCESS;
}

// What a wait answers: work of another stream that it let happen may have ended the context.
static CUresult lost_meanwhile(const Context *context, CUresult found) { return found ? found : context->lost; }

API cuStreamSynchronize(CUstream handle) {
    IN_CONTEXT;
    if (CUresult failed = check_stream(handle)) return failed;
    if (is_null_stream(handle)) {
        if (CUresult failed = refuse_beside_recording(context, __func__)) return failed;
        finish_blocking_streams();
        return CUDA_SUCCESS;
    }
    if (CUresult failed = refuse_while_recording((Stream *)handle, __func__)) return failed;
    ++synchronisations;
    finish_stream((Stream *)handle);
    return lost_meanwhile(context, take_error((Stream *)handle));
}

// Asking lets one piece of work happen, so that loops which poll come to an end.
API cuStreamQuery(CUstream handle) {
    IN_CONTEXT;
    if (CUresult failed = check_stream(handle)) return failed;
    Stream *stream = (Stream *)handle;
    if (is_null_stream(handle)) return CUDA_SUCCESS;
    if (CUresult failed = refuse_while_recording(stream, __func__)) return failed;
    if (stream->queue.empty()) return CUDA_SUCCESS;
    run_first(stream);
    return stream->queue.empty() ? take_error(stream) : CUDA_ERROR_NOT_READY;
}

// For libraries that others wait for: lets the next piece of a stream's work happen; 0 if there is none.
EXPORT int cuemu_run_next(void *handle) {
    Lock lock(driver_lock());
    Stream *stream = (Stream *)handle;
    if (!stream || stream->queue.empty()) return 0;
    run_first(stream);
    return 1;
}

API cuStreamGetFlags(CUstream handle, unsigned *flags) {
    IN_CONTEXT;
    if (CUresult failed = check_stream(handle)) return failed;
    *flags = is_null_stream(handle) ? 0 : ((Stream *)handle)->flags;
    return CUDA_SUCCESS;
}

API cuStreamAttachMemAsync(CUstream, CUdeviceptr, size_t, unsigned) { return CUDA_SUCCESS; }

API cuLaunchHostFunc(CUstream handle, CUhostFn function, void *data) {
    IN_CONTEXT;
    return submit(handle, [=] {
        function(data);
        return CUDA_SUCCESS;
    });
}

API cuEventCreate(CUevent *handle, unsigned flags) {
    IN_CONTEXT;
    Event *event = new Event;
    event->timing = !(flags & CU_EVENT_DISABLE_TIMING);
    *handle = (CUevent)event;
    return CUDA_SUCCESS;
}

static void wait_for(Event *event) {
    if (event->recorded && !event->done && event->stream) finish_stream(event->stream, event->position);
}

API cuEventDestroy_v2(CUevent handle) {
    Lock lock(driver_lock());
    wait_for((Event *)handle);  // not deleted: work that waits in a stream may point to it
    return CUDA_SUCCESS;
}

API cuEventRecord(CUevent handle, CUstream stream) {
    IN_CONTEXT;
    if (CUresult failed = check_stream(stream)) return failed;
    Event *event = (Event *)handle;
    event->capture = is_null_stream(stream) ? nullptr : ((Stream *)stream)->capture;
    if (event->capture) {
        event->after = ((Stream *)stream)->last;
        return CUDA_SUCCESS;
    }
    event->recorded = true;
    event->done = false;
    event->stream = is_null_stream(stream) ? nullptr : (Stream *)stream;
    event->position = event->stream ? event->stream->submitted + 1 : 0;
    return submit(stream, [event, of = event->stream, position = event->position] {
        if (event->stream != of || event->position != position) return CUDA_SUCCESS;  // recorded again since
        event->milliseconds = milliseconds();
        event->done = true;
        return CUDA_SUCCESS;
    });
}

API cuEventRecordWithFlags(CUevent handle, CUstream stream, unsigned) { return cuEventRecord(handle, stream); }

static CUresult refuse_recorded(const Event *event, const char *function) {
    if (!event->capture) return CUDA_SUCCESS;
    return fail(CUDA_ERROR_CAPTURED_EVENT, std::string(function) + ": the event is part of a graph");
}

API cuEventSynchronize(CUevent handle) {
    IN_CONTEXT;
    Event *event = (Event *)handle;
    if (CUresult failed = refuse_recorded(event, __func__)) return failed;
    ++synchronisations;
    wait_for(event);
    bool known = event->stream && context->streams.count(event->stream);
    return lost_meanwhile(context, known ? take_error(event->stream) : CUDA_SUCCESS);
}

API cuEventQuery(CUevent handle) {
    IN_CONTEXT;
    Event *event = (Event *)handle;
    if (CUresult failed = refuse_recorded(event, __func__)) return failed;
    if (!event->recorded || event->done) return CUDA_SUCCESS;
    if (event->stream && !event->stream->queue.empty()) run_first(event->stream);
    return event->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

API cuEventElapsedTime_v2(float *result, CUevent from, CUevent to) {
    IN_CONTEXT;
    Event *begin = (Event *)from, *end = (Event *)to;
    if (!begin->recorded || !end->recorded || !begin->timing || !end->timing)
        return fail(CUDA_ERROR_INVALID_HANDLE, "cuEventElapsedTime: an event was not recorded, or made without timing");
    if (!begin->done || !end->done) return CUDA_ERROR_NOT_READY;
    *result = (float)(end->milliseconds - begin->milliseconds);
    return CUDA_SUCCESS;
}

// The stream goes on after the event within the graph, and records from now on if it did not.
static CUresult join_capture(Stream *stream, const Event *event) {
    if (!event->capture || event->capture->ended || (stream->capture && stream->capture != event->capture)) {
        if (stream->capture) stream->capture->broken = true;
        return fail(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "cuStreamWaitEvent: the event is of work outside the graph");
    }
    stream->capture = event->capture;
    stream->capture->streams.insert(stream);
    stream->last.insert(stream->last.end(), event->after.begin(), event->after.end());
    return CUDA_SUCCESS;
}

API cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned) {
    IN_CONTEXT;
    Event *event = (Event *)event_handle;
    if (CUresult failed = check_stream(handle)) return failed;
    if (event->capture || (!is_null_stream(handle) && ((Stream *)handle)->capture)) {
        if (is_null_stream(handle)) return refuse_recorded(event, __func__);
        return join_capture((Stream *)handle, event);
    }
    if (!event->recorded || !event->stream) return CUDA_SUCCESS;
    Stream *stream = event->stream;
    uint64_t position = event->position;
    return submit(handle, [stream, position] {
        finish_stream(stream, position);
        return CUDA_SUCCESS;
    });
}
