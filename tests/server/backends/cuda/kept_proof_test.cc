#include "server/backends/cuda/kept_proof.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>

#include "tests/server/test_windows.h"

namespace detshare::cuda {
namespace {

struct ProofFile {
  const TestDirectory directory;
  const std::string path = directory.path + "/preemption";

  static Preemption Available(int64_t latency_ns) {
    Preemption result;
    result.available = true;
    result.latency_ns = latency_ns;
    result.memory_bytes = 549'000'000;
    return result;
  }
  static Preemption None(const std::string& reason) {
    Preemption result;
    result.reason = reason;
    return result;
  }
  void Write(const std::string& text) { std::ofstream(path) << text; }
};

TEST_CASE_METHOD(ProofFile, "Another process finds the result of the proof") {
  {
    KeptProof first(path);
    CHECK_FALSE(first.known().has_value());
    first.Keep(Available(196'000));
  }
  const KeptProof second(path);
  REQUIRE(second.known().has_value());
  CHECK(second.known()->available);
  CHECK(second.known()->latency_ns == 196'000);
  CHECK(second.known()->memory_bytes == 549'000'000);
}

TEST_CASE_METHOD(ProofFile, "A result without preemption has its reason, of any words") {
  const std::string reason = GENERATE(std::string("the driver does not honour time slices"),
                                      std::string(), std::string(5000, 'x'));
  KeptProof(path).Keep(None(reason));
  const KeptProof second(path);
  REQUIRE(second.known().has_value());
  CHECK_FALSE(second.known()->available);
  CHECK(second.known()->reason.empty() == reason.empty());
  CHECK(reason.starts_with(second.known()->reason));
}

TEST_CASE_METHOD(ProofFile, "A process waits for the one that makes the proof") {
  auto first = std::make_unique<KeptProof>(path);
  std::future<bool> second =
      std::async(std::launch::async, [&] { return KeptProof(path).known().has_value(); });
  CHECK(second.wait_for(std::chrono::milliseconds(20)) == std::future_status::timeout);
  first->Keep(Available(1));
  first = nullptr;
  CHECK(second.get());
}

TEST_CASE_METHOD(ProofFile, "A known result is not replaced, unless it is forgotten") {
  KeptProof(path).Keep(Available(1));
  KeptProof second(path);
  second.Keep(None("busy"));
  CHECK(KeptProof(path).known()->available);
  second.Forget();
  second.Keep(None("another daemon has the GPU"));
  CHECK(KeptProof(path).known()->reason == "another daemon has the GPU");
}

TEST_CASE_METHOD(ProofFile, "Nonsense in the file is no result") {
  Write(GENERATE("", " ", "196000", "196000 ns", "-5 7 ", "x 7 reason", "99999999999999999999 7 r",
                 std::string(3000, '1')));
  KeptProof proof(path);
  CHECK_FALSE(proof.known().has_value());
  proof.Keep(Available(3));
  CHECK(KeptProof(path).known()->latency_ns == 3);
}

TEST_CASE_METHOD(ProofFile, "Other users can read the result, and not take the lock") {
  KeptProof(path).Keep(Available(1));
  struct stat result {
  }, lock{};
  REQUIRE(stat(path.c_str(), &result) == 0);
  REQUIRE(stat((path + ".lock").c_str(), &lock) == 0);
  CHECK((result.st_mode & 0777) == 0644);
  CHECK((lock.st_mode & 0777) == 0600);
}

TEST_CASE_METHOD(ProofFile, "A process that cannot write there keeps nothing, and does not wait") {
  const std::string elsewhere = directory.path + "/missing/preemption";
  KeptProof proof(elsewhere);
  CHECK_FALSE(proof.known().has_value());
  proof.Keep(Available(1));
  CHECK_FALSE(std::filesystem::exists(elsewhere));
  KeptProof alone("");
  alone.Keep(Available(1));
  CHECK_FALSE(alone.known().has_value());
}

}  // namespace
}  // namespace detshare::cuda
