#include "proto/owner.h"

#include <catch2/catch.hpp>
#include <functional>
#include <string>

namespace detshare {
namespace {

proto::Owner With(const std::function<void(proto::Owner&)>& change) {
  proto::Owner owner;
  owner.set_namespace_("default");
  owner.set_pod("chat-0.x");
  owner.set_container("server");
  change(owner);
  return owner;
}

TEST_CASE("An owner has names as Kubernetes has them, and printable users and jobs") {
  CHECK(CheckOwner({}).ok());
  CHECK(CheckOwner(With([](auto& owner) {})).ok());
  CHECK(CheckOwner(With([](auto& owner) { owner.set_pod(std::string(253, 'p')); })).ok());
  CHECK(CheckOwner(With([](auto& owner) { owner.clear_container(); })).ok());
  CHECK(CheckOwner(With([](auto& owner) { owner.set_user("DOMAIN\\alice+1@example.org"); })).ok());
  CHECK(CheckOwner(With([](auto& owner) { owner.set_job("123_[4-7%2]"); })).ok());

  const auto refuses = [](const std::function<void(proto::Owner&)>& change) {
    return absl::IsInvalidArgument(CheckOwner(With(change)));
  };
  CHECK(refuses([](auto& owner) { owner.set_namespace_(std::string(64, 'n')); }));
  CHECK(refuses([](auto& owner) { owner.set_pod(std::string(254, 'p')); }));
  CHECK(refuses([](auto& owner) { owner.set_pod("a/b"); }));
  CHECK(refuses([](auto& owner) { owner.set_pod("-a"); }));
  CHECK(refuses([](auto& owner) { owner.set_pod("a."); }));
  CHECK(refuses([](auto& owner) { owner.set_container("a\nb"); }));
  CHECK(refuses([](auto& owner) { owner.set_container("\xc3\xa9"); }));
  CHECK(refuses([](auto& owner) { owner.clear_namespace_(); }));
  CHECK(refuses([](auto& owner) { owner.clear_pod(); }));
  CHECK(refuses([](auto& owner) { owner.set_user("a b"); }));
  CHECK(refuses([](auto& owner) { owner.set_user("\"a\""); }));
  CHECK(refuses([](auto& owner) { owner.set_job(std::string(129, 'j')); }));
  CHECK(refuses([](auto& owner) { owner.set_job(std::string(1, '\0')); }));
}

TEST_CASE("An owner's text has what is known") {
  proto::Owner owner;
  CHECK(IsEmpty(owner));
  CHECK(OwnerText(owner).empty());
  owner.set_job("17");
  CHECK_FALSE(IsEmpty(owner));
  CHECK(OwnerText(owner) == "job 17");
  owner.set_user("alice");
  CHECK(OwnerText(owner) == "alice, job 17");
  CHECK(OwnerText(With([](auto& owner) {})) == "default/chat-0.x/server");
  CHECK(OwnerText(With([](auto& owner) {
          owner.clear_container();
          owner.set_user("bob");
        })) == "default/chat-0.x, bob");
}

TEST_CASE("A pod is read from its path, and nonsense is named") {
  const absl::StatusOr<proto::Owner> all = OwnerOfPod("default/chat-0/server");
  REQUIRE(all.ok());
  CHECK(OwnerText(*all) == "default/chat-0/server");
  const absl::StatusOr<proto::Owner> pod = OwnerOfPod("default/chat-0");
  REQUIRE(pod.ok());
  CHECK(pod->container().empty());
  for (const char* text : {"", "/", "default", "default/", "/pod", "a/b/c/d", "a//c", "a/b c"})
    CHECK(absl::IsInvalidArgument(OwnerOfPod(text).status()));
}

}  // namespace
}  // namespace detshare
