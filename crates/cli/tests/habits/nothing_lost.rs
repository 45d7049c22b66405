//! A copy that fails, is interrupted or killed costs nobody the file that it was to replace; one
//! that succeeds leaves that file what cp(1) leaves it: its owner, its permissions, its other
//! names, the link that led to it.

use super::{each_kind, fed, stat};
use crate::support::{Bench, Done, is_root};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A small file system of the host, gone at the end of the test.
struct Small(PathBuf);

impl Small {
    fn new(bench: &Bench) -> Option<Small> {
        if !is_root("a full host disk") {
            return None;
        }
        bench.shell("mkdir small; mount -t tmpfs -o size=4M none small");
        Some(Small(bench.path("small")))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// What a directory of the host holds, hidden names too.
fn names(bench: &Bench, dir: &str) -> String {
    bench.shell(&format!("ls -A {dir}")).text()
}

#[test]
fn a_full_host_disk_costs_nothing() {
    let bench = Bench::new();
    let Some(_small) = Small::new(&bench) else {
        return;
    };
    bench.image("a.img", "");
    bench.shell("head -c 3000000 /dev/urandom > big; head -c 6000000 /dev/urandom > huge; echo precious > small/x");
    bench.line("cp big huge a.img:/").good();
    let refused = bench.line("cp a.img:/huge small/x").refused(1);
    assert!(
        refused
            .stderr
            .contains("cp: small/x: No space left on device"),
        "{}",
        refused.stderr
    );
    assert!(refused.stderr.contains("unchanged"), "{}", refused.stderr);
    bench.line("cp -a a.img:/huge small/x").refused(1);
    bench.line("cp a.img:/huge small/new").refused(1);
    assert_eq!(names(&bench, "small"), "x\n");
    // With a second name the file is overwritten, for which there is no room beside the complete
    // new contents.
    bench.shell("ln small/x small/y");
    for source in ["huge", "big"] {
        bench
            .line(&format!("cp a.img:/{source} small/x"))
            .refused(1);
        assert_eq!(
            bench.shell("cat small/x small/y").text(),
            "precious\n".repeat(2)
        );
        assert_eq!(names(&bench, "small"), "x\ny\n");
    }
    bench.shell("rm small/y");
    bench.line("cp a.img:/big small/x").good();
    bench.shell("cmp big small/x");
}

#[test]
fn a_limit_of_the_host_costs_nothing() {
    let bench = Bench::new();
    bench.image("a.img", "");
    bench.shell("head -c 3000000 /dev/urandom > big; echo precious > x; ln x y");
    bench.line("cp big a.img:/").good();
    let copy = format!(
        "trap '' XFSZ; ulimit -f 1000; exec '{}' cp a.img:/big x",
        env!("CARGO_BIN_EXE_backstitch")
    );
    for _ in 0..2 {
        let mut command = Command::new("sh");
        command.args(["-c", &copy]).current_dir(bench.path(""));
        let refused = Done::of(command.output().unwrap()).refused(1);
        assert!(refused.stderr.contains("unchanged"), "{}", refused.stderr);
        assert_eq!(bench.shell("cat x").text(), "precious\n");
        assert!(!names(&bench, ".").contains("partial"));
        bench.shell("rm -f y");
    }
}

#[test]
fn a_full_image_costs_nothing() {
    for journal in ["-t ext2", "-t ext3 -J 1M"] {
        let bench = Bench::new();
        bench.image("a.img", &format!("{journal} -s 6M -b 1024"));
        bench.image("b.img", "");
        bench.shell("head -c 1500000 /dev/urandom > old; head -c 9000000 /dev/urandom > huge; mkdir d; cp huge d/old");
        bench.line("cp old a.img:/").good();
        bench.line("ln a.img:/old a.img:/other").good();
        bench.line("cp huge b.img:/").good();
        let whole = |path: &str| {
            bench.line(&format!("cp a.img:/{path} out")).good();
            bench.shell("cmp out old; rm out");
        };
        let refuse = |line: &str| {
            let refused = bench.line(line).refused(1);
            assert!(
                refused.stderr.contains("no space left"),
                "{}",
                refused.stderr
            );
            assert!(!refused.stderr.contains("partial"), "{}", refused.stderr);
            whole("old");
            whole("other");
            assert_eq!(bench.line("ls -A a.img").text(), "lost+found\nold\nother\n");
        };
        refuse("cp huge a.img:/old");
        refuse("cp b.img:/huge a.img:/old");
        refuse("cp -r d/. a.img:/");
        // With further names the file is overwritten, for which there is no room beside the
        // complete new contents.
        bench.shell("head -c 2600000 /dev/urandom > next");
        refuse("cp next a.img:/old");
        bench.line("rm a.img:/other").good();
        let refused = bench.line("cp huge a.img:/old").refused(1);
        assert!(refused.stderr.contains("unchanged"), "{}", refused.stderr);
        whole("old");
        bench.line("cp next a.img:/old").good();
        bench.line("cp a.img:/old out").good();
        bench.shell("cmp out next");
        bench.check("a.img");
    }
}

/// Begins to replace `/x` by what comes from a pipe, and sends a signal in the middle.
fn stopped(bench: &Bench, signal: rustix::process::Signal) -> Done {
    let mut command = Command::new(env!("CARGO_BIN_EXE_backstitch"));
    command
        .args(["cp", "-", "a.img:/x"])
        .current_dir(bench.path(""));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    // More than a pipe holds and than is copied at once: the copy has begun when the last of it is
    // taken.
    input.write_all(&vec![7; 3 << 20]).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, signal).unwrap();
    if signal == rustix::process::Signal::INT {
        let _ = input.write_all(&[7; 1 << 20]);
    }
    drop(input);
    Done::of(child.wait_with_output().unwrap())
}

#[test]
fn an_interrupted_copy_costs_nothing() {
    each_kind(|bench| {
        fed(bench, "cp - a.img:/x", b"precious\n").good();
        let done = stopped(bench, rustix::process::Signal::INT).refused(1);
        assert!(done.stderr.contains("interrupted"), "{}", done.stderr);
        assert!(done.stderr.contains("unchanged"), "{}", done.stderr);
        assert_eq!(bench.line("cat a.img:/x").good().text(), "precious\n");
        assert_eq!(bench.line("ls -A a.img").text(), "lost+found\nx\n");
        bench.check("a.img");
    });
}

#[test]
fn a_killed_copy_costs_nothing() {
    each_kind(|bench| {
        fed(bench, "cp - a.img:/x", b"precious\n").good();
        stopped(bench, rustix::process::Signal::KILL);
        assert_eq!(bench.line("cat a.img:/x").good().text(), "precious\n");
        // What it had begun, if it came to the disk, does not look like a file of the user's.
        let listed = bench.line("ls a.img").good().text();
        assert_eq!(listed, "lost+found\nx\n");
        bench.line("fsck -y --no-undo a.img");
        assert_eq!(bench.line("cat a.img:/x").good().text(), "precious\n");
    });
}

#[test]
fn an_unreadable_source_costs_nothing() {
    if !is_root("becoming another user") {
        return;
    }
    let bench = Bench::new();
    bench.image("a.img", "");
    bench.shell("echo precious > x; echo secret > s; chmod 600 s; chmod 777 .; chmod 666 a.img");
    bench.line("cp x a.img:/").good();
    let copy = format!(
        "exec setpriv --reuid=65534 --regid=65534 --clear-groups '{}' cp s a.img:/x",
        env!("CARGO_BIN_EXE_backstitch")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &copy]).current_dir(bench.path(""));
    let refused = Done::of(command.output().unwrap()).refused(1);
    assert!(
        refused.stderr.contains("ermission denied"),
        "{}",
        refused.stderr
    );
    assert_eq!(bench.line("cat a.img:/x").text(), "precious\n");
    assert_eq!(bench.line("ls -A a.img").text(), "lost+found\nx\n");
}

