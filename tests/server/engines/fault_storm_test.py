#!/usr/bin/python3
"""Many faults and kills in some tenants' engines, and restarts of the supervisor, while programs of other tenants check every bit.

  fault_storm_test.py [--faults N] [--restarts N] [--kinds KIND,...] [--kernels-outlive-sessions] DETSHARED PROGRAM LIBCUDA...

No innocent session ends, no bit is wrong, and nothing is left. Some restarts are upgrades: to a copy of the daemon in which
the version number is another one.
"""

import argparse
import collections
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

KINDS = ("address", "kill", "assert", "trap", "segv", "endless")
ERRORS = {"address": "cudaErrorIllegalAddress", "assert": "cudaErrorAssert", "trap": "cudaErrorLaunchFailure", "endless": "endless"}
# A step that takes longer hangs.
HANG_SECONDS = 120


def other_version(program, folder):
    """Returns a copy of the program whose version number is another one of the same length."""
    with open(program, "rb") as file:
        data = file.read()
    version = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout.split()[1]
    other = re.sub("[0-9]", "9", version)
    copy = os.path.join(folder, "other")
    with open(copy, "wb") as file:
        file.write(data.replace(version.encode() + b"\0", other.encode() + b"\0"))
    os.chmod(copy, 0o755)
    shown = subprocess.run([copy, "--version"], check=True, capture_output=True, text=True).stdout.split()[1]
    assert shown == other != version, (shown, version)
    return copy


