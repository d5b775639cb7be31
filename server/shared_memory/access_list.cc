#include "server/shared_memory/access_list.h"

#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <sys/xattr.h>

namespace detshare {
namespace {

// The whole list. In memory as the kernel reads it, on a machine with the lowest byte first.
struct AccessList {
  posix_acl_xattr_header header{POSIX_ACL_XATTR_VERSION};
  posix_acl_xattr_entry entries[5];
};

constexpr unsigned short kUse = ACL_READ | ACL_WRITE, kNothing = 0;
constexpr unsigned int kNobody = static_cast<unsigned int>(ACL_UNDEFINED_ID);

}  // namespace

bool LetUserUse(int fd, uid_t user) {
  const AccessList list{.entries = {{ACL_USER_OBJ, kUse, kNobody},
                                    {ACL_USER, kUse, user},
                                    {ACL_GROUP_OBJ, kNothing, kNobody},
                                    {ACL_MASK, kUse, kNobody},
                                    {ACL_OTHER, kNothing, kNobody}}};
  return fsetxattr(fd, "system.posix_acl_access", &list, sizeof(list), 0) == 0;
}

}  // namespace detshare
