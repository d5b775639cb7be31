// Control flow, synchronisation, communication between lanes, and special registers.
#pragma once

#include "server/backends/soft/ptx/instr.h"

namespace detshare::soft::ptx {

// Targets are instruction indices: imm is the target, extra the join of a divergent branch or
// kNoJoin.
constexpr uint32_t kNoJoin = 0xffffffffu;

void ExecBranch(Context& c, const Instr& in, uint32_t mask);
void ExecBranchCond(Context& c, const Instr& in, uint32_t mask);   // a: predicate; aux 1: negated
void ExecBranchIndex(Context& c, const Instr& in, uint32_t mask);  // a: index; imm: branch table
void ExecJoin(Context& c, const Instr& in, uint32_t mask);
void ExecCall(Context& c, const Instr& in,
              uint32_t mask);  // imm: call site; a: function address when indirect
void ExecReturn(Context& c, const Instr& in, uint32_t mask);
void ExecExit(Context& c, const Instr& in, uint32_t mask);
void ExecTrap(Context& c, const Instr& in, uint32_t mask);
void ExecNop(Context& c, const Instr& in, uint32_t mask);

// a: barrier number, b: thread count or kNoOperand; aux: BarrierAux.
struct BarrierAux {
  static constexpr uint32_t kSync = 0, kArrive = 1, kRedPopc = 2, kRedAnd = 3, kRedOr = 4;
  static constexpr uint32_t kKindMask = 7;
  static constexpr uint32_t kPredNegated = 8;
};
void ExecBarrier(Context& c, const Instr& in, uint32_t mask);  // reductions: c predicate, d result
void ExecWarpBarrier(Context& c, const Instr& in, uint32_t mask);    // e: member mask
void ExecClusterArrive(Context& c, const Instr& in, uint32_t mask);  // e: member mask
void ExecClusterWait(Context& c, const Instr& in, uint32_t mask);

// Communication between lanes. e: the member mask (kNoOperand: the active lanes).
void ExecShfl(Context& c, const Instr& in,
              uint32_t mask);  // aux: 0 up 1 down 2 bfly 3 idx; d value, d2 predicate; a b c
void ExecVote(Context& c, const Instr& in,
              uint32_t mask);  // aux: 0 all 1 any 2 uni 3 ballot, 8: negated; a predicate
void ExecMatchAny32(Context& c, const Instr& in, uint32_t mask);
void ExecMatchAny64(Context& c, const Instr& in, uint32_t mask);
void ExecMatchAll32(Context& c, const Instr& in, uint32_t mask);  // d mask, d2 predicate
void ExecMatchAll64(Context& c, const Instr& in, uint32_t mask);
void ExecRedux(Context& c, const Instr& in,
               uint32_t mask);  // aux: 0 add 1 min 2 max 3 and 4 or 5 xor, 8: signed
void ExecElect(Context& c, const Instr& in, uint32_t mask);  // d leader, d2 predicate
void ExecActiveMask(Context& c, const Instr& in, uint32_t mask);
void ExecNanosleep(Context& c, const Instr& in, uint32_t mask);  // a: ns

// SIMD video instructions: d, a, b, c; aux as follows.
struct VideoAux {
  static constexpr uint32_t kAddOp = 0, kSubOp = 1, kAverageOp = 2, kAbsDiffOp = 3, kMinOp = 4,
                            kMaxOp = 5, kOpMask = 7;
  static constexpr uint32_t kFour = 8, kAdd = 16, kSat = 32, kSignedA = 64, kSignedB = 128,
                            kSignedD = 256, kRelu = 512;
};
void ExecVideo(Context& c, const Instr& in, uint32_t mask);

enum class Sreg : uint8_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLaneid,
  kWarpid,
  kNwarpid,
  kSmid,
  kNsmid,
  kGridid,
  kLanemaskEq,
  kLanemaskLe,
  kLanemaskLt,
  kLanemaskGe,
  kLanemaskGt,
  kClock,
  kClockHi,
  kClock64,
  kGlobaltimer,
  kGlobaltimerLo,
  kGlobaltimerHi,
  kDynamicSmemSize,
  kTotalSmemSize,
  kAggrSmemSize,
  kReservedSmemBegin,
  kReservedSmemMiddle,
  kReservedSmemEnd,
  kReservedSmemBytes,
  kClusteridX,
  kClusteridY,
  kClusteridZ,
  kNclusteridX,
  kNclusteridY,
  kNclusteridZ,
  kClusterCtaidX,
  kClusterCtaidY,
  kClusterCtaidZ,
  kClusterNctaidX,
  kClusterNctaidY,
  kClusterNctaidZ,
  kClusterCtarank,
  kClusterNctarank,
  kIsExplicitCluster,
  kEnvreg,
  kZero,
  kCurrentGraphExec,
};
// aux: the Sreg, imm: the number of an %envreg. 32- or 64-bit destination.
ExecFn SregHandler(bool wide);

}  // namespace detshare::soft::ptx
