"""Runs a daemon from an unpacked bundle, for the benchmarks beside this file."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time


def bundle_of(path, script):
    """The folder that holds bin/detshared: `path` or a folder above it, or a folder above the script. Exits if there is none."""
    here = os.path.dirname(os.path.abspath(script))
    while path is None or not os.path.exists(os.path.join(path, "bin", "detshared")):
        parent = here if path is None else os.path.dirname(path)
        if parent == path:
            sys.exit("%s: no bundle with bin/detshared above this script (--bundle names it)" % os.path.basename(script))
        path = parent
    return os.path.abspath(path)


class Daemon:
    """A detshared with a socket of its own. Its log is detshared.log in `out`."""

    def __init__(self, bundle, out, options):
        self.bundle = bundle
        root = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self.directory = tempfile.mkdtemp(prefix="detshare-", dir=root)
        self.socket = os.path.join(self.directory, "s")
        self.log = os.path.join(out, "detshared.log")
        self.command = [os.path.join(bundle, "bin", "detshared"), "--socket", self.socket, "--runtime-dir", self.directory, *options]
        open(self.log, "w").close()
        self.start()

    def start(self):
        """Starts the process, and returns when it serves. Exits if it does not."""
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        for _ in range(600):
            if os.path.exists(self.socket) and self.call("status").returncode == 0:
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        self.end()
        sys.exit("detshared did not start, see %s" % self.log)

    def kill(self):
        """Kills the process that listens, which leaves its engines to the next start()."""
        self.process.kill()
        self.process.wait()

    def prefix(self, tenant=None):
        """The words in front of a command that run it as a client of this daemon."""
        words = [os.path.join(self.bundle, "bin", "detshare"), "run", "--socket", self.socket]
        return words + (["--tenant", tenant] if tenant else []) + ["--"]

    def call(self, *words):
        """Runs detsharectl and returns the process, which is complete."""
        return subprocess.run([os.path.join(self.bundle, "bin", "detsharectl"), "--socket", self.socket, *words],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def control(self, *words):
        """Runs detsharectl and returns its output. Exits with its message if it fails."""
        done = self.call(*words)
        if done.returncode != 0:
            sys.exit("detsharectl %s: %s" % (" ".join(words), done.stderr.strip() or "exit %d" % done.returncode))
        return done.stdout

    def status(self):
        return json.loads(self.control("status", "--json"))

    def preemption(self):
        """In words, whether the first GPU preempts: `time-slice groups, 139 us` or `none, REASON`. Without an engine nobody
        knows it yet: `unknown, no engine runs`."""
        devices = self.status()["devices"]
        if not devices:
            return "unknown, no engine runs"
        device = devices[0]
        return "%s, %s" % (device["preemption"], device["preemption_reason"] or "%g us" % device["preemption_us"])

    def end(self):
        self.process.send_signal(signal.SIGINT)  # SIGTERM would leave the engines
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)
