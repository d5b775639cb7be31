// What the processes that share a host's devices tell each other through shared memory.
//
// Each process has one page, which only it can change. The others read it at any time. A reader
// takes nothing for granted: a hostile process may write anything into its own page.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace detshare {

// The words by which processes take turns on a device (device_turn.h).
struct alignas(128) TurnWords {
  // When the process began to want the device, in nanoseconds of CLOCK_MONOTONIC; 0: it does not.
  // Sequentially consistent, as the bakery algorithm needs it. It also publishes that the work of
  // the turn before is complete.
  std::atomic<uint64_t> ticket{0};
  // Not 0 while the process draws a ticket. Sequentially consistent.
  std::atomic<uint32_t> draws{0};
  // Not 0 while the process has work in the hardware beyond its turn, or without one. Sequentially
  // consistent: for work beyond its turn it is stored before the next ticket.
  std::atomic<uint32_t> overruns{0};
  // In thousandths of a usual tenant's. Relaxed: a reader that sees a change late takes a turn of the
  // earlier length.
  std::atomic<uint32_t> weight{1000};
  // How long the process's latest turn took, in microseconds, if it gave the turn up early; 0: it did
  // not. Relaxed, as the weight.
  std::atomic<uint32_t> early{0};
  // As SchedBoard::busy and SchedBoard::urgent. Relaxed, as there.
  std::atomic<uint64_t> busy{0};
  std::atomic<int32_t> urgent{0};
  // As `busy`, of the work that preempts and is not throttled. Relaxed, as there.
  std::atomic<uint64_t> preempting{0};
};
static_assert(sizeof(TurnWords) == 128 && std::atomic<uint64_t>::is_always_lock_free);

// The words by which a process with no room on a device finds memory of others that can leave it
// (room_board.h). Relaxed: readers estimate from them, and whoever moves memory checks for itself.
struct alignas(128) RoomWords {
  static constexpr size_t kMaxResidents = 16, kMaxRequests = 8;
  // One session with memory on the device; policy::ResidentMemory says what the words mean. No
  // session: 0.
  struct Resident {
    std::atomic<uint64_t> session{0}, movable{0};
    std::atomic<int64_t> working_until{0}, placed_at{0}, could_not_go{0};
    std::atomic<uint32_t> tenant_class{0}, blocked{0};
  };
  // One request for room, as policy::RoomRequest. No session: 0.
  struct Request {
    std::atomic<uint64_t> session{0}, bytes{0}, part{0};
    std::atomic<int64_t> asked_at{0}, placed_at{0};
    std::atomic<uint32_t> tenant_class{0}, granted{0};
  };
  std::array<Resident, kMaxResidents> residents;
  std::array<Request, kMaxRequests> requests;
  // When the process last wrote these words, in nanoseconds of CLOCK_MONOTONIC. Release: what it
  // wrote is visible to a reader that sees the time.
  std::atomic<int64_t> looked_at{0};
  // Not 0 while memory will become free: of an ending session, or of one that is being evicted. That
  // one's memory counts on the card and on the host until it has moved.
  std::atomic<uint32_t> more_comes{0};
};

// The words by which a process that places a session on some of the devices knows what the others have
// on each (server/sessions/load_board.h). Relaxed: a placement only estimates from them.
struct alignas(128) LoadWords {
  static constexpr size_t kMaxSessions = 32;
  enum State : uint32_t { kNone, kThere, kHasObjective };
  // policy::PlacementRequest says what the words mean.
  struct Session {
    std::atomic<uint32_t> state{kNone};
    std::atomic<int32_t> memory_bound{-1}, load{-1};  // thousandths; below 0: not known
  };
  std::array<Session, kMaxSessions> sessions;
  // Bytes that tenants were promised and do not use yet.
  std::atomic<uint64_t> promised{0};
  // When the process last placed a session, in nanoseconds of CLOCK_MONOTONIC; 0: never.
  std::atomic<int64_t> placed_at{0};
};

// The words by which the policy of a process sees the coroutines of others (view_board.h). Relaxed: a
// reader may see parts of two states, and takes no value for granted.
struct alignas(128) ViewWords {
  static constexpr size_t kMaxCoroutines = 16, kFigures = 24;
  struct Coroutine {
    std::atomic<uint64_t> id{0};  // 0: none
    std::atomic<uint32_t> flags{0}, rank{0};
    // In the order of view_board.cc.
    std::array<std::atomic<int64_t>, kFigures> figures{};
  };
  std::array<Coroutine, kMaxCoroutines> coroutines;
};

