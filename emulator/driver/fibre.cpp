// The fibre switch and its stacks. See fibre.hpp.
#include "fibre.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <new>

#ifndef __x86_64__
#error "the emulator's fibre switch is written for x86-64"
#endif

extern "C" {
void __sanitizer_start_switch_fiber(void** fake, const void* bottom, std::size_t bytes) __attribute__((weak));
void __sanitizer_finish_switch_fiber(void* fake, const void** bottom, std::size_t* bytes) __attribute__((weak));
void __asan_unpoison_memory_region(const volatile void* address, std::size_t bytes) __attribute__((weak));
void hwemu_switch(void** save, void* load);
void hwemu_first_entry();
}

// Saves the callee-saved registers of the System V ABI on the old stack and takes them from the new one.
// A fresh stack holds zeros for them, the body in r12 and its argument in r13, and returns into first_entry.
asm(R"(
    .text
    .type hwemu_switch, @function
    .hidden hwemu_switch
    .globl hwemu_switch
hwemu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size hwemu_switch, .-hwemu_switch
    .type hwemu_first_entry, @function
    .hidden hwemu_first_entry
    .globl hwemu_first_entry
hwemu_first_entry:
    .cfi_startproc
    .cfi_undefined rip
    movq %r13, %rdi
    call *%r12
    ud2
    .cfi_endproc
    .size hwemu_first_entry, .-hwemu_first_entry
)");

namespace hwemu {

namespace {
std::size_t page_bytes() {
    static const std::size_t bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return bytes;
}

struct Stack {
    const void* bottom;
    std::size_t bytes;
};

// The stack pointer of the host thread while fibres run, of which one does at a time.
void* scheduler = nullptr;

// Tells that the stack is another one from now on, and returns the one before. Its frames in the heap are kept in `save`.
Stack tell_sanitizer(Stack next, void** save, void* fake) {
    Stack before{nullptr, 0};
    if (__sanitizer_start_switch_fiber && __sanitizer_finish_switch_fiber) {
        __sanitizer_start_switch_fiber(save, next.bottom, next.bytes);
        __sanitizer_finish_switch_fiber(fake, &before.bottom, &before.bytes);
    }
    return before;
}
}  // namespace

Fibre::Fibre(Body body, unsigned number, std::size_t stack_bytes) : body_(body), stack_bytes_(stack_bytes) {
    void* mapping = mmap(nullptr, page_bytes() + stack_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) throw std::bad_alloc();
    mprotect(mapping, page_bytes(), PROT_NONE);
    mapping_ = static_cast<unsigned char*>(mapping);
    top_ = mapping_ + page_bytes() + stack_bytes - number % 16 * 256;
    rewind();
}

Fibre::~Fibre() { munmap(mapping_, page_bytes() + stack_bytes_); }

void Fibre::rewind() {
    if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(mapping_ + page_bytes(), stack_bytes_);
    // From the top: padding that keeps the stack aligned to 16 bytes at the call, the return address, then rbp, rbx, r12, r13, r14, r15 as the switch pops them.
    auto* slot = reinterpret_cast<std::uint64_t*>(top_) - 3;
    *slot = reinterpret_cast<std::uint64_t>(&hwemu_first_entry);
    const std::uint64_t registers[6] = {0, 0, reinterpret_cast<std::uint64_t>(&Fibre::start),
                                        reinterpret_cast<std::uint64_t>(this), 0, 0};
    for (std::uint64_t value : registers) *--slot = value;
    inside_ = slot;
}

void Fibre::enter() {
    const Stack own{mapping_ + page_bytes(), stack_bytes_};
    void* fake = nullptr;
    const Stack host = tell_sanitizer(own, &fake, nullptr);
    hwemu_switch(&scheduler, inside_);
    tell_sanitizer(host, nullptr, fake);
}

void Fibre::leave() { hwemu_switch(&inside_, scheduler); }

void Fibre::go_to(Fibre& other) { hwemu_switch(&inside_, other.inside_); }

void Fibre::start(Fibre* self) {
    for (;;) self->body_(self);
}

}  // namespace hwemu
