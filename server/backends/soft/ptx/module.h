// A PTX module: parsed, checked and decoded once, immutable afterwards, shareable between threads.
//
//   text --Module::Parse--> Module --Bind(addresses of globals)--> Executable --KernelLaunch-->
//   BlockRunner
//
// Parsing treats the text as hostile: every size is limited, nesting is bounded, and whatever is
// unknown is refused with InvalidArgument naming the instruction or directive and its line
// (CUDA_ERROR_INVALID_PTX).
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/backends/soft/ptx/module_info.h"

namespace detshare::soft::ptx {

struct ModuleCode;      // decoded functions, internal
struct ExecutableCode;  // the same with addresses filled in, internal

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
