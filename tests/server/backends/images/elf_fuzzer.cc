// Machine code from bytes: its sections, its managed variables, how many registers its kernels use,
// and how much memory its variables take.
#include <cstdint>
#include <string>
#include <vector>

#include "server/backends/images/elf_view.h"
#include "server/backends/images/managed_elf.h"
#include "server/backends/images/register_counts.h"
#include "server/backends/images/variable_bytes.h"
#include "tests/fuzzing/check.h"

namespace detshare::images {
namespace {

void CheckSections(std::string_view elf) {
  const std::optional<std::vector<ElfSection>> sections = ElfSections(elf);
  if (!sections.has_value()) return;
  for (const ElfSection& section : *sections) {
    FUZZ_CHECK(section.name.data() >= elf.data());
    FUZZ_CHECK(section.name.data() + section.name.size() < elf.data() + elf.size());
    FUZZ_CHECK(section.header_offset <= elf.size() - sizeof(Elf64_Shdr));
  }
}

void CheckManaged(const std::string& elf) {
  std::vector<ManagedElfVariable> variables;
  std::string error;
  if (!FindManagedVariables(elf, &variables, &error)) {
    FUZZ_CHECK(!error.empty());
    return;
  }
  FUZZ_CHECK(HasManagedVariables(elf) == !variables.empty());
  uint64_t bytes = 0;
  std::vector<uint64_t> addresses;
  for (const ManagedElfVariable& variable : variables) {
    FUZZ_CHECK(!variable.name.empty() && variable.bytes > 0);
    FUZZ_CHECK(variable.alignment > 0 && variable.alignment <= 4096);
    FUZZ_CHECK((variable.alignment & (variable.alignment - 1)) == 0);
    addresses.push_back(0x0000100020003000 + bytes);
    bytes += variable.bytes;
  }

  std::string placed = elf;
  placed.shrink_to_fit();
  std::vector<std::string> contents;
  if (!PlaceManagedVariables(&placed, addresses, &contents, &error)) {
    FUZZ_CHECK(!error.empty());
    return;
  }
  FUZZ_CHECK(placed.size() == elf.size());
  FUZZ_CHECK(contents.size() == variables.size());
  uint64_t stored = 0;
  for (size_t i = 0; i < contents.size(); ++i) {
    FUZZ_CHECK(contents[i].empty() || contents[i].size() == variables[i].bytes);
    stored += contents[i].size();
  }
  FUZZ_CHECK(stored <= elf.size());
  FUZZ_CHECK(!HasManagedVariables(placed));
}

}  // namespace
}  // namespace detshare::images

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace detshare::images;  // NOLINT
  const std::string elf(reinterpret_cast<const char*>(data), size);
  CheckSections({reinterpret_cast<const char*>(data), size});
  CheckManaged(elf);
  for (const auto& [name, registers] : RegisterCounts(elf)) FUZZ_CHECK(name.size() < elf.size());
  const std::span<const std::byte> image(reinterpret_cast<const std::byte*>(data), size);
  const uint64_t bytes = VariableBytes(image, 90);
  FUZZ_CHECK(bytes == VariableBytes(image, 90));
  return 0;
}
