#!/usr/bin/env bash
# Runs a program on emulated devices, without the sanitizers: HEADWATER_EMULATOR=OUT run.sh PROGRAM ARGS.
set -euo pipefail
. "$(dirname "$0")/environment.sh"
exec "$@"
