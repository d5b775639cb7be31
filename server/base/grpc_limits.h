// Message limits for every gRPC server of the daemon.
#pragma once

#include <grpcpp/grpcpp.h>

namespace detshare {

inline void SetLimits(grpc::ServerBuilder* builder) {
  // A client sends an image of code as one message.
  constexpr int kMaxMessageBytes = 1 << 30;
  constexpr int kLookaheadBytes = 8 << 20;
  builder->SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder->SetMaxSendMessageSize(kMaxMessageBytes);
  // A large window lets the sender of a long message seldom wait for the reader's permission.
  // gRPC's own measurement of the window is switched off, because it uses timers.
  builder->AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLookaheadBytes);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
}

}  // namespace detshare
