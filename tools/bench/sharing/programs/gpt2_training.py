"""Training of GPT-2, bf16 autocast, AdamW.

    gpt2_training.py [LAYERS WIDTH BATCH LENGTH]

Without arguments GPT-2 (124 M), 12 layers of width 768, batch 16 x 512. 24 layers of width 1,024 with batch 24 x 1,024 keep the
GPU busy all the time."""
import sys

from tenant import serve, steps

import torch
from transformers import GPT2Config, GPT2LMHeadModel

layers, width, batch, length = [int(argument) for argument in sys.argv[1:]] or [12, 768, 16, 512]
torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(n_layer=layers, n_embd=width, n_head=width // 64)).cuda().train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
tokens = torch.randint(0, 50257, (batch, length), device="cuda")


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
