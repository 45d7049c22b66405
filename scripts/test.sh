#!/bin/sh
# Runs every test that a change must pass. Tests that drive the command from outside mostly wait for disks, mounts and foreign tools.
# So they run at the same time as the tests of the crates, whose output comes after theirs.
set -eu
cd "$(dirname "$0")/.."

# Both halves are built with the features of the whole workspace, so a single build is enough.
cargo test --workspace --locked --no-run
end_to_end=$(sed -n '/^\[\[test\]\]/{n;s/^name = "\(.*\)"$/--test \1/p;}' tests/Cargo.toml)
output=$(mktemp)
crates=
trap 'rm -f "$output"; [ -z "$crates" ] || kill "$crates" 2>/dev/null || :' EXIT
trap 'exit 130' INT TERM

cargo test --workspace --exclude backstitch-tests --locked --no-fail-fast >"$output" 2>&1 &
crates=$!
failed=0
# shellcheck disable=SC2086 # one argument for each name
cargo test --workspace --locked --no-fail-fast $end_to_end || failed=1
wait "$crates" || failed=1
crates=
cat "$output"
[ "$failed" -eq 0 ] || echo "Some tests failed: look for 'FAILED' above." >&2
exit "$failed"
