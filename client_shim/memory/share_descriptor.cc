#include "client_shim/memory/share_descriptor.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace detshare::shim {
namespace {

struct Contents {
  char magic[12];
  ShareKind kind;
  wire::ShareToken token;
};
static_assert(sizeof(Contents) == 32);
constexpr char kMagic[12] = {'D', 'e', 't', 'S', 'h', 'a', 'r', 'e', 'd', 'm', 'e', 'm'};

}  // namespace

CUresult MakeShareDescriptor(ShareKind kind, const wire::ShareToken& token, int* descriptor) {
  const int fd = memfd_create("detshare-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  Contents contents;
  memcpy(contents.magic, kMagic, sizeof(kMagic));
  contents.kind = kind;
  contents.token = token;
  if (pwrite(fd, &contents, sizeof(contents), 0) != static_cast<ssize_t>(sizeof(contents)) ||
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0) {
    close(fd);
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  *descriptor = fd;
  return CUDA_SUCCESS;
}

CUresult ReadShareDescriptor(ShareKind kind, int descriptor, wire::ShareToken* token) {
  Contents contents;
  ssize_t bytes;
  do {
    bytes = pread(descriptor, &contents, sizeof(contents), 0);
  } while (bytes < 0 && errno == EINTR);
  if (bytes != static_cast<ssize_t>(sizeof(contents)) ||
      memcmp(contents.magic, kMagic, sizeof(kMagic)) != 0 || contents.kind != kind) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *token = contents.token;
  return CUDA_SUCCESS;
}

}  // namespace detshare::shim
