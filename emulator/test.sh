#!/usr/bin/env bash
# Builds the emulator and its tests, plain and sanitised, and runs them: test.sh [WORK FOLDER [PLAIN SANITISED]], where the last two
# are folders that the emulator is built into, or is there already.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${1:-${TMPDIR:-/tmp}/hwemu-test-$(id -u)}
plain=${2:-$work/plain} sanitised=${3:-$work/sanitised}
mkdir -p "$work/bin"
export HWEMU_CACHE=$work/cache

jobs=-j$(nproc)
make -s "$jobs" -C "$here" OUT="$(realpath -m "$plain")"
make -s "$jobs" -C "$here" OUT="$(realpath -m "$sanitised")" SANITIZE=1
for name in selftest ipc settings order; do
    if [ "$here/tests/$name.cpp" -nt "$work/bin/$name" ] || [ "$here/tests/client.hpp" -nt "$work/bin/$name" ]; then
        g++ -std=c++17 -O0 -Wall -Wextra "$here/tests/$name.cpp" -o "$work/bin/$name" -ldl
    fi
done
gcc -O0 "$here/tests/plain_client.c" -o "$work/bin/plain_client" -ldl
kernels=$here/tests/kernels.cu

# Runs a command that a sanitizer must end with a report that has these words.
dies_with() {
    local words=$1 out
    shift
    if out=$("$@" 2>&1); then
        echo "$out"
        echo "$*: ended well, where a report was due" >&2
        return 1
    fi
    if ! grep -q "$words" <<<"$out"; then
        echo "$out"
        echo "$*: no report with: $words" >&2
        return 1
    fi
    echo "ok ${*: -1} dies"
}

# The same binaries against either pair of libraries; $1 is their folder, the rest sets the environment.
suite() {
    export HEADWATER_LIBCUDA=$1/libcuda.so HEADWATER_LIBNVRTC=$1/libnvrtc.so
    shift
    env "$@" "$work/bin/selftest" "$kernels" 2>"$work/log" || { cat "$work/log" >&2; return 1; }
    env "$@" HWEMU_SCHEDULE=reverse "$work/bin/selftest" "$kernels" >"$work/log" 2>&1 || { cat "$work/log" >&2; return 1; }
    env "$@" HWEMU_SCHEDULE=17 "$work/bin/selftest" "$kernels" >"$work/log" 2>&1 || { cat "$work/log" >&2; return 1; }
    env "$@" "$work/bin/ipc"
    env "$@" HWEMU_DEVICES=2 HWEMU_SMS=8 HWEMU_DRIVER_VERSION=12020 HWEMU_DEVICE_BYTES=1000 HWEMU_REGISTER_BYTES=100 \
        HWEMU_PINNED_BYTES=100 HWEMU_CAPABILITY=75 HWEMU_NO_GREEN=1 "$work/bin/settings"
}

echo "== plain"
suite "$plain" A=1
echo "== held"
for seed in 1 2 3; do
    env HWEMU_ORDER=$seed HWEMU_COUNT_RACES=1 "$work/bin/order" "$kernels" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
done
dies_with "nothing orders the two" env HWEMU_ORDER=1 "$work/bin/order" "$kernels"
echo "== sanitised"
preloaded=("LD_PRELOAD=$(gcc -print-file-name=libasan.so)" "ASAN_OPTIONS=detect_leaks=0")
suite "$sanitised" "${preloaded[@]}"
dies() { dies_with "$1" env "${preloaded[@]}" "$work/bin/selftest" "$kernels" "$2"; }
dies "heap-buffer-overflow" die_out_of_bounds
dies "use-after-poison" die_behind_device_allocation
dies "global-buffer-overflow" die_shared_overflow
dies "heap-buffer-overflow" die_dynamic_shared_overflow
dies "misaligned address" die_misaligned_load
dies "misaligned address" die_misaligned_store
dies "out of bounds" die_own_overflow
dies_with "heap-buffer-overflow" env "${preloaded[@]}" "$work/bin/plain_client"
echo "all ok"
