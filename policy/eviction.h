// Whose memory leaves a full card for whom: pure decisions about one device.
//
// Sessions that need room stand in a line; one is served at a time. A session that works can be
// asked to let go of its memory, too: then it is held until it has it back, which is a request in
// the line like any other. So sessions that together exceed the card take turns:
//
//   - Whoever got room because others went keeps it for `residence` while it works.
//   - Memory of sessions that are held or idle goes first.
//   - A tenant that works and whose results somebody waits for (TenantClass::kLatency) makes room
//     only for its like.
//   - New memory makes others go only until half of the host's room is used: the other half is for
//     exchanging them later, when both are in host memory for a moment.
//   - Whoever could not let go of its memory (its work does not end) is left alone for a while.
//   - Where the host has no room for all that must go at once, memory is exchanged by parts: as much
//     goes as there is room for, then what fits comes back, which gives the host's room back.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "policy/policy.h"

namespace detshare::policy {

struct EvictionParameters {
  Nanoseconds residence = kSecond;
  Nanoseconds idle_after = 300 * kMillisecond;  // without work: shorter pauses are part of the work
  Nanoseconds refusal = 10 * kSecond;           // how long whoever could not go is left alone
  uint64_t least_bytes = uint64_t{256} << 20;   // fewer do not go at a time, if there are as many
};

// Of one session, on this device.
struct ResidentMemory {
  static constexpr Nanoseconds kNever = -kForever;

  uint64_t session = 0;
  TenantClass tenant_class = TenantClass::kUnset;
  uint64_t movable = 0;               // bytes on the card that can go
  bool held = false;                  // it waits for its memory and does nothing else
  Nanoseconds working_until = 0;      // when it had work last: now, if it has some
  Nanoseconds placed_at = kNever;     // when others went to make room for it, the last time
  Nanoseconds could_not_go = kNever;  // when it was asked to go and did not, the last time
};

struct RoomRequest {
  uint64_t session = 0;
  TenantClass tenant_class = TenantClass::kUnset;
  uint64_t bytes = 0;
  bool comes_back = false;  // for memory that the session has out; else for new memory
  Nanoseconds placed_at = ResidentMemory::kNever;  // as above
  uint64_t part = 0;  // bytes that are of use, too: the smallest part; 0: only all of them are
};

struct EvictionSnapshot {
  Nanoseconds now = 0;
  uint64_t free = 0;                       // bytes of the card
  uint64_t host_limit = 0, host_used = 0;  // bytes of host memory for what is out
  absl::Span<const ResidentMemory> residents;
  absl::Span<const RoomRequest> requests;  // in the order in which they came
};

struct EvictionDecision {
  // Which request is served, -1 for none as yet: ask again later. It has its room, or that of a
  // part, when there are no victims, and is looked at again when they are gone.
  int request = -1;
  struct Victim {
    size_t resident = 0;  // position in the snapshot
    uint64_t bytes = 0;
  };
  std::vector<Victim> victims;
  // Requests for which there would be no room even if everybody went who may.
  std::vector<size_t> hopeless;
};

EvictionDecision Evict(const EvictionSnapshot& snapshot, const EvictionParameters& parameters);

}  // namespace detshare::policy
