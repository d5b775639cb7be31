// Markers, queues and partitions of a real GPU: events, streams and green contexts.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/functional/function_ref.h"
#include "coroutine_runtime/device.h"
#include "server/backends/cuda/cuda_address_space.h"
#include "server/backends/cuda/cuda_context.h"
#include "server/backends/cuda/deferred_reclaimer.h"
#include "server/backends/cuda/group_clock.h"
#include "server/backends/cuda/printing_launches.h"

namespace detshare::cuda {

class CudaGraph;

class CudaKernel;

// An event belongs to a context, so a marker has one for each time-slice group. The event of the
// urgent group is created when the marker is first recorded there.
class CudaMarker final : public Marker {
 public:
  static absl::StatusOr<std::unique_ptr<CudaMarker>> Create(CudaContext& context, bool timed);
  ~CudaMarker() override;

  // Returns the event that work of `group` records. The recording thread calls it.
  absl::StatusOr<CUevent> EventOf(CudaGroup& group);
  // Work of `group` records the marker. Requires EventOf(group).
  void NoteRecord(const CudaGroup& group) {
    latest_.store(group.urgent ? urgent_ : ordinary_, std::memory_order_release);
  }
  // Returns the event that was recorded last.
  // Acquire: a thread that sees the urgent event's turn also sees its handle.
  CUevent event() const { return latest_.load(std::memory_order_acquire); }
  GroupClock::Recorded recorded() const {
    const CUevent latest = event();
    return {latest, latest != ordinary_};
  }

 private:
  CudaMarker(CudaContext& context, unsigned flags, CUevent event)
      : context_(context), flags_(flags), ordinary_(event), latest_(event) {}

  CudaContext& context_;
  const unsigned flags_;
  const CUevent ordinary_;
  CUevent urgent_ = nullptr;  // used by the recording thread
  // Release: publishes the handle to threads that wait for the marker or query it.
  std::atomic<CUevent> latest_;
};

class CudaQueue final : public Queue {
 public:
  CudaQueue(DeferredReclaimer& reclaimer, std::shared_ptr<StreamState> stream)
      : context_(stream->group.gpu),
        group_(stream->group),
        reclaimer_(reclaimer),
        state_(std::move(stream)) {}

  absl::Status Launch(AddressSpace& space, Kernel& kernel, const LaunchShape& shape,
                      absl::Span<const std::byte> parameters) override;
  absl::Status Copy(AddressSpace& space, const CopyRequest& request) override;
  absl::Status Fill(AddressSpace& space, const FillRequest& request) override;
  absl::Status Prefetch(AddressSpace& space, const PrefetchRequest& request) override;
  absl::Status WriteFence(AddressSpace& space, std::atomic<uint64_t>* fence,
                          uint64_t value) override;
  absl::Status WaitFence(AddressSpace& space, const std::atomic<uint64_t>* fence,
                         uint64_t value) override;
  absl::Status MemoryOps(AddressSpace& space, absl::Span<const MemoryOp> operations) override;
  absl::Status Record(Marker& marker) override;
  absl::Status Wait(Marker& marker) override;
  absl::Status LaunchGraph(AddressSpace& space, Graph& graph,
                           absl::Span<const uint64_t> values) override;
  bool Idle() override;
  absl::Status UploadGraph(AddressSpace& space, Graph& graph) override;

 private:
  class Submission;

  // Calls `submit`, which launches or uploads the graph, in a submission and in GraphOrder. If the
  // call may make the context's local memory `grow`, that is in an idle moment. `submit` calls Await() of
  // the place, which is null if the graph needs none.
  absl::Status SubmitGraph(CudaAddressSpace& space, const CudaGraph& graph, bool grow,
                           absl::FunctionRef<absl::Status(GraphOrder::Place*)> submit);
  absl::Status LaunchGraphNow(CudaAddressSpace& space, CudaGraph& graph,
                              absl::Span<const uint64_t> values, GraphOrder::Place* place);
  // Calls `launch`, whose kernels need so much local memory. If they print, their text goes to the space's
  // output.
  absl::Status Printing(bool prints, uint32_t local_bytes, CudaAddressSpace& space,
                        absl::FunctionRef<absl::Status()> launch);
  absl::Status LaunchNow(CudaAddressSpace& space, CudaKernel& kernel, const LaunchShape& shape,
                         absl::Span<const std::byte> parameters);
  absl::Status CopyLine(const CudaAddressSpace& space, DeviceAddress destination,
                        DeviceAddress source, bool inline_source, uint64_t bytes);
  absl::Status CopyBox(const CopyRequest& request);
  // Copies device memory if a part of it belongs to another device.
  absl::Status CopyBetweenDevices(const CopyRequest& request);
  absl::Status CopyRows(const CudaAddressSpace& space, const CopyRequest& request);
  absl::Status FillRow(const CudaAddressSpace& space, DeviceAddress address, uint64_t elements,
                       uint32_t value, int element_bytes);

  CudaContext& context_;
  CudaGroup& group_;
  DeferredReclaimer& reclaimer_;
  const std::shared_ptr<StreamState> state_;
  std::shared_ptr<PrintingLaunches::Latest> printing_;  // null: no kernel has printed
};

// A green context. Its partition keeps it, and so does everything that was made for it.
class GreenContext {
 public:
  GreenContext(CudaContext& context, CUgreenCtx handle) : context_(context), handle_(handle) {}
  ~GreenContext();
  GreenContext(const GreenContext&) = delete;
  GreenContext& operator=(const GreenContext&) = delete;
  CUgreenCtx handle() const { return handle_; }
  // Returns the context for calls that take a CUcontext.
  absl::StatusOr<CUcontext> AsContext() const;

 private:
  CudaContext& context_;
  const CUgreenCtx handle_;
};

// A null `green` stands for the whole device. Only the ordinary group has green contexts.
class CudaPartition final : public Partition {
 public:
  CudaPartition(CudaGroup& group, DeferredReclaimer& reclaimer, std::shared_ptr<GreenContext> green,
                int first, int count)
      : group_(group),
        reclaimer_(reclaimer),
        green_(std::move(green)),
        first_(first),
        count_(count) {}

  int first_sm() const override { return first_; }
  int sm_count() const override { return count_; }
  absl::StatusOr<std::unique_ptr<Queue>> CreateQueue(int priority) override;
  CudaGroup& group() const { return group_; }
  const std::shared_ptr<GreenContext>& green() const { return green_; }

 private:
  CudaGroup& group_;
  DeferredReclaimer& reclaimer_;
  const std::shared_ptr<GreenContext> green_;
  const int first_, count_;
};

}  // namespace detshare::cuda
