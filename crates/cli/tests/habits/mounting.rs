//! The options that everybody passes to mount(8), the directory that is mounted on, and what a
//! mount says of itself.

use crate::support::{Bench, can_mount, is_root, tool};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

/// An image, mounted as `mnt`; unmounted at the end whatever happens.
pub(crate) struct Mount {
    pub(crate) bench: Bench,
}

impl Mount {
    /// `None` where mounts cannot be made here.
    pub(crate) fn new(mkfs: &str) -> Option<Mount> {
        if !can_mount() {
            return None;
        }
        let bench = Bench::new();
        bench.shell("mkdir mnt");
        bench.image("a.img", mkfs);
        Some(Mount { bench })
    }

    /// Mounts with options behind `-o`, and returns what was said.
    #[track_caller]
    pub(crate) fn up(&self, options: &str) -> String {
        let done = self.bench.line(&format!("mount -o {options} a.img mnt"));
        done.good().text()
    }

    #[track_caller]
    pub(crate) fn down(&self) {
        self.bench.line("umount mnt").good();
    }

    /// Kills the daemon, and clears its mount away.
    pub(crate) fn kill(&self) {
        let stats = self.bench.line("stats --json mnt").good().json();
        let pid = stats["pid"].as_i64().unwrap() as i32;
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        // It may still hold the image for a moment.
        while std::fs::metadata(format!("/proc/{pid}/root")).is_ok() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    pub(crate) fn clear(&self) {
        let cleared = self.bench.line("umount mnt").good();
        assert!(
            cleared.stderr.contains("daemon had died"),
            "{}",
            cleared.stderr
        );
        // A lazy unmount takes a moment on a busy machine.
        let is_dead = || std::fs::read_dir(self.path("")).is_err();
        while is_dead() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.bench.path("mnt").join(name)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // It is unmounted already unless the test failed.
        let _ = self.bench.line("umount --lazy mnt");
    }
}

#[test]
fn sync_and_dirsync_wait_for_the_disk() {
    let Some(mount) = Mount::new("") else { return };
    // The drive's cache is lost with the daemon.
    for (options, contents, names) in [
        ("volatile=1,expire=600,commit=600", false, false),
        ("volatile=1,expire=600,commit=600,dirsync", false, true),
        ("volatile=1,expire=600,commit=600,sync", true, true),
    ] {
        mount.up(options);
        let name = options.len().to_string();
        mount.bench.shell(&format!(
            "mkdir mnt/d{name}; echo text > mnt/f{name}; mv mnt/f{name} mnt/g{name}; ln mnt/g{name} mnt/h{name}
            echo more >> mnt/g{name}"
        ));
        mount.kill();
        mount.clear();
        mount.up("ro");
        for made in ["d", "g", "h"] {
            let path = mount.path(&format!("{made}{name}"));
            assert_eq!(path.exists(), names, "{options}: {made}");
        }
        if contents {
            let text = std::fs::read_to_string(mount.path(&format!("g{name}")));
            assert_eq!(text.unwrap(), "text\nmore\n", "{options}");
        }
        assert!(!mount.path(&format!("f{name}")).exists(), "{options}");
        mount.down();
    }
}

#[test]
fn a_file_with_the_sync_flag_waits_for_the_disk() {
    let Some(mount) = Mount::new("") else { return };
    if tool("chattr", "e2fsprogs").is_none() {
        return;
    }
    mount.up("volatile=1,expire=600");
    mount.bench.shell("echo a > mnt/flagged; echo a > mnt/plain; mkdir mnt/dir; chattr +S mnt/flagged; chattr +D mnt/dir");
    mount.bench.line("sync mnt").good();
    mount
        .bench
        .shell("echo b >> mnt/flagged; echo b >> mnt/plain; mkdir mnt/dir/sub; mkdir mnt/other");
    mount.kill();
    mount.clear();
    mount.up("ro");
    let read = |name: &str| std::fs::read_to_string(mount.path(name)).unwrap();
    assert_eq!(read("flagged"), "a\nb\n");
    assert_eq!(read("plain"), "a\n");
    assert!(mount.path("dir/sub").exists());
    assert!(!mount.path("other").exists());
    mount.down();
}

#[test]
fn ext4s_words_choose_the_journals_mode() {
    let Some(mount) = Mount::new("-t ext3") else {
        return;
    };
    for (word, mode) in [
        ("ordered", "journal=ordered"),
        ("writeback", "journal=writeback"),
        ("journal", "journal=full"),
    ] {
        let said = mount.up(&format!("data={word},errors=remount-ro,barrier=1,acl"));
        assert!(said.contains(mode) && said.contains("ext3"), "{said}");
        let stats = mount.bench.line("stats --json mnt").good().json();
        assert_eq!(
            (&stats["ordering"], &stats["layout"]),
            (&mode.into(), &"ext3".into())
        );
        mount.down();
    }
    let both = mount
        .bench
        .line("mount -o data=journal,ordering=journal=ordered a.img mnt");
    assert!(both.refused(2).stderr.contains("journal=full"));
    mount.bench.image("b.img", "");
    let none = mount.bench.line("mount -o data=ordered b.img mnt");
    let why = none.refused(2).stderr;
    assert!(
        why.contains("'data'") && why.contains("no journal"),
        "{why}"
    );
    let unknown = mount.bench.line("mount -o noload a.img mnt").refused(2);
    assert!(unknown.stderr.contains("'noload'"), "{}", unknown.stderr);
}

#[test]
fn one_owner_and_one_mask_for_all() {
    let Some(mount) = Mount::new("") else { return };
    if !is_root("who owns a file") {
        return;
    }
    mount.up("defaults");
    mount.bench.shell(
        "mkdir -m 750 mnt/dir; echo a > mnt/file; chmod 4755 mnt/file; chown 7:8 mnt/file; ln -s file mnt/link",
    );
    mount.down();
    mount.up("uid=1234,gid=567,fmask=137,dmask=027");
    let shown = |name: &str| {
        let metadata = std::fs::symlink_metadata(mount.path(name)).unwrap();
        (
            metadata.uid(),
            metadata.gid(),
            metadata.permissions().mode() & 0o7777,
        )
    };
    assert_eq!(shown("file"), (1234, 567, 0o640));
    assert_eq!(shown("dir"), (1234, 567, 0o750));
    assert_eq!(shown("link"), (1234, 567, 0o777));
    // The kernel checks what is shown: that user may write, another one may not.
    let as_user = |uid: u32, script: &str| {
        let mut shell = std::process::Command::new("setpriv");
        shell.args([
            "--reuid",
            &uid.to_string(),
            "--clear-groups",
            "sh",
            "-c",
            script,
        ]);
        shell
            .current_dir(mount.path(""))
            .stderr(std::process::Stdio::null());
        shell.status().map(|status| status.success())
    };
    if let Ok(could) = as_user(1234, "echo b >> file && echo c > dir/new") {
        // The scratch directory may keep an ordinary user out.
        let reachable = as_user(1234, "test -r file").unwrap_or(false);
        assert!(could || !reachable);
        assert!(!as_user(4321, "cat file").unwrap());
    }
    mount
        .bench
        .shell("echo d > mnt/made; chmod 600 mnt/made; chown 9:9 mnt/made");
    assert_eq!(shown("made"), (1234, 567, 0o640));
    mount.down();
    mount.up("defaults");
    assert_eq!(shown("file").0, 7);
    assert_eq!(shown("made"), (9, 9, 0o600), "what was asked for is stored");
    mount.down();
    mount.up("umask=0");
    assert_eq!((shown("file").2, shown("file").0), (0o777, 7));
    mount.down();
}

#[test]
fn new_files_have_their_directorys_group() {
    let Some(mount) = Mount::new("") else { return };
    if !is_root("who owns a file") {
        return;
    }
    mount.up("grpid");
    mount
        .bench
        .shell("mkdir mnt/d; chown 0:77 mnt/d; echo a > mnt/d/f; mkdir mnt/d/e");
    for name in ["d/f", "d/e"] {
        assert_eq!(std::fs::metadata(mount.path(name)).unwrap().gid(), 77);
    }
    mount.down();
}

#[test]
fn access_times_move_as_they_are_asked_to() {
    let Some(mount) = Mount::new("") else { return };
    mount.up("defaults");
    mount.bench.shell(
        "mkdir mnt/d; echo a > mnt/f; echo b > mnt/d/g
        touch -d '2001-01-01' mnt/f mnt/d; touch -a -d '2038-01-01' mnt/f mnt/d",
    );
    mount.down();
    let accessed = |name: &str| std::fs::metadata(mount.path(name)).unwrap().atime();
    // It lies in the future, so that only a strict rule moves it.
    let future = 2_000_000_000;
    for (options, of_file, of_directory) in [
        ("relatime", false, false),
        ("noatime", false, false),
        ("strictatime,nodiratime", true, false),
        ("strictatime", true, true),
    ] {
        mount.up(options);
        mount
            .bench
            .shell("cat mnt/f > /dev/null; ls mnt/d > /dev/null");
        mount.down();
        mount.up("ro");
        assert_eq!(accessed("f") < future, of_file, "{options}");
        assert_eq!(accessed("d") < future, of_directory, "{options}");
        mount.down();
        mount.up("noatime");
        mount.bench.shell("touch -a -d '2038-01-01' mnt/f mnt/d");
        mount.down();
    }
}

#[test]
fn a_directory_with_something_in_it_is_not_hidden_silently() {
    let Some(mount) = Mount::new("") else { return };
    mount.bench.shell("echo a > mnt/below");
    let refused = mount.bench.line("mount a.img mnt").refused(1);
    assert!(refused.stderr.contains("not empty") && refused.stderr.contains("nonempty"));
    mount.up("nonempty");
    assert!(!mount.path("below").exists());
    // What is mounted there is not empty either.
    mount.bench.image("b.img", "");
    mount.bench.line("mount b.img mnt").refused(1);
    mount.down();
    // mount(8) mounts over anything, and fstab relies on it.
    let helper = mount.bench.path("mount.backstitch");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_backstitch"), &helper).unwrap();
    let done = mount
        .bench
        .shell("./mount.backstitch a.img mnt -o rw,nodiratime,nofail");
    assert!(done.stderr.contains("not empty"), "{}", done.stderr);
    assert!(!mount.path("below").exists());
    mount.down();
}

#[test]
fn a_mount_whose_daemon_died_is_called_that() {
    let Some(mount) = Mount::new("") else { return };
    mount.up("defaults");
    mount.kill();
    let refused = mount.bench.line("mount a.img mnt").refused(1);
    assert!(
        refused.stderr.contains("daemon has died") && refused.stderr.contains("umount"),
        "{}",
        refused.stderr
    );
    mount.clear();
    mount.up("defaults");
    mount.down();
}

#[test]
fn too_little_address_space_is_said_before_anything_is_mounted() {
    let Some(mount) = Mount::new("") else { return };
    let binary = env!("CARGO_BIN_EXE_backstitch");
    let limited = |kibibytes: u32, options: &str| {
        mount.bench.shell(&format!(
            "ulimit -v {kibibytes}; {binary} mount -o {options} a.img mnt 2>&1 || true"
        ))
    };
    let said = limited(61_440, "rw").text();
    assert!(
        said.contains("address space") && said.contains("ulimit"),
        "{said}"
    );
    let said = limited(300_000, "cache=1G").text();
    assert!(said.contains("cache="), "{said}");
    // With enough, the cache is kept within it.
    let said = limited(300_000, "rw").text();
    assert!(said.contains("soft"), "{said}");
    mount.bench.shell(
        "head -c 200000000 /dev/zero > mnt/large || true
        for i in 1 2 3 4 5 6 7 8 9; do echo $i > mnt/$i || true; done",
    );
    mount.bench.line("stats mnt").good();
    mount.down();
}

#[test]
fn a_mount_says_what_it_is() {
    let Some(mount) = Mount::new("-t ext3") else {
        return;
    };
    let said = mount.up("ro");
    assert!(
        said.contains("ext3, read-only") && !said.contains("journal"),
        "{said}"
    );
    mount.down();
    assert!(mount.up("rw").contains("ext3, journal=ordered"));
    mount.down();
}

#[test]
fn without_a_root_directory_nothing_is_mounted() {
    let Some(mount) = Mount::new("-b 1024") else {
        return;
    };
    if tool("debugfs", "e2fsprogs").is_none() {
        return;
    }
    for damage in ["links_count 0", "mode 0100644", "mode 0"] {
        mount.bench.shell(&format!(
            "cp a.img b.img; PATH=$PATH:/sbin:/usr/sbin; debugfs -w -R 'sif <2> {damage}' b.img 2>/dev/null"
        ));
        let before = std::fs::read(mount.bench.path("b.img")).unwrap();
        let refused = mount.bench.line("mount b.img mnt").refused(1);
        assert!(
            refused.stderr.contains("root directory") || refused.stderr.contains("inode 2"),
            "{damage}: {}",
            refused.stderr
        );
        assert!(
            before == std::fs::read(mount.bench.path("b.img")).unwrap(),
            "{damage}: it was written to"
        );
    }
}
