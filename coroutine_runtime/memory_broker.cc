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
// How often a process with a request wakes the others.
constexpr Nanoseconds kWakeInterval = 20 * kMillisecond;
// A process that has not looked for so long is stopped, or hostile.
constexpr Nanoseconds kLookTimeout = 500 * kMillisecond;

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
  policy::RoomRequest AsRequest() const {
    return {account.session_, account.tenant_class_, bytes, comes_back(), account.placed_at_, part};
  }
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

void MemoryBroker::Look() {
  const MutexLock lock(&mutex_);
  if (clock_.NowNanoseconds() - looked_at_ >= kLookInterval) Advance();
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

policy::ResidentMemory MemoryBroker::ResidentOf(const Account& account, Nanoseconds now) const {
  const Nanoseconds idle_since = account.idle_since_.load(std::memory_order_relaxed);
  const bool works = idle_since == 0 || account.memory_.space().Busy();
  return {.session = account.session_,
          .tenant_class = account.tenant_class_,
          .movable = account.memory_.movable(),
          .blocked = account.blocked_.load(std::memory_order_relaxed),
          .working_until = works ? now : idle_since,
          .placed_at = account.placed_at_,
          .could_not_go = account.could_not_go_};
}

bool MemoryBroker::Overtakes(Nanoseconds now) {
  if (line_.empty()) return false;
  if (now - line_.front()->asked_at >= kOvertakeTimeout) overtakes_until_ = now + kOvertakePeriod;
  return now < overtakes_until_;
}

bool MemoryBroker::LeavesOthersAlone(Nanoseconds now) {
  if (line_.empty()) return false;
  const Ticket& first = *line_.front();
  const Nanoseconds limit = kForeignLimit + static_cast<Nanoseconds>(first.bytes >> 30) * kSecond;
  if (now - std::max(first.asked_at, leaves_alone_until_) >= limit)
    leaves_alone_until_ = now + parameters_.refusal;
  return now < leaves_alone_until_;
}

void MemoryBroker::Await(const std::vector<ForeignVictim>& victims, Nanoseconds now) {
  for (auto& one : awaited_) {
    const bool victim = std::any_of(victims.begin(), victims.end(),
                                    [&](const auto& asked) { return asked.session == one.first; });
    if (!victim) one.second.since = 0;
  }
  std::erase_if(awaited_, [&](const auto& one) {
    return one.second.since == 0 && now >= one.second.could_not_go + parameters_.refusal;
  });
  for (const ForeignVictim& victim : victims) {
    Awaited& awaited = awaited_[victim.session];
    const bool begins = awaited.since == 0;
    const uint64_t went = awaited.movable - std::min(awaited.movable, victim.movable);
    if (begins || (went != 0 && went >= awaited.enough)) {
      awaited.since = now;
      awaited.movable = victim.movable;
      awaited.enough = std::min(victim.bytes, parameters_.min_bytes);
    } else if (now - awaited.since >= kForeignTimeout) {
      awaited.since = 0;
      awaited.could_not_go = now;
    }
  }
}

void MemoryBroker::Advance() {
  const Nanoseconds now = clock_.NowNanoseconds();
  looked_at_ = now;
  Decide(now);
  if (board_ == nullptr) return;
  Publish(now);
  if (line_.empty() || now - woken_at_ < kWakeInterval) return;
  woken_at_ = now;
  board_->WakeOthers();
}

void MemoryBroker::Publish(Nanoseconds now) {
  RoomView own;
  const auto request = [](const Ticket& ticket, bool granted) {
    return RoomView::Request{ticket.AsRequest(), ticket.asked_at, granted};
  };
  if (granted_ != nullptr) own.requests.push_back(request(*granted_, true));
  for (const Ticket* ticket : line_) own.requests.push_back(request(*ticket, false));
  for (const Account* account : accounts_) {
    own.more_comes |= account->leaving_ || account->ordered();
    if (!account->leaving_) own.residents.push_back(ResidentOf(*account, now));
  }
  board_->Publish(std::move(own), now);
}

void MemoryBroker::Decide(Nanoseconds now) {
  if (granted_ != nullptr) return;
  Nanoseconds others_looked_at = policy::kForever;
  RoomView others;
  if (board_ != nullptr) others = board_->Others(&others_looked_at);
  if (Overtakes(now)) others.requests.clear();
  const bool leaves_alone = board_ != nullptr && LeavesOthersAlone(now);
  if (leaves_alone) others.residents.clear();
  const auto granted = [](const RoomView::Request& request) { return request.granted; };
  const bool granted_elsewhere =
      std::any_of(others.requests.begin(), others.requests.end(), granted);
  if (line_.empty() && others.requests.empty()) return;
  if (granted_elsewhere) return;
  WithdrawOldOrders(now);
  const auto ordered = [](const Account* account) { return account->ordered(); };
  if (std::any_of(accounts_.begin(), accounts_.end(), ordered)) return;

  std::vector<policy::ResidentMemory> residents;
  std::vector<Account*> resident_accounts;
  for (Account* account : accounts_) {
    if (account->leaving_) continue;
    resident_accounts.push_back(account);
    residents.push_back(ResidentOf(*account, now));
  }
  const bool more_comes = others.more_comes || resident_accounts.size() != accounts_.size();
  for (policy::ResidentMemory& resident : others.residents) {
    const auto awaited = awaited_.find(resident.session);
    if (awaited != awaited_.end())
      resident.could_not_go = std::max(resident.could_not_go, awaited->second.could_not_go);
    residents.push_back(resident);
  }

  struct Waiting {
    Nanoseconds asked_at = 0;
    policy::RoomRequest request;
    Ticket* ticket = nullptr;  // null: of another process
  };
  std::vector<Waiting> line;
  for (Ticket* ticket : line_) line.push_back({ticket->asked_at, ticket->AsRequest(), ticket});
  for (const RoomView::Request& request : others.requests)
    line.push_back({request.asked_at, request.room, nullptr});
  if (!others.requests.empty()) {
    // All processes have the requests in the same order.
    std::sort(line.begin(), line.end(), [](const Waiting& a, const Waiting& b) {
      return std::make_pair(a.asked_at, a.request.session) <
             std::make_pair(b.asked_at, b.request.session);
    });
  }
  std::vector<policy::RoomRequest> requests;
  for (const Waiting& waiting : line) requests.push_back(waiting.request);

  const policy::EvictionDecision decision = policy::Evict(
      {now, device_.memory().free, store_.limit(), store_.used_by_all(), residents, requests},
      parameters_);
  Ticket* const served = decision.request >= 0 ? line[decision.request].ticket : nullptr;
  // `line` refers to tickets that Resolve() removes from line_ only.
  std::vector<Ticket*> refused;
  for (const size_t index : decision.hopeless) {
    Ticket* const ticket = line[index].ticket;
    if (ticket == nullptr || ticket->comes_back() || more_comes) continue;
    // Others may have it, or have not said yet what they have.
    if (leaves_alone) continue;
    if (others_looked_at < ticket->asked_at && now - ticket->asked_at < kLookTimeout) continue;
    refused.push_back(ticket);
  }
  for (Ticket* ticket : line_) {
    const bool late = !ticket->comes_back() && now - ticket->asked_at >= kAskTimeout;
    if (late && std::find(refused.begin(), refused.end(), ticket) == refused.end())
      refused.push_back(ticket);
  }
  for (Ticket* ticket : refused) {
    if (ticket != served) Resolve(*ticket, RoomTicket::kRefused);
  }
  if (decision.request < 0) return;
  if (served != nullptr && decision.victims.empty()) return Resolve(*served, RoomTicket::kGranted);
  if (served != nullptr) served->others_went = true;
  std::vector<ForeignVictim> awaited;
  for (const auto& victim : decision.victims) {
    if (victim.resident >= resident_accounts.size()) {
      const policy::ResidentMemory& resident = residents[victim.resident];
      awaited.push_back({resident.session, resident.movable, victim.bytes});
      continue;
    }
    Account* const account = resident_accounts[victim.resident];
    account->ordered_at_ = now;
    account->ordered_.store(victim.bytes, std::memory_order_relaxed);
    account->attend_();
  }
  if (served != nullptr) Await(awaited, now);
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
