#include "server/backends/cuda/cuda_queue.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"
#include "server/backends/cuda/array_copy.h"
#include "server/backends/cuda/cuda_device.h"
#include "server/backends/cuda/cuda_graph.h"
#include "server/backends/cuda/cuda_library.h"
#include "server/backends/cuda/launch_attributes.h"
#include "server/backends/cuda/memory_op_params.h"

namespace detshare::cuda {
namespace {

// A buffer from which small copies of ordinary memory start. The driver unregisters memory late
// (host_registry.h), so it may still take an ordinary address for registered memory. It never does
// that for these buffers.
class InlineSource {
 public:
  static constexpr uint64_t kBytes = 4096;

  InlineSource() {
    // Relaxed: spreads the threads over the slots.
    static std::atomic<unsigned> next_thread{0};
    thread_local const unsigned first = next_thread.fetch_add(1, std::memory_order_relaxed);
    for (unsigned i = first;; ++i) {
      slot_ = &slots_[i % std::size(slots_)];
      // Acquire: follows the release of the slot's previous user, so that user's copy is complete.
      if (!slot_->busy.exchange(true, std::memory_order_acquire)) return;
    }
  }
  ~InlineSource() { slot_->busy.store(false, std::memory_order_release); }
  char* bytes() const { return slot_->bytes; }

 private:
  struct alignas(64) Slot {
    // Set by the thread that uses the slot. The release of false publishes the end of its copy.
    std::atomic<bool> busy;
    alignas(64) char bytes[kBytes];
  };
  static Slot slots_[64];
  Slot* slot_;
};

InlineSource::Slot InlineSource::slots_[64];

}  // namespace

absl::StatusOr<std::unique_ptr<CudaMarker>> CudaMarker::Create(CudaContext& context, bool timed) {
  context.Enter();
  const unsigned flags = timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING;
  CUevent event = nullptr;
  DETSHARE_RETURN_IF_ERROR(
      context.Check(context.api.cuEventCreate(&event, flags), "cuEventCreate"));
  return std::unique_ptr<CudaMarker>(new CudaMarker(context, flags, event));
}

CudaMarker::~CudaMarker() {
  context_.Enter();
  context_.api.cuEventDestroy(ordinary_);
  if (urgent_ == nullptr) return;
  context_.urgent()->Enter();
  context_.api.cuEventDestroy(urgent_);
}

absl::StatusOr<CUevent> CudaMarker::EventOf(CudaGroup& group) {
  if (group.urgent && urgent_ == nullptr) {
    group.Enter();
    DETSHARE_RETURN_IF_ERROR(
        context_.Check(context_.api.cuEventCreate(&urgent_, flags_), "cuEventCreate"));
  }
  return group.urgent ? urgent_ : ordinary_;
}

// Surrounds the submission of one piece of work.
class CudaQueue::Submission {
 public:
  // kInIdleWindow: the caller is inside IdleWindow::Run(), which holds back all other work.
  enum Place { kAnywhere, kInIdleWindow };

  Submission(CudaQueue& queue, AddressSpace& space, Place place = kAnywhere)
      : state_(*queue.state_), space_(static_cast<CudaAddressSpace&>(space)) {
    // May destroy a stream of the other group, in that group's context.
    if (state_.space.load(std::memory_order_relaxed) != &space_) space_.Use(queue.state_);
    queue.group_.Enter();
    state_.entering.store(true);
    while (place == kAnywhere && queue.group_.idle.holding()) [[unlikely]] {
        state_.entering.store(false);
        queue.group_.idle.WaitUntilOpen();
        state_.entering.store(true);
      }
    state_.submitted.store(state_.submitted.load(std::memory_order_relaxed) + 1);
    queue.reclaimer_.NoteWork();
  }
  // Release: a thread that sees the submission ended also sees this work when it queries the
  // stream.
  ~Submission() { state_.entering.store(false, std::memory_order_release); }
  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;

  CudaAddressSpace& space() { return space_; }

