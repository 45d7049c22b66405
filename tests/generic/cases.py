#!/usr/bin/env python3
"""Prints how a file system behaves in each of many cases: cases.py [--small] DIRECTORY [CASE ...]

Each case works in an empty directory below DIRECTORY and prints what it saw, without inode numbers, sizes of directories or the
time of day, so that the transcripts of two file systems can be compared. Must run as root: in a few cases a child becomes another user.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import signal
import stat
import struct
import sys
import threading
import time

CASES = []
# For a file system of a few MiB with a few dozen inodes.
SMALL_CASES = []
LIBC = ctypes.CDLL(None, use_errno=True)
NOBODY = 65534


def case(function):
    CASES.append(function)
    return function


def small_case(function):
    SMALL_CASES.append(function)
    return function


def say(*words):
    print("   ", *words)


def attempt(what, call, *arguments, **named):
    """Prints the result of a call: a value, or the name of an error."""
    try:
        value = call(*arguments, **named)
    except OSError as error:
        say(what, errno.errorcode.get(error.errno, error.errno))
        return None
    say(what, "ok" if value is None else value)
    return value


def comes_true(question):
    """Whether a condition becomes true within two seconds: the kernel frees a removed file shortly after `unlink` has returned."""
    deadline = time.monotonic() + 2
    while not question() and time.monotonic() < deadline:
        time.sleep(0.01)
    return question()


def child(work):
    """Runs `work` in a child. Returns its exit code, or the name of the signal that ended it."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            work()
            code = 0
        except OSError:
            pass
        finally:
            sys.stdout.flush()
            os._exit(code)
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return os.WEXITSTATUS(status)


def together(*works):
    """Runs each function in a child of its own, all at the same time, and prints which failed."""
    sys.stdout.flush()
    pids = []
    for work in works:
        pid = os.fork()
        if pid == 0:
            code = 99
            try:
                work()
                code = 0
            finally:
                os._exit(code)
        pids.append(pid)
    codes = [os.waitpid(pid, 0)[1] for pid in pids]
    if any(codes):
        say("children ended with", codes)


def as_nobody(work, groups=()):
    def become():
        os.setgroups(list(groups))
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        work()

    return child(become)


def put(name, data=b"", mode=0o644):
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    os.write(fd, data)
    os.close(fd)


def get(name):
    with open(name, "rb") as file:
        return file.read()


def mode_of(name):
    return oct(os.lstat(name).st_mode & 0o7777)


def runs(data):
    """Run-length encoding: how many bytes of which value."""
    out, start = [], 0
    for at in range(1, len(data) + 1):
        if at == len(data) or data[at] != data[start]:
            out.append(f"{at - start}x{data[start]:02x}")
            start = at
    return " ".join(out) or "empty"


@case
def appends_of_many_writers_do_not_overlap():
    put("log")

    def writer(who):
        def work():
            fd = os.open("log", os.O_WRONLY | os.O_APPEND)
            for number in range(150):
                os.write(fd, b"%d %05d %s\n" % (who, number, bytes([65 + who]) * (20 + 37 * who)))

        return work

    together(*[writer(who) for who in range(4)])
    lines = get("log").split(b"\n")
    for who in range(4):
        mine = [line for line in lines if line.startswith(b"%d " % who)]
        whole = all(line.endswith(b" " + bytes([65 + who]) * (20 + 37 * who)) for line in mine)
        say(who, len(mine), "whole" if whole else "torn", mine == sorted(mine))
    say("lines", len(lines), "bytes", os.stat("log").st_size)


