// What the environment leaves of module images: CUDA_FORCE_PTX_JIT=1 has PTX compiled even where
// there is machine code, CUDA_DISABLE_PTX_JIT=1 has it never compiled.
#pragma once

#include <deque>
#include <string>

#include "client_shim/code/image_size.h"
#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

enum class CodeChoice { kAny, kPtxOnly, kMachineCodeOnly };

// What both variables say together; read once. To disable wins.
CodeChoice CodeChoiceOfProcess();

// Leaves out of the pieces what was not chosen. Where something was left out of a fatbin, what
// remains of it lies in `storage`. CUDA_ERROR_NO_BINARY_FOR_GPU: there is no PTX;
// CUDA_ERROR_JIT_COMPILATION_DISABLED: there is nothing else.
CUresult ChooseCode(CodeChoice choice, ImagePieces* pieces, std::deque<std::string>* storage);

}  // namespace detshare::shim
