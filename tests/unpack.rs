//! Unpacks a large tree, compares it, and removes it; then everything is as it was.
//!
//! `FILES` and `MEGABYTES` are its size.

use backstitch_tests::command::{run_within, tool};
use backstitch_tests::image::Image;
use backstitch_tests::mount::{Mounted, Options};
use backstitch_tests::scratch::Scratch;
use backstitch_tests::source::{Size, make_tree, pack, unpack};
use backstitch_tests::tree::{Compare, Tree, expect_equal};
use backstitch_tests::{require, say, setting};
use std::time::{Duration, Instant};

#[test]
fn a_large_tree() {
    require!("root", "loop", "fuse", "mke2fs", "e2fsck", "dumpe2fs");
    let scratch = Scratch::new("unpack");
    let size = Size {
        files: setting("FILES", 20_000),
        bytes: setting("MEGABYTES", 300) << 20,
    };
    let (source, archive) = (scratch.dir("source"), scratch.path("source.tar"));
    make_tree(&source, 1, size).expect("cannot make a tree");
    let expected = Tree::capture(&source);
    pack(&source, &archive);
    std::fs::remove_dir_all(&source).expect("cannot remove the source");
    let bytes: u64 = expected.files().map(|(_, size)| size).sum();
    say(&format!(
        "unpack: {} names, {} MB",
        expected.len(),
        bytes / 1_000_000
    ));

    let image = Image::mke2fs(&scratch, "disk.img", "2G", &["-N", "80000"]);
    let initially = image.free_counts();
    let dir = scratch.dir("mnt");
    let mounted = Mounted::under_test(&image, &dir, &Options::default());
    let tree = dir.join("tree");
    std::fs::create_dir(&tree).expect("cannot make a directory");
    timed("unpacked", || unpack(&archive, &tree));
    let fresh = Tree::capture(&tree);
    expect_equal(
        "packed (left), unpacked (right)",
        &expected,
        &fresh,
        Compare::Copy,
    );
    timed("unmounted", || mounted.unmount());
    image.expect_clean();

    let mounted = Mounted::by_kernel(&image, &dir, "ro");
    let theirs = Tree::capture(&tree);
    expect_equal(
        "unpacked (left), the kernel's (right)",
        &fresh,
        &theirs,
        Compare::SameImageRead,
    );
    mounted.unmount();

    let mounted = Mounted::under_test(&image, &dir, &Options::default());
    timed("removed", || {
        let limit = Duration::from_secs(600);
        run_within(tool("rm").arg("-rf").arg(&tree), limit).expect_success();
    });
    timed("unmounted", || mounted.unmount());
    image.expect_clean();
    assert_eq!(
        image.free_counts(),
        initially,
        "free blocks and inodes: now, and at first"
    );
}

fn timed(what: &str, work: impl FnOnce()) {
    let start = Instant::now();
    work();
    say(&format!(
        "unpack: {what} in {:.2} s",
        start.elapsed().as_secs_f64()
    ));
}
