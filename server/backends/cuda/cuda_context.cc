#include "server/backends/cuda/cuda_context.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"
#include "server/backends/cuda/cuda_address_space.h"
#include "server/backends/cuda/driver_output.h"

namespace detshare::cuda {
namespace {

// Returns whether this error ends the current context, so that no later call of the process works.
bool EndsTheContext(const DriverApi& api, CUresult result) {
  switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_EXTERNAL_DEVICE:
      return true;
    case CUDA_ERROR_UNKNOWN: {
      // The linker returns it for images with unresolved symbols, too. After an error that ends the
      // context, every call returns an error. The legacy stream of the daemon's contexts is idle.
      const CUresult now = api.cuStreamQuery(nullptr);
      return now != CUDA_SUCCESS && now != CUDA_ERROR_NOT_READY;
    }
    default:
      return false;
  }
}

}  // namespace

absl::Status CudaContext::Check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  if (EndsTheContext(api, result)) OnFault(result, call);
  const char* name = nullptr;
  api.cuGetErrorName(result, &name);
  return CudaError(result, absl::StrCat(call, ": ", name == nullptr ? "unknown error" : name));
}

absl::Status CudaContext::ApartFromGraphs(absl::FunctionRef<absl::Status()> change) {
  if (graph_gate == nullptr) return change();
  absl::Status status;
  graph_gate->Change([&] { status = change(); });
  return status;
}

absl::Status CudaContext::ApartFromOwnGraphs(absl::FunctionRef<absl::Status()> change) {
  if (graph_gate == nullptr) return change();
  absl::Status status;
  graph_gate->ChangeHere([&] { status = change(); });
  return status;
}

absl::Status CudaContext::RegisterPages(void* pages, size_t bytes) {
  Enter();
  DETSHARE_RETURN_IF_ERROR(ApartFromOwnGraphs([&] {
    return Check(api.cuMemHostRegister(pages, bytes,
                                       CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
                 "cuMemHostRegister");
  }));
  CUdeviceptr mapped = 0;
  absl::Status status =
      Check(api.cuMemHostGetDevicePointer(&mapped, pages, 0), "cuMemHostGetDevicePointer");
  if (status.ok() && mapped != reinterpret_cast<CUdeviceptr>(pages))
    status = CudaError(kCudaErrorNotSupported, "the GPU sees registered memory at another address");
  if (!status.ok()) api.cuMemHostUnregister(pages);
  return status;
}

void CudaContext::OnFault(CUresult result, const char* call) {
  MutexLock lock(&mutex_);
  if (fault_.load(std::memory_order_relaxed) != CUDA_SUCCESS) return;
  std::set<CudaAddressSpace*> busy;
  for (CudaGroup* group : {&ordinary, urgent()}) {
    if (group == nullptr) continue;
    for (const std::shared_ptr<StreamState>& stream : group->Streams()) {
      if (stream->submitted.load() != stream->completed.load()) busy.insert(stream->space.load());
    }
  }
  for (CudaAddressSpace* space : spaces_) {
    if (!busy.contains(space)) continue;
    space->SetSuspect();
    ++suspects_;
  }
  if (result == CUDA_ERROR_ASSERT) PassAssertions();
  fault_call_ = call;
  fault_.store(result, std::memory_order_release);
}

void CudaContext::PassAssertions() {
  for (CudaGroup* group : {&ordinary, urgent()}) {
    if (group == nullptr) continue;
    group->Enter();
    const CUresult now = api.cuStreamQuery(nullptr);
    // The driver writes the text in a call that waits. In a context with an error no call does.
    if (now != CUDA_SUCCESS && now != CUDA_ERROR_NOT_READY) api.cuCtxSynchronize();
  }
  const std::string text = DriverOutput::Get().TakeAssertions();
  for (CudaAddressSpace* space : spaces_) {
    if (space->suspect() && space->output() != nullptr && !text.empty())
      space->output()->PrintError(text);
  }
}

absl::Status CudaContext::health() const {
  const CUresult fault = fault_.load(std::memory_order_acquire);
  if (fault == CUDA_SUCCESS) return absl::OkStatus();
  const char* name = nullptr;
  api.cuGetErrorName(fault, &name);
  return CudaError(fault, absl::StrCat("the GPU's context was lost: ", name == nullptr ? "?" : name,
                                       ", first seen by ", fault_call_));
}

absl::Status CudaContext::FaultOf(const CudaAddressSpace& space) const {
  const CUresult fault = fault_.load(std::memory_order_acquire);
  if (fault == CUDA_SUCCESS) return absl::OkStatus();
  if (!space.suspect())
    return CudaError(fault, "another session's work failed and ended the GPU's context");
  if (suspects_ == 1) return CudaError(fault, "this session's work failed: only it was running");
  return CudaError(fault, absl::StrCat("this session's work failed, or that of ", suspects_ - 1,
                                       " others that ran at the same time"));
}

void CudaContext::AddSpace(CudaAddressSpace* space) {
  MutexLock lock(&mutex_);
  spaces_.push_back(space);
}

void CudaContext::RemoveSpace(CudaAddressSpace* space) {
  MutexLock lock(&mutex_);
  std::erase(spaces_, space);
}

void CudaContext::ReleaseAbandonedWaits() {
  MutexLock lock(&mutex_);
  for (CudaAddressSpace* space : spaces_) space->ReleaseMemoryWaits();
}

void CudaContext::WriteWord(CUdeviceptr address, uint64_t value, int bytes) {
  constexpr int kPolls = 200;
  MutexLock lock(&urgent_mutex_);
  Enter();
  if (urgent_stream_ == nullptr) {
    // Streams of the same priority may share a hardware queue and then wait for each other. So this
    // stream gets the greatest priority.
    int least = 0, greatest = 0;
    api.cuCtxGetStreamPriorityRange(&least, &greatest);
    if (api.cuStreamCreateWithPriority(&urgent_stream_, CU_STREAM_NON_BLOCKING, greatest) !=
        CUDA_SUCCESS) {
      urgent_stream_ = nullptr;
      return;
    }
  }
  const CUresult result =
      bytes == 4
          ? api.cuStreamWriteValue32(urgent_stream_, address, static_cast<uint32_t>(value),
                                     CU_STREAM_WRITE_VALUE_DEFAULT)
          : api.cuStreamWriteValue64(urgent_stream_, address, value, CU_STREAM_WRITE_VALUE_DEFAULT);
  if (result != CUDA_SUCCESS) return;
  for (int i = 0; i < kPolls && api.cuStreamQuery(urgent_stream_) == CUDA_ERROR_NOT_READY; ++i) {
  }
}

bool CudaContext::AnySpaceWaitsForTheHost() {
  MutexLock lock(&mutex_);
  return std::any_of(spaces_.begin(), spaces_.end(),
                     [](CudaAddressSpace* space) { return space->WaitsForTheHost(); });
}

}  // namespace detshare::cuda
