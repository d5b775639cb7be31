"""A server of a language model, with continuous batching, chunked prefill, and decoding by CUDA graphs. Requests come in bursts.

usage: llm_server.py SEED REQUESTS_PER_SECOND

The model is a decoder of 1.2 billion parameters with random weights (24 layers, width 2048, 16 heads, fp16). An iteration
prefills at most one chunk of a prompt and then decodes one token for every sequence that is ready. Requests come as a gamma
process with a coefficient of variation of 3, whether the server keeps up or not. The program reports the time to the first token
and the times between tokens of each request, as a reader of the tokens sees them.
"""
import random
import sys
import time

from tenant import serve

import torch
import torch.nn.functional as F

LAYERS, WIDTH, HEADS, VOCABULARY = 24, 2048, 16, 32000
SLOTS, LENGTH, CHUNK = 16, 4096, 256
VARIATION = 3
HEAD = WIDTH // HEADS

seed, rate = int(sys.argv[1]), float(sys.argv[2])
torch.manual_seed(seed)


def weight(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.float16) * 0.02


layers = [(weight(WIDTH, 3 * WIDTH), weight(WIDTH, WIDTH), weight(WIDTH, 4 * WIDTH), weight(4 * WIDTH, WIDTH)) for _ in range(LAYERS)]
embedding = weight(VOCABULARY, WIDTH)
places = weight(LENGTH, WIDTH)
keys = torch.zeros(LAYERS, SLOTS, HEADS, LENGTH, HEAD, device="cuda", dtype=torch.float16)
values = torch.zeros_like(keys)
norm = (WIDTH,)
all_slots = torch.arange(SLOTS, device="cuda")
columns = torch.arange(LENGTH, device="cuda")


def block(x, layer, attend):
    qkv, out, up, down = layers[layer]
    x = x + attend(layer, *(F.layer_norm(x, norm) @ qkv).split(WIDTH, dim=-1)) @ out
    return x + F.gelu(F.layer_norm(x, norm) @ up) @ down


def prefill(slot, tokens, begin):
    """Reads a chunk of a prompt, [begin, begin + len(tokens)), and returns the token that follows it."""
    count = tokens.shape[0]
    end = begin + count
    mask = columns[None, :end] <= columns[begin:end, None]

    def attend(layer, q, k, v):
        heads = [t.view(count, HEADS, HEAD).transpose(0, 1) for t in (q, k, v)]
        keys[layer, slot, :, begin:end] = heads[1]
        values[layer, slot, :, begin:end] = heads[2]
        mixed = F.scaled_dot_product_attention(heads[0][None], keys[layer, slot, :, :end][None], values[layer, slot, :, :end][None], attn_mask=mask)
        return mixed[0].transpose(0, 1).reshape(count, WIDTH)

    x = embedding[tokens] + places[begin:end]
    for layer in range(LAYERS):
        x = block(x, layer, attend)
    return (F.layer_norm(x[-1], norm) @ embedding.T).argmax()


# The tensors that a decoding step reads and writes. The CUDA graph holds their addresses.
latest = torch.zeros(SLOTS, dtype=torch.long, device="cuda")
lengths = torch.zeros(SLOTS, dtype=torch.long, device="cuda")


def decode():
    mask = (columns[None, :] <= lengths[:, None])[:, None, None, :]

    def attend(layer, q, k, v):
        keys[layer, all_slots, :, lengths] = k.view(SLOTS, HEADS, HEAD)
        values[layer, all_slots, :, lengths] = v.view(SLOTS, HEADS, HEAD)
        mixed = F.scaled_dot_product_attention(q.view(SLOTS, HEADS, 1, HEAD), keys[layer], values[layer], attn_mask=mask)
        return mixed.reshape(SLOTS, WIDTH)

    x = embedding[latest] + places[lengths]
    for layer in range(LAYERS):
        x = block(x, layer, attend)
    latest.copy_((F.layer_norm(x, norm) @ embedding.T).argmax(-1))
    lengths.add_(1).clamp_(max=LENGTH - 1)


class Request:
    def __init__(self, arrival, prompt, output):
        self.arrival, self.prompt, self.output = arrival, prompt, output
        self.prefilled = 0
        self.times = []  # when each token was read


def trace(begin, deadline):
    rng = random.Random(seed)
    shape = 1 / VARIATION**2
    requests, now = [], begin
    while True:
        now += rng.gammavariate(shape, 1 / (rate * shape))
        if now >= deadline:
            return requests
        requests.append(Request(now, rng.choice([256, 512, 1024, 2048]), rng.randint(32, 96)))


def work(deadline):
    begin = time.perf_counter()
    coming = trace(begin, deadline)
    every = list(coming)
    waiting, running, free = [], {}, list(range(SLOTS))
    tokens = torch.randint(0, VOCABULARY, (LENGTH,), device="cuda")
    while coming or waiting or running:
        now = time.perf_counter()
        while coming and coming[0].arrival <= now:
            waiting.append(coming.pop(0))
        if now > deadline + 20:
            break
        if waiting and free:
            request, slot = waiting[0], free[0]
            chunk = min(CHUNK, request.prompt - request.prefilled)
            token = prefill(slot, tokens[:chunk], request.prefilled)
            request.prefilled += chunk
            if request.prefilled == request.prompt:
                latest[slot] = token
                lengths[slot] = request.prompt
                token.item()
                request.times.append(time.perf_counter())
                running[slot] = request
                waiting.pop(0)
                free.pop(0)
        if running:
            graph.replay()
            latest.tolist()
            now = time.perf_counter()
            for slot, request in list(running.items()):
                request.times.append(now)
                if len(request.times) > request.output:
                    free.append(slot)
                    del running[slot]
        elif not waiting and coming:
            time.sleep(max(0, min(coming[0].arrival - time.perf_counter(), 0.01)))
    return {
        "ttft": [r.times[0] - r.arrival if r.times else deadline + 20 - r.arrival for r in every],
        "tpot": [(r.times[-1] - r.times[0]) / (len(r.times) - 1) for r in every if len(r.times) > 1],
        "gaps": [b - a for r in every for a, b in zip(r.times, r.times[1:])],
    }


with torch.inference_mode():
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            decode()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        decode()
    lengths.zero_()
    for size in (256, 512, 1024):
        prefill(0, torch.zeros(size, dtype=torch.long, device="cuda"), 0)
    torch.cuda.synchronize()
    serve(work)
