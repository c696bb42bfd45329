#!/usr/bin/env bash
# The GPU suite: run.sh [tests] [python] [slowed] [sanitizer] [bench]; all of them when none is named. Results go to $OUT or ./out, and
# what failed is printed.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export HEADWATER_OUT=${OUT:-$here/out} HEADWATER_CACHE=${HEADWATER_CACHE:-/tmp/headwater-cache} HEADWATER_GPU_SUITE=1
out=$HEADWATER_OUT
mkdir -p "$out/logs"
what="${*:-tests python slowed sanitizer bench}"
failed=0

# Device tests pass by skipping where there is no GPU.
nvidia-smi -L || exit 1

# one LOG LIMIT COMMAND…: runs it for LIMIT seconds at most and prints a line: seconds, exit status, its log's name.
one() {
    local log=$1 limit=$2 start=$SECONDS
    shift 2
    timeout "$limit" "$@" >"$HEADWATER_OUT/logs/$log.txt" 2>&1
    local status=$?
    # Not every device test gets as far as a GPU.
    grep -q 'terminated before first instrumented API call' "$HEADWATER_OUT/logs/$log.txt" && grep -q '^test result: ok' "$HEADWATER_OUT/logs/$log.txt" && status=0
    echo "$((SECONDS - start)) s, exit $status: $log"
}
export -f one

# report NAME: of the lines of `one` in NAME.txt, those that failed with the end of their logs, the slowest and how many there are.
report() {
    local lines=$out/$1.txt line
    echo "== $1: $(grep -c 'exit 0:' "$lines") of $(wc -l <"$lines") passed; slowest $(sort -n "$lines" | tail -n 1)"
    while read -r line; do
        failed=1
        echo "$line"
        tail -n 25 "$out/logs/${line##*: }.txt" | cut -c 1-400
    done < <(grep -v 'exit 0:' "$lines")
}

# What a program's device tests are called, after the program's name.
device_tests() {
    local program=$1 filter=${2:-device}
    "$program" --list --format terse "$filter" | sed -n "s|^\(.*\): test$|$(basename "$program") \1|p"
}

# Each test has a process of its own, so that a crash takes no other test with it. Those that take all memory of the device go last,
# one at a time.
if [[ $what == *tests* ]]; then
    takes_all='memory_runs_out|others_took|never_fit'
    all=$(for program in "$here"/tests/*; do device_tests "$program"; done)
    each() { xargs -r -P "$1" -L 1 bash -c 'one "$1-${2//:/_}" 400 "'"$here"'/tests/$1" --exact "$2"' one; }
    { grep -Ev "$takes_all" <<<"$all" | each 8; grep -E "$takes_all" <<<"$all" | each 1; } >"$out/tests.txt"
    report tests
fi

# python_tests LOG MARK: those with a mark, and what failed of them.
python_tests() {
    ls "$here"/python/*.whl >/dev/null 2>&1 || return
    mkdir -p "$here/package" && python3 -m zipfile -e "$here"/python/headwater-*.whl "$here/package"
    (cd "$here/python" && PYTHONPATH=$here/package${PYTHONPATH:+:$PYTHONPATH} one "$1" 400 \
        python3 -m pytest -q -p no:cacheprovider -m "$2" tests) >"$out/$1.txt"
    report "$1"
    grep -E '^(FAILED|ERROR)|passed|failed' "$out/logs/$1.txt" | cut -c 1-300 | tail -n 15
}
# By their mark: `pytest -m gpu`.
[[ $what == *python* ]] && python_tests pytest gpu

# Activations that leave and come back once more, several steps of each model, with every copy of ours behind a delay of so many
# microseconds: whoever relies on a copy and has not waited for it is wrong.
if [[ $what == *slowed* ]]; then
    export HEADWATER_LIBCUDA=$here/slow/libcuda-slow.so HEADWATER_OFFLOAD_STEPS=${HEADWATER_OFFLOAD_STEPS:-3} SLOW_COPIES_US=${SLOW_COPIES_US:-100}
    device_tests "$here/tests/headwater_offload" | xargs -P 4 -L 1 bash -c 'one "slowed-$1-${2//:/_}" 400 "'"$here"'/tests/$1" --exact "$2"' one >"$out/slowed.txt"
    report slowed
    python_tests slowed-pytest slowed
    unset HEADWATER_LIBCUDA
fi

# Refused registrations are tried on purpose, so errors of calls are not reported. Races take long to look for, so they are
# looked for in the kernels whose threads share memory by hand.
if [[ $what == *sanitizer* ]] && command -v compute-sanitizer >/dev/null; then
    unset HEADWATER_GPU_SUITE
    # Tests of several processes end some of them, and the driver's calls fail in those while the tool writes its summary.
    check="compute-sanitizer --report-api-errors no --error-exitcode 9"
    {
        for name in tensor feature graph train compile; do
            device_tests "$here/tests/headwater_$name" | grep -v device_beside | sed 's/^/memcheck /'
        done
        device_tests "$here/tests/headwater_tensor" gather::tests::device | sed 's/^/racecheck /'
        device_tests "$here/tests/headwater_compile" block::tests::device | sed 's/^/racecheck /'
    } | xargs -P 10 -L 1 bash -c 'one "$1-$2-${3//:/_}" 200 '"$check"' --tool "$1" "'"$here"'/tests/$2" --exact "$3"' one >"$out/sanitizer.txt"
    report sanitizer
    grep -hE '(ERROR|RACECHECK) SUMMARY' "$out"/logs/{mem,race}check-* | sort | uniq -c | sort -rn | head -n 8
fi

if [[ $what == *bench* ]]; then
    "$here/headwater" info --bandwidth | tee "$out/info.txt"
    "$here/headwater" bench gather --json ${BENCH_ARGS:---suite table --table-gib 16} >"$out/gather.jsonl" || failed=1
    tail -n 40 "$out/gather.jsonl"
fi
exit $failed