 private:
  StreamState& state_;
  CudaAddressSpace& space_;
};

absl::Status CudaQueue::Launch(AddressSpace& space, Kernel& kernel, const LaunchShape& shape,
                               absl::Span<const std::byte> parameters) {
  auto& own = static_cast<CudaKernel&>(kernel);
  if (parameters.size() < own.info().parameter_bytes) {
    return CudaError(kCudaErrorInvalidValue, "too few parameter bytes");
  }
  if (own.function(group_) == nullptr) [[unlikely]]
    DETSHARE_RETURN_IF_ERROR(own.UploadTo(group_, static_cast<CudaAddressSpace&>(space)));
  // If a kernel needs more local memory than any before, the driver enlarges the context's local
  // memory, which drains the context. A kernel that prints does not take this path, because its
  // launch may wait for other kernels, and the call in an idle moment must not wait.
  if (own.local_bytes() > group_.local_bytes.load(std::memory_order_relaxed) && !own.prints())
      [[unlikely]] {
    return group_.idle.Run(static_cast<CudaAddressSpace&>(space), [&] {
      // No other thread launches at this time. Relaxed: a thread that does not see the new value
      // also comes here.
      group_.local_bytes.store(own.local_bytes(), std::memory_order_relaxed);
      const Submission submission(*this, space, Submission::kInIdleWindow);
      return context_.ApartFromGraphs(
          [&] { return LaunchNow(static_cast<CudaAddressSpace&>(space), own, shape, parameters); });
    });
  }
  Submission submission(*this, space);
  return LaunchNow(submission.space(), own, shape, parameters);
}

absl::Status CudaQueue::LaunchNow(CudaAddressSpace& space, CudaKernel& kernel,
                                  const LaunchShape& shape,
                                  absl::Span<const std::byte> parameters) {
  LaunchAttributes attributes(shape);
  CUlaunchConfig config{};
  config.gridDimX = shape.grid.x;
  config.gridDimY = shape.grid.y;
  config.gridDimZ = shape.grid.z;
  config.blockDimX = shape.block.x;
  config.blockDimY = shape.block.y;
  config.blockDimZ = shape.block.z;
  config.sharedMemBytes = shape.dynamic_shared_bytes;
  config.hStream = state_->stream;
  config.attrs = attributes.all().data();
  config.numAttrs = static_cast<unsigned>(attributes.all().size());

  size_t parameter_bytes = kernel.info().parameter_bytes;
  void* buffer[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<std::byte*>(parameters.data()),
                    CU_LAUNCH_PARAM_BUFFER_SIZE, &parameter_bytes, CU_LAUNCH_PARAM_END};
  void** extra = parameter_bytes == 0 ? nullptr : buffer;
  return Printing(kernel.prints(), kernel.local_bytes(), space, [&] {
    CUresult result =
        context_.api.cuLaunchKernelEx(&config, kernel.function(group_), nullptr, extra);
    // A device may not know a hint; the kernel is launched without it.
    if (result != CUDA_SUCCESS && attributes.has_hints()) [[unlikely]] {
      config.numAttrs = static_cast<unsigned>(attributes.without_hints().size());
      result = context_.api.cuLaunchKernelEx(&config, kernel.function(group_), nullptr, extra);
    }
    return context_.Check(result, "cuLaunchKernelEx");
  });
}

absl::Status CudaQueue::Printing(bool prints, uint32_t local_bytes, CudaAddressSpace& space,
                                 absl::FunctionRef<absl::Status()> launch) {
  if (!prints) return launch();
  if (printing_ == nullptr) printing_ = std::make_shared<PrintingLaunches::Latest>(group_);
  const auto launch_apart = [&] {
    // Relaxed: as in Launch().
    if (local_bytes <= group_.local_bytes.load(std::memory_order_relaxed)) [[likely]]
      return launch();
    // No idle moment, but no graph with conditional nodes either.
    const absl::Status status = context_.ApartFromGraphs(launch);
    if (status.ok()) group_.local_bytes.store(local_bytes, std::memory_order_relaxed);
    return status;
  };
  return PrintingLaunches::Get().Launch(printing_, state_->stream, space.shared_output(),
                                        launch_apart);
}

absl::Status CudaQueue::SubmitGraph(CudaAddressSpace& space, const CudaGraph& graph, bool grow,
                                    absl::FunctionRef<absl::Status(GraphOrder::Place*)> submit) {
  if (!graph.conditional() && !grow) [[likely]] {
    const Submission submission(*this, space);
    if (!group_.graph_order.applies()) [[likely]]
      return submit(nullptr);
  }
  GraphOrder& order = group_.graph_order;
  const GraphOrder::Launch launch{graph.executable(), state_->stream, graph.conditional()};
  const auto submit_in = [&](GraphOrder::Place& place) {
    DETSHARE_RETURN_IF_ERROR(submit(&place));
    return context_.Check(place.Launched(), "cuEventRecord");
  };
  if (grow) {
    return group_.idle.Run(space, [&] {
      group_.local_bytes.store(graph.local_bytes(), std::memory_order_relaxed);
      const Submission submission(*this, space, Submission::kInIdleWindow);
      GraphOrder::Place place = order.EnterIdle(launch);
      return context_.ApartFromGraphs([&] { return submit_in(place); });
    });
  }
  for (;;) {
    DETSHARE_ASSIGN_OR_RETURN(GraphOrder::Place place, order.Enter(space, launch));
    const Submission submission(*this, space);
    if (!place.overtaken()) return submit_in(place);
  }
}

absl::Status CudaQueue::LaunchGraph(AddressSpace& space, Graph& graph,
                                    absl::Span<const uint64_t> values) {
  auto& own = static_cast<CudaGraph&>(graph);
  auto& own_space = static_cast<CudaAddressSpace&>(space);
  // As in Launch().
  const bool grow =
      own.local_bytes() > group_.local_bytes.load(std::memory_order_relaxed) && !own.prints();
  return SubmitGraph(own_space, own, grow, [&](GraphOrder::Place* place) {
    return LaunchGraphNow(own_space, own, values, place);
  });
}

absl::Status CudaQueue::LaunchGraphNow(CudaAddressSpace& space, CudaGraph& graph,
                                       absl::Span<const uint64_t> values,
                                       GraphOrder::Place* place) {
  const absl::StatusOr<bool> go = graph.Prepare(values);
  if (!go.ok() || !*go) return go.status();
  DETSHARE_RETURN_IF_ERROR(graph.WaitForOtherGroup(state_->stream));
  // Last: it closes the gate for changes of all processes, and a launch that prints may wait for seconds.
  const auto launch = [&] {
    const CUresult awaited = place != nullptr ? place->Await() : CUDA_SUCCESS;
    return awaited == CUDA_SUCCESS ? context_.api.cuGraphLaunch(graph.executable(), state_->stream)
                                   : awaited;
  };
  return Printing(graph.prints(), graph.local_bytes(), space, [&] {
    const CUresult result =
        !graph.memory_waits().empty()
            ? space.memory_waits().Submit(group_, state_->stream, graph.memory_waits(), launch)
            : launch();
    return context_.Check(result, "cuGraphLaunch");
  });
}

absl::Status CudaQueue::UploadGraph(AddressSpace& space, Graph& graph) {
  const auto& own = static_cast<const CudaGraph&>(graph);
  const auto upload = [&](GraphOrder::Place* place) {
    if (place != nullptr)
      DETSHARE_RETURN_IF_ERROR(context_.Check(place->Await(), "cuStreamWaitEvent"));
    return context_.Check(context_.api.cuGraphUpload(own.executable(), state_->stream),
                          "cuGraphUpload");
  };
  return SubmitGraph(static_cast<CudaAddressSpace&>(space), own, /*grow=*/false, upload);
}

bool CudaQueue::Idle() {
  group_.Enter();
  return context_.api.cuStreamQuery(state_->stream) == CUDA_SUCCESS;
}

// ---- copies

absl::Status CudaQueue::CopyLine(const CudaAddressSpace& space, DeviceAddress destination,
                                 DeviceAddress source, bool inline_source, uint64_t bytes) {
  while (bytes > 0) {
    uint64_t part = std::min(bytes, space.Reach(destination));
    CUresult result;
    if (inline_source) {
      part = std::min(part, InlineSource::kBytes);
      const InlineSource copy;
      std::memcpy(copy.bytes(), reinterpret_cast<const void*>(source), part);
      // The driver stages small copies from ordinary memory before the call returns, even if the
      // stream waits.
      result = context_.api.cuMemcpyHtoDAsync(destination, copy.bytes(), part, state_->stream);
    } else {
      part = std::min(part, space.Reach(source));
      result = context_.api.cuMemcpyAsync(destination, source, part, state_->stream);
    }
    DETSHARE_RETURN_IF_ERROR(context_.Check(result, "cuMemcpyAsync"));
    destination += part;
    source += part;
    bytes -= part;
  }
  return absl::OkStatus();
}

absl::Status CudaQueue::CopyBox(const CopyRequest& request) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = request.source;
  copy.srcPitch = request.source_pitch;
  copy.srcHeight =
      request.depth == 1 ? request.height : request.source_slice / request.source_pitch;
  copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.dstDevice = request.destination;
  copy.dstPitch = request.destination_pitch;
  copy.dstHeight =
      request.depth == 1 ? request.height : request.destination_slice / request.destination_pitch;
  copy.WidthInBytes = request.width;
  copy.Height = request.height;
  copy.Depth = request.depth;
  return context_.Check(context_.api.cuMemcpy3DAsync(&copy, state_->stream), "cuMemcpy3DAsync");
}

