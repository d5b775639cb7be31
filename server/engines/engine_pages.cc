#include "server/engines/engine_pages.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "absl/strings/str_cat.h"
#include "server/base/errno_text.h"

namespace detshare {
namespace {

constexpr size_t kBytes = sizeof(EnginePage);
// No version has so large a page.
constexpr size_t kMaxBytes = size_t{64} << 20;
constexpr int kSeals = F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// The size of a sealed page; 0: it is none.
size_t SizeOfSealed(int fd) {
  struct stat found {};
  struct statfs system {};
  if (fd < 0 || fstat(fd, &found) != 0 || fstatfs(fd, &system) != 0 ||
      (fcntl(fd, F_GET_SEALS) & kSeals) != kSeals)
    return 0;
  // Memory of huge pages could only be mapped beyond its place.
  if (system.f_type != TMPFS_MAGIC) return 0;
  const auto bytes = static_cast<size_t>(found.st_size);
  return bytes >= EnginePage::kLeastBytes && bytes <= kMaxBytes && bytes % alignof(EnginePage) == 0
             ? bytes
             : 0;
}

absl::Status Failed(const char* call) {
  return absl::ResourceExhaustedError(absl::StrCat(call, ": ", ErrnoText(errno)));
}

// Replaces what is mapped there.
bool MapZeroes(void* at, size_t bytes) {
  return mmap(at, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
              0) != MAP_FAILED;
}

}  // namespace

bool IsSealedPage(int fd) { return SizeOfSealed(fd) != 0; }

absl::StatusOr<std::unique_ptr<EnginePages>> EnginePages::Create() {
  std::unique_ptr<EnginePages> pages(new EnginePages);
  pages->fd_ = memfd_create("detshare-engine", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (pages->fd_ < 0) return Failed("memfd_create");
  if (ftruncate(pages->fd_, kBytes) != 0) return Failed("ftruncate");
  void* const own = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, pages->fd_, 0);
  if (own == MAP_FAILED) return Failed("mmap");
  pages->own_ = new (own) EnginePage;
  if (fcntl(pages->fd_, F_ADD_SEALS, kSeals) != 0) return Failed("F_ADD_SEALS");
  void* const places = mmap(nullptr, EnginePeers::kMax * kBytes, PROT_READ,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (places == MAP_FAILED) return Failed("mmap");
  pages->places_ = places;
  pages->peers_.own_id = static_cast<uint64_t>(getpid());
  for (size_t i = 0; i < EnginePeers::kMax; ++i)
    pages->peers_.peers[i].page = static_cast<const EnginePage*>(pages->PlaceOf(i));
  return pages;
}

EnginePages::~EnginePages() {
  if (places_ != nullptr) munmap(places_, EnginePeers::kMax * kBytes);
  if (own_ != nullptr) munmap(own_, kBytes);
  if (fd_ >= 0) close(fd_);
}

void* EnginePages::PlaceOf(size_t index) const {
  return static_cast<char*>(places_) + index * kBytes;
}

absl::Status EnginePages::Add(pid_t pid, int page) {
  struct Closer {
    int fd;
    ~Closer() {
      if (fd >= 0) close(fd);
    }
  } const closer{page};
  const size_t bytes = std::min(SizeOfSealed(page), kBytes);
  if (pid <= 0 || bytes == 0)
    return absl::InvalidArgumentError(absl::StrCat("process ", pid, " has no sealed page"));
  const auto id = static_cast<uint64_t>(pid);
  size_t place = EnginePeers::kMax;
  for (size_t i = 0; i < EnginePeers::kMax; ++i) {
    const uint64_t at = peers_.peers[i].id.load(std::memory_order_relaxed);
    if (at == id) {
      place = i;
      break;
    }
    if (at == 0 && place == EnginePeers::kMax) place = i;
  }
  if (place == EnginePeers::kMax)
    return absl::ResourceExhaustedError("too many engines share the devices");
  // Workers may read the place meanwhile: they see the page before or this one. Words that another
  // version does not have are zeroes.
  if (mmap(PlaceOf(place), bytes, PROT_READ, MAP_SHARED | MAP_FIXED, page, 0) == MAP_FAILED ||
      (bytes < kBytes && !MapZeroes(static_cast<char*>(PlaceOf(place)) + bytes, kBytes - bytes)))
    return Failed("mmap");
  if (peers_.peers[place].id.load(std::memory_order_relaxed) != id)
    peers_.peers[place].spare.store(false, std::memory_order_relaxed);
  peers_.peers[place].id.store(id, std::memory_order_release);
  if (place >= peers_.used.load(std::memory_order_relaxed))
    peers_.used.store(place + 1, std::memory_order_release);
  return absl::OkStatus();
}

void EnginePages::Keep(const EngineProcesses& engines) {
  const auto among = [](pid_t pid, const std::vector<pid_t>& pids) {
    return std::find(pids.begin(), pids.end(), pid) != pids.end();
  };
  for (size_t i = 0; i < EnginePeers::kMax; ++i) {
    EnginePeers::Peer& peer = peers_.peers[i];
    const auto pid = static_cast<pid_t>(peer.id.load(std::memory_order_relaxed));
    if (pid == 0) continue;
    peer.spare.store(among(pid, engines.spares), std::memory_order_relaxed);
    if (among(pid, engines.pids)) continue;
    peer.id.store(0, std::memory_order_release);
    MapZeroes(PlaceOf(i), kBytes);  // if that fails, the page stays there, and nobody reads it
  }
}

}  // namespace detshare
