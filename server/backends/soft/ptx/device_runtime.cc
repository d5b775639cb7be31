#include "server/backends/soft/ptx/device_runtime.h"

#include "server/backends/soft/ptx/builtins.h"
#include "server/backends/soft/ptx/memory_access.h"

namespace detshare::soft::ptx {
namespace {

// cudaError_t
constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;
constexpr int kMemoryAllocation = 2;
constexpr int kInvalidDeviceFunction = 98;
constexpr int kNotSupported = 801;

constexpr uint32_t kStreamNonBlocking = 1;   // the only flags of a device's stream
constexpr uint32_t kEventDisableTiming = 2;  // and of its event
constexpr uint64_t kTailLaunchStream = 3;    // cudaStreamTailLaunch
constexpr uint64_t kStreamOrEvent = 0x1000;  // the handle of every stream and event

struct RuntimeFunction {
  std::string_view name;
  Builtin builtin;
};
constexpr RuntimeFunction kFunctions[] = {
    {"GetParameterBufferV2", Builtin::kParameterBuffer},
    {"LaunchDeviceV2", Builtin::kLaunchDevice},
    {"StreamCreateWithFlags", Builtin::kCreateStream},
    {"StreamDestroy", Builtin::kStreamOperation},
    {"StreamWaitEvent", Builtin::kStreamOperation},
    {"EventCreateWithFlags", Builtin::kCreateEvent},
    {"EventRecord", Builtin::kStreamOperation},
    {"EventRecordWithFlags", Builtin::kStreamOperation},
    {"EventDestroy", Builtin::kStreamOperation},
    {"GetLastError", Builtin::kGetLastError},
    {"PeekAtLastError", Builtin::kPeekAtLastError},
    {"GetDevice", Builtin::kGetDevice},
    {"DeviceGetAttribute", Builtin::kGetDeviceAttribute},
    {"Malloc", Builtin::kDeviceMalloc},
    {"Free", Builtin::kDeviceFree},
};

// Lies before the parameters that a thread writes for a launch, in memory that the kernel may
// change. So it is checked again when the thread launches.
struct alignas(16) LaunchHeader {
  uint64_t function = 0;
  std::array<uint32_t, 3> grid{};
  std::array<uint32_t, 3> block{};
  uint32_t dynamic_shared_bytes = 0;
};

std::array<uint32_t, 3> DimensionsArgument(const Context& c, const CallSite& call, size_t index,
                                           uint32_t lane) {
  std::array<uint32_t, 3> value{};
  if (index >= call.args.size() || call.args[index].size != sizeof(value)) return value;
  std::memcpy(&value,
              c.frame->params + size_t{c.frame->function->param_area_bytes} * lane +
                  call.args[index].offset,
              sizeof(value));
  return value;
}

// Returns the index of the kernel at an address; -1 when there is none.
int KernelAt(const ModuleCode& module, uint64_t address) {
  const uint64_t index = (address - kFunctionWindow) / kFunctionStride - 1;
  if (address < kFunctionWindow + kFunctionStride || index >= module.functions.size()) return -1;
  for (size_t i = 0; i < module.kernel_function.size(); ++i) {
    if (module.kernel_function[i] == index) return static_cast<int>(i);
  }
  return -1;
}

template <class T>
bool Store(Context& c, uint32_t lane, uint64_t address, const T& value) {
  uint8_t* const p = GenericPointer(c, lane, address, sizeof(value), true);
  if (p == nullptr) return false;
  std::memcpy(p, &value, sizeof(value));
  return true;
}

// Returns the address for the parameters of a launch; 0 after an error.
uint64_t ParameterBuffer(Context& c, const CallSite& call, uint32_t lane, int* error) {
  const ModuleCode& module = *c.unit->launch->module;
  DeviceHeap* const heap = c.unit->launch->services.heap;
  LaunchHeader header;
  header.function = Argument(c, call, 0, lane);
  header.grid = DimensionsArgument(c, call, 1, lane);
  header.block = DimensionsArgument(c, call, 2, lane);
  header.dynamic_shared_bytes = static_cast<uint32_t>(Argument(c, call, 3, lane));
  const int kernel = KernelAt(module, header.function);
  if (kernel < 0) {
    *error = kInvalidDeviceFunction;
    return 0;
  }
  const uint64_t bytes = sizeof(header) + module.kernels[static_cast<size_t>(kernel)].param_bytes;
  const uint64_t address = heap == nullptr ? 0 : heap->Allocate(bytes);
  if (address == 0 || !Store(c, lane, address, header)) {
    *error = kMemoryAllocation;
    return 0;
  }
  return address + sizeof(header);
}

int Launch(Context& c, uint64_t buffer, uint64_t stream, uint32_t lane) {
  const ModuleCode& module = *c.unit->launch->module;
  const LaunchServices& services = c.unit->launch->services;
  LaunchHeader header;
  const uint64_t address = buffer - sizeof(header);
  if (buffer < sizeof(header) || !ReadGeneric(c, lane, address, sizeof(header), &header))
    return kInvalidValue;
  const int kernel = KernelAt(module, header.function);
  if (kernel < 0) return kInvalidDeviceFunction;
  ChildLaunch launch;
  launch.kernel = static_cast<uint32_t>(kernel);
  launch.grid = header.grid;
  launch.block = header.block;
  launch.dynamic_shared_bytes = header.dynamic_shared_bytes;
  launch.tail = stream == kTailLaunchStream;
  launch.params.resize(module.kernels[launch.kernel].param_bytes);
  if (!ReadGeneric(c, lane, buffer, launch.params.size(), launch.params.data()))
    return kInvalidValue;
  if (services.heap == nullptr || !services.heap->Free(address)) return kInvalidValue;
  return services.runtime == nullptr ? kNotSupported : services.runtime->Launch(std::move(launch));
}

// Creates a stream or an event. Its address is the first argument, its flags are the second.
int Create(Context& c, const CallSite& call, uint32_t lane, uint32_t flags) {
  if (Argument(c, call, 1, lane) != flags) return kInvalidValue;
  return Store(c, lane, Argument(c, call, 0, lane), kStreamOrEvent) ? kSuccess : kInvalidValue;
}

int GetAttribute(Context& c, const CallSite& call, uint32_t lane) {
  const DeviceRuntime* const runtime = c.unit->launch->services.runtime;
  int32_t value = 0;
  if (runtime == nullptr) return kNotSupported;
  if (!runtime->GetAttribute(static_cast<int>(Argument(c, call, 1, lane)), &value))
    return kInvalidValue;
  return Store(c, lane, Argument(c, call, 0, lane), value) ? kSuccess : kInvalidValue;
}

int Malloc(Context& c, const CallSite& call, uint32_t lane) {
  DeviceHeap* const heap = c.unit->launch->services.heap;
  const uint64_t address = heap == nullptr ? 0 : heap->Allocate(Argument(c, call, 1, lane));
  if (address == 0) return kMemoryAllocation;
  if (Store(c, lane, Argument(c, call, 0, lane), address)) return kSuccess;
  heap->Free(address);
  return kInvalidValue;
}

int Free(Context& c, const CallSite& call, uint32_t lane) {
  DeviceHeap* const heap = c.unit->launch->services.heap;
  const uint64_t address = Argument(c, call, 0, lane);
  return address == 0 || (heap != nullptr && heap->Free(address)) ? kSuccess : kInvalidValue;
}

// Returns the thread's last error.
int LastError(Context& c, uint32_t lane, bool reset) {
  const auto it = c.block->runtime_errors.find(c.warp->index * kLanes + lane);
  if (it == c.block->runtime_errors.end()) return kSuccess;
  const int error = it->second;
  if (reset) c.block->runtime_errors.erase(it);
  return error;
}

}  // namespace

Builtin DeviceRuntimeBuiltin(std::string_view name) {
  constexpr std::string_view kPrefix = "__cudaCDP2", kPerThread = "_ptsz";
  if (!name.starts_with(kPrefix)) return Builtin::kNone;
  name.remove_prefix(kPrefix.size());
  if (name.ends_with(kPerThread)) name.remove_suffix(kPerThread.size());
  for (const RuntimeFunction& function : kFunctions) {
    if (function.name == name) return function.builtin;
  }
  return Builtin::kUnsupportedRuntime;
}

void ExecDeviceRuntime(Context& c, const CallSite& call, uint32_t mask) {
  ForEachLane(mask, [&](uint32_t lane) {
    int error = kSuccess;
    switch (call.builtin) {
      case Builtin::kGetLastError:
      case Builtin::kPeekAtLastError:
        return Return(
            c, call, lane,
            static_cast<uint64_t>(LastError(c, lane, call.builtin == Builtin::kGetLastError)));
      case Builtin::kParameterBuffer:
        Return(c, call, lane, ParameterBuffer(c, call, lane, &error));
        break;
      case Builtin::kLaunchDevice:
        error = Launch(c, Argument(c, call, 0, lane), Argument(c, call, 1, lane), lane);
        break;
      case Builtin::kCreateStream:
        error = Create(c, call, lane, kStreamNonBlocking);
        break;
      case Builtin::kCreateEvent:
        error = Create(c, call, lane, kEventDisableTiming);
        break;
      case Builtin::kStreamOperation:
        break;
      case Builtin::kGetDevice:
        error = Store(c, lane, Argument(c, call, 0, lane), int32_t{0}) ? kSuccess : kInvalidValue;
        break;
      case Builtin::kGetDeviceAttribute:
        error = GetAttribute(c, call, lane);
        break;
      case Builtin::kDeviceMalloc:
        error = Malloc(c, call, lane);
        break;
      case Builtin::kDeviceFree:
        error = Free(c, call, lane);
        break;
      default:
        error = kNotSupported;
    }
    if (error != kSuccess) c.block->runtime_errors[c.warp->index * kLanes + lane] = error;
    const bool returns_pointer = !call.returns.empty() && call.returns[0].size == 8;
    if (!returns_pointer) {
      Return(c, call, lane, static_cast<uint64_t>(error));
    } else if (call.builtin != Builtin::kParameterBuffer) {
      Return(c, call, lane, 0);
    }
  });
}

}  // namespace detshare::soft::ptx
