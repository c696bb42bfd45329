#!/usr/bin/env bash
# Runs a test program on emulated devices under the sanitizers. Cargo calls it as a runner: run-sanitized.sh PROGRAM ARGS.
set -euo pipefail
. "$(dirname "$0")/environment.sh"
export ASAN_OPTIONS=detect_leaks=0:abort_on_error=0 LD_PRELOAD=$(g++ -print-file-name=libasan.so)
exec "$@"
