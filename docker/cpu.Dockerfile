# docker build -f docker/cpu.Dockerfile -t maskrcnn .
# docker run --rm -v "$PWD":/work maskrcnn train --data DIR --model tiny --out runs/first
FROM debian:12 AS build
RUN apt-get update && apt-get install -y --no-install-recommends \
    gcc libc6-dev libexpat1-dev libstb-dev libtiff-dev make zlib1g-dev
COPY . /src
RUN make -C /src CUDA=0 install

FROM debian:12-slim
RUN apt-get update && apt-get install -y --no-install-recommends libexpat1 libtiff6 zlib1g && \
    rm -rf /var/lib/apt/lists/*
COPY --from=build /usr/local /usr/local
RUN ldconfig
WORKDIR /work
ENTRYPOINT ["maskrcnn"]
