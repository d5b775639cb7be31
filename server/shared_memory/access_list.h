// Lets a user use a file of another user.
#pragma once

#include <sys/types.h>

namespace detshare {

// Lets `user` read and write the file beside its owner, and nobody else. The caller owns the file,
// and needs no right of root. Returns false and sets errno if the file system has no access lists.
bool LetUserUse(int fd, uid_t user);

}  // namespace detshare