#[test]
fn a_replaced_file_of_the_host_keeps_what_is_its_own() {
    let bench = Bench::new();
    bench.image("a.img", "");
    bench.shell("echo new > f; chmod 755 f; mkdir d");
    bench.line("cp f a.img:/").good();
    bench.shell("echo old > x; chmod 640 x; touch -d 2001-01-01 x; ln x y; echo old > z; chmod 600 z; ln -s z l; ln -s none dangling");
    let seen = |name: &str| std::fs::metadata(bench.path(name)).unwrap();
    let inode = seen("x").ino();
    bench.line("cp a.img:/f x").good();
    assert_eq!(bench.shell("cat x y").text(), "new\nnew\n");
    assert_eq!((seen("x").ino(), seen("x").mode() & 0o7777), (inode, 0o640));
    bench.line("cp a.img:/f l").good();
    assert_eq!(bench.shell("cat z; readlink l").text(), "new\nz\n");
    assert_eq!(seen("z").mode() & 0o7777, 0o600);
    bench.line("cp -p a.img:/f z").good();
    assert_eq!(seen("z").mode() & 0o7777, 0o755);
    let refused = bench.line("cp a.img:/f dangling").refused(1);
    assert!(
        refused.stderr.contains("leads to nothing"),
        "{}",
        refused.stderr
    );
    // A name that comes out of an image does not lead out of the tree.
    bench.line("mkdir a.img:/t").good();
    bench.line("cp f a.img:/t/l").good();
    bench.shell("mkdir out; echo old > kept; ln -s ../kept out/l");
    bench.line("cp -r a.img:/t/. out").good();
    assert_eq!(
        bench.shell("cat kept out/l; test ! -h out/l").text(),
        "old\nnew\n"
    );
    if is_root("files of others") {
        bench.shell("echo old > o; chown 1234:2345 o; chmod 4750 o");
        bench.line("cp a.img:/f o").good();
        assert_eq!((seen("o").uid(), seen("o").gid()), (1234, 2345));
        assert_eq!(seen("o").mode() & 0o7777, 0o4750);
        // One who may write to the file, but not to its directory.
        bench.shell("chmod 755 .; echo old > d/w; chmod 666 d/w; chmod 755 d; chmod 444 a.img");
        let copy = format!(
            "exec setpriv --reuid=65534 --regid=65534 --clear-groups '{}' cp a.img:/f d/w",
            env!("CARGO_BIN_EXE_backstitch")
        );
        let mut command = Command::new("sh");
        command.args(["-c", &copy]).current_dir(bench.path(""));
        Done::of(command.output().unwrap()).good();
        assert_eq!(bench.shell("cat d/w; ls -A d").text(), "new\nw\n");
        assert_eq!((seen("d/w").uid(), seen("d/w").mode() & 0o777), (0, 0o666));
    }
}

