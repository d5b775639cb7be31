#include "server/telemetry/telemetry.h"

#include <cuda.h>
#include <pthread.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "proto/nvml/nvml_types.h"
#include "server/session/session_worker.h"
#include "server/session/visible_memory.h"
#include "server/telemetry/process_ids.h"

namespace detshare {
namespace {

// 64 samples make about a second.
constexpr std::chrono::milliseconds kSamplePeriod(16);
constexpr std::chrono::seconds kSampleAfterQuestion(3);
constexpr size_t kFirstSamples = 6;

// Limits for one client's question, and for the questions of all clients that wait.
constexpr int kMaxDeviceIds = 64;
constexpr int kMaxQueries = 128;
constexpr size_t kMaxQuestions = 256;

proto::TelemetryReply Refused(int result) {
  proto::TelemetryReply reply;
  reply.set_result(result);
  return reply;
}

uint32_t AttributeOf(const Device& device, CUdevice_attribute attribute) {
  const auto& attributes = device.properties().attributes;
  const auto found = attributes.find(attribute);
  return found != attributes.end() && found->second > 0 ? static_cast<uint32_t>(found->second) : 0;
}

void Describe(const Device& device, const std::shared_ptr<Quota>& quota,
              proto::VisibleDevice* out) {
  const DeviceProperties& properties = device.properties();
  out->set_name(properties.name);
  out->set_uuid(properties.uuid.data(), properties.uuid.size());
  out->set_compute_major(AttributeOf(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
  out->set_compute_minor(AttributeOf(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  out->set_pci_domain(AttributeOf(device, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID));
  out->set_pci_bus(AttributeOf(device, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID));
  out->set_pci_device(AttributeOf(device, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID));
  const Device::Memory memory = VisibleMemory(device, quota);
  out->set_total_memory(memory.total);
  out->set_free_memory(memory.free);
}

}  // namespace

Telemetry::Telemetry(SessionManager& manager, std::shared_ptr<HostTelemetry> host)
    : manager_(manager), host_(std::move(host), static_cast<int>(manager.devices().size())) {
  thread_ = std::thread([this] { Run(); });
}

Telemetry::~Telemetry() {
  {
    const MutexLock lock(&mutex_);
    stop_ = true;
  }
  changed_.SignalAll();
  thread_.join();
  for (Question& question : waiting_) question.done(Refused(NVML_ERROR_UNKNOWN));
  for (Question& question : questions_) question.done(Refused(NVML_ERROR_UNKNOWN));
}

void Telemetry::Reply(const Peer& peer, const proto::TelemetryRequest& request, Done done) {
  {
    const MutexLock lock(&mutex_);
    if (!stop_ && questions_.size() < kMaxQuestions) {
      questions_.push_back({peer, &request, std::move(done)});
      changed_.SignalAll();
      return;
    }
  }
  done(Refused(NVML_ERROR_UNKNOWN));
}

void Telemetry::Run() {
  pthread_setname_np(pthread_self(), "telemetry");
  MutexLock lock(&mutex_);
  while (!stop_) {
    const auto something = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stop_ || !questions_.empty();
    };
    if (sampling_) {
      changed_.WaitUntil(&mutex_, next_sample_, something);
    } else {
      changed_.Wait(&mutex_, something);
    }
    if (stop_) return;
    std::deque<Question> questions;
    questions.swap(questions_);
    lock.Unlock();

    const Clock::time_point now = Clock::now();
    for (Question& question : questions) {
      if (!question.request->utilization()) {
        question.done(Reply(question.peer, *question.request));
        continue;
      }
      if (!sampling_) next_sample_ = now;
      sampling_ = true;
      sample_until_ = now + kSampleAfterQuestion;
      // waiting_ has as much room as the queue.
      if (waiting_.size() < kMaxQuestions) {
        waiting_.push_back(std::move(question));
      } else {
        question.done(Refused(NVML_ERROR_UNKNOWN));
      }
    }
    if (sampling_ && now >= next_sample_) {
      Sample();
      next_sample_ = std::max(next_sample_ + kSamplePeriod, now);
    }
    if (EnoughSamples()) {
      for (Question& question : waiting_) question.done(Reply(question.peer, *question.request));
      waiting_.clear();
    }
    if (sampling_ && now >= sample_until_) {
      sampling_ = false;
      sampler_.Clear();
    }
    lock.Lock();
  }
}

bool Telemetry::EnoughSamples() const { return sampler_.size() >= kFirstSamples; }

void Telemetry::Sample() {
  std::set<BusySampler::SessionOnDevice> busy;
  for (const auto& [request, worker] : manager_.Workers()) {
    for (const SessionDeviceUse& use : worker->device_use()) {
      if (use.busy) busy.emplace(worker->config().id, use.device);
    }
  }
  sampler_.Add(std::move(busy));
}

proto::TelemetryReply Telemetry::Reply(const Peer& peer, const proto::TelemetryRequest& request) {
  const absl::StatusOr<std::string>& tenant = peer.tenant;
  if (absl::IsPermissionDenied(tenant.status())) return Refused(NVML_ERROR_NO_PERMISSION);
  if (!tenant.ok() || request.device_ids_size() > kMaxDeviceIds ||
      request.queries_size() > kMaxQueries || !IsRunName(request.run()))
    return Refused(NVML_ERROR_INVALID_ARGUMENT);

  proto::TelemetryReply reply;
  if (!manager_.devices().empty())
    reply.set_driver_version(manager_.devices().front()->properties().driver_version);
  // A client that would get no session sees a machine without devices, as cuInit would show it.
  // This happens if its list names a device that does not exist, or no device has room.
  SessionRequest session;
  session.owner = {peer.uid, peer.gid};
  session.pid = peer.pid;
  session.tenant = *tenant;
  session.device_ids = {request.device_ids().begin(), request.device_ids().end()};
  session.device_count = request.device_count();
  session.run = request.run();
  session.endpoint = peer.endpoint;
  const std::vector<int> shown = manager_.DevicesOf(session).value_or(std::vector<int>());
  const std::shared_ptr<TenantAccount> account = manager_.tenant_accounts().Of(*tenant);
  for (const int index : shown) {
    const Device& device = *manager_.devices()[index];
    Describe(device, TenantAccount::Memory(account, static_cast<size_t>(index)),
             reply.add_devices());
  }

  // The client only claims the tenant's name, so it does not see what other users run under that
  // name.
  const ProcessIds ids(peer.pid, peer.pid_namespace);
  std::set<uint64_t> sessions;
  for (const auto& [opened, worker] : manager_.Workers()) {
    if (opened.tenant != *tenant || opened.owner.uid != peer.uid) continue;
    const uint64_t id = worker->config().id;
    sessions.insert(id);
    const uint32_t pid = ids.OfViewer(opened.pid, opened.pid_namespace);
    if (pid == 0) continue;
    for (const SessionDeviceUse& use : worker->device_use()) {
      for (int i = 0; i < reply.devices_size(); ++i) {
        if (manager_.devices()[shown[i]] != use.device) continue;
        proto::VisibleProcess* const process = reply.mutable_devices(i)->add_processes();
        process->set_pid(pid);
        process->set_memory(use.memory);
        process->set_busy_percent(sampler_.Percent({id}, use.device));
      }
    }
  }
  for (int i = 0; i < reply.devices_size(); ++i) {
    reply.mutable_devices(i)->set_busy_percent(
        sampler_.Percent(sessions, manager_.devices()[shown[i]]));
  }

  const auto position = [&shown](int device) {
    return device >= 0 && device < static_cast<int>(shown.size()) ? shown[device]
           : device == -1                                         ? -1
                                                                  : -2;
  };
  for (const proto::HostQuery& query : request.queries()) {
    HostResult result =
        host_.Ask(query.function(), position(query.device()), position(query.peer()),
                  {query.arguments().begin(), query.arguments().end()}, Clock::now());
    proto::HostReply* const out = reply.add_replies();
    out->set_result(result.result);
    out->set_data(std::move(result.data));
  }
  return reply;
}

}  // namespace detshare
