"""Tables in Markdown out of the lines that the benchmark wrote: best peer over ours, geometric means and the lowest cell."""

import json
import math

STEP_NAMES = {"inference": "inference", "training": "training, with a loss", "layer": "training, the layer alone"}


def read(paths):
    """Records of files of JSON lines; a later record of the same case takes the place of an earlier one."""
    kept = {}
    for path in paths:
        with open(path) as file:
            for line in file:
                if line.strip():
                    record = json.loads(line)
                    names = ("shape", "model", "width", "heads", "layers", "tf32", "system", "variant", "mode", "what")
                    kept[tuple(record.get(name) for name in names)] = record
    return list(kept.values())


def counts(record):
    """Whether a record has a figure, and results that are those of the reference."""
    return "ms" in record and record.get("ok", False)


def best(records):
    found = [record for record in records if counts(record)]
    return min(found, key=lambda record: record["ms"]) if found else None


def shown(record, failures):
    """A figure with what made it, or why there is none."""
    if record is not None:
        mark = "*" if record.get("cut") else ""
        return f"{record['ms']:.3g}{mark}"
    return failures or "-"


def why(records):
    """Why a system has no figure, shortly."""
    reasons = []
    for record in records:
        reason = record.get("error") or ("results differ" if record.get("ok") is False else None)
        reason = reason and (reason if len(reason) < 40 else "error")
        if reason and reason not in reasons:
            reasons.append(reason)
    return ", ".join(reasons)


def geometric(numbers):
    return math.exp(sum(math.log(number) for number in numbers) / len(numbers)) if numbers else None


def tables(records, ours="headwater"):
    """All tables as one text."""
    groups = {}
    for record in records:
        if "system" in record:
            groups.setdefault(tuple(record.get(name) for name in ("width", "heads", "layers", "tf32")), []).append(record)
    skipped = sorted({f"{record['skipped']} ({record['reason']})" for record in records if "skipped" in record})
    parts = [f"Not measured: {', '.join(skipped)}.\n"] if skipped else []
    parts += [line for key, own in sorted(groups.items(), key=str) for line in _table(key, own, ours)]
    return "\n".join(parts)


def _table(key, records, ours):
    width, heads, layers, tf32 = key
    exactness = "TF32" if tf32 else "float32"
    yield f"### Width {width}, heads {heads}, layers {layers}, {exactness}\n"
    yield "Milliseconds, medians; each system's best variant, by calls or out of a CUDA graph. Ratios are best peer over ours,"
    yield "above one where ours is faster. `*`: fewer rounds than asked for. Peak MB are the driver's, of ours and of the"
    yield "best peer.\n"
    peers = sorted({record["system"] for record in records} - {ours})
    columns = ["shape", "layer", "step", *peers, "ours, calls", "ours, graph", "best peer", "ratio, calls", "ratio", "peak MB"]
    yield "| " + " | ".join(columns) + " |"
    yield "| " + " | ".join("---" for _ in columns) + " |"
    ratios = {}
    cases = {}
    for record in records:
        # What failed before a step was timed failed for all steps.
        for what in STEP_NAMES if record.get("what") is None else [record["what"]]:
            cases.setdefault((record["shape"], record["model"], what), []).append(record)
    steps = {record.get("what") for record in records}
    for case in sorted((case for case in cases if case[2] in steps or steps == {None}), key=_place(records)):
        yield _row(case, cases[case], peers, ours, ratios)
    yield ""
    yield from _summary(ratios)


def _place(records):
    shapes = list(dict.fromkeys(record["shape"] for record in records))
    models = list(dict.fromkeys(record["model"] for record in records))
    return lambda case: (shapes.index(case[0]), models.index(case[1]), list(STEP_NAMES).index(case[2]))


def _row(case, own, peers, ours, ratios):
    shape, model, what = case
    cells = []
    for peer in peers:
        of_peer = [record for record in own if record["system"] == peer]
        cells.append(shown(best(of_peer), why(of_peer)))
    of_ours = [record for record in own if record["system"] == ours]
    calls, graph = ([record for record in of_ours if record.get("mode") in (mode, None)] for mode in ("calls", "graph"))
    cells += [shown(best(calls), why(calls)), shown(best(graph), why(graph))]
    peer, fastest = best([record for record in own if record["system"] != ours]), best(of_ours)
    cells.append("-" if peer is None else f"{peer['system']}: {peer['variant']}" + (", graph" if peer["mode"] == "graph" else ""))
    for at, mine in enumerate((best(calls), fastest)):
        if peer is None or mine is None:
            cells.append("-")
            continue
        ratio = peer["ms"] / mine["ms"]
        cells.append(f"{ratio:.2f}")
        if at:
            ratios[case] = ratio
    sizes = [mine and mine.get("driver_bytes") for mine in (fastest, peer)]
    cells.append(" / ".join("-" if size is None else f"{size / 1e6:.0f}" for size in sizes))
    return "| " + " | ".join([shape, model, STEP_NAMES[what], *cells]) + " |"


def _summary(ratios):
    if not ratios:
        yield "No ratios: there are no figures of ours and of a peer for the same case.\n"
        return
    models = list(dict.fromkeys(case[1] for case in ratios))
    yield "| geometric mean of ratios | " + " | ".join(models) + " | all |"
    yield "| " + " | ".join("---" for _ in range(len(models) + 2)) + " |"
    for what in [*STEP_NAMES, None]:
        cells = []
        for model in [*models, None]:
            mean = geometric([ratio for case, ratio in ratios.items() if case[1] in (model or models) and what in (case[2], None)])
            cells.append("-" if mean is None else f"{mean:.2f}")
        yield f"| {STEP_NAMES.get(what, 'all')} | " + " | ".join(cells) + " |"
    case, ratio = min(ratios.items(), key=lambda pair: pair[1])
    below = sum(ratio < 1 for ratio in ratios.values())
    yield f"\nLowest cell: {ratio:.2f} ({', '.join([*case[:2], STEP_NAMES[case[2]]])}); {below} of {len(ratios)} are below one.\n"
