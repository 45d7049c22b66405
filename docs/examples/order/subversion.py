#!/usr/bin/env python3
"""What Subversion takes for granted of its working copy, said by a patchgroup: a file's contents are on the disk before the rename that
installs it, and names change in the order of the calls (Frost et al. 2007, section 5.2).

    subversion.py setup
    subversion.py run       three steps: each is written into a log of work, installed by a rename, done, and the log removed
    subversion.py check     whatever the log says can be done again, and everything before it was done

PYTHONPATH names the directory of patchgroup.py.
"""

import os
import sys

STEPS = 3


def text(step):
    return f"contents of step {step}\n" * 60


def run():
    import patchgroup

    group = patchgroup.Group(".")
    # Each operation comes after the one before it.
    group.linear()
    group.engage()
    for step in range(1, STEPS + 1):
        with open("wc/tmp-log", "w") as log:
            log.write(f"install {step}\n{text(step)}end\n")
        os.rename("wc/tmp-log", "wc/log")
        os.mkdir(f"wc/dir{step}")
        with open(f"wc/dir{step}/tmp", "w") as file:
            file.write(text(step))
        os.rename(f"wc/dir{step}/tmp", f"wc/dir{step}/base")
        with open("wc/entries.tmp", "w") as entries:
            entries.write("".join(f"dir{done}\n" for done in range(1, step + 1)))
        os.rename("wc/entries.tmp", "wc/entries")
        os.unlink("wc/log")


def check():
    with open("wc/entries") as file:
        entries = file.read().splitlines()
    if entries != [f"dir{done}" for done in range(1, len(entries) + 1)]:
        sys.exit(f"the entries are none that there ever were: {entries}")
    for step in range(1, len(entries) + 1):
        with open(f"wc/dir{step}/base") as base:
            if base.read() != text(step):
                sys.exit(f"dir{step}/base is installed and not whole")
    next_one = f"wc/dir{len(entries) + 1}"
    logged = None
    if os.path.exists("wc/log"):
        with open("wc/log") as log:
            words = log.read()
        logged = int(words.split()[1]) if words.startswith("install ") else None
        if logged is None or words != f"install {logged}\n{text(logged)}end\n":
            sys.exit("the log is installed and not whole")
        if logged not in (len(entries), len(entries) + 1):
            sys.exit(f"the log is of step {logged}, and {len(entries)} are done")
    if os.path.exists(next_one) and logged != len(entries) + 1:
        sys.exit(f"{next_one} is there, and no log says so")
    if os.path.exists(next_one + "/base"):
        with open(next_one + "/base") as base:
            if base.read() != text(len(entries) + 1):
                sys.exit(f"{next_one}/base was renamed before its contents")


if __name__ == "__main__":
    if sys.argv[1] == "setup":
        os.mkdir("wc")
        open("wc/entries", "w").close()
    elif sys.argv[1] == "run":
        run()
    else:
        check()
