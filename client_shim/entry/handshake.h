// The reply with which the driver proves to the CUDA runtime that it is a driver.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

// A device, as the hash includes it.
struct HandshakeDevice {
  CUuuid uuid{};
  int32_t pci_domain = 0, pci_bus = 0, pci_device = 0;
};

// Everything that both sides know and hash.
struct Handshake {
  uint32_t driver_version = 0;
  uint32_t version = 0;  // the version that the caller gives
  uint32_t pid = 0;
  uint32_t thread = 0;  // the low half of pthread_self()
  const void* runtime_table = nullptr;
  const void* handshake_table = nullptr;
  const void* handshake_function = nullptr;
  uint64_t unix_seconds = 0;
  std::span<const HandshakeDevice> devices;
};

// The 16 bytes that the runtime expects.
std::array<uint64_t, 2> RespondToHandshake(const Handshake& handshake);

}  // namespace detshare::shim
