#include "server/access/owners.h"

#include <catch2/catch.hpp>

#include "proto/owner.h"

namespace detshare {
namespace {

proto::Owner Pod(const std::string& path) { return *OwnerOfPod(path); }

TEST_CASE("An endpoint's owner is known by its name while it is open, by its number a bit longer") {
  Owners owners;
  owners.Set(1, "box", "chat", Pod("a/b/c"));
  CHECK(OwnerText(owners.OfEndpoint("box")) == "a/b/c");
  CHECK(OwnerText(owners.OfNumber(1)) == "a/b/c");
  CHECK(IsEmpty(owners.OfEndpoint("bo")));
  owners.Set(1, "box", "chat", Pod("a/b/d"));
  CHECK(OwnerText(owners.OfEndpoint("box")) == "a/b/d");
  owners.Close(1);
  CHECK(IsEmpty(owners.OfEndpoint("box")));
  CHECK(IsEmpty(owners.OfTenant("chat")));
  CHECK(OwnerText(owners.OfNumber(1)) == "a/b/d");
  // The next endpoint of the name is another one.
  owners.Set(2, "box", "chat", {});
  CHECK(IsEmpty(owners.OfEndpoint("box")));
  CHECK(OwnerText(owners.OfNumber(1)) == "a/b/d");
  for (uint64_t number = 3; number < 1000; ++number) {
    owners.Set(number, "other", "other", {});
    owners.Close(number);
  }
  CHECK(IsEmpty(owners.OfNumber(1)));
}

TEST_CASE("A tenant of several endpoints has the fields in which their owners agree") {
  Owners owners;
  owners.Set(1, "x", "chat", Pod("a/b/c"));
  owners.Set(2, "y", "chat", Pod("a/b/d"));
  owners.Set(3, "z", "other", Pod("z/b/d"));
  CHECK(OwnerText(owners.OfTenant("chat")) == "a/b");
  owners.Set(4, "w", "chat", Pod("a/q/d"));
  CHECK(OwnerText(owners.OfTenant("chat")) == "a");
  // Equal pods of different namespaces are different pods.
  owners.Set(4, "w", "chat", Pod("q/b/d"));
  CHECK(IsEmpty(owners.OfTenant("chat")));
  owners.Close(4);
  owners.Close(2);
  CHECK(OwnerText(owners.OfTenant("chat")) == "a/b/c");
}

}  // namespace
}  // namespace detshare
