// Limits for every gRPC server of the daemon: what one connection may leave unread is the window of
// each call times the number of calls. PeerTable bounds the connections.
//
// There is no grpc::ResourceQuota. Where one is used up, gRPC ends calls of any connection, so a
// hostile client would end the sessions of others.
#pragma once

#include <grpcpp/grpcpp.h>

#include "proto/call_parts.h"

namespace detshare {

inline void SetLimits(grpc::ServerBuilder* builder) {
  // The longest request is a part of a control call. The rest is room for the other fields.
  constexpr int kMaxRequestBytes = kCallPartBytes + (256 << 10);
  // A linked image is the longest reply.
  constexpr int kMaxReplyBytes = 1 << 30;
  // A client may send so many bytes on one call before the daemon reads them. gRPC's own measurement
  // of this window is switched off, because it uses timers.
  constexpr int kLookaheadBytes = 64 << 10;
  // Calls of one connection at the same time. A client with more threads that call waits.
  constexpr int kMaxCalls = 100;
  builder->SetMaxReceiveMessageSize(kMaxRequestBytes);
  builder->SetMaxSendMessageSize(kMaxReplyBytes);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLookaheadBytes);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCalls);
}

}  // namespace detshare
