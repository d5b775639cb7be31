"""CuPy beyond arithmetic: asynchronous pools, managed memory, graphs, textures, RawModule with globals, streams, events, sparse, scans."""
import cupy
import cupyx
import cupyx.scipy.sparse
import numpy

module = cupy.RawModule(code=r"""
__constant__ float factor; __device__ int counter;
extern "C" __global__ void apply(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { x[i] *= factor; atomicAdd(&counter, 1); } }
extern "C" __global__ void look(cudaTextureObject_t texture, float* out, int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < width && y < height) out[y * width + x] = tex2D<float>(texture, x + 0.5f, y + 0.5f); }""")
kernel = module.get_function("apply")
factor = cupy.ndarray(1, cupy.float32, module.get_global("factor"))
factor[...] = 3
x = cupy.arange(1000, dtype=cupy.float32)
kernel((4,), (256,), (x, numpy.int32(1000)))
print("module", float(x.sum()), int(cupy.ndarray(1, cupy.int32, module.get_global("counter"))[0]))

cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
y = cupy.ones(1 << 20) + cupy.arange(1 << 20)
print("asynchronous pool", float(y.sum()))
cupy.cuda.set_allocator(cupy.cuda.malloc_managed)
z = cupy.arange(1 << 16, dtype=cupy.float64)
print("managed memory", float((z * 2).sum()))
cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)

stream = cupy.cuda.Stream(non_blocking=True)
a = cupy.arange(1 << 12, dtype=cupy.float32)
b = cupy.empty_like(a)
with stream:
    cupy.multiply(a, 2, out=b)
    stream.begin_capture()
    cupy.multiply(b, 3, out=b)
    cupy.add(b, 1, out=b)
    graph = stream.end_capture()
    graph.launch()
    graph.launch()
    stream.synchronize()
print("graph", float(b.astype(cupy.float64).sum()))

channel = cupy.cuda.texture.ChannelFormatDescriptor(32, 0, 0, 0, cupy.cuda.runtime.cudaChannelFormatKindFloat)
array = cupy.cuda.texture.CUDAarray(channel, 64, 32)
picture = cupy.arange(64 * 32, dtype=cupy.float32).reshape(32, 64)
array.copy_from(picture)
texture = cupy.cuda.texture.TextureObject(
    cupy.cuda.texture.ResourceDescriptor(cupy.cuda.runtime.cudaResourceTypeArray, cuArr=array),
    cupy.cuda.texture.TextureDescriptor((cupy.cuda.runtime.cudaAddressModeClamp,) * 2, cupy.cuda.runtime.cudaFilterModePoint,
                                        cupy.cuda.runtime.cudaReadModeElementType))
seen = cupy.empty((32, 64), cupy.float32)
module.get_function("look")((4, 2), (16, 16), (texture, seen, numpy.int32(64), numpy.int32(32)))
print("texture", bool((seen == picture).all()))

matrix = cupyx.scipy.sparse.random(500, 500, 0.02, format="csr", dtype=cupy.float64, random_state=cupy.random.RandomState(12))
print("sparse", matrix.nnz, "%.10f" % float((matrix @ cupy.ones(500)).sum()))
print("scan", int(cupy.cumsum(cupy.arange(100000))[-1]), int(cupy.searchsorted(cupy.arange(1000), cupy.asarray([17]))[0]))
print("histogram", cupy.histogram(cupy.arange(1000) % 37, bins=5)[0].tolist())
begin, end = cupy.cuda.Event(), cupy.cuda.Event()
begin.record()
cupy.sort(cupy.random.RandomState(13).rand(1 << 20))
end.record()
end.synchronize()
print("timed", cupy.cuda.get_elapsed_time(begin, end) > 0)
pinned = cupyx.empty_pinned(1000, numpy.float32)
cupy.arange(1000, dtype=cupy.float32).get(out=pinned)
print("pinned", pinned.sum())
