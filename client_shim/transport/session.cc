#include "client_shim/transport/session.h"

#include <fcntl.h>
#include <stdio_ext.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "client_shim/base/futex.h"
#include "client_shim/base/log.h"
#include "client_shim/transport/device_selection.h"
#include "client_shim/transport/read_digest.h"
#include "proto/cpu_load.h"
#include "proto/version.h"
#include "proto/wire/context.h"

namespace detshare::shim {
namespace {

// Whether [offset, offset + bytes) lies in a file of file_bytes and offset is aligned.
bool Inside(uint64_t offset, uint64_t bytes, uint64_t file_bytes, uint64_t alignment) {
  return offset % alignment == 0 && offset <= file_bytes && bytes <= file_bytes - offset;
}

bool CpusFull() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return CpuLoad::OfHost().Full(now / std::chrono::nanoseconds(1));
}

std::string ProgramName() {
  char buffer[512];
  const int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  const ssize_t bytes = read(fd, buffer, sizeof(buffer));
  close(fd);
  std::string text(buffer, bytes > 0 ? bytes : 0);
  while (!text.empty() && text.back() == '\0') text.pop_back();
  // A proto3 string is UTF-8.
  for (char& c : text) {
    if (c == '\0') c = ' ';
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7E) c = '?';
  }
  return text;
}

// Attributes that promise functions which the shim does not have. The daemon reports the device's
// attributes; the shim corrects them for its interface.
constexpr CUdevice_attribute kNotOffered[] = {
    CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST,
    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
    CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
    CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK,
    CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED,
};

// Attributes that the shim itself offers on every device.
constexpr CUdevice_attribute kOffered[] = {
    CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING,
    CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY,
    CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
    // A mask, whose value 1 is CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.
    CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES,
    CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY,
    CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
    CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED,
};

// For the reason of a session that is over, and for the news that a session is over whose work has
// failed. Both come by the connection, and the failure comes by shared memory.
constexpr std::chrono::milliseconds kReasonTimeout(1000), kNewsTimeout(50);

// Whether all later calls of the session fail, too.
bool EndsWork(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_SYSTEM_NOT_READY:
      return true;
    default:
      return false;
  }
}

}  // namespace

Session* g_session = nullptr;

Session* Session::Open(CUresult* result) {
  proto::OpenSessionRequest request;
  request.set_abi_version(kAbiVersion);
  request.set_version(kVersion);
  request.set_program(ProgramName());
  request.set_pid(getpid());
  const VisibleDevices visible = ReadVisibleDevices(getenv("CUDA_VISIBLE_DEVICES"));
  if (visible.none) {
    *result = CUDA_ERROR_NO_DEVICE;
    return nullptr;
  }
  for (const std::string& id : visible.ids) request.add_visible_ids(id);
  const Machine machine = MachineOfEnvironment();
  for (const std::string& id : machine.ids) request.add_device_ids(id);
  request.set_device_count(machine.count);
  request.set_run(machine.run);

  const std::string socket_path = SocketPath();
  std::unique_ptr<Session> session(new Session);
  session->connection_ = Connection::Open(socket_path, request, result);
  if (session->connection_ == nullptr) return nullptr;
  const proto::Grant& grant = session->connection_->grant();
  *result = session->Map(grant, socket_path);
  if (*result != CUDA_SUCCESS) {
    // The connection's thread still uses the connection, so it is leaked.
    [[maybe_unused]] Connection* leaked = session->connection_.release();
    return nullptr;
  }
  session->AdoptDevices(grant);
  const char* blocking = getenv("CUDA_LAUNCH_BLOCKING");
  session->launch_blocking_ = blocking != nullptr && atoi(blocking) != 0;
  session->connection_->Watch(&session->header_->closed);
  Log(LogLevel::kInfo, "session %llu with detshared %s, %zu device(s)",
      static_cast<unsigned long long>(session->id_), grant.version().c_str(),
      session->devices_.size());
  if (session->devices_.empty()) {
    *result = CUDA_ERROR_NO_DEVICE;
    [[maybe_unused]] Connection* leaked = session->connection_.release();
    return nullptr;
  }
  StartReadDigest(*session->fences_);
  session->launches_watched_ = session->launch_blocking_ || g_read_digest != nullptr;
  return session.release();
}

