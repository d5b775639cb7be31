#!/usr/bin/python3
"""The metrics of a daemon with busy tenants, as Prometheus reads them: the format, the names in
docs/metrics.md, and values that grow.

  metrics_test.py METRICS.MD DETSHARED PROGRAM SHIM...
"""

import os
import re
import shutil
import signal
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import exposition_format  # noqa: E402
from daemon import Daemon, until  # noqa: E402

failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what)


def documented(path):
    with open(path, encoding="utf-8") as file:
        rows = re.findall(r"^\| `([a-z_]+)` \| (\w+) \| (.*?) \| (.*) \|$", file.read(), re.M)
    return {name: (kind, set(re.findall(r"`(\w+)`", labels)), words) for name, kind, labels, words in rows}


def check_documentation(families, rows):
    check(set(families) == set(rows), f"not both exposed and documented: {sorted(set(families) ^ set(rows))}")
    for name, family in families.items():
        kind, labels, words = rows.get(name, (None, set(), ""))
        check(family.type == kind, f"{name} is a {family.type}")
        check(family.help.replace("\\\\", "\\") == words, f"{name}: {family.help}")
        check(kind != "counter" or name.endswith("_total"), f"{name} is a counter")
        for _, sample in family.samples:
            check({label for label, _ in sample} - {"le"} == labels, f"{name} has labels {sample}")


def check_reader(text):
    """The same by Prometheus' own library for Python, where that is there."""
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError:
        print("NOT TESTED: python3-prometheus-client is not installed")
        return
    read = {family.name: family for family in text_string_to_metric_families(text)}
    ours = exposition_format.parse(text)
    check({name.removesuffix("_total") for name in ours} == set(read), "prometheus_client reads other families")
    for name, family in ours.items():
        theirs = read[name.removesuffix("_total")]
        check(len(theirs.samples) == len(family.samples), f"prometheus_client reads other samples of {name}")


def value(families, name, **labels):
    return families[name].samples.get((name, tuple(sorted(labels.items()))))


def family_value(families, name, labels):
    base = re.sub(r"_(count|sum|bucket)$", "", name)
    family = families.get(name) or families[base]
    return family.samples.get((name, tuple(sorted(labels.items())))) or 0


def main():
    markdown, detshared, program, shim = sys.argv[1:5]
    program = os.path.abspath(program)
    # With preemption the training would not be throttled.
    with Daemon(detshared, shim, flags=("--preemption=off",)) as daemon:
        families = exposition_format.parse(daemon.get("/metrics"))
        check_documentation(families, documented(markdown))
        check(value(families, "detshare_sessions", tenant="chat") == 0, "chat has no session yet")

        daemon.run("chat", program, "answer", "600")
        daemon.run("training", program, "train", "600")
        before = exposition_format.parse(daemon.get("/metrics"))

        wanted = [
            ("detshare_operations_total", {"tenant": "chat", "kind": "launch"}),
            ("detshare_operations_total", {"tenant": "training", "kind": "copy"}),
            ("detshare_tenant_sm_seconds_total", {"tenant": "training", "class": "batch"}),
            ("detshare_tenant_work_seconds_total", {"tenant": "chat", "class": "latency"}),
            ("detshare_burst_duration_seconds_count", {"tenant": "chat"}),
            ("detshare_operation_duration_seconds_count", {"tenant": "training"}),
            ("detshare_throttle_duration_seconds_count", {"tenant": "training"}),
            ("detshare_tenant_waiting_seconds_total", {"tenant": "training", "cause": "window"}),
        ]
        left = list(wanted)
        end = time.monotonic() + 60
        while left and time.monotonic() < end:
            now = exposition_format.parse(daemon.get("/metrics"))
            left = [(name, labels) for name, labels in left if not family_value(now, name, labels) > family_value(before, name, labels)]
            time.sleep(0.1)
        for name, labels in left:
            check(False, f"{name}{labels} does not grow")

        text = daemon.get("/metrics")
        now = exposition_format.parse(text)
        check_documentation(now, documented(markdown))
        check_reader(text)
        check(value(now, "detshare_sessions", tenant="chat") == 1, "chat has a session")
        check(value(now, "detshare_tenant_device_memory_bytes", tenant="training") >= 96 << 20, "training's memory")
        check(value(now, "detshare_slo_seconds", tenant="chat", slo="latency") == 0.5, "what chat is promised")
        check(value(now, "process_threads") > 3, "threads")
        for name, family in now.items():
            for key, one in family.samples.items():
                # A counter never falls, whatever begins or ends.
                if family.type == "counter":
                    check(one >= before[name].samples.get(key, 0), f"{name} fell")

        # The work of ended programs still counts.
        launches = value(now, "detshare_operations_total", tenant="chat", kind="launch")
        bursts = family_value(now, "detshare_burst_duration_seconds_count", {"tenant": "chat"})
        for one in daemon.programs:
            one.kill()
            one.wait()
        until(lambda: not daemon.json("/api/v1/status")["sessions"])
        now = exposition_format.parse(daemon.get("/metrics"))
        check(value(now, "detshare_sessions", tenant="chat") == 0, "chat's session is gone")
        check(value(now, "detshare_operations_total", tenant="chat", kind="launch") >= launches, "launches of the session that is gone")
        check(family_value(now, "detshare_burst_duration_seconds_count", {"tenant": "chat"}) >= bursts, "bursts of the session that is gone")
        check(value(now, "detshare_tenant_device_memory_bytes", tenant="training") == 0, "memory of the session that is gone")
    engines(markdown, detshared, program, shim)
    return 1 if failures else 0


