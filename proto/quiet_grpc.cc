#include "proto/quiet_grpc.h"

#include <grpc/event_engine/event_engine.h>
#include <grpc/grpc.h>

#include <deque>
#include <memory>
#include <thread>
#include <utility>

#include "proto/mutex.h"

// An internal function of gRPC. gRPC stops its timer threads with it around a fork.
void grpc_timer_manager_set_threading(bool enabled);

namespace detshare {
namespace {

using grpc_event_engine::experimental::EndpointConfig;
using grpc_event_engine::experimental::EventEngine;
using grpc_event_engine::experimental::MemoryAllocator;
using grpc_event_engine::experimental::MemoryAllocatorFactory;

// Runs gRPC's closures on a thread. The thread starts with the first closure and sleeps, without a
// time limit, while there is none. Lives as long as the process.
class Worker {
 public:
  static Worker& Get() {
    static Worker* const worker = new Worker;
    return *worker;
  }
  void Add(absl::AnyInvocable<void()> closure) {
    {
      const MutexLock lock(&mutex_);
      closures_.push_back(std::move(closure));
      if (!started_) std::thread([this] { Work(); }).detach();
      started_ = true;
    }
    changed_.Signal();
  }
  static bool IsThisThread() { return this_thread_; }

 private:
  void Work() {
    this_thread_ = true;
    MutexLock lock(&mutex_);
    for (;;) {
      changed_.Wait(&mutex_,
                    [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !closures_.empty(); });
      absl::AnyInvocable<void()> closure = std::move(closures_.front());
      closures_.pop_front();
      lock.Unlock();
      closure();
      closure = nullptr;
      lock.Lock();
    }
  }

  static thread_local bool this_thread_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<absl::AnyInvocable<void()>> closures_ ABSL_GUARDED_BY(mutex_);
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
};
thread_local bool Worker::this_thread_ = false;

// Runs closures on the Worker. Delayed closures never run and can always be cancelled.
class QuietEngine final : public EventEngine {
 public:
  absl::StatusOr<std::unique_ptr<Listener>> CreateListener(
      Listener::AcceptCallback, absl::AnyInvocable<void(absl::Status)>, const EndpointConfig&,
      std::unique_ptr<MemoryAllocatorFactory>) override {
    return absl::UnimplementedError("no listeners");
  }
  ConnectionHandle Connect(OnConnectCallback on_connect, const ResolvedAddress&,
                           const EndpointConfig&, MemoryAllocator, Duration) override {
    Run([on_connect = std::move(on_connect)]() mutable {
      on_connect(absl::UnimplementedError("no connections"));
    });
    return {{-1, -1}};
  }
  bool CancelConnect(ConnectionHandle) override { return false; }
  bool IsWorkerThread() override { return Worker::IsThisThread(); }
  std::unique_ptr<DNSResolver> GetDNSResolver(const DNSResolver::ResolverOptions&) override {
    return nullptr;
  }
  void Run(Closure* closure) override {
    Run([closure] { closure->Run(); });
  }
  void Run(absl::AnyInvocable<void()> closure) override { Worker::Get().Add(std::move(closure)); }
  TaskHandle RunAfter(Duration, Closure*) override { return {{1, 1}}; }
  TaskHandle RunAfter(Duration, absl::AnyInvocable<void()>) override { return {{1, 1}}; }
  bool Cancel(TaskHandle) override { return true; }
};

}  // namespace

void StartQuietGrpc() {
  [[maybe_unused]] static const bool started = [] {
    grpc_event_engine::experimental::SetEventEngineFactory(
        [] { return std::make_unique<QuietEngine>(); });
    grpc_init();  // never undone, so that nothing is started a second time
    grpc_timer_manager_set_threading(false);
    return true;
  }();
}

}  // namespace detshare
