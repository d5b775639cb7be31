"""Triton beyond its tutorials: autotuning, products in five types, atomics, scans, tensor descriptors, grid-wide barriers, many warps."""
import hashlib

import torch
import triton
import triton.language as tl

torch.manual_seed(21)


def show(name, *tensors):
    data = b"".join(t.detach().float().cpu().contiguous().numpy().tobytes() for t in tensors)
    print(name, hashlib.sha256(data).hexdigest()[:24])


@triton.autotune([triton.Config({"BLOCK": b}, num_warps=w) for b in (128, 512, 2048) for w in (2, 8)], key=["n"])
@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 3 + 1, mask=i < n)


x = torch.randn(100_003, device="cuda")
y = torch.empty_like(x)
scale[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
show("autotuned", y)


@triton.jit
def product(a, b, c, K, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, precision: tl.constexpr):
    rows = tl.program_id(0) * A + tl.arange(0, A)
    columns = tl.program_id(1) * B + tl.arange(0, B)
    n = tl.num_programs(1) * B
    total = tl.zeros((A, B), tl.float32)
    for k in range(0, K, C):
        inner = k + tl.arange(0, C)
        total = tl.dot(tl.load(a + rows[:, None] * K + inner[None, :]), tl.load(b + inner[:, None] * n + columns[None, :]), total,
                       input_precision=precision)
    tl.store(c + rows[:, None] * n + columns[None, :], total)


for kind, precision in ((torch.float16, "tf32"), (torch.bfloat16, "tf32"), (torch.float32, "tf32"), (torch.float32, "ieee"),
                        (torch.float8_e4m3fn, "tf32")):
    a, b = (torch.randn(256, 256, device="cuda").to(kind) for _ in range(2))
    c = torch.empty(256, 256, device="cuda")
    product[(4, 4)](a, b, c, 256, 64, 64, 64, precision, num_warps=4, num_stages=3)
    show("product of %s, %s" % (kind, precision), c)


@triton.jit
def count(values, counts, lowest, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(values + i, mask=i < n, other=0)
    tl.atomic_add(counts + value, 1, mask=i < n)
    tl.atomic_min(lowest + value, i, mask=i < n)


values = torch.randint(0, 37, (50_000,)).cuda()
counts = torch.zeros(37, dtype=torch.int32, device="cuda")
lowest = torch.full((37,), 1 << 30, dtype=torch.int32, device="cuda")
count[(triton.cdiv(50_000, 256),)](values, counts, lowest, 50_000, 256)
show("atomics", counts, lowest)


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def scans(x, y, z, N: tl.constexpr):
    row = tl.load(x + tl.program_id(0) * N + tl.arange(0, N))
    tl.store(y + tl.program_id(0) * N + tl.arange(0, N), tl.associative_scan(row, 0, add))
    tl.store(z + tl.program_id(0) * N + tl.arange(0, N), tl.sort(row))


x = torch.randn(16, 1024, device="cuda")
y, z = torch.empty_like(x), torch.empty_like(x)
scans[(16,)](x, y, z, 1024, num_warps=16)
show("scan and sort", y, z)


@triton.jit
def with_descriptors(a, b, c, M, N, K, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    left = tl.make_tensor_descriptor(a, [M, K], [K, 1], [A, C])
    right = tl.make_tensor_descriptor(b, [N, K], [K, 1], [B, C])
    out = tl.make_tensor_descriptor(c, [M, N], [N, 1], [A, B])
    for tile in tl.range(tl.program_id(0), (M // A) * (N // B), tl.num_programs(0)):
        row, column = tile // (N // B) * A, tile % (N // B) * B
        total = tl.zeros((A, B), tl.float32)
        for k in range(0, K, C):
            total = tl.dot(left.load([row, k]), right.load([column, k]).T, total)
        out.store([row, column], total.to(tl.float16))


triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
a, b = (torch.randn(512, 512, device="cuda", dtype=torch.float16) for _ in range(2))
c = torch.empty(512, 512, device="cuda", dtype=torch.float16)
with_descriptors[(16,)](a, b, c, 512, 512, 512, 128, 128, 64, num_warps=8, num_stages=3)
show("tensor descriptors made on the device", c)

try:
    from triton.tools.tensor_descriptor import TensorDescriptor

    @triton.jit
    def with_host_descriptors(a, c, A: tl.constexpr):
        c.store([tl.program_id(0) * A, 0], a.load([tl.program_id(0) * A, 0]) * 2)

    c = torch.empty_like(a)
    with_host_descriptors[(8,)](TensorDescriptor.from_tensor(a, [64, 256]), TensorDescriptor.from_tensor(c, [64, 256]), 64)
    show("tensor descriptors of the host", c[:, :256])
except ImportError:
    print("tensor descriptors of the host: not in this Triton")


@triton.jit
def together(sums, arrived, out, BLOCK: tl.constexpr):
    i = tl.program_id(0)
    tl.store(sums + i, i * i)
    tl.atomic_add(arrived, 1, sem="acq_rel")
    while tl.atomic_add(arrived, 0, sem="acq_rel") < tl.num_programs(0):
        pass
    lanes = tl.arange(0, BLOCK)
    tl.store(out + i, tl.sum(tl.load(sums + lanes, mask=lanes < tl.num_programs(0), other=0)))


sums, arrived, out = torch.zeros(64, dtype=torch.int32, device="cuda"), torch.zeros(1, dtype=torch.int32, device="cuda"), \
    torch.zeros(64, dtype=torch.int32, device="cuda")
together[(64,)](sums, arrived, out, 64, launch_cooperative_grid=True)
show("barrier of the grid", out)


@triton.jit
def speak():
    tl.device_print("program", tl.program_id(0))


speak[(1,)]()
torch.cuda.synchronize()
print("descriptions:", scale.best_config.kwargs["BLOCK"] in (128, 512, 2048))
