"""Training of ResNet-50, batch 64 of 224 x 224, channels_last, bf16 autocast, SGD."""
from tenant import serve, steps

import torch
import torchvision

torch.manual_seed(0)
model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last).train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
images = torch.randn(64, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
labels = torch.randint(0, 1000, (64,), device="cuda")
loss_of = torch.nn.CrossEntropyLoss()


def step():
    with torch.autocast("cuda", torch.bfloat16):
        loss = loss_of(model(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


for _ in range(5):
    step()
torch.cuda.synchronize()
serve(steps(step, torch.cuda.synchronize))
