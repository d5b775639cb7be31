// The shares that Kubernetes is offered, and which shares are preferred.
#include "tools/kubernetes/shares.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <catch2/catch.hpp>

namespace detshare::kubernetes {
namespace {

const std::string kFirst = "GPU-00000000-1111-2222-3333-444444444440";
const std::string kSecond = "GPU-00000000-1111-2222-3333-444444444441";

std::string Id(const std::string& gpu, int number) {
  return gpu.substr(4) + "-" + std::to_string(number);
}
std::vector<std::string> Ids(const std::string& gpu, int begin, int end) {
  std::vector<std::string> ids;
  for (int i = begin; i < end; ++i) ids.push_back(Id(gpu, i));
  return ids;
}
std::vector<std::string> Both(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_CASE("A resource is a name with shares, class, weight and objectives") {
  const auto plain = ParseResource("gpu-share");
  REQUIRE(plain.ok());
  CHECK(plain->shares == 8);
  CHECK(plain->tenant.ByteSizeLong() == 0);
  const auto full = ParseResource(
      "gpu-share-latency,shares=4,class=latency,weight=2.5,exclusive=on,slo-latency=5ms,slo-ttft="
      "1s,slo-tpot="
      "40ms");
  REQUIRE(full.ok());
  CHECK(full->name == "gpu-share-latency");
  CHECK(full->shares == 4);
  CHECK(full->tenant.tenant_class() == "latency");
  CHECK(full->tenant.weight() == 2.5);
  CHECK(full->tenant.exclusive());
  CHECK(full->tenant.slo_latency_ns() == 5'000'000);
  CHECK(full->tenant.slo_ttft_ns() == 1'000'000'000);
  CHECK(full->tenant.slo_tpot_ns() == 40'000'000);
}

TEST_CASE("A malformed resource is refused") {
  for (const char* text : {"",
                           ",shares=1",
                           "GPU",
                           "gpu_share",
                           "-gpu",
                           "gpu-",
                           "a/b",
                           "gpu-share-that-is-too-long",
                           "gpu,shares",
                           "gpu,shares=",
                           "gpu,shares=0",
                           "gpu,shares=61",
                           "gpu,shares=4x",
                           "gpu,shares=-1",
                           "gpu,class=",
                           "gpu,class=fast",
                           "gpu,weight=x",
                           "gpu,exclusive=x",
                           "gpu,memory=x",
                           "gpu,memory=-1",
                           "gpu,slo-tpot=40",
                           "gpu,slo=40ms",
                           "gpu,",
                           "gpu,=",
                           "gpu,shares=4=5"}) {
    INFO(text);
    CHECK_FALSE(ParseResource(text).ok());
  }
}

TEST_CASE("Every GPU has as many shares, in ids that kubelet takes") {
  const Resource resource = *ParseResource("gpu-share,shares=60");
  const std::vector<Share> shares =
      SharesOf(resource, {{kFirst, 600, true}, {kSecond, 6000, false}});
  REQUIRE(shares.size() == 120);
  CHECK(shares[0].id == "00000000-1111-2222-3333-444444444440-0");
  CHECK(shares[0].healthy);
  CHECK(shares[0].memory == 10);
  CHECK(shares[60].gpu == kSecond);
  CHECK_FALSE(shares[119].healthy);
  for (const Share& share : shares) {
    CHECK(share.id.size() <= 63);
    CHECK(EndpointName(*ParseResource("a-name-of-23-characters"), share.id).size() <= 64);
  }
}

TEST_CASE("Shares of one GPU are preferred, and the GPU with the most free shares") {
  const Resource resource = *ParseResource("gpu-share,shares=4");
  const std::vector<Share> shares =
      SharesOf(resource, {{kFirst, 4000, true}, {kSecond, 8000, true}});
  const auto all = Both(Ids(kFirst, 0, 4), Ids(kSecond, 0, 4));
  const auto later = Both(Ids(kFirst, 2, 4), Ids(kSecond, 0, 4));
  CHECK(Prefer(shares, later, {}, 1) == Ids(kSecond, 0, 1));
  CHECK(Prefer(shares, later, {}, 3) == Ids(kSecond, 0, 3));
  // On the GPU that the container already uses.
  CHECK(Prefer(shares, later, {Id(kFirst, 3)}, 2) ==
        std::vector<std::string>{Id(kFirst, 3), Id(kFirst, 2)});
  CHECK(Prefer(shares, all, {}, 6) == Both(Ids(kFirst, 0, 4), Ids(kSecond, 0, 2)));
  CHECK(Prefer(shares, all, {}, 8).size() == 8);
  // Invalid numbers.
  CHECK(Prefer(shares, all, {}, 100).size() == 8);
  CHECK(Prefer(shares, all, {}, -1).empty());
  CHECK(Prefer(shares, {}, {}, 1).empty());
  CHECK(Prefer(shares, {"x", "x"}, {"y"}, 2).empty());
  CHECK(Prefer(shares, Ids(kFirst, 0, 1), Ids(kFirst, 0, 1), 2) == Ids(kFirst, 0, 1));
  CHECK(Prefer(shares, all, {Id(kFirst, 0), Id(kFirst, 0)}, 2) == Ids(kFirst, 0, 2));
}

TEST_CASE("A container's endpoint sets every field, so that nothing is left of an earlier one") {
  const Resource full = *ParseResource(
      "gpu-share,class=batch,weight=2,exclusive=on,memory=1GiB,pinned-memory=1GiB,slo-latency=1ms,"
      "slo-ttft=1ms,slo-tpot=1ms");
  const Resource plain = *ParseResource("gpu-share");
  const auto endpoint = EndpointOf(plain, SharesOf(plain, {{kFirst, 4000, true}}), {Id(kFirst, 0)});
  REQUIRE(endpoint.ok());
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  full.tenant.GetReflection()->ListFields(full.tenant, &fields);
  REQUIRE(fields.size() == 8);
  for (const google::protobuf::FieldDescriptor* field : fields) {
    INFO(field->name());
    CHECK(endpoint->tenant().GetReflection()->HasField(endpoint->tenant(), field));
  }
}

TEST_CASE("A container's endpoint is the same for the same shares, and has their weight") {
  const Resource resource = *ParseResource("gpu-share,shares=4,weight=3,class=batch");
  const std::vector<Share> shares =
      SharesOf(resource, {{kFirst, 4000, true}, {kSecond, 8000, true}});
  const auto one = EndpointOf(resource, shares, {Id(kSecond, 2)});
  REQUIRE(one.ok());
  CHECK(one->name() == "gpu-share." + Id(kSecond, 2));
  CHECK(one->tenant().weight() == 3);
  CHECK(one->tenant().tenant_class() == "batch");
  CHECK(one->tenant().memory() == 2000);
  REQUIRE(one->device_ids_size() == 1);
  CHECK(one->device_ids(0) == kSecond);

  const auto many = EndpointOf(resource, shares, {Id(kSecond, 0), Id(kFirst, 3), Id(kFirst, 1)});
  REQUIRE(many.ok());
  CHECK(many->name() == "gpu-share." + Id(kFirst, 1));
  CHECK(many->tenant().weight() == 9);
  CHECK(many->tenant().memory() == 2000);  // on each device, twice a share of the smaller device
  REQUIRE(many->device_ids_size() == 2);
  CHECK(many->device_ids(0) == kFirst);
  CHECK(EndpointOf(resource, shares, {Id(kFirst, 1), Id(kSecond, 0), Id(kFirst, 3)})
            ->SerializeAsString() == many->SerializeAsString());

  const Resource limited = *ParseResource("gpu-share,shares=4,memory=1GiB,pinned-memory=2MiB");
  const auto two =
      EndpointOf(limited, SharesOf(limited, {{kFirst, 4000, true}}), Ids(kFirst, 0, 2));
  REQUIRE(two.ok());
  CHECK(two->tenant().memory() == uint64_t{2} << 30);
  CHECK(two->tenant().pinned_memory() == uint64_t{4} << 20);
  const Resource unlimited = *ParseResource("gpu-share,memory=0");
  CHECK(EndpointOf(unlimited, SharesOf(unlimited, {{kFirst, 4000, true}}), Ids(kFirst, 0, 2))
            ->tenant()
            .memory() == 0);

  CHECK_FALSE(EndpointOf(resource, shares, {}).ok());
  CHECK_FALSE(EndpointOf(resource, shares, {Id(kFirst, 0), Id(kFirst, 0)}).ok());
  CHECK_FALSE(EndpointOf(resource, shares, {Id(kFirst, 4)}).ok());
  CHECK_FALSE(EndpointOf(resource, shares, {"../../etc"}).ok());
  CHECK_FALSE(EndpointOf(resource, shares, {std::string(100000, 'x')}).ok());
}

}  // namespace
}  // namespace detshare::kubernetes
