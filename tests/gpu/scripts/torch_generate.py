"""transformers: generation by sampling and by beams with a small random GPT-2 and a small random Llama, static and dynamic caches."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

torch.manual_seed(7)
gpt2 = GPT2LMHeadModel(GPT2Config(n_layer=3, n_embd=192, n_head=6, vocab_size=1000)).cuda().eval()
llama = LlamaForCausalLM(LlamaConfig(vocab_size=1000, hidden_size=256, intermediate_size=512, num_hidden_layers=3, num_attention_heads=8,
                                     num_key_value_heads=2)).cuda().bfloat16().eval()
prompt = torch.arange(1, 17, device="cuda")[None]
for name, model in (("gpt2", gpt2), ("llama", llama)):
    for options in ({"do_sample": True, "top_k": 20}, {"num_beams": 4, "do_sample": False}):
        torch.manual_seed(8)
        out = model.generate(prompt, max_new_tokens=24, pad_token_id=0, eos_token_id=None, **options)
        print(name, sorted(options), out[0, 16:].tolist())
