#!/usr/bin/env python3
"""Keeps a log of records on a volume without a file system: a record's blocks are there before the header that counts it.

    blocks.py run [RECORDS]     appends records to the file `volume` of a raw mount, with an order between them and without waiting
    blocks.py check             every record that the header counts is whole

The header, one block, is overwritten for each record; so is the slot of a record that is older than the last four. (Raw block writes in
patchgroups: Frost et al. 2007, section 5.) PYTHONPATH names the directory of patchgroup.py.
"""

import os
import struct
import sys

BLOCK = 4096
SLOTS = 4
RECORD = 3 * BLOCK


def record(number):
    return struct.pack("<Q", number) + bytes([number % 251]) * (RECORD - 8)


def place(number):
    return BLOCK + number % SLOTS * RECORD


def run(count):
    import patchgroup

    volume = os.open("volume", os.O_RDWR)
    group = patchgroup.Group(".")
    with group:
        for number in range(1, count + 1):
            # Its slot holds the record before the last three, which the header must have given up: first, not last, so many are kept.
            os.pwrite(volume, struct.pack("<QQ", max(1, number - SLOTS + 1), number - 1), 0)
            group.advance()
            os.pwrite(volume, record(number), place(number))
            group.advance()
            os.pwrite(volume, struct.pack("<QQ", max(1, number - SLOTS + 1), number), 0)
            group.advance()
    group.sync()
    print("synced", count, flush=True)


def check():
    volume = os.open("volume", os.O_RDONLY)
    first, last = struct.unpack("<QQ", os.pread(volume, 16, 0))
    for number in range(max(1, first), last + 1):
        if os.pread(volume, RECORD, place(number)) != record(number):
            sys.exit(f"the header counts records {first} to {last}, and record {number} is not there")
    with open(os.environ["BACKSTITCH_OUTPUT"]) as output:
        said = output.read().split()
    if said and last < int(said[1]):
        sys.exit(f"{said[1]} records were synced, and {last} are there")


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(int(sys.argv[2]) if len(sys.argv) > 2 else 6)
    else:
        check()
