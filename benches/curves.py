#!/usr/bin/env python3
"""What an operation costs as the image, the cache, a directory or the graph of patches grows, and what a mount of a large image takes.

    benches/curves.py BACKSTITCH [--work DIR] [--runs N] [--only CURVE,...] [--orderings A,B] [--json FILE]

image      PostMark, 5,000 files and 20,000 transactions, on sparse images of 1 GiB to 1 TiB
cache      the same with cache bounds of 64 MiB to 4 GiB
directory  PostMark with empty files: 10 to 1,000,000 names in its one directory, 40,000 transactions
graph      untar of 1,000 to 32,000 files of 8 KiB, without optimisations, nothing written before the final sync: the patches alive
           grow with the files (without optimisations journals have no room for it; under soft only)
mount      a sparse image of 1 TiB: time to mount and memory at idle, then what an unmount takes behind a tree that was unpacked and
           not synced, beside writing the same out by a sync first

The figure is CPU time of the process for each operation, user and system, the least of the runs: elapsed time is the disk's and the
neighbours'. A curve is flat where the last column stays near 1. `mount` needs FUSE and tar; all images are sparse, at most 4 GB of
the disk are taken at a time.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

SMALL = ["--min-bytes", "512", "--max-bytes", "8K"]
POSTMARK = ["--files", "5000", "--transactions", "20000", *SMALL]
EMPTY = ["--min-bytes", "0", "--max-bytes", "0", "--size", "32G"]
CURVES = {
    "image": [(size, ["postmark", *POSTMARK, "--size", size]) for size in ("1G", "16G", "128G", "1T")],
    "cache": [(size, ["postmark", *POSTMARK, "--cache", size]) for size in ("64M", "256M", "1G", "4G")],
    "directory": [
        (str(names), ["postmark", "--files", str(names), "--transactions", "40000", *EMPTY])
        for names in (10, 1_000, 10_000, 100_000, 1_000_000)
    ],
    "graph": [
        (str(files), ["untar", "--files", str(files), "--megabytes", str(max(1, files // 128)), "--opt", "none"])
        for files in (1_000, 4_000, 16_000, 32_000)
    ],
}
ONLY_SOFT = {"graph": ["--expire", "1000000", "--cache", "8G"]}


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit("%s: %s" % (" ".join(command), done.stderr.strip()))
    return done.stdout


def measured(args, ordering, options):
    """One run: microseconds of CPU for each operation, and the patches that were alive at a time."""
    image = os.path.join(args.work, "curve.img")
    out = run(args.backstitch, "bench", *options, "--ordering", ordering, "--image", image, "--json")
    os.remove(image)
    found = json.loads(out)["runs"][0]
    seconds = found["cpu_user_seconds"] + found["cpu_sys_seconds"]
    return {
        "operations": found["operations"],
        "cpu_us": seconds / found["operations"] * 1e6,
        "elapsed_us": found["elapsed_seconds"] / found["operations"] * 1e6,
        "patches_peak": found["patches_peak"],
    }


def curve(args, name, results):
    for ordering in ["soft"] if name in ONLY_SOFT else args.orderings.split(","):
        print("\n%-12s%-18s%12s%14s%14s%10s" % (name, ordering, "operations", "patches peak", "CPU us each", "ratio"))
        first = None
        for point, options in CURVES[name]:
            runs = [measured(args, ordering, options + ONLY_SOFT.get(name, [])) for _ in range(args.runs)]
            best = min(runs, key=lambda found: found["cpu_us"])
            first = first or best["cpu_us"]
            print("%-30s%12d%14d%14.2f%10.2f" % (point, best["operations"], best["patches_peak"], best["cpu_us"], best["cpu_us"] / first), flush=True)
            results.append({"curve": name, "ordering": ordering, "point": point, "runs": runs})


def kibibytes(pid, field):
    with open("/proc/%d/status" % pid) as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field))


def written_bytes(args, mnt):
    return json.loads(run(args.backstitch, "stats", mnt, "--json"))["bytes_written"]


def timed(*command):
    since = time.monotonic()
    run(*command)
    return time.monotonic() - since


def mounts(args, results):
    image, mnt = os.path.join(args.work, "large.img"), os.path.join(args.work, "mnt")
    tree, tar = os.path.join(args.work, "tree"), os.path.join(args.work, "tree.tar")
    os.mkdir(mnt)
    for at in range(4_000):
        path = os.path.join(tree, "d%d" % (at // 50))
        os.makedirs(path, exist_ok=True)
        with open(os.path.join(path, "f%d" % at), "wb") as file:
            file.write(os.urandom(8192))
    run("tar", "-cf", tar, "-C", tree, ".")
    run(args.backstitch, "mkfs", "-q", "-s", "1T", image)
    for ordering in args.orderings.split(","):
        if ordering.startswith("journal"):
            run(args.backstitch, "mkfs", "-q", "-F", "-t", "ext3", "-s", "1T", image)
        runs = []
        for _ in range(args.runs):
            found = {"mount_seconds": timed(args.backstitch, "mount", "--ordering", ordering, image, mnt)}
            try:
                time.sleep(1)
                pid = json.loads(run(args.backstitch, "stats", mnt, "--json"))["pid"]
                found["idle_kib"] = kibibytes(pid, "VmHWM")
                run("tar", "-xf", tar, "-C", mnt)
                since = time.monotonic()
                run(args.backstitch, "sync", mnt)
                found["sync_seconds"] = time.monotonic() - since
                run("rm", "-rf", *(os.path.join(mnt, name) for name in os.listdir(mnt) if name != "lost+found"))
                run(args.backstitch, "sync", mnt)
                run("tar", "-xf", tar, "-C", mnt)
            finally:
                # Returns once the daemon has written everything and is gone.
                found["unmount_seconds"] = timed(args.backstitch, "umount", mnt)
            runs.append(found)
        results.append({"curve": "mount", "ordering": ordering, "point": "1T", "runs": runs})
        best = {key: min(found[key] for found in runs) for key in runs[0]}
        print("\nmount       1T %s: mounted in %.0f ms (at most 50), %.1f MiB at idle (at most 32); behind 4,000 files unpacked: sync %.2f s, unmount %.2f s"
              % (ordering, best["mount_seconds"] * 1e3, best["idle_kib"] / 1024, best["sync_seconds"], best["unmount_seconds"]))
    os.remove(image)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backstitch")
    parser.add_argument("--work", help="where the images go: a directory of its own unless told")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", help="these, of: " + ", ".join([*CURVES, "mount"]))
    parser.add_argument("--orderings", default="soft,journal=ordered")
    parser.add_argument("--json", help="the figures of each run into this file")
    args = parser.parse_args()
    wanted = args.only.split(",") if args.only else [*CURVES, "mount"]
    unknown = [name for name in wanted if name not in CURVES and name != "mount"]
    if unknown:
        parser.error("no curve '%s'" % unknown[0])
    results = []
    with tempfile.TemporaryDirectory(dir=args.work) as work:
        args.work = work
        for name in wanted:
            if name == "mount":
                mounts(args, results)
            else:
                curve(args, name, results)
    if args.json:
        with open(args.json, "w") as out:
            json.dump({"points": results}, out, indent=1)


if __name__ == "__main__":
    main()
