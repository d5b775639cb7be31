#include "proto/mutex.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

namespace detshare {
namespace {

using std::chrono::milliseconds;

struct Shared {
  Mutex mutex;
  CondVar changed;
  bool ready ABSL_GUARDED_BY(mutex) = false;

  // Whether another thread could lock now.
  bool IsFree() {
    bool locked = false;
    std::thread([&] {
      if (!mutex.TryLock()) return;
      locked = true;
      mutex.Unlock();
    }).join();
    return locked;
  }
};

TEST_CASE("A lock holds its mutex to the end of the scope, except between Unlock() and Lock()") {
  Shared shared;
  {
    MutexLock lock(&shared.mutex);
    CHECK_FALSE(shared.IsFree());
    lock.Unlock();
    CHECK(shared.IsFree());
    lock.Lock();
    CHECK_FALSE(shared.IsFree());
  }
  CHECK(shared.IsFree());
  {
    MutexLock lock(&shared.mutex);
    lock.Unlock();
  }
  CHECK(shared.IsFree());
}

TEST_CASE("A wait gives the mutex up, and has it again when it returns") {
  Shared shared;
  std::thread other([&] {
    const MutexLock lock(&shared.mutex);
    shared.ready = true;
    shared.changed.SignalAll();
  });
  {
    const MutexLock lock(&shared.mutex);
    shared.changed.Wait(&shared.mutex,
                        [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(shared.mutex) { return shared.ready; });
    CHECK(shared.ready);
    CHECK_FALSE(shared.IsFree());
  }
  other.join();
  CHECK(shared.IsFree());
}

TEST_CASE("A wait whose time is over says whether the condition is true, and has the mutex again") {
  Shared shared;
  const MutexLock lock(&shared.mutex);
  const auto ready = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(shared.mutex) { return shared.ready; };
  const auto begin = std::chrono::steady_clock::now();
  CHECK_FALSE(shared.changed.WaitFor(&shared.mutex, milliseconds(20), ready));
  CHECK(std::chrono::steady_clock::now() - begin >= milliseconds(20));
  CHECK_FALSE(shared.changed.WaitUntil(&shared.mutex, begin, ready));
  shared.changed.WaitFor(&shared.mutex, milliseconds(1));
  shared.changed.WaitUntil(&shared.mutex, begin);
  CHECK_FALSE(shared.IsFree());
  shared.ready = true;
  CHECK(shared.changed.WaitFor(&shared.mutex, milliseconds(0), ready));
  CHECK(shared.changed.WaitUntil(&shared.mutex, begin, ready));
}

TEST_CASE("Readers share a mutex, and a writer has it alone") {
  SharedMutex mutex;
  const auto reader_enters = [&] {
    bool entered = false;
    std::thread([&] {
      const ReaderMutexLock lock(&mutex);
      entered = true;
    }).join();
    return entered;
  };
  int value = 0;
  std::thread writer;
  {
    const ReaderMutexLock lock(&mutex);
    CHECK(reader_enters());
    writer = std::thread([&] {
      const WriterMutexLock lock(&mutex);
      value = 1;
    });
    CHECK(value == 0);
  }
  writer.join();
  const WriterMutexLock lock(&mutex);
  CHECK(value == 1);
}

}  // namespace
}  // namespace detshare
