#!/usr/bin/python3
"""Starts programs with the environments that docs/serving/ray.md gives to workers, in the way in which
Ray starts them: the process that is to be the worker changes its environment and executes a shell,
which executes the worker. The daemon must see the tenants of the page.

  environment_test.py PAGE PROGRAM DETSHARED DETSHARECTL LIBCUDA...
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

PAGE, PROGRAM, DETSHARED, DETSHARECTL, LIBRARY = sys.argv[1:6]


def environments():
    with open(PAGE, encoding="utf-8") as file:
        text = file.read()
    for found in re.findall(r'"?runtime_env"?\s*=\s*(\{"env_vars": \{[^}]*\}\})', text):
        yield ast.literal_eval(found)["env_vars"]


def run_worker(variables):
    """As Ray's worker setup: changes its own environment, then executes bash, which executes the worker."""
    setup = ("import json, os, sys; os.environ.update(json.loads(sys.argv[1])); "
             "os.execvp('bash', ['bash', '-c', 'exec ' + sys.argv[2]])")
    return subprocess.run([sys.executable, "-c", setup, json.dumps(variables), os.path.abspath(PROGRAM)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


def main():
    folder = tempfile.mkdtemp(prefix="detshare-environment-", dir="/dev/shm")
    socket = f"{folder}/d.sock"
    os.environ["DETSHARE_SOCKET"] = socket
    library = os.path.dirname(os.path.abspath(LIBRARY))
    with open(f"{folder}/log", "w", encoding="utf-8") as log:
        daemon = subprocess.Popen([DETSHARED, "--socket", socket, "--backend", "soft", "--soft-threads", "1"], stderr=log)
    try:
        while not os.path.exists(socket) and daemon.poll() is None:
            time.sleep(0.05)
        wanted = []
        for variables in environments():
            # The node's processes have the library if they were started by detshare run.
            os.environ["LD_LIBRARY_PATH"] = "" if "LD_LIBRARY_PATH" in variables else library
            if "LD_LIBRARY_PATH" in variables:
                variables["LD_LIBRARY_PATH"] = library
            result = run_worker(variables)
            print(variables, result.stdout.splitlines()[-1:])
            if result.returncode != 0:
                sys.exit(f"FAILED: {result.stdout}")
            wanted.append(variables["DETSHARE_TENANT"])
        events = subprocess.run([DETSHARECTL, "events", "--kind", "opened", "--json"], check=True,
                                stdout=subprocess.PIPE, text=True).stdout
        seen = [json.loads(line)["tenant"] for line in events.splitlines()]
        if seen != wanted or len(set(wanted)) < 2:
            sys.exit(f"FAILED: the daemon saw {seen}, the page has {wanted}")
    finally:
        daemon.terminate()
        daemon.wait()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
