// Programs of a daemon on the software GPU whose work changes its time-slice group, because an
// operator changes the class of their tenant again and again.
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "proto/wire/context.h"
#include "proto/wire/event.h"
#include "proto/wire/graph.h"
#include "tests/server/grpc_stubs.h"
#include "tests/server/session/graph_payload_builder.h"
#include "tests/server/soft_daemon.h"

namespace detshare {
namespace {

// step: *p = *p * 1664525 + k, which depends on the order of its calls. count: the same for the
// variable `counter`, whose new value also goes to *p.
constexpr char kCode[] = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .global .align 8 .u64 counter = 1;
.visible .entry step(.param .u64 p, .param .u64 k) {
  .reg .u64 %p, %k, %x;
  ld.param.u64 %p, [p];
  ld.param.u64 %k, [k];
  ld.global.u64 %x, [%p];
  mad.lo.u64 %x, %x, 1664525, %k;
  st.global.u64 [%p], %x;
  ret;
}
.visible .entry count(.param .u64 p, .param .u64 k) {
  .reg .u64 %p, %k, %c, %x;
  ld.param.u64 %p, [p];
  ld.param.u64 %k, [k];
  mov.u64 %c, counter;
  ld.global.u64 %x, [%c];
  mad.lo.u64 %x, %x, 1664525, %k;
  st.global.u64 [%c], %x;
  st.global.u64 [%p], %x;
  ret;
}
)";

constexpr GraphId kGraph = 1;
constexpr uint64_t kGraphSteps[] = {11, 12, 13};
constexpr StreamId kStreams = 3;

uint64_t Next(uint64_t value, uint64_t k) { return value * 1664525 + k; }

// A program whose operations all change the same words, on several streams that events order.
class Program {
 public:
  Program(const std::string& socket, const std::string& tenant, unsigned seed)
      : client_(socket), tenant_(tenant), random_(seed) {
    client_.tenant = tenant;
    REQUIRE(client_.Open());
    for (StreamId stream = 1; stream <= kStreams; ++stream) client_.CreateStream(stream);
    ring().Send(Op::cuEventCreate, wire::cuEventCreate{1, 1, 2, 0});
    memory_ = client_.Allocate(4096);
    REQUIRE(memory_ != 0);
    ring().Send(Op::cuMemsetD2D32Async, wire::cuMemsetD2D32Async{memory_, 0, 4096, 1, 0, 1, 1, 0});
    const LibraryId library = client_.Load(kCode);
    step_ = client_.GetKernel(library, "step");
    count_ = client_.GetKernel(library, "count");
    REQUIRE(step_ != 0);
    REQUIRE(count_ != 0);
    library_ = library;
    GraphBuilder builder;
    for (const uint64_t k : kGraphSteps)
      builder.Node(wire::kNodeKernel, GraphBuilder::Bytes(client_.LaunchOf(step_, 0)) +
                                          GraphBuilder::Bytes(memory_) + GraphBuilder::Bytes(k));
    builder.Edge(0, 1);
    builder.Edge(1, 2);
    auto [status, reply] =
        client_.Call(Op::cuGraphInstantiateWithParams,
                     wire::cuGraphInstantiateWithParams{kGraph, 1, 0, 1}, builder.Build());
    REQUIRE(status.ok());
    REQUIRE(reply.result() == 0);
  }
  TestClient& client() { return client_; }

  // From this call on, the program also uses the variable by its address.
  void AskForAddress() {
    auto [status, reply] =
        client_.Call(Op::cuLibraryGetGlobal, wire::cuLibraryGetGlobal{library_, 0}, "counter");
    wire::cuLibraryGetGlobal_Reply where{};
    REQUIRE(reply.body().size() == sizeof(where));
    std::memcpy(&where, reply.body().data(), sizeof(where));
    REQUIRE(where.bytes == 8);
    counter_ = where.address;
  }

