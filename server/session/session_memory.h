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
class PeerAccess;
class PinnedMemory;
class SharedRegion;
class VirtualMemory;
struct ServerOptions;
struct SessionConfig;
struct SessionDevice;

class SessionMemory {
 public:
  // `devices` never changes in size, and has its spaces and coroutines when the first of the
  // functions below is called.
  SessionMemory(const SessionConfig& config, const ServerOptions& options, SharedRegion& region,
                std::vector<SessionDevice>& devices);
  ~SessionMemory();
  SessionMemory(const SessionMemory&) = delete;
  SessionMemory& operator=(const SessionMemory&) = delete;

  PinnedMemory& pinned() { return *pinned_; }
  const PinnedMemory& pinned() const { return *pinned_; }
  VirtualMemory& virtual_memory() { return *virtual_memory_; }
  const VirtualMemory& virtual_memory() const { return *virtual_memory_; }
  IpcMemory& ipc() { return *ipc_; }
  PeerAccess& peer_access() { return *peer_access_; }

  // The device whose work may read (and write) the range, `here` first; nullptr when none may.
  SessionDevice* DeviceOf(SessionDevice& here, uint64_t address, uint64_t bytes, bool write);
  // Whether [offset, offset + bytes) of the staging area can be used. Makes the devices reach the
  // rest of the area when it is first used.
  absl::Status UseStaging(uint64_t offset, uint64_t bytes);

  // All work is complete: what lies in the devices' own memory ends before that does.
  void EndOnDevices();

 private:
  SharedRegion& region_;
  std::vector<SessionDevice>& devices_;
  const std::unique_ptr<PinnedMemory> pinned_;
  const std::unique_ptr<PeerAccess> peer_access_;
  std::unique_ptr<VirtualMemory> virtual_memory_;
  std::unique_ptr<IpcMemory> ipc_;
  bool late_staging_registered_ = false;
};

}  // namespace detshare
