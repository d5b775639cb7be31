// Applies two environment variables to module images. With CUDA_FORCE_PTX_JIT=1 PTX is compiled
// even where there is machine code. With CUDA_DISABLE_PTX_JIT=1 it is never compiled.
#pragma once

#include <deque>
#include <string>

#include "client_shim/code/image_size.h"
#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

enum class CodeChoice { kAny, kPtxOnly, kMachineCodeOnly };

// The choice that both variables make together. They are read once. CUDA_DISABLE_PTX_JIT wins.
CodeChoice CodeChoiceOfProcess();

// Removes from the pieces the code that was not chosen. If something was removed from a fatbin, the
// rest of that fatbin lies in `storage`. CUDA_ERROR_NO_BINARY_FOR_GPU: PTX is wanted and there is
// none. CUDA_ERROR_JIT_COMPILATION_DISABLED: machine code is wanted and there is only PTX.
CUresult ChooseCode(CodeChoice choice, ImagePieces* pieces, std::deque<std::string>* storage);

}  // namespace detshare::shim
