// NVIDIA GPUs on the host's PCI bus, whether there is a driver or not. Any thread.
#pragma once

#include <string>
#include <vector>

namespace detshare {

// The PCI addresses ("0000:01:00.0") of the display and 3D controllers of NVIDIA among the devices
// that `directory` lists as Linux's sysfs does
// (https://docs.kernel.org/PCI/sysfs-pci.html). Sorted; empty if there is no such directory.
std::vector<std::string> NvidiaGpusOnPci(const std::string& directory = "/sys/bus/pci/devices");

}  // namespace detshare
