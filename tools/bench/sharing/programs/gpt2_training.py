"""Training of GPT-2 (124 M), batch 16 x 512, bf16 autocast, AdamW."""
from tenant import serve, steps

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config()).cuda().train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
tokens = torch.randint(0, 50257, (16, 512), device="cuda")


def step():
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


for _ in range(5):
    step()
torch.cuda.synchronize()
serve(steps(step, torch.cuda.synchronize))
