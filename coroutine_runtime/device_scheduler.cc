#include "coroutine_runtime/device_scheduler.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "coroutine_runtime/device.h"
#include "coroutine_runtime/device_turn.h"
#include "coroutine_runtime/durations.h"
#include "coroutine_runtime/gpu_coroutine.h"
#include "coroutine_runtime/sched_entity.h"
#include "coroutine_runtime/trace_reference.h"
#include "coroutine_runtime/view_board.h"
#include "coroutine_runtime/yield_allowance.h"
#include "policy/partition_pool.h"
#include "policy/status_macros.h"

namespace detshare {
namespace {

// The number of ended sessions whose events are kept until the next fetch of a trace.
constexpr size_t kMaxEnded = 256;
// When a trace starts, it polls until the device has reached a marker, at most kMaxLooks times. The
// first kLooksAtOnce polls have no pause between them; later ones are kLookPeriod apart.
constexpr std::chrono::microseconds kLookPeriod(5);
constexpr int kMaxLooks = 20'000;
constexpr int kLooksAtOnce = 100;

// How often a process with work looks at the coroutines of others. Their work itself it sees at once.
constexpr policy::Nanoseconds kLookAtOthers = 5 * policy::kMillisecond;

// On devices that cannot preempt.
constexpr policy::Nanoseconds kMaxParked = 10 * policy::kMillisecond;

policy::DeviceShape ShapeOf(const Device& device) {
  const DeviceProperties& properties = device.properties();
  const Preemption& preemption = properties.preemption;
  return {properties.sm_count, std::max(1, properties.sm_group),
          preemption.available ? std::max<policy::Nanoseconds>(1, preemption.latency_ns) : 0};
}

// The name of the partition of the urgent time-slice group.
constexpr char kUrgentPlace[] = "urgent";

// The sum of the weights of the tenants that have work, or of all if none has.
double WeightOfWork(const std::vector<policy::CoroutineView>& views) {
  std::map<std::string, double> all, working;
  for (const policy::CoroutineView& view : views) {
    all[view.tenant->name] = view.tenant->weight;
    if (view.has_work) working[view.tenant->name] = view.tenant->weight;
  }
  double sum = 0;
  for (const auto& [name, weight] : working.empty() ? all : working) sum += weight;
  return sum > 0 ? sum : 1;
}

std::string NameOfRange(const policy::SmRange& range) {
  if (range.whole()) return "all";
  return "sm" + std::to_string(range.first) + "-" + std::to_string(range.first + range.count - 1);
}

SchedEntity::Assignment::Promise PromiseOf(const policy::Tenant& tenant) {
  return {tenant.slo_latency, tenant.slo_ttft, tenant.slo_tpot};
}

// Records a marker on an idle queue of the partition, and waits for it.
absl::StatusOr<TraceReference::Point> ReferenceOn(Device& device, Partition& partition,
                                                  const Clock& clock) {
  TraceReference::Point point;
  DETSHARE_ASSIGN_OR_RETURN(point.marker, device.CreateMarker(/*timed=*/true));
  DETSHARE_ASSIGN_OR_RETURN(std::unique_ptr<Queue> queue, partition.CreateQueue(/*priority=*/0));
  // The driver needs about a millisecond for the first look at a new queue. With this marker as the
  // beginning, all times of the device would seem late by as much. So the second marker is the
  // beginning.
  for (int round = 0; round < 2; ++round) {
    DETSHARE_RETURN_IF_ERROR(queue->Record(*point.marker));
    bool reached = false;
    for (int looks = 0; !reached; ++looks) {
      if (looks == kMaxLooks)
        return absl::UnavailableError(
            "the device did not reach the beginning of the trace within a second");
      if (looks >= kLooksAtOnce) std::this_thread::sleep_for(kLookPeriod);
      DETSHARE_ASSIGN_OR_RETURN(const bool now, device.Reached(*point.marker));
      point.at = clock.NowNanoseconds();
      reached = now;
    }
  }
  return point;
}

// Without preemption, the hardware divides the device between processes by its own slices.
std::unique_ptr<DeviceTurn> TurnOn(Device& device, const DeviceScheduler::Options& options,
                                   const Clock& clock) {
  if (options.page == nullptr || options.device_number >= EnginePage::kMaxDevices ||
      !device.properties().preemption.available)
    return nullptr;
  return std::make_unique<DeviceTurn>(options.page->devices[options.device_number].turn,
                                      *options.peers, options.device_number, clock,
                                      [&device](bool keep) { device.KeepOrdinary(keep); });
}

std::unique_ptr<ViewBoard> ViewsOn(const DeviceTurn* turn,
                                   const DeviceScheduler::Options& options) {
  if (turn == nullptr) return nullptr;
  return std::make_unique<ViewBoard>(options.page->views[options.device_number], *options.peers,
                                     options.device_number);
}

}  // namespace

struct DeviceScheduler::Place {
  policy::SmRange range;
  std::unique_ptr<Partition> owned;  // null for the whole device
  Partition* partition = nullptr;
  std::string name;
};

struct DeviceScheduler::Entry {
  policy::CoroutineId id = 0;
  policy::CoroutineId team = 0;  // as in policy::CoroutineView
  policy::Nanoseconds opened_at = 0;
  policy::Tenant tenant;
  std::unique_ptr<SchedEntity> entity;
  const AddressSpace* space = nullptr;
  policy::Grant grant;  // the one that was published last
  bool followed = false;
  bool takes_turns = false;    // as published
  bool shares_device = false;  // as published
  bool yields = false;         // as published: Assignment::yields_to_processes
  bool preempts = false;       // as published
  YieldAllowance allowance;
  std::shared_ptr<const TraceReference> trace;  // as published
  SchedEntity::Assignment::Promise promise;     // as published
  uint64_t resizes = 0;
};

DeviceScheduler::DeviceScheduler(Device& device, std::unique_ptr<policy::Policy> policy,
                                 std::vector<policy::Tenant> tenants, const Clock& clock,
                                 Options options)
    : device_(device),
      clock_(clock),
      options_(options),
      turn_(TurnOn(device, options, clock)),
      other_views_(ViewsOn(turn_.get(), options)),
      board_(std::make_unique<SchedBoard>()),
      durations_(std::make_unique<DurationTable>(device.properties().sm_count)),
      policy_(std::move(policy)),
      tenants_(std::move(tenants)),
      wake_(clock) {
  board_->turn = turn_.get();
  auto whole = std::make_unique<Place>();
  whole->partition = &device.whole();
  whole->name = NameOfRange({});
  for (const policy::Tenant& tenant : tenants_) gone_.Reserve(tenant.name);
  places_.push_back(std::move(whole));
  ranges_.push_back({});
  if (device.properties().preemption.available) {
    board_->keep_ordinary = [&device](bool keep) { device.KeepOrdinary(keep); };
    board_->share_ordinary = [&device](bool share) { device.ShareOrdinary(share); };
  }
}

absl::StatusOr<std::unique_ptr<DeviceScheduler>> DeviceScheduler::Create(
    Device& device, std::unique_ptr<policy::Policy> policy, std::vector<policy::Tenant> tenants,
    const Clock& clock, Options options) {
  DETSHARE_RETURN_IF_ERROR(policy->Check(tenants));
  std::unique_ptr<DeviceScheduler> scheduler(
      new DeviceScheduler(device, std::move(policy), std::move(tenants), clock, options));
  std::vector<policy::SmRange> missing;
  {
    const MutexLock lock(&scheduler->mutex_);
    missing = scheduler->MissingRanges(*scheduler->policy_, scheduler->tenants_);
  }
  DETSHARE_RETURN_IF_ERROR(scheduler->MakePartitions(missing));
  if (options.migrate_every != 0) DETSHARE_RETURN_IF_ERROR(device.OpenUrgent());
  if (options.own_thread) {
    DeviceScheduler* const self = scheduler.get();
    scheduler->thread_ = std::thread([self] { self->Run(); });
  }
  return scheduler;
}

DeviceScheduler::~DeviceScheduler() {
  if (turn_ != nullptr) device_.ShareWith(nullptr);
  wake_.Stop();
  if (thread_.joinable()) thread_.join();
  std::thread opener;
  {
    const MutexLock lock(&mutex_);
    opener = std::move(opener_);
  }
  if (opener.joinable()) opener.join();
}

void DeviceScheduler::OpenUrgent() {
  if (opening_ != Opening::kPossible) return;
  if (opener_.joinable()) opener_.join();  // it has made its attempt
  opening_ = Opening::kNow;
  opener_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "urgent-group");
    const absl::Status opened = device_.OpenUrgent();
    if (!opened.ok() && options_.not_opened) options_.not_opened(opened);
    {
      const MutexLock lock(&mutex_);
      opening_ = Opening::kOver;
      Decide();
      opened_.SignalAll();
    }
    wake_.WakeNow();
  });
}

