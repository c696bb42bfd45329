#!/usr/bin/env bash
# The GPU suite: run.sh [tests] [python] [sanitizer] [bench]; all of them when none is named. Results go to $OUT or ./out.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-$here/out}
mkdir -p "$out"
what="${*:-tests python sanitizer bench}"
export HEADWATER_CACHE=${HEADWATER_CACHE:-/tmp/headwater-cache} HEADWATER_GPU_SUITE=1
failed=0

if [[ $what == *tests* ]]; then
    for program in "$here"/tests/*; do
        echo "== $(basename "$program")"
        # A crash or a timeout prints no result of its own, and a variable set in this pipeline is lost after it.
        timeout 300 "$program" device || echo "FAILED: $(basename "$program") ended with $?"
    done 2>&1 | tee "$out/tests.txt" | grep -E "^==|^test result|FAILED|panicked|failed|error" || true
    grep -qE "FAILED|test failed" "$out/tests.txt" && failed=1
fi

if [[ $what == *python* ]] && ls "$here"/python/*.whl >/dev/null 2>&1; then
    echo "== python"
    mkdir -p "$out/package" && python3 -m zipfile -e "$here"/python/headwater-*.whl "$out/package"
    PYTHONPATH=$out/package${PYTHONPATH:+:$PYTHONPATH} timeout 300 python3 -m pytest -q -p no:cacheprovider \
        "$here"/python/tests/test_gpu.py "$here"/python/tests/test_unified*.py "$here"/python/tests/test_arrays.py "$here"/python/tests/test_glt*.py \
        >"$out/python.txt" 2>&1 || failed=1
    tail -n 5 "$out/python.txt"
fi

if [[ $what == *sanitizer* ]] && command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
        echo "== compute-sanitizer $tool"
        # Refused registrations are tried on purpose, so errors of calls are not reported. Races take long to look for.
        tests=$([ $tool = racecheck ] && echo gather::tests::device || echo device)
        timeout 200 compute-sanitizer --tool $tool --report-api-errors no --error-exitcode 9 \
            "$here/tests/headwater_tensor" $tests --test-threads=1 \
            >"$out/sanitizer-$tool.txt" 2>&1 || failed=1
        tail -n 3 "$out/sanitizer-$tool.txt"
    done
fi

if [[ $what == *bench* ]]; then
    "$here/headwater" info --bandwidth | tee "$out/info.txt"
    "$here/headwater" bench gather --json ${BENCH_ARGS:---suite table --table-gib 16} >"$out/gather.jsonl" || failed=1
    tail -n 40 "$out/gather.jsonl"
fi
exit $failed
