#include "tools/kubernetes/pod_owners.h"

#include <catch2/catch.hpp>

#include "proto/owner.h"

namespace detshare::kubernetes {
namespace {

v1::ContainerResources* AddContainer(const std::string& pod, const std::string& name,
                                     v1::ListPodResourcesResponse* pods) {
  v1::PodResources* const one = pods->add_pod_resources();
  one->set_name(pod);
  one->set_namespace_("models");
  v1::ContainerResources* const container = one->add_containers();
  container->set_name(name);
  return container;
}

void AddDevices(const std::string& resource, const std::vector<std::string>& ids,
                v1::ContainerResources* container) {
  v1::ContainerDevices* const devices = container->add_devices();
  devices->set_resource_name(resource);
  for (const std::string& id : ids) devices->add_device_ids(id);
}

TEST_CASE("An endpoint belongs to the container that has its first share, on whatever NUMA node") {
  const std::vector<Resource> resources = {*ParseResource("gpu-share"),
                                           *ParseResource("gpu-share-latency")};
  v1::ListPodResourcesResponse pods;
  v1::ContainerResources* const chat = AddContainer("chat-0", "server", &pods);
  AddDevices("detshare.io/gpu-share-latency", {"b-1"}, chat);
  AddDevices("detshare.io/gpu-share-latency", {"a-1", "a-0"}, chat);
  AddDevices("nvidia.com/gpu", {"a-9"}, chat);
  AddContainer("none", "sh", &pods);
  v1::ContainerResources* const other = AddContainer("other", "sh", &pods);
  AddDevices("example.org/gpu-share", {"a-2"}, other);
  AddDevices("detshare.io/gpu-share", {}, other);
  const std::map<std::string, proto::Owner> owners = OwnersIn(pods, "detshare.io", resources);
  REQUIRE(owners.size() == 1);
  CHECK(owners.begin()->first == "gpu-share-latency.a-0");
  CHECK(OwnerText(owners.begin()->second) == "models/chat-0/server");
}

}  // namespace
}  // namespace detshare::kubernetes
