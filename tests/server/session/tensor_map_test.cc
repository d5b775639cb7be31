// Tensor maps: which requests reach the device and which do not.
#include "proto/wire/tensor_map.h"

#include <catch2/catch.hpp>
#include <mutex>
#include <optional>

#include "coroutine_runtime/device_tensor_map.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/instant_device.h"

namespace detshare {
namespace {

class Encoder final : public TensorMapEncoder {
 public:
  absl::StatusOr<TensorMap> Encode(const TensorMapRequest& request) override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      last_ = request;
    }
    if (request.data_type == 98) {
      absl::Status refused = CudaError(kCudaErrorInvalidValue, "refused after a part was written");
      SetPartialTensorMap(TensorMap{1, 2, 3}, &refused);
      return refused;
    }
    if (request.data_type == 99) return CudaError(kCudaErrorInvalidValue, "no such type");
    TensorMap map{};
    map[0] = request.address;
    map[15] = request.rank;
    return map;
  }
  absl::StatusOr<TensorMap> ReplaceAddress(const TensorMap& map, DeviceAddress address) override {
    TensorMap changed = map;
    changed[0] = address;
    return changed;
  }
  std::optional<TensorMapRequest> last() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return last_;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<TensorMapRequest> last_;  // guarded by mutex_
};

struct TensorMapFixture {
  TensorMapFixture() : client(daemon.socket()) {
    daemon.devices[0]->tensor_map_encoder = &encoder;
    REQUIRE(client.Open());
  }
  Encoder encoder;
  TestDaemon daemon;
  TestClient client;
};

wire::cuTensorMapEncodeTiled Tiled() {
  wire::cuTensorMapEncodeTiled args{};
  args.address = 0x12340;
  args.rank = 2;
  args.dimensions[0] = 64;
  args.dimensions[1] = 32;
  args.strides[0] = 128;
  args.box[0] = 16;
  args.element_strides[1] = 1;
  args.data_type = 6;
  args.swizzle = 3;
  return args;
}

TEST_CASE("The device makes a tensor map from all arguments") {
  TensorMapFixture f;
  RingTestClient& ring = *f.client.ring;
  wire::cuTensorMapEncodeTiled_Reply reply{};
  REQUIRE(ring.Call(Op::cuTensorMapEncodeTiled, Tiled(), &reply) == 0);
  CHECK(reply.map[0] == 0x12340);
  CHECK(reply.map[15] == 2);
  REQUIRE(f.encoder.last().has_value());
  CHECK(f.encoder.last()->kind == TensorMapRequest::Kind::kTiled);
  CHECK(f.encoder.last()->dimensions[1] == 32);
  CHECK(f.encoder.last()->strides[0] == 128);
  CHECK(f.encoder.last()->box[0] == 16);
  CHECK(f.encoder.last()->element_strides[1] == 1);
  CHECK(f.encoder.last()->swizzle == 3);

  wire::cuTensorMapEncodeIm2col pixels{};
  pixels.rank = 5;
  pixels.lower_corner[2] = -7;
  pixels.upper_corner[0] = 9;
  pixels.pixels_per_column = 64;
  wire::cuTensorMapEncodeIm2col_Reply pixels_reply{};
  REQUIRE(ring.Call(Op::cuTensorMapEncodeIm2col, pixels, &pixels_reply) == 0);
  CHECK(f.encoder.last()->kind == TensorMapRequest::Kind::kIm2col);
  CHECK(f.encoder.last()->lower_corner[2] == -7);
  CHECK(f.encoder.last()->upper_corner[0] == 9);
  CHECK(f.encoder.last()->pixels_per_column == 64);

  wire::cuTensorMapEncodeIm2colWide wide{};
  wide.rank = 3;
  wide.lower_corner_width = -2;
  wide.mode = 1;
  REQUIRE(ring.Call(Op::cuTensorMapEncodeIm2colWide, wide) == 0);
  CHECK(f.encoder.last()->kind == TensorMapRequest::Kind::kIm2colWide);
  CHECK(f.encoder.last()->lower_corner[0] == -2);
  CHECK(f.encoder.last()->wide_mode == 1);

  wire::cuTensorMapReplaceAddress moved{};
  moved.map[5] = 55;
  moved.address = 0xABC0;
  wire::cuTensorMapReplaceAddress_Reply moved_reply{};
  REQUIRE(ring.Call(Op::cuTensorMapReplaceAddress, moved, &moved_reply) == 0);
  CHECK(moved_reply.map[0] == 0xABC0);
  CHECK(moved_reply.map[5] == 55);
}

TEST_CASE("A tensor map of impossible rank or kind never reaches the device") {
  TensorMapFixture f;
  RingTestClient& ring = *f.client.ring;
  const auto refused = [&](const wire::cuTensorMapEncodeTiled& args) {
    return ring.Call(Op::cuTensorMapEncodeTiled, args) == kCudaErrorInvalidValue &&
           !f.encoder.last().has_value();
  };
  wire::cuTensorMapEncodeTiled args = Tiled();
  args.rank = 0;
  CHECK(refused(args));
  args.rank = 6;
  CHECK(refused(args));
  args.rank = 0xFFFFFFFF;
  CHECK(refused(args));
  args = Tiled();
  args.data_type = 0x80000000;
  CHECK(refused(args));
  args = Tiled();
  args.out_of_bounds_fill = 1000;
  CHECK(refused(args));
  wire::cuTensorMapEncodeIm2col pixels{};
  pixels.rank = 2;
  CHECK(ring.Call(Op::cuTensorMapEncodeIm2col, pixels) == kCudaErrorInvalidValue);
  wire::cuTensorMapEncodeIm2colWide wide{};
  wide.rank = 3;
  wide.mode = 0xFFFFFFFF;
  CHECK(ring.Call(Op::cuTensorMapEncodeIm2colWide, wide) == kCudaErrorInvalidValue);
  CHECK_FALSE(f.encoder.last().has_value());
  // A refusal of the device is a reply, and the session goes on.
  args = Tiled();
  args.data_type = 99;
  CHECK(ring.Call(Op::cuTensorMapEncodeTiled, args) == kCudaErrorInvalidValue);
  CHECK(ring.Call(Op::cuTensorMapEncodeTiled, Tiled()) == 0);
}

TEST_CASE("A refused tensor map comes with the part that the driver wrote") {
  TensorMapFixture f;
  wire::cuTensorMapEncodeTiled args = Tiled();
  args.data_type = 98;
  wire::cuTensorMapEncodeTiled_Reply reply{};
  CHECK(f.client.ring->Call(Op::cuTensorMapEncodeTiled, args, &reply) == kCudaErrorInvalidValue);
  CHECK(f.client.ring->slot(0).bytes == sizeof(reply));
  CHECK(reply.map[0] == 1);
  CHECK(reply.map[2] == 3);
  // Where the driver wrote nothing, the reply is empty.
  args.data_type = 99;
  CHECK(f.client.ring->Call(Op::cuTensorMapEncodeTiled, args) == kCudaErrorInvalidValue);
  CHECK(f.client.ring->slot(0).bytes == 0);
}

TEST_CASE("A device without tensor maps says that they are not supported") {
  TestDaemon daemon;
  TestClient client(daemon.socket());
  REQUIRE(client.Open());
  CHECK(client.ring->Call(Op::cuTensorMapEncodeTiled, Tiled()) == kCudaErrorNotSupported);
  CHECK(client.ring->Call(Op::cuTensorMapReplaceAddress, wire::cuTensorMapReplaceAddress{}) ==
        kCudaErrorNotSupported);
}

}  // namespace
}  // namespace detshare