// Copies one slice. Joins its rows in as few calls as the registered pieces allow.
absl::Status CudaQueue::CopyRows(const CudaAddressSpace& space, const CopyRequest& request) {
  CopyRequest part = request;
  uint64_t left = request.height;
  const auto rows_within = [&](uint64_t reach, uint64_t pitch) {
    if (reach < request.width) return uint64_t{0};
    return pitch == 0 ? left : (reach - request.width) / pitch + 1;
  };
  while (left > 0) {
    const uint64_t rows =
        request.inline_source
            ? 0
            : std::min({left, rows_within(space.Reach(part.source), request.source_pitch),
                        rows_within(space.Reach(part.destination), request.destination_pitch)});
    absl::Status status;
    if (rows > 1) {
      part.height = rows;
      status = CopyBox(part);
    } else {
      status = CopyLine(space, part.destination, part.source, request.inline_source, request.width);
    }
    if (!status.ok()) return status;
    const uint64_t done = std::max<uint64_t>(rows, 1);
    part.source += done * request.source_pitch;
    part.destination += done * request.destination_pitch;
    left -= done;
  }
  return absl::OkStatus();
}

// Names both contexts. Only such a copy reaches memory of the virtual-memory calls to which this
// device has no access.
absl::Status CudaQueue::CopyBetweenDevices(const CopyRequest& request) {
  const auto context_of = [this](AddressSpace* space) {
    return (space == nullptr ? context_ : static_cast<CudaAddressSpace*>(space)->context())
        .ordinary.context;
  };
  const CUcontext to = context_of(request.destination_space);
  const CUcontext from = context_of(request.source_space);
  const auto dense = [&](uint64_t pitch, uint64_t slice) {
    return (request.height == 1 || pitch == request.width) &&
           (request.depth == 1 || slice == request.width * request.height);
  };
  if (dense(request.destination_pitch, request.destination_slice) &&
      dense(request.source_pitch, request.source_slice)) {
    return context_.Check(context_.api.cuMemcpyPeerAsync(
                              request.destination, to, request.source, from,
                              request.width * request.height * request.depth, state_->stream),
                          "cuMemcpyPeerAsync");
  }
  CUDA_MEMCPY3D_PEER copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcContext = from;
  copy.dstContext = to;
  copy.srcPitch = request.height == 1 ? request.width : request.source_pitch;
  copy.dstPitch = request.height == 1 ? request.width : request.destination_pitch;
  copy.srcHeight = copy.dstHeight = request.height;
  copy.WidthInBytes = request.width;
  copy.Height = request.height;
  copy.Depth = 1;
  // Copies one slice at a time, because the distance of slices need not be a multiple of the pitch.
  for (uint64_t slice = 0; slice < request.depth; ++slice) {
    copy.srcDevice = request.source + slice * request.source_slice;
    copy.dstDevice = request.destination + slice * request.destination_slice;
    DETSHARE_RETURN_IF_ERROR(context_.Check(context_.api.cuMemcpy3DPeerAsync(&copy, state_->stream),
                                            "cuMemcpy3DPeerAsync"));
  }
  return absl::OkStatus();
}

