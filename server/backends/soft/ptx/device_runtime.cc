#include "server/backends/soft/ptx/device_runtime.h"

#include <algorithm>

#include "server/backends/soft/ptx/builtins.h"
#include "server/backends/soft/ptx/memory_access.h"

namespace detshare::soft::ptx {
namespace {

// cudaError_t
constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;
constexpr int kMemoryAllocation = 2;
constexpr int kInvalidPitchValue = 12;
constexpr int kInvalidMemcpyDirection = 21;
constexpr int kInvalidDeviceFunction = 98;
constexpr int kNotSupported = 801;

constexpr uint32_t kStreamNonBlocking = 1;   // the only flags of a device's stream
constexpr uint32_t kEventDisableTiming = 2;  // and of its event
constexpr uint64_t kTailLaunchStream = 3;    // cudaStreamTailLaunch
constexpr uint64_t kStreamOrEvent = 0x1000;  // the handle of every stream and event

constexpr std::string_view kTransferName = "__detshare_transfer";  // the entry of kTransferKernel

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
    {"MemcpyAsync", Builtin::kMemcpyAsync},
    {"Memcpy2DAsync", Builtin::kMemcpy2DAsync},
    {"Memcpy3DAsync", Builtin::kMemcpy3DAsync},
    {"MemsetAsync", Builtin::kMemsetAsync},
    {"Memset2DAsync", Builtin::kMemset2DAsync},
    {"Memset3DAsync", Builtin::kMemset3DAsync},
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

// An argument that is a structure; zeros if the call has another one in its place.
template <class T>
T StructureArgument(const Context& c, const CallSite& call, size_t index, uint32_t lane) {
  T value{};
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
  header.grid = StructureArgument<std::array<uint32_t, 3>>(c, call, 1, lane);
  header.block = StructureArgument<std::array<uint32_t, 3>>(c, call, 2, lane);
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

// Rows of bytes in memory: `height` of them lie `pitch` bytes apart, and `depth` such slices lie
// `slice` bytes apart.
struct Rows {
  uint64_t address = 0, pitch = 0, slice = 0;
};
struct Extent {
  uint64_t width = 0, height = 1, depth = 1;  // the width is in bytes
};

// cudaPos, cudaPitchedPtr and cudaMemcpy3DParms
struct Position {
  uint64_t x, y, z;
};
struct PitchedPointer {
  uint64_t address, pitch, width, height;
  Rows rows(const Position& from) const {
    const uint64_t slice = pitch * height;
    return {address + from.x + from.y * pitch + from.z * slice, pitch, slice};
  }
};
struct Copy3D {
  uint64_t from_array;
  Position from_position;
  PitchedPointer from;
  uint64_t to_array;
  Position to_position;
  PitchedPointer to;
  Extent extent;
  uint32_t kind;
};

// The parameters of kTransferKernel.
struct TransferParameters {
  Rows to, from;
  Extent extent;
  uint32_t fills = 0;  // with `value`, instead of copying
  uint32_t value = 0;
};

// Whether the rows do not go beyond the last address there is.
bool EndsInMemory(const Rows& rows, const Extent& extent) {
  uint64_t end = 0, slices = 0, count = 0;
  return !__builtin_mul_overflow(extent.height - 1, rows.pitch, &end) &&
         !__builtin_mul_overflow(extent.depth - 1, rows.slice, &slices) &&
         !__builtin_add_overflow(end, slices, &end) &&
         !__builtin_add_overflow(end, extent.width, &end) &&
         !__builtin_add_overflow(end, rows.address, &end) &&
         !__builtin_mul_overflow(extent.height, extent.depth, &count);
}

int LaunchTransfer(Context& c, const TransferParameters& transfer, uint64_t stream) {
  constexpr uint64_t kThreads = 256, kMaxRows = 4096, kMaxParts = 64;
  const Extent& extent = transfer.extent;
  if (transfer.to.pitch < extent.width || transfer.from.pitch < extent.width)
    return kInvalidPitchValue;
  // Addresses of shared and local memory mean nothing to another kernel.
  if (transfer.to.address >= kSharedWindow || transfer.from.address >= kSharedWindow)
    return kInvalidValue;
  if (extent.width == 0 || extent.height == 0 || extent.depth == 0) return kSuccess;
  if (!EndsInMemory(transfer.to, extent) || !EndsInMemory(transfer.from, extent))
    return kInvalidValue;
  const ModuleCode& module = *c.unit->launch->module;
  const auto found = module.kernel_index.find(std::string(kTransferName));
  DeviceRuntime* const runtime = c.unit->launch->services.runtime;
  if (found == module.kernel_index.end() || runtime == nullptr) return kNotSupported;
  ChildLaunch launch;
  launch.kernel = static_cast<uint32_t>(found->second);
  const uint64_t parts = extent.width / (16 * kThreads) + 1;
  launch.grid = {static_cast<uint32_t>(std::min(extent.height * extent.depth, kMaxRows)),
                 static_cast<uint32_t>(std::min(parts, kMaxParts)), 1};
  launch.block = {kThreads, 1, 1};
  launch.tail = stream == kTailLaunchStream;
  const auto* bytes = reinterpret_cast<const uint8_t*>(&transfer);
  launch.params.assign(bytes, bytes + sizeof(transfer));
  return runtime->Launch(std::move(launch));
}

int Copy(Context& c, const Rows& to, const Rows& from, const Extent& extent, uint64_t kind,
         uint64_t stream) {
  constexpr uint64_t kMaxKind = 4;  // cudaMemcpyDefault
  if (kind > kMaxKind) return kInvalidMemcpyDirection;
  return LaunchTransfer(c, {.to = to, .from = from, .extent = extent}, stream);
}

int Fill(Context& c, const Rows& to, uint64_t value, const Extent& extent, uint64_t stream) {
  return LaunchTransfer(c,
                        {.to = to,
                         .from = {.pitch = extent.width},
                         .extent = extent,
                         .fills = 1,
                         .value = static_cast<uint32_t>(value)},
                        stream);
}

int Transfer(Context& c, const CallSite& call, uint32_t lane) {
  const auto argument = [&](size_t index) { return Argument(c, call, index, lane); };
  const uint64_t first = argument(0), second = argument(1), third = argument(2);
  switch (call.builtin) {
    case Builtin::kMemcpyAsync:
      return Copy(c, {first, third}, {second, third}, {third}, argument(3), argument(4));
    case Builtin::kMemcpy2DAsync:
      return Copy(c, {first, second}, {third, argument(3)}, {argument(4), argument(5)}, argument(6),
                  argument(7));
    case Builtin::kMemcpy3DAsync: {
      Copy3D copy;
      if (!ReadGeneric(c, lane, first, sizeof(copy), &copy)) return kInvalidValue;
      if (copy.from_array != 0 || copy.to_array != 0) return kNotSupported;
      return Copy(c, copy.to.rows(copy.to_position), copy.from.rows(copy.from_position),
                  copy.extent, copy.kind, second);
    }
    case Builtin::kMemsetAsync:
      return Fill(c, {first, third}, second, {third}, argument(3));
    case Builtin::kMemset2DAsync:
      return Fill(c, {first, second}, third, {argument(3), argument(4)}, argument(5));
    default:  // kMemset3DAsync
      return Fill(c, StructureArgument<PitchedPointer>(c, call, 0, lane).rows({}), second,
                  StructureArgument<Extent>(c, call, 2, lane), argument(3));
  }
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

bool IsTransfer(Builtin builtin) {
  return builtin >= Builtin::kMemcpyAsync && builtin <= Builtin::kMemset3DAsync;
}

bool LaunchesKernel(Builtin builtin) {
  return builtin == Builtin::kLaunchDevice || IsTransfer(builtin);
}

// A grid's x counts rows and its y parts of a row.
const std::string_view kTransferKernel = R"(
.version 6.0
.target sm_30
.address_size 64
.visible .entry __detshare_transfer(
  .param .u64 to, .param .u64 to_pitch, .param .u64 to_slice,
  .param .u64 from, .param .u64 from_pitch, .param .u64 from_slice,
  .param .u64 width, .param .u64 height, .param .u64 depth, .param .u32 fills, .param .u32 value)
{
  .reg .pred %p, %fills;
  .reg .b32 %value, %r<5>;
  .reg .b64 %row, %rows, %row_step, %x, %x_begin, %x_step, %width, %height, %y, %z;
  .reg .b64 %to, %to_row, %from, %from_row, %pitch, %slice;
  ld.param.u64 %width, [width];
  ld.param.u64 %height, [height];
  ld.param.u64 %z, [depth];
  ld.param.u32 %r0, [fills];
  setp.ne.u32 %fills, %r0, 0;
  ld.param.u32 %value, [value];
  mul.lo.u64 %rows, %height, %z;
  mov.u32 %r0, %ctaid.x;
  cvt.u64.u32 %row, %r0;
  mov.u32 %r0, %nctaid.x;
  cvt.u64.u32 %row_step, %r0;
  mov.u32 %r0, %ctaid.y;
  mov.u32 %r1, %ntid.x;
  mov.u32 %r2, %tid.x;
  mad.lo.u32 %r0, %r0, %r1, %r2;
  cvt.u64.u32 %x_begin, %r0;
  mov.u32 %r0, %nctaid.y;
  mul.wide.u32 %x_step, %r0, %r1;
ROW:
  setp.ge.u64 %p, %row, %rows;
  @%p ret;
  div.u64 %z, %row, %height;
  rem.u64 %y, %row, %height;
  ld.param.u64 %to_row, [to];
  ld.param.u64 %pitch, [to_pitch];
  ld.param.u64 %slice, [to_slice];
  mad.lo.u64 %to_row, %y, %pitch, %to_row;
  mad.lo.u64 %to_row, %z, %slice, %to_row;
  ld.param.u64 %from_row, [from];
  ld.param.u64 %pitch, [from_pitch];
  ld.param.u64 %slice, [from_slice];
  mad.lo.u64 %from_row, %y, %pitch, %from_row;
  mad.lo.u64 %from_row, %z, %slice, %from_row;
  mov.u64 %x, %x_begin;
BYTE:
  setp.ge.u64 %p, %x, %width;
  @%p bra NEXT;
  add.u64 %from, %from_row, %x;
  @!%fills ld.global.u8 %value, [%from];
  add.u64 %to, %to_row, %x;
  st.global.u8 [%to], %value;
  add.u64 %x, %x, %x_step;
  bra BYTE;
NEXT:
  add.u64 %row, %row, %row_step;
  bra ROW;
}
)";

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
      case Builtin::kMemcpyAsync:
      case Builtin::kMemcpy2DAsync:
      case Builtin::kMemcpy3DAsync:
      case Builtin::kMemsetAsync:
      case Builtin::kMemset2DAsync:
      case Builtin::kMemset3DAsync:
        error = Transfer(c, call, lane);
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
