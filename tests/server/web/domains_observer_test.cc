// Metrics of a daemon with strict isolation, whose users have their own processes.
#include "server/web/domains_observer.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/server/grpc_stubs.h"
#include "tests/server/http_get.h"
#include "tests/server/strict_daemon.h"

namespace detshare {
namespace {

class WatchedStrictDaemon {
 public:
  explicit WatchedStrictDaemon(std::vector<std::string> more = {})
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
  StrictDaemon daemon;
};

TEST_CASE("The listening process shows the counts of all users' processes") {
  if (!IsRoot()) return;
  WatchedStrictDaemon watched;
  CHECK(watched.Get("/healthz").find("HTTP/1.1 200") == 0);
  const auto a = As(kSomebody, watched.daemon), b = As(kSomebodyElse, watched.daemon);
  a->request.set_tenant("chat");
  b->request.set_tenant("chat");
  REQUIRE(a->Open());
  REQUIRE(b->Open());
  CHECK(a->Allocate(3 << 20) != 0);
  CHECK(b->Allocate(5 << 20) != 0);
  CHECK(watched.Comes("detshare_sessions{tenant=\"chat\"}", 2));
  CHECK(watched.Comes("detshare_tenant_device_memory_bytes{tenant=\"chat\"}", 8 << 20));
  CHECK(watched.Comes("detshare_user_sessions{user=\"54321\"}", 1));
  CHECK(watched.Value("detshare_user_process_up{user=\"54322\"}") == 1);
  CHECK(watched.Value("detshare_sessions_opened_total{tenant=\"chat\"}") == 2);
  const auto status = nlohmann::json::parse(BodyOf(watched.Get("/api/v1/status")));
  CHECK(status["sessions"].size() == 2);
  CHECK(status["users"].size() == 3);  // root has looked whether the daemon serves
  CHECK(status["devices"].size() == 1);
  // A user's own process shows its observation to no other user.
  grpc::ClientContext context;
  proto::Observation observation;
  CHECK(proto::Observing::NewStub(a->channel)->Observe(&context, {}, &observation).error_code() ==
        grpc::StatusCode::PERMISSION_DENIED);
}

TEST_CASE("Counts stay when a user's process ends, and go on with the next") {
  WatchedStrictDaemon watched({"--domain-idle-ms", "3000"});
  const std::string opened = "detshare_sessions_opened_total{tenant=\"chat\"}";
  for (int i = 1; i <= 2; ++i) {
    {
      TestClient client(watched.daemon.socket());
      client.request.set_tenant("chat");
      REQUIRE(client.Open());
      CHECK(watched.Comes(opened, i));
    }
    REQUIRE(
        Eventually([&] { return !std::filesystem::exists(watched.daemon.DomainOf(geteuid())); }));
    CHECK(watched.Value(opened) == i);
  }
  CHECK(watched.Comes("detshare_sessions{tenant=\"chat\"}", 0));
  CHECK(watched.Value("detshare_user_process_failures_total{user=\"" + UserName(geteuid()) +
                      "\"}") == 0);
}

TEST_CASE("A user's process that does not reply only withholds its own values") {
  if (!IsRoot()) return;
  WatchedStrictDaemon watched;
  const auto a = As(kSomebody, watched.daemon), b = As(kSomebodyElse, watched.daemon);
  a->request.set_tenant("silent");
  b->request.set_tenant("chat");
  REQUIRE(a->Open());
  REQUIRE(b->Open());
  const pid_t silent = StatusOf(*a).pid();
  REQUIRE(watched.Comes("detshare_sessions{tenant=\"silent\"}", 1));
  kill(silent, SIGSTOP);
  CHECK(watched.Comes("detshare_user_process_up{user=\"54321\"}", 0));
  CHECK(watched.Value("detshare_user_process_timeouts_total{user=\"54321\"}") >= 1);
  CHECK(watched.Value("detshare_sessions{tenant=\"silent\"}") == 0);
  CHECK(watched.Value("detshare_sessions_opened_total{tenant=\"silent\"}") == 1);
  CHECK(watched.Value("detshare_sessions{tenant=\"chat\"}") == 1);
  b->CreateStream(1);
  CHECK(b->Synchronize(1) == 0);
  kill(silent, SIGCONT);
  CHECK(watched.Comes("detshare_user_process_up{user=\"54321\"}", 1));
  CHECK(watched.Comes("detshare_sessions{tenant=\"silent\"}", 1));
}

TEST_CASE("A device that a user's process loses is counted, and so is the failed process") {
  WatchedStrictDaemon watched({"--soft-lose-device-on-fault"});
  TestClient client(watched.daemon.socket());
  REQUIRE(client.Open());
  const std::string user = "{user=\"" + UserName(geteuid()) + "\"}";
  REQUIRE(watched.Comes("detshare_user_process_up" + user, 1));
  client.CreateStream(1);
  client.ring->Send(Op::cuLaunchKernelEx,
                    client.LaunchOf(client.GetKernel(client.Load(kFaultPtx), "fault"), 1));
  client.AwaitEnd();
  CHECK(watched.Comes("detshare_device_losses_total", 1));
  CHECK(watched.Value("detshare_user_process_failures_total" + user) == 1);
}

}  // namespace
}  // namespace detshare
