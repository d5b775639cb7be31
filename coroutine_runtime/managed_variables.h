// Variables that code declares __managed__: host and devices see them at one address. Whoever has a
// library loaded chooses that address; the device fills it in where the code asks for it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
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
  std::vector<uint64_t> addresses;  // one for each variable
  // The memory is new: the device writes the initial contents. Else they have been written when the
  // same code was loaded for another device of the session.
  bool fresh = true;
};

// Gives the variables of one library their places, in host memory that the address space reaches
// and that this process may write. Called during Device::LoadLibrary, at most once. Null: the
// library may have no such variables.
using PlaceManaged =
    std::function<absl::StatusOr<ManagedPlaces>(absl::Span<const ManagedVariable> variables)>;

}  // namespace detshare
