#include "tools/detsharectl/door.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_join.h"
#include "proto/door.grpc.pb.h"
#include "tools/detsharectl/daemon.h"
#include "tools/text/table.h"

namespace detshare::ctl {
namespace {

// `call(stub, context)` makes one call of the service; it may take ten seconds. Returns 0, or an
// exit code after a message.
template <typename Call>
int CallDoors(const std::string& socket, Call call) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  const auto stub = proto::Doors::NewStub(
      grpc::CreateChannel("unix:" + socket, grpc::InsecureChannelCredentials()));
  return Explain(call(*stub, &context), socket);
}

}  // namespace

int OpenDoor(const DoorOptions& options) {
  TenantFlags flags = options.tenant;
  if (flags.name.empty()) flags.name = options.name;
  const absl::StatusOr<proto::TenantSetting> tenant = ToSetting(flags);
  if (!tenant.ok()) {
    std::fprintf(stderr, "detsharectl: %s\n", std::string(tenant.status().message()).c_str());
    return kExitUsage;
  }
  proto::Door door;
  door.set_name(options.name);
  *door.mutable_tenant() = *tenant;
  for (const std::string& device : options.devices) door.add_device_ids(device);
  proto::OpenedDoor opened;
  const int code = CallDoors(options.socket, [&](auto& doors, grpc::ClientContext* context) {
    return doors.OpenDoor(context, door, &opened);
  });
  if (code != 0) return code;
  const std::string directory = options.socket.substr(0, options.socket.rfind('/') + 1);
  std::printf("%s%s\n", directory.c_str(), opened.directory().c_str());
  return 0;
}

int CloseDoor(const DoorOptions& options) {
  proto::CloseDoorRequest request;
  proto::CloseDoorReply reply;
  request.set_name(options.name);
  return CallDoors(options.socket, [&](auto& doors, grpc::ClientContext* context) {
    return doors.CloseDoor(context, request, &reply);
  });
}

int PrintDoors(const DoorOptions& options) {
  proto::DoorList list;
  const int code = CallDoors(options.socket, [&](auto& doors, grpc::ClientContext* context) {
    return doors.GetDoors(context, proto::GetDoorsRequest(), &list);
  });
  if (code == 0) std::fputs((options.json ? DoorsJson(list) : DoorsText(list)).c_str(), stdout);
  return code;
}

std::string DoorsText(const proto::DoorList& doors) {
  if (doors.doors_size() == 0) return "There are no doors.\n";
  text::Table table({"DOOR", "TENANT", "DEVICES"});
  for (const proto::Door& door : doors.doors())
    table.Add({door.name(), door.tenant().name(), absl::StrJoin(door.device_ids(), ",")});
  return table.ToString();
}

std::string DoorsJson(const proto::DoorList& doors) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const proto::Door& door : doors.doors()) {
    list.push_back({{"name", door.name()},
                    {"tenant", door.tenant().name()},
                    {"devices", std::vector<std::string>(door.device_ids().begin(),
                                                         door.device_ids().end())}});
  }
  return list.dump(2) + "\n";
}

}  // namespace detshare::ctl
