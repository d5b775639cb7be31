// The generated functions of `host` rows call these functions. Each asks the daemon and writes the
// reply through the caller's pointers, if the reply's size is right. It writes nothing if the reply
// is an error.
//
// All of them return NVML_ERROR_UNINITIALIZED first, and NVML_ERROR_INVALID_ARGUMENT for a null
// pointer or an invalid device. Otherwise they return the result of the host's function or an error
// of AskHost. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "client_shim/nvml/reply_cache.h"
#include "proto/nvml/nvml_types.h"

namespace detshare::nvml {

// The subject of a function: the machine, one device, or two devices. `valid` is false for a handle
// that is no device.
struct Subject {
  Subject() = default;
  explicit Subject(nvmlDevice_t device);
  Subject(nvmlDevice_t device, nvmlDevice_t peer);
  int device = -1, peer = -1;
  bool valid = true;
};

// A number or a struct of the caller that gets the reply.
struct Out {
  template <typename T>
  explicit Out(T* to) : to(to), bytes(sizeof(T)) {}
  void* to;
  size_t bytes;
};

using Arguments = std::initializer_list<uint32_t>;

// Ask for numbers and structs (AskPlain) and for a text of at most `length` bytes with its end
// (AskText).
nvmlReturn_t AskPlain(const char* function, Age age, Subject subject, Arguments arguments,
                      std::initializer_list<Out> outs);
nvmlReturn_t AskText(const char* function, Age age, Subject subject, Arguments arguments,
                     char* text, unsigned int length);
// Asks for a list. NVML_ERROR_INSUFFICIENT_SIZE: *count was too small, and now has the right value.
nvmlReturn_t AskList(const char* function, Age age, Subject subject, Arguments arguments,
                     unsigned int* count, unsigned int* list);
// Asks for a struct that begins with its version. The low 24 bits of the version are the struct's
// size.
nvmlReturn_t AskVersioned(const char* function, Age age, Subject subject, void* data);
// Asks for a mask. Fills all `size` words of the caller; words after the last one of the reply are
// zero.
nvmlReturn_t AskWords(const char* function, Age age, Subject subject, Arguments arguments,
                      unsigned int size, unsigned long* words);

}  // namespace detshare::nvml
