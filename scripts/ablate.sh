#!/bin/sh
# Switches each rule off in turn, and puts the tables of what was found between the marks in docs/GUARANTEES.md. With an
# ordering, or several with commas, the first table is of those only: `scripts/ablate.sh soft`.
set -eu
cd "$(dirname "$0")/.."
backstitch="${BACKSTITCH_BIN:-target/release/backstitch}"
document=docs/GUARANTEES.md
table="$(mktemp)"
whole="$(mktemp)"
trap 'rm -f "$table" "$whole"' EXIT

# Where rules survive the exit code is 1.
ablate() {
    "$backstitch" crash ablate --markdown --form whole "$@" || [ "$?" = 1 ]
}

# By parts of their names.
only_ufs="initialised,pointers-go,clean-taken,record-kept,clean-only-after,groups-are,record-is-of-last,if-cleared,clears-dead,frees-after-clearing"

{
    ablate --ordering "${1:-soft,sync,journal=ordered,journal=writeback,journal=full}"
    printf '\nThe rules of the mechanisms that order writes without a log:\n\n'
    ablate --ordering scheduler,interbuffer,amom=immediate,amom=delayed:100 --own
    printf '\nThe rules of the logs of operations:\n\n'
    ablate --ordering lffs-file --own | grep -v '^| `group-after-earlier-groups`'
    printf '\nThe rules that only UFS comes by:\n\n'
    ablate -t ufs2 --ordering soft --site "$only_ufs"
} >"$table"
awk -v table="$table" '
    /<!-- end of rules -->/ { inside = 0 }
    !inside { print }
    /<!-- rules -->/ { inside = 1; while ((getline line < table) > 0) print line }
' "$document" >"$whole"
cat "$whole" >"$document"
