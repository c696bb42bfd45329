#!/usr/bin/env bash
# Runs a program on emulated devices whose copies are late: HEADWATER_EMULATOR=OUT run.sh PROGRAM ARGS.
set -euo pipefail
. "$(dirname "$0")/../environment.sh"
slow=$HEADWATER_EMULATOR/slow
[ "$slow/libcuda-slow.so" -nt "$(dirname "$0")/slow.cpp" ] || "$(dirname "$0")/build.sh" "$slow"
ln -sf ../libcuda.so "$slow/libcuda.so.1"
export HEADWATER_LIBCUDA=$slow/libcuda-slow.so LD_LIBRARY_PATH=$slow${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
exec "$@"
