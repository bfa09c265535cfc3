# A site of a federation: NVFlare's client and the party's agent, as two users. Its agent and users were tried, not a whole run.
#   docker build -t fastadmm-site -f federation.Dockerfile .
#   docker run -d -e SITE=bank -v /srv/bank/kit:/srv/nvflare/kit -v /srv/bank/agent:/srv/agent fastadmm-site
# /srv/bank/kit belongs to uid 1001 and was hardened with --socket /run/fastadmm/agent.sock;
# /srv/bank/agent belongs to uid 1002 and holds party.h5. No port is published: a site only dials out.
FROM python:3.12-slim
SHELL ["/bin/bash", "-c"]
# Compiled kernels are loaded as code: only the agent's user may write them.
ENV NUMBA_CPU_NAME=generic NUMBA_CACHE_DIR=/opt/kernels
# Numba's threads need the system's OpenMP.
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir "fastadmm[nvflare]" \
 && groupadd --gid 1000 fastadmm \
 && useradd --uid 1001 --home-dir /srv/nvflare --create-home --groups fastadmm nvflare \
 && useradd --uid 1002 --home-dir /srv/agent --create-home --groups fastadmm agent \
 && chmod 700 /srv/nvflare /srv/agent \
 && install -d -o agent -g fastadmm -m 2770 /run/fastadmm \
 && fastadmm warmup && chown -R agent /opt/kernels
# The container ends when either process does; its restart policy starts both again.
CMD setpriv --reuid agent --regid agent --init-groups \
        fastadmm agent run --data /srv/agent/party.h5 --state /srv/agent/state --socket /run/fastadmm/agent.sock & \
    cd /srv/nvflare/kit && setpriv --reuid nvflare --regid nvflare --init-groups env PYTHONSAFEPATH=1 \
        python -u -m nvflare.private.fed.app.client.client_train -m /srv/nvflare/kit -s fed_client.json \
        --set secure_train=true uid="$SITE" org="$SITE" config_folder=config & \
    wait -n
