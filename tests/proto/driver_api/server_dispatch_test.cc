// Dispatch() with handlers that only record their call.
#include "proto/driver_api/server_dispatch.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "proto/driver_api/driver_api_ops.h"
#include "proto/driver_api/driver_api_table.h"
#include "tests/proto/driver_api/recorder.h"

namespace detshare {

class Session {};
class Reply {};

std::vector<Recorded> recorded;
CUresult enter_result = CUDA_SUCCESS;
int per_thread_default_depth = 0;

namespace {

const Row* RowOf(uint16_t op) {
  for (const Row& row : kRows) {
    if (row.op == op) return &row;
  }
  return nullptr;
}

struct Daemon {
  Session session;
  Reply reply;
  std::vector<uint8_t> bytes = std::vector<uint8_t>(1024, 0xAB);

  Daemon() { recorded.clear(); }
  Dispatched Send(Transport transport, uint16_t op, size_t args_bytes, size_t payload_bytes = 0) {
    return Dispatch(transport, op, {bytes.data() + 1, args_bytes}, {bytes.data(), payload_bytes},
                    session, reply);
  }
};

TEST_CASE_METHOD(Daemon, "Every operation that crosses reaches its handler with its payload") {
  REQUIRE(kCrossingRows.size() > 30);
  for (const CrossingRow& row : kCrossingRows) {
    recorded.clear();
    INFO(row.symbol);
    CHECK(Send(RowOf(row.op)->transport, row.op, row.args_bytes, 17) == Dispatched::kHandled);
    REQUIRE(recorded.size() == 1);
    CHECK(recorded[0].symbol == row.symbol);
    CHECK(recorded[0].args[0] == 17);
  }
}

TEST_CASE_METHOD(Daemon, "Arguments of any other length are refused before the handler sees them") {
  for (const CrossingRow& row : kCrossingRows) {
    INFO(row.symbol);
    const Transport transport = RowOf(row.op)->transport;
    CHECK(Send(transport, row.op, 0) == Dispatched::kWrongLength);
    CHECK(Send(transport, row.op, row.args_bytes - 1) == Dispatched::kWrongLength);
    CHECK(Send(transport, row.op, row.args_bytes + 8) == Dispatched::kWrongLength);
  }
  CHECK(recorded.empty());
}

TEST_CASE_METHOD(Daemon, "Control calls come by both transports, and ring operations by the ring") {
  for (const CrossingRow& row : kCrossingRows) {
    INFO(row.symbol);
    const bool control = RowOf(row.op)->transport == Transport::kControl;
    CHECK(Send(Transport::kRing, row.op, row.args_bytes) == Dispatched::kHandled);
    CHECK(Send(Transport::kControl, row.op, row.args_bytes) ==
          (control ? Dispatched::kHandled : Dispatched::kWrongTransport));
    recorded.clear();
    CHECK(Send(Transport::kLocal, row.op, row.args_bytes) == Dispatched::kWrongTransport);
    CHECK(recorded.empty());
  }
}

TEST_CASE_METHOD(Daemon, "Every number that is not an operation is unknown") {
  std::set<uint16_t> known;
  for (const CrossingRow& row : kCrossingRows) known.insert(row.op);
  for (uint32_t op = 0; op <= 0xFFFF; ++op) {
    const auto number = static_cast<uint16_t>(op);
    if (known.count(number) != 0) continue;
    REQUIRE(Send(Transport::kRing, number, 8) == Dispatched::kUnknownOp);
    REQUIRE(OpName(number) == nullptr);
  }
  CHECK(recorded.empty());
}

TEST_CASE("An operation's name is its row's symbol") {
  CHECK(std::string(OpName(static_cast<uint16_t>(Op::cuLaunchKernelEx))) == "cuLaunchKernelEx");
  for (const CrossingRow& row : kCrossingRows) {
    REQUIRE(OpName(row.op) != nullptr);
    CHECK(std::string(OpName(row.op)) == row.symbol);
  }
}

}  // namespace
}  // namespace detshare
