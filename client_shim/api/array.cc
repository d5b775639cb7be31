// Arrays and mipmapped arrays.
#include "client_shim/memory/arrays.h"
#include "client_shim/transport/session.h"
#include "proto/driver_api/shim_api.h"

namespace detshare::shim::api {
namespace {

CUDA_ARRAY_DESCRIPTOR Flat(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  CUDA_ARRAY_DESCRIPTOR flat{};
  flat.Width = d.Width;
  flat.Height = d.Height;
  flat.Format = d.Format;
  flat.NumChannels = d.NumChannels;
  return flat;
}

// The result that the driver gives for other arrays in calls about sparse, deferred and planar
// arrays.
CUresult NotOfThatKind(const ArrayObject* array) {
  return array == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* pAllocateArray) {
  CUDA_ARRAY3D_DESCRIPTOR description{};
  description.Width = pAllocateArray->Width;
  description.Height = pAllocateArray->Height;
  description.Format = pAllocateArray->Format;
  description.NumChannels = pAllocateArray->NumChannels;
  return CreateArray(description, pHandle);
}

CUresult cuArray3DCreate_v2(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) {
  return CreateArray(*pAllocateArray, pHandle);
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
  const ArrayObject* const array = FindArray(hArray);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *pArrayDescriptor = Flat(array->description);
  return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
  const ArrayObject* const array = FindArray(hArray);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *pArrayDescriptor = array->description;
  return CUDA_SUCCESS;
}

CUresult cuArrayDestroy(CUarray hArray) { return DestroyArray(hArray); }

CUresult cuMipmappedArrayCreate(CUmipmappedArray* pHandle,
                                const CUDA_ARRAY3D_DESCRIPTOR* pMipmappedArrayDesc,
                                unsigned int numMipmapLevels) {
  return CreateMipmappedArray(*pMipmappedArrayDesc, numMipmapLevels, pHandle);
}

CUresult cuMipmappedArrayGetLevel(CUarray* pLevelArray, CUmipmappedArray hMipmappedArray,
                                  unsigned int level) {
  return GetLevel(hMipmappedArray, level, pLevelArray);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
  return DestroyMipmappedArray(hMipmappedArray);
}

CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*, CUarray array) {
  return NotOfThatKind(FindArray(array));
}
CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*,
                                             CUmipmappedArray mipmap) {
  return NotOfThatKind(FindMipmappedArray(mipmap));
}
CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS*, CUarray array, CUdevice) {
  return NotOfThatKind(FindArray(array));
}
CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS*,
                                               CUmipmappedArray mipmap, CUdevice) {
  return NotOfThatKind(FindMipmappedArray(mipmap));
}
CUresult cuArrayGetPlane(CUarray*, CUarray hArray, unsigned int) {
  return NotOfThatKind(FindArray(hArray));
}

}  // namespace detshare::shim::api
