#include "server/backends/soft/soft_grid.h"

#include <cuda.h>
#include <sched.h>

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "coroutine_runtime/status_cuda.h"
#include "server/backends/soft/soft_library.h"
#include "server/backends/soft/soft_properties.h"

namespace detshare::soft {
namespace {

constexpr uint32_t kWorkspaceBytes = 64;
// In bytes. When a kernel prints more, the rest is lost, as on hardware when the buffer is full.
constexpr uint64_t kMaxText = 64 << 20;
// After this many turns a unit counts as one that waits for others, even if it does more than poll.
constexpr uint64_t kMaxTurns = 8;

// The text to which the unit that this thread runs prints.
thread_local UnitText* current_text = nullptr;
// The kernels that this unit launched.
thread_local std::vector<GridRequest>* current_children = nullptr;

// Of a session. Those that a parent launches wait until the parent is complete, so this is more than
// hardware keeps by default (2,048).
constexpr uint64_t kMaxWaitingChildren = 65'536;

int ResultOf(ptx::FaultKind kind) {
  constexpr int kLaunchTimeout = 702;
  switch (kind) {
    case ptx::FaultKind::kIllegalAddress:
      return kCudaErrorIllegalAddress;
    case ptx::FaultKind::kMisalignedAddress:
      return kCudaErrorMisalignedAddress;
    case ptx::FaultKind::kInvalidAddressSpace:
      return kCudaErrorInvalidAddressSpace;
    case ptx::FaultKind::kInvalidPc:
      return kCudaErrorInvalidPc;
    case ptx::FaultKind::kAssert:
      return kCudaErrorAssert;
    case ptx::FaultKind::kIllegalInstruction:
      return kCudaErrorIllegalInstruction;
    case ptx::FaultKind::kUnsupportedInstruction:
      return kCudaErrorNotSupported;
    case ptx::FaultKind::kDeadlock:
      return kLaunchTimeout;
    case ptx::FaultKind::kTrap:
    case ptx::FaultKind::kStackOverflow:
    case ptx::FaultKind::kNone:
      break;
  }
  return kCudaErrorLaunchFailed;
}

}  // namespace

GridJob::GridJob(GridRequest request) : request_(std::move(request)) {}

GridJob::~GridJob() = default;

absl::StatusOr<std::unique_ptr<GridJob>> GridJob::Create(GridRequest request) {
  std::unique_ptr<GridJob> job(new GridJob(std::move(request)));
  ptx::LaunchConfig config = std::move(job->request_.config);
  if (config.cooperative) {
    job->workspace_ = std::make_unique<uint64_t[]>(kWorkspaceBytes / sizeof(uint64_t));
    config.grid_workspace_address = reinterpret_cast<uint64_t>(job->workspace_.get());
    config.grid_workspace_bytes = kWorkspaceBytes;
  }
  ptx::LaunchServices services;
  services.guard = &job->request_.space->ranges();
  services.output = job.get();
  services.heap = job->request_.space.get();
  services.conditions = &job->request_.space->conditions();
  services.images = &job->request_.space->images();
  if (job->request_.plan_child != nullptr) services.runtime = job.get();
  absl::StatusOr<std::unique_ptr<ptx::KernelLaunch>> launch = ptx::KernelLaunch::Create(
      *job->request_.module->executable, job->request_.kernel, std::move(config), services);
  if (!launch.ok())
    return CudaError(kCudaErrorInvalidValue, std::string(launch.status().message()));
  job->launch_ = *std::move(launch);
  job->units_ = job->launch_->unit_count();
  if (job->units_ <= kExactUnits) job->durations_.resize(job->units_);
  return job;
}

uint64_t GridJob::BatchSize() const {
  if (launch_->config().cooperative || done_units_ == 0) return 1;
  const uint64_t average = done_instructions_ / done_units_ + 1;
  // Small enough that several workers share the rest of the grid.
  return std::clamp<uint64_t>(
      std::min(request_.quantum / (4 * average), (units_ - next_unit_) / 16), 1, 1024);
}

Job::Claimed GridJob::Claim(Chunk* chunk) {
  if (Stopped()) {
    ready_.clear();
    return in_flight_ == 0 ? Claimed::kFinished : Claimed::kNothing;
  }
  const bool begin = MayBegin() && (ready_.empty() || ready_.front()->spinning ||
                                    ready_.front()->turns % kMaxTurns == 0);
  std::unique_ptr<Runner> runner;
  if (begin) {
    if (idle_.empty()) {
      runner = std::make_unique<Runner>(launch_.get());
    } else {
      runner = std::move(idle_.back());
      idle_.pop_back();
    }
    if (!returned_.empty()) {
      std::tie(runner->unit, runner->end) = returned_.back();
      returned_.pop_back();
    } else {
      runner->unit = next_unit_;
      runner->end = next_unit_ = std::min(units_, next_unit_ + BatchSize());
    }
  } else if (!ready_.empty()) {
    runner = std::move(ready_.front());
    ready_.pop_front();
  } else {
    return Claimed::kNothing;
  }
  ++in_flight_;
  chunk->context = runner.release();
  return Claimed::kChunk;
}

uint64_t GridJob::extra_bytes() const {
  return sizeof(GridJob) + launch_->config().params.size() +
         durations_.size() * sizeof(Picoseconds);
}

bool GridJob::HasMore() const { return !Stopped() && (!ready_.empty() || MayBegin()); }

void GridJob::Begin(Runner& runner) {
  const Placement& placement = request_.placement;
  runner.sms.resize(placement.blocks_per_unit);
  for (uint32_t block = 0; block < placement.blocks_per_unit; ++block) {
    // The SM that the block gets when the partition is idle and all blocks take equally long.
    const uint64_t turn = runner.unit * placement.blocks_per_unit + block;
    runner.sms[block] = static_cast<uint32_t>(placement.first_sm + turn % placement.sm_count);
  }
  runner.blocks.Start(runner.unit, runner.sms);
  runner.begun = true;
  runner.turns = 0;
  runner.unit_instructions = 0;
}

void GridJob::Perform(Chunk* chunk) {
  Runner& runner = *static_cast<Runner*>(chunk->context);
  TakeTurn(runner);
  // The thread that will write the polled memory may need this CPU.
  if (runner.spinning) sched_yield();
}

void GridJob::TakeTurn(Runner& runner) {
  const AccessGate::Pass pass(request_.space->gate());
  current_text = &runner.text;
  current_children = &runner.children;
  uint64_t left = request_.quantum;
  runner.spinning = false;
  while (left > 0 && runner.unit < runner.end && !Stopped()) {
    if (!runner.begun) Begin(runner);
    const ptx::RunState state = runner.blocks.Run(left);
    const uint64_t instructions = runner.blocks.counters().TotalInstructions();
    // Counts at least 1, so that a turn ends even when its units have no instructions.
    left -= std::min(left, std::max<uint64_t>(1, instructions - runner.unit_instructions));
    runner.unit_instructions = instructions;
    if (state == ptx::RunState::kFaulted) {
      KeepFault(runner.unit, runner.blocks.fault());
      break;
    }
    if (state != ptx::RunState::kDone) {
      ++runner.turns;
      runner.spinning = state == ptx::RunState::kSpinning;
      break;
    }
    const Picoseconds duration = UnitDuration(request_.placement, runner.blocks.counters());
    if (!durations_.empty()) durations_[runner.unit] = duration;
    runner.done_sum += duration;
    runner.done_instructions += instructions;
    ++runner.done_units;
    if (!runner.text.empty())
      runner.done_texts.emplace_back(runner.unit, std::exchange(runner.text, {}));
    if (!runner.children.empty())
      runner.done_children.emplace_back(runner.unit, std::exchange(runner.children, {}));
    runner.begun = false;
    ++runner.unit;
  }
  current_text = nullptr;
  current_children = nullptr;
}

bool GridJob::Finish(Chunk* chunk) {
  std::unique_ptr<Runner> runner(static_cast<Runner*>(chunk->context));
  --in_flight_;
  done_units_ += std::exchange(runner->done_units, 0);
  done_instructions_ += std::exchange(runner->done_instructions, 0);
  sum_ += std::exchange(runner->done_sum, 0);
  for (auto& [unit, text] : runner->done_texts) texts_[unit] = std::move(text);
  runner->done_texts.clear();
  for (auto& [unit, children] : runner->done_children) children_[unit] = std::move(children);
  runner->done_children.clear();

  if (Stopped()) {
    if (!runner->text.empty()) texts_[runner->unit] = std::move(runner->text);
    ready_.clear();
    return in_flight_ == 0;
  }
  const uint64_t unbegun = runner->unit + (runner->begun ? 1 : 0);
  if (unbegun < runner->end) returned_.emplace_back(unbegun, runner->end);
  if (runner->begun) {
    runner->end = runner->unit + 1;
    if (runner->spinning || runner->turns % kMaxTurns == 0) {
      ready_.push_back(std::move(runner));
    } else {
      ready_.push_front(std::move(runner));
    }
  } else {
    idle_.push_back(std::move(runner));
  }
  return done_units_ == units_;
}

GridOutcome GridJob::TakeOutcome() {
  GridOutcome outcome;
  for (const auto& [unit, text] : texts_) {
    outcome.text.printed += text.printed;
    outcome.text.failed_assertions += text.failed_assertions;
  }
  outcome.lost_text = text_bytes_.load(std::memory_order_relaxed) > kMaxText;
  if (faulted_.load(std::memory_order_relaxed)) {
    const MutexLock lock(&fault_mutex_);
    outcome.fault = fault_;
  }
  outcome.complete = done_units_ == units_;
  outcome.units = units_;
  outcome.durations = std::move(durations_);
  outcome.sum = sum_;
  return outcome;
}

std::vector<GridRequest> GridJob::TakeChildren() {
  std::vector<GridRequest> all;
  for (auto& [unit, children] : children_)
    std::move(children.begin(), children.end(), std::back_inserter(all));
  children_.clear();
  std::stable_partition(all.begin(), all.end(), [](const GridRequest& one) { return !one.tail; });
  return all;
}

void GridJob::Conclude(Timeline& timeline, const Timeline::EntryPtr& entry) {
  TakeOutcome().Deliver(request_, timeline, entry);
}

void GridOutcome::Append(GridOutcome next) {
  text.printed += next.text.printed;
  text.failed_assertions += next.text.failed_assertions;
  lost_text = lost_text || next.lost_text || text.printed.size() > kMaxText;
  if (text.printed.size() > kMaxText) text.printed.resize(kMaxText);
  if (!fault.has_value()) fault = std::move(next.fault);
  complete = complete && next.complete;
  const bool exact = durations.size() == units && next.durations.size() == next.units &&
                     units + next.units <= kExactUnits;
  units += next.units;
  if (exact) {
    durations.insert(durations.end(), next.durations.begin(), next.durations.end());
  } else {
    durations.clear();
  }
  sum += next.sum;
}

void GridOutcome::Deliver(const GridRequest& request, Timeline& timeline,
                          const Timeline::EntryPtr& entry) && {
  if (KernelOutput* const output = request.module->output.get(); output != nullptr) {
    if (!text.printed.empty()) output->Print(text.printed);
    if (!text.failed_assertions.empty()) output->PrintError(text.failed_assertions);
  }
  if (lost_text) {
    request.log(absl::StrCat("kernel ", request.module->module->kernels()[request.kernel].name,
                             " printed too much; the rest is lost"));
  }
  if (fault.has_value()) {
    const std::string message = fault->ToString();
    if (request.space->SetFault(ResultOf(fault->kind), message)) request.log(message);
  }
  if (complete) {
    Placement placement = request.placement;
    placement.units = units;
    timeline.EndKernel(entry, placement, std::move(durations), sum);
  } else {
    timeline.EndNothing(entry);
  }
}

bool GridJob::GetAttribute(int attribute, int* value) const {
  if (attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) return false;
  *value = AttributeOf(*request_.device, attribute);
  return true;
}

std::shared_ptr<WaitingChild> WaitingChild::Create(std::shared_ptr<SpaceState> space,
                                                   uint64_t bytes) {
  if (space->waiting_children.fetch_add(1, std::memory_order_relaxed) >= kMaxWaitingChildren) {
    space->waiting_children.fetch_sub(1, std::memory_order_relaxed);
    return nullptr;
  }
  return std::shared_ptr<WaitingChild>(new WaitingChild(std::move(space), bytes));
}

int GridJob::Launch(ptx::ChildLaunch launch) {
  constexpr int kInvalidConfiguration = 9, kMaxDepthExceeded = 65, kPendingCountExceeded = 69;
  constexpr int kMaxDepth = 24;
  if (request_.depth + 1 >= kMaxDepth) return kMaxDepthExceeded;
  absl::StatusOr<GridRequest> child = request_.plan_child(launch);
  if (!child.ok()) {
    const int result = CudaResultOf(child.status());
    return result == kCudaErrorInvalidValue ? kInvalidConfiguration : result;
  }
  child->waiting = WaitingChild::Create(request_.space, sizeof(GridRequest) + launch.params.size());
  if (child->waiting == nullptr) return kPendingCountExceeded;
  child->tail = launch.tail;
  child->depth = request_.depth + 1;
  child->quantum = request_.quantum;
  child->log = request_.log;
  child->config.grid_id = request_.config.grid_id;
  child->config.start_time_ns = request_.config.start_time_ns;
  child->config.start_cycle = request_.config.start_cycle;
  current_children->push_back(*std::move(child));
  return 0;
}

void GridJob::Print(std::string_view text) { Append(&UnitText::printed, text); }

void GridJob::PrintError(std::string_view text) { Append(&UnitText::failed_assertions, text); }

void GridJob::Append(std::string UnitText::*text, std::string_view more) {
  if (current_text == nullptr) return;
  if (text_bytes_.fetch_add(more.size(), std::memory_order_relaxed) + more.size() > kMaxText)
    return;
  (current_text->*text).append(more);
}

void GridJob::KeepFault(uint64_t unit, const ptx::Fault& fault) {
  const MutexLock lock(&fault_mutex_);
  if (faulted_.load(std::memory_order_relaxed) && unit > fault_unit_) return;
  fault_unit_ = unit;
  fault_ = fault;
  faulted_.store(true, std::memory_order_relaxed);
}

}  // namespace detshare::soft
