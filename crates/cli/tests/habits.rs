//! The habits that people bring from ls(1), cp(1), find(1), chmod(1), chown(1), touch(1), df(1), du(1), getfattr(1) and setfattr(1),
//! on images without mounting them, with and without a journal.

mod support;

use serde_json::Value;
use std::io::Write;
use std::process::{Command, Stdio};
use support::{Bench, Done, tool};

/// An empty image of each kind that the commands write to in another way.
const KINDS: [&str; 2] = ["-t ext2 -b 1024", "-t ext3 -J 1M -b 1024"];

fn each_kind(test: impl Fn(&Bench)) {
    for kind in KINDS {
        let bench = Bench::new();
        bench.image("a.img", kind);
        test(&bench);
        bench.check("a.img");
    }
}

/// What `stat` shows of a file in the image.
fn stat(bench: &Bench, path: &str) -> Value {
    let shown = bench.line(&format!("stat --json a.img:{path}"));
    shown.good().json()[0].clone()
}

/// Runs the command with something on its standard input.
fn fed(bench: &Bench, line: &str, input: &[u8]) -> Done {
    let mut command = Command::new(env!("CARGO_BIN_EXE_backstitch"));
    command.args(line.split_ascii_whitespace());
    command.current_dir(bench.path(""));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    Done::of(child.wait_with_output().unwrap())
}

#[test]
fn ls_sorts_and_goes_down() {
    let bench = Bench::new();
    bench.image("a.img", "");
    bench.shell(
        "mkdir -p s/d/e; head -c 3000 /dev/zero > s/b; head -c 20 /dev/zero > s/a; echo > s/d/.h; ln -s b s/l; chmod 755 s/a
        touch -d '2001-01-01' s/b; touch -d '2002-01-01' s/a; touch -h -d '2000-01-01' s/l; touch -d '2003-01-01' s/d",
    );
    bench.line("cp -a s a.img:/").good();
    let ls = |words: &str| bench.line(&format!("ls {words}")).good().text();
    assert_eq!(ls("a.img:/s"), "a\nb\nd\nl\n");
    assert_eq!(ls("-r a.img:/s"), "l\nd\nb\na\n");
    assert_eq!(ls("-t a.img:/s"), "d\na\nb\nl\n");
    assert_eq!(ls("-tr -1 a.img:/s"), "l\nb\na\nd\n");
    assert!(
        ls("-S a.img:/s").starts_with("b\nd\n"),
        "{}",
        ls("-S a.img:/s")
    );
    assert_eq!(ls("-A a.img:/s/d"), ".h\ne\n");
    assert_eq!(ls("-a a.img:/s/d"), ".\n..\n.h\ne\n");
    assert_eq!(ls("-F a.img:/s"), "a*\nb\nd/\nl@\n");
    assert_eq!(ls("-d a.img:/s/d"), "/s/d\n");
    let json = bench.line("ls -d --json a.img:/s/d").good().json();
    assert_eq!(json[0]["entries"][0]["name"], "d");
    assert_eq!(
        ls("-R a.img:/s"),
        "a.img:/s:\na\nb\nd\nl\n\na.img:/s/d:\ne\n\na.img:/s/d/e:\n"
    );
    let inode = stat(&bench, "/s/b")["inode"].to_string();
    assert!(ls("-i a.img:/s").contains(&format!("{inode} b\n")));
    let recursive = ls("-R -i a.img");
    assert!(recursive.contains(&format!("{inode} b\n")), "{recursive}");
    assert!(recursive.contains("a.img:/s/d/e:\n"), "{recursive}");
    assert!(ls("-lh a.img:/s").contains(" 3.0K 2001-01-01 00:00 b\n"));
    assert!(ls("-n a.img:/s/b").starts_with("-rw-"));
    let json = bench.line("ls -R --json a.img:/s").good().json();
    let paths: Vec<&str> = json
        .as_array()
        .unwrap()
        .iter()
        .map(|listing| listing["path"].as_str().unwrap())
        .collect();
    assert_eq!(paths, ["/s", "/s/d", "/s/d/e"]);
    assert!(bench.line("ls --help").good().text().contains("Examples:"));
}

