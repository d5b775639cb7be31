"""A daemon with the software GPU and HTTP, and programs that use it, as real processes."""

import http.client
import json
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time

CONFIGURATION = """
[policy]
name = "priority"

[[tenant]]
name = "chat"
class = "latency"
slo_latency = "500ms"

[[tenant]]
name = "training"
class = "batch"
"""


class Daemon:
    """A daemon. It ends with all of its programs at the end of a with statement."""

    def __init__(self, detshared, shim, configuration=CONFIGURATION, flags=()):
        self.folder = tempfile.mkdtemp(prefix="detshare-web-", dir="/dev/shm")
        self.libraries = os.path.dirname(os.path.abspath(shim))
        self.programs = []
        config = os.path.join(self.folder, "detshare.toml")
        with open(config, "w", encoding="ascii") as file:
            file.write(configuration)
        os.chmod(config, 0o600)
        self.socket = os.path.join(self.folder, "d.sock")
        self.process = subprocess.Popen(
            [os.path.abspath(detshared), "--config", config, "--backend=soft", "--soft-memory=512MiB", f"--socket={self.socket}",
             "--socket-mode=666", "--metrics=127.0.0.1:0", *flags],
            stderr=subprocess.PIPE)
        self.log = ""
        end = time.monotonic() + 60
        while "serves at" not in self.log:
            ready, _, _ = select.select([self.process.stderr], [], [], max(0, end - time.monotonic()))
            text = os.read(self.process.stderr.fileno(), 65536).decode("utf-8") if ready else ""
            if not text:
                raise SystemExit(f"the daemon does not start:\n{self.log}")
            self.log += text
        self.port = int(re.search(r"metrics at http://127\.0\.0\.1:(\d+)/metrics", self.log).group(1))
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for program in self.programs:
            program.send_signal(signal.SIGCONT)
            program.kill()
            program.wait()
        self.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def run(self, tenant, *command, executable=None, user=None, devices=None, socket=None):
        """Starts a program as a tenant, and returns when it has begun. `executable`: what it is, whatever it calls itself; `user`: whose
        it is, by number, where root runs this; `devices`: which it asks for; `socket`: that of an endpoint, whose tenant it is then."""
        environment = dict(os.environ, DETSHARE_SOCKET=socket or self.socket, DETSHARE_TENANT=tenant, LD_LIBRARY_PATH=self.libraries)
        if devices is not None:
            environment["DETSHARE_DEVICES"] = devices
        program = subprocess.Popen(command, executable=executable, env=environment, stdout=subprocess.PIPE, text=True, user=user)
        self.programs.append(program)
        if program.stdout.readline() != "begun\n":
            raise SystemExit(f"{command} does not begin")
        return program

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read().decode("utf-8")
        connection.close()
        if response.status != 200:
            raise SystemExit(f"{path}: {response.status} {body}")
        return body

    def json(self, path):
        return json.loads(self.get(path))


def until(what, timeout=60):
    """Asks again until the condition holds."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        value = what()
        if value:
            return value
        time.sleep(0.1)
    raise SystemExit(f"FAILED: it never came to that: {what}")