void DeviceScheduler::NotePeers() {
  if (turn_ != nullptr) device_.ShareWith([turn = turn_.get()] { return turn->OthersInLine(); });
  wake_.WakeNow();
}

std::vector<policy::SmRange> DeviceScheduler::MissingRanges(
    const policy::Policy& policy, const std::vector<policy::Tenant>& tenants) const {
  const policy::DeviceShape shape = ShapeOf(device_);
  std::vector<policy::SmRange> wanted = policy.Partitions(shape, tenants);
  if (options_.standard_partitions && policy.Watches()) {
    const std::vector<policy::SmRange> standard = policy::StandardPartitions(shape);
    wanted.insert(wanted.end(), standard.begin(), standard.end());
  }
  if (options_.migrate_every != 0 && shape.groups() > 1) {
    const int half = shape.groups() / 2;
    wanted.push_back(shape.Groups(0, half));
    wanted.push_back(shape.Groups(half, shape.groups()));
  }
  std::erase_if(wanted, [this](const policy::SmRange& range) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return range.whole() || std::find(ranges_.begin(), ranges_.end(), range) != ranges_.end();
  });
  return wanted;
}

absl::Status DeviceScheduler::MakePartitions(const std::vector<policy::SmRange>& ranges) {
  for (const policy::SmRange& range : ranges) {
    auto place = std::make_unique<Place>();
    DETSHARE_ASSIGN_OR_RETURN(place->owned, device_.CreatePartition(range.first, range.count));
    place->range = range;
    place->partition = place->owned.get();
    place->name = NameOfRange(range);
    const MutexLock lock(&mutex_);
    // The policy may have named it twice, or another thread has made it meanwhile.
    if (std::find(ranges_.begin(), ranges_.end(), range) != ranges_.end()) continue;
    places_.push_back(std::move(place));
    ranges_.push_back(range);
  }
  return absl::OkStatus();
}

