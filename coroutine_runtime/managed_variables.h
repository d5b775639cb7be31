// Variables that code declares __managed__: host and devices access them at one address. The caller
// that loads a library chooses the address, and the device writes it where the code needs it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace detshare {

struct ManagedVariable {
  std::string name;
  uint64_t bytes = 0;
  uint64_t alignment = 1;  // a power of two
};

struct ManagedPlaces {
  std::vector<uint64_t> addresses;  // one per variable
  // Takes the initial contents of a variable, by its index. They may be shorter than the variable,
  // whose other bytes are zero. Null: nobody wants them, because the same code was loaded for another
  // device of the session before.
  std::function<void(size_t variable, std::string_view contents)> initialize;
};

// Places the variables of one library in memory that the address space can access. Called during
// Device::LoadLibrary, at most once. Null: the library must not have such variables.
using PlaceManaged =
    std::function<absl::StatusOr<ManagedPlaces>(absl::Span<const ManagedVariable> variables)>;

}  // namespace detshare
