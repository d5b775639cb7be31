#include "server/session/client_printer.h"

#include <utility>

#include "server/base/logging.h"
#include "server/shared_memory/shared_region.h"

namespace detshare {

ClientPrinter::ClientPrinter(SharedRegion& region, std::string label)
    : region_(region), label_(std::move(label)) {}

void ClientPrinter::Print(std::string_view text) {
  const MutexLock lock(&mutex_);
  if (!region_.Print(text) && !overflowed_) {
    overflowed_ = true;
    LogWarning(label_, ": the buffer for device printf is full, output is lost");
  }
}

}  // namespace detshare
