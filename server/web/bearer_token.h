// The bearer token (RFC 6750) that requests for metrics must bring, kept in a file.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"

namespace detshare {

// Any thread may call it.
class BearerToken {
 public:
  // The file is read for each request, so that its owner can replace the token at any time.
  explicit BearerToken(std::string path) : path_(std::move(path)) {}

  // Whether the file has a token: one line of 16 to 4096 printable characters without blanks.
  // FailedPrecondition with the reason.
  absl::Status Check() const;
  // Whether this header Authorization has the token. No header does while Check() fails.
  bool Admits(std::string_view authorization) const;

 private:
  const std::string path_;
};

}  // namespace detshare
