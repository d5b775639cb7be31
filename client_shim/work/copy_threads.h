// Helpers for copies that one CPU is too slow for. Threads are started with the first big copy and
// stay.
#pragma once

#include <cstdint>

namespace detshare::shim {

// Calls work(context) on the calling thread and, at the same time, on up to three helpers; returns
// when all calls have returned. Alone when the helpers are busy with somebody else's copy, or the
// machine has one core.
void RunWithHelpers(void (*work)(void* context), void* context);

}  // namespace detshare::shim
