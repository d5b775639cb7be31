"""PyTorch's allocator with expandable segments and with cudaMallocAsync: growth, release, reuse, many sizes."""
import os
import subprocess
import sys

KINDS = ("expandable_segments:True", "backend:cudaMallocAsync")


def work():
    import torch

    random = torch.Generator().manual_seed(3)
    kept, total = [], 0.0
    for size in torch.randint(1, 8 << 20, (200,), generator=random).tolist():
        tensor = torch.full((size,), 2.0, device="cuda")
        if size % 3:
            kept.append(tensor)
        if len(kept) > 20:
            total += kept.pop(size % 20).sum(dtype=torch.float64).item()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        other = torch.ones(1 << 22, device="cuda")
        total += other.sum(dtype=torch.float64).item()
    del other
    kept.clear()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    print("total", total)
    big = torch.ones(1 << 28, device="cuda")
    big *= 3
    print("big", big.sum(dtype=torch.float64).item(), "allocated", torch.cuda.memory_allocated() > 0)


if len(sys.argv) > 1:
    work()
else:
    for kind in KINDS:
        print(kind, flush=True)
        subprocess.run([sys.executable, __file__, kind], check=True,
                       env={**os.environ, "PYTORCH_CUDA_ALLOC_CONF": kind, "PYTORCH_ALLOC_CONF": kind})
