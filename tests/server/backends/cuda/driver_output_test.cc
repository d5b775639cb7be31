#include "server/backends/cuda/driver_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "tests/server/text_output.h"

namespace detshare::cuda {
namespace {

// What goes to a descriptor while this object lives.
class Redirected {
 public:
  explicit Redirected(int fd) : fd_(fd), before_(dup(fd)) {
    REQUIRE(pipe2(ends_, O_NONBLOCK) == 0);
    dup2(ends_[1], fd_);
  }
  ~Redirected() {
    dup2(before_, fd_);
    for (const int end : {before_, ends_[0], ends_[1]}) close(end);
  }
  std::string Text() const {
    char text[4096];
    const ssize_t bytes = read(ends_[0], text, sizeof text);
    return std::string(text, bytes > 0 ? static_cast<size_t>(bytes) : 0);
  }

 private:
  const int fd_, before_;
  int ends_[2];
};

TEST_CASE(
    "Text for standard output goes to the receiver, in order, and without one to descriptor 1") {
  DriverOutput& output = DriverOutput::Get();
  const auto first = std::make_shared<TextOutput>(), second = std::make_shared<TextOutput>();
  output.SetReceiver(first);
  fprintf(stdout, "hello %d", 1);
  fputs("\n", stdout);
  output.SetReceiver(second);
  puts("hello 2");
  CHECK(first->printed() == "hello 1\n");
  CHECK(second->printed() == "hello 2\n");
  output.SetReceiver(nullptr);
  const Redirected descriptor(STDOUT_FILENO);
  puts("hello 3");
  CHECK(descriptor.Text() == "hello 3\n");
  CHECK(second->printed() == "hello 2\n");
}

TEST_CASE("Lines of assertions are kept, and all text goes to descriptor 2") {
  DriverOutput& output = DriverOutput::Get();
  const Redirected descriptor(STDERR_FILENO);
  fputs("a.cu:3: void F(): block: [0,0,0], thread: [1,0,0] Asser", stderr);
  fputs("tion `x == 3` failed.", stderr);
  CHECK(output.TakeAssertions().empty());
  fputs("\nsomething else\n", stderr);
  CHECK(output.TakeAssertions() ==
        "a.cu:3: void F(): block: [0,0,0], thread: [1,0,0] Assertion `x == 3` failed.\n");
  CHECK(output.TakeAssertions().empty());
  const std::string text = descriptor.Text();
  CHECK(text.find("failed.\nsomething else\n") != std::string::npos);
  // Many threads may fail. Some of the text is enough.
  for (int i = 0; i < 10000; ++i) {
    fputs("Assertion is no word of it: Assertion `y` failed.\n", stderr);
    descriptor.Text();
  }
  const std::string kept = output.TakeAssertions();
  CHECK(kept.size() <= 64 << 10);
  CHECK(kept.size() > 60 << 10);
}

}  // namespace
}  // namespace detshare::cuda
