#include "server/backends/soft/soft_nested_grids.h"

#include <deque>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "coroutine_runtime/status_cuda.h"

namespace detshare::soft {
namespace {

// Runs a grid, then each of its children with all of that child's descendants. In virtual time their
// units are those of one large grid.
class NestedGrids final : public Job {
 public:
  explicit NestedGrids(std::unique_ptr<GridJob> parent)
      : request_(parent->request()), grid_(std::move(parent)) {}

  bool RunsOnSms() const override { return true; }
  Claimed Claim(Chunk* chunk) override {
    const Claimed claimed = grid_->Claim(chunk);
    if (claimed == Claimed::kFinished) Append();
    return claimed;
  }
  bool HasMore() const override { return grid_->HasMore(); }
  uint64_t extra_bytes() const override { return grid_->extra_bytes(); }
  // No grid follows while a worker has a piece of this one.
  void Perform(Chunk* chunk) override { grid_->Perform(chunk); }

  bool Finish(Chunk* chunk) override {
    if (!grid_->Finish(chunk)) return false;
    Append();
    if (!outcome_.complete) return true;
    std::vector<GridRequest> children = grid_->TakeChildren();
    waiting_.insert(waiting_.begin(), std::make_move_iterator(children.begin()),
                    std::make_move_iterator(children.end()));
    if (waiting_.empty()) return true;
    waiting_.front().waiting = nullptr;
    absl::StatusOr<std::unique_ptr<GridJob>> next = GridJob::Create(std::move(waiting_.front()));
    waiting_.pop_front();
    if (!next.ok()) {
      request_.space->SetFault(CudaResultOf(next.status()), std::string(next.status().message()));
      return true;
    }
    grid_ = *std::move(next);
    return false;
  }

  void Conclude(Timeline& timeline, const Timeline::EntryPtr& entry) override {
    std::move(outcome_).Deliver(request_, timeline, entry);
  }

 private:
  void Append() {
    if (first_) {
      outcome_ = grid_->TakeOutcome();
    } else {
      outcome_.Append(grid_->TakeOutcome());
    }
    first_ = false;
  }

  const GridRequest request_;
  // Guarded by the engine's lock.
  std::unique_ptr<GridJob> grid_;
  std::deque<GridRequest> waiting_;
  GridOutcome outcome_;
  bool first_ = true;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Job>> MakeKernelJob(GridRequest request) {
  const bool nested = request.plan_child != nullptr;
  absl::StatusOr<std::unique_ptr<GridJob>> grid = GridJob::Create(std::move(request));
  if (!grid.ok()) return grid.status();
  if (!nested) return *std::move(grid);
  return std::make_unique<NestedGrids>(*std::move(grid));
}

}  // namespace detshare::soft
