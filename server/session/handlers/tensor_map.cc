// Tensor maps. The address in a tensor map need not be mapped or belong to the session, because
// encoding a map does not access memory.
#include "proto/wire/tensor_map.h"

#include <algorithm>
#include <iterator>

#include "coroutine_runtime/device.h"
#include "coroutine_runtime/device_tensor_map.h"
#include "server/session/handlers/common.h"

namespace detshare::handlers {
namespace {

static_assert(wire::kTensorRank == kTensorRankLimit);

// Lies above all values of the CUDA enumerations used here, with room for later CUDA versions. The
// driver never gets values beyond it.
constexpr uint32_t kEnumerationLimit = 256;

// Fills in what all kinds of tensor maps have in common. Returns false for arguments that the shim
// never sends.
template <typename Args>
bool Describe(const Args& args, TensorMapRequest* request) {
  for (const uint32_t value : {args.data_type, args.interleave, args.swizzle, args.l2_promotion,
                               args.out_of_bounds_fill}) {
    if (value >= kEnumerationLimit) return false;
  }
  if (args.rank == 0 || args.rank > kTensorRankLimit) return false;
  request->data_type = args.data_type;
  request->rank = args.rank;
  request->address = args.address;
  std::copy(std::begin(args.dimensions), std::end(args.dimensions), request->dimensions.begin());
  std::copy(std::begin(args.strides), std::end(args.strides), request->strides.begin());
  std::copy(std::begin(args.element_strides), std::end(args.element_strides),
            request->element_strides.begin());
  request->interleave = args.interleave;
  request->swizzle = args.swizzle;
  request->l2_promotion = args.l2_promotion;
  request->out_of_bounds_fill = args.out_of_bounds_fill;
  return true;
}

template <typename Body>
void Send(const absl::StatusOr<TensorMap>& map, Reply& reply) {
  Body body;
  if (!map.ok()) {
    TensorMap partial;
    if (!GetPartialTensorMap(map.status(), &partial)) return reply.Send(map.status());
    std::copy(partial.begin(), partial.end(), body.map);
    return reply.SendBytes(map.status(), {reinterpret_cast<const uint8_t*>(&body), sizeof(body)});
  }
  std::copy(map->begin(), map->end(), body.map);
  reply.Send(body);
}

void Refuse(Reply& reply) {
  reply.Send(CudaError(kCudaErrorInvalidValue, "invalid arguments of a tensor map"));
}

template <typename Body>
void Encode(Session& session, const TensorMapRequest& request, Reply& reply) {
  TensorMapEncoder* const encoder = session.device().device->tensor_maps();
  if (encoder == nullptr)
    return reply.Send(CudaError(kCudaErrorNotSupported, "the device does not support tensor maps"));
  Send<Body>(encoder->Encode(request), reply);
}

}  // namespace

void cuTensorMapEncodeTiled(Session& session, const wire::cuTensorMapEncodeTiled& args, Payload,
                            Reply& reply) {
  TensorMapRequest request;
  if (!Describe(args, &request)) return Refuse(reply);
  request.kind = TensorMapRequest::Kind::kTiled;
  std::copy(std::begin(args.box), std::end(args.box), request.box.begin());
  Encode<wire::cuTensorMapEncodeTiled_Reply>(session, request, reply);
}

void cuTensorMapEncodeIm2col(Session& session, const wire::cuTensorMapEncodeIm2col& args, Payload,
                             Reply& reply) {
  TensorMapRequest request;
  if (!Describe(args, &request) || args.rank < 3) return Refuse(reply);
  request.kind = TensorMapRequest::Kind::kIm2col;
  std::copy(std::begin(args.lower_corner), std::end(args.lower_corner),
            request.lower_corner.begin());
  std::copy(std::begin(args.upper_corner), std::end(args.upper_corner),
            request.upper_corner.begin());
  request.channels_per_pixel = args.channels_per_pixel;
  request.pixels_per_column = args.pixels_per_column;
  Encode<wire::cuTensorMapEncodeIm2col_Reply>(session, request, reply);
}

void cuTensorMapEncodeIm2colWide(Session& session, const wire::cuTensorMapEncodeIm2colWide& args,
                                 Payload, Reply& reply) {
  TensorMapRequest request;
  if (!Describe(args, &request) || args.rank < 3 || args.mode >= kEnumerationLimit)
    return Refuse(reply);
  request.kind = TensorMapRequest::Kind::kIm2colWide;
  request.lower_corner[0] = args.lower_corner_width;
  request.upper_corner[0] = args.upper_corner_width;
  request.channels_per_pixel = args.channels_per_pixel;
  request.pixels_per_column = args.pixels_per_column;
  request.wide_mode = args.mode;
  Encode<wire::cuTensorMapEncodeIm2colWide_Reply>(session, request, reply);
}

void cuTensorMapReplaceAddress(Session& session, const wire::cuTensorMapReplaceAddress& args,
                               Payload, Reply& reply) {
  TensorMapEncoder* const encoder = session.device().device->tensor_maps();
  if (encoder == nullptr)
    return reply.Send(CudaError(kCudaErrorNotSupported, "the device does not support tensor maps"));
  TensorMap map;
  std::copy(std::begin(args.map), std::end(args.map), map.begin());
  Send<wire::cuTensorMapReplaceAddress_Reply>(encoder->ReplaceAddress(map, args.address), reply);
}

}  // namespace detshare::handlers
