#!/bin/sh
# A compressor that removes its input after its output, with an order between the two and without waiting for either.
#
#   compress.sh setup      makes the input
#   compress.sh run        compresses it, and removes it (BACKSTITCH names the program, where it is not in PATH)
#   compress.sh check      the input or the output is there, whole
set -eu
case $1 in
setup) seq 1 4000 > in && cp in wanted ;;
run) "${BACKSTITCH:-backstitch}" depend "gzip -c < in > in.gz" "rm in" "2:1" ;;
check)
    if [ -e in ]; then cmp in wanted; else gzip -dc in.gz | cmp - wanted; fi
    ;;
esac
