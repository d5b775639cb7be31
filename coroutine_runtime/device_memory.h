// The device memory of one session on one device: which addresses it hands out, what is mapped
// behind them, whose they are.
//
// Addresses are deterministic: the sequence of a session's calls alone decides them, never time. A
// range is free for reuse by the call that frees it; when that was ordered on a stream, the range
// remembers the point of that stream, and whoever gets the range next waits for it (on its own
// stream, or before the reply).
//
//     range free  --Allocate: lowest address that fits-->  allocated  --Free: after the session is
//     idle-----------> range free
//                                                              | ^
//                                                              +--FreeAsync: at once, with the
//                                                              stream's point---------+
//
// What is mapped follows more slowly: allocations of at least one granule are mapped exactly
// (rounded up) and unmapped when free and their point is reached; smaller ones share granules, of
// which one empty one is kept. Memory is zero when it is mapped first; a range that is reused while
// still mapped keeps what the same session wrote.
//
// Stream-ordered allocations come from pools, which differ in whose the mapped memory is: memory
// that a pool's allocations lie in is reserved by that pool, and stays so when it is free, as far
// as the pool's release threshold says and a little more (the quick reuse). A free range that
// another pool gets takes its memory along.
//
// While nothing of the session runs, its memory can leave the card for the host and come back to
// the same addresses (MoveOut, MoveIn); nobody uses it in between. When the card is full, others
// can be asked to go (memory_room.h).
//
// Threading: one thread, the executor's; used() and the like from any. Tasks must end before the
// object does.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/fence_pool.h"
#include "coroutine_runtime/gpu_coroutine.h"
#include "coroutine_runtime/host_store.h"
#include "coroutine_runtime/memory_mover.h"
#include "coroutine_runtime/memory_room.h"
#include "coroutine_runtime/quota.h"
#include "coroutine_runtime/task.h"

namespace detshare {

using PoolId = uint32_t;  // as in proto/wire/memory.h

class DeviceMemory {
 public:
  static constexpr uint64_t kAlignment = 512;  // of every address, as cuMemAlloc gives it

  // `limit`: bytes that may be allocated at a time.
  explicit DeviceMemory(GpuCoroutine& coroutine, uint64_t limit = UINT64_MAX);
  ~DeviceMemory();  // unmaps nothing: the address space does
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  AddressSpace& space() { return space_; }

  // Memory that is valid at once (cuMemAlloc). CUDA_ERROR_INVALID_VALUE for 0 bytes,
  // CUDA_ERROR_OUT_OF_MEMORY. Ends at once unless the range that it gets, or memory that it needs,
  // is still in use by work of the session.
  Task<absl::StatusOr<DeviceAddress>> Allocate(ContextId context, uint64_t bytes);
  // Memory of that pool, valid for work ordered after `stream` (cuMemAllocFromPoolAsync).
  // CUDA_ERROR_INVALID_VALUE for a pool that there is not.
  Task<absl::StatusOr<DeviceAddress>> AllocateAsync(ContextId context, uint64_t bytes,
                                                    StreamId stream, PoolId pool = kDefaultPool);

  // Ends when the session's work is complete and the memory is gone (cuMemFree).
  // CUDA_ERROR_INVALID_VALUE, at once, when `address` is not what an allocation returned, or was
  // freed before.
  Task<absl::Status> Free(DeviceAddress address);
  // Frees at this point of `stream` (cuMemFreeAsync).
  absl::Status FreeAsync(DeviceAddress address, StreamId stream);
  // Frees at a point of a stream of another device of the session.
  absl::Status FreeAtPoint(DeviceAddress address, const FencePoint& point);
  // Frees everything of `context`, whose work is complete (GpuCoroutine::DestroyContext).
  void FreeContext(ContextId context);

  // A range of addresses of at least `bytes` with nothing behind it, for memory that the caller
  // maps himself: at `wanted` when that is not 0, aligned and free, else the highest that fits, so
  // that it keeps out of the way of allocations. Whole units of kPhysicalGranule; `alignment` is a
  // power of two. Waits for earlier users of the range. CUDA_ERROR_OUT_OF_MEMORY.
  Task<absl::StatusOr<DeviceAddress>> Reserve(uint64_t bytes, uint64_t alignment,
                                              DeviceAddress wanted);
  // `address` and `bytes` (rounded) are those of one Reserve, and nothing is mapped there.
  void FreeReservation(DeviceAddress address, uint64_t bytes);

  // Work of `peer`, the session's space on another device, may touch the allocations of now and
  // later ...
  absl::Status Share(AddressSpace& peer);
  // ... and no longer. None such is in flight.
  void Unshare(AddressSpace& peer);

