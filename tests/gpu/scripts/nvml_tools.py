"""What monitoring tools ask: pynvml and torch.cuda's questions. Prints only what is the same natively and for a tenant."""
import pynvml
import torch

pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
x = torch.ones(1 << 28, device="cuda")
torch.cuda.synchronize()
print("driver", pynvml.nvmlSystemGetDriverVersion(), pynvml.nvmlSystemGetCudaDriverVersion())
print("device", pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetCudaComputeCapability(handle))
memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
print("memory", memory.used >= 1 << 30, memory.used + memory.free <= memory.total + (1 << 30))
processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
print("processes", len(processes) >= 1)
rates = pynvml.nvmlDeviceGetUtilizationRates(handle)
print("utilisation", 0 <= rates.gpu <= 100)
print("temperature", 0 < pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU) < 120)
print("power", pynvml.nvmlDeviceGetPowerUsage(handle) > 0)
print("torch", 0 <= torch.cuda.utilization() <= 100, torch.cuda.temperature() > 0, torch.cuda.device_count())
pynvml.nvmlShutdown()
