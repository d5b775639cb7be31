// Which of the daemon's devices a client gets, when it may have some of them and not all.
//
// A DevicePlacement (policy/placement.h) decides. What it decided holds for all who belong
// together: the processes of one `detshare run`, whoever comes through one endpoint, and otherwise one
// process. So NVML, which needs no session, shows the devices that CUDA will have, and processes
// that work together find each other on the same ones.
//
//   placed, nobody there  --session opened-->  there  --last session closed-->  nobody there
//        |                                                                          |
//        +--- ten minutes in which nobody asked, or too many of one owner: forgotten +
//
// What was placed counts for those who are placed next: its sessions while they are open, and until
// the first one opens itself, for half a minute.
//
// Knows no device: memory, sessions and time are passed in. One thread at a time.
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

// Those who get the same devices. `run` is the client's own word: it tells its processes apart from
// others of the same tenant, user and endpoint, and nobody else's.
struct PlacementGroup {
  std::string tenant;
  uid_t uid = 0;
  std::string endpoint;  // "": the daemon's own socket
  std::string run;   // "": `pid` says who belongs together, if there is no endpoint
  int pid = 0;
  std::vector<int> among;  // positions of the devices that it may see, in its order
  size_t count = 0;        // how many of them it gets
  auto operator<=>(const PlacementGroup&) const = default;
};

// What a client may say of itself there: "" or at most 64 letters and digits.
bool IsRunName(const std::string& run);

class SessionPlacement {
 public:
  static constexpr int64_t kComing = 30'000'000'000;       // ns, from being placed to a session
  static constexpr int64_t kRemembered = 600'000'000'000;  // ns, since somebody asked
  // Of one user, or one endpoint, without a session.
  static constexpr size_t kMaxWithoutSession = 64;

  // The clock outlives it.
  SessionPlacement(std::unique_ptr<policy::DevicePlacement> placement, const Clock& clock)
      : placement_(std::move(placement)), clock_(clock) {}

  // Decides from now on; what is placed stays where it is.
  void SetPlacement(std::unique_ptr<policy::DevicePlacement> placement) {
    placement_ = std::move(placement);
  }

  // The placement group's devices, in the order of `among`; null when it has none yet.
  const std::vector<int>* Find(const PlacementGroup& group);
  // Gives it some. `devices`: all of the daemon's, with the sessions that are there. `more_memory`:
  // bytes that may leave a device to make room, which is used only where there is no other way.
  // ResourceExhausted, with the reason, when fewer than `count` devices have the memory.
  absl::StatusOr<std::vector<int>> Place(const PlacementGroup& group,
                                         const policy::PlacementRequest& request,
                                         std::vector<policy::DeviceLoad> devices,
                                         uint64_t more_memory);
  // A session of the placement group begins and ends.
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
};

}  // namespace detshare
