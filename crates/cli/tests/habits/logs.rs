//! Logs on devices of their own: each is one file system's, and is lost to no other command.

use crate::mounting::Mount;
use crate::support::Bench;

const LOGGED: &str = "--ordering lffs-wafs=2async -o log_device=log.img a.img mnt";

/// An image with files that only its log on another device has; the mount was killed.
fn crashed() -> Option<Mount> {
    let mount = Mount::new("")?;
    let bench = &mount.bench;
    bench.shell("truncate -s 16M log.img");
    bench.line("wafs mkfs log.img").good();
    bench.line(&format!("mount {LOGGED}")).good();
    bench.shell("mkdir mnt/d; echo kept > mnt/d/f; sync mnt/d/f");
    mount.kill();
    mount.clear();
    Some(mount)
}

/// The image mounts with its log, and has what was in it.
#[track_caller]
fn comes_back(bench: &Bench) {
    bench.line(&format!("mount {LOGGED}")).good();
    assert_eq!(bench.shell("cat mnt/d/f").text(), "kept\n");
    bench.line("umount mnt").good();
    bench.check("a.img");
}

#[test]
fn programs_do_not_write_into_a_file_systems_log() {
    let Some(mount) = crashed() else { return };
    let bench = &mount.bench;
    let before = std::fs::read(bench.path("log.img")).unwrap();
    for line in [
        "wafs append log.img hello",
        "wafs append --overwrite log.img hello",
        "wafs checkpoint log.img end",
        "wafs mkfs log.img",
    ] {
        let refused = bench.line(line).refused(1).stderr;
        let is_said = refused.contains("file system's log") || refused.contains("it holds");
        assert!(is_said && refused.contains("--force"), "{line}: {refused}");
    }
    // It may be looked at.
    for line in ["wafs tail log.img", "wafs check log.img"] {
        bench.line(line).good();
    }
    let info = bench.line("wafs info --json log.img").good().json();
    assert_eq!(info["owner"], "a file system");
    assert!(std::fs::read(bench.path("log.img")).unwrap() == before);
    comes_back(bench);
    // Nothing is in it now, and it is the file system's still.
    bench.line("wafs append log.img hello").refused(1);
    comes_back(bench);
    bench.line("wafs mkfs --force log.img").good();
    bench.line("wafs append log.img hello").good();
}
