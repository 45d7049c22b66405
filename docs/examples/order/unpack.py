#!/usr/bin/env python3
"""Unpacks packages as dpkg does: each file as NAME.dpkg-new with its owner, mode and time, then each again for its fsync and its rename;
then the package goes into the status file, which is written anew, synced and renamed.

    unpack.py setup
    unpack.py run [PACKAGES]      3 by default; each has five files
    unpack.py check               packages up to one of them are there, whole; of the next one some files may be, each whole
"""

import os
import sys

FILES = 5


def contents(package, number):
    return (b"package %d file %d\n" % (package, number)) * (40 + 30 * (number % 4))


def extract(path, data):
    """As dpkg's tarobject(): the file is looked for, made under its new name, written, and gets what the archive says of it."""
    if os.path.lexists(path):
        sys.exit(f"{path} is there already")
    new = os.open(path + ".dpkg-new", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0)
    os.write(new, data)
    os.fchown(new, os.getuid(), os.getgid())
    os.fchmod(new, 0o644)
    os.close(new)
    os.utime(path + ".dpkg-new", (1_700_000_000, 1_700_000_000))


def install(path):
    """As dpkg's tar_deferred_extract(), once all files of the package are there."""
    new = os.open(path + ".dpkg-new", os.O_WRONLY)
    os.fsync(new)
    os.close(new)
    os.rename(path + ".dpkg-new", path)


def replace(path, data):
    with open(path + ".new", "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".new", path)


def run(count):
    status = b""
    for package in range(1, count + 1):
        os.mkdir(f"usr/p{package}")
        paths = [f"usr/p{package}/f{number}" for number in range(FILES)]
        for number, path in enumerate(paths):
            extract(path, contents(package, number))
        for path in paths:
            install(path)
        status += b"p%d installed\n" % package
        replace("status", status)
        print(package, flush=True)


def check():
    with open("status", "rb") as file:
        lines = file.read().splitlines()
    if lines != [b"p%d installed" % package for package in range(1, len(lines) + 1)]:
        sys.exit(f"the status file is none that there ever was: {lines}")
    there = sorted(int(name[1:]) for name in os.listdir("usr"))
    if there[: len(lines)] != list(range(1, len(lines) + 1)) or len(there) > len(lines) + 1:
        sys.exit(f"{len(lines)} packages are installed, of which there are {there}")
    for package in there:
        names = [name for name in os.listdir(f"usr/p{package}") if not name.endswith(".dpkg-new")]
        if package <= len(lines) and len(names) != FILES:
            sys.exit(f"package {package} is installed and has {names} only")
        if sorted(names) != [f"f{number}" for number in range(len(names))]:
            sys.exit(f"package {package} has {names}: not in their order")
        for name in names:
            with open(f"usr/p{package}/{name}", "rb") as file:
                if file.read() != contents(package, int(name[1:])):
                    sys.exit(f"usr/p{package}/{name} is not whole")


if __name__ == "__main__":
    if sys.argv[1] == "setup":
        os.mkdir("usr")
        open("status", "wb").close()
    elif sys.argv[1] == "run":
        run(int(sys.argv[2]) if len(sys.argv) > 2 else 3)
    else:
        check()
