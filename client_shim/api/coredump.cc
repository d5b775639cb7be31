// Settings of GPU core dumps. The shim keeps them for the process and for each context, and returns
// them to queries. It writes no dumps: the GPU's state belongs to the daemon, which writes none
// either.
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "client_shim/objects/current_context.h"
#include "proto/driver_api/shim_api.h"

namespace detshare::shim::api {
namespace {

constexpr size_t kLongestName = 1024;  // with its terminator

struct CoredumpSettings {
  std::map<int, uint32_t> numbers;   // switches and flags
  std::map<int, std::string> names;  // names of files
};

struct AllCoredumpSettings {
  std::mutex mutex;  // guards the rest
  CoredumpSettings global;
  std::map<ContextId, CoredumpSettings> of_context;
};
AllCoredumpSettings& settings() {
  static auto* const all = new AllCoredumpSettings;
  return *all;
}

bool IsName(CUcoredumpSettings which) {
  return which == CU_COREDUMP_FILE || which == CU_COREDUMP_PIPE;
}
bool IsKnown(CUcoredumpSettings which) {
  return which >= CU_COREDUMP_ENABLE_ON_EXCEPTION && which < CU_COREDUMP_MAX;
}
size_t BytesOf(CUcoredumpSettings which) {
  if (IsName(which)) return kLongestName;
  return which == CU_COREDUMP_GENERATION_FLAGS ? sizeof(uint32_t) : sizeof(bool);
}

template <typename Value>
std::optional<Value> Find(const std::map<int, Value>& values, int which) {
  const auto found = values.find(which);
  return found == values.end() ? std::nullopt : std::optional<Value>(found->second);
}

// A context that has not set a value has the process's value. `context` 0: the process.
CUresult Get(CUcoredumpSettings which, void* value, size_t* size, ContextId context) {
  if (!IsKnown(which)) return CUDA_ERROR_INVALID_VALUE;
  const size_t bytes = BytesOf(which);
  if (value == nullptr) {
    *size = bytes;
    return CUDA_SUCCESS;
  }
  const std::lock_guard lock(settings().mutex);
  const CoredumpSettings& own = context != 0 ? settings().of_context[context] : settings().global;
  const CoredumpSettings& global = settings().global;
  if (IsName(which)) {
    std::string fallback =
        which == CU_COREDUMP_FILE ? "core_%t_%h_%p.nvcudmp" : "corepipe.cuda.%h.%p";
    std::optional<std::string> name = Find(own.names, which);
    if (!name) name = Find(global.names, which);
    if (!name) name = fallback;
    if (*size < name->size() + 1) return CUDA_ERROR_INVALID_VALUE;
    memcpy(value, name->c_str(), name->size() + 1);
    *size = name->size() + 1;
    return CUDA_SUCCESS;
  }
  if (*size < bytes) return CUDA_ERROR_INVALID_VALUE;
  std::optional<uint32_t> number = Find(own.numbers, which);
  if (!number) number = Find(global.numbers, which);
  if (!number) number = which == CU_COREDUMP_TRIGGER_HOST ? 1 : 0;
  memcpy(value, &*number, bytes);  // little endian
  *size = bytes;
  return CUDA_SUCCESS;
}

CUresult Set(CUcoredumpSettings which, const void* value, const size_t* size, ContextId context) {
  if (!IsKnown(which)) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(settings().mutex);
  CoredumpSettings& own = context != 0 ? settings().of_context[context] : settings().global;
  if (IsName(which)) {
    const size_t length = strnlen(static_cast<const char*>(value), *size);
    if (length >= kLongestName) return CUDA_ERROR_INVALID_VALUE;
    own.names[which] = std::string(static_cast<const char*>(value), length);
    return CUDA_SUCCESS;
  }
  const size_t bytes = BytesOf(which);
  if (*size < bytes) return CUDA_ERROR_INVALID_VALUE;
  uint32_t number = 0;
  memcpy(&number, value, bytes);
  own.numbers[which] = number;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuCoredumpGetAttribute(CUcoredumpSettings attrib, void* value, size_t* size) {
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  return Get(attrib, value, size, context->id.load(std::memory_order_acquire));
}

CUresult cuCoredumpGetAttributeGlobal(CUcoredumpSettings attrib, void* value, size_t* size) {
  return Get(attrib, value, size, 0);
}

CUresult cuCoredumpSetAttribute(CUcoredumpSettings attrib, void* value, size_t* size) {
  // These settings never belong to a context.
  if (attrib == CU_COREDUMP_ENABLE_USER_TRIGGER || attrib == CU_COREDUMP_PIPE)
    return CUDA_ERROR_NOT_PERMITTED;
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  return Set(attrib, value, size, context->id.load(std::memory_order_acquire));
}

CUresult cuCoredumpSetAttributeGlobal(CUcoredumpSettings attrib, void* value, size_t* size) {
  return Set(attrib, value, size, 0);
}

}  // namespace detshare::shim::api
