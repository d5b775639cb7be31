"""Runs workloads (workloads/harness.py says what they are) and reads their reports, for the benchmarks beside this file."""

import json
import os
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# The first folder is that of a bundle, the second that of the sources.
WORKLOADS = next((folder for folder in (os.path.join(HERE, "workloads"), os.path.join(HERE, "frameworks", "workloads"))
                  if os.path.isdir(folder)), HERE)


def workload_file(name):
    return os.path.join(WORKLOADS, name + ".py")


def all_workloads():
    return sorted(file[:-3] for file in os.listdir(WORKLOADS) if file.endswith(".py") and file != "harness.py")


def share_compiled_code(out):
    """Lets all runs use the same compiled code (Triton, Inductor). Without a shared cache, a race decides which code a run compiles."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(os.path.abspath(out), "inductor"))


def run(name, prefix, out, label, options, timeout, environment=None):
    """Runs a workload and returns its report; {"error": ...} if it has none."""
    base = os.path.join(out, "%s.%s" % (name, label))
    begin = time.monotonic()
    with open(base + ".out", "w") as stdout, open(base + ".err", "w") as stderr:
        process = subprocess.Popen([*prefix, sys.executable, workload_file(name), *options],
                                   stdout=stdout, stderr=stderr, stdin=subprocess.DEVNULL, start_new_session=True,
                                   env={**os.environ, **(environment or {})})
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = "no end after %d s" % timeout
    with open(base + ".out") as stdout:
        lines = stdout.read().splitlines()
    result = {"error": "exit %s" % code}
    if code == 0 and lines:
        try:
            result = json.loads(lines[-1])
        except ValueError:
            result = {"error": "no report"}
    if "error" in result:
        with open(base + ".err") as stderr:
            text = [line for line in stderr.read().splitlines() if line.strip()]
        result["error"] += ": " + (text[-1][:150] if text else "nothing on stderr")
    result["wall"] = time.monotonic() - begin
    return result
