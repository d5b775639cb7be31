#include "proto/driver_api/proc_address.h"

#include <algorithm>

#include "proto/driver_api/driver_api_table.h"

namespace detshare {
namespace {

constexpr uint64_t kKnownFlags =
    CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

struct ApiLess {
  bool operator()(uint16_t row, std::string_view api) const { return kRows[row].api < api; }
  bool operator()(std::string_view api, uint16_t row) const { return api < kRows[row].api; }
};

}  // namespace

ProcAddress FindProcAddress(std::string_view symbol, int version, uint64_t flags, int driver_version) {
  if ((flags & ~kKnownFlags) != 0 || flags == kKnownFlags || version > driver_version) {
    return {CUDA_ERROR_INVALID_VALUE, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, 0};
  }
  const auto [first, last] =
      std::equal_range(std::begin(kRowsByApi), std::end(kRowsByApi), symbol, ApiLess());
  if (first == last) {
    return {CUDA_ERROR_NOT_FOUND, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, 0};
  }
  // Ordinary variants come first, each group by rising version: the last match is the best one.
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  const uint16_t* best = nullptr;
  for (const uint16_t* row = first; row != last; ++row) {
    if (kRows[*row].version <= version && (per_thread || !kRows[*row].per_thread)) best = row;
  }
  if (best == nullptr) {
    return {CUDA_ERROR_NOT_FOUND, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, 0};
  }
  return {CUDA_SUCCESS, CU_GET_PROC_ADDRESS_SUCCESS, *best};
}

}  // namespace detshare
