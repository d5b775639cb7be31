// Whether code is bound to a time-slice group, from bytes that a client made up.
#include <cstdint>
#include <string>

#include "server/backends/cuda/group_bound_code.h"
#include "tests/fuzzing/check.h"

namespace detshare::cuda {
namespace {

bool IsBound(images::EntryKind kind, std::string_view bytes) {
  images::DeviceCode code;
  code.kind = kind;
  code.bytes = bytes;
  return IsBoundToGroup(code);
}

}  // namespace
}  // namespace detshare::cuda

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace detshare;        // NOLINT
  using namespace detshare::cuda;  // NOLINT
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const images::EntryKind kind : {images::EntryKind::kElf, images::EntryKind::kPtx})
    FUZZ_CHECK(IsBound(kind, bytes) == IsBound(kind, bytes));
  // Nothing that comes before a variable hides it.
  FUZZ_CHECK(IsBound(images::EntryKind::kPtx, std::string(bytes) + "\n.global .u32 variable;"));
  return 0;
}
