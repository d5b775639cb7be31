// `detsharectl verify`: whether a program reads the same bits back alone and beside neighbours.
#pragma once

#include <string>
#include <vector>

namespace detshare::ctl {

struct VerifyOptions {
  std::string socket;                     // of a running daemon, where `standalone` is empty
  std::string standalone;                 // a daemon of its own: "auto", "soft" or "cuda"
  std::vector<std::string> daemon_flags;  // of that daemon
  std::string policy;                     // of that daemon; empty: its default
  int migrate_every = 1;  // operations after which work moves beside neighbours; 0: never
  int neighbours = 4;
  int runs = 3;  // beside neighbours
  bool json = false;
  std::vector<std::string> command;
};

inline constexpr int kVerifyEqual = 0;
inline constexpr int kVerifyDifferent = 1;
inline constexpr int kVerifyFailed = 2;           // it could not be run
inline constexpr int kVerifyNotReproducible = 3;  // two runs alone differ already

// Prints progress on stderr and the result on stdout; one of the codes above.
int Verify(const VerifyOptions& options);

}  // namespace detshare::ctl
