#include "server/access/descriptor_share.h"

#include <sys/resource.h>

#include <algorithm>

namespace detshare {

size_t ShareOfDescriptors(size_t part, size_t most) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return most;
  return std::clamp<size_t>(limit.rlim_cur / part, 1, most);
}

}  // namespace detshare
