"""JAX: 20 training steps of a small transformer, jitted, with XLA's autotuning off; losses and all weights."""
import os

os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0 --xla_gpu_deterministic_ops=true"
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
from harness import Report, repeat  # noqa: E402

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402

LAYERS, WIDTH, HEADS, WORDS, LENGTH = 4, 256, 8, 1024, 64


def weights(random):
    def matrix(*shape):
        return jnp.asarray(random.standard_normal(shape, dtype=numpy.float32) / numpy.sqrt(shape[0]))
    return {"embed": matrix(WORDS, WIDTH), "layers": [{"qkv": matrix(WIDTH, 3 * WIDTH), "out": matrix(WIDTH, WIDTH),
                                                      "up": matrix(WIDTH, 4 * WIDTH), "down": matrix(4 * WIDTH, WIDTH)}
                                                     for _ in range(LAYERS)]}


def normal(x):
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def loss_of(w, tokens):
    x = w["embed"][tokens]
    mask = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))
    for layer in w["layers"]:
        q, k, v = jnp.split((normal(x) @ layer["qkv"]).reshape(*x.shape[:2], HEADS, -1), 3, -1)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / numpy.sqrt(q.shape[-1])
        attention = jax.nn.softmax(jnp.where(mask, scores, -1e9))
        x = x + jnp.einsum("bhqk,bkhd->bqhd", attention, v).reshape(x.shape) @ layer["out"]
        x = x + jax.nn.gelu(normal(x) @ layer["up"]) @ layer["down"]
    logits = jax.nn.log_softmax(normal(x) @ w["embed"].T)
    return -jnp.take_along_axis(logits[:, :-1], tokens[:, 1:, None], -1).mean()


@jax.jit
def step(w, momentum, tokens):
    loss, gradient = jax.value_and_grad(loss_of)(w, tokens)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradient)
    return jax.tree.map(lambda p, m: p - 0.05 * m, w, momentum), momentum, loss


def work(report):
    random = numpy.random.default_rng(9)
    w = weights(random)
    momentum = jax.tree.map(jnp.zeros_like, w)
    losses = []
    for number in range(20):
        tokens = jnp.asarray(random.integers(0, WORDS, (16, LENGTH)))

        def one():
            return jax.block_until_ready(step(w, momentum, tokens))
        w, momentum, loss = report.timed(one, lambda: None) if number >= 5 else one()
        losses.append(loss)
    report.check("losses", losses)
    report.check("weights", jax.tree.leaves(w))


repeat(work, Report("step"))
