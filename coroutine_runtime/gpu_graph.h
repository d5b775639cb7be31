// An executable graph of a session: what it does, and one instantiation for each partition on which
// it was launched.
//
// CUDA's graphs keep the SMs for which they were instantiated, whatever stream they are launched
// on. So a graph of a session is instantiated for the partition on which the session runs when it
// is made, and for others later; changes of its nodes are made to all of its instantiations. To
// instantiate takes long and holds up others, so under a scheduler it is not done by a launch: that
// takes the instantiation that is there, and the missing one is made when the session has a pause
// (GpuCoroutine::MakeReady), or after many launches that would have liked to have it. A graph with
// a node that needs more SMs than a partition has runs on the smallest one that holds it, and one
// with conditional nodes on the whole device: their handles belong to one instantiation.
//
// Launches of one graph follow each other, whatever their streams. A device sees to that for each
// instantiation; between two of them it is
//
//     the stream's order, when both launches are on one stream
//     a marker behind the launch, once the graph has been launched on two streams
//
// and where neither is there (the very first change of the stream, together with a change of the
// partition), the launch stays on the partition of the last one.
//
// Threading: the coroutine's thread. Ends before the coroutine's address space. Errors: the
// device's; a launch that fails has queued nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coroutine_runtime/device_graph.h"
#include "coroutine_runtime/gpu_coroutine.h"

namespace detshare {

class GpuGraph {
 public:
  // Instantiated for the partition to which the coroutine is bound. `refused` as in
  // Device::InstantiateGraph.
  ~GpuGraph();
  static absl::StatusOr<std::unique_ptr<GpuGraph>> Create(GpuCoroutine& coroutine,
                                                          GraphDescription description,
                                                          GraphPlace* refused);

  // One operation of the stream. CUDA_ERROR_INVALID_VALUE unless there is a value for each signal
  // and wait.
  absl::Status Launch(StreamId stream, absl::Span<const uint64_t> values);
  // Makes one missing instantiation that was asked for. False: there is none.
  bool MakeOneReady();
  // What the next launch on the stream needs is ready afterwards.
  absl::Status Upload(StreamId stream);

  // For launches from now on. On any error nothing has changed; CUDA_ERROR_INVALID_VALUE for a node
  // that does not exist or is of another kind, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE when the device
  // cannot change that in place.
  absl::Status Replace(GraphPlace place, GraphNode now);
  absl::Status SetEnabled(GraphPlace place, bool enabled);

  // Why a graph cannot become another: numbers of CUgraphExecUpdateResult.
  enum class UpdateResult : uint32_t {
    kSuccess = 0,
    kError = 1,
    kTopologyChanged = 2,
    kNodeTypeChanged = 3,
    kParametersChanged = 5,
  };
  struct Update {
    UpdateResult result = UpdateResult::kSuccess;
    GraphPlace place;  // the node of the new graph that is the reason
  };
  // Does what `description` says from the next launch on, or nothing has changed.
  Update Become(GraphDescription description);

  const GraphDescription& description() const { return description_; }
  size_t value_count() const { return value_count_; }
  // What the description takes of memory, roughly.
  uint64_t bytes() const { return bytes_; }

 private:
  struct Instance {
    Partition* partition = nullptr;
    std::unique_ptr<Graph> graph;
  };

  GpuGraph(GpuCoroutine& coroutine, GraphDescription description);
  const GraphNode* Find(GraphPlace place) const;
  // The instantiation for `partition`, made when it is not there.
  absl::StatusOr<Instance*> InstanceOn(Partition& partition, GraphPlace* refused);
  Instance* Existing(const Partition& partition);
  // ... or for the whole device when the graph does not fit.
  absl::StatusOr<Instance*> FittingInstance(Partition& wanted, GraphPlace* refused);
  // What a launch uses that would like to run on `wanted`.
  absl::StatusOr<Instance*> InstanceForLaunch(Partition& wanted, GraphPlace* refused);
  void Want(Partition& partition);
  Partition& Choose();
  absl::Status LaunchOn(Instance& instance, StreamId stream, uint64_t serial,
                        absl::Span<const uint64_t> values);
  absl::Status Apply(GraphPlace place, const GraphNode& now);
  void CountAgain();

  GpuCoroutine& coroutine_;
  GraphDescription description_;
  size_t value_count_ = 0;
  uint64_t bytes_ = 0;
  uint64_t kernels_ = 0;            // that a launch runs, bodies of conditionals left out
  std::vector<bool*> recorded_;     // by a launch
  int sms_ = 1;                     // without which a node cannot run
  bool waits_ = false;              // for the client, or for words of memory
  std::vector<Partition*> wanted_;  // instantiations that are to be made
  uint64_t code_ = 0;               // stands for what its kernels execute
  uint32_t blocks_ = 0;             // of its largest kernel
  DurationCache::Lookup known_;     // about the launch that is being made
  int missed_ = 0;                  // launches that would have liked to have one of them
  std::vector<Instance> instances_;

  // Of the latest launch.
  Partition* last_partition_ = nullptr;  // null: there was none
  uint64_t last_stream_ = 0;             // its serial number
  bool shared_ = false;                  // launched on two streams or more
  bool marked_ = false;                  // marker_ stands behind it
  std::unique_ptr<Marker> marker_;
};

}  // namespace detshare
