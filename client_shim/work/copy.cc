#include "client_shim/work/copy.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "client_shim/base/log.h"
#include "client_shim/memory/shared_memory.h"
#include "client_shim/objects/waits.h"
#include "client_shim/transport/read_digest.h"
#include "client_shim/transport/session.h"
#include "client_shim/transport/staging.h"
#include "client_shim/work/copy_threads.h"
#include "client_shim/work/streams.h"
#include "proto/wire/common.h"
#include "proto/wire/copy.h"
#include "proto/wire/stream.h"

namespace detshare::shim {
namespace {

// Several CPUs copy more bytes than this.
constexpr uint64_t kParallelBytes = 1 << 20;

Staging& staging() {
  static Staging* const area = new Staging(session().staging(), session().staging_bytes(),
                                           session().fences(), session().closed_word());
  return *area;
}

wire::Location AtAddress(uint64_t address) { return {address, wire::kAddress, 0}; }
wire::Location InChunk(const StagingChunk& chunk) { return {chunk.offset, wire::kStaging, 0}; }

uint64_t RoomIn(bool large) { return large ? staging().large_bytes() : Staging::kSmallBytes; }

// The rows of a copy that has ordinary host memory on one side, cut into tasks that fit a chunk. A
// row that does not fit is cut, too. A linear copy has one row.
class StagedCopy {
 public:
  StagedCopy(Stream& stream, bool to_device, const PitchedPlace& device, std::byte* host,
             uint64_t host_row_pitch, uint64_t host_slice_pitch, uint64_t width, uint64_t height,
             uint64_t depth, bool synchronous)
      : stream_(stream),
        to_device_(to_device),
        device_(device),
        host_(host),
        host_row_pitch_(host_row_pitch),
        host_slice_pitch_(host_slice_pitch),
        width_(width),
        height_(height),
        depth_(depth),
        synchronous_(synchronous && to_device ? 1 : 0),
        large_(width * height * depth > Staging::kSmallBytes) {
    const uint64_t room = RoomIn(large_);
    piece_ = std::min(width, room);
    pieces_ = (width + piece_ - 1) / piece_;
    rows_ = pieces_ > 1 ? 1 : std::min(height, room / width);
    groups_ = (height + rows_ - 1) / rows_;
    tiles_ = pieces_ * groups_ * depth;
  }

  CUresult Run() {
    const auto work = [](void* self) { static_cast<StagedCopy*>(self)->Work(); };
    if (tiles_ > 1 && width_ * height_ * depth_ > kParallelBytes) {
      RunWithHelpers(work, this);
    } else {
      Work();
    }
    return static_cast<CUresult>(error_.load(std::memory_order_relaxed));
  }

 private:
  struct Tile {
    uint64_t slice, row, rows, offset, bytes;
  };

  Tile TileAt(uint64_t index) const {
    const uint64_t piece = index % pieces_;
    const uint64_t group = index / pieces_ % groups_;
    Tile tile;
    tile.slice = index / pieces_ / groups_;
    tile.row = group * rows_;
    tile.rows = std::min(rows_, height_ - tile.row);
    tile.offset = piece * piece_;
    tile.bytes = std::min(piece_, width_ - tile.offset);
    return tile;
  }

  std::byte* HostRow(const Tile& tile, uint64_t row) const {
    return host_ + tile.slice * host_slice_pitch_ + (tile.row + row) * host_row_pitch_ +
           tile.offset;
  }

  void Fail(CUresult error) {
    int none = CUDA_SUCCESS;
    error_.compare_exchange_strong(none, error, std::memory_order_relaxed);
  }

  CUresult Submit(const Tile& tile, StagingChunk& chunk) {
    const wire::PitchedLocation at = device_.Location(tile.offset, tile.row, tile.slice);
    const wire::Signal signal = chunk.NextSignal();
    CUresult result;
    if (tile.rows == 1 && !device_.in_array()) {
      wire::cuMemcpyAsync args{at.location, InChunk(chunk), tile.bytes,
                               stream_.id,  synchronous_,   signal};
      if (!to_device_) std::swap(args.destination, args.source);
      result = SubmitWork(stream_, Op::cuMemcpyAsync, args);
    } else {
      wire::cuMemcpy3DAsync_v2 args{at,
                                    {InChunk(chunk), tile.bytes, tile.bytes * tile.rows},
                                    tile.bytes,
                                    tile.rows,
                                    1,
                                    stream_.id,
                                    synchronous_,
                                    signal};
      if (!to_device_) std::swap(args.destination, args.source);
      result = SubmitWork(stream_, Op::cuMemcpy3DAsync_v2, args);
    }
    if (result != CUDA_SUCCESS) {
      --chunk.value;  // no copy will signal this value
      Fail(result);
    }
    return result;
  }

