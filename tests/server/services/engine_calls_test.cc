#include "server/services/engine_calls.h"

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "proto/quiet_grpc.h"
#include "server/engines/engine_process.h"
#include "tests/server/test_windows.h"
#include "tests/server/unix_sockets.h"

namespace detshare {
namespace {

using std::chrono::milliseconds;

// An engine that queues connections and replies to none.
class SilentEngine {
 public:
  SilentEngine() : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    StartQuietGrpc();
    const sockaddr_un address = UnixAddress(EngineSocket(directory_.path));
    REQUIRE(bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
    REQUIRE(listen(fd_, 64) == 0);
    running.Add({"chat", getpid(), directory_.path});
  }
  ~SilentEngine() { close(fd_); }
  // The questions since the last call.
  int asked() const {
    int questions = 0;
    for (int connection; (connection = accept(fd_, nullptr, nullptr)) >= 0; ++questions)
      close(connection);
    return questions;
  }

  RunningEngines running;

 private:
  TestDirectory directory_;
  const int fd_;
};

// A request's caller, and the result that it got.
class Waiter {
 public:
  EngineCalls::Caller caller() {
    return {[this] { return gone.load(); },
            [this](const absl::Status& result) { result_.set_value(result); }};
  }
  bool HasResult() const { return future_.wait_for(milliseconds(0)) == std::future_status::ready; }
  absl::Status Await() const {
    if (future_.wait_for(std::chrono::seconds(30)) != std::future_status::ready)
      return absl::UnknownError("no result");
    return future_.get();
  }

  std::atomic<bool> gone{false};

 private:
  std::promise<absl::Status> result_;
  const std::shared_future<absl::Status> future_{result_.get_future()};
};

// Holds up the thread that calls Hold().
class Obstacle {
 public:
  absl::Status Hold() {
    reached_.set_value();
    removed_.get_future().wait();
    return absl::OkStatus();
  }
  void Await() { reached_.get_future().wait(); }
  void Remove() { removed_.set_value(); }

 private:
  std::promise<void> reached_, removed_;
};

const auto kNothing = [] { return absl::OkStatus(); };

TEST_CASE("A change does not wait while engines are asked for a status") {
  SilentEngine engine;
  Obstacle obstacle;
  Waiter reads, second_reads, changes;
  EngineCalls calls(engine.running, milliseconds(1));
  calls.Read(reads.caller(), [&](const EngineCalls::Replies&) { return obstacle.Hold(); });
  obstacle.Await();
  calls.Read(second_reads.caller(), [](const EngineCalls::Replies&) { return absl::OkStatus(); });
  calls.Do(changes.caller(), kNothing);
  CHECK(changes.Await().ok());
  CHECK_FALSE(reads.HasResult());
  CHECK_FALSE(second_reads.HasResult());
  obstacle.Remove();
  CHECK(reads.Await().ok());
  CHECK(second_reads.Await().ok());
}

TEST_CASE("Requests for a status that wait together share one question to each engine") {
  SilentEngine engine;
  Obstacle obstacle;
  Waiter first;
  std::vector<Waiter> others(10);
  EngineCalls calls(engine.running, milliseconds(1));
  calls.Read(first.caller(), [&](const EngineCalls::Replies&) { return obstacle.Hold(); });
  obstacle.Await();
  for (Waiter& other : others) {
    calls.Read(other.caller(), [](const EngineCalls::Replies& replies) {
      return replies.size() == 1 && absl::IsDeadlineExceeded(replies[0].status.status())
                 ? absl::OkStatus()
                 : absl::InternalError("other replies");
    });
  }
  CHECK(engine.asked() == 1);
  obstacle.Remove();
  CHECK(first.Await().ok());
  for (const Waiter& other : others) CHECK(other.Await().ok());
  CHECK(engine.asked() == 1);
}

TEST_CASE("Nothing is done for a caller that has gone") {
  SilentEngine engine;
  Obstacle jobs, reads;
  Waiter first_job, first_read, job, read, last_job;
  std::atomic<int> done{0};
  EngineCalls calls(engine.running, milliseconds(1));
  calls.Do(first_job.caller(), [&] { return jobs.Hold(); });
  calls.Read(first_read.caller(), [&](const EngineCalls::Replies&) { return reads.Hold(); });
  jobs.Await();
  reads.Await();
  CHECK(engine.asked() == 1);
  calls.Do(job.caller(), [&] {
    ++done;
    return absl::OkStatus();
  });
  calls.Read(read.caller(), [&](const EngineCalls::Replies&) {
    ++done;
    return absl::OkStatus();
  });
  calls.Do(last_job.caller(), kNothing);
  job.gone = true;
  read.gone = true;
  jobs.Remove();
  reads.Remove();
  CHECK(absl::IsCancelled(job.Await()));
  CHECK(absl::IsCancelled(read.Await()));
  CHECK(last_job.Await().ok());
  CHECK(first_job.Await().ok());
  CHECK(done == 0);
  CHECK(engine.asked() == 0);
}

TEST_CASE("A request is refused at once while too many wait") {
  SilentEngine engine;
  Obstacle obstacle;
  Waiter first, refused;
  std::vector<Waiter> waiting(EngineCalls::kMaxWaiting);
  EngineCalls calls(engine.running, milliseconds(1));
  calls.Do(first.caller(), [&] { return obstacle.Hold(); });
  obstacle.Await();
  for (Waiter& one : waiting) calls.Do(one.caller(), kNothing);
  calls.Do(refused.caller(), kNothing);
  CHECK(absl::IsResourceExhausted(refused.Await()));
  CHECK_FALSE(waiting[0].HasResult());
  obstacle.Remove();
  for (const Waiter& one : waiting) CHECK(one.Await().ok());
}

TEST_CASE("When the supervisor ends, requests that wait end at once and are not done") {
  SilentEngine engine;
  Obstacle jobs, reads;
  Waiter first_job, first_read, late;
  std::vector<Waiter> waiting(10);
  std::atomic<int> done{0};
  EngineCalls calls(engine.running, milliseconds(1));
  calls.Do(first_job.caller(), [&] { return jobs.Hold(); });
  calls.Read(first_read.caller(), [&](const EngineCalls::Replies&) { return reads.Hold(); });
  jobs.Await();
  reads.Await();
  CHECK(engine.asked() == 1);
  for (size_t i = 0; i < waiting.size(); i += 2) {
    calls.Do(waiting[i].caller(), [&] {
      ++done;
      return absl::OkStatus();
    });
    calls.Read(waiting[i + 1].caller(), [&](const EngineCalls::Replies&) {
      ++done;
      return absl::OkStatus();
    });
  }
  calls.Stop();
  calls.Do(late.caller(), [&] {
    ++done;
    return absl::OkStatus();
  });
  for (const Waiter& one : waiting) {
    CHECK(one.HasResult());
    CHECK(absl::IsUnavailable(one.Await()));
  }
  CHECK(absl::IsUnavailable(late.Await()));
  // What has begun goes on.
  CHECK_FALSE(first_job.HasResult());
  CHECK_FALSE(first_read.HasResult());
  jobs.Remove();
  reads.Remove();
  CHECK(first_job.Await().ok());
  CHECK(first_read.Await().ok());
  CHECK(done == 0);
  CHECK(engine.asked() == 0);
}

}  // namespace
}  // namespace detshare
