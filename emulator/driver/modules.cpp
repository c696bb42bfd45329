// Modules, functions and launches.
// An image is a short text that names a shared object built by the NVRTC stand-in. The object is opened once
// however often it is loaded, so device variables are shared by all modules of the same program.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "state.hpp"

namespace hwemu {

namespace {

const char image_magic[] = "HWEMU1\n";

std::string path_in_image(const void* image) {
    const auto* text = static_cast<const char*>(image);
    if (std::strncmp(text, image_magic, sizeof image_magic - 1) != 0) return {};
    text += sizeof image_magic - 1;
    const char* end = std::strchr(text, '\n');
    return end ? std::string(text, end) : std::string();
}

int load(const std::string& path, LoadedModule& out) {
    if (path.empty()) return invalid_image;
    out.library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!out.library) {
        std::fprintf(stderr, "hwemu: %s\n", dlerror());
        return invalid_image;
    }
    const auto attach = reinterpret_cast<Attach>(dlsym(out.library, "hwemu_attach"));
    if (!attach) {
        dlclose(out.library);
        return invalid_image;
    }
    out.device = current_device();
    out.module = attach(machine());
    return success;
}

// The values of a launch's arguments, each in a slot that any parameter type may be read from.
class Arguments {
public:
    Arguments(const Kernel& kernel, void** values) {
        std::size_t bytes = 0;
        for (unsigned i = 0; i < kernel.parameter_count; ++i) bytes += slot(kernel.parameter_bytes[i]);
        storage_.resize(bytes / sizeof(Line));
        auto* at = reinterpret_cast<unsigned char*>(storage_.data());
        for (unsigned i = 0; i < kernel.parameter_count; ++i) {
            std::memcpy(at, values[i], kernel.parameter_bytes[i]);
            pointers_.push_back(at);
            at += slot(kernel.parameter_bytes[i]);
        }
    }
    void** pointers() { return pointers_.data(); }

    // The allocations that the values point into, wherever in them.
    std::vector<std::uint64_t> buffers() const {
        std::vector<std::uint64_t> found;
        const auto* words = reinterpret_cast<const std::uint64_t*>(storage_.data());
        for (std::size_t i = 0; i < storage_.size() * sizeof(Line) / sizeof(std::uint64_t); ++i)
            if (const Allocation* allocation = find_allocation(words[i])) found.push_back(allocation->base);
        std::sort(found.begin(), found.end());
        found.erase(std::unique(found.begin(), found.end()), found.end());
        return found;
    }

private:
    struct alignas(64) Line {
        unsigned char bytes[64];
    };
    static std::size_t slot(unsigned bytes) { return (bytes + 63) / 64 * 64; }
    std::vector<Line> storage_;
    std::vector<void*> pointers_;
};

bool dimensions_are_valid(Index grid, Index block) {
    if (!grid.x || !grid.y || !grid.z || !block.x || !block.y || !block.z) return false;
    if (grid.x > 2147483647u || grid.y > 65535 || grid.z > 65535) return false;
    return block.x <= 1024 && block.y <= 1024 && block.z <= 64 && block.x * block.y * block.z <= 1024;
}

unsigned static_shared_bytes(const Function& function) {
    const auto& module = function.owner->module;
    return static_cast<unsigned>(std::min<std::ptrdiff_t>(module.shared_end - module.shared_begin, 48 * 1024));
}

bool is_function(const void* handle) { return state().functions.count(static_cast<const Function*>(handle)) != 0; }

}  // namespace
}  // namespace hwemu

using namespace hwemu;

HWEMU_EXPORT int cuModuleLoadData(void** out, const void* image) {
    Call call;
    if (int error = call.needs_context()) return error;
    if (int error = forbidden_by_capture()) return error;
    if (!out || !image) return invalid_value;
    auto module = std::make_unique<LoadedModule>();
    if (int error = load(path_in_image(image), *module)) return error;
    *out = state().modules.add(std::move(module));
    return success;
}

HWEMU_EXPORT int cuModuleUnload(void* handle) {
    Call call;
    if (!state().initialised) return not_initialized;
    if (!state().modules.has(handle)) return invalid_handle;
    finish_all();
    auto* module = static_cast<LoadedModule*>(handle);
    for (auto& [name, function] : module->functions) state().functions.erase(function.get());
    void* library = module->library;
    state().modules.remove(handle);
    dlclose(library);
    return success;
}

