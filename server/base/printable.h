// Text that a client gave, for logs and people's terminals.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace detshare {

// The first `most` bytes of it, with '?' for what is not printable ASCII: no control sequence of a
// client's reaches a terminal, no newline a log.
std::string Printable(std::string_view text, size_t max);

}  // namespace detshare
