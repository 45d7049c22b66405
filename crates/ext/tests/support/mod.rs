//! What the tests with foreign tools share.

#![allow(dead_code)]

use backstitch_device::{DeviceError, FileDevice, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Whether a tool is installed; says what is skipped where it is not.
pub(crate) fn have(tool: &str, package: &str) -> bool {
    let found = tool_path(tool).is_some();
    if !found {
        eprintln!("skipped: {tool} is missing (Debian package {package})");
    }
    found
}

/// Where a tool of e2fsprogs is: they live in `sbin`, which is not on everybody's path.
fn tool_path(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(tool))
        .find(|file| file.is_file())
}

/// Runs a tool.
pub(crate) fn run(tool: &str, arguments: &[&str]) -> Output {
    let path = tool_path(tool).unwrap_or_else(|| PathBuf::from(tool));
    Command::new(path)
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{tool}: {error}"))
}

/// Runs a tool that must succeed; gives its standard output.
pub(crate) fn run_ok(tool: &str, arguments: &[&str]) -> String {
    let output = run(tool, arguments);
    assert!(
        output.status.success(),
        "{tool} {arguments:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What `e2fsck -fn` says: its exit status and its words.
pub(crate) fn e2fsck(image: &Path) -> (i32, String) {
    let output = run("e2fsck", &["-fn", &image.to_string_lossy()]);
    let words = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap_or(-1), words)
}

/// A sparse file of this size.
pub(crate) fn sparse_file(path: &Path, size_bytes: u64) {
    let file = std::fs::File::create(path).unwrap();
    file.set_len(size_bytes).unwrap();
}

/// Runs debugfs commands on an image, writing.
pub(crate) fn debugfs(image: &Path, commands: &[&str]) -> String {
    let script = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(script.path(), commands.join("\n") + "\n").unwrap();
    let output = run(
        "debugfs",
        &[
            "-w",
            "-f",
            &script.path().to_string_lossy(),
            &image.to_string_lossy(),
        ],
    );
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Opens an image. Tests run in threads, and a tool that another one starts holds a copy of our files, and with it their locks, for
/// the moment between fork and exec: so a lock that is held is tried again.
pub(crate) fn open(path: &Path, read_only: bool) -> FileDevice {
    for _ in 0..500 {
        match FileDevice::open(
            path,
            OpenOptions {
                read_only,
                ..OpenOptions::default()
            },
        ) {
            Err(DeviceError::Busy { .. }) => std::thread::sleep(Duration::from_millis(10)),
            other => return other.unwrap(),
        }
    }
    panic!("{} stays locked", path.display());
}
