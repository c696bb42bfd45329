// The engine: runs the threads of a grid. See engine.cpp for how.
#pragma once

#include <string>

#include "../runtime.hpp"

namespace hwemu {

struct Launch {
    const Module* module;
    const Kernel* kernel;
    Index grid, block;
    unsigned dynamic_bytes;
    void** arguments;
};

// What every fresh byte of device and shared memory holds; HWEMU_FILL changes it.
unsigned char fill_byte();
// Fills memory without AddressSanitizer's checks: shared variables have red zones between them.
void fill_unchecked(void* begin, std::size_t bytes);

Machine* machine();

// Runs the grid to its end. Returns 0 or the driver's error code, with the reason in `last_failure`.
// One launch at a time: static shared memory and the fibres are the process's only ones.
int run_grid(const Launch& launch);
const std::string& last_failure();

}  // namespace hwemu
