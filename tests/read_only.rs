//! What must not change an image does not change a byte of it; images that must not be trusted are
//! not written; and an image cannot be mounted twice.

use backstitch_tests::command::{Outcome, backstitch, our_fsck, run, tool};
use backstitch_tests::image::Image;
use backstitch_tests::mount::{Backend, Mounted, Options};
use backstitch_tests::scratch::{Scratch, mount_points_below, umount_ours};
use backstitch_tests::tree::Tree;
use backstitch_tests::{require, say};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// An image with something in it.
fn filled(scratch: &Scratch) -> Image {
    let image = Image::mke2fs(scratch, "disk.img", "64M", &[]);
    let dir = scratch.dir("filling");
    let mounted = Mounted::under_test(&image, &dir, &Options::default());
    for number in 0..50 {
        let place = dir.join(format!("d{}", number % 5));
        fs::create_dir_all(&place).expect("cannot make a directory");
        fs::write(place.join(number.to_string()), vec![number; 3000]).expect("cannot write");
    }
    mounted.unmount();
    image
}

#[track_caller]
fn expect_unchanged(image: &Image, before: &[u8], what: &str) {
    let after = image.bytes();
    let changed = before.iter().zip(&after).position(|(x, y)| x != y);
    assert_eq!(changed, None, "{what} changed the image at this byte");
    assert_eq!(before.len(), after.len(), "{what} changed the image's size");
}

/// Asserts that everything that changes a file system is refused with EROFS.
#[track_caller]
fn expect_read_only(dir: &Path) {
    let (file, new) = (dir.join("d1/1"), dir.join("new"));
    let results = [
        fs::write(&new, "x"),
        fs::create_dir(&new),
        fs::remove_file(&file),
        fs::rename(&file, &new),
        fs::hard_link(&file, &new),
        fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)),
        fs::File::options().append(true).open(&file).map(drop),
    ];
    for (number, result) in results.into_iter().enumerate() {
        let code = result
            .expect_err("changed a read-only file system")
            .raw_os_error();
        assert_eq!(
            code,
            Some(30),
            "change {number} was refused otherwise than with EROFS"
        );
    }
}

#[test]
fn a_read_only_mount_changes_nothing() {
    require!("fuse", "root", "mke2fs");
    let scratch = Scratch::new("read_only");
    let image = filled(&scratch);
    let before = image.bytes();
    let dir = scratch.dir("mnt");
    let mounted = Mounted::under_test(&image, &dir, &Options::with("ro"));
    assert_eq!(
        Tree::capture(&dir).names().count(),
        56,
        "names in the image"
    );
    expect_read_only(&dir);
    mounted.unmount();
    expect_unchanged(&image, &before, "a read-only mount");
}

/// Options as mount(8) has them.
#[test]
fn mount_takes_what_mount_8_takes() {
    require!("backstitch", "fuse", "root", "mke2fs");
    let scratch = Scratch::new("as_mount_8");
    let image = filled(&scratch);
    let before = image.bytes();
    let dir = scratch.dir("mnt");
    let mount = |options: &[&str]| {
        run(backstitch()
            .arg("mount")
            .args(options)
            .args([image.path(), &dir]))
    };
    for (options, why) in [
        (&["-t", "ufs2"][..], "it holds ext2, not ufs2"),
        (&["-t", "ext9"], "unknown type 'ext9'"),
        (&["-r", "-w"], "cannot be used with"),
    ] {
        let outcome = mount(options);
        assert!(outcome.stderr.contains(why), "{}", outcome.describe());
        assert!(mount_points_below(&dir).is_empty(), "{options:?}");
    }
    for options in [&["-r", "-t", "ext3"][..], &["-r", "-t", "auto"]] {
        mount(options).expect_success();
        expect_read_only(&dir);
        umount_ours(&dir);
        expect_unchanged(&image, &before, "mount -r");
    }
    mount(&["-w"]).expect_success();
    fs::write(dir.join("new"), "x").expect("cannot write");
    umount_ours(&dir);
}

