// Operations that are held and taken in any order, and the races that are found on the way: HWEMU_ORDER and
// HWEMU_COUNT_RACES are set.
#include <set>

#include "client.hpp"

namespace {

void* module_of_kernels;

unsigned long long races() { return hwemu_call<unsigned long long>("hwemu_races"); }

// What a step finds: whether it is a race, whose report has these words.
template <class Step>
void expect_race(const char* name, const std::vector<std::string>& words, Step step) {
    const auto before = races();
    step();
    OK(cu("cuCtxSynchronize"));
    if (words.empty() && races() != before) std::fprintf(stderr, "%s: %s\n", name, hwemu_call<const char*>("hwemu_last_race"));
    EXPECT((races() != before) == !words.empty());
    for (const std::string& word : words) {
        const std::string text = hwemu_call<const char*>("hwemu_last_race");
        if (text.find(word) == std::string::npos) std::fprintf(stderr, "%s: no \"%s\" in: %s\n", name, word.c_str(), text.c_str());
        EXPECT(text.find(word) != std::string::npos);
    }
    std::printf("ok %s\n", name);
}

struct Streams {
    Streams() {
        OK(cu("cuStreamCreateWithPriority", &a, 1u, 0));
        OK(cu("cuStreamCreateWithPriority", &b, 1u, 0));
        OK(cu("cuEventCreate", &event, 2u));
    }
    ~Streams() {
        OK(cu("cuEventDestroy_v2", event));
        OK(cu("cuStreamDestroy_v2", a));
        OK(cu("cuStreamDestroy_v2", b));
    }
    // The second goes on behind the first.
    void meet() {
        OK(cu("cuEventRecord", event, a));
        OK(cu("cuStreamWaitEvent", b, event, 0u));
    }
    void *a = nullptr, *b = nullptr, *event = nullptr;
};

DevicePointer device_memory(std::size_t bytes) {
    DevicePointer out = 0;
    OK(cu("cuMemAlloc_v2", &out, bytes));
    return out;
}

unsigned char* pinned_memory(std::size_t bytes) {
    void* out = nullptr;
    OK(cu("cuMemHostAlloc", &out, bytes, 3u));
    std::memset(out, 0, bytes);
    return static_cast<unsigned char*>(out);
}

DevicePointer at(const void* pointer) { return reinterpret_cast<DevicePointer>(pointer); }

void fill(DevicePointer to, int value, std::size_t bytes, void* stream) {
    OK(cu("cuMemsetD8Async", to, static_cast<unsigned char>(value), bytes, stream));
}

void copy(DevicePointer to, DevicePointer from, std::size_t bytes, void* stream) {
    OK(cu("cuMemcpyAsync", to, from, bytes, stream));
}

// Adds 1 to integers, one by one, or counts in one of them by atomics.
void increment(DevicePointer numbers, unsigned count, void* stream) {
    OK(launch_on(stream, module_of_kernels, "increment", {1, count}, numbers));
}
void count_threads(DevicePointer number, void* stream) {
    OK(launch_on(stream, module_of_kernels, "count_threads", {2, 32}, number));
}

void held_until_forced() {
    Streams streams;
    unsigned char* host = pinned_memory(64);
    const DevicePointer memory = device_memory(64);
    fill(memory, 7, 64, streams.a);
    copy(at(host), memory, 64, streams.a);
    EXPECT(host[0] == 0);
    OK(cu("cuStreamSynchronize", streams.a));
    EXPECT(host[0] == 7 && host[63] == 7);
    for (int i = 0; i < 40; ++i) fill(memory, i, 64, streams.a);
    copy(at(host), memory, 64, streams.a);
    int asked = 1;
    EXPECT_CODE(600, cu("cuStreamQuery", streams.a));
    for (int code; (code = cu("cuStreamQuery", streams.a)) != 0; ++asked) EXPECT(code == 600);
    EXPECT(asked > 1 && host[5] == 39);
    // Pageable memory is read at once, and written before the call returns.
    unsigned char page[64];
    std::memset(page, 3, 64);
    copy(memory, at(page), 64, streams.a);
    std::memset(page, 0, 64);
    copy(at(page), memory, 64, streams.a);
    EXPECT(page[0] == 3);
    OK(cu("cuMemFree_v2", memory));
    OK(cu("cuMemFreeHost", static_cast<void*>(host)));
    EXPECT(races() == 0);
    std::printf("ok held_until_forced\n");
}

// Two that nothing orders are seen in either order.
void any_order() {
    Streams streams;
    unsigned char* host = pinned_memory(64);
    const DevicePointer memory = device_memory(64);
    std::set<int> seen;
    for (int round = 0; round < 40; ++round) {
        fill(memory, 1, 4, streams.a);
        fill(memory, 2, 4, streams.b);
        OK(cu("cuCtxSynchronize"));
        copy(at(host), memory, 4, streams.a);
        OK(cu("cuStreamSynchronize", streams.a));
        seen.insert(host[0]);
    }
    EXPECT(seen == (std::set<int>{1, 2}));
    OK(cu("cuMemFree_v2", memory));
    OK(cu("cuMemFreeHost", static_cast<void*>(host)));
    std::printf("ok any_order\n");
}

void conflicts() {
    Streams streams;
    const DevicePointer memory = device_memory(20000), other = device_memory(20000);
    unsigned char* host = pinned_memory(4096);
    const auto numbers = memory + 400;
    expect_race("write_write", {"fill of 20000 bytes", "copy of 20000 bytes", "device memory", "nothing orders"}, [&] {
        fill(memory, 1, 20000, streams.a);
        copy(memory, other, 20000, streams.b);
    });
    expect_race("write_read", {"fill of 64 bytes", "kernel increment", "byte 400 of 20000"}, [&] {
        fill(numbers, 1, 64, streams.a);
        increment(numbers, 32, streams.b);
    });
    expect_race("an_event_orders", {}, [&] {
        fill(numbers, 1, 64, streams.a);
        streams.meet();
        increment(numbers, 32, streams.b);
    });
    expect_race("what_comes_behind_the_event_is_not_ordered", {"fill of 64 bytes", "kernel increment"}, [&] {
        streams.meet();
        fill(numbers, 1, 64, streams.a);
        increment(numbers, 32, streams.b);
    });
    expect_race("the_host_orders", {}, [&] {
        fill(numbers, 1, 64, streams.a);
        OK(cu("cuStreamSynchronize", streams.a));
        increment(numbers, 32, streams.b);
    });
    expect_race("other_bytes_do_not_conflict", {}, [&] {
        increment(numbers, 32, streams.a);
        increment(numbers + 128, 32, streams.b);
    });
    expect_race("readers_do_not_conflict", {}, [&] {
        copy(other, memory, 5000, streams.a);
        copy(at(host), memory, 4096, streams.b);
    });
    expect_race("one_of_two_readers", {"copy of 5000 bytes", "fill of 8 bytes"}, [&] {
        copy(other, memory, 5000, streams.a);
        copy(at(host), memory, 4096, streams.b);
        fill(memory + 4992, 1, 8, streams.b);
    });
    expect_race("atomics_do_not_conflict", {}, [&] {
        count_threads(numbers, streams.a);
        count_threads(numbers, streams.b);
    });
    expect_race("an_atomic_and_a_read", {"kernel count_threads", "copy of 4 bytes"}, [&] {
        count_threads(numbers, streams.a);
        copy(at(host), numbers, 4, streams.b);
    });
    expect_race("the_default_stream_waits_for_none_of_these", {"fill of 64 bytes", "kernel increment"}, [&] {
        fill(numbers, 1, 64, nullptr);
        increment(numbers, 32, streams.b);
    });
    void* blocking = nullptr;
    OK(cu("cuStreamCreateWithPriority", &blocking, 0u, 0));
    expect_race("the_default_stream_waits_for_blocking_ones", {}, [&] {
        fill(numbers, 1, 64, nullptr);
        increment(numbers, 32, blocking);
        fill(numbers, 1, 64, nullptr);
    });
    OK(cu("cuStreamDestroy_v2", blocking));
    OK(cu("cuMemFree_v2", memory));
    OK(cu("cuMemFree_v2", other));
    OK(cu("cuMemFreeHost", static_cast<void*>(host)));
}

void memory_that_goes() {
    Streams streams;
    DevicePointer memory = 0;
    const auto allocate = [&](void* stream) { OK(cu("cuMemAllocAsync", &memory, std::size_t{4096}, stream)); };
    expect_race("used_before_it_is_there", {"allocation", "fill of 4096 bytes"}, [&] {
        allocate(streams.a);
        fill(memory, 1, 4096, streams.b);
        OK(cu("cuStreamSynchronize", streams.b));
        OK(cu("cuMemFreeAsync", memory, streams.a));
    });
    expect_race("freed_while_it_is_used", {"free", "copy of 4096 bytes"}, [&] {
        allocate(streams.a);
        streams.meet();
        copy(memory, memory, 4096, streams.b);
        OK(cu("cuMemFreeAsync", memory, streams.a));
    });
    expect_race("used_after_it_was_freed", {"kernel increment", "free"}, [&] {
        allocate(streams.a);
        streams.meet();
        OK(cu("cuMemFreeAsync", memory, streams.a));
        increment(memory, 32, streams.b);
        OK(cu("cuStreamSynchronize", streams.a));
    });
    expect_race("freed_by_the_host", {"4096 bytes of device memory behind cuMemFree, which the host gives back", "kernel increment"}, [&] {
        memory = device_memory(4096);
        increment(memory, 32, streams.a);
        OK(cu("cuMemFree_v2", memory));
    });
    expect_race("freed_by_the_host_that_did_not_wait", {"cuMemFree gives back", "kernel increment", "was not waited for"}, [&] {
        memory = device_memory(4096);
        increment(memory, 32, streams.a);
        // It has run, but the host does not know.
        while (cu("cuStreamQuery", streams.b)) {
        }
        OK(hwemu_call<int>("hwemu_touch", streams.a, memory, std::size_t{4}, 0, "look"));
        OK(cu("cuMemFree_v2", memory));
    });
    expect_race("freed_in_order", {}, [&] {
        allocate(streams.a);
        streams.meet();
        increment(memory, 32, streams.b);
        OK(cu("cuEventRecord", streams.event, streams.b));
        OK(cu("cuStreamWaitEvent", streams.a, streams.event, 0u));
        OK(cu("cuMemFreeAsync", memory, streams.a));
    });
}

void host_memory() {
    Streams streams;
    unsigned char* host = pinned_memory(4096);
    const DevicePointer memory = device_memory(4096);
    expect_race("written_behind_a_copy", {"the host writes byte 8 of 4096 bytes of pinned host memory", "copy of 100 bytes"}, [&] {
        copy(memory, at(host), 100, streams.a);
        host[8] = 9;
    });
    expect_race("written_behind_a_kernel", {"the host writes byte 0 of 4096", "kernel increment"}, [&] {
        increment(at(host), 32, streams.a);
        host[0] = 200;
    });
    expect_race("written_elsewhere", {}, [&] {
        copy(memory, at(host), 100, streams.a);
        increment(at(host), 32, streams.a);
        host[200] = 9;
    });
    expect_race("written_by_a_device_first", {}, [&] {
        fill(at(host), 77, 100, streams.a);
        copy(memory, at(host), 100, streams.a);
    });
    expect_race("freed_too_early", {"behind cuMemFreeHost", "copy of 100 bytes"}, [&] {
        copy(memory, at(host), 100, streams.a);
        OK(cu("cuMemFreeHost", static_cast<void*>(host)));
    });
    OK(cu("cuMemFree_v2", memory));
}

void graphs() {
    Streams streams;
    const DevicePointer memory = device_memory(4096);
    const auto launch = [&](bool is_joined) {
        void *graph = nullptr, *executable = nullptr;
        OK(cu("cuStreamBeginCapture_v2", streams.a, 1));
        fill(memory, 1, 4096, streams.a);
        streams.meet();
        if (is_joined) increment(memory, 32, streams.b);
        else fill(memory, 2, 64, streams.b);
        if (is_joined) {
            OK(cu("cuEventRecord", streams.event, streams.b));
            OK(cu("cuStreamWaitEvent", streams.a, streams.event, 0u));
        }
        increment(memory, 32, streams.a);
        if (!is_joined) {
            OK(cu("cuEventRecord", streams.event, streams.b));
            OK(cu("cuStreamWaitEvent", streams.a, streams.event, 0u));
        }
        OK(cu("cuStreamEndCapture", streams.a, &graph));
        OK(cu("cuGraphInstantiateWithFlags", &executable, graph, 0ull));
        OK(cu("cuGraphLaunch", executable, streams.a));
        OK(cu("cuGraphLaunch", executable, streams.b));
        OK(cu("cuGraphExecDestroy", executable));
        OK(cu("cuGraphDestroy", graph));
    };
    expect_race("branches_that_meet", {}, [&] { launch(true); });
    std::vector<int> found(32);
    copy(at(found.data()), memory, 128, streams.a);
    EXPECT(found[0] == 0x01010103);
    expect_race("branches_that_race", {"fill of 64 bytes", "kernel increment"}, [&] { launch(false); });
    OK(cu("cuMemFree_v2", memory));
}

// What a test of tests asks for: waits that are not made, and an order that is one seed's.
void waits_that_are_lost() {
    Streams streams;
    unsigned char* host = pinned_memory(64);
    const DevicePointer memory = device_memory(64);
    const auto lose = [](void* waiter, void* awaited) { OK(hwemu_call<int>("hwemu_lose", waiter, awaited)); };
    const auto write_and_read = [&] {
        fill(memory, 1, 64, streams.a);
        streams.meet();
        increment(memory, 16, streams.b);
    };
    EXPECT(hwemu_call<void*>("hwemu_newest_stream", 0u) == streams.b && hwemu_call<void*>("hwemu_newest_stream", 1u) == streams.a);
    EXPECT(hwemu_call<void*>("hwemu_newest_stream", 1000u) == nullptr);
    EXPECT_CODE(400, hwemu_call<int>("hwemu_lose", static_cast<void*>(&streams), streams.a));
    lose(streams.b, streams.a);
    expect_race("a_wait_that_is_lost", {"fill of 64 bytes", "kernel increment"}, write_and_read);
    lose(nullptr, nullptr);
    expect_race("a_wait_that_is_made_again", {}, write_and_read);
    // The host believes that all is done.
    lose(nullptr, streams.a);
    fill(at(host), 9, 64, streams.a);
    OK(cu("cuEventRecord", streams.event, streams.a));
    OK(cu("cuEventQuery", streams.event));
    OK(cu("cuEventSynchronize", streams.event));
    OK(cu("cuStreamQuery", streams.a));
    OK(cu("cuStreamSynchronize", streams.a));
    EXPECT(host[0] == 0);
    lose(nullptr, nullptr);
    OK(cu("cuStreamSynchronize", streams.a));
    EXPECT(host[0] == 9);
    std::set<int> seen;
    std::vector<int> first;
    for (int round = 0; round < 20; ++round) {
        std::vector<int> found;
        OK(hwemu_call<int>("hwemu_order", 3u));
        for (int i = 0; i < 16; ++i) {
            fill(memory, 1, 1, streams.a);
            fill(memory, 2, 1, streams.b);
            OK(cu("cuCtxSynchronize"));
            copy(at(host), memory, 1, streams.a);
            OK(cu("cuStreamSynchronize", streams.a));
            found.push_back(host[0]);
        }
        if (first.empty()) first = found;
        EXPECT(found == first);
        seen.insert(found.begin(), found.end());
    }
    EXPECT(seen.size() == 2);
    OK(cu("cuMemFree_v2", memory));
    OK(cu("cuMemFreeHost", static_cast<void*>(host)));
    std::printf("ok waits_that_are_lost\n");
}

}  // namespace

int main(int, char** arguments) {
    use_device(0);
    module_of_kernels = load_kernels(arguments[1]);
    held_until_forced();
    conflicts();
    memory_that_goes();
    host_memory();
    graphs();
    any_order();
    waits_that_are_lost();
}
