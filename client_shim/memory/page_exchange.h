// Exchanges pages of this process for other pages with the same contents.
#pragma once

#include <cstddef>
#include <cstdint>

namespace detshare::shim {

// Copies [from, from + bytes), which are whole pages, to `to` and moves that mapping over the range.
// Other threads that write there meanwhile wait, where the kernel allows write protection of the pages
// by userfaultfd(2). Otherwise their writes may be lost: in containers whose seccomp filter refuses
// the call; for pages of a file before Linux 5.19 or outside of tmpfs; and if the range holds the
// calling thread's own stack, as it may. So the edge pages come last, one by one. On failure, what was
// not moved is unmapped, and errno says why. Blocks signals while it runs.
bool CopyAndExchange(uint64_t from, std::byte* to, uint64_t bytes);

}  // namespace detshare::shim
