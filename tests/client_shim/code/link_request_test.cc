#include "client_shim/code/link_request.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <string>

#include "proto/wire/library.h"

namespace detshare::shim {
namespace {

std::string Bytes(std::span<const ConstBuffer> pieces) {
  std::string bytes;
  for (const ConstBuffer& piece : pieces)
    bytes.append(static_cast<const char*>(piece.data), piece.bytes);
  return bytes;
}

TEST_CASE("A link request has the inputs in their order, then the options") {
  LinkState state;
  state.inputs.push_back({CU_JIT_INPUT_PTX, "first", "ptx text"});
  state.inputs.push_back({CU_JIT_INPUT_CUBIN, "", std::string("\0\1\2", 3)});
  CUjit_option options[] = {CU_JIT_OPTIMIZATION_LEVEL};
  void* values[] = {reinterpret_cast<void*>(2)};
  REQUIRE(state.options.Parse(1, options, values) == CUDA_SUCCESS);
  const LinkRequest request(state);
  CHECK(request.args().input_count == 2);
  CHECK(request.args().jit_option_count == 1);

  const std::string bytes = Bytes(request.payload());
  size_t at = 0;
  const auto take = [&](auto* value) {
    REQUIRE(at + sizeof(*value) <= bytes.size());
    memcpy(value, bytes.data() + at, sizeof(*value));
    at += sizeof(*value);
  };
  wire::LinkInput input;
  take(&input);
  CHECK(input.type == CU_JIT_INPUT_PTX);
  CHECK(bytes.substr(at, input.name_bytes + input.bytes) == "firstptx text");
  at += input.name_bytes + input.bytes;
  take(&input);
  CHECK(input.name_bytes == 0);
  CHECK(input.bytes == 3);
  at += 3;
  wire::JitOption option;
  take(&option);
  CHECK(option.value == 2);
  CHECK(at == bytes.size());
}

TEST_CASE("The reply to a link is split into its parts") {
  wire::cuLinkComplete_Reply fixed{5, 4, 3};
  const std::string reply =
      std::string(reinterpret_cast<const char*>(&fixed), sizeof(fixed)) + "imageinfoerr";
  LinkReply parts;
  REQUIRE(ParseLinkReply(reply, &parts));
  CHECK(parts.image == "image");
  CHECK(parts.info == "info");
  CHECK(parts.error == "err");
}

TEST_CASE("A reply to a link that is shorter than its lengths is refused") {
  wire::cuLinkComplete_Reply fixed{500, 0, 0};
  const std::string reply =
      std::string(reinterpret_cast<const char*>(&fixed), sizeof(fixed)) + "image";
  LinkReply parts;
  CHECK_FALSE(ParseLinkReply(reply, &parts));
  CHECK_FALSE(ParseLinkReply("short", &parts));
}

}  // namespace
}  // namespace detshare::shim