// ---- decisions

const DeviceScheduler::Place& DeviceScheduler::PlaceAt(int index) const {
  // If a policy names a partition that does not exist, it gets the whole device.
  const bool there = index >= 0 && static_cast<size_t>(index) < places_.size();
  return *places_[there ? index : 0];
}

void DeviceScheduler::Publish(Entry& entry, const policy::Grant& grant, bool followed,
                              bool yields) {
  const auto limits = [&](const policy::Limits& from) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    SchedEntity::BoundLimits to;
    to.partition = PlaceAt(from.partition).partition;
    to.long_partition = PlaceAt(from.long_partition).partition;
    to.yielding_partition = PlaceAt(from.yielding_partition).partition;
    to.long_operation = from.long_operation;
    to.yielding_block = from.yielding_block;
    to.window = from.window;
    to.max_throttle = from.max_throttle;
    return to;
  };
  SchedEntity::Assignment assignment;
  assignment.followed = followed;
  assignment.rank = std::clamp(grant.rank, 0, policy::kRanks - 1);
  assignment.urgent = grant.urgent;
  assignment.idle = limits(grant.idle);
  assignment.contended = limits(grant.contended);
  assignment.tail = limits(TailLimits(grant));
  assignment.contention_phase = grant.contention_phase;
  assignment.takes_turns = followed && policy_->TakesTurns(tenants_);
  assignment.turn_group = grant.turn_group;
  assignment.shares_device = followed && turn_ != nullptr && turn_->shared();
  assignment.yields_to_processes = yields;
  assignment.preempts = Preempts(grant);
  if (!device_.properties().preemption.available) assignment.max_parked = kMaxParked;
  assignment.budget = grant.budget;
  for (const int index : grant.prepare) assignment.prepare.push_back(PlaceAt(index).partition);
  for (const auto& place : places_) assignment.partitions.push_back(place->partition);
  std::stable_sort(
      assignment.partitions.begin(), assignment.partitions.end(),
      [](const Partition* a, const Partition* b) { return a->sm_count() < b->sm_count(); });
  assignment.migrate_every = options_.migrate_every;
  if (device_.urgent() != nullptr) assignment.partitions.push_back(device_.urgent());
  assignment.awaited = entry.tenant.tenant_class == policy::TenantClass::kLatency;
  assignment.trace = trace_;
  assignment.promise = PromiseOf(entry.tenant);
  if (PlaceAt(grant.idle.partition).partition != PlaceAt(entry.grant.idle.partition).partition)
    ++entry.resizes;
  if (trace_ != nullptr && !followed) {
    // A trace sees only work that is followed. No limit throttles this work.
    assignment.followed = true;
    for (SchedEntity::BoundLimits* limits :
         {&assignment.idle, &assignment.contended, &assignment.tail})
      limits->window = policy::kForever;
    assignment.budget = policy::kForever;
  }
  entry.trace = trace_;
  entry.takes_turns = assignment.takes_turns;
  entry.shares_device = assignment.shares_device;
  entry.yields = assignment.yields_to_processes;
  entry.preempts = assignment.preempts;
  entry.promise = assignment.promise;
  entry.entity->Publish(std::move(assignment));
  entry.grant = grant;
  entry.followed = followed;
}

