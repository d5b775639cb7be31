// Markers, queues and partitions of a real GPU: events, streams and green contexts.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/functional/function_ref.h"
#include "coroutine_runtime/device.h"
#include "server/backends/cuda/cuda_address_space.h"
#include "server/backends/cuda/cuda_context.h"
#include "server/backends/cuda/deferred_reclaimer.h"

namespace detshare::cuda {

class CudaGraph;

class CudaKernel;

class CudaMarker final : public Marker {
 public:
  CudaMarker(CudaContext& context, CUevent event) : context_(context), event_(event) {}
  ~CudaMarker() override;
  CUevent event() const { return event_; }

 private:
  CudaContext& context_;
  const CUevent event_;
};

class CudaQueue final : public Queue {
 public:
  CudaQueue(CudaContext& context, DeferredReclaimer& reclaimer, std::shared_ptr<StreamState> stream)
      : context_(context), reclaimer_(reclaimer), state_(std::move(stream)) {}

  absl::Status Launch(AddressSpace& space, Kernel& kernel, const LaunchShape& shape,
                      absl::Span<const std::byte> parameters) override;
  absl::Status Copy(AddressSpace& space, const CopyRequest& request) override;
  absl::Status Fill(AddressSpace& space, const FillRequest& request) override;
  absl::Status WriteFence(AddressSpace& space, std::atomic<uint64_t>* fence,
                          uint64_t value) override;
  absl::Status WaitFence(AddressSpace& space, const std::atomic<uint64_t>* fence,
                         uint64_t value) override;
  absl::Status MemoryOps(AddressSpace& space, absl::Span<const MemoryOp> operations) override;
  absl::Status Record(Marker& marker) override;
  absl::Status Wait(Marker& marker) override;
  absl::Status LaunchGraph(AddressSpace& space, Graph& graph,
                           absl::Span<const uint64_t> values) override;
  absl::Status UploadGraph(AddressSpace& space, Graph& graph) override;

 private:
  class Submission;

  absl::Status LaunchGraphNow(CudaAddressSpace& space, CudaGraph& graph,
                              absl::Span<const uint64_t> values);
  // Calls `launch`. If `print` is not null, no other launch that prints runs meanwhile, and `print`
  // gets the text.
  absl::Status Printing(const std::function<void(std::string_view)>* print,
                        absl::FunctionRef<absl::Status()> launch);
  absl::Status LaunchNow(CudaKernel& kernel, const LaunchShape& shape,
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
  DeferredReclaimer& reclaimer_;
  const std::shared_ptr<StreamState> state_;
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

// A null `green` stands for the whole device.
class CudaPartition final : public Partition {
 public:
  CudaPartition(CudaContext& context, DeferredReclaimer& reclaimer,
                std::shared_ptr<GreenContext> green, int first, int count)
      : context_(context),
        reclaimer_(reclaimer),
        green_(std::move(green)),
        first_(first),
        count_(count) {}

  int first_sm() const override { return first_; }
  int sm_count() const override { return count_; }
  absl::StatusOr<std::unique_ptr<Queue>> CreateQueue(int priority) override;
  const std::shared_ptr<GreenContext>& green() const { return green_; }

 private:
  CudaContext& context_;
  DeferredReclaimer& reclaimer_;
  const std::shared_ptr<GreenContext> green_;
  const int first_, count_;
};

}  // namespace detshare::cuda
