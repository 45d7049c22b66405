#!/usr/bin/env python3
"""Who may do what: every verdict of a mounted file system, as lines that can be compared with another one's.

    verdicts.py DIR

Needs root. Makes files and directories with modes, owners and access lists in DIR, then has subjects (users in several
groups, root with and without capabilities, root of a user namespace) try everything on everything. After that one thing
is changed at a time by somebody else, and all of them try again: what the kernel remembers of before must not count.
Each line is "step / subject / path: action=result ...".
"""
import ctypes
import errno
import os
import struct
import subprocess
import sys

ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
# User, group, other groups, and how the process is changed further.
SUBJECTS = {
    "u1": (1001, 2001, [], None),
    "u2": (1002, 2002, [2001], None),
    "u3": (1003, 2003, [3000], None),
    "u4": (1004, 2004, [], None),
    "root": (0, 0, [], None),
    "root without capabilities": (0, 0, [], "no capabilities"),
    "root of u1's namespace": (1001, 2001, [], "namespace"),
}
PR_SET_DUMPABLE, PR_CAPBSET_DROP = 4, 24
libc = ctypes.CDLL(None, use_errno=True)


def acl(*entries):
    """An access list in the form that the kernel takes: (tag, permissions, id)."""
    tags = {"u": 1, "user": 2, "g": 4, "group": 8, "mask": 16, "o": 32}
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", tags[t], p, i) for t, p, i in entries)


NONE = 0xFFFFFFFF


def listed(owner, named_user, group, named_group, mask, other):
    """With one named user and one named group."""
    return acl(("u", owner, NONE), ("user", *named_user), ("g", group, NONE), ("group", *named_group),
               ("mask", mask, NONE), ("o", other, NONE))


def make(path, mode, uid, gid, directory=False):
    if directory:
        os.mkdir(path)
    else:
        with open(path, "w") as file:
            file.write("#!/bin/sh\n:\n")
    os.chown(path, uid, gid)
    os.chmod(path, mode)


def populate():
    for path, mode, uid, gid in [
            ("pub", 0o755, 0, 0), ("priv", 0o700, 1001, 2001), ("grp", 0o2770, 1001, 3000), ("sticky", 0o1777, 0, 0),
            ("listed", 0o750, 1001, 2001), ("outer", 0o755, 0, 0), ("outer/middle", 0o750, 1002, 2002),
            ("outer/middle/inner", 0o755, 1001, 2001)]:
        make(path, mode, uid, gid, True)
    for path, mode, uid, gid in [
            ("pub/f", 0o644, 1001, 2001), ("pub/g", 0o640, 1001, 2001), ("pub/set", 0o6755, 1001, 2001),
            ("pub/group-less", 0o604, 1001, 2001), ("priv/f", 0o666, 1001, 2001), ("grp/f", 0o664, 1003, 3000),
            ("sticky/one", 0o666, 1001, 2001), ("sticky/two", 0o640, 1002, 2001), ("listed/f", 0o644, 1001, 2001),
            ("listed/x", 0o754, 1001, 2001), ("outer/middle/inner/f", 0o646, 1004, 2001)]:
        make(path, mode, uid, gid)


PATHS = ["pub", "pub/f", "pub/g", "pub/set", "pub/group-less", "priv", "priv/f", "priv/new", "grp", "grp/f", "grp/heir", "sticky",
         "sticky/one", "sticky/two", "listed", "listed/f", "listed/x", "listed/moved", "listed/heir", "outer",
         "outer/middle", "outer/middle/inner", "outer/middle/inner/f", "moved", "moved/f"]


def as_user(uid, gid, what):
    """Runs something as another user, in a process of its own."""
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
        what()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, "a step failed"


def new_file(path, mode):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))


# What changes, by somebody else than those who looked before.
STEPS = [
    ("at first", lambda: None),
    ("pub closed", lambda: os.chmod("pub", 0o700)),
    ("pub open", lambda: os.chmod("pub", 0o755)),
    ("pub/f given away", lambda: os.chown("pub/f", 1004, 3000)),
    ("pub/g open to others", lambda: as_user(1001, 2001, lambda: os.chmod("pub/g", 0o604))),
    ("the first access list of all", lambda: os.setxattr(
        "priv", ACCESS, listed(7, (5, 1003), 0, (7, 2002), 7, 0))),
    ("its mask cut down", lambda: as_user(1001, 2001, lambda: os.chmod("priv", 0o710))),
    ("and gone", lambda: os.removexattr("priv", ACCESS)),
    ("lists on files: a user and a group less than others", lambda: (
        os.setxattr("listed/f", ACCESS, listed(6, (0, 1003), 4, (6, 3000), 6, 6)),
        os.setxattr("listed", ACCESS, listed(7, (7, 1004), 5, (5, 3000), 7, 5)))),
    ("the list of listed/f without its group", lambda: as_user(1001, 2001, lambda: os.setxattr(
        "listed/f", ACCESS, listed(6, (4, 1003), 0, (0, 2002), 4, 0)))),
    ("children inherit", lambda: (
        os.setxattr("listed", DEFAULT, listed(7, (7, 1003), 5, (0, 3000), 7, 4)),
        os.setxattr("grp", DEFAULT, listed(7, (0, 1004), 7, (4, 2001), 5, 0)),
        as_user(1001, 2001, lambda: new_file("listed/heir", 0o666)),
        as_user(1001, 3000, lambda: new_file("grp/heir", 0o777)))),
    ("no list on the directory, those of its files stay", lambda: (
        os.removexattr("listed", ACCESS), os.removexattr("listed", DEFAULT))),
    ("a file moved into a closed directory", lambda: os.rename("pub/f", "priv/f")),
    ("a directory moved to an open place", lambda: os.rename("priv", "moved")),
    ("a file with a list moved out", lambda: as_user(1001, 2001, lambda: os.rename("listed/f", "listed/moved"))),
    ("the way to inner closed", lambda: as_user(1002, 2002, lambda: os.chmod("outer/middle", 0))),
    ("and given to another group", lambda: (os.chown("outer/middle", 1002, 3000), os.chmod("outer/middle", 0o710))),
    ("a list on the way", lambda: as_user(1002, 2002, lambda: os.setxattr(
        "outer/middle", ACCESS, listed(7, (1, 1001), 0, (1, 2001), 1, 0)))),
    ("a file without its set-id bits", lambda: os.chmod("pub/set", 0o700)),
    ("sticky no more", lambda: os.chmod("sticky", 0o777)),
]


