// JIT options in the driver's form, with buffers for the logs.
#pragma once

#include <cuda.h>

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "coroutine_runtime/device.h"

namespace detshare::cuda {

class JitOptions {
 public:
  // Passes on only options with plain integer values. `with_logs`: the driver may write logs until
  // TakeLogs().
  JitOptions(absl::Span<const JitOptionValue> options, const CompileLogs& wanted, bool with_logs);

  unsigned count() const { return static_cast<unsigned>(names_.size()); }
  CUjit_option* names() { return names_.data(); }
  void** values() { return values_.data(); }

  // Called after the driver's call. Copies the logs that the client wanted to `logs`.
  void TakeLogs(CompileLogs& logs) const;
  // Returns the compiler's messages, for an error message.
  std::string Complaints() const;

 private:
  void Add(CUjit_option name, void* value);

  std::vector<CUjit_option> names_;
  std::vector<void*> values_;
  std::string info_, error_;
};

}  // namespace detshare::cuda
