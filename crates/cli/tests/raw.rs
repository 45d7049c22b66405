//! A volume as one file: blocks are where they are written, what a file system has is refused, and
//! writes of blocks join patchgroups.

use crate::support::{Bench, Done, can_mount};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

struct Mount<'b>(&'b Bench);

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let _ = self.0.line("umount --lazy mnt");
    }
}

fn volume(bench: &Bench) -> File {
    let path = bench.path("mnt/volume");
    File::options().read(true).write(true).open(path).unwrap()
}

#[test]
fn blocks_are_where_they_are_written() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    // A whole number of sectors, and of nothing larger.
    let size_bytes = (1 << 20) + 512;
    std::fs::write(bench.path("disk"), vec![7; size_bytes]).unwrap();
    bench.shell("mkdir mnt");
    let mount = Mount(&bench);
    bench.line("mount -o raw disk mnt").good();
    let file = volume(&bench);
    assert_eq!(file.metadata().unwrap().size(), size_bytes as u64);
    file.write_all_at(&[1; 1000], 5000).unwrap();
    file.write_all_at(&[2; 512], size_bytes as u64 - 512)
        .unwrap();
    assert_eq!(
        file.write_at(&[3; 1024], size_bytes as u64 - 100).unwrap(),
        100
    );
    file.sync_all().unwrap();
    let mut expected = vec![7; size_bytes];
    expected[5000..6000].fill(1);
    expected[size_bytes - 512..].fill(2);
    expected[size_bytes - 100..].fill(3);
    assert!(
        std::fs::read(bench.path("disk")).unwrap() == expected,
        "after fsync"
    );
    assert!(std::fs::read(bench.path("mnt/volume")).unwrap() == expected);

    let errno = |result: std::io::Result<()>| result.unwrap_err().raw_os_error().unwrap();
    assert_eq!(
        errno(file.write_all_at(&[1], size_bytes as u64)),
        libc::ENOSPC
    );
    assert_eq!(errno(file.set_len(0)), libc::EPERM);
    assert_eq!(
        errno(std::fs::remove_file(bench.path("mnt/volume"))),
        libc::EPERM
    );
    assert_eq!(
        errno(std::fs::write(bench.path("mnt/other"), "x")),
        libc::EPERM
    );
    drop(file);
    bench.line("snapshot mnt copy").good();
    assert!(std::fs::read(bench.path("copy")).unwrap() == expected);
    bench.line("umount mnt").good();
    drop(mount);
    assert!(
        std::fs::read(bench.path("disk")).unwrap() == expected,
        "nothing of ours is on it"
    );
}

#[test]
fn what_file_systems_have_is_refused() {
    let bench = Bench::new();
    bench.image("fs", "-t ext3");
    bench.shell("mkdir mnt; : > empty");
    for line in [
        "mount -o raw,stack=x.toml fs mnt",
        "mount -o raw,nojournal fs mnt",
        "mount -o raw --ordering journal=ordered fs mnt",
        "crash app --raw --ordering journal=full --run true --check true",
    ] {
        bench.line(line).refused(2);
    }
    bench.line("mount -f -o raw empty mnt").refused(1);
}

/// A program that keeps records on a volume (`docs/examples/order/blocks.py`), and what a power cut
/// leaves of them.
fn explore(bench: &Bench, more: &[&str]) -> Done {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/order");
    let script = examples.canonicalize().unwrap().join("blocks.py");
    let words = |what: &str| format!("python3 -S {} {what}", script.display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_backstitch"));
    command
        .args(["crash", "app", "--json", "--states", "24", "--trace", "t"])
        .args(["--check", &words("check")])
        .current_dir(bench.path("."))
        .env(
            "PYTHONPATH",
            examples.join("../../../crates/patchgroup/python"),
        )
        .env("PYTHONDONTWRITEBYTECODE", "1");
    if more.is_empty() {
        command.args(["--raw", "--size", "256K", "--run", &words("run 5")]);
    }
    Done::of(command.args(more).output().unwrap())
}

#[test]
fn writes_of_blocks_keep_the_order_of_their_groups() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let report = explore(&bench, &[]).good().json();
    let all = report["exhaustive"] == true;
    assert!(all || report["states"].as_u64() >= Some(24), "{report}");
    let lost = explore(&bench, &["--without-groups"]);
    assert_eq!(
        lost.code, 1,
        "nothing is lost without groups: {}",
        lost.stderr
    );
    let text = lost.text();
    assert!(
        text.contains("is not there") && text.contains("of the volume"),
        "{text}"
    );
}
