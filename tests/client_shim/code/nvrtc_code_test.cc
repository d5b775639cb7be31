// Which PTX belongs to machine code of NVRTC.
#include "client_shim/code/nvrtc_code.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>

namespace detshare::shim {
namespace {

const std::string kNvrtcPtx = ".version 9.0\n.target sm_90\n";

// An ELF of machine code that ends with a byte.
std::string NvrtcCubin(char last) {
  std::string elf(
      "\x7f"
      "ELF\x02\x01\x01",
      7);
  elf.resize(500);
  const auto put = [&](size_t at, uint64_t value, size_t bytes) {
    std::memcpy(elf.data() + at, &value, bytes);
  };
  put(18, 190, 2);
  put(40, 500 - 64, 8);  // where the section headers begin
  put(58, 64, 2);        // bytes of each
  put(60, 1, 2);         // their number
  elf.back() = last;
  return elf;
}

std::string PtxOf(NvrtcCode& code, const std::string& cubin) {
  return code.PtxOf(std::as_bytes(std::span(cubin)));
}

TEST_CASE("Machine code has the PTX that NVRTC made last of the same input") {
  NvrtcCode code;
  code.Note("input", kNvrtcPtx + "// fast");
  code.Note("input", NvrtcCubin(1));
  code.Note("input", kNvrtcPtx + "// exact");
  code.Note("input", NvrtcCubin(2));
  CHECK(PtxOf(code, NvrtcCubin(1)) == kNvrtcPtx + "// fast");
  CHECK(PtxOf(code, NvrtcCubin(2)) == kNvrtcPtx + "// exact");
  CHECK(PtxOf(code, NvrtcCubin(2) + "what follows in memory") == kNvrtcPtx + "// exact");
  CHECK(PtxOf(code, NvrtcCubin(3)).empty());
}

TEST_CASE("Machine code without PTX of its own input is unknown") {
  NvrtcCode code;
  code.Note("input", NvrtcCubin(1));
  CHECK(PtxOf(code, NvrtcCubin(1)).empty());
  code.Note("another input", kNvrtcPtx);
  code.Note("input", NvrtcCubin(1));
  CHECK(PtxOf(code, NvrtcCubin(1)).empty());
  std::thread([&] { code.Note("input", kNvrtcPtx); }).join();
  code.Note("input", NvrtcCubin(1));
  CHECK(PtxOf(code, NvrtcCubin(1)).empty());
}

TEST_CASE("Results that are neither PTX nor machine code are ignored") {
  NvrtcCode code;
  code.Note("input", kNvrtcPtx);
  code.Note("input", "LLVM bitcode");
  code.Note("input", NvrtcCubin(1).substr(0, 100));
  code.Note("input", "");
  code.Note("input", NvrtcCubin(1));
  CHECK(PtxOf(code, NvrtcCubin(1)) == kNvrtcPtx);
  CHECK(PtxOf(code, kNvrtcPtx).empty());
  CHECK(PtxOf(code, "").empty());
}

TEST_CASE("No more PTX is kept than the limit says") {
  NvrtcCode code(2 * kNvrtcPtx.size());
  for (char i = 1; i <= 3; ++i) {
    code.Note("input", kNvrtcPtx);
    code.Note("input", NvrtcCubin(i));
  }
  CHECK(PtxOf(code, NvrtcCubin(2)) == kNvrtcPtx);
  CHECK(PtxOf(code, NvrtcCubin(3)).empty());
}

}  // namespace
}  // namespace detshare::shim
