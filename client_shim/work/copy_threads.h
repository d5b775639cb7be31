// Helper threads for copies that one CPU is too slow for. The threads start with the first large
// copy and never end.
#pragma once

#include <cstdint>

namespace detshare::shim {

// Calls work(context) on the calling thread and at the same time on up to three helpers. Returns
// when all calls have returned. Only the calling thread works if the helpers are busy with another
// copy, or if the thread may use only one CPU. Any thread.
void RunWithHelpers(void (*work)(void* context), void* context);

}  // namespace detshare::shim
