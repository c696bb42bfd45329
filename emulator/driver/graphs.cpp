// Stream capture and graphs. A graph is the list of operations in the order in which they were issued, which
// is an order that respects every dependency between the captured streams, each with those that it waits for.
#include "state.hpp"

namespace hwemu {

namespace {

// Takes every stream of the capture out of it, and the capture off the list.
void end_capture(const std::shared_ptr<Capture>& capture) {
    for (auto& [stream, branch] : capture->branches)
        if (state().streams.has(stream)) stream->capture.reset();
    if (state().streams.has(capture->origin)) capture->origin->capture.reset();
    state().captures.erase(capture.get());
}

bool all_joined(const Capture& capture) {
    for (const auto& [stream, branch] : capture.branches)
        if (stream != capture.origin && branch.joined != branch.done) return false;
    return true;
}

}  // namespace
}  // namespace hwemu

using namespace hwemu;

HWEMU_EXPORT int cuStreamBeginCapture_v2(void* handle, int mode) {
    Call call;
    if (int error = call.needs_context()) return error;
    Stream* stream = find_stream(handle);
    if (!stream) return invalid_handle;
    if (mode < 0 || mode > 2) return invalid_value;
    if (reinterpret_cast<std::uintptr_t>(handle) <= 1) return stream_capture_unsupported;
    if (stream->capture) return illegal_state;
    auto capture = std::make_shared<Capture>();
    capture->origin = stream;
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    stream->capture = capture;
    state().captures.insert(capture.get());
    return success;
}

HWEMU_EXPORT int cuStreamEndCapture(void* handle, void** out) {
    Call call;
    if (int error = call.needs_context()) return error;
    Stream* stream = find_stream(handle);
    if (!stream) return invalid_handle;
    if (!out) return invalid_value;
    *out = nullptr;
    const auto capture = stream->capture;
    if (!capture) return illegal_state;
    if (capture->origin != stream) {
        capture->invalidated = true;
        return stream_capture_unmatched;
    }
    if (capture->mode != 2 && capture->thread != std::this_thread::get_id()) return stream_capture_wrong_thread;
    end_capture(capture);
    if (capture->invalidated) return stream_capture_invalidated;
    if (!all_joined(*capture)) return stream_capture_unjoined;
    *out = state().graphs.add(std::make_unique<std::shared_ptr<Graph>>(capture->graph));
    return success;
}

HWEMU_EXPORT int cuStreamIsCapturing(void* handle, int* status) {
    Call call;
    if (int error = call.needs_context()) return error;
    const Stream* stream = find_stream(handle);
    if (!stream) return invalid_handle;
    if (!status) return invalid_value;
    *status = !stream->capture ? 0 : stream->capture->invalidated ? 2 : 1;
    return success;
}

HWEMU_EXPORT int cuThreadExchangeStreamCaptureMode(int* mode) {
    Call call;
    if (!mode || *mode < 0 || *mode > 2) return invalid_value;
    std::swap(*mode, thread_mode());
    return success;
}

HWEMU_EXPORT int cuStreamGetCaptureInfo_v2(
    void* handle, int* status, unsigned long long* id, void** graph, const void** behind, std::size_t* count) {
    Call call;
    if (int error = call.needs_context()) return error;
    const Stream* stream = find_stream(handle);
    if (!stream) return invalid_handle;
    if (!status || !behind != !count) return invalid_value;
    *status = !stream->capture ? 0 : stream->capture->invalidated ? 2 : 1;
    if (!stream->capture) return success;
    if (behind) {
        // A node is the number of its operation, from one on.
        static thread_local std::vector<const void*> nodes;
        nodes.clear();
        for (std::size_t at : stream->capture->branches[const_cast<Stream*>(stream)].behind)
            nodes.push_back(reinterpret_cast<const void*>(at + 1));
        *behind = nodes.data();
        *count = nodes.size();
    }
    if (id) *id = reinterpret_cast<std::uintptr_t>(stream->capture.get());
    // Good for what a graph under capture may be given: objects.
    if (graph) *graph = &stream->capture->graph;
    return success;
}

