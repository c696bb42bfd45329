// Waits that are not made, as a test has asked: so it is shown that a test of order notices what is out of order.
#pragma once

namespace hwemu {

struct Stream;

// Whether a stream is not made to wait for work of another. Without a stream, the host is not.
bool is_lost(const Stream* waiter, const Stream* awaited);
// A stream that is gone loses nothing, and what is made at its address later does not either.
void forget_lost(const Stream* stream);
// Whether races are counted and do not end the process.
bool counts_races();

}  // namespace hwemu
