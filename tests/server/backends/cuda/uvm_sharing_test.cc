#include "server/backends/cuda/uvm_sharing.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdint>

namespace detshare::cuda {
namespace {

constexpr unsigned long kInitialize = 0x30000001;
constexpr uint64_t kOtherFlag = 1, kShared = 2;

struct Parameters {
  uint64_t flags = kOtherFlag;
  uint32_t status = 0;
};

bool SameFile(int a, int b) {
  struct stat first, second;
  return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_ino == second.st_ino;
}

// One test case, because the state is that of the process.
TEST_CASE("Each use of the module is asked to share, and the first one's descriptor is shared") {
  Parameters before;
  CHECK_FALSE(AskToShare(kInitialize, &before));
  CHECK(before.flags == kOtherFlag);
  CHECK(SharedManagedMemory() == -1);

  ShareManagedMemory();
  Parameters other;
  CHECK_FALSE(AskToShare(kInitialize + 1, &other));
  CHECK_FALSE(AskToShare(kInitialize, nullptr));
  const int libcuda = memfd_create("libcuda", MFD_CLOEXEC);
  const int nvml = memfd_create("nvml", MFD_CLOEXEC);

  Parameters first;
  CHECK(AskToShare(kInitialize, &first));
  CHECK(first.flags == (kOtherFlag | kShared));
  CHECK_FALSE(NoteSharing(libcuda, &first, true));
  const int shared = SharedManagedMemory();
  CHECK(shared != libcuda);
  CHECK(SameFile(shared, libcuda));

  Parameters second;
  CHECK(AskToShare(kInitialize, &second));
  CHECK(second.flags == (kOtherFlag | kShared));
  CHECK_FALSE(NoteSharing(nvml, &second, true));
  CHECK(SharedManagedMemory() == shared);

  // A later use that the module refuses is made as its library wants it.
  Parameters refused;
  CHECK(AskToShare(kInitialize, &refused));
  refused.status = 31;
  CHECK(NoteSharing(nvml, &refused, true));
  CHECK(refused.flags == kOtherFlag);
  CHECK(SharedManagedMemory() == shared);

  for (const int fd : {libcuda, nvml, shared}) close(fd);
}

}  // namespace
}  // namespace detshare::cuda
