#!/bin/sh
# Runs every test that a change must pass. Tests that drive the command from outside mostly wait for mounts and foreign tools.
# So they run at the same time as the tests of the crates, whose output comes after theirs.
set -eu
cd "$(dirname "$0")/.."

# What is kept for the next build by a part of a crate costs a first build a third of its time, and gigabytes.
export CARGO_INCREMENTAL="${CARGO_INCREMENTAL:-0}"

# Both halves are built with the features of the whole workspace, so a single build is enough.
cargo test --workspace --locked --no-run
end_to_end=$(sed -n '/^\[\[test\]\]/{n;s/^name = "\(.*\)"$/--test \1/p;}' tests/Cargo.toml)

# Root's images are in memory, unless TMPDIR says where, or memory is scarce. The tests judge what reaches the device and do not need
# the time that flushing it takes. `make soak` has images on a disk. It is no part of /dev: guests and namespaces have one of their own.
memory=
available_kib=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
if [ -z "${TMPDIR:-}" ] && [ "$(id -u)" -eq 0 ] && [ "${available_kib:-0}" -gt 8000000 ]; then
    memory=$(mktemp -d)
    if mount -t tmpfs -o size=6G,mode=1777 backstitch-tests "$memory" 2>/dev/null; then
        export TMPDIR="$memory"
    else
        rmdir "$memory"
        memory=
    fi
fi

output=$(mktemp)
crates=
cleanup() {
    rm -f "$output"
    [ -z "$crates" ] || kill "$crates" 2>/dev/null || :
    if [ -n "$memory" ]; then
        # Lazily, if a test was interrupted and left something below.
        umount "$memory" 2>/dev/null || umount -l "$memory"
        rmdir "$memory"
    fi
}
trap cleanup EXIT
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
