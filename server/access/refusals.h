// Bounds what events and the log say of refusals. Whoever may connect can be refused thousands of
// times a second, and would bury what else has happened.
//
// One thread at a time uses this object.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "server/access/peer_table.h"

namespace detshare {

class Refusals {
 public:
  using Clock = std::chrono::steady_clock;
  // A holder's refusals for one reason are told once in this time.
  static constexpr std::chrono::seconds kPeriod{10};
  // Reasons of a holder that are told apart, because a reason can have a word of the client's. More
  // reasons count together. More holders count together, too.
  static constexpr size_t kMaxReasons = 4, kMaxHolders = 64;

  // Counts a refusal. Returns what to tell of it: the reason and, if there were some, the number of
  // refusals before it of which nothing was told. Returns nothing if it is only counted.
  std::optional<std::string> Note(const ConnectionHolder& holder, const std::string& reason,
                                  Clock::time_point now = Clock::now());

 private:
  struct Kind {
    Clock::time_point told;
    uint64_t untold = 0;  // since then
  };
  struct Holder {
    std::map<std::string, Kind> reasons;
    std::optional<Kind> others;
  };

  static bool Told(const Kind& kind, Clock::time_point now) { return now - kind.told < kPeriod; }
  // Forgets what was told long ago.
  static void Prune(Holder& holder, Clock::time_point now);
  void Prune(Clock::time_point now);
  static std::optional<std::string> Tell(std::optional<Kind>& kind, const std::string& reason,
                                         const char* which, Clock::time_point now);

  std::map<ConnectionHolder, Holder> holders_;
  std::optional<Kind> others_;
};

}  // namespace detshare