@case
def appends_of_threads_with_one_descriptor():
    fd = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def work(byte):
        for _ in range(100):
            os.write(fd, bytes([byte]) * 100)

    threads = [threading.Thread(target=work, args=(65 + i,)) for i in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    data = get("log")
    pieces = [data[at : at + 100] for at in range(0, len(data), 100)]
    say(len(data), sorted({runs(piece) for piece in pieces}))


@case
def mappings_and_truncation():
    page = mmap.PAGESIZE
    fd = os.open("file", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 3 * page)
    shared = mmap.mmap(fd, 3 * page)
    shared[:] = b"m" * (3 * page)
    say("through read", runs(os.pread(fd, 4 * page, 0)))
    os.ftruncate(fd, page + 100)
    say("cut", runs(os.pread(fd, 4 * page, 0)))
    say("rest of the page", runs(shared[page : 2 * page]))

    def beyond():
        signal.signal(signal.SIGBUS, signal.SIG_DFL)
        shared[2 * page]

    say("beyond the end", child(beyond))
    os.ftruncate(fd, 3 * page)
    say("grown again", runs(os.pread(fd, 4 * page, 0)), "|", runs(shared[:]))
    os.pwrite(fd, b"w" * 10, page + 50)
    say("write is seen in the mapping", runs(shared[page : page + 100]))
    shared[2 * page + 7 : 2 * page + 9] = b"zz"
    shared.flush()
    say("mapping is seen in the file", runs(os.pread(fd, page, 2 * page)))
    os.ftruncate(fd, 0)
    say("empty", os.pread(fd, 10, 0), os.fstat(fd).st_blocks)
    os.close(fd)


@case
def bytes_beyond_the_end_never_show():
    page = mmap.PAGESIZE
    fd = os.open("file", os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, b"x" * 100, 0)
    LIBC.mmap.restype = ctypes.c_void_p
    LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_int64]
    LIBC.msync.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    memory = LIBC.mmap(None, page, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
    ctypes.memset(memory + 200, ord("y"), 100)
    say(os.fstat(fd).st_size, LIBC.msync(memory, page, 4))
    os.ftruncate(fd, 400)
    say("grown", runs(os.pread(fd, 1000, 0)))
    os.pwrite(fd, b"q", 1000)
    say("written behind", runs(os.pread(fd, 2000, 0)))


@case
def private_mappings_keep_their_changes():
    put("file", b"a" * 8192)
    fd = os.open("file", os.O_RDWR)
    private = mmap.mmap(fd, 8192, mmap.MAP_PRIVATE)
    private[0:4] = b"mine"
    os.pwrite(fd, b"file", 4096)
    say(private[0:4], private[4096:4100], get("file")[:4])


@case
def a_storm_of_renames_loses_no_file():
    for directory in range(3):
        os.mkdir(f"d{directory}")
    for number in range(30):
        put(f"d0/f{number}", b"%d" % number)

    def mover(seed):
        def work():
            state = seed
            for _ in range(250):
                state = (state * 1103515245 + 12345) & 0x7FFFFFFF
                name, here, there = (state >> 8) % 30, (state >> 14) % 3, (state >> 20) % 3
                try:
                    os.rename(f"d{here}/f{name}", f"d{there}/f{name}")
                except FileNotFoundError:
                    pass

        return work

    together(*[mover(seed) for seed in (1, 2, 3, 4)])
    found = sorted(
        (name, get(f"d{directory}/{name}"))
        for directory in range(3)
        for name in os.listdir(f"d{directory}")
    )
    say(len(found), found == sorted((f"f{n}", b"%d" % n) for n in range(30)))


@case
def a_name_is_never_missing_while_it_is_replaced():
    put("name", b"0" * 64)

    def replace():
        for number in range(200):
            put("new", bytes([48 + number % 10]) * 64)
            os.rename("new", "name")

    def look():
        for _ in range(400):
            data = get("name")
            assert len(data) == 64 and len(set(data)) == 1, data

    together(replace, look, look)
    say(os.listdir("."), runs(get("name")))


@case
def directories_renamed_across_each_other_make_no_circle():
    os.makedirs("a/b")
    os.makedirs("c/d")

    def swings(*moves):
        def work():
            for _ in range(150):
                for source, target in moves:
                    try:
                        os.rename(source, target)
                    except OSError as error:
                        assert error.errno in (errno.ENOENT, errno.EINVAL), error

        return work

    there = swings(("a", "c/d/a"), ("c/d/a", "a"))
    back = swings(("c", "a/b/c"), ("a/b/c", "c"))
    together(there, back)
    seen = sorted(os.path.basename(top) for top, _, _ in os.walk("."))
    say(seen)
    attempt("into itself", os.rename, seen[1], seen[1] + "/x")


class Dirent(ctypes.Structure):
    _fields_ = [
        ("ino", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("length", ctypes.c_ushort),
        ("type", ctypes.c_ubyte),
        ("name", ctypes.c_char * 256),
    ]


LIBC.opendir.restype = ctypes.c_void_p
LIBC.readdir.restype = ctypes.POINTER(Dirent)
LIBC.telldir.restype = ctypes.c_long
for function in ("readdir", "telldir", "rewinddir", "closedir"):
    getattr(LIBC, function).argtypes = [ctypes.c_void_p]
LIBC.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]


def names_from(stream, most=None):
    names = []
    while most is None or len(names) < most:
        entry = LIBC.readdir(stream)
        if not entry:
            break
        names.append(entry.contents.name.decode())
    return names


@case
def places_in_a_directory_hold_while_it_changes():
    for number in range(600):
        put(f"name{number:04}")
    stream = LIBC.opendir(b".")
    first = names_from(stream, 200)
    place = LIBC.telldir(stream)
    second = names_from(stream)
    everything = {f"name{n:04}" for n in range(600)} | {".", ".."}
    say("all, once:", sorted(first + second) == sorted(everything))
    LIBC.seekdir(stream, place)
    say("again from the place:", names_from(stream) == second)
    gone = set(first[10:60]) | set(second[10:60])
    for name in gone - {".", ".."}:
        os.unlink(name)
    for number in range(300):
        put(f"new{number:04}")
    LIBC.seekdir(stream, place)
    later = names_from(stream)
    stayed = [name for name in second if name not in gone]
    say("what stayed comes once:", [n for n in later if n in set(stayed)] == stayed)
    say("what came before does not:", not (set(later) & set(first)))
    LIBC.rewinddir(stream)
    say("all from the start:", sorted(names_from(stream)) == sorted(os.listdir(".") + [".", ".."]))
    LIBC.closedir(stream)


@case
def a_directory_is_emptied_while_it_is_read():
    for number in range(700):
        put(f"a-rather-long-name-{number:05}")
    stream = LIBC.opendir(b".")
    removed = 0
    while True:
        entry = LIBC.readdir(stream)
        if not entry:
            break
        name = entry.contents.name
        if name not in (b".", b".."):
            os.unlink(name)
            removed += 1
    LIBC.closedir(stream)
    say(removed, os.listdir("."))


@case
def times_to_the_nanosecond_and_beyond_2038():
    put("file")
    billion = 1_000_000_000
    for seconds, rest in (
        (0, 1),
        (1, 999_999_999),
        (2**31 - 1, 0),
        (2**31, 5),
        (2**32 - 1, 7),
        (2**32, 0),
        (2**33 + 3, 123_456_789),
        (15032385535, 0),
        (15032385536, 0),
        (-1, 0),
        (-1, 999_999_999),
        (-(2**31), 0),
        (-(2**31) - 1, 0),
    ):
        os.utime("file", ns=(seconds * billion + rest, seconds * billion + rest))
        found = os.stat("file")
        say(seconds, rest, "->", found.st_atime_ns, found.st_mtime_ns)
    os.utime("file", ns=(5, 6))
    fd = os.open("file", os.O_RDWR)
    before = os.stat("file")
    os.write(fd, b"x")
    after = os.fstat(fd)
    say("a write changes", after.st_mtime_ns > 6, after.st_ctime_ns >= before.st_ctime_ns, after.st_atime_ns)
    os.utime("file", ns=(5, 6))
    os.chmod("file", 0o600)
    after = os.stat("file")
    say("a chmod does not", after.st_mtime_ns, after.st_atime_ns)
    os.utime(".", ns=(5, 6))
    put("other")
    say("a new name changes its directory", os.stat(".").st_mtime_ns > 6)
    os.utime(".", ns=(5, 6))
    os.rename("other", "another")
    say("a rename too", os.stat(".").st_mtime_ns > 6)
    os.utime("file", ns=(5, 6))
    os.ftruncate(fd, 0)
    say("cutting off nothing", os.stat("file").st_mtime_ns > 6)
    os.symlink("target", "link")
    os.utime("link", ns=(3, 4), follow_symlinks=False)
    say(os.lstat("link").st_mtime_ns)
    for name in ("file", ".", "link"):
        before = os.lstat(name)
        time.sleep(0.02)
        os.chown(name, -1, -1, follow_symlinks=False)
        after = os.lstat(name)
        say("a chown of nothing", name, after.st_ctime_ns > before.st_ctime_ns, after.st_mtime_ns == before.st_mtime_ns)


@case
def transfers_around_the_page_cache():
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 4 * page)
    memory[:] = b"d" * (4 * page)
    fd = os.open("file", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    attempt("write", os.pwritev, fd, [memory], 0)
    plain = os.open("file", os.O_RDWR)
    say("the other way sees", runs(os.pread(plain, 8 * page, 0)))
    os.pwrite(plain, b"p" * page, page)
    back = mmap.mmap(-1, 4 * page)
    attempt("read", os.preadv, fd, [back], 0)
    say(runs(back[:]))
    attempt("hole", os.pwritev, fd, [memoryview(memory)[:page]], 64 * page)
    say(os.fstat(fd).st_size, runs(os.pread(plain, 3 * page, 62 * page)))
    attempt("read at the end", os.preadv, fd, [back], 64 * page)
    attempt("read behind it", os.preadv, fd, [back], 100 * page)
    shared = mmap.mmap(plain, page)
    shared[0:5] = b"maped"
    attempt("over a mapping", os.pwritev, fd, [memoryview(memory)[:page]], 0)
    say(shared[0:5])


@case
def holes_are_found():
    fd = os.open("file", os.O_RDWR | os.O_CREAT)
    block = 4096
    for at in (0, 3, 4, 100, 5000):
        os.pwrite(fd, b"b" * block, at * block)
    os.ftruncate(fd, 6000 * block + 17)
    os.fsync(fd)
    for start in (0, 1, block, 3 * block, 5 * block, 101 * block, 5001 * block, 6000 * block + 16):
        attempt(f"data from {start}", os.lseek, fd, start, os.SEEK_DATA)
        attempt(f"hole from {start}", os.lseek, fd, start, os.SEEK_HOLE)
    attempt("behind the end", os.lseek, fd, 6000 * block + 17, os.SEEK_DATA)
    attempt("before the start", os.lseek, fd, -1, os.SEEK_SET)
    say("blocks", os.fstat(fd).st_blocks)
    say(runs(os.pread(fd, 3 * block, 2 * block)))


@case
def offsets_as_large_as_they_come():
    fd = os.open("file", os.O_RDWR | os.O_CREAT)
    for at in (2**31 - 2, 2**31 + 1, 2**32 - 3, 2**32 + 5, 2**38, 2**40):
        attempt(f"write at {at}", os.pwrite, fd, b"offset", at)
        say(os.pread(fd, 10, at), os.fstat(fd).st_size)
    attempt("far too large", os.pwrite, fd, b"x", 2**46)
    attempt("as large as a number", os.ftruncate, fd, 2**63 - 1)
    attempt("negative", os.ftruncate, fd, -1)
    attempt("read there", os.pread, fd, 10, 2**46)
    say("blocks", os.fstat(fd).st_blocks)
    os.ftruncate(fd, 2**32 + 6)
    say("cut", os.pread(fd, 10, 2**32 + 5), "blocks", os.fstat(fd).st_blocks)


@case
def names_paths_and_links_of_every_length():
    for length in (1, 254, 255, 256, 4000):
        attempt(f"name of {length}", put, "n" * length)
    for name in ("\u00e9" * 127, "new\nline", "tab\t", "\x7f", "\udcff\udcfe"):
        attempt(f"{name!a}", put, name)
    say(sorted(len(os.fsencode(name)) for name in os.listdir(".")))
    for length in (1, 58, 59, 60, 61, 1023, 1024, 4094, 4095, 4096):
        made = attempt(f"link of {length}", os.symlink, "t" * length, f"link{length}")
        if os.path.lexists(f"link{length}"):
            say(len(os.readlink(f"link{length}")), os.lstat(f"link{length}").st_size, made)
    attempt("empty link", os.symlink, "", "empty")
    os.symlink("loop2", "loop1")
    os.symlink("loop1", "loop2")
    attempt("a circle of links", os.stat, "loop1")
    deep, steps = ".", 0
    here = os.open(".", os.O_RDONLY)
    for _ in range(30):
        name = "d" * 200
        os.mkdir(name)
        os.chdir(name)
        steps += 1
    put("deep", b"deep")
    say("depth", steps, get("deep"))
    os.fchdir(here)
    attempt("a path that is too long", os.stat, "/".join(["d" * 200] * 30))
    del deep


@case
def locks():
    put("file", b"x" * 100)
    fd = os.open("file", os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)

    def other_descriptor(how):
        def work():
            another = os.open("file", os.O_RDWR)
            attempt(f"flock {how}", fcntl.flock, another, how | fcntl.LOCK_NB)

        return work

    child(other_descriptor(fcntl.LOCK_SH))
    fcntl.flock(fd, fcntl.LOCK_SH)
    child(other_descriptor(fcntl.LOCK_SH))
    child(other_descriptor(fcntl.LOCK_EX))
    fcntl.flock(fd, fcntl.LOCK_UN)
    child(other_descriptor(fcntl.LOCK_EX))

    fcntl.lockf(fd, fcntl.LOCK_EX, 10, 20)

    def ranges():
        another = os.open("file", os.O_RDWR)
        for start, length in ((0, 10), (10, 10), (15, 10), (20, 10), (29, 1), (30, 10), (0, 0)):
            attempt(
                f"range {start}+{length}", fcntl.lockf, another, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start
            )
            fcntl.lockf(another, fcntl.LOCK_UN, length, start)
        kind, whence, start, length, _ = struct.unpack(
            "hhqqi", fcntl.fcntl(another, fcntl.F_GETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))[:28]
        )
        say("who holds it", kind == fcntl.F_WRLCK, whence, start, length)

    child(ranges)
    os.close(os.open("file", os.O_RDONLY))

    def after_close():
        another = os.open("file", os.O_RDWR)
        attempt("after any close", fcntl.lockf, another, fcntl.LOCK_EX | fcntl.LOCK_NB, 0, 0)

    child(after_close)

    def waits():
        another = os.open("file", os.O_RDWR)
        fcntl.flock(another, fcntl.LOCK_EX)
        say("got it")

    fcntl.flock(fd, fcntl.LOCK_EX)
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            waits()
            sys.stdout.flush()
        finally:
            os._exit(0)
    say("let go")
    sys.stdout.flush()
    fcntl.flock(fd, fcntl.LOCK_UN)
    os.waitpid(pid, 0)


