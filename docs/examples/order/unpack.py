#!/usr/bin/env python3
"""Unpacks packages as dpkg does: each file as NAME.dpkg-new, fsync, rename; then the package goes into the status file the same way.

    unpack.py setup
    unpack.py run [PACKAGES]      3 unless told; each has five files
    unpack.py check               packages up to one of them are there, whole; of the next one some files may be, each whole
"""

import os
import sys

FILES = 5


def contents(package, number):
    return (b"package %d file %d\n" % (package, number)) * (40 + 30 * (number % 4))


def install(path, data):
    new = path + ".dpkg-new"
    with open(new, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.rename(new, path)


def run(count):
    status = b""
    for package in range(1, count + 1):
        os.mkdir(f"usr/p{package}")
        for number in range(FILES):
            install(f"usr/p{package}/f{number}", contents(package, number))
        status += b"p%d installed\n" % package
        install("status", status)
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