#[test]
fn looking_into_an_image_changes_nothing() {
    require!("backstitch", "fuse", "root", "mke2fs");
    let scratch = Scratch::new("looking");
    let image = filled(&scratch);
    let before = image.bytes();
    let place = |name: &str| format!("{}:/{name}", image.path().display());
    let runs: [&[&str]; 5] = [
        &["ls", &place("d1")],
        &["cat", &place("d1/1")],
        &["stat", &place("d1/1")],
        &["find", &place("")],
        &["info", &image.path().display().to_string()],
    ];
    for arguments in runs {
        run(backstitch().args(arguments)).expect_success();
        expect_unchanged(&image, &before, &arguments.join(" "));
    }
    our_fsck(image.path()).map(Outcome::expect_success);
    expect_unchanged(&image, &before, "fsck -n");
}

/// Asserts the message of an error: one line `backstitch: WHAT: WHERE: WHY`, and perhaps a hint
/// after it.
#[track_caller]
fn expect_error(outcome: &Outcome, code: i32, why: &str) {
    assert_eq!(outcome.code, Some(code), "{}", outcome.describe());
    let first = outcome.stderr.lines().next().unwrap_or_default();
    let good = first.starts_with("backstitch: ") && first.contains(why);
    assert!(good, "no clear error about {why:?}: {}", outcome.describe());
    assert!(
        !outcome.stderr.contains("panicked"),
        "{}",
        outcome.describe()
    );
}

#[test]
fn a_failed_mount_changes_nothing() {
    require!("backstitch", "fuse", "root", "mke2fs");
    let scratch = Scratch::new("failed_mount");
    let image = filled(&scratch);
    let before = image.bytes();
    let (dir, path) = (scratch.dir("mnt"), image.path());
    let missing = scratch.path("no-such-directory");
    let attempts: [(&str, i32, Vec<&std::ffi::OsStr>); 4] = [
        (
            "no-such-directory",
            1,
            vec![path.as_ref(), missing.as_ref()],
        ),
        ("irectory", 1, vec![path.as_ref(), path.as_ref()]),
        (
            "",
            2,
            vec![
                "--ordering".as_ref(),
                "no-such".as_ref(),
                path.as_ref(),
                dir.as_ref(),
            ],
        ),
        (
            "no-such",
            2,
            vec![
                "-o".as_ref(),
                "no-such".as_ref(),
                path.as_ref(),
                dir.as_ref(),
            ],
        ),
    ];
    for (why, code, arguments) in attempts {
        let outcome = run(backstitch().arg("mount").args(&arguments));
        if why.is_empty() {
            assert_eq!(outcome.code, Some(code), "{}", outcome.describe());
        } else {
            expect_error(&outcome, code, why);
        }
        expect_unchanged(&image, &before, &outcome.command);
    }
    assert!(mount_points_below(&dir).is_empty());
}

#[test]
fn an_image_that_cannot_be_written_is_mounted_read_only() {
    require!("backstitch", "fuse", "root", "mke2fs", "debugfs");
    let scratch = Scratch::new("unwritable");
    let image = filled(&scratch);
    image.debugfs(&["feature huge_file"]);
    let before = image.bytes();
    let dir = scratch.dir("mnt");
    let outcome = run(backstitch()
        .args(["mount", "--json"])
        .arg(image.path())
        .arg(&dir));
    let outcome = outcome.expect_success();
    assert!(
        outcome.stderr.contains("huge_file"),
        "names no feature: {}",
        outcome.describe()
    );
    expect_read_only(&dir);
    umount_ours(&dir);
    expect_unchanged(&image, &before, "mounting an image that cannot be written");

    run(tool("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-O", "inline_data"])
        .arg(image.path()))
    .expect_success();
    let before = image.bytes();
    let outcome = run(backstitch().arg("mount").arg(image.path()).arg(&dir));
    expect_error(&outcome, 1, "inline_data");
    expect_unchanged(&image, &before, "mounting an image that cannot be read");
}

