"""CUDA graphs by every interface of PyTorch: capture on several streams, random numbers, pools, graphed callables, whole training steps."""
import hashlib

import torch

torch.use_deterministic_algorithms(True, warn_only=True)
torch.manual_seed(4)


def digest(*tensors):
    return hashlib.sha256(b"".join(t.detach().cpu().numpy().tobytes() for t in tensors)).hexdigest()[:24]


def warm(work):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)


x = torch.randn(64, 128, device="cuda")
model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.Dropout(0.2), torch.nn.Linear(256, 16)).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=True)


def step():
    optimizer.zero_grad(set_to_none=True)
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss


warm(step)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    loss = step()
for round_ in range(10):
    x.copy_(torch.full_like(x, float(round_)))
    graph.replay()
print("training", digest(loss, *model.parameters()))

# Fork and join inside a capture, with a second graph in the same pool.
branches = [torch.cuda.Stream() for _ in range(3)]
second = torch.cuda.CUDAGraph()
with torch.cuda.graph(second, pool=graph.pool()):
    main = torch.cuda.current_stream()
    parts = []
    for number, branch in enumerate(branches):
        branch.wait_stream(main)
        with torch.cuda.stream(branch):
            parts.append((x * number).relu().sum(0))
    for branch in branches:
        main.wait_stream(branch)
    joined = torch.stack(parts).cumsum(0)
x.copy_(torch.randn(64, 128, generator=torch.Generator().manual_seed(5)))
second.replay()
print("branches", digest(joined))

random = torch.cuda.CUDAGraph()
with torch.cuda.graph(random):
    noise = torch.randn(1000, device="cuda")
# Natively, the first replay beside other programs sometimes has other numbers (PyTorch 2.11: 10 of 6,300 captures).
random.replay()
torch.cuda.synchronize()
values = []
torch.cuda.manual_seed(6)
for _ in range(3):
    random.replay()
    values.append(noise.clone())
print("random numbers", digest(*values), "differ", not torch.equal(values[0], values[1]))

layer = torch.nn.Linear(32, 32).cuda()
graphed = torch.cuda.make_graphed_callables(layer, (torch.randn(8, 32, device="cuda", requires_grad=True),))
out = graphed(torch.ones(8, 32, device="cuda", requires_grad=True))
out.sum().backward()
print("graphed callable", digest(out, layer.weight.grad))

for mode in ("global", "thread_local", "relaxed"):
    other = torch.cuda.CUDAGraph()
    with torch.cuda.graph(other, capture_error_mode=mode):
        y = x + 1
    other.replay()
    print(mode, digest(y))

failed = torch.cuda.CUDAGraph()
try:
    with torch.cuda.graph(failed):
        x.sum().item()
except RuntimeError as error:
    print("an operation that cannot be captured:", str(error).splitlines()[0])
torch.cuda.synchronize()
print("after that", torch.ones(4, device="cuda").sum().item())
