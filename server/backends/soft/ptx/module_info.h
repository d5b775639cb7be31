// The properties of a module's kernels and globals.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace detshare::soft::ptx {

struct ParamInfo {
  uint32_t offset = 0;  // bytes from the start of the parameter block
  uint32_t size = 0;
  uint32_t align = 0;
};

struct KernelInfo {
  std::string name;
  std::vector<ParamInfo> params;
  uint32_t param_bytes = 0;  // end of the last parameter, not rounded up
  uint32_t static_shared_bytes = 0;
  uint32_t local_bytes_per_thread =
      0;  // frames of the kernel and of the functions that it calls, one level of each recursion
  // An estimate from liveness, deterministic, in 32-bit registers, at most 255. It does not consider
  // the launch bounds.
  uint32_t registers_per_thread = 0;
  uint32_t const_bytes = 0;  // .const variables of the module
  uint32_t max_threads_per_block = 1024;
  std::array<uint32_t, 3> required_block{};    // .reqntid, zeros when absent
  std::array<uint32_t, 3> required_cluster{};  // .reqnctapercluster, zeros when absent
  uint32_t max_cluster_rank = 0;               // .maxclusterrank, 0 when absent
  uint32_t min_blocks_per_sm = 0;              // .minnctapersm, 0 when absent
  uint32_t max_registers = 0;                  // .maxnreg, 0 when absent
  bool explicit_cluster = false;               // .explicitcluster
  bool uses_reserved_shared = false;           // it or what it calls asks where that memory lies
};

enum class GlobalSpace { kGlobal, kConst };

struct GlobalInfo {
  std::string name;
  uint64_t size = 0;
  uint32_t align = 1;
  GlobalSpace space = GlobalSpace::kGlobal;
  bool visible = false;  // .visible, .weak or .common: can be found by name
  bool is_extern =
      false;  // declared but not defined in the linked texts; Bind needs its address, too
  bool is_managed = false;  // .attribute(.managed)
  bool has_initializer = false;
};

}  // namespace detshare::soft::ptx
