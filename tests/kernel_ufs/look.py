#!/usr/bin/env python3
"""Describes everything that can be seen of a tree, in a line of JSON for each name: look.py ROOT LIST [SEEN]

Names and targets of symbolic links are bytes, so each byte is written as the character with its number. Large files are read where
they have data, which the file system of ROOT tells. Not every driver tells that. So with SEEN, the list of the same tree in another
mount, the same parts of each file are read as for that list.
"""

import hashlib
import json
import os
import stat
import sys

# A file up to this size is read whole.
WHOLE_BYTES = 16 << 20
# Bytes of holes that are read before and after the data of a larger one.
MARGIN_BYTES = 128 << 10
PIECE_BYTES = 1 << 20


def text(name):
    return name.decode("latin-1")


def ranges_with_data(file, size):
    """The ranges in which a large file has data, with parts of the holes around them, and its beginning and end."""
    if size <= WHOLE_BYTES:
        return [[0, size]]
    found, at = [[0, MARGIN_BYTES]], 0
    while at < size:
        try:
            start = os.lseek(file, at, os.SEEK_DATA)
        except OSError:
            break
        at = os.lseek(file, start, os.SEEK_HOLE)
        found.append([max(start - MARGIN_BYTES, 0), min(at + MARGIN_BYTES, size)])
    found.append([size - MARGIN_BYTES, size])
    joined = []
    for start, end in sorted(found):
        if joined and start <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([start, end])
    return joined


def contents(file, ranges):
    """A hash of the bytes in these ranges."""
    digest = hashlib.sha256()
    for start, end in ranges:
        at = start
        while at < end and (piece := os.pread(file, min(PIECE_BYTES, end - at), at)):
            digest.update(piece)
            at += len(piece)
        digest.update(b"from %d to %d" % (start, at))
    return digest.hexdigest()


def look(path, name, seen_before):
    """The description of one name, from `lstat` and from reading."""
    seen = os.lstat(path)
    entry = {
        "name": text(name),
        "inode": seen.st_ino,
        "mode": "%06o" % seen.st_mode,
        "links": seen.st_nlink,
        "owner": "%d:%d" % (seen.st_uid, seen.st_gid),
        "size": seen.st_size,
        "sectors": seen.st_blocks,
        "accessed": seen.st_atime_ns,
        "modified": seen.st_mtime_ns,
        "changed": seen.st_ctime_ns,
    }
    if stat.S_ISBLK(seen.st_mode) or stat.S_ISCHR(seen.st_mode):
        entry["device"] = "%d:%d" % (os.major(seen.st_rdev), os.minor(seen.st_rdev))
    if stat.S_ISLNK(seen.st_mode):
        entry["target"] = text(os.readlink(path))
    if stat.S_ISREG(seen.st_mode):
        file = os.open(path, os.O_RDONLY)
        before = seen_before.get(entry["name"], {})
        entry["ranges"] = before.get("ranges") or ranges_with_data(file, seen.st_size)
        entry["contents"] = contents(file, entry["ranges"])
        os.close(file)
    return entry


def kind(child):
    """The type of a name according to its directory, without reading the inode."""
    if child.is_symlink():
        return "symlink"
    if child.is_dir(follow_symlinks=False):
        return "directory"
    return "file" if child.is_file(follow_symlinks=False) else "special"


def walk(root, name, seen_before, out):
    path = os.path.join(root, name) if name else root
    entry = look(path, name, seen_before)
    children = []
    if stat.S_ISDIR(int(entry["mode"], 8)):
        children = sorted(os.scandir(path), key=lambda child: child.name)
        entry["listed"] = ["%s %d %s" % (text(child.name), child.inode(), kind(child)) for child in children]
    print(json.dumps(entry), file=out)
    for child in children:
        walk(root, os.path.join(name, child.name), seen_before, out)


def main():
    seen_before = {}
    if len(sys.argv) > 3:
        with open(sys.argv[3], encoding="ascii") as lines:
            seen_before = {entry["name"]: entry for entry in map(json.loads, lines)}
    with open(sys.argv[2], "w", encoding="ascii") as out:
        walk(os.fsencode(sys.argv[1]), b"", seen_before, out)


if __name__ == "__main__":
    main()
