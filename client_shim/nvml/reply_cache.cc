#include "client_shim/nvml/reply_cache.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "client_shim/base/log.h"
#include "client_shim/nvml/daemon_call.h"
#include "client_shim/nvml/devices.h"
#include "client_shim/transport/daemon_socket.h"
#include "client_shim/transport/device_selection.h"

namespace detshare::nvml {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kMaxAge(50);
constexpr std::chrono::milliseconds kTimeout(10'000);
constexpr char kMethod[] = "/detshare.proto.Telemetry/Read";
constexpr size_t kUuidBytes = 16;
// The number of queries that fit into one request.
constexpr size_t kQueriesAtOnce = 128;
// A program that always asks for new values must not fill its own memory.
constexpr size_t kMaxKnown = 4096;

struct Known {
  proto::HostReply reply;
  Clock::time_point time;
  Age age;
};

struct State {
  std::mutex mutex;
  int initialised = 0;
  Snapshot snapshot;
  Clock::time_point snapshot_time;
  bool has_utilization = false;
  std::map<HostQuery, Known> known;
  std::set<std::string> named;  // unsupported functions

  // Needs the mutex.
  void Forget() {
    snapshot = nullptr;
    known.clear();
  }
};

// Never destroyed, because threads may ask until the end of the process.
State& TheState() {
  static State* const state = [] {
    auto* const made = new State;
    pthread_atfork([] { TheState().mutex.lock(); }, [] { TheState().mutex.unlock(); },
                   [] { TheState().mutex.unlock(); });
    return made;
  }();
  return *state;
}

nvmlReturn_t ResultOf(CallResult result) {
  switch (result) {
    case CallResult::kOk:
      return NVML_SUCCESS;
    case CallResult::kNoDaemon:
      return NVML_ERROR_DRIVER_NOT_LOADED;
    case CallResult::kNoPermission:
      return NVML_ERROR_NO_PERMISSION;
    case CallResult::kTimeout:
      return NVML_ERROR_TIMEOUT;
    case CallResult::kBroken:
      break;
  }
  return NVML_ERROR_UNKNOWN;
}

bool IsSane(const proto::TelemetryReply& reply, int queries) {
  return reply.devices_size() <= kMaxDevices && reply.replies_size() == queries &&
         std::all_of(
             reply.devices().begin(), reply.devices().end(),
             [](const proto::VisibleDevice& device) { return device.uuid().size() == kUuidBytes; });
}

// Asks the daemon one question.
nvmlReturn_t Ask(proto::TelemetryRequest& request, proto::TelemetryReply* reply) {
  // NVML ignores CUDA_VISIBLE_DEVICES.
  const shim::Machine machine = shim::MachineOfEnvironment();
  for (const std::string& id : machine.ids) request.add_device_ids(id);
  request.set_device_count(machine.count);
  request.set_run(machine.run);
  const std::string socket = shim::SocketPath();
  std::string bytes;
  const CallResult result =
      CallDaemon(socket, kMethod, request.SerializeAsString(), kTimeout, &bytes);
  if (result != CallResult::kOk) {
    shim::Log(shim::LogLevel::kInfo, "NVML: %s at %s",
              result == CallResult::kNoDaemon       ? "no detshared"
              : result == CallResult::kNoPermission ? "no permission to connect to detshared"
              : result == CallResult::kTimeout      ? "no reply of detshared"
                                                    : "no understandable answer of detshared",
              socket.c_str());
    // The next daemon may have other devices.
    State& state = TheState();
    const std::lock_guard lock(state.mutex);
    state.Forget();
    return ResultOf(result);
  }
  if (!reply->ParseFromString(bytes)) return NVML_ERROR_UNKNOWN;
  if (reply->result() != NVML_SUCCESS) return reply->result();
  return IsSane(*reply, request.queries_size()) ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

bool IsFresh(const Known& known, Clock::time_point now) {
  return known.age == Age::kFixed || now - known.time < kMaxAge;
}

}  // namespace

nvmlReturn_t Initialise() {
  Snapshot snapshot;
  if (const nvmlReturn_t result = AskForSnapshot(&snapshot); result != NVML_SUCCESS) return result;
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  ++state.initialised;
  return NVML_SUCCESS;
}

nvmlReturn_t ShutDown() {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  if (state.initialised == 0) return NVML_ERROR_UNINITIALIZED;
  if (--state.initialised == 0) state.Forget();
  return NVML_SUCCESS;
}

nvmlReturn_t CheckInitialised() {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  return state.initialised > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t GetSnapshot(Snapshot* snapshot, bool utilization) {
  {
    State& state = TheState();
    const std::lock_guard lock(state.mutex);
    if (state.initialised == 0) return NVML_ERROR_UNINITIALIZED;
    if (state.snapshot != nullptr && Clock::now() - state.snapshot_time < kMaxAge &&
        (state.has_utilization || !utilization)) {
      *snapshot = state.snapshot;
      return NVML_SUCCESS;
    }
  }
  return AskForSnapshot(snapshot, utilization);
}

nvmlReturn_t AskForSnapshot(Snapshot* snapshot, bool utilization) {
  proto::TelemetryRequest request;
  request.set_utilization(utilization);
  auto reply = std::make_shared<proto::TelemetryReply>();
  if (const nvmlReturn_t result = Ask(request, reply.get()); result != NVML_SUCCESS) return result;
  *snapshot = reply;
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  state.snapshot = std::move(reply);
  // The time of the reply: with `utilization` the daemon looks at the end of a wait.
  state.snapshot_time = Clock::now();
  state.has_utilization = utilization;
  return NVML_SUCCESS;
}

nvmlReturn_t AskHost(const std::vector<HostQuery>& queries, Age age,
                     std::vector<proto::HostReply>* replies) {
  State& state = TheState();
  replies->assign(queries.size(), proto::HostReply());
  std::vector<size_t> unknown;
  {
    const std::lock_guard lock(state.mutex);
    if (state.initialised == 0) return NVML_ERROR_UNINITIALIZED;
    const Clock::time_point now = Clock::now();
    for (size_t i = 0; i < queries.size(); ++i) {
      const auto found = state.known.find(queries[i]);
      if (found != state.known.end() && IsFresh(found->second, now)) {
        (*replies)[i] = found->second.reply;
      } else {
        unknown.push_back(i);
      }
    }
  }
  for (size_t begin = 0; begin < unknown.size(); begin += kQueriesAtOnce) {
    const size_t end = std::min(unknown.size(), begin + kQueriesAtOnce);
    proto::TelemetryRequest request;
    for (size_t i = begin; i < end; ++i) {
      const HostQuery& query = queries[unknown[i]];
      proto::HostQuery* const out = request.add_queries();
      out->set_function(query.function);
      out->set_device(query.device);
      out->set_peer(query.peer);
      for (const uint32_t argument : query.arguments) out->add_arguments(argument);
    }
    proto::TelemetryReply reply;
    if (const nvmlReturn_t result = Ask(request, &reply); result != NVML_SUCCESS) return result;
    const std::lock_guard lock(state.mutex);
    if (state.known.size() > kMaxKnown) state.known.clear();
    const Clock::time_point now = Clock::now();
    for (size_t i = begin; i < end; ++i) {
      const proto::HostReply& body = reply.replies(static_cast<int>(i - begin));
      (*replies)[unknown[i]] = body;
      // A failure may pass.
      const Age lasts = body.result() == NVML_SUCCESS ? age : Age::kLive;
      state.known[queries[unknown[i]]] = {body, now, lasts};
    }
  }
  return NVML_SUCCESS;
}

nvmlReturn_t Unsupported(const char* function) {
  State& state = TheState();
  bool first = false;
  {
    const std::lock_guard lock(state.mutex);
    if (state.initialised == 0) return NVML_ERROR_UNINITIALIZED;
    first = state.named.insert(function).second;
  }
  if (first) shim::Log(shim::LogLevel::kWarning, "%s is not supported", function);
  return NVML_ERROR_NOT_SUPPORTED;
}

}  // namespace detshare::nvml
