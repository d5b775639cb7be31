// cuda.h with all versioned prototypes and without its renaming macros. Plain cuda.h turns
// cuMemAlloc into cuMemAlloc_v2. Code that defines or names driver entry points needs both
// functions under their own names. Include this before any header that includes cuda.h.
#pragma once

#if defined(__cuda_cuda_h__) && !defined(__CUDA_API_VERSION_INTERNAL)
#error "cuda.h was included before cuda_unrenamed.h"
#endif

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif

#include <cuda.h>
#include <cudaProfiler.h>
