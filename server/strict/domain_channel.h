// The messages between the accepting process and the process of a trust domain, over a socketpair
// that keeps message boundaries:
//
//     acceptor --[a connection, as a descriptor]--> domain    for each program that connects
//     acceptor <--[how many it has received]------- domain    the domain offers to end: it is idle
//     acceptor --(end of file)--------------------> domain    the domain must end
//
// The acceptor accepts the offer only if the domain has received all connections that were sent, so
// no connection is lost.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace detshare {

// The two ends. Both are closed on exec. Neither blocks.
struct DomainChannel {
  int acceptor = -1, domain = -1;
};
absl::StatusOr<DomainChannel> MakeDomainChannel();

// ---- the acceptor's end
// Sends a connection. Does not close `connection`. Returns Unavailable if the domain does not read
// or is gone.
absl::Status PassConnection(int channel, int connection);
// Returns the number in an offer to end; nothing if there is no offer.
std::optional<uint64_t> TakeOffer(int channel);

// ---- the domain's end
struct Received {
  bool any = false;     // a message has come
  bool end = false;     // no further message will come
  int connection = -1;  // -1: the process had no free descriptor for it
};
Received TakeConnection(int channel);
void OfferToEnd(int channel, uint64_t received);

}  // namespace detshare
