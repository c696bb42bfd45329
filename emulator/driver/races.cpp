// The happens-before checker. See races.hpp.
#include "races.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <set>
#include <vector>

#include "lost.hpp"
#include "state.hpp"

namespace hwemu {

namespace {

constexpr std::size_t block_bytes = 512;  // what allocations are aligned to
constexpr std::size_t granule = 4, page_bytes = 4096, page_granules = page_bytes / granule;
// Of host memory that is larger, nobody notices that the host writes it.
constexpr std::size_t most_snapshot_bytes = 64 << 20;
// Freed memory that is kept.
constexpr std::size_t most_buried_bytes = 64 << 20;
constexpr unsigned atomic_bit = 1u << 31;

struct Known {
    std::string name;
    unsigned lane, number;
    unsigned ran = 0;  // in the order in which operations ran
};

// By number; the first is nobody.
std::vector<Known>& known() {
    static auto* known = new std::vector<Known>(1);
    return *known;
}

unsigned run_count = 0;

// Sets of operations that read the same bytes at the same time, numbered; 0 is the empty one.
class Readers {
public:
    const std::vector<unsigned>& of(unsigned set) const { return sets_[set]; }

    // The set with one more. Those that happen before it need not be remembered.
    unsigned with(unsigned set, unsigned id, const Clock& clock) {
        if (!sets_[set].empty() && sets_[set].back() == id) return set;
        // Neighbours were mostly read by the same ones before.
        if (last_.set == set && last_.id == id) return last_.found;
        auto [found, is_new] = with_.try_emplace({set, id}, 0);
        if (!is_new) return remember(set, id, found->second);
        std::vector<unsigned> members;
        for (unsigned other : sets_[set]) {
            const Known& one = known()[other];
            if (one.lane >= clock.size() || clock[one.lane] < one.number) members.push_back(other);
        }
        members.push_back(id);
        auto [same, is_first] = numbers_.try_emplace(members, sets_.size());
        if (is_first) sets_.push_back(members);
        found->second = static_cast<unsigned>(same->second);
        return remember(set, id, found->second);
    }

private:
    unsigned remember(unsigned set, unsigned id, unsigned found) {
        last_ = {set, id, found};
        return found;
    }