CUresult Session::Map(const proto::Grant& grant, const std::string& socket_path) {
  id_ = grant.session();
  const auto limit = [](uint32_t most) { return most != 0 ? most : UINT32_MAX; };
  object_limits_ = {limit(grant.max_contexts()), limit(grant.max_streams()),
                    limit(grant.max_events())};
  wait_spin_us_ = std::min<uint32_t>(grant.client_spin_us(), 10'000);
  spin_us_ = std::min<uint32_t>(wait_spin_us_, 50);
  pinned_base_ = grant.pinned_base();
  pinned_bytes_ = grant.pinned_bytes();
  const size_t slash = socket_path.rfind('/');
  const std::string directory =
      (slash == std::string::npos ? "." : socket_path.substr(0, slash)) + "/" + grant.directory();
  directory_fd_ = open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  const int fd = directory_fd_ >= 0 ? OpenFile("session") : -1;
  if (fd < 0) {
    Log(LogLevel::kError, "cannot open the session's shared memory %s/session: %s",
        directory.c_str(), strerror(errno));
    return CUDA_ERROR_SYSTEM_NOT_READY;
  }
  struct stat status;
  void* memory = MAP_FAILED;
  const uint64_t bytes = grant.file_bytes();
  if (fstat(fd, &status) == 0 && bytes >= kPageBytes &&
      static_cast<uint64_t>(status.st_size) >= bytes) {
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  close(fd);
  if (memory == MAP_FAILED) {
    Log(LogLevel::kError, "cannot map the session's shared memory %s/session", directory.c_str());
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  // A child of fork must not change the session's memory and has no use for it.
  madvise(memory, bytes, MADV_DONTFORK);
  auto* base = static_cast<std::byte*>(memory);
  auto* header = reinterpret_cast<SessionHeader*>(base);
  SessionHeader layout{};
  layout.magic = header->magic;
  layout.abi_version = header->abi_version;
  layout.ring_offset = header->ring_offset;
  layout.ring_bytes = header->ring_bytes;
  layout.reply_offset = header->reply_offset;
  layout.reply_count = header->reply_count;
  layout.output_offset = header->output_offset;
  layout.output_bytes = header->output_bytes;
  layout.fence_offset = header->fence_offset;
  layout.fence_count = header->fence_count;
  layout.staging_offset = header->staging_offset;
  layout.staging_bytes = header->staging_bytes;
  if (layout.magic != kSessionMagic || layout.abi_version != kAbiVersion) {
    Log(LogLevel::kError, "this libcuda.so.1 speaks ABI %u, detshared %s speaks ABI %u",
        kAbiVersion, grant.version().c_str(), layout.abi_version);
    munmap(memory, bytes);
    return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
  }
  const bool sound =
      layout.ring_bytes >= 2 * kMaxRecordBytes &&
      (layout.ring_bytes & (layout.ring_bytes - 1)) == 0 &&
      Inside(layout.ring_offset, layout.ring_bytes, bytes, kRingLine) && layout.reply_count != 0 &&
      Inside(layout.reply_offset, uint64_t{layout.reply_count} * sizeof(ReplySlot), bytes, 64) &&
      layout.output_bytes != 0 && Inside(layout.output_offset, layout.output_bytes, bytes, 1) &&
      Inside(layout.fence_offset, uint64_t{layout.fence_count} * sizeof(Fence), bytes, 8) &&
      Inside(layout.staging_offset, layout.staging_bytes, bytes, 64);
  if (!sound) {
    Log(LogLevel::kError, "the session's shared memory has an unsound layout");
    munmap(memory, bytes);
    return CUDA_ERROR_SYSTEM_NOT_READY;
  }
  header_ = header;
  ring_ = std::make_unique<RingWriter>(*header, base + layout.ring_offset, layout.ring_bytes);
  replies_ = std::make_unique<ReplySlots>(reinterpret_cast<ReplySlot*>(base + layout.reply_offset),
                                          layout.reply_count, header->closed);
  fences_ = std::make_unique<FenceAllocator>(reinterpret_cast<Fence*>(base + layout.fence_offset),
                                             layout.fence_count);
  staging_ = base + layout.staging_offset;
  staging_bytes_ = layout.staging_bytes;
  output_ = reinterpret_cast<const char*>(base + layout.output_offset);
  output_bytes_ = layout.output_bytes;
  return CUDA_SUCCESS;
}

int Session::OpenFile(const std::string& name) const {
  return openat(directory_fd_, name.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
}

void Session::AdoptDevices(const proto::Grant& grant) {
  for (const proto::Device& from : grant.devices()) {
    if (devices_.size() == kMaxDevices) break;
    DeviceInfo to;
    to.name = from.name();
    memcpy(to.uuid.bytes, from.uuid().data(),
           std::min<size_t>(from.uuid().size(), sizeof(to.uuid.bytes)));
    to.total_memory = from.total_memory();
    for (const auto& [attribute, value] : from.attributes()) {
      if (attribute < 0 || attribute >= DeviceInfo::kAttributes) continue;
      to.attributes[attribute] = value;
      to.has_attribute[attribute] = true;
    }
    for (const CUdevice_attribute attribute : kNotOffered) {
      to.attributes[attribute] = 0;
      to.has_attribute[attribute] = true;
    }
    for (const CUdevice_attribute attribute : kOffered) {
      to.attributes[attribute] = 1;
      to.has_attribute[attribute] = true;
    }
    to.memory_base = from.memory_base();
    to.memory_bytes = from.memory_bytes();
    to.limits.assign(from.limits().begin(), from.limits().end());
    to.least_priority = from.least_stream_priority();
    to.greatest_priority = from.greatest_stream_priority();
    to.tpc_gpc = from.tpc_gpc();
    to.tpc_index = from.tpc_index();
    to.ptx_only = from.ptx_only();
    to.peers.resize(std::min<size_t>(grant.devices_size(), kMaxDevices));
    for (size_t i = 0; i < to.peers.size() && i < static_cast<size_t>(from.peers_size()); ++i) {
      for (const auto& [attribute, value] : from.peers(static_cast<int>(i)).attributes()) {
        if (attribute >= 0 && attribute < DeviceInfo::kPeerAttributes)
          to.peers[i][attribute] = value;
      }
    }
    devices_.push_back(std::move(to));
  }
}

CUresult Session::Judged(CUresult result) const {
  if (result == CUDA_SUCCESS) [[likely]]
    return result;
  // When the session is over, any error may be the first news of that, for example
  // CUDA_ERROR_NOT_PERMITTED after an operator has ended it. In a session that goes on, that error
  // is an ordinary refusal.
  if (EndsWork(result) || closed()) AwaitReason();
  // The first refusal may be that of a tenant's limit, and the program may exit because of it.
  if (result == CUDA_ERROR_OUT_OF_MEMORY && connection_->grant().limited() &&
      !waited_for_notice_.exchange(true, std::memory_order_relaxed)) {
    connection_->AwaitNotice(kNewsTimeout);
  }
  return result;
}

void Session::AwaitReason() const {
  if (closed()) {
    connection_->AwaitEnd(kReasonTimeout);
  } else if (!waited_for_reason_.exchange(true, std::memory_order_relaxed)) {
    connection_->AwaitEnd(kNewsTimeout);
  }
}

CUresult Session::Failure(uint32_t error) const {
  AwaitReason();
  return error != 0 ? static_cast<CUresult>(error) : connection_->result();
}

CUresult Session::Lost() const {
  const CUresult error = sticky_error();
  return error != CUDA_SUCCESS ? error : CUDA_ERROR_INVALID_VALUE;  // the record is too long
}

uint32_t Session::SubmitAndWait(Op op, uint16_t device, ContextId context, const void* args,
                                uint32_t args_bytes, std::span<const ConstBuffer> payload,
                                uint32_t payload_bytes) {
  const uint32_t slot = replies_->Acquire(&thread_state.reply_hint);
  if (slot == kNoReply) [[unlikely]]
    return kNoReply;
  const RingWriter::Record record =
      ring_->Reserve({static_cast<uint16_t>(op), device, context, slot}, args_bytes, payload_bytes);
  if (!record) [[unlikely]] {
    replies_->Release(slot);
    return kNoReply;
  }
  memcpy(record.args, args, args_bytes);
  std::byte* to = record.payload;
  for (const ConstBuffer& piece : payload) {
    if (piece.bytes != 0) memcpy(to, piece.data, piece.bytes);
    to += piece.bytes;
  }
  ring_->Commit(record);
  // On a busy host the daemon's worker may need this CPU.
  return replies_->Wait(slot, spin_us_ != 0 && CpusFull() ? 0 : spin_us_) ? slot : kNoReply;
}

CUresult Session::CallRing(Op op, uint16_t device, ContextId context, const void* args,
                           uint32_t args_bytes, ConstBuffer payload, void* body,
                           uint32_t body_bytes) {
  const uint32_t slot = SubmitAndWait(op, device, context, args, args_bytes, {&payload, 1},
                                      static_cast<uint32_t>(payload.bytes));
  if (slot == kNoReply) [[unlikely]]
    return Lost();
  const ReplySlot& reply = (*replies_)[slot];
  CUresult result = static_cast<CUresult>(reply.result);
  if (result == CUDA_SUCCESS && body_bytes != 0) {
    if (reply.bytes < body_bytes) {
      Log(LogLevel::kError, "detshared's reply to %s has %u bytes instead of %u",
          OpName(static_cast<uint16_t>(op)), reply.bytes, body_bytes);
      result = CUDA_ERROR_UNKNOWN;
    } else {
      memcpy(body, reply.data, body_bytes);
    }
  }
  replies_->Release(slot);
  return Judged(result);
}

CUresult Session::CallControl(Op op, uint16_t device, ContextId context, const void* args,
                              size_t args_bytes, std::span<const ConstBuffer> payload,
                              std::string* body) {
  size_t total = 0;
  for (const ConstBuffer& piece : payload) total += piece.bytes;
  if (total <= kMaxPayloadBytes) {
    const uint32_t slot =
        SubmitAndWait(op, device, context, args, static_cast<uint32_t>(args_bytes), payload,
                      static_cast<uint32_t>(total));
    if (slot == kNoReply) [[unlikely]]
      return Lost();
    const ReplySlot& reply = (*replies_)[slot];
    CUresult result = static_cast<CUresult>(reply.result);
    if (reply.bytes <= kReplyDataBytes) {
      body->assign(reinterpret_cast<const char*>(reply.data), reply.bytes);
    } else if (const CUresult taken = connection_->TakeReply(id_, slot, body);
               taken != CUDA_SUCCESS) {
      result = taken;
    }
    replies_->Release(slot);
    return Judged(result);
  }
  return Judged(CallOverGrpc(op, device, context, args, args_bytes, payload, ring_->tail(), body));
}

CUresult Session::CallOverGrpc(Op op, uint16_t device, ContextId context, const void* args,
                               size_t args_bytes, std::span<const ConstBuffer> payload,
                               uint64_t after, std::string* body) {
  proto::CallRequest request;
  request.set_session(id_);
  request.set_op(static_cast<uint32_t>(op));
  request.set_device(device);
  request.set_context(context);
  request.set_args(args, args_bytes);
  request.set_after(after);
  proto::CallReply reply;
  const CUresult result = connection_->Call(std::move(request), payload, &reply);
  *body = std::move(*reply.mutable_body());
  return result;
}

bool Session::AwaitRingRead() const {
  // A worker that may read is through with the usual number of records by then. A call over gRPC
  // takes about as long.
  constexpr uint32_t kTimeoutUs = 100;
  const uint64_t tail = ring_->tail();
  const auto read = [&] { return ring_->head() >= tail || ring_->closed(); };
  if (read()) return true;
  if (spin_us_ != 0 && !CpusFull()) return SpinUntil(read, kTimeoutUs);
  // The daemon's worker may need this CPU.
  return YieldUntil(read, kTimeoutUs);
}

CUresult Session::CallUnordered(Op op, uint16_t device, ContextId context, const void* args,
                                uint32_t args_bytes, void* body, uint32_t body_bytes) {
  if (!AwaitRingRead()) {
    std::string reply;
    if (CallOverGrpc(op, device, context, args, args_bytes, {}, 0, &reply) == CUDA_SUCCESS &&
        reply.size() >= body_bytes) {
      if (body_bytes != 0) memcpy(body, reply.data(), body_bytes);
      return CUDA_SUCCESS;
    }
    // Records of the ring may change an error: they free memory.
  }
  return CallRing(op, device, context, args, args_bytes, {}, body, body_bytes);
}

uint32_t Session::wait_spin_us() const {
  // The daemon's worker may need this CPU.
  return wait_spin_us_ != 0 && header_->awaited.load(std::memory_order_relaxed) == 0 && CpusFull()
             ? 0
             : wait_spin_us_;
}

void Session::FlushOutput() {
  // An error shows at the program's next call.
  Call(Op::cuCtxSynchronize, 0, 0, wire::cuCtxSynchronize{0, wire::kFlushOutput, {0, kNoFence, 0}});
}

void Session::DrainOutputSlowly() {
  const std::lock_guard lock(output_mutex_);
  uint64_t head = header_->output_head.load(std::memory_order_relaxed);
  // Acquire: the text below `tail` is complete.
  const uint64_t tail = header_->output_tail.load(std::memory_order_acquire);
  // Calls `take` with the next bytes, which may go around the end of the ring.
  const auto read = [&](uint64_t bytes, auto take) {
    for (bytes = std::min(bytes, tail - head); bytes > 0;) {
      const uint64_t offset = head % output_bytes_;
      const uint64_t part = std::min(bytes, output_bytes_ - offset);
      take(output_ + offset, part);
      head += part;
      bytes -= part;
    }
  };
  while (head < tail) {
    uint32_t word = 0;
    char* to = reinterpret_cast<char*>(&word);
    read(sizeof(word),
         [&](const char* from, uint64_t bytes) { to = std::copy_n(from, bytes, to); });
    FILE* const file = (word & kTextIsError) != 0 ? stderr : stdout;
    read(word & ~kTextIsError,
         [&](const char* from, uint64_t bytes) { fwrite(from, 1, bytes, file); });
  }
  // Release: the daemon may overwrite the text below `head`.
  header_->output_head.store(head, std::memory_order_release);
}

}  // namespace detshare::shim
