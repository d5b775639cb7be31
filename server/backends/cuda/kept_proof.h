// What a process of the daemon found out about preemption on one GPU, for the daemon's other processes. The
// proof (preemption.h) takes 0.3 s, opens the urgent group, and is wrong beside the work of other processes.
//
// The result is a file, which is replaced as a whole, so a reader needs no lock. A process that makes the proof
// holds the lock of a second file meanwhile, and others that need a result wait for it. A process of a user who
// cannot take that lock waits for a result for 5 s, and keeps none.
#pragma once

#include <optional>
#include <string>

#include "coroutine_runtime/device.h"

namespace detshare::cuda {

// Threading: one thread.
class KeptProof {
 public:
  // Finds the result of another process. Without one, waits for a process that makes the proof, and then
  // holds the lock as long as the object exists. `path`: of the result; "": the process shares nothing.
  explicit KeptProof(std::string path);
  ~KeptProof();
  KeptProof(const KeptProof&) = delete;
  KeptProof& operator=(const KeptProof&) = delete;

  // Nothing if there is no result, or none that can be read.
  const std::optional<Preemption>& known() const { return known_; }
  // Keeps the result if none is known.
  void Keep(const Preemption& result);
  // What is kept next replaces the result.
  void Forget() { known_.reset(); }

 private:
  // Returns whether this process has the lock.
  bool Lock();
  void Read();

  const std::string path_;
  int lock_ = -1;
  std::optional<Preemption> known_;
};

}  // namespace detshare::cuda
