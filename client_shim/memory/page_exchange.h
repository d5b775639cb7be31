// Exchanges pages of this process for other pages with the same contents.
#pragma once

#include <cstddef>
#include <cstdint>

namespace detshare::shim {

// Copies [from, from + bytes), which are whole pages, to `to` and moves that mapping over the range.
// Writes of other threads into the edge pages during that time are lost. So the edge pages come
// last, one by one. The range may hold the calling thread's own stack. On failure, what was not
// moved is unmapped, and errno says why.
bool CopyAndExchange(uint64_t from, std::byte* to, uint64_t bytes);

}  // namespace detshare::shim
