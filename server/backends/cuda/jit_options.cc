#include "server/backends/cuda/jit_options.h"

#include <algorithm>

namespace detshare::cuda {
namespace {

constexpr uint64_t kLargestLog = 1 << 20;
constexpr uint64_t kOwnLog = 4096;  // for the daemon's log if the client wants no log

bool HasPlainValue(int option) {
  switch (option) {
    case CU_JIT_MAX_REGISTERS:
    case CU_JIT_THREADS_PER_BLOCK:
    case CU_JIT_OPTIMIZATION_LEVEL:
    case CU_JIT_TARGET_FROM_CUCONTEXT:
    case CU_JIT_TARGET:
    case CU_JIT_FALLBACK_STRATEGY:
    case CU_JIT_GENERATE_DEBUG_INFO:
    case CU_JIT_LOG_VERBOSE:
    case CU_JIT_GENERATE_LINE_INFO:
    case CU_JIT_CACHE_MODE:
    case CU_JIT_POSITION_INDEPENDENT_CODE:
    case CU_JIT_MIN_CTA_PER_SM:
    case CU_JIT_MAX_THREADS_PER_BLOCK:
    case CU_JIT_OVERRIDE_DIRECTIVE_VALUES:
      return true;
    default:
      return false;
  }
}

}  // namespace

JitOptions::JitOptions(absl::Span<const JitOptionValue> options, const CompileLogs& wanted,
                       bool with_logs)
    : info_(std::min(wanted.info_limit, kLargestLog), '\0'),
      error_(std::clamp(wanted.error_limit, kOwnLog, kLargestLog), '\0') {
  for (const JitOptionValue& option : options) {
    if (!HasPlainValue(option.option)) continue;
    Add(static_cast<CUjit_option>(option.option), reinterpret_cast<void*>(uintptr_t{option.value}));
  }
  if (!with_logs) return;
  if (!info_.empty()) {
    Add(CU_JIT_INFO_LOG_BUFFER, info_.data());
    Add(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, reinterpret_cast<void*>(info_.size()));
  }
  Add(CU_JIT_ERROR_LOG_BUFFER, error_.data());
  Add(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, reinterpret_cast<void*>(error_.size()));
}

void JitOptions::Add(CUjit_option name, void* value) {
  names_.push_back(name);
  values_.push_back(value);
}

void JitOptions::TakeLogs(CompileLogs& logs) const {
  logs.info = std::string(info_.c_str()).substr(0, logs.info_limit);
  logs.error = std::string(error_.c_str()).substr(0, logs.error_limit);
}

std::string JitOptions::Complaints() const { return error_.c_str(); }

}  // namespace detshare::cuda
