"""The backward pass of cuDNN's attention. It is reproducible only if the program asks for that: gradients of queries are sums in
the order in which blocks run. So a native process has some different gradients among thirty."""
from harness import Report, deterministic_torch, repeat

torch = deterministic_torch(strict=False)


def work(report):
    random = torch.Generator().manual_seed(12)
    q, k, v = (torch.randn(16, 12, 512, 64, generator=random).bfloat16().cuda().requires_grad_() for _ in range(3))
    above = torch.randn(16, 12, 512, 64, generator=random).bfloat16().cuda()

    def step():
        for x in (q, k, v):
            x.grad = None
        torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).backward(above)
    for number in range(15):
        report.timed(step, torch.cuda.synchronize) if number >= 5 else step()

    def gradients():
        step()
        return [q.grad, k.grad, v.grad]
    report.check_often("gradients", gradients, 30)


repeat(work, Report("step"))
