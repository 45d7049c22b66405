#!/usr/bin/env python3
"""Runs every workload of the peers' harness over ours, FUSE's floor, the kernel and fuse2fs, pinned to one CPU, and holds the
ratios against the bars that this project has set itself.

    bars.py [--harness DIR] [--full] [--runs N] [--workloads a,b] [--peers a,b] [--trees MB,MB] [--out FILE]

The harness (bench.py with wl.c and memfs_ll.cc) is no part of the repository: DIR is ../shared/tools/peers unless told. Needs root,
taskset, gcc, g++, pkg-config, libfuse3-dev, fuse2fs, postmark and 5 GB of disk for an image whose blocks are all allocated.
Reduced (default): one run without Andrew and the large PostMark, under 5 minutes. --full: all workloads, 5 runs, a tree of 600 MB too,
with a journal too.

Peers: ours (as root mounts who sets nothing: others are let in, and the kernel checks permissions and access lists), ours-uring (the same
with requests by io_uring, where the kernel has that; it is switched on for this run), ours-private (-o noallow_other: no checks),
ours-journal (journal=ordered on ext3), ours-ufs2 (only where it is asked for), floor (files in memory behind FUSE, with the same
options as ours: default_permissions,allow_other), fuse2fs, and the kernel's ext2, ext4 on a loop device. The bars are for ours.
"""
import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BACKSTITCH = os.environ.get("BACKSTITCH_BIN", os.path.join(ROOT, "target/release/backstitch"))
HARNESS = os.path.join(os.path.dirname(ROOT), "shared/tools/peers")

# Row, workload, phases (their times are added), what of them, the peer that is the measure, and at most how many times that.
BARS = [
    ("PostMark 1000/30000", "pm1", ["postmark"], "s", "floor", 1.15),
    ("PostMark 500/500/4 MB", "pm2", ["postmark_big"], "s", "floor", 1.15),
    ("untar", "untar", ["untar"], "s", "floor", 1.25),
    ("untar and sync", "untar", ["untar", "sync"], "s", "floor", 1.3),
    ("find, cold", "untar", ["find_cold"], "s", "ext4", 1.0),
    ("rm -rf", "untar", ["rm_rf"], "s", "floor", 1.25),
    ("create+unlink pairs", "pair", ["create_unlink_pair"], "s", "floor", 1.15),
    ("creates in one directory", "create", ["create0"], "s", "floor", 1.2),
    ("deletes in it", "create", ["delete0"], "s", "floor", 1.2),
    ("create+4 kB+fsync", "fsync", ["create_write_fsync"], "p50_us", "ext4", 1.0),
    ("rename-replace+fsync", "fsync", ["rename_replace_fsync"], "p50_us", "ext4", 1.0),
    ("append 4 kB+fdatasync", "fsync", ["append_fdatasync"], "p50_us", "ext4", 1.0),
    ("dd 1 GiB + fsync", "dd", ["dd_write"], "s", "floor", 1.2),
    ("dd, cold read", "dd", ["dd_coldread"], "s", "ext4", 1.5),
    ("Andrew", "andrew", ["andrew_total"], "s", "floor", 1.05),
]
OURS = {
    "ours": ("-t ext2", "-o io_uring=off"),
    "ours-uring": ("-t ext2", "-o io_uring=required"),
    "ours-private": ("-t ext2", "-o io_uring=off,noallow_other"),
    "ours-journal": ("-t ext3", "-o io_uring=off --ordering journal=ordered"),
}
UFS2 = "ours-ufs2"
FLOOR = "{bin}/memfs_ll {mnt} -f -s -o timeout=86400,keep,default_permissions,allow_other"
URING_SWITCH = "/sys/module/fuse/parameters/enable_uring"
TREE_ROWS = [name for name, workload, *_ in BARS if workload == "untar"]
REDUCED = ["pair", "create", "pm1", "untar", "fsync", "dd"]
FULL = REDUCED + ["pm2", "andrew"]


@contextlib.contextmanager
def io_uring(is_wanted):
    """While this lasts, the kernel offers requests by io_uring."""
    if not is_wanted:
        yield
        return
    with open(URING_SWITCH) as switch:
        before = switch.read()
    turn(URING_SWITCH, "Y")
    try:
        yield
    finally:
        turn(URING_SWITCH, before)


def turn(switch, to):
    with open(switch, "w") as file:
        file.write(to)


def pack(work, megabytes):
    """A tree whose name is as the harness wants it."""
    packer = os.path.join(ROOT, "scripts/pack-tree.py")
    archive = os.path.join(work, "tree.tar")
    subprocess.run([sys.executable, packer, "--megabytes", str(megabytes), "--name", "linux-tree", archive], check=True,
                   stdout=subprocess.DEVNULL)


def prepare(harness, work):
    """The image, the harness's programs, and what Andrew copies."""
    subprocess.run([sys.executable, harness, "prep", "--work", work], check=True, stderr=subprocess.DEVNULL)
    packer = os.path.join(ROOT, "scripts/pack-tree.py")
    andrew = os.path.join(work, "andrew")
    os.mkdir(andrew)
    small = os.path.join(work, "small.tar")
    subprocess.run([sys.executable, packer, "--megabytes", "20", small], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["tar", "-xf", small, "-C", andrew], check=True)


