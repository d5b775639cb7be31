#include "tools/detsharectl/status.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_join.h"
#include "proto/owner.h"
#include "tools/detsharectl/json_text.h"
#include "tools/detsharectl/owner_json.h"
#include "tools/detsharectl/sessions.h"
#include "tools/text/table.h"

namespace detshare::ctl {
namespace {

using nlohmann::ordered_json;
using text::Bytes;
using text::Count;
using text::Duration;

std::string OfLimit(const std::string& used, uint64_t limit, const std::string& limit_text) {
  return limit == 0 ? used : used + " of " + limit_text;
}

// "time-slice groups, 190 us", "none".
std::string PreemptionText(const proto::DeviceStatus& device) {
  const int64_t latency = device.preemption().latency_us();
  const std::string mode = PreemptionMode(device);
  return latency == 0 ? mode : mode + ", " + std::to_string(latency) + " us";
}

// The tenants that have a limit. Memory is shown for the device on which a tenant uses most.
std::string TenantsText(const proto::Status& status, size_t width) {
  text::Table table({"TENANT", "MEMORY", "PINNED", "SESSIONS", "REFUSALS"});
  bool any = false;
  for (const proto::TenantUse& tenant : status.tenants()) {
    if (tenant.memory_limit() == 0 && tenant.pinned_limit() == 0 && tenant.sessions_limit() == 0)
      continue;
    any = true;
    uint64_t memory = 0;
    for (const uint64_t used : tenant.memory_used()) memory = std::max(memory, used);
    table.Add(
        {tenant.name(), OfLimit(Bytes(memory), tenant.memory_limit(), Bytes(tenant.memory_limit())),
         OfLimit(Bytes(tenant.pinned_used()), tenant.pinned_limit(), Bytes(tenant.pinned_limit())),
         OfLimit(Count(tenant.sessions_used()), tenant.sessions_limit(),
                 Count(tenant.sessions_limit())),
         Count(tenant.refusals())});
  }
  return any ? "\n" + table.ToString(0, width) : "";
}

// "0,1": positions in the list of devices.
std::string Positions(const google::protobuf::RepeatedField<uint32_t>& devices) {
  return devices.empty() ? "-" : absl::StrJoin(devices, ",");
}

// The engines, if programs are isolated from each other, and the spare ones.
std::string EnginesText(const proto::Status& status, size_t width) {
  text::Table table({"GROUP", "PID", "VERSION", "DEVICES", "SESSIONS", "MEMORY",
                     "ADMINISTER WITH --socket", "STATE"});
  bool isolated = false;
  for (const proto::EngineStatus& engine : status.engines()) {
    isolated = isolated || !engine.group().empty();
    table.Add({engine.group(), std::to_string(engine.pid()), engine.version(),
               Positions(engine.devices()), Count(engine.sessions()), Bytes(engine.device_memory()),
               engine.socket(), engine.problem().empty() ? "ok" : engine.problem()});
  }
  // Shortened paths are of no use, and look the same for all engines.
  table.KeepWhole("ADMINISTER WITH --socket");
  table.MayDrop({"ADMINISTER WITH --socket", "VERSION"});
  std::string text = isolated ? "\n" + table.ToString(0, width) : "";
  if (!status.spare_engines().empty())
    text += "\nSpare engines: pid " + absl::StrJoin(status.spare_engines(), ", ") + "\n";
  return text;
}

}  // namespace

std::string DevicesText(const proto::SessionStatus& session) {
  return Positions(session.devices());
}

bool AnyOwner(const proto::Status& status) {
  const auto has_owner = [](const auto& one) { return !IsEmpty(one.owner()); };
  return std::any_of(status.sessions().begin(), status.sessions().end(), has_owner) ||
         std::any_of(status.tenants().begin(), status.tenants().end(), has_owner);
}

std::string PartitionText(const proto::SessionStatus& session) {
  return session.partition() + (session.bound() ? " (bound)" : "");
}

std::string PreemptionMode(const proto::DeviceStatus& device) {
  return device.preemption().mode().empty() ? "none" : device.preemption().mode();
}

std::string StatusText(const proto::Status& status, size_t width) {
  std::string out = "detshared " + status.version() + ", pid " + std::to_string(status.pid()) +
                    ", up " + Duration(status.uptime_ms()) + ", backend " + status.backend() +
                    ", policy " + status.policy() + "\n\n";
  text::Table devices({"DEVICE", "NAME", "SMS", "MEMORY USED", "OF", "PREEMPTION", "STATE"});
  for (int i = 0; i < status.devices_size(); ++i) {
    const proto::DeviceStatus& device = status.devices(i);
    devices.Add({std::to_string(i), device.name(), std::to_string(device.sm_count()),
                 Bytes(device.used_memory()), Bytes(device.total_memory()), PreemptionText(device),
                 device.state()});
  }
  out += devices.ToString(0, width);
  for (int i = 0; i < status.devices_size(); ++i) {
    const std::string& reason = status.devices(i).preemption().reason();
    if (!reason.empty())
      out += "\nDevice " + std::to_string(i) + " has no preemption: " + reason + "\n";
    if (status.devices(i).beside_native()) {
      out +=
          "\nDevice " + std::to_string(i) +
          " also runs programs outside of DetShare. Tenants take turns with them, so latencies are "
          "higher.\n";
    }
  }
  if (status.swap_limit() != 0) {
    out += "\nDevice memory in host memory: " + Bytes(status.swap_used()) + " of at most " +
           Bytes(status.swap_limit()) + "\n";
  }
  out += EnginesText(status, width);
  out += TenantsText(status, width);
  if (status.sessions_size() == 0) return out + "\n" + NoSessionsText(status);
  text::Table sessions({"SESSION", "TENANT", "OWNER", "PID", "PROGRAM", "DEVICES", "PARTITION",
                        "MEMORY", "OUT", "PINNED", "OPERATIONS", "KERNELS", "COPIED", "AGE",
                        "STATE"});
  for (const proto::SessionStatus& session : status.sessions()) {
    sessions.Add({std::to_string(session.session()), session.tenant(), OwnerText(session.owner()),
                  session.pid() == 0 ? "-" : std::to_string(session.pid()),
                  text::Program(session.program()), DevicesText(session), PartitionText(session),
                  Bytes(session.device_memory()), Bytes(session.swap().out()),
                  Bytes(session.pinned_memory()), Count(session.operations()),
                  Count(session.kernels()), Bytes(session.bytes_copied()),
                  Duration(session.age_ms()), session.state()});
  }
  if (!AnyOwner(status)) sessions.Drop("OWNER");
  sessions.MayDrop(
      {"COPIED", "KERNELS", "OUT", "PINNED", "OPERATIONS", "AGE", "DEVICES", "PARTITION"});
  return out + "\n" + sessions.ToString(0, width);
}

std::string SilentEnginesText(const proto::Status& status) {
  std::string out;
  for (const proto::EngineStatus& engine : status.engines()) {
    if (engine.problem().empty()) continue;
    out += "detsharectl: the engine of isolation group " + engine.group() +
           " is not shown: " + engine.problem() + "\n";
  }
  return out;
}

std::string StatusJson(const proto::Status& status) {
  ordered_json devices = ordered_json::array();
  for (const proto::DeviceStatus& device : status.devices()) {
    ordered_json partitions = ordered_json::array();
    for (const proto::PartitionStatus& partition : device.partitions()) {
      partitions.push_back({{"name", partition.name()},
                            {"first_sm", partition.first_sm()},
                            {"sm_count", partition.sm_count()},
                            {"sessions", partition.sessions()}});
    }
    devices.push_back({{"name", device.name()},
                       {"uuid", device.uuid()},
                       {"sm_count", device.sm_count()},
                       {"total_memory", device.total_memory()},
                       {"used_memory", device.used_memory()},
                       {"partitions", std::move(partitions)},
                       {"preemption", PreemptionMode(device)},
                       {"preemption_us", device.preemption().latency_us()},
                       {"preemption_memory", device.preemption().memory()},
                       {"preemption_reason", device.preemption().reason()},
                       {"beside_native", device.beside_native()},
                       {"state", device.state()}});
  }
  ordered_json sessions = ordered_json::array();
  for (const proto::SessionStatus& session : status.sessions()) {
    sessions.push_back(
        {{"session", session.session()},
         {"tenant", session.tenant()},
         {"endpoint", session.endpoint()},
         {"owner", OwnerJson(session.owner())},
         {"pid", session.pid()},
         {"uid", session.uid()},
         {"program", session.program()},
         {"age_ms", session.age_ms()},
         {"device_memory", session.device_memory()},
         {"pinned_memory", session.pinned_memory()},
         {"operations", session.operations()},
         {"kernels", session.kernels()},
         {"bytes_copied", session.bytes_copied()},
         {"code_bytes", session.code_bytes()},
         {"swap",
          {{"out", session.swap().out()},
           {"bytes_out", session.swap().bytes_out()},
           {"bytes_in", session.swap().bytes_in()},
           {"moves", session.swap().moves()},
           {"time_us", session.swap().time_us()}}},
         {"devices", std::vector<uint32_t>(session.devices().begin(), session.devices().end())},
         {"partition", session.partition()},
         {"bound", session.bound()},
         {"state", session.state()}});
  }
  ordered_json tenants = ordered_json::array();
  for (const proto::TenantUse& tenant : status.tenants()) {
    tenants.push_back({{"name", tenant.name()},
                       {"owner", OwnerJson(tenant.owner())},
                       {"memory_limit", tenant.memory_limit()},
                       {"memory_used", std::vector<uint64_t>(tenant.memory_used().begin(),
                                                             tenant.memory_used().end())},
                       {"pinned_limit", tenant.pinned_limit()},
                       {"pinned_used", tenant.pinned_used()},
                       {"sessions_limit", tenant.sessions_limit()},
                       {"sessions_used", tenant.sessions_used()},
                       {"devices_limit", tenant.devices_limit()},
                       {"refusals", tenant.refusals()}});
  }
  ordered_json engines = ordered_json::array();
  for (const proto::EngineStatus& engine : status.engines()) {
    engines.push_back(
        {{"group", engine.group()},
         {"pid", engine.pid()},
         {"version", engine.version()},
         {"devices", std::vector<uint32_t>(engine.devices().begin(), engine.devices().end())},
         {"sessions", engine.sessions()},
         {"device_memory", engine.device_memory()},
         {"socket", engine.socket()},
         {"problem", engine.problem()}});
  }
  const ordered_json out = {{"version", status.version()},
                            {"abi_version", status.abi_version()},
                            {"uptime_ms", status.uptime_ms()},
                            {"pid", status.pid()},
                            {"backend", status.backend()},
                            {"policy", status.policy()},
                            {"swap_limit", status.swap_limit()},
                            {"swap_used", status.swap_used()},
                            {"engines", std::move(engines)},
                            {"spare_engines", std::vector<int32_t>(status.spare_engines().begin(),
                                                                   status.spare_engines().end())},
                            {"tenants", std::move(tenants)},
                            {"devices", std::move(devices)},
                            {"sessions", std::move(sessions)}};
  // A client chooses its program's name, which can have any bytes. The output is JSON all the same.
  return JsonText(out);
}

}  // namespace detshare::ctl
