// Counting of memory requests: how many distinct cache lines each warp touches with each of its loads.
// A GPU merges the accesses of one warp instruction into lines. Threads here do not run in lock step, so a
// load is known by its thread's running number: the n-th counted loads of a warp's threads belong together.
// That is exact as long as the threads of a warp make the same counted loads, an inactive thread aside.
#include "requests.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <tuple>
#include <vector>

#include "abi.hpp"

namespace hwemu {

namespace {

struct Record {
    std::uint32_t warp, number;
    std::uint64_t first, last;  // first and last byte
};

struct Counter {
    unsigned line_bytes = setting("HWEMU_LINE_BYTES", 128);
    unsigned warp_threads = setting("HWEMU_COUNT_WARP", 32);
    unsigned long long lines = 0, sectors = 0;
    std::vector<Record> block;

    static unsigned setting(const char* name, unsigned otherwise) {
        const char* text = std::getenv(name);
        const unsigned value = text ? static_cast<unsigned>(std::strtoul(text, nullptr, 0)) : 0;
        return value ? value : otherwise;
    }
};

Counter& counter() {
    static Counter* counter = new Counter;
    return *counter;
}

// Distinct pieces of `bytes` touched by one warp's load.
unsigned long long distinct(const Record* begin, const Record* end, unsigned bytes, std::vector<std::uint64_t>& scratch) {
    scratch.clear();
    for (const Record* r = begin; r != end; ++r)
        for (std::uint64_t piece = r->first / bytes; piece <= r->last / bytes; ++piece) scratch.push_back(piece);
    std::sort(scratch.begin(), scratch.end());
    return static_cast<unsigned long long>(std::unique(scratch.begin(), scratch.end()) - scratch.begin());
}

}  // namespace

void record_load(Thread* thread, const void* address, unsigned bytes) {
    const unsigned number = thread->loads++;
    if (!bytes) return;
    const auto first = reinterpret_cast<std::uint64_t>(address);
    counter().block.push_back({thread->linear / counter().warp_threads, number, first, first + bytes - 1});
}

void end_block_of_loads(bool failed) {
    Counter& c = counter();
    if (failed) c.block.clear();
    if (c.block.empty()) return;
    std::sort(c.block.begin(), c.block.end(),
              [](const Record& a, const Record& b) { return std::tie(a.warp, a.number) < std::tie(b.warp, b.number); });
    std::vector<std::uint64_t> scratch;
    const Record* const end = c.block.data() + c.block.size();
    for (const Record* begin = c.block.data(); begin != end;) {
        const Record* next = begin;
        while (next != end && next->warp == begin->warp && next->number == begin->number) ++next;
        c.lines += distinct(begin, next, c.line_bytes, scratch);
        c.sectors += distinct(begin, next, 32, scratch);
        begin = next;
    }
    c.block.clear();
}

}  // namespace hwemu

// Starts counting anew. Zero keeps a size as it is. Not to be called while a kernel runs.
HWEMU_EXPORT void hwemu_requests_reset(unsigned line_bytes, unsigned warp_threads) {
    hwemu::Counter& c = hwemu::counter();
    if (line_bytes) c.line_bytes = line_bytes;
    if (warp_threads) c.warp_threads = warp_threads;
    c.lines = c.sectors = 0;
}

HWEMU_EXPORT unsigned long long hwemu_requests(void) { return hwemu::counter().lines; }

// Bytes that cross the bus when memory is read in sectors of 32 bytes.
HWEMU_EXPORT unsigned long long hwemu_sector_bytes(void) { return hwemu::counter().sectors * 32; }