#[test]
fn patterns_stand_for_names_in_the_image() {
    each_kind(|bench| {
        bench.shell("mkdir -p s/c/d; for f in a.conf b.conf c/x.conf .hidden.conf 'q[1].txt' c/d/z; do echo \"$f\" > \"s/$f\"; done");
        bench.line("cp -a s a.img:/etc").good();
        let run = |words: &[&str]| bench.run(words).good().text();
        assert_eq!(run(&["cat", "a.img:/etc/*.conf"]), "a.conf\nb.conf\n");
        assert_eq!(run(&["cat", "a.img:/e*/?/*.conf"]), "c/x.conf\n");
        assert_eq!(run(&["cat", "a.img:/etc/.h*"]), ".hidden.conf\n");
        // What is there under this very name is meant.
        assert_eq!(run(&["cat", "a.img:/etc/q[1].txt"]), "q[1].txt\n");
        assert_eq!(run(&["cat", "a.img:/etc/q\\[*"]), "q[1].txt\n");
        assert_eq!(run(&["ls", "-d", "a.img:/etc/*/"]), "/etc/c/\n");
        let found = bench
            .run(&["stat", "--json", "a.img:/etc/[ab].conf"])
            .good();
        assert_eq!(found.json().as_array().unwrap().len(), 2);
        // Nothing that matches is an error, and says the pattern.
        let none = bench.run(&["cat", "a.img:/etc/*.none"]).refused(1);
        assert!(none.stderr.contains("a.img:/etc/*.none"), "{}", none.stderr);
        bench.run(&["cat", "a.img:/etc/a.conf/*"]).refused(1);
        bench.shell("mkdir out");
        run(&["cp", "a.img:/etc/*.conf", "out"]);
        assert_eq!(bench.shell("ls out").text(), "a.conf\nb.conf\n");
        bench.run(&["cp", "a.img:/etc/*.conf", "new"]).refused(1);
        run(&["mkdir", "a.img:/to"]);
        run(&["cp", "a.img:/etc/*.conf", "a.img:/to"]);
        run(&["mv", "a.img:/to/*.conf", "a.img:/etc/c"]);
        run(&["rm", "a.img:/etc/[ab].*"]);
        assert_eq!(
            run(&["find", "a.img:/*", "-name", "*.conf"]),
            "/etc/.hidden.conf\n/etc/c/a.conf\n/etc/c/b.conf\n/etc/c/x.conf\n"
        );
        run(&["rm", "-r", "a.img:/etc/*"]);
        assert_eq!(run(&["ls", "-A", "a.img:/etc"]), ".hidden.conf\n");
    });
}

#[test]
fn cp_has_the_usual_flags() {
    each_kind(|bench| {
        bench.shell("mkdir s; echo one > s/a; echo two > s/b; ln s/a s/c; ln -s a s/l; chmod 640 s/a; touch -d '2001-01-01' s/a s/b");
        let said = bench.line("cp -av s a.img:/").good().text();
        for line in [
            "'s' -> 'a.img:/s'\n",
            "'s/a' -> 'a.img:/s/a'\n",
            "'s/l' -> 'a.img:/s/l'\n",
        ] {
            assert!(said.contains(line), "{said}");
        }
        assert_eq!(stat(bench, "/s/a")["links"], 2);
        assert_eq!(stat(bench, "/s/a")["mode"], "0640");
        assert_eq!(
            stat(bench, "/s/a")["modified"],
            "2001-01-01T00:00:00.000000000Z"
        );
        // -n keeps what is there, -u what is not older.
        bench.shell("echo new > s/a; echo older > s/b; touch -d '2000-01-01' s/b");
        bench.line("cp -n s/a a.img:/s/a").good();
        assert_eq!(bench.line("cat a.img:/s/a").text(), "one\n");
        let said = bench.line("cp -uv s/a s/b a.img:/s").good().text();
        assert_eq!(said, "'s/a' -> 'a.img:/s/a'\n");
        assert_eq!(bench.line("cat a.img:/s/a a.img:/s/b").text(), "new\ntwo\n");
        bench.line("cp -n -u s/a a.img:/s").refused(2);
        // The contents of a directory, not the directory.
        bench.line("mkdir a.img:/dot").good();
        bench.line("cp -a s/. a.img:/dot").good();
        assert_eq!(bench.line("ls a.img:/dot").text(), "a\nb\nc\nl\n");
        bench.line("cp -a a.img:/s/. dot").good();
        assert_eq!(bench.shell("ls dot").text(), "a\nb\nc\nl\n");
        // -f is always so, -d keeps a link a link.
        bench.line("cp -f s/a a.img:/s/b").good();
        bench.line("cp -d s/l a.img:/l2").good();
        assert_eq!(stat(bench, "/l2")["target"], "a");
        // Out of the image too.
        bench.shell("echo mine > out");
        bench.line("cp -n a.img:/s/a out").good();
        bench.line("cp -u a.img:/s/a out").good();
        assert_eq!(bench.shell("cat out").text(), "mine\n");
        bench.line("cp -p a.img:/s/b out").good();
        assert_eq!(bench.shell("cat out").text(), "new\n");
        let refused = bench.line("cp a.img:/s/a a.img:/s/a").refused(1);
        assert!(refused.stderr.contains("onto itself"), "{}", refused.stderr);
        assert_eq!(bench.line("cat a.img:/s/a").text(), "new\n");
    });
}

