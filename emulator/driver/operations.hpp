// Operations of streams: what they do, what happens before them, and when they run.
// By default an operation runs in the call that submits it. With HWEMU_ORDER it is held until a synchronisation, a query or
// a full queue forces it, and then any order is taken that streams and events allow. The number seeds the choice.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace hwemu {

struct Stream;
struct Executable;

// How far each lane has come. A lane is a stream, or a branch of a graph: operations of one lane happen one after another.
using Clock = std::vector<unsigned>;
void join(Clock& into, const Clock& other);

struct Range {
    std::uint64_t begin;
    std::size_t bytes;
    bool is_written;
};

struct Work {
    std::string name;
    std::function<int()> run;
    // What it reads and writes, where that is known before it runs. Kernels tell while they run.
    std::vector<Range> ranges;
    // Addresses of the allocations that a kernel was given.
    std::vector<std::uint64_t> buffers;
};

// Host memory as it was when an operation was submitted.
struct Snapshot {
    std::uint64_t begin;
    std::vector<unsigned char> bytes;
    // How many operations had run then.
    unsigned after;
};

struct Operation {
    unsigned id;
    Work work;
    Clock clock;
    std::vector<std::shared_ptr<Operation>> waits_for;
    std::vector<Snapshot> snapshots;
    bool is_running = false, is_done = false;
};

// A place in the order of things: behind these operations, and all that their clock counts.
struct Point {
    Clock clock;
    std::vector<std::shared_ptr<Operation>> after;

    bool is_reached();
    void join(const Point& other);
};

// Whether operations are held.
bool holds();
// Runs an operation now, holds it, or adds it to the graph that the stream captures.
int submit(Stream* stream, Work work);
// Holds every operation of a graph behind the stream and behind the graph's last launch.
int submit_graph(Stream* stream, Executable& executable);
// Runs what is needed, and perhaps more, until the point is reached. The host has waited for it.
int finish(Point& point);
// Everything that is held.
int finish_all();
// The same, and another seed for the order of what comes.
int reorder(unsigned seed);
// Runs something, and says whether the point is reached: 0 or 600. The host has waited for it if so.
int query(Point& point);
// What the host has waited for.
const Clock& host_clock();
// Runs what is held and may use these bytes, and what that waits for. The host has not waited for it.
void run_users(std::uint64_t base, std::size_t bytes);

}  // namespace hwemu
