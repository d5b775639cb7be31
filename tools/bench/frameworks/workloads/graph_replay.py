"""A GPT-2 forward pass (batch 4 x 128, fp16) captured into a CUDA graph and replayed with new inputs."""
from harness import Report, deterministic_torch, repeat

torch = deterministic_torch()
from transformers import GPT2Config, GPT2LMHeadModel  # noqa: E402


def work(report):
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(use_cache=False)).half().cuda().eval()
    tokens = torch.zeros(4, 128, dtype=torch.long, device="cuda")
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
        random = torch.Generator().manual_seed(4)
        outputs = []
        for number in range(60):
            tokens.copy_(torch.randint(0, 50257, (4, 128), generator=random))
            report.timed(graph.replay, torch.cuda.synchronize) if number >= 10 else graph.replay()
            outputs.append(logits[:, -1].clone())
    report.check("logits", outputs)


repeat(work, Report("replay"))
