# A site of a federation: NVFlare's client and the party's agent, as two users. `make image` tries its lines and its agent.
#   docker build -t fastadmm-site -f docs/federation.Dockerfile .      # in a clone
#   docker run -d -e SITE=bank -v /srv/bank/kit:/srv/nvflare/kit -v /srv/bank/agent:/srv/agent fastadmm-site
# /srv/bank/kit belongs to uid 1001 and was hardened with --socket /run/fastadmm/agent.sock;
# /srv/bank/agent belongs to uid 1002 and holds party.h5. No port is published: a site only dials out.
FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY fastadmm fastadmm
COPY kernels kernels
COPY data_tools data_tools
RUN python -m venv /opt/fastadmm && /opt/fastadmm/bin/pip install --no-cache-dir ".[nvflare]"

FROM python:3.12-slim
SHELL ["/bin/bash", "-c"]
# Numba's threads need the system's OpenMP.
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/fastadmm /opt/fastadmm
ENV PATH=/opt/fastadmm/bin:$PATH NUMBA_CPU_NAME=generic NUMBA_CACHE_DIR=/opt/kernels
# The compiled kernels go with the image, and root alone may change them: they are run.
RUN fastadmm warmup
RUN groupadd --gid 1000 fastadmm
RUN useradd --uid 1001 --home-dir /srv/nvflare --create-home --groups fastadmm nvflare
RUN useradd --uid 1002 --home-dir /srv/agent --create-home --groups fastadmm agent
RUN install -d -m 700 -o nvflare /srv/nvflare && install -d -m 700 -o agent /srv/agent
RUN install -d -m 2770 -o agent -g fastadmm /run/fastadmm
# The container ends when either process does; its restart policy starts both again.
CMD setpriv --reuid agent --regid agent --init-groups env HOME=/srv/agent \
        fastadmm agent run --data /srv/agent/party.h5 --state /srv/agent/state --socket /run/fastadmm/agent.sock & \
    cd /srv/nvflare/kit && setpriv --reuid nvflare --regid nvflare --init-groups env HOME=/srv/nvflare PYTHONSAFEPATH=1 \
        python -u -m nvflare.private.fed.app.client.client_train -m /srv/nvflare/kit -s fed_client.json \
        --set secure_train=true uid="$SITE" org="$SITE" config_folder=config & \
    wait -n
