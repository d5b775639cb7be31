// The client's side of a session: its grant, its shared memory, and the ways to reach the daemon.
//
// A process has at most one session. cuInit makes it (entry/process.h), and it is never destroyed.
// Any thread may use everything here. The shim reads the values that the daemon wrote into the
// session file's header once, checks them, and keeps private copies.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "client_shim/base/thread_state.h"
#include "client_shim/transport/connection.h"
#include "client_shim/transport/fence_allocator.h"
#include "client_shim/transport/reply_slots.h"
#include "client_shim/transport/ring_writer.h"
#include "proto/driver_api/cuda_unrenamed.h"
#include "proto/driver_api/driver_api_ops.h"
#include "proto/ring_abi.h"

namespace detshare::shim {

inline constexpr uint32_t kMaxDevices = 16;  // of a session

// The properties of a device that never change.
struct DeviceInfo {
  static constexpr int kAttributes = 256;
  static constexpr int kPeerAttributes = 8;

  std::string name;
  CUuuid uuid{};
  uint64_t total_memory = 0;
  std::array<int32_t, kAttributes> attributes{};
  std::array<bool, kAttributes> has_attribute{};
  uint64_t memory_base = 0;
  uint64_t memory_bytes = 0;
  std::vector<uint64_t> limits;
  int least_priority = 0;
  int greatest_priority = 0;
  std::string tpc_gpc, tpc_index;
  bool ptx_only = false;  // runs PTX, but no machine code
  // Indexed by the other device's index, then by CUdevice_P2PAttribute.
  std::vector<std::array<int32_t, kPeerAttributes>> peers;

  // `which` is below kAttributes.
  int attribute(CUdevice_attribute which) const { return attributes[which]; }
  // Whether the address lies in this device's range of the session.
  bool Holds(uint64_t address) const { return address - memory_base < memory_bytes; }
};

// The most objects that the session may have at a time.
struct ObjectLimits {
  uint32_t contexts = UINT32_MAX, streams = UINT32_MAX, events = UINT32_MAX;
};

class Session {
 public:
  // Opens the session and maps its file. Returns null on failure; *result is then what cuInit
  // returns.
  static Session* Open(CUresult* result);

  const std::vector<DeviceInfo>& devices() const { return devices_; }
  // Whether a device has this index.
  bool HasDevice(int index) const {
    return index >= 0 && static_cast<size_t>(index) < devices_.size();
  }
  const DeviceInfo& device(uint16_t index) const { return devices_[index]; }
  const ObjectLimits& object_limits() const { return object_limits_; }
  // How long a thread polls before it sleeps, in microseconds: for a reply of the daemon (spin_us),
  // and for the GPU (wait_spin_us: now, because it depends on whether all CPUs are busy).
  uint32_t spin_us() const { return spin_us_; }
  uint32_t wait_spin_us() const;
  // The range of addresses in which pinned memory lies, at the same addresses as in the daemon.
  uint64_t pinned_base() const { return pinned_base_; }
  uint64_t pinned_bytes() const { return pinned_bytes_; }
  // Opens a file of the session's directory for reading and writing. Works even if the process has
  // changed its root or working directory. Returns -1 with errno on failure.
  int OpenFile(const std::string& name) const;
  // A descriptor of the session's directory, only for its path.
  int directory_fd() const { return directory_fd_; }
  // Whether the shim does something after each launch, which is rare.
  bool launches_watched() const { return launches_watched_; }
  // Whether CUDA_LAUNCH_BLOCKING asks that launches wait for their kernels.
  bool launch_blocking() const { return launch_blocking_; }

  RingWriter& ring() { return *ring_; }
  FenceAllocator& fences() { return *fences_; }
  std::byte* staging() { return staging_; }
  uint64_t staging_bytes() const { return staging_bytes_; }

  // The word that becomes 1 when the session ends.
  const std::atomic<uint32_t>& closed_word() const { return header_->closed; }
  bool closed() const { return header_->closed.load(std::memory_order_acquire) != 0; }
  // CUDA_SUCCESS, or the error that every later call returns: an error of the session's work, or
  // the reason why the session is over.
  CUresult sticky_error() const {
    // Acquire: pairs with the daemon's release store, which comes before the daemon forces the
    // fences.
    const uint32_t error = header_->sticky_error.load(std::memory_order_acquire);
    if (error != 0 || closed()) [[unlikely]]
      return Failure(error);
    return CUDA_SUCCESS;
  }

  // Submits a record without a reply, and does not wait. Returns the session's error if it is over.
  // `*position` is the record's place in the order of the ring.
  template <typename Args>
  CUresult Submit(Op op, uint16_t device, ContextId context, const Args& args,
                  ConstBuffer payload = {}, uint64_t* position = nullptr) {
    const RingWriter::Record record =
        ring_->Reserve({static_cast<uint16_t>(op), device, context, kNoReply}, sizeof(Args),
                       static_cast<uint32_t>(payload.bytes));
    if (!record) [[unlikely]]
      return Lost();
    memcpy(record.args, &args, sizeof(Args));
    if (payload.bytes != 0) memcpy(record.payload, payload.data, payload.bytes);
    ring_->Commit(record);
    if (position != nullptr) *position = record.position;
    return CUDA_SUCCESS;
  }

