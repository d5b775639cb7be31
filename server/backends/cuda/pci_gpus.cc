#include "server/backends/cuda/pci_gpus.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace detshare {
namespace {

// From the PCI ID repository, https://pci-ids.ucw.cz: NVIDIA's vendor, and the class of display
// controllers, which is the highest of a class's three bytes.
constexpr uint32_t kNvidia = 0x10de;
constexpr uint32_t kDisplayController = 0x03;

// The number in a file such as "0x10de\n"; 0 if there is none.
uint32_t ReadNumber(const std::filesystem::path& file) {
  uint32_t number = 0;
  std::ifstream(file) >> std::hex >> number;
  return number;
}

}  // namespace

std::vector<std::string> NvidiaGpusOnPci(const std::string& directory) {
  std::vector<std::string> found;
  std::error_code error;
  for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end;
       at.increment(error)) {
    if (ReadNumber(at->path() / "vendor") == kNvidia &&
        ReadNumber(at->path() / "class") >> 16 == kDisplayController)
      found.push_back(at->path().filename());
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace detshare
