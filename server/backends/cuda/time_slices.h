// The time slices of channel groups: how long the hardware lets the work of one context run before
// it gives a turn to another context.
//
// libcuda makes each context with one channel group for compute, and gives the group a slice of
// 2,048 us. The process that made a context may change the slice, without privileges. It makes the
// control call on libcuda's own descriptor of /dev/nvidiactl; the kernel module refuses it on any
// other. So the daemon looks at the calls by which libcuda creates groups (kernel_calls.cc). A slice
// belongs to the group and ends with it. Nothing on the card changes.
//
// Structures and numbers are those of NVIDIA's open kernel modules, release 580
// (src/common/sdk/nvidia/inc/nvos.h, ctrl/ctrla06c.h, class/cla06c.h, alloc/alloc_channel.h; rm_calls.h).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace detshare::cuda {

// A channel group of a context of this process. Valid while the context exists. Threading: any
// thread.
class ChannelGroup {
 public:
  ChannelGroup(int descriptor, uint32_t client, uint32_t handle)
      : descriptor_(descriptor), client_(client), handle_(handle) {}
  // Only keeps its slice, for tests whose driver has no groups.
  static ChannelGroup StandIn();

  // Takes some 100 us: the kernel module sends a message to the card's own processor. Takes effect
  // at once. Errors name the status of the kernel module.
  absl::Status SetTimeSlice(std::chrono::microseconds slice) const;
  absl::StatusOr<std::chrono::microseconds> TimeSlice() const;

 private:
  absl::Status Control(uint32_t command, uint64_t* microseconds) const;

  int descriptor_;
  uint32_t client_, handle_;
  std::shared_ptr<std::atomic<uint64_t>> stand_in_;  // its slice; null: the group is real
};

// Finds the groups that libcuda creates while the object exists. One object at a time in a process.
class ChannelGroupRecorder {
 public:
  // `stand_in`: finds one stand-in instead.
  explicit ChannelGroupRecorder(bool stand_in = false);
  ~ChannelGroupRecorder();
  ChannelGroupRecorder(const ChannelGroupRecorder&) = delete;
  ChannelGroupRecorder& operator=(const ChannelGroupRecorder&) = delete;

  // The groups of the compute engine, in the order of their creation. None if the process does not
  // see libcuda's calls.
  std::vector<ChannelGroup> compute_groups() const;
};

// For kernel_calls.cc: notes the group if the call, which has succeeded, has created one.
void NoteChannelGroup(int descriptor, unsigned long request, const void* argument);

}  // namespace detshare::cuda
