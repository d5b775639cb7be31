// Which registers the native code holds in vectors.
#include <algorithm>

#include "server/backends/soft/ptx/native_emitter.h"
#include "server/backends/soft/ptx/native_operands.h"

namespace detshare::soft::ptx {

using namespace asmjit::x86;

namespace {
constexpr uint32_t kVectors = 28;  // for cached registers
}

NativeEmitter::Mem NativeEmitter::Place(int32_t operand, uint32_t part) const {
  return asmjit::x86::zmmword_ptr(operand < 0 ? r13 : r12,
                                  static_cast<int32_t>((operand & 0x7fffffff) + 64 * part));
}

NativeEmitter::Cached* NativeEmitter::Find(int32_t operand) {
  for (Cached& c : cache_) {
    if (c.operand == operand) return &c;
  }
  return nullptr;
}

// The next instruction of the chain that names the operand.
uint32_t NativeEmitter::NextUse(int32_t operand) const {
  const uint32_t end = std::min(chain_end_, instr_ + 64);
  for (uint32_t i = instr_ + 1; i < end; ++i) {
    const Instr& in = function_.code[i];
    if (in.a == operand || in.b == operand || in.c == operand || in.e == operand || in.d == operand)
      return i;
    for (uint32_t k = 0; k < in.count; ++k) {
      if (function_.extras[in.extra + k] == operand) return i;
    }
  }
  return end;
}

void NativeEmitter::Canonicalise(Cached* cached) {
  if (!cached->raw) return;
  cached->raw = false;
  // Mostly there is no NaN. One comparison finds those of both vectors.
  const Label fix = a_.newLabel(), done = a_.newLabel();
  const Parts p = cached->parts;
  a_.vcmpps(k6, p[0], p[1], kUnordered);
  a_.kortestw(k6, k6);
  a_.jnz(fix);
  a_.bind(done);
  cold_.push_back([this, fix, done, p] {
    a_.bind(fix);
    for (uint32_t i = 0; i < 2; ++i) FixActiveNan(i, p[i]);
    a_.jmp(done);
  });
}

void NativeEmitter::Store(Cached* cached) {
  Canonicalise(cached);
  for (uint32_t p = 0; p < cached->parts.count; ++p)
    a_.vmovdqa64(Place(cached->operand, p), cached->parts[p]);
  cached->dirty = false;
}

void NativeEmitter::Evict(size_t index) {
  Cached& c = cache_[index];
  if (c.dirty) Store(&c);
  for (uint32_t p = 0; p < c.parts.count; ++p) free_ |= 1u << c.parts[p].id();
  cache_.erase(cache_.begin() + static_cast<long>(index));
}

NativeEmitter::Parts NativeEmitter::Allocate(uint32_t count) {
  while (static_cast<uint32_t>(__builtin_popcount(free_)) < count) {
    size_t worst = cache_.size();
    uint32_t farthest = 0;
    for (size_t i = 0; i < cache_.size(); ++i) {
      if (cache_[i].used_at == instr_) continue;
      const uint32_t next = NextUse(cache_[i].operand);
      if (worst == cache_.size() || next > farthest) {
        worst = i;
        farthest = next;
      }
    }
    Evict(worst);
  }
  Parts parts;
  parts.count = count;
  for (uint32_t p = 0; p < count; ++p) {
    const uint32_t id = static_cast<uint32_t>(__builtin_ctz(free_));
    free_ &= free_ - 1;
    parts.z[p] = Zmm(id);
  }
  return parts;
}

NativeEmitter::Parts NativeEmitter::RawSource(int32_t operand, uint32_t count) {
  if (Cached* c = Find(operand)) {
    c->used_at = instr_;
    return c->parts;
  }
  const Parts parts = Allocate(count);
  for (uint32_t p = 0; p < count; ++p) a_.vmovdqa64(parts[p], Place(operand, p));
  cache_.push_back({operand, parts, false, false, instr_});
  return parts;
}

NativeEmitter::Parts NativeEmitter::Source(int32_t operand, uint32_t count) {
  if (Cached* c = Find(operand)) Canonicalise(c);
  return RawSource(operand, count);
}

// The caller has its sources, and writes the active lanes of every part.
NativeEmitter::Parts NativeEmitter::Destination(int32_t operand, uint32_t count) {
  ForgetAddress(operand);
  Cached* c = Find(operand);
  if (c == nullptr && !AllLanes()) {
    RawSource(operand, count);
    c = Find(operand);
  }
  if (c == nullptr) {
    const Parts parts = Allocate(count);
    cache_.push_back({operand, parts, false, false, instr_});
    c = &cache_.back();
  }
  // A guarded instruction leaves other lanes as they are.
  if (guarded_) Canonicalise(c);
  c->used_at = instr_;
  c->dirty = true;
  c->raw = false;
  return c->parts;
}

void NativeEmitter::SetRaw(int32_t operand, bool raw) { Find(operand)->raw = raw; }

void NativeEmitter::StoreDirty() {
  for (Cached& c : cache_) {
    if (c.dirty) Store(&c);
  }
}

// For cold code: the vectors keep their bits.
void NativeEmitter::StoreCold(const std::vector<Cached>& cached) {
  for (const Cached& c : cached) {
    if (!c.dirty) continue;
    for (uint32_t p = 0; p < c.parts.count; ++p) {
      if (!c.raw) {
        a_.vmovdqa64(Place(c.operand, p), c.parts[p]);
        continue;
      }
      a_.vmovdqa64(zmm28, c.parts[p]);
      FixActiveNan(p, zmm28);
      a_.vmovdqa64(Place(c.operand, p), zmm28);
    }
  }
}

void NativeEmitter::LoadCold(const std::vector<Cached>& cached) {
  for (const Cached& c : cached) {
    for (uint32_t p = 0; p < c.parts.count; ++p) a_.vmovdqa64(c.parts[p], Place(c.operand, p));
  }
}

std::vector<NativeEmitter::Cached> NativeEmitter::Remaining(const std::vector<Cached>& old) {
  std::vector<Cached> remaining;
  for (const Cached& c : old) {
    if (Find(c.operand) != nullptr) remaining.push_back(c);
  }
  return remaining;
}

void NativeEmitter::ForgetAll() {
  cache_.clear();
  free_ = (1u << kVectors) - 1;
}

}  // namespace detshare::soft::ptx
