// Takes the place of NVML on a host with software GPUs. Returns the properties of the devices,
// which have no sensors, fans, power or links. Queries for these return NVML_ERROR_NOT_SUPPORTED.
#pragma once

#include <utility>
#include <vector>

#include "coroutine_runtime/device.h"
#include "coroutine_runtime/host_telemetry.h"

namespace detshare::soft {

class SoftTelemetry final : public HostTelemetry {
 public:
  explicit SoftTelemetry(std::vector<DeviceProperties> devices) : devices_(std::move(devices)) {}
  HostResult Ask(const HostQuestion& question) override;

 private:
  const std::vector<DeviceProperties> devices_;
};

}  // namespace detshare::soft
