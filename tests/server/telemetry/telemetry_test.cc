// The Telemetry service as its clients see it, including hostile clients.
#include "server/telemetry/telemetry.h"

#include <catch2/catch.hpp>

#include "proto/nvml/nvml_types.h"
#include "proto/telemetry.grpc.pb.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/grpc_stubs.h"
#include "tests/server/instant_device.h"

namespace detshare {
namespace {

class KnowingHost final : public HostTelemetry {
 public:
  HostResult Ask(const HostQuestion& question) override {
    return Packed(NVML_SUCCESS, 1000 + question.device, 1000 + question.peer);
  }
};

struct TelemetryFixture {
  explicit TelemetryFixture(int devices = 1)
      : daemon(
            [](Daemon::Options& options) {
              options.host_telemetry = std::make_shared<KnowingHost>();
            },
            devices),
        client(daemon.socket()) {}

  proto::TelemetryReply Read(const proto::TelemetryRequest& request) {
    return Read(client, request);
  }
  proto::TelemetryReply Read(TestClient& asking, const proto::TelemetryRequest& request) {
    grpc::ClientContext context;
    proto::TelemetryReply reply;
    REQUIRE(
        proto::Telemetry::NewStub(asking.ClientChannel())->Read(&context, request, &reply).ok());
    return reply;
  }
  // As another tenant.
  proto::TelemetryReply ReadAs(const std::string& tenant, const proto::TelemetryRequest& request) {
    TestClient other(daemon.socket());
    other.tenant = tenant;
    return Read(other, request);
  }

  TestDaemon daemon;
  TestClient client;
};

proto::HostQuery Query(const std::string& function, int device, int peer = -1) {
  proto::HostQuery query;
  query.set_function(function);
  query.set_device(device);
  query.set_peer(peer);
  return query;
}

TEST_CASE(
    "Without a session a process learns which devices there are and how much memory is free") {
  TelemetryFixture f(2);
  f.daemon.devices[1]->used = 1 << 20;
  const proto::TelemetryReply reply = f.Read({});
  CHECK(reply.result() == NVML_SUCCESS);
  CHECK(reply.driver_version() == 13000);
  REQUIRE(reply.devices_size() == 2);
  CHECK(reply.devices(0).name() == "instant");
  CHECK(reply.devices(1).uuid().size() == 16);
  CHECK(reply.devices(0).total_memory() == 1 << 30);
  CHECK(reply.devices(1).free_memory() == (1 << 30) - (1 << 20));
  CHECK(reply.devices(0).processes_size() == 0);
}

TEST_CASE("Devices are shown as requested, and an unknown device makes a machine without devices") {
  TelemetryFixture f(3);
  proto::TelemetryRequest request;
  request.add_device_ids("2");
  request.add_device_ids("0");
  *request.add_queries() = Query("nvmlDeviceGetPowerUsage", 0);
  *request.add_queries() = Query("nvmlDeviceGetPowerUsage", 2);
  proto::TelemetryReply reply = f.Read(request);
  REQUIRE(reply.devices_size() == 2);
  CHECK(reply.devices(0).uuid()[15] == 2);
  // The question to the host is about the card that is shown at this position.
  CHECK(reply.replies(0).data() == Packed(0, 1002, 999).data);
  CHECK(reply.replies(1).result() == NVML_ERROR_INVALID_ARGUMENT);

  request.clear_device_ids();
  request.add_device_ids("7");
  reply = f.Read(request);
  CHECK(reply.result() == NVML_SUCCESS);
  CHECK(reply.devices_size() == 0);
}

TEST_CASE("A tenant sees its own sessions, with the memory that each has") {
  TelemetryFixture f;
  REQUIRE(f.client.Open());
  TestClient other(f.daemon.socket());
  other.tenant = "somebody-else";
  REQUIRE(other.Open());

  proto::TelemetryReply reply = f.Read({});
  REQUIRE(reply.devices(0).processes_size() == 1);
  CHECK(reply.devices(0).processes(0).pid() == static_cast<uint32_t>(getpid()));
  CHECK(reply.devices(0).processes(0).memory() == 0);

  CHECK(f.ReadAs("somebody-else", {}).devices(0).processes_size() == 1);
  CHECK(f.ReadAs("nobody", {}).devices(0).processes_size() == 0);
}

TEST_CASE("Utilisation is the share of samples at which the tenant had work, and no other's") {
  TelemetryFixture f;
  REQUIRE(f.client.Open());
  f.daemon.devices[0]->busy = true;
  proto::TelemetryRequest request;
  request.set_utilization(true);
  const proto::TelemetryReply busy = f.Read(request);
  CHECK(busy.devices(0).busy_percent() == 100);
  CHECK(busy.devices(0).processes(0).busy_percent() == 100);
  CHECK(f.ReadAs("nobody", request).devices(0).busy_percent() == 0);
}

TEST_CASE("Invalid queries are refused one by one") {
  TelemetryFixture f;
  proto::TelemetryRequest request;
  *request.add_queries() = Query("nvmlDeviceGetPowerUsage", 0);
  *request.add_queries() = Query("nvmlDeviceGetPowerUsage", 1);
  *request.add_queries() = Query("nvmlDeviceGetPowerUsage", -5);
  *request.add_queries() = Query("nvmlDeviceGetPowerUsage", 2147483647);
  *request.add_queries() = Query("nvmlInternalGetExportTable", 0);
  *request.add_queries() = Query(std::string(100'000, 'n'), 0);
  request.mutable_queries(0)->add_arguments(1);
  const proto::TelemetryReply reply = f.Read(request);
  CHECK(reply.result() == NVML_SUCCESS);
  REQUIRE(reply.replies_size() == 6);
  for (int i = 0; i < 4; ++i) CHECK(reply.replies(i).result() == NVML_ERROR_INVALID_ARGUMENT);
  for (int i = 4; i < 6; ++i) CHECK(reply.replies(i).result() == NVML_ERROR_FUNCTION_NOT_FOUND);
}

TEST_CASE("A request that is too large, or for no valid tenant, is refused as a whole") {
  TelemetryFixture f;
  proto::TelemetryRequest request;
  CHECK(f.ReadAs("../../etc", request).result() == NVML_ERROR_INVALID_ARGUMENT);
  for (int i = 0; i < 65; ++i) request.add_device_ids("0");
  CHECK(f.Read(request).result() == NVML_ERROR_INVALID_ARGUMENT);
  request.clear_device_ids();
  for (int i = 0; i < 10'000; ++i) *request.add_queries() = Query("nvmlDeviceGetPowerUsage", 0);
  const proto::TelemetryReply reply = f.Read(request);
  CHECK(reply.result() == NVML_ERROR_INVALID_ARGUMENT);
  CHECK(reply.replies_size() == 0);
}

TEST_CASE("A daemon that ends replies to clients that still wait for samples") {
  auto f = std::make_unique<TelemetryFixture>();
  REQUIRE(f->client.Open());
  std::thread asker([&] {
    proto::TelemetryRequest request;
    request.set_utilization(true);
    grpc::ClientContext context;
    proto::TelemetryReply reply;
    (void)proto::Telemetry::NewStub(f->client.ClientChannel())->Read(&context, request, &reply);
  });
  f->daemon.daemon->Stop(std::chrono::seconds(60));
  asker.join();
}

}  // namespace
}  // namespace detshare
