#include "client_shim/code/image_size.h"

#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>

namespace detshare::shim {
namespace {

// Bytes that end at a page which cannot be read. Reading past them crashes.
class AtEndOfMemory {
 public:
  explicit AtEndOfMemory(const std::string& bytes) {
    pages_ = (bytes.size() + 4095) / 4096 + 1;
    base_ = static_cast<char*>(
        mmap(nullptr, pages_ * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_ + (pages_ - 1) * 4096, 4096, PROT_NONE);
    data_ = base_ + (pages_ - 1) * 4096 - bytes.size();
    memcpy(data_, bytes.data(), bytes.size());
  }
  ~AtEndOfMemory() { munmap(base_, pages_ * 4096); }
  const char* data() const { return data_; }

 private:
  size_t pages_;
  char* base_;
  char* data_;
};

template <typename T>
void Put(std::string* bytes, size_t offset, T value) {
  if (bytes->size() < offset + sizeof(T)) bytes->resize(offset + sizeof(T));
  memcpy(bytes->data() + offset, &value, sizeof(T));
}

std::string FatbinOf(const std::string& entries) {
  std::string bytes;
  Put<uint32_t>(&bytes, 0, 0xBA55ED50);
  Put<uint16_t>(&bytes, 4, 1);
  Put<uint16_t>(&bytes, 6, 16);
  Put<uint64_t>(&bytes, 8, entries.size());
  return bytes + entries;
}

// The ELF header of a cubin whose section headers end at `bytes`.
std::string Cubin(size_t bytes) {
  std::string elf(
      "\x7f"
      "ELF\x02\x01\x01",
      7);
  elf.resize(bytes);
  Put<uint16_t>(&elf, 18, 190);
  Put<uint64_t>(&elf, 40, bytes - 128);  // e_shoff
  Put<uint16_t>(&elf, 58, 64);           // e_shentsize
  Put<uint16_t>(&elf, 60, 2);            // e_shnum
  return elf;
}

size_t Total(const ImagePieces& pieces) {
  size_t bytes = 0;
  for (const auto& piece : pieces) bytes += piece.size();
  return bytes;
}

TEST_CASE("A PTX text ends at its terminator") {
  const std::string ptx = "// a comment\n/* another */ .version 8.0\n.target sm_75\n";
  const AtEndOfMemory memory(ptx + '\0');
  ImagePieces pieces;
  REQUIRE(MeasureImage(memory.data(), &pieces) == CUDA_SUCCESS);
  REQUIRE(pieces.size() == 1);
  CHECK(pieces[0].size() == ptx.size());
  CHECK(pieces[0].data() == reinterpret_cast<const std::byte*>(memory.data()));
}

TEST_CASE("A text that is no PTX is an invalid image, however short it is") {
  ImagePieces pieces;
  for (const std::string text : {"", "a", "ab", "\x7f",
                                 "\x7f"
                                 "E",
                                 "P", "garbage that is no image", "// only a comment"}) {
    const AtEndOfMemory memory(text + '\0');
    CHECK(MeasureImage(memory.data(), &pieces) == CUDA_ERROR_INVALID_IMAGE);
    CHECK(pieces.empty());
  }
}

TEST_CASE("An ELF ends where its header says, and nothing behind it is read") {
  const std::string elf = Cubin(1000);
  const AtEndOfMemory memory(elf);
  ImagePieces pieces;
  REQUIRE(MeasureImage(memory.data(), &pieces) == CUDA_SUCCESS);
  CHECK(Total(pieces) == 1000);
}

TEST_CASE("An ELF of another machine or an impossible length is an invalid image") {
  ImagePieces pieces;
  std::string foreign = Cubin(1000);
  Put<uint16_t>(&foreign, 18, 62);
  CHECK(MeasureImage(foreign.data(), &pieces) == CUDA_ERROR_INVALID_IMAGE);
  std::string huge = Cubin(1000);
  Put<uint64_t>(&huge, 40, UINT64_MAX - 10);
  CHECK(MeasureImage(huge.data(), &pieces) == CUDA_ERROR_INVALID_IMAGE);
}

TEST_CASE("A fatbin has the length of its header and what follows") {
  const std::string fatbin = FatbinOf(std::string(300, 'x'));
  const AtEndOfMemory memory(fatbin);
  ImagePieces pieces;
  REQUIRE(MeasureImage(memory.data(), &pieces) == CUDA_SUCCESS);
  CHECK(Total(pieces) == 316);
}

TEST_CASE("A fatbin that claims more than any image is invalid") {
  std::string fatbin = FatbinOf("");
  Put<uint64_t>(&fatbin, 8, uint64_t{1} << 60);
  ImagePieces pieces;
  CHECK(MeasureImage(fatbin.data(), &pieces) == CUDA_ERROR_INVALID_IMAGE);
}

TEST_CASE("A wrapper is removed from its fatbin") {
  const std::string fatbin = FatbinOf(std::string(40, 'x'));
  struct {
    uint32_t magic = 0x466243B1, version = 1;
    const void* fatbin;
    const void* unused = nullptr;
  } wrapper;
  wrapper.fatbin = fatbin.data();
  ImagePieces pieces;
  REQUIRE(MeasureImage(&wrapper, &pieces) == CUDA_SUCCESS);
  REQUIRE(pieces.size() == 1);
  CHECK(pieces[0].data() == reinterpret_cast<const std::byte*>(fatbin.data()));
  CHECK(pieces[0].size() == 56);
}

TEST_CASE("A wrapper of linked code names the fatbins of its parts, too") {
  const std::string linked = FatbinOf(std::string(40, 'x')), first = FatbinOf(std::string(8, 'y')),
                    second = FatbinOf("z");
  const void* parts[] = {first.data(), second.data(), nullptr};
  struct {
    uint32_t magic = 0x466243B1, version = 2;
    const void* fatbin;
    const void* const* parts;
  } wrapper;
  wrapper.fatbin = linked.data();
  wrapper.parts = parts;
  ImagePieces pieces;
  REQUIRE(MeasureImage(&wrapper, &pieces) == CUDA_SUCCESS);
  REQUIRE(pieces.size() == 3);
  CHECK(pieces[2].size() == 17);
}

TEST_CASE("A wrapper without a fatbin is an invalid image") {
  struct {
    uint32_t magic = 0x466243B1, version = 1;
    const void* fatbin = nullptr;
    const void* unused = nullptr;
  } wrapper;
  ImagePieces pieces;
  CHECK(MeasureImage(&wrapper, &pieces) == CUDA_ERROR_INVALID_IMAGE);
}

TEST_CASE("In a file, a text may lack its terminator and a wrapper is no image") {
  const std::string ptx = ".version 8.0\n.target sm_75\n";
  ImagePieces pieces;
  REQUIRE(CheckImage(std::as_bytes(std::span(ptx)), &pieces) == CUDA_SUCCESS);
  CHECK(Total(pieces) == ptx.size());
  const std::string terminated = ptx + '\0';
  REQUIRE(CheckImage(std::as_bytes(std::span(terminated)), &pieces) == CUDA_SUCCESS);
  CHECK(Total(pieces) == ptx.size());
  std::string wrapper;
  Put<uint32_t>(&wrapper, 0, 0x466243B1);
  wrapper.resize(24);
  CHECK(CheckImage(std::as_bytes(std::span(wrapper)), &pieces) == CUDA_ERROR_INVALID_IMAGE);
  CHECK(CheckImage({}, &pieces) == CUDA_ERROR_INVALID_IMAGE);
}

}  // namespace
}  // namespace detshare::shim
