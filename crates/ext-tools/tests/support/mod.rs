//! What the tests with foreign tools share.

#![allow(dead_code)]

pub(crate) mod cutting;
pub(crate) mod damages;
pub(crate) mod probe;
pub(crate) mod random;

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

/// Opens an image. Tests run in threads, and a tool that another one starts holds a copy of our
/// files, and with it their locks, for the moment between fork and exec: so a lock that is held is
/// tried again.
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

/// A folder with a bit of everything, and `many` files in one directory: for `mke2fs -d`.
pub(crate) fn source_tree(folder: &Path, many: usize) {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    let join = |name: &str| folder.join(name);
    fs::create_dir_all(join("dir/sub/deep")).unwrap();
    fs::create_dir(join("empty")).unwrap();
    fs::create_dir(join("many")).unwrap();
    for index in 0..many {
        let name = format!("many/a rather long file nämé, number {index:04}");
        let contents = if index < 400 {
            format!("{index}")
        } else {
            String::new()
        };
        fs::write(join(&name), contents).unwrap();
    }
    fs::write(join("dir/small"), "contents").unwrap();
    fs::write(join("dir/large"), vec![b'x'; 400_000]).unwrap();
    fs::write(join("dir/sub/double"), vec![b'y'; 1 << 20]).unwrap();
    let sparse = fs::File::create(join("dir/sparse")).unwrap();
    sparse.set_len(80 << 20).unwrap();
    std::os::unix::fs::FileExt::write_at(&sparse, b"end", (80 << 20) - 3).unwrap();
    fs::hard_link(join("dir/small"), join("dir/sub/linked")).unwrap();
    symlink("short target", join("fast")).unwrap();
    symlink("long/".repeat(20), join("slow")).unwrap();
    fs::set_permissions(join("dir/large"), fs::Permissions::from_mode(0o4755)).unwrap();
}

/// Makes an image with mke2fs, filled from a folder, with attributes, devices and a hashed
/// directory.
pub(crate) fn filled_image(image: &Path, size_bytes: u64, arguments: &[&str], tree: &Path) {
    sparse_file(image, size_bytes);
    let image_name = image.to_string_lossy();
    let tree = tree.to_string_lossy();
    let mut all = vec![
        "-q",
        "-F",
        "-t",
        "ext2",
        "-E",
        "root_owner=0:0",
        "-d",
        &tree,
    ];
    all.extend(arguments);
    all.push(&image_name);
    run_ok("mke2fs", &all);
    debugfs(
        image,
        &[
            "cd dir",
            "mknod pipe p",
            "mknod tty c 5 1",
            "mknod disk b 259 300",
            "ea_set small user.one value",
            "ea_set small user.two another-value",
            "ea_set large user.big 0123456789012345678901234567890123456789012345678901234567890123456789\
             0123456789012345678901234567890123456789012345678901234567890123456789",
        ],
    );
    // Makes an index for the directory that is large enough.
    let output = run("e2fsck", &["-fyD", &image_name]);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    assert_eq!(e2fsck(image).0, 0);
}

/// A number from the environment.
pub(crate) fn environment(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|value| value.parse().ok())
        .unwrap_or(default)
}
