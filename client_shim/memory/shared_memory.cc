#include "client_shim/memory/shared_memory.h"

#include <atomic>

namespace detshare::shim {
namespace {

// Publishes nothing else: a thread that copies to memory knows from the thread that shared it.
std::atomic<bool> g_shares_memory{false};

}  // namespace

void NoteSharedMemory() { g_shares_memory.store(true, std::memory_order_relaxed); }
bool SharesMemory() { return g_shares_memory.load(std::memory_order_relaxed); }

}  // namespace detshare::shim
