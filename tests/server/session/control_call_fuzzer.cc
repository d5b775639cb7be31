// A session's handlers with calls, and with the records of the ring that they work together with,
// of any contents (control_call_input.h): every call gets one reply, and a session that has ended
// leaves nothing behind.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coroutine_runtime/device_scheduler.h"
#include "coroutine_runtime/executor.h"
#include "coroutine_runtime/queue_pool.h"
#include "policy/registry.h"
#include "server/base/logging.h"
#include "server/session/session.h"
#include "server/session/session_config.h"
#include "server/session/session_driver.h"
#include "server/session/shared_events.h"
#include "server/session/shared_memory_objects.h"
#include "server/shared_memory/ring_reader.h"
#include "tests/fuzzing/check.h"
#include "tests/server/instant_device.h"
#include "tests/server/instant_images.h"
#include "tests/server/session/control_call_input.h"
#include "tests/server/test_windows.h"

namespace detshare {
namespace {

constexpr int kMaxOperations = 64;
constexpr int kMaxResult = 999;  // CUDA_ERROR_UNKNOWN
constexpr int kDevices = 2;

// Takes bytes off the front of an input.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(data, size) {}

  bool Head(InputOperation* head) {
    if (rest_.size() < sizeof(*head)) return false;
    std::memcpy(head, Take(sizeof(*head)).data(), sizeof(*head));
    return true;
  }
  // At most `count` bytes.
  std::span<const uint8_t> Take(size_t count) {
    const std::span<const uint8_t> taken = rest_.first(std::min(count, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }

 private:
  std::span<const uint8_t> rest_;
};

// One device with what a session needs on it.
struct DeviceParts {
  DeviceParts() {
    device.mutable_properties().total_memory = 16 << 20;
    device.recipes = {
        {"add", 16, [](InstantSpace&, const LaunchShape&, const std::byte*) {}},
        {"fault", 0,
         [](InstantSpace& space, const LaunchShape&, const std::byte*) { space.Fault(); }},
    };
    device.image_device = &images;
    auto policy = policy::CreatePolicy("whole", {});
    FUZZ_CHECK(policy.ok());
    DeviceScheduler::Options options;
    options.own_thread = false;
    auto created = DeviceScheduler::Create(device, *std::move(policy), {}, clock, options);
    FUZZ_CHECK(created.ok());
    scheduler = *std::move(created);
  }

  InstantDevice device;
  InstantImages images;
  ManualClock clock;
  std::unique_ptr<DeviceScheduler> scheduler;
  QueuePool queues{device};
};

// The objects that sessions have in common. They are made for each input, because a session that
// ended must leave nothing in them.
struct Server {
  Server() {
    SetLogLevel(LogLevel::kError);
    options.windows.pinned_base = kInputPinnedBase;
    options.windows.pinned_bytes = kInputPinnedBytes;
    options.region = {.ring_bytes = 2 * kMaxRecordBytes,
                      .reply_count = 4,
                      .output_bytes = 4096,
                      .fence_count = 64,
                      .staging_bytes = 1 << 16};
    options.limits.contexts = 4;
    options.limits.streams = 16;
    options.limits.events = 16;
    options.limits.libraries = 8;
    options.limits.kernels = 8;
    options.limits.arrays = 8;
    options.limits.image_objects = 8;
    options.limits.image_bytes = 1 << 16;
    options.limits.log_bytes = 64;
    options.limits.graphs = 4;
    options.limits.graph_bytes = 1 << 16;
    options.limits.graph_conditions = 4;
    options.limits.graph = {.graphs = 8, .nesting = 3, .nodes = 64, .edges = 128};
    options.limits.pinned = {.bytes = 1 << 20, .kept_bytes = 1 << 16, .files = 8};

    config.id = 1;
    config.owner = {getuid(), getgid()};
    config.label = "fuzzed";
    config.tenant = "tester";
    config.directory = Directory() + "/session";
    config.shared_memory_objects = &shared_memory_objects;
    config.shared_event_tokens = &shared_events;
    constexpr uint64_t kPart = kInputDeviceBytes / kDevices;
    for (int i = 0; i < kDevices; ++i) {
      DeviceParts& parts = devices[i];
      config.devices.push_back({.device = &parts.device,
                                .queues = &parts.queues,
                                .scheduler = parts.scheduler.get(),
                                .memory_base = kInputDeviceBase + i * kPart,
                                .memory_bytes = kPart});
    }
  }

  // Nothing of a session is left.
  void CheckEmpty() const {
    for (const DeviceParts& parts : devices) {
      FUZZ_CHECK(parts.device.used.load() == 0);
      FUZZ_CHECK(parts.device.spaces.load() == 0);
      FUZZ_CHECK(parts.device.libraries.load() == 0);
    }
    FUZZ_CHECK(access(config.directory.c_str(), F_OK) != 0);
  }

  // One for the process.
  static const std::string& Directory() {
    static const TestDirectory directory;
    return directory.path;
  }

  ServerOptions options;
  SharedMemoryObjects shared_memory_objects;
  SharedEvents shared_events;
  DeviceParts devices[kDevices];
  SessionConfig config;
};

// The replies to the calls of one input.
class Replies {
 public:
  Reply::CallDone Expect() {
    const size_t index = counts_.size();
    counts_.push_back(0);
    return [this, index](int result, std::string) {
      FUZZ_CHECK(result >= 0 && result <= kMaxResult);
      ++counts_[index];
      FUZZ_CHECK(counts_[index] == 1);
    };
  }
  void CheckAll() const {
    for (const int count : counts_) FUZZ_CHECK(count == 1);
  }

 private:
  std::vector<int> counts_;
};

// As the reader of the ring does it: copies that are aligned.
void HandleRecord(SessionDriver& driver, const InputOperation& head, std::span<const uint8_t> args,
                  std::span<const uint8_t> payload) {
  std::vector<uint64_t> args_copy(args.size() / 8 + 1), payload_copy(payload.size() / 8 + 1);
  std::copy(args.begin(), args.end(), reinterpret_cast<uint8_t*>(args_copy.data()));
  std::copy(payload.begin(), payload.end(), reinterpret_cast<uint8_t*>(payload_copy.data()));
  RingRecord record;
  record.op = head.op;
  record.device = head.device;
  record.context = head.context;
  record.reply_slot = 0;
  record.args = {reinterpret_cast<const uint8_t*>(args_copy.data()), args.size()};
  record.payload = {reinterpret_cast<const uint8_t*>(payload_copy.data()), payload.size()};
  driver.HandleRecord(record);
}

// Does the work of the session's worker, until the client breaks the protocol or the input ends.
void Run(SessionDriver& driver, Input input, Replies& replies) {
  Session& session = driver.session();
  InputOperation head;
  // Arguments stay until their reply.
  std::vector<std::unique_ptr<std::vector<uint8_t>>> kept_args;
  for (int i = 0; i < kMaxOperations && session.violation().empty() && input.Head(&head); ++i) {
    const std::span<const uint8_t> args = input.Take(head.args_bytes);
    const std::span<const uint8_t> payload = input.Take(head.payload_bytes);
    if (head.by_ring % 2 == 1) {
      HandleRecord(driver, head, args, payload);
    } else {
      kept_args.push_back(std::make_unique<std::vector<uint8_t>>(args.begin(), args.end()));
      driver.HandleCall(head.op, head.device, head.context, *kept_args.back(),
                        std::make_shared<const std::string>(payload.begin(), payload.end()),
                        replies.Expect());
    }
    while (session.executor().Poll() != 0) {
    }
    driver.WatchWork(/*pause=*/false);
    driver.CheckFault();
    FUZZ_CHECK(session.sticky_error() >= 0 && session.sticky_error() <= kMaxResult);
  }
  session.Close(0);
  driver.Abandon();
}

}  // namespace
}  // namespace detshare

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace detshare;  // NOLINT
  Server server;
  Replies replies;
  {
    absl::StatusOr<std::unique_ptr<SessionDriver>> driver =
        SessionDriver::Open(server.config, server.options);
    FUZZ_CHECK(driver.ok());
    Run(**driver, Input(data, size), replies);
  }
  replies.CheckAll();
  server.CheckEmpty();
  return 0;
}
