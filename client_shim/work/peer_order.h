// Puts a synchronous copy between devices in order with the work of the contexts at both ends. The
// copy comes after all work that they had before, and before all work that they get later.
#pragma once

#include <array>

#include "client_shim/objects/objects.h"
#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

// For one copy, on one thread: Add the contexts, Begin, submit the copy, End.
class PeerOrder {
 public:
  // `stream` does the copy. It outlives this object.
  explicit PeerOrder(Stream& stream) : stream_(stream) {}

  // Adds a context that the copy reaches into. Does nothing for the stream's own context and for a
  // context that has ended.
  void Add(Context* context);
  // Called before and after the copy is submitted. They do not wait.
  CUresult Begin();
  CUresult End();

 private:
  Stream& stream_;
  std::array<Stream*, 2> ends_{};  // default streams of the added contexts
  std::array<Context*, 2> contexts_{};
};

}  // namespace detshare::shim
