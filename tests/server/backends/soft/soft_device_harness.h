// A software GPU with sessions, for tests.
#pragma once

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "coroutine_runtime/device.h"
#include "coroutine_runtime/status_cuda.h"
#include "server/backends/soft/soft_device.h"
#include "tests/server/backends/soft/test_addresses.h"
#include "tests/server/text_output.h"
#include "tests/test_file.h"

namespace detshare::soft {

inline std::string ReadTestFile(const std::string& name) {
  return detshare::ReadTestFile("tests/server/backends/soft/" + name);
}

inline absl::Span<const std::byte> BytesOf(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// Fails the test with the message unless the status is OK. Any thread may pass an OK status, but
// only the test's thread may fail, because Catch works on one thread.
inline void Require(const absl::Status& status) {
  if (!status.ok()) FAIL(status.ToString());
}
template <typename T>
T Require(absl::StatusOr<T> value) {
  Require(value.status());
  return *std::move(value);
}

// Returns a parameter block with the values one after the other, aligned as in C++.
template <typename... Values>
std::vector<std::byte> Parameters(const Values&... values) {
  std::vector<std::byte> bytes;
  const auto add = [&](const auto& value) {
    bytes.resize((bytes.size() + sizeof(value) - 1) / sizeof(value) * sizeof(value));
    const size_t offset = bytes.size();
    bytes.resize(offset + sizeof(value));
    std::memcpy(bytes.data() + offset, &value, sizeof(value));
  };
  (add(values), ...);
  return bytes;
}

// Set and Look access device memory that a kernel may use at the same time.
template <typename T>
void Set(T* at, T value) {
  std::atomic_ref<T>(*at).store(value, std::memory_order_release);
}
template <typename T>
T Look(T* at) {
  return std::atomic_ref<T>(*at).load(std::memory_order_acquire);
}

// A device and the lines of its log.
class TestDevice {
 public:
  explicit TestDevice(SoftDeviceOptions options = {}) {
    if (options.worker_threads == 0) options.worker_threads = 2;
    options.total_memory = 256 << 20;
    options.log = [this](std::string_view line) {
      const std::lock_guard lock(mutex_);
      log_.append(line).append("\n");
    };
    device_ = Require(CreateSoftDevice(options));
  }
  Device& operator*() { return *device_; }
  Device* operator->() { return device_.get(); }
  std::string log() {
    const std::lock_guard lock(mutex_);
    return log_;
  }

 private:
  std::mutex mutex_;
  std::string log_;
  std::unique_ptr<Device> device_;
};

// A session with memory, the library of kernels.cu, and a queue.
class TestSession {
 public:
  TestSession(TestDevice& device, uint64_t index, Partition* partition = nullptr)
      : device_(device),
        space_(Require(device->CreateAddressSpace(TestBase(index), kTestSpaceBytes))),
        queue_(Require((partition ? *partition : device->whole()).CreateQueue(0))),
        next_(space_->base()) {
    static const std::string image = ReadTestFile("kernels.fatbin");
    space_->set_output(output_);
    library_ = Load(image);
  }
  ~TestSession() { space_->Abandon(); }

  std::unique_ptr<Library> Load(const std::string& image) {
    CompileLogs logs;
    return Require(device_->LoadLibrary(*space_, BytesOf(image), {}, logs, nullptr));
  }

  AddressSpace& space() { return *space_; }
  Queue& queue() { return *queue_; }
  Library& library() { return *library_; }
  Kernel& kernel(std::string_view name) { return *Require(library_->GetKernel(name)); }
  TextOutput& output() { return *output_; }

  // Allocates zeroed device memory for `count` values. The tests access it directly.
  template <typename T>
  T* Allocate(uint64_t count) {
    const uint64_t bytes = (count * sizeof(T) + 511) / 512 * 512;
    Require(space_->Map(next_, bytes));
    // A gap follows, so that allocations are not adjacent.
    return reinterpret_cast<T*>(std::exchange(next_, next_ + bytes + 512));
  }

  absl::Status Launch(std::string_view name, Dim3 grid, Dim3 block,
                      const std::vector<std::byte>& parameters = {}, LaunchShape shape = {}) {
    shape.grid = grid;
    shape.block = block;
    return queue_->Launch(*space_, kernel(name), shape, parameters);
  }

  // Waits until everything on the queue is complete, or the session has a fault.
  absl::Status Finish() {
    const uint64_t value = ++fences_;
    Require(queue_->WriteFence(*space_, &fence_, value));
    while (fence_.load(std::memory_order_acquire) < value && space_->fault().ok())
      std::this_thread::yield();
    return space_->fault();
  }

 private:
  TestDevice& device_;
  const std::shared_ptr<TextOutput> output_ = std::make_shared<TextOutput>();
  std::atomic<uint64_t> fence_{0};
  uint64_t fences_ = 0;
  std::unique_ptr<AddressSpace> space_;
  std::unique_ptr<Queue> queue_;
  std::unique_ptr<Library> library_;
  DeviceAddress next_;
};

}  // namespace detshare::soft
