// The services of a daemon, for tests that ask them without the fixture's help.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "proto/admin.grpc.pb.h"
#include "proto/control.grpc.pb.h"
#include "tests/server/daemon_fixture.h"

namespace detshare {

inline std::unique_ptr<proto::Admin::Stub> AdminOf(const TestClient& client) {
  return proto::Admin::NewStub(client.channel);
}

inline std::unique_ptr<proto::Control::Stub> ControlOf(const TestClient& client) {
  return proto::Control::NewStub(client.channel);
}

}  // namespace detshare