void DeviceScheduler::Decide() {
  std::vector<policy::CoroutineView> views;
  std::vector<policy::Nanoseconds> yielded;  // time in all
  int working = 0;                           // a throttled coroutine has work
  for (const auto& entry : entries_) {
    const SchedEntityReport report = entry->entity->report();
    policy::CoroutineView& view = views.emplace_back();
    view.id = entry->id;
    view.team = entry->team;
    view.tenant = &entry->tenant;
    view.opened_at = entry->opened_at;
    view.has_work = report.has_work;
    view.changed_at = report.changed_at;
    view.in_flight = report.in_flight;
    view.in_flight_since = report.in_flight_since;
    view.throttled_since = report.throttled_since;
    view.preempts = device_.urgent() != nullptr && !report.bound_ordinary;
    view.always_preempts = report.bound_urgent;
    view.device_time = report.device_time;
    view.longest_operation = report.longest_operation;
    view.typical_operation = report.typical_operation;
    view.typical_burst = report.typical_burst;
    view.typical_gap = report.typical_gap;
    view.memory_bound = report.memory_bound;
    view.tokens = report.tokens;
    working += report.has_work;
    yielded.push_back(report.yielded);
  }
  policy::Snapshot snapshot;
  snapshot.now = clock_.NowNanoseconds();
  snapshot.device = ShapeOf(device_);
  snapshot.partitions = ranges_;
  snapshot.tenants = tenants_;
  snapshot.coroutines = views;
  const bool shares = turn_ != nullptr && turn_->shared();
  if (shares) snapshot.other_engines = other_views_->Others();
  policy::Decision decision = policy_->Decide(snapshot);
  decision.grants.resize(entries_.size());
  const bool takes_turns = policy_->TakesTurns(tenants_);
  const bool followed = takes_turns || shares || (policy_->Watches() && entries_.size() > 1);
  if (shares) {
    turn_->SetWeight(WeightOfWork(views));
    turn_->SetLength(policy_->EngineTurn());
    other_views_->Publish(views, decision.grants);
  }
  const bool closed = device_.properties().preemption.available && device_.urgent() == nullptr;
  for (size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = *entries_[i];
    const policy::Grant& grant = decision.grants[i];
    if (closed && grant.urgent) OpenUrgent();
    const bool others_first =
        std::any_of(snapshot.other_engines.begin(), snapshot.other_engines.end(),
                    [&](const policy::OtherEngineView& other) {
                      return GoesFirst(other, views[i], grant.rank, grant.urgent);
                    });
    const bool yields =
        entry.allowance.Look(snapshot.now, yielded[i]) && others_first && shares && followed;
    // Each decision gives a new budget, even if it is as large as the previous one.
    if (grant == entry.grant && followed == entry.followed && trace_ == entry.trace &&
        takes_turns == entry.takes_turns && shares == entry.shares_device &&
        yields == entry.yields && entry.promise == PromiseOf(entry.tenant) &&
        entry.preempts == Preempts(grant) && grant.budget == policy::kForever) {
      continue;
    }
    Publish(entry, grant, followed, yields);
  }
  ask_at_ = followed && working > 0 ? decision.ask_again_at : policy::kForever;
  if (shares && policy_->Watches() && working > 0)
    ask_at_ = std::min(ask_at_, snapshot.now + kLookAtOthers);
}

