#include "server/telemetry/host_query_cache.h"

#include "proto/nvml/host_functions.h"
#include "proto/nvml/nvml_types.h"

namespace detshare {

HostResult HostQueryCache::Ask(const std::string& function, int device, int peer,
                               const std::vector<uint32_t>& arguments, Time now) {
  const nvml::HostFunction* const row = nvml::FindHostFunction(function);
  if (row == nullptr) return {NVML_ERROR_FUNCTION_NOT_FOUND, {}};
  const auto fits = [this](int position, bool wanted) {
    return wanted ? position >= 0 && position < devices_ : position == -1;
  };
  if (!fits(device, row->device) || !fits(peer, row->peer) ||
      arguments.size() != static_cast<size_t>(row->arguments)) {
    return {NVML_ERROR_INVALID_ARGUMENT, {}};
  }
  if (host_ == nullptr) return {NVML_ERROR_NOT_SUPPORTED, {}};

  Key key(function, device, peer, arguments);
  if (auto found = known_.find(key); found != known_.end()) {
    if (found->second.fixed || now - found->second.time < kMaxAge) return found->second.reply;
    known_.erase(found);
  }
  HostResult reply = host_->Ask({row->name, device, peer, arguments});
  if (known_.size() >= kMaxKnown) known_.clear();
  // A failed query is not kept for ever, because the failure may pass.
  known_[std::move(key)] = {reply, now, row->fixed && reply.result == NVML_SUCCESS};
  return reply;
}

}  // namespace detshare
