"""cuda.bindings: the driver, the runtime and NVRTC from Python: contexts, modules, launches, graphs, virtual memory."""
import ctypes

import numpy
from cuda.bindings import driver, nvrtc, runtime


def ok(result):
    assert int(result[0]) == 0, result
    return result[1] if len(result) == 2 else result[1:]


source = b"""extern "C" __global__ void scale(float* x, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= a; }"""
ok(driver.cuInit(0))
device = ok(driver.cuDeviceGet(0))
context = ok(driver.cuDevicePrimaryCtxRetain(device))
ok(driver.cuCtxSetCurrent(context))
program = ok(nvrtc.nvrtcCreateProgram(source, b"scale.cu", 0, [], []))
ok(nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_90"]))
ptx = b" " * ok(nvrtc.nvrtcGetPTXSize(program))
ok(nvrtc.nvrtcGetPTX(program, ptx))
module = ok(driver.cuModuleLoadData(numpy.char.array(ptx).ctypes.data))
kernel = ok(driver.cuModuleGetFunction(module, b"scale"))
n = 1 << 16
host = numpy.arange(n, dtype=numpy.float32)
memory = ok(driver.cuMemAlloc(host.nbytes))
stream = ok(driver.cuStreamCreate(0))
ok(driver.cuMemcpyHtoDAsync(memory, host.ctypes.data, host.nbytes, stream))
arguments = ((memory, 2.5, n), (None, ctypes.c_float, ctypes.c_int))
ok(driver.cuLaunchKernel(kernel, n // 256, 1, 1, 256, 1, 1, 0, stream, arguments, 0))
ok(driver.cuMemcpyDtoHAsync(host.ctypes.data, memory, host.nbytes, stream))
ok(driver.cuStreamSynchronize(stream))
print("launch", host.astype(numpy.float64).sum())

ok(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
for _ in range(3):
    ok(driver.cuLaunchKernel(kernel, n // 256, 1, 1, 256, 1, 1, 0, stream, arguments, 0))
graph = ok(driver.cuStreamEndCapture(stream))
print("nodes", ok(driver.cuGraphGetNodes(graph, 16))[1])
executable = ok(driver.cuGraphInstantiate(graph, 0))
for _ in range(2):
    ok(driver.cuGraphLaunch(executable, stream))
ok(driver.cuMemcpyDtoH(host.ctypes.data, memory, host.nbytes))
print("graph", host[1], host[n - 1])

properties = driver.CUmemAllocationProp()
properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
properties.location.id = 0
unit = ok(driver.cuMemGetAllocationGranularity(properties, driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM))
address = ok(driver.cuMemAddressReserve(4 * unit, 0, 0, 0))
handle = ok(driver.cuMemCreate(unit, properties, 0))
access = driver.CUmemAccessDesc()
access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
access.location.id = 0
access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
for place in (0, 2):
    ok(driver.cuMemMap(int(address) + place * unit, unit, 0, handle, 0))
    ok(driver.cuMemSetAccess(int(address) + place * unit, unit, [access], 1))
ok(driver.cuMemsetD8(int(address), 7, unit))
check = numpy.zeros(16, numpy.uint8)
ok(driver.cuMemcpyDtoH(check.ctypes.data, int(address) + 2 * unit, 16))
print("one memory at two addresses", unit, check.tolist())
for place in (0, 2):
    ok(driver.cuMemUnmap(int(address) + place * unit, unit))
ok(driver.cuMemRelease(handle))
ok(driver.cuMemAddressFree(address, 4 * unit))
print("runtime", int(runtime.cudaDeviceSynchronize()[0]), ok(runtime.cudaGetDeviceCount()))
