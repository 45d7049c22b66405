#!/usr/bin/env python3
"""What a flushed change costs under each ordering and with the kernel's journals: client and daemon on one processor.

    fsync.py [--harness DIR] [--runs N] [--count N] [--threads N] [--beside-untar TAR] [--peers a,b] [--work DIR]

The harness's workload (wl.c: create + 4 kB + fsync, rename over another + fsync, append 4 kB + fdatasync) over a new file system on an image of 4
GiB whose blocks are all allocated, made by mke2fs (by ours where the journal's commits have checksums). Medians over the runs of each run's median, in
microseconds, and the flushes for each operation. With --threads, so many programs do it in directories of their own, on all processors, as
they do with --beside-untar, where an archive is unpacked again and again meanwhile. Needs root, taskset, what the harness is built with (bars.py says what), and 5 GB of disk.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading

from bars import BACKSTITCH, HARNESS

MKE2FS = "mke2fs -q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 -t %s"
PHASES = ["create_write_fsync", "rename_replace_fsync", "append_fdatasync"]
# Name, how the file system is made, and our ordering; None for the kernel's driver.
PEERS = [
    ("soft", MKE2FS % "ext2", "soft"),
    ("journal=ordered", MKE2FS % "ext3", "journal=ordered"),
    ("journal=full", MKE2FS % "ext3", "journal=full"),
    ("ordered with checksums", None, "journal=ordered"),
    ("full with checksums", None, "journal=full"),
    ("kernel ext2", MKE2FS % "ext2", None),
    ("kernel ext3", MKE2FS % "ext3", None),
    ("kernel ext4", MKE2FS % "ext4", None),
]


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def flushes_of(mnt):
    return json.loads(run(BACKSTITCH, "stats", mnt, "--json"))["flushes"]


class Unpacking(threading.Thread):
    """Unpacks an archive again and again, each time in place of what is there."""

    def __init__(self, archive, mnt):
        super().__init__(daemon=True)
        self.archive, self.place, self.ended = archive, os.path.join(mnt, "tree"), threading.Event()
        os.mkdir(self.place)
        self.start()

    def run(self):
        while not self.ended.is_set():
            self.tar = subprocess.Popen(["tar", "-xf", self.archive, "-C", self.place])
            self.tar.wait()

    def end(self):
        self.ended.set()
        self.tar.terminate()
        self.join()


def measured(args, image, mnt, how, ordering):
    """One peer once: each phase's median, and the flushes if it is ours."""
    made = how.split() if how else [BACKSTITCH, "mkfs", "-q", "-F", "-t", "ext3", "--journal-async-commit"]
    run(*made, image)
    with open(image, "rb+") as file:
        os.fsync(file.fileno())
    with open("/proc/sys/vm/drop_caches", "w") as knob:
        knob.write("3")
    pin = [] if args.threads > 1 or args.beside_untar else ["taskset", "-c", "0"]
    if ordering:
        run(*pin, BACKSTITCH, "mount", "-o", args.options, "--ordering", ordering, image, mnt)
    else:
        run("mount", "-o", "loop", image, mnt)
    try:
        unpacking = Unpacking(args.beside_untar, mnt) if args.beside_untar else None
        flushes = flushes_of(mnt) if ordering else 0
        programs = []
        for number in range(args.threads):
            place = os.path.join(mnt, "w%d" % number)
            os.mkdir(place)
            command = [*pin, os.path.join(args.work, "bin/wl"), "fsync", place, str(args.count)]
            programs.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        phases = {}
        for program in programs:
            out, _ = program.communicate()
            if program.returncode:
                sys.exit("fsync.py: wl ended with %d" % program.returncode)
            for phase in map(json.loads, out.splitlines()):
                phases.setdefault(phase["phase"], []).append(phase["p50_us"])
        found = {phase: statistics.median(times) for phase, times in phases.items()}
        if ordering:
            found["flushes"] = (flushes_of(mnt) - flushes) / (len(PHASES) * args.count * args.threads)
        if unpacking:
            unpacking.end()
    finally:
        run(*([BACKSTITCH, "umount", mnt] if ordering else ["umount", mnt]))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--harness", default=HARNESS)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--beside-untar", metavar="TAR")
    parser.add_argument("--peers", default=",".join(name for name, _, _ in PEERS))
    parser.add_argument("--options", default="allow_other", help="of our mounts")
    parser.add_argument("--work")
    args = parser.parse_args()
    peers = [peer for peer in PEERS if peer[0] in args.peers.split(",")]
    with tempfile.TemporaryDirectory(prefix="backstitch-fsync-") as scratch:
        args.work = args.work or scratch
        prep = [sys.executable, os.path.join(args.harness, "bench.py"), "prep", "--work", args.work]
        subprocess.run(prep, check=True, stderr=subprocess.DEVNULL)
        image, mnt = os.path.join(args.work, "img.ext"), os.path.join(scratch, "mnt")
        os.mkdir(mnt)
        found = {name: [] for name, _, _ in peers}
        for _ in range(args.runs):
            for name, how, ordering in peers:
                found[name].append(measured(args, image, mnt, how, ordering))
    print("%-24s%12s%12s%12s%12s" % ("median of %d" % args.runs, "create us", "rename us", "append us", "flushes"))
    for name, runs in found.items():
        medians = ["%12.0f" % statistics.median(one[phase] for one in runs) for phase in PHASES]
        flushes = "%12.2f" % runs[0]["flushes"] if "flushes" in runs[0] else "%12s" % "-"
        print("%-24s%s%s" % (name, "".join(medians), flushes))


if __name__ == "__main__":
    main()
