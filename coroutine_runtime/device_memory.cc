#include "coroutine_runtime/device_memory.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"

namespace detshare {
namespace {

uint64_t RoundUp(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

// The number of times that one allocation asks for room. Other sessions may take the room first.
constexpr uint64_t kMaxRequests = 8;
// Each attempt asks for more than the previous one, by this fraction (1/256) of the card's memory.
// A card cannot use all of its free memory.
constexpr uint64_t kRequestSlack = 256;

absl::Status OutOfMemory(const char* message) { return CudaError(kCudaErrorOutOfMemory, message); }

absl::Status NoSuchPool() { return CudaError(kCudaErrorInvalidValue, "no such memory pool"); }

bool Among(const std::vector<AddressSpace*>& spaces, const AddressSpace* space) {
  return std::find(spaces.begin(), spaces.end(), space) != spaces.end();
}

}  // namespace

// ---- free ranges

void DeviceMemory::AddPoints(Points& to, const Points& from) {
  for (const FencePoint& point : from) {
    if (point.reached()) continue;
    const auto same = std::find_if(to.begin(), to.end(),
                                   [&](const FencePoint& p) { return p.fence == point.fence; });
    if (same == to.end()) {
      to.push_back(point);
    } else {
      same->value = std::max(same->value, point.value);
    }
  }
}

bool DeviceMemory::AllReached(const Points& points) {
  return std::all_of(points.begin(), points.end(),
                     [](const FencePoint& point) { return point.reached(); });
}

// Takes [address, address + bytes) out of a range that contains it.
void DeviceMemory::FreeRanges::Cut(Ranges::iterator range, DeviceAddress address, uint64_t bytes,
                                   Points* after) {
  const DeviceAddress begin = range->first, end = begin + range->second.bytes;
  AddPoints(*after, range->second.after);
  if (end != address + bytes)
    ranges_.emplace(address + bytes, Range{end - address - bytes, range->second.after});
  if (begin == address) {
    ranges_.erase(range);
  } else {
    range->second.bytes = address - begin;
  }
}

std::optional<DeviceAddress> DeviceMemory::FreeRanges::Take(uint64_t bytes, Points* after) {
  for (auto range = ranges_.begin(); range != ranges_.end(); ++range) {
    if (range->second.bytes < bytes) continue;
    const DeviceAddress address = range->first;
    Cut(range, address, bytes, after);
    return address;
  }
  return std::nullopt;
}

std::optional<DeviceAddress> DeviceMemory::FreeRanges::TakeHighest(uint64_t bytes,
                                                                   uint64_t alignment,
                                                                   Points* after) {
  for (auto range = ranges_.end(); range != ranges_.begin();) {
    --range;
    if (range->second.bytes < bytes) continue;
    const DeviceAddress address =
        (range->first + range->second.bytes - bytes) / alignment * alignment;
    if (address < range->first) continue;
    Cut(range, address, bytes, after);
    return address;
  }
  return std::nullopt;
}

bool DeviceMemory::FreeRanges::TakeAt(DeviceAddress address, uint64_t bytes, Points* after) {
  auto range = ranges_.upper_bound(address);
  if (range == ranges_.begin()) return false;
  --range;
  const uint64_t offset = address - range->first;
  if (offset > range->second.bytes || bytes > range->second.bytes - offset) return false;
  Cut(range, address, bytes, after);
  return true;
}

void DeviceMemory::FreeRanges::Add(DeviceAddress address, uint64_t bytes, Points after) {
  auto next = ranges_.lower_bound(address);
  if (next != ranges_.end() && next->first == address + bytes) {
    bytes += next->second.bytes;
    AddPoints(after, next->second.after);
    next = ranges_.erase(next);
  }
  if (next != ranges_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second.bytes == address) {
      previous->second.bytes += bytes;
      AddPoints(previous->second.after, after);
      return;
    }
  }
  ranges_.emplace(address, Range{bytes, std::move(after)});
}

DeviceMemory::Points DeviceMemory::FreeRanges::FirstPoints() const {
  return ranges_.empty() ? Points() : ranges_.begin()->second.after;
}

// ---- placement, which is deterministic

DeviceMemory::DeviceMemory(GpuCoroutine& coroutine, uint64_t limit)
    : coroutine_(coroutine),
      space_(coroutine.space()),
      granule_(std::max(kAlignment, coroutine.device().properties().memory_granularity)),
      limit_(limit) {
  free_.Add(space_.base(), space_.size() / granule_ * granule_, {});
  pools_.try_emplace(kNoPool);
  pools_.try_emplace(kDefaultPool);
}

DeviceMemory::~DeviceMemory() = default;

absl::StatusOr<DeviceMemory::Placement> DeviceMemory::Place(ContextId context, uint64_t bytes,
                                                            PoolId pool_id) {
  Pool* const pool = FindPool(pool_id);
  if (pool == nullptr) return NoSuchPool();
  if (bytes == 0) return CudaError(kCudaErrorInvalidValue, "an allocation of 0 bytes");
  if (bytes > space_.size()) return OutOfMemory("larger than the session's range of addresses");
  Block block;
  block.requested = bytes;
  block.bytes = RoundUp(bytes, kAlignment);
  block.context = context;
  block.pool = pool_id;
  block.busy = block.being_made = true;
  block.serial = next_serial_++;
  const bool small = block.bytes < granule_;
  if (!small) block.bytes = RoundUp(bytes, granule_);
  const uint64_t used = used_.load(std::memory_order_relaxed);
  if (block.bytes > limit_ || used > limit_ - block.bytes) {
    return OutOfMemory("the session's memory limit is reached");
  }
  if (pool->max_bytes != 0 &&
      (block.bytes > pool->max_bytes || pool->used > pool->max_bytes - block.bytes)) {
    return OutOfMemory("the pool's limit is reached");
  }

  Placement placement;
  placement.pool = pool_id;
  if (!small) {
    const std::optional<DeviceAddress> address = free_.Take(block.bytes, &placement.after);
    if (!address) return OutOfMemory("no free range of addresses");
    placement.address = placement.map_address = *address;
    placement.map_bytes = block.bytes;
  } else {
    std::optional<DeviceAddress> address;
    auto chunk = chunks_.begin();
    for (; chunk != chunks_.end(); ++chunk) {
      if (chunk->second.pool != pool_id) continue;
      address = chunk->second.free.Take(block.bytes, &placement.after);
      if (address) break;
    }
    if (!address) {
      Points after;
      const std::optional<DeviceAddress> base = free_.Take(granule_, &after);
      if (!base) return OutOfMemory("no free range of addresses");
      chunk = chunks_.emplace(*base, Chunk()).first;
      chunk->second.pool = pool_id;
      if (pool_id == kNoPool) ++empty_chunks_;
      chunk->second.free.Add(*base, granule_, std::move(after));
      address = chunk->second.free.Take(block.bytes, &placement.after);
    }
    if (chunk->second.live == 0 && pool_id == kNoPool) --empty_chunks_;
    chunk->second.live += block.bytes;
    placement.address = *address;
    placement.map_address = chunk->first;
    placement.map_bytes = granule_;
  }
  used_.store(used + block.bytes, std::memory_order_relaxed);
  used_by_[context] += block.bytes;
  pool->used += block.bytes;
  blocks_.emplace(placement.address, block);
  return placement;
}

void DeviceMemory::Release(DeviceAddress address, const Points& after, bool keep) {
  const auto found = blocks_.find(address);
  const Block block = found->second;
  blocks_.erase(found);
  used_.store(used_.load(std::memory_order_relaxed) - block.bytes, std::memory_order_relaxed);
  const auto by = used_by_.find(block.context);
  by->second -= block.bytes;
  if (by->second == 0) used_by_.erase(by);
  pools_.at(block.pool).used -= block.bytes;

  auto chunk = chunks_.upper_bound(address);
  if (chunk == chunks_.begin() || std::prev(chunk)->first + granule_ <= address) {
    free_.Add(address, block.bytes, after);
    ReleaseExtent(address, after, keep);
    return ForgetPoolIfOver(block.pool);
  }
  --chunk;
  chunk->second.free.Add(address, block.bytes, after);
  chunk->second.live -= block.bytes;
  if (chunk->second.live != 0) return;
  // One empty chunk is kept for the next small allocation. A pool keeps as much as its release
  // threshold allows.
  if (block.pool == kNoPool && empty_chunks_ == 0) {
    ++empty_chunks_;
    return;
  }
  const DeviceAddress base = chunk->first;
  const Points users = chunk->second.free.FirstPoints();
  chunks_.erase(chunk);
  free_.Add(base, granule_, users);
  ReleaseExtent(base, users, keep);
  ForgetPoolIfOver(block.pool);
}

std::map<DeviceAddress, DeviceMemory::Block>::iterator DeviceMemory::FindBlock(
    DeviceAddress address, uint64_t serial) {
  const auto found = blocks_.find(address);
  return found != blocks_.end() && found->second.serial == serial ? found : blocks_.end();
}

// ---- mapping

absl::Status DeviceMemory::MapForAll(DeviceAddress address, uint64_t bytes, const Pool& pool) {
  absl::Status status = space_.Map(address, bytes);
  if (!status.ok()) return status;
  for (AddressSpace* peer : peers_)
    status.Update(peer->SetAccess(address, bytes, MemoryAccess::kReadWrite));
  for (AddressSpace* peer : pool.peers) {
    if (!Among(peers_, peer))
      status.Update(peer->SetAccess(address, bytes, MemoryAccess::kReadWrite));
  }
  if (!status.ok()) UnmapForAll(address, bytes, pool);
  return status;
}

void DeviceMemory::UnmapForAll(DeviceAddress address, uint64_t bytes, const Pool& pool) {
  for (AddressSpace* peer : peers_)
    peer->SetAccess(address, bytes, MemoryAccess::kNone).IgnoreError();
  for (AddressSpace* peer : pool.peers) {
    if (!Among(peers_, peer)) peer->SetAccess(address, bytes, MemoryAccess::kNone).IgnoreError();
  }
  space_.Unmap(address, bytes).IgnoreError();
}

absl::Status DeviceMemory::Share(AddressSpace& peer) {
  peers_.push_back(&peer);
  absl::Status status;
  for (const auto& [address, extent] : extents_) {
    if (!Among(pools_.at(extent.pool).peers, &peer))
      status.Update(peer.SetAccess(address, extent.bytes, MemoryAccess::kReadWrite));
  }
  if (!status.ok()) Unshare(peer);
  CountMapped(0);
  return status;
}

void DeviceMemory::Unshare(AddressSpace& peer) {
  for (const auto& [address, extent] : extents_) {
    if (!Among(pools_.at(extent.pool).peers, &peer))
      peer.SetAccess(address, extent.bytes, MemoryAccess::kNone).IgnoreError();
  }
  std::erase(peers_, &peer);
  CountMapped(0);
}

void DeviceMemory::CountMapped(int64_t change) {
  const uint64_t mapped = mapped_.load(std::memory_order_relaxed) + static_cast<uint64_t>(change);
  mapped_.store(mapped, std::memory_order_relaxed);
  movable_.store(shared() ? 0 : mapped - kept_bytes_, std::memory_order_relaxed);
}

bool DeviceMemory::shared() const {
  return !peers_.empty() || std::any_of(pools_.begin(), pools_.end(), [](const auto& entry) {
    return !entry.second.peers.empty();
  });
}

absl::Status DeviceMemory::SharePool(PoolId pool_id, AddressSpace& peer) {
  Pool* const pool = FindPool(pool_id);
  if (pool == nullptr) return NoSuchPool();
  if (Among(pool->peers, &peer)) return absl::OkStatus();
  pool->peers.push_back(&peer);
  CountMapped(0);
  if (Among(peers_, &peer)) return absl::OkStatus();
  absl::Status status;
  for (const auto& [address, extent] : extents_) {
    if (extent.pool == pool_id)
      status.Update(peer.SetAccess(address, extent.bytes, MemoryAccess::kReadWrite));
  }
  if (!status.ok()) UnsharePool(pool_id, peer).IgnoreError();
  return status;
}

absl::Status DeviceMemory::UnsharePool(PoolId pool_id, AddressSpace& peer) {
  Pool* const pool = FindPool(pool_id);
  if (pool == nullptr) return NoSuchPool();
  const bool had = std::erase(pool->peers, &peer) != 0;
  CountMapped(0);
  if (!had || Among(peers_, &peer)) return absl::OkStatus();
  for (const auto& [address, extent] : extents_) {
    if (extent.pool == pool_id)
      peer.SetAccess(address, extent.bytes, MemoryAccess::kNone).IgnoreError();
  }
  return absl::OkStatus();
}

// ---- pools

DeviceMemory::Pool* DeviceMemory::FindPool(PoolId pool) {
  const auto found = pools_.find(pool);
  return found != pools_.end() && !found->second.ended ? &found->second : nullptr;
}

void DeviceMemory::Reserve(Pool& pool, uint64_t bytes) {
  pool.reserved += bytes;
  pool.reserved_high = std::max(pool.reserved_high, pool.reserved);
}

void DeviceMemory::ForgetPoolIfOver(PoolId pool) {
  const auto found = pools_.find(pool);
  if (found != pools_.end() && found->second.ended && found->second.used == 0 &&
      found->second.reserved == 0) {
    pools_.erase(found);
  }
}

absl::Status DeviceMemory::CreatePool(PoolId pool, uint64_t max_bytes) {
  if (pools_.size() >= kMaxPools) return OutOfMemory("too many memory pools");
  const auto [made, fresh] = pools_.try_emplace(pool);
  if (!fresh) return CudaError(kCudaErrorInvalidValue, "the id of a new pool is in use");
  made->second.max_bytes = max_bytes;
  return absl::OkStatus();
}

absl::Status DeviceMemory::DestroyPool(PoolId pool_id) {
  Pool* const pool = FindPool(pool_id);
  if (pool == nullptr || pool_id == kNoPool || pool_id == kDefaultPool) return NoSuchPool();
  pool->threshold = 0;
  TrimPool(pool_id, 0).IgnoreError();
  pool->ended = true;
  // Running work may still use idle extents. They are unmapped when this work is complete.
  Points points;
  for (const auto& [address, extent] : extents_) {
    if (extent.pool == pool_id && extent.idle) AddPoints(points, extent.after);
  }
  if (!points.empty()) coroutine_.executor().Spawn(TrimWhenReached(std::move(points)));
  ForgetPoolIfOver(pool_id);
  return absl::OkStatus();
}

absl::Status DeviceMemory::SetReleaseThreshold(PoolId pool_id, uint64_t bytes) {
  Pool* const pool = FindPool(pool_id);
  if (pool == nullptr || pool_id == kNoPool) return NoSuchPool();
  pool->threshold = bytes;
  TrimExcess();
  return absl::OkStatus();
}

absl::Status DeviceMemory::TrimPool(PoolId pool_id, uint64_t keep) {
  Pool* const pool = FindPool(pool_id);
  if (pool == nullptr || pool_id == kNoPool) return NoSuchPool();
  for (auto extent = extents_.begin(); extent != extents_.end() && pool->reserved > keep;) {
    const auto current = extent++;
    if (current->second.pool == pool_id && current->second.idle &&
        AllReached(current->second.after)) {
      Unmap(current);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<DeviceMemory::PoolUse> DeviceMemory::UseOf(PoolId pool_id) {
  Pool* const pool = FindPool(pool_id);
  if (pool == nullptr || pool_id == kNoPool) return NoSuchPool();
  TrimPool(pool_id, pool->threshold).IgnoreError();
  return PoolUse{pool->reserved, pool->reserved_high};
}

absl::Status DeviceMemory::ResetHighMark(PoolId pool_id) {
  Pool* const pool = FindPool(pool_id);
  if (pool == nullptr || pool_id == kNoPool) return NoSuchPool();
  pool->reserved_high = pool->reserved;
  return absl::OkStatus();
}

uint64_t DeviceMemory::Excess() const {
  uint64_t excess = 0;
  for (const auto& [id, pool] : pools_) excess += pool.excess();
  return excess;
}

void DeviceMemory::TrimExcess() {
  for (auto extent = extents_.begin(); extent != extents_.end() && Excess() > quick_reuse_;) {
    const auto current = extent++;
    if (current->second.idle && pools_.at(current->second.pool).excess() != 0 &&
        AllReached(current->second.after)) {
      Unmap(current);
    }
  }
}

// ---- extents

DeviceMemory::Extents::iterator DeviceMemory::FirstOverlapping(DeviceAddress address,
                                                               uint64_t bytes) {
  auto extent = extents_.upper_bound(address);
  if (extent != extents_.begin() &&
      std::prev(extent)->first + std::prev(extent)->second.bytes > address) {
    return std::prev(extent);
  }
  return extent != extents_.end() && extent->first < address + bytes ? extent : extents_.end();
}

void DeviceMemory::Unmap(Extents::iterator extent) {
  const uint64_t bytes = extent->second.bytes;
  const PoolId pool_id = extent->second.pool;
  Pool& pool = pools_.at(pool_id);
  if (extent->second.idle) {
    idle_bytes_ -= bytes;
    pool.idle -= bytes;
  }
  pool.reserved -= bytes;
  const bool out = static_cast<bool>(extent->second.out);
  if (extent->second.kept) kept_bytes_ -= bytes;
  // If the device is lost, memory cannot be unmapped. It ends with the address space.
  if (!out) UnmapForAll(extent->first, bytes, pool);
  extents_.erase(extent);
  if (out) {
    out_.store(out_.load(std::memory_order_relaxed) - bytes, std::memory_order_relaxed);
  } else {
    CountMapped(-static_cast<int64_t>(bytes));
  }
  ForgetPoolIfOver(pool_id);
}

void DeviceMemory::ReleaseExtent(DeviceAddress address, const Points& after, bool keep) {
  const auto extent = extents_.find(address);
  // An allocation that failed before it was mapped has no extent, or an idle one of earlier users.
  if (extent == extents_.end() || extent->second.idle) return;
  extent->second.idle = true;
  extent->second.after = after;
  idle_bytes_ += extent->second.bytes;
  Pool& pool = pools_.at(extent->second.pool);
  pool.idle += extent->second.bytes;
  const bool reached = AllReached(after);
  if (reached && (!keep || pool.ended)) return Unmap(extent);
  if (Excess() <= quick_reuse_ && !pool.ended) return;
  if (reached) return TrimExcess();
  coroutine_.executor().Spawn(TrimWhenReached(after));
}

absl::StatusOr<QuotaCharge> DeviceMemory::TakeQuota(uint64_t bytes) {
  if (std::optional<QuotaCharge> charge = Quota::TryTake(quota_, bytes)) return *std::move(charge);
  Trim(0);
  return Quota::Take(quota_, bytes);
}

void DeviceMemory::Trim(uint64_t keep) {
  for (auto extent = extents_.begin(); extent != extents_.end() && idle_bytes_ > keep;) {
    const auto current = extent++;
    if (current->second.idle && AllReached(current->second.after)) Unmap(current);
  }
}

Task<void> DeviceMemory::TrimWhenReached(Points points) {
  const absl::Status status = co_await AwaitPoints(std::move(points));
  if (!status.ok()) co_return;
  // Pools that have ended keep nothing.
  for (auto extent = extents_.begin(); extent != extents_.end();) {
    const auto current = extent++;
    if (current->second.idle && pools_.at(current->second.pool).ended &&
        AllReached(current->second.after)) {
      Unmap(current);
    }
  }
  TrimExcess();
}

Task<absl::Status> DeviceMemory::AwaitPoints(Points points) {
  for (const FencePoint& point : points) {
    if (point.reached()) continue;
    const bool reached = co_await coroutine_.executor().Reached(point.fence, point.value);
    if (!reached) {
      const absl::Status fault = space_.fault();
      co_return fault.ok() ? CudaError(kCudaErrorUnknown, "the session's work was lost") : fault;
    }
  }
  co_return absl::OkStatus();
}

// Other calls run while this one waits, so it looks everything up again afterwards.
Task<absl::Status> DeviceMemory::EnsureMapped(DeviceAddress address, uint64_t bytes,
                                              PoolId pool_id) {
  std::unique_ptr<RoomTicket> ticket;
  uint64_t requests = 0;
  for (;;) {
    // The pool lives as long as this call, because the allocation counts as used memory of it and
    // only Make() releases the allocation.
    Pool& pool = pools_.at(pool_id);
    const auto extent = FirstOverlapping(address, bytes);
    if (extent == extents_.end()) {
      // Idle extents count neither against the session's limit nor against the card, because they
      // are unmapped below if room is short.
      const bool crowded = idle_bytes_ != 0 && (bytes > limit_ || mapped() > limit_ - bytes);
      std::optional<QuotaCharge> charge;
      absl::Status mapped;
      if (idle_bytes_ == 0) {
        // Evicting other sessions' memory makes no room in the quota, so this error is final.
        DETSHARE_CO_ASSIGN_OR_RETURN(charge, Quota::Take(quota_, bytes));
      } else {
        charge = Quota::TryTake(quota_, bytes);
      }
      if (crowded || !charge.has_value()) {
        mapped = OutOfMemory("the session's memory limit is reached");
      } else {
        mapped = MapForAll(address, bytes, pool);
      }
      if (mapped.ok()) {
        Extent& made = extents_[address];
        made.bytes = bytes;
        made.pool = pool_id;
        made.charge = std::make_shared<const QuotaCharge>(*std::move(charge));
        Reserve(pool, bytes);
        CountMapped(static_cast<int64_t>(bytes));
        co_return mapped;
      }
      if (CudaResultOf(mapped) != kCudaErrorOutOfMemory) co_return mapped;
      if (idle_bytes_ == 0) {
        const bool room = co_await MakeRoom(bytes, requests++, &ticket);
        if (!room) co_return mapped;
        continue;
      }
      // Unmapping idle extents may make room.
      const uint64_t before = idle_bytes_;
      Trim(0);
      if (idle_bytes_ != before) continue;
      const auto idle = std::find_if(extents_.begin(), extents_.end(),
                                     [](const auto& entry) { return entry.second.idle; });
      DETSHARE_CO_RETURN_IF_ERROR(co_await AwaitPoints(idle->second.after));
      continue;
    }
    Pool& owner = pools_.at(extent->second.pool);
    if (extent->first == address && extent->second.bytes == bytes && owner.peers == pool.peers) {
      if (extent->second.idle) {
        idle_bytes_ -= bytes;
        owner.idle -= bytes;
      }
      extent->second.idle = false;
      const PoolId before = std::exchange(extent->second.pool, pool_id);
      if (before != pool_id) {
        owner.reserved -= bytes;
        Reserve(pool, bytes);
        ForgetPoolIfOver(before);
      }
      co_return absl::OkStatus();
    }
    // This is an old mapping with other borders. It overlaps, so its range is free.
    if (AllReached(extent->second.after)) {
      Unmap(extent);
      continue;
    }
    DETSHARE_CO_RETURN_IF_ERROR(co_await AwaitPoints(extent->second.after));
  }
}

Task<bool> DeviceMemory::MakeRoom(uint64_t bytes, uint64_t attempt,
                                  std::unique_ptr<RoomTicket>* ticket) {
  const uint64_t before = mapped();
  Trim(0);
  if (mapped() != before) co_return true;
  ticket->reset();
  const uint64_t card = coroutine_.device().properties().total_memory;
  if (room_ == nullptr || attempt >= kMaxRequests || bytes > card) co_return false;
  *ticket = room_->Ask(bytes + card / kRequestSlack * attempt);
  if (*ticket == nullptr) co_return false;
  const std::atomic<uint64_t>& state = (*ticket)->state();
  const bool reached = co_await coroutine_.executor().ReachedByOthers(&state, RoomTicket::kGranted);
  co_return reached&& state.load() == RoomTicket::kGranted;
}

Task<absl::Status> DeviceMemory::EnsureUnmapped(DeviceAddress address, uint64_t bytes) {
  for (auto extent = FirstOverlapping(address, bytes); extent != extents_.end();
       extent = FirstOverlapping(address, bytes)) {
    if (!AllReached(extent->second.after)) {
      DETSHARE_CO_RETURN_IF_ERROR(co_await AwaitPoints(extent->second.after));
      continue;
    }
    Unmap(extent);
  }
  co_return absl::OkStatus();
}

// ---- eviction and return

std::shared_ptr<const QuotaCharge> DeviceMemory::ChargeOf(DeviceAddress address) {
  const auto extent = FirstOverlapping(address, 1);
  return extent != extents_.end() ? extent->second.charge : nullptr;
}

void DeviceMemory::KeepInPlace(DeviceAddress address) {
  const auto extent = FirstOverlapping(address, 1);
  if (extent == extents_.end() || extent->second.kept || extent->second.out) return;
  extent->second.kept = true;
  kept_bytes_ += extent->second.bytes;
  CountMapped(0);
}

absl::StatusOr<uint64_t> DeviceMemory::MoveOut(uint64_t bytes, HostStore& store, CopyPieces copy) {
  uint64_t gone = 0;
  if (shared()) return gone;
  std::set<std::pair<uint64_t, DeviceAddress>> candidates;
  for (const auto& [address, extent] : extents_) {
    if (!extent.out && !extent.kept) candidates.emplace(extent.bytes, address);
  }
  // Extents are evicted whole. The next one is the smallest that is large enough, or the largest if
  // none is.
  std::vector<std::pair<Extents::iterator, HostBlock>> leaving;
  std::vector<MovePiece> pieces;
  uint64_t planned = gone;
  absl::Status no_room;
  while (planned < bytes && !candidates.empty()) {
    auto chosen = candidates.lower_bound({bytes - planned, 0});
    if (chosen == candidates.end()) --chosen;
    const auto [size, address] = *chosen;
    candidates.erase(chosen);
    absl::StatusOr<HostBlock> block = store.Take(size);
    if (!block.ok()) {
      no_room = block.status();
      continue;
    }
    pieces.push_back({address, block->memory(), size});
    leaving.emplace_back(extents_.find(address), *std::move(block));
    planned += size;
  }
  if (pieces.empty() && !no_room.ok()) return no_room;
  if (pieces.empty()) return gone;
  DETSHARE_RETURN_IF_ERROR(copy(pieces));
  for (auto& [extent, block] : leaving) {
    const uint64_t size = extent->second.bytes;
    space_.Unmap(extent->first, size).IgnoreError();
    extent->second.out = std::move(block);
    out_.store(out_.load(std::memory_order_relaxed) + size, std::memory_order_relaxed);
    CountMapped(-static_cast<int64_t>(size));
    gone += size;
  }
  return gone;
}

absl::StatusOr<uint64_t> DeviceMemory::MoveIn(CopyPieces copy) {
  std::vector<Extents::iterator> returning;
  std::vector<MovePiece> pieces;
  absl::Status status;
  uint64_t too_large = std::numeric_limits<uint64_t>::max(), back = 0;
  for (auto extent = extents_.begin(); extent != extents_.end(); ++extent) {
    const uint64_t size = extent->second.bytes;
    if (!extent->second.out || size >= too_large) continue;
    status = space_.Map(extent->first, size);
    if (CudaResultOf(status) == kCudaErrorOutOfMemory) {
      too_large = size;
      continue;
    }
    if (!status.ok()) break;
    returning.push_back(extent);
    pieces.push_back({extent->first, extent->second.out.memory(), size});
  }
  if (!pieces.empty() && (status.ok() || CudaResultOf(status) == kCudaErrorOutOfMemory))
    status = copy(pieces);
  for (const Extents::iterator extent : returning) {
    const uint64_t size = extent->second.bytes;
    if (!status.ok()) {
      space_.Unmap(extent->first, size).IgnoreError();
      continue;
    }
    extent->second.out = {};
    out_.store(out_.load(std::memory_order_relaxed) - size, std::memory_order_relaxed);
    CountMapped(static_cast<int64_t>(size));
    back += size;
  }
  if (!status.ok()) return status;
  return back;
}

uint64_t DeviceMemory::smallest_out() const {
  uint64_t smallest = 0;
  for (const auto& [address, extent] : extents_) {
    if (extent.out && (smallest == 0 || extent.bytes < smallest)) smallest = extent.bytes;
  }
  return smallest;
}

// ---- calls

Task<absl::StatusOr<DeviceAddress>> DeviceMemory::Make(ContextId context, uint64_t bytes,
                                                       std::optional<StreamId> stream,
                                                       PoolId pool) {
  DETSHARE_CO_ASSIGN_OR_RETURN(const Placement placement, Place(context, bytes, pool));
  absl::Status status;
  if (!stream) status = co_await AwaitPoints(placement.after);
  if (status.ok()) status = co_await EnsureMapped(placement.map_address, placement.map_bytes, pool);
  if (stream && status.ok()) {
    for (const FencePoint& point : placement.after) {
      status.Update(coroutine_.WaitPoint(*stream, point));
    }
  }
  Block& block = blocks_.at(placement.address);
  if (block.abandoned) {
    status = CudaError(kCudaErrorInvalidContext, "the context ended during the allocation");
  }
  if (!status.ok()) {
    Release(placement.address, placement.after, /*keep=*/false);
    co_return status;
  }
  block.busy = block.being_made = false;
  co_return placement.address;
}

Task<absl::StatusOr<DeviceAddress>> DeviceMemory::Reserve(uint64_t bytes, uint64_t alignment,
                                                          DeviceAddress wanted) {
  if (bytes == 0 || (alignment & (alignment - 1)) != 0)
    co_return CudaError(kCudaErrorInvalidValue,
                        "0 bytes, or an alignment that is not a power of two");
  if (bytes > space_.size()) co_return OutOfMemory("larger than the session's range of addresses");
  const uint64_t unit = std::max(granule_, kPhysicalGranule);
  bytes = RoundUp(bytes, unit);
  alignment = std::max(alignment, unit);
  Points after;
  std::optional<DeviceAddress> address;
  if (wanted != 0 && wanted % alignment == 0 && free_.TakeAt(wanted, bytes, &after)) {
    address = wanted;
  } else {
    address = free_.TakeHighest(bytes, alignment, &after);
  }
  if (!address) co_return OutOfMemory("no free range of addresses");
  absl::Status status = co_await AwaitPoints(after);
  if (status.ok()) status = co_await EnsureUnmapped(*address, bytes);
  if (!status.ok()) {
    free_.Add(*address, bytes, std::move(after));
    co_return status;
  }
  co_return *address;
}

void DeviceMemory::FreeReservation(DeviceAddress address, uint64_t bytes) {
  free_.Add(address, RoundUp(bytes, std::max(granule_, kPhysicalGranule)), {});
}

Task<absl::StatusOr<DeviceAddress>> DeviceMemory::Allocate(ContextId context, uint64_t bytes) {
  return Make(context, bytes, std::nullopt, kNoPool);
}

Task<absl::StatusOr<DeviceAddress>> DeviceMemory::AllocateAsync(ContextId context, uint64_t bytes,
                                                                StreamId stream, PoolId pool) {
  return Make(context, bytes, stream, pool);
}

Task<absl::Status> DeviceMemory::Free(DeviceAddress address) {
  const auto found = blocks_.find(address);
  if (found == blocks_.end() || found->second.busy) {
    co_return CudaError(kCudaErrorInvalidValue, "not an allocation of this session");
  }
  found->second.busy = true;
  const uint64_t serial = found->second.serial;
  DETSHARE_CO_RETURN_IF_ERROR(co_await coroutine_.IdleForMemory());
  const auto block = FindBlock(address, serial);
  if (block != blocks_.end()) Release(address, {}, /*keep=*/block->second.pool != kNoPool);
  co_return absl::OkStatus();
}

absl::Status DeviceMemory::FreeAsync(DeviceAddress address, StreamId stream) {
  const absl::StatusOr<FencePoint> point = coroutine_.Point(stream);
  return point.ok() ? FreeAtPoint(address, *point) : point.status();
}

absl::Status DeviceMemory::FreeAtPoint(DeviceAddress address, const FencePoint& point) {
  const auto found = blocks_.find(address);
  if (found == blocks_.end() || found->second.busy) {
    return CudaError(kCudaErrorInvalidValue, "not an allocation of this session");
  }
  Release(address, Points{point}, /*keep=*/true);
  return absl::OkStatus();
}

void DeviceMemory::FreeContext(ContextId context) {
  std::vector<DeviceAddress> addresses;
  for (auto& [address, block] : blocks_) {
    if (block.context != context) continue;
    // Make() still waits for the block's range, its memory or its pool.
    if (block.being_made) {
      block.abandoned = true;
    } else {
      addresses.push_back(address);
    }
  }
  for (DeviceAddress address : addresses) Release(address, {}, /*keep=*/false);
}

std::optional<DeviceMemory::Allocation> DeviceMemory::Find(DeviceAddress address) const {
  const auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) return std::nullopt;
  const auto& [base, block] = *std::prev(next);
  if (block.busy || address - base >= block.requested) return std::nullopt;
  return Allocation{base, block.requested, block.context};
}

uint64_t DeviceMemory::used_by(ContextId context) const {
  const auto found = used_by_.find(context);
  return found == used_by_.end() ? 0 : found->second;
}

}  // namespace detshare
