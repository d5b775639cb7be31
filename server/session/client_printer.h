// Writes the output of the session's kernels to a buffer that the client reads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "coroutine_runtime/device.h"
#include "proto/mutex.h"

namespace detshare {

class SharedRegion;

// Threading: any thread.
class ClientPrinter final : public KernelOutput {
 public:
  // `label` names the session in the log.
  ClientPrinter(SharedRegion& region, std::string label);

  void Print(std::string_view text) override;
  void PrintError(std::string_view text) override;
  void SetPending(bool pending) override;
  void NoteLoss(std::string_view why) override;
  // The region ends. Text that comes later, from kernels that outlive the session, is dropped.
  void Close();

 private:
  void Append(std::string_view text, uint32_t kind);

  const std::string label_;
  Mutex mutex_;
  SharedRegion* region_ ABSL_GUARDED_BY(mutex_);  // null: Close() was called
  bool loss_noted_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace detshare
