"""Data loaders that fork after CUDA is in use, pin their batches in a thread, and feed a training step."""
import hashlib

import torch
from torch.utils.data import DataLoader, Dataset

torch.use_deterministic_algorithms(True, warn_only=True)


class Numbers(Dataset):

    def __len__(self):
        return 512

    def __getitem__(self, index):
        random = torch.Generator().manual_seed(index)
        return torch.randn(64, generator=random), index % 10


def main():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for context in ("fork", "spawn", "forkserver"):
        loader = DataLoader(Numbers(), batch_size=64, num_workers=3, pin_memory=True, multiprocessing_context=context)
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x.cuda(non_blocking=True)), y.cuda(non_blocking=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        weights = b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())
        print(context, hashlib.sha256(weights).hexdigest())


if __name__ == "__main__":
    main()