  // May run on several threads.
  void Work() { to_device_ ? Send() : Receive(); }

  void Send() {
    for (uint64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < tiles_ && !failed();) {
      StagingChunk* chunk = staging().Acquire(large_);
      if (chunk == nullptr) return Fail(session().Lost());
      const Tile tile = TileAt(i);
      for (uint64_t row = 0; row < tile.rows; ++row)
        memcpy(chunk->memory + row * tile.bytes, HostRow(tile, row), tile.bytes);
      Submit(tile, *chunk);
      staging().Release(chunk);
    }
  }

  // Copies one chunk out while the GPU fills the next.
  void Receive() {
    Tile pending_tile{};
    StagingChunk* pending = nullptr;
    const auto finish = [&] {
      if (pending == nullptr) return;
      const CUresult result = AwaitSignal(stream_, pending->fence, pending->value);
      if (result != CUDA_SUCCESS) {
        Fail(result);
      } else {
        for (uint64_t row = 0; row < pending_tile.rows; ++row) {
          memcpy(HostRow(pending_tile, row), pending->memory + row * pending_tile.bytes,
                 pending_tile.bytes);
        }
      }
      staging().Release(pending);
      pending = nullptr;
    };
    for (uint64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < tiles_ && !failed();) {
      StagingChunk* chunk = staging().TryAcquire(large_);
      if (chunk == nullptr) {
        finish();
        chunk = staging().Acquire(large_);
        if (chunk == nullptr) return Fail(session().Lost());
      }
      const Tile tile = TileAt(i);
      if (Submit(tile, *chunk) != CUDA_SUCCESS) {
        staging().Release(chunk);
        break;
      }
      finish();
      pending = chunk;
      pending_tile = tile;
    }
    finish();
  }

  bool failed() const { return error_.load(std::memory_order_relaxed) != CUDA_SUCCESS; }

