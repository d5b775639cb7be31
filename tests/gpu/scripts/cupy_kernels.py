"""Kernels by CuPy's interfaces (jit, elementwise, reduction, fused, cooperative) and its scientific functions: signals, images, sparse solvers."""
import hashlib

import cupy
import cupyx
import cupyx.scipy.ndimage
import cupyx.scipy.signal
import cupyx.scipy.sparse.linalg
import cupyx.scipy.special
from cupyx import jit


def show(name, *arrays):
    print(name, hashlib.sha256(b"".join(cupy.asnumpy(a).tobytes() for a in arrays)).hexdigest()[:24])


@jit.rawkernel()
def reverse_blocks(x, y, n):
    shared = jit.shared_memory(cupy.float32, 128)
    i = jit.blockIdx.x * jit.blockDim.x + jit.threadIdx.x
    if i < n:
        shared[jit.threadIdx.x] = x[i]
    jit.syncthreads()
    if i < n:
        y[i] = shared[127 - jit.threadIdx.x]


x = cupy.arange(1280, dtype=cupy.float32)
y = cupy.zeros_like(x)
reverse_blocks[10, 128](x, y, cupy.uint32(1280))
show("jit", y)
show("elementwise", cupy.ElementwiseKernel("T x, T y", "T z", "z = (x - y) * (x - y)", "squared")(x, y))
show("reduction", cupy.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "norm")(x))


@cupy.fuse()
def fused(a, b):
    return cupy.where(a > b, a - b, a * b + 1)


show("fused", fused(x, y))
grid = cupy.RawKernel(r"""
#include <cooperative_groups.h>
extern "C" __global__ void sums(const float* x, float* parts, float* out, int n) {
  cooperative_groups::grid_group grid = cooperative_groups::this_grid();
  float sum = 0;
  for (int i = grid.thread_rank(); i < n; i += grid.size()) sum += x[i];
  parts[grid.thread_rank()] = sum;
  grid.sync();
  if (grid.thread_rank() == 0) { float all = 0; for (int i = 0; i < grid.size(); ++i) all += parts[i]; *out = all; } }
""", "sums", enable_cooperative_groups=True)
out = cupy.zeros(1, cupy.float32)
grid((8,), (64,), (x, cupy.zeros(512, cupy.float32), out, cupy.int32(1280)))
show("cooperative", out)
cupy.random.seed(3)
picture = cupy.random.rand(128, 96)
show("filters", cupyx.scipy.ndimage.gaussian_filter(picture, 2), cupyx.scipy.ndimage.median_filter(picture, 3))
show("rotation", cupyx.scipy.ndimage.rotate(picture, 30, order=1))
show("convolution", cupy.round(cupyx.scipy.signal.fftconvolve(picture, picture[:9, :9]), 6))
show("special", cupyx.scipy.special.gammaln(cupy.linspace(0.5, 20, 1000)))
matrix = cupyx.scipy.sparse.diags([cupy.full(499, -1.0), cupy.full(500, 4.0), cupy.full(499, -1.0)], [-1, 0, 1]).tocsr()
show("sparse solution", cupy.round(cupyx.scipy.sparse.linalg.spsolve(matrix, cupy.ones(500)), 9))
show("conjugate gradients", cupy.round(cupyx.scipy.sparse.linalg.cg(matrix, cupy.ones(500))[0], 6))
show("einsum", cupy.round(cupy.einsum("ij,jk,kl->il", picture, picture.T, picture), 6))
show("sorting", cupy.sort(picture, axis=None), cupy.argsort(picture[0]), cupy.unique((picture * 50).astype(int)))
show("histogram", *cupy.histogram(picture, bins=31))
