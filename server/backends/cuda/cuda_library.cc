#include "server/backends/cuda/cuda_library.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"
#include "proto/images/fatbin.h"
#include "proto/images/fatbin_wrapper.h"
#include "proto/images/image_kind.h"
#include "server/backends/cuda/group_bound_code.h"
#include "server/backends/cuda/jit_options.h"
#include "server/backends/cuda/managed_image.h"
#include "server/backends/images/check_image.h"

namespace detshare::cuda {
namespace {

// More parameters than a kernel can have.
constexpr size_t kMaxParameters = 32768;
constexpr unsigned kMaxKernels = 1 << 20;
// How long a launch waits for its code in the wanted group. Longer than requests of most programs, in
// whose pauses the group becomes idle.
constexpr std::chrono::milliseconds kUploadLimit(100);

CUlaunchConfig ConfigOf(const LaunchShape& shape, CUlaunchAttribute* cluster) {
  CUlaunchConfig config{};
  config.gridDimX = shape.grid.x;
  config.gridDimY = shape.grid.y;
  config.gridDimZ = shape.grid.z;
  config.blockDimX = shape.block.x;
  config.blockDimY = shape.block.y;
  config.blockDimZ = shape.block.z;
  config.sharedMemBytes = shape.dynamic_shared_bytes;
  if (shape.cluster.x != 0) {
    *cluster = {};
    cluster->id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    cluster->value.clusterDim.x = shape.cluster.x;
    cluster->value.clusterDim.y = shape.cluster.y;
    cluster->value.clusterDim.z = shape.cluster.z;
    config.attrs = cluster;
    config.numAttrs = 1;
  }
  return config;
}

}  // namespace

// ---- kernels

absl::StatusOr<std::unique_ptr<CudaKernel>> CudaKernel::Create(CudaContext& context,
                                                               CudaAddressSpace& space,
                                                               CUkernel handle, std::string name,
                                                               bool prints, bool bound) {
  std::unique_ptr<CudaKernel> kernel(new CudaKernel(context, handle, prints, bound));
  kernel->info_.name = std::move(name);
  DETSHARE_RETURN_IF_ERROR(kernel->UploadTo(context.GroupOf(space), space));
  DETSHARE_RETURN_IF_ERROR(kernel->ReadInfo());
  return kernel;
}

absl::Status CudaKernel::UploadTo(CudaGroup& group, CudaAddressSpace& space,
                                  std::chrono::milliseconds limit) {
  CUfunction& function = functions_[group.urgent];
  if (function != nullptr) return absl::OkStatus();
  DETSHARE_RETURN_IF_ERROR(group.idle.Run(
      space,
      [&] {
        group.Enter();
        return context_.Check(context_.api.cuKernelGetFunction(&function, kernel_),
                              "cuKernelGetFunction");
      },
      limit));
  if (set_attributes_.empty()) return absl::OkStatus();
  // The driver may wait for the GPU.
  const OrdinarySlice::Call call(group.slice.get());
  for (const auto& [attribute, value] : set_attributes_) {
    DETSHARE_RETURN_IF_ERROR(context_.Check(
        context_.api.cuFuncSetAttribute(function, attribute, value), "cuFuncSetAttribute"));
  }
  return absl::OkStatus();
}

bool CudaKernel::CanStartIn(bool urgent) const {
  if (context_.urgent() == nullptr) return true;
  // CudaQueue::Launch() then needs no idle moment (idle_window.h).
  const auto starts_at_once = [this](const CudaGroup& group) {
    return function(group) != nullptr &&
           local_bytes() <= group.local_bytes.load(std::memory_order_relaxed);
  };
  const CudaGroup& wanted = urgent ? *context_.urgent() : context_.ordinary;
  if (starts_at_once(wanted)) [[likely]]
    return true;
  const CudaGroup& other = urgent ? context_.ordinary : *context_.urgent();
  return !starts_at_once(other) || !context_.AnySpaceWaitsForTheHost();
}

bool CudaKernel::Prepare(AddressSpace& space, bool urgent) {
  if (context_.urgent() == nullptr) return true;
  if (!CanStartIn(urgent)) return false;
  CudaGroup& wanted = urgent ? *context_.urgent() : context_.ordinary;
  const CudaGroup& other = urgent ? context_.ordinary : *context_.urgent();
  if (function(wanted) != nullptr || function(other) == nullptr) [[likely]]
    return true;
  // The launch reports other errors.
  return !absl::IsDeadlineExceeded(
      UploadTo(wanted, static_cast<CudaAddressSpace&>(space), kUploadLimit));
}

absl::Status CudaKernel::ReadInfo() {
  home().Enter();
  for (size_t i = 0; i < kMaxParameters; ++i) {
    size_t offset = 0, bytes = 0;
    const CUresult result = context_.api.cuKernelGetParamInfo(kernel_, i, &offset, &bytes);
    if (result == CUDA_ERROR_INVALID_VALUE) break;  // the kernel has no further parameters
    DETSHARE_RETURN_IF_ERROR(context_.Check(result, "cuKernelGetParamInfo"));
    info_.parameters.push_back({static_cast<uint32_t>(offset), static_cast<uint32_t>(bytes)});
    info_.parameter_bytes = std::max(info_.parameter_bytes, static_cast<uint32_t>(offset + bytes));
  }
  const int count = std::min<int>(CU_FUNC_ATTRIBUTE_MAX, info_.attributes.size());
  for (int attribute = 0; attribute < count; ++attribute) {
    int value = 0;
    if (context_.api.cuKernelGetAttribute(&value, static_cast<CUfunction_attribute>(attribute),
                                          kernel_, context_.device) == CUDA_SUCCESS) {
      info_.attributes[attribute] = value;
    }
  }
  return absl::OkStatus();
}

absl::Status CudaKernel::SetAttribute(int attribute, int value) {
  const auto name = static_cast<CUfunction_attribute>(attribute);
  // Some programs set the same value before each launch.
  if (const auto set = set_attributes_.find(name);
      set != set_attributes_.end() && set->second == value)
    return absl::OkStatus();
  // The driver may wait for the GPU.
  const OrdinarySlice::Call call(context_.ordinary.slice.get());
  home().Enter();
  absl::Status status =
      context_.Check(context_.api.cuKernelSetAttribute(name, value, kernel_, context_.device),
                     "cuKernelSetAttribute");
  if (!status.ok()) return status;
  for (CudaGroup* const group : {&context_.ordinary, context_.urgent()}) {
    if (group == nullptr || function(*group) == nullptr) continue;
    group->Enter();
    DETSHARE_RETURN_IF_ERROR(context_.Check(
        context_.api.cuFuncSetAttribute(function(*group), name, value), "cuFuncSetAttribute"));
  }
  set_attributes_[name] = value;
  if (attribute >= 0 && attribute < static_cast<int>(info_.attributes.size())) {
    int now = value;
    context_.api.cuKernelGetAttribute(&now, name, kernel_, context_.device);
    info_.attributes[attribute] = now;
  }
  return absl::OkStatus();
}

absl::StatusOr<int> CudaKernel::MaxActiveBlocks(const OccupancyQuery& query) {
  home().Enter();
  int blocks = 0;
  DETSHARE_RETURN_IF_ERROR(context_.Check(
      context_.api.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
          &blocks, function(home()), query.block_size, query.dynamic_shared_bytes, query.flags),
      "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags"));
  return blocks;
}

