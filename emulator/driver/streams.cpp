// Streams, events, host functions.
#include <algorithm>

#include "lost.hpp"
#include "state.hpp"

namespace hwemu {

Stream* find_stream(const void* handle) {
    if (reinterpret_cast<std::uintptr_t>(handle) > 2) {
        if (!state().streams.has(handle)) return nullptr;
        return static_cast<Stream*>(const_cast<void*>(handle));
    }
    return default_stream(current_device());
}

Stream* default_stream(Device* device) {
    static auto* defaults = new std::map<Device*, std::unique_ptr<Stream>>;
    auto& stream = (*defaults)[device];
    if (!stream) {
        stream = std::make_unique<Stream>();
        stream->device = device;
        stream->is_default = true;
    }
    return stream.get();
}

int device_failure(int code) {
    if (!setting("HWEMU_STICKY", 0)) return code;
    state().failed = code;
    return success;
}

int& thread_mode() {
    thread_local int mode = 0;
    return mode;
}

int forbidden_by_capture() {
    if (thread_mode() == 2) return success;
    for (Capture* capture : state().captures) {
        const bool applies = capture->mode == 0 || (capture->mode == 1 && capture->thread == std::this_thread::get_id());
        if (!applies) continue;
        capture->invalidated = true;
        return stream_capture_unsupported;
    }
    return success;
}

namespace {

// What stands in the way of waiting for this stream or asking it.
int cannot_wait(const Stream* stream) {
    if (!stream) return invalid_handle;
    if (!stream->capture) return success;
    stream->capture->invalidated = true;
    return stream_capture_unsupported;
}

int event_result(const void* handle) {
    if (!state().events.has(handle)) return invalid_handle;
    const auto* event = static_cast<const Event*>(handle);
    if (const auto capture = event->capture.lock()) {
        capture->invalidated = true;
        return captured_event;
    }
    return forbidden_by_capture();
}

// The host function may take long or wait for another thread that calls the driver: it runs without the lock.
int call_host(void (*function)(void*), void* data) {
    state().lock.unlock();
    function(data);
    state().lock.lock();
    return 0;
}

int make_stream(void** out, Device* device, bool is_blocking) {
    auto stream = std::make_unique<Stream>();
    stream->device = device;
    stream->is_blocking = is_blocking;
    *out = state().streams.add(std::move(stream));
    return success;
}

}  // namespace
}  // namespace hwemu

using namespace hwemu;

HWEMU_EXPORT int cuStreamCreateWithPriority(void** out, unsigned flags, int) {
    Call call;
    if (int error = call.needs_context()) return error;
    if (!out || flags > 1) return invalid_value;
    return make_stream(out, current_device(), flags == 0);
}

HWEMU_EXPORT int cuGreenCtxStreamCreate(void** out, void* green, unsigned flags, int) {
    Call call;
    if (setting("HWEMU_NO_GREEN", 0)) return not_supported;
    if (!state().initialised) return not_initialized;
    if (!state().green.has(green)) return invalid_context;
    if (!out || flags != 1) return invalid_value;
    return make_stream(out, static_cast<GreenContext*>(green)->device, false);
}

HWEMU_EXPORT int cuStreamDestroy_v2(void* handle) {
    Call call;
    if (!state().initialised) return not_initialized;
    if (!state().streams.has(handle)) return invalid_handle;
    if (auto& capture = static_cast<Stream*>(handle)->capture) {
        capture->invalidated = true;
        capture->branches.erase(static_cast<Stream*>(handle));
        if (capture->origin == handle) state().captures.erase(capture.get());
    }
    auto* stream = static_cast<Stream*>(handle);
    if (!stream->point.is_reached()) state().gone.join(stream->point);
    forget_lost(stream);
    state().streams.remove(handle);
    return success;
}

HWEMU_EXPORT int cuStreamSynchronize(void* handle) {
    Call call;
    if (int error = call.needs_context()) return error;
    Stream* stream = find_stream(handle);
    if (int error = cannot_wait(stream)) return error;
    return is_lost(nullptr, stream) ? success : finish(stream->point);
}

HWEMU_EXPORT int cuStreamQuery(void* handle) {
    Call call;
    if (int error = call.needs_context()) return error;
    Stream* stream = find_stream(handle);
    if (int error = cannot_wait(stream)) return error;
    return is_lost(nullptr, stream) ? success : query(stream->point);
}

