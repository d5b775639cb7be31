"""Runs NVIDIA's Multi-Process Service, for the benchmarks beside this file."""

import os
import shutil
import subprocess
import tempfile


class Mps:
    """The MPS control daemon, with directories of its own."""

    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="mps-")
        self.environment = {"CUDA_MPS_PIPE_DIRECTORY": self.directory, "CUDA_MPS_LOG_DIRECTORY": self.directory}
        subprocess.run(["nvidia-cuda-mps-control", "-d"], check=True, env={**os.environ, **self.environment})

    def end(self):
        subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, env={**os.environ, **self.environment},
                       stdout=subprocess.DEVNULL, timeout=60)
        shutil.rmtree(self.directory, ignore_errors=True)
