// A PTX module: parsed, checked and decoded once, immutable afterwards, shareable between threads.
//
//   text --Module::Parse--> Module --Bind(addresses of globals)--> Executable --KernelLaunch-->
//   BlockRunner
//
// Parsing treats the text as hostile: every size is limited, nesting is bounded, and whatever is
// unknown is refused with InvalidArgument naming the instruction or directive and its line
// (CUDA_ERROR_INVALID_PTX).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace detshare::soft::ptx {

struct ModuleCode;      // decoded functions, internal
struct ExecutableCode;  // the same with addresses filled in, internal

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
      0;  // frames of the kernel and of what it calls, one level of each recursion
  uint32_t registers_per_thread =
      0;  // an estimate from liveness, deterministic, in 32-bit registers, at most 255
  uint32_t const_bytes = 0;  // .const variables of the module
  uint32_t max_threads_per_block = 1024;
  std::array<uint32_t, 3> required_block{};    // .reqntid, zeros when absent
  std::array<uint32_t, 3> required_cluster{};  // .reqnctapercluster, zeros when absent
  uint32_t max_cluster_rank = 0;               // .maxclusterrank, 0 when absent
  uint32_t min_blocks_per_sm = 0;              // .minnctapersm, 0 when absent
  uint32_t max_registers = 0;                  // .maxnreg, 0 when absent
  bool explicit_cluster = false;               // .explicitcluster
};

enum class GlobalSpace { kGlobal, kConst };

struct GlobalInfo {
  std::string name;
  uint64_t size = 0;
  uint32_t align = 1;
  GlobalSpace space = GlobalSpace::kGlobal;
  bool visible = false;  // .visible, .weak or .common: findable by name
  bool is_extern =
      false;  // declared here, defined in no linked module: Bind needs its address all the same
  bool is_managed = false;  // .attribute(.managed)
  bool has_initializer = false;
};

class Executable;

class Module {
 public:
  // Parses and decodes one text. A trailing NUL and what follows it are ignored.
  static absl::StatusOr<std::unique_ptr<Module>> Parse(std::string_view ptx_text);

  // Parses several texts and links them as cuLink* does: externs are resolved by name, weak
  // definitions merged. A symbol defined twice or a function called but defined nowhere is
  // InvalidArgument.
  static absl::StatusOr<std::unique_ptr<Module>> Link(
      const std::vector<std::string_view>& ptx_texts);

  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // Highest .version (90 for 9.0) and .target (75 for sm_75) of the linked texts.
  uint32_t ptx_version() const;
  uint32_t target() const;

  const std::vector<KernelInfo>& kernels() const;
  const std::vector<GlobalInfo>& globals() const;

  // Index into kernels() / globals(), or -1.
  int FindKernel(std::string_view name) const;
  int FindGlobal(std::string_view name) const;

  // Writes the initial contents (zeros where there is no initialiser) of global `index` to `out`,
  // which has its size. `addresses` holds one device address for each of globals(), as for Bind.
  void WriteInitialImage(size_t index, const std::vector<uint64_t>& addresses, uint8_t* out) const;

  // Makes the module runnable with its globals at `addresses` (one for each of globals(), aligned
  // as they ask). The memory is the caller's; the kernels' accesses to it go through the
  // MemoryGuard like all others. The Module must outlive the Executable.
  absl::StatusOr<std::unique_ptr<Executable>> Bind(const std::vector<uint64_t>& addresses) const;

  const ModuleCode& code() const { return *code_; }

 private:
  explicit Module(std::unique_ptr<ModuleCode> code);
  std::unique_ptr<ModuleCode> code_;
};

class Executable {
 public:
  ~Executable();
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  const Module& module() const { return *module_; }
  const ExecutableCode& code() const { return *code_; }

 private:
  friend class Module;
  Executable(const Module* module, std::unique_ptr<ExecutableCode> code);
  const Module* module_;
  std::unique_ptr<ExecutableCode> code_;
};

}  // namespace detshare::soft::ptx
