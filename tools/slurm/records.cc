#include "tools/slurm/records.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace detshare::slurm {
namespace {

constexpr char kRefused[] = ".refused", kUnclosed[] = ".unclosed";

absl::Status Failed(const std::string& path) {
  return absl::InternalError(absl::StrCat("cannot use ", path, ": ", std::strerror(errno)));
}

}  // namespace

std::string Records::PathOf(uint32_t job, const char* kind) const {
  return absl::StrCat(directory_, "/", job, kind);
}

absl::StatusOr<int> Records::Open(const std::string& path, int flags) const {
  if (mkdir(directory_.c_str(), 0700) != 0 && errno != EEXIST) return Failed(directory_);
  const int fd = open(path.c_str(), flags | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return Failed(path);
  return fd;
}

absl::Status Records::Write(const std::string& path, absl::string_view text) const {
  const absl::StatusOr<int> fd = Open(path, O_WRONLY | O_TRUNC);
  if (!fd.ok()) return fd.status();
  const ssize_t written = write(*fd, text.data(), text.size());
  close(*fd);
  if (written != static_cast<ssize_t>(text.size())) return Failed(path);
  return absl::OkStatus();
}

absl::Status Records::NoteRefusal(uint32_t job, absl::string_view reason) const {
  return Write(PathOf(job, kRefused), reason);
}

std::optional<std::string> Records::Refusal(uint32_t job) const {
  std::ifstream file(PathOf(job, kRefused));
  if (!file) return std::nullopt;
  std::ostringstream reason;
  reason << file.rdbuf();
  return reason.str();
}

void Records::ForgetRefusal(uint32_t job) const { unlink(PathOf(job, kRefused).c_str()); }

absl::Status Records::NoteUnclosed(uint32_t job) const { return Write(PathOf(job, kUnclosed), ""); }

std::vector<uint32_t> Records::Unclosed() const {
  std::vector<uint32_t> jobs;
  std::error_code error;
  std::filesystem::directory_iterator entry(directory_, error), end;
  for (; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    absl::string_view number = name;
    uint32_t job = 0;
    if (absl::ConsumeSuffix(&number, kUnclosed) && absl::SimpleAtoi(number, &job))
      jobs.push_back(job);
  }
  return jobs;
}

void Records::ForgetUnclosed(uint32_t job) const { unlink(PathOf(job, kUnclosed).c_str()); }

absl::Status Records::Exclusively(const std::function<void()>& act) const {
  const std::string path = absl::StrCat(directory_, "/lock");
  const absl::StatusOr<int> fd = Open(path, O_RDONLY);
  if (!fd.ok()) return fd.status();
  while (flock(*fd, LOCK_EX) != 0) {
    if (errno == EINTR) continue;
    close(*fd);
    return Failed(path);
  }
  act();
  close(*fd);
  return absl::OkStatus();
}

}  // namespace detshare::slurm
