"""PyTorch's allocator with backend:cudaMallocAsync: growth, release, reuse, many sizes."""
import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = "backend:cudaMallocAsync"
import torch  # noqa: E402

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
