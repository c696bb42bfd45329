// The engine: runs the threads of a grid, block after block, on fibres.
// A fibre runs thread after thread and stays with one only when that thread has to wait, so a kernel without
// barriers runs as plain calls on a single stack. The threads of a block wait in two ways, for the block or
// for lanes of their warp; when nobody can run and somebody still waits, the kernel has diverged, and the
// launch fails with a text that names both places.
#include "engine.hpp"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "fibre.hpp"
#include "races.hpp"
#include "requests.hpp"

namespace hwemu {

namespace {

enum class Phase { fresh, ready, at_barrier, at_warp, done };

struct Site {
    const char* file;
    unsigned line;

    bool operator==(const Site& other) const {
        return line == other.line && (file == other.file || std::strcmp(file, other.file) == 0);
    }
    std::string text() const { return std::string(file) + ":" + std::to_string(line); }
};

// What lanes brought to a rendezvous, kept until each of them has come to its next or ended.
struct Meeting {
    Lanes lanes;
    unsigned holders;
};

struct Task {
    Thread thread;
    Phase state;
    Fibre* fibre;
    Site site;
    WarpOp op;
    unsigned mask;
    unsigned long long brought;
    Meeting* meeting;
    unsigned votes;
};

// Lanes of a warp, a bit each: those that wait for others of it, and those that have ended or never were.
struct Warp {
    unsigned waiting, gone;
};

double now_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double limit_seconds() {
    const char* text = std::getenv("HWEMU_LAUNCH_SECONDS");
    return text ? std::atof(text) : 60.0;
}

std::size_t stack_bytes() {
    const char* text = std::getenv("HWEMU_STACK_KIB");
    return (text ? std::strtoul(text, nullptr, 0) : 256) * 1024;
}

float float_of(unsigned bits) {
    float out;
    std::memcpy(&out, &bits, sizeof out);
    return out;
}

// Adds depth after depth. A GPU has an order of its own: its sums may differ in the last bits.
void multiply_matrices(const Lanes& lanes) {
    const Fragments* own[32];
    for (unsigned lane = 0; lane < 32; ++lane) own[lane] = reinterpret_cast<const Fragments*>(lanes.value[lane]);
    const bool is_bf16 = own[0]->is_bf16;
    float left[16][16], right[16][8];
    for (unsigned lane = 0; lane < 32; ++lane) {
        const unsigned row = lane / 4, at = lane % 4;
        for (unsigned i = 0; i < 6; ++i) {
            const unsigned word = i < 4 ? own[lane]->left[i] : own[lane]->right[i - 4];
            // The second half of the depths is in the last words of either.
            const unsigned depth = at + (i < 4 ? i / 2 : i - 4) * 4;
            const auto put = [&](unsigned deep, float value) {
                (i < 4 ? left[row + i % 2 * 8][deep] : right[deep][row]) = value;
            };
            if (is_bf16) {
                put(2 * depth, float_of(word << 16));
                put(2 * depth + 1, float_of(word & 0xffff0000u));
            } else {
                put(depth, float_of(word));
            }
        }
    }
    for (unsigned lane = 0; lane < 32; ++lane)
        for (unsigned i = 0; i < 4; ++i)
            for (unsigned k = 0; k < (is_bf16 ? 16 : 8); ++k)
                own[lane]->sums[i] += left[lane / 4 + i / 2 * 8][k] * right[k][lane % 4 * 2 + i % 2];
}

class Engine {
public:
    Engine();
    int run(const Launch& launch);

    Machine machine{};
    std::string failure;

private:
    void run_block(const Launch& launch);
    Fibre* next_fibre();
    void give_turn(Fibre* self);
    void read_schedule();
    void order_threads();
    Fibre* idle_fibre();
    void wait(Task* task, Phase state);
    void wake(Task* task);
    std::string who_waits() const;
    [[noreturn]] void fail(int code, const std::string& what);

    unsigned sync_block(int predicate, Site site);
    bool same_barrier() const;
    const Lanes* sync_warp(WarpOp op, unsigned mask, unsigned long long value, Site site);
    bool warp_complete(const Task* task);
    Meeting* new_meeting(unsigned mask);
    void leave_meeting(Task* task);
    Warp& warp_of(const Task* task) { return warps_[task->thread.linear / 32]; }
    void give_way();

    Task* current() { return reinterpret_cast<Task*>(machine.current); }

