"""torch.distributed with NCCL, one process and one GPU: collectives and DistributedDataParallel."""
import os
import tempfile

import torch
import torch.distributed as distributed

os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
with tempfile.TemporaryDirectory() as folder:
    distributed.init_process_group("nccl", init_method="file://%s/store" % folder, rank=0, world_size=1)
    x = torch.arange(1000, device="cuda", dtype=torch.float32)
    distributed.all_reduce(x)
    gathered = [torch.empty_like(x)]
    distributed.all_gather(gathered, x)
    distributed.broadcast(x, 0)
    print("collectives", x.sum().item(), gathered[0].sum().item())
    torch.manual_seed(9)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        model(torch.ones(16, 64, device="cuda")).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    print("weights", model.module.weight.double().sum().item())
    distributed.destroy_process_group()
