// A PTX module. It is parsed, checked and decoded once. Then it is immutable, and threads can share
// it.
//
//   text --Module::Parse--> Module --Bind(addresses of globals)--> Executable --KernelLaunch-->
//   BlockRunner
//
// The parser treats the text as hostile: it limits every size and the depth of nesting. It refuses
// unknown text with InvalidArgument, which stands for CUDA_ERROR_INVALID_PTX. The message names the
// instruction or directive and its line.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/backends/soft/ptx/module_info.h"

namespace detshare::soft::ptx {

struct ModuleCode;      // decoded functions, internal
struct ExecutableCode;  // the same with addresses, internal

class Executable;

class Module {
 public:
  // Parses and decodes a text. The text ends at the first NUL.
  static absl::StatusOr<std::unique_ptr<Module>> Parse(std::string_view ptx_text);

  // Parses several texts and links them like cuLink*: resolves externs by name and merges weak
  // definitions. Returns InvalidArgument when a symbol is defined twice, or when a called function
  // is not defined.
  static absl::StatusOr<std::unique_ptr<Module>> Link(
      const std::vector<std::string_view>& ptx_texts);

  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // The highest .version (90 for 9.0) and .target (75 for sm_75) of the linked texts.
  uint32_t ptx_version() const;
  uint32_t target() const;
  // Whether a function of the module may launch a kernel.
  bool launches_kernels() const;

  const std::vector<KernelInfo>& kernels() const;
  const std::vector<GlobalInfo>& globals() const;

  // Returns an index into kernels() or globals(), or -1.
  int FindKernel(std::string_view name) const;
  int FindGlobal(std::string_view name) const;

  // Writes the initial contents of global `index` to `out`, with zeros where it has no initialiser.
  // `out` has the size of the global. `addresses` has a device address for each of globals(), as
  // for Bind.
  void WriteInitialImage(size_t index, const std::vector<uint64_t>& addresses, uint8_t* out) const;

  // Makes the module runnable with its globals at `addresses`, which has an address, with the
  // global's alignment, for each of globals(). The caller owns the memory. The MemoryGuard checks
  // the kernels' accesses to it like all others. The Module must outlive the Executable.
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
