#!/usr/bin/env bash
# Build the image and run its demo as a user: `make image`. Without a Docker daemon the lines of Dockerfile run one by
# one below a directory of their own; what only a system of its own can do (apt-get, useradd) is named and left out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if docker info >/dev/null 2>&1; then
    docker build --tag fastadmm .
    exec docker run --rm --user 1234 fastadmm demo --out /tmp/demo
fi

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
chmod 755 "$place"
mkdir -m 1777 "$place/tmp"
mkdir "$place/source" "$place/opt"
repository=$PWD
cd "$place/source"
apt-get() { echo "left out: apt-get $*"; }
useradd() { echo "left out: useradd $*"; }
python() { "${PYTHON:-python3}" "$@"; }

while read -r word rest; do
    rest=$(sed -E "s#(^|[ =:])/(opt|tmp|var)/#\\1$place/\\2/#g" <<<"$rest")
    case $word in
    COPY)
        read -ra names <<<"$rest"
        [[ $rest == --from=* ]] || (cd "$repository" && cp -r "${names[@]::${#names[@]}-1}" "$place/source/")
        ;;
    ENV) eval "export $rest" ;;
    RUN) echo "RUN $rest" && eval "$rest" ;;
    ENTRYPOINT) break ;;
    esac
done <"$repository/Dockerfile"

# Nothing is compiled again by somebody who cannot write to the image's kernels.
user=(setpriv --reuid 1234 --regid 1234 --clear-groups)
if ! "${user[@]}" fastadmm --version; then
    echo "left out: another user, who cannot be made or cannot read this Python"
    user=()
fi
cd "$place/tmp"
env -u HOME "${user[@]}" fastadmm demo --out "$place/tmp/demo" 2>&1 | tee said
! grep compiling said
