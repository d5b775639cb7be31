// The device memory of one session on one device: the addresses that it hands out, the memory that
// is mapped there, and the pool that owns each range.
//
// Addresses are deterministic: only the sequence of a session's calls decides them, never time. A
// range can be reused from the call on that frees it. If that call was ordered on a stream, the
// range keeps the stream's point, and the next user of the range waits for the point (on its own
// stream, or before the reply).
//
//     range free  --Allocate: lowest address that fits-->  allocated
//     allocated   --Free: after the session is idle------>  range free
//     allocated   --FreeAsync: at once, with the stream's point-->  range free
//
// Mappings change later than addresses. Allocations of at least one granule are mapped exactly
// (rounded up), and unmapped when they are free and their point is reached. Smaller allocations
// share granules, and one empty shared granule is kept. Memory is zero when it is first mapped. A
// range that is reused while it is still mapped keeps the data that the same session wrote.
//
// Stream-ordered allocations come from pools. A pool reserves the mapped memory of its allocations.
// It keeps free memory reserved up to its release threshold, plus a small amount for quick reuse.
// If another pool gets a free range, the memory of the range moves to that pool.
//
// While nothing of the session runs, its memory can move from the card to the host and back to the
// same addresses (MoveOut, MoveIn). Nothing uses the memory in between. When the card is full, the
// session can ask for other sessions' memory to be evicted (memory_room.h).
//
// Threading: one thread, the executor's; used(), mapped(), movable() and out() from any thread.
// Lifetime: tasks must end before the object does.
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
  static constexpr uint64_t kAlignment = 512;  // of every address, as with cuMemAlloc

  // `limit`: maximum bytes allocated at a time.
  explicit DeviceMemory(GpuCoroutine& coroutine, uint64_t limit = UINT64_MAX);
  ~DeviceMemory();  // unmaps nothing; the address space does
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  AddressSpace& space() { return space_; }

  // Allocates memory that is valid at once (cuMemAlloc). CUDA_ERROR_INVALID_VALUE for 0 bytes;
  // CUDA_ERROR_OUT_OF_MEMORY. Completes at once, unless work of the session still uses the range or
  // memory that the allocation needs.
  Task<absl::StatusOr<DeviceAddress>> Allocate(ContextId context, uint64_t bytes);
  // Allocates memory of the pool, valid for work ordered after `stream` (cuMemAllocFromPoolAsync).
  // CUDA_ERROR_INVALID_VALUE for an unknown pool.
  Task<absl::StatusOr<DeviceAddress>> AllocateAsync(ContextId context, uint64_t bytes,
                                                    StreamId stream, PoolId pool = kDefaultPool);

  // Completes when the session's work is complete and the memory is freed (cuMemFree).
  // CUDA_ERROR_INVALID_VALUE, at once, if no allocation returned `address` or it was freed before.
  Task<absl::Status> Free(DeviceAddress address);
  // Frees at the present point of `stream` (cuMemFreeAsync).
  absl::Status FreeAsync(DeviceAddress address, StreamId stream);
  // Frees at a point of a stream of another device of the session.
  absl::Status FreeAtPoint(DeviceAddress address, const FencePoint& point);
  // Frees all allocations of `context`, whose work is complete (GpuCoroutine::DestroyContext).
  // Allocations that still wait fail with CUDA_ERROR_INVALID_CONTEXT when their wait ends.
  void FreeContext(ContextId context);

  // Reserves a range of at least `bytes` addresses with nothing mapped, for memory that the caller
  // maps. If `wanted` is not 0, the range is there if that is aligned and free. Otherwise it is the
  // highest range that fits, which keeps it away from allocations. The size is in whole units of
  // kPhysicalGranule; `alignment` is a power of two. Waits for earlier users of the range.
  // CUDA_ERROR_OUT_OF_MEMORY.
  Task<absl::StatusOr<DeviceAddress>> Reserve(uint64_t bytes, uint64_t alignment,
                                              DeviceAddress wanted);
  // `address` and `bytes` (rounded) are those of one Reserve. Nothing is mapped there.
  void FreeReservation(DeviceAddress address, uint64_t bytes);

  // Work of `peer`, the session's space on another device, may access all present and future
  // allocations.
  absl::Status Share(AddressSpace& peer);
  // Ends this access. No such work is in flight.
  void Unshare(AddressSpace& peer);

  // Sets the source of room on a full card; null: none. It outlives the tasks.
  void set_room(RoomSource* room) { room_ = room; }
  // Gives free memory back, then asks other sessions to evict memory, until the card has room for
  // `bytes` that are not mapped here. `attempt` is the number of earlier attempts, because others
  // may take the freed room first. Returns false if another attempt is useless. The caller keeps
  // the ticket until it has the memory.
  Task<bool> MakeRoom(uint64_t bytes, uint64_t attempt, std::unique_ptr<RoomTicket>* ticket);
  // Charges all memory mapped from this call on to the quota, on the card or out of it; null: none.
  void set_quota(std::shared_ptr<Quota> quota) { quota_ = std::move(quota); }
  // For memory that others can also access: the quota charge of the memory mapped at `address`,
  // which every holder of the memory keeps. Null if nothing is mapped there.
  std::shared_ptr<const QuotaCharge> ChargeOf(DeviceAddress address);
  // From this call on, the memory mapped at `address` does not move.
  void KeepInPlace(DeviceAddress address);
  using CopyPieces = absl::FunctionRef<absl::Status(absl::Span<const MovePiece>)>;
  // Gives back `bytes` of the card or slightly more, or all that there is. The data moves into
  // blocks of `store`. Kept free memory moves like any other, so the program sees no difference.
  // Nothing of the session runs or waits on the device, except tasks that wait for room. Returns
  // the bytes that moved, which are fewer if `store` has no room for more. On an error nothing
  // moves.
  absl::StatusOr<uint64_t> MoveOut(uint64_t bytes, HostStore& store, CopyPieces copy);
  // Brings back as much as fits, and returns the bytes. CUDA_ERROR_OUT_OF_MEMORY if the card has no
  // room for any of it. On an error nothing comes back.
  absl::StatusOr<uint64_t> MoveIn(CopyPieces copy);
  // The size in bytes of the smallest mapping that is out; 0 if none is.
  uint64_t smallest_out() const;

  struct Allocation {
    DeviceAddress address = 0;
    uint64_t bytes = 0;  // as requested
    ContextId context = 0;
  };
  // The allocation that contains `address`.
  std::optional<Allocation> Find(DeviceAddress address) const;

  // Pools. The default pool always exists. kNoPool is for memory of cuMemAlloc.
  static constexpr PoolId kNoPool = 0, kDefaultPool = 1;
  static constexpr size_t kMaxPools = 1024;
  // `max_bytes`: maximum bytes allocated at a time; 0: unlimited.
  absl::Status CreatePool(PoolId pool, uint64_t max_bytes);
  // Its allocations stay. Nothing more is allocated from it, and it keeps no free memory.
  absl::Status DestroyPool(PoolId pool);
  // Sets the bytes that the pool may keep reserved before it gives free memory back
  // (CU_MEMPOOL_ATTR_RELEASE_THRESHOLD). Initially 0.
  absl::Status SetReleaseThreshold(PoolId pool, uint64_t bytes);
  // Gives back free memory whose points are reached, until the pool has only `keep` bytes reserved.
  absl::Status TrimPool(PoolId pool, uint64_t keep);
  struct PoolUse {
    uint64_t reserved = 0, reserved_high = 0;
  };
  // Gives back the memory that the pool need not keep, then returns its reservation in bytes.
  absl::StatusOr<PoolUse> UseOf(PoolId pool);
  // Resets the high mark to the present reservation.
  absl::Status ResetHighMark(PoolId pool);
  // As Share and Unshare, for the pool's present and future reservation.
  absl::Status SharePool(PoolId pool, AddressSpace& peer);
  absl::Status UnsharePool(PoolId pool, AddressSpace& peer);

  // Sets the bytes of free memory that stay mapped beyond the pools' thresholds.
  void set_quick_reuse(uint64_t bytes) { quick_reuse_ = bytes; }
  // Unmaps free memory whose points are reached, until `keep` bytes remain.
  void Trim(uint64_t keep);
  // Takes memory outside of the pools from the session's quota. If the quota does not suffice, the pools
  // give back what they keep idle.
  absl::StatusOr<QuotaCharge> TakeQuota(uint64_t bytes);

  // Bytes allocated, rounded.
  uint64_t used() const { return used_.load(std::memory_order_relaxed); }
  uint64_t mapped() const { return mapped_.load(std::memory_order_relaxed); }  // bytes of the card
  uint64_t used_by(ContextId context) const;
  // Bytes of the card that MoveOut could give back, and bytes that are out.
  uint64_t movable() const { return movable_.load(std::memory_order_relaxed); }
  uint64_t out() const { return out_.load(std::memory_order_relaxed); }

 private:
  using Points = absl::InlinedVector<FencePoint, 2>;
  // Free ranges by address. No range is empty, and no two are adjacent.
  class FreeRanges {
   public:
    // Takes the lowest range of at least `bytes`, and adds its points to *after.
    std::optional<DeviceAddress> Take(uint64_t bytes, Points* after);
    // Takes the highest aligned range.
    std::optional<DeviceAddress> TakeHighest(uint64_t bytes, uint64_t alignment, Points* after);
    // Returns false if a part of it is not free.
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
    bool busy = false;        // being created or freed, so not visible to the client
    bool being_made = false;  // only Make() may release it
    bool abandoned = false;   // its context ended while it was being made
    uint64_t serial = 0;      // distinguishes blocks at the same address
  };
  // A granule that small allocations of one pool share.
  struct Chunk {
    PoolId pool = kNoPool;
    FreeRanges free;
    uint64_t live = 0;  // bytes allocated
  };
  // The memory of one AddressSpace::Map.
  struct Extent {
    uint64_t bytes = 0;
    PoolId pool = kNoPool;
    bool idle = false;  // free, but still mapped
    bool kept = false;  // does not move
    HostBlock out;      // the contents while they are not on the card
    std::shared_ptr<const QuotaCharge> charge;
    Points after;  // of an idle extent: must be reached before it is unmapped
  };
  struct Pool {
    uint64_t max_bytes = 0;
    uint64_t threshold = 0;
    uint64_t used = 0;  // bytes allocated, rounded
    uint64_t reserved = 0, reserved_high = 0;
    uint64_t idle = 0;  // of the reserved bytes
    bool ended = false;
    std::vector<AddressSpace*> peers;  // besides peers_

    // Free memory in bytes that the pool need not keep.
    uint64_t excess() const {
      return reserved > threshold ? std::min(idle, reserved - threshold) : 0;
    }
  };
  struct Placement {
    DeviceAddress address = 0;
    DeviceAddress map_address = 0;  // the range to map: the block or its granule
    uint64_t map_bytes = 0;
    PoolId pool = kNoPool;
    Points after;  // of the range's earlier users
  };
  using Extents = std::map<DeviceAddress, Extent>;

  static void AddPoints(Points& to, const Points& from);
  static bool AllReached(const Points& points);

  absl::StatusOr<Placement> Place(ContextId context, uint64_t bytes, PoolId pool);
  // Gives a block's range back. With `keep`, its extent may stay mapped for reuse.
  void Release(DeviceAddress address, const Points& after, bool keep);
  void ReleaseExtent(DeviceAddress address, const Points& after, bool keep);
  void Unmap(Extents::iterator extent);
  // Null if there is none.
  Pool* FindPool(PoolId pool);
  void Reserve(Pool& pool, uint64_t bytes);
  void ForgetPoolIfOver(PoolId pool);
  uint64_t Excess() const;  // of all pools
  // Unmaps free memory whose points are reached, while the excess of all pools together is above
  // the quick reuse.
  void TrimExcess();
  Extents::iterator FirstOverlapping(DeviceAddress address, uint64_t bytes);
  std::map<DeviceAddress, Block>::iterator FindBlock(DeviceAddress address, uint64_t serial);

  Task<absl::StatusOr<DeviceAddress>> Make(ContextId context, uint64_t bytes,
                                           std::optional<StreamId> stream, PoolId pool);
  Task<absl::Status> AwaitPoints(Points points);
  Task<absl::Status> EnsureMapped(DeviceAddress address, uint64_t bytes, PoolId pool);
  // For a free range, once its earlier users have finished with it.
  Task<absl::Status> EnsureUnmapped(DeviceAddress address, uint64_t bytes);
  Task<void> TrimWhenReached(Points points);

  // AddressSpace's calls of these names, including the access of peers.
  absl::Status MapForAll(DeviceAddress address, uint64_t bytes, const Pool& pool);
  void UnmapForAll(DeviceAddress address, uint64_t bytes, const Pool& pool);
  // Called after a change of the mapped or shared memory. `change` is in bytes.
  void CountMapped(int64_t change);
  // Whether work of other devices may access some of the memory.
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
  std::atomic<uint64_t> movable_{0}, out_{0};  // relaxed: for reports and the broker's decisions
};

}  // namespace detshare
