#!/bin/sh
# Adds rows, a transaction each, and says the row's number when COMMIT has returned. Every third transaction changes older rows too,
# so that pages are overwritten, not only added.
#
#   sqlite.sh DELETE|WAL OFF|NORMAL|FULL|EXTRA [BACKSTITCH.SO [durable]]
#
# ROWS says how many, 12 by default. With the VFS of patchgroups (crates/patchgroup/sqlite) as the third word its syncs are points of order;
# with the fourth they wait nevertheless.
set -eu
{
    if [ -n "${3-}" ]; then
        echo ".load $3"
        echo ".open file:rows.db?vfs=backstitch"
    else
        echo ".open rows.db"
    fi
    # The pragmas answer; only the numbers are for the check.
    echo ".output /dev/null"
    echo "PRAGMA journal_mode=$1;"
    echo "PRAGMA synchronous=$2;"
    [ "${4-}" != durable ] || echo "PRAGMA backstitch_durable=1;"
    echo "PRAGMA wal_autocheckpoint=8;"
    echo ".output stdout"
    for row in $(seq "${ROWS:-12}"); do
        echo "BEGIN;"
        echo "INSERT INTO rows VALUES($row, hex(zeroblob(700)));"
        [ $((row % 3)) -ne 0 ] || echo "UPDATE rows SET filling = filling || '$row';"
        echo "COMMIT;"
        # The shell of SQLite would keep what it prints itself in a buffer.
        echo ".shell echo $row"
    done
} | sqlite3 -batch -bail