    struct {
        unsigned set = ~0u, id = 0, found = 0;
    } last_;
    std::vector<std::vector<unsigned>> sets_{1};
    std::map<std::vector<unsigned>, std::size_t> numbers_;
    std::map<std::pair<unsigned, unsigned>, unsigned> with_;
};

Readers& readers() {
    static auto* readers = new Readers;
    return *readers;
}

struct Cell {
    unsigned writer = 0;   // an operation, with a bit when it was an atomic
    unsigned readers = 0;  // a set
};

struct Page {
    Cell all;
    std::unique_ptr<Cell[]> each;  // where its granules differ
};

struct Buried {
    std::uint64_t base;
    std::size_t bytes;
    void* memory;
    unsigned freed_by;
    std::string what;
};

struct Checker {
    const Operation* current = nullptr;
    // What is known of addresses: the allocation that begins in or reaches into 512 bytes, of which there is one at most.
    struct Entry {
        std::uint64_t block = ~0ull;
        const Allocation* allocation = nullptr;
    };
    Entry entries[1024];
    std::deque<Buried> buried;
    std::size_t buried_bytes = 0;
    unsigned long long races = 0;
    std::set<std::pair<unsigned, unsigned>> pairs;  // that were reported
    std::string text;
};

Checker& checker() {
    static auto* checker = new Checker;
    return *checker;
}

bool is_before(unsigned id, const Clock& clock) {
    const Known& one = known()[id];
    return one.lane < clock.size() && clock[one.lane] >= one.number;
}

std::string name_of(unsigned id) {
    if (!id) return "the host";
    const Known& one = known()[id];
    return one.name + " (operation " + std::to_string(id) + " of lane " + std::to_string(one.lane) + ")";
}

const char* kind_of(const Allocation& allocation) {
    switch (allocation.kind) {
        case Memory::host: return "pinned host memory";
        case Memory::registered: return "registered host memory";
        case Memory::managed: return "managed memory";
        default: return "device memory";
    }
}

std::string place_of(const Allocation& allocation, std::uint64_t address) {
    return "byte " + std::to_string(address - allocation.base) + " of " + std::to_string(allocation.bytes) + " bytes of " +
           kind_of(allocation);
}

// One report ends the process, unless somebody counts them.
void report(const std::string& text) {
    checker().text = "race: " + text;
    ++checker().races;
    std::fprintf(stderr, "hwemu: race: %s\n", text.c_str());
    if (counts_races()) return;
    std::abort();
}

void report_pair(const char* verb, const Allocation& allocation, std::uint64_t address, unsigned other, const char* other_verb) {
    if (!checker().pairs.insert({checker().current->id, other}).second) return;
    report(name_of(checker().current->id) + " " + verb + " " + place_of(allocation, address) + ", which " + name_of(other) + " " +
           other_verb + "; nothing orders the two");
}

// Notes an access to a cell. True when it is a race, which is reported once for a range.
bool note(Cell& cell, Access kind, const Allocation& allocation, std::uint64_t address) {
    const Operation& current = *checker().current;
    const unsigned writer = cell.writer & ~atomic_bit;
    const bool both_atomic = kind == Access::atomic && cell.writer & atomic_bit;
    if (writer == current.id && kind == Access::read) return false;
    if (writer && writer != current.id && !both_atomic && !is_before(writer, current.clock)) {
        report_pair(kind == Access::read ? "reads" : "writes", allocation, address, writer, "writes");
        return true;
    }
    if (kind == Access::read) {
        cell.readers = readers().with(cell.readers, current.id, current.clock);
        return false;
    }
    for (unsigned reader : readers().of(cell.readers))
        if (reader != current.id && !is_before(reader, current.clock)) {
            report_pair("writes", allocation, address, reader, "reads");
            return true;
        }
    cell.writer = current.id | (kind == Access::atomic ? atomic_bit : 0);
    cell.readers = 0;
    return false;
}

// Whether the host changed what the operation reads after it was submitted: neither a device nor the operation itself did.
void check_unchanged(const Cell& cell, const Allocation& allocation, std::uint64_t address, std::size_t bytes) {
    const unsigned writer = cell.writer & ~atomic_bit;
    for (const Snapshot& snapshot : checker().current->snapshots) {
        if (address < snapshot.begin || address + bytes > snapshot.begin + snapshot.bytes.size()) continue;
        if (!std::memcmp(&snapshot.bytes[address - snapshot.begin], reinterpret_cast<const void*>(address), bytes)) return;
        if (writer && (writer == checker().current->id || known()[writer].ran > snapshot.after)) return;
        if (!checker().pairs.insert({checker().current->id, 0}).second) return;
        report("the host writes " + place_of(allocation, address) + " behind the call of " + name_of(checker().current->id) +
               ", which reads it");
        return;
    }
}

// Whether none of that has changed: then nobody need look at its parts.
bool is_unchanged(std::uint64_t address, std::size_t bytes) {
    for (const Snapshot& snapshot : checker().current->snapshots)
        if (address >= snapshot.begin && address + bytes <= snapshot.begin + snapshot.bytes.size())
            return !std::memcmp(&snapshot.bytes[address - snapshot.begin], reinterpret_cast<const void*>(address), bytes);
    return false;
}

}  // namespace

class Shadow {
public:
    explicit Shadow(const Allocation& allocation)
        : begin_(allocation.base / granule * granule),
          pages_((allocation.base + allocation.bytes - begin_ + page_bytes - 1) / page_bytes) {}

