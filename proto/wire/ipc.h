// Sharing of events and memory between processes of one user. Transport: ring.
#pragma once

#include <cstdint>

#include "proto/ring_abi.h"

namespace detshare::wire {

// A random value of the daemon. Processes pass it to each other to name a shared object.
struct IpcToken {
  uint8_t bytes[16];
};

// For events that were created with CU_EVENT_INTERPROCESS. One event always gives the same token.
struct cuIpcGetEventHandle {
  EventId event;
  uint32_t reserved;
};
struct cuIpcGetEventHandle_Reply {
  IpcToken token;
};

// Gives another process's event an id in this session. The client chooses the id, which must be
// free.
struct cuIpcOpenEventHandle {
  IpcToken token;
  EventId event;
  ContextId context;  // a context of the event's device
};

// `address` is in an allocation of cuMemAlloc. One allocation always gives the same token.
struct cuIpcGetMemHandle {
  uint64_t address;
};
struct cuIpcGetMemHandle_Reply {
  IpcToken token;
};

// Maps the memory for work of the record's device. Opening it again gives the same reply and needs
// one more close.
struct cuIpcOpenMemHandle_v2 {
  IpcToken token;
  ContextId context;  // the memory is closed with this context at the latest
  uint32_t reserved;
};
struct cuIpcOpenMemHandle_v2_Reply {
  uint64_t address;  // of the allocation
  uint64_t bytes;
  uint32_t device;  // the session's device that the memory is on
  uint32_t reserved;
};

// The reply comes when no earlier work can access the memory.
struct cuIpcCloseMemHandle {
  uint64_t address;
};
struct cuIpcCloseMemHandle_Reply {
  uint32_t still_open;  // 1: it was opened more often than closed
  uint32_t reserved;
};

}  // namespace detshare::wire
