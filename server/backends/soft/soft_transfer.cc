#include "server/backends/soft/soft_transfer.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "coroutine_runtime/status_cuda.h"
#include "server/backends/soft/soft_images.h"

namespace detshare::soft {
namespace {

constexpr uint64_t kChunkBytes = 4 << 20;
// In bytes. The submitting thread does smaller work itself, because to wake a worker takes longer.
constexpr uint64_t kShortBytes = 64 << 10;

// The number of bytes from the first to the last byte of `depth` slices of `height` rows of `width`
// bytes. Nullopt on overflow.
std::optional<uint64_t> Extent(uint64_t width, uint64_t height, uint64_t depth, uint64_t pitch,
                               uint64_t slice) {
  uint64_t rows, slices, sum;
  if (__builtin_mul_overflow(height - 1, pitch, &rows) ||
      __builtin_mul_overflow(depth - 1, slice, &slices) ||
      __builtin_add_overflow(rows, slices, &sum) || __builtin_add_overflow(sum, width, &sum)) {
    return std::nullopt;
  }
  return sum;
}

bool Covers(const RangeTable& ranges, uint64_t address, std::optional<uint64_t> extent,
            bool write) {
  return extent.has_value() && ranges.Covers(address, *extent, write);
}

std::optional<uint64_t> SourceExtent(const CopyRequest& copy) {
  return Extent(copy.width, copy.height, copy.depth, copy.source_pitch, copy.source_slice);
}

// An array needs no check here: it is checked before, and the copy keeps its Texels.
bool DestinationIsThere(const RangeTable& ranges, const CopyRequest& copy) {
  if (copy.destination_array.array != nullptr) return true;
  return Covers(
      ranges, copy.destination,
      Extent(copy.width, copy.height, copy.depth, copy.destination_pitch, copy.destination_slice),
      true);
}

bool SourceIsThere(const RangeTable& ranges, const CopyRequest& copy) {
  if (copy.source_array.array != nullptr) return true;
  return copy.inline_source ? SourceExtent(copy).has_value()
                            : Covers(ranges, copy.source, SourceExtent(copy), false);
}

bool FilledIsThere(const RangeTable& ranges, const FillRequest& fill) {
  uint64_t row_bytes;
  return !__builtin_mul_overflow(fill.width, static_cast<uint64_t>(fill.element_bytes),
                                 &row_bytes) &&
         Covers(ranges, fill.address, Extent(row_bytes, fill.height, 1, fill.pitch, 0), true);
}

// The memory of an array that a copy uses; null when it uses none.
using Texels = std::shared_ptr<const ArrayStorage>;

// Sets the address and pitches of a place in an array.
Texels Locate(const ArrayPlace& place, uint64_t* address, uint64_t* pitch, uint64_t* slice) {
  if (place.array == nullptr) return nullptr;
  const Texels& texels = static_cast<const SoftArray&>(*place.array).storage();
  const ptx::ImageLevel& level = texels->levels()[place.level];
  *address = level.address + place.z * level.slice_pitch + place.y * level.row_pitch + place.x;
  *pitch = level.row_pitch;
  *slice = level.slice_pitch;
  return texels;
}

absl::Status NotMemory(const char* what) { return CudaError(kCudaErrorInvalidValue, what); }

// Work on `bytes` consecutive bytes, cut into pieces.
class Transfer : public Job {
 public:
  Transfer(std::shared_ptr<SpaceState> space, uint64_t bytes, CopyEngine engine, bool fill)
      : space_(std::move(space)), bytes_(bytes), engine_(engine), fill_(fill) {}

  Claimed Claim(Chunk* chunk) override {
    if (space_->stopped() || next_ == bytes_)
      return in_flight_ == 0 ? Claimed::kFinished : Claimed::kNothing;
    chunk->begin = next_;
    chunk->end = next_ = std::min(bytes_, next_ + kChunkBytes);
    ++in_flight_;
    return Claimed::kChunk;
  }
  bool HasMore() const override { return next_ < bytes_; }
  void Perform(Chunk* chunk) override {
    const AccessGate::Pass pass(space_->gate());
    // The session owned the memory when it submitted the transfer, but may have freed it since.
    if (HasMemory()) {
      Do(chunk->begin, chunk->end);
    } else {
      space_->SetFault(kCudaErrorIllegalAddress, "a copy or fill accesses freed memory");
    }
  }
  bool Finish(Chunk* chunk) override {
    --in_flight_;
    return in_flight_ == 0 && (next_ == bytes_ || space_->stopped());
  }
  void Conclude(Timeline& timeline, const Timeline::EntryPtr& entry) override {
    timeline.EndTransfer(entry, engine_, TransferDuration(engine_, bytes_, fill_));
  }
  bool IsShort() const override { return bytes_ <= kShortBytes; }

