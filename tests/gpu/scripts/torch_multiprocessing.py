"""CUDA tensors and events that go to other processes by IPC handles (torch.multiprocessing, spawn)."""
import torch
import torch.multiprocessing as multiprocessing


def consume(tensors, results):
    while (item := tensors.get()) is not None:
        name, tensor = item
        tensor += 1  # the producer sees it
        results.put((name, tensor.double().sum().item(), tuple(tensor.shape)))
        torch.cuda.synchronize()
        del tensor, item
    results.put("done")


def main():
    context = multiprocessing.get_context("spawn")
    tensors, results = context.Queue(), context.Queue()
    process = context.Process(target=consume, args=(tensors, results))
    process.start()
    kept = []
    for name, shape in (("small", (3, 5)), ("large", (2048, 1024)), ("a part", (100, 100))):
        tensor = torch.arange(torch.Size(shape).numel(), device="cuda", dtype=torch.float32).reshape(shape)
        if name == "a part":
            tensor = tensor[10:20, 5:50]
        kept.append(tensor)
        tensors.put((name, tensor))
        print(*results.get())
        torch.cuda.synchronize()
        print("the producer sees", tensor.double().sum().item())
    tensors.put(None)
    print(results.get())
    process.join()
    print("exit code", process.exitcode)


if __name__ == "__main__":
    main()
