#include "coroutine_runtime/memory_broker.h"

#include <algorithm>
#include <utility>

namespace detshare {
namespace {

using policy::kMillisecond;
using policy::kSecond;
using policy::Nanoseconds;

constexpr Nanoseconds kLookInterval = kMillisecond;
// A session that has not begun to carry out its order after this time is busy with a long
// operation. The broker withdraws the order.
constexpr Nanoseconds kBeginTimeout = 2 * kSecond;
// A request for new memory that has waited this long is refused.
constexpr Nanoseconds kAskTimeout = 30 * kSecond;

}  // namespace

class MemoryBroker::Ticket final : public RoomTicket {
 public:
  Ticket(Account& account, uint64_t bytes, uint64_t part)
      : account(account),
        bytes(bytes),
        part(part),
        asked_at(account.broker_.clock_.NowNanoseconds()) {}
  ~Ticket() override {
    MemoryBroker& broker = account.broker_;
    const MutexLock lock(&broker.mutex_);
    if (state_.load(std::memory_order_relaxed) == kWaiting) {
      std::erase(broker.line_, this);
      account.waiting_.fetch_sub(1, std::memory_order_relaxed);
    }
    if (broker.granted_ == this) broker.granted_ = nullptr;
    broker.Advance();
  }
  void Set(State state) {
    account.waiting_.fetch_sub(1, std::memory_order_relaxed);
    state_.store(state, std::memory_order_release);
  }

