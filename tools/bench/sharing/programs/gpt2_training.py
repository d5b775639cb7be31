"""Training of GPT-2, bf16 autocast, AdamW.

    gpt2_training.py [LAYERS WIDTH BATCH LENGTH | checked]

Without numbers GPT-2 (124 M), 12 layers of width 768, batch 16 x 512. 24 layers of width 1,024 with batch 24 x 1,024 keep the
GPU busy all the time. With `checked` it uses only operations of reproducible order, begins each measurement with the same weights,
and the report has the loss of each step, as digits that show every bit (`bits`)."""
import os
import sys

from tenant import serve, steps

checked = sys.argv[1:] == ["checked"]
if checked:
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

import torch  # noqa: E402
from transformers import GPT2Config, GPT2LMHeadModel  # noqa: E402

layers, width, batch, length = [12, 768, 16, 512] if checked else [int(argument) for argument in sys.argv[1:]] or [12, 768, 16, 512]
torch.use_deterministic_algorithms(checked)
losses = []


def begin():
    global model, optimizer
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_layer=layers, n_embd=width, n_head=width // 64)).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    losses.clear()


begin()
tokens = torch.randint(0, 50257, (batch, length), device="cuda")


def step():
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if checked:
        losses.append(loss.detach())


for _ in range(5):
    step()
torch.cuda.synchronize()
work = steps(step, torch.cuda.synchronize)


def checked_work(deadline):
    begin()
    report = work(deadline)
    report["bits"] = [loss.item().hex() for loss in losses]
    return report


serve(checked_work if checked else work)
