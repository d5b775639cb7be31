// Communication between the lanes of a warp, and special registers.
#include <algorithm>
#include <cstring>

#include "server/backends/soft/ptx/control_ops.h"
#include "server/backends/soft/ptx/converge.h"

namespace detshare::soft::ptx {
namespace {

void PutLanes(const Context& c, int32_t d, uint32_t lanes, const uint32_t* values) {
  uint32_t* out = c.Dst<uint32_t>(d);
  ForEachLane(lanes, [&](uint32_t lane) { out[lane] = values[lane]; });
}

// The operands of an instruction in which lanes communicate.
struct LaneOperands {
  uint32_t a_bytes = 4;    // 0: a predicate
  bool predicate = false;  // d is one
  uint32_t negation = 0;   // the bit of aux that negates the predicate a
};

// Runs f(context, instruction, lanes) once all members of the mask have come to an instruction of
// this kind, wherever that is: in diverged code, or in another call of a function. The context then
// has registers of its own, which the splits fill and from which they get their results.
template <class F>
void Communicate(Context& c, const Instr& in, uint32_t mask, LaneOperands operands, F f) {
  const auto meets = [&](const Split& s) {
    return s.pc->fn == in.fn && (s.pc->aux & ~operands.negation) == (in.aux & ~operands.negation);
  };
  ConvergeSplits(c, in, mask, meets,
                 [&](uint32_t lanes, uint32_t group, absl::Span<const uint8_t> waiting) {
                   const auto same_place = [&](uint8_t split) {
                     const Split& s = c.warp->splits[split];
                     return s.pc == &in && s.frame == c.frame;
                   };
                   if (std::all_of(waiting.begin(), waiting.end(), same_place))
                     return f(c, in, lanes);
                   constexpr int32_t kRow = kLanes * sizeof(uint64_t);
                   alignas(64) uint8_t rows[5 * kRow] = {};
                   Context all = c;
                   all.regs = rows;
                   Instr common = in;
                   common.aux &= ~operands.negation;
                   int32_t Instr::*const sources[] = {&Instr::a, &Instr::b, &Instr::c};
                   for (int32_t k = 0; k < 3; ++k)
                     if (in.*sources[k] != kNoOperand) common.*sources[k] = k * kRow;
                   common.d = 3 * kRow;
                   common.d2 = 4 * kRow;
                   // Calls g(context, instruction, lanes) for the running split and for those that wait.
                   const auto for_splits = [&](auto g) {
                     g(c, in, group);
                     for (const uint8_t split : waiting) {
                       const Split& s = c.warp->splits[split];
                       Context at = c;
                       at.regs = s.frame->regs;
                       at.consts = s.frame->consts;
                       g(at, *s.pc, s.mask);
                     }
                   };
                   for_splits([&](const Context& at, const Instr& from, uint32_t part) {
                     for (int32_t k = 0; k < 3; ++k) {
                       const int32_t source = from.*sources[k];
                       if (source == kNoOperand) continue;
                       const uint32_t bytes = k == 0 ? operands.a_bytes : 4;
                       if (bytes == 0) {
                         const bool negated = (from.aux & operands.negation) != 0;
                         all.SetPred(k * kRow, at.Pred(source) ^ (negated ? kFullMask : 0), part);
                         continue;
                       }
                       ForEachLane(part, [&](uint32_t lane) {
                         std::memcpy(rows + k * kRow + lane * bytes,
                                     at.Src<uint8_t>(source) + lane * bytes, bytes);
                       });
                     }
                   });
                   f(all, common, lanes);
                   for_splits([&](const Context& at, const Instr& to, uint32_t part) {
                     if (to.d != kNoOperand && operands.predicate)
                       at.SetPred(to.d, all.Pred(common.d), part);
                     else if (to.d != kNoOperand)
                       PutLanes(at, to.d, part, all.Src<uint32_t>(common.d));
                     if (to.d2 != kNoOperand) at.SetPred(to.d2, all.Pred(common.d2), part);
                   });
                 });
}

template <class T>
void MatchAny(Context& warp, const Instr& instr, uint32_t mask) {
  Communicate(warp, instr, mask, {.a_bytes = sizeof(T)},
              [](Context& c, const Instr& in, uint32_t lanes) {
                const T* a = c.Src<T>(in.a);
                uint32_t result[kLanes] = {};
                ForEachLane(lanes, [&](uint32_t lane) {
                  ForEachLane(lanes, [&](uint32_t other) {
                    result[lane] |= static_cast<uint32_t>(a[other] == a[lane]) << other;
                  });
                });
                PutLanes(c, in.d, lanes, result);
              });
}

template <class T>
void MatchAll(Context& warp, const Instr& instr, uint32_t mask) {
  Communicate(warp, instr, mask, {.a_bytes = sizeof(T)},
              [](Context& c, const Instr& in, uint32_t lanes) {
                const T* a = c.Src<T>(in.a);
                const T first = a[FirstLane(lanes)];
                bool same = true;
                ForEachLane(lanes, [&](uint32_t lane) { same = same && a[lane] == first; });
                uint32_t result[kLanes];
                for (uint32_t& r : result) r = same ? lanes : 0;
                PutLanes(c, in.d, lanes, result);
                if (in.d2 != kNoOperand) c.SetPred(in.d2, same ? kFullMask : 0, lanes);
              });
}

}  // namespace

void ExecWarpBarrier(Context& c, const Instr& in, uint32_t mask) {
  Converge(c, in, mask, false, [](uint32_t) {});
}

void ExecShfl(Context& warp, const Instr& instr, uint32_t mask) {
  Communicate(warp, instr, mask, {}, [](Context& c, const Instr& in, uint32_t lanes) {
    const uint32_t* a = c.Src<uint32_t>(in.a);
    const uint32_t* b = c.Src<uint32_t>(in.b);
    const uint32_t* limit = c.Src<uint32_t>(in.c);
    uint32_t result[kLanes];
    uint32_t valid = 0;
    ForEachLane(lanes, [&](uint32_t lane) {
      const uint32_t by = b[lane] & 31;
      const uint32_t segment = limit[lane] >> 8 & 31;
      const uint32_t clamp = limit[lane] & 31;
      const uint32_t max_lane = (lane & segment) | (clamp & ~segment);
      const uint32_t min_lane = lane & segment;
      int32_t j = 0;
      bool in_range = false;
      switch (in.aux) {
        case 0:
          j = static_cast<int32_t>(lane) - static_cast<int32_t>(by);
          in_range = j >= static_cast<int32_t>(max_lane);
          break;
        case 1:
          j = static_cast<int32_t>(lane + by);
          in_range = j <= static_cast<int32_t>(max_lane);
          break;
        case 2:
          j = static_cast<int32_t>(lane ^ by);
          in_range = j <= static_cast<int32_t>(max_lane);
          break;
        default:
          j = static_cast<int32_t>(min_lane | (by & ~segment));
          in_range = j <= static_cast<int32_t>(max_lane);
          break;
      }
      if (!in_range) j = static_cast<int32_t>(lane);
      result[lane] = a[j & 31];
      valid |= static_cast<uint32_t>(in_range) << lane;
    });
    PutLanes(c, in.d, lanes, result);
    if (in.d2 != kNoOperand) c.SetPred(in.d2, valid, lanes);
  });
}

void ExecVote(Context& warp, const Instr& instr, uint32_t mask) {
  const LaneOperands operands = {.a_bytes = 0, .predicate = (instr.aux & 7) < 3, .negation = 8};
  Communicate(warp, instr, mask, operands, [](Context& c, const Instr& in, uint32_t lanes) {
    uint32_t p = c.Pred(in.a);
    if ((in.aux & 8) != 0) p = ~p;
    p &= lanes;
    switch (in.aux & 7) {
      case 0:
        return c.SetPred(in.d, p == lanes ? kFullMask : 0, lanes);
      case 1:
        return c.SetPred(in.d, p != 0 ? kFullMask : 0, lanes);
      case 2:
        return c.SetPred(in.d, p == lanes || p == 0 ? kFullMask : 0, lanes);
      default: {
        uint32_t* d = c.Dst<uint32_t>(in.d);
        ForEachLane(lanes, [&](uint32_t lane) { d[lane] = p; });
      }
    }
  });
}

void ExecMatchAny32(Context& c, const Instr& in, uint32_t mask) { MatchAny<uint32_t>(c, in, mask); }
void ExecMatchAny64(Context& c, const Instr& in, uint32_t mask) { MatchAny<uint64_t>(c, in, mask); }
void ExecMatchAll32(Context& c, const Instr& in, uint32_t mask) { MatchAll<uint32_t>(c, in, mask); }
void ExecMatchAll64(Context& c, const Instr& in, uint32_t mask) { MatchAll<uint64_t>(c, in, mask); }

void ExecRedux(Context& warp, const Instr& instr, uint32_t mask) {
  Communicate(warp, instr, mask, {}, [](Context& c, const Instr& in, uint32_t lanes) {
    const uint32_t* a = c.Src<uint32_t>(in.a);
    uint32_t value = a[FirstLane(lanes)];
    const bool is_signed = (in.aux & 8) != 0;
    ForEachLane(lanes & (lanes - 1), [&](uint32_t lane) {
      const uint32_t v = a[lane];
      const bool less =
          is_signed ? static_cast<int32_t>(v) < static_cast<int32_t>(value) : v < value;
      switch (in.aux & 7) {
        case 0:
          value += v;
          break;
        case 1:
          value = less ? v : value;
          break;
        case 2:
          value = less ? value : v;
          break;
        case 3:
          value &= v;
          break;
        case 4:
          value |= v;
          break;
        default:
          value ^= v;
          break;
      }
    });
    uint32_t result[kLanes];
    for (uint32_t& r : result) r = value;
    PutLanes(c, in.d, lanes, result);
  });
}

void ExecElect(Context& warp, const Instr& instr, uint32_t mask) {
  Communicate(warp, instr, mask, {}, [](Context& c, const Instr& in, uint32_t lanes) {
    const uint32_t leader = FirstLane(lanes);
    if (in.d != kNoOperand) {
      uint32_t* d = c.Dst<uint32_t>(in.d);
      ForEachLane(lanes, [&](uint32_t lane) { d[lane] = leader; });
    }
    if (in.d2 != kNoOperand) c.SetPred(in.d2, 1u << leader, lanes);
  });
}

void ExecActiveMask(Context& c, const Instr& in, uint32_t mask) {
  uint32_t* d = c.Dst<uint32_t>(in.d);
  ForEachLane(mask, [&](uint32_t lane) { d[lane] = c.mask; });
}

void ExecNanosleep(Context& c, const Instr& in, uint32_t mask) {
  const uint32_t* ns = c.Src<uint32_t>(in.a);
  uint32_t longest = 0;
  ForEachLane(mask, [&](uint32_t lane) { longest = ns[lane] > longest ? ns[lane] : longest; });
  if (longest > 1'000'000) longest = 1'000'000;  // the limit of the hardware
  c.unit->cycles += longest;
  c.warp->sleep_ns += longest;
  if (c.warp->sleep_ns > c.counters->sleep_ns) c.counters->sleep_ns = c.warp->sleep_ns;
  NotePoll(c);
  EndTurn(c);
}

namespace {

uint64_t UniformSreg(Context& c, const Instr& in) {
  const PreparedLaunch& launch = *c.unit->launch;
  const LaunchConfig& config = launch.config;
  const Block& block = *c.block;
  const uint64_t cycles =
      c.unit->cycles + static_cast<uint64_t>(c.turn_length - c.unused - c.budget);
  const Sreg sreg = static_cast<Sreg>(in.aux);
  auto of = [&](Sreg first) { return static_cast<size_t>(sreg) - static_cast<size_t>(first); };
  switch (sreg) {
    case Sreg::kNtidX:
    case Sreg::kNtidY:
    case Sreg::kNtidZ:
      return config.block[of(Sreg::kNtidX)];
    case Sreg::kCtaidX:
    case Sreg::kCtaidY:
    case Sreg::kCtaidZ:
      return block.id[of(Sreg::kCtaidX)];
    case Sreg::kNctaidX:
    case Sreg::kNctaidY:
    case Sreg::kNctaidZ:
      return config.grid[of(Sreg::kNctaidX)];
    case Sreg::kWarpid:
      return c.warp->index;
    case Sreg::kNwarpid:
      return 64;
    case Sreg::kSmid:
      return block.sm_id;
    case Sreg::kNsmid:
      return config.sm_count;
    case Sreg::kGridid:
      return config.grid_id;
    case Sreg::kClock:
      return static_cast<uint32_t>(config.start_cycle + cycles);
    case Sreg::kClockHi:
      return (config.start_cycle + cycles) >> 32;
    case Sreg::kClock64:
      return config.start_cycle + cycles;
    case Sreg::kGlobaltimer:
      return config.start_time_ns + cycles;
    case Sreg::kGlobaltimerLo:
      return static_cast<uint32_t>(config.start_time_ns + cycles);
    case Sreg::kGlobaltimerHi:
      return (config.start_time_ns + cycles) >> 32;
    case Sreg::kDynamicSmemSize:
      return config.dynamic_shared_bytes;
    case Sreg::kTotalSmemSize:
    case Sreg::kAggrSmemSize:
      return launch.shared_allocated;
    case Sreg::kReservedSmemBegin:
      return launch.shared_allocated;
    case Sreg::kReservedSmemMiddle:
      return launch.shared_allocated + kReservedSharedBytes / 2;
    case Sreg::kReservedSmemEnd:
      return launch.shared_allocated + kReservedSharedBytes;
    case Sreg::kReservedSmemBytes:
      return kReservedSharedBytes;
    case Sreg::kClusteridX:
    case Sreg::kClusteridY:
    case Sreg::kClusteridZ: {
      const size_t d = of(Sreg::kClusteridX);
      return block.id[d] / config.cluster[d];
    }
    case Sreg::kNclusteridX:
    case Sreg::kNclusteridY:
    case Sreg::kNclusteridZ: {
      const size_t d = of(Sreg::kNclusteridX);
      return config.grid[d] / config.cluster[d];
    }
    case Sreg::kClusterCtaidX:
    case Sreg::kClusterCtaidY:
    case Sreg::kClusterCtaidZ: {
      const size_t d = of(Sreg::kClusterCtaidX);
      return block.id[d] % config.cluster[d];
    }
    case Sreg::kClusterNctaidX:
    case Sreg::kClusterNctaidY:
    case Sreg::kClusterNctaidZ:
      return config.cluster[of(Sreg::kClusterNctaidX)];
    case Sreg::kClusterCtarank:
      return block.rank;
    case Sreg::kClusterNctarank:
      return launch.cluster_blocks;
    case Sreg::kIsExplicitCluster:
      return launch.cluster_blocks > 1 ? 1 : 0;
    case Sreg::kEnvreg:
      // cooperative_groups finds the grid's workspace through these registers.
      if (config.cooperative && in.imm == 1) return config.grid_workspace_address >> 32;
      if (config.cooperative && in.imm == 2)
        return static_cast<uint32_t>(config.grid_workspace_address);
      return 0;
    default:
      return 0;
  }
}

// Sets indices[lane] to one dimension of the thread's place in its block. The lanes begin at
// `thread`.
void ThreadIndices(const std::array<uint32_t, 3>& block, uint32_t thread, Sreg dimension,
                   uint32_t* indices) {
  uint32_t x = thread % block[0], y = thread / block[0] % block[1],
           z = thread / block[0] / block[1];
  const auto place = [&] {
    return dimension == Sreg::kTidX ? x : dimension == Sreg::kTidY ? y : z;
  };
  if (x + kLanes <= block[0]) {  // a row has all lanes
    const uint32_t first = place(), step = dimension == Sreg::kTidX ? 1 : 0;
    for (uint32_t i = 0; i < kLanes; ++i) indices[i] = first + i * step;
    return;
  }
  for (uint32_t i = 0; i < kLanes; ++i) {
    indices[i] = place();
    if (++x < block[0]) continue;
    x = 0;
    if (++y < block[1]) continue;
    y = 0;
    ++z;
  }
}

template <class T>
void ReadSreg(Context& c, const Instr& in, uint32_t mask) {
  T* d = c.Dst<T>(in.d);
  const LaunchConfig& config = c.unit->launch->config;
  const uint32_t thread = c.warp->index * kLanes;
  switch (static_cast<Sreg>(in.aux)) {
    case Sreg::kTidX:
    case Sreg::kTidY:
    case Sreg::kTidZ: {
      uint32_t index[kLanes];
      ThreadIndices(config.block, thread, static_cast<Sreg>(in.aux), index);
      ForWarpLanes(mask, [&](uint32_t i) { d[i] = index[i]; });
      break;
    }
    case Sreg::kLaneid:
      ForEachLane(mask, [&](uint32_t i) { d[i] = i; });
      break;
    case Sreg::kLanemaskEq:
      ForEachLane(mask, [&](uint32_t i) { d[i] = 1u << i; });
      break;
    case Sreg::kLanemaskLt:
      ForEachLane(mask, [&](uint32_t i) { d[i] = (1u << i) - 1; });
      break;
    case Sreg::kLanemaskLe:
      ForEachLane(mask, [&](uint32_t i) { d[i] = ((1u << i) - 1) | 1u << i; });
      break;
    case Sreg::kLanemaskGt:
      ForEachLane(mask, [&](uint32_t i) { d[i] = static_cast<T>(~(((1u << i) - 1) | 1u << i)); });
      break;
    case Sreg::kLanemaskGe:
      ForEachLane(mask, [&](uint32_t i) { d[i] = static_cast<T>(~((1u << i) - 1)); });
      break;
    case Sreg::kClock:
    case Sreg::kClock64:
    case Sreg::kGlobaltimer:
    case Sreg::kGlobaltimerLo:
      NotePoll(c);
      [[fallthrough]];
    default: {
      const T value = static_cast<T>(UniformSreg(c, in));
      ForWarpLanes(mask, [&](uint32_t i) { d[i] = value; });
    }
  }
}

}  // namespace

ExecFn SregHandler(bool wide) { return wide ? ReadSreg<uint64_t> : ReadSreg<uint32_t>; }

}  // namespace detshare::soft::ptx