def children(process):
    with open(f"/proc/{process}/task/{process}/children", encoding="ascii") as file:
        return [int(child) for child in file.read().split()]


def pairs(process):
    """Of neighbours on its command line."""
    with open(f"/proc/{process}/cmdline", "rb") as file:
        words = file.read().split(b"\0")
    return [words[i : i + 2] for i in range(len(words))]


def engines(markdown, detshared, program, shim):
    """Programs of several users, each of whom has an engine: what is served is one daemon's."""
    if os.geteuid() != 0:
        print("NOT TESTED: only root can be several users")
        return
    with Daemon(detshared, shim, flags=["--isolation=user"]) as daemon, tempfile.TemporaryDirectory(prefix="detshare-", dir="/dev/shm") as shared:
        # Files that other users may read.
        os.chmod(daemon.folder, 0o755)
        os.chmod(shared, 0o755)
        program, daemon.libraries = shutil.copy(program, shared), os.path.dirname(shutil.copy(shim, os.path.join(shared, "libcuda.so.1")))
        empty = exposition_format.parse(daemon.get("/metrics"))
        check_documentation(empty, documented(markdown))
        check(value(empty, "detshare_sessions", tenant="chat") == 0, "chat has no session yet, and is shown")
        programs = [daemon.run("chat", program, "answer", "600", user=user) for user in (54321, 54322)]
        launches = {"tenant": "chat", "kind": "launch"}
        read = [empty]

        def look():
            read.append(exposition_format.parse(daemon.get("/metrics")))
            return read[-1]

        until(lambda: value(look(), "detshare_sessions", tenant="chat") == 2)
        check_documentation(read[-1], documented(markdown))
        check_reader(daemon.get("/metrics"))
        check(value(read[-1], "detshare_engine_up", group="user:54321") == 1, "the engine of a user")
        grown = value(read[-1], "detshare_operations_total", **launches)
        until(lambda: value(look(), "detshare_operations_total", **launches) > grown)
        # One user's engine is killed.
        victim = next(one for one in daemon.json("/api/v1/status")["sessions"] if one["group"] == "user:54321")
        check(victim["tenant"] == "chat", victim)
        processes = [process for process in children(daemon.process.pid) if [b"--engine", b"user:54321"] in pairs(process)]
        check(len(processes) == 1, f"engines of a user: {processes}")
        os.kill(processes[0], signal.SIGKILL)
        until(lambda: value(look(), "detshare_engine_failures_total", group="user:54321") == 1)
        until(lambda: value(look(), "detshare_sessions", tenant="chat") == 1)
        for one in programs:
            one.kill()
            one.wait()
        until(lambda: value(look(), "detshare_sessions", tenant="chat") == 0)
        check(value(read[-1], "detshare_sessions_opened_total", tenant="chat") == 2, "sessions that were opened")
        # No counter fell, whatever began or ended.
        for before, after in zip(read, read[1:]):
            for name, family in after.items():
                for key, one in family.samples.items():
                    if family.type == "counter" and not one >= before[name].samples.get(key, 0):
                        check(False, f"{name}{key} fell from {before[name].samples[key]} to {one}")


sys.exit(main())
