# An image that builds and tests DetShare on any x86-64 machine with Docker. It needs no GPU.
# In the repository's root:
#
#   docker build -t detshare-build .
#   docker run --rm --init --shm-size=8g -v "$PWD:/detshare" -v detshare-cache:/root/.cache detshare-build
#
# The container runs ./tools/test, or a command that is appended: `... detshare-build ./tools/demo`.
# The checkout is mounted, so edits need no new image. The volume detshare-cache keeps Bazel's output.
FROM debian:12

SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
ENV DEBIAN_FRONTEND=noninteractive

# The CUDA Toolkit, and the two NVIDIA libraries outside it that test programs link: cuDNN and NCCL.
# The keyring package adds NVIDIA's apt repository and the key that signs it.
ARG CUDA=13-0
ARG NCCL=2.28.9-1+cuda13.0
ADD https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/cuda-keyring_1.1-1_all.deb /tmp/
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates git clang-format clang-tidy \
 && dpkg -i /tmp/cuda-keyring_1.1-1_all.deb \
 && apt-get update \
 && apt-get install -y --no-install-recommends \
      cuda-toolkit-"$CUDA" libcudnn9-dev-cuda-13 libnccl2="$NCCL" libnccl-dev="$NCCL" \
 && rm -rf /tmp/cuda-keyring_1.1-1_all.deb /var/lib/apt/lists/*

# Outside /root/.cache, which the volume covers.
ENV DETSHARE_SOURCES=/usr/src/detshare
COPY tools/setup /tmp/detshare/tools/
COPY tools/internal /tmp/detshare/tools/internal/
COPY third_party/debian_source /tmp/detshare/third_party/debian_source/
RUN /tmp/detshare/tools/setup \
 && rm -rf /tmp/detshare /var/lib/apt/lists/*

# The mounted checkout belongs to a user other than root, so git would refuse it.
RUN git config --system --add safe.directory /detshare
WORKDIR /detshare
CMD ["./tools/test"]
