#include "client_shim/work/graph/make_node.h"

#include <algorithm>
#include <cstring>

#include "client_shim/code/libraries.h"
#include "client_shim/objects/current_context.h"
#include "client_shim/work/graph/graph.h"
#include "client_shim/work/graph/graph_memory.h"
#include "client_shim/work/launch_hints.h"
#include "client_shim/work/memory_ops.h"
#include "client_shim/work/streams.h"
#include "proto/wire/stream_memory_op.h"

namespace detshare::shim {
namespace {

// Applies a single launch attribute to a launch.
CUresult ApplyAttribute(CUlaunchAttributeID id, const CUlaunchAttributeValue& value,
                        LaunchRequest* launch) {
  CUlaunchAttribute attribute{};
  attribute.id = id;
  attribute.value = value;
  CUlaunchConfig config{};
  config.attrs = &attribute;
  config.numAttrs = 1;
  return ParseAttributes(config, launch, nullptr);
}

CUresult CheckKernelNode(const KernelNode& node) {
  const Kernel* kernel =
      node.function != nullptr ? FindFunction(node.function) : FindKernel(node.kernel);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  KernelInstance* instance = kernel->instances[node.context.device].load(std::memory_order_acquire);
  if (instance == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return CheckShape(*instance, node.context.device, node.context.id, node.launch);
}

// Finds the kernel that `params` names, and where it shall run.
CUresult FindNodeKernel(const CUDA_KERNEL_NODE_PARAMS& params, NodeContext* context,
                        KernelInstance** instance) {
  Kernel* kernel = params.func != nullptr ? FindFunction(params.func) : FindKernel(params.kern);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  if (kernel->library->module) {
    *context = {HandleOf(*kernel->library->context), kernel->library->context_id,
                kernel->library->context->device};
  } else {
    result = FindNodeContext(params.func != nullptr ? nullptr : params.ctx, true, context);
  }
  return result != CUDA_SUCCESS ? result : InstanceOn(*kernel, context->device, instance);
}

void ReadDimensions(const CUDA_KERNEL_NODE_PARAMS& params, LaunchRequest* launch) {
  launch->grid[0] = params.gridDimX;
  launch->grid[1] = params.gridDimY;
  launch->grid[2] = params.gridDimZ;
  launch->block[0] = params.blockDimX;
  launch->block[1] = params.blockDimY;
  launch->block[2] = params.blockDimZ;
  launch->shared_bytes = params.sharedMemBytes;
}

CUmemorytype TypeOfPlace(const PitchedPlace& side) {
  if (side.in_array()) return CU_MEMORYTYPE_ARRAY;
  const Place& place = side.place;
  return place.host != 0 ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

}  // namespace

NodeContext ContextOf(const Stream& stream) {
  return {HandleOf(*stream.context), stream.context_id, stream.device};
}

CUresult FindNodeContext(CUcontext handle, bool optional, NodeContext* context) {
  Context* found;
  if (handle == nullptr) {
    if (!optional) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = CurrentContext(&found); result != CUDA_SUCCESS) return result;
  } else {
    found = FindContext(handle);
    if (found == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  }
  *context = {HandleOf(*found), found->id.load(std::memory_order_acquire), found->device};
  return context->id == 0 ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

// ---- kernels

KernelNode MakeKernelNode(const NodeContext& context, const KernelInstance& instance,
                          const LaunchRequest& launch, void** params, const void* buffer,
                          size_t buffer_bytes) {
  KernelNode node;
  node.context = context;
  node.id = instance.id;
  node.launch = launch;
  node.parameters.resize(instance.parameter_bytes);
  PackParameters(instance, params, buffer, buffer_bytes, node.parameters.data());
  for (const wire::KernelParameter& parameter : instance.parameters)
    node.offsets.push_back(parameter.offset);
  return node;
}

CUresult MakeKernelNode(const CUDA_KERNEL_NODE_PARAMS& params, KernelNode* node) {
  NodeContext context;
  KernelInstance* instance;
  CUresult result = FindNodeKernel(params, &context, &instance);
  if (result != CUDA_SUCCESS) return result;
  LaunchRequest launch;
  ReadDimensions(params, &launch);
  result = CheckShape(*instance, context.device, context.id, launch);
  // A kernel that needs a cluster size gets it later, by attribute.
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_CLUSTER_SIZE) return result;
  const void* buffer;
  size_t buffer_bytes;
  result = FindParameters(*instance, params.kernelParams, params.extra, &buffer, &buffer_bytes);
  if (result != CUDA_SUCCESS) return result;
  *node = MakeKernelNode(context, *instance, launch, params.kernelParams, buffer, buffer_bytes);
  NameKernel(params.func != nullptr ? params.func : reinterpret_cast<CUfunction>(params.kern),
             node);
  return CUDA_SUCCESS;
}

CUresult ReadKernelChange(const CUDA_KERNEL_NODE_PARAMS& params, const KernelNode& node,
                          KernelChange* change) {
  NodeContext context;
  KernelInstance* instance;
  CUresult result = FindNodeKernel(params, &context, &instance);
  if (result != CUDA_SUCCESS) return result;
  change->same_kernel = instance->id == node.id && context.id == node.context.id;
  if (!change->same_kernel) return CUDA_SUCCESS;
  change->launch = node.launch;
  ReadDimensions(params, &change->launch);
  result = CheckShape(*instance, context.device, context.id, change->launch);
  if (result != CUDA_SUCCESS) return result;
  const void* buffer;
  size_t buffer_bytes;
  result = FindParameters(*instance, params.kernelParams, params.extra, &buffer, &buffer_bytes);
  if (result != CUDA_SUCCESS) return result;
  change->parameters.resize(instance->parameter_bytes);
  PackParameters(*instance, params.kernelParams, buffer, buffer_bytes, change->parameters.data());
  return CUDA_SUCCESS;
}

void NameKernel(CUfunction function, KernelNode* node) {
  const auto kernel = reinterpret_cast<CUkernel>(function);
  const bool is_kernel = FindKernel(kernel) != nullptr;
  node->function = is_kernel ? nullptr : function;
  node->kernel = is_kernel ? kernel : nullptr;
}

CUresult KeepAttributes(const KernelNode& from, KernelNode* node) {
  LaunchRequest launch = from.launch;
  std::copy(std::begin(node->launch.grid), std::end(node->launch.grid), launch.grid);
  std::copy(std::begin(node->launch.block), std::end(node->launch.block), launch.block);
  launch.shared_bytes = node->launch.shared_bytes;
  node->launch = launch;
  node->hints = from.hints;
  node->attributes = from.attributes;
  return CheckKernelNode(*node);
}

CUresult SetKernelNodeAttribute(KernelNode& node, CUlaunchAttributeID id,
                                const CUlaunchAttributeValue& value) {
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      node.launch.flags &= ~wire::kLaunchCooperative;
      break;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      node.launch.flags &= ~wire::kLaunchHasCluster;
      break;
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      return CUDA_ERROR_INVALID_VALUE;  // nodes cannot have it
    default:
      break;
  }
  CUresult result = ApplyAttribute(id, value, &node.launch);
  if (result != CUDA_SUCCESS) return result;
  result = AddHint(node.context.device, id, value, &node.hints);
  if (result == CUDA_ERROR_NOT_FOUND) result = CUDA_SUCCESS;  // not a hint
  if (result == CUDA_SUCCESS) node.attributes[id] = value;
  return result;
}

CUresult GetKernelNodeAttribute(const KernelNode& node, CUlaunchAttributeID id,
                                CUlaunchAttributeValue* value) {
  CUlaunchAttributeValue got{};
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      got.cooperative = (node.launch.flags & wire::kLaunchCooperative) != 0;
      break;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      if ((node.launch.flags & wire::kLaunchHasCluster) != 0) {
        got.clusterDim.x = node.launch.cluster[0];
        got.clusterDim.y = node.launch.cluster[1];
        got.clusterDim.z = node.launch.cluster[2];
      }
      break;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      got.priority = node.launch.priority;
      break;
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
      GetHint(node.hints, id, &got);
      break;
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE: {
      const auto set = node.attributes.find(id);
      if (set != node.attributes.end()) got = set->second;
      break;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  *value = got;
  return CUDA_SUCCESS;
}

CUDA_KERNEL_NODE_PARAMS DescribeKernelNode(KernelNode& node) {
  node.pointers.clear();
  for (const uint32_t offset : node.offsets)
    node.pointers.push_back(node.parameters.data() + offset);
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = node.function;
  params.gridDimX = node.launch.grid[0];
  params.gridDimY = node.launch.grid[1];
  params.gridDimZ = node.launch.grid[2];
  params.blockDimX = node.launch.block[0];
  params.blockDimY = node.launch.block[1];
  params.blockDimZ = node.launch.block[2];
  params.sharedMemBytes = node.launch.shared_bytes;
  params.kernelParams = node.pointers.empty() ? nullptr : node.pointers.data();
  params.kern = node.kernel;
  params.ctx = node.context.handle;
  return params;
}

// ---- copies and fills

CopyNode MakeCopyNode(const NodeContext& context, const PitchedPlace& to, const PitchedPlace& from,
                      uint64_t width, uint64_t height, uint64_t depth) {
  CopyNode node;
  node.context = context;
  node.to = to;
  node.from = from;
  node.width = width;
  node.height = height;
  node.depth = depth;
  CUDA_MEMCPY3D& copy = node.description;
  copy.dstMemoryType = TypeOfPlace(to);
  if (to.in_array()) {
    copy.dstArray = to.array_handle;
    copy.dstXInBytes = to.array.x;
    copy.dstY = to.array.y;
    copy.dstZ = to.array.z;
  } else {
    copy.dstHost = reinterpret_cast<void*>(to.place.host);
    copy.dstDevice = to.place.gpu;
    copy.dstPitch = to.row_pitch;
    copy.dstHeight = to.row_pitch == 0 ? 0 : to.slice_pitch / to.row_pitch;
  }
  copy.srcMemoryType = TypeOfPlace(from);
  if (from.in_array()) {
    copy.srcArray = from.array_handle;
    copy.srcXInBytes = from.array.x;
    copy.srcY = from.array.y;
    copy.srcZ = from.array.z;
  } else {
    copy.srcHost = reinterpret_cast<const void*>(from.place.host);
    copy.srcDevice = from.place.gpu;
    copy.srcPitch = from.row_pitch;
    copy.srcHeight = from.row_pitch == 0 ? 0 : from.slice_pitch / from.row_pitch;
  }
  copy.WidthInBytes = width;
  copy.Height = height;
  copy.Depth = depth;
  return node;
}

CUresult MakeCopyNode(const CUDA_MEMCPY3D& copy, CUcontext handle, CopyNode* node) {
  NodeContext context;
  CUresult result = FindNodeContext(handle, true, &context);
  if (result != CUDA_SUCCESS) return result;
  if (copy.WidthInBytes == 0 || copy.Height == 0 || copy.Depth == 0)
    return CUDA_ERROR_INVALID_VALUE;
  node->context = context;
  node->description = copy;
  node->width = copy.WidthInBytes;
  node->height = copy.Height;
  node->depth = copy.Depth;
  return ResolveCopy(copy, context.device, &node->to, &node->from);
}

CUresult MakeCapturedFillNode(const CUDA_MEMSET_NODE_PARAMS& fill, CUcontext handle,
                              FillNode* node) {
  const CUresult result = FindNodeContext(handle, true, &node->context);
  if (result != CUDA_SUCCESS) return result;
  if (fill.elementSize != 1 && fill.elementSize != 2 && fill.elementSize != 4)
    return CUDA_ERROR_INVALID_VALUE;
  if (fill.width == 0 || fill.height == 0) return CUDA_ERROR_INVALID_VALUE;
  Place place;
  node->known = FindFillPlace(fill.dst, fill.pitch, fill.elementSize, fill.width, fill.height,
                              node->context.device, &place) == CUDA_SUCCESS;
  node->description = fill;
  node->address = node->known ? place.gpu : fill.dst;
  return CUDA_SUCCESS;
}

CUresult MakeFillNode(const CUDA_MEMSET_NODE_PARAMS& fill, CUcontext handle, FillNode* node) {
  const CUresult result = MakeCapturedFillNode(fill, handle, node);
  return result == CUDA_SUCCESS && !node->known ? CUDA_ERROR_INVALID_VALUE : result;
}

// ---- the rest

CUresult MakeNodeEvent(CUevent handle, NodeEvent* event) {
  Event* found = FindEvent(handle);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *event = {handle, found, found->id};
  return CUDA_SUCCESS;
}

CUresult MakeMemoryOpsNode(CUcontext handle, const CUstreamBatchMemOpParams* operations,
                           uint32_t count, uint32_t flags, MemoryOpsNode* node) {
  const CUresult result = FindNodeContext(handle, true, &node->context);
  if (result != CUDA_SUCCESS) return result;
  if (count > wire::kMaxStreamMemoryOps || operations == nullptr || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  node->operations.assign(operations, operations + count);
  node->flags = flags;
  std::vector<wire::StreamMemoryOp> translated(count);
  // Nodes came with the second generation of these operations.
  const CUresult checked = count == 0
                               ? CUDA_SUCCESS
                               : TranslateMemoryOps(node->context.device, operations, count,
                                                    MemoryOpVersion::kSecond, translated.data());
  if (checked != CUDA_SUCCESS) return checked;
  node->wire.assign(reinterpret_cast<const char*>(translated.data()),
                    translated.size() * sizeof(wire::StreamMemoryOp));
  return CUDA_SUCCESS;
}

CUresult MakeAllocNode(const CUDA_MEM_ALLOC_NODE_PARAMS& params, AllocNode* node) {
  if (params.poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  const CUmemLocation place = params.poolProps.location;
  const bool on_device = place.type == CU_MEM_LOCATION_TYPE_DEVICE;
  const bool known = place.id >= 0 && static_cast<size_t>(place.id) < session().devices().size();
  // Natively the place is looked at before the types of handles, which graphs cannot have.
  const bool shared = params.poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE;
  if (shared && on_device && !known) return CUDA_ERROR_INVALID_VALUE;
  if (shared && !on_device && place.type != CU_MEM_LOCATION_TYPE_HOST_NUMA)
    return CUDA_ERROR_INVALID_VALUE;
  constexpr int kLinuxTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC;
  if ((params.poolProps.handleTypes & ~kLinuxTypes) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (shared) return CUDA_ERROR_NOT_SUPPORTED;
  if (params.bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!on_device) return CUDA_ERROR_NOT_SUPPORTED;
  if (!known) return CUDA_ERROR_INVALID_DEVICE;
  const int device = place.id;
  if (params.accessDescs == nullptr && params.accessDescCount != 0) return CUDA_ERROR_INVALID_VALUE;
  // Memory lives in a context: the current one, or else the device's primary context.
  NodeContext context;
  CUresult result = FindNodeContext(nullptr, true, &context);
  if (result != CUDA_SUCCESS || context.device != device) {
    result =
        FindNodeContext(HandleOf(PrimaryContext(static_cast<uint16_t>(device))), false, &context);
  }
  if (result != CUDA_SUCCESS) return result;
  for (size_t i = 0; i < params.accessDescCount; ++i) {
    if (params.accessDescs[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        params.accessDescs[i].location.id != device) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  node->access.assign(params.accessDescs, params.accessDescs + params.accessDescCount);
  node->description = params;
  node->memory = std::make_shared<GraphMemory>(context, params.bytesize);
  return CUDA_SUCCESS;
}

}  // namespace detshare::shim
