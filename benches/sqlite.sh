#!/bin/sh
# What order instead of waiting gains SQLite: small transactions in rollback-journal mode, synchronous=FULL, on one mount, with the VFS
# of patchgroups and without it; each flush of the device takes so many milliseconds longer.
#
#   benches/sqlite.sh BACKSTITCH LIBPATCHGROUP.A [TRANSACTIONS [MS [ORDERING]]]
#
# Prints transactions a second for both, by when the last COMMIT had returned, and what it then takes to have all of them on stable
# storage. OPTIONS names more mount options (cache=64M). Wants gcc, libsqlite3-dev and sqlite3.
set -eu
backstitch=$1 library=$2 transactions=${3:-10000} milliseconds=${4:-5} ordering=${5:-journal=ordered}
here=$(cd "$(dirname "$0")/.." && pwd)
scratch=$(mktemp -d)
trap '"$backstitch" umount "$scratch/mnt" 2> /dev/null || true; rm -rf "$scratch"' EXIT
cc -O2 -fPIC -shared -I "$here/crates/patchgroup/include" -o "$scratch/backstitch.so" \
    "$here/crates/patchgroup/sqlite/backstitch.c" "$library" -lpthread -ldl -lm
case $ordering in journal=*) type=ext3 ;; *) type=ext2 ;; esac

flushes() {
    "$backstitch" stats --json "$scratch/mnt" | tr ',{}' '\n' | sed -n 's/^ *"flushes": *//p'
}

# measure VFS TRANSACTIONS: seconds until the last COMMIT, flushes until then, seconds until all is durable, flushes for that
measure() {
    "$backstitch" mkfs -F -t $type -s 256M "$scratch/disk.img" > /dev/null
    mkdir -p "$scratch/mnt"
    "$backstitch" mount --ordering "$ordering" -o "flush_ms=$milliseconds${OPTIONS:+,$OPTIONS}" "$scratch/disk.img" "$scratch/mnt" > /dev/null
    {
        [ "$1" = unix ] || echo ".load $scratch/backstitch"
        echo ".open file:$scratch/mnt/rows.db?vfs=$1"
        echo "PRAGMA journal_mode=DELETE; PRAGMA synchronous=FULL; CREATE TABLE rows(number INTEGER PRIMARY KEY, filling TEXT);"
        seq "$2" | sed 's/.*/INSERT INTO rows VALUES(&, hex(randomblob(50)));/'
    } > "$scratch/script"
    before=$(flushes)
    start=$(date +%s.%N)
    sqlite3 -batch -bail :memory: < "$scratch/script" > /dev/null
    committed=$(date +%s.%N)
    between=$(flushes)
    "$backstitch" sync "$scratch/mnt"
    durable=$(date +%s.%N)
    after=$(flushes)
    sound=$(sqlite3 "$scratch/mnt/rows.db" "PRAGMA integrity_check; SELECT count(*) FROM rows" | tr '\n' ' ')
    [ "$sound" = "ok $2 " ] || { echo "the database is not as it should be: $sound" >&2; exit 1; }
    "$backstitch" umount "$scratch/mnt"
    rm "$scratch/disk.img"
    echo "$start $committed $durable $before $between $after" | awk '{ print $2 - $1, $5 - $4, $3 - $2, $6 - $5 }'
}
ordered=$(measure backstitch "$transactions")
# Those that wait take long: a twentieth of them gives the rate.
fewer=$((transactions / 20))
waiting=$(measure unix "$fewer")
echo "$ordering: a flush takes $milliseconds ms longer"
echo "$transactions $ordered $fewer $waiting" | awk '{
    form = "%-18s %8.0f transactions a second (%d in %.2f s, %d flushes); then %.2f s and %d flushes until all are durable\n"
    printf form, "with the VFS", $1 / $2, $1, $2, $3, $4, $5
    printf form, "synchronous=FULL", $6 / $7, $6, $7, $8, $9, $10
    printf "%.1f times the transactions a second, %.1f until all are durable\n", $1 / $2 / ($6 / $7), $1 / ($2 + $4) / ($6 / ($7 + $9))
}'
