#include "server/backends/cuda/uvm_sharing.h"

#include <fcntl.h>
#include <sys/ioctl.h>

#include <atomic>
#include <utility>

namespace detshare::cuda {
namespace {

// UVM_INITIALIZE and UVM_INITIALIZE_PARAMS
constexpr unsigned long kInitialize = 0x30000001;
struct InitializeParameters {
  uint64_t flags;
  uint32_t status;
};
constexpr uint64_t kMultiProcessSharing = 2;  // UVM_INIT_FLAGS_MULTI_PROCESS_SHARING_MODE

// UVM_CLEAN_UP_ZOMBIE_RESOURCES and its parameters
constexpr unsigned long kCleanUpZombies = 69;
struct CleanUpParameters {
  uint32_t status;
};

bool g_wanted = false;       // set before libcuda makes its first call
constexpr int kNone = -1;    // libcuda does not use the module yet
constexpr int kCannot = -2;  // the module does not know the mode
// Release: publishes the module's mode with the descriptor.
std::atomic<int> g_descriptor{kNone};
thread_local uint64_t g_address = 0;

}  // namespace

void ShareManagedMemory() { g_wanted = true; }

int SharedManagedMemory() {
  const int descriptor = g_descriptor.load(std::memory_order_acquire);
  return descriptor >= 0 ? descriptor : -1;
}

void RemoveDeadMappings() {
  CleanUpParameters parameters{};
  if (const int descriptor = SharedManagedMemory(); descriptor >= 0)
    ioctl(descriptor, kCleanUpZombies, &parameters);
}

AddressForDriver::AddressForDriver(uint64_t address) { g_address = address; }
AddressForDriver::~AddressForDriver() { g_address = 0; }

bool AskToShare(unsigned long request, void* argument) {
  if (request != kInitialize || argument == nullptr || !g_wanted ||
      g_descriptor.load(std::memory_order_acquire) == kCannot) {
    return false;
  }
  static_cast<InitializeParameters*>(argument)->flags |= kMultiProcessSharing;
  return true;
}

bool NoteSharing(int descriptor, void* argument, bool asked) {
  if (!asked) return false;
  auto* const parameters = static_cast<InitializeParameters*>(argument);
  // The first use is libcuda's. NVML's comes later.
  const bool first = g_descriptor.load(std::memory_order_acquire) == kNone;
  if (parameters->status == 0) {
    if (!first) return false;
    // libcuda may close its own descriptor.
    const int own = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    g_descriptor.store(own >= 0 ? own : kCannot, std::memory_order_release);
    return false;
  }
  if (first) g_descriptor.store(kCannot, std::memory_order_release);
  parameters->flags &= ~kMultiProcessSharing;
  return true;
}

uint64_t TakeAddressForDriver() { return std::exchange(g_address, 0); }

}  // namespace detshare::cuda