 protected:
  // Whether all of the memory that it touches belongs to the session.
  virtual bool HasMemory() const = 0;
  virtual void Do(uint64_t begin, uint64_t end) = 0;
  const RangeTable& ranges() const { return space_->ranges(); }

 private:
  const std::shared_ptr<SpaceState> space_;
  const uint64_t bytes_;
  const CopyEngine engine_;
  const bool fill_;
  // Guarded by the engine's lock.
  uint64_t next_ = 0;
  uint64_t in_flight_ = 0;
};

// Counts as work of a space while the object exists, so that the end of the space waits for it.
class WorkElsewhere {
 public:
  explicit WorkElsewhere(std::shared_ptr<SpaceState> space) : space_(std::move(space)) {
    space_->BeginWork();
  }
  ~WorkElsewhere() { space_->EndWork(); }
  WorkElsewhere(const WorkElsewhere&) = delete;
  WorkElsewhere& operator=(const WorkElsewhere&) = delete;
  const RangeTable& ranges() const { return space_->ranges(); }
  AccessGate& gate() const { return space_->gate(); }

 private:
  const std::shared_ptr<SpaceState> space_;
};

class CopyJob final : public Transfer {
 public:
  // The spaces that hold the two sides, and the texels of the sides that are arrays.
  struct Sides {
    std::shared_ptr<SpaceState> destination, source;
    Texels destination_texels, source_texels;
  };
  CopyJob(std::shared_ptr<SpaceState> space, Sides sides, const CopyRequest& request,
          std::vector<std::byte> inline_source, CopyEngine engine)
      : Transfer(std::move(space), request.width * request.height * request.depth, engine, false),
        destination_(std::move(sides.destination)),
        source_(std::move(sides.source)),
        request_(request),
        destination_texels_(std::move(sides.destination_texels)),
        source_texels_(std::move(sides.source_texels)),
        inline_source_(std::move(inline_source)) {
    if (request_.inline_source) request_.source = reinterpret_cast<uint64_t>(inline_source_.data());
  }

  uint64_t extra_bytes() const override { return inline_source_.size(); }
  void Perform(Chunk* chunk) override {
    // Either space may remove its memory meanwhile, and then waits at its own gate.
    const AccessGate::Pass to(destination_.gate()), from(source_.gate());
    Transfer::Perform(chunk);
  }

 protected:
  bool HasMemory() const override {
    return DestinationIsThere(destination_.ranges(), request_) &&
           SourceIsThere(source_.ranges(), request_);
  }
  void Do(uint64_t begin, uint64_t end) override {
    const bool linear = request_.height == 1 && request_.depth == 1;
    const uint64_t width = request_.width;
    while (begin < end) {
      const uint64_t row = linear ? 0 : begin / width;
      const uint64_t column = begin - row * width;
      const uint64_t bytes = std::min(end - begin, width - column);
      const uint64_t y = row % request_.height, z = row / request_.height;
      // CUDA leaves copies between overlapping ranges undefined; memmove defines them for the
      // daemon.
      std::memmove(reinterpret_cast<void*>(request_.destination + z * request_.destination_slice +
                                           y * request_.destination_pitch + column),
                   reinterpret_cast<const void*>(request_.source + z * request_.source_slice +
                                                 y * request_.source_pitch + column),
                   bytes);
      begin += bytes;
    }
  }

 private:
  const WorkElsewhere destination_, source_;
  CopyRequest request_;
  const Texels destination_texels_, source_texels_;
  const std::vector<std::byte> inline_source_;
};

class FillJob final : public Transfer {
 public:
  FillJob(std::shared_ptr<SpaceState> space, const FillRequest& request)
      : Transfer(std::move(space), request.width * request.height * request.element_bytes,
                 CopyEngine::kOnDevice, true),
        request_(request) {}

