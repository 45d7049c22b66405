#!/bin/sh
# Runs every test that a change must pass, in three parts at the same time. Those that drive the command from outside mostly wait for
# mounts and foreign tools; the explorer's and the papers' tests compute; the third part is all others. The first one's output is shown
# as it comes, that of the two others after it.
set -eu
cd "$(dirname "$0")/.."

# What is kept for the next build by a part of a crate costs a first build a third of its time, and gigabytes.
export CARGO_INCREMENTAL="${CARGO_INCREMENTAL:-0}"

# All parts are built with the features of the whole workspace, so a single build is enough.
cargo test --workspace --locked --no-run
computing="--test crash --test papers"
targets() {
    cargo metadata --no-deps --locked --format-version 1 | python3 -c '
import json, sys
is_wanted = lambda package: (package["name"] == "backstitch-tests") == (sys.argv[1] == "end-to-end")
packages = filter(is_wanted, json.load(sys.stdin)["packages"])
names = {t["name"] for p in packages for t in p["targets"] if t["kind"] == ["test"]} - set(sys.argv[2:])
print(*(f"--test {name}" for name in sorted(names)))' "$@"
}
end_to_end=$(targets end-to-end)
# shellcheck disable=SC2086
others="--lib --bins --examples $(targets crates $computing)"

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

output=$(mktemp -d)
running=
cleanup() {
    rm -rf "$output"
    # shellcheck disable=SC2086 # one argument for each process
    [ -z "$running" ] || kill $running 2>/dev/null || :
    if [ -n "$memory" ]; then
        # Lazily, if a test was interrupted and left something below.
        umount "$memory" 2>/dev/null || umount -l "$memory"
        rmdir "$memory"
    fi
}
trap cleanup EXIT
trap 'exit 130' INT TERM

cargo="cargo test --workspace --locked --no-fail-fast"
# Each is one argument for each word.
# shellcheck disable=SC2086
{
    $cargo $computing >"$output/computing" 2>&1 &
    running=$!
    $cargo $others >"$output/others" 2>&1 &
    running="$running $!"
    failed=0
    $cargo $end_to_end || failed=1
    $cargo --doc || failed=1
}
for process in $running; do
    wait "$process" || failed=1
done
running=
cat "$output/computing" "$output/others"
[ "$failed" -eq 0 ] || echo "Some tests failed: look for 'FAILED' above." >&2
exit "$failed"
