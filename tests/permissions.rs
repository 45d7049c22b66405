//! Who may do what (`permissions/verdicts.py`), on our mount and on the kernel's ext4: users in
//! several groups, access lists, root without capabilities, and root of a user namespace get the
//! same verdicts, and still do when modes, owners, lists and places have been changed by somebody
//! else while the kernel remembers what they were.

use backstitch_tests::command::{backstitch, run, run_within, tool};
use backstitch_tests::image::Image;
use backstitch_tests::mount::{Mounted, Options};
use backstitch_tests::require;
use backstitch_tests::scratch::Scratch;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

fn verdicts(dir: &Path) -> Vec<String> {
    let mut command = tool("python3");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("permissions/verdicts.py"));
    command.arg(dir);
    let outcome = run_within(&mut command, Duration::from_secs(120)).expect_success();
    outcome.text().lines().map(str::to_owned).collect()
}

/// Compares our mount's verdicts with those of the kernel.
fn are_the_kernels(name: &str, ours: impl FnOnce(&Scratch) -> Image) {
    let scratch = Scratch::new(name);
    let (ours, dir) = (ours(&scratch), scratch.dir("mnt"));
    let theirs = Image::mke2fs(&scratch, "theirs.img", "32M", &["-t", "ext4"]);
    let mounted = Mounted::by_kernel_as("ext4", &theirs, &dir, "acl,user_xattr");
    let expected = verdicts(&dir);
    mounted.unmount();
    let mounted = Mounted::under_test(&ours, &dir, &Options::default());
    let found = verdicts(&dir);
    mounted.unmount();

    assert_eq!(expected.len(), found.len());
    // A test that cannot fail would have one verdict only.
    let all = expected.join("\n");
    let count = |verdict: &str| all.matches(verdict).count();
    for verdict in ["=ok", "=EACCES", "=EPERM", "=ENOENT"] {
        assert!(count(verdict) > 100, "{verdict}: {}", count(verdict));
    }
    let mut subject = "";
    let mut different = Vec::new();
    for (theirs, ours) in expected.iter().zip(&found) {
        if !theirs.starts_with(' ') {
            subject = theirs;
        }
        if theirs != ours {
            different.push(format!(
                "{subject}\n    the kernel {theirs}\n    ours       {ours}"
            ));
        }
    }
    let (number, shown) = (
        different.len(),
        different[..different.len().min(20)].join("\n"),
    );
    assert!(
        different.is_empty(),
        "{number} lines of {}:\n{shown}",
        found.len()
    );
}

/// What the kernel asks for a line of Python that user 1001, of group 2001, runs `times` times in
/// a directory of root's that group 2001 may write to; `i` counts them.
fn requests(mounted: &Mounted, line: &str, times: u64) -> BTreeMap<String, u64> {
    let counts = || {
        let mut stats = backstitch();
        stats.args(["stats", "--json"]).arg(mounted.path());
        let counters = run(&mut stats).expect_success().json();
        let kinds = counters["requests"].as_object().expect("no counts").clone();
        kinds
            .into_iter()
            .map(|(kind, count)| (kind, count.as_u64().unwrap_or(0)))
    };
    let before: BTreeMap<String, u64> = counts().collect();
    let mut python = tool("python3");
    let who = "os.setgroups([]); os.setgid(2001); os.setuid(1001)";
    let body = format!("import os\n{who}\nfor i in range({times}):\n    {line}");
    python
        .args(["-I", "-c", &body])
        .current_dir(mounted.path().join("shared"));
    run(&mut python).expect_success();
    let grown = counts().map(|(kind, count)| {
        let more = count - before.get(&kind).copied().unwrap_or(0);
        (kind, more)
    });
    grown.collect()
}

/// What is wrong with the requests that operations take in the directory `shared`.
fn too_many_requests(mounted: &Mounted) -> Result<(), String> {
    const TIMES: u64 = 200;
    /// Asked once, by whatever comes first, and by `stats`.
    const ONCE: u64 = 20;
    /// Those that depend on the kernel's version, or on when what comes.
    const MAY_BE_FEWER: [&str; 4] = ["getattr", "getxattr", "forget", "batch_forget"];
    let make = "os.close(os.open(f'f{i}', os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))";
    let write = "fd = os.open(f'f{i}', os.O_WRONLY); os.write(fd, b'x'); os.close(fd)";
    // To make a name is a question whether it is there, too.
    let made = [("lookup", 1), ("mknod", 1), ("getattr", 1), ("getxattr", 1)];
    // A directory's attributes and its list are asked for after each change of it. Files are forgotten
    // several at once where that comes faster than it is taken.
    let removed = [
        ("unlink", 1),
        ("getattr", 1),
        ("getxattr", 2),
        ("forget", 1),
        ("batch_forget", 1),
    ];
    for (line, kinds) in [
        (make, &made[..]),
        // A file's capabilities are asked for before it is written.
        (write, &[("write", 1), ("getxattr", 1)]),
        ("os.stat(f'f{i}')", &[("getattr", 1)]),
        ("os.stat(f'f{i}')", &[]),
        ("os.chmod(f'f{i}', 0o640)", &[("setattr", 1)]),
        ("os.unlink(f'f{i}')", &removed),
    ] {
        let found = requests(mounted, line, TIMES);
        for (kind, count) in found.iter().filter(|(kind, _)| *kind != "total") {
            let wanted = kinds.iter().find(|(name, _)| name == kind);
            if *count > wanted.map_or(0, |(_, each)| each * TIMES) + ONCE {
                return Err(format!("{line}: {count} times {kind}: {found:?}"));
            }
        }
        for (kind, each) in kinds {
            let count = found.get(*kind).copied().unwrap_or(0);
            if !MAY_BE_FEWER.contains(kind) && count + ONCE < each * TIMES {
                return Err(format!("{line}: only {count} times {kind}: {found:?}"));
            }
        }
    }
    Ok(())
}

/// A request is most of what an operation costs, so none may come back that once was saved. Where
/// somebody else makes the kernel forget files meanwhile, it asks for them again: then it is tried
/// once more.
#[test]
fn operations_take_no_more_requests_than_they_must() {
    require!("backstitch", "root", "fuse", "mke2fs", "python3");
    let scratch = Scratch::new("permissions_requests");
    let dir = scratch.dir("mnt");
    let tried = || {
        let image = Image::mke2fs(&scratch, "disk.img", "32M", &[]);
        let mounted = Mounted::under_test(&image, &dir, &Options::default());
        let shared = dir.join("shared");
        std::fs::create_dir(&shared).expect("cannot make a directory");
        std::os::unix::fs::chown(&shared, Some(0), Some(2001)).expect("cannot give it away");
        std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o775)).expect("chmod");
        let found = too_many_requests(&mounted);
        mounted.unmount();
        std::fs::remove_file(image.path()).expect("cannot remove the image");
        found
    };
    let results: Vec<_> = (0..5).map(|_| tried()).take_while(Result::is_err).collect();
    assert!(results.len() < 5, "{results:?}");
}

#[test]
fn on_ext2_as_on_the_kernels_ext4() {
    require!("backstitch", "root", "loop", "fuse", "mke2fs", "python3");
    are_the_kernels("permissions_ext2", |scratch| {
        Image::mke2fs(scratch, "ours.img", "32M", &[])
    });
}
