//! Stacks through the binary: the paper's figure 8 and three file systems in each other, mounted,
//! used, killed and mounted again.

use crate::support::{Bench, can_mount, tool};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The paper's figure 8 (Frost et al., SOSP 2007).
const FIGURE_8: &str = r#"
[[volume]]
name = "root"
image = "a.img"

[[volume]]
name = "loop"
file = "root:/fs.img"
journal = "root:/log.img"
ordering = "journal=full"
at = "root:/loop"
"#;

const DEEP: &str = r#"
[[volume]]
name = "outer"

[[volume]]
name = "middle"
file = "outer:/middle.img"
at = "outer:/middle"

[[volume]]
name = "inner"
file = "middle:/dir/inner.img"
at = "middle:/dir/inner"
"#;

/// A mount that goes whatever happens.
struct Mount<'b>(&'b Bench);

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let _ = self.0.line("umount --lazy mnt");
    }
}

fn write(bench: &Bench, name: &str, text: &str) {
    std::fs::write(bench.path(name), text).unwrap();
}

fn figure_8() -> Bench {
    let bench = Bench::new();
    for line in [
        "mkfs -q -b 1024 -s 12M a.img",
        "mkfs -q -b 1024 -O journal_dev -s 1100K log.img",
        "mkfs -q -b 1024 -t ext3 -J device=log.img -s 4M fs.img",
        "cp fs.img a.img:/fs.img",
        "cp log.img a.img:/log.img",
        "mkdir a.img:/loop",
    ] {
        bench.line(line).good();
    }
    bench.shell("mkdir mnt");
    write(&bench, "stack.toml", FIGURE_8);
    bench
}

/// Copies the file systems out of each other, and has each checked.
fn check_figure_8(bench: &Bench) {
    bench.check("a.img");
    bench.shell("rm -f fs.img log.img");
    bench.line("cp a.img:/fs.img fs.img").good();
    bench.line("cp a.img:/log.img log.img").good();
    if tool("e2fsck", "e2fsprogs").is_some() {
        bench.shell("e2fsck -f -n -j log.img fs.img");
    }
}

/// Writes a file through a shared mapping.
fn map_a_file(path: &Path) {
    let script = "import mmap, os, sys; f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT); os.ftruncate(f, 9000)
with mmap.mmap(f, 9000) as m: m[8000:8006] = b'mapped'; m.flush()";
    let python = Command::new("python3")
        .args(["-S", "-c", script])
        .arg(path)
        .status();
    match python {
        Ok(status) => assert!(status.success()),
        Err(error) => eprintln!("not mapped: python3: {error} (Debian package python3)"),
    }
}

fn numbers(directory: &Path) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

