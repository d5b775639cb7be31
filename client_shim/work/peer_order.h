// The order that a synchronous copy between devices has with the work of the contexts at its two
// ends: after all that they were given before, before all that they are given later.
#pragma once

#include <array>

#include "client_shim/objects/objects.h"
#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

// Used around one copy. One thread.
class PeerOrder {
 public:
  // `stream` does the copy.
  explicit PeerOrder(Stream& stream) : stream_(stream) {}

  // The copy reaches into this context. That of the stream needs nothing more, nor does one that is
  // gone.
  void Add(Context* context);
  // Before and after the copy is submitted. Does not wait.
  CUresult Begin();
  CUresult End();

 private:
  Stream& stream_;
  std::array<Stream*, 2> ends_{};  // default streams of the other contexts
  std::array<Context*, 2> contexts_{};
};

}  // namespace detshare::shim
