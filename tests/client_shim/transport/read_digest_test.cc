#include "client_shim/transport/read_digest.h"

#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>
#include <vector>

#include "tests/client_shim/transport/fake_region.h"

namespace detshare::shim {
namespace {

HostBox Row(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size(), 1, 1, 0, 0};
}

// The digest of reads in the order of a script.
class Run {
 public:
  explicit Run(int log_fd = -1) : digest(fences, log_fd, "program") {}
  void Read(uint64_t stream, const std::string& text) {
    digest.Read(ReadDigest::StreamPlace(stream), Row(text));
  }
  // The caller keeps `text` in place.
  wire::Signal Later(uint64_t stream, const std::string& text) {
    wire::Signal made{};
    digest.ReadLater(ReadDigest::StreamPlace(stream), Row(text), [&](const wire::Signal& signal) {
      made = signal;
      return true;
    });
    return made;
  }
  void Arrive(const wire::Signal& signal) {
    fences[signal.index].store(signal.value, std::memory_order_release);
  }
  std::string Hex() { return ToHex(digest.Finish(0).digest); }

  FakeRegion region{1 << 16, 8, 4};
  FenceAllocator fences{region.fences(), 4};
  ReadDigest digest;
};

TEST_CASE("Equal reads have equal digests, and every byte and every border counts") {
  const auto of = [](const std::vector<std::string>& reads) {
    Run run;
    for (const std::string& read : reads) run.Read(1, read);
    return run.Hex();
  };
  const std::string digest = of({"abc", "def"});
  CHECK(of({"abc", "def"}) == digest);
  CHECK(of({"abc", "deg"}) != digest);
  CHECK(of({"def", "abc"}) != digest);
  CHECK(of({"abcd", "ef"}) != digest);
  CHECK(of({"abc", "def", ""}) != digest);
  CHECK(of({"abc"}) != digest);
  CHECK(of({}) != of({""}));
}

TEST_CASE("The order of making streams and the order of arrival do not matter") {
  Run run;
  run.Read(1, "a1");
  run.Read(2, "b1");
  run.Read(1, "a2");
  Run other;
  other.Read(8, "b1");
  other.Read(5, "a1");
  other.Read(5, "a2");
  CHECK(run.Hex() == other.Hex());
  Run mixed;
  mixed.Read(1, "a1");
  mixed.Read(1, "b1");
  mixed.Read(2, "a2");
  CHECK(mixed.Hex() != other.Hex());
}

TEST_CASE("A read that arrives later is digested with its bytes at that time, in its place") {
  Run now;
  now.Read(1, "first");
  now.Read(1, "second");
  now.Read(2, "third");

  Run later;
  std::string first = "?????", third = "?????";
  const wire::Signal one = later.Later(1, first);
  const wire::Signal three = later.Later(2, third);
  later.digest.Collect();
  third = "third";
  later.Arrive(three);
  later.digest.Collect();
  third = "again";  // the program reuses the memory
  first = "first";
  later.Arrive(one);
  later.Read(1, "second");
  first = "again";
  CHECK(later.Hex() == now.Hex());
}

TEST_CASE("Reads of one stream keep their order when several are in flight") {
  Run run;
  const std::string a = "a", b = "b", c = "c";
  const wire::Signal one = run.Later(1, a), two = run.Later(1, b), three = run.Later(1, c);
  CHECK(one.index == three.index);
  CHECK(two.value == one.value + 1);
  run.Arrive(two);
  run.digest.Collect();
  run.Arrive(three);
  Run other;
  for (const std::string& text : {a, b, c}) other.Read(1, text);
  CHECK(run.Hex() == other.Hex());
}

TEST_CASE("A refused copy is no read") {
  Run run;
  const std::string text = "x";
  run.digest.ReadLater(ReadDigest::StreamPlace(1), Row(text),
                       [](const wire::Signal&) { return false; });
  const wire::Signal signal = run.Later(1, text);
  run.Arrive(signal);
  const ReadDigest::Summary summary = run.digest.Finish(0);
  CHECK(summary.reads == 1);
  CHECK(summary.lost == 0);
}

TEST_CASE("A refused copy takes back its own read and not that of another thread") {
  Run run;
  const std::string refused = "x", other = "other";
  run.digest.ReadLater(ReadDigest::StreamPlace(1), Row(refused), [&](const wire::Signal&) {
    run.Read(1, other);
    return false;
  });
  Run same;
  same.Read(1, other);
  const ReadDigest::Summary summary = run.digest.Finish(1);
  CHECK(summary.reads == 1);
  CHECK(summary.lost == 0);
  CHECK(ToHex(summary.digest) == same.Hex());
}

TEST_CASE("Reads that never arrive, and reads without a fence, are reported") {
  Run run;
  const std::string text = "x";
  for (uint64_t stream = 1; stream <= 4; ++stream) run.Later(stream, text);
  CHECK(run.Later(5, text).index == kNoFence);
  const ReadDigest::Summary summary = run.digest.Finish(1);
  CHECK(summary.reads == 0);
  CHECK(summary.lost == 5);
}

TEST_CASE("Fences are given back when no read is expected") {
  Run run;
  const std::string text = "x";
  for (uint64_t stream = 1; stream <= 100; ++stream) {
    const wire::Signal signal = run.Later(stream, text);
    REQUIRE(signal.index != kNoFence);
    run.Arrive(signal);
    run.digest.Collect();
  }
  CHECK(run.digest.Finish(0).reads == 100);
}

TEST_CASE("With a pitch, only the bytes of the rows count") {
  const std::string padded = "ab..cd..|...|...ef..gh..";
  Run run;
  run.digest.Read(2, {reinterpret_cast<const std::byte*>(padded.data()), 2, 2, 2, 4, 16});
  Run dense;
  dense.Read(1, "abcdefgh");
  CHECK(run.Hex() == dense.Hex());
}

TEST_CASE("The log has a line for each read, with the last kernel before it") {
  const int fd = memfd_create("log", 0);
  REQUIRE(fd >= 0);
  Run run(fd);
  run.Read(3, "a");
  run.digest.NoteLaunch(ReadDigest::StreamPlace(3), "scale");
  const std::string text = "bb";
  const wire::Signal signal = run.Later(3, text);
  run.digest.NoteLaunch(ReadDigest::StreamPlace(3), "add");
  run.Arrive(signal);
  run.Read(3, "ccc");
  run.Read(4, "d");  // a stream without a kernel of its own
  run.digest.Finish(0);
  std::string log(4096, '\0');
  const ssize_t bytes = pread(fd, log.data(), log.size(), 0);
  REQUIRE(bytes > 0);
  log.resize(static_cast<size_t>(bytes));
  close(fd);
  const std::string pid = std::to_string(getpid());
  std::istringstream lines(log);
  std::string line;
  std::getline(lines, line);
  CHECK(line == "#process\t" + pid + "\tprogram");
  const auto digest_of = [](const std::string& bytes_read) {
    return ToHex(HashOf(std::as_bytes(std::span(bytes_read))));
  };
  const std::vector<std::string> expected = {
      "\ts3\t0\t1\t" + digest_of("a") + "\t", "\ts3\t1\t2\t" + digest_of("bb") + "\tscale",
      "\ts3\t2\t3\t" + digest_of("ccc") + "\tadd", "\ts4\t0\t1\t" + digest_of("d") + "\tadd"};
  for (const std::string& each : expected) {
    REQUIRE(std::getline(lines, line));
    CHECK(line == pid + each);
  }
  CHECK_FALSE(std::getline(lines, line));
}

}  // namespace
}  // namespace detshare::shim
