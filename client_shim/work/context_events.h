// Events of whole contexts: recorded behind everything that a context's streams do, or waited for
// by everything that they will do.
#pragma once

#include "client_shim/objects/objects.h"
#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

// Records `event`, which belongs to the context, behind the work so far of the context's streams:
// those of a green context, or of a primary context and its green contexts.
CUresult RecordContext(Context& context, Event& event);

// Lets the context's streams, and those that are made in it later, wait for the event's last
// recording.
CUresult HoldContext(Context& context, CUevent event);

// For a stream that was just made in the context: lets it wait as HoldContext says.
CUresult HoldNewStream(Context& context, Stream& stream);

}  // namespace detshare::shim