 protected:
  bool HasMemory() const override { return FilledIsThere(ranges(), request_); }
  // Pieces consist of whole elements: the size of a piece is a multiple of every element size.
  void Do(uint64_t begin, uint64_t end) override {
    const uint64_t row_bytes = request_.width * request_.element_bytes;
    while (begin < end) {
      const uint64_t row = begin / row_bytes;
      const uint64_t column = begin - row * row_bytes;
      const uint64_t bytes = std::min(end - begin, row_bytes - column);
      const uint64_t address = request_.address + row * request_.pitch + column;
      if (request_.element_bytes == 1) {
        std::memset(reinterpret_cast<void*>(address), static_cast<int>(request_.value & 0xff),
                    bytes);
      } else if (request_.element_bytes == 2) {
        std::fill_n(reinterpret_cast<uint16_t*>(address), bytes / 2,
                    static_cast<uint16_t>(request_.value));
      } else {
        std::fill_n(reinterpret_cast<uint32_t*>(address), bytes / 4, request_.value);
      }
      begin += bytes;
    }
  }

 private:
  const FillRequest request_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Job>> MakeCopy(std::shared_ptr<SpaceState> space,
                                              std::shared_ptr<SpaceState> destination,
                                              std::shared_ptr<SpaceState> source,
                                              const CopyRequest& asked) {
  CopyRequest request = asked;
  if (request.width == 0 || request.height == 0 || request.depth == 0)
    return std::unique_ptr<Job>();
  Texels destination_texels = Locate(request.destination_array, &request.destination,
                                     &request.destination_pitch, &request.destination_slice);
  Texels source_texels =
      Locate(request.source_array, &request.source, &request.source_pitch, &request.source_slice);
  if (!DestinationIsThere(destination->ranges(), request)) {
    return NotMemory("the copy's destination does not belong to the session");
  }
  if (!SourceIsThere(source->ranges(), request)) {
    return NotMemory("the copy's source does not belong to the session");
  }
  uint64_t rows, bytes;
  if (__builtin_mul_overflow(request.height, request.depth, &rows) ||
      __builtin_mul_overflow(rows, request.width, &bytes)) {
    return NotMemory("the copy is too large");
  }
  std::vector<std::byte> inline_source;
  if (request.inline_source) {
    const auto* begin = reinterpret_cast<const std::byte*>(request.source);
    inline_source.assign(begin, begin + *SourceExtent(request));
  }
  // The link between devices counts as the link to the host: it has the same speed and engines.
  const bool to_device =
      request.inline_source || source->ranges().IsHost(request.source) || source != space;
  const bool from_device =
      destination->ranges().IsHost(request.destination) || destination != space;
  const CopyEngine engine = to_device     ? CopyEngine::kToDevice
                            : from_device ? CopyEngine::kFromDevice
                                          : CopyEngine::kOnDevice;
  CopyJob::Sides sides{std::move(destination), std::move(source), std::move(destination_texels),
                       std::move(source_texels)};
  return std::make_unique<CopyJob>(std::move(space), std::move(sides), request,
                                   std::move(inline_source), engine);
}

absl::StatusOr<std::unique_ptr<Job>> MakeFill(std::shared_ptr<SpaceState> space,
                                              const FillRequest& request) {
  if (request.element_bytes != 1 && request.element_bytes != 2 && request.element_bytes != 4) {
    return NotMemory("elements have 1, 2 or 4 bytes");
  }
  if (request.width == 0 || request.height == 0) return std::unique_ptr<Job>();
  const uint64_t element = request.element_bytes;
  if (request.address % element != 0 || (request.height > 1 && request.pitch % element != 0)) {
    return NotMemory("the fill is not aligned to its elements");
  }
  uint64_t row_bytes, bytes;
  if (__builtin_mul_overflow(request.width, element, &row_bytes) ||
      __builtin_mul_overflow(row_bytes, request.height, &bytes)) {
    return NotMemory("the fill is too large");
  }
  if (!FilledIsThere(space->ranges(), request)) {
    return NotMemory("the filled memory does not belong to the session");
  }
  return std::make_unique<FillJob>(std::move(space), request);
}

}  // namespace detshare::soft
