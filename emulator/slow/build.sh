#!/usr/bin/env bash
# Makes the driver whose copies are late: build.sh OUT makes OUT/libcuda-slow.so. Which driver is behind it is decided where it is loaded.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: build.sh OUT}
mkdir -p "$out"
stub=$(mktemp -d)
trap 'rm -rf "$stub"' EXIT
# Something to be linked with: the name is all that counts.
echo 'void headwater_stub(void) {}' | gcc -shared -fPIC -x c - -Wl,-soname,libcuda.so.1 -o "$stub/libcuda.so.1"
g++ -std=c++17 -O1 -fPIC -shared -fvisibility=hidden -Wall -Wextra -Werror "$here/slow.cpp" -o "$out/libcuda-slow.so" \
    -Wl,--no-as-needed "$stub/libcuda.so.1" -ldl
