#include "client_shim/work/graph/executable.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "client_shim/code/libraries.h"
#include "client_shim/objects/current_context.h"
#include "client_shim/objects/waits.h"
#include "client_shim/transport/read_digest.h"
#include "client_shim/transport/session.h"
#include "client_shim/work/clean_up.h"
#include "client_shim/work/graph/exec_resources.h"
#include "client_shim/work/graph/flatten.h"
#include "client_shim/work/graph/graph_memory.h"
#include "client_shim/work/graph/host_copy.h"
#include "client_shim/work/graph/make_node.h"
#include "client_shim/work/graph/update.h"
#include "client_shim/work/host_functions.h"
#include "client_shim/work/streams.h"
#include "proto/wire/context.h"
#include "proto/wire/graph.h"
#include "proto/wire/stream.h"

namespace detshare::shim {

struct GraphExec {
  // Launches read these fields.
  std::atomic<bool> plain{false};  // a launch is one record
  GraphId id = 0;
  uint32_t index = 0;
  uint16_t device = 0;
  Context* context = nullptr;
  ContextId context_id = 0;
  uint64_t flags = 0;
  std::mutex mutex;     // guards the rest; taken before GraphMutex()
  uint64_t source = 0;  // handle of the graph that it was made of
  std::unique_ptr<Graph> snapshot;
  // The snapshot's nodes, by the handles of their originals.
  std::unordered_map<uint64_t, GraphNode*> nodes;
  Flattened flat;
  std::shared_ptr<ExecResources> resources;
  // The memory that a launch allocates for later work, and the memory that it frees.
  std::vector<std::shared_ptr<GraphMemory>> allocates, frees;
  // The memory that a launch allocates and frees, until the first launch.
  std::vector<std::shared_ptr<GraphMemory>> temporary;
  std::vector<uint64_t> values;  // of the launch that is being prepared
  // For digests: the nodes that copy to pinned memory, and the last kernel's name.
  std::vector<const GraphNode*> reads;
  const char* last_kernel = nullptr;
  KernelChange change;  // this and the next field belong to the update that is being made
  std::string bytes;
};

namespace {

constexpr uint64_t kKnownFlags =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
    CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

HandleTable<GraphExec>& table() {
  static auto* const execs = new HandleTable<GraphExec>;
  return *execs;
}

void EndSnapshot(std::unique_ptr<Graph> snapshot) {
  const std::lock_guard lock(GraphMutex());
  snapshot.reset();
}

template <typename Visit>
void ForEachNode(const Graph& graph, const Visit& visit) {
  for (const auto& node : graph.nodes) {
    visit(*node);
    if (const auto* child = std::get_if<ChildNode>(&node->body)) ForEachNode(*child->graph, visit);
    if (const auto* conditional = std::get_if<ConditionalNode>(&node->body)) {
      for (const auto& body : conditional->bodies) ForEachNode(*body, visit);
    }
  }
}

// Only nodes of these types can be asked about it, too.
bool CanBeDisabled(const GraphNode& node) {
  const CUgraphNodeType type = TypeOf(node.body);
  return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMCPY ||
         type == CU_GRAPH_NODE_TYPE_MEMSET;
}

CUgraphNode OriginalOf(const GraphNode* node) {
  return node == nullptr ? nullptr : reinterpret_cast<CUgraphNode>(node->original);
}

// Finds the device and context of a graph's work. There is one device.
CUresult FindPlaceOfWork(const Graph& graph, GraphExec& exec, const GraphNode** culprit) {
  CUcontext handle = nullptr;
  CUresult result = CUDA_SUCCESS;
  ForEachNode(graph, [&](const GraphNode& node) {
    const NodeContext* context = ContextOf(node.body);
    if (context == nullptr || result != CUDA_SUCCESS) return;
    if (handle == nullptr) {
      handle = context->handle;
      exec.context_id = context->id;
      exec.device = context->device;
    } else if (context->device != exec.device) {
      result = CUDA_ERROR_NOT_SUPPORTED;
      *culprit = &node;
    }
  });
  if (result != CUDA_SUCCESS) return result;
  if (handle == nullptr) {
    result = CurrentContext(&exec.context);
    if (result != CUDA_SUCCESS) return result;
    exec.context_id = exec.context->id.load(std::memory_order_acquire);
    exec.device = exec.context->device;
    return CUDA_SUCCESS;
  }
  exec.context = FindContext(handle);
  if (exec.context == nullptr ||
      exec.context->id.load(std::memory_order_acquire) != exec.context_id) {
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  return CUDA_SUCCESS;
}

bool ConditionalsUsed(const Graph& graph) {
  for (const auto& made : graph.conditionals) {
    bool used = false;
    ForEachNode(graph, [&](const GraphNode& node) {
      const auto* conditional = std::get_if<ConditionalNode>(&node.body);
      used = used || (conditional != nullptr && conditional->condition == made->id);
    });
    if (!used) return false;
  }
  return true;
}

HostBox WrittenBy(const CopyNode& copy) {
  return {reinterpret_cast<const std::byte*>(copy.to.place.host),
          copy.width,
          copy.height,
          copy.depth,
          copy.to.row_pitch,
          copy.to.slice_pitch};
}

// Collects what digests need of the snapshot.
void FindReads(GraphExec& exec) {
  exec.reads.clear();
  exec.last_kernel = "(graph without kernels)";
  ForEachNode(*exec.snapshot, [&](GraphNode& node) {
    const auto* copy = std::get_if<CopyNode>(&node.body);
    if (copy != nullptr && copy->to.on_host() && !copy->to.pageable() && !copy->from.pageable())
      exec.reads.push_back(&node);
    if (const auto* kernel = std::get_if<KernelNode>(&node.body)) {
      const Kernel* named =
          kernel->kernel != nullptr ? FindKernel(kernel->kernel) : FindFunction(kernel->function);
      exec.last_kernel = named != nullptr ? named->name : "(kernel of a graph)";
    }
  });
}

// Called when one of the fields that it reads has changed.
void UpdatePlain(GraphExec& exec) {
  exec.plain.store(exec.flat.values.empty() && exec.allocates.empty() && exec.frees.empty() &&
                       exec.temporary.empty() && g_read_digest == nullptr,
                   std::memory_order_release);
}

// Collects everything about the snapshot that launches need.
void PrepareLaunches(GraphExec& exec) {
  exec.nodes.clear();
  exec.allocates.clear();
  exec.frees.clear();
  exec.temporary.clear();
  std::vector<std::shared_ptr<GraphMemory>> allocated, freed;
  ForEachNode(*exec.snapshot, [&](GraphNode& node) {
    exec.nodes[node.original] = &node;
    if (const auto* alloc = std::get_if<AllocNode>(&node.body)) allocated.push_back(alloc->memory);
    if (const auto* free = std::get_if<FreeNode>(&node.body)) freed.push_back(free->memory);
  });
  const auto in = [](const auto& memory, const auto& list) {
    return std::find(list.begin(), list.end(), memory) != list.end();
  };
  for (const auto& memory : allocated) {
    (in(memory, freed) ? exec.temporary : exec.allocates).push_back(memory);
  }
  for (const auto& memory : freed) {
    if (!in(memory, allocated)) exec.frees.push_back(memory);
  }
  exec.values.resize(exec.flat.values.size());
  if (g_read_digest != nullptr) FindReads(exec);
  UpdatePlain(exec);
}

// Calls `then` on the thread of clean-up when all earlier work of the context is complete, and with
// it the host functions and host copies of that work.
void AfterWork(const GraphExec& exec, std::function<void()> then) {
  const OwnedFence fence = session().fences().Take();
  if (fence.index == kNoFence) {
    SynchronizeContext(*exec.context);
    CleanUpLater(std::move(then));
    return;
  }
  HostTask task;
  if (session().Submit(
          Op::cuCtxSynchronize, exec.device, exec.context_id,
          wire::cuCtxSynchronize{exec.context_id, 0, {fence.value + 1, fence.index, 0}}) ==
      CUDA_SUCCESS) {
    task.reached = fence.index;
    task.reached_value = fence.value + 1;
  }
  // On the thread of host functions, so that it is not in the middle of a host copy when the fence
  // was forced.
  task.run = [then = std::move(then), fence](CUresult) mutable {
    session().fences().Give(fence.index, fence.value + 1);
    CleanUpLater(std::move(then));
  };
  EnqueueHostTask(std::move(task));
}

// Counts one executable graph of the program's graph less, if that graph still exists.
void ForgetExecutable(CUgraph source) {
  const std::lock_guard lock(GraphMutex());
  Graph* graph = FindGraph(source);
  if (graph != nullptr) --graph->executables;
}

// Gives back everything that the executable graph has in this process.
void Release(GraphExec& exec) {
  ForgetExecutable(reinterpret_cast<CUgraph>(exec.source));
  const std::shared_ptr<ExecResources> resources = std::move(exec.resources);
  const std::shared_ptr<Graph> snapshot(
      exec.snapshot.release(), [](Graph* graph) { EndSnapshot(std::unique_ptr<Graph>(graph)); });
  if (resources != nullptr) resources->GiveFences();
  const bool alive = exec.context != nullptr &&
                     exec.context->id.load(std::memory_order_acquire) == exec.context_id;
  const bool staging = resources != nullptr && resources->has_staging();
  // Resources that launches may still use are freed when these launches are complete.
  if (alive && (staging || !snapshot->references.empty())) {
    AfterWork(exec, [resources, snapshot] { resources->FreeStaging(); });
  } else if (staging) {
    resources->FreeStaging();
  }
  exec.nodes.clear();
  exec.flat = {};
  exec.allocates.clear();
  exec.frees.clear();
  exec.temporary.clear();
}

// Finds the node of the program's graph that a reply refuses.
template <typename Reply>
const GraphNode* RefusedNode(const Flattened& flat, const std::string& bytes, Reply* reply) {
  if (bytes.size() < sizeof(*reply)) return nullptr;
  std::memcpy(reply, bytes.data(), sizeof(*reply));
  if (reply->error_graph >= flat.graphs.size()) return nullptr;
  const FlatGraph& graph = flat.graphs[reply->error_graph];
  return reply->error_node < graph.nodes.size() ? graph.nodes[reply->error_node].source : nullptr;
}

CUresult SendInstantiate(const GraphExec& exec, const GraphNode** culprit) {
  const std::string payload = Payload(exec.flat);
  const wire::cuGraphInstantiateWithParams args{
      exec.id, exec.context_id,
      static_cast<uint32_t>(exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY),
      static_cast<uint32_t>(exec.flat.graphs.size())};
  const ConstBuffer piece{payload.data(), payload.size()};
  std::string reply;
  const CUresult result =
      session().CallControl(Op::cuGraphInstantiateWithParams, exec.device, exec.context_id, &args,
                            sizeof(args), {&piece, 1}, &reply);
  wire::cuGraphInstantiateWithParams_Reply refused{};
  if (result != CUDA_SUCCESS) *culprit = RefusedNode(exec.flat, reply, &refused);
  return result;
}

// Makes the executable graph of its snapshot.
CUresult Build(GraphExec& exec, const GraphNode** culprit, CUgraphInstantiateResult* why) {
  CUresult result = FindPlaceOfWork(*exec.snapshot, exec, culprit);
  if (result != CUDA_SUCCESS) return result;
  exec.resources = std::make_shared<ExecResources>(*exec.context);
  result = Flatten(*exec.snapshot, *exec.resources, &exec.flat, culprit);
  if (result == CUDA_ERROR_INVALID_VALUE) *why = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
  if (result != CUDA_SUCCESS) return result;
  result = SendInstantiate(exec, culprit);
  if (result == CUDA_SUCCESS) PrepareLaunches(exec);
  return result;
}

// Needs exec.mutex. Prepares the values, host steps and event records of one launch.
CUresult PrepareValues(GraphExec& exec) {
  ExecResources& resources = *exec.resources;
  struct StepValues {
    uint64_t reached = 0, resume = 0;
  };
  std::vector<StepValues> steps(exec.flat.steps.size());
  for (size_t i = 0; i < exec.flat.values.size(); ++i) {
    const LaunchValueUse& use = exec.flat.values[i];
    switch (use.kind) {
      case LaunchValueUse::kReached:
        exec.values[i] = steps[use.index].reached =
            resources.NextValue(exec.flat.steps[use.index].reached);
        break;
      case LaunchValueUse::kResume:
        exec.values[i] = steps[use.index].resume =
            resources.NextValue(exec.flat.steps[use.index].resume);
        break;
      case LaunchValueUse::kEvent: {
        const EventRecord& record = exec.flat.records[use.index];
        exec.values[i] = resources.NextValue(record.fence);
        const NodeEvent& event = std::get<EventRecordNode>(record.source->body).event;
        // The event may have been destroyed. Then the graph records the event's fence alone.
        if (FindEvent(event.handle) == event.event)
          RecordEventInGraph(*event.event, record.fence, exec.values[i]);
        break;
      }
    }
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    const HostStep& step = exec.flat.steps[i];
    HostTask task;
    task.reached = step.reached;
    task.reached_value = steps[i].reached;
    task.resume = step.resume;
    task.resume_value = steps[i].resume;
    if (const auto* host = std::get_if<HostNode>(&step.source->body)) {
      task.run = [function = host->function, data = host->data](CUresult status) {
        if (status == CUDA_SUCCESS) CallHostFunction(function, data);
      };
    } else if (step.source->enabled) {
      const auto& node = std::get<CopyNode>(step.source->body);
      const HostCopy copy(node, step.staging);
      task.run = [copy](CUresult status) {
        if (status == CUDA_SUCCESS) copy.Run();
      };
      if (g_read_digest != nullptr && node.to.pageable() && !node.from.pageable()) [[unlikely]] {
        task.run =
            [copy, box = WrittenBy(node),
             place = ReadDigest::GraphPlace(exec.id, static_cast<uint32_t>(i))](CUresult status) {
              if (status != CUDA_SUCCESS) return;
              copy.Run();
              g_read_digest->Read(place, box);
            };
      }
    } else {
      task.run = [](CUresult) {};
    }
    if (!EnqueueHostTask(std::move(task))) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}

// Tells the digest to which pinned memory the launch that was just submitted copies.
void DigestLaunch(const GraphExec& exec, Stream& stream) {
  const ReadDigest::Place place = ReadDigest::StreamPlace(stream.unique_id);
  g_read_digest->NoteLaunch(place, exec.last_kernel);
  for (const GraphNode* node : exec.reads) {
    if (!node->enabled) continue;
    g_read_digest->ReadLater(
        place, WrittenBy(std::get<CopyNode>(node->body)), [&](const wire::Signal& signal) {
          return SubmitWork(stream, Op::cuStreamSynchronize,
                            wire::cuStreamSynchronize{stream.id, 0, signal}) == CUDA_SUCCESS;
        });
  }
}

CUresult LaunchWithValues(GraphExec& exec, Stream& stream) {
  const std::lock_guard lock(exec.mutex);
  if ((exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) == 0) {
    for (const auto& memory : exec.allocates) {
      if (IsAllocated(*memory)) return CUDA_ERROR_INVALID_VALUE;
    }
  }
  CUresult result = PrepareValues(exec);
  if (result != CUDA_SUCCESS) return result;
  result = SubmitWork(
      stream, Op::cuGraphLaunch,
      wire::cuGraphLaunch{exec.id, stream.id, static_cast<uint32_t>(exec.values.size()), 0},
      {exec.values.data(), exec.values.size() * sizeof(uint64_t)});
  if (result != CUDA_SUCCESS) return result;
  for (const auto& memory : exec.allocates) SetAllocated(memory, true);
  for (const auto& memory : exec.frees) SetAllocated(memory, false);
  if (!exec.temporary.empty()) {
    for (const auto& memory : exec.temporary) NoteUse(*memory);
    exec.temporary.clear();
    UpdatePlain(exec);
  }
  if (g_read_digest != nullptr) [[unlikely]]
    DigestLaunch(exec, stream);
  return CUDA_SUCCESS;
}

GraphNode* NodeOf(const GraphExec& exec, CUgraphNode handle) {
  const auto found = exec.nodes.find(reinterpret_cast<uint64_t>(handle));
  return handle == nullptr || found == exec.nodes.end() ? nullptr : found->second;
}

// The new snapshot replaces the old one. Its nodes take over the names of the old nodes and
// everything that the new graph does not define.
void AdoptIdentity(Graph& before, Graph& after) {
  after.original = before.original;
  for (size_t i = 0; i < after.nodes.size(); ++i) {
    GraphNode& was = *before.nodes[i];
    GraphNode& is = *after.nodes[i];
    is.original = was.original;
    is.enabled = was.enabled;
    if (auto* child = std::get_if<ChildNode>(&is.body))
      AdoptIdentity(*std::get<ChildNode>(was.body).graph, *child->graph);
    if (auto* conditional = std::get_if<ConditionalNode>(&is.body)) {
      const auto& old = std::get<ConditionalNode>(was.body);
      conditional->condition = old.condition;
      conditional->owner = old.owner;
      for (size_t j = 0; j < old.bodies.size(); ++j)
        AdoptIdentity(*old.bodies[j], *conditional->bodies[j]);
    }
  }
}

// Needs exec.mutex. Replaces the snapshot of the executable graph with `snapshot`, which passed
// CheckUpdate.
CUresult Replace(GraphExec& exec, std::unique_ptr<Graph> snapshot,
                 CUgraphExecUpdateResultInfo* info) {
  std::unordered_map<const GraphNode*, CUgraphNode> names;
  ForEachNode(*snapshot, [&](const GraphNode& node) { names[&node] = OriginalOf(&node); });
  AdoptIdentity(*exec.snapshot, *snapshot);
  const auto fail = [&](CUgraphExecUpdateResult result, const GraphNode* node, CUresult error) {
    info->result = result;
    info->errorNode = node == nullptr ? nullptr : names[node];
    info->errorFromNode = nullptr;
    EndSnapshot(std::move(snapshot));
    return error;
  };
  Flattened flat;
  const GraphNode* culprit;
  exec.resources->Rewind();
  CUresult result = Flatten(*snapshot, *exec.resources, &flat, &culprit);
  if (result != CUDA_SUCCESS) return fail(CU_GRAPH_EXEC_UPDATE_ERROR, culprit, result);
  if (!SameShape(exec.flat, flat)) {
    return fail(CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, nullptr,
                CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  }
  const std::string payload = Payload(flat);
  const wire::cuGraphExecUpdate_v2 args{exec.id, static_cast<uint32_t>(flat.graphs.size())};
  const ConstBuffer piece{payload.data(), payload.size()};
  std::string bytes;
  result = session().CallControl(Op::cuGraphExecUpdate_v2, exec.device, exec.context_id, &args,
                                 sizeof(args), {&piece, 1}, &bytes);
  if (result != CUDA_SUCCESS) {
    wire::cuGraphExecUpdate_v2_Reply reply{};
    const GraphNode* refused = RefusedNode(flat, bytes, &reply);
    return fail(reply.result == 0 ? CU_GRAPH_EXEC_UPDATE_ERROR
                                  : static_cast<CUgraphExecUpdateResult>(reply.result),
                refused, result);
  }
  info->result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  exec.flat = std::move(flat);
  // Launches that run may still need the objects that the old graph kept alive.
  for (const auto& [object, count] : exec.snapshot->references)
    snapshot->references[object] += count;
  exec.snapshot->references.clear();
  std::swap(exec.snapshot, snapshot);
  PrepareLaunches(exec);
  EndSnapshot(std::move(snapshot));
  return CUDA_SUCCESS;
}

bool SameWayOfLaunch(const LaunchRequest& a, const LaunchRequest& b) {
  return a.flags == b.flags && a.priority == b.priority &&
         std::equal(std::begin(a.cluster), std::end(a.cluster), b.cluster);
}

// Whether both differ only in dimensions and parameters.
bool SameKernel(const KernelNode& a, const KernelNode& b) {
  const auto same_attribute = [](const auto& one, const auto& other) {
    return one.first == other.first &&
           std::memcmp(&one.second, &other.second, sizeof(one.second)) == 0;
  };
  return a.id == b.id && a.context.id == b.context.id &&
         a.parameters.size() == b.parameters.size() && SameWayOfLaunch(a.launch, b.launch) &&
         std::memcmp(&a.hints, &b.hints, sizeof(a.hints)) == 0 &&
         std::equal(a.attributes.begin(), a.attributes.end(), b.attributes.begin(),
                    b.attributes.end(), same_attribute);
}

// Whether the daemon makes one copy of each, between memory of the executable graph's device. Then
// one node can become the other.
bool BothPlainCopies(const GraphExec& exec, const CopyNode& a, const CopyNode& b) {
  constexpr uint64_t kMaxBytes = 1 << 30;
  const DeviceInfo& device = session().device(exec.device);
  for (const CopyNode* copy : {&a, &b}) {
    if (copy->height != 1 || copy->depth != 1 || copy->width > kMaxBytes) return false;
    for (const PitchedPlace* side : {&copy->to, &copy->from}) {
      if (side->in_array() || side->on_host() || !device.Holds(side->place.gpu)) return false;
    }
  }
  return true;
}

// The same for fills.
bool BothPlainFills(const GraphExec& exec, const FillNode& a, const FillNode& b) {
  const DeviceInfo& device = session().device(exec.device);
  return a.known && b.known && device.Holds(a.address) && device.Holds(b.address);
}

// Submits the present state of one flat node, without a reply.
CUresult SubmitNode(GraphExec& exec, uint32_t graph, uint32_t index) {
  exec.bytes.clear();
  AppendNode(exec.flat.graphs[graph].nodes[index], &exec.bytes);
  return session().Submit(Op::cuGraphExecNodeSetParams, exec.device, exec.context_id,
                          wire::cuGraphExecNodeSetParams{exec.id, graph, index, 0},
                          {exec.bytes.data(), exec.bytes.size()});
}

// Needs exec.mutex. Submits another launch and other parameters of the same size. The launch was
// checked and is launched in the same way. The daemon never refuses that, so it needs no reply.
CUresult ChangeKernel(GraphExec& exec, GraphNode& node, const LaunchRequest& launch,
                      std::span<const std::byte> parameters) {
  auto& kernel = std::get<KernelNode>(node.body);
  if (kernel.launch == launch &&
      std::equal(parameters.begin(), parameters.end(), kernel.parameters.begin())) {
    return CUDA_SUCCESS;
  }
  kernel.launch = launch;
  std::copy(parameters.begin(), parameters.end(), kernel.parameters.begin());
  const FlatRange range = exec.flat.ranges.at(&node);
  FlattenKernelAgain(kernel, exec.flat.graphs[range.graph].nodes[range.first]);
  return SubmitNode(exec, range.graph, range.first);
}

bool Optional(wire::GraphNodeKind kind) {
  return kind == wire::kNodeKernel || kind == wire::kNodeCopy || kind == wire::kNodeFill;
}

// Needs exec.mutex. Gives a node of the snapshot a body that passed CheckNodeUpdate, and gives
// `body` the old one. After an error nothing has changed.
CUresult SwapBody(GraphExec& exec, GraphNode& node, NodeBody& body) {
  // The daemon never refuses an update that was checked here and that leaves the way in which the
  // node is made. Such an update needs no reply.
  const auto* kernel = std::get_if<KernelNode>(&body);
  const auto* copy = std::get_if<CopyNode>(&body);
  const auto* fill = std::get_if<FillNode>(&body);
  const bool certain =
      (fill != nullptr && BothPlainFills(exec, std::get<FillNode>(node.body), *fill)) ||
      (kernel != nullptr &&
       SameWayOfLaunch(std::get<KernelNode>(node.body).launch, kernel->launch)) ||
      (copy != nullptr && BothPlainCopies(exec, std::get<CopyNode>(node.body), *copy));
  const FlatRange range = exec.flat.ranges.at(&node);
  std::vector<FlatNode>& nodes = exec.flat.graphs[range.graph].nodes;
  const std::string before = certain ? nodes[range.first].body : std::string();
  std::swap(node.body, body);
  if (const CUresult result = FlattenAgain(node, exec.flat); result != CUDA_SUCCESS) {
    std::swap(node.body, body);
    return result;
  }
  if (certain && nodes[range.first].body == before) return CUDA_SUCCESS;
  for (uint32_t i = range.first; i < range.first + range.count; ++i) {
    const FlatNode& flat = nodes[i];
    // they never change
    if (flat.kind == wire::kNodeSignal || flat.kind == wire::kNodeWait) continue;
    if (certain) {
      if (const CUresult result = SubmitNode(exec, range.graph, i); result != CUDA_SUCCESS)
        return result;  // the session is over
      continue;
    }
    std::string bytes;
    AppendNode(flat, &bytes);
    const CUresult result =
        session().Call(Op::cuGraphExecNodeSetParams, exec.device, exec.context_id,
                       wire::cuGraphExecNodeSetParams{exec.id, range.graph, i, 0},
                       ConstBuffer{bytes.data(), bytes.size()});
    if (result == CUDA_SUCCESS) continue;
    std::swap(node.body, body);
    FlattenAgain(node, exec.flat);
    return result;
  }
  return CUDA_SUCCESS;
}

// The same for every node of a graph, or for none. `fresh` passed CheckUpdate. Conditional nodes
// keep their bodies.
CUresult SwapBodies(GraphExec& exec, Graph& graph, Graph& fresh) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    GraphNode& node = *graph.nodes[i];
    NodeBody& body = fresh.nodes[i]->body;
    CUresult result = CUDA_SUCCESS;
    if (auto* child = std::get_if<ChildNode>(&node.body)) {
      result = SwapBodies(exec, *child->graph, *std::get<ChildNode>(body).graph);
    } else if (std::holds_alternative<ConditionalNode>(node.body)) {
      result = CUDA_ERROR_NOT_SUPPORTED;
    } else if (exec.flat.ranges.contains(&node)) {
      result = SwapBody(exec, node, body);
    }
    if (result == CUDA_SUCCESS) continue;
    while (i-- > 0) {
      GraphNode& done = *graph.nodes[i];
      NodeBody& before = fresh.nodes[i]->body;
      if (auto* child = std::get_if<ChildNode>(&done.body)) {
        SwapBodies(exec, *child->graph, *std::get<ChildNode>(before).graph);
      } else if (exec.flat.ranges.contains(&done)) {
        SwapBody(exec, done, before);
      }
    }
    return result;
  }
  return CUDA_SUCCESS;
}

// A node that a graph which kernels launch cannot have. Null: there is none.
const GraphNode* HostOnlyNode(const Graph& graph) {
  for (const auto& node : graph.nodes) {
    if (const auto* child = std::get_if<ChildNode>(&node->body)) {
      if (const GraphNode* inside = HostOnlyNode(*child->graph); inside != nullptr) return inside;
    } else if (!std::holds_alternative<KernelNode>(node->body) &&
               !std::holds_alternative<CopyNode>(node->body) &&
               !std::holds_alternative<FillNode>(node->body)) {
      return node.get();
    }
  }
  return nullptr;
}

// Whether changes that the daemon never refuses turn one graph into the other, as CheckUpdate
// allows.
bool CertainlyBecomes(const GraphExec& exec, const Graph& graph, const Graph& now) {
  if (!now.references.empty()) return false;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const NodeBody& is = now.nodes[i]->body;
    const bool certain = std::visit(
        [&](const auto& was) {
          using Node = std::decay_t<decltype(was)>;
          if constexpr (std::is_same_v<Node, KernelNode>) {
            return SameKernel(was, std::get<Node>(is));
          } else if constexpr (std::is_same_v<Node, CopyNode>) {
            return BothPlainCopies(exec, was, std::get<Node>(is));
          } else if constexpr (std::is_same_v<Node, FillNode>) {
            return BothPlainFills(exec, was, std::get<Node>(is));
          } else if constexpr (std::is_same_v<Node, ChildNode>) {
            return CertainlyBecomes(exec, *was.graph, *std::get<Node>(is).graph);
          } else {
            return std::is_same_v<Node, EmptyNode>;
          }
        },
        graph.nodes[i]->body);
    if (!certain) return false;
  }
  return true;
}

// Needs exec.mutex and GraphMutex(). Makes these changes without a reply.
CUresult Become(GraphExec& exec, Graph& graph, const Graph& now) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    GraphNode& node = *graph.nodes[i];
    const NodeBody& is = now.nodes[i]->body;
    CUresult result = CUDA_SUCCESS;
    if (const auto* kernel = std::get_if<KernelNode>(&is)) {
      result = ChangeKernel(exec, node, kernel->launch, kernel->parameters);
    } else if (const auto* child = std::get_if<ChildNode>(&is)) {
      result = Become(exec, *std::get<ChildNode>(node.body).graph, *child->graph);
    } else if (!std::holds_alternative<EmptyNode>(is)) {
      bool ok = true;
      NodeBody body = CloneBody(is, false, &ok);
      result = SwapBody(exec, node, body);
    }
    if (result != CUDA_SUCCESS) return result;  // the session is over
  }
  return CUDA_SUCCESS;
}

}  // namespace

