"""cuFFT, cuSOLVER, cuSPARSE, cuRAND, CUB and cuBLAS through PyTorch: transforms, decompositions, sorting, sparse products."""
from harness import Report, deterministic_torch, repeat

torch = deterministic_torch(strict=False)


def work(report):
    random = torch.Generator().manual_seed(7)

    def on_gpu(*shape, dtype=torch.float32):
        return torch.randn(*shape, generator=random, dtype=dtype).cuda()

    x = on_gpu(64, 4096)
    a = on_gpu(256, 256)
    spd = a @ a.T + 256 * torch.eye(256, device="cuda")
    big = on_gpu(1 << 20)
    integers = torch.randint(0, 1 << 30, (1 << 20,), generator=random).cuda()
    dense = (on_gpu(1024, 1024) * (torch.rand(1024, 1024, generator=random).cuda() > 0.97))
    csr = dense.to_sparse_csr()
    right = on_gpu(1024, 64)
    double = on_gpu(200, 200, dtype=torch.float64)
    torch.cuda.manual_seed(8)

    work_list = {
        "fft": lambda: torch.fft.fft(x),
        "rfft then irfft": lambda: torch.fft.irfft(torch.fft.rfft(x[:, :4000])),
        "fft2 of an odd size": lambda: torch.fft.fft2(x[:63, :4095]),
        "fft of a prime length": lambda: torch.fft.fft(x[:, :4093]),
        "svd": lambda: list(torch.linalg.svd(a)),
        "svd in double precision": lambda: list(torch.linalg.svd(double)),
        "eigh": lambda: list(torch.linalg.eigh(spd)),
        "cholesky": lambda: torch.linalg.cholesky(spd),
        "qr": lambda: list(torch.linalg.qr(a)),
        "solve": lambda: torch.linalg.solve(spd, a),
        "inverse of a batch": lambda: torch.linalg.inv(spd.expand(8, 256, 256) + torch.eye(256, device="cuda")),
        "sort of floats": lambda: list(big.sort()),
        "sort of integers": lambda: list(integers.sort(stable=True)),
        "top k": lambda: list(big.topk(100)),
        "unique": lambda: integers.remainder(1000).unique(),
        "running sum": lambda: integers.cumsum(0),
        "sparse times dense": lambda: csr @ right,
        "sparse to dense": lambda: csr.to_dense(),
        "random numbers": lambda: [torch.rand(1 << 16, device="cuda"), torch.randn(1 << 16, device="cuda"),
                                   torch.randperm(1 << 16, device="cuda")],
        "convolution": lambda: torch.nn.functional.conv2d(x.view(8, 8, 64, 64), a[:16, :72].reshape(16, 8, 3, 3)),
        "batched product": lambda: torch.bmm(x.view(64, 64, 64), x.view(64, 64, 64)),
        "product in half precision": lambda: a.half() @ a.half(),
        "product in bfloat16": lambda: a.bfloat16() @ a.bfloat16(),
        "product of integers": lambda: torch._int_mm(torch.ones(64, 64, dtype=torch.int8, device="cuda"),
                                                      torch.ones(64, 64, dtype=torch.int8, device="cuda")),
        "attention": lambda: torch.nn.functional.scaled_dot_product_attention(*[x.view(4, 8, 128, 64).half()] * 3),
        "histogram": lambda: torch.histc(big, bins=64, min=-4, max=4),
    }
    for name, operation in work_list.items():
        try:
            report.check(name, operation())
        except RuntimeError as error:
            report.notes["failed: " + name] = str(error).splitlines()[0][:200]
            if "CUDA error" in str(error):
                break

    def step():
        torch.fft.fft(x)
        csr @ right
        big.sort()
        torch.linalg.cholesky(spd)
    for number in range(20):
        report.timed(step, torch.cuda.synchronize) if number >= 5 else step()


repeat(work, Report("round"))
