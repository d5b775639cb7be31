// Access of devices to each other's memory.
#include "proto/wire/peer.h"

#include "client_shim/objects/current_context.h"
#include "client_shim/transport/session.h"
#include "proto/driver_api/shim_api.h"

namespace detshare::shim::api {
namespace {

int PeerAttribute(CUdevice device, CUdevice peer, CUdevice_P2PAttribute attribute) {
  return session().device(static_cast<uint16_t>(device)).peers[peer][attribute];
}

// Finds the current context and another context that exists.
CUresult CurrentAndPeer(CUcontext handle, Context** context, Context** peer) {
  const CUresult result = ContextForWork(context);
  if (result != CUDA_SUCCESS) return result;
  *peer = FindContext(handle);
  if (*peer == nullptr || *peer == *context || (*peer)->id.load(std::memory_order_acquire) == 0)
    return CUDA_ERROR_INVALID_CONTEXT;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuDeviceCanAccessPeer(int* canAccessPeer, CUdevice dev, CUdevice peerDev) {
  if (!session().HasDevice(dev) || !session().HasDevice(peerDev)) return CUDA_ERROR_INVALID_DEVICE;
  *canAccessPeer = PeerAttribute(dev, peerDev, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
                                 CUdevice dstDevice) {
  if (!session().HasDevice(srcDevice) || !session().HasDevice(dstDevice) || srcDevice == dstDevice)
    return CUDA_ERROR_INVALID_DEVICE;
  if (attrib < CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ||
      attrib > CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *value = PeerAttribute(srcDevice, dstDevice, attrib);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAtomicCapabilities(unsigned int*, const CUatomicOperation*, unsigned int,
                                          CUdevice srcDevice, CUdevice dstDevice) {
  if (!session().HasDevice(srcDevice) || !session().HasDevice(dstDevice) || srcDevice == dstDevice)
    return CUDA_ERROR_INVALID_DEVICE;
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
  if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Context *context, *peer;
  const CUresult result = CurrentAndPeer(peerContext, &context, &peer);
  if (result != CUDA_SUCCESS) return result;
  if (PeerAttribute(context->device, peer->device, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED) == 0)
    return CUDA_ERROR_INVALID_DEVICE;
  return session().Call(
      Op::cuCtxEnablePeerAccess, context->device, context->id.load(std::memory_order_acquire),
      wire::cuCtxEnablePeerAccess{peer->id.load(std::memory_order_acquire), peer->device});
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext) {
  Context *context, *peer;
  const CUresult result = CurrentAndPeer(peerContext, &context, &peer);
  if (result != CUDA_SUCCESS) return result;
  return session().Call(Op::cuCtxDisablePeerAccess, context->device,
                        context->id.load(std::memory_order_acquire),
                        wire::cuCtxDisablePeerAccess{peer->id.load(std::memory_order_acquire), 0});
}

}  // namespace detshare::shim::api
