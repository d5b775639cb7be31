// Health and reflection on the daemon's socket, as gRPC's own tools see them.
#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/generic/generic_stub.h>

#include <catch2/catch.hpp>
#include <future>
#include <set>

#include "proto/reflection.grpc.pb.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/grpc_stubs.h"
#include "tests/server/instant_device.h"

namespace detshare {
namespace {

using grpc::reflection::v1alpha::ServerReflection;
using grpc::reflection::v1alpha::ServerReflectionRequest;
using grpc::reflection::v1alpha::ServerReflectionResponse;

// grpc.health.v1: 1 is serving, 2 is not serving. Returns -1 for an unknown service.
int HealthOf(const std::shared_ptr<grpc::Channel>& channel, const std::string& service) {
  grpc::GenericStub stub(channel);
  const std::string text = "\x0A" + std::string(1, static_cast<char>(service.size())) + service;
  const grpc::Slice slice(text);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer reply;
  grpc::ClientContext context;
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", {}, &request, &reply,
                 [&done](grpc::Status status) { done.set_value(std::move(status)); });
  const grpc::Status status = done.get_future().get();
  if (status.error_code() == grpc::StatusCode::NOT_FOUND) return -1;
  REQUIRE(status.ok());
  grpc::Slice body;
  REQUIRE(reply.DumpToSingleSlice(&body).ok());
  if (body.size() == 0) return 0;
  REQUIRE(body.size() == 2);
  CHECK(body.begin()[0] == 0x08);
  return body.begin()[1];
}

TEST_CASE("A daemon that serves says so, for itself and for each service") {
  TestDaemon daemon;
  TestClient client(daemon.socket());
  for (const char* service :
       {"", "detshare.proto.Control", "detshare.proto.Admin", "detshare.proto.Telemetry"})
    CHECK(HealthOf(client.channel(), service) == 1);
  CHECK(HealthOf(client.channel(), "detshare.proto.Magic") == -1);
}

TEST_CASE("A daemon whose device is lost stops serving") {
  std::promise<void> lost, seen;
  TestDaemon daemon([&](Daemon::Options& options) {
    options.server.lose_device_on_fault = true;
    options.device_lost = [&] {
      lost.set_value();
      seen.get_future().wait();
    };
  });
  TestClient looking(daemon.socket());
  CHECK(HealthOf(looking.channel(), "") == 1);
  TestClient faulty(daemon.socket());
  REQUIRE(faulty.Open());
  faulty.CreateStream(1);
  const LibraryId library = faulty.Load();
  faulty.ring->Send(Op::cuLaunchKernelEx, faulty.LaunchOf(faulty.GetKernel(library, "fault"), 1));
  faulty.Synchronize(1);
  lost.get_future().wait();
  CHECK(HealthOf(looking.channel(), "") == 2);
  CHECK(HealthOf(looking.channel(), "detshare.proto.Control") == 2);
  seen.set_value();
}

TEST_CASE("A lost device gets no session, and clients try again elsewhere") {
  TestDaemon daemon;
  daemon.devices[0]->lost = true;
  TestClient client(daemon.socket());
  CHECK_FALSE(client.Open());
  CHECK(client.status().error_code() == grpc::StatusCode::UNAVAILABLE);
}

class Reflection {
 public:
  explicit Reflection(const std::shared_ptr<grpc::Channel>& channel)
      : stub_(ServerReflection::NewStub(channel)),
        stream_(stub_->ServerReflectionInfo(&context_)) {}
  ~Reflection() {
    stream_->WritesDone();
    CHECK(stream_->Finish().ok());
  }
  ServerReflectionResponse Ask(const ServerReflectionRequest& request) {
    REQUIRE(stream_->Write(request));
    ServerReflectionResponse response;
    REQUIRE(stream_->Read(&response));
    return response;
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<ServerReflection::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<ServerReflectionRequest, ServerReflectionResponse>>
      stream_;
};

TEST_CASE("Tools learn the services and their messages") {
  TestDaemon daemon;
  TestClient client(daemon.socket());
  Reflection reflection(client.channel());
  ServerReflectionRequest request;
  request.set_list_services("");
  std::set<std::string> services;
  const ServerReflectionResponse listed = reflection.Ask(request);
  for (const auto& service : listed.list_services_response().service())
    services.insert(service.name());
  CHECK(services == std::set<std::string>{"detshare.proto.Admin", "detshare.proto.Control",
                                          "detshare.proto.TenantEndpoints",
                                          "detshare.proto.Telemetry", "grpc.health.v1.Health",
                                          "grpc.reflection.v1alpha.ServerReflection"});

  request.set_file_containing_symbol("detshare.proto.Admin.GetStatus");
  const ServerReflectionResponse found = reflection.Ask(request);
  REQUIRE(found.file_descriptor_response().file_descriptor_proto_size() >= 1);
  google::protobuf::FileDescriptorProto file;
  REQUIRE(file.ParseFromString(found.file_descriptor_response().file_descriptor_proto(0)));
  CHECK(file.name() == "proto/admin.proto");
  CHECK(file.service(0).name() == "Admin");

  request.set_file_by_filename("proto/admin.proto");
  CHECK(reflection.Ask(request).has_file_descriptor_response());
}

TEST_CASE("An unknown name is an error, and the next request gets its reply") {
  TestDaemon daemon;
  TestClient client(daemon.socket());
  Reflection reflection(client.channel());
  ServerReflectionRequest request;
  for (const std::string name : {"", "/etc/passwd", "detshare.proto.Magic", "...", "a b"}) {
    request.set_file_by_filename(name);
    CHECK(reflection.Ask(request).error_response().error_code() == grpc::StatusCode::NOT_FOUND);
    request.set_file_containing_symbol(name);
    CHECK(reflection.Ask(request).error_response().error_code() == grpc::StatusCode::NOT_FOUND);
  }
  request.Clear();
  CHECK(reflection.Ask(request).error_response().error_code() == grpc::StatusCode::UNIMPLEMENTED);
  request.set_all_extension_numbers_of_type("detshare.proto.Status");
  CHECK(reflection.Ask(request).error_response().error_code() == grpc::StatusCode::UNIMPLEMENTED);
}

}  // namespace
}  // namespace detshare
