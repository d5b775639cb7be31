// Text to ModuleAst.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "server/backends/soft/ptx/ast.h"

namespace detshare::soft::ptx {

// What a text may ask for. Generous against what compilers emit, small enough that hostile text
// stays cheap.
struct ParseLimits {
  static constexpr size_t kTextBytes = size_t{64} << 20;
  static constexpr size_t kStatementsPerModule = 2u << 20;
  static constexpr size_t kOperandsPerModule = 8u << 20;
  static constexpr size_t kVregsPerFunction = 1u << 20;
  static constexpr uint32_t kScopeDepth = 64;
  static constexpr size_t kListLength = 4096;
  static constexpr uint64_t kGlobalBytes = uint64_t{1} << 36;
  static constexpr uint64_t kSharedBytes = 1u << 20;
  static constexpr uint64_t kLocalBytes = 512u << 10;
  static constexpr uint64_t kParamBytes = 32764 + 4;  // of one kernel or variable
  static constexpr uint32_t kParamAreaBytes =
      1u << 17;  // of all parameter variables of a function in scope at once
};

// `text` must outlive the result. InvalidArgument with the line on anything that is not understood.
absl::StatusOr<ModuleAst> ParsePtx(std::string_view text);

// "line 12: unknown instruction 'foo.bar'" as InvalidArgument.
absl::Status PtxError(uint32_t line, const std::string& message);

}  // namespace detshare::soft::ptx
