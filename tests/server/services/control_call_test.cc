// Control calls over gRPC: their parts, and the memory that they take while they wait.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proto/call_parts.h"
#include "proto/wire/context.h"
#include "server/sessions/session_manager.h"
#include "server/tenants/tenant_accounts.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/grpc_stubs.h"

namespace detshare {
namespace {

proto::CallRequest RequestOf(const TestClient& client, uint64_t payload_bytes) {
  wire::cuLibraryLoadData args{};
  args.context = 1;
  args.image_bytes = payload_bytes;
  proto::CallRequest request;
  request.set_session(client.session());
  request.set_op(static_cast<uint32_t>(Op::cuLibraryLoadData));
  request.set_context(1);
  request.set_args(&args, sizeof(args));
  request.set_payload_bytes(payload_bytes);
  return request;
}

// Returns code that InstantDevice accepts.
std::string Code(uint64_t bytes) { return "code" + std::string(bytes - 4, 'c'); }

// A call of which the client sends parts as the test likes.
struct OpenCall {
  OpenCall(TestClient& client, const proto::CallRequest& request, uint64_t first_bytes)
      : stub(ControlOf(client)), writer(stub->Call(&context, &reply)) {
    proto::CallPart part;
    *part.mutable_request() = request;
    part.set_payload(Code(first_bytes));
    writer->Write(part);
  }
  bool Send(uint64_t bytes) {
    proto::CallPart part;
    part.set_payload(std::string(bytes, 'c'));
    return writer->Write(part);
  }
  grpc::Status Finish() {
    writer->WritesDone();
    return writer->Finish();
  }

  grpc::ClientContext context;
  proto::CallReply reply;
  const std::unique_ptr<proto::Control::Stub> stub;
  const std::unique_ptr<grpc::ClientWriter<proto::CallPart>> writer;
};

struct ControlCallFixture {
  ControlCallFixture() : client(daemon.socket()) {
    client.tenant = "tenant";
    REQUIRE(client.Open());
    client.CreateStream(1);
  }
  // The bytes that wait for the tenant.
  uint64_t waiting() {
    return TenantAccount::Waiting(daemon.daemon->manager().tenant_accounts().Of("tenant"))->used();
  }

  TestDaemon daemon;
  TestClient client;
};

TEST_CASE("A call whose payload takes several parts is executed") {
  ControlCallFixture f;
  for (const uint64_t bytes : {uint64_t{4}, uint64_t{kFirstCallPartBytes},
                               uint64_t{kFirstCallPartBytes} + 1, uint64_t{5} << 20}) {
    CHECK(f.client.Load(Code(bytes)) != 0);
  }
  // The worker gives the room back after it has replied.
  CHECK(Eventually([&] { return f.waiting() == 0; }));
}

TEST_CASE("The daemon reads a long call when its turn comes, and the client waits meanwhile") {
  ControlCallFixture f;
  constexpr uint64_t kBytes = 64 << 20;
  proto::CallRequest request = RequestOf(f.client, kBytes);
  request.set_after(f.client.ring->tail() + kRingLine);
  std::atomic<uint64_t> sent{0};
  OpenCall call(f.client, request, kFirstCallPartBytes);
  std::thread sender([&] {
    for (uint64_t left = kBytes - kFirstCallPartBytes; left != 0;) {
      const uint64_t bytes = std::min<uint64_t>(left, kCallPartBytes);
      if (!call.Send(bytes)) return;
      left -= bytes;
      sent += bytes;
    }
  });
  // A call that comes later is executed first.
  CHECK(f.client.Load() != 0);
  CHECK(f.waiting() == 0);
  CHECK(sent < kBytes / 2);
  // The record for which the call waits.
  f.client.ring->Send(Op::cuCtxSynchronize, wire::cuCtxSynchronize{1, 0, {0, kNoFence, 0}});
  sender.join();
  CHECK(call.Finish().ok());
  CHECK(call.reply.result() == 0);
  CHECK(Eventually([&] { return f.waiting() == 0; }));
}

TEST_CASE("Calls of a tenant that has no room wait until other calls are over") {
  ControlCallFixture f;
  // Each session has room for one payload of the largest size, and the tenant for two.
  constexpr uint64_t kRest = kMaxCallBytes - kFirstCallPartBytes;
  std::vector<std::unique_ptr<TestClient>> others;
  std::vector<std::unique_ptr<OpenCall>> calls;
  for (int i = 0; i < 2; ++i) {
    others.push_back(std::make_unique<TestClient>(f.daemon.socket()));
    others.back()->tenant = "tenant";
    REQUIRE(others.back()->Open());
    for (int k = 0; k < 2; ++k) {
      calls.push_back(std::make_unique<OpenCall>(
          *others.back(), RequestOf(*others.back(), kMaxCallBytes), kFirstCallPartBytes));
    }
  }
  CHECK(Eventually([&] { return f.waiting() == 2 * kRest; }));
  std::atomic<bool> loaded{false};
  std::thread loader([&] { loaded = f.client.Load(Code(1 << 20)) != 0; });
  // Calls that need no further part go on.
  CHECK(f.client.Load() != 0);
  CHECK_FALSE(loaded);
  for (const auto& call : calls) call->context.TryCancel();
  loader.join();
  CHECK(loaded);
  for (const auto& call : calls) CHECK_FALSE(call->Finish().ok());
  CHECK(Eventually([&] { return f.waiting() == 0; }));
}

TEST_CASE("Calls that break the rules of parts are refused, and the session goes on") {
  ControlCallFixture f;
  proto::CallRequest request = RequestOf(f.client, 100);
  uint64_t first = 100, second = 0;
  grpc::StatusCode expected = grpc::StatusCode::INVALID_ARGUMENT;
  SECTION("longer than the largest payload") {
    request.set_payload_bytes(kMaxCallBytes + 1);
    expected = grpc::StatusCode::RESOURCE_EXHAUSTED;
  }
  SECTION("a first part that is too long") {
    first = kFirstCallPartBytes + 1;
    request.set_payload_bytes(first);
  }
  SECTION("a later part that is too long") {
    second = 2 * kCallPartBytes;
    request.set_payload_bytes(first + second);
    expected = grpc::StatusCode::RESOURCE_EXHAUSTED;  // gRPC refuses the message
  }
  SECTION("more than the request says") { first = 101; }
  SECTION("more in a later part than the request says") {
    first = 50;
    second = 51;
  }
  SECTION("less than the request says") { first = 99; }
  SECTION("arguments that are too long") {
    request.set_args(std::string(kFirstCallPartBytes + 1, 'a'));
  }
  OpenCall call(f.client, request, first);
  if (second != 0) call.Send(second);
  CHECK(call.Finish().error_code() == expected);
  CHECK(f.client.Synchronize(1) == 0);
}

TEST_CASE("A call without a part is refused") {
  ControlCallFixture f;
  grpc::ClientContext context;
  proto::CallReply reply;
  const auto stub = ControlOf(f.client);
  const auto writer = stub->Call(&context, &reply);
  writer->WritesDone();
  CHECK(writer->Finish().error_code() == grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace detshare
