#include "client_shim/objects/waits.h"

#include <time.h>

#include <algorithm>

#include "client_shim/base/futex.h"
#include "client_shim/base/gate.h"
#include "client_shim/base/thread_exit.h"
#include "client_shim/base/thread_state.h"
#include "client_shim/transport/read_digest.h"
#include "client_shim/transport/session.h"
#include "proto/wire/context.h"

namespace detshare::shim {
namespace {

void GiveThreadFence(void*) {
  ThreadState& thread = thread_state;
  const FenceIndex fence_plus_one = thread.fence_plus_one;
  thread.fence_plus_one = 0;
  // After a fork or the library's end there is no session to give the fence back to.
  if (g_gate.load(std::memory_order_acquire) != CUDA_SUCCESS) return;
  if (fence_plus_one != 0) session().fences().Give(fence_plus_one - 1, thread.fence_value);
}

}  // namespace

bool SpinForFence(FenceIndex index, uint64_t value, bool blocking) {
  FenceAllocator& fences = session().fences();
  return SpinUntil([&] { return fences.Reached(index, value); },
                   blocking ? session().spin_us() : session().wait_spin_us());
}

Naps::Naps(uint16_t device)
    : software_(session().devices()[device].ptx_only), begin_us_(NowMicroseconds()) {}

uint32_t Naps::Next(bool software, uint32_t last_us, uint64_t waited_us) {
  const uint32_t usual_us = std::min<uint32_t>(last_us + 5, 50);
  return software ? static_cast<uint32_t>(std::clamp<uint64_t>(waited_us / 8, usual_us, 5'000))
                  : usual_us;
}

void Naps::Nap() {
  const uint64_t waited_us = software_ ? NowMicroseconds() - begin_us_ : 0;
  last_us_ = Next(software_, last_us_, waited_us);
  const timespec nap{0, last_us_ * 1000L};
  nanosleep(&nap, nullptr);
}

bool ThreadFence(wire::Signal* signal) {
  ThreadState& thread = thread_state;
  FenceAllocator& fences = session().fences();
  if (thread.fence_plus_one == 0) {
    static ThreadExit release(GiveThreadFence);
    release.Arm();
    const OwnedFence fence = fences.Take();
    if (fence.index == kNoFence) return false;
    thread.fence_plus_one = fence.index + 1;
    thread.fence_value = fence.value;
  }
  *signal = {++thread.fence_value, thread.fence_plus_one - 1, 0};
  return true;
}

CUresult SynchronizeContext(Context& context) {
  const ContextId id = context.id.load(std::memory_order_acquire);
  uint64_t position = 0;
  wire::cuCtxSynchronize args{id, 0, {0, kNoFence, 0}};
  if (ThreadFence(&args.signal)) {
    const CUresult result =
        session().Submit(Op::cuCtxSynchronize, context.device, id, args, {}, &position);
    if (result != CUDA_SUCCESS) return result;
    const uint32_t schedule = context.flags.load(std::memory_order_relaxed) & CU_CTX_SCHED_MASK;
    if (SpinForFence(args.signal.index, args.signal.value,
                     schedule == CU_CTX_SCHED_BLOCKING_SYNC)) {
      RaiseTo(context.complete, position + 1);
      CollectReads();
      session().DrainOutput();
      return session().sticky_error();
    }
  }
  // Waits with a reply slot for the same point. The daemon wakes this thread.
  args.signal = {0, kNoFence, 0};
  const CUresult result = session().Call(Op::cuCtxSynchronize, context.device, id, args);
  if (result == CUDA_SUCCESS) RaiseTo(context.complete, position + 1);
  CollectReads();
  session().DrainOutput();
  const CUresult error = session().sticky_error();
  return error != CUDA_SUCCESS ? error : result;
}

void SynchronizeContexts() {
  objects().contexts.ForEach([](Context& context) {
    if (context.id.load(std::memory_order_acquire) != 0) SynchronizeContext(context);
  });
}

}  // namespace detshare::shim
