"""GPT-2 (124 M), batch 4 x 128, fp16; requests with exponential pauses.

    gpt2_inference.py [graph|eager] [PAUSE_MS]

A request is one CUDA graph, or with `eager` some hundred kernels that the program launches one by one. The mean pause is 5 ms."""
import sys

from tenant import requests, serve

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(use_cache=False)).half().cuda().eval()
tokens = torch.randint(0, 50257, (4, 128), device="cuda")
eager = sys.argv[1:2] == ["eager"]
pause = float(sys.argv[2]) / 1000 if len(sys.argv) > 2 else 0.005
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
    if eager:
        with torch.inference_mode():
            model(tokens)
    else:
        graph.replay()
    torch.cuda.synchronize()


for _ in range(20):
    respond()
serve(requests(respond, pause))
