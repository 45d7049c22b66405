#!/bin/sh
# Whenever the power goes: the database is sound, has the rows from 1 on without a gap, and as many as SQLite promises.
#
#   sqlite-check.sh durable      every row whose number was said
#   sqlite-check.sh but-last     every one but the last: without a journal's removal on the disk, the last COMMIT may be undone
#   sqlite-check.sh consistent   any number of them
set -u
sound=$(sqlite3 rows.db 'PRAGMA integrity_check' 2>&1)
[ "$sound" = ok ] || { echo "the database is damaged: $sound" | head -n 5; exit 1; }
set -- "$1" $(sqlite3 rows.db "SELECT count(*), coalesce(max(number), 0) FROM rows" | tr '|' ' ')
[ "$2" -eq "$3" ] || { echo "rows are missing in between: $2 rows, the last is $3"; exit 1; }
# What the third, sixth, … transaction did to the rows before it is there wherever its own row is.
half=$(sqlite3 rows.db "SELECT number FROM rows AS r WHERE filling IS NOT hex(zeroblob(700)) || coalesce((SELECT group_concat(later, '')
    FROM (SELECT number AS later FROM rows WHERE number % 3 = 0 AND number >= r.number ORDER BY number)), '') LIMIT 1" 2>&1)
[ -z "$half" ] || { echo "row $half is not as one transaction left it"; exit 1; }
said=$(tail -n 1 "$BACKSTITCH_OUTPUT")
case $1 in
durable) wanted=${said:-0} ;;
but-last) wanted=$((${said:-0} - 1)) ;;
*) wanted=0 ;;
esac
[ "$2" -ge "$wanted" ] || { echo "committed rows are lost: $2 rows, $wanted wanted"; exit 1; }
