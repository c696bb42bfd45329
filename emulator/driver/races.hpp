// The happens-before checker: every four bytes of known memory remember who wrote and who read them last.
// An access that no stream, event or synchronisation orders behind a conflicting one is a race, whichever of the two ran
// first. Atomics do not conflict with each other. The host's own accesses are not seen, but what it changes under an
// operation that was submitted is, when the operation reads it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "operations.hpp"

namespace hwemu {

struct Allocation;

enum class Access : unsigned { read, write, atomic };

// Who read and wrote the bytes of one allocation.
class Shadow;

// Gives an operation its number. Called once for each, in the order of submission.
unsigned register_operation(const std::string& name, unsigned lane, unsigned number);
// The operation whose accesses follow; null when it has ended.
void enter_operation(const Operation* operation);
// What the operation does to a range.
void access_range(const Range& range);
// What a kernel does, called by its instrumented code.
void access(const void* address, unsigned bytes, unsigned kind);
// Host memory that the operation may read, as it is now.
void take_snapshots(Operation& operation);
// The host gives the memory back, which is off the list of allocations by then: all that was done with it must be over.
void check_given_back(const Allocation& allocation, const char* call);
// The memory is free from here on. Its bytes are kept for a while, so that late accesses are noticed.
void bury(const Allocation& allocation, void* memory);
// How many operations have run.
unsigned operations_run();

}  // namespace hwemu
