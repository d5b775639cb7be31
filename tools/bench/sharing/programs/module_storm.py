"""Compiles (once), loads, runs and unloads modules of code without a pause."""
from tenant import serve, steps

import cupy

SOURCE = "extern \"C\" __global__ void k%d(float* x) { x[threadIdx.x] = x[threadIdx.x] * %d.0f + 1.0f; }"
images = [cupy.cuda.compiler.compile_using_nvrtc(SOURCE % (i, i))[0] for i in range(16)]
images = [image if isinstance(image, bytes) else image.encode() for image in images]
data = cupy.zeros(256, dtype=cupy.float32)


def step():
    for number, image in enumerate(images):
        module = cupy.cuda.function.Module()
        module.load(image)
        module.get_function("k%d" % number)((1,), (256,), (data,))
        cupy.cuda.runtime.deviceSynchronize()
        del module


step()
serve(steps(step, cupy.cuda.runtime.deviceSynchronize))
