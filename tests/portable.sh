#!/usr/bin/env bash
# The numerical tests as other processors run them: on every family of OpenBLAS kernels, and with
# machine code for the oldest x86-64. Arguments: the pytest command and its options.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# Where an answer depends on rounding: active sets, faces, certificates.
files=(
    test_x_updates.py test_regularizers.py test_kinks.py test_proximal.py test_certificate.py
    test_subspace.py test_proximal_classes.py test_endless_weights.py test_uneven_columns.py test_pooled.py
    test_course.py
)
# Kernels alone call no BLAS: once.
kernels=(test_span_kernels.py test_kernels.py test_losses.py)
# The family that this processor takes by itself has run all tests already.
own=$("$(dirname "$1")/python" -c '
import numpy, threadpoolctl
print(*(pool.get("architecture") for pool in threadpoolctl.threadpool_info()))')

# Numba keeps what it compiles by the processor's name: once for all families.
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUMBA_CPU_NAME=generic

code=0
for family in Prescott Sandybridge Haswell SkylakeX; do
    if [ "$family" = SkylakeX ] && ! grep -qw avx512f /proc/cpuinfo 2>/dev/null; then
        echo "SkylakeX: skipped, this processor has no AVX-512"
        continue
    fi
    if [ "$family" = "$own" ]; then
        echo "$family: skipped, this processor's own"
        continue
    fi
    begin=$SECONDS
    OPENBLAS_CORETYPE=$family "$@" -m "not slow and not repeats" "${files[@]}" ${kernels[@]+"${kernels[@]}"}
    result=$?
    kernels=()
    echo "$family: exit code $result after $((SECONDS - begin)) s"
    [ "$result" -eq 0 ] || code=1
done
exit "$code"