@case
def extended_attributes_and_their_limits():
    put("file")
    attempt("none", os.getxattr, "file", "user.none")
    for length in (1, 249, 250, 251):
        attempt(f"name of {length}", os.setxattr, "file", "user." + "n" * length, b"v")
    for name in os.listxattr("file"):
        os.removexattr("file", name)
    for size in (0, 1, 1000, 2000):
        attempt(f"value of {size}", os.setxattr, "file", "user.a", b"v" * size)
        say(len(os.getxattr("file", "user.a")))
    attempt("far too large a value", os.setxattr, "file", "user.b", b"v" * 70000)
    attempt("create", os.setxattr, "file", "user.a", b"w", os.XATTR_CREATE)
    attempt("replace", os.setxattr, "file", "user.c", b"w", os.XATTR_REPLACE)
    attempt("no prefix", os.setxattr, "file", "plain", b"w")
    attempt("unknown prefix", os.setxattr, "file", "other.name", b"w")
    attempt("trusted", os.setxattr, "file", "trusted.t", b"w")
    say(sorted(os.listxattr("file")))
    as_nobody(lambda: say("a user sees", sorted(os.listxattr("file"))))
    as_nobody(lambda: attempt("and cannot set", os.setxattr, "file", "user.a", b"n"))
    os.symlink("file", "link")
    attempt("of a link", os.setxattr, "link", "user.a", b"w", follow_symlinks=False)
    attempt("remove", os.removexattr, "file", "user.a")
    attempt("remove again", os.removexattr, "file", "user.a")
    os.mkdir("dir")
    attempt("of a directory", os.setxattr, "dir", "user.a", b"w")


