#include "tools/detsharectl/top.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

namespace detshare::ctl {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

proto::Status StatusWith(uint64_t operations, int64_t device_time, int64_t throttled,
                         bool followed) {
  proto::Status status;
  status.set_policy("priority");
  proto::SessionStatus* const session = status.add_sessions();
  session->set_session(4);
  session->set_tenant("train");
  session->set_operations(operations);
  proto::Schedule* const schedule = session->mutable_schedule();
  schedule->set_followed(followed);
  schedule->set_rank(3);
  schedule->set_device_time_ns(device_time);
  schedule->set_throttled_by_window_ns(throttled);
  schedule->set_tokens(1234);
  schedule->set_tpot_ns(12'300'000);
  return status;
}

TEST_CASE("Rates are the differences between two samples") {
  const proto::Status before = StatusWith(100, kSecond, 0, true);
  const proto::Status after = StatusWith(2100, 2 * kSecond, kSecond / 2, true);
  const auto json = nlohmann::json::parse(TopJson(before, after, 2 * kSecond, "rank"));
  CHECK(json["sessions"][0]["operations_per_second"] == 1000);
  CHECK(json["sessions"][0]["device_share"] == 0.5);
  CHECK(json["sessions"][0]["throttled_share"] == 0.25);
  const std::string text = TopText(before, after, 2 * kSecond, "rank");
  for (const char* part : {"50%", "25%", "1,000", "12.3 ms", "1,234", "train"})
    CHECK(text.find(part) != std::string::npos);
}

TEST_CASE("A throttle that lasts counts while it lasts, and not twice when it ends") {
  proto::Status before = StatusWith(0, 0, 0, true);
  before.mutable_sessions(0)->mutable_schedule()->set_throttled_ns(kSecond);
  const proto::Status ended = StatusWith(0, 0, kSecond + kSecond / 4, true);
  const auto json = nlohmann::json::parse(TopJson(before, ended, kSecond, "rank"));
  CHECK(json["sessions"][0]["throttled_share"] == 0.25);
}

TEST_CASE(
    "Sessions that began between two samples count from their beginning, others are left out") {
  proto::Status before;
  before.add_sessions()->set_session(3);
  const auto json =
      nlohmann::json::parse(TopJson(before, StatusWith(50, 0, 0, true), kSecond, "rank"));
  REQUIRE(json["sessions"].size() == 1);
  CHECK(json["sessions"][0]["operations_per_second"] == 50);
}

TEST_CASE("Latencies are those of bursts that ended between two samples") {
  proto::Status before = StatusWith(0, 0, 0, true), after = before;
  proto::Schedule* const then = before.mutable_sessions(0)->mutable_schedule();
  proto::Schedule* const now = after.mutable_sessions(0)->mutable_schedule();
  for (int i = 0; i < 50; ++i) now->add_bursts(i == 8 ? 190 : i == 40 ? 14 : 0);
  then->add_bursts(0);
  for (int i = 1; i < 41; ++i) then->add_bursts(i == 8 ? 90 : i == 40 ? 10 : 0);
  const auto json = nlohmann::json::parse(TopJson(before, after, kSecond, "rank"));
  CHECK(json["sessions"][0]["bursts"] == 104);
  CHECK(json["sessions"][0]["burst_p50_ns"] == 4'500);
  CHECK(json["sessions"][0]["burst_p99_ns"] == 1'152'000);
  CHECK(TopText(before, after, kSecond, "rank").find("1.2 ms") != std::string::npos);
}

TEST_CASE("Sessions come in the order that was asked for, equal ones by number") {
  proto::Status before, after;
  // session, device time, memory, operations, rank
  const int64_t rows[][5] = {{1, 10, 300, 7, 2}, {2, 90, 100, 7, 1}, {3, 10, 200, 9, 0}};
  for (const auto& row : rows) {
    proto::SessionStatus* const session = after.add_sessions();
    session->set_session(row[0]);
    session->mutable_schedule()->set_followed(true);
    session->mutable_schedule()->set_device_time_ns(row[1]);
    session->set_device_memory(row[2]);
    session->set_operations(row[3]);
    session->mutable_schedule()->set_rank(row[4]);
  }
  const auto order = [&](const std::string& sort) {
    const auto json = nlohmann::json::parse(TopJson(before, after, 100, sort));
    std::vector<int> sessions;
    for (const auto& session : json["sessions"]) sessions.push_back(session["session"]);
    return sessions;
  };
  CHECK(order("gpu") == std::vector{2, 1, 3});
  CHECK(order("memory") == std::vector{1, 3, 2});
  CHECK(order("operations") == std::vector{3, 1, 2});
  CHECK(order("rank") == std::vector{3, 2, 1});
}

TEST_CASE("At 80 columns, top keeps what identifies a session and how much it uses") {
  proto::Status status = StatusWith(100, kSecond, 0, true);
  status.mutable_sessions(0)->set_tenant("inference-service-of-a-team-in-a-cluster");
  status.mutable_sessions(0)->set_program(
      "/usr/bin/python3 /opt/models/serve.py --port 8000 --model large");
  const std::string text = TopText(status, status, kSecond, "gpu", {80});
  std::istringstream lines(text.substr(text.find("SESSION")));
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 80);
  for (const char* header :
       {"SESSION", "TENANT", "PROGRAM", "GPU TIME", "THROTTLED", "P99", "MEMORY"})
    CHECK(text.find(header) != std::string::npos);
}

TEST_CASE("In colour, a lost device is red and a session that mostly waits is yellow") {
  const proto::Status before = StatusWith(100, kSecond, 0, true);
  proto::Status after = StatusWith(200, kSecond, kSecond * 3 / 4, true);
  after.add_devices()->set_state("ok");
  after.add_devices()->set_state("CUDA_ERROR_ILLEGAL_ADDRESS");
  const std::string plain = TopText(before, after, kSecond, "gpu");
  CHECK(plain.find('\033') == std::string::npos);
  std::string text = TopText(before, after, kSecond, "gpu", {0, 0, true});
  CHECK_THAT(text, Catch::Contains("\033[31mdevice 1: ") && Catch::Contains("\033[1mSESSION") &&
                       Catch::Contains("\033[33m      4  train"));
  CHECK_THAT(text, !Catch::Contains("\033[31mdevice 0: "));
  for (const std::string rendition : {"\033[31m", "\033[33m", "\033[1m", "\033[0m"}) {
    for (size_t at; (at = text.find(rendition)) != std::string::npos;)
      text.erase(at, rendition.size());
  }
  CHECK(text == plain);
}

TEST_CASE("On a low terminal top counts the sessions for which there is no room") {
  proto::Status status;
  for (int i = 1; i <= 30; ++i) status.add_sessions()->set_session(i);
  const auto lines = [&](size_t height) {
    const std::string text = TopText(status, status, kSecond, "gpu", {80, height});
    return std::count(text.begin(), text.end(), '\n');
  };
  CHECK(lines(0) == 33);
  CHECK(lines(34) == 33);
  CHECK(lines(24) == 23);
  CHECK_THAT(TopText(status, status, kSecond, "gpu", {80, 24}),
             Catch::EndsWith("and 11 more sessions\n"));
  CHECK_THAT(TopText(status, status, kSecond, "gpu", {80, 3}),
             Catch::EndsWith("and 29 more sessions\n"));
}

TEST_CASE("Sessions that are not followed have no shares") {
  const proto::Status status = StatusWith(1, 0, 0, false);
  const auto json = nlohmann::json::parse(TopJson(status, status, kSecond, "rank"));
  CHECK(json["sessions"][0]["device_share"].is_null());
  CHECK(TopText(status, proto::Status(), kSecond, "rank").find("No sessions.") !=
        std::string::npos);
}

}  // namespace
}  // namespace detshare::ctl
