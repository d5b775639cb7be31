// Removes the directories that engines of an earlier supervisor have left.
//
// An engine that was told to end, or whose start the list of engines missed, may still use its directory
// when a supervisor begins. The supervisor looks again until such an engine is gone.
//
// Threading: one thread.
#pragma once

#include <chrono>
#include <functional>
#include <set>
#include <string>

#include "server/base/retry_timer.h"

namespace detshare {

class LeftDirectories {
 public:
  // `known`: whether the directory of that name belongs to an engine of this supervisor. Called by the
  // functions below.
  LeftDirectories(std::string runtime_directory,
                  std::function<bool(const std::string& name)> known);

  // Removes all directories of engines that have ended. Call it once, when all listed engines are known.
  void Remove();
  // Readable when RemoveMore() has something to do.
  int fd() const { return timer_.fd(); }
  // Removes those of engines that have ended since.
  void RemoveMore();
  // Whether engines run that this supervisor does not know.
  bool unknown_engines() const { return !used_.empty(); }

 private:
  static constexpr std::chrono::milliseconds kFirstPeriod{100}, kLastPeriod{60'000};

  const std::string runtime_directory_;
  const std::function<bool(const std::string&)> known_;
  std::set<std::string> used_;  // names of directories that unknown engines use
  RetryTimer timer_;            // runs while there are some
  std::chrono::milliseconds period_ = kFirstPeriod;
};

}  // namespace detshare
