"""JAX with XLA's own choice of algorithms: kernels by Pallas, sharding over what devices there are, dynamic loops, long chains.

XLA chooses by measured time, natively too: sums of floats come out in two ways, so what is shown here does not depend on their order.
"""
import os

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
import hashlib  # noqa: E402

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402


def show(name, *arrays):
    print(name, hashlib.sha256(b"".join(numpy.asarray(a).tobytes() for a in arrays)).hexdigest()[:24])


x = jax.random.normal(jax.random.key(5), (512, 512))


def pallas():
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    def kernel(a, b, out):
        out[...] = jnp.exp(a[...]) * 2 + b[...]

    return pallas.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), grid=(8,),
                              in_specs=[pallas.BlockSpec((64, 512), lambda i: (i, 0))] * 2,
                              out_specs=pallas.BlockSpec((64, 512), lambda i: (i, 0)),
                              compiler_params=triton.CompilerParams(num_warps=4))(x, x.T)


def attempt(name, work):
    try:
        show(name, work())
    except Exception as error:  # this version of JAX does not have it
        print(name, type(error).__name__)


attempt("pallas", pallas)
mesh = Mesh(numpy.array(jax.devices()), ("x",))
sharded = jax.device_put(x, NamedSharding(mesh, PartitionSpec("x", None)))
show("sharded", jax.jit(lambda v: jnp.round(v * 64).astype(int).sum(axis=1))(sharded))
show("while", jax.lax.while_loop(lambda s: s[0] < 37, lambda s: (s[0] + 1, s[1] * 1.01 + s[0]), (0, x[0]))[1])
show("condition", jax.jit(lambda v: jax.lax.cond(v[0, 0] > 0, lambda w: w + 1, lambda w: w - 1, v))(x))
show("convolution", jnp.round(jax.lax.conv(x[:32, :32].reshape(1, 1, 32, 32), x[:3, :3].reshape(1, 1, 3, 3), (1, 1), "SAME"), 3))
show("gather", x[jnp.arange(0, 512, 7)[:, None], jnp.arange(0, 512, 5)])
show("associative scan", jax.lax.associative_scan(jnp.add, jnp.arange(10_000)))
show("half, chosen freely", jnp.round((x.astype(jnp.float16) @ x.astype(jnp.float16)).astype(jnp.float32)))
y = x
for i in range(200):
    y = jnp.tanh(y + 0.01 * i)
show("a long chain", y)
print("memory", jax.devices()[0].memory_stats()["bytes_in_use"] > 0)
