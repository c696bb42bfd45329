#!/usr/bin/env bash
# What a stage of `make test` needs and the machine has not, a line each with the command that installs it: needs.sh STAGE. Fails
# when something is missing.
set -uo pipefail
cd "$(dirname "$0")/.."
missing=0
need() {
    echo "$1 needs $2: $3"
    missing=1
}
has() { command -v "$1" >/dev/null 2>&1; }
# Whether version $1 is at least $2.
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

stage=${1:?usage: needs.sh STAGE}
wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
if ! has cargo; then
    need "$stage" "Rust $wanted" "curl -sSf https://sh.rustup.rs | sh"
else
    found=$(rustc --version | cut -d' ' -f2)
    at_least "$found" "$wanted" || need "$stage" "Rust $wanted, and this is $found" "rustup update stable"
fi
case $stage in
lint)
    cargo fmt --version >/dev/null 2>&1 || need "$stage" rustfmt "rustup component add rustfmt"
    cargo clippy --version >/dev/null 2>&1 || need "$stage" clippy "rustup component add clippy"
    ;;
emulated | python | races) has "${HWEMU_CXX:-g++}" || need "$stage" "a C++ compiler" "apt-get install g++" ;;
esac
# What is installed below target/ is installed once.
installed() {
    [ -e "$1" ] || "${MAKE:-make}" -s "$1" >/dev/null 2>&1 || need "$stage" "the network, once" "make $1"
}
case $stage in
kernels | python | races)
    python3 -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null ||
        need "$stage" "Python 3.10 with venv" "apt-get install python3-venv"
    ;;
esac
[ "$missing" -eq 0 ] || exit 1
case $stage in
kernels) installed target/venv/nvrtc.stamp ;;
python | races) installed target/python/stamp ;;
esac
exit "$missing"
