#include "client_shim/work/peer_order.h"

#include "client_shim/work/streams.h"

namespace detshare::shim {

void PeerOrder::Add(Context* context) {
  if (context == nullptr || context == stream_.context ||
      context->id.load(std::memory_order_acquire) == 0 || context == contexts_[0]) {
    return;
  }
  contexts_[contexts_[0] == nullptr ? 0 : 1] = context;
}

CUresult PeerOrder::Begin() {
  for (size_t i = 0; i < contexts_.size(); ++i) {
    if (contexts_[i] == nullptr) continue;
    CUresult result = LegacyStream(*contexts_[i], &ends_[i]);
    if (result == CUDA_SUCCESS) result = OrderStreams(*ends_[i], stream_);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult PeerOrder::End() {
  for (Stream* end : ends_) {
    if (end == nullptr) continue;
    const CUresult result = OrderStreams(stream_, *end);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace detshare::shim
