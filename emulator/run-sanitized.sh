#!/usr/bin/env bash
# Runs a test program on emulated devices under the sanitizers. Cargo calls it as a runner: run-sanitized.sh PROGRAM ARGS.
set -euo pipefail
export HEADWATER_LIBCUDA=${HEADWATER_EMULATOR:?}/libcuda.so HEADWATER_LIBNVRTC=${HEADWATER_EMULATOR}/libnvrtc.so
# No other stand-in exists; without these the search could find a real library on the machine.
export HEADWATER_LIBCUBLAS=${HEADWATER_EMULATOR}/none HEADWATER_LIBNVML=${HEADWATER_EMULATOR}/none
# The emulator's images are paths into its own cache, so the kernel cache must not outlive it.
export HEADWATER_CACHE= HWEMU_CACHE=${HEADWATER_EMULATOR}/kernels
export ASAN_OPTIONS=detect_leaks=0:abort_on_error=0 LD_PRELOAD=$(g++ -print-file-name=libasan.so)
exec "$@"
