#include "server/base/printable.h"

namespace detshare {

std::string Printable(std::string_view text, size_t max) {
  std::string printable(text.substr(0, max));
  for (char& c : printable) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7F) c = '?';
  }
  return printable;
}

}  // namespace detshare
