#include "client_shim/entry/handshake.h"

#include <catch2/catch.hpp>
#include <numeric>

namespace detshare::shim {
namespace {

Handshake Sample() {
  Handshake handshake;
  handshake.driver_version = 13000;
  handshake.version = 13002;
  handshake.pid = 4711;
  handshake.thread = 0x89abcdef;
  handshake.runtime_table = reinterpret_cast<const void*>(0x1122334455667788);
  handshake.handshake_table = reinterpret_cast<const void*>(0x99aabbccddeeff00);
  handshake.handshake_function = reinterpret_cast<const void*>(0x0102030405060708);
  handshake.unix_seconds = 1700000000;
  return handshake;
}

// Another implementation of MD2 computed the expected digests.
TEST_CASE("The handshake hashes what both sides know") {
  CHECK(RespondToHandshake(Sample()) ==
        std::array<uint64_t, 2>{0xd8d5cd17323a4fe8, 0xbee628c2d3face61});
}

TEST_CASE("The handshake hashes every device's UUID and PCI address") {
  HandshakeDevice devices[2];
  std::iota(devices[0].uuid.bytes, devices[0].uuid.bytes + 16, 0);
  devices[0].pci_domain = 1;
  devices[0].pci_bus = 0x5d;
  devices[0].pci_device = 3;
  std::iota(devices[1].uuid.bytes, devices[1].uuid.bytes + 16, 100);
  devices[1].pci_bus = 7;
  Handshake handshake = Sample();
  handshake.devices = devices;
  CHECK(RespondToHandshake(handshake) ==
        std::array<uint64_t, 2>{0x241556af6f3e7adb, 0x5de07d801fea46c8});
}

TEST_CASE("Two versions of the handshake have fixed replies") {
  Handshake handshake = Sample();
  handshake.version = 13000;
  CHECK(RespondToHandshake(handshake) ==
        std::array<uint64_t, 2>{0x3341181C03CB675C, 0x8ED383AA1F4CD1E8});
  handshake.version = 13001;
  CHECK(RespondToHandshake(handshake) ==
        std::array<uint64_t, 2>{0x1841181C03CB675C, 0x8ED383AA1F4CD1E8});
}

}  // namespace
}  // namespace detshare::shim
