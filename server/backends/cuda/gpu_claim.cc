#include "server/backends/cuda/gpu_claim.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <fstream>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace detshare::cuda {
namespace {

// The lock of bytes [begin, begin + bytes); 0 bytes: to the end. It belongs to the open file and not to
// the process: the driver closes descriptors of the same file, which would release a process's locks.
struct flock Bytes(int64_t begin, int64_t bytes, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = begin;
  lock.l_len = bytes;
  return lock;
}

bool IsLocked(int file, int64_t begin, int64_t bytes) {
  struct flock lock = Bytes(begin, bytes, F_WRLCK);
  return fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace

absl::StatusOr<GpuClaim> GpuClaim::Take(const std::string& node, uint64_t owner) {
  GpuClaim claim;
  claim.file_ = open(node.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (claim.file_ < 0) return claim;
  if (owner == 0 && getrandom(&owner, sizeof(owner), 0) != sizeof(owner)) return GpuClaim();
  // Each owner has a byte, which is neither the first nor the last.
  const auto own = static_cast<int64_t>(owner % (std::numeric_limits<int64_t>::max() - 2) + 1);
  struct flock lock = Bytes(own, 1, F_RDLCK);
  if (fcntl(claim.file_, F_OFD_SETLK, &lock) != 0) return GpuClaim();
  if (IsLocked(claim.file_, 0, own) || IsLocked(claim.file_, own + 1, 0))
    return absl::UnavailableError(absl::StrCat(
        "another detshared has time-slice groups on this GPU (it has locked ", node, ")"));
  return claim;
}

GpuClaim::~GpuClaim() {
  if (file_ >= 0) close(file_);
}

std::string DeviceNode(const std::string& pci_address, const std::string& directory) {
  constexpr absl::string_view kMinor = "Device Minor:";
  std::ifstream information(absl::StrCat(directory, "/", pci_address, "/information"));
  for (std::string line; std::getline(information, line);) {
    unsigned minor = 0;
    if (absl::string_view(line).substr(0, kMinor.size()) == kMinor &&
        absl::SimpleAtoi(absl::string_view(line).substr(kMinor.size()), &minor))
      return absl::StrCat("/dev/nvidia", minor);
  }
  return "";
}

}  // namespace detshare::cuda
