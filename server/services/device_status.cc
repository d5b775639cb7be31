#include "server/services/device_status.h"

#include <cuda.h>

#include <algorithm>
#include <string>

#include "coroutine_runtime/device_attributes.h"
#include "proto/device_uuid.h"
#include "server/sessions/session_manager.h"

namespace detshare {

void DescribeDevice(Device& device, proto::DeviceStatus* status) {
  const DeviceProperties& properties = device.properties();
  const Device::Memory memory = device.memory();
  status->set_name(properties.name);
  status->set_uuid(FormatUuid(properties.uuid));
  status->set_sm_count(properties.sm_count);
  status->set_compute_major(
      static_cast<uint32_t>(AttributeOf(properties, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)));
  status->set_compute_minor(
      static_cast<uint32_t>(AttributeOf(properties, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)));
  status->set_driver_version(properties.driver_version);
  status->set_total_memory(memory.total);
  status->set_used_memory(memory.total - std::min(memory.free, memory.total));
  const absl::Status health = device.health();
  status->set_state(health.ok() ? "ok" : std::string(health.message()));
  const Preemption& preemption = properties.preemption;
  status->mutable_preemption()->set_mode(preemption.mode());
  status->mutable_preemption()->set_latency_us(preemption.latency_ns / 1000);
  status->mutable_preemption()->set_memory(preemption.memory_bytes);
  status->mutable_preemption()->set_reason(preemption.reason);
  status->mutable_preemption()->set_switched_off(preemption.switched_off);
}

}  // namespace detshare
