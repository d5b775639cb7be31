// The argument and answer structs of the operations that cross from the shim to the daemon, one pair per op.
//
// A struct is named after the driver entry point whose row in driver_api/driver_api.table carries its op number; other entry
// points reduce to these in the shim (cuLaunchKernel becomes cuLaunchKernelEx). Fixed-width types only, no padding that is
// not written down, little endian. Whoever reads one in the daemon works on a private copy and believes nothing in it.
//
// Ops of lane `ring` travel as ring records and answer through a reply slot when they have one; ops of lane `grpc` travel
// with the same structs as bytes inside control.proto's CallRequest and CallReply. An op without an `_Answer` struct answers
// with its CUresult alone, or not at all when it was submitted without a reply slot.
#pragma once

#include <cstdint>

#include "proto/ring_abi.h"

namespace detshare::wire {

// Where one side of a copy lives.
enum Space : uint32_t {
  kAddress = 0,  // device or pinned host memory of the session; `address` is the pointer itself
  kStaging = 1,  // `address` is an offset into the session's staging area
  kInline = 2,   // source only: the bytes are the record's payload, `address` is an offset into it
};

struct Location {
  uint64_t address;
  uint32_t space;  // Space
  uint32_t reserved;
};

// "Store `value` to fence `index` when everything that precedes on the stream is complete." kNoFence: nothing.
struct Signal {
  uint64_t value;
  FenceIndex index;
  uint32_t reserved;
};

// ---- contexts and streams (ring) -------------------------------------------------------------------------------------------

// Ends every object of context `context`: streams, events, memory, libraries. Answered when its work has completed.
struct cuCtxDestroy_v2 {
  ContextId context;
  uint32_t reserved;
};

// Signals when all work that was submitted in the context so far is complete. With a reply slot: answers at that moment.
struct cuCtxSynchronize {
  ContextId context;
  uint32_t reserved;
  Signal signal;
};

struct cuCtxSetLimit {
  uint64_t value;
  uint32_t limit;  // CUlimit
  uint32_t reserved;
};
struct cuCtxSetLimit_Answer {
  uint64_t value;  // as rounded by the device
};

inline constexpr uint32_t kStreamLegacyDefault = 0x80000000;  // the context's legacy default stream; one per context
// `flags`: CU_STREAM_NON_BLOCKING or 0, and kStreamLegacyDefault. The id is the client's choice and must be free.
struct cuStreamCreateWithPriority {
  StreamId stream;
  ContextId context;
  uint32_t flags;
  int32_t priority;
};

struct cuStreamDestroy_v2 {
  StreamId stream;  // its work goes on; the id is free at once
  uint32_t reserved;
};

struct cuStreamSynchronize {
  StreamId stream;
  uint32_t reserved;
  Signal signal;  // with a reply slot: answered at that moment, so that a client can sleep
};

struct cuStreamWaitEvent {
  StreamId stream;
  EventId event;
};

// The stream signals `reached`, then stands still until the client has stored resume_value to fence resume_index.
struct cuLaunchHostFunc {
  StreamId stream;
  FenceIndex resume_index;
  uint64_t resume_value;
  Signal reached;
};

// ---- events (ring) ---------------------------------------------------------------------------------------------------------

struct cuEventCreate {
  EventId event;
  ContextId context;
  uint32_t flags;  // CUevent_flags
  uint32_t reserved;
};

struct cuEventDestroy_v2 {
  EventId event;
  uint32_t reserved;
};

struct cuEventRecordWithFlags {
  EventId event;
  StreamId stream;
  Signal signal;  // what the client polls for cuEventQuery and cuEventSynchronize
};

// CUDA_ERROR_NOT_READY while either has not completed.
struct cuEventElapsedTime_v2 {
  EventId start;
  EventId end;
};
struct cuEventElapsedTime_v2_Answer {
  float milliseconds;
  uint32_t reserved;
};

// ---- memory (ring) ---------------------------------------------------------------------------------------------------------

struct cuMemAlloc_v2 {
  uint64_t bytes;
};
struct cuMemAlloc_v2_Answer {
  uint64_t address;
};

// Answered when the work that was submitted before has completed and the memory is gone.
struct cuMemFree_v2 {
  uint64_t address;
};

// The address is valid for work on any stream that is ordered after `stream`; allocation is immediate.
struct cuMemAllocAsync {
  uint64_t bytes;
  StreamId stream;
  uint32_t reserved;
};
struct cuMemAllocAsync_Answer {
  uint64_t address;
};

struct cuMemFreeAsync {
  uint64_t address;
  StreamId stream;
  uint32_t reserved;
};

struct cuMemGetInfo_v2 {
  uint64_t reserved;
};
struct cuMemGetInfo_v2_Answer {
  uint64_t free;
  uint64_t total;
};

// Makes the file `<session directory>/pinned.<file>` of file_bytes bytes, which the client maps shared at `address`
// (fixed; free in its window), and lets the GPU reach it there. cuMemHostRegister uses it too, and maps it where the
// registered range lies; the GPU's pointer is then `address`.
struct cuMemHostAlloc {
  uint64_t bytes;
  uint32_t flags;  // CU_MEMHOSTALLOC_*
  uint32_t reserved;
};
struct cuMemHostAlloc_Answer {
  uint64_t address;
  uint64_t file_bytes;
  uint32_t file;
  uint32_t reserved;
};

// Answered when no work that was submitted before can touch it any more.
struct cuMemFreeHost {
  uint64_t address;
};

// A linear copy. Overlapping ranges are undefined, as in CUDA. `signal` follows the copy on its stream.
struct cuMemcpyAsync {
  Location destination;
  Location source;
  uint64_t bytes;
  StreamId stream;
  uint32_t reserved;
  Signal signal;
};

struct PitchedLocation {
  Location location;     // of the first byte that is copied: offsets are already added
  uint64_t row_pitch;    // bytes from row to row
  uint64_t slice_pitch;  // bytes from slice to slice
};

// A copy of `depth` slices of `height` rows of `width` bytes.
struct cuMemcpy3DAsync_v2 {
  PitchedLocation destination;
  PitchedLocation source;
  uint64_t width;
  uint64_t height;
  uint64_t depth;
  StreamId stream;
  uint32_t reserved;
  Signal signal;
};

// Every memset: `height` rows of `width` elements of `element_bytes` (1, 2 or 4), `pitch` bytes apart.
struct cuMemsetD2D32Async {
  uint64_t address;
  uint64_t pitch;
  uint64_t width;
  uint64_t height;
  uint32_t value;
  uint32_t element_bytes;
  StreamId stream;
  uint32_t reserved;
};

// ---- code (grpc, but for the launch and what follows it) ---------------------------------------------------------------------

// Payload: the image (ELF, PTX text, or a whole fatbin without its wrapper). Modules are libraries that belong to a context.
struct cuLibraryLoadData {
  ContextId context;  // 0: a library of the process
  uint32_t jit_option_count;
  uint64_t image_bytes;        // at the start of the payload, followed by the options:
  uint64_t info_log_bytes;     // room that the caller has for each log
  uint64_t error_log_bytes;
};
// jit_option_count of these follow the image in the payload: the options with plain integer values only.
struct JitOption {
  uint32_t option;  // CUjit_option
  uint32_t value;
};
// Followed by info_log_bytes, then error_log_bytes of text. Sent for failures too.
struct cuLibraryLoadData_Answer {
  LibraryId library;
  uint32_t kernel_count;
  uint32_t info_log_bytes;
  uint32_t error_log_bytes;
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

struct cuKernelSetAttribute {  // ring
  KernelId kernel;
  uint32_t attribute;  // CUfunction_attribute
  int32_t value;
  uint32_t reserved;
};

enum LaunchFlags : uint32_t {
  kLaunchCooperative = 1,
  kLaunchHasCluster = 2,                 // cluster[] is given by the launch
  kLaunchProgrammaticSerialization = 4,  // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
  kLaunchHasPriority = 8,
};
// Ring. Payload: the parameter buffer, laid out as the kernel's parameters are.
struct cuLaunchKernelEx {
  StreamId stream;
  KernelId kernel;
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t cluster[3];
  uint32_t dynamic_shared_bytes;
  uint32_t flags;  // LaunchFlags
  int32_t priority;
};

// ---- occupancy (ring) --------------------------------------------------------------------------------------------------------

struct cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags {
  uint64_t dynamic_shared_bytes;
  KernelId kernel;
  int32_t block_size;
  uint32_t flags;
  uint32_t reserved;
};
struct cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags_Answer {
  int32_t blocks;
  uint32_t reserved;
};

struct cuOccupancyAvailableDynamicSMemPerBlock {
  KernelId kernel;
  int32_t blocks;
  int32_t block_size;
  uint32_t reserved;
};
struct cuOccupancyAvailableDynamicSMemPerBlock_Answer {
  uint64_t bytes;
};

struct cuOccupancyMaxPotentialClusterSize {
  KernelId kernel;
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t dynamic_shared_bytes;
};
struct cuOccupancyMaxPotentialClusterSize_Answer {
  int32_t cluster_size;
  uint32_t reserved;
};

struct cuOccupancyMaxActiveClusters {
  KernelId kernel;
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t cluster[3];
  uint32_t dynamic_shared_bytes;
  uint32_t reserved;
};
struct cuOccupancyMaxActiveClusters_Answer {
  int32_t clusters;
  uint32_t reserved;
};

}  // namespace detshare::wire
