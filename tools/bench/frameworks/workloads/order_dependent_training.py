"""BERT (110 M, random weights of a fixed seed), 12 training steps; losses and all weights. The backward pass of its memory-efficient
attention adds with atomics, so the bits depend on the order in which blocks run. A native process that has the GPU to itself gives
the same bits in every run."""
from harness import Report, deterministic_torch, repeat

torch = deterministic_torch(strict=False)
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from transformers import BertConfig, BertForMaskedLM  # noqa: E402


def work(report):
    torch.manual_seed(0)
    model = BertForMaskedLM(BertConfig()).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    random = torch.Generator().manual_seed(13)
    losses = []
    for number in range(12):
        batch = torch.randint(0, 30522, (8, 256), generator=random)

        def step():
            tokens = batch.cuda(non_blocking=True)
            with torch.autocast("cuda", torch.bfloat16), sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
                loss = model(tokens, labels=tokens).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return loss.detach()
        losses.append(report.timed(step, torch.cuda.synchronize) if number >= 3 else step())
    report.check("losses", losses)
    report.check("weights", list(model.parameters()))


repeat(work, Report("step"))
