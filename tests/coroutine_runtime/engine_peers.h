// Lets a test's process see another one.
#pragma once

#include <cstdint>

#include "coroutine_runtime/engine_page.h"

namespace detshare {

// Adds the process of this id. `page` outlives `peers`.
inline void AddPeer(EnginePeers& peers, uint64_t id, const EnginePage& page) {
  const size_t place = peers.used;
  peers.peers[place].page = &page;
  peers.peers[place].id = id;
  peers.used = place + 1;
}

}  // namespace detshare
