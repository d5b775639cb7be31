// What `detshare run --digest-log` writes, read and compared.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace detshare::ctl {

// One read of the program's, in the sequence `place`: a stream's, or a graph node's.
struct DigestRead {
  std::string place;
  uint64_t number = 0;  // in the sequence
  uint64_t bytes = 0;
  std::string digest;
  std::string kernel;  // the last one that was launched before it, as it is called in the code
};

struct DigestProcess {
  std::string program;
  std::vector<DigestRead> reads;  // as they were written: about in the order of time
};

// Processes in the order in which they began.
using DigestLog = std::vector<DigestProcess>;

// InvalidArgument with the line that makes no sense. A last line without an end is left out: the
// process was killed.
absl::StatusOr<DigestLog> ParseDigestLog(std::string_view text);

uint64_t ReadsOf(const DigestLog& log);
uint64_t BytesOf(const DigestLog& log);
// Of all processes; equal logs have equal ones.
std::string DigestOf(const DigestLog& log);

// Where two runs part.
struct Difference {
  enum class Kind { kBytes, kMissing, kMore, kProcesses };
  Kind kind = Kind::kBytes;
  std::string program;
  DigestRead read;  // of the expected run; with kMore, of the other one; with kProcesses, none
  DigestRead seen;  // with kBytes: what came instead
};

// Nothing when both runs read the same. Streams are known by the order in which they were made;
// runs whose threads made equal streams in another order are equal, too.
std::optional<Difference> FirstDifference(const DigestLog& expected, const DigestLog& seen);

// For people: "read 12 (4,096 bytes) of stream 3, after the kernel Scale(float*, float)".
std::string Describe(const Difference& difference);
// C++ names as people write them.
std::string Demangle(const std::string& name);

}  // namespace detshare::ctl
