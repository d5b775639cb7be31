#include "server/backends/soft/soft_library.h"

#include <cuda.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"
#include "server/backends/soft/soft_properties.h"

namespace detshare::soft {
namespace {

constexpr int kPortableClusterSize = 8;
constexpr int kLargestClusterSize = 16;
constexpr uint32_t kRegisterUnit = 8;  // hardware allocates registers in groups of 8

absl::Status NotFound(std::string_view what, std::string_view name) {
  return CudaError(kCudaErrorNotFound,
                   absl::StrCat("the library has no ", std::string(what), " ", std::string(name)));
}

// Registers that the estimate counts, but that ptxas keeps in uniform registers or constant memory.
constexpr uint32_t kRegistersElsewhere = 6;

// Estimates the registers that ptxas would use. As ptxas does, it keeps the promise of the kernel's
// launch bounds: blocks of that size fit, as many as the bounds say.
int EstimateRegisters(const ptx::KernelInfo& kernel, const DeviceProperties& device) {
  const int most = MostRegisters(device, static_cast<int>(kernel.max_threads_per_block),
                                 static_cast<int>(std::max(kernel.min_blocks_per_sm, 1u)));
  const uint32_t bound = kernel.max_registers != 0 ? kernel.max_registers : most;
  const uint32_t estimate =
      std::max(kernel.registers_per_thread, kRegisterUnit + kRegistersElsewhere) -
      kRegistersElsewhere;
  return std::min(static_cast<int>(std::min(estimate, bound)), most);
}

}  // namespace

absl::StatusOr<std::shared_ptr<LoadedModule>> LoadedModule::Create(
    std::shared_ptr<SpaceState> space, std::unique_ptr<ptx::Module> module,
    std::map<std::string, uint32_t> registers, std::shared_ptr<KernelOutput> output,
    const PlaceManaged& place) {
  auto loaded = std::make_shared<LoadedModule>();
  loaded->space = std::move(space);
  loaded->module = std::move(module);
  loaded->registers = std::move(registers);
  loaded->output = std::move(output);
  const std::vector<ptx::GlobalInfo>& globals = loaded->module->globals();
  loaded->addresses.resize(globals.size());
  std::vector<ManagedVariable> managed;
  for (size_t i = 0; i < globals.size(); ++i) {
    const ptx::GlobalInfo& global = globals[i];
    if (global.is_extern) {
      return CudaError(kCudaErrorInvalidPtx,
                       absl::StrCat("the variable ", global.name, " is declared but not defined"));
    }
    if (global.is_managed) {
      managed.push_back({global.name, global.size, std::max<uint64_t>(global.align, 1)});
      continue;
    }
    absl::StatusOr<uint64_t> address =
        loaded->space->AllocateGlobal(global.size, std::max<uint64_t>(global.align, 256));
    if (!address.ok()) return address.status();
    loaded->addresses[i] = *address;
  }
  ManagedPlaces places;
  if (!managed.empty()) {
    if (!place)
      return CudaError(kCudaErrorNotSupported, "the session has no place for managed variables");
    DETSHARE_ASSIGN_OR_RETURN(places, place(managed));
    for (size_t i = 0, next = 0; i < globals.size(); ++i) {
      if (globals[i].is_managed) loaded->addresses[i] = places.addresses[next++];
    }
  }
  for (size_t i = 0, next = 0; i < globals.size(); ++i) {
    const size_t variable = next;
    if (globals[i].is_managed) ++next;
    // The memory is zero already.
    if (!globals[i].has_initializer) continue;
    if (!globals[i].is_managed) {
      loaded->module->WriteInitialImage(i, loaded->addresses,
                                        reinterpret_cast<uint8_t*>(loaded->addresses[i]));
    } else if (places.initialize) {
      std::string contents(globals[i].size, 0);
      loaded->module->WriteInitialImage(i, loaded->addresses,
                                        reinterpret_cast<uint8_t*>(contents.data()));
      places.initialize(variable, contents);
    }
  }
  absl::StatusOr<std::unique_ptr<ptx::Executable>> executable =
      loaded->module->Bind(loaded->addresses);
  if (!executable.ok())
    return CudaError(kCudaErrorInvalidPtx, std::string(executable.status().message()));
  loaded->executable = *std::move(executable);
  return loaded;
}

LoadedModule::~LoadedModule() {
  for (size_t i = 0; i < addresses.size(); ++i) {
    const ptx::GlobalInfo& global = module->globals()[i];
    if (addresses[i] != 0 && !global.is_managed) space->FreeGlobal(addresses[i]);
  }
}

SoftKernel::SoftKernel(const DeviceProperties& device, std::shared_ptr<LoadedModule> module,
                       size_t index)
    : device_(device), module_(std::move(module)), index_(index) {
  const ptx::KernelInfo& kernel = ptx_info();
  info_.name = kernel.name;
  for (const ptx::ParamInfo& parameter : kernel.params)
    info_.parameters.push_back({parameter.offset, parameter.size});
  info_.parameter_bytes = kernel.param_bytes;

  auto& a = info_.attributes;
  const int shared = static_cast<int>(kernel.static_shared_bytes);
  const auto known = module_->registers.find(kernel.name);
  const int registers = known != module_->registers.end()
                            ? static_cast<int>(std::clamp(known->second, 1u, 255u))
                            : EstimateRegisters(kernel, device);
  a[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] =
      std::min(static_cast<int>(kernel.max_threads_per_block), LargestBlock(device, registers));
  a[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES] = shared;
  a[CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES] = static_cast<int>(kernel.const_bytes);
  a[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES] = static_cast<int>(kernel.local_bytes_per_thread);
  a[CU_FUNC_ATTRIBUTE_NUM_REGS] = registers;
  a[CU_FUNC_ATTRIBUTE_PTX_VERSION] = static_cast<int>(module_->module->target());
  a[CU_FUNC_ATTRIBUTE_BINARY_VERSION] = SmVersionOf(device);
  a[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] =
      std::max(0, AttributeOf(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK) - shared);
  a[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1;
  a[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET] =
      kernel.explicit_cluster && kernel.required_cluster[0] == 0;
  for (int i = 0; i < 3; ++i) {
    a[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + i] = static_cast<int>(kernel.required_cluster[i]);
  }
}

std::array<int32_t, 24> SoftKernel::attributes() const {
  const MutexLock lock(&mutex_);
  return info_.attributes;
}

KernelResources SoftKernel::resources() const {
  const std::array<int32_t, 24> a = attributes();
  KernelResources resources;
  resources.registers_per_thread = a[CU_FUNC_ATTRIBUTE_NUM_REGS];
  resources.static_shared_bytes = a[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES];
  resources.largest_dynamic_shared_bytes = a[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES];
  resources.max_threads_per_block = a[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
  resources.carveout = a[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT];
  return resources;
}

absl::Status SoftKernel::SetAttribute(int attribute, int value) {
  const auto refuse = [&](const char* reason) { return CudaError(kCudaErrorInvalidValue, reason); };
  const MutexLock lock(&mutex_);
  auto& a = info_.attributes;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: {
      const int max = AttributeOf(device_, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) -
                      a[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES];
      if (value < 0 || value > max)
        return refuse("the dynamic shared memory is larger than a block can have");
      break;
    }
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      if (value < -1 || value > 100) return refuse("the carveout is not a percentage or -1");
      break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      if (ptx_info().required_cluster[0] != 0) {
        return CudaError(kCudaErrorNotPermitted,
                         "the cluster size was set when the kernel was compiled");
      }
      if (value < 0 || value > kLargestClusterSize)
        return refuse("the cluster size is out of range");
      break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      if (value != 0 && value != 1) return refuse("the value is not 0 (disallowed) or 1 (allowed)");
      break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      if (value < CU_CLUSTER_SCHEDULING_POLICY_DEFAULT ||
          value > CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING) {
        return refuse("the scheduling policy does not exist");
      }
      break;
    default:
      return refuse("the attribute cannot be set");
  }
  a[attribute] = value;
  return absl::OkStatus();
}

absl::StatusOr<int> SoftKernel::MaxActiveBlocks(const OccupancyQuery& query) {
  if (query.block_size <= 0)
    return CudaError(kCudaErrorInvalidValue, "a block needs at least 1 thread");
  return soft::MaxActiveBlocks(device_, resources(), query.block_size, query.dynamic_shared_bytes);
}

absl::StatusOr<uint64_t> SoftKernel::AvailableDynamicShared(int blocks, int block_size) {
  if (blocks <= 0 || block_size <= 0)
    return CudaError(kCudaErrorInvalidValue, "the number of blocks or threads is below 1");
  return soft::AvailableDynamicShared(device_, resources(), blocks, block_size);
}

absl::StatusOr<int> SoftKernel::MaxPotentialClusterSize(const LaunchShape& shape) {
  if (AttributeOf(device_, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) == 0) {
    return CudaError(kCudaErrorNotSupported, "clusters need compute capability 9.0");
  }
  const uint64_t threads = uint64_t{shape.block.x} * shape.block.y * shape.block.z;
  const KernelResources kernel = resources();
  if (threads == 0 || threads > 1024 ||
      soft::MaxActiveBlocks(device_, kernel, static_cast<int>(threads),
                            shape.dynamic_shared_bytes) == 0) {
    return CudaError(kCudaErrorInvalidValue, "no block of this shape fits on an SM");
  }
  return attributes()[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED] ? kLargestClusterSize
                                                                           : kPortableClusterSize;
}

absl::StatusOr<int> SoftKernel::MaxActiveClusters(const LaunchShape& shape) {
  const absl::StatusOr<int> largest = MaxPotentialClusterSize(shape);
  if (!largest.ok()) return largest.status();
  const std::array<int32_t, 24> a = attributes();
  std::array<uint32_t, 3> sides{shape.cluster.x, shape.cluster.y, shape.cluster.z};
  if (std::count(sides.begin(), sides.end(), 0u) != 0) {
    for (int i = 0; i < 3; ++i) {
      sides[i] =
          static_cast<uint32_t>(std::max(1, a[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + i]));
    }
  }
  // Code may name any sides, so their product may need more than 64 bits.
  uint64_t blocks = 1;
  for (const uint32_t side : sides) blocks *= std::min(side, static_cast<uint32_t>(*largest) + 1);
  if (blocks > static_cast<uint64_t>(*largest)) {
    // As with NVIDIA's driver, a kernel that allows the largest size has room for no larger cluster.
    if (*largest == kLargestClusterSize) return 0;
    return CudaError(kCudaErrorInvalidClusterSize, "the cluster is larger than the kernel allows");
  }
  const int threads = static_cast<int>(shape.block.x * shape.block.y * shape.block.z);
  const int per_sm =
      soft::MaxActiveBlocks(device_, resources(), threads, shape.dynamic_shared_bytes);
  return soft::MaxActiveClusters(device_, 0, device_.sm_count, per_sm, static_cast<int>(blocks));
}

SoftLibrary::SoftLibrary(const DeviceProperties& device, std::shared_ptr<LoadedModule> module)
    : device_(device), module_(std::move(module)) {}

std::vector<std::string> SoftLibrary::KernelNames() const {
  std::vector<std::string> names;
  for (const ptx::KernelInfo& kernel : module_->module->kernels()) names.push_back(kernel.name);
  std::reverse(names.begin(), names.end());
  return names;
}

absl::StatusOr<Kernel*> SoftLibrary::GetKernel(std::string_view name) {
  const int index = module_->module->FindKernel(name);
  if (index < 0) return NotFound("kernel", name);
  const MutexLock lock(&mutex_);
  std::unique_ptr<SoftKernel>& kernel = kernels_[index];
  if (kernel == nullptr) kernel = std::make_unique<SoftKernel>(device_, module_, index);
  return kernel.get();
}

absl::StatusOr<Library::Global> SoftLibrary::GetGlobal(std::string_view name) {
  const int index = module_->module->FindGlobal(name);
  if (index < 0) return NotFound("variable", name);
  return Global{module_->addresses[index], module_->module->globals()[index].size};
}

}  // namespace detshare::soft
