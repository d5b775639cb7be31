#!/usr/bin/python3
"""Hostile clients of some tenants, while programs of other tenants check every bit.

  hostile_clients_test.py [--seconds N] [--daemon DETSHARED] DETSHARED HOSTILE PROGRAM LIBCUDA... --seeds FILE...

No engine crashes, no innocent program notices, and nothing is left. CONTRIBUTING.md has the commands for an hour with a sanitizer.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HANG_SECONDS = 120
USER = 54321
# What the log never has.
CRASHES = re.compile(r"was ended by signal|ended with exit code|AddressSanitizer|LeakSanitizer|runtime error:|terminate called")


def own_users():
    """Returns the daemon's options that give engines users of their own, where this process can do that."""
    with open("/proc/self/uid_map", encoding="ascii") as file:
        all_users = file.read().split()[-1] == "4294967295"
    return ["--engine-users=2000000000-2000000099"] if os.geteuid() == 0 and all_users else []


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--daemon", type=os.path.abspath, help="another DETSHARED")
    parser.add_argument("--hostile-clients", type=int, default=3)
    parser.add_argument("--seeds", nargs="+", required=True, help="inputs of control_call_fuzzer")
    for name in ("detshared", "hostile", "program"):
        parser.add_argument(name, type=os.path.abspath)
    parser.add_argument("libcuda", nargs="+")
    wanted = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="detshare-hostile-", dir="/dev/shm")
    os.chmod(folder, 0o755)
    failures = []
    socket = os.path.join(folder, "d.sock")
    users = own_users()
    if not users:
        print("NOT TESTED: engines with users of their own, and hostile users")
    # Without limits clients may fill the host's memory, which is no defect.
    configuration = os.path.join(folder, "detshare.toml")
    with open(configuration, "w", encoding="utf-8") as file:
        file.write('[tenant_defaults]\nmemory = "32MiB"\npinned_memory = "64MiB"\n')
    os.chmod(configuration, 0o600)
    with open(os.path.join(folder, "log"), "w", encoding="utf-8") as log:
        daemon = subprocess.Popen(
            [wanted.daemon or wanted.detshared, "--socket", socket, "--socket-mode=666", "--config", configuration, "--isolation=tenant", "--backend=soft",
             "--soft-memory=64MiB", "--soft-threads=1", "--engine-idle-ms=300", *users], stderr=log)
    for _ in range(HANG_SECONDS * 10):
        if os.path.exists(socket) or daemon.poll() is not None:
            break
        time.sleep(0.1)

    environment = dict(os.environ, DETSHARE_SOCKET=socket, LD_LIBRARY_PATH=os.path.dirname(os.path.abspath(wanted.libcuda[0])))
    innocent = [subprocess.Popen([wanted.program, "steady", "20000"], env=dict(environment, DETSHARE_TENANT=f"innocent-{i}"),
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for i in range(2)]
    for program in innocent:
        if program.stdout.readline() != "begun\n":
            failures.append("an innocent program does not begin")
    hostile = [subprocess.Popen([wanted.hostile], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(
        os.environ, HOSTILE_CLIENT=" ".join(map(str, [socket, f"hostile-{i % 2}", USER if users else 0, wanted.seconds, i, *wanted.seeds]))))
               for i in range(wanted.hostile_clients)]
    limit = time.monotonic() + wanted.seconds + HANG_SECONDS
    while any(client.poll() is None for client in hostile) and time.monotonic() < limit and not failures:
        time.sleep(0.2)
        if daemon.poll() is not None:
            failures.append(f"the supervisor ended with {daemon.returncode}")
        if any(program.poll() is not None for program in innocent):
            failures.append("an innocent program ended")
    for i, client in enumerate(hostile):
        if client.poll() is None:
            client.kill()
            if not failures:
                failures.append(f"hostile client {i} hangs")
        out, _ = client.communicate(timeout=HANG_SECONDS)
        print(f"hostile client {i}: {out.splitlines()[0] if out else ''}")
        if client.returncode != 0:
            failures.append(f"hostile client {i} ended with {client.returncode}: {out}")
    for program in innocent:
        program.terminate()
        out, err = program.communicate(timeout=HANG_SECONDS)
        if not (program.returncode == 0 and out.startswith("right ") and err == ""):
            failures.append(f"an innocent program: {program.returncode} {out} {err}")

    # Idle engines end, and their files with them.
    listed = os.path.join(folder, "engines", ".list")
    limit = time.monotonic() + HANG_SECONDS
    while daemon.poll() is None and time.monotonic() < limit:
        with open(listed, encoding="utf-8") as file:
            if "pid:" not in file.read():
                break
        time.sleep(0.1)
    else:
        failures.append("engines do not end")
    if daemon.poll() is None:
        daemon.send_signal(signal.SIGINT)
        if daemon.wait(HANG_SECONDS) != 0:
            failures.append(f"the supervisor ended with {daemon.returncode}")
    with open(os.path.join(folder, "log"), encoding="utf-8", errors="replace") as file:
        lines = file.readlines()
    failures += [f"the log says: {line.strip()}" for line in lines if CRASHES.search(line)][:20]
    left = [name for _, _, names in os.walk(folder) for name in names if name not in ("log", "d.sock.lock", ".runtime.lock", "detshare.toml")]
    if left:
        failures.append(f"files are left: {left[:5]}")
    if failures:
        print("the daemon's last lines:\n" + "".join(lines[-60:]))
        print("\n".join(["FAILED", *failures]))
    shutil.rmtree(folder, ignore_errors=True)
    return 1 if failures else 0


sys.exit(main())
