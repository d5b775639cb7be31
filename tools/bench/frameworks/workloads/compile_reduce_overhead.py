"""torch.compile(mode="reduce-overhead"): a transformer's training step in Triton kernels, CUDA graphs and graph trees."""
from harness import Report, deterministic_torch, repeat

torch = deterministic_torch()


class Block(torch.nn.Module):

    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def work(report):
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = torch.nn.Sequential(*[Block(512) for _ in range(4)]).cuda()
    compiled = torch.compile(model, mode="reduce-overhead")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    random = torch.Generator().manual_seed(5)
    losses = []
    for number in range(25):
        x = torch.randn(32, 64, 512, generator=random).cuda()

        def step():
            torch.compiler.cudagraph_mark_step_begin()
            loss = compiled(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return loss.detach().clone()
        losses.append(report.timed(step, torch.cuda.synchronize) if number >= 10 else step())
    report.check("losses", losses)
    report.check("weights", list(model.parameters()))


repeat(work, Report("step"))
