// The text of an errno.
#pragma once

#include <string>
#include <system_error>

namespace detshare {

inline std::string ErrnoText(int error) { return std::generic_category().message(error); }

}  // namespace detshare
