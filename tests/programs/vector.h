// A vector of trivially copyable values, for the host code of the test programs. <vector> would take
// a third of the time in which nvcc compiles a program.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace check {

// Its members mean what those of std::vector with the same names mean.
template <typename T>
class Vector {
 public:
  using value_type = T;

  Vector() = default;
  explicit Vector(std::size_t size, const T& value = T()) { resize(size, value); }
  Vector(std::initializer_list<T> values) : Vector(values.begin(), values.end()) {}
  Vector(const T* first, const T* last) { Append(first, last); }
  Vector(const Vector& other) : Vector(other.begin(), other.end()) {}
  Vector(Vector&& other) noexcept { swap(other); }
  Vector& operator=(Vector other) noexcept {
    swap(other);
    return *this;
  }
  ~Vector() { std::free(data_); }

  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() { return data_; }
  const T* begin() const { return data_; }
  T* end() { return data_ + size_; }
  const T* end() const { return data_ + size_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  const T& front() const { return data_[0]; }
  const T& back() const { return data_[size_ - 1]; }

  bool operator==(const Vector& other) const {
    if (size_ != other.size_) return false;
    for (std::size_t i = 0; i < size_; ++i) {
      if (!(data_[i] == other.data_[i])) return false;
    }
    return true;
  }

  void push_back(const T& value) { resize(size_ + 1, value); }
  void resize(std::size_t size, T value = T()) {
    if (size > capacity_) Grow(size);
    for (std::size_t i = size_; i < size; ++i) data_[i] = value;
    size_ = size;
  }
  void clear() { size_ = 0; }
  void swap(Vector& other) noexcept {
    T* const data = data_;
    const std::size_t size = size_, capacity = capacity_;
    data_ = other.data_;
    size_ = other.size_;
    capacity_ = other.capacity_;
    other.data_ = data;
    other.size_ = size;
    other.capacity_ = capacity;
  }

  // Appends values that are not the vector's own.
  void Append(const T* first, const T* last) {
    const std::size_t count = last - first;
    if (size_ + count > capacity_) Grow(size_ + count);
    if (count > 0) std::memcpy(static_cast<void*>(data_ + size_), first, count * sizeof(T));
    size_ += count;
  }
  void Append(std::initializer_list<T> values) { Append(values.begin(), values.end()); }

 private:
  void Grow(std::size_t needed) {
    capacity_ = needed > 2 * capacity_ ? needed : 2 * capacity_;
    data_ = static_cast<T*>(std::realloc(static_cast<void*>(data_), capacity_ * sizeof(T)));
    if (data_ == nullptr) std::abort();
  }

  T* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace check
