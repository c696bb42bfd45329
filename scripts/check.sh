#!/usr/bin/env bash
# Format, lints, and the tests of what changed: check.sh [COMMIT]. What changed is what differs from COMMIT, or else from the last
# commit, and files that git does not know yet. Tests that take long are left to `make test`.
set -euo pipefail
cd "$(dirname "$0")/.."
changed=$({ git diff --name-only "${1:-HEAD}"; git ls-files --others --exclude-standard; } | sort -u)
crates=$(sed -n 's#^crates/\([^/]*\)/.*#\1#p' <<<"$changed" | sort -u)
tests=$(grep '^python/tests/test_.*\.py$' <<<"$changed" || true)

cargo fmt --all --check
cargo clippy --workspace --all-targets --quiet -- -D warnings
if [ -n "$crates" ]; then
    packages=$(sed 's/^/-p /' <<<"$crates")
    if cargo nextest --version >/dev/null 2>&1; then
        # shellcheck disable=SC2086  # a word each
        cargo nextest run --profile check --no-tests pass $packages
    else
        # shellcheck disable=SC2086
        cargo test --lib --bins --quiet $packages
    fi
fi
# The package as it was installed last, or as it is here: the module is built by `make installed`.
if [ -n "$tests" ] && [ -x target/python/bin/python ]; then
    # shellcheck disable=SC2086
    target/python/bin/python -m pytest --quiet $tests
fi
echo "checked: ${crates:-no crate} ${tests:+and Python}" | tr '\n' ' '
echo