#[test]
fn cp_reads_and_writes_the_standard_streams() {
    each_kind(|bench| {
        let large: Vec<u8> = (0..3_000_000_u32).map(|n| (n * 7 / 5) as u8).collect();
        fed(bench, "cp - a.img:/stream", &large).good();
        assert!(bench.line("cp a.img:/stream -").good().stdout == large);
        fed(bench, "cp - a.img:/stream", b"short\n").good();
        assert_eq!(bench.line("cp a.img:/stream -").good().text(), "short\n");
        assert_eq!(stat(bench, "/stream")["size_bytes"], 6);
        fed(bench, "cp - a.img:/empty", b"").good();
        assert_eq!(stat(bench, "/empty")["size_bytes"], 0);
        fed(bench, "cp -n - a.img:/stream", b"other").good();
        assert_eq!(bench.line("cat a.img:/stream").text(), "short\n");
        fed(bench, "cp - a.img:/", b"x").refused(1);
        bench.line("cp - host").refused(2);
    });
}

#[test]
fn a_copy_that_does_not_fit_leaves_no_part_of_a_file() {
    let bench = Bench::new();
    bench.image("a.img", "-s 4M -b 1024");
    bench.shell("echo small > small; head -c 9000000 /dev/urandom > large");
    let refused = bench.line("cp small large a.img:/").refused(1);
    assert!(
        refused.stderr.contains("no space left"),
        "{}",
        refused.stderr
    );
    assert_eq!(bench.line("ls a.img").text(), "lost+found\nsmall\n");
    bench.check("a.img");
}

