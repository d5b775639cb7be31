// Advice about managed memory, given to the kernel module (UVM) directly.
//
// libcuda keeps a record of the advice that it passes on. It copies memory that prefers the host with
// the CPU (driver 580.159, measured), and the daemon has no mapping of the memory. It also keeps the
// record when the client has unmapped the memory, and other memory gets the addresses.
//
// The calls are those of NVIDIA's open kernel modules, release 580 (kernel-open/nvidia-uvm/uvm_ioctl.h,
// uvm_policy.c).
#pragma once

#include <cuda.h>

#include <cstdint>

namespace detshare::cuda {

// Carries out the advice for the pages that hold [address, address + bytes). `descriptor` is that of
// the process's managed memory. `gpu` is the device of the advice; null: the host. Any thread.
CUresult AdviseManaged(int descriptor, uint64_t address, uint64_t bytes, CUmem_advise advice,
                       const CUuuid* gpu);

}  // namespace detshare::cuda
