// The __managed__ variables of machine code, and putting them where the caller wants them.
//
// In an ELF image a managed variable is a symbol of .nv.global or .nv.global.init with a bit of its
// own in st_other. Code reaches it as every global variable, through an address that the loader
// fills in: a word of constant bank 4, or, in code for debuggers, the immediates of two
// instructions. Relocations say where:
//
//     .nv.constant4  [ address of x ] <-- R_CUDA_64 x        .text  MOV32I r, lo(x) <-- 32_LO x
//                                                                   MOV32I r, hi(x) <-- 32_HI x
//
// PlaceManagedVariables() does the loader's work for these relocations alone, and takes them and
// the bits away: what remains is an image without managed variables. The variables' places in the
// image stay, unused. The instructions are those that a loader would have made.
//
// Images may be hostile: nothing outside of them is read or written.
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
  uint64_t alignment = 1;  // of its section: no variable needs more
};

// Whether the image may have some: false for almost all of them, and quickly so.
bool HasManagedVariables(std::string_view elf);

// In the order of their symbols. False, with *error set, when the image is not well formed.
bool FindManagedVariables(std::string_view elf, std::vector<ManagedElfVariable>* variables,
                          std::string* error);

// Puts the variables that FindManagedVariables() gave at `addresses`. `contents`: what each begins
// with, of its size. False, with *error set and *elf in any state, when the image refers to one of
// them in a way that is not known, or the contents of one depend on what only a loader knows.
bool PlaceManagedVariables(std::string* elf, std::span<const uint64_t> addresses,
                           std::vector<std::string>* contents, std::string* error);

}  // namespace detshare::images
