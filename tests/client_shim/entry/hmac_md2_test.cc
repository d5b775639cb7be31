#include "client_shim/entry/hmac_md2.h"

#include <catch2/catch.hpp>
#include <string>
#include <string_view>

namespace detshare::shim {
namespace {

std::span<const uint8_t> Bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string Hex(const Md2Digest& digest) {
  std::string out;
  for (uint8_t byte : digest) {
    out += "0123456789abcdef"[byte >> 4];
    out += "0123456789abcdef"[byte & 15];
  }
  return out;
}

TEST_CASE("MD2 gives the digests of RFC 1319") {
  CHECK(Hex(Md2(Bytes(""))) == "8350e5a3e24c153df2275c9f80692773");
  CHECK(Hex(Md2(Bytes("a"))) == "32ec01ec4a6dac72c0ab96fb34c0b5d1");
  CHECK(Hex(Md2(Bytes("abc"))) == "da853b0d3f88d99b30283a69e6ded6bb");
  CHECK(Hex(Md2(Bytes("message digest"))) == "ab4f496bfb2a530b219ff33031fe06b0");
  CHECK(Hex(Md2(Bytes("abcdefghijklmnopqrstuvwxyz"))) == "4e8ddff3650292ab5a4108c3aa47940b");
  CHECK(Hex(Md2(Bytes(
            "12345678901234567890123456789012345678901234567890123456789012345678901234567890"))) ==
        "d5976f79d83d3a0dc9806c3c66f3efd8");
}

TEST_CASE("HMAC-MD2 depends on every byte of key and message") {
  const Md2Digest base = HmacMd2(Bytes("key"), Bytes("message"));
  CHECK(base == HmacMd2(Bytes("key"), Bytes("message")));
  CHECK(base != HmacMd2(Bytes("kez"), Bytes("message")));
  CHECK(base != HmacMd2(Bytes("key"), Bytes("messagf")));
}

}  // namespace
}  // namespace detshare::shim
