#include "server/base/kept_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "server/base/errno_text.h"

namespace detshare {

absl::Status WriteKeptFile(const std::string& path, absl::string_view text, gid_t readers) {
  const std::string fresh = path + ".new";
  const int fd = open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  bool written = fd >= 0;
  if (readers != 0) written = written && fchown(fd, -1, readers) == 0 && fchmod(fd, 0640) == 0;
  while (written && !text.empty()) {
    const ssize_t bytes = write(fd, text.data(), text.size());
    written = bytes > 0;
    if (written) text.remove_prefix(static_cast<size_t>(bytes));
  }
  written = written && rename(fresh.c_str(), path.c_str()) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  if (written) return absl::OkStatus();
  unlink(fresh.c_str());
  return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", ErrnoText(error)));
}

absl::StatusOr<std::string> ReadKeptFile(const std::string& path, size_t max_bytes) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return absl::NotFoundError(absl::StrCat("there is no ", path));
  std::string text(max_bytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(stream.gcount()));
  if (text.size() > max_bytes)
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has more than ", max_bytes, " bytes, so it is damaged"));
  return text;
}

}  // namespace detshare
