// The messages to systemd's journal. A socket takes the journal's place.
#include "server/base/journal.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "server/base/logging.h"
#include "tests/server/test_windows.h"

namespace detshare {
namespace {

class FakeJournal {
 public:
  FakeJournal() {
    fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path().c_str(), sizeof(address.sun_path) - 1);
    REQUIRE(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  }
  ~FakeJournal() { Close(); }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  std::string path() const { return directory_.path + "/journal"; }
  // The fields of the next entry, by journald's rules. Empty if there is none.
  std::map<std::string, std::string> Next() {
    char buffer[65536];
    const ssize_t got = recv(fd_, buffer, sizeof(buffer), 0);
    std::map<std::string, std::string> fields;
    std::string_view rest(buffer, got > 0 ? static_cast<size_t>(got) : 0);
    while (!rest.empty()) {
      const size_t end = rest.find_first_of("=\n");
      REQUIRE(end != rest.npos);
      const std::string name(rest.substr(0, end));
      CHECK(name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") == name.npos);
      size_t bytes = 0;
      if (rest[end] == '=') {
        rest.remove_prefix(end + 1);
        bytes = rest.find('\n');
      } else {
        uint64_t little = 0;
        std::memcpy(&little, rest.data() + end + 1, 8);
        rest.remove_prefix(end + 9);
        bytes = little;
      }
      REQUIRE(bytes < rest.size());
      CHECK(fields.emplace(name, rest.substr(0, bytes)).second);
      REQUIRE(rest[bytes] == '\n');
      rest.remove_prefix(bytes + 1);
    }
    return fields;
  }

 private:
  TestDirectory directory_;
  int fd_ = -1;
};

TEST_CASE("A value may hold anything, and stays one field") {
  FakeJournal fake;
  const auto journal = Journal::At(fake.path());
  REQUIRE(journal != nullptr);
  const std::string odd("a\nPRIORITY=0\n\0b", 15);
  CHECK(journal->Send({{"MESSAGE", odd}, {"PRIORITY", "6"}, {"EMPTY", ""}}));
  CHECK(fake.Next() ==
        std::map<std::string, std::string>{{"EMPTY", ""}, {"MESSAGE", odd}, {"PRIORITY", "6"}});
  CHECK(Journal::At(std::string(300, 'x')) == nullptr);
}

TEST_CASE("Only the journal's own stream counts as the journal") {
  struct stat status;
  REQUIRE(fstat(STDERR_FILENO, &status) == 0);
  const std::string right = std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino);
  CHECK(IsJournalStream(STDERR_FILENO, right.c_str()));
  for (const char* wrong : {"", ":", "0:0", "8", "x:y"})
    CHECK_FALSE(IsJournalStream(STDERR_FILENO, wrong));
  CHECK_FALSE(IsJournalStream(STDERR_FILENO, nullptr));
  CHECK_FALSE(IsJournalStream(STDERR_FILENO, (right + "1").c_str()));
  CHECK_FALSE(IsJournalStream(-1, right.c_str()));
}

// A process logs to one journal in its life, so one test case covers everything.
TEST_CASE("Lines become entries with fields, and lines again when the journal is gone") {
  FakeJournal fake;
  SetLogLevel(LogLevel::kInfo);
  int pipe_fds[2];
  REQUIRE(pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) == 0);
  const int old_stderr = dup(STDERR_FILENO);
  const auto said = [&] {
    char buffer[8192];
    const ssize_t got = read(pipe_fds[0], buffer, sizeof(buffer));
    return std::string(buffer, got > 0 ? static_cast<size_t>(got) : 0);
  };
  dup2(pipe_fds[1], STDERR_FILENO);

  setenv("JOURNAL_STREAM", "1:1", 1);
  LogToJournal(fake.path());
  LogInfo("to the terminal");
  const std::string line = said();
  const auto nothing = fake.Next();

  struct stat status;
  fstat(STDERR_FILENO, &status);
  setenv("JOURNAL_STREAM",
         (std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino)).c_str(), 1);
  LogToJournal(fake.path());
  LogWarning("a client says \"\nPRIORITY=0\"");
  const auto warning = fake.Next();
  std::map<std::string, std::string> scoped, after;
  {
    const LogScope scope(17, "chat");
    LogInfo("begins");
    scoped = fake.Next();
  }
  LogError(std::string(100'000, 'x'));
  after = fake.Next();
  const std::string silence = said();
  fake.Close();
  LogError("nobody listens");
  const std::string fallback = said();
  dup2(old_stderr, STDERR_FILENO);
  close(old_stderr);

  CHECK(line.find("INFO ") == 0);
  CHECK(nothing.empty());
  CHECK(warning.at("MESSAGE") == "a client says \" PRIORITY=0\"");
  CHECK(warning.at("PRIORITY") == "4");
  CHECK(warning.at("SYSLOG_IDENTIFIER") == "detshared");
  CHECK_FALSE(warning.contains("DETSHARE_SESSION"));
  CHECK(scoped.at("DETSHARE_SESSION") == "17");
  CHECK(scoped.at("DETSHARE_TENANT") == "chat");
  CHECK(scoped.at("PRIORITY") == "6");
  CHECK(after.at("PRIORITY") == "3");
  CHECK(after.at("MESSAGE").size() == 4096);
  CHECK_FALSE(after.contains("DETSHARE_TENANT"));
  CHECK(silence.empty());
  CHECK(fallback.find("<3>ERROR ") == 0);
}

}  // namespace
}  // namespace detshare
