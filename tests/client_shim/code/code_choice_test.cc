#include "client_shim/code/code_choice.h"

#include <catch2/catch.hpp>
#include <cstring>

namespace detshare::shim {
namespace {

std::string Entry(uint16_t kind, const std::string& payload) {
  std::string entry(64, '\0');
  const uint32_t header = 64;
  const uint64_t bytes = payload.size();
  memcpy(entry.data(), &kind, 2);
  memcpy(entry.data() + 4, &header, 4);
  memcpy(entry.data() + 8, &bytes, 8);
  return entry + payload;
}

std::string Fatbin(const std::string& entries) {
  std::string fatbin(16, '\0');
  const uint32_t magic = 0xBA55ED50;
  const uint16_t version = 1, header = 16;
  const uint64_t bytes = entries.size();
  memcpy(fatbin.data(), &magic, 4);
  memcpy(fatbin.data() + 4, &version, 2);
  memcpy(fatbin.data() + 6, &header, 2);
  memcpy(fatbin.data() + 8, &bytes, 8);
  return fatbin + entries;
}

const std::string kElf = Entry(2, "machine code....");
const std::string kPtx = Entry(1, ".version 8.0....");

struct Chosen {
  CUresult result;
  std::string text;
};
Chosen Choose(CodeChoice choice, const std::string& image) {
  ImagePieces pieces{std::as_bytes(std::span(image))};
  std::deque<std::string> storage;
  Chosen chosen{ChooseCode(choice, &pieces, &storage), {}};
  for (const auto piece : pieces)
    chosen.text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  return chosen;
}

TEST_CASE("Without a choice an image stays as it is") {
  const std::string image = Fatbin(kElf + kPtx);
  const Chosen chosen = Choose(CodeChoice::kAny, image);
  CHECK(chosen.result == CUDA_SUCCESS);
  CHECK(chosen.text == image);
}

TEST_CASE("Code that was not chosen is removed from fatbins") {
  const std::string image = Fatbin(kElf + kPtx + kElf);
  CHECK(Choose(CodeChoice::kPtxOnly, image).text == Fatbin(kPtx));
  CHECK(Choose(CodeChoice::kMachineCodeOnly, image).text == Fatbin(kElf + kElf));
  // Several fatbins form one program.
  CHECK(Choose(CodeChoice::kPtxOnly, image + image).text == Fatbin(kPtx) + Fatbin(kPtx));
}

TEST_CASE("An image without the chosen code is refused") {
  CHECK(Choose(CodeChoice::kPtxOnly, Fatbin(kElf)).result == CUDA_ERROR_NO_BINARY_FOR_GPU);
  CHECK(Choose(CodeChoice::kMachineCodeOnly, Fatbin(kPtx)).result ==
        CUDA_ERROR_JIT_COMPILATION_DISABLED);
  const std::string text = ".version 8.0\n.target sm_80\n";
  CHECK(Choose(CodeChoice::kPtxOnly, text).result == CUDA_SUCCESS);
  CHECK(Choose(CodeChoice::kMachineCodeOnly, text).result == CUDA_ERROR_JIT_COMPILATION_DISABLED);
}

TEST_CASE("A fatbin whose header exceeds it is no image") {
  for (const uint16_t header : {0, 15, 17, 0xFFFF}) {
    std::string image = Fatbin("");
    memcpy(image.data() + 6, &header, 2);
    CHECK(Choose(CodeChoice::kPtxOnly, image).result == CUDA_ERROR_INVALID_IMAGE);
  }
}

TEST_CASE("A fatbin whose entries exceed it is no image") {
  std::string image = Fatbin(kElf + kPtx);
  const uint64_t too_long = 1000;
  memcpy(image.data() + 16 + 8, &too_long, 8);
  CHECK(Choose(CodeChoice::kPtxOnly, image).result == CUDA_ERROR_INVALID_IMAGE);
}

TEST_CASE("Fatbins whose ends are no multiples of 8 are told apart") {
  const std::string odd_ptx = Entry(1, ".version 8.0"), odd_elf = Entry(2, "machine code");
  const std::string padding(4, '\0');
  const std::string image = Fatbin(odd_elf + odd_ptx) + Fatbin(odd_ptx) + padding;
  // 16 + 76 + 76 is a multiple of 8, 16 + 76 is not.
  CHECK(Choose(CodeChoice::kPtxOnly, image).text ==
        Fatbin(odd_ptx) + padding + Fatbin(odd_ptx) + padding);
  const std::string padded = Fatbin(odd_elf) + padding + Fatbin(odd_elf);
  CHECK(Choose(CodeChoice::kMachineCodeOnly, padded).text == padded + padding);
}

TEST_CASE("A truncated fatbin is no image") {
  const std::string whole = Fatbin(kElf + kPtx);
  for (const size_t bytes : {whole.size() - 1, size_t{16 + 64}, size_t{16 + 63}, size_t{16}}) {
    INFO(bytes);
    CHECK(Choose(CodeChoice::kPtxOnly, whole.substr(0, bytes)).result == CUDA_ERROR_INVALID_IMAGE);
  }
  std::string small_header = whole;
  const uint16_t header = 8;
  memcpy(small_header.data() + 6, &header, 2);
  CHECK(Choose(CodeChoice::kPtxOnly, small_header).result == CUDA_ERROR_INVALID_IMAGE);
  std::string small_entry = whole;
  const uint32_t entry = 32;
  memcpy(small_entry.data() + 16 + 4, &entry, 4);
  CHECK(Choose(CodeChoice::kPtxOnly, small_entry).result == CUDA_ERROR_INVALID_IMAGE);
}

TEST_CASE("A fatbin of entries without code is no program") {
  const std::string other = Entry(3, "something else..");
  CHECK(Choose(CodeChoice::kPtxOnly, Fatbin(other)).result == CUDA_ERROR_NO_BINARY_FOR_GPU);
  CHECK(Choose(CodeChoice::kPtxOnly, Fatbin(other + kPtx)).text == Fatbin(other + kPtx));
}

}  // namespace
}  // namespace detshare::shim