absl::Status CudaQueue::Copy(AddressSpace& any_space, const CopyRequest& request) {
  Submission submission(*this, any_space);
  const CudaAddressSpace& space = submission.space();
  if (request.width == 0 || request.height == 0 || request.depth == 0) return absl::OkStatus();
  if (request.destination_array.array != nullptr || request.source_array.array != nullptr)
    return CopyWithArrays(context_, state_->stream, space, request);
  if (request.destination_space != nullptr || request.source_space != nullptr)
    return CopyBetweenDevices(request);
  if (request.height == 1 && request.depth == 1) {
    return CopyLine(space, request.destination, request.source, request.inline_source,
                    request.width);
  }
  const auto extent = [&](uint64_t pitch, uint64_t slice) {
    return (request.depth - 1) * slice + (request.height - 1) * pitch + request.width;
  };
  const auto regular = [&](uint64_t pitch, uint64_t slice) {
    return pitch >= request.width &&
           (request.depth == 1 || (slice % pitch == 0 && slice / pitch >= request.height));
  };
  const bool one_call =
      !request.inline_source && regular(request.source_pitch, request.source_slice) &&
      regular(request.destination_pitch, request.destination_slice) &&
      extent(request.source_pitch, request.source_slice) <= space.Reach(request.source) &&
      extent(request.destination_pitch, request.destination_slice) <=
          space.Reach(request.destination);
  if (one_call) return CopyBox(request);
  CopyRequest slice = request;
  slice.depth = 1;
  for (uint64_t i = 0; i < request.depth; ++i) {
    DETSHARE_RETURN_IF_ERROR(CopyRows(space, slice));
    slice.source += request.source_slice;
    slice.destination += request.destination_slice;
  }
  return absl::OkStatus();
}

