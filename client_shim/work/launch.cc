#include "client_shim/work/launch.h"

#include <algorithm>
#include <cstring>

#include "client_shim/code/libraries.h"
#include "client_shim/objects/current_context.h"
#include "client_shim/transport/read_digest.h"
#include "client_shim/transport/session.h"
#include "client_shim/work/graph/capture.h"
#include "client_shim/work/graph/capture_work.h"
#include "client_shim/work/launch_hints.h"
#include "client_shim/work/streams.h"
#include "proto/wire/launch.h"
#include "proto/wire/library.h"
#include "proto/wire/occupancy.h"

namespace detshare::shim {
namespace {

int AttributeOf(const KernelInstance& kernel, CUfunction_attribute attribute) {
  return kernel.attributes[attribute].load(std::memory_order_relaxed);
}

// Adds the stream's attributes to a launch that does not have its own.
void AddStreamAttributes(Stream& stream, uint32_t* flags, int32_t* priority,
                         const wire::LaunchHints** hints, wire::LaunchHints* merged) {
  if (stream.priority_changed.load(std::memory_order_relaxed) &&
      (*flags & wire::kLaunchHasPriority) == 0) {
    *flags |= wire::kLaunchHasPriority;
    *priority = stream.priority.load(std::memory_order_relaxed);
  }
  const std::lock_guard lock(stream.lock);
  if (stream.hints.given == 0) return;
  *merged = *hints != nullptr ? Merge(**hints, stream.hints) : stream.hints;
  *hints = merged;
}

}  // namespace

CUresult ParseAttributes(const CUlaunchConfig& config, LaunchRequest* request,
                         LaunchEvents* events) {
  if (config.numAttrs != 0 && config.attrs == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (uint32_t i = 0; i < config.numAttrs; ++i) {
    const CUlaunchAttributeValue& value = config.attrs[i].value;
    // A program built with a newer CUDA may use a value that this enumeration does not have.
    uint32_t id;
    std::memcpy(&id, &config.attrs[i].id, sizeof(id));
    switch (id) {
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        if (value.cooperative != 0) request->flags |= wire::kLaunchCooperative;
        break;
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        request->cluster[0] = value.clusterDim.x;
        request->cluster[1] = value.clusterDim.y;
        request->cluster[2] = value.clusterDim.z;
        if ((value.clusterDim.x | value.clusterDim.y | value.clusterDim.z) != 0) {
          // A launch is refused here, before later attributes are read.
          if (events != nullptr &&
              (value.clusterDim.x == 0 || value.clusterDim.y == 0 || value.clusterDim.z == 0))
            return CUDA_ERROR_INVALID_CLUSTER_SIZE;
          request->flags |= wire::kLaunchHasCluster;
        }
        break;
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        if (value.programmaticStreamSerializationAllowed != 0)
          request->flags |= wire::kLaunchProgrammaticSerialization;
        break;
      case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        request->priority = value.priority;
        request->flags |= wire::kLaunchHasPriority;
        break;
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
      case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT: {
        // The event may come as late as the kernel's end. For a kernel without a trigger it comes
        // there.
        const bool programmatic = id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
        const CUevent handle =
            programmatic ? value.programmaticEvent.event : value.launchCompletionEvent.event;
        const int flags =
            programmatic ? value.programmaticEvent.flags : value.launchCompletionEvent.flags;
        if ((flags & ~CU_EVENT_RECORD_EXTERNAL) != 0) return CUDA_ERROR_INVALID_VALUE;
        Event* event = FindEvent(handle);
        if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        // Only a capture knows events of other graphs.
        if (flags != 0 && g_captures.load(std::memory_order_relaxed) == 0)
          return CUDA_ERROR_ILLEGAL_STATE;
        if ((event->flags & CU_EVENT_DISABLE_TIMING) == 0) return CUDA_ERROR_NOT_SUPPORTED;
        if (events == nullptr || events->count == 2) return CUDA_ERROR_INVALID_VALUE;
        CUgraphEdgeData& edge = events->edges[events->count];
        if (!programmatic) {
          edge.from_port = CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER;
        } else {
          edge.from_port = value.programmaticEvent.triggerAtBlockStart != 0
                               ? CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER
                               : CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
          edge.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
        }
        events->events[events->count++] = event;
        break;
      }
      case CU_LAUNCH_ATTRIBUTE_IGNORE:
        break;
      case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:  // of streams; a launch waits for nothing
        return CUDA_ERROR_INVALID_VALUE;
      case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
        return CUDA_ERROR_NOT_SUPPORTED;
      default: {
        uint16_t device = 0;
        if (DependsOnDevice(id)) {
          Context* context;
          if (const CUresult current = CurrentContext(&context); current != CUDA_SUCCESS)
            return current;
          device = context->device;
        }
        wire::LaunchHints ignored{};
        const CUresult result =
            AddHint(device, id, value, events != nullptr ? &events->hints : &ignored);
        if (result == CUDA_ERROR_NOT_FOUND) return CUDA_ERROR_INVALID_VALUE;
        if (result != CUDA_SUCCESS) return result;
        // As for clusters.
        const auto& preferred = value.preferredClusterDim;
        if (id == CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION && events != nullptr &&
            (preferred.x | preferred.y | preferred.z) != 0 &&
            (preferred.x == 0 || preferred.y == 0 || preferred.z == 0))
          return CUDA_ERROR_INVALID_CLUSTER_SIZE;
      }
    }
  }
  return CUDA_SUCCESS;
}

CUresult CheckPreferredCluster(const LaunchRequest& request, const LaunchEvents& events) {
  if ((events.hints.given & wire::kHintPreferredCluster) == 0) return CUDA_SUCCESS;
  if ((request.flags & wire::kLaunchHasCluster) == 0) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  for (int i = 0; i < 3; ++i) {
    const uint32_t preferred = events.hints.preferred_cluster[i];
    if (preferred == 0 || request.cluster[i] == 0 || preferred % request.cluster[i] != 0)
      return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  }
  return CUDA_SUCCESS;
}

bool GridAllowed(uint16_t device_index, const LaunchRequest& request) {
  static constexpr CUdevice_attribute kLimits[] = {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,
                                                   CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
                                                   CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z};
  const DeviceInfo& device = session().device(device_index);
  for (int i = 0; i < 3; ++i) {
    if (request.grid[i] == 0 ||
        request.grid[i] > static_cast<uint32_t>(device.attribute(kLimits[i]))) {
      return false;
    }
  }
  return true;
}

bool BlockAllowed(uint16_t device_index, const uint32_t (&block)[3]) {
  static constexpr CUdevice_attribute kLimits[] = {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
                                                   CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
                                                   CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z};
  const DeviceInfo& device = session().device(device_index);
  uint64_t threads = 1;
  for (int i = 0; i < 3; ++i) {
    if (block[i] == 0 || block[i] > static_cast<uint32_t>(device.attribute(kLimits[i])))
      return false;
    threads *= block[i];
  }
  return threads <=
         static_cast<uint64_t>(device.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
}

CUresult CheckCluster(const KernelInstance& kernel, const LaunchRequest& request,
                      uint64_t largest) {
  const uint64_t required[] = {
      static_cast<uint64_t>(
          std::max(0, AttributeOf(kernel, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH))),
      static_cast<uint64_t>(
          std::max(0, AttributeOf(kernel, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT))),
      static_cast<uint64_t>(
          std::max(0, AttributeOf(kernel, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH)))};
  // All zero: the launch gives no cluster size.
  const bool given = (request.flags & wire::kLaunchHasCluster) != 0;
  const bool compiled = required[0] != 0;
  if (!given && !compiled) {
    return AttributeOf(kernel, CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET) != 0
               ? CUDA_ERROR_INVALID_CLUSTER_SIZE
               : CUDA_SUCCESS;
  }
  uint64_t size = 1;
  for (int i = 0; i < 3; ++i) {
    const uint64_t dimension = given ? request.cluster[i] : std::max<uint64_t>(required[i], 1);
    if (dimension == 0 || request.grid[i] % dimension != 0) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    if (given && compiled && dimension != std::max<uint64_t>(required[i], 1))
      return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    size *= dimension;
  }
  const bool large = AttributeOf(kernel, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) != 0;
  return size > (large ? largest : 8) ? CUDA_ERROR_INVALID_CLUSTER_SIZE : CUDA_SUCCESS;
}

CUresult CheckShape(KernelInstance& kernel, uint16_t device_index, ContextId context,
                    const LaunchRequest& request) {
  if (!GridAllowed(device_index, request) || !BlockAllowed(device_index, request.block))
    return CUDA_ERROR_INVALID_VALUE;
  const DeviceInfo& device = session().device(device_index);
  const uint64_t threads = uint64_t{request.block[0]} * request.block[1] * request.block[2];
  if (threads > static_cast<uint64_t>(AttributeOf(kernel, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)))
    return CUDA_ERROR_INVALID_VALUE;
  // Natively the size of shared memory is checked last.
  if (const CUresult result = CheckCluster(kernel, request); result != CUDA_SUCCESS) return result;
  if ((request.flags & wire::kLaunchCooperative) != 0) {
    int blocks;
    const CUresult result = MaxActiveBlocks(
        kernel, device_index, context, static_cast<int>(threads), request.shared_bytes, 0, &blocks);
    if (result != CUDA_SUCCESS) return result;
    const uint64_t room =
        static_cast<uint64_t>(blocks) * device.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    // 64 bits are enough: the limits were checked, and 2^31 * 2^16 * 2^16 fits.
    if (uint64_t{request.grid[0]} * request.grid[1] * request.grid[2] > room)
      return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  }
  return request.shared_bytes > static_cast<uint32_t>(AttributeOf(
                                    kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES))
             ? CUDA_ERROR_INVALID_VALUE
             : CUDA_SUCCESS;
}

CUresult FindParameters(const KernelInstance& kernel, void** params, void** extra,
                        const void** buffer, size_t* buffer_bytes) {
  *buffer = nullptr;
  *buffer_bytes = 0;
  if (extra == nullptr) {
    return params == nullptr && !kernel.parameters.empty() ? CUDA_ERROR_INVALID_VALUE
                                                           : CUDA_SUCCESS;
  }
  if (params != nullptr) return CUDA_ERROR_INVALID_VALUE;
  const size_t* size = nullptr;
  for (int i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
    if (i > 8) return CUDA_ERROR_INVALID_VALUE;
    if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      *buffer = extra[i + 1];
    } else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      size = static_cast<const size_t*>(extra[i + 1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  // As in driver 580: a longer buffer is an error, and a shorter one is padded with zeros.
  if (size != nullptr && *size > kernel.parameter_bytes) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  if (kernel.parameter_bytes == 0) return CUDA_SUCCESS;
  if (*buffer == nullptr || size == nullptr || *size == 0) return CUDA_ERROR_INVALID_VALUE;
  *buffer_bytes = *size;
  return CUDA_SUCCESS;
}

void PackParameters(const KernelInstance& kernel, void** params, const void* buffer,
                    size_t buffer_bytes, std::byte* to) {
  if (buffer != nullptr) {
    const size_t bytes = std::min<size_t>(buffer_bytes, kernel.parameter_bytes);
    memcpy(to, buffer, bytes);
    memset(to + bytes, 0, kernel.parameter_bytes - bytes);
    return;
  }
  uint32_t written = 0;
  for (size_t i = 0; i < kernel.parameters.size(); ++i) {
    const wire::KernelParameter& parameter = kernel.parameters[i];
    // Padding between parameters is zero, so that equal launches have equal bytes.
    if (parameter.offset > written) memset(to + written, 0, parameter.offset - written);
    memcpy(to + parameter.offset, params[i], parameter.bytes);
    written = std::max(written, parameter.offset + parameter.bytes);
  }
  if (written < kernel.parameter_bytes) memset(to + written, 0, kernel.parameter_bytes - written);
}

CUresult Launch(CUfunction function, CUstream stream_handle, const LaunchRequest& request,
                const LaunchEvents* events, void** params, void** extra) {
  // A launch into a stream of the program needs no current context.
  const bool default_stream = stream_handle == nullptr || stream_handle == CU_STREAM_LEGACY ||
                              stream_handle == CU_STREAM_PER_THREAD;
  Context* context;
  CUresult result = ContextForWork(&context);
  if (!default_stream && result == CUDA_ERROR_INVALID_CONTEXT) result = CUDA_SUCCESS;
  if (result != CUDA_SUCCESS) [[unlikely]]
    return result;
  Kernel* kernel = FindFunction(function);
  if (kernel == nullptr) [[unlikely]]
    return CUDA_ERROR_INVALID_HANDLE;
  Stream* stream;
  result = ResolveStream(stream_handle, &stream);
  if (result != CUDA_SUCCESS) [[unlikely]]
    return result;
  // A module's function runs in the module's context, and a library's function in every context.
  // The current context does not matter.
  if (kernel->library->module && kernel->library->context_id != stream->context_id) [[unlikely]]
    return CUDA_ERROR_INVALID_HANDLE;
  KernelInstance* instance;
  result = InstanceOn(*kernel, stream->device, &instance);
  if (result != CUDA_SUCCESS) [[unlikely]]
    return result;
  result = CheckShape(*instance, stream->device, stream->context_id, request);
  if (result != CUDA_SUCCESS) [[unlikely]]
    return result;
  const void* buffer;
  size_t buffer_bytes;
  result = FindParameters(*instance, params, extra, &buffer, &buffer_bytes);
  if (result != CUDA_SUCCESS) [[unlikely]]
    return result;

  if (Capturing(*stream)) [[unlikely]] {
    return CaptureLaunch(*stream, function, *instance, request, events, params, buffer,
                         buffer_bytes);
  }

  uint32_t flags = request.flags;
  int32_t priority = request.priority;
  const wire::LaunchHints* hints = nullptr;
  wire::LaunchHints merged;  // used if the stream has hints
  if (events != nullptr && events->hints.given != 0) [[unlikely]]
    hints = &events->hints;
  if (stream->has_attributes.load(std::memory_order_acquire)) [[unlikely]]
    AddStreamAttributes(*stream, &flags, &priority, &hints, &merged);
  const uint32_t hints_place = (instance->parameter_bytes + 7) / 8 * 8;
  uint32_t payload_bytes = instance->parameter_bytes;
  if (hints != nullptr) [[unlikely]] {
    flags |= wire::kLaunchHasHints;
    payload_bytes = hints_place + static_cast<uint32_t>(sizeof(*hints));
  }

  using Args = wire::cuLaunchKernelEx;
  RingWriter& ring = session().ring();
  const RingWriter::Record record = ring.Reserve(
      {static_cast<uint16_t>(Op::cuLaunchKernelEx), stream->device, stream->context_id, kNoReply},
      sizeof(Args), payload_bytes);
  if (!record) [[unlikely]]
    return session().Lost();
  Args args = LaunchArguments(stream->id, instance->id, request);
  args.flags = flags;
  args.priority = priority;
  memcpy(record.args, &args, sizeof(args));
  PackParameters(*instance, params, buffer, buffer_bytes, record.payload);
  if (hints != nullptr) [[unlikely]]
    memcpy(record.payload + hints_place, hints, sizeof(*hints));
  ring.Commit(record);
  MarkWork(*stream, record.position);
  if (events != nullptr) {
    for (int i = 0; i < events->count; ++i) {
      result = RecordEvent(*events->events[i], *stream);
      if (result != CUDA_SUCCESS) return result;
    }
  }
  if (session().launches_watched()) [[unlikely]] {
    if (g_read_digest != nullptr)
      g_read_digest->NoteLaunch(ReadDigest::StreamPlace(stream->unique_id), kernel->name);
    if (session().launch_blocking()) return SynchronizeStream(*stream);
  }
  return CUDA_SUCCESS;
}

CUresult MaxActiveBlocks(KernelInstance& kernel, uint16_t device, ContextId context, int block_size,
                         uint64_t shared_bytes, uint32_t flags, int* blocks) {
  const std::array<uint64_t, 8> key{1, static_cast<uint64_t>(block_size), shared_bytes, flags};
  const std::lock_guard lock(kernel.mutex);
  const auto known = kernel.occupancy.find(key);
  if (known != kernel.occupancy.end()) {
    *blocks = static_cast<int>(known->second);
    return CUDA_SUCCESS;
  }
  wire::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags_Reply reply{};
  const CUresult result =
      session().Call(Op::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, device, context,
                     wire::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags{
                         shared_bytes, kernel.id, block_size, flags, 0},
                     &reply);
  if (result != CUDA_SUCCESS) return result;
  *blocks = reply.blocks;
  kernel.occupancy[key] = reply.blocks;
  return CUDA_SUCCESS;
}

}  // namespace detshare::shim
