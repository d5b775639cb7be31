// Managed variables: what a client learns about them, and what it may not do to them.
#include <catch2/catch.hpp>

#include "coroutine_runtime/status_cuda.h"
#include "proto/wire/copy.h"
#include "proto/wire/library.h"
#include "proto/wire/memory.h"
#include "server/sessions/session_manager.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/grpc_stubs.h"
#include "tests/server/instant_device.h"

namespace detshare {
namespace {

struct Loaded {
  int result = 0;
  wire::cuLibraryLoadData_Reply body{};
  std::vector<std::pair<std::string, wire::ManagedVariable>> variables;
  std::vector<std::string> contents;  // of the variables
};

Loaded Load(TestClient& client, const std::string& image, uint32_t device = 0,
            LibraryId sibling = 0) {
  wire::cuLibraryLoadData args{};
  args.image_bytes = image.size();
  args.sibling = sibling;
  proto::CallRequest call;
  call.set_session(client.grant.session());
  call.set_op(static_cast<uint32_t>(Op::cuLibraryLoadData));
  call.set_device(device);
  call.set_after(client.ring->tail());
  call.set_args(&args, sizeof(args));
  proto::CallReply reply;
  REQUIRE(CallInParts(*ControlOf(client), call, image, &reply).ok());
  Loaded loaded;
  loaded.result = reply.result();
  std::string_view rest = reply.body();
  if (rest.size() < sizeof(loaded.body)) return loaded;
  std::memcpy(&loaded.body, rest.data(), sizeof(loaded.body));
  rest.remove_prefix(sizeof(loaded.body));
  for (uint32_t i = 0; i < loaded.body.managed_count; ++i) {
    wire::ManagedVariable variable;
    REQUIRE(rest.size() >= sizeof(variable));
    std::memcpy(&variable, rest.data(), sizeof(variable));
    rest.remove_prefix(sizeof(variable));
    REQUIRE(rest.size() >= variable.name_bytes);
    loaded.variables.emplace_back(rest.substr(0, variable.name_bytes), variable);
    rest.remove_prefix(variable.name_bytes);
    REQUIRE(rest.size() >= variable.contents_bytes);
    loaded.contents.emplace_back(rest.substr(0, variable.contents_bytes));
    rest.remove_prefix(variable.contents_bytes);
  }
  CHECK(rest.empty());
  return loaded;
}

uint64_t PinnedBytes(TestDaemon& daemon) {
  uint64_t bytes = 0;
  for (const auto& session : daemon.daemon->manager().Sessions())
    bytes += session.counters.pinned_memory;
  return bytes;
}

TEST_CASE("Managed variables lie in pinned memory that the client can map") {
  TestDaemon daemon;
  TestClient client(daemon.socket());
  REQUIRE(client.Open());
  client.CreateStream(1);
  const Loaded loaded = Load(client, "code managed");
  REQUIRE(loaded.result == 0);
  REQUIRE(loaded.variables.size() == 2);
  const auto& [first, place] = loaded.variables[0];
  CHECK(first == "first");
  CHECK(place.bytes == 3);
  CHECK(place.address == loaded.body.managed_address);
  CHECK(loaded.variables[1].second.address == place.address + 256);
  CHECK(loaded.body.managed_bytes == 4096);
  CHECK(std::filesystem::file_size(client.directory + "/pinned." +
                                   std::to_string(loaded.body.managed_file)) == 4096);
  // The client writes the contents.
  CHECK(loaded.contents == std::vector<std::string>{"abc", ""});
  const std::string zeros(256 + 100, 0);
  CHECK(std::memcmp(reinterpret_cast<const void*>(place.address), zeros.data(), zeros.size()) == 0);
  std::memcpy(reinterpret_cast<void*>(place.address), "abc", 3);
  CHECK(PinnedBytes(daemon) == 4096);

  // The variable can also be found as a global, and is copied like pinned memory.
  auto [ok, global] = client.Call(Op::cuLibraryGetGlobal,
                                  wire::cuLibraryGetGlobal{loaded.body.library, 0}, "second");
  wire::cuLibraryGetGlobal_Reply where{};
  REQUIRE(global.body().size() == sizeof(where));
  std::memcpy(&where, global.body().data(), sizeof(where));
  CHECK(where.address == place.address + 256);
  CHECK(where.bytes == 100);
  CHECK(client.ring->Call(Op::cuMemcpyAsync,
                          client.CopyOf({place.address + 256, wire::kAddress, 0},
                                        {place.address, wire::kAddress, 0}, 3, 1)) == 0);
  CHECK(client.Synchronize(1) == 0);
  CHECK(std::memcmp(reinterpret_cast<const void*>(place.address + 256), "abc", 3) == 0);

  // No call can free it, and it ends with the library.
  CHECK(client.ring->Call(Op::cuMemFreeHost, wire::cuMemFreeHost{place.address}) ==
        kCudaErrorInvalidValue);
  auto [unloaded, reply] =
      client.Call(Op::cuLibraryUnload, wire::cuLibraryUnload{loaded.body.library, 0});
  CHECK(reply.result() == 0);
  CHECK(PinnedBytes(daemon) == 0);
}

TEST_CASE("A library has one set of managed variables for all of its devices") {
  TestDaemon daemon({}, 2);
  TestClient client(daemon.socket());
  REQUIRE(client.Open());
  const Loaded one = Load(client, "code managed", 0);
  REQUIRE(one.result == 0);
  auto* const memory = reinterpret_cast<char*>(one.body.managed_address);
  std::memcpy(memory, "xyz", 3);
  const Loaded two = Load(client, "code managed", 1, one.body.library);
  REQUIRE(two.result == 0);
  CHECK(two.body.managed_address == one.body.managed_address);
  CHECK(two.contents == std::vector<std::string>{"", ""});
  CHECK(std::memcmp(memory, "xyz", 3) == 0);
  CHECK(PinnedBytes(daemon) == 4096);

  SECTION("which lives as long as one of them") {
    client.Call(Op::cuLibraryUnload, wire::cuLibraryUnload{one.body.library, 0});
    CHECK(PinnedBytes(daemon) == 4096);
    CHECK(Load(client, "code managed", 0, two.body.library).body.managed_address ==
          one.body.managed_address);
  }
  SECTION("but not when another image has other variables") {
    daemon.devices[1]->managed_bytes = 104;
    CHECK(Load(client, "code managed", 1, one.body.library).result == kCudaErrorNotSupported);
  }
  SECTION("and a new one where the client names nothing that there is") {
    for (const LibraryId nobody : {77u, 0xFFFFFFFFu, 0u}) {
      const Loaded other = Load(client, "code managed", 1, nobody);
      CHECK(other.result == 0);
      CHECK(other.body.managed_address != one.body.managed_address);
    }
  }
}

TEST_CASE("Managed variables that do not fit are CUDA_ERROR_OUT_OF_MEMORY, and nothing is left") {
  TestDaemon daemon;
  TestClient client(daemon.socket());
  REQUIRE(client.Open());
  for (const uint64_t bytes : {uint64_t{1} << 50, uint64_t{1} << 63, ~uint64_t{0}}) {
    daemon.devices[0]->managed_bytes = bytes;
    CHECK(Load(client, "code managed").result == kCudaErrorOutOfMemory);
  }
  CHECK(PinnedBytes(daemon) == 0);
  CHECK(daemon.devices[0]->libraries.load() == 0);
  daemon.devices[0]->managed_bytes = 8;
  CHECK(Load(client, "code managed").result == 0);
}

}  // namespace
}  // namespace detshare
