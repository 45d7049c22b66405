#!/usr/bin/env python3
"""Runs the same work on backstitch, Debian's fuse2fs and the kernel's ext2, on the same kind of image, in one run.

    run.py [--peers a,b] [--workloads x,y] [--runs N] [--out FILE]

Peers: backstitch (soft updates), backstitch-async, fuse2fs, kernel (a loop mount, for orientation; needs root).
Workloads, each on a fresh `mke2fs -t ext2` image whose blocks are all allocated on the host:

    unpack    tar x of a real source tree, and a sync
    remove    rm -rf of that tree after a remount, and a sync
    postmark  PostMark: 1,000 files of 512 B to 16 KiB in 10 directories, 30,000 transactions
    zero      50,000 times create and unlink an empty file

Reported for each: `elapsed_seconds` of the work, `sync_seconds` (syncfs and fsync of the directory: FUSE sends no request on
sync(2)), `image_flush_seconds` (fdatasync of the image, which charges a daemon that does not flush for what it left to the
host), `unmount_seconds`, and what the daemon used: CPU, peak memory, bytes written. `total_seconds` is the sum of the first
four. One JSON document goes to bench-results/peers.json, a table to the terminal. The harness for more peers and workloads,
where it is there, is ../shared/tools/peers; its C program for `zero` is used if it can be built.
"""
import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BACKSTITCH = os.environ.get("BACKSTITCH_BIN", os.path.join(ROOT, "target/release/backstitch"))
SHARED = os.path.join(os.path.dirname(ROOT), "shared/tools/peers")
POSTMARK = "set number 1000\nset transactions 30000\nset size 512 16384\nset subdirectories 10\nset seed 42\n"
PAIRS = 50000

PEERS = {
    "backstitch": [BACKSTITCH, "mount", "-f", "--ordering", "soft", "{image}", "{mount}"],
    "backstitch-async": [BACKSTITCH, "mount", "-f", "--ordering", "async", "{image}", "{mount}"],
    "fuse2fs": ["fuse2fs", "-f", "{image}", "{mount}"],
    "kernel": None,
}


def run(command, **keywords):
    return subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **keywords)


def timed(work):
    start = time.monotonic()
    work()
    return time.monotonic() - start


class Mount:
    """A file system on a fresh image."""

    def __init__(self, peer, image, mount):
        self.peer, self.image, self.mount, self.daemon = peer, image, mount, None

    def format(self):
        run(["mke2fs", "-q", "-F", "-t", "ext2", "-E", "nodiscard,lazy_itable_init=0", self.image])

    def up(self):
        command = PEERS[self.peer]
        if command is None:
            run(["mount", "-t", "ext2", "-o", "loop", self.image, self.mount])
            return
        words = [word.format(image=self.image, mount=self.mount) for word in command]
        log = open(self.image + ".log", "a")
        self.daemon = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while not os.path.ismount(self.mount):
            if self.daemon.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.peer} does not mount: {open(self.image + '.log').read()[-500:]}")
            time.sleep(0.005)

    def down(self):
        if os.path.ismount(self.mount):
            if os.geteuid() == 0:
                run(["umount", self.mount])
            else:
                run(["fusermount3", "-u", self.mount])
        if self.daemon:
            try:
                self.daemon.wait(300)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                self.daemon.wait()
            self.daemon = None

    def force_down(self):
        """After a failure: only what this run has started."""
        if self.daemon and self.daemon.poll() is None:
            self.daemon.kill()
        if os.path.ismount(self.mount):
            subprocess.run(["umount", "-l", self.mount] if os.geteuid() == 0 else ["fusermount3", "-uz", self.mount])
        self.down()

    def sync(self):
        directory = os.open(self.mount, os.O_RDONLY | os.O_DIRECTORY)
        os.sync()
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def flush_image(self):
        image = os.open(self.image, os.O_RDWR)
        os.fdatasync(image)
        os.close(image)

    def used(self):
        """What the daemon has used so far."""
        if not self.daemon:
            return {}
        process = f"/proc/{self.daemon.pid}"
        fields = open(process + "/stat").read().rsplit(")", 1)[1].split()
        tick = os.sysconf("SC_CLK_TCK")
        found = {"daemon_user_seconds": int(fields[11]) / tick, "daemon_sys_seconds": int(fields[12]) / tick}
        for line in open(process + "/status"):
            if line.startswith("VmHWM:"):
                found["daemon_memory_peak_bytes"] = int(line.split()[1]) * 1024
        try:
            for line in open(process + "/io"):
                if line.startswith("write_bytes:"):
                    found["bytes_written"] = int(line.split()[1])
        except PermissionError:
            pass
        return found


class Workloads:
    """The work; each returns the number of operations."""

    def __init__(self, work):
        self.work = work
        self.archive = os.path.join(work, "tree.tar")
        self.files = 0
        self.pairs = self.build_pairs()

    def build_pairs(self):
        source, program = os.path.join(SHARED, "wl.c"), os.path.join(self.work, "wl")
        if os.path.exists(source) and shutil.which("gcc"):
            if subprocess.run(["gcc", "-O2", "-o", program, source]).returncode == 0:
                return program
        return None

    def pack(self, megabytes):
        packer = os.path.join(ROOT, "scripts/pack-tree.py")
        text = subprocess.check_output([sys.executable, packer, "--megabytes", str(megabytes), self.archive], text=True)
        self.files = int(text.split()[0])

    def unpack(self, directory):
        run(["tar", "-xf", self.archive, "-C", directory])
        return self.files

    def remove(self, directory):
        run(["rm", "-rf", os.path.join(directory, "tree")])
        return self.files

    def postmark(self, directory):
        script = f"set location {directory}\n{POSTMARK}run\nquit\n"
        subprocess.run(["postmark"], input=script, text=True, check=True, stdout=subprocess.DEVNULL)
        return 30000

    def zero(self, directory):
        if self.pairs:
            run([self.pairs, "pair", directory, str(PAIRS)])
        else:
            for number in range(PAIRS):
                path = f"{directory}/f{number}"
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                os.unlink(path)
        return PAIRS


