#include "server/session/client_printer.h"

#include <utility>

#include "server/base/logging.h"
#include "server/shared_memory/shared_region.h"

namespace detshare {

ClientPrinter::ClientPrinter(SharedRegion& region, std::string label)
    : label_(std::move(label)), region_(&region) {}

void ClientPrinter::Print(std::string_view text) { Append(text, 0); }

void ClientPrinter::PrintError(std::string_view text) { Append(text, kTextIsError); }

void ClientPrinter::Append(std::string_view text, uint32_t kind) {
  {
    const MutexLock lock(&mutex_);
    if (region_ == nullptr || region_->Print(text, kind)) return;
  }
  NoteLoss("the buffer for device printf is full, output is lost");
}

void ClientPrinter::NoteLoss(std::string_view why) {
  const MutexLock lock(&mutex_);
  if (!std::exchange(loss_noted_, true)) LogWarning(label_, ": ", std::string(why));
}

void ClientPrinter::SetPending(bool pending) {
  const MutexLock lock(&mutex_);
  if (region_ == nullptr) return;
  // Release: see SessionHeader.
  region_->header()->output_pending.store(pending ? 1 : 0, std::memory_order_release);
}

void ClientPrinter::Close() {
  const MutexLock lock(&mutex_);
  region_ = nullptr;
}

}  // namespace detshare
