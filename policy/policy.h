// Who runs on which SMs: a pure decision.
//
// A policy sees a snapshot and answers with a decision. It knows no clock, no device and no session
// object; the same snapshots give the same decisions. The server asks when a session opens or
// closes and carries the answer out.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace detshare::policy {

using SessionNumber = uint64_t;

// SMs [first, first + count) of a device. count 0: the whole device.
struct SmRange {
  int first = 0;
  int count = 0;
  bool whole() const { return count == 0; }
  friend bool operator==(const SmRange&, const SmRange&) = default;
};

struct DeviceShape {
  int sm_count = 0;
  int sm_group =
      1;  // partitions are made of whole groups; what makes no whole group belongs to the last one
  int groups() const { return sm_count / sm_group > 0 ? sm_count / sm_group : 1; }
  // The SMs of groups [begin, end).
  SmRange Groups(int begin, int end) const {
    const int first = begin * sm_group;
    return {first, (end == groups() ? sm_count : end * sm_group) - first};
  }
};

struct Tenant {
  std::string name;
  int sm_percent = 0;  // declared share of the SMs; 0: none declared
};

struct SessionView {
  SessionNumber session = 0;
  std::string tenant;
};

struct Snapshot {
  int64_t now_ns = 0;
  DeviceShape device;
  std::vector<SessionView> sessions;  // in the order in which they were opened
};

struct Decision {
  // One entry for every session of the snapshot. Ranges are the whole device or come from
  // Partitions().
  std::map<SessionNumber, SmRange> bindings;
};

struct Options {
  std::vector<Tenant> tenants;  // configured ones
};

class Policy {
 public:
  virtual ~Policy() = default;
  // The partitions that decisions may name. They are made when the daemon starts, since making one
  // drains the device.
  virtual std::vector<SmRange> Partitions(const DeviceShape& device) const = 0;
  virtual Decision Decide(const Snapshot& snapshot) = 0;
};

}  // namespace detshare::policy