policy::Tenant DeviceScheduler::TenantOf(const std::string& name) const {
  policy::Tenant tenant;
  tenant.name = name;
  for (const policy::Tenant& configured : tenants_) {
    if (configured.name == name) tenant = configured;
  }
  return tenant;
}

void DeviceScheduler::Cooperate(policy::CoroutineId one, policy::CoroutineId other) {
  {
    const MutexLock lock(&mutex_);
    const auto find = [&](policy::CoroutineId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      const auto found = std::find_if(entries_.begin(), entries_.end(),
                                      [id](const auto& entry) { return entry->id == id; });
      return found != entries_.end() ? found->get() : nullptr;
    };
    Entry* const first = find(one);
    Entry* const second = find(other);
    if (first == nullptr || second == nullptr) return;
    const auto team_of = [](const Entry& entry) { return entry.team != 0 ? entry.team : entry.id; };
    const policy::CoroutineId team = team_of(*first), joins = team_of(*second);
    if (team == joins) return;
    first->team = team;
    second->team = team;
    for (const auto& entry : entries_) {
      if (entry->team == joins) entry->team = team;
    }
  }
  wake_.WakeNow();
}

void DeviceScheduler::Add(policy::CoroutineId session, const std::string& tenant,
                          GpuCoroutine& coroutine) {
  {
    const MutexLock lock(&mutex_);
    auto entry = std::make_unique<Entry>();
    entry->id = session;
    entry->opened_at = clock_.NowNanoseconds();
    entry->tenant = TenantOf(tenant);
    entry->space = &coroutine.space();
    entry->entity =
        std::make_unique<SchedEntity>(*board_, *durations_, clock_, [this](SchedEntity::News news) {
          news == SchedEntity::News::kWork ? wake_.Wake() : wake_.WakeNow();
        });
    if (trace_ != nullptr) entry->entity->trace().Start();
    Publish(*entry, {}, /*followed=*/false, /*yields=*/false);
    SchedEntity& entity = *entry->entity;
    gone_.Begin(tenant, clock_.NowNanoseconds());
    Entry& added = *entries_.emplace_back(std::move(entry));
    if (opening_ == Opening::kOver) opening_ = Opening::kPossible;
    Decide();
    while (added.grant.urgent && opening_ == Opening::kNow) opened_.Wait(&mutex_);
    added.resizes = 0;  // the first partition is not a resize
    coroutine.Attach(entity);
  }
  wake_.WakeNow();  // Decide() may have changed the time until which the thread sleeps
}