  // Who makes room on a full card; null: nobody. Outlives the tasks.
  void set_room(RoomSource* room) { room_ = room; }
  // Gives free memory back, then asks others to go, for `bytes` of the card that are not mapped
  // here. `attempt`: how often that was tried before, since others may be quicker to take what went.
  // False when it is of no use to try again. The ticket stays until the memory is there.
  Task<bool> MakeRoom(uint64_t bytes, uint64_t attempt, std::unique_ptr<RoomTicket>* ticket);
  // All that is mapped from now on, on the card or out of it, is taken of it; null: of nothing.
  void set_quota(std::shared_ptr<Quota> quota) { quota_ = std::move(quota); }
  // Memory that others can reach, too: what is mapped at `address` does not move any more. What
  // was taken of the quota for it; whoever keeps the memory keeps that.
  std::shared_ptr<const QuotaCharge> KeepInPlace(DeviceAddress address);
  using CopyPieces = absl::FunctionRef<absl::Status(absl::Span<const MovePiece>)>;
  // Gives `bytes` of the card back, or somewhat more, or what there is, which moves into blocks of
  // `store`; free memory that is kept like any other, so that the program sees no difference.
  // Nothing of the session works or waits on the device, but for tasks that wait for room. The
  // bytes that went: fewer when `store` has no room for more; all stay when there is an error.
  absl::StatusOr<uint64_t> MoveOut(uint64_t bytes, HostStore& store, CopyPieces copy);
  // Brings back what fits; the bytes. CUDA_ERROR_OUT_OF_MEMORY when the card has no room for any of
  // it. Nothing comes when there is an error.
  absl::StatusOr<uint64_t> MoveIn(CopyPieces copy);
  // Of the smallest mapping that is out; 0: none is.
  uint64_t smallest_out() const;

  struct Allocation {
    DeviceAddress address = 0;
    uint64_t bytes = 0;  // as asked for
    ContextId context = 0;
  };
  // The allocation that contains `address`.
  std::optional<Allocation> Find(DeviceAddress address) const;

  // Pools. The default pool is always there; kNoPool is for what cuMemAlloc gives.
  static constexpr PoolId kNoPool = 0, kDefaultPool = 1;
  static constexpr size_t kMaxPools = 1024;
  // `max_bytes`: that may be allocated at a time; 0: no such limit.
  absl::Status CreatePool(PoolId pool, uint64_t max_bytes);
  // Its allocations stay; nothing more is allocated from it, and nothing free is kept.
  absl::Status DestroyPool(PoolId pool);
  // Bytes that the pool may have reserved before free memory is given back
  // (CU_MEMPOOL_ATTR_RELEASE_THRESHOLD); 0 at first.
  absl::Status SetReleaseThreshold(PoolId pool, uint64_t bytes);
  // Gives free memory back whose points are reached, until the pool has reserved `keep` bytes.
  absl::Status TrimPool(PoolId pool, uint64_t keep);
  struct PoolUse {
    uint64_t reserved = 0, reserved_high = 0;
  };
  // What it has reserved, after it gave back what it need not hold.
  absl::StatusOr<PoolUse> UseOf(PoolId pool);
  // The high mark begins again at what is reserved now.
  absl::Status ResetHighMark(PoolId pool);
  // As Share and Unshare, for what the pool has reserved and will reserve.
  absl::Status SharePool(PoolId pool, AddressSpace& peer);
  absl::Status UnsharePool(PoolId pool, AddressSpace& peer);

  // Bytes of free memory that stay mapped beyond what pools may hold.
  void set_quick_reuse(uint64_t bytes) { quick_reuse_ = bytes; }
  // Unmaps free memory whose points are reached, down to `keep` bytes.
  void Trim(uint64_t keep);

  uint64_t used() const {
    return used_.load(std::memory_order_relaxed);
  }  // bytes allocated, rounded
  uint64_t mapped() const { return mapped_.load(std::memory_order_relaxed); }  // bytes of the card
  uint64_t used_by(ContextId context) const;
  // Bytes of the card that MoveOut could give back, and bytes that are out.
  uint64_t movable() const { return movable_.load(std::memory_order_relaxed); }
  uint64_t out() const { return out_.load(std::memory_order_relaxed); }

 private:
  using Points = absl::InlinedVector<FencePoint, 2>;
  // Free ranges by address: never empty, never adjacent to each other.
  class FreeRanges {
   public:
    // The lowest range of at least `bytes`; its points are added to *after.
    std::optional<DeviceAddress> Take(uint64_t bytes, Points* after);
    // The highest that is aligned.
    std::optional<DeviceAddress> TakeHighest(uint64_t bytes, uint64_t alignment, Points* after);
    // False when some of it is not free.
    bool TakeAt(DeviceAddress address, uint64_t bytes, Points* after);
    void Add(DeviceAddress address, uint64_t bytes, Points after);
    // The points of the lowest range.
    Points FirstPoints() const;