#[test]
fn find_has_the_usual_tests() {
    let bench = Bench::new();
    bench.image("a.img", "");
    bench.shell(
        "mkdir -p s/d/e s/empty; head -c 3000 /dev/zero > s/b; head -c 20 /dev/zero > s/d/a; : > s/d/e/none; ln -s b s/l; ln s/b s/d/B
        chmod 4755 s/d/a; touch -d '2001-01-01' s/b; touch -d '2002-01-01' s/d/a; touch -d '2 days ago' s/d/e/none",
    );
    bench.line("cp -a s a.img:/").good();
    let find = |words: &str| {
        let shown = bench.line(&format!("find a.img:/s {words}")).good().text();
        shown
            .lines()
            .map(|path| path.trim_start_matches("/s").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        find("-size +2k"),
        ["", "/b", "/d", "/d/B", "/d/e", "/empty"]
            .map(|p| p.to_owned())
            .into_iter()
            .filter(|p| p.ends_with(['b', 'B'])
                || stat(&bench, &format!("/s{p}"))["size_bytes"].as_u64() > Some(2048))
            .collect::<Vec<_>>()
    );
    assert_eq!(find("-type f -size 20c"), ["/d/a"]);
    assert_eq!(find("-type f -size -1"), ["/d/e/none"]);
    assert_eq!(find("-type f,l -maxdepth 1"), ["/b", "/l"]);
    assert_eq!(find("-mindepth 1 -maxdepth 1 -type d"), ["/d", "/empty"]);
    assert_eq!(find("-newer a.img:/s/b -type f"), ["/d/a", "/d/e/none"]);
    assert_eq!(find("-newer s/d/a -type f"), ["/d/e/none"]);
    assert_eq!(find("-mtime +1000 -type f"), ["/b", "/d/B", "/d/a"]);
    assert_eq!(find("-mtime -7 -type f"), ["/d/e/none"]);
    assert_eq!(find("-mtime 2 -type f"), ["/d/e/none"]);
    assert_eq!(find("-mmin +2000 -mtime -7 -type f"), ["/d/e/none"]);
    assert_eq!(find("-empty"), ["/d/e/none", "/empty"]);
    assert_eq!(find("-perm -4000"), ["/d/a"]);
    assert_eq!(find("-iname b"), ["/b", "/d/B"]);
    assert_eq!(find("-links 2 -type f"), ["/b", "/d/B"]);
    assert_eq!(find("-depth -name e*"), ["/d/e", "/empty"]);
    let inode = stat(&bench, "/s/b")["inode"].to_string();
    assert_eq!(find(&format!("-inum {inode} -print")), ["/b", "/d/B"]);
    bench.line("find a.img -size x").refused(2);
    bench.line("find a.img -newer a.img:/none").refused(1);
}

#[test]
fn permissions_and_owners_change() {
    each_kind(|bench| {
        bench.shell("mkdir -p s/d; echo > s/a; echo > s/d/b; ln -s a s/l; chmod 600 s/a s/d/b; chmod 700 s/d");
        bench.line("cp -a s a.img:/").good();
        let mode = |path: &str| stat(bench, path)["mode"].as_str().unwrap().to_owned();
        bench.line("chmod 4755 a.img:/s/a").good();
        assert_eq!(mode("/s/a"), "4755");
        bench.line("chmod u-s,go-x a.img:/s/l").good();
        assert_eq!(mode("/s/a"), "0744");
        bench.line("chmod -R a+rX a.img:/s/d").good();
        assert_eq!(
            (mode("/s/d"), mode("/s/d/b")),
            ("0755".into(), "0644".into())
        );
        bench.line("chmod -w a.img:/s/d/b").good();
        assert_eq!(mode("/s/d/b"), "0444");
        bench.line("chmod u+q a.img:/s/a").refused(2);
        bench.line("chmod 644 a.img:/none").refused(1);
        let owner = |path: &str| {
            let found = stat(bench, path);
            (
                found["uid"].as_u64().unwrap(),
                found["gid"].as_u64().unwrap(),
            )
        };
        bench.line("chmod 4755 a.img:/s/a").good();
        bench.line("chown 70000:80000 a.img:/s/a").good();
        assert_eq!(
            (owner("/s/a"), mode("/s/a")),
            ((70000, 80000), "0755".into())
        );
        bench.line("chown -R 5:6 a.img:/s").good();
        assert_eq!([owner("/s"), owner("/s/d/b"), owner("/s/l")], [(5, 6); 3]);
        bench.line("chown -h :7 a.img:/s/l").good();
        assert_eq!((owner("/s/l"), owner("/s/a")), ((5, 7), (5, 6)));
        bench.line("chown root: a.img:/s/l").good();
        assert_eq!(owner("/s/a"), (0, 0));
        bench.line("chown nobody-of-this-name a.img:/s").refused(2);
    });
}

#[test]
fn touch_makes_files_and_sets_times() {
    each_kind(|bench| {
        bench.line("touch a.img:/new").good();
        assert_eq!(stat(bench, "/new")["size_bytes"], 0);
        bench.line("touch -c a.img:/other").good();
        assert_eq!(bench.line("ls a.img").text(), "lost+found\nnew\n");
        bench
            .run(&["touch", "-d", "2001-02-03 04:05:06.25", "a.img:/new"])
            .good();
        let times = |path: &str| {
            let found = stat(bench, path);
            ["accessed", "modified"].map(|name| found[name].as_str().unwrap()[..22].to_owned())
        };
        assert_eq!(times("/new"), ["2001-02-03T04:05:06.25"; 2]);
        bench.line("touch -a -t 200301020304.05 a.img:/new").good();
        assert_eq!(
            times("/new"),
            ["2003-01-02T03:04:05.00", "2001-02-03T04:05:06.25"]
        );
        bench.shell("echo > ref; touch -a -d '1999-01-01' ref; touch -m -d '1998-01-01' ref");
        bench.line("touch -r ref a.img:/new").good();
        assert_eq!(
            times("/new"),
            ["1999-01-01T00:00:00.00", "1998-01-01T00:00:00.00"]
        );
        bench.line("touch -r a.img:/new a.img:/copy").good();
        assert_eq!(times("/copy"), times("/new"));
        bench.line("touch a.img:/new").good();
        assert!(stat(bench, "/new")["modified"].as_str().unwrap() > "2024");
        bench.line("touch -d yesterday a.img:/new").refused(2);
        bench.line("touch a.img:/none/x").refused(1);
    });
}

#[test]
fn df_and_du_count() {
    each_kind(|bench| {
        bench.shell("mkdir -p s/d; head -c 100000 /dev/zero | tr '\\0' x > s/a; ln s/a s/d/a; head -c 30000 /dev/urandom > s/d/b");
        let before = bench.line("df --json a.img").good().json()[0].clone();
        bench.line("cp -a s a.img:/").good();
        let after = bench.line("df --json a.img").good().json()[0].clone();
        let number = |of: &Value, name: &str| of[name].as_u64().unwrap();
        let grown = number(&after, "used_bytes") - number(&before, "used_bytes");
        let du = bench.line("du --json a.img:/s").good().json();
        let [d, s] = &du.as_array().unwrap()[..] else {
            panic!("{du}");
        };
        assert_eq!((&d["path"], &s["path"]), (&"/s/d".into(), &"/s".into()));
        assert_eq!(number(s, "allocated_bytes"), grown);
        assert_eq!(
            number(&before, "free_inodes") - number(&after, "free_inodes"),
            4
        );
        assert_eq!(number(s, "files"), 4);
        let info = bench.line("info --json a.img").good().json();
        assert_eq!(number(&after, "free_bytes"), number(&info, "free_bytes"));
        let reserved = number(&info, "reserved_bytes");
        assert_eq!(
            number(&after, "available_bytes"),
            number(&info, "free_bytes") - reserved
        );
        let text = bench.line("df -h a.img").good().text();
        assert!(
            text.starts_with("Image") && text.contains("a.img") && text.contains('%'),
            "{text}"
        );
        assert!(bench.line("df -i a.img").good().text().contains("Inodes"));
        let text = bench.line("du -s a.img:/s").good().text();
        assert_eq!(text, format!("{}\t/s\n", grown.div_ceil(1024)));
        let text = bench.run(&["du", "-sbc", "a.img:/s/d/*"]).good().text();
        assert_eq!(text, "100000\t/s/d/a\n30000\t/s/d/b\n130000\ttotal\n");
        assert_eq!(
            bench.line("du -a a.img:/s").good().text().lines().count(),
            4
        );
        assert_eq!(
            bench.line("du -d 0 a.img:/s").good().text().lines().count(),
            1
        );
    });
}

#[test]
fn extended_attributes_are_set_and_shown() {
    each_kind(|bench| {
        bench.line("touch a.img:/f a.img:/g").good();
        bench
            .run(&["setfattr", "-n", "user.word", "-v", "a \"b\"", "a.img:/f"])
            .good();
        bench.line("setfattr -n user.hex -v 0x00ff a.img:/f").good();
        bench
            .line("setfattr -n user.base -v 0sAAEC a.img:/[fg]")
            .good();
        assert_eq!(
            bench.line("getfattr a.img:/f").good().text(),
            "# file: a.img:/f\nuser.base\nuser.hex\nuser.word\n\n"
        );
        assert_eq!(
            bench.line("getfattr -d a.img:/f").good().text(),
            "# file: a.img:/f\nuser.base=0sAAEC\nuser.hex=0sAP8=\nuser.word=\"a \\\"b\\\"\"\n\n"
        );
        let hex = bench.line("getfattr -e hex -n user.hex a.img:/f").good();
        assert!(hex.text().contains("user.hex=0x00ff\n"), "{}", hex.text());
        let only = bench
            .line("getfattr --only-values -n user.base a.img:/g")
            .good();
        assert_eq!(only.stdout, [0, 1, 2]);
        let json = bench.line("getfattr -R --json a.img").good().json();
        let g = json
            .as_array()
            .unwrap()
            .iter()
            .find(|file| file["path"] == "/g");
        assert_eq!(g.unwrap()["xattrs"]["user.base"]["hex"], "000102");
        bench.line("setfattr -x user.hex a.img:/f").good();
        bench.line("setfattr -x user.hex a.img:/f").refused(1);
        bench.line("getfattr -n user.hex a.img:/f").refused(1);
        bench
            .line("setfattr -n other.name -v x a.img:/f")
            .refused(1);
        bench
            .line("setfattr -n user.x -v 0xabc a.img:/f")
            .refused(2);
        // What others read of it.
        if let Some(debugfs) = tool("debugfs", "e2fsprogs") {
            let mut command = Command::new(debugfs);
            command.args(["-R", "ea_list /f"]).arg(bench.path("a.img"));
            let listed = Done::of(command.output().unwrap()).good().text();
            assert!(
                listed.contains("user.word") && !listed.contains("user.hex"),
                "{listed}"
            );
        }
    });
}

/// Starts a copy of endless input, and ends it by a signal.
fn interrupted(bench: &Bench, line: &str, wait: impl Fn() -> bool) -> Done {
    let mut command = Command::new(env!("CARGO_BIN_EXE_backstitch"));
    command.args(line.split_ascii_whitespace());
    command.current_dir(bench.path(""));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !wait() && std::time::Instant::now() < deadline {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    Done::of(child.wait_with_output().unwrap())
}

/// A directory whose copy takes a while: the last file is a pipe's size of data far larger than what is copied at once.
fn large_tree(bench: &Bench) {
    bench.shell("mkdir s; i=0; while [ $i -lt 40 ]; do head -c 4000000 /dev/urandom > s/f$(printf %03d $i); i=$((i+1)); done");
}

#[test]
fn an_interrupted_copy_says_what_is_there() {
    let bench = Bench::new();
    large_tree(&bench);
    bench.image("a.img", "-s 256M -b 1024");
    let marker = bench.path("a.img");
    let begun = std::fs::metadata(&marker).unwrap();
    let blocks = |seen: &std::fs::Metadata| std::os::unix::fs::MetadataExt::blocks(seen);
    let done = interrupted(&bench, "cp -r s a.img:/", || {
        blocks(&std::fs::metadata(&marker).unwrap()) > blocks(&begun) + 20_000
    });
    if done.code == 0 {
        eprintln!("skipped: the copy was faster than the signal");
        return;
    }
    let done = done.refused(1);
    assert!(done.stderr.contains("interrupted"), "{}", done.stderr);
    assert!(
        done.stderr.contains("files were copied completely"),
        "{}",
        done.stderr
    );
    bench.check("a.img");
    // Whatever has a name is whole.
    bench.line("cp -r a.img:/s out").good();
    bench.shell("for f in out/*; do cmp $f s/$(basename $f); done");
    assert!(bench.shell("ls out").text().lines().count() < 40);
    // The rest comes with -u.
    bench.line("cp -ru s a.img:/").good();
    assert_eq!(bench.line("ls a.img:/s").text().lines().count(), 40);
}

#[test]
fn an_interrupted_mkfs_leaves_no_image() {
    let bench = Bench::new();
    large_tree(&bench);
    let image = bench.path("a.img");
    let is_filling = || {
        let seen = std::fs::metadata(&image);
        seen.is_ok_and(|seen| std::os::unix::fs::MetadataExt::blocks(&seen) > 20_000)
    };
    let done = interrupted(&bench, "mkfs -q -s 256M -b 1024 -d s a.img", is_filling);
    if done.code == 0 {
        eprintln!("skipped: the copy was faster than the signal");
        return;
    }
    let done = done.refused(1);
    assert!(done.stderr.contains("nothing is left"), "{}", done.stderr);
    assert!(!image.exists());
}
