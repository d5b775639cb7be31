// Keeps work that waits for its client, or for a word of memory, in the daemon.
//
// The hardware executes streams on a few channels, and a channel executes its commands one after the
// other. If a stream waited for its client there, streams that share its channel would wait, too, of
// this session and of others. The client may wait for one of them before it lets the stream go on.
// The same holds for a stream that waits for a value in memory (cuStreamWaitValue32), which other
// work or the client writes.
//
// So every queue of a session is a ParkingQueue. It passes its work on to a queue of the device. From
// a wait on that is not over yet, it keeps work itself (it is parked), until the wait is over. It
// reads a word behind its earlier work, again and again, until the word ends the wait:
//
//     queue A:  work 1   wait for the client   work 2   Record(m)
//     queue B:  work 3   Wait(m)   work 4
//
//     to the device at once:  work 1, work 3
//     after the wait:         work 2, Record(m), Wait(m), work 4
//
// A queue that waits for a marker that is parked with another queue is parked as well.
//
// A parked queue also keeps a wait for a marker that the device has but has not reached. The device may
// reach it only after the work that the queue keeps in front of the wait: a kernel may wait for the
// client, and the client for that work. The marker may stand for a later point when the wait is passed
// on, so the present point gets a marker of its own, by a queue that does nothing else (a relay):
//
//     relay:    Wait(m)   Record(own)                     at once
//     queue B:  work that is kept   Wait(own)   work      when its turn comes
//
// The relay's wait takes a channel of the hardware meanwhile, as the wait itself does on a queue that is
// not parked.
//
// A graph must not change while a launch of it is kept. So before a change, and wherever a session
// keeps more than kMaxBytes, a queue passes on what it keeps, the waits included, as if it had never
// been parked.
//
// Errors of parked work come when it is passed on. The session's next operation returns the first
// one (error()).
//
// Threading: the session's thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/executor.h"
#include "coroutine_runtime/fence_pool.h"

namespace detshare {

class ParkingQueue;
class QueuePool;

// The parked queues of a session. Outlives them, the executor's tasks and the address spaces. Ends
// before the pools of its queues, if it has any relays.
class Parking {
 public:
  // What a session keeps at most.
  static constexpr size_t kMaxBytes = 1 << 20;

  // With `max_bytes` 0, all waits are the device's.
  explicit Parking(Executor& executor, size_t max_bytes = kMaxBytes)
      : executor_(executor), max_bytes_(max_bytes) {}
  ~Parking();
  Parking(const Parking&) = delete;
  Parking& operator=(const Parking&) = delete;

  Executor& executor() { return executor_; }

  // A queue for the session's work on the pool's device, of whose `partition` `queue` is. `space` is the
  // session's there.
  std::unique_ptr<ParkingQueue> Open(QueuePool& pool, Partition& partition, AddressSpace& space,
                                     std::unique_ptr<Queue> queue);

  // Blocks later work of the queue, which this object has opened, until the client stores `value` or
  // more to `fence`. The fence outlives the session's work.
  absl::Status WaitForClient(Queue& queue, AddressSpace& space, const std::atomic<uint64_t>* fence,
                             uint64_t value);
  // The same for a fence that another session stores, which need not be registered with `space`.
  absl::Status WaitForOthers(Queue& queue, AddressSpace& space,
                             std::shared_ptr<const std::atomic<uint64_t>> fence, uint64_t value);
  // Whether the queue, which this object has opened, keeps work.
  static bool Keeps(const Queue& queue);
  // Passes on all that the queue keeps.
  void Submit(Queue& queue);
  // Passes on what was kept up to the recording for which the marker stands.
  void Submit(const Marker& marker);
  // Passes on what was kept up to the last launch of the graph, which is about to change or to end.
  void Submit(const Graph& graph);
  // Passes all parked work on, and keeps none from now on. Call it when the session has ended, after
  // AddressSpace::Abandon(): the spaces wait for nothing any more.
  void Abandon();

  // How often it has passed on kept work.
  uint64_t passed_on() const { return passed_on_; }
  // Whether it is just passing on kept work, which may wait (CallWait).
  bool passes_on() const { return running_ != 0; }
  // Of work that was parked.
  const absl::Status& error() const { return error_; }

