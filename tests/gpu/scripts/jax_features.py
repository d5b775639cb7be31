"""JAX with its own allocator as it comes: transformations, linear algebra, random numbers, host callbacks, donation, scans, sorting."""
import os

os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0 --xla_gpu_deterministic_ops=true"
os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = ".2"
import hashlib  # noqa: E402
from functools import partial  # noqa: E402

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402


def show(name, *arrays):
    print(name, hashlib.sha256(b"".join(numpy.asarray(a).tobytes() for a in arrays)).hexdigest()[:24])


print(jax.devices()[0].platform, len(jax.devices()))
key = jax.random.key(14)
x = jax.random.normal(key, (256, 256))
show("normal", x)
show("product", x @ x)
show("half", (x.astype(jnp.bfloat16) @ x.astype(jnp.bfloat16)).astype(jnp.float32))
show("cholesky", jnp.linalg.cholesky(x @ x.T + 256 * jnp.eye(256)))
show("svd", *jnp.linalg.svd(x[:64, :64]))
show("eigh", *jnp.linalg.eigh(x @ x.T))
show("solve", jnp.linalg.solve(x + 20 * jnp.eye(256), x))
show("fft", jnp.fft.fft2(x))
show("sort", jnp.sort(x, axis=0), jnp.argsort(x[0]))
show("scan", *jax.lax.scan(lambda c, v: (c * 0.9 + v, c), jnp.zeros(256), x))
show("while", jax.lax.while_loop(lambda v: v.sum() < 1e6, lambda v: v * 1.5, jnp.ones(100)))
show("vmap", jax.vmap(jnp.outer)(x, x)[:3])
show("hessian", jax.hessian(lambda v: (jnp.sin(v) * v).sum())(x[0, :32]))
show("convolution", jax.lax.conv(x.reshape(4, 16, 32, 32), x[:8, :144].reshape(8, 16, 3, 3), (1, 1), "SAME"))


@partial(jax.jit, donate_argnums=0)
def grow(v):
    return v * 2 + 1


v = jnp.ones(1 << 20)
for _ in range(10):
    v = grow(v)
print("donated", float(v[0]))
print("callback", float(jax.jit(lambda a: jax.pure_callback(lambda b: numpy.asarray(b) + 1, jax.ShapeDtypeStruct((), jnp.float32), a))(
    jnp.float32(4))))