GraphExec* FindExec(CUgraphExec handle) {
  return table().Find(HandleKind::kGraphExec, reinterpret_cast<uint64_t>(handle));
}

CUresult Instantiate(CUgraph handle, uint64_t flags, CUgraphExec* made, CUgraphNode* error_node,
                     CUgraphInstantiateResult* why) {
  *error_node = nullptr;
  *why = CUDA_GRAPH_INSTANTIATE_ERROR;
  if ((flags & ~kKnownFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) {
    *why = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
    if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0)
      return CUDA_ERROR_INVALID_VALUE;
    const std::lock_guard lock(GraphMutex());
    const Graph* graph = FindGraph(handle);
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const GraphNode* node = HostOnlyNode(*graph);
    if (node == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    *error_node = HandleOf(*node);
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::unique_ptr<Graph> snapshot;
  {
    const std::lock_guard lock(GraphMutex());
    Graph* graph = FindGraph(handle);
    if (graph == nullptr || graph->captures != 0) return CUDA_ERROR_INVALID_VALUE;
    // Its memory and its conditional values exist only once.
    if (graph->executables != 0 && HasMemoryNodes(*graph)) return CUDA_ERROR_NOT_SUPPORTED;
    if (graph->executables != 0 && HasConditionalNodes(*graph)) return CUDA_ERROR_INVALID_VALUE;
    if (!ConditionalsUsed(*graph)) {
      *why = CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
      return CUDA_ERROR_INVALID_VALUE;
    }
    snapshot = CloneGraph(*graph, false);
    ++graph->executables;
  }
  uint32_t index;
  GraphExec* exec = table().Reserve(&index);
  if (exec == nullptr) {
    ForgetExecutable(handle);
    EndSnapshot(std::move(snapshot));
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const std::lock_guard lock(exec->mutex);
  exec->index = index;
  exec->id = index + 1;
  exec->context = nullptr;
  exec->flags = flags & ~uint64_t{CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD};
  exec->source = reinterpret_cast<uint64_t>(handle);
  exec->snapshot = std::move(snapshot);
  const GraphNode* culprit = nullptr;
  const CUresult result = Build(*exec, &culprit, why);
  if (result != CUDA_SUCCESS) {
    *error_node = OriginalOf(culprit);
    Release(*exec);
    table().Recycle(index);
    return result;
  }
  *why = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  *made = reinterpret_cast<CUgraphExec>(table().Publish(HandleKind::kGraphExec, index));
  return CUDA_SUCCESS;
}

CUresult DestroyExec(CUgraphExec handle) {
  GraphExec* exec = FindExec(handle);
  if (exec == nullptr || !table().Retire(reinterpret_cast<uint64_t>(handle)))
    return CUDA_ERROR_INVALID_VALUE;
  {
    const std::lock_guard lock(exec->mutex);
    const bool alive = exec->context->id.load(std::memory_order_acquire) == exec->context_id;
    if (alive) {
      session().Submit(Op::cuGraphExecDestroy, exec->device, exec->context_id,
                       wire::cuGraphExecDestroy{exec->id, 0});
    }
    Release(*exec);
  }
  table().Recycle(exec->index);
  return CUDA_SUCCESS;
}

CUresult LaunchGraph(GraphExec& exec, Stream& stream) {
  if (exec.device != stream.device) [[unlikely]]
    return CUDA_ERROR_NOT_SUPPORTED;
  if (exec.plain.load(std::memory_order_acquire)) [[likely]] {
    return SubmitWork(stream, Op::cuGraphLaunch, wire::cuGraphLaunch{exec.id, stream.id, 0, 0});
  }
  return LaunchWithValues(exec, stream);
}

CUresult UploadGraph(GraphExec& exec, Stream& stream) {
  if (exec.device != stream.device) return CUDA_ERROR_NOT_SUPPORTED;
  const std::lock_guard lock(exec.mutex);
  const CUresult result =
      SubmitWork(stream, Op::cuGraphUpload, wire::cuGraphUpload{exec.id, stream.id});
  if (result != CUDA_SUCCESS) return result;
  // Natively an upload takes the memory that launches need.
  for (const auto* list : {&exec.temporary, &exec.allocates}) {
    for (const auto& memory : *list) NoteUse(*memory);
  }
  return CUDA_SUCCESS;
}

uint64_t FlagsOf(const GraphExec& exec) {
  // Natively a query does not show this flag.
  return exec.flags & ~uint64_t{CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY};
}

CUresult SetExecNode(GraphExec& exec, CUgraphNode handle, NodeBody body) {
  const std::lock_guard lock(exec.mutex);
  GraphNode* node = NodeOf(exec, handle);
  if (node == nullptr || std::holds_alternative<ChildNode>(body) ||
      std::holds_alternative<ConditionalNode>(body)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto* kernel = std::get_if<KernelNode>(&body);
  const auto* before = std::get_if<KernelNode>(&node->body);
  if (kernel != nullptr && before != nullptr) {
    const CUresult result = KeepAttributes(*before, kernel);
    if (result != CUDA_SUCCESS) return result;
  }
  const bool priorities = (exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) != 0;
  if (CheckNodeUpdate(node->body, body, priorities) != CU_GRAPH_EXEC_UPDATE_SUCCESS)
    return CUDA_ERROR_INVALID_VALUE;
  return SwapBody(exec, *node, body);
}

CUresult SetExecKernel(GraphExec& exec, CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS& params) {
  {
    const std::lock_guard lock(exec.mutex);
    GraphNode* node = NodeOf(exec, handle);
    const auto* kernel = node == nullptr ? nullptr : std::get_if<KernelNode>(&node->body);
    if (kernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = ReadKernelChange(params, *kernel, &exec.change);
    if (result != CUDA_SUCCESS) return result;
    if (exec.change.same_kernel) [[likely]]
      return ChangeKernel(exec, *node, exec.change.launch, exec.change.parameters);
  }
  KernelNode body;
  const CUresult result = MakeKernelNode(params, &body);
  return result != CUDA_SUCCESS ? result : SetExecNode(exec, handle, std::move(body));
}

CUresult SetExecChild(GraphExec& exec, CUgraphNode handle, CUgraph child) {
  const std::lock_guard lock(exec.mutex);
  GraphNode* node = NodeOf(exec, handle);
  auto* old = node == nullptr ? nullptr : std::get_if<ChildNode>(&node->body);
  if (old == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool priorities = (exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) != 0;
  std::unique_ptr<Graph> fresh;
  {
    const std::lock_guard graph_lock(GraphMutex());
    const Graph* graph = FindGraph(child);
    CUgraphExecUpdateResultInfo info{};
    if (graph == nullptr || CheckUpdate(*old->graph, *graph, priorities, &info) != CUDA_SUCCESS) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    // A newly captured graph mostly differs in addresses.
    if (CertainlyBecomes(exec, *old->graph, *graph)) return Become(exec, *old->graph, *graph);
    fresh = CloneGraph(*graph, false);
  }
  // Libraries that capture into a child graph do so again and again. Only the child's own nodes are
  // sent to the daemon.
  const CUresult result = SwapBodies(exec, *old->graph, *fresh);
  if (result == CUDA_SUCCESS) {
    // Launches that run may still need the objects that the old child kept alive.
    for (const auto& [object, count] : fresh->references)
      exec.snapshot->references[object] += count;
    fresh->references.clear();
  }
  EndSnapshot(std::move(fresh));
  return result;
}

CUresult UpdateExec(GraphExec& exec, CUgraph handle, CUgraphExecUpdateResultInfo* info) {
  *info = {};
  info->result = CU_GRAPH_EXEC_UPDATE_ERROR;
  const std::lock_guard lock(exec.mutex);
  const bool priorities = (exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) != 0;
  std::unique_ptr<Graph> snapshot;
  {
    const std::lock_guard graph_lock(GraphMutex());
    const Graph* graph = FindGraph(handle);
    if (graph == nullptr || graph->captures != 0) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = CheckUpdate(*exec.snapshot, *graph, priorities, info);
    if (result != CUDA_SUCCESS) return result;
    if (CertainlyBecomes(exec, *exec.snapshot, *graph)) {
      info->result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
      return Become(exec, *exec.snapshot, *graph);
    }
    snapshot = CloneGraph(*graph, false);
  }
  return Replace(exec, std::move(snapshot), info);
}

CUresult SetNodeEnabled(GraphExec& exec, CUgraphNode handle, bool enabled) {
  const std::lock_guard lock(exec.mutex);
  GraphNode* node = NodeOf(exec, handle);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto found = exec.flat.ranges.find(node);
  if (found == exec.flat.ranges.end() || !CanBeDisabled(*node)) return CUDA_ERROR_INVALID_VALUE;
  node->enabled = enabled;
  const FlatRange range = found->second;
  for (uint32_t i = range.first; i < range.first + range.count; ++i) {
    FlatNode& flat = exec.flat.graphs[range.graph].nodes[i];
    if (!Optional(flat.kind)) continue;
    flat.enabled = enabled;
    const CUresult result =
        session().Submit(Op::cuGraphNodeSetEnabled, exec.device, exec.context_id,
                         wire::cuGraphNodeSetEnabled{exec.id, range.graph, i, enabled ? 1u : 0u});
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult NodeEnabled(GraphExec& exec, CUgraphNode handle, bool* enabled) {
  const std::lock_guard lock(exec.mutex);
  const GraphNode* node = NodeOf(exec, handle);
  if (node == nullptr || !CanBeDisabled(*node)) return CUDA_ERROR_INVALID_VALUE;
  *enabled = node->enabled;
  return CUDA_SUCCESS;
}

}  // namespace detshare::shim
