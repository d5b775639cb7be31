#include "client_shim/memory/managed_mapping.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <mutex>

#include "client_shim/base/log.h"
#include "client_shim/memory/mapping_keeper.h"
#include "client_shim/transport/session.h"
#include "proto/managed_socket.h"
#include "proto/wire/context.h"
#include "proto/wire/memory.h"

namespace detshare::shim {
namespace {

constexpr int kDescriptorTimeout = 10'000;  // milliseconds

// The connection to the daemon, and the descriptor that came over it.
struct Source {
  std::mutex mutex;  // guards the rest
  bool tried = false;
  int connection = -1;  // -1: the daemon does not offer the memory. Stays open.
  int descriptor = -1;  // -1: it has not come yet
};

Source& source() {
  static Source* const one = new Source;
  return *one;
}

int Connect() {
  const int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (connection < 0) return -1;
  const ManagedSocketAddress address(session().directory_fd());
  if (connect(connection, address.get(), address.size()) == 0) return connection;
  close(connection);
  return -1;
}

// Receives the descriptor, which the daemon has sent before its first reply. Returns -1 if none comes.
int Receive(int connection) {
  pollfd ready{connection, POLLIN, 0};
  if (poll(&ready, 1, kDescriptorTimeout) != 1) return -1;
  char byte;
  iovec data{&byte, sizeof(byte)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (recvmsg(connection, &message, MSG_CMSG_CLOEXEC) <= 0) return -1;
  const cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  if (rights == nullptr || rights->cmsg_type != SCM_RIGHTS) return -1;
  int descriptor;
  memcpy(&descriptor, CMSG_DATA(rights), sizeof(descriptor));
  return descriptor;
}

// Needs the mutex. Returns whether there is a connection.
bool Connected(Source& from) {
  if (!from.tried) {
    from.tried = true;
    from.connection = Connect();
  }
  return from.connection >= 0;
}

// Needs the mutex, and a connection. Maps a range of the daemon. Returns false if that fails.
bool Map(Source& from, const PiecePool::Block& range) {
  if (range.address % kPageBytes != 0 || range.bytes % kPageBytes != 0) return false;
  if (from.descriptor < 0) {
    from.descriptor = Receive(from.connection);
    if (from.descriptor < 0) {
      Log(LogLevel::kError, "no descriptor of managed memory comes from detshared");
      return false;
    }
    if (!StartMappingKeeper(from.connection)) {
      Log(LogLevel::kWarning, "no process keeps managed memory if this one is killed: %s",
          strerror(errno));
    }
  }
  void* const wanted = reinterpret_cast<void*>(range.address);
  void* const mapped =
      mmap(wanted, range.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE,
           from.descriptor, static_cast<off_t>(range.address));
  if (mapped == wanted) return true;
  Log(LogLevel::kWarning, "cannot map managed memory at %#" PRIx64 ": %s", range.address,
      strerror(errno));
  if (mapped != MAP_FAILED) munmap(mapped, range.bytes);
  return false;
}

}  // namespace

bool ManagedPagesMove() {
  const std::lock_guard lock(source().mutex);
  return Connected(source());
}

void EndManagedMappings() {
  Source& from = source();
  const std::unique_lock lock(from.mutex, std::try_to_lock);
  // A thread that still allocates has work to come.
  if (!lock.owns_lock() || from.descriptor < 0) return;
  const wire::cuCtxSynchronize query{0, wire::kQueryWork, {0, kNoFence, 0}};
  if (session().Call(Op::cuCtxSynchronize, 0, 0, query) == CUDA_SUCCESS)
    EndMappingKeeper(from.connection);
}

bool MapManagedRange(const PiecePool::Block& range) {
  const std::lock_guard lock(source().mutex);
  return Connected(source()) && Map(source(), range);
}

CUresult MapManaged(Context& context, uint64_t bytes, PiecePool::Block* mapped) {
  Source& from = source();
  const std::lock_guard lock(from.mutex);
  if (!Connected(from)) return CUDA_ERROR_NOT_SUPPORTED;
  const ContextId id = context.id.load(std::memory_order_acquire);
  wire::cuMemAllocManaged_Reply range{};
  const CUresult result = session().CallUnordered(Op::cuMemAllocManaged, context.device, id,
                                                  wire::cuMemAllocManaged{bytes}, &range);
  if (result != CUDA_SUCCESS) return result;
  *mapped = {range.address, range.bytes};
  if (range.bytes >= bytes && Map(from, *mapped)) return CUDA_SUCCESS;
  session().Call(Op::cuMemFreeHost, context.device, id, wire::cuMemFreeHost{range.address});
  return CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace detshare::shim
