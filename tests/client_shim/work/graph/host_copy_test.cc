#include "client_shim/work/graph/host_copy.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <string>

#include "tests/client_shim/work/graph/graph_maker.h"

namespace detshare::shim {
namespace {

TEST_CASE("Rows with a pitch are gathered into dense staging memory") {
  const std::string host = "ab..cd..ef..gh..";
  CopyNode copy;
  copy.from = {Pageable(host.data()), 4, 8};
  copy.to = {OnDevice(0x1000), 2, 4};
  copy.width = copy.height = copy.depth = 2;
  char staging[9] = "........";
  HostCopy(copy, reinterpret_cast<std::byte*>(staging)).Run();
  CHECK(std::string(staging) == "abcdefgh");
}

TEST_CASE("Dense staging memory is scattered to rows with a pitch") {
  char host[] = "................";
  CopyNode copy;
  copy.from = {OnDevice(0x1000), 2, 4};
  copy.to = {Pageable(host), 4, 8};
  copy.width = copy.height = copy.depth = 2;
  char staging[] = "abcdefgh";
  HostCopy(copy, reinterpret_cast<std::byte*>(staging)).Run();
  CHECK(std::string(host) == "ab..cd..ef..gh..");
}

TEST_CASE("Two places of ordinary memory need no staging") {
  const char from[] = "abcd";
  char to[] = "....";
  HostCopy(CopyOf(Pageable(to), Pageable(from), 4), nullptr).Run();
  CHECK(std::string(to) == "abcd");
}

}  // namespace
}  // namespace detshare::shim
