"""The common part of all workloads: fixed seeds, digests of results, times of steps, and the line that the runner reads.

A workload is a script that computes something reproducible on a GPU. It calls `Report.check` with every result whose bits matter,
measures its steps with `Report.timed`, and ends with `Report.done()`, which prints one line of JSON as the last line of stdout:

    {"digests": {NAME: SHA256, ...}, "unit": UNIT, "seconds": [one for each unit], "notes": {...}}

With `--repeat-for SECONDS`, `repeat` runs the whole work again and again. Every repetition must have the digests of the first.
"""

import argparse
import collections
import hashlib
import json
import sys
import time


def _bytes_of(value):
    if hasattr(value, "detach"):  # torch
        import torch
        value = value.detach()
        if value.layout != torch.strided:
            value = value.to_dense()
        value = value.resolve_conj().resolve_neg().cpu().flatten()
        return value.view(torch.uint8).numpy().tobytes()
    if hasattr(value, "get"):  # cupy
        return value.get().tobytes()
    import numpy
    return numpy.asarray(value).tobytes()  # jax, numpy, numbers


def digest(values):
    """SHA-256 over the sizes and bytes of arrays, in order."""
    sha = hashlib.sha256()
    for value in values if isinstance(values, (list, tuple)) else [values]:
        data = _bytes_of(value)
        sha.update(len(data).to_bytes(8, "little"))
        sha.update(data)
    return sha.hexdigest()


class Report:

    def __init__(self, unit):
        self.unit = unit
        self.digests = {}
        self.seconds = []
        self.notes = {}

    def check(self, name, values):
        found = digest(values)
        if self.digests.setdefault(name, found) != found:
            sys.exit("%s: a repetition in the same process gave other bits" % name)

    def check_often(self, name, work, runs):
        """For results that vary even in one process: checks the most frequent bits of `runs` runs, and notes how many different
        bits there were."""
        found = collections.Counter(digest(work()) for _ in range(runs))
        self.digests.setdefault(name, found.most_common(1)[0][0])
        self.notes["%s, different bits in %d runs" % (name, runs)] = len(found)

    def timed(self, work, synchronize, per=1):
        """Runs work() and adds its time, divided by `per`."""
        synchronize()
        begin = time.perf_counter()
        result = work()
        synchronize()
        self.seconds.append((time.perf_counter() - begin) / per)
        return result

    def done(self):
        print(json.dumps({"digests": self.digests, "unit": self.unit, "seconds": self.seconds, "notes": self.notes}), flush=True)


def repeat(work, report):
    """Runs work(report) once, or again and again for as long as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeat-for", type=float, default=0, metavar="SECONDS")
    end = time.monotonic() + parser.parse_args().repeat_for
    count = 0
    while True:
        work(report)
        count += 1
        if time.monotonic() >= end:
            break
    report.notes["repetitions"] = count
    report.done()


def deterministic_torch(strict=True):
    """PyTorch with the settings that its documentation gives for reproducible results. If not strict, operations without a
    reproducible variant are allowed, and some libraries then choose variants that are not reproducible."""
    import os
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch
    torch.use_deterministic_algorithms(True, warn_only=not strict)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    torch.manual_seed(0)
    return torch
