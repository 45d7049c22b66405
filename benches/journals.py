#!/usr/bin/env python3
"""What journals cost (figure 10 of Frost et al., SOSP 2007): ours in process beside the kernel's ext2 and ext3 on a loop mount, in one
run, over images in one directory.

    benches/journals.py BACKSTITCH [--work DIR] [--runs N] [--scale F] [--only SYSTEM,...] [--json FILE]

untar, delete, PostMark, and 2,000 x (create, write 4 kB, fsync) with 1 and with 8 writers. Times end with the return of the final
sync. All journals have 64 MiB, as in the paper; those of ours that are "apart" lie in a file of their own on the same disk; file systems have 4 GiB, of which only what is written takes space. Blocks written are of 4 KiB: for ours what the engine wrote, for
the kernel what its driver wrote to the loop device. The kernel's flushes reach the image's file, as ours do.
Needs root, mke2fs and loop devices.
"""
import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile

MODES = ["journal=ordered", "journal=writeback", "journal=full"]
# With the journal in a file of its own, on the same disk.
APART = {mode + " apart": mode for mode in MODES}
OURS = ["soft", "async"] + MODES + list(APART)
KERNEL = {
    "ext2": ("ext2", "defaults"),
    "ext3 ordered": ("ext3", "data=ordered"),
    "ext3 writeback": ("ext3", "data=writeback"),
    "ext3 full": ("ext3", "data=journal"),
}
WORKLOADS = ["untar", "delete", "postmark", "fsync 1", "fsync 8"]


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit("%s: %s" % (" ".join(command), done.stderr.strip()))
    return done.stdout


def name_of(found):
    """fsync comes once for each number of writers."""
    variant = found.get("variant")
    return found["workload"] + (" " + variant.split()[0] if variant else "")


def figures(found, blocks, flushes):
    return {
        "seconds": found["elapsed_seconds"],
        "cpu_seconds": found["cpu_user_seconds"] + found["cpu_sys_seconds"],
        "blocks": blocks,
        "flushes": flushes,
        "operations": found["operations"],
    }


def ours(args, ordering, results):
    image, journal = (os.path.join(args.work, name) for name in ("ours.img", "journal.img"))
    where = ["--image", image] + (["--journal-dev", journal] if ordering in APART else [])
    mode = APART.get(ordering, ordering)
    out = run(args.backstitch, "bench", "untar,delete,postmark,fsync", "--ordering", mode, *where, "--json", *args.size)
    for found in json.loads(out)["runs"]:
        measured = figures(found, found["blocks_written"], found["flushes"])
        results.setdefault((ordering, name_of(found)), []).append(measured)
    for path in (image, journal):
        if os.path.exists(path):
            os.remove(path)


def written(loop):
    """4 KiB blocks written to a loop device, and flushes of it, since it was attached."""
    with open("/sys/block/%s/stat" % os.path.basename(loop)) as stat:
        fields = [int(field) for field in stat.read().split()]
    return fields[6] // 8, fields[15] if len(fields) > 15 else None


def kernel(args, system, results):
    kind, options = KERNEL[system]
    image = os.path.join(args.work, "kernel.img")
    with open(image, "wb") as file:
        file.truncate(4 << 30)
    journal = ["-J", "size=64"] if kind == "ext3" else []
    run("mke2fs", "-q", "-F", "-b", "4096", "-t", kind, "-E", "lazy_itable_init=0,lazy_journal_init=0", *journal, image)
    loop = run("losetup", "--find", "--show", image).strip()
    mnt = os.path.join(args.work, "mnt")
    os.makedirs(mnt, exist_ok=True)
    try:
        for workload in WORKLOADS:
            size = args.size
            if workload.startswith("fsync"):
                files = str(int(2000 * float(args.scale or 1)))
                size = ["--writers", workload.split()[1], "--files", files]
            run("mount", "-t", kind, "-o", options, loop, mnt)
            try:
                before = written(loop)
                out = run(args.backstitch, "bench", workload.split()[0], "--dir", mnt, "--json", *size)
                after = written(loop)
            finally:
                run("umount", mnt)
            blocks = after[0] - before[0]
            if workload == "delete":
                # The tree that it removes is made first, and writing that takes what untar took.
                blocks -= results[(system, "untar")][-1]["blocks"]
            flushes = None if after[1] is None else after[1] - before[1]
            for found in json.loads(out)["runs"]:
                measured = figures(found, max(blocks, 0), flushes)
                results.setdefault((system, name_of(found)), []).append(measured)
    finally:
        run("losetup", "-d", loop)
        os.remove(image)


def median(results, system, workload, what):
    values = [found[what] for found in results.get((system, workload), []) if found[what] is not None]
    return statistics.median(values) if values else None


def table(results):
    def shown(value, form):
        return "-" if value is None else form % value

    for title, what, form in [
        ("elapsed seconds", "seconds", "%.2f"),
        ("blocks of 4 KiB written", "blocks", "%d"),
        ("flushes for each operation", "flushes", "%.2f"),
    ]:
        print("\n%-18s" % title + "".join("%12s" % workload for workload in WORKLOADS))
        for system in sorted({system for system, _ in results}, key=(OURS + list(KERNEL)).index):
            cells = []
            for workload in WORKLOADS:
                value = median(results, system, workload, what)
                if what == "flushes" and value is not None:
                    value = None if "fsync" not in workload else value / median(results, system, workload, "operations")
                cells.append("%12s" % shown(value, form))
            print("%-24s" % system + "".join(cells))
    for workload in ("untar", "postmark"):
        ordered, plain = (median(results, system, workload, "seconds") for system in ("journal=ordered", "async"))
        if ordered is None or plain is None:
            continue
        print("%s: journal=ordered takes %.2f times what async does (at most 1.3)" % (workload, ordered / plain))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backstitch")
    parser.add_argument("--work", help="where the images go: a directory of its own unless told")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--scale", help="this part of the papers' numbers")
    parser.add_argument("--only", help="these systems, of: " + ", ".join(OURS + list(KERNEL)))
    parser.add_argument("--json", help="the figures of each run into this file")
    args = parser.parse_args()
    args.size = ["--scale", args.scale] if args.scale else []
    # What is mounted is unmounted even then.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    systems = args.only.split(",") if args.only else OURS + list(KERNEL)
    for system in systems:
        if system not in OURS and system not in KERNEL:
            parser.error("no system '%s'" % system)
    results = {}
    with tempfile.TemporaryDirectory(dir=args.work) as work:
        args.work = work
        for _ in range(args.runs):
            for system in systems:
                if system in KERNEL:
                    kernel(args, system, results)
                else:
                    ours(args, system, results)
    table(results)
    if args.json:
        rows = [{"system": s, "workload": w, "runs": runs} for (s, w), runs in results.items()]
        with open(args.json, "w") as out:
            json.dump({"rows": rows}, out, indent=1)


if __name__ == "__main__":
    main()