absl::StatusOr<uint64_t> CudaKernel::AvailableDynamicShared(int blocks, int block_size) {
  home().Enter();
  size_t bytes = 0;
  DETSHARE_RETURN_IF_ERROR(context_.Check(context_.api.cuOccupancyAvailableDynamicSMemPerBlock(
                                              &bytes, function(home()), blocks, block_size),
                                          "cuOccupancyAvailableDynamicSMemPerBlock"));
  return bytes;
}

absl::StatusOr<int> CudaKernel::MaxPotentialClusterSize(const LaunchShape& shape) {
  home().Enter();
  CUlaunchAttribute cluster;
  const CUlaunchConfig config = ConfigOf(shape, &cluster);
  int size = 0;
  DETSHARE_RETURN_IF_ERROR(context_.Check(
      context_.api.cuOccupancyMaxPotentialClusterSize(&size, function(home()), &config),
      "cuOccupancyMaxPotentialClusterSize"));
  return size;
}

absl::StatusOr<int> CudaKernel::MaxActiveClusters(const LaunchShape& shape) {
  home().Enter();
  CUlaunchAttribute cluster;
  const CUlaunchConfig config = ConfigOf(shape, &cluster);
  int clusters = 0;
  DETSHARE_RETURN_IF_ERROR(context_.Check(
      context_.api.cuOccupancyMaxActiveClusters(&clusters, function(home()), &config),
      "cuOccupancyMaxActiveClusters"));
  return clusters;
}

