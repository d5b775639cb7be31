// The daemon's metrics and pages about itself and the programs that use it.
#include "server/web/observer.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "proto/control.pb.h"
#include "server/sessions/session_manager.h"
#include "server/web/metrics.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/http_get.h"

namespace detshare {
namespace {

using nlohmann::json;

class WatchedDaemon {
 public:
  explicit WatchedDaemon(bool dashboard = true)
      : daemon([this, dashboard](Daemon::Options& options) {
          ListenAddress address;
          address.path = directory.path + "/http";
          options.http = address;
          options.dashboard = dashboard;
          policy::Tenant chat;
          chat.name = "chat";
          chat.tenant_class = policy::TenantClass::kLatency;
          chat.slo_tpot = 30 * policy::kMillisecond;
          options.server.tenants.push_back(chat);
        }) {}
  std::string Get(const std::string& target) { return HttpGet(directory.path + "/http", target); }
  // The value of a sample, or -1 if there is none.
  double Value(const std::string& sample) {
    std::istringstream lines(BodyOf(Get("/metrics")));
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind(sample + " ", 0) == 0) return std::stod(line.substr(sample.size() + 1));
    }
    return -1;
  }

  TestDirectory directory;
  TestDaemon daemon;
};

TEST_CASE("Every metric of the table is exposed, in its order, and no other") {
  WatchedDaemon watched;
  std::vector<std::string> exposed, wanted;
  std::istringstream lines(BodyOf(watched.Get("/metrics")));
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("# TYPE ", 0) == 0) exposed.push_back(line.substr(7, line.find(' ', 7) - 7));
  }
  for (const Metric& metric : AllMetrics()) wanted.emplace_back(metric.name);
  CHECK(exposed == wanted);
  CHECK(std::set<std::string>(wanted.begin(), wanted.end()).size() == wanted.size());
}

TEST_CASE("A tenant's work is counted while its session lives, and the counts stay afterwards") {
  WatchedDaemon watched;
  CHECK(watched.Value("detshare_sessions{tenant=\"chat\"}") == 0);
  {
    TestClient client(watched.daemon.socket());
    client.tenant = "chat";
    REQUIRE(client.Open());
    client.CreateStream(1);
    const uint64_t memory = client.Allocate(1 << 20);
    client.ring->Send(
        Op::cuMemcpyAsync,
        client.CopyOf({memory, wire::kAddress, 0}, {memory + 4096, wire::kAddress, 0}, 4096, 1));
    REQUIRE(client.Synchronize(1) == 0);
    CHECK(watched.Value("detshare_sessions{tenant=\"chat\"}") == 1);
    CHECK(watched.Value("detshare_tenant_device_memory_bytes{tenant=\"chat\"}") >= 1 << 20);
    CHECK(watched.Value("detshare_operations_total{tenant=\"chat\",kind=\"copy\"}") == 1);
    CHECK(watched.Value("detshare_copied_bytes_total{tenant=\"chat\"}") == 4096);
  }
  while (watched.daemon.session_directories() != 0) usleep(1000);
  while (!watched.daemon.daemon->manager().Sessions().empty()) usleep(1000);
  CHECK(watched.Value("detshare_sessions{tenant=\"chat\"}") == 0);
  CHECK(watched.Value("detshare_sessions_opened_total{tenant=\"chat\"}") == 1);
  CHECK(watched.Value("detshare_tenant_device_memory_bytes{tenant=\"chat\"}") == 0);
  CHECK(watched.Value("detshare_operations_total{tenant=\"chat\",kind=\"copy\"}") == 1);
  CHECK(watched.Value("detshare_copied_bytes_total{tenant=\"chat\"}") == 4096);
}

TEST_CASE("Refused sessions are counted by the reason") {
  WatchedDaemon watched;
  TestClient wrong(watched.daemon.socket());
  wrong.request.set_abi_version(9999);
  CHECK_FALSE(wrong.Open());
  TestClient nonsense(watched.daemon.socket());
  nonsense.tenant = "a\nb";
  CHECK_FALSE(nonsense.Open());
  TestClient nowhere(watched.daemon.socket());
  nowhere.request.add_device_ids("99");
  CHECK_FALSE(nowhere.Open());
  CHECK(watched.Value("detshare_sessions_refused_total{reason=\"version\"}") == 1);
  CHECK(watched.Value("detshare_sessions_refused_total{reason=\"invalid\"}") == 2);
  CHECK(watched.Value("detshare_sessions_refused_total{reason=\"no_room\"}") == 0);
}

