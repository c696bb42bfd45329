// Fibres: stacks that take turns on one host thread.
// ucontext makes a system call for every switch, so the switch is a dozen instructions of our own.
// AddressSanitizer is told about every switch through weak symbols: one build serves with and without it.
#pragma once

#include <cstddef>

namespace hwemu {

class Fibre {
public:
    using Body = void (*)(Fibre*);

    // Runs `body` on a stack of its own; `number` staggers stacks so that they do not share cache sets.
    Fibre(Body body, unsigned number, std::size_t stack_bytes);
    ~Fibre();
    Fibre(const Fibre&) = delete;
    Fibre& operator=(const Fibre&) = delete;

    // Scheduler side: runs the fibre until it calls `leave`.
    void enter();
    // Fibre side: goes back to whoever entered.
    void leave();
    // Forgets what the fibre was doing, so that its next `enter` starts the body again.
    void rewind();

private:
    static void start(Fibre* self);

    Body body_;
    unsigned char* mapping_;  // a guard page, then the stack
    std::size_t stack_bytes_;
    unsigned char* top_;
    void* inside_ = nullptr;   // stack pointer of the fibre while it waits
    void* outside_ = nullptr;  // stack pointer of the scheduler while the fibre runs
    void* inside_fake_ = nullptr;
    void* outside_fake_ = nullptr;
    const void* outside_bottom_ = nullptr;
    std::size_t outside_bytes_ = 0;
};

}  // namespace hwemu