  Account& account;
  const uint64_t bytes;
  const uint64_t part;
  const Nanoseconds asked_at;
  bool comes_back() const { return part != 0; }
  bool others_went = false;
};

// ---- the line

std::unique_ptr<MemoryBroker::Account> MemoryBroker::Open(uint64_t session,
                                                          policy::TenantClass tenant_class,
                                                          DeviceMemory& memory,
                                                          std::function<void()> attend) {
  std::unique_ptr<Account> account(
      new Account(*this, session, tenant_class, memory, std::move(attend)));
  const MutexLock lock(&mutex_);
  accounts_.push_back(account.get());
  return account;
}

void MemoryBroker::Resolve(Ticket& ticket, RoomTicket::State state) {
  std::erase(line_, &ticket);
  if (state == RoomTicket::kGranted) {
    granted_ = &ticket;
    if (ticket.others_went) ticket.account.placed_at_ = clock_.NowNanoseconds();
  }
  ticket.Set(state);
}

void MemoryBroker::WithdrawOldOrders(Nanoseconds now) {
  for (Account* account : accounts_) {
    if (!account->ordered() || account->moving_ || now - account->ordered_at_ < kBeginTimeout)
      continue;
    account->ordered_.store(0, std::memory_order_relaxed);
    account->could_not_go_ = now;
  }
}

void MemoryBroker::Advance() {
  const Nanoseconds now = clock_.NowNanoseconds();
  looked_at_ = now;
  if (line_.empty() || granted_ != nullptr) return;
  WithdrawOldOrders(now);
  const auto ordered = [](const Account* account) { return account->ordered(); };
  if (std::any_of(accounts_.begin(), accounts_.end(), ordered)) return;

  std::vector<policy::ResidentMemory> residents;
  std::vector<Account*> resident_accounts;
  for (Account* account : accounts_) {
    if (account->leaving_) continue;
    resident_accounts.push_back(account);
    policy::ResidentMemory& resident = residents.emplace_back();
    resident.session = account->session_;
    resident.tenant_class = account->tenant_class_;
    resident.movable = account->memory_.movable();
    resident.blocked = account->blocked_.load(std::memory_order_relaxed);
    const Nanoseconds idle_since = account->idle_since_.load(std::memory_order_relaxed);
    resident.working_until = idle_since == 0 || account->memory_.space().Busy() ? now : idle_since;
    resident.placed_at = account->placed_at_;
    resident.could_not_go = account->could_not_go_;
  }
  std::vector<policy::RoomRequest> requests;
  for (const Ticket* ticket : line_) {
    requests.push_back({ticket->account.session_, ticket->account.tenant_class_, ticket->bytes,
                        ticket->comes_back(), ticket->account.placed_at_, ticket->part});
  }
  const policy::EvictionDecision decision = policy::Evict(
      {now, device_.memory().free, store_.limit(), store_.used(), residents, requests},
      parameters_);
  // The decision's positions refer to the line as it is here, so Resolve() is called later.
  std::vector<Ticket*> refused;
  const bool more_comes = resident_accounts.size() != accounts_.size();
  for (const size_t index : decision.hopeless) {
    if (!line_[index]->comes_back() && !more_comes) refused.push_back(line_[index]);
  }
  for (Ticket* ticket : line_) {
    const bool late = !ticket->comes_back() && now - ticket->asked_at >= kAskTimeout;
    if (late && std::find(refused.begin(), refused.end(), ticket) == refused.end())
      refused.push_back(ticket);
  }
  Ticket* const served = decision.request >= 0 ? line_[decision.request] : nullptr;
  for (Ticket* ticket : refused) {
    if (ticket != served) Resolve(*ticket, RoomTicket::kRefused);
  }
  if (served == nullptr) return;
  if (decision.victims.empty()) return Resolve(*served, RoomTicket::kGranted);
  served->others_went = true;
  for (const auto& victim : decision.victims) {
    Account* const account = resident_accounts[victim.resident];
    account->ordered_at_ = now;
    account->ordered_.store(victim.bytes, std::memory_order_relaxed);
    account->attend_();
  }
}

// ---- one session

void MemoryBroker::Account::Leave() {
  const MutexLock lock(&broker_.mutex_);
  leaving_ = true;
  moving_ = false;
  ordered_.store(0, std::memory_order_relaxed);
}

MemoryBroker::Account::~Account() {
  const MutexLock lock(&broker_.mutex_);
  std::erase(broker_.accounts_, this);
  broker_.Advance();
}

std::unique_ptr<RoomTicket> MemoryBroker::Account::Ask(uint64_t bytes, uint64_t part) {
  auto ticket = std::make_unique<Ticket>(*this, bytes, part);
  const MutexLock lock(&broker_.mutex_);
  waiting_.fetch_add(1, std::memory_order_relaxed);
  broker_.line_.push_back(ticket.get());
  broker_.Advance();
  if (ticket->state().load(std::memory_order_relaxed) == RoomTicket::kWaiting) attend_();
  return ticket;
}

std::unique_ptr<RoomTicket> MemoryBroker::Account::Ask(uint64_t bytes) {
  return Ask(bytes, /*part=*/0);
}

std::unique_ptr<RoomTicket> MemoryBroker::Account::AskToReturn(uint64_t more) {
  return Ask(memory_.out() + more, memory_.smallest_out() + more);
}

void MemoryBroker::Account::Look() {
  const MutexLock lock(&broker_.mutex_);
  if (broker_.clock_.NowNanoseconds() - broker_.looked_at_ >= kLookInterval) broker_.Advance();
}

uint64_t MemoryBroker::Account::Begin() {
  const MutexLock lock(&broker_.mutex_);
  moving_ = ordered();
  return ordered_.load(std::memory_order_relaxed);
}

void MemoryBroker::Account::End(bool went) {
  const MutexLock lock(&broker_.mutex_);
  moving_ = false;
  ordered_.store(0, std::memory_order_relaxed);
  if (!went) could_not_go_ = broker_.clock_.NowNanoseconds();
  broker_.Advance();
}

absl::StatusOr<uint64_t> MemoryBroker::Account::MoveOut(uint64_t bytes,
                                                        const std::atomic<bool>& stop) {
  const Nanoseconds begin = broker_.clock_.NowNanoseconds();
  const absl::StatusOr<uint64_t> went =
      memory_.MoveOut(bytes, broker_.store_, [&](absl::Span<const MovePiece> pieces) {
        return broker_.mover_.Move(memory_.space(), MemoryMover::Direction::kToHost, pieces, stop);
      });
  if (!went.ok()) return went;
  bytes_out_.fetch_add(*went, std::memory_order_relaxed);
  moves_.fetch_add(1, std::memory_order_relaxed);
  nanoseconds_.fetch_add(broker_.clock_.NowNanoseconds() - begin, std::memory_order_relaxed);
  return went;
}

absl::StatusOr<uint64_t> MemoryBroker::Account::MoveIn(const std::atomic<bool>& stop) {
  const Nanoseconds begin = broker_.clock_.NowNanoseconds();
  const absl::StatusOr<uint64_t> back = memory_.MoveIn([&](absl::Span<const MovePiece> pieces) {
    return broker_.mover_.Move(memory_.space(), MemoryMover::Direction::kToDevice, pieces, stop);
  });
  if (!back.ok()) return back;
  bytes_in_.fetch_add(*back, std::memory_order_relaxed);
  moves_.fetch_add(1, std::memory_order_relaxed);
  nanoseconds_.fetch_add(broker_.clock_.NowNanoseconds() - begin, std::memory_order_relaxed);
  return back;
}

MemoryBroker::Account::Counters MemoryBroker::Account::counters() const {
  return {memory_.out(), bytes_out_.load(std::memory_order_relaxed),
          bytes_in_.load(std::memory_order_relaxed), moves_.load(std::memory_order_relaxed),
          nanoseconds_.load(std::memory_order_relaxed)};
}

}  // namespace detshare
