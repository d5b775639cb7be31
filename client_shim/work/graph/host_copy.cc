#include "client_shim/work/graph/host_copy.h"

#include <cstring>

namespace detshare::shim {

HostCopy::Rows HostCopy::HostRows(const PitchedPlace& side) {
  return {reinterpret_cast<std::byte*>(side.place.host), side.row_pitch, side.slice_pitch};
}

HostCopy::HostCopy(const CopyNode& copy, std::byte* staging)
    : to_(HostRows(copy.to)),
      from_(HostRows(copy.from)),
      width_(copy.width),
      height_(copy.height),
      depth_(copy.depth) {
  const Rows dense{staging, width_, width_ * height_};
  if (!copy.to.pageable()) to_ = dense;
  if (!copy.from.pageable()) from_ = dense;
}

void HostCopy::Run() const {
  for (uint64_t z = 0; z < depth_; ++z) {
    for (uint64_t y = 0; y < height_; ++y) {
      std::memmove(to_.memory + z * to_.slice_pitch + y * to_.row_pitch,
                   from_.memory + z * from_.slice_pitch + y * from_.row_pitch, width_);
    }
  }
}

}  // namespace detshare::shim
