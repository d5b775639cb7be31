// The text of a device's UUID, which programs, operators and NVML name devices by.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace detshare {

// Formats the 16 bytes of a UUID as nvidia-smi does: "GPU-8a1b...".
std::string FormatUuid(std::string_view bytes);
inline std::string FormatUuid(const std::array<uint8_t, 16>& uuid) {
  return FormatUuid({reinterpret_cast<const char*>(uuid.data()), uuid.size()});
}

}  // namespace detshare
