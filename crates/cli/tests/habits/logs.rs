//! Logs on devices of their own: each is one file system's, and is lost to no other command.

use super::mounting::Mount;
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

#[test]
fn fsck_does_not_give_up_a_log_that_was_not_named() {
    let Some(mount) = crashed() else { return };
    let bench = &mount.bench;
    let before = std::fs::read(bench.path("a.img")).unwrap();
    for mode in ["-n", "-p", "-y"] {
        let refused = bench.line(&format!("fsck {mode} a.img")).refused(8).stderr;
        assert!(
            refused.contains("another device") && refused.contains("-j LOG"),
            "{mode}: {refused}"
        );
    }
    // Nor for another log.
    bench.shell("truncate -s 16M other.img");
    bench.line("wafs mkfs other.img").good();
    let other = bench.line("fsck -y -j other.img a.img").refused(8).stderr;
    assert!(other.contains("not the log"), "{other}");
    assert!(std::fs::read(bench.path("a.img")).unwrap() == before);
    bench.line("fsck -n -j log.img a.img").good();
    let repaired = bench.line("fsck -y --no-undo -j log.img a.img");
    assert_eq!(repaired.code, 1, "{}", repaired.stderr);
    assert_eq!(bench.line("cat a.img:/d/f").good().text(), "kept\n");
    comes_back(bench);
}

#[test]
fn a_log_that_was_given_up_is_not_dropped_in_silence() {
    let Some(mount) = crashed() else { return };
    let bench = &mount.bench;
    let given_up = bench.line("fsck -y --no-undo --give-up-log a.img");
    assert!(
        given_up.code == 1 && given_up.text().contains("gave the log up"),
        "{}{}",
        given_up.text(),
        given_up.stderr
    );
    bench.line("fsck -n a.img").good();
    let mounted = bench.line(&format!("mount {LOGGED}")).good();
    assert!(
        mounted.stderr.contains("dropped what was in the log"),
        "{}",
        mounted.stderr
    );
    bench.line("umount mnt").good();
    let again = bench.line(&format!("mount {LOGGED}")).good();
    assert!(!again.stderr.contains("dropped"), "{}", again.stderr);
    mount.down();
}

#[test]
fn mkfs_asks_for_the_journals_device_before_it_writes() {
    let bench = Bench::new();
    bench.image("journal.img", "-O journal_dev -s 8M");
    bench.image("data.img", "-t ext3 -J device=journal.img -b 4096");
    bench.image("victim.img", "");
    bench.shell("echo kept > f; $BACKSTITCH cp f victim.img:/");
    let images = ["victim.img", "journal.img"].map(|name| bench.path(name));
    let before = images.clone().map(|image| std::fs::read(image).unwrap());
    let line = "mkfs -F -t ext3 -J device=journal.img";
    let refused = bench.line(&format!("{line} victim.img")).refused(1).stderr;
    assert!(
        refused.contains("another file system's journal"),
        "{refused}"
    );
    bench.line(&format!("{line} -s 32M new.img")).refused(1);
    assert!(!bench.path("new.img").exists());
    let after = images.map(|image| std::fs::read(image).unwrap());
    assert!(after == before);
    assert_eq!(bench.line("cat victim.img:/f").good().text(), "kept\n");
}

#[test]
fn each_command_names_its_own_option_for_a_journal_elsewhere() {
    let Some(mount) = Mount::new("") else { return };
    let bench = &mount.bench;
    bench.image("journal.img", "-O journal_dev -s 8M");
    bench
        .line("mkfs -q -F -t ext3 -b 4096 -J device=journal.img a.img")
        .good();
    bench.shell("echo x > f");
    // While it is not needed, the image is read without it.
    bench.line("ls a.img").good();
    bench.line("cp -r a.img:/lost+found out").good();
    let written = bench.line("cp f a.img:/").refused(1).stderr;
    assert!(
        written.contains("journal is on another device") && written.contains("mount it with"),
        "{written}"
    );
    mount.up("journal_dev=journal.img");
    bench.shell("echo kept > mnt/f; sync mnt/f");
    mount.kill();
    mount.clear();
    for (line, code, option) in [
        ("ls a.img", 1, "fsck -p -j DEVICE a.img"),
        ("cp a.img:/f out", 1, "fsck -p -j DEVICE a.img"),
        ("journal dump a.img", 1, "-j DEVICE"),
        ("fsck -n a.img", 8, "-j LOG"),
        ("fsck -p a.img", 8, "-j LOG"),
        ("fsck -y a.img", 8, "-j LOG"),
        ("mount a.img mnt", 1, "-o journal_dev=DEVICE"),
        ("mount -o ro a.img mnt", 1, "-o journal_dev=DEVICE"),
    ] {
        let said = bench.line(line).refused(code).stderr;
        assert!(
            said.contains("its journal is on another device") && said.contains(option),
            "{line}: {said}"
        );
        let is_of_mount = line.starts_with("mount");
        assert!(
            said.contains("journal_dev=") == is_of_mount && !said.contains("kernel"),
            "{line}: {said}"
        );
    }
    assert_eq!(bench.line("fsck -p -j journal.img a.img").code, 1);
    assert_eq!(bench.line("cat a.img:/f").good().text(), "kept\n");
}
