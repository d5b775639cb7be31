#!/usr/bin/python3
"""Uses the notebooks of two users of a JupyterHub at port 8000, as jupyterhub_test.sh wants it.

  jupyterhub_client.py TENANT_OF_ALICE TENANT_OF_BOB     regular expressions
"""

import asyncio
import json
import re
import subprocess
import sys
import time
import uuid

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

HUB = "http://127.0.0.1:8000"
HEADERS = {"Authorization": "token a-token-of-this-test"}

# What a framework does with the driver, with nothing but Python. 40 MiB of the GPU's 64.
BEGIN = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    assert result == 0, f"{name}: {result}"
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(40 << 20))
call("cuMemsetD8_v2", memory, ctypes.c_ubyte(PATTERN), ctypes.c_size_t(40 << 20))
call("cuCtxSynchronize")
print("holds 40 MiB")
"""
CHECK = """
back = ctypes.create_string_buffer(40 << 20)
call("cuMemcpyDtoH_v2", back, memory, ctypes.c_size_t(40 << 20))
print("right" if back.raw == bytes([PATTERN]) * (40 << 20) else "WRONG")
"""


async def request(path, method="GET", body=None):
    data = None if body is None else json.dumps(body)
    reply = await AsyncHTTPClient().fetch(HTTPRequest(
        HUB + path, method, HEADERS, data, request_timeout=300, allow_nonstandard_methods=True))
    return json.loads(reply.body) if reply.body else None


async def until(condition, what):
    for _ in range(3000):
        try:
            if result := await condition():
                return result
        except (HTTPClientError, OSError):
            pass
        await asyncio.sleep(0.1)
    sys.exit(f"FAILED: {what}")


class Notebook:
    """A user's kernel."""

    def __init__(self, user):
        self.user = user
        self.socket = None

    async def start(self):
        await request(f"/hub/api/users/{self.user}", "POST")
        await request(f"/hub/api/users/{self.user}/server", "POST")

        async def ready():
            return (await request(f"/hub/api/users/{self.user}"))["servers"].get("", {}).get("ready")

        await until(ready, f"the server of {self.user} does not start")
        kernel = await request(f"/user/{self.user}/api/kernels", "POST", {})
        url = f"ws://127.0.0.1:8000/user/{self.user}/api/kernels/{kernel['id']}/channels"
        self.socket = await websocket_connect(HTTPRequest(url, headers=HEADERS))

    async def run(self, code):
        """Returns what the code prints."""
        message = uuid.uuid4().hex
        await self.socket.write_message(json.dumps({
            "header": {"msg_id": message, "username": "", "session": "test", "msg_type": "execute_request",
                       "version": "5.3", "date": ""},
            "parent_header": {}, "metadata": {}, "channel": "shell", "buffers": [],
            "content": {"code": code, "silent": False, "store_history": False, "allow_stdin": False}}))
        printed = ""
        while True:
            text = await asyncio.wait_for(self.socket.read_message(), 300)
            if text is None:
                sys.exit(f"FAILED: the kernel of {self.user} is gone")
            reply = json.loads(text)
            if reply["parent_header"].get("msg_id") != message:
                continue
            if reply["msg_type"] == "stream":
                printed += reply["content"]["text"]
            elif reply["msg_type"] == "error":
                sys.exit(f"FAILED: {self.user}: {reply['content']['ename']}: {reply['content']['evalue']}")
            elif reply["msg_type"] == "status" and reply["content"]["execution_state"] == "idle":
                print(f"{self.user}: {printed.strip()}", flush=True)
                return printed.strip()

    async def stop(self):
        await request(f"/hub/api/users/{self.user}/server", "DELETE")

        async def gone():
            return not (await request(f"/hub/api/users/{self.user}"))["servers"]

        await until(gone, f"the server of {self.user} does not end")


def sessions():
    text = subprocess.run(["detsharectl", "sessions", "--json"], check=True, capture_output=True, text=True).stdout
    return json.loads(text)


async def main():
    tenants = sys.argv[1:3]

    async def up():
        return await request("/hub/api/")

    await until(up, "the hub does not start")
    alice, bob = Notebook("alice"), Notebook("bob")
    await asyncio.gather(alice.start(), bob.start())
    expect = lambda got, want: got == want or sys.exit(f"FAILED: {got} instead of {want}")
    expect(await alice.run(BEGIN.replace("PATTERN", "17")), "holds 40 MiB")
    # Now the card is too small for both.
    expect(await bob.run(BEGIN.replace("PATTERN", "42")), "holds 40 MiB")
    seen = sorted(session["tenant"].split("-")[-1] + " " + session["tenant"] for session in sessions())
    if len(seen) != 2 or not all(re.fullmatch(f".* {want}", got) for want, got in zip(tenants, seen)):
        sys.exit(f"FAILED: the tenants are {seen}")
    status = subprocess.run(["detsharectl", "status"], check=True, capture_output=True, text=True).stdout
    print(status, flush=True)
    if "in host memory: 40" not in status:
        sys.exit("FAILED: no memory has left the card")
    for _ in range(2):
        begin = time.monotonic()
        expect(await alice.run(CHECK.replace("PATTERN", "17")), "right")
        expect(await bob.run(CHECK.replace("PATTERN", "42")), "right")
        print(f"two exchanges took {time.monotonic() - begin:.1f} s", flush=True)
    await asyncio.gather(alice.stop(), bob.stop())


if __name__ == "__main__":
    asyncio.run(main())
