"""ResNet-50 (random weights of a fixed seed): 20 training steps, channels_last, inputs from pinned memory, deterministic cuDNN."""
from harness import Report, deterministic_torch, repeat

torch = deterministic_torch()
from torchvision.models import resnet50  # noqa: E402


def work(report):
    torch.manual_seed(0)
    model = resnet50().cuda().to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    random = torch.Generator().manual_seed(3)
    batches = [(torch.randn(64, 3, 224, 224, generator=random).pin_memory(), torch.randint(0, 1000, (64,), generator=random).pin_memory())
               for _ in range(4)]
    losses = []
    for number in range(20):
        images, labels = batches[number % len(batches)]

        def step():
            x = images.cuda(non_blocking=True).to(memory_format=torch.channels_last)
            y = labels.cuda(non_blocking=True)
            with torch.autocast("cuda", torch.bfloat16):
                loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return loss.detach()
        losses.append(report.timed(step, torch.cuda.synchronize) if number >= 5 else step())
    report.check("losses", losses)
    report.check("weights", list(model.parameters()) + list(model.buffers()))


repeat(work, Report("step"))
