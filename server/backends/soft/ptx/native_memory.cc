// Loads and stores.
#include <algorithm>
#include <bit>
#include <cstddef>

#include "server/backends/soft/ptx/memory_access.h"
#include "server/backends/soft/ptx/native_emitter.h"
#include "server/backends/soft/ptx/native_operands.h"

namespace detshare::soft::ptx {

using namespace asmjit::x86;

namespace {

constexpr int64_t kMaxOffset = 1 << 28;

Mem FirstWord(uint32_t slot) { return qword_ptr(rsp, static_cast<int32_t>(16 * slot)); }
Mem DistanceWord(uint32_t slot) { return dword_ptr(rsp, static_cast<int32_t>(16 * slot + 12)); }

uint64_t FindWholeRange(Context* c, uint64_t begin, uint64_t end, uint64_t write) {
  return FindRange(*c, begin, end - begin, write != 0);
}

// The registers of each lane.
uint32_t VectorOf(const Instr& in, const Meaning& m) { return m.memory.vector == 1 ? 1 : in.count; }

bool IsGlobalSpace(Space space) { return space == Space::kGlobal || space == Space::kGeneric; }

}  // namespace

bool NativeEmitter::Defines(const Instr& in, int32_t operand) const {
  if (in.d == operand || in.d2 == operand) return true;
  // Some of the extra operands may be destinations.
  for (uint32_t k = 0; k < in.count; ++k) {
    if (function_.extras[in.extra + k] == operand) return true;
  }
  return false;
}

void NativeEmitter::ForgetAddress(int32_t operand) {
  for (size_t k = addresses_.size(); k-- > 0;) {
    if (addresses_[k].operand != operand) continue;
    free_slots_ |= 1u << addresses_[k].slot;
    addresses_.erase(addresses_.begin() + static_cast<long>(k));
  }
}

const NativeEmitter::KnownAddress* NativeEmitter::FindAddress(uint32_t i, const Meaning& m,
                                                              uint32_t step) {
  const Instr& in = function_.code[i];
  for (const KnownAddress& k : addresses_) {
    if (k.operand == in.a && k.step == step && k.space == m.memory.space &&
        k.wide == m.memory.address64 && k.last_use >= i)
      return &k;
  }
  return LearnAddress(i, m, step);
}

// Jumps to `other` unless the lanes have one address, or consecutive ones. Otherwise sets ecx to the
// AddressKind, and rax to the first address.
void NativeEmitter::EmitPattern(const Parts& address, uint32_t step, bool wide, Label other) {
  const uint32_t log = static_cast<uint32_t>(std::countr_zero(step));
  const Label found = a_.newLabel();
  const auto differ = [&](bool row) {
    for (uint32_t p = 0; p < address.count; ++p) {
      if (row) {
        const size_t table =
            wide ? offsetof(NativeConstants, steps64) : offsetof(NativeConstants, steps32);
        const size_t lanes = kLanes / address.count * p;
        const size_t at = table + (log * kLanes + lanes) * (wide ? 8 : 4);
        const Mem steps = zmmword_ptr(r14, static_cast<int32_t>(at));
        wide ? a_.vpaddq(zmm29, zmm28, steps) : a_.vpaddd(zmm29, zmm28, steps);
      }
      const KReg to = p == 0 ? k6 : k7;
      const Zmm& with = row ? zmm29 : zmm28;
      wide ? a_.vpcmpuq(to, address[p], with, 4) : a_.vpcmpud(to, address[p], with, 4);
      if (p != 0) a_.korw(k6, k6, k7);
    }
    a_.kortestw(k6, k6);
  };
  if (wide) {
    a_.vmovq(rax, address[0].xmm());
    a_.vpbroadcastq(zmm28, address[0].xmm());
  } else {
    a_.vmovd(eax, address[0].xmm());
    a_.vpbroadcastd(zmm28, address[0].xmm());
  }
  a_.mov(ecx, kOneAddress);
  differ(false);
  a_.jz(found);
  a_.xor_(ecx, ecx);
  differ(true);
  a_.jnz(other);
  a_.bind(found);
}

// rax: the first address, rdx: the distance of the last; sets rax to the host pointer.
void NativeEmitter::EmitCheckShared(const KnownAddress& known, int64_t low, int64_t end,
                                    Label other) {
  if (known.wide) {
    a_.mov(rsi, rax);
    a_.shr(rsi, 32);
    a_.jnz(other);
  }
  if (low < 0) {
    a_.cmp(rax, -low);
    a_.jb(other);
  }
  a_.lea(rdx, ptr(rax, rdx, 0, static_cast<int32_t>(end)));
  a_.mov(esi, DETSHARE_CONTEXT(shared_bytes));
  a_.cmp(rdx, rsi);
  a_.ja(other);
  a_.add(rax, DETSHARE_CONTEXT(shared));
}

void NativeEmitter::EmitCheckGlobal(const KnownAddress& known, int64_t low, int64_t end, bool write,
                                    Label other) {
  const Label miss = a_.newLabel(), fits = a_.newLabel();
  // Far below the windows, so sums do not wrap around.
  a_.mov(rsi, rax);
  a_.shr(rsi, 47);
  a_.jnz(other);
  if (low < 0) {
    a_.cmp(rax, -low);
    a_.jb(other);
  }
  a_.lea(rsi, ptr(rax, static_cast<int32_t>(low)));
  a_.lea(rdx, ptr(rax, rdx, 0, static_cast<int32_t>(end)));
  a_.cmp(rsi, DETSHARE_CONTEXT(range_begin));
  a_.jb(miss);
  a_.cmp(rdx, DETSHARE_CONTEXT(range_end));
  a_.ja(miss);
  if (write) {
    a_.cmp(DETSHARE_CONTEXT(range_writable), 0);
    a_.je(miss);
  }
  a_.bind(fits);
  cold_.push_back([this, miss, fits, other, write, cached = cache_, slot = known.slot] {
    a_.bind(miss);
    a_.mov(FirstWord(slot), rax);
    a_.mov(KindWord(slot), ecx);
    StoreCold(cached);
    a_.mov(rdi, rbx);
    a_.mov(ecx, write ? 1 : 0);
    a_.vzeroupper();
    a_.mov(rax, asmjit::imm(reinterpret_cast<uint64_t>(&FindWholeRange)));
    a_.call(rax);
    if (some_lanes_) LoadMasks();
    LoadCold(cached);
    a_.test(eax, eax);
    a_.mov(rax, FirstWord(slot));
    a_.mov(ecx, KindWord(slot));
    a_.jz(other);
    a_.jmp(fits);
  });
}

// Finds the pattern of an address register, and checks all accesses of the chain at once.
const NativeEmitter::KnownAddress* NativeEmitter::LearnAddress(uint32_t i, const Meaning& m,
                                                               uint32_t step) {
  const Instr& in = function_.code[i];
  if (free_slots_ == 0) return nullptr;
  KnownAddress known{in.a, step, m.memory.space, m.memory.address64, i, 0};
  int64_t low = in.imm, high = in.imm;
  bool write = false;
  for (uint32_t j = i; j < chain_end_; ++j) {
    const Instr& use = function_.code[j];
    const Meaning* meaning = MeaningOf(use.fn);
    if (meaning != nullptr && use.guard < 0 && use.a == in.a &&
        (meaning->kind == Meaning::Kind::kLoad || meaning->kind == Meaning::Kind::kStore) &&
        meaning->memory.space == known.space && meaning->memory.address64 == known.wide &&
        SizeOf(meaning->type) * VectorOf(use, *meaning) == step && use.imm % step == 0 &&
        std::abs(use.imm) < kMaxOffset) {
      low = std::min(low, use.imm);
      high = std::max(high, use.imm);
      write = write || meaning->kind == Meaning::Kind::kStore;
      known.last_use = j;
    }
    if (Defines(use, in.a)) break;
  }
  known.slot = static_cast<uint32_t>(__builtin_ctz(free_slots_));
  free_slots_ &= free_slots_ - 1;
  const Parts address = Source(in.a, known.wide ? 4 : 2);
  const Label each = a_.newLabel(), other = a_.newLabel(), done = a_.newLabel();
  if (some_lanes_) {
    const Parts active = Allocate(address.count);
    for (uint32_t p = 0; p < address.count; ++p) {
      Masked(p, address.count).z();
      known.wide ? a_.vmovdqa64(active[p], address[p]) : a_.vmovdqa32(active[p], address[p]);
    }
    if (low < 0) {
      a_.jmp(other);
    } else {
      EmitCheckEach(known, active, low, high + step, write, other);
      a_.mov(KindWord(known.slot), kGather);
    }
    a_.bind(done);
    for (uint32_t p = 0; p < active.count; ++p) free_ |= 1u << active[p].id();
    cold_.push_back([this, other, done, slot = known.slot] {
      a_.bind(other);
      a_.mov(KindWord(slot), kUnknown);
      a_.jmp(done);
    });
    addresses_.push_back(known);
    return &addresses_.back();
  }
  EmitPattern(address, step, known.wide, each);
  // rdx: the distance from the first address to the last.
  a_.lea(edx, ptr(rcx, -1));
  a_.and_(edx, (kLanes - 1) * step);
  if (step > 1) {
    a_.test(al, step - 1);
    a_.jnz(other);
  }
  if (IsGlobalSpace(known.space)) {
    EmitCheckGlobal(known, low, high + step, write, other);
  } else {
    EmitCheckShared(known, low, high + step, other);
  }
  a_.mov(FirstWord(known.slot), rax);
  a_.mov(KindWord(known.slot), ecx);
  a_.bind(done);
  cold_.push_back([=, this, cached = cache_, end = high + step] {
    a_.bind(each);
    if (CanGather(known) && low >= 0) {
      cache_ = cached;
      EmitCheckEach(known, address, low, end, write, other);
      a_.mov(KindWord(known.slot), kGather);
      a_.jmp(done);
    }
    a_.bind(other);
    a_.mov(KindWord(known.slot), kUnknown);
    a_.jmp(done);
  });
  addresses_.push_back(known);
  return &addresses_.back();
}

bool NativeEmitter::CanGather(const KnownAddress& known) const {
  return known.step == 4 && known.wide == IsGlobalSpace(known.space);
}

void NativeEmitter::EmitCheckEach(const KnownAddress& known, const Parts& address, int64_t low,
                                  int64_t end, bool write, Label other) {
  a_.vporq(zmm28, address[0], address[1]);
  if (!known.wide) {
    a_.vptestmd(k7, zmm28, DETSHARE_BROADCAST32(three));
    a_.mov(eax, DETSHARE_CONTEXT(shared_bytes));
    a_.sub(eax, end);
    a_.jb(other);
    a_.vpbroadcastd(zmm28, eax);
    for (uint32_t p = 0; p < 2; ++p) {
      a_.vpcmpud(k6, address[p], zmm28, 6);
      a_.korw(k7, k7, k6);
    }
    a_.kortestw(k7, k7);
    a_.jnz(other);
    a_.mov(rax, DETSHARE_CONTEXT(shared));
    a_.mov(FirstWord(known.slot), rax);
    return;
  }
  a_.vporq(zmm29, address[2], address[3]);
  a_.vporq(zmm28, zmm28, zmm29);
  a_.vptestmq(k7, zmm28, DETSHARE_BROADCAST64(three));
  a_.kortestb(k7, k7);
  a_.jnz(other);
  for (const bool max : {false, true}) {
    const auto reduce = [&](auto to, auto x, auto y) {
      max ? a_.vpmaxuq(to, x, y) : a_.vpminuq(to, x, y);
    };
    // The other lanes are zeros, which only the minimum must leave out.
    a_.vpternlogd(zmm28, zmm28, zmm28, max ? 0 : 0xff);
    for (uint32_t p = 0; p < 4; ++p) {
      Masked(p, 4);
      reduce(zmm28, zmm28, address[p]);
    }
    a_.vextracti64x4(ymm29, zmm28, 1);
    reduce(ymm28, ymm28, ymm29);
    a_.vextracti64x2(xmm29, ymm28, 1);
    reduce(xmm28, xmm28, xmm29);
    a_.vpshufd(xmm29, xmm28, 0x4e);
    reduce(xmm28, xmm28, xmm29);
    a_.vmovq(max ? rdx : rax, xmm28);
  }
  a_.sub(rdx, rax);
  a_.mov(rsi, rdx);
  a_.shr(rsi, 32);
  a_.jnz(other);
  a_.mov(DistanceWord(known.slot), edx);
  a_.mov(ecx, kGather);
  EmitCheckGlobal(known, low, end, write, other);
  a_.mov(FirstWord(known.slot), rax);
}

// Accesses lane by lane, the lowest first. Changes zmm28 and zmm29.
void NativeEmitter::EmitGather(const Instr& in, const KnownAddress& known, const Parts& value,
                               bool store) {
  const uint32_t count = known.wide ? 4 : 2;
  const Cached* const cached = Find(known.operand);
  const int32_t offset = static_cast<int32_t>(in.imm);
  a_.mov(rax, FirstWord(known.slot));
  if (known.wide) {
    a_.lea(rdx, ptr(rax, offset));
    a_.mov(ecx, DistanceWord(known.slot));
    a_.add(rcx, rdx);
    a_.shr(rcx, 5);
    a_.shr(rdx, 5);
    a_.sub(rcx, rdx);
    a_.inc(rcx);
    some_lanes_ ? a_.popcnt(edx, r15d) : a_.mov(edx, kLanes);
    a_.cmp(rcx, rdx);
    a_.cmova(rcx, rdx);
    a_.add(qword_ptr(rbp, static_cast<int32_t>(offsetof(CostCounters, global_sectors))), rcx);
    const size_t bytes = store ? offsetof(CostCounters, global_bytes_written)
                               : offsetof(CostCounters, global_bytes_read);
    a_.shl(edx, 2);
    a_.add(qword_ptr(rbp, static_cast<int32_t>(bytes)), rdx);
    a_.xor_(eax, eax);
  }
  for (uint32_t p = 0; p < count; ++p) {
    Zmm at = zmm30;
    if (cached != nullptr) {
      at = cached->parts[p];
    } else {
      a_.vmovdqa64(zmm30, Place(known.operand, p));
    }
    const Mem place = ptr(rax, at, 0, offset);
    const KReg active[] = {k1, k2, k3, k4};
    some_lanes_ ? a_.kmovw(k6, active[p * 4 / count]) : a_.kxnorw(k6, k6, k6);
    if (!known.wide) {
      if (store) {
        a_.k(k6).vpscatterdd(place, value[p]);
      } else {
        a_.vpxord(zmm28, zmm28, zmm28);
        a_.k(k6).vpgatherdd(zmm28, place);
        if (p == 0) {
          a_.vmovdqa32(zmm31, zmm28);
        } else {
          Masked(1, 2).vmovdqa32(value[1], zmm28);
        }
      }
      continue;
    }
    if (store) {
      const Ymm half = Half(value[p / 2], p % 2, zmm28);
      a_.k(k6).vpscatterqd(place, half);
      continue;
    }
    a_.vpxord(zmm28, zmm28, zmm28);
    a_.k(k6).vpgatherqd(ymm28, place);
    if (p % 2 == 0) {
      a_.vmovdqa32(ymm31, ymm28);
    } else {
      a_.vinserti64x4(zmm31, zmm31, ymm28, 1);
      Masked(p / 2, 2).vmovdqa32(value[p / 2], zmm31);
    }
  }
  // Both parts of the address were needed before, and the destination may be the address.
  if (!known.wide && !store) Masked(0, 2).vmovdqa32(value[0], zmm31);
}

// A row is 32 accesses without gaps, here of several registers for each lane.
void NativeEmitter::LoadVectorRow(const std::vector<Parts>& to, const Meaning& m, Mem from) {
  const bool wide = m.type == Type::kB64;
  const auto at = [&](uint32_t vector) {
    Mem place = from;
    place.addOffset(64 * vector);
    return place;
  };
  for (uint32_t p = 0; p < to[0].count; ++p) {
    const uint32_t first = p * static_cast<uint32_t>(to.size());
    a_.vmovdqu32(zmm28, at(first));
    a_.vmovdqu32(zmm29, at(first + 1));
    for (uint32_t k = 0; k < to.size(); ++k) {
      const Zmm& z = to[k][p];
      a_.vmovdqa32(z, to.size() == 4 ? DETSHARE_CONSTANT(deal4).cloneAdjusted(64 * k)
                      : wide         ? DETSHARE_CONSTANT(deal2_64).cloneAdjusted(64 * k)
                                     : DETSHARE_CONSTANT(deal2).cloneAdjusted(64 * k));
      wide ? a_.vpermi2q(z, zmm28, zmm29) : a_.vpermi2d(z, zmm28, zmm29);
    }
    if (to.size() == 2) continue;
    a_.vmovdqu32(zmm28, at(first + 2));
    a_.vmovdqu32(zmm29, at(first + 3));
    for (uint32_t k = 0; k < 4; ++k) {
      a_.vmovdqa32(zmm30, DETSHARE_CONSTANT(deal4).cloneAdjusted(64 * k));
      a_.vpermi2d(zmm30, zmm28, zmm29);
      a_.vinserti64x4(to[k][p], to[k][p], ymm30, 1);
    }
  }
}

void NativeEmitter::StoreVectorRow(const std::vector<Parts>& from, const Meaning& m, Mem to) {
  const bool wide = m.type == Type::kB64;
  if (from.size() == 4) {
    a_.mov(edx, 0xcccc);
    a_.kmovd(k6, edx);
  }
  for (uint32_t p = 0; p < from[0].count; ++p) {
    for (uint32_t j = 0; j < from.size(); ++j) {
      Mem place = to;
      place.addOffset(64 * (p * from.size() + j));
      a_.vmovdqa32(zmm28, from.size() == 4 ? DETSHARE_CONSTANT(mix4).cloneAdjusted(64 * j)
                          : wide           ? DETSHARE_CONSTANT(mix2_64).cloneAdjusted(64 * j)
                                           : DETSHARE_CONSTANT(mix2).cloneAdjusted(64 * j));
      if (from.size() == 4) {
        a_.vmovdqa32(zmm29, zmm28);
        a_.vpermi2d(zmm29, from[2][p], from[3][p]);
      }
      wide ? a_.vpermi2q(zmm28, from[0][p], from[1][p])
           : a_.vpermi2d(zmm28, from[0][p], from[1][p]);
      if (from.size() == 4) a_.k(k6).vmovdqa32(zmm28, zmm29);
      a_.vmovdqu32(place, zmm28);
    }
  }
}

void NativeEmitter::LoadRow(const std::vector<Parts>& to, const Meaning& m, Mem from) {
  if (to.size() > 1) return LoadVectorRow(to, m, from);
  const auto at = [&](int32_t bytes) {
    Mem place = from;
    place.addOffset(bytes);
    return place;
  };
  for (uint32_t p = 0; p < to[0].count; ++p) {
    const Zmm& z = to[0][p];
    const int32_t part = static_cast<int32_t>(p);
    switch (m.type) {
      case Type::kU8:
        a_.vpmovzxbd(z, at(16 * part));
        break;
      case Type::kS8:
        a_.vpmovsxbd(z, at(16 * part));
        break;
      case Type::kU16:
        a_.vpmovzxwd(z, at(32 * part));
        break;
      case Type::kS16:
        a_.vpmovsxwd(z, at(32 * part));
        break;
      default:
        a_.vmovdqu32(z, at(64 * part));
    }
  }
}

void NativeEmitter::LoadOne(const std::vector<Parts>& to, const Meaning& m, Mem from) {
  for (size_t k = 0; k < to.size(); ++k) {
    Mem place = from;
    place.addOffset(static_cast<int64_t>(k * SizeOf(m.type)));
    const Parts& d = to[k];
    switch (m.type) {
      case Type::kU8:
        a_.movzx(edx, place.cloneResized(1));
        a_.vpbroadcastd(d[0], edx);
        break;
      case Type::kS8:
        a_.movsx(edx, place.cloneResized(1));
        a_.vpbroadcastd(d[0], edx);
        break;
      case Type::kU16:
        a_.movzx(edx, place.cloneResized(2));
        a_.vpbroadcastd(d[0], edx);
        break;
      case Type::kS16:
        a_.movsx(edx, place.cloneResized(2));
        a_.vpbroadcastd(d[0], edx);
        break;
      case Type::kB64:
        a_.vpbroadcastq(d[0], place);
        break;
      default:
        a_.vpbroadcastd(d[0], place);
    }
    for (uint32_t p = 1; p < d.count; ++p) a_.vmovdqa64(d[p], d[0]);
  }
}

void NativeEmitter::StoreRow(const std::vector<Parts>& values, const Meaning& m, Mem to) {
  if (values.size() > 1) return StoreVectorRow(values, m, to);
  const Parts& from = values[0];
  for (uint32_t p = 0; p < from.count; ++p) {
    Mem place = to;
    switch (SizeOf(m.type)) {
      case 1:
        place.addOffset(16 * p);
        a_.vpmovdb(place, from[p]);
        break;
      case 2:
        place.addOffset(32 * p);
        a_.vpmovdw(place, from[p]);
        break;
      default:
        place.addOffset(64 * p);
        a_.vmovdqu32(place, from[p]);
    }
  }
}

// rax: the host pointer of lane 0.
void NativeEmitter::CountGlobal(const Instr& in, uint32_t step, bool write, bool row) {
  const size_t bytes = write ? offsetof(CostCounters, global_bytes_written)
                             : offsetof(CostCounters, global_bytes_read);
  a_.add(qword_ptr(rbp, static_cast<int32_t>(bytes)), kLanes * step);
  const Mem sectors = qword_ptr(rbp, static_cast<int32_t>(offsetof(CostCounters, global_sectors)));
  if (!row) {
    a_.add(sectors, 1);
    return;
  }
  // An access is aligned and not larger than a sector, so there are not more sectors than lanes.
  a_.lea(edx, ptr(rax, static_cast<int32_t>(in.imm)));
  a_.and_(edx, 31);
  a_.add(edx, (kLanes - 1) * step + 32);
  a_.shr(edx, 5);
  a_.add(sectors, rdx);
}

bool NativeEmitter::EmitMemory(uint32_t i, const Meaning& m) {
  const Instr& in = function_.code[i];
  const bool store = m.kind == Meaning::Kind::kStore, global = IsGlobalSpace(m.memory.space);
  const uint32_t vector = VectorOf(in, m), step = SizeOf(m.type) * vector;
  if (in.aux != 0 || step > 16 || in.imm % step != 0 || std::abs(in.imm) >= kMaxOffset)
    return false;
  if (global && !m.memory.address64) return false;
  const bool gathers = vector == 1 && step == 4 && global == m.memory.address64;
  if (some_lanes_ && !gathers) return false;
  const uint32_t parts = m.type == Type::kB64 ? 4 : 2;
  const KnownAddress* const found = FindAddress(i, m, step);
  if (found == nullptr) return false;
  const KnownAddress known = *found;
  const uint32_t slot = known.slot;
  std::vector<int32_t> registers = {store ? in.b : in.d};
  if (vector > 1)
    registers.assign(&function_.extras[in.extra], &function_.extras[in.extra] + vector);
  std::vector<Parts> values;
  for (int32_t r : registers) {
    if (store) values.push_back(Source(r, parts));
  }
  std::vector<Cached> old = cache_;
  for (int32_t r : registers) {
    if (!store) values.push_back(Destination(r, parts));
  }
  const Label slow = a_.newLabel(), one = a_.newLabel(), done = a_.newLabel();
  if (some_lanes_) {
    a_.cmp(KindWord(slot), kGather);
    a_.jne(slow);
    EmitGather(in, known, values[0], store);
    HandleInstead(i, slow, Remaining(old));
    return true;
  }
  const Mem place = ptr(rax, static_cast<int32_t>(in.imm));
  a_.mov(rax, FirstWord(slot));
  a_.cmp(KindWord(slot), kOneAddress);
  if (store) {
    // Stores to one address are for the handler: the last lane's value stays.
    a_.jae(slow);
    StoreRow(values, m, place);
    if (global) CountGlobal(in, step, true, true);
  } else {
    a_.ja(slow);
    a_.je(one);
    LoadRow(values, m, place);
    if (global) {
      CountGlobal(in, step, false, true);
      // The next warp mostly loads what follows.
      for (uint32_t at = kLanes * step; at < 2 * kLanes * step; at += 64)
        a_.prefetcht0(byte_ptr(rax, static_cast<int32_t>(in.imm + at)));
    }
    a_.jmp(done);
    a_.bind(one);
    LoadOne(values, m, place);
    if (global) CountGlobal(in, step, false, false);
    a_.bind(done);
  }
  old = Remaining(old);
  if (gathers) {
    const Label handler = a_.newLabel();
    // The address is where it was in front of the instruction.
    cold_.push_back([this, slow, handler, in = &in, known, value = values[0], store, old, slot,
                     resume = *resume_] {
      a_.bind(slow);
      a_.cmp(KindWord(slot), store ? kOneAddress : kUnknown);
      a_.je(handler);
      if (store) {
        a_.cmp(KindWord(slot), kUnknown);
        a_.je(handler);
      }
      cache_ = old;
      EmitGather(*in, known, value, store);
      a_.jmp(resume);
    });
    HandleInstead(i, handler, old);
    return true;
  }
  HandleInstead(i, slow, old);
  return true;
}

void NativeEmitter::EmitKernelParam(const Instr& in, const Meaning& m) {
  const bool wide = m.type == Type::kB64;
  const uint32_t count = wide ? 4 : 2;
  const Parts d = Destination(in.d, count);
  a_.mov(rax, DETSHARE_CONTEXT(kernel_params));
  const Mem place = ptr(rax, static_cast<int32_t>(in.imm));
  for (uint32_t p = 0; p < count; ++p) {
    if (wide) {
      Masked(p, count).vpbroadcastq(d[p], place);
    } else {
      Masked(p, count).vpbroadcastd(d[p], place);
    }
  }
}

}  // namespace detshare::soft::ptx
