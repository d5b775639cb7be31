// Code, and linking it: grpc.
#pragma once

#include <cstdint>

#include "proto/ring_abi.h"

namespace detshare::wire {

// Payload: the image (ELF, PTX text, or a whole fatbin without its wrapper). Modules are libraries that belong to a context.
struct cuLibraryLoadData {
  ContextId context;  // 0: a library of the process
  uint32_t jit_option_count;
  uint64_t image_bytes;        // at the start of the payload, followed by the options:
  uint64_t info_log_bytes;     // room that the caller has for each log
  uint64_t error_log_bytes;
  uint32_t source;             // ImageSource
  LibraryId sibling;           // the same library on another device: they share managed variables; 0: none
  uint8_t hash[32];            // see ImageSource
};
enum ImageSource : uint32_t {
  // In the payload.
  kImageSent = 0,
  // Nowhere: this only asks whether the daemon may have the image of which `hash` is the sketch (content_hash.h). Nothing is
  // loaded, image_bytes is 0.
  kImageAsked = 1,
  // With the daemon, from an earlier process of the same user: the image whose SHA-256 is `hash`. image_bytes is 0.
  kImageKept = 2,
};
// jit_option_count of these follow the image in the payload: the options with plain integer values only.
struct JitOption {
  uint32_t option;  // CUjit_option
  uint32_t value;
};
// Followed by info_log_bytes, then error_log_bytes of text, then managed_count times (ManagedVariable, its name). Sent for
// failures too.
struct cuLibraryLoadData_Answer {
  LibraryId library;
  uint32_t kernel_count;
  uint32_t info_log_bytes;
  uint32_t error_log_bytes;
  uint32_t image_unknown;  // 1: the daemon does not have the image that was asked for or named
  uint32_t managed_count;
  // With managed variables: the file that holds them, as cuMemHostAlloc_Answer names one. The client maps it, and unmaps it
  // before it unloads the library from its last device.
  uint64_t managed_address;
  uint64_t managed_file_bytes;
  uint32_t managed_file;
  uint32_t reserved;
};
struct ManagedVariable {
  uint64_t address;
  uint64_t bytes;
  uint32_t name_bytes;
  uint32_t reserved;
};

struct cuLibraryUnload {
  LibraryId library;
  uint32_t reserved;
};

// Payload: the name, without a terminator.
struct cuLibraryGetKernel {
  LibraryId library;
  uint32_t reserved;
};
inline constexpr uint32_t kFunctionAttributes = 24;
// Followed by param_count KernelParameter, then name_bytes of the kernel's name.
struct cuLibraryGetKernel_Answer {
  KernelId kernel;
  uint32_t param_count;
  uint32_t param_bytes;
  uint32_t name_bytes;
  int32_t attributes[kFunctionAttributes];  // indexed by CUfunction_attribute
};
struct KernelParameter {
  uint32_t offset;
  uint32_t bytes;
};

// Answers with the kernels' names, each ended by a 0 byte, in the library's order.
struct cuLibraryEnumerateKernels {
  LibraryId library;
  uint32_t reserved;
};

// Payload: the name, without a terminator.
struct cuLibraryGetGlobal {
  LibraryId library;
  uint32_t reserved;
};
struct cuLibraryGetGlobal_Answer {
  uint64_t address;
  uint64_t bytes;
};

// Links images. Payload: input_count times (LinkInput, its name, its bytes), then jit_option_count JitOption.
struct cuLinkComplete {
  uint32_t input_count;
  uint32_t jit_option_count;
  uint64_t info_log_bytes;
  uint64_t error_log_bytes;
};
struct LinkInput {
  uint32_t type;  // CUjitInputType
  uint32_t name_bytes;
  uint64_t bytes;
};
// Followed by image_bytes, info_log_bytes, error_log_bytes.
struct cuLinkComplete_Answer {
  uint64_t image_bytes;
  uint32_t info_log_bytes;
  uint32_t error_log_bytes;
};

}  // namespace detshare::wire
