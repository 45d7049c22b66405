//! Blocks that are reserved for root: a user who is not root gets none of them, with the same
//! results as under the kernel's own driver.

use backstitch_tests::command::{run, tool};
use backstitch_tests::image::Image;
use backstitch_tests::mount::{Mounted, Options};
use backstitch_tests::require;
use backstitch_tests::requirements::missing;
use backstitch_tests::scratch::Scratch;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;

/// A user, and the user's only group.
#[derive(Clone, Copy, PartialEq, Eq)]
struct User(u32, u32);

const ROOT: User = User(0, 0);
const NOBODY: User = User(65534, 65534);

/// Fills a file system as far as its user may.
const FILL: &str = "dd if=/dev/zero of=big bs=64k status=none";

/// Fills what is left then, for want of a whole block or of the blocks that lead to it.
const SMALL: &str =
    "n=0; while head -c 512 /dev/zero > small$n; do n=$((n + 1)); done; test $n -lt 64";

/// What is done once a user has filled it: by whom, what, and whether it succeeds.
const THEN: &[(User, &str, bool)] = &[
    (NOBODY, SMALL, true),
    (NOBODY, FILL, false),
    (NOBODY, "test -s big", true),
    (NOBODY, "mkdir d", false),
    (NOBODY, ": > empty", true),
    (NOBODY, "echo x > empty", false),
    (NOBODY, "ln -s $(printf %0500d 0) long", false),
    (NOBODY, "mv empty full", true),
    // It has its block.
    (
        NOBODY,
        "dd if=/dev/zero of=big bs=4k count=1 conv=notrunc status=none",
        true,
    ),
    (ROOT, "mkdir r", true),
    (
        ROOT,
        "dd if=/dev/zero of=r/f bs=64k count=8 status=none",
        true,
    ),
    (NOBODY, "echo x > full", false),
    // As much as root has taken is still missing, and the rest is the user's.
    (NOBODY, "truncate -s -2M big", true),
    (
        NOBODY,
        "dd if=/dev/zero of=full bs=64k count=16 status=none",
        true,
    ),
    (
        NOBODY,
        "dd if=/dev/zero of=full bs=64k count=48 status=none",
        false,
    ),
];

/// Runs a line of the shell. Returns whether it succeeded.
fn does(user: User, dir: &Path, line: &str) -> bool {
    let mut shell = tool("sh");
    shell.args(["-c", line]).current_dir(dir);
    shell.uid(user.0).gid(user.1);
    run(&mut shell).code == Some(0)
}

/// Bytes that are free, and those of them that all users may take.
fn left(dir: &Path) -> (u64, u64) {
    let found = rustix::fs::statvfs(dir).expect("cannot ask for the free space");
    (
        found.f_bfree * found.f_frsize,
        found.f_bavail * found.f_frsize,
    )
}

/// Opens a mounted image up to all. Returns how many bytes are reserved.
fn open_up(dir: &Path) -> u64 {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).expect("cannot open it up");
    let (free, for_all) = left(dir);
    let reserve = free - for_all;
    assert!(reserve > 1 << 19, "only {reserve} bytes are reserved");
    reserve
}

/// Does everything in a mounted image. Once one file has filled it, less than `rest` bytes are left
/// for all users. Returns how long that file became.
fn fill(mounted: Mounted, rest: u64) -> u64 {
    let dir = mounted.path().to_owned();
    let reserve = open_up(&dir);
    assert!(!does(NOBODY, &dir, FILL), "a user filled it without end");
    let size = fs::metadata(dir.join("big")).expect("no file").len();
    let (_, for_all) = left(&dir);
    assert!(for_all < rest, "{for_all} bytes more were the user's");
    for (user, line, succeeds) in THEN {
        assert_eq!(does(*user, &dir, line), *succeeds, "{}: {line}", user.0);
        if *line == SMALL {
            assert_eq!(left(&dir), (reserve, 0), "after {line}");
        }
    }
    mounted.unmount();
    size
}

#[test]
fn of_ext2_as_the_kernel_keeps_them() {
    require!("backstitch", "fuse", "root", "mke2fs");
    let scratch = Scratch::new("reserve_ext2");
    let image = Image::mke2fs(&scratch, "ours.img", "32M", &["-b", "1024"]);
    let other = image.copy("kernels.img");
    let dir = scratch.dir("mnt");
    // A block, and the indirect blocks that lead to it.
    let rest = 4 * 1024;
    let ours = fill(Mounted::under_test(&image, &dir, &Options::default()), rest);
    image.expect_clean();
    if missing("loop").is_none() {
        // The kernel keeps some for the indirect blocks of what it has yet to write.
        let rest = 64 * 1024;
        let kernels = fill(Mounted::by_kernel(&other, &dir, ""), rest);
        assert!(
            ours.abs_diff(kernels) < rest,
            "{ours} bytes here, {kernels} in the kernel's ext2"
        );
    }
}

#[test]
fn of_ufs2_with_fragments() {
    require!("backstitch", "fuse", "root");
    let scratch = Scratch::new("reserve_ufs2");
    let arguments = ["-t", "ufs2", "-b", "4096", "-f", "512"];
    let image = Image::ours(&scratch, "disk.img", "32M", &arguments);
    let dir = scratch.dir("mnt");
    let mounted = Mounted::under_test(&image, &dir, &Options::default());
    fill(mounted, 4 * 4096);
    image.expect_clean();
}

/// The superblock may name a user and a group who may take them beside root.
#[test]
fn of_whom_the_superblock_names() {
    require!("backstitch", "fuse", "root", "mke2fs", "tune2fs");
    let scratch = Scratch::new("reserve_owner");
    let dir = scratch.dir("mnt");
    for (named, user, may) in [
        (["-u", "65534"], NOBODY, true),
        (["-u", "65534"], User(65533, 65534), false),
        (["-g", "65534"], User(65533, 65534), true),
        (["-g", "65534"], User(65534, 65533), false),
        (["-g", "0"], User(65534, 0), false),
    ] {
        let image = Image::mke2fs(&scratch, "disk.img", "16M", &[]);
        run(tool("tune2fs").args(named).arg(image.path())).expect_success();
        let mounted = Mounted::under_test(&image, &dir, &Options::default());
        let reserve = open_up(&dir);
        assert!(!does(user, &dir, FILL));
        let (free, _) = left(&dir);
        assert_eq!(
            free < reserve,
            may,
            "{named:?}, user {}: {free} left",
            user.0
        );
        mounted.unmount();
        image.expect_clean();
    }
}
