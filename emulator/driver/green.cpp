// Green contexts: shares of a device's multiprocessors. Only the bookkeeping is emulated.
#include <algorithm>

#include "state.hpp"

using namespace hwemu;

namespace {

// Hopper hands multiprocessors out in groups of eight.
constexpr unsigned group_sms = 8;
constexpr int sm_resource = 1;

int unavailable() {
    if (setting("HWEMU_NO_GREEN", 0)) return not_supported;
    return state().initialised ? success : not_initialized;
}

bool is_device(int number) { return number >= 0 && number < static_cast<int>(state().devices.size()); }

DevResource multiprocessors(unsigned count) {
    DevResource resource{};
    resource.type = sm_resource;
    resource.sm_count = count;
    return resource;
}

}  // namespace

HWEMU_EXPORT int cuDeviceGetDevResource(int device, DevResource* out, int type) {
    Call call;
    if (int error = unavailable()) return error;
    if (!is_device(device)) return invalid_device;
    if (!out) return invalid_value;
    if (type != sm_resource) return invalid_resource_type;
    *out = multiprocessors(sm_count());
    return success;
}

HWEMU_EXPORT int cuDevSmResourceSplitByCount(DevResource* result, unsigned* groups, const DevResource* input,
                                             DevResource* remaining, unsigned, unsigned min_count) {
    Call call;
    if (int error = unavailable()) return error;
    if (!groups || !input) return invalid_value;
    if (input->type != sm_resource) return invalid_resource_type;
    if (min_count > input->sm_count) return invalid_resource_configuration;
    // The last group of a device need not be full: all of its multiprocessors may be asked for.
    const unsigned rounded = std::max(group_sms, (min_count + group_sms - 1) / group_sms * group_sms);
    const unsigned each = std::min(rounded, input->sm_count), possible = input->sm_count / each;
    if (!result) {
        *groups = possible;
        return success;
    }
    *groups = std::min(*groups, possible);
    for (unsigned i = 0; i < *groups; ++i) result[i] = multiprocessors(each);
    const unsigned rest = input->sm_count - *groups * each;
    if (remaining) *remaining = rest ? multiprocessors(rest) : DevResource{};
    return success;
}

HWEMU_EXPORT int cuDevResourceGenerateDesc(void** out, DevResource* resources, unsigned count) {
    Call call;
    if (int error = unavailable()) return error;
    if (!out || !resources || !count) return invalid_value;
    for (unsigned i = 0; i < count; ++i)
        if (resources[i].type != sm_resource || !resources[i].sm_count) return invalid_resource_type;
    *out = state().descriptions.add(std::make_unique<DevResource>(resources[0]));
    return success;
}

HWEMU_EXPORT int cuGreenCtxCreate(void** out, void* description, int device, unsigned flags) {
    Call call;
    if (int error = unavailable()) return error;
    if (!is_device(device)) return invalid_device;
    if (!out || flags != 1 || !state().descriptions.has(description)) return invalid_value;
    auto green = std::make_unique<GreenContext>();
    green->device = state().devices[static_cast<std::size_t>(device)].get();
    *out = state().green.add(std::move(green));
    return success;
}

HWEMU_EXPORT int cuGreenCtxDestroy(void* green) {
    Call call;
    if (int error = unavailable()) return error;
    return state().green.remove(green) ? success : invalid_context;
}
