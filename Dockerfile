# docker build -t fastadmm . && docker run --rm --user "$(id -u)" -v "$PWD:/data" fastadmm demo
FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY fastadmm fastadmm
COPY kernels kernels
COPY data_tools data_tools
RUN python -m venv /opt/fastadmm && /opt/fastadmm/bin/pip install --no-cache-dir ".[report,parquet,compression,secrecy,psi,serve]"

FROM python:3.12-slim
# Numba's threads need the system's OpenMP.
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/fastadmm /opt/fastadmm
# What a user compiles is kept below XDG_CACHE_HOME: --user may name somebody without a home.
ENV PATH=/opt/fastadmm/bin:$PATH NUMBA_CPU_NAME=generic NUMBA_CACHE_DIR=/opt/kernels XDG_CACHE_HOME=/tmp/cache
# The compiled kernels go with the image, and root alone may change them: they are run.
RUN fastadmm warmup && rm -rf /tmp/cache && useradd --create-home user
USER user
WORKDIR /data
ENTRYPOINT ["fastadmm"]
CMD ["--help"]
