// Stream capture.
#include "client_shim/work/graph/capture.h"

#include <cstring>

#include "client_shim/work/streams.h"
#include "proto/driver_api/shim_api.h"

namespace detshare::shim::api {

CUresult cuStreamBeginCapture(CUstream hStream) {
  return api::cuStreamBeginCapture_v2(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  Stream* stream;
  const CUresult result = StreamForWorkOrCapture(hStream, &stream);
  return result != CUDA_SUCCESS ? result : BeginCapture(*stream, mode);
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                     const CUgraphNode* dependencies,
                                     const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                     CUstreamCaptureMode mode) {
  Stream* stream;
  const CUresult result = StreamForWorkOrCapture(hStream, &stream);
  return result != CUDA_SUCCESS ? result
                                : BeginCaptureToGraph(*stream, hGraph, dependencies, dependencyData,
                                                      numDependencies, mode);
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
  Stream* stream;
  const CUresult result = ResolveStream(hStream, &stream);
  return result != CUDA_SUCCESS ? result : EndCapture(*stream, phGraph);
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  Stream* stream;
  CUresult result = ResolveStream(hStream, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (!Capturing(*stream)) [[likely]] {
    *captureStatus = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  }
  CaptureInfo info;
  result = QueryCapture(*stream, &info);
  if (result == CUDA_SUCCESS) *captureStatus = info.status;
  return result;
}

CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                cuuint64_t* id_out) {
  return api::cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, nullptr, nullptr,
                                        nullptr, nullptr);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                   cuuint64_t* id_out, CUgraph* graph_out,
                                   const CUgraphNode** dependencies_out,
                                   size_t* numDependencies_out) {
  return api::cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, graph_out,
                                        dependencies_out, nullptr, numDependencies_out);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                   cuuint64_t* id_out, CUgraph* graph_out,
                                   const CUgraphNode** dependencies_out,
                                   const CUgraphEdgeData** edgeData_out,
                                   size_t* numDependencies_out) {
  if (edgeData_out != nullptr && dependencies_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream;
  CUresult result = ResolveStream(hStream, &stream);
  if (result != CUDA_SUCCESS) return result;
  CaptureInfo info;
  result = QueryCapture(*stream, &info);
  if (result != CUDA_SUCCESS) return result;
  if (dependencies_out != nullptr && edgeData_out == nullptr && !info.plain)
    return CUDA_ERROR_LOSSY_QUERY;
  *captureStatus_out = info.status;
  if (info.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  if (id_out != nullptr) *id_out = info.id;
  if (graph_out != nullptr) *graph_out = info.graph;
  if (dependencies_out != nullptr) *dependencies_out = info.dependencies;
  if (edgeData_out != nullptr) *edgeData_out = info.data;
  if (numDependencies_out != nullptr) *numDependencies_out = info.count;
  return CUDA_SUCCESS;
}

CUresult cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode* dependencies,
                                           size_t numDependencies, unsigned int flags) {
  return api::cuStreamUpdateCaptureDependencies_v2(hStream, dependencies, nullptr, numDependencies,
                                                   flags);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode* dependencies,
                                              const CUgraphEdgeData* dependencyData,
                                              size_t numDependencies, unsigned int flags) {
  Stream* stream;
  const CUresult result = ResolveStream(hStream, &stream);
  return result != CUDA_SUCCESS ? result
                                : UpdateCaptureDependencies(*stream, dependencies, dependencyData,
                                                            numDependencies, flags);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  // Driver 580 takes every number. The program may have written one that the type does not have.
  int after;
  memcpy(&after, mode, sizeof(after));
  memcpy(mode, &thread_state.capture_mode, sizeof(*mode));
  thread_state.capture_mode = after;
  return CUDA_SUCCESS;
}

}  // namespace detshare::shim::api
