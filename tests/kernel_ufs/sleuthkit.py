#!/usr/bin/env python3
"""Compares an image, as sleuthkit reads it, with a tree that look.py described: sleuthkit.py IMAGE SEEN FRAGMENT_BYTES

Prints the differences, one in a line, and nothing else. `fls` lists all names and inodes. `icat`, which takes a process for each
file, reads one in ICAT_EACH of the files that look.py read whole. It writes holes as zeros, so a larger file could take terabytes.
"""

import hashlib
import json
import stat
import subprocess
import sys

ICAT_EACH = 20
# The letters of a type: that in the directory's entry, and that in the inode.
LETTERS = {
    stat.S_IFREG: "r/r",
    stat.S_IFDIR: "d/d",
    stat.S_IFLNK: "l/l",
    stat.S_IFIFO: "p/p",
    stat.S_IFSOCK: "s/h",
    stat.S_IFCHR: "c/c",
    stat.S_IFBLK: "b/b",
}
# A name in the list that is no file of the image.
VIRTUAL = "$OrphanFiles"


def told_by_fls(image):
    """Names with the fields that `fls` prints for them, in its format for bodies of time lines."""
    listed = subprocess.run(["fls", "-r", "-p", "-u", "-m", "", image], check=True, capture_output=True)
    found = {}
    for line in listed.stdout.decode("latin-1").splitlines():
        _, name, inode, mode, owner, group, size, accessed, modified, changed, _ = line.split("|")
        name, _, target = name.lstrip("/").partition(" -> ")
        if name != VIRTUAL:
            numbers = [int(number) for number in (inode, size, accessed, modified, changed)]
            found[name] = [mode, "%s:%s" % (owner, group), target, *numbers]
    return found


def expected_of_fls(entry, fragment_bytes):
    """The same fields of an entry of look.py. `fls` shows the low 32 bits of a time, unsigned, and one fragment of a symbolic link's target."""
    mode = int(entry["mode"], 8)
    shown_mode = LETTERS[stat.S_IFMT(mode)] + stat.filemode(mode)[1:]
    times = [entry[time] // 10**9 % 2**32 for time in ("accessed", "modified", "changed")]
    target = entry.get("target", "")[:fragment_bytes]
    return [shown_mode, entry["owner"], target, entry["inode"], entry["size"], *times]


def contents(image, entry):
    """The contents of a file, hashed as look.py does."""
    file = subprocess.run(["icat", image, str(entry["inode"])], check=True, capture_output=True).stdout
    digest = hashlib.sha256(file)
    digest.update(b"from 0 to %d" % len(file))
    return digest.hexdigest()


def main():
    image, seen, fragment_bytes = sys.argv[1:]
    with open(seen, encoding="ascii") as lines:
        entries = {entry["name"]: entry for entry in map(json.loads, lines)}
    # `fls` does not list the root itself.
    del entries[""]
    found = told_by_fls(image)
    for name in sorted(entries.keys() | found.keys()):
        expected = expected_of_fls(entries[name], int(fragment_bytes)) if name in entries else None
        if expected != found.get(name):
            print("%r is %s, sleuthkit shows %s" % (name, expected, found.get(name)))
    files = [entry for entry in entries.values() if entry.get("ranges") == [[0, entry["size"]]]]
    for entry in files[:: ICAT_EACH]:
        if contents(image, entry) != entry["contents"]:
            print("%r: sleuthkit shows other contents" % entry["name"])


if __name__ == "__main__":
    main()
