// Events of whole contexts. Such an event is recorded behind all work that a context's streams
// have, or all later work of these streams waits for it. Any thread.
#pragma once

#include "client_shim/objects/objects.h"
#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

// Records `event`, which belongs to the context, behind the context's work so far. That is the work
// of a green context's streams, or the work of a primary context and its green contexts.
CUresult RecordContext(Context& context, Event& event);

// Lets the context's streams wait for the event's last recording. Streams that are made in the
// context later wait, too.
CUresult HoldContext(Context& context, CUevent event);

// For a stream that was just made in the context: lets it wait as HoldContext says.
CUresult HoldNewStream(Context& context, Stream& stream);

}  // namespace detshare::shim
