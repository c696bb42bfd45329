// Fibres: stacks that take turns on one host thread.
// ucontext makes a system call for every switch, so the switch is a dozen instructions of our own.
// AddressSanitizer is told where the stack of a host thread is left and comes back, through weak symbols: one build serves with and
// without it. Between fibres it is told nothing: it uses bounds of stacks for reports alone, and being told takes longer than a switch.
#pragma once

#include <cstddef>

namespace hwemu {

class Fibre {
public:
    using Body = void (*)(Fibre*);

    // Runs `body` on a stack of its own, over and over: it calls `leave` or `go_to` each time before it returns.
    // `number` staggers stacks so that they do not share cache sets.
    Fibre(Body body, unsigned number, std::size_t stack_bytes);
    ~Fibre();
    Fibre(const Fibre&) = delete;
    Fibre& operator=(const Fibre&) = delete;

    // Scheduler side: runs the fibre, and those that it goes on to, until one calls `leave`.
    void enter();
    // Fibre side: goes back to whoever entered the first.
    void leave();
    // Fibre side: goes on with another.
    void go_to(Fibre& other);
    // Forgets what the fibre was doing, so that its next `enter` starts the body again.
    void rewind();

private:
    static void start(Fibre* self);

    Body body_;
    unsigned char* mapping_;  // a guard page, then the stack
    std::size_t stack_bytes_;
    unsigned char* top_;
    void* inside_ = nullptr;  // its stack pointer while it waits
};

}  // namespace hwemu
