"""Allocates, uses and frees device memory of many sizes, and pinned memory, by driver calls and without a cache."""
import os

os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
from tenant import serve, steps  # noqa: E402

import torch  # noqa: E402

sizes = torch.randint(9, 28, (32,), generator=torch.Generator().manual_seed(3)).tolist()


def step():
    for power in sizes:
        memory = torch.empty(1 << power, dtype=torch.uint8, device="cuda")
        memory[:512].fill_(1)
        del memory
    pinned = torch.empty(1 << 20, dtype=torch.uint8).pin_memory()
    del pinned


step()
torch.cuda.synchronize()
serve(steps(step, torch.cuda.synchronize))
