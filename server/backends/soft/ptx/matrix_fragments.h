// Which elements of a matrix each lane has in its registers.
#pragma once

#include <algorithm>

#include "server/backends/soft/ptx/matrix_ops.h"

namespace detshare::soft::ptx {

enum class Role { kA, kB, kAccumulator };

inline uint32_t ElementsOf(const MatrixShape& shape, Role role) {
  return (role == Role::kB ? shape.k : shape.m) *
         static_cast<uint32_t>(role == Role::kA ? shape.k : shape.n);
}

// Calls f(register, element, first) for each register of a wmma fragment. The lanes have elements
// `first`, `first` + 1 and so on of a row-major matrix. A fragment of operands may
// hold its matrix several times; only the first time counts.
template <class F>
void ForWmmaFragment(uint32_t matrix_elements, Type type, uint32_t registers, F f) {
  const uint32_t per = ElementsPerRegister(type);
  const uint32_t slots = std::min(registers * per, matrix_elements / kLanes);
  for (uint32_t slot = 0; slot < slots; ++slot) f(slot / per, slot % per, slot * kLanes);
}

// Where a row-major matrix has the elements that the lanes have in one place of an mma fragment: lane
// 4 g + i has element first + g * by_group + i * in_group.
struct MmaPlaces {
  uint32_t first = 0, by_group = 0, in_group = 0;

  // Calls f(lane, place) for each lane.
  template <class F>
  void ForLanes(F f) const {
    for (uint32_t g = 0; g < kLanes / 4; ++g)
      for (uint32_t i = 0; i < 4; ++i) f(4 * g + i, first + g * by_group + i * in_group);
  }
};

// Calls f(register, element, places) for each register of an mma fragment.
template <class F>
void ForMmaFragment(const MatrixShape& shape, Role role, Type type, uint32_t registers, F f) {
  const uint32_t per = ElementsPerRegister(type);
  const uint32_t columns = role == Role::kA ? shape.k : shape.n;
  for (uint32_t slot = 0; slot < registers * per; ++slot) {
    const uint32_t r = slot / per, j = slot % per;
    MmaPlaces places;
    if (role == Role::kA) {
      const bool halves = shape.m == 16;  // two registers share their columns
      places = {(halves ? 8 * (r & 1) : 0) * columns + j + (halves ? r / 2 : r) * 4 * per, columns,
                per};
    } else if (role == Role::kB) {
      places = {(j + r * 4 * per) * columns, 1, per * columns};
    } else {
      places = {8 * (slot / 2) * columns + slot % 2, columns, 2};
    }
    f(r, j, places);
  }
}

}  // namespace detshare::soft::ptx
