#!/usr/bin/env python3
"""What a tree costs that is larger than what may wait in memory, on a device of a given speed.

    larger.py [--megabytes 250,1000,4000] [--rates 0,100,20] [--peers ours,ext4] [--options OPTIONS] [--out FILE]

Each tree (copies of real files, packed once) is unpacked into a fresh file system on a loop device, which is then unmounted: only then is all
of it on the disk. `ours` is ext2 mounted with the defaults, `ext4` the kernel's. The device writes at most so many MB/s (blkio of cgroup v1; 0: as fast as it can). Meanwhile one program lists a directory twenty times a
second, another one appends 100 bytes to a file and calls fsync twice a second, and a third writes 4 KiB at the device's end with O_DSYNC,
past the file system: what the device needs at that moment. Prints the time for each file until all is on the disk, what was written for
each byte, the stalls, the memory, and these latencies. Needs root.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BACKSTITCH = os.environ.get("BACKSTITCH_BIN", os.path.join(ROOT, "target/release/backstitch"))
THROTTLE = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device"
IMAGE_BYTES = 6 << 30
TAIL_BYTES = 1 << 20
# The usual number of inodes is not enough for 4 GB of small files.
BYTES_PER_INODE = "8192"


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def quantile(values, part):
    return sorted(values)[min(int(len(values) * part), len(values) - 1)] if values else float("nan")


class Sampler(threading.Thread):
    """Does something again and again, and keeps how long each took, in ms."""

    def __init__(self, pause_seconds, what):
        super().__init__(daemon=True)
        self.pause_seconds, self.what, self.took, self.ended = pause_seconds, what, [], threading.Event()
        self.start()

    def run(self):
        while not self.ended.wait(self.pause_seconds):
            since = time.monotonic()
            self.what()
            self.took.append((time.monotonic() - since) * 1000)

    def end(self):
        self.ended.set()
        self.join()
        return self.took


def append(path):
    with open(path, "ab") as file:
        file.write(b"x" * 100)
        file.flush()
        os.fsync(file.fileno())


def probe(device, offset):
    os.pwrite(device, os.urandom(4096), offset)


def throttle(loop, megabytes):
    numbers = os.stat(loop).st_rdev
    with open(THROTTLE, "w") as file:
        file.write(f"{os.major(numbers)}:{os.minor(numbers)} {megabytes * 1000000}")


def status_of(pid, key):
    with open(f"/proc/{pid}/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(key + ":"))


def written_bytes(loop):
    """What the kernel wrote to a block device."""
    with open(f"/sys/block/{os.path.basename(loop)}/stat") as fields:
        return int(fields.read().split()[6]) * 512


class Ours:
    def __init__(self, loop, mount, options):
        self.mount, self.stats = mount, None
        run(BACKSTITCH, "mkfs", "-t", "ext2", "--force", "-i", BYTES_PER_INODE, "-s", str(IMAGE_BYTES - TAIL_BYTES), loop)
        self.arguments = ["mount", *(["-o", options] if options else []), loop, mount]

    def begin(self):
        run(BACKSTITCH, *self.arguments)

    def note(self):
        self.stats = json.loads(run(BACKSTITCH, "stats", "--json", self.mount))
        return {"stalls": self.stats["stalls"], "peak_mib": status_of(self.stats["pid"], "VmHWM") / 1024,
                "bound_mib": self.stats["memory"]["bound"] / 2**20}

    def end(self):
        run(BACKSTITCH, "umount", self.mount)


class Kernel:
    def __init__(self, loop, mount, _options):
        self.loop, self.mount = loop, mount
        run("mke2fs", "-q", "-F", "-t", "ext4", "-i", BYTES_PER_INODE, "-E", "lazy_itable_init=0,lazy_journal_init=0", loop, str((IMAGE_BYTES - TAIL_BYTES) // 1024) + "K")

    def begin(self):
        run("mount", "-t", "ext4", self.loop, self.mount)

    def note(self):
        return {"stalls": None, "peak_mib": None, "bound_mib": None}

    def end(self):
        run("umount", self.mount)


PEERS = {"ours": Ours, "ext4": Kernel}


def measure(work, tree, copies, rate, peer, options):
    """One tree, unpacked as often as `copies`, into directories side by side."""
    image, mount = os.path.join(work, "disk.img"), os.path.join(work, "mnt")
    if not os.path.exists(image):
        run("fallocate", "-l", str(IMAGE_BYTES), image)
        os.makedirs(mount)
    loop = run("losetup", "-f", "--show", image)
    device = None
    try:
        peer = PEERS[peer](loop, mount, options)
        if rate:
            throttle(loop, rate)
        peer.begin()
        small = os.path.join(mount, "small")
        os.mkdir(small)
        for name in range(100):
            open(os.path.join(small, str(name)), "w").close()
        device = os.open(loop, os.O_RDWR | os.O_DSYNC)
        before = written_bytes(loop)
        samplers = [
            Sampler(0.05, lambda: os.listdir(small)),
            Sampler(0.5, lambda: append(os.path.join(small, "log"))),
            Sampler(0.5, lambda: probe(device, IMAGE_BYTES - TAIL_BYTES + 65536)),
        ]
        since = time.monotonic()
        for number in range(copies):
            part = os.path.join(mount, str(number))
            os.mkdir(part)
            run("tar", "-xf", tree, "-C", part)
        unpacked = time.monotonic() - since
        listed, synced, probed = [sampler.end() for sampler in samplers]
        found = peer.note()
        peer.end()
        done = time.monotonic() - since
        written = written_bytes(loop) - before
    finally:
        if device is not None:
            os.close(device)
        throttle(loop, 0)
        subprocess.run(["umount", "-q", mount])
        run("losetup", "-d", loop)
    return {**found, "rate": rate, "unpacked_s": unpacked, "done_s": done, "ls_ms": listed, "fsync_ms": synced, "probe_ms": probed,
            "written": written}


def show(row):
    def pair(took):
        return f"{statistics.median(took):.1f}, {quantile(took, 0.99):.0f}" if took else "–"

    stall = (row["stalls"] or {}).get("memory", {"count": "–", "longest_seconds": "–"})
    peak = f"{row['peak_mib']:.0f}" if row["peak_mib"] else "–"
    print(f"{row['peer']:>5} {row['rate'] or '–':>5} {row['megabytes']:>5} {row['unpacked_s']:>10.1f} {row['done_s']:>9.1f}"
          f" {row['done_s'] / row['files'] * 1e6:>10.0f} {row['written'] / row['bytes']:>12.2f} {stall['count']:>7}"
          f" {stall['longest_seconds']:>9.3} {peak:>9} {quantile(row['ls_ms'], 0.99):>9.1f}"
          f" {pair(row['fsync_ms']):>18} {pair(row['probe_ms']):>18}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", default="250,1000,4000")
    parser.add_argument("--rates", default="0,100,20")
    parser.add_argument("--peers", default="ours,ext4")
    parser.add_argument("--options", default="")
    parser.add_argument("--out", default=os.path.join(ROOT, "bench-results/larger.json"))
    arguments = parser.parse_args()
    if os.geteuid() != 0 or not os.path.exists(THROTTLE):
        sys.exit(f"larger.py: needs root and {THROTTLE} (cgroup v1)")
    found = []
    with tempfile.TemporaryDirectory(prefix="backstitch-larger.") as work:
        tree = os.path.join(work, "tree.tar")
        files, tree_bytes = map(int, run(sys.executable, os.path.join(ROOT, "scripts/pack-tree.py"), "--megabytes", "250", tree).split())
        print(f"a tree: {files} files, {tree_bytes / 1e6:.0f} MB; load {os.getloadavg()[0]:.1f}")
        print(f"{'':>5} {'MB/s':>5} {'MB':>5} {'unpacked s':>10} {'on disk s':>9} {'µs a file':>10} {'written/byte':>12} {'stalls':>7}"
              f" {'longest s':>9} {'peak MiB':>9} {'ls p99 ms':>9} {'fsync p50, p99 ms':>18} {'device p50, p99 ms':>18}")
        for rate in map(int, arguments.rates.split(",")):
            for megabytes in map(int, arguments.megabytes.split(",")):
                for peer in arguments.peers.split(","):
                    copies = max(1, round(megabytes * 1e6 / tree_bytes))
                    row = measure(work, tree, copies, rate, peer, arguments.options)
                    row.update(peer=peer, megabytes=megabytes, files=files * copies, bytes=tree_bytes * copies)
                    found.append(row)
                    show(row)
    os.makedirs(os.path.dirname(arguments.out), exist_ok=True)
    with open(arguments.out, "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main()
