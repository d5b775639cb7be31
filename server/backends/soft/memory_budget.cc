#include "server/backends/soft/memory_budget.h"

#include <algorithm>

namespace detshare::soft {

uint64_t MemoryBudget::UsedByOthers() const {
  uint64_t sum = 0;
  processes_.ForEachOther(
      [&](const CardProcesses::Words& words) { sum += std::min(words.used.load(), total_); });
  return sum;
}

uint64_t MemoryBudget::used() const { return std::min(own().load() + UsedByOthers(), total_); }

bool MemoryBudget::Take(uint64_t bytes) {
  uint64_t before = own().load();
  do {
    if (bytes > total_ - before) return false;
  } while (!own().compare_exchange_weak(before, before + bytes));
  if (own().load() <= total_ - std::min(total_, UsedByOthers())) return true;
  Give(bytes);
  return false;
}

void MemoryBudget::Give(uint64_t bytes) { own().fetch_sub(bytes); }

}  // namespace detshare::soft
