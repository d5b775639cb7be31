// mbarrier objects. All blocks of a unit run on one thread, and an mbarrier lies in shared memory.
// So plain accesses are enough.
//
// Bits of the 64-bit word: 0-19 arrivals still missing in this phase, 20-39 arrivals of each phase,
// 40-61 bytes still missing (signed), 63 the parity of the phase.
#include "server/backends/soft/ptx/mbarrier.h"

namespace detshare::soft::ptx {
namespace {

struct State {
  uint32_t pending, expected;
  int32_t bytes;
  bool phase;
};

State Unpack(uint64_t word) {
  State s;
  s.pending = word & 0xfffff;
  s.expected = word >> 20 & 0xfffff;
  s.bytes = static_cast<int32_t>(static_cast<uint32_t>(word >> 40 & 0x3fffff) << 10) >> 10;
  s.phase = word >> 63 != 0;
  return s;
}
uint64_t Pack(const State& s) {
  return uint64_t{s.pending & 0xfffff} | uint64_t{s.expected & 0xfffff} << 20 |
         uint64_t{static_cast<uint32_t>(s.bytes) & 0x3fffff} << 40 | uint64_t{s.phase} << 63;
}
void Complete(State* s) {
  if (s->pending != 0 || s->bytes != 0) return;
  s->phase = !s->phase;
  s->pending = s->expected;
}

template <MbarrierOp kOp, Reach kReach, bool kAddress64>
void Mbarrier(Context& c, const Instr& in, uint32_t mask) {
  uint64_t p[kLanes];
  if (!Pointers<kReach, kAddress64>(c, in, mask, 8, 8, true, p)) return;
  const uint32_t* b =
      in.b == kNoOperand || kOp == MbarrierOp::kTestWait ? nullptr : c.Src<uint32_t>(in.b);
  uint32_t done = 0;
  ForEachLane(mask, [&](uint32_t i) {
    State s = Unpack(LoadRelaxed<uint64_t>(p[i]));
    const uint64_t before = Pack(s);
    const uint32_t count = b == nullptr ? 1 : b[i];
    switch (kOp) {
      case MbarrierOp::kInit:
        s = State{count, count, 0, false};
        break;
      case MbarrierOp::kInval:
        s = State{0, 0, 0, false};
        break;
      case MbarrierOp::kArrive:
      case MbarrierOp::kArriveNoComplete:
        s.pending -= count;
        Complete(&s);
        break;
      case MbarrierOp::kCpAsyncArrive:
        // The copies are done already. Without noinc the instruction adds an expected arrival and
        // arrives, so the state does not change.
        if (in.aux != 0) {
          s.pending -= 1;
          Complete(&s);
        }
        break;
      case MbarrierOp::kArriveDrop:
        s.pending -= count;
        s.expected -= count;
        Complete(&s);
        break;
      case MbarrierOp::kArriveExpectTx:
        s.bytes += static_cast<int32_t>(count);
        s.pending -= 1;
        Complete(&s);
        break;
      case MbarrierOp::kArriveDropExpectTx:
        s.bytes += static_cast<int32_t>(count);
        s.pending -= 1;
        s.expected -= 1;
        Complete(&s);
        break;
      case MbarrierOp::kExpectTx:
        s.bytes += static_cast<int32_t>(count);
        break;
      case MbarrierOp::kCompleteTx:
        s.bytes -= static_cast<int32_t>(count);
        Complete(&s);
        break;
      case MbarrierOp::kTestWait: {
        const bool phase = in.b != kNoOperand && c.Src<uint64_t>(in.b)[i] >> 63 != 0;
        done |= static_cast<uint32_t>(phase != s.phase) << i;
        return;
      }
      case MbarrierOp::kTestWaitParity:
        done |= static_cast<uint32_t>(((count & 1) != 0) != s.phase) << i;
        return;
      case MbarrierOp::kPendingCount:
        return;
    }
    StoreRelaxed<uint64_t>(p[i], Pack(s));
    if (in.d != kNoOperand) c.Dst<uint64_t>(in.d)[i] = before;
  });
  if ((kOp == MbarrierOp::kTestWait || kOp == MbarrierOp::kTestWaitParity) && in.d != kNoOperand)
    c.SetPred(in.d, done, mask);
  NotePoll(c);
}

void PendingCount(Context& c, const Instr& in, uint32_t mask) {
  uint32_t* d = c.Dst<uint32_t>(in.d);
  const uint64_t* b = c.Src<uint64_t>(in.b);
  ForEachLane(mask, [&](uint32_t i) { d[i] = b[i] & 0xfffff; });
}

template <MbarrierOp kOp>
ExecFn Pick(bool address64, bool generic) {
  if (generic)
    return address64 ? Mbarrier<kOp, Reach::kGeneric, true> : Mbarrier<kOp, Reach::kShared, false>;
  return address64 ? Mbarrier<kOp, Reach::kShared, true> : Mbarrier<kOp, Reach::kShared, false>;
}

}  // namespace

bool CompleteBytes(Context& c, const Instr& in, uint32_t lane, uint64_t address, uint32_t bytes) {
  uint8_t* const barrier = SharedPointer(c, address, 8);
  if (barrier == nullptr || address % 8 != 0) {
    RaiseFault(c, in,
               barrier == nullptr ? FaultKind::kIllegalAddress : FaultKind::kMisalignedAddress,
               address, lane);
    return false;
  }
  const uint64_t pointer = reinterpret_cast<uint64_t>(barrier);
  State s = Unpack(LoadRelaxed<uint64_t>(pointer));
  s.bytes -= static_cast<int32_t>(bytes);
  Complete(&s);
  StoreRelaxed<uint64_t>(pointer, Pack(s));
  return true;
}

ExecFn SelectMbarrier(MbarrierOp op, bool address64, bool generic) {
  switch (op) {
    case MbarrierOp::kInit:
      return Pick<MbarrierOp::kInit>(address64, generic);
    case MbarrierOp::kInval:
      return Pick<MbarrierOp::kInval>(address64, generic);
    case MbarrierOp::kArrive:
      return Pick<MbarrierOp::kArrive>(address64, generic);
    case MbarrierOp::kArriveNoComplete:
      return Pick<MbarrierOp::kArriveNoComplete>(address64, generic);
    case MbarrierOp::kArriveDrop:
      return Pick<MbarrierOp::kArriveDrop>(address64, generic);
    case MbarrierOp::kTestWait:
      return Pick<MbarrierOp::kTestWait>(address64, generic);
    case MbarrierOp::kTestWaitParity:
      return Pick<MbarrierOp::kTestWaitParity>(address64, generic);
    case MbarrierOp::kPendingCount:
      return PendingCount;
    case MbarrierOp::kExpectTx:
      return Pick<MbarrierOp::kExpectTx>(address64, generic);
    case MbarrierOp::kCompleteTx:
      return Pick<MbarrierOp::kCompleteTx>(address64, generic);
    case MbarrierOp::kArriveExpectTx:
      return Pick<MbarrierOp::kArriveExpectTx>(address64, generic);
    case MbarrierOp::kArriveDropExpectTx:
      return Pick<MbarrierOp::kArriveDropExpectTx>(address64, generic);
    case MbarrierOp::kCpAsyncArrive:
      return Pick<MbarrierOp::kCpAsyncArrive>(address64, generic);
  }
  return nullptr;
}

}  // namespace detshare::soft::ptx
