#include "client_shim/entry/handshake.h"

#include <cstring>
#include <vector>

#include "client_shim/entry/hmac_md2.h"

namespace detshare::shim {
namespace {

constexpr uint8_t kKey[16] = {0x14, 0x6A, 0xDD, 0xAE, 0x53, 0xA9, 0xA7, 0x52,
                              0xAA, 0x08, 0x41, 0x36, 0x0B, 0xF5, 0x5A, 0x9F};

}  // namespace

std::array<uint64_t, 2> RespondToHandshake(const Handshake& handshake) {
  // Two versions have fixed replies.
  if (handshake.version % 10 == 0) return {0x3341181C03CB675C, 0x8ED383AA1F4CD1E8};
  if (handshake.version % 10 == 1) return {0x1841181C03CB675C, 0x8ED383AA1F4CD1E8};
  std::vector<uint8_t> message;
  message.reserve(64 + handshake.devices.size() * 28);
  const auto append = [&](const auto& value) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
    message.insert(message.end(), bytes, bytes + sizeof(value));
  };
  append(handshake.driver_version);
  append(handshake.version);
  append(handshake.pid);
  append(handshake.thread);
  append(handshake.runtime_table);
  append(handshake.handshake_table);
  append(handshake.handshake_function);
  append(handshake.unix_seconds);
  for (const HandshakeDevice& device : handshake.devices) {
    append(device.uuid);
    append(device.pci_domain);
    append(device.pci_bus);
    append(device.pci_device);
  }
  const Md2Digest digest = HmacMd2(kKey, message);
  std::array<uint64_t, 2> reply;
  static_assert(sizeof(reply) == sizeof(digest));
  memcpy(reply.data(), digest.data(), sizeof(reply));
  return reply;
}

}  // namespace detshare::shim
