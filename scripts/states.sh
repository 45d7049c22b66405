#!/bin/sh
# Explores STATES_ALL states (10^8) of the file system under the mechanisms ORDERINGS, in pieces, and prints the sums. Results are
# kept in FOLDER: a run that was stopped continues when it is started again with the same folder.
#
#   scripts/states.sh FOLDER [BINARY]
set -eu
folder="${1:?usage: scripts/states.sh FOLDER [BINARY]}"
backstitch="${2:-target/release/backstitch}"
all="${STATES_ALL:-100000000}"
each="${STATES_EACH:-3000000}"
orderings="${ORDERINGS:-soft sync journal=ordered journal=full journal=writeback lffs-file interbuffer scheduler amom=delayed:100}"
workloads="${WORKLOADS:-random:300 flushed:150 guided:150 cases ace:1 seq:1 long:10}"
mkdir -p "$folder"

# field FILE NAME: a number in a report.
field() { sed -n "s/^ *\"$2\": *\([0-9]*\).*/\1/p" "$1" | head -n 1; }

# sum PATTERN NAME: the sum of a field over some reports. (The time of each is in a file of its own, in seconds.)
sum() {
    total=0
    for report in $(find "$folder" -name "$1" | sort); do
        total=$((total + $(field "$report" "$2")))
    done
    echo "$total"
}

seed=1
while [ "$(sum '*.json' states)" -lt "$all" ]; do
    for workload in $workloads; do
        for ordering in $orderings; do
            piece="$folder/$ordering.$(echo "$workload" | tr -d :).$seed"
            [ -e "$piece.json" ] && continue
            started="$(date +%s)"
            # A failure ends the run; the report describes it.
            if ! "$backstitch" crash fs --ordering "$ordering" --workload "$workload" --seed "$seed" \
                --states "$each" --states-each "${NEW_EACH:-20000}" ${THREADS:+--jobs "$THREADS"} --json >"$piece.part"; then
                cat "$piece.part"
                echo "$ordering, $workload, seed $seed: a failure" >&2
                exit 1
            fi
            echo $(($(date +%s) - started)) >"$piece.seconds"
            mv "$piece.part" "$piece.json"
            [ "$(sum '*.json' states)" -lt "$all" ] || break 2
        done
    done
    seed=$((seed + 1))
done

echo "| ordering | states | different | seconds | failures |"
echo "|---|---|---|---|---|"
for ordering in $orderings; do
    seconds=0
    for file in "$folder/$ordering".*.seconds; do
        [ -e "$file" ] && seconds=$((seconds + $(cat "$file")))
    done
    echo "| \`$ordering\` | $(sum "$ordering.*.json" states) | $(sum "$ordering.*.json" distinct) | $seconds | 0 |"
done
echo "$(sum '*.json' states) states, seeds 1 to $((seed > 1 ? seed - 1 : 1)); $("$backstitch" --version); $(uname -srm), $(nproc) processors"
