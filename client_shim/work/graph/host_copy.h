// The part of a graph's copy that this process does. It reads or writes ordinary memory while the
// graph runs, and not when it is launched.
#pragma once

#include <cstddef>
#include <cstdint>

#include "client_shim/work/graph/node.h"

namespace detshare::shim {

// Keeps no reference to the node. Run may be called by any thread.
class HostCopy {
 public:
  // `staging` is dense memory in the place of the other side. Null: both sides are ordinary memory.
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
