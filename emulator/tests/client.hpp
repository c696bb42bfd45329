// What the tests know of the driver and of NVRTC: both are opened at run time, as Headwater does it.
#pragma once

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

using DevicePointer = unsigned long long;

inline void* library(const char* variable) {
    const char* path = std::getenv(variable);
    void* handle = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (!handle) {
        std::fprintf(stderr, "%s: %s\n", variable, path ? dlerror() : "is not set");
        std::exit(2);
    }
    return handle;
}

// Calls a driver function by name. The stand-in takes what the driver takes: integers and pointers.
template <class... A>
int cu(const char* name, A... arguments) {
    static void* driver = library("HEADWATER_LIBCUDA");
    auto function = reinterpret_cast<int (*)(A...)>(dlsym(driver, name));
    if (!function) {
        std::fprintf(stderr, "no function %s\n", name);
        std::exit(2);
    }
    return function(arguments...);
}

template <class R, class... A>
R hwemu_call(const char* name, A... arguments) {
    static void* driver = library("HEADWATER_LIBCUDA");
    return reinterpret_cast<R (*)(A...)>(dlsym(driver, name))(arguments...);
}

template <class... A>
int rtc(const char* name, A... arguments) {
    static void* compiler = library("HEADWATER_LIBNVRTC");
    return reinterpret_cast<int (*)(A...)>(dlsym(compiler, name))(arguments...);
}

inline unsigned long long live(const char* what) { return hwemu_call<unsigned long long, const char*>("hwemu_live", what); }

#define EXPECT(condition)                                                           \
    do {                                                                            \
        if (!(condition)) {                                                         \
            std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            std::exit(1);                                                           \
        }                                                                           \
    } while (0)

#define EXPECT_CODE(code, call)                                                                          \
    do {                                                                                                 \
        const int got = (call);                                                                          \
        if (got != (code)) {                                                                             \
            std::fprintf(stderr, "%s:%d: %s gave %d, not %d\n", __FILE__, __LINE__, #call, got, (code)); \
            std::exit(1);                                                                                \
        }                                                                                                \
    } while (0)

#define OK(call) EXPECT_CODE(0, call)

inline std::string read_file(const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    EXPECT(!text.str().empty());
    return text.str();
}

// Compiles a program and returns its image, or what NVRTC said against it.
inline int compile(const std::string& text, std::vector<char>& image, std::string& log) {
    const char* header = "struct struct_of_two { float a; float b; };\n";
    const char* header_name = "prelude.cuh";
    void* program = nullptr;
    OK(rtc("nvrtcCreateProgram", &program, text.c_str(), "kernels.cu", 1, &header, &header_name));
    const char* options[] = {"--gpu-architecture=sm_90", "-DBLOCK=64", "--std=c++17", "-default-device"};
    const int code = rtc("nvrtcCompileProgram", program, 4, &options[0]);
    std::size_t bytes = 0;
    OK(rtc("nvrtcGetProgramLogSize", program, &bytes));
    std::vector<char> text_of_log(bytes);
    OK(rtc("nvrtcGetProgramLog", program, text_of_log.data()));
    log = text_of_log.data();
    if (code == 0) {
        OK(rtc("nvrtcGetCUBINSize", program, &bytes));
        image.resize(bytes);
        OK(rtc("nvrtcGetCUBIN", program, image.data()));
    }
    OK(rtc("nvrtcDestroyProgram", &program));
    return code;
}

inline void* use_device(int device) {
    void* context = nullptr;
    OK(cu("cuInit", 0u));
    OK(cu("cuDevicePrimaryCtxRetain", &context, device));
    OK(cu("cuCtxSetCurrent", context));
    return context;
}

inline void* load_kernels(const std::string& path) {
    std::vector<char> image;
    std::string log;
    const int code = compile(read_file(path), image, log);
    if (code) std::fprintf(stderr, "%s\n", log.c_str());
    OK(code);
    void* module = nullptr;
    OK(cu("cuModuleLoadData", &module, static_cast<const void*>(image.data())));
    return module;
}

struct Shape {
    unsigned grid = 1, block = 1, shared_bytes = 0, grid_y = 1, block_y = 1;
};

template <class... A>
int launch_on(void* stream, void* module, const char* name, Shape shape, A... arguments) {
    void* function = nullptr;
    OK(cu("cuModuleGetFunction", &function, module, name));
    void* pointers[] = {&arguments..., nullptr};
    return cu("cuLaunchKernel", function, shape.grid, shape.grid_y, 1u, shape.block, shape.block_y, 1u, shape.shared_bytes,
              stream, &pointers[0], static_cast<void**>(nullptr));
}

// Device memory that is read and written through copies.
template <class T>
class Buffer {
public:
    explicit Buffer(std::size_t count) : count_(count) { OK(cu("cuMemAllocAsync", &address, count * sizeof(T), nowhere())); }
    explicit Buffer(const std::vector<T>& values) : Buffer(values.size()) {
        OK(cu("cuMemcpyAsync", address, reinterpret_cast<DevicePointer>(values.data()), count_ * sizeof(T), nowhere()));
    }
    ~Buffer() { OK(cu("cuMemFreeAsync", address, nowhere())); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    std::vector<T> values() const {
        std::vector<T> out(count_);
        OK(cu("cuMemcpyAsync", reinterpret_cast<DevicePointer>(out.data()), address, count_ * sizeof(T), nowhere()));
        return out;
    }
    DevicePointer address = 0;

private:
    static void* nowhere() { return nullptr; }
    std::size_t count_;
};
