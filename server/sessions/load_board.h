// Shows other processes on the same devices which sessions this one has on each, so that a session goes
// to the device that has the least to do, whichever process the others are in.
//
// Threading: one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "coroutine_runtime/engine_page.h"
#include "policy/placement.h"

namespace detshare {

class LoadBoard {
 public:
  // What one process has on one device.
  struct Load {
    std::vector<policy::PlacementRequest> sessions;
    uint64_t promised = 0;              // bytes that tenants were promised and do not use yet
    policy::Nanoseconds placed_at = 0;  // as in policy::DeviceLoad
  };

  // Both null: there is no other process. They outlive the object.
  LoadBoard(EnginePage* own, const EnginePeers* peers) : own_(own), peers_(peers) {}

  // Whether other processes may be there.
  bool shared() const { return own_ != nullptr; }
  // Publishes what this process has on each device. Of many sessions, the first ones.
  void Publish(const std::vector<Load>& devices);
  // Adds the sessions of other processes, and when they placed them, to the load of each device.
  // Returns the memory that they promised, in bytes for each device.
  std::vector<uint64_t> AddOthers(std::vector<policy::DeviceLoad>* devices) const;

 private:
  EnginePage* const own_;
  const EnginePeers* const peers_;
};

}  // namespace detshare
