#!/bin/sh
# Switches each rule off in turn, and puts the table of what was found between its marks in docs/GUARANTEES.md. With an ordering, or several
# with commas, only those: `scripts/ablate.sh soft`.
set -eu
cd "$(dirname "$0")/.."
backstitch="${BACKSTITCH_BIN:-target/release/backstitch}"
document=docs/GUARANTEES.md
table="$(mktemp)"
whole="$(mktemp)"
trap 'rm -f "$table" "$whole"' EXIT

# Where rules survive the exit code is 1.
"$backstitch" crash ablate --markdown --form whole --ordering "${1:-soft,sync,journal=ordered}" >"$table" || [ "$?" = 1 ]
awk -v table="$table" '
    /<!-- end of rules -->/ { inside = 0 }
    !inside { print }
    /<!-- rules -->/ { inside = 1; while ((getline line < table) > 0) print line }
' "$document" >"$whole"
cat "$whole" >"$document"
