// The user whom a session's files belong to.
#pragma once

#include <sys/types.h>

namespace detshare {

struct Owner {
  uid_t uid = 0;
  gid_t gid = 0;
};

}  // namespace detshare
