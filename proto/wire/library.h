// Code and linking. Transport: control.
#pragma once

#include <cstdint>

#include "proto/ring_abi.h"

namespace detshare::wire {

// Payload: the image, then the options. The image is ELF, PTX text, or a whole fatbin without its
// wrapper. A module is a library that belongs to a context.
struct cuLibraryLoadData {
  ContextId context;  // 0: the library belongs to the process
  uint32_t jit_option_count;
  uint64_t image_bytes;      // the size of the image at the start of the payload
  uint64_t info_log_bytes;   // the size of the caller's buffer for the info log
  uint64_t error_log_bytes;  // the size of the caller's buffer for the error log
  uint32_t source;           // ImageSource
  LibraryId sibling;         // the library on another device, to share managed variables; 0: none
  uint32_t maps_managed;     // 1: the client has the connection that cuMemAllocManaged needs
  uint32_t reserved;
  uint8_t hash[32];  // see ImageSource
};
enum ImageSource : uint32_t {
  // The image is in the payload.
  kImageSent = 0,
  // The call only asks whether the daemon may have the image whose sketch is `hash`
  // (content_hash.h). It loads nothing, and image_bytes is 0.
  kImageAsked = 1,
  // The daemon has the image, whose SHA-256 is `hash`, from an earlier process of the same user.
  // image_bytes is 0.
  kImageKept = 2,
};
// jit_option_count of these follow the image in the payload. Only options with plain integer values
// are sent.
struct JitOption {
  uint32_t option;  // CUjit_option
  uint32_t value;
};
// Followed by info_log_bytes and then error_log_bytes of text, then managed_count times
// (ManagedVariable, its name, its contents). Also sent when the call fails.
struct cuLibraryLoadData_Reply {
  LibraryId library;
  uint32_t kernel_count;
  uint32_t info_log_bytes;
  uint32_t error_log_bytes;
  uint32_t image_unknown;  // 1: the daemon does not have the image of `hash`
  uint32_t managed_count;
  // With managed variables: the file that holds them, as in the reply of cuMemHostAlloc, or
  // kManagedRange if they lie in a range as in the reply of cuMemAllocManaged. The client maps the
  // memory, and writes the contents there. It unmaps the memory before it unloads the library from the
  // last device, and waits for work that uses a range before that.
  uint64_t managed_address;
  uint64_t managed_bytes;
  uint32_t managed_file;
  // 1: the code has no variables of any kind, so running it leaves nothing behind in the library. 0:
  // it has some, or the daemon did not look, because the image is large.
  uint32_t without_variables;
};
// The daemon looks for variables in images of at most this size.
inline constexpr uint64_t kSearchedImageBytes = 64 << 10;
inline constexpr uint32_t kManagedRange = ~0u;
struct ManagedVariable {
  uint64_t address;
  uint64_t bytes;
  uint32_t name_bytes;
  uint32_t contents_bytes;  // at most `bytes`; the variable's other bytes are zero already
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
struct cuLibraryGetKernel_Reply {
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

// The reply holds the kernels' names in the library's order, each followed by a 0 byte.
struct cuLibraryEnumerateKernels {
  LibraryId library;
  uint32_t reserved;
};

// Payload: the name, without a terminator.
struct cuLibraryGetGlobal {
  LibraryId library;
  uint32_t reserved;
};
struct cuLibraryGetGlobal_Reply {
  uint64_t address;
  uint64_t bytes;
};

// Links images. Payload: input_count times (LinkInput, its name, its bytes), then jit_option_count
// JitOption.
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
// Followed by the image, the info log and the error log, of these sizes.
struct cuLinkComplete_Reply {
  uint64_t image_bytes;
  uint32_t info_log_bytes;
  uint32_t error_log_bytes;
};

}  // namespace detshare::wire
