#include "server/backends/cuda/preemption.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "coroutine_runtime/clock.h"
#include "coroutine_runtime/fresh_address.h"
#include "policy/status_macros.h"
#include "server/backends/cuda/kept_proof.h"
#include "server/backends/cuda/ordinary_slice.h"

namespace detshare::cuda {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;
using Clock = std::chrono::steady_clock;

// Longer than most bursts of urgent work. A longer burst gives the device away for one switch in each
// slice, some 1 % of the time. While two streams of the group wait for ordinary work, the group keeps
// the device until its slice is over (docs/preemption.md), so the slice must not be much longer.
constexpr microseconds kUrgentSlice(20'000);

// A kernel of `n` dependent steps. It counts steps, not time, so that time in which the kernel does
// not run is not taken for work.
constexpr char kStepsPtx[] = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry steps(.param .u64 n)
{
  .reg .pred %p;
  .reg .b32 %x;
  .reg .b64 %i;
  ld.param.u64 %i, [n];
  mov.u32 %x, %tid.x;
LOOP:
  mad.lo.u32 %x, %x, 1664525, 1013904223;
  sub.u64 %i, %i, 1;
  setp.ne.u64 %p, %i, 0;
  @%p bra LOOP;
  setp.eq.u32 %p, %x, 0xdeadbeef;
  @%p nanosleep.u32 1;
  ret;
}
)";
constexpr uint64_t kLongSteps = 500'000;  // some 20 ms on all SMs of an H200
constexpr size_t kRounds = 10, kMinRounds = 5;
constexpr nanoseconds kPause(300'000);
// Without honoured slices, the median of urgent work is above this: it waits for up to 2 ms, or for
// the end of the long kernel.
constexpr nanoseconds kLimit(1'000'000);
// A busy host delays single rounds, and its daemon's thread by more than the long kernel runs.
constexpr int kAttempts = 3;
constexpr uint64_t kLongerByAttempt = 4;

struct Proof {
  nanoseconds alone{}, beside_work{};  // medians, from launch to completion
};

absl::Status SetSlice(GraphGate& gate, const ChannelGroup& group, microseconds slice) {
  absl::Status set;
  gate.Change([&] { set = group.SetTimeSlice(slice); });
  DETSHARE_RETURN_IF_ERROR(set);
  DETSHARE_ASSIGN_OR_RETURN(const microseconds now, group.TimeSlice());
  if (now == slice) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the time slice is ", now.count(), " us instead of ", slice.count()));
}

class Prover {
 public:
  // `ordinary`: the channel group of the ordinary context, which has the driver's slice before and after.
  Prover(CudaContext& gpu, const ChannelGroup& ordinary) : gpu_(gpu), ordinary_(ordinary) {}
  ~Prover() {
    for (size_t i = 0; i < streams_.size(); ++i) {
      if (streams_[i] == nullptr) continue;
      Group(i).Enter();
      gpu_.api.cuStreamDestroy(streams_[i]);
    }
    gpu_.Enter();
    if (library_ != nullptr) gpu_.api.cuLibraryUnload(library_);
  }

  absl::StatusOr<Proof> Run() {
    const DriverApi& api = gpu_.api;
    DETSHARE_RETURN_IF_ERROR(gpu_.Check(
        api.cuLibraryLoadData(&library_, kStepsPtx, nullptr, nullptr, 0, nullptr, nullptr, 0),
        "cuLibraryLoadData"));
    DETSHARE_RETURN_IF_ERROR(
        gpu_.Check(api.cuLibraryGetKernel(&kernel_, library_, "steps"), "cuLibraryGetKernel"));
    for (size_t i = 0; i < streams_.size(); ++i) {
      Group(i).Enter();
      DETSHARE_RETURN_IF_ERROR(
          gpu_.Check(api.cuStreamCreateWithPriority(&streams_[i], CU_STREAM_NON_BLOCKING, 0),
                     "cuStreamCreateWithPriority"));
      DETSHARE_RETURN_IF_ERROR(TimeShort(i).status());  // uploads the code
    }
    Proof proof;
    DETSHARE_ASSIGN_OR_RETURN(std::vector<nanoseconds> times, TimeShorts());
    proof.alone = Median(times);
    if (proof.alone > kLimit)
      return absl::UnavailableError(
          absl::StrCat("other processes use the GPU: an urgent kernel waited ",
                       proof.alone.count() / 1000, " us for them"));
    uint64_t steps = kLongSteps;
    for (int attempt = 0; attempt < kAttempts; ++attempt, steps *= kLongerByAttempt) {
      DETSHARE_ASSIGN_OR_RETURN(times, TimeShortsBesideLong(steps));
      if (times.size() < kMinRounds) continue;
      proof.beside_work = Median(times);
      if (proof.beside_work <= kLimit) return proof;
    }
    if (times.size() < kMinRounds)
      return absl::UnavailableError(absl::StrCat(
          "a long kernel ended before urgent kernel ", times.size() + 1, " of ", kRounds,
          ": the driver does not honour time slices, or the host is too busy"));
    return absl::FailedPreconditionError(
        absl::StrCat("the median of urgent kernels is ", proof.beside_work.count() / 1000,
                     " us beside a long one, and ", proof.alone.count() / 1000,
                     " us alone: the driver does not honour time slices"));
  }

 private:
  static constexpr size_t kOrdinary = 0, kUrgent = 1;

  CudaGroup& Group(size_t index) { return index == kUrgent ? *gpu_.urgent() : gpu_.ordinary; }

  absl::Status Launch(size_t group, unsigned blocks, uint64_t steps) {
    Group(group).Enter();
    CUlaunchConfig config{};
    config.gridDimX = blocks;
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.blockDimX = 256;
    config.hStream = streams_[group];
    void* parameters[] = {&steps};
    return gpu_.Check(gpu_.api.cuLaunchKernelEx(&config, reinterpret_cast<CUfunction>(kernel_),
                                                parameters, nullptr),
                      "cuLaunchKernelEx");
  }

  absl::StatusOr<nanoseconds> TimeShort(size_t group) {
    const Clock::time_point began = Clock::now();
    DETSHARE_RETURN_IF_ERROR(Launch(group, 1, 1));
    DETSHARE_RETURN_IF_ERROR(
        gpu_.Check(gpu_.api.cuStreamSynchronize(streams_[group]), "cuStreamSynchronize"));
    return Clock::now() - began;
  }

  absl::StatusOr<std::vector<nanoseconds>> TimeShorts() {
    std::vector<nanoseconds> times;
    while (times.size() < kRounds) {
      Pause();
      DETSHARE_ASSIGN_OR_RETURN(times.emplace_back(), TimeShort(kUrgent));
    }
    return times;
  }

  // The ordinary group has the short slice meanwhile.
  absl::StatusOr<std::vector<nanoseconds>> TimeShortsBesideLong(uint64_t steps) {
    DETSHARE_RETURN_IF_ERROR(SetSlice(*gpu_.graph_gate, ordinary_, OrdinarySlice::kShort));
    absl::StatusOr<std::vector<nanoseconds>> times = TimeShortsUntilLongEnds(steps);
    // With the short slice the long kernel would stand still beside the work of other processes.
    DETSHARE_RETURN_IF_ERROR(SetSlice(*gpu_.graph_gate, ordinary_, OrdinarySlice::kDefault));
    DETSHARE_RETURN_IF_ERROR(
        gpu_.Check(gpu_.api.cuStreamSynchronize(streams_[kOrdinary]), "cuStreamSynchronize"));
    return times;
  }

  // Only rounds at whose end the long kernel still runs. Fewer than kRounds if it ends before.
  absl::StatusOr<std::vector<nanoseconds>> TimeShortsUntilLongEnds(uint64_t steps) {
    constexpr unsigned kBlocks = 1024;  // on all SMs
    std::vector<nanoseconds> times;
    DETSHARE_RETURN_IF_ERROR(Launch(kOrdinary, kBlocks, steps));
    while (times.size() < kRounds) {
      Pause();  // lets the ordinary work begin again
      DETSHARE_ASSIGN_OR_RETURN(const nanoseconds time, TimeShort(kUrgent));
      if (gpu_.api.cuStreamQuery(streams_[kOrdinary]) != CUDA_ERROR_NOT_READY) break;
      times.push_back(time);
    }
    return times;
  }

  static void Pause() {
    for (const Clock::time_point until = Clock::now() + kPause; Clock::now() < until;) {
    }
  }

  static nanoseconds Median(std::vector<nanoseconds> times) {
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
  }

  CudaContext& gpu_;
  const ChannelGroup& ordinary_;
  CUlibrary library_ = nullptr;
  CUkernel kernel_ = nullptr;
  std::array<CUstream, 2> streams_{};
};

absl::Status MakeGate(CudaContext& gpu, const DaemonOnGpu& daemon) {
  SliceWords* words = daemon.slice_words;
  if (words == nullptr) {
    gpu.slice_words = MapFreshPages(sizeof(SliceWords));
    if (gpu.slice_words == nullptr)
      return absl::ErrnoToStatus(errno, "no page for the gate's words");
    words = new (gpu.slice_words.get()) SliceWords;
  }
  DETSHARE_RETURN_IF_ERROR(gpu.RegisterPages(words, sizeof(*words)));
  static const RealClock clock;
  gpu.graph_gate = std::make_unique<GraphGate>(*words, daemon.peers, daemon.device, clock);
  return absl::OkStatus();
}

absl::StatusOr<Preemption> SetUp(CudaContext& gpu, const std::vector<ChannelGroup>& primary,
                                 const DaemonOnGpu& daemon, KeptProof& kept,
                                 std::unique_ptr<HoldPool>* holds) {
  if (kept.known().has_value() && !kept.known()->available)
    return absl::UnavailableError(kept.known()->reason);
  if (primary.size() != 1)
    return absl::UnavailableError(
        absl::StrCat("the primary context has ", primary.size(), " known compute groups, not one"));
  absl::StatusOr<GpuClaim> claim = GpuClaim::Take(daemon.node, daemon.number);
  if (!claim.ok()) {
    // So no process of this daemon has short slices now. Beside this one, none may have them later.
    kept.Forget();
    return claim.status();
  }
  gpu.claim = *std::move(claim);
  DETSHARE_RETURN_IF_ERROR(MakeGate(gpu, daemon));
  Preemption preemption;
  preemption.available = true;
  if (daemon.stand_in_groups) {
    preemption.latency_ns = 1;
  } else if (kept.known().has_value()) {
    preemption = *kept.known();
  } else {
    size_t free_before = 0, free_after = 0, total = 0;
    gpu.Enter();
    DETSHARE_RETURN_IF_ERROR(gpu.Check(gpu.api.cuMemGetInfo(&free_before, &total), "cuMemGetInfo"));
    DETSHARE_RETURN_IF_ERROR(OpenUrgentGroup(gpu, /*stand_in=*/false, holds));
    DETSHARE_RETURN_IF_ERROR(gpu.Check(gpu.api.cuMemGetInfo(&free_after, &total), "cuMemGetInfo"));
    DETSHARE_ASSIGN_OR_RETURN(const Proof proof, Prover(gpu, primary.front()).Run());
    preemption.latency_ns = std::max<int64_t>(1, (proof.beside_work - proof.alone).count());
    preemption.memory_bytes = free_before > free_after ? free_before - free_after : 0;
  }
  GraphGate& gate = *gpu.graph_gate;
  DETSHARE_RETURN_IF_ERROR(SetSlice(gate, primary.front(), OrdinarySlice::kShort));
  gpu.ordinary.slice =
      std::make_unique<OrdinarySlice>([&gate, group = primary.front()](microseconds slice) {
        gate.Change([&] { group.SetTimeSlice(slice).IgnoreError(); });
      });
  // Stand-ins change their slices as among several processes.
  if (daemon.proof.empty() && !daemon.stand_in_groups)
    gpu.ordinary.slice->ShareWith([] { return false; });
  return preemption;
}

absl::StatusOr<CUcontext> CreateUrgentContext(const CudaContext& gpu, bool stand_in) {
  const DriverApi& api = gpu.api;
  gpu.Enter();
  CUcontext context = nullptr, created = nullptr;
  std::vector<ChannelGroup> groups;
  CUresult result;
  {
    // One recorder at a time, for all GPUs.
    static Mutex recording;
    const MutexLock lock(&recording);
    const ChannelGroupRecorder recorder(stand_in);
    result = api.cuCtxCreate(&context, CU_CTX_SCHED_BLOCKING_SYNC | CU_CTX_MAP_HOST, gpu.device);
    groups = recorder.compute_groups();
  }
  if (result != CUDA_SUCCESS)
    return absl::UnavailableError(
        absl::StrCat("the driver creates no context for it: error ", static_cast<int>(result)));
  // cuCtxCreate has made the new context current without Enter().
  api.cuCtxPopCurrent(&created);
  absl::Status status =
      groups.size() == 1 ? SetSlice(*gpu.graph_gate, groups.front(), kUrgentSlice)
                         : absl::UnavailableError(absl::StrCat("its context has ", groups.size(),
                                                               " known compute groups, not one"));
  if (status.ok()) return context;
  api.cuCtxDestroy(context);
  return status;
}

}  // namespace

absl::Status OpenUrgentGroup(CudaContext& gpu, bool stand_in, std::unique_ptr<HoldPool>* holds) {
  const OrdinarySlice::Call own(gpu.ordinary.slice.get());
  absl::StatusOr<CUcontext> context = absl::UnknownError("");
  gpu.graph_gate->Change([&] { context = CreateUrgentContext(gpu, stand_in); });
  DETSHARE_RETURN_IF_ERROR(context.status());
  auto group = std::make_unique<CudaGroup>(gpu, *context, /*urgent=*/true);
  // Without holds, requests of many operations would be slower than without preemption.
  absl::StatusOr<std::unique_ptr<HoldPool>> pool = HoldPool::Create(*group);
  if (!pool.ok()) {
    gpu.Enter();
    gpu.graph_gate->Change([&] { gpu.api.cuCtxDestroy(*context); });
    return pool.status();
  }
  *holds = *std::move(pool);
  gpu.set_urgent(std::move(group));
  return absl::OkStatus();
}

Preemption SetUpPreemption(CudaContext& gpu, const std::vector<ChannelGroup>& primary,
                           const DaemonOnGpu& daemon, std::unique_ptr<HoldPool>* holds) {
  KeptProof kept(daemon.proof);
  if (daemon.only_proof && kept.known().has_value()) return *kept.known();
  absl::StatusOr<Preemption> done = SetUp(gpu, primary, daemon, kept, holds);
  if (done.ok()) {
    kept.Keep(*done);
    return *std::move(done);
  }
  gpu.ordinary.slice = nullptr;
  Preemption none;
  none.reason = std::string(done.status().message());
  // All processes must have the same slices, or those with long ones would get all of the GPU.
  kept.Keep(none);
  *holds = nullptr;
  if (gpu.graph_gate != nullptr) {
    gpu.Enter();
    gpu.graph_gate->Change([&] {
      if (gpu.urgent() != nullptr) gpu.api.cuCtxDestroy(gpu.urgent()->context);
      for (const ChannelGroup& group : primary)
        group.SetTimeSlice(OrdinarySlice::kDefault).IgnoreError();
    });
    gpu.set_urgent(nullptr);
    gpu.graph_gate = nullptr;
  }
  gpu.claim = GpuClaim();
  return none;
}

}  // namespace detshare::cuda
