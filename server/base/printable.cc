#include "server/base/printable.h"

namespace detshare {

std::string Printable(std::string_view text, size_t most) {
  std::string printable(text.substr(0, most));
  for (char& c : printable) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7F) c = '?';
  }
  return printable;
}

}  // namespace detshare