def measure(mounted, workloads, workload):
    mounted.format()
    mounted.up()
    directory = os.path.join(mounted.mount, "work")
    os.mkdir(directory)
    if workload == "remove":
        workloads.unpack(directory)
        mounted.sync()
        mounted.down()
        mounted.up()
    before, client = mounted.used(), resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    operations = getattr(workloads, workload)(directory)
    elapsed = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    synced = timed(mounted.sync)
    flushed = timed(mounted.flush_image)
    result = {
        "peer": mounted.peer,
        "workload": workload,
        "operations": operations,
        "elapsed_seconds": elapsed,
        "operations_per_second": operations / elapsed,
        "sync_seconds": synced,
        "image_flush_seconds": flushed,
        "client_cpu_seconds": after.ru_utime + after.ru_stime - client.ru_utime - client.ru_stime,
    }
    for key, value in mounted.used().items():
        result[key] = value if key.endswith("peak_bytes") else value - before.get(key, 0)
    result["unmount_seconds"] = timed(mounted.down)
    result["total_seconds"] = elapsed + synced + flushed + result["unmount_seconds"]
    check = subprocess.run(["e2fsck", "-fn", mounted.image], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    result["e2fsck_clean"] = check.returncode == 0
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in result.items()}


def median(rows, key):
    values = [row[key] for row in rows if key in row]
    return statistics.median(values) if values else None


def table(rows, peers, workloads):
    base = "fuse2fs" if "fuse2fs" in peers else peers[0]
    for workload in workloads:
        print(f"\n{workload:10} {'total':>9} {'work':>9} {'per second':>11} {'daemon CPU':>11} {'memory':>8} {'written':>9}  × {base}")
        of = {peer: [r for r in rows if r["peer"] == peer and r["workload"] == workload] for peer in peers}
        for peer in (peer for peer in peers if of[peer]):
            mine = of[peer]
            cpu = (median(mine, "daemon_user_seconds") or 0) + (median(mine, "daemon_sys_seconds") or 0)
            total, reference = median(mine, "total_seconds"), median(of[base], "total_seconds") if of[base] else None
            ratio = f"{reference / total:5.2f}" if reference else ""
            unclean = "" if all(row["e2fsck_clean"] for row in mine) else "  e2fsck finds damage!"
            print(f"  {peer:16} {total:7.2f} s {median(mine, 'elapsed_seconds'):7.2f} s {median(mine, 'operations_per_second'):11,.0f}"
                  f" {cpu:9.2f} s {(median(mine, 'daemon_memory_peak_bytes') or 0) / 1e6:5.0f} MB"
                  f" {(median(mine, 'bytes_written') or 0) / 1e6:6.0f} MB  {ratio}{unclean}")


def host():
    model = ""
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
    return {"cpu": model, "cpus": os.cpu_count(), "kernel": platform.release(), "machine": platform.machine()}


def wanted(text, known):
    names = text.split(",")
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"run.py: no such thing as {', '.join(unknown)}; there are {', '.join(known)}")
    return names


def available(peers):
    for peer in peers:
        command = PEERS[peer]
        if command is None and os.geteuid() != 0:
            print(f"run.py: {peer} is left out: it needs root", file=sys.stderr)
        elif command and not shutil.which(command[0]):
            print(f"run.py: {peer} is left out: {command[0]} is missing", file=sys.stderr)
        else:
            yield peer


def main():
    known = ["unpack", "remove", "postmark", "zero"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default="backstitch,fuse2fs,kernel")
    parser.add_argument("--workloads", default=",".join(known))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=300, help="size of the tree (300)")
    parser.add_argument("--image-mebibytes", type=int, default=2048)
    parser.add_argument("--out", default=os.path.join(ROOT, "bench-results/peers.json"))
    arguments = parser.parse_args()
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    peers = list(available(wanted(arguments.peers, PEERS)))
    workloads = [w for w in wanted(arguments.workloads, known) if w != "postmark" or shutil.which("postmark")]
    rows = []
    with tempfile.TemporaryDirectory(prefix="backstitch-bench.") as work:
        image, mount = os.path.join(work, "disk.img"), os.path.join(work, "mnt")
        os.mkdir(mount)
        run(["dd", "if=/dev/zero", f"of={image}", "bs=1M", f"count={arguments.image_mebibytes}"], stderr=subprocess.DEVNULL)
        todo = Workloads(work)
        todo.pack(arguments.megabytes)
        for number in range(arguments.runs):
            for workload in workloads:
                for peer in peers:
                    mounted = Mount(peer, image, mount)
                    try:
                        row = dict(measure(mounted, todo, workload), run=number)
                    finally:
                        mounted.force_down()
                    rows.append(row)
                    print(f"{number + 1}/{arguments.runs} {workload} {peer}: {row['total_seconds']:.2f} s", file=sys.stderr)
    version = subprocess.check_output([BACKSTITCH, "--version"], text=True).strip() if "backstitch" in peers else None
    os.makedirs(os.path.dirname(os.path.abspath(arguments.out)), exist_ok=True)
    with open(arguments.out, "w") as out:
        json.dump({"backstitch": version, "host": host(), "runs": rows}, out, indent=1)
    table(rows, peers, workloads)
    print(f"\nwritten to {os.path.relpath(arguments.out)}")


main()
