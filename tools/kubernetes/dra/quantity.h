// Quantities of Kubernetes' API, such as "20Gi" or "1500m".
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace detshare::kubernetes {

// The value, rounded up to an integer as Kubernetes does. Nothing for text that is no quantity, or
// is negative or above 2^63 - 1.
std::optional<int64_t> ParseQuantity(absl::string_view text);

// The value with the largest of the suffixes Ki, Mi, Gi, Ti that divides it, which is how the API
// server writes it.
std::string BinaryQuantity(int64_t value);

}  // namespace detshare::kubernetes
