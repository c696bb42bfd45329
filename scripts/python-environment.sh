#!/usr/bin/env bash
# What tests of the Python package need, in an environment of their own: python-environment.sh FOLDER. Torch is the build that the
# machine can use, without CUDA where there is no GPU, if its index can be reached; else what pip would take.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:?usage: python-environment.sh FOLDER}
python3 -m venv "$folder"
# uv takes a quarter of pip's time.
"$folder/bin/pip" install --quiet --disable-pip-version-check 'uv<1'
install=("$folder/bin/uv" pip install --quiet --python "$folder/bin/python" -r python/requirements.txt)
UV_HTTP_RETRIES=0 UV_HTTP_TIMEOUT=10 "${install[@]}" --torch-backend auto 2>/dev/null || "${install[@]}"
