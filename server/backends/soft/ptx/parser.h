// Parses text into a ModuleAst.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "server/backends/soft/ptx/ast.h"

namespace detshare::soft::ptx {

// Limits of a text. Compilers stay far below them. They keep the cost of hostile text small.
struct ParseLimits {
  static constexpr size_t kTextBytes = size_t{64} << 20;
  static constexpr size_t kStatementsPerModule = 2u << 20;  // and labels
  static constexpr size_t kOperandsPerModule = 8u << 20;
  static constexpr size_t kFunctionsPerModule =
      1u << 16;  // and declarations of functions, and aliases
  static constexpr size_t kVariablesPerModule = 1u << 20;      // and parameters
  static constexpr size_t kBranchTargetsPerModule = 4u << 20;  // of all lists, and of all brx.idx
  static constexpr size_t kVregsPerFunction = 1u << 20;
  static constexpr uint32_t kScopeDepth = 64;
  static constexpr int kExpressionDepth = 64;
  static constexpr size_t kListLength = 4096;
  static constexpr uint64_t kGlobalBytes = uint64_t{1} << 36;
  static constexpr uint64_t kSharedBytes = 1u << 20;
  static constexpr uint64_t kLocalBytes = 512u << 10;
  static constexpr uint64_t kParamBytes = 32764 + 4;  // of one kernel or variable
  static constexpr uint32_t kParamAreaBytes =
      1u << 17;  // of all parameter variables of a function in scope at once
};

// `text` must outlive the result. Returns InvalidArgument, with the line, for unknown text.
absl::StatusOr<ModuleAst> ParsePtx(std::string_view text);

// Returns InvalidArgument with a text such as "PTX line 12: unknown instruction 'foo.bar'".
absl::Status PtxError(uint32_t line, const std::string& message);

}  // namespace detshare::soft::ptx
