#include "client_shim/code/jit_options.h"

#include <algorithm>
#include <cstring>

#include "client_shim/base/log.h"

namespace detshare::shim {
namespace {

// Reads an option as an int, because programs may write any number there.
int OptionAt(const CUjit_option* option) {
  int number;
  static_assert(sizeof(number) == sizeof(*option));
  memcpy(&number, option, sizeof(number));
  return number;
}

// The number of an option lies in the low half of its pointer.
uint32_t Number(void* value) { return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(value)); }

}  // namespace

CUresult JitOptions::Parse(unsigned int count, const CUjit_option* options, void** values) {
  *this = JitOptions();
  if (count == 0) return CUDA_SUCCESS;
  if (options == nullptr || values == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned int i = 0; i < count; ++i) {
    const int option = OptionAt(&options[i]);
    switch (option) {
      case CU_JIT_WALL_TIME:
        milliseconds_ = &values[i];
        break;
      case CU_JIT_INFO_LOG_BUFFER:
        info_.buffer = static_cast<char*>(values[i]);
        break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        info_.bytes = Number(values[i]);
        info_.filled = &values[i];
        break;
      case CU_JIT_ERROR_LOG_BUFFER:
        error_.buffer = static_cast<char*>(values[i]);
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        error_.bytes = Number(values[i]);
        error_.filled = &values[i];
        break;
      case CU_JIT_TARGET_FROM_CUCONTEXT:  // this option has no value
        plain_.push_back({static_cast<uint32_t>(option), 1});
        break;
      case CU_JIT_GLOBAL_SYMBOL_NAMES:
      case CU_JIT_GLOBAL_SYMBOL_ADDRESSES:
      case CU_JIT_GLOBAL_SYMBOL_COUNT:
        shim::Log(LogLevel::kWarning, "CU_JIT_GLOBAL_SYMBOL_* options are not supported");
        return CUDA_ERROR_NOT_SUPPORTED;
      case CU_JIT_REFERENCED_KERNEL_NAMES:
      case CU_JIT_REFERENCED_KERNEL_COUNT:
      case CU_JIT_REFERENCED_VARIABLE_NAMES:
      case CU_JIT_REFERENCED_VARIABLE_COUNT:
        break;  // deprecated hints about code that may be left out
      default:
        if (option < 0 || option >= CU_JIT_NUM_OPTIONS) return CUDA_ERROR_INVALID_VALUE;
        plain_.push_back({static_cast<uint32_t>(option), Number(values[i])});
    }
  }
  if ((info_.buffer == nullptr && info_.bytes != 0) ||
      (error_.buffer == nullptr && error_.bytes != 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

void JitOptions::Log::Write(std::string_view text) {
  uint64_t written = 0;
  if (buffer != nullptr && bytes != 0) {
    const uint64_t copied = std::min<uint64_t>(text.size(), bytes - 1);
    memcpy(buffer, text.data(), copied);
    buffer[copied] = '\0';
    written = std::min<uint64_t>(text.size(), bytes);
  }
  if (filled != nullptr) *filled = reinterpret_cast<void*>(written);
}

void JitOptions::WriteBack(std::string_view info, std::string_view error, float milliseconds) {
  info_.Write(info);
  error_.Write(error);
  if (milliseconds_ != nullptr) memcpy(milliseconds_, &milliseconds, sizeof(milliseconds));
}

}  // namespace detshare::shim
