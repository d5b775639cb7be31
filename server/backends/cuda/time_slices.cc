#include "server/backends/cuda/time_slices.h"

#include <sys/ioctl.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "policy/status_macros.h"
#include "proto/mutex.h"
#include "server/backends/cuda/rm_calls.h"

namespace detshare::cuda {
namespace {

// nvos.h
constexpr unsigned kRmAlloc = 0x2b;

// NVOS21_PARAMETERS. NVOS64_PARAMETERS begins with the same members.
struct AllocParameters {
  uint32_t client, parent, object, object_class;
  uint64_t parameters;
  uint32_t parameter_bytes, status;
};
static_assert(sizeof(AllocParameters) == 32);
// NVOS64_PARAMETERS, up to its status.
struct AllocParametersWithRights {
  uint32_t client, parent, object, object_class;
  uint64_t parameters, rights;
  uint32_t parameter_bytes, flags, status;
};
static_assert(sizeof(AllocParametersWithRights) == 48);

// class/cla06c.h: KEPLER_CHANNEL_GROUP_A
constexpr uint32_t kChannelGroupClass = 0xa06c;
// NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS, its first members.
struct GroupParameters {
  uint32_t error_object, ecc_error_object, address_space, engine;
};
constexpr uint32_t kComputeEngine = 1;  // NV2080_ENGINE_TYPE_GR0

// ctrl/ctrla06c.h: the parameter of both is one NvU64, in microseconds.
constexpr uint32_t kSetTimeSlice = 0xa06c0103;
constexpr uint32_t kGetTimeSlice = 0xa06c0104;

struct Recording {
  Mutex mutex;
  bool on ABSL_GUARDED_BY(mutex) = false;
  std::vector<ChannelGroup> groups ABSL_GUARDED_BY(mutex);
};

Recording& TheRecording() {
  static Recording* const recording = new Recording;
  return *recording;
}

}  // namespace

void NoteChannelGroup(int descriptor, unsigned long request, const void* argument) {
  if (_IOC_TYPE(request) != kRmIoctlType || _IOC_NR(request) != kRmAlloc || argument == nullptr)
    return;
  uint32_t status = 1;
  if (_IOC_SIZE(request) == sizeof(AllocParameters)) {
    status = static_cast<const AllocParameters*>(argument)->status;
  } else if (_IOC_SIZE(request) == sizeof(AllocParametersWithRights)) {
    status = static_cast<const AllocParametersWithRights*>(argument)->status;
  }
  if (status != 0) return;
  AllocParameters call;
  std::memcpy(&call, argument, sizeof call);
  if (call.object_class != kChannelGroupClass || call.parameters == 0) return;
  const auto* const group = reinterpret_cast<const GroupParameters*>(call.parameters);
  if (group->engine != kComputeEngine) return;
  Recording& recording = TheRecording();
  const MutexLock lock(&recording.mutex);
  if (recording.on) recording.groups.emplace_back(descriptor, call.client, call.object);
}

ChannelGroup ChannelGroup::StandIn() {
  ChannelGroup group(-1, 0, 0);
  group.stand_in_ = std::make_shared<std::atomic<uint64_t>>(0);
  return group;
}

absl::Status ChannelGroup::Control(uint32_t command, uint64_t* microseconds) const {
  if (stand_in_ != nullptr) {
    // Relaxed: the slice publishes nothing.
    if (command == kSetTimeSlice) stand_in_->store(*microseconds, std::memory_order_relaxed);
    *microseconds = stand_in_->load(std::memory_order_relaxed);
    return absl::OkStatus();
  }
  RmControl call{};
  call.client = client_;
  call.object = handle_;
  call.command = command;
  call.parameters = reinterpret_cast<uint64_t>(microseconds);
  call.parameter_bytes = sizeof *microseconds;
  if (ioctl(descriptor_, kRmControl, &call) != 0)
    return absl::ErrnoToStatus(errno, "the kernel module refuses a control call");
  if (call.status != 0) {
    return absl::UnavailableError(absl::StrFormat(
        "the kernel module refuses command 0x%x with status 0x%x", command, call.status));
  }
  return absl::OkStatus();
}

absl::Status ChannelGroup::SetTimeSlice(std::chrono::microseconds slice) const {
  auto microseconds = static_cast<uint64_t>(slice.count());
  return Control(kSetTimeSlice, &microseconds);
}

absl::StatusOr<std::chrono::microseconds> ChannelGroup::TimeSlice() const {
  uint64_t microseconds = 0;
  DETSHARE_RETURN_IF_ERROR(Control(kGetTimeSlice, &microseconds));
  return std::chrono::microseconds(microseconds);
}

ChannelGroupRecorder::ChannelGroupRecorder(bool stand_in) {
  Recording& recording = TheRecording();
  const MutexLock lock(&recording.mutex);
  recording.on = !stand_in;
  recording.groups.clear();
  if (stand_in) recording.groups.push_back(ChannelGroup::StandIn());
}

ChannelGroupRecorder::~ChannelGroupRecorder() {
  Recording& recording = TheRecording();
  const MutexLock lock(&recording.mutex);
  recording.on = false;
}

std::vector<ChannelGroup> ChannelGroupRecorder::compute_groups() const {
  Recording& recording = TheRecording();
  const MutexLock lock(&recording.mutex);
  return recording.groups;
}

}  // namespace detshare::cuda
