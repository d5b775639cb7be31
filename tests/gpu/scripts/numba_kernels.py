"""numba.cuda: kernels with shared memory, atomics, random numbers, device arrays, streams, events, mapped and pinned memory."""
import numpy

for name, now in (("row_stack", "vstack"), ("in1d", "isin"), ("trapz", "trapezoid")):  # numba asks for names that numpy took away
    if not hasattr(numpy, name):
        setattr(numpy, name, getattr(numpy, now))
from numba import cuda, float32  # noqa: E402
from numba.cuda.random import create_xoroshiro128p_states, xoroshiro128p_uniform_float32  # noqa: E402


@cuda.jit
def block_sum(x, out):
    shared = cuda.shared.array(256, float32)
    at = cuda.threadIdx.x
    index = cuda.grid(1)
    shared[at] = x[index] if index < x.size else 0.0
    cuda.syncthreads()
    step = 128
    while step > 0:
        if at < step:
            shared[at] += shared[at + step]
        cuda.syncthreads()
        step //= 2
    if at == 0:
        cuda.atomic.add(out, 0, shared[0])


@cuda.jit
def throw(states, hits):
    index = cuda.grid(1)
    count = 0
    for _ in range(100):
        x = xoroshiro128p_uniform_float32(states, index)
        y = xoroshiro128p_uniform_float32(states, index)
        if x * x + y * y < 1.0:
            count += 1
    cuda.atomic.add(hits, 0, count)


print(cuda.get_current_device().name.decode() if isinstance(cuda.get_current_device().name, bytes) else cuda.get_current_device().name)
x = cuda.to_device(numpy.ones(100000, numpy.float32))
out = cuda.to_device(numpy.zeros(1, numpy.float32))
block_sum[(x.size + 255) // 256, 256](x, out)
print("sum", out.copy_to_host()[0])
states = create_xoroshiro128p_states(64 * 64, seed=11)
hits = cuda.to_device(numpy.zeros(1, numpy.int64))
throw[64, 64](states, hits)
print("hits", hits.copy_to_host()[0])
stream = cuda.stream()
with cuda.pinned(host := numpy.arange(1000, dtype=numpy.float32)):
    device = cuda.to_device(host, stream=stream)
    device.copy_to_host(host, stream=stream)
    stream.synchronize()
print("pinned", host.sum())
mapped = cuda.mapped_array(1000, numpy.float32)
mapped[:] = 2.0
result = cuda.to_device(numpy.zeros(1, numpy.float32))
block_sum[4, 256](mapped, result)
print("mapped", result.copy_to_host()[0])
begin, end = cuda.event(), cuda.event()
begin.record()
block_sum[100, 256](x, out)
end.record()
end.synchronize()
print("timed", cuda.event_elapsed_time(begin, end) > 0)
