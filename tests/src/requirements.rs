//! What a test needs from the machine.

use crate::io_uring::Switch;
use crate::mount::Backend;
use std::path::{Path, PathBuf};

/// The Debian packages, and the tools from crates.io, with the commands that the tests run.
const PACKAGES: [(&str, &str); 22] = [
    ("mke2fs", "the Debian package e2fsprogs"),
    ("e2fsck", "the Debian package e2fsprogs"),
    ("debugfs", "the Debian package e2fsprogs"),
    ("dumpe2fs", "the Debian package e2fsprogs"),
    ("fuse2fs", "the Debian package fuse2fs"),
    ("fusermount3", "the Debian package fuse3"),
    ("qemu-io", "the Debian package qemu-utils"),
    ("cc", "the Debian package gcc"),
    ("chattr", "the Debian package e2fsprogs"),
    ("setpriv", "the Debian package util-linux"),
    ("prlimit", "the Debian package util-linux"),
    ("python3", "the Debian package python3"),
    ("setfattr", "the Debian package attr"),
    ("setfacl", "the Debian package acl"),
    ("sqlite3", "the Debian package sqlite3"),
    ("postmark", "the Debian package postmark"),
    ("fls", "the Debian package sleuthkit"),
    ("makefs", "the Debian package makefs"),
    ("linux.uml", "the Debian package user-mode-linux"),
    ("insmod", "the Debian package kmod"),
    ("fsx", "`cargo install fsx`"),
    ("pjdfstest", "`cargo install pjdfstest`"),
];

/// Why `what` is not available here, if it is not.
pub fn missing(what: &str) -> Option<String> {
    match what {
        "root" => (!rustix::process::geteuid().is_root()).then(|| "it must run as root".to_owned()),
        "fuse" if Backend::from_env() == Backend::Kernel => None,
        "fuse" => (!Path::new("/dev/fuse").exists())
            .then(|| "/dev/fuse is missing (the Debian package fuse3, and the kernel)".to_owned()),
        "loop" => missing("root").or_else(|| {
            let there = Path::new("/dev/loop-control").exists() && kernel_knows_ext2();
            (!there).then(|| "the kernel has no loop devices or no ext2".to_owned())
        }),
        "io_uring" => (!Switch::exists()).then(|| {
            "the kernel is older than Linux 6.14, where FUSE over io_uring came".to_owned()
        }),
        "backstitch" => match Backend::from_env() {
            Backend::Backstitch => None,
            other => Some(format!("BACKEND={other:?} has no such command")),
        },
        tool => find(tool).is_none().then(|| {
            let package = PACKAGES
                .iter()
                .find(|(name, _)| *name == tool)
                .map(|(_, from)| *from);
            format!("{tool} is missing: install {}", package.unwrap_or(tool))
        }),
    }
}

/// Says that a test is skipped.
///
/// # Panics
///
/// With `STRICT=1` in the environment, where nothing may be skipped.
pub fn skip(test: &str, reason: &str) {
    // The test harness names its threads after the tests, with their modules.
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("?");
    let name = name.rsplit("::").next().unwrap_or(name);
    let text = format!("SKIPPED {test}::{name}: {reason}");
    assert!(
        std::env::var_os("STRICT").is_none_or(|value| value != "1"),
        "{text}"
    );
    crate::say(&text);
}

/// The path of a command, even if it is not in an ordinary user's `PATH`.
pub fn find(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let home = std::env::var_os("HOME").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .chain([Path::new(&home).join(".cargo/bin")])
        .map(|dir| dir.join(tool))
        .find(|path| path.is_file())
}

fn kernel_knows_ext2() -> bool {
    std::fs::read_to_string("/proc/filesystems")
        .is_ok_and(|list| list.lines().any(|line| line.ends_with("\text2")))
}
