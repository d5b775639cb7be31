"""GPT-2 (124 M, random weights of a fixed seed), eager, fp16: greedy decoding with a KV cache; every step's logits."""
from harness import Report, deterministic_torch, repeat

torch = deterministic_torch()
from transformers import GPT2Config, GPT2LMHeadModel  # noqa: E402

TOKENS = 96


def work(report):
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config()).half().cuda().eval()
    prompt = torch.randint(0, 50257, (1, 64), generator=torch.Generator().manual_seed(1)).cuda()
    logits = []
    with torch.inference_mode():
        for measured in (False, True):
            state = model(prompt, use_cache=True)
            for _ in range(TOKENS):
                def step():
                    token = state.logits[:, -1:].argmax(-1)
                    return model(token, past_key_values=state.past_key_values, use_cache=True)
                state = report.timed(step, torch.cuda.synchronize) if measured else step()
                logits.append(state.logits)
    report.check("logits", torch.cat(logits, 1))


repeat(work, Report("token"))
