#!/usr/bin/env bash
# Puts stripped programs and one script into a folder that a GPU machine without Rust can run: gpu-bundle.sh OUT.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:?usage: gpu-bundle.sh OUT}
rm -rf "$out"
mkdir -p "$out/tests"

# Together, so that the program and the wheel have their dependencies with the same features and share them.
cargo build --profile dist --quiet -p headwater-cli -p headwater-python
install -s target/dist/headwater "$out/headwater"

# One program a test target, named after its crate; the Python module has no tests, and would need an interpreter.
cargo test --workspace --lib --tests --no-run --message-format=json 2>/dev/null |
    python3 -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message["profile"]["test"] and message["target"]["name"] != "_headwater":
        print(message["target"]["name"], message["executable"])
' | while read -r name program; do install -s "$program" "$out/tests/$name"; done

# A driver whose copies are late.
emulator/slow/build.sh "$out/slow"

# The wheel and its tests, where there is an environment that builds it (make wheel).
if [ -x target/python/bin/maturin ]; then
    target/python/bin/maturin build --quiet --profile dist --interpreter target/python/bin/python --out target/wheels
    mkdir -p "$out/python"
    cp target/wheels/headwater-*.whl "$out/python/"
    cp -r python/tests pyproject.toml "$out/python/"
fi

cp scripts/gpu-run.sh "$out/run.sh"
git rev-parse --short HEAD >"$out/commit" 2>/dev/null || true
du -sh "$out"
