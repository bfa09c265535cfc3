#!/usr/bin/env bash
# Build the images and run what is in them as a user: `make image`. Without a Docker daemon the lines of each file run
# one by one below a directory of their own; what only a system of its own can do (apt-get, users) is named and left out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if docker info >/dev/null 2>&1; then
    docker build --tag fastadmm .
    docker run --rm --user 1234 fastadmm demo --out /tmp/demo
    docker build --tag fastadmm-site --file docs/federation.Dockerfile .
    exec docker run --rm fastadmm-site setpriv --reuid agent --regid agent --init-groups env HOME=/srv/agent \
        fastadmm agent run --help
fi

place=$(mktemp -d)
trap 'kill "${agent:-}" 2>/dev/null || true; rm -rf "$place"' EXIT
chmod 755 "$place"
repository=$PWD path=$PATH
apt-get() { echo "left out: apt-get $*"; }
groupadd() { echo "left out: groupadd $*"; }
useradd() { echo "left out: useradd $*"; }
install() { echo "left out: the owner of ${*: -1}" && mkdir -p "${@: -1}"; }
python() { "${PYTHON:-python3}" "$@"; }

build() { # DOCKERFILE
    rm -rf "$place"/*
    mkdir -m 1777 "$place/tmp"
    mkdir "$place/source" "$place/opt" "$place/srv"
    export PATH=$path
    cd "$place/source"
    while read -r word rest; do
        rest=$(sed -E "s#(^|[ =:])/(opt|tmp|var|srv|run)/#\\1$place/\\2/#g" <<<"$rest")
        case $word in
        COPY)
            read -ra names <<<"$rest"
            [[ $rest == --from=* ]] || (cd "$repository" && cp -r "${names[@]::${#names[@]}-1}" "$place/source/")
            ;;
        ENV) eval "export $rest" ;;
        RUN) echo "RUN $rest" && eval "$rest" ;;
        ENTRYPOINT | CMD) break ;;
        esac
    done <"$repository/$1"
    user=(setpriv --reuid 1234 --regid 1234 --clear-groups)
    if ! "${user[@]}" fastadmm --version; then
        echo "left out: another user, who cannot be made or cannot read this Python"
        user=()
    fi
    cd "$place/tmp"
}

nothing_was_compiled() { # who cannot write to the image's kernels would do it again and again
    if grep compiling said; then exit 1; fi
}

build Dockerfile
env -u HOME "${user[@]}" fastadmm demo --out "$place/tmp/demo" 2>&1 | tee said
nothing_was_compiled

build docs/federation.Dockerfile
"$place/opt/fastadmm/bin/python" -c "import nvflare.private.fed.app.client.client_train"
printf 'age,late\n31,0\n54,1\n47,0\n29,1\n' >site.csv
env HOME="$PWD" "${user[@]}" fastadmm convert site.csv --label late --parties 1 --names site -o parts
env HOME="$PWD" "${user[@]}" fastadmm agent run --data parts/site.h5 --state state --socket agent.sock >said 2>&1 &
agent=$!
for ((second = 0; second < 60; second++)); do
    [ -S agent.sock ] && break
    sleep 1
done
cat said
[ -S agent.sock ]
nothing_was_compiled
