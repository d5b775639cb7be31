// Metrics of a daemon with several engines.
#include "server/web/engines_observer.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/server/grpc_stubs.h"
#include "tests/server/http_get.h"
#include "tests/server/supervised_daemon.h"

namespace detshare {
namespace {

class WatchedSupervisedDaemon {
 public:
  explicit WatchedSupervisedDaemon(std::vector<std::string> more = {})
      : daemon([&] {
          more.insert(more.end(), {"--metrics", directory.path + "/http"});
          return more;
        }()) {}
  std::string Get(const std::string& target) { return HttpGet(directory.path + "/http", target); }
  // The value of a sample, or -1 if there is none.
  double Value(const std::string& sample) {
    std::istringstream lines(BodyOf(Get("/metrics")));
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind(sample + " ", 0) == 0) return std::stod(line.substr(sample.size() + 1));
    }
    return -1;
  }
  bool Comes(const std::string& sample, double value) {
    return Eventually([&] { return Value(sample) == value; });
  }

  TestDirectory directory;
  SupervisedDaemon daemon;
};

TEST_CASE("The supervisor shows the counts of all engines") {
  if (!IsRoot()) return;
  WatchedSupervisedDaemon watched;
  CHECK(watched.Get("/healthz").find("HTTP/1.1 200") == 0);
  const auto a = As(kSomebody, watched.daemon), b = As(kSomebodyElse, watched.daemon);
  a->tenant = "chat";
  b->tenant = "chat";
  REQUIRE(a->Open());
  REQUIRE(b->Open());
  CHECK(a->Allocate(3 << 20) != 0);
  CHECK(b->Allocate(5 << 20) != 0);
  CHECK(watched.Comes("detshare_sessions{tenant=\"chat\"}", 2));
  CHECK(watched.Comes("detshare_tenant_device_memory_bytes{tenant=\"chat\"}", 8 << 20));
  CHECK(watched.Comes("detshare_engine_sessions{group=\"user:54321\"}", 1));
  CHECK(watched.Value("detshare_engine_up{group=\"user:54322\"}") == 1);
  CHECK(watched.Value("detshare_sessions_opened_total{tenant=\"chat\"}") == 2);
  const auto status = nlohmann::json::parse(BodyOf(watched.Get("/api/v1/status")));
  CHECK(status["sessions"].size() == 2);
  CHECK(status["engines"].size() == 2);
  CHECK(status["devices"].size() == 1);
  // A user's own process shows its observation to no other user.
  grpc::ClientContext context;
  proto::Observation observation;
  CHECK(proto::Observing::NewStub(a->channel())->Observe(&context, {}, &observation).error_code() ==
        grpc::StatusCode::PERMISSION_DENIED);
}

TEST_CASE("Counts stay when an engine ends, and go on with the next") {
  WatchedSupervisedDaemon watched({"--engine-idle-ms", "3000"});
  const std::string opened = "detshare_sessions_opened_total{tenant=\"chat\"}";
  for (int i = 1; i <= 2; ++i) {
    {
      TestClient client(watched.daemon.socket());
      client.tenant = "chat";
      REQUIRE(client.Open());
      CHECK(watched.Comes(opened, i));
    }
    REQUIRE(Eventually([&] {
      return !std::filesystem::exists(
          watched.daemon.DirectoryOf("user:" + std::to_string(geteuid())));
    }));
    CHECK(watched.Value(opened) == i);
  }
  CHECK(watched.Comes("detshare_sessions{tenant=\"chat\"}", 0));
  CHECK(watched.Value("detshare_engine_failures_total{group=\"user:" + std::to_string(geteuid()) +
                      "\"}") == 0);
}

TEST_CASE("A user's process that does not reply only withholds its own values") {
  if (!IsRoot()) return;
  WatchedSupervisedDaemon watched;
  const auto a = As(kSomebody, watched.daemon), b = As(kSomebodyElse, watched.daemon);
  a->tenant = "silent";
  b->tenant = "chat";
  REQUIRE(a->Open());
  REQUIRE(b->Open());
  const pid_t silent = StatusOf(*a).pid();
  REQUIRE(watched.Comes("detshare_sessions{tenant=\"silent\"}", 1));
  Freeze(silent);
  CHECK(watched.Comes("detshare_engine_up{group=\"user:54321\"}", 0));
  CHECK(watched.Value("detshare_engine_timeouts_total{group=\"user:54321\"}") >= 1);
  CHECK(watched.Value("detshare_sessions{tenant=\"silent\"}") == 0);
  CHECK(watched.Value("detshare_sessions_opened_total{tenant=\"silent\"}") == 1);
  CHECK(watched.Value("detshare_sessions{tenant=\"chat\"}") == 1);
  b->CreateStream(1);
  CHECK(b->Synchronize(1) == 0);
  kill(silent, SIGCONT);
  CHECK(watched.Comes("detshare_engine_up{group=\"user:54321\"}", 1));
  CHECK(watched.Comes("detshare_sessions{tenant=\"silent\"}", 1));
}

TEST_CASE("A device that an engine loses is counted, and so is the failed engine") {
  WatchedSupervisedDaemon watched({"--soft-lose-device-on-fault"});
  TestClient client(watched.daemon.socket());
  REQUIRE(client.Open());
  const std::string group = "{group=\"user:" + std::to_string(geteuid()) + "\"}";
  REQUIRE(watched.Comes("detshare_engine_up" + group, 1));
  client.CreateStream(1);
  client.ring->Send(Op::cuLaunchKernelEx,
                    client.LaunchOf(client.GetKernel(client.Load(kFaultPtx), "fault"), 1));
  client.AwaitEnd();
  CHECK(watched.Comes("detshare_device_losses_total", 1));
  CHECK(watched.Value("detshare_engine_failures_total" + group) == 1);
}

}  // namespace
}  // namespace detshare
