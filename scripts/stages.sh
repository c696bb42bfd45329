#!/usr/bin/env bash
# Makes targets one after the other, and says how long each took and how much of the CPUs: stages.sh TARGET... Stops at the first
# that fails. One that the machine lacks something for is not run, and fails the whole in the end.
set -uo pipefail
cd "$(dirname "$0")/.."
lines=() missing=()
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
    if ! lacks=$(scripts/needs.sh "$stage"); then
        echo "$lacks"
        missing+=("$lacks")
        continue
    fi
    "${MAKE:-make}" --no-print-directory "$stage"
    code=$?
    read_cpu
    lines+=("$(printf '%-10s %5d s %6d CPU s' "$stage" "$SECONDS" "$((cpu - before))")")
    if [ "$code" -ne 0 ]; then
        printf '%s\n' "${lines[@]}"
        echo "failed: $stage"
        exit "$code"
    fi
done
printf '%s\n' "${lines[@]}" "${missing[@]}"
[ "${#missing[@]}" -eq 0 ] || exit 1
echo "all checks passed"
