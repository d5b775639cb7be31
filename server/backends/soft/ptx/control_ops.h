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
// For instructions that modules may have, and that no kernel may execute.
void ExecUnsupported(Context& c, const Instr& in, uint32_t mask);
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

// The scalar video instructions: on whole registers, or on a byte or a half of each. imm: a
// ScalarVideo; a, b; c: what the result is combined with, or the rest of the result.
struct ScalarVideo {
  enum Op : uint8_t { kNone, kAdd, kSub, kAbsDiff, kMin, kMax, kShl, kShr, kSet, kMad };
  static constexpr uint8_t kSignedA = 1, kSignedB = 2, kSignedD = 4;

  Op op = kNone;
  Op second = kNone;  // kAdd, kMin or kMax with c
  uint8_t signs = 0;
  uint8_t select_a = 0, select_b = 0, select_d = 0;  // as in Operand; 0: the whole register
  bool saturate = false;
  bool wrap = false;  // shifts: the count wraps at 32
  uint8_t compare = 0;
  // kMad: (a b + c + plus_one) >> scale. At most one of these is set.
  bool plus_one = false, negate_product = false, negate_c = false;
  uint8_t scale = 0;

  int64_t Pack() const {
    return static_cast<int64_t>(
        uint64_t{op} | uint64_t{second} << 8 | uint64_t{signs} << 16 | uint64_t{select_a} << 24 |
        uint64_t{select_b} << 28 | uint64_t{select_d} << 32 | uint64_t{saturate} << 36 |
        uint64_t{wrap} << 37 | uint64_t{plus_one} << 38 | uint64_t{negate_product} << 39 |
        uint64_t{compare} << 40 | uint64_t{negate_c} << 48 | uint64_t{scale} << 49);
  }
  static ScalarVideo Unpack(int64_t packed) {
    const uint64_t v = static_cast<uint64_t>(packed);
    ScalarVideo s;
    s.op = static_cast<Op>(v & 0xff);
    s.second = static_cast<Op>(v >> 8 & 0xff);
    s.signs = v >> 16 & 0xff;
    s.select_a = v >> 24 & 0xf;
    s.select_b = v >> 28 & 0xf;
    s.select_d = v >> 32 & 0xf;
    s.saturate = (v >> 36 & 1) != 0;
    s.wrap = (v >> 37 & 1) != 0;
    s.plus_one = (v >> 38 & 1) != 0;
    s.negate_product = (v >> 39 & 1) != 0;
    s.compare = v >> 40 & 0xff;
    s.negate_c = (v >> 48 & 1) != 0;
    s.scale = v >> 49 & 0xf;
    return s;
  }
};
void ExecScalarVideo(Context& c, const Instr& in, uint32_t mask);
void ExecVideoMad(Context& c, const Instr& in, uint32_t mask);  // vmad: op is kMad

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
