// The host's NVML, asked no more often than necessary.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "coroutine_runtime/host_telemetry.h"

namespace detshare {

// One thread. A reply is at most kMaxAge old, and one that never changes is asked for once.
class HostQueryCache {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::milliseconds kMaxAge{50};

  // `host` null: there is none, and everything is NVML_ERROR_NOT_SUPPORTED.
  HostQueryCache(std::shared_ptr<HostTelemetry> host, int devices)
      : host_(std::move(host)), devices_(devices) {}

  // Checks the question: NVML_ERROR_FUNCTION_NOT_FOUND for a function that is no `host` row of
  // nvml.table, NVML_ERROR_INVALID_ARGUMENT for a device that does not exist or another number of
  // arguments than the row has.
  HostResult Ask(const std::string& function, int device, int peer,
                 const std::vector<uint32_t>& arguments, Time now);

 private:
  using Key = std::tuple<std::string, int, int, std::vector<uint32_t>>;
  struct Known {
    HostResult reply;
    Time time;
    bool fixed = false;
  };
  // Clients choose the arguments, so there is a limit to what is remembered.
  static constexpr size_t kMaxKnown = 4096;

  const std::shared_ptr<HostTelemetry> host_;
  const int devices_;
  std::map<Key, Known> known_;
};

}  // namespace detshare
