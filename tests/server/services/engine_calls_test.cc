#include "server/services/engine_calls.h"

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "proto/mutex.h"
#include "proto/quiet_grpc.h"
#include "server/engines/engine_process.h"
#include "tests/server/test_windows.h"
#include "tests/server/unix_sockets.h"

namespace detshare {
namespace {

using std::chrono::milliseconds;

constexpr EngineCalls::Times kImpatient{.reply = milliseconds(1), .silent = milliseconds(1)};

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
            [this](const absl::Status& result) {
              const MutexLock lock(&mutex_);
              result_ = result;
              changed_.SignalAll();
            }};
  }
  bool HasResult() {
    const MutexLock lock(&mutex_);
    return result_.has_value();
  }
  absl::Status Await() {
    const MutexLock lock(&mutex_);
    changed_.WaitFor(&mutex_, std::chrono::seconds(30),
                     [this]()
                         ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return result_.has_value(); });
    return result_.value_or(absl::UnknownError("no result"));
  }

  std::atomic<bool> gone{false};

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<absl::Status> result_ ABSL_GUARDED_BY(mutex_);
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
  EngineCalls calls(engine.running, kImpatient);
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
  EngineCalls calls(engine.running, kImpatient);
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
  for (Waiter& other : others) CHECK(other.Await().ok());
  CHECK(engine.asked() == 1);
}

TEST_CASE("Nothing is done for a caller that has gone") {
  SilentEngine engine;
  Obstacle jobs, reads;
  Waiter first_job, first_read, job, read, last_job;
  std::atomic<int> done{0};
  EngineCalls calls(engine.running, kImpatient);
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
  EngineCalls calls(engine.running, kImpatient);
  calls.Do(first.caller(), [&] { return obstacle.Hold(); });
  obstacle.Await();
  for (Waiter& one : waiting) calls.Do(one.caller(), kNothing);
  calls.Do(refused.caller(), kNothing);
  CHECK(absl::IsResourceExhausted(refused.Await()));
  CHECK_FALSE(waiting[0].HasResult());
  obstacle.Remove();
  for (Waiter& one : waiting) CHECK(one.Await().ok());
}

// Returns how long a request for a status takes.
milliseconds TimeOfRead(EngineCalls& calls) {
  Waiter waiter;
  const auto begin = std::chrono::steady_clock::now();
  calls.Read(waiter.caller(), [](const EngineCalls::Replies& replies) {
    return replies.size() == 1 && absl::IsDeadlineExceeded(replies[0].status.status())
               ? absl::OkStatus()
               : absl::InternalError("other replies");
  });
  CHECK(waiter.Await().ok());
  return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begin);
}

TEST_CASE("Requests for a status do not wait long for an engine that was silent before") {
  const milliseconds whole(500);
  SilentEngine engine;
  EngineCalls calls(engine.running, {whole, milliseconds(1), std::chrono::hours(1)});
  CHECK(TimeOfRead(calls) >= whole);
  milliseconds sum(0);
  for (int i = 0; i < 50; ++i) sum += TimeOfRead(calls);
  CHECK(sum < 25 * whole);
  CHECK(engine.asked() == 51);
  // A change must find the engine's sessions if it is only slow.
  Waiter change;
  const auto begin = std::chrono::steady_clock::now();
  calls.Do(change.caller(), [&] { return calls.AskStatus()[0].status.status(); });
  CHECK(absl::IsDeadlineExceeded(change.Await()));
  CHECK(std::chrono::steady_clock::now() - begin >= whole);
}

TEST_CASE("An engine that was silent gets the whole time once more after a while") {
  const milliseconds whole(100);
  SilentEngine engine;
  EngineCalls calls(engine.running, {whole, milliseconds(1), milliseconds(0)});
  CHECK(TimeOfRead(calls) >= whole);
  CHECK(TimeOfRead(calls) >= whole);
}

TEST_CASE("When the supervisor ends, requests that wait end at once and are not done") {
  SilentEngine engine;
  Obstacle jobs, reads;
  Waiter first_job, first_read, late;
  std::vector<Waiter> waiting(10);
  std::atomic<int> done{0};
  EngineCalls calls(engine.running, kImpatient);
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
  for (Waiter& one : waiting) {
    CHECK(one.HasResult());
    CHECK(absl::IsAborted(one.Await()));
  }
  CHECK(absl::IsAborted(late.Await()));
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
