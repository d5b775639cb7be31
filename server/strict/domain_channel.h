// What the process that accepts connections and the process of a trust domain say to each other,
// on a pair of sockets that keep messages apart:
//
//     acceptor --[a connection, as a descriptor]--> domain    for each program that connects
//     acceptor <--[how many it got]---------------- domain    nobody has been there for a while
//     acceptor --(end of file)--------------------> domain    it is to end
//
// A domain that offers to end is taken at its word only when it has got all that was sent: no
// connection is lost.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace detshare {

// Two ends. Both are closed when another program is executed. Neither blocks.
struct DomainChannel {
  int acceptor = -1, domain = -1;
};
absl::StatusOr<DomainChannel> MakeDomainChannel();

// ---- the acceptor's end
// Takes nothing of `connection`. Unavailable when the domain does not read, or is gone.
absl::Status PassConnection(int channel, int connection);
// The number of an offer; nothing when there is none.
std::optional<uint64_t> TakeOffer(int channel);

// ---- the domain's end
struct Received {
  bool any = false;     // a message has come
  bool end = false;     // nothing comes any more
  int connection = -1;  // -1: there was no descriptor left for it
};
Received TakeConnection(int channel);
void OfferToEnd(int channel, uint64_t received);

}  // namespace detshare
