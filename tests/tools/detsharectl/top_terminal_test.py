#!/usr/bin/python3
"""Runs `detsharectl top` on a terminal: q and SIGINT end it, and leave the terminal as it was.

  top_terminal_test.py DETSHARED DETSHARECTL
"""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

DAEMON, CTL = (os.path.abspath(program) for program in sys.argv[1:3])
TIMEOUT = 60


def read_until(terminal, text):
    """What the program writes, up to and with `text`."""
    seen, end = b"", time.monotonic() + TIMEOUT
    while text not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0, end - time.monotonic()))
        if not ready:
            sys.exit(f"no {text!r} in {seen!r}")
        seen += os.read(terminal, 4096)
    return seen


def top(socket, leave):
    """Starts top on a new terminal of 80 columns, and lets `leave` end it."""
    terminal, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    before = termios.tcgetattr(slave)
    program = subprocess.Popen([CTL, "top", "--seconds", "0.2", "--socket", socket], stdin=slave, stdout=slave)
    read_until(terminal, b"No sessions.")
    if termios.tcgetattr(slave)[3] & termios.ECHO:
        sys.exit("keys are shown while top runs")
    leave(program, terminal)
    code = program.wait(TIMEOUT)
    if code != 0:
        sys.exit(f"top ends with {code}")
    if termios.tcgetattr(slave) != before:
        sys.exit("the terminal has other settings than before")


def press_q(_, terminal):
    os.write(terminal, b"x")  # another key does nothing
    read_until(terminal, b"No sessions.")
    os.write(terminal, b"q")


def interrupt(program, _):
    program.send_signal(signal.SIGINT)


def main():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        socket = folder + "/d.sock"
        ready, writer = os.pipe()
        daemon = subprocess.Popen([DAEMON, "--backend", "soft", "--socket", socket, "--ready-fd", str(writer)], pass_fds=[writer])
        os.close(writer)
        try:
            if os.read(ready, 1) != b"\n":
                sys.exit("the daemon does not start")
            top(socket, press_q)
            top(socket, interrupt)
        finally:
            daemon.terminate()
            daemon.wait()
    print("top ends when it is told to")


main()
