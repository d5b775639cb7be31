// The part of a graph's copy that this process does: its ordinary memory is read or written while
// the graph runs, not when it is launched.
#pragma once

#include <cstddef>
#include <cstdint>

#include "client_shim/work/graph/node.h"

namespace detshare::shim {

class HostCopy {
 public:
  // `staging`: dense memory in the place of the other side; null when both are ordinary memory.
  HostCopy(const CopyNode& copy, std::byte* staging);
  void Run() const;

 private:
  struct Rows {
    std::byte* memory;
    uint64_t row_pitch;
    uint64_t slice_pitch;
  };
  static Rows HostRows(const PitchedPlace& side);

  Rows to_, from_;
  uint64_t width_, height_, depth_;
};

}  // namespace detshare::shim
