// Returns from a function at the first error of absl::Status or absl::StatusOr.
//
//     DETSHARE_RETURN_IF_ERROR(queue.Record(marker));
//     DETSHARE_ASSIGN_OR_RETURN(Stream* const stream, FindStream(id));
//
// The forms with CO_ are for coroutines. ASSIGN_OR_RETURN is two statements and more: it needs
// braces below an `if` or a loop. A type with a comma in it needs a name of its own first.
#pragma once

#include <utility>

#include "absl/status/status.h"

#define DETSHARE_RETURN_IF_ERROR(...) DETSHARE_RETURN_IF_ERROR_(return, __VA_ARGS__)
#define DETSHARE_CO_RETURN_IF_ERROR(...) DETSHARE_RETURN_IF_ERROR_(co_return, __VA_ARGS__)

#define DETSHARE_ASSIGN_OR_RETURN(left, ...) \
  DETSHARE_ASSIGN_OR_RETURN_(DETSHARE_LOCAL_NAME_(__LINE__), return, left, __VA_ARGS__)
#define DETSHARE_CO_ASSIGN_OR_RETURN(left, ...) \
  DETSHARE_ASSIGN_OR_RETURN_(DETSHARE_LOCAL_NAME_(__LINE__), co_return, left, __VA_ARGS__)

// ---- for the macros above

#define DETSHARE_RETURN_IF_ERROR_(return_, ...)                                         \
  do {                                                                                  \
    if (absl::Status detshare_status = __VA_ARGS__; !detshare_status.ok()) [[unlikely]] \
      return_ detshare_status;                                                          \
  } while (false)

#define DETSHARE_ASSIGN_OR_RETURN_(result, return_, left, ...) \
  auto result = __VA_ARGS__;                                   \
  if (!result.ok()) [[unlikely]]                               \
    return_ std::move(result).status();                        \
  left = *std::move(result)

#define DETSHARE_LOCAL_NAME_(line) DETSHARE_LOCAL_NAME_OF_(line)
#define DETSHARE_LOCAL_NAME_OF_(line) detshare_result_##line
