#include "server/backends/cuda/array_copy.h"

#include <algorithm>

#include "coroutine_runtime/device_array.h"
#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"
#include "server/backends/cuda/cuda_images.h"

namespace detshare::cuda {
namespace {

// One side of a copy: memory or an array.
struct Side {
  DeviceAddress address = 0;
  uint64_t pitch = 0, slice = 0;
  ArrayPlace array;

  bool memory() const { return array.array == nullptr; }
  CUarray level() const { return static_cast<const CudaArray*>(array.array)->level(array.level); }
  void Move(uint64_t x, uint64_t y, uint64_t z) {
    if (memory()) {
      address += x + y * pitch + z * slice;
    } else {
      array.x += x;
      array.y += y;
      array.z += z;
    }
  }
};

struct Box {
  uint64_t width, height, depth;
};

class ArrayCopy {
 public:
  ArrayCopy(const CudaAddressSpace& space,
            absl::FunctionRef<absl::Status(const CUDA_MEMCPY3D&)> take)
      : space_(space), take_(take) {}

  // Divides a copy that no single call can make into slices, the slices into rows, and the rows
  // into pieces.
  absl::Status Copy(Side to, Side from, const Box& box) {
    if (Fits(to, box) && Fits(from, box)) return Call(to, from, box);
    Box part = box;
    uint64_t count, step = 1;
    uint64_t x = 0, y = 0, z = 0;
    if (box.depth > 1) {
      part.depth = 1;
      count = box.depth;
      z = 1;
    } else if (box.height > 1) {
      part.height = 1;
      count = box.height;
      y = 1;
    } else {
      // A texel has at most 16 bytes, and memory is registered by pages.
      step = std::min(Reach(to), Reach(from)) / 16 * 16;
      if (step == 0)
        return CudaError(kCudaErrorNotSupported,
                         "a texel lies across two pieces of registered memory");
      count = (box.width + step - 1) / step;
      x = 1;
    }
    for (uint64_t i = 0; i < count; ++i) {
      if (x != 0) part.width = std::min(step, box.width - i * step);
      DETSHARE_RETURN_IF_ERROR(Copy(to, from, part));
      to.Move(x * step, y, z);
      from.Move(x * step, y, z);
    }
    return absl::OkStatus();
  }

 private:
  uint64_t Reach(const Side& side) const {
    return side.memory() ? space_.Reach(side.address) : UINT64_MAX;
  }

  // Returns whether one call can access this side as a whole.
  bool Fits(const Side& side, const Box& box) const {
    if (!side.memory()) return true;
    if (box.depth > 1 && box.height > 1 &&
        (side.slice % side.pitch != 0 || side.slice / side.pitch < box.height)) {
      return false;
    }
    const uint64_t extent =
        (box.depth - 1) * side.slice + (box.height - 1) * side.pitch + box.width;
    return extent <= space_.Reach(side.address);
  }

  // Computes what a call needs to know of memory: the pitch, and the number of rows of a slice.
  static void Pitches(const Side& side, const Box& box, size_t* pitch, size_t* height) {
    if (box.height == 1) {
      *pitch = box.depth > 1 ? side.slice : box.width;
      *height = 1;
    } else {
      *pitch = side.pitch;
      *height = box.depth > 1 ? side.slice / side.pitch : box.height;
    }
  }

  absl::Status Call(const Side& to, const Side& from, const Box& box) {
    CUDA_MEMCPY3D copy{};
    if (from.memory()) {
      copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
      copy.srcDevice = from.address;
      Pitches(from, box, &copy.srcPitch, &copy.srcHeight);
    } else {
      copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
      copy.srcArray = from.level();
      copy.srcXInBytes = from.array.x;
      copy.srcY = from.array.y;
      copy.srcZ = from.array.z;
    }
    if (to.memory()) {
      copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
      copy.dstDevice = to.address;
      Pitches(to, box, &copy.dstPitch, &copy.dstHeight);
    } else {
      copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
      copy.dstArray = to.level();
      copy.dstXInBytes = to.array.x;
      copy.dstY = to.array.y;
      copy.dstZ = to.array.z;
    }
    copy.WidthInBytes = box.width;
    copy.Height = box.height;
    copy.Depth = box.depth;
    return take_(copy);
  }

  const CudaAddressSpace& space_;
  const absl::FunctionRef<absl::Status(const CUDA_MEMCPY3D&)> take_;
};

}  // namespace

absl::Status ForEachArrayCopy(const CudaAddressSpace& space, const CopyRequest& request,
                              absl::FunctionRef<absl::Status(const CUDA_MEMCPY3D&)> take) {
  const Side to{request.destination, request.destination_pitch, request.destination_slice,
                request.destination_array};
  const Side from{request.source, request.source_pitch, request.source_slice, request.source_array};
  return ArrayCopy(space, take).Copy(to, from, {request.width, request.height, request.depth});
}

absl::Status CopyWithArrays(CudaContext& context, CUstream stream, const CudaAddressSpace& space,
                            const CopyRequest& request) {
  return ForEachArrayCopy(space, request, [&](const CUDA_MEMCPY3D& copy) {
    return context.Check(context.api.cuMemcpy3DAsync(&copy, stream), "cuMemcpy3DAsync");
  });
}

}  // namespace detshare::cuda