// ---- libraries

absl::StatusOr<std::unique_ptr<CudaLibrary>> CudaLibrary::Load(
    CudaContext& context, DeferredReclaimer& reclaimer, CudaAddressSpace& space,
    absl::Span<const std::byte> image, absl::Span<const JitOptionValue> options, int device_sm,
    CompileLogs& logs, const PlaceManaged& place) {
  context.Enter();
  std::span<const std::byte> bytes(image.data(), image.size());
  PrintingScan printing;
  ManagedScan managed;
  bool bound = false;
  std::string error;
  const auto add = [&](const images::DeviceCode& code) {
    printing.Add(code);
    managed.Add(code);
    bound = bound || IsBoundToGroup(code);
  };
  if (!images::CheckLoadedImage(bytes, device_sm, add, &error))
    return CudaError(kCudaErrorInvalidImage, error);
  DETSHARE_ASSIGN_OR_RETURN(const std::optional<std::string> placed,
                            managed.Place(context, space, options, logs, place));
  if (placed.has_value()) bytes = std::as_bytes(std::span(*placed));
  std::string text;
  const void* data = bytes.data();
  // Several fatbins are a program that nvlink has linked. The driver finds the parts by a wrapper.
  // If the linked code is for another architecture, the driver links the PTX of the parts again.
  images::FatbinWrapper wrapper{images::kFatbinWrapperMagic, 2, data, nullptr};
  std::vector<const void*> parts;
  switch (images::SniffImage(bytes)) {
    case images::ImageKind::kFatbin: {
      std::vector<std::span<const std::byte>> fatbins;
      images::SplitFatbins(bytes, &fatbins, &error);
      if (fatbins.size() > 1) {
        for (size_t i = 1; i < fatbins.size(); ++i) parts.push_back(fatbins[i].data());
        parts.push_back(nullptr);
        wrapper.linked = parts.data();
        data = &wrapper;
      }
      break;
    }
    case images::ImageKind::kElf:
    case images::ImageKind::kWrapper:  // refused above
      break;
    case images::ImageKind::kPtx:
    case images::ImageKind::kUnknown:
      text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      data = text.c_str();  // terminated
      break;
  }
  // Text is compiled in this call, as cuModuleLoadData would do: its errors and logs belong to this
  // call. Parts are linked in this call as well, because their memory is gone afterwards. All other
  // code is uploaded when a kernel is needed, so the driver must not get log buffers that it could
  // write to at that time.
  const bool compile = !text.empty() || bytes.empty() || !parts.empty();
  JitOptions jit(options, logs, compile);
  CUlibrary handle = nullptr;
  const auto load = [&] {
    CUresult result = context.api.cuLibraryLoadData(&handle, data, jit.names(), jit.values(),
                                                    jit.count(), nullptr, nullptr, 0);
    if (result == CUDA_SUCCESS && compile) {
      CUmodule module = nullptr;
      result = context.api.cuLibraryGetModule(&module, handle);
      if (result != CUDA_SUCCESS) context.api.cuLibraryUnload(handle);
    }
    return context.Check(result, "cuLibraryLoadData");
  };
  // Compiled code is uploaded at once, to the current context.
  CudaGroup& group = context.GroupOf(space);
  group.Enter();
  const absl::Status status = compile ? group.idle.Run(space, load) : load();
  jit.TakeLogs(logs);
  if (!status.ok()) {
    return CudaError(CudaResultOf(status),
                     absl::StrCat(std::string(status.message()), " ", jit.Complaints()));
  }
  return std::unique_ptr<CudaLibrary>(
      new CudaLibrary(context, reclaimer, space, handle, printing.kernels(), bound));
}

CudaLibrary::~CudaLibrary() {
  for (const auto& [name, global] : globals_) space_.RemoveGlobal(global.address);
  // Code that was never in the urgent group must not delay it.
  bool urgent = context_.GroupOf(space_).urgent;
  for (const auto& [name, kernel] : kernels_) {
    urgent =
        urgent || (context_.urgent() != nullptr && kernel->function(*context_.urgent()) != nullptr);
  }
  reclaimer_.Later(
      urgent ? DeferredReclaimer::Drains::kBoth : DeferredReclaimer::Drains::kOrdinary,
      [&context = context_, library = library_] {
        context.Enter();
        context.Check(context.api.cuLibraryUnload(library), "cuLibraryUnload").IgnoreError();
      });
}