    // All cells of a range until one is a race. Whole pages are one cell as long as nobody looks at their parts.
    bool note_range(const Allocation& allocation, std::uint64_t begin, std::size_t bytes, Access kind) {
        const std::uint64_t end = begin + bytes;
        for (std::uint64_t at = begin / granule * granule; at < end;) {
            Page& page = pages_[(at - begin_) / page_bytes];
            const std::uint64_t page_end = at + page_bytes - (at - begin_) % page_bytes;
            if ((at - begin_) % page_bytes == 0 && page_end <= end && !page.each) {
                if (note(page.all, kind, allocation, at)) return true;
                at = page_end;
                continue;
            }
            split(page);
            for (; at < page_end && at < end; at += granule)
                if (note(page.each[(at - begin_) % page_bytes / granule], kind, allocation, at)) return true;
        }
        return false;
    }

    Cell& at(std::uint64_t address) {
        Page& page = pages_[(address - begin_) / page_bytes];
        split(page);
        return page.each[(address - begin_) % page_bytes / granule];
    }

    // The first operation that the clock does not count; 0 if there is none.
    unsigned other_than(const Clock& clock) const {
        const auto of = [&](const Cell& cell) -> unsigned {
            const unsigned writer = cell.writer & ~atomic_bit;
            if (writer && !is_before(writer, clock)) return writer;
            for (unsigned reader : readers().of(cell.readers))
                if (!is_before(reader, clock)) return reader;
            return 0;
        };
        for (const Page& page : pages_) {
            if (!page.each)
                if (unsigned id = of(page.all)) return id;
            for (std::size_t i = 0; page.each && i < page_granules; ++i)
                if (unsigned id = of(page.each[i])) return id;
        }
        return 0;
    }

private:
    static void split(Page& page) {
        if (page.each) return;
        page.each = std::make_unique<Cell[]>(page_granules);
        std::fill_n(page.each.get(), page_granules, page.all);
    }

