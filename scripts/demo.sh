#!/usr/bin/env bash
# Shows in two minutes what soft updates are good for: a source tree is unpacked into a new image, the power is cut in the middle, and
# the file system is mounted again at once. Then the same without order.
#
#   BACKSTITCH_BIN  the command (default: target/release/backstitch)
#   SEED            the seed that decides what the drive's cache loses (default: 1)
#   MEGABYTES       how much to unpack at most (default: 400)
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:/usr/sbin:/sbin"

backstitch="${BACKSTITCH_BIN:-target/release/backstitch}"
seed="${SEED:-1}"
megabytes="${MEGABYTES:-400}"
size_mebibytes=1024

for tool in e2fsck tar python3; do
    command -v "$tool" >/dev/null || { echo "demo: $tool is missing: run scripts/install-deps.sh" >&2; exit 1; }
done
[ -x "$backstitch" ] || { echo "demo: $backstitch is missing: run make build" >&2; exit 1; }
[ -r /dev/fuse ] && [ -w /dev/fuse ] || {
    if [ -e /dev/fuse ]; then
        echo "demo: /dev/fuse may not be opened by $(id -un): run this as root, or let users open it (chmod 666 /dev/fuse)" >&2
    else
        echo "demo: there is no /dev/fuse: load the kernel's module (modprobe fuse), or run this where FUSE is allowed" >&2
    fi
    exit 1
}

work="$(mktemp -d "${TMPDIR:-/tmp}/backstitch-demo.XXXXXX")"
image="$work/disk.img"
mount="$work/mnt"
unpacker=""
daemon=""
mkdir "$mount"

drop_mount() {
    if [ "$(id -u)" -eq 0 ]; then umount -l "$mount"; else fusermount3 -uz "$mount"; fi 2>/dev/null || true
}

clean_up() {
    # Ends only what this script has started.
    [ -z "$unpacker" ] || kill "$unpacker" 2>/dev/null || true
    [ -z "$daemon" ] || kill -9 "$daemon" 2>/dev/null || true
    drop_mount
    rm -rf "$work"
}
trap clean_up EXIT

if [ -t 1 ]; then bold=$'\e[1m' green=$'\e[32m' red=$'\e[31m' plain=$'\e[0m'; else bold="" green="" red="" plain=""; fi
say() { printf '%s\n' "$*"; }
step() { printf '\n%s== %s ==%s\n' "$bold" "$*" "$plain"; }
field() { python3 -c 'import json, sys
value = json.load(sys.stdin)
for key in sys.argv[1].split("."): value = value[key]
print(value)' "$1"; }
now() { date +%s.%N; }
since() { python3 -c 'import sys, time; print("%.2f s" % (time.time() - float(sys.argv[1])))' "$1"; }

pack_tree() {
    read -r files bytes < <(python3 scripts/pack-tree.py --megabytes "$megabytes" "$work/tree.tar")
}

used_bytes() { stat -f -c '%b %f %S' "$mount" | awk '{ print ($1 - $2) * $3 }'; }

bar() { # PERCENT TEXT
    [ -t 1 ] || return 0
    local width=40 full=$(($1 * 40 / 100))
    printf '\r  [%s%s] %3d %%  %s ' "$(printf '%*s' "$full" '' | tr ' ' '#')" \
        "$(printf '%*s' $((width - full)) '' | tr ' ' '.')" "$1" "$2"
}

mount_image() { # ARGUMENTS...
    local begun ended
    begun="$(now)"
    answer="$("$backstitch" mount --json "$@" "$image" "$mount" 2>"$work/hint")"
    ended="$(now)"
    mount_seconds="$(python3 -c 'import sys; print("%.2f" % (float(sys.argv[2]) - float(sys.argv[1])))' "$begun" "$ended")"
    daemon="$(field pid <<<"$answer")"
}

unmount_image() {
    # The image is unmounted in any case; complaints are shown.
    "$backstitch" umount "$mount" 2>"$work/complaint" || say "  unmounting: $(head -n 1 "$work/complaint")"
    daemon=""
}

# Unpacks `stop` percent of the archive, then kills the daemon.
unpack_until_power_cut() { # STOP
    local stop="$1" before percent start
    before="$(used_bytes)"
    start="$(now)"
    tar -xf "$work/tree.tar" -C "$mount" 2>/dev/null &
    unpacker=$!
    while percent=$((($(used_bytes) - before) * 100 / bytes)) && [ "$percent" -lt "$stop" ]; do
        bar "$percent" "unpacking"
        kill -0 "$unpacker" 2>/dev/null || break
        sleep 0.1
    done
    bar "$stop" "unpacking"
    kill -9 "$daemon"
    [ ! -t 1 ] || printf '\n'
    say "  ${red}power cut${plain} after $(since "$start"): kill -9, and the drive's cache loses what was not flushed"
    daemon=""
    wait "$unpacker" 2>/dev/null || true
    unpacker=""
    drop_mount
}

# Prints the results of both checks of the image.
verdict() {
    local ours foreign
    ours="$("$backstitch" fsck -n --json "$image" 2>/dev/null || true)"
    say "  backstitch fsck -n: $(python3 -c 'import json, sys
d = json.load(sys.stdin)
k = {**{"leak": 0, "count": 0, "corruption": 0}, **d["kinds"]}
if d["clean"]: print("clean")
else: print("%d leaks, %d counters off, %d corruptions (%.2f s)" % (k["leak"], k["count"], k["corruption"], d["seconds"]))
for f in [f for f in d["findings"] if f["kind"] == "corruption"][:3]: print("      %s: %s" % (f["where"], f["what"]))' <<<"$ours")"
    if foreign="$(e2fsck -fn "$image" 2>&1)"; then
        say "  e2fsck -fn:         clean"
    else
        local remarks
        remarks="$(grep -cE '(Fix|Clear|Connect|Salvage|Rename)[^?]*\? no' <<<"$foreign" || true)"
        say "  e2fsck -fn:         $remarks remarks, the first: $(grep -m1 -vE '^(e2fsck|Pass|$)|was not cleanly' <<<"$foreign" | cut -c1-90)"
    fi
}

step "An image, and a source tree"
start="$(now)"
pack_tree
say "  $files files, $((bytes / 1000000)) MB, from what this machine has ($(since "$start"))"
start="$(now)"
"$backstitch" mkfs -s "${size_mebibytes}M" "$image" >/dev/null
say "  $size_mebibytes MiB of ext2 made by backstitch mkfs in $(since "$start")"

step "Soft updates: every block is written after what it depends on"
mount_image --ordering soft -o "expire=1,volatile=$seed"
unpack_until_power_cut 60
say "  what is on the disk:"
verdict
mount_image --ordering soft
say "  ${green}mounted again, writable, in $mount_seconds s${plain} (recovery itself: $(field recovery.seconds <<<"$answer" | cut -c1-6) s)"
say "  files that are there: $(find "$mount" -xdev -type f 2>/dev/null | wc -l) of $files"
echo "it works" >"$mount/after-the-power-cut"
unmount_image
say "  after an ordinary unmount, which reclaims what the crash left:"
verdict

step "Without order (--ordering async), the same power cut"
rm -f "$image"
"$backstitch" mkfs -s "${size_mebibytes}M" "$image" >/dev/null
mount_image --ordering async -o "expire=1,volatile=$seed"
unpack_until_power_cut 60
say "  what is on the disk:"
verdict
mount_image --ordering soft
say "  mounting it again: $(head -n 1 "$work/hint")"
unmount_image
say ""
