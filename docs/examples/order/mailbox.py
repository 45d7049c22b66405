#!/usr/bin/env python3
"""Moves messages from one mailbox to another, as an IMAP server does: copy, mark, expunge, check.

    mailbox.py setup [MESSAGES]
    mailbox.py run fsync|groups|durable     fsync after each operation; an order between them; fsync after those that must last only
    mailbox.py check                        every message is in one of the two, and whole where it is

(Frost et al. 2007, section 5.2, figure 11.) PYTHONPATH names the directory of patchgroup.py.
"""

import os
import sys

SIZE = 2000


def message(number):
    """A flag, the number, and filling that tells which message it is."""
    head = b"-%07d" % number
    return head + bytes([97 + number % 26]) * (SIZE - len(head) - 1) + b"\n"


def numbers_in(path):
    """The numbers of the messages of a mailbox, and which of them are marked; stops at what is not whole."""
    found, marked = set(), set()
    with open(path, "rb") as mailbox:
        while len(text := mailbox.read(SIZE)) == SIZE:
            number = int(text[1:8]) if text[1:8].isdigit() else -1
            if text[1:] != message(number)[1:] or text[:1] not in b"-D":
                break
            found.add(number)
            if text[:1] == b"D":
                marked.add(number)
    return found, marked


class Server:
    def __init__(self, way):
        self.way = way
        self.group = None
        if way == "groups":
            import patchgroup

            self.group = patchgroup.Group(".")
            self.group.engage()

    def done(self, descriptor, must_last=False):
        """An operation is complete; what comes next is to come after it."""
        if self.group:
            self.group.advance()
        elif self.way == "fsync" or must_last:
            os.fsync(descriptor)

    def move(self):
        source, target = os.open("source", os.O_RDWR), os.open("target", os.O_RDWR | os.O_APPEND)
        count = os.fstat(source).st_size // SIZE
        for number in range(count):
            os.write(target, b"-" + os.pread(source, SIZE, number * SIZE)[1:])
            self.done(target)
            if self.way == "durable" and number == count - 1:
                os.fsync(target)
            # What is marked may be expunged, so the copy comes first.
            if self.way != "durable":
                os.pwrite(source, b"D", number * SIZE)
                self.done(source)
        os.ftruncate(source, 0)
        self.done(source, must_last=True)
        if self.group:
            self.group.sync()
        print("moved", flush=True)


def setup(count):
    with open("source", "wb") as source, open("target", "wb"):
        for number in range(count):
            source.write(message(number))
    with open("count", "w") as file:
        file.write(str(count))


def check():
    with open("count") as file:
        count = int(file.read())
    source, marked = numbers_in("source")
    target, _ = numbers_in("target")
    for number in range(count):
        if number not in target and (number not in source or number in marked):
            sys.exit(f"message {number} is lost: in the source {sorted(source)}, marked {sorted(marked)}, in the target {sorted(target)}")
    with open(os.environ["BACKSTITCH_OUTPUT"]) as output:
        if "moved" in output.read() and len(target) < count:
            sys.exit("what was synced is lost")


if __name__ == "__main__":
    if sys.argv[1] == "setup":
        setup(int(sys.argv[2]) if len(sys.argv) > 2 else 5)
    elif sys.argv[1] == "run":
        Server(sys.argv[2]).move()
    else:
        check()
