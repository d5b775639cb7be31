"""torch.compile as people use it: shapes that change, training, attention by flex_attention, kernels of one's own."""
import hashlib
import os
import tempfile

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()  # nothing of an earlier run
import torch  # noqa: E402
from torch.nn.attention.flex_attention import flex_attention  # noqa: E402

torch.manual_seed(31)
torch.use_deterministic_algorithms(True, warn_only=True)


def show(name, *tensors):
    data = b"".join(t.detach().float().cpu().contiguous().numpy().tobytes() for t in tensors)
    print(name, hashlib.sha256(data).hexdigest()[:24])


@torch.compile(dynamic=True)
def normalise(x):
    return torch.nn.functional.layer_norm(x * torch.sigmoid(x), x.shape[-1:])


for n in (3, 17, 40):
    show("shape %d" % n, normalise(torch.randn(n, n * 8, device="cuda")))

model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64), torch.nn.LayerNorm(64)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


@torch.compile
def step(x):
    loss = (model(x) - x).square().mean()
    loss.backward()
    return loss


for _ in range(4):
    optimizer.zero_grad()
    step(torch.randn(32, 64, device="cuda"))
    optimizer.step()
show("training", *model.parameters())

q, k, v = (torch.randn(2, 4, 256, 64, device="cuda", dtype=torch.float16) for _ in range(3))
causal_with_bias = torch.compile(flex_attention)(
    q, k, v, score_mod=lambda score, b, h, i, j: torch.where(i >= j, score + 0.1 * (j - i), float("-inf")))
show("flex_attention", causal_with_bias)

own = torch.cuda._compile_kernel("""
__global__ void axpy(float* y, const float* x, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i]; }""", "axpy")
y = torch.arange(1000.0, device="cuda")
own(grid=(8, 1, 1), block=(128, 1, 1), args=[y, torch.ones(1000, device="cuda"), 2.5, 1000])
show("a kernel of one's own", y)
show("jiterator", torch.cuda.jiterator._create_jit_fn("template <typename T> T sq(T x, T y) { return x * x + y; }")(
    torch.linspace(0, 9, 77, device="cuda"), torch.ones(77, device="cuda")))
