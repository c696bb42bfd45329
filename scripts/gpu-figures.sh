#!/usr/bin/env bash
# Figures that docs/results has of compiled layers, on a GPU machine with the bundle: gpu-figures.sh WHAT... Lines of JSON and logs go to $OUT or
# ./out. What was measured is not measured again where a command can go on.
#
#   expert       RGCN, RGAT, HGT against an expert's PyTorch on the six smaller shapes (10 minutes with torch.compile)
#   expert-large the same on mag and wikikg2
#   tf32         the same with products in TF32 on both sides
#   pyg, triton  against those, on all shapes
#   suites       `bench layer --suite`: systems with every kernel, optimisations, memory, width
#   precisions   TF32x3, TF32 and bf16 side by side
#   sums         products that are added up by node, with and without, and by how many nodes a thread block has
#   hubs         GCN, SAGE, GAT on arxiv, products and `hub`, and against PyG
#   modes        `bench train`: features in GPU memory, tiered and read from the host, on papers100M's shape
#   widths       a step of GAT with 315 and with 800 features
set -uo pipefail
cd "$(dirname "$0")/.."
known=" expert expert-large tf32 pyg triton suites precisions sums hubs modes widths "
for what in "$@"; do
    [[ $known == *" $what "* ]] || { echo "$0: $what is none of$known" >&2 && exit 2; }
done
[ $# -gt 0 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" && exit 2; }
bundle=$PWD/target/gpu
ls "$bundle"/python/headwater-*.whl >/dev/null 2>&1 || { echo "$0: no wheel in $bundle; make gpu-bundle puts one there" >&2 && exit 2; }
out=${OUT:-$PWD/out}
mkdir -p "$out" "$bundle/package"
[ -e "$bundle/package/headwater" ] || python3 -m zipfile -e "$bundle"/python/headwater-*.whl "$bundle/package"
export PYTHONPATH=$bundle/package${PYTHONPATH:+:$PYTHONPATH} HEADWATER_CACHE=${HEADWATER_CACHE:-/tmp/headwater-cache}
failed=0

# run NAME COMMAND...: its output into a log, and how long it took.
run() {
    local name=$1 start=$SECONDS
    shift
    "$@" >"$out/$name.log" 2>&1 || { failed=1 && tail -n 5 "$out/$name.log"; }
    echo "$name: $((SECONDS - start)) s"
}
# relational NAME SHAPES ARGUMENTS...: with the variants of the expert that are the fastest somewhere.
relational() {
    local name=$1 shapes=$2
    shift 2
    # shellcheck disable=SC2086
    run "$name" python3 bench/peers/relational.py $shapes --rounds 5 --seconds 0.5 --json "$out/relational.jsonl" "$@"
}
ways=(--systems headwater,expert --variants 'compiled;reference;cusparse, blocks')
small="aifb mutag bgs fb15k biokg am"
layer() { run "$1" "$bundle/headwater" bench layer --out "$out/layer.jsonl" "${@:2}"; }

for what in "$@"; do
    case $what in
    expert) relational expert "$small" "${ways[@]}" --steps inference,training,layer ;;
    expert-large) relational expert-large "mag wikikg2" "${ways[@]}" --steps inference,training,layer ;;
    tf32) relational tf32 "$small mag wikikg2" "${ways[@]}" --no-compile --tf32 --steps inference,training ;;
    pyg) relational pyg "$small mag wikikg2" --systems pyg --no-compile --steps inference,training ;;
    triton) relational triton "$small mag wikikg2" --systems headwater,triton --no-compile --steps inference,training ;;
    suites) for suite in systems memory width optimisations; do layer "$suite" --suite "$suite"; done ;;
    precisions)
        layer precisions --like biokg,am,mag --model rgcn,rgat,hgt --variant hector --precision tf32x3,tf32,bf16
        ;;
    sums)
        shapes=(--like bgs,biokg,am,mag --model rgcn,rgat,hgt --variant hector --direction both)
        layer sums "${shapes[@]}"
        layer sums-without "${shapes[@]}" --without product_sums
        for nodes in 192 96; do layer "sums-$nodes" "${shapes[@]}" --tune "nodes=$nodes"; done
        ;;
    hubs)
        layer hubs --like hub,arxiv,products --model gcn,sage,gat
        run convs python3 bench/peers/convs.py --steps inference,training --seconds 0.5 --rounds 5
        ;;
    modes)
        run modes "$bundle/headwater" bench train --like papers100m --suite modes --features all-gpu,tiered,zero-copy --batches 256 --model sage,gat --json
        ;;
    widths)
        for width in 315 800; do
            run "width-$width" "$bundle/headwater" bench train --like wikipedia --width "$width" --suite modes --features all-gpu --batches 64 --model gat --json
        done
        ;;
    esac
done
exit $failed
