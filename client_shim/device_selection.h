// Which devices a process asks for.
#pragma once

#include <string>
#include <vector>

namespace detshare::shim {

struct DeviceSelection {
  bool none = false;             // no device at all
  std::vector<std::string> ids;  // indices or UUIDs in the order to show; empty: all
};

// From the values (or null) of DETSHARE_DEVICES, a list that is the machine, and
// CUDA_VISIBLE_DEVICES, which chooses among them as the CUDA driver does: entries up to the first
// that is invalid; indices count in the former list. UUIDs may be shortened.
DeviceSelection SelectDevices(const char* devices, const char* visible);

}  // namespace detshare::shim
