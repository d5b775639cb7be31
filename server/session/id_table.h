// Objects by ids that this table gives, in one session.
//
// An id never names a second object, also after the first one's end. It is a place in the table and
// the place's generation:
//
//   31       21 20        0
//   +----------+-----------+
//   |generation| place + 1 |
//   +----------+-----------+
//
// A removed object's place serves the next object with the next generation. A place whose
// generations are used up serves nobody any more, so a table gives almost 2^32 ids in its life.
//
// Threading: one thread. Pointers to objects hold until the next Add().
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace detshare {

template <typename T>
class IdTable {
 public:
  static constexpr int kPlaceBits = 21;
  static constexpr uint32_t kMaxPlaces = (1u << kPlaceBits) - 1;

  // Returns the id of the new object, which is not 0. 0: no id is left, and the object is dropped.
  uint32_t Add(T object) {
    uint32_t id;
    if (!next_ids_.empty()) {
      id = next_ids_.back();
      next_ids_.pop_back();
    } else if (places_.size() < kMaxPlaces) {
      places_.emplace_back();
      id = static_cast<uint32_t>(places_.size());
    } else {
      return 0;
    }
    places_[PlaceOf(id)] = {std::move(object), id};
    ++size_;
    return id;
  }
  // Null if no object has this id. One array access and a compare.
  T* Find(uint32_t id) { return const_cast<T*>(std::as_const(*this).Find(id)); }
  const T* Find(uint32_t id) const {
    const size_t place = PlaceOf(id);
    return place < places_.size() && places_[place].id == id ? &places_[place].object : nullptr;
  }
  // Does nothing if no object has this id.
  void Remove(uint32_t id) {
    if (Find(id) == nullptr) return;
    places_[PlaceOf(id)] = {};
    --size_;
    constexpr uint32_t kNextGeneration = 1u << kPlaceBits;
    if (id <= UINT32_MAX - kNextGeneration) next_ids_.push_back(id + kNextGeneration);
  }
  // Calls visit(id, const T&) for each object. The call may remove the object.
  template <typename Visit>
  void ForEach(Visit visit) {
    for (size_t place = 0; place < places_.size(); ++place) {
      if (places_[place].id != 0) visit(places_[place].id, std::as_const(places_[place].object));
    }
  }
  // The number of objects.
  size_t size() const { return size_; }

 private:
  struct Place {
    T object{};
    uint32_t id = 0;  // 0: there is no object
  };

  // Beyond every table for an id that no place can have, such as 0.
  static size_t PlaceOf(uint32_t id) { return (id & kMaxPlaces) - uint32_t{1}; }

  std::vector<Place> places_;
  std::vector<uint32_t> next_ids_;  // of the free places
  size_t size_ = 0;
};

}  // namespace detshare
