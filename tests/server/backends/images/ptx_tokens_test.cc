#include "server/backends/images/ptx_tokens.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace detshare::images {
namespace {

std::vector<std::string> TokensOf(std::string_view ptx, bool torn = false) {
  PtxTokens tokens(ptx);
  std::vector<std::string> found;
  for (std::string_view token = tokens.Next(); !token.empty(); token = tokens.Next())
    found.emplace_back(token);
  CHECK(tokens.torn() == torn);
  return found;
}

using Tokens = std::vector<std::string>;

TEST_CASE("PTX is split into words with their dots, and other characters") {
  CHECK(TokensOf("@%p1 ld.global.u32 %r1,[%rd2+4];") ==
        Tokens{"@", "%p1", "ld.global.u32", "%r1", ",", "[", "%rd2", "+", "4", "]", ";"});
  CHECK(TokensOf(".visible .entry a$b_1(){\n}") ==
        Tokens{".visible", ".entry", "a$b_1", "(", ")", "{", "}"});
}

TEST_CASE("Comments and strings are no tokens of PTX") {
  CHECK(TokensOf("a // b\nc /* d \n e */ f /**/ g \"h // i\" j") ==
        Tokens{"a", "c", "f", "g", "j"});
  CHECK(TokensOf("a // the text ends here") == Tokens{"a"});
  CHECK(TokensOf("a / b") == Tokens{"a", "/", "b"});
  CHECK(TokensOf("").empty());
}

TEST_CASE("PTX that ends in a comment or a string is torn") {
  CHECK(TokensOf("a /* b", true) == Tokens{"a"});
  CHECK(TokensOf("a /*/", true) == Tokens{"a"});
  CHECK(TokensOf("a \"b", true) == Tokens{"a"});
}

TEST_CASE("Only a token that begins like a word is a word") {
  for (const char* word : {"a", ".entry", "%r1", "_x", "$y", "12"}) CHECK(PtxTokens::IsWord(word));
  for (const char* other : {"", "(", ";", "@", "-"}) CHECK_FALSE(PtxTokens::IsWord(other));
}

}  // namespace
}  // namespace detshare::images