   private:
    struct Range {
      uint64_t bytes = 0;
      Points after;
    };
    using Ranges = std::map<DeviceAddress, Range>;
    void Cut(Ranges::iterator range, DeviceAddress address, uint64_t bytes, Points* after);
    Ranges ranges_;
  };
  struct Block {
    uint64_t requested = 0;
    uint64_t bytes = 0;  // rounded
    ContextId context = 0;
    PoolId pool = kNoPool;
    bool busy = false;    // being made or freed: not the client's
    uint64_t serial = 0;  // tells blocks at one address apart
  };
  // A granule that small allocations of one pool share.
  struct Chunk {
    PoolId pool = kNoPool;
    FreeRanges free;
    uint64_t live = 0;  // bytes allocated
  };
  // What one AddressSpace::Map made.
  struct Extent {
    uint64_t bytes = 0;
    PoolId pool = kNoPool;
    bool idle = false;  // free, kept mapped
    bool kept = false;  // does not move
    HostBlock out;      // not on the card: what it holds
    std::shared_ptr<const QuotaCharge> charge;
    Points after;  // of an idle extent: reached before it may be unmapped
  };
  struct Pool {
    uint64_t max_bytes = 0;
    uint64_t threshold = 0;
    uint64_t used = 0;  // bytes allocated, rounded
    uint64_t reserved = 0, reserved_high = 0;
    uint64_t idle = 0;  // of the reserved bytes
    bool ended = false;
    std::vector<AddressSpace*> peers;  // besides peers_

    // Free memory that it need not hold.
    uint64_t excess() const {
      return reserved > threshold ? std::min(idle, reserved - threshold) : 0;
    }
  };
  struct Placement {
    DeviceAddress address = 0;
    uint64_t serial = 0;
    DeviceAddress map_address = 0;  // what must be mapped: the block or its granule
    uint64_t map_bytes = 0;
    PoolId pool = kNoPool;
    Points after;  // of the range's users so far
  };
  using Extents = std::map<DeviceAddress, Extent>;

  static void AddPoints(Points& to, const Points& from);
  static bool AllReached(const Points& points);

  absl::StatusOr<Placement> Place(ContextId context, uint64_t bytes, PoolId pool);
  // Gives a block's range back. `keep`: its extent may stay mapped for reuse.
  void Release(DeviceAddress address, const Points& after, bool keep);
  void ReleaseExtent(DeviceAddress address, const Points& after, bool keep);
  void Unmap(Extents::iterator extent);
  // Null when there is none.
  Pool* FindPool(PoolId pool);
  void Reserve(Pool& pool, uint64_t bytes);
  void ForgetPoolIfOver(PoolId pool);
  uint64_t Excess() const;  // of all pools
  // Unmaps free memory whose points are reached while all pools together have more to spare than
  // the quick reuse.
  void TrimExcess();
  Extents::iterator FirstOverlapping(DeviceAddress address, uint64_t bytes);
  std::map<DeviceAddress, Block>::iterator FindBlock(DeviceAddress address, uint64_t serial);

  Task<absl::StatusOr<DeviceAddress>> Make(ContextId context, uint64_t bytes,
                                           std::optional<StreamId> stream, PoolId pool);
  Task<absl::Status> AwaitPoints(Points points);
  Task<absl::Status> EnsureMapped(DeviceAddress address, uint64_t bytes, PoolId pool);
  // Of a free range, when its users so far are done with it.
  Task<absl::Status> EnsureUnmapped(DeviceAddress address, uint64_t bytes);
  Task<void> TrimWhenReached(Points points);

  // AddressSpace's calls of these names, with the access of the peers.
  absl::Status MapForAll(DeviceAddress address, uint64_t bytes, const Pool& pool);
  void UnmapForAll(DeviceAddress address, uint64_t bytes, const Pool& pool);
  // After a change of what is mapped or shared.
  void CountMapped(int64_t change);
  // Whether work of other devices may touch some of it.
  bool shared() const;

  GpuCoroutine& coroutine_;
  AddressSpace& space_;
  std::vector<AddressSpace*> peers_;
  RoomSource* room_ = nullptr;
  std::shared_ptr<Quota> quota_;
  const uint64_t granule_;
  const uint64_t limit_;
  uint64_t quick_reuse_ = 64ull << 20;
  uint64_t idle_bytes_ = 0;
  uint64_t kept_bytes_ = 0;
  uint64_t next_serial_ = 1;
  int empty_chunks_ = 0;

  FreeRanges free_;                        // whole granules of the space
  std::map<DeviceAddress, Chunk> chunks_;  // by the address of their granule
  std::map<DeviceAddress, Block> blocks_;  // allocated
  Extents extents_;                        // mapped
  std::map<PoolId, Pool> pools_;
  absl::flat_hash_map<ContextId, uint64_t> used_by_;
  std::atomic<uint64_t> used_{0}, mapped_{0};  // relaxed: for reports only
  std::atomic<uint64_t> movable_{0}, out_{0};  // the same, and what the broker goes by
};

}  // namespace detshare
