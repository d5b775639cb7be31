"""GPT-2 (124 M), batch 4 x 128, fp16; requests with exponential pauses.

    gpt2_inference.py [graph|eager|checked] [PAUSE_MS]

A request is one CUDA graph, or with `eager` some hundred kernels that the program launches one by one. The mean pause is 5 ms. With
`checked` the graph also compares each result with the first one, and the report has the digest of the results (`bits`) and the
number of requests with other bits (`wrong`)."""
import hashlib
import sys

from tenant import requests, serve

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(use_cache=False)).half().cuda().eval()
tokens = torch.randint(0, 50257, (4, 128), device="cuda")
eager, checked = (sys.argv[1:2] == [mode] for mode in ("eager", "checked"))
pause = float(sys.argv[2]) / 1000 if len(sys.argv) > 2 else 0.005
with torch.inference_mode():
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(tokens)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    if checked:
        first = torch.zeros((4, 128, 50257), dtype=torch.half, device="cuda")
        wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    with torch.cuda.graph(graph):
        logits = model(tokens).logits
        if checked:
            wrong += (logits.view(torch.int16) != first.view(torch.int16)).any()
    if checked:
        graph.replay()
        first.copy_(logits)
        wrong.zero_()


def respond():
    if eager:
        with torch.inference_mode():
            model(tokens)
    else:
        graph.replay()
    torch.cuda.synchronize()


for _ in range(20):
    respond()
work = requests(respond, pause)


def checked_work(deadline):
    report = work(deadline)
    report["bits"] = [hashlib.sha256(logits.cpu().numpy().tobytes()).hexdigest()]
    report["wrong"] = wrong.item()
    return report


serve(checked_work if checked else work)
