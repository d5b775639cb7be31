#include "server/backends/images/check_image.h"

#include <elf.h>

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "proto/images/fatbin.h"
#include "proto/images/fatbin_wrapper.h"
#include "tests/test_file.h"

namespace detshare::images {
namespace {

std::string ReadImage(const std::string& name) {
  return ReadTestFile("tests/server/backends/images/" + name);
}

// "", or why the image is refused. In memory of exactly its size, so that a sanitizer sees each byte
// that is read beyond it.
std::string Link(const std::string& image) {
  const std::vector<char> exact(image.begin(), image.end());
  std::string error;
  const bool sound = CheckLinkInput(std::as_bytes(std::span(exact)), &error);
  CHECK(sound == error.empty());
  return error;
}

std::string Load(const std::string& image, int device_sm = 90) {
  const std::vector<char> exact(image.begin(), image.end());
  std::string error;
  const bool sound = CheckLoadedImage(
      std::as_bytes(std::span(exact)), device_sm, [](const DeviceCode&) {}, &error);
  CHECK(sound == error.empty());
  return error;
}

// Code whose table of sections begins far behind its end.
std::string WithWrongTable(std::string elf) {
  const uint64_t far = uint64_t{1} << 40;
  std::memcpy(elf.data() + offsetof(Elf64_Ehdr, e_shoff), &far, sizeof(far));
  return elf;
}

// A fatbin with this machine code for sm_90.
std::string FatbinOf(const std::string& elf) {
  std::string image = WritePtxFatbin({&elf, 1}, 90);
  image[kFatbinHeaderBytes] = static_cast<char>(EntryKind::kElf);
  return image;
}

std::string ArchiveOf(const std::vector<std::string>& members) {
  std::string archive = "!<arch>\n";
  for (const std::string& member : members) {
    char header[61];
    std::snprintf(header, sizeof(header), "%-16s%-12d%-6d%-6d%-8d%-10zu`\n", "member.o/", 0, 0, 0,
                  644, member.size());
    archive += header + member;
    if (member.size() % 2 != 0) archive += '\n';
  }
  return archive;
}

TEST_CASE("Images and inputs as the toolkit writes them are accepted") {
  const std::string cubin = ReadImage("registers_sm_90.cubin"), object = ReadImage("object.o");
  const std::string text = ".version 8.0\n.target sm_75\n";
  CHECK(Load(cubin) == "");
  CHECK(Load(FatbinOf(cubin)) == "");
  CHECK(Load(FatbinOf(cubin) + WritePtxFatbin({&text, 1}, 75)) == "");
  CHECK(Load(text) == "");
  CHECK(Load("") == "");
  CHECK(Link(cubin) == "");
  CHECK(Link(FatbinOf(cubin)) == "");
  CHECK(Link(text) == "");
  CHECK(Link(object) == "");
  CHECK(Link(ArchiveOf({"an index of symbols", object, cubin, text})) == "");
  CHECK(Link(ArchiveOf({object}) + "\n") == "");
}

TEST_CASE("Machine code whose tables lie outside of it is refused, wherever it is") {
  const std::string wrong = WithWrongTable(ReadImage("registers_sm_90.cubin"));
  for (const std::string& refused :
       {Load(wrong), Load(FatbinOf(wrong)), Link(wrong), Link(FatbinOf(wrong)),
        Link(ArchiveOf({"first", wrong})), Link(ArchiveOf({FatbinOf(wrong)}))}) {
    CHECK_THAT(refused, Catch::Contains("not a complete CUDA ELF file"));
  }
}

TEST_CASE("Code of a fatbin that the device does not run is checked only for a link") {
  const std::string other = FatbinOf(WithWrongTable(ReadImage("registers_sm_90.cubin")));
  CHECK(Load(other, 80) == "");
  CHECK(Link(other) != "");
}

TEST_CASE("An object file whose tables, sections or fatbins reach beyond it is refused") {
  const std::string object = ReadImage("object.o");
  CHECK_THAT(Link(WithWrongTable(object)), Catch::Contains("table of sections"));
  const size_t fatbin = object.find("\x50\xed\x55\xba");
  REQUIRE(fatbin != std::string::npos);
  std::string longer = object;
  longer[fatbin + 14] = 1;  // of the bytes of its entries
  CHECK_THAT(Link(longer), Catch::Contains("a fatbin is cut off"));
  CHECK_THAT(Link(ArchiveOf({longer})), Catch::Contains("a fatbin is cut off"));
  std::string entry = object;
  entry[fatbin + kFatbinHeaderBytes + 14] = 1;  // of the bytes of its payload
  CHECK_THAT(Link(entry), Catch::Contains("beyond its fatbin"));
  Elf64_Ehdr header;
  std::memcpy(&header, object.data(), sizeof(header));
  std::string section = object;
  const uint64_t far = uint64_t{1} << 63;
  std::memcpy(
      section.data() + header.e_shoff + sizeof(Elf64_Shdr) + offsetof(Elf64_Shdr, sh_offset), &far,
      sizeof(far));
  CHECK_THAT(Link(section), Catch::Contains("beyond the file"));
}

TEST_CASE("A library whose members reach beyond it or have no header is refused") {
  const std::string library = ArchiveOf({"first", "second"});
  CHECK(Link(library) == "");
  CHECK_THAT(Link(library.substr(0, library.size() - 1)), Catch::Contains("cut off"));
  std::string wrong = library;
  wrong[8 + 48] = 'x';  // of the member's size
  CHECK_THAT(Link(wrong), Catch::Contains("without a proper header"));
}

TEST_CASE("A wrapper, which has pointers of another process, is refused as any input") {
  const FatbinWrapper pointers{kFatbinWrapperMagic, 2, &pointers, nullptr};
  const std::string wrapper(reinterpret_cast<const char*>(&pointers), sizeof(pointers));
  CHECK_THAT(Load(wrapper), Catch::Contains("another process"));
  CHECK_THAT(Link(wrapper), Catch::Contains("another process"));
  CHECK_THAT(Link(ArchiveOf({wrapper})), Catch::Contains("another process"));
}

TEST_CASE("Every truncation of an object file or a library is accepted or refused") {
  const std::string object = ReadImage("object.o"), library = ArchiveOf({object});
  for (size_t bytes = 0; bytes < object.size(); bytes += 7) {
    Link(object.substr(0, bytes));
    Link(library.substr(0, bytes));
  }
}

}  // namespace
}  // namespace detshare::images
