// Attributes of launches and streams that are hints to the device. They are accepted where they
// make sense and refused where they do not. Streams remember them, and they do not change results.
#include "check_driver.h"

__global__ void AddOne(unsigned* values) { values[blockIdx.x * blockDim.x + threadIdx.x] += 1; }

unsigned* values;
unsigned launches = 0;

CUresult Launch(CUfunction function, CUstream stream, std::vector<CUlaunchAttribute> attributes) {
  CUlaunchConfig config = {};
  config.gridDimX = 8;
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 64;
  config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  config.attrs = attributes.data();
  config.numAttrs = static_cast<unsigned>(attributes.size());
  void* arguments[] = {&values};
  const CUresult result = cuLaunchKernelEx(&config, function, arguments, nullptr);
  if (result == CUDA_SUCCESS) ++launches;
  return result;
}

CUlaunchAttribute Window(CUaccessProperty hit, CUaccessProperty miss, float ratio, size_t bytes) {
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW;
  attribute.value.accessPolicyWindow.base_ptr = values;
  attribute.value.accessPolicyWindow.num_bytes = bytes;
  attribute.value.accessPolicyWindow.hitRatio = ratio;
  attribute.value.accessPolicyWindow.hitProp = hit;
  attribute.value.accessPolicyWindow.missProp = miss;
  return attribute;
}

int main() {
  check::UsePrimaryContext();
  cudaFunction_t function;
  CHECK(cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(&AddOne)));
  values = check::Zeroed<unsigned>(512);
  CUstream stream, other;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK_CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));

  const auto streaming = CU_ACCESS_PROPERTY_STREAMING, normal = CU_ACCESS_PROPERTY_NORMAL;
  const auto persisting = CU_ACCESS_PROPERTY_PERSISTING;
  CHECK_CU(Launch(function, stream, {Window(streaming, normal, 1.0f, 2048)}));
  CHECK_CU(Launch(function, stream, {Window(persisting, streaming, 0.5f, 1024)}));
  CUlaunchAttribute domain = {};
  domain.id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
  domain.value.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
  CUlaunchAttribute priority = {};
  priority.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  priority.value.priority = 0;
  CHECK_CU(Launch(function, stream, {domain, priority}));
  CUlaunchAttribute carveout = {};
  carveout.id = CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
  carveout.value.sharedMemCarveout = 50;
  CHECK_CU(Launch(function, stream, {carveout}));

  // A stream's attributes hold for its launches, and the stream returns them.
  CUstreamAttrValue set = {}, got = {};
  set.accessPolicyWindow = Window(streaming, normal, 0.25f, 512).value.accessPolicyWindow;
  CHECK_CU(cuStreamSetAttribute(stream, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &set));
  CHECK_CU(cuStreamGetAttribute(stream, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &got));
  REQUIRE(got.accessPolicyWindow.base_ptr == values);
  std::printf("window of %zu bytes, ratio %g, properties %d %d\n",
              static_cast<size_t>(got.accessPolicyWindow.num_bytes),
              got.accessPolicyWindow.hitRatio, got.accessPolicyWindow.hitProp,
              got.accessPolicyWindow.missProp);
  set.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
  CHECK_CU(cuStreamSetAttribute(stream, CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN, &set));
  set.memSyncDomainMap.default_ = 1;
  set.memSyncDomainMap.remote = 0;
  CHECK_CU(cuStreamSetAttribute(stream, CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, &set));
  CHECK_CU(Launch(function, stream, {}));
  CHECK_CU(Launch(function, stream, {carveout}));
  CHECK_CU(cuStreamCopyAttributes(other, stream));
  CHECK_CU(cuStreamGetAttribute(other, CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN, &got));
  std::printf("copied domain %d\n", static_cast<int>(got.memSyncDomain));
  CHECK_CU(cuStreamGetAttribute(other, CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, &got));
  std::printf("copied map %d %d\n", got.memSyncDomainMap.default_, got.memSyncDomainMap.remote);
  CHECK_CU(cuStreamSynchronize(stream));
  CHECK_CU(Launch(function, other, {}));
  CHECK_CU(cuStreamSynchronize(other));

  // A capture puts the attributes of the launch and of its stream into the node.
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK_CU(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
  CHECK_CU(Launch(function, other, {carveout, Window(streaming, normal, 0.75f, 256)}));
  CHECK_CU(cuStreamEndCapture(other, &graph));
  CUgraphNode node;
  std::size_t nodes = 1;
  CHECK_CU(cuGraphGetNodes(graph, &node, &nodes));
  CHECK_CU(
      cuGraphKernelNodeGetAttribute(node, CU_KERNEL_NODE_ATTRIBUTE_ACCESS_POLICY_WINDOW, &got));
  std::printf("captured window of %zu bytes, ratio %g\n", got.accessPolicyWindow.num_bytes,
              static_cast<double>(got.accessPolicyWindow.hitRatio));
  CHECK_CU(cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, &got));
  std::printf("captured domain %d\n", static_cast<int>(got.memSyncDomain));
  CHECK_CU(cuGraphKernelNodeGetAttribute(
      node, CU_KERNEL_NODE_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, &got));
  std::printf("captured carveout %d\n", static_cast<int>(got.sharedMemCarveout));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphLaunch(exec, other));
  CHECK_CU(cuStreamSynchronize(other));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));

  // The part of the L2 cache that may persist, and its limits.
  size_t limit = 0;
  CHECK_CU(cuCtxSetLimit(CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0));
  CHECK_CU(cuCtxGetLimit(&limit, CU_LIMIT_PERSISTING_L2_CACHE_SIZE));
  std::printf("persisting %zu\n", limit);
  CHECK_CU(cuCtxResetPersistingL2Cache());
  CHECK_CU(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048));
  CHECK_CU(cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE));
  std::printf("stack %zu\n", limit);

  EXPECT_CU(Launch(function, stream, {Window(normal, persisting, 1.0f, 64)}),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(Launch(function, stream, {Window(normal, normal, 1.5f, 64)}), CUDA_ERROR_INVALID_VALUE);
  check::Compare("values", check::Download(values, 512), std::vector<unsigned>(512, launches));
  std::printf("%u launches\n", launches);
  CHECK_CU(cuStreamDestroy(stream));
  CHECK_CU(cuStreamDestroy(other));
  CHECK(cudaFree(values));
  return check::Ok();
}
