#include "coroutine_runtime/durations_profile.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>

namespace detshare {
namespace {

constexpr uint64_t kDevice = 77;

absl::Span<const std::byte> BytesOf(const std::string& text) {
  return absl::MakeConstSpan(reinterpret_cast<const std::byte*>(text.data()), text.size());
}

class Folder {
 public:
  Folder() {
    char path[] = "/tmp/detshare-profile-XXXXXX";
    REQUIRE(mkdtemp(path) != nullptr);
    path_ = path;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file() const { return path_ + "/profile"; }
  std::string path() const { return path_; }

 private:
  std::string path_;
};

TEST_CASE("A new daemon knows what the one before has learned") {
  const Folder folder;
  {
    DurationTable table(132);
    CHECK(absl::IsNotFound(ReadProfile(folder.file(), kDevice).status()));
    const std::shared_ptr<OperationDurations> gemm = table.FindOrAdd({1, 2}, {4096, 0});
    gemm->Add(0, 100'000, false);
    gemm->Add(1, 200'000, false);
    table.FindOrAdd({3, 4}, {})->Add(0, 5'000, true);
    table.FindOrAdd({5, 6}, {});  // never sampled
    REQUIRE(WriteProfile(folder.file(), kDevice, table.Records()).ok());
  }
  DurationTable table(132);
  const auto read = ReadProfile(folder.file(), kDevice);
  REQUIRE(read.ok());
  CHECK(table.Restore(*read) == 2);
  const std::shared_ptr<OperationDurations> gemm = table.FindOrAdd({1, 2}, {});
  CHECK(gemm->Estimate(0) == 100'000);
  CHECK(gemm->Estimate(1) == 200'000);
  CHECK(gemm->known());
  CHECK(gemm->memory_bound() >= 0);
  // Bounds stay bounds.
  const std::shared_ptr<OperationDurations> bounded = table.FindOrAdd({3, 4}, {});
  CHECK(bounded->Estimate(0) == 5'000);
  bounded->Add(0, 4'000'000, false);
  CHECK(bounded->Estimate(0) == 4'000'000);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("Another device's profile, another version's and none at all are refused") {
  const std::string bytes = EncodeProfile(kDevice, {{{1, 2}, 3, 0, {100.F}}});
  CHECK(DecodeProfile(kDevice, BytesOf(bytes)).ok());
  CHECK_FALSE(DecodeProfile(kDevice + 1, BytesOf(bytes)).ok());
  CHECK_FALSE(DecodeProfile(kDevice, {}).ok());
  std::string version = bytes;
  version[8] = 9;
  CHECK_FALSE(DecodeProfile(kDevice, BytesOf(version)).ok());
  CHECK(DurationsDevice({.name = "a", .sm_count = 4}) !=
        DurationsDevice({.name = "a", .sm_count = 5}));
}

TEST_CASE("Every damaged byte and every lost end is found") {
  std::vector<OperationDurations::Record> records;
  for (uint64_t i = 0; i < 20; ++i) records.push_back({{i, i * i}, 7, 1, {1000.F, 0, -2000.F}});
  const std::string bytes = EncodeProfile(kDevice, records);
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << i % 8));
    CHECK_FALSE(DecodeProfile(kDevice, BytesOf(damaged)).ok());
    CHECK_FALSE(DecodeProfile(kDevice, BytesOf(bytes.substr(0, i))).ok());
  }
  CHECK_FALSE(DecodeProfile(kDevice, BytesOf(bytes + bytes)).ok());
}

TEST_CASE("A table takes only valid values, whatever the records have") {
  std::mt19937_64 random(11);
  for (int round = 0; round < 200; ++round) {
    std::vector<OperationDurations::Record> records(random() % 50);
    for (OperationDurations::Record& record : records) {
      record.key = {random() % 40, random() % 2};
      record.blocks = static_cast<uint32_t>(random());
      record.age = static_cast<uint32_t>(random());
      for (float& time : record.times) {
        const uint32_t bits = random() % 3 == 0 ? 0 : static_cast<uint32_t>(random());
        memcpy(&time, &bits, sizeof(time));
      }
    }
    const auto decoded = DecodeProfile(kDevice, BytesOf(EncodeProfile(kDevice, records)));
    REQUIRE(decoded.ok());
    DurationTable table(132);
    const size_t taken = table.Restore(*decoded);
    CHECK(taken == table.size());
    for (const OperationDurations::Record& record : records) {
      const std::shared_ptr<const OperationDurations> operation = table.FindOrAdd(record.key, {});
      for (int i = 0; i < kSizeClasses; ++i) CHECK(operation->Estimate(i) > 0);
    }
  }
}

TEST_CASE("Random bytes are no profile, or one of which the table takes the sound records only") {
  const Folder folder;
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    std::string bytes = EncodeProfile(kDevice, {{{1, 2}, 3, 0, {100.F}}});
    bytes.resize(random() % 200);
    for (int i = 0; i < 4 && !bytes.empty(); ++i)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    std::ofstream(folder.file(), std::ios::binary) << bytes;
    DurationTable table(132);
    if (const auto read = ReadProfile(folder.file(), kDevice); read.ok())
      CHECK(table.Restore(*read) <= read->size());
  }
}

TEST_CASE("If there are too many operations, the most recently used ones are kept") {
  std::vector<OperationDurations::Record> records(DurationTable::kMaxOperations + 100);
  for (size_t i = 0; i < records.size(); ++i)
    records[i] = {{i, 0}, 1, static_cast<uint32_t>(i % 2 == 0 ? 9 : 0), {50.F}};
  const auto decoded = DecodeProfile(kDevice, BytesOf(EncodeProfile(kDevice, records)));
  REQUIRE(decoded.ok());
  CHECK(decoded->size() == DurationTable::kMaxOperations);
  size_t recent = 0;
  for (const auto& record : *decoded) recent += record.age == 0 ? 1 : 0;
  CHECK(recent == records.size() / 2);
}

TEST_CASE("A profile that cannot be written is an error, and nothing is left behind") {
  CHECK_FALSE(WriteProfile("/tmp/no-such-folder-of-detshare/profile", kDevice, {}).ok());
  const Folder folder;
  std::filesystem::create_directory(folder.file());
  CHECK_FALSE(WriteProfile(folder.file(), kDevice, {}).ok());
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
  CHECK_FALSE(ReadProfile(folder.file(), kDevice).ok());
}

}  // namespace
}  // namespace detshare
