// Queries the host's NVML and keeps its replies for a short time.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "coroutine_runtime/host_telemetry.h"

namespace detshare {

// A reply is at most kMaxAge old. A reply that never changes is asked for once. One thread uses it.
class HostQueryCache {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::milliseconds kMaxAge{50};

  // A null `host` means that the host has no NVML: every query returns NVML_ERROR_NOT_SUPPORTED.
  HostQueryCache(std::shared_ptr<HostTelemetry> host, int devices)
      : host_(std::move(host)), devices_(devices) {}

  // Checks and makes a query. Returns NVML_ERROR_FUNCTION_NOT_FOUND if `function` is not a `host`
  // row of nvml.table. Returns NVML_ERROR_INVALID_ARGUMENT if a device does not exist or the number
  // of arguments is not that of the row.
  HostResult Ask(const std::string& function, int device, int peer,
                 const std::vector<uint32_t>& arguments, Time now);

 private:
  using Key = std::tuple<std::string, int, int, std::vector<uint32_t>>;
  struct Known {
    HostResult reply;
    Time time;
    bool fixed = false;
  };
  // Clients choose the arguments, so the number of remembered replies is bounded.
  static constexpr size_t kMaxKnown = 4096;

  const std::shared_ptr<HostTelemetry> host_;
  const int devices_;
  std::map<Key, Known> known_;
};

}  // namespace detshare