  // Submits one operation that comes after the one before it.
  void Step() {
    const StreamId stream = 1 + random_() % kStreams;
    if (stream != stream_) {
      ring().Send(Op::cuEventRecordWithFlags,
                  wire::cuEventRecordWithFlags{1, stream_, {0, kNoFence, 0}});
      ring().Send(Op::cuStreamWaitEvent, wire::cuStreamWaitEvent{stream, 1});
      stream_ = stream;
    }
    const uint64_t k = random_();
    switch (random_() % 6) {
      case 0:
        ring().Send(Op::cuGraphLaunch, wire::cuGraphLaunch{kGraph, stream, 0, 0});
        for (const uint64_t each : kGraphSteps) value_ = Next(value_, each);
        return;
      case 1:
        Launch(count_, memory_ + 8, k);
        count_value_ = seen_count_ = Next(count_value_, k);
        return;
      case 2:
        Copy(memory_ + 16, memory_);
        copied_ = value_;
        return;
      case 3:
        if (counter_ == 0) return Launch(step_, memory_, k, &value_);
        // The variable as other memory.
        if (k % 2 == 0) return Launch(step_, counter_, k, &count_value_);
        Copy(counter_, memory_);
        count_value_ = value_;
        return;
      default:
        return Launch(step_, memory_, k, &value_);
    }
  }

  // Waits for all work. Whether its results are those of the operations one after the other.
  bool IsRight() {
    REQUIRE(ring().Call(Op::cuCtxSynchronize, wire::cuCtxSynchronize{1, 0, {0, kNoFence, 0}}) == 0);
    REQUIRE(ring().header().sticky_error.load() == 0);
    return SumAt(memory_) == value_ && SumAt(memory_ + 8) == seen_count_ &&
           SumAt(memory_ + 16) == copied_ && (counter_ == 0 || SumAt(counter_) == count_value_);
  }

  // An operator changes the class of the program's tenant.
  void SetClass(const std::string& name) {
    grpc::ClientContext context;
    proto::TenantSetting setting, reply;
    setting.set_name(tenant_);
    setting.set_tenant_class(name);
    REQUIRE(AdminOf(client_)->SetTenant(&context, setting, &reply).ok());
  }
  std::string Place() {
    grpc::ClientContext context;
    proto::Status status;
    REQUIRE(AdminOf(client_)->GetStatus(&context, {}, &status).ok());
    for (const auto& session : status.sessions()) {
      if (session.session() == client_.session()) return session.partition();
    }
    return "";
  }

 private:
  RingTestClient& ring() { return *client_.ring; }
  void Launch(KernelId kernel, uint64_t address, uint64_t k, uint64_t* value = nullptr) {
    const uint64_t parameters[2] = {address, k};
    ring().Send(Op::cuLaunchKernelEx, client_.LaunchOf(kernel, stream_),
                {reinterpret_cast<const uint8_t*>(parameters), sizeof(parameters)});
    if (value != nullptr) *value = Next(*value, k);
  }
  void Copy(uint64_t to, uint64_t from) {
    ring().Send(Op::cuMemcpyAsync,
                client_.CopyOf({to, wire::kAddress, 0}, {from, wire::kAddress, 0}, 8, stream_));
  }

  TestClient client_;
  const std::string tenant_;
  std::mt19937_64 random_;
  LibraryId library_ = 0;
  KernelId step_ = 0, count_ = 0;
  uint64_t memory_ = 0, counter_ = 0;
  StreamId stream_ = 1;
  // The expected values of words 0 to 2, and of the variable.
  uint64_t value_ = 0, seen_count_ = 0, copied_ = 0, count_value_ = 1;
};

TEST_CASE("Results and order are right while a tenant's class changes back and forth") {
  const bool asks_for_address = GENERATE(false, true);
  INFO("asks for the address of a variable: " << asks_for_address);
  SoftDaemon daemon;
  Program changing(daemon.socket(), "changing", 1), batch(daemon.socket(), "batch", 2);
  batch.SetClass("batch");
  grpc::ClientContext context;
  proto::PolicySetting setting, reply;
  setting.set_name("priority");
  REQUIRE(AdminOf(batch.client())->SetPolicy(&context, setting, &reply).ok());
  for (int round = 0; round < 120; ++round) {
    INFO("round " << round);
    const bool urgent = round % 2 == 0;
    changing.SetClass(urgent ? "latency" : "batch");
    CHECK(changing.Place() == (urgent ? "urgent" : "all"));
    if (round == 40 && asks_for_address) changing.AskForAddress();
    for (int i = 0; i < 20; ++i) {
      changing.Step();
      if (i % 4 == 0) batch.Step();
      // In the middle of the work.
      if (i == 10 && round % 3 == 0) changing.SetClass(urgent ? "batch" : "latency");
    }
    if (round % 4 == 3) REQUIRE(changing.IsRight());
  }
  CHECK(changing.IsRight());
  CHECK(batch.IsRight());
}

}  // namespace
}  // namespace detshare