def measure(harness, work, peers, workloads, runs):
    out = os.path.join(work, f"rows-{time.monotonic_ns()}.jsonl")
    command = ["taskset", "-c", "0", "setsid", "-w", sys.executable, harness, "run", "--work", work, "--out", out, "--fsck",
               "--runs", str(runs), "--peers", ",".join(peers), "--wl", ",".join(workloads)]
    command += ["--extra", f"floor={FLOOR}", "--mkfs", "floor=none"]
    command += ["--extra", f"{UFS2}={HERE}/ufs2.sh {BACKSTITCH} {{img}} {{mnt}} io_uring=off"]
    for name, (mkfs, options) in OURS.items():
        command += ["--extra", f"{name}={BACKSTITCH} mount -f {options} {{img}} {{mnt}}", "--mkfs", f"{name}={mkfs}"]
    subprocess.run(command, check=True)
    damaged = os.path.join(work, "img.ext.damaged")
    if os.path.exists(damaged):
        sys.exit(f"bars.py: our check finds damage on UFS2: {open(damaged).read()}")
    with open(out) as rows:
        return [json.loads(row) for row in rows]


def figure(rows, peer, workload, phases, what):
    """The median over the runs of the phases' sum; None where one is missing."""
    sums = {}
    for row in rows:
        if row["peer"] == peer and row["wl"] == workload and row.get("phase") in phases and row.get(what) is not None:
            # A workload with two syncs: the first one is meant.
            sums.setdefault(row["run"], {}).setdefault(row["phase"], row[what])
    whole = [sum(run.values()) for run in sums.values() if len(run) == len(phases)]
    return statistics.median(whole) if whole else None


def verdicts(rows):
    for name, workload, phases, what, base, bar in BARS:
        ours = figure(rows, "ours", workload, phases, what)
        reference = figure(rows, base, workload, phases[:1], what)
        if ours is None:
            continue
        ratio = ours / reference if reference else None
        others = {peer: figure(rows, peer, workload, phases, what) for peer in dict.fromkeys(r["peer"] for r in rows)}
        yield {"row": name, "unit": "µs" if what == "p50_us" else "s", "ours": ours, "base": base, "reference": reference,
               "ratio": ratio, "bar": bar, "met": None if ratio is None else ratio <= bar, "peers": others}


def table(found):
    print(f"\n{'':26}{'ours':>10}{'':3}{'measure':>16}{'ratio':>8}{'bar':>7}  met  {'fuse2fs':>9}{'io_uring':>9}   others")
    for v in found:
        show = (lambda x: "–" if x is None else f"{x:.0f}") if v["unit"] == "µs" else (lambda x: "–" if x is None else f"{x:.3f}")
        by_ours = lambda peer: f"{v['peers'][peer] / v['ours']:.2f}" if v["peers"].get(peer) else "–"
        apart = ("ours", v["base"], "fuse2fs-ext2", "ours-uring")
        others = "  ".join(f"{peer} {show(x)}" for peer, x in v["peers"].items() if peer not in apart)
        ratio = "–" if v["ratio"] is None else f"{v['ratio']:.2f}"
        met = {True: "yes", False: "no", None: "–"}[v["met"]]
        print(f"{v['row']:26}{show(v['ours']):>10} {v['unit']:2}{v['base'] + ' ' + show(v['reference']):>16}{ratio:>8}{v['bar']:>7}"
              f"  {met:4} {by_ours('fuse2fs-ext2'):>9}{by_ours('ours-uring'):>9}   {others}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--harness", default=HARNESS)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--workloads")
    parser.add_argument("--peers")
    parser.add_argument("--trees", help="sizes of the trees that are unpacked, in MB (250; with --full 250,600)")
    parser.add_argument("--out", default=os.path.join(ROOT, "bench-results/bars.json"))
    arguments = parser.parse_args()
    harness = os.path.join(arguments.harness, "bench.py")
    if not os.path.exists(harness):
        sys.exit(f"bars.py: no harness at {harness}: `run.py` beside this file needs none")
    if os.geteuid() != 0 or not shutil.which("taskset"):
        sys.exit("bars.py: needs root and taskset")
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    workloads = arguments.workloads.split(",") if arguments.workloads else FULL if arguments.full else REDUCED
    peers = ["ours", "ours-uring", "ours-private", "floor", "ext2", "ext4", "fuse2fs-ext2"]
    peers = arguments.peers.split(",") if arguments.peers else peers + (["ours-journal"] if arguments.full else [])
    if not os.path.exists(URING_SWITCH):
        peers = [peer for peer in peers if peer != "ours-uring"]
    trees = list(map(int, (arguments.trees or ("250,600" if arguments.full else "250")).split(",")))
    runs = arguments.runs or (5 if arguments.full else 1)
    found, rows = [], []
    with tempfile.TemporaryDirectory(prefix="backstitch-bars.") as work, io_uring("ours-uring" in peers):
        prepare(harness, work)
        for megabytes in trees:
            pack(work, megabytes)
            now = workloads if megabytes == trees[0] else [w for w in workloads if w == "untar"]
            measured = measure(harness, work, peers, now, runs) if now else []
            found += [dict(v, row=f"{v['row']}, {megabytes} MB" if v["row"] in TREE_ROWS else v["row"]) for v in verdicts(measured)]
            rows += measured
    is_checked = lambda peer: peer.startswith("ours") and peer != UFS2
    unclean = [row for row in rows if row.get("phase") == "fsck" and row["rc"] != 0 and is_checked(row["peer"])]
    os.makedirs(os.path.dirname(os.path.abspath(arguments.out)), exist_ok=True)
    with open(arguments.out, "w") as out:
        json.dump({"rows": found, "runs": rows}, out, indent=1)
    table(found)
    print(f"\nwritten to {os.path.relpath(arguments.out)}")
    if unclean:
        sys.exit(f"bars.py: e2fsck finds damage: {unclean}")


if __name__ == "__main__":
    main()