TEST_CASE("A fault and a broken protocol are counted for their tenant") {
  WatchedDaemon watched;
  {
    TestClient faulty(watched.daemon.socket());
    faulty.tenant = "chat";
    REQUIRE(faulty.Open());
    faulty.CreateStream(1);
    const LibraryId library = faulty.Load();
    faulty.ring->Send(Op::cuLaunchKernelEx, faulty.LaunchOf(faulty.GetKernel(library, "fault"), 1));
    CHECK(faulty.Synchronize(1) != 0);
    while (watched.Value("detshare_session_faults_total{tenant=\"chat\"}") != 1) usleep(1000);
  }
  TestClient hostile(watched.daemon.socket());
  hostile.tenant = "chat";
  REQUIRE(hostile.Open());
  const uint32_t nonsense = 1;
  hostile.ring->Send(static_cast<Op>(0xFFFF), nonsense);
  hostile.AwaitEnd();
  while (watched.Value("detshare_session_violations_total{tenant=\"chat\"}") != 1) usleep(1000);
  CHECK(watched.Value("detshare_session_faults_total{tenant=\"chat\"}") == 1);
}

TEST_CASE("Exactly the given objectives are shown") {
  WatchedDaemon watched;
  CHECK(watched.Value("detshare_slo_seconds{tenant=\"chat\",slo=\"tpot\"}") == 0.03);
  CHECK(watched.Value("detshare_slo_seconds{tenant=\"chat\",slo=\"ttft\"}") == -1);
  CHECK(watched.Value("detshare_tenant_info{tenant=\"chat\",class=\"latency\"}") == 1);
}

TEST_CASE("The status names devices, tenants and sessions") {
  WatchedDaemon watched;
  TestClient client(watched.daemon.socket());
  client.tenant = "chat";
  client.request.set_program("a \"quoted\" <program>");
  REQUIRE(client.Open());
  const json status = json::parse(BodyOf(watched.Get("/api/v1/status")));
  CHECK(status["devices"].size() == 1);
  CHECK(status["devices"][0]["healthy"] == true);
  REQUIRE(status["sessions"].size() == 1);
  CHECK(status["sessions"][0]["program"] == "a \"quoted\" <program>");
  REQUIRE(status["tenants"].size() == 1);
  CHECK(status["tenants"][0]["name"] == "chat");
  CHECK(status["tenants"][0]["class"] == "latency");
  CHECK(status["tenants"][0]["promised_ms"]["token"] == 30);
  CHECK(status["tenants"][0]["promised_ms"]["burst"].is_null());
}

TEST_CASE("The history is given from a point on, and other arguments are refused") {
  WatchedDaemon watched;
  json points;
  do {
    usleep(20'000);
    points = json::parse(BodyOf(watched.Get("/api/v1/history")))["points"];
  } while (points.empty());
  const uint64_t last = points.back()["number"];
  const json later =
      json::parse(BodyOf(watched.Get("/api/v1/history?after=" + std::to_string(last))));
  for (const json& point : later["points"]) CHECK(point["number"] > last);
  for (const char* query :
       {"?x", "?after", "?after=", "?after=-1", "?after=x", "?after=99999999999999999999999"})
    CHECK(watched.Get(std::string("/api/v1/history") + query).find("HTTP/1.1 400") == 0);
}

TEST_CASE("The server has the files of the dashboard and no others") {
  WatchedDaemon watched;
  CHECK(watched.Get("/").find("Content-Type: text/html") != std::string::npos);
  CHECK(watched.Get("/dashboard.js").find("Content-Type: text/javascript") != std::string::npos);
  for (const char* path : {"/../server/daemon.cc", "/etc/passwd", "/metrics/", "//",
                           "/%2e%2e/etc/passwd", "/index.html?x"})
    CHECK(watched.Get(path).find("HTTP/1.1 404") == 0);
}

TEST_CASE("Without a dashboard there are metrics only") {
  WatchedDaemon watched(/*dashboard=*/false);
  CHECK(watched.Get("/metrics").find("HTTP/1.1 200") == 0);
  CHECK(watched.Get("/healthz").find("HTTP/1.1 200") == 0);
  for (const char* path : {"/", "/dashboard.js", "/api/v1/status", "/api/v1/history"})
    CHECK(watched.Get(path).find("HTTP/1.1 404") == 0);
}

TEST_CASE("A daemon that serves no HTTP watches nothing") {
  TestDaemon daemon;
  CHECK(daemon.daemon->manager().Sessions().empty());
  std::set<std::string> names;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream name(task.path() / "comm");
    std::string text;
    std::getline(name, text);
    names.insert(text);
  }
  CHECK_FALSE(names.contains("observer"));
  CHECK_FALSE(names.contains("http"));
}

}  // namespace
}  // namespace detshare
