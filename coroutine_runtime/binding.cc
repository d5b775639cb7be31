#include "coroutine_runtime/binding.h"

#include <algorithm>

#include "coroutine_runtime/status_cuda.h"
#include "coroutine_runtime/waves.h"

namespace detshare {
namespace {

// The number of dependent kernels that a request or a token of an urgent program is assumed to
// have. Between two of them, blocks of other programs take the SMs again, so each of them waits for
// such blocks to end. Measured on an H200: eight dependent matrix products ended after 0.6 ms
// beside a kernel of 7 ms whose blocks take 70 us, and after 3.6 ms beside a kernel of 4.5 ms whose
// blocks take 0.6 ms.
constexpr uint64_t kUrgentKernels = 64;

}  // namespace

bool DoesNotFitPartition(const absl::Status& status) {
  const int result = CudaResultOf(status);
  return result == kCudaErrorCooperativeLaunchTooLarge || result == kCudaErrorInvalidClusterSize ||
         result == kCudaErrorLaunchOutOfResources;
}

void Binding::Attach(SchedEntity& entity) {
  entity_ = &entity;
  entity_->Update();
  // Before the first operation: objects may be made that bind the session to its group.
  if (preempts_) Settle(entity_->preempts());
}

void Binding::Detach() {
  partition_ = &partition();
  entity_ = nullptr;
}

Partition& Binding::ForLaunch(Kernel& kernel, const LaunchShape& shape,
                              Nanoseconds estimate) const {
  BindFor(kernel);
  Partition* wanted = entity_ != nullptr ? &ForKind(KindOf(kernel, shape, estimate)) : partition_;
  if (preempts_ && entity_ != nullptr && StayFor(kernel)) [[unlikely]]
    wanted = &whole();
  if (BlocksRunTogether(shape) && wanted->sm_count() < device_.properties().sm_count) [[unlikely]]
    return Holding(*wanted, SmsFor(kernel, shape));
  return *wanted;
}

SchedEntity::Kind Binding::KindOf(const Kernel& kernel, const LaunchShape& shape,
                                  Nanoseconds duration) const {
  using Kind = SchedEntity::Kind;
  if (!entity_->MayBeLong(duration)) [[likely]]
    return Kind::kShort;
  const DeviceProperties& properties = device_.properties();
  const uint64_t waves = WavesOf(properties, kernel.info(), shape);
  if (!properties.blocks_by_priority || waves <= kUrgentKernels) return Kind::kLong;
  const Nanoseconds block =
      duration / static_cast<Nanoseconds>(std::min<uint64_t>(waves, INT32_MAX));
  const Nanoseconds delay = block * static_cast<Nanoseconds>(kUrgentKernels);
  const SchedEntity::BoundLimits& limits = entity_->Current();
  if (delay < limits.long_operation) return Kind::kShort;
  return block < limits.yielding_block ? Kind::kYielding : Kind::kLong;
}

Partition& Binding::Holding(Partition& wanted, int sms) const {
  if (entity_ == nullptr || sms <= wanted.sm_count()) return wanted;
  for (Partition* const partition : entity_->assignment().partitions) {
    if (sms <= partition->sm_count()) return *partition;
  }
  return whole();
}

int Binding::SmsFor(Kernel& kernel, const LaunchShape& shape) {
  uint64_t sms = 1;
  // The blocks of a cluster are on at most as many SMs as there are blocks. Only the device knows
  // which SMs it can join to a cluster.
  if (shape.cluster.x != 0) sms = uint64_t{shape.cluster.x} * shape.cluster.y * shape.cluster.z;
  if (shape.cooperative) {
    const OccupancyQuery query{static_cast<int>(shape.block.x * shape.block.y * shape.block.z),
                               shape.dynamic_shared_bytes, 0};
    const absl::StatusOr<int> blocks = kernel.MaxActiveBlocks(query);
    if (!blocks.ok() || *blocks <= 0) return kAllSms;  // the launch returns the error
    const unsigned __int128 grid =
        static_cast<unsigned __int128>(shape.grid.x) * shape.grid.y * shape.grid.z;
    const unsigned __int128 needed = (grid + *blocks - 1) / static_cast<unsigned>(*blocks);
    sms = std::max<uint64_t>(sms, needed > kAllSms ? kAllSms : static_cast<uint64_t>(needed));
  }
  return static_cast<int>(std::min<uint64_t>(sms, kAllSms));
}

}  // namespace detshare
