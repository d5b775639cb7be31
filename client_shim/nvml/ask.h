// How the generated functions of `host` rows answer: each asks the daemon and writes what comes
// back through the caller's pointers, if its size is right. Nothing is written when the reply is
// an error.
//
// All of them return NVML_ERROR_UNINITIALIZED first, NVML_ERROR_INVALID_ARGUMENT for a null pointer
// or what is no device, the function's own result, or as AskHost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "client_shim/nvml/reply_cache.h"
#include "proto/nvml/nvml_types.h"

namespace detshare::nvml {

// What a function is about: the machine, a device, or two.
struct Subject {
  Subject() = default;
  explicit Subject(nvmlDevice_t device);
  Subject(nvmlDevice_t device, nvmlDevice_t peer);
  int device = -1, peer = -1;
  bool valid = true;
};

// A number or a struct of the caller's.
struct Out {
  template <typename T>
  explicit Out(T* to) : to(to), bytes(sizeof(T)) {}
  void* to;
  size_t bytes;
};

using Arguments = std::initializer_list<uint32_t>;

nvmlReturn_t AskPlain(const char* function, Age age, Subject subject, Arguments arguments,
                      std::initializer_list<Out> outs);
nvmlReturn_t AskText(const char* function, Age age, Subject subject, Arguments arguments,
                     char* text, unsigned int length);
// NVML_ERROR_INSUFFICIENT_SIZE, with *count set, when that was too small.
nvmlReturn_t AskList(const char* function, Age age, Subject subject, Arguments arguments,
                     unsigned int* count, unsigned int* list);
// `data` begins with the struct's version, whose low 24 bits are its size.
nvmlReturn_t AskVersioned(const char* function, Age age, Subject subject, void* data);
// A mask: as many words as the caller has room for, zeroes after the last one that there is.
nvmlReturn_t AskWords(const char* function, Age age, Subject subject, Arguments arguments,
                      unsigned int size, unsigned long* words);

}  // namespace detshare::nvml
