// Makes text that a client gave safe for logs and terminals.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace detshare {

// Returns the first `max` bytes of `text`, with '?' for what is not printable ASCII. So no control
// sequence of a client reaches a terminal, and no newline reaches a log.
std::string Printable(std::string_view text, size_t max);

}  // namespace detshare
