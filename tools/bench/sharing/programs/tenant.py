"""The common part of the programs of the sharing benchmark: they take commands from stdin.

A program prepares itself, prints `ready`, and then executes a command from each line:

    run SECONDS     works for that long, and prints one line of JSON about the work
    (end of file)   ends

So the benchmark measures the same processes alone, together, and under one policy after the other. Times are in seconds, and points
in time (`begins`) are those of time.perf_counter(), which is one clock for all processes of a machine.
"""

import itertools
import json
import random
import sys
import time


def serve(work):
    """work(deadline) makes one measurement until time.perf_counter() is `deadline`, and returns a dictionary."""
    out = sys.stdout
    sys.stdout = sys.stderr  # what libraries print must not be read as a result
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        word, seconds = line.split()
        if word != "run":
            sys.exit("%s: what is %r?" % (sys.argv[0], word))
        print(json.dumps(work(time.perf_counter() + float(seconds))), file=out, flush=True)


def steps(step, synchronize):
    """The work of a program that does one step after the other."""
    def work(deadline):
        times = []
        begin = last = time.perf_counter()
        while last < deadline:
            step()
            synchronize()
            now = time.perf_counter()
            times.append(now - last)
            last = now
        return {"steps": len(times), "seconds": last - begin, "times": times, "begins": list(itertools.accumulate(times[:-1], initial=begin))}
    return work


def requests(respond, mean_gap, seed=7):
    """The work of a program that serves one request after the other, with pauses of exponential length between them."""
    def work(deadline):
        arrivals = random.Random(seed)
        latencies, begins = [], []
        while time.perf_counter() < deadline:
            time.sleep(arrivals.expovariate(1 / mean_gap))
            begin = time.perf_counter()
            respond()
            latencies.append(time.perf_counter() - begin)
            begins.append(begin)
        return {"latencies": latencies, "begins": begins}
    return work
