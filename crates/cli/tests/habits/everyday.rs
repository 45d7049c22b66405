//! The words and tools that everybody uses on a mount: each option of mount(8), fstab(5) and
//! ext4(5) has an answer; chattr(1), lsattr(1), fstrim(8), tune and swapping two names work; what a
//! mount is stands where people look.

use super::mounting::Mount;
use crate::support::{Bench, Done, can_mount, is_root, tool};
use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// Options that mount, one mount each.
const ACCEPTED: &[&str] = &[
    "defaults,auto,nofail,_netdev,x-systemd.automount,x-gvfs-show,comment=mine",
    "noauto,user,exec,suid,dev",
    "users,owner,group,nouser",
    "noatime,nodiratime",
    "relatime,diratime",
    "strictatime,lazytime,iversion,silent",
    "norelatime,nolazytime,noiversion,loud,nomand",
    "sync,dirsync",
    "async,errors=remount-ro",
    "acl,user_xattr",
    "barrier=1,commit=10",
    "barrier,nobarrier",
    "discard",
    "nodiscard",
    "context=\"system_u:object_r:tmp_t:s0:c1,c2\"",
    "uid=1000,gid=1000,umask=022",
    "offset=0,sizelimit=0",
    "ro,loop,noexec,nosuid,nodev",
    "nogrpid,bsddf,check=none,debug,noquota",
    "grpid",
    "bsdgroups",
    "nodelalloc,init_itable=0,stripe=32,journal_ioprio=3",
    "default_permissions,allow_other,kernel_cache,big_writes,max_read=131072",
];

/// Options that do not, and a word of what is said.
const REFUSED: &[(&str, &str)] = &[
    ("data=ordered", "no journal"),
    ("errors=continue", "remount-ro"),
    ("errors=panic", "remount-ro"),
    ("noacl", "noxattr"),
    ("nouser_xattr", "noxattr"),
    ("usrquota", "quotas"),
    ("grpquota", "quotas"),
    ("noload", "nojournal"),
    ("remount", "unmount it"),
    ("mand", "locks"),
    ("nosuchoption", "unknown option"),
    ("uid=me", "number"),
    ("umask=9", "octal"),
];

#[test]
fn every_option_of_everyday_life_has_an_answer() {
    let Some(mount) = Mount::new("") else { return };
    if !is_root("allow_other and the like") {
        return;
    }
    for options in ACCEPTED {
        let said = mount.bench.run(&["mount", "-o", options, "a.img", "mnt"]);
        assert_eq!(said.code, 0, "{options}: {}", said.stderr);
        assert_eq!(said.stderr, "", "{options}");
        let is_read_only = said.text().contains("read-only");
        assert_eq!(is_read_only, options.starts_with("ro,"), "{options}");
        mount.down();
    }
    for (options, word) in REFUSED {
        let said = mount.bench.run(&["mount", "-o", options, "a.img", "mnt"]);
        let said = said.refused(2).stderr;
        assert!(said.contains(word), "{options}: {said}");
    }
    mount.bench.check("a.img");
}

#[test]
fn what_is_freed_is_discarded_where_that_is_asked_for() {
    for (mkfs, options, is_discarded) in [
        ("-t ext2", "discard,expire=1", true),
        ("-t ext3 -J 4M", "discard,expire=1", true),
        ("-t ext2", "expire=1", false),
    ] {
        let Some(mount) = Mount::new(mkfs) else {
            return;
        };
        let blocks = || {
            std::fs::metadata(mount.bench.path("a.img"))
                .unwrap()
                .blocks()
        };
        mount.up(options);
        mount.bench.shell(
            "head -c 4000000 /dev/urandom > mnt/kept; head -c 8000000 /dev/urandom > mnt/gone; md5sum mnt/kept > sum",
        );
        mount.bench.line("sync mnt").good();
        let full = blocks();
        mount.bench.shell("rm mnt/gone");
        // While it is mounted: most of 8 MB, in units of 512 bytes.
        let has_shrunk = || blocks() + 14_000 < full;
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while is_discarded && !has_shrunk() {
            assert!(std::time::Instant::now() < deadline, "{mkfs} {options}");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        mount
            .bench
            .shell("head -c 3000000 /dev/urandom > mnt/last; rm mnt/last; md5sum -c sum > said");
        mount.down();
        assert_eq!(has_shrunk(), is_discarded, "{mkfs} {options}");
        mount.bench.check("a.img");
        mount.up("ro");
        mount.bench.shell("md5sum -c sum > said");
        mount.down();
    }
}

/// A line in a shell whose `PATH` begins with a directory that has the command as `backstitch`.
fn with_command_in_path(bench: &Bench, script: &str) -> Done {
    std::fs::create_dir_all(bench.path("bin")).unwrap();
    let link = bench.path("bin/backstitch");
    if !link.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_backstitch"), &link).unwrap();
    }
    bench.shell(&format!("PATH=$PWD/bin:$PATH; export PATH; {script}"))
}

