// The events of a trace.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace detshare {

struct TraceEvent {
  enum class Kind : uint8_t {
    kOperation,   // ran on the device from `at` on
    kMigration,   // a stream moved to another partition, at `at`
    kThrottled,   // nothing was submitted to the hardware from `at` on, because of `cause`
    kWait,        // the client asked to be notified of a completion, at `at`
    kCollection,  // from `at` on, operations were left with the client, to be submitted together
  };
  // Causes of migrations.
  enum Migration : uint8_t {
    kOtherPartition,  // the scheduler named another partition of the same time-slice group
    kPreempts,        // to the urgent group
    kBackToOrdinary,  // to the ordinary group
  };
  Kind kind = Kind::kOperation;
  uint8_t cause = 0;      // of kThrottled: as SchedEntity::Cause; of kMigration: as Migration
  bool urgent = false;    // of kOperation: the partition is that of the urgent time-slice group
  uint16_t first_sm = 0;  // of the partition
  uint16_t sm_count = 0;
  uint32_t name = 0;      // of kOperation, see FetchedTrace
  uint64_t stream = 0;    // the session's stream
  int64_t at = 0;         // nanoseconds of the daemon's clock
  int64_t duration = 0;   // nanoseconds; 0 for a point
  int64_t submitted = 0;  // of kOperation: when it was submitted to the hardware
};

struct FetchedTrace {
  std::vector<TraceEvent> events;  // as they were added
  // The names of numbers that were not fetched before.
  std::vector<std::pair<uint32_t, std::string>> names;
  uint64_t lost = 0;  // since the last fetch
};

}  // namespace detshare
