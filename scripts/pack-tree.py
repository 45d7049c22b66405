#!/usr/bin/env python3
"""Packs real source files that this machine has into a tar archive.

    pack-tree.py ARCHIVE [--megabytes N] [--name DIRECTORY]

Takes the crates in Cargo's registry, then /usr/share and /usr/include, until there is enough. If the machine has less, it generates
files. Prints the number of files and of their bytes.
"""
import argparse
import io
import os
import random
import tarfile


def sources():
    cargo = os.environ.get("CARGO_HOME", os.path.expanduser("~/.cargo"))
    for place in (os.path.join(cargo, "registry/src"), "/usr/share", "/usr/include"):
        for directory, names, files in os.walk(place):
            names.sort()
            for name in sorted(files):
                path = os.path.join(directory, name)
                # Leaves out links that lead out of the tree, and files that only root may read.
                if os.path.islink(path) or not os.path.isfile(path) or not os.access(path, os.R_OK):
                    continue
                yield path, os.path.getsize(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive")
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--name", default="tree", help="the directory that holds it all (tree)")
    arguments = parser.parse_args()
    wanted = arguments.megabytes * 1000000
    count = total = 0
    with tarfile.open(arguments.archive, "w", format=tarfile.GNU_FORMAT) as archive:
        for path, size in sources():
            if total >= wanted:
                break
            if size > 4 << 20:
                continue
            archive.add(path, arguments.name + "/" + path.lstrip("/"), recursive=False)
            count, total = count + 1, total + size
        made_up = random.Random(1)
        while total < wanted:
            size = made_up.randrange(40000)
            entry = tarfile.TarInfo(f"{arguments.name}/made-up/{count // 100}/{count}.c")
            entry.size = size
            archive.addfile(entry, io.BytesIO(made_up.randbytes(size)))
            count, total = count + 1, total + size
    print(count, total)


main()
