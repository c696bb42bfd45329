// The self-test: drives the stand-ins as a client does. `selftest KERNELS.cu [TEST]` runs all tests or one;
// the tests that must die under a sanitizer run only by name, in a process of their own.
#include <functional>
#include <numeric>

#include "client.hpp"

namespace {

void* module;

void plain_launches() {
    Buffer<float> data(std::vector<float>(1000, 2.0f));
    OK(launch_on(nullptr, module, "add_one", {8, 128}, data.address, 1000u));
    for (float value : data.values()) EXPECT(value == 3.0f);
    Buffer<unsigned> out(2 * 3 * 4 * 5);
    OK(launch_on(nullptr, module, "index", {2, 4, 0, 3, 5}, out.address));
    const auto got = out.values();
    EXPECT(got[0] == 0 && got.back() == 1 + 20 + 300 + 4000);
    EXPECT_CODE(1, launch_on(nullptr, module, "index", {1, 65}, out.address));
    int bound = 0;
    void* function = nullptr;
    OK(cu("cuModuleGetFunction", &function, module, "index"));
    OK(cu("cuFuncGetAttribute", &bound, 0, function));
    EXPECT(bound == 64);
    EXPECT_CODE(500, cu("cuModuleGetFunction", &function, module, "not_there"));
}

void shared_memory() {
    std::vector<float> in(1024);
    std::iota(in.begin(), in.end(), 0.0f);
    Buffer<float> data(in), out(4);
    struct { float a, b; } scale = {2.0f, 1.0f};
    OK(launch_on(nullptr, module, "sum_blocks", {4, 256}, data.address, out.address, scale));
    for (unsigned b = 0; b < 4; ++b) EXPECT(out.values()[b] == 2.0f * (255 * 128 + 256.0f * 256 * static_cast<float>(b)) + 1.0f);
    Buffer<unsigned> words(65);
    OK(launch_on(nullptr, module, "dynamic_shared", {3, 64, 256}, words.address, 64u));
    for (unsigned i = 0; i < 64; ++i) EXPECT(words.values()[i] == 63 - i);
    EXPECT(words.values()[64] == 0xCBCBCBCBu);
    EXPECT_CODE(1, launch_on(nullptr, module, "dynamic_shared", {1, 64, 60000}, words.address, 64u));
    Buffer<unsigned> fresh(2);
    OK(launch_on(nullptr, module, "uninitialised_shared", {2, 1}, fresh.address));
    EXPECT(fresh.values() == std::vector<unsigned>(2, 0xCBCBCBCBu));
}

void warps() {
    std::vector<int> in(96);
    std::iota(in.begin(), in.end(), 0);
    Buffer<int> data(in), out(3);
    OK(launch_on(nullptr, module, "sum_warps", {1, 96}, data.address, out.address));
    EXPECT((out.values() == std::vector<int>{496, 496 + 1024, 496 + 2048}));
    Buffer<unsigned> votes(64 * 4);
    OK(launch_on(nullptr, module, "votes", {1, 64}, votes.address));
    const auto got = votes.values();
    for (unsigned i = 0; i < 64; ++i) {
        EXPECT(got[i * 4] == 0x49249249u);
        EXPECT(got[i * 4 + 1] == 0x11111111u << i % 4);
        EXPECT(got[i * 4 + 2] == 1);
        EXPECT(got[i * 4 + 3] == 105);
    }
}

void atomics_and_intrinsics() {
    Buffer<unsigned> n(std::vector<unsigned>(2, 0));
    Buffer<unsigned long long> wide(std::vector<unsigned long long>(1, 0));
    Buffer<float> f(std::vector<float>(1, 0));
    Buffer<double> d(std::vector<double>(1, 0));
    Buffer<int> low(std::vector<int>(1, 0));
    OK(launch_on(nullptr, module, "atomics", {4, 100}, n.address, wide.address, f.address, d.address, low.address));
    EXPECT((n.values() == std::vector<unsigned>{400, 800}) && wide.values()[0] == 400ull << 32);
    EXPECT(f.values()[0] == 200.0f && d.values()[0] == 100.0 && low.values()[0] == -99);
    Buffer<int> lock(std::vector<int>(2, 0));
    OK(launch_on(nullptr, module, "spin_lock", {2, 64}, lock.address, lock.address + 4));
    EXPECT(lock.values()[1] == 128);
    Buffer<unsigned long long> out(8);
    OK(launch_on(nullptr, module, "intrinsics", {1, 1}, out.address));
    EXPECT((out.values() == std::vector<unsigned long long>{8 + 31 + 4, 0x80000000ull + 3, 5, 0x3f800000, 2 + 1 + 10 + 3 + 7, 3,
                                                            4 + 16 + 16, 23 + 0x11}));
}

bool failure_says(const char* text) {
    return std::strstr(hwemu_call<const char*>("hwemu_last_failure"), text) != nullptr;
}

void divergence_is_reported() {
    Buffer<int> out(64);
    EXPECT_CODE(719, launch_on(nullptr, module, "divergent_exit", {1, 64}));
    EXPECT(failure_says("1 threads (first 5) exited"));
    EXPECT_CODE(719, launch_on(nullptr, module, "divergent_place", {1, 64}, out.address));
    EXPECT(failure_says("wait for the block at kernels.cu:"));
    EXPECT_CODE(719, launch_on(nullptr, module, "missing_lane", {1, 32}, out.address));
    EXPECT(failure_says("exited"));
    EXPECT_CODE(719, launch_on(nullptr, module, "sum_warps", {1, 20}, out.address, out.address));
    EXPECT(failure_says("does not exist"));
    EXPECT_CODE(710, launch_on(nullptr, module, "failing_assert", {1, 64}, 63));
    OK(launch_on(nullptr, module, "failing_assert", {1, 64}, 64));
    warps();
}

void graphs() {
    void *stream, *side, *event, *join, *graph, *executable;
    OK(cu("cuStreamCreateWithPriority", &stream, 1u, 0));
    OK(cu("cuStreamCreateWithPriority", &side, 1u, 0));
    OK(cu("cuEventCreate", &event, 2u));
    OK(cu("cuEventCreate", &join, 2u));
    Buffer<float> data(std::vector<float>(4, 0.0f));
    OK(cu("cuStreamBeginCapture_v2", stream, 1));
    OK(cu("cuMemsetD32Async", data.address, 0x40000000u, std::size_t{4}, stream));
    OK(launch_on(stream, module, "add_one", {1, 4}, data.address, 4u));
    OK(cu("cuEventRecord", event, stream));
    OK(cu("cuStreamWaitEvent", side, event, 0u));
    OK(launch_on(side, module, "add_one", {1, 4}, data.address, 2u));
    OK(cu("cuEventRecord", join, side));
    OK(cu("cuStreamWaitEvent", stream, join, 0u));
    int status = 0;
    OK(cu("cuStreamIsCapturing", side, &status));
    EXPECT(status == 1);
    OK(cu("cuStreamEndCapture", stream, &graph));
    OK(cu("cuGraphInstantiateWithFlags", &executable, graph, 0ull));
    OK(cu("cuGraphDestroy", graph));
    EXPECT(data.values()[0] == 0.0f);
    for (int i = 0; i < 2; ++i) {
        OK(cu("cuGraphLaunch", executable, stream));
        EXPECT((data.values() == std::vector<float>{4, 4, 3, 3}));
    }
    OK(cu("cuGraphExecDestroy", executable));
    // A wait ends the capture with an error, and so does work that was not joined.
    OK(cu("cuStreamBeginCapture_v2", stream, 2));
    EXPECT_CODE(900, cu("cuStreamSynchronize", stream));
    EXPECT_CODE(901, cu("cuStreamEndCapture", stream, &graph));
    OK(cu("cuStreamBeginCapture_v2", stream, 2));
    OK(cu("cuEventRecord", event, stream));
    OK(cu("cuStreamWaitEvent", side, event, 0u));
    EXPECT_CODE(904, cu("cuStreamEndCapture", stream, &graph));
    // Ending it in another stream, waiting for work outside it and allocating spoil it as well.
    OK(cu("cuStreamBeginCapture_v2", stream, 2));
    OK(cu("cuEventRecord", event, stream));
    OK(cu("cuStreamWaitEvent", side, event, 0u));
    EXPECT_CODE(903, cu("cuStreamEndCapture", side, &graph));
    EXPECT_CODE(901, cu("cuStreamEndCapture", stream, &graph));
    OK(cu("cuEventRecord", join, stream));
    OK(cu("cuStreamBeginCapture_v2", stream, 0));
    EXPECT_CODE(905, cu("cuStreamWaitEvent", stream, join, 0u));
    EXPECT_CODE(901, cu("cuStreamEndCapture", stream, &graph));
    DevicePointer address = 0;
    OK(cu("cuStreamBeginCapture_v2", stream, 0));
    EXPECT_CODE(900, cu("cuMemAlloc_v2", &address, std::size_t{64}));
    EXPECT_CODE(901, cu("cuStreamEndCapture", stream, &graph));
    OK(cu("cuStreamSynchronize", stream));
    for (void* handle : {event, join}) OK(cu("cuEventDestroy_v2", handle));
    for (void* handle : {stream, side}) OK(cu("cuStreamDestroy_v2", handle));
    EXPECT_CODE(400, cu("cuStreamDestroy_v2", side));
}

void memory() {
    DevicePointer address = 0, managed = 0, mapped = 0;
    EXPECT_CODE(2, cu("cuMemAlloc_v2", &address, std::size_t{1} << 40));
    EXPECT_CODE(1, cu("cuMemAlloc_v2", &address, std::size_t{0}));
    OK(cu("cuMemAllocAsync", &address, std::size_t{0}, static_cast<void*>(nullptr)));
    EXPECT(address == 0);
    OK(cu("cuMemAlloc_v2", &address, std::size_t{1000}));
    unsigned char host[1004];
    const auto to_host = reinterpret_cast<DevicePointer>(&host[0]);
    void* const none = nullptr;
    OK(cu("cuMemcpyAsync", to_host, address, std::size_t{1000}, none));
    EXPECT(host[0] == 0xCB && host[999] == 0xCB);
    EXPECT_CODE(1, cu("cuMemcpyAsync", to_host, address + 1, std::size_t{1000}, none));
    EXPECT_CODE(1, cu("cuMemsetD8Async", address, static_cast<unsigned char>(1), std::size_t{1001}, none));
    EXPECT_CODE(400, cu("cuMemcpyAsync", to_host, address, std::size_t{1}, reinterpret_cast<void*>(0x1234)));
    EXPECT_CODE(1, cu("cuMemFree_v2", address + 8));
    OK(cu("cuMemFree_v2", address));
    EXPECT_CODE(1, cu("cuMemFree_v2", address));
    OK(cu("cuMemHostRegister_v2", &host[0], sizeof host, 3u));
    EXPECT_CODE(712, cu("cuMemHostRegister_v2", &host[100], std::size_t{8}, 0u));
    EXPECT_CODE(712, cu("cuMemHostRegister_v2", &host[0] - 8, std::size_t{16}, 0u));
    OK(cu("cuMemHostGetDevicePointer_v2", &mapped, &host[4], 0u));
    EXPECT(mapped == to_host + 4);
    unsigned type = 0;
    OK(cu("cuPointerGetAttribute", &type, 2, mapped));
    EXPECT(type == 1);
    EXPECT_CODE(1, cu("cuMemHostUnregister", &host[4]));
    OK(cu("cuMemHostUnregister", &host[0]));
    EXPECT_CODE(713, cu("cuMemHostUnregister", &host[0]));
    EXPECT_CODE(1, cu("cuPointerGetAttribute", &type, 2, mapped));
    void* pinned = nullptr;
    OK(cu("cuMemHostAlloc", &pinned, std::size_t{4096}, 3u));
    EXPECT_CODE(1, cu("cuMemHostRegister_v2", pinned, std::size_t{8}, 3u));
    OK(cu("cuMemFreeHost", pinned));
    OK(cu("cuMemAllocManaged", &managed, std::size_t{4096}, 1u));
    OK(cu("cuMemAdvise", managed, std::size_t{4096}, 3, -1));
    EXPECT_CODE(1, cu("cuMemAdvise", to_host, std::size_t{16}, 3, -1));
    OK(cu("cuMemFree_v2", managed));
}

void green_contexts() {
    struct Resource { int type; unsigned char padding[92]; unsigned sms; unsigned char rest[44]; } all, part, rest;
    OK(cu("cuDeviceGetDevResource", 0, &all, 1));
    EXPECT(all.sms == 16);
    setenv("HWEMU_SMS", "132", 1);
    OK(cu("cuDeviceGetDevResource", 0, &all, 1));
    unsetenv("HWEMU_SMS");
    EXPECT(all.sms == 132);
    unsigned groups = 1;
    OK(cu("cuDevSmResourceSplitByCount", &part, &groups, static_cast<const Resource*>(&all), &rest, 0u, 20u));
    EXPECT(groups == 1 && part.sms == 24 && rest.sms == 108);
    OK(cu("cuDevSmResourceSplitByCount", &part, &groups, static_cast<const Resource*>(&all), &rest, 0u, 132u));
    EXPECT(groups == 1 && part.sms == 132 && rest.type == 0);
    EXPECT_CODE(915, cu("cuDevSmResourceSplitByCount", &part, &groups, static_cast<const Resource*>(&all), &rest, 0u, 133u));
    void *description, *green, *stream;
    OK(cu("cuDevResourceGenerateDesc", &description, &part, 1u));
    OK(cu("cuGreenCtxCreate", &green, description, 0, 1u));
    OK(cu("cuGreenCtxStreamCreate", &stream, green, 1u, 0));
    Buffer<float> data(std::vector<float>(1, 1.0f));
    OK(launch_on(stream, module, "add_one", {1, 1}, data.address, 1u));
    EXPECT(data.values()[0] == 2.0f);
    OK(cu("cuStreamDestroy_v2", stream));
    OK(cu("cuGreenCtxDestroy", green));
}

void requests() {
    std::vector<float> table(100 * 32);
    std::iota(table.begin(), table.end(), 0.0f);
    Buffer<float> data(table), out(64);
    Buffer<unsigned> rows(std::vector<unsigned>{3, 7}), three(std::vector<unsigned>{0, 2, 4});
    const auto reset = [](unsigned line, unsigned warp) { hwemu_call<void>("hwemu_requests_reset", line, warp); };
    const auto count = [] { return hwemu_call<unsigned long long>("hwemu_requests"); };
    // Aligned rows of 128 bytes are one request each; moved by 4 bytes they are two.
    reset(128, 32);
    OK(launch_on(nullptr, module, "read_rows", {2, 32}, data.address, rows.address, 32u, out.address));
    EXPECT(count() == 2 && hwemu_call<unsigned long long>("hwemu_sector_bytes") == 256);
    EXPECT(out.values()[32] == 7 * 32.0f);
    reset(128, 32);
    OK(launch_on(nullptr, module, "read_rows", {2, 32}, data.address + 4, rows.address, 32u, out.address));
    EXPECT(count() == 4);
    // PyTorch-Direct's example: 7 requests, and 5 with the circular shift.
    for (int shifted : {0, 1}) {
        reset(16, 4);
        OK(launch_on(nullptr, module, "toy_gather", {1, 33}, data.address, three.address, shifted, out.address));
        EXPECT(count() == (shifted ? 5u : 7u));
        for (unsigned i = 0; i < 33; ++i) EXPECT(out.values()[i] == table[i / 11 * 2 * 11 + i % 11]);
    }
    reset(128, 32);
}

void compile_errors() {
    std::vector<char> image;
    std::string log;
    EXPECT_CODE(6, compile("\n\nextern \"C\" __global__ void f() { undeclared = 1; }\n", image, log));
    EXPECT(log.find("kernels.cu:3") != std::string::npos && log.find("undeclared") != std::string::npos);
    EXPECT_CODE(6, compile("#include <vector>\n", image, log));
    EXPECT_CODE(6, compile("#error told so\n", image, log));
    EXPECT(log.find("told so") != std::string::npos);
    OK(compile("extern \"C\" {\n__global__ void a() {}\n__device__ int b() { return 1; }\n__global__ void c(int x) { b(); }\n}", image, log));
    void *other, *function;
    OK(cu("cuModuleLoadData", &other, static_cast<const void*>(image.data())));
    OK(cu("cuModuleGetFunction", &function, other, "a"));
    OK(cu("cuModuleGetFunction", &function, other, "c"));
    OK(cu("cuModuleUnload", other));
    EXPECT_CODE(400, cu("cuModuleUnload", other));
    EXPECT_CODE(200, cu("cuModuleLoadData", &other, static_cast<const void*>("no such image")));
}

// A million threads without a barrier, and a thousand barriers of a thousand threads, in seconds.
void speed() {
    Buffer<float> data(std::vector<float>(1 << 20, 0.0f)), out(4096);
    OK(launch_on(nullptr, module, "add_one", {4096, 256}, data.address, 1u << 20));
    OK(launch_on(nullptr, module, "sum_blocks", {256, 256}, data.address, out.address, 1.0, 0));
}

void die_out_of_bounds() {
    Buffer<float> data(10);
    launch_on(nullptr, module, "write_at", {1, 1}, data.address, 10ll);
}

void die_behind_device_allocation() {
    DevicePointer address = 0;
    OK(cu("cuMemAlloc_v2", &address, std::size_t{40}));
    launch_on(nullptr, module, "write_at", {1, 1}, address, 10ll);
}

void die_shared_overflow() {
    Buffer<int> out(1);
    launch_on(nullptr, module, "shared_overflow", {1, 8}, out.address, 8);
}

void die_dynamic_shared_overflow() {
    Buffer<unsigned> out(65);
    launch_on(nullptr, module, "dynamic_shared", {1, 64, 252}, out.address, 64u);
}

void die_misaligned_load() {
    Buffer<unsigned> out(8);
    launch_on(nullptr, module, "misaligned_load", {1, 1}, out.address, out.address);
}

void die_misaligned_store() {
    Buffer<unsigned> out(8);
    launch_on(nullptr, module, "misaligned_store", {1, 1}, out.address);
}

void die_own_overflow() {
    Buffer<unsigned> at(std::vector<unsigned>{4}), out(1);
    launch_on(nullptr, module, "own_overflow", {1, 1}, at.address, out.address);
}

struct Test {
    const char* name;
    std::function<void()> body;
    bool dies;
};

const Test tests[] = {
    {"plain_launches", plain_launches, false},
    {"shared_memory", shared_memory, false},
    {"warps", warps, false},
    {"atomics_and_intrinsics", atomics_and_intrinsics, false},
    {"divergence_is_reported", divergence_is_reported, false},
    {"graphs", graphs, false},
    {"memory", memory, false},
    {"green_contexts", green_contexts, false},
    {"requests", requests, false},
    {"compile_errors", compile_errors, false},
    {"speed", speed, false},
    {"die_out_of_bounds", die_out_of_bounds, true},
    {"die_behind_device_allocation", die_behind_device_allocation, true},
    {"die_shared_overflow", die_shared_overflow, true},
    {"die_dynamic_shared_overflow", die_dynamic_shared_overflow, true},
    {"die_misaligned_load", die_misaligned_load, true},
    {"die_misaligned_store", die_misaligned_store, true},
    {"die_own_overflow", die_own_overflow, true},
};

void nothing_is_left() {
    OK(cu("cuModuleUnload", module));
    for (const char* what : {"device_allocations", "device_bytes", "host_allocations", "registrations", "registered_bytes", "streams",
                             "events", "modules", "graphs", "green_contexts"})
        EXPECT(live(what) == 0);
    EXPECT(live("driver_calls") > 100);
}

}  // namespace

int main(int count, char** arguments) {
    EXPECT(count >= 2);
    int ignored = 0;
    EXPECT_CODE(3, cu("cuDeviceGetCount", &ignored));
    OK(cu("cuInit", 0u));
    EXPECT_CODE(201, cu("cuCtxSynchronize"));
    use_device(0);
    module = load_kernels(arguments[1]);
    for (const Test& test : tests) {
        if (count > 2 ? std::string(test.name) != arguments[2] : test.dies) continue;
        test.body();
        std::printf("ok %s\n", test.name);
    }
    if (count == 2) nothing_is_left();
}
