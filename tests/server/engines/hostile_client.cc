// A client that sends its engine anything: mutated operations by the ring and as calls, bytes
// anywhere in its shared file, a file that is cut off, and noise in place of gRPC.
//
//   HOSTILE_CLIENT="SOCKET TENANT UID SECONDS NUMBER SEED..." hostile_client
//
// The seeds are files of control_call_fuzzer. A client with another number does other things. Root
// becomes the user first. Prints what it did, and ends with 0 if the daemon replied all the time.
#include <fcntl.h>
#include <grp.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "proto/preamble.h"
#include "proto/wire/memory.h"
#include "tests/fuzzing/mutator.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/session/control_call_input.h"

namespace detshare {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxInput = 1 << 16;
constexpr int kMaxOperations = 64;
// A call may wait for an operation of the client that never comes.
constexpr std::chrono::milliseconds kCallTimeout(300);
// Without a session for so long, the client says that the daemon does not reply.
constexpr std::chrono::seconds kSilence(60);

struct Arguments {
  std::string socket, tenant;
  uid_t user = 0;
  int seconds = 0;
  uint64_t number = 0;
  std::vector<std::string> seeds;
} arguments;

struct Counts {
  uint64_t sessions = 0, refused = 0, operations = 0, calls = 0, scribbles = 0, noise = 0;
};

class HostileClient {
 public:
  HostileClient() : random_(arguments.number), mutator_(arguments.seeds, kMaxInput) {
    // Clients with other numbers begin elsewhere.
    for (uint64_t i = 0; i < arguments.number * 997 % 10007; ++i) mutator_.Next();
  }

