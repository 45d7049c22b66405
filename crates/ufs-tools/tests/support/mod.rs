//! What the tests share: images of `makefs`, and foreign readers.

#![allow(dead_code)]

pub(crate) mod damages;
pub(crate) mod probe;

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Whether a tool is installed; says what is skipped where it is not.
pub(crate) fn have(tool: &str, package: &str) -> bool {
    let tried = Command::new(tool)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if tried.is_err() {
        eprintln!("skipped: {tool} is missing (Debian package {package})");
    }
    tried.is_ok()
}

/// Runs a tool.
pub(crate) fn run(tool: &str, arguments: &[&str]) -> Output {
    Command::new(tool)
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

/// How `makefs` makes an image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    pub(crate) version: u32,
    pub(crate) order: &'static str,
    pub(crate) block_bytes: u32,
    pub(crate) fragment_bytes: u32,
}

/// Both versions in both byte orders, with different numbers of fragments.
pub(crate) const VARIANTS: [Made; 8] = [
    made(1, "le", 8_192, 1_024),
    made(1, "be", 4_096, 512),
    made(2, "le", 8_192, 1_024),
    made(2, "be", 16_384, 2_048),
    made(1, "le", 16_384, 16_384),
    made(2, "le", 4_096, 4_096),
    made(2, "le", 32_768, 8_192),
    made(1, "be", 65_536, 8_192),
];

const fn made(version: u32, order: &'static str, block_bytes: u32, fragment_bytes: u32) -> Made {
    Made {
        version,
        order,
        block_bytes,
        fragment_bytes,
    }
}

/// A folder with a bit of everything.
pub(crate) fn source_tree(folder: &Path, many: usize) {
    use std::fs;
    use std::os::unix::fs::{FileExt, symlink};
    let join = |name: &str| folder.join(name);
    fs::create_dir_all(join("dir/sub/deep")).unwrap();
    fs::create_dir(join("empty")).unwrap();
    fs::create_dir(join("many")).unwrap();
    for index in 0..many {
        let name = format!("many/a rather long file nämé, number {index:04}");
        fs::write(join(&name), format!("{index}")).unwrap();
    }
    fs::write(join("dir/small"), "contents").unwrap();
    fs::write(join("dir/tail"), vec![b't'; 3_000]).unwrap();
    fs::write(join("dir/large"), vec![b'x'; 400_000]).unwrap();
    fs::write(join("dir/sub/larger"), vec![b'y'; 1_500_000]).unwrap();
    let sparse = fs::File::create(join("dir/sparse")).unwrap();
    sparse.set_len(5 << 20).unwrap();
    sparse.write_at(b"end", (5 << 20) - 3).unwrap();
    fs::hard_link(join("dir/small"), join("dir/sub/linked")).unwrap();
    symlink("short target", join("fast")).unwrap();
    symlink("long/".repeat(40), join("slow")).unwrap();
    run_ok("mkfifo", &[&*join("dir/pipe").to_string_lossy()]);
}

/// Makes an image with `makefs`; its bytes.
pub(crate) fn makefs(made: Made, size: &str, tree: &Path) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let options = format!(
        "version={},bsize={},fsize={}",
        made.version, made.block_bytes, made.fragment_bytes
    );
    run_ok(
        "makefs",
        &[
            "-t",
            "ffs",
            "-B",
            made.order,
            "-s",
            size,
            "-o",
            &options,
            &image.to_string_lossy(),
            &tree.to_string_lossy(),
        ],
    );
    std::fs::read(&image).unwrap()
}

/// A number from the environment.
pub(crate) fn environment(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value
        .and_then(|value| value.parse().ok())
        .unwrap_or(default)
}