HWEMU_EXPORT int cuModuleGetFunction(void** out, void* handle, const char* name) {
    Call call;
    if (int error = call.needs_context()) return error;
    if (!out || !name) return invalid_value;
    if (!state().modules.has(handle)) return invalid_handle;
    auto* owner = static_cast<LoadedModule*>(handle);
    for (unsigned i = 0; i < owner->module.kernel_count; ++i) {
        const Kernel* kernel = &owner->module.kernels[i];
        if (std::strcmp(kernel->name, name) != 0) continue;
        auto& function = owner->functions[name];
        if (!function) function = std::make_unique<Function>(Function{owner, kernel});
        state().functions.insert(function.get());
        *out = function.get();
        return success;
    }
    return not_found;
}

HWEMU_EXPORT int cuFuncGetAttribute(int* value, int attribute, void* handle) {
    Call call;
    if (int error = call.needs_context()) return error;
    if (!value) return invalid_value;
    if (!is_function(handle)) return invalid_handle;
    const auto* function = static_cast<Function*>(handle);
    switch (attribute) {
        case 0: *value = static_cast<int>(function->kernel->max_threads); break;
        case 1: *value = static_cast<int>(static_shared_bytes(*function)); break;
        case 2: case 3: case 7: *value = 0; break;
        case 4: *value = 32; break;
        case 5: case 6: *value = 90; break;
        case 8: *value = static_cast<int>(function->max_dynamic_bytes); break;
        case 9: *value = -1; break;
        default: return invalid_value;
    }
    return success;
}

HWEMU_EXPORT int cuFuncSetAttribute(void* handle, int attribute, int value) {
    Call call;
    if (int error = call.needs_context()) return error;
    if (!is_function(handle)) return invalid_handle;
    if (attribute == 9) return value >= -1 && value <= 100 ? success : invalid_value;
    if (attribute != 8 || value < 0 || value > 232448) return invalid_value;
    static_cast<Function*>(handle)->max_dynamic_bytes = static_cast<unsigned>(value);
    return success;
}

HWEMU_EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* handle, int threads, std::size_t dynamic_bytes) {
    Call call;
    if (int error = call.needs_context()) return error;
    if (!is_function(handle)) return invalid_handle;
    const auto* function = static_cast<Function*>(handle);
    if (!blocks || threads <= 0) return invalid_value;
    *blocks = 0;
    if (threads > 1024 || dynamic_bytes > function->max_dynamic_bytes) return success;
    const std::size_t shared = dynamic_bytes + static_shared_bytes(*function) + 1024;
    *blocks = std::min({2048 / ((threads + 31) / 32 * 32), static_cast<int>(233472 / shared), 32});
    return success;
}

HWEMU_EXPORT int cuLaunchKernel(void* handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                                unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream_handle,
                                void** parameters, void** extra) {
    Call call;
    if (int error = call.needs_context()) return error;
    if (!is_function(handle)) return invalid_handle;
    Stream* stream = find_stream(stream_handle);
    if (!stream) return invalid_handle;
    const auto* function = static_cast<Function*>(handle);
    if (function->owner->device != stream->device) return invalid_handle;
    const Kernel* kernel = function->kernel;
    const Index grid{grid_x, grid_y, grid_z}, block{block_x, block_y, block_z};
    if (!dimensions_are_valid(grid, block) || shared_bytes > function->max_dynamic_bytes) return invalid_value;
    if (block_x * block_y * block_z > kernel->max_threads) return invalid_value;
    if (extra || (kernel->parameter_count && !parameters)) return invalid_value;
    for (unsigned i = 0; i < kernel->parameter_count; ++i)
        if (!parameters[i]) return invalid_value;
    auto arguments = std::make_shared<Arguments>(*kernel, parameters);
    const Module* module = &function->owner->module;
    const auto run = [=] { return run_grid({module, kernel, grid, block, shared_bytes, arguments->pointers()}); };
    std::vector<std::uint64_t> buffers;
    if (holds()) buffers = arguments->buffers();
    return submit(stream, {std::string("kernel ") + kernel->name, run, {}, std::move(buffers)});
}
