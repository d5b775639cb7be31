// Sharing events and memory between processes of one user: ring.
#pragma once

#include <cstdint>

#include "proto/ring_abi.h"

namespace detshare::wire {

// What travels between processes in the place of an object: random, given out by the daemon.
struct IpcToken {
  uint8_t bytes[16];
};

// The event was created with CU_EVENT_INTERPROCESS. The same event gives the same token.
struct cuIpcGetEventHandle {
  EventId event;
  uint32_t reserved;
};
struct cuIpcGetEventHandle_Answer {
  IpcToken token;
};

// Names another process's event in this session. The id is the client's choice and must be free.
struct cuIpcOpenEventHandle {
  IpcToken token;
  EventId event;
  ContextId context;  // of the event's device
};

// `address`: in an allocation of cuMemAlloc. The same allocation gives the same token.
struct cuIpcGetMemHandle {
  uint64_t address;
};
struct cuIpcGetMemHandle_Answer {
  IpcToken token;
};

// For work of the record's device; opened again, the answer is the same, and one more close is
// needed.
struct cuIpcOpenMemHandle_v2 {
  IpcToken token;
  ContextId context;  // it is closed with this one at the latest
  uint32_t reserved;
};
struct cuIpcOpenMemHandle_v2_Answer {
  uint64_t address;  // of the allocation
  uint64_t bytes;
  uint32_t device;  // of the session, to which the memory belongs
  uint32_t reserved;
};

// Answered when no work that was submitted before can touch the memory any more.
struct cuIpcCloseMemHandle {
  uint64_t address;
};
struct cuIpcCloseMemHandle_Answer {
  uint32_t still_open;  // 1: it was opened more often
  uint32_t reserved;
};

}  // namespace detshare::wire