    std::uint64_t begin_;
    std::vector<Page> pages_;
};

namespace {

Shadow& shadow_of(const Allocation& allocation) {
    if (!allocation.shadow) allocation.shadow = std::make_shared<Shadow>(allocation);
    return *allocation.shadow;
}

const Allocation* look_up(std::uint64_t address) {
    Checker& c = checker();
    if (const Allocation* found = find_allocation(address)) return found;
    for (const Buried& one : c.buried) {
        if (address - one.base >= one.bytes || !c.pairs.insert({c.current->id, one.freed_by}).second) continue;
        report(name_of(c.current->id) + " uses byte " + std::to_string(address - one.base) + " of " + one.what + ", which " +
               name_of(one.freed_by) + " gives back; nothing orders the two");
        break;
    }
    // The allocation that another address of the same 512 bytes is in.
    auto& all = state().allocations;
    const auto next = all.lower_bound(address);
    return next != all.end() && next->second.base / block_bytes == address / block_bytes ? &next->second : nullptr;
}

// The allocation of an address, quickly: a kernel asks for every access, of its own stack too.
const Allocation* allocation_of(std::uint64_t address) {
    auto& entry = checker().entries[address / block_bytes % std::size(checker().entries)];
    if (entry.block != address / block_bytes) entry = {address / block_bytes, look_up(address)};
    return entry.allocation && address - entry.allocation->base < entry.allocation->bytes ? entry.allocation : nullptr;
}

void forget_entries() {
    for (auto& entry : checker().entries) entry = {};
}

bool is_host(const Allocation& allocation) { return allocation.kind == Memory::host || allocation.kind == Memory::registered; }

}  // namespace

unsigned register_operation(const std::string& name, unsigned lane, unsigned number) {
    known().push_back({name, lane, number});
    return static_cast<unsigned>(known().size() - 1);
}

void enter_operation(const Operation* operation) {
    Checker& c = checker();
    if (operation)
        known()[operation->id].ran = ++run_count;
    c.current = operation;
    forget_entries();
}

unsigned operations_run() { return run_count; }

void access_range(const Range& range) {
    const Allocation* allocation = allocation_of(range.begin);
    if (!allocation || !range.bytes) return;
    const std::size_t bytes = std::min<std::size_t>(range.bytes, allocation->bytes - (range.begin - allocation->base));
    Shadow& shadow = shadow_of(*allocation);
    if (!range.is_written && is_host(*allocation)) {
        const unsigned long long before = checker().races;
        for (std::size_t page = 0; page < bytes; page += page_bytes) {
            const std::size_t end = std::min(bytes, page + page_bytes);
            if (is_unchanged(range.begin + page, end - page)) continue;
            for (std::size_t at = page; at < end && checker().races == before; at += granule)
                check_unchanged(shadow.at(range.begin + at), *allocation, range.begin + at, std::min(granule, bytes - at));
        }
    }
    shadow.note_range(*allocation, range.begin, bytes, range.is_written ? Access::write : Access::read);
}

void access(const void* pointer, unsigned bytes, unsigned kind) {
    const auto address = reinterpret_cast<std::uint64_t>(pointer);
    if (!checker().current) return;
    const Allocation* allocation = allocation_of(address);
    if (!allocation) return;
    const std::size_t inside = std::min<std::size_t>(bytes, allocation->bytes - (address - allocation->base));
    Shadow& shadow = shadow_of(*allocation);
    const auto how = static_cast<Access>(kind);
    if (how == Access::read && is_host(*allocation)) check_unchanged(shadow.at(address), *allocation, address, inside);
    shadow.note_range(*allocation, address, inside, how);
}

void take_snapshots(Operation& operation) {
    const auto take = [&](const Allocation* allocation, std::uint64_t begin, std::size_t bytes) {
        if (!allocation || !is_host(*allocation) || bytes > most_snapshot_bytes) return;
        const auto* first = reinterpret_cast<const unsigned char*>(begin);
        operation.snapshots.push_back({begin, {first, first + bytes}, run_count});
    };
    for (const Range& range : operation.work.ranges)
        if (!range.is_written) take(find_allocation(range.begin), range.begin, range.bytes);
    for (std::uint64_t base : operation.work.buffers)
        if (const Allocation* allocation = find_allocation(base)) take(allocation, allocation->base, allocation->bytes);
}

void check_given_back(const Allocation& allocation, const char* call) {
    if (!holds()) return;
    const std::string what = std::to_string(allocation.bytes) + " bytes of " + kind_of(allocation);
    if (unsigned id = allocation.shadow ? allocation.shadow->other_than(host_clock()) : 0)
        report(std::string(call) + " gives back " + what + ", for which " + name_of(id) + " was not waited for");
    // Only what is held and really uses it is told, so that runs now.
    checker().buried.push_front({allocation.base, allocation.bytes, nullptr, 0, what + " behind " + call});
    run_users(allocation.base, allocation.bytes);
    checker().buried.pop_front();
}

void bury(const Allocation& allocation, void* memory) {
    Checker& c = checker();
    forget_entries();
    fill_unchecked(memory, allocation.bytes);
    const std::string what = std::to_string(allocation.bytes) + " bytes of " + kind_of(allocation);
    c.buried.push_back({allocation.base, allocation.bytes, memory, c.current ? c.current->id : 0, what});
    c.buried_bytes += allocation.bytes;
    while (c.buried_bytes > most_buried_bytes) {
        c.buried_bytes -= c.buried.front().bytes;
        std::free(c.buried.front().memory);
        c.buried.pop_front();
    }
}

}  // namespace hwemu

using namespace hwemu;

HWEMU_EXPORT unsigned long long hwemu_races() {
    const std::lock_guard<std::mutex> held(state().lock);
    return checker().races;
}

// The last one, until the next.
HWEMU_EXPORT const char* hwemu_last_race() {
    const std::lock_guard<std::mutex> held(state().lock);
    return checker().text.c_str();
}
