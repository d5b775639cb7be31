#include "proto/driver_api/proc_address.h"

#include <algorithm>
#include <iterator>

#include "proto/driver_api/driver_api_table.h"

namespace detshare {
namespace {

constexpr uint64_t kKnownFlags =
    CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

struct ApiLess {
  bool operator()(uint16_t row, std::string_view api) const { return kRows[row].api < api; }
  bool operator()(std::string_view api, uint16_t row) const { return api < kRows[row].api; }
};

bool ValidRequest(const char* symbol, void** pfn, int version, uint64_t flags, int driver_version) {
  return symbol != nullptr && pfn != nullptr && (flags & ~kKnownFlags) == 0 &&
         version <= driver_version;
}

FoundRow FindRow(const char* symbol, int version, uint64_t flags) {
  return detshare::FindRow(symbol, version,
                           (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0);
}

}  // namespace

FoundRow FindRow(std::string_view symbol, int version, bool per_thread) {
  auto [first, last] =
      std::equal_range(std::begin(kRowsByApi), std::end(kRowsByApi), symbol, ApiLess());
  if (first == last) return {CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, 0};
  // Within one name, the ordinary variants come first. Each group is sorted by version.
  const auto* variants =
      std::find_if(first, last, [](uint16_t row) { return kRows[row].per_thread; });
  if (per_thread && variants != last) {
    first = variants;
  } else {
    last = variants;
  }
  const uint16_t* best = nullptr;
  for (const uint16_t* row = first; row != last; ++row) {
    if (version < 0 || kRows[*row].version <= version) best = row;
  }
  if (best == nullptr) return {CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, 0};
  return {CU_GET_PROC_ADDRESS_SUCCESS, *best};
}

CUresult GetProcAddress(const char* symbol, void** pfn, int version, uint64_t flags,
                        CUdriverProcAddressQueryResult* status, int driver_version,
                        void* (*entry_point)(size_t row)) {
  if (!ValidRequest(symbol, pfn, version, flags, driver_version)) return CUDA_ERROR_INVALID_VALUE;
  const FoundRow found = FindRow(symbol, version, flags);
  *pfn = found.status == CU_GET_PROC_ADDRESS_SUCCESS ? entry_point(found.row) : nullptr;
  if (status != nullptr) *status = found.status;
  return CUDA_SUCCESS;
}

CUresult GetProcAddressV1(const char* symbol, void** pfn, int version, uint64_t flags,
                          int driver_version, void* (*entry_point)(size_t row)) {
  if (!ValidRequest(symbol, pfn, version, flags, driver_version)) return CUDA_ERROR_INVALID_VALUE;
  const FoundRow found = FindRow(symbol, version, flags);
  if (found.status != CU_GET_PROC_ADDRESS_SUCCESS) return CUDA_ERROR_NOT_FOUND;
  *pfn = entry_point(found.row);
  return CUDA_SUCCESS;
}

}  // namespace detshare
