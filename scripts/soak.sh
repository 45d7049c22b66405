#!/bin/sh
# The tests with large numbers, over and over, until one fails or ROUNDS are done. Every test prints its seed; SEED=… with the
# test's own command repeats it.
set -eu
cd "$(dirname "$0")/.."
rounds="${ROUNDS:-0}"
round=0
export KEEP=1
while [ "$rounds" -eq 0 ] || [ "$round" -lt "$rounds" ]; do
    round=$((round + 1))
    printf '\n== round %s, %s ==\n' "$round" "$(date '+%F %T')"
    STEPS="${STEPS:-1000000}" cargo test --locked --release -p backstitch-patch --test model -- --nocapture
    KILLS="${KILLS:-50}" OPERATIONS="${OPERATIONS:-200000}" COMPARE_EVERY="${COMPARE_EVERY:-5000}" \
        FSX_OPS="${FSX_OPS:-200000}" ROUNDS="${IMAGES:-500}" MOMENTS="${MOMENTS:-2000}" CUTS="${CUTS:-40}" \
        cargo test --release --locked -p backstitch-tests \
        --test kill --test recorded --test journal --test lockstep --test fsx --test bad_images -- --nocapture
    cargo test --release --locked -p backstitch-vfs --test journal_write -- --ignored
    for workload in ace:1 seq:2 ace:2 random:2000; do
        # ACE's sequences of one operation are explored to the end.
        bounds="--exhaustive 2000 --samples 300"
        [ "$workload" != ace:1 ] || bounds=""
        "${BACKSTITCH_BIN:-target/release/backstitch}" crash fs --workload "$workload" --seed "$round" --states "${STATES:-20000000}" \
            --e2fsck 5000 $bounds
    done
    BACKSTITCH_NESTED_EFFORT="${NESTED_EFFORT:-50}" cargo test --release --locked -p backstitch-crash --test nested -- --nocapture
    histories="${BACKSTITCH_RUNS:-200}"
    BACKSTITCH_RUNS="$histories" BACKSTITCH_FIRST="$(((round - 1) * histories + 1))" \
        cargo test --release --locked -p backstitch-ext --test crash_states --test reclaim -- --nocapture
done
