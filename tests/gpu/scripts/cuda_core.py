"""cuda.core: a program compiled, launched and recorded by Python's object-oriented interface."""
import numpy
try:
    from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
except ImportError:
    from cuda.core.experimental import Device, LaunchConfig, Program, ProgramOptions, launch

device = Device()
device.set_current()
stream = device.create_stream()
code = """template <typename T> __global__ void fill(T* x, T value, size_t n) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x[i] = value + T(i); }"""
options = ProgramOptions(std="c++17", arch="sm_%s" % device.arch if hasattr(device, "arch") else "sm_90")
module = Program(code, code_type="c++", options=options).compile("cubin", name_expressions=("fill<float>", "fill<int>"))
n = 10000
for kind, name in ((numpy.float32, "fill<float>"), (numpy.int32, "fill<int>")):
    memory = device.allocate(n * 4, stream=stream)
    launch(stream, LaunchConfig(grid=32, block=128), module.get_kernel(name), int(memory.handle), kind(3), numpy.uint64(n))
    stream.sync()
    from cuda.bindings import driver
    host = numpy.empty(n, kind)
    assert int(driver.cuMemcpyDtoH(host.ctypes.data, int(memory.handle), host.nbytes)[0]) == 0
    print(name, host.astype(numpy.float64).sum())
    memory.close(stream)
stream.close()
