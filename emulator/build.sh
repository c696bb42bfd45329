#!/usr/bin/env bash
# Builds the two stand-in libraries: build.sh OUT [--sanitize]. Does nothing when OUT is newer than the sources.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: build.sh OUT [--sanitize]}
flags=(-std=c++17 -O2 -g -fPIC -shared -fvisibility=hidden -fno-omit-frame-pointer -Wall -Wextra -Werror)
if [ "${2:-}" = --sanitize ]; then
    flags+=(-fsanitize=address,undefined -fno-sanitize-recover=undefined)
fi
mkdir -p "$out"
cxx=${HWEMU_CXX:-g++}

# Whether $1 is missing, older than one of the files that follow, or was built with other flags.
stale() {
    local target=$1
    shift
    [ -e "$target" ] && [ "$(cat "$target.flags" 2>/dev/null)" = "$cxx ${flags[*]}" ] || return 0
    local file
    for file in "$@"; do [ "$file" -nt "$target" ] && return 0; done
    return 1
}

# Builds under another name and renames, so that a process that has the library open keeps its own.
library() {
    local target=$out/$1
    shift
    stale "$target" "$@" "$here/build.sh" || return 0
    local sources=() file
    for file in "$@"; do case $file in *.cpp) sources+=("$file") ;; esac; done
    $cxx "${flags[@]}" "${sources[@]}" -o "$target.new" -ldl -lpthread
    mv "$target.new" "$target"
    echo "$cxx ${flags[*]}" >"$target.flags"
}

library libcuda.so "$here"/driver/*.cpp "$here"/driver/*.hpp "$here"/runtime.hpp &
driver=$!
library libnvrtc.so "$here"/nvrtc/*.cpp "$here"/nvrtc/*.hpp
wait "$driver"

# What kernels call at every access, where they are watched.
if stale "$out/watch.o" "$here/device/watch.cpp" "$here/build.sh"; then
    $cxx -std=c++17 -O2 -fPIC -fvisibility=hidden -Wall -Wextra -Werror -c "$here/device/watch.cpp" -o "$out/watch.o.new"
    mv "$out/watch.o.new" "$out/watch.o"
    echo "$cxx ${flags[*]}" >"$out/watch.o.flags"
fi

# The header that kernels are compiled with lies beside libnvrtc.so.
mkdir -p "$out/device"
cp -u "$here"/device.hpp "$here"/runtime.hpp "$out/"
cp -u "$here"/device/*.hpp "$out/device/"
