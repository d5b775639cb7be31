#include "server/engine_watch.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "proto/mutex.h"

namespace detshare {
namespace {

using std::chrono::milliseconds;

// Engine 2 replies as the test says: r replies, n does not, s does not and is stopped. The last letter
// counts for all further questions. Other engines always reply.
struct WatchedEngines {
  RunningEngines running;
  std::atomic<int> asked{0};
  Mutex mutex;
  std::string replies ABSL_GUARDED_BY(mutex) = "r";
  char latest ABSL_GUARDED_BY(mutex) = 'r';
  std::vector<pid_t> ended ABSL_GUARDED_BY(mutex);
  EngineWatch watch{running,
                    milliseconds(1),
                    {.ask = [this](const EngineInfo& engine) { return Ask(engine); },
                     .stopped =
                         [this](const EngineInfo&) {
                           const MutexLock lock(&mutex);
                           return latest == 's';
                         },
                     .end =
                         [this](const EngineInfo& engine) {
                           const MutexLock lock(&mutex);
                           ended.push_back(engine.pid);
                         }}};

  absl::Status Ask(const EngineInfo& engine) {
    ++asked;
    if (engine.pid != 2) return absl::OkStatus();
    const MutexLock lock(&mutex);
    latest = replies.front();
    if (replies.size() > 1) replies.erase(0, 1);
    return latest == 'r' ? absl::OkStatus() : absl::DeadlineExceededError("no reply");
  }
  void Reply(const std::string& all) {
    const MutexLock lock(&mutex);
    replies = all;
  }
  void Begin(pid_t pid) {
    running.Add({"chat", pid, ""});
    watch.Begun();
  }
  void AwaitQuestions(int count) {
    for (const int until = asked + count; asked < until;) std::this_thread::yield();
  }
  std::vector<pid_t> Ended() {
    const MutexLock lock(&mutex);
    return ended;
  }
};

TEST_CASE_METHOD(WatchedEngines, "An engine that does not reply any more is ended, once") {
  Reply("rrn");
  Begin(1);
  Begin(2);
  while (Ended().empty()) std::this_thread::yield();
  AwaitQuestions(20);
  CHECK(Ended() == std::vector<pid_t>{2});
}

TEST_CASE_METHOD(WatchedEngines, "An engine that replies again in time goes on") {
  STATIC_REQUIRE(EngineWatch::kMaxUnanswered == 4);
  Reply("rnnnrnnnrnnrnnnr");
  Begin(2);
  AwaitQuestions(30);
  CHECK(Ended().empty());
}

TEST_CASE_METHOD(WatchedEngines, "An engine that has never replied may still be starting") {
  Reply("n");
  Begin(2);
  AwaitQuestions(20);
  CHECK(Ended().empty());
}

TEST_CASE_METHOD(WatchedEngines, "An engine that somebody has stopped is not ended") {
  Reply("rnnns");
  Begin(2);
  AwaitQuestions(20);
  CHECK(Ended().empty());
  Reply("n");
  while (Ended().empty()) std::this_thread::yield();
}

TEST_CASE_METHOD(WatchedEngines,
                 "A new engine with the process number of an ended one is watched anew") {
  Reply("rn");
  Begin(1);
  Begin(2);
  while (Ended().empty()) std::this_thread::yield();
  running.Remove(2);
  AwaitQuestions(5);
  Begin(2);
  AwaitQuestions(20);
  CHECK(Ended() == std::vector<pid_t>{2});
}

TEST_CASE("A stopped process is known as such") {
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  CHECK_FALSE(IsStopped(child));
  kill(child, SIGSTOP);
  int status = 0;
  REQUIRE(waitpid(child, &status, WUNTRACED) == child);
  CHECK(IsStopped(child));
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  CHECK_FALSE(IsStopped(child));
}

}  // namespace
}  // namespace detshare
