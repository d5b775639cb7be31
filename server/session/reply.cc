#include "server/session/reply.h"

#include "coroutine_runtime/quota.h"
#include "coroutine_runtime/status_cuda.h"
#include "server/base/logging.h"
#include "server/session/session.h"
#include "server/shared_memory/shared_region.h"

namespace detshare {

void Reply::SendBytes(const absl::Status& status, std::span<const uint8_t> data) {
  if (session_ == nullptr) return;
  Session& session = *std::exchange(session_, nullptr);
  if (slot_ == kNoReply && call_ == nullptr) {
    if (!status.ok()) session.OnAsynchronousError(op_, status);
    return;
  }
  // Before the reply, so that the client waits for news that are on their way.
  if (!status.ok() && IsLimit(status)) session.NoteLimit(status);
  int result = CudaResultOf(status);
  // After a loss of work, every operation returns the session's error, even if its own result is
  // success. An operation whose own work was lost does not know the reason.
  const int lost = session.error_of_replies();
  if ((result == kCudaSuccess || result == kCudaErrorUnknown) && lost != 0) result = lost;
  if (call_ != nullptr) {
    const std::unique_ptr<CallDone> call = std::move(call_);
    (*call)(result, std::string(reinterpret_cast<const char*>(data.data()), data.size()));
    return;
  }
  if (data.size() > kReplyDataBytes &&
      !session.long_replies().Put(
          slot_, std::string(reinterpret_cast<const char*>(data.data()), data.size()))) {
    LogWarning(session.label(), ": the client leaves too many long replies");
    return session.region().Reply(slot_, kCudaErrorOutOfMemory, {});
  }
  session.region().Reply(slot_, result, data);
}

void Reply::SendDropped() {
  SendBytes(CudaError(kCudaErrorUnknown, "the operation was dropped"), {});
}

}  // namespace detshare
