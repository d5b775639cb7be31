#include "server/admin_service.h"
#include "proto/version.h"

#include <unistd.h>

#include <algorithm>


namespace detshare {

grpc::ServerUnaryReactor* AdminService::GetStatus(grpc::CallbackServerContext* context,
                                                  const proto::GetStatusRequest*,
                                                  proto::Status* status) {
  status->set_version(kVersion);
  status->set_abi_version(kAbiVersion);
  status->set_uptime_ms(std::chrono::duration_cast<std::chrono::milliseconds>(
                            std::chrono::steady_clock::now() - begin_)
                            .count());
  status->set_pid(getpid());
  status->set_backend(backend_);
  status->set_policy(manager_.options().policy);
  for (size_t i = 0; i < manager_.devices().size(); ++i) {
    Device* const device = manager_.devices()[i];
    const DeviceProperties& properties = device->properties();
    const Device::Memory memory = device->memory();
    proto::DeviceStatus* const one = status->add_devices();
    one->set_name(properties.name);
    one->set_uuid(FormatUuid(properties.uuid));
    one->set_sm_count(properties.sm_count);
    one->set_total_memory(memory.total);
    one->set_used_memory(memory.total - std::min(memory.free, memory.total));
    const absl::Status health = device->health();
    one->set_state(health.ok() ? "ok" : std::string(health.message()));
    for (const DeviceScheduler::PartitionView& partition : manager_.Partitions(i)) {
      proto::PartitionStatus* const part = one->add_partitions();
      part->set_name(partition.name);
      part->set_first_sm(partition.first_sm);
      part->set_sm_count(partition.sm_count);
      part->set_sessions(static_cast<uint32_t>(partition.sessions));
    }
  }
  for (const SessionManager::SessionInfo& info : manager_.Sessions()) {
    proto::SessionStatus* const one = status->add_sessions();
    one->set_session(info.id);
    one->set_tenant(info.request.tenant);
    one->set_pid(info.request.pid);
    one->set_uid(info.request.owner.uid);
    one->set_program(info.request.program);
    one->set_age_ms(info.age_ms);
    one->set_device_memory(info.counters.device_memory);
    one->set_pinned_memory(info.counters.pinned_memory);
    one->set_operations(info.counters.operations);
    one->set_kernels(info.counters.kernels);
    one->set_bytes_copied(info.counters.bytes_copied);
    one->set_partition(info.schedule.partition);
    one->set_state(info.state);
    one->set_code_bytes(info.counters.code_bytes);
  }
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace detshare
