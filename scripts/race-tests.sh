#!/usr/bin/env bash
# Device tests of crates that use streams, on the emulator that HEADWATER_EMULATOR and HWEMU_ORDER set: race-tests.sh. Takes the programs
# of the whole workspace, which other stages have built: those of a few crates would be compiled with other features.
set -euo pipefail
cd "$(dirname "$0")/.."
crates='^(headwater_cuda|headwater_memory|headwater_feature|headwater_graph|headwater_compile|headwater_offload|it) '
# Types of elements do not matter to streams, and there are many.
skipped='--skip every_type_in_and_out'
programs=$(cargo test --workspace --lib --tests --no-run --message-format=json 2>/dev/null |
    python3 -c '
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message["profile"]["test"]:
        print(message["target"]["name"], os.path.dirname(message["manifest_path"]), message["executable"])
' | grep -E "$crates")
echo "$programs" |
    # Of layers, those whose launches are recorded and run beside each other.
    sed -E 's/^headwater_compile .*/& device_repeats/' |
    xargs -P 2 -L 1 bash -c 'cd "$2" && "$0" "$3" "${4:-device}" --quiet --test-threads=1 '"$skipped"' || { echo "failed: $1" >&2; exit 255; }' \
        "$PWD/emulator/run.sh"
# Copies that are late, as on GPUs (docs/testing.md).
read -r _ folder program < <(grep headwater_offload <<<"$programs")
slow=$PWD/emulator/slow/run.sh
(cd "$folder" && env -u HWEMU_ORDER SLOW_COPIES_US=20 "$slow" "$program" device --quiet --test-threads=1)
