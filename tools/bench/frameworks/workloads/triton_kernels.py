"""Triton kernels with fixed configurations: a fused softmax and a tiled matrix product."""
from harness import Report, deterministic_torch, repeat

torch = deterministic_torch()
import triton  # noqa: E402
import triton.language as tl  # noqa: E402


@triton.jit
def softmax_kernel(out, x, columns, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, WIDTH)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    values = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * columns + at, values / tl.sum(values, 0), mask=at < columns)


@triton.jit
def product_kernel(c, a, b, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        left = tl.load(a + rows[:, None] * K + (k + inner)[None, :])
        right = tl.load(b + (k + inner)[:, None] * N + columns[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(tl.float16))


def work(report):
    random = torch.Generator().manual_seed(6)
    x = torch.randn(4096, 781, generator=random).cuda()
    soft = torch.empty_like(x)
    a = torch.randn(1024, 1024, generator=random).half().cuda()
    b = torch.randn(1024, 1024, generator=random).half().cuda()
    c = torch.empty_like(a)

    def step():
        softmax_kernel[(x.shape[0],)](soft, x, x.shape[1], WIDTH=1024)
        product_kernel[(1024 // 128, 1024 // 128)](c, a, b, 1024, 1024, 1024, BM=128, BN=128, BK=32, num_warps=8)

    for number in range(40):
        report.timed(step, torch.cuda.synchronize) if number >= 10 else step()
    report.check("softmax", soft)
    report.check("product", c)


repeat(work, Report("pair of kernels"))
