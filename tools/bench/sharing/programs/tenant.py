"""What the programs of the sharing benchmark have in common: they obey their standard input.

A program prepares itself, prints `ready`, and then does what each line says:

    run SECONDS     works for that long, and prints one line of JSON about it
    (end of file)   ends

So the same processes are measured alone, together, and under one policy after the other.
"""

import json
import random
import sys
import time


def serve(work):
    """work(deadline) does one measurement until time.perf_counter() is `deadline`; its answer is a dictionary."""
    out = sys.stdout
    sys.stdout = sys.stderr  # what libraries print is no answer
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        word, seconds = line.split()
        if word != "run":
            sys.exit("%s: what is %r?" % (sys.argv[0], word))
        print(json.dumps(work(time.perf_counter() + float(seconds))), file=out, flush=True)


def steps(step, synchronize):
    """For work that is one step after the other."""
    def work(deadline):
        times = []
        begin = last = time.perf_counter()
        while last < deadline:
            step()
            synchronize()
            now = time.perf_counter()
            times.append(now - last)
            last = now
        return {"steps": len(times), "seconds": last - begin, "times": times}
    return work


def requests(answer, mean_gap, seed=7):
    """For somebody who asks, waits for the answer, and asks again after a pause of exponential length."""
    def work(deadline):
        arrivals = random.Random(seed)
        latencies = []
        while time.perf_counter() < deadline:
            time.sleep(arrivals.expovariate(1 / mean_gap))
            begin = time.perf_counter()
            answer()
            latencies.append(time.perf_counter() - begin)
        return {"latencies": latencies}
    return work
