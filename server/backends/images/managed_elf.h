// Finds the __managed__ variables of machine code and places them at addresses of the caller's
// choice.
//
// In an ELF image a managed variable is a symbol of .nv.global or .nv.global.init with a bit of its
// own in st_other. Code reaches it as it reaches every global variable: through an address that the
// loader fills in. The address is a word of constant bank 4, or, in code for debuggers, the
// immediates of two instructions. Relocations name the places:
//
//     .nv.constant4  [ address of x ] <-- R_CUDA_64 x        .text  MOV32I r, lo(x) <-- 32_LO x
//                                                                   MOV32I r, hi(x) <-- 32_HI x
//
// PlaceManagedVariables() does the loader's work for these relocations only, and removes them and
// the bits. The result is an image without managed variables. The variables' room in the image
// stays, unused. The instructions are those that a loader would have made.
//
// Images may be hostile: these functions read and write nothing outside the image.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace detshare::images {

struct ManagedElfVariable {
  std::string name;
  uint64_t bytes = 0;
  // The alignment of its section. No variable needs more.
  uint64_t alignment = 1;
};

// Returns whether the image may have managed variables. Returns false quickly for almost all
// images.
bool HasManagedVariables(std::string_view elf);

// Lists the variables in the order of their symbols. Returns false and sets *error if the image is
// malformed. A variable that is zero at first may have any number of bytes, because the image does not
// hold them.
bool FindManagedVariables(std::string_view elf, std::vector<ManagedElfVariable>* variables,
                          std::string* error);

// Places the variables that FindManagedVariables() listed at `addresses`. Writes to *contents the
// initial bytes of each variable: all of them, or none if they are zero and the image does not hold
// them. *contents has no more bytes than the image. Returns false and sets *error, with *elf in any
// state, if the image refers to a variable in an unknown way, or if a variable's contents depend on
// values that only a loader knows.
bool PlaceManagedVariables(std::string* elf, std::span<const uint64_t> addresses,
                           std::vector<std::string>* contents, std::string* error);

}  // namespace detshare::images
