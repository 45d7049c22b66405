#!/bin/sh
# What `backstitch order` costs: packages unpacked as dpkg does it, an fsync and a rename for each file, under `order`; the same with every
# fsync turned into nothing; and as it is, where each fsync waits.
#
#   benches/order.sh BACKSTITCH [PACKAGES [ORDERING [ROUNDS]]]
#
# Prints seconds for each, the least of the rounds, with the flushes of the device, and what it then takes to have all of it on stable
# storage; and how much longer it takes under `order`, by the least of each and by the median over the rounds, in which one runs after the
# other. With fsync that waits a tenth of the packages is unpacked. Wants python3.
set -eu
backstitch=$1 packages=${2:-500} ordering=${3:-soft} rounds=${4:-3}
here=$(cd "$(dirname "$0")/.." && pwd)
unpack=$here/docs/examples/order/unpack.py
scratch=$(mktemp -d)
trap '"$backstitch" umount "$scratch/mnt" 2> /dev/null || true; rm -rf "$scratch"' EXIT
case $ordering in journal=*) type=ext3 ;; *) type=ext2 ;; esac
never='import os, runpy, sys; os.fsync = lambda _: None; sys.argv[0:1] = []; runpy.run_path(sys.argv[0], run_name="__main__")'

counter() {
    "$backstitch" stats --json "$scratch/mnt" | tr ',{}' '\n' | sed -n "s/^ *\"$1\": *//p"
}
flushes() {
    counter flushes
}

# measure NAME COMMAND…: appends the name, seconds and flushes to the figures
measure() {
    name=$1
    shift
    "$backstitch" mkfs -F -t $type -s 256M "$scratch/disk.img" > /dev/null
    mkdir -p "$scratch/mnt"
    "$backstitch" mount --ordering "$ordering" "$scratch/disk.img" "$scratch/mnt" > /dev/null
    cd "$scratch/mnt"
    python3 "$unpack" setup
    "$backstitch" sync .
    before=$(flushes)
    start=$(date +%s.%N)
    "$@" > /dev/null
    end=$(date +%s.%N)
    after=$(flushes)
    python3 "$unpack" check
    durable=$end last=$after
    if [ "$round" = "$rounds" ]; then
        start_sync=$(date +%s.%N)
        "$backstitch" sync .
        durable=$(echo "$end $start_sync $(date +%s.%N)" | awk '{ printf "%.3f", $1 + $3 - $2 }')
        last=$(flushes)
        cd "$here"
        "$backstitch" umount "$scratch/mnt"
    else
        # Nobody looks at it again: it need not be written.
        kill -9 "$(counter pid)"
        cd "$here"
        umount -l "$scratch/mnt" 2> /dev/null || fusermount3 -uz "$scratch/mnt"
    fi
    rm "$scratch/disk.img"
    echo "$name $start $end $before $after $durable $last" | awk '{ print $1, $3 - $2, $5 - $4, $6 - $3, $7 - $5 }' >> "$scratch/figures"
}
for round in $(seq "$rounds"); do
    measure order "$backstitch" order -- python3 -c "import runpy, sys; sys.argv[0:1] = []; runpy.run_path(sys.argv[0], run_name='__main__')" "$unpack" run "$packages"
    measure never python3 -c "$never" "$unpack" run "$packages"
done
measure waits python3 "$unpack" run "$((packages / 10))"
awk -v ordering="$ordering" '
    !($1 in least) || $2 < least[$1] { least[$1] = $2; flushes[$1] = $3 }
    { rest[$1] = $4; rest_flushes[$1] = $5 }
    $1 == "order" { ordered = $2 }
    $1 == "never" {
        ratio = ordered / $2
        for (at = ++pairs; at > 1 && sorted[at - 1] > ratio; at--) sorted[at] = sorted[at - 1]
        sorted[at] = ratio
    }
    function figures(name) {
        return sprintf("%.2f s (%d flushes), then %.2f s (%d) until all is durable", least[name], flushes[name], rest[name], rest_flushes[name])
    }
    END {
        printf "%s: under order %s\n", ordering, figures("order")
        printf "%s: without fsync %s\n", ordering, figures("never")
        printf "%s: with fsync, a tenth of them, %s\n", ordering, figures("waits")
        middle = (sorted[int((pairs + 1) / 2)] + sorted[int(pairs / 2) + 1]) / 2
        printf "%s: order / without fsync %.2f; median of %d pairs %.2f (%.2f to %.2f)\n", ordering, least["order"] / least["never"],
            pairs, middle, sorted[1], sorted[pairs]
    }' "$scratch/figures"
