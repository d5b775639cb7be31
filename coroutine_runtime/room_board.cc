#include "coroutine_runtime/room_board.h"

#include <algorithm>
#include <atomic>

namespace detshare {
namespace {

using policy::Nanoseconds;

// Stores and loads words of the board, all relaxed.
template <typename T, typename V>
void Put(std::atomic<T>& word, V value) {
  word.store(static_cast<T>(value), std::memory_order_relaxed);
}
template <typename T>
T Get(const std::atomic<T>& word) {
  return word.load(std::memory_order_relaxed);
}

// A class that does not exist is none.
policy::TenantClass ClassOf(uint32_t word) {
  return word <= static_cast<uint32_t>(policy::TenantClass::kBatch)
             ? static_cast<policy::TenantClass>(word)
             : policy::TenantClass::kUnset;
}

// Times that the policy may add to without an overflow.
Nanoseconds TimeOf(int64_t word) {
  return std::clamp<int64_t>(word, policy::ResidentMemory::kNever, policy::kForever / 2);
}

// A sum of such sizes does not overflow.
uint64_t BytesOf(uint64_t word) { return std::min<uint64_t>(word, uint64_t{1} << 48); }

}  // namespace

void RoomBoard::Publish(RoomView own, Nanoseconds now) {
  std::erase_if(own.residents, [](const policy::ResidentMemory& one) { return one.movable == 0; });
  std::stable_sort(own.residents.begin(), own.residents.end(),
                   [](const policy::ResidentMemory& a, const policy::ResidentMemory& b) {
                     if (a.blocked != b.blocked) return a.blocked;
                     return a.working_until < b.working_until;
                   });
  for (size_t i = 0; i < own_.residents.size(); ++i) {
    RoomWords::Resident& words = own_.residents[i];
    const policy::ResidentMemory one =
        i < own.residents.size() ? own.residents[i] : policy::ResidentMemory{};
    Put(words.session, one.session);
    Put(words.movable, one.movable);
    Put(words.working_until, one.working_until);
    Put(words.placed_at, one.placed_at);
    Put(words.could_not_go, one.could_not_go);
    Put(words.tenant_class, one.tenant_class);
    Put(words.blocked, one.blocked);
  }
  for (size_t i = 0; i < own_.requests.size(); ++i) {
    RoomWords::Request& words = own_.requests[i];
    const RoomView::Request one = i < own.requests.size() ? own.requests[i] : RoomView::Request{};
    Put(words.session, one.room.session);
    Put(words.bytes, one.room.bytes);
    Put(words.part, one.room.part);
    Put(words.asked_at, one.asked_at);
    Put(words.placed_at, one.room.placed_at);
    Put(words.tenant_class, one.room.tenant_class);
    Put(words.granted, one.granted);
  }
  Put(own_.more_comes, own.more_comes);
  own_.looked_at.store(now, std::memory_order_release);
}

RoomView RoomBoard::Others(Nanoseconds* looked_at) const {
  RoomView view;
  *looked_at = policy::kForever;
  peers_.ForEach([&](uint64_t, const EnginePage& page) {
    const RoomWords& words = page.devices[device_].room;
    *looked_at = std::min<Nanoseconds>(*looked_at, words.looked_at.load(std::memory_order_acquire));
    for (const RoomWords::Resident& one : words.residents) {
      const uint64_t session = Get(one.session);
      if (session == 0) continue;
      view.residents.push_back({.session = session,
                                .tenant_class = ClassOf(Get(one.tenant_class)),
                                .movable = BytesOf(Get(one.movable)),
                                .blocked = Get(one.blocked) != 0,
                                .working_until = TimeOf(Get(one.working_until)),
                                .placed_at = TimeOf(Get(one.placed_at)),
                                .could_not_go = TimeOf(Get(one.could_not_go))});
    }
    for (const RoomWords::Request& one : words.requests) {
      const uint64_t session = Get(one.session);
      if (session == 0) continue;
      RoomView::Request& request = view.requests.emplace_back();
      request.room.session = session;
      request.room.tenant_class = ClassOf(Get(one.tenant_class));
      request.room.bytes = BytesOf(Get(one.bytes));
      request.room.part = BytesOf(Get(one.part));
      request.room.comes_back = request.room.part != 0;
      request.room.placed_at = TimeOf(Get(one.placed_at));
      request.asked_at = TimeOf(Get(one.asked_at));
      request.granted = Get(one.granted) != 0;
    }
    view.more_comes |= Get(words.more_comes) != 0;
  });
  return view;
}

}  // namespace detshare