#[test]
fn a_replaced_file_of_an_image_keeps_what_is_its_own() {
    each_kind(|bench| {
        bench.shell("echo new > f; chmod 755 f; echo old > x; chmod 640 x; ln x y; echo old > z; chmod 600 z; ln -s z l; ln -s none dangling; mkdir s; mv x y z l dangling s");
        bench.line("cp -a s/. a.img:/").good();
        bench.line("chown 1234:2345 a.img:/x a.img:/z").good();
        bench.line("setfattr -n user.word -v kept a.img:/z").good();
        let (x, z) = (stat(bench, "/x"), stat(bench, "/z"));
        bench.line("cp f a.img:/x").good();
        assert_eq!(bench.line("cat a.img:/x a.img:/y").text(), "new\nnew\n");
        for name in ["mode", "uid", "gid", "inode", "links"] {
            assert_eq!(stat(bench, "/x")[name], x[name]);
        }
        bench.line("cp f a.img:/l").good();
        assert_eq!(bench.line("cat a.img:/z").text(), "new\n");
        assert_eq!(stat(bench, "/l")["target"], "z");
        for name in ["mode", "uid", "gid", "links"] {
            assert_eq!(stat(bench, "/z")[name], z[name]);
        }
        let word = bench
            .line("getfattr --only-values -n user.word a.img:/z")
            .good();
        assert_eq!(word.text(), "kept");
        fed(bench, "cp - a.img:/l", b"stream\n").good();
        assert_eq!(bench.line("cat a.img:/z").text(), "stream\n");
        assert_eq!(stat(bench, "/z")["mode"], z["mode"]);
        let refused = bench.line("cp f a.img:/dangling").refused(1);
        assert!(
            refused.stderr.contains("leads to nothing"),
            "{}",
            refused.stderr
        );
        // Holes of the new contents are holes of an old file that had data there.
        bench.shell(
            "head -c 400000 /dev/urandom > full; truncate -s 300000 sparse; echo end >> sparse",
        );
        bench.line("cp full a.img:/x").good();
        bench.line("cp sparse a.img:/x").good();
        bench.line("cp a.img:/y out").good();
        bench.shell("cmp out sparse");
        assert!(stat(bench, "/x")["allocated_bytes"].as_u64() < Some(20_000));
        // Several names again, where all of them are there.
        bench.line("cp -a s/. a.img:/").good();
        assert_eq!(stat(bench, "/x")["links"], 2);
        assert_eq!(stat(bench, "/x")["inode"], stat(bench, "/y")["inode"]);
        bench.line("cp -a s/. a.img:/").good();
        assert_eq!(
            bench.line("ls a.img").text(),
            "dangling\nl\nlost+found\nx\ny\nz\n"
        );
    });
}

