// Chooses which of the daemon's devices a client gets if it may have some of them and not all.
//
// A DevicePlacement (policy/placement.h) decides, and the decision holds for a placement group: the
// processes of one `detshare run`, all processes behind one tenant endpoint, or one process. So
// NVML, which needs no session, shows the devices that CUDA will have, and processes that work
// together get the same devices.
//
//   placed, no session  --session opened-->  has sessions  --last session closed-->  no session
//        |                                                                              |
//        +---- ten minutes without a question, or too many of one owner: forgotten -----+
//
// A placed group counts when the next group is placed: while its sessions are open, and for at most
// half a minute until its first session opens.
//
// This class knows no device; callers pass in memory, sessions and time. One thread at a time uses
// it.
#pragma once

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coroutine_runtime/clock.h"
#include "policy/placement.h"

namespace detshare {

// Processes that get the same devices. The client chooses `run`, so it distinguishes only processes
// of the same tenant, user and endpoint.
struct PlacementGroup {
  std::string tenant;
  uid_t uid = 0;
  std::string endpoint;  // "": the daemon's own socket
  std::string run;       // "": without an endpoint, `pid` alone makes the group
  int pid = 0;
  std::vector<int> among;  // positions of the devices that the client may see, in its order
  size_t count = 0;        // how many of them the group gets
  auto operator<=>(const PlacementGroup&) const = default;
};

// Returns whether a client may use this name of a run: "" or at most 64 letters and digits.
bool IsRunName(const std::string& run);

class SessionPlacement {
 public:
  static constexpr int64_t kComing = 30'000'000'000;  // ns from being placed to the first session
  static constexpr int64_t kRemembered = 600'000'000'000;  // ns since the last question
  // The groups that one user or one endpoint may have without a session.
  static constexpr size_t kMaxWithoutSession = 64;

  // `clock` outlives this object.
  SessionPlacement(std::unique_ptr<policy::DevicePlacement> placement, const Clock& clock)
      : placement_(std::move(placement)), clock_(clock) {}

  // Sets the placement for later decisions. Groups that are placed stay where they are.
  void SetPlacement(std::unique_ptr<policy::DevicePlacement> placement) {
    placement_ = std::move(placement);
  }

  // Returns the group's devices, in the order of `among`; null if it has none yet.
  const std::vector<int>* Find(const PlacementGroup& group);
  // All devices of the daemon.
  struct Devices {
    std::vector<policy::DeviceLoad> loads;  // with the sessions on them
    // Bytes that other processes have promised on each device (LoadBoard); empty: none. Such a
    // promise counts only if there is another way.
    std::vector<uint64_t> promised_by_others;
    // Bytes that may leave a device to make room; used only if there is no other way.
    uint64_t more_memory = 0;
  };
  // Places a group. Returns ResourceExhausted, with the reason, if fewer than `count` devices have
  // the memory.
  absl::StatusOr<std::vector<int>> Place(const PlacementGroup& group,
                                         const policy::PlacementRequest& request, Devices devices);
  // Returns when a group was last placed on the device; 0: never.
  int64_t PlacedAt(int device) const;
  // Tell that a session of the group begins or ends.
  void Opened(const PlacementGroup& group);
  void Closed(const PlacementGroup& group);

  size_t size() const { return groups_.size(); }

 private:
  struct Placed {
    std::vector<int> devices;
    policy::PlacementRequest request;
    int64_t placed_at = 0, asked_at = 0;
    size_t sessions = 0;
    bool came = false;  // it has had a session
  };

  absl::StatusOr<std::vector<int>> Choose(const PlacementGroup& group,
                                          const policy::PlacementRequest& request,
                                          std::vector<policy::DeviceLoad> devices);
  void Forget(const PlacementGroup& next, int64_t now);

  std::unique_ptr<policy::DevicePlacement> placement_;
  const Clock& clock_;
  std::map<PlacementGroup, Placed> groups_;
  std::map<int, int64_t> placed_at_;  // by device
};

}  // namespace detshare
