// Recording events and waiting for them: work of the stream, or of a graph while the stream
// captures.
#pragma once

#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

// What cuEventRecordWithFlags does.
CUresult RecordOnStream(CUevent handle, CUstream stream_handle, unsigned int flags);
// What cuStreamWaitEvent does.
CUresult WaitOnStream(CUstream stream_handle, CUevent handle, unsigned int flags);

}  // namespace detshare::shim