void DeviceScheduler::Remove(policy::CoroutineId session, GpuCoroutine& coroutine) {
  coroutine.Detach();
  {
    const MutexLock lock(&mutex_);
    for (const auto& entry : entries_) {
      if (entry->id != session) continue;
      if (trace_ != nullptr && ended_.size() < kMaxEnded)
        ended_.push_back({session, entry->entity->trace().Fetch()});
      gone_.At(entry->tenant.name) += TotalsOf(*entry);
      gone_.End(entry->tenant.name, clock_.NowNanoseconds());
    }
    std::erase_if(entries_, [session](const auto& entry) { return entry->id == session; });
    Decide();
  }
  wake_.WakeNow();
}

absl::Status DeviceScheduler::SetPolicy(std::unique_ptr<policy::Policy> policy) {
  return Replace(std::move(policy), std::nullopt);
}

absl::Status DeviceScheduler::SetTenants(std::vector<policy::Tenant> tenants) {
  return Replace(/*policy=*/nullptr, std::move(tenants));
}

absl::Status DeviceScheduler::SetPolicyAndTenants(std::unique_ptr<policy::Policy> policy,
                                                  std::vector<policy::Tenant> tenants) {
  return Replace(std::move(policy), std::move(tenants));
}

absl::Status DeviceScheduler::Replace(std::unique_ptr<policy::Policy> policy,
                                      std::optional<std::vector<policy::Tenant>> tenants) {
  for (;;) {
    std::vector<policy::SmRange> missing;
    {
      const MutexLock lock(&mutex_);
      const policy::Policy& next = policy != nullptr ? *policy : *policy_;
      const std::vector<policy::Tenant>& next_tenants = tenants.has_value() ? *tenants : tenants_;
      DETSHARE_RETURN_IF_ERROR(next.Check(next_tenants));
      missing = MissingRanges(next, next_tenants);
      if (missing.empty()) {
        if (policy != nullptr) policy_ = std::move(policy);
        if (tenants.has_value()) TakeTenants(*std::move(tenants));
        Decide();
        break;
      }
    }
    DETSHARE_RETURN_IF_ERROR(MakePartitions(missing));
  }
  wake_.WakeNow();
  return absl::OkStatus();
}

void DeviceScheduler::TakeTenants(std::vector<policy::Tenant> tenants) {
  tenants_ = std::move(tenants);
  for (const policy::Tenant& tenant : tenants_) gone_.Reserve(tenant.name);
  for (const auto& entry : entries_) entry->tenant = TenantOf(entry->tenant.name);
}

// ---- traces

absl::Status DeviceScheduler::StartTrace() {
  auto reference = std::make_shared<TraceReference>();
  DETSHARE_ASSIGN_OR_RETURN(reference->ordinary, ReferenceOn(device_, device_.whole(), clock_));
  // Devices measure no time between markers of two groups, or less precisely.
  if (device_.urgent() != nullptr) {
    DETSHARE_ASSIGN_OR_RETURN(reference->urgent, ReferenceOn(device_, *device_.urgent(), clock_));
  }
  {
    const MutexLock lock(&mutex_);
    trace_ = std::move(reference);
    ended_.clear();
    for (const auto& entry : entries_) entry->entity->trace().Start();
    Decide();
  }
  wake_.WakeNow();
  return absl::OkStatus();
}

void DeviceScheduler::StopTrace() {
  {
    const MutexLock lock(&mutex_);
    trace_ = nullptr;
    for (const auto& entry : entries_) entry->entity->trace().Stop();
    Decide();
  }
  wake_.WakeNow();
}

std::vector<DeviceScheduler::Traced> DeviceScheduler::FetchTrace() {
  const MutexLock lock(&mutex_);
  std::vector<Traced> traced = std::exchange(ended_, {});
  for (const auto& entry : entries_) traced.push_back({entry->id, entry->entity->trace().Fetch()});
  return traced;
}

// ---- the thread

bool DeviceScheduler::AskIfDue() {
  const bool news = wake_.Take();
  const MutexLock lock(&mutex_);
  if (!news && clock_.NowNanoseconds() < ask_at_) return false;
  Decide();
  return true;
}