/// Takes off the mount of a daemon that is being killed: it may not be gone at the first try.
fn take_off(bench: &Bench) {
    let device = |path: &str| std::fs::metadata(bench.path(path)).map(|m| m.dev()).ok();
    for _ in 0..500 {
        let _ = bench.line("umount --lazy mnt");
        if device("mnt").is_some_and(|d| Some(d) == device(".")) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("the mount of a killed daemon does not come off");
}

#[test]
fn figure_8_is_drawn_mounted_killed_and_replayed() {
    let bench = figure_8();
    let drawn = bench.line("info --stack stack.toml").good().text();
    let lines: Vec<&str> = drawn.lines().collect();
    assert_eq!(
        lines[0],
        "root: ext2, soft, 12 MiB, in a.img, the root of the mount"
    );
    assert!(lines[1].starts_with("└─ loop: ext3, journal=full, 4 MiB"));
    let end = "in root:/fs.img, journal in root:/log.img, shows at root:/loop";
    assert!(lines[1].ends_with(end), "{drawn}");
    let document = bench.line("info --json --stack stack.toml").good().json();
    assert_eq!(document["volumes"][1]["journal"], "root:/log.img");
    assert_eq!(document["volumes"][1]["ordering"], "journal=full");
    if !can_mount() {
        return;
    }
    let up = || {
        bench
            .line("mount --json -o stack=stack.toml a.img mnt")
            .good()
            .json()
    };
    let report = up();
    let _mount = Mount(&bench);
    bench.shell(
        "mkdir mnt/loop/d; for i in 1 2 3 4 5 6 7 8 9; do head -c 20000 /dev/urandom > mnt/loop/d/$i; cp mnt/loop/d/$i mnt/$i; done
         sync mnt/loop/d/9 mnt/9; stat -f mnt/loop mnt > /dev/null",
    );
    // What is in use stays; the two are different file systems to who moves something.
    bench.shell("! rm -f mnt/fs.img 2> /dev/null; ! rmdir mnt/loop 2> /dev/null; ! ln mnt/1 mnt/loop/1 2> /dev/null");
    bench.shell(&format!("kill -9 {}", report["pid"]));
    take_off(&bench);
    let report = up();
    assert_eq!(report["recovery"]["needed"], true);
    let actions = report["recovery"]["actions"].to_string();
    assert!(actions.contains("loop: replayed"), "{actions}");
    bench.shell("for i in 1 2 3 4 5 6 7 8 9; do cmp mnt/loop/d/$i mnt/$i; done; mv mnt/1 mnt/loop/moved; rm -r mnt/loop/d");
    assert_eq!(numbers(&bench.path("mnt/loop")), 2);
    bench.line("umount mnt").good();
    check_figure_8(&bench);
}

#[test]
fn three_file_systems_in_each_other_are_one_mount() {
    let bench = Bench::new();
    for line in [
        "mkfs -q -s 16M a.img",
        "mkfs -q -b 1024 -s 8M middle.img",
        "mkfs -q -b 1024 -s 4M inner.img",
        "mkdir middle.img:/dir",
        "mkdir middle.img:/dir/inner",
        "cp inner.img middle.img:/dir/inner.img",
        "cp middle.img a.img:/middle.img",
        "mkdir a.img:/middle",
    ] {
        bench.line(line).good();
    }
    bench.shell("mkdir mnt");
    write(&bench, "stack.toml", DEEP);
    // The first volume names no image.
    bench.line("info --stack stack.toml").refused(1);
    let drawn = bench.line("info --stack stack.toml a.img").good().text();
    assert!(drawn.contains("\n   └─ inner: "), "{drawn}");
    if !can_mount() {
        return;
    }
    bench
        .line("mount -o stack=stack.toml,expire=1 a.img mnt")
        .good();
    let mount = Mount(&bench);
    bench.shell(
        "cd mnt/middle/dir/inner; mkdir -p a/b; echo deep > a/b/f; cp -r a c; rm a/b/f; sync -f a; echo middle > ../g; echo outer > ../../../h
         test \"$(ls ../../../middle/dir | tr '\\n' ' ')\" = 'g inner inner.img '",
    );
    // A copy is clean at every level.
    bench.line("snapshot mnt copy.img").good();
    bench
        .line("cp copy.img:/middle.img copied-middle.img")
        .good();
    bench
        .line("cp copied-middle.img:/dir/inner.img copied-inner.img")
        .good();
    for image in ["copy.img", "copied-middle.img", "copied-inner.img"] {
        bench.check(image);
    }
    bench.line("umount mnt").good();
    // Order between sectors holds through every level too.
    bench
        .line("mount -o stack=stack.toml,atomic=512 a.img mnt")
        .good();
    bench.shell("cd mnt/middle/dir/inner; mkdir e; mv c/b/f e/f; cp e/f c/b/f");
    map_a_file(&bench.path("mnt/middle/dir/inner/e/mapped"));
    bench.line("umount mnt").good();
    drop(mount);
    bench.shell("rm middle.img inner.img");
    bench.line("cp a.img:/middle.img middle.img").good();
    bench.line("cp middle.img:/dir/inner.img inner.img").good();
    for image in ["a.img", "middle.img", "inner.img"] {
        bench.check(image);
    }
    assert_eq!(bench.line("cat inner.img:/c/b/f").good().text(), "deep\n");
    if tool("python3", "python3").is_some() {
        let mapped = bench.line("cat inner.img:/e/mapped").good().text();
        assert_eq!(mapped.find("mapped"), Some(8000));
    }
    assert_eq!(
        bench.line("cat middle.img:/dir/g").good().text(),
        "middle\n"
    );
    // One that does not fit is refused by name, before anything is mounted.
    write(
        &bench,
        "stack.toml",
        &DEEP.replace("/dir/inner.img", "/nowhere"),
    );
    let error = bench
        .line("mount -o stack=stack.toml a.img mnt")
        .refused(1)
        .stderr;
    assert!(error.contains("inner: no such file"), "{error}");
}
