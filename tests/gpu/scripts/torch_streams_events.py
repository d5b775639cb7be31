"""Streams with priorities, events, host synchronisation in every manner, non-blocking copies, memory statistics."""
import torch

streams = [torch.cuda.Stream(priority=p) for p in (0, -1, 0, -1)]
x = torch.arange(1 << 20, device="cuda", dtype=torch.float64)
parts = []
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record()
for number, stream in enumerate(streams):
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        part = x * (number + 1)
        part.record_stream(stream)
        parts.append(part)
for stream in streams:
    torch.cuda.current_stream().wait_stream(stream)
total = sum(part.sum() for part in parts)
end.record()
end.synchronize()
print("total", total.item(), "timed", start.elapsed_time(end) > 0, "done", end.query())
pinned = torch.empty(1 << 20, dtype=torch.float64, pin_memory=True)
pinned.copy_(x, non_blocking=True)
blocking = torch.cuda.Event(blocking=True)
blocking.record()
blocking.synchronize()
print("pinned", pinned.is_pinned(), pinned.sum().item())
back = pinned.to("cuda", non_blocking=True)
print("back", torch.equal(back, x))
print("properties", torch.cuda.get_device_name(), torch.cuda.get_device_capability(),
      torch.cuda.get_device_properties(0).multi_processor_count, torch.cuda.get_device_properties(0).total_memory)
del parts, part, back
torch.cuda.synchronize()
torch.cuda.empty_cache()
print("allocated", torch.cuda.memory_allocated(), "free is less than total", torch.cuda.mem_get_info()[0] < torch.cuda.mem_get_info()[1])
try:
    torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError:
    print("out of memory is said")
print("still works", torch.ones(3, device="cuda").sum().item())
