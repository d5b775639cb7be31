#include "proto/device_uuid.h"

#include <cstdio>

namespace detshare {

std::string FormatUuid(std::string_view bytes) {
  std::string text = "GPU-";
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += "-";
    char digits[3];
    snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned char>(bytes[i]));
    text += digits;
  }
  return text;
}

}  // namespace detshare
