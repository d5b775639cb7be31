// Shows a process the memory on one device that sessions of other processes have, and the requests for
// room that they wait for; and shows others its own.
//
//     process A: has no room --publishes its request, wakes the others--> decides (policy::Evict)
//     process B: wakes --publishes its sessions, reads the request------> decides (policy::Evict)
//
// All processes decide by the same function about nearly the same words. So they agree on the request
// that is served and on the sessions that make room. Each process gives orders to its own sessions
// only: nobody can take memory away from sessions of another process. While words differ for a
// moment, too much or nothing is evicted, and the next decision mends that.
//
// Threading: one thread at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "coroutine_runtime/engine_page.h"
#include "policy/eviction.h"

namespace detshare {

// What is known about one device's memory.
struct RoomView {
  struct Request {
    policy::RoomRequest room;
    policy::Nanoseconds asked_at = 0;
    bool granted = false;  // its session maps the memory now
  };
  std::vector<policy::ResidentMemory> residents;
  std::vector<Request> requests;
  bool more_comes = false;  // memory of a session that ends or is evicted will become free
};

class RoomBoard {
 public:
  // `device` is the device's number in the pages. `own` are this process's words for it. `wake` lets
  // the other processes look at the board soon (MemoryBroker::Look()), and does not wait. All
  // references outlive the object.
  RoomBoard(RoomWords& own, const EnginePeers& peers, size_t device, std::function<void()> wake)
      : own_(own), peers_(peers), device_(device), wake_(std::move(wake)) {}

  // Publishes what this process knows at `now`: of many residents those that are evicted first.
  void Publish(RoomView own, policy::Nanoseconds now);
  // Returns what the other processes have published. `looked_at` becomes the time when the one that
  // looked longest ago did; policy::kForever if there is no other process.
  RoomView Others(policy::Nanoseconds* looked_at) const;
  void WakeOthers() const { wake_(); }

 private:
  RoomWords& own_;
  const EnginePeers& peers_;
  const size_t device_;
  const std::function<void()> wake_;
};

}  // namespace detshare
