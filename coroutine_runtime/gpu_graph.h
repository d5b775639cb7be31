// An executable graph of a session: its description, and one instantiation for each partition on
// which it was launched.
//
// CUDA's graphs keep the SMs for which they were instantiated, whatever stream launches them. So a
// session's graph is instantiated for the session's partition when it is created, and for other
// partitions later. Changes of its nodes apply to all instantiations.
//
// Instantiation takes long and delays others, so under a scheduler a launch does not do it. The
// launch uses an existing instantiation. The missing one is created when the session pauses
// (GpuCoroutine::MakeReady), or after many launches that would have used it. If a node needs more
// SMs than the partition has, the graph runs on the smallest partition that has them. A graph with
// conditional nodes runs on the whole device, because their handles belong to one instantiation.
//
// Launches of one graph follow each other, whatever their streams. The device ensures that for each
// instantiation. Between two instantiations the order comes from
//
//     the stream's order, if both launches are on one stream
//     a marker behind the launch, once the graph has been launched on two streams
//
// If neither exists (at the first change of the stream, together with a change of the partition),
// the launch stays on the partition of the previous one.
//
// Launches behind a wait for the client are kept in the daemon (parking.h), unless the graph records
// or waits for events, or needs several SMs at once, which a launch may refuse. They go to the device
// before the graph changes or ends.
//
// Threading: the coroutine's thread. Lifetime: ends before the coroutine's address space. Errors:
// the device's; a failed launch queues nothing.
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
  // Instantiates for the coroutine's present partition. `refused` as in Device::InstantiateGraph.
  ~GpuGraph();
  static absl::StatusOr<std::unique_ptr<GpuGraph>> Create(GpuCoroutine& coroutine,
                                                          GraphDescription description,
                                                          GraphPlace* refused);

  // Launches the graph as one operation of the stream. CUDA_ERROR_INVALID_VALUE unless there is one
  // value for each signal and wait.
  absl::Status Launch(StreamId stream, absl::Span<const uint64_t> values);
  // Creates one missing instantiation that was requested. Returns false if there is none.
  bool MakeOneReady();
  // Prepares everything that the next launch on the stream needs.
  absl::Status Upload(StreamId stream);

  // Applies to later launches. On an error nothing changes. CUDA_ERROR_INVALID_VALUE for a node
  // that does not exist or is of another kind; CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE if the device
  // cannot make the change in place.
  absl::Status Replace(GraphPlace place, GraphNode now);
  absl::Status SetEnabled(GraphPlace place, bool enabled);

  // Why a graph cannot be updated to another: numbers of CUgraphExecUpdateResult.
  enum class UpdateResult : uint32_t {
    kSuccess = 0,
    kError = 1,
    kTopologyChanged = 2,
    kNodeTypeChanged = 3,
    kParametersChanged = 5,
  };
  struct Update {
    UpdateResult result = UpdateResult::kSuccess;
    GraphPlace place;  // the node of the new graph that prevents the update
  };
  // Later launches execute `description`. On an error nothing changes.
  Update Become(GraphDescription description);

  const GraphDescription& description() const { return description_; }
  size_t value_count() const { return value_count_; }
  // The approximate memory of the description in bytes.
  uint64_t bytes() const { return bytes_; }

 private:
  struct Instance {
    Partition* partition = nullptr;
    std::unique_ptr<Graph> graph;
  };

  GpuGraph(GpuCoroutine& coroutine, GraphDescription description);
  const GraphNode* Find(GraphPlace place) const;
  // Returns the instantiation for `partition`, and creates it if it is missing.
  absl::StatusOr<Instance*> InstanceOn(Partition& partition, GraphPlace* refused);
  Instance* Existing(const Partition& partition);
  // The same, or the one for the whole device if the graph does not fit.
  absl::StatusOr<Instance*> FittingInstance(Partition& wanted, GraphPlace* refused);
  // Returns the instantiation that a launch uses when it should run on `wanted`.
  absl::StatusOr<Instance*> InstanceForLaunch(Partition& wanted, GraphPlace* refused);
  void Want(Partition& partition);
  // If the session is bound to its time-slice group, ends the instantiations of the other group,
  // where the session's objects do not exist. The next launch comes after theirs.
  absl::Status LeaveOtherGroup();
  Partition& Choose();
  // Whether all kernels can start in the partition's group (Kernel::CanStartIn).
  bool CanStartOn(const Partition& partition) const;
  absl::Status LaunchOn(Instance& instance, StreamId stream, uint64_t serial,
                        absl::Span<const uint64_t> values);
  // Passes on what must not be kept when the graph is launched on `queue`.
  void SubmitBefore(Queue& queue);
  // Passes on the launches that are kept.
  void SubmitKept();
  absl::Status Apply(GraphPlace place, const GraphNode& now);
  void CountAgain();

  GpuCoroutine& coroutine_;
  GraphDescription description_;
  size_t value_count_ = 0;
  uint64_t bytes_ = 0;
  uint64_t kernels_ = 0;                // per launch, without bodies of conditional nodes
  std::vector<bool*> recorded_;         // flags that a launch sets
  std::vector<const Marker*> awaited_;  // markers for which it waits
  int sms_ = 1;                         // minimum that every node needs to run
  bool waits_ = false;                  // for the client, or for words of memory
  std::vector<Partition*> wanted_;      // instantiations to be created
  uint64_t code_ = 0;                   // identifies the code of its kernels
  uint32_t blocks_ = 0;                 // of its largest kernel
  DurationCache::Lookup known_;         // for the launch in progress
  int missed_ = 0;                      // launches that would have used one of wanted_
  std::vector<Instance> instances_;
  bool left_other_group_ = false;

  // The latest launch.
  Partition* last_partition_ = nullptr;  // null if there was none
  uint64_t last_stream_ = 0;             // its stream's serial number
  bool shared_ = false;                  // the graph was launched on two streams or more
  bool marked_ = false;                  // marker_ stands behind the launch
  std::unique_ptr<Marker> marker_;
};

}  // namespace detshare
