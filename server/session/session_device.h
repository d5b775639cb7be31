// A session's objects on one device.
#pragma once

#include <memory>

namespace detshare {

class AddressSpace;
class Device;
class DeviceMemory;
class GpuCoroutine;
class Quota;

struct SessionDevice {
  SessionDevice();
  SessionDevice(SessionDevice&&) noexcept;
  ~SessionDevice();

  Device* device = nullptr;
  std::unique_ptr<AddressSpace> space;
  std::unique_ptr<GpuCoroutine> coroutine;
  std::unique_ptr<DeviceMemory> memory;
  std::shared_ptr<Quota> quota;  // of device memory; null: unlimited
  bool limit_noted = false;      // the log says that the program gets less than a limit it set
};

}  // namespace detshare
