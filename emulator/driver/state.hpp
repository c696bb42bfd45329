// The stand-in's state and the guard that every entry point begins with.
// One lock protects everything: the emulator is for tests, and kernels cannot run at the same time anyway.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "abi.hpp"
#include "engine.hpp"
#include "operations.hpp"

namespace hwemu {

class Shadow;

enum class Memory { device, pool, managed, host, registered, ipc };

struct Allocation {
    Memory kind;
    std::uint64_t base;
    std::size_t bytes;
    int device;
    std::uint64_t id;
    // For memory in a file that other processes may map.
    int file = -1;
    void* mapping = nullptr;
    std::size_t mapping_bytes = 0;
    unsigned opened = 0;
    IpcMemHandle handle{};
    // Freed in the order of a stream that has not come that far.
    bool is_leaving = false;
    // Who used it, where operations are held.
    mutable std::shared_ptr<Shadow> shadow;
};

struct Device {
    int number;
    unsigned retained = 0;
    std::size_t used_bytes = 0;
    std::set<int> peers;
};

struct Stream;

// An operation of a graph, and the operations before it that it waits for.
struct Captured {
    Work work;
    unsigned lane;
    std::vector<std::size_t> behind;
};

// Data of the caller's, whose end is called when the last graph that retains it is gone.
struct UserObject {
    void* data;
    void (*end)(void*);
    ~UserObject() { end(data); }
};

struct Graph {
    std::vector<Captured> operations;
    unsigned lanes = 0;                // streams that were captured
    std::vector<DevicePointer> owned;  // memory that was allocated while capturing
    std::vector<std::shared_ptr<UserObject>> objects;
    ~Graph();
};

struct Executable {
    std::shared_ptr<Graph> graph;
    std::vector<unsigned> lanes;
    Point last;  // launches of one graph follow each other
};

struct Capture {
    std::shared_ptr<Graph> graph = std::make_shared<Graph>();
    Stream* origin;
    int mode;
    std::thread::id thread;
    bool invalidated = false;
    // Per stream of the capture: how much it did, and how much of that another stream has waited for.
    struct Branch {
        unsigned done = 0, joined = 0;
        unsigned lane = ~0u;
        std::vector<std::size_t> behind;  // what the next operation waits for
    };
    std::map<Stream*, Branch> branches;
};

// A lane of its own.
unsigned new_lane();

struct Stream {
    Device* device;
    bool is_default = false, is_blocking = false;
    std::shared_ptr<Capture> capture;
    unsigned lane = new_lane();
    Point point{};
};

struct Event {
    Device* device;
    bool timed;
    bool recorded = false;
    double recorded_ms = 0;
    std::weak_ptr<Capture> capture;
    Stream* stream = nullptr;
    unsigned position = 0;
    std::vector<std::size_t> behind;  // of a capture
    const Stream* recorded_on = nullptr;
    Point point;
};

struct LoadedModule;

struct Function {
    LoadedModule* owner;
    const Kernel* kernel;
    unsigned max_dynamic_bytes = 48 * 1024;
};

struct LoadedModule {
    Device* device;
    void* library;
    Module module;
    std::map<std::string, std::unique_ptr<Function>> functions;
};

struct GreenContext {
    Device* device;
};

// The objects of one kind that are alive; a handle is the object's address.
template <class T>
class Registry {
public:
    T* add(std::unique_ptr<T> object) {
        T* handle = object.get();
        alive_.emplace(handle, std::move(object));
        return handle;
    }
    bool has(const void* handle) const { return alive_.count(static_cast<T*>(const_cast<void*>(handle))) != 0; }
    bool remove(const void* handle) { return alive_.erase(static_cast<T*>(const_cast<void*>(handle))) != 0; }
    std::size_t size() const { return alive_.size(); }
    const std::map<T*, std::unique_ptr<T>>& all() const { return alive_; }

private:
    std::map<T*, std::unique_ptr<T>> alive_;
};

struct State {
    std::mutex lock;
    bool initialised = false;
    std::vector<std::unique_ptr<Device>> devices;
    std::map<std::uint64_t, Allocation> allocations;  // by base address
    std::uint64_t next_id = 1;
    std::size_t registered_bytes = 0;
    std::size_t pinned_bytes = 0;
    Registry<Stream> streams;
    Registry<Event> events;
    Registry<LoadedModule> modules;
    std::set<const Function*> functions;
    Registry<std::shared_ptr<Graph>> graphs;
    Registry<Executable> executables;
    Registry<std::shared_ptr<UserObject>> objects;  // those that nobody moved to a graph
    Registry<GreenContext> green;
    Registry<DevResource> descriptions;
    std::set<Capture*> captures;
    Point gone;      // what streams and graphs had to do that were destroyed
    int failed = 0;  // the error that HWEMU_STICKY=1 keeps
};

State& state();
std::atomic<unsigned long long>& driver_calls();

// A number from the environment.
unsigned long long setting(const char* name, unsigned long long otherwise);

// SMs of a device. Few: kernels with a grid for every SM are most of what there is to emulate, and more find nothing else.
unsigned sm_count();

// The device of the calling thread's context; null without one.
Device*& current_device();

// Begins an entry point: counts it and takes the lock.
class Call {
public:
    Call() : held_(state().lock) { ++driver_calls(); }
    // 0 when the driver is initialised and the thread has a living context.
    int needs_context() const;

private:
    std::lock_guard<std::mutex> held_;
};

// The stream behind a handle; the handles 0 to 2 are the default stream of the current device. Null if unknown.
Stream* find_stream(const void* handle);
// The stream of a device that has no handle of its own.
Stream* default_stream(Device* device);
// 0, or 900 when a capture in progress forbids calls that touch the whole device; such a call ends the capture.
int forbidden_by_capture();
// What the calling thread lets captures forbid: 2 is nothing.
int& thread_mode();
// Keeps a failure of device work: returned at once, or later by every call when HWEMU_STICKY=1.
int device_failure(int code);

// The known allocation that holds this address, or null.
Allocation* find_allocation(std::uint64_t address);
// Frees an allocation of pool memory; the address must be its base.
void release_pool(DevicePointer base);

double now_ms();

}  // namespace hwemu
