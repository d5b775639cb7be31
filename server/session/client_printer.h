// Writes the output of the session's kernels to a buffer that the client reads.
#pragma once

#include <string>
#include <string_view>

#include "proto/mutex.h"

namespace detshare {

class SharedRegion;

// Threading: any thread.
class ClientPrinter {
 public:
  // `label` names the session in the log.
  ClientPrinter(SharedRegion& region, std::string label);

  void Print(std::string_view text);

 private:
  SharedRegion& region_;
  const std::string label_;
  Mutex mutex_;
  bool overflowed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace detshare
