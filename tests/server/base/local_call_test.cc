#include "server/base/local_call.h"

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proto/control.grpc.pb.h"
#include "proto/quiet_grpc.h"
#include "tests/server/test_windows.h"
#include "tests/server/unix_sockets.h"

namespace detshare {
namespace {

using std::chrono::milliseconds;

// A socket that queues connections and never takes one.
class DeafSocket {
 public:
  DeafSocket() : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    StartQuietGrpc();
    const sockaddr_un address = UnixAddress(path());
    REQUIRE(bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
    REQUIRE(listen(fd_, 64) == 0);
  }
  ~DeafSocket() { close(fd_); }
  std::string path() const { return directory_.path + "/deaf"; }
  // Takes the oldest connection and closes it.
  void HangUp() const {
    const int connection = accept(fd_, nullptr, nullptr);
    REQUIRE(connection >= 0);
    close(connection);
  }

 private:
  TestDirectory directory_;
  const int fd_;
};

// Calls over new connections, which end with this object.
class Calls {
 public:
  explicit Calls(const std::string& socket, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      const auto channel = ConnectLocally(socket);
      REQUIRE(channel.ok());
      stubs_.push_back(proto::Control::NewStub(*channel));
      questions.push_back(
          [this, stub = stubs_.back().get()](auto* context, auto* reply, auto done) {
            stub->async()->TakeReply(context, &request_, reply, std::move(done));
          });
    }
  }
  std::vector<Question<proto::LongReply>> questions;

 private:
  const proto::TakeReplyRequest request_;
  std::vector<std::unique_ptr<proto::Control::Stub>> stubs_;
};

TEST_CASE("Nothing of a call that got no reply is left when its caller goes on") {
  const DeafSocket deaf;
  for (int round = 0; round < 200; ++round) {
    Calls calls(deaf.path(), 1);
    const auto replies = AskAll(calls.questions, milliseconds(1));
    REQUIRE(replies.size() == 1);
    CHECK(absl::IsDeadlineExceeded(replies[0].status()));
    deaf.HangUp();
  }
}

TEST_CASE("A connection that ends is an error at once, beside calls that get no reply") {
  const DeafSocket deaf;
  Calls calls(deaf.path(), 3);
  // The first of the three.
  deaf.HangUp();
  const auto replies = AskAll(calls.questions, milliseconds(50));
  REQUIRE(replies.size() == 3);
  CHECK(absl::IsUnavailable(replies[0].status()));
  CHECK(absl::IsDeadlineExceeded(replies[1].status()));
  CHECK(absl::IsDeadlineExceeded(replies[2].status()));
  const DeafSocket other;
  Calls gone(other.path(), 2);
  other.HangUp();
  other.HangUp();
  // Does not wait for the timeout.
  for (const auto& reply : AskAll(gone.questions, milliseconds(1'000'000)))
    CHECK(absl::IsUnavailable(reply.status()));
}

TEST_CASE("A call is waited for no longer than its own time once all others have replies") {
  const DeafSocket deaf, other;
  Calls calls(deaf.path(), 1), gone(other.path(), 1);
  other.HangUp();
  calls.questions.push_back(gone.questions[0]);
  const auto replies =
      AskAll(calls.questions, std::vector{milliseconds(1), milliseconds(1'000'000)});
  REQUIRE(replies.size() == 2);
  CHECK(absl::IsDeadlineExceeded(replies[0].status()));
  CHECK(absl::IsUnavailable(replies[1].status()));
}

TEST_CASE("No questions have no replies, and no daemon is an error without a call") {
  CHECK(AskAll<proto::LongReply>({}, milliseconds(1'000'000)).empty());
  TestDirectory directory;
  CHECK(absl::IsUnavailable(ConnectLocally(directory.path + "/none").status()));
  CHECK(absl::IsUnavailable(ConnectLocally(std::string(200, 'x')).status()));
}

}  // namespace
}  // namespace detshare