std::vector<std::string> CudaLibrary::KernelNames() const {
  context_.Enter();
  std::vector<std::string> names;
  unsigned count = 0;
  if (context_.api.cuLibraryGetKernelCount(&count, library_) != CUDA_SUCCESS) return names;
  std::vector<CUkernel> kernels(std::min(count, kMaxKernels));
  if (context_.api.cuLibraryEnumerateKernels(kernels.data(), static_cast<unsigned>(kernels.size()),
                                             library_) != CUDA_SUCCESS) {
    return names;
  }
  for (CUkernel kernel : kernels) {
    const char* name = nullptr;
    if (context_.api.cuKernelGetName(&name, kernel) == CUDA_SUCCESS) names.emplace_back(name);
  }
  return names;
}

absl::StatusOr<Kernel*> CudaLibrary::GetKernel(std::string_view name) {
  MutexLock lock(&mutex_);
  if (const auto found = kernels_.find(name); found != kernels_.end()) return found->second.get();
  context_.Enter();
  const std::string terminated(name);
  CUkernel handle = nullptr;
  absl::Status status = context_.Check(
      context_.api.cuLibraryGetKernel(&handle, library_, terminated.c_str()), "cuLibraryGetKernel");
  if (!status.ok()) return status;
  DETSHARE_ASSIGN_OR_RETURN(
      std::unique_ptr<CudaKernel> kernel,
      CudaKernel::Create(context_, space_, handle, terminated, printing_.Contains(name), bound_));
  return kernels_.emplace(terminated, std::move(kernel)).first->second.get();
}

absl::StatusOr<Library::Global> CudaLibrary::GetGlobal(std::string_view name) {
  MutexLock lock(&mutex_);
  if (const auto found = globals_.find(name); found != globals_.end()) return found->second;
  CudaGroup& group = context_.GroupOf(space_);
  const std::string terminated(name);
  CUdeviceptr address = 0;
  size_t bytes = 0;
  const absl::Status status = group.idle.Run(space_, [&] {
    group.Enter();
    return context_.Check(
        context_.api.cuLibraryGetGlobal(&address, &bytes, library_, terminated.c_str()),
        "cuLibraryGetGlobal");
  });
  if (!status.ok()) return status;
  // The other group has a variable of its own, at another address.
  space_.BindToGroup();
  const Global global{address, bytes};
  globals_.emplace(terminated, global);
  space_.AddGlobal(address, bytes);
  return global;
}

// ---- linking

absl::StatusOr<std::string> LinkImages(CudaContext& context,
                                       absl::Span<const LinkInputImage> inputs,
                                       absl::Span<const JitOptionValue> options,
                                       CompileLogs& logs) {
  for (const LinkInputImage& input : inputs) {
    std::string error;
    if (!images::CheckLinkInput(std::as_bytes(std::span(input.bytes)), &error))
      return CudaError(kCudaErrorInvalidImage, absl::StrCat("input ", input.name, ": ", error));
  }
  context.Enter();
  JitOptions jit(options, logs, /*with_logs=*/true);
  CUlinkState state = nullptr;
  absl::Status status = context.Check(
      context.api.cuLinkCreate(jit.count(), jit.names(), jit.values(), &state), "cuLinkCreate");
  if (!status.ok()) return status;
  for (const LinkInputImage& input : inputs) {
    // The driver reads a PTX input up to its terminator, which c_str() provides.
    const size_t bytes = input.bytes.size() + (input.type == CU_JIT_INPUT_PTX ? 1 : 0);
    status = context.Check(context.api.cuLinkAddData(state, static_cast<CUjitInputType>(input.type),
                                                     const_cast<char*>(input.bytes.c_str()), bytes,
                                                     input.name.c_str(), 0, nullptr, nullptr),
                           "cuLinkAddData");
    if (!status.ok()) break;
  }
  std::string image;
  if (status.ok()) {
    void* linked = nullptr;
    size_t bytes = 0;
    status = context.Check(context.api.cuLinkComplete(state, &linked, &bytes), "cuLinkComplete");
    if (status.ok()) image.assign(static_cast<const char*>(linked), bytes);
  }
  context.api.cuLinkDestroy(state);
  jit.TakeLogs(logs);
  if (!status.ok()) {
    return CudaError(CudaResultOf(status),
                     absl::StrCat(std::string(status.message()), " ", jit.Complaints()));
  }
  return image;
}

}  // namespace detshare::cuda
