#include "client_shim/work/graph/capture.h"

#include <algorithm>
#include <map>
#include <thread>
#include <unordered_map>
#include <unordered_set>

namespace detshare::shim {

std::atomic<uint32_t> g_captures{0};

namespace {

// The nodes on which the next node of a stream depends.
struct Tail {
  std::vector<GraphEdge> dependencies;
  // The same as programs see it.
  std::vector<CUgraphNode> shown_nodes;
  std::vector<CUgraphEdgeData> shown_data;
};

struct Sequence {
  uint64_t id = 0;
  std::unique_ptr<Graph> owned;  // null if the program captures to its own graph
  Graph* graph = nullptr;
  Stream* origin = nullptr;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;
  bool invalidated = false;
  std::map<Stream*, Tail> tails;
  std::vector<GraphEdge> ended;  // on which streams depended that were destroyed
  // Behind what each node was captured. The program may have removed edges from the graph since.
  std::unordered_map<const GraphNode*, std::vector<GraphEdge>> captured;
  std::map<Event*, std::vector<GraphEdge>> events;  // the events that were recorded in it
};

std::map<uint64_t, std::unique_ptr<Sequence>>& sequences() {
  static auto* const all = new std::map<uint64_t, std::unique_ptr<Sequence>>;
  return *all;
}

Sequence* Find(uint64_t id) {
  const auto found = sequences().find(id);
  return found == sequences().end() ? nullptr : found->second.get();
}

bool Blocking(const Stream& stream) { return stream.flags == 0 && !stream.legacy; }

// Makes the context's default stream usable, unless a capture of one of its blocking streams
// forbids it.
void UpdateDefaultStream(const Context& context) {
  Stream* legacy = context.legacy.load(std::memory_order_acquire);
  if (legacy == nullptr) return;
  bool forbidden = false;
  for (const auto& [id, sequence] : sequences()) {
    for (const auto& [stream, tail] : sequence->tails)
      forbidden = forbidden || (stream->context == &context && Blocking(*stream));
  }
  legacy->capture.store(forbidden ? kImplicitCapture : 0, std::memory_order_release);
}

void Join(Sequence& sequence, Stream& stream) {
  sequence.tails[&stream];
  // Release: a thread that sees the number finds the sequence.
  stream.capture.store(sequence.id, std::memory_order_release);
  UpdateDefaultStream(*stream.context);
}

void End(Sequence& sequence) {
  --sequence.graph->captures;
  std::vector<Context*> contexts;
  for (const auto& [stream, tail] : sequence.tails) {
    stream->capture.store(0, std::memory_order_release);
    contexts.push_back(stream->context);
  }
  sequences().erase(sequence.id);
  g_captures.fetch_sub(1, std::memory_order_relaxed);
  for (const Context* context : contexts) UpdateDefaultStream(*context);
}

// Returns the error of a call that uses the legacy default stream while streams that synchronise
// with it capture.
CUresult RefuseDefaultStream(const Context& context) {
  for (const auto& [id, sequence] : sequences()) {
    for (const auto& [stream, tail] : sequence->tails) {
      if (stream->context == &context && Blocking(*stream)) sequence->invalidated = true;
    }
  }
  return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

// Finds the sequence to which work of a capturing stream is added.
CUresult ActiveSequence(Stream& stream, Sequence** sequence) {
  const uint64_t id = stream.capture.load(std::memory_order_relaxed);
  if (id == kImplicitCapture) return RefuseDefaultStream(*stream.context);
  *sequence = Find(id);
  if (*sequence == nullptr) return CUDA_ERROR_ILLEGAL_STATE;  // it has ended
  return (*sequence)->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUresult Invalidate(Sequence& sequence, CUresult error) {
  sequence.invalidated = true;
  return error;
}

// Adds dependencies to a set. A plain edge replaces an annotated one, because it demands more.
void Merge(std::span<const GraphEdge> more, std::vector<GraphEdge>* set) {
  for (const GraphEdge& edge : more) {
    const auto known = std::find_if(set->begin(), set->end(), [&](const GraphEdge& candidate) {
      return candidate.node == edge.node;
    });
    if (known == set->end()) {
      set->push_back(edge);
    } else if (known->data.from_port != edge.data.from_port || known->data.type != edge.data.type) {
      known->data = {};
    }
  }
}

bool ToEdges(const Graph& graph, const CUgraphNode* nodes, const CUgraphEdgeData* data,
             size_t count, std::vector<GraphEdge>* edges) {
  if (nodes == nullptr && count != 0) return false;
  for (size_t i = 0; i < count; ++i) {
    GraphNode* node = FindNode(nodes[i]);
    if (node == nullptr || node->graph != &graph) return false;
    // Whether an edge fits depends on the later node, so check it with a node that fits every edge.
    const CUgraphEdgeData edge = data == nullptr ? CUgraphEdgeData{} : data[i];
    if (!EdgeValid(*node, KernelNode{}, edge)) return false;
    Merge(std::vector<GraphEdge>{{node, edge}}, edges);
  }
  return true;
}

CUresult Begin(Stream& stream, CUstreamCaptureMode mode, Graph* graph, std::unique_ptr<Graph> owned,
               std::vector<GraphEdge> dependencies) {
  static uint64_t next_id = 1;
  auto sequence = std::make_unique<Sequence>();
  sequence->id = next_id++;
  sequence->owned = std::move(owned);
  sequence->graph = graph;
  ++graph->captures;
  sequence->origin = &stream;
  sequence->mode = mode;
  sequence->thread = std::this_thread::get_id();
  Sequence& begun = *sequence;
  sequences()[begun.id] = std::move(sequence);
  g_captures.fetch_add(1, std::memory_order_relaxed);
  Join(begun, stream);
  begun.tails[&stream].dependencies = std::move(dependencies);
  return CUDA_SUCCESS;
}

CUresult CheckBegin(const Stream& stream, CUstreamCaptureMode mode) {
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  if (stream.legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return Capturing(stream) ? CUDA_ERROR_ILLEGAL_STATE : CUDA_SUCCESS;
}

// Whether everything on which the streams of the sequence depend, or depended when they were
// destroyed, comes before the end of its origin.
bool Joined(const Sequence& sequence) {
  std::unordered_set<const GraphNode*> before;
  std::vector<const GraphNode*> left;
  const auto visit = [&](const std::vector<GraphEdge>& edges) {
    for (const GraphEdge& edge : edges) {
      if (before.insert(edge.node).second) left.push_back(edge.node);
    }
  };
  visit(sequence.tails.at(sequence.origin).dependencies);
  while (!left.empty()) {
    const GraphNode* node = left.back();
    left.pop_back();
    visit(node->dependencies);
    const auto captured = sequence.captured.find(node);
    if (captured != sequence.captured.end()) visit(captured->second);
  }
  const auto joined = [&](const std::vector<GraphEdge>& edges) {
    return std::all_of(edges.begin(), edges.end(),
                       [&](const GraphEdge& edge) { return before.contains(edge.node); });
  };
  return joined(sequence.ended) &&
         std::all_of(sequence.tails.begin(), sequence.tails.end(),
                     [&](const auto& entry) { return joined(entry.second.dependencies); });
}

}  // namespace

CUresult BeginCapture(Stream& stream, CUstreamCaptureMode mode) {
  const std::lock_guard lock(GraphMutex());
  if (const CUresult result = CheckBegin(stream, mode); result != CUDA_SUCCESS) return result;
  std::unique_ptr<Graph> graph = MakeGraph(true);
  if (graph == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  Graph* const into = graph.get();
  return Begin(stream, mode, into, std::move(graph), {});
}

CUresult BeginCaptureToGraph(Stream& stream, CUgraph handle, const CUgraphNode* dependencies,
                             const CUgraphEdgeData* data, size_t count, CUstreamCaptureMode mode) {
  const std::lock_guard lock(GraphMutex());
  if (const CUresult result = CheckBegin(stream, mode); result != CUDA_SUCCESS) return result;
  Graph* graph = FindGraph(handle);
  std::vector<GraphEdge> edges;
  if (graph == nullptr || !ToEdges(*graph, dependencies, data, count, &edges))
    return CUDA_ERROR_INVALID_VALUE;
  return Begin(stream, mode, graph, nullptr, std::move(edges));
}

CUresult EndCapture(Stream& stream, CUgraph* graph) {
  if (graph != nullptr) *graph = nullptr;
  const std::lock_guard lock(GraphMutex());
  const uint64_t id = stream.capture.load(std::memory_order_relaxed);
  Sequence* sequence = id == kImplicitCapture ? nullptr : Find(id);
  if (sequence == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (sequence->origin != &stream)
    return Invalidate(*sequence, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  const bool wrong_thread = sequence->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
                            sequence->thread != std::this_thread::get_id();
  // The capture ends in any case, as with the driver.
  const CUresult result = wrong_thread            ? CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
                          : sequence->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                          : !Joined(*sequence)    ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                                                  : CUDA_SUCCESS;
  // A graph that nobody gets is destroyed on return, unless the program owns it. As with driver 580,
  // the program's own graph ends with an invalidated capture, too.
  std::unique_ptr<Graph> owned = std::move(sequence->owned);
  Graph* const captured = sequence->graph;
  End(*sequence);
  if (result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED && owned == nullptr &&
      captured->captures == 0 && captured->parent == nullptr)
    owned.reset(captured);
  if (result != CUDA_SUCCESS || graph == nullptr) return result;
  *graph = HandleOf(*captured);
  owned.release();  // the program owns it now
  return CUDA_SUCCESS;
}

CUresult QueryCapture(Stream& stream, CaptureInfo* info) {
  *info = {};
  if (!Capturing(stream)) return CUDA_SUCCESS;
  const std::lock_guard lock(GraphMutex());
  const uint64_t id = stream.capture.load(std::memory_order_relaxed);
  // A query does no harm to the capture.
  if (id == kImplicitCapture) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  Sequence* sequence = Find(id);
  if (sequence == nullptr) return CUDA_SUCCESS;
  if (sequence->invalidated) {
    info->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return CUDA_SUCCESS;
  }
  Tail& tail = sequence->tails[&stream];
  tail.shown_nodes.clear();
  tail.shown_data.clear();
  for (const GraphEdge& edge : tail.dependencies) {
    tail.shown_nodes.push_back(HandleOf(*edge.node));
    tail.shown_data.push_back(edge.data);
    info->plain = info->plain && edge.data.from_port == 0 && edge.data.type == 0;
  }
  info->status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  info->id = sequence->id;
  info->graph = HandleOf(*sequence->graph);
  info->dependencies = tail.shown_nodes.data();
  info->data = tail.shown_data.data();
  info->count = tail.shown_nodes.size();
  return CUDA_SUCCESS;
}

CUresult UpdateCaptureDependencies(Stream& stream, const CUgraphNode* dependencies,
                                   const CUgraphEdgeData* data, size_t count, uint32_t flags) {
  if (!Capturing(stream)) return CUDA_ERROR_ILLEGAL_STATE;
  if (flags != CU_STREAM_ADD_CAPTURE_DEPENDENCIES && flags != CU_STREAM_SET_CAPTURE_DEPENDENCIES)
    return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(GraphMutex());
  Sequence* sequence;
  if (const CUresult result = ActiveSequence(stream, &sequence); result != CUDA_SUCCESS)
    return result;
  std::vector<GraphEdge> edges;
  if (!ToEdges(*sequence->graph, dependencies, data, count, &edges))
    return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphEdge>& tail = sequence->tails[&stream].dependencies;
  if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) tail.clear();
  Merge(edges, &tail);
  return CUDA_SUCCESS;
}

CUresult AddToCapture(Stream& stream, NodeBody body, const CaptureOptions& options) {
  const std::lock_guard lock(GraphMutex());
  Sequence* sequence;
  if (const CUresult result = ActiveSequence(stream, &sequence); result != CUDA_SUCCESS)
    return result;
  const bool kernel = std::holds_alternative<KernelNode>(body);
  Tail& tail = sequence->tails[&stream];
  std::vector<GraphEdge> edges = tail.dependencies;
  for (GraphEdge& edge : edges) {
    if (!kernel) {
      // Only kernels can depend on a kernel that has not ended.
      if (edge.data.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC) edge.data = {};
    } else if (options.programmatic && edge.data.from_port == 0 &&
               std::holds_alternative<KernelNode>(edge.node->body)) {
      edge.data.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
      edge.data.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
    }
  }
  GraphNode* node;
  const CUresult result = AddNode(*sequence->graph, std::move(body), edges, &node);
  if (result != CUDA_SUCCESS) return Invalidate(*sequence, result);
  tail.dependencies = {{node, {}}};
  sequence->captured[node] = std::move(edges);
  for (const CaptureOptions::Record& record : options.records) {
    sequence->events[record.event] = {{node, record.data}};
    record.event->capture.store(sequence->id, std::memory_order_release);
  }
  return CUDA_SUCCESS;
}

CUresult RecordInCapture(Event& event, Stream& stream) {
  const std::lock_guard lock(GraphMutex());
  Sequence* sequence;
  if (const CUresult result = ActiveSequence(stream, &sequence); result != CUDA_SUCCESS)
    return result;
  sequence->events[&event] = sequence->tails[&stream].dependencies;
  event.capture.store(sequence->id, std::memory_order_release);
  return CUDA_SUCCESS;
}

CUresult WaitInCapture(Stream& stream, Event& event) {
  const std::lock_guard lock(GraphMutex());
  Sequence* recorded = Find(event.capture.load(std::memory_order_relaxed));
  if (!Capturing(stream)) {
    if (recorded == nullptr) return CUDA_ERROR_INVALID_VALUE;  // of an ended capture
    if (recorded->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream.legacy) return Invalidate(*recorded, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    Join(*recorded, stream);
  } else {
    Sequence* sequence;
    if (const CUresult result = ActiveSequence(stream, &sequence); result != CUDA_SUCCESS)
      return result;
    if (recorded == nullptr) return Invalidate(*sequence, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    if (recorded != sequence) {
      recorded->invalidated = true;
      return Invalidate(*sequence, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
  }
  const auto point = recorded->events.find(&event);
  if (point != recorded->events.end()) Merge(point->second, &recorded->tails[&stream].dependencies);
  return CUDA_SUCCESS;
}

CUresult RefuseInCapture(Stream& stream) {
  const std::lock_guard lock(GraphMutex());
  Sequence* sequence;
  const CUresult result = ActiveSequence(stream, &sequence);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) return result;
  return Invalidate(*sequence, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUresult RefuseCapturedEvent(Event& event) {
  const std::lock_guard lock(GraphMutex());
  if (Sequence* sequence = Find(event.capture.load(std::memory_order_relaxed)); sequence != nullptr)
    sequence->invalidated = true;
  return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult RefuseContextInCapture(const Context& context) {
  if (g_captures.load(std::memory_order_relaxed) == 0) return CUDA_SUCCESS;
  const std::lock_guard lock(GraphMutex());
  CUresult result = CUDA_SUCCESS;
  for (const auto& [id, sequence] : sequences()) {
    for (const auto& [stream, tail] : sequence->tails) {
      if (stream->context == &context)
        result = Invalidate(*sequence, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
  }
  return result;
}

CUresult RefuseUnsafeCallSlowly() {
  const int mode = thread_state.capture_mode;
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  const std::lock_guard lock(GraphMutex());
  CUresult result = CUDA_SUCCESS;
  for (const auto& [id, sequence] : sequences()) {
    const bool own = sequence->thread == std::this_thread::get_id();
    const bool forbids = own ? sequence->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                             : sequence->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                   mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (forbids) result = Invalidate(*sequence, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  return result;
}

void LeaveCapture(Stream& stream) {
  if (!Capturing(stream)) return;
  const std::lock_guard lock(GraphMutex());
  Sequence* sequence = Find(stream.capture.load(std::memory_order_relaxed));
  stream.capture.store(0, std::memory_order_release);
  if (sequence == nullptr) return;
  if (sequence->origin == &stream) {
    // No call can end the capture any more.
    const std::unique_ptr<Graph> owned = std::move(sequence->owned);
    End(*sequence);
    return;
  }
  // A program may destroy a stream that it has joined back.
  const auto tail = sequence->tails.find(&stream);
  Merge(tail->second.dependencies, &sequence->ended);
  sequence->tails.erase(tail);
  UpdateDefaultStream(*stream.context);
}

void NoteDefaultStream(Stream& legacy) {
  if (g_captures.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(GraphMutex());
  UpdateDefaultStream(*legacy.context);
}

}  // namespace detshare::shim
