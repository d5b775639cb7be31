// The pages by which the engines share their devices (coroutine_runtime/engine_page.h): this
// process's own, and those of the other engines.
//
// An engine makes its page, and seals it before anybody else gets it. So only this process can
// change it, and nobody can take its memory away from readers. The supervisor passes the pages on.
//
// Threading: one thread calls Add() and Keep(); the workers read the pages meanwhile.
#pragma once

#include <sys/types.h>

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/engine_page.h"
#include "server/engines/engine_channel.h"

namespace detshare {

// Whether the descriptor is a page, of this version or another one, that nobody can map for writing, or
// shorten.
bool IsSealedPage(int fd);

class EnginePages {
 public:
  static absl::StatusOr<std::unique_ptr<EnginePages>> Create();
  ~EnginePages();
  EnginePages(const EnginePages&) = delete;
  EnginePages& operator=(const EnginePages&) = delete;

  EnginePage& own() { return *own_; }
  int fd() const { return fd_; }  // of the own page
  const EnginePeers& peers() const { return peers_; }

  // Another engine and its page, which this object owns. InvalidArgument if it is no sealed page,
  // ResourceExhausted if there are too many.
  absl::Status Add(pid_t pid, int page);
  // Forgets all engines but these, and notes which of them are spare.
  void Keep(const EngineProcesses& engines);

 private:
  EnginePages() = default;
  void* PlaceOf(size_t index) const;

  int fd_ = -1;
  EnginePage* own_ = nullptr;
  void* places_ = nullptr;  // addresses for the pages of all peers; always readable
  EnginePeers peers_;
};

}  // namespace detshare
