"""CuPy: a RawKernel, element-wise and reduction kernels, cuFFT, cuBLAS, cuSOLVER, sorting, and a stream."""
from harness import Report, repeat

import cupy  # noqa: E402
import numpy  # noqa: E402

SAXPY = cupy.RawKernel(r"""
extern "C" __global__ void saxpy(const float* x, const float* y, float a, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + y[i];
}""", "saxpy")
CLIP = cupy.ElementwiseKernel("float32 x, float32 low, float32 high", "float32 y", "y = min(max(x, low), high)", "clip_to")
NORM = cupy.ReductionKernel("float32 x", "float32 y", "x * x", "a + b", "y = sqrt(a)", "0", "norm_of")


def work(report):
    random = numpy.random.default_rng(10)
    n = 1 << 20
    x = cupy.asarray(random.standard_normal(n, dtype=numpy.float32))
    y = cupy.asarray(random.standard_normal(n, dtype=numpy.float32))
    matrix = cupy.asarray(random.standard_normal((300, 300)))
    out = cupy.empty_like(x)

    def step():
        SAXPY((n // 256,), (256,), (x, y, numpy.float32(1.5), out, numpy.int32(n)))
        return CLIP(out, -1, 1), NORM(x.reshape(1024, 1024), axis=1), cupy.fft.fft(x.reshape(256, 4096))

    for number in range(30):
        results = report.timed(step, cupy.cuda.Device().synchronize) if number >= 10 else step()
    report.check("saxpy", out)
    report.check("elementwise", results[0])
    report.check("reduction", results[1])
    report.check("fft", results[2])
    report.check("rfft2", cupy.fft.rfft2(x.reshape(1024, 1024)))
    report.check("product", matrix @ matrix)
    report.check("svd", list(cupy.linalg.svd(matrix)))
    report.check("solve", cupy.linalg.solve(matrix, matrix.T))
    report.check("sort", cupy.sort(x))
    report.check("random", cupy.random.RandomState(11).standard_normal(1 << 16))
    with cupy.cuda.Stream(non_blocking=True) as stream:
        moved = cupy.asarray(random.standard_normal(n)) * 2
        stream.synchronize()
    report.check("stream", moved)
    pinned = cupy.cuda.alloc_pinned_memory(x.nbytes)
    host = numpy.frombuffer(pinned, numpy.float32, n)
    x.get(out=host)
    report.check("pinned", host)


repeat(work, Report("round"))
