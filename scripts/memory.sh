#!/bin/sh
# Measures the largest memory of a mount, and checks that nothing hangs: FILES files are made and removed, and a sparse file of
# SPARSE_GIB GiB with an indirect block every 4 MiB is truncated, each in a mount with a cache of CACHE_MIB. Prints the daemon's peak
# resident memory. Fails if it is more than CACHE_MIB and SLACK_MIB together, or if a step takes longer than LIMIT_SECONDS.
set -eu
backstitch="${BACKSTITCH_BIN:-$(dirname "$0")/../target/release/backstitch}"
files="${FILES:-200000}"
gib="${SPARSE_GIB:-20}"
cache="${CACHE_MIB:-64}"
slack="${SLACK_MIB:-48}"
limit="${LIMIT_SECONDS:-900}"
work="$(mktemp -d "${TMPDIR:-/tmp}/backstitch-memory.XXXXXX")"
mkdir "$work/mnt"
trap '"$backstitch" umount --lazy "$work/mnt" 2> /dev/null || true; rm -rf "$work"' EXIT INT TERM

up() {
    "$backstitch" mount -o "cache=${cache}M" "$work/a.img" "$work/mnt"
    pid="$("$backstitch" stats --json "$work/mnt" | sed -n 's/.*"pid":[ ]*\([0-9]*\).*/\1/p')"
}

# report WHAT: prints the peak after WHAT was done.
report() {
    peak="$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$pid/status")"
    printf '%s: peak resident %s MiB\n' "$1" "$((peak / 1024))"
    "$backstitch" stats "$work/mnt" | sed -n '/^Memory/,/^$/s/^  /    /p'
    if [ "$((peak / 1024))" -gt "$((cache + slack))" ]; then
        printf 'more than %s MiB\n' "$((cache + slack))" >&2
        exit 1
    fi
}

"$backstitch" mkfs -q -s 32G "$work/a.img"
up
timeout "$limit" sh -c 'cd "$1"; n=0; while [ $n -lt "$2" ]; do d=d$((n / 1000)); mkdir $d
    seq -f "$d/a-file-with-a-name-%06.0f" $n $((n + 999)) | xargs touch; n=$((n + 1000)); done' sh "$work/mnt" "$files"
report "$files files made"
"$backstitch" umount "$work/mnt"
up
timeout "$limit" sh -c 'cd "$1" && rm -r d*' sh "$work/mnt"
report "$files files removed"
timeout "$limit" "$backstitch" umount "$work/mnt"

up
timeout "$limit" sh -c 'n=0; while [ $n -lt "$2" ]; do echo x | dd of="$1/sparse" bs=1 seek=$((n * 4194304)) conv=notrunc status=none
    n=$((n + 1)); done' sh "$work/mnt" "$((gib * 256))"
report "a sparse file of $gib GiB written"
"$backstitch" umount "$work/mnt"
up
timeout "$limit" truncate -s 0 "$work/mnt/sparse"
"$backstitch" sync "$work/mnt"
report "and cut off"
timeout "$limit" "$backstitch" umount "$work/mnt"
"$backstitch" fsck -n "$work/a.img"
