// `detsharectl verify`: checks that a program reads the same bits back alone and beside noisy
// neighbours. It runs the program twice without neighbours, then beside them, and compares digests.
// If a run beside neighbours differs, it runs the program beside them in exclusive turns.
//
// In a private daemon, the runs without neighbours are alone. A running daemon may have other
// programs, so these runs are in exclusive turns with whatever the daemon runs.
#pragma once

#include <string>
#include <vector>

namespace detshare::ctl {

struct VerifyOptions {
  std::string socket;                     // of a running daemon, if `standalone` is empty
  std::string standalone;                 // backend of a private daemon: "auto", "soft" or "cuda"
  std::vector<std::string> daemon_flags;  // of the private daemon
  std::string policy;                     // of the private daemon; "": its default
  // Beside neighbours, the private daemon moves work to other SMs after this many operations; 0:
  // when the policy says so.
  int migrate_every = 1;
  int neighbours = 4;
  int runs = 3;  // of the program beside neighbours, in space and in exclusive turns
  bool json = false;
  std::vector<std::string> command;
};

inline constexpr int kVerifyEqual = 0;
inline constexpr int kVerifyDifferent = 1;
inline constexpr int kVerifyFailed = 2;           // the program could not be run, or the result
                                                  // could not be written
inline constexpr int kVerifyNotReproducible = 3;  // two runs without neighbours differ already
inline constexpr int kVerifyEqualInTurns = 4;     // equal in exclusive turns, not in space

// Prints progress on stderr and the result on stdout. Returns one of the exit codes above.
int Verify(const VerifyOptions& options);

}  // namespace detshare::ctl