#[test]
fn what_the_kernel_left_dirty_is_not_trusted() {
    require!("backstitch", "fuse", "loop", "mke2fs");
    let scratch = Scratch::new("dirty_kernel");
    let image = filled(&scratch);
    let dir = scratch.dir("mnt");
    let mounted = Mounted::by_kernel(&image, &dir, "");
    fs::write(dir.join("d1/written-by-the-kernel"), "x").expect("the kernel cannot write");
    let root = fs::File::open(&dir).expect("cannot open the root");
    rustix::fs::syncfs(&root).expect("cannot sync");
    drop(root);
    let copy = image.copy("copy.img");
    mounted.unmount();
    expect_not_trusted(&scratch, &copy);
}

#[test]
fn what_async_left_dirty_is_not_trusted() {
    require!("backstitch", "fuse", "root", "mke2fs");
    let scratch = Scratch::new("dirty_async");
    let image = filled(&scratch);
    let dir = scratch.dir("mnt");
    let mounted = Mounted::under_test(&image, &dir, &Options::ordered("async", "expire=1"));
    fs::write(dir.join("d1/written"), "x").expect("cannot write");
    std::thread::sleep(Duration::from_millis(1500));
    mounted.kill();
    mounted.detach();
    expect_not_trusted(&scratch, &image);
}

fn expect_not_trusted(scratch: &Scratch, image: &Image) {
    let before = image.bytes();
    let dir = scratch.dir("mnt");
    let outcome = run(backstitch()
        .args(["mount", "--json"])
        .arg(image.path())
        .arg(&dir));
    let outcome = outcome.expect_success();
    let hint = outcome.stderr.contains("fsck") && outcome.stderr.contains("read-only");
    assert!(hint, "no hint to run fsck: {}", outcome.describe());
    expect_read_only(&dir);
    assert!(dir.join("d1/1").exists());
    umount_ours(&dir);
    expect_unchanged(image, &before, "mounting a dirty image");
}

#[test]
fn a_second_mount_is_refused_by_name() {
    require!("backstitch", "fuse", "root", "mke2fs");
    let scratch = Scratch::new("second_mount");
    let image = filled(&scratch);
    let (dir, other) = (scratch.dir("mnt"), scratch.dir("other"));
    let mounted = Mounted::under_test(&image, &dir, &Options::default());
    let pid = mounted.pid.expect("mount --json tells the process id");
    for options in ["rw", "ro"] {
        let mut command = backstitch();
        let outcome = run(command
            .args(["mount", "-o", options])
            .arg(image.path())
            .arg(&other));
        expect_error(&outcome, 1, &format!("pid {pid}"));
        assert!(mount_points_below(&other).is_empty());
    }
    let place = format!("{}:/d1/new", image.path().display());
    expect_error(
        &run(backstitch().args(["mkdir", &place])),
        1,
        &format!("pid {pid}"),
    );
    fs::write(dir.join("still"), "works").expect("the first mount no longer works");
    mounted.unmount();
    image.expect_clean();
}

#[test]
fn what_the_kernel_has_mounted_is_refused() {
    require!("backstitch", "fuse", "loop", "mke2fs");
    let scratch = Scratch::new("kernel_first");
    let image = filled(&scratch);
    let (dir, other) = (scratch.dir("mnt"), scratch.dir("other"));
    let mounted = Mounted::by_kernel(&image, &dir, "");
    let outcome = run(backstitch().arg("mount").arg(image.path()).arg(&other));
    expect_error(&outcome, 1, "/dev/loop");
    mounted.unmount();
}

