// Holding and ordering operations. See operations.hpp.
#include "operations.hpp"

#include <algorithm>
#include <cstdlib>
#include <random>
#include <set>
#include <thread>

#include "races.hpp"
#include "state.hpp"

namespace hwemu {

namespace {

// As many as a device queues, about: whoever submits more waits.
constexpr std::size_t most_held = 256;

struct Queue {
    std::vector<std::shared_ptr<Operation>> held;
    Clock host;
    std::vector<unsigned> lanes;  // operations of each so far
    std::mt19937 random{static_cast<unsigned>(setting("HWEMU_ORDER", 0))};
};

Queue& queue() {
    static Queue* queue = new Queue;
    return *queue;
}

bool is_ready(Operation& operation) {
    auto& waits = operation.waits_for;
    waits.erase(std::remove_if(waits.begin(), waits.end(), [](auto& other) { return other->is_done; }), waits.end());
    return waits.empty() && !operation.is_running;
}

void add_ancestors(const std::shared_ptr<Operation>& operation, std::set<const Operation*>& found) {
    if (operation->is_done || !found.insert(operation.get()).second) return;
    for (const auto& other : operation->waits_for) add_ancestors(other, found);
}

void run(const std::shared_ptr<Operation>& operation) {
    operation->is_running = true;
    enter_operation(operation.get());
    for (const Range& range : operation->work.ranges) access_range(range);
    const int code = operation->work.run ? operation->work.run() : 0;
    enter_operation(nullptr);
    operation->is_done = true;
    auto& held = queue().held;
    held.erase(std::find(held.begin(), held.end(), operation));
    // As on a device: every later call reports it.
    if (code && !state().failed) state().failed = code;
}

// Runs one of those that may run; with a point, sometimes only of those that it needs. False when nobody can.
bool step(const Point* point) {
    Queue& q = queue();
    std::set<const Operation*> needed;
    const bool only_needed = point && q.random() % 2;
    if (only_needed)
        for (const auto& operation : point->after) add_ancestors(operation, needed);
    std::vector<std::shared_ptr<Operation>> ready;
    for (const auto& operation : q.held)
        if (is_ready(*operation) && (!only_needed || needed.count(operation.get()))) ready.push_back(operation);
    if (ready.empty()) return false;
    run(ready[q.random() % ready.size()]);
    return true;
}

// Another thread is in the middle of an operation that calls the host.
void give_way() {
    state().lock.unlock();
    std::this_thread::yield();
    state().lock.lock();
}

void run_until(Point& point) {
    while (!point.is_reached())
        if (!step(&point)) give_way();
}

std::shared_ptr<Operation> hold(Work work, unsigned lane, const Point& behind) {
    Queue& q = queue();
    if (q.lanes.size() <= lane) q.lanes.resize(lane + 1);
    auto operation = std::make_shared<Operation>();
    operation->clock = behind.clock;
    join(operation->clock, q.host);
    if (operation->clock.size() <= lane) operation->clock.resize(lane + 1);
    operation->clock[lane] = ++q.lanes[lane];
    operation->id = register_operation(work.name, lane, q.lanes[lane]);
    operation->work = std::move(work);
    for (const auto& other : behind.after)
        if (!other->is_done) operation->waits_for.push_back(other);
    take_snapshots(*operation);
    q.held.push_back(operation);
    while (q.held.size() > most_held)
        if (!step(nullptr)) give_way();
    return operation;
}

// What the next operation of a stream is behind. The default stream and those that do not opt out wait for each other.
Point behind(Stream* stream) {
    Point point = stream->point;
    const auto add = [&](const Stream* other) {
        const bool is_other = other != stream && other->device == stream->device;
        if (is_other && (stream->is_default ? other->is_blocking : other->is_default)) point.join(other->point);
    };
    if (stream->is_default)
        for (const auto& [handle, other] : state().streams.all()) add(handle);
    else if (stream->is_blocking)
        add(default_stream(stream->device));
    return point;
}

}  // namespace

void join(Clock& into, const Clock& other) {
    if (into.size() < other.size()) into.resize(other.size());
    for (std::size_t lane = 0; lane < other.size(); ++lane) into[lane] = std::max(into[lane], other[lane]);
}

bool Point::is_reached() {
    after.erase(std::remove_if(after.begin(), after.end(), [](auto& operation) { return operation->is_done; }), after.end());
    return after.empty();
}

void Point::join(const Point& other) {
    hwemu::join(clock, other.clock);
    for (const auto& operation : other.after)
        if (std::find(after.begin(), after.end(), operation) == after.end()) after.push_back(operation);
}

bool holds() {
    static const bool is_set = [] {
        const char* text = std::getenv("HWEMU_ORDER");
        return text && *text;
    }();
    return is_set;
}

int submit(Stream* stream, Work work) {
    if (Capture* capture = stream->capture.get()) {
        if (capture->invalidated) return stream_capture_invalidated;
        auto& branch = capture->branches[stream];
        ++branch.done;
        if (branch.lane == ~0u) branch.lane = capture->graph->lanes++;
        auto& operations = capture->graph->operations;
        operations.push_back({std::move(work), branch.lane, branch.behind});
        branch.behind = {operations.size() - 1};
        return success;
    }
    if (!holds()) {
        const int code = work.run ? work.run() : 0;
        return code ? device_failure(code) : success;
    }
    const auto operation = hold(std::move(work), stream->lane, behind(stream));
    stream->point = {operation->clock, {operation}};
    return state().failed;
}

int submit_graph(Stream* stream, Executable& executable) {
    Graph& graph = *executable.graph;
    Point start = behind(stream);
    start.join(executable.last);
    while (executable.lanes.size() < graph.lanes) executable.lanes.push_back(new_lane());
    std::vector<std::shared_ptr<Operation>> made;
    Point end = start;
    for (const Captured& captured : graph.operations) {
        Point point = captured.behind.empty() ? start : Point{};
        for (std::size_t other : captured.behind) point.join({made[other]->clock, {made[other]}});
        made.push_back(hold(captured.work, executable.lanes[captured.lane], point));
        end.join({made.back()->clock, {made.back()}});
    }
    stream->point = executable.last = end;
    return state().failed;
}

int finish(Point& point) {
    run_until(point);
    join(queue().host, point.clock);
    return state().failed;
}

int finish_all() {
    while (!queue().held.empty())
        if (!step(nullptr)) give_way();
    return state().failed;
}

int reorder(unsigned seed) {
    const int code = finish_all();
    queue().random.seed(seed);
    return code;
}

int query(Point& point) {
    const auto steps = 1 + queue().random() % 3;
    for (unsigned i = 0; i < steps && !point.is_reached(); ++i) step(&point);
    if (!point.is_reached()) return state().failed ? state().failed : not_ready;
    return finish(point);
}

const Clock& host_clock() { return queue().host; }

unsigned new_lane() {
    auto& lanes = queue().lanes;
    lanes.push_back(0);
    return static_cast<unsigned>(lanes.size() - 1);
}

void run_users(std::uint64_t base, std::size_t bytes) {
    Point users;
    for (const auto& operation : queue().held) {
        bool uses = false;
        for (const Range& range : operation->work.ranges) uses = uses || (range.begin < base + bytes && base < range.begin + range.bytes);
        for (std::uint64_t buffer : operation->work.buffers) uses = uses || buffer == base;
        if (uses) users.after.push_back(operation);
    }
    run_until(users);
}

}  // namespace hwemu

using namespace hwemu;

// What another library does on a stream, which runs in the host: it happens there and then, in the order of the stream.
HWEMU_EXPORT int hwemu_touch(void* handle, DevicePointer address, std::size_t bytes, int is_written, const char* name) {
    Call call;
    if (int error = call.needs_context()) return error;
    Stream* stream = find_stream(handle);
    if (!stream) return invalid_handle;
    if (!holds()) return success;
    if (int error = submit(stream, {name, nullptr, {{address, bytes, is_written != 0}}, {}})) return error;
    // The host has not waited for the stream, although it has run.
    run_until(stream->point);
    return state().failed;
}
