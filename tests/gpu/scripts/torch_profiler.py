"""The profiler, NVTX ranges and cudaProfilerStart do no harm, whatever they can see."""
import torch
from torch.profiler import ProfilerActivity, profile, record_function

x = torch.randn(256, 256, device="cuda")
torch.cuda.nvtx.range_push("outer")
torch.cuda.nvtx.mark("mark")
torch.cuda.nvtx.range_pop()
torch.cuda.cudart().cudaProfilerStart()
torch.cuda.cudart().cudaProfilerStop()
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
    with record_function("products"):
        y = x
        for _ in range(4):
            y = (y @ x).softmax(-1)
        total = y.sum().item()
names = {event.key for event in seen.key_averages()}
print("seen by the CPU's side:", "aten::mm" in names, "products" in names)
print("total %.3f" % total)