#[test]
fn signals_unmount_cleanly() {
    require!("backstitch", "fuse", "root", "mke2fs", "e2fsck");
    if Backend::from_env() != Backend::Backstitch {
        return;
    }
    let scratch = Scratch::new("signals");
    let image = filled(&scratch);
    let dir = scratch.dir("mnt");
    for (signal, name) in [(Signal::TERM, "SIGTERM"), (Signal::INT, "SIGINT")] {
        let mounted = Mounted::under_test(&image, &dir, &Options::default());
        fs::write(dir.join(format!("before-{name}")), vec![7; 100_000]).expect("cannot write");
        let start = Instant::now();
        mounted.signal(signal);
        mounted.wait_for_daemon();
        say(&format!(
            "{name}: unmounted in {:.2} s",
            start.elapsed().as_secs_f64()
        ));
        assert!(mount_points_below(&dir).is_empty(), "{name} left the mount");
        drop(mounted);
        image.expect_clean();
    }
    let mounted = Mounted::under_test(&image, &dir, &Options::with("ro"));
    let kept = fs::read_dir(&dir).expect("cannot list").flatten().count();
    assert_eq!(kept, 8, "lost+found, five directories, two files");
    mounted.unmount();
}

/// umount(8) returns before the daemon has written the image. Whoever opens the image next waits for
/// that, and with a link under the name of its helper umount(8) waits itself.
#[test]
fn what_comes_after_umount_8_finds_everything() {
    require!("backstitch", "fuse", "root", "mke2fs");
    let scratch = Scratch::new("after_umount");
    let image = Image::mke2fs(&scratch, "disk.img", "64M", &[]);
    let dir = scratch.dir("mnt");
    let name_of = |round: u8| format!("file{round}");
    let fill = |round: u8| {
        let mut mount = backstitch();
        mount.args(["mount", "-o", "flush_ms=200"]);
        run(mount.arg(image.path()).arg(&dir)).expect_success();
        for earlier in 0..round {
            assert!(dir.join(name_of(earlier)).exists(), "file {earlier}");
        }
        fs::write(dir.join(name_of(round)), vec![round; 9 << 20]).expect("cannot write");
    };
    let by_kernel = || run(tool("umount").arg(&dir)).expect_success();
    // A check, then the next mount.
    fill(0);
    by_kernel();
    let checked = our_fsck(image.path()).expect("our own check");
    assert_eq!(checked.code, Some(0), "{}", checked.describe());
    fill(1);
    by_kernel();
    fill(2);
    // As umount(8) calls a helper.
    let helper = scratch.path("umount.backstitch");
    let binary = backstitch().get_program().to_owned();
    std::os::unix::fs::symlink(binary, &helper).expect("cannot make a link");
    let mut command = std::process::Command::new(&helper);
    run(command.arg(&dir).args(["-n", "-t", "fuse.backstitch"])).expect_success();
    assert!(mount_points_below(&dir).is_empty());
    image.expect_clean();
}

/// The first thing that happens is that everything is written, whoever has files open.
#[test]
fn a_signal_has_everything_written_while_files_are_open() {
    require!("backstitch", "fuse", "root", "mke2fs");
    let scratch = Scratch::new("signal_writes");
    let image = Image::mke2fs(&scratch, "disk.img", "64M", &[]);
    let dir = scratch.dir("mnt");
    let mounted = Mounted::under_test(&image, &dir, &Options::default());
    let open = fs::File::create(dir.join("open")).expect("cannot create");
    fs::write(dir.join("file"), vec![7; 1 << 20]).expect("cannot write");
    mounted.signal(Signal::TERM);
    std::thread::sleep(Duration::from_secs(2));
    assert!(mount_points_below(&dir).is_empty());
    mounted.kill();
    drop((open, mounted));
    let again = Mounted::under_test(&image, &dir, &Options::default());
    let there = fs::read(dir.join("file")).expect("it was written");
    assert!(there == vec![7; 1 << 20]);
    again.unmount();
    image.expect_clean();
}