  // Submits a record and waits for its CUresult.
  template <typename Args>
  CUresult Call(Op op, uint16_t device, ContextId context, const Args& args) {
    return CallRing(op, device, context, &args, sizeof(Args), {}, nullptr, 0);
  }
  template <typename Args>
  CUresult Call(Op op, uint16_t device, ContextId context, const Args& args, ConstBuffer payload) {
    return CallRing(op, device, context, &args, sizeof(Args), payload, nullptr, 0);
  }
  // The same. With CUDA_SUCCESS, `*body` is the reply.
  template <typename Args, typename Body>
  CUresult Call(Op op, uint16_t device, ContextId context, const Args& args, Body* body) {
    return CallRing(op, device, context, &args, sizeof(Args), {}, body, sizeof(Body));
  }

  // The same for a control call that depends on no record that the daemon has not read. The call does
  // not wait for such records: if the ring is not read, because its next record is throttled or too
  // much work is queued, the call goes past it over gRPC.
  template <typename Args>
  CUresult CallUnordered(Op op, uint16_t device, ContextId context, const Args& args) {
    return CallUnordered(op, device, context, &args, sizeof(Args), nullptr, 0);
  }
  template <typename Args, typename Body>
  CUresult CallUnordered(Op op, uint16_t device, ContextId context, const Args& args, Body* body) {
    return CallUnordered(op, device, context, &args, sizeof(Args), body, sizeof(Body));
  }

  // Makes a control call and waits for it, through the ring if it fits a record. It is ordered after
  // every record submitted so far. `body` gets the reply, even with an error.
  CUresult CallControl(Op op, uint16_t device, ContextId context, const void* args,
                       size_t args_bytes, std::span<const ConstBuffer> payload, std::string* body);

  // Writes the text of kernels that have completed to stdout, and that of failed assertions to stderr.
  // Cheap when there is none.
  void DrainOutput() {
    // Acquire: a kernel that is known to be complete was launched after the 1 was stored.
    if (header_->output_pending.load(std::memory_order_acquire) != 0) FlushOutput();
    if (header_->output_tail.load(std::memory_order_acquire) !=
        header_->output_head.load(std::memory_order_relaxed)) {
      DrainOutputSlowly();
    }
  }

  // The error that calls return when the session is over.
  CUresult Lost() const;
  // The error of a session that is over, or whose work has the error.
  CUresult Failure(uint32_t error) const;
  // Returns the result of a call. If it is an error with a reason that comes by the connection,
  // waits shortly until the reason was logged.
  CUresult Judged(CUresult result) const;
  // Waits shortly until the reason for the end of the session was logged, because the program may
  // exit after the call that fails.
  void AwaitReason() const;

  // For the child of a fork.
  void CloseInChild() { connection_->CloseInChild(); }

 private:
  Session() = default;
  CUresult Map(const proto::Grant& grant, const std::string& socket_path);
  void AdoptDevices(const proto::Grant& grant);
  CUresult CallRing(Op op, uint16_t device, ContextId context, const void* args,
                    uint32_t args_bytes, ConstBuffer payload, void* body, uint32_t body_bytes);
  CUresult CallUnordered(Op op, uint16_t device, ContextId context, const void* args,
                         uint32_t args_bytes, void* body, uint32_t body_bytes);
  // Makes a control call over gRPC, which runs when the ring is read up to `after`.
  CUresult CallOverGrpc(Op op, uint16_t device, ContextId context, const void* args,
                        size_t args_bytes, std::span<const ConstBuffer> payload, uint64_t after,
                        std::string* body);
  // Waits shortly until the daemon has read all records. Returns false if it has not.
  bool AwaitRingRead() const;
  // Submits a record and waits for its reply. Returns the reply's slot, which the caller releases,
  // or kNoReply if the session is over.
  uint32_t SubmitAndWait(Op op, uint16_t device, ContextId context, const void* args,
                         uint32_t args_bytes, std::span<const ConstBuffer> payload,
                         uint32_t payload_bytes);
  // Has the daemon move text from the driver's buffer to the text ring.
  void FlushOutput();
  void DrainOutputSlowly();

  std::unique_ptr<Connection> connection_;
  uint64_t id_ = 0;
  ObjectLimits object_limits_;
  int directory_fd_ = -1;
  SessionHeader* header_ = nullptr;
  std::unique_ptr<RingWriter> ring_;
  bool launches_watched_ = false;  // beside ring_, which every launch loads
  bool launch_blocking_ = false;
  std::unique_ptr<ReplySlots> replies_;
  std::unique_ptr<FenceAllocator> fences_;
  std::byte* staging_ = nullptr;
  uint64_t staging_bytes_ = 0;
  const char* output_ = nullptr;
  uint64_t output_bytes_ = 0;
  std::mutex output_mutex_;  // held while a thread reads the text ring
  uint32_t spin_us_ = 0, wait_spin_us_ = 0;
  // Relaxed: a thread that reads it late waits once more.
  mutable std::atomic<bool> waited_for_reason_{false}, waited_for_notice_{false};
  uint64_t pinned_base_ = 0, pinned_bytes_ = 0;
  std::vector<DeviceInfo> devices_;
};

// The session. Only used while g_gate is CUDA_SUCCESS.
extern Session* g_session;
inline Session& session() { return *g_session; }

}  // namespace detshare::shim
