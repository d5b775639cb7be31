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

}  // namespace

std::string Records::PathOf(uint32_t job, const char* kind) const {
  return absl::StrCat(directory_, "/", job, kind);
}

absl::Status Records::Write(const std::string& path, absl::string_view text) const {
  const auto failed = [&](const std::string& what) {
    return absl::InternalError(absl::StrCat("cannot write ", what, ": ", std::strerror(errno)));
  };
  if (mkdir(directory_.c_str(), 0700) != 0 && errno != EEXIST) return failed(directory_);
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return failed(path);
  const ssize_t written = write(fd, text.data(), text.size());
  close(fd);
  if (written != static_cast<ssize_t>(text.size())) return failed(path);
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

void Records::Close(uint32_t job, const std::function<bool()>& close) const {
  const std::string path = PathOf(job, kUnclosed);
  const int fd = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return;
  // The process that held the lock before may have closed the endpoint and removed the file.
  struct stat locked {};
  if (flock(fd, LOCK_EX) == 0 && fstat(fd, &locked) == 0 && locked.st_nlink > 0 && close())
    unlink(path.c_str());
  ::close(fd);
}

}  // namespace detshare::slurm