 private:
  friend class ParkingQueue;
  struct Point;
  // A wait for a word of memory.
  struct Word {
    MemoryOp wait;
    bool over = false;
  };
  struct Item {
    // A wait for the client, for a word, or for a parked marker, or work.
    const std::atomic<uint64_t>* fence = nullptr;
    uint64_t value = 0;
    std::shared_ptr<Word> word;
    bool watched = false;  // a task waits for the fence or the word
    std::shared_ptr<Point> point;
    std::function<absl::Status()> work;
    const Graph* graph = nullptr;  // that the work launches
    AddressSpace* space = nullptr;
    size_t bytes = 0;
  };
  // What a ParkingQueue keeps, also after the queue's end.
  struct Lane {
    QueuePool& pool;
    Partition& group;  // all SMs of its time-slice group
    AddressSpace& space;
    std::unique_ptr<Queue> queue;
    std::deque<Item> items;
    int running = 0;  // items that are being passed on, which may wait (CallWait)
    bool empty() const { return items.empty() && running == 0; }
  };
  struct Relay {
    QueuePool* pool = nullptr;
    Partition* group = nullptr;
    std::unique_ptr<Queue> queue;
    std::shared_ptr<Marker> last;  // that it has recorded; null: none
  };
  // Of one device and time-slice group. A relay with a point that is not reached serves another wait
  // only if there are no more.
  static constexpr size_t kMaxRelays = 16;

  static Task<void> Watch(Parking* self, const std::atomic<uint64_t>* fence, uint64_t value);
  // Signals `own` when the fence of another session is reached.
  static Task<void> WatchOthers(Parking* self, std::shared_ptr<const std::atomic<uint64_t>> fence,
                                uint64_t value, FenceLease own);
  // Reads the word behind the earlier work of the lane until it ends the wait.
  static Task<void> WatchWord(Parking* self, std::shared_ptr<Lane> lane, AddressSpace* space,
                              std::shared_ptr<Word> word);
  void Add(const std::shared_ptr<Lane>& lane, Item item);
  void SubmitAll();
  // Passes on what waits for nothing any more, and watches the fences for which the rest waits.
  void Pump();
  bool PumpOnce();
  // Passes the lane's work on, whatever it waits for, until there is none or it is enough.
  void SubmitUntil(Lane& lane, absl::FunctionRef<bool()> enough);
  static FencePool& PoolOf(AddressSpace& space, std::map<AddressSpace*, FencePool>& pools);
  // Removes the first item, which there is, from the lane, which still keeps it until Run().
  Item Take(Lane& lane);
  void Run(Lane& lane, Item item);
  // Records the marker on the lane's queue, and lets the queues wait for it that wait for the point
  // next.
  absl::Status RecordNow(Lane& lane, Point& point);
  // Keeps a wait of the lane, which keeps other items, for the point for which the marker stands now.
  // The device has it.
  absl::Status Keep(const std::shared_ptr<Lane>& lane, Marker& marker);
  // Returns a marker that stands for this point as long as it lives.
  absl::StatusOr<std::shared_ptr<Marker>> PointOf(const Lane& lane, Marker& marker);

  Executor& executor_;
  size_t max_bytes_;
  // For reading words and for waits of other sessions; end after the spaces.
  std::map<AddressSpace*, FencePool> fences_;
  // Copies of words. They hold any values, so none of them may become a fence, which only grows.
  std::map<AddressSpace*, FencePool> words_;
  std::vector<std::shared_ptr<Lane>> lanes_;  // those with items
  size_t bytes_ = 0;
  std::vector<Relay> relays_;  // the one that was used last is the last
  uint64_t passed_on_ = 0;
  int running_ = 0;                       // items of all lanes that are being passed on
  bool pumping_ = false, again_ = false;  // Pump() is at work, and was called again meanwhile
  absl::Status error_;
};

class ParkingQueue final : public Queue {
 public:
  absl::Status Launch(AddressSpace& space, Kernel& kernel, const LaunchShape& shape,
                      absl::Span<const std::byte> parameters) override;
  absl::Status Copy(AddressSpace& space, const CopyRequest& request) override;
  absl::Status Fill(AddressSpace& space, const FillRequest& request) override;
  absl::Status Prefetch(AddressSpace& space, const PrefetchRequest& request) override;
  absl::Status WriteFence(AddressSpace& space, std::atomic<uint64_t>* fence,
                          uint64_t value) override;
  // A wait for work of another device. It is the device that waits.
  absl::Status WaitFence(AddressSpace& space, const std::atomic<uint64_t>* fence,
                         uint64_t value) override;
  absl::Status MemoryOps(AddressSpace& space, absl::Span<const MemoryOp> operations) override;
  absl::Status Record(Marker& marker) override;
  absl::Status Wait(Marker& marker) override;
  absl::Status LaunchGraph(AddressSpace& space, Graph& graph,
                           absl::Span<const uint64_t> values) override;
  bool Idle() override;
  absl::Status UploadGraph(AddressSpace& space, Graph& graph) override;

  // Gives the device's queue back. Null if this queue keeps work, which then goes on.
  std::unique_ptr<Queue> Close();

 private:
  friend class Parking;
  ParkingQueue(Parking& parking, std::shared_ptr<Parking::Lane> lane)
      : parking_(parking), lane_(std::move(lane)) {}
  bool passes() const { return lane_->empty(); }
  absl::Status Park(size_t bytes, std::function<absl::Status()> work);

  Parking& parking_;
  const std::shared_ptr<Parking::Lane> lane_;
};

}  // namespace detshare
