#include "client_shim/entry/driver_tools.h"

#include <link.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "client_shim/base/log.h"

namespace detshare::shim {
namespace {

bool IsLoaded(const char* library) {
  return dl_iterate_phdr(
             [](dl_phdr_info* info, size_t, void* name) {
               return std::strstr(info->dlpi_name, static_cast<const char*>(name)) != nullptr ? 1
                                                                                              : 0;
             },
             const_cast<char*>(library)) != 0;
}

}  // namespace

bool IsToolsTable(const CUuuid& id) {
  constexpr unsigned char kTools[sizeof(id.bytes)] = {0x2c, 0x8e, 0x0a, 0xd8, 0x07, 0x10,
                                                      0xab, 0x4e, 0x90, 0xdd, 0x54, 0x71,
                                                      0x9f, 0xe5, 0xf7, 0x4b};
  return std::memcmp(id.bytes, kTools, sizeof(kTools)) == 0;
}

void RefuseTool() {
  static std::atomic<bool> said{false};  // publishes nothing: it only counts to one
  if (!said.exchange(true, std::memory_order_relaxed)) {
    Log(LogLevel::kError,
        "CUPTI, Nsight and compute-sanitizer work with NVIDIA's own driver library only, so they "
        "see nothing of this program: run it without DetShare to use them, or see its work on the "
        "GPU with detsharectl trace");
  }
  if (IsLoaded("libsanitizer-collection.so")) _exit(1);
}

}  // namespace detshare::shim
