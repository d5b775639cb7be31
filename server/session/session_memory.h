// The memory of one session: on its devices, on the host, and shared with other processes.
//
// Threading: the session's worker.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"

namespace detshare {

class IpcMemory;
class ManagedRanges;
class PeerAccess;
class PinnedMemory;
class SharedRegion;
class VirtualMemory;
struct ServerOptions;
struct SessionConfig;
struct SessionDevice;

class SessionMemory {
 public:
  // `devices` must keep its size. Its address spaces and coroutines must exist before the first
  // call of a function below.
  SessionMemory(const SessionConfig& config, const ServerOptions& options, SharedRegion& region,
                std::vector<SessionDevice>& devices);
  ~SessionMemory();
  SessionMemory(const SessionMemory&) = delete;
  SessionMemory& operator=(const SessionMemory&) = delete;

  PinnedMemory& pinned() { return *pinned_; }
  const PinnedMemory& pinned() const { return *pinned_; }
  ManagedRanges& managed() { return *managed_; }
  const ManagedRanges& managed() const { return *managed_; }
  VirtualMemory& virtual_memory() { return *virtual_memory_; }
  const VirtualMemory& virtual_memory() const { return *virtual_memory_; }
  IpcMemory& ipc() { return *ipc_; }
  PeerAccess& peer_access() { return *peer_access_; }

  // Returns a device whose work may read the range, and write it when `write` is true. Prefers
  // `here`. nullptr when there is none.
  SessionDevice* DeviceOf(SessionDevice& here, uint64_t address, uint64_t bytes, bool write);
  // Checks that [offset, offset + bytes) of the staging area can be used. The first use of the late
  // part of the area registers that part with the devices. CUDA_ERROR_INVALID_VALUE for a wrong
  // range, CUDA_ERROR_OUT_OF_MEMORY, or the device's error.
  absl::Status UseStaging(uint64_t offset, uint64_t bytes);

  // Releases the virtual and IPC memory on the devices. Call it when all work is complete, before
  // the devices' own memory is destroyed.
  void EndOnDevices();

 private:
  SharedRegion& region_;
  std::vector<SessionDevice>& devices_;
  const std::unique_ptr<PinnedMemory> pinned_;
  const std::unique_ptr<ManagedRanges> managed_;
  const std::unique_ptr<PeerAccess> peer_access_;
  std::unique_ptr<VirtualMemory> virtual_memory_;
  std::unique_ptr<IpcMemory> ipc_;
  bool late_staging_registered_ = false;
};

}  // namespace detshare