HWEMU_EXPORT int cuStreamWaitEvent(void* handle, void* event_handle, unsigned flags) {
    Call call;
    if (int error = call.needs_context()) return error;
    Stream* stream = find_stream(handle);
    if (!stream || !state().events.has(event_handle)) return invalid_handle;
    if (flags > 1) return invalid_value;
    const auto* event = static_cast<Event*>(event_handle);
    const auto captured = event->capture.lock();
    if (!captured && !stream->capture) {
        if (!is_lost(stream, event->recorded_on)) stream->point.join(event->point);
        return success;
    }
    if (!captured) {
        if (!event->recorded) return success;
        stream->capture->invalidated = true;
        return stream_capture_isolation;
    }
    if (stream->capture && stream->capture != captured) {
        stream->capture->invalidated = captured->invalidated = true;
        return stream_capture_merge;
    }
    stream->capture = captured;
    if (event->stream != stream) {
        // The stream that waits has new work to be joined; the one waited for is joined up to the event.
        auto& waits = captured->branches[stream];
        ++waits.done;
        for (std::size_t other : event->behind)
            if (std::find(waits.behind.begin(), waits.behind.end(), other) == waits.behind.end()) waits.behind.push_back(other);
        auto& waited = captured->branches[event->stream];
        waited.joined = std::max(waited.joined, event->position);
    }
    return success;
}

HWEMU_EXPORT int cuEventCreate(void** out, unsigned flags) {
    Call call;
    if (int error = call.needs_context()) return error;
    if (!out || flags > 7) return invalid_value;
    auto event = std::make_unique<Event>();
    event->device = current_device();
    event->timed = !(flags & 2);
    *out = state().events.add(std::move(event));
    return success;
}

HWEMU_EXPORT int cuEventDestroy_v2(void* handle) {
    Call call;
    if (!state().initialised) return not_initialized;
    return state().events.remove(handle) ? success : invalid_handle;
}

HWEMU_EXPORT int cuEventRecord(void* handle, void* stream_handle) {
    Call call;
    if (int error = call.needs_context()) return error;
    Stream* stream = find_stream(stream_handle);
    if (!stream || !state().events.has(handle)) return invalid_handle;
    auto* event = static_cast<Event*>(handle);
    if (event->device != stream->device) return invalid_handle;
    event->capture = stream->capture;
    if (stream->capture) {
        event->stream = stream;
        event->position = stream->capture->branches[stream].done;
        event->behind = stream->capture->branches[stream].behind;
        return success;
    }
    event->point = stream->point;
    event->recorded_on = stream;
    event->recorded = true;
    event->recorded_ms = now_ms();
    return success;
}

HWEMU_EXPORT int cuEventQuery(void* handle) {
    Call call;
    if (int error = call.needs_context()) return error;
    if (int error = event_result(handle)) return error;
    auto* event = static_cast<Event*>(handle);
    return is_lost(nullptr, event->recorded_on) ? success : query(event->point);
}

HWEMU_EXPORT int cuEventSynchronize(void* handle) {
    Call call;
    if (int error = call.needs_context()) return error;
    if (int error = event_result(handle)) return error;
    auto* event = static_cast<Event*>(handle);
    return is_lost(nullptr, event->recorded_on) ? success : finish(event->point);
}

HWEMU_EXPORT int cuEventElapsedTime(float* ms, void* from, void* to) {
    Call call;
    if (int error = call.needs_context()) return error;
    if (!ms) return invalid_value;
    if (!state().events.has(from) || !state().events.has(to)) return invalid_handle;
    const auto *a = static_cast<Event*>(from), *b = static_cast<Event*>(to);
    if (!a->timed || !b->timed || !a->recorded || !b->recorded) return invalid_handle;
    *ms = static_cast<float>(b->recorded_ms - a->recorded_ms);
    return success;
}

HWEMU_EXPORT int cuLaunchHostFunc(void* handle, void (*function)(void*), void* data) {
    Call call;
    if (int error = call.needs_context()) return error;
    Stream* stream = find_stream(handle);
    if (!stream) return invalid_handle;
    if (!function) return invalid_value;
    return submit(stream, {"host function", [=] { return call_host(function, data); }, {}, {}});
}
