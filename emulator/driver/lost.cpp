// Waits that are not made, another order, and streams by when they were made: what tests ask of the emulator in mid-process, and no
// driver has. See lost.hpp.
#include "lost.hpp"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "state.hpp"

namespace hwemu {

namespace {

using Pair = std::pair<const Stream*, const Stream*>;

std::set<Pair>& lost() {
    static auto* lost = new std::set<Pair>;
    return *lost;
}

// Negative as long as the environment says it.
int counted = -1;

}  // namespace

bool is_lost(const Stream* waiter, const Stream* awaited) { return !lost().empty() && awaited && lost().count({waiter, awaited}) != 0; }

void forget_lost(const Stream* stream) {
    for (auto pair = lost().begin(); pair != lost().end();)
        pair = pair->first == stream || pair->second == stream ? lost().erase(pair) : std::next(pair);
}

bool counts_races() { return counted < 0 ? setting("HWEMU_COUNT_RACES", 0) != 0 : counted != 0; }

}  // namespace hwemu

using namespace hwemu;

// From now on a stream does not wait for another one's events, or the host for one that nobody names. The default stream is 1. Without
// a stream to be waited for, everything is as it should be again.
HWEMU_EXPORT int hwemu_lose(void* waiter, void* awaited) {
    Call call;
    const auto is_default = [](const void* handle) { return handle && reinterpret_cast<std::uintptr_t>(handle) <= 2; };
    if (is_default(waiter) || is_default(awaited))
        if (int error = call.needs_context()) return error;
    if (!awaited) {
        lost().clear();
        return success;
    }
    const Stream* by = waiter ? find_stream(waiter) : nullptr;
    const Stream* of = find_stream(awaited);
    if ((waiter && !by) || !of) return invalid_handle;
    lost().insert({by, of});
    return success;
}

// Of the streams that are alive, the one that was made last; or so many before that. Null when there are fewer.
HWEMU_EXPORT void* hwemu_newest_stream(unsigned before) {
    Call call;
    std::vector<Stream*> alive;
    for (const auto& [handle, stream] : state().streams.all()) alive.push_back(handle);
    std::sort(alive.begin(), alive.end(), [](const Stream* one, const Stream* other) { return one->lane > other->lane; });
    return before < alive.size() ? alive[before] : nullptr;
}

// All work is done, and what is held from now on is taken in an order of this seed. Not where work is not held.
HWEMU_EXPORT int hwemu_order(unsigned seed) {
    Call call;
    return holds() ? reorder(seed) : not_supported;
}

// Whether races are told and counted, or end the process.
HWEMU_EXPORT void hwemu_count_races(int is_counted) {
    Call call;
    counted = is_counted != 0;
}
