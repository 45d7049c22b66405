//! File handles (`open_by_handle_at`, NFS): they stand for a file even after a remount, and for no
//! other file once it is gone.

use backstitch_tests::command::{run, tool};
use backstitch_tests::image::Image;
use backstitch_tests::mount::{Mounted, Options};
use backstitch_tests::require;
use backstitch_tests::scratch::Scratch;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// `ESTALE`.
const STALE: &str = "error 116";

#[test]
fn handles_stand_for_a_file_until_it_is_gone() {
    require!("fuse", "root", "mke2fs", "cc");
    let scratch = Scratch::new("handles");
    let program = scratch.path("handles");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("handles.c");
    let mut compiler = tool("cc");
    compiler.args(["-Wall", "-Werror", "-o"]);
    run(compiler.arg(&program).arg(source)).expect_success();
    let image = Image::mke2fs(&scratch, "disk.img", "64M", &["-I", "256"]);
    let dir = scratch.dir("mnt");
    let saved = scratch.path("saved");

    let mounted = Mounted::under_test(&image, &dir, &Options::default());
    fs::create_dir_all(dir.join("a/b/c")).unwrap();
    for name in ["a/b/file", "gone", "reused"] {
        fs::write(dir.join(name), name).unwrap();
    }
    let names = ["", "a/b", "a/b/c", "a/b/file", "gone", "reused"].map(|name| dir.join(name));
    run(Command::new(&program).arg("save").arg(&saved).args(&names)).expect_success();
    let before = fs::metadata(dir.join("reused")).unwrap().ino();
    mounted.unmount();

    // Neither the kernel nor the daemon has anything about them in memory.
    let mounted = Mounted::under_test(&image, &dir, &Options::default());
    let open = || {
        let outcome = run(Command::new(&program).arg("open").arg(&dir).arg(&saved));
        let text = outcome.expect_success().text();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let found = open();
    let root = dir.to_str().unwrap();
    assert_eq!(found[0], root);
    assert_eq!(found[1], format!("{root}/a/b"));
    assert_eq!(found[2], format!("{root}/a/b/c"));
    for (line, contents) in found[3..].iter().zip(["a/b/file", "gone", "reused"]) {
        assert!(line.ends_with(&format!(" {contents}")), "{line}");
    }
    for name in ["gone", "reused"] {
        fs::remove_file(dir.join(name)).unwrap();
    }
    mounted.unmount();

    // The inode number of one is reused by a file for which the handle must not stand.
    let mounted = Mounted::under_test(&image, &dir, &Options::default());
    let again = (0..50).any(|number| {
        let path = dir.join(format!("new{number}"));
        fs::write(&path, "another").unwrap();
        fs::metadata(&path).unwrap().ino() == before
    });
    assert!(again, "no file got the number {before} again");
    mounted.unmount();
    let mounted = Mounted::under_test(&image, &dir, &Options::default());
    let found = open();
    assert_eq!(found[1], format!("{root}/a/b"));
    assert_eq!(found[5], STALE);
    assert!(found[4] == STALE, "{}", found[4]);
    mounted.unmount();
}
