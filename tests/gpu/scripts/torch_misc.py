"""Odds and ends of PyTorch on a GPU: mixed precision with a scaler, convolution layouts, embedding bags, RNNs, sparse, quantised."""
import hashlib

import torch

torch.manual_seed(10)
torch.use_deterministic_algorithms(True, warn_only=True)
torch.backends.cudnn.deterministic = True


def show(name, *tensors):
    data = b"".join(t.detach().float().cpu().contiguous().numpy().tobytes() for t in tensors)
    print(name, hashlib.sha256(data).hexdigest()[:24])


model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4),
                            torch.nn.Flatten(), torch.nn.Linear(256, 10)).cuda().to(memory_format=torch.channels_last)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
scaler = torch.amp.GradScaler("cuda")
for _ in range(5):
    x = torch.randn(8, 3, 32, 32).cuda().to(memory_format=torch.channels_last)
    with torch.autocast("cuda", torch.float16):
        loss = model(x).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
show("convolutions in half precision", *model.parameters())
lstm = torch.nn.LSTM(32, 64, num_layers=2, bidirectional=True).cuda()
show("lstm", *lstm(torch.randn(20, 4, 32).cuda())[0])
gru = torch.nn.GRU(32, 64).cuda().half()
show("gru", gru(torch.randn(20, 4, 32).cuda().half())[0])
bag = torch.nn.EmbeddingBag(1000, 64, mode="sum").cuda()
show("embedding bag", bag(torch.randint(0, 1000, (64, 10)).cuda()))
show("transposed convolution", torch.nn.ConvTranspose3d(4, 8, 3).cuda()(torch.randn(2, 4, 6, 6, 6).cuda()))
show("interpolation", torch.nn.functional.interpolate(torch.randn(1, 3, 17, 19).cuda(), scale_factor=2.3, mode="bicubic"))
show("grid sample", torch.nn.functional.grid_sample(torch.randn(2, 3, 8, 8).cuda(), torch.rand(2, 5, 5, 2).cuda() * 2 - 1, align_corners=False))
show("layer norm", torch.nn.LayerNorm(300).cuda()(torch.randn(40, 300).cuda()))
show("group norm", torch.nn.GroupNorm(4, 16).cuda()(torch.randn(3, 16, 9, 9).cuda()))
show("scatter", torch.zeros(100).cuda().scatter_reduce(0, torch.arange(100).cuda() % 7, torch.arange(100.0).cuda(), "amax"))
show("complex", torch.view_as_real(torch.linalg.eigvals(torch.eye(20).cuda() * torch.arange(20.0).cuda())))
show("float8", torch.arange(64.0).cuda().to(torch.float8_e4m3fn).float())
show("masked select", torch.arange(1000.0).cuda()[torch.arange(1000).cuda() % 3 == 0])
jitted = torch.jit.script(torch.nn.GELU()).cuda()
for _ in range(4):
    out = jitted(torch.linspace(-3, 3, 100).cuda())
show("torchscript", out)
compiled = torch.compile(lambda v: (v.sin() * 2 + v.cos()).sum(0))
show("torch.compile", compiled(torch.linspace(0, 1, 4096).cuda().reshape(64, 64)))
show("flex", torch.nn.functional.multi_head_attention_forward(
    torch.randn(9, 2, 32).cuda(), torch.randn(9, 2, 32).cuda(), torch.randn(9, 2, 32).cuda(), 32, 4, torch.randn(96, 32).cuda(),
    torch.randn(96).cuda(), None, None, False, 0.0, torch.randn(32, 32).cuda(), torch.randn(32).cuda())[0])
