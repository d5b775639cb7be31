#include "client_shim/entry/process.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <mutex>

#include "client_shim/base/gate.h"
#include "client_shim/memory/host_memory.h"
#include "client_shim/memory/managed_mapping.h"
#include "client_shim/memory/memory_pools.h"
#include "client_shim/objects/current_context.h"
#include "client_shim/objects/objects.h"
#include "client_shim/transport/connection.h"
#include "client_shim/transport/read_digest.h"
#include "client_shim/transport/session.h"
#include "proto/version.h"

namespace detshare::shim {
namespace {

// Held while a session is opened. A fork waits for it, so that no child starts in the middle.
std::mutex g_opening;
std::atomic<bool> g_dead{false};  // a child whose parent had a session, or a process that was torn
                                  // down

void BeforeFork() { g_opening.lock(); }
void AfterForkInParent() { g_opening.unlock(); }
void AfterForkInChild() {
  g_opening.unlock();
  if (g_session == nullptr && Connection::started()) {
    // The daemon refused the parent a session. gRPC cannot start a second time in a child.
    g_dead.store(true, std::memory_order_relaxed);
    return;
  }
  if (g_session == nullptr || g_dead.load(std::memory_order_relaxed)) return;
  g_dead.store(true, std::memory_order_relaxed);
  g_gate.store(CUDA_ERROR_NOT_INITIALIZED, std::memory_order_release);
  g_session->CloseInChild();
  KeepRegisteredMemoryInChild();
}

// Runs after the exit handlers that the program registered since cuInit, and before earlier ones.
// The CUDA runtime's handler is an earlier one; it would end the contexts while threads still use
// them. The earlier handlers get CUDA_ERROR_DEINITIALIZED, as with the real driver. Everything else
// stays as it is.
void TearDown() {
  if (g_gate.load(std::memory_order_acquire) != CUDA_SUCCESS) return;
  g_session->DrainOutput();
  EndManagedMappings();
  FinishReadDigest();
  g_dead.store(true, std::memory_order_relaxed);
  g_gate.store(CUDA_ERROR_DEINITIALIZED, std::memory_order_release);
}

}  // namespace

CUresult Initialise() {
  const CUresult gate = g_gate.load(std::memory_order_acquire);
  if (gate == CUDA_SUCCESS || gate == CUDA_ERROR_DEINITIALIZED) return gate;
  const std::lock_guard lock(g_opening);
  if (g_dead.load(std::memory_order_relaxed)) return CUDA_ERROR_NOT_INITIALIZED;
  if (g_gate.load(std::memory_order_acquire) == CUDA_SUCCESS) return CUDA_SUCCESS;
  static const int watched = pthread_atfork(BeforeFork, AfterForkInParent, AfterForkInChild);
  if (watched != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  static const int ended = atexit(TearDown);
  if (ended != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = CUDA_ERROR_UNKNOWN;
  Session* session = Session::Open(&result);
  if (session == nullptr) return result;
  CreateObjects();
  objects().streams.SetLimit(session->object_limits().streams);
  objects().events.SetLimit(session->object_limits().events);
  g_session = session;
  CreatePrimaryContexts();
  CreateDefaultMemoryPools();
  g_gate.store(CUDA_SUCCESS, std::memory_order_release);
  return CUDA_SUCCESS;
}

}  // namespace detshare::shim

// Lets people identify a file of unknown origin.
extern "C" __attribute__((visibility("default"))) const char detshare_shim_version[] =
    DETSHARE_VERSION;
