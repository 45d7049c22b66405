//! `backstitch snapshot` on a mount in use.

use crate::support::{Bench, can_mount, is_root};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command};
use std::time::Duration;

struct Mount {
    bench: Bench,
    writer: Option<Child>,
}

impl Mount {
    fn new(mkfs: &str, options: &str) -> Option<Mount> {
        if !can_mount() {
            return None;
        }
        let bench = Bench::new();
        bench.shell("mkdir mnt");
        bench.line(&format!("mkfs -q {mkfs} a.img")).good();
        bench.line(&format!("mount {options} a.img mnt")).good();
        Some(Mount {
            bench,
            writer: None,
        })
    }

    /// Lets a shell append numbers to a file, and make a directory with a file for each.
    fn start_writing(&mut self) {
        let script = "n=0; while :; do n=$((n + 1)); echo $n >> log; mkdir d$n; echo $n > d$n/f; \
                      [ $n -lt 20 ] || rm -r d$((n - 19)); done";
        let writer = Command::new("sh")
            .args(["-c", script])
            .current_dir(self.bench.path("mnt"))
            .spawn()
            .unwrap();
        self.writer = Some(writer);
        std::thread::sleep(Duration::from_millis(300));
    }

    fn stop_writing(&mut self) {
        if let Some(mut writer) = self.writer.take() {
            let _ = writer.kill();
            let _ = writer.wait();
            // What it had started is through in a moment.
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    fn last_line(&self) -> u64 {
        let text = self.bench.shell("tail -n 1 mnt/log").text();
        text.trim().parse().unwrap()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.stop_writing();
        let _ = self.bench.line("umount --lazy mnt");
    }
}

fn one_moment_under(options: &str) {
    one_moment_of("-s 64M", options);
}

fn one_moment_of(mkfs: &str, options: &str) {
    let Some(mut mount) = Mount::new(mkfs, options) else {
        return;
    };
    mount.start_writing();
    let before = mount.last_line();
    let report = mount
        .bench
        .line("snapshot --json mnt out.img")
        .good()
        .json();
    let after = mount.last_line();
    let allocated = report["allocated_bytes"].as_u64().unwrap();
    assert!(allocated < 32 << 20, "{allocated} bytes");
    mount.bench.check("out.img");
    let log = mount.bench.line("cat out.img:/log").good().text();
    let lines: Vec<u64> = log.lines().map(|line| line.parse().unwrap()).collect();
    let last = lines.len() as u64;
    assert_eq!(lines, (1..=last).collect::<Vec<_>>());
    assert!((before..=after).contains(&last), "{before} {last} {after}");
    for number in last.saturating_sub(15).max(1)..last {
        let file = mount.bench.line(&format!("cat out.img:/d{number}/f"));
        assert_eq!(file.good().text(), format!("{number}\n"));
    }
    // A second one only replaces the first where that is asked for.
    let refused = mount.bench.line("snapshot mnt out.img").refused(1);
    assert!(refused.stderr.contains("--force"));
    mount.bench.line("snapshot --force mnt out.img").good();
    mount.bench.check("out.img");
    let log = mount.bench.line("cat out.img:/log").good().text();
    assert!(
        log.lines().count() as u64 > last,
        "the second shows a later moment"
    );
    mount.stop_writing();
    mount.bench.line("umount mnt").good();
    mount.bench.check("a.img");
    let left = mount.bench.shell("ls -A").text();
    assert!(!left.contains("partial"), "{left}");
}

#[test]
fn it_is_one_moment_and_clean() {
    one_moment_under("--ordering soft");
}

#[test]
fn it_is_clean_under_the_other_orderings_too() {
    one_moment_under("--ordering sync");
    one_moment_under("--ordering async");
}

#[test]
fn it_is_clean_under_journals() {
    let journal = "-s 64M -t ext3 -J 4M";
    one_moment_of(journal, "");
    one_moment_of(journal, "--ordering journal=writeback");
    one_moment_of(journal, "--ordering journal=full");
}

#[test]
fn it_is_clean_where_the_journal_is_left_alone() {
    let journal = "-s 64M -t ext3 -J 4M";
    one_moment_of(journal, "-o nojournal");
    one_moment_of(journal, "-o nojournal --ordering sync");
    one_moment_of(journal, "-o nojournal --ordering async");
}

#[test]
fn a_copy_keeps_an_empty_journal_and_can_be_mounted() {
    let Some(mount) = Mount::new("-s 64M -t ext3 -J 4M", "") else {
        return;
    };
    let bench = &mount.bench;
    bench.shell("echo before > mnt/x; sync mnt/x; echo after > mnt/y");
    bench.line("snapshot mnt out.img").good();
    bench.line("umount mnt").good();
    let info = bench.line("info --json out.img").good().json();
    assert_eq!(
        (&info["layout"], &info["state"]),
        (&"ext3".into(), &"clean".into())
    );
    assert_eq!(info["journal"]["is_empty"], true);
    assert_eq!(info["journal"]["needs_recovery"], false);
    bench.line("mount out.img mnt").good();
    let seen = bench.shell("cat mnt/x mnt/y; echo more > mnt/z").text();
    bench.line("umount mnt").good();
    assert_eq!(seen, "before\nafter\n");
    bench.check("out.img");
}

#[test]
fn a_journal_on_another_device_is_refused_and_nothing_left() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    bench.shell("mkdir mnt");
    bench.line("mkfs -q -O journal_dev -s 8M j.img").good();
    bench
        .line("mkfs -q -t ext3 -J device=j.img -s 32M a.img")
        .good();
    bench.line("mount -o journal_dev=j.img a.img mnt").good();
    let mount = Mount {
        bench,
        writer: None,
    };
    mount.bench.shell("echo x > mnt/x");
    let refused = mount.bench.line("snapshot mnt out.img").refused(1);
    assert!(
        refused.stderr.contains("journal on another device"),
        "{}",
        refused.stderr
    );
    let left = mount.bench.shell("ls -A").text();
    assert_eq!(left, "a.img\nj.img\nmnt\n");
    mount.bench.line("umount mnt").good();
}

#[test]
fn a_large_image_with_little_in_it_stays_sparse() {
    let Some(mount) = Mount::new("-s 16G", "") else {
        return;
    };
    mount.bench.shell("head -c 5000000 /dev/urandom > mnt/x");
    mount.bench.line("snapshot mnt out.img").good();
    let seen = std::fs::metadata(mount.bench.path("out.img")).unwrap();
    assert_eq!(seen.len(), 16 << 30);
    assert!(seen.blocks() * 512 < 64 << 20, "{} sectors", seen.blocks());
    let copied = mount.bench.line("cat out.img:/x").good().stdout;
    assert!(copied == std::fs::read(mount.bench.path("mnt/x")).unwrap());
    mount.bench.check("out.img");
    mount.bench.line("umount mnt").good();
}

#[test]
fn what_makes_no_sense_is_refused() {
    let Some(mount) = Mount::new("-s 32M", "") else {
        return;
    };
    let refuse = |line: &str, why: &str| {
        let refused = mount.bench.line(line).refused(1);
        assert!(refused.stderr.contains(why), "{line}: {}", refused.stderr);
    };
    mount.bench.shell("mkdir plain mnt/sub");
    refuse(
        "snapshot plain out.img",
        "not the root of a backstitch mount",
    );
    refuse(
        "snapshot mnt/sub out.img",
        "not the root of a backstitch mount",
    );
    refuse("snapshot mnt mnt/out.img", "lies in the mount");
    refuse("snapshot mnt nowhere/out.img", "No such file");
    refuse("snapshot --force mnt a.img", "the mounted image itself");
    refuse("snapshot --force mnt plain", "not a regular file");
    assert!(!mount.bench.path("out.img").exists());
    mount.bench.line("umount mnt").good();
}

#[test]
fn a_full_disk_leaves_nothing_behind() {
    if !is_root("a small file system for the copy") {
        return;
    }
    let Some(mut mount) = Mount::new("-s 64M", "") else {
        return;
    };
    mount.bench.shell(
        "head -c 20000000 /dev/urandom > mnt/x; mkdir small; mount -t tmpfs -o size=4M tmpfs small",
    );
    mount.start_writing();
    let refused = mount.bench.line("snapshot mnt small/out.img");
    mount.stop_writing();
    let left = mount.bench.shell("ls -A small; umount small").text();
    let refused = refused.refused(1);
    assert!(
        refused.stderr.contains("No space left"),
        "{}",
        refused.stderr
    );
    assert_eq!(left, "");
    mount.bench.line("umount mnt").good();
    mount.bench.check("a.img");
}