class Storm:
    def __init__(self, wanted, folder):
        self.wanted, self.folder = wanted, folder
        self.programs = [wanted.detshared, other_version(wanted.detshared, folder)]
        self.runtime = os.path.join(folder, "run")
        os.mkdir(self.runtime)
        # The socket stays, as that of a service manager.
        self.path = os.path.join(self.runtime, "d.sock")
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listening.bind(self.path)
        self.listening.listen(128)
        self.log = open(os.path.join(folder, "log"), "ab")
        self.failures = []
        self.counts = collections.Counter()
        self.lock = threading.Lock()
        self.left = wanted.faults
        self.supervisor = None
        self.start_supervisor(0)

    def fail(self, what):
        with self.lock:
            self.failures.append(what)
            self.left = 0
        print("FAILED:", what, flush=True)

    def start_supervisor(self, program):
        ready, begun = os.pipe()
        # As a service manager passes a socket (sd_listen_fds(3)).
        passed = f'export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@" 3<&{self.listening.fileno()}'
        self.supervisor = subprocess.Popen(
            ["/bin/bash", "-c", passed, "detshared", self.programs[program], "--socket", self.path, "--isolation=tenant", "--backend=soft",
             "--soft-memory=64MiB", "--soft-threads=1", "--soft-lose-device-on-fault", "--engine-idle-ms=300", f"--ready-fd={begun}",
             *(["--soft-kernels-outlive-sessions"] if self.wanted.kernels_outlive_sessions else [])],
            stderr=self.log, pass_fds=[begun, self.listening.fileno()])
        os.close(begun)
        if os.read(ready, 1) != b"\n":
            self.fail("the supervisor does not start")
        os.close(ready)

    def start(self, tenant, *mode):
        environment = dict(os.environ, DETSHARE_SOCKET=self.path, DETSHARE_TENANT=tenant,
                           LD_LIBRARY_PATH=os.path.dirname(os.path.abspath(self.wanted.libcuda[0])))
        return subprocess.Popen([self.wanted.program, *mode], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def engines(self):
        """Returns the engines of each group, from the supervisor's list."""
        found = collections.defaultdict(list)
        with open(os.path.join(self.runtime, "engines", ".list"), encoding="utf-8") as file:
            for group, pid in re.findall(r'group: "([^"]*)".*?pid: ([0-9]+)', file.read(), re.DOTALL):
                found[group].append(int(pid))
        return found

    def fault(self, tenant, kind):
        if kind in ("kill", "segv"):
            program = self.start(tenant, "steady", "1000")
            first = program.stdout.readline()
            engines = self.engines()[tenant]
            if first == "begun\n" and engines:
                for engine in engines:
                    os.kill(engine, signal.SIGKILL if kind == "kill" else signal.SIGSEGV)
                # The next fault needs a new engine, so this one must be gone.
                program.communicate(timeout=HANG_SECONDS)
                return program.returncode == 1, "the program of a killed engine ends with 1"
        else:
            program = self.start(tenant, kind)
            # An assertion has a text of its own before the error.
            first = next((line for line in program.stdout if line.startswith(("cuda", "endless"))), "")
        program.kill()
        _, err = program.communicate(timeout=HANG_SECONDS)
        if kind in ("kill", "segv"):
            return None, f"{tenant} has no engine to kill: {err}"
        if kind == "endless" and self.wanted.kernels_outlive_sessions:
            return self.next_program_has_another_engine(tenant)
        wanted = ERRORS.get(kind, "begun")
        if first == wanted + "\n":
            return True, ""
        # The engine of an earlier fault may just end when the program comes. A later program gets a new one.
        if first == "":
            return None, f"{kind} of {tenant} ends with {program.returncode}: {err}"
        return False, f"{kind} of {tenant} prints {first!r} and ends with {program.returncode}: {err}"

    def next_program_has_another_engine(self, tenant):
        """The supervisor holds the connection until it knows that the kernel of the ended session runs on."""
        before = set(self.engines()[tenant])
        program = self.start(tenant, "steady", "1000")
        try:
            begun = program.stdout.readline() == "begun\n"
            after = set(self.engines()[tenant])
        finally:
            program.terminate()
            _, err = program.communicate(timeout=HANG_SECONDS)
        if begun and after - before:
            return True, ""
        # The program may come before the engine knows that the session has ended. Then it gets this engine.
        return None, f"{tenant} gets no engine beside the one in which an endless kernel runs: {err}"

    def guilty(self, number):
        tenant = f"guilty-{number}"
        turn = number
        while True:
            with self.lock:
                if self.left <= 0:
                    return
                self.left -= 1
            kind = self.wanted.kinds[turn % len(self.wanted.kinds)]
            turn += 1
            try:
                # After an engine that ended soon after its start, the next one starts two seconds later.
                for _ in range(200):
                    good, why = self.fault(tenant, kind)
                    if good is not None:
                        break
                    time.sleep(0.1)
            except (OSError, subprocess.TimeoutExpired) as error:
                good, why = False, f"{kind} of {tenant}: {error}"
            if not good:
                self.fail(why)
                return
            with self.lock:
                self.counts[kind] += 1

    def restarts(self, done):
        """Restarts the supervisor after equal numbers of faults: by SIGKILL, by SIGTERM, and as upgrades and downgrades."""
        for i in range(self.wanted.restarts):
            due = self.wanted.faults * (i + 1) // (self.wanted.restarts + 1)
            while self.wanted.faults - self.left < due and not done.is_set():
                time.sleep(0.02)
            if self.failures:
                return
            self.supervisor.send_signal(signal.SIGTERM if i % 4 == 3 else signal.SIGKILL)
            self.supervisor.wait(HANG_SECONDS)
            self.start_supervisor(i // 3 % 2)
            with self.lock:
                self.counts["restart"] += 1

    def run(self):
        begin = time.monotonic()
        innocent = {f"innocent-{i}": self.start(f"innocent-{i}", "steady", "20000") for i in range(self.wanted.innocent)}
        for tenant, program in innocent.items():
            if program.stdout.readline() != "begun\n":
                self.fail(f"a program of {tenant} does not begin")
        engines = {tenant: self.engines()[tenant] for tenant in innocent}
        done = threading.Event()
        threads = [threading.Thread(target=self.guilty, args=(i,)) for i in range(self.wanted.guilty)]
        restarter = threading.Thread(target=self.restarts, args=(done,))
        for thread in [*threads, restarter]:
            thread.start()
        told = begin
        while any(thread.is_alive() for thread in threads):
            time.sleep(0.2)
            for tenant, program in innocent.items():
                if program.poll() is not None and not self.failures:
                    self.fail(f"the program of {tenant} ended with {program.returncode}: {program.stderr.read()}")
            if time.monotonic() - told > 10:
                told = time.monotonic()
                print(f"{told - begin:5.0f} s  {dict(self.counts)}", flush=True)
        done.set()
        restarter.join()
        for tenant, pids in engines.items():
            if not self.failures and pids[0] not in self.engines()[tenant]:
                self.fail(f"{tenant} has lost its engine")
        for tenant, program in innocent.items():
            program.terminate()
            out, err = program.communicate(timeout=HANG_SECONDS)
            if not (program.returncode == 0 and out.startswith("right ") and err == ""):
                self.fail(f"{tenant}: {program.returncode} {out} {err}")
        seconds = time.monotonic() - begin
        print(f"{seconds:.0f} s: {dict(self.counts)}; {len(innocent)} innocent programs checked every bit")

    def end(self):
        """Waits until idle engines have ended, and looks for what is left."""
        limit = time.monotonic() + HANG_SECONDS
        while self.engines() and time.monotonic() < limit:
            time.sleep(0.1)
        if self.engines():
            self.fail(f"engines are left: {dict(self.engines())}")
        # A connection may close a moment after the engine at its other end has ended.
        def open_files():
            return len(os.listdir(f"/proc/{self.supervisor.pid}/fd"))

        while open_files() > 40 and time.monotonic() < limit:
            time.sleep(0.1)
        if open_files() > 40:
            self.fail(f"the supervisor has {open_files()} descriptors")
        self.supervisor.send_signal(signal.SIGINT)
        if self.supervisor.wait(HANG_SECONDS) != 0:
            self.fail("the supervisor does not end in order")
        left = [name for _, _, names in os.walk(self.runtime) for name in names if not name.endswith((".sock", ".lock"))]
        if left:
            self.fail(f"files are left: {left[:5]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--faults", type=int, default=1000)
    parser.add_argument("--restarts", type=int, default=20)
    parser.add_argument("--innocent", type=int, default=4)
    parser.add_argument("--guilty", type=int, default=12)
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=KINDS, help="of faults: %s" % ", ".join(KINDS))
    parser.add_argument("--kernels-outlive-sessions", action="store_true", help="only the end of their engine ends kernels")
    parser.add_argument("detshared", type=os.path.abspath)
    parser.add_argument("program", type=os.path.abspath)
    parser.add_argument("libcuda", nargs="+")
    folder = tempfile.mkdtemp(prefix="detshare-storm-", dir="/dev/shm")
    storm = Storm(parser.parse_args(), folder)
    storm.run()
    storm.end()
    if storm.failures:
        with open(os.path.join(folder, "log"), encoding="utf-8", errors="replace") as file:
            print("the daemon's last lines:\n" + "".join(file.readlines()[-60:]))
        print("\n".join(["FAILED", *storm.failures[:20]]))
    shutil.rmtree(folder, ignore_errors=True)
    return 1 if storm.failures else 0


sys.exit(main())
