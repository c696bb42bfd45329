#!/usr/bin/env bash
# Makes targets one after the other, and says how long each took: stages.sh TARGET... Stops at the first that fails.
set -uo pipefail
times=()
report() { printf '%s\n' "${times[@]}"; }
for stage in "$@"; do
    SECONDS=0
    "${MAKE:-make}" --no-print-directory "$stage"
    code=$?
    times+=("$(printf '%-10s %5d s' "$stage" "$SECONDS")")
    if [ "$code" -ne 0 ]; then
        report
        echo "failed: $stage"
        exit "$code"
    fi
done
report
echo "all checks passed"
