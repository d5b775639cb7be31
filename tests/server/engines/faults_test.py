#!/usr/bin/python3
"""Faults and kills in some tenants' engines, while programs of other tenants check every bit: no innocent session ends, and none is wrong.

  faults_test.py DETSHARED DETSHARECTL PROGRAM LIBCUDA...
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

DETSHARED, DETSHARECTL, PROGRAM, SHIM = (os.path.abspath(path) for path in sys.argv[1:5])
INNOCENT = [f"innocent-{number}" for number in range(3)]
ERRORS = {"address": "cudaErrorIllegalAddress", "assert": "cudaErrorAssert", "trap": "cudaErrorLaunchFailure"}

failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what, flush=True)


class Host:
    """A supervisor on the software GPU, where a fault loses the device as on a real one."""

    def __init__(self, folder):
        self.socket = os.path.join(folder, "d.sock")
        ready, begun = os.pipe()
        self.log = open(os.path.join(folder, "log"), "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [DETSHARED, "--socket", self.socket, "--isolation=tenant", "--backend=soft", "--soft-memory=64MiB", "--soft-threads=1",
             "--soft-lose-device-on-fault", f"--ready-fd={begun}"], stderr=self.log, pass_fds=[begun])
        os.close(begun)
        check(os.read(ready, 1) == b"\n", "the daemon starts")
        self.programs = []

    def start(self, tenant, mode):
        environment = dict(os.environ, DETSHARE_SOCKET=self.socket, DETSHARE_TENANT=tenant, LD_LIBRARY_PATH=os.path.dirname(SHIM))
        program = subprocess.Popen([PROGRAM, mode], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.programs.append(program)
        if mode == "steady" and program.stdout.readline() != "begun\n":
            check(False, f"a program of {tenant} begins: {program.communicate()[1]}")
        return program

    def engines(self):
        status = json.loads(subprocess.run([DETSHARECTL, "--socket", self.socket, "status", "--json"], check=True, capture_output=True).stdout)
        return {engine["group"]: engine["pid"] for engine in status["engines"]}

    def events(self, kind):
        run = subprocess.run([DETSHARECTL, "--socket", self.socket, "events", "--kind", kind, "--json"], check=True, capture_output=True, text=True)
        return [json.loads(line) for line in run.stdout.splitlines()]

    def end(self):
        for program in self.programs:
            program.kill()
            program.wait()
        self.process.terminate()
        check(self.process.wait(60) == 0, "the daemon ends")


def main():
    folder = tempfile.mkdtemp(prefix="detshare-faults-", dir="/dev/shm")
    host = Host(folder)
    innocent = {tenant: host.start(tenant, "steady") for tenant in INNOCENT}
    engines = {tenant: pid for tenant, pid in host.engines().items() if tenant in INNOCENT}
    check(len(set(engines.values())) == len(INNOCENT), f"an engine for each: {engines}")
    rounds = 0
    for kind in ["address", "kill", "assert", "trap"] * 2:
        tenant = f"guilty-{rounds % 2}"
        rounds += 1
        # A program of the same tenant shares the engine, so it ends, too, and says why.
        neighbour = host.start(tenant, "steady")
        if kind == "kill":
            os.kill(host.engines()[tenant], signal.SIGKILL)
        else:
            # It goes on with its fault until the daemon has seen the fault.
            guilty = host.start(tenant, kind)
            # An assertion has a text of its own before the error.
            said = next((line for line in guilty.stdout if line.startswith("cuda")), "")
            check(said == ERRORS[kind] + "\n", f"{kind}: {said}")
        _, err = neighbour.communicate(timeout=120)
        check(neighbour.returncode == 1, f"the neighbour of a program with {kind} ends with {neighbour.returncode}: {err}")
        # It learns of a lost device from its next call or from the daemon's message.
        reasons = [f"the engine of isolation group {tenant} has ended"] if kind == "kill" else [ERRORS[kind], "the device is lost"]
        check(any(reason in err for reason in reasons), f"the neighbour of a program with {kind} says why: {err}")
        for other, program in innocent.items():
            check(program.poll() is None, f"{other} still runs after {kind}")
    check({tenant: pid for tenant, pid in host.engines().items() if tenant in INNOCENT} == engines, "the innocent keep their engines")
    ended = [event["text"] for event in host.events("engine-ended")]
    check(len(ended) == rounds, f"an event for each engine that ended: {ended}")
    check(all("isolation group guilty-" in text for text in ended), f"of the guilty only: {ended}")
    check(sum("was ended by signal 9" in text for text in ended) == 2, f"with the reason: {ended}")
    check(sum("has lost its device" in text for text in ended) == rounds - 2, f"with the reason: {ended}")
    for tenant, program in innocent.items():
        program.terminate()
        out, err = program.communicate(timeout=120)
        check(program.returncode == 0 and out.startswith("right ") and err == "", f"{tenant}: {program.returncode} {out} {err}")
        print(f"{tenant}: {out}", end="")
    host.end()
    if failures:
        host.log.seek(0)
        print(host.log.read())
    shutil.rmtree(folder, ignore_errors=True)
    return 1 if failures else 0


sys.exit(main())
