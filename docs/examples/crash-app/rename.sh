#!/bin/sh
# Saves a file as many programs do: the new version under another name, then a rename over the old one.
#
#   rename.sh [fsync]    with "fsync", the new version is on stable storage before the rename
set -eu
for version in 1 2 3; do
    { echo "version $version"; seq 1 1000; echo end; } > config.new
    [ "${1:-}" != fsync ] || sync config.new
    mv config.new config
    echo "saved version $version"
done
