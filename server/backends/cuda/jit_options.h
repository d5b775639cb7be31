// JIT options in the form that the driver takes, with room for the logs.
#pragma once

#include <cuda.h>

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "coroutine_runtime/device.h"

namespace detshare::cuda {

class JitOptions {
 public:
  // Only options with plain integer values are passed on. `with_logs`: the driver may write logs
  // until TakeLogs().
  JitOptions(absl::Span<const JitOptionValue> options, const CompileLogs& wanted, bool with_logs);

  unsigned count() const { return static_cast<unsigned>(names_.size()); }
  CUjit_option* names() { return names_.data(); }
  void** values() { return values_.data(); }

  // After the call: gives the caller the logs that it wanted.
  void TakeLogs(CompileLogs& logs) const;
  // The compiler's complaints, for a message.
  std::string Complaints() const;

 private:
  void Add(CUjit_option name, void* value);

  std::vector<CUjit_option> names_;
  std::vector<void*> values_;
  std::string info_, error_;
};

}  // namespace detshare::cuda
