// How much host memory the session's queued work takes, and whether the session may submit more.
//
// A client can submit work faster than the device does it, for example behind a host function that
// does not return. While the queued work takes too much memory, the worker reads no further records.
// The ring fills, and the client waits for room in it, as a program waits for room in the driver's
// queues. Work that the client releases without the ring (host functions) goes on meanwhile.
//
// Threading: the session's worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "coroutine_runtime/quota.h"
#include "server/session/session_device.h"

namespace detshare {

class Backlog {
 public:
  // A session may have this much waiting even if others of its tenant have used up the tenant's
  // room, because they may wait for this session.
  static constexpr uint64_t kAlwaysAllowed = 1 << 20;
  // A task that waits for the device counts as so many bytes. It takes some hundred, but the worker
  // looks at each one again and again. A client has 256 reply slots, so it has few such waits.
  static constexpr uint64_t kWaitBytes = 16 << 10;

  // `limit`: of the session, in bytes. `tenant`: all of the tenant's sessions; null: no limit.
  // `devices` outlives this object.
  Backlog(const std::vector<SessionDevice>& devices, uint64_t limit, std::shared_ptr<Quota> tenant);

  // Counts what is queued now, and returns whether the worker may read more records. `waits`: the
  // tasks of the session that wait (Executor::waiting).
  bool HasRoom(size_t waits);
  // The largest amount that HasRoom() counted since the last call of this function.
  uint64_t TakePeak();

 private:
  const std::vector<SessionDevice>& devices_;
  const uint64_t limit_;
  const std::shared_ptr<Quota> tenant_;
  QuotaCharge charge_;
  uint64_t peak_ = 0;
};

}  // namespace detshare
