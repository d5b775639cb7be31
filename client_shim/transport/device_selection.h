// The devices that a process asks for, from its environment.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace detshare::shim {

// The machine that the program gets: all of the daemon's devices, or those that are named here. The
// fields are those of OpenSessionRequest.
struct Machine {
  std::vector<std::string> ids;  // indices or UUIDs in the order to show; empty: all
  uint32_t count = 0;  // the number of these that the daemon shall choose; 0: as many as it may
  std::string run;     // a name; all processes with this name get the same machine
};

// Reads the values (or null) of DETSHARE_DEVICES, DETSHARE_DEVICE_COUNT and DETSHARE_RUN. A count
// that is no number becomes the largest number, which the daemon refuses.
Machine ReadMachine(const char* devices, const char* count, const char* run);
// The same, with the values in this process's environment.
Machine MachineOfEnvironment();

struct VisibleDevices {
  bool none = false;  // no device at all
  // Indices in the machine, or UUIDs, which may be shortened. Empty: all.
  std::vector<std::string> ids;
};

// Reads the value (or null) of CUDA_VISIBLE_DEVICES, which chooses among the machine's devices.
// Like the CUDA driver, it reads entries up to the first that cannot name a device or repeats one.
VisibleDevices ReadVisibleDevices(const char* visible);

}  // namespace detshare::shim