// The words by which processes keep changes of time slices apart from graphs with conditional nodes
// (server/backends/cuda/graph_gate.h). Sequentially consistent: each side publishes what it is about to do
// before it reads what the other does. A page of their own, because the GPU writes to it.
struct alignas(4096) SliceWords {
  static constexpr size_t kGroups = 2;  // time-slice groups of a process
  // How many threads of the process change a slice or a context, or wait to do so.
  std::atomic<uint32_t> changing{0};
  // Threads that launch a graph with conditional nodes.
  std::atomic<uint32_t> entering{0};
  // By groups: how many such graphs were launched, and how many of them have ended. The GPU stores `ended`.
  std::array<std::atomic<uint64_t>, kGroups> launched{}, ended{};
};

// What a tenant uses in the process, for processes that keep one limit of the tenant together
// (server/tenants/tenant_board.h). In bytes. Sequentially consistent: a process publishes what it takes
// before it reads what others have.
struct TenantWords {
  std::atomic<uint64_t> tenant{0};  // a hash of the name; 0: none
  std::atomic<uint64_t> pinned{0};
  std::array<std::atomic<uint64_t>, 64> memory{};  // by the numbers of the devices
};

// The words of a process. Engines of several versions share a device while one version follows another. So
// words never move or change their meaning; new ones come last, and an older process reads as zeroes there.
struct alignas(4096) EnginePage {
  static constexpr size_t kMaxDevices = 64;
  struct DeviceWords {
    TurnWords turn;
    RoomWords room;
    LoadWords load;
  };
  static constexpr size_t kMaxTenants = 256;
  std::array<DeviceWords, kMaxDevices> devices;  // by their numbers
  std::array<TenantWords, kMaxTenants> tenants;  // in no order
  // Bytes of host memory that hold evicted memory (host_store.h). Sequentially consistent: a process
  // publishes what it takes before it reads what others have.
  std::atomic<uint64_t> evicted{0};
  // What engines of every version have ends here.
  static constexpr size_t kLeastBytes = 262144;
  alignas(4096) std::array<ViewWords, kMaxDevices> views;  // by the devices' numbers
  std::array<SliceWords, kMaxDevices> slices;              // likewise
};
static_assert(offsetof(EnginePage, views) == EnginePage::kLeastBytes);

// The other processes. One thread adds and removes them.
struct EnginePeers {
  static constexpr size_t kMax = 256;
  struct Peer {
    // Tells processes apart; 0: there is none here. Release: the page has the process's words.
    std::atomic<uint64_t> id{0};
    // Always readable. Holds anything.
    const EnginePage* page = nullptr;
    // It serves no programs yet. Relaxed: a process may see a change late. Then it takes turns with nobody, or
    // both processes work without turns for a moment and make little progress.
    std::atomic<bool> spare{false};
  };
  uint64_t own_id = 0;  // of this process; all ids are process IDs
  std::array<Peer, kMax> peers;
  // Only peers below this were ever there. Release, as the ids.
  std::atomic<size_t> used{0};

  // Whether `test` returns true for the id and the page of a process that is there. Asks no further
  // then. Any thread.
  template <typename Test>
  bool Any(const Test& test) const {
    const size_t count = used.load(std::memory_order_acquire);
    for (size_t i = 0; i < count; ++i) {
      const uint64_t id = peers[i].id.load(std::memory_order_acquire);
      if (id != 0 && test(id, *peers[i].page)) return true;
    }
    return false;
  }
  // Whether a process is there that serves programs. Any thread.
  bool AnyServes() const {
    const size_t count = used.load(std::memory_order_acquire);
    return std::any_of(peers.begin(), peers.begin() + count, [](const Peer& peer) {
      return peer.id.load(std::memory_order_acquire) != 0 &&
             !peer.spare.load(std::memory_order_relaxed);
    });
  }
  // Calls `see` with the id and the page of each process that is there. Any thread.
  template <typename See>
  void ForEach(const See& see) const {
    Any([&](uint64_t id, const EnginePage& page) {
      see(id, page);
      return false;
    });
  }
};

}  // namespace detshare
