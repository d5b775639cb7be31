"""Headless Chromium, driven with its own protocol through a pipe. Needs no other package."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


def find():
    """Returns the program, or None."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    return None


class Browser:
    """One page. Ends with its with statement."""

    def __init__(self, program):
        self.folder = tempfile.mkdtemp(prefix="detshare-browser-", dir="/tmp")
        read_commands, self.commands = os.pipe()
        self.replies, write_replies = os.pipe()

        def descriptors():
            # The browser reads descriptor 3 and writes descriptor 4.
            commands, replies = fcntl.fcntl(read_commands, fcntl.F_DUPFD, 10), fcntl.fcntl(write_replies, fcntl.F_DUPFD, 10)
            os.dup2(commands, 3)
            os.dup2(replies, 4)

        self.process = subprocess.Popen(
            [program, "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
             "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--force-color-profile=srgb",
             "--font-render-hinting=none", f"--user-data-dir={self.folder}", "about:blank"],
            preexec_fn=descriptors, close_fds=False, pass_fds=(), env=dict(os.environ, HOME=self.folder),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(read_commands)
        os.close(write_replies)
        self.buffer, self.number, self.session, self.errors, self.requests = b"", 0, None, [], []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.commands)
        os.close(self.replies)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _next(self, end):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.replies], [], [], max(0, end - time.monotonic()))
            more = os.read(self.replies, 1 << 20) if ready else b""
            if not more:
                raise SystemExit("FAILED: the browser does not reply")
            self.buffer += more
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + 60
        while True:
            got = self._next(end)
            if got.get("id") == self.number:
                if "error" in got:
                    raise SystemExit(f"FAILED: {method}: {got['error']}")
                return got["result"]
            self._note(got)

    def _note(self, event):
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(parameters["exceptionDetails"].get("exception", parameters["exceptionDetails"])))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.errors.append(json.dumps(parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.errors.append(json.dumps(parameters["entry"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def scheme(self, name):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def open(self, url):
        self.call("Page.navigate", url=url)
        end = time.monotonic() + 60
        while self.value("document.readyState + location.href") != "complete" + url and time.monotonic() < end:
            time.sleep(0.05)

    def value(self, expression):
        """Returns the value of JavaScript in the page. Awaits promises."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise SystemExit(f"FAILED: {expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def screenshot(self, path, limit=1 << 14):
        """Of the page's first `most` pixels."""
        width, height = self.value("[document.documentElement.clientWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": width, "height": min(height, limit), "scale": 1}
        data = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
