#include "server/backends/cuda/graph_pieces.h"

#include <algorithm>

#include "coroutine_runtime/status_cuda.h"
#include "server/backends/cuda/array_copy.h"

namespace detshare::cuda {
namespace {

absl::Status TooMany() {
  return CudaError(kCudaErrorOutOfMemory, "a copy or fill has too many pieces of host memory");
}

CUDA_MEMCPY3D Box(const CopyRequest& request) {
  CUDA_MEMCPY3D box{};
  box.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  box.srcDevice = request.source;
  box.srcPitch = request.source_pitch;
  box.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  box.dstDevice = request.destination;
  box.dstPitch = request.destination_pitch;
  if (request.depth > 1) {
    box.srcHeight = request.source_slice / request.source_pitch;
    box.dstHeight = request.destination_slice / request.destination_pitch;
  } else {
    box.srcHeight = box.dstHeight = request.height;
  }
  box.WidthInBytes = request.width;
  box.Height = request.height;
  box.Depth = request.depth;
  return box;
}

// The driver also requires a pitch for a copy of one row, and a pitch is less than 2 GiB.
constexpr uint64_t kLongestLine = 1 << 30;

CUDA_MEMCPY3D Line(DeviceAddress destination, DeviceAddress source, uint64_t bytes) {
  CopyRequest line;
  line.destination = destination;
  line.source = source;
  line.width = line.source_pitch = line.destination_pitch = bytes;
  return Box(line);
}

// Returns whether one operation can access this side of a copy.
bool IsWhole(const CudaAddressSpace& space, const CopyRequest& request, DeviceAddress address,
             uint64_t pitch, uint64_t slice) {
  if (request.height == 1 && request.depth == 1) return false;  // made of lines
  if (request.height > 1 && pitch < request.width) return false;
  if (request.depth > 1 &&
      (pitch < request.width || slice % pitch != 0 || slice / pitch < request.height)) {
    return false;
  }
  const uint64_t extent =
      (request.depth - 1) * slice + (request.height - 1) * pitch + request.width;
  return extent <= space.Reach(address);
}

}  // namespace

absl::StatusOr<std::vector<CUDA_MEMCPY3D>> PiecesOf(const CudaAddressSpace& space,
                                                    const CopyRequest& request) {
  std::vector<CUDA_MEMCPY3D> pieces;
  if (request.width == 0 || request.height == 0 || request.depth == 0) return pieces;
  if (request.source_array.array != nullptr || request.destination_array.array != nullptr) {
    absl::Status status =
        ForEachArrayCopy(space, request, [&](const CUDA_MEMCPY3D& piece) -> absl::Status {
          if (pieces.size() == kMaxPieces) return TooMany();
          pieces.push_back(piece);
          return absl::OkStatus();
        });
    if (!status.ok()) return status;
    return pieces;
  }
  if (IsWhole(space, request, request.source, request.source_pitch, request.source_slice) &&
      IsWhole(space, request, request.destination, request.destination_pitch,
              request.destination_slice)) {
    pieces.push_back(Box(request));
    return pieces;
  }
  for (uint64_t z = 0; z < request.depth; ++z) {
    for (uint64_t y = 0; y < request.height; ++y) {
      DeviceAddress source = request.source + z * request.source_slice + y * request.source_pitch;
      DeviceAddress destination =
          request.destination + z * request.destination_slice + y * request.destination_pitch;
      for (uint64_t left = request.width; left > 0;) {
        if (pieces.size() == kMaxPieces) return TooMany();
        const uint64_t bytes =
            std::min({left, kLongestLine, space.Reach(source), space.Reach(destination)});
        pieces.push_back(Line(destination, source, bytes));
        source += bytes;
        destination += bytes;
        left -= bytes;
      }
    }
  }
  return pieces;
}

absl::StatusOr<std::vector<CUDA_MEMSET_NODE_PARAMS_v2>> PiecesOf(const CudaAddressSpace& space,
                                                                 const FillRequest& request) {
  std::vector<CUDA_MEMSET_NODE_PARAMS_v2> pieces;
  if (request.width == 0 || request.height == 0) return pieces;
  const auto size = static_cast<uint64_t>(request.element_bytes);
  const auto add = [&](DeviceAddress address, uint64_t width, uint64_t height) {
    CUDA_MEMSET_NODE_PARAMS_v2 piece{};
    piece.dst = address;
    piece.pitch = height > 1 ? request.pitch : 0;
    piece.value = request.value;
    piece.elementSize = static_cast<unsigned>(size);
    piece.width = width;
    piece.height = height;
    pieces.push_back(piece);
  };
  if ((request.height - 1) * request.pitch + request.width * size <= space.Reach(request.address)) {
    add(request.address, request.width, request.height);
    return pieces;
  }
  for (uint64_t y = 0; y < request.height; ++y) {
    DeviceAddress address = request.address + y * request.pitch;
    for (uint64_t left = request.width; left > 0;) {
      if (pieces.size() == kMaxPieces) return TooMany();
      const uint64_t reach = std::max<uint64_t>(space.Reach(address) / size, 1);
      const uint64_t width = std::min(left, reach);
      add(address, width, 1);
      address += width * size;
      left -= width;
    }
  }
  return pieces;
}

}  // namespace detshare::cuda
