#!/bin/sh
# Measures what programs can rely on under each mechanism, and puts the table between the marks in docs/GUARANTEES.md.
set -eu
cd "$(dirname "$0")/.."
backstitch="${BACKSTITCH_BIN:-target/release/backstitch}"
document=docs/GUARANTEES.md
table="$(mktemp)"
whole="$(mktemp)"
trap 'rm -f "$table" "$whole"' EXIT

"$backstitch" crash semantics >"$table"
awk -v table="$table" '
    /<!-- end of semantics -->/ { inside = 0 }
    !inside { print }
    /<!-- semantics -->/ { inside = 1; while ((getline line < table) > 0) print line }
' "$document" >"$whole"
cat "$whole" >"$document"
