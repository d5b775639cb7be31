#include "coroutine_runtime/durations_profile.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace detshare {
namespace {

constexpr char kMagic[8] = {'D', 'S', 'p', 'r', 'o', 'f', 0, 0};
constexpr uint32_t kVersion = 1;
constexpr size_t kHeaderBytes = 32;
constexpr size_t kRecordBytes = 48;
constexpr size_t kMaxBytes = kHeaderBytes + kRecordBytes * DurationTable::kMaxOperations;

template <typename Word>
void Append(std::string& bytes, Word value) {
  for (size_t i = 0; i < sizeof(Word); ++i)
    bytes.push_back(static_cast<char>(static_cast<uint64_t>(value) >> 8 * i & 0xFF));
}

template <typename Word>
Word Take(absl::Span<const std::byte>& bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(Word); ++i) value |= std::to_integer<uint64_t>(bytes[i]) << 8 * i;
  bytes.remove_prefix(sizeof(Word));
  return static_cast<Word>(value);
}

absl::Span<const std::byte> BytesOf(const std::string& text) {
  return absl::MakeConstSpan(reinterpret_cast<const std::byte*>(text.data()), text.size());
}

absl::Status Failure(const std::string& what, const std::string& path) {
  const int error = errno;
  return absl::UnavailableError(absl::StrCat("cannot ", what, " ", path, ": ", strerror(error)));
}

bool WriteAll(int fd, const std::string& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t written = write(fd, bytes.data() + done, bytes.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    done += static_cast<size_t>(written);
  }
  return fsync(fd) == 0;
}

}  // namespace

uint64_t DurationsDevice(const DeviceProperties& properties) {
  const std::string text =
      absl::StrCat(properties.name, "\n", properties.sm_count, "\n", properties.total_memory >> 30);
  return StableHash(BytesOf(text));
}

std::string EncodeProfile(uint64_t device, std::vector<OperationDurations::Record> records) {
  // Sorted, so that equal contents give equal files.
  std::sort(records.begin(), records.end(), [](const auto& a, const auto& b) {
    return std::tie(a.age, a.key.code, a.key.shape) < std::tie(b.age, b.key.code, b.key.shape);
  });
  if (records.size() > DurationTable::kMaxOperations) records.resize(DurationTable::kMaxOperations);
  std::string body;
  body.reserve(records.size() * kRecordBytes);
  for (const OperationDurations::Record& record : records) {
    Append(body, record.key.code);
    Append(body, record.key.shape);
    Append(body, record.blocks);
    Append(body, record.age);
    for (const float time : record.times) Append(body, std::bit_cast<uint32_t>(time));
    Append(body, uint32_t{0});
  }
  std::string bytes(kMagic, sizeof(kMagic));
  Append(bytes, kVersion);
  Append(bytes, static_cast<uint32_t>(records.size()));
  Append(bytes, device);
  Append(bytes, StableHash(BytesOf(body)));
  return bytes + body;
}

absl::StatusOr<std::vector<OperationDurations::Record>> DecodeProfile(
    uint64_t device, absl::Span<const std::byte> bytes) {
  if (bytes.size() < kHeaderBytes || memcmp(bytes.data(), kMagic, sizeof(kMagic)) != 0)
    return absl::InvalidArgumentError("it is not a profile");
  bytes.remove_prefix(sizeof(kMagic));
  if (Take<uint32_t>(bytes) != kVersion)
    return absl::InvalidArgumentError("it has another version");
  const uint32_t count = Take<uint32_t>(bytes);
  if (Take<uint64_t>(bytes) != device)
    return absl::InvalidArgumentError("it belongs to another model of device");
  const uint64_t hash = Take<uint64_t>(bytes);
  if (count > DurationTable::kMaxOperations || bytes.size() != count * kRecordBytes ||
      StableHash(bytes) != hash) {
    return absl::InvalidArgumentError("it is damaged");
  }
  std::vector<OperationDurations::Record> records(count);
  for (OperationDurations::Record& record : records) {
    record.key.code = Take<uint64_t>(bytes);
    record.key.shape = Take<uint64_t>(bytes);
    record.blocks = Take<uint32_t>(bytes);
    record.age = Take<uint32_t>(bytes);
    for (float& time : record.times) time = std::bit_cast<float>(Take<uint32_t>(bytes));
    Take<uint32_t>(bytes);
  }
  return records;
}

absl::Status WriteProfile(const std::string& path, uint64_t device,
                          std::vector<OperationDurations::Record> records) {
  const std::string bytes = EncodeProfile(device, std::move(records));
  const std::string fresh = absl::StrCat(path, ".", getpid());
  const int fd = open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return Failure("write", fresh);
  absl::Status result;
  if (!WriteAll(fd, bytes)) result = Failure("write", fresh);
  close(fd);
  if (result.ok() && rename(fresh.c_str(), path.c_str()) != 0) result = Failure("replace", path);
  if (!result.ok()) unlink(fresh.c_str());
  return result;
}

absl::StatusOr<std::vector<OperationDurations::Record>> ReadProfile(const std::string& path,
                                                                    uint64_t device) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    if (errno == ENOENT) return absl::NotFoundError(absl::StrCat("there is no ", path));
    return Failure("read", path);
  }
  // The byte beyond the maximum shows whether the file is too large.
  std::string bytes(kMaxBytes + 1, '\0');
  size_t have = 0;
  ssize_t got = 0;
  do {
    got = read(fd, bytes.data() + have, bytes.size() - have);
    if (got > 0) have += static_cast<size_t>(got);
  } while ((got > 0 && have < bytes.size()) || (got < 0 && errno == EINTR));
  const absl::Status failed = got < 0 ? Failure("read", path) : absl::OkStatus();
  close(fd);
  if (!failed.ok()) return failed;
  bytes.resize(have);
  return DecodeProfile(device, BytesOf(bytes));
}

}  // namespace detshare