HWEMU_EXPORT int cuStreamUpdateCaptureDependencies(void* handle, void** nodes, std::size_t count, unsigned flags) {
    Call call;
    if (int error = call.needs_context()) return error;
    Stream* stream = find_stream(handle);
    if (!stream) return invalid_handle;
    if (!stream->capture) return illegal_state;
    // Those that are there are taken, and none is added to what there was.
    if (flags != 1 || (count && !nodes)) return invalid_value;
    std::vector<std::size_t> behind;
    for (std::size_t i = 0; i < count; ++i) {
        const auto at = reinterpret_cast<std::uintptr_t>(nodes[i]) - 1;
        if (at >= stream->capture->graph->operations.size()) return invalid_value;
        behind.push_back(at);
    }
    auto& branch = stream->capture->branches[stream];
    branch.behind = std::move(behind);
    // What follows may run before what the stream did so far, so it is of another lane.
    branch.lane = ~0u;
    return success;
}

HWEMU_EXPORT int cuUserObjectCreate(void** out, void* data, void (*end)(void*), unsigned count, unsigned flags) {
    Call call;
    if (!state().initialised) return not_initialized;
    if (!out || !end || count != 1 || flags != 1) return invalid_value;
    auto object = std::shared_ptr<UserObject>(new UserObject{data, end});
    *out = state().objects.add(std::make_unique<std::shared_ptr<UserObject>>(object));
    return success;
}

HWEMU_EXPORT int cuUserObjectRelease(void* object, unsigned count) {
    Call call;
    if (!state().initialised) return not_initialized;
    if (count != 1) return invalid_value;
    return state().objects.remove(object) ? success : invalid_value;
}

HWEMU_EXPORT int cuGraphRetainUserObject(void* graph, void* object, unsigned count, unsigned flags) {
    Call call;
    if (!state().initialised) return not_initialized;
    if (!state().objects.has(object) || count != 1 || flags != 1) return invalid_value;
    std::shared_ptr<Graph>* found = nullptr;
    if (state().graphs.has(graph)) found = static_cast<std::shared_ptr<Graph>*>(graph);
    for (Capture* capture : state().captures)
        if (&capture->graph == graph) found = &capture->graph;
    if (!found) return invalid_value;
    (*found)->objects.push_back(*static_cast<std::shared_ptr<UserObject>*>(object));
    state().objects.remove(object);
    return success;
}

HWEMU_EXPORT int cuGraphInstantiateWithFlags(void** out, void* graph, unsigned long long) {
    Call call;
    if (int error = call.needs_context()) return error;
    if (!out || !state().graphs.has(graph)) return invalid_value;
    auto executable = std::make_unique<Executable>();
    executable->graph = *static_cast<std::shared_ptr<Graph>*>(graph);
    *out = state().executables.add(std::move(executable));
    return success;
}

HWEMU_EXPORT int cuGraphLaunch(void* executable, void* handle) {
    Call call;
    if (int error = call.needs_context()) return error;
    Stream* stream = find_stream(handle);
    if (!stream) return invalid_handle;
    if (!state().executables.has(executable)) return invalid_value;
    auto* launched = static_cast<Executable*>(executable);
    if (holds() && !stream->capture) return submit_graph(stream, *launched);
    const auto run = [graph = launched->graph] {
        for (const auto& operation : graph->operations)
            if (int code = operation.work.run ? operation.work.run() : 0) return code;
        return 0;
    };
    return submit(stream, {"graph", run, {}, {}});
}

HWEMU_EXPORT int cuGraphExecDestroy(void* executable) {
    Call call;
    if (!state().initialised) return not_initialized;
    if (!state().executables.has(executable)) return invalid_value;
    state().gone.join(static_cast<Executable*>(executable)->last);
    state().executables.remove(executable);
    return success;
}

HWEMU_EXPORT int cuGraphDestroy(void* graph) {
    Call call;
    if (!state().initialised) return not_initialized;
    return state().graphs.remove(graph) ? success : invalid_value;
}
