// Reads and compares the files that `detshare run --digest-log` writes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace detshare::ctl {

// One read of the program. The reads of a stream, or of a graph node, are one sequence.
struct DigestRead {
  std::string place;    // the name of the sequence
  uint64_t number = 0;  // the read's position in the sequence, from 0 on
  uint64_t bytes = 0;
  std::string digest;
  std::string kernel;  // the last kernel that was launched before the read, by its mangled name
};

struct DigestProcess {
  std::string program;
  std::vector<DigestRead> reads;  // in the order of the file, which is about the order of time
};

// Processes in the order in which they began.
using DigestLog = std::vector<DigestProcess>;

// InvalidArgument, with the line or the sequence that is wrong. A last line without an end of line
// is left out, because its process was killed while it wrote.
absl::StatusOr<DigestLog> ParseDigestLog(std::string_view text);

uint64_t ReadsOf(const DigestLog& log);
uint64_t BytesOf(const DigestLog& log);
// One digest of all reads of all processes. Equal logs have equal digests.
std::string DigestOf(const DigestLog& log);

// The first difference between two runs.
struct Difference {
  enum class Kind {
    kBytes,     // a read returned other bytes
    kMissing,   // a read of the expected run did not happen in the other run
    kMore,      // a read of the other run did not happen in the expected run
    kProcesses  // the numbers of processes differ
  };
  Kind kind = Kind::kBytes;
  std::string program;
  DigestRead read;  // of the expected run; kMore: of the other run; kProcesses: empty
  DigestRead seen;  // kBytes: the read of the other run
};

// None if both runs read the same. Streams have numbers by the order in which the program made
// them. Runs in which threads made equal streams in another order count as equal.
std::optional<Difference> FirstDifference(const DigestLog& expected, const DigestLog& seen);

// The difference in words: "read 12 of stream 3, 4,096 bytes, after the kernel Scale(float*,
// float)".
std::string Describe(const Difference& difference);
// A mangled C++ name as it is written in C++; other names as they are.
std::string Demangle(const std::string& name);

}  // namespace detshare::ctl
