"""GPT-2 (124 M, random weights of a fixed seed): 20 training steps with bf16 autocast and AdamW; losses and all weights."""
from harness import Report, deterministic_torch, repeat

torch = deterministic_torch()
from transformers import GPT2Config, GPT2LMHeadModel  # noqa: E402


def work(report):
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config()).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    random = torch.Generator().manual_seed(2)
    losses = []
    for number in range(20):
        batch = torch.randint(0, 50257, (16, 512), generator=random)

        def step():
            tokens = batch.cuda(non_blocking=True)
            with torch.autocast("cuda", torch.bfloat16):
                loss = model(tokens, labels=tokens).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return loss.detach()
        losses.append(report.timed(step, torch.cuda.synchronize) if number >= 5 else step())
    report.check("losses", losses)
    report.check("weights", list(model.parameters()))


repeat(work, Report("step"))
