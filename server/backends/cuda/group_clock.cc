#include "server/backends/cuda/group_clock.h"

#include <utility>

#include "policy/status_macros.h"

namespace detshare::cuda {
namespace {

constexpr int64_t kMaxWait = 5'000'000;  // nanoseconds, for all rounds together
// A round must be as precise as this many nanoseconds. Each round that is not doubles the limit, so
// that a busy host also gets references.
constexpr double kFirstLimit = 3'000;
constexpr double kLastLimit = 200'000;

}  // namespace

GroupClock::~GroupClock() {
  for (size_t group = 0; group < streams_.size(); ++group) {
    if (streams_[group] == nullptr) continue;
    parts_.enter(group == 1);
    parts_.api.cuStreamDestroy(streams_[group]);
    for (References* const references : {&current_, &spare_}) {
      if (references->events[group] != nullptr)
        parts_.api.cuEventDestroy(references->events[group]);
    }
  }
}

absl::Status GroupClock::Prepare() {
  if (prepared_) return absl::OkStatus();
  const DriverApi& api = parts_.api;
  for (size_t group = 0; group < streams_.size(); ++group) {
    parts_.enter(group == 1);
    if (streams_[group] == nullptr) {
      // Streams of the same priority may share a hardware queue and then wait for each other.
      int least = 0, greatest = 0;
      DETSHARE_RETURN_IF_ERROR(parts_.check(api.cuCtxGetStreamPriorityRange(&least, &greatest),
                                            "cuCtxGetStreamPriorityRange"));
      DETSHARE_RETURN_IF_ERROR(parts_.check(
          api.cuStreamCreateWithPriority(&streams_[group], CU_STREAM_NON_BLOCKING, greatest),
          "cuStreamCreateWithPriority"));
    }
    for (References* const references : {&current_, &spare_}) {
      CUevent& event = references->events[group];
      if (event != nullptr) continue;
      DETSHARE_RETURN_IF_ERROR(
          parts_.check(api.cuEventCreate(&event, CU_EVENT_DEFAULT), "cuEventCreate"));
    }
  }
  prepared_ = true;
  return absl::OkStatus();
}

absl::StatusOr<double> GroupClock::Reach(bool urgent, int64_t deadline, double* error) {
  const size_t group = urgent ? 1 : 0;
  const CUevent event = spare_.events[group];
  parts_.enter(urgent);
  int64_t before = parts_.clock.NowNanoseconds();
  DETSHARE_RETURN_IF_ERROR(
      parts_.check(parts_.api.cuEventRecord(event, streams_[group]), "cuEventRecord"));
  for (;;) {
    const CUresult result = parts_.api.cuEventQuery(event);
    const int64_t now = parts_.clock.NowNanoseconds();
    if (result == CUDA_SUCCESS) {
      // It was reached between the start of the last poll that did not see it and the end of this.
      *error = static_cast<double>(now - before) / 2;
      return static_cast<double>(before) + *error;
    }
    if (result != CUDA_ERROR_NOT_READY) return parts_.check(result, "cuEventQuery");
    if (now >= deadline)
      return absl::UnavailableError("the device did not reach a reference of its groups in time");
    before = now;
  }
}

absl::Status GroupClock::Renew() {
  DETSHARE_RETURN_IF_ERROR(Prepare());
  const int64_t deadline = parts_.clock.NowNanoseconds() + kMaxWait;
  for (double limit = kFirstLimit; limit <= kLastLimit; limit *= 2) {
    double ordinary_error = 0, urgent_error = 0;
    DETSHARE_ASSIGN_OR_RETURN(const double ordinary, Reach(false, deadline, &ordinary_error));
    DETSHARE_ASSIGN_OR_RETURN(const double urgent, Reach(true, deadline, &urgent_error));
    if (ordinary_error + urgent_error > limit) continue;
    spare_.offset = urgent - ordinary;
    spare_.at = parts_.clock.NowNanoseconds();
    spare_.valid = true;
    std::swap(current_, spare_);
    return absl::OkStatus();
  }
  return absl::UnavailableError("the host is too busy to compare the groups of the device");
}

absl::StatusOr<float> GroupClock::Elapsed(CUevent start, CUevent end) {
  float milliseconds = 0;
  DETSHARE_RETURN_IF_ERROR(
      parts_.check(parts_.api.cuEventElapsedTime(&milliseconds, start, end), "cuEventElapsedTime"));
  return milliseconds;
}

absl::StatusOr<double> GroupClock::TimeOf(const Recorded& recorded) {
  parts_.enter(recorded.urgent);
  const CUevent reference = current_.events[recorded.urgent ? 1 : 0];
  DETSHARE_ASSIGN_OR_RETURN(double since, Elapsed(reference, recorded.event));
  // CUDA does not say what it returns if the second event is the earlier one.
  if (since <= 0) {
    DETSHARE_ASSIGN_OR_RETURN(since, Elapsed(recorded.event, reference));
    since = -since;
  }
  return recorded.urgent ? since + current_.offset / 1e6 : since;
}

absl::StatusOr<float> GroupClock::Milliseconds(Recorded start, Recorded end) {
  const MutexLock lock(&mutex_);
  for (const Recorded& recorded : {start, end}) {
    // The error of an event that was not reached or is not timed. It needs no references.
    parts_.enter(recorded.urgent);
    DETSHARE_RETURN_IF_ERROR(Elapsed(recorded.event, recorded.event).status());
  }
  if (!current_.valid || parts_.clock.NowNanoseconds() - current_.at > kMaxAge) {
    const absl::Status renewed = Renew();
    if (!renewed.ok() && !(current_.valid && absl::IsUnavailable(renewed))) return renewed;
  }
  DETSHARE_ASSIGN_OR_RETURN(const double from, TimeOf(start));
  DETSHARE_ASSIGN_OR_RETURN(const double to, TimeOf(end));
  return static_cast<float>(to - from);
}

}  // namespace detshare::cuda