void DeviceScheduler::Run() {
  pthread_setname_np(pthread_self(), "scheduler");
  for (;;) {
    policy::Nanoseconds wait = policy::kForever;
    {
      const MutexLock lock(&mutex_);
      if (ask_at_ != policy::kForever) wait = ask_at_ - clock_.NowNanoseconds();
    }
    if (!wake_.Wait(wait)) return;
    AskIfDue();
  }
}

// ---- reports

bool DeviceScheduler::Preempts(const policy::Grant& grant) const {
  return grant.urgent && device_.urgent() != nullptr;
}

bool DeviceScheduler::Preempts(const Entry& entry) const {
  if (device_.urgent() == nullptr) return false;
  if (entry.space->bound()) return entry.space->urgent();
  return entry.preempts;
}

const DeviceScheduler::Place* DeviceScheduler::PlaceOf(const Partition* partition) const {
  for (const auto& place : places_) {
    if (place->partition == partition) return place.get();
  }
  return nullptr;
}

bool DeviceScheduler::BesideNative() const {
  return board_->native_until.load(std::memory_order_relaxed) >= clock_.NowNanoseconds();
}

std::vector<PartitionView> DeviceScheduler::Partitions() const {
  std::vector<PartitionView> views;
  const MutexLock lock(&mutex_);
  for (const auto& place : places_) {
    PartitionView view;
    view.name = place->name;
    view.first_sm = place->partition->first_sm();
    view.sm_count = place->partition->sm_count();
    view.sessions = static_cast<int>(std::count_if(
        entries_.begin(), entries_.end(),
        [&](const auto& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
          return !Preempts(*entry) && &PlaceAt(entry->grant.idle.partition) == place.get();
        }));
    views.push_back(std::move(view));
  }
  if (device_.urgent() != nullptr) {
    views.push_back({kUrgentPlace, 0, device_.urgent()->sm_count(),
                     static_cast<int>(std::count_if(
                         entries_.begin(), entries_.end(),
                         [&](const auto& entry)
                             ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return Preempts(*entry); }))});
  }
  return views;
}

WorkTotals DeviceScheduler::TotalsOf(const Entry& entry) {
  WorkTotals totals = entry.entity->totals();
  totals.resizes = entry.resizes;
  return totals;
}

std::map<std::string, DeviceScheduler::TenantTotals> DeviceScheduler::Totals() const {
  const MutexLock lock(&mutex_);
  std::map<std::string, TenantTotals> all;
  for (const auto& [name, work] : gone_.all()) all[name] = {TenantOf(name), work};
  for (const auto& entry : entries_)
    all[gone_.NameFor(entry->tenant.name)].work += TotalsOf(*entry);
  return all;
}

policy::Tenant DeviceScheduler::SettingsOf(const std::string& tenant) const {
  const MutexLock lock(&mutex_);
  return TenantOf(tenant);
}

bool DeviceScheduler::StateOf(policy::CoroutineId session, CoroutineState* state) const {
  const MutexLock lock(&mutex_);
  for (const auto& entry : entries_) {
    if (entry->id != session) continue;
    state->tenant = entry->tenant;
    state->followed = entry->followed;
    state->bound = device_.properties().preemption.available && entry->space->bound();
    state->figures = entry->entity->report();
    state->bursts = entry->entity->bursts().counts();
    // The partition in use depends on the limits at present. A session that has not run yet shows
    // the partition of its idle limits.
    if (Preempts(*entry)) {
      state->partition = kUrgentPlace;
      state->first_sm = 0;
      state->sm_count = device_.urgent()->sm_count();
      return true;
    }
    const Place* place = entry->followed ? PlaceOf(state->figures.partition) : nullptr;
    if (place == nullptr) place = &PlaceAt(entry->grant.idle.partition);
    state->partition = place->name;
    state->first_sm = place->partition->first_sm();
    state->sm_count = place->partition->sm_count();
    return true;
  }
  return false;
}

}  // namespace detshare