def result(what):
    try:
        what()
        return "ok"
    except OSError as error:
        return errno.errorcode[error.errno]


def opened(path, flags):
    os.close(os.open(path, flags))


def there_and_back(path):
    os.rename(path, path + "~")
    os.rename(path + "~", path)


def linked(path):
    os.link(path, path + "+")
    os.unlink(path + "+")


def made(path):
    new_file(path + "/new-file", 0o600)
    os.unlink(path + "/new-file")


def executed(path):
    """Whether a process can become it."""
    child = os.fork()
    if child == 0:
        try:
            os.execv(path, [path])
        except OSError as error:
            os._exit(error.errno)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        raise OSError(status, "exec")


def tried(path):
    """Everything that leaves things as they are, or puts them back."""
    yield "stat", lambda: os.stat(path)
    yield "read", lambda: opened(path, os.O_RDONLY)
    yield "write", lambda: opened(path, os.O_WRONLY)
    for name, mode in [("r", os.R_OK), ("w", os.W_OK), ("x", os.X_OK)]:
        yield "access " + name, lambda mode=mode: accessed(path, mode)
    yield "now", lambda: os.utime(path)
    yield "time", lambda: os.utime(path, (1, 1))
    yield "attribute", lambda: os.setxattr(path, "user.a", b"1")
    yield "its value", lambda: os.getxattr(path, "user.a")
    yield "list", lambda: os.getxattr(path, ACCESS)
    yield "rename", lambda: there_and_back(path)
    if os.path.isdir(path):
        yield "entries", lambda: os.listdir(path)
        yield "go there", lambda: at_home(path)
        yield "make", lambda: made(path)
    else:
        yield "truncate", lambda: os.truncate(path, 12)
        yield "link", lambda: linked(path)
        yield "run", lambda: executed(path)


def accessed(path, mode):
    """access(2) with its error, which os.access keeps to itself."""
    ctypes.set_errno(0)
    if libc.access(os.fsencode(path), mode):
        raise OSError(ctypes.get_errno(), "access")


def at_home(path):
    home = os.open(".", os.O_RDONLY)
    try:
        os.chdir(path)
    finally:
        os.fchdir(home)
        os.close(home)


def become(uid, gid, groups, further):
    if further == "namespace":
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
        # Who changed its user does not own its files in /proc otherwise.
        libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
        if libc.unshare(0x10000000):
            raise OSError(ctypes.get_errno(), "unshare")
        for name, text in [("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")]:
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        return
    os.setgroups(groups)
    if further == "no capabilities":
        for capability in range(64):
            libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
        # Now nothing is gained by a change of program, and nothing is left.
        os.execv(sys.executable, [sys.executable, __file__, "--subject"])
    os.setgid(gid)
    os.setuid(uid)


def tidy():
    """Puts back what a subject was allowed to begin and not to end."""
    for parent, directories, files in os.walk(".", topdown=False):
        for name in directories + files:
            path = os.path.join(parent, name)
            if name.endswith("~"):
                os.rename(path, path[:-1])
            elif name.endswith("+") or name == "new-file":
                os.unlink(path)


def look():
    for path in PATHS:
        verdicts = [f"{action}={result(what)}" for action, what in tried(path)]
        print(f"  {path}: " + " ".join(verdicts))


def main():
    if sys.argv[1:] == ["--subject"]:
        look()
        return
    os.chdir(sys.argv[1])
    os.umask(0o022)
    os.chmod(".", 0o755)
    populate()
    for step, change in STEPS:
        change()
        for name, (uid, gid, groups, further) in SUBJECTS.items():
            print(f"{step} / {name}", flush=True)
            child = os.fork()
            if child == 0:
                become(uid, gid, groups, further)
                look()
                sys.stdout.flush()
                os._exit(0)
            status = os.waitpid(child, 0)[1]
            if status:
                sys.exit(f"{step} / {name}: ended with {status}")
            tidy()


if __name__ == "__main__":
    main()
