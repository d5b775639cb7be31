#include "server/session/managed_ranges.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>

#include "coroutine_runtime/device.h"
#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"
#include "proto/managed_socket.h"
#include "server/base/errno_text.h"
#include "server/base/logging.h"
#include "server/session/session_device.h"

namespace detshare {
namespace {

// NVIDIA's driver allocates managed memory in blocks of this size.
constexpr uint64_t kBlock = uint64_t{2} << 20;
constexpr uint64_t kMost = uint64_t{1} << 46;  // bytes; more than any device has

void CloseIfOpen(int* fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

bool SendDescriptor(int socket, int descriptor) {
  char byte = 0;
  iovec data{&byte, sizeof(byte)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(rights), &descriptor, sizeof(int));
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(byte);
}

}  // namespace

ManagedRanges::~ManagedRanges() { End(); }

void ManagedRanges::Open() {
  if (devices_.empty()) return;
  memory_ = devices_[0].device->managed_memory();
  if (memory_ == nullptr) return;
  const int directory = open(directory_.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (directory < 0)
    return LogWarning("no managed memory: cannot open ", directory_, ": ", ErrnoText(errno));
  const ManagedSocketAddress address(directory);
  listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  // Any user may connect. Introduce() looks at the user.
  const bool listens = listener_ >= 0 && bind(listener_, address.get(), address.size()) == 0 &&
                       fchmodat(directory, kManagedSocket, 0666, 0) == 0 &&
                       listen(listener_, 8) == 0;
  const int error = errno;
  close(directory);
  if (listens) return;
  CloseIfOpen(&listener_);
  LogWarning("no managed memory: cannot listen at ", directory_, "/", kManagedSocket, ": ",
             ErrnoText(error));
}

absl::Status ManagedRanges::Introduce() {
  if (client_ >= 0) return absl::OkStatus();
  if (listener_ < 0)
    return CudaError(kCudaErrorNotSupported, "managed memory is not shared with clients");
  for (;;) {
    int peer = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (peer < 0)
      return CudaError(kCudaErrorNotSupported, "the client has no connection for managed memory");
    ucred user{};
    socklen_t length = sizeof(user);
    if (getsockopt(peer, SOL_SOCKET, SO_PEERCRED, &user, &length) == 0 && user.uid == owner_.uid &&
        SendDescriptor(peer, memory_->descriptor())) {
      client_ = peer;
      return absl::OkStatus();
    }
    CloseIfOpen(&peer);
  }
}

absl::StatusOr<ManagedMemory::Range> ManagedRanges::Allocate(SessionDevice& device,
                                                             uint64_t bytes) {
  DETSHARE_RETURN_IF_ERROR(Introduce());
  if (bytes > kMost) return CudaError(kCudaErrorOutOfMemory, "more than any device has");
  const uint64_t whole = (bytes + kBlock - 1) / kBlock * kBlock;
  Allocation allocation;
  DETSHARE_ASSIGN_OR_RETURN(allocation.charge, Quota::Take(device.quota, whole));
  absl::StatusOr<ManagedMemory::Range> range = memory_->Reserve(whole);
  if (!range.ok()) return CudaError(kCudaErrorOutOfMemory, std::string(range.status().message()));
  allocation.range = *range;
  for (size_t i = 0; i < devices_.size(); ++i) {
    absl::Status used = devices_[i].space->UseManaged(*range);
    if (used.ok()) continue;
    for (size_t done = 0; done < i; ++done) devices_[done].space->LeaveManaged(*range);
    memory_->Release(*range);
    return used;
  }
  allocations_.emplace(range->address, std::move(allocation));
  bytes_.fetch_add(whole, std::memory_order_relaxed);
  return *range;
}

void ManagedRanges::Own(uint64_t address, ContextId context) {
  if (const auto found = allocations_.find(address); found != allocations_.end())
    found->second.context = context;
}

bool ManagedRanges::Contains(uint64_t address, uint64_t bytes) const {
  const auto next = allocations_.upper_bound(address);
  if (next == allocations_.begin()) return false;
  const ManagedMemory::Range& range = std::prev(next)->second.range;
  const uint64_t offset = address - range.address;
  return offset < range.bytes && bytes <= range.bytes - offset;
}

bool ManagedRanges::Disown(uint64_t address) {
  const auto found = allocations_.find(address);
  return found != allocations_.end() && std::exchange(found->second.context, 0) != 0;
}

void ManagedRanges::Free(uint64_t address) {
  if (const auto found = allocations_.find(address); found != allocations_.end()) Drop(found);
}

void ManagedRanges::FreeOf(ContextId context) {
  for (auto next = allocations_.begin(); next != allocations_.end();) {
    const auto allocation = next++;
    if (allocation->second.context == context) Drop(allocation);
  }
}

absl::Status ManagedRanges::Advise(uint64_t address, uint64_t bytes, int advice,
                                   ManagedPlace place) {
  return memory_->Advise(address, bytes, advice, place);
}

void ManagedRanges::Drop(Allocations::iterator allocation) {
  const ManagedMemory::Range range = allocation->second.range;
  for (SessionDevice& device : devices_) {
    if (device.space != nullptr) device.space->LeaveManaged(range);
  }
  memory_->Release(range);
  bytes_.fetch_sub(range.bytes, std::memory_order_relaxed);
  allocations_.erase(allocation);
}

void ManagedRanges::End() {
  CloseIfOpen(&listener_);
  CloseIfOpen(&client_);
  while (!allocations_.empty()) Drop(allocations_.begin());
}

}  // namespace detshare