absl::Status CudaQueue::FillRow(const CudaAddressSpace& space, DeviceAddress address,
                                uint64_t elements, uint32_t value, int element_bytes) {
  while (elements > 0) {
    uint64_t part = std::min(elements, space.Reach(address) / element_bytes);
    if (part == 0) part = elements;  // not aligned: the driver returns the error
    CUresult result;
    if (element_bytes == 1) {
      result = context_.api.cuMemsetD8Async(address, static_cast<unsigned char>(value), part,
                                            state_->stream);
    } else if (element_bytes == 2) {
      result = context_.api.cuMemsetD16Async(address, static_cast<unsigned short>(value), part,
                                             state_->stream);
    } else {
      result = context_.api.cuMemsetD32Async(address, value, part, state_->stream);
    }
    DETSHARE_RETURN_IF_ERROR(context_.Check(result, "cuMemsetAsync"));
    address += part * element_bytes;
    elements -= part;
  }
  return absl::OkStatus();
}

absl::Status CudaQueue::Fill(AddressSpace& any_space, const FillRequest& request) {
  Submission submission(*this, any_space);
  const CudaAddressSpace& space = submission.space();
  if (request.width == 0 || request.height == 0) return absl::OkStatus();
  const int bytes = request.element_bytes;
  if (bytes != 1 && bytes != 2 && bytes != 4) {
    return CudaError(kCudaErrorInvalidValue, "elements have 1, 2 or 4 bytes");
  }
  if (request.height == 1) {
    return FillRow(space, request.address, request.width, request.value, bytes);
  }
  if ((request.height - 1) * request.pitch + request.width * bytes <=
      space.Reach(request.address)) {
    CUresult result;
    if (bytes == 1) {
      result = context_.api.cuMemsetD2D8Async(request.address, request.pitch,
                                              static_cast<unsigned char>(request.value),
                                              request.width, request.height, state_->stream);
    } else if (bytes == 2) {
      result = context_.api.cuMemsetD2D16Async(request.address, request.pitch,
                                               static_cast<unsigned short>(request.value),
                                               request.width, request.height, state_->stream);
    } else {
      result = context_.api.cuMemsetD2D32Async(request.address, request.pitch, request.value,
                                               request.width, request.height, state_->stream);
    }
    return context_.Check(result, "cuMemsetD2DAsync");
  }
  for (uint64_t row = 0; row < request.height; ++row) {
    DETSHARE_RETURN_IF_ERROR(
        FillRow(space, request.address + row * request.pitch, request.width, request.value, bytes));
  }
  return absl::OkStatus();
}

absl::Status CudaQueue::Prefetch(AddressSpace& space, const PrefetchRequest& request) {
  const Submission submission(*this, space);
  const CUresult result = context_.api.cuMemPrefetchAsync(
      request.address, request.bytes, DriverPlace(request.place), state_->stream);
  // It is a hint: what the driver refuses stays where it is.
  return result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_DEVICE
             ? absl::OkStatus()
             : context_.Check(result, "cuMemPrefetchAsync");
}

