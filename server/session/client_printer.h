// Writes the output of the session's kernels to a buffer that the client reads.
#pragma once

#include <mutex>
#include <string>
#include <string_view>

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
  std::mutex mutex_;
  bool overflowed_ = false;  // guarded by mutex_
};

}  // namespace detshare
