"""GPT-2 (124 M), batch 4 x 128, fp16, one CUDA graph; requests with exponential pauses of 5 ms."""
from tenant import requests, serve

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(use_cache=False)).half().cuda().eval()
tokens = torch.randint(0, 50257, (4, 128), device="cuda")
with torch.inference_mode():
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(tokens)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = model(tokens).logits


def respond():
    graph.replay()
    torch.cuda.synchronize()


for _ in range(20):
    respond()
serve(requests(respond, 0.005))
