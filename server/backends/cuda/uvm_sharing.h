// The part of the kernel module that moves pages (UVM), as one process uses it for others.
//
// Usually the process whose contexts use managed memory also maps it. The module has another mode, in
// which any process that has the descriptor maps the memory and gets the page faults of its own CPU
// (UVM_INIT_FLAGS_MULTI_PROCESS_SHARING_MODE). libcuda does not ask for the mode. So the daemon adds
// the flag to each call that begins a use of the module. In this mode GPUs do not reach ordinary memory
// of this process (HMM), which the daemon never offers them.
//
// NVML uses the module, too, and gets the mode as well: if only one of the two uses had it, a process that
// ended while a kernel ran took 2.1 s to end instead of 0.2 s, and the GPU ran no ordinary work meanwhile
// (H200, driver 580.159.04).
//
// libcuda finds an address for managed memory by an anonymous mapping, and maps the descriptor there.
// The client needs the same address, so the daemon chooses it: AddressForDriver answers libcuda's
// mapping.
//
// When a process ends that maps managed memory, its ranges stay as they are, and serve no new page
// faults, until RemoveDeadMappings(). (When it unmaps a range, the range is gone.)
//
// The calls are those of NVIDIA's open kernel modules, release 580
// (kernel-open/nvidia-uvm/uvm_types.h, uvm_ioctl.h, uvm_linux_ioctl.h, and uvm.c for the mode).
#pragma once

#include <cstddef>
#include <cstdint>

namespace detshare::cuda {

// Call once before cuInit(), in a process with one thread.
void ShareManagedMemory();
// The descriptor that shares this process's managed memory; -1: the module does not share, or is not
// in use yet. It stays open. Any thread.
int SharedManagedMemory();
// Removes what processes that have ended mapped. Any thread.
void RemoveDeadMappings();

// While the object exists, libcuda puts its next reservation of addresses in this thread at `address`.
class AddressForDriver {
 public:
  explicit AddressForDriver(uint64_t address);
  ~AddressForDriver();
  AddressForDriver(const AddressForDriver&) = delete;
  AddressForDriver& operator=(const AddressForDriver&) = delete;
};

// ---- For kernel_calls.cc, which sees libcuda's calls before the kernel does.

// Adds the flag to the call that begins the use of the module. Returns whether it did.
bool AskToShare(unsigned long request, void* argument);
// The call has come back. Returns true if it must be made again, because the module does not know the
// flag; the flag is removed then.
bool NoteSharing(int descriptor, void* argument, bool asked);
// Returns the address for an anonymous mapping that says none; 0: the kernel may choose. An address is
// returned once.
uint64_t TakeAddressForDriver();

}  // namespace detshare::cuda
