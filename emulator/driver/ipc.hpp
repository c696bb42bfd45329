// Memory files that processes share. See ipc.cpp.
#pragma once

#include "state.hpp"

namespace hwemu {

// Maps a fresh memory file of this size; fills in the base, the file and the mapping.
bool map_new_file(Allocation& allocation, std::size_t bytes);
void unmap_file(const Allocation& allocation);

}  // namespace hwemu
