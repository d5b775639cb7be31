// What every gRPC server of the daemon takes.
#pragma once

#include <grpcpp/grpcpp.h>

namespace detshare {

inline void SetLimits(grpc::ServerBuilder* builder) {
  // An image of code is one message.
  constexpr int kMaxMessageBytes = 1 << 30;
  constexpr int kLookaheadBytes = 8 << 20;
  builder->SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder->SetMaxSendMessageSize(kMaxMessageBytes);
  // Long messages do not wait for the reader's permission often. (By itself gRPC measures what it
  // needs, with timers.)
  builder->AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLookaheadBytes);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
}

}  // namespace detshare
