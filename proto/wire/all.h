// All operations that cross from client to daemon. For the generated dispatch.
#pragma once

#include "proto/wire/array.h"
#include "proto/wire/context.h"
#include "proto/wire/copy.h"
#include "proto/wire/event.h"
#include "proto/wire/graph.h"
#include "proto/wire/ipc.h"
#include "proto/wire/launch.h"
#include "proto/wire/launch_hints.h"
#include "proto/wire/library.h"
#include "proto/wire/memory.h"
#include "proto/wire/occupancy.h"
#include "proto/wire/peer.h"
#include "proto/wire/stream.h"
#include "proto/wire/stream_memory_op.h"
#include "proto/wire/tensor_map.h"
#include "proto/wire/virtual_memory.h"
