// Counting of memory requests. See requests.cpp.
#pragma once

#include "../runtime.hpp"

namespace hwemu {

// Called by the running kernel through `Machine`.
void record_load(Thread* thread, const void* address, unsigned bytes);
// Folds the records of the block that just ended into the totals; records of a failed block are dropped.
void end_block_of_loads(bool failed);

}  // namespace hwemu