// ---- order

absl::Status CudaQueue::WriteFence(AddressSpace& space, std::atomic<uint64_t>* fence,
                                   uint64_t value) {
  const Submission submission(*this, space);
  // The default flag includes a barrier: earlier writes become visible first.
  return context_.Check(
      context_.api.cuStreamWriteValue64(state_->stream, reinterpret_cast<CUdeviceptr>(fence), value,
                                        CU_STREAM_WRITE_VALUE_DEFAULT),
      "cuStreamWriteValue64");
}

absl::Status CudaQueue::WaitFence(AddressSpace& space, const std::atomic<uint64_t>* fence,
                                  uint64_t value) {
  Submission submission(*this, space);
  if (!submission.space().NoteHostWait(fence, value)) return absl::OkStatus();
  return context_.Check(
      context_.api.cuStreamWaitValue64(state_->stream, reinterpret_cast<CUdeviceptr>(fence), value,
                                       CU_STREAM_WAIT_VALUE_GEQ),
      "cuStreamWaitValue64");
}

absl::Status CudaQueue::MemoryOps(AddressSpace& space, absl::Span<const MemoryOp> operations) {
  Submission submission(*this, space);
  if (submission.space().abandoned()) return absl::OkStatus();
  absl::InlinedVector<CUstreamBatchMemOpParams, 4> parameters;
  bool waits = false;
  for (const MemoryOp& operation : operations) {
    waits = waits || operation.is_wait();
    parameters.push_back(ParamsOf(operation));
  }
  if (parameters.empty()) return absl::OkStatus();
  const auto submit = [&] {
    return context_.api.cuStreamBatchMemOp(state_->stream, static_cast<unsigned>(parameters.size()),
                                           parameters.data(), 0);
  };
  const CUresult result =
      waits ? submission.space().memory_waits().Submit(group_, state_->stream, operations, submit)
            : submit();
  return context_.Check(result, "cuStreamBatchMemOp");
}

absl::Status CudaQueue::Record(Marker& marker) {
  group_.Enter();
  auto& own = static_cast<CudaMarker&>(marker);
  DETSHARE_ASSIGN_OR_RETURN(const CUevent event, own.EventOf(group_));
  DETSHARE_RETURN_IF_ERROR(
      context_.Check(context_.api.cuEventRecord(event, state_->stream), "cuEventRecord"));
  own.NoteRecord(group_);
  return absl::OkStatus();
}

absl::Status CudaQueue::Wait(Marker& marker) {
  group_.Enter();
  return context_.Check(
      context_.api.cuStreamWaitEvent(state_->stream, static_cast<CudaMarker&>(marker).event(),
                                     CU_EVENT_WAIT_DEFAULT),
      "cuStreamWaitEvent");
}

// ---- partitions

GreenContext::~GreenContext() {
  context_.Enter();
  context_.api.cuGreenCtxDestroy(handle_);
}

absl::StatusOr<CUcontext> GreenContext::AsContext() const {
  CUcontext context = nullptr;
  DETSHARE_RETURN_IF_ERROR(
      context_.Check(context_.api.cuCtxFromGreenCtx(&context, handle_), "cuCtxFromGreenCtx"));
  return context;
}

absl::StatusOr<std::unique_ptr<Queue>> CudaPartition::CreateQueue(int priority) {
  // The driver may wait for the GPU.
  const OrdinarySlice::Call call(group_.slice.get());
  group_.Enter();
  CudaContext& gpu = group_.gpu;
  CUstream stream = nullptr;
  DETSHARE_RETURN_IF_ERROR(
      green_ == nullptr
          ? gpu.Check(gpu.api.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, priority),
                      "cuStreamCreateWithPriority")
          : gpu.Check(gpu.api.cuGreenCtxStreamCreate(&stream, green_->handle(),
                                                     CU_STREAM_NON_BLOCKING, priority),
                      "cuGreenCtxStreamCreate"));
  auto state = std::make_shared<StreamState>(group_, stream);
  group_.AddStream(state);
  return std::make_unique<CudaQueue>(reclaimer_, std::move(state));
}

}  // namespace detshare::cuda
