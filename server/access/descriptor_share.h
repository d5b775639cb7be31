// How many of the process's descriptors one kind of connections may take.
#pragma once

#include <cstddef>

namespace detshare {

// Returns one `part`-th of the descriptors that the process may have open now, at most `most`.
// Sessions, engines and files get the rest.
size_t ShareOfDescriptors(size_t part, size_t most);

}  // namespace detshare
