// main() of the ordinary test of a fuzz target (bazel/fuzz_target.bzl):
//
//   NAME_fuzzer [--inputs=N] FILE...
//
// Runs the target on the files, which are its seeds, and then on N inputs that are made from them,
// the same ones each time. When the target fails, writes the input to a file and prints its path:
// with that file alone the program fails again.
//
// The target runs in a child process, so that it may end in any way.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "tests/fuzzing/mutator.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace detshare::fuzzing {
namespace {

constexpr size_t kMaxInputBytes = 1 << 20;

// The input that runs: written by the child, read by the parent when the child has ended.
struct Current {
  uint64_t number;  // from 1 on; 0: none
  uint64_t size;
  uint8_t bytes[kMaxInputBytes];
};

void RunOne(const std::string& input, Current* current) {
  ++current->number;
  current->size = input.size();
  std::memcpy(current->bytes, input.data(), input.size());
  // In memory of exactly its size, so that a sanitizer sees a read beyond it.
  const std::unique_ptr<uint8_t[]> exact(new uint8_t[input.size()]);
  std::memcpy(exact.get(), input.data(), input.size());
  LLVMFuzzerTestOneInput(exact.get(), input.size());
}

void RunAll(const std::vector<std::string>& seeds, uint64_t inputs, Current* current) {
  for (const std::string& seed : seeds) RunOne(seed, current);
  Mutator mutator(seeds, kMaxInputBytes);
  for (uint64_t i = 0; i < inputs; ++i) RunOne(mutator.Next(), current);
}

// The path of a new file with the input; empty when there is none.
std::string Keep(const Current& current) {
  std::string path = std::filesystem::temp_directory_path() / "fuzz-input-XXXXXX";
  const int fd = mkstemp(path.data());
  if (fd < 0) return "";
  const ssize_t written = write(fd, current.bytes, current.size);
  close(fd);
  return written == static_cast<ssize_t>(current.size) ? path : "";
}

int Fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  return 2;
}

int Main(int argc, char** argv) {
  constexpr char kInputs[] = "--inputs=";
  uint64_t inputs = 0;
  std::vector<std::string> seeds;
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], kInputs, std::strlen(kInputs)) == 0) {
      inputs = std::strtoull(argv[i] + std::strlen(kInputs), nullptr, 10);
      continue;
    }
    std::ifstream file(argv[i], std::ios::binary);
    if (!file.good()) return Fail(std::string("cannot read ") + argv[i]);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    if (seeds.back().size() > kMaxInputBytes) return Fail(std::string("too large: ") + argv[i]);
  }
  if (seeds.empty()) return Fail("usage: NAME_fuzzer [--inputs=N] FILE...");

  auto* const current = static_cast<Current*>(
      mmap(nullptr, sizeof(Current), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (current == MAP_FAILED) return Fail("no memory");
  const pid_t child = fork();
  if (child < 0) return Fail("cannot start a process");
  if (child == 0) {
    RunAll(seeds, inputs, current);
    std::exit(0);  // which lets a sanitizer look for leaks
  }
  // A test that takes too long is ended with this signal: the child dies of it, and the parent
  // tells which input it was.
  signal(SIGTERM, SIG_IGN);
  int status = 0;
  if (waitpid(child, &status, 0) != child) return Fail("cannot wait for the process");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    std::printf("%llu inputs\n", static_cast<unsigned long long>(current->number));
    return 0;
  }
  const std::string end = WIFSIGNALED(status)
                              ? "signal " + std::to_string(WTERMSIG(status))
                              : "exit status " + std::to_string(WEXITSTATUS(status));
  const std::string path = Keep(*current);
  std::fprintf(stderr, "input %llu ended with %s; it is in %s, run it again by: %s %s\n",
               static_cast<unsigned long long>(current->number), end.c_str(), path.c_str(), argv[0],
               path.c_str());
  return 1;
}

}  // namespace
}  // namespace detshare::fuzzing

int main(int argc, char** argv) { return detshare::fuzzing::Main(argc, argv); }
