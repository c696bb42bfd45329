#!/usr/bin/env bash
# Makes targets one after the other, and says how long each took and how much of the CPUs: stages.sh TARGET... Stops at the first
# that fails.
set -uo pipefail
times=()
report() { printf '%s\n' "${times[@]}"; }
# Sets cpu to the CPU seconds of everything that ended below this shell. A pipe would ask another shell.
clock=$(mktemp)
trap 'rm -f "$clock"' EXIT
read_cpu() {
    times >"$clock"
    cpu=$(awk 'NR == 2 { gsub("m", " "); gsub("s", ""); printf "%d", $1 * 60 + $2 + $3 * 60 + $4 }' "$clock")
}
for stage in "$@"; do
    SECONDS=0
    read_cpu
    before=$cpu
    "${MAKE:-make}" --no-print-directory "$stage"
    code=$?
    read_cpu
    times+=("$(printf '%-10s %5d s %6d CPU s' "$stage" "$SECONDS" "$((cpu - before))")")
    if [ "$code" -ne 0 ]; then
        report
        echo "failed: $stage"
        exit "$code"
    fi
done
report
echo "all checks passed"
