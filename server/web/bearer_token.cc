#include "server/web/bearer_token.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/base/errno_text.h"

namespace detshare {
namespace {

constexpr size_t kMin = 16, kMax = 4096;

absl::Status Read(const std::string& path, std::string* token) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot read the token in ", path, ": ", ErrnoText(errno)));
  }
  char buffer[kMax + 2];
  size_t size = 0;
  ssize_t got = 0;
  while (size < sizeof(buffer) && (got = read(fd, buffer + size, sizeof(buffer) - size)) > 0)
    size += static_cast<size_t>(got);
  const int error = errno;
  close(fd);
  if (got < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot read the token in ", path, ": ", ErrnoText(error)));
  }
  *token = std::string(absl::StripAsciiWhitespace(absl::string_view(buffer, size)));
  const bool printable = std::all_of(token->begin(), token->end(), [](char letter) {
    return absl::ascii_isgraph(static_cast<unsigned char>(letter));
  });
  if (token->size() < kMin || token->size() > kMax || !printable) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " has no token of ", kMin, " to ", kMax,
                     " printable characters: make one with openssl rand -hex 32"));
  }
  return absl::OkStatus();
}

// Takes the same time wherever the texts differ.
bool AreEqual(absl::string_view one, absl::string_view other) {
  if (one.size() != other.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < one.size(); ++i)
    difference |= static_cast<unsigned char>(one[i]) ^ static_cast<unsigned char>(other[i]);
  return difference == 0;
}

}  // namespace

absl::Status BearerToken::Check() const {
  std::string token;
  return Read(path_, &token);
}

bool BearerToken::Admits(std::string_view authorization) const {
  constexpr absl::string_view kScheme = "Bearer ";
  const absl::string_view header(authorization.data(), authorization.size());
  if (!absl::StartsWithIgnoreCase(header, kScheme)) return false;
  std::string token;
  return Read(path_, &token).ok() &&
         AreEqual(absl::StripAsciiWhitespace(header.substr(kScheme.size())), token);
}

}  // namespace detshare
