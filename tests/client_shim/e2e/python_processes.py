"""Uses CUDA in all ways in which Python starts processes. Calls the driver directly.

Prints a line for each way.
"""
import ctypes
import multiprocessing
import os
import subprocess
import sys


def driver():
    return ctypes.CDLL("libcuda.so.1")


def round_trip():
    """Writes device memory and reads it back. Returns "ok", or the failed call and its result."""
    cuda = driver()
    context, memory = ctypes.c_void_p(), ctypes.c_uint64()
    there, back = ctypes.create_string_buffer(bytes(range(256)) * 16), ctypes.create_string_buffer(4096)
    for name, arguments in [
        ("cuInit", (0,)),
        ("cuDevicePrimaryCtxRetain", (ctypes.byref(context), 0)),
        ("cuCtxSetCurrent", lambda: (context,)),
        ("cuMemAlloc_v2", (ctypes.byref(memory), ctypes.c_size_t(4096))),
        ("cuMemcpyHtoD_v2", lambda: (memory, there, ctypes.c_size_t(4096))),
        ("cuMemcpyDtoH_v2", lambda: (back, memory, ctypes.c_size_t(4096))),
        ("cuMemFree_v2", lambda: (memory,)),
    ]:
        result = getattr(cuda, name)(*(arguments() if callable(arguments) else arguments))
        if result != 0:
            return f"{name} -> {result}"
    return "ok" if back.raw == there.raw[:4096] else "wrong"


def init(_=None):
    return driver().cuInit(0)


def work(_):
    return round_trip()


def in_pool(method, function):
    with multiprocessing.get_context(method).Pool(3) as pool:
        return sorted(set(map(str, pool.map(function, range(6)))))


def main():
    # A forked child may use CUDA if its parent has not used it. The parent may use it after that.
    print("fork before:", *in_pool("fork", work))
    print("here:", round_trip())
    print("fork after:", *in_pool("fork", init))
    print("spawn:", *in_pool("spawn", work))
    print("forkserver:", *in_pool("forkserver", work))
    one = [sys.executable, os.path.abspath(__file__), "one"]
    print("subprocess:", subprocess.run(one, capture_output=True, text=True).stdout.strip())
    # With a preexec function, Python forks.
    print("preexec:", subprocess.run(one, capture_output=True, text=True, preexec_fn=os.setsid).stdout.strip())
    print("system:", os.system("true"))
    print("here:", round_trip())


if __name__ == "__main__":
    if sys.argv[1:] == ["one"]:
        print(round_trip())
    else:
        main()