  Stream& stream_;
  const bool to_device_;
  const PitchedPlace device_;
  std::byte* const host_;
  const uint64_t host_row_pitch_, host_slice_pitch_;
  const uint64_t width_, height_, depth_;
  const uint32_t synchronous_;  // of the copies to the device, as in wire/copy.h
  const bool large_;
  uint64_t piece_, pieces_;  // bytes of a row in one task, and the number of tasks for a row
  uint64_t rows_, groups_;   // rows in one task, and the number of tasks for a slice
  uint64_t tiles_;
  std::atomic<uint64_t> next_{0};
  std::atomic<int> error_{CUDA_SUCCESS};
};

// Makes a signal for a copy that the caller waits for; no signal if the caller does not wait.
// Returns false if no fence is left.
bool CompletionSignal(bool wait, wire::Signal* signal) {
  *signal = {0, kNoFence, 0};
  return !wait || ThreadFence(signal);
}

CUresult FinishCopy(Stream& stream, bool wait, const wire::Signal& signal, uint64_t position) {
  if (!wait) return CUDA_SUCCESS;
  const CUresult result = AwaitSignal(stream, signal.index, signal.value);
  if (result == CUDA_SUCCESS) MarkComplete(stream, position);
  return result;
}

// The host memory that a copy writes.
HostBox BoxOf(const PitchedPlace& to, uint64_t width, uint64_t height, uint64_t depth) {
  return {reinterpret_cast<const std::byte*>(to.place.host),
          width,
          height,
          depth,
          to.row_pitch,
          to.slice_pitch};
}

bool IsManaged(const Place& place) {
  Allocation allocation;
  return pointers().Find(place.gpu, &allocation) && allocation.kind == MemoryKind::kManaged;
}

// Copies to ordinary host memory.
CUresult Receive(Stream& stream, const PitchedPlace& to, const PitchedPlace& from, uint64_t width,
                 uint64_t height, uint64_t depth) {
  const CUresult result =
      StagedCopy(stream, false, from, reinterpret_cast<std::byte*>(to.place.host), to.row_pitch,
                 to.slice_pitch, width, height, depth, /*synchronous=*/false)
          .Run();
  if (g_read_digest != nullptr && result == CUDA_SUCCESS) [[unlikely]] {
    g_read_digest->Read(ReadDigest::StreamPlace(stream.unique_id), BoxOf(to, width, height, depth));
  }
  session().DrainOutput();
  return result;
}

// Submits a copy that the GPU does alone, between memory that it reaches. `args` lacks the signal.
template <typename Args>
CUresult SubmitCopy(Stream& stream, Op op, Args& args, const PitchedPlace& to, uint64_t width,
                    uint64_t height, uint64_t depth, bool wait) {
  if (!CompletionSignal(wait, &args.signal)) return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t position = 0;
  const bool read = g_read_digest != nullptr && to.on_host();
  if (read && !wait && !IsManaged(to.place)) [[unlikely]] {
    CUresult result = CUDA_SUCCESS;
    g_read_digest->ReadLater(ReadDigest::StreamPlace(stream.unique_id),
                             BoxOf(to, width, height, depth), [&](const wire::Signal& signal) {
                               args.signal = signal;
                               result = SubmitWork(stream, op, args);
                               return result == CUDA_SUCCESS;
                             });
    return result;
  }
  CUresult result = SubmitWork(stream, op, args, {}, &position);
  if (result == CUDA_SUCCESS) result = FinishCopy(stream, wait, args.signal, position);
  if (read && wait && result == CUDA_SUCCESS) [[unlikely]] {
    g_read_digest->Read(ReadDigest::StreamPlace(stream.unique_id), BoxOf(to, width, height, depth));
  }
  return result;
}

}  // namespace

CUresult FindPlace(uint64_t address, uint64_t bytes, Side side, uint16_t device, Place* place) {
  Allocation allocation;
  if (pointers().Find(address, &allocation)) {
    const uint64_t offset = address - allocation.address;
    if (allocation.kind == MemoryKind::kVirtual) {
      // Programs build large ranges from many mappings. The device that does the copy must reach
      // all of them, or else the device of the memory.
      const auto may = [&](CUmemAccess_flags flags) {
        return pointers().AccessibleFrom(address, device, flags) >= bytes ||
               pointers().AccessibleFrom(address, allocation.device, flags) >= bytes;
      };
      if (side == Side::kHost || !may(CU_MEM_ACCESS_FLAGS_PROT_READ))
        return CUDA_ERROR_INVALID_VALUE;
      *place = {address, 0, may(CU_MEM_ACCESS_FLAGS_PROT_READWRITE), 0};
      return CUDA_SUCCESS;
    }
    if (bytes > allocation.bytes - offset) return CUDA_ERROR_INVALID_VALUE;
    if (side == Side::kHost && !allocation.on_host()) return CUDA_ERROR_INVALID_VALUE;
    if (side == Side::kDevice && allocation.gpu_address == 0) return CUDA_ERROR_INVALID_VALUE;
    place->gpu = allocation.gpu_address != 0 ? allocation.gpu_address + offset : 0;
    place->host = allocation.on_host() ? allocation.host_address + offset : 0;
    place->context = allocation.on_device() ? allocation.context_handle : 0;
    return CUDA_SUCCESS;
  }
  if (side == Side::kDevice || address == 0) return CUDA_ERROR_INVALID_VALUE;
  for (const DeviceInfo& other : session().devices()) {
    if (other.Holds(address)) return CUDA_ERROR_INVALID_VALUE;
  }
  if (address - session().pinned_base() < session().pinned_bytes()) return CUDA_ERROR_INVALID_VALUE;
  *place = {0, address, true, 0};
  return CUDA_SUCCESS;
}

CUresult FindFillPlace(uint64_t address, uint64_t pitch, uint32_t element, uint64_t width,
                       uint64_t height, uint16_t device, Place* place) {
  uint64_t row, bytes;
  if (__builtin_mul_overflow(width, uint64_t{element}, &row)) return CUDA_ERROR_INVALID_VALUE;
  if (height > 1 && (pitch < row || pitch % element != 0)) return CUDA_ERROR_INVALID_VALUE;
  if (address % element != 0) return CUDA_ERROR_INVALID_VALUE;
  if (__builtin_mul_overflow(pitch, height - 1, &bytes) ||
      __builtin_add_overflow(bytes, row, &bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return FindPlace(address, bytes, Side::kDevice, device, place);
}

wire::PitchedLocation PitchedPlace::Location(uint64_t x, uint64_t y, uint64_t z) const {
  if (!in_array())
    return {AtAddress(place.gpu + z * slice_pitch + y * row_pitch + x), row_pitch, slice_pitch};
  wire::ArrayPosition position = array;
  position.x += x;
  position.y += static_cast<uint32_t>(y);
  position.z += static_cast<uint32_t>(z);
  return wire::InArray(position);
}

CUresult AwaitSignal(Stream& stream, FenceIndex fence, uint64_t value) {
  if (!SpinForFence(fence, value)) {
    const CUresult result =
        session().Call(Op::cuStreamSynchronize, stream.device, stream.context_id,
                       wire::cuStreamSynchronize{stream.id, 0, {0, kNoFence, 0}});
    if (result != CUDA_SUCCESS) return result;
  }
  return session().sticky_error();
}

namespace {

// For a synchronous copy from ordinary memory that the stream has taken. The daemon orders the
// client's later work on the device behind it. Waits for the copy if somebody else can look: the
// CPU, another device of the process, or another process.
CUresult FinishStaged(Stream& stream, bool on_host, CUresult taken) {
  const bool wait = on_host || session().devices().size() > 1 || SharesMemory();
  return taken == CUDA_SUCCESS && wait ? SynchronizeStream(stream) : taken;
}

}  // namespace

CUresult CopyLinear(Stream& stream, const Place& to, const Place& from, uint64_t bytes,
                    bool synchronous) {
  if (bytes == 0) return CUDA_SUCCESS;
  if (!to.writable) return CUDA_ERROR_INVALID_VALUE;
  if (to.pageable() && from.pageable()) {
    const CUresult result = SynchronizeStream(stream);
    if (result != CUDA_SUCCESS) return result;
    memmove(reinterpret_cast<void*>(to.host), reinterpret_cast<const void*>(from.host), bytes);
    return CUDA_SUCCESS;
  }
  if (from.pageable()) {
    CUresult result;
    if (bytes <= kInlineCopyBytes) {
      result = SubmitWork(stream, Op::cuMemcpyAsync,
                          wire::cuMemcpyAsync{AtAddress(to.gpu),
                                              {0, wire::kInline, 0},
                                              bytes,
                                              stream.id,
                                              synchronous ? 1u : 0u,
                                              {0, kNoFence, 0}},
                          {reinterpret_cast<const void*>(from.host), bytes});
    } else {
      result = StagedCopy(stream, true, {to, bytes, bytes}, reinterpret_cast<std::byte*>(from.host),
                          bytes, bytes, bytes, 1, 1, synchronous)
                   .Run();
    }
    return synchronous ? FinishStaged(stream, to.host != 0, result) : result;
  }
  if (to.pageable()) return Receive(stream, {to, bytes, bytes}, {from, bytes, bytes}, bytes, 1, 1);
  // A copy between device memory alone does not wait.
  const bool wait = synchronous && (to.host != 0 || from.host != 0);
  wire::cuMemcpyAsync args{AtAddress(to.gpu), AtAddress(from.gpu), bytes, stream.id, 0, {}};
  return SubmitCopy(stream, Op::cuMemcpyAsync, args, {to, bytes, bytes}, bytes, 1, 1, wait);
}

CUresult CopyPitched(Stream& stream, const PitchedPlace& to, const PitchedPlace& from,
                     uint64_t width, uint64_t height, uint64_t depth, bool synchronous) {
  if (width == 0 || height == 0 || depth == 0) return CUDA_SUCCESS;
  if (!to.place.writable) return CUDA_ERROR_INVALID_VALUE;
  const auto dense = [&](const PitchedPlace& side) {
    return !side.in_array() && (height == 1 || side.row_pitch == width) &&
           (depth == 1 || side.slice_pitch == width * height);
  };
  if (dense(to) && dense(from))
    return CopyLinear(stream, to.place, from.place, width * height * depth, synchronous);
  if (to.pageable() && from.pageable()) {
    const CUresult result = SynchronizeStream(stream);
    if (result != CUDA_SUCCESS) return result;
    for (uint64_t z = 0; z < depth; ++z) {
      for (uint64_t y = 0; y < height; ++y) {
        memmove(reinterpret_cast<void*>(to.place.host + z * to.slice_pitch + y * to.row_pitch),
                reinterpret_cast<const void*>(from.place.host + z * from.slice_pitch +
                                              y * from.row_pitch),
                width);
      }
    }
    return CUDA_SUCCESS;
  }
  if (from.pageable()) {
    const CUresult result =
        StagedCopy(stream, true, to, reinterpret_cast<std::byte*>(from.place.host), from.row_pitch,
                   from.slice_pitch, width, height, depth, synchronous)
            .Run();
    return synchronous ? FinishStaged(stream, to.on_host(), result) : result;
  }
  if (to.pageable()) return Receive(stream, to, from, width, height, depth);
  const bool wait = synchronous && (to.on_host() || from.on_host());
  wire::cuMemcpy3DAsync_v2 args{to.Location(), from.Location(), width, height,
                                depth,         stream.id,       0,     {}};
  return SubmitCopy(stream, Op::cuMemcpy3DAsync_v2, args, to, width, height, depth, wait);
}

}  // namespace detshare::shim