  void Run() {
    const Clock::time_point end = Clock::now() + std::chrono::seconds(arguments.seconds);
    Clock::time_point last = Clock::now();
    while (Clock::now() < end) {
      if (Below(16) == 0) SendNoise();
      if (RunSession()) {
        last = Clock::now();
      } else {
        ++counts.refused;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      REQUIRE(Clock::now() - last < kSilence);
    }
  }

  Counts counts;

 private:
  uint64_t Below(uint64_t limit) { return random_() % limit; }

  // Bytes that are not gRPC, or nothing at all.
  void SendNoise() {
    const int fd = ConnectTo(arguments.socket);
    if (fd < 0) return;
    std::string bytes(Below(4096), '\0');
    for (char& byte : bytes) byte = static_cast<char>(random_());
    const Preamble preamble = MakePreamble(arguments.tenant);
    if (Below(2) == 0) bytes.insert(0, reinterpret_cast<const char*>(&preamble), sizeof(preamble));
    [[maybe_unused]] const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    close(fd);
    ++counts.noise;
  }

  // Returns whether there was a session.
  bool RunSession() {
    TestClient client(arguments.socket);
    client.tenant = arguments.tenant;
    client.call_timeout = kCallTimeout;
    if (!client.Open()) return false;
    ++counts.sessions;
    client.CreateStream(1);
    // The first addresses that a session gets are those of the seeds in their session.
    memory_ = client.Allocate(1 << 20);
    wire::cuMemHostAlloc_Reply pinned{};
    pinned_ = client.ring->Call(Op::cuMemHostAlloc, wire::cuMemHostAlloc{1 << 16, 0}, &pinned) == 0
                  ? pinned.address
                  : 0;
    for (uint64_t i = 0, inputs = 1 + Below(4); i < inputs; ++i) SendInput(client, mutator_.Next());
    if (Below(8) == 0) Scribble(client);
    if (Below(16) == 0) CutOff(client);
    return true;
  }

  void SendInput(TestClient& client, const std::string& input) {
    size_t at = 0;
    for (int i = 0; i < kMaxOperations && input.size() - at >= sizeof(InputOperation); ++i) {
      InputOperation head;
      std::memcpy(&head, input.data() + at, sizeof(head));
      at += sizeof(head);
      std::string args = Take(input, &at, head.args_bytes);
      std::string payload = Take(input, &at, head.payload_bytes);
      // Room is waited for, and the reader of an ended session frees none.
      if (client.ring->tail() + 2 * kMaxInput > client.ring->header().ring_bytes) return;
      ++counts.operations;
      if (head.by_ring % 2 == 1) {
        client.ring->device = head.device;
        client.ring->context = head.context;
        client.ring->Submit(head.op, args.data(), static_cast<uint32_t>(args.size()),
                            {reinterpret_cast<const uint8_t*>(payload.data()), payload.size()},
                            Below(2) == 0 ? kNoReply : static_cast<uint32_t>(Below(300)));
      } else {
        ++counts.calls;
        client.CallBytes(static_cast<Op>(head.op), args, payload);
      }
    }
  }

  std::string Take(const std::string& input, size_t* at, size_t count) {
    std::string taken = input.substr(*at, count);
    *at += taken.size();
    // Addresses become those of this session.
    for (size_t i = 0; i + 8 <= taken.size(); i += 8) {
      uint64_t word = 0;
      std::memcpy(&word, taken.data() + i, sizeof(word));
      if (word - kInputDeviceBase < kInputDeviceBytes) word += memory_ - kInputDeviceBase;
      if (word - kInputPinnedBase < kInputPinnedBytes) word += pinned_ - kInputPinnedBase;
      std::memcpy(taken.data() + i, &word, sizeof(word));
    }
    return taken;
  }

  // Bytes at places of the shared file, most of them near its beginning, where the header is.
  void Scribble(TestClient& client) {
    auto* const file = reinterpret_cast<uint8_t*>(&client.ring->header());
    const uint64_t bytes = client.ring->header().staging_offset;
    for (uint64_t i = 0, places = 1 + Below(64); i < places; ++i)
      file[Below(Below(2) == 0 ? 4096 : bytes)] = static_cast<uint8_t>(random_());
    client.ring->Wake();
    ++counts.scribbles;
  }

  // The daemon loses pages that it has mapped. This process touches none of them afterwards.
  void CutOff(TestClient& client) {
    const int fd = open((client.directory + "/session").c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    [[maybe_unused]] const int cut = ftruncate(fd, static_cast<off_t>(Below(2) * 4096));
    close(fd);
  }

  std::mt19937_64 random_;
  fuzzing::Mutator mutator_;
  uint64_t memory_ = 0, pinned_ = 0;
};

// Returns whether the process is that user from now on.
bool Become(uid_t user) {
  return geteuid() != 0 || (setgroups(0, nullptr) == 0 && setresgid(user, user, user) == 0 &&
                            setresuid(user, user, user) == 0);
}

TEST_CASE("The daemon replies to a hostile client") {
  const char* const text = getenv("HOSTILE_CLIENT");
  REQUIRE(text != nullptr);
  std::istringstream words(text);
  REQUIRE(words >> arguments.socket >> arguments.tenant >> arguments.user >> arguments.seconds >>
          arguments.number);
  for (std::string seed; words >> seed;) {
    std::ifstream file(seed, std::ios::binary);
    arguments.seeds.emplace_back(std::istreambuf_iterator<char>(file),
                                 std::istreambuf_iterator<char>());
  }
  REQUIRE_FALSE(arguments.seeds.empty());
  if (arguments.user != 0) REQUIRE(Become(arguments.user));
  HostileClient client;
  client.Run();
  const Counts& counts = client.counts;
  std::printf(
      "%llu sessions, %llu refused, %llu operations, %llu calls, %llu scribbles, %llu noise\n",
      static_cast<unsigned long long>(counts.sessions),
      static_cast<unsigned long long>(counts.refused),
      static_cast<unsigned long long>(counts.operations),
      static_cast<unsigned long long>(counts.calls),
      static_cast<unsigned long long>(counts.scribbles),
      static_cast<unsigned long long>(counts.noise));
  CHECK(counts.sessions > 0);
}

}  // namespace
}  // namespace detshare