#[test]
fn mount_knows_the_type_that_it_shows() {
    let Some(mount) = Mount::new("") else { return };
    // What mount(8) calls for `-t fuse.backstitch`, which findmnt(8) shows: it looks for the
    // command in PATH.
    let Some(helper) = tool("mount.fuse3", "fuse3") else {
        return;
    };
    if !is_root("mount(8)") {
        return;
    }
    with_command_in_path(
        &mount.bench,
        &format!(
            "{} $PWD/a.img $PWD/mnt -o noatime,nofail,x-mine -t fuse.backstitch",
            helper.display()
        ),
    );
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let dir = mount.path("").display().to_string();
    let line = mounts
        .lines()
        .find(|line| line.contains(dir.trim_end_matches('/')));
    let line = line.expect("it is mounted");
    assert!(line.contains(" fuse.backstitch rw,"), "{line}");
    assert!(line.contains("noatime"), "{line}");
    mount.down();
}

#[test]
fn the_usual_tools_work_on_a_mount() {
    let Some(mount) = Mount::new("-t ext3 -J 4M") else {
        return;
    };
    if !is_root("chattr and fstrim") {
        return;
    }
    mount.up("rw");
    let bench = &mount.bench;
    bench.shell("echo a > mnt/fixed; echo b > mnt/log; echo c > mnt/plain; mkdir mnt/d; echo d > mnt/d/other");
    if tool("chattr", "e2fsprogs").is_some() {
        bench.shell("chattr +i mnt/fixed; chattr +a mnt/log; chattr +d mnt/plain");
        let flags = bench.shell("lsattr mnt/fixed mnt/log mnt/plain").text();
        let flags: Vec<&str> = flags.lines().map(|line| &line[..22]).collect();
        for (line, flag) in flags.iter().zip(["i", "a", "d"]) {
            assert!(line.contains(flag), "{flags:?}");
        }
        let refused = bench.shell(
            "rm -f mnt/fixed 2>&1 || true; (echo x > mnt/log) 2>&1 || true; echo more >> mnt/log; cat mnt/fixed mnt/log",
        );
        let refused = refused.text();
        assert_eq!(refused.matches("not permitted").count(), 2, "{refused}");
        assert!(refused.ends_with("a\nb\nmore\n"), "{refused}");
        bench.shell("chattr -i mnt/fixed; chattr -a mnt/log");
    }
    if tool("fstrim", "util-linux").is_some() {
        let said = bench.shell("fstrim -v mnt").text();
        assert!(said.contains("trimmed"), "{said}");
    }
    // RENAME_EXCHANGE, also between directories, under a journal.
    let exchanged = rustix::fs::renameat_with(
        rustix::fs::CWD,
        mount.path("plain"),
        rustix::fs::CWD,
        mount.path("d/other"),
        rustix::fs::RenameFlags::EXCHANGE,
    );
    exchanged.unwrap();
    assert_eq!(bench.shell("cat mnt/plain mnt/d/other").text(), "d\nc\n");
    mount.down();
    bench.line("tune -L data -m 1 -U clear a.img").good();
    let info = bench.line("info --json a.img").good().json();
    assert_eq!(info["label"], "data");
    bench.check("a.img");
}

#[test]
fn a_mount_says_its_type_and_whether_it_can_be_written() {
    for (mkfs, name) in [("-t ext2", "ext2"), ("-t ext3 -J 4M", "ext3")] {
        let Some(mount) = Mount::new(mkfs) else {
            return;
        };
        let info = mount.bench.line("info a.img").good().text();
        assert!(
            info.contains(name) && !info.contains("not writable"),
            "{info}"
        );
        assert!(mount.up("rw").contains(&format!("{name}, ")));
        let stats = mount.bench.line("stats mnt").good().text();
        assert!(
            stats.contains(name) && stats.contains("ordering"),
            "{stats}"
        );
        mount.down();
        assert!(mount.up("ro").contains(&format!("{name}, read-only")));
        let stats = mount.bench.line("stats mnt").good().text();
        assert!(stats.contains("read-only"), "{stats}");
        assert!(
            !stats.contains("soft") && !stats.contains("journal="),
            "{stats}"
        );
        mount.down();
    }
}

#[test]
fn without_fuse_the_device_is_named() {
    if !can_mount() || !is_root("a mount namespace of its own") {
        return;
    }
    let bench = Bench::new();
    bench.image("a.img", "");
    let binary = env!("CARGO_BIN_EXE_backstitch");
    for hide in [
        "mount --bind /dev/null /dev/fuse",
        "mount -t tmpfs none /dev",
    ] {
        let mut command = Command::new("unshare");
        let script = format!("{hide}; mkdir -p mnt; exec '{binary}' mount a.img mnt");
        command.args(["-m", "sh", "-c", &script]);
        let done = Done::of(command.current_dir(bench.path("")).output().unwrap());
        if done.stderr.starts_with("unshare") {
            eprintln!("skipped: {}", done.stderr);
            return;
        }
        let said = done.refused(1).stderr;
        assert!(
            said.contains("/dev/fuse") && said.contains("modprobe fuse"),
            "{said}"
        );
    }
}
