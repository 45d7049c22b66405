#!/bin/sh
# An empty table, in the journal mode of the run.
#
#   sqlite-setup.sh DELETE|WAL
set -eu
sqlite3 rows.db "PRAGMA journal_mode=$1; CREATE TABLE rows(number INTEGER PRIMARY KEY, filling TEXT);" > /dev/null