def acl(*entries):
    """A POSIX access control list in the kernel's format."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER = 1, 2, 4, 8, 16, 32
NO_ID = 0xFFFFFFFF


@case
def masks_and_default_access_lists():
    for mask in (0, 0o22, 0o77, 0o777):
        os.umask(mask)
        put(f"file{mask}", mode=0o666)
        os.mkdir(f"dir{mask}")
        say(oct(mask), mode_of(f"file{mask}"), mode_of(f"dir{mask}"))
    os.umask(0o22)
    os.mkdir("with")
    default = acl(
        (USER_OBJ, 7, NO_ID), (USER, 6, NOBODY), (GROUP_OBJ, 5, NO_ID), (MASK, 7, NO_ID), (OTHER, 0, NO_ID)
    )
    os.setxattr("with", "system.posix_acl_default", default)
    put("with/file", mode=0o666)
    os.mkdir("with/dir")
    os.mkdir("with/closed", 0o700)
    for name in ("with/file", "with/dir", "with/closed"):
        say(name, mode_of(name))
        for kind in ("access", "default"):
            attempt(kind, lambda: os.getxattr(name, "system.posix_acl_" + kind).hex())
    os.chmod("with/file", 0o640)
    say("chmod sets the mask", os.getxattr("with/file", "system.posix_acl_access").hex())

    def user():
        attempt("the named user reads", lambda: len(get("with/file")))
        attempt("and may not write", lambda: os.close(os.open("with/file", os.O_WRONLY)))

    os.chmod("with", 0o755)
    as_nobody(user)
    attempt("a list on a list", os.setxattr, "with/file", "system.posix_acl_default", default)
    attempt("half a list", os.setxattr, "with/file", "system.posix_acl_access", default[:-3])
    attempt("without owner", os.setxattr, "with/file", "system.posix_acl_access", acl((OTHER, 4, NO_ID)))
    minimal = acl((USER_OBJ, 6, NO_ID), (GROUP_OBJ, 4, NO_ID), (OTHER, 0, NO_ID))
    attempt("a minimal list is a mode", os.setxattr, "with/file", "system.posix_acl_access", minimal)
    say(mode_of("with/file"))
    attempt("and no list", os.getxattr, "with/file", "system.posix_acl_access")


@case
def groups_are_inherited_and_bits_cleared():
    os.umask(0)
    os.chmod(".", 0o777)
    os.mkdir("dir", 0o777)
    os.chown("dir", 0, 1234)
    os.chmod("dir", 0o2777)
    os.mkdir("dir/sub", 0o755)
    put("dir/file")
    os.symlink("x", "dir/link")
    for name in ("dir/sub", "dir/file", "dir/link"):
        say(name, os.lstat(name).st_gid, mode_of(name))

    def user():
        fd = os.open("dir/theirs", os.O_CREAT | os.O_WRONLY, 0o2775)
        os.close(fd)
        say("a stranger's file", os.stat("dir/theirs").st_gid, mode_of("dir/theirs"))
        attempt("chmod", os.chmod, "dir/theirs", 0o2775)
        say(mode_of("dir/theirs"))

    as_nobody(user)
    for mode in (0o6755, 0o2755, 0o2745, 0o4711):
        put("set")
        os.chmod("set", mode)
        os.chown("set", NOBODY, NOBODY)
        say(oct(mode), "after chown", mode_of("set"))
        os.chmod("set", mode)
        os.chown("set", -1, -1)
        say(oct(mode), "after a chown of nothing", mode_of("set"))
        os.chmod("set", mode)
        as_nobody(lambda: put_at("set"))
        say(oct(mode), "after a write", mode_of("set"))
        os.chmod("set", mode)
        as_nobody(lambda: os.truncate("set", 1))
        say(oct(mode), "after truncate", mode_of("set"))
    os.mkdir("sticky", 0o777)
    os.chmod("sticky", 0o1777)
    put("sticky/root")
    as_nobody(lambda: attempt("unlink another's", os.unlink, "sticky/root"))
    as_nobody(lambda: attempt("rename another's", os.rename, "sticky/root", "sticky/mine"))


def put_at(name):
    fd = os.open(name, os.O_WRONLY)
    os.write(fd, b"data")
    os.close(fd)


@case
def files_without_names():
    fd = os.open("file", os.O_RDWR | os.O_CREAT)
    os.link("file", "second")
    os.unlink("file")
    say(os.fstat(fd).st_nlink)
    os.unlink("second")
    say(os.fstat(fd).st_nlink, os.listdir("."))
    os.write(fd, b"still here")
    os.ftruncate(fd, 5)
    say(os.pread(fd, 20, 0), os.fstat(fd).st_size)
    os.fsync(fd)
    attempt("no way back", os.link, f"/proc/self/fd/{fd}", "back", follow_symlinks=True)
    attempt("chmod", os.fchmod, fd, 0o600)
    attempt("xattr", os.setxattr, fd, "user.a", b"v")
    os.mkdir("dir")
    directory = os.open("dir", os.O_RDONLY)
    os.rmdir("dir")
    say(os.fstat(directory).st_nlink, os.listdir(directory))
    attempt("a new name in it", os.open, "x", os.O_CREAT | os.O_WRONLY, dir_fd=directory)


@case
def what_rename_and_its_like_refuse():
    os.makedirs("dir/sub")
    os.mkdir("empty")
    put("file")
    os.symlink("file", "link")
    for source, target in (
        ("file", "dir"),
        ("dir", "file"),
        ("dir", "dir/sub/x"),
        ("empty", "dir"),
        ("none", "x"),
        ("file", "none/x"),
        ("file", "file/x"),
        ("file", "file"),
        ("dir/.", "x"),
        ("dir/..", "x"),
    ):
        attempt(f"rename {source} {target}", os.rename, source, target)
    os.link("file", "same")
    attempt("rename onto the same file", os.rename, "file", "same")
    say(sorted(os.listdir(".")))
    attempt("rename over an empty directory", os.rename, "dir/sub", "empty")
    attempt("rmdir of one that is not empty", os.rmdir, "dir") if os.listdir("dir") else say("dir is empty")
    attempt("rmdir of a file", os.rmdir, "file")
    attempt("unlink of a directory", os.unlink, "empty")
    attempt("rmdir .", os.rmdir, ".")
    attempt("rmdir ..", os.rmdir, "empty/..")
    attempt("mkdir of what is there", os.mkdir, "file")
    attempt("link of a directory", os.link, "empty", "hard")
    attempt("link over a name", os.link, "file", "link")
    attempt("link of a link", os.link, "link", "link2", follow_symlinks=False)
    say(os.readlink("link2"))
    attempt("exclusive", os.open, "file", os.O_CREAT | os.O_EXCL)
    attempt("exclusive at a link", os.open, "link", os.O_CREAT | os.O_EXCL)
    attempt("no follow", os.open, "link", os.O_NOFOLLOW)
    attempt("a file as directory", os.open, "file", os.O_DIRECTORY)
    attempt("a directory for writing", os.open, "empty", os.O_WRONLY)
    attempt("truncate a directory", os.truncate, "empty", 0)
    attempt("read a directory", lambda: os.read(os.open("empty", os.O_RDONLY), 10))


@case
def special_files():
    os.mkfifo("fifo", 0o640)
    os.mknod("char", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    os.mknod("block", stat.S_IFBLK | 0o600, os.makedev(300, 70000))
    import socket

    endpoint = socket.socket(socket.AF_UNIX)
    here = os.open(".", os.O_RDONLY)
    attempt("socket", endpoint.bind, "socket")
    for name in ("fifo", "char", "block", "socket"):
        found = os.lstat(name)
        say(name, stat.filemode(found.st_mode), os.major(found.st_rdev), os.minor(found.st_rdev), found.st_size)
    reader = os.open("fifo", os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open("fifo", os.O_WRONLY | os.O_NONBLOCK)
    os.write(writer, b"through")
    say(os.read(reader, 100))
    for name in ("fifo", "char", "block", "socket"):
        os.unlink(name)
    say(os.listdir(here))


@case
def space_is_reserved_and_given_back():
    fd = os.open("file", os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, b"a" * 40960, 0)
    punch, keep, zero, collapse = 2, 1, 16, 8

    def fallocate(mode, offset, length):
        LIBC.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
        if LIBC.fallocate(fd, mode, offset, length) != 0:
            number = ctypes.get_errno()
            raise OSError(number, "fallocate")

    attempt("punch", fallocate, punch | keep, 4096, 8192)
    say(runs(os.pread(fd, 40960, 0)), os.fstat(fd).st_blocks)
    attempt("punch in part", fallocate, punch | keep, 20480 + 10, 5000)
    say(runs(os.pread(fd, 40960, 0)), os.fstat(fd).st_size)
    attempt("punch without keeping", fallocate, punch, 0, 10)
    attempt("negative", fallocate, 0, -1, 10)
    attempt("nothing", fallocate, 0, 0, 0)


@case
def ranges_are_copied():
    put("from", bytes(range(256)) * 100)
    source, target = os.open("from", os.O_RDWR), os.open("to", os.O_RDWR | os.O_CREAT)
    attempt("copy", os.copy_file_range, source, target, 10000, 100, 50)
    say(get("to")[50:] == get("from")[100:10100], os.stat("to").st_size)
    attempt("past the end", os.copy_file_range, source, target, 10000, 25000, 0)
    attempt("onto itself", os.copy_file_range, source, source, 1000, 0, 500)
    attempt("far behind", os.copy_file_range, source, target, 10, 0, 10_000_000)
    say(os.stat("to").st_size)
    attempt("sendfile", os.sendfile, target, source, 0, 5000)


@case
def reading_and_writing_by_several_buffers():
    fd = os.open("file", os.O_RDWR | os.O_CREAT)
    attempt("writev", os.writev, fd, [b"one", b"", b"three" * 1000])
    parts = [bytearray(2), bytearray(10), bytearray(20)]
    attempt("preadv", os.preadv, fd, parts, 1)
    say([bytes(part) for part in parts])
    attempt("append by pwritev", os.pwritev, fd, [b"x"] * 100, 5003)
    say(os.fstat(fd).st_size)
    attempt("no bytes", os.write, fd, b"")
    attempt("no bytes far away", os.pwrite, fd, b"", 10_000_000)
    say(os.fstat(fd).st_size)
    attempt("read only", os.write, os.open("file", os.O_RDONLY), b"x")
    attempt("write only", os.read, os.open("file", os.O_WRONLY), 1)


@small_case
def inodes_run_out():
    before = os.statvfs(".").f_ffree
    made = 0
    try:
        while made < 10000:
            put(f"file{made}")
            made += 1
    except OSError as error:
        say(made, errno.errorcode[error.errno], "left", os.statvfs(".").f_ffree)
    attempt("a directory", os.mkdir, "dir")
    attempt("a link", os.symlink, "x", "link")
    attempt("a second name", os.link, "file0", "second")
    os.unlink("file1")
    attempt("one went, one comes", put, "again")
    attempt("and no other", put, "other")
    for name in os.listdir("."):
        os.unlink(name)
    say("all came back:", comes_true(lambda: os.statvfs(".").f_ffree == before), before)


@small_case
def space_runs_out():
    before = os.statvfs(".").f_bfree
    fd = os.open("file", os.O_WRONLY | os.O_CREAT)
    written = 0
    try:
        while written < 1 << 30:
            written += os.write(fd, b"w" * 65536)
    except OSError as error:
        say(errno.errorcode[error.errno], "left but for a few:", os.statvfs(".").f_bfree < 4)
    say("size is what was written:", os.fstat(fd).st_size == written)
    say("what was there is whole:", runs(get("file")) == f"{written}x77")
    attempt("over what is there", os.pwrite, fd, b"x" * 5000, 100)
    attempt("sync", os.fsync, fd)
    os.ftruncate(fd, written // 2)
    attempt("half went, some comes", lambda: len(os.listdir(".")) and put("more", b"m" * (written // 4)))
    say(runs(get("more")) == f"{written // 4}x6d")
    os.close(fd)
    os.unlink("file")
    os.unlink("more")
    say("all came back:", comes_true(lambda: os.statvfs(".").f_bfree == before))


@small_case
def whoever_writes_through_a_mapping_is_told_of_a_full_disk():
    size = 64 * mmap.PAGESIZE
    hole = os.open("hole", os.O_RDWR | os.O_CREAT)
    os.ftruncate(hole, size)
    fd = os.open("file", os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(fd, b"w" * 4096)
    except OSError:
        pass

    def touch():
        shared = mmap.mmap(hole, size)
        shared[:] = b"m" * size
        shared.flush()

    os.close(fd)
    # The kernel's driver allocates when a page is touched, other file systems when it is written back.
    ended = child(touch)
    say("told:", ended in ("SIGBUS", 99))
    os.unlink("file")
    os.ftruncate(hole, 0)
    os.pwrite(hole, b"fine", 0)
    os.fsync(hole)
    say(get("hole"))


def main():
    global CASES
    if sys.argv[1] == "--small":
        del sys.argv[1]
        CASES = SMALL_CASES
    root = os.path.abspath(sys.argv[1])
    wanted = sys.argv[2:]
    for function in CASES:
        if wanted and function.__name__ not in wanted:
            continue
        print(function.__name__)
        sys.stdout.flush()
        directory = os.path.join(root, function.__name__)
        os.mkdir(directory)
        os.chmod(directory, 0o755)
        os.chdir(directory)
        os.umask(0o22)
        try:
            function()
        except Exception as error:  # the transcript goes on with the next case
            say("ended with", type(error).__name__, error)
        sys.stdout.flush()
        os.chdir(root)


main()
