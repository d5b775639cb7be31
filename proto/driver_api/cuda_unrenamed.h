// cuda.h with every versioned prototype visible and none renamed. Plain cuda.h turns cuMemAlloc
// into cuMemAlloc_v2 by a macro; code that defines or names driver entry points needs both names to
// mean what they say. Include this before anything that includes cuda.h.
#pragma once

#if defined(__cuda_cuda_h__) && !defined(__CUDA_API_VERSION_INTERNAL)
#error "cuda.h was included before cuda_unrenamed.h"
#endif

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif

#include <cuda.h>
#include <cudaProfiler.h>
