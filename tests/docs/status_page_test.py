#!/usr/bin/python3
"""Compares the tables that docs/observing.md shows for `detsharectl status` with those that it prints.

  status_page_test.py PAGE DETSHARED DETSHARECTL PROGRAM LIBCUDA...

PROGRAM uses the GPU until it is ended.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

PAGE, DETSHARED, DETSHARECTL, PROGRAM, LIBRARY = sys.argv[1:6]


def shape(text):
    """The lines that do not depend on what runs: headings as they are, figures and names as marks."""
    lines = []
    for line in text.splitlines():
        if re.match(r"^[A-Z]{3}", line):
            lines.append(" ".join(line.split()))
        elif re.match(r"^[A-Za-z]", line) and not re.match(r"^(train|serve) ", line):
            lines.append(re.sub(r"\d[\d.]*( [KMG]i?B| B)?", "N", re.sub(r"up .*?,", "up N,", line)))
    return lines


def main():
    with open(PAGE, encoding="utf-8") as file:
        block = re.search(r"^```\n\$ detsharectl status\n(.*?)^```", file.read(), re.MULTILINE | re.DOTALL).group(1)
    folder = tempfile.mkdtemp(prefix="detshare-status-", dir="/dev/shm")
    os.environ["DETSHARE_SOCKET"] = f"{folder}/d.sock"
    processes = []
    try:
        with open(f"{folder}/log", "w", encoding="utf-8") as log:
            processes.append(subprocess.Popen([DETSHARED, "--socket", f"{folder}/d.sock", "--backend", "soft", "--soft-threads", "1"],
                                              stderr=log))
        control = lambda *words: subprocess.run([DETSHARECTL, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                                text=True, check=False)
        while control("status").returncode != 0:
            time.sleep(0.1)
        if control("tenant", "set", "train", "--memory", "2GiB").returncode != 0:
            sys.exit("FAILED: tenant set")
        environment = {**os.environ, "DETSHARE_TENANT": "train", "LD_LIBRARY_PATH": os.path.dirname(os.path.abspath(LIBRARY))}
        processes.append(subprocess.Popen([PROGRAM, "bandwidth"], env=environment, stdout=subprocess.DEVNULL))
        for _ in range(600):
            printed = control("status").stdout
            if "train" in printed and "SESSION " in printed:
                break
            time.sleep(0.1)
        if shape(printed) != shape(block):
            sys.exit(f"FAILED: the page has\n{block}\nbut status prints\n{printed}\n{shape(block)}\n{shape(printed)}")
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait()
        shutil.rmtree(folder)
    print("the page shows what status prints")


if __name__ == "__main__":
    main()