#[test]
fn special_files_are_written_to_and_read_from() {
    let bench = Bench::new();
    bench.image("a.img", "");
    bench.shell("echo word > f");
    bench.line("cp f a.img:/").good();
    let binary = env!("CARGO_BIN_EXE_backstitch");
    let before = std::fs::metadata("/dev/null").unwrap();
    bench.line("cp a.img:/f /dev/null").good();
    let after = std::fs::metadata("/dev/null").unwrap();
    assert_eq!((before.ino(), before.mode()), (after.ino(), after.mode()));
    let said = bench.shell(&format!(
        "mkfifo p; cat p & '{binary}' cp a.img:/f p; wait; test -p p"
    ));
    assert_eq!(said.text(), "word\n");
    let script = format!(
        "(echo 1; '{binary}' cp a.img:/f /dev/stdout; '{binary}' cp a.img:/f /dev/fd/3; echo 2) > out 3> three; cat out three"
    );
    assert_eq!(bench.shell(&script).text(), "1\nword\n2\nword\n");
    fed(&bench, "cp /dev/stdin a.img:/in", b"in\n").good();
    assert_eq!(bench.line("cat a.img:/in").text(), "in\n");
    bench.shell(&format!(
        "(echo through > p) & '{binary}' cp p a.img:/piped; wait"
    ));
    assert_eq!(bench.line("cat a.img:/piped").text(), "through\n");
    bench.line("cp -r p a.img:/fifo").good();
    assert_eq!(stat(&bench, "/fifo")["file_type"], "fifo");
}

#[test]
fn an_image_is_not_copied_over_or_into_itself() {
    let bench = Bench::new();
    bench.image("a.img", "");
    bench.shell("echo word > f; mkdir d; ln a.img d/b.img; echo > d/other");
    bench.line("cp f a.img:/").good();
    // The typing error: a.img for a.img:/.
    let refused = bench.line("cp a.img:/f a.img").refused(1);
    assert!(refused.stderr.contains("IMAGE:/path"), "{}", refused.stderr);
    bench.line("cp a.img a.img:/").refused(1);
    let done = bench.line("cp -r d a.img:/").good();
    assert!(done.stderr.contains("left out"), "{}", done.stderr);
    assert_eq!(bench.line("ls a.img:/d").text(), "other\n");
    bench.check("a.img");
    let done = bench.line("mkfs -q -s 32M -d . new.img").good();
    assert!(done.stderr.contains("left out"), "{}", done.stderr);
    assert_eq!(bench.line("ls new.img").text(), "a.img\nd\nf\nlost+found\n");
}

#[test]
fn what_a_command_writes_does_not_replace_an_image() {
    let bench = Bench::new();
    bench.image("a.img", "");
    bench.image("b.img", "");
    bench.shell("mkdir mnt; gzip -c < b.img > b.gz; cp b.gz copy.gz; cp b.img copy.img");
    for (line, code) in [
        ("crash record --log b.img a.img mnt", 1),
        ("crash record --log log --base b.img a.img mnt", 1),
        ("crash fs --script sync --keep b.img", 1),
        ("crash fs --script sync --html b.gz", 1),
        ("crash app --run true --check true --trace b.img", 1),
        ("bench untar --image b.img --scale 0.01", 1),
        ("mkfs -O journal_dev -s 8M b.img", 1),
        ("fsck -y -z b.img a.img", 0),
    ] {
        let done = bench.line(line);
        let done = if code == 0 {
            done.good()
        } else {
            done.refused(code)
        };
        let said = done.stderr;
        assert!(code == 0 || said.contains("b."), "{line}: {said}");
        bench.shell("cmp b.img copy.img; cmp b.gz copy.gz");
    }
    bench.shell("printf x | dd of=a.img bs=1 seek=33000 conv=notrunc status=none");
    bench.line("fsck -y -z b.img a.img");
    bench.shell("cmp b.img copy.img");
    // What such a command made itself may be made again.
    for _ in 0..2 {
        let script = "crash fs --ordering async --script creat_foo --keep state.img";
        let words = script.split(' ').map(|word| word.replace('_', " "));
        bench.run(&words.collect::<Vec<_>>());
    }
}

#[test]
fn two_files_of_one_name_do_not_become_one() {
    each_kind(|bench| {
        bench.shell("mkdir a b out; echo 1 > a/f; echo 2 > b/f");
        let refused = bench.line("cp a/f b/f a.img:/").refused(1);
        assert!(refused.stderr.contains("a.img:/f"), "{}", refused.stderr);
        assert_eq!(bench.line("cat a.img:/f").text(), "1\n");
        bench.line("cp -r a b a.img:/").good();
        bench.run(&["cp", "a.img:/*/f", "out"]).refused(1);
        assert_eq!(bench.shell("cat out/f").text(), "1\n");
    });
}
