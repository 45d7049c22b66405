#!/bin/sh
# A mount of UFS2 for bars.py, whose harness makes ext2 and checks it: the image becomes UFS2 before its first mount, and is checked
# after each. It is written over as a whole, past the host's cache, so that its blocks are allocated as those of the others are, and as
# little of it is in memory.
# Usage: ufs2.sh BACKSTITCH IMAGE DIRECTORY OPTIONS
set -eu
backstitch=$1 image=$2 directory=$3 options=$4
if [ "$(blkid -p -o value -s TYPE "$image")" = ext2 ]; then
    "$backstitch" mkfs -q -F -t ufs2 -s "$(stat -c %s "$image")" "$image.new"
    dd if="$image.new" of="$image" bs=1M conv=notrunc,fsync oflag=direct status=none
    rm "$image.new"
fi
"$backstitch" mount -f -o "$options" "$image" "$directory"
"$backstitch" fsck -n "$image" >"$image.fsck" 2>&1 || cp "$image.fsck" "$image.damaged"
