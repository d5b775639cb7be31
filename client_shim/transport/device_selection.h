// Which devices a process asks for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace detshare::shim {

// The machine: all of the daemon's devices, or what is said here. Fields as in OpenSessionRequest.
struct Machine {
  std::vector<std::string> ids;  // indices or UUIDs in the order to show; empty: all
  uint32_t count = 0;  // how many of these, which the daemon chooses; 0: as many as it may
  std::string run;     // whose processes have the same machine
};

// From the values (or null) of DETSHARE_DEVICES, DETSHARE_DEVICE_COUNT and DETSHARE_RUN. A count
// that is no number is more than there can be.
Machine ReadMachine(const char* devices, const char* count, const char* run);
// ... of this process.
Machine MachineOfEnvironment();

struct VisibleDevices {
  bool none = false;  // no device at all
  // Indices in the machine, or UUIDs, which may be shortened; empty: all.
  std::vector<std::string> ids;
};

// From the value (or null) of CUDA_VISIBLE_DEVICES, which chooses among the machine's devices as
// the CUDA driver does: entries up to the first that cannot be one.
VisibleDevices ReadVisibleDevices(const char* visible);

}  // namespace detshare::shim
