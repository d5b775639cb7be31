// A client writes a preamble to a new connection before anything else. From it, the process that
// accepts the connection learns which tenant the client wants to be, before it gives the connection
// away. gRPC's bytes follow. A connection of an operator's tool has no preamble and begins with HTTP/2's
// own preface ("PRI * HTTP/2.0").
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace detshare {

struct Preamble {
  static constexpr char kMagic[8] = {'d', 'e', 't', 's', 'h', 'a', 'r', 'e'};
  static constexpr uint32_t kVersion = 1;

  char magic[8];
  uint32_t version;
  uint32_t tenant_bytes;
  // The tenant that the client wants to be; empty: the default tenant of its user.
  char tenant[112];
};
static_assert(sizeof(Preamble) == 128);

// A longer name is cut. What is left is still too long for a tenant's name, so the daemon refuses
// it.
inline Preamble MakePreamble(std::string_view tenant) {
  Preamble preamble{};
  std::memcpy(preamble.magic, Preamble::kMagic, sizeof(preamble.magic));
  preamble.version = Preamble::kVersion;
  preamble.tenant_bytes = static_cast<uint32_t>(std::min(tenant.size(), sizeof(preamble.tenant)));
  std::memcpy(preamble.tenant, tenant.data(), preamble.tenant_bytes);
  return preamble;
}

}  // namespace detshare
