# docker build -f docker/cuda.Dockerfile -t maskrcnn-cuda .     (--build-arg ARCH=90: for Hopper alone, in less time)
# docker run --rm --gpus all -v "$PWD":/work maskrcnn-cuda train --data DIR --amp --out runs/first
# The driver and its libraries come from the host, through the NVIDIA container toolkit.
FROM nvidia/cuda:13.0.1-devel-ubuntu24.04 AS build
RUN apt-get update && apt-get install -y --no-install-recommends \
    gcc g++ libc6-dev libexpat1-dev libstb-dev libtiff-dev make zlib1g-dev
COPY . /src
ARG ARCH="80 89 90"
RUN make -C /src CUDA=1 ARCH="$ARCH" install

FROM ubuntu:24.04
RUN apt-get update && apt-get install -y --no-install-recommends libexpat1 libtiff6 zlib1g && \
    rm -rf /var/lib/apt/lists/*
COPY --from=build /usr/local /usr/local
RUN ldconfig
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
WORKDIR /work
ENTRYPOINT ["maskrcnn"]
