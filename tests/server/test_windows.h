// The address ranges where tests put the memory that a session maps.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "coroutine_runtime/managed_addresses.h"
#include "server/base/remove_tree.h"
#include "server/session/server_options.h"

namespace detshare {

struct TestDirectory {
  TestDirectory() {
    char pattern[] = "/dev/shm/detshare-test-XXXXXX";
    path = mkdtemp(pattern);
  }
  ~TestDirectory() { RemoveTree(path); }
  std::string path;
};

// Ranges that no sanitizer uses, below the place where Linux puts libraries.
inline AddressWindows TestWindows() {
  AddressWindows windows;
  windows.device_base = 0x7E9000000000;
  windows.device_bytes = uint64_t{1} << 30;
  windows.pinned_base = 0x7EA000000000;
  windows.pinned_bytes = uint64_t{1} << 28;
  return windows;
}

// Where managed memory is.
inline ManagedWindow TestManagedWindow() { return {0x7EB000000000, uint64_t{4} << 30}; }

}  // namespace detshare