    const Launch* launch_ = nullptr;
    std::vector<Task> tasks_;
    std::vector<Warp> warps_;
    std::deque<Meeting> meetings_;
    std::vector<Meeting*> free_meetings_;
    std::vector<unsigned> order_;
    unsigned started_ = 0, finished_ = 0, at_barrier_ = 0, votes_ = 0;
    std::deque<Task*> ready_;
    std::vector<std::unique_ptr<Fibre>> fibres_;
    std::vector<Fibre*> idle_;
    int code_ = 0;
    double spinning_since_ = 0;
    enum { forward, reverse, shuffled } schedule_ = forward;
    std::mt19937 random_;
};

Engine& engine() {
    // Never destroyed: kernels may still be known to other threads when the process ends.
    static Engine* engine = new Engine;
    return *engine;
}

Engine::Engine() {
    machine.sync_block = [](int predicate, const char* file, unsigned line) {
        return engine().sync_block(predicate, {file, line});
    };
    machine.sync_warp = [](WarpOp op, unsigned mask, unsigned long long value, const char* file, unsigned line) {
        return engine().sync_warp(op, mask, value, {file, line});
    };
    machine.multiply = [](const Fragments* own, const char* file, unsigned line) {
        engine().sync_warp(WarpOp::multiply, ~0u, reinterpret_cast<std::uintptr_t>(own), {file, line});
    };
    machine.count_load = [](const void* address, unsigned bytes) {
        record_load(engine().machine.current, address, bytes);
    };
    machine.access = access;
    machine.give_way = [] { engine().give_way(); };
    machine.fail = [](int code, const char* what, const char* file, unsigned line) {
        engine().fail(code, what + (" at " + Site{file, line}.text()));
    };
}

int Engine::run(const Launch& launch) {
    launch_ = &launch;
    code_ = 0;
    spinning_since_ = 0;
    read_schedule();
    machine.block_dim = launch.block;
    machine.grid_dim = launch.grid;
    void* dynamic = nullptr;
    // The exact size, so that AddressSanitizer's red zone begins right behind it.
    if (launch.dynamic_bytes && posix_memalign(&dynamic, 128, launch.dynamic_bytes)) return 2;
    machine.dynamic_shared = dynamic;
    tasks_.resize(launch.block.x * launch.block.y * launch.block.z);
    for (unsigned z = 0; z < launch.grid.z && !code_; ++z)
        for (unsigned y = 0; y < launch.grid.y && !code_; ++y)
            for (unsigned x = 0; x < launch.grid.x && !code_; ++x) {
                machine.block_index = {x, y, z};
                run_block(launch);
            }
    std::free(dynamic);
    machine.dynamic_shared = nullptr;
    return code_;
}

void Engine::run_block(const Launch& launch) {
    fill_unchecked(launch.module->shared_begin,
                   static_cast<std::size_t>(launch.module->shared_end - launch.module->shared_begin));
    if (launch.dynamic_bytes) fill_unchecked(machine.dynamic_shared, launch.dynamic_bytes);
    for (unsigned i = 0; i < tasks_.size(); ++i) {
        Task& task = tasks_[i];
        const Index index = {i % launch.block.x, i / launch.block.x % launch.block.y, i / launch.block.x / launch.block.y};
        task.thread = {index, i, i % 32, 0, 0};
        task.state = Phase::fresh;
        task.meeting = nullptr;
    }
    warps_.assign((tasks_.size() + 31) / 32, Warp{0, 0});
    if (tasks_.size() % 32) warps_.back().gone = ~0u << tasks_.size() % 32;
    order_threads();
    started_ = finished_ = at_barrier_ = votes_ = 0;
    ready_.clear();
    while (finished_ < tasks_.size() && !code_) {
        if (Fibre* next = next_fibre()) {
            next->enter();
        } else {
            code_ = 719;
            failure = who_waits();
        }
    }
    if (code_) {
        idle_.clear();
        for (auto& fibre : fibres_) {
            fibre->rewind();
            idle_.push_back(fibre.get());
        }
        free_meetings_.clear();
        meetings_.clear();
    }
    end_block_of_loads(code_ != 0);
}

// Whose turn it is: a fibre for threads that have not begun, or one whose thread may go on. Null when nobody can run.
Fibre* Engine::next_fibre() {
    if (started_ < tasks_.size()) return idle_fibre();
    if (ready_.empty()) return nullptr;
    const std::size_t pick = schedule_ == forward ? 0 : schedule_ == reverse ? ready_.size() - 1 : random_() % ready_.size();
    Task* task = ready_[pick];
    ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(pick));
    machine.current = &task->thread;
    return task->fibre;
}

// From one fibre straight to the next: by way of the scheduler it would be two switches.
void Engine::give_turn(Fibre* self) {
    Fibre* next = next_fibre();
    if (next == nullptr)
        self->leave();
    else if (next != self)
        self->go_to(*next);
}

// HWEMU_SCHEDULE runs threads in another order, which brings missing barriers to light.
void Engine::read_schedule() {
    const char* text = std::getenv("HWEMU_SCHEDULE");
    schedule_ = forward;
    if (text && std::strcmp(text, "reverse") == 0) schedule_ = reverse;
    if (text && *text >= '0' && *text <= '9') {
        schedule_ = shuffled;
        random_.seed(static_cast<unsigned>(std::strtoul(text, nullptr, 10)));
    }
}

void Engine::order_threads() {
    const auto count = static_cast<unsigned>(tasks_.size());
    if (order_.size() == count && schedule_ == forward && order_[0] == 0 && order_[count - 1] == count - 1) return;
    order_.resize(count);
    for (unsigned i = 0; i < count; ++i) order_[i] = schedule_ == reverse ? count - 1 - i : i;
    if (schedule_ == shuffled)
        for (unsigned i = count; i > 1; --i) std::swap(order_[i - 1], order_[random_() % i]);
}

Fibre* Engine::idle_fibre() {
    if (idle_.empty()) {
        const Fibre::Body body = [](Fibre* self) {
            Engine& e = engine();
            while (e.started_ < e.tasks_.size()) {
                Task* task = &e.tasks_[e.order_[e.started_++]];
                task->state = Phase::ready;
                task->fibre = self;
                e.machine.current = &task->thread;
                e.launch_->kernel->run_thread(e.launch_->arguments);
                task->state = Phase::done;
                e.leave_meeting(task);
                e.warp_of(task).gone |= 1u << task->thread.lane;
                ++e.finished_;
                e.spinning_since_ = 0;
            }
            e.idle_.push_back(self);
            e.give_turn(self);
        };
        fibres_.push_back(std::make_unique<Fibre>(body, static_cast<unsigned>(fibres_.size()), stack_bytes()));
        idle_.push_back(fibres_.back().get());
    }
    Fibre* fibre = idle_.back();
    idle_.pop_back();
    return fibre;
}

void Engine::wait(Task* task, Phase state) {
    spinning_since_ = 0;
    task->state = state;
    give_turn(task->fibre);
}

void Engine::wake(Task* task) {
    task->state = Phase::ready;
    ready_.push_back(task);
}

unsigned Engine::sync_block(int predicate, Site site) {
    Task* self = current();
    self->site = site;
    votes_ += predicate != 0;
    if (++at_barrier_ < tasks_.size()) {
        wait(self, Phase::at_barrier);
        return self->votes;
    }
    self->state = Phase::at_barrier;
    if (!same_barrier()) fail(719, who_waits());
    for (Task& task : tasks_) {
        task.votes = votes_;
        if (&task != self) wake(&task);
    }
    self->state = Phase::ready;
    at_barrier_ = votes_ = 0;
    return self->votes;
}

bool Engine::same_barrier() const {
    for (const Task& task : tasks_)
        if (!(task.site == tasks_[0].site)) return false;
    return true;
}

const Lanes* Engine::sync_warp(WarpOp op, unsigned mask, unsigned long long value, Site site) {
    Task* self = current();
    leave_meeting(self);
    self->site = site;
    self->op = op;
    self->mask = mask;
    self->brought = value;
    if (!(mask >> self->thread.lane & 1))
        fail(719, "a lane is not in its own mask at " + site.text());
    self->state = Phase::at_warp;
    warp_of(self).waiting |= 1u << self->thread.lane;
    if (!warp_complete(self)) {
        wait(self, Phase::at_warp);
        return &self->meeting->lanes;
    }
    warp_of(self).waiting &= ~mask;
    Task* warp = self - self->thread.lane;
    Meeting* meeting = new_meeting(mask);
    for (unsigned left = mask; left; left &= left - 1) {
        const unsigned lane = static_cast<unsigned>(__builtin_ctz(left));
        meeting->lanes.value[lane] = warp[lane].brought;
        warp[lane].meeting = meeting;
        if (&warp[lane] != self) wake(&warp[lane]);
    }
    // The lane that came last does it for all: the others wait, so what they have stays where it is.
    if (op == WarpOp::multiply) multiply_matrices(meeting->lanes);
    self->state = Phase::ready;
    return &meeting->lanes;
}

// Whether every lane that `task` names waits for the same lanes in the same place. CUDA lets lanes meet in
// different __syncwarp calls, and in no other.
bool Engine::warp_complete(const Task* task) {
    const Warp& here = warp_of(task);
    if (const unsigned gone = here.gone & task->mask) {
        const auto lane = static_cast<unsigned>(__builtin_ctz(gone));
        const bool existed = task->thread.linear - task->thread.lane + lane < tasks_.size();
        fail(719, "lane " + std::to_string(lane) + " of the mask " + (existed ? "has exited" : "does not exist") + " at " +
                      task->site.text());
    }
    if ((here.waiting & task->mask) != task->mask) return false;
    const Task* warp = task - task->thread.lane;
    for (unsigned left = task->mask; left; left &= left - 1) {
        const Task& other = warp[__builtin_ctz(left)];
        if (other.mask != task->mask || other.op != task->op) return false;
        if (task->op != WarpOp::sync && !(other.site == task->site)) return false;
    }
    return true;
}

Meeting* Engine::new_meeting(unsigned mask) {
    if (free_meetings_.empty()) free_meetings_.push_back(&meetings_.emplace_back());
    Meeting* meeting = free_meetings_.back();
    free_meetings_.pop_back();
    meeting->holders = static_cast<unsigned>(__builtin_popcount(mask));
    return meeting;
}

void Engine::leave_meeting(Task* task) {
    if (task->meeting && --task->meeting->holders == 0) free_meetings_.push_back(task->meeting);
    task->meeting = nullptr;
}

void Engine::give_way() {
    Task* self = current();
    self->thread.spins = 0;
    if (spinning_since_ == 0) spinning_since_ = now_seconds();
    if (now_seconds() - spinning_since_ > limit_seconds()) fail(719, "threads spin without progress");
    // Behind everybody else, whichever end the schedule takes from.
    if (schedule_ == reverse)
        ready_.push_front(self);
    else
        ready_.push_back(self);
    give_turn(self->fibre);
}

// The report of a divergence: who waits where.
std::string Engine::who_waits() const {
    std::map<std::string, std::pair<unsigned, unsigned>> places;  // count and first thread
    for (const Task& task : tasks_) {
        std::string place = "exited";
        if (task.state == Phase::at_barrier) place = "wait for the block at " + task.site.text();
        if (task.state == Phase::at_warp) {
            char mask[16];
            std::snprintf(mask, sizeof mask, "%08x", task.mask);
            place = "wait for lanes " + std::string(mask) + " at " + task.site.text();
        }
        auto [entry, is_new] = places.try_emplace(place, 0u, task.thread.linear);
        ++entry->second.first;
    }
    std::string text = "divergence:";
    for (const auto& [place, who] : places)
        text += " " + std::to_string(who.first) + " threads (first " + std::to_string(who.second) + ") " + place + ";";
    text.pop_back();
    return text;
}

// Leaves the fibre for good; run_block rewinds it.
void Engine::fail(int code, const std::string& what) {
    const Index b = machine.block_index, t = machine.current->index;
    char where[128];
    std::snprintf(where, sizeof where, "block (%u,%u,%u) thread (%u,%u,%u): ", b.x, b.y, b.z, t.x, t.y, t.z);
    code_ = code;
    failure = where + what;
    current()->fibre->leave();
    std::abort();
}

}  // namespace

unsigned char fill_byte() {
    static const unsigned char byte = [] {
        const char* text = std::getenv("HWEMU_FILL");
        return static_cast<unsigned char>(text ? std::strtoul(text, nullptr, 0) : 0xCB);
    }();
    return byte;
}

void fill_unchecked(void* begin, std::size_t bytes) {
    asm volatile("rep stosb" : "+D"(begin), "+c"(bytes) : "a"(fill_byte()) : "memory");
}

Machine* machine() { return &engine().machine; }

int run_grid(const Launch& launch) {
    const int code = engine().run(launch);
    if (code) {
        engine().failure = std::string("kernel ") + launch.kernel->name + ": " + engine().failure;
        std::fprintf(stderr, "hwemu: %s\n", engine().failure.c_str());
    }
    return code;
}

const std::string& last_failure() { return engine().failure; }

}  // namespace hwemu
