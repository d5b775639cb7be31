// bazel run --config=fuzz //tests/server/shared_memory:ring_reader_libfuzzer
#include <cstdlib>

#include "tests/server/shared_memory/ring_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr uint64_t kRing = 2 * detshare::kMaxRecordBytes;
  const uint32_t churn = size > 0 ? data[0] & 3 : 0;
  if (!detshare::FuzzRing({data, size}, kRing, churn).sound) std::abort();
  return 0;
}
