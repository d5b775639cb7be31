// Reads from machine code how many registers its kernels use.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace detshare::images {

// Returns the registers per thread of each kernel and device function of an ELF image, by name. The
// image may be hostile. What it does not say whole is left out.
std::map<std::string, uint32_t> RegisterCounts(std::string_view elf);

}  // namespace detshare::images
