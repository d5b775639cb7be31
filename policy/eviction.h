// Chooses the sessions whose memory leaves a full card, so that another session gets room. Evict()
// is a pure function of one device's state.
//
// Sessions that need room wait in a line, and one request is served at a time. A session that works
// can be evicted, too. It then waits for its memory, with a request in the line like any other. So
// sessions that together exceed the card take turns:
//
//   - A session for which others were evicted keeps its memory for `residence` while it works.
//   - Memory of sessions that wait for their memory or are idle goes first.
//   - A latency tenant (TenantClass::kLatency) that works makes room only for other latency
//     tenants.
//   - Requests for new memory may fill half of the host's room with evicted memory. The other half
//     is for later exchanges, in which both sides are in host memory for a moment.
//   - A session that could not let go of its memory, because its work did not end, is left alone
//     for a while.
//   - If the host has no room for all memory that must go at once, memory is exchanged by parts: as
//     much goes as the host has room for; then what fits comes back, which frees room on the host.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "policy/policy.h"

namespace detshare::policy {

struct EvictionParameters {
  Nanoseconds residence = kSecond;
  // A session is idle after this time without work. Shorter pauses are part of its work.
  Nanoseconds idle_after = 300 * kMillisecond;
  Nanoseconds refusal = 10 * kSecond;        // how long a session that did not go is left alone
  uint64_t min_bytes = uint64_t{256} << 20;  // a move has at least as many, if the session has
};

// The memory of one session on this device.
struct ResidentMemory {
  static constexpr Nanoseconds kNever = -kForever;

  uint64_t session = 0;
  TenantClass tenant_class = TenantClass::kUnset;
  uint64_t movable = 0;               // bytes on the card that can leave it
  bool blocked = false;               // the session waits for its memory and does nothing else
  Nanoseconds working_until = 0;      // when it last had work; now, if it has some
  Nanoseconds placed_at = kNever;     // when sessions were last evicted to make room for it
  Nanoseconds could_not_go = kNever;  // when it last was asked to go and did not
};

struct RoomRequest {
  uint64_t session = 0;
  TenantClass tenant_class = TenantClass::kUnset;
  uint64_t bytes = 0;
  bool comes_back = false;  // true: for memory of the session that is out; false: for new memory
  Nanoseconds placed_at = ResidentMemory::kNever;  // as in ResidentMemory
  // The smallest part of the memory, in bytes, that is of use by itself; 0: only all of it is.
  uint64_t part = 0;
};

struct EvictionSnapshot {
  Nanoseconds now = 0;
  uint64_t free = 0;                       // bytes that are free on the card
  uint64_t host_limit = 0, host_used = 0;  // bytes of host memory for memory that is out
  absl::Span<const ResidentMemory> residents;
  absl::Span<const RoomRequest> requests;  // in the order in which they came
};

struct EvictionDecision {
  // The index of the request that is served; -1: none yet, ask again later. Without victims, there
  // is room for the request or for a part of it. With victims, ask again when they are gone.
  int request = -1;
  struct Victim {
    size_t resident = 0;  // index into the snapshot's residents
    uint64_t bytes = 0;   // to evict
  };
  std::vector<Victim> victims;
  // Indices of requests that would have no room even if all memory left that may leave for them.
  std::vector<size_t> hopeless;
};

EvictionDecision Evict(const EvictionSnapshot& snapshot, const EvictionParameters& parameters);

}  // namespace detshare::policy
