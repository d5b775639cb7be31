#include "tools/detsharectl/sessions.h"

#include <pwd.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/owner.h"
#include "tools/detsharectl/json_text.h"
#include "tools/detsharectl/owner_json.h"
#include "tools/detsharectl/status.h"
#include "tools/text/table.h"

namespace detshare::ctl {
namespace {

using nlohmann::ordered_json;
using text::Bytes;
using text::Count;
using text::Duration;

std::string UserName(uint32_t uid) {
  passwd entry;
  passwd* found = nullptr;
  char buffer[4096];
  if (getpwuid_r(uid, &entry, buffer, sizeof(buffer), &found) == 0 && found != nullptr)
    return found->pw_name;
  return absl::StrCat(uid);
}

struct TenantUse {
  proto::Owner owner;
  std::string tenant_class = "unset";
  double weight = 1;
  uint64_t sessions = 0, device_memory = 0, pinned_memory = 0, operations = 0, kernels = 0,
           bytes_copied = 0, migrations = 0;
};

std::map<std::string, TenantUse> Add(const proto::Status& status, const proto::Tenants& tenants) {
  std::map<std::string, TenantUse> uses;
  for (const proto::TenantSetting& tenant : tenants.tenants()) {
    TenantUse& use = uses[tenant.name()];
    use.tenant_class = tenant.tenant_class();
    use.weight = tenant.weight();
  }
  for (const proto::SessionStatus& session : status.sessions()) {
    TenantUse& use = uses[session.tenant()];
    ++use.sessions;
    use.device_memory += session.device_memory();
    use.pinned_memory += session.pinned_memory();
    use.operations += session.operations();
    use.kernels += session.kernels();
    use.bytes_copied += session.bytes_copied();
    use.migrations += session.migrations();
  }
  for (const proto::TenantUse& tenant : status.tenants()) {
    const auto found = uses.find(tenant.name());
    if (found != uses.end()) found->second.owner = tenant.owner();
  }
  return uses;
}

}  // namespace

std::string NoSessionsText(const proto::Status& status) {
  const bool silent =
      std::any_of(status.engines().begin(), status.engines().end(),
                  [](const proto::EngineStatus& engine) { return !engine.problem().empty(); });
  return silent ? "No sessions in engines that reply.\n" : "No sessions.\n";
}

std::string SessionsText(const proto::Status& status, size_t width) {
  if (status.sessions_size() == 0) return NoSessionsText(status);
  text::Table table({"SESSION", "TENANT", "OWNER", "USER", "PID", "PROGRAM", "DEVICES", "PARTITION",
                     "MEMORY", "PINNED", "OPERATIONS", "MIGRATIONS", "AGE", "STATE"});
  for (const proto::SessionStatus& session : status.sessions()) {
    table.Add({absl::StrCat(session.session()), session.tenant(), OwnerText(session.owner()),
               UserName(session.uid()), session.pid() == 0 ? "-" : absl::StrCat(session.pid()),
               text::Program(session.program()), DevicesText(session), PartitionText(session),
               Bytes(session.device_memory()), Bytes(session.pinned_memory()),
               Count(session.operations()), Count(session.migrations()), Duration(session.age_ms()),
               session.state()});
  }
  if (!AnyOwner(status)) table.Drop("OWNER");
  table.MayDrop({"MIGRATIONS", "PINNED", "AGE", "OPERATIONS", "DEVICES", "USER", "PARTITION"});
  return table.ToString(0, width);
}

std::string SessionsJson(const proto::Status& status) {
  return JsonText(ordered_json::parse(StatusJson(status))["sessions"]);
}

std::string TenantUseText(const proto::Status& status, const proto::Tenants& tenants,
                          size_t width) {
  const std::map<std::string, TenantUse> uses = Add(status, tenants);
  if (uses.empty()) return "No tenant has sessions or settings.\n";
  text::Table table({"TENANT", "OWNER", "CLASS", "WEIGHT", "SESSIONS", "MEMORY", "PINNED",
                     "OPERATIONS", "KERNELS", "COPIED", "MIGRATIONS"});
  for (const auto& [name, use] : uses) {
    table.Add({name, OwnerText(use.owner), use.tenant_class, absl::StrCat(use.weight),
               absl::StrCat(use.sessions), Bytes(use.device_memory), Bytes(use.pinned_memory),
               Count(use.operations), Count(use.kernels), Bytes(use.bytes_copied),
               Count(use.migrations)});
  }
  if (!AnyOwner(status)) table.Drop("OWNER");
  table.MayDrop({"MIGRATIONS", "COPIED", "PINNED", "KERNELS", "WEIGHT"});
  return table.ToString(0, width);
}

std::string TenantUseJson(const proto::Status& status, const proto::Tenants& tenants) {
  ordered_json list = ordered_json::array();
  for (const auto& [name, use] : Add(status, tenants)) {
    list.push_back({{"name", name},
                    {"owner", OwnerJson(use.owner)},
                    {"class", use.tenant_class},
                    {"weight", use.weight},
                    {"sessions", use.sessions},
                    {"device_memory", use.device_memory},
                    {"pinned_memory", use.pinned_memory},
                    {"operations", use.operations},
                    {"kernels", use.kernels},
                    {"bytes_copied", use.bytes_copied},
                    {"migrations", use.migrations}});
  }
  return JsonText(list);
}

std::string PartitionsText(const proto::Status& status, bool all, size_t width) {
  text::Table table({"DEVICE", "NAME", "PARTITION", "FIRST SM", "SMS", "SESSIONS"});
  uint64_t empty = 0;
  for (int i = 0; i < status.devices_size(); ++i) {
    for (const proto::PartitionStatus& partition : status.devices(i).partitions()) {
      if (!all && partition.sessions() == 0) {
        ++empty;
        continue;
      }
      table.Add({absl::StrCat(i), status.devices(i).name(), partition.name(),
                 absl::StrCat(partition.first_sm()), absl::StrCat(partition.sm_count()),
                 absl::StrCat(partition.sessions())});
    }
  }
  std::string out = absl::StrCat("policy ", status.policy(), "\n");
  if (!table.empty()) absl::StrAppend(&out, "\n", table.ToString(0, width));
  if (empty != 0) {
    absl::StrAppend(&out, "\n", text::Counted(empty, "partition"),
                    " without sessions: see partitions --all\n");
  }
  return out;
}

std::string PartitionsJson(const proto::Status& status) {
  ordered_json list = ordered_json::array();
  const ordered_json all = ordered_json::parse(StatusJson(status));
  for (size_t i = 0; i < all["devices"].size(); ++i) {
    for (const ordered_json& partition : all["devices"][i]["partitions"]) {
      ordered_json one = {{"device", i}};
      one.update(partition);
      list.push_back(std::move(one));
    }
  }
  return JsonText(list);
}

absl::StatusOr<proto::EndSessionsRequest> ToEndRequest(const std::vector<std::string>& who,
                                                       const std::string& tenant) {
  proto::EndSessionsRequest request;
  if (!tenant.empty()) {
    if (!who.empty()) return absl::InvalidArgumentError("name either sessions or a tenant");
    request.set_tenant(tenant);
    return request;
  }
  for (const std::string& text : who) {
    uint64_t id = 0;
    if (absl::SimpleAtoi(text, &id) && id != 0) {
      request.add_sessions(id);
    } else if (who.size() == 1) {
      request.set_tenant(text);
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", text,
                       "\" is not the number of a session; to end the sessions of a tenant, name "
                       "only this tenant"));
    }
  }
  if (who.empty()) {
    return absl::InvalidArgumentError(
        "name the sessions: detsharectl sessions kill SESSION..., or TENANT, or --tenant TENANT");
  }
  return request;
}

std::string EndedText(const proto::EndedSessions& ended) {
  return absl::StrCat(ended.sessions_size() == 1 ? "session " : "sessions ",
                      absl::StrJoin(ended.sessions(), ", "),
                      ended.sessions_size() == 1 ? " ends\n" : " end\n");
}

std::string EndedJson(const proto::EndedSessions& ended) {
  return JsonText(
      {{"ended", std::vector<uint64_t>(ended.sessions().begin(), ended.sessions().end())}});
}

}  // namespace detshare::ctl
