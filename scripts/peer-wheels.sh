#!/usr/bin/env bash
# Other people's activation offloaders for bench/peers/offload.py on a machine where nothing can be installed: peer-wheels.sh FOLDER,
# and there PYTHONPATH=FOLDER. Of TRL and torchtune it is one file each, with licence and version; accelerate is whole, where asked for by
# --accelerate, since machines with transformers mostly have it. Nothing that they depend on comes along.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:?usage: peer-wheels.sh FOLDER [--accelerate]}
wanted=(trl==1.16.0 torchtune==0.6.1)
[ "${2:-}" != --accelerate ] || wanted+=(accelerate==1.15.0)
pip=(python3 -m pip)
[ ! -x target/python/bin/pip ] || pip=(target/python/bin/pip)

wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
"${pip[@]}" download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$wheels" "${wanted[@]}"
rm -rf "$folder"
mkdir -p "$folder"
python3 - "$folder" "$wheels" <<'END'
import pathlib
import sys
import zipfile

folder, wheels = sys.argv[1:]
parts = ("trl/models/activation_offloading.py", "torchtune/training/_activation_offloading.py", "accelerate/")
for wheel in pathlib.Path(wheels).glob("*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith(parts) or (".dist-info/" in name and not name.endswith("RECORD"))]
        archive.extractall(folder, names)
        print(wheel.name, len(names), "files")
END
du -sh "$folder"
