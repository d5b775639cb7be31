// Records events and waits for them. On a stream this is work of the stream. While the stream
// captures, it becomes part of a graph.
#pragma once

#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

// Does what cuEventRecordWithFlags does. Any thread.
CUresult RecordOnStream(CUevent handle, CUstream stream_handle, unsigned int flags);
// Does what cuStreamWaitEvent does. Any thread.
CUresult WaitOnStream(CUstream stream_handle, CUevent handle, unsigned int flags);

}  // namespace detshare::shim
